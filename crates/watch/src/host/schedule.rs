//! The scheduler's account of the server processes of all sessions, of those of our own, and of the client's threads that drive them: time on a
//! CPU, and time runnable without one.
//!
//! Samples of sessions miss short states, and a process that has received a statement but waits for a CPU still counts
//! as idle. The scheduler's counters miss nothing, so with them the CPU time of a transaction, and its waits for CPU, are exact and
//! not sampled. They cost one short read per process and tick, from files that stay open.

use crate::collect::Batch;
use crate::host::process::{self, Schedule as Account, TICK_US};
use crate::meter::Meter;
use record::watched::Schedule;
use std::collections::{BTreeMap, BTreeSet};

/// Server processes of our own sessions read per node; with more sessions these represent all. Each is an open file.
pub const SESSIONS_MAX: usize = 64;
/// The same for all sessions of a node, whosever they are.
pub(crate) const BACKENDS_MAX: usize = 512;
/// Children of the server that no view has, whose titles are read at one look.
const UNKNOWN_MAX: usize = 128;
/// The prefix of the names of the client's threads that drive load.
const CLIENT_THREADS: &str = "worker ";
/// Threads of the client that are read.
const THREADS_MAX: usize = 64;

/// `who` of the server's processes for our own sessions.
pub const SESSIONS: &str = "sessions";
/// `who` of the server's processes for all sessions, with their parallel workers.
pub const BACKENDS: &str = "backends";
/// `who` of the client's threads.
pub const CLIENT: &str = "client";

/// A task that is read.
#[derive(Debug)]
struct Task {
    meter: Meter,
    /// As it was read last.
    last: Account,
    /// What it had used when it was first read: no line has that.
    first_ns: u64,
}

/// Tasks that are read together.
#[derive(Debug, Default)]
struct Group {
    /// When it was read last.
    t_us: Option<u64>,
    tasks: BTreeMap<u32, Task>,
    /// What the children of the server that have ended used, in ticks.
    ended_ticks: Option<u64>,
}

impl Group {
    /// Reads these tasks, and reports the activity of those that existed last time, too. `main`: the process whose children they are.
    fn look(
        &mut self,
        ids: &[u32],
        main: Option<u32>,
        now_us: u64,
        open: impl Fn(u32) -> Option<Meter>,
    ) -> Option<Sum> {
        let known = ids;
        let ids: BTreeSet<u32> = ids.iter().copied().collect();
        let mut sum = Sum::default();
        let mut known_ns = 0;
        // Those that were there before the first look have used what no interval has.
        let is_first = self.t_us.is_none();
        for (id, task) in &mut self.tasks {
            if !ids.contains(id) && task.meter.read().is_none() {
                known_ns += task.last.run_ns - task.first_ns;
            }
        }
        self.tasks.retain(|id, _| ids.contains(id));
        for id in ids {
            let Some(task) = self.tasks.get_mut(&id) else {
                if let Some(mut meter) = open(id)
                    && let Some(last) = meter.read()
                {
                    let first_ns = if is_first { 0 } else { last.run_ns };
                    self.tasks.insert(id, Task { meter, last, first_ns });
                }
                continue;
            };
            let Some(now) = task.meter.read() else {
                // It has ended; another one with its pid is opened again.
                known_ns += task.last.run_ns - task.first_ns;
                self.tasks.remove(&id);
                continue;
            };
            sum.looked += 1;
            sum.run_ns += now.run_ns.saturating_sub(task.last.run_ns);
            sum.wait_ns += now.wait_ns.saturating_sub(task.last.wait_ns);
            sum.turns += now.turns.saturating_sub(task.last.turns);
            task.last = now;
        }
        let ended = main.and_then(ended_ticks);
        let before = std::mem::replace(&mut self.ended_ticks, ended);
        let all_us = ended.zip(before).map(|(now, before)| now.saturating_sub(before) * TICK_US);
        sum.ended_us = all_us.map(|all_us| all_us.saturating_sub(known_ns / 1000));
        let since_us = self.t_us.replace(now_us)?;
        sum.authenticating = main.and_then(|main| authenticating(main, known));
        (sum.looked > 0 || sum.ended_us > Some(0) || sum.authenticating > Some(0))
            .then_some(Sum { interval_us: now_us.saturating_sub(since_us), ..sum })
    }
}

/// CPU time of the children of a process that have ended and were waited for, in ticks.
fn ended_ticks(main: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{main}/stat")).ok()?;
    Some(process::stat(&text)?.ended_ticks)
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    interval_us: u64,
    looked: u64,
    run_ns: u64,
    wait_ns: u64,
    turns: u64,
    ended_us: Option<u64>,
    authenticating: Option<u64>,
}

impl Sum {
    fn record_change(self, host: &str, node: &str, who: &str, tasks: u64, now_us: u64, batch: &mut Batch) {
        batch.counted(
            now_us,
            self.interval_us,
            Schedule {
                host: host.to_string(),
                node: node.to_string(),
                who: who.to_string(),
                tasks: tasks.max(self.looked),
                looked: self.looked,
                run_us: Some(self.run_ns / 1000),
                wait_us: Some(self.wait_ns / 1000),
                turns: Some(self.turns),
                ended_us: self.ended_us,
                authenticating: self.authenticating,
            },
        );
    }
}

/// How many children of the server are in the middle of a login, of those that no view has.
fn authenticating(main: u32, known: &[u32]) -> Option<u64> {
    let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children")).ok()?;
    let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    let mut unknown: Vec<u32> = children.filter(|pid| !known.contains(pid)).collect();
    // The newest come last.
    unknown.reverse();
    unknown.truncate(UNKNOWN_MAX);
    Some(in_login(main, &unknown))
}

/// Those that are in the middle of a login, by the titles that they give themselves, or have none yet: the name of the client's address is looked up before
/// (`log_hostname`).
fn in_login(main: u32, pids: &[u32]) -> u64 {
    // After authentication a session reads the catalogs before it is in a view, and may wait for one of them.
    const TITLES: [&str; 3] = [" authentication", " startup", " startup waiting"];
    let title = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let of_main = title(main);
    let is_it = |pid: &&u32| {
        let title = title(**pid);
        let is_untitled = !of_main.is_empty() && title == of_main;
        is_untitled || TITLES.iter().any(|end| title.trim_end_matches(['\0', ' ']).ends_with(end))
    };
    pids.iter().filter(is_it).count() as u64
}

/// Server processes of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Processes {
    /// Node.
    pub node: String,
    /// [`SESSIONS`] or [`BACKENDS`].
    pub who: &'static str,
    /// Process ids, [`SESSIONS_MAX`] or [`BACKENDS_MAX`] at most.
    pub pids: Vec<u32>,
    /// How many there are.
    pub count: u64,
    /// The server's first process, whose children they are; `None` if those that end are not of interest.
    pub main: Option<u32>,
}

/// Reads them tick by tick.
#[derive(Debug, Default)]
pub struct Schedules {
    groups: BTreeMap<(String, &'static str), Group>,
    client: Group,
    /// Threads of this process that drive, and those that do not.
    threads: BTreeMap<u32, bool>,
}

impl Schedules {
    /// Samples the server's processes on this host, and our own threads.
    pub fn tick(&mut self, host: &str, now_us: u64, processes: &[Processes], batch: &mut Batch) {
        self.groups.retain(|(node, who), _| processes.iter().any(|one| (&one.node, one.who) == (node, who)));
        for one in processes {
            let group = self.groups.entry((one.node.clone(), one.who)).or_default();
            if let Some(sum) = group.look(&one.pids, one.main, now_us, Meter::of) {
                // Those that were not there at both ends are part of `ended_us`, or will be: the others do not represent them.
                let is_complete = sum.ended_us.is_some() && one.count <= one.pids.len() as u64;
                let tasks = if is_complete { sum.looked } else { one.count };
                sum.record_change(host, &one.node, one.who, tasks, now_us, batch);
            }
        }
        let threads = self.driving_threads();
        if let Some(sum) = self.client.look(&threads, None, now_us, Meter::of_thread) {
            sum.record_change(host, "", CLIENT, threads.len() as u64, now_us, batch);
        }
    }

    /// The threads of this process that drive sessions, by their names. A name is read once.
    fn driving_threads(&mut self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return vec![] };
        let ids: BTreeSet<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect();
        self.threads.retain(|id, _| ids.contains(id));
        for id in ids {
            self.threads.entry(id).or_insert_with(|| {
                let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
                name.is_ok_and(|name| name.starts_with(CLIENT_THREADS))
            });
        }
        self.threads.iter().filter(|(_, drives)| **drives).map(|(id, _)| *id).take(THREADS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watched::Sampled;
    use std::sync::mpsc::channel;

    fn lines(schedules: &mut Schedules, now_us: u64, processes: &[Processes]) -> Vec<(u64, Schedule)> {
        let mut batch = Batch::default();
        schedules.tick("h", now_us, processes, &mut batch);
        let line = |(_, interval_us, line)| match line {
            Sampled::Schedule(line) => (interval_us, line),
            other => panic!("{other:?}"),
        };
        batch.lines.into_iter().map(line).collect()
    }

    #[test]
    fn sessions_and_threads_that_drive_are_summed_apart() {
        let (go, wait) = channel::<()>();
        let (done, detail) = channel::<()>();
        let driving = std::thread::Builder::new()
            .name("worker 0".into())
            .spawn(move || {
                while wait.recv().is_ok() {
                    // Some work for a CPU.
                    std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>());
                    done.send(()).expect("the test waits");
                }
            })
            .expect("a thread");
        let mut schedules = Schedules::default();
        let pids = vec![std::process::id(), u32::MAX >> 1];
        let me = Processes { node: "n1".into(), who: SESSIONS, pids: pids.clone(), count: 100, main: None };
        let all = Processes { node: "n1".into(), who: BACKENDS, pids, count: 2, main: None };
        let both = [me, all];
        let round = || {
            go.send(()).expect("it is there");
            detail.recv().expect("it worked");
        };
        round();
        assert!(lines(&mut schedules, 1_000_000, &both).is_empty(), "no basis yet");
        round();
        let reported_now = lines(&mut schedules, 3_000_000, &both);
        let [(interval_us, sessions), (_, backends), (_, client)] = &reported_now[..] else {
            panic!("{reported_now:?}")
        };
        assert_eq!(
            (*interval_us, sessions.who.as_str(), sessions.node.as_str()),
            (2_000_000, SESSIONS, "n1")
        );
        assert_eq!((sessions.tasks, sessions.looked), (100, 1), "one stands for all");
        assert_eq!((backends.who.as_str(), backends.tasks, backends.looked), (BACKENDS, 2, 1));
        assert_eq!((client.who.as_str(), client.node.as_str()), (CLIENT, ""));
        assert_eq!((client.tasks, client.looked), (1, 1));
        assert!(client.run_us > Some(0) && client.turns > Some(0), "{client:?}");
        drop(go);
        driving.join().expect("ends");
        let after = lines(&mut schedules, 4_000_000, &[]);
        assert!(after.is_empty(), "no line after the end: {after:?}");
    }
    /// Processes that have passed no login yet are in no view: they are known by their titles.
    #[test]
    fn logins_that_hang_are_known_by_the_titles_of_the_servers_children() {
        // The last argument is the end of what the kernel shows.
        let mut children = [
            "shop 10.0.0.7(4711) authentication",
            "shop 10.0.0.7(4713) startup waiting",
            "shop 10.0.0.7(4712) idle",
        ]
        .map(|title| {
            std::process::Command::new("sh")
                .args(["-c", "read x", title])
                .stdin(std::process::Stdio::piped())
                .spawn()
        });
        let children: Vec<_> = children.iter_mut().map(|child| child.as_mut().expect("a shell")).collect();
        let pids: Vec<u32> = children.iter().map(|child| child.id()).collect();
        let mut counted = 0;
        for _ in 0..100 {
            counted = in_login(u32::MAX >> 1, &pids);
            if counted > 1 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // A process that has no title yet has that of the first one.
        assert_eq!(in_login(pids[0], &pids[..1]), 1);
        for child in children {
            child.kill().expect("it is there");
            child.wait().expect("it ends");
        }
        assert_eq!(counted, 2);
        assert_eq!(authenticating(u32::MAX >> 1, &[]), None, "no such server");
    }

    /// A session that begins and ends between two looks is in no list of processes.
    #[test]
    fn what_processes_used_that_have_ended_is_counted_by_their_parent() {
        let mut schedules = Schedules::default();
        let me = std::process::id();
        let one = Processes { node: "n1".into(), who: BACKENDS, pids: vec![me], count: 1, main: Some(me) };
        assert!(lines(&mut schedules, 1_000_000, std::slice::from_ref(&one)).is_empty());
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"])
            .spawn()
            .expect("a shell");
        child.wait().expect("it ends");
        let seen = lines(&mut schedules, 2_000_000, std::slice::from_ref(&one));
        let ended_us = seen.iter().find_map(|(_, line)| line.ended_us).expect("counted");
        assert!(ended_us > 10_000, "{ended_us}");
    }
}
