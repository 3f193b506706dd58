//! `verify`: prove that the tables of a dataset hold exactly its rows.

use crate::connection::Address;
use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::human;
use crate::load::stop_of;
use crate::recording::{Recording, Shown, fields};
use crate::skeleton::{NoOutcome, Opening, Outcome, Target, in_steps};
use engines::Cluster;
use load::verify::{
    KIND_NAMES, LIMITS, MirrorOptions, NodeReport, Subject, VerifyError, VerifyOptions, VerifyReport,
};
use record::model::{CANNOT_TELL, Check, CheckResult, Step};
use record::summary::NodeResult;
use record::totals::VerifyTotals;
use record::{Exit, State, StepId, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use workloads::dataset::DATASETS;

mod progress;

use self::progress::Reporter;

/// Differences printed by name; run.json holds more of them, and the count of all.
const PRINTED_MAX: usize = 20;
/// How long a node may take to apply what others had written, unless a plan has another value.
const LAG_LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// What to verify, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// The name of the dataset; `None`: all that the database holds.
    pub what: Option<&'static str>,
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

impl Plan {
    /// Verifies and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to verify, or the verification broke off. A difference is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.address.explained(self.verified(context))
    }

    fn verified(&self, context: &Context) -> Result<Exit, Failure> {
        let cluster = self.address.cluster(context)?;
        wait_for_members(&cluster, context)?;
        let entry = cluster.entry_node();
        let mut control = connect::control::connect(&cluster.nodes[entry].spec)?;
        let names = self.what.map_or_else(|| held(&mut control), |name| vec![name]);
        let described: Vec<_> = names.iter().map(|name| described(name, &mut control)).collect();
        let opening = self.opening(if names.len() == 1 { names[0] } else { SEVERAL });
        let recording = opening.open(context, Target::node(&cluster, entry), &mut control)?;
        drop(control);
        let how = How {
            deep: self.deep,
            jobs: self.jobs.min(load::plan::STREAMS_MAX),
            mirror: self.mirror,
            progress: self.progress,
        };
        in_steps(recording, |recording| {
            let mut answers = Vec::with_capacity(names.len());
            for (name, described) in names.iter().zip(described) {
                let step = recording.dir().begin_step(opening.verb, name)?;
                recording.keep(recording.dir().edit_step(&step, |step| step.dataset = described));
                let prove = || prove(context, recording, &step, &cluster, name, &how);
                match patiently(context, &cluster, prove) {
                    // The others can be verified all the same.
                    Err(error) if error.is_of_load() && names.len() > 1 => {
                        recording.fail_step(&step, &error.to_string());
                        answers.push((*name, Err(error)));
                    }
                    answer => answers.push((*name, Ok(answer.map_err(no_outcome)?))),
                }
            }
            if answers.iter().all(|(_, answer)| answer.is_err())
                && let Some((_, Err(error))) = answers.pop()
            {
                return Err(no_outcome(error));
            }
            Ok(outcome(recording, &answers))
        })
    }

    fn opening<'a>(&'a self, name: &'a str) -> Opening<'a> {
        Opening::new("verify", name, self.directory.as_deref())
    }
}

/// Waits until every node is a part of the cluster: one that has been away catches up first, and then has all rows.
///
/// # Errors
/// When it takes longer than [`MEMBERS_LIMIT`], or a stop was requested.
fn wait_for_members(cluster: &Cluster, context: &Context) -> Result<(), Failure> {
    let (begin, stop) = (Instant::now(), context.stop.flag());
    let mut is_reported = false;
    while let Some((name, why)) = cluster.isolated_node() {
        let failure = || Failure::usage(format!("{name} is no part of the cluster now: {why}"));
        if stop.load(Ordering::Relaxed) {
            return Err(failure().interrupted());
        }
        if begin.elapsed() >= MEMBERS_LIMIT {
            return Err(failure().hint("bring the node back into the cluster, then verify again"));
        }
        if !is_reported {
            let limit = MEMBERS_LIMIT.as_secs();
            context.terminal.say(&format!(
                "{name} is no part of the cluster now ({why}): waiting for it, up to {limit} s"
            ));
            is_reported = true;
        }
        std::thread::sleep(MEMBERS_PAUSE);
    }
    Ok(())
}

/// How long a node is waited for that catches up, and the pause between two looks.
const MEMBERS_LIMIT: Duration = Duration::from_secs(120);
const MEMBERS_PAUSE: Duration = Duration::from_secs(1);

/// Verifies; again from the beginning when all nodes of the cluster answer, if one of them went away.
fn patiently(
    context: &Context,
    cluster: &Cluster,
    mut verify: impl FnMut() -> Result<VerifyReport, VerifyError>,
) -> Result<VerifyReport, VerifyError> {
    let stop = context.stop.flag();
    // Since when, and the first error: what comes later is only that the node is still away.
    let mut waiting: Option<(Instant, VerifyError)> = None;
    loop {
        let is_away = |error: &VerifyError| {
            error.is_node_away(cluster.engine.node_lost) || waiting.is_some() && error.is_unreachable()
        };
        let error = match verify() {
            Err(error) if cluster.nodes.len() > 1 && is_away(&error) => error,
            other => return other,
        };
        if waiting.is_none() {
            context.terminal.end_progress();
            let away = cluster.nodes.iter().find_map(|node| Some((node, node.answers().err()?)));
            let which = away.map_or_else(
                || format!("a node went away ({error})"),
                |(node, why)| format!("{} does not answer ({why})", node.name),
            );
            let limit = MEMBERS_LIMIT.as_secs();
            context.terminal.say(&format!("{which}: verifying again when it does, for up to {limit} s"));
            waiting = Some((Instant::now(), error));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(VerifyError::Interrupted);
        }
        if let Some((_, first)) = waiting.take_if(|(since, _)| since.elapsed() >= MEMBERS_LIMIT) {
            return Err(first);
        }
        std::thread::sleep(MEMBERS_PAUSE);
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

/// The names of all datasets that can be verified.
pub fn names() -> impl Iterator<Item = &'static str> {
    DATASETS.iter().map(|dataset| dataset.name)
}

/// What there is to verify, when nothing was named: all datasets that are there. Problems of the ledger are reported later.
fn held(control: &mut postgres::Client) -> Vec<&'static str> {
    let is_there = |name: &&str| matches!(load::ledger::find_dataset(control, name), Ok(Some(_)));
    let there: Vec<&str> = names().filter(is_there).collect();
    if there.is_empty() { vec![DATASETS[0].name] } else { there }
}

/// How a run directory calls the verification of several datasets.
const SEVERAL: &str = "all";

/// A dataset, and what its verification came to: a report, or why its load is not complete.
type Answer = (&'static str, Result<VerifyReport, VerifyError>);

/// What the verification of one dataset or of several came to.
fn outcome(recording: &Recording<'_>, answers: &[Answer]) -> Outcome {
    // The worst answer is that of all: a difference comes before what is unknown.
    let verdicts = || answers.iter().map(|(_, answer)| answer.as_ref().map_or(Exit::CannotTell, exit_of));
    let worst =
        [Exit::Difference, Exit::CannotTell].into_iter().find(|exit| verdicts().any(|one| one == *exit));
    let mut outcome = Outcome::new(State::Finished, worst.unwrap_or(Exit::Ok));
    if let [(_, Ok(report))] = answers {
        outcome.lines = differences(report);
        outcome.messages = report.notes.iter().map(|note| format!("note: {note}")).collect();
        outcome.fields = counted(report);
        return outcome;
    }
    outcome.shown = Shown::Nothing;
    for (step, (name, answer)) in recording.step_lines().into_iter().zip(answers) {
        outcome.lines.push(step);
        match answer {
            Ok(report) => {
                outcome.lines.extend(differences(report));
                outcome.messages.extend(report.notes.iter().map(|note| format!("note: {name}: {note}")));
            }
            Err(error) => {
                let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                outcome.lines.push(format!("  {error}{hint}"));
            }
        }
    }
    let each = |(name, answer): &Answer| {
        let rows = answer.as_ref().map_or(0, |report| report.rows_found);
        let mut of = fields(json!({"name": name, "rows": rows}));
        of.extend(match answer {
            Ok(report) => counted(report),
            Err(error) => fields(json!({"answer": "cannot tell", "error": error.to_string()})),
        });
        serde_json::Value::Object(of)
    };
    outcome.fields = fields(json!({"datasets": answers.iter().map(each).collect::<Vec<_>>()}));
    outcome
}

/// The answer as `--format json` has it.
fn counted(report: &VerifyReport) -> serde_json::Map<String, serde_json::Value> {
    let kinds = KIND_NAMES.iter().zip(report.totals).filter(|(_, count)| *count > 0);
    let kinds: std::collections::BTreeMap<&str, u64> = kinds.map(|(name, count)| (*name, count)).collect();
    fields(json!({
        "answer": match report.verdict() {
            load::verify::Verdict::Exact => "exact",
            load::verify::Verdict::Different => "different",
            load::verify::Verdict::CannotTell => "cannot tell",
        },
        "differences": report.differences_total(),
        "kinds": kinds,
        "problems": report.problems.len(),
    }))
}

/// A dataset as the run directory describes it.
fn described(name: &str, control: &mut postgres::Client) -> Option<record::model::Dataset> {
    let found = load::ledger::find_dataset(control, name).ok().flatten()?;
    let mut dataset = found.described();
    if let Ok(Some(content)) = workloads::dataset::named(name)?.find(control) {
        crate::load::add_parameters(&mut dataset, &*content);
    }
    Some(dataset)
}

/// What is worth knowing beside the answer. What is not known of runs is the answer itself, where nothing is wrong.
fn notes_of(report: &VerifyReport) -> impl Iterator<Item = &String> {
    let is_different = report.verdict() == load::verify::Verdict::Different;
    report.notes.iter().chain(report.unfinished.iter().filter(move |_| is_different))
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

/// Verifies a dataset of a cluster, of one node or more, as one step of a run directory; the step is ended, except after an error.
///
/// # Errors
/// As `load::verify::run`. The step is still open then.
pub fn prove(
    context: &Context,
    recording: &Recording<'_>,
    step: &StepId,
    cluster: &Cluster,
    name: &'static str,
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
    let registration = workloads::dataset::named(name);
    let replayed = registration.and_then(|registration| registration.replay).map(|replay| replay(cluster));
    let (history, unreplayed) = match replayed.transpose() {
        Ok(history) => (history.flatten(), None),
        Err(refusal) => (None, Some(Failure::from(refusal))),
    };
    let find = |control: &mut postgres::Client| {
        let found = registration.map(|registration| registration.find(control)).transpose()?.flatten();
        let after =
            found.as_deref().zip(history.as_deref()).and_then(|(found, history)| history.after(found));
        Ok(after.or(found))
    };
    let options = VerifyOptions { deep, jobs, mirror, stop: &stop, limits: LIMITS, may_hash: true };
    let mut reporter = Reporter::new(context, recording, step, jobs, progress);
    let subject = Subject { name, find: &find };
    let report = load::verify::run(cluster, &subject, &options, &mut |now| reporter.report(now));
    context.terminal.end_progress();
    let report = report?;
    // If the ledger cannot be read, the verification itself has ended with that.
    if let Some(failure) = unreplayed {
        warn_unreplayed(context, failure);
    }
    recording.keep(dir.edit_step(step, |step| describe(step, &report)));
    recording.keep(dir.end_step(step, State::Finished));
    Ok(report)
}

/// What runs have written could not be replayed: only the ledger was used, so a lost update is not detected.
fn warn_unreplayed(context: &Context, failure: Failure) {
    let failure =
        failure.context("the writes of earlier runs cannot be replayed, so lost updates are not detected");
    context.terminal.warn(failure.render(false).trim_end().trim_start_matches("error: "));
}

/// What a verification came to, as the run directory holds it: one check of the content, one per table and node, and one of everything else
/// that was looked at.
fn describe(step: &mut Step, report: &VerifyReport) {
    let seconds = report.duration.as_secs_f64();
    step.summary.duration_s = seconds;
    step.summary.rows = Some(report.rows_found);
    step.summary.rows_per_s = (seconds > 0.0).then(|| report.rows_found as f64 / seconds);
    step.summary.nodes = report.nodes.iter().map(node_result).collect();
    let kinds = KIND_NAMES.iter().zip(report.totals).filter(|(_, count)| *count > 0);
    let mut found: Vec<String> =
        kinds.clone().map(|(name, count)| format!("{} {name}", human::count(count))).collect();
    let (content, detail) = content_result(report, &found);
    let scope = format!("every row, {}", report.method.as_str());
    step.checks = vec![Check {
        name: "content".to_string(),
        scope: scope.clone(),
        rows: report.rows_found,
        result: content,
        detail: detail.clone(),
        counterexamples: report.differences.iter().map(ToString::to_string).collect(),
    }];
    step.checks.extend(report.tables.iter().map(|table| Check {
        name: format!("content of {}", table.table),
        scope: scope.clone(),
        rows: table.rows_found,
        result: if table.differences == 0 { CheckResult::Ok } else { CheckResult::Fail },
        detail: format!("{} of {} rows", human::count(table.rows_found), human::count(table.rows_expected)),
        counterexamples: Vec::new(),
    }));
    step.checks.extend(report.nodes.iter().map(node_check));
    step.checks.extend(audit_check(report));
    let problems: Vec<(&str, usize)> = CLUSTER_CHECKS
        .iter()
        .map(|name| (*name, report.problems.iter().filter(|problem| problem.check() == *name).count()))
        .collect();
    // A server alone has no others to disagree with.
    let listed = problems.iter().filter(|(_, count)| *count > 0 || !report.nodes.is_empty());
    step.checks.extend(listed.map(|&(name, count)| problem_check(report, name, count)));
    found.extend(
        problems
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|&(name, count)| format!("{} of {name}", human::plural(count as u64, "problem"))),
    );
    found.extend(report.audit.broken.iter().cloned());
    let is_exact = report.verdict() == load::verify::Verdict::Exact;
    let detail = if found.is_empty() { detail } else { found.join(", ") };
    let has_problems = !report.nodes.is_empty() || !report.problems.is_empty();
    step.set_totals(&VerifyTotals {
        rows_expected: report.rows_expected,
        rows_found: report.rows_found,
        rows_uncertain: Some(report.rows_uncertain),
        updates_accepted: Some(report.updates_accepted),
        values_unjudged: Some(report.values_unjudged),
        differences: report.differences_total(),
        problems: has_problems.then_some(report.problems.len() as u64),
        kinds: kinds.map(|(name, count)| (name.to_string(), count)).collect(),
    });
    step.verdict = Verdict { valid: is_exact, reasons: vec![], notes: notes_of(report).cloned().collect() };
    match report.verdict() {
        load::verify::Verdict::Exact => {}
        load::verify::Verdict::Different => step.verdict.reasons.push(detail),
        load::verify::Verdict::CannotTell => {
            step.checks.iter_mut().for_each(doubt);
            step.verdict.reasons.push(why_open(report, &detail));
        }
    }
}

/// A check that found something which a node that is behind explains: it found no difference yet.
fn doubt(check: &mut Check) {
    if check.result == CheckResult::Fail {
        check.result = CheckResult::Skipped;
    }
}

/// Why there is no verdict: the first doubt by name, or what was counted.
fn why_open(report: &VerifyReport, counted: &str) -> String {
    let mut doubts = report.problems.iter().filter(|problem| problem.is_doubt());
    let Some(first) = doubts.next() else { return format!("{CANNOT_TELL}: {counted}") };
    match doubts.count() {
        0 => format!("{CANNOT_TELL}: {first}"),
        more => format!("{CANNOT_TELL}: {first}, and {more} more"),
    }
}

/// What the rows came to. `found`: the kinds of differences, in words.
fn content_result(report: &VerifyReport, found: &[String]) -> (CheckResult, String) {
    if report.differences_total() > 0 {
        return (CheckResult::Fail, found.join(", "));
    }
    let unknown: Vec<&str> = [report.unjudged.as_ref(), report.unfinished.as_ref()]
        .into_iter()
        .flatten()
        .chain(&report.audit.unknown)
        .map(String::as_str)
        .collect();
    if report.values_unjudged > 0 {
        let values = human::count(report.values_unjudged);
        return (CheckResult::Skipped, format!("{values} values cannot be judged"));
    }
    match report.updates_accepted {
        _ if !unknown.is_empty() => (CheckResult::Skipped, unknown.join("; ")),
        0 => (CheckResult::Ok, "exact".to_string()),
        updates => (CheckResult::Ok, format!("exact, {} accepted", human::plural(updates, "update"))),
    }
}

/// The checks that a cluster has beside its content; see `load::verify::Problem::check`.
const CLUSTER_CHECKS: [&str; 4] = ["placement", "definition", "ledger", "replication"];

/// What a node came to, in a word or two.
fn detail_of_node(node: &NodeReport) -> String {
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
        detail: detail_of_node(node),
    }
}

fn node_check(node: &NodeReport) -> Check {
    let is_exact = node.tables_differing + node.problems == 0;
    Check {
        name: "node".to_string(),
        scope: format!("{}, {}", node.name, human::plural(node.leaves, "leaf table")),
        rows: node.rows_found,
        result: if is_exact { CheckResult::Ok } else { CheckResult::Fail },
        detail: detail_of_node(node),
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

/// What must hold of the tables together.
fn audit_check(report: &VerifyReport) -> Option<Check> {
    let audit = &report.audit;
    let sentences: Vec<String> = audit.broken.iter().chain(&audit.unknown).cloned().collect();
    let kept = audit.kept.join("; ");
    (!sentences.is_empty() || !kept.is_empty()).then(|| Check {
        name: "audit".to_string(),
        scope: "all tables together".to_string(),
        rows: 0,
        result: match (audit.broken.len(), audit.unknown.len()) {
            (0, 0) => CheckResult::Ok,
            (0, _) => CheckResult::Skipped,
            _ => CheckResult::Fail,
        },
        detail: if sentences.is_empty() { kept } else { sentences.join("; ") },
        counterexamples: audit.broken.clone(),
    })
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
                detail_of_node(node)
            )
        })
        .collect();
    lines.extend(report.problems.iter().take(PRINTED_MAX).map(|problem| format!("  {problem}")));
    let audit = report.audit.broken.iter().chain(&report.audit.unknown).chain(&report.unfinished);
    lines.extend(audit.map(|sentence| format!("  {sentence}")));
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
