//! The items of a measured directory.

use record::check::{Area, Disk, DiskTest, Item, Pattern, Unit, Verdict};
use record::number;

/// A commit waits for one write and fdatasync: from here on it is slow (a shared cloud disk; local NVMe stays below 1 ms).
const SYNC_US_WARN: f64 = 10_000.0;
/// A member of an array is slow from this multiple of the median of its peers, and from this wait (docs/explain.md, `slow_member`).
const MEMBER_TIMES: f64 = 3.0;
/// Milliseconds.
const MEMBER_AWAIT_MS: f64 = 1.0;
/// How the kernel's message for EACCES begins.
const NO_PRIVILEGE: &str = "Permission denied";
/// Peers that make a median.
const MEMBERS_MIN: usize = 3;

/// All items of one directory. One that the user did not name, but a database on the host has, may be unreadable for this user: that is no failure.
pub fn items(disk: &Disk, is_named: bool) -> Vec<Item> {
    let of = |check: &str| Item::of_host(check, Area::Disk, &disk.host, &disk.directory);
    if let Some(refused) = &disk.refused {
        let verdict = if is_named { Verdict::Fail } else { Verdict::Unknown };
        let item = of("disk.probe")
            .judged(verdict, format!("the disk was not measured: {refused}"))
            .why("Nothing is known about this disk.");
        return vec![match refused.contains(NO_PRIVILEGE) {
            true => item.remedy(
                "Name a directory on that disk in which this user may write, or run check as root.",
                &["$ pgfathom check --disk DIR"],
            ),
            false => item,
        }];
    }
    if let Some(same) = &disk.same_as {
        let claim = format!("{} is on {}, which was measured in {same}", disk.directory, disk.mount);
        return vec![of("disk.probe").judged(Verdict::Note, claim)];
    }
    let mut items: Vec<Item> = disk.tests.iter().flat_map(|test| of_test(disk, test)).collect();
    if !disk.is_direct {
        items.push(
            of("disk.direct")
                .judged(
                    Verdict::Warn,
                    format!("{} does not take O_DIRECT: the figures include its cache", disk.mount),
                )
                .why("Reads and writes that only reach memory are faster than the disk."),
        );
    }
    items.extend(file(disk));
    items.extend(slow_member(disk));
    items
}

/// The file that was read and written, and why it became shorter than it was asked to be.
fn file(disk: &Disk) -> Option<Item> {
    let file = disk.file_bytes?;
    let bytes = number::bytes(file as f64);
    let claim = match disk.asked_bytes {
        None => format!("the tests read and wrote a file of {bytes}"),
        Some(asked) => format!(
            "the file has {bytes} instead of {}: this disk would have taken too long to write it; a longer --probe-time makes it longer",
            number::bytes(asked as f64)
        ),
    };
    Some(
        Item::of_host("disk.file", Area::Disk, &disk.host, &disk.directory)
            .figure(file as f64, Unit::Bytes)
            .judged(Verdict::Note, claim)
            .why("A cache of the device holds more of a short file, and the figures are better by that."),
    )
}

fn of_test(disk: &Disk, test: &DiskTest) -> Vec<Item> {
    let word = test.pattern.word();
    let times = &test.latency_us;
    let of = |check: String| Item::of_host(&check, Area::Disk, &disk.host, &disk.directory);
    let span = format!(
        "median {}, p99 {}, longest {}",
        number::latency(times.p50),
        number::latency(times.p99),
        number::latency(times.max)
    );
    let shape = format!("{} of {} at depth {}", test.pattern.title(), block(test.block_bytes), test.depth);
    match test.pattern {
        Pattern::Sync => {
            let verdict = if times.p50 > SYNC_US_WARN { Verdict::Warn } else { Verdict::Pass };
            let item = of("disk.sync".to_string())
                .figure(times.p50, Unit::Microseconds)
                .judged(verdict, format!("{}: {span}", test.pattern.title()))
                .why("Every commit waits for at least one.")
                .remedy("Place pg_wal on a disk with a cache that survives a power loss.", &[]);
            let item = Item { limit: Some(record::check::Limit::AtMost(SYNC_US_WARN)), ..item };
            let tail = of("disk.sync.p99".to_string())
                .figure(times.p99, Unit::Microseconds)
                .judged(Verdict::Note, format!("{}: {span}", test.pattern.title()));
            vec![item, tail]
        }
        pattern if pattern.is_sequential() => {
            let claim = format!("{shape}: {}/s; {span}", number::bytes(test.bytes_per_s));
            let item =
                of(format!("disk.{word}.q{}", test.depth)).figure(test.bytes_per_s, Unit::BytesPerSecond);
            vec![item.judged(Verdict::Note, claim)]
        }
        _ => {
            let claim = format!("{shape}: {} operations/s; {span}", number::short(test.per_s));
            let rate = of(format!("disk.{word}.q{}", test.depth)).figure(test.per_s, Unit::PerSecond);
            let tail = of(format!("disk.{word}.q{}.p99", test.depth)).figure(times.p99, Unit::Microseconds);
            vec![rate.judged(Verdict::Note, claim.clone()), tail.judged(Verdict::Note, claim)]
        }
    }
}

/// A size of blocks as PostgreSQL has them: powers of 1024.
fn block(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{} MB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} kB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// The member of an array that waits much longer than its peers.
fn slow_member(disk: &Disk) -> Option<Item> {
    if disk.members.len() < MEMBERS_MIN {
        return None;
    }
    let mean = |at: usize| {
        let waits: Vec<f64> = disk
            .tests
            .iter()
            .filter_map(|test| test.member_await_ms.get(at).copied())
            .filter(|ms| *ms >= 0.0)
            .collect();
        record::statistics::mean(&waits)
    };
    let waits: Vec<(usize, f64)> = (0..disk.members.len()).filter_map(|at| Some((at, mean(at)?))).collect();
    let (worst, wait) = waits.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let peers = record::statistics::median(waits.iter().filter(|(at, _)| *at != worst).map(|(_, ms)| *ms))?;
    if waits.len() < MEMBERS_MIN || wait < MEMBER_AWAIT_MS || wait < MEMBER_TIMES * peers {
        return None;
    }
    let claim = format!(
        "{} waits {} per operation, the median of its {} peers in {} is {}",
        disk.members[worst],
        number::latency(wait * 1e3),
        waits.len() - 1,
        disk.device,
        number::latency(peers * 1e3)
    );
    Some(
        Item::of_host("disk.member", Area::Disk, &disk.host, disk.members[worst].as_str())
            .figure(wait * 1e3, Unit::Microseconds)
            .judged(Verdict::Fail, claim)
            .why("One slow member sets the speed of the whole array.")
            .remedy("Replace it, or its cable or slot; check its SMART report and link.", &[]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Distribution;

    fn test(pattern: Pattern, p50: f64, member_await_ms: Vec<f64>) -> DiskTest {
        let latency_us =
            Distribution { count: 9, p50, p99: p50 * 2.0, max: p50 * 3.0, ..Distribution::default() };
        DiskTest {
            pattern,
            block_bytes: 8192,
            depth: 1,
            bytes_per_s: 8.0e6,
            per_s: 1e3,
            latency_us,
            member_await_ms,
        }
    }

    fn disk(tests: Vec<DiskTest>, members: &[&str]) -> Disk {
        let members = members.iter().map(ToString::to_string).collect();
        Disk {
            host: "db1".into(),
            directory: "/data".into(),
            device: "md0".into(),
            is_direct: true,
            tests,
            members,
            ..Disk::default()
        }
    }

    #[test]
    fn figures_have_the_units_that_acceptance_files_may_use() {
        let disk = Disk::default();
        for pattern in [
            Pattern::Sync,
            Pattern::SequentialWrite,
            Pattern::SequentialRead,
            Pattern::RandomRead,
            Pattern::RandomWrite,
        ] {
            for item in of_test(&disk, &DiskTest { depth: 8, ..test(pattern, 100.0, vec![]) }) {
                let unit = item.figure.map(|figure| figure.unit);
                assert_eq!(crate::names::units_of(&item.check), unit.as_slice().into(), "{}", item.check);
            }
        }
    }

    #[test]
    fn a_slow_member_is_named_and_equal_ones_are_not() {
        let waits = |slow: f64| vec![test(Pattern::RandomWrite, 500.0, vec![0.3, 0.2, slow, 0.3])];
        let members = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"];
        let found = items(&disk(waits(5.0), &members), true);
        let slow = found.iter().find(|item| item.check == "disk.member").expect("it is slow");
        assert_eq!((slow.subject.as_str(), slow.verdict), ("nvme2n1", Verdict::Fail));
        assert_eq!(
            slow.claim,
            "nvme2n1 waits 5 ms per operation, the median of its 3 peers in md0 is 300 us"
        );
        for equal in [0.5, 0.9, -1.0] {
            let found = items(&disk(waits(equal), &members), true);
            assert!(found.iter().all(|item| item.check != "disk.member"), "{equal}: {found:?}");
        }
    }

    #[test]
    fn a_slow_commit_is_a_warning_and_a_refusal_a_failure() {
        let sync = |us| items(&disk(vec![test(Pattern::Sync, us, vec![])], &["sda"]), true)[0].verdict;
        assert_eq!((sync(300.0), sync(25_000.0)), (Verdict::Pass, Verdict::Warn));
        let refused = Disk { refused: Some("no space".into()), ..disk(vec![], &[]) };
        assert_eq!(items(&refused, true)[0].verdict, Verdict::Fail);
        assert_eq!(items(&refused, false)[0].verdict, Verdict::Unknown);
        let cached = Disk { is_direct: false, ..disk(vec![], &[]) };
        assert_eq!(
            (items(&cached, true)[0].check.as_str(), items(&cached, true)[0].verdict),
            ("disk.direct", Verdict::Warn)
        );
        let same = Disk { same_as: Some("/data/1".into()), ..disk(vec![], &[]) };
        assert_eq!(items(&same, false)[0].verdict, Verdict::Note);
    }

    #[test]
    fn the_size_of_the_file_is_reported_and_why_it_is_short() {
        let claim = |disk: &Disk| {
            let found = items(disk, true);
            assert_eq!(
                (found.len(), found[0].check.as_str(), found[0].verdict),
                (1, "disk.file", Verdict::Note)
            );
            found[0].claim.clone()
        };
        let whole = Disk { file_bytes: Some(1_100_000_000), ..disk(vec![], &[]) };
        assert_eq!(claim(&whole), "the tests read and wrote a file of 1.10 GB");
        let short = Disk { file_bytes: Some(34_500_000), asked_bytes: Some(1_100_000_000), ..whole };
        assert!(claim(&short).starts_with("the file has 34.5 MB instead of 1.10 GB: "), "{}", claim(&short));
        // A check of an earlier release does not say.
        assert!(items(&disk(vec![], &[]), true).is_empty());
    }
}
