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

fn has_problem(reader: &RunReader, words: &str) -> bool {
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
    assert!(has_problem(&reader, "samples.ndjson is missing: no charts over time"));
    assert!(has_problem(&reader, "events.ndjson is missing"));
    assert!(has_problem(&reader, "latency.hlog is missing: no heatmap and no percentile curve"));
    let header = r#"{"schema":"pgfathom.samples","schema_version":1}"#;
    let reader = Folder::of(&[("samples.ndjson", &format!("{header}\n"))]).open();
    assert!(!reader.has_run && has_problem(&reader, "run.json is missing"));
}

#[test]
fn a_later_version_is_refused_and_fields_that_are_not_known_are_kept() {
    for (name, text) in [
        ("run.json", r#"{"schema_version":9,"verb":"run"}"#),
        ("samples.ndjson", "{\"schema\":\"pgfathom.samples\",\"schema_version\":2}\n"),
        ("events.ndjson", "{\"schema\":\"pgfathom.events\",\"schema_version\":77}\n"),
    ] {
        let error = RunReader::open(&Folder::of(&[(name, text)]).0).unwrap_err();
        assert!(matches!(error, RecordError::Version { known: 1, .. }) && error.hint().is_some(), "{error}");
    }
    let text = r#"{"schema_version":1,"verb":"dance","state":"levitating","galaxy":{"arms":2},
        "steps":[{"key":"dance","verb":"dance","steps_per_minute":120,"state":"finished"}]}"#;
    let reader = Folder::of(&[("run.json", text)]).open();
    assert_eq!((reader.run.verb.as_str(), reader.run.state), ("dance", State::Unknown));
    assert_eq!(reader.run.extra["galaxy"]["arms"], 2);
    assert_eq!(reader.run.steps[0].extra["steps_per_minute"], 120);
    let again = serde_json::to_value(&reader.run).unwrap();
    assert_eq!(again["galaxy"]["arms"], 2, "rewriting keeps it");
}

#[test]
fn damage_is_reported_and_the_rest_is_read() {
    let reader = Folder::of(&[
        ("run.json", r#"{"schema_version":1,"state":"finished"}"#),
        ("samples.ndjson", "{\"schema_version\":1}\n{\"t_us\":1,\"source\":\"host\"}\nrubbish\n{\"t_us\":2,\"source\":\"host\"}\n"),
        ("events.ndjson", "{\"t_us\":1,\"kind\":\"note\",\"message\":\"no header\"}\n\n"),
    ])
    .open();
    assert!(reader.has_run);
    assert_eq!((reader.samples.len(), reader.events.len()), (2, 1));
    assert!(has_problem(&reader, "samples.ndjson: 1 lines were not understood"));
    assert_eq!(reader.last_us(), 2);
}

#[test]
fn a_run_json_that_is_none_is_an_error_and_not_a_partial_run() {
    let deep = format!("{{\"schema_version\":1,\"steps\":{}", "[".repeat(100_000));
    for text in [
        r#"{"schema_version":1,"verb":"#,
        r#"{"schema_version":1,"steps":"many"}"#,
        r#"{"schema_version":"one"}"#,
        r#"{"schema_version":-1}"#,
        r#"{"schema_version":0,"verb":"run","state":"finished"}"#,
        r#"{"verb":"run","state":"finished"}"#,
        r#"{"schema_version":null,"verb":"run"}"#,
        "[]",
        "{}",
        "null",
        &deep,
    ] {
        let error = RunReader::open(&Folder::of(&[("run.json", text)]).0).unwrap_err();
        assert!(
            matches!(error, RecordError::Invalid { .. }) && error.hint().is_some(),
            "{text:.40}: {error}"
        );
    }
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let folder = Folder::of(&[]);
    fs::File::create(folder.0.join("run.json")).unwrap().set_len(10 << 30).unwrap();
    let error = RunReader::open(&folder.0).unwrap_err();
    assert!(error.to_string().contains("larger than 64 MiB"), "{error}");
    // A line without an end is passed over in pieces.
    let folder = Folder::of(&[("run.json", r#"{"schema_version":1,"state":"finished"}"#)]);
    fs::File::create(folder.0.join("samples.ndjson")).unwrap().set_len(64 << 20).unwrap();
    assert!(has_problem(&folder.open(), "samples.ndjson: 1 lines are longer than 4 MiB"));
}

#[test]
fn noise_in_place_of_the_latency_log_is_an_error() {
    let mut noise: Vec<u8> = vec![];
    let mut word = 1u64;
    while noise.len() < 100_000 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend(word.to_le_bytes());
    }
    let lines = "this is\nno log\nof anything\n".to_string();
    for bytes in [noise.clone(), lines.into_bytes(), b"torn".to_vec()] {
        let folder = Folder::of(&[("run.json", r#"{"schema_version":1,"state":"finished"}"#)]);
        fs::write(folder.0.join("latency.hlog"), bytes).unwrap();
        let error = RunReader::open(&folder.0).unwrap_err();
        assert!(error.to_string().contains("not a log of HdrHistogram") && error.hint().is_some(), "{error}");
    }
}

#[test]
fn what_a_killed_writer_leaves_is_read() {
    let header = r##"#[Histogram log format version 1.3]"##;
    let reader = Folder::of(&[
        ("samples.ndjson", "{\"schema\":\"pgfathom.samples\",\"schema_version\":1}\n{\"t_us\":1,\"sou"),
        ("events.ndjson", ""),
        ("latency.hlog", header),
    ])
    .open();
    let empty = Folder::of(&[("run.json", "\0\0\0"), ("events.ndjson", "{\"schema_version\":1}\n")]).open();
    assert!(!empty.has_run && has_problem(&empty, "run.json is empty"));
    assert!(
        has_problem(&reader, "run.json is missing")
            && has_problem(&reader, "samples.ndjson: the last line is incomplete")
    );
    let bare = Folder::of(&[("latency.hlog", ""), ("events.ndjson", "{\"sch")]).open();
    assert!(bare.events.is_empty() && has_problem(&bare, "latency.hlog is empty"));
    assert!(!has_problem(&reader, "latency.hlog is empty"));
}

#[test]
fn links_and_pipes_in_a_directory_are_refused() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for name in ["run.json", "samples.ndjson", "events.ndjson", "latency.hlog"] {
        let folder = Folder::of(&[("other", "{}")]);
        std::os::unix::fs::symlink("/etc/passwd", folder.0.join(name)).unwrap();
        let error = RunReader::open(&folder.0).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{name}: {error}");
        fs::remove_file(folder.0.join(name)).unwrap();
        // Opening a pipe that nothing writes to would wait for ever.
        mknodat(CWD, folder.0.join(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = RunReader::open(&folder.0).unwrap_err();
        assert!(error.to_string().contains("pipe"), "{name}: {error}");
    }
}

#[test]
fn passwords_in_a_foreign_directory_are_not_shown() {
    let line = r#"{"t_us":1,"source":"session","query":"alter role joe password 's3cret'"}"#;
    let reader = Folder::of(&[("samples.ndjson", &format!("{{\"schema_version\":1}}\n{line}\n"))]).open();
    assert!(format!("{:?}", reader.samples).contains("password '***'"), "{:?}", reader.samples);
}

#[test]
fn a_file_of_no_text_is_left_out() {
    let folder = Folder::of(&[("run.json", r#"{"schema_version":1,"state":"finished"}"#)]);
    fs::write(folder.0.join("samples.ndjson"), [0xff, 0xfe, 0x00, b'\n', 0xff]).unwrap();
    let reader = folder.open();
    assert!(reader.samples.is_empty() && has_problem(&reader, "samples.ndjson"));
}
