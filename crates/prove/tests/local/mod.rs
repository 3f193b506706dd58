//! What the live tests of this crate share.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use engines::Engine;
use lab::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};
use prove::fault::{Journal, Node, Site};

/// Runs `test` on every installation, one after the other: the machine is shared, and what these tests wait for is load.
pub(crate) fn on_each(test: impl Fn(&Installation)) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    found.iter().for_each(test);
}

/// The newest installation.
pub(crate) fn newest() -> Installation {
    installations()
        .into_iter()
        .max_by_key(|one| one.version.major)
        .expect("no PostgreSQL on this machine: run make test")
}

/// A folder of its own for a test's state.
pub(crate) fn folder(name: &str) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("pgfathom-f-{}-{number}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A journal in a folder of its own.
pub(crate) fn journal(name: &str) -> (PathBuf, Arc<Journal>) {
    let dir = folder(name);
    let journal = Arc::new(Journal::begin(&dir).unwrap());
    (dir, journal)
}

/// A cluster of ours as a place where it may be hurt.
pub(crate) fn site_of(cluster: &ThrowawayCluster, journal: &Arc<Journal>) -> Site {
    let nodes = std::iter::zip(&cluster.file().node, cluster.nodes())
        .map(|(node, server)| {
            Node::hurtable(&node.name, Role::parse(&node.role).unwrap(), server.spec(), server.instance())
        })
        .collect();
    Site::new(Engine::parse(&cluster.file().engine).unwrap(), nodes, Arc::clone(journal))
}

/// One server likewise.
pub(crate) fn site_of_one(server: &Throwaway, journal: &Arc<Journal>) -> Site {
    let node = Node::hurtable("single", Role::Primary, server.spec(), server.instance());
    Site::new(Engine::default(), vec![node], Arc::clone(journal))
}

/// Waits for something that must come.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < testing::PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
