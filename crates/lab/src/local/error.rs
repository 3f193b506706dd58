//! Errors of local clusters, and their hints.

use std::io;
use std::path::PathBuf;

use connect::cluster_file::ClusterFileError;

use connect::control;

/// Why a local cluster could not be made, started, stopped or removed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No server binaries anywhere.
    #[error("no PostgreSQL server was found on this host (looked in {})", searched.join(", "))]
    NoInstallation {
        /// The places, in order.
        searched: Vec<String>,
    },
    /// A folder that the user named contains no server.
    #[error("{origin} names {}, but {problem}", dir.display())]
    BadInstallation {
        /// `--pg-bin` or `PGFATHOM_PG_BIN`.
        origin: String,
        /// The folder.
        dir: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// We are root, and there is no other user to run the server as.
    #[error("PostgreSQL refuses to run as root, and this host has no user that can run it (tried {tried})")]
    NoUser {
        /// Names tried.
        tried: String,
    },
    /// A program of PostgreSQL could not be started at all.
    #[error("{} could not be started", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program of PostgreSQL ran and failed.
    #[error("{program} failed ({status}){}", tail_of(output))]
    Program {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// The server ended before it accepted connections.
    #[error("the server in {} did not start ({status}){}", data_dir.display(), tail_of(log))]
    Start {
        /// Data directory.
        data_dir: PathBuf,
        /// How the postmaster ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs but never reported that it is ready.
    #[error("the server in {} was not ready after {waited_s} s{}", data_dir.display(), tail_of(log))]
    NotReady {
        /// Data directory.
        data_dir: PathBuf,
        /// How long we waited.
        waited_s: u64,
        /// The last lines of its log.
        log: String,
    },
    /// A run is on.
    #[error("a run is writing into the cluster in {} (on {node}, server process {pid} holds its lock); nothing was removed", dir.display())]
    RunActive {
        /// The cluster's folder.
        dir: PathBuf,
        /// The node that has the lock.
        node: String,
        /// Its process.
        pid: i32,
    },
    /// The server does not end.
    #[error("the server in {} (pid {pid}) did not stop within {waited_s} s", data_dir.display())]
    NotStopped {
        /// Data directory.
        data_dir: PathBuf,
        /// Postmaster.
        pid: u32,
        /// How long we waited.
        waited_s: u64,
    },
    /// A Unix socket's path has a limit (`sun_path`).
    #[error(
        "the socket path {} is {} bytes long, the limit is {limit_bytes}",
        path.display(),
        path.as_os_str().len()
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// The limit of this system.
        limit_bytes: usize,
    },
    /// `up` needs an empty folder.
    #[error("{} is not empty, and pgfathom did not make it", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// The cluster runs.
    #[error("the cluster in {} is already up ({connection})", dir.display())]
    AlreadyUp {
        /// The folder.
        dir: PathBuf,
        /// Its connection string.
        connection: String,
    },
    /// The folder contains a cluster of another kind.
    #[error("{} contains a cluster of the kind {kind}, not {wanted}", dir.display())]
    OtherKind {
        /// The folder.
        dir: PathBuf,
        /// What lies there.
        kind: String,
        /// What was requested.
        wanted: &'static str,
    },
    /// A standby was promoted after the primary stopped.
    #[error(
        "node {node} is not started: {by} was promoted in its place, and two servers would accept writes"
    )]
    Replaced {
        /// The cluster's folder.
        dir: PathBuf,
        /// The former primary.
        node: String,
        /// The present one.
        by: String,
    },
    /// An earlier `up` was interrupted.
    #[error("{} contains remains of an interrupted pgfathom up", dir.display())]
    Incomplete {
        /// The folder.
        dir: PathBuf,
    },
    /// A folder with our marker that another user made.
    #[error("{} is left alone: {problem}", path.display())]
    OfOther {
        /// The folder, or one of its nodes.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// `up` makes no cluster where others could put something in its way.
    #[error("{} is not used: {problem}", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// `down` removes nothing that `up` did not make.
    #[error("{} {}", dir.display(), if *there { "has no marker of pgfathom, so pgfathom does not remove it" } else { "does not exist" })]
    NotOurs {
        /// The folder.
        dir: PathBuf,
        /// Whether it exists.
        there: bool,
    },
    /// Another pgfathom uses the cluster.
    #[error("another pgfathom is using {}{}", dir.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Busy {
        /// The folder.
        dir: PathBuf,
        /// That process.
        pid: Option<u32>,
    },
    /// Another program listens there.
    #[error("port {port} is taken: another server listens on {place}")]
    PortInUse {
        /// The port.
        port: u16,
        /// Socket or address.
        place: String,
    },
    /// As root: the server's user cannot access a required folder.
    #[error("user {user}, which runs the server, cannot access {}: {} is not open to it", path.display(), blocked.display())]
    Unreachable {
        /// The server's user.
        user: String,
        /// Where it must get to.
        path: PathBuf,
        /// The folder in the path that it cannot enter.
        blocked: PathBuf,
    },
    /// The server ended without a message, and the disk is full.
    #[error("the disk of {} is full ({} MB free): the server could neither start nor log the reason", path.display(), free_bytes >> 20)]
    DiskFull {
        /// A path on that disk.
        path: PathBuf,
        /// What is free.
        free_bytes: u64,
    },
    /// The cluster file cannot be read, written or used.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// The requested cluster is impossible.
    #[error("{problem}")]
    Topology {
        /// What is wrong with it.
        problem: String,
        /// What to type instead.
        hint: String,
    },
    /// It happened on one node of several.
    #[error("node {node}: {source}")]
    Node {
        /// The node's name.
        node: String,
        /// What happened there.
        source: Box<LocalError>,
    },
    /// One of our running servers refuses the connection.
    #[error("cannot connect to the new server")]
    Connect(#[from] connect::ConnectError),
    /// One of our servers refused a statement that configures the cluster.
    #[error("cannot {what}")]
    Sql {
        /// A description of the statement; the SQL itself may contain a password.
        what: String,
        /// Its error.
        source: postgres::Error,
    },
    /// A standby does not stream.
    #[error("standby {node} did not follow the primary within {waited_s} s")]
    NotFollowing {
        /// The standby, or the standbys of which too few follow.
        node: String,
        /// How long we waited.
        waited_s: u64,
    },
    /// A node of Multimaster does not get online.
    #[error("multimaster was not online after {waited_s} s")]
    NotOnline {
        /// How long we waited.
        waited_s: u64,
    },
    /// The primary has files elsewhere.
    #[error(
        "the primary has a tablespace {name} in {location}, so no standby on this host can be copied from it"
    )]
    Tablespace {
        /// Its name.
        name: String,
        /// Its folder, which a copy would share.
        location: String,
    },
    /// An extension that the topology needs is not installed.
    #[error("the extension {name} is not installed beside these PostgreSQL binaries")]
    Extension {
        /// The extension.
        name: &'static str,
        /// How to get it.
        hint: String,
    },
    /// A file operation of ours failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `create`, `read`, ...
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Program output for a message: on separate lines, indented.
fn tail_of(output: &str) -> String {
    output.trim_end().lines().map(|line| format!("\n    {line}")).collect()
}

impl LocalError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LocalError {
        let path = path.into();
        move |source| LocalError::Io { action, path, source }
    }

    /// The same error, with the name of a node.
    pub(crate) fn on(self, node: &str) -> LocalError {
        match self {
            LocalError::Node { .. } => self,
            error => LocalError::Node { node: node.to_owned(), source: Box::new(error) },
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            LocalError::NoInstallation { .. } => Some(
                "apt-get install postgresql, or scripts/fetch-postgres18 (needs npm), or name a folder with --pg-bin"
                    .to_owned(),
            ),
            LocalError::BadInstallation { .. } => {
                Some("name the folder that holds the programs postgres and initdb, see pg_config --bindir".to_owned())
            }
            LocalError::NoUser { .. } => Some("useradd --system postgres, or run pgfathom as an ordinary user".to_owned()),
            LocalError::Spawn { source, .. } | LocalError::Io { source, .. } => io_hint(source),
            LocalError::Program { output: text, .. }
            | LocalError::Start { log: text, .. }
            | LocalError::NotReady { log: text, .. } => server_words_hint(text),
            LocalError::NotEmpty { .. } => Some("name a new or empty folder with --dir".to_owned()),
            LocalError::AlreadyUp { dir, .. } => {
                Some(format!("use it as it is, or remove it: pgfathom down {}", dir.display()))
            }
            LocalError::OtherKind { dir, kind, .. } => {
                Some(format!("choose another --dir, or: pgfathom up {kind} --dir {0}, or: pgfathom down {0}", dir.display()))
            }
            LocalError::Replaced { dir, .. } => Some(format!(
                "continue with the other nodes, or make the cluster again: pgfathom down {}, then up again",
                dir.display()
            )),
            LocalError::Incomplete { dir } => Some(format!("pgfathom down {}, then up again", dir.display())),
            LocalError::Unsafe { .. } => {
                Some("name a new folder with --dir, in a folder that only you can change".to_owned())
            }
            LocalError::OfOther { .. } => Some("run pgfathom as the user who made the cluster".to_owned()),
            LocalError::NotOurs { there: true, .. } => {
                Some("pgfathom down without a folder lists the clusters that up made".to_owned())
            }
            LocalError::NotOurs { there: false, .. } => Some("pgfathom down without a folder lists the clusters that exist".to_owned()),
            LocalError::Busy { .. } => Some("wait until it ends, or stop it first".to_owned()),
            LocalError::PortInUse { .. } => Some("choose another with --port, or stop that server".to_owned()),
            LocalError::Unreachable { blocked, .. } => Some(format!(
                "choose a --dir outside {}, for example /var/lib/pgfathom/single or /tmp/pg",
                blocked.display()
            )),
            LocalError::DiskFull { .. } => io_hint(&io::ErrorKind::StorageFull.into()),
            LocalError::ClusterFile(ClusterFileError::Io { source, .. }) => io_hint(source),
            LocalError::ClusterFile(error) => error.hint(),
            LocalError::RunActive { pid, .. } => Some(format!(
                "stop that pgfathom run (Ctrl-C) or wait until it has ended; where its client is: select application_name, client_addr, backend_start \
                 from pg_stat_activity where pid = {pid}"
            )),
            LocalError::NotStopped { pid, .. } => {
                Some(format!("a client may block it; kill -QUIT {pid} stops it at once"))
            }
            LocalError::Topology { hint, .. } | LocalError::Extension { hint, .. } => Some(hint.clone()),
            LocalError::NotFollowing { .. } | LocalError::NotOnline { .. } => {
                Some("the log of that node, beside its data directory, gives the reason".to_owned())
            }
            LocalError::Tablespace { name, .. } => Some(format!(
                "a copy would write into the same folder: move its tables and drop tablespace {name}, or set up the standby on another host"
            )),
            LocalError::Node { source, .. } => source.hint(),
            LocalError::Connect(error) => error.hint(),
            LocalError::Sql { source, .. } => control::server_error(source).and_then(|error| error.hint),
            LocalError::SocketPath { .. } => Some("choose a shorter --socket-dir, for example /tmp/pg".to_owned()),
        }
    }
}

/// Hints for errors of the operating system.
fn io_hint(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(
            "the folder must be open to you, and, when you are root, to the user that the server runs as"
                .to_owned(),
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free space on that disk (df -h), or choose another folder with --dir".to_owned())
        }
        _ => None,
    }
}

/// Hints for messages of initdb and the server (with `LC_MESSAGES=C`; the texts are from PostgreSQL 13 to 18).
fn server_words_hint(text: &str) -> Option<String> {
    const DAMAGED: &str = "files of this server are damaged or missing: restore them, or make the cluster again: pgfathom down, then up";
    const WORDS: [(&str, &str); 20] = [
        ("No space left on device", "free space on that disk (df -h), or choose another folder with --dir"),
        ("Disk quota exceeded", "free space on that disk (quota), or choose another folder with --dir"),
        ("Address already in use", "another server uses that port: choose one with --port, or stop it"),
        (
            "Is another postmaster already running on port",
            "another server uses that port: choose one with --port, or stop it",
        ),
        (
            "pre-existing shared memory block",
            "processes of an earlier server are still ending: try again in a few seconds",
        ),
        (
            "could not create any Unix-domain sockets",
            "choose another --socket-dir: it must be writable and its path short",
        ),
        (
            "could not map anonymous shared memory",
            "there is not enough memory: lower shared_buffers with --set",
        ),
        (
            "Permission denied",
            "the folder must be open to you, and, when you are root, to the user that the server runs as",
        ),
        ("has invalid permissions", "only the user of the server may read its data directory: chmod 700"),
        (
            "has wrong ownership",
            "the data directory must belong to the user that the server runs as: chown -R",
        ),
        (
            "could not access file",
            "shared_preload_libraries names a library that this installation lacks, see the log lines above",
        ),
        (
            "incompatible with server",
            "these files are of another release: name the folder of its programs with --pg-bin",
        ),
        ("could not access the server configuration file", DAMAGED),
        ("is not a valid data directory", DAMAGED),
        ("could not find the database system", DAMAGED),
        ("control file", DAMAGED),
        ("could not locate a valid checkpoint record", DAMAGED),
        ("required WAL directory", DAMAGED),
        ("No such file or directory", DAMAGED),
        ("configuration file", "one of the settings is wrong for this version, see the log lines above"),
    ];
    WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, hint)| (*hint).to_owned())
}
