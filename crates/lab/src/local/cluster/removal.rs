//! Removes a cluster's folder with its servers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use connect::cluster_file::CLUSTER_FILE_NAME;
use record::held::Held;

use super::super::folder::{self, Above, MARKER_NAME};
use super::super::relays::Relays;
use super::super::{LocalError, patroni, server, topology};
use super::Removed;

/// Stops the servers of a marked folder and removes everything of ours in it, the marker last.
///
/// The folders are held from the beginning: what their owner puts in their place while a server stops is not removed.
pub(super) fn remove(dir: &Path) -> Result<Removed, LocalError> {
    let mut removed = Removed::default();
    let above = Above::of(dir)?;
    let Some(held) = folder::held(dir)? else { return Ok(removed) };
    let node_dirs = folder::marked_node_dirs(dir);
    let held_nodes =
        node_dirs.iter().map(|node| held_node(&held, dir, node)).collect::<Result<Vec<_>, _>>()?;
    let data_dirs: Vec<PathBuf> = node_dirs.iter().map(|node| node.join("data")).collect();
    let at_node = |error: LocalError, number: usize| match node_dirs[number].file_name() {
        Some(name) if node_dirs.len() > 1 => error.on(&name.to_string_lossy()),
        _ => error,
    };
    patroni::end_programs(dir, &node_dirs)?;
    Relays::of(dir).kill()?;
    remove_entry(Relays::of(&held.place()).folder())?;
    let stopped = topology::at_once(data_dirs.len(), |number| {
        server::stop_for_good(&data_dirs[number]).map_err(|error| at_node(error, number))
    })?;
    removed.stopped =
        u32::try_from(stopped.into_iter().filter(|stopped| *stopped).count()).unwrap_or(u32::MAX);
    if let Some(outside) = folder::marked_socket_dir(dir).filter(|socket_dir| !socket_dir.starts_with(dir)) {
        folder::remove_outside_socket_dir(&outside, &data_dirs);
    }
    let node_paths: Vec<PathBuf> = held_nodes.iter().flatten().map(Held::place).collect();
    for path in patroni::leftovers(&held.place(), &node_paths) {
        remove_entry(&path)?;
    }
    for (node_dir, node) in std::iter::zip(&node_dirs, &held_nodes) {
        let Some(node) = node else { continue };
        remove_entry(&node.place().join("data"))?;
        remove_entry(&node.place().join("log"))?;
        let is_empty = fs::read_dir(node.place()).is_ok_and(|mut entries| entries.next().is_none());
        if let (true, true, Some(name)) = (node_dir != dir, is_empty, node_dir.file_name()) {
            remove_entry(&held.place().join(name))?;
        }
    }
    for name in ["run", CLUSTER_FILE_NAME, "cluster.toml.new"] {
        remove_entry(&held.place().join(name))?;
    }
    let entries = fs::read_dir(held.place()).map_err(LocalError::io("read", dir))?;
    let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| name != MARKER_NAME);
    removed.left = names.map(|name| dir.join(name)).collect();
    removed.left.sort();
    remove_entry(&held.place().join(MARKER_NAME))?;
    if removed.left.is_empty() {
        above.remove(&held).map_err(LocalError::io("remove", dir))?;
    }
    Ok(removed)
}

/// The folder of a node below the held folder of its cluster, which may be that folder itself.
fn held_node(cluster: &Held, dir: &Path, node: &Path) -> Result<Option<Held>, LocalError> {
    match node.file_name() {
        Some(name) if node != dir => folder::held(&cluster.place().join(name)),
        _ => folder::held(&cluster.place().join(".")),
    }
}

/// Removes a file or a folder with its content, and of a link the link itself; a missing one is no error.
fn remove_entry(path: &Path) -> Result<(), LocalError> {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
    let result = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LocalError::io("remove", path)(error)),
        _ => Ok(()),
    }
}
