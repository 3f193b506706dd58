use super::*;
use crate::reader::RunReader;
use crate::sample::{Body, SOURCE_LOAD};
use crate::summary::Summary;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own for each test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-record-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn what() -> What {
    What {
        verb: "run".to_string(),
        name: "ycsb-a".to_string(),
        argv: ["pgfathom", "run", "postgres://joe:s3cret@h/db"].map(str::to_string).to_vec(),
        tool_version: "0.1.0".to_string(),
    }
}

#[test]
fn a_default_name_has_time_verb_and_name_and_never_clashes() {
    let folder = Folder::new();
    let names: Vec<String> = (0..3)
        .map(|_| RunDir::create_under(&folder.0, &what()).unwrap())
        .map(|dir| dir.path().file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names[0].ends_with("-run-ycsb-a"), "{names:?}");
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 3, "{names:?}");
    let run: Run =
        serde_json::from_slice(&fs::read(folder.0.join(&names[2]).join("run.json")).unwrap()).unwrap();
    assert_eq!(run.run_id, names[2]);
}

#[test]
fn names_cannot_leave_the_folder() {
    let folder = Folder::new();
    let what = What { name: "../../etc/pass wd".to_string(), ..what() };
    let dir = RunDir::create_under(&folder.0, &what).unwrap();
    assert_eq!(dir.path().parent(), Some(folder.0.as_path()));
    assert_eq!(file_name(".."), "unnamed");
}

#[test]
fn a_folder_in_use_is_refused_with_a_hint_and_left_alone() {
    let folder = Folder::new();
    fs::write(folder.0.join("thesis.tex"), "x").unwrap();
    let error = RunDir::create(Some(&folder.0), &what()).unwrap_err();
    assert!(matches!(error, RecordError::NotEmpty { .. }));
    assert!(error.hint().unwrap().contains("-o DIR"));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    fs::remove_file(folder.0.join("thesis.tex")).unwrap();
    RunDir::create(Some(&folder.0), &what()).expect("an empty folder may be used");
}

#[test]
fn the_first_run_json_is_there_before_anything_happens_and_holds_no_secret() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &what()).unwrap();
    let text = fs::read_to_string(dir.path().join("run.json")).unwrap();
    assert!(!text.contains("s3cret") && text.contains("postgres://joe:***@h/db"));
    assert!(text.contains(r#""state": "running""#));
    dir.happened(None, event::NOTE, "cannot reach postgres://joe:s3cret@h/db").unwrap();
    assert!(!fs::read_to_string(dir.path().join("events.ndjson")).unwrap().contains("s3cret"));
}

#[test]
fn everything_written_is_read_back() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &What { verb: "demo".to_string(), ..what() }).unwrap();
    let load = dir.begin_step("load", "ycsb").unwrap();
    dir.begin_phase(&load, "copy").unwrap();
    let progress =
        ProgressSample { phase: "copy".to_string(), rows: 10, bytes: 1000, ..ProgressSample::default() };
    dir.progress_sample(&load, SOURCE_LOAD, 1_000_000, 1_000_000, &progress).unwrap();
    dir.edit_step(&load, |step| {
        step.verdict = crate::Verdict::valid();
        step.summary.rows = Some(10);
        step.summary.duration_s = 2.0;
    })
    .unwrap();
    dir.end_step(&load, State::Finished).unwrap();

    let first = dir.begin_step("run", "ycsb-a").unwrap();
    let second = dir.begin_step("run", "ycsb-a").unwrap();
    assert_eq!((first.key(), second.key()), ("run-ycsb-a", "run-ycsb-a-2"));
    dir.begin_phase(&first, crate::model::PHASE_WARMUP).unwrap();
    dir.begin_phase(&first, crate::model::PHASE_MEASURE).unwrap();
    let mut latency = Latency::new();
    (1..1000).for_each(|us| latency.record_us(us));
    let mut sample =
        ClientSample { phase: "measure".to_string(), transactions: 999, ..ClientSample::default() };
    sample.set_response(&latency);
    dir.client_sample(&first, 2_000_000, 1_000_000, &sample).unwrap();
    dir.interval(&first, "ycsb-read", Kind::Response, 1_000_000, 2_000_000, &latency).unwrap();
    dir.interval(&first, "ycsb-update", Kind::Response, 1_000_000, 2_000_000, &Latency::new()).unwrap();
    for step in [&first, &second] {
        dir.edit_step(step, |step| {
            step.verdict = crate::Verdict::valid();
            step.summary.transactions = Some(999);
            step.summary.duration_s = 3.0;
        })
        .unwrap();
        dir.end_step(step, State::Finished).unwrap();
    }
    let finished = dir.finish(State::Finished).unwrap();

    let reader = RunReader::open(dir.path()).unwrap();
    assert_eq!(reader.missing(), [] as [String; 0]);
    assert_eq!(reader.run, finished);
    let Body::Load(read) = &reader.samples[0].body else { panic!("load sample first") };
    assert_eq!((read, reader.samples[0].step.as_str()), (&progress, "load-ycsb"));
    let Body::Client(read) = &reader.samples[1].body else { panic!("then the client's") };
    assert_eq!(read, &sample);
    assert_eq!(reader.intervals.len(), 1, "empty histograms are not written");
    assert_eq!(&*reader.intervals[0].step, "run-ycsb-a");
    let mut read = Latency::new();
    assert!(reader.decoder().unwrap().add_to(&reader.intervals[0], &mut read));
    assert_eq!(read.buckets().collect::<Vec<_>>(), latency.buckets().collect::<Vec<_>>());
    let kinds: Vec<&str> = reader.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, [event::PHASE; 3]);
    let phases: Vec<(&str, bool)> = reader.run.steps[1]
        .phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.end_us.is_some()))
        .collect();
    assert_eq!(phases, [("warmup", true), ("measure", true)]);
    let summary = &reader.run.summary;
    assert_eq!((summary.verb.as_str(), summary.valid, summary.steps.len()), ("demo", true, 3));
    assert_eq!((summary.transactions, summary.tps), (Some(1998), Some(333.0)));
    assert_eq!((summary.rows, summary.rows_per_s), (Some(10), Some(5.0)));
}

#[test]
fn a_single_step_speaks_for_its_run() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &what()).unwrap();
    let step = dir.begin_step("run", "ycsb-a").unwrap();
    dir.edit_step(&step, |step| {
        step.verdict.invalidate("the client was the limit");
        step.summary.tps = Some(5.0);
    })
    .unwrap();
    dir.end_step(&step, State::Finished).unwrap();
    let run = dir.finish(State::Finished).unwrap();
    assert_eq!(run.verdict.reasons, ["the client was the limit"]);
    let expected = Summary {
        verb: "run".to_string(),
        name: "ycsb-a".to_string(),
        valid: false,
        tps: Some(5.0),
        ..Summary::default()
    };
    assert_eq!(run.summary, expected);
}

#[test]
fn a_run_left_by_an_error_has_failed() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &what()).unwrap();
    let step = dir.begin_step("run", "ycsb-a").unwrap();
    dir.begin_phase(&step, "measure").unwrap();
    let path = dir.path().to_path_buf();
    drop(dir);
    let reader = RunReader::open(&path).unwrap();
    assert_eq!((reader.run.state, reader.run.steps[0].state), (State::Failed, State::Failed));
    assert!(!reader.run.verdict.valid, "it was never set to valid");
    assert!(reader.run.steps[0].phases[0].end_us.is_some());
}

#[test]
fn a_killed_process_leaves_a_readable_directory() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &what()).unwrap();
    let step = dir.begin_step("run", "ycsb-a").unwrap();
    dir.client_sample(&step, 1_000_000, 1_000_000, &ClientSample::default()).unwrap();
    // As SIGKILL leaves it: no destructor runs, the last line may be torn.
    let path = dir.path().to_path_buf();
    std::mem::forget(dir);
    let samples = path.join("samples.ndjson");
    let mut text = fs::read_to_string(&samples).unwrap();
    text.push_str(r#"{"t_us":2000000,"sour"#);
    fs::write(&samples, text).unwrap();
    let reader = RunReader::open(&path).unwrap();
    assert_eq!(reader.samples.len(), 1);
    assert_eq!(reader.run.state, State::Running);
    assert!(
        reader.missing().iter().any(|text| text.contains("the run did not end")),
        "{:?}",
        reader.missing()
    );
    assert!(reader.missing().iter().any(|text| text.contains("incomplete")), "{:?}", reader.missing());
}

#[test]
fn threads_share_the_directory_without_tearing_lines() {
    let folder = Folder::new();
    let dir = RunDir::create_under(&folder.0, &what()).unwrap();
    let step = dir.begin_step("run", "ycsb-a").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (dir, step) = (&dir, &step);
            scope.spawn(move || {
                for t_us in 0..200 {
                    let sample = ClientSample { transactions: thread, ..ClientSample::default() };
                    dir.client_sample(step, t_us, 1, &sample).unwrap();
                }
            });
        }
    });
    let reader = RunReader::open(dir.path()).unwrap();
    assert_eq!(reader.samples.len(), 800);
}

#[test]
fn what_takes_the_place_of_a_directory_meanwhile_is_not_written() {
    let folder = Folder::new();
    let (root, victim) = (folder.0.join("runs"), folder.0.join("victim"));
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("run.json"), "precious").unwrap();
    for dir in [RunDir::create_under(&root, &what()), RunDir::create(Some(&root.join("named")), &what())] {
        let dir = dir.unwrap();
        let moved = folder.0.join(format!("moved-{}", dir.run().run_id));
        fs::rename(dir.path(), &moved).unwrap();
        std::os::unix::fs::symlink(&victim, dir.path()).unwrap();
        dir.edit(|run| run.name = "changed".to_string()).unwrap();
        dir.happened(None, crate::event::NOTE, "later").unwrap();
        crate::file::replace(&dir.place().join(files::FINDINGS), b"{}").unwrap();
        assert_eq!(dir.lost().map(|error| error.to_string()), None);
        assert_eq!(fs::read_to_string(victim.join("run.json")).unwrap(), "precious");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
        assert!(fs::read_to_string(moved.join("run.json")).unwrap().contains("changed"));
        assert!(moved.join(files::FINDINGS).exists());
        assert_eq!(crate::held::shown(&dir.place().join("x")), moved.canonicalize().unwrap().join("x"));
    }
}
