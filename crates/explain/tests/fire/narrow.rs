//! Statements that find, join or count far more than they want, errors and polls, and what only looks like them.

use super::plan::{index, node, scan, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::{Value, json};

/// A search by an index of one column that finds so many rows, of which a filter keeps so many.
fn found(scene: &mut Scene, rows: f64, kept: f64, filter: &str) {
    statement(scene, "select title from orders where customer = $1 and ref = $2", json!({}), json!({}));
    let heap = json!({"relation": "public.orders", "alias": "orders", "condition": "(orders.customer = $1)", "filter": filter,
        "rows_planned": kept, "table_rows": 1_000_000.0});
    node(scene, 1, 0, "Bitmap Heap Scan", heap);
    let below =
        json!({"index": "orders_customer", "condition": "(orders.customer = $1)", "rows_planned": rows});
    node(scene, 2, 1, "Bitmap Index Scan", below);
    index(scene, "orders_customer", "customer", true);
}

/// A join under DISTINCT: rows of the join, and rows that it leaves.
fn distinct(scene: &mut Scene, text: &str, given: f64, left: f64) {
    statement(scene, text, json!({"shared_hit": 20_000}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"rows_planned": left}));
    node(scene, 2, 1, "Hash Join", json!({"rows_planned": given}));
}

const FANNED: &str =
    "select distinct c.id, c.name from customer c join purchase p on p.customer = c.id where c.region = $1";

fn counted(scene: &mut Scene, text: &str) {
    statement(scene, text, json!({"shared_hit": 20_000}), json!({}));
}

/// A search by an OR, with these columns indexed.
fn either(scene: &mut Scene, filter: &str, indexed: &[&str], kept: f64) {
    scan(scene, filter, "mail text; phone text");
    node(scene, 1, 0, "Seq Scan", json!({"rows_planned": kept}));
    for column in indexed {
        index(scene, &format!("orders_{column}"), column, true);
    }
}

fn off(scene: &mut Scene, name: &str, kind: &str) {
    scene.fact(json!({"node": "n1"}), "setting", "enable_nestloop", "on");
    scene.fact(json!({"node": "n1"}), "setting", name, "off");
    statement(scene, "select o.id from orders o join line l on l.o = o.id", json!({}), json!({}));
    node(scene, 1, 0, kind, json!({}));
}

/// An error of the log that comes again and again.
fn errors(scene: &mut Scene, (severity, sqlstate): (&str, &str), message: &str, repeated: u64) {
    let fields = json!({"node": "n1", "severity": severity, "sqlstate": sqlstate, "repeated": repeated});
    scene.event(5, record::event::SERVER_LOG, message, fields);
}

/// What the engine of a cluster logs so often at these seconds while a node is away.
fn not_online(scene: &mut Scene, seconds: &[u64], repeated: u64) {
    let away = "[MTM] multimaster node is not online; [MTM] failed to collect";
    scene.fact(json!({"node": "n1"}), record::watched::OWN, record::watched::own::AWAY, away);
    let fields = json!({"node": "n1", "severity": "ERROR", "sqlstate": "XX000", "repeated": repeated});
    for second in seconds {
        let message = "[MTM] multimaster node is not online: current status isolated";
        scene.event(*second, record::event::SERVER_LOG, message, fields.clone());
    }
}

/// A statement that runs so often and returns so many rows each time.
fn polls(scene: &mut Scene, text: &str, calls: u64, rows: u64) {
    statement(scene, text, json!({"calls": calls, "rows": rows, "shared_hit": calls}), json!({}));
}

/// A session that is at this statement whenever it is looked at, in a transaction of 16 s, for so many seconds each time.
fn always_at(scene: &mut Scene, query: &str, state_age_s: f64) {
    let fields = json!({"backend": "client backend", "application": "crm-export", "user": "u", "database": "db", "state": "idle in transaction",
        "xact_age_s": 16.8, "state_age_s": state_age_s, "query": query});
    scene.set("session", json!({"node": "n1", "pid": 31_768}), fields);
}

/// Seconds in which a vacuum works on one table, and another has far more dead rows than live ones.
fn left_alone(scene: &mut Scene, relation: &str) {
    scene.seconds = 25;
    let keys = json!({"node": "n1", "pid": 900, "command": "vacuum", "relation": "public.big"});
    scene.set("progress", keys, json!({"phase": "scanning heap", "total": 1_000_000u64, "done": 5000, "unit": "blocks", "auto": true, "index_passes": 0}));
    let keys = json!({"node": "n1", "database": "db", "relation": relation});
    scene.set("table", keys.clone(), json!({"live_rows": 2_000, "dead_rows": 400_000})).during(
        "table",
        keys,
        1..=1,
    );
}

/// The memory of the sessions of an application.
fn grows(scene: &mut Scene, bytes: fn(u64) -> f64) {
    let keys = json!({"node": "n1", "application": "billing", "user": "app"});
    scene.set("session_memory", keys.clone(), json!({"sessions": 8, "longest_statement_s": 0.4}));
    scene.vary("session_memory", keys, "private_bytes", bytes);
}

const BAND: &str = "select sum(c.n * t.rate) from claim c join tariff t on t.code = c.code and c.at >= t.valid_from and c.at < t.valid_to where c.at > $1";

/// A join that takes far longer than it reads, with a loop over so many rows whose inner side is of this kind.
fn banded(scene: &mut Scene, text: &str, (kind, rows): (&str, f64)) {
    statement(
        scene,
        text,
        json!({"calls": 300, "rows": 300, "total_ms": 90_000.0, "shared_hit": 3_000_000}),
        json!({}),
    );
    node(
        scene,
        1,
        0,
        "Nested Loop",
        json!({"filter": "((c.at >= t.valid_from) AND (c.at < t.valid_to))", "rows_planned": 400_000}),
    );
    node(
        scene,
        2,
        1,
        "Seq Scan",
        json!({"relation": "public.tariff", "rows_planned": rows, "table_rows": rows}),
    );
    let condition =
        if kind == "Index Scan" { "((c.at >= t.valid_from) AND (c.at < t.valid_to))" } else { "" };
    node(scene, 3, 1, kind, json!({"relation": "public.claim", "rows_planned": 11, "condition": condition}));
}

/// Counters that are reset at these seconds.
fn reset(scene: &mut Scene, what: &str, seconds: &[u64]) {
    for second in seconds {
        scene.event(*second, "reset", "n1: counters decreased", json!({"node": "n1", "what": what}));
    }
}

const POLL: &str = "select id from mail where state = $1 order by id limit $2 for update skip locked";

/// A table that is scanned: blocks and rows of a scan, and the share of its pages that are visible to all.
fn scanned(scene: &mut Scene, (blocks, rows): (u64, u64), visible: f64, more: Value) {
    statement(scene, "select count(*) from cart where state = $1", json!({}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.cart"});
    scene.set("table", keys.clone(), json!({"bytes": blocks * 8192, "live_rows": rows, "dead_rows": 0, "planned_rows": rows, "analyzes_total": 1,
        "analyzed_s": 60.0, "seq_scans": 5_000, "seq_rows": rows * 5_000, "blocks_hit": blocks * 5_000, "blocks_read": 0, "index_rows": 0,
        "all_visible_share": visible}));
    scene.set("table", keys, more);
}

/// A partial index, and what the search is for.
fn partial(scene: &mut Scene, filter: &str, kept: f64) {
    scan(scene, filter, "");
    node(scene, 1, 0, "Seq Scan", json!({"rows_planned": kept}));
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_live"});
    let definition = "CREATE INDEX orders_live ON public.orders USING btree (customer) WHERE (NOT deleted)";
    scene.set("plan_index", keys, json!({"columns": "customer", "method": "btree", "valid": true, "partial": true, "definition": definition}));
}

const OR: &str = "((orders.mail = $1) OR (orders.phone = $2))";
const WORDS: &str = "(to_tsvector($1, orders.body) @@ plainto_tsquery($2, $3))";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-11", Co, |scene| partial(scene, "((deleted IS NOT TRUE) AND (customer = $1))", 5.0)),
    ("PLAN-51", Counter, |scene| counted(scene, "select count(*) > $1 from orders where customer = $2")),
    ("PLAN-51", Counter, |scene| {
        counted(scene, "select count(*) <> 0 as is_there from orders where customer = $2")
    }),
    ("PLAN-52", Counter, |scene| distinct(scene, FANNED, 60_000.0, 1_000.0)),
    ("PLAN-53", Co, |scene| found(scene, 10_000.0, 1.0, "(orders.ref = $2)")),
    ("PLAN-54", Co, |scene| scan(scene, WORDS, "body text")),
    ("PLAN-54", Co, |scene| scan(scene, "(tags @> $1)", "tags text[]")),
    ("PLAN-54", Co, |scene| scan(scene, "(orders.at && $1)", "at tsrange")),
    ("PLAN-55", Co, |scene| either(scene, OR, &["mail"], 2.0)),
    ("PLAN-55", Co, |scene| either(scene, OR, &[], 2.0)),
    ("PLAN-56", Co, |scene| off(scene, "enable_nestloop", "Hash Join")),
    ("TXN-13", Counter, |scene| {
        errors(scene, ("FATAL", "25P03"), "terminating connection due to idle-in-transaction timeout", 600)
    }),
    ("TXN-13", Counter, |scene| {
        errors(scene, ("ERROR", "42P01"), "relation \"new_table\" does not exist", 900)
    }),
    ("REP-13", Counter, |scene| not_online(scene, &[40, 50, 60], 0)),
    ("REP-13", Counter, |scene| not_online(scene, &[100], 400)),
    ("TXN-13", Counter, |scene| errors(scene, ("ERROR", "22012"), "division by zero", 900)),
    ("SES-08", Counter, |scene| polls(scene, POLL, 200_000, 0)),
    // What it returns does not show whether it got the lock.
    ("SES-08", Co, |scene| polls(scene, "select pg_try_advisory_lock($1)", 200_000, 200_000)),
    ("TXN-11", Counter, |scene| polls(scene, "FETCH 1 FROM invoices", 400_000, 400_000)),
    ("TXN-11", Co, |scene| always_at(scene, "fetch forward 1 from exp", 0.002)),
    // The plan for unknown values has more searches than executions touch blocks; or a filter of the join compares.
    ("PLAN-95", Co, |scene| banded(scene, BAND, ("Index Scan", 40_000.0))),
    ("PLAN-95", Co, |scene| banded(scene, BAND, ("Seq Scan", 20.0))),
    ("MEM-08", Counter, |scene| grows(scene, |second| 400e6 + second as f64 * 12e6)),
    ("VAC-18", Counter, |scene| reset(scene, record::event::DATABASES, &[10, 40, 95])),
    ("VAC-03", Counter, |scene| {
        left_alone(scene, "public.parcel");
        scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 3}));
    }),
    // Pages that were visible to all before these deletes.
    ("VAC-11", Co, |scene| {
        scanned(
            scene,
            (9_000, 20_000),
            1.0,
            json!({"live_rows": 20_000, "dead_rows": 560_000, "rows_deleted": 390_000, "rows_inserted": 390_000}),
        )
    }),
    ("VAC-14", Counter, |scene| scanned(scene, (9_000, 1_000), 0.99, json!({}))),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    ("PLAN-11", |scene| partial(scene, "((deleted IS NOT TRUE) AND (customer = $1))", 900_000.0)),
    // The number is wanted, each group's, or few rows are read.
    ("PLAN-51", |scene| counted(scene, "select count(*) from orders where customer = $2")),
    ("PLAN-51", |scene| counted(scene, "select customer, count(*) > $1 from orders group by customer")),
    // The join makes few duplicates, or DISTINCT is about groups.
    ("PLAN-52", |scene| distinct(scene, FANNED, 1_500.0, 1_000.0)),
    ("PLAN-52", |scene| {
        distinct(
            scene,
            "select c.id, count(*) from customer c join purchase p on p.customer = c.id group by c.id",
            60_000.0,
            1_000.0,
        )
    }),
    // Most of what is found is wanted, the filter compares no values, or there is an index of both.
    ("PLAN-53", |scene| found(scene, 10_000.0, 8_000.0, "(orders.ref = $2)")),
    ("PLAN-53", |scene| found(scene, 10_000.0, 1.0, "(lower(orders.ref) = $2)")),
    ("PLAN-53", |scene| found(scene, 50.0, 1.0, "(orders.ref = $2)")),
    ("PLAN-53", |scene| {
        found(scene, 10_000.0, 1.0, "(orders.ref = $2)");
        index(scene, "orders_both", "customer; ref", true);
    }),
    // An index is there, or a B-tree serves it.
    ("PLAN-54", |scene| {
        scan(scene, "(tags @> $1)", "tags text[]");
        let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_tags"});
        scene.set(
            "plan_index",
            keys,
            json!({"columns": "tags", "method": "gin", "valid": true, "partial": false}),
        );
    }),
    ("PLAN-54", |scene| scan(scene, "(name = $1)", "name text")),
    // Both sides have an index, most rows are wanted, or there is no OR.
    ("PLAN-55", |scene| either(scene, OR, &["mail", "phone"], 2.0)),
    ("PLAN-55", |scene| either(scene, OR, &["mail"], 600_000.0)),
    ("PLAN-55", |scene| either(scene, "((orders.mail = $1) AND (orders.phone = $2))", &["mail"], 2.0)),
    ("PLAN-56", |scene| off(scene, "enable_nestloop", "Index Scan")),
    ("PLAN-56", |scene| off(scene, "enable_hashjoin", "Hash Join")),
    // Few errors, and those that other rules explain.
    ("REP-13", |scene| not_online(scene, &[40], 3)),
    ("REP-13", |scene| {
        errors(scene, ("ERROR", "XX000"), "[MTM] multimaster node is not online: current status", 900)
    }),
    ("TXN-13", |scene| not_online(scene, &[40, 50, 60], 900)),
    ("TXN-13", |scene| errors(scene, ("ERROR", "42P01"), "relation \"new_table\" does not exist", 3)),
    ("TXN-13", |scene| errors(scene, ("ERROR", "40001"), "could not serialize access", 900)),
    ("TXN-13", |scene| {
        errors(scene, ("ERROR", "57014"), "canceling statement due to statement timeout", 900)
    }),
    ("SES-08", |scene| polls(scene, POLL, 200_000, 150_000)),
    ("SES-08", |scene| polls(scene, POLL, 900, 0)),
    ("SES-08", |scene| polls(scene, "select pg_try_advisory_lock($1)", 900, 900)),
    ("SES-08", |scene| {
        polls(scene, "select id from job where pg_try_advisory_xact_lock($1)", 200_000, 200_000)
    }),
    ("TXN-11", |scene| polls(scene, "FETCH 1000 FROM invoices", 400_000, 400_000_000)),
    ("TXN-11", |scene| polls(scene, "FETCH 1 FROM invoices", 9_000, 9_000)),
    ("VAC-18", |scene| reset(scene, record::event::DATABASES, &[10, 40])),
    ("PLAN-95", |scene| {
        banded(
            scene,
            "select sum(c.n) from claim c join tariff t on t.code = c.code where c.at >= $1 and c.at < $2",
            ("Seq Scan", 20.0),
        )
    }),
    // It reads what it compares.
    ("PLAN-95", |scene| {
        banded(scene, BAND, ("Seq Scan", 20.0));
        statement(
            scene,
            BAND,
            json!({"calls": 300, "rows": 300, "total_ms": 90_000.0, "shared_hit": 30_000_000}),
            json!({}),
        );
    }),
    // They stay as they are, have what they need after a while, give back what a statement needed, or hash in a long one.
    ("MEM-08", |scene| grows(scene, |_| 400e6)),
    // The caches of new sessions fill in a short recording.
    ("MEM-08", |scene| {
        scene.seconds = 13;
        grows(scene, |second| 400e6 + second as f64 * 12e6);
    }),
    ("MEM-08", |scene| grows(scene, |second| 400e6 + (second as f64).min(60.0) * 12e6)),
    ("MEM-08", |scene| grows(scene, |second| 400e6 + (second % 20) as f64 * 12e6)),
    ("MEM-08", |scene| {
        grows(scene, |second| 400e6 + second as f64 * 12e6);
        scene.set(
            "session_memory",
            json!({"node": "n1", "application": "billing", "user": "app"}),
            json!({"longest_statement_s": 40.0}),
        );
    }),
    ("MEM-08", |scene| {
        grows(scene, |second| 400e6 + second as f64 * 12e6);
        let keys = json!({"node": "n1", "application": "billing", "user": "app"});
        scene.vary("session_memory", keys, "sessions", |second| 8.0 + second as f64 / 4.0);
    }),
    ("VAC-18", |scene| reset(scene, record::event::DATABASES, &[1, 2, 179])),
    ("VAC-18", |scene| reset(scene, "statements", &[10, 40, 95])),
    // A short recording: workers are busy, and with the only table that has many dead rows; or one is free.
    ("VAC-03", |scene| {
        left_alone(scene, "public.big");
        scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 3}));
    }),
    ("VAC-03", |scene| {
        left_alone(scene, "public.parcel");
        scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 2}));
    }),
    // The WAL of half a minute may be what grows once and then stays.
    ("CAP-03", |scene| {
        scene.seconds = 30;
        scene.drop_source("load");
        let mount = json!({"host": "h1", "mount": "/data"});
        scene.set("mount", mount.clone(), json!({"size_bytes": 100_000_000_000u64}));
        scene.vary("mount", mount, "free_bytes", |second| 5e10 - second as f64 * 3e7);
    }),
    ("SES-08", |scene| polls(scene, "insert into mail values ($1) on conflict do nothing", 200_000, 0)),
    // Full pages, pages of which no vacuum knows, and scans that end early.
    ("VAC-14", |scene| scanned(scene, (9_000, 400_000), 0.99, json!({}))),
    // A page that is 95 % full: one plain value fills it.
    ("VAC-14", |scene| scanned(scene, (6_000, 5_700), 0.99, json!({}))),
    ("VAC-14", |scene| scanned(scene, (9_000, 1_000), 0.1, json!({}))),
    ("VAC-14", |scene| scanned(scene, (9_000, 1_000), 0.99, json!({"planned_rows": 500_000}))),
    // Deletes that were counted after the vacuum.
    ("TXN-11", |scene| always_at(scene, "fetch 1000 from exp", 0.002)),
    ("TXN-11", |scene| always_at(scene, "fetch all in exp", 0.002)),
    ("TXN-11", |scene| always_at(scene, "fetch 1 from exp", 16.0)),
    ("VAC-11", |scene| scanned(scene, (9_000, 1_000), 0.99, json!({"live_rows": 0, "dead_rows": 299_000}))),
];
