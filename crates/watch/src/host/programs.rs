//! Other programs of this host that use its CPUs and disks: which one is in the database's way, by its name.
//!
//! Every [`EVERY_US`] the counters of all processes are read, and those of one name summed up. Only on this host: each file costs the kernel tens of
//! microseconds, and the bytes of other users' processes need root. A process that began and ended between two looks is not seen.

use super::clients::Clients;
use super::files::Files;
use super::process::{self, Io, Stat, TICK_US};
use super::server::Server;
use crate::collect::Batch;
use record::watched::{Backend, ENDED, LOGGER, Program, STARTED};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The interval of looks.
const EVERY_US: u64 = 5_000_000;
/// The time to the second look if no server was known at the first.
const SOON_US: u64 = 1_500_000;
/// Processes read in one look at most: with more of them, looks would be a cost themselves.
const PROCESSES_MAX: usize = 2_000;
/// Programs recorded of a look.
const PROGRAMS_MAX: usize = 8;
/// CPU of a program that is recorded, of the interval: less troubles no server.
const SHARE_MIN: f64 = 0.01;
/// Likewise, its bytes.
const BYTES_MIN: u64 = 1 << 20;
/// Processes of a look whose connections are looked for, those with the most CPU.
const LOOKED_MAX: usize = 32;

/// The name of the server's processes.
const SERVER: &str = "postgres";
/// Ancestors that are looked at to find the server that started a program.
const ANCESTORS_MAX: usize = 8;
/// In the title of the collector of logs.
const LOGGER_TITLE: &str = ": logger";

/// The counters of a process.
#[derive(Clone, Copy, Debug)]
struct Counters {
    started_ticks: u64,
    ticks: u64,
    io: Option<Io>,
}

/// The processes of the last look.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    due_us: u64,
    at_us: Option<u64>,
    before: HashMap<u32, Counters>,
    /// The main processes of the servers.
    mains: BTreeMap<u32, Main>,
}

/// The main process of a server: the kernel adds the time of its children to its own when they end.
#[derive(Debug, Default)]
struct Main {
    node: String,
    ended_ticks: u64,
    /// Its children at the last look, and what these started: when each began, and its time until then.
    children: HashMap<u32, (u64, u64)>,
    /// Of these, the programs that its processes started: what archives, `COPY ... PROGRAM`.
    started: HashSet<u32>,
}

impl Main {
    /// The CPU time of children that began and ended since the last look: parallel workers and short sessions are in no look. Of those that were seen, what
    /// they used before is known.
    fn unseen_us(&self, now: &Main) -> u64 {
        let is_gone = |(pid, (started, _)): &(&u32, &(u64, u64))| {
            now.children.get(pid).is_none_or(|(other, _)| other != started)
        };
        let known: u64 = self.children.iter().filter(is_gone).map(|(_, (_, ticks))| ticks).sum();
        now.ended_ticks.saturating_sub(self.ended_ticks).saturating_sub(known) * TICK_US
    }

    /// The CPU time since the last look of a child, or of a program that one started.
    fn used_us(&self, now: &Main, pid: u32) -> u64 {
        let Some((started, ticks)) = now.children.get(&pid) else { return 0 };
        let before = self.children.get(&pid).filter(|(other, _)| other == started);
        ticks.saturating_sub(before.map_or(0, |(_, ticks)| *ticks)) * TICK_US
    }

    /// What no session and no view shows: the collector of the server's log, and programs that the server started.
    fn beside(&self, now: &Main, files: &mut dyn Files, least_us: u64) -> Vec<(&'static str, u32, u64)> {
        let mut found = vec![];
        for pid in now.children.keys() {
            let used = self.used_us(now, *pid);
            if used < least_us {
                continue;
            }
            let mut is_logger = || {
                let title = files.text(&format!("/proc/{pid}/cmdline"));
                title.is_ok_and(|title| title.contains(LOGGER_TITLE))
            };
            match now.started.contains(pid) {
                true => found.push((STARTED, *pid, used)),
                false if is_logger() => found.push((LOGGER, *pid, used)),
                false => {}
            }
        }
        found.sort_unstable();
        found
    }
}

/// The server among these processes that started a program by one of its own.
fn starter(stats: &BTreeMap<u32, Stat>, mains: &BTreeMap<u32, Main>, parent: u32) -> Option<u32> {
    let mut at = parent;
    for _ in 0..ANCESTORS_MAX {
        // The first process of a container adopts what others left behind.
        if mains.contains_key(&at) {
            return Some(at).filter(|main| *main > 1);
        }
        at = stats.get(&at)?.parent;
    }
    None
}

/// What one program did.
#[derive(Debug, Default)]
struct Sum {
    processes: u64,
    cpu_us: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// What each of its processes used of the CPU time.
    of_each: Vec<(u32, u64)>,
    /// Of the CPU time, that of clients of the servers.
    client_cpu_us: u64,
}

impl Sum {
    /// A process that began since the last look has done all of it since.
    fn add(&mut self, pid: u32, now: &Counters, before: Option<&Counters>) {
        let before = before.filter(|before| before.started_ticks == now.started_ticks);
        self.processes += 1;
        let cpu_us = now.ticks.saturating_sub(before.map_or(0, |before| before.ticks)) * TICK_US;
        self.cpu_us += cpu_us;
        self.of_each.push((pid, cpu_us));
        let Some(io) = now.io else { return };
        let old = before.and_then(|before| before.io).unwrap_or_default();
        self.read_bytes += io.read_bytes.saturating_sub(old.read_bytes);
        self.write_bytes += io.write_bytes.saturating_sub(old.write_bytes);
    }

    fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }
}

impl Programs {
    /// The time to the next look. What ended is counted from the second look on at which the main process of a server is known: it is soon if none was known at
    /// the first.
    fn next_us(&self, is_known: bool) -> u64 {
        if self.at_us.is_none() && !is_known { SOON_US } else { EVERY_US }
    }

    /// Reports what processes of the servers used that no view shows.
    fn of_servers(
        &self,
        files: &mut dyn Files,
        host: &str,
        (now_us, interval_us): (u64, u64),
        before: &BTreeMap<u32, Main>,
        batch: &mut Batch,
    ) {
        let least_us = ((interval_us as f64 * SHARE_MIN) as u64).max(1);
        for (pid, main) in &self.mains {
            let Some(before) = before.get(pid) else { continue };
            batch.counted(now_us, interval_us, of_server(host, *pid, main, ENDED, before.unseen_us(main)));
            for (kind, pid, used_us) in before.beside(main, files, least_us) {
                batch.counted(now_us, interval_us, of_server(host, pid, main, kind, used_us));
            }
        }
    }

    /// Reads all processes if it is time, and reports the programs that used the most. Processes of the servers are left out: they have lines of their own.
    pub(crate) fn tick(
        &mut self,
        files: &mut dyn Files,
        host: &str,
        now_us: u64,
        servers: &[Server],
        batch: &mut Batch,
    ) {
        if now_us < self.due_us {
            return;
        }
        let pids: Vec<u32> = files.entries("/proc").iter().filter_map(|name| name.parse().ok()).collect();
        let mut mains = main_processes(files, servers);
        self.due_us = now_us + self.next_us(!mains.is_empty() && mains.len() == servers.len());
        let mut now: HashMap<u32, Counters> = HashMap::new();
        let mut programs: BTreeMap<String, Sum> = BTreeMap::new();
        let mut stats: BTreeMap<u32, Stat> = BTreeMap::new();
        for pid in pids.into_iter().take(PROCESSES_MAX) {
            stats.extend(stat_of(files, pid).map(|stat| (pid, stat)));
        }
        for (&pid, stat) in &stats {
            let ticks = stat.user_ticks + stat.system_ticks;
            if let Some(main) = mains.get_mut(&pid) {
                main.ended_ticks = stat.ended_ticks;
                continue;
            }
            if let Some(main) = mains.get_mut(&stat.parent) {
                main.children.insert(pid, (stat.started_ticks, ticks));
                continue;
            }
            if let Some(main) = starter(&stats, &mains, stat.parent).and_then(|main| mains.get_mut(&main)) {
                main.children.insert(pid, (stat.started_ticks, ticks));
                main.started.insert(pid);
                continue;
            }
            let io = files.text(&format!("/proc/{pid}/io")).ok().and_then(process::io);
            let counters = Counters { started_ticks: stat.started_ticks, ticks, io };
            programs.entry(stat.command.clone()).or_default().add(pid, &counters, self.before.get(&pid));
            now.insert(pid, counters);
        }
        // As long as the main process of a server is not known, its processes are programs like all others.
        if mains.len() < servers.len() {
            programs.remove(SERVER);
        }
        self.before = now;
        let mains_before = std::mem::replace(&mut self.mains, mains);
        let Some(interval_us) = self.at_us.replace(now_us).map(|before| now_us.saturating_sub(before)) else {
            return;
        };
        self.of_servers(files, host, (now_us, interval_us), &mains_before, batch);
        let mut found = worth(programs, interval_us);
        find_clients(files, servers, &mut found, (interval_us as f64 * SHARE_MIN) as u64);
        for (program, sum) in found {
            let line = Program {
                host: host.to_string(),
                program,
                processes: Some(sum.processes),
                cpu_us: Some(sum.cpu_us),
                client_cpu_us: Some(sum.client_cpu_us),
                read_bytes: Some(sum.read_bytes),
                write_bytes: Some(sum.write_bytes),
            };
            batch.counted(now_us, interval_us, line);
        }
    }
}

/// The programs that used the most: the half with the most CPU, and the half with the most bytes.
fn worth(programs: BTreeMap<String, Sum>, interval_us: u64) -> Vec<(String, Sum)> {
    let is_worth =
        |sum: &Sum| sum.cpu_us as f64 >= interval_us as f64 * SHARE_MIN || sum.bytes() >= BYTES_MIN;
    let mut found: Vec<(String, Sum)> = programs.into_iter().filter(|(_, sum)| is_worth(sum)).collect();
    found.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.cpu_us));
    let mut rest = found.split_off(found.len().min(PROGRAMS_MAX / 2));
    rest.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes()));
    rest.truncate(PROGRAMS_MAX / 2);
    found.append(&mut rest);
    found
}

/// Adds up the CPU time of the processes that are clients of the servers. A process that used less than `least_us` is not looked at.
fn find_clients(files: &mut dyn Files, servers: &[Server], programs: &mut [(String, Sum)], least_us: u64) {
    let mut busy: Vec<(usize, u32, u64)> = programs
        .iter()
        .enumerate()
        .flat_map(|(at, (_, sum))| sum.of_each.iter().map(move |(pid, cpu_us)| (at, *pid, *cpu_us)))
        .filter(|(_, _, cpu_us)| *cpu_us >= least_us.max(1))
        .collect();
    if busy.is_empty() {
        return;
    }
    busy.sort_by_key(|(_, _, cpu_us)| std::cmp::Reverse(*cpu_us));
    let clients = Clients::read(files, servers);
    for (at, pid, cpu_us) in busy.into_iter().take(LOOKED_MAX) {
        if clients.has(files, pid) {
            programs[at].1.client_cpu_us += cpu_us;
        }
    }
}

fn stat_of(files: &mut dyn Files, pid: u32) -> Option<Stat> {
    files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat)
}

/// The line of processes of a server that no view shows.
fn of_server(host: &str, pid: u32, main: &Main, kind: &str, cpu_us: u64) -> Backend {
    Backend {
        host: host.to_string(),
        node: main.node.clone(),
        pid: u64::from(pid),
        backend: kind.to_string(),
        cpu_us: Some(cpu_us),
        system_us: None,
        read_bytes: None,
        write_bytes: None,
        run_queue_us: None,
        state: String::new(),
        wchan: String::new(),
        asleep: None,
        blocked_write: None,
        stopped: None,
        tracer: String::new(),
        nice: None,
        policy: String::new(),
    }
}

/// The main process of each server: the parent of all others.
fn main_processes(files: &mut dyn Files, servers: &[Server]) -> BTreeMap<u32, Main> {
    let mut stat = |pid: u32| stat_of(files, pid);
    let mut of_one = |server: &Server| {
        let session = stat(server.pid?)?;
        // A process whose parent is 1 would take every daemon of the host for one of the server, except in a container that the server was started as.
        let is_main = session.parent > 1 || stat(1).is_some_and(|first| first.command == session.command);
        is_main.then(|| (session.parent, Main { node: server.node.clone(), ..Main::default() }))
    };
    servers.iter().filter_map(&mut of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use record::watched::Sampled;

    /// A process: its command, parent, ticks, start, and bytes written.
    type Process = (u32, &'static str, u32, u64, u64, u64);

    fn looked(programs: &mut Programs, at_us: u64, processes: &[Process]) -> Vec<Program> {
        let mut files = Shipped::default();
        for (pid, command, parent, ticks, started, written) in processes {
            let stat = format!(
                "{pid} ({command}) R {parent} 1 1 0 -1 4194304 1 0 3 0 {ticks} 0 0 0 20 0 1 0 {started} 2 3 0\n"
            );
            files.put(&format!("/proc/{pid}/stat"), stat);
            files.put(&format!("/proc/{pid}/io"), format!("read_bytes: 0\nwrite_bytes: {written}\n"));
        }
        let servers = [Server { node: "n1".into(), pid: Some(101), ..Server::default() }];
        let mut batch = Batch::default();
        programs.tick(&mut files, "h", at_us, &servers, &mut batch);
        let lines = batch.lines.into_iter();
        lines
            .filter_map(|(_, _, line)| if let Sampled::Program(line) = line { Some(line) } else { None })
            .collect()
    }

    #[test]
    fn processes_of_one_name_are_one_program_and_a_new_process_counts_from_its_start() {
        let mut programs = Programs::default();
        let server =
            |ticks| [(100, "postgres", 1, ticks, 5, 0), (101, "postgres", 100, ticks, 5, ticks << 20)];
        let mut round = |at_us: u64, ticks: u64, others: &[Process]| {
            looked(&mut programs, at_us, &[&server(ticks), others].concat())
        };
        assert!(round(0, 0, &[(7, "gzip", 1, 1_000, 5, 0), (8, "sshd", 1, 10, 5, 0)]).is_empty());
        assert!(round(1_000_000, 900, &[(7, "gzip", 1, 1_100, 5, 0)]).is_empty(), "not yet due");
        // The pid 8 belongs to another process now; what is quiet has no line, and the server has its own.
        let lines = round(
            5_000_000,
            5_000,
            &[
                (7, "gzip", 1, 1_400, 5, 0),
                (8, "gzip", 1, 50, 900, 0),
                (9, "backup (x)", 1, 0, 5, 50 << 20),
                (10, "cron", 1, 0, 5, 0),
            ],
        );
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line.program.as_str(), line.processes, line.cpu_us, line.write_bytes))
            .collect();
        assert_eq!(
            found,
            [("gzip", Some(2), Some(4_500_000), Some(0)), ("backup (x)", Some(1), Some(0), Some(50 << 20))]
        );
    }

    #[test]
    fn processes_of_the_server_that_began_and_ended_between_two_looks_are_counted() {
        let mut programs = Programs::default();
        let mut look = |at_us: u64, ended: u64, children: &[(u32, u64, u64)]| {
            let mut files = Shipped::default();
            let mut put = |pid: u32, parent: u32, ticks: u64, ended: u64, started: u64| {
                let stat = format!(
                    "{pid} (postgres) R {parent} 1 1 0 -1 4194304 1 0 3 0 {ticks} 0 {ended} 0 20 0 1 0 {started} 2 3 0\n"
                );
                files.put(&format!("/proc/{pid}/stat"), stat);
            };
            put(100, 1, 9, ended, 5);
            children.iter().for_each(|(pid, ticks, started)| put(*pid, 100, *ticks, 0, *started));
            let servers = [Server { node: "n1".into(), pid: Some(101), ..Server::default() }];
            let mut batch = Batch::default();
            programs.tick(&mut files, "h", at_us, &servers, &mut batch);
            let lines = batch.lines.into_iter().filter_map(|(_, _, line)| match line {
                Sampled::Backend(line) => Some((line.node, line.backend, line.cpu_us)),
                _ => None,
            });
            lines.collect::<Vec<_>>()
        };
        assert!(look(0, 1_000, &[(101, 50, 5), (102, 300, 6)]).is_empty());
        // A session with 300 ticks ended after 20 more; workers took 80. Its pid is another one's now.
        let lines = look(5_000_000, 1_400, &[(101, 60, 5), (102, 10, 9)]);
        assert_eq!(lines, [("n1".to_string(), ENDED.to_string(), Some(1_000_000))]);
    }

    #[test]
    fn the_server_may_be_the_first_process_of_a_container_and_another_server_is_a_program() {
        let of = |first: &'static str, parent: u32, ticks: u64| {
            [
                (1, first, 0, 0, 1, 0),
                (101, "postgres", parent, ticks, 5, 0),
                (102, "postgres", parent, ticks, 5, 0),
                (60, "postgres", 1, 0, 5, 0),
                (61, "postgres", 60, ticks, 5, 0),
            ]
        };
        for (first, parent, expected) in
            [("postgres", 1, vec![("postgres", 3_000_000)]), ("systemd", 60, vec![]), ("systemd", 1, vec![])]
        {
            let mut programs = Programs::default();
            looked(&mut programs, 0, &of(first, parent, 0));
            let lines = looked(&mut programs, 5_000_000, &of(first, parent, 300));
            let found: Vec<_> =
                lines.iter().map(|line| (line.program.as_str(), line.cpu_us.unwrap())).collect();
            let expected = match (first, parent) {
                // No main process is known: it may be any of them.
                ("systemd", 1) => vec![],
                _ => expected,
            };
            assert_eq!(found, expected, "{first} {parent}");
        }
    }

    #[test]
    fn the_collector_of_logs_and_what_the_server_starts_are_its_own() {
        let mut programs = Programs::default();
        let mut look = |at_us: u64, ticks: u64| {
            let mut files = Shipped::default();
            let mut put = |pid: u32, command: &str, parent: u32, ticks: u64| {
                let stat = format!(
                    "{pid} ({command}) R {parent} 1 1 0 -1 4194304 1 0 3 0 {ticks} 0 0 0 20 0 1 0 5 2 3 0\n"
                );
                files.put(&format!("/proc/{pid}/stat"), stat);
            };
            put(100, "postgres", 1, 9);
            put(101, "postgres", 100, 0);
            put(102, "postgres", 100, ticks);
            // The archiver runs a shell, and this a program.
            put(103, "postgres", 100, 0);
            put(104, "sh", 103, 0);
            put(105, "gzip", 104, ticks * 2);
            put(106, "gzip", 1, ticks * 3);
            files.put("/proc/102/cmdline", "postgres: logger \0".into());
            let servers = [Server { node: "n1".into(), pid: Some(101), ..Server::default() }];
            let mut batch = Batch::default();
            programs.tick(&mut files, "h", at_us, &servers, &mut batch);
            let lines = batch.lines.into_iter().filter_map(|(_, _, line)| match line {
                Sampled::Backend(line) => Some((line.backend, line.cpu_us)),
                Sampled::Program(line) => Some((line.program, line.cpu_us)),
                _ => None,
            });
            lines.collect::<Vec<_>>()
        };
        assert!(look(0, 10).is_empty());
        let of = |name: &str, ticks: u64| (name.to_string(), Some(ticks * TICK_US));
        let all = [of(ENDED, 0), of(LOGGER, 100), of(STARTED, 200), of("gzip", 300)];
        assert_eq!(look(5_000_000, 110), all);
    }
}
