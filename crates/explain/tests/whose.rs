//! Whose it is: programs of the host that are clients, roles with settings of their own, databases beside each other, what an engine makes for itself.

use crate::advice::{commands, fired, of};
use crate::scene::{Scene, wait};
use record::Findings;
use record::finding::Severity;
use record::watched::{OWN, own};
use serde_json::json;

#[test]
fn clients_on_the_servers_host_are_no_neighbours() {
    let mut scene = fired("SES-02");
    assert!(of(&scene.explain(), "SES-02").claim.contains("other programs use"));
    let program = json!({"host": "h1", "program": "java"});
    scene.set(
        "program",
        program.clone(),
        json!({"processes": 3, "cpu_us": 3_600_000, "client_cpu_us": 3_600_000}),
    );
    let found = scene.explain();
    let claim = of(&found, "SES-02");
    assert!(
        claim.claim.contains("clients on the same host") && claim.claim.contains("java"),
        "{}",
        claim.claim
    );
    assert_eq!(claim.severity, Severity::Low);
    // The same program without a connection.
    scene.set("program", program, json!({"client_cpu_us": 0}));
    let found = scene.explain();
    assert!(of(&found, "SES-02").claim.contains("other programs use"));
    assert!(of(&found, "SES-02").claim.contains("java 3.6"), "{}", of(&found, "SES-02").claim);
}

#[test]
fn servers_of_other_clusters_are_no_clients_of_this_one() {
    let mut scene = fired("SES-02");
    let program = json!({"host": "h1", "program": "postgres"});
    let counters = json!({"processes": 3, "cpu_us": 3_600_000, "client_cpu_us": 0});
    scene.set("program", program.clone(), counters);
    // Sessions by foreign tables have a name that begins with the same letters.
    let group = json!({"node": "n1", "application": "postgres_fdw", "user": "u", "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": 3}));
    let found = scene.explain();
    let claim = &of(&found, "SES-02").claim;
    assert!(
        claim.contains("other programs use") && claim.contains("postgres of other clusters 3.6"),
        "{claim}"
    );
    // One that is subscribed to this server is a client of it.
    scene.set("program", program, json!({"client_cpu_us": 3_600_000}));
    let found = scene.explain();
    let claim = &of(&found, "SES-02").claim;
    assert!(claim.contains("clients on the same host"), "{claim}");
}

#[test]
fn a_role_with_less_memory_for_sorts_than_the_server_gives_is_named() {
    let mut scene = fired("PLAN-02");
    scene.fact(json!({"node": "n1"}), "setting", "work_mem", "64MB");
    scene.fact(json!({"node": "n1"}), "own_setting", "work_mem of role analyst", "64kB");
    assert!(!of(&scene.explain(), "PLAN-02").claim.contains("analyst"), "the role is not at work");
    let group = json!({"node": "n1", "application": "report", "user": "analyst", "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": 3}));
    let found = scene.explain();
    let claim = of(&found, "PLAN-02");
    assert!(claim.claim.contains("role analyst has a work_mem of its own: 64kB"), "{}", claim.claim);
    assert!(commands(claim).contains("ALTER ROLE \"analyst\" RESET work_mem;"), "{}", commands(claim));
    // More than the server gives is no reason.
    scene.fact(json!({"node": "n1"}), "own_setting", "work_mem of role analyst", "1GB");
    assert!(!of(&scene.explain(), "PLAN-02").claim.contains("analyst"));
}

#[test]
fn a_claim_about_a_statement_names_its_database_if_several_are_at_work() {
    let mut scene = fired("PLAN-27");
    assert!(!of(&scene.explain(), "PLAN-27").claim.contains("in database"));
    let group =
        json!({"node": "n1", "application": "etl", "user": "u", "database": "warehouse", "client": "local"});
    scene.set("activity", group, json!({"sessions": 3}));
    let found = scene.explain();
    assert!(of(&found, "PLAN-27").claim.ends_with("(in database db)"), "{}", of(&found, "PLAN-27").claim);
}

/// Facts of a server whose engine makes things for itself.
fn with_an_engine(mut scene: Scene) -> Scene {
    for (name, value) in [
        (own::PREPARED, "eng_; ENG-"),
        (own::RESOLVES, "its daemon looks the outcome up"),
        (own::RESOLVE, "SELECT recover_them();"),
        (own::LOCKS_WHILE, "while data is moved"),
        (own::SLOTS, "eng_slot_"),
    ] {
        scene.fact(json!({"node": "n1"}), OWN, name, value);
    }
    scene
}

#[test]
fn what_the_engine_prepared_is_not_ended_by_hand() {
    let ended = |name: &str| {
        let mut scene = with_an_engine(fired("TXN-04"));
        let keys = json!({"node": "n1", "kind": "prepared", "name": "gx1"});
        scene.set("horizon", keys, json!({"age_xids": 1}));
        scene.set(
            "horizon",
            json!({"node": "n1", "kind": "prepared", "name": name}),
            json!({"age_xids": 40_000_000, "age_s": 8_000.0}),
        );
        scene.explain()
    };
    let found = ended("ENG-1-700-2");
    let old = of(&found, "VAC-05");
    assert!(old.remedy.text.contains("its daemon looks the outcome up"), "{:?}", old.remedy);
    assert!(commands(old).contains("SELECT recover_them();") && !commands(old).contains("ROLLBACK PREPARED"));
    // A number must follow: this one is a user's.
    let found = ended("eng_backup");
    assert!(of(&found, "VAC-05").remedy.text.contains("coordinator"), "{:?}", of(&found, "VAC-05").remedy);
}

#[test]
fn slots_of_the_engine_are_not_dropped() {
    let mut scene = fired("REP-03");
    let theirs = of(&scene.explain(), "REP-03").clone();
    assert!(commands(&theirs).contains("pg_drop_replication_slot"));
    let begin: String = theirs
        .claim
        .split("slot ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("a name")
        .to_string();
    scene.fact(json!({"node": "n1"}), OWN, own::SLOTS, &begin);
    let ours = of(&scene.explain(), "REP-03").clone();
    assert!(!commands(&ours).contains("pg_drop_replication_slot"), "{}", commands(&ours));
    assert!(ours.remedy.text.contains("engine made the slot"));
}

/// A consumer that is cut off, and comes back, still wants what its slot keeps.
#[test]
fn slots_whose_consumer_comes_and_goes_are_not_dropped() {
    let mut scene = fired("REP-03");
    let name = {
        let claim = of(&scene.explain(), "REP-03").claim.clone();
        claim.split("slot ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a name").to_string()
    };
    scene.flip("slot", json!({"node": "n1", "slot": name}), "active", |second| second % 7 == 0);
    scene.fact(json!({"node": "n1"}), "setting", "wal_sender_timeout", "2s");
    let finding = of(&scene.explain(), "REP-03").clone();
    assert!(!commands(&finding).contains("pg_drop_replication_slot"), "{}", commands(&finding));
    assert!(finding.claim.contains("at some looks and away at others"), "{}", finding.claim);
    assert!(finding.evidence.iter().any(|line| line.contains("wal_sender_timeout is 2s")), "{finding:?}");
}

#[test]
fn an_advisory_lock_of_the_engine_is_none_of_the_applications() {
    let mut scene = with_an_engine(fired("LCK-03"));
    assert!(of(&scene.explain(), "LCK-03").claim.contains("which the application takes"));
    for pid in [21, 22, 23] {
        let keys = json!({"node": "n1", "pid": pid, "root": 20});
        scene.set("block", keys, json!({"blocked_by": 20, "root_state": "active", "depth": 1, "wait_s": 0.5, "lock_type": "advisory",
            "own": true, "mode": "ExclusiveLock", "relation": "", "query": "copy orders from stdin"}));
    }
    let found = scene.explain();
    let claim = of(&found, "LCK-03");
    assert!(claim.claim.contains("engine takes itself"), "{}", claim.claim);
    assert!(claim.remedy.text.contains("while data is moved"), "{:?}", claim.remedy);
}

#[test]
fn a_statement_that_takes_the_engines_lock_is_the_reason() {
    let mut scene = with_an_engine(fired("LCK-03"));
    scene.fact(
        json!({"node": "n1"}),
        OWN,
        own::LOCK_STATEMENT,
        "lock_parts: writes to one copied table take turns",
    );
    let before = scene.explain();
    assert!(!of(&before, "LCK-03").remedy.text.contains("take turns"), "the statement is another one");
    let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "advisory", "query_id": "31"});
    scene.set("wait", keys, json!({"sessions": 90}));
    scene.event(1, record::event::QUERY, "", json!({"query_id": "31", "text": "SELECT lock_parts($1)"}));
    let found = scene.explain();
    assert!(of(&found, "LCK-03").remedy.text.contains("take turns"), "{:?}", of(&found, "LCK-03").remedy);
}

#[test]
fn a_prepared_transaction_of_a_program_is_named_as_what_blocks() {
    let blocked = |name: &str| {
        let mut scene = with_an_engine(Scene::healthy());
        let horizon = json!({"node": "n1", "kind": "prepared", "name": name});
        scene.set("horizon", horizon, json!({"age_xids": 40, "age_s": 20.0}));
        for pid in [11, 12, 13, 14] {
            let keys = json!({"node": "n1", "pid": pid, "root": 0});
            scene.set("block", keys.clone(), json!({"blocked_by": 0, "depth": 1, "wait_s": 9.0, "lock_type": "transactionid", "mode": "ShareLock",
                "query": "UPDATE t SET v = 1"}));
            scene.during("block", keys, 50..=70);
        }
        scene.explain()
    };
    let found = blocked("app_left");
    let claim = of(&found, "LCK-01");
    assert!(claim.claim.contains("app_left") && commands(claim).contains("'app_left'"), "{claim:#?}");
    assert!(!claim.remedy.text.contains("leave"), "{:?}", claim.remedy);
    let found = blocked("ENG-1-700-2");
    assert!(of(&found, "LCK-01").remedy.text.contains("leave what"), "{:?}", of(&found, "LCK-01").remedy);
}

#[test]
fn sessions_of_the_engine_that_work_for_others_are_not_ended() {
    let mut scene = fired("LCK-01");
    let keys = json!({"node": "n1", "pid": 10});
    scene.set("session", keys, json!({"application": "eng_internal gpid=7", "state": "idle in transaction", "xact_age_s": 12.0, "query": "UPDATE \
        accounts SET v = 0"}));
    assert!(commands(of(&scene.explain(), "LCK-01")).contains("pg_terminate_backend"));
    scene.fact(json!({"node": "n1"}), OWN, own::SESSIONS, "eng_internal");
    scene.fact(json!({"node": "n1"}), OWN, own::ORIGIN, "SELECT * FROM eng_lock_waits;");
    let found = scene.explain();
    let claim = of(&found, "LCK-01");
    assert!(claim.remedy.text.contains("leave it"), "{:?}", claim.remedy);
    assert_eq!(commands(claim), "SELECT * FROM eng_lock_waits;");
}

#[test]
fn the_table_that_keeps_all_autovacuum_workers_busy_is_named() {
    let mut scene = fired("VAC-11");
    assert!(!of(&scene.explain(), "VAC-11").claim.contains("worker"));
    scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 1, "autovacuum_workers_max": 1}));
    let keys = json!({"node": "n1", "pid": 77, "command": "vacuum"});
    scene.set("progress", keys, json!({"relation": "public.history", "phase": "scanning heap"}));
    let found = scene.explain();
    let claim = &of(&found, "VAC-11").claim;
    assert!(claim.ends_with("the only autovacuum worker is busy with public.history"), "{claim}");
}

#[test]
fn a_table_whose_own_threshold_keeps_autovacuum_away_is_told_so() {
    let mut scene = fired("VAC-11");
    for (name, value) in [("autovacuum_vacuum_threshold", "50"), ("autovacuum_vacuum_scale_factor", "0.2")] {
        scene.fact(serde_json::json!({"node": "n1"}), "setting", name, value);
    }
    assert!(!of(&scene.explain(), "VAC-11").claim.contains("autovacuum comes only"));
    let found = scene.explain();
    let relation = of(&found, "VAC-11")
        .claim
        .split(" is in ")
        .nth(1)
        .expect("a relation")
        .split(',')
        .next()
        .expect("one")
        .to_string();
    let keys = json!({"node": "n1", "database": "db", "relation": relation});
    let options = "autovacuum_vacuum_threshold=50000000, autovacuum_vacuum_scale_factor=0";
    scene.set("table", keys, json!({"autovacuum_options": options}));
    let found = scene.explain();
    let claim = of(&found, "VAC-11");
    assert!(
        claim.claim.contains(
            "autovacuum comes only at 50M of them, by autovacuum_vacuum_threshold = 50000000 of the table"
        ),
        "{}",
        claim.claim
    );
    assert!(commands(claim).contains("RESET (autovacuum_vacuum_threshold"), "{:?}", claim.remedy);
}

#[test]
fn the_plan_of_a_statement_inside_of_a_function_is_that_of_the_call() {
    let mut scene = fired("PLAN-01");
    let plan = || json!({"node": "n1", "query_id": "9", "hash": "c0"});
    let text = "select max(n) from orders where customer = $1";
    let of_call = of(&scene.explain(), "PLAN-01").clone();
    assert!(!of_call.evidence.iter().any(|line| line.contains("inside of")), "{:?}", of_call.evidence);
    scene.set("plan", plan(), json!({"function": "watermark", "inner": text}));
    let found = scene.explain();
    let claim = of(&found, "PLAN-01");
    let evidence = claim.evidence.join("\n");
    assert!(evidence.contains(&format!("{text} (inside of: ")), "{evidence}");
}

#[test]
fn the_first_rows_of_a_sort_get_an_index_in_their_order() {
    let mut scene = Scene::healthy();
    let text = "select id from job where queue = $1 and state = $2 and run_at <= now() order by priority desc, id limit $3 for update skip locked";
    crate::fire::plan::statement(
        &mut scene,
        text,
        json!({"calls": 400, "rows": 400, "shared_hit": 900_000}),
        json!({}),
    );
    for (number, kind) in [(1, "Limit"), (2, "LockRows")] {
        crate::fire::plan::node(&mut scene, number, number - 1, kind, json!({}));
    }
    crate::fire::plan::node(
        &mut scene,
        3,
        2,
        "Sort",
        json!({"condition": "job.priority DESC, job.id", "rows_planned": 90_000.0}),
    );
    let filter = "((job.queue = $1) AND (job.state = $2) AND (job.run_at <= now()))";
    let scan = json!({"relation": "public.job", "alias": "job", "filter": filter, "rows_planned": 90_000.0, "table_rows": 180_000.0});
    crate::fire::plan::node(&mut scene, 4, 3, "Seq Scan", scan);
    let table = json!({"node": "n1", "database": "db", "relation": "public.job"});
    scene.set(
        "table",
        table,
        json!({"bytes": 20_000_000, "live_rows": 180_000, "seq_scans": 2_400, "seq_rows": 432_000_000}),
    );
    let found = scene.explain();
    let claim = of(&found, "PLAN-01");
    assert!(
        claim.claim.ends_with("no index has queue and state and then the order priority DESC, id"),
        "{}",
        claim.claim
    );
    assert_eq!(
        commands(claim),
        "CREATE INDEX CONCURRENTLY ON public.job (\"queue\", \"state\", \"priority\" DESC, \"id\");"
    );
}

#[test]
fn a_standby_that_streams_and_is_not_watched_is_no_fault() {
    use record::finding::Severity;
    let of = |streams: bool, why: &str| {
        let mut scene = Scene::healthy();
        let keys = json!({"node": "away", "what": "server"});
        scene.set("missing", keys, json!({"why": why, "lost": "everything"}));
        if streams {
            let keys = json!({"node": "n1", "standby": "away"});
            scene.set("replication", keys, json!({"state": "streaming", "sync_state": "async", "pid": 7}));
        }
        let found = scene.explain().findings.into_iter().filter(|finding| finding.rule == "OBS-01");
        found.map(|finding| finding.severity).collect::<Vec<_>>()
    };
    assert_eq!(of(true, "it does not say at which port"), [Severity::Low]);
    assert_eq!(of(false, "the foreign server away is not used as a node"), [Severity::Low]);
    assert_eq!(of(false, "connection refused"), [Severity::High]);
}

/// Sessions that wait for transactions which are idle; what is known of the row.
fn behind_idle_transactions(row: serde_json::Value) -> Findings {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 9}));
    for root in 0..6u64 {
        let keys = json!({"node": "n1", "pid": 20 + root, "root": 10 + root});
        scene.set(
            "block",
            keys.clone(),
            json!({"blocked_by": 10 + root, "root_state": "idle in transaction", "depth": 1, "wait_s": 0.1,
            "lock_type": "transactionid", "relation": ""}),
        );
        scene.set("block", keys.clone(), row.clone());
        scene.during("block", keys, root * 30 + 1..=root * 30 + 1);
        let session = json!({"node": "n1", "pid": 10 + root});
        scene.set("session", session, json!({"application": "kiosk", "state": "idle in transaction", "query": format!("SELECT {root}")}));
    }
    scene.explain()
}

#[test]
fn waits_for_rows_name_the_table() {
    for (row, table) in [
        // As the server has it: an INSERT waits for a row that it refers to.
        (json!({"row_of": "public.seat", "query": "insert into booking (seat) values (7)"}), "public.seat"),
        (json!({"query": "update seat set taken = true where id = 7"}), "seat"),
        (json!({"query": "select * from box.seat where id = 7 for update"}), "box.seat"),
    ] {
        let findings = behind_idle_transactions(row);
        let finding = of(&findings, "DIST-06");
        assert!(finding.claim.contains(&format!("the same rows or pages of {table}")), "{}", finding.claim);
        let evidence = finding.evidence.join("; ");
        assert!(evidence.contains("the last statement of the idle holders of kiosk: SELECT"), "{evidence}");
    }
    // A join may lock rows of either table.
    let findings =
        behind_idle_transactions(json!({"query": "select * from seat join hall using (hall) for update"}));
    let claim = &of(&findings, "DIST-06").claim;
    assert!(!claim.contains("pages of"), "{claim}");
}

/// Connections of a program: all of them, those that are idle, those in a transaction, and for how long (seconds).
fn holds(scene: &mut Scene, application: &str, (sessions, idle, open): (u64, u64, u64), idle_s: f64) {
    let keys = json!({"node": "n1", "application": application, "user": "app", "database": "db", "client": "10.0.0.9"});
    let fields = json!({"sessions": sessions, "idle": idle, "idle_in_transaction": open, "idle_s": idle_s, "idle_s_max": idle_s * 2.0});
    scene.set("connected", keys, fields);
}

#[test]
fn refused_connections_name_who_holds_the_others() {
    let mut scene = fired("SES-04");
    holds(&mut scene, "web", (10, 7, 0), 0.04);
    holds(&mut scene, "report-svc", (80, 80, 0), 300.0);
    let found = scene.explain();
    let finding = of(&found, "SES-04");
    let words = "report-svc (role app, database db, from 10.0.0.9) holds 80 connections (80 % of max_connections), 80 of them idle, half of these \
        for more than 5 min";
    assert!(finding.claim.contains(words), "{}", finding.claim);
    assert!(
        finding.evidence.iter().any(|sentence| sentence.starts_with("web (role app")),
        "{:?}",
        finding.evidence
    );
    let typed = commands(finding);
    assert!(
        typed.contains("pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'report-svc' AND usename = 'app'"),
        "{typed}"
    );
    // A pool whose connections are used in turn leaks nothing.
    let mut scene = fired("SES-04");
    holds(&mut scene, "web", (90, 70, 0), 0.04);
    let found = scene.explain();
    let finding = of(&found, "SES-04");
    assert!(
        finding.claim.contains("web (role app") && finding.claim.contains("70 of them idle at a time"),
        "{}",
        finding.claim
    );
    assert!(
        finding.remedy.text.contains("put a pool") && !commands(finding).contains("pg_terminate"),
        "{:?}",
        finding.remedy
    );
    // Transactions that are never ended.
    let mut scene = fired("SES-04");
    holds(&mut scene, "batch", (90, 2, 85), 0.04);
    let found = scene.explain();
    let finding = of(&found, "SES-04");
    assert!(finding.claim.contains("85 of them idle in a transaction"), "{}", finding.claim);
    assert!(commands(finding).contains("idle_in_transaction_session_timeout"), "{}", commands(finding));
}

/// What SES-13 claims of a pool.
fn of_pool(mode: &str, times: (u64, u64, u64)) -> (String, String) {
    let mut scene = Scene::healthy();
    crate::fire::outside::pool(&mut scene, mode, 37, times);
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    (finding.claim.clone(), commands(finding))
}

#[test]
fn a_pool_that_is_too_small_has_the_remedy_that_fits() {
    for times in [(3_000_000, 20_000, 37_000_000), (40_000_000, 37_200_000, 37_000_000)] {
        let (claim, typed) = of_pool("transaction", times);
        assert!(claim.contains("in a transaction without a query for 9"), "{claim}");
        assert!(
            claim.contains(
                "37 clients of role app wait in pgbouncer for one of the 3 connections to database cart"
            ),
            "{claim}"
        );
        assert!(typed.contains("SET default_pool_size = 40"), "{typed}");
    }
    let (claim, typed) = of_pool("session", (90_000, 80_000, 37_000_000));
    assert!(claim.contains("pool_mode = session") && !typed.contains("default_pool_size"), "{claim} {typed}");
    let (claim, _) = of_pool("transaction", (2_900_000, 2_800_000, 37_000_000));
    assert!(claim.contains("these work all the time"), "{claim}");
}

/// What SES-13 claims of a pool whose clients wait from begin to end, and of the server behind it.
fn of_lasting(mode: &str, times: (u64, u64, u64), change: crate::fire::Change) -> (String, String) {
    let mut scene = Scene::healthy();
    crate::fire::outside::lasting(&mut scene, mode, times);
    change(&mut scene);
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    assert_eq!(finding.severity, Severity::High);
    (finding.claim.clone(), format!("{}\n{}", finding.remedy.text, commands(finding)))
}

#[test]
fn clients_that_a_pooler_has_not_served_yet_wait_as_well() {
    let (claim, typed) = of_lasting("session", (90_000, 80_000, 0), |_| ());
    assert!(claim.contains("until they disconnect (pool_mode = session), and mostly not used"), "{claim}");
    assert!(!typed.contains("default_pool_size"), "{typed}");
    // They work for all of the time, so clients could only take turns.
    let (claim, typed) = of_lasting("session", (2_900_000, 2_900_000, 0), |_| ());
    assert!(claim.ends_with("until they disconnect (pool_mode = session)"), "{claim}");
    assert!(
        typed.contains("SET default_pool_size = 12") && typed.contains("pool_mode = transaction"),
        "{typed}"
    );
    // A transaction is counted at its end: the server sees that those of the pool are open without a query.
    let (claim, _) = of_lasting("transaction", (0, 0, 0), |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"sessions_idle_in_transaction": 3}));
    });
    assert!(claim.contains("in a transaction without a query for 100 %"), "{claim}");
}

#[test]
fn a_server_whose_sessions_sleep_has_room_for_more_of_them() {
    for (kind, event) in [("Timeout", "PgSleep"), ("IPC", "SyncRep"), ("Extension", "Extension")] {
        let mut scene = Scene::healthy();
        crate::fire::outside::pool(&mut scene, "transaction", 9, (2_900_000, 2_900_000, 8_000_000));
        scene.drop_things("wait", "\"n1\"");
        scene.set("wait", wait("n1", kind, event), json!({"sessions": 3}));
        let found = scene.explain();
        let claim = &of(&found, "SES-13").claim;
        assert!(claim.contains("the server has room for more of them"), "{event}: {claim}");
    }
}

#[test]
fn a_larger_pool_needs_an_admin_of_the_pooler_and_the_place_of_its_size() {
    let larger = |is_own: bool| {
        let keys =
            json!({"node": "n1", "pooler": crate::fire::outside::POOLER, "database": "cart", "user": "app"});
        let mut scene = Scene::healthy();
        crate::fire::outside::pool(&mut scene, "transaction", 37, (3_000_000, 20_000, 37_000_000));
        scene.set("pool", keys, json!({"size_of_database": is_own}));
        let found = scene.explain();
        let finding = of(&found, "SES-13");
        format!("{}\n{}", finding.remedy.text, commands(finding))
    };
    let (default, own) = (larger(false), larger(true));
    assert!(default.contains("SET default_pool_size = 40") && default.contains("admin_users"), "{default}");
    assert!(
        own.contains("pool_size = 40 in the line of database cart") && own.contains("-c 'RELOAD'"),
        "{own}"
    );
    assert!(!own.contains("default_pool_size") && own.contains("admin_users"), "{own}");
}

#[test]
fn a_program_on_the_disk_is_named() {
    let mut scene = fired("IO-10");
    assert!(of(&scene.explain(), "IO-10").missing.iter().any(|line| line.contains("name of the program")));
    let program = json!({"host": "h1", "program": "restic"});
    scene.set(
        "program",
        program.clone(),
        json!({"processes": 2, "read_bytes": 0, "write_bytes": 36_000_000}),
    );
    assert!(of(&scene.explain(), "IO-10").claim.contains("restic's"));
    // One that moves little is not the one.
    scene.set("program", program, json!({"write_bytes": 2_000_000}));
    assert!(!of(&scene.explain(), "IO-10").claim.contains("restic"));
    // A shell has in its counters what the commands of a script have moved.
    let shell = json!({"host": "h1", "program": "bash"});
    scene.set("program", shell, json!({"processes": 2, "read_bytes": 0, "write_bytes": 36_000_000}));
    let found = scene.explain();
    let found = of(&found, "IO-10");
    assert!(found.claim.contains("those of commands that bash started"), "{}", found.claim);
    assert!(found.missing.iter().any(|line| line.contains("its shell's")), "{:?}", found.missing);
}
