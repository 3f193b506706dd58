//! The disk probe: sequential and random reads and writes at several depths, and the latency of a write with fdatasync.
//!
//! Depth is the number of threads that each wait for their own operation, because that is how the sessions of PostgreSQL read and write. All
//! of it but commits uses one file that is written first, with content that neither compresses nor repeats. Commits have a file of the size of a
//! WAL segment, and this one has a name: btrfs and ZFS log nothing of a file without one, so its fdatasync would cost nothing there.

use super::message::DiskPlan;
use super::place::{self, Place};
use super::scratch::{Scratch, ScratchError};
use record::Latency;
use record::check::{Disk, DiskTest, Distribution, Pattern};
use record::number;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one sequential operation.
pub(crate) const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Bytes of one random operation are a multiple of the first, up to the second: O_DIRECT takes multiples of 4 KiB everywhere.
pub const BLOCK_BYTES: (u64, u64) = (4096, 1 << 24);
/// Operations in flight at most.
pub const DEPTH_MAX: u64 = 256;
/// O_DIRECT wants addresses and lengths that are multiples of the block size of the device; this is one of every device.
const ALIGN_BYTES: usize = 4096;
/// This share of the file system must stay free.
pub(crate) const RESERVE_SHARE: f64 = 0.05;
/// Bytes of the file of commits: a segment of WAL.
pub(crate) const COMMITS_BYTES: u64 = 16 << 20;
/// The smallest file: below it, the cache of the device is all that is measured.
const SIZE_BYTES_MIN: u64 = 32 << 20;
/// The file is written for at most so many times the time of a test.
const FILL_TIMES: u32 = 5;
/// The sequential tests run at the first depth and at the largest up to this one: more streams are no longer sequential.
const SEQUENTIAL_DEPTH_MAX: u64 = 8;

/// Measures a directory; what cannot be measured is refused with the reason.
pub fn measure(plan: &DiskPlan, stop: &AtomicBool) -> Disk {
    let directory = chosen(plan);
    let directory = directory.as_path();
    let real = Path::new(&plan.directory).canonicalize().unwrap_or_default();
    let mut disk = Disk {
        directory: plan.directory.clone(),
        real_directory: real.to_string_lossy().into_owned(),
        tool: "pgfathom".to_string(),
        ..Disk::default()
    };
    let described = describe(directory, &mut disk);
    if plan.is_data && plan.measured_mounts.contains(&disk.mount) {
        return disk;
    }
    let measured = described
        .and_then(|place| room(plan, &place))
        .and_then(|()| Scratch::make(directory).map_err(|error| error.to_string()))
        .and_then(|scratch| run(plan, &scratch, &mut disk, stop).map_err(|error| explained(&scratch, error)));
    disk.refused = measured.err();
    disk
}

/// Where the files are made: not among those of a server, unless its directory is a mount point.
fn chosen(plan: &DiskPlan) -> PathBuf {
    let directory = PathBuf::from(&plan.directory);
    let parent = directory.canonicalize().ok().and_then(|real| real.parent().map(Path::to_path_buf));
    let device = |path: &Path| path.metadata().ok().map(|data| data.dev());
    match parent {
        Some(parent) if plan.is_data && device(&parent) == device(&directory) => parent,
        _ => directory,
    }
}

fn explained(scratch: &Scratch, source: io::Error) -> String {
    ScratchError::Io { action: "measure", path: scratch.path().to_path_buf(), source }.to_string()
}

/// Fills in where the directory lies.
fn describe(directory: &Path, disk: &mut Disk) -> Result<Place, String> {
    if !directory.is_dir() {
        return Err(format!("{} is not a directory", directory.display()));
    }
    let place = place::of(directory).ok_or_else(|| {
        format!("the file system of {} cannot be found (/proc/self/mountinfo)", directory.display())
    })?;
    disk.mount.clone_from(&place.mount.mount);
    disk.device = place.device.clone().unwrap_or_else(|| place.mount.device.clone());
    disk.members.clone_from(&place.members);
    Ok(place)
}

/// Refuses a file that leaves too little space.
fn room(plan: &DiskPlan, place: &Place) -> Result<(), String> {
    let Some((size, free)) = place.space_bytes else {
        return Err(format!("the free space of {} cannot be read", place.mount.mount));
    };
    let reserve = (size as f64 * RESERVE_SHARE) as u64;
    if free < plan.size_bytes.saturating_add(COMMITS_BYTES).saturating_add(reserve) {
        return Err(format!(
            "{} has {} free: a file of {} would leave less than {} of {}; --size takes a smaller one",
            place.mount.mount,
            number::bytes(free as f64),
            number::bytes(plan.size_bytes as f64),
            number::percent(RESERVE_SHARE),
            number::bytes(size as f64),
        ));
    }
    if plan.size_bytes < SIZE_BYTES_MIN {
        return Err(format!("a file of {} is too small", number::bytes(plan.size_bytes as f64)));
    }
    Ok(())
}

/// The depths of the sequential tests.
pub(crate) fn sequential_depths(depths: &[u64]) -> Vec<u64> {
    let first = depths.first().copied().unwrap_or(1);
    let most = depths.iter().copied().filter(|depth| *depth <= SEQUENTIAL_DEPTH_MAX).max().unwrap_or(first);
    if most == first { vec![first] } else { vec![first, most] }
}

/// One test to be done.
#[derive(Clone, Copy, Debug)]
struct Test {
    pattern: Pattern,
    block_bytes: u64,
    depth: u64,
}

fn run(plan: &DiskPlan, scratch: &Scratch, disk: &mut Disk, stop: &AtomicBool) -> io::Result<()> {
    // Some file systems (tmpfs) have no O_DIRECT; then their cache is measured, and that is reported.
    let direct = scratch.open(OFlags::DIRECT.bits().cast_signed()).ok().filter(takes_direct);
    disk.is_direct = direct.is_some();
    let (file, flags) = match direct {
        Some(file) => (file, OFlags::DIRECT),
        None => (scratch.open(0)?, OFlags::empty()),
    };
    let asked_bytes = plan.size_bytes / SEQUENTIAL_BYTES * SEQUENTIAL_BYTES;
    let time = Duration::from_millis(plan.time_ms);
    let size_bytes = fill(&file, asked_bytes, SIZE_BYTES_MIN, time * FILL_TIMES, stop)?;
    disk.file_bytes = Some(size_bytes);
    disk.asked_bytes = (size_bytes < asked_bytes).then_some(asked_bytes);
    for test in tests(plan) {
        measured(&file, test, size_bytes, time, disk, stop)?;
    }
    let commits = scratch.open_commits(flags.bits().cast_signed())?;
    let size_bytes = fill(&commits, COMMITS_BYTES, SEQUENTIAL_BYTES, time, stop)?;
    let test = Test { pattern: Pattern::Sync, block_bytes: plan.block_bytes, depth: 1 };
    measured(&commits, test, size_bytes, time, disk, stop)
}

/// The tests of the data file, in the order in which they run.
fn tests(plan: &DiskPlan) -> Vec<Test> {
    let mut tests = vec![];
    for pattern in [Pattern::SequentialWrite, Pattern::SequentialRead] {
        let depths = sequential_depths(&plan.depths);
        tests.extend(depths.iter().map(|depth| Test {
            pattern,
            block_bytes: SEQUENTIAL_BYTES,
            depth: *depth,
        }));
    }
    for pattern in [Pattern::RandomRead, Pattern::RandomWrite] {
        tests.extend(plan.depths.iter().map(|depth| Test {
            pattern,
            block_bytes: plan.block_bytes,
            depth: *depth,
        }));
    }
    tests
}

/// Runs one test and adds it to those of the disk.
fn measured(
    file: &File,
    test: Test,
    size_bytes: u64,
    time: Duration,
    disk: &mut Disk,
    stop: &AtomicBool,
) -> io::Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(io::Error::from(io::ErrorKind::Interrupted));
    }
    let before = place::waits(&disk.members);
    let mut done = one(file, test, size_bytes, time, stop)?;
    done.member_await_ms = awaits(&before, &place::waits(&disk.members));
    disk.tests.push(done);
    Ok(())
}

fn takes_direct(file: &File) -> bool {
    let buffer = Buffer::new(ALIGN_BYTES);
    file.write_all_at(buffer.bytes(), 0).is_ok()
}

/// Writes the file once, so that no later test reads holes or allocates blocks. On a slow disk it becomes shorter, but not shorter than `least_bytes`;
/// its size.
fn fill(
    file: &File,
    size_bytes: u64,
    least_bytes: u64,
    time: Duration,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let until = Instant::now() + time;
    let mut buffer = Buffer::new(SEQUENTIAL_BYTES as usize);
    for at in (0..size_bytes).step_by(SEQUENTIAL_BYTES as usize) {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        if at >= least_bytes && Instant::now() >= until {
            file.sync_all()?;
            return Ok(at);
        }
        buffer.stamp(at);
        file.write_all_at(buffer.bytes(), at)?;
    }
    file.sync_all()?;
    Ok(size_bytes)
}

/// Mean wait in milliseconds of each device between two readings; -1 without operations.
fn awaits(before: &[(u64, u64)], after: &[(u64, u64)]) -> Vec<f64> {
    let mean = |((ops_before, ms_before), (ops, ms)): (&(u64, u64), &(u64, u64))| match ops
        .saturating_sub(*ops_before)
    {
        0 => -1.0,
        ops => ms.saturating_sub(*ms_before) as f64 / ops as f64,
    };
    before.iter().zip(after).map(mean).collect()
}

/// Runs one test: `depth` threads until the time is over.
fn one(file: &File, test: Test, size_bytes: u64, time: Duration, stop: &AtomicBool) -> io::Result<DiskTest> {
    if matches!(test.pattern, Pattern::SequentialRead | Pattern::RandomRead) {
        // Without O_DIRECT the pages in memory would be read.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }
    // What is written is made before the time begins.
    let buffer = || Buffer::new(test.block_bytes as usize);
    let workers: Vec<Worker> =
        (0..test.depth).map(|index| Worker { file, test, index, size_bytes, buffer: buffer() }).collect();
    let begun = Instant::now();
    let outcomes: Vec<io::Result<Latency>> = std::thread::scope(|scope| {
        // A host that refuses a thread refuses the test, after those that it gave have ended.
        let threads: Vec<io::Result<_>> = workers
            .into_iter()
            .map(|worker| {
                std::thread::Builder::new().spawn_scoped(scope, move || worker.work(begun + time, stop))
            })
            .collect();
        let panicked = || Err(io::Error::other("a thread of the probe panicked"));
        threads.into_iter().map(|thread| thread?.join().unwrap_or_else(|_| panicked())).collect()
    });
    if matches!(test.pattern, Pattern::SequentialWrite | Pattern::RandomWrite) {
        // The time includes what a volatile cache of the device, or the page cache, has still to write.
        file.sync_data()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut latency = Latency::new();
    for outcome in outcomes {
        latency.merge(&outcome?);
    }
    let per_s = latency.count() as f64 / seconds;
    Ok(DiskTest {
        pattern: test.pattern,
        block_bytes: test.block_bytes,
        depth: test.depth,
        bytes_per_s: per_s * test.block_bytes as f64,
        per_s,
        latency_us: Distribution::of(&latency),
        member_await_ms: vec![],
    })
}

/// One thread of a test.
struct Worker<'a> {
    file: &'a File,
    test: Test,
    index: u64,
    size_bytes: u64,
    buffer: Buffer,
}

impl Worker<'_> {
    /// The first block of a sequential test, and how many follow: each thread is a stream in a part of the file of its own, as the jobs of fio are.
    fn part(&self, blocks: u64) -> (u64, u64) {
        let length = (blocks / self.test.depth.max(1)).max(1);
        (self.index * length % blocks, length)
    }

    fn work(mut self, until: Instant, stop: &AtomicBool) -> io::Result<Latency> {
        let block = self.test.block_bytes;
        let blocks = (self.size_bytes / block).max(1);
        let mut random = Random::new(self.index);
        let (first, length) = self.part(blocks);
        let mut latency = Latency::new();
        let mut begun = Instant::now();
        while begun < until && !stop.load(Ordering::Relaxed) {
            let at = match self.test.pattern {
                Pattern::RandomRead | Pattern::RandomWrite => random.next() % blocks,
                _ => first + latency.count() % length,
            } * block;
            match self.test.pattern {
                Pattern::SequentialRead | Pattern::RandomRead => {
                    self.file.read_exact_at(self.buffer.bytes_mut(), at)?
                }
                Pattern::SequentialWrite | Pattern::RandomWrite => {
                    self.buffer.stamp(at ^ random.next());
                    self.file.write_all_at(self.buffer.bytes(), at)?;
                }
                Pattern::Sync => {
                    self.buffer.stamp(at ^ random.next());
                    self.file.write_all_at(self.buffer.bytes(), at)?;
                    self.file.sync_data()?;
                }
            }
            let now = Instant::now();
            latency.record_ns(u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX));
            begun = now;
        }
        Ok(latency)
    }
}

/// A buffer at an address that O_DIRECT accepts, with content that does not compress.
#[derive(Debug)]
struct Buffer {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Buffer {
        let mut memory = vec![0; length + ALIGN_BYTES];
        let from = memory.as_ptr().align_offset(ALIGN_BYTES);
        let mut random = Random::new(length as u64);
        for word in memory.chunks_exact_mut(size_of::<u64>()) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        Buffer { memory, from, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }

    /// Makes every 4 kB of the content unique, so that a file system cannot store it only once.
    fn stamp(&mut self, value: u64) {
        for (at, page) in self.bytes_mut().chunks_mut(ALIGN_BYTES).enumerate() {
            let stamp = value.wrapping_add(at as u64).wrapping_mul(Random::STEP);
            if let Some(head) = page.first_chunk_mut::<8>() {
                *head = stamp.to_le_bytes();
            }
        }
    }
}

/// SplitMix64: a sequence of numbers for places and content, of which only its spread matters.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(Random::STEP) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Random::STEP);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

#[cfg(test)]
mod tests;
