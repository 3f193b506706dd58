//! Follows the active server processes from tick to tick.

use super::files::{Absent, Files};
use super::process::{self, Io, Schedule, Stat, TICK_US};
use crate::collect::Batch;
use record::watched::Backend;
use std::collections::HashMap;

/// Processes read in one tick at most: each costs the kernel about a tenth of a millisecond.
pub(crate) const BACKENDS_MAX: usize = 128;
/// A sample this old is no basis any more: the process slept in between, and its work cannot be assigned to a second.
const BASIS_AGE_MAX_US: u64 = 5_000_000;

/// A process to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Process id.
    pub pid: u32,
    /// Node it belongs to.
    pub node: String,
    /// Kind of backend.
    pub backend: String,
}

#[derive(Clone, Debug)]
struct Basis {
    t_us: u64,
    stat: Stat,
    io: Option<Io>,
    schedule: Option<Schedule>,
}

/// The processes of the last ticks.
#[derive(Debug, Default)]
pub struct Backends {
    before: HashMap<u32, Basis>,
    /// Where the next tick begins if there are more than [`BACKENDS_MAX`], so that each gets its turn.
    turn: usize,
    /// Why `/proc/PID/io` could not be read last time.
    pub io_absent: Option<Absent>,
    /// Whether `/proc/PID/schedstat` is not there.
    pub has_no_schedule: bool,
}

impl Backends {
    /// Reads the processes and reports the activity of each since its last sample. A new process is only remembered.
    pub fn tick(
        &mut self,
        files: &mut dyn Files,
        host: &str,
        now_us: u64,
        targets: &[Target],
        batch: &mut Batch,
    ) {
        let count = targets.len().min(BACKENDS_MAX);
        if targets.len() <= BACKENDS_MAX {
            self.turn = 0;
        }
        for offset in 0..count {
            self.look(files, host, now_us, &targets[(self.turn + offset) % targets.len()], batch);
        }
        self.turn = if targets.is_empty() { 0 } else { (self.turn + count) % targets.len() };
        self.before.retain(|_, basis| now_us.saturating_sub(basis.t_us) <= BASIS_AGE_MAX_US);
    }

    fn look(&mut self, files: &mut dyn Files, host: &str, now_us: u64, target: &Target, batch: &mut Batch) {
        let pid = target.pid;
        let Some(stat) = files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat) else {
            return;
        };
        let io = match files.text(&format!("/proc/{pid}/io")) {
            Ok(text) => {
                self.io_absent = None;
                process::io(text)
            }
            // A process that ended in between is not a missing item.
            Err(Absent::Missing) => None,
            Err(absent) => {
                self.io_absent = Some(absent);
                None
            }
        };
        let schedule = files.text(&format!("/proc/{pid}/schedstat")).ok().and_then(process::schedule);
        self.has_no_schedule = schedule.is_none();
        // The kernel's stack is not read of those that run: it costs as much as the rest. Ordinary waits have the names that PostgreSQL gives them.
        let is_asleep = stat.state == "D";
        let wchan = (is_asleep || stat.state == "S")
            .then(|| files.text(&format!("/proc/{pid}/wchan")).ok().and_then(process::wchan))
            .flatten()
            .unwrap_or_default();
        let is_blocked = process::is_blocked_write(&wchan);
        let is_stopped = process::is_stopped(&stat.state);
        let tracer = if is_stopped { tracer(files, pid) } else { None };
        let now = Basis { t_us: now_us, stat, io, schedule };
        let before = self.before.insert(pid, now.clone());
        let Some(before) = before.filter(|before| before.stat.started_ticks == now.stat.started_ticks) else {
            return;
        };
        let ticks = |of: fn(&Stat) -> u64| of(&now.stat).saturating_sub(of(&before.stat)) * TICK_US;
        let system_us = ticks(|stat| stat.system_ticks);
        let ran_us = now
            .schedule
            .zip(before.schedule)
            .map(|(now, before)| now.run_ns.saturating_sub(before.run_ns) / 1000);
        let moved = |of: fn(&Io) -> u64| {
            now.io.zip(before.io).map(|(now, before)| of(&now).saturating_sub(of(&before)))
        };
        let waited_us = now
            .schedule
            .zip(before.schedule)
            .map(|(now, before)| now.wait_ns.saturating_sub(before.wait_ns) / 1000);
        batch.counted(
            now_us,
            now_us.saturating_sub(before.t_us),
            Backend {
                host: host.to_string(),
                node: target.node.clone(),
                pid: u64::from(pid),
                backend: target.backend.clone(),
                cpu_us: Some(ran_us.unwrap_or(ticks(|stat| stat.user_ticks) + system_us)),
                system_us: Some(system_us),
                read_bytes: moved(|io| io.read_bytes),
                write_bytes: moved(|io| io.write_bytes),
                run_queue_us: waited_us,
                asleep: Some(u64::from(is_asleep)),
                blocked_write: Some(u64::from(is_blocked)),
                stopped: Some(u64::from(is_stopped)),
                tracer: tracer.unwrap_or_default(),
                nice: Some(now.stat.nice).filter(|nice| *nice != 0),
                policy: process::policy(now.stat.policy).to_string(),
                state: now.stat.state,
                wchan: if is_asleep || is_blocked { wchan } else { String::new() },
            },
        );
    }
}

/// The program that traces a process, with its id: `strace (4711)`.
fn tracer(files: &mut dyn Files, pid: u32) -> Option<String> {
    let tracer = files.text(&format!("/proc/{pid}/status")).ok().and_then(process::tracer)?;
    let stat = files.text(&format!("/proc/{tracer}/stat")).ok().and_then(process::stat);
    Some(format!("{} ({tracer})", stat.map_or("a process".to_string(), |stat| stat.command)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use record::watched::Sampled;

    fn put(
        files: &mut Shipped,
        pid: u32,
        state: &str,
        system_ticks: u64,
        started: u64,
        run_ns: u64,
        read: u64,
    ) {
        let stat = format!(
            "{pid} (postgres) {state} 1 1 1 0 -1 0 0 0 0 0 500 {system_ticks} 0 0 20 0 1 0 {started} 0\n"
        );
        files.put(&format!("/proc/{pid}/stat"), stat);
        files.put(&format!("/proc/{pid}/io"), format!("read_bytes: {read}\nwrite_bytes: 0\n"));
        files.put(&format!("/proc/{pid}/schedstat"), format!("{run_ns} 7000000 3\n"));
        files.put(&format!("/proc/{pid}/wchan"), "folio_wait_bit_common".to_string());
    }

    fn target(pid: u32) -> Target {
        Target { pid, node: "n1".to_string(), backend: "client backend".to_string() }
    }

    fn tick(
        backends: &mut Backends,
        files: &mut Shipped,
        now_us: u64,
        targets: &[Target],
    ) -> Vec<(u64, Backend)> {
        let mut batch = Batch::default();
        backends.tick(files, "h", now_us, targets, &mut batch);
        let line = |(_, interval_us, line)| match line {
            Sampled::Backend(line) => (interval_us, line),
            other => panic!("{other:?}"),
        };
        batch.lines.into_iter().map(line).collect()
    }

    #[test]
    fn work_counts_from_the_last_look_and_a_reused_number_is_another_process() {
        let (mut backends, mut files) = (Backends::default(), Shipped::default());
        put(&mut files, 7, "R", 10, 100, 1_000_000, 4096);
        assert!(tick(&mut backends, &mut files, 1_000_000, &[target(7)]).is_empty(), "no basis yet");
        put(&mut files, 7, "D", 13, 100, 501_000_000, 12_288);
        let detail = tick(&mut backends, &mut files, 3_000_000, &[target(7), target(8)]);
        assert_eq!(detail.len(), 1);
        let (interval_us, line) = &detail[0];
        assert_eq!((*interval_us, line.cpu_us, line.system_us), (2_000_000, Some(500_000), Some(30_000)));
        assert_eq!((line.read_bytes, line.run_queue_us), (Some(8192), Some(0)));
        assert_eq!((line.state.as_str(), line.wchan.as_str()), ("D", "folio_wait_bit_common"));
        // Asleep as PostgreSQL knows it, and in a write that nothing takes.
        for (wchan, recorded, count) in [("ep_poll", "", 0), ("pipe_write", "pipe_write", 1)] {
            put(&mut files, 7, "S", 13, 100, 501_000_000, 12_288);
            files.put("/proc/7/wchan", wchan.to_string());
            let (_, line) = tick(&mut backends, &mut files, 3_500_000, &[target(7)]).remove(0);
            assert_eq!((line.wchan.as_str(), line.blocked_write), (recorded, Some(count)));
        }
        put(&mut files, 7, "R", 1, 999, 1_000, 0);
        assert!(tick(&mut backends, &mut files, 4_000_000, &[target(7)]).is_empty(), "another process");
    }

    #[test]
    fn a_process_that_is_stopped_has_its_tracer() {
        let (mut backends, mut files) = (Backends::default(), Shipped::default());
        let mut look = |state: &str, now_us: u64, status: &str| {
            put(&mut files, 7, state, 10, 100, 1_000_000, 0);
            put(&mut files, 9, "S", 10, 50, 1_000_000, 0);
            files.put("/proc/7/status", status.to_string());
            tick(&mut backends, &mut files, now_us, &[target(7)]).pop().map(|(_, line)| line)
        };
        assert!(look("R", 1_000_000, "").is_none());
        let traced = look("t", 2_000_000, "TracerPid:\t9\n").expect("a line");
        assert_eq!((traced.stopped, traced.tracer.as_str()), (Some(1), "postgres (9)"));
        let stopped = look("T", 3_000_000, "TracerPid:\t0\n").expect("a line");
        assert_eq!((stopped.stopped, stopped.tracer.as_str()), (Some(1), ""));
        // Of those that run nothing more is read.
        let runs = look("R", 4_000_000, "TracerPid:\t9\n").expect("a line");
        assert_eq!((runs.stopped, runs.tracer.as_str(), runs.nice), (Some(0), "", None));
    }

    #[test]
    fn a_long_sleep_is_no_interval() {
        let (mut backends, mut files) = (Backends::default(), Shipped::default());
        put(&mut files, 7, "R", 10, 100, 1_000_000, 0);
        tick(&mut backends, &mut files, 0, &[target(7)]);
        tick(&mut backends, &mut files, 9_000_000, &[]);
        assert!(tick(&mut backends, &mut files, 10_000_000, &[target(7)]).is_empty());
    }

    #[test]
    fn of_too_many_each_gets_its_turn() {
        let (mut backends, mut files) = (Backends::default(), Shipped::default());
        let targets: Vec<Target> = (1..=200).map(target).collect();
        for pid in 1..=200 {
            put(&mut files, pid, "R", 10, 100, 1_000_000, 0);
        }
        assert!(tick(&mut backends, &mut files, 1, &targets).is_empty());
        assert_eq!(tick(&mut backends, &mut files, 2, &targets).len(), 2 * BACKENDS_MAX - 200);
        assert_eq!(tick(&mut backends, &mut files, 3, &targets).len(), BACKENDS_MAX);
    }

    #[test]
    fn what_may_not_be_read_is_absent_and_noted() {
        let (mut backends, mut files) = (Backends::default(), Shipped::default());
        files.put("/proc/7/stat", "7 (postgres) R 1 1 1 0 -1 0 0 0 0 0 5 1 0 0 20 0 1 0 9 0\n".into());
        tick(&mut backends, &mut files, 1, &[target(7)]);
        files.put("/proc/7/stat", "7 (postgres) R 1 1 1 0 -1 0 0 0 0 0 8 1 0 0 20 0 1 0 9 0\n".into());
        let detail = tick(&mut backends, &mut files, 2, &[target(7)]);
        assert_eq!(
            (detail[0].1.cpu_us, detail[0].1.read_bytes, detail[0].1.run_queue_us),
            (Some(30_000), None, None)
        );
        assert!(backends.has_no_schedule);
    }
}
