use super::*;
use record::watched::{Sampled, Session};
use record::{RunDir, RunReader, State, What};
use serde_json::Map;
use std::os::unix::fs::{MetadataExt, symlink};

/// Words that are in every part of the run, and must not be in a redacted bundle of it.
const SECRETS: [&str; 10] = [
    "db1.acme",
    "acme.example",
    "carol",
    "shopdb",
    "secret-value",
    "10.20.30.40",
    "acme_audit",
    "people_of_acme",
    "/srv/pg/secret-place",
    "/srv/log/secret-place",
];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-bundle-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Path) -> PathBuf {
    let path = folder.join("run");
    let what = What {
        verb: "watch".to_string(),
        name: "shopdb".to_string(),
        argv: ["pgfathom", "watch", "-h", "db1.acme.example", "-U", "carol", "shopdb"]
            .map(str::to_string)
            .to_vec(),
        ..What::default()
    };
    let dir = RunDir::create(Some(&path), &what).expect("a run");
    let session = Session {
        node: "db1.acme.example:5432".to_string(),
        user: "carol".to_string(),
        database: "shopdb".to_string(),
        query: "update people_of_acme set x = 'secret-value'".to_string(),
        ..Session::default()
    };
    dir.watched(None, &[(1, 0, Sampled::from(session))]).expect("written");
    let fact = serde_json::json!({"host": "db1", "topic": "setting", "name": "shared_preload_libraries", "value": "acme_audit"});
    dir.sample(None, "fact", 2, 0, &fact).expect("written");
    for (name, path) in [("data_directory", "/srv/pg/secret-place"), ("some_file", "/srv/log/secret-place")] {
        let fact = serde_json::json!({"host": "db1", "topic": "server", "name": name, "value": path});
        dir.sample(None, "fact", 2, 0, &fact).expect("written");
    }
    let mut more = Map::new();
    more.insert("node".to_string(), "db1.acme.example:5432".into());
    more.insert("detail".to_string(), "Key (x)=(secret-value) already exists.".into());
    dir.event(&record::event::Event {
        t_us: 3,
        kind: "server_log".to_string(),
        message: "duplicate key \"people_of_acme\" for carol from 10.20.30.40".to_string(),
        more,
        ..Default::default()
    })
    .expect("written");
    dir.finish(State::Finished).expect("finished");
    fs::create_dir_all(path.join("stacks")).expect("made");
    fs::write(
        path.join("stacks/5-always.perf"),
        "# host: db1.acme.example\npostgres 1/1 [000] 1.0: cpu-clock:\n\tff osq_lock ([k])\n\n",
    )
    .expect("written");
    fs::write(path.join("findings.json"), "{\"findings\":[{\"claim\":\"carol waits for db1.acme.example\",\"evidence\":[\"update people_of_acme set x = 'secret-value'\"]}]}").expect("written");
    fs::write(path.join("report.html"), "<p>carol secret-value</p>").expect("written");
    fs::write(path.join("core.1"), "secret-value").expect("written");
    // Writers append whole lines, but a killed one leaves half of one.
    let mut samples = fs::OpenOptions::new().append(true).open(path.join("samples.ndjson")).expect("there");
    samples.write_all(b"{\"t_us\":9,\"user\":\"carol").expect("written");
    path
}

/// All bytes below a folder, names included.
fn everything(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("readable").flatten() {
        text += &format!("{}\n", entry.file_name().to_string_lossy());
        text += &match entry.path().is_dir() {
            true => everything(&entry.path()),
            false => String::from_utf8_lossy(&fs::read(entry.path()).expect("readable")).into_owned(),
        };
    }
    text
}

#[test]
fn a_bundle_is_opened_elsewhere_as_the_run_it_was() {
    let folder = Folder::new("trip");
    let run = run(&folder.0);
    for end in [".tar.gz", ".tar"] {
        let archive = folder.0.join(format!("evidence{}{end}", end.len()));
        let packed = pack(&run, &archive, Redaction::default()).expect("packed");
        assert!(packed.bytes > 0 && packed.files.contains(&"stacks/5-always.perf".to_string()), "{packed:?}");
        let opened = open(&archive).expect("opened");
        assert!(opened.is_new && opened.run_dir.ends_with(format!("evidence{}", end.len())));
        let (here, there) =
            (RunReader::open(&run).expect("read"), RunReader::open(&opened.run_dir).expect("read"));
        assert_eq!((&here.run, &here.samples, &here.events), (&there.run, &there.samples, &there.events));
        let stack = fs::read(opened.run_dir.join("stacks/5-always.perf")).expect("there");
        assert_eq!(stack, fs::read(run.join("stacks/5-always.perf")).expect("there"));
        let text = everything(&opened.run_dir);
        assert!(!text.contains("core.1") && !text.contains("report.html\n"), "only what is known goes in");
        // New files in the folder stay when the archive is named again.
        fs::write(opened.run_dir.join("findings.json"), "{}").expect("written");
        let again = open(&archive).expect("opened");
        assert!(!again.is_new && again.run_dir == opened.run_dir);
        assert_eq!(fs::read_to_string(again.run_dir.join("findings.json")).expect("there"), "{}");
        assert_eq!(open(&opened.run_dir).expect("a folder").run_dir, opened.run_dir);
    }
    assert!(matches!(
        pack(&run, &folder.0.join("evidence4.tar"), Redaction::default()),
        Err(BundleError::Exists { .. })
    ));
    let left = fs::read_dir(&folder.0).expect("readable").flatten();
    assert!(
        left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')),
        "no stage is left"
    );
}

#[test]
fn no_secret_is_in_a_redacted_bundle() {
    let folder = Folder::new("secret");
    let run = run(&folder.0);
    let plain = everything(&run);
    for secret in SECRETS {
        assert!(plain.contains(secret), "the test would prove nothing: {secret}");
    }
    let archive = folder.0.join("evidence.tar.gz");
    pack(&run, &archive, "hosts,sql,settings".parse().expect("words")).expect("packed");
    let opened = open(&archive).expect("opened");
    let text = everything(&opened.run_dir);
    for secret in SECRETS {
        let around = text.find(secret).map(|at| &text[at.saturating_sub(200)..(at + 100).min(text.len())]);
        assert_eq!(around, None, "{secret}");
    }
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(opened.run_dir.join(MANIFEST)).expect("there"))
            .expect("JSON");
    assert_eq!(manifest["redacted"], json!(["hosts", "sql", "settings"]));
    let reader = RunReader::open(&opened.run_dir).expect("still a run");
    assert_eq!((reader.samples.len(), reader.events.len()), (4, 1), "and all of it, but the torn line");
    assert!(text.contains("osq_lock") && text.contains("UPDATE sql-1"));
    // The archive does not contain the user who packed it.
    let listing = Command::new("tar").arg("-tvzf").arg(&archive).output().expect("listed").stdout;
    let listing = String::from_utf8_lossy(&listing);
    assert!(listing.lines().all(|line| line.contains(" 0/0 ")), "{listing}");
}

/// An entry of a tar archive, with a correct or a false length.
fn entry(name: &str, kind: u8, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header[157..168].copy_from_slice(b"/etc/passwd");
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].copy_from_slice(b"        ");
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn strange_archives_are_refused_before_a_byte_of_them_is_written() {
    let folder = Folder::new("strange");
    let run = entry("run/run.json", b'0', 2, b"{}");
    let pax = b"22 GNU.sparse.major=1\n";
    let many: Vec<u8> =
        (0..=archive::ENTRIES_MAX).flat_map(|number| entry(&format!("run/{number}"), b'0', 0, b"")).collect();
    for (name, bytes, expected) in [
        (
            "link",
            [run.clone(), entry("run/samples.ndjson", b'2', 0, b"")].concat(),
            "neither a file nor a folder",
        ),
        (
            "hard",
            [run.clone(), entry("run/samples.ndjson", b'1', 0, b"")].concat(),
            "neither a file nor a folder",
        ),
        ("device", [run.clone(), entry("run/zero", b'3', 0, b"")].concat(), "neither a file nor a folder"),
        ("pipe", [run.clone(), entry("run/zero", b'6', 0, b"")].concat(), "neither a file nor a folder"),
        ("sparse", entry("run/run.json", b'S', 2, b"{}"), "neither a file nor a folder"),
        ("pax", [entry("x", b'x', pax.len() as u64, pax), run.clone()].concat(), "sparse"),
        ("up", entry("../../etc/cron.d/x", b'0', 1, b"x"), "leads outside"),
        ("up2", entry("run/stacks/../../../x.perf", b'0', 1, b"x"), "leads outside"),
        ("root", entry("/etc/cron.d/x", b'0', 1, b"x"), "leads outside"),
        ("large", entry("run/run.json", b'0', 8_589_934_591, b"x"), "would take"),
        ("bomb", entry("run/other", b'0', 8_589_934_591, b"x"), "would take"),
        ("two", [run.clone(), entry("other/run.json", b'0', 2, b"{}")].concat(), "more than one run"),
        ("twice", [run.clone(), run.clone()].concat(), "twice"),
        ("many", many, "entries"),
        ("short", run[..512].to_vec(), "in the middle"),
        ("noise", vec![b'n'; 2048], "not a tar archive"),
        ("empty", vec![0; 1024], "empty"),
    ] {
        let path = folder.0.join(format!("{name}.tar"));
        fs::write(&path, bytes).expect("written");
        let error = open(&path).expect_err(name);
        assert!(
            matches!(error, BundleError::Foreign { .. }) && error.to_string().contains(expected),
            "{name}: {error}"
        );
        assert!(!folder.0.join(name).exists(), "{name}: nothing is left");
    }
    let left = fs::read_dir(&folder.0).expect("readable").flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
}

#[test]
fn an_archive_that_unpacks_to_more_than_its_size_can_hold_is_refused() {
    let folder = Folder::new("bomb");
    let inner = folder.0.join("run");
    fs::create_dir(&inner).expect("made");
    fs::write(inner.join("run.json"), "{\"schema_version\":1}").expect("written");
    let samples = fs::File::create(inner.join("samples.ndjson")).expect("made");
    samples.set_len(200 << 20).expect("sparse here, zeros in the archive");
    let archive = folder.0.join("zeros.tar.gz");
    tar(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&folder.0).arg("run"), &archive)
        .expect("packed");
    let error = open(&archive).expect_err("a bomb");
    assert!(error.to_string().contains("it would take more than"), "{error}");
    assert!(!folder.0.join("zeros").exists());
}

#[test]
fn long_names_and_foreign_files_are_passed_over() {
    let folder = Folder::new("passed");
    let long = format!("run/{}", "x".repeat(90));
    let bytes = [
        entry("./", b'5', 0, b""),
        entry("./run/", b'5', 0, b""),
        entry("x", b'L', long.len() as u64, long.as_bytes()),
        entry("short", b'0', 3, b"abc"),
        entry("./run/core.1", b'0', 6, b"secret"),
        entry("./run/run.json", b'0', 20, b"{\"schema_version\":1}"),
    ]
    .concat();
    let path = folder.0.join("good.tar");
    fs::write(&path, bytes).expect("written");
    let opened = open(&path).expect("opened").run_dir;
    let names: Vec<_> =
        fs::read_dir(&opened).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["run.json"]);
}

#[test]
fn bundles_and_what_is_unpacked_are_their_owners_alone() {
    let folder = Folder::new("private");
    let run = run(&folder.0);
    let archive = folder.0.join("evidence.tar.gz");
    pack(&run, &archive, Redaction::default()).expect("packed");
    let opened = open(&archive).expect("opened").run_dir;
    let mode = |path: &Path| fs::symlink_metadata(path).expect("there").mode() & 0o7777;
    assert_eq!((mode(&archive), mode(&opened), mode(&opened.join("stacks"))), (0o600, 0o700, 0o700));
    for name in [
        "run.json",
        "samples.ndjson",
        "events.ndjson",
        "latency.hlog",
        "findings.json",
        "bundle.json",
        "stacks/5-always.perf",
    ] {
        assert_eq!(mode(&opened.join(name)), 0o600, "{name}");
    }
    // A link in the run directory is not followed into the bundle.
    let secret = folder.0.join("secret");
    fs::write(&secret, "secret\n").expect("written");
    symlink(&secret, run.join("stacks/9-always.perf")).expect("linked");
    let packed = pack(&run, &folder.0.join("again.tar"), Redaction::default()).expect("packed");
    assert!(!packed.files.iter().any(|name| name.contains("9-always")), "{packed:?}");
}

#[test]
fn a_file_that_is_no_bundle_is_refused_with_a_hint() {
    let folder = Folder::new("wrong");
    let text = folder.0.join("notes.txt");
    fs::write(&text, "x").expect("written");
    let broken = folder.0.join("broken.tar.gz");
    fs::write(&broken, "no archive").expect("written");
    let empty = folder.0.join("empty");
    fs::create_dir(&empty).expect("made");
    let other = folder.0.join("other.tar");
    tar(Command::new("tar").arg("-cf").arg(&other).arg("-C").arg(&folder.0).arg("notes.txt"), &other)
        .expect("packed");
    for (error, part) in [
        (open(&text).expect_err("a text"), "neither a run directory nor a bundle"),
        (open(&broken).expect_err("broken"), "gzip failed"),
        (open(&other).expect_err("another archive"), "it has no run"),
        (
            pack(&empty, &folder.0.join("x.tar.gz"), Redaction::default()).expect_err("no run"),
            "no file of a run",
        ),
    ] {
        assert!(error.to_string().contains(part) && error.hint().is_some(), "{error}");
    }
    assert!(matches!(open(&folder.0.join("gone.tar.gz")), Err(BundleError::Io { action: "open", .. })));
    assert!(
        !folder.0.join("x.tar.gz").exists() && !folder.0.join("other").exists(),
        "nothing is left behind"
    );
    assert!(
        is_archive(Path::new("a.tar.zst"))
            && !is_archive(Path::new(".tar"))
            && !is_archive(Path::new("runs/x"))
    );
}
