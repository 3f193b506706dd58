//! Which programs use the CPUs of this host: the neighbours of a server by their names.
//!
//! Every [`EVERY_US`] the counters of all processes are read, and those of one name summed up. A process that began and ended between two looks is not seen; what
//! it used is in the host's total.

use super::files::Files;
use super::process::{self, TICK_US};
use crate::collect::Batch;
use record::watched::Program;
use std::collections::{BTreeMap, HashMap};

/// The interval of looks: a read costs the kernel some ten microseconds for each process.
const EVERY_US: u64 = 5_000_000;
/// Processes read in one look at most: with more of them, looks would be a cost themselves.
const PROCESSES_MAX: usize = 2_000;
/// Programs recorded of a look.
const PROGRAMS_MAX: usize = 8;
/// CPU of a program that is recorded, of the interval: less is nobody's trouble.
const SHARE_MIN: f64 = 0.01;

/// The processes of the last look.
#[derive(Debug, Default)]
pub struct Programs {
    due_us: u64,
    at_us: Option<u64>,
    /// By pid: when it started, and its ticks.
    before: HashMap<u32, (u64, u64)>,
}

impl Programs {
    /// Reads all processes if it is time, and reports the programs that used the most.
    pub fn tick(&mut self, files: &mut dyn Files, host: &str, now_us: u64, batch: &mut Batch) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = now_us + EVERY_US;
        let pids: Vec<u32> = files.entries("/proc").iter().filter_map(|name| name.parse().ok()).collect();
        let mut now: HashMap<u32, (u64, u64)> = HashMap::new();
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for pid in pids.into_iter().take(PROCESSES_MAX) {
            let Some(stat) = files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat) else { continue };
            let ticks = stat.user_ticks + stat.system_ticks;
            now.insert(pid, (stat.started_ticks, ticks));
            // One that began since the last look has used all of it since.
            let basis = match self.before.get(&pid) {
                Some((started, ticks)) if *started == stat.started_ticks => *ticks,
                _ => 0,
            };
            let (processes, used) = sums.entry(stat.command).or_default();
            *processes += 1;
            *used += ticks.saturating_sub(basis);
        }
        let before_us = self.at_us.replace(now_us);
        self.before = now;
        let Some(interval_us) = before_us.map(|before| now_us.saturating_sub(before)) else { return };
        let mut found: Vec<(String, (u64, u64))> = sums.into_iter().collect();
        found.retain(|(_, (_, ticks))| (ticks * TICK_US) as f64 >= interval_us as f64 * SHARE_MIN);
        found.sort_by(|left, right| right.1.1.cmp(&left.1.1).then_with(|| left.0.cmp(&right.0)));
        for (program, (processes, ticks)) in found.into_iter().take(PROGRAMS_MAX) {
            let line =
                Program { host: host.to_string(), program, processes, cpu_us: Some(ticks * TICK_US) };
            batch.counted(now_us, interval_us, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use record::watched::Sampled;

    fn stat(command: &str, user: u64, started: u64) -> String {
        format!("1 ({command}) R 42 1 1 0 -1 4194304 100 0 3 0 {user} 0 0 0 20 0 1 0 {started} 220000000 3000 0\n")
    }

    fn looked(programs: &mut Programs, at_us: u64, processes: &[(u32, &str, u64, u64)]) -> Vec<(String, u64, u64)> {
        let mut files = Shipped::default();
        for (pid, command, user, started) in processes {
            files.put(&format!("/proc/{pid}/stat"), stat(command, *user, *started));
        }
        let mut batch = Batch::default();
        programs.tick(&mut files, "h", at_us, &mut batch);
        let lines = batch.lines.into_iter().filter_map(|(_, _, line)| match line {
            Sampled::Program(line) => Some((line.program, line.processes, line.cpu_us.unwrap_or(0))),
            _ => None,
        });
        lines.collect()
    }

    #[test]
    fn processes_of_one_name_are_one_program_and_a_new_process_counts_from_its_start() {
        let mut programs = Programs::default();
        assert!(looked(&mut programs, 0, &[(7, "gzip", 1_000, 5), (8, "sshd", 10, 5)]).is_empty());
        // Not yet due.
        assert!(looked(&mut programs, 1_000_000, &[(7, "gzip", 1_100, 5)]).is_empty());
        // The pid 8 belongs to another process now.
        let second = [(7, "gzip", 1_400, 5), (8, "gzip", 50, 900), (9, "cron", 0, 5)];
        assert_eq!(looked(&mut programs, 5_000_000, &second), [("gzip".to_string(), 2, 4_500_000)]);
    }
}
