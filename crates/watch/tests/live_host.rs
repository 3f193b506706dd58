//! What is said of this very machine while a throwaway server works on it.

use lab::throwaway::{Throwaway, installations};
use record::Clock;
use record::watched::Sampled;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::board::{NodeState, Process};
use watch::host::LocalHost;
use watch::{Batch, Board, Collect, Tick};

/// A condition that has not come by then will not come.
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> Throwaway {
    let newest = installations().into_iter().next_back().expect("a PostgreSQL is installed");
    Throwaway::start(&newest, &[("max_connections", "150")]).expect("it starts")
}

/// The board as the collector of the node would fill it.
fn set_node(board: &Board, server: &Throwaway, pids: &[u32]) {
    let process = |pid: &u32| Process {
        pid: *pid,
        backend: "client backend".into(),
        wait: String::new(),
        query_id: None,
    };
    board.set(
        "n1",
        NodeState {
            t_us: 1,
            is_up: true,
            is_local: true,
            data_directory: Some(server.data_dir()),
            active: pids.iter().map(process).collect(),
            ..NodeState::default()
        },
    );
}

fn tick(host: &mut LocalHost, clock: Clock) -> Batch {
    let mut batch = Batch::default();
    host.tick(&Tick { now_us: clock.now_us(), clock, cadence_us: 1_000_000 }, &mut batch);
    batch
}

/// A program stands in for a server process whose log is not read: it fills the pipe, and sleeps in the next write.
#[test]
fn a_process_that_writes_more_than_is_taken_is_seen_in_its_write() {
    let server = server();
    let mut writer =
        std::process::Command::new("yes").stdout(std::process::Stdio::piped()).spawn().expect("yes");
    let board = Arc::new(Board::new());
    set_node(&board, &server, &[writer.id()]);
    let clock = Clock::start();
    let mut host = LocalHost::new("here", board);
    let start = Instant::now();
    let mut seen = None;
    while seen.is_none() && start.elapsed() < PATIENCE {
        let batch = tick(&mut host, clock);
        seen = batch.lines.iter().find_map(|(_, _, line)| match line {
            Sampled::Backend(line) if line.blocked_write == Some(1) => Some(line.wchan.clone()),
            _ => None,
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    writer.kill().expect("it is there");
    writer.wait().expect("it ends");
    assert!(seen.is_some_and(|place| place.contains("pipe")), "the kernel shows where it sleeps");
}

#[test]
fn this_machine_is_described_and_its_server_seen_at_work() {
    let server = server();
    let mut client = server.spec();
    client.application_name = "worker".into();
    let mut worker = connect::control::connect(&client).expect("connected");
    let pid: i32 = worker.query_one("select pg_backend_pid()", &[]).expect("answered").get(0);
    let pid = u32::try_from(pid).expect("a process id");
    let board = Arc::new(Board::new());
    set_node(&board, &server, &[pid]);
    let clock = Clock::start();
    let mut host = LocalHost::new("here", board);
    let mut seen = tick(&mut host, clock);
    // Work for the processor and for the disk, until both are seen.
    let start = Instant::now();
    let (mut has_worked, mut has_written) = (false, false);
    while !(has_worked && has_written) {
        assert!(start.elapsed() < PATIENCE, "worked {has_worked}, written {has_written}: {:#?}", seen.lines);
        worker
            .batch_execute("drop table if exists t; create table t as select g, repeat('x', 500) from generate_series(1, 20000) g; checkpoint")
            .expect("worked");
        let batch = tick(&mut host, clock);
        for (_, interval_us, line) in &batch.lines {
            match line {
                Sampled::Backend(line) => {
                    assert_eq!((line.pid, line.node.as_str()), (u64::from(pid), "n1"));
                    has_worked |= line.cpu_us > Some(0) && line.cpu_us <= Some(*interval_us * 2);
                }
                // A container may hide its disks: then /proc/diskstats knows none that the data could lie on.
                Sampled::Disk(disk) => has_written |= disk.used_for == "pgdata,wal" && disk.writes > Some(0),
                _ => {}
            }
        }
        has_written |= !batch.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Disk(_))) && has_worked;
        seen.lines.extend(batch.lines);
    }
    let totals = seen.lines.iter().find_map(|(_, interval_us, line)| match line {
        Sampled::Host(line) => Some((*interval_us, line)),
        _ => None,
    });
    let (interval_us, totals) = totals.expect("totals");
    assert!(interval_us > 0 && totals.host == "here");
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    assert!(totals.cores >= Some(cores), "{totals:?}");
    assert!(
        totals.memory_available_bytes < totals.memory_total_bytes
            && totals.memory_total_bytes > Some(100 << 20)
    );
    let shares = [
        totals.cpu_user_pct,
        totals.cpu_system_pct,
        totals.cpu_iowait_pct,
        totals.cpu_softirq_pct,
        totals.cpu_steal_pct,
    ];
    let sum: f64 = shares.into_iter().flatten().sum();
    assert!((0.0..=100.01).contains(&sum), "{totals:?}");
    let space = seen.lines.iter().find_map(|(_, _, line)| match line {
        Sampled::Mount(mount) if mount.used_for.contains("pgdata") => Some(mount.clone()),
        _ => None,
    });
    let space = space.expect("the mount that holds the data");
    assert!(space.free_bytes <= space.size_bytes && space.size_bytes > Some(1 << 20), "{space:?}");
    for (topic, name) in [("kernel", "release"), ("mount", "n1 pgdata is a mount point")] {
        let is_said =
            |line: &Sampled| matches!(line, Sampled::Fact(fact) if fact.topic == topic && fact.name == name);
        assert!(seen.lines.iter().any(|(_, _, line)| is_said(line)), "{topic} {name}");
    }
}

/// What a look costs, in things that can be counted: files of the machine stay open, those of a process at work are opened each time.
#[test]
fn a_look_opens_no_files_but_those_of_processes_at_work() {
    const LOOKS: u64 = 10;
    const FILES_PER_PROCESS: u64 = 4;
    let server = server();
    let mut sessions: Vec<_> =
        (0..3).map(|_| connect::control::connect(&server.spec()).expect("connected")).collect();
    let pid = |session: &mut connect::control::Control| {
        session.query_one("select pg_backend_pid()", &[]).expect("answered").get::<_, i32>(0) as u32
    };
    let pids: Vec<u32> = sessions.iter_mut().map(pid).collect();
    let board = Arc::new(Board::new());
    // Files opened in looks that follow on two others, with processes at work and sessions of ours.
    let looks = |host: &mut LocalHost, active: &[u32], ours: &[u32]| {
        set_node(&board, &server, active);
        board.change("n1", |state| (state.ours, state.ours_count) = (ours.to_vec(), ours.len() as u64));
        let clock = Clock::start();
        let mut look = || tick(host, clock);
        look();
        look();
        let before = host.opened();
        for _ in 0..LOOKS {
            tick(host, clock);
        }
        host.opened() - before
    };
    // What is read every 10 s, or once when the programs of the machine have answered, is not of these looks: they are taken again.
    let mut host = LocalHost::new("here", Arc::clone(&board));
    let of_processes = LOOKS * FILES_PER_PROCESS * pids.len() as u64;
    let mut counted = (0, 0, 0);
    for _ in 0..20 {
        counted = (looks(&mut host, &[], &[]), looks(&mut host, &pids, &[]), looks(&mut host, &[], &pids));
        if counted.0 == 0 && counted.1 <= of_processes && counted.2 == 0 {
            break;
        }
    }
    let (quiet, busy, ours) = counted;
    assert_eq!(quiet, 0, "files are kept open");
    assert!(busy <= of_processes, "{busy}");
    assert_eq!(ours, 0, "files of our own sessions are kept open");
}

/// The figures of docs/watch-host.md: `cargo test -p pgfathom-watch --release --test all live_host -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_tick() {
    const BACKENDS: usize = 120;
    const TICKS: usize = 200;
    let server = server();
    let mut sessions: Vec<_> =
        (0..BACKENDS).map(|_| connect::control::connect(&server.spec()).expect("connected")).collect();
    let pids: Vec<u32> = sessions
        .iter_mut()
        .map(|session| {
            session.query_one("select pg_backend_pid()", &[]).expect("answered").get::<_, i32>(0) as u32
        })
        .collect();
    for active in [0, 20, BACKENDS] {
        let board = Arc::new(Board::new());
        set_node(&board, &server, &pids[..active]);
        let clock = Clock::start();
        let mut host = LocalHost::new("here", board);
        let first = Instant::now();
        tick(&mut host, clock);
        let first_us = first.elapsed().as_micros();
        let mut costs: Vec<u128> = (0..TICKS)
            .map(|_| {
                let start = Instant::now();
                tick(&mut host, clock);
                start.elapsed().as_micros()
            })
            .collect();
        costs.sort_unstable();
        println!(
            "{active} active: first {first_us} us, median {} us, p90 {} us, max {} us",
            costs[TICKS / 2],
            costs[TICKS * 9 / 10],
            costs[TICKS - 1]
        );
    }
}
