//! Anomalies of each isolation level, and what commits cost.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Agreement, Line, Outcome, Stage};
use crate::fault::Site;
use crate::hermitage::cluster::{self, Chance};
use crate::hermitage::{Answer, CASES, Case, HermitageError, LEVELS, Verdict, run};
use crate::live::Options;
use crate::live::wide::{self, Report};
use crate::promise::ROUND_TRIPS_OFF_MAX;

/// What is left to chance takes this long.
const CHANCE: Chance = Chance { sums: Duration::from_secs(1), reads: Duration::from_secs(1), seed: 1 };

/// The scripts of one server at each level, and those of clusters.
pub(super) fn check(stage: &mut Stage<'_>) {
    let (site, stop) = (stage.site, stage.stop);
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let spec = &site.nodes[stage.entry].spec;
    let played = run(spec, site.engine, &cases, &LEVELS, stop, &mut |answer| add(stage, answer));
    ended(stage, "isolation: one server", played);
    if site.nodes.len() > 1 && !stage.is_stopped() {
        let played = cluster::run(site, &CHANCE, stop, &mut |answer| add(stage, answer));
        ended(stage, "isolation: cluster", played);
        for note in site.take_notes() {
            stage.add("isolation: cluster", "every node takes part", Outcome::NotChecked(note));
        }
    }
    // Workloads under load, each with a control, are verbs of their own.
    for promise in site.engine.promises {
        let why = "prove bank, twin, skew, ack and verreg measure it under load".to_owned();
        stage.add("promises", promise.title, Outcome::NotChecked(why));
    }
}

/// Scripts that could not go on are no answer, and no reason to stop.
fn ended(stage: &mut Stage<'_>, check: &str, played: Result<Vec<Answer>, HermitageError>) {
    if let Err(error) = played {
        stage.add(check, "the scripts can be run", Outcome::NotChecked(error.to_string()));
    }
}

fn add(stage: &mut Stage<'_>, answer: &Answer) {
    let level = answer.level.map(|level| format!(" at {level}")).unwrap_or_default();
    let claimed = match answer.expected {
        Some(true) => "may happen",
        Some(false) => "must not happen",
        None => "no claim",
    };
    let happened = if answer.happened == Some(true) { "happens" } else { "does not happen" };
    let found = format!("{happened}: {}", answer.line);
    let outcome = match (answer.verdict(), answer.expected) {
        (Verdict::NotTested | Verdict::NotPossible, _) => Outcome::NotChecked(answer.line.clone()),
        (Verdict::Broken, _) => Outcome::Differs(found),
        (_, None) => Outcome::NoClaim(found),
        (Verdict::AllowedNotSeen, _) => {
            Outcome::NotChecked(format!("it was not seen this time, which proves nothing: {}", answer.line))
        }
        _ => Outcome::Agrees(found),
    };
    stage.add(format!("isolation: {}{level}", answer.case), format!("{}: {claimed}", answer.title), outcome);
}

/// The round trips of a commit: those of its protocol, and those that were measured by a delay between the nodes. A count that differs is measured a second
/// time: a protocol that is not the engine's shows the same count again, and what else the host does shows once, or another one.
pub fn commits(site: &Site, options: &Options, waits_for_standbys: bool, stop: &AtomicBool) -> Vec<Line> {
    let timed = || timed(site, options, waits_for_standbys, stop);
    let lines = timed();
    let differs = |line: &Line| line.result == Agreement::Differs;
    if !lines.iter().any(|(line, _)| differs(line)) {
        return lines.into_iter().map(|(line, _)| line).collect();
    }
    let again = timed();
    let both = std::iter::zip(lines, again);
    both.map(|((first, one), (second, other))| match (differs(&first), differs(&second), one, other) {
        (true, true, Some(one), Some(other)) => confirmed(second, one, other),
        (true, ..) => second,
        (false, ..) => first,
    })
    .collect()
}

/// The line of a second count that differs from the claim as the first did, if both are the same; else neither counts anything.
fn confirmed(line: Line, one: f64, other: f64) -> Line {
    if (one - other).abs() <= ROUND_TRIPS_OFF_MAX {
        return line;
    }
    let why = format!(
        "two measurements counted {one:.2} and {other:.2} round trips: other work of the hosts hides them; repeat this on hosts at rest"
    );
    Line { found: String::new(), result: Agreement::NotChecked, why, ..line }
}

/// A line for each kind of commit, with its measured round trips.
fn timed(
    site: &Site,
    options: &Options,
    waits_for_standbys: bool,
    stop: &AtomicBool,
) -> Vec<(Line, Option<f64>)> {
    match wide::run(site, options, waits_for_standbys, stop) {
        Ok(report) => report.costs.iter().map(|cost| (commit(&report, cost), cost.measured)).collect(),
        Err(error) => {
            let line = Line {
                check: "commit".to_owned(),
                claimed: "commits can be timed".to_owned(),
                found: String::new(),
                result: Agreement::NotChecked,
                why: error.to_string(),
            };
            vec![(line, None)]
        }
    }
}

fn commit(report: &Report, cost: &wide::Cost) -> Line {
    let (found, result, why) = match (cost.measured, &report.undelayed) {
        (Some(measured), _) => {
            let agrees = (cost.predicted - measured).abs() <= ROUND_TRIPS_OFF_MAX;
            let result = if agrees { Agreement::Agrees } else { Agreement::Differs };
            (format!("{measured:.2} round trips"), result, String::new())
        }
        (None, Some(why)) => (String::new(), Agreement::NotChecked, why.clone()),
        (None, None) => (String::new(), Agreement::NotChecked, "the delay had no visible effect".to_owned()),
    };
    Line {
        check: format!("commit: rows on {} of the nodes", cost.nodes.len()),
        claimed: format!("{} round trips: {}", cost.predicted, cost.protocol),
        found,
        result,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_differs_is_one_that_shows_twice() {
        let line = Line {
            check: "commit".to_owned(),
            claimed: "1 round trips".to_owned(),
            found: "3.05 round trips".to_owned(),
            result: Agreement::Differs,
            why: String::new(),
        };
        assert_eq!(confirmed(line.clone(), 3.0, 3.05), line);
        let noise = confirmed(line, 3.2, 6.7);
        assert_eq!(noise.result, Agreement::NotChecked);
        assert!(noise.found.is_empty() && noise.why.contains("3.20 and 6.70"), "{noise:?}");
    }
}
