//! The simulation against the closed forms, and what only the simulation can show.

use crate::support::{petabyte, rate};
use plan::Input;
use plan::simulate::COMPLETE;
use record::plan::Plan;
use record::plan::input::{Happening, WhatIf};

/// Agreement of plan and simulation where the closed form applies.
const AGREEMENT: f64 = 0.05;
/// The most events of a simulation: a million pieces, and some others.
const EVENTS_MAX: u64 = 1_100_000;

fn computed(input: Input) -> Plan {
    plan::compute(input).expect("a plan")
}

fn agrees(left: f64, right: f64) {
    assert!((left / right - 1.0).abs() < AGREEMENT, "{left} and {right}");
}

fn with(rows: u64, what_if: Vec<WhatIf>) -> Plan {
    computed(Input { what_if, ..petabyte(rows) })
}

fn at(at_s: f64, what: Happening) -> WhatIf {
    WhatIf { at_s, what }
}

#[test]
fn simulation_and_plan_agree_on_any_size() {
    for (nodes, disks, rows) in
        [(1, 1, 1_000_000), (3, 2, 10_000_000_000), (7, 10, 700_000_000_000), (48, 8, 978_473_581_213)]
    {
        let mut input = petabyte(rows);
        (input.hardware.nodes, input.hardware.disks, input.loading.streams) = (nodes, disks, nodes * disks);
        let plan = computed(input);
        assert!(plan.fits, "{:?}", plan.problems);
        assert_eq!((plan.forecast.outcome.as_str(), plan.forecast.rows), (COMPLETE, rows));
        agrees(plan.forecast.copied_s, plan.time.copy_s.expect("a rate"));
        agrees(plan.forecast.end_s, plan.time.total_s.expect("a rate"));
        let last = plan.forecast.points.last().expect("points");
        agrees(last.disk_bytes as f64, plan.size.disk_bytes as f64);
        agrees(last.fullest, plan.space.final_bytes as f64 / plan.space.volume_bytes as f64);
    }
}

/// 48 nodes and 10^15 bytes: the events are counted here, because time on a busy host means nothing. A release build takes well below 10 s.
#[test]
fn a_petabyte_on_48_nodes_is_a_million_events() {
    let mut input = petabyte(978_473_581_213);
    (input.hardware.nodes, input.loading.streams) = (48, 480);
    let plan = computed(input);
    assert!((900_000..EVENTS_MAX).contains(&plan.forecast.events), "{}", plan.forecast.events);
    assert!((24..=50).contains(&plan.forecast.points.len()), "{}", plan.forecast.points.len());
}

#[test]
fn one_seed_is_one_course_and_another_seed_is_another() {
    let of = |seed: u64| computed(Input { seed, ..petabyte(1_000_000_000) }).forecast;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).copied_s, of(2).copied_s);
    agrees(of(1).copied_s, of(2).copied_s);
}

/// The stop rule ends the load at the rows that the closed form names.
#[test]
fn the_stop_rule_ends_it_where_the_plan_says() {
    let plan = with(1_000_000_000_000, vec![]);
    assert!(plan.forecast.outcome.starts_with("stop rule: "), "{}", plan.forecast.outcome);
    agrees(plan.forecast.rows as f64, plan.space.rows_max as f64);
    agrees(plan.forecast.copied_s, plan.time.copy_s.expect("a rate"));
    // As many rows as fit are loaded without it.
    let fitting = with(plan.space.rows_max / 1000 * 999, vec![]);
    assert_eq!(fitting.forecast.outcome, COMPLETE);
}

#[test]
fn lost_client_hosts_cost_their_share_until_they_are_back() {
    let rows = 100_000_000_000;
    let healthy = with(rows, vec![]).forecast.copied_s;
    let lost = with(rows, vec![at(0.0, Happening::AgentLost)]).forecast.copied_s;
    agrees(lost, healthy * 7.0 / 6.0);
    // Lost for half of the healthy time: a twelfth of the work of one in seven is missing.
    let back = with(rows, vec![at(0.0, Happening::AgentLost), at(healthy / 2.0, Happening::AgentBack)]);
    agrees(back.forecast.copied_s, healthy * (1.0 + 0.5 / 7.0));
    let all = (0..7).map(|_| at(healthy / 2.0, Happening::AgentLost)).collect();
    let none = with(rows, all);
    assert_eq!(none.forecast.outcome, "no client host is left");
    agrees(none.forecast.rows as f64, rows as f64 / 2.0);
    assert!(none.notes.iter().any(|note| note.contains("does not complete")), "{:?}", none.notes);
}

#[test]
fn a_partition_that_moves_takes_its_rows_along() {
    let rows = 100_000_000_000;
    let healthy = with(rows, vec![]).forecast.copied_s;
    let moved = with(rows, vec![at(healthy / 2.0, Happening::Move { partition: 0, node: 7 })]);
    assert_eq!((moved.forecast.outcome.as_str(), moved.forecast.rows), (COMPLETE, rows));
    let words: Vec<&str> = moved.forecast.happened.iter().map(|one| one.what.as_str()).collect();
    assert!(words[0].starts_with("partition 0 moves from node 1 to node 7"), "{words:?}");
    assert_eq!(words[1], "partition 0 is on node 7");
    // Node 7 has 11 partitions instead of 10, so it ends last.
    assert!(moved.forecast.copied_s > 1.01 * healthy, "{} {healthy}", moved.forecast.copied_s);
    let nowhere = with(
        rows,
        vec![
            at(1.0, Happening::Move { partition: 70, node: 1 }),
            at(2.0, Happening::Move { partition: 0, node: 1 }),
        ],
    );
    assert!(nowhere.forecast.happened[0].what.contains("no partition 70"));
    assert!(nowhere.forecast.happened[1].what.contains("already"));
}

#[test]
fn a_vacuum_costs_what_it_leaves_less() {
    let rows = 100_000_000_000;
    let healthy = with(rows, vec![]).forecast.copied_s;
    let vacuum = Happening::Vacuum { share: 0.5, for_s: healthy / 2.0 };
    let slowed = with(rows, vec![at(0.0, vacuum)]);
    agrees(slowed.forecast.copied_s, healthy * 1.25);
}

#[test]
fn what_cannot_happen_is_refused_and_without_a_rate_nothing_is_simulated() {
    let refused = |what: Happening| {
        let error =
            plan::compute(Input { what_if: vec![at(0.0, what)], ..petabyte(1_000) }).expect_err("nonsense");
        assert!(error.hint().is_some());
        error.to_string()
    };
    assert_eq!(refused(Happening::SlowDisk { node: 8, disk: 1, share: 0.5 }), "the simulation has no node 8");
    assert_eq!(refused(Happening::SlowDisk { node: 1, disk: 0, share: 0.5 }), "the simulation has no disk 0");
    assert!(refused(Happening::SlowDisk { node: 1, disk: 1, share: 0.0 }).contains("is not a share"));
    assert_eq!(refused(Happening::Move { partition: 0, node: 0 }), "the simulation has no node 0");
    let mut input = petabyte(1_000);
    input.loading.rate = None;
    let plan = computed(input);
    assert_eq!((plan.forecast.events, plan.time.total_s), (0, None));
    let mut input = petabyte(1_000);
    input.loading.rate = Some(rate(1e9));
    assert!(computed(input).forecast.events > 0);
}
