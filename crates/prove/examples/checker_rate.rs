//! How fast the checker is, and what memory it takes beyond the history: simulated histories of 200,000 and of a million transactions.
//!
//! `cargo run --release -p pgfathom-prove --example checker_rate [-- TRANSACTIONS ...]`, or `scripts/bench-checker`. One thread. Each line is one history; "all levels" is the whole check
//! with every level and order, which holds the four levels of an ordinary check (read committed, snapshot isolation, serializable, strict serializable).

use std::alloc::System;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prove::check::{Base, Level, Options, Order, check};
use prove::history::{History, Model};
use prove::simulate::{Plan, serial, snapshot_isolation};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Repeats of each check; the fastest counts, since the machine is shared.
const REPEATS: usize = 3;
/// How often the memory in use is looked at.
const LOOK: Duration = Duration::from_micros(100);
/// What a check has to reach.
const OPS_PER_S_MIN: f64 = 2e6;
const BYTES_PER_OP_MAX: f64 = 32.0;

fn in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

/// Runs `f` and gives its result, and the most memory seen in use meanwhile beyond what was in use before.
fn with_peak<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = in_use();
    let peak = AtomicUsize::new(before);
    let is_over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(in_use(), Ordering::Relaxed);
                std::thread::sleep(LOOK);
            }
        });
        let result = f();
        is_over.store(true, Ordering::Relaxed);
        result
    });
    (result, peak.load(Ordering::Relaxed) - before)
}

fn measure(name: &str, history: &History) -> bool {
    let ops = history.ops().len() as f64;
    let options = Options::default();
    let mut best = f64::INFINITY;
    let mut report = None;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        report = Some(check(history, &options));
        best = best.min(begun.elapsed().as_secs_f64());
    }
    let (_, peak) = with_peak(|| check(history, &options));
    let report = report.expect("there is more than one repeat");
    let strongest: Vec<String> = report.strongest_left().into_iter().map(Level::name).collect();
    let (rate, bytes) = (ops / best, peak as f64 / ops);
    println!(
        "{name:28} {:>9} txns {:>10} ops  {:>6.3} s  {:>5.2} M ops/s  {bytes:>5.1} bytes/op  {:>9} edges  left: {}  {:?}",
        history.txns().len(),
        history.ops().len(),
        best,
        rate / 1e6,
        report.edges,
        strongest.join(", "),
        report.counts
    );
    assert!(
        !report.refutes(Level::new(Base::SnapshotIsolation, Order::RealTime)),
        "the simulator keeps snapshot isolation"
    );
    rate >= OPS_PER_S_MIN && bytes <= BYTES_PER_OP_MAX
}

fn main() {
    let sizes: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![200_000, 1_000_000] } else { sizes };
    let mut is_reached = true;
    for txns in sizes {
        let plan = Plan { txns, sessions: 32, keys: 2000, ..Plan::default() };
        for (name, history) in [
            ("serial, registers", serial(&plan)),
            ("snapshots, registers", snapshot_isolation(&plan)),
            ("snapshots, hot registers", snapshot_isolation(&Plan { keys: 200, ..plan })),
        ] {
            is_reached &= measure(name, &history);
        }
        let lists = Plan { model: Model::Append, txns: txns / 5, versions_max: 32, ..plan };
        measure("snapshots, lists", &snapshot_isolation(&lists));
    }
    let verdict = if is_reached { "reached" } else { "NOT reached" };
    println!("{:.0} M ops/s and {BYTES_PER_OP_MAX} bytes/op with registers: {verdict}", OPS_PER_S_MIN / 1e6);
}
