//! Clusters of several servers, on every PostgreSQL found: the nodes know each other, any of them answers, and their time limits end what no server would.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use connect::control;
use engines::{Cluster, ClusterError};
use lab::local::PUBLICATION;
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use testing::{on_each, wait_for};

/// A table in `partitions` hash partitions on all nodes, partition r on node r % n.
fn make_table(cluster: &ThrowawayCluster, partitions: usize) {
    let nodes = cluster.nodes().len();
    for (me, node) in cluster.nodes().iter().enumerate() {
        node.execute("create table t(k varchar(64) not null, v int) partition by hash (k)").unwrap();
        for r in 0..partitions {
            let bound = format!("for values with (modulus {partitions}, remainder {r})");
            let owner = r % nodes;
            let sql = if owner == me {
                format!("create table t_p{r} partition of t {bound}; alter table t_p{r} add primary key (k)")
            } else {
                format!(
                    "create foreign table t_p{r} partition of t {bound} server n{} options (schema_name 'public', table_name 't_p{r}')",
                    owner + 1
                )
            };
            node.execute(&sql).unwrap();
        }
    }
}

/// What a file holds, without whose it is: as root, the server's user writes it, who may change it.
pub(crate) fn as_written(file: &ClusterFile) -> ClusterFile {
    ClusterFile { others: None, ..file.clone() }
}

#[test]
fn any_node_of_a_sharded_cluster_is_an_entry() {
    on_each(&installations(), |installation| {
        let cluster = ThrowawayCluster::sharded(installation, 3, 6).unwrap();
        let read = ClusterFile::read(&cluster.cluster_toml()).unwrap();
        assert_eq!(&as_written(&read), cluster.file());
        assert_eq!(cluster.file().engine, "fdw-sharded");
        assert_eq!(cluster.file().made.as_ref().unwrap().partitions, Some(6));
        make_table(&cluster, 6);
        for (number, node) in cluster.nodes().iter().enumerate() {
            let sql =
                format!("insert into t select 'user'||i, {number} from generate_series({number}, 900, 3) i");
            node.execute(&sql).unwrap();
        }
        let mut local = 0;
        for node in cluster.nodes() {
            assert_eq!(node.value("select count(*) from t").unwrap().as_deref(), Some("901"));
            local += (0..6)
                .filter_map(|r| {
                    let kind = node.value(&format!("select relkind from pg_class where relname = 't_p{r}'"));
                    let here = kind.unwrap().as_deref() == Some("r");
                    here.then(|| node.value(&format!("select count(*) from t_p{r}")).unwrap().unwrap())
                })
                .map(|count| count.parse::<u32>().unwrap())
                .sum::<u32>();
            let plan: Vec<String> = node
                .execute("explain (costs off) select count(*) from t")
                .unwrap()
                .into_iter()
                .flatten()
                .flatten()
                .collect();
            assert!(plan.join("\n").contains("Partial Aggregate"), "aggregates are pushed down: {plan:#?}");
        }
        assert_eq!(local, 901, "each row lies on one node");

        let mut cluster = cluster;
        cluster.node_mut(2).kill9().unwrap();
        assert!(cluster.node(0).execute("select count(*) from t").is_err());
        cluster.node_mut(2).start_again().unwrap();
        assert_eq!(cluster.node(0).value("select count(*) from t").unwrap().as_deref(), Some("901"));
    });
}

/// Two sessions, each with a lock on its own node and a wish for the other's: no server sees this deadlock. The limit of the foreign servers ends it, and when
/// the clients are gone, nothing of theirs stays behind on either node.
#[test]
fn a_deadlock_over_two_nodes_ends_by_itself() {
    on_each(&installations(), |installation| {
        let cluster = ThrowawayCluster::sharded(installation, 2, 2).unwrap();
        make_table(&cluster, 2);
        cluster.node(0).execute("insert into t select 'user'||i, 0 from generate_series(1, 50) i").unwrap();
        let key_on = |node: usize| {
            cluster.node(node).value(&format!("select min(k) from t_p{node}")).unwrap().unwrap()
        };
        let keys = [key_on(0), key_on(1)];
        let barrier = std::sync::Barrier::new(2);
        let ends: Vec<Result<(), postgres::Error>> = std::thread::scope(|scope| {
            let session = |me: usize| {
                let (spec, barrier, keys) = (cluster.node(me).spec(), &barrier, &keys);
                move || {
                    let mut client = control::connect(&spec).unwrap();
                    let update = |key: &str| format!("update t set v = v + 1 where k = '{key}'");
                    client.batch_execute("begin").unwrap();
                    client.batch_execute(&update(&keys[me])).unwrap();
                    barrier.wait();
                    client.batch_execute(&update(&keys[1 - me]))
                }
            };
            let threads = [scope.spawn(session(0)), scope.spawn(session(1))];
            threads.map(|thread| thread.join().unwrap()).into_iter().collect()
        });
        assert!(ends.iter().any(Result::is_err), "one of them gives up");
        for end in ends.into_iter().filter_map(Result::err) {
            assert!(control::server_error(&end).unwrap().message.contains("lock timeout"), "{end:?}");
        }
        for node in cluster.nodes() {
            wait_for("no lock is left", || {
                let locks = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation where c.relname like 't\\_p_' and l.pid <> pg_backend_pid()";
                node.value(locks).unwrap().as_deref() == Some("0")
            });
        }
    });
}

/// The standbys of a server by their state, as `s1=sync s2=potential`.
fn standbys(node: &Throwaway) -> String {
    let sql = "select coalesce(string_agg(application_name || '=' || sync_state, ' ' order by application_name), '') \
               from pg_stat_replication where state = 'streaming'";
    node.value(sql).unwrap().unwrap()
}

#[test]
fn standbys_follow_and_follow_the_next_primary_too() {
    on_each(&installations(), |installation| {
        let mut cluster = ThrowawayCluster::replicated(installation, 2, "FIRST 2 (s1, s2)").unwrap();
        let file = cluster.file().clone();
        let roles: Vec<&str> = file.node.iter().map(|node| node.role.as_str()).collect();
        assert_eq!((file.engine.as_str(), roles), ("postgres", vec!["primary", "standby", "standby"]));
        assert_eq!(file.made.as_ref().unwrap().sync.as_deref(), Some("FIRST 2 (s1, s2)"));
        assert_eq!(standbys(cluster.node(0)), "s1=sync s2=sync");
        cluster
            .node(0)
            .execute(
                "set synchronous_commit = remote_apply; create table t as select generate_series(1, 1000) i",
            )
            .unwrap();
        for standby in &cluster.nodes()[1..] {
            assert_eq!(standby.value("select count(*) from t").unwrap().as_deref(), Some("1000"));
            assert!(standby.execute("insert into t values (0)").is_err(), "a standby takes no writes");
        }

        // The entry of the file finds whoever takes writes.
        let entry = file.entry(&Sources::of_process()).unwrap().spec;
        assert_eq!(control::connect(&entry).unwrap().host_index(), 0);
        cluster.node_mut(0).kill9().unwrap();
        assert_eq!(cluster.node(1).value("select pg_promote()").unwrap().as_deref(), Some("t"));
        assert_eq!(control::connect(&entry).unwrap().host_index(), 1);
        cluster.node(1).execute("insert into t values (1001)").unwrap();
        let now = Cluster::from_file(&file, &Sources::of_process()).unwrap().following_primary();
        let roles: Vec<String> =
            now.nodes.iter().map(|node| format!("{} {}", node.name, node.role)).collect();
        assert_eq!(roles, ["s1 primary", "primary standby", "s2 standby"]);
        wait_for("s2 follows the new primary", || standbys(cluster.node(1)) == "s2=async");
        wait_for("s2 has the new row", || {
            cluster.node(2).value("select max(i) from t").unwrap().as_deref() == Some("1001")
        });
    });
}

#[test]
fn roles_are_those_that_the_servers_have_now() {
    let cluster = ThrowawayCluster::replicated(&installations()[0], 1, "async").unwrap();
    let file = cluster.file().clone();
    let of = |file: &ClusterFile| Cluster::from_file(file, &Sources::of_process()).unwrap();
    let roles = |cluster: &Cluster| -> Vec<String> {
        cluster.nodes.iter().map(|node| format!("{} {}", node.name, node.role)).collect()
    };
    for (primary, standby) in
        [("primary", "primary"), ("standby", "standby"), ("standby", "primary"), ("primary", "standby")]
    {
        let mut wrong = file.clone();
        (wrong.node[0].role, wrong.node[1].role) = (primary.to_owned(), standby.to_owned());
        assert_eq!(roles(&of(&wrong).following_primary()), ["primary primary", "s1 standby"]);
        assert!(of(&wrong).checked().unwrap().1.is_empty());
    }

    // Two names of one server, in another database of it so that their addresses differ.
    let mut repeated = file.clone();
    repeated.node[1].connection = file.node[0].connection.replace("dbname=postgres", "dbname=template1");
    let once = of(&repeated).following_primary();
    assert_eq!(roles(&once), ["primary primary"]);
    assert!(once.left_out[0].why.contains("are the same server: \"s1\" is left out"), "{:?}", once.left_out);
    repeated.node[1].role = "primary".to_owned();
    let (_, odd) = of(&repeated).checked().unwrap();
    assert!(odd.is_empty(), "one server does work together with itself: {odd:?}");

    // The standby is promoted, and its primary goes on.
    assert_eq!(cluster.node(1).value("select pg_promote()").unwrap().as_deref(), Some("t"));
    let error = of(&file).check_nodes().unwrap_err();
    assert!(matches!(error, ClusterError::TwoPrimaries { .. }), "{error}");
    assert!(error.hint().unwrap().contains("pg_rewind"));
}

#[test]
fn a_commit_waits_for_whom_it_was_told_to_wait() {
    on_each(&installations(), |installation| {
        let any = ThrowawayCluster::replicated(installation, 2, "ANY 1 (s1, s2)").unwrap();
        // A walsender takes its place in the quorum when it next looks at its configuration.
        wait_for("both standbys count", || standbys(any.node(0)) == "s1=quorum s2=quorum");
        drop(any);
        let mut cluster = ThrowawayCluster::replicated(installation, 1, "async").unwrap();
        assert_eq!(standbys(cluster.node(0)), "s1=async");
        cluster.node_mut(1).stop(StopMode::Fast).unwrap();
        cluster.node(0).execute("create table t(i int)").unwrap();
    });
    let error = ThrowawayCluster::replicated(&installations()[0], 1, "FIRST 1 (s2)").unwrap_err();
    assert!(error.to_string().contains("no standby is called \"s2\""), "{error}");
}

#[test]
fn every_node_of_a_multimaster_cluster_takes_writes() {
    on_each(&installations(), |installation| {
        let cluster = match ThrowawayCluster::multimaster(installation, 3) {
            Ok(cluster) => cluster,
            Err(error) => {
                assert!(installation.version.major < 16, "{error}");
                assert!(error.to_string().contains("needs PostgreSQL 16 or newer"), "{error}");
                assert!(error.hint().unwrap().contains("--pg-bin"));
                return;
            }
        };
        for node in cluster.nodes() {
            let sql = format!(
                "create table t(i int primary key, node int); alter publication {PUBLICATION} add table t"
            );
            node.execute(&sql).unwrap();
        }
        for node in cluster.nodes() {
            let subscriptions = node.execute("select subname from pg_subscription").unwrap();
            assert_eq!(subscriptions.len(), 2);
            for name in subscriptions.into_iter().flatten().flatten() {
                node.execute(&format!(
                    "alter subscription {name} refresh publication with (copy_data = false)"
                ))
                .unwrap();
            }
        }
        for (number, node) in cluster.nodes().iter().enumerate() {
            node.execute(&format!(
                "insert into t select i, {number} from generate_series({number}, 299, 3) i"
            ))
            .unwrap();
        }
        for node in cluster.nodes() {
            wait_for("every row arrives everywhere", || {
                node.value("select count(*) from t").unwrap().as_deref() == Some("300")
            });
        }
        // Nothing circles: a row that came by replication is not sent on.
        for node in cluster.nodes() {
            let applied = "select sum(apply_error_count) from pg_stat_subscription_stats";
            assert_eq!(node.value(applied).unwrap().as_deref(), Some("0"));
        }
    });
}
