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

impl Fake {
    /// `record` is what `perf record` does with its last argument's seconds in `$seconds` and its output in `$out`.
    fn new(name: &str, record: &str) -> Fake {
        let folder = std::env::temp_dir().join(format!("pgfathom-fake-perf-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let text = folder.join("script.txt");
        fs::write(&text, SCRIPT_TEXT).expect("written");
        let script = format!(
            "#!/bin/sh\nwhat=$1\nwhile [ $# -gt 0 ]; do case $1 in -o|-i) out=$2; shift;; sleep) seconds=$2; shift;; esac; shift; done\n\
             if [ $what = script ]; then cat {}; exit; fi\n{record}\n",
            text.display()
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
            slice: Duration::from_millis(20),
            ..Options::new(&host, mode, &self.0)
        };
        Stacks::new(options, Arc::clone(board), Pulse::default())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One tick with real time.
fn tick(stacks: &mut Stacks, clock: Clock, batch: &mut Batch) {
    stacks.tick(&Tick { now_us: clock.now_us(), clock, cadence_us: 1_000_000 }, batch);
    std::thread::sleep(Duration::from_millis(5));
}

fn rate(board: &Board, second: u64, rate: f64) {
    board
        .set("n1", NodeState { t_us: second, transactions_per_s: rate, is_up: true, ..NodeState::default() });
}

const RECORDS: &str = "echo data > $out; sleep $seconds";

#[test]
fn only_the_odd_slice_and_the_calm_one_before_it_are_kept() {
    let fake = Fake::new("auto", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Auto, &board);
    let mut second = 0;
    // A minute of calm (by the board's count of seconds), and at least two calm slices.
    while second < 60 || stacks.number < 3 {
        second += 1;
        rate(&board, second, 1000.0);
        tick(&mut stacks, clock, &mut batch);
        assert!(second < TICKS_MAX as u64, "no slices end");
    }
    assert!(batch.files.is_empty() && batch.events.is_empty(), "{batch:?}");
    while batch.files.len() < 2 {
        second += 1;
        rate(&board, second, 100.0);
        tick(&mut stacks, clock, &mut batch);
        assert!(second < 2 * TICKS_MAX as u64, "nothing kept: {stacks:?}");
    }
    let names: Vec<&str> = batch.files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names[0].starts_with("stacks/") && names[0].ends_with("-calm.perf"), "{names:?}");
    assert!(names[1].ends_with("-rate-drop.perf"), "{names:?}");
    let text = String::from_utf8_lossy(&batch.files[1].1);
    assert!(text.starts_with("# pgfathom stacks 1\n# clock: monotonic\n"), "{text}");
    assert!(text.ends_with(SCRIPT_TEXT) && text.contains("# whole: true\n"), "{text}");
    let told = &batch.events[1];
    assert_eq!((told.kind.as_str(), told.more["file"].as_str()), (event::STACKS, Some(names[1])));
    assert!(told.duration_us > Some(0));
    // A drop that lasts is kept a few times, not for ever.
    let folder = stacks.folder.clone();
    for _ in 0..200 {
        second += 1;
        rate(&board, second, 100.0);
        tick(&mut stacks, clock, &mut batch);
    }
    assert!(stacks.kept["rate-drop"] <= KEPT_PER_ODDITY_MAX);
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert!(!folder.exists(), "raw slices are removed");
}

#[test]
fn always_keeps_until_the_budget_is_used_up_and_says_so() {
    let fake = Fake::new("always", RECORDS);
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Always, &board);
    // Room for one with its header, and for half of another.
    stacks.options.kept_bytes_max = SCRIPT_TEXT.len() as u64 * 3 / 2 + 350;
    for _ in 0..TICKS_MAX {
        tick(&mut stacks, clock, &mut batch);
        if batch.events.iter().any(|event| event.kind == event::NOTE) {
            break;
        }
    }
    assert_eq!(batch.files.len(), 2, "{batch:?}");
    let cut = String::from_utf8_lossy(&batch.files[1].1);
    assert!(cut.contains("# whole: false\n") && cut.ends_with("\n\n"), "cut between two stacks: {cut}");
    assert!(batch.events.last().is_some_and(|event| event.message.contains("no more from here on")));
    for _ in 0..20 {
        tick(&mut stacks, clock, &mut batch);
    }
    assert_eq!(batch.files.len(), 2);
    assert!(stacks.recording.is_none(), "nothing is recorded that nobody will keep");
}

#[test]
fn the_last_slice_is_ended_and_kept_when_it_is_wanted() {
    // Like perf, this one writes its file when it is told to end.
    let fake = Fake::new(
        "last",
        "trap 'echo data > $out; exit 0' TERM; touch $out.ready; while :; do sleep 0.01; done",
    );
    let (board, clock, mut batch) = (Arc::new(Board::new()), Clock::start(), Batch::default());
    let mut stacks = fake.stacks(Mode::Always, &board);
    for _ in 0..TICKS_MAX {
        tick(&mut stacks, clock, &mut batch);
        let is_ready = stacks
            .recording
            .as_ref()
            .is_some_and(|recording| recording.path.with_extension("data.ready").exists());
        if is_ready {
            break;
        }
    }
    assert!(batch.files.is_empty());
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert_eq!(batch.files.len(), 1, "{batch:?}");
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
    assert_eq!((stacks.number, batch.lines.len()), (number, 1), "given up, and said once");
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
    let deadline = Instant::now() + Duration::from_secs(60);
    while batch.is_empty() && Instant::now() < deadline {
        tick(&mut stacks, clock, &mut batch);
    }
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
    // The end must not hang on a slice in the middle.
    stacks.finish(&Tick { now_us: clock.now_us(), clock, cadence_us: 1 }, &mut batch);
    assert!(!stacks.folder.exists());
}
