//! Other programs of this host that read from its disks and write to them: which one is in the database's way. Their files are read rarely, and only on
//! this host: each costs the kernel tens of microseconds, and the files of other users need root.

use super::files::Files;
use super::process::{self, Io};
use super::server::Server;
use crate::collect::Batch;
use record::watched::Program;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Processes that are looked at in one round.
const PROCESSES_MAX: usize = 2_000;
/// Programs with a line of their own.
const PROGRAMS_MAX: usize = 5;
/// Bytes of a process in a round that make it worth its name.
const BYTES_MIN: u64 = 1 << 20;

/// The processes of the last round.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    before: HashMap<u32, Io>,
    before_us: Option<u64>,
}

/// What one program did.
#[derive(Debug, Default)]
struct Sum {
    processes: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Programs {
    /// Looks at all processes, and records the programs that moved the most bytes since the last round. Processes of the servers are left out: they have
    /// lines of their own.
    pub(crate) fn look(
        &mut self,
        files: &mut dyn Files,
        host: &str,
        now_us: u64,
        servers: &[Server],
        batch: &mut Batch,
    ) {
        let pids: Vec<u32> = files.entries("/proc").iter().filter_map(|name| name.parse().ok()).collect();
        let now: HashMap<u32, Io> = pids
            .into_iter()
            .take(PROCESSES_MAX)
            .filter_map(|pid| Some((pid, files.text(&format!("/proc/{pid}/io")).ok().and_then(process::io)?)))
            .collect();
        let before = std::mem::replace(&mut self.before, now);
        let Some(since_us) = self.before_us.replace(now_us) else { return };
        let mains = main_processes(files, servers);
        let mut programs: BTreeMap<String, Sum> = BTreeMap::new();
        for (pid, io) in &self.before {
            let Some(old) = before.get(pid) else { continue };
            let (read, written) = (
                io.read_bytes.saturating_sub(old.read_bytes),
                io.write_bytes.saturating_sub(old.write_bytes),
            );
            if read + written < BYTES_MIN {
                continue;
            }
            let Some(stat) = files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat) else {
                continue;
            };
            if mains.contains(pid) || mains.contains(&stat.parent) {
                continue;
            }
            let sum = programs.entry(stat.command).or_default();
            sum.processes += 1;
            sum.read_bytes += read;
            sum.write_bytes += written;
        }
        let mut programs: Vec<(String, Sum)> = programs.into_iter().collect();
        programs.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.read_bytes + sum.write_bytes));
        for (program, sum) in programs.into_iter().take(PROGRAMS_MAX) {
            let line = Program {
                host: host.to_string(),
                program,
                processes: Some(sum.processes),
                read_bytes: Some(sum.read_bytes),
                write_bytes: Some(sum.write_bytes),
            };
            batch.counted(now_us, now_us.saturating_sub(since_us), line);
        }
    }
}

/// The main process of each server: the parent of all others.
fn main_processes(files: &mut dyn Files, servers: &[Server]) -> BTreeSet<u32> {
    let of_one = |pid: u32| {
        files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat).map(|stat| stat.parent)
    };
    // A process whose parent is 1 would take every daemon of the host for one of the server.
    servers.iter().filter_map(|server| server.pid).filter_map(of_one).filter(|pid| *pid > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use record::watched::Sampled;

    fn put(files: &mut Shipped, pid: u32, command: &str, parent: u32, written: u64) {
        files.put(
            &format!("/proc/{pid}/stat"),
            format!("{pid} ({command}) S {parent} 1 1 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 1 0 5 1 1 1\n"),
        );
        files.put(&format!("/proc/{pid}/io"), format!("read_bytes: 0\nwrite_bytes: {written}\n"));
    }

    #[test]
    fn a_program_that_writes_is_named_and_the_server_is_not() {
        let mut programs = Programs::default();
        let servers = [Server { node: "n1".into(), pid: Some(101), ..Server::default() }];
        let mut round = |t_us: u64, written: u64| {
            let mut files = Shipped::default();
            put(&mut files, 100, "postgres", 1, written);
            put(&mut files, 101, "postgres", 100, written);
            put(&mut files, 200, "backup (x)", 1, written);
            put(&mut files, 201, "backup (x)", 200, written);
            put(&mut files, 300, "quiet", 1, 5);
            let mut batch = Batch::default();
            programs.look(&mut files, "h", t_us, &servers, &mut batch);
            batch.lines
        };
        assert!(round(1_000_000, 0).is_empty(), "nothing to compare with");
        let lines = round(11_000_000, 50_000_000);
        let [(_, interval_us, Sampled::Program(line))] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            (*interval_us, line.program.as_str(), line.processes),
            (10_000_000, "backup (x)", Some(2))
        );
        assert_eq!((line.read_bytes, line.write_bytes), (Some(0), Some(100_000_000)));
    }
}
