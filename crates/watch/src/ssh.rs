//! Hosts reached by ssh: one pipe each, through the user's own `ssh`, to a shell loop that sends kernel files on request. Nothing is
//! installed or written on the remote host, and the same parsers read the data.
//!
//! | state of the link | left by |
//! |---|---|
//! | none | the next try, which comes later after each failure, to waiting for the greeting |
//! | waiting for the greeting | the greeting, to idle; the end of `ssh`, or no data for [`STALL_US`], to none |
//! | idle | a request at a tick, to requested |
//! | requested | a whole shipment, to idle; the end of `ssh`, or no data for [`STALL_US`], to none |
//!
//! A shipment is requested, never pushed: a host that is too busy to answer gets no further requests, and when this process ends, the
//! shell reads the end of its input and ends.

pub mod shipment;

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Tick};
use crate::host::files::{Files, Shipped};
use crate::host::kernel_log;
use crate::host::machine::Machine;
use crate::host::{plain_parts, record_new, record_old, server};
use connect::poll;
use record::{Clock, event};
use shipment::{Arrived, Shipment, VERSION};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The remote script. It is sent over the pipe, and reads its requests from the rest of it.
const SCRIPT: &str = include_str!("ssh/remote.sh");
/// A link without an answer for this long after a request is given up.
pub const STALL_US: u64 = 15_000_000;
/// The longest wait for an answer within one tick, as a part of the time between two ticks.
const WAIT_PART: u64 = 2;
/// The first and the longest time between two tries.
const RETRY_US: (u64, u64) = (1_000_000, 60_000_000);
/// Time between shipments of slow files.
const SLOW_EVERY_US: u64 = 10_000_000;
/// Time between searches of all processes.
const SEARCH_EVERY_US: u64 = 600_000_000;
/// Processes in one request at most.
const PIDS_MAX: usize = 128;
/// A line of a shipment is cut here.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// The longest kept error output of `ssh`.
const COMPLAINT_BYTES_MAX: usize = 4096;
/// How long this waits for the end of `ssh`.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How to reach a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Its name in the record.
    pub host: String,
    /// The destination for `ssh`: `db1`, `admin@db1`, an entry of the user's ssh configuration.
    pub destination: String,
    /// The nodes of the board that run on it.
    pub nodes: Vec<String>,
    /// The program: `ssh`, or a test's replacement.
    pub program: PathBuf,
}

impl Remote {
    /// A host reached by the user's `ssh`.
    pub fn new(host: &str, destination: &str, nodes: Vec<String>) -> Remote {
        let program = PathBuf::from("ssh");
        Remote { host: host.to_string(), destination: destination.to_string(), nodes, program }
    }
}

/// Messages from the reader of the pipe.
#[derive(Debug)]
enum PipeMessage {
    Hello,
    UnknownHost(String),
    /// A complete shipment: when its reading began (0 if unknown) and the host's uptime then.
    Whole {
        began_us: u64,
        uptime_us: u64,
    },
    Closed,
}

#[derive(Debug)]
struct Link {
    child: Child,
    requests: Option<ChildStdin>,
    news: Receiver<PipeMessage>,
    files: Arc<Mutex<Shipped>>,
    complaint: JoinHandle<String>,
    has_greeted: bool,
    /// When the request was sent that is not answered yet, or the link opened.
    waiting_since_us: Option<u64>,
}

/// The collector of a remote machine.
#[derive(Debug)]
pub struct RemoteHost {
    remote: Remote,
    machine: Machine,
    board: Arc<Board>,
    link: Option<Link>,
    retry_due_us: u64,
    retry_us: u64,
    slow_due_us: u64,
    search_due_us: u64,
    /// Why the host cannot be read; empty while it can.
    lost: String,
    /// The time since boot of the newest kernel message that was recorded.
    reported_boot_us: Option<u64>,
}

impl RemoteHost {
    /// A machine not yet reached.
    pub fn new(remote: Remote, board: Arc<Board>) -> RemoteHost {
        RemoteHost {
            machine: Machine::new(&remote.host),
            remote,
            board,
            link: None,
            retry_due_us: 0,
            retry_us: RETRY_US.0,
            slow_due_us: 0,
            search_due_us: 0,
            lost: String::new(),
            reported_boot_us: None,
        }
    }

    fn connect(&self, clock: Clock, now_us: u64) -> std::io::Result<Link> {
        let mut child = Command::new(&self.remote.program)
            .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            .args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"])
            .args(["--", &self.remote.destination, "exec sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must not end ssh: the run drains, and its last seconds are sampled, too.
            .process_group(0)
            .spawn()?;
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some(stdin) = &mut stdin {
            // The script is far smaller than the pipe, so this cannot block; a dead link is detected below.
            let _ = stdin.write_all(SCRIPT.as_bytes()).and_then(|()| stdin.flush());
        }
        let files = Arc::new(Mutex::new(Shipped::default()));
        let (detail, news) = channel();
        let shared = Arc::clone(&files);
        std::thread::spawn(move || {
            if let Some(stdout) = stdout {
                read(stdout, clock, &shared, &detail);
            }
            let _ = detail.send(PipeMessage::Closed);
        });
        let complaint = std::thread::spawn(move || stderr.map(complaint).unwrap_or_default());
        Ok(Link {
            child,
            requests: stdin,
            news,
            files,
            complaint,
            has_greeted: false,
            waiting_since_us: Some(now_us),
        })
    }

    /// Requests the next shipment.
    fn ask(&mut self, now_us: u64) {
        let nodes = self.board.nodes();
        let ours = self.remote.nodes.iter().filter_map(|name| nodes.get(name));
        let pids: Vec<String> = ours
            .flat_map(|state| state.active.iter().map(|process| process.pid.to_string()))
            .take(PIDS_MAX)
            .collect();
        let Some(link) = &mut self.link else { return };
        let what = if now_us >= self.search_due_us {
            (self.search_due_us, self.slow_due_us) = (now_us + SEARCH_EVERY_US, now_us + SLOW_EVERY_US);
            'x'
        } else if now_us >= self.slow_due_us {
            self.slow_due_us = now_us + SLOW_EVERY_US;
            's'
        } else {
            'f'
        };
        link.waiting_since_us = Some(now_us);
        if let Some(requests) = &mut link.requests {
            // If the other side is gone, the reader of the other pipe sees the end.
            let _ = writeln!(requests, "{what} {}", pids.join(" ")).and_then(|()| requests.flush());
        }
    }

    /// Waits for data until `deadline`. True if the link stays open.
    fn wait(&mut self, tick: &Tick, deadline: Instant, batch: &mut Batch) -> Result<(), String> {
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            match link.news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(PipeMessage::Hello) => {
                    link.has_greeted = true;
                    // Earlier data may be from another boot.
                    (self.slow_due_us, self.search_due_us) = (0, 0);
                    self.ask(tick.now_us);
                }
                Ok(PipeMessage::UnknownHost(version)) => {
                    return Err(format!("the remote script has version {version}, not {VERSION}"));
                }
                Ok(PipeMessage::Whole { began_us, uptime_us }) => {
                    link.waiting_since_us = None;
                    let files = Arc::clone(&link.files);
                    self.arrived(tick, began_us, uptime_us, &mut files_of(&files), batch);
                    return Ok(());
                }
                Ok(PipeMessage::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Err("ssh ended".to_string());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let since_us = link.waiting_since_us.unwrap_or(tick.now_us);
                    let silent_us = tick.now_us.saturating_sub(since_us);
                    return match silent_us >= STALL_US {
                        true => Err(format!("no reply for {} s", silent_us / 1_000_000)),
                        false => Ok(()),
                    };
                }
            }
        }
    }

    fn arrived(
        &mut self,
        tick: &Tick,
        began_us: u64,
        uptime_us: u64,
        files: &mut Shipped,
        batch: &mut Batch,
    ) {
        let place = self.machine.place().clone();
        if !self.lost.is_empty() {
            self.lost.clear();
            batch.reading(tick.now_us, place.missing("machine", "", LOST));
        }
        self.retry_us = RETRY_US.0;
        let now_us = if began_us > 0 { began_us } else { tick.clock.now_us() };
        self.record_log(tick, now_us, uptime_us, files, batch);
        let nodes = self.board.nodes();
        let servers: Vec<_> = self
            .remote
            .nodes
            .iter()
            .filter_map(|name| Some((name.clone(), nodes.get(name)?)))
            .map(|(name, state)| {
                let parts = plain_parts(&name, state);
                server(name, state, parts)
            })
            .collect();
        self.machine.tick(files, now_us, &servers, batch);
    }

    /// The lines of `dmesg` that are newer than those recorded before.
    fn record_log(
        &mut self,
        tick: &Tick,
        now_us: u64,
        uptime_us: u64,
        files: &mut Shipped,
        batch: &mut Batch,
    ) {
        let Ok(text) = files.text("/@/dmesg") else { return };
        if text.trim().is_empty() {
            let why = "dmesg prints nothing (needs root, or CAP_SYSLOG if kernel.dmesg_restrict is 1)";
            self.machine.slow().1.lacks("kernel log", why, kernel_log::LOST);
            return;
        }
        let messages: Vec<_> = text.lines().filter_map(kernel_log::dmesg_line).collect();
        let place = self.machine.place().clone();
        let newest = messages.last().map_or(0, |message| message.boot_us);
        match self.reported_boot_us {
            None => record_old(&messages, uptime_us, now_us, &place, &mut self.machine, batch),
            Some(detail) => {
                let mut new: Vec<_> =
                    messages.into_iter().filter(|message| message.boot_us > detail).collect();
                // Converts the remote uptime to our clock: both advance equally.
                for message in &mut new {
                    let ago_us = uptime_us.saturating_sub(message.boot_us);
                    message.boot_us = tick.clock.monotonic_us + now_us.saturating_sub(ago_us);
                }
                record_new(new, tick, &place, batch);
            }
        }
        self.reported_boot_us = Some(self.reported_boot_us.unwrap_or(0).max(newest));
    }

    /// Gives the link up, reports the reason, and tries again later.
    fn lose(&mut self, tick: &Tick, why: &str, batch: &mut Batch) {
        let complaint = self.link.take().map(Link::end).unwrap_or_default();
        let why = match complaint.is_empty() {
            true => why.to_string(),
            false => format!("{why}: {complaint}"),
        };
        self.retry_due_us = tick.now_us + self.retry_us;
        self.retry_us = (self.retry_us * 2).min(RETRY_US.1);
        if self.lost != why {
            let place = self.machine.place().clone();
            let text = format!("ssh {}: {why}", self.remote.destination);
            batch.event(place.event(tick.now_us, event::NOTE, text.as_str()));
            batch.reading(tick.now_us, place.missing("machine", text, LOST));
            self.lost = why;
        }
    }
}

/// What is unknown about a host that is not reached.
const LOST: &str =
    "everything about this host: processors, disks, memory, network, hardware, kernel messages";

fn files_of(files: &Mutex<Shipped>) -> MutexGuard<'_, Shipped> {
    // Entries are replaced whole.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the pipe to its end. The files are only touched between a request and its answer, when no other thread reads them.
fn read(
    stdout: impl Read,
    clock: Clock,
    files: &Mutex<Shipped>,
    detail: &std::sync::mpsc::Sender<PipeMessage>,
) {
    let mut reader = BufReader::new(stdout);
    let mut shipment = Shipment::default();
    let (mut line, mut began_us) = (vec![], 0);
    loop {
        line.clear();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        let news = match shipment.line(text, &mut files_of(files)) {
            Arrived::Part => continue,
            Arrived::Began => {
                began_us = clock.now_us();
                continue;
            }
            Arrived::Hello(_) => PipeMessage::Hello,
            Arrived::UnknownHost(version) => PipeMessage::UnknownHost(version),
            Arrived::Whole { uptime_us } => PipeMessage::Whole { began_us, uptime_us },
        };
        if detail.send(news).is_err() {
            return;
        }
    }
}

/// The last line of the error output of `ssh`; all of it is read, so that it never blocks.
fn complaint(stderr: impl Read) -> String {
    let mut last = String::new();
    let mut reader = BufReader::new(stderr);
    let mut line = vec![];
    loop {
        line.clear();
        match reader.by_ref().take(COMPLAINT_BYTES_MAX as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim().to_string();
                if !text.is_empty() {
                    last = record::redact::text(&text);
                }
            }
        }
    }
}

impl Link {
    /// Ends the program: by the end of its input, else by force. Returns its error output.
    fn end(mut self) -> String {
        drop(self.requests.take());
        let deadline = Instant::now() + END_PATIENCE;
        if poll::until(END_PATIENCE, || (!matches!(self.child.try_wait(), Ok(None))).then_some(())).is_none()
        {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // A grandchild may keep the pipe open: then the error output stays unknown.
        let left = deadline.saturating_duration_since(Instant::now());
        poll::until(left, || self.complaint.is_finished().then_some(()));
        if self.complaint.is_finished() { self.complaint.join().unwrap_or_default() } else { String::new() }
    }
}

impl Collect for RemoteHost {
    fn place(&self) -> Place {
        self.machine.place().clone()
    }

    fn part(&self) -> &'static str {
        "ssh"
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        if self.link.is_none() && tick.now_us >= self.retry_due_us {
            match self.connect(tick.clock, tick.now_us) {
                Ok(link) => self.link = Some(link),
                Err(error) => return self.lose(tick, &format!("cannot start ssh: {error}"), batch),
            }
        }
        let Some(link) = &self.link else { return };
        if link.has_greeted && link.waiting_since_us.is_none() {
            self.ask(tick.now_us);
        }
        let deadline = Instant::now() + Duration::from_micros(tick.cadence_us / WAIT_PART);
        if let Err(why) = self.wait(tick, deadline, batch) {
            self.lose(tick, &why, batch);
        }
    }

    fn finish(&mut self, _tick: &Tick, _batch: &mut Batch) {
        if let Some(link) = self.link.take() {
            link.end();
        }
    }
}

#[cfg(test)]
mod tests;
