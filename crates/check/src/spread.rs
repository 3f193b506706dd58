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
        for test in disk.tests.iter().filter(|test| test.pattern != Pattern::Sync) {
            let check = format!("disk.{}.q{}", test.pattern.word(), test.depth);
            let key = (Area::Disk, disk.host.clone(), disk.directory.clone(), check);
            all.entry(key).or_default().push((disk.t_us, test.per_s));
        }
    }
    for pair in checks.pairs.iter().filter(|pair| pair.lost.is_none()) {
        let key =
            (Area::Network, pair.from.clone(), format!("-> {}", pair.to), "network.bandwidth".to_string());
        all.entry(key).or_default().push((pair.t_us, pair.bytes_per_s));
    }
    all.into_iter()
        .filter_map(|((area, host, subject, check), series)| one(area, &host, &subject, &check, &series))
        .collect()
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
        assert!(even(&[1000.0, 100.0]).is_empty(), "two rounds show nothing");
        let pair =
            |round| Pair { from: "a".into(), to: "b".into(), round, bytes_per_s: 1e9, ..Pair::default() };
        let found = items(&Checks { pairs: (0..3).map(pair).collect(), ..Checks::default() });
        assert_eq!(found[0].check, "spread.network.bandwidth");
    }
}
