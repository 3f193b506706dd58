//! The questions of the profiles, asked to a real PostgreSQL that was given the documented catalog of another engine: SQL that does not parse, a column
//! that is not there and a type that does not fit show here and not on a customer's server. It proves nothing about the engines themselves.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::path::Path;

use connect::cluster_file::Role;
use connect::control;
use engines::cluster::{Cluster, ClusterError, ClusterNode};
use engines::engine::Engine;
use engines::placement::{Placement, PlacementError};
use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
use testing::on_each;

fn engine(name: &str) -> Engine {
    Engine::parse(name).unwrap()
}

/// Makes what a stand-in has put into the schemas of extensions members of its extension, as CREATE EXTENSION does.
const MEMBERS: &str = "
    insert into pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
    select o.catalog, o.oid, 0, 'pg_extension'::regclass, e.oid, 0, 'e'
    from pg_extension e,
         (select 'pg_class'::regclass as catalog, oid, relnamespace as schema from pg_class
          union all select 'pg_proc'::regclass, oid, pronamespace from pg_proc) o
    where e.oid = 90001 and o.oid >= 16384
      and o.schema in (select oid from pg_namespace where nspname in ('pg_catalog', 'shardman', 'mtm', 'pglogical', 'spock', 'pgactive'))";

/// Makes a database with the catalog of `tests/catalogs/NAME.sql` and discovers it.
fn stand_in(server: &Throwaway, name: &str) -> Cluster {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalogs").join(format!("{name}.sql"));
    let sql = std::fs::read_to_string(&path)
        .unwrap()
        .replace("{host}", &server.socket_dir().display().to_string())
        .replace("{port}", &server.port().to_string())
        .replace("{dbname}", name);
    server.execute(&format!("create database {name}")).unwrap();
    server.execute_in(name, &sql).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    server.execute_in(name, MEMBERS).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    Cluster::discover(&server.spec().with_dbname(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

fn read(cluster: &Cluster, table: &str) -> Result<Placement, PlacementError> {
    let mut control = control::connect(&cluster.nodes[0].spec).unwrap();
    Placement::read(cluster, &mut *control, 0, "public", table)
}

fn test(cluster: &Cluster, placement: &Placement, keys: &[&str]) {
    let mut control = control::connect(&cluster.nodes[0].spec).unwrap();
    placement.self_test(&mut *control, keys).unwrap_or_else(|error| panic!("{}: {error:?}", cluster.engine));
}

/// Compiled, the question who owns tables takes seconds each time; the setting that prevents it ends with its message.
#[test]
fn the_question_who_owns_tables_is_not_compiled() {
    on_each(&installations(), |installation| {
        let always = [("jit", "on"), ("jit_above_cost", "0"), ("allow_system_table_mods", "on")];
        let server = Throwaway::start(installation, &always).unwrap();
        let mut control = control::connect(&server.spec()).unwrap();
        let query = engines::trust::problems_of(&[1259]);
        let explained = query.replace("; with recursive", "; explain (analyze) with recursive");
        assert_ne!(query, explained);
        let compiled = |query: &str, control: &mut control::Control| {
            let rows = control.simple_query(query).unwrap();
            rows.iter().any(|message| match message {
                postgres::SimpleQueryMessage::Row(row) => row.get(0).is_some_and(|line| line.contains("JIT")),
                _ => false,
            })
        };
        assert!(!compiled(&explained, &mut control));
        let after = control.simple_query("show jit").unwrap();
        let is_on = after.iter().any(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some("on"),
            _ => false,
        });
        assert!(is_on, "the session keeps its own setting");
        // The same without the setting, where the server can compile.
        let (_, bare) = explained.split_once("; ").unwrap();
        let available = server.value("select pg_jit_available()").unwrap();
        assert_eq!(compiled(bare, &mut control), available.as_deref() == Some("t"), "the test can fail");
    });
}

#[test]
fn the_questions_of_the_profiles_are_sql_and_their_answers_are_understood() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[("allow_system_table_mods", "on")]).unwrap();
        let keys: Vec<String> = (0..300).map(|number| format!("user{number}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();

        let citus = stand_in(&server, "citus");
        assert_eq!(
            (citus.engine, citus.nodes[0].role, citus.nodes[1].role),
            (engine("citus"), Role::Coordinator, Role::Shard)
        );
        let closed: Vec<bool> = citus.nodes.iter().map(|node| node.is_closed).collect();
        assert_eq!(closed, [false, false, true]);
        assert_eq!(citus.nodes[2].role, Role::Worker);
        let placement = read(&citus, "usertable").unwrap();
        assert_eq!((placement.leaves().len(), placement.leaves()[0].node), (8, 1));
        test(&citus, &placement, &keys);
        assert!(read(&citus, "countries").unwrap().on_every_node());
        assert!(matches!(read(&citus, "nothing"), Err(PlacementError::NoTable { .. })));

        let shardman = stand_in(&server, "shardman");
        assert_eq!((shardman.engine, shardman.nodes.len()), (engine("shardman"), 2));
        let placement = read(&shardman, "usertable").unwrap();
        let owners: Vec<usize> = placement.leaves().iter().map(|leaf| leaf.node).collect();
        assert_eq!(owners, [0, 1, 0, 1, 0, 1, 0]);
        test(&shardman, &placement, &keys);
        assert!(read(&shardman, "countries").unwrap().on_every_node());
        assert!(matches!(read(&shardman, "nothing"), Err(PlacementError::NoTable { .. })));

        let greenplum = stand_in(&server, "greenplum");
        assert_eq!((greenplum.engine, greenplum.nodes.len()), (engine("greenplum"), 4));
        let placement = read(&greenplum, "usertable").unwrap();
        assert_eq!(placement.routing().to_string(), "jump hash onto 3 segments of (ycsb_key)");
        test(&greenplum, &placement, &["user1", "user1000000", "nobody"]);
        assert!(read(&greenplum, "countries").unwrap().on_every_node());
        assert!(matches!(read(&greenplum, "nothing"), Err(PlacementError::NoTable { .. })));

        let yugabyte = stand_in(&server, "yugabyte");
        assert_eq!((yugabyte.engine, yugabyte.nodes.len()), (engine("yugabyte"), 1));
        let placement = read(&yugabyte, "usertable").unwrap();
        assert_eq!(placement.leaves().len(), 4);
        test(&yugabyte, &placement, &["user1"]);
        assert!(read(&yugabyte, "ordered").unwrap().routing().to_string().contains("by range"));
        assert!(matches!(read(&yugabyte, "nothing"), Err(PlacementError::NoTable { .. })));

        for name in ["mtm", "pglogical", "spock", "pgactive"] {
            let cluster = stand_in(&server, name);
            let expected = if name == "mtm" { "mtm" } else { "multimaster" };
            assert_eq!((cluster.engine.name(), cluster.nodes.len()), (expected, 2), "{name}");
            assert!(cluster.nodes.iter().all(|node| node.role == Role::Peer), "{name}");
            assert!(read(&cluster, "usertable").unwrap().on_every_node(), "{name}");
            // The group's own catalog has the nodes that a cluster file leaves out.
            let spec = server.spec().with_dbname(name);
            let mut control = control::connect(&spec).unwrap();
            assert_eq!(cluster.larger_group(&mut control).unwrap(), None, "{name}");
            let part = Cluster::single(spec);
            assert_eq!(part.larger_group(&mut control).unwrap(), Some((name, 2)));
        }
        // None of them leaks into a database that has nothing of it.
        assert_eq!(Cluster::discover(&server.spec()).unwrap().engine, Engine::default());
        // Somebody without any privilege finds a plain server as well.
        server.execute("create role nobody login").unwrap();
        assert_eq!(Cluster::discover(&server.spec().with_user("nobody")).unwrap().engine, Engine::default());
    });
}

#[test]
fn replication_both_ways_is_found_from_every_node() {
    on_each(&installations(), |installation| {
        if installation.version.major < 16 {
            // Replication without loops begins with 16.
            let error = ThrowawayCluster::multimaster(installation, 3).unwrap_err();
            assert!(error.to_string().contains("16"), "{error}");
            return;
        }
        let nodes = ThrowawayCluster::multimaster(installation, 3).unwrap();
        for (entry, node) in nodes.file().node.iter().enumerate() {
            let cluster = Cluster::discover(&nodes.node(entry).spec()).unwrap();
            assert_eq!((cluster.engine, cluster.nodes.len()), (engine("multimaster"), 3));
            assert_eq!(cluster.nodes[0].name, node.name);
            assert!(cluster.is_clustered());
        }
        // A file that takes them for servers of their own.
        let mut file = Cluster::from_file(nodes.file(), &connect::conninfo::Sources::of_process()).unwrap();
        file.engine = Engine::default();
        let refused = file.check_nodes().unwrap_err();
        assert!(matches!(refused, ClusterError::AnotherEngine { word: "multimaster", .. }), "{refused}");
        // One of them beside a server that it does not follow, as behind another address.
        file.nodes.truncate(1);
        file.check_nodes().unwrap();
        nodes
            .node(0)
            .execute("create table usertable (ycsb_key varchar(64) primary key); create role nobody login")
            .unwrap();
        let cluster = Cluster::discover(&nodes.node(0).spec()).unwrap();
        assert!(read(&cluster, "usertable").unwrap().on_every_node());
        let error = Cluster::discover(&nodes.node(0).spec().with_user("nobody")).unwrap_err();
        assert_eq!(error.to_string(), "cannot list the nodes of multimaster");
        assert!(error.hint().unwrap().contains("superuser"), "{:?}", error.hint());
    });
}

/// Servers that a cluster file puts together although each has the catalog of a cluster of its own, or none.
#[test]
fn nodes_of_a_file_that_are_no_cluster_of_its_engine_are_refused() {
    let installation = installations().into_iter().next().unwrap();
    let start = || Throwaway::start(&installation, &[("allow_system_table_mods", "on")]).unwrap();
    let (one, other) = (start(), start());
    let file = |name: &str, specs: &[&connect::ConnSpec]| {
        let node = |(at, spec): (usize, &&connect::ConnSpec)| {
            ClusterNode::new(format!("n{}", at + 1), Role::Peer, (**spec).clone())
        };
        let nodes = specs.iter().enumerate().map(node).collect();
        Cluster { engine: engine(name), nodes, partitions: None, left_out: vec![] }
    };
    let plain = one.spec();
    for name in ["citus", "mtm", "shardman", "greenplum", "cockroach", "yugabyte"] {
        let refused = file(name, &[&plain, &other.spec()]).check_nodes().expect_err(name);
        assert!(matches!(refused, ClusterError::NotTheEngine { .. }), "{name}: {refused:?}");
        file(name, &[&plain, &other.spec()]).check_nodes_of_any_engine().expect(name);
    }
    for name in ["postgres", "ydb"] {
        file(name, &[&plain, &other.spec()]).check_nodes().expect(name);
    }
    for (name, words) in
        [("postgres", "n1, n2 are servers that do not"), ("multimaster", "arrives at n1, n2")]
    {
        let (_, odd) = file(name, &[&plain, &other.spec()]).checked().expect(name);
        assert!(odd.len() == 1 && odd[0].contains(words), "{odd:?}");
    }
    // Rows may arrive by a subscription, which is none between nodes of the file as far as it shows.
    for sql in [
        "create subscription theirs connection 'host=/nowhere' publication p with (connect = false)",
        "alter subscription theirs enable",
    ] {
        one.execute(sql).unwrap();
    }
    let (_, odd) = file("postgres", &[&plain, &other.spec()]).checked().expect("two servers");
    assert!(odd.len() == 1 && odd[0].contains("n1 has a subscription"), "{odd:?}");
    for sql in ["disable", "set (slot_name = none)"] {
        one.execute(&format!("alter subscription theirs {sql}")).unwrap();
    }
    one.execute("drop subscription theirs").unwrap();
    for (name, of) in [("citus", "citus"), ("mtm", "mtm"), ("pgactive", "multimaster")] {
        for server in [&one, &other] {
            stand_in(server, name);
        }
        let here = one.spec().with_dbname(name);
        file(of, &[&here, &here]).check_nodes().expect(name);
        let there = other.spec().with_dbname(name);
        if name == "pgactive" {
            assert!(file(of, &[&here, &there]).checked().expect("a group").1.is_empty());
            // Groups are distinguished by the identities of their nodes.
            let renamed = "update pgactive.pgactive_nodes set node_sysid = 'x' || node_sysid";
            other.execute_in(name, renamed).unwrap();
        }
        let refused = file(of, &[&here, &there]).check_nodes().expect_err(name);
        assert!(matches!(refused, ClusterError::OtherCluster { .. }), "{name}: {refused:?}");
        assert!(refused.hint().is_some());
        if name != "pgactive" {
            let refused = file(of, &[&here, &plain]).check_nodes().expect_err(name);
            assert!(
                matches!(&refused, ClusterError::NotTheEngine { node, .. } if node == "n2"),
                "{refused:?}"
            );
        }
    }
    // Roles that the file exchanges, or that no node has.
    let (coordinator, worker) = (one.spec().with_dbname("citus"), other.spec().with_dbname("citus"));
    let nodes = format!(
        "update pg_dist_local_group set groupid = 1; update pg_dist_node set nodename = '{}' || repeat('/', groupid), nodeport = {} \
         where nodename <> 'nowhere'",
        coordinator.hosts[0].host, coordinator.hosts[0].port
    );
    other.execute_in("citus", &nodes).unwrap();
    let mut exchanged = file("citus", &[&worker, &coordinator]);
    exchanged.nodes[0] = ClusterNode::new("n1", Role::Coordinator, worker.clone());
    exchanged.nodes[1].role = Role::Worker;
    let (found, _) = exchanged.clone().checked().expect("n2 is it");
    let roles: Vec<_> = found.nodes.iter().map(|node| (node.role, node.is_coordinator)).collect();
    assert_eq!(roles, [(Role::Shard, false), (Role::Coordinator, true)]);
    let found = exchanged.with_found_coordinator().with_coordinator_first();
    assert_eq!((found.nodes[0].name.as_str(), found.nodes[0].is_coordinator), ("n2", true));
    // A file may have fewer nodes than there are, and one that does not answer is named.
    assert_eq!(file("citus", &[&coordinator]).on_one_node(), None);
    let nowhere = coordinator.clone().with_dbname("nowhere");
    let (_, odd) = file("citus", &[&worker, &coordinator, &nowhere]).checked().expect("two of three");
    assert!(odd.len() == 1 && odd[0].contains("do not answer: n3 ("), "{odd:?}");
    let refused = file("citus", &[&worker]).checked().expect_err("a worker alone");
    assert!(
        refused.to_string().contains("is the coordinator of Citus, which their catalogs have at"),
        "{refused}"
    );
    assert!(refused.hint().unwrap().contains("role = \"coordinator\""));
    // An engine without signs of its own is no database of Citus.
    let citus = one.spec().with_dbname("citus");
    let refused = file("ydb", &[&citus]).check_nodes().expect_err("it is one of Citus");
    assert!(matches!(refused, ClusterError::AnotherEngine { word: "citus", .. }), "{refused:?}");
    for (name, word) in
        [("citus", "citus"), ("mtm", "mtm"), ("pgactive", "multimaster"), ("shardman", "shardman")]
    {
        if name == "shardman" {
            stand_in(&one, name);
        }
        let here = one.spec().with_dbname(name);
        for nodes in [&[&here][..], &[&plain, &here]] {
            let refused = file("postgres", nodes).checked().expect_err(name);
            assert!(
                matches!(&refused, ClusterError::AnotherEngine { word: found, .. } if *found == word),
                "{name}: {refused:?}"
            );
            assert!(refused.hint().unwrap().contains(&format!("write engine = \"{word}\"")));
        }
    }
    // An extension without other nodes leaves the tables where they are created.
    one.execute_in("citus", "delete from pg_dist_node").unwrap();
    one.execute_in("pgactive", "delete from pgactive.pgactive_nodes where node_name <> 'a'").unwrap();
    let alone = file("citus", &[&one.spec().with_dbname("citus")]).on_one_node();
    assert_eq!(alone.as_deref(), Some("Citus has one node: all rows are placed there"));
    for name in ["citus", "pgactive"] {
        file("postgres", &[&one.spec().with_dbname(name)]).check_nodes().expect(name);
    }
    stand_in(&one, "yugabyte");
    let yugabyte = one.spec().with_dbname("yugabyte");
    let refused = file("postgres", &[&yugabyte]).check_nodes().expect_err("it stores rows otherwise");
    assert!(matches!(refused, ClusterError::AnotherEngine { word: "yugabyte", .. }), "{refused:?}");
    // A primary, and a standby that is none of its own.
    let mut unrelated = file("postgres", &[&plain, &other.spec()]);
    unrelated.nodes[0].role = Role::Primary;
    unrelated.nodes[1].role = Role::Standby;
    let refused = unrelated.check_nodes().expect_err("two servers");
    assert!(matches!(&refused, ClusterError::NotItsStandby { node, .. } if node == "n2"), "{refused:?}");
}
