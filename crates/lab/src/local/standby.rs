//! Copies the files of a running server for new standbys.
//!
//! `pg_basebackup` is not in every set of binaries, so this is the low-level way that PostgreSQL documents ("Making a Base Backup Using the Low Level API"):
//! `pg_backup_start` on a connection that stays open, copy the data directory without the files that a backup excludes, `pg_backup_stop`, and write the
//! `backup_label` that it returns. The WAL in between comes by streaming, kept by the standby's slot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::LocalError;
use super::folder::{make_dir_as, write_as};
use super::process;
use connect::ConnSpec;
use connect::control::{self, Control};
use connect::os_user::OsUser;

/// Folders whose content a copy leaves out; the folders themselves must exist (`excludeDirContents` in `basebackup.c`, and `pg_wal`).
const EMPTY_DIRS: [&str; 8] = [
    "pg_wal",
    "pg_replslot",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
];
/// Files that a copy leaves out (`excludeFiles` there). The copy's own signal files are written after.
const LEFT_OUT: [&str; 8] = [
    "postmaster.pid",
    "postmaster.opts",
    "postgresql.auto.conf.tmp",
    "current_logfiles.tmp",
    "backup_label",
    "tablespace_map",
    "backup_manifest",
    "standby.signal",
];
/// Names with these prefixes are left out everywhere.
const LEFT_OUT_PREFIXES: [&str; 2] = ["pgsql_tmp", "pg_internal.init"];

/// Copies the files of the running server at `primary` (in `data_dir`) to each of `targets`, as standbys that have not started yet.
/// Their settings are those of the primary until the caller writes others. Tablespaces are refused: a copy on the same host would write into the originals.
pub(crate) fn copy(
    primary: &ConnSpec,
    data_dir: &Path,
    targets: &[PathBuf],
    user: Option<&OsUser>,
) -> Result<(), LocalError> {
    let mut client = control::connect(primary)?;
    let major = client.server_version_num().map_err(sql("read the version"))? / 10_000;
    refuse_tablespaces(&mut client)?;
    let start = if major >= 15 {
        "select pg_catalog.pg_backup_start('pgfathom standby', true)::text"
    } else {
        "select pg_catalog.pg_start_backup('pgfathom standby', true, false)::text"
    };
    client.query_one(start, &[]).map_err(sql("begin a backup"))?;
    for target in targets {
        if !is_empty(target) {
            make_dir_as(target, user)?;
        }
        // With the rights of the user who owns both: what that user puts in their place leads to nothing that the user may not reach.
        process::with_files_of(user, || copy_folder(data_dir, target, true))?;
    }
    let stop = if major >= 15 {
        "select labelfile from pg_catalog.pg_backup_stop(false)"
    } else {
        "select labelfile from pg_catalog.pg_stop_backup(false, false)"
    };
    let label: String = client.query_one(stop, &[]).map_err(sql("end the backup"))?.get(0);
    for target in targets {
        write_as(&target.join("backup_label"), label.as_bytes(), user)?;
        write_as(&target.join("standby.signal"), b"", user)?;
    }
    Ok(())
}

fn sql(what: &'static str) -> impl Fn(postgres::Error) -> LocalError {
    move |source| LocalError::Sql { what: what.to_owned(), source }
}

fn refuse_tablespaces(client: &mut Control) -> Result<(), LocalError> {
    let own = "select spcname::text, pg_catalog.pg_tablespace_location(oid) from pg_catalog.pg_tablespace \
               where spcname not in ('pg_default', 'pg_global') order by spcname limit 1";
    match client.query_opt(own, &[]).map_err(sql("look for tablespaces"))? {
        None => Ok(()),
        Some(row) => Err(LocalError::Tablespace { name: row.get(0), location: row.get(1) }),
    }
}

/// Whether an empty folder is there, for example a file system of its own.
fn is_empty(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|there| there.is_dir())
        && fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

fn copy_folder(from: &Path, to: &Path, is_root: bool) -> Result<(), LocalError> {
    for entry in fs::read_dir(from).map_err(LocalError::io("read", from))? {
        let entry = entry.map_err(LocalError::io("read", from))?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let (source, target) = (entry.path(), to.join(&name));
        // A relation dropped meanwhile is missing: WAL drops it on the standby, too.
        let Some(kind) = unless_gone(entry.file_type()).map_err(LocalError::io("look at", &source))? else {
            continue;
        };
        if LEFT_OUT_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
            || (is_root && LEFT_OUT.contains(&&*text))
        {
            continue;
        }
        if kind.is_dir() {
            make_dir_as(&target, None)?;
            if is_root && EMPTY_DIRS.contains(&&*text) {
                continue;
            }
            copy_folder(&source, &target, false)?;
        } else if kind.is_file() {
            unless_gone(copy_file(&source, &target)).map_err(LocalError::io("copy", &source))?;
        }
    }
    Ok(())
}

/// Copies a plain file to where there is nothing.
fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = record::file::open(from)?;
    io::copy(&mut source, &mut record::file::create(to)?)
}

/// `None` if it does not exist any more.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throwaway::{Throwaway, installations};

    /// A copy on the same host would write into the original's files.
    #[test]
    fn tablespaces_are_refused_and_nothing_is_copied() {
        let primary = Throwaway::start(&installations()[0], &[]).unwrap();
        let user = process::server_user().unwrap();
        let elsewhere = primary.socket_dir().join("elsewhere");
        make_dir_as(&elsewhere, user.as_ref()).unwrap();
        primary.execute(&format!("create tablespace far location '{}'", elsewhere.display())).unwrap();
        let target = primary.socket_dir().join("copy");
        let error = copy(&primary.spec(), &primary.data_dir(), std::slice::from_ref(&target), user.as_ref())
            .unwrap_err();
        assert!(error.to_string().contains("has a tablespace far in"), "{error}");
        assert!(error.hint().unwrap().contains("drop tablespace far"), "{:?}", error.hint());
        assert!(!target.exists());
    }
}
