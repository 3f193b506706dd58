//! Work that is done for each row, for each field or for each session at once: plans and counters in which their rules fire, and what only looks like it.

use super::plan::{index, node, statement};
use super::steps::replay;
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use serde_json::{Value, json};

/// A statement that compares so many rows with a subquery of each, in these words.
fn compared(scene: &mut Scene, rows: f64, filter: &str) {
    statement(
        scene,
        "select kind from state s where at = (select max(at) from state x where x.id = s.id)",
        json!({}),
        json!({}),
    );
    node(
        scene,
        1,
        0,
        "Seq Scan",
        json!({"relation": "public.state", "alias": "s", "filter": filter, "table_rows": rows}),
    );
    node(
        scene,
        2,
        1,
        "Index Only Scan",
        json!({"relation": "public.state", "alias": "x", "index": "state_pkey", "subquery": true, "condition": "(x.id = s.id)"}),
    );
}

/// A page of rows, with so many that fit, and this among its columns.
fn page(scene: &mut Scene, rows: f64, column: &str) {
    let text =
        format!("select id, {column} as found from posting where region = $1 order by at desc limit $2");
    statement(scene, &text, json!({}), json!({}));
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "WindowAgg", json!({"rows_planned": rows}));
    node(
        scene,
        3,
        2,
        "Index Scan",
        json!({"relation": "public.posting", "alias": "p", "index": "posting_region", "rows_planned": rows}),
    );
}

/// A join by a pattern.
fn by_pattern(scene: &mut Scene, condition: &str) {
    statement(
        scene,
        "select o.id from unit r join orders o on o.path like r.path || $2 where r.id = $1",
        json!({}),
        json!({}),
    );
    node(scene, 1, 0, "Nested Loop", json!({"filter": condition, "condition": condition}));
    node(
        scene,
        2,
        1,
        "Index Scan",
        json!({"relation": "public.unit", "alias": "r", "index": "unit_pkey", "table_rows": 500.0}),
    );
    node(
        scene,
        3,
        1,
        "Seq Scan",
        json!({"relation": "public.orders", "alias": "o", "table_rows": 120_000.0}),
    );
    index(scene, "orders_path", "path", true);
}

/// A list that is read with locks, and how many of its rows are changed in a second.
fn list(scene: &mut Scene, text: &str, changed: u64) {
    statement(scene, text, json!({"calls": 400, "rows": 60_000, "wal_bytes": 4_000_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.line"});
    scene.set("table", keys, json!({"live_rows": 90_000, "rows_updated": changed, "rows_deleted": 0}));
}

/// Fields of a document, and the types of the table's columns.
fn document(scene: &mut Scene, text: &str, kinds: &str) {
    statement(scene, text, json!({"rows": 15_000}), json!({}));
    node(scene, 1, 0, "Index Scan", json!({"relation": "public.report", "rows_planned": 1_500.0}));
    let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", keys, json!({"sessions": 3}));
    scene.fact(json!({"node": "n1"}), "column_kinds", "public.report", kinds);
}

const FIELDS: &str = "select body ->> $1, body ->> $2, r.body -> $3 from report r where site = $4";

/// A table of so many bytes with columns of these types.
fn wide(scene: &mut Scene, bytes: u64, kinds: &str) {
    statement(scene, "select count(*) from buyer where town = $1", json!({}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.buyer"});
    scene.set("table", keys, json!({"bytes": bytes, "live_rows": 50_000, "planned_rows": 50_000}));
    scene.fact(json!({"node": "n1"}), "column_kinds", "public.buyer", kinds);
}

/// A temporary table with these rows.
fn session_table(scene: &mut Scene, rows: &str) {
    let figures = json!({"shared_hit": 100});
    statement(scene, "select machine, avg(value) from recent group by machine", figures, json!({}));
    scene.fact(json!({"node": "n1"}), "temporary", "pg_temp_3.recent", rows);
}

fn backends() -> Value {
    json!({"host": "h1", "node": "n1", "who": "backends"})
}

/// Sessions that wait for a CPU for so many microseconds in a second.
fn waiting(scene: &mut Scene, us: fn(u64) -> f64) {
    scene.set("schedule", backends(), json!({"tasks": 20, "looked": 20}));
    scene.vary("schedule", backends(), "run_us", us);
    scene.set("server", json!({"node": "n1"}), json!({"active_ms": 12_000.0}));
    scene.vary("schedule", backends(), "wait_us", us);
}

/// A setting of the planner, and a statement over many tables that is planned for longer than it runs.
fn orders(scene: &mut Scene, setting: (&str, &str), tables: usize) {
    let joins: Vec<String> = (1..tables).map(|at| format!("join t{at} on t{at}.id = t0.id")).collect();
    let text = format!("select 1 from t0 {}", joins.join(" "));
    statement(scene, &text, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0}), json!({}));
    scene.fact(json!({"node": "n1"}), "setting", setting.0, setting.1);
}

/// A statement that is compiled for most of its time, with a plan of this cost, and a setting.
fn compiled(scene: &mut Scene, cost: f64, setting: (&str, &str)) {
    statement(
        scene,
        "select a from t where b = $1",
        json!({"jit_ms": 28_000.0}),
        json!({"cost_total": cost}),
    );
    node(scene, 1, 0, "Seq Scan", json!({"relation": "public.t"}));
    scene.fact(json!({"node": "n1"}), "setting", setting.0, setting.1);
}

/// A statement that sleeps somewhere inside, for so many of ten samples.
fn sleeps(scene: &mut Scene, text: &str) {
    statement(scene, text, json!({"calls": 20, "total_ms": 90_000.0}), json!({}));
    for (kind, event, sessions) in [("Timeout", "PgSleep", 3), ("CPU", "CPU", 1)] {
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
        scene.set("wait", keys, json!({"sessions": sessions}));
    }
}

/// A command that closes files of the WAL so often in a second.
fn switches(scene: &mut Scene, per_s: u64) {
    scene.event(1, record::event::QUERY, "", json!({"query_id": "70", "text": "SELECT pg_switch_wal()"}));
    let keys = json!({"node": "n1", "database": "db", "query_id": "70"});
    scene.set("statement", keys, json!({"calls": per_s, "rows": per_s, "total_ms": 5.0}));
    scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 4}));
}

/// WAL that is kept on a disk of a gigabyte.
fn keeps(scene: &mut Scene, setting: &str) {
    scene.fact(json!({"node": "n1"}), "setting", "wal_keep_size", setting);
    let keys = json!({"host": "h1", "mount": "/small"});
    scene.set(
        "mount",
        keys,
        json!({"size_bytes": 1_000_000_000, "free_bytes": 400_000_000, "used_for": "wal"}),
    );
}

/// Rows that a condition locks, or compares.
fn taken(scene: &mut Scene, filter: &str) {
    statement(
        scene,
        "select id from job j where pg_try_advisory_xact_lock(id) order by at limit $1",
        json!({}),
        json!({}),
    );
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Sort", json!({}));
    node(
        scene,
        3,
        2,
        "Seq Scan",
        json!({"relation": "public.job", "alias": "j", "filter": filter, "table_rows": 4_000.0}),
    );
}

/// Two tables of so many rows that are joined by this condition, with this on the inner side.
fn pairs(scene: &mut Scene, rows: f64, condition: &str, inner: &str) {
    statement(scene, "select distinct c.id from client c, kind k where c.region = $1", json!({}), json!({}));
    node(scene, 1, 0, "Nested Loop", json!({"filter": condition, "condition": condition}));
    node(
        scene,
        2,
        1,
        "Seq Scan",
        json!({"relation": "public.client", "alias": "c", "rows_planned": rows, "table_rows": rows}),
    );
    let fields = json!({"relation": "public.kind", "alias": "k", "rows_planned": rows, "table_rows": rows, "condition": inner});
    node(scene, 3, 1, "Index Scan", fields);
}

/// Inserts that are tried so often, of which so many store a row.
fn tried(scene: &mut Scene, calls: u64, rows: u64) {
    let text = "insert into code (no) values ($1) on conflict (no) do nothing";
    statement(scene, text, json!({"calls": calls, "rows": rows, "total_ms": 9_000.0}), json!({}));
}

/// A search of a BRIN index that touches all blocks, and how far the column is in the order of the table.
fn of_ranges(scene: &mut Scene, correlation: f64) {
    statement(
        scene,
        "select max(level) from gauge where at > $1",
        json!({"calls": 100, "rows": 100, "shared_hit": 900_000}),
        json!({}),
    );
    let fields = json!({"relation": "public.gauge", "index": "gauge_at", "condition": "(gauge.at > $1)", "rows_planned": 100.0, "table_rows": 900_000.0});
    node(scene, 1, 0, "Bitmap Heap Scan", fields);
    node(scene, 2, 1, "Bitmap Index Scan", json!({"index": "gauge_at", "condition": "(gauge.at > $1)"}));
    let keys = json!({"node": "n1", "relation": "public.gauge", "index": "gauge_at"});
    let fields = json!({"database": "db", "columns": "at", "method": "brin", "valid": true, "partial": false, "correlation": correlation});
    scene.set("plan_index", keys, fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.gauge"});
    scene.set("table", keys, json!({"bytes": 73_728_000, "live_rows": 900_000}));
}

/// Sessions that are refused while most connections are reserved.
fn reserved(scene: &mut Scene) {
    scene.fact(json!({"node": "n1"}), "setting", "superuser_reserved_connections", "44");
    scene.fact(json!({"node": "n1"}), "setting", "max_connections", "60");
    let message = "remaining connection slots are reserved for non-replication superuser connections";
    for second in 2..40 {
        let more = json!({"node": "n1", "severity": "FATAL", "sqlstate": "53300"});
        scene.event(second, record::event::SERVER_LOG, message, more);
    }
}

pub(crate) const CASES: &[Fires] = &[
    ("PLAN-82", Co, |scene| pairs(scene, 3_000.0, "", "")),
    ("PLAN-82", Co, |scene| pairs(scene, 3_000.0, "((k.at >= c.at) AND (k.at < (c.at + $2)))", "")),
    ("PLAN-81", Co, |scene| taken(scene, "pg_try_advisory_xact_lock(j.id)")),
    ("SES-12", Counter, |scene| sleeps(scene, "update stock set n = n - $1 where id = $2")),
    ("WAL-13", Counter, |scene| switches(scene, 6)),
    ("CAP-05", Counter, |scene| keeps(scene, "30GB")),
    ("GEN-01", Counter, |scene| tried(scene, 60_000, 60)),
    ("PLAN-38", Co, |scene| of_ranges(scene, 0.99)),
    ("PLAN-76", Co, |scene| compared(scene, 9_000.0, "(s.at = (SubPlan ?))")),
    // By bitmaps: both the rows of the outer table and the search of each.
    ("PLAN-76", Co, |scene| {
        compared(scene, 600_000.0, "(s.at = (SubPlan ?))");
        node(scene, 1, 0, "Bitmap Heap Scan", json!({"condition": "(s.kind = $1)"}));
        node(scene, 2, 1, "Bitmap Heap Scan", json!({"index": "", "subquery": true}));
        node(
            scene,
            3,
            1,
            "Bitmap Index Scan",
            json!({"index": "state_kind", "condition": "(kind = $1)", "rows_planned": 6_000.0}),
        );
        node(
            scene,
            4,
            2,
            "Bitmap Index Scan",
            json!({"index": "state_id", "condition": "(id = s.id)", "rows_planned": 30.0}),
        );
    }),
    ("PLAN-77", Co, |scene| page(scene, 25_000.0, "COUNT(*) OVER()")),
    ("PLAN-78", Co, |scene| by_pattern(scene, "(o.path ~~ (r.path || $2))")),
    ("PLAN-79", Co, |scene| document(scene, FIELDS, "body json")),
    ("PLAN-80", Co, |scene| wide(scene, 40_000_000, "name character(400); town character(200)")),
    ("TXN-19", Co, |scene| list(scene, "select id from line where wave = $1 order by slot for update", 3)),
    ("VAC-17", Counter, |scene| session_table(scene, "400 900000 90000000")),
    ("CPU-07", Counter, |scene| waiting(scene, |second| if second % 4 == 1 { 30e6 } else { 2e3 })),
    ("CFG-01", Co, |scene| orders(scene, ("join_collapse_limit", "20"), 13)),
    ("CFG-01", Co, |scene| orders(scene, ("geqo", "off"), 13)),
    ("CFG-01", Co, |scene| compiled(scene, 1e10, ("enable_seqscan", "off"))),
    ("CFG-01", Co, |scene| compiled(scene, 900.0, ("jit_above_cost", "100"))),
    ("CFG-01", Co, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"sessions_opened": 30}));
        scene.fact(json!({"node": "n1"}), "setting", "session_preload_libraries", "auto_explain");
    }),
    ("CFG-01", Co, |scene| {
        scene.set("wait", wait("n1", "IO", "DataFileFlush"), json!({"sessions": 4}));
        scene.fact(json!({"node": "n1"}), "setting", "backend_flush_after", "512kB");
    }),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The searches that repeat are those of a subquery for each row, as planned.
    ("PLAN-24", |scene| {
        compared(scene, 9_000.0, "(s.at = (SubPlan ?))");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.state"});
        scene.set("table", keys, json!({"bytes": 9_000_000, "index_scans": 6_000_000}));
    }),
    // The inner side lacks an index, or the subquery is run once.
    ("PLAN-76", |scene| {
        compared(scene, 9_000.0, "(s.at = (SubPlan ?))");
        node(scene, 2, 1, "Seq Scan", json!({"index": "", "subquery": true}));
    }),
    ("PLAN-76", |scene| {
        compared(scene, 9_000.0, "(s.at > (SubPlan ?))");
        node(scene, 2, 1, "Index Only Scan", json!({"condition": "(x.id = 1)"}));
    }),
    // Groups need all rows, and a scan for few of them an index.
    ("PLAN-77", |scene| {
        page(scene, 5_000.0, "count(*) over ()");
        node(scene, 3, 2, "Aggregate", json!({"relation": "", "index": ""}));
    }),
    ("PLAN-77", |scene| {
        page(scene, 1_500.0, "count(*) over ()");
        node(scene, 3, 2, "Seq Scan", json!({"index": "", "table_rows": 400_000.0}));
    }),
    // Only rows with an equal key are compared, or the pattern is a constant.
    ("PLAN-78", |scene| {
        by_pattern(scene, "(o.path ~~ (r.path || $2))");
        node(scene, 1, 0, "Hash Join", json!({}));
    }),
    ("PLAN-78", |scene| by_pattern(scene, "((o.kind = r.kind) AND (o.path ~~ (r.path || $2)))")),
    ("PLAN-78", |scene| by_pattern(scene, "((o.path ~~ $1) OR r.flag)")),
    // The column is another table's, or there are few documents.
    ("PLAN-79", |scene| {
        let text =
            "select d.body ->> $1, d.body ->> $2, d.body -> $3 from docs d join report r on r.id = d.id";
        document(scene, text, "body json");
    }),
    ("PLAN-79", |scene| {
        document(scene, FIELDS, "body json");
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"rows": 10}));
    }),
    // A code of full length.
    ("PLAN-80", |scene| wide(scene, 10_500_000, "hash character(128)")),
    // Rows that are changed through a partition, a view that is in no record, and the time of finding them.
    ("TXN-19", |scene| {
        list(scene, "select id from line where wave = $1 for update", 0);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.line_1"});
        scene.set("table", keys, json!({"partition_of": "public.line", "rows_updated": 900_000}));
    }),
    ("TXN-19", |scene| list(scene, "select id from line_view where wave = $1 for update", 0)),
    ("TXN-19", |scene| {
        list(scene, "select id from line where wave = $1 for update", 0);
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"shared_hit": 90_000_000}));
    }),
    // The file is empty, as after TRUNCATE; or the statements mean a table that is not temporary.
    ("VAC-17", |scene| session_table(scene, "0 3000000 0")),
    ("VAC-17", |scene| {
        session_table(scene, "400 900000 90000000");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.recent"});
        scene.set("table", keys, json!({"live_rows": 5_000}));
    }),
    ("CPU-07", |scene| {
        waiting(scene, |second| if second % 4 == 1 { 30e6 } else { 2e3 });
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 95.0 + (second % 3) as f64);
    }),
    // Orders that the setting does not let be tried, and a step that the plan does not have.
    ("CFG-01", |scene| orders(scene, ("geqo", "off"), 9)),
    ("CFG-01", |scene| orders(scene, ("from_collapse_limit", "20"), 13)),
    ("CFG-01", |scene| compiled(scene, 1e10, ("enable_hashjoin", "off"))),
    ("PLAN-82", |scene| pairs(scene, 100.0, "", "")),
    ("PLAN-82", |scene| pairs(scene, 3_000.0, "(k.id = c.kind)", "")),
    ("PLAN-82", |scene| pairs(scene, 3_000.0, "", "(k.id = c.kind)")),
    ("PLAN-81", |scene| taken(scene, "(j.state = $2)")),
    ("SES-12", |scene| sleeps(scene, "select pg_sleep($1)")),
    ("WAL-13", |scene| switches(scene, 0)),
    ("CAP-05", |scene| keeps(scene, "256MB")),
    // All of it fits: what is kept, and what is added between two checkpoints.
    ("CAP-05", |scene| {
        keeps(scene, "850MB");
        scene.fact(json!({"node": "n1"}), "setting", "max_wal_size", "32MB");
    }),
    ("GEN-01", |scene| tried(scene, 60_000, 50_000)),
    ("GEN-01", |scene| tried(scene, 60, 0)),
    ("PLAN-76", |scene| compared(scene, 400.0, "(s.at = (SubPlan ?))")),
    ("PLAN-76", |scene| compared(scene, 9_000.0, "(hashed SubPlan ?)")),
    ("PLAN-77", |scene| page(scene, 40.0, "count(*) over ()")),
    ("PLAN-77", |scene| page(scene, 25_000.0, "row_number() over (order by at desc)")),
    ("PLAN-78", |scene| by_pattern(scene, "(o.path ~~ $2)")),
    ("PLAN-78", |scene| by_pattern(scene, "(o.region = r.region)")),
    ("PLAN-79", |scene| document(scene, FIELDS, "other json")),
    ("PLAN-79", |scene| document(scene, "select body from report where site = $1", "body json")),
    // Values that are compressed or moved out, and a small table.
    ("PLAN-80", |scene| wide(scene, 12_000_000, "name character(400)")),
    ("PLAN-80", |scene| wide(scene, 4_000_000, "name character(60)")),
    ("TXN-19", |scene| list(scene, "select id from line where wave = $1 for update", 900_000)),
    ("TXN-19", |scene| list(scene, "select id from line where wave = $1 for update skip locked", 3)),
    ("TXN-19", |scene| list(scene, "select id from line where wave = $1", 3)),
    ("VAC-17", |scene| session_table(scene, "400 300 90000")),
    ("VAC-17", |scene| session_table(scene, "900000 20000 90000000")),
    ("CPU-07", |scene| waiting(scene, |_| 8e6)),
    ("CPU-06", |scene| waiting(scene, |second| if second % 4 == 1 { 30e6 } else { 2e3 })),
    ("CFG-01", |scene| orders(scene, ("join_collapse_limit", "20"), 5)),
    ("CFG-01", |scene| orders(scene, ("join_collapse_limit", "10"), 13)),
    ("CFG-01", |scene| compiled(scene, 900.0, ("enable_seqscan", "off"))),
    ("CFG-01", |scene| compiled(scene, 900.0, ("jit_above_cost", "100000"))),
    ("CFG-01", |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "session_preload_libraries", "auto_explain");
    }),
];

/// Replay that waits for a lock which this command took on the primary.
fn replayed(scene: &mut Scene, command: &str) {
    replay(scene, "Lock", "relation");
    let session = json!({"node": "n2", "pid": 77, "backend": "client backend", "user": "report"});
    scene.set("session", session, json!({"query": "select count(*) from integration.queue"}));
    scene.event(1, record::event::QUERY, "", json!({"query_id": "77", "text": command}));
}

/// A table that is scanned while a loader has its index away.
fn loaded(scene: &mut Scene, made: &str) {
    statement(
        scene,
        "select count(*) from orders where customer = $1",
        json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000}),
        json!({}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"seq_scans": 6_000, "seq_rows": 1_200_000_000u64}));
    for (id, text) in [("70", "DROP INDEX orders_customer"), ("71", made)] {
        scene.event(1, record::event::QUERY, "", json!({"query_id": id, "text": text}));
    }
}

/// Rules, changes, and what their claims must say.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    ("PLAN-38", |scene| of_ranges(scene, 0.99), "the values of at are in the order of the table"),
    ("PLAN-38", |scene| of_ranges(scene, 0.1), "whose values are not in the order of the table"),
    ("SES-04", reserved, "44 of the 100 are reserved for superusers"),
    (
        "SES-04",
        |scene| {
            reserved(scene);
            scene.fact(json!({"node": "n1"}), "setting", "superuser_reserved_connections", "3");
        },
        "the 97 connections for all roles are in use; 3 of the 100 are reserved for superusers",
    ),
    (
        "SES-04",
        |scene| {
            scene.set("server", json!({"node": "n1"}), json!({"sessions_total": 97}));
        },
        "in 100 % of the samples the 97 connections for all roles are in use; 3 of the 100 are reserved",
    ),
    (
        "SES-04",
        |scene| {
            let more = json!({"node": "n1", "severity": "FATAL", "sqlstate": "53300"});
            scene.event(2, record::event::SERVER_LOG, "sorry, too many clients already", more);
        },
        "1 connection refused: all 100 are in use",
    ),
    ("PLAN-82", |scene| pairs(scene, 3_000.0, "", ""), "no condition joins them: a cross product"),
    ("GEN-01", |scene| tried(scene, 60_000, 60), "one in 1,000 executions stores a row"),
    (
        "PLAN-76",
        |scene| compared(scene, 9_000.0, "(s.at = (SubPlan ?))"),
        "a correlated subquery on public.state once for each of 9,000 rows",
    ),
    (
        "PLAN-77",
        |scene| page(scene, 25_000.0, "count(*) over ()"),
        "count(*) OVER () is a window over all of them",
    ),
    (
        "PLAN-78",
        |scene| by_pattern(scene, "(o.path ~~ (r.path || $2))"),
        "although there is index orders_path on it",
    ),
    (
        "PLAN-04",
        |scene| orders(scene, ("geqo", "on"), 11),
        "it joins 11 tables, whose orders the planner compares",
    ),
    (
        "REP-12",
        |scene| replayed(scene, "VACUUM integration.queue"),
        "the primary ran VACUUM integration.queue",
    ),
    (
        "PLAN-01",
        |scene| loaded(scene, "CREATE INDEX orders_customer ON orders (customer)"),
        "its index orders_customer is away, which is dropped and created again",
    ),
];

/// Rules, changes, and what their claims must not say.
const NOT_TOLD: &[(&str, Change, &str)] = &[
    // The index is on another column, or another schema's.
    ("PLAN-01", |scene| loaded(scene, "CREATE INDEX orders_customer ON orders (created)"), "is away"),
    (
        "PLAN-01",
        |scene| loaded(scene, "CREATE INDEX orders_customer ON archive.orders (customer)"),
        "is away",
    ),
    // No session of the standby has named the table.
    ("REP-12", |scene| replayed(scene, "VACUUM branches"), "the primary ran"),
    // A UNION joins nothing.
    (
        "PLAN-04",
        |scene| {
            let parts: Vec<String> = (0..11).map(|at| format!("select a from t{at}")).collect();
            let text = parts.join(" union all ");
            statement(scene, &text, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0}), json!({}));
        },
        "joins",
    ),
    // All partitions are left out: the parameter is that of our own plan.
    (
        "PLAN-04",
        |scene| {
            let figures = json!({"plan_ms": 30_000.0, "total_ms": 3_000.0});
            statement(
                scene,
                "select a from t where d = $1",
                figures,
                json!({"partitions": 64, "partitions_removed": 64}),
            );
        },
        "partitions",
    ),
];

#[test]
fn claims_leave_out_what_others_do() {
    for (rule, change, words) in NOT_TOLD {
        let claim = super::surplus::claim_of(rule, *change);
        assert!(!claim.contains(words), "{rule}: {claim}");
    }
    let other = super::again::refused_by("select max(no) + $1 as next_round from ticket", "");
    assert!(!other.contains("same next number"), "{other}");
}
