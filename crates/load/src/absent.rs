//! Nodes behind the server that a load is connected to, which do not answer: the server is there, and reports an error about another one. The load waits
//! for them as it waits for the server itself.

use std::time::{Duration, Instant};

use crate::error::LoadError;
use crate::options::{Stop, StopLevel};
use crate::progress::LoadEvent;

/// The first pause before the work is tried again; it doubles from time to time.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Characters of the server's message in the report: it names the node at its beginning.
const MESSAGE_CHARS: usize = 160;
/// How often a pause looks whether it shall stop.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// A wait for a node that is away.
#[derive(Debug)]
pub(crate) struct Waiting {
    since: Instant,
    attempts: u32,
    pause: Duration,
}

impl Waiting {
    /// Begins now.
    pub(crate) fn begin() -> Waiting {
        Waiting { since: Instant::now(), attempts: 0, pause: PAUSE_FIRST }
    }

    /// How long it has lasted.
    pub(crate) fn lasted(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the first repetition has failed as well: a connection between the nodes that broke long ago is found by its next use, and replaced.
    fn is_real(&self) -> bool {
        self.attempts == 1
    }

    /// The next pause; an error when `limit` is used up.
    pub(crate) fn next(&mut self, limit: Duration, error: LoadError) -> Result<Duration, LoadError> {
        let waited = self.lasted();
        if waited >= limit {
            return Err(LoadError::NodeAway { waited, attempts: self.attempts, source: Box::new(error) });
        }
        self.attempts += 1;
        let pause = self.pause.min(limit - waited);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(pause)
    }
}

/// What is reported when a wait begins.
pub(crate) fn message(what: &str, error: &str, limit: Duration) -> String {
    let error = record::escape::one_line(error, MESSAGE_CHARS);
    format!("{what}: another node does not answer ({error}); waiting for it, up to {} s", limit.as_secs())
}

/// Does `work` again and again while a node behind the server is away. `lost`: the engine's SQLSTATE values for that, besides those of PostgreSQL.
pub(crate) fn wait_for<T>(
    (what, lost): (&str, &[&str]),
    limit: Duration,
    stop: &Stop,
    notify: &mut dyn FnMut(LoadEvent),
    mut work: impl FnMut() -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let mut waiting: Option<Waiting> = None;
    loop {
        let error = match work() {
            Err(error) if error.is_node_away(lost) => error,
            done => {
                if let Some(waiting) = waiting.filter(|waiting| done.is_ok() && waiting.attempts > 1) {
                    let message = format!("{what}: all nodes answer again");
                    notify(LoadEvent {
                        kind: record::event::RECONNECT,
                        message,
                        duration: Some(waiting.lasted()),
                    });
                }
                return done;
            }
        };
        if stop.level() != StopLevel::Run {
            return Err(LoadError::NotAwaited { what: what.to_string(), away: error.reason() });
        }
        let waiting = waiting.get_or_insert_with(Waiting::begin);
        if waiting.is_real() {
            let message = message(what, &error.reason(), limit);
            notify(LoadEvent { kind: record::event::ERROR, message, duration: None });
        }
        sleep(waiting.next(limit, error)?, stop);
    }
}

/// Sleeps; less if the load is to be stopped.
pub(crate) fn sleep(pause: Duration, stop: &Stop) {
    let until = Instant::now() + pause;
    while Instant::now() < until && stop.level() == StopLevel::Run {
        std::thread::sleep(STOP_LOOK.min(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> LoadError {
        let source = Box::new(crate::error::tests::server_error(b"08006"));
        LoadError::Stream { doing: "x".into(), source }
    }

    #[test]
    fn a_load_that_shall_stop_does_not_report_the_node_as_its_error() {
        let stop = Stop::new();
        stop.request();
        let mut events = 0;
        let refused = || Err::<(), _>(away());
        let limit = Duration::from_secs(60);
        let error = wait_for(("making keys", &[]), limit, &stop, &mut |_| events += 1, refused).unwrap_err();
        assert!(matches!(&error, LoadError::NotAwaited { what, .. } if what == "making keys"), "{error}");
        assert_eq!(events, 0);
    }

    #[test]
    fn a_connection_that_was_dead_is_no_node_that_is_away() {
        let stop = Stop::new();
        let limit = Duration::from_secs(60);
        for (failures, reports) in [(1, 0), (2, 2)] {
            let (mut left, mut events) = (failures, 0);
            let mut work = || {
                left -= 1;
                if left >= 0 { Err(away()) } else { Ok(()) }
            };
            wait_for(("reading", &[]), limit, &stop, &mut |_| events += 1, &mut work).expect("it works then");
            assert_eq!(events, reports, "{failures} failures");
        }
    }

    #[test]
    fn a_wait_doubles_its_pauses_and_ends_at_its_limit() {
        let mut waiting = Waiting::begin();
        let pauses: Vec<u128> =
            (0..6).map(|_| waiting.next(Duration::from_secs(60), away()).unwrap().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        let over = waiting.next(Duration::ZERO, away()).unwrap_err();
        assert!(matches!(over, LoadError::NodeAway { attempts: 6, .. }), "{over}");
    }
}
