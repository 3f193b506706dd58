//! Runs that write into a cluster which is about to be removed.

use std::path::Path;
use std::time::Duration;

use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use connect::control;

use super::{folder, process};

/// A server that is stopped or hangs is removed all the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// The server process that holds the mark of a run, and the node; `None` if no node that answers has one.
pub(super) fn active_run(dir: &Path) -> Option<(String, i32)> {
    let runs =
        folder::marked_node_dirs(dir).iter().any(|node| !process::servers_in(&node.join("data")).is_empty());
    let file = ClusterFile::read(dir).ok().filter(|_| runs)?;
    file.node.iter().find_map(|node| {
        let mut spec = file.resolve(&node.connection, &Sources::of_process()).ok()?.spec;
        spec.connect_timeout.get_or_insert(PATIENCE);
        let mut control = control::connect(&spec).ok()?;
        control.set_patience(PATIENCE);
        // Of all databases: the view is the whole server's.
        let held = control.query_opt(
            "select pid from pg_catalog.pg_locks where locktype = 'advisory' and granted and objsubid = 1 and classid::int8 = $1 and pid is not null
             limit 1",
            &[&i64::from(engines::LOCK_CLASS)],
        );
        Some((node.name.clone(), held.ok()??.get(0)))
    })
}
