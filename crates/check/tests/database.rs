//! Checks of a node on real servers: each fires where it should, is silent where it should be, and its remedy removes the cause.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod hostile;
mod roles;
mod schema;
mod settings;
mod standby;
mod state;

use check::database::{Expected, Machine, Target};
use lab::throwaway::Throwaway;
use record::check::{Item, Verdict};

/// A machine with room for everything.
fn machine() -> Machine {
    Machine {
        memory_bytes: Some(512 << 20),
        is_limited: false,
        cpus: Some(64),
        wal_disk_bytes: Some(1 << 50),
        wal_free_bytes: Some(1 << 49),
        is_rotational: Some(false),
        mounts: vec![],
    }
}

/// All items of a database of a server.
fn check(server: &Throwaway, database: &str, machine: Option<Machine>, expected: &Expected) -> Vec<Item> {
    let target = Target { name: "n1".into(), spec: server.spec().with_dbname(database), machine };
    let items = check::database::check(&[target], expected);
    assert!(
        items
            .iter()
            .all(|item| item.node.as_deref() == Some("n1") && !item.claim.is_empty() && !item.why.is_empty())
    );
    items
}

/// The items of a check that name a subject.
fn of<'a>(items: &'a [Item], check: &str, subject: &str) -> Vec<&'a Item> {
    assert!(check::database::all().any(|known| known.id == check), "no check {check}");
    items.iter().filter(|item| item.check == check && item.subject.contains(subject)).collect()
}

/// The item that judges this subject.
#[track_caller]
fn fired<'a>(items: &'a [Item], check: &str, subject: &str, verdict: Verdict) -> &'a Item {
    let found = of(items, check, subject);
    let all: Vec<_> = items.iter().filter(|item| item.check == check).collect();
    found
        .iter()
        .find(|item| item.verdict == verdict)
        .unwrap_or_else(|| panic!("{check} is not {verdict:?} for {subject:?}: {all:#?}"))
}

/// No item of this check judges this subject badly.
#[track_caller]
fn silent(items: &[Item], check: &str, subject: &str) {
    let against: Vec<_> = of(items, check, subject)
        .into_iter()
        .filter(|item| {
            matches!(item.verdict, Verdict::Warn | Verdict::Fail)
                || item.verdict == Verdict::Note && !item.subject.is_empty()
        })
        .collect();
    assert!(against.is_empty(), "{against:#?}");
}

/// Types what a remedy gives: SQL in this database. Whether a restart is needed.
#[track_caller]
fn cure(server: &Throwaway, database: &str, item: &Item) -> bool {
    assert!(!item.remedy.commands.is_empty(), "nothing to type: {item:#?}");
    let mut restart = false;
    for command in &item.remedy.commands {
        if command.starts_with("-- then restart") {
            restart = true;
            continue;
        }
        assert!(!command.starts_with("$ "), "{command}");
        server.execute_in(database, command).unwrap_or_else(|error| panic!("{command}: {error:?}"));
    }
    restart
}
