use super::*;

const FILE: &str = "
format = 1
engine = 'fdw-sharded'
[[node]]
name = 'n1'
role = 'shard'
connection = 'host=/tmp/a port=5432 dbname=x user=u'
[[node]]
name = 'n2'
role = 'shard'
connection = 'host=/tmp/b port=5432 dbname=x user=u'
[[node]]
name = 'n3'
role = 'shard'
connection = 'host=127.0.0.1 port=5434 dbname=x user=u'
[[node]]
name = 'far'
role = 'shard'
connection = 'host=db4.example port=5432 dbname=x user=u'
";

fn sources() -> Sources<'static> {
    Sources {
        env: &|_| None,
        os_user: Some("u".to_owned()),
        home: None,
        socket_dirs: Vec::new(),
        sysconfdir: None,
    }
}

fn read(text: &str) -> Result<Cluster, ClusterError> {
    Cluster::from_file(&toml::from_str(text).expect("a cluster file"), &sources())
}

#[test]
fn a_file_becomes_a_cluster() {
    let cluster = read(FILE).expect("it is right");
    assert_eq!(cluster.engine.name(), "fdw-sharded");
    assert_eq!((cluster.node("n3"), cluster.node("n4")), (Some(2), None));
    assert_eq!(cluster.data_nodes().count(), 4);
    assert!(cluster.is_clustered());
    assert_eq!(cluster.nodes[3].spec.hosts[0].to_string(), "db4.example:5432");
}

#[test]
fn two_nodes_at_one_address_are_refused() {
    let twice = FILE.replace("host=/tmp/b", "host=/tmp/a");
    let error = read(&twice).expect_err("one server would count twice");
    assert_eq!(error.to_string(), "the nodes \"n1\" and \"n2\" are the same database");
    assert!(error.hint().is_some_and(|hint| hint.contains("name each node once")), "{:?}", error.hint());
    // Two databases of one server are two nodes.
    assert!(read(&twice.replacen("dbname=x", "dbname=other", 1)).is_ok());
}

#[test]
fn wrong_files_are_refused_with_what_to_type() {
    for (from, to, words, hint) in [
        ("fdw-sharded", "mysql", "unknown engine \"mysql\"", "postgres, fdw-sharded"),
        ("'shard'", "'boss'", "node \"n1\": unknown role \"boss\"", "primary, standby"),
        ("'n2'", "'n1'", "two nodes have the name \"n1\"", "name of its own"),
        ("host=/tmp/b", "hosst=/tmp/b", "node \"n2\": its connection is not valid", "did you mean host"),
    ] {
        let error = read(&FILE.replacen(from, to, 1)).expect_err(words);
        assert_eq!(error.to_string(), words);
        assert!(error.hint().is_some_and(|text| text.contains(hint)), "{:?}", error.hint());
    }
}

#[test]
fn standbys_and_coordinators_beside_workers_take_no_rows() {
    let text = FILE.replacen("'shard'", "'primary'", 1).replace("'shard'", "'standby'");
    let cluster = read(&text).expect("it is right");
    assert_eq!(cluster.data_nodes().collect::<Vec<_>>(), [0]);
    assert!(!cluster.is_clustered());
    let text = FILE.replacen("'shard'", "'coordinator'", 1).replace("'shard'", "'worker'");
    assert_eq!(read(&text).expect("it is right").data_nodes().collect::<Vec<_>>(), [1, 2, 3]);
    let alone = Cluster::single(ConnSpec::new("h", 1, "u", "d"));
    assert_eq!((alone.data_nodes().count(), alone.is_clustered()), (1, false));
}

/// Addresses in a catalog are those of the node that has the catalog.
#[test]
fn an_engine_that_spreads_rows_has_one_ledger_and_one_way_in() {
    let made = |engine: &str, first: &str| {
        read(&FILE.replacen("fdw-sharded", engine, 1).replacen("'shard'", &format!("'{first}'"), 1)).unwrap()
    };
    let citus = made("citus", "coordinator");
    assert_eq!((citus.table_node(), citus.ledger_nodes(), citus.entry_node()), (Some(0), vec![0], 0));
    let one = citus.as_one_database().expect("rows are read through the coordinator");
    assert_eq!((one.engine.name(), one.nodes.len()), ("postgres", 1));
    assert_eq!(one.nodes[0].spec, citus.nodes[0].spec);
    // Without a coordinator the first node is as good as any.
    assert_eq!(made("cockroach", "shard").ledger_nodes(), [0]);
    // Every node of a Multimaster can be read, and one has the ledger that the others receive.
    let mtm = made("mtm", "peer");
    assert_eq!((mtm.ledger_nodes(), mtm.as_one_database()), (vec![0], None));
    let sharded = read(FILE).unwrap();
    assert_eq!((sharded.ledger_nodes().len(), sharded.entry_node(), sharded.as_one_database()), (4, 0, None));
}

#[test]
fn nodes_are_found_by_the_addresses_that_other_nodes_use() {
    let cluster = read(FILE).expect("it is right");
    let at = |from: usize, host: Option<&str>, port: u16| cluster.node_at(from, host, port, "x");
    // Two servers with one port number on different sockets: the folder distinguishes them.
    assert_eq!(at(0, Some("/tmp/b"), 5432), Some(1));
    assert_eq!(at(1, Some("/tmp/a"), 5432), Some(0));
    assert_eq!(at(0, Some("/tmp/c"), 5432), None);
    // Only one server has this port here, whatever addresses its peers use.
    for host in [Some("127.0.0.1"), Some("localhost"), Some("::1"), Some("/tmp/z"), None] {
        assert_eq!(at(0, host, 5434), Some(2), "{host:?}");
    }
    // The remote node's loopback is the remote host.
    assert_eq!(at(3, Some("127.0.0.1"), 5432), Some(3));
    assert_eq!(at(3, Some("127.0.0.1"), 5434), None);
    assert_eq!(at(0, Some("db4.example"), 5432), Some(3));
    assert_eq!(at(0, Some("db4.example"), 5433), None);
    assert_eq!(cluster.node_at(0, Some("db4.example"), 5432, "other"), None);
}

/// A pooler may call the database of each node by another name than the node itself.
#[test]
fn other_addresses_of_a_node_have_their_own_database() {
    let pooled = |node: u16, name: &str| {
        FILE.replace("host=/tmp/b port=5432 dbname=x user=u'", &format!(
            "host=pool.example port=6432 dbname={name} user=u'\nalso = ['host=db{node}.example port=5432 dbname=x user=u']"
        ))
    };
    let cluster = read(&pooled(9, "n2")).expect("it is right");
    let at = |host: &str, port: u16, dbname: &str| cluster.node_at(0, Some(host), port, dbname);
    assert_eq!(at("db9.example", 5432, "x"), Some(1));
    assert_eq!(at("pool.example", 6432, "n2"), Some(1));
    assert_eq!((at("db9.example", 5432, "y"), at("db4.example", 5432, "x")), (None, Some(3)));
}

#[test]
fn names_of_engines_and_roles_are_read_back() {
    for engine in Engine::ALL {
        assert_eq!(Engine::parse(engine.name()), Some(engine));
    }
    for role in Role::ALL {
        assert_eq!(Role::parse(role.name()), Some(role));
    }
    assert_eq!(Engine::parse("arenadata").map(Engine::name), Some("greenplum"));
}
