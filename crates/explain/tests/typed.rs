//! Remedies that take effect when they are typed: settings by where they are set, isolation levels, full tables of locks.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{node, statement};
use crate::fire::work;
use crate::scene::Scene;
use record::event;
use record::finding::Severity;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A server whose checkpoints are forced, and where `max_wal_size` comes from.
fn forced(source: &str) -> String {
    let mut scene = Scene::healthy();
    scene.fact(n1(), "setting", "max_wal_size", "128MB");
    scene.vary("server", n1(), "checkpoints_requested", |second| f64::from(u8::from(second % 10 == 0)));
    scene.set("server", n1(), json!({"wal_bytes": 40_000_000, "wal_fpi": 3_000}));
    if !source.is_empty() {
        scene.fact(n1(), "setting_source", "max_wal_size", source);
    }
    commands(of(&scene.explain(), "WAL-03"))
}

#[test]
fn what_the_command_line_sets_is_not_set_by_command() {
    assert!(
        forced("").lines().any(|line| line.starts_with("ALTER SYSTEM SET max_wal_size")),
        "{}",
        forced("")
    );
    assert_eq!(forced(""), forced("/srv/postgresql.conf:7"), "ALTER SYSTEM SET wins over a file");
    let typed = forced("command line");
    assert!(!typed.lines().any(|line| line.starts_with("ALTER SYSTEM SET max_wal_size")), "{typed}");
    assert!(typed.contains("-- max_wal_size is set on the command line"), "{typed}");
}

/// The command against a cost from which on statements are compiled that is far too low.
fn compiled(source: &str) -> String {
    let mut scene = fired("PLAN-03");
    scene.fact(n1(), "setting", "jit_above_cost", "100");
    scene.fact(n1(), "setting_source", "jit_above_cost", source);
    scene.fact(n1(), "setting_default", "jit_above_cost", "100000");
    let found = scene.explain();
    let of_jit = found.findings.iter().find(|finding| commands(finding).contains("jit_above_cost"));
    commands(of_jit.unwrap_or_else(|| panic!("{:#?}", found.findings)))
}

#[test]
fn a_file_that_alter_system_does_not_write_keeps_its_value_after_a_reset() {
    let own = compiled("/srv/postgresql.auto.conf:3");
    assert!(own.contains("ALTER SYSTEM RESET jit_above_cost; SELECT pg_reload_conf();"), "{own}");
    let file = compiled("/srv/postgresql.conf:12");
    assert!(
        file.contains("ALTER SYSTEM SET jit_above_cost = '100000'; SELECT pg_reload_conf(); -- "),
        "{file}"
    );
    assert!(file.contains("/srv/postgresql.conf:12 sets it"), "{file}");
    assert!(!file.contains("ALTER SYSTEM RESET jit_above_cost;"), "{file}");
    // A path that was hidden before the recording was given away.
    let hidden = compiled("***");
    assert!(hidden.contains("ALTER SYSTEM RESET jit_above_cost;") && !hidden.contains("***"), "{hidden}");
}

/// Sessions of database db, which sets this for itself.
fn owned(scene: &mut Scene, name: &str, value: &str) {
    scene.fact(n1(), "own_setting", &format!("{name} of database db"), value);
    let group = json!({"node": "n1", "application": "app", "user": "u", "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": 3}));
}

#[test]
fn a_setting_of_the_database_is_taken_away_there_and_nothing_else_is_set() {
    let mut scene = fired("PLAN-02");
    scene.fact(n1(), "setting", "work_mem", "256MB");
    owned(&mut scene, "work_mem", "64kB");
    let typed = commands(of(&scene.explain(), "PLAN-02"));
    assert!(typed.starts_with("ALTER DATABASE \"db\" RESET work_mem;"), "{typed}");
    assert!(!typed.contains("ALTER SYSTEM SET work_mem") && !typed.contains("SET work_mem ="), "{typed}");
}

#[test]
fn a_setting_of_the_server_that_a_database_overrides_comes_with_the_command_that_ends_that() {
    let mut scene = fired("LOG-01");
    let plain = commands(of(&scene.explain(), "LOG-01"));
    let name = plain
        .lines()
        .find_map(|line| line.strip_prefix("ALTER SYSTEM SET ")?.split(' ').next())
        .expect("a setting")
        .to_string();
    owned(&mut scene, &name, "strange");
    let typed = commands(of(&scene.explain(), "LOG-01"));
    let reset =
        format!("ALTER DATABASE \"db\" RESET {name}; -- database db has {name} = strange, which wins");
    assert!(typed.contains(&reset), "{typed}");
}

#[test]
fn columns_that_are_compared_by_equality_get_dependencies_alone() {
    let mut scene = Scene::healthy();
    statement(
        &mut scene,
        "select count(*) from vehicle v join offer o on o.region = v.region where v.brand = $1 and v.model = $2",
        json!({"shared_hit": 9_000_000}),
        json!({"cost_total": 600.0}),
    );
    node(&mut scene, 1, 0, "Nested Loop", json!({}));
    node(
        &mut scene,
        2,
        1,
        "Index Scan",
        json!({"relation": "public.vehicle", "condition": "((v.brand = $1) AND (v.model = $2))", "table_rows": 400_000.0}),
    );
    node(
        &mut scene,
        3,
        1,
        "Index Scan",
        json!({"relation": "public.offer", "condition": "(o.region = v.region)", "table_rows": 900_000.0}),
    );
    let found = scene.explain();
    let typed: String = found.findings.iter().map(commands).collect::<Vec<_>>().join("\n");
    assert!(
        typed.contains("CREATE STATISTICS public.\"stats_brand_model\" (dependencies) ON \"brand\", \"model\" FROM public.vehicle;"),
        "{typed}"
    );
}

#[test]
fn the_isolation_level_of_a_database_is_taken_away_by_command() {
    let mut scene = fired("TXN-05");
    owned(&mut scene, "default_transaction_isolation", "serializable");
    let found = scene.explain();
    let finding = of(&found, "TXN-05");
    assert!(finding.claim.contains("for all of database db"), "{}", finding.claim);
    let typed = commands(finding);
    assert!(typed.starts_with("ALTER DATABASE \"db\" RESET default_transaction_isolation;"), "{typed}");
    let typed = commands(of(&fired("TXN-05").explain(), "TXN-05"));
    assert!(typed.starts_with("ALTER SYSTEM RESET default_transaction_isolation;"), "{typed}");
}

/// A server whose table of locks is full, and partitions of a table.
fn full_table_of_locks(parts: u64) -> Scene {
    let mut scene = Scene::healthy();
    scene.event(
        60,
        event::SERVER_LOG,
        "out of shared memory",
        json!({"node": "n1", "sqlstate": "53200", "severity": "ERROR", "repeated": 400}),
    );
    scene.fact(n1(), "setting", "max_locks_per_transaction", "64");
    scene.fact(n1(), "setting", "max_connections", "20");
    for part in 0..3 {
        let keys = json!({"node": "n1", "database": "db", "relation": format!("public.cdr_{part}")});
        scene.set(
            "table",
            keys,
            json!({"partition_of": "public.cdr", "parts": parts, "indexes": 1, "seq_scans": 9}),
        );
    }
    scene
}

#[test]
fn a_full_table_of_locks_names_the_partitions_and_the_setting() {
    let found = full_table_of_locks(1_200).explain();
    let finding = of(&found, "TXN-13");
    assert_eq!(finding.severity, Severity::High, "{finding:?}");
    assert!(finding.claim.contains("public.cdr"), "{}", finding.claim);
    assert!(finding.evidence.iter().any(|line| line.contains("1,280 locks")), "{finding:?}");
    assert!(finding.evidence.iter().any(|line| line.contains("1,200 partitions")), "{finding:?}");
    let typed = commands(finding);
    assert!(typed.contains("name IN ('max_locks_per_transaction'") && typed.contains("pg_locks"), "{typed}");
    assert!(typed.contains("ALTER SYSTEM SET max_locks_per_transaction = 2048; -- then restart"), "{typed}");
    assert!(!typed.contains("search_path"), "{typed}");
    let few = full_table_of_locks(4).explain();
    assert!(!of(&few, "TXN-13").claim.contains("public.cdr"), "{}", of(&few, "TXN-13").claim);
}

#[test]
fn who_types_checkpoint_is_named() {
    let mut scene = Scene::healthy();
    work::requested_checkpoints(&mut scene, 10);
    work::statement(&mut scene, "70", "CHECKPOINT", json!({"calls": 1}));
    let of_claim = |scene: &Scene| of(&scene.explain(), "WAL-07").claim.clone();
    assert!(!of_claim(&scene).contains("of role"), "{}", of_claim(&scene));
    scene.event(2, event::QUERY, "", json!({"query_id": "70", "text": "CHECKPOINT", "user": "svc_backup"}));
    assert!(
        of_claim(&scene).contains("the command CHECKPOINT of role svc_backup begins"),
        "{}",
        of_claim(&scene)
    );
    scene.set(
        "session",
        json!({"node": "n1", "pid": 77}),
        json!({"application": "bkp-snap", "user": "svc_backup", "state": "idle", "query": "CHECKPOINT;"}),
    );
    assert!(of_claim(&scene).contains("of role svc_backup (bkp-snap) begins"), "{}", of_claim(&scene));
}
