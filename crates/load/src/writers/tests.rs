//! The registry against live servers, and the merging of ledgers.

use connect::cluster_file::Role;
use engines::cluster::ClusterNode;
use engines::engine::Engine;
use lab::throwaway::{Throwaway, installations};

use super::*;
use crate::verify::tests::fixture::{dataset, enter};
use crate::ycsb::NAME;

const NODES: [&str; 2] = ["n1", "n2"];

fn writer(run_no: u16, finished: bool) -> Writer {
    let transactions = if finished { vec![u64::from(run_no)] } else { Vec::new() };
    Writer { run_no, spec: "{}".into(), finished, transactions }
}

#[test]
fn what_any_ledger_knows_is_known_and_an_end_counts() {
    let merged =
        merge(vec![vec![writer(1, false), writer(3, false)], vec![writer(1, true), writer(2, true)], vec![]]);
    assert_eq!(merged.unwrap(), [writer(1, true), writer(2, true), writer(3, false)]);
    let other = Writer { transactions: vec![77], ..writer(1, true) };
    let error = merge(vec![vec![writer(1, true)], vec![other]]).unwrap_err();
    assert!(error.hint().is_some() && error.to_string().contains("run 1"), "{error}");
}

/// Two servers with the dataset in their ledgers.
fn servers() -> Vec<Throwaway> {
    let servers: Vec<Throwaway> =
        NODES.iter().map(|_| Throwaway::start(&installations()[0], &[]).unwrap()).collect();
    for server in &servers {
        enter(server, &NODES, &dataset(0), &[]);
    }
    servers
}

/// The cluster as it is seen through the node `entry`, which comes first.
fn cluster(servers: &[Throwaway], entry: usize) -> Cluster {
    let node = |index: usize| ClusterNode::new(NODES[index], Role::Shard, servers[index].spec());
    Cluster {
        engine: Engine::parse("fdw-sharded").unwrap(),
        nodes: vec![node(entry), node(1 - entry)],
        partitions: None,
        left_out: vec![],
    }
}

/// Runs that begin at once through different nodes would wait for each other, each holding what the other wants.
#[test]
fn runs_that_begin_at_once_through_any_node_get_numbers_of_their_own() {
    const RUNS: usize = 8;
    let servers = servers();
    let mut numbers: Vec<u16> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..RUNS)
            .map(|run| {
                let cluster = cluster(&servers, run % 2);
                scope.spawn(move || Registry::open(&cluster, NAME).unwrap().unwrap().create("{}").unwrap())
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=RUNS as u16), "{numbers:?}");
    for server in &servers {
        let known = server.value("select string_agg(run_no::text, ' ' order by run_no) from pgfathom.writer");
        assert_eq!(known.unwrap().as_deref(), Some("1 2 3 4 5 6 7 8"), "every node knows every run");
    }
}

#[test]
fn a_run_that_is_on_is_distinguished_from_a_killed_one_through_any_node() {
    let servers = servers();
    let mut on = Registry::open(&cluster(&servers, 0), NAME).unwrap().unwrap();
    let run_no = on.create("{}").unwrap();
    assert!(on.mark(run_no).unwrap() && on.mark(run_no).unwrap(), "it may ask again");
    for entry in [0, 1] {
        let mut other = Registry::open(&cluster(&servers, entry), NAME).unwrap().unwrap();
        assert!(!other.mark(run_no).unwrap(), "it is on");
        // Nothing of the attempt is left behind on the first node.
        assert!(on.mark(run_no).unwrap());
    }
    drop(on);
    let mut other = Registry::open(&cluster(&servers, 1), NAME).unwrap().unwrap();
    let begin = Instant::now();
    while !other.mark(run_no).unwrap() {
        assert!(begin.elapsed() < testing::PATIENCE, "a server notices soon that a client is gone");
        std::thread::sleep(LOCK_PAUSE);
    }
}

#[test]
fn a_node_that_was_down_when_a_run_ended_is_not_in_doubt() {
    let mut servers = servers();
    let mut registry = Registry::open(&cluster(&servers, 0), NAME).unwrap().unwrap();
    let first = registry.create("{\"a\": 1}").unwrap();
    registry.finish(first, "{\"a\": 2}", &[5, 7]).unwrap();
    let second = registry.create("{}").unwrap();
    servers[1].stop(lab::throwaway::StopMode::Immediate).unwrap();
    registry.finish(second, "{\"b\": 1}", &[9]).unwrap();
    servers[1].start_again().unwrap();

    let mut registry = Registry::open(&cluster(&servers, 1), NAME).unwrap().unwrap();
    let known = registry.writers().unwrap();
    let ends: Vec<_> = known.iter().map(|run| (run.run_no, run.finished, run.transactions.clone())).collect();
    assert_eq!(ends, [(first, true, vec![5, 7]), (second, true, vec![9])]);
    assert_eq!(known[1].spec, "{\"b\": 1}");
    // Times are those of the node that knows both ends.
    let times = registry.times().unwrap();
    assert!(times[0].2.unwrap() <= times[1].1 && times[1].2.is_some(), "{times:?}");
    // When none does, no run is earlier than another.
    servers[0].execute("delete from pgfathom.writer where run_no = 1").unwrap();
    let times = registry.times().unwrap();
    assert_eq!(times, [(first, 0, Some(0)), (second, 0, Some(0))]);

    // One that comes back while the run is on is written to again.
    let third = registry.create("{}").unwrap();
    servers[1].stop(lab::throwaway::StopMode::Immediate).unwrap();
    servers[1].start_again().unwrap();
    registry.finish(third, "{}", &[1]).unwrap();
    for server in &servers {
        let finished = server.value("select finished from pgfathom.writer where run_no = 3").unwrap();
        assert_eq!(finished.as_deref(), Some("t"));
    }
}

#[test]
fn a_node_that_is_away_is_named_and_other_trouble_keeps_its_own_hint() {
    let mut servers = servers();
    let mut cluster = cluster(&servers, 0);
    servers[1].stop(lab::throwaway::StopMode::Immediate).unwrap();
    let error = Registry::open(&cluster, NAME).unwrap_err();
    assert!(matches!(&error, LoadError::LedgerAway { node, .. } if node == "n2"), "{error:?}");
    assert!(error.is_connection_lost());
    assert_eq!(
        error.hint().as_deref(),
        Some("start the server of n2, then type the same command again"),
        "a run that only reads needs each server, too"
    );
    cluster.nodes[0].spec.user = "no_such_role".to_owned();
    let error = Registry::open(&cluster, NAME).unwrap_err();
    assert!(matches!(error, LoadError::Connect(_)), "{error:?}");
    assert!(error.hint().is_none_or(|hint| !hint.contains("start the server")), "{:?}", error.hint());
}

#[test]
fn a_table_that_another_session_locks_is_not_waited_for_forever() {
    let servers = servers();
    let mut registry = Registry::open(&cluster(&servers, 0), NAME).unwrap().unwrap();
    let mut blocker = connect::control::connect(&servers[1].spec()).unwrap();
    blocker.batch_execute("begin; lock table pgfathom.writer in share mode").unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| registry.create("{}"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!run.is_finished());
        blocker.batch_execute("rollback").unwrap();
        assert_eq!(run.join().unwrap().unwrap(), 1);
    });
}
