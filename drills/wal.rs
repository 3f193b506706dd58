//! The WAL's disk: slow, shared, filled by a slot.

use crate::ground::{Ground, Worker};
use crate::island::{Brake, Disk, Island, Limit, Own, alone};
use lab::throwaway::Options;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use testing::needs;

/// A server with its data on one disk and its WAL on another.
fn ground_on(data: &Path, wal: &Path, settings: &[(&str, &str)]) -> Result<Ground, String> {
    let data_dir = data.join("data");
    fs::create_dir(&data_dir).map_err(|error| error.to_string())?;
    let options = Options {
        initdb: vec![format!("--waldir={}", wal.join("wal").display())],
        data_dir: Some(data_dir),
        ..Options::default()
    };
    Ok(Ground::with(settings, options))
}

#[test]
fn commits_wait_for_a_slow_disk() {
    let rules = ["WAL-01", "WAL-05"];
    alone(Own::Mounts, &[needs::slow_disks], &rules, |island| {
        let disk = island.disk("disk", 256)?;
        let brake = Brake::new()?;
        let data_dir = disk.mount.join("data");
        fs::create_dir(&data_dir).map_err(|error| error.to_string())?;
        let options = Options { data_dir: Some(data_dir), ..Options::default() };
        let ground = Ground::with(&[("fsync", "on"), ("max_wal_size", "64MB")], options);
        ground.sql("CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)");
        brake.hold(ground.pids())?;
        // Eight sessions that think between their commits: on a disk that keeps up hardly one is ever waiting.
        let commit = "INSERT INTO item (v) VALUES ('x')";
        let _load: Vec<Worker> = (0..8).map(|_| ground.repeat(commit, Duration::from_millis(1500))).collect();
        ground.watch("healthy").is_silent(&rules);
        brake.set(&disk, Some(Limit::WritesPerS(3)))?;
        let fired = ground.watch("slow").until(&rules);
        brake.set(&disk, None)?;
        let number = fired["WAL-01"]["numbers"]["flush_await_ms"].as_f64();
        assert!(number.is_some(), "the disk below the WAL was found: {:#?}", fired["WAL-01"]);
        Ok(())
    });
}

/// Looks in which a file system's space was read five times: it is read every 10 s.
const CAPACITY_LOOKS: usize = 110;
/// Looks in half a minute, and a little.
const PHASE_LOOKS: usize = 70;

fn set(ground: &Ground, name: &str, value: &str) {
    ground.sql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
    ground.sql("SELECT pg_reload_conf()");
}

/// Data on a disk of its own and the WAL on one that can be braked.
fn before_the_storm(island: &Island) -> Result<(Ground, Disk), String> {
    let (data, wal) = (island.file_system("data", 700, &[], "")?, island.disk("wal", 400)?);
    let settings = [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("wal_buffers", "256kB"),
        ("max_wal_size", "300MB"),
        ("autovacuum", "off"),
        ("autovacuum_naptime", "1s"),
        ("autovacuum_freeze_max_age", "100000"),
        ("autovacuum_vacuum_cost_delay", "50ms"),
    ];
    let ground = ground_on(&data, &wal.mount, &settings)?;
    ground.sql("CREATE TABLE burnt (i int)");
    Ok((ground, wal))
}

/// Four tables that were not frozen yet, and transaction ids enough that they must be.
fn gather(ground: &Ground) {
    for table in 1..=4 {
        ground.sql(&format!(
            "DROP TABLE IF EXISTS big{table}; CREATE TABLE big{table} (id int, v text);
             INSERT INTO big{table} SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i;"
        ));
    }
    // Each block is a subtransaction, each subtransaction that writes takes a transaction id.
    let burn = "DO $$ BEGIN FOR i IN 1..60000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;";
    ground.sql(burn);
    ground.sql(burn);
    // The first change after it writes the whole page into the WAL.
    ground.sql("CHECKPOINT");
}

/// Lets autovacuum work under this delay. A worker keeps the delay that it began with (before 16): those at work are ended, as an
/// administrator in a hurry ends them, and begin anew.
fn with_delay(ground: &Ground, delay: &str) {
    set(ground, "autovacuum_vacuum_cost_delay", delay);
    ground.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'",
    );
}

/// The sequence of R0: vacuum against wraparound sleeps for its cost limit; somebody takes the limit away; then the WAL is the limit.
#[test]
#[ignore = "two minutes: each phase must last the half minute that makes it a finding of its own"]
fn vacuum_sleeps_and_then_waits_for_the_wal() {
    let rules = ["VAC-01", "VAC-02"];
    alone(Own::Mounts, &[needs::slow_disks], &rules, |island| {
        let brake = Brake::new()?;
        let (ground, wal) = before_the_storm(island)?;
        brake.hold(ground.pids())?;
        // In health: the same storm, the same disk, without delay and without brake.
        set(&ground, "autovacuum_vacuum_cost_delay", "0");
        gather(&ground);
        {
            let watching = ground.watch("healthy");
            set(&ground, "autovacuum", "on");
            ground.wait_for(
                "SELECT count(*) = 0 FROM pg_class WHERE relname LIKE 'big%' AND age(relfrozenxid) > 100000",
            );
            watching.is_silent(&rules);
        }
        set(&ground, "autovacuum", "off");
        set(&ground, "autovacuum_vacuum_cost_delay", "50ms");
        gather(&ground);
        brake.set(&wal, Some(Limit::WriteBytesPerS(3 << 20)))?;
        let watching = ground.watch("storm");
        set(&ground, "autovacuum", "on");
        watching.until(&["VAC-01"]);
        watching.looked(PHASE_LOOKS);
        with_delay(&ground, "0");
        watching.until(&["VAC-02"]);
        watching.looked(2 * PHASE_LOOKS);
        let findings = watching.until(&rules);
        let edge = |rule: &str, which: &str| findings[rule]["windows"][0][which].as_u64().unwrap_or(0);
        assert!(edge("VAC-01", "from_us") < edge("VAC-02", "from_us"), "{findings:#?}");
        let sleeping = findings["VAC-01"]["evidence"].to_string();
        assert!(sleeping.contains("autovacuum_vacuum_cost_delay is 50ms"), "{sleeping}");
        brake.set(&wal, None)
    });
}

/// Writes about so many kB of WAL each time, and keeps nothing of it.
fn flood(rows: u32) -> String {
    format!(
        "INSERT INTO bulk SELECT repeat(md5(i::text), 30) FROM generate_series(1, {rows}) i; TRUNCATE bulk"
    )
}

/// A server that keeps 32 MB of WAL on a small disk of its own, unless somebody wants more kept.
fn small_wal(island: &Island) -> Result<Ground, String> {
    let (data, wal) = (island.file_system("data", 400, &[], "")?, island.file_system("wal", 200, &[], "")?);
    let ground = ground_on(&data, &wal, &[("max_wal_size", "32MB"), ("min_wal_size", "32MB")])?;
    ground.sql("CREATE TABLE bulk (payload text)");
    Ok(ground)
}

#[test]
fn a_forgotten_slot_fills_the_disk_of_the_wal() {
    alone(Own::Mounts, &[], &["REP-03"], |island| {
        let ground = small_wal(island)?;
        let _load = ground.repeat(&flood(1_000), Duration::from_millis(200));
        ground.watch("healthy").is_silent(&["REP-03"]);
        ground.sql("SELECT pg_create_physical_replication_slot('forgotten', true)");
        let fired = ground.watch("forgotten").until(&["REP-03"]);
        let told = |field: &str| fired["REP-03"][field].to_string();
        assert!(told("claim").contains("the disk is full in"), "{}", told("claim"));
        assert!(told("evidence").contains("until the disk is full"), "{}", told("evidence"));
        Ok(())
    });
}

#[test]
#[ignore = "two minutes: a disk must fill slowly enough to be seen filling, and then be full"]
fn a_disk_fills_and_the_server_stops_as_it_was_told() {
    let rules = ["CAP-03", "REP-03"];
    alone(Own::Mounts, &[], &rules, |island| {
        let ground = small_wal(island)?;
        let _load = ground.repeat(&flood(500), Duration::from_millis(200));
        ground.watch("healthy").is_silent_for(CAPACITY_LOOKS, &rules);
        ground.sql("SELECT pg_create_physical_replication_slot('forgotten', true)");
        let fired = ground.watch("filling").until(&rules);
        let claim = fired["CAP-03"]["claim"].as_str().unwrap_or("");
        assert!(claim.contains("full in"), "{claim}");
        // Both said what comes next if nobody does anything.
        let begun = Instant::now();
        while !ground.cluster.log().contains("No space left on device") {
            assert!(begun.elapsed() < Duration::from_secs(300), "the disk did not fill");
            thread::sleep(Duration::from_millis(200));
        }
        eprintln!("the disk was full {:.0} s after that", begun.elapsed().as_secs_f64());
        Ok(())
    });
}
