//! `load`: fill a table with deterministic rows. Running it again continues.

use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use crate::moved::Moved;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Opening, Outcome, Target};
use crate::stop::Urgency;
use crate::watching::Watching;
use crate::{human, terminal};
use engines::Cluster;
use record::event::Event;
use record::model::Step;
use record::sample::SOURCE_LOAD;
use record::totals::{LoadTotals, LoadedNode};
use record::{Exit, State, StepId, Verdict};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to load, and into what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// What is loaded.
    pub content: Arc<dyn load::Dataset>,
    /// How it is loaded.
    pub options: load::Options,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    pub watching: Watching,
    /// The plan of this load, for the run directory.
    pub planned: Option<Box<record::plan::Plan>>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// Fills the target and writes the run directory.
    ///
    /// # Errors
    /// When the flags contradict what is there, or the target cannot be filled.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (content, options) = (&*self.content, &self.options);
        options.check(content)?;
        let cluster = self.address.cluster_within(context, options.reconnect_limit)?;
        load::check_cluster(&cluster, content, options)?;
        if let Some(words) = cluster.on_one_node() {
            context.terminal.say(&words);
        }
        let opening = self.opening(content.name());
        let mut control = connect::control::connect(&cluster.nodes[0].spec)?;
        if let Some(words) = cluster.before_subscribers(&mut control) {
            context.terminal.warn(&words);
        }
        let alone = [cluster.beside_an_engine(&mut control), cluster.beside_foreign_servers(&mut control)];
        let recording = opening.open(context, Target::node(&cluster, 0), &mut control)?;
        let moved = Moved::begin(&recording, Some(&mut control));
        drop(control);
        if let Some(planned) = &self.planned {
            recording.keep(planned.write(&recording.place()));
        }
        opening.in_one_step(recording, |recording, step| {
            let report = fill(context, recording, step, &cluster, content, options, self.progress).map_err(
                |error| {
                    NoOutcome::from(error)
                        .map(|failure| at_its_place(continued(failure, options.restart), &cluster))
                },
            )?;
            let mut outcome = outcome(&report, state_of(report.outcome), exit_of(report.outcome));
            let mut control = connect::control::connect(&cluster.nodes[0].spec).ok();
            let notes = alone.into_iter().flatten().chain(moved.notes(recording, control.as_mut(), &[]));
            for note in notes {
                recording.keep(recording.dir().edit_step(step, |step| step.verdict.notes.push(note.clone())));
                outcome.messages.push(note);
            }
            if options.restart && report.outcome != load::Outcome::Complete {
                outcome.messages.push(BEGINS_ANEW.to_string());
            }
            Ok(outcome)
        })
    }

    fn opening<'a>(&'a self, name: &'a str) -> Opening<'a> {
        Opening::new("load", name, self.directory.as_deref()).watched(self.watching)
    }
}

/// Of the command that is to be run again.
const BEGINS_ANEW: &str = "run it without --restart, which begins anew";

/// The same failure; if its hint is to run the same command again, with what holds for --restart.
fn continued(failure: Failure, is_restart: bool) -> Failure {
    match failure.hint_text() {
        Some(hint) if is_restart && hint.contains("same command") => {
            let hint = format!("{hint}; {BEGINS_ANEW}");
            failure.hint(hint)
        }
        _ => failure,
    }
}

/// The same failure; statements of its hint are for the node where tables are created, which is not the named one if that is a worker.
fn at_its_place(failure: Failure, cluster: &Cluster) -> Failure {
    const PSQL: &str = "psql -c";
    let node = cluster.coordinator_elsewhere().or(cluster.nodes.first());
    match (failure.hint_text(), node) {
        (Some(hint), Some(node)) if hint.contains(PSQL) => {
            let place = node.spec.describe().replace('\'', "'\\''");
            failure.hint(hint.replace(PSQL, &format!("psql '{place}' -c")))
        }
        _ => failure,
    }
}

/// What a load reports.
fn outcome(report: &load::LoadReport, state: State, exit: Exit) -> Outcome {
    let mut outcome = Outcome::new(state, exit);
    outcome.lines.push(on_disk(report));
    if !report.nodes.is_empty() {
        outcome.lines.push(by_node(report));
    }
    if report.outcome == load::Outcome::AlreadyComplete {
        outcome.messages.push("all rows were already loaded; nothing was done".to_string());
    }
    let is_stopped = report.outcome == load::Outcome::Stopped;
    let advice = if is_stopped { &mut outcome.warnings } else { &mut outcome.messages };
    advice.extend(report.advice());
    outcome
}

/// How the run directory calls an outcome. A segment that is complete is a success.
fn state_of(outcome: load::Outcome) -> State {
    match outcome {
        load::Outcome::Complete | load::Outcome::AlreadyComplete | load::Outcome::SegmentComplete => {
            State::Finished
        }
        load::Outcome::Interrupted | load::Outcome::Stopped => State::Interrupted,
    }
}

/// The exit code of the process: a stop rule leaves a partial result without an interrupt.
fn exit_of(outcome: load::Outcome) -> Exit {
    match outcome {
        load::Outcome::Complete | load::Outcome::AlreadyComplete | load::Outcome::SegmentComplete => Exit::Ok,
        load::Outcome::Stopped => Exit::Errors,
        load::Outcome::Interrupted => Exit::Interrupted,
    }
}

/// Fills a target as one step of a run directory; the step is ended with what the load came to, except after an error.
///
/// # Errors
/// As `load::load`. The step is still open then.
pub fn fill(
    context: &Context,
    recording: &Recording<'_>,
    step: &StepId,
    cluster: &Cluster,
    content: &dyn load::Dataset,
    options: &load::Options,
    progress: Option<Duration>,
) -> Result<load::LoadReport, load::LoadError> {
    recording.keep(recording.dir().edit_step(step, |step| {
        step.parameters.insert("streams".to_string(), options.streams.into());
    }));
    let stop = stop_of(context);
    let mut observer = Watcher {
        context,
        recording,
        step,
        progress: terminal::Progress::new(context.terminal.as_ref(), progress),
    };
    let report = load::load(cluster, content, options, &stop, &mut observer);
    context.terminal.end_progress();
    let report = report?;
    recording.keep(recording.dir().edit_step(step, |step| {
        describe(step, &report);
        if let Some(dataset) = &mut step.dataset {
            add_parameters(dataset, content);
        }
    }));
    recording.keep(recording.dir().end_step(step, state_of(report.outcome)));
    Ok(report)
}

/// What a dataset was made with beyond what every ledger knows.
pub(crate) fn add_parameters(dataset: &mut record::model::Dataset, content: &dyn load::Dataset) {
    for load::dataset::Parameter { what, value, .. } in content.parameters() {
        dataset.parameters.entry(what.replace(' ', "_")).or_insert_with(|| value.into());
    }
}

/// Stops the load on the signals of this process.
pub(crate) fn stop_of(context: &Context) -> Arc<load::Stop> {
    let stop = Arc::new(load::Stop::new());
    let requested = Arc::clone(&stop);
    context.stop.forward(move |urgency| {
        requested.request_level(match urgency {
            Urgency::Drain => load::StopLevel::Drain,
            Urgency::Now => load::StopLevel::Now,
        });
    });
    stop
}

/// What a load came to, as the run directory holds it.
fn describe(step: &mut Step, report: &load::LoadReport) {
    step.dataset = Some(report.dataset.described());
    step.summary.duration_s = report.seconds;
    step.summary.rows = Some(report.rows);
    step.summary.rows_per_s = Some(report.rows_per_s);
    step.summary.bytes_per_s = Some(report.bytes_per_s);
    step.summary.retries = report.retries;
    step.set_totals(&LoadTotals {
        bytes: Some(report.bytes),
        chunks: Some(report.chunks),
        chunks_total: report.chunks_total,
        rows_in_ledger: report.totals.rows,
        client_cpu_us: report.client_cpu_us,
        index_seconds: report.index_seconds,
        analyze_seconds: report.analyze_seconds,
        total_seconds: report.total_seconds,
        wal_bytes: report.wal_bytes,
        wal_by_node: report.wal.iter().filter_map(|node| Some((node.name.clone(), node.bytes?))).collect(),
        table_bytes_on_disk: report.table_bytes_on_disk,
        index_bytes_on_disk: report.index_bytes_on_disk,
        bytes_per_row_on_disk: report.bytes_per_row_on_disk(),
        nodes: report.nodes.iter().map(of_node).collect(),
    });
    step.verdict = Verdict::valid();
    step.verdict.notes.extend(report.reason.clone());
    if report.outcome == load::Outcome::AlreadyComplete {
        step.verdict.notes.push("all rows were already loaded; nothing was done".to_string());
    }
}

/// What a load did on one node, as the run directory holds it.
fn of_node(node: &load::NodeReport) -> LoadedNode {
    LoadedNode {
        name: node.name.clone(),
        rows: node.rows,
        rows_in_ledger: node.totals.rows,
        chunks_in_ledger: node.totals.chunks,
    }
}

/// What went to each node.
fn by_node(report: &load::LoadReport) -> String {
    let rate = |rows: u64| if report.seconds > 0.0 { rows as f64 / report.seconds } else { 0.0 };
    let node = |node: &load::NodeReport| {
        format!("{} {} rows {} rows/s", node.name, human::count(node.rows), human::short(rate(node.rows)))
    };
    format!("nodes    {}", report.nodes.iter().map(node).collect::<Vec<String>>().join("   "))
}

/// What the rows cost on disk, and what followed the copying.
fn on_disk(report: &load::LoadReport) -> String {
    let mut parts = vec![format!(
        "on disk  {} table, {} index",
        human::bytes(report.table_bytes_on_disk as f64),
        human::bytes(report.index_bytes_on_disk as f64)
    )];
    parts.extend(report.bytes_per_row_on_disk().map(|bytes| format!("{bytes:.0} bytes a row")));
    parts.extend(wal(report));
    parts.push(format!("keys {}", human::seconds(report.index_seconds)));
    parts.push(format!("statistics {}", human::seconds(report.analyze_seconds)));
    parts.join("   ")
}

/// The WAL of all nodes that hold rows; if one of them did not answer, that of the others.
fn wal(report: &load::LoadReport) -> Option<String> {
    if let Some(bytes) = report.wal_bytes {
        let nodes = report.wal.len();
        let of = if nodes > 0 { format!(" on {nodes} nodes") } else { String::new() };
        return Some(format!("{} of WAL{of}", human::bytes(bytes as f64)));
    }
    let known: u64 = report.wal.iter().filter_map(|node| node.bytes).sum();
    let unknown: Vec<&str> =
        report.wal.iter().filter(|node| node.bytes.is_none()).map(|node| node.name.as_str()).collect();
    (!unknown.is_empty())
        .then(|| format!("{} of WAL without {}", human::bytes(known as f64), unknown.join(", ")))
}

/// Observes a load: samples and events to the run directory, progress to the terminal.
struct Watcher<'a> {
    context: &'a Context,
    recording: &'a Recording<'a>,
    step: &'a StepId,
    progress: terminal::Progress<'a>,
}

impl load::Observer for Watcher<'_> {
    fn progress(&mut self, progress: &load::Progress, sample: &record::ProgressSample, interval: Duration) {
        let dir = self.recording.dir();
        let interval_us = interval.as_micros() as u64;
        self.recording.keep(dir.progress_sample(self.step, SOURCE_LOAD, dir.now_us(), interval_us, sample));
        self.progress.show(
            |width| load::progress::text::line(progress, width),
            || load::progress::text::plain(progress),
        );
    }

    fn event(&mut self, event: &load::LoadEvent) {
        let dir = self.recording.dir();
        if event.kind == record::event::PHASE {
            self.recording.keep(dir.begin_phase(self.step, &event.message).map(|_| ()));
            self.context.terminal.detail(&format!("load: {}", event.message));
            return;
        }
        self.recording.keep(dir.event(&Event {
            t_us: dir.now_us(),
            kind: event.kind.to_string(),
            step: self.step.key().to_string(),
            message: event.message.clone(),
            duration_us: event.duration.map(|duration| duration.as_micros() as u64),
            ..Event::default()
        }));
        self.context.terminal.say(&event.message);
    }
}
