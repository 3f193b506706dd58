//! A program of a cluster besides its servers: how it is started, found and ended. Patroni and what it needs, and the relays of distances.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use connect::os_user::OsUser;
use connect::poll;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::process::Workplace;
use super::{LocalError, process};
use crate::sys;

/// What has to be installed.
pub(super) const PROGRAMS: [&str; 3] = ["patroni", "etcd", "haproxy"];
/// The configuration of Patroni, in the folder of its node.
pub(super) const MANAGER_FILE: &str = "patroni.yml";
/// That of etcd.
pub(super) const STORE_FILE: &str = "etcd.yml";
/// That of haproxy.
pub(super) const FRONT_FILE: &str = "haproxy.cfg";
/// How long a killed program may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A program in the `PATH`, or where distributions put those of administrators.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A program and its folder.
#[derive(Clone, Debug)]
pub(super) struct Job {
    name: &'static str,
    dir: PathBuf,
    arguments: Vec<String>,
    /// Its file, where it is not one of the system's programs.
    program: Option<PathBuf>,
}

impl Job {
    /// The store of the cluster's state.
    pub(super) fn store(cluster: &Path) -> Job {
        Job::new("etcd", cluster.join("etcd"), &["--config-file"], STORE_FILE)
    }

    /// The manager of one node.
    pub(super) fn manager(node_dir: &Path) -> Job {
        Job::new("patroni", node_dir.to_owned(), &[], MANAGER_FILE)
    }

    /// The proxy in front of all nodes; in the foreground (`-db`), so that it stays one process.
    pub(super) fn front(cluster: &Path) -> Job {
        Job::new("haproxy", cluster.join("haproxy"), &["-db", "-f"], FRONT_FILE)
    }

    /// Relays between the nodes: this program itself, under a verb of their name. Without `program` it is only found and ended.
    pub(super) fn relays(dir: &Path, file: &str, program: Option<PathBuf>) -> Job {
        let job = Job::new("relay", dir.to_owned(), &["relay"], file);
        Job { program, ..job }
    }

    fn new(name: &'static str, dir: PathBuf, arguments: &[&str], file: &str) -> Job {
        let mut arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        arguments.push(dir.join(file).display().to_string());
        Job { name, dir, arguments, program: None }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its output. That of Patroni is the server's log; what Patroni itself reports is in `patroni.log`.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join(if self.name == "patroni" { "patroni.log" } else { "log" })
    }

    pub(super) fn has_file(&self) -> bool {
        self.arguments.last().is_some_and(|file| Path::new(file).is_file())
    }

    /// Its processes: they work in its folder, run as its owner, and their command line begins with its name, or that of a program which it runs for a server.
    pub(super) fn pids(&self) -> Vec<u32> {
        const HELPERS: [&str; 3] = ["pg_basebackup", "pg_rewind", "initdb"];
        let is_ours = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // An interpreted program is the second word.
            line.split(|byte| *byte == 0).take(2).any(|word| {
                let word = String::from_utf8_lossy(word).into_owned();
                let name = Path::new(&word).file_name().map(|name| name.to_string_lossy().into_owned());
                name.is_some_and(|name| name == self.name || HELPERS.contains(&name.as_str()))
            })
        };
        self.place().map_or_else(Vec::new, |place| place.pids(is_ours))
    }

    /// Its folder, if it belongs to us or the server's user.
    fn place(&self) -> Option<Workplace> {
        Workplace::of(&self.dir).filter(|place| process::is_ours(place.owner()))
    }

    pub(super) fn is_up(&self) -> bool {
        !self.pids().is_empty()
    }

    /// Starts it in a session of its own, unless it runs.
    pub(super) fn start(&self, user: Option<&OsUser>) -> Result<(), LocalError> {
        if self.is_up() {
            return Ok(());
        }
        let program =
            self.program.clone().or_else(|| find_program(self.name)).ok_or_else(|| LocalError::Topology {
                problem: format!("not installed on this host: {}", self.name),
                hint: "apt-get install patroni etcd-server haproxy".to_owned(),
            })?;
        // This program may be in a folder that the user cannot enter, so it is opened with our rights. Such a link is followed only when the program starts.
        let open = self.program.as_ref().filter(|_| user.is_some() && cfg!(target_os = "linux"));
        let open =
            open.map(|program| rustix::fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        let open = open.transpose().map_err(|error| LocalError::io("open", &program)(error.into()))?;
        let program = open
            .as_ref()
            .map_or(program, |open| PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())));
        let log = self.dir.join("log");
        let output = process::with_files_of(user, || record::file::append(&log));
        let output = output.map_err(LocalError::io("open", &log))?;
        let copy = output.try_clone().map_err(LocalError::io("open", &log))?;
        let mut command = process::command(&program, user, &self.dir);
        for (name, _) in std::env::vars_os() {
            // Both programs read settings from the environment, which would be those of another cluster.
            let name = name.to_string_lossy().into_owned();
            if ["PATRONI_", "ETCD_", "ETCDCTL_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.args(&self.arguments).stdout(output).stderr(copy);
        sys::own_session(&mut command);
        let child = process::spawn_from_lasting_thread(command);
        let child = child.map_err(|source| LocalError::Spawn { program, source })?;
        process::reap(child);
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), LocalError> {
        let Some(place) = self.place() else { return Ok(()) };
        let send = |pid: u32| place.signal(pid, signal);
        self.pids().into_iter().try_for_each(send).map_err(LocalError::io("signal the program in", &self.dir))
    }

    /// Kills it and waits for its end.
    pub(super) fn kill(&self) -> Result<(), LocalError> {
        let ended = poll::until(END_TIMEOUT, || match self.signal(Signal::KILL) {
            Ok(()) => (!self.is_up()).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        ended.unwrap_or_else(|| {
            Err(LocalError::Program {
                program: self.name.to_owned(),
                status: format!("it did not end within {} s", END_TIMEOUT.as_secs()),
                output: String::new(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A program of another folder, and another program in this folder, are not ours.
    #[test]
    fn a_program_is_found_by_its_folder_and_its_name() {
        let dir = std::env::temp_dir().join(format!("pgfathom-job-{}", std::process::id()));
        let (ours, other) = (dir.join("haproxy"), dir.join("other"));
        fs::create_dir_all(&ours).unwrap();
        fs::create_dir_all(&other).unwrap();
        let job = Job::front(&dir);
        let sleep = find_program("sleep").unwrap();
        for folder in [&ours, &other] {
            fs::copy(&sleep, folder.join("haproxy")).unwrap();
        }
        let start = |program: &Path, folder: &Path| {
            let mut command = Command::new(program);
            let command = command.arg("600").current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
            testing::Running::new(command.spawn().unwrap())
        };
        let _other = start(&other.join("haproxy"), &other);
        let _editor = start(&sleep, &ours);
        assert!(!job.is_up());
        let running = start(&ours.join("haproxy"), &ours);
        testing::wait_for("the program to be seen", || job.is_up());
        assert_eq!(job.pids().len(), 1);
        process::send_signal(job.pids()[0], Signal::KILL).unwrap();
        drop(running);
        testing::wait_for("its end", || !job.is_up());
        fs::remove_dir_all(&dir).unwrap();
    }
}
