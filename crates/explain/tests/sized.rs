//! Remedies that fit the server: indexes that it would refuse, sizes by what was measured, the statement inside of a trigger, a log that blocks sessions.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{node, scan, statement};
use crate::scene::{Scene, wait};
use record::finding::Severity;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// What the catalog has of the table of orders, and of functions.
fn catalog(scene: &mut Scene, columns: &str, functions: &[(&str, &str)]) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("plan_table", keys, json!({"columns": columns}));
    for (name, overloads) in functions {
        let keys = json!({"node": "n1", "database": "db", "name": name});
        scene.set("plan_function", keys, json!({"overloads": overloads}));
    }
}

const TRUNC: (&str, &str) = (
    "date_trunc",
    "i text, interval; i text, timestamp without time zone; s text, timestamp with time zone; s text, timestamp with time zone, text",
);

/// The command for an index in the finding about a condition on what is computed.
fn created(filter: &str, columns: &str, functions: &[(&str, &str)]) -> String {
    let mut scene = Scene::healthy();
    scan(&mut scene, filter, "");
    catalog(&mut scene, columns, functions);
    let found = scene.explain();
    let typed = commands(of(&found, "PLAN-50"));
    typed.lines().find(|line| line.contains("CREATE INDEX")).unwrap_or_default().to_string()
}

#[test]
fn an_index_that_the_server_refuses_is_not_offered_for_typing() {
    let cast = "((orders.at)::date = $1)";
    let zoned = created(cast, "id integer; at timestamp with time zone", &[]);
    assert!(
        zoned.starts_with(
            "-- PostgreSQL refuses this index: a cast of timestamp with time zone to date depends"
        ),
        "{zoned}"
    );
    assert!(zoned.contains("\"at\" AT TIME ZONE 'UTC'"), "{zoned}");
    let plain = created(cast, "id integer; at timestamp without time zone", &[]);
    assert!(plain.starts_with("CREATE INDEX CONCURRENTLY"), "{plain}");
    let own = "(app_key(orders.ref) = $1)";
    let volatile = created(own, "id integer; ref text", &[("app_key", "v text")]);
    assert!(volatile.contains("app_key(text) is VOLATILE"), "{volatile}");
    let immutable = created(own, "id integer; ref text", &[("app_key", "i text; v integer")]);
    assert!(immutable.starts_with("CREATE INDEX"), "{immutable}");
    let missing = created(own, "id integer", &[]);
    assert!(missing.contains("public.orders has no column \"ref\""), "{missing}");
    let unknown = created(own, "id integer; ref text", &[TRUNC]);
    assert!(unknown.starts_with("CREATE INDEX"), "nothing is known of the function: {unknown}");
}

/// The order is by the name of a computed value.
#[test]
fn a_name_of_the_result_is_no_column_of_an_index() {
    let mut scene = Scene::healthy();
    let text = "select id, price * $1 as total from orders where customer = $2 order by total desc limit $3";
    statement(
        &mut scene,
        text,
        json!({"calls": 100, "rows": 1_000, "shared_hit": 900_000}),
        json!({"cost_total": 90.0}),
    );
    node(&mut scene, 1, 0, "Limit", json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"bytes": 90_000_000, "live_rows": 900_000, "index_rows": 9_000_000, "index_scans": 100, "seq_scans": 0}));
    for finding in scene.explain().findings {
        assert!(!commands(&finding).contains("\"total\""), "{}: {}", finding.rule, commands(&finding));
    }
}

#[test]
fn a_column_that_does_not_narrow_is_left_out_of_the_index() {
    let of_values = |values: &str| {
        let mut scene = Scene::healthy();
        scan(&mut scene, "((orders.state = $1) AND (orders.mail = $2))", "state text; mail text");
        catalog(&mut scene, "id integer; state text; mail text", &[]);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
        scene.set("plan_table", keys, json!({"column_values": values}));
        commands(of(&scene.explain(), "PLAN-10"))
    };
    let narrow = of_values("state 4; mail 900000");
    assert!(narrow.contains("ON public.orders (\"mail\");"), "{narrow}");
    let both = of_values("state 400; mail 900");
    assert!(both.contains("ON public.orders (\"mail\", \"state\");"), "{both}");
    // What the catalog has of another table, which was recorded later, is not this one's.
    let beside = {
        let mut scene = Scene::healthy();
        scan(&mut scene, "((orders.state = $1) AND (orders.mail = $2))", "state text; mail text");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
        scene.set("plan_table", keys, json!({"column_values": "state 4; mail 900000"}));
        let keys = json!({"node": "n1", "database": "db", "relation": "public.zone"});
        scene.set("plan_table", keys, json!({"column_values": "id 7"}));
        commands(of(&scene.explain(), "PLAN-10"))
    };
    assert!(beside.contains("ON public.orders (\"mail\");"), "{beside}");
    let unknown = of_values("");
    assert!(unknown.contains("ON public.orders (\"state\", \"mail\");"), "{unknown}");
}

/// Checkpoints that the WAL forces: bytes a second and full page images among them.
fn forced(images: u64, tables: u64, change: impl Fn(&mut Scene)) -> (String, String) {
    let mut scene = Scene::healthy();
    scene.fact(n1(), "setting", "max_wal_size", "128MB");
    scene.vary("server", n1(), "checkpoints_requested", |second| f64::from(u8::from(second % 20 == 0)));
    scene.set("server", n1(), json!({"wal_bytes": 40_000_000, "wal_fpi": images}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.usertable"});
    scene.set("table", keys, json!({"bytes": tables, "index_bytes": 0}));
    change(&mut scene);
    let findings = scene.explain();
    let finding = of(&findings, "WAL-03");
    (commands(finding), finding.evidence.join("\n"))
}

#[test]
fn full_page_images_are_counted_once_between_two_checkpoints() {
    // 4,500 pages a second are 37 MB of 40: all pages of 2 GB once, and 3 MB a second besides.
    let (typed, evidence) = forced(4_500, 2_000_000_000, |_| ());
    assert!(typed.contains("max_wal_size = '5"), "{typed}");
    assert!(evidence.contains("full page images: each page once in that time"), "{evidence}");
    let (typed, _) = forced(4_500, 2_000_000_000_000, |_| ());
    assert!(typed.contains("max_wal_size = '217"), "many more pages than are written: {typed}");
}

#[test]
fn the_interval_is_that_of_the_server() {
    let (short, evidence) = forced(10, 2_000_000_000, |scene| {
        scene.fact(n1(), "setting", "checkpoint_timeout", "1min");
    });
    assert!(short.contains("max_wal_size = '43"), "{short}");
    assert!(
        evidence.contains("for checkpoints every 60 s") || evidence.contains("every 1 min"),
        "{evidence}"
    );
}

/// A rule that is not about the size names a fixed one.
#[test]
fn other_rules_propose_no_more_wal_than_is_written() {
    let typed = |more: Value| {
        let mut scene = fired("LWL-05");
        scene.fact(n1(), "setting", "max_wal_size", "1GB");
        scene.set("server", n1(), more);
        commands(of(&scene.explain(), "LWL-05"))
    };
    let little = typed(json!({"wal_bytes": 4_000_000, "wal_fpi": 10}));
    assert!(!little.contains("'16GB'") && little.contains("max_wal_size = '21"), "{little}");
    let much = typed(json!({"wal_bytes": 200_000_000, "wal_fpi": 10}));
    assert!(much.contains("max_wal_size = '16GB'"), "{much}");
}

#[test]
fn the_command_inside_of_a_trigger_is_named() {
    let mut scene = fired("PLAN-25");
    let before = of(&scene.explain(), "PLAN-25").clone();
    let keys = json!({"node": "n1", "database": "db", "relation": "public.stock"});
    scene.set("table", keys, json!({"trigger_functions": "keep(public.keep_totals)"}));
    let text = "plpgsql returning 0 rows: begin refresh materialized view app.totals; return null; end";
    scene.fact(n1(), record::watched::FUNCTION_TEXT, "keep_totals", text);
    let after = of(&scene.explain(), "PLAN-25").clone();
    assert!(!before.claim.contains("refresh"), "{}", before.claim);
    assert!(
        after.claim.contains("keep_totals() runs refresh materialized view app.totals"),
        "{}",
        after.claim
    );
    assert!(after.remedy.text.contains("from a job of its own"), "{}", after.remedy.text);
}

/// Sessions that are neither on a CPU nor in a wait, while everything is logged.
#[test]
fn a_log_that_blocks_sessions_is_more_than_one_that_is_long() {
    let severity = |run_us: u64, sessions: u64| {
        let mut scene = Scene::healthy();
        scene.fact(n1(), "setting", "log_min_duration_statement", "0");
        scene.set(
            "statement",
            json!({"node": "n1", "database": "db", "query_id": "1"}),
            json!({"calls": 300}),
        );
        scene.set("server", n1(), json!({"xact_commit": 30, "sessions_active": 6, "active_ms": 6_000.0}));
        scene.set(
            "schedule",
            json!({"host": "h1", "node": "n1", "who": "backends"}),
            json!({"run_us": run_us, "wait_us": 10_000}),
        );
        scene.set("wait", wait("n1", "CPU", "CPU"), json!({"sessions": 6}));
        scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": sessions}));
        scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 0}));
        let found = scene.explain();
        found
            .findings
            .iter()
            .find(|finding| finding.rule == "LOG-01")
            .map(|one| (one.severity, one.claim.clone()))
    };
    let (found, claim) = severity(100_000, 0).expect("blocked");
    assert_eq!(found, Severity::High, "{claim}");
    assert!(claim.contains("blocked until their lines are taken"), "{claim}");
    assert_eq!(severity(5_900_000, 0), None, "they compute, and few statements are logged");
}

/// One program inserts row by row, and its commits hardly wait.
#[test]
fn rows_that_are_committed_one_by_one_on_a_fast_disk_are_named_without_the_disk() {
    let found = |text: &str| {
        let mut scene = Scene::healthy();
        crate::fire::rows::committed(&mut scene, text, 0, 20_000, 20_200);
        scene.set("server", n1(), json!({"sessions_active": 1, "active_ms": 600.0}));
        scene.set("wait", wait("n1", "CPU", "CPU"), json!({"sessions": 1}));
        scene.set(
            "schedule",
            json!({"host": "h1", "node": "n1", "who": "backends"}),
            json!({"run_us": 550_000, "wait_us": 1_000}),
        );
        let group =
            json!({"node": "n1", "application": "loader", "user": "u", "database": "db", "client": "local"});
        scene.set("activity", group, json!({"sessions": 1}));
        scene.explain()
    };
    let findings = found("insert into measurement (device, value) values ($1, $2)");
    let one = of(&findings, "WAL-14");
    assert_eq!(one.severity, Severity::Low);
    assert!(one.claim.contains("application loader inserts 2,020 rows a second"), "{}", one.claim);
    assert!(!commands(one).contains("synchronous_commit"), "{}", commands(one));
    let updates = found("update measurement set value = $1 where device = $2");
    assert!(
        updates.findings.iter().all(|finding| finding.rule != "WAL-14"),
        "what an application does is no import"
    );
}
