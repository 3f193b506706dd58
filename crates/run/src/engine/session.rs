//! The interface of an `async fn` of a session: its connection, the schedule, the time.
//!
//! A [`Session`] is a handle on state that the worker shares with the session's task, both on one thread. Each `await` below
//! leaves word in [`Wait`] what it waits for; the worker polls the task only when exactly that has come true.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use wire::backend::{Frames, TransactionStatus, tag};
use wire::error::ServerError;

use super::Nanos;
use super::connector::DialError;
use super::link::{Link, LinkError, Reply, Traffic};
use crate::schedule::{Claim, Schedule, Start};

/// What a suspended task waits for.
///
/// ```text
///   Running --reply()--> Reply --whole reply, or connection lost--> Running
///   Running --next_start()--> Start --schedule gives a start, run over, or connection lost--> Running
///   Running --next_start()--> Turn --the worker has looked after everybody else--> Running
///   Running --sleep_until()--> Until --time has come--> Running
///   Running --pause_until()--> Until --time has come, or the run's end has moved--> Running
///   Running --connect()--> Connection --connector answers--> Running
///   Running --task returns--> Done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not suspended: about to be polled, or being polled.
    Running,
    /// For the whole reply to the last request.
    Reply,
    /// For the schedule.
    Start,
    /// For the worker to look at its clock, its flags and its sockets.
    Turn,
    /// For a moment.
    Until(Nanos),
    /// For the connector.
    Connection,
    /// The task has returned; nothing wakes it again.
    Done,
}

/// What the sessions of one worker share.
#[derive(Debug)]
pub struct Shared {
    /// The time, as of the last event the worker took.
    pub now: Cell<Nanos>,
    /// The worker's schedule.
    pub schedule: RefCell<Schedule>,
    /// Sessions that wait for a start, longest waiting first.
    pub idle: RefCell<VecDeque<usize>>,
    /// Sessions that want a connection.
    pub dial: RefCell<Vec<usize>>,
    /// A script's pause that would last beyond this moment is not waited for when the run is over.
    pub pauses_end: Cell<Nanos>,
}

/// A pause was not waited for, because the run is over: the transaction it belongs to has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseDropped;

impl Shared {
    /// Room for `sessions` sessions is reserved, so that none of the queues allocates later.
    pub fn new(schedule: Schedule, sessions: usize) -> Rc<Shared> {
        Rc::new(Shared {
            now: Cell::new(0),
            schedule: RefCell::new(schedule),
            idle: RefCell::new(VecDeque::with_capacity(sessions)),
            dial: RefCell::new(Vec::with_capacity(sessions)),
            pauses_end: Cell::new(Nanos::MAX),
        })
    }
}

/// The part of a session that its task and the worker share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) link: Option<Link>,
    pub(super) wait: Wait,
    /// A reply the worker found complete, not yet taken by the task.
    pub(super) reply: Option<Reply>,
    /// Transaction status of the last reply.
    pub(super) status: Option<TransactionStatus>,
    /// Commits that were acknowledged although the wait for their standbys was cancelled, not yet counted.
    pub(super) weak_commits: u64,
    /// Why the link was lost, not yet reported to the task.
    pub(super) lost: Option<LinkError>,
    /// What the connector answered, not yet taken by the task.
    pub(super) dialed: Option<Result<Link, DialError>>,
    /// Since when the session has had nothing to do.
    pub(super) free_since: Nanos,
    /// A transaction has begun since the worker last came by. Without a wait in it (no statement, no pause) the next one would
    /// begin at the same moment, and the worker would never see its clock and its flags again.
    pub(super) has_begun: bool,
    /// Traffic of links that are gone.
    pub(super) traffic_before: Traffic,
    /// Bytes in the buffers of the last link, when it ended.
    pub(super) buffer_bytes: usize,
}

impl State {
    /// What every reader of a reply has to know.
    #[inline]
    fn take_note(&mut self, reply: Reply) {
        self.status = Some(reply.status);
        if reply.notices > 0 {
            self.look_for_warnings(reply);
        }
    }

    /// What a lost connection has left: replies of a pipeline that came whole, and then the reason.
    #[cold]
    fn last_reply(&mut self) -> Result<Reply, LinkError> {
        self.wait = Wait::Running;
        if let Some(Ok(Some(reply))) = self.link.as_mut().map(Link::reply) {
            self.take_note(reply);
            return Ok(reply);
        }
        if let Some(link) = self.link.take() {
            self.traffic_before.add(link.traffic);
        }
        Err(self.lost.take().unwrap_or(LinkError::Closed))
    }

    /// A commit whose wait for a standby was cancelled succeeds, with a warning that no driver shows.
    #[cold]
    fn look_for_warnings(&mut self, reply: Reply) {
        let Some(link) = &self.link else { return };
        let warnings = link
            .frames(reply)
            .filter(|frame| frame.tag == tag::NOTICE_RESPONSE && ServerError::is_cancelled_wait(frame.body));
        self.weak_commits += warnings.count() as u64;
    }
}

/// A session's handle; clones share the same session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its number within the worker.
    pub index: usize,
    pub(super) state: Rc<RefCell<State>>,
    pub(super) shared: Rc<Shared>,
}

impl Session {
    pub(super) fn new(index: usize, shared: Rc<Shared>) -> Session {
        let state = State {
            link: None,
            wait: Wait::Running,
            reply: None,
            status: None,
            weak_commits: 0,
            lost: None,
            dialed: None,
            free_since: 0,
            has_begun: false,
            traffic_before: Traffic::default(),
            buffer_bytes: 0,
        };
        Session { index, state: Rc::new(RefCell::new(state)), shared }
    }

    /// The time as of the last event.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.shared.now.get()
    }

    /// Gets a connection from the connector.
    pub async fn connect(&self) -> Result<(), DialError> {
        self.disconnect();
        self.shared.dial.borrow_mut().push(self.index);
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            match state.dialed.take() {
                Some(Ok(link)) => {
                    state.wait = Wait::Running;
                    state.link = Some(link);
                    // The state of the last connection is not this one's.
                    state.status = None;
                    Poll::Ready(Ok(()))
                }
                Some(Err(error)) => {
                    state.wait = Wait::Running;
                    Poll::Ready(Err(error))
                }
                None => {
                    state.wait = Wait::Connection;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Which of several servers it is connected to, see [`Link::server`]; 0 without a connection.
    pub fn server(&self) -> usize {
        self.state.borrow().link.as_ref().map_or(0, Link::server)
    }

    /// Drops the connection, without a word to the server when it is already lost.
    pub(crate) fn disconnect(&self) {
        let mut state = self.state.borrow_mut();
        let lost = state.lost.take().is_some();
        state.reply = None;
        if let Some(mut link) = state.link.take() {
            if !lost {
                link.terminate();
            }
            state.traffic_before.add(link.traffic);
        }
    }

    /// Writes a request into the send buffer; it goes out when the task is suspended next. Without a connection nothing is
    /// written, and awaiting the reply shows it.
    #[inline]
    pub fn request(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = self.state.borrow_mut().link.as_mut() {
            write(link.request());
        }
    }

    /// The rows of the replies to the last request are not read.
    #[inline]
    pub fn drop_rows(&self) {
        if let Some(link) = self.state.borrow_mut().link.as_mut() {
            link.drop_rows();
        }
    }

    /// The whole reply up to ReadyForQuery.
    #[inline]
    pub async fn reply(&self) -> Result<Reply, LinkError> {
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            if let Some(reply) = state.reply.take() {
                state.take_note(reply);
                return Poll::Ready(Ok(reply));
            }
            if state.lost.is_some() {
                return Poll::Ready(state.last_reply());
            }
            let Some(link) = state.link.as_mut() else { return Poll::Ready(Err(LinkError::Closed)) };
            // Part of a pipeline may already be here.
            match link.reply() {
                Ok(Some(reply)) => {
                    state.take_note(reply);
                    Poll::Ready(Ok(reply))
                }
                Ok(None) => {
                    state.wait = Wait::Reply;
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// What the server reported about the transaction block in the last reply that was taken; `Idle` on a connection without a request.
    #[inline]
    pub(crate) fn transaction_status(&self) -> TransactionStatus {
        self.state.borrow().status.unwrap_or(TransactionStatus::Idle)
    }

    /// Commits since the last call that were acknowledged although the wait for their standbys was cancelled.
    pub(crate) fn take_weak_commits(&self) -> u64 {
        std::mem::take(&mut self.state.borrow_mut().weak_commits)
    }

    /// Reads the messages of a reply. They stay readable until the next request or reply of this session.
    #[inline]
    pub fn with_frames<T>(&self, reply: Reply, read: impl FnOnce(Frames<'_>) -> T) -> T {
        let state = self.state.borrow();
        match state.link.as_ref() {
            Some(link) => read(link.frames(reply)),
            None => read(Frames::new(&[])),
        }
    }

    /// The first error of a reply.
    pub(crate) fn error_of(&self, reply: Reply) -> Option<ServerError> {
        if reply.errors == 0 {
            return None;
        }
        self.with_frames(reply, |mut frames| {
            frames.find(|frame| frame.tag == tag::ERROR_RESPONSE).map(|frame| ServerError::parse(frame.body))
        })
    }

    /// The next transaction's start; `None` when the run is over. A connection lost while waiting is reported here.
    #[inline]
    pub async fn next_start(&self) -> Result<Option<Start>, LinkError> {
        self.state.borrow_mut().free_since = self.now();
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            if let Some(error) = state.lost.take() {
                state.wait = Wait::Running;
                return Poll::Ready(Err(error));
            }
            if state.has_begun {
                state.wait = Wait::Turn;
                return Poll::Pending;
            }
            match self.shared.schedule.borrow_mut().claim(self.index, self.now(), state.free_since) {
                Claim::Now(start) => {
                    state.wait = Wait::Running;
                    state.has_begun = true;
                    Poll::Ready(Ok(Some(start)))
                }
                Claim::Over => {
                    state.wait = Wait::Running;
                    Poll::Ready(Ok(None))
                }
                Claim::Later => {
                    state.wait = Wait::Start;
                    self.shared.idle.borrow_mut().push_back(self.index);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The transaction that began with `start` has ended: if it was a terminal's turn, its user rests until the next one.
    #[inline]
    pub fn rest(&self, start: Start) {
        if let Some(turn) = start.turn {
            self.shared.schedule.borrow_mut().rest(turn, self.now());
        }
    }

    /// Does nothing until `deadline`. The connection is not looked at during it.
    pub async fn sleep_until(&self, deadline: Nanos) {
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            if self.now() >= deadline {
                state.wait = Wait::Running;
                Poll::Ready(())
            } else {
                state.wait = Wait::Until(deadline);
                Poll::Pending
            }
        })
        .await;
    }

    /// A script's pause: as [`Session::sleep_until`], but it does not outlast the run. One that would end later than whatever is
    /// under way may take is dropped as soon as the run is over.
    pub(crate) async fn pause_until(&self, deadline: Nanos) -> Result<(), PauseDropped> {
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            state.wait = Wait::Running;
            let now = self.now();
            if now >= deadline {
                return Poll::Ready(Ok(()));
            }
            let over = self.shared.schedule.borrow().end();
            let is_dropped = deadline > self.shared.pauses_end.get();
            if is_dropped && now >= over {
                return Poll::Ready(Err(PauseDropped));
            }
            state.wait = Wait::Until(if is_dropped { over.min(deadline) } else { deadline });
            Poll::Pending
        })
        .await
    }

    /// The run is over, or is being stopped: a session that retries for long gives up.
    pub fn is_over(&self) -> bool {
        self.now() >= self.shared.schedule.borrow().end()
    }

    /// System calls and bytes of this session so far.
    pub fn traffic(&self) -> Traffic {
        let state = self.state.borrow();
        let mut traffic = state.traffic_before;
        if let Some(link) = &state.link {
            traffic.add(link.traffic);
        }
        traffic
    }
}
