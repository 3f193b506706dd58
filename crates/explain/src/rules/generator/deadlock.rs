//! GEN-02: deadlocks, as the servers count them, as their logs have them, and as the client got them.

use super::parties::{self, parties};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::units;
use record::event;
use record::finding::{Level, Severity, Window};

/// Fewer are a matter of retrying.
const DEADLOCKS_MIN: f64 = 3.0;
/// Deadlocks per second of the recording above which the finding is high.
const DEADLOCKS_HIGH_PER_S: f64 = 0.1;
/// The number of a finding about deadlocks that no single server counts: their sessions wait on several nodes.
pub(crate) const OVER_NODES: &str = "over_nodes";

/// Statements that are evidence.
const EVIDENCE_MAX: usize = 4;

/// Deadlocks in the log of a node, from the first to the last.
fn logged_deadlocks(case: &Case, node: &str) -> Option<(f64, Window)> {
    let events: Vec<u64> = case
        .events_of(event::DEADLOCK)
        .filter(|event| Case::word_of(event, "node") == node)
        .map(|event| event.t_us)
        .collect();
    Some((events.len() as f64, Window::new(*events.first()?, *events.last()?)))
}

/// Deadlocks of a node, or of all if it is empty.
struct Deadlocks<'a> {
    node: &'a str,
    count: f64,
    window: Window,
    /// The first line of a log, or the error that a client got.
    detail: Option<&'a str>,
    is_over_nodes: bool,
}

pub(super) fn deadlocks(case: &Case) -> Answer {
    let mut found: Vec<Deadlocks<'_>> = vec![];
    let detail = case.events_of(event::DEADLOCK).next().map(|event| event.message.as_str());
    for thing in case.things("server") {
        let Some(series) = thing.lines.series("deadlocks") else { continue };
        let hits: Vec<Window> = series.stretches(0, |point| point.sum > 0.0);
        let counted = hits.first().zip(hits.last());
        let counted = counted.map(|(first, last)| (series.sum(), Window::new(first.from_us, last.to_us)));
        // Deadlocks over several nodes are the engine's, and stand in the log alone.
        let logged = logged_deadlocks(case, thing.place).filter(|(count, _)| *count > series.sum());
        let is_over_nodes = logged.is_some() && case.nodes().len() > 1;
        let all = logged.or(counted);
        found.extend(all.map(|(count, window)| Deadlocks {
            node: thing.place,
            count,
            window,
            detail,
            is_over_nodes,
        }));
    }
    if found.is_empty() {
        for (step, window) in case.driven() {
            let errors = step.errors.iter().filter(|error| error.sqlstate == "40P01");
            found.extend(errors.map(|error| Deadlocks {
                node: "",
                count: error.count as f64,
                window,
                detail: Some(error.first_message.as_str()),
                is_over_nodes: false,
            }));
        }
    }
    let claims = found.iter().map(|found| claim(case, found)).collect();
    Answer::of(claims, || "the servers' counters of deadlocks and the errors of driven steps".to_string())
}

fn claim(case: &Case, found: &Deadlocks<'_>) -> Claim {
    let Deadlocks { node, count, window, detail, is_over_nodes } = *found;
    let watched_s = (case.span.length_us() as f64 / 1e6).max(1.0);
    let per_s = count / (window.length_us().max(1_000_000) as f64 / 1e6);
    let late = super::late::noticed_late(case, node, count);
    let severity = match count / watched_s {
        _ if late.is_some() => Severity::High,
        _ if count < DEADLOCKS_MIN => Severity::Low,
        rate if rate > DEADLOCKS_HIGH_PER_S => Severity::High,
        _ => Severity::Medium,
    };
    let is_late = late.map_or(String::new(), |limit| {
        format!(
            ": each is noticed only after {limit} (deadlock_timeout), and until then its sessions wait, with all behind them"
        )
    });
    let parties = parties(case, node);
    let logged: f64 = logged_deadlocks(case, node).map_or(0.0, |(count, _)| count);
    let text = format!(
        "{} in {}{}{is_late}",
        units::counted(count as usize, "deadlock"),
        units::seconds(window.length_us() as f64 / 1e6),
        parties::in_words(&parties)
    );
    let claim = Claim::new(severity, Level::DiscriminatingCounter, text);
    let evidence = parties.iter().take(EVIDENCE_MAX).map(|party| party.evidence(logged));
    evidence
        .fold(claim, Claim::because)
        .on_node(node)
        .during([window])
        .number("deadlocks", count)
        .number("deadlocks_per_s", per_s)
        .with(is_over_nodes.then_some(1.0), |claim, one| {
            claim.number(OVER_NODES, one).because(
                "the counters of the servers have fewer: a deadlock over several nodes is found by the engine, and each server sees only waits",
            )
        })
        .with(detail.filter(|_| parties.is_empty()), |claim, detail| {
            claim.because(format!("the log of the server: {detail}"))
        })
        .not("lock waits alone: the server counts a deadlock only when it breaks a cycle")
        .remedy(
            "sort the keys within each batch, remove duplicates, give each writer its own range",
            match late {
                Some(_) => &["ALTER SYSTEM RESET deadlock_timeout; ALTER SYSTEM SET log_lock_waits = on; SELECT pg_reload_conf();"],
                None => &["ALTER SYSTEM SET log_lock_waits = on; SELECT pg_reload_conf();"],
            },
        )
}
