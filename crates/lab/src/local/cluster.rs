//! `up` and `down`: start servers in one folder, and remove them completely.
//!
//! Everything is in the cluster's folder: per server `data` and `log` (of a cluster of several: in a folder of its name), the folder `run` of all sockets,
//! `cluster.toml`, and, written before anything else, the marker that shows that the folder is ours. Whatever interrupts `up`, the marker exists, and `down`
//! can find and remove the rest. `up` holds a lock on the marker while it works, so `down` never removes the folder meanwhile.

mod far;
mod managed;
mod ports;
mod removal;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use self::far::Far;
use self::ports::Ports;
use self::removal::remove;
use super::busy;
use super::distance::Distances;
use super::fixed;
use super::folder::{self, MARKER_NAME};
use super::patroni;
use super::preset::Machine;
use super::process;
use super::server::{self, Server};
use super::topology::{self, Link, Peer, Planned, Topology};
use super::{Installation, LocalError, Preset, Registry, standby};
use connect::cluster_file::Role;
use connect::cluster_file::{
    CLUSTER_FILE_FORMAT, CLUSTER_FILE_NAME, ClusterFile, ClusterFileError, Made, Node,
};
use connect::conninfo::{ConnSpec, PORT_DEFAULT, Sources};
use connect::os_user::OsUser;

/// What to make.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The cluster's folder: new, empty, or a stopped cluster of ours, which is then started again.
    pub dir: PathBuf,
    /// One server or several, and how they are connected.
    pub topology: Topology,
    /// The binaries.
    pub installation: Installation,
    /// The first server's port, the others follow; `None`: 5432, or with `tcp` the first free one from there.
    pub port: Option<u16>,
    /// The sockets' folder; `None`: inside the cluster's folder, or under `/tmp` when that path is too long.
    pub socket_dir: Option<PathBuf>,
    /// Listen on 127.0.0.1 too, and let the nodes connect to each other that way. TCP then requests a SCRAM password, which the user has to set first.
    pub tcp: bool,
    /// Settings to start from.
    pub preset: Preset,
    /// Further lines for `postgresql.conf`, which override the preset.
    pub settings: Vec<(String, String)>,
    /// Data checksums; `None`: the default of initdb (on since PostgreSQL 18).
    pub checksums: Option<bool>,
    /// Further arguments for initdb.
    pub initdb: Vec<String>,
    /// Where the cluster is remembered.
    pub registry: Registry,
    /// How far the nodes are from each other, and from clients.
    pub distances: Distances,
    /// This program: it also runs the relays that make a distance. Needed where there is one.
    pub program: Option<PathBuf>,
}

impl UpOptions {
    /// A single server in `dir`, everything else by default.
    pub fn new(dir: &Path, installation: Installation) -> UpOptions {
        UpOptions {
            dir: dir.to_owned(),
            topology: Topology::Single,
            installation,
            port: None,
            socket_dir: None,
            tcp: false,
            preset: Preset::default(),
            settings: Vec::new(),
            checksums: None,
            initdb: Vec::new(),
            registry: Registry::of_process(),
            distances: Distances::default(),
            program: None,
        }
    }

    /// Lines for every server's `postgresql.conf`; later ones win.
    fn all_settings(&self) -> Vec<(String, String)> {
        let machine = Machine::of(&self.dir, self.topology.nodes().len());
        let mut settings = self.preset.settings(&machine);
        settings.extend(self.topology.settings(&self.installation));
        settings.extend(self.settings.iter().cloned());
        settings
    }
}

/// The default folder of a cluster: the server's user can access it.
pub fn default_dir(kind: &str) -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/lib")
    } else {
        var("XDG_DATA_HOME")
            .or_else(|| var("HOME").map(|home| home.join(".local/share")))
            .unwrap_or_else(|| PathBuf::from("/tmp"))
    };
    base.join("pgfathom").join(kind)
}

/// A cluster that is up.
#[derive(Clone, Debug)]
pub struct LocalCluster {
    /// Its folder.
    pub dir: PathBuf,
    /// Its file, with the nodes.
    pub file: ClusterFile,
    /// How to connect to the node that takes writes, see [`ClusterFile::entry`].
    pub spec: ConnSpec,
    /// The time of initdb on the slowest node; zero for a cluster that was only started again.
    pub initdb_s: f64,
    /// The time until the slowest node accepted connections.
    pub start_s: f64,
    /// The time to connect the servers to a cluster: standbys copied, nodes configured. Zero for a single server.
    pub connect_s: f64,
    /// Notes: a server that was not changed.
    pub notes: Vec<String>,
    /// Proxies in front of the nodes.
    pub fronts: Vec<Front>,
}

impl LocalCluster {
    /// The cluster that this file describes, with the seconds that its connections, its data directories and its start took.
    fn of(
        dir: &Path,
        file: ClusterFile,
        [connect_s, initdb_s, start_s]: [f64; 3],
    ) -> Result<LocalCluster, LocalError> {
        let spec = file.entry(&Sources::of_process())?.spec;
        let (dir, notes, fronts) = (dir.to_owned(), Vec::new(), Vec::new());
        Ok(LocalCluster { dir, file, spec, initdb_s, start_s, connect_s, notes, fronts })
    }
}

/// An address of a proxy in front of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// What goes there: `writes`, `reads`.
    pub name: String,
    /// How to connect.
    pub connection: String,
}

/// What `down` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Running servers that were stopped.
    pub stopped: u32,
    /// Files in the cluster's folder that are not ours, and were not removed.
    pub left: Vec<PathBuf>,
}

/// Makes a cluster and starts it, or starts a stopped one again.
pub fn up(options: &UpOptions) -> Result<LocalCluster, LocalError> {
    let dir = std::path::absolute(&options.dir).map_err(LocalError::io("find", &options.dir))?;
    let user = process::server_user()?;
    if folder::is_marked(&dir) {
        return start_again(&dir, options, user.as_ref());
    }
    check(options)?;
    let occupied = fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || dir.is_file() {
        return Err(LocalError::NotEmpty { dir });
    }
    if let Some(user) = &user {
        folder::check_reachable(user, &dir)?;
        folder::check_reachable(user, &options.installation.bin_dir.join("postgres"))?;
    }
    let socket_dir = folder::choose_socket_dir(&dir, options.socket_dir.as_deref())?;
    let mut ports = Ports::new(options, &socket_dir);
    let planned = options.topology.nodes();
    let servers: Vec<Server> = planned
        .iter()
        .map(|node| {
            let port = ports.next().map_err(|error| name_node(error, &planned, &node.name))?;
            folder::check_socket_path(&socket_dir, port)?;
            Ok(Server {
                name: node.name.clone(),
                role: node.role,
                dir: if planned.len() == 1 { dir.clone() } else { dir.join(&node.name) },
                socket_dir: socket_dir.clone(),
                port,
                user: user.clone(),
                installation: options.installation.clone(),
                tcp: options.tcp,
                login: None,
                detours: Vec::new(),
            })
        })
        .collect::<Result<_, LocalError>>()?;

    let existed = folder::take(&dir, user.as_ref())?;
    let subfolders: Vec<String> =
        if servers.len() == 1 { Vec::new() } else { servers.iter().map(|s| s.name.clone()).collect() };
    let marked = folder::mark(&dir, &socket_dir, &subfolders, user.as_ref());
    if marked.is_err() && !existed {
        let _ = fs::remove_file(dir.join(MARKER_NAME));
        let _ = fs::remove_dir(&dir);
    }
    let _lock = marked?;
    let result = options.registry.add(&dir).and_then(|()| match &options.topology {
        Topology::Patroni(managed) => managed::make(&dir, &servers, &mut ports, managed, options),
        _ => make(&dir, servers, &planned, &Mutex::new(ports), options),
    });
    if result.is_err() {
        // The files of this attempt are removed; if that fails, `down` can do it later.
        let _ = remove(&dir);
        if existed {
            let _ = fs::create_dir(&dir);
        }
        options.registry.remove(&dir);
    }
    result
}

/// Whether the cluster is possible here, before anything is made.
fn check(options: &UpOptions) -> Result<(), LocalError> {
    options.topology.check(&options.installation)?;
    options.preset.check(&options.topology)?;
    fixed::check(&options.topology, &options.settings)
}

/// An error with the name of its node, unless there is only one.
fn name_node(error: LocalError, planned: &[Planned], name: &str) -> LocalError {
    if planned.len() > 1 { error.on(name) } else { error }
}

/// The steps after the marker.
fn make(
    dir: &Path,
    servers: Vec<Server>,
    planned: &[Planned],
    ports: &Mutex<Ports>,
    options: &UpOptions,
) -> Result<LocalCluster, LocalError> {
    if let Some(first) = servers.first() {
        folder::make_socket_dir(&first.socket_dir, dir, first.user())?;
    }
    let settings = options.all_settings();
    let (mut copies, originals): (Vec<Server>, Vec<Server>) =
        servers.into_iter().partition(|server| server.role == Role::Standby);
    let made: Vec<(Server, f64, f64)> = topology::at_once(originals.len(), |number| {
        let mut server = originals[number].clone();
        let times = server.make_dir(dir).and_then(|()| make_server(&mut server, &settings, ports, options));
        let (initdb_s, start_s) = times.map_err(|error| name_node(error, planned, &server.name))?;
        Ok((server, initdb_s, start_s))
    })?;
    let slowest = |time: fn(&(Server, f64, f64)) -> f64| made.iter().map(time).fold(0.0, f64::max);
    let (initdb_s, start_s) = (slowest(|made| made.1), slowest(|made| made.2));
    let mut servers: Vec<Server> = made.into_iter().map(|(server, ..)| server).collect();

    let begin = Instant::now();
    let several = planned.len() > 1;
    if options.tcp && several {
        let password = topology::new_password()?;
        let (user, statement) = options.topology.link_role(&password);
        for server in &mut servers {
            server.login = Some((user, password.clone()));
            topology::execute_all(&server.peer(), std::slice::from_ref(&statement))?;
        }
    }
    let mut far = Far::lay(dir, &mut servers, &mut copies, ports, options)?;
    if !copies.is_empty() {
        add_standbys((dir, &mut servers), copies, &settings, ports, options)?;
    }
    // The port of a standby may have been taken in between.
    far.settle(servers.iter())?;
    let peers: Vec<Peer> = servers.iter().map(Server::peer).collect();
    topology::connect_nodes(&options.topology, &peers, options.installation.version.major)?;
    if let (Some(replication), Some(primary)) = (options.topology.replication(), servers.first()) {
        // Only now: a primary that waits for standbys that do not exist yet commits nothing.
        let sync = (fixed::SYNC_NAMES.to_owned(), replication.sync.setting());
        let settings: Vec<(String, String)> = settings.iter().cloned().chain([sync]).collect();
        topology::replicated::wait_for_standbys(&primary.peer(), &replication.sync, || {
            primary.write_settings(options.tcp, &settings)?;
            primary.reload()
        })?;
    }
    let connect_s = if several { begin.elapsed().as_secs_f64() } else { 0.0 };

    let file = describe(&servers, options);
    let user = servers.first().and_then(Server::user);
    process::with_files_of(user, || file.write(&dir.join(CLUSTER_FILE_NAME)))?;
    LocalCluster::of(dir, file, [connect_s, initdb_s, start_s])
}

/// Makes the files of one server and starts it. Returns the seconds of both.
fn make_server(
    server: &mut Server,
    settings: &[(String, String)],
    ports: &Mutex<Ports>,
    options: &UpOptions,
) -> Result<(f64, f64), LocalError> {
    let begin = Instant::now();
    server.initdb(options.checksums, &options.initdb)?;
    let initdb_s = begin.elapsed().as_secs_f64();
    let start_s =
        start_at_free_port(server, ports, options, |server| server.write_settings(options.tcp, settings))?;
    Ok((initdb_s, start_s))
}

/// Writes a server's settings and starts it; at another port when its own was taken meanwhile. Returns the seconds.
fn start_at_free_port(
    server: &mut Server,
    ports: &Mutex<Ports>,
    options: &UpOptions,
    write_settings: impl Fn(&Server) -> Result<(), LocalError>,
) -> Result<f64, LocalError> {
    loop {
        write_settings(server)?;
        match server.start() {
            Err(LocalError::Start { log, .. })
                if options.port.is_none() && log.contains("Address already in use") =>
            {
                server.port = ports.lock().unwrap_or_else(PoisonError::into_inner).next()?;
            }
            result => return result,
        }
    }
}

/// Copies the first server to each of `copies`, and starts these as its standbys.
fn add_standbys(
    (dir, servers): (&Path, &mut Vec<Server>),
    mut copies: Vec<Server>,
    settings: &[(String, String)],
    ports: &Mutex<Ports>,
    options: &UpOptions,
) -> Result<(), LocalError> {
    let Some(primary) = servers.first().cloned() else { return Ok(()) };
    let names: Vec<String> =
        std::iter::once(&primary).chain(&copies).map(|server| server.name.clone()).collect();
    topology::execute_all(&primary.peer(), &topology::replicated::slots(0, &names, true))?;
    for copy in &mut copies {
        copy.login.clone_from(&primary.login);
        copy.make_dir(dir)?;
    }
    let targets: Vec<PathBuf> = copies.iter().map(Server::data_dir).collect();
    standby::copy(&primary.spec(), &primary.data_dir(), &targets, primary.user())
        .map_err(|error| error.on(&primary.name))?;
    // Each needs the ports of the others, so these are chosen first.
    let links = |copies: &[Server]| -> Vec<(String, Link)> {
        std::iter::once(&primary)
            .chain(copies)
            .map(|server| (server.name.clone(), server.peer().link))
            .collect()
    };
    let planned = links(&copies);
    let write = |number: usize, server: &Server, links: &[(String, Link)]| {
        let me = &links[number + 1].0;
        let seen: Vec<(String, Link)> =
            links.iter().map(|(name, link)| (name.clone(), link.seen_by(me))).collect();
        let own = topology::replicated::standby_settings(number + 1, &seen);
        let settings: Vec<(String, String)> = settings.iter().cloned().chain(own).collect();
        server.write_settings(options.tcp, &settings)
    };
    let started: Vec<Server> = topology::at_once(copies.len(), |number| {
        let mut server = copies[number].clone();
        let started =
            start_at_free_port(&mut server, ports, options, |server| write(number, server, &planned));
        started.map_err(|error| error.on(&server.name))?;
        Ok(server)
    })?;
    let settled = links(&started);
    if settled != planned {
        for (number, server) in started.iter().enumerate() {
            write(number, server, &settled)?;
            server.reload()?;
        }
    }
    servers.extend(started);
    Ok(())
}

/// The content of `cluster.toml`.
fn describe(servers: &[Server], options: &UpOptions) -> ClusterFile {
    let user = servers.first().and_then(Server::user);
    ClusterFile {
        format: CLUSTER_FILE_FORMAT,
        engine: options.topology.engine().to_owned(),
        made: Some(Made {
            by: concat!("pgfathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            kind: options.topology.kind().to_owned(),
            binaries: options.installation.bin_dir.clone(),
            version: options.installation.version.to_string(),
            preset: options.preset.name().to_owned(),
            partitions: options.topology.partitions(),
            sync: options.topology.sync(),
            delay: (options.distances != Distances::default()).then(|| options.distances.describe()),
            os_user: user.map(|user| user.name.clone()),
        }),
        node: servers
            .iter()
            .map(|server| Node {
                name: server.name.clone(),
                role: server.role.name().to_owned(),
                connection: server.client_spec().describe(),
                also: server.known_as(),
                ssh: None,
                data_directory: Some(server.data_dir()),
                log: Some(server.log()),
            })
            .collect(),
        others: None,
    }
}

/// A folder keeps its kind.
fn check_kind(dir: &Path, file: &ClusterFile, wanted: &'static str) -> Result<(), LocalError> {
    match &file.made {
        Some(made) if made.kind != wanted => {
            Err(LocalError::OtherKind { dir: dir.to_owned(), kind: made.kind.clone(), wanted })
        }
        _ => Ok(()),
    }
}

/// Starts the servers of one of our clusters that do not run, for example after a reboot of the host.
fn start_again(dir: &Path, options: &UpOptions, user: Option<&OsUser>) -> Result<LocalCluster, LocalError> {
    folder::check_owner(dir)?;
    let lock = folder::lock_marker(dir)?;
    let file = match ClusterFile::read(dir) {
        Ok(file) => file,
        Err(ClusterFileError::Io { .. }) => return Err(LocalError::Incomplete { dir: dir.to_owned() }),
        Err(error) => return Err(error.into()),
    };
    check_kind(dir, &file, options.topology.kind())?;
    far::check_same(dir, &file, &options.distances)?;
    let socket_dir = folder::marked_socket_dir(dir).unwrap_or_else(|| dir.join("run"));
    if options.topology.kind() == patroni::KIND {
        return managed::start_again(dir, file, &socket_dir, user);
    }
    // The binaries that made it, if they still exist: another major version could not read the files.
    let made = file.made.as_ref().and_then(|made| Installation::recorded(&made.binaries).ok());
    let installation = made.unwrap_or_else(|| options.installation.clone());
    let server = |node: &Node| -> Server {
        let data_dir = node.data_directory.clone().unwrap_or_else(|| dir.join("data"));
        Server {
            name: node.name.clone(),
            role: Role::parse(&node.role).unwrap_or(Role::Primary),
            dir: data_dir.parent().map_or_else(|| dir.to_owned(), Path::to_owned),
            socket_dir: socket_dir.clone(),
            port: PORT_DEFAULT,
            user: user.cloned(),
            installation: installation.clone(),
            tcp: false,
            login: None,
            detours: Vec::new(),
        }
    };
    let mut stopped: Vec<Server> = file.node.iter().map(server).filter(|server| !server.is_up()).collect();
    let mut notes = Vec::new();
    if let Some((old, new)) = replaced_primary(&file)
        && stopped.iter().any(|server| server.name == old)
    {
        stopped.retain(|server| server.name != old);
        let replaced = LocalError::Replaced { dir: dir.to_owned(), node: old, by: new };
        if stopped.is_empty() {
            return Err(replaced);
        }
        notes.push(replaced.to_string());
    }
    folder::make_socket_dir_again(&socket_dir, dir, user)?;
    let (start_s, peers) = server::start_all_again(&stopped, file.node.len() > 1)?;
    let had_ended = far::start_again(dir, options)?;
    if stopped.is_empty() && !had_ended {
        let connection = file.node.first().map(|node| node.connection.clone()).unwrap_or_default();
        return Err(LocalError::AlreadyUp { dir: dir.to_owned(), connection });
    }
    drop(lock);
    notes.extend(topology::await_return(&options.topology, &peers));
    Ok(LocalCluster { notes, ..LocalCluster::of(dir, file, [0.0, 0.0, start_s])? })
}

/// The former primary of a cluster in which a standby was promoted, and that standby: if it were started, it would be a second primary.
fn replaced_primary(file: &ClusterFile) -> Option<(String, String)> {
    let takes_writes = |role: Role| {
        file.node.iter().find(|node| {
            let data_dir = node.data_directory.as_deref();
            node.role == role.name()
                && data_dir.is_some_and(|dir| dir.is_dir() && !dir.join("standby.signal").exists())
        })
    };
    Some((takes_writes(Role::Primary)?.name.clone(), takes_writes(Role::Standby)?.name.clone()))
}

/// Whether `up` made the cluster in this folder: it has our marker.
pub fn is_ours(dir: &Path) -> bool {
    super::folder::is_marked(dir)
}

/// Whether `up` made the server with this data directory: its folder, or the one above, has our marker and lists it. A file elsewhere is no
/// evidence.
pub fn is_node_of_ours(data_dir: &Path) -> bool {
    let Some(node) = data_dir.canonicalize().ok().and_then(|dir| dir.parent().map(Path::to_owned)) else {
        return false;
    };
    node.ancestors().take(2).any(|dir| {
        folder::is_marked(dir)
            && folder::marked_node_dirs(dir).contains(&node)
            && folder::check_owner(dir).is_ok()
    })
}

/// Whether a server runs in the cluster's folder.
pub fn is_up(dir: &Path) -> bool {
    folder::is_marked(dir)
        && folder::marked_node_dirs(dir)
            .iter()
            .any(|node| !process::servers_in(&node.join("data")).is_empty())
}

/// Stops and removes one of our clusters, also one that an interrupted `up` or `down` left.
pub fn down(dir: &Path, registry: &Registry) -> Result<Removed, LocalError> {
    let dir = std::path::absolute(dir).map_err(LocalError::io("find", dir))?;
    if !folder::is_marked(&dir) {
        let there = dir.exists();
        if !there {
            registry.remove(&dir);
        }
        return Err(LocalError::NotOurs { dir, there });
    }
    folder::check_owner(&dir)?;
    let lock: File = folder::lock_marker(&dir)?;
    if let Some((node, pid)) = busy::active_run(&dir) {
        return Err(LocalError::RunActive { dir, node, pid });
    }
    let removed = remove(&dir)?;
    drop(lock);
    registry.remove(&dir);
    Ok(removed)
}
