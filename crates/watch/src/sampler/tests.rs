use super::*;
use record::RunReader;
use record::What;
use record::watched::{Sampled, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-sampler-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn dir(&self) -> Arc<RunDir> {
        let what = What { verb: "watch".to_string(), ..What::default() };
        Arc::new(RunDir::create(Some(&self.0), &what).expect("a fresh folder"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reports a line per tick, signals the test, and can be blocked.
struct Fake {
    subject: Option<&'static str>,
    reported: Sender<u64>,
    hold: Option<Receiver<()>>,
    file_bytes: usize,
    ticks: u64,
}

impl Collect for Fake {
    fn place(&self) -> Place {
        Place::Node("n1".to_string())
    }

    fn part(&self) -> &'static str {
        "fake"
    }

    fn subject(&self) -> String {
        self.subject.map_or_else(|| self.place().name().to_string(), str::to_string)
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        self.ticks += 1;
        batch.counted(tick.now_us, tick.cadence_us, Server { node: "n1".to_string(), ..Server::default() });
        if self.file_bytes > 0 {
            let name = format!("stacks/{}-test.perf", self.ticks);
            let event = self.place().event(tick.now_us, event::STACKS, "stacks of n1 kept");
            batch.event(event.with("file", name.as_str()));
            batch.file(name, vec![b'x'; self.file_bytes]);
        }
        let _ = self.reported.send(self.ticks);
        if let Some(hold) = &self.hold {
            let _ = hold.recv();
        }
    }

    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        batch.event(self.place().event(tick.now_us, event::NOTE, "finished"));
    }
}

fn lines_of(path: &Path) -> Vec<Sampled> {
    let reader = RunReader::open(path).expect("readable");
    reader.samples.iter().filter_map(Sampled::parse).collect()
}

#[test]
fn it_ticks_until_the_end_and_finishes_each_collector() {
    let folder = Folder::new("ticks");
    let dir = folder.dir();
    let (reported, received) = channel();
    let options = Options { interval: Duration::from_millis(2), ..Options::default() };
    let fake = Fake { subject: None, reported, hold: None, file_bytes: 0, ticks: 0 };
    dir.begin_step("watch", "").expect("writes");
    let sampler = Sampler::start(&dir, options, vec![Box::new(fake)]).expect("a thread");
    while received.recv().expect("it goes on") < 3 {}
    let (totals, lost) = sampler.stop();
    assert!(lost.is_none());
    let lines = lines_of(dir.path());
    assert_eq!((totals.lines, totals.ticks > 3), (lines.len() as u64, true));
    // The last line is its cost.
    let Some(Sampled::Watching(account)) = lines.last() else { panic!("{lines:?}") };
    assert_eq!(
        (account.node.as_str(), account.part.as_str(), account.looks),
        ("n1", "fake", Some(totals.ticks))
    );
    assert!(account.cpu_us > Some(0) && account.bytes > Some(0) && account.cores > Some(0), "{account:?}");
    let reader = RunReader::open(dir.path()).expect("readable");
    assert!(reader.samples.iter().all(|sample| sample.step == "watch"));
    assert_eq!(reader.events.iter().filter(|event| event.message == "finished").count(), 1);
}

/// A disk that is full, or anything else in place of the folder.
#[test]
fn no_event_names_a_file_that_was_not_written() {
    let folder = Folder::new("unwritten");
    let dir = folder.dir();
    fs::write(dir.path().join("stacks"), "no folder").expect("writes");
    let (reported, received) = channel();
    let options = Options { interval: Duration::from_millis(2), ..Options::default() };
    let fake = Fake { subject: None, reported, hold: None, file_bytes: 10, ticks: 0 };
    let sampler = Sampler::start(&dir, options, vec![Box::new(fake)]).expect("a thread");
    while received.recv().expect("it goes on") < 3 {}
    let (_, lost) = sampler.stop();
    assert!(lost.is_some());
    let reader = RunReader::open(dir.path()).expect("readable");
    assert!(reader.events.iter().all(|event| event.kind != event::STACKS), "{:?}", reader.events);
    let is_note = |event: &&event::Event| event.kind == event::NOTE && event.message.contains("are lost");
    assert!(reader.events.iter().filter(is_note).count() >= 3, "{:?}", reader.events);
}

/// The gap of a collector that was held up.
fn gap_of(subject: Option<&'static str>, folder: &str) -> event::Event {
    let folder = Folder::new(folder);
    let dir = folder.dir();
    let (reported, received) = channel();
    let (free, hold) = channel();
    let options = Options { interval: Duration::from_millis(1), ..Options::default() };
    let fake = Fake { subject, reported, hold: Some(hold), file_bytes: 0, ticks: 0 };
    let sampler = Sampler::start(&dir, options, vec![Box::new(fake)]).expect("a thread");
    received.recv().expect("the first tick");
    let from_us = dir.now_us();
    while dir.now_us() < from_us + 20_000 {
        std::thread::yield_now();
    }
    free.send(()).expect("it waits");
    received.recv().expect("the second tick");
    drop(free);
    let (totals, _) = sampler.stop();
    assert!(totals.missed >= 18, "{totals:?}");
    let reader = RunReader::open(dir.path()).expect("readable");
    reader.events.into_iter().find(|event| event.kind == event::GAP).expect("a gap")
}

#[test]
fn a_collector_that_was_held_up_leaves_one_gap() {
    let gap = gap_of(None, "gap");
    assert_eq!(gap.more["node"], "n1");
    assert!(gap.message.starts_with("n1: ") && !gap.more.contains_key("part"), "{gap:?}");
    assert_eq!(gap.duration_us, Some(gap.more["ticks"].as_u64().expect("a number") * 1000));
}

#[test]
fn the_gap_of_what_is_before_a_node_is_not_that_of_the_node() {
    let gap = gap_of(Some("the pooler at db1:6432 before n1"), "part");
    assert!(gap.message.starts_with("the pooler at db1:6432 before n1: "), "{gap:?}");
    assert_eq!((&gap.more["node"], &gap.more["part"]), (&"n1".into(), &"fake".into()));
}

#[test]
fn the_end_does_not_wait_for_a_collector_that_never_comes_back() {
    let folder = Folder::new("stuck");
    let dir = folder.dir();
    let (reported, received) = channel();
    let (_never, hold) = channel();
    let fake = Fake { subject: None, reported, hold: Some(hold), file_bytes: 0, ticks: 0 };
    let options = Options { patience: Duration::from_millis(1), ..Options::default() };
    let sampler = Sampler::start(&dir, options, vec![Box::new(fake)]).expect("a thread");
    received.recv().expect("the first tick");
    let (totals, _) = sampler.stop();
    assert_eq!((totals.lines, totals.events), (0, 1));
    let reader = RunReader::open(dir.path()).expect("readable");
    assert!(reader.events[0].message.contains("has not returned"), "{:?}", reader.events);
}

#[test]
fn the_disk_is_bounded_and_the_limit_is_reported() {
    let folder = Folder::new("budget");
    let dir = folder.dir();
    let (reported, received) = channel();
    let limit = 40_000;
    let options =
        Options { interval: Duration::from_micros(100), disk_bytes_max: limit, ..Options::default() };
    let fake = Fake { subject: None, reported, hold: None, file_bytes: 10_000, ticks: 0 };
    let sampler = Sampler::start(&dir, options, vec![Box::new(fake)]).expect("a thread");
    while received.recv().expect("it goes on") < 8 {}
    let (totals, lost) = sampler.stop();
    assert!(lost.is_none());
    // The tick that crosses the limit is written whole.
    assert!((limit..limit + 11_000).contains(&totals.bytes), "{totals:?}");
    assert_eq!(fs::read_dir(dir.path().join("stacks")).expect("a folder").count(), 4);
    let reader = RunReader::open(dir.path()).expect("readable");
    let notes: Vec<&str> = reader.events.iter().map(|event| event.message.as_str()).collect();
    assert!(notes.iter().any(|note| note.contains("samples every")), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| note.contains("only events")).count(), 1, "{notes:?}");
}

#[test]
fn starts_stay_on_their_grid() {
    let next = |number, coarseness, since| {
        let next = next_start(number, coarseness, since, 1000);
        (next.number, next.missed)
    };
    assert_eq!(next(0, 1, 300), (1, 0), "in time");
    assert_eq!(next(0, 1, 1400), (1, 0), "a little late: taken late");
    assert_eq!(next(0, 1, 1600), (2, 1), "too late: the next one");
    assert_eq!(next(4, 1, 9000), (9, 4), "exactly on a start");
    assert_eq!(next(0, 4, 3900), (4, 0), "coarser");
    assert_eq!(next(0, 4, 9500), (12, 2), "coarser and late");
}

#[test]
fn the_cadence_halves_with_the_free_part() {
    for (used, wanted) in
        [(0, 1), (499, 1), (500, 2), (749, 2), (750, 4), (880, 8), (999, 256), (1000, 256), (5000, 256)]
    {
        assert_eq!(coarseness(used, 1000), wanted, "{used}");
    }
}
