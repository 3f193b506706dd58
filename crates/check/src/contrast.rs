//! Compares hosts that should be equal: the one that differs is named, fact by fact and figure by figure.

use record::check::{Area, Checks, Fact, Host, Item, Pattern, Unit, Verdict};
use record::number;
use record::statistics::median;
use std::collections::{BTreeMap, BTreeSet};

/// A figure of a host differs from this distance to the median of all hosts (docs/explain.md, IO-02).
const DISTANCE_SHARE: f64 = 0.2;
/// Hosts that make a median.
const HOSTS_MIN: usize = 2;

/// One item per difference.
pub fn items(checks: &Checks) -> Vec<Item> {
    // A host that is not known differs in nothing.
    let is_known = |host: &&Host| host.lost.is_none() && !host.facts.is_empty();
    let hosts: Vec<&Host> = checks.hosts.iter().filter(is_known).collect();
    if hosts.len() < HOSTS_MIN {
        return vec![];
    }
    let mut items = of_facts(&hosts);
    items.extend(of_figures(checks, &hosts));
    if items.is_empty() {
        let claim = format!(
            "{} are equal in every fact and figure that was compared",
            number::counted(hosts.len() as u64, "host")
        );
        items.push(
            Item { check: "contrast".into(), area: Area::Contrast, ..Item::default() }
                .judged(Verdict::Pass, claim),
        );
    }
    items
}

/// Facts that differ between equal hosts by their nature: names of volumes, states of a moment, sizes in bytes of the same memory modules.
fn is_own(fact: &Fact) -> bool {
    matches!(fact.topic.as_str(), "fanotify" | "clock" | "kernel log")
        || matches!(
            (fact.topic.as_str(), fact.name.as_str()),
            ("kernel", "command line") | ("memory", "total")
        )
        || fact.name.contains(" lies on")
        || (fact.topic == "disk" && (fact.name.ends_with(" file") || fact.name.ends_with(" volume")))
        || (fact.topic == "audit" && fact.name == "lost")
        || (fact.topic == "nic" && fact.name.starts_with("veth"))
}

/// The value as it is compared: the device of a mount has its own name on each host.
fn value_of(fact: &Fact) -> String {
    if fact.topic == "mount" && fact.name.starts_with('/') && !fact.name.contains(' ') {
        return fact.value.split_once(' ').map_or(fact.value.clone(), |(_, rest)| rest.to_string());
    }
    fact.value.clone()
}

fn of_facts(hosts: &[&Host]) -> Vec<Item> {
    let mut all: BTreeMap<(&str, &str), BTreeMap<&str, String>> = BTreeMap::new();
    for host in hosts {
        for fact in host.facts.iter().filter(|fact| !is_own(fact)) {
            all.entry((&fact.topic, &fact.name)).or_default().insert(&host.host, value_of(fact));
        }
    }
    all.into_iter().flat_map(|((topic, name), values)| differing(topic, name, &values, hosts)).collect()
}

/// The hosts whose value is not that of the majority; without a majority one item names all values.
fn differing(topic: &str, name: &str, values: &BTreeMap<&str, String>, hosts: &[&Host]) -> Vec<Item> {
    const ABSENT: &str = "absent";
    let of = |host: &str| values.get(host).map_or(ABSENT, String::as_str);
    let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for host in hosts {
        holders.entry(of(&host.host)).or_default().push(&host.host);
    }
    if holders.len() < 2 {
        return vec![];
    }
    let usual = holders
        .iter()
        .max_by_key(|(_, names)| names.len())
        .filter(|(_, names)| names.len() * 2 > hosts.len());
    let title = format!("{topic} {name}");
    let Some((usual, _)) = usual else {
        let distinct: BTreeSet<String> =
            holders.iter().map(|(value, names)| format!("{value} on {}", names.join(", "))).collect();
        let claim = format!("{title} differs: {}", distinct.into_iter().collect::<Vec<_>>().join("; "));
        let item =
            Item { check: "contrast.fact".into(), area: Area::Contrast, subject: title, ..Item::default() };
        return vec![item.judged(Verdict::Warn, claim).why(WHY)];
    };
    let odd = holders
        .iter()
        .filter(|(value, _)| *value != usual)
        .flat_map(|(value, names)| names.iter().map(move |name| (*value, *name)));
    odd.map(|(value, host)| {
        let claim = format!("{host} differs: {title} is {value}, on the others {usual}");
        Item::of_host("contrast.fact", Area::Contrast, host, title.as_str())
            .judged(Verdict::Warn, claim)
            .why(WHY)
    })
    .collect()
}

const WHY: &str = "Hosts of one cluster should be equal; the slow one is usually the one that differs.";

/// A figure of every host: its name, its unit, and whether more is better.
struct Figure {
    name: String,
    unit: Unit,
    values: Vec<(String, f64)>,
}

fn of_figures(checks: &Checks, hosts: &[&Host]) -> Vec<Item> {
    let mut figures = vec![];
    let mut push = |name: &str, unit, of: &dyn Fn(&Host) -> Option<f64>| {
        let values = hosts.iter().filter_map(|host| Some((host.host.clone(), of(host)?))).collect();
        figures.push(Figure { name: name.to_string(), unit, values });
    };
    push("processor", Unit::PerSecond, &|host| host.processor.as_ref().map(|one| one.rounds_per_s));
    push("memory read", Unit::BytesPerSecond, &|host| {
        first(host.memory.iter().map(|one| one.read_bytes_per_s).sum())
    });
    push("memory copy", Unit::BytesPerSecond, &|host| {
        first(host.memory.iter().map(|one| one.copy_bytes_per_s).sum())
    });
    push("memory latency", Unit::Nanoseconds, &|host| {
        host.memory.iter().map(|one| one.latency_ns).reduce(f64::max)
    });
    push("processors", Unit::Count, &|host| first(host.cpus as f64));
    push("memory size", Unit::Bytes, &|host| {
        let total = host.facts.iter().find(|fact| fact.topic == "memory" && fact.name == "total")?;
        total.value.split(' ').next()?.parse().ok()
    });
    figures.extend(of_disks(checks));
    figures.into_iter().flat_map(odd).collect()
}

fn first(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// The figures of the last round of each directory that several hosts have.
fn of_disks(checks: &Checks) -> Vec<Figure> {
    let last = checks.disks.iter().map(|disk| disk.round).max().unwrap_or(0);
    let mut all: BTreeMap<(String, Pattern, u64), Vec<(String, f64)>> = BTreeMap::new();
    for disk in checks.disks.iter().filter(|disk| disk.round == last) {
        for test in &disk.tests {
            let value = if test.pattern == Pattern::Sync { test.latency_us.p50 } else { test.bytes_per_s };
            let key = (disk.directory.clone(), test.pattern, test.depth);
            all.entry(key).or_default().push((disk.host.clone(), value));
        }
    }
    let figure = |((directory, pattern, depth), values): ((String, Pattern, u64), _)| Figure {
        name: format!("{directory} {} at depth {depth}", pattern.title()),
        unit: if pattern == Pattern::Sync { Unit::Microseconds } else { Unit::BytesPerSecond },
        values,
    };
    all.into_iter().map(figure).collect()
}

/// The hosts whose figure is far from the median of the others, on the bad side: a fast host is no problem.
fn odd(figure: Figure) -> Vec<Item> {
    if figure.values.len() < HOSTS_MIN {
        return vec![];
    }
    let is_time = matches!(figure.unit, Unit::Microseconds | Unit::Nanoseconds);
    let mut items = vec![];
    for (host, value) in &figure.values {
        let peers = figure.values.iter().filter(|(other, _)| other != host).map(|(_, value)| *value);
        let Some(usual) = median(peers).filter(|usual| *usual > 0.0) else { continue };
        let ratio = value / usual;
        let is_bad = if is_time { ratio > 1.0 + DISTANCE_SHARE } else { ratio < 1.0 - DISTANCE_SHARE };
        if !is_bad {
            continue;
        }
        let shown = |value: f64| record::check::Figure { value, unit: figure.unit }.text();
        let claim = format!(
            "{host} is slower: {} is {}, the median of the others {} ({} of it)",
            figure.name,
            shown(*value),
            shown(usual),
            number::percent(ratio)
        );
        let item = Item::of_host("contrast.figure", Area::Contrast, host, figure.name.as_str());
        items.push(item.figure(*value, figure.unit).judged(Verdict::Warn, claim).why(WHY));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{Disk, DiskTest};

    fn host(name: &str, stripe: &str) -> Host {
        let fact = |topic: &str, name: &str, value: &str| Fact {
            topic: topic.into(),
            name: name.into(),
            value: value.into(),
        };
        let options = format!("/dev/{name} ext4 rw,noatime{stripe}");
        let facts = vec![
            fact("mount", "/data", &options),
            fact("kernel", "release", "6.1.0"),
            fact("clock", "kernel", name),
        ];
        Host { host: name.into(), facts, ..Host::default() }
    }

    fn claims(checks: &Checks) -> Vec<String> {
        items(checks).into_iter().map(|item| item.claim).collect()
    }

    #[test]
    fn the_host_with_another_mount_option_is_named() {
        let hosts = vec![host("dn1", ""), host("dn2", ""), host("dn7", ",stripe=1280")];
        assert_eq!(
            claims(&Checks { hosts, ..Checks::default() }),
            ["dn7 differs: mount /data is ext4 rw,noatime,stripe=1280, on the others ext4 rw,noatime"]
        );
    }

    #[test]
    fn equal_hosts_pass_and_two_different_ones_are_both_named() {
        let equal = Checks { hosts: vec![host("dn1", ""), host("dn2", "")], ..Checks::default() };
        assert_eq!(items(&equal)[0].verdict, Verdict::Pass);
        let two = Checks { hosts: vec![host("dn1", ""), host("dn2", ",stripe=1")], ..Checks::default() };
        assert_eq!(
            claims(&two),
            ["mount /data differs: ext4 rw,noatime on dn1; ext4 rw,noatime,stripe=1 on dn2"]
        );
        assert!(items(&Checks { hosts: vec![host("dn1", "")], ..Checks::default() }).is_empty());
    }

    #[test]
    fn the_slow_disk_is_named_and_the_fast_one_is_not() {
        let disk = |host: &str, bytes_per_s: f64| Disk {
            host: host.into(),
            directory: "/data".into(),
            tests: vec![DiskTest { depth: 1, bytes_per_s, ..DiskTest::default() }],
            ..Disk::default()
        };
        let hosts = ["a", "b", "c"].map(|name| host(name, "")).to_vec();
        let disks = vec![disk("a", 1.0e9), disk("b", 0.3e9), disk("c", 2.0e9)];
        let found = claims(&Checks { hosts, disks, ..Checks::default() });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found
                .iter()
                .any(|claim| claim.starts_with("b is slower: /data sequential write at depth 1 is 300 MB/s"))
        );
    }
}
