//! A collector: it is called once per tick, and returns lines, events and files.
//!
//! A collector depends on no run directory and no schedule, so a test can use its own clock.

use record::Clock;
use record::event::Event;
use record::watched::{Fact, Missing, Sampled};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// One moment of sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// Since the start of the run, taken when the tick began.
    pub now_us: u64,
    /// The run's clock, for collectors that read it again or convert wall-clock times.
    pub clock: Clock,
    /// The current time between ticks; it grows when the disk budget shrinks.
    pub cadence_us: u64,
}

impl Tick {
    /// `t_us` of a wall-clock moment (microseconds since the Unix epoch) of a clock that is ahead of ours by `offset_us`; 0 if it lies
    /// before the start of the run.
    pub(crate) fn of_wall(&self, wall_us: i64, offset_us: i64) -> u64 {
        // The wall clock may have been set since the run began, unlike the monotonic one: so the current time connects both.
        let now_wall_us = record::clock::wall_us() as i64;
        let now_us = self.clock.now_us() as i64;
        let since_us = wall_us.saturating_sub(offset_us).saturating_sub(now_wall_us);
        u64::try_from(now_us.saturating_add(since_us)).unwrap_or(0)
    }
}

/// Who a collector looks at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A database node.
    Node(String),
    /// A machine.
    Host(String),
}

impl Place {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Place::Node(name) | Place::Host(name) => name,
        }
    }

    /// The field that names it in lines and events: `node` or `host`.
    pub fn field(&self) -> &'static str {
        match self {
            Place::Node(_) => "node",
            Place::Host(_) => "host",
        }
    }

    /// An event at this place.
    pub fn event(&self, t_us: u64, kind: &str, message: impl Into<String>) -> Event {
        let mut more = Map::new();
        more.insert(self.field().to_string(), self.name().into());
        Event { t_us, kind: kind.to_string(), message: message.into(), more, ..Event::default() }
    }

    /// A fact about this place.
    pub fn fact(&self, topic: &str, name: impl Into<String>, value: impl Into<String>) -> Fact {
        let (node, host) = self.columns();
        Fact { node, host, topic: topic.to_string(), name: name.into(), value: value.into() }
    }

    /// Something that cannot be seen here.
    pub fn missing(&self, what: &str, why: impl Into<String>, lost: impl Into<String>) -> Missing {
        let (node, host) = self.columns();
        Missing { node, host, what: what.to_string(), why: why.into(), lost: lost.into() }
    }

    fn columns(&self) -> (String, String) {
        match self {
            Place::Node(name) => (name.clone(), String::new()),
            Place::Host(name) => (String::new(), name.clone()),
        }
    }
}

/// What a collector spent besides the time of its own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// CPU time of the server's process that answers it, if that can be read.
    pub server_cpu_us: Option<u64>,
    /// CPU time of other threads that it started.
    pub programs_cpu_us: Option<u64>,
    /// Time it waited for answers of the server.
    pub queried_us: Option<u64>,
    /// Statements it sent.
    pub questions: Option<u64>,
}

/// A source of samples that is called once per tick.
pub trait Collect: Send {
    /// The node or host that it samples. Must not change.
    fn place(&self) -> Place;

    /// Its part in the cost of monitoring: `views`, `machine`, ... Must not change.
    fn part(&self) -> &'static str;

    /// What it looks at, in messages: the node or host where it is what that is about.
    fn subject(&self) -> String {
        self.place().name().to_string()
    }

    /// How long the end waits for it, if longer than for others.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// What it spent since the last call, besides the time of its own thread.
    fn spent(&mut self) -> Spent {
        Spent::default()
    }

    /// Samples and returns the results. It may be slow (a stuck server, a slow ssh): it has its own thread, and missed ticks
    /// become a `gap` event. It must return by itself, if possible within a second or two, because the end of a run waits for it.
    fn tick(&mut self, tick: &Tick, batch: &mut Batch);

    /// The last call, when the sampling ends: what is still open is closed (a child process, a connection), what is held back is returned.
    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        let _ = (tick, batch);
    }
}

/// What one tick brought.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// (`t_us`, `interval_us`, line).
    pub lines: Vec<(u64, u64, Sampled)>,
    /// In the order they happened.
    pub events: Vec<Event>,
    /// Files to keep: a path inside the run directory, and the content.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Batch {
    /// Adds what was counted in the `interval_us` up to `t_us`.
    pub fn counted(&mut self, t_us: u64, interval_us: u64, line: impl Into<Sampled>) {
        self.lines.push((t_us, interval_us, line.into()));
    }

    /// Adds a reading of this moment.
    pub fn reading(&mut self, t_us: u64, line: impl Into<Sampled>) {
        self.counted(t_us, 0, line);
    }

    /// Adds an event.
    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds a file.
    pub fn file(&mut self, path: impl Into<String>, content: Vec<u8>) {
        self.files.push((path.into(), content));
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.events.is_empty() && self.files.is_empty()
    }
}

/// An event with one more field.
pub trait With {
    /// Adds it.
    #[must_use]
    fn with(self, name: &str, value: impl Into<Value>) -> Self;
}

impl With for Event {
    fn with(mut self, name: &str, value: impl Into<Value>) -> Event {
        self.more.insert(name.to_string(), value.into());
        self
    }
}

/// Earlier reports, so that facts and missing items are written only when they change.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    facts: BTreeMap<(String, String), String>,
    missing: BTreeMap<String, (String, String)>,
}

impl Recorded {
    /// Reports a fact, unless it is unchanged. Returns whether it replaced another value.
    pub fn fact(&mut self, batch: &mut Batch, t_us: u64, fact: Fact) -> bool {
        let key = (fact.topic.clone(), fact.name.clone());
        let before = self.facts.insert(key, fact.value.clone());
        let is_news = before.as_ref() != Some(&fact.value);
        if is_news {
            batch.reading(t_us, fact);
        }
        is_news && before.is_some()
    }

    /// Reports a missing item, unless that is unchanged.
    pub fn missing(&mut self, batch: &mut Batch, t_us: u64, missing: Missing) {
        let words = (missing.why.clone(), missing.lost.clone());
        if self.missing.insert(missing.what.clone(), words.clone()) != Some(words) {
            batch.reading(t_us, missing);
        }
    }

    /// Revokes it: the item is visible again.
    pub fn found(&mut self, batch: &mut Batch, t_us: u64, place: &Place, what: &str) {
        if self.missing.remove(what).is_some() {
            batch.reading(t_us, place.missing(what, "", ""));
        }
    }

    /// The missing items: name, reason, what is unknown without them.
    pub(crate) fn missing_now(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.missing.iter().map(|(what, (why, lost))| (what.as_str(), why.as_str(), lost.as_str()))
    }
}
