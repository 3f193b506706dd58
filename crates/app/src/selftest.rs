//! `self`: measure this client: how much load it can generate, and how exactly it can time it.

use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::skeleton::{Opening, Outcome};
use crate::stop::Stop;
use load::dataset::MESSAGE_BYTES;
use record::clock::monotonic_ns;
use record::totals::ClientTotals;
use record::{Exit, Latency, State, Verdict};
use run::drive::{self, DriveError};
use run::null_server::NullServer;
use run::schedule::Pace;
use run::script::{self, Mix, Predefined, QueryMode, Source};
use run::workload::Mix as Mixed;
use run::workload::script::Scripts;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::prepared::Wire;
use workloads::dataset::GENERATOR;
use workloads::driving::Benchmark;

/// Rows between two looks at the clock: a look must cost nothing beside them.
const ROWS_PER_LOOK: u64 = 1_000;
/// Sessions of the null server's one worker.
const NULL_SESSIONS: u64 = 8;
/// One select by key, as pgbench's select-only.
const NULL_SCRIPT: &str =
    "\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
/// Readings of the clock for its cost and its steps.
const CLOCK_READINGS: u64 = 1_000_000;
/// The time that the timer is set to: long enough for the kernel to put the thread to sleep.
const SLEEP: Duration = Duration::from_micros(500);
/// Sleeps that go into the timer's figures at most.
const SLEEPS_MAX: u32 = 2_000;

/// How to measure this client.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long each of the measurements takes.
    pub time: Duration,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// Measures and prints.
    ///
    /// # Errors
    /// When the run directory cannot be written.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let opening = Opening::new("self", "", self.directory.as_deref());
        opening.in_one_step(opening.begin(context)?, |recording, step| {
            let dir = recording.dir();
            let machine = dir.run().client;
            let print = |line: String| {
                if context.is_text() {
                    context.terminal.data(&line);
                }
            };
            let memory =
                machine.memory_bytes.map_or(String::new(), |bytes| format!(", {}", human::memory(bytes)));
            print(format!("pgfathom self   {}{memory}", human::plural(machine.cpus, "CPU")));
            let mut totals = ClientTotals::default();
            for (name, measure) in MEASUREMENTS {
                if context.stop.is_requested() {
                    break;
                }
                recording.keep(dir.begin_phase(step, name).map(drop));
                let line = measure(self.time, &context.stop, &mut totals)?;
                print(format!("{name:<12} {line}"));
                recording.keep(dir.edit_step(step, |step| step.set_totals(&totals)));
            }
            let is_interrupted = context.stop.is_requested();
            recording.keep(dir.edit_step(step, |step| {
                step.verdict = Verdict::valid();
                step.summary.bytes_per_s = totals.generator_bytes_per_s;
            }));
            Ok(match is_interrupted {
                true => Outcome::plain(State::Interrupted, Exit::Interrupted),
                false => Outcome::plain(State::Finished, Exit::Ok),
            })
        })
    }
}

/// Puts what it measured into the totals, and gives its line for people.
type Measure = fn(Duration, &Stop, &mut ClientTotals) -> Result<String, Failure>;

const MEASUREMENTS: [(&str, Measure); 4] =
    [("generator", generator), ("null sink", null_sink), ("null server", null_server), ("timer", timer)];

/// Rows on one core, thrown away.
fn generator(time: Duration, stop: &Stop, totals: &mut ClientTotals) -> Result<String, Failure> {
    let rows_per_s = per_second(time, stop, (GENERATOR.rows)());
    let bytes_per_s = rows_per_s * GENERATOR.row_bytes as f64;
    (totals.generator_rows_per_s, totals.generator_bytes_per_s) = (Some(rows_per_s), Some(bytes_per_s));
    Ok(format!(
        "{}/s per core   {} rows/s   {}, discarded",
        human::bytes(bytes_per_s),
        human::short(rows_per_s),
        GENERATOR.about
    ))
}

/// The same as binary COPY, framed as a load sends it, and not sent.
fn null_sink(time: Duration, stop: &Stop, totals: &mut ClientTotals) -> Result<String, Failure> {
    let (mut push, mut bytes) = ((GENERATOR.messages)(MESSAGE_BYTES), 0);
    let rows_per_s = per_second(time, stop, |row| bytes = push(row).unwrap_or(bytes));
    let value_bytes_per_s = rows_per_s * GENERATOR.row_bytes as f64;
    (totals.null_sink_rows_per_s, totals.null_sink_bytes_per_s) = (Some(rows_per_s), Some(value_bytes_per_s));
    Ok(format!(
        "{}/s per core   {} rows/s   binary COPY in messages of {}, discarded",
        human::bytes(value_bytes_per_s),
        human::short(rows_per_s),
        human::bytes(bytes as f64)
    ))
}

/// Transactions against a server inside this process that answers at once: what one worker can do at most.
fn null_server(time: Duration, stop: &Stop, totals: &mut ClientTotals) -> Result<String, Failure> {
    let refused = |error| {
        Failure::caused("the null server cannot start", error)
            .hint("raise the limit of open files: ulimit -n")
    };
    let server = NullServer::start().map_err(refused)?;
    let requested = stop.session_flag();
    let mut parts = Vec::new();
    for (wire, total_tps, total_us) in [
        (Wire::Lean, &mut totals.null_server_lean_tps, &mut totals.null_server_lean_client_us),
        (Wire::Libpq, &mut totals.null_server_libpq_tps, &mut totals.null_server_libpq_client_us),
    ] {
        let source = Source { name: "select by key".to_string(), text: NULL_SCRIPT.to_string(), weight: 1 };
        let options = script::Options { mode: QueryMode::Prepared, defines: Vec::new() };
        let mix = Mix::compile(&[source], &options)?;
        let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
        let scripts = Scripts::new(Arc::new(mix), QueryMode::Prepared, predefined);
        let mix = Mixed::of(Benchmark::from(scripts))
            .ok_or_else(|| Failure::usage("the null workload is empty"))?;
        let options = drive::Options {
            mix,
            sessions: NULL_SESSIONS,
            workers: 1,
            pace: Pace::Closed,
            duration: Some(time / 2),
            warmup: time / 20,
            transactions_per_session: None,
            latency_limit: None,
            tries_max: 1,
            wire,
            poller: run::engine::poller::Choice::Auto,
            seed: 1,
            connects: run::routing::Connects::default(),
            first_session: 0,
        };
        let account = match drive::drive(options, server.dial(), &requested, &mut Unwatched) {
            Ok(account) => account,
            Err(DriveError::Interrupted) => break,
            Err(error) => return Err(error.into()),
        };
        let seconds = account.measured().as_secs_f64();
        let transactions = account.posted.measured.transactions() as f64;
        if transactions > 0.0 && seconds > 0.0 {
            // The server's thread belongs to the same process: only the worker's own CPU time is the client's.
            let client_us = account.worker_cpu_share_max * seconds * 1e6 / transactions;
            let tps = transactions / seconds;
            (*total_tps, *total_us) = (Some(tps), Some(client_us));
            parts.push(format!(
                "{} {} tps, {}/tx",
                wire.name(),
                human::short(tps),
                human::latency(client_us)
            ));
        }
    }
    Ok(format!("{}   {NULL_SESSIONS} sessions, one worker, served inside this process", parts.join("   ")))
}

/// The null server reports no progress.
struct Unwatched;

impl drive::Observer for Unwatched {
    fn begins(&mut self, _: u64) {}
    fn second(&mut self, _: &drive::Second<'_>) {}
}

/// Rows per second of one core, over `time` of work on rows 0, 1, 2, ..., or less when the user stops it.
fn per_second(time: Duration, stop: &Stop, mut work: impl FnMut(u64)) -> f64 {
    let begin = monotonic_ns();
    let end = begin + time.as_nanos() as u64;
    let mut row = 0;
    loop {
        for _ in 0..ROWS_PER_LOOK {
            work(row);
            row += 1;
        }
        let now = monotonic_ns();
        if now >= end || stop.is_requested() {
            return row as f64 * 1e9 / (now - begin) as f64;
        }
    }
}

/// What a reading of the clock costs, how fine it is, and how late a sleeping thread comes back.
fn timer(time: Duration, stop: &Stop, totals: &mut ClientTotals) -> Result<String, Failure> {
    let begin = monotonic_ns();
    let (mut last, mut step_ns) = (begin, u64::MAX);
    for _ in 0..CLOCK_READINGS {
        let now = monotonic_ns();
        if now > last {
            step_ns = step_ns.min(now - last);
        }
        last = now;
    }
    let reading_ns = (last - begin) as f64 / CLOCK_READINGS as f64;
    let mut late = Latency::new();
    let end = last + time.as_nanos() as u64;
    for _ in 0..SLEEPS_MAX {
        let before = monotonic_ns();
        if before >= end || stop.is_requested() {
            break;
        }
        std::thread::sleep(SLEEP);
        late.record_ns((monotonic_ns() - before).saturating_sub(SLEEP.as_nanos() as u64));
    }
    let (p50, p99) = (late.quantile_us(0.5), late.quantile_us(0.99));
    (totals.clock_reading_ns, totals.clock_step_ns) = (Some(reading_ns), Some(step_ns as f64));
    totals.sleep_late_us_p50 = Some(p50 as f64);
    totals.sleep_late_us_p99 = Some(p99 as f64);
    totals.sleep_late_us_max = Some(late.max_us() as f64);
    Ok(format!(
        "{reading_ns:.0} ns a reading, steps of {step_ns} ns   sleep returns late by p50 {} p99 {}",
        human::latency(p50 as f64),
        human::latency(p99 as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All measurements with so much time for each; how many numbers they gave.
    fn measure_all(time: Duration) -> usize {
        let (mut totals, mut count) = (ClientTotals::default(), 0);
        for (name, measure) in MEASUREMENTS {
            let line = measure(time, &Stop::default(), &mut totals).unwrap();
            assert!(!line.is_empty(), "{name} is reported");
            let numbers = serde_json::to_value(totals).unwrap();
            let numbers = numbers.as_object().unwrap();
            assert!(numbers.len() >= count, "{name} takes no number away");
            count = numbers.len();
            for (number, value) in numbers {
                assert!(
                    value.as_f64().is_some_and(|value| value.is_finite() && value >= 0.0),
                    "{number} = {value}"
                );
            }
        }
        count
    }

    #[test]
    fn every_measurement_gives_finite_positive_numbers() {
        // On a busy host a thread may not run at all for some milliseconds: then there is nothing to report, and more time is given.
        let mut times = (0..).map(|doubled| Duration::from_millis(20 << doubled)).take(9);
        let count = times.by_ref().map(measure_all).find(|count| *count == 13);
        assert_eq!(count, Some(13), "with up to 5 s for each");
    }
}
