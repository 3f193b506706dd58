//! Two loaders of one cluster that are killed again and again.

use super::*;
use crate::support::random::Random;

/// What the loading process is told in its environment: cluster file, rows, rows per chunk, method, way.
const CHILD: &str = "PGFATHOM_TEST_CLUSTER_LOADER";

/// The other half of the tests that kill processes: this program, started again by [`spawn_loader`].
#[test]
#[ignore = "the process that other tests of this file start and kill"]
fn cluster_loader_process() {
    let order = std::env::var(CHILD).expect("started by another test");
    let parts: Vec<&str> = order.split(' ').collect();
    let [file, rows, chunk_rows, method, via] = parts[..] else { panic!("{order}") };
    let file = ClusterFile::read(Path::new(file)).unwrap();
    let cluster = Cluster::from_file(&file, &Sources::of_process()).unwrap();
    let asked = killed_options(
        rows.parse().unwrap(),
        chunk_rows.parse().unwrap(),
        method.parse().unwrap(),
        via.parse().unwrap(),
    );
    load_ycsb_on(&cluster, &asked, &Stop::new(), &mut Notes::default()).unwrap();
}

pub(super) fn killed_options(rows: u64, chunk_rows: u64, method: Method, via: Via) -> Options {
    Options {
        partitions: None,
        streams: 3,
        chunk_rows: Some(chunk_rows),
        method: Some(method),
        via: Some(via),
        ..options(rows, 0)
    }
}

fn spawn_loader(nodes: &ThrowawayCluster, rows: u64, chunk_rows: u64, method: Method, via: Via) -> Child {
    let order = format!("{} {rows} {chunk_rows} {method} {via}", nodes.cluster_toml().display());
    testing::again(module_path!(), "cluster_loader_process")
        .arg("--ignored")
        .env(CHILD, order)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the test program starts again")
}

pub(super) fn verified(cluster: &Cluster) -> VerifyReport {
    let stop = Stop::new();
    let mirror = MirrorOptions { lag_limit: Duration::from_secs(60), standbys: false };
    verify_ycsb_on(cluster, &VerifyOptions { mirror, ..VerifyOptions::new(false, 2, &stop) }).unwrap()
}

/// Two loaders at once, both killed at moments that nobody chooses, again and again; then one runs to the end.
fn two_loaders_killed(
    installation: &Installation,
    rows: u64,
    chunk_rows: u64,
    method: Method,
    via: Via,
    kills: u32,
) {
    // A frozen leaf is a unit of its own: many of them, so that kills hit some.
    let partitions = if method == Method::Freeze { 60 } else { 12 };
    let nodes = ThrowawayCluster::sharded(installation, 3, partitions).unwrap();
    let target = cluster_of(&nodes);
    let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
    let mut random = Random::new();
    let (mut under_way, mut last) = (0, 0);
    for kill in 0..kills {
        let mut loaders = [(); 2].map(|()| spawn_loader(&nodes, rows, chunk_rows, method, via));
        // The first pair dies while it makes the tables; later ones after having committed something, if they get to it.
        let goal = last + 1 + random.below(rows / u64::from(kills) / 2) as i64;
        let begun = Instant::now();
        while kill > 0
            && begun.elapsed() < Duration::from_secs(60)
            && loaders.iter_mut().any(|loader| loader.try_wait().unwrap().is_none())
            && in_ledgers(&mut clients) < goal
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        for loader in &mut loaders {
            loader.kill().unwrap();
            loader.wait().unwrap();
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
        }
        if clients.iter_mut().any(|client| client.query("select from usertable limit 0", &[]).is_err()) {
            continue;
        }
        if via == Via::Owner {
            let (table, ledger) = rows_and_ledgers(&mut clients);
            assert_eq!(table, ledger, "kill {kill}: rows are those of the ledgers");
        }
        let now = in_ledgers(&mut clients);
        assert!(now >= last, "kill {kill}: what was safe stays safe");
        under_way += u64::from(now > last && (now as u64) < rows);
        last = now;
    }
    println!(
        "{}: {method} {via}: {under_way} of {kills} kills hit rows under way, {last} of {rows} were safe",
        installation.version
    );
    assert!(under_way >= u64::from(kills) / 3, "only {under_way} kills hit the copy phase");
    let asked = killed_options(rows, chunk_rows, method, via);
    let report = load_ycsb_on(&target, &asked, &Stop::new(), &mut Notes::default()).unwrap();
    assert!(!report.outcome.is_partial());
    assert_eq!(report.totals.rows, rows);
    let verified = verified(&target);
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    assert_eq!(
        (verified.rows_found, verified.totals.iter().sum::<u64>()),
        (rows, 0),
        "{:?}",
        verified.differences
    );
    if rows <= 100_000 {
        assert_exact_on(&nodes, rows, partitions, &spec(1));
    }
}

pub(super) fn in_ledgers(clients: &mut [Client]) -> i64 {
    let sum = "select coalesce(sum(rows), 0)::bigint from pgfathom.chunk";
    clients.iter_mut().map(|client| client.query_one(sum, &[]).map_or(0, |row| row.get::<_, i64>(0))).sum()
}

#[test]
fn two_loaders_that_are_killed_leave_every_node_exact() {
    each_postgres(|installation| {
        two_loaders_killed(installation, 40_009, 300, Method::Copy, Via::Owner, 8);
    });
}

#[test]
fn two_freezing_loaders_that_are_killed_leave_every_node_exact() {
    each_postgres(|installation| {
        two_loaders_killed(installation, 30_011, 300, Method::Freeze, Via::Owner, 6);
    });
}

#[test]
fn two_loaders_through_the_entry_node_that_are_killed_leave_every_node_exact() {
    each_postgres(|installation| {
        two_loaders_killed(installation, 20_011, 400, Method::Copy, Via::Connect, 6);
    });
}

/// The size that the issue names; minutes long, so it is run by hand: `cargo test -p pgfathom-load --test all -- --ignored million`.
#[test]
#[ignore = "takes minutes"]
fn a_million_rows_survive_two_loaders_that_are_killed() {
    each_postgres(|installation| {
        two_loaders_killed(installation, 1_000_000, 9_000, Method::Copy, Via::Owner, 12);
    });
}
