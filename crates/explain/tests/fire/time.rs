//! Conditions of the rules that begin from the account of the time: statements, sessions, and their queues.

use super::Fires;
use crate::scene::wait;
use record::event;
use record::finding::Level::{CoOccurrence as Co, DiscriminatingCounter as Counter};
use serde_json::json;

/// Part of [`super::all`].
pub(crate) const CASES: &[Fires] = &[
    ("PLAN-01", Counter, |scene| {
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "9", "text": "select count(*)\n from orders where customer = $1"}),
        );
        scene.set("statement", statement, json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}));
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.orders"}),
            json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}),
        );
    }),
    ("PLAN-02", Co, |scene| {
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", statement, json!({"calls": 10, "total_ms": 30_000.0, "rows": 1000, "shared_hit": 2_000, "temp_written": 20_000}));
    }),
    ("PLAN-03", Counter, |scene| {
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set(
            "statement",
            statement,
            json!({"calls": 1000, "total_ms": 50_000.0, "jit_ms": 30_000.0, "rows": 1000}),
        );
    }),
    ("PLAN-04", Counter, |scene| {
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set(
            "statement",
            statement,
            json!({"calls": 100_000, "total_ms": 10_000.0, "plan_ms": 40_000.0, "rows": 1000}),
        );
    }),
    ("LOG-01", Co, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "log_min_duration_statement", "0");
    }),
    ("SES-03", Counter, |scene| {
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set(
            "schedule",
            backends,
            json!({"tasks": 100, "looked": 100, "run_us": 7_000_000, "wait_us": 80_000_000}),
        );
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 88.0 + (second * 7 % 5) as f64);
    }),
    ("CPU-06", Co, |scene| {
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 3_000_000, "wait_us": 15_000_000}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 33.0 + (second * 7 % 5) as f64);
    }),
    ("SES-01", Counter, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"sessions_opened": 300}));
    }),
    ("SES-02", Counter, |scene| {
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 3_000_000, "wait_us": 4_000_000}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 83.0 + (second * 7 % 5) as f64);
    }),
    ("LCK-03", Counter, |scene| {
        scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": 4}));
    }),
];
