//! Clients that fill and drive: keys that repeat, batches that cross, a client that is the limit, and one that stands still.

use crate::ground::{Ground, Watching, signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two batches of the loader: its key space must not be full before anybody looked.
const PACE: Duration = Duration::from_millis(20);
/// Looks after which a loader that fills without collisions is called healthy: as many as the rule wants to see.
const FILL_LOOKS: usize = 60;
/// Looks at a client before it is called well.
const CLIENT_LOOKS: usize = 4;
/// The client is stopped for so long ...
const STOPPED: Duration = Duration::from_millis(700);
/// ... and may then run for so long, again and again.
const ALLOWED: Duration = Duration::from_millis(300);
/// A stall begins to count after 10 s: the provocation lasts longer.
const STALL: Duration = Duration::from_secs(14);

#[test]
fn keys_that_repeat_and_batches_that_cross() {
    let ground = Ground::new(&[("deadlock_timeout", "100ms"), ("autovacuum", "off")]);
    ground.sql(
        "CREATE TABLE filled (id bigint PRIMARY KEY); CREATE SEQUENCE line;
         CREATE TABLE pair (id int PRIMARY KEY, n int); INSERT INTO pair SELECT i, 0 FROM generate_series(1, 100) i;",
    );
    let fill = |key: &str| {
        format!(
            "INSERT INTO filled SELECT {key} FROM (SELECT nextval('line') n FROM generate_series(1, 100)) s ON CONFLICT DO NOTHING"
        )
    };
    {
        let _loader = ground.repeat(&fill("n"), PACE);
        let watching = ground.watch_every("100ms", "bijection");
        watching.looked(FILL_LOOKS);
        watching.is_silent(&["GEN-01"]);
    }
    ground.sql("TRUNCATE filled");
    {
        // A hash of the row number over 8,000 possible keys: the birthday paradox of R0.
        let _loader = ground.repeat(&fill("abs(hashint8(n)::bigint) % 8000"), PACE);
        let fired = ground.watch_every("100ms", "hashed").until(&["GEN-01"]);
        let claim = fired["GEN-01"]["claim"].as_str().unwrap_or("");
        assert!(claim.contains("commits continue"), "{claim}");
    }
    let script = |first: u32, second: u32| {
        format!(
            "BEGIN;\nUPDATE pair SET n = n + 1 WHERE id = {first};\nUPDATE pair SET n = n + 1 WHERE id = {second};\nEND;\n"
        )
    };
    ground.folder.write("up.sql", &script(1, 2)).write("down.sql", &script(2, 1));
    let drive = "run -q -n -c 4 -T 120 -f up.sql";
    ground.begin(drive, "sorted").is_silent(&["GEN-02"]);
    let fired = ground.begin(&format!("{drive} -f down.sql"), "crossed").until(&["GEN-02"]);
    assert_eq!(fired["GEN-02"]["level"], "discriminating_counter");
}

/// Stops a process again and again, as `cpulimit` does: it gets a part of a processor whatever the machine has.
struct Throttle {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Throttle {
    fn of(watching: &Watching<'_>) -> Throttle {
        let (pid, over) = (watching.pid(), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&over);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                signal(pid, "-STOP");
                thread::sleep(STOPPED);
                signal(pid, "-CONT");
                thread::sleep(ALLOWED);
            }
        });
        Throttle { over, thread: Some(thread) }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_client_that_gets_too_little_of_its_processor() {
    let ground = Ground::new(&[]);
    // Transactions of a second at ten a second: what a busy machine does to the client's clock is small against them.
    ground.folder.write("wait.sql", "SELECT pg_sleep(1);\n");
    let drive = "run -q -n -f wait.sql -c 30 -R 10 -T 120";
    {
        let watching = ground.begin(drive, "free");
        watching.looked(CLIENT_LOOKS);
        watching.is_silent(&["GEN-03"]);
    }
    let watching = ground.begin(drive, "throttled");
    watching.looked(1);
    let _throttle = Throttle::of(&watching);
    let fired = watching.until(&["GEN-03"]);
    let claim = fired["GEN-03"]["claim"].as_str().unwrap_or("");
    assert!(claim.contains("transactions began late"), "{claim}");
}

#[test]
#[ignore = "a stall is one after 10 s"]
fn a_client_and_a_target_that_stand_still() {
    let ground = Ground::new(&[]);
    ground.sql("CREATE TABLE item (id int PRIMARY KEY, n int); INSERT INTO item VALUES (1, 0);");
    ground.folder.write("update.sql", "UPDATE item SET n = n + 1 WHERE id = 1;\n");
    let drive = "run -q -n -f update.sql -c 4 -T 120";
    let told = |watching: &Watching<'_>, words: &str| {
        watching.until_that(words, |findings| {
            findings
                .get("GEN-04")
                .is_some_and(|finding| finding["claim"].as_str().unwrap_or("").contains(words))
        });
        eprintln!("drill GEN-04: fired: {words}");
    };
    {
        let watching = ground.begin(drive, "moving");
        watching.looked(STALL.as_secs() as usize);
        watching.is_silent(&["GEN-04"]);
    }
    {
        let watching = ground.begin(drive, "locked");
        watching.looked(2);
        let mut holder = ground.session();
        holder.batch_execute("BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE;").expect("a lock");
        told(&watching, "the target hung");
    }
    // The loader of rows, not only the driver of transactions.
    let watching = ground.begin("load ycsb -q --rows 20000000", "filling");
    watching.looked(3);
    watching.signal("-STOP");
    thread::sleep(STALL);
    watching.signal("-CONT");
    told(&watching, "the client itself stopped");
}
