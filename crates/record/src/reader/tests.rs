use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A run directory of given files, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-reader-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        files.iter().for_each(|(name, text)| fs::write(path.join(name), text).unwrap());
        Folder(path)
    }

    fn open(&self) -> RunReader {
        RunReader::open(&self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn says(reader: &RunReader, words: &str) -> bool {
    reader.missing().iter().any(|text| text.contains(words))
}

#[test]
fn a_folder_without_files_of_a_run_is_refused() {
    let folder = Folder::of(&[("notes.txt", "hello")]);
    let error = RunReader::open(&folder.0).unwrap_err();
    assert!(matches!(error, RecordError::NotARun { .. }));
    assert!(error.hint().is_some());
    let error = RunReader::open(&folder.0.join("nowhere")).unwrap_err();
    assert!(matches!(error, RecordError::Io { .. }) && error.hint().is_some());
}

#[test]
fn each_missing_file_is_named_with_its_consequence() {
    let reader = Folder::of(&[("run.json", r#"{"schema_version":1,"state":"finished"}"#)]).open();
    assert!(says(&reader, "samples.ndjson is missing: no development over time"));
    assert!(says(&reader, "events.ndjson is missing"));
    assert!(says(&reader, "latency.hlog is missing: no heatmap and no percentile curve"));
    let header = r#"{"schema":"pgfathom.samples","schema_version":1}"#;
    let reader = Folder::of(&[("samples.ndjson", &format!("{header}\n"))]).open();
    assert!(!reader.has_run && says(&reader, "run.json is missing"));
}

#[test]
fn a_newer_version_is_read_as_far_as_understood_and_keeps_what_it_does_not_know() {
    let text = r#"{"schema_version":9,"verb":"dance","state":"levitating","galaxy":{"arms":2},
        "steps":[{"key":"dance","verb":"dance","steps_per_minute":120,"state":"finished"}]}"#;
    let reader = Folder::of(&[("run.json", text)]).open();
    assert!(says(&reader, "run.json has schema version 9, this program knows 1"));
    assert_eq!((reader.run.verb.as_str(), reader.run.state), ("dance", State::Unknown));
    assert_eq!(reader.run.extra["galaxy"]["arms"], 2);
    assert_eq!(reader.run.steps[0].extra["steps_per_minute"], 120);
    let again = serde_json::to_value(&reader.run).unwrap();
    assert_eq!(again["galaxy"]["arms"], 2, "rewriting keeps it");
}

#[test]
fn damage_is_said_and_the_rest_is_read() {
    let reader = Folder::of(&[
        ("run.json", r#"{"schema_version":1,"verb":"#),
        ("samples.ndjson", "{\"schema_version\":1}\n{\"t_us\":1,\"source\":\"host\"}\nrubbish\n{\"t_us\":2,\"source\":\"host\"}\n"),
        ("events.ndjson", "{\"t_us\":1,\"kind\":\"note\",\"message\":\"no header\"}\n\n"),
    ])
    .open();
    assert!(!reader.has_run && says(&reader, "run.json is damaged"));
    assert_eq!((reader.samples.len(), reader.events.len()), (2, 1));
    assert!(says(&reader, "samples.ndjson: 1 lines are not understood"));
    assert_eq!(reader.last_us(), 2);
}

#[test]
fn wrong_types_in_run_json_are_an_answer_not_a_panic() {
    let reader = Folder::of(&[("run.json", r#"{"schema_version":1,"steps":"many"}"#)]).open();
    assert!(!reader.has_run && says(&reader, "run.json cannot be understood"));
    let reader = Folder::of(&[("run.json", "[]")]).open();
    assert!(says(&reader, "carries no schema version"));
}

#[test]
fn a_file_of_no_text_is_left_out() {
    let folder = Folder::of(&[("run.json", r#"{"schema_version":1,"state":"finished"}"#)]);
    fs::write(folder.0.join("samples.ndjson"), [0xff, 0xfe, 0x00, b'\n', 0xff]).unwrap();
    let reader = folder.open();
    assert!(reader.samples.is_empty() && says(&reader, "samples.ndjson"));
}
