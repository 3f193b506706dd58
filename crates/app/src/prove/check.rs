//! `prove check`: which isolation levels a history refutes.

use crate::context::Context;
use crate::context::cpus;
use crate::failure::Failure;
use crate::human;
use crate::recording::fields;
use crate::skeleton::{Opening, Outcome};
use ::prove::check::{Level, Options, Report, check};
use ::prove::history::History;
use record::model::{Check, CheckResult, Step};
use record::totals::HistoryTotals;
use record::{Exit, State};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Which history to check.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A history of ours, or of Elle.
    pub file: String,
    /// Levels that must not be refuted.
    pub levels: Vec<Level>,
    /// Any anomaly is a difference.
    pub strict: bool,
    /// Also write the history for Elle.
    pub elle: Option<PathBuf>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// Checks the history and writes the run directory.
    ///
    /// # Errors
    /// When the history cannot be read or holds nothing. A refuted level is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let file = self.file.as_str();
        let history = History::open(Path::new(file))?;
        if history.txns().is_empty() {
            return Err(Failure::usage(format!("{file} has no transaction: there is nothing to check")).hint(
                "an operation is a map with type, process and value; those of the process nemesis are not transactions",
            ));
        }
        if let Some(path) = &self.elle {
            super::history::export(&history, path)?;
        }
        let opening = Opening::new("prove", "check", self.directory.as_deref());
        opening.in_one_step(opening.begin(context)?, |recording, step| {
            let dir = recording.dir();
            let requested = &self.levels;
            recording.keep(dir.edit_step(step, |step| {
                step.parameters = fields(json!({
                    "history": file,
                    "levels": requested.iter().map(|level| level.name()).collect::<Vec<_>>(),
                }));
            }));
            let report = check(&history, &Options { threads: cpus(), ..Options::default() });
            recording.keep(dir.edit_step(step, |step| describe(step, &report, requested)));
            recording.keep(dir.end_step(step, State::Finished));
            let is_seen = self.strict && !report.counts.is_empty();
            let exit = match () {
                () if is_seen || requested.iter().any(|level| report.refutes(*level)) => Exit::Difference,
                () if report.acknowledged == 0 => Exit::CannotTell,
                () if requested.iter().any(|level| report.is_open(*level)) => Exit::CannotTell,
                () => Exit::Ok,
            };
            Ok(Outcome {
                lines: lines(&report, requested),
                messages: report.notes.iter().map(|note| format!("note: {note}")).collect(),
                fields: answers(&report, requested),
                ..Outcome::plain(State::Finished, exit)
            })
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
fn answers(report: &Report, requested: &[Level]) -> serde_json::Map<String, serde_json::Value> {
    let levels: Vec<serde_json::Value> = Level::all()
        .map(|level| {
            json!({
                "name": level.name(),
                "refuted": report.refutes(level),
                "incomplete": report.is_open(level),
                "asked": requested.contains(&level),
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

fn lines(report: &Report, requested: &[Level]) -> Vec<String> {
    let by_outcome: Vec<String> =
        report.txns.iter().map(|(outcome, count)| format!("{} {outcome}", human::count(*count))).collect();
    let mut lines = vec![
        format!("history   {} operations; transactions: {}", human::count(report.ops), by_outcome.join(", ")),
        format!("refuted   {}, and every stronger level", names(&report.weakest_refuted())),
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
        lines.push(format!("incomplete: {why}; anomalies from {} on may have been missed", names(&weakest)));
    }
    for level in requested {
        lines.push(format!("level     {level}: {}", answer(report, *level)));
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

/// One check per level: those that were not requested are reported, but cannot fail.
fn describe(step: &mut Step, report: &Report, requested: &[Level]) {
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
                result: match (is_refuted, requested.contains(&level)) {
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
    let names = |levels: &[Level]| levels.iter().map(|level| level.name()).collect();
    step.set_totals(&HistoryTotals {
        operations: report.ops,
        transactions: report.txns.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        transactions_joined: report.joined,
        edges: report.edges,
        anomalies: report.counts.clone(),
        refuted: names(&report.weakest_refuted()),
        incomplete_keys: report.incomplete.keys,
        incomplete: names(&report.incomplete.levels),
        not_refuted: names(&report.strongest_left()),
    });
    step.verdict.notes.clone_from(&report.notes);
    for level in requested.iter().filter(|level| report.refutes(**level)) {
        step.verdict.invalidate(format!("{level} is refuted"));
    }
}
