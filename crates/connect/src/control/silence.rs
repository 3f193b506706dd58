//! Limits how long a server may send nothing.
//!
//! The library waits forever. Below it, the stream gives up: at the limit of the connect for a session's first queries; after the session's
//! time limit, if its queries are short; and for all others, which may build an index for hours, if the server answers no other
//! session either. This is tested from time to time while an answer is awaited, and at once when the user wants to end.

use std::fmt;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::hindrance::{self, Answer};
use crate::attempt::slow;
use crate::ending::{LAST_WAIT, give_up};
pub use crate::ending::{end, has_given_up, is_ending};
use crate::socket::Socket;

/// The interval of checks of a waiting session.
const TICK: Duration = Duration::from_millis(100);
/// A session that was not checked for this long was not waiting.
const NOT_WAITING: Duration = Duration::from_secs(2);
/// The silence after which another session is tried; each answer doubles it, up to the other value.
const SILENCE: Duration = Duration::from_secs(10);
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// The time limit for the answer to another session.
const OTHER: Duration = Duration::from_secs(10);
/// Unanswered sessions in a row after which the server counts as dead.
const OTHERS: u32 = 2;
/// Bytes shown of the query.
const QUERY_BYTES_MAX: usize = 100;

/// A server that stopped answering.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {} {seconds} s{}{}", if *is_talking { "has not finished its reply within" } else { "has not replied for" }, if *is_alone { "" } else { ", \
    nor has any other session of pgfathom" }, of(query_text))]
pub struct Silent {
    /// Which server.
    pub place: String,
    /// For how long.
    pub seconds: u64,
    /// The query, as far as it is known.
    pub query_text: String,
    /// Nothing but this session was tried.
    pub is_alone: bool,
    /// It sends data, but the answer does not end.
    pub is_talking: bool,
}

fn of(query_text: &str) -> String {
    if query_text.is_empty() { String::new() } else { format!("; the query was: {query_text}") }
}

/// Queries the server in another session, also about the one of a server process.
type Elsewhere = dyn Fn(Duration, Option<i32>) -> Answer + Send + Sync;

/// The state shared by a session and its stream.
pub(super) struct Silence {
    place: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The deadline of the connect, and its length.
    limit: Option<(Instant, Duration)>,
    patience: Option<Duration>,
    elsewhere: Option<Arc<Elsewhere>>,
    query_text: String,
    /// The server process, as it has introduced itself.
    pid: Option<i32>,
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Silence {
    pub(super) fn new(place: String) -> Silence {
        Silence { place, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a deadline for the next steps.
    pub(super) fn begin(&self, at: Instant, limit: Duration) {
        self.state().limit = Some((at, limit));
    }

    /// The beginning is over.
    pub(super) fn end(&self) {
        self.state().limit = None;
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        self.state().patience = Some(patience);
    }

    pub(super) fn ask_elsewhere(&self, ask: Box<Elsewhere>) {
        self.state().elsewhere = Some(ask.into());
    }

    /// Remembers the server process.
    pub(super) fn set_pid(&self, pid: i32) {
        self.state().pid = Some(pid);
    }

    /// Remembers the statement in a message that goes out.
    pub(super) fn query_text(&self, message: &[u8]) {
        let Some((&kind, body)) = message.split_first().and_then(|(kind, rest)| Some((kind, rest.get(4..)?)))
        else {
            return;
        };
        let mut texts = body.split(|byte| *byte == 0);
        let text = match kind {
            // Query, Parse and Bind; what is bound was prepared some time ago.
            b'Q' => texts.next(),
            b'P' => texts.nth(1),
            b'B' => None,
            _ => return,
        };
        let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.state().query_text = match text.len() > QUERY_BYTES_MAX {
            true => format!("{} ...", &text[..text.floor_char_boundary(QUERY_BYTES_MAX)]),
            false => text,
        };
    }
}

/// A socket of either kind.
pub(super) trait Raw: AsyncRead + AsyncWrite + Unpin + Send {}

impl Raw for tokio::net::TcpStream {}
impl Raw for tokio::net::UnixStream {}

/// A socket for the current runtime.
pub(super) fn stream(socket: Socket) -> io::Result<Box<dyn Raw>> {
    socket.set_nonblocking(true)?;
    Ok(match socket {
        Socket::Tcp(stream) => Box::new(tokio::net::TcpStream::from_std(stream)?),
        Socket::Unix(stream) => Box::new(tokio::net::UnixStream::from_std(stream)?),
    })
}

/// A stream that fails if the server sends nothing for too long.
pub(super) struct Patient {
    stream: Box<dyn Raw>,
    silence: Arc<Silence>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The time of the last byte in either direction, or the begin of the wait.
    since: Instant,
    looked: Instant,
    /// The permitted silence before another session is tried.
    taken: Duration,
    other: Option<mpsc::Receiver<bool>>,
    unanswered: u32,
}

impl Patient {
    pub(super) fn new(stream: Box<dyn Raw>, silence: Arc<Silence>) -> Patient {
        let now = Instant::now();
        Patient {
            stream,
            silence,
            timer: None,
            since: now,
            looked: now,
            taken: SILENCE,
            other: None,
            unanswered: 0,
        }
    }

    fn moved(&mut self) {
        self.since = Instant::now();
        (self.taken, self.other, self.unanswered) = (SILENCE, None, 0);
        self.timer = None;
    }

    fn silent(&self, seconds: u64, is_alone: bool) -> io::Error {
        let (place, query_text) = (self.silence.place.clone(), self.silence.state().query_text.clone());
        let is_talking = self.since.elapsed() < NOT_WAITING / 2;
        io::Error::new(io::ErrorKind::TimedOut, Silent { place, seconds, query_text, is_alone, is_talking })
    }

    /// Whether to wait on.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let now = Instant::now();
        if now.duration_since(self.looked) > NOT_WAITING {
            self.since = now;
        }
        self.looked = now;
        let silent_for = now.duration_since(self.since);
        let (limit, patience, elsewhere) = {
            let state = self.silence.state();
            (state.limit, state.patience, state.elsewhere.clone())
        };
        if let Some((at, limit)) = limit
            && (now >= at || (is_ending() && silent_for >= LAST_WAIT))
        {
            if now < at {
                give_up();
            }
            return Err(self.silent(if now >= at { limit.as_secs() } else { silent_for.as_secs() }, true));
        }
        let last = if is_ending() { LAST_WAIT } else { Duration::MAX };
        if let Some(patience) = patience
            && silent_for >= patience.min(last)
        {
            if silent_for < patience {
                give_up();
            }
            return Err(self.silent(silent_for.as_secs(), true));
        }
        if let Some(elsewhere) = elsewhere {
            self.try_another(elsewhere, silent_for)?;
        }
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(TICK)));
            match timer.as_mut().poll(cx) {
                Poll::Ready(()) => self.timer = None,
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn try_another(&mut self, elsewhere: Arc<Elsewhere>, silent_for: Duration) -> io::Result<()> {
        match self.other.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Err(mpsc::TryRecvError::Empty)) => return Ok(()),
            Some(Ok(false)) => self.unanswered += 1,
            Some(_) => {
                self.unanswered = 0;
                self.taken = silent_for + self.taken.min(SILENCE_MAX);
            }
            None => {}
        }
        self.other = None;
        if self.unanswered >= OTHERS {
            return Err(self.silent(silent_for.as_secs(), false));
        }
        let soon = is_ending() && silent_for >= LAST_WAIT && self.taken == SILENCE;
        if soon || self.unanswered > 0 || silent_for >= self.taken {
            let (sender, receiver) = mpsc::channel();
            let limit = if is_ending() { LAST_WAIT } else { OTHER };
            // In a separate thread: this one drives the session, whose answer may come meanwhile.
            let (place, pid) = (self.silence.place.clone(), self.silence.state().pid);
            std::thread::spawn(move || {
                let begin = Instant::now();
                let answer = elsewhere(limit, pid);
                if let Some(hindrance) = &answer.hindrance {
                    let waited = silent_for + begin.elapsed();
                    slow::note(
                        &format!("{place}: {hindrance}"),
                        hindrance::sentence(&place, waited, hindrance),
                    );
                }
                sender.send(answer.answers)
            });
            self.other = Some(receiver);
        }
        Ok(())
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => match self.look(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            ready => {
                self.moved();
                ready
            }
        }
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.moved();
            // The wait begins now; only the answer or the timer wakes this task.
            cx.waker().wake_by_ref();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
