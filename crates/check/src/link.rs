//! The way to the probe of a host: a thread on this host, or the user's own `ssh`, to an installed pgfathom or to a copy that removes
//! itself.
//!
//! When a link is dropped, the probe reads the end of its requests: it stops, removes its files and ends.

use crate::hosts::Host;
use crate::probe::message::{PROTOCOL, Reply, Request};
use crate::probe::{self, REMOVE_FLAG};
use connect::poll;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use watch::ssh::{self, Remote};

/// How long a host has to greet, beside the copy of the program.
const GREETING: Duration = Duration::from_secs(20);
/// How long this waits for a probe to remove its files and end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// The interval at which a request to stop is noticed.
const BEAT: Duration = Duration::from_millis(50);
/// The program is copied in such parts, and progress is noticed after each.
const COPY_PART_BYTES: usize = 64 << 10;
/// Replies that wait to be read: a host that sends more than was requested must not fill the memory.
const REPLIES_MAX: usize = 16;
/// A reply is cut here.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Lines that a shell may print before the probe greets.
const BANNER_LINES_MAX: usize = 200;
/// A line before the greeting is cut here: a host that sends no line end is noticed soon.
const BANNER_BYTES_MAX: u64 = 64 << 10;
/// How the reason begins if there is a program and it cannot run.
pub(crate) const ENDED: &str = "the program there ended with";
/// What the remote script prints when there is no program.
const ABSENT: &str = "@pgfathom-absent";
/// What it prints when a copy cannot run there.
const OTHER: &str = "@pgfathom-other-machine";

/// How hosts are reached.
#[derive(Clone, Debug)]
pub struct Ways {
    /// The program `ssh`, or what stands for it.
    pub ssh: PathBuf,
    /// The name or path of pgfathom on the hosts.
    pub program: String,
    /// Whether pgfathom may be copied to hosts that lack it.
    pub may_copy: bool,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { ssh: PathBuf::from("ssh"), program: "pgfathom".to_string(), may_copy: false }
    }
}

impl Ways {
    /// How ssh reaches a host.
    pub fn remote(&self, host: &Host) -> Remote {
        let remote = Remote::new(&host.name, &host.destination, vec![]);
        Remote { port: host.port, program: self.ssh.clone(), ..remote }
    }
}

/// Why a host has no probe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// The host cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The host is reached, and has no program that can measure.
    #[error("{0}")]
    NoProgram(String),
    /// The probe ended or did not answer.
    #[error("{0}")]
    Lost(String),
    /// A stop was requested.
    #[error("interrupted")]
    Stopped,
}

/// A probe that answers.
#[derive(Debug)]
pub struct Link {
    requests: Option<Box<dyn Writing>>,
    replies: Receiver<Reply>,
    child: Option<Child>,
    thread: Option<JoinHandle<()>>,
    complaint: Option<JoinHandle<String>>,
    /// It ended, or owes a reply: another request would get that one.
    is_lost: bool,
    /// What measures there, for people.
    pub measured_by: &'static str,
}

/// Where requests are written.
trait Writing: Write + Send + std::fmt::Debug {}
impl<T: Write + Send + std::fmt::Debug> Writing for T {}

impl Link {
    /// Reaches the probe of a host.
    ///
    /// # Errors
    /// When the host or the program cannot be reached.
    pub fn open(host: &Host, ways: &Ways, stop: &AtomicBool) -> Result<Link, LinkError> {
        if host.is_local {
            return Link::local(stop);
        }
        let program = quoted(&ways.program);
        let script = format!(
            "command -v {program} >/dev/null 2>&1 || {{ echo {ABSENT}; exit 0; }}; exec {program} check --probe"
        );
        match Link::remote(host, ways, &script, None, stop) {
            Err(LinkError::NoProgram(why)) if !ways.may_copy => Err(LinkError::NoProgram(why)),
            Err(LinkError::NoProgram(_)) => Link::copied(host, ways, stop),
            other => other,
        }
    }

    fn local(stop: &AtomicBool) -> Result<Link, LinkError> {
        let lost = |error: std::io::Error| LinkError::Lost(format!("cannot start a thread: {error}"));
        let (ours, theirs) = UnixStream::pair().map_err(lost)?;
        let (read, write) = (theirs.try_clone().map_err(lost)?, theirs);
        let thread = std::thread::spawn(move || probe::serve(read, write));
        let replies = replies_of(ours.try_clone().map_err(lost)?);
        let link = Link {
            requests: Some(Box::new(LocalEnd(ours))),
            replies,
            child: None,
            thread: Some(thread),
            complaint: None,
            is_lost: false,
            measured_by: "this process",
        };
        link.greeted(GREETING, stop)
    }

    fn copied(host: &Host, ways: &Ways, stop: &AtomicBool) -> Result<Link, LinkError> {
        let lost =
            |error: std::io::Error| LinkError::NoProgram(format!("this program cannot be read: {error}"));
        let program = std::fs::read("/proc/self/exe").map_err(lost)?;
        let machine = rustix::system::uname();
        let machine =
            format!("{} {}", machine.sysname().to_string_lossy(), machine.machine().to_string_lossy());
        // The copy removes itself as soon as it runs; until then the trap does.
        let script = format!(
            "[ \"$(uname -sm)\" = {} ] || {{ echo {OTHER}; exit 0; }}; umask 077; \
             d=$(mktemp -d \"${{TMPDIR:-/tmp}}/{}XXXXXX\") || exit 1; trap 'rm -rf \"$d\"' EXIT HUP INT TERM; \
             head -c {} >\"$d/pgfathom\" && chmod 700 \"$d/pgfathom\" && \"$d/pgfathom\" check --probe {REMOVE_FLAG}",
            quoted(&machine),
            probe::COPY_FOLDER,
            program.len(),
        );
        Link::remote(host, ways, &script, Some(program), stop)
    }

    fn remote(
        host: &Host,
        ways: &Ways,
        script: &str,
        program: Option<Vec<u8>>,
        stop: &AtomicBool,
    ) -> Result<Link, LinkError> {
        let mut command = ways.remote(host).command(&for_any_shell(script));
        // Ctrl-C must not end ssh before the probe has removed its files.
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = spawned.map_err(|error| {
            LinkError::Unreachable(format!("{} cannot be started: {error}", ways.ssh.display()))
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(LinkError::Unreachable("ssh has no pipes".to_string()));
        };
        let is_copy = program.is_some();
        let sent = match program {
            Some(program) => sent(stdin, program, GREETING, stop),
            None => Ok((stdin, true)),
        };
        let (stdin, is_sent) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        // If this failed, the script has printed the reason and ended.
        let patience = if is_sent { GREETING } else { END_PATIENCE };
        let link = Link {
            requests: Some(Box::new(stdin)),
            replies: replies_of(stdout),
            child: Some(child),
            thread: None,
            complaint: Some(std::thread::spawn(move || ssh::complaint(stderr))),
            is_lost: false,
            measured_by: if is_copy { "a copied pgfathom" } else { "its own pgfathom" },
        };
        link.greeted(patience, stop)
    }

    /// Waits for the greeting.
    fn greeted(mut self, patience: Duration, stop: &AtomicBool) -> Result<Link, LinkError> {
        match self.wait(patience, stop) {
            Ok(Reply::Hello { protocol: PROTOCOL, .. }) => Ok(self),
            Ok(Reply::Hello { protocol, .. }) => Err(LinkError::NoProgram(format!(
                "the pgfathom there is of another version (protocol {protocol}, not {PROTOCOL})"
            ))),
            Ok(Reply::Failed(text)) if text == ABSENT => {
                Err(LinkError::NoProgram("pgfathom is not installed there".to_string()))
            }
            Ok(Reply::Failed(text)) if text == OTHER => Err(LinkError::NoProgram(
                "the host is of another kind: this program cannot run there".to_string(),
            )),
            Ok(reply) => Err(LinkError::Lost(format!("the probe greets with {reply:?}"))),
            Err(LinkError::Lost(why)) => Err(self.refused(&why)),
            Err(error) => Err(error),
        }
    }

    /// What the end of ssh before the greeting means.
    fn refused(&mut self, why: &str) -> LinkError {
        self.requests = None;
        let status = self.child.as_mut().and_then(end);
        // A grandchild may keep the pipe open: then the error output stays unknown.
        let thread = self
            .complaint
            .take()
            .filter(|thread| poll::until(BEAT * 4, || thread.is_finished().then_some(())).is_some());
        let complaint = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let text = if complaint.is_empty() { why.to_string() } else { complaint };
        /// The exit status of ssh for its own failures.
        const SSH_FAILED: i32 = 255;
        match status {
            Some(SSH_FAILED) | None => LinkError::Unreachable(text),
            // An older pgfathom refuses the flag; a copy may be forbidden to run.
            Some(code) => LinkError::NoProgram(format!("{ENDED} {code}: {text}")),
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// When the probe is gone, does not answer in time, could not do it, or a stop was requested.
    pub fn call(
        &mut self,
        request: &Request,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Reply, LinkError> {
        let lost = |error: String| LinkError::Lost(format!("the probe is gone: {error}"));
        let mut line = serde_json::to_vec(request).map_err(|error| lost(error.to_string()))?;
        line.push(b'\n');
        if self.is_lost {
            return Err(lost("it ended, or did not reply in time".to_string()));
        }
        let requests = self.requests.as_mut().ok_or_else(|| lost("closed".to_string()))?;
        let written = requests.write_all(&line).and_then(|()| requests.flush());
        let reply = written.map_err(|error| lost(error.to_string())).and_then(|()| self.wait(patience, stop));
        let reply = reply.and_then(|reply| match request.is_answered_by(&reply) {
            true => Ok(reply),
            false => Err(LinkError::Lost("the probe replied to something else".to_string())),
        });
        self.is_lost = reply.is_err();
        match reply? {
            Reply::Failed(why) => Err(LinkError::Lost(why)),
            reply => Ok(reply),
        }
    }

    /// Whether no further request can be answered.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn wait(&mut self, patience: Duration, stop: &AtomicBool) -> Result<Reply, LinkError> {
        let until = Instant::now() + patience;
        loop {
            match self.replies.recv_timeout(BEAT) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LinkError::Lost("the probe ended".to_string()));
                }
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(LinkError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                    return Err(LinkError::Lost(format!("no reply for {} s", patience.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }
}

/// Writes the program to a host, and whether all of it was taken. A host that takes nothing for `patience` is given up: a plain write would wait forever.
fn sent<W: Write + Send + 'static>(
    to: W,
    program: Vec<u8>,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(W, bool), LinkError> {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let thread = std::thread::spawn(move || {
        let mut to = to;
        let mut is_sent = true;
        for part in program.chunks(COPY_PART_BYTES) {
            is_sent = is_sent && to.write_all(part).is_ok();
            counted.fetch_add(part.len(), Ordering::Relaxed);
        }
        is_sent = is_sent && to.flush().is_ok();
        (to, is_sent)
    });
    let (mut before, mut since) = (0, Instant::now());
    while !thread.is_finished() {
        std::thread::sleep(BEAT);
        let now = taken.load(Ordering::Relaxed);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LinkError::Stopped);
        }
        if since.elapsed() >= patience {
            let seconds = patience.as_secs();
            return Err(LinkError::Lost(format!("it took nothing of the copied program for {seconds} s")));
        }
    }
    thread.join().map_err(|_| LinkError::Lost("the thread that sends the program panicked".to_string()))
}

/// Waits for the end of ssh, which follows that of the probe; kills it if it does not come. Its exit status.
fn end(child: &mut Child) -> Option<i32> {
    let ended = poll::until(END_PATIENCE, || child.try_wait().ok().flatten());
    let status = ended.or_else(|| {
        let _ = child.kill();
        child.wait().ok()
    });
    status.and_then(|status| status.code())
}

/// The local end of a pair of sockets: dropping it must reach the other end even while the reader of replies holds a copy.
#[derive(Debug)]
struct LocalEnd(UnixStream);

impl Write for LocalEnd {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for LocalEnd {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

/// A thread that reads replies; what a shell prints before the first is ignored.
fn replies_of(from: impl Read + Send + 'static) -> Receiver<Reply> {
    let (sender, received) = sync_channel(REPLIES_MAX);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let (mut line, mut banners, mut has_greeted) = (vec![], 0, false);
        loop {
            line.clear();
            let most = if has_greeted { LINE_BYTES_MAX } else { BANNER_BYTES_MAX };
            match reader.by_ref().take(most).read_until(b'\n', &mut line) {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            let reply = match serde_json::from_slice::<Reply>(&line) {
                Ok(reply) => reply,
                Err(_) if !has_greeted && banners < BANNER_LINES_MAX => {
                    let text = String::from_utf8_lossy(&line).trim().to_string();
                    if text != ABSENT && text != OTHER {
                        banners += 1;
                        continue;
                    }
                    Reply::Failed(text)
                }
                Err(error) => Reply::Failed(format!("the reply is not understood: {error}")),
            };
            has_greeted = true;
            if sender.send(reply).is_err() {
                return;
            }
        }
    });
    received
}

/// A command that runs a script in `sh`, whatever the login shell of the user is. Other shells read quotes, backslashes, exclamation marks
/// and line ends differently, so all but plain characters are sent as octal numbers, which printf(1) turns back.
pub(crate) fn for_any_shell(script: &str) -> String {
    let mut word = String::with_capacity(script.len() * 2);
    for byte in script.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b' '
            | b'.'
            | b','
            | b'/'
            | b'_'
            | b'-'
            | b'='
            | b':' => {
                word.push(char::from(byte));
            }
            _ => word.push_str(&format!("\\0{byte:03o}")),
        }
    }
    format!("exec sh -c 'eval \"$(printf %b \"$1\")\"' sh '{word}'")
}

/// A word for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_probe_answers_and_ends() {
        let stop = AtomicBool::new(false);
        let mut link = Link::open(&Host::local("here"), &Ways::default(), &stop).expect("a thread");
        let plan = crate::probe::message::DiskPlan {
            directory: "/nowhere".to_string(),
            is_data: false,
            measured_mounts: vec![],
            size_bytes: 1 << 30,
            time_ms: 1,
            block_bytes: 8192,
            depths: vec![1],
        };
        match link.call(&Request::Disk(plan), Duration::from_secs(20), &stop) {
            Ok(Reply::Disk(disk)) => {
                assert!(disk.refused.expect("there is none").contains("not a directory"))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_that_cannot_be_reached_is_an_error() {
        let host = Host { name: "x".into(), destination: "x".into(), address: "x".into(), ..Host::default() };
        let none = Ways { ssh: PathBuf::from("/nowhere/ssh"), ..Ways::default() };
        let stop = AtomicBool::new(false);
        assert!(matches!(Link::open(&host, &none, &stop), Err(LinkError::Unreachable(_))));
        let refuses = Ways { ssh: PathBuf::from("false"), ..Ways::default() };
        assert!(matches!(Link::open(&host, &refuses, &stop), Err(LinkError::NoProgram(_))));
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("a b'c$(d)"), "'a b'\\''c$(d)'");
    }

    #[test]
    fn a_script_passes_every_login_shell_unchanged() {
        let text =
            "it's \\ a \"test\"! of $HOME `id` %s *? {a,b} ~ # ; & | < > \n\ttwo\\n lines, caf\u{e9}\n";
        let script = format!("printf %s {}; exit 7", quoted(text));
        let command = for_any_shell(&script);
        assert!(!command.contains('!') && !command.contains('\n'), "{command}");
        let mut tried = vec![];
        for shell in ["sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish"] {
            // What is not installed cannot be tried; sh always is.
            let Ok(output) = std::process::Command::new(shell).args(["-c", &command]).output() else {
                continue;
            };
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!((printed.as_str(), output.status.code()), (text, Some(7)), "{shell}: {output:?}");
            tried.push(shell);
        }
        assert!(tried.contains(&"sh"), "{tried:?}");
    }

    #[test]
    fn a_host_that_takes_nothing_of_the_program_is_given_up() {
        let stop = AtomicBool::new(false);
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let program = vec![0; 8 << 20];
        let waited =
            sent(ours, program.clone(), Duration::from_millis(300), &stop).expect_err("there is no reader");
        assert!(matches!(&waited, LinkError::Lost(why) if why.contains("took nothing")), "{waited}");
        drop(theirs);
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let reader = std::thread::spawn(move || theirs.take(8 << 20).read_to_end(&mut vec![]));
        let (_, is_sent) = sent(ours, program, Duration::from_secs(20), &stop).expect("it is read");
        assert!(is_sent && reader.join().expect("a reader").is_ok_and(|bytes| bytes == 8 << 20));
    }

    #[test]
    fn replies_without_a_request_do_not_fill_the_memory() {
        let (mut host, ours) = UnixStream::pair().expect("a pair");
        host.set_write_timeout(Some(Duration::from_millis(300))).expect("a time");
        let _replies = replies_of(ours);
        let line = b"{\"Failed\":\"again\"}\n";
        let sent = (0..1_000_000).take_while(|_| host.write_all(line).is_ok()).count();
        assert!(sent < 1_000_000, "the host has to wait");
    }
}
