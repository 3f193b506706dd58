//! A cluster under a failover manager: its ports, password and cluster file. [`patroni`] configures and starts the programs.

use std::path::Path;
use std::time::Instant;

use connect::cluster_file::{CLUSTER_FILE_NAME, ClusterFile};
use connect::conninfo::{ConnSpec, Sources};
use connect::os_user::OsUser;

use super::super::patroni::{self, Managed, MorePorts, Order, Spot};
use super::super::server::Server;
use super::super::topology::{self, SUPERUSER};
use super::super::{LocalError, folder, process};
use super::{Front, LocalCluster, Ports, UpOptions, describe};

/// The steps after the marker.
pub(super) fn make(
    dir: &Path,
    servers: &[Server],
    ports: &mut Ports,
    managed: &Managed,
    options: &UpOptions,
) -> Result<LocalCluster, LocalError> {
    let Some(first) = servers.first() else {
        return Err(LocalError::Incomplete { dir: dir.to_owned() });
    };
    let ports = MorePorts {
        fronts: [ports.next()?, ports.next()?],
        rest: servers.iter().map(|_| ports.next()).collect::<Result<_, _>>()?,
        store: [ports.next()?, ports.next()?],
    };
    let spot =
        |server: &Server| Spot { name: server.name.clone(), dir: server.dir.clone(), port: server.port };
    let spots: Vec<Spot> = servers.iter().map(spot).collect();
    let fronts = ports.fronts;
    let order = Order {
        managed,
        spots: &spots,
        user: first.user(),
        installation: &options.installation,
        socket_dir: &first.socket_dir,
        tcp: options.tcp,
        password: topology::new_password()?,
        settings: &options.all_settings(),
        checksums: options.checksums,
        entry: first.spec(),
        front: ConnSpec::unix(&first.socket_dir, fronts[0], SUPERUSER, SUPERUSER),
        ports,
    };
    let times_s = patroni::make(dir, &order)?;
    let file = describe(servers, options);
    process::with_files_of(first.user(), || file.write(&dir.join(CLUSTER_FILE_NAME)))?;
    let fronts = described(&first.socket_dir, fronts);
    Ok(LocalCluster { fronts, ..LocalCluster::of(dir, file, times_s)? })
}

/// Starts the programs of a stopped cluster again.
pub(super) fn start_again(
    dir: &Path,
    file: ClusterFile,
    socket_dir: &Path,
    user: Option<&OsUser>,
) -> Result<LocalCluster, LocalError> {
    let begin = Instant::now();
    folder::make_socket_dir_again(socket_dir, dir, user)?;
    let spec = file.entry(&Sources::of_process())?.spec;
    let Some(fronts) = patroni::start_again(dir, &folder::marked_node_dirs(dir), &spec, user)? else {
        return Err(LocalError::AlreadyUp { dir: dir.to_owned(), connection: spec.describe() });
    };
    let start_s = begin.elapsed().as_secs_f64();
    let fronts = described(socket_dir, fronts);
    Ok(LocalCluster { fronts, ..LocalCluster::of(dir, file, [0.0, 0.0, start_s])? })
}

/// The addresses of haproxy.
fn described(socket_dir: &Path, ports: [u16; 2]) -> Vec<Front> {
    let front = |(name, port): (&str, u16)| Front {
        name: name.to_owned(),
        connection: ConnSpec::unix(socket_dir, port, SUPERUSER, SUPERUSER).describe(),
    };
    std::iter::zip(["writes", "reads"], ports).map(front).collect()
}
