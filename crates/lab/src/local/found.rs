//! A running server that pgfathom did not start: which processes it has, and how it was started, so that it can be started again in the same way.
//!
//! The kernel gives all of it, beginning with the process of one of our sessions. So a wrong data directory in a cluster file cannot lead to another server. No
//! program of the server runs with our rights: as root, it runs as the user that owns the data directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Installation;
use super::folder::text_of;
use super::installation::Version;
use super::process::{self, PidFile};
use connect::os_user::OsUser;

/// How much later than the start in `postmaster.pid` a server may report its start: it reads its settings and opens its sockets in between.
const START_DELAY_S: i64 = 120;

/// What a session reports about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `pg_backend_pid()`.
    pub pid: u32,
    /// `pg_postmaster_start_time()`, in seconds since 1970.
    pub started_s: i64,
    /// The setting `port`.
    pub port: u16,
}

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The folder of its program `postgres`.
    pub bin_dir: PathBuf,
    /// The arguments of its program.
    pub arguments: Vec<String>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// A server of this host that this user may end and start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) data_dir: PathBuf,
    pub(super) launch: Launch,
}

impl Launch {
    /// Its program; the version is that of the data directory, and no program is run to get it.
    pub(super) fn installation(&self, data_dir: &Path) -> Installation {
        let text = text_of(&data_dir.join("PG_VERSION")).unwrap_or_default();
        let major = text.trim().split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        Installation { bin_dir: self.bin_dir.clone(), version: Version { major, minor: 0 } }
    }
}

/// The server of a session. `named`: its data directory by the cluster file.
///
/// # Errors
/// Why it must not be disturbed, in words.
pub(super) fn found(backend: Backend, named: Option<&Path>) -> Result<Found, String> {
    if let Some(named) = named
        && !named.is_dir()
    {
        return Err(format!("its data directory {} is not on this host", named.display()));
    }
    let data_dir = working_dir(backend.pid)?;
    if let Some(named) = named
        && named.canonicalize().ok().as_ref() != Some(&data_dir)
    {
        return Err(format!(
            "its server works in {}, and the cluster file names {}",
            data_dir.display(),
            named.display()
        ));
    }
    let postmaster = postmaster(backend, &data_dir)?;
    check_rights(&data_dir)?;
    let program = fs::read_link(format!("/proc/{postmaster}/exe"));
    let program =
        program.map_err(|error| format!("the program of process {postmaster} is unknown: {error}"))?;
    if !program.is_file() {
        return Err(format!(
            "its program {} was replaced or removed since its start; restart the server first",
            program.display()
        ));
    }
    if program.file_name().is_none_or(|name| name != "postgres") {
        return Err(format!("its program {} is not called postgres", program.display()));
    }
    let bin_dir = program.parent().map(Path::to_owned).unwrap_or_default();
    let line = fs::read(format!("/proc/{postmaster}/cmdline")).unwrap_or_default();
    let launch =
        Launch { bin_dir, arguments: arguments(&line, &data_dir)?, log: output_of(postmaster, &data_dir) };
    Ok(Found { data_dir, launch })
}

/// The folder in which the process of a session works, which is the data directory of its server.
fn working_dir(pid: u32) -> Result<PathBuf, String> {
    let elsewhere = || {
        format!(
            "its server process {pid} is not visible here: the server runs on another host or in a container; run pgfathom where it runs"
        )
    };
    match fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(dir) if dir.join("PG_VERSION").is_file() => Ok(dir),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let owner = fs::metadata(format!("/proc/{pid}")).ok().and_then(|meta| OsUser::by_uid(meta.uid()));
            let owner = owner.map_or_else(|| "of the server".to_owned(), |user| user.name);
            Err(format!("process {pid} belongs to another user; run pgfathom as root or as the user {owner}"))
        }
        _ => Err(elsewhere()),
    }
}

/// The first process of the server. A process of another host may have the same number as one here, so start and port must agree as well.
fn postmaster(backend: Backend, data_dir: &Path) -> Result<u32, String> {
    let servers = process::servers_in(data_dir);
    let file =
        PidFile::read(data_dir).filter(|file| servers.contains(&file.pid) && servers.contains(&backend.pid));
    let file =
        file.ok_or_else(|| format!("the processes of the server in {} are unknown", data_dir.display()))?;
    let is_it = file.port == Some(backend.port)
        && file.started_s.is_some_and(|begun| (begun..=begun + START_DELAY_S).contains(&backend.started_s));
    if !is_it {
        return Err(format!(
            "the server in {} is another one: it has another port or another start time",
            data_dir.display()
        ));
    }
    Ok(file.pid)
}

fn check_rights(data_dir: &Path) -> Result<(), String> {
    let owner = fs::metadata(data_dir).map_err(|error| format!("{}: {error}", data_dir.display()))?.uid();
    let ours = rustix::process::geteuid();
    let user = OsUser::by_uid(owner);
    if ours.is_root() {
        return match user.filter(|user| user.uid != 0) {
            Some(_) => Ok(()),
            None => Err(format!("{} belongs to no user that can run the server", data_dir.display())),
        };
    }
    match user {
        _ if ours.as_raw() == owner => Ok(()),
        Some(user) => Err(format!(
            "its processes belong to the user {}; run pgfathom as that user or as root",
            user.name
        )),
        None => {
            Err(format!("its processes belong to user number {owner}; run pgfathom as that user or as root"))
        }
    }
}

/// The arguments of a command line, with the data directory as a whole path: a relative one was relative to the folder from which the server was started.
fn arguments(line: &[u8], data_dir: &Path) -> Result<Vec<String>, String> {
    let words: Vec<&str> = line
        .strip_suffix(&[0])
        .unwrap_or(line)
        .split(|byte| *byte == 0)
        .map(std::str::from_utf8)
        .collect::<Result<_, _>>()
        .map_err(|_| "its command line is not UTF-8".to_owned())?;
    let mut words = words.into_iter().skip(1);
    let (mut kept, mut folder) = (Vec::new(), None);
    while let Some(word) = words.next() {
        match word.strip_prefix("-D") {
            Some("") => folder = words.next().map(PathBuf::from),
            Some(joined) => folder = Some(PathBuf::from(joined)),
            None => kept.push(word.to_owned()),
        }
    }
    // It may be a folder with the settings only, as `-D /etc/postgresql/15/main`.
    let folder = match folder.filter(|folder| folder.is_absolute()) {
        Some(folder) => folder,
        None => data_dir.to_owned(),
    };
    let has_file = kept.iter().any(|word| word.replace('-', "_").contains("config_file="));
    if !has_file && !folder.join("postgresql.conf").is_file() {
        return Err(format!(
            "{} has no postgresql.conf, and its command line does not name one: start it with a whole path after -D",
            folder.display()
        ));
    }
    let mut arguments = vec!["-D".to_owned(), folder.display().to_string()];
    arguments.append(&mut kept);
    Ok(arguments)
}

/// The file that gets the output of a process. If it goes to a pipe or a terminal, a file beside the data directory's other files takes it from now on.
fn output_of(pid: u32, data_dir: &Path) -> PathBuf {
    let output = fs::read_link(format!("/proc/{pid}/fd/2")).ok().filter(|path| path.is_file());
    output.unwrap_or_else(|| data_dir.join("pgfathom-start.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_again_with_its_own_arguments() {
        let dir = std::env::temp_dir().join(format!("pgfathom-found-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let whole = dir.display().to_string();
        let of = |words: &[&str]| arguments(format!("{}\0", words.join("\0")).as_bytes(), &dir);
        let debian = [
            "/usr/lib/postgresql/15/bin/postgres",
            "-D",
            &whole,
            "-c",
            "config_file=/etc/postgresql/15/main/postgresql.conf",
        ];
        assert_eq!(of(&debian).unwrap(), debian[1..]);
        // No file with settings anywhere: it could not be started again.
        assert!(of(&["postgres", "-D", "data"]).unwrap_err().contains("no postgresql.conf"));
        fs::write(dir.join("postgresql.conf"), "").unwrap();
        for relative in [&["postgres", "-D", "data", "-p", "5433"][..], &["postgres", "-Ddata", "-p", "5433"]]
        {
            assert_eq!(of(relative).unwrap(), ["-D", &whole, "-p", "5433"], "{relative:?}");
        }
        // From PGDATA.
        assert_eq!(of(&["postgres"]).unwrap(), ["-D", &whole]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_process_that_is_no_server_of_this_host_is_refused() {
        let backend = Backend { pid: std::process::id(), started_s: 0, port: 1 };
        assert!(found(backend, None).unwrap_err().contains("another host or in a container"));
        let missing = Path::new("/nowhere/data");
        assert!(found(backend, Some(missing)).unwrap_err().contains("is not on this host"));
    }
}
