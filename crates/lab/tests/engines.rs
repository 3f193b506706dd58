//! The engines that `scripts/engines` has built: their clusters start, and a row that one node takes is seen by the others.

use lab::local::{Installation, Topology};
use lab::throwaway::ThrowawayCluster;
use testing::wait_for;

/// A cluster, or nothing where its engine is not built.
fn cluster(need: &'static str, topology: &Topology) -> Option<ThrowawayCluster> {
    match testing::needs::engine(need, topology.kind()) {
        Ok(programs) => {
            let installation = Installation::at(&programs).expect("an engine that was built has a server");
            Some(ThrowawayCluster::start(&installation, topology, &[]).expect("a throwaway cluster starts"))
        }
        Err(lack) => {
            testing::skip(&lack);
            None
        }
    }
}

#[test]
fn citus_spreads_a_table_over_its_workers() {
    let Some(cluster) = cluster("engine-citus", &Topology::Citus { nodes: 3 }) else { return };
    let coordinator = cluster.node(0);
    coordinator.execute("create table t(i int primary key)").unwrap();
    coordinator.execute("select create_distributed_table('t', 'i')").unwrap();
    coordinator.execute("insert into t select generate_series(1, 100)").unwrap();
    let groups = "select count(distinct groupid) from pg_dist_placement join pg_dist_shard using (shardid)";
    assert_eq!(coordinator.value(groups).unwrap().as_deref(), Some("2"));
    assert_eq!(cluster.node(2).value("select count(*) from t").unwrap().as_deref(), Some("100"));
}

#[test]
fn every_node_of_postgres_pro_multimaster_takes_rows_and_tables() {
    let Some(cluster) = cluster("engine-mtm", &Topology::Mtm { nodes: 3 }) else { return };
    cluster.node(1).execute("create table t(i int primary key)").unwrap();
    for (number, node) in cluster.nodes().iter().enumerate() {
        node.execute(&format!("insert into t values ({number})")).unwrap();
    }
    for node in cluster.nodes() {
        wait_for("every row arrives everywhere", || {
            node.value("select count(*) from t").unwrap().as_deref() == Some("3")
        });
    }
}

#[test]
fn every_node_of_pgactive_takes_rows() {
    let Some(cluster) = cluster("engine-pgactive", &Topology::Pgactive { nodes: 2 }) else { return };
    for node in cluster.nodes() {
        node.execute("create table t(i int primary key)").unwrap();
    }
    for (number, node) in cluster.nodes().iter().enumerate() {
        node.execute(&format!("insert into t values ({number})")).unwrap();
    }
    for node in cluster.nodes() {
        wait_for("every row arrives everywhere", || {
            node.value("select count(*) from t").unwrap().as_deref() == Some("2")
        });
    }
}
