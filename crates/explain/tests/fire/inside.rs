//! Conditions inside of the server: lightweight locks, tables and their statistics, limits that are reached, lock queues behind schema changes.

use super::Fires;
use crate::scene::wait;
use record::event;
use record::finding::Level::{CoOccurrence as Co, DiscriminatingCounter as Counter};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

fn orders() -> Value {
    json!({"node": "n1", "database": "db", "relation": "public.orders"})
}

/// A table that takes nine tenths of the blocks that are touched.
fn busy_table(scene: &mut crate::scene::Scene, more: Value) {
    scene.set(
        "table",
        orders(),
        json!({"blocks_hit": 20_000_000, "blocks_read": 0, "live_rows": 2_000_000, "autovacuum": true}),
    );
    scene.set("table", orders(), more);
}

/// Part of [`super::all`].
pub(crate) const CASES: &[Fires] = &[
    ("LCK-04", Counter, |scene| {
        let block = |pid: u64, by: u64| json!({"node": "n1", "root": 70, "pid": pid, "blocked_by": by});
        scene.set("block", block(71, 70), json!({"wait_s": 9.0, "root_state": "idle in transaction", "lock_type": "relation", "relation": "public.orders",
            "mode": "AccessExclusiveLock", "query": "alter table orders add column note text"}));
        for pid in 72..80 {
            scene.set("block", block(pid, 71), json!({"wait_s": 8.0, "root_state": "idle in transaction", "lock_type": "relation", "relation": "public.orders",
                "mode": "AccessShareLock", "query": "select * from orders"}));
        }
        scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 9}));
    }),
    ("LCK-05", Counter, |scene| {
        scene.set("wait", wait("n1", "Lock", "extend"), json!({"sessions": 4}));
    }),
    ("LCK-06", Counter, |scene| {
        scene.set("wait", wait("n1", "Lock", "virtualxid"), json!({"sessions": 3}));
    }),
    ("LWL-01", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "LockManager"), json!({"sessions": 4}));
    }),
    ("LWL-02", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "SubtransSLRU"), json!({"sessions": 4}));
        scene.set(
            "slru",
            json!({"node": "n1", "name": "Subtrans"}),
            json!({"hits": 90_000, "reads": 4000, "writes": 0}),
        );
    }),
    ("LWL-03", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "MultiXactMemberSLRU"), json!({"sessions": 4}));
    }),
    ("LWL-04", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "SerializableXactHash"), json!({"sessions": 4}));
    }),
    ("LWL-05", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "WALInsert"), json!({"sessions": 4}));
    }),
    ("LWL-06", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "ProcArray"), json!({"sessions": 4}));
    }),
    ("IO-08", Counter, |scene| {
        scene.set("wait", wait("n1", "IO", "DataFileWrite"), json!({"sessions": 4}));
        scene.set("server", n1(), json!({"backend_writes": 9000}));
    }),
    ("NET-06", Counter, |scene| {
        scene.set("wait", wait("n1", "Client", "ClientWrite"), json!({"sessions": 4}));
    }),
    ("VAC-10", Counter, |scene| {
        scene.set("wait", wait("n1", "Timeout", "VacuumDelay"), json!({"sessions": 4}));
    }),
    ("PLAN-05", Co, |scene| {
        busy_table(
            scene,
            json!({"planned_rows": 1000, "changed_since_analyze": 1_999_000, "analyzes_total": 1, "analyzed_s": 300.0}),
        );
    }),
    ("PLAN-06", Co, |scene| {
        scene.drop_source("statement");
        busy_table(scene, json!({"seq_scans": 600, "seq_rows": 1_200_000_000u64, "index_rows": 100}));
    }),
    ("PLAN-07", Co, |scene| {
        scene.set(
            "table",
            orders(),
            json!({"rows_deleted": 600, "unindexed_references": 1, "live_rows": 100_000}),
        );
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.lines"}),
            json!({"seq_scans": 600, "seq_rows": 60_000_000}),
        );
    }),
    ("PLAN-08", Co, |scene| {
        scene.fact(n1(), "setting", "plan_cache_mode", "force_generic_plan");
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "9", "text": "select id from task where state = $1"}),
        );
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}));
    }),
    ("PLAN-14", Co, |scene| {
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "9", "text": "select id from post order by id offset $1 limit $2"}),
        );
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 1000, "total_ms": 50_000.0, "rows": 20_000, "shared_hit": 2_000_000, "shared_read": 0}));
    }),
    ("PLAN-09", Co, |scene| {
        for day in 0..20 {
            scene.set("table", json!({"node": "n1", "database": "db", "relation": format!("public.reading_{day}")}),
                json!({"partition_of": "reading", "index_scans": 6000 + day, "seq_scans": 0, "blocks_hit": 200_000, "blocks_read": 0, "live_rows": 10_000}));
        }
    }),
    ("VAC-09", Counter, |scene| {
        scene.set("table", orders(), json!({"rows_updated": 60_000, "rows_hot_updated": 3000, "indexes": 5}));
    }),
    ("REP-09", Counter, |scene| {
        scene.vary("server", n1(), "conflicts", |second| f64::from(u8::from(second % 30 == 0)));
    }),
    ("REP-10", Counter, |scene| {
        scene.set("server", n1(), json!({"in_recovery": true, "replay_paused": true}));
    }),
    ("SES-04", Counter, |scene| {
        scene.event(
            60,
            event::SERVER_LOG,
            "sorry, too many clients already",
            json!({"node": "n1", "sqlstate": "53300", "repeated": 40}),
        );
    }),
    ("SES-05", Co, |scene| {
        scene.set("server", n1(), json!({"sessions_total": 900, "sessions_max": 1000}));
        scene.set("host", json!({"host": "h1"}), json!({"memory_available_bytes": 3_000_000_000u64}));
    }),
    ("MEM-05", Counter, |scene| {
        let group = json!({"host": "h1", "node": "n1"});
        scene.set("cgroup", group.clone(), json!({"path": "/pg", "memory_max_bytes": 2_000_000_000u64}));
        scene.vary("cgroup", group, "oom_kills", |second| f64::from(u8::from(second == 60)));
    }),
    ("TXN-05", Counter, |scene| {
        scene.set("server", n1(), json!({"xact_rollback": 900}));
        scene.fact(n1(), "setting", "default_transaction_isolation", "serializable");
    }),
    ("IO-07", Co, |scene| {
        scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": 6}));
        scene.set("server", n1(), json!({"active_ms": 12_000.0}));
        scene.set("disk", crate::scene::disk("h1", "nvme0n1"), json!({"read_bytes": 2_400_000}));
    }),
    ("IO-09", Co, |scene| {
        scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 4}));
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "io_limit": "8:0 wbps=3145728"}),
        );
    }),
];
