//! The coordinator's part of every load: it watches the streams, passes on what they report, and wakes them when the user stops the load.
//!
//! It runs on the caller's thread and never touches a row, so a slow observer delays no stream.

use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::LoadError;
use crate::options::StopLevel;
use crate::progress::{Counters, LoadEvent, Meter, Observer, Phase, TICK};
use crate::stream::{DRAIN, Message, Work};

/// How often the coordinator checks whether the user has stopped the load.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// A stream that has not noticed the stop after this long waits for its server, and is woken by a cancel request.
const STOP_PATIENCE: Duration = Duration::from_secs(2 * DRAIN.as_secs());

/// Runs the streams, which `streams` starts and waits for, and keeps the observer informed while they run.
pub(crate) fn coordinate(
    work: &Work<'_>,
    inbox: &Receiver<Message>,
    reporter: &mut Reporter<'_>,
    streams: impl FnOnce() -> Result<(), LoadError> + Send,
) -> Result<(), LoadError> {
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let _end = EndMessage(work);
            streams()
        });
        let mut next_tick = Instant::now() + TICK;
        let mut stop_seen = None;
        loop {
            let now = Instant::now();
            match inbox.recv_timeout(next_tick.saturating_duration_since(now).min(STOP_LOOK)) {
                Ok(Message::Event(event)) => reporter.observer.event(&event),
                Ok(Message::Ended) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if work.stop_level() > StopLevel::Run && stop_seen.is_none() {
                stop_seen = Some(now);
                if work.stop.level() > StopLevel::Run {
                    let reason = work.stop.reason().unwrap_or("interrupted");
                    let message = format!("{reason}: unfinished chunks are completed or rolled back");
                    reporter.observer.event(&LoadEvent {
                        kind: record::event::INTERRUPT,
                        message,
                        duration: None,
                    });
                }
            }
            if now >= next_tick {
                next_tick = now + TICK;
                reporter.tick(work.counters);
                let patience = if work.stop_level() == StopLevel::Now { TICK } else { STOP_PATIENCE };
                if stop_seen.is_some_and(|seen| seen + patience <= now) {
                    wake_streams(work);
                }
            }
        }
        driver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Reports that the driver has ended, even when it ends by a panic.
struct EndMessage<'a>(&'a Work<'a>);

impl Drop for EndMessage<'_> {
    fn drop(&mut self) {
        // A coordinator that is gone needs no message.
        let _ = self.0.messages.send(Message::Ended);
    }
}

/// Cancels what the streams' servers are at, so that streams that wait for them notice the stop.
fn wake_streams(work: &Work<'_>) {
    for cancel in &work.cancels {
        let cancel = cancel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cancel) = cancel {
            // A server that cannot be reached has nothing to cancel.
            let _ = cancel.cancel();
        }
    }
}

/// The observer and what its progress is made from.
pub(crate) struct Reporter<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) meter: Meter,
}

impl Reporter<'_> {
    pub(crate) fn begin(&mut self, phase: Phase, counters: &Counters) {
        self.meter.begin(phase, counters, Instant::now());
        let message = phase.as_str().to_owned();
        self.observer.event(&LoadEvent { kind: record::event::PHASE, message, duration: None });
    }

    pub(crate) fn tick(&mut self, counters: &Counters) {
        let (progress, sample, interval) = self.meter.tick(counters, Instant::now(), cpu_us());
        self.observer.progress(&progress, &sample, interval);
        if let Some(event) = self.meter.slow_node_event(&progress) {
            self.observer.event(&event);
        }
    }
}

/// CPU time of this process, user and system.
pub(crate) fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    (time.tv_sec as u64) * 1_000_000 + (time.tv_nsec as u64) / 1_000
}
