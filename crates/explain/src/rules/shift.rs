//! GEN-07: a moment from which on a transaction takes another time. It names no cause; it shows where to look for what changed.

use crate::case::{Case, Lines};
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::finding::{Level, Severity, Window};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "GEN-07",
    title: "from some moment on a transaction takes longer",
    needs: &[Field("server", "active_ms"), Field("server", "xact_commit")],
    limits: "twice the session time for each transaction, from one moment on, 5 readings before and after it, p < 0.01 by permutation; not on a node \
        that applies changes of others (ours)",
    judge: shifted,
    links: &["docs/explain.md"],
}];

/// Times the earlier session time of a transaction.
const FACTOR_MIN: f64 = 2.0;
/// Readings on either side.
const READINGS_MIN: usize = 5;
/// Chance, by permutation.
const P_MAX: f64 = 0.01;
/// Readings with fewer transactions than this are too few to divide by.
const TRANSACTIONS_MIN: f64 = 5.0;
/// Average active sessions: an idle server has nothing to explain.
const ACTIVE_MIN: f64 = 0.5;

/// Session time of a transaction at each reading: its end in microseconds, milliseconds, and average active sessions.
fn readings(case: &Case, server: &Lines) -> Vec<(u64, f64, f64)> {
    let windows = node_time::windows(case);
    let of = |field: &str| server.series(field).map(|series| series.within(&windows));
    let (Some(active), Some(commits)) = (of("active_ms"), of("xact_commit")) else { return vec![] };
    // The server publishes its counters about once a second, so shorter readings show nothing in one and twice as much in the next.
    let (active, commits) = (active.coarse(COARSE_US), commits.coarse(COARSE_US));
    let both = active.points().iter().filter_map(|point| {
        let commits = commits.points().iter().find(|other| other.to_us == point.to_us)?.sum;
        let sessions = point.sum / (point.interval_us as f64 / 1e3).max(1.0);
        (commits >= TRANSACTIONS_MIN).then(|| (point.to_us, point.sum / commits, sessions))
    });
    both.filter(|(_, ms, _)| *ms > 0.0).collect()
}

/// The shortest reading.
const COARSE_US: u64 = 1_500_000;

fn shifted(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        // Transactions of workers that apply others' changes are counted, their time is not.
        if case.applies(server.place) {
            continue;
        }
        let readings = readings(case, server.lines);
        let logarithms: Vec<f64> = readings.iter().map(|(_, ms, _)| ms.ln()).collect();
        let Some(change) = statistics::change(&logarithms).filter(|change| {
            change.p < P_MAX && change.at >= READINGS_MIN && logarithms.len() - change.at >= READINGS_MIN
        }) else {
            continue;
        };
        let factor = (change.after - change.before).exp();
        let after = &readings[change.at..];
        let active = after.iter().map(|(_, _, sessions)| sessions).sum::<f64>() / after.len() as f64;
        if factor < FACTOR_MIN || active < ACTIVE_MIN {
            continue;
        }
        let (first_us, end_us) = (readings[0].0, readings[readings.len() - 1].0);
        let moment_us = readings[change.at - 1].0;
        let second = |us: u64| us / 1_000_000;
        claims.push(
            Claim::new(
                Severity::Note,
                Level::CoOccurrence,
                format!(
                    "{}: from second {} on a transaction takes {} of session time, before {}",
                    server.place,
                    second(moment_us),
                    units::us(change.after.exp() * 1e3),
                    units::us(change.before.exp() * 1e3)
                ),
            )
            .on_node(server.place)
            .during([Window::new(moment_us, end_us)])
            .number("factor", factor)
            .number("p", change.p)
            .because(format!(
                "{} readings before, {} after; by chance with p = {:.3}",
                change.at,
                after.len(),
                change.p
            ))
            .lacking("what changed: compare both parts")
            .remedy(
                "compare both parts of the recording: statements, plans, settings, other programs",
                &[&format!(
                    "$ pgfathom explain --during {}-{} --against {}-{} RUN",
                    second(moment_us) + 1,
                    second(end_us) + 1,
                    second(first_us),
                    second(moment_us)
                )],
            ),
        );
    }
    Answer::of(claims, || "session time for each transaction, second by second".to_string())
}
