//! What a check of the hosts measured, for a plan: the slowest disk decides, because each node has its part of the rows.

use super::Given;
use crate::failure::Failure;
use record::check::{Checks, Disk, Pattern};
use record::number;
use record::plan::input::Ping;
use record::statistics::median;
use std::path::Path;

/// Fills in what was not given; the sentence for the plan's notes.
///
/// # Errors
/// When the directory has no check, or one that measured neither disks nor pairs of hosts.
pub(super) fn settle(given: &mut Given, run: &Path) -> Result<String, Failure> {
    let refused =
        |why: String| Failure::usage(why).hint("name the run directory of pgfathom check --disk DIR");
    let read = Checks::read(run).map_err(|error| refused(error.to_string()))?;
    let checks = read.ok_or_else(|| refused(format!("{} has no check.json", run.display())))?;
    let mut taken = vec![];
    let rates = [
        (&mut given.disk_read_bytes_per_s, Pattern::SequentialRead, "a disk reads"),
        (&mut given.wal_bytes_per_s, Pattern::SequentialWrite, "writes WAL at"),
    ];
    for (rate, pattern, what) in rates {
        if let (None, Some(slowest)) = (*rate, slowest(&checks, pattern)) {
            *rate = Some(slowest);
            taken.push(format!("{what} {}/s", number::bytes(slowest)));
        }
    }
    if given.pings.is_empty() {
        given.pings = pings(&checks);
        taken.extend(given.pings.iter().map(|ping| format!("{} {}", ping.name, number::latency(ping.us))));
    }
    if taken.is_empty() && checks.disks.iter().all(|disk| disk.tests.is_empty()) && checks.pairs.is_empty() {
        return Err(refused(format!("{} measured neither disks nor pairs of hosts", run.display())));
    }
    let taken =
        if taken.is_empty() { "nothing that the flags do not have".to_string() } else { taken.join(", ") };
    Ok(format!("taken from the check {}, slowest disk and host: {taken}", run.display()))
}

/// The sequential rate of each disk in the last round that measured it: what its streams read together at best, or what one stream writes, because
/// WAL is one stream; of all disks the smallest.
fn slowest(checks: &Checks, pattern: Pattern) -> Option<f64> {
    let best = |disk: &Disk| {
        let tests = || disk.tests.iter().filter(|test| test.pattern == pattern && test.bytes_per_s > 0.0);
        match pattern {
            Pattern::SequentialWrite => tests().min_by_key(|test| test.depth).map(|test| test.bytes_per_s),
            _ => tests().map(|test| test.bytes_per_s).reduce(f64::max),
        }
    };
    let is_last = |disk: &&Disk| {
        let later = |other: &Disk| {
            (&other.host, &other.directory) == (&disk.host, &disk.directory)
                && other.round > disk.round
                && !other.tests.is_empty()
        };
        !checks.disks.iter().any(later)
    };
    checks.disks.iter().filter(is_last).filter_map(best).reduce(f64::min)
}

/// The median of all pairs, and the slowest one where it is another.
fn pings(checks: &Checks) -> Vec<Ping> {
    let last = checks.pairs.iter().map(|pair| pair.round).max().unwrap_or(0);
    let of_last = || checks.pairs.iter().filter(|pair| pair.round == last && pair.lost.is_none());
    let us = || of_last().map(|pair| pair.round_trip_us.p50).filter(|us| *us > 0.0);
    let ping = |name: &str, us: f64| Ping { name: name.to_string(), us };
    let (Some(usual), Some(longest)) = (median(us()), us().reduce(f64::max)) else { return vec![] };
    let mut pings = vec![ping("median pair", usual)];
    if longest > usual {
        pings.push(ping("slowest pair", longest));
    }
    pings
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{DiskTest, Distribution, Pair};

    fn disk(host: &str, round: u64, read: f64, write: f64) -> Disk {
        let test =
            |pattern, depth, bytes_per_s| DiskTest { pattern, depth, bytes_per_s, ..DiskTest::default() };
        let tests = vec![
            test(Pattern::SequentialRead, 1, read / 2.0),
            test(Pattern::SequentialRead, 8, read),
            test(Pattern::SequentialWrite, 1, write),
            test(Pattern::SequentialWrite, 8, write * 3.0),
        ];
        Disk { host: host.into(), directory: "/data".into(), round, tests, ..Disk::default() }
    }

    #[test]
    fn the_slowest_disk_and_the_pairs_are_taken_and_flags_come_first() {
        let folder = std::env::temp_dir().join(format!("pgfathom-plan-checked-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let pair = |from: &str, p50| Pair {
            from: from.into(),
            to: "c".into(),
            round_trip_us: Distribution { p50, ..Distribution::default() },
            ..Pair::default()
        };
        // The disk of b was slow in the first round only.
        let disks = vec![disk("a", 0, 2e9, 1e9), disk("b", 0, 1e8, 1e8), disk("b", 1, 1.5e9, 2e9)];
        let pairs = vec![pair("a", 100.0), pair("b", 300.0), pair("d", 120.0)];
        Checks { disks, pairs, ..Checks::default() }.write(&folder).expect("ours");
        let mut given = Given::default();
        let note = settle(&mut given, &folder).expect("a check");
        assert_eq!((given.disk_read_bytes_per_s, given.wal_bytes_per_s), (Some(1.5e9), Some(1e9)));
        let pings: Vec<(&str, f64)> = given.pings.iter().map(|ping| (ping.name.as_str(), ping.us)).collect();
        assert_eq!(pings, [("median pair", 120.0), ("slowest pair", 300.0)]);
        assert!(note.contains("a disk reads 1.50 GB/s") && note.contains("slowest pair 300 us"), "{note}");

        let mut given = Given {
            disk_read_bytes_per_s: Some(7.0),
            pings: vec![Ping { name: "zone".into(), us: 5.0 }],
            ..Given::default()
        };
        settle(&mut given, &folder).expect("a check");
        assert_eq!((given.disk_read_bytes_per_s, given.wal_bytes_per_s), (Some(7.0), Some(1e9)));
        assert_eq!(given.pings.len(), 1);

        Checks::default().write(&folder).expect("ours");
        assert!(settle(&mut Given::default(), &folder).is_err());
        std::fs::remove_dir_all(&folder).expect("ours");
        assert!(settle(&mut Given::default(), &folder).is_err());
    }
}
