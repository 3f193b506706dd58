//! The waits of a node's sessions, as average active sessions: the mean number of sessions in a state.
//!
//! Ten sessions in `LWLock:WALWrite` at every tick lose the time of ten sessions there, however long each single wait is. Sessions idle in a
//! transaction wait for their client and not for the server: they are counted separately.

use crate::series::Series;
use record::finding::Window;
use record::watched::{WAIT_CPU, Wait};
use std::collections::BTreeMap;

/// Statements whose waits are kept; the others count without their name.
pub const STATEMENTS_MAX: usize = 2_000;
/// Events that a sentence names at most.
const NAMED_MAX: usize = 3;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Who {
    /// A client's session or its parallel worker, at work.
    Client,
    /// A client's session between two statements of one transaction.
    IdleInTransaction,
    /// An autovacuum worker, or a client's VACUUM as far as it is known to be one.
    Vacuum,
    /// Other processes of the server.
    Background,
}

impl Who {
    fn of(line: &Wait) -> Who {
        match line.backend.as_str() {
            "autovacuum worker" => Who::Vacuum,
            "client backend" | "parallel worker" | "" if line.state.starts_with("idle in transaction") => {
                Who::IdleInTransaction
            }
            "client backend" | "parallel worker" | "" => Who::Client,
            _ => Who::Background,
        }
    }
}

/// An event with its kind.
pub type Event = (String, String);

/// The waits of one node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Waits {
    series: BTreeMap<(Who, Event), Series>,
    totals: BTreeMap<Who, Series>,
    statements: BTreeMap<String, BTreeMap<Event, f64>>,
    /// Parallel workers among those at work for clients.
    parallel: Series,
    /// Samples of a statement's sessions, and of their parallel workers.
    workers: BTreeMap<String, (f64, f64)>,
}

impl Waits {
    /// Adds one line.
    pub fn take(&mut self, t_us: u64, interval_us: u64, line: &Wait) {
        let who = Who::of(line);
        let event = (line.wait_type.clone(), line.wait_event.clone());
        let sessions = line.sessions as f64;
        self.totals.entry(who).or_default().add(t_us, interval_us, sessions);
        if line.backend == "parallel worker" {
            self.parallel.add(t_us, interval_us, sessions);
        }
        if let Some(query_id) = line.query_id.as_ref().filter(|_| who == Who::Client) {
            let room = self.statements.len() < STATEMENTS_MAX;
            if room || self.statements.contains_key(query_id) {
                let events = self.statements.entry(query_id.clone()).or_default();
                *events.entry(event.clone()).or_default() += sessions;
                let (own, workers) = self.workers.entry(query_id.clone()).or_default();
                *(if line.backend == "parallel worker" { workers } else { own }) += sessions;
            }
        }
        self.series.entry((who, event)).or_default().add(t_us, interval_us, sessions);
    }

    /// All sampled sessions, summed over the ticks.
    pub fn seen(&self, who: Who) -> f64 {
        self.totals.get(&who).map_or(0.0, Series::sum)
    }

    /// The same within windows.
    pub(crate) fn seen_within(&self, who: Who, windows: &[Window]) -> f64 {
        self.totals.get(&who).map_or(0.0, |series| series.within(windows).sum())
    }

    /// Parallel workers among the sampled sessions, within windows.
    pub(crate) fn parallel_within(&self, windows: &[Window]) -> f64 {
        self.parallel.within(windows).sum()
    }

    /// Sessions seen in events that fit.
    pub(crate) fn seen_in(&self, who: Who, fits: impl Fn(&str, &str) -> bool) -> f64 {
        self.of(who).filter(|(event, _)| fits(&event.0, &event.1)).map(|(_, series)| series.sum()).sum()
    }

    /// The share of sessions seen that were in events that fit; `None` if none was ever seen.
    pub fn share(&self, who: Who, fits: impl Fn(&str, &str) -> bool) -> Option<f64> {
        let all = self.seen(who);
        (all > 0.0).then(|| self.seen_in(who, fits) / all)
    }

    /// The same within windows; `None` if none was seen there.
    pub(crate) fn share_within(
        &self,
        who: Who,
        windows: &[Window],
        fits: impl Fn(&str, &str) -> bool,
    ) -> Option<f64> {
        let all = self.seen_within(who, windows);
        let fitting = self.of(who).filter(|(event, _)| fits(&event.0, &event.1));
        (all > 0.0).then(|| fitting.map(|(_, series)| series.within(windows).sum()).sum::<f64>() / all)
    }

    /// The stretch in which matching events exceed `share` of the sessions seen by the most. A day of one problem must not hide an hour of the next.
    pub(crate) fn densest(&self, who: Who, share: f64, fits: impl Fn(&str, &str) -> bool) -> Option<Window> {
        let all = self.totals.get(&who)?.points();
        let mut surplus: Vec<f64> = all.iter().map(|point| -share * point.sum).collect();
        for (_, series) in self.of(who).filter(|(event, _)| fits(&event.0, &event.1)) {
            for point in series.points() {
                // Series of different length are thinned differently: each point counts where it ends.
                let at = all.partition_point(|other| other.to_us < point.to_us).min(all.len() - 1);
                surplus[at] += point.sum;
            }
        }
        // Kadane's algorithm: a stretch with a negative sum cannot help what follows it.
        let (mut best, mut found) = (0.0, None);
        let (mut sum, mut from) = (0.0, 0);
        for (at, value) in surplus.iter().enumerate() {
            sum += value;
            if sum > best {
                (best, found) = (sum, Some(Window::new(all[from].from_us, all[at].to_us)));
            }
            if sum <= 0.0 {
                (sum, from) = (0.0, at + 1);
            }
        }
        found
    }

    /// Every event of a kind of session, with its series.
    pub fn of(&self, who: Who) -> impl Iterator<Item = (&Event, &Series)> {
        self.series
            .iter()
            .filter(move |((other, _), _)| *other == who)
            .map(|((_, event), series)| (event, series))
    }

    /// The largest events, with their share of all seen.
    pub fn top(&self, who: Who, most: usize) -> Vec<(String, f64)> {
        self.top_within(who, most, &[Window::new(0, u64::MAX)])
    }

    /// The largest events in words, as `IO WALSync 40 %, ...`.
    pub(crate) fn top_in_words(&self, who: Who) -> String {
        self.top_in_words_within(who, &[Window::new(0, u64::MAX)])
    }

    /// The same within windows.
    pub(crate) fn top_in_words_within(&self, who: Who, windows: &[Window]) -> String {
        let words = |(event, share): (String, f64)| format!("{event} {}", crate::units::percent(share));
        let top = self.top_within(who, NAMED_MAX, windows);
        top.into_iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// The same within windows.
    pub(crate) fn top_within(&self, who: Who, most: usize, windows: &[Window]) -> Vec<(String, f64)> {
        let all = self.seen_within(who, windows).max(1.0);
        let mut events: Vec<(String, f64)> = self
            .of(who)
            .map(|(event, series)| (name(event), series.within(windows).sum() / all))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        events.sort_by(|left, right| right.1.total_cmp(&left.1));
        events.truncate(most);
        events
    }

    /// When sessions were in events that fit: from the first to the last moment, in stretches without a gap.
    pub fn windows(&self, who: Who, fits: impl Fn(&str, &str) -> bool) -> Vec<Window> {
        let mut found: Vec<Window> = self
            .of(who)
            .filter(|(event, _)| fits(&event.0, &event.1))
            .flat_map(|(_, series)| series.stretches(0, |point| point.sum > 0.0))
            .collect();
        merge(&mut found);
        found
    }

    /// Statements with the sessions seen running them, summed over the ticks of the whole recording.
    pub(crate) fn statements(&self) -> impl Iterator<Item = (&str, f64)> {
        self.statements.iter().map(|(query_id, events)| (query_id.as_str(), events.values().sum()))
    }

    /// Sessions seen with a statement and without a wait, summed over the ticks of the whole recording.
    pub(crate) fn computing_with(&self, query_id: &str) -> f64 {
        let events = self.statements.get(query_id);
        let computing = events.into_iter().flatten().filter(|(event, _)| event.0 == WAIT_CPU);
        computing.map(|(_, seen)| seen).sum()
    }

    /// Sessions seen with a statement, without their parallel workers, summed over the ticks of the whole recording.
    pub(crate) fn sessions_with(&self, query_id: &str) -> f64 {
        self.workers.get(query_id).map_or(0.0, |(own, _)| *own)
    }

    /// How many processes work on an execution of a statement: its session, and its parallel workers on average.
    pub(crate) fn with_workers(&self, query_id: &str) -> f64 {
        match self.workers.get(query_id) {
            Some((own, workers)) if *own > 0.0 => 1.0 + workers / own,
            _ => 1.0,
        }
    }

    /// What the sessions of a statement were seen in, under any of its ids: the largest first, with their shares of what was seen of it.
    pub(crate) fn events_of(&self, query_ids: &[String], most: usize) -> Vec<(String, f64)> {
        let mut sums: BTreeMap<&Event, f64> = BTreeMap::new();
        for (event, seen) in query_ids.iter().filter_map(|id| self.statements.get(id)).flatten() {
            *sums.entry(event).or_default() += seen;
        }
        let all: f64 = sums.values().sum();
        let mut events: Vec<(String, f64)> =
            sums.into_iter().map(|(event, seen)| (name(event), seen / all)).collect();
        events.sort_by(|left, right| right.1.total_cmp(&left.1));
        events.truncate(most);
        events
    }

    /// The statement that was seen most in events that fit, with its share of what was seen there with a name.
    pub(crate) fn worst_statement(&self, fits: impl Fn(&str, &str) -> bool) -> Option<(&str, f64)> {
        let seen = |events: &BTreeMap<Event, f64>| -> f64 {
            events.iter().filter(|(event, _)| fits(&event.0, &event.1)).map(|(_, seen)| seen).sum()
        };
        let all: f64 = self.statements.values().map(seen).sum();
        let worst = self.statements.iter().max_by(|left, right| seen(left.1).total_cmp(&seen(right.1)))?;
        (all > 0.0).then(|| (worst.0.as_str(), seen(worst.1) / all))
    }
}

/// `LWLock:WALWrite`; `CPU` alone.
pub fn name(event: &Event) -> String {
    if event.0 == WAIT_CPU { WAIT_CPU.to_string() } else { format!("{}:{}", event.0, event.1) }
}

/// Orders windows and joins those that touch.
pub fn merge(windows: &mut Vec<Window>) {
    windows.sort();
    let mut merged: Vec<Window> = vec![];
    for window in windows.drain(..) {
        match merged.last_mut() {
            Some(last) if window.from_us <= last.to_us => last.to_us = last.to_us.max(window.to_us),
            _ => merged.push(window),
        }
    }
    *windows = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(backend: &str, state: &str, event: (&str, &str), sessions: u64) -> Wait {
        Wait {
            node: "n1".into(),
            backend: backend.into(),
            state: state.into(),
            wait_type: event.0.into(),
            wait_event: event.1.into(),
            query_id: Some("42".into()),
            sessions,
        }
    }

    #[test]
    fn shares_are_of_active_sessions_alone() {
        let mut waits = Waits::default();
        for second in 1..=10u64 {
            let t_us = second * 1_000_000;
            waits.take(t_us, 1_000_000, &line("client backend", "active", ("LWLock", "WALWrite"), 6));
            waits.take(t_us, 1_000_000, &line("client backend", "active", ("CPU", "CPU"), 2));
            waits.take(
                t_us,
                1_000_000,
                &line("client backend", "idle in transaction", ("Client", "ClientRead"), 50),
            );
            waits.take(t_us, 1_000_000, &line("autovacuum worker", "active", ("Timeout", "VacuumDelay"), 3));
        }
        assert_eq!(waits.share(Who::Client, |kind, _| kind == "LWLock"), Some(0.75));
        assert_eq!(waits.share(Who::Vacuum, |_, event| event == "VacuumDelay"), Some(1.0));
        assert_eq!(waits.share(Who::Background, |_, _| true), None);
        assert_eq!(waits.top(Who::Client, 1), [("LWLock:WALWrite".to_string(), 0.75)]);
        assert_eq!(waits.worst_statement(|kind, _| kind == "LWLock"), Some(("42", 1.0)));
        assert_eq!(waits.seen_within(Who::Client, &[Window::new(0, 5_000_000)]), 40.0);
        assert_eq!(waits.windows(Who::Client, |kind, _| kind == "LWLock"), [Window::new(0, 10_000_000)]);
    }

    #[test]
    fn the_hour_after_a_day_of_something_else_is_found() {
        let mut waits = Waits::default();
        for second in 1..=500u64 {
            let event = match second {
                // Before, the one is seen now and then.
                ..=400 if second % 5 == 0 => ("LWLock", "WALWrite"),
                ..=400 => ("Timeout", "VacuumDelay"),
                _ if second % 10 == 0 => ("CPU", "CPU"),
                _ => ("LWLock", "WALWrite"),
            };
            waits.take(second * 1_000_000, 1_000_000, &line("autovacuum worker", "active", event, 2));
        }
        let is_wal = |kind: &str, _: &str| kind == "LWLock";
        assert!(waits.share(Who::Vacuum, is_wal).is_some_and(|share| share < 0.5));
        let window = waits.densest(Who::Vacuum, 0.5, is_wal).expect("there is one");
        assert_eq!(window, Window::new(399_000_000, 499_000_000), "it begins with the last that fits before");
        assert_eq!(waits.share_within(Who::Vacuum, &[window], is_wal), Some(91.0 / 100.0));
        assert_eq!(waits.top_within(Who::Vacuum, 1, &[window])[0].0, "LWLock:WALWrite");
        assert_eq!(waits.densest(Who::Vacuum, 0.5, |kind, _| kind == "IO"), None);
        assert_eq!(waits.densest(Who::Client, 0.5, is_wal), None);
    }
}
