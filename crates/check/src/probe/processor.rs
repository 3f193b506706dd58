//! The processor: the rounds per second of a fixed integer loop in one thread, the frequency meanwhile, and what else used the processors.

use record::check::Processor;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::host::cpu::{self, Times};
use watch::host::files::{Files, Tree, number};

/// Rounds between two looks at the clock.
const BATCH: u64 = 100_000;

/// Measures it.
pub fn measure(time: Duration, stop: &AtomicBool) -> Processor {
    let mut files = Tree::live();
    let before = times(&mut files);
    let begun = Instant::now();
    let (mut rounds, mut value) = (0_u64, 1_u64);
    let mut frequency_mhz = None;
    while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            value = round(value);
        }
        rounds += BATCH;
        if frequency_mhz.is_none() && begun.elapsed() > time / 2 {
            frequency_mhz = frequency(&mut files);
        }
    }
    black_box(value);
    let seconds = begun.elapsed().as_secs_f64();
    let (steal_share, busy_share) = shares(before, times(&mut files), seconds);
    Processor { rounds_per_s: rounds as f64 / seconds, frequency_mhz, steal_share, busy_share }
}

/// One round: multiplications and shifts that depend on each other, as a hash has them. It never changes, so that figures can be compared.
fn round(value: u64) -> u64 {
    let mixed = (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(23);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn times(files: &mut Tree) -> Times {
    files.text("/proc/stat").ok().and_then(cpu::stat).map(|stat| stat.all).unwrap_or_default()
}

/// The highest frequency of all processors at this moment, in MHz.
fn frequency(files: &mut Tree) -> Option<f64> {
    const KHZ_PER_MHZ: f64 = 1000.0;
    let scaled = files
        .entries("/sys/devices/system/cpu")
        .into_iter()
        .filter_map(|cpu| number(files, &format!("/sys/devices/system/cpu/{cpu}/cpufreq/scaling_cur_freq")))
        .max();
    if let Some(khz) = scaled {
        return Some(khz as f64 / KHZ_PER_MHZ);
    }
    let text = files.text("/proc/cpuinfo").ok()?;
    let values =
        text.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse().ok());
    values.max_by(|left: &f64, right| left.total_cmp(right))
}

/// The share of steal, and of other work than ours, in the time of all processors.
fn shares(before: Times, after: Times, seconds: f64) -> (f64, f64) {
    /// The kernel's unit of these times, on every machine that runs Linux for servers.
    const TICKS_PER_S: f64 = 100.0;
    let grown = |of: fn(&Times) -> u64| of(&after).saturating_sub(of(&before)) as f64;
    let busy = grown(|t| t.user) + grown(|t| t.system) + grown(|t| t.softirq);
    let steal = grown(|t| t.steal);
    let all = busy + steal + grown(|t| t.idle) + grown(|t| t.iowait);
    if all <= 0.0 {
        return (0.0, 0.0);
    }
    let ours = seconds * TICKS_PER_S;
    (steal / all, ((busy - ours).max(0.0) / all).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: u64 = 0x14ea_f0dd_118a_3034;

    #[test]
    fn shares_leave_out_our_own_thread() {
        let before = Times::default();
        let after = Times { user: 150, system: 10, idle: 200, steal: 40, ..Times::default() };
        let (steal, busy) = shares(before, after, 1.0);
        assert!((steal - 0.1).abs() < 1e-9 && (busy - 0.15).abs() < 1e-9, "{steal} {busy}");
        assert_eq!(shares(before, before, 1.0), (0.0, 0.0));
        let measured = measure(Duration::from_millis(50), &AtomicBool::new(false));
        assert!(measured.rounds_per_s > 1e5, "{measured:?}");
    }

    #[test]
    fn the_loop_is_frozen() {
        // Figures of two versions can only be compared while this holds.
        assert_eq!((0..1000).fold(1, |value, _| round(value)), GOLDEN);
    }
}
