//! Which of the two reactors a run uses.

use std::io;

use super::uring::UringReactor;

/// What the user requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// io_uring where the kernel has it, else epoll.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// io_uring, or an error.
    IoUring,
}

/// What a run uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poller {
    /// Readiness: one receive and one send for each round trip, and a wait for all that are ready together.
    Epoll,
    /// Completions: one system call for all that are ready together.
    IoUring,
}

impl Poller {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Poller::Epoll => "epoll",
            Poller::IoUring => "io_uring",
        }
    }
}

impl Choice {
    /// What this machine can do of it.
    ///
    /// # Errors
    /// When io_uring is requested by name and the kernel refuses it.
    pub fn resolve(self) -> io::Result<Poller> {
        match self {
            Choice::Epoll => Ok(Poller::Epoll),
            Choice::IoUring => UringReactor::probe().map(|()| Poller::IoUring),
            Choice::Auto => Ok(UringReactor::probe().map_or(Poller::Epoll, |()| Poller::IoUring)),
        }
    }
}
