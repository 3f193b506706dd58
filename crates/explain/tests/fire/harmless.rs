//! For rules that were or could be wrong: what only looks like their condition.

use super::Change;
use crate::scene::{Scene, disk, wait};
use serde_json::json;

/// Changes that look like the condition of a rule and are not.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    ("NET-04", |scene| {
        // All segments stayed within the host.
        scene.set("host", json!({"host": "h1"}), json!({"tcp_retransmits": 60}));
        scene.set("net", json!({"host": "h1", "interface": "lo"}), json!({"tx_packets": 5000}));
        scene.set("net", json!({"host": "h1", "interface": "eth0"}), json!({"tx_packets": 0}));
    }),
    ("PLAN-01", |scene| {
        // A report that reads a whole table now and then, and a small table that is scanned often.
        let statement = |id: &str| json!({"node": "n1", "database": "db", "query_id": id});
        scene.set(
            "statement",
            statement("8"),
            json!({"calls": 5, "total_ms": 50_000.0, "rows": 5, "shared_hit": 2_000_000}),
        );
        scene.set(
            "statement",
            statement("9"),
            json!({"calls": 5000, "total_ms": 20_000.0, "rows": 5000, "shared_hit": 1_000_000}),
        );
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.currencies"}),
            json!({"seq_scans": 30_000, "seq_rows": 6_000_000}),
        );
    }),
    ("PLAN-01", |scene| {
        // All rows are needed: an index does not help.
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        let text = json!({"query_id": "9", "text": "select count(*), avg(amount) from orders"});
        scene.event(1, record::event::QUERY, "", text);
        scene.set("statement", statement, json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}));
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.orders"}),
            json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}),
        );
    }),
    ("DIST-06", |scene| {
        // One session holds the row and does nothing; those behind it queue for each other as well.
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 9}));
        let root = |pid: &str| json!({"node": "n1", "root": pid});
        scene.set("block", root("70"), json!({"wait_s": 12.0, "root_state": "idle in transaction"}));
        scene.set("block", root("71"), json!({"wait_s": 11.0, "root_state": "active"}));
    }),
    ("WAL-01", |scene| {
        behind_a_queue_for_cpus(scene);
    }),
    ("TXN-01", |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"tup_inserted": 1000, "tup_updated": 0}));
        behind_a_queue_for_cpus(scene);
    }),
    ("CPU-05", |scene| {
        // Sessions that are meant to wait, on a host that is not busy.
        scene.set("wait", wait("n1", "Timeout", "PgSleep"), json!({"sessions": 40}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 5.0 + (second * 7 % 5) as f64);
    }),
    ("PLAN-03", |scene| {
        // A long statement that gains by being compiled, and a short one that runs rarely.
        let statement = |id: &str| json!({"node": "n1", "database": "db", "query_id": id});
        scene.set("statement", statement("8"), json!({"calls": 5, "total_ms": 50_000.0, "jit_ms": 5_000.0}));
        scene.set("statement", statement("9"), json!({"calls": 5, "total_ms": 500.0, "jit_ms": 400.0}));
    }),
    ("PLAN-04", |scene| {
        // Planning takes a fifth of a statement's time.
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set(
            "statement",
            statement,
            json!({"calls": 10_000, "total_ms": 40_000.0, "plan_ms": 10_000.0}),
        );
    }),
    ("LOG-01", |scene| {
        // Slow statements are logged.
        scene.fact(json!({"node": "n1"}), "setting", "log_min_duration_statement", "250ms");
        scene.fact(json!({"node": "n1"}), "setting", "log_statement", "ddl");
    }),
    ("SES-03", |scene| {
        // As many sessions, which wait for something else.
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set(
            "schedule",
            backends,
            json!({"tasks": 100, "looked": 100, "run_us": 7_000_000, "wait_us": 2_000_000}),
        );
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 80}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 88.0 + (second * 7 % 5) as f64);
    }),
    ("CPU-06", |scene| {
        // The CPUs that are not used are not there: the hypervisor gives them to others.
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 3_000_000, "wait_us": 15_000_000}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 33.0 + (second * 7 % 5) as f64);
        scene.set("host", json!({"host": "h1"}), json!({"cpu_steal_pct": 45.0}));
    }),
    ("SES-01", |scene| {
        // Many sessions, each for a long time.
        scene.set("server", json!({"node": "n1"}), json!({"sessions_opened": 12}));
    }),
    ("SES-02", |scene| {
        // The server's own load fills the host.
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 7_500_000, "wait_us": 20_000_000}));
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", |second| 80.0 + (second * 7 % 5) as f64);
    }),
    ("MEM-04", |scene| {
        // What is missing in shared_buffers is missing in memory.
        scene.fact(json!({"node": "n1"}), "setting", "shared_buffers", "128MB");
        scene.set("server", json!({"node": "n1"}), json!({"blks_read": 9000}));
        scene.set("disk", disk("h1", "nvme0n1"), json!({"read_bytes": 70_000_000}));
    }),
    ("VAC-08", |scene| {
        // A server that only reads.
        scene.fact(json!({"node": "n1"}), "setting", "autovacuum", "off");
        scene.set("server", json!({"node": "n1"}), json!({"tup_updated": 0}));
    }),
    ("LCK-03", |scene| {
        // Rows that several sessions change are another rule's.
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 1}));
    }),
    ("REP-07", |scene| {
        // Its worker runs, and the other one was disabled by hand.
        for (name, enabled, running) in [("from_a", true, true), ("from_b", false, false)] {
            scene.set(
                "subscription",
                json!({"node": "n2", "subscription": name}),
                json!({"replication": "pglogical", "enabled": enabled, "running": running}),
            );
        }
    }),
    ("REP-07", |scene| {
        // An engine keeps this subscription for itself.
        scene.set(
            "subscription",
            json!({"node": "n2", "subscription": "mtm_sub_1"}),
            json!({"apply_errors": 0, "enabled": false, "own": true}),
        );
    }),
];

/// Most of the sessions that are seen wait for the WAL, but most of the time they wait for a CPU, which no view of the server shows.
fn behind_a_queue_for_cpus(scene: &mut Scene) {
    scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 20}));
    scene.set("server", json!({"node": "n1"}), json!({"active_ms": 100_000.0}));
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"run_us": 7_500_000, "wait_us": 72_000_000}));
}
