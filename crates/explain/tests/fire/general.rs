//! Conditions of clients, nodes, disks, networks and vacuums, one for each of the oldest rules.

use super::around::slot;
use super::{Co, Counter, Fires};
use crate::scene::{NODES, Scene, disk, vacuum_wait, wait};
use record::event;
use record::finding::Level::{PeerContrast as Peer, Symptom};
use record::matrix::Matrix;
use record::model::{Check, CheckResult};
use record::sweep::{Curve, Fit, Mix, Outcome, Point, Sweep};
use serde_json::json;

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("GEN-01", Counter, |scene| {
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "7", "text": "INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING"}),
        );
        let keys = json!({"node": "n1", "database": "db", "query_id": "7"});
        scene.set("statement", keys.clone(), json!({"calls": 100})).vary(
            "statement",
            keys,
            "rows",
            |second| if second < 90 { 9_900.0 } else { 1_000.0 },
        );
    }),
    ("GEN-02", Counter, |scene| {
        scene.vary("server", json!({"node": "n1"}), "deadlocks", |second| {
            f64::from(u8::from(second % 30 == 0))
        });
        scene.event(
            30,
            event::DEADLOCK,
            "deadlock detected: Process 1 waits for ShareLock on transaction 5",
            json!({"node": "n1"}),
        );
    }),
    ("GEN-03", Counter, |scene| {
        scene.set("client", json!({"step": "run"}), json!({"lag_us_p99": 2000, "client_cpu_us": 980_000}));
    }),
    ("GEN-04", Counter, |scene| {
        scene.vary("client", json!({"step": "run"}), "transactions", |second| {
            if (60..80).contains(&second) { 0.0 } else { 3000.0 }
        });
    }),
    ("GEN-05", Counter, |scene| {
        scene.vary("client", json!({"step": "run"}), "transactions", |second| {
            if (60..63).contains(&second) { 0.0 } else { 3000.0 }
        });
    }),
    ("GEN-07", Co, |scene| {
        let server = json!({"node": "n1"});
        scene.vary(
            "server",
            server.clone(),
            "active_ms",
            |second| if second < 100 { 6000.0 } else { 7500.0 },
        );
        scene.vary("server", server, "xact_commit", |second| if second < 100 { 1000.0 } else { 400.0 });
    }),
    ("GEN-06", Counter, |scene| {
        scene.set("load", json!({"step": "load"}), json!({"rows_goal": 100_000_000_000u64}));
    }),
    ("IO-01", Peer, |scene| {
        scene.set("disk", disk("h1", "nvme3n1"), json!({"write_await_ms": 5.0}));
    }),
    ("IO-02", Peer, |scene| {
        for device in ["nvme0n1", "nvme1n1", "nvme3n1"] {
            scene.set("disk", disk("h2", device), json!({"read_await_ms": 0.5}));
        }
    }),
    ("IO-03", Counter, |scene| {
        scene.fact(json!({"host": "h1"}), "disk", "0000:3b:00.0 storage link", "8.0 GT/s x2 of 16.0 GT/s x4");
    }),
    ("IO-04", Counter, |scene| {
        scene.set(
            "hardware",
            json!({"host": "h1", "kind": "smart", "name": "nvme0n1 media_errors"}),
            json!({"value": 5, "change": 1}),
        );
    }),
    ("IO-05", Symptom, |scene| {
        scene.set("disk", disk("h1", "nvme0n1"), json!({"read_await_ms": 150.0}));
    }),
    ("IO-06", Co, |scene| {
        scene.set("disk", disk("h1", "nvme0n1"), json!({"queue": 8.0, "write_await_ms": 3.0}));
        scene.vary("disk", disk("h1", "nvme0n1"), "writes", |second| 300.0 + (second % 3) as f64);
    }),
    ("FS-01", Counter, |scene| {
        scene
            .fact(json!({"host": "h1"}), "mount", "/data stripe", "1280")
            .stacks(include_str!("../fixtures/ext4_mb_good_group.perf"));
    }),
    ("FS-02", Counter, |scene| {
        scene.set(
            "mount",
            json!({"host": "h1", "mount": "/data"}),
            json!({"free_bytes": 600_000_000_000u64}),
        );
        scene.set(
            "hardware",
            json!({"host": "h1", "kind": "mb_stats", "name": "md0 groups_considered"}),
            json!({"change": 150_000}),
        );
        scene.set(
            "hardware",
            json!({"host": "h1", "kind": "mb_stats", "name": "md0 useless_loops"}),
            json!({"value": 900, "change": 400}),
        );
    }),
    ("FS-03", Counter, |scene| {
        scene.stacks(include_str!("../fixtures/osq_lock_aggsum.perf"));
        scene.fact(json!({"host": "h1"}), "zfs", "version", "0.8.6-1").fact(
            json!({"host": "h1"}),
            "cpu",
            "memory nodes",
            "8",
        );
    }),
    ("FS-05", Co, |scene| {
        let keys = json!({"host": "h1", "mount": "/data"});
        scene.set("mount", keys, json!({"options": "rw,relatime,sync"}));
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 40}));
    }),
    ("FS-04", Counter, |scene| {
        scene.fact(json!({"node": "n1"}), "server", "data_directory", "/data");
    }),
    ("MEM-01", Counter, |scene| {
        for line in include_str!("../fixtures/edac.txt").lines() {
            scene.event(40, event::KERNEL, line, json!({"host": "h1", "topic": "edac"}));
        }
    }),
    ("MEM-02", Counter, |scene| {
        scene.vary("host", json!({"host": "h1"}), "oom_kills", |second| f64::from(u8::from(second == 50)));
        scene.event(
            50,
            event::KERNEL,
            "Out of memory: Killed process 4242 (postgres)",
            json!({"host": "h1", "topic": "oom"}),
        );
    }),
    ("MEM-03", Co, |scene| {
        scene.set("host", json!({"host": "h1"}), json!({"page_tables_bytes": 4_000_000_000u64}));
    }),
    ("HW-01", Counter, |scene| {
        scene.set(
            "hardware",
            json!({"host": "h1", "kind": "fan", "name": "nct6775 CPU1 FAN"}),
            json!({"value": 0}),
        );
    }),
    ("CPU-01", Counter, |scene| {
        scene.stacks(include_str!("../fixtures/rwsem_write.perf")).set(
            "host",
            json!({"host": "h1"}),
            json!({"cpu_system_pct": 45.0}),
        );
    }),
    ("CPU-02", Co, |scene| {
        scene.vary("host", json!({"host": "h3"}), "cpu_user_pct", |second| 10.0 + (second % 20) as f64 * 3.0);
    }),
    ("CPU-03", Counter, |scene| {
        scene.set(
            "hardware",
            json!({"host": "h1", "kind": "numa", "name": "node1 other_node"}),
            json!({"value": 100_000, "change": 5000}),
        );
    }),
    ("CPU-04", Counter, |scene| {
        scene.set("host", json!({"host": "h1"}), json!({"cpu_steal_pct": 9.0}));
    }),
    ("CPU-05", Counter, |scene| {
        scene.set("host", json!({"host": "h1"}), json!({"cpu_user_pct": 10.0, "cpu_system_pct": 4.0}));
        scene.set("wait", wait("n1", "IPC", "SyncRep"), json!({"sessions": 40}));
    }),
    ("SEC-01", Counter, |scene| {
        scene.stacks(include_str!("../fixtures/audit.perf")).fact(
            json!({"host": "h1"}),
            "audit",
            "rules",
            "-a always,exit -S pwrite64",
        );
    }),
    ("SEC-02", Counter, |scene| {
        scene.fact(json!({"host": "h1"}), "fanotify", "av-agent 7 on /data", "must permit: open");
    }),
    ("NET-01", Counter, |scene| {
        scene.fact(json!({"host": "h1"}), "nic", "eth0 rx queues", "1").set(
            "core",
            json!({"host": "h1", "cpu": 0}),
            json!({"softirq_pct": 92.0}),
        );
    }),
    ("NET-02", Peer, |scene| {
        scene.fact(json!({"host": "h1"}), "nic", "eth0 speed", "1000 Mbit/s");
    }),
    ("NET-03", Counter, |scene| {
        for (node, _) in NODES {
            scene.set("clock", json!({"node": node}), json!({"error_us": 2250}));
        }
    }),
    ("NET-04", Counter, |scene| {
        scene.set("host", json!({"host": "h1"}), json!({"tcp_retransmits": 60}));
    }),
    ("NET-05", Counter, |scene| {
        scene.set("host", json!({"host": "h1"}), json!({"cpu_softirq_pct": 14.0}));
    }),
    ("VAC-01", Counter, |scene| {
        wraparound(scene);
        scene.set("wait", vacuum_wait("n1", "Timeout", "VacuumDelay"), json!({"sessions": 3}));
    }),
    ("VAC-02", Counter, |scene| {
        wraparound(scene);
        scene.set("wait", vacuum_wait("n1", "LWLock", "WALWrite"), json!({"sessions": 5}));
        scene.set("wait", vacuum_wait("n1", "IO", "WALSync"), json!({"sessions": 2}));
    }),
    ("VAC-03", Counter, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 3}));
    }),
    ("VAC-04", Counter, |scene| {
        held(scene);
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
            json!({"autovacuums": 20, "dead_rows": 500_000}),
        );
    }),
    ("VAC-05", Counter, held),
    ("VAC-06", Counter, |scene| {
        wraparound(scene);
        scene.vary(
            "progress",
            json!({"node": "n1", "pid": 900, "command": "vacuum", "relation": "public.usertable"}),
            "index_passes",
            |second| (second / 50) as f64,
        );
    }),
    ("VAC-07", Counter, |scene| {
        scene.vary("server", json!({"node": "n1"}), "database_age_xids", |second| {
            1.8e8 + second as f64 * 1000.0
        });
        wraparound(scene);
        scene.set("wait", vacuum_wait("n1", "Timeout", "VacuumDelay"), json!({"sessions": 3}));
    }),
    ("TXN-01", Counter, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"tup_inserted": 1000, "tup_updated": 0}));
        scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 20}));
    }),
    ("TXN-02", Counter, |scene| {
        slot(scene, "n1", true);
        scene.set(
            "slot",
            json!({"node": "n1", "slot": "s1"}),
            json!({"spill_bytes": 20_000_000, "spill_txns": 1}),
        );
    }),
    ("TXN-03", Co, |scene| {
        scene.set(
            "server",
            json!({"node": "n1"}),
            json!({"wal_bytes": 400_000_000, "xact_commit": 20, "tup_inserted": 20, "tup_updated": 0}),
        );
    }),
    ("TXN-04", Counter, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"prepared_xacts": 1})).vary(
            "server",
            json!({"node": "n1"}),
            "prepared_age_s_max",
            |second| 700.0 + second as f64,
        );
        scene.set(
            "horizon",
            json!({"node": "n1", "kind": "prepared", "name": "gx1"}),
            json!({"age_xids": 100, "age_s": 800.0}),
        );
    }),
    ("LCK-01", Counter, |scene| {
        for pid in [11, 12, 13, 14] {
            let keys = json!({"node": "n1", "pid": pid, "root": 10});
            scene.set("block", keys.clone(), json!({"blocked_by": 10, "root_state": "idle in transaction", "depth": 1, "lock_type": "tuple", "mode": "ExclusiveLock", "relation": "public.accounts", "query": "UPDATE accounts SET v = v + 1", "blocker_query": "UPDATE accounts SET v = 0"}));
            scene.vary("block", keys.clone(), "wait_s", |second| second as f64 - 40.0).during(
                "block",
                keys,
                50..=70,
            );
        }
    }),
    ("LCK-02", Counter, |scene| {
        let step = scene.run.steps.iter_mut().find(|step| step.verb == "prove").expect("a proof");
        step.checks.push(Check {
            name: "sum of balances".into(),
            scope: "two shards".into(),
            rows: 100,
            result: CheckResult::Fail,
            detail: "12 sums are wrong".into(),
            counterexamples: vec!["990 of 1000".into()],
        });
    }),
    ("MEM-04", Counter, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "shared_buffers", "128MB");
        scene.set("server", json!({"node": "n1"}), json!({"blks_read": 9000}));
    }),
    ("VAC-08", Counter, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "autovacuum", "off");
    }),
    ("WAL-01", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9})).set(
            "wait",
            wait("n1", "IO", "WALSync"),
            json!({"sessions": 2}),
        );
    }),
    ("WAL-02", Co, |scene| {
        for second in [13, 47, 71, 120, 161] {
            scene.event(
                second,
                event::CHECKPOINT,
                "checkpoint starting: wal",
                json!({"node": "n1", "reason": "wal"}),
            );
        }
        let peak = |second: u64| [14, 15, 48, 49, 73, 74, 121, 163, 164].contains(&second);
        scene.vary("client", json!({"step": "run"}), "response_us_p99", move |second| {
            if peak(second) { 140_000.0 } else { 15_000.0 }
        });
    }),
    ("WAL-03", Counter, |scene| {
        scene.vary("server", json!({"node": "n1"}), "checkpoints_requested", |second| {
            f64::from(u8::from(second % 20 == 0))
        });
        scene.event(
            40,
            event::CHECKPOINT,
            "checkpoint starting: wal",
            json!({"node": "n1", "reason": "wal"}),
        );
    }),
    ("WAL-04", Co, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "wal_level", "logical");
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
            json!({"replica_identity": "full"}),
        );
    }),
    ("WAL-05", Co, |scene| {
        scene.set("mount", json!({"host": "h1", "mount": "/data"}), json!({"used_for": "pgdata, wal"}));
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
    }),
    ("WAL-06", Counter, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"wal_buffers_full": 50}));
    }),
    ("REP-01", Counter, |scene| {
        scene.set("wait", wait("n1", "IPC", "SyncRep"), json!({"sessions": 6}));
        scene.set("replication", json!({"node": "n1", "standby": "s1"}), json!({"state": "streaming", "sync_state": "sync", "write_lag_us": 500, "flush_lag_us": 900, "replay_lag_us": 9000, "flush_lag_bytes": 0, "replay_lag_bytes": 0}));
    }),
    ("REP-02", Counter, |scene| {
        scene.set(
            "backend",
            json!({"host": "h2", "node": "n2", "pid": 7, "backend": "startup"}),
            json!({"cpu_us": 960_000}),
        );
        let keys = json!({"node": "n1", "standby": "n2"});
        scene.set("replication", keys.clone(), json!({"flush_lag_bytes": 1000})).vary(
            "replication",
            keys,
            "replay_lag_bytes",
            |second| second as f64 * 1e6,
        );
    }),
    ("REP-03", Counter, |scene| slot(scene, "n1", false)),
    ("REP-04", Co, |scene| {
        slot(scene, "n1", false);
        slot(scene, "n2", false);
    }),
    ("REP-05", Counter, |scene| {
        scene.set("clock", json!({"node": "n2"}), json!({"offset_us": -130_000, "error_us": 300}));
    }),
    ("REP-06", Counter, |scene| {
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
            json!({"published": true, "primary_key": false, "replica_identity": "full"}),
        );
        scene.set(
            "table",
            json!({"node": "n2", "database": "db", "relation": "public.usertable"}),
            json!({"seq_rows": 900_000_000u64}),
        );
    }),
    ("REP-07", Counter, |scene| {
        scene.set(
            "subscription",
            json!({"node": "n2", "subscription": "from_a"}),
            json!({"replication": "pglogical", "enabled": true, "running": false}),
        );
    }),
    ("REP-07", Counter, |scene| {
        scene.set(
            "subscription",
            json!({"node": "n2", "subscription": "sub1"}),
            json!({"apply_errors": 1, "enabled": true}),
        );
        scene.event(
            20,
            event::SERVER_LOG,
            "duplicate key value violates unique constraint",
            json!({"node": "n2"}),
        );
    }),
    ("REP-08", Peer, |scene| {
        for node in ["n2", "n3"] {
            scene.set(
                "server",
                json!({"node": node}),
                json!({"in_recovery": true, "tup_returned": 10, "tup_fetched": 0}),
            );
        }
    }),
    ("CAP-01", Counter, |scene| {
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
            json!({"tablespace": "disk2", "index_tablespaces": "pg_default"}),
        );
        scene.set(
            "mount",
            json!({"host": "h1", "mount": "/data"}),
            json!({"free_bytes": 900_000_000_000u64}),
        );
    }),
    ("CAP-02", Counter, |scene| {
        scene.vary(
            "table",
            json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
            "bytes",
            |second| 3.0e13 + second as f64 * 1e9,
        );
    }),
    ("CAP-03", Counter, |scene| {
        scene.set("load", json!({"step": "load"}), json!({"rows_goal": 100_000_000_000u64}));
    }),
    ("CAP-03", Counter, |scene| {
        scene.drop_source("load");
        let mount = json!({"host": "h1", "mount": "/data"});
        scene.vary("mount", mount, "free_bytes", |second| 5e12 - second as f64 * 20e9);
    }),
    ("CAP-04", Peer, |scene| {
        for (index, (node, _)) in NODES.into_iter().enumerate() {
            let bytes = [1_000_000_000u64, 1_001_000_000, 1_300_000_000][index];
            scene.set(
                "table",
                json!({"node": node, "database": "db", "relation": "public.usertable"}),
                json!({"bytes": bytes}),
            );
        }
    }),
    ("DIST-01", Peer, |scene| {
        scene.vary(
            "node",
            json!({"node": "n3"}),
            "transactions",
            |second| if second < 70 { 1000.0 } else { 300.0 },
        );
        scene.set("disk", disk("h3", "nvme3n1"), json!({"write_await_ms": 5.0}));
    }),
    ("DIST-02", Peer, |scene| {
        let rates = [[15_805.0, 710.0, 764.0], [741.0, 10_987.0, 725.0], [984.0, 905.0, 23_673.0]];
        scene.run.summary.matrix = Some(matrix(&rates.map(|row| row.to_vec())));
    }),
    ("DIST-03", Peer, |scene| {
        // R0's matrix of 20 workers: node 7.
        let rates: [[f64; 7]; 7] = [
            [15805.0, 710.0, 764.0, 649.0, 751.0, 734.0, 242.0],
            [741.0, 10987.0, 725.0, 629.0, 677.0, 697.0, 229.0],
            [984.0, 905.0, 23673.0, 825.0, 914.0, 931.0, 333.0],
            [779.0, 634.0, 670.0, 10220.0, 623.0, 633.0, 214.0],
            [771.0, 712.0, 764.0, 628.0, 7830.0, 695.0, 222.0],
            [810.0, 751.0, 802.0, 654.0, 693.0, 37807.0, 219.0],
            [223.0, 236.0, 219.0, 206.0, 210.0, 330.0, 1663.0],
        ];
        scene.run.summary.matrix = Some(matrix(&rates.map(|row| row.to_vec())));
    }),
    ("DIST-04", Counter, |scene| {
        let point = |sessions: u64, tps: f64| Point { sessions, tps: Some(tps), ..Point::default() };
        let fit = Fit { lambda_tps: 100.0, sigma: 0.05, kappa: 0.001, points: 5, ..Fit::default() };
        let curve = Curve {
            name: "ycsb-a".into(),
            points: vec![point(1, 100.0), point(8, 600.0), point(80, 1800.0), point(160, 1850.0)],
            fit: Some(fit),
            knee_sessions: Some(80.0),
            ..Curve::default()
        };
        scene.run.summary.sweep = Some(Sweep { curves: vec![curve], mixes: vec![] });
    }),
    ("DIST-05", Peer, |scene| {
        let mix = Mix {
            sessions: 64,
            read_percent: 50,
            factor: 0.6,
            read_slowdown: Some(2.0),
            update_slowdown: Some(1.2),
            outcome: Outcome::Collapse,
            ..Mix::default()
        };
        scene.run.summary.sweep.as_mut().expect("a sweep").mixes = vec![mix];
    }),
    ("DIST-06", Counter, |scene| {
        scene.set("wait", wait("n1", "LWLock", "BufferContent"), json!({"sessions": 12}));
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "1", "text": "UPDATE counter SET n = n + 1 WHERE id = 1"}),
        );
    }),
    ("DIST-07", Counter, |scene| {
        scene.fact(json!({"host": "h3"}), "mount", "/data stripe", "0").fact(
            json!({"host": "h3"}),
            "kernel",
            "release",
            "6.12.1-amd64",
        );
    }),
    ("OBS-01", Counter, |scene| {
        scene.during("host", json!({"host": "h1"}), 60..=180).during(
            "server",
            json!({"node": "n1"}),
            1..=180,
        );
        scene.event(
            70,
            event::RESET,
            "counters of n1 went back",
            json!({"node": "n1", "what": "pg_stat_database"}),
        );
        scene.event(71, event::GAP, "12 ticks were missed", json!({"node": "n1", "ticks": 12}));
    }),
    ("OBS-02", Counter, |scene| {
        // 2.1 s of 80 in ten seconds.
        let views = json!({"node": "n1", "part": "views"});
        scene.set("watching", views, json!({"cpu_us": 100_000, "server_cpu_us": 2_000_000}));
    }),
];

fn matrix(rates: &[Vec<f64>]) -> Matrix {
    let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let rates: Vec<Vec<Option<f64>>> =
        rates.iter().map(|row| row.iter().map(|rate| Some(*rate)).collect()).collect();
    Matrix::of_rates(&names[..rates.len()], "select", &rates)
}

/// A vacuum against wraparound that will take hours.
fn wraparound(scene: &mut Scene) {
    let keys = json!({"node": "n1", "pid": 900, "command": "vacuum", "relation": "public.usertable"});
    scene.set("progress", keys.clone(), json!({"phase": "scanning heap", "total": 100_000_000u64, "unit": "blocks", "wraparound": true, "auto": true, "index_passes": 0}));
    scene.vary("progress", keys, "done", |second| second as f64 * 5000.0);
}

/// A session that has been idle in its transaction for half a day.
fn held(scene: &mut Scene) {
    scene.set(
        "horizon",
        json!({"node": "n1", "kind": "session", "name": "billing", "pid": 77}),
        json!({"age_xids": 30_000_000, "age_s": 43_000.0}),
    );
    scene.set("session", json!({"node": "n1", "pid": 77}), json!({"application": "billing", "state": "idle in transaction", "xact_age_s": 43_000.0, "query": "SELECT 1"}));
}
