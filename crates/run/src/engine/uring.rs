//! The completion-based poller: sends and receives of all sessions that are ready together cost one system call.
//!
//! epoll reports which sockets can be read, and then each costs a receive and a send. Here a receive is armed once per connection and the
//! kernel fills a buffer of the ring's pool whenever something comes; requests are queued, and the call that waits for the next
//! replies sends them. Timers, the waker and connections with TLS use an epoll set, which the ring polls like a socket.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use mio::Waker;
use rustix::io::Errno;

use super::Nanos;
use super::link::{Link, LinkError};
use super::reactor::{EpollReactor, Reactor, Ready};
use crate::sys::{Buffer, Completion, Ring};

/// Sends queued in one turn before they are handed over early: with many sessions ready at once the first request must not wait until
/// the last reply has been read.
const SENDS_PER_SUBMISSION: u32 = 16;

/// Tag of the epoll set's poll. Other tags are a [`Tag`].
const EPOLL_TAG: u64 = u64::MAX;

/// Whose request a completion answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag {
    index: u32,
    /// Counts the connections of a session, modulo 2^31: a late completion of the last one must not be taken for this one's.
    generation: u32,
    is_send: bool,
}

impl Tag {
    const GENERATION_MASK: u32 = (1 << 31) - 1;

    fn pack(self) -> u64 {
        u64::from(self.is_send) << 63 | u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn unpack(tag: u64) -> Tag {
        Tag {
            index: tag as u32,
            generation: (tag >> 32) as u32 & Tag::GENERATION_MASK,
            is_send: tag >> 63 == 1,
        }
    }
}

/// How a session's bytes travel.
///
/// ```text
///   Epoll  --a connection without TLS is adopted-->  Ring
///   Ring   --the socket's send buffer is full-->     Blocked
///   Blocked --everything left has been sent-->       Ring
///   any    --a connection with TLS is adopted-->     Epoll
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// Readiness, then system calls of its own: TLS, or no connection yet.
    Epoll,
    /// Through the ring.
    Ring,
    /// Received through the ring; sends wait for room and are made directly, so that they stay in order.
    Blocked,
}

/// What the ring knows of one session's connection.
#[derive(Debug)]
struct Slot {
    generation: u32,
    path: Path,
    fd: RawFd,
    /// What came since the session was last looked at: usually one buffer.
    arrived: Option<Buffer>,
    /// What came after that.
    more: Vec<u8>,
    /// The peer has closed, or the socket has failed: nothing comes behind `more`.
    end: Option<End>,
    /// Bytes of the last send that the socket did not take.
    refused_bytes: usize,
    /// Bytes queued since the last submission.
    queued_bytes: usize,
    /// The socket refused a send for good.
    has_failed: bool,
    /// The epoll set watches the socket for room.
    waits_for_room: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Failed(i32),
}

/// See the module's description.
#[derive(Debug)]
pub struct UringReactor {
    epoll: EpollReactor,
    ring: Ring,
    slots: Vec<Slot>,
    /// Sessions that have queued a send since the last submission.
    senders: Vec<u32>,
    /// Sessions found ready outside of a wait.
    found: Vec<Ready>,
    is_epoll_ready: bool,
}

impl UringReactor {
    /// A ring for `sessions` sessions. To be used and dropped by the thread that makes it.
    ///
    /// # Errors
    /// When the kernel has no io_uring as it is needed here (Linux 6.1 and later have), or forbids it.
    pub fn new(epoll: EpollReactor, sessions: usize) -> io::Result<UringReactor> {
        let mut ring = Ring::new(sessions as u32)?;
        ring.poll_input(epoll.fd(), EPOLL_TAG)?;
        let slot = |_| Slot {
            generation: 0,
            path: Path::Epoll,
            fd: -1,
            arrived: None,
            more: Vec::new(),
            end: None,
            refused_bytes: 0,
            queued_bytes: 0,
            has_failed: false,
            waits_for_room: false,
        };
        Ok(UringReactor {
            epoll,
            ring,
            slots: (0..sessions).map(slot).collect(),
            senders: Vec::with_capacity(sessions),
            found: Vec::with_capacity(sessions),
            is_epoll_ready: false,
        })
    }

    /// Whether this machine's kernel can do what is needed.
    ///
    /// # Errors
    /// Its message if not.
    pub fn probe() -> io::Result<()> {
        Ring::new(1).map(drop)
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        self.epoll.waker()
    }

    /// Takes what the kernel reports after everything queued has been handed to it.
    fn settle(&mut self) -> io::Result<()> {
        self.collect()?;
        // Only now: a send that did not go out as a whole is measured by what was queued.
        for index in self.senders.drain(..) {
            self.slots[index as usize].queued_bytes = 0;
        }
        Ok(())
    }

    /// Takes all completions: notes what came, and which sessions that makes ready.
    fn collect(&mut self) -> io::Result<()> {
        while let Some(completion) = self.ring.next_completion() {
            if completion.tag == EPOLL_TAG {
                self.is_epoll_ready = true;
                if !completion.goes_on {
                    self.ring.poll_input(self.epoll.fd(), EPOLL_TAG)?;
                }
                continue;
            }
            let tag = Tag::unpack(completion.tag);
            let is_current = self
                .slots
                .get(tag.index as usize)
                .is_some_and(|slot| slot.generation == tag.generation && slot.path != Path::Epoll);
            if !is_current {
                if let Some(buffer) = completion.buffer {
                    self.ring.give_back(buffer);
                }
            } else if tag.is_send {
                self.sent(tag.index as usize, completion.result);
            } else {
                self.arrived(tag.index as usize, completion)?;
            }
        }
        Ok(())
    }

    /// A send did not go out as a whole.
    fn sent(&mut self, index: usize, result: i32) {
        let slot = &mut self.slots[index];
        if result >= 0 || result == -Errno::AGAIN.raw_os_error() {
            slot.refused_bytes += slot.queued_bytes.saturating_sub(result.max(0) as usize);
        } else {
            slot.has_failed = true;
        }
        self.found.push(Ready { index, is_closed: false });
    }

    fn arrived(&mut self, index: usize, completion: Completion) -> io::Result<()> {
        let slot = &mut self.slots[index];
        match completion.buffer {
            Some(buffer) if slot.arrived.is_none() && slot.more.is_empty() => slot.arrived = Some(buffer),
            Some(buffer) => {
                slot.more.extend_from_slice(self.ring.bytes(&buffer));
                self.ring.give_back(buffer);
            }
            None if completion.result == 0 => slot.end = Some(End::Closed),
            // All buffers are lent: the bytes stay in the socket until the receive is armed again, below.
            None if completion.result == -Errno::NOBUFS.raw_os_error() => {}
            None => slot.end = Some(End::Failed(-completion.result)),
        }
        if !completion.goes_on && slot.end.is_none() {
            let tag = Tag { index: index as u32, generation: slot.generation, is_send: false };
            self.ring.receive(tag.index, tag.pack())?;
        }
        self.found.push(Ready { index, is_closed: self.slots[index].end.is_some() });
        Ok(())
    }
}

impl Reactor for UringReactor {
    #[inline]
    fn now(&self) -> Nanos {
        self.epoll.now()
    }

    fn adopt(&mut self, index: usize, link: &mut Link) -> io::Result<()> {
        let slot = &mut self.slots[index];
        slot.generation = (slot.generation + 1) & Tag::GENERATION_MASK;
        if let Some(buffer) = slot.arrived.take() {
            self.ring.give_back(buffer);
        }
        slot.more.clear();
        (slot.end, slot.refused_bytes, slot.has_failed, slot.waits_for_room) = (None, 0, false, false);
        slot.path = Path::Epoll;
        let Some(fd) = link.plain_fd() else { return self.epoll.adopt(index, link) };
        link.travels_by_ring()?;
        (slot.path, slot.fd) = (Path::Ring, fd);
        let tag = Tag { index: index as u32, generation: slot.generation, is_send: false };
        self.ring.register(tag.index, fd)?;
        self.settle()?;
        self.ring.receive(tag.index, tag.pack())
    }

    fn watch_room(&mut self, fd: RawFd, index: usize, wanted: bool) -> io::Result<()> {
        let slot = &mut self.slots[index];
        if slot.path == Path::Epoll {
            return self.epoll.watch_room(fd, index, wanted);
        }
        slot.path = if wanted { Path::Blocked } else { Path::Ring };
        if slot.waits_for_room != wanted {
            slot.waits_for_room = wanted;
            self.epoll.watch_only_room(fd, index, wanted)?;
        }
        Ok(())
    }

    fn receive(&mut self, index: usize, link: &mut Link, to_the_end: bool) -> Result<(), LinkError> {
        let slot = &mut self.slots[index];
        if slot.path == Path::Epoll {
            return link.receive(to_the_end);
        }
        if slot.refused_bytes > 0 {
            link.take_back(std::mem::take(&mut slot.refused_bytes));
            slot.path = Path::Blocked;
        }
        if std::mem::take(&mut slot.has_failed) {
            // The armed receive then brings the server's last words, and the end.
            link.shut_down();
        }
        if let Some(buffer) = slot.arrived.take() {
            link.deliver(self.ring.bytes(&buffer));
            self.ring.give_back(buffer);
        }
        if !slot.more.is_empty() {
            link.deliver(&slot.more);
            slot.more.clear();
        }
        match slot.end {
            None => Ok(()),
            Some(End::Closed) => Err(link.closed()),
            Some(End::Failed(errno)) => match link.closed() {
                LinkError::Closed => Err(io::Error::from_raw_os_error(errno).into()),
                fatal => Err(fatal),
            },
        }
    }

    fn send(&mut self, index: usize, link: &mut Link) -> Result<(), LinkError> {
        let slot = &mut self.slots[index];
        if slot.path == Path::Ring && slot.queued_bytes > 0 {
            // Two sends under way could overtake each other if the socket takes only part of the first.
            self.ring.submit()?;
            self.settle()?;
        }
        let slot = &mut self.slots[index];
        if slot.refused_bytes > 0 {
            link.take_back(std::mem::take(&mut slot.refused_bytes));
            slot.path = Path::Blocked;
        }
        link.forget_sent();
        let bytes = link.unsent();
        if slot.path != Path::Ring || !self.ring.can_queue(bytes.len()) {
            link.send()?;
            if slot.path == Path::Blocked && !link.has_output() && !slot.waits_for_room {
                slot.path = Path::Ring;
            }
            return Ok(());
        }
        let tag = Tag { index: index as u32, generation: slot.generation, is_send: true };
        slot.queued_bytes = bytes.len();
        self.ring.send(tag.index, tag.pack(), bytes)?;
        link.handed_over();
        self.senders.push(tag.index);
        if self.senders.len() as u32 >= SENDS_PER_SUBMISSION {
            self.ring.submit()?;
            self.settle()?;
        }
        Ok(())
    }

    fn discard(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(buffer) = slot.arrived.take() {
            self.ring.give_back(buffer);
        }
        slot.more.clear();
    }

    fn wait(&mut self, now: Nanos, deadline: Nanos, ready: &mut Vec<Ready>) -> io::Result<()> {
        if self.found.is_empty() && !self.is_epoll_ready && deadline > now {
            self.epoll.arm(deadline)?;
            self.ring.submit_and_wait()?;
        } else {
            self.ring.poll()?;
        }
        self.settle()?;
        if std::mem::take(&mut self.is_epoll_ready) {
            self.epoll.poll_now(ready)?;
        }
        ready.append(&mut self.found);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
