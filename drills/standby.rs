//! Other machines: a standby that commits wait for, a clock that nobody synchronises.

use crate::ground::{Ground, Watching, not_possible_here, repeat, signal};
use crate::support::Folder;
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testing::needs;

/// A standby's process that is stopped, and goes on when the drill ends, however it ends.
struct Stopped(u32);

impl Stopped {
    fn process(node: &Throwaway, question: &str) -> Stopped {
        let pid = node.value(question).expect("the standby answers").expect("the process is there");
        let pid = pid.parse().expect("a process id");
        signal(pid, "-STOP");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}

#[test]
fn a_synchronous_standby_that_stands_still() {
    let installation = installations().into_iter().next().expect("no PostgreSQL: make test installs it");
    let cluster = ThrowawayCluster::replicated(&installation, 1, "FIRST 1 (s1)").expect("a cluster");
    let (primary, standby) = (cluster.node(0), cluster.node(1));
    primary.execute("CREATE TABLE item (id int PRIMARY KEY, n int)").expect("a table");
    primary.execute("INSERT INTO item SELECT i, 0 FROM generate_series(1, 100) i").expect("rows");
    let folder = Folder::new();
    let watch = format!("watch -q --interval 500ms --cluster {}", cluster.cluster_toml().display());
    let write = |id: u32| format!("UPDATE item SET n = n + 1 WHERE id = {id}");
    {
        // Work that commits now and then: a commit waits for the standby in health, too, but not for long.
        let _reads: Vec<_> = (0..3)
            .map(|_| repeat(primary, "SELECT sum(i) FROM generate_series(1, 300000) i", Duration::ZERO))
            .collect();
        let _writes = repeat(primary, &write(1), Duration::from_millis(100));
        Watching::begin(&folder, &watch, "well").is_silent(&["REP-01"]);
    }
    let _writes: Vec<_> = (1..=4).map(|id| repeat(primary, &write(id), Duration::ZERO)).collect();
    let watching = Watching::begin(&folder, &watch, "stopped");
    watching.looked(2);
    let stopped = Stopped::process(standby, "SELECT pid FROM pg_stat_wal_receiver");
    let fired = watching.until(&["REP-01"]);
    assert_eq!(fired["REP-01"]["node"], "primary", "{:#?}", fired["REP-01"]);
    let evidence = fired["REP-01"]["evidence"].to_string();
    assert!(evidence.contains("standby s1"), "{evidence}");
    drop((watching, stopped));
}

/// Makes every process that loads it see another time: the clock of a machine that nobody synchronises.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && id == CLOCK_REALTIME) at->tv_sec += 2;
    return failed;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

/// A server that has not started by then does not.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A server process of ours that ends with the drill.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        signal(self.0.id(), "-INT");
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs a C compiler"]
fn a_server_whose_clock_is_wrong() {
    let compiler = match needs::program("cc") {
        Ok(compiler) => compiler,
        Err(lack) => return not_possible_here(&["REP-05"], &lack),
    };
    let mut ground = Ground::new(&[]);
    ground.watch("right").is_silent(&["REP-05"]);
    ground.cluster.stop(StopMode::Fast).expect("stops");
    ground.folder.write("shim.c", SHIM);
    let data = ground.cluster.data_dir();
    // The server's user must reach it.
    let shim = data.join("shim.so");
    let made = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&shim)
        .arg(ground.folder.path().join("shim.c"))
        .arg("-ldl")
        .output()
        .expect("the compiler starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let owner = fs::metadata(&data).expect("the server has a folder");
    let mut command = Command::new(ground.cluster.installation().bin_dir.join("postgres"));
    command.arg("-D").arg(&data).env("LD_PRELOAD", &shim).stdout(Stdio::null()).stderr(Stdio::null());
    if fs::metadata("/proc/self").is_ok_and(|ours| ours.uid() != owner.uid()) {
        command.uid(owner.uid()).gid(owner.gid());
    }
    let _server = Server(command.spawn().expect("the server starts"));
    let begun = Instant::now();
    while ground.cluster.value("SELECT 1").is_err() {
        assert!(begun.elapsed() < START_PATIENCE, "the server did not start");
        thread::sleep(Duration::from_millis(50));
    }
    let fired = ground.watch("wrong").until(&["REP-05"]);
    let offset_us = fired["REP-05"]["numbers"]["offset_us"].as_f64().unwrap_or(0.0);
    assert!((1e6..3e6).contains(&offset_us), "two seconds ahead: {offset_us}");
}
