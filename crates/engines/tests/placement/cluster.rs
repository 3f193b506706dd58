//! Placement on clusters: a moved partition, nodes out of reach, a server alone.

use super::*;

/// The tables of a sharded dataset as the loader makes them: on each node, leaves are local on their owner and foreign on the others.
fn make_usertable(nodes: &ThrowawayCluster, partitions: usize, owner: impl Fn(usize) -> usize) {
    for (me, node) in nodes.nodes().iter().enumerate() {
        let mut sql =
            "create table usertable (ycsb_key varchar(64) not null) partition by hash (ycsb_key);".to_owned();
        for leaf in 0..partitions {
            let bound =
                format!("partition of usertable for values with (modulus {partitions}, remainder {leaf})");
            let owner = owner(leaf);
            sql.push_str(&if owner == me {
                format!("create table usertable_p{leaf} {bound};")
            } else {
                let server = &nodes.file().node[owner].name;
                format!("create foreign table usertable_p{leaf} {bound} server {server} options (schema_name 'public', table_name 'usertable_p{leaf}');")
            });
        }
        node.execute(&sql).unwrap();
    }
}

fn cluster_of(nodes: &ThrowawayCluster) -> Cluster {
    Cluster::from_file(nodes.file(), &Sources::of_process()).unwrap()
}

fn usertable(cluster: &Cluster, entry: usize) -> Result<Placement, PlacementError> {
    let mut control = control::connect(&cluster.nodes[entry].spec).unwrap();
    Placement::read(cluster, &mut *control, entry, "public", "usertable")
}

#[test]
fn a_sharded_cluster_is_found_from_any_node_and_a_moved_partition_is_noticed() {
    on_each(&installations(), |installation| {
        const PARTITIONS: usize = 7;
        let nodes = ThrowawayCluster::sharded(installation, 3, PARTITIONS as u32).unwrap();
        let cluster = cluster_of(&nodes);
        assert_eq!((cluster.engine.name(), cluster.partitions), ("fdw-sharded", Some(7)));
        // Before any table is there, and from every node.
        for entry in 0..3 {
            let found = Cluster::discover(&nodes.node(entry).spec()).unwrap();
            assert_eq!(found.engine.name(), "fdw-sharded");
            let mut names: Vec<&str> = found.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(
                names[0],
                nodes.file().node[entry].name,
                "the entry comes first, by the name that the others use"
            );
            names.sort_unstable();
            assert_eq!(names, ["n1", "n2", "n3"]);
            assert!(found.nodes.iter().all(|node| node.role == Role::Shard));
            assert!(found.is_clustered());
        }
        make_usertable(&nodes, PARTITIONS, |leaf| leaf % 3);
        let before = usertable(&cluster, 0).unwrap();
        let owners: Vec<usize> = before.leaves().iter().map(|leaf| leaf.node).collect();
        assert_eq!(owners, [0, 1, 2, 0, 1, 2, 0]);
        assert!(before.routes_by_partition_hash());
        let keys: Vec<String> = (0..200).map(|number| format!("user{number}")).collect();
        for entry in 0..3 {
            let placement = usertable(&cluster, entry).unwrap();
            assert_eq!(placement.fingerprint(), before.fingerprint(), "all nodes see one placement");
            let mut control = control::connect(&cluster.nodes[entry].spec).unwrap();
            placement.self_test(&mut *control, &keys).unwrap();
        }
        // engines.md 2.1: the route of user1 modulo 70 is 9, modulo 6 is 5; modulo 7 of the same hash it is this.
        assert_eq!(before.leaf_of_text(b"user1"), Some((0x7cf7_68fa_e609_bc2fu64 % 7) as usize));
        for (number, key) in keys.iter().enumerate() {
            let hash = engines::hash::text_extended(key.as_bytes(), engines::hash::PARTITION_SEED);
            assert_eq!(Some(before.leaf_of_hash(hash)), before.leaf_of_text(key.as_bytes()), "{number}");
        }

        // Partition 3 moves from n1 to n2.
        let bound = "for values with (modulus 7, remainder 3)";
        for (node, old, new) in [
            (
                0,
                "table",
                "foreign table usertable_p3 partition of usertable BOUND server n2 options (schema_name 'public', table_name 'usertable_p3')",
            ),
            (1, "foreign table", "table usertable_p3 partition of usertable BOUND"),
            (
                2,
                "foreign table",
                "foreign table usertable_p3 partition of usertable BOUND server n2 options (schema_name 'public', table_name 'usertable_p3')",
            ),
        ] {
            let sql = format!("drop {old} usertable_p3; create {}", new.replace("BOUND", bound));
            nodes.node(node).execute(&sql).unwrap();
        }
        let after = usertable(&cluster, 0).unwrap();
        assert_eq!((after.leaves()[3].node, before.leaves()[3].node), (1, 0));
        assert_ne!(after.fingerprint(), before.fingerprint());

        // The catalog names a node that the cluster file does not have.
        let mut small = cluster.clone();
        small.nodes.truncate(2);
        let error = usertable(&small, 0).unwrap_err();
        assert!(
            error.to_string().starts_with("usertable has partitions on the server \"n3\" at "),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("name = \"n3\""));
    });
}

#[test]
fn nodes_out_of_reach_and_nodes_named_twice_are_told() {
    on_each(&installations(), |installation| {
        let mut nodes = ThrowawayCluster::sharded(installation, 2, 2).unwrap();
        nodes
            .node(0)
            .execute(
                "create server twin foreign data wrapper postgres_fdw options (host '/nowhere', port '1');
             comment on server twin is 'pgfathom node'",
            )
            .unwrap();
        let entry = nodes.node(0).spec();
        let error = Cluster::discover(&entry).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(
                "names the node \"twin\" at socket /nowhere/.s.PGSQL.1, which this host cannot reach"
            ),
            "{text}"
        );
        assert!(error.hint().unwrap().contains("--cluster"));
        // The same database under two names.
        let second = nodes.node(1);
        nodes
            .node(0)
            .execute(&format!(
                "alter server twin options (set host '{}', set port '{}')",
                second.socket_dir().display(),
                second.port(),
            ))
            .unwrap();
        let error = Cluster::discover(&entry).unwrap_err();
        assert_eq!(error.to_string(), "the nodes \"n2\" and \"twin\" are the same database");
        nodes.node(0).execute("alter server twin options (set port 'x')").unwrap();
        assert_eq!(
            Cluster::discover(&entry).unwrap_err().to_string(),
            "cannot read the address of a foreign server: \"x\" is not a port",
        );
        nodes.node(0).execute("drop server twin").unwrap();
        nodes.node_mut(1).stop(StopMode::Immediate).unwrap();
        let error = Cluster::discover(&entry).unwrap_err();
        assert!(error.to_string().contains("names the node \"n2\""), "{error}");
    });
}

/// A server of `postgres_fdw` that holds none of our partitions is nobody's node.
#[test]
fn a_server_alone_is_a_cluster_of_one() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.run(
            "create extension postgres_fdw; create server elsewhere foreign data wrapper postgres_fdw options (host '/nowhere');
             create foreign table t (k int) server elsewhere",
        );
        let cluster = Cluster::discover(&alone.server.spec()).unwrap();
        assert_eq!((cluster.engine, cluster.nodes.len()), (Engine::default(), 1));
        assert!(!cluster.is_clustered());
        let error = alone.read("t").unwrap_err();
        assert!(error.to_string().contains("the server \"elsewhere\" at /nowhere:5432"), "{error}");
    });
}
