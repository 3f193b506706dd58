//! The scripts of Hermitage on every PostgreSQL found: exactly what the table says, at every level; and the cases that need a cluster.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::Duration;

use prove::hermitage::cluster::{
    Node, distributed_deadlock, fractured_sum, long_fork, read_your_writes, serializable_on_standby,
};
use prove::hermitage::{CASES, Case, HermitageError, LEVELS, TABLE, Verdict, run};
use prove::history::Isolation;
use target::engine::Engine;
use target::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};

/// Runs `test` on every installation, in parallel.
fn on_each(test: impl Fn(&Installation) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(installation));
        }
    });
}

fn nodes(cluster: &ThrowawayCluster) -> Vec<Node> {
    let names = cluster.file().node.iter().map(|node| node.name.clone());
    names.zip(cluster.nodes()).map(|(name, node)| Node { name, spec: node.spec() }).collect()
}

#[test]
fn one_server_answers_as_the_table_says() {
    on_each(|installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        let cases: Vec<&'static Case> = CASES.iter().collect();
        let mut heard = 0;
        let answers = run(&server.spec(), Engine::Postgres, &cases, &LEVELS, &mut |_| heard += 1).unwrap();
        assert_eq!((answers.len(), heard), (42, 42));
        let mut wrong = Vec::new();
        for answer in &answers {
            if Some(answer.line.as_str()) != answer.expected_line || answer.happened != answer.expected {
                wrong.push(format!(
                    "{} {:?}: {} ({:?})",
                    answer.case, answer.level, answer.line, answer.happened
                ));
            }
            assert_ne!(answer.verdict(), Verdict::Broken);
        }
        assert!(wrong.is_empty(), "{}: {wrong:#?}", installation.version);
        // Write skew, where the two levels differ: the one row everybody should know.
        let skew = |level: Isolation| {
            let found = answers.iter().find(|answer| answer.case == "G2-item" && answer.level == level);
            found.unwrap().verdict()
        };
        assert_eq!(skew(Isolation::RepeatableRead), Verdict::ByDesign);
        assert_eq!(skew(Isolation::Serializable), Verdict::Kept);
        // Nothing is left behind, and an unknown engine is not accused of anything.
        assert_eq!(server.value(&format!("select to_regclass('{TABLE}')")).unwrap(), None);
        let p4 = [Case::find("p4").unwrap()];
        let answers = run(&server.spec(), Engine::Ydb, &p4, &LEVELS[..1], &mut |_| {}).unwrap();
        assert_eq!((answers[0].happened, answers[0].expected), (Some(true), None));
        // A table that is not ours stays as it is.
        server.execute(&format!("create table {TABLE} (mine int); insert into {TABLE} values (7)")).unwrap();
        let refused = run(&server.spec(), Engine::Postgres, &p4, &LEVELS[..1], &mut |_| {}).unwrap_err();
        assert!(matches!(refused, HermitageError::ForeignTable) && refused.hint().is_some());
        assert_eq!(server.value(&format!("select mine from {TABLE}")).unwrap().as_deref(), Some("7"));
    });
}

#[test]
fn shards_show_fractures_at_every_level_and_deadlocks_that_nobody_sees() {
    on_each(|installation| {
        let cluster = ThrowawayCluster::sharded(installation, 2, 2).unwrap();
        let nodes = nodes(&cluster);
        for level in LEVELS {
            let answer = fractured_sum(&nodes[0], &nodes[1], level).unwrap();
            assert_eq!(answer.happened, Some(true), "{answer:#?}");
            assert_eq!(answer.verdict(), Verdict::ByDesign);
            assert_eq!(answer.line, "a read 0 here and 10 there, COMMIT; b COMMIT");
            assert_eq!(answer.script.len(), 8);
        }
        // The time limit has to be longer than what a detector waits for, or it would prove nothing.
        cluster
            .node(0)
            .execute(
                "alter server n2 options (set options '-c lock_timeout=2500ms -c deadlock_timeout=100ms')",
            )
            .unwrap();
        let answer = distributed_deadlock(&nodes[0], &nodes[1], Duration::from_secs(60)).unwrap();
        assert_eq!(answer.happened, Some(true), "{answer:#?}");
        assert!(answer.line.contains("a 55P03: a time limit ended it"), "{}", answer.line);
        for node in cluster.nodes() {
            assert_eq!(node.value(&format!("select to_regclass('{TABLE}')")).unwrap(), None);
        }
    });
}

#[test]
fn a_standby_forks_lags_and_refuses() {
    on_each(|installation| {
        let cluster = ThrowawayCluster::replicated(installation, 1, "async").unwrap();
        let nodes = nodes(&cluster);
        let setting = || cluster.node(0).value("show synchronous_standby_names").unwrap();
        let before = setting();
        let answer = long_fork(&nodes[0], &nodes[1]).unwrap();
        assert_eq!(answer.line, "the primary showed (0 1), the standby (1 0)", "{answer:#?}");
        assert_eq!(answer.verdict(), Verdict::ByDesign);
        assert_eq!(setting(), before);
        let answer = read_your_writes(&nodes[0], &nodes[1]).unwrap();
        assert_eq!(answer.happened, Some(true), "{answer:#?}");
        assert!(answer.line.contains("b read 0 afterwards"));
        let answer = serializable_on_standby(&nodes[1]).unwrap();
        assert_eq!(answer.verdict(), Verdict::Kept, "{answer:#?}");
        assert!(answer.line.starts_with("a 0A"), "{}", answer.line);
        let paused = "select pg_get_wal_replay_pause_state()";
        assert_eq!(cluster.node(1).value(paused).unwrap().as_deref(), Some("not paused"));
    });
}
