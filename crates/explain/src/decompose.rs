//! Where the time went that clients waited: lag and backlog, round trips, the server's CPU, its waits by class, and what nobody explains.
//!
//! By Little's law, sessions seen active in the server divided by transactions per second are seconds inside the server per
//! transaction; the same holds for every wait event. Round trips are measured by the watching connection and multiplied by the
//! statements of a transaction. Each part is measured apart from the others, so what they leave over is an honest remainder: it is
//! printed always, also when it is negative.

use crate::case::Case;
use crate::rule::Need;
use crate::waits::{self, Who};
use record::finding::{ClientTime, Part, Window};
use record::watched::WAIT_CPU;
use std::collections::BTreeMap;

/// Name of the part of round trips.
pub const ROUND_TRIPS: &str = "round trips";
/// Name of the part that the client and full sessions cause.
pub const LAG: &str = "lag and backlog";
/// Name of the remainder.
pub const UNEXPLAINED: &str = "unexplained";
/// Wait events told per part.
const EVENTS_MAX: usize = 3;

/// Microseconds of a class of waits, and the shares of its events.
type Class = (f64, Vec<(String, f64)>);

/// The decomposition of every driven step for which client, waits and round trip were recorded.
pub fn all(case: &Case) -> Vec<ClientTime> {
    case.driven().into_iter().filter_map(|(step, window)| of(case, &step.key, window)).collect()
}

/// Statements per transaction, each a round trip, and how that is known.
fn trips(case: &Case, step: &str, window: Window, transactions: f64) -> (f64, String) {
    if let Some(tpcc) =
        case.run.step(step).and_then(|step| step.summary.tpcc.as_ref()).filter(|tpcc| tpcc.round_trips > 0.0)
    {
        return (tpcc.round_trips, "round trips were counted by the client".to_string());
    }
    let calls: f64 = case
        .things("statement")
        .filter_map(|statement| statement.lines.series("calls"))
        .map(|calls| calls.within(&[window]).sum())
        .sum();
    // Statements are looked at rarely: a window too short for two looks says nothing.
    let per_transaction = calls / transactions.max(1.0);
    if per_transaction >= 1.0 {
        return (
            per_transaction,
            "round trips are the statements that pg_stat_statements counted".to_string(),
        );
    }
    (1.0, "one round trip per transaction is assumed: nobody counted its statements".to_string())
}

/// The shortest round trip to a server that the watching connection saw, averaged over the nodes: twice the error of the clock's offset,
/// which is half of the best of several trips. The trips that bring samples take far longer, as their queries do.
pub fn round_trip_us(case: &Case) -> Option<f64> {
    let best = |clock: &crate::case::Lines| {
        Some(clock.series("error_us")?.values().into_iter().reduce(f64::min)? * 2.0)
    };
    let trips: Vec<f64> = case.things("clock").filter_map(|clock| best(clock.lines)).collect();
    crate::statistics::mean(&trips)
}

/// Server processes that waited for a processor for more than this share of their time are told.
const STARVED_SHARE: f64 = 0.1;

/// Whether the server's processes had to wait for a processor. A session counts as active only when its process has read the statement:
/// what it waits before that, no sample shows.
fn starved(case: &Case, window: Window) -> Option<String> {
    let (mut computed, mut wanted, mut watched) = (0.0, 0.0, 0.0);
    for process in case.things("backend").filter(|process| process.lines.word("backend") == "client backend")
    {
        let inside = |field: &str| process.lines.series(field).map(|series| series.within(&[window]));
        let (Some(cpu), Some(queue)) = (inside("cpu_us"), inside("run_queue_us")) else { continue };
        computed += cpu.sum();
        wanted += queue.sum();
        watched += queue.points().iter().map(|point| point.interval_us as f64).sum::<f64>();
    }
    (watched > 0.0 && wanted / watched >= STARVED_SHARE).then(|| {
        format!(
            "the server's processes that were looked at wanted a processor for {} of the time and had none ({} on one): \
             before a process has read its statement its session does not count as active, so this is part of what is unexplained",
            crate::say::percent(wanted / watched),
            crate::say::percent(computed / watched)
        )
    })
}

/// One step; `None` if the client's or the server's side was not recorded.
pub fn of(case: &Case, step: &str, window: Window) -> Option<ClientTime> {
    let client = case.client(step)?;
    let inside = |field: &str| client.series(field).map(|series| series.within(&[window]));
    let transactions = inside("transactions")?;
    let count = transactions.sum();
    // Means of seconds are weighted with their transactions.
    let mean_of = |field: &str| {
        let series = inside(field)?;
        let mut left = transactions.points().iter().peekable();
        let (mut sum, mut weight) = (0.0, 0.0);
        for point in series.points() {
            while left.next_if(|done| done.to_us < point.to_us).is_some() {}
            let done = left.peek().filter(|done| done.to_us == point.to_us).map_or(0.0, |done| done.sum);
            (sum, weight) = (sum + point.mean() * done, weight + done);
        }
        (weight > 0.0).then(|| sum / weight)
    };
    let response_us = mean_of("response_us_mean")?;
    let service_us = mean_of("service_us_mean").unwrap_or(response_us).min(response_us);
    // A server that was looked at and never seen at work has no waits: all of the time is elsewhere.
    if count <= 0.0 || response_us <= 0.0 || Need::Looked("wait").check(case).is_err() {
        return None;
    }
    let seconds = window.length_us() as f64 / 1e6;
    let mut notes = vec!["sessions are sampled: a share below 1 % may be missed".to_string()];
    let mut classes: BTreeMap<String, Class> = BTreeMap::new();
    for (node, waits) in case.waiting_nodes() {
        let looks = case.looks(node, &[window]);
        if looks <= 0.0 {
            notes.push(format!("{node}: its sessions were not looked at during this step"));
            continue;
        }
        for (event, series) in waits.of(Who::Client) {
            let sessions = series.within(&[window]).sum() / looks;
            let us = sessions * seconds * 1e6 / count;
            if us <= 0.0 {
                continue;
            }
            let class = classes.entry(event.0.clone()).or_default();
            class.0 += us;
            if event.0 != WAIT_CPU {
                class.1.push((waits::name(event), us / response_us));
            }
        }
    }
    let rtt_us = round_trip_us(case);
    let part = |name: &str, us: f64, events: Vec<(String, f64)>| Part {
        name: name.to_string(),
        us,
        share: us / response_us,
        events,
    };
    let mut parts = vec![part(LAG, (response_us - service_us).max(0.0), vec![])];
    match rtt_us {
        Some(rtt_us) => {
            let (trips, how) = trips(case, step, window, count);
            // It holds a small query, too: an upper bound, and never more than the service time.
            parts.push(part(ROUND_TRIPS, (rtt_us * trips).min(service_us), vec![]));
            notes.push(how);
            notes.push("the round trip is the best that the watching connection saw, its own small query included: an upper bound".to_string());
        }
        None => notes.push("the round trip was not measured: it is part of what is unexplained".to_string()),
    }
    let mut waits: Vec<(String, Class)> = classes.into_iter().collect();
    waits.sort_by(|left, right| {
        (right.0 == WAIT_CPU).cmp(&(left.0 == WAIT_CPU)).then(right.1.0.total_cmp(&left.1.0))
    });
    for (class, (us, mut events)) in waits {
        events.sort_by(|left, right| right.1.total_cmp(&left.1));
        events.truncate(EVENTS_MAX);
        parts.push(part(&class, us, events));
    }
    notes.extend(starved(case, window));
    let explained: f64 = parts.iter().map(|part| part.us).sum();
    parts.push(part(UNEXPLAINED, response_us - explained, vec![]));
    if explained > response_us {
        notes.push(
            "the parts add up to more than the whole: round trips overlap with what sessions waited for"
                .to_string(),
        );
    }
    Some(ClientTime {
        step: step.to_string(),
        transactions: count as u64,
        response_us_mean: response_us,
        parts,
        notes,
    })
}

/// The share of client time in wait events that fit, over the step with the most transactions; `None` if it cannot be told.
pub fn share_of(case: &Case, fits: impl Fn(&str, &str) -> bool) -> Option<f64> {
    let (step, window) = case.driven().into_iter().max_by_key(|(step, window)| {
        case.client(&step.key)
            .and_then(|client| client.series("transactions"))
            .map_or(0, |series| series.within(&[*window]).sum() as u64)
    })?;
    let time = of(case, &step.key, window)?;
    let seconds = window.length_us() as f64 / 1e6;
    let mut us = 0.0;
    for (node, waits) in case.waiting_nodes() {
        let looks = case.looks(node, &[window]).max(1.0);
        let seen: f64 = waits
            .of(Who::Client)
            .filter(|(event, _)| fits(&event.0, &event.1))
            .map(|(_, series)| series.within(&[window]).sum())
            .sum();
        us += seen / looks * seconds * 1e6 / time.transactions.max(1) as f64;
    }
    Some((us / time.response_us_mean).min(1.0))
}
