//! Statements that every shard has to answer, tables whose rows are on one of their parts, and frequent causes in forms that other scenes lack; and what only
//! looks like it.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires, work};
use crate::scene::Scene;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A slot without a consumer that keeps so much, and so much more each second.
fn forgotten(scene: &mut Scene, kept: f64, growth: f64) {
    let keys = json!({"node": "n1", "slot": "cdc"});
    scene.set(
        "slot",
        keys.clone(),
        json!({"kind": "logical", "active": false, "wal_status": "extended", "inactive_s": 16.0}),
    );
    scene.vary("slot", keys, "retained_bytes", move |second| kept + growth * second as f64);
}

/// A session that has held its snapshot for so long, and a table whose dead rows so many vacuums a second have not removed.
fn snapshot(scene: &mut Scene, age_s: f64, dead: u64, vacuums: u64) {
    let keys = json!({"node": "n1", "kind": "session", "name": "", "pid": 9});
    scene.set("horizon", keys, json!({"age_xids": 11_000, "age_s": age_s}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.outbox"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 9_000_000, "live_rows": 3_000, "dead_rows": dead, "autovacuums": vacuums}),
    );
}

/// A statement for one row so often in 10 s, and the next one.
fn lookups(scene: &mut Scene, calls: u64, next: u64) {
    work::statement(
        scene,
        "52",
        "select weight from parcel where id = $1",
        json!({"calls": calls, "rows": calls, "total_ms": 9_000.0}),
    );
    work::statement(
        scene,
        "51",
        "select driver from delivery where id = $1",
        json!({"calls": next, "rows": next, "total_ms": 90.0}),
    );
}

/// A statement that writes so many blocks of temporary files in 70 executions.
fn spilled(scene: &mut Scene, text: &str, blocks: u64) {
    work::statement(
        scene,
        "9",
        text,
        json!({"calls": 70, "total_ms": 30_000.0, "rows": 70, "shared_hit": 2_000, "temp_written": blocks}),
    );
}

/// A statement that goes to so many shards and returns so many rows.
fn scattered(scene: &mut Scene, tasks: u64, rows: u64) {
    let node = json!({"node": "n1"});
    scene.fact(
        node,
        record::watched::OWN,
        record::watched::own::SHARDS,
        "SELECT table_name FROM citus_tables;",
    );
    statement(scene, "select n from visits where city = $1", json!({"rows": rows}), json!({"tasks": tasks}));
}

/// Parts of a table: bytes, and rows that each gets a second.
fn parts(scene: &mut Scene, names: &[&str], parent: &str, bytes: &[u64], rows: &[u64]) {
    for ((name, bytes), rows) in names.iter().zip(bytes).zip(rows) {
        let keys = json!({"node": "n1", "database": "db", "relation": name});
        scene.set("table", keys, json!({"bytes": bytes, "partition_of": parent, "index_rows": rows * 10, "rows_updated": 0, "rows_inserted": 0}));
    }
}

/// A statement on a foreign table that returns so many rows in 10 s, for which so many are fetched.
fn fetched(scene: &mut Scene, fetched: u64, returned: u64) {
    let text = "select machine, count(*) from plant_alarm where at > now() - interval $1 group by 1";
    work::statement(scene, "61", text, json!({"calls": 180, "rows": returned, "total_ms": 30_000.0}));
    let cursor = json!({"calls": 900, "rows": fetched, "total_ms": 3_000.0});
    work::statement(scene, "62", "FETCH 20000 FROM c1", cursor);
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Extension", "wait_event": "Extension", "query_id": "61"});
    scene.set("wait", wait, json!({"sessions": 1}));
}

/// A logical slot in use that keeps so much, and so much more each second, and what its walsender waits for.
fn outrun(scene: &mut Scene, kept: f64, growth: f64, event: (&str, &str)) {
    let keys = json!({"node": "n1", "slot": "billing_feed"});
    scene.set("slot", keys.clone(), json!({"kind": "logical", "active": true, "wal_status": "reserved"}));
    scene.vary("slot", keys, "retained_bytes", move |second| kept + growth * second as f64);
    let wait = json!({"node": "n1", "backend": "walsender", "state": "active", "wait_type": event.0, "wait_event": event.1});
    scene.set("wait", wait, json!({"sessions": 1}));
}

/// What a role sets for itself, and so many statements in 10 s; `user` is at work.
fn logging(scene: &mut Scene, value: &str, user: &str, calls: u64) {
    scene.fact(n1(), "setting", "log_min_duration_statement", "-1");
    scene.fact(n1(), "own_setting", "log_min_duration_statement of role gateway", value);
    let group =
        json!({"node": "n1", "application": "app", "user": user, "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": 3}));
    work::statement(
        scene,
        "71",
        "select centre from route where home = $1",
        json!({"calls": calls, "rows": calls, "total_ms": 900.0}),
    );
}

/// The first rows by what a function returns for each, which reads tables of its own.
fn sorted_by_function(scene: &mut Scene) {
    let text = "select id, turnover from customer_list order by turnover desc, id limit $1";
    statement(scene, text, json!({"rows": 200, "shared_hit": 1_020_000}), json!({"cost_total": 1_971.0}));
    node(scene, 1, 0, "Limit", json!({}));
    let sort = json!({"condition": "(sales.turnover(k.id)) DESC, k.id", "rows_planned": 6_000.0});
    node(scene, 2, 1, "Sort", sort);
    node(scene, 3, 2, "Seq Scan", json!({"relation": "sales.customer", "table_rows": 6_000.0}));
}

/// Two lists of one parent in one join, with so many rows of the second one.
fn lists(scene: &mut Scene, text: &str, rows: f64) {
    statement(
        scene,
        text,
        json!({"calls": 40, "rows": 128_000, "shared_hit": 20_000}),
        json!({"cost_total": 300.0}),
    );
    node(scene, 1, 0, "Nested Loop", json!({"rows_planned": 40.0}));
    node(
        scene,
        2,
        1,
        "Index Scan",
        json!({"relation": "public.ingredient", "alias": "i", "rows_planned": 40.0, "index": "ingredient_recipe"}),
    );
    node(
        scene,
        3,
        1,
        "Index Scan",
        json!({"relation": "public.comment", "alias": "c", "rows_planned": rows, "index": "comment_recipe"}),
    );
}

const LISTS: &str = "select r.id, i.label, c.body from recipe r left join ingredient i on i.recipe = r.id left join comment c on c.recipe = r.id \
    where r.id = $1";

/// A view with DISTINCT ON that is computed for so many rows, of which a condition keeps so many.
fn filtered_view(scene: &mut Scene, rows: f64, kept: f64) {
    let text = "select contract, tariff from current_tariff where customer = $1";
    statement(scene, text, json!({"rows": 40, "shared_hit": 1_600_000}), json!({"cost_total": 9_032.0}));
    let filter =
        json!({"alias": "current_tariff", "filter": "(current_tariff.customer = $1)", "rows_planned": kept});
    node(scene, 1, 0, "Subquery Scan", filter);
    node(scene, 2, 1, "Unique", json!({"rows_planned": rows}));
    let index = json!({"relation": "public.tariff", "index": "tariff_contract", "rows_planned": 160_000.0});
    node(scene, 3, 2, "Index Scan", index);
}

const UNREAD: (&str, &str) = ("Client", "WalSenderWriteData");

const SHARDS: [&str; 4] =
    ["public.visit_102008", "public.visit_102009", "public.visit_102010", "public.visit_102011"];
const PARTITIONS: [&str; 4] = ["public.visit_a", "public.visit_b", "public.visit_c", "public.visit_d"];
const MB: u64 = 1 << 20;

/// Groups by a function of the application, which stands in the plan without its schema.
fn grouped_by_function(scene: &mut Scene) {
    let text =
        "select buyer_name(buyer) b, sum(n) from line where day = $1 group by 1 order by 2 desc limit $2";
    statement(scene, text, json!({"rows": 500, "shared_hit": 1_000_000}), json!({"cost_total": 700.0}));
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Sort", json!({"condition": "(sum(line.n)) DESC", "rows_planned": 900.0}));
    node(scene, 3, 2, "Aggregate", json!({"condition": "(buyer_name(line.buyer))", "rows_planned": 900.0}));
    node(
        scene,
        4,
        3,
        "Index Scan",
        json!({"relation": "public.line", "condition": "(line.day = $1)", "rows_planned": 900.0}),
    );
    let body = "plpgsql returning 1 rows: begin return (select name from buyer where id = $1); end";
    scene.fact(n1(), record::watched::FUNCTION_TEXT, "buyer_name", body);
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("DIST-08", Co, |scene| scattered(scene, 32, 10)),
    ("EXT-03", Counter, |scene| fetched(scene, 14_000_000, 5_000)),
    ("PLAN-24", Co, sorted_by_function),
    ("PLAN-24", Co, grouped_by_function),
    ("PLAN-32", Counter, |scene| filtered_view(scene, 39_425.0, 197.0)),
    ("PLAN-63", Counter, |scene| lists(scene, LISTS, 80.0)),
    ("REP-15", Co, |scene| outrun(scene, 30e6, 4e6, UNREAD)),
    ("LOG-01", Co, |scene| logging(scene, "0", "gateway", 60_000)),
    ("REP-03", Counter, |scene| forgotten(scene, 216e6, 250e3)),
    ("VAC-05", Counter, |scene| snapshot(scene, 7.0, 43_000, 1)),
    ("TXN-11", Co, |scene| lookups(scene, 600_000, 10_000)),
    ("PLAN-02", Co, |scene| {
        // Small files, because the role has little memory of its own.
        scene.fact(n1(), "setting", "work_mem", "32MB");
        scene.fact(n1(), "own_setting", "work_mem of role payroll", "64kB");
        let group = json!({"node": "n1", "application": "report", "user": "payroll", "database": "db", "client": "local"});
        scene.set("activity", group, json!({"sessions": 3}));
        spilled(
            scene,
            "select month, count(*) from item where employee not in (select employee from exempt) group by 1",
            800,
        );
    }),
    ("GEN-02", Counter, |scene| {
        // Those over several nodes are in the log alone.
        for second in 20..32 {
            scene.event(second, record::event::DEADLOCK, "deadlock detected", n1());
        }
    }),
    ("DIST-09", Counter, |scene| {
        parts(scene, &SHARDS, "", &[90 * MB, 3 * MB, 3 * MB, 4 * MB], &[10, 10, 10, 10])
    }),
    ("DIST-09", Counter, |scene| {
        parts(scene, &SHARDS, "", &[9 * MB, 9 * MB, 9 * MB, 9 * MB], &[9_000, 10, 10, 10])
    }),
    ("DIST-09", Counter, |scene| {
        parts(scene, &PARTITIONS, "public.visit", &[90 * MB, 3 * MB, 3 * MB, 4 * MB], &[9_000, 10, 10, 10])
    }),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // It keeps most of what was computed; and the work is that of the view.
    ("PLAN-32", |scene| filtered_view(scene, 39_425.0, 20_000.0)),
    ("PLAN-24", |scene| filtered_view(scene, 39_425.0, 197.0)),
    // A list of one row, and one that is joined to the other.
    ("PLAN-63", |scene| lists(scene, LISTS, 1.0)),
    ("PLAN-13", |scene| lists(scene, LISTS, 80.0)),
    ("PLAN-63", |scene| {
        lists(
            scene,
            "select r.id, i.label, c.body from recipe r join ingredient i on i.recipe = r.id join comment c on c.ingredient = i.id",
            80.0,
        )
    }),
    // What is sorted is no walk of an index.
    ("PLAN-27", sorted_by_function),
    ("PLAN-27", grouped_by_function),
    // It waits for changes, keeps little, or no more than before.
    ("REP-15", |scene| outrun(scene, 30e6, 4e6, ("Activity", "WalSenderMain"))),
    ("REP-15", |scene| outrun(scene, 3e6, 10.0, UNREAD)),
    ("REP-15", |scene| outrun(scene, 30e6, 0.0, UNREAD)),
    // A role that is not there, or logs what is slow.
    ("LOG-01", |scene| logging(scene, "0", "app", 60_000)),
    ("LOG-01", |scene| logging(scene, "250ms", "gateway", 60_000)),
    // What is fetched is returned, or little is fetched at all.
    ("EXT-03", |scene| fetched(scene, 14_000_000, 13_000_000)),
    ("EXT-03", |scene| fetched(scene, 20_000, 100)),
    // Each node has a copy of a reference table.
    ("DIST-09", |scene| {
        for (node, rows) in [("n1", 90_000), ("n2", 10), ("n3", 10), ("n4", 10)] {
            let keys = json!({"node": node, "database": "db", "relation": "public.item_103559"});
            scene.set("table", keys, json!({"bytes": 9 * MB, "partition_of": "", "index_rows": rows * 10, "rows_updated": 0, "rows_inserted": 0}));
        }
    }),
    // It keeps little, or no more than before.
    ("REP-03", |scene| forgotten(scene, 5e6, 250e3)),
    ("REP-03", |scene| forgotten(scene, 216e6, 0.0)),
    // It has just begun, or vacuums remove what they should.
    ("VAC-05", |scene| snapshot(scene, 2.0, 43_000, 1)),
    ("VAC-05", |scene| snapshot(scene, 7.0, 200, 1)),
    // An application's own mix.
    ("TXN-11", |scene| lookups(scene, 600_000, 300_000)),
    ("PLAN-02", |scene| {
        // Processes that build an index together write files, however much memory they have.
        scene.fact(n1(), "setting", "maintenance_work_mem", "128MB");
        spilled(scene, "CREATE INDEX exhibit_hall ON exhibit (hall)", 25_000);
    }),
    ("SES-02", |scene| {
        // Sessions that are opened again and again live for less than a sample.
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 3_000_000, "wait_us": 4_000_000}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 83.0 + (second * 7 % 5) as f64);
        scene.set("server", n1(), json!({"sessions_opened": 190}));
    }),
    // To one shard, and a report over all of them.
    ("DIST-08", |scene| scattered(scene, 1, 10)),
    ("DIST-08", |scene| scattered(scene, 32, 900_000)),
    // Even, small, and a range of time of which the newest part gets the work.
    ("DIST-09", |scene| {
        parts(scene, &SHARDS, "", &[30 * MB, 25 * MB, 40 * MB, 35 * MB], &[900, 1_000, 700, 900])
    }),
    ("DIST-09", |scene| parts(scene, &SHARDS, "", &[3 * MB, 8192, 8192, 8192], &[90, 1, 1, 1])),
    ("DIST-09", |scene| {
        parts(scene, &PARTITIONS, "public.visit", &[30 * MB, 25 * MB, 40 * MB, 35 * MB], &[9_000, 10, 10, 10])
    }),
];
