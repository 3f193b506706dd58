//! Server processes: their user, start, readiness and end.

use connect::poll;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use connect::os_user::OsUser;

use super::{Installation, LocalError};
use crate::sys;

/// How long processes that have outlived their server may take to end.
const OUTLIVED_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the end of a log goes into a message.
const LOG_TAIL_BYTES: u64 = 4096;
/// And how many lines.
const LOG_TAIL_LINES: usize = 12;

/// The user that servers run as when we are root, because PostgreSQL refuses root; `None` when we are not: servers then run as
/// ourselves.
pub(crate) fn server_user() -> Result<Option<OsUser>, LocalError> {
    /// Distributions make the first one; the second one exists everywhere.
    const NAMES: [&str; 2] = ["postgres", "nobody"];
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = OsUser::all().map_err(LocalError::io("read", "/etc/passwd"))?;
    NAMES
        .iter()
        .find_map(|name| users.iter().find(|user| user.name == *name && user.uid != 0).cloned())
        .map(Some)
        .ok_or_else(|| LocalError::NoUser { tried: NAMES.join(", ") })
}

/// Whether this is our user or the one that servers run as.
pub(crate) fn is_ours(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
        || server_user().ok().flatten().is_some_and(|user| user.uid == uid)
}

/// Gives `path` to `user`; of a link, the link itself.
pub(crate) fn give(path: &Path, user: &OsUser) -> Result<(), LocalError> {
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid)).map_err(LocalError::io("chown", path))
}

/// Runs `work` with the rights on files of `user`, if servers run as another user than we: what that user put in the way of ours leads nowhere else.
pub(crate) fn with_files_of<T>(user: Option<&OsUser>, work: impl FnOnce() -> T) -> T {
    match user {
        Some(user) => sys::with_files_of(user.uid, user.gid, work),
        None => work(),
    }
}

/// A command of PostgreSQL with a clean environment, run by `user`.
pub(crate) fn command(program: &Path, user: Option<&OsUser>, cwd: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(cwd).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        // PGDATA, PGPORT, PGOPTIONS and the like are meant for clients, or for another server.
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    // Messages are matched by their English text; a fixed TZ saves initdb the search through all time zones.
    command.env("LC_ALL", "C").env("TZ", "UTC");
    if let Some(user) = user {
        command
            .uid(user.uid)
            .gid(user.gid)
            .env("HOME", cwd)
            .env("USER", &user.name)
            .env("LOGNAME", &user.name);
    }
    command
}

/// Runs a program to its end; if it fails, its output becomes the error.
pub(crate) fn run_to_end(mut command: Command, name: &str) -> Result<(), LocalError> {
    let program = PathBuf::from(command.get_program());
    let output = command.output().map_err(|source| LocalError::Spawn { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    let output_tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
    Err(LocalError::Program {
        program: name.to_owned(),
        status: output.status.to_string(),
        output: output_tail,
    })
}

/// How a server is stopped (`pg_ctl stop -m`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for the clients to leave.
    Smart,
    /// Ends sessions, writes a checkpoint.
    Fast,
    /// Stops at once; the next start recovers from WAL.
    Immediate,
}

impl StopMode {
    pub(crate) fn signal(self) -> Signal {
        match self {
            StopMode::Smart => Signal::TERM,
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        }
    }
}

/// Whether a server outlives us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It ends when our process ends, in any way.
    OurProcess,
    /// It stays.
    Independent,
}

/// Spawns the postmaster in its own session; its output is appended to `log`. `arguments`: other ones than its data directory.
pub(crate) fn spawn_postmaster(
    installation: &Installation,
    (data_dir, arguments): (&Path, Option<&[String]>),
    log: &Path,
    user: Option<&OsUser>,
    lifetime: Lifetime,
) -> Result<(Child, Launch), LocalError> {
    let log_file = with_files_of(user, || record::file::append(log)).map_err(LocalError::io("open", log))?;
    let log_begin_bytes = log_file.metadata().map_err(LocalError::io("open", log))?.len();
    let log_copy = log_file.try_clone().map_err(LocalError::io("open", log))?;
    let program = installation.program("postgres");
    let mut command = command(&program, user, data_dir);
    match arguments {
        Some(arguments) => command.args(arguments),
        None => command.arg("-D").arg(data_dir),
    };
    command.stdout(log_file).stderr(log_copy);
    sys::own_session(&mut command);
    if lifetime == Lifetime::OurProcess {
        sys::die_with_parent(&mut command, Signal::QUIT);
    }
    let child = spawn_from_lasting_thread(command).map_err(|source| LocalError::Spawn { program, source })?;
    let (data_dir, log) = (data_dir.to_owned(), log.to_owned());
    Ok((child, Launch { data_dir, log, log_begin_bytes, user: user.cloned() }))
}

/// Spawns from a thread that lives as long as the process: Linux sends the parent-death signal when the spawning *thread*
/// ends, and tests start servers in short-lived ones.
pub(super) fn spawn_from_lasting_thread(mut command: Command) -> io::Result<Child> {
    type Job = Box<dyn FnOnce() + Send>;
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("spawn".to_owned())
            .spawn(move || receiver.into_iter().for_each(|job| job()))
            .expect("a thread can be started before any server is");
        sender
    });
    let (reply, result) = mpsc::channel();
    let job: Job = Box::new(move || {
        // The receiver is gone only when the caller is: then no one needs the result.
        let _ = reply.send(command.spawn());
    });
    spawner.send(job).map_err(|_| io::Error::other("the spawning thread is gone"))?;
    result.recv().map_err(io::Error::other)?
}

/// Takes note of the end of a child that nothing else waits for, so that it does not stay a zombie as long as our process lives.
pub(super) fn reap(mut child: Child) {
    // Without a thread it stays one, which is harmless.
    let _ = std::thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait());
}

/// The content of `postmaster.pid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: u32,
    /// When it was started, in seconds since 1970.
    pub(crate) started_s: Option<i64>,
    pub(crate) port: Option<u16>,
    pub(crate) socket_dir: Option<PathBuf>,
    pub(crate) ready: bool,
}

impl PidFile {
    /// Reads it; `None` if it is missing or its first line is not a number.
    ///
    /// Lines (`miscadmin.h`): pid, data directory, start time, port, socket directory, listen address, shared memory key,
    /// status. The pid is negative for a standalone backend.
    pub(crate) fn read(data_dir: &Path) -> Option<PidFile> {
        PidFile::parse(&super::text::text_of(&data_dir.join("postmaster.pid")).ok()?)
    }

    fn parse(text: &str) -> Option<PidFile> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let line = |number: usize| lines.get(number - 1).copied().filter(|l| !l.is_empty());
        Some(PidFile {
            pid: line(1)?.parse::<i64>().ok()?.unsigned_abs().try_into().ok()?,
            started_s: line(3).and_then(|l| l.parse().ok()),
            port: line(4).and_then(|l| l.parse().ok()),
            socket_dir: line(5).map(PathBuf::from),
            ready: matches!(line(8), Some("ready" | "standby")),
        })
    }
}

/// A server that was just started. Its log may hold the words of earlier starts, which are none of this one.
pub(crate) struct Launch {
    data_dir: PathBuf,
    log: PathBuf,
    /// Length of the log before.
    log_begin_bytes: u64,
    /// Who may read it.
    user: Option<OsUser>,
}

impl Launch {
    /// Waits until `postmaster.pid` reports that the server accepts connections.
    pub(crate) fn wait_ready(&self, child: &mut Child, timeout: Duration) -> Result<(), LocalError> {
        let data_dir = &self.data_dir;
        let ready = poll::until(timeout, || match child.try_wait() {
            Err(error) => Some(Err(LocalError::io("wait for the server in", data_dir)(error))),
            Ok(Some(status)) => Some(Err(LocalError::Start {
                data_dir: data_dir.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            })),
            Ok(None) => {
                let is_ready =
                    PidFile::read(data_dir).is_some_and(|file| file.ready && file.pid == child.id());
                is_ready.then_some(Ok(()))
            }
        });
        ready.unwrap_or_else(|| {
            Err(LocalError::NotReady {
                data_dir: data_dir.clone(),
                waited_s: timeout.as_secs(),
                log: self.log_tail(),
            })
        })
    }

    /// The last lines that it wrote.
    fn log_tail(&self) -> String {
        with_files_of(self.user.as_ref(), || log_tail_from(&self.log, self.log_begin_bytes))
    }
}

/// Waits until a child process has ended; false if it has not by then.
pub(crate) fn wait_ended(child: &mut Child, timeout: Duration) -> bool {
    // An error means that it is not a child any more, so it has ended.
    poll::until(timeout, || (!matches!(child.try_wait(), Ok(None))).then_some(())).is_some()
}

/// The processes of a server whose data directory is `data_dir`: they are called `postgres`, work in that folder and run as its owner. That does not depend on
/// the pid file, and a process that reuses a dead server's pid does not match. A link to a folder has none: it could lead to the server of another user.
#[cfg(target_os = "linux")]
pub fn servers_in(data_dir: &Path) -> Vec<u32> {
    Workplace::of(data_dir).map_or_else(Vec::new, |place| place.pids(is_postgres))
}

/// Whether the program of a process is a PostgreSQL server.
#[cfg(target_os = "linux")]
fn is_postgres(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    // A binary that an update has replaced shows as `postgres (deleted)`.
    program
        .is_ok_and(|exe| exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("postgres")))
}

/// A folder in which processes of its owner work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workplace {
    device: u64,
    inode: u64,
    owner: u32,
}

impl Workplace {
    /// `None` if no folder is there, or a link to one.
    pub(super) fn of(dir: &Path) -> Option<Workplace> {
        let there = fs::symlink_metadata(dir).ok().filter(fs::Metadata::is_dir)?;
        Some(Workplace { device: there.dev(), inode: there.ino(), owner: there.uid() })
    }

    /// The owner of the folder.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// The processes that work in it, as far as `is_wanted`.
    pub(super) fn pids(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| self.employs(*pid) && is_wanted(*pid))
            .collect()
    }

    /// The processes of a server that work in it, whatever its name is by now. `data_dir` is where it was.
    pub(super) fn servers(&self, data_dir: &Path) -> Vec<u32> {
        #[cfg(target_os = "linux")]
        {
            let _ = data_dir;
            self.pids(is_postgres)
        }
        #[cfg(not(target_os = "linux"))]
        servers_in(data_dir)
    }

    /// Whether this process works in it and runs as its owner.
    fn employs(&self, pid: u32) -> bool {
        let works_here = fs::metadata(format!("/proc/{pid}/cwd"))
            .is_ok_and(|there| (there.dev(), there.ino()) == (self.device, self.inode));
        works_here && users_of(pid).is_some_and(|users| users == [self.owner; 2])
    }

    /// Sends a signal to these of its processes, one after another.
    pub(super) fn signal_all(&self, pids: &[u32], signal: Signal) -> io::Result<()> {
        pids.iter().try_for_each(|pid| self.signal(*pid, signal))
    }

    /// Sends a signal to one of its processes. Between the look at a process and the signal its number could become that of another one, so the process is held
    /// and looked at again, where the kernel can hold it.
    pub(super) fn signal(&self, pid: u32, signal: Signal) -> io::Result<()> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        #[cfg(target_os = "linux")]
        match rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()) {
            Ok(held) if self.employs(pid) => {
                return match rustix::process::pidfd_send_signal(held, signal) {
                    Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
                    Err(errno) => Err(errno.into()),
                };
            }
            Ok(_) | Err(rustix::io::Errno::SRCH) => return Ok(()),
            // Before Linux 5.3, or forbidden by a container.
            Err(_) => {}
        }
        let _ = number;
        if cfg!(not(target_os = "linux")) || self.employs(pid) { send_signal(pid, signal) } else { Ok(()) }
    }
}

/// A process, held by the kernel: its number does not become that of another one.
pub(super) struct Handle(Option<rustix::fd::OwnedFd>);

impl Handle {
    /// Without a handle where the kernel gives none.
    pub(super) fn of(pid: u32) -> Handle {
        #[cfg(target_os = "linux")]
        {
            let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let flags = rustix::process::PidfdFlags::empty();
            Handle(number.and_then(|number| rustix::process::pidfd_open(number, flags).ok()))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = pid;
            Handle(None)
        }
    }

    /// Whether it has ended, as far as the kernel shows that: its handle can be read then (pidfd_open(2)).
    pub(super) fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(handle) = &self.0 else { return true };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&now)), Ok(0))
    }
}

/// The real and the effective user of a process. The owner of its folder in `/proc` may be root although the process is not.
fn users_of(pid: u32) -> Option<[u32; 2]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace();
    Some([users.next()?.parse().ok()?, users.next()?.parse().ok()?])
}

/// Sends a signal to these servers of a data directory.
pub(crate) fn signal_servers(data_dir: &Path, pids: &[u32], signal: Signal) -> Result<(), LocalError> {
    let Some(place) = Workplace::of(data_dir) else { return Ok(()) };
    place.signal_all(pids, signal).map_err(LocalError::io("signal the server in", data_dir))
}

/// Without `/proc`: the process of the pid file, if its command line reports that it is a server of this folder.
#[cfg(not(target_os = "linux"))]
pub fn servers_in(data_dir: &Path) -> Vec<u32> {
    let Some(file) = PidFile::read(data_dir) else { return Vec::new() };
    let output = Command::new("ps").args(["-o", "command=", "-p", &file.pid.to_string()]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let ours = text.contains("postgres") && text.contains(&*data_dir.to_string_lossy());
    ours.then_some(file.pid).into_iter().collect()
}

/// The first process of the server in `data_dir`: the one that the pid file names, else the one whose parent is not a process of the server.
pub(super) fn postmaster_in(data_dir: &Path) -> Option<u32> {
    let servers = servers_in(data_dir);
    let named = PidFile::read(data_dir).map(|file| file.pid).filter(|pid| servers.contains(pid));
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything; state and parent follow it.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    named.or_else(|| first_of(&servers, parent))
}

/// The process of which no other one is the parent. One that has ended since has none, and is not the first: a session's number may be lower than the
/// server's, as numbers begin anew.
fn first_of(servers: &[u32], parent: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let is_first = |pid: &&u32| parent(**pid).is_some_and(|parent| !servers.contains(&parent));
    servers.iter().find(is_first).or(servers.first()).copied()
}

/// The processes of a server whose first process is gone: a worker that does not look after it works on, and the next start is refused, because the shared
/// memory is in use. Empty where a first process runs, whatever the pid file names.
pub(crate) fn outlived_in(data_dir: &Path) -> Vec<u32> {
    // All of them have such titles, the first process has none.
    let is_child = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"postgres: "))
    };
    let servers = servers_in(data_dir);
    if servers.iter().all(is_child) { servers } else { Vec::new() }
}

/// Ends the processes that have outlived their server, so that it can be started again.
pub(crate) fn end_outlived(data_dir: &Path) -> Result<(), LocalError> {
    let Some(place) = Workplace::of(data_dir).filter(|place| is_ours_to_end(place.owner())) else {
        return Ok(());
    };
    // One that is stopped receives nothing else; one that hangs does not heed the first.
    for signals in [&[Signal::QUIT, Signal::CONT][..], &[Signal::KILL]] {
        let ended = poll::until(OUTLIVED_TIMEOUT, || {
            let left = outlived_in(data_dir);
            let sent = signals.iter().try_for_each(|signal| place.signal_all(&left, *signal));
            match sent {
                _ if left.is_empty() => Some(Ok(())),
                Ok(()) => None,
                Err(error) => Some(Err(LocalError::io("signal the server in", data_dir)(error))),
            }
        });
        if let Some(ended) = ended {
            return ended;
        }
    }
    let pid = outlived_in(data_dir).first().copied().unwrap_or_default();
    Err(LocalError::NotStopped {
        data_dir: data_dir.to_owned(),
        pid,
        waited_s: 2 * OUTLIVED_TIMEOUT.as_secs(),
    })
}

/// Whether we may signal processes of this user.
fn is_ours_to_end(uid: u32) -> bool {
    rustix::process::geteuid().is_root() || uid == rustix::process::geteuid().as_raw()
}

/// Sends a signal; a missing process is no error.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The last lines of a log, for a message; read with the rights of `user`, in whose folder it is.
pub(crate) fn log_tail(log: &Path, user: Option<&OsUser>) -> String {
    with_files_of(user, || log_tail_from(log, 0))
}

/// Of the lines after `begin_bytes` the last ones.
fn log_tail_from(log: &Path, begin_bytes: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = record::file::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES).max(begin_bytes)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_held_process_is_seen_before_its_parent_looks() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let held = Handle::of(child.id());
        assert!(!held.has_ended());
        child.kill().unwrap();
        assert!(poll::until(Duration::from_secs(10), || held.has_ended().then_some(())).is_some());
        child.wait().unwrap();
        assert!(Handle::of(u32::MAX).has_ended(), "none is held");
    }

    #[test]
    fn pid_files_are_read_in_every_state() {
        let full = "4711\n/data\n1700000000\n5433\n/tmp/x\n*\n  123  456\nready   \n";
        let file = PidFile::parse(full).unwrap();
        assert_eq!((file.pid, file.port, file.ready), (4711, Some(5433), true));
        assert_eq!(file.started_s, Some(1_700_000_000));
        assert_eq!(file.socket_dir, Some(PathBuf::from("/tmp/x")));
        assert!(!PidFile::parse(&full.replace("ready", "starting")).unwrap().ready);
        assert!(PidFile::parse(&full.replace("ready", "standby")).unwrap().ready);
        assert_eq!(PidFile::parse("-12\n").unwrap().pid, 12);
        assert_eq!(PidFile::parse("12\n/data\n17\n5432\n\n").unwrap().socket_dir, None);
        assert_eq!(PidFile::parse(""), None);
        assert_eq!(PidFile::parse("abc\n"), None);
    }

    #[test]
    fn a_session_that_ends_while_it_is_looked_at_is_not_the_server() {
        // 7 is a session that has ended, whose number is lower than that of the server; 90 and 91 are of the server 90.
        let parent = |pid: u32| match pid {
            90 => Some(1),
            91 => Some(90),
            _ => None,
        };
        assert_eq!(first_of(&[7, 90, 91], parent), Some(90));
        assert_eq!(first_of(&[90, 91], parent), Some(90));
        assert_eq!(first_of(&[7], parent), Some(7), "what cannot be read may be the server");
        assert_eq!(first_of(&[], parent), None);
    }
}
