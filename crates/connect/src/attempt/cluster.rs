//! What to do about a server of one of our clusters that does not answer. `pgfathom up` can start it again only if it is a node of that cluster, and no other
//! node was promoted in its place.

use std::io;
use std::path::Path;

use crate::cluster_file::{CLUSTER_FILE_NAME, ClusterFile, Node, Role};
use crate::conninfo::{Host, HostSpec, Sources};

/// The kind of cluster in which `up` refuses to start a primary that was replaced. A cluster manager starts one as a standby.
const REPLICATED: &str = "replicated";

/// The hint for a server whose socket is in the folder of a cluster that `pgfathom up` made; `None` for any other, and where it may be running.
pub(super) fn of_our_cluster(host: &HostSpec, error: &io::Error) -> Option<String> {
    let Host::Unix(sockets) = &host.host else { return None };
    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
        return None;
    }
    let folder = sockets.parent()?;
    let file = ClusterFile::read(&folder.join(CLUSTER_FILE_NAME)).ok()?;
    let kind = file.made.as_ref()?.kind.clone();
    let nodes: Vec<(&Node, u16)> =
        file.node.iter().filter_map(|node| Some((node, port_at(&file, node, sockets)?))).collect();
    let Some((node, _)) = nodes.iter().find(|(_, port)| *port == host.port) else {
        // Of a node behind a relay the file does not have the port.
        return (nodes.len() == file.node.len()).then(|| {
            let nodes: Vec<String> =
                nodes.iter().map(|(node, port)| format!("{} (port {port})", node.name)).collect();
            format!(
                "no node of the cluster in {} has the port {}: its nodes are {}",
                folder.display(),
                host.port,
                nodes.join(", ")
            )
        });
    };
    Some(match promoted(&file, node).filter(|_| kind == REPLICATED) {
        Some(other) => format!(
            "{} was promoted in the place of {}, which pgfathom up does not start again: continue with the other nodes, or make the cluster again \
             (pgfathom down {}, then up again)",
            other.name,
            node.name,
            folder.display()
        ),
        None => format!(
            "its server is not running; start it again with: pgfathom up {kind} --dir {}",
            folder.display()
        ),
    })
}

/// The port of a node whose socket is in this folder.
fn port_at(file: &ClusterFile, node: &Node, sockets: &Path) -> Option<u16> {
    let sources = Sources {
        env: &|_| None,
        os_user: Some(String::new()),
        home: None,
        socket_dirs: Vec::new(),
        sysconfdir: None,
    };
    let spec = file.resolve(&node.connection, &sources).ok()?.spec;
    spec.hosts.iter().find(|at| at.host == Host::Unix(sockets.to_owned())).map(|at| at.port)
}

/// The standby that was promoted in the place of this primary: neither has the file that makes a server a standby.
fn promoted<'a>(file: &'a ClusterFile, node: &Node) -> Option<&'a Node> {
    let takes_writes = |node: &Node, role: Role| {
        let dir = node.data_directory.as_deref().filter(|dir| node.role == role.name() && dir.is_dir());
        // A folder that this user may not look into is no evidence.
        dir.is_some_and(|dir| dir.join("standby.signal").try_exists().is_ok_and(|there| !there))
    };
    file.node
        .iter()
        .find(|other| takes_writes(other, Role::Standby))
        .filter(|_| takes_writes(node, Role::Primary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A cluster of a primary and a standby, as `up` leaves it.
    fn cluster(kind: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("pgfathom-hint-{kind}-{}", std::process::id()));
        let dir = folder.display();
        for node in ["primary", "s1"] {
            fs::create_dir_all(folder.join(node).join("data")).unwrap();
        }
        fs::write(folder.join("s1/data/standby.signal"), "").unwrap();
        let node = |name: &str, role: &str, port: u16| {
            format!(
                "[[node]]\nname = \"{name}\"\nrole = \"{role}\"\nconnection = \"host={dir}/run port={port} dbname=d user=u\"\n\
                 data_directory = \"{dir}/{name}/data\"\n"
            )
        };
        let made = format!(
            "format = 1\nengine = \"postgres\"\n[made]\nby = \"pgfathom\"\nkind = \"{kind}\"\nbinaries = \"/usr\"\nversion = \"18\"\npreset = \"test\"\n"
        );
        let text = made + &node("primary", "primary", 5432) + &node("s1", "standby", 5433);
        fs::write(folder.join(CLUSTER_FILE_NAME), text).unwrap();
        Folder(folder)
    }

    fn hint(folder: &Folder, port: u16, kind: io::ErrorKind) -> Option<String> {
        let host = Host::Unix(folder.0.join("run"));
        of_our_cluster(&HostSpec { host, address: None, port, password: None }, &kind.into())
    }

    #[test]
    fn a_node_that_up_can_start_has_that_hint_and_no_other_server() {
        let folder = cluster(REPLICATED);
        let refused = |port| hint(&folder, port, io::ErrorKind::NotFound).unwrap();
        let again = format!("start it again with: pgfathom up replicated --dir {}", folder.0.display());
        assert!(refused(5432).contains(&again) && refused(5433).contains(&again), "{}", refused(5432));
        assert_eq!(
            refused(5439),
            format!(
                "no node of the cluster in {} has the port 5439: its nodes are primary (port 5432), s1 (port 5433)",
                folder.0.display()
            )
        );
        // A server with too many connections at once is running.
        assert_eq!(hint(&folder, 5432, io::ErrorKind::WouldBlock), None);
        fs::remove_file(folder.0.join("s1/data/standby.signal")).unwrap();
        let replaced = refused(5432);
        assert!(replaced.starts_with("s1 was promoted in the place of primary"), "{replaced}");
        assert!(refused(5433).contains(&again), "{}", refused(5433));
    }

    #[test]
    fn a_cluster_manager_starts_a_primary_that_was_replaced() {
        let folder = cluster("patroni");
        fs::remove_file(folder.0.join("s1/data/standby.signal")).unwrap();
        assert!(hint(&folder, 5432, io::ErrorKind::ConnectionRefused).unwrap().contains("up patroni"));
    }
}
