//! A plan fits its schema, and is read back as it was written.

mod validator;

use record::plan;
use record::plan::input::{self, Happening};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use validator::Schema;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A plan in which everything is there that can be there.
fn full_plan() -> plan::Plan {
    let what = [
        Happening::SlowDisk { node: 1, disk: 1, share: 0.5 },
        Happening::AgentLost,
        Happening::AgentBack,
        Happening::Move { partition: 1, node: 1 },
        Happening::Vacuum { share: 0.5, for_s: 60.0 },
    ];
    let units = [
        plan::Unit::Count,
        plan::Unit::Share,
        plan::Unit::Bytes,
        plan::Unit::BytesPerRow,
        plan::Unit::BytesPerSecond,
        plan::Unit::PerSecond,
        plan::Unit::Seconds,
        plan::Unit::Microseconds,
        plan::Unit::Money,
    ];
    let formula = |unit| plan::Formula {
        unit,
        inputs: vec![plan::Term { name: "rows".into(), value: 1.0, unit }],
        ..plan::Formula::default()
    };
    let some = Some(1.5);
    let input = plan::Input {
        flags: [("rows".to_string(), "1".to_string())].into(),
        tables: vec![input::TableSize::default()],
        hardware: input::Hardware {
            disk_read_bytes_per_s: some,
            wal_bytes_per_s: some,
            ..input::Hardware::default()
        },
        loading: input::Loading {
            partitions: Some(1),
            tablespaces: vec!["a".into()],
            deadline_s: some,
            rate: Some(input::Rate::default()),
            ..input::Loading::default()
        },
        workload: input::Workload { tps: some, ..input::Workload::default() },
        other_storage: Some(input::OtherStorage {
            engine: "an engine".into(),
            how: "keeps rows in trees".into(),
        }),
        pings: vec![input::Ping::default()],
        topologies: vec![input::Topology::default()],
        prices: Some(input::Prices::default()),
        what_if: what.into_iter().map(|what| input::WhatIf { at_s: 1.0, what }).collect(),
        ..plan::Input::default()
    };
    plan::Plan {
        schema: plan::SCHEMA.into(),
        schema_version: record::SCHEMA_VERSION,
        input,
        problems: vec!["it will be late".into()],
        notes: vec!["a note".into()],
        size: plan::Size {
            heap_bytes: 1,
            index_bytes: 1,
            toast_bytes: 1,
            disk_bytes: 1,
            disk_bytes_per_row: 1.0,
            wal_bytes: 1,
            ..plan::Size::default()
        },
        space: plan::Space { is_known: true, ..plan::Space::default() },
        layout: plan::Layout { tablespaces: vec![plan::Tablespace::default()], ..plan::Layout::default() },
        time: plan::Time {
            rows: 1,
            needed_bytes_per_s: some,
            needed_rows_per_s: some,
            rows_per_s: some,
            copy_s: some,
            index_s: some,
            total_s: some,
            total_s_low: some,
            total_s_high: some,
            spare_s: some,
        },
        transactions: plan::Transactions { left_s: some, ..plan::Transactions::default() },
        vacuum: plan::Vacuum {
            delayed_bytes_per_s: some,
            by_delay_s: some,
            by_read_s: some,
            by_wal_s: some,
            duration_s: some,
            ..plan::Vacuum::default()
        },
        wal: plan::Wal {
            bytes_per_s: some,
            checkpoint_s: some,
            max_wal_size_wanted: Some(1),
            ..plan::Wal::default()
        },
        clients: plan::Clients {
            load_cores: some,
            run_cores: some,
            hosts: Some(1),
            ..plan::Clients::default()
        },
        commits: vec![plan::CommitLatency { latency_us: vec![1.0], ..plan::CommitLatency::default() }],
        money: Some(plan::Money { per_hour: 1.0, load: some, per_million_transactions: some }),
        forecast: plan::Forecast {
            points: vec![plan::Point::default()],
            happened: vec![plan::Happened::default()],
            ..plan::Forecast::default()
        },
        formulas: units.map(formula).into(),
        ..plan::Plan::default()
    }
}

#[test]
fn a_plan_fits_its_schema_uses_all_of_it_and_comes_back() {
    let plan = full_plan();
    let mut schema = Schema::load("plan.schema.json");
    schema.validate(&serde_json::to_value(&plan).expect("JSON")).expect("fits");
    assert_eq!(schema.all_properties().difference(&schema.seen).collect::<Vec<_>>(), [] as [&String; 0]);
    assert!(schema.validate(&json!({"schema": "pgfathom.plan", "schema_version": 1})).is_err());

    let folder = Folder(std::env::temp_dir().join(format!("pgfathom-plan-{}", std::process::id())));
    fs::create_dir(&folder.0).expect("a folder");
    assert_eq!(plan::Plan::read(&folder.0).expect("no plan is no error"), None);
    plan.write(&folder.0).expect("it is written");
    assert_eq!(plan::Plan::read(&folder.0).expect("it is read"), Some(plan.clone()));
    let refused = |text: &str| {
        let path = folder.0.join("other.json");
        fs::write(&path, text).expect("it is written");
        plan::Plan::open(&path).expect_err("no plan").to_string()
    };
    assert!(refused("{}").contains("is not valid: it has no \"schema\""), "{}", refused("{}"));
    assert!(refused("[").contains("is damaged"));
    let later = plan::Plan { schema_version: record::SCHEMA_VERSION + 1, ..plan };
    assert!(refused(&later.to_json().expect("JSON")).contains("has schema version 2"));
}
