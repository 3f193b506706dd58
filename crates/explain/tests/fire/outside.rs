//! Sessions that wait for what is outside of the server: standbys, clients, poolers, foreign servers; and what looks like that.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use serde_json::json;

/// A standby that has flushed everything; what it has not replayed, how late that is, and whether its position moves.
struct Standby {
    sync_state: &'static str,
    flush_us: u64,
    replay_us: u64,
    behind: f64,
    moves: bool,
}

const STUCK: Standby =
    Standby { sync_state: "sync", flush_us: 400, replay_us: 12_000_000, behind: 140e3, moves: false };

fn standby(scene: &mut Scene, name: &str, how: Standby) {
    let keys = json!({"node": "n1", "standby": name});
    let fields = json!({"state": "streaming", "sync_state": how.sync_state, "feedback": false, "write_lag_us": 100, "flush_lag_us": how.flush_us,
        "replay_lag_us": how.replay_us, "flush_lag_bytes": 0});
    scene.set("replication", keys.clone(), fields);
    let behind = move |second: u64| if how.moves { how.behind } else { how.behind + 1000.0 * second as f64 };
    scene.vary("replication", keys, "replay_lag_bytes", behind);
}

/// A standby that confirms at once, but nothing within these of every ten seconds: what it has not replayed then, and its delay, stay as they are.
pub(crate) fn paused(scene: &mut Scene, name: &str, seconds: std::ops::Range<u64>) {
    standby(scene, name, Standby { replay_us: 1_700, ..STUCK });
    let keys = json!({"node": "n1", "standby": name});
    let is_paused = move |second: u64| seconds.contains(&(second % 10));
    let behind = is_paused.clone();
    scene.vary(
        "replication",
        keys.clone(),
        "flush_lag_bytes",
        move |second| if is_paused(second) { 0.0 } else { 900.0 },
    );
    scene.vary("replication", keys, "replay_lag_bytes", move |second| {
        if behind(second) { 500.0 + 1000.0 * (second % 10 - 2) as f64 } else { 900.0 }
    });
}

/// Commits that wait for standbys.
pub(crate) fn commits(scene: &mut Scene, mode: &str) {
    scene.set("wait", wait("n1", "IPC", "SyncRep"), json!({"sessions": 6}));
    scene.fact(json!({"node": "n1"}), "setting", "synchronous_commit", mode);
    scene.vary("server", json!({"node": "n1"}), "wal_position_bytes_total", |second| {
        1e9 + 1000.0 * second as f64
    });
}

/// The console of the pooler.
pub(crate) const POOLER: &str = "dbname=pgbouncer host=db1 port=6432 user=watcher";

/// A pool of three connections: clients that wait, and the time of transactions, queries and waiting of a second.
pub(crate) fn pool(
    scene: &mut Scene,
    mode: &str,
    waiting: u64,
    (transaction_us, query_us, wait_us): (u64, u64, u64),
) {
    let keys = json!({"node": "n1", "pooler": POOLER, "database": "cart", "user": "app"});
    let fields = json!({"pool_mode": mode, "clients_active": 3, "clients_waiting": waiting, "servers_active": 3, "servers_free": 0, "size": 3,
        "max_wait_us": if waiting > 0 { 300_000 } else { 0 }, "transactions": 140, "queries": 560, "transaction_us": transaction_us, "query_us": query_us,
        "wait_us": wait_us});
    scene.set("pool", keys, fields);
}

/// A pooler as a whole: its clients, its places for them, and what it sends away each second.
fn sends_away(scene: &mut Scene, clients: u64, refused: Option<u64>, reason: &str) {
    let keys = json!({"node": "n1", "pooler": "dbname=pgbouncer host=db1 port=6432"});
    scene.set(
        "pooler",
        keys,
        json!({"clients": clients, "clients_max": 100, "refused": refused, "reason": reason}),
    );
}

/// A pool whose clients wait from begin to end: pgbouncer counts no wait before it is over, and shows how long the first of them has waited.
pub(crate) fn lasting(scene: &mut Scene, mode: &str, times: (u64, u64, u64)) {
    pool(scene, mode, 9, times);
    let keys = json!({"node": "n1", "pooler": POOLER, "database": "cart", "user": "app"});
    scene.vary("pool", keys, "max_wait_us", |second| 1e6 * second as f64);
}

/// A statement on a foreign table that waits for its server: what is sent, what is checked here, and the rows of an execution.
pub(crate) fn foreign(scene: &mut Scene, remote: &str, filter: &str, rows: u64) {
    let figures = json!({"calls": 90, "total_ms": 30_000.0, "rows": 90 * rows, "shared_hit": 0});
    statement(
        scene,
        "select id, name from customers where norm_phone(phone) = norm_phone($1)",
        figures,
        json!({}),
    );
    scene.fact(json!({"node": "n1"}), "function", "norm_phone", "plpgsql 100 rows: return replace(t)");
    let fields = json!({"alias": "customers", "relation": "public.customers", "foreign_server": "legacy", "remote": remote,
        "filter": filter, "table_rows": 150_000.0});
    node(scene, 1, 0, "Foreign Scan", fields);
    for (kind, event) in [("CPU", "CPU"), ("Extension", "Extension")] {
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
        scene.set("wait", keys, json!({"sessions": 2}));
    }
}

pub(crate) const ALL_ROWS: &str = "SELECT id, name, phone FROM public.customers";
const BY_PHONE: &str = "SELECT id, name FROM public.customers WHERE ((replace(phone, ' ', '') = $1::text))";
const HERE: &str = "(norm_phone(customers.phone) = norm_phone($1))";

/// Part of [`super::all`].
pub(crate) const CASES: &[Fires] = &[
    ("REP-18", Counter, |scene| {
        commits(scene, "remote_apply");
        standby(scene, "s1", STUCK);
    }),
    // It replays all the time, a second late.
    ("REP-18", Counter, |scene| {
        commits(scene, "remote_apply");
        standby(scene, "s1", Standby { replay_us: 1_000_000, moves: true, ..STUCK });
    }),
    // Nothing was replayed from the start on, so that no delay is known; and two of a quorum of two are wanted.
    ("REP-18", Counter, |scene| {
        commits(scene, "remote_apply");
        scene.fact(json!({"node": "n1"}), "setting", "synchronous_standby_names", "ANY 2 (s1, s2)");
        standby(scene, "s1", Standby { sync_state: "quorum", replay_us: 400, ..STUCK });
        let fine = Standby { sync_state: "quorum", replay_us: 500, behind: 0.0, moves: true, ..STUCK };
        standby(scene, "s2", fine);
    }),
    // Replay is paused for some seconds, and the only thing that the primary shows of it is that nothing moves.
    ("REP-18", Counter, |scene| {
        commits(scene, "remote_apply");
        paused(scene, "s1", 3..9);
    }),
    // Open transactions without a query; connections that are kept; queries on a server that has room.
    ("SES-13", Counter, |scene| pool(scene, "transaction", 37, (3_000_000, 20_000, 37_000_000))),
    // As pgbouncer counts: the time of waiting is in all of them.
    ("SES-13", Counter, |scene| pool(scene, "transaction", 37, (40_000_000, 37_200_000, 37_000_000))),
    ("SES-13", Counter, |scene| pool(scene, "session", 37, (90_000, 80_000, 37_000_000))),
    // Clients that are not served within the recording are in no total.
    ("SES-13", Counter, |scene| lasting(scene, "session", (290_000, 290_000, 0))),
    ("SES-13", Counter, |scene| {
        sends_away(scene, 100, Some(12), "no more connections allowed (max_client_conn)")
    }),
    ("SES-13", Counter, |scene| sends_away(scene, 40, Some(1), "query_wait_timeout")),
    ("SES-13", Counter, |scene| sends_away(scene, 101, None, "")),
    ("SES-13", Counter, |scene| lasting(scene, "transaction", (0, 0, 0))),
    ("SES-13", Counter, |scene| pool(scene, "transaction", 2, (2_900_000, 2_800_000, 2_000_000))),
    ("EXT-06", Co, |scene| foreign(scene, ALL_ROWS, HERE, 1)),
    ("EXT-06", Co, |scene| foreign(scene, ALL_ROWS, "(customers.changed_at > (now() - $1))", 1)),
    ("EXT-06", Co, |scene| foreign(scene, BY_PHONE, "", 1)),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Commits wait for the flush, and a delay of replay is meant.
    ("REP-18", |scene| {
        commits(scene, "on");
        standby(scene, "s1", STUCK);
    }),
    // The network takes the time.
    ("REP-18", |scene| {
        commits(scene, "remote_apply");
        standby(scene, "s1", Standby { flush_us: 900_000, replay_us: 950_000, moves: true, ..STUCK });
    }),
    // Any one of two confirms, and one has replayed.
    ("REP-18", |scene| {
        commits(scene, "remote_apply");
        scene.fact(json!({"node": "n1"}), "setting", "synchronous_standby_names", "ANY 1 (s1, s2)");
        standby(scene, "s1", Standby { sync_state: "quorum", ..STUCK });
        let fine = Standby { sync_state: "quorum", replay_us: 500, behind: 0.0, moves: true, ..STUCK };
        standby(scene, "s2", fine);
    }),
    // As long as replay takes, and no longer.
    ("REP-18", |scene| {
        commits(scene, "remote_apply");
        standby(scene, "s1", Standby { replay_us: 900, behind: 2e3, moves: true, ..STUCK });
    }),
    // A client now and then, for hardly any time.
    ("SES-13", |scene| pool(scene, "transaction", 1, (2_900_000, 2_800_000, 40_000))),
    ("SES-13", |scene| pool(scene, "transaction", 0, (3_000_000, 20_000, 0))),
    ("SES-13", |scene| sends_away(scene, 99, Some(0), "")),
    ("SES-13", |scene| sends_away(scene, 99, None, "")),
    // Served within a look each time, and the pooler counts no wait.
    ("SES-13", |scene| pool(scene, "session", 1, (2_900_000, 2_800_000, 0))),
    // Most of the rows are wanted; nothing is compared; a part of the condition is sent.
    ("EXT-06", |scene| foreign(scene, ALL_ROWS, HERE, 90_000)),
    ("EXT-06", |scene| foreign(scene, ALL_ROWS, "", 1)),
    ("EXT-06", |scene| foreign(scene, BY_PHONE, HERE, 1)),
    // What is computed from parameters alone is a constant when it runs, and built-in functions are sent with it.
    ("EXT-06", |scene| foreign(scene, ALL_ROWS, "(customers.phone = norm_phone($1))", 1)),
    ("EXT-06", |scene| foreign(scene, ALL_ROWS, "(replace(customers.phone, $2, $3) = $1)", 1)),
    // It does not wait for the other server.
    ("EXT-06", |scene| {
        foreign(scene, ALL_ROWS, HERE, 1);
        scene.drop_things("wait", "\"Extension\"");
    }),
    // The same look-up for each row of another table.
    ("EXT-06", |scene| {
        foreign(scene, BY_PHONE, "", 1);
        node(scene, 2, 0, "Nested Loop", json!({}));
    }),
];
