//! Drills: conditions provoked for real on a throwaway server, watched and explained by the command as a user would. The rule must
//! fire; on the same server in health it must be silent. `make drills` prints how long each took.
//!
//! Nothing here waits for a time: a drill explains the directory that is being written again and again until its rules have fired.

mod support;

use postgres::{CancelToken, Client, NoTls};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom};
use target::throwaway::{Throwaway, installations};

/// What has not shown by then will not show.
const PATIENCE: Duration = Duration::from_secs(120);
/// Looks at a healthy server before it is called silent.
const CALM_LOOKS: usize = 6;

/// How long a watch is stopped: the provocation itself, nothing waits for it.
const BLIND: Duration = Duration::from_secs(5);

struct Ground {
    folder: Folder,
    cluster: Throwaway,
}

impl Ground {
    fn new(settings: &[(&str, &str)]) -> Ground {
        let installation =
            installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
        let cluster = Throwaway::start(&installation, settings).expect("the throwaway server starts");
        Ground { folder: Folder::new(), cluster }
    }

    fn session(&self) -> Client {
        let socket = self.cluster.socket_dir().display();
        let words = format!("host={socket} port={} user=postgres dbname=postgres", self.cluster.port());
        Client::connect(&words, NoTls).expect("connects")
    }

    fn sql(&self, text: &str) {
        self.session().batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }

    fn watch(&self, name: &str) -> Watching<'_> {
        let mut command = pgfathom(self.folder.path());
        command.args(["watch", "-q", "--interval", "500ms", "-o", name]);
        command.args(["-U", "postgres", "-d", "postgres", "-p", &self.cluster.port().to_string(), "-h"]);
        command.arg(self.cluster.socket_dir());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        Watching { ground: self, child, name: name.to_string(), begun: Instant::now() }
    }

    /// A session that repeats a statement until it is stopped; errors are part of some drills.
    fn repeat(&self, text: &str, pause: Duration) -> Worker {
        let (mut session, text) = (self.session(), text.to_string());
        let token = session.cancel_token();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let _ = session.batch_execute(&text);
                let _ = session.batch_execute("ROLLBACK");
                thread::sleep(pause);
            }
        });
        Worker { stop, token, thread: Some(thread) }
    }
}

struct Worker {
    stop: Arc<AtomicBool>,
    token: CancelToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    /// A session that waits for a lock or a standby would wait for ever: it is cancelled until it has noticed.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            let _ = self.token.cancel_query(NoTls);
            thread::sleep(Duration::from_millis(50));
        }
        let _ = thread.join();
    }
}

/// A watch that goes on.
struct Watching<'a> {
    ground: &'a Ground,
    child: Child,
    name: String,
    begun: Instant,
}

impl Watching<'_> {
    fn dir(&self) -> PathBuf {
        self.ground.folder.path().join(&self.name)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let ended = Command::new("kill").args([name, &pid]).status().expect("kill is there");
        assert!(ended.success(), "kill {name} {pid}");
    }

    /// The findings so far, by rule.
    fn findings(&self) -> BTreeMap<String, Value> {
        let mut command = pgfathom(self.ground.folder.path());
        command.args(["explain", "-q", "--format", "json", &self.name]);
        let ended: Ended = command.output().expect("the command starts").into();
        // The first look may come before the directory is there.
        let Ok(told) = serde_json::from_str::<Value>(&ended.stdout) else { return BTreeMap::new() };
        let findings = told["findings"].as_array().cloned().unwrap_or_default();
        findings
            .into_iter()
            .map(|finding| (finding["rule"].as_str().unwrap_or("").to_string(), finding))
            .collect()
    }

    /// Waits until all of these rules have fired, and tells how long each took.
    fn until(&self, rules: &[&str]) -> BTreeMap<String, Value> {
        let mut fired: BTreeMap<String, Value> = BTreeMap::new();
        loop {
            for (rule, finding) in self.findings() {
                if rules.contains(&rule.as_str()) && !fired.contains_key(&rule) {
                    eprintln!(
                        "drill {rule}: fired after {:.1} s: {}",
                        self.begun.elapsed().as_secs_f64(),
                        finding["claim"]
                    );
                }
                fired.insert(rule, finding);
            }
            let silent: Vec<&&str> = rules.iter().filter(|rule| !fired.contains_key(**rule)).collect();
            if silent.is_empty() {
                return fired;
            }
            assert!(self.begun.elapsed() < PATIENCE, "{silent:?} did not fire; what did: {:?}", fired.keys());
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Waits until the server was looked at a few times, and asserts that these rules looked and found nothing.
    fn is_silent(&self, rules: &[&str]) {
        self.looked(CALM_LOOKS);
        let findings = self.findings();
        let wrong: Vec<_> = rules.iter().filter_map(|rule| findings.get(*rule)).collect();
        assert!(wrong.is_empty(), "a healthy server: {wrong:#?}");
        for rule in rules {
            eprintln!("drill {rule}: silent in the control");
        }
    }

    /// Waits until the server was looked at so often.
    fn looked(&self, times: usize) {
        let looks = || {
            let text = std::fs::read_to_string(self.dir().join("samples.ndjson")).unwrap_or_default();
            text.lines().filter(|line| line.contains("\"source\":\"server\"")).count()
        };
        while looks() < times {
            assert!(self.begun.elapsed() < PATIENCE, "the server was not looked at");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_sessions_slots_and_checkpoints_do_to_each_other() {
    let ground = Ground::new(&[
        ("wal_level", "logical"),
        ("max_wal_size", "32MB"),
        ("min_wal_size", "32MB"),
        ("wal_buffers", "64kB"),
        ("autovacuum_freeze_max_age", "100000"),
        ("deadlock_timeout", "200ms"),
        ("max_prepared_transactions", "5"),
        ("max_slot_wal_keep_size", "48MB"),
    ]);
    ground.sql(
        "CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot SELECT i, 0 FROM generate_series(1, 10) i;
         CREATE TABLE bulk (payload text); CREATE TABLE burnt (i int);",
    );
    let mut rules = vec!["LCK-01", "VAC-05", "GEN-02", "WAL-03", "WAL-06", "REP-03", "REP-06", "TXN-04"];
    // The counters of failed applies came with PostgreSQL 15.
    let counts_conflicts = ground.cluster.installation().version.major >= 15;
    rules.extend(counts_conflicts.then_some("REP-07"));
    {
        let _load = ground.repeat("UPDATE hot SET n = n + 1 WHERE id = 1", Duration::from_millis(20));
        ground.watch("healthy").is_silent(&rules);
    }

    ground.sql(
        "CREATE TABLE keyless (a int, b text); INSERT INTO keyless SELECT i, i::text FROM generate_series(1, 1000) i;
         ALTER TABLE keyless REPLICA IDENTITY FULL; CREATE TABLE parcel (id int PRIMARY KEY);
         CREATE PUBLICATION everybody FOR TABLE keyless, parcel;
         SELECT pg_create_physical_replication_slot('forgotten', true);",
    );
    // A logical slot waits for all transactions at work: it comes before those that never end.
    if counts_conflicts {
        follow(&ground);
    }
    ground.sql("BEGIN; INSERT INTO burnt VALUES (0); PREPARE TRANSACTION 'orphan'");
    let mut holder = ground.session();
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot;")
        .expect("a snapshot");
    // Each block is a subtransaction, each subtransaction that writes takes a transaction id.
    ground.sql(
        "DO $$ BEGIN FOR i IN 1..6000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;",
    );
    let mut root = ground.session();
    root.batch_execute("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 2;").expect("a lock");
    let blocked = "SET lock_timeout = '30s'; UPDATE hot SET n = 0 WHERE id = 2";
    let mut workers: Vec<Worker> = (0..4).map(|_| ground.repeat(blocked, Duration::ZERO)).collect();
    for (first, second) in [(5, 6), (6, 5)] {
        let crossed = format!(
            "BEGIN; UPDATE hot SET n = 1 WHERE id = {first}; SELECT pg_sleep(0.1); UPDATE hot SET n = 1 WHERE id = {second}; COMMIT"
        );
        workers.push(ground.repeat(&crossed, Duration::ZERO));
    }
    let flood = "INSERT INTO bulk SELECT repeat(md5(i::text), 30) FROM generate_series(1, 8000) i; UPDATE keyless SET b = b || 'x' WHERE a = 7";
    workers.push(ground.repeat(flood, Duration::from_millis(20)));
    let watching = ground.watch("sick");
    watching.looked(1);
    // The subscription goes on failing, but its slot is lost in the flood: the first failure must be seen.
    ground.sql("INSERT INTO parcel VALUES (1)");
    let fired = watching.until(&rules);
    let told = |rule: &str| fired[rule]["claim"].as_str().unwrap_or("").to_string();
    assert!(told("LCK-01").contains("blocked"), "{}", told("LCK-01"));
    assert!(told("REP-03").contains("slot"), "{}", told("REP-03"));
    assert!(told("REP-06").contains("keyless"), "{}", told("REP-06"));
    assert_eq!(fired["VAC-05"]["level"], "discriminating_counter");
    drop((watching, root, holder));
}

/// Lets another database of the same server subscribe, with a row that is there already.
fn follow(ground: &Ground) {
    let socket = ground.cluster.socket_dir().display();
    ground.sql("SELECT pg_create_logical_replication_slot('follows', 'pgoutput');");
    ground.sql("CREATE DATABASE follower;");
    let text = format!(
        "CREATE TABLE parcel (id int PRIMARY KEY); INSERT INTO parcel VALUES (1); CREATE TABLE keyless (a int, b text);
         CREATE SUBSCRIPTION follows CONNECTION 'host={socket} port={} user=postgres dbname=postgres' PUBLICATION everybody
           WITH (create_slot = false, slot_name = 'follows', copy_data = false);",
        ground.cluster.port()
    );
    // A subscription cannot be made in a transaction: one statement after the other.
    for statement in text.split(';').filter(|statement| !statement.trim().is_empty()) {
        ground
            .cluster
            .execute_in("follower", statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[test]
fn commits_locks_and_a_blind_watch() {
    // The delay stands in for a slow disk: who commits holds the WAL's lock for so long, and the others wait for it.
    let ground = Ground::new(&[
        ("fsync", "on"),
        ("commit_delay", "20000"),
        ("commit_siblings", "0"),
        ("autovacuum", "off"),
    ]);
    ground.sql(
        "CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
         CREATE TABLE counter (id int PRIMARY KEY, n int); INSERT INTO counter VALUES (1, 0);",
    );
    let sessions =
        |text: &str| -> Vec<Worker> { (0..8).map(|_| ground.repeat(text, Duration::ZERO)).collect() };
    {
        let _batches = sessions("INSERT INTO item (v) SELECT 'x' FROM generate_series(1, 200)");
        ground.watch("batches").is_silent(&["TXN-01", "DIST-06", "REP-01"]);
    }
    {
        let _singles = sessions("INSERT INTO item (v) VALUES ('x')");
        let fired = ground.watch("singles").until(&["TXN-01", "WAL-01"]);
        let claim = fired["TXN-01"]["claim"].as_str().unwrap_or("").to_string();
        assert!(claim.contains("rows are written per commit"), "{claim}");
        assert!(!fired.contains_key("DIST-06"), "{fired:#?}");
    }
    {
        let _hot = sessions("UPDATE counter SET n = n + 1 WHERE id = 1");
        ground.watch("hot").until(&["DIST-06"]);
    }
    {
        let _waiting = sessions("INSERT INTO item (v) VALUES ('x')");
        ground.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        ground.sql("SELECT pg_reload_conf()");
        let watching = ground.watch("alone");
        watching.until(&["REP-01"]);
        ground.sql("ALTER SYSTEM RESET synchronous_standby_names");
        ground.sql("SELECT pg_reload_conf()");
    }
    let watching = ground.watch("blind");
    watching.is_silent(&["OBS-01"]);
    watching.signal("-STOP");
    thread::sleep(BLIND);
    watching.signal("-CONT");
    watching.until(&["OBS-01"]);
}

#[test]
fn vacuum_against_wraparound_sleeps() {
    let ground = Ground::new(&[
        ("autovacuum_freeze_max_age", "100000"),
        ("autovacuum", "off"),
        ("autovacuum_naptime", "1s"),
        ("autovacuum_vacuum_cost_delay", "50ms"),
        ("vacuum_cost_page_dirty", "200"),
    ]);
    ground.sql(
        "CREATE TABLE big (id int, v text); INSERT INTO big SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i;
         CREATE TABLE burnt (i int);",
    );
    ground.watch("healthy").is_silent(&["VAC-01"]);
    let burn = "DO $$ BEGIN FOR i IN 1..60000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;";
    ground.sql(burn);
    ground.sql(burn);
    ground.sql("ALTER SYSTEM SET autovacuum = on");
    ground.sql("SELECT pg_reload_conf()");
    ground.watch("storm").until(&["VAC-01"]);
}
