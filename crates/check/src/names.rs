//! The names of all checks, so that an acceptance file cannot require one that does not exist: such a requirement of "no warning" would always be kept.

use crate::database;
use record::check::Unit;

/// Checks of hosts, of the network and of plans. Those of nodes are in [`database::all`].
const NAMES: [&str; 53] = [
    "audit.lost",
    "audit.rules",
    "clock.offset",
    "clock.synchronised",
    "contrast.fact",
    "contrast.figure",
    "cpu.busy",
    "cpu.frequency",
    "cpu.governor",
    "cpu.steal",
    "cpu.thread",
    "disk.direct",
    "disk.file",
    "disk.member",
    "disk.probe",
    "disk.sync",
    "disk.sync.p99",
    "hardware.cooling",
    "hardware.drive",
    "hardware.link",
    "hardware.memory",
    "hardware.pcie",
    "host.reached",
    "host.unseen",
    "kernel.release",
    "memory.copy",
    "memory.huge_pages",
    "memory.latency",
    "memory.nodes",
    "memory.overcommit",
    "memory.read",
    "memory.remote_latency",
    "memory.swappiness",
    "memory.transparent_huge_pages",
    "memory.zone_reclaim",
    "mount.pgdata",
    "mount.space",
    "mount.stripe",
    "mount.volatile",
    "network.bandwidth",
    "network.retransmits",
    "network.round_trip",
    "nic.queues",
    "node.reached",
    "plan.disk_read",
    "plan.disk_write",
    "plan.nodes",
    "plan.space",
    "scanner.fanotify",
    "spread.disk.sync",
    "spread.network.bandwidth",
    "zfs.property",
    "zfs.version",
];
/// Tests of disks that have a depth: `disk.NAME.qN`.
const OF_DEPTH: [&str; 4] = ["sequential_write", "sequential_read", "random_read", "random_write"];

/// Whether there is a check of this name.
pub(crate) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
        || database::all().any(|check| check.id == name)
        || is_of_depth(name.strip_prefix("spread.").unwrap_or(name), name.starts_with("spread."))
}

/// `disk.random_read.q8`, and of random tests `disk.random_read.q8.p99`, which has no spread.
fn is_of_depth(name: &str, is_spread: bool) -> bool {
    let mut words = name.split('.');
    let (Some("disk"), Some(test), Some(depth)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let is_depth =
        depth.strip_prefix('q').is_some_and(|depth| depth.parse::<u64>().is_ok_and(|depth| depth > 0));
    let tail = words.next();
    let is_tail = tail.is_none() || tail == Some("p99") && test.starts_with("random") && !is_spread;
    OF_DEPTH.contains(&test) && is_depth && is_tail && words.next().is_none()
}

/// Units of the figures of hosts and networks. Checks of nodes have figures in several units, and are judged when they are known.
const UNITS: [(&str, Unit); 16] = [
    ("clock.offset", Unit::Microseconds),
    ("cpu.busy", Unit::Share),
    ("cpu.frequency", Unit::Megahertz),
    ("cpu.steal", Unit::Share),
    ("cpu.thread", Unit::PerSecond),
    ("disk.file", Unit::Bytes),
    ("disk.sync", Unit::Microseconds),
    ("disk.sync.p99", Unit::Microseconds),
    ("memory.copy", Unit::BytesPerSecond),
    ("memory.latency", Unit::Nanoseconds),
    ("memory.read", Unit::BytesPerSecond),
    ("memory.remote_latency", Unit::Nanoseconds),
    ("mount.space", Unit::Share),
    ("network.bandwidth", Unit::BytesPerSecond),
    ("network.retransmits", Unit::Share),
    ("network.round_trip", Unit::Microseconds),
];

/// The unit of the figures of a check, if it always has the same.
pub(crate) fn unit_of(name: &str) -> Option<Unit> {
    let of_depth = |name: &str| {
        let mut words = name.split('.');
        let (test, tail) = (words.nth(1), words.nth(1));
        match (test, tail) {
            (_, Some("p99")) => Some(Unit::Microseconds),
            (Some("sequential_write" | "sequential_read"), None) => Some(Unit::BytesPerSecond),
            (Some("random_read" | "random_write"), None) => Some(Unit::PerSecond),
            _ => None,
        }
    };
    let known = UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
    known.or_else(|| if is_of_depth(name, false) { of_depth(name) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
        for name in NAMES.iter().filter(|name| !name.starts_with("spread.")) {
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
