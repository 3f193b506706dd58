//! Nodes that should hold the same, against live servers: alike, late, and diverged.

use std::time::Duration;

use connect::cluster_file::Role;
use connect::conninfo::Sources;
use data::ycsb::{FIELD_BYTES, Table, Version};
use engines::cluster::{Cluster, ClusterNode};
use engines::engine::Engine;
use lab::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};

use super::super::cluster::tests::{named, verify};
use super::super::tests::fixture::{
    CHUNK_ROWS, ROWS, columns, copy, dataset, enter, enter_chunk, key, mark_loaded,
};
use super::*;
use crate::options::Stop;
use crate::verify::{DifferenceKind, MirrorOptions, Verdict, VerifyOptions};

const NAMES: [&str; 2] = ["n1", "n2"];

/// Two peers that replicate to each other, with the dataset on both, on the oldest release that has `origin`.
fn peers() -> Result<(Vec<Throwaway>, Cluster, Table), testing::Lack> {
    let oldest = installations().into_iter().rev().find(|installation| installation.version.major >= 16);
    let lack = || testing::Lack::new("postgres-16", "no PostgreSQL 16 or later is installed");
    oldest.map(|installation| peers_of(&installation)).ok_or_else(lack)
}

fn peers_of(installation: &Installation) -> (Vec<Throwaway>, Cluster, Table) {
    let settings = [("wal_level", "logical"), ("track_commit_timestamp", "on")];
    let servers: Vec<Throwaway> =
        (0..2).map(|_| Throwaway::start(installation, &settings).unwrap()).collect();
    let dataset = dataset(0);
    let table = Table::new(dataset.spec.clone());
    for server in &servers {
        load(server, &dataset, &table);
        server.execute("create publication pub for table usertable").unwrap();
    }
    for (node, other) in [(0, 1), (1, 0)] {
        let source: &Throwaway = &servers[other];
        let connection = format!(
            "host={} port={} user=postgres dbname=postgres",
            source.socket_dir().display(),
            source.port()
        );
        servers[node]
            .execute(&format!(
                "create subscription {}_from_{} connection '{connection}' publication pub with (origin = none, copy_data = false)",
                NAMES[node], NAMES[other]
            ))
            .unwrap();
    }
    let nodes = std::iter::zip(NAMES, &servers)
        .map(|(name, server)| ClusterNode::new(name, Role::Peer, server.spec()));
    let cluster = Cluster {
        engine: Engine::parse("multimaster").unwrap(),
        nodes: nodes.collect(),
        partitions: None,
        left_out: vec![],
    };
    (servers, cluster, table)
}

fn load(server: &Throwaway, dataset: &Dataset, table: &Table) {
    server
        .execute(&format!("create table usertable (ycsb_key varchar(64) primary key{})", columns()))
        .unwrap();
    let dataset = enter(server, &NAMES, dataset, &["usertable".to_owned()]);
    copy(server, "usertable", table, &(0..ROWS).collect::<Vec<_>>());
    for chunk in 0..ROWS.div_ceil(CHUNK_ROWS) {
        let rows: Vec<u64> = (0..ROWS).filter(|row| row / CHUNK_ROWS == chunk).collect();
        enter_chunk(server, &dataset, table, chunk, &rows, None);
    }
    mark_loaded(server, &dataset);
}

fn check(cluster: &Cluster, deep: bool, mirror: MirrorOptions) -> VerifyReport {
    let stop = Stop::new();
    let options = VerifyOptions { mirror, ..VerifyOptions::new(deep, 2, &stop) };
    verify(cluster, &options).unwrap()
}

/// The same as on servers without a hash of rows, and with fewer options.
fn check_without_hashes(cluster: &Cluster) -> VerifyReport {
    let stop = Stop::new();
    let options =
        VerifyOptions { mirror: within(60), may_hash: false, ..VerifyOptions::new(false, 2, &stop) };
    verify(cluster, &options).unwrap()
}

fn within(seconds: u64) -> MirrorOptions {
    MirrorOptions { lag_limit: Duration::from_secs(seconds), standbys: false }
}

fn update(table: &Table, row: u64, version: Version) -> String {
    let mut value = [0; FIELD_BYTES];
    table.field(row, 3, version, &mut value);
    let value = std::str::from_utf8(&value).unwrap();
    format!("update usertable set field3 = '{value}' where ycsb_key = '{}'", key(table, row))
}

/// Everything about peers on one pair of servers: making them takes longer than verifying them.
#[test]
fn peers_are_compared_with_each_other() {
    let (servers, cluster, table) = match peers() {
        Ok(peers) => peers,
        Err(lack) => return testing::skip(&lack),
    };
    for deep in [false, true] {
        let report = check(&cluster, deep, within(60));
        assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
        assert_eq!((report.rows_expected, report.rows_found), (2 * ROWS, 2 * ROWS));
        assert!(report.notes.is_empty(), "{}", report.text());
        let nodes: Vec<_> = report.nodes.iter().map(|node| (node.name.as_str(), node.rows_found)).collect();
        assert_eq!(nodes, [("n1", ROWS), ("n2", ROWS)]);
    }

    // Both know a run that has written on both.
    for server in &servers {
        server
            .execute(
                "insert into pgfathom.writer (dataset, run_no, spec, finished, transactions) \
                 select id, 1, '{}', true, '[5000, 5000]' from pgfathom.dataset",
            )
            .unwrap();
    }
    let write = |node: usize, row: u64| {
        servers[node].execute(&update(&table, row, Version::new(1, node as u16, row as u32 + 1))).unwrap();
    };
    (0..50).for_each(|row| write(0, row));
    (50..100).for_each(|row| write(1, row));
    let report = check(&cluster, false, within(60));
    assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
    assert_eq!((report.method, report.updates_accepted), (Method::Deep, 200));
    let report = check_without_hashes(&cluster);
    assert_eq!((report.verdict(), report.notes.len()), (Verdict::Exact, 1), "{}", report.text());

    // A node that is late is waited for.
    servers[1].execute("alter subscription n2_from_n1 disable").unwrap();
    (100..200).for_each(|row| write(0, row));
    let report = check(&cluster, false, within(1));
    assert_eq!(report.verdict(), Verdict::CannotTell, "{}", report.text());
    let [Problem::Behind { node, source, bytes: 1.., why, .. }] = report.problems.as_slice() else {
        panic!("{}", report.text())
    };
    assert_eq!((node.as_str(), source.as_str()), ("n2", "n1"));
    assert_eq!(why, "the subscription n2_from_n1 is disabled");
    assert_eq!(report.differences_total(), 100, "{}", report.text());
    // Enabled while another session waits: the writes of a locked table come late, and are waited for.
    let mut blocker = connect::control::connect(&servers[1].spec()).unwrap();
    let mut transaction = blocker.transaction().unwrap();
    transaction
        .execute("select from usertable where ycsb_key = $1 for update", &[&key(&table, 150)])
        .unwrap();
    servers[1].execute("alter subscription n2_from_n1 enable").unwrap();
    let report = std::thread::scope(|scope| {
        let verification = scope.spawn(|| check(&cluster, false, within(60)));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!verification.is_finished(), "n2 cannot have what n1 wrote");
        transaction.rollback().unwrap();
        verification.join().unwrap()
    });
    assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());

    // Both write one row before they hear of each other: each then has what the other wrote, and stays so.
    for (node, name) in [(0, "n1_from_n2"), (1, "n2_from_n1")] {
        servers[node].execute(&format!("alter subscription {name} disable")).unwrap();
    }
    let (ours, theirs) = (Version::new(1, 0, 4001), Version::new(1, 1, 4002));
    servers[0].execute(&update(&table, 777, ours)).unwrap();
    servers[1].execute(&update(&table, 777, theirs)).unwrap();
    for (node, name) in [(0, "n1_from_n2"), (1, "n2_from_n1")] {
        servers[node].execute(&format!("alter subscription {name} enable")).unwrap();
    }
    let report = check(&cluster, true, within(60));
    let diverged =
        (vec![("row that differs between nodes", key(&table, 777), "usertable on n2".to_owned())], vec![]);
    assert_eq!(named(&report), diverged, "{}", report.text());
    assert_eq!((report.verdict(), report.differences_total()), (Verdict::Different, 1));
    let DifferenceKind::Diverged { fields, other, .. } = &report.differences[0].kind else { panic!() };
    assert_eq!((fields.as_slice(), other.as_str()), (&[(3, ours, theirs)][..], "n1"));
    let tables: Vec<_> = report.nodes.iter().map(|node| node.tables_differing).collect();
    assert_eq!(tables, [0, 1]);
    assert_eq!(report.tables[0].differences, 1);
    // The same where the servers have no hash of rows: each node alone holds what its runs allow.
    let report = check_without_hashes(&cluster);
    assert_eq!(named(&report), diverged, "{}", report.text());
    assert_eq!(report.verdict(), Verdict::Different);

    // What is wrong on one node alone is named for that, once.
    servers[0].execute("alter subscription n1_from_n2 disable").unwrap();
    servers[1].execute(&format!("delete from usertable where ycsb_key = '{}'", key(&table, 900))).unwrap();
    servers[0].execute("drop subscription n1_from_n2").unwrap();
    let report = check(&cluster, true, within(60));
    let missing = ("missing", key(&table, 900), "usertable on n2".to_owned());
    let problem = "n1 has no subscription to the writes of n2".to_owned();
    assert_eq!(named(&report), ([vec![missing], diverged.0].concat(), vec![problem]), "{}", report.text());

    // What a node no longer publishes does not arrive, although its subscriber has all that was sent.
    servers[0].execute("alter publication pub drop table usertable").unwrap();
    let report = check(&cluster, false, within(60));
    let why = "n2 does not get what n1 writes to usertable: the subscription n2_from_n1 takes the publication pub, and no publication has the table";
    assert!(named(&report).1.contains(&why.to_owned()), "{}", report.text());
}

/// Rows that are on their way while nodes are compared are read again.
#[test]
fn writes_under_way_are_no_divergence() {
    let (servers, cluster, table) = match peers() {
        Ok(peers) => peers,
        Err(lack) => return testing::skip(&lack),
    };
    for server in &servers {
        server
            .execute("insert into pgfathom.writer (dataset, run_no, spec) select id, 1, '{}' from pgfathom.dataset")
            .unwrap();
    }
    std::thread::scope(|scope| {
        let stop = testing::Stop::new();
        for (node, server) in servers.iter().enumerate() {
            let (done, table) = (stop.flag(), &table);
            scope.spawn(move || {
                let mut client = connect::control::connect(&server.spec()).unwrap();
                let mut writes = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    writes += 1;
                    // Each writes rows of its own.
                    let row = (u64::from(writes) * 14 + node as u64) % ROWS / 2 * 2 + node as u64;
                    let version = Version::new(1, node as u16, writes);
                    client.batch_execute(&update(table, row, version)).unwrap();
                }
            });
        }
        for _ in 0..3 {
            let report = check(&cluster, true, within(60));
            // The run is on, so what it loses cannot be known; nothing differs.
            assert_eq!(report.verdict(), Verdict::CannotTell, "{}", report.text());
            let open = (report.differences_total(), report.values_unjudged, report.problems.len());
            assert_eq!(open, (0, 0, 0), "{}", report.text());
        }
    });
}

#[test]
fn standbys_are_read_after_they_have_caught_up() {
    for installation in installations() {
        let servers = ThrowawayCluster::replicated(&installation, 2, "async").unwrap();
        let cluster = Cluster::from_file(servers.file(), &Sources::of_process()).unwrap();
        let dataset = dataset(0);
        let table = Table::new(dataset.spec.clone());
        load(servers.node(0), &dataset, &table);
        let mirror = |seconds| MirrorOptions { standbys: true, ..within(seconds) };
        for deep in [false, true] {
            let report = check(&cluster, deep, mirror(60));
            assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
            assert_eq!((report.nodes.len(), report.rows_found), (3, 3 * ROWS));
            assert!(report.notes.is_empty(), "{}", report.text());
        }
        let alone = check(&cluster, false, within(60));
        assert_eq!((alone.verdict(), alone.rows_found), (Verdict::Exact, ROWS));
        assert!(alone.nodes.is_empty());

        // A file without the server that takes writes, whatever roles it gives the others.
        for role in [Role::Primary, Role::Standby] {
            let mut headless = cluster.clone();
            headless.nodes.remove(0);
            headless.nodes[0].role = role;
            let stop = Stop::new();
            let options = VerifyOptions { mirror: mirror(1), ..VerifyOptions::new(false, 2, &stop) };
            let error = verify(&headless, &options).unwrap_err();
            assert!(error.to_string().contains("no node of the cluster file takes writes: s1"), "{error}");
            assert!(error.hint().unwrap().contains("add the primary"));
        }

        servers.node(2).execute("select pg_wal_replay_pause()").unwrap();
        servers.node(0).execute("delete from usertable where field0 like 'a%'").unwrap();
        let gone = "select count(*) = 0 from usertable where field0 like 'a%'";
        while servers.node(1).value(gone).unwrap().as_deref() != Some("t") {
            std::thread::sleep(Duration::from_millis(20));
        }
        let report = check(&cluster, false, mirror(1));
        // On a busy machine the other one may be late by a few bytes, too.
        let is_paused = |problem: &String| {
            problem.starts_with("s2 still lacks") && problem.ends_with("its replay is paused")
        };
        assert!(named(&report).1.iter().any(is_paused), "{}", report.text());
        let missing: Vec<bool> =
            report.nodes.iter().map(|node| node.rows_found < node.rows_expected).collect();
        assert_eq!(missing, [true, true, false]);
        servers.node(2).execute("select pg_wal_replay_resume()").unwrap();
    }
}
