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
    ("PLAN-05", |scene| {
        // One session that loaded a table and analysed it at once: its inserts are counted after the ANALYZE that found them.
        let table = json!({"node": "n1", "database": "db", "relation": "public.usertable"});
        scene.set(
            "table",
            table,
            json!({"live_rows": 2_000_000, "planned_rows": 1_000_000, "changed_since_analyze": 1_000_000}),
        );
    }),
    ("GEN-07", |scene| {
        // More work, and bursts of it: each transaction takes what it took.
        let server = json!({"node": "n1"});
        scene.vary("server", server.clone(), "active_ms", |second| {
            600.0 * (1.0 + (second % 7) as f64 * (second / 60) as f64)
        });
        scene.vary("server", server, "xact_commit", |second| {
            100.0 * (1.0 + (second % 7) as f64 * (second / 60) as f64)
        });
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
    ("TXN-03", |scene| {
        // What workers apply of other nodes' changes is not counted as rows of this one; its WAL is.
        applied_by_workers(scene);
        scene.set(
            "server",
            json!({"node": "n1"}),
            json!({"wal_bytes": 50_000_000, "xact_commit": 2, "tup_inserted": 1, "tup_updated": 0}),
        );
    }),
    ("TXN-03", |scene| {
        // An index is built while nothing but monitoring commits.
        scene.set(
            "server",
            json!({"node": "n1"}),
            json!({"wal_bytes": 400_000_000, "xact_commit": 2, "tup_inserted": 1, "tup_updated": 0}),
        );
        let statement = |id: &str| json!({"node": "n1", "database": "db", "query_id": id});
        scene.event(
            1,
            record::event::QUERY,
            "",
            json!({"query_id": "9", "text": "create index on orders (amount)"}),
        );
        scene.set(
            "statement",
            statement("9"),
            json!({"calls": 1, "total_ms": 900.0, "rows": 0, "wal_bytes": 4_000_000_000u64}),
        );
        scene.set("statement", statement("1"), json!({"wal_bytes": 20_000}));
    }),
    ("WAL-06", |scene| {
        // Workers fill the buffers, and their commits are not counted.
        applied_by_workers(scene);
        scene.set("server", json!({"node": "n1"}), json!({"wal_buffers_full": 50, "xact_commit": 10}));
    }),
    ("GEN-01", |scene| {
        // Another node loaded in large transactions, and then wrote rows one by one.
        applied_by_workers(scene);
        scene.run.steps.clear();
        scene.drop_source("client");
        scene.drop_source("load");
        scene.vary("server", json!({"node": "n1"}), "tup_inserted", |second| {
            if second < 40 { 100_000.0 } else { 1_000.0 }
        });
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
    ("PLAN-08", |scene| {
        // The plan is forced, and it is a good one.
        scene.fact(json!({"node": "n1"}), "setting", "plan_cache_mode", "force_generic_plan");
        scene.event(
            1,
            record::event::QUERY,
            "",
            json!({"query_id": "9", "text": "select id from task where id = $1"}),
        );
        scene.set(
            "statement",
            json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 100_000, "total_ms": 50_000.0, "rows": 100_000, "shared_hit": 400_000}),
        );
    }),
    ("PLAN-09", |scene| {
        // Partitions by key, read as often as their rows are asked for.
        for part in 0..20u64 {
            scene.set("table", json!({"node": "n1", "database": "db", "relation": format!("public.account_{part}")}),
                json!({"partition_of": "account", "index_scans": 1000 * (1 + part * part % 7), "seq_scans": 0, "blocks_hit": 200_000, "live_rows": 10_000}));
        }
    }),
    ("PLAN-02", |scene| {
        // Without statistics of statements: one report that spilled once.
        scene.drop_source("statement");
        scene.vary("server", json!({"node": "n1"}), "temp_files", |second| f64::from(u8::from(second == 60)));
        scene.set("server", json!({"node": "n1"}), json!({"temp_bytes": 1000}));
    }),
    ("PLAN-14", |scene| {
        // A fence: OFFSET 0 without a limit.
        let text = "select count(*) from (select id from post order by at offset $1) q";
        scene.event(1, record::event::QUERY, "", json!({"query_id": "9", "text": text}));
        let figures = json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1_000, "shared_hit": 2_000_000, "shared_read": 0});
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": "9"}), figures);
    }),
    ("PLAN-14", |scene| {
        // The first pages: a few blocks.
        scene.event(
            1,
            record::event::QUERY,
            "",
            json!({"query_id": "9", "text": "select id from post order by id offset $1 limit $2"}),
        );
        scene.set(
            "statement",
            json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 100_000, "total_ms": 50_000.0, "rows": 2_000_000, "shared_hit": 1_000_000}),
        );
    }),
    ("TXN-05", |scene| {
        // Some fail.
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 40}));
        scene.fact(json!({"node": "n1"}), "setting", "default_transaction_isolation", "serializable");
    }),
    ("DIST-06", |scene| {
        // Sessions that hold a page lose their CPU; those that were woken wait for one, too.
        scene.set("wait", wait("n1", "LWLock", "BufferContent"), json!({"sessions": 4}));
        scene.set("server", json!({"node": "n1"}), json!({"active_ms": 11_000.0}));
        let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
        scene.set("schedule", backends, json!({"run_us": 1_000_000, "wait_us": 10_000_000}));
    }),
    ("VAC-08", |scene| {
        // Off for a table that hardly changes.
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.archive"}),
            json!({"live_rows": 1_000_000, "dead_rows": 20_000, "autovacuum": false}),
        );
    }),
    ("CPU-06", |scene| {
        // Pinned to half of the CPUs, which is more than it uses.
        scene.set("cgroup", json!({"host": "h1", "node": "n1"}), json!({"path": "/pg", "cpus_allowed": 4}));
        scene.set(
            "schedule",
            json!({"host": "h1", "node": "n1", "who": "backends"}),
            json!({"run_us": 1_000_000, "wait_us": 300_000}),
        );
    }),
    ("LCK-04", |scene| {
        // A row that others change, and a strong lock that comes at once.
        let block = |pid: u64| json!({"node": "n1", "root": 70, "pid": pid, "blocked_by": 70});
        scene.set(
            "block",
            block(71),
            json!({"wait_s": 9.0, "root_state": "active", "lock_type": "transactionid", "mode": "ShareLock"}),
        );
        scene.set("block", block(72), json!({"wait_s": 0.2, "root_state": "active", "lock_type": "relation", "mode": "AccessExclusiveLock"}));
    }),
    ("LCK-05", |scene| {
        scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 4}));
    }),
    // A disk falls while a load goes on, whose rows fit.
    ("CAP-03", |scene| {
        let mount = json!({"host": "h1", "mount": "/data"});
        scene.set("mount", mount.clone(), json!({"size_bytes": 400_000_000_000u64}));
        scene.vary("mount", mount, "free_bytes", |second| 2e11 - second as f64 * 0.3e9);
        scene.set("load", json!({"step": "load"}), json!({"rows_goal": 1_900_000u64}));
    }),
    ("LCK-06", |scene| {
        scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 4}));
    }),
    ("LWL-01", |scene| {
        scene.set("wait", wait("n1", "LWLock", "BufferContent"), json!({"sessions": 4}));
    }),
    ("LWL-02", |scene| {
        // Savepoints in use, and no session waits for them.
        let cache = json!({"node": "n1", "name": "Subtrans"});
        scene.set("slru", cache, json!({"hits": 90_000, "reads": 0, "writes": 0}));
    }),
    ("LWL-05", |scene| {
        // The disk of the WAL is slow: that is another wait.
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
    }),
    ("PLAN-05", |scene| {
        // Many rows were updated since, but there are as many as the planner assumes; and a table that is not used.
        let table = |name: &str| json!({"node": "n1", "database": "db", "relation": name});
        scene.set(
            "table",
            table("public.orders"),
            json!({"blocks_hit": 20_000_000, "live_rows": 2_000_000, "planned_rows": 1_900_000,
            "changed_since_analyze": 9_000_000, "analyzes_total": 1}),
        );
        scene.set("table", table("public.old"), json!({"blocks_hit": 10, "live_rows": 2_000_000, "changed_since_analyze": 2_000_000, "analyzes_total": 0}));
    }),
    ("PLAN-06", |scene| {
        // With statistics of statements PLAN-01 judges; it knows which rows they need.
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.orders"}),
            json!({"blocks_hit": 20_000_000, "seq_scans": 600,
            "seq_rows": 1_200_000_000u64, "index_rows": 100, "live_rows": 2_000_000}),
        );
    }),
    ("PLAN-06", |scene| {
        // A small table.
        scene.drop_source("statement");
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.currencies"}),
            json!({"blocks_hit": 20_000_000, "seq_scans": 60_000,
            "seq_rows": 12_000_000, "index_rows": 100, "live_rows": 200}),
        );
    }),
    ("PLAN-07", |scene| {
        // Rows are deleted, and nothing is scanned for it: the referring table has no rows of them, or few.
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.orders"}),
            json!({"rows_deleted": 600, "unindexed_references": 1}),
        );
    }),
    ("VAC-09", |scene| {
        // Most updates are heap-only.
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.orders"}),
            json!({"rows_updated": 60_000, "rows_hot_updated": 50_000, "indexes": 5}),
        );
    }),
    ("SES-04", |scene| {
        // Another refusal, and many connections that are fewer than there may be.
        scene.event(
            60,
            record::event::SERVER_LOG,
            "password authentication failed for user x",
            json!({"node": "n1", "sqlstate": "28P01"}),
        );
        scene.set("server", json!({"node": "n1"}), json!({"sessions_total": 90}));
    }),
    ("SES-04", |scene| {
        // The limit of the connections of standbys has the same SQLSTATE.
        let words = "number of requested standby connections exceeds max_wal_senders (currently 1)";
        scene.event(
            60,
            record::event::SERVER_LOG,
            words,
            json!({"node": "n1", "sqlstate": "53300", "repeated": 40}),
        );
    }),
    ("SES-05", |scene| {
        // 300 quiet connections on a host with memory.
        scene.set("server", json!({"node": "n1"}), json!({"sessions_total": 320, "sessions_max": 1000}));
    }),
    ("MEM-05", |scene| {
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "memory_max_bytes": 2_000_000_000u64, "oom_kills": 0}),
        );
    }),
    ("IO-07", |scene| {
        // The page cache delivers.
        scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": 6}));
        scene.set("server", json!({"node": "n1"}), json!({"blks_read": 9000, "active_ms": 12_000.0}));
    }),
    ("IO-09", |scene| {
        // A limit that nothing waits for.
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "io_limit": "8:0 wbps=3145728000"}),
        );
    }),
    ("CPU-06", |scene| {
        // A quota that is hardly ever used up.
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "quota_cpus": 6.0, "periods": 10, "periods_throttled": 0}),
        );
    }),
    ("REP-10", |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"in_recovery": true, "replay_paused": false}));
    }),
    ("WAL-06", |scene| {
        // One COPY fills the buffers again and again; there are no commits to count it by.
        scene.set("server", json!({"node": "n1"}), json!({"wal_buffers_full": 3}));
        scene.vary("server", json!({"node": "n1"}), "xact_commit", |second| {
            f64::from(u8::from(second % 10 == 0))
        });
    }),
    ("PLAN-02", |scene| {
        // An index is built: it sorts in files, once.
        let statement = json!({"node": "n1", "database": "db", "query_id": "9"});
        let text = json!({"query_id": "9", "text": "CREATE INDEX ON orders (customer)"});
        scene.event(1, record::event::QUERY, "", text);
        scene.set(
            "statement",
            statement.clone(),
            json!({"calls": 1, "total_ms": 200_000.0, "rows": 0, "shared_hit": 2_000, "temp_written": 20_000}),
        );
        scene.during("statement", statement, 10..=10);
    }),
    ("VAC-05", |scene| {
        // A transaction of half a minute, on a node whose vacuums remove what they should.
        scene.set(
            "horizon",
            json!({"node": "n1", "kind": "session", "name": "report", "pid": 9}),
            json!({"age_xids": 5000, "age_s": 30.0}),
        );
    }),
    ("REP-07", |scene| {
        // Its worker runs, and the other one was disabled by an engine that does so itself.
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

/// Workers of the first node apply what another one writes.
fn applied_by_workers(scene: &mut Scene) {
    let keys = json!({"node": "n1", "subscription": "of_n2"});
    scene.set("subscription", keys, json!({"enabled": false, "own": true, "running": false}));
}
