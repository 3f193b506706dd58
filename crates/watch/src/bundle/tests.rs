use super::*;
use record::watched::{Sampled, Session};
use record::{RunDir, RunReader, State, What};
use serde_json::Map;

/// Words that stand in every part of the run, and in no redacted bundle of it.
const SECRETS: [&str; 8] = [
    "db1.acme",
    "acme.example",
    "carol",
    "shopdb",
    "secret-value",
    "10.20.30.40",
    "acme_audit",
    "people_of_acme",
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
        // What was made in the folder stays when the archive is named again.
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
    assert_eq!((reader.samples.len(), reader.events.len()), (2, 1), "and all of it, but the torn line");
    assert!(text.contains("osq_lock") && text.contains("UPDATE sql-1"));
    // Who unpacks it does not learn who packed it either.
    let listing = tar(Command::new("tar").arg("-tvzf").arg(&archive), &archive).expect("listed");
    assert!(listing.lines().all(|line| line.contains(" 0/0 ")), "{listing}");
}

#[test]
fn strange_archives_are_refused() {
    for (line, expected) in [
        ("-rw-r--r-- 0/0 5 2026-11-20 10:00 run/run.json", Ok(())),
        ("-rw-r--r-- 0/0 5 2026-11-20 10:00 ./run/a b.txt", Ok(())),
        ("lrwxrwxrwx 0/0 0 2026-11-20 10:00 run/x -> /etc/passwd", Err("neither a file nor a folder")),
        ("-rw-r--r-- 0/0 5 2026-11-20 10:00 ../../etc/cron.d/x", Err("leads outside")),
        ("-rw-r--r-- 0/0 5 2026-11-20 10:00 /etc/cron.d/x", Err("leads outside")),
        ("-rw-r--r-- 0/0 99999999999 2026-11-20 10:00 run/run.json", Err("it would take")),
        ("crw-r--r-- 0/0 1,5 2026-11-20 10:00 run/zero", Err("neither a file nor a folder")),
        ("", Err("empty")),
    ] {
        let found = check(line);
        match expected {
            Ok(()) => assert_eq!(found, Ok(()), "{line}"),
            Err(part) => assert!(found.as_ref().is_err_and(|why| why.contains(part)), "{line}: {found:?}"),
        }
    }
}

#[test]
fn what_is_no_bundle_is_said_with_a_hint() {
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
        (open(&broken).expect_err("broken"), "tar failed"),
        (open(&other).expect_err("another archive"), "there is no run in it"),
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
