//! Profiles of engines that are not installed here, on catalogs written down from their documentation and replayed over a socket: discovery,
//! placement, routes against the recorded oracle, and what a damaged catalog is told as.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use crate::recorded;
use connect::cluster_file::Role;
use connect::control::{self, Control};
use engines::cluster::{Cluster, ClusterError};
use engines::engine::Engine;
use engines::hash::Key;
use engines::placement::{Bound, Parts, Placement, PlacementError, Routing};
use engines::profile::Tried;
use recorded::Recorded;

/// A recording, discovered from its entry.
struct Found {
    cluster: Cluster,
    control: Control,
}

fn discover(name: &str) -> Result<Cluster, ClusterError> {
    let recorded = Recorded::start(name);
    let cluster = Cluster::discover(&recorded.spec("entry"))?;
    assert_eq!(cluster.engine, recorded.engine, "{name}");
    Ok(cluster)
}

fn found(name: &str) -> Found {
    let cluster = discover(name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let control = control::connect(&cluster.nodes[0].spec).unwrap();
    Found { cluster, control }
}

impl Found {
    fn read(&mut self, table: &str) -> Result<Placement, PlacementError> {
        Placement::read(&self.cluster, &mut *self.control, 0, "public", table)
    }

    fn table(&mut self, table: &str) -> Placement {
        self.read(table).unwrap_or_else(|error| panic!("{table}: {error:?}"))
    }

    fn test(&mut self, placement: &Placement, keys: &[&str]) -> Result<(), PlacementError> {
        placement.self_test(&mut *self.control, keys)
    }

    /// The message and the hint of what goes wrong with a table.
    fn wrong(&mut self, table: &str) -> (String, String) {
        let error = self.read(table).expect_err(table);
        (chain(&error), error.hint().unwrap_or_default())
    }

    fn roles(&self) -> Vec<(&str, Role)> {
        self.cluster
            .nodes
            .iter()
            .map(|node| (node.name.split(':').next().unwrap_or_default(), node.role))
            .collect()
    }
}

/// A message with its causes, as the command prints them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("; {error}"));
        cause = error.source();
    }
    text
}

fn owners(placement: &Placement) -> Vec<usize> {
    placement.leaves().iter().map(|leaf| leaf.node).collect()
}

fn server(reason: &str) -> Routing {
    Routing::Server(reason.to_owned())
}

#[test]
fn citus_is_found_routed_and_tested_against_its_oracle() {
    let mut citus = found("citus.three");
    assert_eq!(citus.roles(), [("coord", Role::Coordinator), ("w1", Role::Shard), ("w2", Role::Worker)]);
    assert_eq!(citus.cluster.data_nodes().collect::<Vec<_>>(), [1, 2]);
    let placement = citus.table("usertable");
    assert_eq!(owners(&placement), [1, 2, 1, 2]);
    assert_eq!(placement.leaves()[1].name, "usertable_102009");
    assert_eq!(placement.leaves()[1].bound, Bound::Hash32 { least: -1073741824, greatest: -1 });
    assert_eq!(placement.routing().to_string(), "ranges of the hash of (ycsb_key)");
    assert!(!placement.routes_by_partition_hash());
    citus.test(&placement, &["user1", "tenant-1", "user1000000"]).unwrap();

    // Known answers of Citus's regression tests; a second placement is not a second leaf.
    let users = citus.table("users");
    let leaves: Vec<_> =
        ["1", "2", "3", "4"].iter().map(|id| users.leaf_of_text(id.as_bytes()).unwrap()).collect();
    assert_eq!((leaves, users.leaves().len()), (vec![0, 3, 1, 1], 4));

    let countries = citus.table("countries");
    assert!(countries.on_every_node());
    assert_eq!((countries.routing(), countries.leaves().len()), (&Routing::Whole, 1));

    let prices = citus.table("prices");
    assert_eq!(prices.routing(), &server("the hash of numeric (amount) is known to the server only"));
    let asked = prices.by_server(&mut *citus.control, &[vec![Some("1.0".to_owned())]]).unwrap();
    assert_eq!(asked, [Some(0)]);
    assert_eq!(citus.table("logs").routing(), &server("its distribution method is a"));
    let (message, hint) = citus.wrong("nothing");
    assert_eq!(message, "there is no table public.nothing");
    assert!(hint.contains("load"));
}

#[test]
fn every_copy_of_every_part_is_listed_with_its_node() {
    let mut citus = found("citus.three");
    let mut parts = |table: &str| {
        Parts::read(&citus.cluster, &mut *citus.control, 0, "public", table)
            .unwrap_or_else(|error| panic!("{table}: {error:?}"))
    };
    let users = parts("users").unwrap();
    let nodes: Vec<&[Result<usize, String>]> = users.parts.iter().map(|part| &part.nodes[..]).collect();
    assert_eq!(nodes, [&[Ok(1), Ok(2)][..], &[Ok(2)], &[Ok(1)], &[Ok(2)]]);
    assert_eq!(
        users.misplaced(&users.parts[1]).as_deref(),
        Some("(pg_catalog.worker_hash(\"id\") between -1073741824 and -1) is not true")
    );
    assert_eq!(users.home(-28_094_569).map(|part| part.name.as_str()), Some("users_102113"));
    let countries = parts("countries").unwrap();
    assert_eq!((countries.parts.len(), &countries.hash), (1, &None));
    assert_eq!(countries.parts[0].nodes, [Ok(0), Ok(1), Ok(2)]);
    assert_eq!(countries.misplaced(&countries.parts[0]), None);
    assert_eq!(parts("nothing"), None, "the engine does not spread it");
    // A cluster file that lacks a node.
    citus.cluster.nodes.truncate(2);
    let users = Parts::read(&citus.cluster, &mut *citus.control, 0, "public", "users").unwrap().unwrap();
    let unknown = users.parts[0].nodes[1].as_ref().unwrap_err();
    assert!(unknown.starts_with("w2"), "{unknown}");
}

#[test]
fn citus_on_one_server_holds_everything() {
    let mut citus = found("citus.alone");
    assert_eq!(citus.roles(), [("coordinator", Role::Shard)]);
    assert_eq!(citus.cluster.data_nodes().collect::<Vec<_>>(), [0]);
    assert_eq!(owners(&citus.table("usertable")), [0]);
}

#[test]
fn a_damaged_citus_is_told_as_what_it_is() {
    let mut citus = found("citus.damaged");
    for (table, message, hint) in [
        ("moving", "partition 11 of moving is in state 3", "moving to another node"),
        ("lost", "partition 20 of lost is without a placement", "moving to another node"),
        ("torn", "the partitions of torn have a gap or an overlap after -1", "moving to another node"),
        (
            "stray",
            "cannot read the placement of public.stray: partition 40 is on the node 7, which is unknown",
            "",
        ),
        ("odd", "cannot read the placement of public.odd: \"low\" is not a hash", ""),
    ] {
        let (told, said) = citus.wrong(table);
        assert_eq!(told, message);
        assert!(said.contains(hint), "{table}: {said}");
    }
    let (message, hint) = citus.wrong("secret");
    assert!(message.contains("cannot read the distribution key of public.secret"), "{message}");
    assert!(message.contains("permission denied for table pg_dist_partition"), "{message}");
    assert!(hint.contains("may not read this catalog of citus"), "{hint}");

    let other = citus.table("other");
    let error = citus.test(&other, &["user1", "tenant-1"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server routes 1 of 2 keys of other differently from pgfathom's computation; the key user1 belongs to other_61, not other_60"
    );
    assert!(error.hint().unwrap().contains("--via connect"));

    let error = discover("citus.down").unwrap_err();
    assert_eq!(error.to_string(), "node \"w1:5432\" is inactive in the catalog");
    let error = discover("citus.unreadable").unwrap_err();
    assert!(chain(&error).contains("cannot list the nodes of citus"), "{}", chain(&error));
    assert!(chain(&error).contains("permission denied for table pg_dist_node"), "{}", chain(&error));
    assert!(error.hint().unwrap().contains("grant it that"));
}

#[test]
fn shardman_is_found_and_routed_as_its_catalog_says() {
    let mut shardman = found("shardman.two");
    assert_eq!(shardman.roles(), [("rg1", Role::Shard), ("shardman_rg_2", Role::Shard)]);
    let placement = shardman.table("usertable");
    // Not what pnum modulo the number of groups would say.
    assert_eq!(owners(&placement), [0, 1, 0, 1, 0, 1, 0]);
    assert!(placement.routes_by_partition_hash());
    assert_eq!(placement.leaf_of_text(b"user1"), Some(2));
    shardman.test(&placement, &["user1"]).unwrap();
    assert!(shardman.table("settings").on_every_node());

    let mut one = found("shardman.one");
    assert!(!one.cluster.is_clustered());
    assert_eq!(one.table("t").routing(), &server("the hash of mood (mood) is known to the server only"));

    let error = discover("shardman.damaged").unwrap_err();
    assert_eq!(error.to_string(), "node \"rg2\" is without a foreign server in the catalog");
}

#[test]
fn greenplum_is_routed_by_the_hash_that_its_operator_classes_say() {
    let mut greenplum = found("greenplum.three");
    assert_eq!(greenplum.roles()[0], ("coordinator", Role::Coordinator));
    assert_eq!(greenplum.cluster.data_nodes().collect::<Vec<_>>(), [1, 2, 3]);
    let placement = greenplum.table("usertable");
    assert_eq!(owners(&placement), [1, 2, 3]);
    assert_eq!(placement.routing().to_string(), "jump hash onto 3 segments of (ycsb_key)");
    assert_eq!(placement.leaf_of_text(b"user1"), Some(1));
    // Keys without a row have no answer, and alone they prove nothing.
    greenplum.test(&placement, &["user1", "user1000000", "nobody"]).unwrap();
    let error = greenplum.test(&placement, &["nobody"]).unwrap_err();
    assert!(matches!(error, PlacementError::NothingToTest { .. }), "{error}");

    let pair = greenplum.table("pair");
    assert_eq!(pair.leaf_of(&[Some(Key::Int4(1)), Some(Key::Text(b"user1"))]), Some(1));
    let old = greenplum.table("old");
    assert_eq!(old.routing().to_string(), "FNV-1 onto 3 segments of (name)");
    assert_eq!(old.leaf_of_text(b"foobar"), Some((0x31f0_b262u32 % 3) as usize));
    assert_eq!(
        greenplum.table("mixed").routing(),
        &server("its key mixes two generations of hash functions")
    );
    assert_eq!(greenplum.table("heap").routing(), &server("rows are distributed randomly"));
    assert!(greenplum.table("copied").on_every_node());
}

#[test]
fn a_greenplum_between_two_sizes_is_told() {
    let mut greenplum = found("greenplum.expanding");
    let before = greenplum.table("before");
    assert_eq!((owners(&before), before.leaf_of_text(b"1").is_some()), (vec![1, 2], true));
    let (message, _) = greenplum.wrong("half");
    assert_eq!(message, "partition 1 of half is on a segment that is down");
    let (message, _) = greenplum.wrong("short");
    assert!(
        message.ends_with("its rows are distributed over 4 segments, and the catalog lists 2 of them"),
        "{message}"
    );
    let (message, hint) = greenplum.wrong("five");
    assert!(message.contains("column p.policytype does not exist"), "{message}");
    assert!(hint.contains("the catalog of greenplum of this release"), "{hint}");
    let error = discover("greenplum.down").unwrap_err();
    assert_eq!(error.to_string(), "node \"seg1\" is down in the catalog");
}

#[test]
fn nodes_that_hold_every_row_are_found_by_their_connection_strings() {
    let mtm = found("mtm.three");
    assert_eq!(mtm.roles(), [("node1", Role::Peer), ("node2", Role::Peer), ("node3", Role::Peer)]);
    assert!(mtm.cluster.is_clustered());
    // Our own role, not the one that the nodes use among themselves.
    assert!(mtm.cluster.nodes.iter().all(|node| node.spec.user == "tester" && node.spec.password.is_none()));
    assert_eq!(found("mtm.two").roles(), [("node1", Role::Peer), ("node2", Role::Peer)]);
    let pglogical = found("multimaster.pglogical");
    assert_eq!(pglogical.roles(), [("n1", Role::Peer), ("n2", Role::Peer)]);

    let error = discover("mtm.damaged").unwrap_err();
    assert_eq!(error.to_string(), "node \"node2\" is disabled in the catalog");
    let error = discover("multimaster.conninfo").unwrap_err();
    assert!(chain(&error).contains("permission denied for table pg_subscription"), "{}", chain(&error));
    assert!(error.hint().unwrap().contains("superuser"));
}

#[test]
fn cockroach_is_routed_by_encoded_keys() {
    let mut cockroach = found("cockroach.three");
    assert_eq!(cockroach.cluster.data_nodes().count(), 3);
    let placement = cockroach.table("usertable");
    assert_eq!(owners(&placement), [0, 1, 2, 0]);
    assert_eq!(placement.routing().to_string(), "ranges of (ycsb_key)");
    cockroach.test(&placement, &["user1", "user5", "user9"]).unwrap();
    assert_eq!(placement.leaf_of_text(b"user4"), Some(1));

    let mut one = found("cockroach.one");
    let tenant = one.table("usertable");
    assert_eq!(tenant.leaf_of_text(b"user1"), None, "its keys begin with a tenant's number");
    assert!(matches!(one.test(&tenant, &["user1"]), Err(PlacementError::NothingToTest { .. })));
    let asked = tenant.by_server(&mut *one.control, &[vec![Some("user1".to_owned())]]).unwrap();
    assert_eq!(asked, [Some(0)]);
    assert_eq!(one.table("down").routing(), &server("a key column is descending"));
    assert_eq!(one.table("price").routing(), &server("the hash of numeric (k) is known to the server only"));
    assert_eq!(one.table("word").routing(), &server("the collation of k decides its hash"));

    let mut damaged = found("cockroach.damaged");
    let (message, _) = damaged.wrong("asleep");
    assert_eq!(message, "partition 64 of asleep is without a leaseholder");
    assert!(damaged.wrong("split").0.contains("a gap or an overlap after [f0, 89, 12, 75]"));
    let (message, hint) = damaged.wrong("secret");
    assert!(message.contains("ZONECONFIG") && hint.contains("may not read"), "{message} {hint}");
    let error = discover("cockroach.dead").unwrap_err();
    assert_eq!(error.to_string(), "node \"n2\" is not live in the catalog");
}

#[test]
fn yugabyte_is_routed_by_its_codes() {
    let mut yugabyte = found("yugabyte.three");
    assert_eq!(yugabyte.cluster.data_nodes().count(), 3);
    let placement = yugabyte.table("usertable");
    assert_eq!(owners(&placement), [1, 2, 0]);
    assert_eq!(placement.leaf_of_text(b"user1"), Some(0));
    yugabyte.test(&placement, &["user1"]).unwrap();
    let pair = yugabyte.table("pair");
    let blob: Vec<u8> = (0..20)
        .map(|at| {
            u8::from_str_radix(&"a94a8fe5ccb19ba61c4c0873d391e987982fbbd3"[at * 2..at * 2 + 2], 16).unwrap()
        })
        .collect();
    assert_eq!(pair.leaf_of(&[Some(Key::Int4(7)), Some(Key::Bytea(&blob))]), Some(0));
    assert_eq!(pair.leaf_of(&[Some(Key::Int4(0)), Some(Key::Bytea(&[0]))]), Some(1));

    // The catalog does not say which node was asked: its address does.
    let mut ranges = found("yugabyte.ranges");
    assert_eq!(ranges.cluster.nodes.len(), 1);
    assert_eq!(ranges.table("ordered").routing(), &server("it is sharded by range, or colocated"));
    assert_eq!(ranges.table("word").routing(), &server("the collation of k decides its hash"));

    let mut damaged = found("yugabyte.damaged");
    let (message, hint) = damaged.wrong("early");
    assert!(message.contains("\"yb_tablet_metadata\" does not exist"), "{message}");
    assert!(hint.contains("load through one node"), "{hint}");
    assert_eq!(damaged.wrong("election").0, "partition t1 of election is without a leader");
    assert!(damaged.wrong("splitting").0.contains("a gap or an overlap"));
    assert!(damaged.wrong("gone").0.contains("partition t1 is on the node 10.9.9.9:5433, which is unknown"));
}

#[test]
fn a_time_limit_of_the_role_is_named_with_what_switches_it_off() {
    let error = discover("postgres.limited").unwrap_err();
    assert!(chain(&error).contains("canceling statement due to statement timeout"), "{}", chain(&error));
    assert!(error.hint().unwrap().contains("PGOPTIONS='-c statement_timeout=0'"), "{:?}", error.hint());
}

#[test]
fn ydb_says_what_cannot_be_done() {
    let error = discover("ydb.front").unwrap_err();
    assert!(chain(&error).contains("cannot find out what kind of server this is"), "{}", chain(&error));
    assert!(error.hint().unwrap().contains("name the nodes in a cluster file"), "{:?}", error.hint());
    let recorded = Recorded::start("ydb.front");
    let mut cluster = Cluster::single(recorded.spec("entry"));
    cluster.engine = Engine::parse("ydb").unwrap();
    let mut control = control::connect(&cluster.nodes[0].spec).unwrap();
    let error = Placement::read(&cluster, &mut *control, 0, "public", "usertable").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the placement of a table of ydb cannot be read: partitions and their nodes are available over gRPC only (DescribeTable, ListEndpoints)"
    );
}

/// A profile says that it was tried on recorded catalogs exactly when there are recordings of it, two topologies and a damaged one.
#[test]
fn profiles_claim_only_what_is_recorded() {
    let files: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/catalogs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt"))
        .collect();
    for engine in Engine::ALL {
        let recordings = files.iter().filter(|name| name.starts_with(&format!("{engine}."))).count();
        match engine.tried {
            Tried::RecordedCatalogs => assert!(recordings >= 3, "{engine} has {recordings} recordings"),
            Tried::Live(_) => {}
            Tried::Documentation => assert!(recordings <= 1, "{engine} has {recordings} recordings"),
        }
    }
}
