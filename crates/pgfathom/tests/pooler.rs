//! Every verb through a connection pooler, pgbouncer: where a pool gives each session a server process of its own, all of it works; where
//! processes are shared between transactions, `run` and `watch` do, leave nothing behind on them, and the others refuse with the reason.

use crate::labs::{self, ServerLab};
use crate::support;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::{Lack, skip};

use connect::ConnSpec;
use connect::hot::{self, HotConnection};
use lab::throwaway::{Options, SUPERUSER, Throwaway, installations};
use record::RunReader;
use record::watched::Sampled;
use support::{Ended, Folder, pgfathom};

/// Server processes of the pool.
const POOL: usize = 3;

fn program() -> Option<PathBuf> {
    ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
}

/// Whether this pgbouncer can carry prepared statements to another server process.
fn follows_statements(program: &PathBuf) -> bool {
    let output = Command::new(program).arg("--version").output().expect("pgbouncer says its version");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (1, 21)
}

/// A server with rows, a pgbouncer before it, and a folder to type commands in.
struct Pooled {
    bouncer: Child,
    port: u16,
    lab: ServerLab,
}

impl Pooled {
    fn start(program: &PathBuf, mode: &str, more: &str) -> Pooled {
        let installation = installations().into_iter().next().expect("a PostgreSQL");
        let server = Options { tcp: true, ..Options::default() }.start(&installation).expect("a server");
        let folder = Folder::new();
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}/users\npool_mode = {mode}\ndefault_pool_size = {}\n\
             query_wait_timeout = 20\n{more}\n",
            server.port(),
            folder.path().display(),
            if mode == "session" { 40 } else { POOL },
        );
        folder
            .write("pgbouncer.ini", &config)
            .write("users", &format!("\"{SUPERUSER}\" \"\"\n\"other\" \"\"\n"));
        for name in ["", "pgbouncer.ini", "users"] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(folder.path().join(name), open).expect("open to pgbouncer");
        }
        let mut command = Command::new(program);
        // It does not want to run as root.
        if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("Linux")) == 0 {
            command.args(["-u", "nobody"]);
        }
        let log = std::fs::File::create(folder.path().join("pgbouncer.log")).expect("a log");
        let bouncer = command
            .arg(folder.path().join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("pgbouncer starts");
        let pooled = Pooled { bouncer, port, lab: ServerLab { server, folder } };
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
            let log =
                std::fs::read_to_string(pooled.lab.folder.path().join("pgbouncer.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "pgbouncer does not answer: {error}\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooled.expect(0, pooled.direct("load ycsb --rows 2000 -o loaded"));
        pooled
    }

    fn pooled(&self) -> ConnSpec {
        ConnSpec::new("127.0.0.1", self.port, SUPERUSER, "postgres")
    }

    /// The console of the pooler.
    fn console(&self) -> ConnSpec {
        ConnSpec::new("127.0.0.1", self.port, SUPERUSER, "pgbouncer")
    }

    fn command(&self, arguments: &str, port: u16) -> Command {
        let mut command = self.lab.command(arguments);
        labs::describe(&mut command, "127.0.0.1", port);
        command
    }

    fn direct(&self, arguments: &str) -> Command {
        self.command(arguments, self.lab.server.port())
    }

    fn through(&self, arguments: &str) -> Command {
        self.command(arguments, self.port)
    }

    fn expect(&self, exit: i32, command: Command) -> Ended {
        let typed: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        labs::expect(exit, command, &typed.join(" "))
    }

    fn summary(&self, folder: &str) -> record::Summary {
        RunReader::open(&self.lab.folder.path().join(folder)).expect("a run directory").run.summary
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let _ = self.bouncer.kill();
        let _ = self.bouncer.wait();
    }
}

/// The test's body runs where pgbouncer is installed.
fn with_pgbouncer(test: impl FnOnce(&PathBuf)) {
    match program() {
        Some(program) => test(&program),
        None => skip(&Lack::new("pgbouncer", "scripts/install-deps test installs it")),
    }
}

/// All server processes of the pool at once, each in a transaction: what their sessions are like.
fn assert_pool_is_clean(pooled: &Pooled) {
    assert_pool_is_clean_of(pooled, POOL);
}

/// The same in a pool of so many.
fn assert_pool_is_clean_of(pooled: &Pooled, size: usize) {
    let mut sessions: Vec<HotConnection> =
        (0..size).map(|_| hot::connect(&pooled.pooled()).expect("the pool answers")).collect();
    for session in &mut sessions {
        session.simple_query("begin").expect("a server process");
        let rows = session
            .simple_query(
                "select name, setting from pg_settings where source = 'session' and name not in
                   ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')
                 union all select 'lock', objid::text from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
                 union all select 'prepared', name from pg_prepared_statements",
            )
            .expect("an answer");
        let found: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().flatten().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
            .collect();
        assert!(found.is_empty(), "left behind in the pool: {found:?}");
    }
}

fn watched_servers(pooled: &Pooled, folder: &str) -> usize {
    let reader = RunReader::open(&pooled.lab.folder.path().join(folder)).expect("a run directory");
    reader.samples.iter().filter_map(Sampled::parse).filter(|line| matches!(line, Sampled::Server(_))).count()
}

#[test]
fn run_and_watch_work_through_a_pool_of_transactions_and_leave_nothing_there() {
    with_pgbouncer(|program| {
        // Settings in the startup packet are refused, or dropped without a word.
        for more in ["", "ignore_startup_parameters = options,extra_float_digits,geqo,search_path"] {
            let pooled = Pooled::start(program, "transaction", more);
            for mode in ["simple", "extended"] {
                for (number, builtin) in ["ycsb-a", "ycsb-e", "ycsb-f"].into_iter().enumerate() {
                    let out = format!("{mode}-{number}");
                    let run = format!("run -b {builtin} -M {mode} -c 4 -t 50 -o {out}");
                    pooled.expect(0, pooled.through(&run));
                    assert_eq!(pooled.summary(&out).transactions, Some(200), "{run}");
                    assert!(
                        watched_servers(&pooled, &out) > 0 || pooled.summary(&out).duration_s < 3.0,
                        "{run}"
                    );
                }
                pooled.lab.folder.write("script.sql", "\\set n random(1, 9)\nBEGIN;\nSELECT :n;\nCOMMIT;\n");
                let run = format!("run -f script.sql -M {mode} -c 4 -t 50 -o script-{mode}");
                pooled.expect(0, pooled.through(&run));
            }
            pooled.expect(0, pooled.direct("verify --deep -o verified"));
            let ended = pooled.expect(0, pooled.through("watch -T 3 --no-host -o seen"));
            assert!(watched_servers(&pooled, "seen") > 0, "{}", ended.stdout);
            assert_pool_is_clean(&pooled);
        }
    });
}

/// The mark of a run has one of the two server processes, so nothing else may keep the other one when the end of the run is noted.
#[test]
fn a_run_that_writes_ends_at_once_in_a_pool_of_two() {
    with_pgbouncer(|program| {
        let pooled = Pooled::start(program, "transaction", "default_pool_size = 2\nquery_wait_timeout = 90");
        // A statement waits for at most 90 s here.
        let limit = Duration::from_secs(60);
        for (number, run) in
            ["run -b ycsb-a", "run -b ycsb-update", "run -b ycsb-a --watch off"].iter().enumerate()
        {
            let begin = Instant::now();
            let ended =
                pooled.expect(0, pooled.through(&format!("{run} -M extended -c 4 -t 20 -o run{number}")));
            assert!(begin.elapsed() < limit, "{run}: {:?}\n{}", begin.elapsed(), ended.stderr);
            assert!(!ended.stdout.contains("the ledger does not have"), "{}", ended.stdout);
        }
        pooled.expect(0, pooled.direct("verify ycsb -o verified"));
        assert_pool_is_clean_of(&pooled, 2);
    });
}

/// One server connection is not enough for most work: each verb ends in seconds and names the pool, and nothing stays behind.
#[test]
fn a_pool_of_one_is_named_instead_of_waited_for() {
    with_pgbouncer(|program| {
        const ONE: &str = "default_pool_size = 1\nquery_wait_timeout = 90";
        let refused = |pooled: &Pooled, verb: &str, words: [&str; 2]| {
            let begin = Instant::now();
            let ended = pooled.expect(1, pooled.through(verb));
            assert!(begin.elapsed() < Duration::from_secs(40), "{verb}: {:?}", begin.elapsed());
            for words in words {
                assert!(ended.stderr.contains(words), "{verb}: {}", ended.stderr);
            }
            assert!(ended.stderr.contains("default_pool_size"), "{verb}: {}", ended.stderr);
        };
        let pooled = Pooled::start(program, "session", ONE);
        for verb in ["load tpcb -s 1", "verify ycsb", "prove ack -T 1", "run -b ycsb-c -T 1", "watch -T 1"] {
            refused(&pooled, verb, ["a connection pooler in session mode", "for a second session"]);
        }
        let pooled = Pooled::start(program, "transaction", ONE);
        pooled.expect(0, pooled.through("run -b ycsb-c -M simple -c 2 -t 20 -o reads"));
        let verb = "run -b ycsb-update -M simple -c 2 -t 20 -o writes";
        refused(
            &pooled,
            verb,
            ["had no server connection for a second session", "a run that writes keeps one"],
        );
        // The refused run is not in the ledger.
        pooled.expect(0, pooled.direct("verify ycsb -o verified"));
        assert_pool_is_clean_of(&pooled, 1);
    });
}

/// What `pgbench -i` makes.
const PGBENCH: &str = "create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
    create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));
    create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));
    create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
    insert into pgbench_branches values (1, 0, '');
    insert into pgbench_tellers select n, 1, 0, '' from generate_series(1, 10) n;
    insert into pgbench_accounts select n, 1, 0, '' from generate_series(1, 100000) n";

#[test]
fn pgbenchs_own_scripts_work_through_a_pool_of_transactions() {
    with_pgbouncer(|program| {
        let pooled = Pooled::start(program, "transaction", "");
        pooled.lab.server.execute(PGBENCH).expect("pgbench's tables");
        for builtin in ["tpcb-like", "simple-update", "select-only"] {
            // With the vacuum before it and without, watched and not.
            for more in ["", "-n --watch off", "-n -M extended"] {
                let out = format!("{builtin}{}", more.replace(' ', ""));
                let run = format!("run -b {builtin} -c 2 -t 20 {more} -o {out}");
                pooled.expect(0, pooled.through(&run));
                assert_eq!(pooled.summary(&out).transactions, Some(40), "{run}");
            }
        }
        let rows = pooled.lab.server.value("select count(*) from pgbench_history").expect("an answer");
        assert_eq!(rows.as_deref(), Some("240"), "two scripts, three runs, forty transactions");
        assert_pool_is_clean(&pooled);
    });
}

#[test]
fn lost_prepared_statements_are_told_with_what_to_do() {
    with_pgbouncer(|program| {
        let pooled = Pooled::start(program, "transaction", "");
        if follows_statements(program) {
            return skip(&Lack::new("old-pgbouncer", "this one follows prepared statements"));
        }
        let mut command = pooled.through("run -b ycsb-a -M prepared -c 6 -T 2 -o prepared");
        let ended: Ended = command.output().expect("the command starts").into();
        assert!(matches!(ended.exit, Some(1 | 2)), "{}{}", ended.stdout, ended.stderr);
        let told =
            format!("{}{}", ended.stdout, ended.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in ["prepared statement", "-M extended or -M simple", "max_prepared_statements"] {
            assert!(told.contains(words), "{words}: {told}");
        }
    });
}

#[test]
fn verbs_that_need_sessions_refuse_a_pool_of_transactions_with_the_reason() {
    with_pgbouncer(|program| {
        for more in ["", "ignore_startup_parameters = options,extra_float_digits,geqo,search_path"] {
            let pooled = Pooled::start(program, "transaction", more);
            for verb in ["load ycsb --rows 10", "verify", "prove bank -T 1", "prove hermitage"] {
                let ended = pooled.expect(1, pooled.through(verb));
                assert!(ended.stderr.contains("pooler in transaction mode"), "{verb}: {}", ended.stderr);
                assert!(
                    ended.stderr.contains("hint: connect to the server itself"),
                    "{verb}: {}",
                    ended.stderr
                );
            }
            // What a proof pins in its sessions is not the user's to set for a role.
            let mut command = pooled.direct("prove hb -T 1 --watch off --through");
            command.arg(format!("host=127.0.0.1 port={} user={SUPERUSER} dbname=postgres", pooled.port));
            let ended = pooled.expect(1, command);
            let is_right = ended.stderr.contains("pooler in transaction mode")
                && !ended.stderr.contains("search_path")
                && ended.stderr.contains("pool_mode = session");
            assert!(is_right, "{}", ended.stderr);
            // A setting of the user's own would be lost on the way.
            let mut command = pooled.through("run -b ycsb-c -M simple -T 1");
            command.env("PGOPTIONS", "-c work_mem=1MB");
            let ended = pooled.expect(1, command);
            assert!(ended.stderr.contains("the setting work_mem"), "{}", ended.stderr);
            assert_pool_is_clean(&pooled);
        }
    });
}

/// There is one answer, whatever the verb, and it is the same each time.
#[test]
fn every_verb_refuses_a_pool_of_statements_with_the_reason() {
    with_pgbouncer(|program| {
        for more in ["", "ignore_startup_parameters = options,extra_float_digits,geqo,search_path"] {
            let pooled = Pooled::start(program, "statement", more);
            for verb in [
                "load ycsb --rows 10",
                "verify",
                "run -b ycsb-c -M simple -T 1",
                "watch -T 1",
                "prove bank -T 1",
                "prove ack -T 1",
                "prove tpcc",
                "matrix -T 1",
            ] {
                for _ in 0..2 {
                    let ended = pooled.expect(1, pooled.through(verb));
                    assert!(ended.stderr.contains("pooler in statement mode"), "{verb}: {}", ended.stderr);
                    // A pool of transactions is offered only where it would do.
                    let is_offered = ended.stderr.contains("pool_mode = transaction");
                    let would_do = ["run", "watch"].iter().any(|known| verb.starts_with(known));
                    assert!(!is_offered || would_do, "{verb}: {}", ended.stderr);
                    assert!(
                        ended.stderr.contains("hint: connect to the server itself"),
                        "{verb}: {}",
                        ended.stderr
                    );
                }
            }
        }
    });
}

#[test]
fn everything_works_through_a_pool_of_sessions() {
    with_pgbouncer(|program| {
        for more in ["", "ignore_startup_parameters = options,extra_float_digits,geqo,search_path"] {
            let pooled = Pooled::start(program, "session", more);
            pooled.expect(0, pooled.direct("load ycsb --restart --rows 10 -o small"));
            pooled.expect(0, pooled.through("load ycsb --restart --rows 1000 -j 2 -o again"));
            pooled.expect(0, pooled.through("run -b ycsb-a -c 4 -t 50 -o driven"));
            pooled.expect(0, pooled.through("verify --deep -o verified"));
            pooled.expect(0, pooled.through("watch -T 3 --no-host -o seen"));
            assert!(watched_servers(&pooled, "seen") > 0);
            // Needs the true process ids of its sessions, to see who waits for whom.
            pooled.expect(0, pooled.through("prove hermitage -o played"));
            let mut command = pooled.through("run -f path.sql -M simple -t 1 -o path");
            pooled.lab.folder.write("path.sql", "SELECT 1/(current_setting('work_mem') = '1234kB')::int;\n");
            command.env("PGOPTIONS", "-c work_mem=1234kB");
            pooled.expect(0, command);
        }
    });
}

/// What a watch reports of the poolers that it cannot read.
fn unread(pooled: &Pooled, folder: &str) -> String {
    let reader = RunReader::open(&pooled.lab.folder.path().join(folder)).expect("a run directory");
    let mut why = reader.samples.iter().rev().filter_map(Sampled::parse).filter_map(|line| match line {
        Sampled::Missing(missing) if missing.what == "pools" => Some(missing.why),
        _ => None,
    });
    why.next().unwrap_or_default()
}

/// Each mistake about a console has its own answer, and one whose clients wait from begin to end has a finding.
#[test]
fn consoles_of_poolers_are_read_or_the_reason_is_named() {
    with_pgbouncer(|program| {
        let pooled = Pooled::start(program, "session", "default_pool_size = 2\nadmin_users = postgres");
        let console = |port: u16, user: &str| format!("host=127.0.0.1 port={port} user={user}");
        let watch = |folder: &str, poolers: &[String]| {
            let mut command = pooled.direct(&format!("watch -T 4 --no-host -o {folder}"));
            command.args(poolers.iter().flat_map(|pooler| ["--pooler", pooler.as_str()]));
            pooled.expect(0, command);
            unread(&pooled, folder)
        };
        let closed =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let server = pooled.lab.server.port();
        for (folder, pooler, words) in [
            ("server", console(server, SUPERUSER), "what answers there is no pgbouncer"),
            ("closed", console(closed, SUPERUSER), "it cannot be reached"),
            ("role", console(pooled.port, "other"), "add the role to stats_users"),
        ] {
            let why = watch(folder, &[pooler]);
            assert!(why.contains(words), "{folder}: {why}");
        }
        // Two keep what they have; four wait for them all the time.
        let mut clients: Vec<HotConnection> =
            (0..2).map(|_| hot::connect(&pooled.pooled()).expect("the pool answers")).collect();
        for client in &mut clients {
            client.simple_query("select 1").expect("a server process");
        }
        let spec = pooled.pooled();
        let wait = |spec: ConnSpec| {
            std::thread::spawn(move || {
                hot::connect(&spec).map(|mut client| client.simple_query("select 1").is_ok())
            })
        };
        let waiting: Vec<_> = (0..4).map(|_| wait(spec.clone())).collect();
        // One of two can be read, and the other one is reported.
        let why = watch("lasting", &[console(pooled.port, SUPERUSER), console(closed, SUPERUSER)]);
        assert!(
            why.contains(&format!("127.0.0.1:{closed}")) && !why.contains(&pooled.port.to_string()),
            "{why}"
        );
        drop(clients);
        for client in waiting {
            let _ = client.join();
        }
        let ended = pooled.expect(0, pooled.direct("explain -v lasting"));
        let claim = "wait in pgbouncer for one of the 2 connections to database postgres";
        let text = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("SES-13") && text.contains(claim), "{}", ended.stdout);

        // With the database paused the next client waits, however many connections the pool may have.
        let mut console = hot::connect(&pooled.console()).expect("the console answers");
        console.simple_query("PAUSE postgres").expect("pauses");
        let waiting = wait(spec);
        watch("paused", &[format!("host=127.0.0.1 port={} user={SUPERUSER}", pooled.port)]);
        console.simple_query("RESUME postgres").expect("resumes");
        let _ = waiting.join();
        let ended = pooled.expect(0, pooled.direct("explain paused"));
        let text = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("database postgres is paused in pgbouncer (PAUSE): 1 client in its queue"),
            "{}",
            ended.stdout
        );
    });
}

/// Passes the first connections on, and hangs up on all others.
fn flaky_door(server: &Throwaway, folder: &Folder, good: usize) {
    let socket = format!(".s.PGSQL.{}", server.port());
    let listener = UnixListener::bind(folder.path().join(&socket)).expect("it listens");
    let target = server.socket_dir().join(socket);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok).take(good) {
            let Ok(server) = UnixStream::connect(&target) else { return };
            let pairs = [
                (client.try_clone().expect("a socket"), server.try_clone().expect("a socket")),
                (server, client),
            ];
            for (mut from, mut to) in pairs {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}

#[test]
fn a_watch_that_saw_no_server_is_no_success() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a server");
    let folder = Folder::new();
    // One to look for nodes, one for the server's facts; none to watch.
    flaky_door(&server, &folder, 2);
    let ended: Ended = pgfathom(folder.path())
        .args(["watch", "-T", "2", "--no-host", "-o", "seen", "-h"])
        .arg(folder.path())
        .args(["-p", &server.port().to_string(), "-U", SUPERUSER, "-d", "postgres"])
        .output()
        .expect("the command starts")
        .into();
    assert_eq!(ended.exit, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("error: no server could be sampled: "), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().last(), Some("run: seen"));
    let run = RunReader::open(&folder.path().join("seen")).expect("a run directory").run;
    assert!(!run.verdict.valid, "{:?}", run.verdict);
}
