//! Throwaway clusters on every PostgreSQL found: they start, survive what tests do to them, and leave nothing behind.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lab::local::LocalError;
use lab::throwaway::{Options, StopMode, Throwaway, installations};
use testing::{on_each, wait_for};

fn runs(pid: u32) -> bool {
    // A zombie still has a folder in /proc, but no executable.
    Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok()
}

#[test]
fn a_cluster_starts_answers_survives_a_kill_and_goes() {
    on_each(&installations(), |installation| {
        let mut cluster = Throwaway::start(installation, &[("shared_buffers", "16MB")]).unwrap();
        assert_eq!(cluster.value("show shared_buffers").unwrap().as_deref(), Some("16MB"));
        let version = cluster.value("show server_version_num").unwrap().unwrap();
        assert_eq!(version.parse::<u32>().unwrap() / 10_000, installation.version.major);
        cluster.execute("create table t as select generate_series(1, 100) as i").unwrap();

        for mode in [StopMode::Fast, StopMode::Immediate] {
            cluster.stop(mode).unwrap();
            assert!(cluster.execute("select 1").is_err());
            cluster.start_again().unwrap();
        }
        let pid = cluster.pid().unwrap();
        cluster.kill9().unwrap();
        assert!(!runs(pid));
        cluster.start_again().unwrap();
        assert_eq!(cluster.value("select count(*) from t").unwrap().as_deref(), Some("100"));

        let (pid, dir) = (cluster.pid().unwrap(), cluster.socket_dir().to_owned());
        drop(cluster);
        assert!(!runs(pid));
        assert!(!dir.exists());
    });
}

#[test]
fn several_clusters_listen_on_tcp_at_once() {
    let installation = &installations()[0];
    let options = Options { tcp: true, ..Options::default() };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let cluster = options.start(installation).unwrap();
                let shown = cluster.value("show port").unwrap().unwrap();
                assert_eq!(shown, cluster.port().to_string());
                std::net::TcpStream::connect(("127.0.0.1", cluster.port())).unwrap();
            });
        }
    });
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = Throwaway::start(&installations()[0], &[("shared_bufers", "1MB")]).unwrap_err();
    let LocalError::Start { log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("unrecognized configuration parameter \"shared_bufers\""), "{log}");
    assert!(error.to_string().contains("shared_bufers"));
    assert!(error.hint().unwrap().contains("settings"), "{:?}", error.hint());
}

/// Set for the copy of this test that is to be killed.
const VICTIM: &str = "PGFATHOM_TEST_VICTIM";

/// What a server with damaged files prints differs by release; the hint must not, and no line of an earlier start may stand before it.
#[test]
fn a_damaged_server_is_told_as_that() {
    const DAMAGED: [&str; 4] = ["global/pg_control", "PG_VERSION", "postgresql.conf", "pg_wal"];
    on_each(&installations(), |installation| {
        let mut cluster = Throwaway::start(installation, &[]).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        for name in DAMAGED {
            let (path, aside) = (cluster.data_dir().join(name), cluster.data_dir().join("aside"));
            std::fs::rename(&path, &aside).unwrap();
            let error = cluster.start_again().unwrap_err();
            let LocalError::Start { log, .. } = &error else { panic!("{name}: {error}") };
            assert!(!log.is_empty() && !log.contains("database system is shut down\n"), "{name}: {log}");
            assert!(!log.contains("ready to accept connections"), "{name}: {log}");
            let hint = error.hint().unwrap_or_default();
            assert!(hint.contains("are damaged or missing"), "{name}: {error}: {hint}");
            std::fs::rename(&aside, &path).unwrap();
        }
        cluster.start_again().unwrap();
    });
}

#[test]
fn a_killed_process_takes_its_server_along() {
    if std::env::var_os(VICTIM).is_some() {
        // A short-lived thread starts the server: its end must not be the server's end.
        let cluster =
            std::thread::spawn(|| Throwaway::start(&installations()[0], &[]).unwrap()).join().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(cluster.value("select 1").unwrap().as_deref(), Some("1"));
        println!("\nvictim {} {}", cluster.pid().unwrap(), cluster.socket_dir().display());
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut victim = testing::again(module_path!(), "a_killed_process_takes_its_server_along")
        .arg("--nocapture")
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = std::io::BufRead::lines(std::io::BufReader::new(victim.stdout.take().unwrap()))
        .map_while(Result::ok)
        .find(|line| line.starts_with("victim "))
        .expect("the victim tells its server");
    let words: Vec<&str> = line.split_whitespace().collect();
    let (pid, dir): (u32, PathBuf) = (words[1].parse().unwrap(), words[2].into());
    assert!(runs(pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_for("the server of a killed process ends", || !runs(pid));
    // Another test of this process may sweep it first.
    wait_for("the folder is swept", || {
        lab::throwaway::remove_orphans();
        !dir.exists()
    });
}
