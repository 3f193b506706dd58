//! The folder of a cluster: its marker, its lock, the socket's folder, and ports.
//!
//! The marker is written before anything else and removed last, so whatever interrupts `up` or `down`, it exists and lists the rest.

use connect::poll;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::AtFlags;

use super::LocalError;
use super::process;
use super::text::TEXT_BYTES_MAX;
pub(crate) use super::text::text_of;
use connect::os_user::OsUser;
use record::held::Held;
use record::owner;

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
    text_of(&dir.join(MARKER_NAME)).is_ok_and(|text| text.lines().next() == Some(MARKER_FIRST_LINE))
}

/// Checks that what the marker lists was made for us: by our user or, if that is root, for the user that servers run as. In a folder of another person a
/// node could be a link to anything.
pub(super) fn check_owner(dir: &Path) -> Result<(), LocalError> {
    let node_dirs = marked_node_dirs(dir);
    let data_dirs = node_dirs.iter().map(|node| node.join("data")).collect::<Vec<_>>();
    let programs = ["etcd", "haproxy", "relays"].map(|name| dir.join(name));
    for path in [dir.to_owned()].into_iter().chain(node_dirs).chain(data_dirs).chain(programs) {
        let there = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(LocalError::io("look at", &path))?,
        };
        let owner = there.uid();
        if !process::is_ours(owner) {
            return Err(LocalError::OfOther { path, problem: format!("it belongs to user {owner}") });
        }
        if !there.is_dir() && path != dir {
            return Err(LocalError::OfOther { path, problem: "it is no folder".to_owned() });
        }
    }
    Ok(())
}

/// Gives a folder to `user`.
fn give(folder: &Held, user: Option<&OsUser>) -> Result<(), LocalError> {
    let give = |user: &OsUser| std::os::unix::fs::fchown(folder.file(), Some(user.uid), Some(user.gid));
    user.map_or(Ok(()), give).map_err(LocalError::io("chown", folder.path()))
}

/// Takes the folder of a new cluster for `user`: makes it, or accepts an empty one of ours. Returns whether it was there.
///
/// It is held while it is looked at, and it becomes private first: after that no one else can put anything into it.
pub(super) fn take(dir: &Path, user: Option<&OsUser>) -> Result<bool, LocalError> {
    let other = |problem: String| LocalError::Unsafe { path: dir.to_owned(), problem };
    if user.is_some() {
        check_above(dir)?;
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(LocalError::io("create", parent))?;
    }
    let existed = match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
        Err(error) => return Err(LocalError::io("create", dir)(error)),
    };
    if fs::symlink_metadata(dir).is_ok_and(|there| there.is_symlink()) {
        return Err(other("it is a symbolic link".to_owned()));
    }
    let open = held(dir)?.ok_or_else(|| other("it was removed while it was looked at".to_owned()))?;
    let there = open.file().metadata().map_err(LocalError::io("look at", dir))?;
    if !process::is_ours(there.uid()) {
        return Err(other(format!("it belongs to user {}", there.uid())));
    }
    if owner::is_open_to_all(&there) {
        return Err(other("every user may write into it".to_owned()));
    }
    // This also ends what an access control list grants to others.
    open.file().set_permissions(fs::Permissions::from_mode(0o700)).map_err(LocalError::io("chmod", dir))?;
    let mut entries = fs::read_dir(open.place()).map_err(LocalError::io("read", dir))?;
    if entries.next().is_some() {
        return Err(LocalError::NotEmpty { dir: dir.to_owned() });
    }
    give(&open, user)?;
    Ok(existed)
}

/// As root: in a folder where every user may rename entries of others, a path may lead to another place a moment later.
fn check_above(dir: &Path) -> Result<(), LocalError> {
    let Some(above) = dir.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok()) else {
        return Ok(());
    };
    for folder in above.ancestors() {
        let there = fs::metadata(folder).map_err(LocalError::io("look at", folder))?;
        if owner::is_renamed_by_all(&there) {
            let problem = format!("every user may rename what is in {}", folder.display());
            return Err(LocalError::Unsafe { path: dir.to_owned(), problem });
        }
    }
    Ok(())
}

/// The folder above one, which stays the same while something is removed from it, whatever its path leads to by then.
pub(super) struct Above {
    open: File,
    name: OsString,
}

impl Above {
    /// Of the folder of a cluster.
    pub(super) fn of(dir: &Path) -> Result<Above, LocalError> {
        let name = dir.file_name().map(ToOwned::to_owned);
        let (Some(name), Some(parent)) = (name, dir.parent()) else {
            return Err(LocalError::Unsafe { path: dir.to_owned(), problem: "it has no name".to_owned() });
        };
        let open = File::open(parent).map_err(LocalError::io("open", parent))?;
        Ok(Above { open, name })
    }

    /// Removes the empty folder `held` under its name, unless something else has that name by now.
    pub(super) fn remove(&self, held: &Held) -> io::Result<()> {
        let there = rustix::fs::statat(&self.open, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ours = rustix::fs::fstat(held.file())?;
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) {
            return Err(io::Error::other("something else has taken its place"));
        }
        Ok(rustix::fs::unlinkat(&self.open, &self.name, AtFlags::REMOVEDIR)?)
    }
}

/// Opens a folder, and no link to one; `None` if it is not there.
pub(super) fn held(dir: &Path) -> Result<Option<Held>, LocalError> {
    match Held::open(dir) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LocalError::io("open", dir)(error)),
    }
}

/// Writes the marker and holds its lock. `subfolders` are those of the nodes; a single server has none, because it is in the folder itself.
pub(super) fn mark(
    dir: &Path,
    socket_dir: &Path,
    subfolders: &[String],
    user: Option<&OsUser>,
) -> Result<File, LocalError> {
    let path = dir.join(MARKER_NAME);
    let mut text =
        format!("{MARKER_FIRST_LINE}\npid {}\nsocket_dir {}\n", std::process::id(), socket_dir.display());
    text.extend(subfolders.iter().map(|name| format!("node {name}\n")));
    let write = || -> io::Result<File> {
        let mut file = process::with_files_of(user, || record::file::create(&path))?;
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
    let mut file = record::file::open(&path).map_err(LocalError::io("open", &path))?;
    if poll::until(LOCK_PATIENCE, || file.try_lock().ok()).is_none() {
        let mut text = String::new();
        let _ = file.rewind().and_then(|()| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        let pid = text.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        return Err(LocalError::Busy { dir: dir.to_owned(), pid });
    }
    Ok(file)
}

pub(super) fn marked_socket_dir(dir: &Path) -> Option<PathBuf> {
    let text = text_of(&dir.join(MARKER_NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("socket_dir ")).map(PathBuf::from)
}

/// The folders with one server each: those of the nodes, or the cluster's own.
pub(super) fn marked_node_dirs(dir: &Path) -> Vec<PathBuf> {
    let text = text_of(&dir.join(MARKER_NAME)).unwrap_or_default();
    let plain = |name: &&str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let named: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.strip_prefix("node "))
        .filter(plain)
        .map(|name| dir.join(name))
        .collect();
    if named.is_empty() { vec![dir.to_owned()] } else { named }
}

/// Removes the sockets of these data directories from a folder outside; the folder itself only if we made it. The marker names it, which is a file of the
/// servers' user, so it is removed with the rights of that user.
pub(super) fn remove_outside_socket_dir(socket_dir: &Path, data_dirs: &[PathBuf]) {
    for data_dir in data_dirs {
        remove_sockets(socket_dir, data_dir);
    }
    if is_short_socket_dir(socket_dir)
        && let Some(user) =
            data_dirs.iter().flat_map(|data_dir| data_dir.ancestors().take(2)).find_map(rights_of_owner)
    {
        let _ = process::with_files_of(user.as_ref(), || fs::remove_dir(socket_dir));
    }
}

/// The rights with which files of the owner of a path are changed: as root those of that user, else ours (`Some(None)`). `None` if it is not there.
fn rights_of_owner(path: &Path) -> Option<Option<OsUser>> {
    let owner = fs::symlink_metadata(path).ok()?.uid();
    match rustix::process::geteuid().is_root() && owner != 0 {
        true => OsUser::by_uid(owner).map(Some),
        false => Some(None),
    }
}

/// Removes the sockets and their lock files that a dead server of this data directory left. The folder may be one where every user writes: only what belongs
/// to the server's user is read and removed.
pub(super) fn remove_sockets(socket_dir: &Path, data_dir: &Path) {
    let Ok(owner) = fs::symlink_metadata(data_dir).map(|there| there.uid()) else { return };
    // With the rights of that user: the folder, too, could be replaced between a look and a removal.
    let user = rustix::process::geteuid().is_root().then(|| OsUser::by_uid(owner)).flatten();
    process::with_files_of(user.as_ref(), || remove_sockets_of(owner, socket_dir, data_dir));
}

fn remove_sockets_of(owner: u32, socket_dir: &Path, data_dir: &Path) {
    for entry in fs::read_dir(socket_dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let port = name.strip_prefix(".s.PGSQL.").and_then(|rest| rest.strip_suffix(".lock"));
        if port.and_then(|port| port.parse::<u16>().ok()).is_none() {
            continue;
        }
        let lock = entry.path();
        if names_folder(&lock, data_dir, owner) {
            let socket = lock.with_extension("");
            if fs::symlink_metadata(&socket)
                .is_ok_and(|there| there.file_type().is_socket() && there.uid() == owner)
            {
                let _ = fs::remove_file(&socket);
            }
            let _ = fs::remove_file(&lock);
        }
    }
}

/// Whether this lock file of a socket belongs to `owner` and names the data directory in its second line: sockets of others stay.
fn names_folder(lock: &Path, data_dir: &Path, owner: u32) -> bool {
    let read = || -> io::Result<bool> {
        let file = record::file::open(lock)?;
        if file.metadata()?.uid() != owner {
            return Ok(false);
        }
        let mut text = String::new();
        file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text.lines().nth(1).is_some_and(|line| Path::new(line) == data_dir))
    };
    read().unwrap_or(false)
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

/// Makes a folder that only its owner (and root) may enter, with the rights of `user`, in a folder of that user. There must be nothing of that name.
pub(super) fn make_dir_as(dir: &Path, user: Option<&OsUser>) -> Result<(), LocalError> {
    let make = || fs::DirBuilder::new().mode(0o700).create(dir);
    process::with_files_of(user, make).map_err(LocalError::io("create", dir))
}

/// Makes the socket's folder of a new cluster in `cluster` for the server's user; an existing one belongs to another program and is left alone.
pub(super) fn make_socket_dir(dir: &Path, cluster: &Path, user: Option<&OsUser>) -> Result<(), LocalError> {
    if dir.starts_with(cluster) {
        return make_dir_as(dir, user);
    }
    if is_short_socket_dir(dir) {
        // In a folder where every user may write, only a new folder of ours is safe, or one that no one else can enter. An empty one of the server's user goes.
        if process::with_files_of(user, || fs::remove_dir(dir)).is_err() && is_closed(dir, user) {
            return Ok(());
        }
    } else if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(LocalError::io("create", parent))?;
    }
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(LocalError::io("create", dir))?;
    let gone = || LocalError::Unsafe {
        path: dir.to_owned(),
        problem: "it was removed while it was looked at".to_owned(),
    };
    give(&held(dir)?.ok_or_else(gone)?, user)
}

/// Whether this is a folder of the server's user that no one else can enter: of another server of the cluster, or of one that was killed.
fn is_closed(dir: &Path, user: Option<&OsUser>) -> bool {
    let owner = user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    fs::symlink_metadata(dir)
        .is_ok_and(|there| there.is_dir() && there.uid() == owner && there.mode() & 0o077 == 0)
}

/// The same for a cluster that is started again. Its marker names the folder, and the marker is a file of the server's user: that user's rights are enough for
/// any folder but a short one, which `up` itself made.
pub(super) fn make_socket_dir_again(
    dir: &Path,
    cluster: &Path,
    user: Option<&OsUser>,
) -> Result<(), LocalError> {
    match (is_short_socket_dir(dir), dir.is_dir()) {
        (true, _) => make_socket_dir(dir, cluster, user),
        (false, true) => Ok(()),
        (false, false) => make_dir_as(dir, user),
    }
}

fn is_short_socket_dir(dir: &Path) -> bool {
    dir.parent() == Some(Path::new("/tmp"))
        && dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SHORT_SOCKET_PREFIX))
}

/// Writes a file as the server's own.
pub(crate) fn write_as(path: &Path, content: &[u8], user: Option<&OsUser>) -> Result<(), LocalError> {
    process::with_files_of(user, || record::file::overwrite(path, content))
        .map_err(LocalError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_that_was_held_is_removed_under_its_name() {
        let base = std::env::temp_dir().join(format!("pgfathom-above-{}", std::process::id()));
        let (pg, moved) = (base.join("pg"), base.join("moved"));
        fs::create_dir_all(&pg).unwrap();
        let (above, ours) = (Above::of(&pg).unwrap(), held(&pg).unwrap().unwrap());
        fs::rename(&pg, &moved).unwrap();
        fs::create_dir(&pg).unwrap();
        assert!(above.remove(&ours).unwrap_err().to_string().contains("taken its place"));
        fs::remove_dir(&pg).unwrap();
        std::os::unix::fs::symlink(&moved, &pg).unwrap();
        assert!(above.remove(&ours).is_err() && moved.is_dir());
        fs::remove_file(&pg).unwrap();
        fs::rename(&moved, &pg).unwrap();
        above.remove(&ours).unwrap();
        assert!(!pg.exists());
        fs::remove_dir(&base).unwrap();
    }
}
