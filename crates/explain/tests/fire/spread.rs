//! Statements that every shard has to answer, tables whose rows are on one of their parts, and frequent causes in forms that other scenes lack; and what only
//! looks like it.

use super::plan::statement;
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

const SHARDS: [&str; 4] =
    ["public.visit_102008", "public.visit_102009", "public.visit_102010", "public.visit_102011"];
const PARTITIONS: [&str; 4] = ["public.visit_a", "public.visit_b", "public.visit_c", "public.visit_d"];
const MB: u64 = 1 << 20;

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("DIST-08", Co, |scene| scattered(scene, 32, 10)),
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
