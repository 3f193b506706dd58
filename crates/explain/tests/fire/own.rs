//! What an engine makes for its own use: no mistake of the user, and never to be ended by hand.

use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use serde_json::{Value, json};

/// Facts as `watch` records them from an engine's profile.
pub(crate) fn facts(scene: &mut Scene) {
    for kind in ["prepared transaction", "slot", "subscription"] {
        for node in ["n1", "n2"] {
            scene.fact(
                json!({"node": node}),
                "own_ends",
                kind,
                "Engine made it, and its daemon ends it every minute",
            );
            scene.fact(json!({"node": node}), "own_otherwise", kind, "let the engine clean up");
            scene.fact(json!({"node": node}), "own_command", kind, "CALL engine_cleans_up();");
        }
    }
    scene.fact(json!({"node": "n1"}), "own_lock_otherwise", MOVE, "let the move end");
    scene.fact(json!({"node": "n1"}), "own_lock_command", MOVE, "SELECT * FROM engine_moves();");
}

/// What the engine takes a lock for.
const MOVE: &str = "the placement of a shard";

fn n1() -> Value {
    json!({"node": "n1"})
}

/// Sessions that wait for an advisory lock; `own`: it is the engine's.
fn waiting(scene: &mut Scene, sessions: u64, own: bool) {
    scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": sessions}));
    for pid in 0..sessions {
        let keys = json!({"node": "n1", "pid": 100 + pid, "root": 99});
        let fields = json!({"blocked_by": 99, "root_state": "active", "depth": 1, "lock_type": "advisory", "mode": "ShareLock", "wait_s": 3.0, "query": "UPDATE t"});
        scene.set("block", keys.clone(), fields);
        if own {
            scene.set("block", keys, json!({"own_lock": MOVE}));
        }
    }
}

pub(crate) const CASES: &[Fires] = &[
    ("LCK-03", Counter, |scene| {
        facts(scene);
        waiting(scene, 4, true);
    }),
    ("LCK-01", Counter, |scene| {
        facts(scene);
        waiting(scene, 4, true);
    }),
    ("TXN-04", Counter, |scene| {
        facts(scene);
        scene.set("server", n1(), json!({"prepared_own_xacts": 2, "prepared_own_age_s_max": 700.0}));
    }),
    ("VAC-05", Counter, |scene| {
        facts(scene);
        let holder = json!({"node": "n1", "kind": "slot", "name": "engine_move_slot_1 (catalog)"});
        scene.set("horizon", holder, json!({"age_xids": 50_000_000, "own": true}));
    }),
    ("VAC-05", Counter, |scene| {
        facts(scene);
        let holder = json!({"node": "n1", "kind": "prepared", "name": "engine_0_1_2_3"});
        scene.set("horizon", holder, json!({"age_xids": 50_000_000, "age_s": 7200.0, "own": true}));
    }),
    ("REP-03", Counter, |scene| slot(scene, "n1")),
    ("REP-04", Co, |scene| {
        slot(scene, "n1");
        slot(scene, "n2");
    }),
    ("REP-07", Counter, |scene| {
        facts(scene);
        scene.set(
            "subscription",
            json!({"node": "n2", "subscription": "engine_move_subscription_1"}),
            json!({"apply_errors": 1, "enabled": true, "own": true}),
        );
    }),
];

/// A slot of the engine without a consumer, behind which WAL piles up.
fn slot(scene: &mut Scene, node: &str) {
    facts(scene);
    super::around::slot(scene, node, false);
    let keys = json!({"node": node, "slot": "s1"});
    scene.set("slot", keys, json!({"own": true}));
}

pub(crate) const HARMLESS: &[(&str, Change)] = &[
    ("TXN-04", |scene| {
        // The engine's daemon has not looked yet.
        scene.set("server", n1(), json!({"prepared_own_xacts": 2, "prepared_own_age_s_max": 50.0}));
    }),
    ("LCK-03", |scene| {
        // A short wait at the end of a move.
        waiting(scene, 1, true);
        scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": 0}));
    }),
    ("REP-07", |scene| {
        // A move makes its subscription disabled.
        scene.set(
            "subscription",
            json!({"node": "n2", "subscription": "engine_move_subscription_1"}),
            json!({"apply_errors": 0, "enabled": false, "own": true}),
        );
    }),
    ("REP-03", |scene| {
        // The slot of a move that copies has no consumer yet.
        scene.set(
            "slot",
            json!({"node": "n1", "slot": "engine_move_slot_1"}),
            json!({"kind": "logical", "active": false, "own": true, "retained_bytes": 50_000_000, "wal_status": "reserved"}),
        );
    }),
];
