//! The undo journal: each step is written and synced before it is done, so the next start finds it after a crash.
//!
//! One file per process in the state folder, locked as long as the process lives; a line per fault, and a line when it is undone. A file that nothing holds
//! belongs to a dead process, and [`heal`] undoes what it names, newest first.

use connect::poll;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use connect::conninfo::{self, Sources};
use connect::sql;
use lab::local::{Instance, Launch, servers_in, signal_servers_in};
use record::owner::Others;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::{FaultError, mount};
use crate::client::Client;

/// The time limit for an answer while healing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the servers of a dead process may take to end by themselves.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(10);
/// Their names.
const PREFIX: &str = "faults-";

/// How a fault is undone. It is no error to undo a fault twice, or one that never happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undo {
    /// Resumes the stopped processes of the server in this data directory.
    Resume {
        /// Where it works.
        data_dir: PathBuf,
    },
    /// Starts a server again that was running.
    Start {
        /// Folder of its binaries.
        bin_dir: PathBuf,
        /// Where it works.
        data_dir: PathBuf,
        /// Its log.
        log: PathBuf,
        /// The arguments that it was started with, if pgfathom did not start it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Vec<String>>,
    },
    /// Starts the store of the failover manager of this server again.
    StartStore {
        /// Where the server works.
        data_dir: PathBuf,
    },
    /// A file of ours is removed.
    Remove {
        /// Which one.
        path: PathBuf,
    },
    /// Unmounts one of our file systems, and removes its folder and image. Servers that still run there are killed: they are ours, too.
    Unmount {
        /// Where it is mounted.
        mount: PathBuf,
        /// Its blocks.
        image: PathBuf,
    },
    /// Rolls back one of our prepared transactions.
    RollBack {
        /// The server, without a password.
        connection: String,
        /// The transaction's name.
        name: String,
    },
    /// Restores a setting or resumes replay: statements that may be sent twice. Journals of earlier versions have this name.
    #[serde(rename = "tell")]
    Execute {
        /// The server, without a password.
        connection: String,
        /// One after another, each in its own transaction.
        sql: Vec<String>,
    },
}

impl Undo {
    /// In words.
    pub fn description(&self) -> String {
        match self {
            Undo::Resume { data_dir } => format!("resume the server in {}", data_dir.display()),
            Undo::Start { data_dir, .. } => format!("start the server in {}", data_dir.display()),
            Undo::StartStore { data_dir } => {
                format!("start the store of the failover manager of {}", data_dir.display())
            }
            Undo::Remove { path } => format!("remove {}", path.display()),
            Undo::Unmount { mount, .. } => format!("unmount {}", mount.display()),
            Undo::RollBack { connection, name } => format!("roll back {name} on {connection}"),
            Undo::Execute { connection, sql } => format!("execute on {connection}: {}", sql.join("; ")),
        }
    }

    /// Undoes it.
    ///
    /// # Errors
    /// When that is not possible now.
    pub fn undo(&self) -> Result<(), FaultError> {
        match self {
            Undo::Resume { data_dir } => Ok(lab::local::resume_in(data_dir)?),
            Undo::StartStore { data_dir } => {
                if data_dir.exists() {
                    lab::local::start_store_of(data_dir)?;
                }
                Ok(())
            }
            Undo::Start { bin_dir, data_dir, log, arguments } => {
                if !data_dir.exists() {
                    return Ok(());
                }
                let instance = match arguments.clone() {
                    None => Instance::at(bin_dir, data_dir, log)?,
                    Some(arguments) => {
                        let launch = Launch { bin_dir: bin_dir.clone(), arguments, log: log.clone() };
                        Instance::launched(&launch, data_dir)?
                    }
                };
                Ok(instance.start()?)
            }
            Undo::Remove { path } => match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(FaultError::io("remove", path)(error))
                }
                _ => Ok(()),
            },
            Undo::Unmount { mount, image } => {
                end_servers(mount);
                mount::remove(mount, image)
            }
            Undo::RollBack { connection, name } => {
                let mut client = client(connection)?;
                let there = client.execute(&format!(
                    "select count(*) from pg_catalog.pg_prepared_xacts where gid = {}",
                    sql::literal(name)
                ))?;
                if there.number() == Some(1) {
                    client.execute(&format!("rollback prepared {}", sql::literal(name)))?;
                }
                Ok(())
            }
            Undo::Execute { connection, sql } => {
                let mut client = client(connection)?;
                for sql in sql {
                    client.execute(sql)?;
                }
                Ok(())
            }
        }
    }
}

fn client(connection: &str) -> Result<Client, FaultError> {
    let spec = conninfo::parse(connection, &Sources::of_process()).map_err(|error| FaultError::Program {
        program: "the connection string of the journal",
        output: error.to_string(),
    })?;
    Ok(Client::connect(&spec.spec, PATIENCE).map_err(crate::client::ClientError::Connect)?)
}

fn signal_servers(data_dir: &Path, signal: Signal) {
    // One that has just ended needs no signal.
    let _ = signal_servers_in(data_dir, signal);
}

/// The servers of a throwaway cluster end with their process; those that cannot are killed.
fn end_servers(data_dir: &Path) {
    signal_servers(data_dir, Signal::CONT);
    let have_ended = || servers_in(data_dir).is_empty().then_some(());
    if poll::until(ORPHANS_TIMEOUT, have_ended).is_none() {
        // Repeatedly: a killed process may have forked just before.
        poll::until(ORPHANS_TIMEOUT, || {
            signal_servers(data_dir, Signal::KILL);
            have_ended()
        });
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<Undo>,
}

/// The journal of a living process.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// The locked file; the steps that are not undone yet.
    open: Mutex<(File, Vec<(u64, Undo)>)>,
    next: AtomicU64,
}

impl Journal {
    /// The folder of all journals: `faults` in the state folder.
    pub fn default_dir() -> PathBuf {
        lab::local::state_dir().join("faults")
    }

    /// Begins a journal in `dir`.
    ///
    /// # Errors
    /// When the folder takes no file.
    pub fn begin(dir: &Path) -> Result<Journal, FaultError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).map_err(FaultError::io("create", parent))?;
        }
        record::file::own_folder(dir).map_err(FaultError::io("create", dir))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let open = File::options().create(true).append(true).open(&path);
        let file = open.map_err(FaultError::io("open", &path))?;
        file.lock().map_err(FaultError::io("lock", &path))?;
        Ok(Journal { path, open: Mutex::new((file, Vec::new())), next: AtomicU64::new(0) })
    }

    /// Records how a fault is undone. The record is on disk when this returns; inject the fault only then.
    ///
    /// # Errors
    /// When it could not be written: then the fault must not be injected.
    pub fn note(&self, undo: Undo) -> Result<u64, FaultError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut open.0, &Line { id, undo: Some(undo.clone()) })
            .map_err(FaultError::io("write", &self.path))?;
        open.1.push((id, undo));
        Ok(id)
    }

    /// It is undone.
    pub fn forget(&self, id: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.1.retain(|(known, _)| *known != id);
        // Undoing twice is no error, so a line that is lost does no harm.
        let _ = write_line(&mut open.0, &Line { id, undo: None });
    }

    /// Undoes one thing and forgets it.
    ///
    /// # Errors
    /// As [`Undo::undo`]; the step then stays in the journal.
    pub fn undo(&self, id: u64) -> Result<(), FaultError> {
        let found = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.1.iter().find(|(known, _)| *known == id).map(|(_, undo)| undo.clone())
        };
        if let Some(undo) = found {
            undo.undo()?;
            self.forget(id);
        }
        Ok(())
    }

    /// The steps that are not undone yet, oldest first.
    pub fn open(&self) -> Vec<(u64, Undo)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let open: Vec<u64> = self.open().into_iter().map(|(id, _)| id).collect();
        let all_undone =
            open.into_iter().rev().map(|id| self.undo(id)).fold(true, |all, one| all & one.is_ok());
        if all_undone {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn write_line(file: &mut File, line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}

/// What a healing did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Healed {
    /// What was undone.
    pub undone: Vec<String>,
    /// The steps that could not be undone, with the reason; their journal stays.
    pub failed: Vec<String>,
    /// Journals of processes that live.
    pub alive: u64,
}

/// Why a folder or a journal is not obeyed. Its steps start programs and remove files with our rights, so no one else may have written them.
fn distrust(path: &Path) -> Option<String> {
    let there = fs::symlink_metadata(path).ok()?;
    let us = rustix::process::geteuid();
    let why = match Others::of(&there, &[us.as_raw()]) {
        _ if there.is_symlink() => "it is a symbolic link".to_owned(),
        // With root's rights, a group is others, too.
        Some(Others::Group(_)) if !us.is_root() => return None,
        Some(others) => others.to_string(),
        None => return None,
    };
    Some(format!("{} is not obeyed: {why}", path.display()))
}

/// Undoes the faults of dead processes, by the journals in `dir`.
pub fn heal(dir: &Path) -> Healed {
    let mut healed = Healed::default();
    if let Some(why) = distrust(dir) {
        healed.failed.push(why);
        return healed;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)))
        .collect();
    files.sort();
    for path in files {
        if let Some(why) = distrust(&path) {
            healed.failed.push(why);
            continue;
        }
        let Ok(file) = record::file::open(&path) else { continue };
        if file.try_lock().is_err() {
            healed.alive += 1;
            continue;
        }
        let mut open: Vec<(u64, Undo)> = Vec::new();
        for line in BufReader::new(&file).lines().map_while(Result::ok) {
            // The last line may be torn: then its fault was never injected.
            match serde_json::from_str::<Line>(&line) {
                Ok(Line { id, undo: Some(undo) }) => open.push((id, undo)),
                Ok(Line { id, undo: None }) => open.retain(|(known, _)| *known != id),
                Err(_) => {}
            }
        }
        let mut is_clean = true;
        for (_, undo) in open.into_iter().rev() {
            match undo.undo() {
                Ok(()) => healed.undone.push(undo.description()),
                Err(error) => {
                    is_clean = false;
                    healed.failed.push(format!("{}: {error}", undo.description()));
                }
            }
        }
        if is_clean {
            let _ = fs::remove_file(&path);
        }
    }
    healed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("pgfathom-journal-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A dead process is a file that nothing holds: here, a copy.
    fn die(dir: &Path, journal: &Journal, torn: bool) {
        let mut text = fs::read(&journal.path).unwrap();
        if torn {
            text.extend_from_slice(b"{\"id\":9,\"undo\":{\"remove\":{\"pa");
        }
        fs::write(dir.join(format!("{PREFIX}dead")), text).unwrap();
    }

    #[test]
    fn journals_of_earlier_versions_are_understood() {
        let line = r#"{"tell":{"connection":"host=a","sql":["select 1"]}}"#;
        let undo = Undo::Execute { connection: "host=a".to_owned(), sql: vec!["select 1".to_owned()] };
        assert_eq!(serde_json::from_str::<Undo>(line).unwrap(), undo);
        assert_eq!(serde_json::to_string(&undo).unwrap(), line);
    }

    #[test]
    fn a_server_of_others_is_started_with_its_own_arguments_after_a_crash_too() {
        let old = r#"{"start":{"bin_dir":"/bin","data_dir":"/data","log":"/log"}}"#;
        let start = |arguments: Option<Vec<String>>| Undo::Start {
            bin_dir: "/bin".into(),
            data_dir: "/data".into(),
            log: "/log".into(),
            arguments,
        };
        assert_eq!(serde_json::from_str::<Undo>(old).unwrap(), start(None));
        let theirs = start(Some(vec!["-D".to_owned(), "/etc/postgresql/15/main".to_owned()]));
        let text = serde_json::to_string(&theirs).unwrap();
        assert_eq!(serde_json::from_str::<Undo>(&text).unwrap(), theirs);
    }

    #[test]
    fn the_dead_are_healed_newest_first_and_the_living_left_alone() {
        let dir = folder("heal");
        let (kept, gone) = (dir.join("kept"), dir.join("gone"));
        let journal = Journal::begin(&dir).unwrap();
        for path in [&kept, &gone] {
            fs::write(path, "ballast").unwrap();
        }
        let first = journal.note(Undo::Remove { path: kept.clone() }).unwrap();
        journal.note(Undo::Remove { path: gone.clone() }).unwrap();
        journal.note(Undo::Remove { path: dir.join("never made") }).unwrap();
        journal.forget(first);
        die(&dir, &journal, true);
        let healed = heal(&dir);
        assert_eq!((healed.alive, healed.failed.len(), healed.undone.len()), (1, 0, 2), "{healed:?}");
        assert!(healed.undone[0].contains("never made"), "{healed:?}");
        assert!(kept.exists() && !gone.exists());
        // Healing again finds only running processes.
        assert_eq!(heal(&dir), Healed { alive: 1, ..Healed::default() });
        drop(journal);
        assert_eq!(heal(&dir), Healed::default());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A journal starts programs and removes files with our rights.
    #[test]
    fn a_journal_that_others_could_have_written_is_not_obeyed() {
        let dir = folder("others");
        let precious = dir.join("precious");
        fs::write(&precious, "").unwrap();
        let steps = format!("{{\"id\":0,\"undo\":{{\"remove\":{{\"path\":\"{}\"}}}}}}\n", precious.display());
        let dead = dir.join(format!("{PREFIX}dead"));
        let refused = |problem: &str| {
            let healed = heal(&dir);
            assert!(healed.undone.is_empty() && healed.failed.len() == 1, "{healed:?}");
            assert!(healed.failed[0].contains(problem), "{healed:?}");
            assert!(precious.exists() && dead.symlink_metadata().is_ok());
        };
        let open_to = |path: &Path, mode: u32| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let elsewhere = dir.join("elsewhere");
        fs::write(&elsewhere, &steps).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &dead).unwrap();
        refused("it is a symbolic link");
        fs::remove_file(&dead).unwrap();
        fs::write(&dead, &steps).unwrap();
        open_to(&dead, 0o646);
        refused("every user may write into it");
        open_to(&dead, 0o600);
        open_to(&dir, 0o777);
        refused("every user may write into it");
        open_to(&dir, 0o700);
        if rustix::process::geteuid().is_root() {
            for path in [&dead, &dir] {
                std::os::unix::fs::chown(path, Some(12_345), None).unwrap();
                refused("it belongs to user 12345");
                std::os::unix::fs::chown(path, Some(0), None).unwrap();
            }
        }
        assert_eq!(heal(&dir).undone.len(), 1);
        assert!(!precious.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_cannot_be_undone_stays_in_the_journal() {
        let dir = folder("stays");
        let folder_in_the_way = dir.join("folder");
        fs::create_dir(&folder_in_the_way).unwrap();
        let journal = Journal::begin(&dir).unwrap();
        let id = journal.note(Undo::Remove { path: folder_in_the_way.clone() }).unwrap();
        assert!(journal.undo(id).is_err());
        assert_eq!(journal.open().len(), 1);
        die(&dir, &journal, false);
        assert_eq!(heal(&dir).failed.len(), 1);
        assert!(dir.join(format!("{PREFIX}dead")).exists());
        fs::remove_dir(&folder_in_the_way).unwrap();
        assert_eq!(heal(&dir).undone.len(), 1);
        assert!(!dir.join(format!("{PREFIX}dead")).exists());
        drop(journal);
        fs::remove_dir_all(&dir).unwrap();
    }
}
