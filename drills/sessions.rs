//! What sessions, slots and checkpoints do to each other on one server.

use crate::ground::{Ground, Worker, not_possible_here};
use std::time::Duration;
use testing::Lack;

#[test]
fn what_sessions_slots_and_checkpoints_do_to_each_other() {
    let ground = Ground::new(&[
        ("wal_level", "logical"),
        ("max_wal_size", "32MB"),
        ("min_wal_size", "32MB"),
        ("wal_buffers", "64kB"),
        ("autovacuum_freeze_max_age", "100000"),
        ("deadlock_timeout", "200ms"),
        ("max_prepared_transactions", "5"),
        ("max_slot_wal_keep_size", "48MB"),
    ]);
    ground.sql(
        "CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot SELECT i, 0 FROM generate_series(1, 10) i;
         CREATE TABLE bulk (payload text); CREATE TABLE burnt (i int);",
    );
    let mut rules = vec!["LCK-01", "VAC-05", "GEN-02", "WAL-03", "WAL-06", "REP-03", "REP-06", "TXN-04"];
    let counts_conflicts = ground.cluster.installation().version.major >= 15;
    if counts_conflicts {
        rules.push("REP-07");
    } else {
        let lack = Lack::new("postgres-15", "older servers do not count failed applies");
        not_possible_here(&["REP-07"], &lack);
    }
    {
        let _load = ground.repeat("UPDATE hot SET n = n + 1 WHERE id = 1", Duration::from_millis(20));
        ground.watch("healthy").is_silent(&rules);
    }

    ground.sql(
        "CREATE TABLE keyless (a int, b text); INSERT INTO keyless SELECT i, i::text FROM generate_series(1, 1000) i;
         ALTER TABLE keyless REPLICA IDENTITY FULL; CREATE TABLE parcel (id int PRIMARY KEY);
         CREATE PUBLICATION everybody FOR TABLE keyless, parcel;
         SELECT pg_create_physical_replication_slot('forgotten', true);",
    );
    // A logical slot waits for all transactions at work: it comes before those that never end.
    if counts_conflicts {
        follow(&ground);
    }
    ground.sql("BEGIN; INSERT INTO burnt VALUES (0); PREPARE TRANSACTION 'orphan'");
    let mut holder = ground.session();
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot;")
        .expect("a snapshot");
    // Each block is a subtransaction, each subtransaction that writes takes a transaction id.
    ground.sql(
        "DO $$ BEGIN FOR i IN 1..6000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;",
    );
    let mut root = ground.session();
    root.batch_execute("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 2;").expect("a lock");
    let blocked = "SET lock_timeout = '30s'; UPDATE hot SET n = 0 WHERE id = 2";
    let mut workers: Vec<Worker> = (0..4).map(|_| ground.repeat(blocked, Duration::ZERO).in_vain()).collect();
    for (first, second) in [(5, 6), (6, 5)] {
        let crossed = format!(
            "BEGIN; UPDATE hot SET n = 1 WHERE id = {first}; SELECT pg_sleep(0.1); UPDATE hot SET n = 1 WHERE id = {second}; COMMIT"
        );
        workers.push(ground.repeat(&crossed, Duration::ZERO));
    }
    let flood = "INSERT INTO bulk SELECT repeat(md5(i::text), 30) FROM generate_series(1, 8000) i; UPDATE keyless SET b = b || 'x' WHERE a = 7";
    workers.push(ground.repeat(flood, Duration::from_millis(20)));
    let watching = ground.watch("sick");
    watching.looked(1);
    // The subscription goes on failing, but its slot is lost in the flood: the first failure must be seen.
    ground.sql("INSERT INTO parcel VALUES (1)");
    let fired = watching.until(&rules);
    let told = |rule: &str| fired[rule]["claim"].as_str().unwrap_or("").to_string();
    assert!(told("LCK-01").contains("blocked"), "{}", told("LCK-01"));
    assert!(told("REP-03").contains("slot"), "{}", told("REP-03"));
    assert!(told("REP-06").contains("keyless"), "{}", told("REP-06"));
    assert_eq!(fired["VAC-05"]["level"], "discriminating_counter");
    drop((watching, root, holder));
}

#[test]
#[ignore = "a gigabyte is decoded and spilled"]
fn a_huge_transaction_is_decoded() {
    let ground = Ground::new(&[
        ("wal_level", "logical"),
        ("logical_decoding_work_mem", "64kB"),
        ("max_wal_size", "4GB"),
        ("autovacuum", "off"),
    ]);
    if ground.cluster.installation().version.major < 14 {
        let lack = Lack::new("postgres-14", "older servers do not count what slots spill");
        return not_possible_here(&["TXN-02"], &lack);
    }
    ground.sql("CREATE TABLE bulk (id int, v text); CREATE PUBLICATION everybody FOR ALL TABLES;");
    ground.sql("SELECT pg_create_logical_replication_slot('reader', 'pgoutput')");
    // A reader that looks and takes nothing decodes the same transactions each time.
    let read = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('reader', NULL, 1, 'proto_version', '1', 'publication_names', 'everybody')";
    {
        ground.sql("INSERT INTO bulk SELECT i, repeat('x', 500) FROM generate_series(1, 50) i");
        let _reader = ground.repeat(read, Duration::from_millis(50));
        ground.watch("small").is_silent(&["TXN-02"]);
    }
    ground.sql("SELECT pg_replication_slot_advance('reader', pg_current_wal_lsn())");
    ground.sql("INSERT INTO bulk SELECT i, repeat('x', 500) FROM generate_series(1, 400000) i");
    let watching = ground.watch("huge");
    watching.looked(1);
    let _reader = ground.repeat(read, Duration::ZERO).in_vain();
    watching.until(&["TXN-02"]);
}

#[test]
fn a_session_that_forgot_its_transaction() {
    let ground = Ground::new(&[("autovacuum_freeze_max_age", "100000")]);
    ground.sql("CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot VALUES (1, 0); CREATE TABLE burnt (i int);");
    let rules = ["LCK-01", "VAC-05"];
    let work = "UPDATE hot SET n = n + 1 WHERE id = 1";
    let load: Vec<Worker> = (0..4).map(|_| ground.repeat(work, Duration::from_millis(20))).collect();
    ground.watch("healthy").is_silent(&rules);
    // It only read: its snapshot is gone with the statement, its lock is not, and a change of the table queues behind it with all that follow.
    let mut forgotten = ground.session();
    forgotten.batch_execute("BEGIN; SELECT count(*) FROM hot").expect("reads");
    let change =
        ground.repeat("ALTER TABLE hot ADD COLUMN IF NOT EXISTS later int", Duration::ZERO).in_vain();
    let watching = ground.watch("reader");
    let fired = watching.until(&["LCK-01"]);
    let told = |finding: &serde_json::Value| format!("{} {}", finding["claim"], finding["remedy"]);
    assert!(told(&fired["LCK-01"]).contains("idle in transaction"), "{}", told(&fired["LCK-01"]));
    assert!(
        told(&fired["LCK-01"]).contains("idle_in_transaction_session_timeout"),
        "{}",
        told(&fired["LCK-01"])
    );
    drop((watching, change, load));
    // It wrote: from now on no dead row may be removed.
    forgotten.batch_execute("INSERT INTO burnt VALUES (0)").expect("writes");
    ground.sql(
        "DO $$ BEGIN FOR i IN 1..6000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;",
    );
    let watching = ground.watch("writer");
    watching.until(&["VAC-05"]);
    // What the holder does is reported once it has been idle for a second.
    let fired = watching.until_that("what the holder does", |findings| {
        findings
            .get("VAC-05")
            .is_some_and(|finding| finding["evidence"].to_string().contains("idle in transaction"))
    });
    assert!(
        told(&fired["VAC-05"]).contains("idle_in_transaction_session_timeout"),
        "{}",
        told(&fired["VAC-05"])
    );
    drop(forgotten);
}

/// Lets another database of the same server subscribe, with a row that is there already.
fn follow(ground: &Ground) {
    let socket = ground.cluster.socket_dir().display();
    ground.sql("SELECT pg_create_logical_replication_slot('follows', 'pgoutput');");
    ground.sql("CREATE DATABASE follower;");
    let text = format!(
        "CREATE TABLE parcel (id int PRIMARY KEY); INSERT INTO parcel VALUES (1); CREATE TABLE keyless (a int, b text);
         CREATE SUBSCRIPTION follows CONNECTION 'host={socket} port={} user=postgres dbname=postgres' PUBLICATION everybody
           WITH (create_slot = false, slot_name = 'follows', copy_data = false);",
        ground.cluster.port()
    );
    // A subscription cannot be made in a transaction: one statement after the other.
    for statement in text.split(';').filter(|statement| !statement.trim().is_empty()) {
        ground
            .cluster
            .execute_in("follower", statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}
