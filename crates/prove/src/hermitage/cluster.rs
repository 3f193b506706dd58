//! Scripted cases that need more than one node: they show what a cluster does not promise, each time.
//!
//! | case | nodes | shows |
//! |---|---|---|
//! | FR2 | shards | a transaction sees half of a transfer between two shards: each node's snapshot begins with its first use |
//! | FR | shards | the same by chance: sums over the shards while money moves between them |
//! | DD | shards, peers | a deadlock over two nodes that no server sees |
//! | ID | shards by postgres_fdw | a two-phase commit that stops half-way: half is visible, the other half is locked |
//! | LF | standby, peers | long fork: two nodes show two writes in opposite orders |
//! | SC | standby | the wait for a standby is cancelled: committed on the primary only, with a warning |
//! | ST | standby, peers | SERIALIZABLE is refused on a standby, and holds only on each node among peers |
//! | RYW | standby, peers | a write that was acknowledged on one node is missing on another |
//! | MC | peers | the same row, the same key, the same unique value from two nodes at once |
//!
//! The expected result is a value of the engine's profile ([`engines::profile::Expectation`]). Cases that change a setting, pause a standby's replay or stop
//! replication run only on nodes that allow faults ([`crate::fault::Node::spared`]); the journal has each change before it is made.

mod peers;
mod shards;
mod standby;

use connect::poll;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use engines::Engine;
use engines::profile::Case;
use record::promise::Control;

use super::{Answer, HermitageError};
use crate::fault::{Node, Site, Undo};
use crate::live::LiveError;
use crate::session::{Reply, Session};
use engines::profile::Isolation;

/// The interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(10);
/// The time limit for a condition: generous, because only a broken cluster reaches it.
const LIMIT: Duration = Duration::from_secs(60);
/// Where no view shows locks, a statement without an answer for so long counts as waiting.
const QUIET: Duration = Duration::from_millis(500);
/// Acknowledged writes that are read on another node at once.
const WRITES: u64 = 200;
/// The first of them have a control.
const CONTROLS: u64 = 20;

/// Times for the cases by chance.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// How long sums are read at each level; zero: not at all.
    pub sums: Duration,
    /// The longest time for reads of acknowledged writes on the other node.
    pub reads: Duration,
    /// The seed of the transfers.
    pub seed: u64,
}

/// An answer as the engine's profile expects it.
fn expected(case: Case, engine: Engine, title: &'static str, promise: &'static str) -> Answer {
    let expectation = engine.expectation(case);
    Answer {
        case: case.code(),
        title,
        promise,
        expected: expectation.and_then(|expectation| expectation.may_happen),
        why: expectation.map_or("no promise was found", |expectation| expectation.why),
        change: expectation.map_or("", |expectation| expectation.change),
        ..Answer::default()
    }
}

/// A session that keeps a script of its statements.
struct ScriptedSession {
    who: String,
    session: Session,
}

impl ScriptedSession {
    fn open(who: &str, node: &Node) -> Result<ScriptedSession, HermitageError> {
        Ok(ScriptedSession { who: format!("{who} on {}", node.name), session: Session::open(&node.spec)? })
    }

    /// Runs a statement; a refusal is an error of the script.
    fn request(&mut self, script: &mut Vec<String>, sql: &str) -> Result<Reply, HermitageError> {
        let reply = self.try_request(script, sql)?;
        match &reply.error {
            None => Ok(reply),
            Some(error) => Err(HermitageError::Refused {
                doing: "a statement of the script",
                message: format!("{sql}: {error}"),
            }),
        }
    }

    fn try_request(&mut self, script: &mut Vec<String>, sql: &str) -> Result<Reply, HermitageError> {
        script.push(format!("{}: {sql};", self.who));
        Ok(self.session.request(sql, LIMIT)?)
    }

    fn send(&mut self, script: &mut Vec<String>, sql: &str) -> Result<(), HermitageError> {
        script.push(format!("{}: {sql};", self.who));
        Ok(self.session.send(sql)?)
    }

    fn value(&mut self, script: &mut Vec<String>, sql: &str) -> Result<String, HermitageError> {
        Ok(self.request(script, sql)?.text(0).unwrap_or_default())
    }

    /// The same without a line in the script: for statements of the controller.
    fn quietly(&mut self, sql: &str) -> Result<String, HermitageError> {
        self.value(&mut Vec::new(), sql)
    }

    /// Waits until a query returns `t`.
    fn until(&mut self, what: &'static str, sql: &str) -> Result<(), HermitageError> {
        let mut is_so = || Ok((self.quietly(sql)? == "t").then_some(()));
        let so: Option<Result<(), HermitageError>> = poll::until(LIMIT, || is_so().transpose());
        so.unwrap_or_else(|| {
            let message = format!("it did not happen within {} s", LIMIT.as_secs());
            Err(HermitageError::Refused { doing: what, message })
        })
    }

    /// The reply to what was sent; `None`: it waits, as `is_waiting` states.
    fn settle(
        &mut self,
        mut is_waiting: impl FnMut(&Session) -> Result<bool, HermitageError>,
    ) -> Result<Option<Reply>, HermitageError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(reply) = self.session.reply_within(LOOK)? {
                return Ok(Some(reply));
            }
            if is_waiting(&self.session)? {
                return Ok(None);
            }
            if Instant::now() > deadline {
                let message = format!("it got no reply for {} s", LIMIT.as_secs());
                return Err(HermitageError::Refused { doing: "a statement of the script", message });
            }
        }
    }
}

/// A change that a case must undo, also when it fails or the process dies: the journal has it before it is made.
struct PendingUndo<'a> {
    site: &'a Site,
    node: usize,
    id: Option<u64>,
    sql: Vec<String>,
}

impl<'a> PendingUndo<'a> {
    fn note(site: &'a Site, node: usize, sql: Vec<String>) -> Result<PendingUndo<'a>, HermitageError> {
        let connection = site.nodes[node].spec.describe();
        let id = site.journal().note(Undo::Execute { connection, sql: sql.clone() })?;
        Ok(PendingUndo { site, node, id: Some(id), sql })
    }

    /// Undoes the change. If that fails, it stays in the journal, for `prove --heal`.
    fn carry_out(&mut self) -> Result<(), HermitageError> {
        let Some(id) = self.id.take() else { return Ok(()) };
        let mut session = ScriptedSession::open("referee", &self.site.nodes[self.node])?;
        for sql in &self.sql {
            session.quietly(sql)?;
        }
        self.site.journal().forget(id);
        Ok(())
    }

    /// There is nothing to give back.
    fn waive(&mut self) {
        if let Some(id) = self.id.take() {
            self.site.journal().forget(id);
        }
    }
}

impl Drop for PendingUndo<'_> {
    fn drop(&mut self) {
        // Nothing can report an error here; the journal has the step.
        let _ = self.carry_out();
    }
}

/// The two nodes that a case needs, by index.
fn of_role(site: &Site, role: Role) -> Vec<usize> {
    (0..site.nodes.len()).filter(|node| site.nodes[*node].role == role).collect()
}

/// Why a node may not be disturbed, if so.
fn objection(site: &Site, nodes: &[usize]) -> Option<String> {
    let spared = nodes.iter().find(|node| !site.nodes[**node].spared.is_empty())?;
    let node = &site.nodes[*spared];
    Some(format!("{} must not be disturbed: {}", node.name, node.spared))
}

/// Runs every case for this kind of cluster. An aborted case is an answer; `stop` ends it between two cases.
///
/// # Errors
/// When our tables cannot be made, or a schema of our name has another owner.
pub fn run(
    site: &Site,
    chance: &Chance,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Answer),
) -> Result<Vec<Answer>, HermitageError> {
    let mut stage = Stage { site, chance, stop, observer, answers: Vec::new() };
    if !of_role(site, Role::Standby).is_empty() {
        standby::play(&mut stage)?;
    }
    if of_role(site, Role::Peer).len() > 1 {
        peers::play(&mut stage)?;
    } else if site.engine.layout.is_spread() {
        shards::play(&mut stage)?;
    }
    Ok(stage.answers)
}

/// The cluster of the cases, and the observer.
struct Stage<'a> {
    site: &'a Site,
    chance: &'a Chance,
    stop: &'a AtomicBool,
    observer: &'a mut dyn FnMut(&Answer),
    answers: Vec<Answer>,
}

impl Stage<'_> {
    /// Runs one case: `answer` has the expected result, `play` adds the actual one. `disturbs`: the nodes that must allow faults.
    fn play(
        &mut self,
        answer: Answer,
        disturbs: &[usize],
        play: impl FnOnce(&Site, &mut Answer) -> Result<(), HermitageError>,
    ) -> Result<(), HermitageError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut answer = answer;
        match objection(self.site, disturbs) {
            Some(why) => (answer.is_impossible, answer.line) = (true, why),
            None => match play(self.site, &mut answer) {
                Ok(()) => {}
                Err(error @ HermitageError::Live(LiveError::Foreign(_))) => return Err(error),
                Err(error) => {
                    answer.happened = None;
                    answer.line = error.to_string();
                }
            },
        }
        (self.observer)(&answer);
        self.answers.push(answer);
        Ok(())
    }
}

fn timed_out() -> std::io::Error {
    std::io::ErrorKind::TimedOut.into()
}

/// Acknowledged writes on one node, each read on another one at once: how many were missing, and the longest delay until they appeared.
fn stale_reads(
    answer: &mut Answer,
    (writer, reader): (&Node, &Node),
    table: &str,
    time: Duration,
    stop: &AtomicBool,
) -> Result<(), HermitageError> {
    let mut a = ScriptedSession::open("a", writer)?;
    let mut b = ScriptedSession::open("b", reader)?;
    // The control: a snapshot from before the write has to miss it.
    let mut before = ScriptedSession::open("c", reader)?;
    let (mut looks, mut missed) = (0u64, 0u64);
    let read = format!("SELECT value FROM {table} WHERE id = 1");
    let (mut reads, mut stale, mut worst) = (0u64, 0u64, Duration::ZERO);
    let start = Instant::now();
    for value in 1..=WRITES {
        let has_control = value <= CONTROLS;
        let value = i64::try_from(value).unwrap_or(0) + 1_000;
        if has_control {
            before.quietly(&Isolation::RepeatableRead.begin())?;
            before.quietly(&read)?;
        }
        a.quietly(&format!("UPDATE {table} SET value = {value} WHERE id = 1"))?;
        let acknowledged = Instant::now();
        let is_there = |seen: &str| seen.parse::<i64>().is_ok_and(|seen| seen >= value);
        let mut seen = b.quietly(&read)?;
        reads += 1;
        if has_control {
            looks += 1;
            missed += u64::from(!is_there(&before.quietly(&read)?));
            before.quietly("COMMIT")?;
        }
        if !is_there(&seen) {
            stale += 1;
            if answer.script.is_empty() {
                answer.script = vec![
                    format!(
                        "a on {}: UPDATE {table} SET value = {value} WHERE id = 1;  -- UPDATE 1",
                        writer.name
                    ),
                    format!("b on {}: {read};  -- {seen}, sent after a got its reply", reader.name),
                ];
            }
        }
        while !is_there(&seen) && acknowledged.elapsed() < LIMIT && !stop.load(Ordering::Relaxed) {
            worst = worst.max(acknowledged.elapsed());
            seen = b.quietly(&read)?;
        }
        if start.elapsed() >= time || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    // If the control shows nothing, a zero proves nothing.
    answer.happened = (stale > 0 || missed > 0).then_some(stale > 0);
    answer.control = Some(Control {
        what: "the same read in a snapshot from before the write".to_owned(),
        n: looks,
        seen: missed,
    });
    answer.counted = Some((reads, stale, "reads directly after an acknowledgement"));
    answer.line = stale_line((reads, stale, worst), writer, reader);
    Ok(())
}

/// How many reads were stale, and how old the worst one was.
fn stale_line((reads, stale, worst): (u64, u64, Duration), writer: &Node, reader: &Node) -> String {
    match stale {
        0 => format!(
            "{reads} reads on {} right after the acknowledgement on {}, none stale",
            reader.name, writer.name
        ),
        _ => format!(
            "{stale} of {reads} reads on {} right after the acknowledgement on {} were stale, the worst was {:.1} ms old",
            reader.name,
            writer.name,
            worst.as_secs_f64() * 1e3
        ),
    }
}
