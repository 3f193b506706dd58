//! Readiness and time behind three methods, so that the worker runs on epoll and, in tests, on a simulated network.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use record::clock::monotonic_ns;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::link::{Link, LinkError};
use super::{NANOS_PER_SECOND, Nanos};

/// A session that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its index.
    pub index: usize,
    /// The peer has closed its end: there is no further event behind this one, so the socket is to be read to its end.
    pub is_closed: bool,
}

/// Where a worker learns the time and which sessions can go on, and how bytes travel.
pub trait Reactor {
    /// The time now.
    fn now(&self) -> Nanos;

    /// From now on watches session `index`'s new connection, until it is closed. Room to send is watched for only on demand:
    /// a unix socket signals it each time the peer reads, which would double the wake-ups of every transaction.
    fn adopt(&mut self, index: usize, link: &mut Link) -> io::Result<()>;

    /// Takes what has come for a session that was found ready; see [`Link::receive`].
    #[inline]
    fn receive(&mut self, _index: usize, link: &mut Link, to_the_end: bool) -> Result<(), LinkError> {
        link.receive(to_the_end)
    }

    /// Sends what the session has written; see [`Link::send`].
    #[inline]
    fn send(&mut self, _index: usize, link: &mut Link) -> Result<(), LinkError> {
        link.send()
    }

    /// A session that was found ready has no connection any more: what has come for it is dropped.
    #[inline]
    fn discard(&mut self, _index: usize) {}

    /// From now on the session is also woken when there is room to send (or is not any more).
    fn watch_room(&mut self, fd: RawFd, index: usize, wanted: bool) -> io::Result<()>;

    /// Waits until some session is ready or `deadline` has come, and appends the ready sessions to `ready`. `now` is a reading of the
    /// clock not long ago: another one for each wait would cost as much as recording a transaction.
    fn wait(&mut self, now: Nanos, deadline: Nanos, ready: &mut Vec<Ready>) -> io::Result<()>;
}

/// Events taken from the kernel in one call.
const EVENTS_PER_WAIT: usize = 256;
/// The timer's token; sessions use their index, which stays far below.
const TIMER_TOKEN: Token = Token(usize::MAX - 1);
/// The waker's token.
const WAKER_TOKEN: Token = Token(usize::MAX - 2);

/// epoll through mio, with a timerfd in the same set: mio rounds time-outs up to whole milliseconds, which no open-loop
/// schedule can live with.
#[derive(Debug)]
pub struct EpollReactor {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    armed_for: Option<Nanos>,
    waker: Arc<Waker>,
}

impl EpollReactor {
    /// Creates the epoll set, its timer and its waker.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER_TOKEN, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER_TOKEN)?);
        Ok(EpollReactor {
            poll,
            events: Events::with_capacity(EVENTS_PER_WAIT),
            timer,
            armed_for: None,
            waker,
        })
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// The epoll set itself, which can be watched by another poller.
    pub(super) fn fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Watches or no longer watches a socket for room to send, and for nothing else.
    pub(super) fn watch_only_room(&mut self, fd: RawFd, index: usize, wanted: bool) -> io::Result<()> {
        let registry = self.poll.registry();
        if wanted {
            registry.register(&mut SourceFd(&fd), Token(index), Interest::WRITABLE)
        } else {
            registry.deregister(&mut SourceFd(&fd))
        }
    }

    /// Takes all events that are there, without waiting.
    pub(super) fn poll_now(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        loop {
            self.poll(Some(Duration::ZERO), ready)?;
            if self.events.iter().count() < EVENTS_PER_WAIT {
                return Ok(());
            }
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            // A signal: the worker looks at its stop flag and comes back.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match event.token() {
                TIMER_TOKEN => self.armed_for = None,
                WAKER_TOKEN => {}
                Token(index) => {
                    let is_closed = event.is_read_closed() || event.is_write_closed() || event.is_error();
                    ready.push(Ready { index, is_closed });
                }
            }
        }
        Ok(())
    }

    /// Arms the timer for an absolute time. An armed timer that already ends at the right moment costs no system call:
    /// a closed loop arms it once a second.
    pub(super) fn arm(&mut self, deadline: Nanos) -> io::Result<()> {
        // Zero would disarm it.
        let deadline = deadline.max(1);
        if self.armed_for == Some(deadline) {
            return Ok(());
        }
        let value = Timespec {
            tv_sec: (deadline / NANOS_PER_SECOND) as i64,
            tv_nsec: (deadline % NANOS_PER_SECOND) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed_for = Some(deadline);
        Ok(())
    }
}

impl Reactor for EpollReactor {
    #[inline]
    fn now(&self) -> Nanos {
        monotonic_ns()
    }

    fn adopt(&mut self, index: usize, link: &mut Link) -> io::Result<()> {
        match link.fd() {
            Some(fd) => self.poll.registry().register(&mut SourceFd(&fd), Token(index), Interest::READABLE),
            None => Ok(()),
        }
    }

    fn watch_room(&mut self, fd: RawFd, index: usize, wanted: bool) -> io::Result<()> {
        let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.poll.registry().reregister(&mut SourceFd(&fd), Token(index), interest)
    }

    fn wait(&mut self, now: Nanos, deadline: Nanos, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = if deadline <= now {
            Some(Duration::ZERO)
        } else {
            self.arm(deadline)?;
            None
        };
        self.poll(timeout, ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_close_to_its_deadline() {
        let mut reactor = EpollReactor::new().unwrap();
        let mut ready = Vec::new();
        let deadline = reactor.now() + 300_000;
        while reactor.now() < deadline {
            reactor.wait(reactor.now(), deadline, &mut ready).unwrap();
        }
        assert!(ready.is_empty());
        // mio alone would sleep a whole millisecond; a loaded machine may be late, so only the lower bound is exact.
        assert!(reactor.now() >= deadline);
    }

    #[test]
    fn a_waker_ends_a_wait() {
        let mut reactor = EpollReactor::new().unwrap();
        let waker = reactor.waker();
        let far = reactor.now() + 60 * NANOS_PER_SECOND;
        let thread = std::thread::spawn(move || waker.wake());
        reactor.wait(reactor.now(), far, &mut Vec::new()).unwrap();
        thread.join().unwrap().unwrap();
        assert!(reactor.now() < far);
    }
}
