//! Faults for a server on this host: its processes are stopped, killed and started again, however it was started.
//!
//! They need only the data directory: the kernel shows which processes belong to it, whatever a pid file contains. The caller decides
//! which server may be disturbed.

use connect::poll;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::folder::remove_sockets;
use super::found::{self, Backend, Launch};
use super::patroni::{Manager, Member};
use super::process::{self, Lifetime, PidFile, Workplace};
use super::{Installation, LocalError, StopMode};
use connect::cluster_file::{ClusterFile, Node};
use connect::os_user::OsUser;

/// The time limit for a start, including crash recovery on a loaded host.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for the end of processes.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// The preset name that identifies the file of a throwaway cluster.
pub(crate) const THROWAWAY_PRESET: &str = "throwaway";

/// A server on this host, running or not.
#[derive(Clone, Debug)]
pub struct Instance {
    installation: Installation,
    data_dir: PathBuf,
    log: PathBuf,
    user: Option<OsUser>,
    /// The user that its processes run as. A folder of another user that takes the place of its data directory has no server of this instance.
    runs_as: u32,
    lifetime: Lifetime,
    manager: Option<Manager>,
    /// The arguments that it was started with, if pgfathom did not start it.
    arguments: Option<Vec<String>>,
}

/// Who starts a server after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// We do.
    Ours,
    /// A failover manager that `up` started: it can be stopped with its server.
    Manager,
    /// A failover manager whose processes are unknown.
    ForeignManager,
}

/// Lets all processes of a server go on, and those of its failover manager.
///
/// # Errors
/// When that is not permitted.
pub fn resume_in(data_dir: &Path) -> Result<(), LocalError> {
    signal_servers_in(data_dir, Signal::CONT)?;
    match Manager::of(data_dir).as_ref().and_then(Manager::member) {
        Some(member) => member.signal(Signal::CONT),
        None => Ok(()),
    }
}

/// Starts the store of the failover manager of a server, unless it runs.
///
/// # Errors
/// When it cannot be started.
pub fn start_store_of(data_dir: &Path) -> Result<(), LocalError> {
    let user = owner(data_dir)?;
    match Manager::of(data_dir).as_ref().and_then(Manager::member) {
        Some(member) => member.start_store(user.as_ref()),
        None => Ok(()),
    }
}

/// Sends a signal to all servers that work in a data directory and run as its owner.
///
/// # Errors
/// When that is not permitted.
pub fn signal_servers_in(data_dir: &Path, signal: Signal) -> Result<(), LocalError> {
    process::signal_servers(data_dir, &process::servers_in(data_dir), signal)
}

/// The user that a server runs as, when we are root. Programs of a server never run with the rights of root, whatever names its data directory.
fn owner(data_dir: &Path) -> Result<Option<OsUser>, LocalError> {
    let uid = owner_number(data_dir)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let other = |problem: String| LocalError::OfOther { path: data_dir.to_owned(), problem };
    match OsUser::by_uid(uid) {
        Some(user) if user.uid != 0 => Ok(Some(user)),
        Some(_) => Err(other("it belongs to root, and a server does not run as root".to_owned())),
        None => Err(other(format!("it belongs to user {uid}, which does not exist"))),
    }
}

/// The number of the user that a data directory belongs to.
fn owner_number(data_dir: &Path) -> Result<u32, LocalError> {
    let there = fs::symlink_metadata(data_dir).map_err(LocalError::io("look at", data_dir))?;
    let problem = match (there.is_dir(), there.is_symlink()) {
        (true, _) => return Ok(there.uid()),
        (_, true) => "it is a symbolic link; name the folder that it leads to",
        _ => "it is no folder",
    };
    Err(LocalError::OfOther { path: data_dir.to_owned(), problem: problem.to_owned() })
}

impl Instance {
    pub(crate) fn of_throwaway(
        installation: &Installation,
        data_dir: &Path,
        log: &Path,
        user: Option<&OsUser>,
    ) -> Instance {
        Instance {
            installation: installation.clone(),
            data_dir: data_dir.to_owned(),
            log: log.to_owned(),
            user: user.cloned(),
            runs_as: user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid),
            lifetime: Lifetime::OurProcess,
            manager: None,
            arguments: None,
        }
    }

    /// A server whose files are here. `log` gets its output when it is started again.
    ///
    /// # Errors
    /// When the binaries or the data directory are missing.
    pub fn at(bin_dir: &Path, data_dir: &Path, log: &Path) -> Result<Instance, LocalError> {
        let installation = Installation::recorded(bin_dir).map_err(|problem| LocalError::Topology {
            problem: format!("{}: {problem}", bin_dir.display()),
            hint: "name the binaries that the server was started with".to_owned(),
        })?;
        let user = owner(data_dir)?;
        Ok(Instance {
            installation,
            data_dir: data_dir.to_owned(),
            log: log.to_owned(),
            user,
            runs_as: owner_number(data_dir)?,
            lifetime: Lifetime::Independent,
            manager: Manager::of(data_dir),
            arguments: None,
        })
    }

    /// The server of a session, which pgfathom did not start, on this host. `named`: its data directory by the cluster file.
    ///
    /// # Errors
    /// Why it must not be disturbed, in words.
    pub fn of_backend(backend: Backend, named: Option<&Path>) -> Result<Instance, String> {
        let found = found::found(backend, named)?;
        Instance::launched(&found.launch, &found.data_dir).map_err(|error| error.to_string())
    }

    /// Checks that the server of a session is this one.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub fn check_is_of(&self, backend: Backend) -> Result<(), String> {
        found::found(backend, Some(&self.data_dir)).map(|_| ())
    }

    /// A server that another program started in this way.
    ///
    /// # Errors
    /// When its data directory is missing.
    pub fn launched(launch: &Launch, data_dir: &Path) -> Result<Instance, LocalError> {
        Ok(Instance {
            installation: launch.installation(data_dir),
            data_dir: data_dir.to_owned(),
            log: launch.log.clone(),
            user: owner(data_dir)?,
            runs_as: owner_number(data_dir)?,
            lifetime: Lifetime::Independent,
            manager: Manager::of(data_dir),
            arguments: Some(launch.arguments.clone()),
        })
    }

    /// How it was started, if pgfathom did not start it.
    pub fn launch(&self) -> Option<Launch> {
        let arguments = self.arguments.clone()?;
        Some(Launch { bin_dir: self.bin_dir().to_owned(), arguments, log: self.log.clone() })
    }

    /// The server of a node of a cluster file; `None` when its files are on another host, or their folder is unknown.
    ///
    /// # Errors
    /// As [`Instance::at`].
    pub fn of_node(file: &ClusterFile, node: &Node) -> Result<Option<Instance>, LocalError> {
        let (Some(made), Some(data_dir), None) = (&file.made, &node.data_directory, &node.ssh) else {
            return Ok(None);
        };
        let log = node.log.clone().unwrap_or_else(|| data_dir.with_file_name("log"));
        // Also a throwaway server: a process that knows it by its file did not start it, and it outlives us.
        Instance::at(&made.binaries, data_dir, &log).map(Some)
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The server log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Folder of its binaries.
    pub fn bin_dir(&self) -> &Path {
        &self.installation.bin_dir
    }

    /// Whether it ends when our process ends.
    pub fn is_throwaway(&self) -> bool {
        self.lifetime == Lifetime::OurProcess
    }

    /// Who starts it after its end.
    pub fn supervision(&self) -> Supervision {
        match &self.manager {
            None => Supervision::Ours,
            Some(Manager::Ours(_)) => Supervision::Manager,
            Some(Manager::Foreign) => Supervision::ForeignManager,
        }
    }

    /// Its processes at this moment.
    pub fn pids(&self) -> Vec<u32> {
        self.place().map_or_else(Vec::new, |_| process::servers_in(&self.data_dir))
    }

    /// Its data directory, if no one has put a folder of another user there.
    fn place(&self) -> Option<Workplace> {
        Workplace::of(&self.data_dir).filter(|place| place.owner() == self.runs_as)
    }

    /// Whether it can take sessions: its first process exists. Others can outlive that one.
    pub fn has_postmaster(&self) -> bool {
        self.is_up() && process::outlived_in(&self.data_dir).is_empty()
    }

    /// Whether any of its processes exists.
    pub fn is_up(&self) -> bool {
        !self.pids().is_empty()
    }

    /// Its first process.
    fn postmaster(&self) -> Option<u32> {
        let pids = self.pids();
        process::postmaster_in(&self.data_dir).filter(|pid| pids.contains(pid))
    }

    fn signal(&self, pids: &[u32], signal: Signal) -> Result<(), LocalError> {
        let sent = self.place().map_or(Ok(()), |place| place.signal_all(pids, signal));
        sent.map_err(LocalError::io("signal the server in", &self.data_dir))
    }

    /// Sends a signal to all of its processes, the postmaster first.
    ///
    /// # Errors
    /// When that is not permitted.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<(), LocalError> {
        let first = self.postmaster();
        let others = self.pids().into_iter().filter(|pid| Some(*pid) != first);
        let pids: Vec<u32> = first.into_iter().chain(others).collect();
        self.signal(&pids, signal)
    }

    /// Stops every process (SIGSTOP), those of its failover manager first: the server neither answers nor closes a connection.
    ///
    /// # Errors
    /// When that is not permitted.
    pub fn pause(&self) -> Result<(), LocalError> {
        if let Some(member) = self.member() {
            member.signal(Signal::STOP)?;
        }
        self.signal_all(Signal::STOP)
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// When that is not permitted.
    pub fn resume(&self) -> Result<(), LocalError> {
        self.signal_all(Signal::CONT)?;
        self.member().map_or(Ok(()), |member| member.signal(Signal::CONT))
    }

    /// The failover manager, if its processes are known.
    fn member(&self) -> Option<&Member> {
        self.manager.as_ref().and_then(Manager::member)
    }

    /// As [`Instance::kill9`]; `with_manager`: after the same for its failover manager, as when the host is lost.
    ///
    /// # Errors
    /// As [`Instance::kill9`].
    pub fn end(&self, with_manager: bool) -> Result<(), LocalError> {
        if let Some(member) = self.member().filter(|_| with_manager) {
            member.kill()?;
        }
        self.kill9()
    }

    /// Requests a switchover from its failover manager: `name` is its name there, `to` the new primary, or the one that the manager chooses.
    ///
    /// # Errors
    /// When the manager refuses, or there is none.
    pub fn switch_over(&self, name: &str, to: Option<&str>) -> Result<(), LocalError> {
        self.member().map_or_else(|| Err(self.no_manager()), |member| member.switch_over(name, to))
    }

    /// Whether its failover manager takes it for a standby that commits wait for, and so would let it take over.
    pub fn is_synchronous_to_its_manager(&self) -> bool {
        self.member().is_some_and(Member::calls_itself_synchronous)
    }

    /// Kills the store in which the failover managers keep who is the primary.
    ///
    /// # Errors
    /// When that is not permitted, or there is none.
    pub fn kill_store(&self) -> Result<(), LocalError> {
        self.member().map_or_else(|| Err(self.no_manager()), Member::kill_store)
    }

    fn no_manager(&self) -> LocalError {
        LocalError::Topology {
            problem: format!("no failover manager of pgfathom works beside {}", self.data_dir.display()),
            hint: "pgfathom up patroni starts one".to_owned(),
        }
    }

    /// Kills every process with SIGKILL and waits until none is left. Written data stays in the kernel's page cache: this is
    /// not a power cut.
    ///
    /// # Errors
    /// When that is not permitted, or processes remain.
    pub fn kill9(&self) -> Result<(), LocalError> {
        // Repeatedly: the postmaster may have forked between our check and its end.
        let ended = poll::until(END_TIMEOUT, || match self.signal_all(Signal::KILL) {
            Ok(_) => (!self.is_up()).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        ended.unwrap_or_else(|| Err(self.not_stopped()))
    }

    /// Requests a stop, and waits until none of its processes is left.
    ///
    /// # Errors
    /// When that is not permitted, or it does not end.
    pub fn stop(&self, mode: StopMode) -> Result<(), LocalError> {
        let Some(first) = self.postmaster() else { return Ok(()) };
        self.signal(&[first], mode.signal())?;
        poll::until(END_TIMEOUT, || (!self.is_up()).then_some(())).ok_or_else(|| self.not_stopped())
    }

    /// Starts it, unless it runs, and waits until it accepts connections.
    ///
    /// # Errors
    /// When it does not start; the end of its log is part of the error.
    pub fn start(&self) -> Result<(), LocalError> {
        if self.manager.is_some() {
            return self.await_manager();
        }
        if self.place().is_some() {
            process::end_outlived(&self.data_dir)?;
        }
        if self.is_up() {
            return Ok(());
        }
        // A killed process that was not reaped still has its pid, and PostgreSQL would take it for a living server.
        if let Some(pid_file) = PidFile::read(&self.data_dir) {
            let path = self.data_dir.join("postmaster.pid");
            process::with_files_of(self.user.as_ref(), || fs::remove_file(&path))
                .map_err(LocalError::io("remove", &path))?;
            // The socket's lock names it as well.
            pid_file.socket_dir.iter().for_each(|dir| remove_sockets(dir, &self.data_dir));
        }
        let (mut child, launch) = process::spawn_postmaster(
            &self.installation,
            (&self.data_dir, self.arguments.as_deref()),
            &self.log,
            self.user.as_ref(),
            self.lifetime,
        )?;
        match launch.wait_ready(&mut child, START_TIMEOUT) {
            // A service manager may have started it at the same time: PostgreSQL lets only one of the two run.
            Err(LocalError::Start { .. }) if self.arguments.is_some() && self.is_up() => self.await_ready(),
            ended => ended,
        }
    }

    /// Starts the failover manager, if it is ours and does not run, and waits until it has started the server: a second postmaster of ours would be in its way.
    fn await_manager(&self) -> Result<(), LocalError> {
        if let Some(member) = self.member() {
            member.start(self.user.as_ref())?;
        }
        self.await_ready()
    }

    fn await_ready(&self) -> Result<(), LocalError> {
        let is_ready = || self.is_up() && PidFile::read(&self.data_dir).is_some_and(|file| file.ready);
        poll::until(START_TIMEOUT, || is_ready().then_some(())).ok_or_else(|| LocalError::NotReady {
            data_dir: self.data_dir.clone(),
            waited_s: START_TIMEOUT.as_secs(),
            log: process::log_tail(&self.log, self.user.as_ref()),
        })
    }

    fn not_stopped(&self) -> LocalError {
        LocalError::NotStopped {
            data_dir: self.data_dir.clone(),
            pid: self.postmaster().unwrap_or(0),
            waited_s: END_TIMEOUT.as_secs(),
        }
    }
}
