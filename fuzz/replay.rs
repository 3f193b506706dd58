//! Runs a fuzz target without a fuzzer, in the plain tests of the crate concerned: its corpus first, then mutations of the corpus.
//!
//! Mutation knows nothing about coverage. Input `number` is a function of the corpus and of `PGFATHOM_FUZZ_SEED` alone, so a failure comes
//! back with the same seed, whatever the machine. `PGFATHOM_FUZZ_SECONDS` says how long a target runs (default [`SECONDS_DEFAULT`]).
//! An input that panics, that takes longer than [`INPUT_TIME_MAX`], or with which the process takes more than [`RESIDENT_BYTES_MAX`]
//! of memory fails the test; it is kept in a file whose name is printed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Seeds that a corpus must have: a corpus that was moved away must not pass.
const SEEDS_MIN: usize = 10;
/// Every beginning of a seed is an input, of a longer one so many beginnings.
const PREFIXES_MAX: usize = 1024;
/// The same where an input costs much.
const PREFIXES_MAX_SLOW: usize = 48;
/// Every single bit of a seed is turned once, if it has at most so many bytes and an input costs little.
const BITS_TURNED_BYTES_MAX: usize = 256;
/// A mutated input is at most this long.
const INPUT_BYTES_MAX: usize = 1 << 16;
/// How long a target's mutations run, unless `PGFATHOM_FUZZ_SECONDS` says otherwise.
const SECONDS_DEFAULT: f64 = 0.5;
/// Time for one input: two orders of magnitude above the slowest that is right, also on a crowded machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(60);
/// Memory of the process, all of its tests together.
const RESIDENT_BYTES_MAX: u64 = 2 << 30;
/// How often time and memory are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Replays the corpus of `target`, then mutates it.
#[allow(dead_code, reason = "not every crate has such a target")]
pub(crate) fn replay(target: &'static str, exercise: fn(&[u8])) {
    replay_with(target, exercise, PREFIXES_MAX, BITS_TURNED_BYTES_MAX);
}

/// The same where one input costs tens of milliseconds.
#[allow(dead_code, reason = "not every crate has such a target")]
pub(crate) fn replay_slow(target: &'static str, exercise: fn(&[u8])) {
    replay_with(target, exercise, PREFIXES_MAX_SLOW, 0);
}

fn replay_with(target: &'static str, exercise: fn(&[u8]), prefixes_max: usize, bits_bytes_max: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let seeds = seeds(&folder);
    assert!(seeds.len() >= SEEDS_MIN, "{} inputs in {}", seeds.len(), folder.display());
    let trial = Trial::begin(target, exercise);
    for (name, seed) in &seeds {
        trial.one(name, seed);
        let step = seed.len().div_ceil(prefixes_max).max(1);
        for length in (0..seed.len()).step_by(step) {
            trial.one(name, &seed[..length]);
        }
        let mut turned = if seed.len() <= bits_bytes_max { seed.clone() } else { vec![] };
        for bit in 0..8 * turned.len() {
            turned[bit / 8] ^= 1 << (bit % 8);
            trial.one(name, &turned);
            turned[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let seed = setting("PGFATHOM_FUZZ_SEED").unwrap_or(1.0) as u64;
    let seconds = setting("PGFATHOM_FUZZ_SECONDS").unwrap_or(SECONDS_DEFAULT);
    let (begin, mut number) = (Instant::now(), 0);
    while begin.elapsed().as_secs_f64() < seconds {
        let input = mutated(&seeds, seed, number);
        trial.one(&format!("mutation {number} of PGFATHOM_FUZZ_SEED={seed}"), &input);
        number += 1;
    }
    eprintln!("{target}: {} seeds, {number} mutations in {seconds} s", seeds.len());
}

fn setting(name: &str) -> Option<f64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The files of a corpus by name, so that every machine has the same order.
fn seeds(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the corpus can be listed").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    paths.into_iter().map(read).collect()
}

/// What is tried at the moment, for the thread that looks at time and memory.
#[derive(Default)]
struct Current {
    what: String,
    input: Vec<u8>,
    since: Option<Instant>,
}

/// A target being tried; a thread beside it ends the process when an input takes too long or too much.
struct Trial {
    target: &'static str,
    exercise: fn(&[u8]),
    current: Arc<Mutex<Current>>,
    /// Dropping it ends the thread.
    _watch: mpsc::Sender<()>,
}

impl Trial {
    fn begin(target: &'static str, exercise: fn(&[u8])) -> Trial {
        let current = Arc::new(Mutex::new(Current::default()));
        let (_watch, ended) = mpsc::channel();
        let watched = Arc::clone(&current);
        std::thread::spawn(move || {
            while ended.recv_timeout(WATCH_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                let current = locked(&watched);
                let slow = current.since.is_some_and(|since| since.elapsed() > INPUT_TIME_MAX);
                let large = resident_bytes() > RESIDENT_BYTES_MAX;
                if slow || large {
                    let why = if slow { "takes too long" } else { "takes too much memory" };
                    eprintln!("{target}: {} {why}: {}", current.what, keep(target, &current.input).display());
                    // Nothing can stop the thread that tries it.
                    std::process::abort();
                }
            }
        });
        Trial { target, exercise, current, _watch }
    }

    fn one(&self, what: &str, input: &[u8]) {
        {
            let mut current = locked(&self.current);
            current.what.clear();
            current.what.push_str(what);
            current.input.clear();
            current.input.extend_from_slice(input);
            current.since = Some(Instant::now());
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.exercise)(input)));
        locked(&self.current).since = None;
        if let Err(panic) = outcome {
            eprintln!("{}: {what} fails: {}", self.target, keep(self.target, input).display());
            resume_unwind(panic);
        }
    }
}

fn locked(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of this process, as the kernel counts it; 0 where it does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Writes an input that failed to a file of its own.
fn keep(target: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = std::env::temp_dir().join(format!("pgfathom-fuzz-{target}-{:016x}", hasher.finish()));
    if let Err(error) = std::fs::write(&path, input) {
        eprintln!("cannot keep the input: {error}: {input:?}");
    }
    path
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `bound`; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// Texts that break parsers of text: numbers at the limits of their types, quotes, escapes, bytes of no character.
const TEXTS: [&[u8]; 30] = [
    b"0",
    b"-1",
    b"127",
    b"256",
    b"65536",
    b"2147483648",
    b"-2147483649",
    b"9223372036854775808",
    b"18446744073709551615",
    b"99999999999999999999999",
    b"1e999",
    b"-1e308",
    b"nan",
    b"inf",
    b"0x",
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b"'",
    b"\"",
    b"\\",
    b"{",
    b"[[[[[[[[",
    b"}",
    b",,",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\xf0\x9f\x92\xa9",
    b"../",
];
/// Numbers that break parsers of binary data.
const WORDS: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];
/// Changes made to one input at most.
const CHANGES_MAX: usize = 6;

/// The input `number` of a seed: an entry of the corpus with a few changes.
fn mutated(seeds: &[(String, Vec<u8>)], seed: u64, number: u64) -> Vec<u8> {
    let mut draws = Draws(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ number.rotate_left(32));
    let mut input = seeds[draws.below(seeds.len())].1.clone();
    for _ in 0..=draws.below(CHANGES_MAX) {
        let other = &seeds[draws.below(seeds.len())].1;
        change(&mut input, other, &mut draws);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], draws: &mut Draws) {
    let at = draws.below(input.len() + 1);
    let length = if draws.below(2) == 0 { draws.below(9) } else { draws.below(input.len() + 1) };
    let end = (at + length).min(input.len());
    match draws.below(10) {
        0 if at < input.len() => input[at] ^= 1 << draws.below(8),
        1 if at < input.len() => input[at] = draws.next() as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let part = input[at..end].to_vec();
            let times = if draws.below(8) == 0 { draws.below(2000) } else { 1 + draws.below(3) };
            let times = times.min(INPUT_BYTES_MAX / part.len().max(1));
            input.splice(at..at, part.repeat(times));
        }
        4 => {
            let from = draws.below(other.len() + 1);
            let to = (from + draws.below(64)).min(other.len());
            input.splice(at..end, other[from..to].iter().copied());
        }
        5 => drop(input.splice(at..end, other[draws.below(other.len() + 1)..].iter().copied())),
        6 => drop(input.splice(at..at, draws.of(&TEXTS).iter().copied())),
        7 => number_text(input, at, draws),
        8 => {
            let word = WORDS[draws.below(WORDS.len())].wrapping_add(draws.below(3) as u64).wrapping_sub(1);
            let bytes = if draws.below(2) == 0 { word.to_be_bytes() } else { word.to_le_bytes() };
            let width = 1 << draws.below(4);
            let bytes = if draws.below(2) == 0 { &bytes[8 - width..] } else { &bytes[..width] };
            let end = (at + width).min(input.len());
            input.splice(at..end, bytes.iter().copied());
        }
        _ => input.truncate(at),
    }
}

/// Replaces the digits that stand at or behind a place by another number.
fn number_text(input: &mut Vec<u8>, at: usize, draws: &mut Draws) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|after| at + after) else { return };
    let end =
        input[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(input.len(), |n| start + n);
    input.splice(start..end, draws.of(&TEXTS[..15]).iter().copied());
}
