use super::records::{Frame, Sample, Samples};
use super::*;
use crate::board::{NodeState, Process};
use record::Clock;
use record::watched::Sampled;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ticks until something is seen, at most: some minutes. Threads at the lowest priority print, and on a busy host they wait long for a CPU.
const TICKS_MAX: usize = 60_000;
/// Samples that a fake ring hands out.
const SAMPLES: u64 = 10;

thread_local! {
    /// How often recording began, and how often samples were handed out.
    static OPENED: Cell<usize> = const { Cell::new(0) };
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// A function that is found in stacks by its name. It calls no other: without optimisation those of the library have frames of their own.
#[inline(never)]
fn known_function(is_over: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        let mut turn = 0_u64;
        while turn < 1_000_000 {
            turn += 1;
            sum ^= turn;
        }
    }
    sum
}

fn sample(t_us: u64) -> Sample {
    let address = known_function as fn(&AtomicBool) -> u64 as usize as u64;
    let pid = std::process::id();
    Sample { t_ns: t_us * 1000, pid, tid: pid, cpu: 0, frames: [Frame::User(address + 1)].into() }
}

/// Hands out some samples of the time since the last call: this program, in a known function.
#[derive(Debug)]
struct Fake {
    since_us: u64,
}

impl Fake {
    fn open() -> Result<Box<dyn Source>, Denied> {
        OPENED.set(OPENED.get() + 1);
        Ok(Box::new(Fake { since_us: record::clock::monotonic_us() }))
    }
}

impl Source for Fake {
    fn take(&mut self) -> Samples {
        TAKEN.set(TAKEN.get() + 1);
        let now_us = record::clock::monotonic_us();
        let since_us = std::mem::replace(&mut self.since_us, now_us);
        let at = |number: u64| since_us + (now_us - since_us) * number / SAMPLES;
        Samples { all: (0..SAMPLES).map(|number| sample(at(number))).collect(), ..Samples::default() }
    }

    fn skip(&mut self) {
        self.since_us = record::clock::monotonic_us();
    }

    fn is_filling(&self) -> bool {
        false
    }
}

/// Hands out given samples.
#[derive(Debug)]
struct Given(Samples);

impl Source for Given {
    fn take(&mut self) -> Samples {
        std::mem::take(&mut self.0)
    }

    fn skip(&mut self) {
        self.0 = Samples::default();
    }

    fn is_filling(&self) -> bool {
        true
    }
}

fn stacks(mode: Mode, board: &Arc<Board>) -> Stacks {
    let options =
        Options { slice: Duration::from_millis(40), ..Options::new("h", mode, Path::new("/nowhere")) };
    Stacks { open: Fake::open, ..Stacks::new(options, Arc::clone(board), Pulse::default()) }
}

/// One tick with real time, a second for the detector. The cadence is that of the test: an oddity began a tick or two before it was reported.
fn tick(stacks: &mut Stacks, clock: Clock, batch: &mut Batch) {
    stacks.tick(&Tick { now_us: clock.now_us(), clock, cadence_us: 5_000 }, batch);
    std::thread::sleep(Duration::from_millis(5));
}

fn finish(stacks: &mut Stacks, clock: Clock, batch: &mut Batch) {
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, batch);
}

fn rate(board: &Board, second: u64, rate: f64) {
    board
        .set("n1", NodeState { t_us: second, transactions_per_s: rate, is_up: true, ..NodeState::default() });
}

#[test]
fn the_ring_is_read_only_when_something_was_odd() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Auto, &board);
    // Nothing that is started here has a price.
    stacks.print_us = 0;
    for second in 1..=60 {
        rate(&board, second, 1000.0);
        tick(&mut stacks, clock, &mut batch);
    }
    assert!(batch.files.is_empty() && batch.events.is_empty(), "{batch:?}");
    assert_eq!((TAKEN.get(), stacks.printed_us), (0, 0), "nothing was read or printed");
    let mut second = 60;
    while !batch.files.iter().any(|(name, _)| name.ends_with("-rate-drop.perf")) {
        second += 1;
        stacks.print_us = 0;
        // A lasting level becomes the normal one, so the drop has to continue.
        rate(&board, second, if second % 2 == 0 { 100.0 } else { 50.0 });
        tick(&mut stacks, clock, &mut batch);
        assert!(second < TICKS_MAX as u64, "nothing kept: {stacks:?}");
    }
    assert_eq!(OPENED.get(), 1, "one recording all the time");
    let place = batch.files.iter().position(|(name, _)| name.ends_with("-rate-drop.perf")).expect("there");
    let (name, content) = &batch.files[place];
    assert!(name.starts_with("stacks/"), "{name}");
    let text = String::from_utf8_lossy(content);
    assert!(text.starts_with("# pgfathom stacks 1\n# clock: monotonic\n"), "{text}");
    assert!(text.contains("known_function") && text.contains("# whole: true\n"), "{text}");
    let detail = &batch.events[place];
    assert_eq!((detail.kind.as_str(), detail.more["file"].as_str()), (event::STACKS, Some(name.as_str())));
    assert!(detail.duration_us > Some(0));
    assert!(stacks.spent().programs_cpu_us > Some(0), "its thread took something");
    assert_eq!(stacks.spent().programs_cpu_us, Some(0), "which is reported once");
    // A drop that lasts is kept a few times, not for ever.
    for _ in 0..200 {
        second += 1;
        rate(&board, second, 100.0);
        tick(&mut stacks, clock, &mut batch);
    }
    assert!(stacks.kept[&Oddity::RateDrop] <= KEPT_PER_ODDITY_MAX);
    finish(&mut stacks, clock, &mut batch);
    assert!(stacks.ring.is_none() && stacks.printing.is_none(), "nothing goes on");
}

/// A local node with sessions that are at work with these statements, or wait.
fn at_work(board: &Board, t_us: u64, processes: &[(u32, &str, Option<&str>)]) {
    let active = processes.iter().map(|(pid, wait, query_id)| Process {
        pid: *pid,
        backend: "client backend".into(),
        wait: (*wait).into(),
        query_id: query_id.map(Into::into),
    });
    let state =
        NodeState { t_us, is_up: true, is_local: true, active: active.collect(), ..NodeState::default() };
    board.set("n1", state);
}

#[test]
fn a_server_at_work_has_a_slice_and_another_one_at_the_end() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Auto, &board);
    stacks.print_us = 0;
    for _ in 0..60 {
        at_work(&board, clock.now_us(), &[(7, "", Some("42")), (8, "Lock:tuple", Some("43")), (9, "", None)]);
        tick(&mut stacks, clock, &mut batch);
    }
    finish(&mut stacks, clock, &mut batch);
    let busy: Vec<String> = batch
        .files
        .iter()
        .filter(|(name, _)| name.ends_with("-busy.perf"))
        .map(|(_, content)| String::from_utf8_lossy(content).into_owned())
        .collect();
    assert_eq!((busy.len(), batch.files.len()), (2, 2), "{:?}", batch.events);
    assert!(busy.iter().all(|text| text.contains(" 7 42 n1\n") && !text.contains(" 8 43 ")), "{}", busy[0]);
}

#[test]
fn a_busy_host_of_a_server_has_a_slice_although_no_session_is_at_work() {
    for (is_local, cpu, slices) in [(true, (60.0, 10.0), 1), (false, (60.0, 10.0), 0), (true, (10.0, 5.0), 0)]
    {
        let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
        let mut stacks = stacks(Mode::Auto, &board);
        board.set("n1", NodeState { t_us: 1, is_up: true, is_local, ..NodeState::default() });
        stacks.pulse.set(Some(cpu));
        for _ in 0..4 {
            tick(&mut stacks, clock, &mut batch);
        }
        finish(&mut stacks, clock, &mut batch);
        let kept = batch.files.iter().filter(|(name, _)| name.ends_with("-busy.perf")).count();
        assert_eq!(kept, slices, "{is_local} {cpu:?}");
    }
}

#[test]
fn what_is_dear_to_print_waits_for_the_end() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Auto, &board);
    // An hour of CPU: no test is that long.
    stacks.print_us = 3_600_000_000;
    let mut second = 0;
    while stacks.queue.len() < 2 {
        second += 1;
        rate(&board, second, if second < 30 { 1000.0 } else { 100.0 });
        tick(&mut stacks, clock, &mut batch);
        assert!(second < TICKS_MAX as u64, "nothing handed out: {stacks:?}");
    }
    for _ in 0..20 {
        tick(&mut stacks, clock, &mut batch);
    }
    assert_eq!((OPENED.get(), stacks.printed_us, batch.files.len()), (1, 0, 0), "nothing was printed");
    let waiting = stacks.queue.len();
    finish(&mut stacks, clock, &mut batch);
    let names: BTreeSet<&String> = batch.files.iter().map(|(name, _)| name).collect();
    assert!(
        names.len() >= waiting && names.len() == batch.files.len(),
        "printed in the end, each once: {names:?}"
    );
}

#[test]
fn a_ring_is_cut_where_the_oddity_began() {
    let (board, mut batch) = (Arc::new(Board::new()), Batch::default());
    let mut stacks = stacks(Mode::Auto, &board);
    stacks.options.slice = SLICE;
    let clock = Clock { monotonic_us: 1_000_000_000, wall_us: 0 };
    // Samples at the seconds 5, 20, 29, 30 and 36 of the run; it was odd from 30 on. Some before second 4 were overwritten.
    let seconds: [u64; 5] = [5, 20, 29, 30, 36];
    let all = seconds.map(|second| sample(clock.monotonic_us + second * 1_000_000 + 500_000)).to_vec();
    let complete_from_ns = 1_004_000_000_000;
    stacks.ring = Some(Box::new(Given(Samples { all, complete_from_ns, ..Samples::default() })));
    stacks.odd = Some((Oddity::LatencyJump, 30_000_000));
    stacks.until_us = 2_000_000;
    let tick = Tick { now_us: 38_000_000, clock, cadence_us: 1_000_000 };
    stacks.take(&tick, 37_000_000);
    assert_eq!((stacks.queue.len(), stacks.odd, stacks.until_us), (1, None, 37_000_000));
    stacks.finish(&tick, &mut batch);
    let detail: Vec<(&str, Vec<u64>)> = batch
        .files
        .iter()
        .map(|(name, content)| {
            let text = String::from_utf8_lossy(content);
            assert!(text.contains("# whole: true\n"), "{text}");
            let holds = |second: &u64| text.contains(&format!(" {}.500000: cpu-clock: \n", 1000 + second));
            (name.as_str(), seconds.into_iter().filter(holds).collect())
        })
        .collect();
    let expected =
        [("stacks/15000000-calm.perf", vec![20, 29]), ("stacks/30000000-latency-jump.perf", vec![30, 36])];
    assert_eq!(detail, expected);
    assert_eq!(batch.events[0].duration_us, Some(15_000_000));
}

#[test]
fn what_was_overwritten_or_left_out_is_not_whole() {
    let clock = Clock { monotonic_us: 0, wall_us: 0 };
    let whole = |samples: Samples| {
        let mut batch = Batch::default();
        let mut stacks = stacks(Mode::Always, &Arc::new(Board::new()));
        stacks.ring = Some(Box::new(Given(samples)));
        stacks.until_us = 1_000_000;
        stacks.finish(&Tick { now_us: 2_000_000, clock, cadence_us: 1_000_000 }, &mut batch);
        let text = String::from_utf8_lossy(&batch.files[0].1).into_owned();
        (text.contains("# whole: true\n"), text.matches("cpu-clock").count())
    };
    let now_us = record::clock::monotonic_us();
    let samples =
        |count: u64| Samples { all: (0..count).map(|_| sample(now_us)).collect(), ..Samples::default() };
    assert_eq!(whole(samples(3)), (true, 3));
    assert_eq!(
        whole(Samples { complete_from_ns: 1_000_000_001, ..samples(3) }),
        (true, 3),
        "less than a microsecond"
    );
    assert_eq!(whole(Samples { complete_from_ns: 1_500_000_000, ..samples(3) }), (false, 3));
    assert_eq!(whole(samples(2 * SAMPLES_MAX as u64)), (false, SAMPLES_MAX));
}

#[test]
fn always_keeps_until_the_budget_is_used_up_and_reports_it() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Always, &board);
    for _ in 0..TICKS_MAX {
        tick(&mut stacks, clock, &mut batch);
        if let Some((_, content)) = batch.files.first() {
            // Room for one with its header, and for half of another.
            stacks.options.kept_bytes_max = content.len() as u64 * 3 / 2;
        }
        if batch.events.iter().any(|event| event.kind == event::NOTE) {
            break;
        }
    }
    assert_eq!(batch.files.len(), 2, "{batch:?}");
    let cut = String::from_utf8_lossy(&batch.files[1].1);
    assert!(cut.contains("# whole: false\n") && cut.ends_with("\n\n"), "cut between two stacks: {cut}");
    assert!(batch.events.last().is_some_and(|event| event.message.contains("no more are kept")));
    for _ in 0..20 {
        tick(&mut stacks, clock, &mut batch);
    }
    assert_eq!(batch.files.len(), 2);
    assert!(stacks.ring.is_none(), "nothing is recorded that would not be kept");
}

#[test]
fn always_reads_a_ring_that_would_soon_be_overwritten() {
    let (board, clock) = (Arc::new(Board::new()), Clock::start());
    let tick = Tick { now_us: clock.now_us(), clock, cadence_us: 1_000_000 };
    for (mode, slices) in [(Mode::Always, 1), (Mode::Auto, 0)] {
        let mut stacks = stacks(mode, &board);
        stacks.options.slice = SLICE;
        stacks.ring = Some(Box::new(Given(Samples::default())));
        stacks.turn(&tick);
        assert_eq!(stacks.queue.len(), slices, "{mode:?}");
    }
}

#[test]
fn the_last_slice_is_ended_and_kept_when_it_is_wanted() {
    for (mode, files) in [(Mode::Always, 1), (Mode::Auto, 0)] {
        let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
        let mut stacks = stacks(mode, &board);
        stacks.options.slice = SLICE;
        for _ in 0..3 {
            tick(&mut stacks, clock, &mut batch);
        }
        assert!(batch.files.is_empty());
        finish(&mut stacks, clock, &mut batch);
        assert_eq!(batch.files.len(), files, "{batch:?}");
    }
}

#[test]
fn the_end_takes_over_what_is_being_printed() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Always, &board);
    while stacks.printing.is_none() {
        tick(&mut stacks, clock, &mut batch);
        assert!(TAKEN.get() < TICKS_MAX, "{stacks:?}");
    }
    finish(&mut stacks, clock, &mut batch);
    let names: BTreeSet<&String> = batch.files.iter().map(|(name, _)| name).collect();
    assert_eq!((names.len(), batch.files.len()), (TAKEN.get(), TAKEN.get()), "each slice once");
}

#[test]
fn what_is_not_printed_in_time_is_reported() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Always, &board);
    tick(&mut stacks, clock, &mut batch);
    stacks.take(&Tick { now_us: 0, clock, cadence_us: 1 }, clock.now_us());
    stacks.print_rest(&Tick { now_us: 0, clock, cadence_us: 1 }, Instant::now(), &mut batch);
    assert!(batch.files.is_empty());
    assert_eq!(batch.events[0].message, "1 slices of stacks were not written in time and are lost");
    let Some((_, _, Sampled::Missing(missing))) = batch.lines.last() else { panic!("{batch:?}") };
    assert_eq!((missing.what.as_str(), &missing.why), ("perf", &batch.events[0].message));
}

#[test]
fn what_is_not_permitted_is_missing_with_its_words() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = stacks(Mode::Auto, &board);
    stacks.open = || {
        OPENED.set(OPENED.get() + 1);
        Err(Denied::Open(io::Error::from_raw_os_error(libc::EACCES)))
    };
    tick(&mut stacks, clock, &mut batch);
    let Some((_, _, Sampled::Missing(missing))) = batch.lines.first() else { panic!("{batch:?}") };
    assert_eq!((missing.what.as_str(), missing.lost.as_str()), ("perf", LOST));
    assert!(missing.why.contains("Permission denied") && missing.why.contains("perf_event_paranoid <= 0"));
    tick(&mut stacks, clock, &mut batch);
    finish(&mut stacks, clock, &mut batch);
    assert_eq!((OPENED.get(), batch.lines.len()), (1, 1), "given up, and reported once");
}

#[test]
fn the_kernel_gives_stacks_with_names_or_a_reason() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut options = Options::new("live", Mode::Always, Path::new("/nowhere"));
    options.slice = Duration::from_millis(300);
    let mut stacks = Stacks::new(options, board, Pulse::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_over);
    let spinner = std::thread::Builder::new()
        .name("spinner".into())
        .spawn(move || known_function(&its))
        .expect("started");
    let deadline = Instant::now() + Duration::from_secs(20);
    let spins = |batch: &Batch| {
        let texts: Vec<_> = batch.files.iter().map(|(_, content)| String::from_utf8_lossy(content)).collect();
        let samples: Vec<&str> = texts.iter().flat_map(|text| text.split("\n\n")).collect();
        let of_spinner = |sample: &&&str| sample.contains("spinner ") && sample.contains("cpu-clock: \n");
        let named = samples.iter().filter(of_spinner).filter(|sample| sample.contains("known_function"));
        named.count() * 2 > samples.iter().filter(of_spinner).count().max(10)
    };
    while batch.lines.is_empty() && !spins(&batch) && Instant::now() < deadline {
        tick(&mut stacks, clock, &mut batch);
    }
    finish(&mut stacks, clock, &mut batch);
    is_over.store(true, Ordering::Relaxed);
    spinner.join().expect("ended");
    match batch.lines.first() {
        Some((_, _, Sampled::Missing(missing))) => assert_eq!(missing.what, "perf", "{batch:?}"),
        _ => assert!(
            spins(&batch),
            "{:?}",
            batch.files.iter().map(|(_, content)| String::from_utf8_lossy(content)).next()
        ),
    }
}
