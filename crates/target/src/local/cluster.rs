//! `up single` and `down`: a PostgreSQL of one's own in one folder, and its complete removal.
//!
//! Everything lives in the cluster's folder: `data`, `log`, the socket's folder `run`, `cluster.toml`, and, written before anything else, the
//! marker that says that the folder is ours. Whatever interrupts `up`, the marker is there and `down` can find and remove the rest. `up` holds a lock on the marker
//! while it works, so `down` never pulls the folder from under it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cluster_file::{CLUSTER_FILE_FORMAT, CLUSTER_FILE_NAME, ClusterFile, Made, Node};
use super::process::{self, Lifetime, OsUser, PidFile};
use super::{Installation, LocalError, Preset, Registry, preset};
use crate::conninfo::{ConnSpec, PORT_DEFAULT};

/// The file that makes a folder ours.
const MARKER_NAME: &str = ".pgfathom-cluster";
/// Its first line.
const MARKER_FIRST_LINE: &str = "pgfathom cluster 1";
/// The longest path of a Unix socket on Linux, in bytes (`sun_path` less its terminating zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// How long a start may take, crash recovery included.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a fast stop may take before it becomes an immediate one.
const FAST_STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// And then, before it becomes a kill.
const IMMEDIATE_STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// With less than this free, a failed start without a word in the log is put down to the full disk.
const DISK_FULL_BYTES: u64 = 32 << 20;
/// The superuser's name.
const SUPERUSER: &str = "postgres";

/// What to make.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The cluster's folder: new, empty, or a stopped cluster of ours, which is then started again.
    pub dir: PathBuf,
    /// The binaries.
    pub installation: Installation,
    /// The port; `None`: 5432, or with `tcp` the first free one from there.
    pub port: Option<u16>,
    /// The socket's folder; `None`: inside the cluster's folder, or under `/tmp` when that path is too long.
    pub socket_dir: Option<PathBuf>,
    /// Listen on 127.0.0.1 too. TCP then asks for a SCRAM password, which the user has to set first.
    pub tcp: bool,
    /// Settings to start from.
    pub preset: Preset,
    /// Further lines for `postgresql.conf`, stronger than the preset's.
    pub settings: Vec<(String, String)>,
    /// Data checksums; `None`: as initdb does by itself (on since PostgreSQL 18).
    pub checksums: Option<bool>,
    /// Further arguments for initdb.
    pub initdb: Vec<String>,
    /// Where the cluster is remembered.
    pub registry: Registry,
}

impl UpOptions {
    /// A cluster in `dir`, everything else by default.
    pub fn new(dir: &Path, installation: Installation) -> UpOptions {
        UpOptions {
            dir: dir.to_owned(),
            installation,
            port: None,
            socket_dir: None,
            tcp: false,
            preset: Preset::default(),
            settings: Vec::new(),
            checksums: None,
            initdb: Vec::new(),
            registry: Registry::of_process(),
        }
    }
}

/// Where `up` puts a cluster when no folder is named: a place that the server's user can reach.
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
    /// How to connect to its first node.
    pub spec: ConnSpec,
    /// How long initdb took; zero for a cluster that was only started again.
    pub initdb_s: f64,
    /// How long the server took to accept connections.
    pub start_s: f64,
}

/// What `down` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Servers that were running and were stopped.
    pub stopped: u32,
    /// Files in the cluster's folder that are not ours and were left there.
    pub left: Vec<PathBuf>,
}

/// Makes a cluster and starts it, or starts a stopped one again.
pub fn up(options: &UpOptions) -> Result<LocalCluster, LocalError> {
    let dir = std::path::absolute(&options.dir).map_err(LocalError::io("find", &options.dir))?;
    let user = OsUser::for_server()?;
    if is_marked(&dir) {
        return start_again(&dir, options, user.as_ref());
    }
    let occupied = fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || dir.is_file() {
        return Err(LocalError::NotEmpty { dir });
    }
    if let Some(user) = &user {
        check_reachable(user, &dir)?;
        check_reachable(user, &options.installation.bin_dir.join("postgres"))?;
    }
    let socket_dir = choose_socket_dir(&dir, options)?;
    let port = choose_port(&socket_dir, options)?;
    check_socket_path(&socket_dir, port)?;

    let existed = dir.is_dir();
    make_private_dir(&dir)?;
    if let Some(user) = &user {
        user.own(&dir)?;
    }
    let marked = mark(&dir, &socket_dir);
    if marked.is_err() && !existed {
        let _ = fs::remove_file(dir.join(MARKER_NAME));
        let _ = fs::remove_dir(&dir);
    }
    let _lock = marked?;
    let result =
        options.registry.add(&dir).and_then(|()| make(&dir, &socket_dir, port, options, user.as_ref()));
    if result.is_err() {
        // What this attempt made goes; if even that fails, `down` can do it later.
        let _ = remove(&dir);
        if existed {
            let _ = fs::create_dir(&dir);
        }
        options.registry.remove(&dir);
    }
    result
}

/// The steps after the marker.
fn make(
    dir: &Path,
    socket_dir: &Path,
    port: u16,
    options: &UpOptions,
    user: Option<&OsUser>,
) -> Result<LocalCluster, LocalError> {
    make_socket_dir(socket_dir, user)?;
    let (data_dir, log) = (dir.join("data"), dir.join("log"));
    let begin = Instant::now();
    let mut command = process::command(&options.installation.program("initdb"), user, dir);
    command.arg("-D").arg(&data_dir).args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"]);
    match options.checksums {
        Some(true) => command.arg("--data-checksums"),
        // Older versions have no flag for it: there it is off by itself.
        Some(false) if options.installation.version.major >= 18 => command.arg("--no-data-checksums"),
        _ => &mut command,
    };
    command.args(&options.initdb);
    crate::sys::die_with_parent(&mut command, rustix::process::Signal::TERM);
    process::run_to_end(command, "initdb")?;
    let initdb_s = begin.elapsed().as_secs_f64();

    let hba = "# Written by pgfathom: the socket's folder is closed to other users, so it needs no password; TCP does.\n\
               local all all trust\nlocal replication all trust\n\
               host all all all scram-sha-256\nhost replication all all scram-sha-256\n";
    write_as(&data_dir.join("pg_hba.conf"), hba.as_bytes(), user)?;
    let mut port = port;
    let start_s = loop {
        write_settings(&data_dir, socket_dir, port, options, user)?;
        match start(&options.installation, &data_dir, &log, user) {
            // Somebody took the port between our look and the server's.
            Err(LocalError::Start { log, .. })
                if options.port.is_none() && log.contains("Address already in use") && port < u16::MAX =>
            {
                port = first_free_port(port + 1, socket_dir, options)?;
            }
            result => break result?,
        }
    };
    let spec = ConnSpec::unix(socket_dir, port, SUPERUSER, SUPERUSER);
    let file = ClusterFile {
        format: CLUSTER_FILE_FORMAT,
        engine: "postgres".to_owned(),
        made: Some(Made {
            by: concat!("pgfathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            kind: "single".to_owned(),
            binaries: options.installation.bin_dir.clone(),
            version: options.installation.version.to_string(),
            preset: options.preset.name().to_owned(),
            partitions: None,
            os_user: user.map(|user| user.name.clone()),
        }),
        node: vec![Node {
            name: "single".to_owned(),
            role: "primary".to_owned(),
            connection: spec.describe(),
            ssh: None,
            data_directory: Some(data_dir),
            log: Some(log),
        }],
    };
    file.write(&dir.join(CLUSTER_FILE_NAME))?;
    Ok(LocalCluster { dir: dir.to_owned(), file, spec, initdb_s, start_s })
}

/// Appends our settings to what initdb wrote, of which a copy is kept.
fn write_settings(
    data_dir: &Path,
    socket_dir: &Path,
    port: u16,
    options: &UpOptions,
    user: Option<&OsUser>,
) -> Result<(), LocalError> {
    let conf = data_dir.join("postgresql.conf");
    let original = data_dir.join("postgresql.conf.initdb");
    if !original.exists() {
        fs::copy(&conf, &original).map_err(LocalError::io("copy", &conf))?;
    }
    let mut text = fs::read_to_string(&original).map_err(LocalError::io("read", &original))?;
    let ours = [
        ("port", port.to_string()),
        ("listen_addresses", if options.tcp { "127.0.0.1" } else { "" }.to_owned()),
        ("unix_socket_directories", socket_dir.display().to_string()),
        ("unix_socket_permissions", "0700".to_owned()),
        ("log_line_prefix", "%m [%p] %q%u@%d ".to_owned()),
        ("lc_messages", "C".to_owned()),
    ];
    text.push_str("\n# Written by pgfathom up.\n");
    let ours = ours.into_iter().map(|(name, value)| (name.to_owned(), value));
    let settings =
        ours.chain(options.preset.settings(preset::memory_mb())).chain(options.settings.iter().cloned());
    for (name, value) in settings {
        text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    write_as(&conf, text.as_bytes(), user)
}

/// Starts a cluster of ours that is stopped, for example since the machine was restarted.
fn start_again(dir: &Path, options: &UpOptions, user: Option<&OsUser>) -> Result<LocalCluster, LocalError> {
    let lock = lock_marker(dir)?;
    let file = match ClusterFile::read(dir) {
        Ok(file) => file,
        Err(LocalError::Io { .. }) => return Err(LocalError::Incomplete { dir: dir.to_owned() }),
        Err(error) => return Err(error),
    };
    let (data_dir, log) = (dir.join("data"), dir.join("log"));
    if !process::servers_in(&data_dir).is_empty() {
        return Err(LocalError::AlreadyUp {
            dir: dir.to_owned(),
            connection: file.node[0].connection.clone(),
        });
    }
    // The binaries that made it, as long as they are there: another major version could not read the files.
    let made = file.made.as_ref().and_then(|made| Installation::at(&made.binaries).ok());
    let installation = made.unwrap_or_else(|| options.installation.clone());
    let socket_dir = marked_socket_dir(dir).unwrap_or_else(|| dir.join("run"));
    if PidFile::read(&data_dir).is_some() {
        // No server runs in this folder, whatever process has that number now; PostgreSQL itself would refuse to start.
        let path = data_dir.join("postmaster.pid");
        fs::remove_file(&path).map_err(LocalError::io("remove", &path))?;
        remove_sockets(&socket_dir, &data_dir);
    }
    make_socket_dir(&socket_dir, user)?;
    let start_s = start(&installation, &data_dir, &log, user)?;
    drop(lock);
    let port = PidFile::read(&data_dir).and_then(|pid_file| pid_file.port).unwrap_or(PORT_DEFAULT);
    let spec = ConnSpec::unix(&socket_dir, port, SUPERUSER, SUPERUSER);
    Ok(LocalCluster { dir: dir.to_owned(), file, spec, initdb_s: 0.0, start_s })
}

/// Starts the server and waits until it accepts connections; it stays when we go. Gives the time it took.
fn start(
    installation: &Installation,
    data_dir: &Path,
    log: &Path,
    user: Option<&OsUser>,
) -> Result<f64, LocalError> {
    let begin = Instant::now();
    let mut child = process::spawn_postmaster(installation, data_dir, log, user, Lifetime::Independent)?;
    match process::wait_ready(&mut child, data_dir, log, START_TIMEOUT) {
        Ok(()) => Ok(begin.elapsed().as_secs_f64()),
        Err(LocalError::Start { log, .. }) if log.is_empty() && free_bytes(data_dir) < DISK_FULL_BYTES => {
            // A full disk takes no log lines either.
            Err(LocalError::DiskFull { path: data_dir.to_owned(), free_bytes: free_bytes(data_dir) })
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether a server runs in the cluster's folder.
pub fn is_up(dir: &Path) -> bool {
    !process::servers_in(&dir.join("data")).is_empty()
}

/// Stops and removes a cluster of ours; works on what any interrupted `up` or `down` left.
pub fn down(dir: &Path, registry: &Registry) -> Result<Removed, LocalError> {
    let dir = std::path::absolute(dir).map_err(LocalError::io("find", dir))?;
    if !is_marked(&dir) {
        let there = dir.exists();
        if !there {
            registry.remove(&dir);
        }
        return Err(LocalError::NotOurs { dir, there });
    }
    let lock = lock_marker(&dir)?;
    let removed = remove(&dir)?;
    drop(lock);
    registry.remove(&dir);
    Ok(removed)
}

/// Stops the servers of a marked folder and removes everything of ours in it, the marker last.
fn remove(dir: &Path) -> Result<Removed, LocalError> {
    let mut removed = Removed::default();
    let data_dir = dir.join("data");
    if stop_server(&data_dir)? {
        removed.stopped += 1;
    }
    if let Some(outside) = marked_socket_dir(dir).filter(|socket_dir| !socket_dir.starts_with(dir)) {
        remove_outside_socket_dir(&outside, &data_dir);
    }
    for name in ["data", "run", "log", CLUSTER_FILE_NAME, "cluster.toml.new", MARKER_NAME] {
        if name == MARKER_NAME {
            let entries = fs::read_dir(dir).map_err(LocalError::io("read", dir))?;
            removed.left = entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| !path.ends_with(MARKER_NAME))
                .collect();
            removed.left.sort();
        }
        let path = dir.join(name);
        let result = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LocalError::io("remove", path)(error));
            }
            _ => {}
        }
    }
    if removed.left.is_empty() {
        fs::remove_dir(dir).map_err(LocalError::io("remove", dir))?;
    }
    Ok(removed)
}

/// Stops whatever server runs in a data directory: fast, then at once, then with force. False when none runs.
pub(super) fn stop_server(data_dir: &Path) -> Result<bool, LocalError> {
    let Some(postmaster) = process::postmaster_in(data_dir) else { return Ok(false) };
    let steps = [
        (rustix::process::Signal::INT, FAST_STOP_TIMEOUT),
        (rustix::process::Signal::QUIT, IMMEDIATE_STOP_TIMEOUT),
        (rustix::process::Signal::KILL, IMMEDIATE_STOP_TIMEOUT),
    ];
    for (signal, timeout) in steps {
        process::send_signal(postmaster, signal).map_err(LocalError::io("signal the server in", data_dir))?;
        let begin = Instant::now();
        while begin.elapsed() < timeout {
            if process::servers_in(data_dir).is_empty() {
                return Ok(true);
            }
            std::thread::sleep(process::POLL_INTERVAL);
        }
    }
    let waited_s = steps.iter().map(|(_, timeout)| timeout.as_secs()).sum();
    Err(LocalError::NotStopped { data_dir: data_dir.to_owned(), pid: postmaster, waited_s })
}

/// Whether the folder carries our marker.
pub(super) fn is_marked(dir: &Path) -> bool {
    fs::read_to_string(dir.join(MARKER_NAME)).is_ok_and(|text| text.lines().next() == Some(MARKER_FIRST_LINE))
}

/// Writes the marker and holds its lock.
fn mark(dir: &Path, socket_dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(MARKER_NAME);
    let text =
        format!("{MARKER_FIRST_LINE}\npid {}\nsocket_dir {}\n", std::process::id(), socket_dir.display());
    let write = || -> io::Result<File> {
        let mut file = File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
        file.lock()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(file)
    };
    write().map_err(LocalError::io("write", &path))
}

/// Takes the marker's lock, or says who has it.
fn lock_marker(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(MARKER_NAME);
    let mut file = File::open(&path).map_err(LocalError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => {
            let mut text = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
            let pid = text.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
            Err(LocalError::Busy { dir: dir.to_owned(), pid })
        }
    }
}

fn marked_socket_dir(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(MARKER_NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("socket_dir ")).map(PathBuf::from)
}

/// Removes our socket from a folder outside; the folder itself only when it is one that we made.
fn remove_outside_socket_dir(socket_dir: &Path, data_dir: &Path) {
    remove_sockets(socket_dir, data_dir);
    if is_short_socket_dir(socket_dir) {
        let _ = fs::remove_dir(socket_dir);
    }
}

/// Removes the sockets and their lock files that a dead server of this data directory left.
fn remove_sockets(socket_dir: &Path, data_dir: &Path) {
    for entry in fs::read_dir(socket_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // The lock file names the data directory in its second line, so sockets of others stay.
        let ours = fs::read_to_string(&path)
            .is_ok_and(|text| text.lines().nth(1).is_some_and(|line| Path::new(line) == data_dir));
        if path.extension().is_some_and(|extension| extension == "lock") && ours {
            let _ = fs::remove_file(path.with_extension(""));
            let _ = fs::remove_file(&path);
        }
    }
}

/// Names of socket folders that `up` makes under `/tmp`.
const SHORT_SOCKET_PREFIX: &str = "pgfathom-s-";

fn choose_socket_dir(dir: &Path, options: &UpOptions) -> Result<PathBuf, LocalError> {
    if let Some(named) = &options.socket_dir {
        return std::path::absolute(named).map_err(LocalError::io("find", named));
    }
    let inside = dir.join("run");
    if check_socket_path(&inside, u16::MAX).is_ok() {
        return Ok(inside);
    }
    let candidates = (0..)
        .map(|number| PathBuf::from(format!("/tmp/{SHORT_SOCKET_PREFIX}{}-{number}", std::process::id())));
    Ok(candidates.into_iter().find(|path| !path.exists()).unwrap_or(inside))
}

fn check_socket_path(socket_dir: &Path, port: u16) -> Result<(), LocalError> {
    let path = socket_dir.join(format!(".s.PGSQL.{port}"));
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(LocalError::SocketPath { path, limit_bytes: SOCKET_PATH_BYTES_MAX });
    }
    Ok(())
}

/// The port that was asked for, if nobody has it; else the first free one.
fn choose_port(socket_dir: &Path, options: &UpOptions) -> Result<u16, LocalError> {
    match options.port {
        Some(port) => match who_listens(port, socket_dir, options.tcp) {
            Some(place) => Err(LocalError::PortInUse { port, place }),
            None => Ok(port),
        },
        None => first_free_port(PORT_DEFAULT, socket_dir, options),
    }
}

fn first_free_port(from: u16, socket_dir: &Path, options: &UpOptions) -> Result<u16, LocalError> {
    /// How many ports are looked at.
    const TRIES: u16 = 200;
    (from..from.saturating_add(TRIES))
        .find(|port| who_listens(*port, socket_dir, options.tcp).is_none())
        .ok_or_else(|| LocalError::PortInUse { port: from, place: "every port from there".to_owned() })
}

/// Where somebody listens on that port already, if anybody does.
fn who_listens(port: u16, socket_dir: &Path, tcp: bool) -> Option<String> {
    let socket = socket_dir.join(format!(".s.PGSQL.{port}"));
    // A socket without a server behind it is a leftover, which PostgreSQL removes by itself.
    if UnixStream::connect(&socket).is_ok() {
        return Some(format!("the socket {}", socket.display()));
    }
    match TcpListener::bind(("127.0.0.1", port)) {
        Err(error) if tcp && error.kind() == io::ErrorKind::AddrInUse => Some(format!("127.0.0.1:{port}")),
        _ => None,
    }
}

/// The server's user must be able to walk to the folder's parent (the folder itself will be its own) or to the file.
fn check_reachable(user: &OsUser, path: &Path) -> Result<(), LocalError> {
    let blocked = path
        .ancestors()
        .skip(1)
        .filter(|folder| folder.is_dir())
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .find(|folder| !user.may_enter(folder));
    match blocked {
        Some(blocked) => Err(LocalError::Unreachable {
            user: user.name.clone(),
            path: path.to_owned(),
            blocked: blocked.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Makes a folder that only its owner (and root) may enter, with the folders above it. One that is there is taken as it is.
fn make_private_dir(dir: &Path) -> Result<(), LocalError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(LocalError::io("create", parent))?;
    }
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(LocalError::io("create", dir))
}

/// Makes the socket's folder and gives it to the server's user; one that is there belongs to somebody and is left alone.
fn make_socket_dir(dir: &Path, user: Option<&OsUser>) -> Result<(), LocalError> {
    if dir.is_dir() && !is_short_socket_dir(dir) {
        return Ok(());
    }
    if is_short_socket_dir(dir) {
        // In a folder where everybody may write, only one that nobody made before us is safe.
        let _ = fs::remove_dir(dir);
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(LocalError::io("create", dir))?;
    } else {
        make_private_dir(dir)?;
    }
    user.map_or(Ok(()), |user| user.own(dir))
}

fn is_short_socket_dir(dir: &Path) -> bool {
    dir.parent() == Some(Path::new("/tmp"))
        && dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SHORT_SOCKET_PREFIX))
}

/// Writes a file as the server's own.
fn write_as(path: &Path, content: &[u8], user: Option<&OsUser>) -> Result<(), LocalError> {
    fs::write(path, content).map_err(LocalError::io("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(LocalError::io("chmod", path))?;
    user.map_or(Ok(()), |user| user.own(path))
}
