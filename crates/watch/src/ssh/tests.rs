use super::*;
use crate::board::{NodeState, Process};
use record::watched::Sampled;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Ticks until something is seen, at most.
const TICKS_MAX: usize = 600;

/// A program that stands for ssh.
struct Fake(PathBuf);

impl Fake {
    fn new(name: &str, script: &str) -> Fake {
        let path = std::env::temp_dir().join(format!("pgfathom-ssh-{name}-{}", std::process::id()));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
        Fake(path)
    }

    fn host(&self, board: &Arc<Board>) -> RemoteHost {
        let remote = Remote { program: self.0.clone(), ..Remote::new("db1", "admin@db1", vec!["n1".into()]) };
        RemoteHost::new(remote, Arc::clone(board))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn tick_at(clock: Clock, now_us: u64) -> Tick {
    Tick { now_us, clock, cadence_us: 1_000_000 }
}

/// Ticks with real time until a line or event matches; returns all of them.
fn until(host: &mut RemoteHost, clock: Clock, wanted: impl Fn(&Batch) -> bool) -> Batch {
    let mut all = Batch::default();
    for _ in 0..TICKS_MAX {
        host.tick(&tick_at(clock, clock.now_us()), &mut all);
        if wanted(&all) {
            return all;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not seen: {all:?}");
}

fn missing(batch: &Batch) -> Vec<String> {
    let why = |(_, _, line): &(u64, u64, Sampled)| match line {
        Sampled::Missing(missing) if missing.what == "machine" => Some(missing.why.clone()),
        _ => None,
    };
    batch.lines.iter().filter_map(why).collect()
}

fn has_host(batch: &Batch) -> bool {
    batch.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Host(_)))
}

#[test]
fn a_machine_behind_a_pipe_is_read_with_its_banner_in_the_way() {
    // The arguments end with the destination and the command; the command runs here.
    let fake =
        Fake::new("local", "echo 'Welcome! ==> /proc/stat <=='; for last; do :; done; exec sh -c \"$last\"");
    let board = Arc::new(Board::new());
    let process = Process {
        pid: std::process::id(),
        backend: "client backend".into(),
        wait: String::new(),
        query_id: None,
    };
    board.set("n1", NodeState { active: vec![process], ..NodeState::default() });
    let clock = Clock::start();
    let mut host = fake.host(&board);
    let has_backend = |batch: &Batch| {
        batch.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Backend(line) if line.node == "n1"))
    };
    let all = until(&mut host, clock, |batch| has_host(batch) && has_backend(batch));
    let totals = all.lines.iter().find_map(|(_, _, line)| match line {
        Sampled::Host(totals) => Some(totals),
        _ => None,
    });
    let totals = totals.expect("totals");
    assert_eq!(totals.host, "db1");
    assert!(totals.memory_total_bytes > Some(1 << 20) && totals.cores >= Some(1), "{totals:?}");
    let has_mounts = all.lines.iter().any(|(_, _, line)| {
        matches!(line, Sampled::Mount(mount) if mount.size_bytes > Some(0) && mount.mount.starts_with('/'))
    });
    assert!(has_mounts, "space comes from df");
    let has_kernel =
        all.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Fact(fact) if fact.name == "release"));
    assert!(has_kernel && missing(&all).is_empty());
    host.finish(&tick_at(clock, clock.now_us()), &mut Batch::default());
    assert!(host.link.is_none());
}

#[test]
fn a_machine_that_refuses_is_missing_with_its_reason_and_tried_again_later() {
    let fake = Fake::new("refuse", "echo 'Permission denied (publickey).' >&2; exit 255");
    let clock = Clock::start();
    let mut host = fake.host(&Arc::new(Board::new()));
    let all = until(&mut host, clock, |batch| !missing(batch).is_empty());
    assert_eq!(missing(&all), ["ssh admin@db1: ssh ended: Permission denied (publickey)."]);
    assert_eq!(all.events.len(), 1);
    // The same reason is not reported again, and the next try waits longer.
    let first_due_us = host.retry_due_us;
    let mut again = Batch::default();
    let mut now_us = first_due_us;
    for _ in 0..TICKS_MAX {
        host.tick(&tick_at(clock, now_us), &mut again);
        if host.retry_due_us > first_due_us {
            break;
        }
        now_us += 1;
    }
    assert_eq!((missing(&again).len(), again.events.len()), (0, 0));
    assert!(host.retry_due_us - now_us >= 2 * RETRY_US.0, "{} {now_us}", host.retry_due_us);
    let mut none = Batch::default();
    host.tick(&tick_at(clock, now_us), &mut none);
    assert!(none.is_empty() && host.link.is_none(), "not before its time");
}

#[test]
fn a_machine_that_dies_is_missing_and_back() {
    let mark = std::env::temp_dir().join(format!("pgfathom-ssh-mark-{}", std::process::id()));
    let _ = fs::remove_file(&mark);
    // The first connection ends after one shipment, the next ones stay.
    let script = format!(
        "for last; do :; done; if [ -e {0} ]; then exec sh -c \"$last\"; fi; touch {0}\n\
         echo '@@hello 1 db1'; while read -r what pids; do case $what in x) echo '@@tick 5.0'; echo '==> /proc/stat <=='; echo 'cpu 1 1'; echo '@@end'; exit 3;; esac; done",
        mark.display()
    );
    let fake = Fake::new("die", &script);
    let clock = Clock::start();
    let mut host = fake.host(&Arc::new(Board::new()));
    let all = until(&mut host, clock, |batch| has_host(batch) && missing(batch).len() == 2);
    assert_eq!(missing(&all), ["ssh admin@db1: ssh ended", ""], "gone, and back");
    host.finish(&tick_at(clock, clock.now_us()), &mut Batch::default());
    let _ = fs::remove_file(&mark);
}

#[test]
fn a_machine_that_hangs_is_given_up_and_its_program_ended() {
    let fake = Fake::new("hang", "echo '@@hello 1 db1'; exec sleep 1000");
    let clock = Clock::start();
    let mut host = fake.host(&Arc::new(Board::new()));
    // Ticks without waiting: the test has its own clock.
    let quick = |now_us| Tick { now_us, clock, cadence_us: 20_000 };
    let mut all = Batch::default();
    host.tick(&quick(0), &mut all);
    let pid = host.link.as_ref().expect("a link").child.id();
    host.tick(&quick(STALL_US / 2), &mut all);
    assert!(all.is_empty(), "patience");
    let mut now_us = STALL_US / 2;
    while missing(&all).is_empty() && now_us < 100 * STALL_US {
        now_us += STALL_US;
        host.tick(&quick(now_us), &mut all);
    }
    assert!(missing(&all)[0].contains("no reply for"), "{all:?}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "its program was ended");
}

#[test]
fn a_shell_of_another_version_is_refused() {
    let fake = Fake::new("version-99", "echo '@@hello 99 db1'; exec cat");
    let clock = Clock::start();
    let mut host = fake.host(&Arc::new(Board::new()));
    let all = until(&mut host, clock, |batch| !missing(batch).is_empty());
    assert!(missing(&all)[0].contains("version 99 db1, not 1"), "{:?}", missing(&all));
}

#[test]
fn a_missing_program_is_reported() {
    let remote = Remote { program: "/nowhere/ssh".into(), ..Remote::new("db1", "db1", vec![]) };
    let mut host = RemoteHost::new(remote, Arc::new(Board::new()));
    let mut batch = Batch::default();
    host.tick(&tick_at(Clock::start(), 1), &mut batch);
    assert!(missing(&batch)[0].contains("cannot start ssh"), "{batch:?}");
}

/// Programs of the remote host: fakes on the PATH of its shell.
#[test]
fn remote_programs_are_run_and_one_that_hangs_delays_nothing() {
    let folder = std::env::temp_dir().join(format!("pgfathom-programs-over-there-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let program = |name: &str, script: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    };
    program("chronyc", &format!("cat {}", fixtures.join("chronyc-tracking.csv").display()));
    program(
        "auditctl",
        "[ $1 = -s ] && echo 'enabled 1' && echo 'lost 7' || echo '-a always,exit -S fdatasync'",
    );
    program("zpool", "echo '@@end'; echo '==> /proc/stat <=='; sleep 600");
    let fake = Fake::new(
        "programs",
        &format!("PATH={}:$PATH; export PATH; for last; do :; done; exec sh -c \"$last\"", folder.display()),
    );
    let clock = Clock::start();
    let mut host = fake.host(&Arc::new(Board::new()));
    let fact = |batch: &Batch, topic: &str, name: &str| {
        batch.lines.iter().find_map(|(_, _, line)| match line {
            Sampled::Fact(fact) if fact.topic == topic && fact.name == name => Some(fact.value.clone()),
            _ => None,
        })
    };
    let all = until(&mut host, clock, |batch| fact(batch, "audit", "rules").is_some() && has_host(batch));
    assert_eq!(fact(&all, "clock", "chrony").as_deref(), Some("Normal"));
    assert_eq!(fact(&all, "audit", "lost").as_deref(), Some("7"));
    assert_eq!(fact(&all, "audit", "rules").as_deref(), Some("-a always,exit -S fdatasync"));
    assert!(missing(&all).is_empty());
    host.finish(&tick_at(clock, clock.now_us()), &mut Batch::default());
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
