//! Every workload of `run` over every kind of link to a real server: a unix socket, TCP, TLS 1.2 and 1.3, on both pollers, through a relay
//! that cuts the bytes anew, and through a restart of the server.

use crate::labs::{self, ServerLab};
use crate::support;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::throwaway::{Options, SUPERUSER, StopMode, installations};
use rcgen::{CertificateParams, KeyPair};
use record::RunReader;
use rustix::process::{Pid, Signal, kill_process};
use support::{Ended, pgfathom};

/// Bytes that the relay passes on at once, at most.
const CHUNK_BYTES_MAX: u64 = 90;

/// pgbench's tables at scale 1, with a few accounts.
const PGBENCH: &str = "
    create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
    create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));
    create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));
    create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
    insert into pgbench_branches values (1, 0);
    insert into pgbench_tellers select n, 1, 0 from generate_series(1, 10) n;
    insert into pgbench_accounts select n, 1, 0 from generate_series(1, 100000) n";

/// A server with TLS and all data, and a folder to type commands in.
fn start() -> ServerLab {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let files = [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())]
        .map(|(name, text)| (name.to_owned(), text.into_bytes()))
        .to_vec();
    let settings = vec![("ssl".to_owned(), "on".to_owned())];
    let server = Options { tcp: true, settings, files, ..Options::default() }.start(&installation);
    let lab = ServerLab::new(server.expect("a server"));
    lab.server.execute(PGBENCH).expect("pgbench's tables");
    let unix = links_to(&lab, lab.server.port()).remove(0).1;
    expect(&lab, 0, "load ycsb --rows 1000 -o loaded", &unix);
    lab.folder.write(
        "script.sql",
        "\\set n random(1, 9)\nBEGIN;\nSELECT :n AS m \\gset\nSELECT 1 / (:m = :n)::int;\nEND;\n",
    );
    lab.folder.write(
        "pipeline.sql",
        "\\set n random(1, 9)\n\\startpipeline\nSELECT :n;\nSELECT repeat('x', 100000);\n\\endpipeline\n",
    );
    lab
}

/// Names of links, and the connection strings behind them.
fn links_to(lab: &ServerLab, port: u16) -> Vec<(&'static str, String)> {
    let (user, unix) = (SUPERUSER, lab.server.socket_dir().display());
    let tcp = format!("host=127.0.0.1 port={port} user={user} dbname=postgres");
    vec![
        ("unix", format!("host={unix} port={} user={user} dbname=postgres", lab.server.port())),
        ("tcp", format!("{tcp} sslmode=disable")),
        ("tls1.2", format!("{tcp} sslmode=require ssl_max_protocol_version=TLSv1.2")),
        ("tls1.3", format!("{tcp} sslmode=require ssl_min_protocol_version=TLSv1.3")),
    ]
}

fn command(lab: &ServerLab, arguments: &str, link: &str) -> Command {
    let mut command = pgfathom(lab.folder.path());
    command.args(arguments.split_whitespace()).arg(link);
    command
}

fn expect(lab: &ServerLab, exit: i32, arguments: &str, link: &str) {
    labs::expect(exit, command(lab, arguments, link), &format!("{arguments} '{link}'"));
}

/// Cuts what goes through it into pieces of random size, in both directions; the port of the relay.
fn relay(port: u16, seed: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let own = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        let mut number = seed;
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let again = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            for (from, to) in [again, (server, client)] {
                number += 1;
                std::thread::spawn(move || cut(from, to, number));
            }
        }
    });
    own
}

fn cut(mut from: TcpStream, mut to: TcpStream, seed: u64) {
    let _ = to.set_nodelay(true);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            // xorshift: one seed, one way of cutting.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Much at once is cut coarsely, or the test would take for ever.
            let max = if count > 2_000 { 3_000 } else { CHUNK_BYTES_MAX };
            let (piece, behind) = rest.split_at(rest.len().min((state % max) as usize + 1));
            if to.write_all(piece).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
            rest = behind;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

const POLLERS: [&str; 2] = ["epoll", "auto"];

#[test]
fn every_workload_runs_over_every_link() {
    let lab = start();
    expect(&lab, 0, "load tpcc --scale 1 -o warehouse", &links_to(&lab, lab.server.port()).remove(0).1);
    let workloads = [
        ("-f script.sql -M simple", 20),
        ("-f script.sql -M extended", 20),
        ("-f script.sql -M prepared", 20),
        ("-f pipeline.sql -M extended", 10),
        ("-f pipeline.sql -M prepared", 10),
        ("-b ycsb-a", 30),
        ("-b ycsb-e -M simple", 10),
        ("-b ycsb-f -M extended", 20),
        ("-b ycsb-e --wire lean", 10),
        ("-b select-only", 20),
        ("-b simple-update -n", 20),
        ("-b tpcb-like -n", 20),
        ("-b tpcc --no-delays", 10),
    ];
    let relayed = relay(lab.server.port(), 7);
    let mut links = links_to(&lab, lab.server.port());
    let direct = links.len();
    links.extend(links_to(&lab, relayed).into_iter().skip(1));
    let mut number = 0;
    let is_thorough = testing::is_thorough(
        "each workload over each link on both pollers: in turn, every other one through the relay",
    );
    for (at, (name, link)) in links.iter().enumerate() {
        let is_relayed = at >= direct;
        for (turn, poller) in POLLERS.iter().enumerate() {
            for (which, (workload, transactions)) in workloads.into_iter().enumerate() {
                // Every workload goes over every direct link, and over one kind of link through the relay.
                let parts = if is_relayed { 2 * POLLERS.len() } else { POLLERS.len() };
                if !is_thorough && (which + at) % parts != turn {
                    continue;
                }
                number += 1;
                let out = format!("out{number}");
                let call = format!(
                    "run {workload} -c 3 -j 2 -t {transactions} --watch off --poller {poller} -o {out}"
                );
                expect(&lab, 0, &call, link);
                let run = RunReader::open(&lab.folder.path().join(&out)).expect("a run directory").run;
                assert_eq!(run.summary.transactions, Some(3 * transactions), "{name}: {call}");
            }
        }
    }
    // Nothing was written that should not have been, or twice.
    let unix = &links[0].1;
    expect(&lab, 0, "verify ycsb --deep -o verified", unix);
    let balances =
        "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    assert_eq!(lab.server.value(balances).expect("an answer").as_deref(), Some("t"));
}

#[test]
fn a_restart_under_tls_is_an_outage_and_not_the_end() {
    let mut lab = start();
    let links = links_to(&lab, lab.server.port());
    for poller in POLLERS {
        for (name, link) in &links[2..] {
            let out = format!("{name}-{poller}");
            let call = format!("run -b ycsb-a -c 4 -R 400 -T 300 --watch off --poller {poller} -o {out}");
            let child = command(&lab, &call, link).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.expect("the command starts");
            let samples = lab.folder.path().join(&out).join("samples.ndjson");
            // Seconds with all sessions connected, behind so many lines.
            let calm = |behind: usize| {
                let text = std::fs::read_to_string(&samples).unwrap_or_default();
                (
                    text.lines().skip(behind).filter(|line| line.contains("\"sessions\":4,")).count(),
                    text.lines().count(),
                )
            };
            let wait = |behind: usize| {
                let deadline = Instant::now() + Duration::from_secs(120);
                while calm(behind).0 < 2 {
                    assert!(Instant::now() < deadline, "{call}: four sessions do not work");
                    std::thread::sleep(Duration::from_millis(20));
                }
            };
            wait(0);
            lab.server.stop(StopMode::Immediate).expect("it stops");
            lab.server.start_again().expect("it starts again");
            wait(calm(0).1);
            let pid = Pid::from_child(&child);
            kill_process(pid, Signal::INT).expect("a signal");
            let ended: Ended = child.wait_with_output().expect("it ends").into();
            assert_eq!(ended.exit, Some(130), "{call}: {}{}", ended.stdout, ended.stderr);
            let run = RunReader::open(&lab.folder.path().join(&out)).expect("a run directory").run;
            let outages = &run.steps[0].outages;
            assert!(outages.iter().any(|outage| outage.duration_us.is_some()), "{call}: {outages:?}");
        }
    }
    expect(&lab, 0, "verify ycsb --deep -o verified", &links[0].1);
}
