//! Runs that write into a cluster which is about to be removed.

use std::path::Path;
use std::time::Duration;

use connect::ConnSpec;
use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use connect::control;
use engines::lock::{self, Key, LOCK_CLASS};

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
        let held = control.query(
            "select distinct on (l.pid) l.pid, d.datname::text, l.classid::int8 << 32 | l.objid::int8
             from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
             where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.classid::int8 = $1 and l.pid is not null",
            &[&i64::from(LOCK_CLASS)],
        );
        let mut held = held.ok()?.into_iter().map(|row| (row.get(0), row.get::<_, String>(1), row.get(2)));
        let pid = held.find_map(|(pid, dbname, number)| may_be_run(&spec, &dbname, number).then_some(pid))?;
        Some((node.name.clone(), pid))
    })
}

/// Whether the mark in this database is held by a role that can write there as a run does. Any role can take the lock.
fn may_be_run(spec: &ConnSpec, dbname: &str, number: i64) -> bool {
    let Ok(mut control) = control::connect(&spec.clone().with_dbname(dbname)) else { return true };
    control.set_patience(PATIENCE);
    lock::holder(&mut *control, Key::One(number)).is_none_or(|holder| holder.may_load)
}
