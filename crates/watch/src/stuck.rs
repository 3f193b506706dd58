//! Stuck server processes: their position in the kernel, kept as text under `stuck/`.
//!
//! A process is stuck if it was active at every tick for a while, always waited for the same event, and used no CPU. Waits
//! for locks are left out: `block` lines have their trees, and the kernel's stack would only show `epoll_wait`.

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Tick, With};
use crate::host::files::{Absent, Files, Tree};
use crate::host::process;
use record::event;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// A process without progress for this long is stuck.
const STUCK_US: u64 = 10_000_000;
/// The same for a process in uninterruptible sleep.
const ASLEEP_US: u64 = 3_000_000;
/// The interval of reads of one process.
const AGAIN_US: u64 = 60_000_000;
/// Files kept of a run.
const FILES_MAX: u32 = 50;
/// The files of a stuck process. `stack` needs root; none of them names users, databases or statements.
const FILES: [&str; 5] = ["wchan", "stack", "syscall", "schedstat", "io"];
/// What is unknown without the kernel's stacks.
const LOST: &str = "in which kernel function a stuck server process waits";

#[derive(Clone, Debug)]
struct Seen {
    since_us: u64,
    last_us: u64,
    wait: String,
    ticks: u64,
    /// When it was first seen in uninterruptible sleep.
    asleep_since_us: Option<u64>,
    reported_us: Option<u64>,
}

/// The collector of stuck processes of this host.
#[derive(Debug)]
pub struct Stuck {
    host: String,
    board: Arc<Board>,
    files: Tree,
    seen: HashMap<(String, u32), Seen>,
    kept: u32,
    has_reported_lack: bool,
}

impl Stuck {
    /// A collector for the nodes of the board that run on this host.
    pub fn new(host: &str, board: Arc<Board>) -> Stuck {
        Stuck::of(host, board, Tree::live())
    }

    fn of(host: &str, board: Arc<Board>, files: Tree) -> Stuck {
        Stuck {
            host: host.to_string(),
            board,
            files,
            seen: HashMap::new(),
            kept: 0,
            has_reported_lack: false,
        }
    }

    /// Checks a process; returns why it is stuck, if it is.
    fn look(&mut self, now_us: u64, node: &str, pid: u32, wait: &str) -> Option<&'static str> {
        let stat = self.files.text(&format!("/proc/{pid}/stat")).ok().and_then(process::stat)?;
        let ticks = stat.user_ticks + stat.system_ticks;
        let fresh = Seen {
            since_us: now_us,
            last_us: now_us,
            wait: wait.to_string(),
            ticks,
            asleep_since_us: None,
            reported_us: None,
        };
        let seen = self.seen.entry((node.to_string(), pid)).or_insert_with(|| fresh.clone());
        seen.last_us = now_us;
        let is_asleep = stat.state == "D";
        seen.asleep_since_us = if is_asleep { seen.asleep_since_us.or(Some(now_us)) } else { None };
        if seen.wait != wait || seen.ticks != ticks {
            *seen = Seen { reported_us: seen.reported_us, asleep_since_us: seen.asleep_since_us, ..fresh };
        }
        let still_us = now_us - seen.since_us;
        let why = if seen.asleep_since_us.is_some_and(|since_us| now_us - since_us >= ASLEEP_US)
            && still_us >= ASLEEP_US
        {
            "in uninterruptible sleep"
        } else if still_us >= STUCK_US && !wait.starts_with("Lock:") && !wait.starts_with("Client:") {
            "without progress"
        } else {
            return None;
        };
        if seen.reported_us.is_some_and(|reported_us| now_us - reported_us < AGAIN_US) {
            return None;
        }
        seen.reported_us = Some(now_us);
        Some(why)
    }

    fn keep(
        &mut self,
        tick: &Tick,
        node: &str,
        process: &crate::board::Process,
        why: &str,
        batch: &mut Batch,
    ) {
        self.kept += 1;
        let pid = process.pid;
        let since_us = self.seen.get(&(node.to_string(), pid)).map_or(tick.now_us, |seen| seen.since_us);
        let still_s = (tick.now_us - since_us) / 1_000_000;
        let wait = if process.wait.is_empty() { "nothing" } else { &process.wait };
        let mut text = format!(
            "# pgfathom stuck 1\n# node: {node}\n# pid: {pid}\n# backend: {}\n# waits for: {wait}\n# {why} for: {still_s} s\n",
            process.backend
        );
        for name in FILES {
            match self.files.text(&format!("/proc/{pid}/{name}")) {
                Ok(content) => {
                    let _ = write!(text, "\n== {name}\n{}\n", content.trim_end());
                }
                Err(absent) => {
                    let _ = write!(text, "\n== {name}\n{absent}\n");
                    if name == "stack"
                        && absent == Absent::Denied
                        && !std::mem::replace(&mut self.has_reported_lack, true)
                    {
                        let why = "/proc/PID/stack: permission denied (needs root)";
                        batch.reading(tick.now_us, self.place().missing("kernel stacks", why, LOST));
                    }
                }
            }
        }
        let path = format!("stuck/{}-{pid}.txt", tick.now_us);
        let message = format!("{} {pid} of {node} {why} for {still_s} s, waits for {wait}", process.backend);
        let reported = self
            .place()
            .event(tick.now_us, event::NOTE, message)
            .with("node", node)
            .with("file", path.as_str());
        batch.event(reported.with("pid", pid));
        batch.file(path, text.into_bytes());
    }
}

impl Collect for Stuck {
    fn place(&self) -> Place {
        Place::Host(self.host.clone())
    }

    fn part(&self) -> &'static str {
        "stuck"
    }

    fn subject(&self) -> String {
        format!("stuck processes of {}", self.host)
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        for (node, state) in self.board.nodes() {
            if !state.is_local {
                continue;
            }
            for process in &state.active {
                // Only client sessions and workers: other processes wait for ever normally.
                let is_ours = process.backend == "client backend" || process.backend.contains("worker");
                if !is_ours || self.kept >= FILES_MAX {
                    continue;
                }
                if let Some(why) = self.look(tick.now_us, &node, process.pid, &process.wait) {
                    self.keep(tick, &node, process, why, batch);
                }
            }
        }
        // A process that was not active at this tick is not stuck.
        self.seen.retain(|_, seen| seen.last_us == tick.now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{NodeState, Process};
    use record::Clock;
    use std::fs;
    use std::path::{Path, PathBuf};

    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let root = std::env::temp_dir().join(format!("pgfathom-stuck-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("proc/7")).expect("made");
            Machine(root)
        }

        fn put(&self, state: &str, ticks: u64) {
            let stat = format!("7 (postgres) {state} 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 9 0\n");
            fs::write(self.0.join("proc/7/stat"), stat).expect("written");
            fs::write(self.0.join("proc/7/stack"), "[<0>] folio_wait_bit_common+0x1\n").expect("written");
        }

        fn stuck(&self, wait: &str) -> Stuck {
            let board = Arc::new(Board::new());
            let process =
                Process { pid: 7, backend: "client backend".into(), wait: wait.into(), query_id: None };
            board.set("n1", NodeState { is_local: true, active: vec![process], ..NodeState::default() });
            Stuck::of("h", board, Tree::recorded(Path::new(&self.0)))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The seconds at which data was kept.
    fn reported(
        stuck: &mut Stuck,
        seconds: std::ops::Range<u64>,
        mut before: impl FnMut(u64),
    ) -> Vec<(u64, Batch)> {
        let clock = Clock { monotonic_us: 0, wall_us: 0 };
        let mut reported = vec![];
        for second in seconds {
            before(second);
            let mut batch = Batch::default();
            stuck.tick(&Tick { now_us: second * 1_000_000, clock, cadence_us: 1_000_000 }, &mut batch);
            if !batch.is_empty() {
                reported.push((second, batch));
            }
        }
        reported
    }

    #[test]
    fn who_does_not_move_is_kept_once_a_minute() {
        let machine = Machine::new("still");
        machine.put("S", 5);
        let mut stuck = machine.stuck("IPC:SyncRep");
        let reported = reported(&mut stuck, 0..75, |_| {});
        assert_eq!(reported.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [10, 70]);
        let (name, content) = &reported[0].1.files[0];
        let text = String::from_utf8_lossy(content);
        assert_eq!(name, "stuck/10000000-7.txt");
        assert!(
            text.contains("# waits for: IPC:SyncRep") && text.contains("folio_wait_bit_common"),
            "{text}"
        );
        assert!(text.contains("== syscall\nnot there"), "what is missing is reported: {text}");
        assert!(reported[0].1.events[0].message.contains("without progress for 10 s"));
    }

    #[test]
    fn who_sleeps_uninterruptibly_is_kept_sooner_and_who_works_never() {
        let machine = Machine::new("asleep");
        let mut stuck = machine.stuck("IO:DataFileRead");
        let kept = reported(&mut stuck, 0..6, |_| machine.put("D", 5));
        assert_eq!(kept.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [3]);
        let mut busy = machine.stuck("");
        assert!(reported(&mut busy, 0..30, |second| machine.put("R", second)).is_empty());
        let mut slow_disk = machine.stuck("IO:DataFileRead");
        assert!(
            reported(&mut slow_disk, 0..30, |second| machine.put("D", second)).is_empty(),
            "asleep, but moving"
        );
    }

    #[test]
    fn lock_waits_are_left_to_another_collector() {
        let machine = Machine::new("lock");
        machine.put("S", 5);
        let mut stuck = machine.stuck("Lock:transactionid");
        assert!(reported(&mut stuck, 0..30, |_| {}).is_empty());
    }
}
