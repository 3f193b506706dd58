//! Compares the rounds of a repeated check: a disk or a way that is slower at times shares its hardware with others.

use record::check::{Area, Checks, Item, Pattern, Unit, Verdict};
use record::number;
use record::statistics::{median, quantile};
use std::collections::BTreeMap;

/// Rounds that show a spread.
const ROUNDS_MIN: u64 = 3;
/// A figure is uneven when its slowest round has less than this share of its median.
const SLOWEST_SHARE: f64 = 0.7;

/// A figure in each round: time of the round and value.
type Series = Vec<(u64, f64)>;

/// One item per figure; none without several rounds.
pub fn items(checks: &Checks) -> Vec<Item> {
    let mut all: BTreeMap<(Area, String, String, String), Series> = BTreeMap::new();
    for disk in &checks.disks {
        for test in &disk.tests {
            let check = match test.pattern {
                Pattern::Sync => "disk.sync".to_string(),
                pattern => format!("disk.{}.q{}", pattern.word(), test.depth),
            };
            let key = (Area::Disk, disk.host.clone(), disk.directory.clone(), check);
            all.entry(key).or_default().push((disk.t_us, test.per_s));
        }
    }
    for pair in checks.pairs.iter().filter(|pair| pair.lost.is_none()) {
        let key =
            (Area::Network, pair.from.clone(), format!("-> {}", pair.to), "network.bandwidth".to_string());
        all.entry(key).or_default().push((pair.t_us, pair.bytes_per_s));
    }
    let spreads = all
        .into_iter()
        .filter_map(|((area, host, subject, check), series)| one(area, &host, &subject, &check, &series));
    spreads.chain(unmeasured(checks)).collect()
}

/// Rounds, with the reason why one has no figure.
type Rounds<'a> = Vec<(u64, Option<&'a str>)>;
/// Area, host, subject and check.
type Key<'a> = (Area, &'a str, String, &'a str);

/// What was measured in some rounds only. The last round is judged by itself.
fn unmeasured(checks: &Checks) -> Vec<Item> {
    let mut all: BTreeMap<Key, Rounds> = BTreeMap::new();
    for disk in &checks.disks {
        let key = (Area::Disk, disk.host.as_str(), disk.directory.clone(), "disk.probe");
        all.entry(key).or_default().push((disk.round, disk.refused.as_deref()));
    }
    for pair in &checks.pairs {
        let key = (Area::Network, pair.from.as_str(), format!("-> {}", pair.to), "network.bandwidth");
        all.entry(key).or_default().push((pair.round, pair.lost.as_deref()));
    }
    let item = |((area, host, subject, check), rounds): (Key, Rounds)| {
        let last = rounds.iter().map(|(round, _)| *round).max()?;
        let why = rounds.iter().find_map(|(round, why)| why.filter(|_| *round < last))?;
        let lost = rounds.iter().filter(|(_, why)| why.is_some()).count();
        let claim = format!("{subject} was not measured in {lost} of {} rounds: {why}", rounds.len());
        let item = Item::of_host(check, area, host, subject.as_str()).judged(Verdict::Warn, claim);
        Some(item.why("The other rounds do not show what happened in these."))
    };
    all.into_iter().filter_map(item).collect()
}

fn one(area: Area, host: &str, subject: &str, check: &str, series: &Series) -> Option<Item> {
    if (series.len() as u64) < ROUNDS_MIN {
        return None;
    }
    let values = || series.iter().map(|(_, value)| *value);
    let (usual, best) = (median(values())?, quantile(values(), 1.0)?);
    let (when_us, slowest) = series.iter().copied().min_by(|left, right| left.1.total_cmp(&right.1))?;
    let share = slowest / usual.max(f64::MIN_POSITIVE);
    let shown = |value: f64| match area {
        Area::Network => format!("{}/s", number::bytes(value)),
        _ => format!("{} operations/s", number::short(value)),
    };
    let claim = format!(
        "{check} over {} rounds: median {}, best {}, slowest {} ({} of the median) {} after the start",
        series.len(),
        shown(usual),
        shown(best),
        shown(slowest),
        number::percent(share),
        number::duration(when_us as f64 / 1e6)
    );
    let verdict = if share < SLOWEST_SHARE { Verdict::Warn } else { Verdict::Pass };
    let item = Item::of_host(&format!("spread.{check}"), area, host, subject)
        .figure(share, Unit::Share)
        .judged(verdict, claim)
        .why("Hardware that is shared with others gives less while they work: a benchmark then measures its neighbours.")
        .remedy("Repeat measurements over a day, or use dedicated disks and network.", &[]);
    Some(Item { limit: Some(record::check::Limit::AtLeast(SLOWEST_SHARE)), ..item })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{Disk, DiskTest, Pair};

    #[test]
    fn rounds_that_were_lost_are_counted() {
        let disk = |round, refused: Option<&str>| Disk {
            host: "a".into(),
            directory: "/data".into(),
            round,
            refused: refused.map(str::to_string),
            ..Disk::default()
        };
        let of = |disks: Vec<Disk>| items(&Checks { disks, ..Checks::default() });
        let found = of(vec![disk(0, None), disk(1, Some("the probe ended")), disk(2, None)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].check.as_str(), found[0].verdict, found[0].claim.as_str()),
            ("disk.probe", Verdict::Warn, "/data was not measured in 1 of 3 rounds: the probe ended")
        );
        // The last round has its own item.
        assert!(of(vec![disk(0, None), disk(1, Some("no space"))]).is_empty());
        let lost = |round| Pair {
            from: "a".into(),
            to: "b".into(),
            round,
            lost: Some("no route".into()),
            ..Pair::default()
        };
        let pairs = vec![lost(0), lost(1)];
        let found = items(&Checks { pairs, ..Checks::default() });
        assert_eq!(found[0].claim, "-> b was not measured in 2 of 2 rounds: no route");
    }

    fn disk(round: u64, per_s: f64) -> Disk {
        let test = DiskTest { pattern: Pattern::RandomRead, depth: 8, per_s, ..DiskTest::default() };
        Disk {
            host: "db1".into(),
            directory: "/data".into(),
            round,
            t_us: round * 600_000_000,
            tests: vec![test],
            ..Disk::default()
        }
    }

    #[test]
    fn a_round_with_a_noisy_neighbour_is_seen_with_its_time() {
        let even = |values: &[f64]| {
            let disks = (0..).zip(values).map(|(round, value)| disk(round, *value)).collect();
            items(&Checks { disks, ..Checks::default() })
        };
        let found = even(&[1000.0, 990.0, 400.0, 1010.0]);
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Warn));
        assert!(
            found[0].claim.contains("slowest 400 operations/s (40 % of the median) 20 min"),
            "{}",
            found[0].claim
        );
        assert_eq!(even(&[1000.0, 990.0, 900.0])[0].verdict, Verdict::Pass);
        // Commits wait for a neighbour as well.
        let commits = |(round, per_s): (u64, f64)| {
            let mut disk = disk(round, per_s);
            disk.tests[0].pattern = Pattern::Sync;
            disk
        };
        let disks = (0..).zip([5000.0, 47.0, 5100.0]).map(commits).collect();
        let found = items(&Checks { disks, ..Checks::default() });
        assert_eq!((found[0].check.as_str(), found[0].verdict), ("spread.disk.sync", Verdict::Warn));
        assert!(even(&[1000.0, 100.0]).is_empty(), "two rounds show nothing");
        let pair =
            |round| Pair { from: "a".into(), to: "b".into(), round, bytes_per_s: 1e9, ..Pair::default() };
        let found = items(&Checks { pairs: (0..3).map(pair).collect(), ..Checks::default() });
        assert_eq!(found[0].check, "spread.network.bandwidth");
    }
}
