//! What only looks like a condition because a name, a setting or a size is like that of one, and what is then still found.

use super::plan::{node, statement};
use super::search::{on_name, pattern, scanned};
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A setting that is not the server's.
fn own(scene: &mut Scene, name: &str, owner: &str, value: &str) {
    scene.fact(n1(), "own_setting", &format!("{name} of {owner}"), value);
}

/// So many sessions of a role at work.
pub(crate) fn at_work(scene: &mut Scene, user: &str, sessions: u64) {
    let group =
        json!({"node": "n1", "application": "shop", "user": user, "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": sessions}));
}

/// A search that touches many blocks for few rows, in a table that lies in this tablespace.
fn searched(scene: &mut Scene, tablespace: &str) {
    statement(scene, "select id from orders where note = $1", json!({}), json!({}));
    let fields = json!({"relation": "public.orders", "filter": "(note = $1)", "table_rows": 900_000.0});
    node(scene, 1, 0, "Seq Scan", fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"tablespace": tablespace, "index_tablespaces": "pg_default"}));
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_note"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "note", "method": "btree", "valid": true, "partial": false}),
    );
}

/// The same with these two prices of pages.
fn priced(scene: &mut Scene, random: &str, in_order: &str) {
    scene.fact(n1(), "setting", "random_page_cost", random);
    scene.fact(n1(), "setting", "seq_page_cost", in_order);
    searched(scene, "pg_default");
}

/// A statement over three tables.
fn joined(scene: &mut Scene, text: &str) {
    statement(scene, text, json!({}), json!({}));
    for (number, relation) in [(1, "public.a"), (2, "public.b"), (3, "public.c")] {
        node(scene, number, 0, "Seq Scan", json!({"relation": relation}));
    }
}

const FLAT: &str = "select 1 from a, b, c where b.a = a.id and c.b = b.id and c.x = $1";
const JOINED: &str = "select 1 from a join b on b.a = a.id join c on c.b = b.id where c.x = $1";
const NESTED: &str =
    "select 1 from a, (select b.a, c.x from b, c where c.b = b.id) s where s.a = a.id and s.x = $1";

fn with(scene: &mut Scene, name: &str, value: &str, text: &str) {
    scene.fact(n1(), "setting", name, value);
    joined(scene, text);
}

/// Tables that are read one after another, of which so many rows are kept; what is known of the one that the statement names.
fn children(scene: &mut Scene, is_partition: bool, kept: f64, peculiar: &str) {
    scene.fact(n1(), "setting", "constraint_exclusion", "off");
    scene.fact(n1(), record::watched::PECULIAR, "public.p", peculiar);
    statement(scene, "select region, sum(v) from p where v > $1 group by region", json!({}), json!({}));
    node(scene, 1, 0, "Append", json!({}));
    for number in 2..=3 {
        let fields = json!({"relation": format!("public.p{number}"), "filter": "(v > $1)", "rows_planned": kept, "table_rows": 50_000.0,
            "partitioned": is_partition});
        node(scene, number, 1, "Seq Scan", fields);
    }
}

/// A statistics target of a thousand, and a statement with such times.
fn sampled(scene: &mut Scene, figures: Value) {
    scene.fact(n1(), "setting", "default_statistics_target", "1000");
    statement(scene, "select count(*) from a join b on b.x = a.x where a.id = $1", figures, json!({}));
}

/// A scan of jobs with this filter below nodes of these kinds.
fn locks(scene: &mut Scene, above: &[&str], kind: &str, relation: &str, filter: &str) {
    statement(scene, "select id from job where state = $1", json!({}), json!({}));
    for (number, kind) in (1..).zip(above) {
        node(scene, number, number - 1, kind, json!({}));
    }
    let last = above.len() as u64;
    let fields = json!({"relation": relation, "filter": filter, "table_rows": 60_000.0});
    node(scene, last + 1, last, kind, fields);
}

const LOCK: &str = "pg_try_advisory_xact_lock((id)::bigint)";

/// A table that is scanned at each execution although the plan has an index of such a class for a condition on columns of such a type.
fn unlike(scene: &mut Scene, condition: &str, types: &str, class: &str) {
    let text = "select count(*) from orders where note = $1";
    statement(scene, text, json!({"calls": 1000, "rows": 1000, "shared_hit": 2_000_000}), json!({}));
    let fields = json!({"relation": "public.orders", "condition": condition, "column_types": types});
    node(scene, 1, 0, "Bitmap Heap Scan", fields);
    node(scene, 2, 1, "Bitmap Index Scan", json!({"index": "orders_note", "condition": condition}));
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_note"});
    let index = json!({"columns": "note", "method": "gin", "operator_classes": class, "valid": true, "partial": false});
    scene.set("plan_index", keys, index);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}));
    scene.fact(n1(), "extension", "intarray", "1.5");
}

/// The same below an aggregate.
fn counted_search(scene: &mut Scene, condition: &str, types: &str, class: &str) {
    unlike(scene, condition, types, class);
    node(scene, 1, 3, "Bitmap Heap Scan", json!({}));
    node(scene, 3, 0, "Aggregate", json!({}));
}

/// The same for a column with frequent values.
fn frequent(scene: &mut Scene, most: &str) {
    unlike(scene, "(tenant = $1)", "tenant integer", "int4_ops");
    node(scene, 1, 0, "Bitmap Heap Scan", json!({"column_most": most}));
}

/// The same by a role that forbids what the plan does.
fn forbidden(scene: &mut Scene, condition: &str, types: &str, class: &str) {
    unlike(scene, condition, types, class);
    own(scene, "enable_bitmapscan", "role clerk", "off");
    at_work(scene, "clerk", 5);
}

/// A scan of a table although its column has trigrams.
fn short(scene: &mut Scene) {
    pattern(scene, "name ilike $1", "(name ~~* $1)");
    scanned(scene);
    on_name(scene, "gin", "gin_trgm_ops", "en-x-icu");
}

/// A search of all blocks by a BRIN index in the order of the table, of which so much is known to vacuum.
fn of_ranges(scene: &mut Scene, fields: Value) {
    statement(
        scene,
        "select max(level) from gauge where at between $1 and $2",
        json!({"calls": 100, "rows": 100, "shared_hit": 900_000}),
        json!({}),
    );
    let condition = "((gauge.at >= $1) AND (gauge.at <= $2))";
    let heap = json!({"relation": "public.gauge", "condition": condition, "rows_planned": 4_500.0, "table_rows": 900_000.0});
    node(scene, 1, 0, "Aggregate", json!({}));
    node(scene, 2, 1, "Bitmap Heap Scan", heap);
    node(scene, 3, 2, "Bitmap Index Scan", json!({"index": "gauge_at", "condition": condition}));
    let keys = json!({"node": "n1", "relation": "public.gauge", "index": "gauge_at"});
    let index = json!({"database": "db", "columns": "at", "method": "brin", "valid": true, "partial": false, "correlation": 0.99});
    scene.set("plan_index", keys, index);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.gauge"});
    scene.set(
        "table",
        keys.clone(),
        json!({"bytes": 73_728_000, "live_rows": 900_000, "planned_rows": 900_000, "dead_rows": 0}),
    );
    scene.set("table", keys, fields);
}

/// The same of a statement that returns few rows of ranges that are summarized.
fn spoilt_ranges(scene: &mut Scene) {
    of_ranges(scene, json!({"all_visible_share": 1.0}));
    let text = "select level from gauge where at between $1 and $2 order by level";
    statement(scene, text, json!({"calls": 100, "rows": 19_000, "shared_hit": 900_000}), json!({}));
    node(scene, 1, 0, "Sort", json!({"condition": "gauge.level"}));
}

/// A write of a table, and most of the blocks in another relation, which is a partition of this one.
fn touched(scene: &mut Scene, relation: &str, partition_of: &str) {
    let text = "update plan set n = n + $1 where n = $2";
    statement(scene, text, json!({"rows": 50, "shared_hit": 4_650}), json!({}));
    for (relation, hit) in [(relation, 26_000), ("public.usertable", 1_000)] {
        let keys = json!({"node": "n1", "database": "db", "relation": relation});
        scene.set("table", keys, json!({"bytes": 700_000, "live_rows": 20_000, "planned_rows": 20_000, "analyzes_total": 1, "analyzed_s": 60.0,
            "blocks_hit": hit, "blocks_read": 0, "indexes": 1, "partition_of": partition_of}));
    }
}

/// A part of the plan of that write.
fn read(scene: &mut Scene, is_subquery: bool) {
    touched(scene, "public.holiday", "");
    node(scene, 1, 0, "ModifyTable", json!({"relation": "public.plan"}));
    node(scene, 2, 1, "Append", json!({"subquery": is_subquery}));
    node(scene, 3, 2, "Seq Scan", json!({"relation": "public.holiday"}));
}

/// A statement of which most samples sleep: its text, its mean time, and the oldest transaction.
fn sleeps(scene: &mut Scene, text: &str, mean_ms: f64, oldest_s: f64) {
    statement(scene, text, json!({"calls": 10, "total_ms": mean_ms * 10.0}), json!({}));
    for (kind, event, sessions) in [("Timeout", "PgSleep", 3), ("CPU", "CPU", 1)] {
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
        scene.set("wait", keys, json!({"sessions": sessions}));
    }
    scene.set("server", n1(), json!({"oldest_transaction_s": oldest_s}));
}

/// Calls of pg_switch_wal in ten seconds, and by how many bytes the WAL goes on in one.
fn switches(scene: &mut Scene, text: &str, calls: u64, bytes: f64) {
    scene.event(1, record::event::QUERY, "", json!({"query_id": "70", "text": text}));
    let keys = json!({"node": "n1", "database": "db", "query_id": "70"});
    scene.set("statement", keys, json!({"calls": calls, "rows": calls, "total_ms": 5.0}));
    scene.vary("server", n1(), "wal_position_bytes_total", move |second| 1e9 + second as f64 * bytes);
}

const SWITCH: &str = "select pg_switch_wal()";
const SWITCH_IF: &str =
    "select case when pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1) < $2 then pg_switch_wal() end";

/// Inserts of keys that are there already.
fn repeated(scene: &mut Scene, end: &str) {
    let text = format!("insert into code (no) values ($1) on conflict (no) do nothing{end}");
    statement(scene, &text, json!({"calls": 60_000, "rows": 60, "total_ms": 9_000.0}), json!({}));
}

/// Rules, levels and changes.
pub(super) const CASES: &[Fires] = &[
    ("CFG-01", Co, |scene| {
        own(scene, "random_page_cost", "tablespace archive", "300");
        searched(scene, "archive");
    }),
    ("CFG-01", Co, |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "clerk", 5);
        joined(scene, JOINED);
    }),
    ("CFG-01", Co, |scene| children(scene, false, 300.0, "40 tables inherit from it")),
    ("CFG-01", Co, |scene| with(scene, "from_collapse_limit", "1", NESTED)),
    ("CFG-01", Co, |scene| with(scene, "geqo_threshold", "3", FLAT)),
    ("CFG-01", Co, |scene| {
        priced(scene, "0.1", "1");
        let fields = json!({"index": "orders_note", "rows_planned": 5_000.0, "filter": "", "condition": "(note = $1)"});
        node(scene, 1, 0, "Index Scan", fields);
    }),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "effective_cache_size", "32MB");
        searched(scene, "pg_default");
    }),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "deadlock_timeout", "1ms");
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 5}));
        scene.set("wait", wait("n1", "LWLock", "LockManager"), json!({"sessions": 2}));
    }),
    ("CFG-01", Co, |scene| sampled(scene, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0}))),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "default_statistics_target", "10000");
        statement(scene, "ANALYZE orders", json!({}), json!({}));
    }),
    ("PLAN-81", Co, |scene| locks(scene, &["Limit"], "Seq Scan", "public.job", LOCK)),
    ("PLAN-81", Co, |scene| locks(scene, &[], "Seq Scan", "public.job", "pg_advisory_lock_shared(id)")),
    ("PLAN-49", Co, |scene| touched(scene, "public.holiday", "")),
    ("PLAN-49", Co, |scene| read(scene, true)),
    ("WAL-13", Counter, |scene| switches(scene, SWITCH, 20, 2.0 * 16_777_216.0)),
    ("WAL-13", Counter, |scene| switches(scene, SWITCH_IF, 20, 2.0 * 16_777_216.0)),
    ("GEN-01", Counter, |scene| repeated(scene, " returning no")),
    ("SES-12", Counter, |scene| sleeps(scene, "call poll_jobs()", 9_000.0, 9.0)),
    ("PLAN-11", Co, short),
    ("PLAN-38", Co, |scene| of_ranges(scene, json!({"all_visible_share": 0.0}))),
    // Most of the rows came after the last vacuum.
    ("PLAN-38", Co, |scene| of_ranges(scene, json!({"all_visible_share": 0.99, "planned_rows": 300_000}))),
    // Late rows in each range: it touches all blocks for the few rows that it returns.
    ("PLAN-38", Co, spoilt_ranges),
    ("PLAN-21", Counter, |scene| forbidden(scene, "(note ~~ $1)", "note text", "gin_trgm_ops")),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // A tablespace without a table of the statement, and roles that are not at work, or for less time than the statement takes.
    ("CFG-01", |scene| {
        own(scene, "random_page_cost", "tablespace unused", "0.1");
        searched(scene, "pg_default");
    }),
    ("CFG-01", |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "shop", 5);
        joined(scene, JOINED);
    }),
    ("CFG-01", |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "clerk", 1);
        at_work(scene, "shop", 9);
        joined(scene, JOINED);
    }),
    // Partitions, the branches of a UNION, and children of which a condition keeps most rows.
    ("CFG-01", |scene| children(scene, true, 300.0, "partitioned by LIST (region)")),
    ("CFG-01", |scene| children(scene, false, 300.0, "")),
    ("CFG-01", |scene| children(scene, false, 30_000.0, "40 tables inherit from it")),
    // Tables in a list, fewer of them than the threshold, and none of many orders without the genetic optimizer.
    ("CFG-01", |scene| with(scene, "from_collapse_limit", "1", FLAT)),
    ("CFG-01", |scene| with(scene, "from_collapse_limit", "1", JOINED)),
    ("CFG-01", |scene| with(scene, "join_collapse_limit", "1", FLAT)),
    ("CFG-01", |scene| with(scene, "geqo_threshold", "5", FLAT)),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "geqo", "off");
        with(scene, "geqo_threshold", "3", FLAT);
    }),
    // The price of a database that is in memory: it is the same in any order.
    ("CFG-01", |scene| priced(scene, "0.1", "0.1")),
    // A column with such a name, a lock that is given back, and rows that a subquery with LIMIT has chosen.
    ("PLAN-81", |scene| {
        locks(scene, &[], "Seq Scan", "public.job", "((advisory_level = $1) AND (advisory_kind = $2))")
    }),
    ("PLAN-81", |scene| locks(scene, &[], "Seq Scan", "public.job", "pg_advisory_unlock(id)")),
    ("PLAN-81", |scene| locks(scene, &["Aggregate"], "CTE Scan", "", LOCK)),
    ("PLAN-81", |scene| {
        locks(scene, &["Nested Loop"], "Index Scan", "public.job", LOCK);
        node(scene, 2, 1, "Index Scan", json!({"condition": "(id = next.id)"}));
        node(scene, 3, 1, "Limit", json!({}));
    }),
    // A vacuum has summarized the ranges: the statement wants most of them, or each has a row that is out of order.
    ("PLAN-38", |scene| of_ranges(scene, json!({"all_visible_share": 1.0}))),
    // A partition of the table that is written, one of a partition, and what the plan itself reads.
    ("PLAN-49", |scene| touched(scene, "public.plan_2", "public.plan")),
    ("PLAN-49", |scene| {
        touched(scene, "public.plan_2_a", "public.plan_2");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.plan_2"});
        scene.set("table", keys, json!({"bytes": 0, "partition_of": "public.plan"}));
    }),
    ("PLAN-49", |scene| read(scene, false)),
    // Calls that close no file: nothing was written since the last one, or the condition is not true.
    ("WAL-13", |scene| switches(scene, SWITCH, 25, 16_777_216.0 / 10.0)),
    ("WAL-13", |scene| switches(scene, SWITCH_IF, 50, 0.0)),
    // Rows that are deleted with the one that they refer to, each by an index.
    ("PLAN-49", |scene| {
        touched(scene, "public.holiday", "");
        let keys = json!({"node": "n1", "database": "db", "relation": "public.holiday"});
        scene.set("table", keys, json!({"rows_deleted": 12_000}));
    }),
    // Prices of pages and rows where the plan had no choice, and a limit of time that nothing reaches.
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "random_page_cost", "0.3");
        searched(scene, "pg_default");
    }),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "effective_cache_size", "32MB");
        statement(scene, "select sum(note) from orders", json!({}), json!({}));
        node(scene, 1, 0, "Aggregate", json!({}));
        node(scene, 2, 1, "Seq Scan", json!({"relation": "public.orders"}));
    }),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "deadlock_timeout", "40ms");
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 5}));
    }),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "archive_timeout", "10s");
        scene.fact(n1(), "setting", "archive_mode", "off");
    }),
    // Statistics whose price is not seen.
    ("CFG-01", |scene| sampled(scene, json!({"plan_ms": 30.0, "total_ms": 30_000.0}))),
];

/// Claims, and words that they have.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    (
        "CFG-01",
        |scene| {
            own(scene, "join_collapse_limit", "role clerk", "1");
            at_work(scene, "clerk", 5);
            joined(scene, JOINED);
        },
        "for role clerk",
    ),
    (
        "PLAN-21",
        |scene| forbidden(scene, "(note ~~ $1)", "note text", "gin_trgm_ops"),
        "enable_bitmapscan is off for role clerk",
    ),
    ("PLAN-21", |scene| unlike(scene, "(note ~~ $1)", "note text", "gin_trgm_ops"), "fewer than three"),
    ("PLAN-11", short, "fewer than three"),
    ("GEN-01", |scene| repeated(scene, " returning no"), "in vain"),
    (
        "WAL-13",
        |scene| {
            scene.fact(n1(), "setting", "wal_segment_size", "64MB");
            switches(scene, SWITCH, 20, 2.0 * 67_108_864.0);
        },
        "64 MB",
    ),
    ("SES-12", |scene| sleeps(scene, "call poll_jobs()", 50_000.0, 0.5), "between its transactions"),
    (
        "PLAN-11",
        |scene| {
            scene.fact(n1(), "setting", "enable_bitmapscan", "off");
            short(scene);
        },
        "enable_bitmapscan is off",
    ),
    ("PLAN-21", |scene| unlike(scene, "(note @> $1)", "note integer[]", "array_ops"), "intarray"),
    ("PLAN-21", |scene| frequent(scene, "tenant 0.93"), "one value of tenant is in 93 % of the rows"),
    ("PLAN-24", |scene| of_tenant(scene, "o.tenant = $1", 0.4), "one value of tenant is in 40 % of the rows"),
    // An aggregate hides how many rows a search finds.
    (
        "PLAN-21",
        |scene| counted_search(scene, "(note @@ $1)", "note tsvector", "tsvector_ops"),
        "depends on the values",
    ),
];

/// Orders of a tenant with their items, of which executions touch far more than the plan expects; the most frequent tenant has this share of the orders.
fn of_tenant(scene: &mut Scene, condition: &str, most: f64) {
    let text =
        format!("select sum(i.price) from orders o join items i on i.order_id = o.id where {condition}");
    statement(
        scene,
        &text,
        json!({"calls": 100, "rows": 100, "shared_hit": 28_000_000}),
        json!({"cost_total": 258.0}),
    );
    node(scene, 1, 0, "Aggregate", json!({"cost_total": 258.0}));
    node(scene, 2, 1, "Nested Loop", json!({"cost_total": 256.0, "rows_planned": 92.0}));
    let orders = json!({"relation": "public.orders", "alias": "o", "index": "orders_tenant", "condition": format!("({condition})"), "rows_planned": 46.0,
        "table_rows": 500_000.0, "cost_total": 3.4, "column_most": format!("tenant {most}")});
    node(scene, 3, 2, "Index Scan", orders);
    let items = json!({"relation": "public.items", "alias": "i", "index": "items_order", "condition": "(i.order_id = o.id)", "rows_planned": 3.0,
        "table_rows": 1_000_000.0, "cost_total": 4.9});
    node(scene, 4, 2, "Index Scan", items);
}

/// Claims, and words that they must not have.
const NOT_TOLD: &[(&str, Change, &str)] = &[
    ("CFG-01", |scene| sampled(scene, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0})), "300 times"),
    ("PLAN-21", |scene| forbidden(scene, "(note ~~ $1)", "note text", "gin_trgm_ops"), "fewer than three"),
    (
        "PLAN-11",
        |scene| {
            own(scene, "enable_bitmapscan", "role clerk", "off");
            at_work(scene, "clerk", 5);
            short(scene);
        },
        "fewer than three",
    ),
    ("GEN-01", |scene| repeated(scene, ""), "in vain"),
    ("SES-12", |scene| sleeps(scene, "select login($1)", 9_000.0, 9.0), "between its transactions"),
    ("SES-12", |scene| sleeps(scene, "call poll_jobs()", 50_000.0, 0.5), "on purpose"),
    ("PLAN-21", |scene| unlike(scene, "(note @> $1)", "note jsonb", "jsonb_ops"), "intarray"),
    ("PLAN-21", |scene| unlike(scene, "(note @> $1)", "note text[]", "array_ops"), "intarray"),
    ("PLAN-21", |scene| frequent(scene, "tenant 0.02; state 0.93"), "one value of"),
    // Of even values, and of a constant that the planner sees, the plan knows how many there are.
    ("PLAN-24", |scene| of_tenant(scene, "o.tenant = $1", 0.0001), "one value of"),
    ("PLAN-24", |scene| of_tenant(scene, "o.tenant = 7", 0.4), "one value of"),
    // A loop that searches as often as planned, by the index scans of its inner table.
    ("PLAN-24", |scene| super::hidden::looped(scene, 103), "nested loop"),
    // The rows that it returns are all that it finds.
    (
        "PLAN-21",
        |scene| unlike(scene, "(note @@ $1)", "note tsvector", "tsvector_ops"),
        "depends on the values",
    ),
    (
        "PLAN-21",
        |scene| counted_search(scene, "(note = $1)", "note text", "text_ops"),
        "depends on the values",
    ),
];

#[test]
fn claims_of_what_is_alike_leave_out_the_wrong_reason() {
    for (rule, change, words) in NOT_TOLD {
        let claim = super::surplus::claim_of(rule, *change);
        assert!(!claim.is_empty() && !claim.contains(words), "{rule}: {claim}");
    }
}

#[test]
fn what_the_record_does_not_decide_is_low() {
    use record::finding::Severity;
    let cases: [(&str, Change, Severity); 9] = [
        ("GEN-01", |scene| repeated(scene, " returning no"), Severity::Medium),
        ("GEN-01", |scene| repeated(scene, ""), Severity::Low),
        ("WAL-13", |scene| switches(scene, SWITCH, 20, 2.0 * 16_777_216.0), Severity::Medium),
        ("WAL-13", |scene| switches(scene, SWITCH_IF, 20, 2.0 * 16_777_216.0), Severity::Low),
        ("SES-12", |scene| sleeps(scene, "select login($1)", 9_000.0, 9.0), Severity::High),
        (
            "SES-12",
            |scene| sleeps(scene, "select m.id from mail m where next_mail(m.id)", 9_000.0, 9.0),
            Severity::Medium,
        ),
        ("SES-12", |scene| sleeps(scene, "call poll_jobs()", 9_000.0, 9.0), Severity::Low),
        ("SES-12", |scene| sleeps(scene, "call poll_jobs()", 50_000.0, 0.5), Severity::Note),
        (
            "PLAN-38",
            |scene| of_ranges(scene, json!({"all_visible_share": 0.0, "dead_rows": 90_000})),
            Severity::Low,
        ),
    ];
    for (rule, change, expected) in cases {
        let mut scene = Scene::healthy();
        change(&mut scene);
        let found = scene.explain().findings.into_iter().find(|finding| finding.rule == rule);
        assert_eq!(found.map(|finding| finding.severity), Some(expected), "{rule}");
    }
}

#[test]
fn a_setting_of_a_role_is_low_where_others_may_execute_the_statement() {
    use record::finding::Severity;
    for (others, expected) in [(1, Severity::High), (4, Severity::Low)] {
        let mut scene = Scene::healthy();
        own(&mut scene, "join_collapse_limit", "role clerk", "1");
        at_work(&mut scene, "clerk", 5);
        at_work(&mut scene, "shop", others);
        joined(&mut scene, JOINED);
        let found = scene.explain().findings.into_iter().find(|finding| finding.rule == "CFG-01");
        assert_eq!(found.map(|finding| finding.severity), Some(expected), "{others}");
    }
}
