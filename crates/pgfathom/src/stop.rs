//! Ctrl-C: once drains and writes a partial report, twice stops at once. SIGTERM does the same.
//!
//! | level | state | left by |
//! |---|---|---|
//! | 0 | running | the first SIGINT or SIGTERM, to 1; where nothing is in flight ([`Stop::nothing_in_flight`]), out: clean-ups and exit 130 |
//! | 1 | draining: verbs finish what is in flight, write what they have and exit 130 | the second signal, to 2 |
//! | 2 | stopping: verbs give up what is in flight; whoever is not out after [`GRACE`] is stopped by the signal thread, which runs the registered clean-ups and exits 130 | - |
//!
//! The handler itself only writes a byte into a socket; a thread of our own does the rest.

use record::Exit;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a verb has to get out after the second signal.
const GRACE: Duration = Duration::from_secs(2);

type Cleanup = Box<dyn FnOnce() + Send>;
type Listener = Box<dyn Fn(Urgency) + Send>;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Finish what is in flight.
    Drain,
    /// Give up what is in flight.
    Now,
}

/// The state of the signals, shared by everybody who has to notice.
#[derive(Clone)]
pub struct Stop {
    drain: Arc<AtomicBool>,
    /// How many say that nothing is in flight. Taken by the signal thread as well: whoever takes its word back knows that no signal has ended us.
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
    /// Takes SIGINT and SIGTERM over, and starts the thread that counts them.
    ///
    /// # Errors
    /// When the system refuses the handler, a socket pair or the thread.
    pub fn install() -> std::io::Result<Stop> {
        let stop = Stop {
            drain: Arc::new(AtomicBool::new(false)),
            idle: Arc::default(),
            listeners: Arc::new(Mutex::new(Vec::new())),
            cleanups: Arc::new(Mutex::new(Vec::new())),
        };
        let (mut reader, writer) = UnixStream::pair()?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // Whoever writes past a limit on the size of files (ulimit -f) is told by the write: the signal alone would end us without a word.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
        let counter = stop.clone();
        std::thread::Builder::new().name("signals".to_string()).spawn(move || {
            let mut byte = [0u8; 1];
            while matches!(reader.read(&mut byte), Ok(1)) {
                counter.signalled();
            }
        })?;
        Ok(stop)
    }

    /// A state that no signal reaches, for tests.
    #[cfg(test)]
    pub fn idle() -> Stop {
        Stop {
            drain: Arc::default(),
            idle: Arc::default(),
            listeners: Arc::default(),
            cleanups: Arc::default(),
        }
    }

    fn signalled(&self) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if *idle > 0 {
            let _ = writeln!(std::io::stderr(), "\ninterrupted: nothing had begun");
            self.leave();
        }
        drop(idle);
        target::control::silence::end();
        if !self.drain.swap(true, Ordering::SeqCst) {
            self.tell(Urgency::Drain);
            // Nobody may be listening any more, and a panic here would leave later signals unheard.
            let _ = writeln!(
                std::io::stderr(),
                "\ninterrupted: finishing what is in flight; once more to stop at once"
            );
            return;
        }
        self.tell(Urgency::Now);
        std::thread::sleep(GRACE);
        // Still here: a call that does not come back.
        self.leave();
    }

    /// Ends the process. What must not stay behind is cleaned up from this thread.
    fn leave(&self) -> ! {
        let cleanups = std::mem::take(&mut *self.cleanups.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, cleanup) in cleanups.into_iter().rev() {
            cleanup();
        }
        std::process::exit(i32::from(Exit::Interrupted.code()));
    }

    fn tell(&self, urgency: Urgency) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(urgency);
        }
    }

    /// Passes every signal on to a library's own way of stopping; at once if one has come already.
    pub fn forward(&self, listener: impl Fn(Urgency) + Send + 'static) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_requested() {
            listener(Urgency::Drain);
        }
        listeners.push(Box::new(listener));
    }

    /// Until the guard is dropped the first signal ends the process at once, whatever call it sits in: a file that nobody writes, a lock that
    /// nobody gives back. For what comes before the work.
    pub fn nothing_in_flight(&self) -> IdleGuard {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        IdleGuard { stop: self.clone() }
    }

    /// Whether the user wants an end.
    pub fn is_requested(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }

    /// Registers what must happen even if the verb hangs: it runs on the signal thread after the second signal, or never.
    /// Dropping the guard takes it back, when the verb has cleaned up by itself.
    pub fn on_forced_exit(&self, cleanup: impl FnOnce() + Send + 'static) -> CleanupGuard {
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
    fn the_first_signal_drains_only_and_late_listeners_hear_of_it() {
        let stop = Stop::idle();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listen = |name: &'static str| {
            let heard = Arc::clone(&heard);
            move |urgency| heard.lock().unwrap().push((name, urgency))
        };
        stop.forward(listen("early"));
        assert!(!stop.is_requested() && heard.lock().unwrap().is_empty());
        stop.signalled();
        assert!(stop.is_requested());
        stop.forward(listen("late"));
        assert_eq!(*heard.lock().unwrap(), [("early", Urgency::Drain), ("late", Urgency::Drain)]);
    }

    #[test]
    fn a_dropped_guard_takes_its_cleanup_back_and_no_other() {
        let stop = Stop::idle();
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
