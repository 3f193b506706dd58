//! `prove tpcc`: the books of TPC-C.

use super::Prove;
use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::verbs::load::{cpus, fields};
use crate::{fingerprint, human, terminal};
use ::prove::tpcc::{
    Answer, Condition, NOT_COVERED, Options, Outcome, Progress, ProveError, Report, prove_on,
};
use record::model::{Check, CheckResult, Step};
use record::{Exit, State, Verdict};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Connections at most.
const JOBS_MAX: usize = 256;
/// Witnesses of one condition printed on the terminal; run.json holds more.
const PRINTED_MAX: usize = 5;

impl Prove {
    pub(super) fn run_tpcc(self, context: &Context) -> Result<Exit, Failure> {
        let cluster = self.connection.resolve_cluster_of(context)?;
        let spec = &cluster.nodes[0].spec;
        let mut control = target::control::connect(spec)?;
        let recording = Recording::begin(context, &self.directory, "prove", "tpcc")?;
        self.watching.begin(&recording, &cluster.nodes);
        let mut fingerprint = fingerprint::take(&mut control, spec);
        fingerprint.engine = cluster.engine.name().to_string();
        drop(control);
        let dir = recording.dir();
        dir.edit(|run| run.target = Some(fingerprint))?;
        let jobs =
            self.jobs.map_or_else(cpus, |jobs| usize::try_from(jobs).unwrap_or(JOBS_MAX)).min(JOBS_MAX);
        let conditions = match self.conditions.as_slice() {
            [] => Condition::ALL.into_iter().collect(),
            some => some.iter().copied().collect(),
        };
        let options = Options { jobs, conditions, warehouses: self.warehouses };
        let step = dir.begin_step("prove", "tpcc")?;
        recording.keep(dir.edit_step(&step, |step| {
            step.parameters = fields(json!({
                "jobs": jobs,
                "conditions": options.conditions.iter().map(|one| one.code()).collect::<Vec<_>>(),
                "warehouses": self.warehouses.map(|(from, to)| format!("{from}-{to}")),
            }));
        }));
        let stop = Arc::new(AtomicBool::new(false));
        context.stop.forward({
            let stop = Arc::clone(&stop);
            move |_| stop.store(true, Ordering::Relaxed)
        });
        let mut progress = terminal::Progress::new(&context.terminal, self.progress);
        let proved = prove_on(&cluster, &options, &stop, &mut |now: Progress| {
            let text = || {
                format!(
                    "prove  {} of {} queries  {} things looked at",
                    now.done,
                    now.total,
                    human::count(now.looked_at)
                )
            };
            progress.tell(|_| text(), text);
        });
        context.terminal.end_progress();
        let report = match proved {
            Ok(report) => report,
            Err(ProveError::Interrupted) => {
                recording.keep(dir.end_step(&step, State::Interrupted));
                context.terminal.say("interrupted before there was an answer; nothing was changed");
                recording.finish(State::Interrupted)?;
                return Ok(Exit::Interrupted);
            }
            Err(
                error @ (ProveError::NoTable(_) | ProveError::NoWarehouse(_) | ProveError::NotTrusted(_)),
            ) => {
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
            for line in lines(&report) {
                context.terminal.data(&line);
            }
        }
        for note in &report.notes {
            context.terminal.say(&format!("note: {note}"));
        }
        recording.finish(State::Finished)?;
        Ok(match () {
            () if report.is_broken() => Exit::Difference,
            () if report.has_failed() => Exit::CannotTell,
            () => Exit::Ok,
        })
    }
}

/// The answer about one condition in one line.
fn detail(answer: &Answer) -> String {
    let things = || format!("{} {}", human::count(answer.looked_at), answer.condition.things());
    match &answer.outcome {
        Outcome::Kept => format!("kept by {}", things()),
        Outcome::Broken { count, .. } => {
            let wide = match answer.condition.is_wide() {
                true => {
                    "; it spans warehouses: while transactions go on, a target without one snapshot for all shards shows this, and after they \
                    have ended it is a torn commit"
                }
                false => "",
            };
            format!("broken by {} of {}{wide}", human::count(*count), things())
        }
        Outcome::DoesNotApply { why } => format!("does not apply: it {why}"),
        Outcome::Failed { error } => format!("not judged: {error}"),
    }
}

/// What a proof came to, as the run directory holds it: one check per condition.
fn describe(step: &mut Step, report: &Report) {
    let looked_at: u64 = report.answers.iter().map(|answer| answer.looked_at).sum();
    step.summary.duration_s = report.duration.as_secs_f64();
    step.summary.rows = Some(looked_at);
    step.checks = report
        .answers
        .iter()
        .map(|answer| Check {
            name: answer.condition.code().to_string(),
            scope: answer.condition.says().to_string(),
            rows: answer.looked_at,
            result: match answer.outcome {
                Outcome::Kept => CheckResult::Ok,
                Outcome::Broken { .. } => CheckResult::Fail,
                Outcome::DoesNotApply { .. } | Outcome::Failed { .. } => CheckResult::Skipped,
            },
            detail: detail(answer),
            counterexamples: match &answer.outcome {
                Outcome::Broken { witnesses, .. } => witnesses.clone(),
                _ => Vec::new(),
            },
        })
        .collect();
    let count = |is: fn(&Outcome) -> bool| report.answers.iter().filter(|answer| is(&answer.outcome)).count();
    step.totals = fields(json!({
        "warehouses": report.warehouses,
        "orders_since_load": report.orders_since_load,
        "conditions_kept": count(|outcome| matches!(outcome, Outcome::Kept)),
        "conditions_broken": count(|outcome| matches!(outcome, Outcome::Broken { .. })),
        "conditions_not_judged": count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        "connections": report.jobs,
        "snapshots": report.snapshots,
        "not_covered": NOT_COVERED,
    }));
    step.verdict = Verdict { valid: true, reasons: vec![], notes: report.notes.clone() };
    for answer in &report.answers {
        if matches!(answer.outcome, Outcome::Broken { .. } | Outcome::Failed { .. }) {
            let says = answer.condition.says();
            step.verdict.invalidate(format!("{} ({says}): {}", answer.condition, detail(answer)));
        }
    }
}

/// The conditions as lines, broken ones with their first witnesses.
fn lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for answer in &report.answers {
        lines.push(format!(
            "  {:3}  {}: {}",
            answer.condition.code(),
            answer.condition.says(),
            detail(answer)
        ));
        if let Outcome::Broken { count, witnesses } = &answer.outcome {
            lines.extend(witnesses.iter().take(PRINTED_MAX).map(|witness| format!("         {witness}")));
            let shown = witnesses.len().min(PRINTED_MAX) as u64;
            if *count > shown {
                lines.push(format!("         and {} more", human::count(*count - shown)));
            }
        }
    }
    lines.push(format!("  not covered: {NOT_COVERED}"));
    lines
}
