//! Ctrl-C and SIGTERM: once ends early with a partial result, twice ends at once; both exit 130.

use crate::support;
use lab::throwaway::{Throwaway, installations};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use support::{Ended, Folder, pgfathom, run};
use testing::{Running, wait_for};

fn start(folder: &Folder, arguments: &[&str]) -> Running {
    let mut command = pgfathom(folder.path());
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::new(command.spawn().expect("the command starts"))
}

fn signalled(child: &Child, name: &str) -> bool {
    let status = std::process::Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    status.expect("kill starts").success()
}

fn signal(child: &Child, name: &str) {
    assert!(signalled(child, name), "{name} is sent");
}

/// Waits until the run directory says that the step has begun.
fn await_phase(folder: &Folder, run: &str, phase: &str) {
    let file = folder.path().join(run).join("run.json");
    wait_for(phase, || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(phase)));
}

#[test]
fn the_first_signal_ends_early_and_leaves_a_partial_result() {
    for name in ["INT", "TERM"] {
        let folder = Folder::new();
        // Hours of work: whoever does not hear the signal never ends.
        let child = start(&folder, &["self", "-T", "36000", "-o", "partial"]);
        await_phase(&folder, "partial", "generator");
        signal(&child, name);
        let ended: Ended = child.output().expect("ends").into();
        assert_eq!(ended.exit, Some(130), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().last(), Some("run: partial"));
        let run = std::fs::read_to_string(folder.path().join("partial/run.json")).expect("run.json is there");
        let run: serde_json::Value = serde_json::from_str(&run).expect("run.json is whole");
        assert_eq!(run["state"], "interrupted");
    }
}

#[test]
fn an_interrupted_up_leaves_nothing() {
    let folder = Folder::new();
    let dir = folder.path().join("cluster");
    let child = start(&folder, &["up", "sharded", "--nodes", "2", "--preset", "laptop", "--dir", "cluster"]);
    wait_for("the folder of the cluster", || dir.join(".pgfathom-cluster").exists());
    signal(&child, "TERM");
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted: what was begun is undone"), "{}", ended.stderr);
    assert!(!dir.exists(), "the cluster is being removed");
    assert_eq!(run(folder.path(), &["down"]).stdout, "");
}

#[test]
fn the_second_signal_ends_what_hangs() {
    // A server that accepts and never says a word.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = silent.local_addr().expect("it has an address").port().to_string();
    let folder = Folder::new();
    // The connection must still be tried when the second signal comes, on however busy a host.
    let target = format!("host=127.0.0.1 port={port} user=me dbname=x connect_timeout=120");
    let mut child = start(&folder, &["verify", &target]);
    let _held = silent.accept().expect("the command connects");
    signal(&child, "INT");
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok);
    // It has heard the first, and goes on waiting for the server, though not for long.
    assert!(lines.any(|line| line.contains("press again to stop at once")), "the first signal is answered");
    // On a busy host it may have given up by now.
    let _ = signalled(&child, "INT");
    let rest: Vec<String> = lines.collect();
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(130), "{rest:?}");
    let answered = |words: &str| rest.iter().any(|line| line.contains(words));
    assert!(answered("stopping at once") || answered("gave up"), "{rest:?}");
}

#[test]
fn one_signal_gives_up_a_server_that_does_not_answer() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = silent.local_addr().expect("it has an address").port().to_string();
    let folder = Folder::new();
    let target = format!("host=127.0.0.1 port={port} user=me dbname=x connect_timeout=120");
    // `run` ends at once, as nothing is in flight.
    for (verb, words) in [
        (&["verify"][..], "the comparison ends without a result"),
        (&["load", "ycsb", "--rows", "10"], "waiting for the chunks in hand to be committed or undone"),
        (&["prove", "bank", "-T", "1"], "waiting for running transactions"),
    ] {
        let arguments: Vec<&str> = verb.iter().copied().chain([target.as_str()]).collect();
        let child = start(&folder, &arguments);
        let _held = silent.accept().expect("the command connects");
        signal(&child, "INT");
        let ended: Ended = child.output().expect("ends").into();
        assert_eq!(ended.exit, Some(130), "{verb:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("gave up because the end was requested"), "{verb:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("connect_timeout"), "{verb:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("interrupted: {words}")), "{verb:?}: {}", ended.stderr);
    }
}

/// Processes of a server that are stopped until the end.
struct Frozen(Vec<u32>);

impl Frozen {
    fn of(server: &Throwaway) -> Frozen {
        let frozen = Frozen(server.instance().pids());
        frozen.signal("STOP");
        frozen
    }

    fn signal(&self, name: &str) {
        let pids = self.0.iter().map(u32::to_string);
        // One that has ended needs no signal.
        let _ =
            std::process::Command::new("kill").args(["-s", name]).args(pids).stderr(Stdio::null()).status();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

/// What a proof has written cannot be judged without the server, and whoever ends it does not want to wait for minutes to learn that.
#[test]
fn one_signal_ends_a_proof_whose_server_does_not_answer_any_more() {
    let installation = installations().into_iter().next().expect("make test installs one");
    let server = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let target = format!("host={} port={} user=postgres", server.socket_dir().display(), server.port());
    let folder = Folder::new();
    let child = start(&folder, &["prove", "ack", "-T", "600", "-c", "2", "-o", "proof", &target]);
    wait_for("rows of the proof", || {
        let sql = "select exists (select from pg_stat_user_tables where schemaname = 'pgfathom_prove' and n_tup_ins > 20)";
        server.value(sql).expect("it answers").as_deref() == Some("t")
    });
    let frozen = Frozen::of(&server);
    let begin = std::time::Instant::now();
    signal(&child, "INT");
    let ended: Ended = child.output().expect("ends").into();
    let took = begin.elapsed();
    drop(frozen);
    assert_eq!(ended.exit, Some(130), "{}{}", ended.stdout, ended.stderr);
    // Each wait for it ends within 10 s; the whole took more than two minutes.
    assert!(took.as_secs() < 60, "{took:?}: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("CANNOT TELL") && !ended.stdout.contains("BROKEN"), "{}", ended.stdout);
}

/// Nothing is wrong with the program while a commit waits for a standby, and the user learns for what it waits.
#[test]
fn a_commit_that_waits_for_a_standby_is_named() {
    let installation = installations().into_iter().next().expect("make test installs one");
    let server = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let target = format!("host={} port={} user=postgres", server.socket_dir().display(), server.port());
    let folder = Folder::new();
    let waits_for = |names: &str| {
        for sql in [
            format!("alter system set synchronous_standby_names = '{names}'"),
            "select pg_reload_conf()".to_owned(),
        ] {
            server.execute(&sql).expect("it is set");
        }
    };
    waits_for("away");
    let loading = ["load", "ycsb", "--rows", "100", "--watch", "off", "-o", "load", &target];
    let mut child = start(&folder, &loading);
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok);
    let note = lines.find(|line| line.contains("the commit waits for standbys")).expect("it is named");
    assert!(note.starts_with("note: ") && note.contains("'away'): none of them is connected"), "{note}");
    waits_for("");
    let rest: Vec<String> = lines.collect();
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(0), "{rest:?}");
}

#[test]
fn an_interrupted_load_continues_where_it_stopped() {
    let installation =
        installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
    let cluster = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let folder = Folder::new();
    let socket = cluster.socket_dir().display().to_string();
    let target = format!("host={socket} port={} user=postgres", cluster.port());
    let load = |out: &'static str| {
        ["load", "ycsb", "--rows", "150001", "--chunk-rows", "7500", "-j", "2", "-o", out]
    };
    let mut flags = load("first").to_vec();
    flags.push(&target);
    let child = start(&folder, &flags);
    await_phase(&folder, "first", "\"name\": \"copy\"");
    let chunks = || cluster.value("select count(*) > 0 from pgfathom.chunk").ok().flatten();
    wait_for("the first chunk", || chunks().as_deref() == Some("t"));
    signal(&child, "TERM");
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("run the same command again to continue"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().last(), Some("run: first"));
    let mut flags = load("second").to_vec();
    flags.push(&target);
    let ended = run(folder.path(), &flags);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("continuing: "), "{}", ended.stderr);
    let ended = run(folder.path(), &["verify", &target]);
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("150,001 rows exact"), "{}", ended.stdout);

    let child = start(&folder, &["watch", "-T", "60", "-o", "watched", &target]);
    await_phase(&folder, "watched", "\"state\": \"running\"");
    signal(&child, "INT");
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("interrupted: the last samples are written"), "{}", ended.stderr);
}

#[test]
fn a_run_keeps_its_result_when_the_server_is_gone_at_its_end() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let mut cluster = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let folder = Folder::new();
    let target = format!("host={} port={} user=postgres", cluster.socket_dir().display(), cluster.port());
    assert_eq!(run(folder.path(), &["load", "ycsb", "--rows", "1000", &target]).exit, Some(0));
    let child = start(
        &folder,
        &["run", "-b", "ycsb-a", "-c", "2", "-T", "3", "--watch", "off", "-o", "kept", &target],
    );
    let before =
        cluster.value("select sum(n_tup_upd) from pg_stat_user_tables").expect("a number").expect("no NULL");
    let updates = format!("select sum(n_tup_upd) > {before} + 50 from pg_stat_user_tables");
    wait_for("updates of the run", || cluster.value(&updates).ok().flatten().as_deref() == Some("t"));
    cluster.kill9().expect("it is killed");
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.exit, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("the ledger does not have the end of this run"), "{}", ended.stdout);
    let kept = std::fs::read_to_string(folder.path().join("kept/run.json")).expect("the run is kept");
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
    assert_eq!(kept["state"], "finished");
}

/// The end of a named pipe that writes, once somebody reads from it: until then it cannot be opened without waiting.
fn read_by_somebody(fifo: &Path) -> File {
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(fifo).ok();
    let mut writer = None;
    wait_for("somebody who reads the script", || {
        writer = writer.take().or_else(open);
        writer.is_some()
    });
    writer.expect("it was waited for")
}

#[test]
fn one_signal_ends_a_run_that_has_not_begun() {
    for (name, arguments) in [
        ("INT", &["run", "-f", "script.fifo", "-t", "1"][..]),
        ("TERM", &["run", "-f", "script.fifo@3", "-c", "1,2", "-T", "1"]),
        // Standard input is that pipe.
        ("INT", &["run", "-f", "-", "-t", "1"]),
    ] {
        let folder = Folder::new();
        let fifo = folder.path().join("script.fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        let mut command = pgfathom(folder.path());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let opened = arguments.contains(&"-").then(|| OpenOptions::new().read(true).write(true).open(&fifo));
        let child = match opened {
            Some(both) => {
                let mut both = both.expect("a pipe");
                std::io::Write::write_all(&mut both, b"SELECT 1;\n").expect("room in the pipe");
                command.stdin(both.try_clone().expect("a copy"));
                let child = Running::new(command.spawn().expect("the command starts"));
                // It has taken what is there, and waits for more.
                wait_for("the script to be read", || {
                    rustix::io::ioctl_fionread(&both).is_ok_and(|left| left == 0)
                });
                signal(&child, name);
                child
            }
            None => {
                let child = Running::new(command.spawn().expect("the command starts"));
                let _writer = read_by_somebody(&fifo);
                signal(&child, name);
                let ended: Ended = child.output().expect("ends").into();
                assert_eq!(ended.exit, Some(130), "{arguments:?}: {}", ended.stderr);
                assert!(!ended.stderr.contains("in flight"), "{}", ended.stderr);
                continue;
            }
        };
        let ended: Ended = child.output().expect("ends").into();
        assert_eq!(ended.exit, Some(130), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn one_signal_ends_a_run_that_waits_for_a_lock_before_it_begins() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let cluster = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let tables = "create table pgbench_branches (bid int); insert into pgbench_branches values (1);
        create table pgbench_tellers (tid int)";
    cluster.execute(tables).expect("tables");
    let target = format!("host={} port={} user=postgres", cluster.socket_dir().display(), cluster.port());
    // Of the first table its rows are counted, before there is a run directory; the second one is vacuumed, when there is one.
    for (table, statement) in [("pgbench_branches", "count"), ("pgbench_tellers", "vacuum")] {
        let mut holder = connect::control::connect(&cluster.spec()).expect("a session");
        holder.batch_execute(&format!("begin; lock {table}")).expect("the lock");
        let folder = Folder::new();
        let child = start(&folder, &["run", "-b", "tpcb-like", "-t", "1", "--watch", "off", &target]);
        let waits = format!(
            "select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and query like '%{statement}%'"
        );
        wait_for("a run that waits for the lock", || {
            cluster.value(&waits).ok().flatten().as_deref() == Some("t")
        });
        signal(&child, "INT");
        let ended: Ended = child.output().expect("ends").into();
        assert_eq!(ended.exit, Some(130), "{table}: {}", ended.stderr);
        assert!(!folder.path().join("runs").exists(), "{table}: a run that never began leaves nothing");
    }
}
