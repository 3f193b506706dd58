//! File systems: one that is full and fragmented, one that somebody watches, one that is the data directory itself.

use crate::ground::{Ground, not_drilled};
use crate::island::{Island, Own, alone, device};
use crate::support::Folder;
use crate::sys::Agent;
use lab::throwaway::Options;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::Lack;

/// How long the agent thinks about each open.
const THINKING: Duration = Duration::from_millis(2);
/// The size of a file that fragments a file system.
const FRAGMENT_BYTES: usize = 60 * 1024;
/// Looks after which the allocator's counters were read twice in any case: they are read every 10 s.
const TWO_READINGS: usize = 28;

/// A server whose data directory is this folder.
fn ground_in(data_dir: &Path, settings: &[(&str, &str)]) -> Ground {
    let options = Options { data_dir: Some(data_dir.to_path_buf()), ..Options::default() };
    Ground::with(settings, options)
}

/// An agent on a mount of its own: the kernel must have fanotify, and let us permit.
fn agents() -> Result<(), Lack> {
    let lack = |error: std::io::Error| Lack::new("fanotify", error);
    let folder = Folder::new();
    Agent::on(folder.path(), Duration::ZERO).map(drop).map_err(lack)
}

#[test]
fn a_scanner_must_permit_every_open() {
    alone(Own::Mounts, &[agents], &["SEC-02", "FS-04"], |island| {
        let (mount, elsewhere) =
            (island.file_system("disk", 400, &[], "")?, island.file_system("elsewhere", 8, &[], "")?);
        let data_dir = mount.join("data");
        fs::create_dir(&data_dir).map_err(|error| error.to_string())?;
        let ground = ground_in(&data_dir, &[("max_wal_size", "64MB")]);
        ground.sql("CREATE TABLE item (id int)");
        // Each of these opens a file that is new.
        let load = "CREATE TABLE opened AS SELECT 1 AS one; DROP TABLE opened";
        let _load = ground.repeat(load, Duration::from_millis(50));
        {
            // A scanner that looks at something else is nobody's business.
            let agent = Agent::on(&elsewhere, THINKING).map_err(|error| format!("fanotify: {error}"))?;
            fs::write(elsewhere.join("file"), "x").map_err(|error| error.to_string())?;
            assert!(agent.asked() > 0, "the agent works");
            ground.watch("healthy").is_silent(&["SEC-02", "FS-04"]);
        }
        {
            let agent = Agent::on(&mount, THINKING).map_err(|error| format!("fanotify: {error}"))?;
            let fired = ground.watch("scanned").until(&["SEC-02"]);
            let claim = fired["SEC-02"]["claim"].as_str().unwrap_or("").to_string();
            assert!(claim.contains("must permit every open") && claim.contains("pgdata"), "{claim}");
            ground.sql("SELECT count(*) FROM pg_class");
            assert!(agent.asked() > 0, "a new session opens files");
        }
        drop(_load);
        drop(ground);
        // The same disk, but the mount point is the data directory.
        fs::remove_dir_all(&data_dir).map_err(|error| error.to_string())?;
        let ground = ground_in(&mount, &[("max_wal_size", "64MB")]);
        ground.watch("mounted").until(&["FS-04"]);
        Ok(())
    });
}

/// Fills a file system with small files to this share of it, and removes every so many of them: what is free lies in small pieces.
fn fragment(mount: &Path, share: f64, every: usize) -> Result<(), String> {
    let folder = mount.join("ballast");
    fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let bytes = vec![0x55; FRAGMENT_BYTES];
    let used = || {
        let stat = rustix::fs::statvfs(mount).map_err(|error| error.to_string())?;
        Ok::<f64, String>(1.0 - stat.f_bavail as f64 / stat.f_blocks.max(1) as f64)
    };
    let mut count = 0;
    while used()? < share {
        fs::write(folder.join(count.to_string()), &bytes).map_err(|error| error.to_string())?;
        count += 1;
        // Blocks are given when the file is written out: now, so that the files lie side by side.
        if count % 64 == 0 {
            sync(mount)?;
        }
    }
    sync(mount)?;
    for number in (0..count).step_by(every) {
        fs::remove_file(folder.join(number.to_string())).map_err(|error| error.to_string())?;
    }
    sync(mount)
}

fn sync(mount: &Path) -> Result<(), String> {
    let folder = fs::File::open(mount).map_err(|error| error.to_string())?;
    rustix::fs::syncfs(folder).map_err(|error| error.to_string())
}

/// A file system of small groups, as one of many terabytes has many, whose allocator counts what it does.
fn of_many_groups(island: &Island, name: &str) -> Result<PathBuf, String> {
    let making = ["-b", "1024", "-g", "1024"];
    let mount = island.file_system(name, 320, &making, "")?;
    let switch = format!("/sys/fs/ext4/{}/mb_stats", device(&mount)?);
    fs::write(&switch, "1").map_err(|error| format!("{switch}: {error}"))?;
    Ok(mount)
}

#[test]
#[ignore = "half a minute: the allocator's counters are read every 10 s"]
fn an_allocator_searches_a_full_disk() {
    alone(Own::Mounts, &[], &["FS-02"], |island| {
        not_drilled(
            "FS-01",
            "a stripe is given up after one search since Linux 6.8, and nobody could provoke the endless one before that at will",
        );
        let mount = of_many_groups(island, "tight")?;
        let ground = Ground::new(&[("fsync", "on"), ("autovacuum", "off")]);
        ground.tablespace("tight", &mount);
        ground.sql("CREATE TABLE bulk (payload text) TABLESPACE tight");
        let load = "INSERT INTO bulk SELECT repeat('x', 800) FROM generate_series(1, 4000); CHECKPOINT; TRUNCATE bulk";
        let _load = ground.repeat(load, Duration::from_millis(20));
        ground.watch("empty").is_silent_for(TWO_READINGS, &["FS-02"]);
        fragment(&mount, 0.99, 16)?;
        let fired = ground.watch("full").until(&["FS-02"]);
        assert_eq!(fired["FS-02"]["level"], "discriminating_counter");
        Ok(())
    });
}
