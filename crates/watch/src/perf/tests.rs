use super::*;
use crate::board::NodeState;
use record::Clock;
use record::watched::Sampled;
use std::os::unix::fs::PermissionsExt;

/// Ticks until something is seen, at most.
const TICKS_MAX: usize = 1500;
const SCRIPT_TEXT: &str = include_str!("../../tests/fixtures/perf-script-aggsum.txt");

/// A folder with a program that stands for perf, and for the run directory.
struct Fake(PathBuf);

/// Like perf: writes what it has into a file with another name on each request, and once more when it is stopped.
const RECORDS: &str = "n=0; hand() { n=$((n+1)); echo data > $out-part; mv $out-part $out.$n; }; trap hand USR2; trap 'hand; exit 0' TERM; : > $out; while :; do sleep 0.01; done";

impl Fake {
    /// `record` is what `perf record` does, with its output in `$out`. What `perf script` prints has the time that stands in the file `now`.
    fn new(name: &str, record: &str) -> Fake {
        let folder = std::env::temp_dir().join(format!("pgfathom-fake-perf-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let text = folder.join("script.txt");
        fs::write(&text, SCRIPT_TEXT).expect("written");
        let script = format!(
            "#!/bin/sh\nwhat=$1\necho \"$@\" >> {log}\nwhile [ $# -gt 0 ]; do case $1 in -o|-i) out=$2; shift;; esac; shift; done\n\
             if [ $what = script ]; then read now < {now}; sed \"s/ [0-9]*\\.[0-9]*:/ $now:/\" {text}; exit; fi\n{record}\n",
            log = folder.join("log").display(),
            now = folder.join("now").display(),
            text = text.display()
        );
        let program = folder.join("perf");
        fs::write(&program, script).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("made executable");
        Fake(folder)
    }

    fn stacks(&self, mode: Mode, board: &Arc<Board>) -> Stacks {
        let host = self.0.file_name().expect("a name").to_string_lossy().into_owned();
        let options = Options {
            program: Some(self.0.join("perf")),
            slice: Duration::from_millis(40),
            ..Options::new(&host, mode, &self.0)
        };
        Stacks::new(options, Arc::clone(board), Pulse::default())
    }

    /// One tick with real time, a second for the detector.
    fn tick(&self, stacks: &mut Stacks, clock: Clock, batch: &mut Batch) {
        let now_us = record::clock::monotonic_us();
        let now = format!("{}.{:06}\n", now_us / 1_000_000, now_us % 1_000_000);
        fs::write(self.0.join("now.part"), now).expect("written");
        fs::rename(self.0.join("now.part"), self.0.join("now")).expect("renamed");
        tick(stacks, clock, batch);
    }

    /// How often it was started to record, and to print.
    fn starts(&self) -> (usize, usize) {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        let of = |word: &str| log.lines().filter(|line| line.starts_with(word)).count();
        (of("record"), of("script"))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One tick with real time. The cadence is that of the test: an oddity began a tick or two before it was reported.
fn tick(stacks: &mut Stacks, clock: Clock, batch: &mut Batch) {
    stacks.tick(&Tick { now_us: clock.now_us(), clock, cadence_us: 5_000 }, batch);
    std::thread::sleep(Duration::from_millis(5));
}

fn rate(board: &Board, second: u64, rate: f64) {
    board
        .set("n1", NodeState { t_us: second, transactions_per_s: rate, is_up: true, ..NodeState::default() });
}

#[test]
fn the_ring_is_read_only_when_something_was_odd() {
    let fake = Fake::new("auto", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Auto, &board);
    // Nothing that is started here has a price.
    stacks.print_us = 0;
    for second in 1..=60 {
        rate(&board, second, 1000.0);
        fake.tick(&mut stacks, clock, &mut batch);
    }
    assert!(batch.files.is_empty() && batch.events.is_empty(), "{batch:?}");
    assert_eq!(fake.starts().1, 0, "nothing was printed");
    let mut second = 60;
    while batch.files.is_empty() {
        second += 1;
        // A lasting level becomes the normal one, so the drop has to continue.
        rate(&board, second, if second % 2 == 0 { 100.0 } else { 50.0 });
        fake.tick(&mut stacks, clock, &mut batch);
        assert!(second < TICKS_MAX as u64, "nothing kept: {stacks:?}");
    }
    assert_eq!(fake.starts().0, 1, "one perf all the time");
    let (name, content) = &batch.files[0];
    assert!(name.starts_with("stacks/") && name.ends_with("-rate-drop.perf"), "{name}");
    let text = String::from_utf8_lossy(content);
    assert!(text.starts_with("# pgfathom stacks 1\n# clock: monotonic\n"), "{text}");
    assert!(text.contains("osq_lock") && text.contains("# whole: true\n"), "{text}");
    let detail = &batch.events[0];
    assert_eq!((detail.kind.as_str(), detail.more["file"].as_str()), (event::STACKS, Some(name.as_str())));
    assert!(detail.duration_us > Some(0));
    // A drop that lasts is kept a few times, not for ever.
    let folder = stacks.folder.clone();
    for _ in 0..200 {
        second += 1;
        rate(&board, second, 100.0);
        fake.tick(&mut stacks, clock, &mut batch);
    }
    assert!(stacks.kept[&Oddity::RateDrop] <= KEPT_PER_ODDITY_MAX);
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert!(!folder.exists(), "raw slices are removed");
}

#[test]
fn what_is_dear_to_print_waits_for_the_end() {
    let fake = Fake::new("dear", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Auto, &board);
    // An hour of CPU: no test is that long.
    stacks.print_us = 3_600_000_000;
    let mut second = 0;
    while stacks.queue.len() < 2 {
        second += 1;
        rate(&board, second, if second < 30 { 1000.0 } else { 100.0 });
        fake.tick(&mut stacks, clock, &mut batch);
        assert!(second < TICKS_MAX as u64, "nothing handed out: {stacks:?}");
    }
    for _ in 0..20 {
        fake.tick(&mut stacks, clock, &mut batch);
    }
    assert_eq!((fake.starts(), batch.files.len()), ((1, 0), 0), "one perf record, no perf script");
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert!(
        fake.starts().1 >= 2 && batch.files.len() >= 2,
        "printed in the end, each once: {:?}",
        fake.starts()
    );
}

#[test]
fn a_printed_ring_is_cut_where_the_oddity_began() {
    let fake = Fake::new("cut", RECORDS);
    let (board, mut batch) = (Arc::new(Board::new()), Batch::default());
    let mut stacks = fake.stacks(Mode::Auto, &board);
    stacks.options.slice = SLICE;
    let clock = Clock { monotonic_us: 1_000_000_000, wall_us: 0 };
    let printed = fake.0.join("printed.txt");
    // Samples at the seconds 5, 20, 29, 30 and 36 of the run; it was odd from 30 on.
    let sample =
        |second: u64| format!("postgres 1/1 [000] {}.5: cpu-clock:\n\tff f{second} (b)\n\n", 1000 + second);
    fs::write(&printed, [5, 20, 29, 30, 36].map(sample).concat()).expect("written");
    let slice = Slice {
        path: fake.0.join("none"),
        from_us: 2_000_000,
        to_us: 37_000_000,
        odd: Some((Oddity::LatencyJump, 30_000_000)),
    };
    let tick = Tick { now_us: 38_000_000, clock, cadence_us: 1_000_000 };
    stacks.printed(&tick, true, &slice, &printed, &mut batch);
    let detail: Vec<(&str, Vec<u64>)> = batch
        .files
        .iter()
        .map(|(name, content)| {
            let text = String::from_utf8_lossy(content);
            let held = [5, 20, 29, 30, 36].into_iter().filter(|second| text.contains(&format!("f{second} ")));
            (name.as_str(), held.collect())
        })
        .collect();
    let expected =
        [("stacks/15000000-calm.perf", vec![20, 29]), ("stacks/30000000-latency-jump.perf", vec![30, 36])];
    assert_eq!(detail, expected);
    assert_eq!(batch.events[0].duration_us, Some(15_000_000));
}

#[test]
fn always_keeps_until_the_budget_is_used_up_and_reports_it() {
    let fake = Fake::new("always", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Always, &board);
    // Room for one with its header, and for half of another.
    stacks.options.kept_bytes_max = SCRIPT_TEXT.len() as u64 * 3 / 2 + 350;
    for _ in 0..TICKS_MAX {
        fake.tick(&mut stacks, clock, &mut batch);
        if batch.events.iter().any(|event| event.kind == event::NOTE) {
            break;
        }
    }
    assert_eq!(batch.files.len(), 2, "{batch:?}");
    let cut = String::from_utf8_lossy(&batch.files[1].1);
    assert!(cut.contains("# whole: false\n") && cut.ends_with("\n\n"), "cut between two stacks: {cut}");
    assert!(batch.events.last().is_some_and(|event| event.message.contains("no more are kept")));
    for _ in 0..20 {
        fake.tick(&mut stacks, clock, &mut batch);
    }
    assert_eq!(batch.files.len(), 2);
    assert!(stacks.ring.is_none(), "nothing is recorded that would not be kept");
}

#[test]
fn the_last_slice_is_ended_and_kept_when_it_is_wanted() {
    let fake = Fake::new("last", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Always, &board);
    stacks.options.slice = SLICE;
    for _ in 0..TICKS_MAX {
        fake.tick(&mut stacks, clock, &mut batch);
        if stacks.folder.join("1.data").exists() {
            break;
        }
    }
    assert!(batch.files.is_empty());
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert_eq!(batch.files.len(), 1, "{batch:?}");
    assert!(stacks.spent().programs_cpu_us > Some(0), "its programs took something");
}

#[test]
fn perf_that_may_not_is_missing_with_its_words() {
    let fake = Fake::new(
        "denied",
        "echo 'Access to performance monitoring and observability operations is limited.' >&2; exit 255",
    );
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Auto, &board);
    for _ in 0..TICKS_MAX {
        tick(&mut stacks, clock, &mut batch);
        if !batch.lines.is_empty() {
            break;
        }
    }
    let Some((_, _, Sampled::Missing(missing))) = batch.lines.first() else { panic!("{batch:?}") };
    assert!(
        missing.why.contains("Access to performance monitoring")
            && missing.why.contains("perf_event_paranoid")
    );
    let number = stacks.number;
    tick(&mut stacks, clock, &mut batch);
    assert_eq!((stacks.number, batch.lines.len()), (number, 1), "given up, and reported once");
}

#[test]
fn no_perf_is_missing() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let options = Options { program: None, ..Options::new("h", Mode::Auto, Path::new("/nowhere")) };
    let mut stacks = Stacks::new(options, board, Pulse::default());
    tick(&mut stacks, clock, &mut batch);
    tick(&mut stacks, clock, &mut batch);
    assert_eq!(batch.lines.len(), 1);
    assert!(matches!(&batch.lines[0].2, Sampled::Missing(missing) if missing.why == "perf is not installed"));
}

#[test]
fn the_systems_perf_gives_stacks_or_a_reason() {
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut options = Options::new("live", Mode::Always, Path::new("/nowhere"));
    options.slice = Duration::from_millis(300);
    let mut stacks = Stacks::new(options, board, Pulse::default());
    // On a busy host printing waits for the end, which must not hang on a slice in the middle.
    let deadline = Instant::now() + Duration::from_secs(20);
    while batch.is_empty() && Instant::now() < deadline {
        tick(&mut stacks, clock, &mut batch);
    }
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert!(!stacks.folder.exists());
    match batch.files.first() {
        Some((_, content)) => {
            let text = String::from_utf8_lossy(content);
            assert!(text.contains("cpu-clock"), "the event is named: {}", &text[..text.len().min(800)]);
        }
        None => assert!(
            matches!(&batch.lines[0].2, Sampled::Missing(missing) if missing.what == "perf"),
            "{batch:?}"
        ),
    }
}
