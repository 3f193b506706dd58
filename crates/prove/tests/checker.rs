//! What the checker takes of memory beyond the history itself, by count of bytes and not by time.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::alloc::System;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prove::check::{Base, Level, Options, Order, check};
use prove::history::{History, Model};
use prove::simulate::{Plan, serial, snapshot_isolation};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are in use at most for each operation of the history.
const BYTES_PER_OP_MAX: f64 = 32.0;

fn in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

/// The most that was seen in use while `history` was checked. A look that comes too late sees less, never more: a slow machine cannot fail this.
fn peak(history: &History) -> usize {
    let before = in_use();
    let peak = AtomicUsize::new(before);
    std::thread::scope(|scope| {
        let stop = testing::Stop::new();
        let (is_over, peak) = (stop.flag(), &peak);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(in_use(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let report = check(history, &Options::default());
        stop.now();
        assert!(!report.refutes(Level::new(Base::SnapshotIsolation, Order::RealTime)));
    });
    peak.load(Ordering::Relaxed).saturating_sub(before)
}

#[test]
fn a_check_takes_at_most_32_bytes_for_an_operation() {
    let plan = Plan { txns: 25_000, sessions: 32, keys: 2_000, ..Plan::default() };
    // Lists hold all that is in them: the fewer, the shorter, the more transactions in the same time.
    let lists = Plan { model: Model::Append, txns: 15_000, versions_max: 32, ..plan };
    for (name, history) in [
        ("serial registers", serial(&plan)),
        ("registers", snapshot_isolation(&plan)),
        ("hot registers", snapshot_isolation(&Plan { keys: 200, ..plan })),
        ("lists", snapshot_isolation(&lists)),
        ("hot lists", snapshot_isolation(&Plan { keys: 200, ..lists })),
        ("lists that are seldom read", snapshot_isolation(&Plan { read_percent: 20, ..lists })),
    ] {
        let bytes = peak(&history) as f64 / history.ops().len() as f64;
        println!("{name}: {bytes:.1} bytes for each of {} operations", history.ops().len());
        assert!(bytes <= BYTES_PER_OP_MAX, "{name}: {bytes:.1} bytes for an operation");
        assert!(bytes > 4.0, "{name}: nothing was measured");
    }
}
