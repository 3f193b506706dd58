//! `prove tpcc`: the consistency conditions of a benchmark.

use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use crate::recording::fields;
use crate::skeleton::{self, NoOutcome, Opening, Target};
use crate::watching::Watching;
use crate::{human, terminal};
use ::prove::conditions::{
    Answer, Condition, Conditions, Options, Outcome, Progress, ProveError, Report, prove_on,
};
use record::model::{CANNOT_TELL, Check, CheckResult, Step};
use record::totals::ConditionTotals;
use record::{Exit, State, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Connections at most.
const JOBS_MAX: usize = 256;
/// Witnesses of one condition printed on the terminal; run.json holds more.
const PRINTED_MAX: usize = 5;

/// Which conditions of which benchmark to prove.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The benchmark's.
    pub benchmark: &'static dyn Conditions,
    /// Where the target is.
    pub address: Address,
    /// These; all of them when empty.
    pub conditions: Vec<Condition>,
    /// Of this range, for TPC-C of warehouses; `None`: of all.
    pub range: Option<(i64, i64)>,
    /// Connections.
    pub jobs: usize,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    pub watching: Watching,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// Proves the conditions and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to prove, or no answer at all. A broken condition is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.address.explained(self.proved(context))
    }

    fn proved(&self, context: &Context) -> Result<Exit, Failure> {
        let benchmark = self.benchmark;
        if let Some(other) = self.conditions.iter().find(|one| !benchmark.all().contains(one)) {
            return Err(Failure::usage(format!(
                "--conditions: {} has no condition {other}",
                benchmark.name()
            ))
            .hint(format!("write {}", benchmark.codes())));
        }
        let cluster = self.address.cluster(context)?;
        let mut control = connect::control::connect(&cluster.nodes[0].spec)?;
        let opening =
            Opening::new("prove", benchmark.name(), self.directory.as_deref()).watched(self.watching);
        let recording = opening.open(context, Target::node(&cluster, 0), &mut control)?;
        drop(control);
        let jobs = self.jobs.min(JOBS_MAX);
        let conditions = match self.conditions.as_slice() {
            [] => benchmark.all().iter().copied().collect(),
            some => some.iter().copied().collect(),
        };
        let options = Options { jobs, conditions, range: self.range };
        opening.in_one_step(recording, |recording, step| {
            let dir = recording.dir();
            recording.keep(dir.edit_step(step, |step| {
                step.parameters = fields(json!({
                    "jobs": jobs,
                    "conditions": options.conditions.iter().map(|one| one.code()).collect::<Vec<_>>(),
                    benchmark.units(): self.range.map(|(from, to)| format!("{from}-{to}")),
                }));
            }));
            let stop = context.stop.flag();
            let mut progress = terminal::Progress::new(context.terminal.as_ref(), self.progress);
            let proved = prove_on(benchmark, &cluster, &options, &stop, &mut |now: Progress| {
                let text = || {
                    format!(
                        "prove  {} of {} queries  {} values checked",
                        now.done,
                        now.total,
                        human::count(now.looked_at)
                    )
                };
                progress.show(|_| text(), text);
            });
            context.terminal.end_progress();
            let report = proved.map_err(no_outcome)?;
            recording.keep(dir.edit_step(step, |step| describe(step, benchmark, &report)));
            recording.keep(dir.end_step(step, State::Finished));
            let exit = match () {
                () if report.is_broken() => Exit::Difference,
                () if report.has_failed() => Exit::CannotTell,
                () => Exit::Ok,
            };
            let mut outcome = skeleton::Outcome::new(State::Finished, exit);
            outcome.lines = lines(benchmark, &report);
            outcome.messages = report.notes.iter().map(|note| format!("note: {note}")).collect();
            Ok(outcome)
        })
    }
}

/// A proof that ended early.
fn no_outcome(error: ProveError) -> NoOutcome {
    match error {
        ProveError::Interrupted => {
            NoOutcome::Interrupted("interrupted before a verdict; nothing was changed")
        }
        error if is_refusal(&error) => NoOutcome::Refused(error.into()),
        error => NoOutcome::Failed(error.into()),
    }
}

fn is_refusal(error: &ProveError) -> bool {
    match error {
        ProveError::NoTable { .. }
        | ProveError::NotATable { .. }
        | ProveError::Empty { .. }
        | ProveError::NotTrusted(_) => true,
        ProveError::OnNode { source, .. } => is_refusal(source),
        _ => false,
    }
}

/// The answer about one condition in one line.
fn detail(benchmark: &dyn Conditions, answer: &Answer) -> String {
    let things = || answer.condition.counted(answer.looked_at);
    match &answer.outcome {
        Outcome::Kept => format!("kept by {}", things()),
        Outcome::Broken { count, .. } => {
            let wide = match answer.condition.is_wide() {
                true => format!(
                    "; it spans {}: without one snapshot for all shards this is normal while transactions run; after they have \
                     ended it is a torn commit",
                    benchmark.units()
                ),
                false => String::new(),
            };
            format!("broken by {} of {}{wide}", human::count(*count), things())
        }
        Outcome::DoesNotApply { why } => format!("does not apply: it {why}"),
        Outcome::Failed { error } => format!("not judged: {error}"),
    }
}

/// What a proof came to, as the run directory holds it: one check per condition.
fn describe(step: &mut Step, benchmark: &dyn Conditions, report: &Report) {
    let looked_at: u64 = report.answers.iter().map(|answer| answer.looked_at).sum();
    step.summary.duration_s = report.duration.as_secs_f64();
    step.summary.rows = Some(looked_at);
    step.checks = report
        .answers
        .iter()
        .map(|answer| Check {
            name: answer.condition.code().to_string(),
            scope: answer.condition.description().to_string(),
            rows: answer.looked_at,
            result: match answer.outcome {
                Outcome::Kept => CheckResult::Ok,
                Outcome::Broken { .. } => CheckResult::Fail,
                Outcome::DoesNotApply { .. } | Outcome::Failed { .. } => CheckResult::Skipped,
            },
            detail: detail(benchmark, answer),
            counterexamples: match &answer.outcome {
                Outcome::Broken { witnesses, .. } => witnesses.clone(),
                _ => Vec::new(),
            },
        })
        .collect();
    let count =
        |is: fn(&Outcome) -> bool| report.answers.iter().filter(|answer| is(&answer.outcome)).count() as u64;
    step.set_totals(&ConditionTotals {
        // Named after the only unit that there was when directories were first written.
        warehouses: Some(report.extent.count).filter(|_| benchmark.units() == "warehouses"),
        orders_since_load: report.extent.added.unwrap_or(0),
        conditions_kept: Some(count(|outcome| matches!(outcome, Outcome::Kept))),
        conditions_broken: count(|outcome| matches!(outcome, Outcome::Broken { .. })),
        conditions_not_judged: count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        connections: report.jobs,
        snapshots: Some(report.snapshots as u64),
        not_covered: benchmark.not_covered().to_owned(),
    });
    step.verdict = Verdict { valid: true, reasons: vec![], notes: report.notes.clone() };
    for answer in &report.answers {
        let begin = match answer.outcome {
            Outcome::Broken { .. } => String::new(),
            Outcome::Failed { .. } => format!("{CANNOT_TELL}: "),
            _ => continue,
        };
        let description = answer.condition.description();
        step.verdict.invalidate(format!(
            "{begin}{} ({description}): {}",
            answer.condition,
            detail(benchmark, answer)
        ));
    }
}

/// The conditions as lines, broken ones with their first witnesses.
fn lines(benchmark: &dyn Conditions, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for answer in &report.answers {
        lines.push(format!(
            "  {:3}  {}: {}",
            answer.condition.code(),
            answer.condition.description(),
            detail(benchmark, answer)
        ));
        if let Outcome::Broken { count, witnesses } = &answer.outcome {
            lines.extend(witnesses.iter().take(PRINTED_MAX).map(|witness| format!("         {witness}")));
            let shown = witnesses.len().min(PRINTED_MAX) as u64;
            if *count > shown {
                lines.push(format!("         and {} more", human::count(*count - shown)));
            }
        }
    }
    lines.push(format!("  not covered: {}", benchmark.not_covered()));
    lines
}
