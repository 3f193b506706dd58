//! A server inside this process that answers every statement at once and stores nothing: what remains is the cost of the client.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::engine::connector::{Dial, DialError};
use crate::engine::link::{Link, Stream};
use crate::responder::{Backend, Executed, Parameters, Responder};

/// Largest request the null server takes in one piece.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Token of the waker; connections are numbered from 0.
const WAKER: Token = Token(usize::MAX);
/// Events taken from the kernel in one call.
const EVENTS_PER_WAIT: usize = 256;
/// What a row of the null server holds.
const ROW: &[u8] = b"0";

/// Answers that a workload reads, so that they need the shape it expects. One value for each connection.
pub trait Answers: Send {
    /// The answer to a statement; `None` where any will do.
    fn to(&mut self, sql: &str, parameters: Parameters<'_>) -> Option<Executed<'_>>;
}

/// Any answer will do.
struct NoAnswers;

impl Answers for NoAnswers {
    fn to(&mut self, _: &str, _: Parameters<'_>) -> Option<Executed<'_>> {
        None
    }
}

/// The server: one thread, any number of connections over socket pairs.
#[derive(Debug)]
pub struct NullServer {
    arriving: Arc<Mutex<Vec<UnixStream>>>,
    /// The server's handle is gone. A dial of it may still exist, and gets no answer.
    is_over: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl NullServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When this machine has no thread or socket for it.
    pub fn start() -> io::Result<NullServer> {
        NullServer::answering(|| Box::new(NoAnswers))
    }

    /// Starts the thread, with answers of a workload's own.
    ///
    /// # Errors
    /// When this machine has no thread or socket for it.
    pub fn answering(answers: fn() -> Box<dyn Answers>) -> io::Result<NullServer> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let arriving: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
        let shared = Arc::clone(&arriving);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("null server".into()).spawn(move || {
            let mut connections: Vec<Option<Connection>> = Vec::new();
            let mut poll = poll;
            let mut events = Events::with_capacity(EVENTS_PER_WAIT);
            loop {
                match poll.poll(&mut events, None) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    other => other?,
                }
                for event in &events {
                    if event.token() != WAKER {
                        let Token(index) = event.token();
                        if connections[index].as_mut().is_some_and(|connection| !connection.serve()) {
                            connections[index] = None;
                        }
                        continue;
                    }
                    if over.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    for stream in shared.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                        let token = Token(connections.len());
                        poll.registry().register(
                            &mut SourceFd(&stream.as_raw_fd()),
                            token,
                            Interest::READABLE,
                        )?;
                        connections.push(Some(Connection::new(stream, answers())));
                    }
                }
            }
        })?;
        Ok(NullServer { arriving, is_over, waker, thread: Some(thread) })
    }

    /// Something to dial it with.
    pub fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(NullDial { arriving: Arc::clone(&self.arriving), waker: Arc::clone(&self.waker) })
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct NullDial {
    arriving: Arc<Mutex<Vec<UnixStream>>>,
    waker: Arc<Waker>,
}

impl Dial for NullDial {
    fn dial(&self, _session: u64) -> Result<Link, DialError> {
        let open = || -> io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            theirs.set_nonblocking(true)?;
            self.arriving.lock().unwrap_or_else(PoisonError::into_inner).push(theirs);
            self.waker.wake()?;
            Ok(ours)
        };
        match open() {
            Ok(stream) => Ok(Link::new(Stream::Unix(stream), None, &[])),
            Err(error) => Err(DialError {
                message: format!("could not open a socket pair: {error}"),
                sqlstate: None,
                hint: Some("raise the limit of open files: ulimit -n".into()),
                is_transient: false,
            }),
        }
    }
}

/// Answers by the statement's first word, where the workload needs nothing better.
struct NullBackend {
    answers: Box<dyn Answers>,
}

impl Backend for NullBackend {
    fn execute(&mut self, sql: &str, parameters: Parameters<'_>) -> Executed<'_> {
        match self.answers.to(sql, parameters) {
            Some(answer) => answer,
            None => by_word(sql),
        }
    }
}

fn by_word(sql: &str) -> Executed<'static> {
    let is = |word: &str| sql.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let tag = match () {
        () if is("select") => return Executed::Done { tag: "SELECT 1", row: Some(ROW) },
        () if is("update") => "UPDATE 1",
        () if is("insert") => "INSERT 0 1",
        () if is("delete") => "DELETE 1",
        () if is("begin") => "BEGIN",
        () if is("end") || is("commit") => "COMMIT",
        () if is("rollback") => "ROLLBACK",
        () => "OK",
    };
    Executed::Done { tag, row: None }
}

struct Connection {
    stream: UnixStream,
    responder: Responder,
    backend: NullBackend,
    incoming: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
}

impl Connection {
    fn new(stream: UnixStream, answers: Box<dyn Answers>) -> Connection {
        Connection {
            stream,
            responder: Responder::default(),
            backend: NullBackend { answers },
            incoming: vec![0; REQUEST_BYTES_MAX],
            filled: 0,
            out: Vec::new(),
        }
    }

    /// Answers what has come; false when the connection is over.
    fn serve(&mut self) -> bool {
        loop {
            let room = self.incoming.len() - self.filled;
            let received = match self.stream.read(&mut self.incoming[self.filled..]) {
                Ok(0) => return false,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.filled += received;
            let used = self.responder.answer(&self.incoming[..self.filled], &mut self.backend, &mut self.out);
            self.incoming.copy_within(used..self.filled, 0);
            self.filled -= used;
            // The client reads every answer before its next request, so the socket always has room for one.
            let sent = self.stream.write_all(&self.out).is_ok();
            self.out.clear();
            if !sent || self.responder.is_terminated || self.filled == self.incoming.len() {
                return false;
            }
            // A short read has drained the socket.
            if received < room {
                return true;
            }
        }
    }
}
