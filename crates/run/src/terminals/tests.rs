//! The wheel against a list of pairs, the rates of many users, and what a user costs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
const SECOND: Nanos = NANOS_PER_SECOND;
const KEYING_S: [u64; 3] = [18, 3, 2];
const THINK_MEAN_S: [u64; 3] = [12, 12, 5];
const HABITS: Habits = Habits {
    keying_s: &KEYING_S,
    think_mean_s: &THINK_MEAN_S,
    think_means_max: 10,
    weights: &[5, 4, 1],
    is_shuffled: false,
};

fn users(count: u32) -> Users {
    Users { first: 0, count, seed: 11, habits: HABITS }
}

/// Runs users whose transactions take no time; returns turns as (due, turn) in the order they came.
fn live(users: Users, begin: Nanos, seconds: u64) -> Vec<(Nanos, Turn)> {
    let mut terminals = Terminals::new(users, begin, Groups::one());
    let end = begin + seconds * SECOND;
    let mut turns = Vec::new();
    let mut now = begin;
    while now < end {
        while let Some((due, turn)) = terminals.claim(now, 0) {
            turns.push((due, turn));
            terminals.rest(turn, now);
        }
        now = terminals.next_due(now);
    }
    turns
}

#[test]
fn a_terminal_is_sixteen_bytes() {
    assert_eq!(size_of::<Record>(), 16);
}

#[test]
fn every_user_takes_turns_in_order_and_rests_between_them() {
    let turns = live(users(200), 5 * SECOND, 300);
    let mut last: BTreeMap<u32, (Nanos, Turn)> = BTreeMap::new();
    for (due, turn) in turns {
        if let Some((before, previous)) = last.insert(turn.terminal, (due, turn)) {
            assert_eq!(turn.number, previous.number + 1);
            let keying = HABITS.keying(turn.item);
            let rest = due - before;
            assert!(rest >= keying, "terminal {}: {rest} ns", turn.terminal);
            let think_max = THINK_MEAN_S[previous.item] * 10 * SECOND;
            assert!(rest <= keying + think_max + 2 * TICK, "terminal {}: {rest} ns", turn.terminal);
        } else {
            assert_eq!(turn.number, 0);
        }
    }
    assert_eq!(last.len(), 200, "everybody had a turn within five minutes");
}

/// Mean time from one turn to the next, by the weights.
fn mean_cycle_s() -> f64 {
    let cycle = |at: usize| (KEYING_S[at] + THINK_MEAN_S[at]) * HABITS.weights[at];
    (0..3).map(cycle).sum::<u64>() as f64 / 10.0
}

#[test]
fn the_rate_is_steady_from_the_first_second_on() {
    let count = 20_000;
    let turns = live(users(count), 0, 60);
    let expected = f64::from(count) / mean_cycle_s();
    for decade in 0..6 {
        let within = |due: Nanos| due / (10 * SECOND) == decade;
        let rate = turns.iter().filter(|(due, _)| within(*due)).count() as f64 / 10.0;
        // Standard deviation below 1 %.
        assert!((rate / expected - 1.0).abs() < 0.04, "{rate} a second in decade {decade}, not {expected}");
    }
}

#[test]
fn a_deck_deals_exact_shares() {
    let turns = live(Users { habits: Habits { is_shuffled: true, ..HABITS }, ..users(5) }, 0, 3_000);
    for terminal in 0..5 {
        let of_terminal = turns.iter().filter(|(_, turn)| turn.terminal == terminal);
        let own: Vec<usize> = of_terminal.map(|(_, turn)| turn.item).collect();
        for deck in own.chunks_exact(10) {
            let count = |item| deck.iter().filter(|card| **card == item).count() as u64;
            assert_eq!([0, 1, 2].map(count), HABITS.weights);
        }
    }
}

#[test]
fn parts_are_all_of_it() {
    let whole = users(1_003);
    let parts: Vec<Users> = (0..4).map(|part| whole.part(part, 4)).collect();
    assert_eq!(parts.iter().map(|part| part.count).sum::<u32>(), 1_003);
    assert!(parts.windows(2).all(|pair| pair[0].first + pair[0].count == pair[1].first));
    // Who drives a terminal does not change what it does.
    let alone: Vec<(Nanos, Turn)> = live(parts[2], 0, 60);
    let among: Vec<(Nanos, Turn)> = live(whole, 0, 60)
        .into_iter()
        .filter(|(_, turn)| (parts[2].first..parts[2].first + parts[2].count).contains(&turn.terminal))
        .collect();
    let sorted = |mut turns: Vec<(Nanos, Turn)>| {
        turns.sort_by_key(|(due, turn)| (*due, turn.terminal));
        turns
    };
    assert_eq!(sorted(alone), sorted(among));
}

#[test]
fn those_who_wait_are_counted_even_while_none_is_claimed() {
    let mut terminals = Terminals::new(users(1_000), 0, Groups::one());
    let now = 400 * SECOND;
    assert_eq!(terminals.waiting(now), 1_000, "all are due by then, beyond a whole turn of the wheel");
    let (_, turn) = terminals.claim(now, 0).unwrap();
    assert_eq!(terminals.waiting(now), 999);
    terminals.rest(turn, now);
    assert_eq!(terminals.waiting(now), 999);
    assert!(terminals.next_due(now) <= now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Hangs terminals at any ticks and takes them down at any times: each comes exactly once, never before its tick, and none that is
    /// due is left behind.
    #[test]
    fn the_wheel_keeps_its_promises(
        ticks in proptest::collection::vec(0u64..SLOTS as u64 - 1, 1..200),
        steps in proptest::collection::vec(1u64..60_000, 1..60),
    ) {
        let mut terminals = Terminals::new(users(ticks.len() as u32), 0, Groups::one());
        terminals.slots.fill(NONE);
        terminals.occupied.fill(0);
        for (index, tick) in ticks.iter().enumerate() {
            terminals.hang(index as u32, *tick);
        }
        let mut expected: Vec<u64> = ticks.clone();
        expected.sort_unstable();
        let mut taken = Vec::new();
        let mut now = 0;
        for step in steps {
            prop_assert_eq!(terminals.waiting(now * TICK), expected.iter().filter(|tick| **tick <= now).count() as u64 - taken.len() as u64);
            while let Some((due, _)) = terminals.claim(now * TICK, 0) {
                prop_assert!(due <= now * TICK);
                taken.push(due / TICK);
            }
            let next = terminals.next_due(now * TICK);
            let left = expected.iter().find(|tick| **tick > now);
            prop_assert_eq!(next, left.map_or(Nanos::MAX, |tick| tick * TICK));
            now += step;
        }
        prop_assert!(taken.is_sorted());
        prop_assert_eq!(&taken[..], &expected[..taken.len()]);
    }
}

/// Two nodes, whose terminals and sessions alternate: no session serves a terminal of the other node, and none is forgotten.
#[test]
fn terminals_wait_for_a_session_of_their_node() {
    let node = |terminal: u32| (terminal / 10 % 2) as u16;
    let groups = Groups::by_node((0..100).map(node), &[0, 1]);
    assert!(groups.are_several());
    let mut terminals = Terminals::new(users(100), 0, groups);
    let (now, mut served) = (HABITS.rest_max(), [0, 0]);
    for session in [0, 1] {
        while let Some((_, turn)) = terminals.claim(now, session) {
            assert_eq!(usize::from(node(turn.terminal)), session);
            served[session] += 1;
        }
        assert!(!terminals.wait_for(session, now));
    }
    assert_eq!(served, [50, 50]);
    // All sessions at one node: they serve everybody.
    assert!(!Groups::by_node((0..100).map(node), &[1, 1]).are_several());
    // A node without a session: its terminals are served by others.
    let three = Groups::by_node([0, 1, 2].into_iter(), &[0, 2]);
    assert_eq!((three.of_terminal(1), three.of_session(1)), (1, 1));
}
