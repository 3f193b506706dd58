//! Latency peaks that come with checkpoints, on a disk that is slow enough to show them.

use crate::ground::Ground;
use crate::island::{Brake, Limit, Own, alone};
use lab::throwaway::Options;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testing::needs;

/// Between two checkpoints: peaks that follow one within 5 s by chance must be rare.
const BETWEEN: Duration = Duration::from_secs(20);
/// Long enough for seven of them.
const PATIENCE: Duration = Duration::from_secs(200);
/// Seconds of a run in which p99 has settled.
const CALM_LOOKS: usize = 30;

#[test]
#[ignore = "five checkpoints, 20 s apart"]
fn peaks_come_with_checkpoints() {
    alone(Own::Mounts, &[needs::slow_disks], &["WAL-02"], |island| {
        let disk = island.disk("disk", 500)?;
        let brake = Brake::new()?;
        let data_dir = disk.mount.join("data");
        fs::create_dir(&data_dir).map_err(|error| error.to_string())?;
        let options = Options { data_dir: Some(data_dir), ..Options::default() };
        let settings = [
            ("fsync", "on"),
            ("shared_buffers", "128MB"),
            ("checkpoint_timeout", "1h"),
            ("checkpoint_flush_after", "0"),
            ("bgwriter_lru_maxpages", "0"),
            ("autovacuum", "off"),
        ];
        let ground = Ground::with(&settings, options);
        ground.sql(
            "CREATE TABLE item (id int PRIMARY KEY, v text);
             INSERT INTO item SELECT i, repeat('x', 500) FROM generate_series(1, 100000) i",
        );
        ground.sql("CHECKPOINT");
        brake.hold(ground.pids())?;
        brake.set(&disk, Some(Limit::WritesPerS(150)))?;
        ground
            .folder
            .write("update.sql", "\\set id random(1, 100000)\nUPDATE item SET v = v WHERE id = :id;\n");
        let drive = "run -q -n -f update.sql -c 4 -R 25 -T 300";
        {
            let watching = ground.begin(drive, "smooth");
            watching.looked(CALM_LOOKS);
            watching.is_silent(&["WAL-02"]);
        }
        let watching = ground.begin(drive, "checkpoints");
        watching.looked(10);
        let begun = Instant::now();
        while !watching.findings().contains_key("WAL-02") {
            let others = watching.findings();
            assert!(begun.elapsed() < PATIENCE, "no peaks were found; what was: {:?}", others.keys());
            ground.sql("CHECKPOINT");
            thread::sleep(BETWEEN);
        }
        watching.until(&["WAL-02"]);
        Ok(())
    });
}
