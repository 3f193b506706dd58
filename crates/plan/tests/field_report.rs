//! A published attempt to load a petabyte into seven servers: what its authors found in weeks must be in the plan.

use crate::support::{DAY_S, TB, TIB, petabyte};
use record::plan::input::{Happening, Hardware, Input, WhatIf};

/// A trillion rows of about 1,100 bytes.
const ROWS: u64 = 1_000_000_000_000;

fn within(value: f64, wanted: f64, share: f64) {
    assert!((value / wanted - 1.0).abs() <= share, "{value} is not within {share} of {wanted}");
}

#[test]
fn it_needs_seventy_partitions_whether_the_disks_are_one_volume_or_not() {
    let plan = plan::compute(petabyte(ROWS)).expect("a plan");
    assert_eq!(plan.layout.partitions, 70);
    assert_eq!(plan.layout.tablespaces.len(), 10);
    assert!(plan.layout.tablespaces.iter().all(|one| one.partitions == 1));
    assert!(plan.layout.partition_bytes < plan.layout.relation_bytes_max);
    let input = petabyte(ROWS);
    let raid = Input { hardware: Hardware { is_one_volume: true, ..input.hardware.clone() }, ..input };
    let raid = plan::compute(raid).expect("a plan");
    assert_eq!((raid.layout.partitions, raid.layout.partitions_per_node_min), (70, 10));
    within(raid.space.volume_bytes as f64, 140.0 * TB, 0.01);
}

/// The report has 863 TB and about 8 * 10^11 rows. Its TB are powers of 1024, as PostgreSQL prints them: in powers of 1000 these would be 1,079 bytes
/// a row, less than the heap alone needs with seven rows in a page of 8192 bytes.
#[test]
fn the_disks_are_full_at_863_tb_and_the_plan_names_the_row_to_stop_at() {
    const { assert!(863.0 * TB / 8e11 < 8192.0 / 7.0 && 863.0 * TIB / 8e11 > 8192.0 / 7.0) }
    let plan = plan::compute(petabyte(ROWS)).expect("a plan");
    assert!(!plan.fits);
    within(plan.space.disk_bytes_max as f64, 863.0 * TIB, 0.01);
    within(plan.space.rows_max as f64, 8e11, 0.03);
    assert!(plan.problems[0].starts_with("it will not fit: stop at 78"), "{:?}", plan.problems);
    // With these rows it does fit, with half a terabyte left on each disk.
    let fitting = plan::compute(petabyte(plan.space.rows_max)).expect("a plan");
    assert!(fitting.fits, "{:?}", fitting.problems);
    let free = fitting.space.volume_bytes - fitting.space.final_bytes;
    within(free as f64, 0.5 * TB, 0.03);
    let more = plan::compute(petabyte(plan.space.rows_max / 1000 * 1002)).expect("a plan");
    assert!(!more.fits);
}

#[test]
fn a_petabyte_in_two_weeks_needs_0_83_gb_per_second() {
    let rows = (1e15 / 1022.0) as u64;
    let plan = plan::compute(petabyte(rows)).expect("a plan");
    within(plan.time.needed_bytes_per_s.expect("a deadline"), 0.83e9, 0.005);
    let plan = plan::compute(petabyte(ROWS)).expect("a plan");
    within(plan.time.needed_bytes_per_s.expect("a deadline"), 0.83e9, 0.025);
    within(plan.time.needed_rows_per_s.expect("a deadline"), 1e12 / (14.0 * DAY_S), 1e-9);
    // 250 MB/s of each of seven nodes is twice of what is needed.
    assert!(plan.time.spare_s.expect("a rate") > 0.0);
}

/// Eight workers vacuumed 3.2 TB each in a day with the cost delay; without it, WAL was the limit, and it took 20 hours.
#[test]
fn the_vacuum_takes_days_with_the_delay_and_about_one_without() {
    let rows = plan::compute(petabyte(ROWS)).expect("a plan").space.rows_max;
    let plan = plan::compute(petabyte(rows)).expect("a plan");
    assert_eq!(plan.vacuum.workers, 8);
    let per_day = plan.vacuum.delayed_bytes_per_s.expect("a delay") * DAY_S;
    within(per_day, 3.2 * TB, 0.01);
    // 9.3 TB of a worker: three days, of which one had passed.
    within(9.3 * TB / per_day, 2.9, 0.01);
    assert_eq!(plan.vacuum.limited_by, "cost delay");
    assert!(plan.vacuum.duration_s.expect("known") > 4.0 * DAY_S);
    let mut input = petabyte(rows);
    input.server.vacuum_cost_delay_ms = 0.0;
    input.hardware.disk_read_bytes_per_s = Some(2e9);
    input.hardware.wal_bytes_per_s = Some(1.5e9);
    let plan = plan::compute(input).expect("a plan");
    assert_eq!((plan.vacuum.limited_by.as_str(), plan.vacuum.delayed_bytes_per_s), ("WAL", None));
    within(plan.vacuum.duration_s.expect("known"), DAY_S, 0.1);
    // Pages that cost nothing never bring a worker to its limit, and nothing of the plan is infinite.
    let mut input = petabyte(rows);
    (input.server.vacuum_cost_page_miss, input.server.vacuum_cost_page_dirty) = (0.0, 0.0);
    let free = plan::compute(input).expect("a plan");
    assert_eq!((free.vacuum.delayed_bytes_per_s, free.vacuum.by_delay_s), (None, None));
    assert!(free.formulas.iter().all(|formula| formula.result.is_finite()));
    // Rows that are frozen when they are loaded leave nothing to do.
    let mut input = petabyte(rows);
    input.loading.is_frozen = true;
    let frozen = plan::compute(input).expect("a plan");
    assert_eq!(frozen.vacuum.duration_s, Some(0.0));
    assert!(frozen.transactions.vacuum_bytes_frozen < frozen.transactions.vacuum_bytes / 10_000);
}

#[test]
fn transactions_of_a_hundred_rows_bring_wraparound_into_the_load() {
    let own = plan::compute(petabyte(ROWS)).expect("a plan");
    assert_eq!(own.transactions.wraparounds_during_load, 0);
    let mut input = petabyte(ROWS);
    input.loading.transactions_per_node = ROWS / 100 / 7;
    let hundred = plan::compute(input).expect("a plan");
    assert_eq!(hundred.transactions.wraparounds_during_load, 7);
    assert!(
        hundred.notes.iter().any(|note| note.contains("7 vacuums against wraparound")),
        "{:?}",
        hundred.notes
    );
}

/// One disk at a thirtieth of the speed of the others (5 ms a write against 0.15 ms) holds its node back, and the node the whole load.
#[test]
fn one_slow_member_makes_the_load_late() {
    let rows = plan::compute(petabyte(ROWS)).expect("a plan").space.rows_max;
    let mut input = petabyte(rows);
    let slow = Happening::SlowDisk { node: 2, disk: 3, share: 0.03 };
    input.what_if = vec![WhatIf { at_s: 0.0, what: slow }];
    let plan = plan::compute(input).expect("a plan");
    let healthy = plan.time.copy_s.expect("a rate");
    within(plan.forecast.copied_s, healthy / 0.03, 0.05);
    assert!(plan.forecast.happened[0].what.contains("disk 3 of node 2"));
    // In the forecast the slow node is far behind the mean.
    let middle = &plan.forecast.points[plan.forecast.points.len() / 2];
    assert!(middle.slowest < 0.6 && middle.rows as f64 > 0.8 * rows as f64, "{middle:?}");
}

/// Sequential round trips of a wide commit: 1 with a synchronous replica, 3 with two-phase commit as well, 6 and 5 ms, 4.5 and 0.5 ms.
#[test]
fn commits_cost_what_the_published_table_says() {
    let mut input = petabyte(ROWS);
    input.topologies = plan::costs::topologies();
    let ping = |name: &str, us: f64| record::plan::input::Ping { name: name.into(), us };
    input.pings = vec![ping("one data centre", 300.0), ping("zones", 2_000.0)];
    input.hardware.standbys = 2;
    let plan = plan::compute(input).expect("a plan");
    let latency = |name: &str| {
        let found = plan.commits.iter().find(|commit| commit.topology == name);
        found.unwrap_or_else(|| panic!("{name}")).latency_us.clone()
    };
    assert_eq!(latency("one server, synchronous replica"), [300.0, 2_000.0]);
    assert_eq!(latency("shards, two-phase commit, synchronous replicas"), [900.0, 6_000.0]);
    assert_eq!(latency("distributed, phases one after another"), [6_800.0, 17_000.0]);
    assert_eq!(latency("distributed, phases overlapped"), [1_850.0, 9_500.0]);
    // Two idle replicas waste two thirds of the hardware.
    within(plan.clients.replica_utilisation, 1.0 / 3.0, 1e-9);
}
