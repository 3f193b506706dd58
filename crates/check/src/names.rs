//! The names of all checks, so that an acceptance file cannot require one that does not exist: such a requirement of "no warning" would always be kept.

use crate::database;
use record::check::Unit;

/// Checks of hosts, of the network and of plans, with the units of their figures; those without have none. Those of nodes are in [`database::all`].
const NAMES: [(&str, &[Unit]); 54] = [
    ("audit.lost", &[Unit::Count]),
    ("audit.rules", &[]),
    ("clock.offset", &[Unit::Microseconds]),
    ("clock.synchronised", &[]),
    ("contrast.fact", &[]),
    ("contrast.figure", &OF_CONTRAST),
    ("cpu.busy", &[Unit::Share]),
    ("cpu.frequency", &[Unit::Megahertz]),
    ("cpu.governor", &[]),
    ("cpu.steal", &[Unit::Share]),
    ("cpu.thread", &[Unit::PerSecond]),
    ("disk.direct", &[]),
    ("disk.file", &[Unit::Bytes]),
    ("disk.member", &[Unit::Microseconds]),
    ("disk.probe", &[]),
    ("disk.sync", &[Unit::Microseconds]),
    ("disk.sync.p99", &[Unit::Microseconds]),
    ("hardware.cooling", &[Unit::Count]),
    ("hardware.drive", &[Unit::Count]),
    ("hardware.link", &[]),
    ("hardware.memory", &[Unit::Count]),
    ("hardware.pcie", &[Unit::Count]),
    ("host.reached", &[]),
    ("host.unseen", &[]),
    ("kernel.release", &[]),
    ("memory.copy", &[Unit::BytesPerSecond]),
    ("memory.huge_pages", &[]),
    ("memory.latency", &[Unit::Nanoseconds]),
    ("memory.nodes", &[Unit::Count]),
    ("memory.overcommit", &[]),
    ("memory.read", &[Unit::BytesPerSecond]),
    ("memory.remote_latency", &[Unit::Nanoseconds]),
    ("memory.swappiness", &[Unit::Count]),
    ("memory.transparent_huge_pages", &[]),
    ("memory.zone_reclaim", &[]),
    ("mount.pgdata", &[]),
    ("mount.space", &[Unit::Share]),
    ("mount.stripe", &[Unit::Count]),
    ("mount.volatile", &[]),
    ("network.bandwidth", &[Unit::BytesPerSecond]),
    ("network.retransmits", &[Unit::Share]),
    ("network.round_trip", &[Unit::Microseconds]),
    ("nic.queues", &[Unit::Count]),
    ("node.listed", &[]),
    ("node.reached", &[]),
    ("plan.disk_read", &[Unit::BytesPerSecond]),
    ("plan.disk_write", &[Unit::BytesPerSecond]),
    ("plan.nodes", &[Unit::Count]),
    ("plan.space", &[Unit::Bytes]),
    ("scanner.fanotify", &[]),
    ("spread.disk.sync", &[Unit::Share]),
    ("spread.network.bandwidth", &[Unit::Share]),
    ("zfs.property", &[]),
    ("zfs.version", &[]),
];
/// Tests of disks that have a depth: `disk.NAME.qN`.
const OF_DEPTH: [&str; 4] = ["sequential_write", "sequential_read", "random_read", "random_write"];

/// Units of what hosts are compared by.
const OF_CONTRAST: [Unit; 6] =
    [Unit::PerSecond, Unit::BytesPerSecond, Unit::Nanoseconds, Unit::Microseconds, Unit::Count, Unit::Bytes];

/// The units of the figures of a check, none if it has no figures; `None`: there is no such check.
pub(crate) fn units_of(name: &str) -> Option<&'static [Unit]> {
    let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, units)| *units);
    let of_node = || database::all().find(|check| check.id == name).map(|check| check.units);
    known.or_else(of_node).or_else(|| units_of_depth(name))
}

/// `disk.random_read.q8`, and of random tests `disk.random_read.q8.p99`, which has no spread.
fn units_of_depth(name: &str) -> Option<&'static [Unit]> {
    let rest = name.strip_prefix("spread.").unwrap_or(name);
    let is_spread = rest != name;
    let words: Vec<&str> = rest.split('.').collect();
    let ["disk", test, depth, tail @ ..] = words.as_slice() else { return None };
    let depth: u64 = depth.strip_prefix('q')?.parse().ok()?;
    let is_random = test.starts_with("random");
    if !OF_DEPTH.contains(test) || depth == 0 {
        return None;
    }
    match tail {
        [] if is_spread => Some(&[Unit::Share]),
        [] if is_random => Some(&[Unit::PerSecond]),
        [] => Some(&[Unit::BytesPerSecond]),
        ["p99"] if is_random && !is_spread => Some(&[Unit::Microseconds]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn is_known(name: &str) -> bool {
        units_of(name).is_some()
    }

    /// Names in the sources that judge: quoted, of two words or more with dots. Settings of the kernel look the same.
    fn literals(path: &Path, found: &mut Vec<String>) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).expect("sources").flatten() {
                literals(&entry.path(), found);
            }
            return;
        }
        let text = std::fs::read_to_string(path).expect("UTF-8");
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
        let names = text.split('"').filter(|part| part.contains('.') && part.chars().all(is_of_name));
        let is_whole =
            |name: &&str| !name.starts_with('.') && !name.ends_with('.') && !name.starts_with("vm.");
        let is_word = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase());
        found.extend(names.filter(is_whole).filter(is_word).map(str::to_string));
    }

    #[test]
    fn every_check_of_the_sources_is_known() {
        let mut found = vec![];
        for part in ["host", "host.rs", "network.rs", "contrast.rs", "planned.rs", "database.rs"] {
            literals(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(part), &mut found);
        }
        for name in &found {
            assert!(is_known(name), "{name}: add it to NAMES");
        }
        for name in NAMES.iter().map(|(name, _)| name).filter(|name| !name.starts_with("spread.")) {
            assert!(found.iter().any(|one| one == name), "{name} is no check any more");
        }
    }

    #[test]
    fn names_with_a_depth_and_of_nodes_are_known_and_others_are_not() {
        for name in [
            "disk.random_read.q7",
            "disk.random_write.q32.p99",
            "spread.disk.random_read.q1",
            "settings.fsync",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in [
            "disk.syncc",
            "disk.random_read",
            "disk.random_read.q0",
            "disk.sequential_read.q1.p99",
            "spread.disk.random_read.q1.p99",
            "spread.disk.probe",
            "contrast",
            "settings.nothing",
            "",
        ] {
            assert!(!is_known(name), "{name}");
        }
    }
}
