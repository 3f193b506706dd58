//! The evidence of a run: the input of all rules, built in one pass over the samples of a run directory.
//!
//! Lines become series by source, place (node or host) and object (device, slot, table, ...); texts keep their last value. So memory depends on the
//! number of objects ([`THINGS_MAX`] each), not on the length of the recording. Rules never read files.

pub(crate) mod absence;
pub(crate) mod engine;
mod lines;
mod names;
mod rows;
mod table_queue;
mod target;
mod texts;
pub(crate) mod waiter;

pub use lines::Lines;
pub use table_queue::TableQueue;
pub use waiter::Waiter;

use crate::stacks::Stacks;
use crate::waits::Waits;
use record::event::{Event, QUERY};
use record::finding::{NodeTime, Window};
use record::model::{PHASE_MEASURE, Step};
use record::sample::{Body, Sample};
use record::watched::{Block, Fact, Missing, Wait};
use record::{Matrix, RecordError, Run, RunReader, Sweep};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// The most objects per source; more are only counted.
pub(crate) const THINGS_MAX: usize = 4_096;
/// The most events; later ones are only counted.
pub const EVENTS_MAX: usize = 200_000;

/// The fields of a line that identify its object. Other sources have one object per place.
const KEYS: [(&str, &[&str]); 33] = [
    ("activity", &["application", "user", "database", "client"]),
    ("connected", &["application", "user", "database", "client"]),
    ("pool", &["pooler", "database", "user"]),
    ("pooler", &["pooler"]),
    ("session_memory", &["application", "user"]),
    ("slru", &["name"]),
    ("core", &["cpu"]),
    ("disk", &["device"]),
    ("net", &["interface"]),
    ("backend", &["backend", "pid"]),
    ("program", &["program"]),
    ("mount", &["mount"]),
    ("hardware", &["kind", "name"]),
    ("table", &["database", "relation"]),
    ("statement", &["database", "query_id"]),
    ("function", &["database", "function"]),
    ("plan", &["query_id", "hash"]),
    ("plan_node", &["query_id", "hash", "number"]),
    ("plan_index", &["database", "relation", "index"]),
    ("plan_table", &["database", "relation"]),
    ("plan_function", &["database", "name"]),
    ("what_if", &["query_id", "hash", "change"]),
    ("replication", &["standby"]),
    ("slot", &["slot"]),
    ("subscription", &["subscription"]),
    ("progress", &["pid", "command", "relation"]),
    ("horizon", &["kind", "name", "pid"]),
    ("session", &["pid"]),
    ("block", &["root"]),
    ("io", &["backend", "object", "context"]),
    ("schedule", &["who"]),
    ("watching", &["part"]),
    ("node", &[]),
];

/// Sources whose lines hold from their moment on.
const LASTING: [&str; 6] = [Fact::SOURCE, "plan", "plan_node", "plan_index", "plan_table", "plan_function"];

/// Of the time of a counter, one part in so many may lie before an interval.
const BEGUN_BEFORE: u64 = 8;

/// A setting that changed during the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingChange {
    /// The time of its detection: at most one poll after it took effect.
    pub t_us: u64,
    /// The node.
    pub node: String,
    /// The setting's name.
    pub name: String,
    /// Value before the change.
    pub before: String,
    /// Value after the change.
    pub after: String,
}

/// The most changes of settings: more than a person makes by hand.
pub(crate) const SETTING_CHANGES_MAX: usize = 1_000;

/// A thing with its names.
#[derive(Clone, Copy, Debug)]
pub struct Thing<'a> {
    /// The node or machine; empty for lines of the client.
    pub place: &'a str,
    /// Its key fields, joined by a space.
    pub name: &'a str,
    /// Its lines.
    pub lines: &'a Lines,
}

/// Everything known of a run.
#[derive(Debug, Default)]
pub struct Case {
    /// `run.json`.
    pub run: Run,
    /// `events.ndjson`.
    pub events: Vec<Event>,
    /// From the first to the last recorded time.
    pub span: Window,
    /// Stacks, all slices together.
    pub stacks: Option<Stacks>,
    /// Facts, the last value of each.
    facts: Vec<Fact>,
    setting_changes: Vec<SettingChange>,
    /// What the collectors could not read.
    pub gaps: Vec<Missing>,
    /// What the directory lacks.
    pub missing: Vec<String>,
    /// The node matrix, if it is one.
    pub matrix: Option<Matrix>,
    /// The sweep, if it is one.
    pub sweep: Option<Sweep>,
    waits: BTreeMap<String, Waits>,
    lines: BTreeMap<String, BTreeMap<(String, String), Lines>>,
    left_out: BTreeMap<String, BTreeSet<String>>,
    fields_kept: usize,
    fields_dropped: usize,
    waiters: BTreeMap<(String, u64), Waiter>,
    table_queues: BTreeMap<(String, String), TableQueue>,
    root_statements: table_queue::RootStatements,
    node_time: OnceLock<Vec<NodeTime>>,
}

impl Case {
    /// Reads a run directory.
    ///
    /// # Errors
    /// As [`RunReader::stream`]: the folder is missing or contains no part of a run.
    pub fn open(dir: &Path) -> Result<Case, RecordError> {
        Case::open_within(dir, None)
    }

    /// Reads what a run directory recorded within an interval. What is true from some moment on, such as settings and plans, is that of its end.
    ///
    /// # Errors
    /// As [`Case::open`].
    pub fn open_within(dir: &Path, interval: Option<Window>) -> Result<Case, RecordError> {
        let mut case = Case::default();
        let is_within = |sample: &Sample| match (interval, &sample.body) {
            (Some(interval), Body::Other { source, .. }) if LASTING.contains(&source.as_str()) => {
                sample.t_us <= interval.to_us
            }
            // A counter whose time began before the interval is for the most part about something else.
            (Some(interval), _) => {
                let began_us =
                    sample.t_us.saturating_sub(sample.interval_us - sample.interval_us / BEGUN_BEFORE);
                interval.holds(sample.t_us) && began_us >= interval.from_us
            }
            (None, _) => true,
        };
        let reader = RunReader::stream(dir, |sample| {
            if is_within(&sample) {
                case.take(sample);
            }
        })?;
        case.span.to_us = case.span.to_us.max(reader.last_us());
        if let Some(interval) = interval {
            case.span = Window::new(interval.from_us, interval.to_us.min(case.span.to_us));
        }
        case.missing = reader.missing().to_vec();
        // A killed run has no summary, but the results of its finished steps are there.
        case.matrix = reader.run.summary.matrix.clone().or_else(|| Matrix::of_steps(&reader.run.steps));
        case.sweep = reader.run.summary.sweep.clone().or_else(|| Sweep::of(&reader.run.steps));
        case.run = reader.run;
        target::as_the_server_has(&mut case.run);
        case.events = reader.events;
        if let Some(interval) = interval {
            case.events.retain(|event| event.kind == QUERY || interval.holds(event.t_us));
        }
        if case.events.len() > EVENTS_MAX {
            let rest = case.events.split_off(EVENTS_MAX).len();
            case.missing.push(format!("events.ndjson: the last {rest} events were not read"));
        }
        for (source, things) in &case.left_out {
            let (kept, rest) = (THINGS_MAX, things.len());
            case.missing.push(format!("{source}: {kept} items were kept, at least {rest} more were dropped"));
        }
        if case.fields_dropped > 0 {
            let (kept, dropped) = (case.fields_kept, case.fields_dropped);
            case.missing.push(format!(
                "samples.ndjson: {kept} fields were kept, and {dropped} values of others dropped"
            ));
        }
        // Stacks are summed up without their times.
        if interval.is_none() {
            let (stacks, problems) = Stacks::read(dir, case.run.started.monotonic_us);
            case.stacks = stacks;
            case.missing.extend(problems);
        }
        Ok(case)
    }

    fn take(&mut self, sample: Sample) {
        let Sample { t_us, interval_us, step, body } = sample;
        self.span.to_us = self.span.to_us.max(t_us);
        let object = |value| match value {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        match body {
            Body::Client(line) => {
                self.keep("client", &step, t_us, interval_us, &object(serde_json::to_value(line)))
            }
            Body::Load(line) => {
                self.keep("load", &step, t_us, interval_us, &object(serde_json::to_value(line)))
            }
            Body::Verify(line) => {
                self.keep("verify", &step, t_us, interval_us, &object(serde_json::to_value(line)))
            }
            Body::Other { source, mut values } => match source.as_str() {
                Wait::SOURCE => {
                    if let Ok(line) = serde_json::from_value::<Wait>(Value::Object(values)) {
                        self.waits.entry(line.node.clone()).or_default().take(t_us, interval_us, &line);
                    }
                }
                Fact::SOURCE => {
                    if let Ok(line) = serde_json::from_value::<Fact>(Value::Object(values)) {
                        self.keep_fact(t_us, line);
                    }
                }
                Missing::SOURCE => {
                    if let Ok(line) = serde_json::from_value::<Missing>(Value::Object(values)) {
                        self.keep_gap(line);
                    }
                }
                _ => {
                    names::only(&mut values);
                    if source == Block::SOURCE {
                        self.keep_waiter(t_us, &values);
                    }
                    self.keep(&source, &step, t_us, interval_us, &values);
                }
            },
        }
    }

    /// Lines of the client have no place; their step is their object.
    fn keep(&mut self, source: &str, step: &str, t_us: u64, interval_us: u64, values: &Map<String, Value>) {
        let text = |field: &str| match values.get(field) {
            Some(Value::String(word)) => word.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let place = match (text("node"), text("host")) {
            (node, host) if source == "backend" || node.is_empty() => host,
            (node, _) => node,
        };
        let thing = match KEYS.iter().find(|(name, _)| *name == source) {
            Some((_, fields)) => fields.iter().map(|field| text(field)).collect::<Vec<_>>().join(" "),
            None if place.is_empty() => step.to_string(),
            None => String::new(),
        };
        let lines = self.lines.entry(source.to_string()).or_default();
        let key = (place, thing.trim().to_string());
        if lines.len() >= THINGS_MAX && !lines.contains_key(&key) {
            let left_out = self.left_out.entry(source.to_string()).or_default();
            // Counting names must cost less than keeping them.
            if left_out.len() < THINGS_MAX {
                left_out.insert(key.1);
            }
            return;
        }
        let lines = lines.entry(key).or_default();
        self.fields_dropped += lines.take(t_us, interval_us, values, &mut self.fields_kept);
    }

    fn keep_fact(&mut self, t_us: u64, mut fact: Fact) {
        names::of_fact(&mut fact);
        let same = |old: &&mut Fact| {
            (&old.node, &old.host, &old.topic, &old.name) == (&fact.node, &fact.host, &fact.topic, &fact.name)
        };
        match self.facts.iter_mut().find(same) {
            Some(old) => {
                let before = std::mem::replace(&mut old.value, fact.value.clone());
                let is_change = fact.topic == "setting" && before != fact.value;
                if is_change && self.setting_changes.len() < SETTING_CHANGES_MAX {
                    let Fact { node, name, value: after, .. } = fact;
                    self.setting_changes.push(SettingChange { t_us, node, name, before, after });
                }
            }
            None => self.facts.push(fact),
        }
    }

    fn keep_gap(&mut self, gap: Missing) {
        self.gaps.retain(|old| (&old.node, &old.host, &old.what) != (&gap.node, &gap.host, &gap.what));
        if !gap.why.is_empty() {
            self.gaps.push(gap);
        }
    }

    /// All things of a source.
    pub fn things<'a>(&'a self, source: &str) -> impl Iterator<Item = Thing<'a>> + use<'a> {
        let lines = self.lines.get(source);
        lines.into_iter().flatten().map(|((place, name), lines)| Thing { place, name, lines })
    }

    /// The objects of one node or host.
    pub fn at<'a>(&'a self, source: &str, place: &'a str) -> impl Iterator<Item = Thing<'a>> + use<'a> {
        self.things(source).filter(move |thing| thing.place == place)
    }

    /// The only object of a source at a place: `server` of a node, `host` of a host.
    pub fn one(&self, source: &str, place: &str) -> Option<&Lines> {
        self.things(source).find(|thing| thing.place == place).map(|thing| thing.lines)
    }

    /// Nodes whose server was monitored.
    pub fn nodes(&self) -> Vec<&str> {
        self.things("server").map(|thing| thing.place).collect()
    }

    /// Whether workers of a node apply rows of other nodes. They write WAL and commit there without any session of a client. PostgreSQL counts their
    /// rows and commits together with those of sessions; workers of other engines may not count them at all.
    pub(crate) fn applies(&self, node: &str) -> bool {
        self.at("subscription", node).any(|subscription| {
            let flag = |field: &str| subscription.lines.flag(field);
            // What an engine keeps for its own use is always disabled.
            flag("own") == Some(true) || flag("enabled") != Some(false)
        })
    }

    /// The account of every node's time, which several rules judge by: computed at the first call.
    pub(crate) fn node_time(&self, compute: impl FnOnce(&Case) -> Vec<NodeTime>) -> &[NodeTime] {
        self.node_time.get_or_init(|| compute(self))
    }

    /// Hosts that were monitored.
    pub fn hosts(&self) -> Vec<&str> {
        self.things("host").map(|thing| thing.place).collect()
    }

    /// The host of a node, and the reverse: by the sampled processes, else by equal names, else the only one.
    pub(crate) fn host_of(&self, node: &str) -> Option<&str> {
        let by_process =
            self.things("backend").find(|thing| thing.lines.word("node") == node).map(|thing| thing.place);
        let hosts = self.hosts();
        let by_name = hosts.iter().find(|host| **host == node).copied();
        by_process.or(by_name).or(if hosts.len() == 1 { Some(hosts[0]) } else { None })
    }

    /// The waits of a node's sessions; `None` if they were not sampled.
    pub fn waits(&self, node: &str) -> Option<&Waits> {
        self.waits.get(node)
    }

    /// Nodes with waits.
    pub(crate) fn waiting_nodes(&self) -> impl Iterator<Item = (&str, &Waits)> {
        self.waits.iter().map(|(node, waits)| (node.as_str(), waits))
    }

    /// Ticks at which a node's sessions were sampled: those without any active session count, too.
    pub fn looks(&self, node: &str, windows: &[Window]) -> f64 {
        let looked = |lines: &Lines| lines.ticks.within(windows).readings();
        self.one("server", node).map_or(0, looked) as f64
    }

    /// Facts of a topic.
    pub fn facts<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a Fact> {
        self.facts.iter().filter(move |fact| fact.topic == topic)
    }

    /// Settings of a node that changed during the recording, in the order of time.
    pub(crate) fn setting_changes<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a SettingChange> {
        self.setting_changes.iter().filter(move |change| change.node == node)
    }

    /// All facts.
    pub(crate) fn all_facts(&self) -> &[Fact] {
        &self.facts
    }

    /// A setting of a node, as the server reports it; of any node if `node` is empty.
    pub fn setting(&self, node: &str, name: &str) -> Option<&str> {
        let recorded = self
            .facts("setting")
            .find(|fact| fact.name == name && (node.is_empty() || fact.node == node))
            .map(|fact| fact.value.as_str());
        recorded.or_else(|| target::setting(&self.run, name))
    }

    /// A setting of a node as it was at a moment.
    pub(crate) fn setting_at(&self, node: &str, name: &str, t_us: u64) -> Option<&str> {
        let later = self
            .setting_changes
            .iter()
            .find(|change| change.node == node && change.name == name && change.t_us > t_us);
        later.map(|change| change.before.as_str()).or_else(|| self.setting(node, name))
    }

    /// Events of a kind.
    pub fn events_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    /// A word of an event's `more`.
    pub(crate) fn word_of<'a>(event: &'a Event, field: &str) -> &'a str {
        event.more.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// The steps that drove transactions, with their measured time; for an interrupted step, its recorded part.
    pub fn driven(&self) -> Vec<(&Step, Window)> {
        let is_driven = |step: &&Step| {
            self.lines
                .get("client")
                .is_some_and(|lines| lines.contains_key(&(String::new(), step.key.clone())))
        };
        self.run
            .steps
            .iter()
            .filter(is_driven)
            .map(|step| {
                let phase = step.phases.iter().find(|phase| phase.name == PHASE_MEASURE);
                let (from_us, to_us) =
                    phase.map_or((step.start_us, step.end_us), |phase| (phase.start_us, phase.end_us));
                let to_us = to_us.unwrap_or(self.span.to_us);
                (step, Window::new(from_us.max(self.span.from_us), to_us.min(self.span.to_us)))
            })
            // Steps outside of the interval that is looked at.
            .filter(|(_, window)| window.length_us() > 0 || self.span.from_us == 0)
            .collect()
    }

    /// The client's lines of a step.
    pub fn client(&self, step: &str) -> Option<&Lines> {
        self.lines.get("client")?.get(&(String::new(), step.to_string()))
    }

    /// The load steps, with their progress.
    pub fn loads(&self) -> Vec<(&str, &Lines)> {
        self.things("load").map(|thing| (thing.name, thing.lines)).collect()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fed;
