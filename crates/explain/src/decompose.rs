//! The decomposition of the clients' waiting time: lag and backlog, the client itself, round trips, the server's CPU and its waiting for CPU, its waits
//! by class, and the unexplained rest.
//!
//! By Little's law, sessions seen active in the server divided by transactions per second are seconds inside the server per
//! transaction; the same holds for every wait event. CPU and waits for CPU come from the scheduler's counters if they were readable, else CPU time
//! comes from the sampled sessions. Round trips are measured by the watching connection and multiplied by the statements of a transaction; where client
//! and server share a host, a round trip costs only CPU, which is already counted. Each part is measured separately, so the remainder is real: it is
//! always printed. Where the parts overlap and add up to more than the whole, nothing remains, and a note gives the size of the error.

mod scheduler;

use crate::case::Case;
use crate::rule::Need;
use crate::series::Series;
use crate::waits::{self, Who};
use record::Summary;
use record::finding::{ClientTime, Part, Window};
use record::watched::WAIT_CPU;
use scheduler::Taken;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the part of round trips.
pub const ROUND_TRIPS: &str = "round trips";
/// Name of the part that the client and full sessions cause.
pub const LAG: &str = "lag and backlog";
/// Name of the part that replies and requests spend with the client's threads.
pub const CLIENT: &str = "client";
/// Name of the part in which the server's processes compute, as the scheduler counts it.
pub const SERVER_CPU: &str = "server CPU";
/// Name of the part in which they could compute but have no processor.
pub const SERVER_QUEUE: &str = "server waits for CPU";
/// Name of the remainder.
pub const UNEXPLAINED: &str = "unexplained";
/// The note of a decomposition whose round trips were not counted.
pub(crate) const ROUND_TRIPS_ASSUMED: &str =
    "one round trip per transaction is assumed: its statements were not counted";
/// Wait events listed per part.
const EVENTS_MAX: usize = 3;

/// CPU time of sampled sessions beyond what the scheduler counted for ours is reported only above this share.
const OTHERS_MIN: f64 = 0.2;

/// Parts that overlap by less than this share of the whole are not worth a note.
const ROUNDING: f64 = 0.001;

/// Microseconds of a class of waits, and the shares of its events.
type Class = (f64, Vec<(String, f64)>);

/// The decomposition of every driven step for which client, waits and round trip were recorded.
pub fn all(case: &Case) -> Vec<ClientTime> {
    case.driven().into_iter().filter_map(|(step, window)| of(case, &step.key, window)).collect()
}

/// Round trips per transaction as benchmarks counted them; `None` unless they counted those of all transactions.
fn counted_trips(summary: &Summary) -> Option<f64> {
    let counted = || summary.benchmarks.iter().filter_map(|benchmark| benchmark.requests);
    let awaited: u64 = counted().map(|requests| requests.awaited).sum();
    let transactions: u64 = counted().map(|requests| requests.transactions).sum();
    let is_complete = awaited > 0 && transactions >= summary.transactions.unwrap_or(u64::MAX);
    is_complete.then(|| awaited as f64 / transactions as f64)
}

/// Statements per transaction, each a round trip, and how that is known.
fn trips(case: &Case, step: &str, window: Window, transactions: f64) -> (f64, String) {
    if let Some(counted) = case.run.step(step).and_then(|step| counted_trips(&step.summary)) {
        return (counted, "the client counted the round trips".to_string());
    }
    let calls: f64 = case
        .things("statement")
        .filter_map(|statement| statement.lines.series("calls"))
        .map(|calls| calls.within(&[window]).sum())
        .sum();
    // Statements are polled rarely: a window too short for two polls has no data.
    let per_transaction = calls / transactions.max(1.0);
    if per_transaction >= 1.0 {
        return (
            per_transaction,
            "there is one round trip for each statement that pg_stat_statements counted".to_string(),
        );
    }
    (1.0, ROUND_TRIPS_ASSUMED.to_string())
}

/// The shortest round trip of the monitoring connection, averaged over the nodes. Older directories have only the error of the clock's offset,
/// which is half of the best of several round trips with a small query.
pub fn round_trip_us(case: &Case) -> Option<f64> {
    let best = |lines: &crate::case::Lines, field: &str| {
        lines.series(field)?.points().iter().map(|point| point.mean()).filter(|us| *us > 0.0).reduce(f64::min)
    };
    let of_node = |clock: crate::case::Thing<'_>| {
        // If the query's own time is recorded separately, the round trip is pure.
        let empty = case
            .one("server", clock.place)
            .filter(|server| server.series("asked_us").is_some())
            .and_then(|server| best(server, "rtt_us"));
        let by_clock = best(clock.lines, "error_us").map(|error| error * 2.0);
        [empty, by_clock].into_iter().flatten().reduce(f64::min)
    };
    let trips: Vec<f64> = case.things("clock").filter_map(of_node).collect();
    crate::statistics::mean(&trips)
}

/// Server processes that waited for a CPU for more than this share of their time are reported.
const STARVED_SHARE: f64 = 0.1;

/// Whether the server's processes had to wait for a CPU. A session counts as active only when its process has read the statement: no sample shows
/// a wait before that.
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
            "the sampled server processes waited for a CPU for {} of the time and ran on one for {}: \
             a session counts as active only after its process has read the statement, so this time is in the unexplained rest",
            crate::units::percent(wanted / watched),
            crate::units::percent(computed / watched)
        )
    })
}

/// The mean of seconds' means, weighted with the transactions of each second.
fn weighted_mean(series: &Series, transactions: &Series) -> Option<f64> {
    let mut left = transactions.points().iter().peekable();
    let (mut sum, mut weight) = (0.0, 0.0);
    for point in series.points() {
        while left.next_if(|done| done.to_us < point.to_us).is_some() {}
        let done = left.peek().filter(|done| done.to_us == point.to_us).map_or(0.0, |done| done.sum);
        (sum, weight) = (sum + point.mean() * done, weight + done);
    }
    (weight > 0.0).then(|| sum / weight)
}

/// What our sessions did in the servers, per transaction.
#[derive(Default)]
struct ServerSide {
    /// Sampled waits by class.
    classes: BTreeMap<String, Class>,
    /// CPU time and waits for CPU by the scheduler's counters.
    taken: Option<Taken>,
    /// Client and server do not share a host, or it is not known that they do.
    is_apart: bool,
}

impl ServerSide {
    fn of(
        case: &Case,
        (window, count, response_us): (Window, f64, f64),
        client_host: Option<&str>,
        notes: &mut Vec<String>,
    ) -> ServerSide {
        let nodes: BTreeSet<&str> =
            case.waiting_nodes().map(|(node, _)| node).chain(scheduler::counted_nodes(case)).collect();
        let seconds = window.length_us() as f64 / 1e6;
        let mut server = ServerSide { is_apart: nodes.is_empty(), ..ServerSide::default() };
        for node in nodes {
            let looks = case.looks(node, &[window]);
            if looks <= 0.0 {
                notes.push(format!("{node}: its sessions were not sampled during this step"));
                continue;
            }
            let counted = scheduler::sessions(case, node, window, count);
            server.is_apart |= counted.is_none_or(|(host, _)| client_host != Some(host));
            for (event, series) in case.waits(node).into_iter().flat_map(|waits| waits.of(Who::Client)) {
                let sessions = series.within(&[window]).sum() / looks;
                let mut us = sessions * seconds * 1e6 / count;
                if event.0 == WAIT_CPU
                    && let Some((_, taken)) = counted
                {
                    // CPU time of our sessions comes from the scheduler; parallel workers and others may have used CPU, too.
                    let seen_us = us;
                    us -= taken.run_us + taken.wait_us;
                    us = if us > seen_us * OTHERS_MIN { us } else { 0.0 };
                }
                if us <= 0.0 {
                    continue;
                }
                let class = server.classes.entry(event.0.clone()).or_default();
                class.0 += us;
                if event.0 != WAIT_CPU {
                    class.1.push((waits::name(event), us / response_us));
                }
            }
            if let Some((_, taken)) = counted {
                let sum = server.taken.get_or_insert_default();
                (sum.run_us, sum.wait_us) = (sum.run_us + taken.run_us, sum.wait_us + taken.wait_us);
            }
        }
        server
    }

    /// The waits by class, CPU first, then the longest; each with its longest events.
    fn waits(self) -> Vec<(String, Class)> {
        let mut waits: Vec<(String, Class)> = self.classes.into_iter().collect();
        waits.sort_by(|left, right| {
            (right.0 == WAIT_CPU).cmp(&(left.0 == WAIT_CPU)).then(right.1.0.total_cmp(&left.1.0))
        });
        for (_, (_, events)) in &mut waits {
            events.sort_by(|left, right| right.1.total_cmp(&left.1));
            events.truncate(EVENTS_MAX);
        }
        waits
    }
}

/// Time of all round trips of a transaction, an upper bound; `None` if it is not a part of its own, for the reason in the notes.
fn round_trips(case: &Case, trips: f64, is_apart: bool, how: String, notes: &mut Vec<String>) -> Option<f64> {
    match round_trip_us(case) {
        _ if !is_apart => {
            notes.push("client and server share a host: a round trip there consists of CPU time and of waiting for a CPU, which are already counted \
                        for the processes of both sides".to_string());
            notes.push(how);
            None
        }
        Some(rtt_us) => {
            notes.push(how);
            notes.push(
                "the round trip is the shortest that the monitoring connection measured, so their total is an upper bound".to_string(),
            );
            Some(rtt_us * trips)
        }
        None => {
            notes.push("the round trip was not measured: its time is unexplained".to_string());
            None
        }
    }
}

/// How much the parts are too large together; `None` if they do not overlap.
fn overlap(explained: f64, response_us: f64) -> Option<String> {
    (explained > response_us * (1.0 + ROUNDING)).then(|| {
        format!(
            "the parts add up to {} of the whole: they are measured separately, and a process that was woken from a wait counts as waiting until it \
             has a CPU; so the parts together are too large by {}",
            crate::units::percent(explained / response_us),
            crate::units::us(explained - response_us)
        )
    })
}

/// One step; `None` if the client's or the server's side was not recorded.
pub fn of(case: &Case, step: &str, window: Window) -> Option<ClientTime> {
    let client = case.client(step)?;
    let inside = |field: &str| client.series(field).map(|series| series.within(&[window]));
    let transactions = inside("transactions")?;
    let count = transactions.sum();
    let mean_of = |field: &str| weighted_mean(&inside(field)?, &transactions);
    let response_us = mean_of("response_us_mean")?;
    let service_us = mean_of("service_us_mean").unwrap_or(response_us).min(response_us);
    // A sampled server that was never active has no waits: all of the time is elsewhere.
    if count <= 0.0 || response_us <= 0.0 || Need::Looked("wait").check(case).is_err() {
        return None;
    }
    let mut notes = vec!["sessions are sampled: a share below 1 % may be missed".to_string()];
    let client_side = scheduler::client(case, window, count);
    let server =
        ServerSide::of(case, (window, count, response_us), client_side.map(|(host, _)| host), &mut notes);
    let (is_apart, is_uncounted) = (server.is_apart, server.taken.is_none());
    let part = |name: &str, us: f64, events: Vec<(String, f64)>| Part {
        name: name.to_string(),
        us,
        share: us / response_us,
        events,
    };
    let mut parts = vec![part(LAG, (response_us - service_us).max(0.0), vec![])];
    let (trips, how) = trips(case, step, window, count);
    if let Some(us) = round_trips(case, trips, is_apart, how, &mut notes) {
        // It includes a small query: an upper bound, and never more than the service time.
        parts.push(part(ROUND_TRIPS, us.min(service_us), vec![]));
    }
    if let Some(taken) = server.taken {
        parts.push(part(SERVER_CPU, taken.run_us, vec![]));
        parts.push(part(SERVER_QUEUE, taken.wait_us, vec![]));
    }
    for (class, (us, events)) in server.waits() {
        parts.push(part(&class, us, events));
    }
    if is_uncounted {
        notes.extend(starved(case, window));
    }
    if let Some((_, taken)) = client_side {
        let (least_us, most_us) = (taken.in_client_us_min(trips), taken.in_client_us_max(service_us));
        let rest_us = response_us - parts.iter().map(|part| part.us).sum::<f64>();
        // On one host, time outside of the server's processes belongs to the client, within the bounds of its threads.
        let us = if is_apart { least_us } else { rest_us.max(least_us).min(most_us.max(least_us)) };
        parts.insert(1, part(CLIENT, us.min(service_us), vec![]));
        notes.push(format!(
            "the client's threads used {} of CPU time per transaction and waited {} for a CPU; replies that arrive together wait for each other, \
             for {} at least and {} at most",
            crate::units::us(taken.run_us),
            crate::units::us(taken.wait_us),
            crate::units::us(least_us),
            crate::units::us(most_us.max(least_us))
        ));
    }
    let explained: f64 = parts.iter().map(|part| part.us).sum();
    parts.push(part(UNEXPLAINED, (response_us - explained).max(0.0), vec![]));
    notes.extend(overlap(explained, response_us));
    Some(ClientTime {
        step: step.to_string(),
        transactions: count as u64,
        response_us_mean: response_us,
        parts,
        notes,
    })
}

/// The share of client time in wait events that fit, over the step with the most transactions; `None` if it is unknown.
pub(crate) fn share_of(case: &Case, fits: impl Fn(&str, &str) -> bool) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::benchmark::{Benchmark, Requests};

    #[test]
    fn round_trips_are_counted_only_if_all_transactions_counted_them() {
        let of = |awaited, transactions| Benchmark {
            requests: Some(Requests { awaited, transactions }),
            ..Benchmark::default()
        };
        let summary = |transactions, benchmarks| Summary {
            transactions: Some(transactions),
            benchmarks,
            ..Summary::default()
        };
        let both = || vec![of(20, 10), of(30, 30), Benchmark::default()];
        assert_eq!(counted_trips(&summary(40, both())), Some(1.25));
        assert_eq!(counted_trips(&summary(90, both())), None, "50 are of a workload that does not count");
        assert_eq!(counted_trips(&summary(0, vec![of(0, 0)])), None);
    }
}
