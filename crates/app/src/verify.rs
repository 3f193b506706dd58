//! `verify`: prove that a loaded table holds exactly its rows.

use crate::connection::Address;
use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::load::stop_of;
use crate::recording::{Recording, fields};
use crate::skeleton::{NoOutcome, Opening, Outcome, Target};
use crate::{history, human};
use engines::Cluster;
use load::verify::{
    KIND_NAMES, MirrorOptions, NodeReport, VerifyError, VerifyOptions, VerifyReport, WriterHistory,
};
use record::model::{Check, CheckResult, Step};
use record::summary::NodeResult;
use record::{Exit, State, StepId, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

mod progress;
mod tables;

use self::progress::Reporter;

/// Differences printed by name; run.json holds more of them, and the count of all.
const PRINTED_MAX: usize = 20;
/// How long a node may take to apply what others had written, unless a plan says otherwise.
const LAG_LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// What to verify, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// The dataset; `None`: what the database holds.
    pub what: Option<What>,
    /// Read every row and judge each value by itself.
    pub deep: bool,
    /// What nodes that hold the same rows are given.
    pub mirror: MirrorOptions,
    /// Connections, over all nodes.
    pub jobs: usize,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// A fast verification of what the database holds.
    pub fn new(address: Address) -> Plan {
        let mirror = MirrorOptions { lag_limit: LAG_LIMIT_DEFAULT, standbys: false };
        Plan { address, what: None, deep: false, mirror, jobs: cpus(), progress: None, directory: None }
    }
}

/// What can be verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The table of YCSB
    Ycsb,
    /// A registered dataset, by its name.
    Registered(&'static str),
}

impl Plan {
    /// Verifies and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to verify, or the verification broke off. A difference is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let cluster = self.address.cluster(context)?;
        let entry = cluster.entry_node();
        let spec = &cluster.nodes[entry].spec;
        let mut control = connect::control::connect(spec)?;
        let what = self.what.unwrap_or_else(|| held(context, &mut control));
        if let What::Registered(name) = what {
            return self.run_tables(context, &cluster, &mut control, name);
        }
        let opening = self.opening("ycsb");
        let recording = opening.open(context, Target::node(&cluster, entry), &mut control)?;
        drop(control);
        let how = How {
            deep: self.deep,
            jobs: self.jobs.min(load::plan::STREAMS_MAX),
            mirror: self.mirror,
            progress: self.progress,
        };
        opening.in_one_step(recording, |recording, step| {
            let report = prove(context, recording, step, &cluster, &how).map_err(no_outcome)?;
            let mut outcome = Outcome::new(State::Finished, exit_of(&report));
            outcome.lines = differences(&report);
            outcome.messages = report.notes.iter().map(|note| format!("note: {note}")).collect();
            Ok(outcome)
        })
    }

    fn opening<'a>(&'a self, name: &'a str) -> Opening<'a> {
        Opening::new("verify", name, self.directory.as_deref())
    }
}

/// A verification that ended early.
fn no_outcome(error: VerifyError) -> NoOutcome {
    match error {
        VerifyError::Interrupted => {
            NoOutcome::Interrupted("interrupted before a verdict; nothing was changed")
        }
        error => error.into(),
    }
}

/// What there is to verify, when nothing was named: the first dataset that is there. Problems of the ledger are reported later.
fn held(context: &Context, control: &mut postgres::Client) -> What {
    let registered = workloads::dataset::DATASETS.iter().map(|dataset| What::Registered(dataset.name));
    let mut there: Vec<(What, &str)> = Vec::new();
    for what in std::iter::once(What::Ycsb).chain(registered) {
        let name = match what {
            What::Ycsb => load::ledger::YCSB,
            What::Registered(name) => name,
        };
        if matches!(load::ledger::find_dataset(control, name), Ok(Some(_))) {
            there.push((what, name));
        }
    }
    for (_, name) in there.iter().skip(1) {
        let message = format!("the database also holds {name}: verify it with pgfathom verify {name}");
        context.terminal.say(&message);
    }
    there.first().map_or(What::Ycsb, |(what, _)| *what)
}

/// What a verification's answer means for scripts.
pub(crate) fn exit_of(report: &VerifyReport) -> Exit {
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
    let mut reporter = Reporter::new(context, recording, step, jobs, progress);
    let report = load::verify::run_cluster(cluster, &options, &mirror, &mut |now| reporter.report(now));
    context.terminal.end_progress();
    let report = report?;
    recording.keep(dir.edit_step(step, |step| describe(step, &report)));
    recording.keep(dir.end_step(step, State::Finished));
    Ok(report)
}

/// What runs have written. If that cannot be replayed, a note reports it and only the ledger is used: a lost update is then not detected.
fn replay(context: &Context, cluster: &Cluster) -> Option<history::Replayed> {
    match history::replay(cluster) {
        Ok(replayed) => replayed,
        Err(failure) => {
            let failure = failure
                .context("the writes of earlier runs cannot be replayed, so lost updates are not detected");
            context.terminal.warn(failure.render(false).trim_end());
            None
        }
    }
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
