//! `prove check`: which isolation levels a history refutes.

use super::Prove;
use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::recording::Recording;
use crate::verbs::load::{cpus, fields};
use ::prove::check::{Level, Options, Report, check};
use ::prove::history::History;
use record::model::{Check, CheckResult, Step};
use record::{Exit, State};
use serde_json::json;
use std::path::Path;

impl Prove {
    pub(super) fn run_check(self, context: &Context) -> Result<Exit, Failure> {
        let Some(file) = self.connection.target.as_deref() else {
            return Err(Failure::usage("prove check: FILE is missing")
                .hint("name a history: pgfathom prove check runs/.../history.bin"));
        };
        let history = History::open(Path::new(file))?;
        if let Some(path) = &self.elle {
            super::history::export(&history, path)?;
        }
        let recording = Recording::begin(context, &self.directory, "prove", "check")?;
        let dir = recording.dir();
        let step = dir.begin_step("prove", "check")?;
        recording.keep(dir.edit_step(&step, |step| {
            step.parameters = fields(json!({
                "history": file,
                "levels": self.levels.iter().map(|level| level.name()).collect::<Vec<_>>(),
            }));
        }));
        let report = check(&history, &Options { threads: cpus(), ..Options::default() });
        let asked = &self.levels;
        recording.keep(dir.edit_step(&step, |step| describe(step, &report, asked)));
        recording.keep(dir.end_step(&step, State::Finished));
        if context.format == Format::Text {
            for line in lines(&report, asked) {
                context.terminal.data(&line);
            }
        }
        for note in &report.notes {
            context.terminal.say(&format!("note: {note}"));
        }
        recording.finish(State::Finished)?;
        let is_seen = self.strict && !report.counts.is_empty();
        let is_refuted = is_seen || asked.iter().any(|level| report.refutes(*level));
        Ok(if is_refuted { Exit::Difference } else { Exit::Ok })
    }
}

fn names(levels: &[Level]) -> String {
    match levels {
        [] => "none".to_string(),
        levels => levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", "),
    }
}

fn lines(report: &Report, asked: &[Level]) -> Vec<String> {
    let by_outcome: Vec<String> =
        report.txns.iter().map(|(outcome, count)| format!("{} {outcome}", human::count(*count))).collect();
    let mut lines = vec![
        format!("history   {} operations; transactions: {}", human::count(report.ops), by_outcome.join(", ")),
        format!("refuted   {}, and all that is stronger", names(&report.weakest_refuted())),
        format!("not refuted  up to {}", names(&report.strongest_left())),
    ];
    if report.refuted.is_empty() {
        lines[1] = "refuted   nothing".to_string();
    }
    for level in asked {
        let answer = if report.refutes(*level) { "refuted" } else { "not refuted" };
        lines.push(format!("asked     {level}: {answer}"));
    }
    for (code, count) in &report.counts {
        lines.push(format!("  {:>6}  {code}", human::count(*count)));
    }
    for witness in &report.witnesses {
        lines.push(String::new());
        lines.extend(witness.text.iter().cloned());
    }
    lines
}

/// One check per level: those that were not asked for are told, and nobody fails by them.
fn describe(step: &mut Step, report: &Report, asked: &[Level]) {
    let txns: u64 = report.txns.values().sum();
    step.summary.rows = Some(report.ops);
    step.checks = Level::all()
        .map(|level| {
            let is_refuted = report.refutes(level);
            let witness = report
                .witnesses
                .iter()
                .find(|witness| witness.finding.refutes().any(|weaker| weaker.is_implied_by(level)));
            Check {
                name: level.name(),
                scope: format!("{txns} transactions"),
                rows: report.ops,
                result: match (is_refuted, asked.contains(&level)) {
                    (false, _) => CheckResult::Ok,
                    (true, true) => CheckResult::Fail,
                    (true, false) => CheckResult::Skipped,
                },
                detail: match (is_refuted, witness) {
                    (false, _) => "not refuted".to_string(),
                    (true, Some(witness)) => format!("refuted by {}", witness.finding.code()),
                    (true, None) => "refuted".to_string(),
                },
                counterexamples: match (is_refuted, witness) {
                    (true, Some(witness)) => witness.text.clone(),
                    _ => Vec::new(),
                },
            }
        })
        .collect();
    step.totals = fields(json!({
        "operations": report.ops,
        "transactions": report.txns,
        "transactions_joined": report.joined,
        "edges": report.edges,
        "anomalies": report.counts,
        "refuted": report.weakest_refuted().iter().map(|level| level.name()).collect::<Vec<_>>(),
        "not_refuted": report.strongest_left().iter().map(|level| level.name()).collect::<Vec<_>>(),
    }));
    step.verdict.notes.clone_from(&report.notes);
    for level in asked.iter().filter(|level| report.refutes(**level)) {
        step.verdict.invalidate(format!("{level} is refuted"));
    }
}
