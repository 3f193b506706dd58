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
        if history.txns().is_empty() {
            return Err(Failure::usage(format!("{file} holds no transaction: there is nothing to judge")).hint(
                "an operation is a map with type, process and value; those of the process nemesis are no transactions",
            ));
        }
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
        recording.finish_with(State::Finished, answers(&report, asked))?;
        let is_seen = self.strict && !report.counts.is_empty();
        Ok(match () {
            () if is_seen || asked.iter().any(|level| report.refutes(*level)) => Exit::Difference,
            () if report.acknowledged == 0 => Exit::CannotTell,
            () if asked.iter().any(|level| report.is_open(*level)) => Exit::CannotTell,
            () => Exit::Ok,
        })
    }
}

fn names(levels: &[Level]) -> String {
    match levels {
        [] => "none".to_string(),
        levels => levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", "),
    }
}

/// Why nothing is known about some levels.
fn incomplete(report: &Report) -> Option<String> {
    let incomplete = &report.incomplete;
    let keys = human::count(incomplete.keys);
    (!incomplete.levels.is_empty()).then(|| format!("version order of {keys} keys unknown"))
}

/// One level in one line.
fn answer(report: &Report, level: Level) -> String {
    let by = report
        .witnesses
        .iter()
        .find(|witness| witness.finding.refutes().any(|weaker| weaker.is_implied_by(level)))
        .map(|witness| witness.finding.code());
    match (report.refutes(level), by, incomplete(report).filter(|_| report.is_open(level))) {
        (true, Some(by), _) => format!("refuted by {by}"),
        (true, None, _) => "refuted".to_string(),
        (false, _, Some(why)) => format!("not refuted, but incomplete: {why}"),
        (false, _, None) => "not refuted".to_string(),
    }
}

/// What `--format json` prints beside the summary.
fn answers(report: &Report, asked: &[Level]) -> serde_json::Map<String, serde_json::Value> {
    let levels: Vec<serde_json::Value> = Level::all()
        .map(|level| {
            json!({
                "name": level.name(),
                "refuted": report.refutes(level),
                "incomplete": report.is_open(level),
                "asked": asked.contains(&level),
                "detail": answer(report, level),
            })
        })
        .collect();
    let anomalies: Vec<serde_json::Value> = report
        .counts
        .iter()
        .map(|(code, count)| {
            let witnesses: Vec<_> =
                report.witnesses.iter().filter(|witness| witness.finding.code() == *code).collect();
            let refutes: Vec<String> = witnesses
                .first()
                .map(|witness| witness.finding.refutes().map(Level::name).collect())
                .unwrap_or_default();
            let texts: Vec<&[String]> = witnesses.iter().map(|witness| witness.text.as_slice()).collect();
            json!({ "code": code, "count": count, "refutes": refutes, "witnesses": texts })
        })
        .collect();
    fields(json!({
        "operations": report.ops,
        "transactions_by_outcome": report.txns,
        "levels": levels,
        "anomalies": anomalies,
        "weakest_refuted": report.weakest_refuted().iter().map(|level| level.name()).collect::<Vec<_>>(),
        "strongest_not_refuted": report.strongest_left().iter().map(|level| level.name()).collect::<Vec<_>>(),
        "incomplete": incomplete(report).map(|why| json!({
            "reason": why,
            "keys": report.incomplete.keys,
            "levels": report.incomplete.levels.iter().map(|level| level.name()).collect::<Vec<_>>(),
        })),
        "notes": report.notes,
    }))
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
    if let Some(why) = incomplete(report) {
        let open = &report.incomplete.levels;
        let weakest = open
            .iter()
            .filter(|level| !open.iter().any(|other| other != *level && other.is_implied_by(**level)));
        let weakest: Vec<Level> = weakest.copied().collect();
        lines.push(format!("incomplete: {why}; anomalies may have been missed from {} on", names(&weakest)));
    }
    for level in asked {
        lines.push(format!("asked     {level}: {}", answer(report, *level)));
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
                    (false, _) if report.is_open(level) => CheckResult::Skipped,
                    (false, _) => CheckResult::Ok,
                    (true, true) => CheckResult::Fail,
                    (true, false) => CheckResult::Skipped,
                },
                detail: answer(report, level),
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
        "incomplete_keys": report.incomplete.keys,
        "incomplete": report.incomplete.levels.iter().map(|level| level.name()).collect::<Vec<_>>(),
        "not_refuted": report.strongest_left().iter().map(|level| level.name()).collect::<Vec<_>>(),
    }));
    step.verdict.notes.clone_from(&report.notes);
    for level in asked.iter().filter(|level| report.refutes(**level)) {
        step.verdict.invalidate(format!("{level} is refuted"));
    }
}
