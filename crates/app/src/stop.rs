//! Requests to stop. The first drains and leaves a partial report, the second stops at once. The command passes Ctrl-C and SIGTERM on; a
//! library user calls [`Stop::request`].
//!
//! | level | state | left by |
//! |---|---|---|
//! | 0 | running | the first request, to 1; where nothing is in flight ([`Stop::nothing_in_flight`]), to the end: clean-ups, then [`Reply::Leave`] |
//! | 1 | draining: verbs finish what is in flight, write what they have and end as interrupted | the second request, to 2 |
//! | 2 | stopping: verbs give up what is in flight; for those still in it after [`GRACE`] the requester cleans up and gets [`Reply::Leave`] | - |

use run::control::StopFlag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a verb has to get out after the second request.
pub const GRACE: Duration = Duration::from_secs(2);

type Cleanup = Box<dyn FnOnce() + Send>;
type Listener = Box<dyn Fn(Urgency) + Send>;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Finish what is in flight.
    Drain,
    /// Give up what is in flight.
    Now,
}

/// What a request has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing was in flight: the clean-ups run now, then comes [`Reply::Leave`].
    NothingBegun,
    /// What is in flight is being finished.
    Draining,
    /// What is in flight is given up; [`Reply::Leave`] comes if the work has not ended after [`GRACE`].
    Stopping,
    /// The clean-ups have run, and the work has not ended by itself: a process ends here.
    Leave,
}

/// Whether an end was requested. All who have to notice share it.
#[derive(Clone, Default)]
pub struct Stop {
    drain: Arc<AtomicBool>,
    /// The number of [`IdleGuard`]s. A request takes this lock, too: a guard that is dropped knows that no request has ended the process.
    idle: Arc<Mutex<usize>>,
    listeners: Arc<Mutex<Vec<Listener>>>,
    cleanups: Arc<Mutex<Vec<(u64, Cleanup)>>>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop").field("drain", &self.drain).finish_non_exhaustive()
    }
}

impl Stop {
    /// Requests an end, as a signal does: the first request drains, the second stops. A library user whose process goes on ignores the reply.
    pub fn request(&self) {
        self.request_with(|_| ());
    }

    /// The same; `reply` receives what the request has come to. Where nothing is in flight nothing can begin before it has returned.
    pub fn request_with(&self, reply: impl Fn(Reply)) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if *idle > 0 {
            reply(Reply::NothingBegun);
            self.clean_up();
            reply(Reply::Leave);
        }
        drop(idle);
        connect::control::silence::end();
        if !self.drain.swap(true, Ordering::SeqCst) {
            self.notify(Urgency::Drain);
            reply(Reply::Draining);
            return;
        }
        reply(Reply::Stopping);
        self.notify(Urgency::Now);
        std::thread::sleep(GRACE);
        // Still here: a call that does not come back.
        self.clean_up();
        reply(Reply::Leave);
    }

    /// What must not stay behind is cleaned up from this thread.
    fn clean_up(&self) {
        let cleanups = std::mem::take(&mut *self.cleanups.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, cleanup) in cleanups.into_iter().rev() {
            cleanup();
        }
    }

    fn notify(&self, urgency: Urgency) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(urgency);
        }
    }

    /// Passes every request on to a library's own way of stopping; at once if one has come already.
    pub fn forward(&self, listener: impl Fn(Urgency) + Send + 'static) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_requested() {
            listener(Urgency::Drain);
        }
        listeners.push(Box::new(listener));
    }

    /// A flag that the first request sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        self.forward({
            let flag = Arc::clone(&flag);
            move |_| flag.store(true, Ordering::Relaxed)
        });
        flag
    }

    /// The same for the sessions of a run, which distinguish one request from two.
    pub(crate) fn session_flag(&self) -> Arc<StopFlag> {
        let flag = Arc::new(StopFlag::default());
        self.forward({
            let flag = Arc::clone(&flag);
            move |urgency| match urgency {
                Urgency::Drain => flag.request(),
                // The second request counts as the second one even when the first came before this run.
                Urgency::Now => (flag.requests()..2).for_each(|_| flag.request()),
            }
        });
        flag
    }

    /// Until the guard is dropped the first request ends the process at once, whatever call it sits in: a file that nothing writes, a lock that
    /// is never released. For what comes before the work.
    pub(crate) fn nothing_in_flight(&self) -> IdleGuard {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        IdleGuard { stop: self.clone() }
    }

    /// Whether the user has stopped it.
    pub(crate) fn is_requested(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }

    /// Registers what must happen even if the verb hangs: it runs on the requester's thread after the second request, or never.
    /// Dropping the guard takes it back, when the verb has cleaned up by itself.
    pub(crate) fn on_forced_exit(&self, cleanup: impl FnOnce() + Send + 'static) -> CleanupGuard {
        let mut cleanups = self.cleanups.lock().unwrap_or_else(PoisonError::into_inner);
        let id = cleanups.last().map_or(0, |(id, _)| id + 1);
        cleanups.push((id, Box::new(cleanup)));
        CleanupGuard { stop: self.clone(), id }
    }
}

/// As long as it lives nothing is in flight; see [`Stop::nothing_in_flight`].
#[derive(Debug)]
pub struct IdleGuard {
    stop: Stop,
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        *self.stop.idle.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// Holds a clean-up in place; see [`Stop::on_forced_exit`].
#[derive(Debug)]
pub struct CleanupGuard {
    stop: Stop,
    id: u64,
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        let mut cleanups = self.stop.cleanups.lock().unwrap_or_else(PoisonError::into_inner);
        cleanups.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_drains_only_and_late_listeners_hear_of_it() {
        let stop = Stop::default();
        let received = Arc::new(Mutex::new(Vec::new()));
        let listen = |name: &'static str| {
            let received = Arc::clone(&received);
            move |urgency| received.lock().unwrap().push((name, urgency))
        };
        stop.forward(listen("early"));
        assert!(!stop.is_requested() && received.lock().unwrap().is_empty());
        stop.request();
        assert!(stop.is_requested());
        stop.forward(listen("late"));
        assert_eq!(*received.lock().unwrap(), [("early", Urgency::Drain), ("late", Urgency::Drain)]);
    }

    #[test]
    fn the_second_request_is_answered_before_the_work_has_its_grace() {
        let stop = Stop::default();
        let replies = std::cell::RefCell::new(vec![]);
        for _ in 0..2 {
            stop.request_with(|reply| replies.borrow_mut().push(reply));
        }
        assert_eq!(replies.into_inner(), [Reply::Draining, Reply::Stopping, Reply::Leave]);
    }

    #[test]
    fn a_dropped_guard_takes_its_cleanup_back_and_no_other() {
        let stop = Stop::default();
        let first = stop.on_forced_exit(|| ());
        let second = stop.on_forced_exit(|| ());
        drop(first);
        assert_eq!(stop.cleanups.lock().unwrap().len(), 1);
        let third = stop.on_forced_exit(|| ());
        assert_ne!(second.id, third.id);
        drop((second, third));
        assert!(stop.cleanups.lock().unwrap().is_empty());
    }
}
