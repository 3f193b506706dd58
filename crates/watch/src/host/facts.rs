//! Facts about a host, to compare hosts that should be equal: versions, options, schedulers, queues.
//!
//! A report called eight servers equal in firmware and BIOS, but one had a different mount option. So every cheap fact is
//! recorded, and differences are found by comparison.

use super::files::{Files, number, word};
use super::hardware;
use super::mount::{Mount, ext4_options};
use super::net;
use super::topology::Topology;

/// A fact: topic, name, value.
pub type Fact = (&'static str, String, String);

/// Kernel settings that change how a database runs, below /proc/sys.
const SYSCTLS: [&str; 16] = [
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
    "kernel.sched_autogroup_enabled",
    "kernel.task_delayacct",
    "net.core.netdev_max_backlog",
    "net.core.somaxconn",
    "net.ipv4.tcp_congestion_control",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
];

/// Reads them all.
pub fn read(files: &mut dyn Files, topology: &Topology, mounts: &[Mount], disks: &[String]) -> Vec<Fact> {
    let mut facts = vec![];
    machine(files, &mut facts);
    for disk in disks {
        device(files, disk, topology, &mut facts);
    }
    for name in files.entries("/sys/class/net").into_iter().filter(|name| name != "lo") {
        interface(files, &name, &mut facts);
    }
    for mount in mounts.iter().filter(|mount| mount.is_real()) {
        let text = format!("{} {} {}", mount.device, mount.filesystem, mount.options);
        facts.push(("mount", mount.mount.clone(), text));
        if mount.filesystem == "ext4" {
            effective_options(files, mount, topology, &mut facts);
        }
    }
    for (name, text) in hardware::slow_links(files) {
        facts.push(("disk", format!("{name} link"), text));
    }
    facts
}

fn machine(files: &mut dyn Files, facts: &mut Vec<Fact>) {
    let mut one = |topic, name: &str, path: &str| {
        if let Some(value) = word(files, path) {
            facts.push((topic, name.to_string(), value));
        }
    };
    one("kernel", "release", "/proc/sys/kernel/osrelease");
    one("kernel", "build", "/proc/sys/kernel/version");
    one("kernel", "command line", "/proc/cmdline");
    one("kernel", "tainted", "/proc/sys/kernel/tainted");
    one("kernel", "security modules", "/sys/kernel/security/lsm");
    one("kernel", "clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    one("kernel", "transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled");
    one("kernel", "transparent huge pages defrag", "/sys/kernel/mm/transparent_hugepage/defrag");
    for name in SYSCTLS {
        one("kernel", name, &format!("/proc/sys/{}", name.replace('.', "/")));
    }
    one("cpu", "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    one("cpu", "driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    one("cpu", "smt", "/sys/devices/system/cpu/smt/control");
    one("cpu", "online", "/sys/devices/system/cpu/online");
    one("bios", "vendor", "/sys/class/dmi/id/bios_vendor");
    one("bios", "version", "/sys/class/dmi/id/bios_version");
    one("bios", "date", "/sys/class/dmi/id/bios_date");
    one("bios", "product", "/sys/class/dmi/id/product_name");
    one("zfs", "version", "/sys/module/zfs/version");
    if let Ok(text) = files.text("/proc/cpuinfo") {
        for (name, key) in [("model", "model name"), ("microcode", "microcode")] {
            let value = text
                .lines()
                .find_map(|line| Some(line.strip_prefix(key)?.split_once(':')?.1.trim().to_string()));
            facts.extend(value.map(|value| ("cpu", name.to_string(), value)));
        }
    }
    let nodes = hardware::numa_nodes(files);
    if nodes > 0 {
        facts.push(("cpu", "memory nodes".to_string(), nodes.to_string()));
    }
    if let Ok(text) = files.text("/proc/meminfo") {
        let found = super::memory::meminfo(text);
        if let Some(total) = found.total_bytes {
            facts.push(("memory", "total".to_string(), format!("{total} bytes")));
        }
        if let (Some(pages), Some(bytes)) = (found.huge_pages, found.huge_page_bytes) {
            facts.push(("memory", "huge pages".to_string(), format!("{pages} of {bytes} bytes")));
        }
    }
    for controller in files.entries("/sys/devices/system/edac/mc") {
        let folder = format!("/sys/devices/system/edac/mc/{controller}");
        for dimm in files.entries(&folder).into_iter().filter(|name| name.starts_with("dimm")) {
            if let Some(size) = number(files, &format!("{folder}/{dimm}/size")) {
                let label = word(files, &format!("{folder}/{dimm}/dimm_label")).unwrap_or_default();
                facts.push((
                    "memory",
                    format!("{controller}/{dimm}"),
                    format!("{label} {size} MiB").trim().to_string(),
                ));
            }
        }
    }
}

/// The active entry of a list like `mq-deadline [none]`.
fn chosen(list: &str) -> &str {
    let inner = list.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(inner, _)| inner);
    inner.unwrap_or(list)
}

fn device(files: &mut dyn Files, disk: &str, topology: &Topology, facts: &mut Vec<Fact>) {
    let folder = format!("/sys/block/{disk}");
    let mut one = |name: &str, path: &str| {
        if let Some(value) = word(files, &format!("{folder}/{path}")) {
            facts.push(("disk", format!("{disk} {name}"), chosen(&value).to_string()));
        }
    };
    one("model", "device/model");
    one("firmware", "device/firmware_rev");
    one("scheduler", "queue/scheduler");
    one("requests", "queue/nr_requests");
    one("rotational", "queue/rotational");
    one("write cache", "queue/write_cache");
    one("read ahead KiB", "queue/read_ahead_kb");
    one("sectors", "size");
    one("level", "md/level");
    one("members missing", "md/degraded");
    one("activity", "md/sync_action");
    one("chunk bytes", "md/chunk_size");
    one("file", "loop/backing_file");
    one("volume", "dm/name");
    let members: Vec<&str> = topology.members(disk).collect();
    if !members.is_empty() {
        facts.push(("disk", format!("{disk} members"), members.join(",")));
    }
}

fn interface(files: &mut dyn Files, name: &str, facts: &mut Vec<Fact>) {
    let card = net::card(files, name);
    let mut one = |what: &str, value: String| facts.push(("nic", format!("{name} {what}"), value));
    for (what, count) in [("rx queues", card.rx_queues), ("tx queues", card.tx_queues)] {
        // Without a queue their number is unknown.
        if count > 0 {
            one(what, count.to_string());
        }
    }
    if let Some(driver) = card.driver {
        one("driver", driver);
    }
    if let Some(mtu) = card.mtu {
        one("mtu", format!("{mtu} bytes"));
    }
    if let Some(speed) = card.speed_mbit_s {
        one("speed", format!("{speed} Mbit/s"));
    }
    if card.is_steered {
        one("packet steering", "on".to_string());
    }
}

/// ext4 silently drops options that it cannot use. A separate file has the effective ones; this reads those that findings need.
fn effective_options(files: &mut dyn Files, mount: &Mount, topology: &Topology, facts: &mut Vec<Fact>) {
    const WANTED: [&str; 4] = ["stripe", "commit", "mb_optimize_scan", "data"];
    let Some(device) = topology.device_of(mount) else { return };
    let Ok(text) = files.text(&format!("/proc/fs/ext4/{device}/options")) else { return };
    let options = ext4_options(text);
    for name in WANTED {
        if let Some(value) = options.get(name) {
            facts.push(("mount", format!("{} {name}", mount.mount), value.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use crate::host::mount::mountinfo;

    #[test]
    fn a_mount_option_that_was_dropped_is_seen() {
        let mut files = Shipped::default();
        files.put("/sys/block/md0/dev", "9:0\n".into());
        files.put("/sys/block/md0/queue/scheduler", "mq-deadline kyber [none]\n".into());
        files.put("/sys/block/md0/md/level", "raid10\n".into());
        files.put("/proc/fs/ext4/md0/options", "rw\nstripe=0\ncommit=5\n".into());
        let mounts = mountinfo(
            "27 1 9:0 / /data rw,noatime - ext4 /dev/md0 rw,stripe=1280\n1 1 0:4 / /proc rw - proc proc rw\n",
        );
        let topology = Topology::read(&mut files, &mounts);
        let facts = read(&mut files, &topology, &mounts, &["md0".to_string()]);
        let value = |topic: &str, name: &str| {
            let found = facts.iter().find(|(of, is, _)| *of == topic && is == name);
            found.map(|(_, _, value)| value.as_str())
        };
        assert_eq!(value("mount", "/data"), Some("/dev/md0 ext4 rw,noatime,stripe=1280"));
        assert_eq!(
            value("mount", "/data stripe"),
            Some("0"),
            "the effective value outranks the requested one"
        );
        assert_eq!(value("disk", "md0 scheduler"), Some("none"));
        assert_eq!(value("disk", "md0 level"), Some("raid10"));
        assert_eq!(value("mount", "/proc"), None);
        assert_eq!(chosen("none"), "none");
    }
}
