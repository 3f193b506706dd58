//! Statements that every shard has to answer, tables whose rows are on one of their parts, nodes that are missed; and what only looks like it.

use super::plan::statement;
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::json;

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
