//! `skew`: two transactions read the same two rows, and each writes a different one. REPEATABLE READ lets both commit (write skew); SERIALIZABLE must
//! refuse one of them, also if they read a count and insert a row.
//!
//! The two are interleaved explicitly, so every pair is a real trial. A pair that a server cuts off by going away is none: another one takes its place, with
//! sessions of a node that answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::tables::{SCHEMA, Shape, Tables};
use super::{Isolation, LiveError, Options, again, announced_on, is_passing, presence};
use crate::client::{Client, ClientError, Reply};
use crate::fault::Site;
use crate::outcome::{At, of_reply};

const SHAPE: Shape = Shape { name: "skew", columns: "pair int not null, v int not null", key: None };
/// The time limit for a statement: a pair that blocks itself does not count.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pairs at most.
const PAIRS_MAX: u64 = 2_000;
/// Pairs at each level for the control.
const CONTROL_PAIRS: u64 = 20;
/// The least pairs of each form, however short the time. They are interleaved explicitly, so each is a real trial: if none shows the anomaly, the
/// anomaly happens in less than one of ten. A verdict takes as many ([`crate::promise`]).
pub(crate) const PAIRS_MIN: u64 = 30;

/// The reads and writes of the two transactions of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Two existing rows, on two shards if there are several.
    Rows,
    /// The count of matching rows, and one more row.
    Predicate,
}

/// What came out of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pairs {
    /// Pairs that were tried.
    pub pairs: u64,
    /// Both committed: the constraint that each checked is violated.
    pub both: u64,
    /// One was refused.
    pub refused: u64,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// At the level requested: rows, and predicates.
    pub rows: Pairs,
    /// The same with predicates.
    pub predicates: Pairs,
    /// The control: REPEATABLE READ, where both must commit on an engine with snapshot isolation.
    pub control: Pairs,
    /// The first pair that committed, as SQL.
    pub witness: Vec<String>,
}

/// Runs it at the level that `options` name, for as long as they say.
///
/// # Errors
/// When the tables cannot be made, or no pair comes to its end any more.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    if tables.shards.len() < 2 {
        return Err(LiveError::Unfit("a sharded cluster of one node has no two shards".to_owned()));
    }
    let mut trial = Trial { site, options, tables: &tables, stop, sessions: None, pair: 0, cut: None };
    let report = presence::observed(site, || trial.all())?;
    if let Some((count, why)) = &trial.cut {
        site.note(format!("pairs that were cut off, and count as none: {count}; the first one: {why}"));
    }
    drop(trial);
    let mut client = again(site, || Ok(site.enter(PATIENCE)?))?;
    tables.check(site, &mut client)?;
    tables.remove(site);
    Ok(report)
}

/// The pairs of a proof, one after another.
struct Trial<'a> {
    site: &'a Site,
    options: &'a Options,
    tables: &'a Tables,
    stop: &'a AtomicBool,
    /// The two sessions, which are sessions of one node.
    sessions: Option<(Client, Client)>,
    /// The number of the last pair.
    pair: u64,
    /// Pairs that a server or a node has cut off by going away, and what the first one met.
    cut: Option<(u64, String)>,
}

impl Trial<'_> {
    /// The control, and then pairs of both forms for as long as the options say.
    fn all(&mut self) -> Result<Report, LiveError> {
        let mut report = Report::default();
        while report.control.pairs < CONTROL_PAIRS {
            let Some(both) = self.play(Isolation::RepeatableRead, Form::Rows)? else { break };
            report.control.add(both);
        }
        // The control takes its own time.
        let begin = Instant::now();
        while self.pair < PAIRS_MAX
            && (report.rows.pairs < PAIRS_MIN || begin.elapsed() < self.options.duration)
            && !self.stop.load(Ordering::Relaxed)
        {
            for form in [Form::Rows, Form::Predicate] {
                let Some(both) = self.play(self.options.level, form)? else { break };
                match form {
                    Form::Rows => report.rows.add(both),
                    Form::Predicate => report.predicates.add(both),
                }
                if both && report.witness.is_empty() {
                    report.witness = witness(self.options.level, form, self.pair);
                }
            }
        }
        Ok(report)
    }

    /// Plays pairs until one comes to its end; true if both of its transactions committed. `None`: a stop was requested.
    fn play(&mut self, level: Isolation, form: Form) -> Result<Option<bool>, LiveError> {
        let (site, doing) = (self.site, "waiting for two transactions side by side");
        announced_on(site, doing, || {
            // A cut counts from the first pair that no other one has followed to its end.
            again(site, || {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                self.pair += 1;
                let played = self.one(level, form);
                if let Err(error) = &played {
                    self.sessions = None;
                    self.cut.get_or_insert_with(|| (0, error.to_string())).0 += 1;
                }
                played.map(Some)
            })
        })
    }

    fn one(&mut self, level: Isolation, form: Form) -> Result<bool, LiveError> {
        let (mut a, mut b) = match self.sessions.take() {
            Some(sessions) => sessions,
            None => {
                let a = self.site.enter_with(&self.options.settings, PATIENCE)?;
                let b = a.beside(PATIENCE)?;
                (a, b)
            }
        };
        let both = one(self.site, (&mut a, &mut b), self.tables, level, form, self.pair)?;
        self.sessions = Some((a, b));
        Ok(both)
    }
}

impl Pairs {
    fn add(&mut self, both: bool) {
        self.pairs += 1;
        self.both += u64::from(both);
        self.refused += u64::from(!both);
    }
}

/// The statements of the two transactions: the reads and writes of each.
fn statements(form: Form, pair: u64) -> (String, [String; 2]) {
    match form {
        Form::Rows => (
            format!("select sum(v) from {SCHEMA}.skew where pair = {pair}"),
            [1, 2].map(|shard| {
                format!("update {SCHEMA}.skew set v = v - 1 where shard = {shard} and pair = {pair}")
            }),
        ),
        Form::Predicate => (
            format!("select count(*) from {SCHEMA}.skew where pair = {pair}"),
            [1, 2].map(|shard| format!("insert into {SCHEMA}.skew values ({shard}, {pair}, 1)")),
        ),
    }
}

fn witness(level: Isolation, form: Form, pair: u64) -> Vec<String> {
    let (read, [first, second]) = statements(form, pair);
    let begin = level.begin();
    vec![
        format!("T1: {begin}; {read}"),
        format!("T2: {begin}; {read}"),
        format!("T1: {first}; commit  -- COMMIT"),
        format!(
            "T2: {second}; commit  -- COMMIT: it should have been refused (40001), because T1 read what T2 wrote, and T2 what T1 wrote"
        ),
    ]
}

/// One pair; true if both committed.
fn one(
    site: &Site,
    (a, b): (&mut Client, &mut Client),
    tables: &Tables,
    level: Isolation,
    form: Form,
    pair: u64,
) -> Result<bool, LiveError> {
    if form == Form::Rows {
        for shard in tables.numbers().take(2) {
            a.execute(&format!("insert into {SCHEMA}.skew values ({shard}, {pair}, 1)"))?;
        }
    }
    let (read, [first, second]) = statements(form, pair);
    let mut is_alive = [true, true];
    let steps =
        [(0, level.begin()), (1, level.begin()), (0, read.clone()), (1, read), (0, first), (1, second)];
    for (session, sql) in steps {
        if is_alive[session] {
            let reply = if session == 0 { a.request(&sql)? } else { b.request(&sql)? };
            is_alive[session] = reply.error.is_none();
            if let Some(error) = reply.error.filter(|error| !error.sqlstate.is_retryable()) {
                return Err(ClientError::Refused { error: Box::new(error), sql }.into());
            }
        }
    }
    let mut committed = [false, false];
    for (session, client) in [a, b].into_iter().enumerate() {
        // COMMIT also ends a failed block, with the tag ROLLBACK.
        let reply: Reply = client.request("commit")?;
        committed[session] =
            of_reply(site.engine, At::Commit { wide: false }, &reply).outcome.is_acknowledged();
        // Whether it took effect is unknown then: the pair shows nothing.
        if let Some(error) = reply.error {
            let refused = ClientError::Refused { error: Box::new(error), sql: "commit".to_owned() };
            if is_passing(site.engine.node_lost, &refused) {
                return Err(refused.into());
            }
        }
    }
    Ok(committed == [true, true])
}
