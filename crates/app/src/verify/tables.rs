//! `verify` of datasets of several tables: prove that they hold exactly the rows that were loaded.

use super::{PRINTED_MAX, Plan, Reporter, no_outcome};
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::load::stop_of;
use crate::recording::fields;
use crate::skeleton::{Outcome, Target};
use connect::control::Control;
use engines::Cluster;
use load::verify::tables::{KIND_NAMES, TablesOptions, TablesReport, run_cluster};
use record::model::{Check, CheckResult, Step};
use record::{Exit, State, Verdict};
use serde_json::json;

/// The dataset that the database holds.
fn held(name: &'static str, control: &mut Control) -> Result<Box<dyn load::Dataset>, Failure> {
    let registration = workloads::dataset::named(name);
    let found = registration.map(|registration| registration.find(control)).transpose()?.flatten();
    found.ok_or_else(|| load::verify::what_else(control, name).into())
}

/// As the run directory holds it.
fn described(content: &dyn load::Dataset, control: &mut Control) -> Option<record::model::Dataset> {
    let found = load::ledger::find_dataset(&mut **control, content.name()).ok().flatten()?;
    let mut dataset = crate::load::dataset(&found);
    crate::load::add_parameters(&mut dataset, content);
    Some(dataset)
}

impl Plan {
    /// Verifies the tables of a dataset and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to verify, or the verification broke off. A difference is no error: it is exit code 3.
    pub(super) fn run_tables(
        self,
        context: &Context,
        cluster: &Cluster,
        control: &mut Control,
        name: &'static str,
    ) -> Result<Exit, Failure> {
        let dataset = held(name, control)?;
        let opening = self.opening(dataset.name());
        let entry = cluster.entry_node();
        let described = described(&*dataset, control);
        let recording = opening.open(context, Target::node(cluster, entry), control)?;
        let jobs = self.jobs.min(load::plan::STREAMS_MAX);
        opening.in_one_step(recording, |recording, step| {
            let dir = recording.dir();
            recording.keep(dir.edit_step(step, |step| {
                step.dataset = described.clone();
                step.parameters = fields(json!({"deep": self.deep, "jobs": jobs}));
            }));
            let stop = stop_of(context);
            let mut reporter = Reporter::new(context, recording, step, jobs, self.progress);
            let options = TablesOptions { deep: self.deep, jobs, stop: &stop };
            let verified = run_cluster(cluster, &*dataset, &options, &mut |now| reporter.report(now));
            context.terminal.end_progress();
            let report = verified.map_err(no_outcome)?;
            recording.keep(dir.edit_step(step, |step| describe(step, &report)));
            recording.keep(dir.end_step(step, State::Finished));
            let exit = match report.verdict() {
                load::verify::Verdict::Exact => Exit::Ok,
                load::verify::Verdict::Different => Exit::Difference,
                load::verify::Verdict::CannotTell => Exit::CannotTell,
            };
            let mut outcome = Outcome::new(State::Finished, exit);
            outcome.lines = differences(&report);
            outcome.messages = report.notes.iter().map(|note| format!("note: {note}")).collect();
            Ok(outcome)
        })
    }
}

/// What a verification came to, as the run directory holds it: one check per table, and one of everything.
fn describe(step: &mut Step, report: &TablesReport) {
    let seconds = report.duration.as_secs_f64();
    let rows = report.rows_found();
    step.summary.duration_s = seconds;
    step.summary.rows = Some(rows);
    step.summary.rows_per_s = (seconds > 0.0).then(|| rows as f64 / seconds);
    let kinds = KIND_NAMES.iter().zip(report.totals).filter(|(_, count)| *count > 0);
    let found: Vec<String> =
        kinds.clone().map(|(name, count)| format!("{} {name}", human::count(count))).collect();
    let mut found = found;
    if !report.problems.is_empty() {
        let problems = human::plural(report.problems.len() as u64, "problem");
        found.push(format!("{problems} of definition"));
    }
    found.extend(report.audit.broken.iter().cloned());
    let (result, detail) = match report.verdict() {
        load::verify::Verdict::Exact if report.updates_accepted > 0 => {
            let updates = human::plural(report.updates_accepted, "updated row");
            (CheckResult::Ok, format!("exact, {updates} accepted"))
        }
        load::verify::Verdict::Exact => (CheckResult::Ok, "exact".to_string()),
        load::verify::Verdict::Different => (CheckResult::Fail, found.join(", ")),
        load::verify::Verdict::CannotTell => {
            let unknown = report.unjudged.iter().chain(&report.audit.unknown);
            (CheckResult::Skipped, unknown.cloned().collect::<Vec<String>>().join("; "))
        }
    };
    step.checks = vec![Check {
        name: "content".to_string(),
        scope: format!("every row, {}", report.method.as_str()),
        rows,
        result,
        detail: detail.clone(),
        counterexamples: report.differences.iter().map(ToString::to_string).collect(),
    }];
    step.checks.extend(report.tables.iter().map(|table| Check {
        name: format!("content of {}", table.table),
        scope: format!("every row, {}", report.method.as_str()),
        rows: table.rows_found,
        result: if table.differences == 0 { CheckResult::Ok } else { CheckResult::Fail },
        detail: format!("{} of {} rows", human::count(table.rows_found), human::count(table.rows_expected)),
        counterexamples: Vec::new(),
    }));
    step.checks.extend(audit_check(report));
    if !report.problems.is_empty() {
        step.checks.push(Check {
            name: "definition".to_string(),
            scope: "every table".to_string(),
            rows: report.tables.len() as u64,
            result: CheckResult::Fail,
            detail: human::plural(report.problems.len() as u64, "problem"),
            counterexamples: report.problems.iter().map(ToString::to_string).collect(),
        });
    }
    step.totals = fields(json!({
        "rows_expected": report.rows_expected(),
        "rows_found": rows,
        "differences": report.differences_total(),
        "updates_accepted": (report.updates_accepted > 0).then_some(report.updates_accepted),
    }));
    for (name, count) in kinds {
        step.totals.insert(name.to_string(), count.into());
    }
    step.verdict = Verdict { valid: result == CheckResult::Ok, reasons: vec![], notes: report.notes.clone() };
    if result != CheckResult::Ok {
        step.verdict.reasons.push(detail);
    }
}

/// What must hold of the tables together.
fn audit_check(report: &TablesReport) -> Option<Check> {
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

/// The differences as lines.
fn differences(report: &TablesReport) -> Vec<String> {
    let total = report.differences_total();
    let mut lines: Vec<String> =
        report.differences.iter().take(PRINTED_MAX).map(|difference| format!("  {difference}")).collect();
    let problems = report.problems.iter().map(|problem| format!("  {problem}"));
    let named = lines.len() as u64;
    lines.extend(problems);
    let audit = report.audit.broken.iter().chain(&report.audit.unknown);
    lines.extend(audit.map(|sentence| format!("  {sentence}")));
    if total > named {
        lines.push(format!(
            "  and {} more; run.json names up to 100 of each kind",
            human::count(total - named)
        ));
    }
    lines
}
