//! What uses the server of an entry: scripts of pgbench, sessions, idle connections, programs. All of it ends with the value.

use super::entry::Load;
use crate::sys;
use postgres::Client;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How much later than planned a script may end. One that is stuck longer is killed.
const GRACE: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(50);

/// A server, for those who connect to it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The folder of the server's programs.
    pub(crate) bin: PathBuf,
    /// A folder with a socket, or an address.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) data_dir: PathBuf,
}

impl Place {
    fn words(&self, user: &str) -> String {
        format!("host={} port={} user={user} dbname=postgres", self.host, self.port)
    }

    pub(crate) fn session(&self, user: &str) -> Result<Client, String> {
        Client::connect(&self.words(user)).map_err(|error| words_of(&error))
    }

    /// libpq's variables, and a PATH with the server's and the distribution's programs.
    pub(crate) fn set_environment(&self, command: &mut Command, user: &str) {
        let path = std::env::var("PATH").unwrap_or_default();
        let clients = testing::needs::client_program("pgbench").ok();
        let clients = clients.and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default();
        command.env("PATH", format!("{}:{}:{path}:/usr/sbin:/sbin", self.bin.display(), clients.display()));
        command.env("PGHOST", &self.host).env("PGPORT", self.port.to_string()).env("PGUSER", user);
        command.env("PGDATABASE", "postgres").env("PGDATA", &self.data_dir);
    }

    /// Runs a program as the user of the server, which PostgreSQL's own programs require.
    pub(crate) fn set_owner(&self, command: &mut Command) -> Result<(), String> {
        let owner = fs::metadata(&self.data_dir).map_err(|error| error.to_string())?;
        command.uid(owner.uid()).gid(owner.gid());
        Ok(())
    }
}

/// An error of the server with its message.
pub(crate) fn words_of(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("{}: {}", server.code().code(), server.message()),
        None => error.to_string(),
    }
}

/// A program and where its output goes.
struct Program {
    child: Child,
    output: PathBuf,
    may_fail: bool,
    is_script: bool,
    /// When a script has to be ready.
    due: Instant,
}

impl Program {
    fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A thread with sessions of ours.
struct Session {
    thread: Option<JoinHandle<Result<(), String>>>,
    done: Arc<AtomicU64>,
    text: String,
    may_fail: bool,
}

/// Everything that runs.
pub(crate) struct Running {
    folder: PathBuf,
    programs: Vec<Program>,
    sessions: Vec<Session>,
    stop: Arc<AtomicBool>,
    count: usize,
}

impl Running {
    pub(crate) fn new(folder: &Path) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        Running { folder: folder.to_path_buf(), programs: Vec::new(), sessions: Vec::new(), stop, count: 0 }
    }

    /// Starts a load, which scripts end after so many seconds.
    pub(crate) fn start(&mut self, place: &Place, load: &Load, seconds: u64) -> Result<(), String> {
        if load.script.is_some() {
            return self.script(place, load, seconds);
        }
        if let Some(words) = &load.shell {
            for _ in 0..load.clients {
                let mut command = Command::new("sh");
                command.args(["-c", words]);
                self.program(place, load, command, None)?;
            }
            return Ok(());
        }
        if let Some(count) = load.connections {
            return self.idle(place, load, count);
        }
        for _ in 0..load.clients {
            self.session(place, load);
            thread::sleep(Duration::from_millis(load.stagger_ms));
        }
        Ok(())
    }

    fn script(&mut self, place: &Place, load: &Load, seconds: u64) -> Result<(), String> {
        let name = format!("script-{}.sql", self.count);
        let path = self.folder.join(&name);
        fs::write(&path, load.script.as_deref().unwrap_or_default()).map_err(|error| error.to_string())?;
        let (clients, time) = (load.clients.to_string(), seconds.to_string());
        let protocol = load.protocol.as_deref().unwrap_or("simple");
        let pgbench = testing::needs::client_program("pgbench").ok();
        let command = match (load.driver.as_deref(), pgbench) {
            (Some("pgfathom"), _) | (_, None) => {
                let mut command = crate::support::pgfathom(&self.folder);
                command.args(["run", "-n", "--watch", "off", "-f", &name, "-c", &clients, "-T", &time]);
                command.args(["--protocol", protocol, "-o", &format!("driven-{}", self.count)]);
                if let Some(rate) = load.rate {
                    command.args(["-R", &rate.to_string()]);
                }
                command
            }
            (_, Some(pgbench)) => {
                let mut command = Command::new(pgbench);
                command.args(["-n", "-c", &clients, "-T", &time, "-M", protocol, "-f", &name]);
                command.args(["-j", if load.clients > 1 { "2" } else { "1" }]);
                if let Some(rate) = load.rate {
                    command.args(["-R", &rate.to_string()]);
                }
                if load.connect {
                    command.arg("-C");
                }
                command
            }
        };
        self.program(place, load, command, Some(seconds))
    }

    fn program(
        &mut self,
        place: &Place,
        load: &Load,
        mut command: Command,
        seconds: Option<u64>,
    ) -> Result<(), String> {
        let output = self.folder.join(format!("program-{}.txt", self.count));
        self.count += 1;
        place.set_environment(&mut command, load.user.as_deref().unwrap_or("postgres"));
        let file = File::create(&output).map_err(|error| error.to_string())?;
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(|error| error.to_string())?).stderr(file);
        command.process_group(0);
        sys::end_with_us(&mut command);
        let child = command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        let due = Instant::now() + Duration::from_secs(seconds.unwrap_or_default()) + GRACE;
        let may_fail = load.may_fail;
        self.programs.push(Program { child, output, may_fail, is_script: seconds.is_some(), due });
        Ok(())
    }

    fn idle(&mut self, place: &Place, load: &Load, count: usize) -> Result<(), String> {
        let user = load.user.as_deref().unwrap_or("postgres");
        let all: Vec<Client> = (0..count).map(|_| place.session(user)).collect::<Result<_, _>>()?;
        let stop = Arc::clone(&self.stop);
        let done = Arc::new(AtomicU64::new(all.len() as u64));
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
            drop(all);
            Ok(())
        });
        self.sessions.push(Session { thread: Some(thread), done, text: String::new(), may_fail: false });
        Ok(())
    }

    fn session(&mut self, place: &Place, load: &Load) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&done);
        let (place, load, text) =
            (place.clone(), load.clone(), format!("{:?}", load.hold.as_ref().or(load.repeat.as_ref())));
        let may_fail = load.may_fail;
        let thread = thread::spawn(move || converse(&place, &load, &stop, &counted));
        self.sessions.push(Session { thread: Some(thread), done, text, may_fail });
    }

    /// Waits until the scripts have ended, and returns the mean latency of the first one in ms, if it completed transactions.
    pub(crate) fn end_scripts(&mut self) -> Result<Option<f64>, String> {
        let mut latency_ms = None;
        for program in self.programs.iter_mut().filter(|program| program.is_script) {
            let mut status = None;
            while status.is_none() && Instant::now() < program.due {
                status = program.child.try_wait().map_err(|error| error.to_string())?;
                thread::sleep(LOOK);
            }
            let text = fs::read_to_string(&program.output).unwrap_or_default();
            if !program.may_fail && status.is_some_and(|status| !status.success()) {
                return Err(format!("a script failed: {}", last_lines(&text)));
            }
            program.kill();
            latency_ms = latency_ms.or_else(|| mean_latency_ms(&text));
        }
        self.programs.retain(|program| !program.is_script);
        Ok(latency_ms)
    }

    /// Whether every session that must succeed has done so at least once.
    pub(crate) fn worked(&self) -> Result<(), String> {
        for session in self.sessions.iter().filter(|session| !session.may_fail) {
            if session.done.load(Ordering::Relaxed) == 0 {
                let whole: String = session.text.chars().take(200).collect();
                return Err(format!("a session never completed its work: {whole}"));
            }
        }
        Ok(())
    }

    /// Ends it, once the server has been stopped: sessions that wait get their error from that.
    pub(crate) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.programs.clear();
        for session in &mut self.sessions {
            let _ = session.thread.take().map(JoinHandle::join);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A session: its statement once, or again and again. After an error it goes on, if necessary in a new connection.
fn converse(place: &Place, load: &Load, stop: &AtomicBool, done: &AtomicU64) -> Result<(), String> {
    let user = load.user.as_deref().unwrap_or("postgres");
    let (text, again) = match (&load.hold, &load.repeat) {
        (Some(text), _) => (text, false),
        (None, Some(text)) => (text, true),
        (None, None) => return Ok(()),
    };
    let mut session = place.session(user)?;
    while !stop.load(Ordering::Relaxed) {
        match session.batch_execute(text) {
            Ok(()) => {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if session.is_closed() => {
                if !again {
                    return Err(words_of(&error));
                }
                thread::sleep(LOOK);
                session = match place.session(user) {
                    Ok(session) => session,
                    Err(_) => continue,
                };
            }
            Err(_) => {
                let _ = session.batch_execute("ROLLBACK");
            }
        }
        while !again && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        thread::sleep(Duration::from_millis(load.pause_ms));
    }
    Ok(())
}

/// `latency average = 1.234 ms` of pgbench.
fn mean_latency_ms(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("latency average = "))?;
    line.split(' ').next()?.parse().ok()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
