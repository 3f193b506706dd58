//! `load`: fill a table with deterministic rows. Running it again continues.

use crate::cli::{Connection, Format, RunDirectory};
use crate::context::Context;
use crate::failure::{self, Failure};
use crate::recording::Recording;
use crate::stop::Urgency;
use crate::watching::Watching;
use crate::{fingerprint, human, quantity, terminal};
use clap::{ArgGroup, Args, ValueEnum};
use record::event::Event;
use record::model::Step;
use record::sample::SOURCE_LOAD;
use record::{Exit, State, StepId, Verdict};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use target::Cluster;

pub mod tpcc;

/// The flags of `load`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("amount").args(["rows", "size", "scale"]),
    after_help = "\
Examples:
  pgfathom load ycsb --rows 1M DBNAME
  pgfathom load tpcc -s 10 DBNAME
  pgfathom load ycsb --size 1TB --partitions 70 -j 8 postgresql://db1/bench
  pgfathom load ycsb --size 900TB --keep-free 500GB -j 70 --cluster cluster.toml
The same command again continues where an interrupted load stopped."
)]
pub struct Load {
    /// What to fill: ycsb, the table usertable(ycsb_key, field0..field9) of about 1,100 bytes a row; tpcc, the nine tables of TPC-C
    #[arg(value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub what: What,
    /// Which database.
    #[command(flatten)]
    pub connection: Connection,
    /// Number of rows, as 1000000, 1M, 1e9
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Data")]
    pub rows: Option<u64>,
    /// Size of the values to load, as 10GB, 1TB; indexes and page overhead come on top
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Data")]
    pub size: Option<u64>,
    /// Number of TPC-C warehouses, about 100 MB each
    #[arg(
        short = 's',
        long,
        value_name = "W",
        value_parser = quantity::positive_count,
        conflicts_with_all = ["key_order", "compressible"],
        help_heading = "Data"
    )]
    pub scale: Option<u64>,
    /// TPC-C: add the foreign keys, too
    #[arg(long, help_heading = "Data")]
    pub foreign_keys: bool,
    /// TPC-C: fill factor in percent of the tables that transactions update [default: the server's, 100]
    #[arg(long, value_name = "PERCENT", value_parser = quantity::positive_count, help_heading = "Data")]
    pub fillfactor: Option<u64>,
    /// Hash partitions of the table; 0 is a plain table. TPC-C on a sharded cluster: ranges of warehouses [default: 0, what the
    /// cluster was made for, or as an earlier load made it]
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Data")]
    pub partitions: Option<u64>,
    /// scattered: keys are a random-looking bijection of the row number; sequential: they ascend with it
    #[arg(
        long,
        value_name = "ORDER",
        value_enum,
        default_value = "scattered",
        hide_possible_values = true,
        help_heading = "Data"
    )]
    pub key_order: KeyOrder,
    /// How far LZ4 can compress the values: 1 is not at all, up to 6
    #[arg(long, value_name = "RATIO", default_value = "1", value_parser = compressible, help_heading = "Data")]
    pub compressible: data::ycsb::Compressible,
    /// Seed of keys and values: the same seed and size give the same table, byte for byte
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = quantity::count, help_heading = "Data")]
    pub seed: u64,
    /// Number of COPY streams [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub jobs: Option<u64>,
    /// copy: logged, resumes by chunk; freeze: each leaf table is filled and frozen in one transaction (no WAL where
    /// wal_level=minimal, no freeze later), resumes by leaf [default: copy, or as an earlier load began]
    #[arg(long, value_name = "METHOD", value_enum, hide_possible_values = true, help_heading = "Load")]
    pub method: Option<Method>,
    /// Rows of a chunk, the unit of resuming [default: about 96 MiB of them]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub chunk_rows: Option<u64>,
    /// Tablespace of the table and its index [default: the server's]
    #[arg(long, value_name = "NAME", help_heading = "Load")]
    pub tablespace: Option<String>,
    /// Tablespaces to deal the leaf tables out to, each with its index, on every node: A,B,C
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "tablespace",
        help_heading = "Load"
    )]
    pub tablespaces: Vec<String>,
    /// Unlogged tables: no WAL, and empty after a crash of the server
    #[arg(long, help_heading = "Load")]
    pub unlogged: bool,
    /// Load only the i-th of N shares of the chunks: for several machines that load at once
    #[arg(long, value_name = "i/N", value_parser = segment, help_heading = "Load")]
    pub segment: Option<load::Segment>,
    /// owner: each row straight to the node of its leaf table; connect: all rows into the first node, which sends them on, as a
    /// control [default: owner, or as an earlier load began]
    #[arg(long, value_name = "WAY", value_enum, hide_possible_values = true, help_heading = "Load")]
    pub via: Option<Via>,
    /// End when less than this is free on a disk that holds the data, on any node, as 500GB
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Stop")]
    pub keep_free: Option<u64>,
    /// End after this time (36h, 2d) or at this one, as the server reads it ('2026-01-03 18:00')
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Stop")]
    pub deadline: Option<load::Deadline>,
    /// Drop what an earlier load of pgfathom left, and start over
    #[arg(long, help_heading = "Load")]
    pub restart: bool,
    /// Drop the table of that name although pgfathom did not make it: its content is lost; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Load")]
    pub force: Vec<String>,
    /// Progress every so many seconds [default: a line that is redrawn; every 5 where stderr is no terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// What is sampled meanwhile.
    #[command(flatten)]
    pub watching: Watching,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// What can be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum What {
    /// The YCSB table
    Ycsb,
    /// The tables of TPC-C
    Tpcc,
}

/// The order in which keys follow row numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum KeyOrder {
    /// A bijection scatters the keys
    Scattered,
    /// Keys ascend with the row number
    Sequential,
}

/// How rows get in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Method {
    /// Binary COPY, logged
    Copy,
    /// Create, fill and freeze a leaf table in one transaction
    Freeze,
}

/// Which way rows take to the nodes of a sharded cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Via {
    /// Straight to the node of their leaf table
    Owner,
    /// Through the first node
    Connect,
}

impl Load {
    /// Fills the target and writes the run directory.
    ///
    /// # Errors
    /// When the flags contradict what is there, or the target cannot be filled.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if self.what == What::Tpcc {
            return self.run_tpcc(context);
        }
        let options = self.options()?;
        options.check()?;
        let cluster = self.connection.resolve_cluster_of(context)?;
        let mut control = target::control::connect(&cluster.nodes[0].spec)?;
        let recording = Recording::begin(context, &self.directory, "load", "ycsb")?;
        self.watching.begin(&recording, &cluster.nodes);
        let mut fingerprint = fingerprint::take(&mut control, &cluster.nodes[0].spec);
        fingerprint.engine = cluster.engine.name().to_string();
        drop(control);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let step = recording.dir().begin_step("load", "ycsb")?;
        let report = match fill(context, &recording, &step, &cluster, &options, self.progress) {
            Ok(report) => report,
            Err(error) if failure::Explained::exit(&error) == Exit::Usage => {
                recording.discard();
                return Err(error.into());
            }
            Err(error) => {
                recording.fail(&step, &error);
                return Err(error.into());
            }
        };
        if context.format == Format::Text {
            context.terminal.data(&recording.step_line(&step)?);
            context.terminal.data(&on_disk(&report));
            if !report.nodes.is_empty() {
                context.terminal.data(&by_node(&report));
            }
        }
        let state = state_of(report.outcome);
        if report.outcome == load::Outcome::AlreadyComplete {
            context.terminal.say("every row was there already; nothing was done");
        }
        if let Some(advice) = report.advice() {
            context.terminal.say(&advice);
        }
        recording.finish(state)?;
        Ok(exit_of(report.outcome))
    }

    fn options(&self) -> Result<load::Options, Failure> {
        let of_tpcc = [
            (self.scale.is_some(), "-s/--scale"),
            (self.foreign_keys, "--foreign-keys"),
            (self.fillfactor.is_some(), "--fillfactor"),
        ];
        if let Some((_, flag)) = of_tpcc.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!("{flag} is for load tpcc"))
                .hint("load ycsb is sized by --rows or --size: pgfathom load ycsb --rows 1M DBNAME"));
        }
        let rows = match (self.rows, self.size) {
            (Some(rows), _) => rows,
            (None, Some(bytes)) => load::plan::rows_for_bytes(bytes),
            (None, None) => {
                return Err(Failure::usage("load: --rows or --size is missing")
                    .hint("pgfathom load ycsb --rows 1M DBNAME"));
            }
        };
        let spec = data::ycsb::Spec {
            seed: self.seed,
            key_order: match self.key_order {
                KeyOrder::Scattered => data::ycsb::KeyOrder::Scattered,
                KeyOrder::Sequential => data::ycsb::KeyOrder::Sequential,
            },
            compressible: self.compressible,
        };
        let too_large = |flag: &str| {
            Failure::usage(format!("{flag}: the number is too large")).hint("give a smaller number")
        };
        let partitions =
            self.partitions.map(u32::try_from).transpose().map_err(|_| too_large("--partitions"))?;
        let streams = match self.jobs {
            Some(jobs) => usize::try_from(jobs).map_err(|_| too_large("-j/--jobs"))?,
            None => cpus(),
        };
        Ok(load::Options {
            partitions,
            streams,
            method: self.method.map(|method| match method {
                Method::Copy => load::Method::Copy,
                Method::Freeze => load::Method::Freeze,
            }),
            restart: self.restart,
            force: self.force.clone(),
            tablespaces: self.tablespace.iter().chain(&self.tablespaces).cloned().collect(),
            chunk_rows: self.chunk_rows,
            via: self.via.map(|via| match via {
                Via::Owner => load::Via::Owner,
                Via::Connect => load::Via::Connect,
            }),
            segment: self.segment.unwrap_or(load::Segment::ALL),
            unlogged: self.unlogged,
            keep_free_bytes: self.keep_free,
            deadline: self.deadline.clone(),
            ..load::Options::new(rows, spec)
        })
    }
}

/// How the run directory calls an outcome. A segment that is complete did what it was asked for.
fn state_of(outcome: load::Outcome) -> State {
    match outcome {
        load::Outcome::Complete | load::Outcome::AlreadyComplete | load::Outcome::SegmentComplete => {
            State::Finished
        }
        load::Outcome::Interrupted | load::Outcome::Stopped => State::Interrupted,
    }
}

/// What the process says of it: a stop rule leaves a partial result, and nobody has interrupted anything.
fn exit_of(outcome: load::Outcome) -> Exit {
    match outcome {
        load::Outcome::Complete | load::Outcome::AlreadyComplete | load::Outcome::SegmentComplete => Exit::Ok,
        load::Outcome::Stopped => Exit::Errors,
        load::Outcome::Interrupted => Exit::Interrupted,
    }
}

/// CPUs that this process may use: as many streams as have a chance to run at once.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Fills a target as one step of a run directory; the step is ended with what the load came to, except after an error.
///
/// # Errors
/// As `load::load_ycsb_on`. The step is still open then.
pub fn fill(
    context: &Context,
    recording: &Recording<'_>,
    step: &StepId,
    cluster: &Cluster,
    options: &load::Options,
    progress: Option<Duration>,
) -> Result<load::LoadReport, load::LoadError> {
    recording.keep(recording.dir().edit_step(step, |step| {
        step.parameters.insert("streams".to_string(), options.streams.into());
    }));
    let stop = stop_of(context);
    let mut observer =
        Watcher { context, recording, step, progress: terminal::Progress::new(&context.terminal, progress) };
    let report = load::load_ycsb_on(cluster, options, &stop, &mut observer);
    context.terminal.end_progress();
    let report = report?;
    recording.keep(recording.dir().edit_step(step, |step| describe(step, &report)));
    recording.keep(recording.dir().end_step(step, state_of(report.outcome)));
    Ok(report)
}

/// A dataset of the ledger as the run directory names it, the same for every verb that works on it.
pub fn dataset(dataset: &load::ledger::Dataset) -> record::model::Dataset {
    record::model::Dataset {
        name: dataset.name.clone(),
        format_version: dataset.format,
        seed: dataset.spec.seed,
        rows: dataset.rows,
        parameters: fields(json!({
            "schema": dataset.schema_name,
            "partitions": dataset.partitions,
            "key_order": dataset.spec.key_order.as_str(),
            "compressible": f64::from(dataset.spec.compressible.percent()) / 100.0,
            "method": dataset.method.as_str(),
            "chunk_rows": dataset.chunk_rows,
        })),
    }
}

/// The crate's way of stopping, told by the signals of this process.
pub fn stop_of(context: &Context) -> Arc<load::Stop> {
    let stop = Arc::new(load::Stop::new());
    let told = Arc::clone(&stop);
    context.stop.forward(move |urgency| {
        told.request_level(match urgency {
            Urgency::Drain => load::StopLevel::Drain,
            Urgency::Now => load::StopLevel::Now,
        });
    });
    stop
}

/// What a load came to, as the run directory holds it.
fn describe(step: &mut Step, report: &load::LoadReport) {
    step.dataset = Some(dataset(&report.dataset));
    step.summary.duration_s = report.seconds;
    step.summary.rows = Some(report.rows);
    step.summary.rows_per_s = Some(report.rows_per_s);
    step.summary.bytes_per_s = Some(report.bytes_per_s);
    step.summary.retries = report.retries;
    step.totals = fields(json!({
        "bytes": report.bytes,
        "chunks": report.chunks,
        "chunks_total": report.chunks_total,
        "rows_in_ledger": report.totals.rows,
        "client_cpu_us": report.client_cpu_us,
        "index_seconds": report.index_seconds,
        "analyze_seconds": report.analyze_seconds,
        "total_seconds": report.total_seconds,
        "wal_bytes": report.wal_bytes,
        "table_bytes_on_disk": report.table_bytes_on_disk,
        "index_bytes_on_disk": report.index_bytes_on_disk,
        "bytes_per_row_on_disk": report.bytes_per_row_on_disk(),
        "nodes": (!report.nodes.is_empty()).then(|| report.nodes.iter().map(of_node).collect::<Vec<Value>>()),
    }));
    step.verdict = Verdict::valid();
    step.verdict.notes.extend(report.reason.clone());
    if report.outcome == load::Outcome::AlreadyComplete {
        step.verdict.notes.push("every row was there already; nothing was done".to_string());
    }
}

/// The fields of a JSON object; a null says nothing and is left out.
pub fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// What a load did on one node, as the run directory holds it.
fn of_node(node: &load::NodeReport) -> Value {
    json!({
        "name": node.name,
        "rows": node.rows,
        "rows_in_ledger": node.totals.rows,
        "chunks_in_ledger": node.totals.chunks,
    })
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
        human::bytes(report.table_bytes_on_disk),
        human::bytes(report.index_bytes_on_disk)
    )];
    parts.extend(report.bytes_per_row_on_disk().map(|bytes| format!("{bytes:.0} bytes a row")));
    parts.extend(report.wal_bytes.map(|bytes| format!("{} of WAL", human::bytes(bytes))));
    parts.push(format!("keys {}", human::seconds(report.index_seconds)));
    parts.push(format!("statistics {}", human::seconds(report.analyze_seconds)));
    parts.join("   ")
}

/// Hears of a load: samples and events to the run directory, progress to the terminal.
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
        self.progress.tell(
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

fn segment(text: &str) -> Result<load::Segment, quantity::ValueError> {
    text.parse().map_err(|error: load::options::SegmentError| {
        let hint = "give each of N loaders its own, 1/N to N/N, all with the same other flags";
        quantity::ValueError::new(error.to_string(), hint)
    })
}

/// A duration, or whatever the server may read as a time.
fn deadline(text: &str) -> Result<load::Deadline, quantity::ValueError> {
    let duration = quantity::duration(text);
    Ok(duration.map_or_else(|_| load::Deadline::At(text.to_string()), load::Deadline::After))
}

fn compressible(text: &str) -> Result<data::ycsb::Compressible, quantity::ValueError> {
    text.parse().map_err(|error: data::ycsb::CompressibleError| {
        quantity::ValueError::new(error.to_string(), error.hint().unwrap_or_default())
    })
}
