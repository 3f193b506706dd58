//! Marks of runs, and who holds them.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use connect::conninfo::Sources;
use connect::control;
use lab::local::{LocalError, Registry, UpOptions, down, installations, up};
use testing::wait_for;

#[test]
fn a_mark_of_a_role_that_cannot_write_a_ledger_does_not_keep_a_cluster() {
    let place = std::env::temp_dir().join(format!("pgfathom-marks-{}", std::process::id()));
    let registry = Registry::at(&place.join("registry"));
    let options = UpOptions {
        initdb: vec!["--no-sync".into()],
        registry: registry.clone(),
        ..UpOptions::new(&place.join("c"), installations()[0].clone())
    };
    let cluster = up(&options).unwrap();
    let spec = cluster.file.entry(&Sources::of_process()).unwrap().spec;
    let mut control = control::connect(&spec).unwrap();
    control.batch_execute("create role mallory login").unwrap();
    control.batch_execute("create database theirs").unwrap();
    // The mark of a run: the letters `pgfa`, and a dataset and a number.
    let mark = format!("select pg_catalog.pg_advisory_lock({})", 0x7067_6661_i64 << 32 | 1 << 14 | 1);
    let holds = |user: &str, dbname: &str| {
        let mut holder = control::connect(&spec.clone().with_user(user).with_dbname(dbname)).unwrap();
        holder.batch_execute(&mark).unwrap();
        holder
    };
    let _hers = [holds("mallory", "theirs"), holds("mallory", "postgres")];
    let ours = holds("postgres", "template1");
    let error = down(&cluster.dir, &registry).unwrap_err();
    assert!(matches!(error, LocalError::RunActive { .. }), "{error}");
    drop(ours);
    let removed = "select not exists (select from pg_locks l join pg_database d on d.oid = l.database
                                      where l.locktype = 'advisory' and d.datname = 'template1')";
    wait_for("the run's lock is gone", || control.query_one(removed, &[]).unwrap().get::<_, bool>(0));
    down(&cluster.dir, &registry).unwrap();
    assert!(!cluster.dir.exists());
    std::fs::remove_dir_all(&place).unwrap();
}
