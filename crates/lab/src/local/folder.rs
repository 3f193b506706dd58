//! The folder of a cluster: its marker, its lock, the socket's folder, and ports.
//!
//! The marker is written before anything else and removed last, so whatever interrupts `up` or `down`, it exists and lists the rest.

use connect::poll;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::LocalError;
use super::process;
use connect::os_user::OsUser;

/// A child that another thread has just forked holds a released lock for a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// The marker file of a folder.
pub(super) const MARKER_NAME: &str = ".pgfathom-cluster";
/// Its first line.
const MARKER_FIRST_LINE: &str = "pgfathom cluster 1";
/// The longest path of a Unix socket on Linux, in bytes (`sun_path` less its terminating zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Names of socket folders that `up` makes under `/tmp`.
const SHORT_SOCKET_PREFIX: &str = "pgfathom-s-";

/// Whether the folder carries our marker.
pub(super) fn is_marked(dir: &Path) -> bool {
    fs::read_to_string(dir.join(MARKER_NAME)).is_ok_and(|text| text.lines().next() == Some(MARKER_FIRST_LINE))
}

/// Checks that what the marker lists was made for us: by our user or, if that is root, for the user that servers run as. In a folder of another person a
/// node could be a link to anything.
pub(super) fn check_owner(dir: &Path) -> Result<(), LocalError> {
    let ours = rustix::process::geteuid().as_raw();
    let servers = process::server_user().ok().flatten().map(|user| user.uid);
    for path in [dir.to_owned()].into_iter().chain(marked_node_dirs(dir)) {
        let there = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(LocalError::io("look at", &path))?,
        };
        let owner = there.uid();
        if owner != ours && Some(owner) != servers {
            return Err(LocalError::OfOther { path, problem: format!("it belongs to user {owner}") });
        }
        if !there.is_dir() && path != dir {
            return Err(LocalError::OfOther { path, problem: "it is no folder".to_owned() });
        }
    }
    Ok(())
}

/// A folder that stays the same one while it is used, whatever its path leads to by then.
pub(super) struct Held {
    open: File,
    path: PathBuf,
}

impl Held {
    /// A path to it.
    pub(super) fn path(&self) -> PathBuf {
        let number = self.open.as_raw_fd();
        if cfg!(target_os = "linux") {
            PathBuf::from(format!("/proc/self/fd/{number}"))
        } else {
            self.path.clone()
        }
    }
}

/// Opens a folder, and no link to one; `None` if it is not there.
pub(super) fn held(dir: &Path) -> Result<Option<Held>, LocalError> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::empty()) {
        Ok(open) => Ok(Some(Held { open: open.into(), path: dir.to_owned() })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(LocalError::io("open", dir)(error.into())),
    }
}

/// Writes the marker and holds its lock. `subfolders` are those of the nodes; a single server has none, because it is in the folder itself.
pub(super) fn mark(dir: &Path, socket_dir: &Path, subfolders: &[String]) -> Result<File, LocalError> {
    let path = dir.join(MARKER_NAME);
    let mut text =
        format!("{MARKER_FIRST_LINE}\npid {}\nsocket_dir {}\n", std::process::id(), socket_dir.display());
    text.extend(subfolders.iter().map(|name| format!("node {name}\n")));
    let write = || -> io::Result<File> {
        let mut file = File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
        file.lock()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(file)
    };
    write().map_err(LocalError::io("write", &path))
}

/// Takes the marker's lock, or reports who holds it.
pub(super) fn lock_marker(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(MARKER_NAME);
    let mut file = File::open(&path).map_err(LocalError::io("open", &path))?;
    if poll::until(LOCK_PATIENCE, || file.try_lock().ok()).is_none() {
        let mut text = String::new();
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
        let pid = text.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        return Err(LocalError::Busy { dir: dir.to_owned(), pid });
    }
    Ok(file)
}

pub(super) fn marked_socket_dir(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(MARKER_NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("socket_dir ")).map(PathBuf::from)
}

/// The folders with one server each: those of the nodes, or the cluster's own.
pub(super) fn marked_node_dirs(dir: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(dir.join(MARKER_NAME)).unwrap_or_default();
    let plain = |name: &&str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let named: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.strip_prefix("node "))
        .filter(plain)
        .map(|name| dir.join(name))
        .collect();
    if named.is_empty() { vec![dir.to_owned()] } else { named }
}

/// Removes the sockets of these data directories from a folder outside; the folder itself only if we made it.
pub(super) fn remove_outside_socket_dir(socket_dir: &Path, data_dirs: &[PathBuf]) {
    for data_dir in data_dirs {
        remove_sockets(socket_dir, data_dir);
    }
    if is_short_socket_dir(socket_dir) {
        let _ = fs::remove_dir(socket_dir);
    }
}

/// Removes the sockets and their lock files that a dead server of this data directory left.
pub(super) fn remove_sockets(socket_dir: &Path, data_dir: &Path) {
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

/// The named folder, else one inside the cluster's folder, else a short one if that path is too long.
pub(super) fn choose_socket_dir(dir: &Path, named: Option<&Path>) -> Result<PathBuf, LocalError> {
    if let Some(named) = named {
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

pub(super) fn check_socket_path(socket_dir: &Path, port: u16) -> Result<(), LocalError> {
    let path = socket_dir.join(format!(".s.PGSQL.{port}"));
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(LocalError::SocketPath { path, limit_bytes: SOCKET_PATH_BYTES_MAX });
    }
    Ok(())
}

/// The port that was requested, if it is free.
pub(super) fn claim_port(port: u16, socket_dir: &Path, tcp: bool) -> Result<u16, LocalError> {
    match who_listens(port, socket_dir, tcp) {
        Some(place) => Err(LocalError::PortInUse { port, place }),
        None => Ok(port),
    }
}

pub(super) fn first_free_port(from: u16, socket_dir: &Path, tcp: bool) -> Result<u16, LocalError> {
    /// How many ports are looked at.
    const TRIES: u16 = 200;
    (from..from.saturating_add(TRIES))
        .find(|port| who_listens(*port, socket_dir, tcp).is_none())
        .ok_or_else(|| LocalError::PortInUse { port: from, place: "every port from there".to_owned() })
}

/// The address where a program listens on that port already, if one does.
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

/// The server's user must have access to the folder's parent (it will own the folder itself) or to the file.
pub(super) fn check_reachable(user: &OsUser, path: &Path) -> Result<(), LocalError> {
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

/// Makes a folder that only its owner (and root) may enter, with the folders above it. An existing one is used as it is.
pub(super) fn make_private_dir(dir: &Path) -> Result<(), LocalError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(LocalError::io("create", parent))?;
    }
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(LocalError::io("create", dir))
}

/// Makes the socket's folder and gives it to the server's user; an existing one belongs to another program and is left alone.
pub(super) fn make_socket_dir(dir: &Path, user: Option<&OsUser>) -> Result<(), LocalError> {
    if dir.is_dir() && !is_short_socket_dir(dir) {
        return Ok(());
    }
    if is_short_socket_dir(dir) {
        // In a folder where every user may write, only a new folder of ours is safe.
        let _ = fs::remove_dir(dir);
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(LocalError::io("create", dir))?;
    } else {
        make_private_dir(dir)?;
    }
    user.map_or(Ok(()), |user| process::give(dir, user))
}

fn is_short_socket_dir(dir: &Path) -> bool {
    dir.parent() == Some(Path::new("/tmp"))
        && dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SHORT_SOCKET_PREFIX))
}

/// Writes a file as the server's own.
pub(crate) fn write_as(path: &Path, content: &[u8], user: Option<&OsUser>) -> Result<(), LocalError> {
    process::with_files_of(user, || {
        fs::write(path, content).map_err(LocalError::io("write", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(LocalError::io("chmod", path))
    })
}
