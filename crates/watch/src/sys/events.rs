//! `perf_event_open`: the kernel takes the stack of one CPU at a fixed rate, and writes it into memory that it shares with us.
//!
//! The memory is a ring that the kernel fills from its end to its begin and then overwrites (`write_backward`). So the newest record is always
//! complete and first, and it need not be read while nothing is wanted. Output is paused while the ring is copied.
//!
//! Sources: perf_event_open(2), `include/uapi/linux/perf_event.h`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// `PERF_TYPE_SOFTWARE`.
const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`: a timer, so no hardware counters are needed.
const CPU_CLOCK: u64 = 0;
/// `PERF_SAMPLE_IP | TID | TIME | CALLCHAIN | CPU`: the layout that `perf::records` reads.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7;
/// Bits of `perf_event_attr`.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const COMM: u64 = 1 << 9;
const FREQUENCY: u64 = 1 << 10;
const TASK: u64 = 1 << 13;
const EXCLUDE_GUEST: u64 = 1 << 20;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
const WRITE_BACKWARD: u64 = 1 << 27;
/// Names and parents of processes come with the samples: a process may have ended when its samples are read. They cost 64 bytes for each
/// process that begins and ends.
const FLAGS: u64 = COMM | FREQUENCY | TASK | EXCLUDE_GUEST | COMM_EXEC | USE_CLOCK | WRITE_BACKWARD;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_PAUSE_OUTPUT`.
const PAUSE_OUTPUT: u32 = 0x4004_2409;
/// Where the first page of the mapping has `data_head`.
const HEAD_AT: usize = 1024;
/// Bytes of a word of the ring: records are aligned to it.
const WORD: usize = 8;

/// `struct perf_event_attr`, version 5.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config_1: u64,
    config_2: u64,
    branch_sample_type: u64,
    user_registers: u64,
    user_stack: u32,
    clock: i32,
    interrupt_registers: u64,
    aux_watermark: u32,
    stack_frames_max: u16,
    reserved: u16,
}

/// Which part of the stacks is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Kernel and user.
    All,
    /// User only: some security modules permit no more.
    User,
}

/// The samples of one CPU.
#[derive(Debug)]
pub(crate) struct CpuRing {
    descriptor: OwnedFd,
    /// The mapping: a page of control data, then the ring.
    mapping: NonNull<u8>,
    page_bytes: usize,
    ring_bytes: usize,
    /// `data_head` when it was last read.
    taken_head: u64,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on a thread.
unsafe impl Send for CpuRing {}

impl CpuRing {
    /// Begins to sample all processes on this CPU, `frequency` times a second, stamped with CLOCK_MONOTONIC. `ring_bytes` must be a power of two of pages.
    pub(crate) fn open(cpu: u32, frequency: u64, part: Part, ring_bytes: usize) -> io::Result<CpuRing> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CPU_CLOCK,
            frequency,
            sample_type: SAMPLE_TYPE,
            flags: if part == Part::User { FLAGS | EXCLUDE_KERNEL } else { FLAGS },
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let (every_process, no_group): (libc::c_int, libc::c_int) = (-1, -1);
        let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
        // SAFETY: the kernel reads `size` bytes of the attributes, which live until the call returns. A descriptor that it returns is ours alone.
        let descriptor = unsafe {
            let number = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                every_process,
                cpu,
                no_group,
                CLOSE_ON_EXEC,
            );
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(number as libc::c_int)
        };
        CpuRing::map(descriptor, ring_bytes)
    }

    fn map(descriptor: OwnedFd, ring_bytes: usize) -> io::Result<CpuRing> {
        let page_bytes = rustix::param::page_size();
        let number = descriptor.as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses. It is read only: the kernel then overwrites the oldest records.
        let address = unsafe {
            let bytes = page_bytes + ring_bytes;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, number, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(CpuRing { descriptor, mapping, page_bytes, ring_bytes, taken_head: 0 })
    }

    /// Bytes that the kernel has written since the last [`CpuRing::take`]; more than the ring holds if some were overwritten.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        // It counts down from zero.
        self.taken_head.wrapping_sub(self.head())
    }

    /// Bytes of the ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The records since the last call, the newest first. The oldest may be cut off, if the ring has overwritten its end.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.pause(true);
        let head = self.head();
        let wanted = usize::try_from(self.taken_head.wrapping_sub(head)).unwrap_or(usize::MAX);
        let bytes = self.copy(head, wanted.min(self.ring_bytes));
        self.taken_head = head;
        self.pause(false);
        bytes
    }

    /// Passes over what was written since the last call.
    pub(crate) fn skip(&mut self) {
        self.taken_head = self.head();
    }

    fn head(&self) -> u64 {
        let head = self.word(HEAD_AT).load(Ordering::Relaxed);
        // Memory that may not be written permits relaxed loads only.
        fence(Ordering::Acquire);
        head
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(WORD) && at + WORD <= self.page_bytes + self.ring_bytes);
        // SAFETY: inside of the mapping, which lives as long as this value, and aligned, because the mapping begins with a page. The kernel writes to
        // it at any time, so it is only ever read by atomic loads of a word.
        unsafe { AtomicU64::from_ptr(self.mapping.as_ptr().add(at).cast()) }
    }

    fn copy(&self, head: u64, bytes: usize) -> Vec<u8> {
        let mask = self.ring_bytes - 1;
        let words = bytes / WORD;
        let first = head as usize & mask;
        let at = |number: usize| self.page_bytes + ((first + number * WORD) & mask);
        (0..words).flat_map(|number| self.word(at(number)).load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    fn pause(&self, is_paused: bool) {
        // SAFETY: this request takes a number and no memory. If it fails, records are overwritten while they are read: their lengths are checked.
        unsafe {
            libc::ioctl(self.descriptor.as_raw_fd(), PAUSE_OUTPUT as _, libc::c_ulong::from(is_paused));
        }
    }
}

impl Drop for CpuRing {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and no reference to it outlives this value.
        unsafe {
            libc::munmap(self.mapping.as_ptr().cast(), self.page_bytes + self.ring_bytes);
        }
    }
}
