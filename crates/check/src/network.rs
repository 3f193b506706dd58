//! Judges the network between hosts, and orders the pairs so that they do not disturb each other.

use record::check::{Area, Checks, Item, Limit, Pair, Unit, Verdict};
use record::number;
use record::statistics::median;

/// A pair is slow below this share of the fastest pair (the rule of gpcheckperf).
const OF_FASTEST_SHARE: f64 = 0.9;
/// From this share of segments sent again the network loses packets (docs/explain.md).
const RETRANSMIT_SHARE: f64 = 0.001;
/// Retransmits that may happen by chance.
const RETRANSMITS_MIN: u64 = 20;
/// A pair's median round trip is long from this multiple of the median of all pairs, and from this difference in microseconds.
const ROUND_TRIP_TIMES: f64 = 3.0;
/// Microseconds.
const ROUND_TRIP_US: f64 = 200.0;

/// Every unordered pair of hosts once, in slots: no host is in two pairs of a slot (the circle method of tournaments).
pub fn schedule(hosts: usize, one_at_a_time: bool) -> Vec<Vec<(usize, usize)>> {
    if hosts < 2 {
        return vec![];
    }
    // With an odd number one host rests in each slot.
    let places = hosts + hosts % 2;
    let mut slots = vec![];
    for turn in 0..places - 1 {
        // One place stays, the others move around it.
        let at = |place: usize| if place == 0 { 0 } else { 1 + (place - 1 + turn) % (places - 1) };
        let pairs: Vec<(usize, usize)> = (0..places / 2)
            .map(|place| (at(place), at(places - 1 - place)))
            .filter(|(left, right)| *left < hosts && *right < hosts)
            .collect();
        if one_at_a_time {
            slots.extend(pairs.into_iter().map(|pair| vec![pair]));
        } else {
            slots.push(pairs);
        }
    }
    slots
}

/// The items of all pairs of the last round.
pub fn items(checks: &Checks) -> Vec<Item> {
    let last = checks.pairs.iter().map(|pair| pair.round).max().unwrap_or(0);
    let pairs: Vec<&Pair> = checks.pairs.iter().filter(|pair| pair.round == last).collect();
    let measured: Vec<&Pair> = pairs.iter().copied().filter(|pair| pair.lost.is_none()).collect();
    let fastest = measured.iter().map(|pair| pair.bytes_per_s).fold(0.0, f64::max);
    let usual_us = median(measured.iter().map(|pair| pair.round_trip_us.p50)).unwrap_or(0.0);
    let mut items = vec![];
    for pair in pairs {
        if let Some(lost) = &pair.lost {
            let why = "Nothing is known about this way.";
            let claim = format!("{} -> {} was not measured: {lost}", pair.from, pair.to);
            items.push(of("network.bandwidth", pair).judged(Verdict::Unknown, claim).why(why));
            continue;
        }
        items.push(bandwidth(pair, fastest, measured.len()));
        items.push(round_trip(pair, usual_us, measured.len()));
        items.extend(retransmits(pair));
    }
    items
}

fn of(check: &str, pair: &Pair) -> Item {
    Item::of_host(check, Area::Network, &pair.from, format!("-> {}", pair.to))
}

fn bandwidth(pair: &Pair, fastest: f64, pairs: usize) -> Item {
    let least = fastest * OF_FASTEST_SHARE;
    let item = of("network.bandwidth", pair).figure(pair.bytes_per_s, Unit::BytesPerSecond);
    let claim = format!(
        "{} -> {} carries {}/s, {} of the fastest pair ({}/s)",
        pair.from,
        pair.to,
        number::bytes(pair.bytes_per_s),
        number::percent_of(pair.bytes_per_s, fastest),
        number::bytes(fastest)
    );
    if pairs < 2 {
        return item.judged(Verdict::Note, claim);
    }
    let verdict = if pair.bytes_per_s < least { Verdict::Warn } else { Verdict::Pass };
    let why = "A distributed database is as fast as the slowest pair of its nodes.";
    Item { limit: Some(Limit::AtLeast(least)), ..item.judged(verdict, claim).why(why) }
        .remedy("Compare speed, MTU and queues of the two network cards, and the switch ports.", &[])
}

fn round_trip(pair: &Pair, usual_us: f64, pairs: usize) -> Item {
    let times = &pair.round_trip_us;
    let claim = format!(
        "{} -> {}: round trip at least {}, median {}, p99 {}; the median of all pairs is {}",
        pair.from,
        pair.to,
        number::latency(times.min),
        number::latency(times.p50),
        number::latency(times.p99),
        number::latency(usual_us)
    );
    let most = (usual_us * ROUND_TRIP_TIMES).max(usual_us + ROUND_TRIP_US);
    let is_long = pairs > 2 && times.p50 > most;
    let verdict = match is_long {
        true => Verdict::Warn,
        false if pairs > 2 => Verdict::Pass,
        false => Verdict::Note,
    };
    let item = of("network.round_trip", pair).figure(times.p50, Unit::Microseconds).judged(verdict, claim);
    let item = if pairs > 2 { Item { limit: Some(Limit::AtMost(most)), ..item } } else { item };
    item.why("A synchronous commit waits for at least one round trip, a distributed one for several.")
}

fn retransmits(pair: &Pair) -> Option<Item> {
    if pair.retransmits == 0 && pair.segments == 0 {
        return None;
    }
    let share = pair.retransmits as f64 / pair.segments.max(1) as f64;
    let is_lossy = pair.retransmits >= RETRANSMITS_MIN && share > RETRANSMIT_SHARE;
    let claim = format!(
        "{} -> {}: {} of {} were sent again",
        pair.from,
        pair.to,
        number::count(pair.retransmits),
        number::counted(pair.segments, "segment")
    );
    let item = of("network.retransmits", pair)
        .figure(share, Unit::Share)
        .judged(if is_lossy { Verdict::Warn } else { Verdict::Pass }, claim)
        .why("A lost packet costs a commit at least one timeout.")
        .remedy(
            "Check cables, MTU and the rings of the network cards.",
            &["$ ethtool -S IF | grep -i -e drop -e err"],
        );
    Some(Item { limit: Some(Limit::AtMost(RETRANSMIT_SHARE)), ..item })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Distribution;
    use std::collections::BTreeSet;

    #[test]
    fn every_pair_once_and_no_host_twice_in_a_slot() {
        for hosts in 0..12 {
            for one_at_a_time in [false, true] {
                let slots = schedule(hosts, one_at_a_time);
                let all: Vec<_> = slots.iter().flatten().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
                let distinct: BTreeSet<_> = all.iter().copied().collect();
                assert_eq!(all.len(), hosts * hosts.saturating_sub(1) / 2, "{hosts}");
                assert_eq!(all.len(), distinct.len(), "{hosts}");
                for slot in &slots {
                    let busy: BTreeSet<_> = slot.iter().flat_map(|(a, b)| [*a, *b]).collect();
                    assert_eq!(busy.len(), slot.len() * 2, "{hosts}: {slot:?}");
                }
                if one_at_a_time {
                    assert!(slots.iter().all(|slot| slot.len() == 1));
                }
            }
        }
    }

    fn pair(from: &str, to: &str, bytes_per_s: f64, p50: f64, retransmits: u64) -> Pair {
        let round_trip_us =
            Distribution { count: 9, min: p50, p50, p99: p50 * 2.0, ..Distribution::default() };
        let (from, to) = (from.to_string(), to.to_string());
        Pair { from, to, bytes_per_s, round_trip_us, retransmits, segments: 10_000, ..Pair::default() }
    }

    #[test]
    fn the_slow_pair_is_named_and_nothing_else() {
        let pairs = vec![
            pair("a", "b", 1.25e9, 100.0, 0),
            pair("b", "a", 1.2e9, 110.0, 3),
            pair("a", "c", 0.5e9, 2_000.0, 80),
            pair("c", "a", 1.25e9, 90.0, 0),
        ];
        let found = items(&Checks { pairs, ..Checks::default() });
        let bad: Vec<_> = found
            .iter()
            .filter(|item| item.verdict > Verdict::Unknown)
            .map(|item| (item.check.as_str(), item.host.as_deref(), item.subject.as_str()))
            .collect();
        let expected = ["network.bandwidth", "network.round_trip", "network.retransmits"]
            .map(|check| (check, Some("a"), "-> c"));
        assert_eq!(bad, expected);
    }

    #[test]
    fn one_pair_has_no_peer_to_be_judged_by() {
        let found = items(&Checks { pairs: vec![pair("a", "b", 1e6, 1e5, 0)], ..Checks::default() });
        assert!(found.iter().all(|item| item.verdict < Verdict::Unknown), "{found:?}");
        let lost = Pair { lost: Some("no route".into()), ..pair("a", "b", 0.0, 0.0, 0) };
        assert_eq!(items(&Checks { pairs: vec![lost], ..Checks::default() })[0].verdict, Verdict::Unknown);
    }
}
