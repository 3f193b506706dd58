//! The profiles are complete, and their values are consistent.

use super::*;
use crate::profile::{Case, Discovery, Layout, LoadPath, NodeLinks, Protocol};

fn engine(name: &str) -> Engine {
    Engine::parse(name).unwrap_or_else(|| panic!("{name} is no engine"))
}

#[test]
fn names_lead_to_one_engine_each() {
    let mut names: Vec<&str> = Engine::ALL
        .iter()
        .flat_map(|engine| std::iter::once(&engine.name).chain(engine.aliases))
        .copied()
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in names {
        assert!(Engine::ALL.contains(&engine(name)));
    }
    assert_eq!(engine("arenadata"), engine("greenplum"));
    assert_eq!(Engine::parse("mysql"), None);
    assert_eq!(Engine::default().name(), "postgres");
}

#[test]
fn every_engine_lists_its_promises_and_limits() {
    for engine in Engine::ALL {
        assert!(!engine.promises.is_empty(), "{engine} promises something, if only what it allows");
        let cannot_load = matches!(engine.load, LoadPath::None(_));
        let cannot_discover = matches!(engine.discovery, Discovery::None(_));
        assert!(!(cannot_load || cannot_discover) || !engine.limits.is_empty(), "{engine} lists its limits");
        for expectation in engine.expectations {
            assert!(!expectation.why.is_empty() && !expectation.change.is_empty(), "{engine}");
            let same = engine.expectations.iter().filter(|other| other.case == expectation.case);
            assert_eq!(same.count(), 1, "{engine} has two expectations of {:?}", expectation.case);
        }
        if engine.layout.is_spread() {
            assert!(engine.expectation(Case::Deadlock).is_some(), "{engine} has an answer about deadlocks");
        }
    }
}

/// Conclusions of code from two values together.
#[test]
fn values_of_one_engine_fit_each_other() {
    for engine in Engine::ALL {
        let is_by_pgfathom = engine.layout == Layout::ForeignPartitions;
        // Hints know an engine that cannot be loaded by the cluster file.
        let cannot_load = matches!(engine.load, LoadPath::None(_));
        assert!(!cannot_load || matches!(engine.discovery, Discovery::None(_)), "{engine}");
        assert!(!is_by_pgfathom || engine.links == NodeLinks::ForeignServers, "{engine}");
        assert_eq!(engine.load == LoadPath::EachNode, engine.layout.publishes(), "{engine}");
        assert_eq!(
            engine.layout == Layout::OneServer,
            engine.commit.protocol == Protocol::OneNode,
            "{engine}"
        );
        assert!(!engine.levels.expects_steps() || engine.levels.expects_outcomes(), "{engine}");
        assert!(!engine.commit.error_undoes || engine.tried.is_live(), "{engine}: not established");
        assert!(!engine.has_wal || engine.tried.is_live(), "{engine}: never tried live");
    }
}

/// A query without its placeholder would be about everything.
#[test]
fn queries_name_what_they_are_about() {
    for engine in Engine::ALL {
        let Discovery::Catalog(catalog) = engine.discovery else { continue };
        let names = |sql: &str| ["{relation}", "{name}", "{table}"].iter().any(|word| sql.contains(word));
        assert!(names(catalog.table) && names(catalog.leaves), "{engine}");
        let place = match catalog.oracle {
            crate::profile::Oracle::Row(_) => "{where}",
            _ => "{keys}",
        };
        assert!(catalog.oracle.query().contains(place), "{engine}");
    }
}

#[test]
fn signs_have_names_of_their_own() {
    let signs = signs();
    for sign in &signs {
        assert_eq!(signs.iter().filter(|other| other.name() == sign.name()).count(), 1, "{}", sign.name());
    }
}

#[test]
fn a_node_that_left_its_cluster_is_recognised_by_code_and_message() {
    let lost = Engine::parse("mtm").expect("known").node_lost;
    let is_lost = |code: &str, message: &str| crate::profile::reports_lost_node(lost, code, message);
    assert!(is_lost("XX000", "[MTM] multimaster node is not online: current status \"isolated\""));
    assert!(!is_lost("XX000", "could not find tuple") && !is_lost("XX001", "[MTM] x"));
    let citus = Engine::parse("citus").expect("known").node_lost;
    assert!(crate::profile::reports_lost_node(citus, "58030", "connection to the remote node failed"));
}
