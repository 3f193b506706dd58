//! The collector of a database node: one connection, one statement per tick, more only when needed.
//!
//! | state | left by |
//! |---|---|
//! | down: no connection; tried again after [`RETRY_FIRST`], then twice as long, up to [`RETRY_MAX`]; at once if only the session ended | an answer, to up |
//! | up: the query of the tick, then the parts that are due | a lost connection, to down |
//!
//! A part (tables, statements, ...) that the server refuses is a `missing` line, and is queried again when it is due; one that is refused
//! for good (no privilege, no such column) is queried ten times more rarely.

mod blocks;
pub mod clock;
mod connected;
mod core;
mod counters;
mod facts;
mod functions;
mod held;
pub mod json;
mod memory;
pub mod own;
mod parts;
mod plans;
pub use plans::Planning;
mod powers;
mod probe;
mod progress;
mod relations;
mod sampled;
pub mod session;
mod slru;
mod standbys;
mod statements;
mod texts;

use crate::board::{Board, NodeState};
use crate::collect::{Batch, Collect, Place, Recorded, Spent, Tick, With};
use crate::guarded;
use crate::log;
use crate::meter::Meter;
use connect::ConnSpec;
use connect::conninfo::Host;
use counters::Counters;
use parts::{PARTS, Part, Turn};
use probe::Probe;
use record::event;
use session::{CONNECT_TIMEOUT, Failed, Session};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The first attempt to connect again comes after this.
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Attempts are never further apart.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(3);
/// So many times the pause after the last attempt a connection may take.
const CONNECT_WAITS: u32 = 3;
/// How much more rarely a part is queried that the server refused for good.
const REFUSED_FACTOR: u64 = 10;
/// Bytes of the lock file of a socket. Its folder may be one in which every user of the host makes files.
const LOCK_BYTES_MAX: u64 = 4096;

/// Samples one node.
#[derive(Debug)]
pub struct Node {
    name: String,
    spec: ConnSpec,
    board: Arc<Board>,
    recorded: Recorded,
    link: Link,
    memory: core::Memory,
    slow: core::Slow,
    turns: Vec<Turn>,
    last_us: Option<u64>,
    /// When a query of every tick that the server refused for good is tried again: each try is a line in its log.
    core_due_us: u64,
    started_us: i64,
    loaded_us: i64,
    offset_us: i64,
    known: facts::Known,
    /// Whether the server's processes run here.
    is_local: bool,
    /// The server's main process, by the lock of its socket.
    main: Option<u32>,
    texts: HashSet<String>,
    /// When those that the extension keeps are read.
    texts_turn: texts::Turn,
    /// Entries of the statistics of statements that are our own.
    ours: statements::Ours,
    /// Server processes of our own connections.
    own: BTreeSet<u32>,
    plans: plans::Plans,
    log: Option<log::Follower>,
    /// For a node that has never answered: the node that named it, and the command in case it has another address from here.
    found_as: Option<(String, String)>,
}

/// The connection.
#[derive(Debug)]
enum Link {
    Away { try_at_us: u64, wait: Duration },
    Up(Box<Up>),
}

/// What belongs to a connection.
#[derive(Debug)]
struct Up {
    session: Session,
    probe: Probe,
    core: String,
    blocks: String,
    /// The CPU time of the server process of our session, if it runs here.
    backend: Option<Meter>,
}

impl Node {
    /// A collector of the node at `spec`. It connects at its first tick.
    pub fn new(name: &str, spec: &ConnSpec, board: Arc<Board>) -> Node {
        let turn = |part| Turn { part, due_us: 0, last_us: None, counters: Counters::default() };
        Node {
            name: name.to_string(),
            spec: spec.clone(),
            board,
            recorded: Recorded::default(),
            link: Link::Away { try_at_us: 0, wait: RETRY_FIRST },
            memory: core::Memory::default(),
            slow: core::Slow::default(),
            turns: PARTS.map(turn).into(),
            last_us: None,
            core_due_us: 0,
            started_us: 0,
            loaded_us: 0,
            offset_us: 0,
            known: facts::Known::default(),
            is_local: false,
            main: None,
            texts: HashSet::new(),
            texts_turn: texts::Turn::default(),
            ours: statements::Ours::default(),
            own: BTreeSet::new(),
            plans: plans::Plans::default(),
            log: None,
            found_as: None,
        }
    }

    /// Reports a discovered node that does not answer: which node named it, and the command for it.
    #[must_use]
    pub(crate) fn found_as(mut self, reported_by: &str, hint: &str) -> Node {
        self.found_as = Some((reported_by.to_string(), hint.to_string()));
        self
    }

    /// Plans statements so.
    #[must_use]
    pub fn planning(mut self, planning: Planning) -> Node {
        self.plans.planning = planning;
        self
    }

    /// What cannot be seen now: the data, the reason, and what it makes unknown.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.recorded.missing_now()
    }

    /// Statements sent over the present connection, without PREPARE.
    pub fn queries(&self) -> u64 {
        match &self.link {
            Link::Up(up) => up.session.queries(),
            Link::Away { .. } => 0,
        }
    }

    fn event(&self, t_us: u64, kind: &str, message: impl Into<String>) -> event::Event {
        Place::Node(self.name.clone()).event(t_us, kind, message)
    }

    /// Opens the connection if it is time. True if it is open.
    fn connect(&mut self, tick: &Tick, batch: &mut Batch) -> bool {
        let Link::Away { try_at_us, wait } = self.link else { return true };
        if tick.now_us < try_at_us {
            return false;
        }
        self.find_main();
        // A server that was too slow for the first attempt gets more time at each one that follows.
        let mut spec = self.spec.clone();
        spec.connect_timeout.get_or_insert(CONNECT_TIMEOUT.max(wait * CONNECT_WAITS));
        match Up::open(&spec) {
            Ok(up) => {
                self.link = Link::Up(Box::new(up));
                self.found_as = None;
                let place = self.place();
                self.recorded.found(batch, tick.now_us, &place, "server");
                self.core_due_us = 0;
                for turn in &mut self.turns {
                    turn.due_us = 0;
                }
                true
            }
            Err(failed) => {
                self.away(tick, &failed, wait, batch);
                false
            }
        }
    }

    /// A server that is too slow to answer is seen by its processes all the same, if they are here.
    fn find_main(&mut self) {
        self.main = main_process(&self.spec);
        let main = self.main;
        if main.is_some() {
            self.board.change(&self.name, |state| {
                (state.main, state.is_local) = (main, true);
            });
        }
    }

    fn away(&mut self, tick: &Tick, failed: &Failed, wait: Duration, batch: &mut Batch) {
        let was_up = matches!(self.link, Link::Up(_));
        let now_us = tick.clock.now_us();
        // Only our session was ended: the server is there, and the next tick finds it.
        let is_there = matches!(failed, Failed::Ended(_));
        self.link = match is_there {
            true => Link::Away { try_at_us: now_us, wait: RETRY_FIRST },
            false => {
                Link::Away { try_at_us: now_us + wait.as_micros() as u64, wait: (wait * 2).min(RETRY_MAX) }
            }
        };
        if was_up && !is_there {
            let event = self.event(now_us, event::RESTART, format!("{} went away: {failed}", self.name));
            batch.event(event.with("what", event::AWAY));
        }
        let lost = "everything from the server's views";
        let why = match &self.found_as {
            Some((reported_by, hint)) => format!("{reported_by}; {hint}"),
            None => failed.to_string(),
        };
        self.recorded.missing(batch, now_us, self.place().missing("server", why, lost));
        self.board.change(&self.name, |state| {
            *state = NodeState {
                t_us: now_us,
                is_up: false,
                address: address(&self.spec),
                ..std::mem::take(state)
            };
            state.active.clear();
        });
    }

    /// The question of the tick.
    fn query_core(&mut self, tick: &Tick, batch: &mut Batch) -> Result<core::Moment, Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(core::Moment::default()) };
        let begin_us = tick.clock.now_us();
        let answer = up.session.query(&up.core, &[])?;
        let t_us = tick.clock.now_us();
        let rtt_us = up.session.round_trip_us()?;
        let answered = core::Answered {
            node: &self.name,
            t_us,
            interval_us: self.last_us.map_or(0, |last| t_us - last),
            queried_us: t_us - begin_us,
            rtt_us: Some(rtt_us),
        };
        // A restart since the last tick is detected before counters are compared.
        let started_us = answer["started"].as_i64().unwrap_or(0);
        if self.started_us != 0 && started_us != self.started_us {
            self.memory.clear();
            for turn in &mut self.turns {
                turn.counters.clear();
            }
            let at_us = tick.of_wall(started_us, self.offset_us);
            let place = Place::Node(self.name.clone());
            let event = place.event(at_us, event::RESTART, format!("{} was started", self.name));
            batch.event(event.with("what", event::STARTED));
        }
        self.started_us = started_us;
        let mut state = NodeState {
            t_us,
            is_up: true,
            is_local: self.is_local || self.main.is_some(),
            main: self.main,
            is_pooled: up.session.is_shared(),
            address: address(&self.spec),
            data_directory: self.known.data_directory.clone(),
            tablespaces: self.known.tablespaces.clone(),
            ..NodeState::default()
        };
        let moment = core::answer(&answered, &answer, &self.slow, &mut self.memory, batch, &mut state);
        self.board.set(&self.name, state);
        self.last_us = Some(t_us);
        Ok(moment)
    }

    /// Handles the answer of the tick: resets, a reload, checkpoints of a server without a readable log, blockers.
    fn follow_up(&mut self, tick: &Tick, moment: &core::Moment, batch: &mut Batch) -> Result<(), Failed> {
        let now_us = tick.clock.now_us();
        for what in &moment.resets {
            let event =
                self.event(now_us, event::RESET, format!("{}: counters of {what} decreased", self.name));
            batch.event(event.with("what", *what));
        }
        if self.loaded_us != 0 && moment.loaded_us != self.loaded_us {
            self.turn(Part::Facts).due_us = 0;
        }
        self.loaded_us = moment.loaded_us;
        if let Some(counted) = &moment.checkpoints
            && self.log.as_ref().is_none_or(|log| !log.is_telling())
        {
            batch.event(checkpoint_of_counters(&self.name, now_us, counted));
        }
        if moment.masked > 0 {
            let why = format!("our role cannot see what {} sessions do; grant pg_monitor", moment.masked);
            let lost = "their waits, transactions and blockers: they are unattributed, not idle";
            // The number changes all the time; the missing data does not.
            if !self.recorded.missing_now().any(|(what, _, _)| what == "hidden sessions") {
                self.recorded.missing(batch, now_us, self.place().missing("hidden sessions", why, lost));
            }
        }
        if moment.reports {
            self.turn(Part::Progress).due_us = 0;
        }
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let mut lockers = moment.lockers.clone();
        if moment.masked > 0 {
            let seen = up.session.query(&blocks::waiting(), &[]);
            match seen {
                Ok(answer) => {
                    let pids = json::list(&answer, "lockers").iter();
                    lockers = pids.filter_map(|pid| i32::try_from(pid.as_i64()?).ok()).collect();
                }
                Err(failed) => {
                    return self.refused("blockers", "which sessions block others", failed, now_us, batch);
                }
            }
        }
        if lockers.is_empty() {
            return Ok(());
        }
        match up.session.query(&up.blocks, &[&lockers]) {
            Ok(answer) => {
                blocks::answer(&self.name, tick.clock.now_us(), &answer, &up.probe.own, batch);
                let place = self.place();
                self.recorded.found(batch, now_us, &place, "blockers");
                Ok(())
            }
            Err(failed) => self.refused("blockers", "which sessions block others", failed, now_us, batch),
        }
    }

    /// Reports that a part was refused; passes on that the connection is gone.
    fn refused(
        &mut self,
        what: &str,
        lost: &str,
        failed: Failed,
        t_us: u64,
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        match failed {
            Failed::Refused { message, .. } => {
                self.recorded.missing(batch, t_us, self.place().missing(what, message, lost));
                Ok(())
            }
            gone => Err(gone),
        }
    }
}

impl Up {
    fn open(spec: &ConnSpec) -> Result<Up, Failed> {
        let mut session = Session::open(spec)?;
        let probe = Probe::of(&mut session)?;
        let (core, blocks) = (core::question(&probe, &spec.application_name), blocks::question(&probe));
        Ok(Up { session, probe, core, blocks, backend: None })
    }
}

impl Collect for Node {
    fn place(&self) -> Place {
        Place::Node(self.name.clone())
    }

    fn part(&self) -> &'static str {
        "views"
    }

    fn spent(&mut self) -> Spent {
        let Link::Up(up) = &mut self.link else { return Spent::default() };
        let server_cpu_us = up.backend.as_mut().and_then(Meter::spent);
        let (questions, queried_us) = up.session.spent();
        Spent {
            server_cpu_us,
            questions: Some(questions),
            queried_us: Some(queried_us),
            programs_cpu_us: None,
        }
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        if self.connect(tick, batch) {
            let answer =
                if tick.now_us < self.core_due_us { None } else { Some(self.query_core(tick, batch)) };
            let answered = match answer {
                None => Ok(()),
                Some(Ok(moment)) => {
                    let place = self.place();
                    self.recorded.found(batch, tick.now_us, &place, "core");
                    self.follow_up(tick, &moment, batch)
                }
                Some(Err(failed)) => {
                    if !failed.is_passing() {
                        self.core_due_us = tick.now_us + tick.cadence_us * REFUSED_FACTOR;
                    }
                    let lost = "sessions, waits, counters, WAL and standbys of these samples";
                    self.refused("core", lost, failed, tick.now_us, batch)
                }
            };
            let answered = answered.and_then(|()| self.query_parts(tick, batch));
            if let Err(failed) = answered.and_then(|()| self.query_plans(tick, false, batch)) {
                self.away(tick, &failed, RETRY_FIRST, batch);
            }
        }
        if let Some(log) = &mut self.log {
            log.know(&self.own);
            // It is another one after each start of the server.
            let main = self.known.data_directory.as_deref().and_then(|data| log::main_process(data).ok());
            log.know_main(main);
            log.read(tick, self.offset_us, &mut self.recorded, batch);
        }
    }

    /// Rare queries run once more: a short run made its tables and statements after the first sample.
    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        for part in [Part::Io, Part::Slru, Part::Statements, Part::Functions, Part::WaitProfile, Part::Tables]
        {
            self.turn(part).due_us = 0;
        }
        let answered = self.query_parts(tick, batch);
        if let Err(failed) = answered.and_then(|()| self.query_plans(tick, true, batch)) {
            self.away(tick, &failed, RETRY_FIRST, batch);
        }
        if let Some(log) = &mut self.log {
            log.finish(tick, batch);
        }
    }
}

/// A checkpoint that only the counters show: it ended within the last interval.
fn checkpoint_of_counters(node: &str, t_us: u64, counted: &record::watched::Server) -> event::Event {
    let requested = counted.checkpoints_requested.unwrap_or(0) > 0;
    let reason = if requested { "requested" } else { "time" };
    Place::Node(node.to_string())
        .event(t_us, event::CHECKPOINT, format!("{node}: checkpoint ({reason}), from the counters"))
        .with("reason", reason)
        .with("buffers", counted.checkpoint_buffers.unwrap_or(0))
        .with("write_ms", counted.checkpoint_write_ms.unwrap_or(0.0))
        .with("sync_ms", counted.checkpoint_sync_ms.unwrap_or(0.0))
        .with("from", "counters")
}

/// The host that a connection leads to, for people.
fn address(spec: &ConnSpec) -> String {
    spec.hosts.first().map_or_else(String::new, |host| match &host.host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    })
}

/// The main process of a server that is reached by its Unix socket, by the lock file beside that: its first line (`CreateLockFile` in miscinit.c). `None` if it
/// is a pooler's socket, or may not be read.
fn main_process(spec: &ConnSpec) -> Option<u32> {
    let host = spec.hosts.first()?;
    let Host::Unix(folder) = &host.host else { return None };
    let lock = folder.join(format!(".s.PGSQL.{}.lock", host.port));
    let text = guarded::text(&lock, LOCK_BYTES_MAX).ok()?;
    let pid: u32 = text.lines().next()?.trim().parse().ok()?;
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    comm.starts_with("postgres").then_some(pid)
}

/// Whether the address is one of this host: what answers there may still be a tunnel.
pub(crate) fn is_near(spec: &ConnSpec) -> bool {
    spec.hosts.first().is_some_and(|host| match &host.host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    })
}

/// Whether the server runs on this host: its address is local, and the process of our session is a postgres here.
pub fn is_local(spec: &ConnSpec, backend_pid: Option<u32>) -> bool {
    let Some(pid) = backend_pid else { return false };
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    is_near(spec) && comm.starts_with("postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_only_our_session_was_ended_the_next_tick_opens_another_one() {
        let spec = ConnSpec::new("127.0.0.1", 1, "watcher", "postgres");
        let clock = record::Clock::start();
        let tick = Tick { now_us: clock.now_us(), clock, cadence_us: 1_000_000 };
        let try_at = |failed: Failed| {
            let mut node = Node::new("n1", &spec, Arc::new(Board::new()));
            node.away(&tick, &failed, RETRY_MAX, &mut Batch::default());
            let Link::Away { try_at_us, wait } = node.link else { panic!("it is away") };
            (try_at_us <= clock.now_us(), wait)
        };
        let message = "terminating connection due to conflict with recovery".to_string();
        assert_eq!(try_at(Failed::Ended(message.clone())), (true, RETRY_FIRST));
        assert_eq!(try_at(Failed::Gone(message)), (false, RETRY_MAX));
    }
}
