//! Properties of the closed forms: monotone, the same in any unit, and within 64 bits at a petabyte and far above it.

use crate::support::{petabyte, rate, usertable};
use plan::PlanError;
use proptest::prelude::*;
use record::plan::Plan;
use record::plan::input::{Input, Prices};

fn computed(input: Input) -> Plan {
    plan::compute(input).expect("a plan")
}

/// The same without a rate: then nothing is simulated, which takes most of the time.
fn closed(mut input: Input) -> Plan {
    input.loading.rate = None;
    computed(input)
}

proptest! {
    #[test]
    fn more_rows_never_need_less(rows in 1_000u64..2_000_000_000_000, more in 1u64..1_000_000_000) {
        let (few, many) = (closed(petabyte(rows)), closed(petabyte(rows + more)));
        prop_assert!(many.size.disk_bytes >= few.size.disk_bytes);
        prop_assert!(many.size.wal_bytes >= few.size.wal_bytes);
        // More partitions are sorted in smaller pieces.
        let are_alike = many.layout.partitions == few.layout.partitions;
        prop_assert!(!are_alike || many.space.final_bytes >= few.space.final_bytes);
        prop_assert!(!are_alike || many.space.peak_bytes >= few.space.peak_bytes);
        prop_assert!(many.layout.partitions >= few.layout.partitions);
        prop_assert!(many.time.needed_bytes_per_s >= few.time.needed_bytes_per_s);
        prop_assert!(!are_alike || many.vacuum.by_delay_s >= few.vacuum.by_delay_s);
        prop_assert!(few.fits || !many.fits || !are_alike);
        prop_assert!(many.space.peak_bytes >= many.space.final_bytes);
    }

    #[test]
    fn more_hardware_never_makes_it_worse(nodes in 1u64..60, disks in 1u64..24, disk_tb in 1u64..30) {
        let with = |nodes: u64, disks: u64, disk_tb: u64| {
            let mut input = petabyte(100_000_000_000);
            input.hardware.nodes = nodes;
            input.hardware.disks = disks;
            input.hardware.disk_bytes = disk_tb * 1_000_000_000_000;
            closed(input)
        };
        let plan = with(nodes, disks, disk_tb);
        prop_assert!(with(nodes + 1, disks, disk_tb).space.rows_max >= plan.space.rows_max);
        prop_assert!(with(nodes, disks + 1, disk_tb).space.rows_max >= plan.space.rows_max);
        prop_assert!(with(nodes, disks, disk_tb + 1).space.rows_max >= plan.space.rows_max);
        // Equal shares: no node has more partitions than another.
        prop_assert_eq!(plan.layout.partitions % (nodes * disks), 0);
        prop_assert!(plan.layout.partition_bytes <= plan.layout.relation_bytes_max);
    }

    #[test]
    fn rows_that_fit_fit_and_two_more_per_mille_do_not(disk_gb in 100u64..40_000, nodes in 1u64..9) {
        let with = |rows: u64| {
            let mut input = petabyte(rows);
            input.hardware.nodes = nodes;
            input.hardware.disk_bytes = disk_gb * 1_000_000_000;
            input.hardware.keep_free_bytes = disk_gb * 50_000_000;
            input.loading.deadline_s = None;
            // Partitions by the limit change with the rows, and with them the sorts.
            input.loading.partitions = Some(nodes * 10);
            closed(input)
        };
        let most = with(1_000_000_000).space.rows_max;
        prop_assert!(with(most - most / 100_000).fits, "{:?}", with(most).problems);
        prop_assert!(!with(most + most / 500).fits);
    }

    #[test]
    fn twice_the_rate_is_half_the_time(megabytes_per_s in 1.0f64..100_000.0) {
        let with = |factor: f64| {
            let mut input = petabyte(10_000_000);
            input.loading.rate = Some(rate(megabytes_per_s * 1e6 * factor));
            computed(input)
        };
        let (once, twice) = (with(1.0).time, with(2.0).time);
        let copy = once.copy_s.expect("a rate");
        prop_assert!((copy / twice.copy_s.expect("a rate") - 2.0).abs() < 1e-9);
        prop_assert!(once.total_s_low < once.total_s && once.total_s < once.total_s_high);
    }
}

#[test]
fn nothing_overflows_at_a_petabyte_or_at_the_limits() {
    for rows in [1, 1 << 31, 1 << 32, 1_000_000_000_000, 19_000_000_000_000] {
        let plan = computed(petabyte(rows));
        assert!(plan.size.disk_bytes >= rows.saturating_mul(1_022), "{rows}");
        assert!(plan.size.disk_bytes < u64::MAX && plan.size.wal_bytes < u64::MAX);
        assert_eq!(
            plan.size.value_bytes,
            rows * 1_022,
            "exact: below 2^63 and a whole number of bytes a row"
        );
        let text = plan.to_json().expect("every number has a JSON form");
        assert!(!text.contains("null"), "a figure is not finite");
        let back: Plan = serde_json::from_str(&text).expect("it comes back");
        assert_eq!(
            (back.size.disk_bytes, back.layout, back.fits),
            (plan.size.disk_bytes, plan.layout, plan.fits)
        );
    }
}

#[test]
fn nonsense_is_refused_with_a_way_out() {
    let refused = |change: &dyn Fn(&mut Input)| {
        let mut input = petabyte(1_000_000);
        change(&mut input);
        let error = plan::compute(input).expect_err("nonsense");
        assert!(error.hint().is_some(), "{error}");
        error.to_string()
    };
    assert_eq!(refused(&|input| input.hardware.nodes = 0), "0 nodes are not possible");
    assert_eq!(refused(&|input| input.hardware.disks = 0), "0 disks are not possible");
    assert_eq!(refused(&|input| input.tables[0].rows = 0), "0 rows are not possible");
    assert!(refused(&|input| input.tables[0].rows = u64::MAX).ends_with("are more than a plan takes"));
    let narrow =
        refused(&|input| (input.tables[0].rows, input.tables[0].value_bytes_per_row) = (1 << 60, 0.001));
    assert_eq!(narrow, "1152921504606846976 rows are not possible");
    assert_eq!(
        refused(&|input| input.loading.partitions = Some(3)),
        "3 partitions cannot be spread over 7 nodes"
    );
    assert_eq!(
        refused(&|input| input.hardware.usable_share = 1.5),
        "usable share of a disk: 1.5 is not a share above 0 and up to 1"
    );
    assert_eq!(
        refused(&|input| input.loading.tablespaces = vec!["a".into()]),
        "1 tablespaces for 10 disks of a node"
    );
    let wide =
        refused(&|input| (input.tables[0].rows, input.tables[0].value_bytes_per_row) = (1_000_000_000, 1e9));
    assert_eq!(wide, "1 EB are more than a plan takes");
    let unknown = plan::tuple::ColumnType::parse("tsvector").expect_err("unknown");
    assert!(matches!(unknown, PlanError::Type { .. }));
}

/// Money and time to wraparound are simple enough to compute by hand.
#[test]
fn money_and_ids_are_those_of_a_pocket_calculator() {
    let mut input = petabyte(1_000_000_000);
    input.prices = Some(Prices { node_hour: 3.0, client_hour: 1.0 });
    input.workload.tps = Some(7_000.0);
    input.hardware.standbys = 1;
    input.loading.transactions_per_node = 50_000_000;
    let plan = computed(input);
    let hosts = plan.clients.hosts.expect("a rate") as f64;
    let money = plan.money.expect("prices");
    assert_eq!(money.per_hour, 14.0 * 3.0 + hosts);
    let million = money.per_million_transactions.expect("a rate");
    assert!((million - money.per_hour / (7_000.0 * 3_600.0) * 1e6).abs() < 1e-9);
    // 150 million ids of each node, a thousand a second.
    assert_eq!(plan.transactions.left_s, Some(150_000.0));
}

#[test]
fn every_figure_of_the_terminal_is_explained() {
    let plan = computed(petabyte(1_000_000_000_000));
    let explained = plan::text::explain(&plan);
    for name in [
        "rate needed = value bytes / deadline",
        "rows that fit = ",
        "partitions = ",
        "duration = copy + indexes",
    ] {
        assert!(explained.contains(name), "{name} is missing in:\n{explained}");
    }
    for formula in &plan.formulas {
        assert!(formula.result.is_finite() && !formula.inputs.is_empty(), "{formula:?}");
        // What the expression names is given, and what is given is named.
        for input in &formula.inputs {
            assert!(formula.expression.contains(&input.name), "{formula:?}");
        }
    }
    let text = plan::text::report(&plan);
    assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 125), "{text}");
    for word in ["70 partitions", "845 MB/s needed for 14 d", "it will not fit: stop at", "it does not fit"] {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
}

#[test]
fn a_table_that_every_node_has_is_counted_for_each_and_not_divided() {
    let mut input = petabyte(1_000_000_000);
    let alone = computed(input.clone());
    let mut copied = usertable(1_000_000).size(8192).expect("a table");
    (copied.name, copied.is_whole) = ("item".into(), true);
    let bytes = copied.heap_bytes_per_row + copied.map_bytes_per_row + copied.index_bytes_per_row;
    input.tables.push(copied);
    let both = computed(input);
    assert_eq!(both.size.disk_bytes - alone.size.disk_bytes, (bytes * 7e6).round() as u64);
    let grown = both.space.final_bytes - alone.space.final_bytes;
    assert!((grown as f64 / (bytes * 1e6) - 1.0).abs() < 1e-6);
}
