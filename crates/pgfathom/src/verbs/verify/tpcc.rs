//! `verify tpcc`: prove that the TPC-C tables hold exactly the rows that were loaded.

use super::{PRINTED_MAX, Verify, told};
use crate::cli::Format;
use crate::context::Context;
use crate::failure::{Explained, Failure};
use crate::recording::Recording;
use crate::verbs::load::{cpus, fields, stop_of, tpcc::dataset};
use crate::{fingerprint, human, terminal};
use load::verify::tpcc::{KIND_NAMES, TpccVerifyOptions, TpccVerifyReport};
use load::verify::{VerifyError, VerifyProgress};
use record::model::{Check, CheckResult, Step};
use record::sample::SOURCE_VERIFY;
use record::{Exit, ProgressSample, State, Verdict};
use serde_json::json;
use target::Cluster;
use target::control::Control;

impl Verify {
    /// Verifies the TPC-C tables and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to verify, or the verification broke off. A difference is no error: it is exit code 3.
    pub(super) fn run_tpcc(
        self,
        context: &Context,
        cluster: &Cluster,
        control: &mut Control,
    ) -> Result<Exit, Failure> {
        let recording = Recording::begin(context, &self.directory, "verify", "tpcc")?;
        let entry = cluster.data_nodes().next().unwrap_or(0);
        let mut fingerprint = fingerprint::take(control, &cluster.nodes[entry].spec);
        fingerprint.engine = cluster.engine.name().to_string();
        let found = load::tpcc::find(&mut **control).ok().flatten();
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let jobs = match self.jobs {
            Some(jobs) => usize::try_from(jobs).unwrap_or(usize::MAX).min(load::plan::STREAMS_MAX),
            None => cpus(),
        };
        let dir = recording.dir();
        let step = dir.begin_step("verify", "tpcc")?;
        recording.keep(dir.edit_step(&step, |step| {
            step.dataset = found.as_ref().map(dataset);
            step.parameters = fields(json!({"deep": self.deep, "jobs": jobs}));
        }));
        let stop = stop_of(context);
        let options = TpccVerifyOptions { deep: self.deep, jobs, stop: &stop };
        let mut progress = terminal::Progress::new(&context.terminal, self.progress);
        let mut last = (None, 0, dir.now_us());
        let verified = load::verify::tpcc::run_cluster(cluster, &options, &mut |now: &VerifyProgress| {
            if last.0 != Some(now.phase) {
                recording.keep(dir.begin_phase(&step, now.phase.as_str()).map(|_| ()));
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
            recording.keep(dir.progress_sample(&step, SOURCE_VERIFY, t_us, t_us - last.2, &sample));
            last = (last.0, now.rows_done, t_us);
            let text = told(now);
            progress.tell(|_| text.clone(), || text.clone());
        });
        context.terminal.end_progress();
        let report = match verified {
            Ok(report) => report,
            Err(VerifyError::Interrupted) => {
                recording.keep(dir.end_step(&step, State::Interrupted));
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
        recording.keep(dir.edit_step(&step, |step| describe(step, &report)));
        recording.keep(dir.end_step(&step, State::Finished));
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
        Ok(match report.verdict() {
            load::verify::Verdict::Exact => Exit::Ok,
            load::verify::Verdict::Different => Exit::Difference,
            load::verify::Verdict::CannotTell => Exit::CannotTell,
        })
    }
}

/// What a verification came to, as the run directory holds it: one check per table, and one of everything.
fn describe(step: &mut Step, report: &TpccVerifyReport) {
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
    let (result, detail) = match report.verdict() {
        load::verify::Verdict::Exact => (CheckResult::Ok, "exact".to_string()),
        load::verify::Verdict::Different => (CheckResult::Fail, found.join(", ")),
        load::verify::Verdict::CannotTell => {
            (CheckResult::Skipped, "runs have changed all tables but item".to_string())
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
        name: format!("content of {}", table.table.name()),
        scope: format!("every row, {}", report.method.as_str()),
        rows: table.rows_found,
        result: if table.differences == 0 { CheckResult::Ok } else { CheckResult::Fail },
        detail: format!("{} of {} rows", human::count(table.rows_found), human::count(table.rows_expected)),
        counterexamples: Vec::new(),
    }));
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
    }));
    for (name, count) in kinds {
        step.totals.insert(name.to_string(), count.into());
    }
    step.verdict = Verdict { valid: result == CheckResult::Ok, reasons: vec![], notes: report.notes.clone() };
    if result != CheckResult::Ok {
        step.verdict.reasons.push(detail);
    }
}

/// The differences as lines.
fn differences(report: &TpccVerifyReport) -> Vec<String> {
    let total = report.differences_total();
    let mut lines: Vec<String> =
        report.differences.iter().take(PRINTED_MAX).map(|difference| format!("  {difference}")).collect();
    let problems = report.problems.iter().map(|problem| format!("  {problem}"));
    let named = lines.len() as u64;
    lines.extend(problems);
    if total > named {
        lines.push(format!(
            "  and {} more; run.json names up to 100 of each kind",
            human::count(total - named)
        ));
    }
    lines
}
