//! One session of the load: draws transactions, runs them statement by statement, and records its operations and their results.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use super::super::{Draws, Isolation, Lasting, LiveError, Watch};
use super::{Entry, Part, REFUSALS_MAX, Recorded, Shared, WRITES_OF_KEY_MAX, hand_over};
use crate::client::{Broken, Client, Reply, number, text};
use crate::history::{Kind, Model, Op, Txn};
use crate::outcome::{At, Ended, Outcome, of_broken, of_reply};

/// Percent of transactions that read several rows in one statement and write nothing.
const WIDE_PERCENT: u64 = 15;
/// Percent of writes that insert a new row.
const FRESH_PERCENT: u64 = 15;
/// Percent of writes among the operations of other transactions.
const WRITE_PERCENT: u64 = 55;
/// Percent of operations on hot keys.
const HOT_PERCENT: u64 = 60;
/// Rows of one statement at most.
const WIDE_MAX: u64 = 4;
/// Operations of a transaction at most.
const OPS_MAX: u64 = 4;
/// The time limit for a statement where deadlocks are not detected.
const GIVE_UP_MS: u32 = 1_000;
/// Where a session's number stands in its tokens: unique over the whole load.
const SESSION_SHIFT: u32 = 40;

/// Why a transaction stops.
pub(super) enum Stop {
    /// The server refused a statement.
    Refused(Box<Reply>),
    /// The connection broke.
    Broken(Broken),
    /// An answer that makes no sense.
    Senseless(String),
}

impl Stop {
    /// As an error of the whole.
    pub(super) fn unfit(self) -> LiveError {
        match self {
            Stop::Refused(reply) => {
                let words = reply.error.map(|error| error.to_string()).unwrap_or_default();
                LiveError::Unfit(format!("the server refused a statement that must work: {words}"))
            }
            Stop::Broken(broken) => broken.into(),
            Stop::Senseless(words) => LiveError::Unfit(words),
        }
    }
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

/// A running transaction.
#[derive(Default)]
pub(super) struct Running {
    pub(super) ops: Vec<Op>,
    pub(super) elements: Vec<u64>,
    statement: u16,
    /// Shards that it wrote on, as bits; beyond 64 they share bits.
    wrote: u64,
    fresh: [u64; 2],
}

/// A session with what it needs.
pub(super) struct Session<'a, 'b> {
    shared: &'a Shared<'b>,
    entry: &'a Entry,
    draws: Draws,
    token: u64,
    /// Under which the history knows it.
    number: u32,
}

/// Runs transactions until the end.
pub(super) fn run(
    shared: &Shared<'_>,
    entry: &Entry,
    number: usize,
    (mut lasting, draws): (Lasting, Draws),
    sink: &SyncSender<Recorded>,
    watch: &Watch<'_>,
) -> Part {
    let mut part = Part::default();
    let token = (number as u64 + 1) << SESSION_SHIFT;
    let first = shared.next_session.fetch_add(1, Ordering::Relaxed);
    let mut session = Session { shared, entry, draws, token, number: first };
    let mut is_dressed = false;
    while watch.goes_on() && part.trouble.is_none() {
        let Some(client) = lasting.get() else {
            is_dressed = false;
            continue;
        };
        if !is_dressed {
            // Small tables are read whole otherwise, and SERIALIZABLE then refuses every transaction. Engines without the setting go without it.
            is_dressed = client.request("set enable_seqscan = off").is_ok();
            if shared.site.engine.misses_deadlocks() {
                // Nothing else ends a deadlock over two of its nodes.
                is_dressed &= client.request(&format!("set statement_timeout = {GIVE_UP_MS}")).is_ok();
            }
        }
        let (recorded, is_lost) = session.transaction(client, &mut part, watch);
        hand_over(shared, sink, recorded);
        if is_lost {
            lasting.lose();
            is_dressed = false;
        }
    }
    part
}

impl<'a, 'b> Session<'a, 'b> {
    /// A session with given statements. Its tokens are smaller than those of the load's sessions.
    pub(super) fn of(shared: &'a Shared<'b>, entry: &'a Entry, token: u32) -> Session<'a, 'b> {
        let token = u64::from(token);
        Session { shared, entry, draws: Draws::new(0, 0), token, number: 0 }
    }
}

impl Session<'_, '_> {
    /// The level that can be requested here.
    fn level(&self) -> Isolation {
        match self.shared.level {
            Isolation::Serializable if self.entry.is_standby => Isolation::RepeatableRead,
            level => level,
        }
    }

    /// One transaction; true: the connection is gone.
    fn transaction(&mut self, client: &mut Client, part: &mut Part, watch: &Watch<'_>) -> (Recorded, bool) {
        let shared = self.shared;
        let engine = shared.site.engine;
        let mut txn =
            Txn { isolation: None, begin_ns: shared.now(), node: self.entry.node, ..Txn::ok(self.number) };
        let mut running = Running::default();
        let stopped = self.statements(client, &mut txn, &mut running, part).err();
        txn.commit_sent_ns = shared.now();
        let at = At::Commit { wide: shared.is_wide(self.entry, running.wrote) };
        let (ended, is_lost) = match stopped {
            None => match client.request("commit") {
                Ok(reply) => {
                    watch.count(&reply);
                    (of_reply(engine, at, &reply), watch.has_to_leave(&reply))
                }
                Err(broken) => (of_broken(engine, at, &broken), true),
            },
            Some(Stop::Refused(reply)) => {
                watch.count(&reply);
                let is_lost = watch.has_to_leave(&reply) || client.request("rollback").is_err();
                (of_reply(engine, At::BeforeCommit, &reply), is_lost)
            }
            Some(Stop::Broken(broken)) => (of_broken(engine, At::BeforeCommit, &broken), true),
            Some(Stop::Senseless(words)) => {
                part.trouble = Some(words);
                let is_lost = client.request("rollback").is_err();
                (Ended { outcome: Outcome::Fail, why: String::new(), sqlstate: None }, is_lost)
            }
        };
        txn.end_ns = shared.now();
        self.finish(&mut txn, &ended, part);
        if ended.outcome.is_acknowledged() {
            part.fresh = [part.fresh[0] + running.fresh[0], part.fresh[1] + running.fresh[1]];
        }
        (Recorded { txn, ops: running.ops, elements: running.elements }, is_lost)
    }

    fn finish(&mut self, txn: &mut Txn, ended: &Ended, part: &mut Part) {
        txn.outcome = ended.outcome;
        let code = ended.sqlstate.map_or([0; 5], |code| code.0);
        match ended.outcome {
            Outcome::OkWeak => txn.notice = code,
            _ => txn.sqlstate = code,
        }
        if matches!(ended.outcome, Outcome::Info | Outcome::Partial) {
            // The transaction may still be running, so later ones are not known to come after it.
            self.number = self.shared.next_session.fetch_add(1, Ordering::Relaxed);
        }
        part.outcomes = part.outcomes.and(super::Outcomes::one(ended.outcome));
        if !ended.why.is_empty() && part.refusals.len() < REFUSALS_MAX && !part.refusals.contains(&ended.why)
        {
            part.refusals.push(ended.why.clone());
        }
    }

    fn statements(
        &mut self,
        client: &mut Client,
        txn: &mut Txn,
        running: &mut Running,
        part: &mut Part,
    ) -> Result<(), Stop> {
        let level = self.level();
        let reply = requested(client, &format!("{}; show transaction_isolation", level.begin()))?;
        let got = reply.value().unwrap_or_default();
        // A pooler or a setting may change the requested level.
        if !got.eq_ignore_ascii_case(level.name()) {
            part.trouble = Some(format!("{level} was requested, and the transaction has {got:?}"));
        }
        txn.isolation = Some(level);
        if self.entry.is_standby || self.draws.below(100) < WIDE_PERCENT {
            for _ in 0..=self.draws.below(2) {
                let count = 2 + self.draws.below(WIDE_MAX - 1);
                let keys: Vec<u32> = (0..count).map(|_| self.draw()).collect();
                self.read(client, running, &keys)?;
            }
            return Ok(());
        }
        for _ in 0..=self.draws.below(OPS_MAX) {
            // One write per transaction between peers: with several, replicated changes would run into deadlocks, and such an error stops replication
            // permanently.
            let may_write = running.wrote == 0 || !self.shared.site.engine.layout.has_unresolved_conflicts();
            match self.draws.below(100) < WRITE_PERCENT && may_write {
                true => self.write(client, running)?,
                false => {
                    let key = self.draw();
                    self.read(client, running, &[key])?;
                }
            }
        }
        Ok(())
    }

    /// A key in use; the first ones are drawn more often than the others.
    fn draw(&mut self) -> u32 {
        let shared = self.shared;
        let half = shared.pool.len() / 2;
        let place = match self.draws.below(100) < HOT_PERCENT {
            true => self.draws.below(half as u64).min(self.draws.below(half as u64)) as usize,
            false => half + self.draws.below(half as u64) as usize,
        };
        shared.pool[place].load(Ordering::Relaxed)
    }

    /// Reads keys in one statement.
    pub(super) fn read(
        &mut self,
        client: &mut Client,
        running: &mut Running,
        keys: &[u32],
    ) -> Result<(), Stop> {
        let shared = self.shared;
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let places: Vec<String> =
            keys.iter().map(|key| format!("(shard = {} and k = {key})", shared.shard(*key))).collect();
        let columns = if shared.model == Model::Append { "k, val" } else { "k, ver, tok" };
        let start_ns = shared.now();
        let sql = format!("select {columns} from {} where {}", shared.table, places.join(" or "));
        let reply = requested(client, &sql)?;
        for key in keys {
            let row = reply.rows().iter().find(|row| row.first().and_then(number) == Some(i64::from(key)));
            let op = match shared.model {
                Model::Append => {
                    let list = match row {
                        Some(row) => row.get(1).and_then(text).unwrap_or_default(),
                        None => String::new(),
                    };
                    let place = running.elements.len();
                    for element in list.split(',').filter(|element| !element.is_empty()) {
                        let element = element.parse().map_err(|_| senseless(&sql, &list))?;
                        running.elements.push(element);
                    }
                    let count = (running.elements.len() - place) as u32;
                    Op::new(Kind::Read, key, count, place as u64)
                }
                _ => {
                    let column = |at: usize| match row {
                        Some(row) => row.get(at).and_then(number).ok_or_else(|| senseless(&sql, "no number")),
                        None => Ok(0),
                    };
                    let ver = u32::try_from(column(1)?).map_err(|_| senseless(&sql, "a version below 0"))?;
                    Op::new(Kind::Read, key, ver, column(2)? as u64)
                }
            };
            running.push(op, self.entry.node, start_ns);
        }
        running.statement += 1;
        Ok(())
    }

    /// Writes a key: one in use, or a new one. If there is no row, it inserts one.
    fn write(&mut self, client: &mut Client, running: &mut Running) -> Result<(), Stop> {
        let shared = self.shared;
        let half = shared.pool.len() / 2;
        if self.draws.below(100) < FRESH_PERCENT {
            let place = half + self.draws.below(half as u64) as usize;
            let key = shared.next_key.fetch_add(1, Ordering::Relaxed);
            // Others use the key before it is committed, and some of them try to insert it, too.
            shared.pool[place].store(key, Ordering::Relaxed);
            return self.insert(client, running, key);
        }
        let key = self.draw();
        if let Some(place) = shared.pool[..half].iter().position(|slot| slot.load(Ordering::Relaxed) == key)
            && shared.writes[place].fetch_add(1, Ordering::Relaxed) >= WRITES_OF_KEY_MAX
        {
            let next = shared.next_key.fetch_add(1, Ordering::Relaxed);
            shared.writes[place].store(0, Ordering::Relaxed);
            shared.pool[place].store(next, Ordering::Relaxed);
            return self.insert(client, running, next);
        }
        self.token += 1;
        let token = self.token;
        let start_ns = shared.now();
        let place = format!("where shard = {} and k = {key}", shared.shard(key));
        let (sql, kind) = match shared.model {
            Model::Append => {
                (format!("update {} set val = val || ',{token}' {place}", shared.table), Kind::Append)
            }
            _ => (
                format!("update {} set ver = ver + 1, tok = {token} {place} returning ver", shared.table),
                Kind::Update,
            ),
        };
        let reply = match requested(client, &sql) {
            Ok(reply) => reply,
            Err(stop) => {
                // Its write is identified by its token alone.
                running.push(Op::new(kind, key, 0, token), self.entry.node, start_ns);
                return Err(stop);
            }
        };
        let is_there = reply.tag().ends_with(" 1");
        let op = match (shared.model, is_there) {
            // An UPDATE that found no row counts as a read.
            (Model::Append, false) => Op::new(Kind::Read, key, 0, running.elements.len() as u64),
            (_, false) => Op::new(Kind::Read, key, 0, 0),
            (Model::Append, true) => Op::new(kind, key, 1, token),
            (_, true) => {
                let ver = reply.number().and_then(|ver| u32::try_from(ver).ok());
                Op::new(kind, key, ver.ok_or_else(|| senseless(&sql, "no version"))?, token)
            }
        };
        running.push(op, self.entry.node, start_ns);
        running.statement += 1;
        if !is_there {
            // Two inserts of one key on two peers would stop replication permanently; another case tests that.
            return match shared.site.engine.layout.has_unresolved_conflicts() {
                true => Ok(()),
                false => self.insert(client, running, key),
            };
        }
        running.wrote |= 1 << (shared.shard(key) % 64);
        running.fresh[1] += 1;
        Ok(())
    }

    pub(super) fn insert(
        &mut self,
        client: &mut Client,
        running: &mut Running,
        key: u32,
    ) -> Result<(), Stop> {
        let shared = self.shared;
        self.token += 1;
        let token = self.token;
        let start_ns = shared.now();
        let (value, kind) = match shared.model {
            Model::Append => (format!("',{token}'"), Kind::Append),
            _ => (format!("1, {token}"), Kind::Insert),
        };
        let sql = format!("insert into {} values ({}, {key}, {value})", shared.table, shared.shard(key));
        let done = requested(client, &sql);
        let ver = u32::from(done.is_ok());
        running.push(Op::new(kind, key, ver, token), self.entry.node, start_ns);
        running.statement += 1;
        done?;
        running.wrote |= 1 << (shared.shard(key) % 64);
        running.fresh = [running.fresh[0] + 1, running.fresh[1] + 1];
        Ok(())
    }
}

impl Running {
    /// Adds the reads of another transaction to the first statement of this one.
    pub(super) fn take(&mut self, other: Running) {
        // Lists are referenced by their index among the elements; registers have none.
        let place = self.elements.len() as u64;
        self.elements.extend(other.elements);
        self.ops.extend(other.ops.into_iter().map(|op| Op { statement: 0, tok: op.tok + place, ..op }));
    }

    fn push(&mut self, op: Op, node: u8, start_ns: u64) {
        self.ops.push(Op { statement: self.statement, node, start_ns, ..op });
    }
}

fn senseless(sql: &str, answer: &str) -> Stop {
    Stop::Senseless(format!("the server answered {answer:?} to {sql}"))
}

fn requested(client: &mut Client, sql: &str) -> Result<Reply, Stop> {
    let reply = client.request(sql)?;
    match reply.error {
        Some(_) => Err(Stop::Refused(Box::new(reply))),
        None => Ok(reply),
    }
}
