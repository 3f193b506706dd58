//! Commits that wait, rows that everybody wants, and a watch that was not looking.

use crate::ground::{Ground, Worker};
use std::thread;
use std::time::Duration;

/// How long a watch is stopped: the provocation itself, nothing waits for it.
const BLIND: Duration = Duration::from_secs(5);

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
    let sessions =
        |text: &str| -> Vec<Worker> { (0..8).map(|_| ground.repeat(text, Duration::ZERO)).collect() };
    {
        let _batches = sessions("INSERT INTO item (v) SELECT 'x' FROM generate_series(1, 200)");
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
        ground.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        ground.sql("SELECT pg_reload_conf()");
        let watching = ground.watch("alone");
        watching.until(&["REP-01"]);
        ground.sql("ALTER SYSTEM RESET synchronous_standby_names");
        ground.sql("SELECT pg_reload_conf()");
    }
    let watching = ground.watch("blind");
    watching.is_silent(&["OBS-01"]);
    watching.signal("-STOP");
    thread::sleep(BLIND);
    watching.signal("-CONT");
    watching.until(&["OBS-01"]);
}
