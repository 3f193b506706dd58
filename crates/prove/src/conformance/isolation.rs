//! Anomalies of each isolation level, and what commits cost.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Agreement, Line, Outcome, Stage};
use crate::hermitage::cluster::{self, Chance};
use crate::hermitage::{Answer, CASES, Case, HermitageError, LEVELS, Verdict, run};
use crate::live::wide::{self, Report};
use crate::live::{LiveError, Options};
use crate::promise::ROUND_TRIPS_OFF_MAX;

/// What is left to chance takes this long.
const CHANCE: Chance = Chance { sums: Duration::from_secs(1), reads: Duration::from_secs(1), seed: 1 };

/// The scripts of one server at each level, and those of clusters.
pub(super) fn check(stage: &mut Stage<'_>) -> Result<(), HermitageError> {
    let (site, stop) = (stage.site, stage.stop);
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let spec = &site.nodes[stage.entry].spec;
    run(spec, site.engine, &cases, &LEVELS, &mut |answer| add(stage, answer))?;
    if site.nodes.len() > 1 && !stage.is_stopped() {
        cluster::run(site, &CHANCE, stop, &mut |answer| add(stage, answer))?;
    }
    // Workloads under load, each with a control, are verbs of their own.
    for promise in site.engine.promises {
        let why = "prove bank, twin, skew, ack and verreg measure it under load".to_owned();
        stage.add("promises", promise.title, Outcome::NotChecked(why));
    }
    Ok(())
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
        (_, None) => Outcome::NotChecked(format!("the profile claims nothing; it {found}")),
        _ => Outcome::Agrees(found),
    };
    stage.add(format!("isolation: {}{level}", answer.case), format!("{}: {claimed}", answer.title), outcome);
}

/// The round trips of a commit: those of its protocol, and those that were measured by a delay between the nodes.
///
/// # Errors
/// As [`wide::run`].
pub fn commits(
    site: &crate::fault::Site,
    options: &Options,
    waits_for_standbys: bool,
    stop: &AtomicBool,
) -> Result<Vec<Line>, LiveError> {
    let report = wide::run(site, options, waits_for_standbys, stop)?;
    Ok(report.costs.iter().map(|cost| commit(&report, cost)).collect())
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
