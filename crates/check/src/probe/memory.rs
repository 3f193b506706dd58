//! Memory, from the processors of each NUMA node: bandwidth of reading and copying with all of them, and the latency of one dependent access to
//! memory of the same node and of the others.
//!
//! A page belongs to the node of the thread that writes it first, so pinning threads places the memory.

use record::check::Memory;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use watch::host::files::{Files, Tree, word};

/// Memory of one thread: more than its share of any cache.
const BYTES_PER_THREAD: usize = 64 << 20;
/// Memory of the latency test: larger than the last cache of most processors.
const CHASE_BYTES: usize = 256 << 20;
/// One step reads one line of the cache.
const LINE_BYTES: usize = 64;
/// Steps between two looks at the clock.
const STEPS: usize = 20_000;
/// Threads of one node at most: some dozens fill every memory controller.
const THREADS_MAX: usize = 64;
/// The interval at which a thread looks whether all others are there.
const START_BEAT: Duration = Duration::from_micros(100);
/// Share of the free memory that this may use.
const FREE_SHARE: u64 = 4;

/// Measures every node of this host that this process may use.
pub fn measure(time: Duration, stop: &AtomicBool) -> Vec<Memory> {
    let mut files = Tree::live();
    let nodes = nodes(&mut files);
    let free_bytes = free_bytes(&mut files);
    let mut found = vec![];
    for (node, cpus) in &nodes {
        if stop.load(Ordering::Relaxed) {
            return found;
        }
        let budget = usize::try_from(free_bytes / FREE_SHARE).unwrap_or(usize::MAX);
        let threads = cpus.len().min(THREADS_MAX).min((budget / BYTES_PER_THREAD).max(1));
        let bandwidth = |work: Work| bandwidth(&cpus[..threads], work, time, stop);
        let chase = CHASE_BYTES.min(budget.max(LINE_BYTES * STEPS));
        let others = nodes.iter().filter(|(other, _)| other != node);
        let remote = others.filter_map(|(_, other)| latency_ns(cpus[0], other[0], chase, time / 2, stop));
        found.push(Memory {
            node: *node,
            read_bytes_per_s: bandwidth(Work::Read),
            copy_bytes_per_s: bandwidth(Work::Copy),
            latency_ns: latency_ns(cpus[0], cpus[0], chase, time / 2, stop).unwrap_or(0.0),
            remote_latency_ns: remote.max_by(f64::total_cmp),
        });
    }
    found
}

/// Memory that is free on this host and in the control group of this process: one with a limit is killed above it.
fn free_bytes(files: &mut dyn Files) -> u64 {
    let of_host = files.text("/proc/meminfo").ok();
    let of_host = of_host.and_then(|text| watch::host::memory::meminfo(text).available_bytes);
    let group = watch::host::cgroup::allowed(files, std::process::id());
    let of_group = group.memory_max_bytes.map(|most| most.saturating_sub(group.memory_bytes.unwrap_or(0)));
    [of_host, of_group].into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// The nodes with the processors that this process may use; without NUMA one node with all of them.
fn nodes(files: &mut Tree) -> Vec<(u64, Vec<usize>)> {
    let allowed = sched_getaffinity(None).ok();
    let may_use = |cpu: &usize| allowed.as_ref().is_none_or(|set| *cpu < CpuSet::MAX_CPU && set.is_set(*cpu));
    let mut found = vec![];
    for name in files.entries("/sys/devices/system/node") {
        let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        let list = word(files, &format!("/sys/devices/system/node/{name}/cpulist")).unwrap_or_default();
        let cpus: Vec<usize> = cpu_list(&list).into_iter().filter(may_use).collect();
        if !cpus.is_empty() {
            found.push((node, cpus));
        }
    }
    if found.is_empty() {
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_some() && may_use(cpu)).collect();
        found.push((0, if cpus.is_empty() { vec![0] } else { cpus }));
    }
    found
}

/// `0-3,8` as numbers.
fn cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = vec![];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) {
            cpus.extend(first..=last.min(CpuSet::MAX_CPU));
        }
    }
    cpus
}

/// Keeps the calling thread on one processor; where that is refused, it stays where the kernel places it.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// What a thread does with its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Read,
    Copy,
}

/// Bytes per second of one thread on each of these processors, together.
fn bandwidth(cpus: &[usize], work: Work, time: Duration, stop: &AtomicBool) -> f64 {
    let (ready, go) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let thread = |cpu: usize| {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                pin(cpu);
                let mut memory = vec![1_u64; BYTES_PER_THREAD / size_of::<u64>()];
                ready.fetch_add(1, Ordering::Relaxed);
                while !go.load(Ordering::Relaxed) {
                    std::thread::sleep(START_BEAT);
                }
                let (begun, mut bytes) = (Instant::now(), 0_u64);
                while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
                    bytes += pass(&mut memory, work);
                }
                bytes as f64 / begun.elapsed().as_secs_f64()
            })
        };
        // No barrier: where the host gives fewer threads than asked for, the others must not wait for those that it refused.
        let threads: Vec<_> = cpus.iter().filter_map(|cpu| thread(*cpu).ok()).collect();
        while ready.load(Ordering::Relaxed) < threads.len() {
            std::thread::sleep(START_BEAT);
        }
        go.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

/// One pass over the memory; the bytes that it moved.
fn pass(memory: &mut [u64], work: Work) -> u64 {
    /// Sums that do not depend on each other, so that the processor can read ahead.
    const SUMS: usize = 8;
    match work {
        Work::Read => {
            let mut sums = [0_u64; SUMS];
            for words in memory.chunks_exact(SUMS) {
                for (sum, word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
            size_of_val(memory) as u64
        }
        Work::Copy => {
            let half = memory.len() / 2;
            let (from, to) = memory.split_at_mut(half);
            to[..half].copy_from_slice(from);
            black_box(&to[0]);
            // Half of it was read, half written.
            size_of_val(memory) as u64
        }
    }
}

/// Nanoseconds of one dependent access from processor `cpu` to memory that processor `owner` wrote first.
fn latency_ns(cpu: usize, owner: usize, bytes: usize, time: Duration, stop: &AtomicBool) -> Option<f64> {
    let chain = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                pin(owner);
                chain(bytes / LINE_BYTES)
            })
            .join()
    });
    let chain = chain.ok()?;
    let walk = || {
        pin(cpu);
        let (begun, mut steps, mut at) = (Instant::now(), 0_u64, 0_usize);
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
            for _ in 0..STEPS {
                at = chain[at * WORDS_PER_LINE] as usize;
            }
            steps += STEPS as u64;
        }
        black_box(at);
        begun.elapsed().as_nanos() as f64 / steps.max(1) as f64
    };
    std::thread::scope(|scope| scope.spawn(walk).join()).ok()
}

const WORDS_PER_LINE: usize = LINE_BYTES / size_of::<u64>();

/// One cycle through all lines in random order (Sattolo's shuffle), so that no line can be fetched ahead.
fn chain(lines: usize) -> Vec<u64> {
    let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap_or(u32::MAX)).collect();
    let mut random = super::disk::Random::new(1);
    for at in (1..order.len()).rev() {
        order.swap(at, (random.next() % at as u64) as usize);
    }
    let mut chain = vec![0_u64; order.len() * WORDS_PER_LINE];
    for (from, to) in order.iter().enumerate() {
        chain[from * WORDS_PER_LINE] = u64::from(*to);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_leaves_less_than_the_host() {
        let mut files = watch::host::files::Shipped::default();
        files.put("/proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 2000 kB\n".into());
        assert_eq!(free_bytes(&mut files), 2000 << 10);
        files.put(&format!("/proc/{}/cgroup", std::process::id()), "0::/box\n".into());
        files.put("/sys/fs/cgroup/box/memory.max", "1000000\n".into());
        files.put("/sys/fs/cgroup/box/memory.current", "400000\n".into());
        assert_eq!(free_bytes(&mut files), 600_000);
    }

    #[test]
    fn the_chain_visits_every_line_once() {
        let chain = chain(1000);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = chain[at * WORDS_PER_LINE] as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1000);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpu_list("0-2,8\n"), [0, 1, 2, 8]);
        assert!(cpu_list("").is_empty());
    }

    #[test]
    fn memory_has_bandwidth_and_latency() {
        let measured = measure(Duration::from_millis(20), &AtomicBool::new(false));
        assert!(!measured.is_empty());
        for node in measured {
            assert!(
                node.read_bytes_per_s > 1e7 && node.copy_bytes_per_s > 1e7 && node.latency_ns > 0.1,
                "{node:?}"
            );
        }
    }
}
