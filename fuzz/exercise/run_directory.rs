//! Any bytes as a file of a run directory: it is read, explained and shown, or refused; nothing of it acts on who reads it.

use record::{RunReader, escape};
use std::fs;
use std::path::PathBuf;

/// The first byte chooses the file.
const FILES: [&str; 6] = [
    "run.json",
    "samples.ndjson",
    "events.ndjson",
    "latency.hlog",
    "findings.json",
    "stacks/5000000-odd.perf",
];
/// What the directory holds beside it.
const RUN: &str = r#"{"schema_version":1,"run_id":"r","verb":"run","state":"finished","started":{"wall_us":1763633700000000,"monotonic_us":77},
    "steps":[{"key":"run-a","verb":"run","name":"a","state":"finished","start_us":0,"end_us":9000000,
    "phases":[{"name":"measure","start_us":0,"end_us":9000000}],"summary":{"verb":"run","valid":true,"transactions":10,"tps":1.1}}]}"#;
/// Histograms decoded of one log.
const DECODED_MAX: usize = 20;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let path = std::env::temp_dir().join(format!("fuzz-run-{}-{thread}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("stacks")).expect("the folder for temporary files is writable");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn exercise(data: &[u8]) {
    let Some((which, content)) = data.split_first() else { return };
    let folder = Folder::new();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.0.join(name), bytes).expect("a folder of ours");
    write("run.json", RUN.as_bytes());
    write(FILES[usize::from(*which) % FILES.len()], content);
    let Ok(reader) = RunReader::open(&folder.0) else {
        // What cannot be read cannot be explained either.
        assert!(explain::explain(&folder.0, "0").is_err() && report::json(&folder.0).is_err());
        return;
    };
    if let Some(mut decoder) = reader.decoder() {
        for interval in reader.intervals.iter().take(DECODED_MAX) {
            let _ = decoder.add_to(interval, &mut record::Latency::new());
        }
    }
    let findings = explain::explain(&folder.0, "0").expect("it could be read");
    for part in findings.client_time.iter().flat_map(|time| &time.parts) {
        assert!(part.us >= 0.0 && part.share >= 0.0, "{part:?}");
    }
    let _ = explain::text(&findings, explain::Detail::Full);
    let _ = report::text(&folder.0).expect("it could be read");
    let json = report::json(&folder.0).expect("it could be read");
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    let html = report::html(&folder.0).expect("it could be read");
    assert!(!html.contains(|c: char| c == '\u{1b}' || ('\u{202a}'..='\u{202e}').contains(&c)));
    assert!(!escape::visible(&json).contains(escape::is_active));
}
