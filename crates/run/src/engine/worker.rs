//! The loop: takes events, passes replies to tasks, and sends their requests.
//!
//! One turn for a session that has been answered is: one read, one poll of its task (which reads the reply, records the
//! transaction and writes the next request), one write. With k sessions ready at once the wait is shared by k.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Nanos;
use super::connector::{DialError, Dialing};
use super::link::{Link, LinkError, Traffic};
use super::reactor::{Reactor, Ready};
use super::session::{Session, Shared, Wait};

/// A session's task: made once, polled for the whole run.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What happens beside the sessions, at the worker's own pace.
pub trait Housekeeping {
    /// `tick` has something to do.
    fn is_due(&self, now: Nanos) -> bool;
    /// The time of the next call of `tick` at the latest.
    fn next_tick(&self) -> Nanos;
    /// Publishes, looks at flags; returns false to abandon all sessions at once.
    fn tick(&mut self, now: Nanos) -> bool;
}

struct Slot {
    session: Session,
    task: Option<Task>,
    /// The socket's send buffer was full: room is being watched for.
    waits_for_room: bool,
}

/// One thread's sessions.
pub struct Worker<R: Reactor> {
    reactor: R,
    shared: Rc<Shared>,
    slots: Vec<Slot>,
    dialing: Box<dyn Dialing>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    running: VecDeque<usize>,
    /// Sessions that go on when everybody else has been looked after.
    turns: Vec<usize>,
    /// The end of the run, as the pauses know it.
    pauses_end: Nanos,
    ready: Vec<Ready>,
    answers: Vec<(usize, Result<Link, DialError>)>,
    alive: usize,
}

impl<R: Reactor> std::fmt::Debug for Worker<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("sessions", &self.slots.len()).field("alive", &self.alive).finish()
    }
}

impl<R: Reactor> Worker<R> {
    /// A worker with `sessions` sessions, each running the task that `task` makes for it.
    pub fn new(
        reactor: R,
        shared: Rc<Shared>,
        dialing: Box<dyn Dialing>,
        sessions: usize,
        mut task: impl FnMut(Session) -> Task,
    ) -> Worker<R> {
        shared.now.set(reactor.now());
        let slots: Vec<Slot> = (0..sessions)
            .map(|index| {
                let session = Session::new(index, Rc::clone(&shared));
                Slot { task: Some(task(session.clone())), session, waits_for_room: false }
            })
            .collect();
        Worker {
            reactor,
            shared,
            alive: slots.len(),
            running: (0..sessions).collect(),
            slots,
            dialing,
            timers: BinaryHeap::with_capacity(sessions),
            turns: Vec::with_capacity(sessions),
            pauses_end: Nanos::MAX,
            ready: Vec::with_capacity(sessions),
            answers: Vec::with_capacity(sessions),
        }
    }

    /// Runs until every task has returned, or until housekeeping abandons them.
    pub fn run(&mut self, housekeeping: &mut impl Housekeeping) -> io::Result<()> {
        self.shared.now.set(self.reactor.now());
        loop {
            let now = self.shared.now.get();
            if housekeeping.is_due(now) && !housekeeping.tick(now) {
                return Ok(());
            }
            self.wake_pauses();
            self.wake_due(now);
            while !self.running.is_empty() {
                while let Some(index) = self.running.pop_front() {
                    self.advance(index)?;
                }
                // An arrival that was just claimed may have another one due right behind it.
                self.wake_due(now);
            }
            self.request_connections();
            if self.alive == 0 {
                return Ok(());
            }
            let deadline = match self.turns.is_empty() {
                true => self.next_deadline(now).min(housekeeping.next_tick()),
                // A session goes on at once: what is ready is taken, and nothing is waited for.
                false => 0,
            };
            self.reactor.wait(self.shared.now.get(), deadline, &mut self.ready)?;
            if self.ready.is_empty() {
                // A deadline or a flag: otherwise each event below reads the clock, and the last reading is good for the next turn.
                self.shared.now.set(self.reactor.now());
            }
            self.take_events()?;
            self.take_connections()?;
            self.running.extend(self.turns.drain(..));
        }
    }

    /// The connections of sessions that still wait for a reply, to be called when nothing waits for them any more.
    pub(crate) fn take_unanswered(&mut self) -> Vec<Link> {
        let take = |slot: &Slot| {
            let mut state = slot.session.state.borrow_mut();
            if state.wait != Wait::Reply || state.lost.is_some() {
                return None;
            }
            let link = state.link.take()?;
            state.buffer_bytes = link.buffer_bytes();
            state.traffic_before.add(link.traffic);
            Some(link)
        };
        self.slots.iter().filter_map(take).collect()
    }

    /// Traffic of all sessions.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for slot in &self.slots {
            sum.add(slot.session.traffic());
        }
        sum
    }

    /// Bytes in all send and receive buffers; of sessions that have ended, when they did.
    pub fn buffer_bytes(&self) -> usize {
        let bytes = |slot: &Slot| {
            let state = slot.session.state.borrow();
            state.link.as_ref().map_or(state.buffer_bytes, Link::buffer_bytes)
        };
        self.slots.iter().map(bytes).sum()
    }

    /// Sessions whose time or start has come join the running ones.
    fn wake_due(&mut self, now: Nanos) {
        while let Some(&Reverse((deadline, index))) = self.timers.peek() {
            if deadline > now {
                break;
            }
            self.timers.pop();
            // Else it was woken before its time, and waits for something else by now.
            let mut state = self.slots[index].session.state.borrow_mut();
            if state.wait == Wait::Until(deadline) {
                state.wait = Wait::Running;
                self.running.push_back(index);
            }
        }
        let mut idle = self.shared.idle.borrow_mut();
        if idle.is_empty() {
            return;
        }
        // Each of them claims for itself; one that has to wait goes back to the end of the queue.
        let mut schedule = self.shared.schedule.borrow_mut();
        if let Some(chosen) = schedule.chosen(now, idle.iter().copied()) {
            self.running.extend(chosen.and_then(|place| idle.remove(place)));
        } else if schedule.next_due(now) <= now {
            let wake = if schedule.serves_all(now) { idle.len() } else { 1 };
            self.running.extend(idle.drain(..wake));
        }
    }

    /// The run's end has been set or has moved: a session that pauses checks again whether to go on.
    fn wake_pauses(&mut self) {
        let pauses_end = self.shared.pauses_end.get();
        if pauses_end == self.pauses_end {
            return;
        }
        self.pauses_end = pauses_end;
        for (index, slot) in self.slots.iter().enumerate() {
            let mut state = slot.session.state.borrow_mut();
            if matches!(state.wait, Wait::Until(_)) {
                state.wait = Wait::Running;
                self.running.push_back(index);
            }
        }
    }

    fn next_deadline(&self, now: Nanos) -> Nanos {
        let timer = self.timers.peek().map_or(Nanos::MAX, |Reverse((deadline, _))| *deadline);
        let start = if self.shared.idle.borrow().is_empty() {
            Nanos::MAX
        } else {
            self.shared.schedule.borrow().next_due(now)
        };
        timer.min(start)
    }

    /// Polls a task, then sends what it wrote.
    fn advance(&mut self, index: usize) -> io::Result<()> {
        let slot = &mut self.slots[index];
        let Some(task) = slot.task.as_mut() else { return Ok(()) };
        let mut context = Context::from_waker(Waker::noop());
        slot.session.state.borrow_mut().has_begun = false;
        let finished = task.as_mut().poll(&mut context) == Poll::Ready(());
        let mut state = slot.session.state.borrow_mut();
        if finished {
            slot.task = None;
            state.wait = Wait::Done;
            if let Some(mut link) = state.link.take() {
                link.terminate();
                state.buffer_bytes = link.buffer_bytes();
                state.traffic_before.add(link.traffic);
            }
            self.alive -= 1;
            return Ok(());
        }
        match state.wait {
            Wait::Until(deadline) => self.timers.push(Reverse((deadline, index))),
            Wait::Turn => self.turns.push(index),
            _ => {}
        }
        if state.link.as_ref().is_some_and(Link::has_output) {
            drop(state);
            self.send(index)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let slot = &mut self.slots[index];
        let mut state = slot.session.state.borrow_mut();
        let Some(link) = state.link.as_mut() else { return Ok(()) };
        if let Err(error) = self.reactor.send(index, link) {
            // A server that ends the session reports why before it closes: its last words may be in the receive buffer.
            let error = match (error, self.reactor.receive(index, link, true)) {
                (_, Err(fatal @ LinkError::Fatal(_))) => fatal,
                (error, _) => error,
            };
            lose(&mut state, error, index, &mut self.running);
            return Ok(());
        }
        let blocked = link.has_output();
        if blocked != slot.waits_for_room {
            slot.waits_for_room = blocked;
            if let Some(fd) = link.fd() {
                self.reactor.watch_room(fd, index, blocked)?;
            }
        }
        Ok(())
    }

    /// Reads every ready socket; a session whose reply is complete goes on at once, while its data is warm.
    fn take_events(&mut self) -> io::Result<()> {
        for at in 0..self.ready.len() {
            let Ready { index, is_closed } = self.ready[at];
            if self.slots[index].waits_for_room {
                self.send(index)?;
            }
            let mut state = self.slots[index].session.state.borrow_mut();
            let received = match state.link.as_mut() {
                Some(link) => self.reactor.receive(index, link, is_closed),
                None => {
                    self.reactor.discard(index);
                    Ok(())
                }
            };
            // The one reading of the clock for this transaction's end, the next one's start, and the turn that follows.
            self.shared.now.set(self.reactor.now());
            let reply = if state.wait == Wait::Reply { state.link.as_mut().map(Link::reply) } else { None };
            match (received, reply) {
                // A reply that arrived whole counts, even if the connection ended right behind it.
                (received, Some(Ok(Some(reply)))) => {
                    state.reply = Some(reply);
                    state.wait = Wait::Running;
                    drop(state);
                    self.advance(index)?;
                    if let Err(error) = received {
                        self.end(index, error);
                    }
                }
                (Err(error), _) | (_, Some(Err(error))) => lose(&mut state, error, index, &mut self.running),
                (Ok(()), _) => {
                    // TLS has something to answer, or a ring gives back what the socket did not take.
                    let has_output = state.link.as_ref().is_some_and(Link::has_output);
                    drop(state);
                    if has_output {
                        self.send(index)?;
                    }
                }
            }
        }
        self.ready.clear();
        Ok(())
    }

    /// A connection has ended behind a reply. The end is remembered: a server that only stopped sending gives no further event.
    #[cold]
    fn end(&mut self, index: usize, error: LinkError) {
        let mut state = self.slots[index].session.state.borrow_mut();
        if state.link.is_some() {
            lose(&mut state, error, index, &mut self.running);
        }
    }

    fn request_connections(&mut self) {
        for index in self.shared.dial.borrow_mut().drain(..) {
            self.dialing.request(index);
        }
    }

    fn take_connections(&mut self) -> io::Result<()> {
        self.dialing.collect(&mut self.answers);
        for (index, mut answer) in self.answers.drain(..) {
            let slot = &mut self.slots[index];
            slot.waits_for_room = false;
            if let Ok(link) = &mut answer {
                self.reactor.adopt(index, link)?;
            }
            let mut state = slot.session.state.borrow_mut();
            state.dialed = Some(answer);
            state.wait = Wait::Running;
            self.running.push_back(index);
        }
        Ok(())
    }
}

/// Notes that a link is lost and wakes its task if it waits for something the link was to bring.
fn lose(state: &mut super::session::State, error: LinkError, index: usize, running: &mut VecDeque<usize>) {
    if state.lost.is_some() {
        return;
    }
    state.lost = Some(error);
    if matches!(state.wait, Wait::Reply | Wait::Start) {
        state.wait = Wait::Running;
        running.push_back(index);
    }
}
