//! Entries that stand before a cluster: a proxy to one node, which has another address than the catalog knows, and one that leads to several nodes.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use connect::ConnSpec;
use connect::cluster_file::Role;
use connect::conninfo::Sources;
use engines::cluster::{Cluster, ClusterError, ServerPlace};
use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
use testing::on_each;

fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

fn copy(mut from: UnixStream, mut to: UnixStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// A proxy whose connections lead to these servers in turn. It ends with the process.
fn proxy(folder: &Path, servers: &[&Throwaway]) -> ConnSpec {
    let targets: Vec<PathBuf> =
        servers.iter().map(|server| socket(server.socket_dir(), server.port())).collect();
    let listener = UnixListener::bind(socket(folder, servers[0].port())).unwrap();
    std::thread::spawn(move || {
        for (client, target) in listener.incoming().flatten().zip(targets.iter().cycle()) {
            let Ok(server) = UnixStream::connect(target) else { continue };
            copy(client.try_clone().unwrap(), server.try_clone().unwrap());
            copy(server, client);
        }
    });
    ConnSpec::new(folder.to_str().unwrap(), servers[0].port(), "postgres", "postgres")
}

#[test]
fn a_node_is_known_by_what_it_is_and_not_by_its_address() {
    on_each(&installations(), |installation| {
        let nodes = ThrowawayCluster::sharded(installation, 3, 6).unwrap();
        let folder = nodes.node(0).socket_dir().join("entry");
        std::fs::create_dir(&folder).unwrap();
        let through = Cluster::discover(&proxy(&folder, &[nodes.node(0)])).unwrap();
        let names: Vec<&str> = through.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3"], "the entry is n1, and no further node");
        assert!(through.nodes.iter().all(|node| node.role == Role::Shard));
        let known: Vec<String> = through.nodes[0].also.iter().map(|at| at.host.to_string()).collect();
        assert_eq!(known, [nodes.node(0).socket_dir().to_str().unwrap()], "by which the others point to it");

        // A file that takes them for servers of their own, all or one of them.
        let mut file = Cluster::from_file(nodes.file(), &Sources::of_process()).unwrap();
        file.engine = engines::Engine::default();
        for nodes in [3, 1] {
            file.nodes.truncate(nodes);
            let refused = file.check_nodes().unwrap_err();
            assert!(matches!(refused, ClusterError::AnotherEngine { word: "fdw-sharded", .. }), "{refused}");
        }

        // A file that names one node twice.
        let mut file = Cluster::from_file(nodes.file(), &Sources::of_process()).unwrap();
        file.check_distinct().unwrap();
        file.nodes[1].spec = through.nodes[0].spec.clone();
        assert!(matches!(file.check_distinct(), Err(ClusterError::SameNode { .. })));
    });
}

#[test]
fn an_address_that_leads_to_several_nodes_is_refused() {
    let found = installations();
    let nodes = ThrowawayCluster::sharded(&found[0], 2, 4).unwrap();
    let folder = nodes.node(0).socket_dir().join("entry");
    std::fs::create_dir(&folder).unwrap();
    let balanced = proxy(&folder, &[nodes.node(0), nodes.node(1)]);
    let error = Cluster::discover(&balanced).unwrap_err();
    assert!(error.to_string().contains("leads to several servers"), "{error}");
    assert!(error.hint().unwrap().contains("--cluster"));
}

/// A role that may not enter the server, or may not read what it is: the session by which another node reads its rows shows it.
#[test]
fn a_server_that_hides_what_it_is_is_known_by_the_session_of_its_reader() {
    on_each(&installations(), |installation| {
        let nodes = ThrowawayCluster::sharded(installation, 3, 3).unwrap();
        for node in 0..3 {
            let hide = "create role plain login; revoke execute on function pg_catalog.pg_control_system() from public; \
                 create table t (k int) partition by hash (k); grant select on t to plain";
            nodes.node(node).execute(hide).unwrap();
            for leaf in 0..3 {
                let bound = format!("for values with (modulus 3, remainder {leaf})");
                let made = match leaf == node {
                    true => format!("create table t_{leaf} partition of t {bound}"),
                    false => {
                        format!("create foreign table t_{leaf} partition of t {bound} server n{}", leaf + 1)
                    }
                };
                nodes.node(node).execute(&format!("{made}; grant select on t_{leaf} to plain")).unwrap();
            }
        }
        let folder = nodes.node(1).socket_dir().join("entry");
        std::fs::create_dir(&folder).unwrap();
        let mut file = Cluster::from_file(nodes.file(), &Sources::of_process()).unwrap();
        file.nodes[1].spec = proxy(&folder, &[nodes.node(1)]);
        file.nodes.iter_mut().for_each(|node| node.spec.user = "plain".to_owned());
        let mapping = "do $$ declare u record; begin for u in select srvname, usename from pg_user_mappings where usename = 'public' loop \
             execute format('drop user mapping for public server %I', u.srvname); end loop; end $$";
        nodes.node(0).execute(mapping).unwrap();
        let unknown = file.place_of_server(0, "n2");
        let ServerPlace::Unknown(address) = &unknown else { panic!("{unknown:?}") };
        assert!(address.contains(&format!("port={} dbname=postgres", nodes.node(1).port())), "{address}");
        nodes
            .node(0)
            .execute("create user mapping for plain server n2 options (user 'postgres', password_required 'false')")
            .unwrap();
        let names_sessions = "select current_setting('server_version_num')::int >= 140000";
        if nodes.node(0).value(names_sessions).unwrap().as_deref() == Some("t") {
            assert_eq!(file.place_of_server(0, "n2"), ServerPlace::Node(1));
            // Without that node in the file it is none of the others.
            file.nodes.remove(1);
            assert!(matches!(file.place_of_server(0, "n2"), ServerPlace::Unknown(_)));
        }
    });
}
