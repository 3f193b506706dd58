//! `watch`: sample a live system without driving it.

use crate::cli::{Connection, Format, RunDirectory};
use crate::context::Context;
use crate::failure::Failure;
use crate::fingerprint;
use crate::human;
use crate::machines::{Evidence, Machines};
use crate::quantity;
use crate::recording::Recording;
use crate::terminal;
use clap::Args;
use record::sample::Sample;
use record::watched::{Cost, Sampled};
use record::{Exit, RunReader, State};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use target::control::{self, Control};
use target::{Cluster, ConnSpec};
use watch::{Board, Options, Sampler, lineup, live};

/// How often the end is looked for.
const BEAT: Duration = Duration::from_millis(50);
/// Lines about what is missing that are printed; the run directory has them all.
const MISSING_PRINTED_MAX: usize = 12;

/// The flags of `watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom watch -T 60 DBNAME           a minute of a live system, into runs/TIME-watch
  pgfathom watch --cluster cluster.toml every node of a cluster, until Ctrl-C
  pgfathom watch --cluster cluster.toml --ssh db1=n1 --ssh db2=n2,n3
  pgfathom watch -T 60 --bundle --redact hosts,sql DBNAME   one archive for somebody else to explain
A role in pg_monitor is enough for everything in the server. What cannot be seen is said, with what it costs.")]
pub struct Watch {
    /// Which database.
    #[command(flatten)]
    pub connection: Connection,
    /// How long: seconds, or as 10m, 1h30m [default: until Ctrl-C]
    #[arg(short = 'T', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Watch")]
    pub time: Option<Duration>,
    /// Time between two looks: seconds, or as 500ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = quantity::duration, help_heading = "Watch")]
    pub interval: Duration,
    /// Only the servers (and machines named by --ssh), not this machine
    #[arg(long, help_heading = "Machines")]
    pub no_host: bool,
    /// Which machines.
    #[command(flatten)]
    pub machines: Machines,
    /// What leaves the house.
    #[command(flatten)]
    pub evidence: Evidence,
    /// A line every so many seconds [default: a line that is redrawn; every 5 where stderr is no terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Watch {
    /// Watches until the time is over or the user has seen enough.
    ///
    /// # Errors
    /// When no connection is possible at the start: later it is part of what is seen.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.evidence.check()?;
        self.machines.check()?;
        let survey = self.connection.survey(context)?;
        let cluster = &survey.cluster;
        self.machines.check_nodes(&cluster.nodes)?;
        let (mut control, spec) = first_that_answers(cluster)?;
        let recording = Recording::begin(context, &self.directory, "watch", "")?;
        let mut fingerprint = fingerprint::take(&mut control, spec);
        fingerprint.engine = cluster.engine.name().to_string();
        drop(control);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let step = recording.dir().begin_step("watch", "")?;
        recording.keep(recording.dir().edit_step(&step, |step| {
            let parameters = json!({
                "interval_s": self.interval.as_secs_f64(),
                "time_s": self.time.map(|time| time.as_secs_f64()),
                "nodes": cluster.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
                "host": !self.no_host,
            });
            step.parameters = parameters.as_object().cloned().unwrap_or_default();
        }));
        let begun = Instant::now();
        let board = Arc::new(Board::new());
        let mut collectors = lineup::of_survey(&survey, &board);
        collectors.extend(self.machines.collectors(
            !self.no_host,
            &cluster.nodes,
            &board,
            recording.path(),
        )?);
        let options = Options { interval: self.interval, ..Options::default() };
        let sampler = Sampler::start(recording.shared_dir(), options, collectors)
            .map_err(|error| Failure::caused("cannot start a thread", error))?;
        recording.carry(sampler);
        let (is_interrupted, has_answered) = self.wait(context, &board, begun);
        recording.end_watch();
        let has_answered = has_answered || answers(&board);
        let duration_s = begun.elapsed().as_secs_f64();
        let seen = Seen::read(recording.path())?;
        recording.dir().edit_step(&step, |step| {
            step.summary.duration_s = duration_s;
            step.summary.transactions = Some(seen.transactions);
            step.summary.tps = Some(seen.transactions as f64 / duration_s.max(f64::MIN_POSITIVE));
            step.verdict.valid = has_answered;
            if !has_answered {
                step.verdict.invalidate(seen.unseen());
            }
        })?;
        // Ctrl-C is how a watch without -T ends: that is no interruption.
        let (state, exit) = match is_interrupted && self.time.is_some() {
            true => (State::Interrupted, Exit::Interrupted),
            false if !has_answered => (State::Failed, Exit::Errors),
            false => (State::Finished, Exit::Ok),
        };
        recording.dir().end_step(&step, state)?;
        if context.format == Format::Text {
            context.terminal.data(&seen.text(duration_s));
        }
        self.evidence.dump(context, recording.path());
        self.evidence.pack(context, &recording, state)?;
        if !has_answered {
            let failure = Failure::usage(seen.unseen())
                .hint("watch the server itself, on its own host and port, as a role in pg_monitor");
            context.lose_results(&failure);
        }
        recording.finish(state)?;
        Ok(exit)
    }

    /// Shows what goes on until the end: whether the user ended it, and whether a server has answered meanwhile.
    fn wait(&self, context: &Context, board: &Board, begun: Instant) -> (bool, bool) {
        let stop = Arc::new(AtomicBool::new(false));
        context.stop.forward({
            let stop = Arc::clone(&stop);
            move |_| stop.store(true, Ordering::Relaxed)
        });
        let mut progress = terminal::Progress::new(&context.terminal, self.progress);
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
            progress.tell(|columns| text().chars().take(columns).collect(), text);
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
fn first_that_answers(cluster: &Cluster) -> Result<(Control, &ConnSpec), Failure> {
    let mut first = None;
    for node in &cluster.nodes {
        match control::connect_shared(&node.spec) {
            Ok(control) => return Ok((control, &node.spec)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.expect("a cluster has a node").into())
}

/// What the run directory holds in the end: nothing is told that is not in it.
#[derive(Debug, Default)]
struct Seen {
    lines: u64,
    events: BTreeMap<String, u64>,
    transactions: u64,
    by_node: BTreeMap<String, u64>,
    /// (where, what) to (why, lost), the last word of each.
    missing: BTreeMap<(String, String), (String, String)>,
    /// What looking took.
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
        format!("no server was seen: {}", why.unwrap_or("none answered in time"))
    }

    fn text(&self, duration_s: f64) -> String {
        let mut text = format!("watched {}: {} lines", human::seconds(duration_s), human::count(self.lines));
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
            text.push_str(&format!("\nnot seen at {place}: {what} ({why}); cannot be said: {lost}"));
        }
        text
    }
}
