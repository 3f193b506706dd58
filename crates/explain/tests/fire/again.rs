//! Rows that are written again, messages of functions, and what a table lacks that its siblings or its sequence should have given it; and what only looks
//! like it.

use super::alike::at_work;
use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use record::event;
use serde_json::json;

/// A table that is written so many times a second, and so many of the updates are heap-only.
fn product(scene: &mut Scene, updates: u64, hot: u64) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.product"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 80_000, "dead_rows": 100, "rows_inserted": 0, "rows_deleted": 0,
        "rows_updated": updates * 60, "rows_hot_updated": hot * 60, "indexes": 1, "index_columns": "product_brand(brand)"});
    scene.set("table", keys, fields);
}

const UPSERT: &str = "insert into product as p (sku, brand, ean) select sku, brand, ean from hub_feed where line > $1 \
    on conflict (sku) do update set brand = excluded.brand, ean = excluded.ean";

/// A statement that writes so many rows in each of ten executions.
fn written(scene: &mut Scene, text: &str, rows: u64) {
    statement(
        scene,
        text,
        json!({"rows": rows * 10, "shared_hit": 300_000}),
        json!({"cost_total": 300_000.0, "rows_planned": rows as f64}),
    );
}

/// A function that writes so many of the 4,000 messages of each second, and an UPDATE of a table whose trigger it is.
fn raised(scene: &mut Scene, messages: u64, bytes: u64) {
    for second in 1..=100 {
        let fields = json!({"node": "n1", "function": "noted()", "severity": "LOG", "repeated": messages, "messages": 4_000, "log_bytes": bytes});
        scene.event(second, event::RAISED, "", fields);
    }
    let keys = json!({"node": "n1", "database": "db", "relation": "public.meter"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 80_000, "dead_rows": 100, "triggers": 1, "trigger_functions": "changed(noted)"});
    scene.set("table", keys, fields);
    statement(scene, "update meter set reading = $1 where id = $2", json!({}), json!({}));
}

/// A partition that is scanned by each of ten executions in 10 s, and the indexes of its siblings.
fn partition(scene: &mut Scene, siblings: &str, condition: &str) {
    let text = format!("select taken from log where {condition}");
    statement(scene, &text, json!({"calls": 200, "rows": 200, "shared_hit": 600_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.log_12"});
    scene.set("table", keys, json!({"bytes": 90_000_000, "live_rows": 170_000, "dead_rows": 100, "partition_of": "public.log", "sibling_indexes": siblings,
        "seq_scans": 1_200, "seq_rows": 1_200 * 170_000}));
}

/// A table of a subscriber that is scanned so often a second for so many changes.
fn applied(scene: &mut Scene, scans: u64, changes: u64, primary_key: bool) {
    let keys = json!({"node": "n1", "subscription": "branch"});
    scene.set(
        "subscription",
        keys,
        json!({"enabled": true, "own": false, "running": true, "lag_bytes": 5_000}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.stock"});
    let fields = json!({"bytes": 2_000_000, "live_rows": 20_000, "dead_rows": 100, "rows_inserted": 0, "rows_deleted": 0, "rows_updated": changes * 60,
        "seq_scans": scans * 60, "seq_rows": scans * 60 * 10_000, "primary_key": primary_key});
    scene.set("table", keys, fields);
}

/// The sequence of a key, as it is recorded.
pub(crate) const SEQUENCE: &str = "enrolment_pkey(id) from public.enrolment_id_seq";

/// Inserts that fail at a unique index, by an INSERT of this text into a table whose key has this sequence.
fn refused(scene: &mut Scene, text: &str, sequence: &str) {
    scene.run.steps.clear();
    statement(scene, text, json!({"rows": 0, "shared_hit": 10_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.enrolment"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 9_000_000, "live_rows": 80_000, "dead_rows": 100, "key_sequences": sequence}),
    );
    let message = "duplicate key value violates unique constraint \"enrolment_pkey\"";
    for second in 1..=100 {
        scene.event(
            second,
            event::SERVER_LOG,
            message,
            json!({"node": "n1", "severity": "ERROR", "sqlstate": "23505", "repeated": 90_000}),
        );
    }
}

/// A statement that takes half of the time, returns so many rows in all and touches so many blocks in each of its executions.
fn selected(scene: &mut Scene, text: &str, rows: u64, blocks: u64) {
    let figures = json!({"calls": 20, "rows": rows, "shared_hit": blocks * 20, "total_ms": 30_000.0});
    statement(scene, text, figures, json!({"cost_total": blocks as f64}));
    node(scene, 1, 0, "Limit", json!({}));
}

/// A balance that is summed up from all entries each time.
fn balance(scene: &mut Scene, kind: &str) {
    let figures = json!({"calls": 1_250, "rows": 1_250, "shared_hit": 6_000 * 1_250, "total_ms": 30_000.0});
    statement(scene, "select sum(amount) as balance from entry where account = $1", figures, json!({}));
    node(scene, 1, 0, "Aggregate", json!({}));
    node(
        scene,
        2,
        1,
        kind,
        json!({"relation": "public.entry", "rows_planned": 20_000.0, "filter": "(account = $1)"}),
    );
}

const PAGE: &str = "select no, title from feed order by no limit $2 offset $1 * $3";
const COUNT: &str = "select count(t.id) from ticket t where t.client = $1 and t.hidden = $2";

/// A statement on a table with this said of it, whose plan has this cost.
fn secured(scene: &mut Scene, what: &str, cost: f64) {
    let text = "select id, at from visit where at >= now() order by at limit $1";
    statement(scene, text, json!({"rows": 200, "shared_hit": 600_000}), json!({"cost_total": cost}));
    node(
        scene,
        1,
        0,
        "Index Scan",
        json!({"relation": "public.visit", "index": "visit_at", "condition": "(at >= now())"}),
    );
    scene.fact(json!({"node": "n1"}), "peculiar", "public.visit", what);
}

/// Entries of pg_class that are made each second, while a statement runs ten times in 10 s.
fn made(scene: &mut Scene, relations: u64) {
    scene.set("server", json!({"node": "n1"}), json!({"relations_made": relations}));
    statement(scene, "select premium($1)", json!({}), json!({}));
}

/// So many temporary tables in ten seconds, which an application makes by a command of its own.
pub(crate) fn made_by_commands(scene: &mut Scene, calls: u64) {
    scene.set("server", json!({"node": "n1"}), json!({"relations_made": 900}));
    let text = "create temp table basket (line int primary key, price numeric) on commit drop";
    statement(scene, text, json!({"calls": calls, "total_ms": 6_000.0}), json!({}));
}

/// Sessions that wait for a table behind so many sessions one after the other, each of which runs this.
fn taken(scene: &mut Scene, roots: u64, command: &str) {
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "relation"});
    scene.set("wait", wait, json!({"sessions": 6}));
    for root in 0..roots {
        for waiter in 0..2 {
            let keys = json!({"node": "n1", "pid": 20 + waiter, "root": 100 + root});
            let fields = json!({"blocked_by": 100 + root, "root_state": "active", "depth": 1, "wait_s": 0.02, "lock_type": "relation",
                "mode": "AccessShareLock", "relation": "public.reading", "query": "select 1 from reading", "blocker_query": command});
            scene.set("block", keys.clone(), fields).during("block", keys, root * 20 + 1..=root * 20 + 1);
        }
    }
    let keys = json!({"node": "n1", "database": "db", "relation": "public.reading_rest"});
    scene.set("table", keys, json!({"bytes": 90_000_000, "live_rows": 800_000, "dead_rows": 100, "partition_of": "public.reading", "seq_rows": 9_000_000}));
}

const PARTITION: &str = "do $$ begin execute format('create table %I partition of reading for values from (1) to (2)', 'r'); end $$";

/// So many statements of each second are cancelled by a timeout, which one role has.
fn timed_out(scene: &mut Scene, each: u64, limit: &str) {
    let node = json!({"node": "n1"});
    scene.fact(node.clone(), "own_setting", "statement_timeout of role board", limit);
    at_work(scene, "board", 2);
    for second in 1..=100 {
        let more = json!({"node": "n1", "severity": "ERROR", "repeated": each - 1});
        scene.event(second, event::SERVER_LOG, "canceling statement due to statement timeout", more);
    }
    scene.set("server", node, json!({"xact_rollback": each, "xact_commit": 5_000}));
}

/// An UPDATE of one row so often, with so much WAL each, of which so many are whole pages.
fn unpacked(scene: &mut Scene, wal_bytes: u64, pages: u64) {
    let text = "update attempt set state = jsonb_set(state, $3, $1) where id = $2";
    let figures = json!({"calls": 1_600, "rows": 1_600, "shared_hit": 400_000, "wal_bytes": wal_bytes * 1_600, "wal_fpi": pages});
    statement(scene, text, figures, json!({}));
}

/// Sessions that insert into one table wait for rows of another one, which the statement of their holder locks.
fn referring(scene: &mut Scene, holder: &str) {
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "transactionid", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 6}));
    statement(scene, "insert into movement (article, n) values ($1, $2)", json!({}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.movement"});
    scene.set("table", keys, json!({"bytes": 9_000_000, "foreign_keys": "public.article"}));
    scene.event(1, event::QUERY, "", json!({"query_id": "8", "text": holder}));
    for root in 0..6 {
        let keys = json!({"node": "n1", "pid": 20 + root, "root": 100 + root});
        let fields = json!({"blocked_by": 100 + root, "root_state": "idle in transaction", "depth": 1, "wait_s": 0.1, "lock_type": "transactionid",
            "mode": "ShareLock", "relation": "public.article", "query": "insert into movement (article, n) values ($1, $2)"});
        scene.set("block", keys, fields);
    }
}

/// The claim of DIST-06 where inserts wait for rows that this statement locks.
pub(crate) fn referring_to(holder: &str) -> String {
    let mut scene = Scene::healthy();
    referring(&mut scene, holder);
    let findings = scene.explain();
    let found = findings.findings.iter().find(|finding| finding.rule == "DIST-06");
    found.unwrap_or_else(|| panic!("no DIST-06: {findings:#?}")).claim.clone()
}

/// The same where one more session waits for the row itself, with this lock.
pub(crate) fn waiting_with(mode: &str) -> String {
    let mut scene = Scene::healthy();
    referring(&mut scene, "select name from article where id = $1 for no key update");
    let keys = json!({"node": "n1", "pid": 40, "root": 100});
    let fields = json!({"blocked_by": 20, "root_state": "idle in transaction", "depth": 2, "wait_s": 0.1, "lock_type": "tuple", "mode": mode,
        "relation": "public.article", "query": "insert into movement (article, n) values ($1, $2)"});
    scene.set("block", keys, fields);
    let findings = scene.explain();
    let found = findings.findings.iter().find(|finding| finding.rule == "DIST-06");
    found.unwrap_or_else(|| panic!("no DIST-06: {findings:#?}")).claim.clone()
}

/// The claim of DIST-06 where inserts wait for transactions, no lock shows for which row, and their table has a trigger; the log has this error.
pub(crate) fn waiting_in_a_trigger(error: &str) -> String {
    let mut scene = Scene::healthy();
    referring(&mut scene, "select 1");
    for root in 0..6 {
        let keys = json!({"node": "n1", "pid": 20 + root, "root": 100 + root});
        scene.set("block", keys, json!({"relation": ""}));
    }
    let what = "trigger movement_totals calls bump_totals()";
    scene.fact(json!({"node": "n1"}), record::watched::PECULIAR, "public.movement", what);
    scene.event(2, event::SERVER_LOG, error, json!({"node": "n1", "severity": "ERROR"}));
    let findings = scene.explain();
    let found = findings.findings.iter().find(|finding| finding.rule == "DIST-06");
    found.unwrap_or_else(|| panic!("no DIST-06: {findings:#?}")).claim.clone()
}

/// The severity of TXN-05 where so many transactions a second are rolled back, and this is said about the log.
pub(crate) fn rolled_back(change: Change) -> Option<record::finding::Severity> {
    let mut scene = Scene::healthy();
    scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 9_000, "xact_commit": 1_000}));
    change(&mut scene);
    let findings = scene.explain();
    findings.findings.iter().find(|finding| finding.rule == "TXN-05").map(|finding| finding.severity)
}

/// The claim of GEN-01 in a scene in which inserts fail.
pub(crate) fn refused_by(text: &str, sequence: &str) -> String {
    let mut scene = Scene::healthy();
    refused(&mut scene, text, sequence);
    let findings = scene.explain();
    let found = findings.findings.iter().find(|finding| finding.rule == "GEN-01");
    found.unwrap_or_else(|| panic!("no GEN-01: {findings:#?}")).claim.clone()
}

pub(crate) const CASES: &[Fires] = &[
    ("TXN-14", Counter, |scene| {
        product(scene, 100_000, 22_000);
        written(scene, UPSERT, 2_000);
    }),
    ("TXN-14", Co, |scene| {
        product(scene, 100_000, 0);
        let text = "update product p set brand = n.brand, ean = n.ean from hub_feed n where n.sku = p.sku";
        written(scene, text, 80_000);
    }),
    ("LOG-03", Counter, |scene| raised(scene, 3_900, 9_000_000)),
    ("LOG-03", Counter, |scene| raised(scene, 3_900, 0)),
    ("PLAN-64", Counter, |scene| {
        partition(scene, "taken: 11 of 11; machine, taken: 11 of 11", "machine = $1 and taken > $2")
    }),
    ("REP-16", Counter, |scene| applied(scene, 1_200, 600, false)),
    ("PLAN-65", Co, |scene| selected(scene, PAGE, 1_000, 3_000)),
    ("PLAN-66", Co, |scene| selected(scene, COUNT, 20, 900)),
    ("PLAN-66", Co, |scene| balance(scene, "Index Scan")),
    ("PLAN-67", Co, |scene| secured(scene, "row-level security", 2_300.0)),
    ("TXN-15", Co, |scene| made(scene, 900)),
    // By commands of the application, a little of the time, in each transaction.
    ("TXN-15", Co, |scene| made_by_commands(scene, 10_000)),
    ("LCK-09", Counter, |scene| taken(scene, 5, PARTITION)),
    ("LCK-09", Counter, |scene| taken(scene, 5, "refresh materialized view daily")),
    ("TXN-08", Counter, |scene| timed_out(scene, 9, "900ms")),
    // A report now and then, of which each takes long.
    ("TXN-08", Counter, |scene| {
        scene.fact(json!({"node": "n1"}), "own_setting", "statement_timeout of role board", "80s");
        at_work(scene, "board", 1);
        let text = "select region, sum(price) from line group by region";
        for second in [40, 80, 120, 160] {
            let more = json!({"node": "n1", "severity": "ERROR", "statement": text});
            scene.event(second, event::SERVER_LOG, "canceling statement due to statement timeout", more);
        }
    }),
    ("WAL-11", Co, |scene| unpacked(scene, 107_000, 0)),
    // The partition of this month was not created: nothing of it is stored.
    ("TXN-13", Counter, unplaced),
    ("GEN-01", Counter, |scene| refused(scene, "insert into enrolment (pupil) values ($1)", SEQUENCE)),
];

/// Rows that fit no partition, in each second.
pub(crate) fn unplaced(scene: &mut Scene) {
    for second in 1..=100 {
        let more = json!({"node": "n1", "severity": "ERROR", "sqlstate": "23514", "repeated": 900});
        scene.event(
            second,
            event::SERVER_LOG,
            "no partition of relation \"sensor_data\" found for row",
            more,
        );
    }
}

pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // It compares the values, writes a few rows, or each row now and then.
    ("TXN-14", |scene| {
        product(scene, 100_000, 22_000);
        written(
            scene,
            &format!("{UPSERT} where (p.brand, p.ean) is distinct from (excluded.brand, excluded.ean)"),
            2_000,
        );
    }),
    ("TXN-14", |scene| {
        product(scene, 100_000, 22_000);
        written(scene, UPSERT, 3);
    }),
    ("TXN-14", |scene| {
        product(scene, 300, 100);
        written(scene, UPSERT, 2_000);
    }),
    // A message now and then, in a small log.
    ("LOG-03", |scene| raised(scene, 4, 90_000)),
    // Few of many messages: the log grows by others.
    ("LOG-03", |scene| raised(scene, 40, 9_000_000)),
    // The siblings' index is for another column, or there is none.
    ("PLAN-64", |scene| partition(scene, "taken: 11 of 11", "machine = $1")),
    ("PLAN-64", |scene| partition(scene, "", "machine = $1")),
    // Each page is near the first one, or is a whole table; the first page has no OFFSET.
    ("PLAN-65", |scene| selected(scene, PAGE, 20_000, 900)),
    ("PLAN-65", |scene| selected(scene, PAGE, 1_000, 60)),
    ("PLAN-65", |scene| selected(scene, "select no, title from feed order by no limit $1", 1_000, 3_000)),
    // A cheap count, one by group, one of a whole table.
    ("PLAN-66", |scene| selected(scene, COUNT, 20, 9)),
    ("PLAN-66", |scene| balance(scene, "Seq Scan")),
    ("PLAN-66", |scene| {
        selected(scene, "select count(*) from ticket t where t.client = $1 group by t.state", 20, 900)
    }),
    ("PLAN-66", |scene| selected(scene, "select count(*) from ticket", 20, 900)),
    // The plan expects that much, or the table is not secured.
    ("PLAN-67", |scene| secured(scene, "row-level security", 60_000.0)),
    ("PLAN-67", |scene| secured(scene, "trigger t calls f()", 2_300.0)),
    ("TXN-15", |scene| made(scene, 5)),
    // One long command, or sessions that write.
    ("LCK-09", |scene| taken(scene, 1, PARTITION)),
    ("LCK-09", |scene| taken(scene, 5, "update reading set n = 1")),
    // Few, and short.
    ("TXN-08", |scene| timed_out(scene, 9, "2ms")),
    // The limit is of a role that was never at work.
    ("TXN-08", |scene| {
        timed_out(scene, 9, "900ms");
        scene.drop_source("activity");
    }),
    ("WAL-11", |scene| unpacked(scene, 700, 0)),
    ("WAL-11", |scene| unpacked(scene, 9_000, 1_600)),
    // The worker finds rows by the key, and a few scans are a person's.
    ("REP-16", |scene| applied(scene, 1_200, 600, true)),
    ("REP-16", |scene| applied(scene, 2, 600, false)),
    ("REP-16", |scene| {
        applied(scene, 1_200, 600, false);
        scene.drop_source("subscription");
    }),
];
