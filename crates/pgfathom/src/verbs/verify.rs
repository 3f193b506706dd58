//! `verify`: prove that a loaded table holds exactly its rows.

use crate::cli::{Connection, Format, RunDirectory};
use crate::context::Context;
use crate::failure::{Explained, Failure};
use crate::recording::Recording;
use crate::verbs::load::{cpus, fields, stop_of};
use crate::{fingerprint, history, human, quantity, terminal};
use clap::Args;
use load::verify::{
    KIND_NAMES, MirrorOptions, NodeReport, VerifyError, VerifyOptions, VerifyProgress, VerifyReport,
    WriterHistory,
};
use record::model::{Check, CheckResult, Step};
use record::sample::SOURCE_VERIFY;
use record::summary::NodeResult;
use record::{Exit, ProgressSample, State, StepId, Verdict};
use serde_json::json;
use std::time::Duration;
use target::Cluster;

mod tpcc;

/// Differences printed by name; run.json holds more of them, and the count of all.
const PRINTED_MAX: usize = 20;
/// How long a node may take to apply what others had written, unless `--lag-limit` says otherwise.
const LAG_LIMIT_DEFAULT: &str = "60";

/// The flags of `verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
What to expect stands in the database itself, in the ledger that load wrote (schema pgfathom).
Of a cluster (--cluster FILE, or a target that is one of its nodes) every node is read, and what the nodes say of each other is compared.
Exit code 3: a difference was found, the rows are named. Exit code 8: nothing wrong was found, but some values cannot be judged.")]
pub struct Verify {
    /// What to verify: ycsb or tpcc [default: what the database holds]
    #[arg(value_name = "WHAT")]
    pub what: Option<String>,
    /// Which database.
    #[command(flatten)]
    pub connection: Connection,
    /// Read every row to the client and judge each value by itself: accepts what `run` has updated, and nothing else
    #[arg(long, help_heading = "Verify")]
    pub deep: bool,
    /// Verify the standbys of the cluster file, too, each after it has replayed what the primary had written
    #[arg(long, help_heading = "Verify")]
    pub standbys: bool,
    /// How long a node may take to apply what others had written before it counts as behind: seconds, or as 5m
    #[arg(
        long,
        value_name = "TIME",
        default_value = LAG_LIMIT_DEFAULT,
        value_parser = quantity::duration_or_zero,
        help_heading = "Verify"
    )]
    pub lag_limit: Duration,
    /// Number of connections, over all nodes; each node gets one at least [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Verify")]
    pub jobs: Option<u64>,
    /// Progress every so many seconds [default: a line that is redrawn; every 5 where stderr is no terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Verify {
    /// Verifies and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to verify, or the verification broke off. A difference is no error: it is exit code 3.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        let what = self.take_what()?;
        let cluster = self.connection.resolve_cluster_of(context)?;
        let entry = cluster.data_nodes().next().unwrap_or(0);
        let spec = &cluster.nodes[entry].spec;
        let mut control = target::control::connect(spec)?;
        if what.unwrap_or_else(|| held(context, &mut control)) == What::Tpcc {
            return self.run_tpcc(context, &cluster, &mut control);
        }
        let recording = Recording::begin(context, &self.directory, "verify", "ycsb")?;
        let mut fingerprint = fingerprint::take(&mut control, spec);
        fingerprint.engine = cluster.engine.name().to_string();
        drop(control);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let jobs = match self.jobs {
            Some(jobs) => usize::try_from(jobs).unwrap_or(usize::MAX).min(load::plan::STREAMS_MAX),
            None => cpus(),
        };
        let step = recording.dir().begin_step("verify", "ycsb")?;
        let how = How {
            deep: self.deep,
            jobs,
            mirror: MirrorOptions { lag_limit: self.lag_limit, standbys: self.standbys },
            progress: self.progress,
        };
        let report = match prove(context, &recording, &step, &cluster, &how) {
            Ok(report) => report,
            Err(VerifyError::Interrupted) => {
                recording.keep(recording.dir().end_step(&step, State::Interrupted));
                context.terminal.say("interrupted before there was a verdict; nothing was changed");
                recording.finish(State::Interrupted)?;
                return Ok(Exit::Interrupted);
            }
            Err(error) if error.exit() == Exit::Usage => {
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
            for line in differences(&report) {
                context.terminal.data(&line);
            }
        }
        for note in &report.notes {
            context.terminal.say(&format!("note: {note}"));
        }
        recording.finish(State::Finished)?;
        Ok(exit_of(&report))
    }
}

/// What can be verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Ycsb,
    Tpcc,
}

impl Verify {
    /// The dataset that was named, if one was. A lone argument that names none is the target.
    fn take_what(&mut self) -> Result<Option<What>, Failure> {
        let Some(word) = self.what.take() else { return Ok(None) };
        match word.as_str() {
            "ycsb" => Ok(Some(What::Ycsb)),
            "tpcc" => Ok(Some(What::Tpcc)),
            _ if self.connection.target.is_some() => {
                Err(Failure::usage(format!("WHAT: {word:?} is not known"))
                    .hint("known: ycsb, tpcc; a connection string with blanks is one argument: quote it"))
            }
            _ => {
                for (is_given, flag) in [
                    (self.connection.dbname.is_some(), "-d/--dbname"),
                    (self.connection.cluster.is_some(), "--cluster"),
                ] {
                    if is_given {
                        return Err(Failure::usage(format!("{flag} and TARGET exclude each other"))
                            .hint("give one of the two"));
                    }
                }
                self.connection.target = Some(word);
                Ok(None)
            }
        }
    }
}

/// What there is to verify, when nothing was named: TPC-C where that is all there is. What is wrong with the ledger is told later.
fn held(context: &Context, control: &mut postgres::Client) -> What {
    let has = |control: &mut postgres::Client, name| load::ledger::find_dataset(control, name);
    let (ycsb, tpcc) = (has(control, load::ledger::YCSB), has(control, load::tpcc::TPCC));
    match (ycsb, tpcc) {
        (Ok(None), Ok(Some(_))) => What::Tpcc,
        (Ok(Some(_)), Ok(Some(_))) => {
            context.terminal.say("the database holds tpcc, too: pgfathom verify tpcc proves that");
            What::Ycsb
        }
        _ => What::Ycsb,
    }
}

/// What a verification's answer means for scripts.
pub fn exit_of(report: &VerifyReport) -> Exit {
    match report.verdict() {
        load::verify::Verdict::Exact => Exit::Ok,
        load::verify::Verdict::Different => Exit::Difference,
        load::verify::Verdict::CannotTell => Exit::CannotTell,
    }
}

/// How a verification is done.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Read and judge every row.
    pub deep: bool,
    /// Connections.
    pub jobs: usize,
    /// What nodes that hold the same rows are given.
    pub mirror: MirrorOptions,
    /// Progress every so often.
    pub progress: Option<Duration>,
}

impl How {
    /// As `verify` does it without flags.
    pub fn new(deep: bool) -> How {
        let mirror = MirrorOptions { lag_limit: Duration::ZERO, standbys: false };
        How { deep, jobs: cpus(), mirror, progress: None }
    }
}

/// Verifies a cluster, of one node or more, as one step of a run directory; the step is ended, except after an error.
///
/// # Errors
/// As `load::verify::run_cluster`. The step is still open then.
pub fn prove(
    context: &Context,
    recording: &Recording<'_>,
    step: &StepId,
    cluster: &Cluster,
    how: &How,
) -> Result<VerifyReport, VerifyError> {
    let &How { deep, jobs, mirror, progress } = how;
    let dir = recording.dir();
    recording.keep(dir.edit_step(step, |step| {
        step.parameters = fields(json!({"deep": deep, "jobs": jobs}));
        if mirror.standbys {
            step.parameters.insert("standbys".to_string(), true.into());
        }
        if cluster.nodes.len() > 1 {
            let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            step.parameters.insert("nodes".to_string(), names.into());
            step.parameters.insert("lag_limit_s".to_string(), mirror.lag_limit.as_secs_f64().into());
        }
    }));
    let stop = stop_of(context);
    let history = replay(context, cluster);
    let history = history.as_ref().map(|history| history as &dyn WriterHistory);
    let options = VerifyOptions { deep, jobs, history, stop: &stop };
    let mut progress = terminal::Progress::new(&context.terminal, progress);
    let mut last = (None, 0, dir.now_us());
    let report = load::verify::run_cluster(cluster, &options, &mirror, &mut |now: &VerifyProgress| {
        if last.0 != Some(now.phase) {
            recording.keep(dir.begin_phase(step, now.phase.as_str()).map(|_| ()));
            last = (Some(now.phase), 0, last.2);
        }
        let t_us = dir.now_us();
        let sample = ProgressSample {
            phase: now.phase.as_str().to_string(),
            rows: now.rows_done.saturating_sub(last.1),
            rows_total: now.rows_done,
            rows_goal: now.rows_total,
            streams: jobs as u64,
            ..ProgressSample::default()
        };
        recording.keep(dir.progress_sample(step, SOURCE_VERIFY, t_us, t_us - last.2, &sample));
        last = (last.0, now.rows_done, t_us);
        let text = told(now);
        progress.tell(|_| text.clone(), || text.clone());
    });
    context.terminal.end_progress();
    let report = report?;
    recording.keep(dir.edit_step(step, |step| describe(step, &report)));
    recording.keep(dir.end_step(step, State::Finished));
    Ok(report)
}

/// What runs have written. Where that cannot be replayed it is said, and the ledger alone has to do: a lost update then goes unseen.
fn replay(context: &Context, cluster: &Cluster) -> Option<history::Replayed> {
    match history::replay(cluster) {
        Ok(replayed) => replayed,
        Err(failure) => {
            let failure = failure
                .context("the writes of earlier runs cannot be replayed, so lost updates are not noticed");
            context.terminal.warn(failure.render(false).trim_end());
            None
        }
    }
}

fn told(progress: &VerifyProgress) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    let share = match progress.rows_total {
        0 => String::new(),
        total => format!("  {:.0} %", (progress.rows_done as f64 * 100.0 / total as f64).min(100.0)),
    };
    format!(
        "verify{share}  {} of {}  {}  {}",
        human::count(progress.rows_done),
        human::plural(progress.rows_total, "row"),
        progress.phase.as_str(),
        human::seconds(seconds)
    )
}

/// What a verification came to, as the run directory holds it.
fn describe(step: &mut Step, report: &VerifyReport) {
    let seconds = report.duration.as_secs_f64();
    step.summary.duration_s = seconds;
    step.summary.rows = Some(report.rows_found);
    step.summary.rows_per_s = (seconds > 0.0).then(|| report.rows_found as f64 / seconds);
    step.summary.nodes = report.nodes.iter().map(node_result).collect();
    let kinds = KIND_NAMES.iter().zip(report.totals).filter(|(_, count)| *count > 0);
    let mut found: Vec<String> =
        kinds.clone().map(|(name, count)| format!("{} {name}", human::count(count))).collect();
    let content = match report.verdict() {
        _ if report.differences_total() > 0 => CheckResult::Fail,
        load::verify::Verdict::CannotTell if report.values_unjudged > 0 => CheckResult::Skipped,
        _ => CheckResult::Ok,
    };
    let detail = match content {
        CheckResult::Ok if report.updates_accepted > 0 => {
            format!("exact, {} accepted", human::plural(report.updates_accepted, "update"))
        }
        CheckResult::Ok => "exact".to_string(),
        CheckResult::Fail => found.join(", "),
        _ => format!("{} values cannot be judged", human::count(report.values_unjudged)),
    };
    step.checks = vec![Check {
        name: "content".to_string(),
        scope: format!("every row, {}", report.method.as_str()),
        rows: report.rows_found,
        result: content,
        detail: detail.clone(),
        counterexamples: report.differences.iter().map(ToString::to_string).collect(),
    }];
    step.checks.extend(report.nodes.iter().map(node_check));
    let problems: Vec<(&str, usize)> = CLUSTER_CHECKS
        .iter()
        .map(|name| (*name, report.problems.iter().filter(|problem| problem.check() == *name).count()))
        .collect();
    // A server alone has no others to disagree with.
    let told = problems.iter().filter(|(_, count)| *count > 0 || !report.nodes.is_empty());
    step.checks.extend(told.map(|&(name, count)| problem_check(report, name, count)));
    found.extend(
        problems
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|&(name, count)| format!("{} of {name}", human::plural(count as u64, "problem"))),
    );
    let result = match report.verdict() {
        load::verify::Verdict::Exact => CheckResult::Ok,
        load::verify::Verdict::Different => CheckResult::Fail,
        load::verify::Verdict::CannotTell => CheckResult::Skipped,
    };
    let detail = if found.is_empty() { detail } else { found.join(", ") };
    step.totals = fields(json!({
        "rows_expected": report.rows_expected,
        "rows_found": report.rows_found,
        "rows_uncertain": report.rows_uncertain,
        "updates_accepted": report.updates_accepted,
        "values_unjudged": report.values_unjudged,
        "differences": report.totals.iter().sum::<u64>(),
    }));
    if !report.nodes.is_empty() || !report.problems.is_empty() {
        step.totals.insert("problems".to_string(), report.problems.len().into());
    }
    for (name, count) in kinds {
        step.totals.insert(name.to_string(), count.into());
    }
    step.verdict = Verdict { valid: result == CheckResult::Ok, reasons: vec![], notes: report.notes.clone() };
    if result != CheckResult::Ok {
        step.verdict.reasons.push(detail);
    }
}

/// The checks that a cluster has beside its content; see `load::verify::Problem::check`.
const CLUSTER_CHECKS: [&str; 4] = ["placement", "definition", "ledger", "replication"];

/// What a node came to, in a word or two.
fn told_of_node(node: &NodeReport) -> String {
    let tables = match node.tables_differing {
        0 => None,
        1 => Some("1 table differs".to_string()),
        several => Some(format!("{} tables differ", human::count(several))),
    };
    let problems = (node.problems > 0).then(|| human::plural(node.problems, "problem"));
    match (tables, problems) {
        (None, None) => "exact".to_string(),
        (tables, problems) => tables.into_iter().chain(problems).collect::<Vec<String>>().join(", "),
    }
}

fn node_result(node: &NodeReport) -> NodeResult {
    NodeResult {
        name: node.name.clone(),
        leaves: node.leaves,
        rows: node.rows_found,
        rows_expected: node.rows_expected,
        valid: node.tables_differing + node.problems == 0,
        detail: told_of_node(node),
    }
}

fn node_check(node: &NodeReport) -> Check {
    let is_exact = node.tables_differing + node.problems == 0;
    Check {
        name: "node".to_string(),
        scope: format!("{}, {}", node.name, human::plural(node.leaves, "leaf table")),
        rows: node.rows_found,
        result: if is_exact { CheckResult::Ok } else { CheckResult::Fail },
        detail: told_of_node(node),
        counterexamples: vec![],
    }
}

fn problem_check(report: &VerifyReport, name: &str, count: usize) -> Check {
    let problems = report.problems.iter().filter(|problem| problem.check() == name);
    let is_doubt = problems.clone().all(load::verify::Problem::is_doubt);
    Check {
        name: name.to_string(),
        scope: match report.nodes.len() {
            0 => "the server".to_string(),
            nodes => human::plural(nodes as u64, "node"),
        },
        rows: 0,
        result: match count {
            0 => CheckResult::Ok,
            _ if is_doubt => CheckResult::Skipped,
            _ => CheckResult::Fail,
        },
        detail: if count == 0 { "consistent".to_string() } else { human::plural(count as u64, "problem") },
        counterexamples: problems.map(ToString::to_string).collect(),
    }
}

/// The nodes of a cluster as lines, then what is wrong: the cluster's own problems, and the first rows by name.
pub fn differences(report: &VerifyReport) -> Vec<String> {
    let width = report.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let mut lines: Vec<String> = report
        .nodes
        .iter()
        .map(|node| {
            let expected = if node.rows_found == node.rows_expected {
                String::new()
            } else {
                format!(" of {}", human::count(node.rows_expected))
            };
            format!(
                "  {:width$}   {}   {}{expected} rows   {}",
                node.name,
                human::plural(node.leaves, "leaf table"),
                human::count(node.rows_found),
                told_of_node(node)
            )
        })
        .collect();
    lines.extend(report.problems.iter().take(PRINTED_MAX).map(|problem| format!("  {problem}")));
    let untold = report.problems.len().saturating_sub(PRINTED_MAX);
    if untold > 0 {
        lines.push(format!("  and {} more; run.json has them all", human::plural(untold as u64, "problem")));
    }
    let total: u64 = report.totals.iter().sum();
    let named = report.differences.len().min(PRINTED_MAX);
    lines.extend(report.differences.iter().take(named).map(|difference| format!("  {difference}")));
    if total > named as u64 {
        lines.push(format!(
            "  and {} more; run.json names up to 100 of each kind",
            human::count(total - named as u64)
        ));
    }
    lines
}
