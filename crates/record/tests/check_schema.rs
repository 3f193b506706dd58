//! `check.json` is what `schema/check.schema.json` describes, with every field in use.

mod validator;

use record::check;
use record::finding::Remedy;
use serde_json::json;
use validator::Schema;

#[test]
fn a_check_fits_its_schema_and_uses_all_of_it() {
    let times = check::Distribution { count: 1, buckets: vec![(1, 2)], ..check::Distribution::default() };
    let item = check::Item {
        check: "disk.sync".into(),
        area: check::Area::Disk,
        host: Some("db1".into()),
        node: Some("n1".into()),
        figure: Some(check::Figure { value: 1.0, unit: check::Unit::Microseconds }),
        limit: Some(check::Limit::AtMost(2.0)),
        remedy: Remedy { text: "replace it".into(), commands: vec!["smartctl -a".into()] },
        ..check::Item::default()
    };
    let least = check::Item { limit: Some(check::Limit::AtLeast(2.0)), ..item.clone() };
    let host = check::Host {
        lost: Some("no route".into()),
        no_program: Some("not found".into()),
        processor: Some(check::Processor { frequency_mhz: Some(1.0), ..check::Processor::default() }),
        memory: vec![check::Memory { remote_latency_ns: Some(1.0), ..check::Memory::default() }],
        clock: Some(check::WallClock::default()),
        mounts: vec![check::Mount { size_bytes: Some(2), free_bytes: Some(1), ..check::Mount::default() }],
        facts: vec![check::Fact::default()],
        counters: vec![check::Counted::default()],
        missing: vec![check::Lack::default()],
        ..check::Host::default()
    };
    let test = check::DiskTest {
        latency_us: times.clone(),
        member_await_ms: vec![1.0],
        ..check::DiskTest::default()
    };
    let checks = check::Checks {
        items: vec![item, least],
        hosts: vec![host],
        disks: vec![check::Disk {
            refused: Some("no space".into()),
            real_directory: "/mnt/data".into(),
            same_as: Some("/data".into()),
            file_bytes: Some(1 << 28),
            asked_bytes: Some(1 << 30),
            tests: vec![test],
            ..check::Disk::default()
        }],
        pairs: vec![check::Pair {
            lost: Some("refused".into()),
            round_trip_us: times,
            ..check::Pair::default()
        }],
        ..check::Checks::default()
    };
    let mut schema = Schema::load("check.schema.json");
    schema.validate(&serde_json::to_value(&checks).expect("JSON")).expect("fits");
    assert_eq!(schema.all_properties().difference(&schema.seen).collect::<Vec<_>>(), [] as [&String; 0]);
    assert!(schema.validate(&json!({"schema": 1, "items": [{"verdict": "fine"}]})).is_err());
}
