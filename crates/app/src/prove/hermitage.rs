//! `prove hermitage`: scripted interleavings that name the isolation level of a server, and what a cluster adds.

use super::live::{Plan, shown_notes};
use super::testbed::Testbed;
use super::trial::Trial;
use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::recording::{Recording, fields};
use ::engines::profile::Isolation;
use ::prove::hermitage::cluster::{self, Chance};
use ::prove::hermitage::{Answer, CASES, Case, HermitageError, LEVELS, Verdict, run};
use ::prove::promise as verdicts;
use connect::cluster_file::Role;
use record::model::{Check, CheckResult, Step};
use record::totals::ScriptTotals;
use record::{State, promise};
use serde_json::json;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What is left to chance takes this part of the time that a workload takes, at each level.
const CHANCE_PART: u32 = 5;
/// Reads after acknowledgements take so long at most.
const READS_MAX: Duration = Duration::from_secs(2);

impl Plan {
    /// Plays every script that this cluster can have, as a step of the run directory. `has_sums`: fractured sums by chance, too; where the other workloads run
    /// beside, `bank` is that.
    pub(super) fn play(
        &self,
        context: &Context,
        recording: &Recording<'_>,
        testbed: &Testbed,
        (trial, has_sums): (&Trial, bool),
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let dir = recording.dir();
        let site = &testbed.site;
        let step = dir.begin_step("prove", "hermitage")?;
        recording.keep(dir.edit_step(&step, |step| {
            step.parameters = fields(json!({
                "cluster": testbed.name,
                "engine": site.engine.name(),
                "nodes": site.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
                "cases": CASES.iter().map(|case| case.code).collect::<Vec<_>>(),
            }));
        }));
        context.terminal.say(format!("prove hermitage {}", testbed.name).trim_end());
        let begin = Instant::now();
        let part = trial.time / CHANCE_PART;
        let chance = Chance {
            sums: if has_sums { part } else { Duration::ZERO },
            reads: part.min(READS_MAX),
            seed: self.random_seed.unwrap_or(1),
        };
        let answers = answers(context, testbed, &chance, stop)?;
        let notes = shown_notes(context, &testbed.site);
        recording.keep(dir.edit_step(&step, |step| {
            step.summary.duration_s = begin.elapsed().as_secs_f64();
            step.summary.rows = Some(answers.len() as u64);
            describe(step, &answers);
            step.promises = verdicts::hermitage(site.engine, &answers, &testbed.name);
            step.verdict = promise::verdict(step);
            step.verdict.notes.extend(notes);
        }));
        recording.keep(dir.end_step(&step, State::Finished));
        Ok(())
    }
}

/// The scripts of one server, then the cases of the cluster, each reported as it comes.
fn answers(
    context: &Context,
    testbed: &Testbed,
    chance: &Chance,
    stop: &AtomicBool,
) -> Result<Vec<Answer>, HermitageError> {
    let site = &testbed.site;
    let mut report = |answer: &Answer| {
        if context.format == Format::Text {
            context.terminal.data(&line(answer));
        }
    };
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let spec = &site.nodes[site.primary()].spec;
    let mut answers = run(spec, site.engine, &cases, &LEVELS, stop, &mut report)?;
    if site.nodes.len() > 1 || site.nodes[0].role != Role::Primary {
        answers.extend(cluster::run(site, chance, stop, &mut report)?);
    }
    let broken = answers.iter().filter(|answer| answer.verdict() == Verdict::Broken);
    for answer in broken.filter(|_| context.format == Format::Text) {
        context.terminal.data(&format!("\n{}, to repeat in psql:", named(answer)));
        answer.script.iter().for_each(|line| context.terminal.data(&format!("  {line}")));
    }
    Ok(answers)
}

fn level_of(answer: &Answer) -> &'static str {
    answer.level.map_or("", Isolation::name)
}

/// The case and its level.
fn named(answer: &Answer) -> String {
    match answer.level {
        None => answer.case.to_owned(),
        Some(level) => format!("{} at {level}", answer.case),
    }
}

fn line(answer: &Answer) -> String {
    let verdict = match (answer.verdict(), answer.expected) {
        (Verdict::ByDesign, None) => "happens",
        (Verdict::AllowedNotSeen, None) => "does not happen",
        (verdict, _) => verdict.description(),
    };
    format!("{:18}  {:15}  {verdict:17}  {}", answer.case, level_of(answer), answer.line)
}

/// One check for each script, beside the promises that they come to.
fn describe(step: &mut Step, answers: &[Answer]) {
    step.checks = answers
        .iter()
        .map(|answer| Check {
            name: format!("{} {}", answer.case, level_of(answer)).trim_end().to_string(),
            scope: answer.title.to_string(),
            rows: answer.counted.map_or(1, |(n, _, _)| n),
            result: match answer.verdict() {
                Verdict::Kept | Verdict::ByDesign | Verdict::AllowedNotSeen => CheckResult::Ok,
                Verdict::Broken => CheckResult::Fail,
                Verdict::NotTested | Verdict::NotPossible => CheckResult::Skipped,
            },
            detail: format!("{}: {}", answer.verdict().description(), answer.line),
            counterexamples: match answer.verdict() {
                Verdict::Broken => answer.script.clone(),
                _ => Vec::new(),
            },
        })
        .collect();
    let count = |verdict: Verdict| answers.iter().filter(|answer| answer.verdict() == verdict).count();
    step.set_totals(&ScriptTotals {
        kept: count(Verdict::Kept),
        by_design: count(Verdict::ByDesign),
        allowed_not_seen: count(Verdict::AllowedNotSeen),
        broken: count(Verdict::Broken),
        not_tested: count(Verdict::NotTested),
        not_possible: count(Verdict::NotPossible),
    });
}
