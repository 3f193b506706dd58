//! Values of a profile that a live cluster refutes: `prove engine` finds each of them.

use crate::labs::ClusterLab;
use connect::conninfo::Sources;
use engines::profile::{Catalog, Discovery, Own, Profile, Replication, Sizes};
use engines::{Cluster, Engine};
use prove::conformance::{self, Agreement, Line};
use prove::fault::{Journal, Node, Site};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A profile for the rest of the test program.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The lines of `prove engine` with another profile than that of the cluster's engine.
pub(crate) fn lines(lab: &ClusterLab, profile: Profile) -> Vec<Line> {
    let mut cluster =
        Cluster::from_file(lab.servers.file(), &Sources::of_process()).expect("a cluster file is right");
    cluster.engine = Engine::with_profile(kept(profile));
    let journal = Arc::new(Journal::begin(&lab.folder.path().join("journal")).expect("a journal"));
    let node = |node: &engines::ClusterNode| {
        Node::spared(&node.name, node.role, node.spec.clone(), "it is not ours")
    };
    let site = Site::new(cluster.engine, cluster.nodes.iter().map(node).collect(), journal);
    conformance::run(&cluster, &site, true, &AtomicBool::new(false), &mut |_| ())
        .expect("the cluster answers")
}

/// Each of these checks differs.
pub(crate) fn found(lines: &[Line], checks: &[&str]) {
    for check in checks {
        let line = lines.iter().find(|line| line.check == *check);
        let result = line.map(|line| line.result);
        assert_eq!(result, Some(Agreement::Differs), "{check}: {line:?}\n{lines:#?}");
    }
}

const NOWHERE: &str = "SELECT a FROM nowhere;";
pub(crate) const WRONG_SIZES: Sizes = Sizes { table: "0", indexes: "0" };

/// Values that no server of this engine has.
fn wrong(own: Own) -> Own {
    Own {
        prepared: &["other_"],
        sessions: &["other_"],
        libraries: &["other"],
        origin: Some(NOWHERE),
        resolve: Some(NOWHERE),
        shards: NOWHERE,
        parts: Some("1"),
        slots: &["other_"],
        ..own
    }
}

/// Of an engine with a catalog of its own.
pub(super) fn of_a_catalog_are_found(lab: &ClusterLab, engine: Engine) {
    let Discovery::Catalog(catalog) = engine.discovery else { panic!("{engine} has no catalog") };
    let own = Own {
        advisory: Some((40, 50)),
        node_waits: Some(("Lock", "tuple")),
        plain_schemas: catalog.own.plain_schemas.map(|(name, _)| (name, "on")),
        ..wrong(*catalog.own)
    };
    let discovery = Discovery::Catalog(Catalog {
        coordinator: Some("99"),
        is_blind: Some("select true"),
        places: Some("select 'a', null"),
        part_hash: Some("pg_catalog.hashtext({column}::text || 'x')"),
        own: kept(own),
        ..catalog
    });
    let lines = lines(lab, Profile { discovery, sizes: WRONG_SIZES, ..*engine });
    found(
        &lines,
        &[
            "sizes",
            "coordinator",
            "entry: tables",
            "places",
            "parts",
            "parts: shown",
            "libraries",
            "origin",
            "shards",
            "resolve",
            "schemas",
            "prepared",
            "sessions",
            "advisory locks",
            "waits: other nodes",
        ],
    );
}

/// Of the replication system that these nodes have.
pub(super) fn of_a_replication_are_found(lab: &ClusterLab, engine: Engine, name: &str, checks: &[&str]) {
    let Discovery::Copies(systems) = engine.discovery else { panic!("{engine} has no replication") };
    let system = systems.iter().find(|system| system.name == name).expect("a system of this name");
    let own = Own { commit_waits: Some(("Lock", "tuple")), daemons: &["other"], ..wrong(*system.own) };
    let other = Replication {
        own: kept(own),
        add_table: Some("select nowhere({table})"),
        remove_table: Some("select nowhere({table})"),
        ..*system
    };
    let systems: &'static [Replication] = vec![other].leak();
    let profile = Profile { discovery: Discovery::Copies(systems), sizes: WRONG_SIZES, ..*engine };
    let lines = lines(lab, profile);
    found(
        &lines,
        &[
            "sizes",
            "libraries",
            "origin",
            "shards",
            "resolve",
            "slots",
            "sessions",
            "daemons",
            "waits: commit",
        ],
    );
    found(&lines, checks);
}
