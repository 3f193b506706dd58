//! `watch`: sample a live system without driving it.

use crate::connection::Address;
use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::human;
use crate::machines::{Evidence, Machines};
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Opening, Outcome, Target};
use crate::terminal;
pub use ::watch::Planning;
use ::watch::{Board, Options, Sampler, collectors, live};
use connect::control::{self, Control};
use connect::{ConnSpec, ConnectError};
use engines::{Cluster, Survey};
use record::sample::Sample;
use record::watched::{Cost, Sampled};
use record::{Exit, RunReader, State, StepId};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval at which the end is checked.
const BEAT: Duration = Duration::from_millis(50);
/// Lines about what is missing that are printed; the run directory has them all.
const MISSING_PRINTED_MAX: usize = 12;

/// How to watch.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// How long; `None` until a stop is requested.
    pub time: Option<Duration>,
    /// Time between two samples.
    pub interval: Duration,
    /// Whether this host is watched, too.
    pub is_here: bool,
    /// Which other hosts.
    pub machines: Machines,
    /// How statements are planned.
    pub planning: Planning,
    /// The consoles of poolers before the server that are named.
    pub poolers: Vec<ConnSpec>,
    /// What is exported.
    pub evidence: Evidence,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// A plan for this target that ends when a stop is requested.
    pub fn new(address: Address) -> Plan {
        Plan {
            address,
            time: None,
            interval: Duration::from_secs(1),
            is_here: true,
            machines: Machines::default(),
            planning: Planning::default(),
            poolers: vec![],
            evidence: Evidence::default(),
            progress: None,
            directory: None,
        }
    }

    /// Monitors until the time is over or the user stops it.
    ///
    /// # Errors
    /// When no connection is possible at the start: later it is part of what is seen, as it is where a server of this host is there and takes no session.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.evidence.check()?;
        self.machines.check()?;
        let (survey, trouble) = self.address.survey_or_alone(context)?;
        let cluster = &survey.cluster;
        self.machines.check_nodes(&cluster.nodes)?;
        let opening = Opening::new("watch", "", self.directory.as_deref());
        let first = trouble.map_or_else(|| first_that_answers(cluster), Err);
        let recording = match first {
            Ok((mut control, spec)) => {
                opening.open(context, Target { spec, cluster: Some(cluster) }, &mut control)?
            }
            // What the host shows of a server in trouble is worth more than an error.
            Err(error) if self.is_here && error.is_in_trouble() => {
                context.terminal.warn(&format!(
                    "{error}; watch records what this host shows, and the server from its first answer on"
                ));
                opening.begin(context)?
            }
            Err(error) => return Err(error.into()),
        };
        opening.in_one_step(recording, |recording, step| self.watch(recording, step, &survey))
    }

    fn watch(&self, recording: &Recording<'_>, step: &StepId, survey: &Survey) -> Result<Outcome, NoOutcome> {
        let (context, nodes) = (recording.context(), &survey.cluster.nodes);
        recording.keep(recording.dir().edit_step(step, |step| {
            let parameters = json!({
                "interval_s": self.interval.as_secs_f64(),
                "time_s": self.time.map(|time| time.as_secs_f64()),
                "nodes": nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
                "host": self.is_here,
            });
            step.parameters = parameters.as_object().cloned().unwrap_or_default();
        }));
        let begun = Instant::now();
        let board = Arc::new(Board::new());
        let mut collectors = collectors::of_survey(survey, &board, self.planning);
        collectors.extend(collectors::of_poolers(nodes, &self.poolers, &board));
        collectors.extend(self.machines.collectors(self.is_here, nodes, &board, &recording.place())?);
        let options = Options { interval: self.interval, ..Options::default() };
        let sampler = Sampler::start(recording.shared_dir(), options, collectors)
            .map_err(|error| Failure::caused("cannot start a thread", error))?;
        recording.carry(sampler);
        let (is_interrupted, has_answered) = self.wait(context, &board, begun);
        // What is written after the last sample takes time, but nothing is recorded in it.
        let duration_s = begun.elapsed().as_secs_f64();
        recording.end_watch();
        let has_answered = has_answered || answers(&board);
        let seen = Seen::read(&recording.place())?;
        recording.keep(recording.dir().edit_step(step, |step| {
            step.summary.duration_s = duration_s;
            step.summary.transactions = Some(seen.transactions);
            step.summary.tps = Some(seen.transactions as f64 / duration_s.max(f64::MIN_POSITIVE));
            step.verdict.valid = has_answered;
            if !has_answered {
                step.verdict.invalidate(seen.unseen());
            }
        }));
        // Ctrl-C is how a watch without -T ends: that is no interruption.
        let (state, exit) = match is_interrupted && self.time.is_some() {
            true => (State::Interrupted, Exit::Interrupted),
            false if !has_answered => (State::Failed, Exit::Errors),
            false => (State::Finished, Exit::Ok),
        };
        recording.keep(recording.dir().end_step(step, state));
        if context.format == Format::Text {
            context.terminal.data(&seen.text(duration_s));
        }
        self.evidence.dump(context, recording.path());
        self.evidence.pack(context, recording, state)?;
        if !has_answered {
            let failure = Failure::usage(seen.unseen())
                .hint("connect to the server itself, not to a pooler, with a role in pg_monitor");
            context.lose_results(&failure);
        }
        Ok(Outcome::plain(state, exit))
    }

    /// Shows what goes on until the end: whether the user ended it, and whether a server has answered by then.
    fn wait(&self, context: &Context, board: &Board, begun: Instant) -> (bool, bool) {
        let stop = context.stop.flag();
        let mut progress = terminal::Progress::new(context.terminal.as_ref(), self.progress);
        let mut has_answered = false;
        loop {
            has_answered |= answers(board);
            if stop.load(Ordering::Relaxed) {
                context.terminal.end_progress();
                return (true, has_answered);
            }
            if self.time.is_some_and(|time| begun.elapsed() >= time) {
                context.terminal.end_progress();
                return (false, has_answered);
            }
            let text = || {
                let nodes = board.nodes();
                let is_one = nodes.len() == 1;
                let lines = nodes.iter().map(|(name, state)| match is_one {
                    true => live::line(state),
                    false => format!("{name}: {}", live::line(state)),
                });
                let separator = if is_one { "" } else { "  |  " };
                format!(
                    "{:.0} s  {}",
                    begun.elapsed().as_secs_f64(),
                    lines.collect::<Vec<_>>().join(separator)
                )
            };
            progress.show(|columns| text().chars().take(columns).collect(), text);
            std::thread::sleep(BEAT);
        }
    }
}

/// Whether a server answers at this moment.
fn answers(board: &Board) -> bool {
    board.nodes().iter().any(|(_, state)| state.is_up)
}

/// A connection to the first node that answers: a cluster is watched most when its first node is down.
///
/// # Errors
/// Those of the first node when none answers.
fn first_that_answers(cluster: &Cluster) -> Result<(Control, &ConnSpec), ConnectError> {
    let mut first = None;
    for node in &cluster.nodes {
        match control::connect_shared(&node.spec) {
            Ok(control) => return Ok((control, &node.spec)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.expect("a cluster has a node"))
}

/// The content of the run directory at the end: nothing is printed that is not in it.
#[derive(Debug, Default)]
struct Seen {
    lines: u64,
    events: BTreeMap<String, u64>,
    transactions: u64,
    by_node: BTreeMap<String, u64>,
    /// (where, what) to (why, lost), the latest of each.
    missing: BTreeMap<(String, String), (String, String)>,
    /// Cost of the monitoring.
    cost: Cost,
}

impl Seen {
    fn read(path: &Path) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let reader = RunReader::stream(path, |sample| seen.take(&sample))?;
        for event in &reader.events {
            *seen.events.entry(event.kind.clone()).or_default() += 1;
        }
        Ok(seen)
    }

    fn take(&mut self, sample: &Sample) {
        if let Some(line) = Sampled::parse(sample) {
            self.lines += 1;
            match line {
                Sampled::Server(server) => {
                    let ended = server.xact_commit.unwrap_or(0) + server.xact_rollback.unwrap_or(0);
                    *self.by_node.entry(server.node).or_default() += ended;
                    self.transactions += ended;
                }
                Sampled::Watching(line) => self.cost.add(sample.interval_us, &line),
                Sampled::Missing(missing) => {
                    let place = if missing.node.is_empty() { missing.host } else { missing.node };
                    let key = (place, missing.what);
                    if missing.why.is_empty() {
                        self.missing.remove(&key);
                    } else {
                        self.missing.insert(key, (missing.why, missing.lost));
                    }
                }
                _ => {}
            }
        }
    }

    /// That no server was seen, and why.
    fn unseen(&self) -> String {
        let why =
            self.missing.iter().find(|((_, what), _)| what == "server").map(|(_, (why, _))| why.as_str());
        format!("no server could be sampled: {}", why.unwrap_or("none replied in time"))
    }

    fn text(&self, duration_s: f64) -> String {
        let mut text = format!("recorded {}: {} lines", human::seconds(duration_s), human::count(self.lines));
        for (kind, count) in &self.events {
            if !["phase", "query"].contains(&kind.as_str()) {
                text.push_str(&format!(", {kind} {count}"));
            }
        }
        for (node, transactions) in &self.by_node {
            let tps = *transactions as f64 / duration_s.max(f64::MIN_POSITIVE);
            text.push_str(&format!(
                "\n{node}: {} transactions, {tps:.0} per second",
                human::count(*transactions)
            ));
        }
        if let Some(words) = self.cost.words() {
            text.push_str(&format!("\n{words}"));
        }
        for (index, ((place, what), (why, lost))) in self.missing.iter().enumerate() {
            if index == MISSING_PRINTED_MAX {
                text.push_str(&format!("\nand {} more in the run directory", self.missing.len() - index));
                break;
            }
            text.push_str(&format!(
                "\nnot monitored at {place}: {what} ({why}); unknown because of it: {lost}"
            ));
        }
        text
    }
}
