//! Connects on a separate thread: name look-up, TLS and authentication block, and a reconnect must never stall the sessions
//! that still work.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use super::link::Link;
use crate::control::{Control, Failure};

/// Why a connection could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct DialError {
    /// What happened.
    pub message: String,
    /// The server's code where it gave one.
    pub sqlstate: Option<wire::error::SqlState>,
    /// What to type next.
    pub hint: Option<String>,
    /// It may succeed later without anybody's help: the server is starting, is out of connections, or is not there yet.
    pub is_transient: bool,
}

/// Where new connections lead from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The moment, on the monotonic clock.
    pub at: super::Nanos,
    /// The server.
    pub to: String,
}

/// Makes connections: authenticated, non-blocking, ready for a first query.
pub trait Dial: Send + Sync + 'static {
    /// One connection for session `session` (counted over all workers).
    fn dial(&self, session: u64) -> Result<Link, DialError>;

    /// It looks for the server that takes writes, so a session whose server stops to do so is to be dialed anew.
    fn follows_writes(&self) -> bool {
        false
    }

    /// How the errors begin with which a server refuses every statement for a time: a session that gets one is dialed anew, after a pause.
    fn isolated(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Where connections led, if they may lead to several servers: the first one, and each change.
    fn moves(&self) -> Vec<Move> {
        Vec::new()
    }
}

/// How a worker gets its connections, without waiting for them.
pub trait Dialing {
    /// Requests a connection for session `index` of the worker.
    fn request(&mut self, index: usize);
    /// Moves the answers that have come into `into`.
    fn collect(&mut self, into: &mut Vec<(usize, Result<Link, DialError>)>);
}

/// Answers, and whether there are any: a worker that looks at every turn takes the lock only then.
#[derive(Debug, Default)]
struct Answers {
    are_there: AtomicBool,
    list: Mutex<Vec<(usize, Result<Link, DialError>)>>,
}

/// A thread that dials for one worker. It ends with the worker, unless it is in the midst of a dial, which can take as long as a network
/// lets it: nothing waits for that.
#[derive(Debug)]
pub struct Connector {
    requests: Sender<usize>,
    answers: Arc<Answers>,
}

impl Connector {
    /// Starts the thread. `first_session` is the worker's first session counted over all workers; `wake` ends the worker's wait
    /// when an answer is there. `control` learns of it should the thread break down: its sessions would wait for ever.
    pub fn start(
        dial: Arc<dyn Dial>,
        first_session: u64,
        control: Arc<Control>,
        wake: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Connector> {
        let (requests, queue) = mpsc::channel::<usize>();
        let answers: Arc<Answers> = Arc::default();
        let shared = Arc::clone(&answers);
        std::thread::Builder::new().name("connector".into()).spawn(move || {
            for index in queue {
                let dialed = catch_unwind(AssertUnwindSafe(|| dial.dial(first_session + index as u64)));
                let answer = match dialed {
                    Ok(answer) => answer,
                    Err(panic) => return control.break_down(Failure::of_panic("connector", &*panic)),
                };
                shared.list.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
                shared.are_there.store(true, Ordering::Release);
                if wake().is_err() {
                    // The worker is gone and nothing waits for answers.
                    return;
                }
            }
        })?;
        Ok(Connector { requests, answers })
    }
}

impl Dialing for Connector {
    fn request(&mut self, index: usize) {
        // The thread ends only when the worker does, or when it has reported that it broke down.
        let _ = self.requests.send(index);
    }

    fn collect(&mut self, into: &mut Vec<(usize, Result<Link, DialError>)>) {
        if self.answers.are_there.load(Ordering::Relaxed)
            && self.answers.are_there.swap(false, Ordering::Acquire)
        {
            into.append(&mut self.answers.list.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
