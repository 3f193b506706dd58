//! The draws against the clauses that prescribe them.

use data::tpcc::nurand::is_allowed;
use data::tpcc::{CUSTOMERS_PER_DISTRICT, ITEMS};

use super::draw::*;
use super::*;
use run::audit::Sums as _;
use run::engine::NANOS_PER_SECOND;
use run::terminals::{Groups, Terminals, Users};

fn tpcc(warehouses: u32) -> Tpcc {
    Tpcc {
        warehouses,
        constants: Constants::for_run(17, 3),
        mix: Mix::default(),
        isolation: Isolation::default(),
        wire: Wire::Libpq,
        schema: None,
        homes: None,
        is_spread: false,
        simulate: None,
        sessions: 8,
    }
}

const DRAWS: u64 = 100_000;

/// `DRAWS` draws, each from a transaction's own stream.
fn draw<T>(mut draw: impl FnMut(&mut Random) -> T) -> impl Iterator<Item = T> {
    (0..DRAWS).map(move |sequence| draw(&mut Random::for_transaction(5, 1, sequence)))
}

/// Within five standard deviations of a binomial distribution.
fn assert_share(count: u64, of: u64, percent: f64, what: &str) {
    let share = percent / 100.0;
    let deviation = (share * (1.0 - share) / of as f64).sqrt();
    let found = count as f64 / of as f64;
    assert!((found - share).abs() < 5.0 * deviation, "{what}: {:.3} %, not {percent} %", found * 100.0);
}

#[test]
fn orders_are_those_of_clause_2_4_1() {
    let tpcc = tpcc(10);
    let home = Home { w_id: 4, d_id: 2 };
    let (mut lines, mut remote, mut rolled_back, mut districts, mut counts) =
        (0, 0, 0, [0u64; 11], [0u64; 16]);
    let mut suppliers = [0u64; 11];
    for order in draw(|random| NewOrder::draw(random, &tpcc, home)) {
        assert_eq!(order.w_id, 4);
        assert!((1..=CUSTOMERS_PER_DISTRICT).contains(&order.c_id));
        districts[order.d_id as usize] += 1;
        counts[order.lines().len()] += 1;
        let (last, others) = order.lines().split_last().unwrap();
        rolled_back += u64::from(last.i_id == UNUSED_ITEM);
        assert!(others.iter().all(|line| (1..=ITEMS).contains(&line.i_id)), "only the last item is unused");
        for line in order.lines() {
            assert!((1..=10).contains(&line.quantity) && (1..=10).contains(&line.supply_w_id));
            lines += 1;
            remote += u64::from(line.supply_w_id != 4);
            suppliers[line.supply_w_id as usize] += 1;
        }
    }
    assert_share(rolled_back, DRAWS, 1.0, "rollbacks (2.4.1.4)");
    assert_share(remote, lines, 1.0, "remote lines (2.4.1.5)");
    (1..=10).for_each(|d_id| assert_share(districts[d_id], DRAWS, 10.0, "district (2.4.1.2)"));
    (5..=15).for_each(|count| assert_share(counts[count], DRAWS, 100.0 / 11.0, "lines (2.4.1.3)"));
    assert_eq!(counts[..5].iter().sum::<u64>(), 0);
    for w_id in (1..=10).filter(|w_id| *w_id != 4) {
        assert_share(suppliers[w_id], lines, 1.0 / 9.0, "supplying warehouse");
    }
}

#[test]
fn payments_are_those_of_clause_2_5_1() {
    let tpcc = tpcc(5);
    let home = Home { w_id: 5, d_id: 1 };
    let (mut remote, mut by_name, mut amounts) = (0, 0, 0u64);
    for payment in draw(|random| Payment::draw(random, &tpcc, home)) {
        let is_remote = payment.c_w_id != 5;
        remote += u64::from(is_remote);
        assert!(
            is_remote || payment.c_d_id == payment.d_id,
            "a customer of the home warehouse is of the district"
        );
        assert!((1..=5).contains(&payment.c_w_id) && (1..=10).contains(&payment.c_d_id));
        by_name += u64::from(payment.customer.is_by_name());
        assert!((100..=500_000).contains(&payment.h_amount_cents));
        amounts += u64::from(payment.h_amount_cents);
    }
    assert_share(remote, DRAWS, 15.0, "remote payments (2.5.1.2)");
    assert_share(by_name, DRAWS, 60.0, "by last name (2.5.1.2)");
    assert!((amounts as f64 / DRAWS as f64 / 250_050.0 - 1.0).abs() < 0.01);
}

#[test]
fn the_other_profiles_are_those_of_their_clauses() {
    let tpcc = tpcc(2);
    let home = Home { w_id: 1, d_id: 7 };
    let by_name = draw(|random| OrderStatus::draw(random, &tpcc, home))
        .filter(|input| input.customer.is_by_name())
        .count();
    assert_share(by_name as u64, DRAWS, 60.0, "by last name (2.6.1.2)");
    let mut thresholds = [0u64; 21];
    for input in draw(|random| StockLevel::draw(random, home)) {
        assert_eq!((input.w_id, input.d_id), (1, 7), "a terminal's district never changes (2.8.1.1)");
        thresholds[input.threshold as usize] += 1;
    }
    (10..=20).for_each(|at| assert_share(thresholds[at], DRAWS, 100.0 / 11.0, "threshold (2.8.1.2)"));
    assert!(draw(|random| Delivery::draw(random, home)).all(|input| (1..=10).contains(&input.o_carrier_id)));
}

#[test]
fn a_single_warehouse_has_no_other() {
    let tpcc = tpcc(1);
    let home = Home { w_id: 1, d_id: 1 };
    assert!(draw(|random| NewOrder::draw(random, &tpcc, home)).all(|order| order.remote_lines() == 0));
    assert!(draw(|random| Payment::draw(random, &tpcc, home)).all(|payment| payment.c_w_id == 1));
}

/// NURand(1023, 1, 3000): (random(0, 1023) | random(1, 3000)) + C. The OR sets bits, so the distribution is known exactly from the formula.
#[test]
fn customers_and_items_are_drawn_by_nurand() {
    let constants = tpcc(1).constants;
    assert!(is_allowed(17, constants.c_last), "C-Run keeps its distance from C-Load (2.1.6.1)");
    let mut exact = vec![0u64; 3_001];
    for r1 in 0..=1_023u32 {
        for r2 in 1..=3_000u32 {
            exact[(((r1 | r2) + constants.c_id) % 3_000 + 1) as usize] += 1;
        }
    }
    let mut found = vec![0u64; 3_001];
    draw(|random| c_id(random, &constants)).for_each(|c_id| found[c_id as usize] += 1);
    // Chi-square over 100 groups of 30 neighbours: 99 degrees of freedom, 5 standard deviations above the mean are 170.
    let chi_square: f64 = (0..100)
        .map(|group| {
            let sum =
                |counts: &[u64]| counts[1 + 30 * group..1 + 30 * (group + 1)].iter().sum::<u64>() as f64;
            let expected = sum(&exact) / (1_024.0 * 3_000.0) * DRAWS as f64;
            (sum(&found) - expected).powi(2) / expected
        })
        .sum();
    assert!(chi_square < 170.0, "chi-square {chi_square}");
    // Uneven it is: the rarest thirty customers come up far less often than the most frequent.
    let shares: Vec<u64> =
        (0..100).map(|group| exact[1 + 30 * group..31 + 30 * group].iter().sum()).collect();
    assert!(shares.iter().max().unwrap() > &(3 * shares.iter().min().unwrap()));
    assert!(draw(|random| ol_i_id(random, &constants)).all(|i_id| (1..=ITEMS).contains(&i_id)));
    assert!(draw(|random| name_number(random, &constants)).all(|number| number <= 999));
}

#[test]
fn weights_and_decks_make_the_mix() {
    let mut counts = [0u64; 5];
    for item in draw(|random| Mix::default().habits().choose(1, 2, 0, random)) {
        counts[item] += 1;
    }
    for (count, weight) in counts.into_iter().zip(pace::WEIGHTS) {
        assert_share(count, DRAWS, weight as f64, "weights (5.2.3)");
    }
    let mut random = Random::for_transaction(1, 1, 1);
    let deck = |terminal, round: u64, random: &mut Random| -> Vec<usize> {
        (0..23).map(|card| Mix::Deck.habits().choose(9, terminal, 23 * round + card, random)).collect()
    };
    let first = deck(0, 0, &mut random);
    assert_ne!(first, deck(0, 1, &mut random), "a deck is shuffled again");
    assert_ne!(first, deck(1, 0, &mut random), "each terminal has its own");
    assert_eq!(first, deck(0, 0, &mut random));
    let least = pace::MIX_PERCENT_MIN;
    for (at, cards) in pace::DECK.iter().enumerate() {
        assert!(cards * 100 >= least[at] * 23, "the deck keeps the minima");
    }
}

/// 12.86 New-Orders a minute and warehouse are the limit for response times of 0.1 s and less (clause 4.2.3 counts with it).
#[test]
fn a_warehouse_without_response_times_makes_what_the_specification_allows() {
    let (warehouses, end) = (200, 20 * 60 * NANOS_PER_SECOND);
    let users = Users { first: 0, count: warehouses * 10, seed: 11, habits: Mix::default().habits() };
    let mut terminals = Terminals::new(users, 0, Groups::one());
    let (mut now, mut orders) = (0, 0);
    while now < end {
        while let Some((_, turn)) = terminals.claim(now, 0) {
            orders += u64::from(turn.item == Profile::NewOrder as usize);
            terminals.rest(turn, now);
        }
        now = terminals.next_due(now);
    }
    let per_minute = orders as f64 / 20.0 / f64::from(warehouses);
    // Mean cycle 21.09 s: 10 * 60 / 21.09 * 0.45.
    assert!((12.6..13.0).contains(&per_minute), "{per_minute}");
}

#[test]
fn think_times_are_exponential_and_cut_off() {
    let thinking = |profile, random: &mut Random| Mix::Weights.habits().thinking(profile as usize, random);
    let mean = draw(|random| thinking(Profile::NewOrder, random) as f64 / 1e9).sum::<f64>() / DRAWS as f64;
    assert!((mean / 12.0 - 1.0).abs() < 0.02, "mean {mean} s");
    let longest = draw(|random| thinking(Profile::StockLevel, random)).max().unwrap();
    assert_eq!(longest, 50 * NANOS_PER_SECOND, "ten means of five seconds");
}

#[test]
fn sessions_share_the_terminals_without_gap_or_overlap() {
    let few = Tpcc { sessions: 8, ..tpcc(10) };
    let mut next = 0;
    for session in 0..8 {
        let own = few.terminals_of(session);
        assert_eq!(own.start, next);
        assert!(own.end > own.start);
        next = own.end;
    }
    assert_eq!(next, 100);
    let many = Tpcc { sessions: 25, ..tpcc(1) };
    assert!((0..25).all(|session| many.terminals_of(session) == (session % 10..session % 10 + 1)));
}

#[test]
fn nodes_are_counted_once() {
    let spread = Tpcc { homes: Some(homes::Homes::anywhere(vec![0, 1, 0, 2].into())), ..tpcc(4) };
    assert_eq!(spread.nodes_of([1, 3, 1].into_iter()), 1);
    assert_eq!(spread.nodes_of([1, 2, 3, 4].into_iter()), 3);
    assert_eq!(tpcc(4).nodes_of([1, 2, 3].into_iter()), 1);
}

#[test]
fn every_statement_has_its_parameters_and_schema() {
    let one = Tpcc { schema: Some("my\"own".into()), ..tpcc(1) };
    let shards = Tpcc { homes: Some(homes::Homes::anywhere(vec![0].into())), ..one.clone() };
    for statement in one.statements().into_iter().chain(shards.statements()) {
        assert!(!statement.sql.contains('{'), "{}", statement.sql);
        assert_eq!(
            statement.sql.contains("\"my\"\"own\"."),
            !["BEGIN", "COMMIT", "ROLLBACK"].iter().any(|word| statement.sql.starts_with(word)),
            "{}",
            statement.sql
        );
    }
}

#[test]
fn sums_are_added_and_emptied() {
    use audit::Audit;
    let mut audit = Audit::default();
    let done = Done {
        lines: 7,
        remote_lines: 2,
        is_rolled_back: true,
        nodes: 3,
        database: 5_000,
        ..Done::default()
    };
    audit.count(&done, Some(2_000));
    audit.count(&Done { is_by_name: true, is_remote: true, ..Done::of(Profile::Payment) }, None);
    let mut sum = Audit::default();
    sum.add(&audit);
    sum.add(&audit);
    assert_eq!((sum.ended, sum.rolled_back, sum.lines, sum.remote_lines), ([2, 2, 0, 0, 0], 2, 14, 4));
    assert_eq!((sum.remote_payments, sum.payments_by_name, sum.statuses_by_name), (2, 2, 0));
    assert_eq!((sum.nodes[1][0], sum.nodes[0][2], sum.committed_orders()), (2, 2, 0));
    assert_eq!(sum.wide_commits, 0, "what was rolled back needs no two phases");
    assert_eq!(sum.database.as_ref().map(|latency| latency.count()), Some(4));
    assert_eq!(sum.session_wait.as_ref().map(|latency| latency.count()), Some(2));
    sum.reset();
    assert_eq!((sum.ended, sum.lines, sum.nodes[0][2]), ([0; 5], 0, 0));
    assert_eq!(sum.database.as_ref().map(|latency| latency.count()), Some(0));
}

#[test]
fn nodes_are_counted_by_where_the_warehouses_are() {
    // Three nodes; warehouse 4 has node 0, and so have 1, 7 and 10.
    let nodes: Vec<u16> = (0..10).map(|at| at % 3).collect();
    let tpcc = Tpcc { homes: Some(homes::Homes::anywhere(nodes.clone().into())), ..tpcc(10) };
    let home = Home { w_id: 4, d_id: 2 };
    let touched = |warehouses: &mut dyn Iterator<Item = u32>| {
        let mut touched: Vec<u16> = warehouses.map(|w_id| nodes[w_id as usize - 1]).collect();
        touched.sort_unstable();
        touched.dedup();
        touched.len()
    };
    let mut audit = audit::Audit::default();
    let (mut orders, mut payments, mut wide) = ([0; audit::NODES_MAX], [0; audit::NODES_MAX], 0);
    for (sequence, order) in (0..).zip(draw(|random| NewOrder::draw(random, &tpcc, home))) {
        let there = order.lines().iter().filter(|line| line.i_id != UNUSED_ITEM);
        let is_rolled_back = order.lines().iter().any(|line| line.i_id == UNUSED_ITEM);
        let count = touched(&mut there.map(|line| line.supply_w_id).chain([4]));
        orders[count - 1] += 1;
        wide += u64::from(count > 1 && !is_rolled_back);
        // The same transaction, as the program counts it.
        let mut done = audit::Done::of(Profile::NewOrder);
        let mut random = Random::for_transaction(5, 1, sequence);
        done.draw(&tpcc, Profile::NewOrder, home, &mut random);
        audit.count(&done, None);
    }
    for (sequence, payment) in (0..).zip(draw(|random| Payment::draw(random, &tpcc, home))) {
        let count = touched(&mut [4, payment.c_w_id].into_iter());
        payments[count - 1] += 1;
        wide += u64::from(count > 1);
        let mut done = audit::Done::of(Profile::Payment);
        let mut random = Random::for_transaction(5, 1, sequence);
        done.draw(&tpcc, Profile::Payment, home, &mut random);
        audit.count(&done, None);
    }
    assert_eq!(audit.nodes[Profile::NewOrder as usize], orders);
    assert_eq!(audit.nodes[Profile::Payment as usize], payments);
    assert_eq!(audit.wide_commits, wide);
    assert!(orders[2] > 0, "some orders touch all three nodes: {orders:?}");
    // 15 % of payments leave the warehouse, and six of the nine others are on other nodes.
    assert_share(payments[1], DRAWS, 15.0 * 6.0 / 9.0, "payments on two nodes");
    // Profiles that only read, and Delivery, stay at home.
    for profile in [Profile::OrderStatus, Profile::Delivery, Profile::StockLevel] {
        let mut done = audit::Done::of(profile);
        done.draw(&tpcc, profile, home, &mut Random::for_transaction(5, 1, 1));
        assert_eq!(done.nodes, 1);
    }
}
