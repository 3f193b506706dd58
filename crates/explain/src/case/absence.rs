//! When a server was away: from the moment at which its connection was lost until it was sampled again, and why, by its own log.

use super::Case;
use record::event::{self, Event};
use record::finding::Window;

/// A log line so long before the loss was noticed, or after it, is about the loss.
const LOG_US: u64 = 5_000_000;
/// A start that the server's clock puts this long before we lost it belongs to that loss.
pub(crate) const CLOCK_US: u64 = 1_000_000;
/// Parts of the messages with which a server, or one of its processes, ends: the most telling first.
const ENDS: [&str; 7] = [
    "PANIC",
    "was terminated by signal",
    "No space left on device",
    "shutdown request",
    "terminating any other active server processes",
    "all server processes terminated",
    "database system is shut down",
];

/// A time without the server.
#[derive(Clone, Debug)]
pub(crate) struct Absence<'a> {
    /// The node.
    pub node: &'a str,
    /// From its loss to the first sample after it, or to the end of the recording.
    pub window: Window,
    /// How long it was of no use, as exactly as this is known: a process that was started again was away until then, one that was not since the last
    /// sample before it was given up.
    pub away_us: u64,
    /// Whether it was sampled again.
    pub is_over: bool,
    /// Whether its process was started meanwhile.
    pub is_restart: bool,
    /// The message of its log that has the reason.
    pub why: Option<&'a str>,
}

impl Case {
    /// The times in which servers that had been sampled were away, in the order of the recording.
    pub(crate) fn absences(&self) -> Vec<Absence<'_>> {
        let lost = |event: &&Event| Case::word_of(event, "what") == event::AWAY;
        self.events_of(event::RESTART).filter(lost).map(|event| self.absence(event)).collect()
    }

    fn absence<'a>(&'a self, lost: &'a Event) -> Absence<'a> {
        let node = Case::word_of(lost, "node");
        let ticks = self.one("server", node).map(|server| server.ticks.points()).unwrap_or_default();
        let again = ticks.iter().map(|point| point.to_us).find(|to_us| *to_us > lost.t_us);
        let window = Window::new(lost.t_us, again.unwrap_or(self.span.to_us));
        let of_node = |event: &&Event| Case::word_of(event, "node") == node;
        let near = window.from_us.saturating_sub(LOG_US)..=window.from_us + LOG_US;
        let logged: Vec<&Event> = self
            .events_of(event::SERVER_LOG)
            .filter(of_node)
            .filter(|event| near.contains(&event.t_us))
            .collect();
        let why = ENDS.iter().find_map(|end| {
            let is_end =
                |event: &&&Event| event.message.contains(end) || Case::word_of(event, "severity") == *end;
            logged.iter().find(is_end).map(|event| event.message.as_str())
        });
        let started = self
            .events_of(event::RESTART)
            .filter(of_node)
            .find(|event| Case::word_of(event, "what") == event::STARTED && holds(window, event.t_us));
        let before = ticks.iter().map(|point| point.to_us).filter(|to_us| *to_us <= lost.t_us).max();
        let away_us = match started {
            Some(started) => started.t_us.saturating_sub(window.from_us),
            None => window.to_us - before.unwrap_or(window.from_us),
        };
        Absence { node, window, away_us, is_over: again.is_some(), is_restart: started.is_some(), why }
    }
}

impl Absence<'_> {
    /// Whether an event of a server belongs to it.
    pub(crate) fn has(&self, event: &Event) -> bool {
        Case::word_of(event, "node") == self.node && holds(self.window, event.t_us)
    }
}

fn holds(window: Window, t_us: u64) -> bool {
    t_us + CLOCK_US >= window.from_us && t_us <= window.to_us
}
