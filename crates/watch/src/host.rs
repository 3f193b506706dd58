//! The host of the database: samples of `/proc` and `/sys`, once a second at a negligible cost.
//!
//! | module | reads |
//! |---|---|
//! | [`files`] | this host, a recorded tree, or the shipment of a remote host |
//! | [`cpu`], [`memory`], [`disk`], [`net`], [`process`] | counters of every second |
//! | [`topology`], [`mount`], [`hardware`], [`security`], [`facts`] | state that changes slowly |
//! | [`kernel_log`] | `/dev/kmsg`, `dmesg` |
//! | [`tools`] | `smartctl`, `chronyc`, `auditctl`, `zpool` |
//! | [`programs`], [`clients`] | which other programs use processors and disks, and which of them are clients of the server |
//! | [`schedule`] | processor time of our own sessions and threads |
//! | [`machine`], [`slow`], [`backends`] | combine them, tick by tick |
//!
//! Reading needs no privilege except for the items in `docs/watch-host.md`; unreadable items become `missing` lines.

pub mod backends;
pub mod cgroup;
pub(crate) mod clients;
pub mod cpu;
pub mod disk;
pub mod facts;
pub mod files;
pub mod hardware;
pub mod kernel_log;
pub mod machine;
pub mod memory;
pub mod mount;
pub mod net;
pub mod process;
pub(crate) mod programs;
pub mod recorded;
pub mod schedule;
pub mod security;
pub mod server;
pub mod slow;
pub mod tools;
pub mod topology;

use crate::board::{Board, NodeState};
use crate::collect::{Batch, Collect, Place, Tick, With};
use backends::Target;
use files::{Files, Tree};
use kernel_log::{Follower, Message};
use machine::Machine;
use programs::Programs;
use record::event;
use schedule::{Processes, Schedules};
use server::{Part, Server};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The interval at which the location of the parts of a database is determined.
const PARTS_EVERY_US: u64 = 10_000_000;
/// Kernel messages recorded in one tick at most.
const MESSAGES_PER_TICK: usize = 50;

/// CPU time of programs and of the kernel in the last interval, in percent of all processors, for the collector of stacks; `None`: unknown.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Option<(f64, f64)>>>);

impl Pulse {
    pub(crate) fn set(&self, cpu: Option<(f64, f64)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cpu;
    }

    /// Of programs, and of the kernel.
    pub(crate) fn cpu(&self) -> Option<(f64, f64)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that has not answered for so long is looked at by its processes.
const SILENT_US: u64 = 2_500_000;

/// The collector of the local host, or of a recorded tree.
#[derive(Debug)]
pub struct LocalHost {
    machine: Machine,
    files: Tree,
    board: Arc<Board>,
    pulse: Pulse,
    parts: BTreeMap<String, Vec<Part>>,
    parts_due_us: u64,
    log: Option<Follower>,
    log_absent: Option<files::Absent>,
    /// Whether the messages before the run were counted.
    is_log_caught_up: bool,
    schedules: Schedules,
    programs: Programs,
}

impl LocalHost {
    /// This host under this name, with the nodes of the board that run on it.
    pub fn new(host: &str, board: Arc<Board>) -> LocalHost {
        let (log, log_absent) = match Follower::open("/dev/kmsg") {
            Ok(log) => (Some(log), None),
            Err(absent) => (None, Some(absent)),
        };
        LocalHost { log, log_absent, ..LocalHost::of(host, board, Tree::live()) }
    }

    /// A recorded tree (`--sysroot DIR`): no program is called, no kernel log followed.
    pub fn recorded(host: &str, board: Arc<Board>, root: &Path) -> LocalHost {
        LocalHost::of(host, board, Tree::recorded(root))
    }

    fn of(host: &str, board: Arc<Board>, files: Tree) -> LocalHost {
        LocalHost {
            machine: Machine::new(host),
            files,
            board,
            pulse: Pulse::default(),
            parts: BTreeMap::new(),
            parts_due_us: 0,
            log: None,
            log_absent: None,
            is_log_caught_up: false,
            schedules: Schedules::default(),
            programs: Programs::default(),
        }
    }

    /// The kernel time for the collector of stacks.
    pub(crate) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    fn servers(&mut self, now_us: u64) -> Vec<Server> {
        let is_live = self.files.is_live();
        let mut nodes = self.board.nodes();
        nodes.retain(|_, state| state.is_local || !is_live);
        let is_new = |(node, state): (&String, &NodeState)| {
            state.data_directory.is_some() && !self.parts.contains_key(node)
        };
        if now_us >= self.parts_due_us || nodes.iter().any(is_new) {
            self.parts_due_us = now_us + PARTS_EVERY_US;
            let of = |(node, state): (&String, &NodeState)| (node.clone(), parts(node, state, is_live));
            // A node whose data directory is not known yet is read again as soon as it is.
            self.parts = nodes.iter().map(of).filter(|(_, parts)| !parts.is_empty()).collect();
        }
        let mut found = vec![];
        for (node, state) in nodes {
            let parts = self.parts.get(&node).cloned().unwrap_or_default();
            let mut one = server(node, &state, parts);
            let is_silent = now_us.saturating_sub(state.t_us) > SILENT_US || state.t_us == 0;
            if let Some(main) = state.main.filter(|_| is_silent && is_live) {
                let (first, active) = server::by_titles(&mut self.files, &one.node, main);
                (one.pid, one.active) = (first, active);
            }
            found.push(one);
        }
        found
    }

    /// Kernel files opened so far.
    pub fn opened(&self) -> u64 {
        self.files.opened()
    }

    /// The server's processes on this machine that serve sessions.
    fn serving(&self) -> Vec<Processes> {
        let local = self.board.nodes().into_iter().filter(|(_, state)| state.is_local);
        let groups = local.flat_map(|(node, state)| {
            [
                (schedule::SESSIONS, state.ours, state.ours_count, None),
                (schedule::BACKENDS, state.backends, state.backends_count, state.main),
            ]
            .map(|(who, pids, count, main)| Processes {
                node: node.clone(),
                who,
                pids,
                count,
                main,
            })
        });
        // Without any at this look, some may have come and gone.
        groups.filter(|processes| !processes.pids.is_empty() || processes.main.is_some()).collect()
    }

    fn follow_log(&mut self, tick: &Tick, batch: &mut Batch) {
        let Some(log) = &mut self.log else {
            if let Some(absent) = self.log_absent {
                let why =
                    format!("/dev/kmsg: {absent} (needs root, or CAP_SYSLOG if kernel.dmesg_restrict is 1)");
                self.machine.slow().1.lacks("kernel log", why, kernel_log::LOST);
            }
            if !self.files.is_live() {
                self.machine.slow().1.lacks("kernel log", "a recorded copy has none", kernel_log::LOST);
            }
            return;
        };
        let (messages, is_torn) = log.new_messages();
        let place = self.machine.place().clone();
        if is_torn && self.is_log_caught_up {
            batch.event(place.event(
                tick.now_us,
                event::NOTE,
                "kernel messages were overwritten before they could be read",
            ));
        }
        let begin_us = tick.clock.monotonic_us;
        let (old, new): (Vec<Message>, Vec<Message>) =
            messages.into_iter().partition(|message| message.boot_us < begin_us);
        if !std::mem::replace(&mut self.is_log_caught_up, true) {
            record_old(&old, begin_us, tick.now_us, &place, &mut self.machine, batch);
        }
        record_new(new, tick, &place, batch);
    }
}

/// The locations of a node's files, as its server reports them: links of another host cannot be followed from here, and the log is where it
/// always is unless an administrator moved it.
pub(crate) fn plain_parts(node: &str, state: &NodeState) -> Vec<Part> {
    parts(node, state, false)
}

/// The locations of a node's files, with the links of this host resolved.
fn parts(node: &str, state: &NodeState, is_live: bool) -> Vec<Part> {
    let real = |path: &Path| if is_live { path.canonicalize().ok() } else { Some(path.to_path_buf()) };
    let part = |what: &str, path: &Path| Part {
        node: node.to_string(),
        what: what.to_string(),
        path: path.to_string_lossy().into_owned(),
    };
    let mut found = vec![];
    if let Some(folder) = &state.data_directory {
        // Without access to it, the path stays as the server reports it, with links.
        found.push(part("pgdata", &real(folder).unwrap_or_else(|| folder.clone())));
        found.extend(real(&folder.join("pg_wal")).map(|path| part("wal", &path)));
    }
    for (name, folder) in &state.tablespaces {
        found.push(part(&format!("tablespace {name}"), &real(folder).unwrap_or_else(|| folder.clone())));
    }
    found
}

pub(crate) fn server(node: String, state: &NodeState, parts: Vec<Part>) -> Server {
    let target = |process: &crate::board::Process| Target {
        pid: process.pid,
        node: node.clone(),
        backend: process.backend.clone(),
    };
    let pid = state.backends.first().copied().or(state.active.first().map(|process| process.pid));
    Server { active: state.active.iter().map(target).collect(), parts, node, pid }
}

/// Messages before the run: the count of each class, and the last one. They are facts, not events.
pub(crate) fn record_old(
    old: &[Message],
    begin_us: u64,
    now_us: u64,
    place: &Place,
    machine: &mut Machine,
    batch: &mut Batch,
) {
    const US_PER_S: u64 = 1_000_000;
    let mut classes: BTreeMap<&str, (u64, &Message)> = BTreeMap::new();
    for message in old {
        let entry = classes.entry(message.class).or_insert((0, message));
        *entry = (entry.0 + 1, message);
    }
    for (class, (count, last)) in classes {
        let ago_s = begin_us.saturating_sub(last.boot_us) / US_PER_S;
        let value = format!("{count} lines since boot, the last {ago_s} s before the run: {}", last.text);
        machine.slow().1.fact(batch, now_us, place, "kernel log", class, &value);
    }
}

/// New messages, as events.
pub(crate) fn record_new(new: Vec<Message>, tick: &Tick, place: &Place, batch: &mut Batch) {
    let left_out = new.len().saturating_sub(MESSAGES_PER_TICK);
    for message in new.into_iter().take(MESSAGES_PER_TICK) {
        // The kernel's clock and ours may differ slightly: no message may be in the future.
        let t_us = tick.clock.t_us(message.boot_us.saturating_mul(1000)).min(tick.now_us);
        let mut detail = place.event(t_us, event::KERNEL, message.text.as_str()).with("topic", message.class);
        if let Some(count) = kernel_log::edac_count(&message.text) {
            detail = detail.with("count", count);
        }
        batch.event(detail);
    }
    if left_out > 0 {
        let text = format!("{left_out} more kernel messages of this second were dropped");
        batch.event(place.event(tick.now_us, event::NOTE, text));
    }
}

impl Collect for LocalHost {
    fn place(&self) -> Place {
        self.machine.place().clone()
    }

    fn part(&self) -> &'static str {
        "machine"
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        self.follow_log(tick, batch);
        let servers = self.servers(tick.now_us);
        // The time of the sample, not of the schedule: rates use the real interval.
        let now_us = tick.clock.now_us().max(tick.now_us);
        self.machine.tick(&mut self.files, now_us, &servers, batch);
        if self.files.is_live() {
            let ours = self.serving();
            self.schedules.tick(self.machine.host(), tick.clock.now_us(), &ours, batch);
            self.programs.tick(&mut self.files, self.machine.host(), tick.clock.now_us(), &servers, batch);
        }
        self.pulse.set(self.machine.cpu());
    }
}

#[cfg(test)]
mod tests;
