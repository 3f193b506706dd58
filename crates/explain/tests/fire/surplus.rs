//! Work that the result does not need: joins, rows and values that are read for nothing, rows that come back; and what only looks like it.

use super::plan::{index, node, scan, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use record::event;
use serde_json::{Value, json};

/// Outer joins with two tables of so many rows, of which the flag says whether nothing is read.
fn joined(scene: &mut Scene, rows: f64, adds_nothing: bool) {
    statement(
        scene,
        "select sum(amount) from order_list where month = $1",
        json!({"shared_hit": 20_000}),
        json!({}),
    );
    let join = |fields: &mut Value, table: &str| {
        fields["condition"] = json!(format!("({table}.no = a.{table}_no)"));
        if adds_nothing {
            fields["adds_nothing"] = json!(true);
        }
    };
    for (number, table) in [(1, "agent"), (3, "project")] {
        let mut fields = json!({"join": "Right"});
        join(&mut fields, table);
        node(scene, number, number - 1, "Hash Join", fields);
        let fields = json!({"relation": format!("public.{table}"), "alias": table, "table_rows": rows, "rows_planned": rows});
        node(scene, number + 1, number, "Seq Scan", fields);
    }
    let fields = json!({"relation": "public.orders", "alias": "a", "condition": "(a.month = $1)", "table_rows": 90_000.0});
    node(scene, 5, 3, "Index Scan", fields);
}

/// A statement that returns so many rows and whose plan reads all entries of an index.
fn values(scene: &mut Scene, text: &str, rows: u64) {
    statement(scene, text, json!({"rows": rows * 10}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"condition": "c.country", "rows_planned": 24.0}));
    let fields = json!({"relation": "public.customer", "index": "customer_country", "table_rows": 100_000.0, "rows_planned": 100_000.0});
    node(scene, 2, 1, "Index Only Scan", fields);
}

/// The newest rows of so many groups among 400,000 rows, which are read in the order of an index.
fn newest(scene: &mut Scene, condition: &str, groups: u64) {
    let text = "select distinct on (r.sensor) r.sensor, r.at, s.label from reading r join sensor s on s.id = r.sensor order by r.sensor, r.at desc";
    statement(
        scene,
        text,
        json!({"rows": groups * 10, "calls": 10, "shared_hit": 4_010_000}),
        json!({"cost_total": 30_020.0}),
    );
    node(scene, 1, 0, "Unique", json!({"rows_planned": 150.0}));
    node(scene, 2, 1, "Merge Join", json!({"rows_planned": 400_000.0}));
    let fields = json!({"relation": "public.reading", "index": "reading_sensor_at", "condition": condition, "table_rows": 400_000.0,
        "rows_planned": 400_000.0});
    node(scene, 3, 2, "Index Scan", fields);
    node(
        scene,
        4,
        2,
        "Index Scan",
        json!({"relation": "public.sensor", "table_rows": 150.0, "rows_planned": 150.0}),
    );
}

/// An anti join that leaves so many of 100,000 rows, with a table of this size.
fn without_partner(scene: &mut Scene, rows: u64, partners: f64) {
    let text = "select i.id from invoice i where not exists (select $1 from sent s where s.invoice = i.id) order by i.id limit $2";
    statement(scene, text, json!({"rows": rows * 10}), json!({}));
    node(scene, 1, 0, "Hash Join", json!({"join": "Anti", "condition": "(i.id = s.invoice)"}));
    node(
        scene,
        2,
        1,
        "Seq Scan",
        json!({"relation": "public.invoice", "alias": "i", "table_rows": 100_000.0}),
    );
    node(scene, 3, 1, "Hash", json!({}));
    node(scene, 4, 3, "Seq Scan", json!({"relation": "public.sent", "alias": "s", "table_rows": partners}));
}

/// A statement on a table of 1,000 rows and this size.
fn pieces(scene: &mut Scene, text: &str, bytes: u64) {
    statement(scene, text, json!({"rows": 10, "shared_hit": 900}), json!({"cost_total": 8.0}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.file"});
    scene.set("table", keys, json!({"bytes": bytes, "live_rows": 1_000, "dead_rows": 0}));
}

/// A second statement besides that of [`statement`].
fn another(scene: &mut Scene, text: &str, figures: Value) {
    let keys = json!({"node": "n1", "database": "db", "query_id": "8"});
    scene.event(1, event::QUERY, "", json!({"query_id": "8", "text": text}));
    scene.set("statement", keys, figures);
}

/// Rows of a table are deleted so many at a time, and so many are inserted one by one.
fn collection(scene: &mut Scene, rows: u64, inserted: u64) {
    statement(
        scene,
        "delete from article_word where article = $1",
        json!({"calls": 100, "rows": rows * 100, "shared_hit": 9_000}),
        json!({}),
    );
    let insert = "insert into article_word (article, word) values ($1, $2)";
    another(
        scene,
        insert,
        json!({"calls": inserted, "rows": inserted, "total_ms": 20_000.0, "shared_hit": 9_000}),
    );
}

/// A statement that takes so long each time, while sessions execute it.
fn long(scene: &mut Scene, mean_ms: f64) {
    let calls = 10;
    let figures =
        json!({"calls": calls, "total_ms": mean_ms * f64::from(calls), "rows": 100, "shared_hit": 90});
    statement(scene, "select day, sum(n) from event group by day", figures, json!({"cost_total": 8.0}));
    let keys =
        json!({"node": "n1", "application": "cron", "user": "job", "database": "db", "client": "local"});
    scene.set("activity", keys, json!({"sessions": 4}));
}

/// A statement of four sessions that has not ended, so that it is in no statistics, and what it is seen in.
fn unended(scene: &mut Scene, kind: &str, event: &str) {
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 4}));
    let session = json!({"node": "n1", "pid": 77});
    scene.set("session", session, json!({"query_id": "9", "state": "active", "query": "insert into summary select 1", "xact_age_s": 9.0}));
}

/// A statement on a relation of which this is recorded.
fn file(scene: &mut Scene, what: &str) {
    statement(
        scene,
        "select price from catalogue where code = $1",
        json!({"calls": 100, "rows": 100, "shared_hit": 0}),
        json!({}),
    );
    scene.fact(json!({"node": "n1"}), "peculiar", "supplier.catalogue", what);
}

/// A large table that autovacuum comes to after so many rows, with so many workers at work.
fn eager(scene: &mut Scene, threshold: u64, workers: u64) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.parcel"});
    let options = format!(
        "autovacuum_vacuum_threshold={threshold}, autovacuum_vacuum_scale_factor=0, autovacuum_analyze_threshold={threshold}, \
        autovacuum_analyze_scale_factor=0"
    );
    scene.set(
        "table",
        keys,
        json!({"bytes": 90_000_000, "live_rows": 200_000, "dead_rows": 100, "autovacuum_options": options, "autovacuums": 4}),
    );
    scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": workers}));
}

/// So many logical slots in use, whose walsenders use this much CPU each second.
fn decoders(scene: &mut Scene, slots: u64, cpu_us: u64) {
    for slot in 0..slots {
        let keys = json!({"node": "n1", "slot": format!("connector_{slot}")});
        scene.set(
            "slot",
            keys,
            json!({"kind": "logical", "active": true, "retained_bytes": 1_000, "wal_status": "reserved"}),
        );
        let keys = json!({"host": "h1", "node": "n1", "pid": 900 + slot, "backend": "walsender"});
        scene.set("backend", keys, json!({"cpu_us": cpu_us, "run_queue_us": 0}));
    }
}

/// A statement with ORDER BY and LIMIT that sorts what an index finds.
fn sorted(scene: &mut Scene) {
    let text = "select id from thread t where t.forum = $1 order by coalesce(t.edited, t.made) desc limit $2";
    statement(scene, text, json!({"rows": 200, "shared_hit": 30_000}), json!({"cost_total": 9_000.0}));
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Sort", json!({"condition": "(COALESCE(t.edited, t.made)) DESC"}));
    let fields = json!({"relation": "public.thread", "alias": "t", "index": "thread_forum", "condition": "(t.forum = $1)", "table_rows": 90_000.0});
    node(scene, 3, 2, "Index Scan", fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.thread"});
    scene.set("table", keys, json!({"bytes": 90_000_000, "live_rows": 90_000, "dead_rows": 0, "seq_scans": 0, "index_rows": 600_000}));
}

/// Sessions that wait for a table which a transaction holds in this mode, whatever it did last.
fn held(scene: &mut Scene, mode: &str) {
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "relation"});
    scene.set("wait", wait, json!({"sessions": 6}));
    for waiter in 0..6 {
        let keys = json!({"node": "n1", "pid": 20 + waiter, "root": 100});
        let fields = json!({"blocked_by": 100, "root_state": "idle in transaction", "depth": 1, "wait_s": 9.0, "lock_type": "relation",
            "mode": "RowExclusiveLock", "held_mode": mode, "relation": "public.orders", "query": "insert into orders values ($1)",
            "blocker_query": "insert into orders select 1"});
        scene.set("block", keys, fields);
    }
}

/// The claim of a rule after a change.
pub(crate) fn claim_of(rule: &str, change: Change) -> String {
    let mut scene = Scene::healthy();
    change(&mut scene);
    let findings = scene.explain();
    let found = findings.findings.iter().find(|finding| finding.rule == rule);
    found.unwrap_or_else(|| panic!("no {rule}: {findings:#?}")).claim.clone()
}

/// A rule, a change, and words of its claim: the reason, and not only the symptom.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    (
        "PLAN-27",
        sorted,
        "fetches all rows of public.thread that fit (t.forum = $1) and sorts them by (COALESCE(t.edited, t.made)) DESC",
    ),
    ("LCK-01", |scene| held(scene, "ShareRowExclusiveLock"), "DISABLE or ENABLE TRIGGER"),
    ("LCK-01", |scene| held(scene, "ShareLock"), "CREATE INDEX without CONCURRENTLY"),
    (
        "PLAN-04",
        |scene| {
            statement(
                scene,
                "select a from b join c using (d) where d = $1",
                json!({"plan_ms": 60_000.0}),
                json!({}),
            );
            scene.fact(json!({"node": "n1"}), "setting", "plan_cache_mode", "force_custom_plan");
        },
        "plan_cache_mode is force_custom_plan",
    ),
    (
        "TXN-07",
        |scene| {
            statement(
                scene,
                "create temp table basket (id int) on commit drop",
                json!({"calls": 500, "shared_hit": 10_000}),
                json!({}),
            );
            scene.fact(json!({"node": "n1"}), "event_trigger", "guard", "fingerprint at ddl_command_end");
        },
        "event trigger guard (fingerprint at ddl_command_end)",
    ),
    (
        "PLAN-11",
        |scene| {
            scan(
                scene,
                "((NOT (orders.customer IS DISTINCT FROM $1)) AND (NOT ((orders.batch)::text IS DISTINCT FROM $2)))",
                "",
            );
            index(scene, "orders_customer", "customer; batch", true);
        },
        "IS NOT DISTINCT FROM, which no index serves",
    ),
    (
        "SES-07",
        |scene| {
            let text =
                "select queryid, query, calls from pg_stat_statements order by total_exec_time desc limit $1";
            statement(scene, text, json!({"calls": 50, "rows": 5_000}), json!({}));
        },
        "reads pg_stat_statements",
    ),
];

/// A join that takes one of so many groups.
fn groups(scene: &mut Scene, groups: f64) {
    let text = "select c.name, s.points from member c left join state s on s.member = c.id where c.card = $1";
    statement(scene, text, json!({}), json!({}));
    node(scene, 1, 0, "Hash Join", json!({"join": "Right", "condition": "(points.member = c.id)"}));
    node(scene, 2, 1, "Aggregate", json!({"condition": "points.member", "rows_planned": groups}));
    node(
        scene,
        3,
        2,
        "Seq Scan",
        json!({"relation": "public.points", "table_rows": 210_000.0, "rows_planned": 210_000.0}),
    );
    node(scene, 4, 1, "Hash", json!({}));
}

const DISTINCT: &str = "select distinct c.country from customer c order by c.country";
const PIECE: &str = "select substr(content, $1, $3) from file where id = $2";

/// A walsender that is asked for WAL that is gone, every five seconds.
fn removed(scene: &mut Scene, node: &str) {
    for second in (5..60).step_by(5) {
        let message = "requested WAL segment 00000001000000000000000B has already been removed";
        scene.event(second, record::event::SERVER_LOG, message, json!({"node": node, "severity": "ERROR"}));
    }
}

pub(crate) const CASES: &[Fires] = &[
    ("PLAN-68", Co, |scene| joined(scene, 60_000.0, true)),
    ("PLAN-69", Co, |scene| values(scene, DISTINCT, 24)),
    ("PLAN-69", Co, |scene| newest(scene, "", 150)),
    ("PLAN-69", Co, |scene| values(scene, "select c.country from customer c group by c.country", 24)),
    ("PLAN-70", Co, |scene| without_partner(scene, 10, 90_000.0)),
    ("PLAN-71", Co, |scene| pieces(scene, PIECE, 70_000_000)),
    ("TXN-16", Counter, |scene| {
        statement(scene, "truncate table t1, t2, t3", json!({"calls": 20, "rows": 0}), json!({}));
    }),
    ("TXN-17", Co, |scene| collection(scene, 20, 2_100)),
    ("SES-10", Co, |scene| {
        long(scene, 9_000.0);
        unended(scene, "CPU", "CPU");
    }),
    ("SES-10", Co, |scene| unended(scene, "CPU", "CPU")),
    ("SES-10", Co, |scene| {
        scene.drop_source("statement");
        unended(scene, "CPU", "CPU");
        for pid in [77, 78] {
            let session = json!({"node": "n1", "pid": pid});
            scene.set("session", session, json!({"query_id": "9", "state": "active", "state_age_s": 40.0}));
        }
    }),
    ("EXT-04", Co, |scene| file(scene, "foreign table of file_fdw")),
    ("VAC-16", Co, |scene| eager(scene, 50, 1)),
    ("REP-17", Counter, |scene| decoders(scene, 6, 120_000)),
    ("REP-19", Counter, |scene| removed(scene, "n1")),
    ("PLAN-32", Counter, |scene| groups(scene, 7_000.0)),
    ("TXN-12", Counter, |scene| {
        let text = "update category set lft = lft + $1 where lft > $2";
        statement(scene, text, json!({"calls": 100, "rows": 400_000, "shared_hit": 4_000_000}), json!({}));
    }),
    ("LOG-01", Co, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "log_min_messages", "debug5");
    }),
    ("PLAN-50", Co, |scene| {
        scan(scene, "(orders.open AND ($1 = ANY (string_to_array(orders.lists, $2))))", "");
    }),
];

pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The columns are read, or the tables are small.
    ("PLAN-68", |scene| joined(scene, 60_000.0, false)),
    ("PLAN-68", |scene| joined(scene, 60.0, true)),
    // Many different values, an aggregate, a condition.
    ("PLAN-69", |scene| values(scene, DISTINCT, 20_000)),
    ("PLAN-69", |scene| newest(scene, "", 90_000)),
    // Every row is needed for what is computed of it.
    ("PLAN-69", |scene| values(scene, "select distinct count(*) from customer c group by c.country", 24)),
    ("PLAN-69", |scene| {
        newest(scene, "", 150);
        node(scene, 5, 1, "WindowAgg", json!({}));
    }),
    // A frequent value: its rows are fetched by the index, which the plan expects for the average one only.
    ("PLAN-24", |scene| {
        let figures = json!({"calls": 10, "shared_hit": 40_110});
        statement(
            scene,
            "select count(*) from reading where tenant = $1",
            figures,
            json!({"cost_total": 8.46}),
        );
        node(scene, 1, 0, "Aggregate", json!({}));
        node(
            scene,
            2,
            1,
            "Index Scan",
            json!({"relation": "public.reading", "index": "by_tenant", "rows_planned": 1.0}),
        );
        let keys = json!({"node": "n1", "database": "db", "relation": "public.reading"});
        scene.set("table", keys, json!({"index_rows": 600_060, "index_scans": 60, "seq_scans": 0}));
    }),
    ("PLAN-69", |scene| newest(scene, "(r.sensor = $1)", 150)),
    // Each row that the plan fetches by the index is in a block of its own.
    ("PLAN-24", |scene| newest(scene, "", 150)),
    ("PLAN-69", |scene| values(scene, "select c.country, count(*) from customer c group by c.country", 24)),
    ("PLAN-69", |scene| values(scene, "select distinct c.country from customer c where c.open = $1", 24)),
    // It finds many, or the other table is small.
    ("PLAN-70", |scene| without_partner(scene, 9_000, 90_000.0)),
    ("PLAN-70", |scene| without_partner(scene, 10, 90.0)),
    // The whole value, or small ones.
    ("PLAN-71", |scene| pieces(scene, "select content from file where id = $2", 70_000_000)),
    ("PLAN-71", |scene| pieces(scene, PIECE, 700_000)),
    ("TXN-16", |scene| {
        statement(scene, "truncate table t1", json!({"calls": 1, "rows": 0}), json!({}));
    }),
    // A queue that takes one row each time, a clean-up that deletes more than comes, rows that grow in number.
    ("TXN-17", |scene| collection(scene, 1, 100)),
    ("TXN-17", |scene| collection(scene, 200, 2_100)),
    ("TXN-17", |scene| collection(scene, 20, 9_000)),
    ("SES-10", |scene| long(scene, 90.0)),
    // Without counts it may be another execution at each look.
    ("SES-10", |scene| {
        scene.drop_source("statement");
        unended(scene, "CPU", "CPU");
    }),
    // It waits for a lock.
    ("SES-10", |scene| {
        long(scene, 9_000.0);
        unended(scene, "Lock", "transactionid");
    }),
    ("PLAN-32", |scene| groups(scene, 3.0)),
    // A correction by hand.
    ("TXN-12", |scene| {
        let text = "update category set lft = lft + $1 where lft > $2";
        statement(scene, text, json!({"calls": 1, "rows": 400_000, "shared_hit": 4_000_000}), json!({}));
    }),
    ("LOG-01", |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "log_min_messages", "info");
    }),
    ("EXT-04", |scene| file(scene, "3 exclusion constraints")),
    ("VAC-16", |scene| eager(scene, 20_000, 1)),
    ("REP-17", |scene| decoders(scene, 1, 400_000)),
    // The standby's own log has the same line, and its own finding.
    ("REP-19", |scene| {
        removed(scene, "n2");
        scene.set("server", json!({"node": "n2"}), json!({"in_recovery": true}));
    }),
    ("REP-17", |scene| decoders(scene, 6, 9_000)),
    ("PLAN-50", |scene| {
        scan(scene, "(orders.open AND ($1 = ANY (orders.lists)))", "");
    }),
];
