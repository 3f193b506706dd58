//! Commits that wait, rows that everybody wants, and a watch that was not looking.

use crate::ground::{Ground, Worker};
use std::thread;
use std::time::Duration;

/// How long a watch is stopped: the provocation itself, nothing waits for it.
const BLIND: Duration = Duration::from_secs(5);

/// Looks of each part of an experiment.
const PART_LOOKS: usize = 20;

#[test]
fn commits_locks_and_a_blind_watch() {
    // The delay stands in for a slow disk: who commits holds the WAL's lock for so long, and the others wait for it.
    let ground = Ground::new(&[
        ("fsync", "on"),
        ("commit_delay", "20000"),
        ("commit_siblings", "0"),
        ("autovacuum", "off"),
    ]);
    ground.sql(
        "CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
         CREATE TABLE counter (id int PRIMARY KEY, n int); INSERT INTO counter VALUES (1, 0);",
    );
    for table in 0..8 {
        ground.sql(&format!("CREATE TABLE own{table} (v text)"));
    }
    let sessions =
        |text: &str| -> Vec<Worker> { (0..8).map(|_| ground.repeat(text, Duration::ZERO)).collect() };
    {
        // Each into a table of its own: on one table the sessions of a busy machine do wait for each other's pages.
        let _batches: Vec<Worker> = (0..8)
            .map(|table| {
                let batch = format!("INSERT INTO own{table} (v) SELECT 'x' FROM generate_series(1, 200)");
                ground.repeat(&batch, Duration::ZERO)
            })
            .collect();
        ground.watch("batches").is_silent(&["TXN-01", "DIST-06", "REP-01"]);
    }
    {
        let _singles = sessions("INSERT INTO item (v) VALUES ('x')");
        let fired = ground.watch("singles").until(&["TXN-01", "WAL-01"]);
        let claim = fired["TXN-01"]["claim"].as_str().unwrap_or("").to_string();
        assert!(claim.contains("rows are written per commit"), "{claim}");
        assert!(!fired.contains_key("DIST-06"), "{fired:#?}");
    }
    {
        let _hot = sessions("UPDATE counter SET n = n + 1 WHERE id = 1");
        ground.watch("hot").until(&["DIST-06"]);
    }
    {
        let _waiting = sessions("INSERT INTO item (v) VALUES ('x')");
        let standbys = |names: &str| {
            ground.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
            ground.sql("SELECT pg_reload_conf()");
        };
        let watching = ground.watch_every("100ms", "alone");
        watching.looked(PART_LOOKS);
        standbys("nobody");
        watching.until(&["REP-01"]);
        // Taken back and given again, the commits move with it each time: that is an experiment, and it proves more than a counter.
        for names in ["", "nobody", ""] {
            watching.looked(watching.looks() + PART_LOOKS);
            standbys(names);
        }
        let findings = watching.until_that("REP-01 is proved", |findings| {
            findings.get("REP-01").is_some_and(|finding| finding["level"] == "intervention")
        });
        eprintln!(
            "drill REP-01: proved by intervention: p = {}",
            findings["REP-01"]["numbers"]["intervention_p"]
        );
    }
    let watching = ground.watch("blind");
    watching.is_silent(&["OBS-01"]);
    watching.signal("-STOP");
    thread::sleep(BLIND);
    watching.signal("-CONT");
    watching.until(&["OBS-01"]);
}
