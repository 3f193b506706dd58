//! Vacuum: against wraparound, behind a held horizon, with too little memory; and the experiment that proves what slows it.

use crate::ground::{Ground, Watching, not_possible_here};
use std::time::Duration;
use testing::Lack;

/// Each block is a subtransaction, each subtransaction that writes takes a transaction id.
fn burn(ground: &Ground, ids: u32) {
    ground.sql(&format!(
        "DO $$ BEGIN FOR i IN 1..{ids} LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;"
    ));
}

fn set(ground: &Ground, name: &str, value: &str) {
    ground.sql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
    ground.sql("SELECT pg_reload_conf()");
}

#[test]
fn vacuum_against_wraparound_sleeps() {
    let ground = Ground::new(&[
        ("autovacuum_freeze_max_age", "100000"),
        ("autovacuum", "off"),
        ("autovacuum_naptime", "1s"),
        ("autovacuum_vacuum_cost_delay", "50ms"),
        ("vacuum_cost_page_dirty", "200"),
    ]);
    ground.sql(
        "CREATE TABLE big (id int, v text); INSERT INTO big SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i;
         CREATE TABLE burnt (i int);",
    );
    let rules = ["VAC-01", "VAC-07"];
    ground.watch("healthy").is_silent(&rules);
    burn(&ground, 60_000);
    burn(&ground, 60_000);
    set(&ground, "autovacuum", "on");
    let fired = ground.watch("storm").until(&rules);
    let claim = fired["VAC-07"]["claim"].as_str().unwrap_or("");
    assert!(claim.contains("is due now"), "{claim}");
}

#[test]
fn dead_rows_that_do_not_fit_into_memory() {
    // The least that it may be: enough for 174,000 row addresses before PostgreSQL 17, and for pages by the thousand since.
    let settings = [("autovacuum", "off"), ("maintenance_work_mem", "1MB")];
    let Some(ground) = Ground::before(17, &settings) else {
        let why = "a megabyte holds the dead rows of gigabytes since then, and no older one is installed";
        return not_possible_here(&["VAC-06"], &Lack::new("postgres-before-17", why));
    };
    ground.sql(
        "CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item SELECT generate_series(1, 400000);
         DELETE FROM item WHERE id <= 100;",
    );
    // It takes its time, so that it is seen at work.
    let vacuum = "SET vacuum_cost_delay = '2ms'; SET vacuum_cost_limit = 60; VACUUM (PARALLEL 0) item";
    {
        let watching = ground.watch("little");
        watching.looked(1);
        run_apart(&ground, vacuum);
        watching.is_silent(&["VAC-06"]);
    }
    ground.sql("DELETE FROM item");
    let watching = ground.watch_every("100ms", "much");
    watching.looked(1);
    let at_work = std::thread::scope(|scope| {
        let work = scope.spawn(|| run_apart(&ground, vacuum));
        let fired = watching.until(&["VAC-06"]);
        work.join().expect("the vacuum ends");
        fired
    });
    let claim = at_work["VAC-06"]["claim"].as_str().unwrap_or("");
    assert!(claim.contains("vacuum of public.item scanned its indexes 2 times"), "{claim}");
}

/// Statements that cannot stand in one transaction, in one session.
fn run_apart(ground: &Ground, text: &str) {
    let mut session = ground.session();
    for statement in text.split(';') {
        session.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// Looks in half a minute and a little, with two a second.
const SATURATED_LOOKS: usize = 70;

#[test]
#[ignore = "workers count as exhausted after 30 s, and tables are looked at once a minute"]
fn workers_run_in_vain_behind_a_held_horizon() {
    let ground = Ground::new(&[
        ("autovacuum_naptime", "1s"),
        ("autovacuum_max_workers", "2"),
        ("autovacuum_vacuum_threshold", "50"),
        ("autovacuum_vacuum_scale_factor", "0"),
        ("autovacuum_vacuum_cost_delay", "20ms"),
        ("autovacuum_vacuum_cost_limit", "10000"),
        ("autovacuum_freeze_max_age", "100000"),
    ]);
    let rules = ["VAC-03", "VAC-04", "VAC-05"];
    ground.sql("CREATE TABLE burnt (i int)");
    for table in 1..=5 {
        ground.sql(&format!(
            "CREATE TABLE item{table} (id int PRIMARY KEY, v text);
             INSERT INTO item{table} SELECT i, repeat('x', 300) FROM generate_series(1, 5000) i"
        ));
    }
    let update: Vec<String> =
        (1..=5).map(|table| format!("UPDATE item{table} SET v = v WHERE id % 4 = 0")).collect();
    {
        // The same work, and vacuum may remove what it leaves behind.
        let _work = ground.repeat(&update.join(";"), Duration::from_secs(5));
        let mut watching = ground.watch("healthy");
        watching.looked(SATURATED_LOOKS);
        watching.end();
        watching.is_silent(&rules);
    }
    let mut holder = ground.session();
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM item1;")
        .expect("a snapshot");
    burn(&ground, 6_000);
    // Few pages at a time: each of the two workers takes seconds for a table, and three tables wait.
    set(&ground, "autovacuum_vacuum_cost_limit", "20");
    let _work = ground.repeat(&update.join(";"), Duration::from_secs(2));
    let mut watching = ground.watch("held");
    let exhausted = watching.until(&["VAC-03", "VAC-05"]);
    let evidence = exhausted["VAC-03"]["evidence"].to_string();
    assert!(evidence.contains("VAC-05"), "the holder is named: {evidence}");
    // Back at full speed they run again and again, and remove nothing.
    set(&ground, "autovacuum_vacuum_cost_limit", "10000");
    watching.looked(SATURATED_LOOKS * 2);
    watching.end();
    let fired = watching.until(&["VAC-04", "VAC-05"]);
    assert_eq!(fired["VAC-04"]["level"], "discriminating_counter", "{:#?}", fired["VAC-04"]);
}

/// Looks of each part of the experiment, with five a second.
const PART_LOOKS: usize = 30;

#[test]
#[ignore = "an experiment on autovacuum takes half a minute"]
fn the_cost_delay_is_taken_away_and_the_storm_moves_on() {
    let ground = Ground::new(&[
        ("autovacuum", "off"),
        ("autovacuum_naptime", "1s"),
        ("autovacuum_vacuum_cost_delay", "50ms"),
        ("autovacuum_freeze_max_age", "100000"),
        ("vacuum_cost_page_dirty", "200"),
    ]);
    ground.sql("CREATE TABLE burnt (i int)");
    for table in 1..=4 {
        ground.sql(&format!(
            "CREATE TABLE big{table} (id int, v text); INSERT INTO big{table} SELECT i, repeat('x', 900) FROM generate_series(1, 250000) i"
        ));
    }
    burn(&ground, 60_000);
    burn(&ground, 60_000);
    let watching = ground.watch_every("200ms", "experiment");
    let level = |level: &'static str| {
        move |findings: &std::collections::BTreeMap<String, serde_json::Value>| {
            findings.get("VAC-01").is_some_and(|finding| finding["level"] == level)
        }
    };
    set(&ground, "autovacuum", "on");
    watching.until_that("it sleeps", level("discriminating_counter"));
    watching.looked(PART_LOOKS);
    set(&ground, "autovacuum_vacuum_cost_delay", "0");
    // Taken away, given back, taken away: once is not enough in so short a time.
    looks_later(&watching);
    set(&ground, "autovacuum_vacuum_cost_delay", "50ms");
    looks_later(&watching);
    set(&ground, "autovacuum_vacuum_cost_delay", "0");
    let findings = watching.until_that("it is proved", level("intervention"));
    eprintln!("drill VAC-01: proved by intervention: {}", findings["VAC-01"]["evidence"]);
}

/// Waits for as many looks as a part of an experiment has.
fn looks_later(watching: &Watching<'_>) {
    watching.looked(watching.looks() + PART_LOOKS);
}
