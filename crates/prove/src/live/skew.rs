//! `skew`: two transactions read the same two rows, and each writes a different one. REPEATABLE READ lets both commit (write skew); SERIALIZABLE must
//! refuse one of them, also if they read a count and insert a row.
//!
//! The two are interleaved explicitly, so every pair is a real trial.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::tables::{SCHEMA, Shape, Tables};
use super::{Isolation, LiveError, Options};
use crate::client::{Client, Reply};
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
/// When the tables cannot be made, or a session breaks.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    if tables.shards.len() < 2 {
        return Err(LiveError::Unfit("a sharded cluster of one node has no two shards".to_owned()));
    }
    let entry = options.dressed(site.entry());
    let mut a = Client::connect(&entry, PATIENCE)?;
    let mut b = Client::connect(&entry, PATIENCE)?;
    let mut report = Report::default();
    let mut pair = 0;
    for _ in 0..CONTROL_PAIRS {
        pair += 1;
        let both = one(site, (&mut a, &mut b), &tables, Isolation::RepeatableRead, Form::Rows, pair)?;
        report.control.add(both);
    }
    // The control takes its own time.
    let begin = Instant::now();
    while pair < PAIRS_MAX
        && (report.rows.pairs < PAIRS_MIN || begin.elapsed() < options.duration)
        && !stop.load(Ordering::Relaxed)
    {
        for form in [Form::Rows, Form::Predicate] {
            pair += 1;
            let both = one(site, (&mut a, &mut b), &tables, options.level, form, pair)?;
            match form {
                Form::Rows => report.rows.add(both),
                Form::Predicate => report.predicates.add(both),
            }
            if both && report.witness.is_empty() {
                report.witness = witness(options.level, form, pair);
            }
        }
    }
    tables.check(site, &mut a)?;
    tables.remove(site);
    Ok(report)
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
                return Err(crate::client::ClientError::Refused { error: Box::new(error), sql }.into());
            }
        }
    }
    let mut committed = [false, false];
    for (session, client) in [a, b].into_iter().enumerate() {
        // COMMIT also ends a failed block, with the tag ROLLBACK.
        let reply: Reply = client.request("commit")?;
        committed[session] =
            of_reply(site.engine, At::Commit { wide: false }, &reply).outcome.is_acknowledged();
    }
    Ok(committed == [true, true])
}
