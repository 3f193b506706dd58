//! Disks against their peers.

use crate::ground::Ground;
use crate::island::{Brake, Limit, Own, alone};
use std::time::Duration;
use testing::needs;

/// Looks in the 70 s that the slowest of the rules requests, and a little.
const LONG: usize = 150;

#[test]
#[ignore = "three minutes: the rules ask for 30 and 60 s of slowness, and health must have had as long"]
fn a_slow_disk_beside_its_healthy_peer() {
    let rules = ["IO-01", "IO-05", "IO-06"];
    alone(Own::Mounts, &[needs::slow_disks], &rules, |island| {
        let (slow, fast) = (island.disk("slow", 128)?, island.disk("fast", 128)?);
        let brake = Brake::new()?;
        let ground = Ground::new(&[("fsync", "on"), ("autovacuum", "off"), ("max_wal_size", "8GB")]);
        // One row a page, with room for its next version: each update is a page to write, and none lies beside the next.
        for (name, disk) in [("slow", &slow), ("fast", &fast)] {
            ground.tablespace(name, &disk.mount);
            ground.sql(&format!(
                "CREATE TABLE on_{name} (id int, n int, pad text) WITH (fillfactor = 40) TABLESPACE {name};
                 ALTER TABLE on_{name} ALTER pad SET STORAGE PLAIN;
                 INSERT INTO on_{name} SELECT i, 0, repeat('x', 3000) FROM generate_series(1, 5000) i;"
            ));
        }
        brake.hold(ground.pids())?;
        // The same work for both, as a stripe has it.
        let update = |half: u8| {
            format!(
                "UPDATE on_slow SET n = n + 1 WHERE id % 2 = {half}; UPDATE on_fast SET n = n + 1 WHERE id % 2 = {half}; CHECKPOINT"
            )
        };
        let _load = [0, 1].map(|half| ground.repeat(&update(half), Duration::ZERO));
        ground.watch("healthy").is_silent_for(LONG, &rules);
        brake.set(&slow, Some(Limit::WritesPerS(200)))?;
        let fired = ground.watch("slow").until(&rules);
        brake.set(&slow, None)?;
        for rule in rules {
            let claim = fired[rule]["claim"].as_str().unwrap_or("");
            assert!(claim.contains(&slow.device) && !claim.contains(&fast.device), "{claim}");
        }
        assert_eq!(fired["IO-01"]["level"], "peer_contrast");
        Ok(())
    });
}
