//! The few calls around `fork` and users that the standard library leaves to `unsafe`.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, setsid};

/// Makes the child's process get `signal` when the *thread* that spawns it ends, so spawn it from one that lives as long as
/// the process (see `local::process`). Linux only; elsewhere it does nothing.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_parent(command: &mut Command, signal: Signal) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let parent = Some(getpid());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two bare system calls
    // (prctl, getppid) and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have died before the call: then the signal will never come.
            if getppid() != parent {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()));
            }
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_parent(_command: &mut Command, _signal: Signal) {}

/// Puts the child into its own session, so that neither Ctrl-C nor the end of our terminal reaches it.
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: as above; setsid is one bare system call.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            Ok(())
        });
    }
}

/// Runs `work` with the rights that this user and group have on files, for this thread only. As root it keeps the owner of a folder from leading us to files
/// that are not theirs; for any other user of ours it changes nothing.
pub(crate) fn with_files_of<T>(uid: u32, gid: u32, work: impl FnOnce() -> T) -> T {
    /// Gives root its own rights back, also after a panic.
    struct Own(Vec<u32>);
    impl Drop for Own {
        fn drop(&mut self) {
            set(0, 0, &self.0);
        }
    }
    #[cfg(target_os = "linux")]
    fn set(uid: u32, gid: u32, groups: &[u32]) {
        // SAFETY: bare system calls about this thread (setfsuid(2): "per-thread attribute"; setgroups(2) of the kernel is one as well, only the function of
        // the C library changes all threads). They take numbers, and the slice outlives the call.
        unsafe {
            // Further groups of root would open what belongs to them. Where the kernel's numbers of groups have 16 bits, they are left as they are.
            #[cfg(target_pointer_width = "64")]
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
            libc::setfsgid(gid);
            libc::setfsuid(uid);
        }
    }
    #[cfg(not(target_os = "linux"))]
    fn set(_uid: u32, _gid: u32, _groups: &[u32]) {}
    if !rustix::process::geteuid().is_root() {
        return work();
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let _own = Own(groups.into_iter().map(rustix::process::Gid::as_raw).collect());
    set(uid, gid, &[]);
    work()
}
