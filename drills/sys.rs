//! The calls of the kernel that nobody wraps: a child that ends with us, and an agent that must permit every open below a mount.
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Makes a child get SIGKILL when the thread that spawns it ends, whatever ends it.
pub(crate) fn end_with_us(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    let parent = Some(getpid());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are two bare system calls.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the call: then nobody will ever send the signal.
            if getppid() != parent {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()));
            }
            Ok(())
        });
    }
}

/// A program that looks over the database's shoulder, as a virus scanner does: every open of a file below a mount waits for its answer.
pub(crate) struct Agent {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Puts a mark on the mount that holds `path`; each open there is permitted after `delay`.
    pub(crate) fn on(path: &Path, delay: Duration) -> io::Result<Agent> {
        let marks = permission_mark(path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicU64::new(0));
        let (seen, count) = (Arc::clone(&stop), Arc::clone(&asked));
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                if answer(&marks, delay, &count).is_err() {
                    break;
                }
            }
        });
        Ok(Agent { stop, asked, thread: Some(thread) })
    }

    /// How many opens it was asked to permit.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Agent {
    /// The kernel permits whatever still waits when the last descriptor is closed.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A group of fanotify with one mark: FAN_OPEN_PERM on a mount.
fn permission_mark(path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the call takes two numbers.
    let descriptor = unsafe {
        libc::fanotify_init(
            libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK,
            (libc::O_RDONLY | libc::O_CLOEXEC) as u32,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and nobody else has it.
    let group = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: the path ends with a NUL and lives longer than the call.
    let marked = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT,
            libc::FAN_OPEN_PERM,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from(group)) }
}

/// Waits a moment for questions, and permits what is asked.
fn answer(group: &File, delay: Duration, asked: &AtomicU64) -> io::Result<()> {
    const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    /// `event_len`, `vers`, `reserved`, `metadata_len`, `mask`, `fd`, `pid` of fanotify(7).
    const EVENT_BYTES: usize = 24;
    const FD_AT: usize = 16;
    let mut poll = [PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)];
    if rustix::event::poll(&mut poll, Some(&PATIENCE))? == 0 {
        return Ok(());
    }
    let mut bytes = [0u8; 64 * EVENT_BYTES];
    let count = (&*group).read(&mut bytes)?;
    let mut at = 0;
    while at + EVENT_BYTES <= count {
        let event = &bytes[at..at + EVENT_BYTES];
        let word = |from: usize| [event[from], event[from + 1], event[from + 2], event[from + 3]];
        at += (u32::from_ne_bytes(word(0)) as usize).max(EVENT_BYTES);
        let descriptor = i32::from_ne_bytes(word(FD_AT));
        if descriptor < 0 {
            continue;
        }
        // SAFETY: the kernel opened this descriptor for the reader of the event, that is, for us alone.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        thread::sleep(delay);
        let mut permission = [0u8; 8];
        permission[..4].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        permission[4..].copy_from_slice(&libc::FAN_ALLOW.to_ne_bytes());
        (&*group).write_all(&permission)?;
        asked.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
