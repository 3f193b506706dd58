//! Counters that should not move: memory errors (EDAC), PCIe errors (AER), thermal throttling, fans, NUMA misses, ZFS.
//!
//! Each is a running total with a name. The collector turns totals into changes: for corrected memory errors the rate matters,
//! because the total counts since an unknown day.

use super::files::{Files, number, word};
use std::collections::BTreeMap;

/// Which hardware a counter belongs to: the `kind` of a `hardware` line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Memory errors.
    Edac,
    /// PCI Express errors, and links below their best.
    Aer,
    /// Throttling and temperatures.
    Thermal,
    /// Fans.
    Fan,
    /// Memory of other nodes.
    Numa,
    /// ZFS.
    Zfs,
    /// ext4's block allocator.
    MbStats,
    /// The health that a drive reports about itself.
    Smart,
}

impl Kind {
    /// The word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Edac => "edac",
            Kind::Aer => "aer",
            Kind::Thermal => "thermal",
            Kind::Fan => "fan",
            Kind::Numa => "numa",
            Kind::Zfs => "zfs",
            Kind::MbStats => "mb_stats",
            Kind::Smart => "smart",
        }
    }
}

/// One reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Which hardware.
    pub kind: Kind,
    /// The part and the counter: `mc0/dimm3 CPU1_DIMM_B2 ce`.
    pub name: String,
    /// The total, or for fans and temperatures the reading.
    pub value: u64,
    /// Worth a line although it did not move: an earlier error, a stopped fan.
    pub is_remarkable: bool,
}

impl Counter {
    /// A counter of this hardware.
    pub fn new(kind: Kind, name: String, value: u64, is_remarkable: bool) -> Counter {
        Counter { kind, name, value, is_remarkable }
    }
}

/// Whether a name is this word and a number: `mc5`, `cpu12`.
fn is_numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.parse::<u32>().is_ok())
}

/// Memory errors, per DIMM if the driver knows them, else per controller and per row of chips. `ce` is corrected, `ue` is not.
pub fn edac(files: &mut dyn Files) -> Vec<Counter> {
    const FOLDER: &str = "/sys/devices/system/edac/mc";
    let mut found = vec![];
    let mut push = |name: String, value: Option<u64>| {
        if let Some(value) = value {
            found.push(Counter::new(Kind::Edac, name, value, value > 0));
        }
    };
    for controller in files.entries(FOLDER) {
        if !is_numbered(&controller, "mc") {
            continue;
        }
        let folder = format!("{FOLDER}/{controller}");
        for what in ["ce", "ue"] {
            push(format!("{controller} {what}"), number(files, &format!("{folder}/{what}_count")));
        }
        for part in files.entries(&folder) {
            let is_dimm = part.starts_with("dimm") || part.starts_with("rank");
            let is_row = part.starts_with("csrow");
            if !is_dimm && !is_row {
                continue;
            }
            let label = word(files, &format!("{folder}/{part}/dimm_label"));
            let title = match &label {
                Some(label) => format!("{controller}/{part} {label}"),
                None => format!("{controller}/{part}"),
            };
            let prefix = if is_dimm { "dimm_" } else { "" };
            for what in ["ce", "ue"] {
                let path = format!("{folder}/{part}/{prefix}{what}_count");
                push(format!("{title} {what}"), number(files, &path));
            }
        }
    }
    found
}

/// The total in a file like `aer_dev_correctable`: the line `TOTAL_ERR_...`.
pub(crate) fn aer_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Classes of PCI devices that a database depends on: the first byte of `class`.
fn pci_class(class: &str) -> Option<&'static str> {
    match class.strip_prefix("0x")?.get(..2)? {
        "01" => Some("storage"),
        "02" => Some("network"),
        "06" => Some("bridge"),
        _ => None,
    }
}

/// PCI Express errors of disks, network cards and the bridges above them.
pub fn aer(files: &mut dyn Files) -> Vec<Counter> {
    const FOLDER: &str = "/sys/bus/pci/devices";
    let mut found = vec![];
    for address in files.entries(FOLDER) {
        let folder = format!("{FOLDER}/{address}");
        let Some(class) = word(files, &format!("{folder}/class")).as_deref().and_then(pci_class) else {
            continue;
        };
        for what in ["correctable", "nonfatal", "fatal"] {
            let total = files.text(&format!("{folder}/aer_dev_{what}")).ok().and_then(aer_total);
            if let Some(total) = total {
                found.push(Counter::new(Kind::Aer, format!("{address} {class} {what}"), total, total > 0));
            }
        }
    }
    found
}

/// Links that run below the maximum of device and slot: `(address class, "8.0 GT/s x2 of 16.0 GT/s x4")`.
pub(crate) fn slow_links(files: &mut dyn Files) -> Vec<(String, String)> {
    const FOLDER: &str = "/sys/bus/pci/devices";
    let mut found = vec![];
    for address in files.entries(FOLDER) {
        let folder = format!("{FOLDER}/{address}");
        let class = word(files, &format!("{folder}/class")).as_deref().and_then(pci_class);
        let Some(class @ ("storage" | "network")) = class else { continue };
        let mut read = |name: &str| word(files, &format!("{folder}/{name}"));
        let now = (read("current_link_speed"), read("current_link_width"));
        let best = (read("max_link_speed"), read("max_link_width"));
        let (Some(speed), Some(width), Some(best_speed), Some(best_width)) = (now.0, now.1, best.0, best.1)
        else {
            continue;
        };
        // Devices without a link say "Unknown" and width 0 or 255.
        if speed.starts_with(|c: char| c.is_ascii_digit())
            && width != "0"
            && (&speed, &width) != (&best_speed, &best_width)
        {
            let short = |speed: &str| speed.trim_end_matches(" PCIe").to_string();
            let text = format!("{} x{width} of {} x{best_width}", short(&speed), short(&best_speed));
            found.push((format!("{address} {class}"), text));
        }
    }
    found
}

/// Times the processors slowed down because of heat: of all cores, and of the hottest package.
pub fn throttling(files: &mut dyn Files) -> Vec<Counter> {
    const FOLDER: &str = "/sys/devices/system/cpu";
    let (mut cores, mut package) = (None, None);
    for cpu in files.entries(FOLDER) {
        if !is_numbered(&cpu, "cpu") {
            continue;
        }
        let folder = format!("{FOLDER}/{cpu}/thermal_throttle");
        let Some(count) = number(files, &format!("{folder}/core_throttle_count")) else {
            // Either all processors have the counter or none.
            break;
        };
        cores = Some(cores.unwrap_or(0_u64).saturating_add(count));
        // Each core shows its package's count.
        package = package.max(number(files, &format!("{folder}/package_throttle_count")));
    }
    let mut found = vec![];
    for (name, count) in [("cores throttled", cores), ("package throttled", package)] {
        if let Some(count) = count {
            found.push(Counter::new(Kind::Thermal, name.to_string(), count, false));
        }
    }
    found
}

/// Fans, and temperatures at or above their critical mark. A stopped fan is remarkable if the board raises its alarm, or if
/// it is below its minimum speed; connectors without a fan read 0 on every board.
pub fn sensors(files: &mut dyn Files) -> Vec<Counter> {
    const FOLDER: &str = "/sys/class/hwmon";
    let mut found = vec![];
    for monitor in files.entries(FOLDER) {
        let folder = format!("{FOLDER}/{monitor}");
        let chip = word(files, &format!("{folder}/name")).unwrap_or_else(|| monitor.clone());
        for name in files.entries(&folder) {
            let Some(sensor) = name.strip_suffix("_input") else { continue };
            let mut read = |suffix: &str| number(files, &format!("{folder}/{sensor}_{suffix}"));
            let Some(value) = read("input") else { continue };
            let alarm = read("alarm").unwrap_or(0) > 0;
            let (kind, is_remarkable) = if sensor.starts_with("fan") {
                (Kind::Fan, alarm || read("min").is_some_and(|min| value < min))
            } else if sensor.starts_with("temp") {
                let is_hot = read("crit").is_some_and(|crit| crit > 0 && value >= crit);
                if !is_hot && !alarm {
                    continue;
                }
                (Kind::Thermal, true)
            } else {
                continue;
            };
            let label = word(files, &format!("{folder}/{sensor}_label"));
            let name = format!("{chip} {}", label.as_deref().unwrap_or(sensor));
            found.push(Counter::new(kind, name, value, is_remarkable));
        }
    }
    found
}

/// Pages that each memory node gave to processes on other nodes, and those given as requested. Hosts with one node have no
/// such counters.
pub fn numa(files: &mut dyn Files) -> Vec<Counter> {
    const FOLDER: &str = "/sys/devices/system/node";
    let nodes: Vec<String> =
        files.entries(FOLDER).into_iter().filter(|name| is_numbered(name, "node")).collect();
    if nodes.len() < 2 {
        return vec![];
    }
    let mut found = vec![];
    for node in nodes {
        let Ok(text) = files.text(&format!("{FOLDER}/{node}/numastat")) else { continue };
        let values = pairs(text);
        for name in ["numa_hit", "numa_miss", "local_node", "other_node"] {
            if let Some(value) = values.get(name) {
                found.push(Counter::new(Kind::Numa, format!("{node} {name}"), *value, false));
            }
        }
    }
    found
}

/// Lines of a name and a number.
fn pairs(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            Some((words.next()?.to_string(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// The number of memory nodes; 0 if the kernel does not report it.
pub(crate) fn numa_nodes(files: &mut dyn Files) -> u64 {
    files.entries("/sys/devices/system/node").iter().filter(|name| is_numbered(name, "node")).count() as u64
}

/// The cache of ZFS: its size, how often processes had to wait for memory, and its hits.
pub fn zfs(files: &mut dyn Files) -> Vec<Counter> {
    let Ok(text) = files.text("/proc/spl/kstat/zfs/arcstats") else { return vec![] };
    arcstats(text)
        .into_iter()
        .map(|(name, value)| {
            let is_remarkable = name == "size" || (name == "memory_throttle_count" && value > 0);
            Counter::new(Kind::Zfs, format!("arc {name}"), value, is_remarkable)
        })
        .collect()
}

/// The values of `arcstats` that findings use. Lines are name, type, data.
pub(crate) fn arcstats(text: &str) -> Vec<(String, u64)> {
    const WANTED: [&str; 6] = ["hits", "misses", "size", "c_max", "memory_throttle_count", "arc_need_free"];
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().filter(|name| WANTED.contains(name))?;
            Some((name.to_string(), words.nth(1)?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    fn shipped(files: &[(&str, &str)]) -> Shipped {
        let mut shipped = Shipped::default();
        for (path, text) in files {
            shipped.put(path, format!("{text}\n"));
        }
        shipped
    }

    fn reported(counters: &[Counter]) -> Vec<(&str, u64, bool)> {
        counters.iter().map(|counter| (counter.name.as_str(), counter.value, counter.is_remarkable)).collect()
    }

    #[test]
    fn memory_errors_per_dimm_and_row() {
        const MC: &str = "/sys/devices/system/edac/mc";
        let mut files = shipped(&[
            (&format!("{MC}/mc0/ce_count"), "12"),
            (&format!("{MC}/mc0/ue_count"), "0"),
            (&format!("{MC}/mc0/dimm3/dimm_ce_count"), "12"),
            (&format!("{MC}/mc0/dimm3/dimm_ue_count"), "0"),
            (&format!("{MC}/mc0/dimm3/dimm_label"), "CPU_SrcID#0_MC#0_Chan#1_DIMM#1"),
            (&format!("{MC}/mc0/csrow0/ce_count"), "broken"),
            (&format!("{MC}/power/control"), "auto"),
        ]);
        assert_eq!(
            reported(&edac(&mut files)),
            [
                ("mc0 ce", 12, true),
                ("mc0 ue", 0, false),
                ("mc0/dimm3 CPU_SrcID#0_MC#0_Chan#1_DIMM#1 ce", 12, true),
                ("mc0/dimm3 CPU_SrcID#0_MC#0_Chan#1_DIMM#1 ue", 0, false),
            ]
        );
    }

    #[test]
    fn pcie_errors_and_links_of_what_matters() {
        const PCI: &str = "/sys/bus/pci/devices";
        let mut files = shipped(&[
            (&format!("{PCI}/0000:3b:00.0/class"), "0x010802"),
            (&format!("{PCI}/0000:3b:00.0/aer_dev_correctable"), "RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7"),
            (&format!("{PCI}/0000:3b:00.0/aer_dev_fatal"), "TOTAL_ERR_FATAL 0"),
            (&format!("{PCI}/0000:3b:00.0/current_link_speed"), "8.0 GT/s PCIe"),
            (&format!("{PCI}/0000:3b:00.0/max_link_speed"), "16.0 GT/s PCIe"),
            (&format!("{PCI}/0000:3b:00.0/current_link_width"), "4"),
            (&format!("{PCI}/0000:3b:00.0/max_link_width"), "4"),
            (&format!("{PCI}/0000:00:01.0/class"), "0x030000"),
            (&format!("{PCI}/0000:00:01.0/aer_dev_correctable"), "TOTAL_ERR_COR 9"),
            (&format!("{PCI}/0000:00:02.0/class"), "0x020000"),
            (&format!("{PCI}/0000:00:02.0/current_link_speed"), "Unknown"),
            (&format!("{PCI}/0000:00:02.0/max_link_speed"), "Unknown"),
            (&format!("{PCI}/0000:00:02.0/current_link_width"), "0"),
            (&format!("{PCI}/0000:00:02.0/max_link_width"), "255"),
        ]);
        assert_eq!(
            reported(&aer(&mut files)),
            [("0000:3b:00.0 storage correctable", 7, true), ("0000:3b:00.0 storage fatal", 0, false)],
            "a graphics card is not relevant"
        );
        let expected = ("0000:3b:00.0 storage".to_string(), "8.0 GT/s x4 of 16.0 GT/s x4".to_string());
        assert_eq!(slow_links(&mut files), [expected]);
    }

    #[test]
    fn a_dead_fan_is_remarkable_and_an_empty_connector_is_not() {
        const HWMON: &str = "/sys/class/hwmon/hwmon0";
        let mut files = shipped(&[
            (&format!("{HWMON}/name"), "nct6775"),
            (&format!("{HWMON}/fan1_input"), "0"),
            (&format!("{HWMON}/fan1_min"), "300"),
            (&format!("{HWMON}/fan1_label"), "CPU1 FAN"),
            (&format!("{HWMON}/fan2_input"), "0"),
            (&format!("{HWMON}/fan3_input"), "4200"),
            (&format!("{HWMON}/temp1_input"), "96000"),
            (&format!("{HWMON}/temp1_crit"), "95000"),
            (&format!("{HWMON}/temp2_input"), "40000"),
            (&format!("{HWMON}/in0_input"), "1"),
        ]);
        assert_eq!(
            reported(&sensors(&mut files)),
            [
                ("nct6775 CPU1 FAN", 0, true),
                ("nct6775 fan2", 0, false),
                ("nct6775 fan3", 4200, false),
                ("nct6775 temp1", 96_000, true),
            ]
        );
    }

    #[test]
    fn throttling_is_summed_over_cores_but_not_over_their_package() {
        const CPU: &str = "/sys/devices/system/cpu";
        let mut files = shipped(&[
            (&format!("{CPU}/cpu0/thermal_throttle/core_throttle_count"), "3"),
            (&format!("{CPU}/cpu0/thermal_throttle/package_throttle_count"), "10"),
            (&format!("{CPU}/cpu1/thermal_throttle/core_throttle_count"), "4"),
            (&format!("{CPU}/cpu1/thermal_throttle/package_throttle_count"), "10"),
            (&format!("{CPU}/cpufreq/boost"), "1"),
        ]);
        let expected = [("cores throttled", 7, false), ("package throttled", 10, false)];
        assert_eq!(reported(&throttling(&mut files)), expected);
        assert!(throttling(&mut Shipped::default()).is_empty());
    }

    #[test]
    fn memory_nodes_speak_only_where_there_are_several() {
        const NODE: &str = "/sys/devices/system/node";
        let stat =
            "numa_hit 100\nnuma_miss 5\nnuma_foreign 1\ninterleave_hit 0\nlocal_node 90\nother_node 15";
        let mut files = shipped(&[(&format!("{NODE}/node0/numastat"), stat)]);
        assert!(numa(&mut files).is_empty());
        files.put(&format!("{NODE}/node1/numastat"), "numa_miss x\nother_node 7\n".into());
        let found = numa(&mut files);
        assert_eq!(found.len(), 5);
        assert_eq!(reported(&found)[1], ("node0 numa_miss", 5, false));
        assert_eq!(reported(&found)[4], ("node1 other_node", 7, false));
        assert_eq!(numa_nodes(&mut files), 2);
    }

    #[test]
    fn arcstats_has_types_between_names_and_numbers() {
        let text = "9 1 0x01 96 26112 8712 9\nname                            type data\nhits                            4    123\n\
                    memory_throttle_count           4    2\nsize                            4    4096\nmfu_size 4 9\n";
        let expected = [("hits", 123), ("memory_throttle_count", 2), ("size", 4096)];
        assert_eq!(arcstats(text), expected.map(|(name, value)| (name.to_string(), value)));
    }
}
