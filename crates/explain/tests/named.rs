//! Claims name what is to be changed: the field of a document, the view and its WITH, the column with the large values.

use crate::advice::{commands, fired, of};
use crate::fire::form::select;
use crate::fire::plan::{node, scan};
use crate::scene::Scene;
use record::event;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A search for a field of a document, whose name the text of a statement does not have.
fn of_document(index: Option<&str>) -> Scene {
    let mut scene = Scene::healthy();
    scan(&mut scene, "((orders.payload ->> $1) = $2)", "");
    scene.event(2, event::QUERY, "", json!({"query_id": "9", "document_keys": "$1 merchant_ref; $3 other"}));
    if let Some(class) = index {
        let keys =
            json!({"node": "n1", "database": "db", "relation": "public.orders", "index": "orders_payload"});
        scene.set(
            "plan_index",
            keys,
            json!({"columns": "payload", "method": "gin", "operator_classes": class, "valid": true, "partial": false,
                "definition": format!("CREATE INDEX orders_payload ON public.orders USING gin (payload {class})")}),
        );
    }
    scene
}

#[test]
fn an_index_on_a_field_of_a_document_has_its_name() {
    let found = of_document(None).explain();
    let typed = commands(of(&found, "PLAN-50"));
    let index =
        typed.lines().find(|line| line.starts_with("CREATE INDEX")).unwrap_or_else(|| panic!("{typed}"));
    assert!(index.contains("public.orders") && index.contains("->> 'merchant_ref'"), "{index}");
    assert!(!index.contains('$'), "{index}");
    let text = &of(&found, "PLAN-50").remedy.text;
    assert!(!text.contains("serves only"), "{text}");
}

#[test]
fn what_a_gin_index_on_the_column_serves_is_named() {
    let text = |class: &str| of(&of_document(Some(class)).explain(), "PLAN-50").remedy.text.clone();
    assert!(text("jsonb_path_ops").contains("orders_payload (GIN) on payload serves only @>, @? and @@"));
    assert!(text("jsonb_ops").contains("?, ?|, ?&"));
}

#[test]
fn the_view_and_its_with_are_named() {
    let mut scene = Scene::healthy();
    select(&mut scene, "select depot, cost from v_cost where customer = $1", 9_000, 3);
    node(
        &mut scene,
        1,
        0,
        "CTE Scan",
        json!({"alias": "per_customer", "filter": "(per_customer.customer = $1)"}),
    );
    let plain = of(&scene.explain(), "PLAN-32").claim.clone();
    assert!(plain.contains("one statement with WITH per_customer: all of it"), "{plain}");
    let body = "(SELECT customer, depot, sum(cost) AS cost FROM public.shipment GROUP BY customer, depot) SELECT customer, depot, cost FROM per_customer;";
    for (word, claimed) in
        [("AS MATERIALIZED", "WITH per_customer AS MATERIALIZED: all"), ("AS", "WITH per_customer: all")]
    {
        scene.fact(n1(), "view_text", "public.v_cost", &format!("WITH per_customer {word} {body}"));
        let found = scene.explain();
        let finding = of(&found, "PLAN-32");
        assert!(
            finding.claim.contains("reads view public.v_cost") && finding.claim.contains(claimed),
            "{}",
            finding.claim
        );
        assert!(commands(finding).starts_with("SELECT pg_get_viewdef('public.v_cost'::regclass, true);"));
    }
}

#[test]
fn the_column_with_the_large_values_is_named() {
    let mut scene = fired("PLAN-34");
    assert!(!of(&scene.explain(), "PLAN-34").claim.contains("column "));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("plan_table", keys, json!({"columns": "id integer; pdf text", "wide_columns": "pdf text"}));
    let found = scene.explain();
    assert!(
        of(&found, "PLAN-34").claim.contains("public.orders: column pdf text, "),
        "{}",
        of(&found, "PLAN-34").claim
    );
}

/// A deadlock between two statements, of which the server wrote the texts into its log.
fn deadlock(scene: &mut Scene, second: u64, of: (u64, &str), other: (u64, &str)) {
    let detail = format!(
        "Process {0} waits for ShareLock on transaction 7; blocked by process {1}.\nProcess {1} waits for ShareLock on transaction 8; blocked by process {0}.\n\
         Process {0}: {2};\nProcess {1}: {3}",
        of.0, other.0, of.1, other.1
    );
    let more = json!({"node": "n1", "pid": of.0, "detail": detail, "statement": of.1});
    scene.event(second, event::DEADLOCK, "deadlock detected", more);
}

#[test]
fn deadlocks_name_the_statements_and_applications_that_wait_for_each_other() {
    let mut scene = Scene::healthy();
    for (pid, application) in [(11, "picking"), (12, "goods-receipt")] {
        scene.set(
            "session",
            json!({"node": "n1", "pid": pid}),
            json!({"application": application, "state": "active"}),
        );
    }
    let taken = "UPDATE stock SET n = n - 1 WHERE item = ";
    let added = "UPDATE stock SET n = n + 7, at = now() WHERE item = ";
    for second in 1..9 {
        let (first, other) = (format!("{taken}{second}"), format!("{added}{second}"));
        deadlock(&mut scene, second, (11, &first), (12, &other));
    }
    let found = scene.explain();
    let finding = of(&found, "GEN-02");
    for part in [
        "8 deadlocks in",
        "UPDATE stock SET n = n - $1 WHERE item = $2 (picking)",
        "at = now() WHERE item = $2 (goods-receipt)",
    ] {
        assert!(finding.claim.contains(part), "{part}: {}", finding.claim);
    }
    assert!(finding.evidence.iter().any(|line| line.starts_with("in 8 of 8 deadlocks: ")), "{finding:?}");

    // Both are executions of the same statement.
    let mut scene = Scene::healthy();
    for second in 1..9 {
        let (first, other) = (format!("{taken}{second}"), format!("{taken}{}", second + 1));
        deadlock(&mut scene, second, (11, &first), (12, &other));
    }
    let claim = of(&scene.explain(), "GEN-02").claim.clone();
    assert!(claim.contains("between executions of one statement: UPDATE stock SET n = n - $1"), "{claim}");
}

#[test]
fn the_session_with_the_subtransactions_is_named() {
    let mut scene = fired("LWL-02");
    let keys = json!({"node": "n1", "pid": 77});
    scene.set(
        "session",
        keys,
        json!({"application": "price-import", "state": "active", "query": "CALL import_prices(1)",
        "xact_age_s": 18.0, "xmin_age_xids": 201_000}),
    );
    let claim = of(&scene.explain(), "LWL-02").claim.clone();
    assert!(claim.contains("session 77 of price-import has the oldest transaction (18 s, 201k"), "{claim}");
    assert!(claim.contains("CALL import_prices(1)"), "{claim}");
}

/// What stops most of the work is high with few sessions behind it, and a vacuum of the server's own at the root is named as that.
#[test]
fn a_queue_that_takes_most_of_the_time_is_high_and_a_vacuum_at_its_root_is_named() {
    let queued = |waiting: u64| {
        let mut scene = Scene::healthy();
        for (pid, by, mode) in [(71, 70, "AccessExclusiveLock"), (72, 71, "AccessShareLock")] {
            let keys = json!({"node": "n1", "root": 70, "pid": pid, "blocked_by": by});
            scene.set("block", keys, json!({"wait_s": 12.0, "root_state": "active", "lock_type": "relation", "relation": "public.orders", "mode": mode,
                "query": "alter table orders add column note text"}));
        }
        let query = "autovacuum: VACUUM public.orders (to prevent wraparound)";
        scene.set("session", json!({"node": "n1", "pid": 70}), json!({"state": "active", "query": query}));
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "relation", "query_id": "7"});
        scene.set("wait", keys, json!({"sessions": waiting}));
        let found = scene.explain();
        let finding = of(&found, "LCK-04");
        assert!(
            finding
                .claim
                .contains("behind session 70 (autovacuum: VACUUM public.orders (to prevent wraparound))"),
            "{}",
            finding.claim
        );
        finding.severity
    };
    assert_eq!(queued(200), record::finding::Severity::High);
    assert_eq!(queued(1), record::finding::Severity::Medium);
}

/// Rows are not read for a condition, but to compute for each of them where it comes in the order.
#[test]
fn an_order_that_a_function_computes_has_no_missing_index() {
    let found = |query: &str, indexes: &str| {
        let mut scene = Scene::healthy();
        scene.event(1, record::event::QUERY, "", json!({"query_id": "9", "text": query}));
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}));
        let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
        scene.set(
            "table",
            keys,
            json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64, "index_columns": indexes}),
        );
        of(&scene.explain(), "PLAN-01").clone()
    };
    let by_distance = "select id from orders order by distance(place, $1) limit $2";
    let of_one = "select i.id, distance(i.place, q.place) as d from orders i, (select place from orders where id = $1) q order by d limit $2";
    for query in [by_distance, of_one] {
        let finding = found(query, "orders_pkey(id)");
        assert!(finding.claim.contains("its order is what distance makes of each row"), "{}", finding.claim);
        assert!(finding.remedy.text.contains("leave few candidates first"), "{}", finding.remedy.text);
        assert!(!commands(&finding).contains("CREATE INDEX"), "{finding:?}");
    }
    // Where a condition has no index it is that.
    let missing = found(
        "select id from orders where shop = $3 order by distance(place, $1) limit $2",
        "orders_pkey(id)",
    );
    assert!(
        commands(&missing).contains("CREATE INDEX CONCURRENTLY ON public.orders (\"shop\")"),
        "{missing:?}"
    );
}

/// A result that its client does not read keeps the locks of its statement, and a request that is cancelled comes again.
#[test]
fn a_session_that_waits_for_its_client_is_ended_first() {
    let mut scene = fired("LCK-04");
    for pid in 71..80 {
        let by = if pid == 71 { 70 } else { 71 };
        let keys = json!({"node": "n1", "root": 70, "pid": pid, "blocked_by": by});
        scene.set("block", keys, json!({"root_state": "active", "query": "TRUNCATE orders"}));
    }
    let keys = json!({"node": "n1", "pid": 70});
    scene.set(
        "session",
        keys,
        json!({"application": "export", "state": "active", "wait_type": "Client", "wait_event": "ClientWrite",
        "query": "COPY orders TO STDOUT", "backend_start": "2026-11-29 08:44:48.47+00"}),
    );
    let found = scene.explain();
    let finding = of(&found, "LCK-04");
    assert!(
        finding.claim.contains("waits for its client, which does not read the result"),
        "{}",
        finding.claim
    );
    let first = &finding.remedy.commands[0];
    assert!(first.contains("pg_terminate_backend(pid)") && first.contains("pid = 70"), "{finding:?}");
    assert!(!commands(finding).contains("schema change"), "{finding:?}");
}

#[test]
fn rows_without_a_partition_are_lost_and_the_table_is_named() {
    let mut scene = Scene::healthy();
    crate::fire::again::unplaced(&mut scene);
    let found = scene.explain();
    let finding = of(&found, "TXN-13");
    assert_eq!(finding.severity, record::finding::Severity::High, "{finding:?}");
    assert!(finding.claim.contains("no partition of relation \"sensor_data\""), "{}", finding.claim);
    assert!(commands(finding).contains("t.relname = 'sensor_data'"), "{}", commands(finding));
}

/// The server goes on without a tablespace, and all that is written there fails.
#[test]
fn writes_that_fail_on_a_full_tablespace_are_named_with_it() {
    let mut scene = Scene::healthy();
    scene.drop_source("load");
    let mount = json!({"host": "h1", "mount": "/srv/archive"});
    let fields =
        json!({"used_for": "tablespace archive_ts", "size_bytes": 9_000_000_000u64, "free_bytes": 0});
    scene.set("mount", mount, fields);
    let quiet = of(&scene.explain(), "CAP-03").clone();
    assert_eq!(quiet.severity, record::finding::Severity::Medium, "{quiet:?}");
    for second in 1..20 {
        let message =
            "could not extend file \"pg_tblspc/16436/PG_15_202209061/16384/16441\": No space left on device";
        let more = json!({"node": "n1", "severity": "ERROR", "repeated": 9, "statement": "INSERT INTO pdf (id) VALUES ($1)"});
        scene.event(second, event::SERVER_LOG, message, more);
    }
    let found = scene.explain();
    let finding = of(&found, "CAP-03");
    assert_eq!(finding.severity, record::finding::Severity::High, "{finding:?}");
    assert!(finding.claim.contains("with tablespace archive_ts, has 0 B free"), "{}", finding.claim);
    assert!(finding.claim.contains("writes have failed for it: INSERT INTO pdf"), "{}", finding.claim);
    assert!(commands(finding).contains("t.spcname = 'archive_ts'"), "{}", commands(finding));
    assert!(finding.evidence.iter().all(|line| !line.contains("disk of the WAL")), "{finding:?}");
}

#[test]
fn a_condition_in_a_form_that_no_index_serves_has_the_one_that_does() {
    use crate::fire::unserved::{DISTANCE, beside, searched_text};
    let mut scene = Scene::healthy();
    beside(&mut scene, DISTANCE, json!({"column_types": "place point"}));
    let found = scene.explain();
    let finding = of(&found, "PLAN-88");
    assert!(finding.claim.contains("it compares the distance"), "{}", finding.claim);
    assert!(finding.remedy.text.contains("\"place\" <@ circle(centre, distance)"), "{}", finding.remedy.text);
    let mut scene = Scene::healthy();
    searched_text(&mut scene);
    let found = scene.explain();
    let finding = of(&found, "PLAN-88");
    assert!(
        finding.claim.contains("index orders_text is on the same expression with another constant"),
        "{}",
        finding.claim
    );
    assert!(commands(finding).contains("indexname = 'orders_text'"), "{}", commands(finding));
}

/// The check of a constraint trigger is no statement of the application: the trigger is what is to be changed.
#[test]
fn a_statement_inside_of_a_trigger_names_it() {
    use crate::fire::unserved::{MADE_RANGE, beside};
    let mut scene = Scene::healthy();
    beside(&mut scene, MADE_RANGE, json!({"column_types": "begins timestamptz"}));
    let plan = json!({"node": "n1", "query_id": "9", "hash": "c0"});
    scene.set("plan", plan, json!({"function": "check_overlap"}));
    let outside = of(&scene.explain(), "PLAN-88").claim.clone();
    assert!(outside.contains("only a GiST index on that expression serves it"), "{outside}");
    assert!(outside.ends_with("; it runs inside of function check_overlap()"), "{outside}");
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    let triggers = json!({"trigger_functions": "no_overlap(public.check_overlap); other(public.log_it)"});
    scene.set("table", keys, triggers);
    let inside = of(&scene.explain(), "PLAN-88").claim.clone();
    assert!(
        inside.ends_with("; it runs inside of trigger no_overlap of public.orders, for each row"),
        "{inside}"
    );
    scene.fact(
        n1(),
        "peculiar",
        "public.orders",
        "trigger no_overlap calls check_overlap(); 1 deferrable constraints",
    );
    let late = of(&scene.explain(), "PLAN-88").claim.clone();
    assert!(late.ends_with("and at COMMIT where the trigger is DEFERRABLE"), "{late}");
}
