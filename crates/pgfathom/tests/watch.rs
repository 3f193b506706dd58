//! `watch` by itself and beside other verbs: what is left in the run directory, and how it ends.

use crate::{mistakes, support};
use lab::throwaway::{Installation, StopMode, Throwaway, installations};
use mistakes::{check, usage};
use record::RunReader;
use record::event;
use record::watched::Sampled;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom, run};

fn server() -> Throwaway {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    Throwaway::start(&installation, &[]).expect("a server")
}

fn uri(server: &Throwaway) -> String {
    format!("host={} port={} user=postgres dbname=postgres", server.socket_dir().display(), server.port())
}

fn lines(reader: &RunReader) -> Vec<Sampled> {
    reader.samples.iter().filter_map(Sampled::parse).collect()
}

#[test]
fn a_watch_leaves_a_directory_of_its_own() {
    let (folder, server) = (Folder::new(), server());
    let ended = run(
        folder.path(),
        &["watch", "-T", "1", "--interval", "100ms", "--format", "json", "-o", "seen", &uri(&server)],
    );
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let summary: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("stdout is JSON and nothing else");
    assert_eq!((&summary["verb"], &summary["valid"]), (&"watch".into(), &true.into()));
    assert!(
        summary["transactions"].as_u64().is_some()
            && summary["duration_s"].as_f64().is_some_and(|s| s >= 1.0)
    );
    assert_eq!(ended.stderr.lines().last(), Some("run: seen"));
    let reader = RunReader::open(&folder.path().join("seen")).expect("a run directory");
    let lines = lines(&reader);
    let server_lines = lines
        .iter()
        .filter(|line| matches!(line, Sampled::Server(server) if server.node == "single"))
        .count();
    assert!(server_lines >= 2, "{server_lines}");
    assert!(lines.iter().any(|line| matches!(line, Sampled::Host(_))), "this machine, too");
    assert!(lines.iter().any(
        |line| matches!(line, Sampled::Fact(fact) if fact.name == "shared_buffers" && fact.value == "64MB")
    ));
    assert!(reader.samples.iter().all(|sample| sample.step == "watch"));
    // Without the machine, for people.
    let ended = run(folder.path(), &["watch", "-T", "300ms", "--no-host", "-o", "alone", &uri(&server)]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("recorded ")
            && ended.stdout.contains("not monitored at single: pg_stat_statements"),
        "{}",
        ended.stdout
    );
    let reader = RunReader::open(&folder.path().join("alone")).expect("a run directory");
    assert!(!self::lines(&reader).iter().any(|line| matches!(line, Sampled::Host(_))));
    // Nobody is left behind; a server needs a moment to notice that its client has gone.
    let left = || {
        server
            .value("select count(*) from pg_stat_activity where application_name = 'pgfathom watch'")
            .unwrap()
    };
    let deadline = Instant::now() + testing::PATIENCE;
    while left().as_deref() != Some("0") {
        assert!(Instant::now() < deadline, "a connection stayed behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_ends_a_watch_well() {
    let (folder, server) = (Folder::new(), server());
    let child = testing::Running::new(
        pgfathom(folder.path())
            .args(["watch", "--no-host", "-o", "seen", &uri(&server)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts"),
    );
    let samples = folder.path().join("seen/samples.ndjson");
    let deadline = Instant::now() + testing::PATIENCE;
    while !std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"source\":\"server\"")) {
        assert!(Instant::now() < deadline, "nothing was seen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(status.expect("kill starts").success());
    let ended: Ended = child.output().expect("ends").into();
    // That is how a watch without an end is meant to end.
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let reader = RunReader::open(&folder.path().join("seen")).expect("a run directory");
    assert_eq!(reader.run.state, record::State::Finished);
}

#[test]
fn loads_and_runs_are_watched_unless_they_shall_not_be() {
    let (folder, server) = (Folder::new(), server());
    let target = uri(&server);
    let ended = run(folder.path(), &["load", "ycsb", "--rows", "20000", "-o", "load", &target]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let ended = run(folder.path(), &["run", "-b", "ycsb-a", "-c", "2", "-T", "2", "-o", "run", &target]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    for name in ["load", "run"] {
        let reader = RunReader::open(&folder.path().join(name)).expect("a run directory");
        let lines = lines(&reader);
        assert!(lines.iter().any(|line| matches!(line, Sampled::Server(_))), "{name}");
        assert!(lines.iter().any(|line| matches!(line, Sampled::Host(_))), "{name}");
        assert!(!reader.events.iter().any(|event| event.kind == event::RESTART), "{name}");
        // The load made it after the first look at tables, and ended long before the second was due.
        assert!(
            lines
                .iter()
                .any(|line| matches!(line, Sampled::Table(table) if table.relation == "public.usertable")),
            "{name}"
        );
    }
    let reader = RunReader::open(&folder.path().join("run")).expect("a run directory");
    let counted: u64 = lines(&reader)
        .iter()
        .filter_map(|line| match line {
            Sampled::Server(server) => server.xact_commit,
            _ => None,
        })
        .sum();
    assert!(counted > 0, "the server counted transactions of the run");
    let ended =
        run(folder.path(), &["run", "-b", "ycsb-c", "-T", "300ms", "--watch", "off", "-o", "blind", &target]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let reader = RunReader::open(&folder.path().join("blind")).expect("a run directory");
    assert!(lines(&reader).is_empty());
}

/// A server process of ours that ends with the test.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").args(["-s", "INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_speaks_russian_is_understood_as_far_as_it_goes() {
    // Not every package of PostgreSQL has the translations.
    let speaks_russian = |installation: &Installation| {
        let file = format!("locale/ru/LC_MESSAGES/postgres-{}.mo", installation.version.major);
        let share = installation.bin_dir.join("../share");
        [share, "/usr/share".into()].iter().any(|share| share.join(&file).exists())
    };
    let Some(installation) = installations().into_iter().find(speaks_russian) else {
        return testing::skip(&testing::Lack::new("russian-messages", "no PostgreSQL has them"));
    };
    let settings = [("lc_messages", "C.UTF-8"), ("log_line_prefix", "%m [%p] %e ")];
    let mut server = Throwaway::start(&installation, &settings).expect("a server");
    server.stop(StopMode::Fast).expect("stops");
    // Its messages are translated by its environment: its own setting does not say so.
    let data = server.data_dir();
    let owner = std::fs::metadata(&data).expect("a data directory");
    let log = std::fs::File::create(data.join("russian.log")).expect("a log");
    let mut command = std::process::Command::new(installation.bin_dir.join("postgres"));
    command.arg("-D").arg(&data).env("LANGUAGE", "ru").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    if std::fs::metadata("/proc/self").is_ok_and(|ours| ours.uid() != owner.uid()) {
        command.uid(owner.uid()).gid(owner.gid());
    }
    let _running = Server(command.spawn().expect("the server starts"));
    let deadline = Instant::now() + testing::PATIENCE;
    while server.value("select 1").is_err() {
        assert!(Instant::now() < deadline, "the server did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(data.join("russian.log")).expect("the log is there");
    if !log.contains("СООБЩЕНИЕ") {
        let why = format!("the C library does not translate for C.UTF-8: {log}");
        return testing::skip(&testing::Lack::new("russian-messages", why));
    }
    let folder = Folder::new();
    let child = testing::Running::new(
        pgfathom(folder.path())
            .args(["watch", "--no-host", "--interval", "200ms", "-o", "seen", &uri(&server)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts"),
    );
    let seen = || RunReader::open(&folder.path().join("seen")).ok();
    let is_told = || {
        seen().is_some_and(|reader| {
            let missing = lines(&reader).iter().any(|line| {
                matches!(line, Sampled::Missing(missing) if missing.what == "words of the server log" && missing.why.contains("lc_messages"))
            });
            let checkpoint = reader.events.iter().any(|event| event.kind == event::CHECKPOINT && event.more["from"] == "counters");
            missing && checkpoint && reader.events.iter().any(|event| event.more.get("sqlstate") == Some(&"22012".into()))
        })
    };
    while !is_told() {
        assert!(
            Instant::now() < deadline + Duration::from_secs(60),
            "{:?}",
            seen().map(|reader| reader.events)
        );
        server.execute("select 1 / 0").expect_err("it is an error");
        server.execute("checkpoint").expect("a checkpoint");
        std::thread::sleep(Duration::from_millis(200));
    }
    let status = std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(status.expect("kill starts").success());
    let ended: Ended = child.output().expect("ends").into();
    assert!(ended.stdout.contains("words of the server log"), "{}", ended.stdout);
    let reader = seen().expect("a run directory");
    let error = reader.events.iter().find(|event| event.kind == event::SERVER_LOG).expect("an error");
    assert_eq!(error.more["severity"], "ERROR", "{error:?}");
}

/// The seconds of client time are taken apart with what the scheduler says of both sides, and watching says what it cost.
#[test]
fn client_time_is_cpu_and_waiting_for_cpu_and_watching_keeps_account_of_itself() {
    let (folder, server) = (Folder::new(), server());
    let target = uri(&server);
    let ended =
        run(folder.path(), &["load", "ycsb", "--rows", "1000", "--watch", "off", "-o", "load", &target]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let has_schedule = |reader: &RunReader, who: &str| {
        lines(reader).iter().any(|line| {
            matches!(line, Sampled::Schedule(line) if line.who == who && line.looked > 0 && line.run_us > Some(0))
        })
    };
    // Two looks at the same processes make a line: how long that takes is the machine's affair.
    let mut seconds = 4;
    let reader = loop {
        let name = format!("run-{seconds}");
        let time = seconds.to_string();
        let ended =
            run(folder.path(), &["run", "-b", "ycsb-c", "-c", "2", "-T", &time, "-o", &name, &target]);
        assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
        let reader = RunReader::open(&folder.path().join(&name)).expect("a run directory");
        if has_schedule(&reader, "sessions") && has_schedule(&reader, "client") {
            break reader;
        }
        seconds *= 2;
        assert!(seconds <= 64, "the scheduler's account is missing: {:#?}", lines(&reader));
    };
    let parts: Vec<String> = lines(&reader)
        .into_iter()
        .filter_map(|line| match line {
            Sampled::Watching(line) if line.cpu_us > Some(0) => Some(line.part),
            _ => None,
        })
        .collect();
    assert!(["views", "machine"].iter().all(|part| parts.iter().any(|told| told == part)), "{parts:?}");
    let of_server = |line: &Sampled| matches!(line, Sampled::Watching(line) if line.part == "views" && line.server_cpu_us > Some(0));
    assert!(lines(&reader).iter().any(of_server), "the server runs here: what it computed for us is known");
    let pure = |line: &Sampled| matches!(line, Sampled::Server(line) if line.rtt_us.is_some() && line.asked_us.is_some());
    assert!(lines(&reader).iter().any(pure));
    let name = format!("run-{seconds}");
    let ended = run(folder.path(), &["explain", "--format", "json", &name]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let time = &told["client_time"][0];
    let parts = time["parts"].as_array().expect("parts");
    let sum: f64 = parts.iter().filter_map(|part| part["share"].as_f64()).sum();
    // They are measured separately: on a busy machine they overlap, which is said.
    let is_said = time["notes"].to_string().contains("the parts add up to ");
    assert!(sum > 1.0 - 1e-6 && (sum < 1.0 + 2e-3 || is_said), "{time:#?}");
    for part in ["client", "server CPU", "server waits for CPU", "unexplained"] {
        assert!(parts.iter().any(|told| told["name"] == part), "{part} is missing: {parts:#?}");
    }
    let ended = run(folder.path(), &["report", &name]);
    assert!(ended.stdout.contains("monitoring took "), "{}", ended.stdout);
    let ended = run(folder.path(), &["watch", "-T", "300ms", "-o", "seen", &target]);
    assert!(ended.stdout.contains("\nmonitoring took "), "{}", ended.stdout);
}

#[test]
fn mistakes_have_an_answer() {
    check(
        &[
            usage("watch --interval 0", "--interval: must be more than 0", "write seconds"),
            usage("watch -T soon", "-T/--time: \"soon\" is not a duration", "write seconds"),
            usage("watch --perf sometimes", "--perf: \"sometimes\" is not known", "auto, always, off"),
            usage("watch --ssh db1=n1,", "--ssh: \"db1=n1,\" contains an empty node name", "HOST=NODE"),
            usage(
                "watch --bundle --redact rows",
                "--redact: \"rows\" is not one of hosts, sql, settings",
                "hosts,sql,settings",
            ),
            usage(
                "watch --bundle=evidence.zip",
                "--bundle=evidence.zip: the file name has no known ending",
                "FILE.tar.gz",
            ),
            usage(
                "watch --sysroot nowhere",
                "--sysroot nowhere: there is no folder proc in it",
                "copies of /proc and /sys",
            ),
            usage(
                "watch --pooler xyz",
                "--pooler is not a connection string: xyz",
                "--pooler 'host=... port=... user=...'",
            ),
            usage("run -b ycsb-a --watch maybe", "--watch: \"maybe\" is unknown", "on, off"),
            // What reads the directories that are left.
            usage("explain", "explain: RUN is missing", "explain --help"),
            usage("explain nowhere", "cannot read nowhere...", "ls runs/"),
            usage("explain .", ". is not a run directory...", "run: DIR"),
        ],
        |_| (),
    );
}
