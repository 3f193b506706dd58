//! The kernel's rings of all CPUs: they cost the interrupts in which stacks are taken, and nothing else until they are read.

use super::records::{Ring, Samples};
use crate::sys::events::{CpuRing, Part};
use std::io;

/// Samples per second and CPU. Not 50, so that they are not synchronous with timers. Two processors give 1,500 samples in a
/// slice of 15 s: a share of a tenth is known to within two hundredths.
const FREQUENCY: u64 = 49;
/// The ring of one processor: what an unprivileged user may lock (`kernel.perf_event_mlock_kb`). A sample of 40 frames takes 400 bytes, so it
/// holds half a minute.
const RING_BYTES: usize = 512 << 10;
/// The smallest ring, if others have locked memory, too.
const RING_BYTES_MIN: usize = 64 << 10;
/// More CPUs than any host has.
const CPUS_MAX: u32 = 1 << 16;
/// A ring is read when this part of it was written: `always` loses nothing.
const FULL_PART: (u64, u64) = (3, 4);

/// Where samples come from: the kernel, or a test.
pub(super) trait Source: std::fmt::Debug + Send {
    /// The samples since the last call.
    fn take(&mut self) -> Samples;

    /// Passes over the samples since the last call.
    fn skip(&mut self);

    /// Whether samples will soon be overwritten that were not taken.
    fn is_filling(&self) -> bool;
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Denied {
    /// The kernel refused.
    #[error("perf_event_open failed: {error} ({needs})", error = .0, needs = needs(.0))]
    Open(#[source] io::Error),
    /// No list of CPUs.
    #[error("/sys/devices/system/cpu/online could not be read: {0}")]
    Cpus(#[source] io::Error),
    /// An empty list.
    #[error("/sys/devices/system/cpu/online names no CPU")]
    NoCpu,
}

/// The rings, which record until they are dropped.
#[derive(Debug)]
pub(super) struct Rings(Vec<CpuRing>);

impl Rings {
    /// Begins to record on every CPU that is online.
    pub(super) fn open() -> Result<Box<dyn Source>, Denied> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").map_err(Denied::Cpus)?;
        let rings = match Rings::of(&cpus(&online), Part::All) {
            Err(Denied::Open(error)) if is_forbidden(&error) => Rings::of(&cpus(&online), Part::User)?,
            other => other?,
        };
        Ok(Box::new(rings))
    }

    fn of(cpus: &[u32], part: Part) -> Result<Rings, Denied> {
        let mut rings = vec![];
        for cpu in cpus {
            match open(*cpu, part) {
                Ok(ring) => rings.push(ring),
                // It went offline meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(Denied::Open(error)),
            }
        }
        if rings.is_empty() { Err(Denied::NoCpu) } else { Ok(Rings(rings)) }
    }
}

impl Source for Rings {
    fn take(&mut self) -> Samples {
        let take = |ring: &mut CpuRing| {
            let is_overwritten = ring.untaken_bytes() > ring.ring_bytes() as u64;
            Ring { bytes: ring.take(), is_overwritten }
        };
        // One after the other: all rings of a large host would fill much memory.
        Samples::parse(self.0.iter_mut().map(take))
    }

    fn skip(&mut self) {
        self.0.iter_mut().for_each(CpuRing::skip);
    }

    fn is_filling(&self) -> bool {
        let (part, of) = FULL_PART;
        self.0.iter().any(|ring| ring.untaken_bytes() >= ring.ring_bytes() as u64 * part / of)
    }
}

/// What the kernel needs to permit it.
fn needs(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // Older kernels do not know rings that are overwritten.
        Some(libc::EINVAL | libc::E2BIG | libc::ENOSYS) => "needs Linux 4.7",
        _ => "needs root, CAP_PERFMON, or kernel.perf_event_paranoid <= 0",
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Opens the ring of one CPU, a smaller one if so much memory may not be locked.
fn open(cpu: u32, part: Part) -> io::Result<CpuRing> {
    let mut bytes = RING_BYTES;
    loop {
        match CpuRing::open(cpu, FREQUENCY, part, bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && bytes > RING_BYTES_MIN => bytes /= 2,
            other => return other,
        }
    }
}

/// The numbers of a list like `0-3,8`.
fn cpus(list: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(first..=last.min(CPUS_MAX))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpus("0\n"), [0]);
        assert_eq!(cpus(""), Vec::<u32>::new());
        assert_eq!(cpus("x,2-1,5-"), Vec::<u32>::new());
    }

    /// So that it is full soon.
    const OFTEN: u64 = 5_000;
    const SMALL: usize = 16 << 10;

    fn spin(until: impl Fn() -> bool) {
        let begun = Instant::now();
        while !until() && begun.elapsed() < Duration::from_secs(20) {
            std::hint::black_box(begun);
        }
    }

    #[test]
    fn an_overwritten_ring_has_the_newest_samples() {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("read");
        let open = |cpu: &u32| CpuRing::open(*cpu, OFTEN, Part::All, SMALL);
        let rings = match cpus(&online).iter().map(open).collect::<io::Result<Vec<CpuRing>>>() {
            Ok(rings) => rings,
            Err(error) => return assert!(is_forbidden(&error), "{error}"),
        };
        let mut rings = Rings(rings);
        let written = |rings: &Rings| rings.0.iter().map(CpuRing::untaken_bytes).max().unwrap_or(0);
        spin(|| written(&rings) > 3 * SMALL as u64);
        assert!(rings.is_filling());
        let before_ns = record::clock::monotonic_us() * 1000;
        let first = rings.take();
        let newest_ns = first.all.last().expect("samples").t_ns;
        assert!(first.complete_from_ns > 0, "the oldest were overwritten");
        assert!(newest_ns > first.complete_from_ns && newest_ns.abs_diff(before_ns) < 1_000_000_000);
        let ours = first.all.iter().filter(|sample| sample.pid == std::process::id()).count();
        assert!(ours > 0, "{} samples", first.all.len());
        // It goes on, and nothing is handed out twice.
        rings.skip();
        let skipped_ns = record::clock::monotonic_us() * 1000;
        spin(|| written(&rings) > SMALL as u64 / 4);
        let second = rings.take();
        // A sample has the time of its interrupt; another CPU writes it a little later, so one may be older than the skip that it came after.
        let in_flight_ns = 1_000_000;
        assert!(
            second.all.first().is_some_and(|sample| sample.t_ns + in_flight_ns >= skipped_ns),
            "{skipped_ns} {second:?}"
        );
        assert!(rings.take().all.len() < second.all.len());
    }

    #[test]
    fn what_is_denied_has_its_words() {
        let old = Denied::Open(io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert!(old.ends_with("(needs Linux 4.7)"), "{old}");
        let denied = Denied::Open(io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(
            denied.contains("Permission denied") && denied.contains("perf_event_paranoid <= 0"),
            "{denied}"
        );
    }
}
