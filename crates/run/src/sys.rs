//! The one module of this crate with unsafe code: an io_uring whose requests can never outlive the memory they point to.
//!
//! The kernel reads and writes memory of ours while a request is under way, so the three kinds of request used here are chosen such
//! that this is easy to see:
//!
//! - *receive* (multishot) writes only into buffers of the ring's own pool. A buffer belongs to the kernel from the moment it is given
//!   back until a completion names it.
//! - *send* never waits (`MSG_DONTWAIT`), so the kernel reads its bytes inside the very `io_uring_enter` that submits it. Until then
//!   they lie in the ring's own arena, which is emptied only after that call.
//! - *poll* has no memory.
//!
//! Sockets are registered under the number of their session: a request that is still queued when a socket is closed reaches the old
//! socket and not whichever got its descriptor next.
//!
//! Sources: io_uring(7), io_uring_enter(2), io_uring_prep_recv_multishot(3), io_uring_register_buf_ring(3).
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Requests that can be queued between two system calls.
const QUEUE_ENTRIES: u32 = 256;
/// Completions that fit into the shared queue, for each socket: an arrival, a refused send, and some to spare. The kernel keeps further
/// ones until there is room.
const COMPLETIONS_PER_SOCKET: u32 = 4;
/// The least and the most of them; the latter is the kernel's limit.
const COMPLETION_ENTRIES: (u32, u32) = (4096, 65536);
/// Receive buffers of a ring.
const BUFFERS: u16 = 128;
/// Bytes of one receive buffer: a reply to a select by key of a wide row fits.
const BUFFER_BYTES: usize = 8 * 1024;
/// The pool's number; a ring has only one.
const BUFFER_GROUP: u16 = 0;
/// Bytes of requests that can be queued between two system calls.
const ARENA_BYTES: usize = 64 * 1024;
/// Alignment that the kernel requires of the pool's list.
const PAGE_BYTES: usize = 4096;

/// Memory from the allocator at a fixed place, zeroed.
#[derive(Debug)]
struct Block {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is plain memory with one owner.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: usize) -> Block {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a constant size");
        // SAFETY: the layout has a size above zero.
        let at = unsafe { alloc_zeroed(layout) };
        Block { at: NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.as_ptr(), self.layout) };
    }
}

/// What the kernel reports of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The request's tag.
    pub(crate) tag: u64,
    /// Bytes, or a negative errno.
    pub(crate) result: i32,
    /// The request stays armed.
    pub(crate) goes_on: bool,
    /// The receive buffer that was filled.
    pub(crate) buffer: Option<Buffer>,
}

/// A filled receive buffer, on loan until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    id: u16,
    bytes: usize,
}

/// See the module's description.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    /// [`BUFFERS`] buffers of [`BUFFER_BYTES`].
    pool: Block,
    /// The list by which buffers are given to the kernel.
    list: Block,
    /// Entries ever written to the list, modulo 2^16.
    list_tail: u16,
    /// Request bytes that were queued since the last system call. Its capacity is fixed, so they never move.
    arena: Vec<u8>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("queued_bytes", &self.arena.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for `sockets` sockets. Only the thread that makes it may use it and drop it.
    ///
    /// # Errors
    /// What the kernel reports when it has no io_uring, an old one (before Linux 6.1), or forbids it.
    pub(crate) fn new(sockets: u32) -> io::Result<Ring> {
        let completions = sockets.saturating_mul(COMPLETIONS_PER_SOCKET);
        let ring = IoUring::<squeue::Entry, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(completions.clamp(COMPLETION_ENTRIES.0, COMPLETION_ENTRIES.1))
            .build(QUEUE_ENTRIES)?;
        let pool = Block::new(usize::from(BUFFERS) * BUFFER_BYTES);
        let list = Block::new(usize::from(BUFFERS) * size_of::<BufRingEntry>());
        ring.submitter().register_files_sparse(sockets.max(1))?;
        // SAFETY: the list is page-aligned, has room for all entries, and is freed only after Drop has unregistered it.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(list.as_ptr() as u64, BUFFERS, BUFFER_GROUP, 0)?;
        }
        let mut ring = Ring { ring, pool, list, list_tail: 0, arena: Vec::with_capacity(ARENA_BYTES) };
        for id in 0..BUFFERS {
            ring.give_back(Buffer { id, bytes: 0 });
        }
        Ok(ring)
    }

    /// Puts a socket into place `index` of the registered ones, instead of the one that was there.
    pub(crate) fn register(&mut self, index: u32, fd: RawFd) -> io::Result<()> {
        // What is queued for the old socket must reach the old one.
        self.submit()?;
        self.ring.submitter().register_files_update(index, &[fd]).map(drop)
    }

    /// Arms a receive on socket `index`: each arrival is a completion, until one has no flag that it goes on.
    pub(crate) fn receive(&mut self, index: u32, tag: u64) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(Fixed(index), BUFFER_GROUP).build().user_data(tag);
        self.push(&entry)
    }

    /// Arms a poll for input on a descriptor, which must stay open as long as the ring lives.
    pub(crate) fn poll_input(&mut self, fd: RawFd, tag: u64) -> io::Result<()> {
        const POLLIN: u32 = 1;
        self.push(&opcode::PollAdd::new(Fd(fd), POLLIN).multi(true).build().user_data(tag))
    }

    /// Whether a request of this length can be queued at all.
    pub(crate) fn can_queue(&self, bytes: usize) -> bool {
        bytes <= ARENA_BYTES
    }

    /// Queues a send, which goes out with the next system call. Success is silent; a completion means that the socket took only part (its
    /// result) or nothing (an errno).
    ///
    /// # Panics
    /// When [`Ring::can_queue`] is false.
    pub(crate) fn send(&mut self, index: u32, tag: u64, bytes: &[u8]) -> io::Result<()> {
        const MSG_DONTWAIT: i32 = 0x40;
        const MSG_WAITALL: i32 = 0x100;
        const MSG_NOSIGNAL: i32 = 0x4000;
        assert!(self.can_queue(bytes.len()), "a request of {} bytes", bytes.len());
        if self.arena.len() + bytes.len() > ARENA_BYTES {
            self.submit()?;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        let entry = opcode::Send::new(Fixed(index), self.arena[start..].as_ptr(), bytes.len() as u32)
            .flags(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(tag);
        self.push(&entry)
    }

    /// Hands everything queued to the kernel.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
        self.arena.clear();
        Ok(())
    }

    /// Hands everything queued to the kernel and, in the same system call, waits for a completion if none is there yet. A signal
    /// ends the wait without an error.
    pub(crate) fn submit_and_wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => drop(other?),
        }
        self.submit()
    }

    /// Hands everything queued to the kernel and collects what is done, without waiting.
    pub(crate) fn poll(&mut self) -> io::Result<()> {
        // Completions are put off until a system call requests them; the flag reports that there is one to be requested.
        if self.ring.submission().taskrun() {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
        self.submit()
    }

    /// The next completion, if one is there.
    #[inline]
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        let entry: cqueue::Entry = self.ring.completion().next()?;
        let (result, flags) = (entry.result(), entry.flags());
        Some(Completion {
            tag: entry.user_data(),
            result,
            goes_on: cqueue::more(flags),
            buffer: cqueue::buffer_select(flags).map(|id| Buffer { id, bytes: result.max(0) as usize }),
        })
    }

    /// What a receive has put into a buffer.
    #[inline]
    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        assert!(buffer.id < BUFFERS && buffer.bytes <= BUFFER_BYTES, "{buffer:?}");
        // SAFETY: inside the pool, and the buffer is ours until it is given back, which takes `&mut self`.
        unsafe {
            let at = self.pool.as_ptr().add(usize::from(buffer.id) * BUFFER_BYTES);
            std::slice::from_raw_parts(at, buffer.bytes)
        }
    }

    /// The kernel may fill the buffer again.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        let list = self.list.as_ptr().cast::<BufRingEntry>();
        let place = usize::from(self.list_tail % BUFFERS);
        // SAFETY: the place is inside the list, which has BUFFERS entries, and the kernel reads entries only below the tail. The tail is
        // shared with the kernel, so it is written as an atomic, after the entry; it overlays the first entry's unused field.
        unsafe {
            let entry = &mut *list.add(place);
            entry.set_addr(self.pool.as_ptr().add(usize::from(buffer.id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer.id);
            self.list_tail = self.list_tail.wrapping_add(1);
            let tail = BufRingEntry::tail(list).cast_mut();
            AtomicU16::from_ptr(tail).store(self.list_tail, Ordering::Release);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: what the entry points to stays valid until it is submitted and done, see the module's description.
            let is_queued = unsafe { self.ring.submission().push(entry) }.is_ok();
            if is_queued {
                return Ok(());
            }
            // Only the queue: the arena must keep what this entry points to.
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Queued sends are done by this, so that the arena may go.
        let is_quiet = self.submit().is_ok()
            && match self.ring.submitter().register_sync_cancel(None, CancelBuilder::any().all()) {
                Err(error) => error.kind() == io::ErrorKind::NotFound,
                Ok(()) => true,
            }
            && self.ring.submitter().unregister_buf_ring(BUFFER_GROUP).is_ok();
        if !is_quiet {
            // The kernel may still write: the memory is given up instead of being used for something else.
            for block in [&mut self.pool, &mut self.list] {
                std::mem::forget(std::mem::replace(block, Block::new(1)));
            }
            std::mem::forget(std::mem::take(&mut self.arena));
        }
    }
}
