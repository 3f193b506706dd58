//! `self`: measure this client. Is it good enough to measure others?

use crate::cli::{Format, RunDirectory};
use crate::context::Context;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::stop::Stop;
use crate::{human, quantity};
use clap::Args;
use data::ycsb::{Compressible, FIELD_BYTES, FIELD_COUNT, KEY_BYTES, KeyOrder, Spec, Table};
use record::clock::monotonic_ns;
use record::{Exit, Latency, State, Verdict};
use std::hint::black_box;
use std::time::Duration;

/// Rows between two looks at the clock: a look must cost nothing beside them.
const ROWS_PER_LOOK: u64 = 1_000;
/// Readings of the clock for its cost and its steps.
const CLOCK_READINGS: u64 = 1_000_000;
/// What the timer is asked for: long enough for the kernel to put the thread to sleep.
const SLEEP: Duration = Duration::from_micros(500);
/// Sleeps that go into the timer's figures at most.
const SLEEPS_MAX: u32 = 2_000;

/// The flags of `self`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// How long each measurement takes: seconds, or as 500ms
    #[arg(short = 'T', long, value_name = "TIME", default_value = "2", value_parser = quantity::duration,
          help_heading = "Self")]
    pub time: Duration,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// One measurement: its name, its numbers by name for the run directory, and its line for people.
struct Figure {
    name: &'static str,
    numbers: Vec<(&'static str, f64)>,
    line: String,
}

impl Selftest {
    /// Measures and prints.
    ///
    /// # Errors
    /// When the run directory cannot be written.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let recording = Recording::begin(context, &self.directory, "self", "")?;
        let dir = recording.dir();
        let machine = dir.run().client;
        let text = context.format == Format::Text;
        if text {
            let memory =
                machine.memory_bytes.map_or(String::new(), |bytes| format!(", {}", human::memory(bytes)));
            context.terminal.data(&format!("pgfathom self   {}{memory}", human::plural(machine.cpus, "CPU")));
        }
        let step = dir.begin_step("self", "")?;
        for (name, measure) in MEASUREMENTS {
            if context.stop.is_requested() {
                break;
            }
            dir.begin_phase(&step, name)?;
            let figure = measure(self.time, &context.stop);
            if text {
                context.terminal.data(&format!("{:<12} {}", figure.name, figure.line));
            }
            dir.edit_step(&step, |step| {
                for (name, value) in figure.numbers {
                    step.totals.insert(name.to_string(), value.into());
                }
            })?;
        }
        let state = if context.stop.is_requested() { State::Interrupted } else { State::Finished };
        dir.edit_step(&step, |step| {
            step.verdict = Verdict::valid();
            step.summary.bytes_per_s =
                step.totals.get("generator_bytes_per_s").and_then(serde_json::Value::as_f64);
        })?;
        dir.end_step(&step, state)?;
        recording.finish(state)?;
        Ok(if state == State::Interrupted { Exit::Interrupted } else { Exit::Ok })
    }
}

type Measure = fn(Duration, &Stop) -> Figure;

const MEASUREMENTS: [(&str, Measure); 2] = [("generator", generator), ("timer", timer)];

fn table() -> Table {
    Table::new(Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
}

/// Keys and values of YCSB rows on one core, thrown away.
fn generator(time: Duration, stop: &Stop) -> Figure {
    let table = table();
    let mut fields = [[0u8; FIELD_BYTES]; FIELD_COUNT];
    let rows_per_s = per_second(time, stop, |row| {
        black_box(table.key(row));
        table.row_fields(row, &mut fields);
        black_box(&fields);
    });
    let bytes_per_s = rows_per_s * (KEY_BYTES + FIELD_COUNT * FIELD_BYTES) as f64;
    Figure {
        name: "generator",
        line: format!(
            "{} per core   {} rows/s   keys and values of YCSB rows into nothing",
            human::bytes_per_s(bytes_per_s),
            human::short(rows_per_s)
        ),
        numbers: vec![("generator_rows_per_s", rows_per_s), ("generator_bytes_per_s", bytes_per_s)],
    }
}

/// Rows per second of one core, over `time` of work on rows 0, 1, 2, ..., or less when the user wants an end.
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
fn timer(time: Duration, stop: &Stop) -> Figure {
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
    Figure {
        name: "timer",
        line: format!(
            "{reading_ns:.0} ns a reading, steps of {step_ns} ns   sleep comes back late by p50 {} p99 {}",
            human::latency_us(p50),
            human::latency_us(p99)
        ),
        numbers: vec![
            ("clock_reading_ns", reading_ns),
            ("clock_step_ns", step_ns as f64),
            ("sleep_late_us_p50", p50 as f64),
            ("sleep_late_us_p99", p99 as f64),
            ("sleep_late_us_max", late.max_us() as f64),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_gives_finite_positive_numbers() {
        for (name, measure) in MEASUREMENTS {
            let figure = measure(Duration::from_millis(5), &Stop::idle());
            assert_eq!(figure.name, name);
            for (number, value) in figure.numbers {
                assert!(value.is_finite() && value >= 0.0, "{number} = {value}");
            }
            assert!(!figure.line.is_empty());
        }
    }
}
