//! Reasons that lie behind what the counters show first: the order of an index, large values, values that the planner does not know, functions, the limit of a
//! pooler, and the log.

use crate::advice::{commands, fired, of};
use crate::fire::outside::{POOLER, pool};
use crate::fire::plan::{node, statement};
use crate::fire::sampled::{SERVER, samples};
use crate::scene::{Scene, vacuum_wait, wait};
use record::Findings;
use record::finding::Severity;
use serde_json::{Value, json};

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

fn index(scene: &mut Scene, name: &str, columns: &str) {
    let keys = json!({"node": "n1", "relation": "public.reading", "index": name});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": columns, "method": "btree", "valid": true, "partial": false}),
    );
}

fn graph(scene: &mut Scene) {
    let text = "select avg(value) from reading where device = $1 and at >= $2 and at < $3";
    statement(
        scene,
        text,
        json!({"calls": 1_000, "rows": 1_000, "shared_hit": 1_150_000}),
        json!({"cost_total": 104.0}),
    );
    node(scene, 1, 0, "Aggregate", json!({"cost_total": 104.0}));
    node(
        scene,
        2,
        1,
        "Index Scan",
        json!({"relation": "public.reading", "alias": "reading", "index": "reading_at_device", "cost_total": 103.0, "rows_planned": 2.0,
            "condition": "((reading.at >= $2) AND (reading.at < $3) AND (reading.device = $1))", "table_rows": 1_200_000.0,
            "column_types": "at timestamp with time zone; device integer"}),
    );
    index(scene, "reading_at_device", "at; device");
}

#[test]
fn an_index_that_begins_with_a_range_is_read_for_all_of_it() {
    let mut scene = Scene::healthy();
    graph(&mut scene);
    let found = scene.explain();
    let finding = of(&found, "PLAN-83");
    assert!(finding.claim.contains("by a range of at, its first column, and by device"), "{}", finding.claim);
    assert!(commands(finding).contains("(\"device\", \"at\")"), "{}", commands(finding));
    assert!(is_silent(&found, "PLAN-24"), "the plan is cheap only by its generic range");
    index(&mut scene, "reading_device", "device; at");
    assert!(is_silent(&scene.explain(), "PLAN-83"));
}

fn list(scene: &mut Scene, filter: &str) {
    let text = "select id, title, body from doc where owner = $1 order by made desc limit $2";
    statement(scene, text, json!({"calls": 1_000, "rows": 50_000, "shared_hit": 430_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"rows_planned": 50.0}));
    node(
        scene,
        2,
        1,
        "Index Scan",
        json!({"relation": "public.doc", "alias": "doc", "index": "doc_owner_made", "condition": "(doc.owner = $1)", "filter": filter,
            "rows_planned": 50.0, "table_rows": 3_000.0}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.doc"});
    scene.set("table", keys, json!({"bytes": 240_000_000, "live_rows": 3_000, "dead_rows": 0, "index_scans": 1_000, "seq_scans": 0}));
}

#[test]
fn columns_that_are_named_may_be_large_as_well() {
    let mut scene = Scene::healthy();
    list(&mut scene, "");
    let found = scene.explain();
    let claim = &of(&found, "PLAN-34").claim;
    assert!(claim.contains("whose columns include a large one") && claim.contains("public.doc"), "{claim}");
    let mut scene = Scene::healthy();
    list(&mut scene, "(doc.state = $3)");
    assert!(is_silent(&scene.explain(), "PLAN-34"), "rows that the filter throws away are read, too");
}

#[test]
fn searches_that_no_loop_of_the_plan_makes_show_other_values() {
    let joined = |calls: u64| {
        let mut scene = Scene::healthy();
        let text = "select h.agent, count(*) from seats s join holds h on h.seat = s.id where s.day = $1 and h.day = $2 group by 1";
        statement(
            &mut scene,
            text,
            json!({"calls": 60, "total_ms": 45_000.0, "rows": 4_200, "shared_hit": 5_400_000}),
            json!({"cost_total": 290.0}),
        );
        node(&mut scene, 1, 0, "Hash Join", json!({"cost_total": 287.0}));
        for (number, table) in [(2, "seats"), (3, "holds")] {
            let condition = format!("({table}.day = $1)");
            let fields = json!({"relation": format!("public.{table}"), "alias": table, "index": format!("{table}_day"), "condition": condition,
                "rows_planned": 26.0, "cost_total": 120.0, "table_rows": 150_000.0});
            node(&mut scene, number, 1, "Index Scan", fields);
            let keys = json!({"node": "n1", "database": "db", "relation": format!("public.{table}")});
            let scans = if table == "holds" { calls } else { 60 };
            scene.set("table", keys, json!({"bytes": 6_000_000, "live_rows": 150_000, "dead_rows": 0, "index_scans": scans, "seq_scans": 0}));
        }
        scene.explain()
    };
    let found = joined(60 * 300_000);
    let finding = of(&found, "PLAN-24");
    assert!(finding.claim.contains("searches the indexes of public.holds"), "{}", finding.claim);
    assert!(commands(finding).contains("ANALYZE public.holds;"));
    let usual = joined(60);
    assert!(usual.findings.iter().all(|one| !one.claim.contains("searches the indexes")));
}

#[test]
fn a_statement_that_computes_without_reading_is_in_its_functions() {
    let mut scene = Scene::healthy();
    let text = "select id from accounts where login = $1 and pw = crypt($2, pw)";
    statement(
        &mut scene,
        text,
        json!({"calls": 1_000, "total_ms": 45_000.0, "rows": 1_000, "shared_hit": 3_000}),
        json!({}),
    );
    scene.drop_source("plan");
    scene.drop_source("plan_node");
    let mut on_cpu = wait("n1", "CPU", "CPU");
    on_cpu["query_id"] = Value::from("9");
    scene.set("wait", on_cpu, json!({"sessions": 2}));
    let found = scene.explain();
    let finding = of(&found, "PLAN-45");
    assert!(finding.claim.contains("the functions that it calls: crypt()"), "{}", finding.claim);
    assert_eq!(finding.severity, Severity::Low, "no session waits for a CPU");
}

#[test]
fn a_range_proposes_no_index_beside_an_operator() {
    let scanned = |filter: &str| {
        let mut scene = Scene::healthy();
        statement(&mut scene, "select id from product where path <@ $1 and stock > $2", json!({}), json!({}));
        node(
            &mut scene,
            1,
            0,
            "Seq Scan",
            json!({"relation": "public.product", "alias": "product", "filter": filter, "rows_planned": 550.0, "table_rows": 400_000.0,
                "column_types": "stock integer; path public.ltree"}),
        );
        scene.explain()
    };
    let found = scanned("((product.stock > $2) AND (product.path <@ $1))");
    let all: Vec<&str> = found.findings.iter().map(|one| one.claim.as_str()).collect();
    assert!(!all.iter().any(|claim| claim.contains("begins with stock")), "{all:?}");
    assert!(all.iter().any(|claim| claim.contains("<@")), "{all:?}");
    assert!(of(&scanned("(product.stock > $2)"), "PLAN-10").claim.contains("begins with stock"));
}

#[test]
fn the_connections_of_a_database_limit_its_pool() {
    let mut scene = Scene::healthy();
    pool(&mut scene, "transaction", 22, (600_000, 550_000, 540_000));
    let keys = json!({"node": "n1", "pooler": POOLER, "database": "cart", "user": "app"});
    scene.set("pool", keys, json!({"size": 50, "size_of_database": false, "database_max": 3}));
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    assert!(
        finding.claim.contains("one of the 3 connections that max_db_connections allows"),
        "{}",
        finding.claim
    );
    let typed = commands(finding);
    assert!(typed.contains("SET max_db_connections = ") && !typed.contains("default_pool_size"), "{typed}");
}

#[test]
fn a_database_that_is_paused_in_the_pooler_is_that_and_no_small_pool() {
    let mut scene = Scene::healthy();
    pool(&mut scene, "transaction", 22, (0, 0, 0));
    let keys = json!({"node": "n1", "pooler": POOLER, "database": "cart", "user": "app"});
    scene.set("pool", keys.clone(), json!({"paused": true, "max_wait_us": 9_000_000}));
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    assert!(
        finding.claim.contains("database cart is paused in pgbouncer (PAUSE): 22 clients in its queue"),
        "{}",
        finding.claim
    );
    assert_eq!(found.findings.iter().filter(|finding| finding.rule == "SES-13").count(), 1);
    assert!(commands(finding).contains("RESUME"), "{}", commands(finding));
    scene.set("pool", keys.clone(), json!({"paused": false}));
    assert!(scene.explain().findings.iter().all(|finding| !finding.claim.contains("is paused")));
    // Without a connection the pool is not too small.
    scene.set(
        "pool",
        keys.clone(),
        json!({"servers_active": 0, "servers_free": 0, "transactions": 0, "queries": 0}),
    );
    let found = scene.explain();
    assert!(of(&found, "SES-13").claim.contains("and none is open"), "{}", of(&found, "SES-13").claim);
    scene.set("pool", keys, json!({"transactions": 300, "queries": 300, "transaction_us": 300_000}));
    assert!(scene.explain().findings.iter().all(|finding| !finding.claim.contains("none is open")));
}

/// A healthy server whose log has an error a hundred times, with these fields.
fn refused(message: &str, more: Value) -> Scene {
    let mut scene = Scene::healthy();
    let mut fields = json!({"node": "n1", "severity": "ERROR", "repeated": 400});
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    scene.event(5, record::event::SERVER_LOG, message, fields);
    scene
}

#[test]
fn an_error_is_named_with_its_reason_and_with_who_causes_it() {
    let claim = |scene: &Scene| of(&scene.explain(), "TXN-13").claim.clone();
    let message = "password authentication failed for user \"hr\"";
    let fatal =
        |detail: &str| refused(message, json!({"severity": "FATAL", "sqlstate": "28P01", "detail": detail}));
    assert!(claim(&fatal("User \"hr\" has an expired password.")).contains("VALID UNTIL"));
    assert!(claim(&fatal("Password does not match for user \"hr\".")).contains("wrong password"));

    let mut scene = refused("canceling statement due to user request", json!({"sqlstate": "57014"}));
    assert!(claim(&scene).contains("cancelled by request"), "{}", claim(&scene));
    let text = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE now() - query_start > $1";
    let fields = json!({"node": "n1", "query_id": "42", "text": text, "user": "ops"});
    scene.event(6, record::event::QUERY, "a statement seen for the first time", fields);
    assert!(claim(&scene).contains("pg_cancel_backend(pid) FROM") && claim(&scene).contains("of role ops"));

    let mut scene = Scene::healthy();
    let fields = json!({"node": "n1", "severity": "ERROR", "sqlstate": "XX001"});
    scene.event(
        5,
        record::event::SERVER_LOG,
        "invalid page in block 400 of relation \"base/5/16489\"",
        fields,
    );
    assert!(claim(&scene).contains("are damaged"), "one of them is enough");

    let no_identity =
        "cannot update table \"cart\" because it does not have a replica identity and publishes updates";
    assert!(
        claim(&refused(no_identity, json!({"sqlstate": "55000"}))).contains("a publication has their table")
    );
    let other =
        refused("currval of sequence \"s\" is not yet defined in this session", json!({"sqlstate": "55000"}));
    assert!(is_silent(&other.explain(), "TXN-13"), "it has a rule of its own, or is no harm");
}

#[test]
fn changes_that_find_no_row_are_scans_as_well() {
    let mut scene = fired("REP-16");
    let keys = json!({"node": "n1", "database": "db", "relation": "public.stock"});
    scene.set("table", keys, json!({"rows_updated": 0, "rows_deleted": 0}));
    assert!(is_silent(&scene.explain(), "REP-16"), "anyone could scan it");
    let mut worker = wait("n1", "CPU", "CPU");
    worker["backend"] = Value::from("logical replication worker");
    worker["state"] = Value::from("");
    scene.set("wait", worker, json!({"sessions": 1}));
    let found = scene.explain();
    assert!(of(&found, "REP-16").claim.contains("and finds none of them"), "{}", of(&found, "REP-16").claim);
}

#[test]
fn thousands_of_lines_of_log_a_second_are_most_of_the_work() {
    let mut scene = fired("LOG-01");
    let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.set("statement", keys, json!({"calls": 50_000}));
    assert_eq!(of(&scene.explain(), "LOG-01").severity, Severity::High);
}

#[test]
fn a_window_over_all_rows_needs_them() {
    let mut scene = Scene::healthy();
    let text = "select * from (select id, sum(amount) over (partition by account order by at) s, row_number() over (partition by kind order by at desc) n \
                from entry) x where n = $1";
    crate::fire::form::select(&mut scene, text, 5_000, 10);
    let found = scene.explain();
    assert_eq!(of(&found, "PLAN-31").severity, Severity::Low);
}

#[test]
fn a_kill_that_the_kernel_did_not_count_was_sent() {
    let killed = |oom_kills: Value| {
        let mut scene = Scene::healthy();
        let message = "server process (PID 4711) was terminated by signal 9: Killed";
        scene.event(20, record::event::SERVER_LOG, message, json!({"node": "n1", "severity": "LOG"}));
        scene.set("host", json!({"host": "h1"}), json!({"oom_kills": oom_kills}));
        let found = scene.explain();
        let finding = of(&found, "MEM-02");
        (finding.claim.clone(), commands(finding))
    };
    let (claim, typed) = killed(json!(0));
    assert!(
        claim.contains("by signal 9 (kill -9), once") && typed.contains("pg_terminate_backend"),
        "{claim}"
    );
    let (claim, typed) = killed(Value::Null);
    assert!(claim.contains("was killed by signal 9") && typed.contains("out of memory"), "{claim}");
}

/// A vacuum of a table with many dead rows, at 100 pages a second by its cost limit.
fn paced(scene: &mut Scene, dead_rows: u64) {
    let node = json!({"node": "n1"});
    for (name, value) in [("autovacuum_vacuum_cost_delay", "100ms"), ("autovacuum_vacuum_cost_limit", "10")] {
        scene.fact(node.clone(), "setting", name, value);
    }
    let keys = json!({"node": "n1", "pid": 900, "command": "vacuum", "relation": "public.cart"});
    let fields = json!({"phase": "scanning heap", "total": 30_000, "unit": "blocks", "wraparound": false, "auto": true, "index_passes": 0});
    scene.set("progress", keys.clone(), fields);
    scene.vary("progress", keys, "done", |second| second as f64 * 100.0);
    scene.set("wait", vacuum_wait("n1", "Timeout", "VacuumDelay"), json!({"sessions": 1}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.cart"});
    scene.set("table", keys, json!({"bytes": 245_760_000, "live_rows": 500_000, "dead_rows": dead_rows, "index_bytes": 24_576_000}));
}

/// Vacuums in vain, with a holder of the horizon that is too young to explain them, and without any.
#[test]
fn a_young_holder_of_the_horizon_is_named_where_nothing_else_keeps_dead_rows() {
    let lacking = |is_there: bool| {
        let mut scene = Scene::healthy();
        scene.drop_source("horizon");
        let table = json!({"node": "n1", "database": "db", "relation": "public.usertable"});
        scene.set("table", table, json!({"autovacuums": 20, "live_rows": 100_000, "dead_rows": 500_000}));
        if is_there {
            let keys = json!({"node": "n1", "kind": "session", "name": "billing", "pid": 77});
            scene.set("horizon", keys, json!({"age_xids": 300, "age_s": 4.0}));
        }
        of(&scene.explain(), "VAC-04").missing.join(" ")
    };
    assert!(
        lacking(true).contains("session billing (pid 77) was seen, 4.0 s old at most"),
        "{}",
        lacking(true)
    );
    assert!(lacking(false).contains("nothing that holds back the horizon was seen"), "{}", lacking(false));
}

/// The scan is a small part of what it does: each page with a dead row is changed, which costs twenty times as much as to read it.
#[test]
fn a_vacuum_names_its_table_and_the_time_of_all_that_it_has_to_do() {
    let mut scene = Scene::healthy();
    paced(&mut scene, 760_000);
    let found = scene.explain();
    let finding = of(&found, "VAC-01");
    assert_eq!(finding.severity, Severity::Medium, "{finding:?}");
    // 30,000 pages at 21 and 3,000 of the indexes at 1, with a budget of 100 a second, behind the scan.
    assert!(finding.claim.contains("the vacuum of public.cart ends in about 1 h 4"), "{}", finding.claim);

    let mut scene = Scene::healthy();
    paced(&mut scene, 0);
    let found = scene.explain();
    let finding = of(&found, "VAC-01");
    assert_eq!(finding.severity, Severity::Low, "{finding:?}");
    assert!(finding.claim.contains("of public.cart ends in 2 min"), "{}", finding.claim);

    // The settings of the table come before those of the server.
    let keys = json!({"node": "n1", "database": "db", "relation": "public.cart"});
    scene.set(
        "table",
        keys,
        json!({"autovacuum_options": "autovacuum_enabled=on, autovacuum_vacuum_cost_delay=100"}),
    );
    let found = scene.explain();
    let finding = of(&found, "VAC-01");
    assert_eq!(commands(finding), "ALTER TABLE public.cart RESET (autovacuum_vacuum_cost_delay);");

    // What VACUUM by hand may do is no setting of autovacuum, unless that says so.
    for (own, shown) in
        [(None, "autovacuum_vacuum_cost_delay is 2ms"), (Some("-1"), "autovacuum_vacuum_cost_delay is 10ms")]
    {
        let mut scene = Scene::healthy();
        paced(&mut scene, 0);
        scene.drop_things("fact", "autovacuum_vacuum_cost_delay");
        scene.fact(json!({"node": "n1"}), "setting", "vacuum_cost_delay", "10ms");
        if let Some(value) = own {
            scene.fact(json!({"node": "n1"}), "setting", "autovacuum_vacuum_cost_delay", value);
        }
        let found = scene.explain();
        assert!(
            of(&found, "VAC-01").evidence.iter().any(|line| line.starts_with(shown)),
            "{shown}: {found:?}"
        );
    }
}

/// What keeps plans from being recorded is the first thing to mend: rules about them are silent for another reason than that they found nothing.
#[test]
fn a_statement_without_a_recorded_plan_makes_blind_and_says_why() {
    let of = |why: &str| {
        let mut scene = Scene::healthy();
        statement(&mut scene, "select count(*) from ledger where doc = $1", json!({"calls": 100}), json!({}));
        scene.drop_source("plan");
        scene.set(
            "missing",
            json!({"node": "n1", "what": "plans"}),
            json!({"why": why, "lost": "how they are executed"}),
        );
        scene.explain().blind
    };
    let blind =
        of("statement 5: it calls a function; 2 statements (7, 9): table ledger is in no schema; REVOKE it");
    assert_eq!(blind.len(), 1, "{blind:?}");
    assert!(blind[0].starts_with("n1: the plan of the statement with "), "{blind:?}");
    assert!(blind[0].ends_with("cannot tell for it: table ledger is in no schema; REVOKE it"), "{blind:?}");
    assert_eq!(of("statement 5: it calls a function"), [""; 0]);
    assert_eq!(of("3 statements: only SELECT, INSERT, UPDATE, DELETE and MERGE are planned again"), [""; 0]);
}

/// Without a plan the catalog still shows an index that cannot be used.
#[test]
fn an_invalid_index_is_the_reason_of_a_scan_also_without_a_plan() {
    let of = |is_built: bool| {
        let mut scene = Scene::healthy();
        statement(&mut scene, "select id from orders where tracking = $1", json!({"calls": 100}), json!({}));
        scene.drop_source("plan");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
        let scans = json!({"seq_scans": 6_000, "seq_rows": 1_200_000_000u64, "live_rows": 200_000, "indexes": 2,
            "index_columns": "orders_pkey(id); orders_tracking(tracking)", "invalid_indexes": "orders_tracking"});
        scene.set("table", keys, scans);
        if is_built {
            let keys =
                json!({"node": "n1", "pid": 5, "command": "create_index", "relation": "public.orders"});
            scene.set(
                "progress",
                keys,
                json!({"phase": "building index", "done": 1, "total": 2, "unit": "blocks"}),
            );
        }
        of(&scene.explain(), "PLAN-01").clone()
    };
    let broken = of(false);
    assert!(
        broken.claim.contains("index orders_tracking on tracking is not used, because it is invalid"),
        "{broken:?}"
    );
    assert!(
        commands(&broken).starts_with("REINDEX INDEX CONCURRENTLY public.\"orders_tracking\";"),
        "{broken:?}"
    );
    // It will be valid when it is done.
    assert!(!commands(&of(true)).contains("REINDEX"), "{:?}", of(true));
}

/// Customers are deleted, and a table that refers to them is scanned for each, as counters and stacks show.
fn cascade(scene: &mut Scene, delete: &str) {
    statement(scene, delete, json!({}), json!({}));
    let table = |relation: &str| json!({"node": "n1", "database": "db", "relation": relation});
    let deleted = json!({"rows_deleted": 600, "unindexed_references": 1, "live_rows": 100_000});
    scene.set("table", table("public.customer"), deleted);
    scene.set("table", table("public.activity"), json!({"seq_scans": 600, "seq_rows": 600_000_000}));
    let checks = "ExecScan standard_ExecutorRun ri_PerformCheck RI_FKey_cascade_del AfterTriggerEndQuery";
    scene.stacks(&samples(true, &[(90, checks, SERVER), (10, "heap_getnextslot ExecScan", SERVER)]));
}

#[test]
fn the_table_whose_key_has_no_index_stands_before_what_the_stacks_show_of_it() {
    let mut scene = Scene::healthy();
    cascade(&mut scene, "delete from customer where id = $1");
    let found = scene.explain();
    let (cause, shown) = (of(&found, "PLAN-07"), of(&found, "PLAN-96"));
    assert_eq!(cause.severity, Severity::High, "{}", cause.claim);
    assert!(cause.claim.contains("the statements that delete them take"), "{}", cause.claim);
    assert_eq!(shown.symptom_of.as_deref(), Some(&*cause.id), "{}", shown.claim);
    // Other statements take the time: the scans cost what they cost, and the work of the stacks is not theirs.
    let mut scene = Scene::healthy();
    cascade(&mut scene, "select * from customer where mail = $1");
    let found = scene.explain();
    assert_eq!(of(&found, "PLAN-07").severity, Severity::Medium);
    assert!(!of(&found, "PLAN-07").claim.contains("session time"));
}

/// A pool that is too small looks like few sessions that are always at work, and the server knows no more.
#[test]
fn a_pooler_that_cannot_be_read_makes_blind_where_all_sessions_are_at_work() {
    let of = |all: u64| {
        let mut scene = Scene::healthy();
        scene.set("server", json!({"node": "n1"}), json!({"sessions_total": all, "sessions_active": 6}));
        let why =
            "the pooler at /run/.s.PGSQL.6432: its console does not admit our role; add it to stats_users";
        scene.set(
            "missing",
            json!({"node": "n1", "what": "pools"}),
            json!({"why": why, "lost": "how many clients wait"}),
        );
        scene.explain().blind
    };
    let blind = of(6);
    assert_eq!(blind.len(), 1, "{blind:?}");
    assert!(blind[0].starts_with("n1: all 6 sessions are always at work, and whether more"), "{blind:?}");
    assert!(blind[0].ends_with("add it to stats_users"), "{blind:?}");
    assert_eq!(of(20), [""; 0]);
}

/// The sockets of the pooler's clients are counted where its console is not read.
#[test]
fn a_pooler_that_cannot_be_read_is_judged_by_its_sockets() {
    let found = |clients: u64, active: u64| {
        let mut scene = Scene::healthy();
        scene.set("server", json!({"node": "n1"}), json!({"sessions_total": 6, "sessions_active": active}));
        let gap = json!({"why": "its console does not admit our role", "lost": "how many clients wait"});
        scene.set("missing", json!({"node": "n1", "what": "pools"}), gap);
        let pooler = json!({"node": "n1", "pooler": "socket /run/.s.PGSQL.6433"});
        scene.set("pooler", pooler, json!({"clients": clients, "size": 6, "refused": 0}));
        scene.explain()
    };
    let of_all = found(40, 6);
    let finding = of(&of_all, "SES-13");
    assert_eq!(finding.severity, Severity::Medium);
    for words in
        ["40 clients are connected to pgbouncer at socket /run", "of the 6 sessions", "default_pool_size = 6"]
    {
        assert!(finding.claim.contains(words), "{}", finding.claim);
    }
    assert_eq!(of_all.blind, [""; 0]);
    assert!(is_silent(&found(8, 6), "SES-13"));
    assert!(is_silent(&found(40, 2), "SES-13"));
}

/// Two partitions of a table, or two tables, are read for a condition on what is computed from the column of their indexes.
fn partitions(scene: &mut Scene, whole: &str) {
    let text = "select count(*) from m where ts::date = $1";
    statement(scene, text, json!({"calls": 100, "rows": 100, "shared_hit": 700_000}), json!({}));
    node(scene, 1, 0, "Append", json!({"rows_planned": 10.0, "cost_total": 90_000.0}));
    for (number, name) in [(2, "m_1"), (3, "m_2")] {
        let relation = format!("public.{name}");
        let scan = json!({"relation": relation, "alias": name, "filter": format!("(({name}.ts)::date = $1)"), "rows_planned": 5.0,
            "table_rows": 500_000.0, "cost_total": 45_000.0, "column_types": "ts timestamp with time zone"});
        node(scene, number, 1, "Seq Scan", scan);
        let keys = json!({"node": "n1", "relation": relation, "index": format!("{name}_ts")});
        scene.set(
            "plan_index",
            keys,
            json!({"columns": "ts", "method": "btree", "valid": true, "partial": false}),
        );
        let keys = json!({"node": "n1", "database": "db", "relation": relation});
        scene.set(
            "table",
            keys,
            json!({"live_rows": 500_000, "seq_scans": 100, "seq_rows": 50_000_000, "partition_of": whole}),
        );
    }
}

#[test]
fn an_index_that_no_partition_can_use_is_reported_once() {
    let count = |findings: &Findings| findings.findings.iter().filter(|one| one.rule == "PLAN-11").count();
    let mut scene = Scene::healthy();
    partitions(&mut scene, "public.m");
    let found = scene.explain();
    assert_eq!(count(&found), 1, "{:#?}", found.findings);
    let claim = &of(&found, "PLAN-11").claim;
    assert!(
        claim.contains("scans public.m_1, as other partitions of public.m, although it has an"),
        "{claim}"
    );
    let mut scene = Scene::healthy();
    partitions(&mut scene, "");
    assert_eq!(count(&scene.explain()), 2);
}
