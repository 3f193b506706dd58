//! Replays what a finished run wrote, from its numbers alone.
//!
//! A run's writes are a pure function of its mix, its seed and how many transactions each session began, so verification needs no
//! log of updates: it draws them again. The possible final values of a field are then known, except for the one thing the client cannot
//! know, the commit order between sessions: the last write of *some* session. Anything else is a lost or a foreign write.

use data::ycsb::{Table, Version};
use run::client::SessionRecord;
use run::random::Random;
use run::routing::Homes;
use run::workload::{Chooser, Item};
use serde::{Deserialize, Serialize};

use super::run::{Distribution, Operation, Verb, Ycsb, YcsbSession};
use crate::driving::RunSpec;
use crate::replay::{Outcome, Outcomes, ReplayError, Writer, supersedes};

/// Version of [`WriterSpec`]'s JSON form.
pub(crate) const WRITER_SPEC_VERSION: u32 = 2;
/// What a run that is not held to nodes is written as: programs that know nothing of nodes can still replay it.
const WITHOUT_HOMES: u32 = 1;
/// Writes that are kept at once while replaying: 16 bytes each. A history with more of them is judged without staleness.
pub(crate) const WRITES_MAX: usize = 64 << 20;

/// What a run must leave in the target before it writes, so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterSpec {
    /// At most [`WRITER_SPEC_VERSION`].
    pub version: u32,
    /// The run's seed.
    pub seed: u64,
    /// Its sessions.
    pub sessions: u64,
    /// Rows that were loaded when it began.
    pub rows: u64,
    /// The first row number it may insert.
    pub first_insert: u64,
    /// Which session drew keys of which node, and who owned which key; `None` when all drew from the whole table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homes: Option<Homes>,
    /// Its mix, in order.
    pub mix: Vec<WriterItem>,
    /// Filled at the end: transactions that did not simply commit.
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// Filled at the end, or by the program that finds a killed run's rows: no row from here on was inserted.
    #[serde(default)]
    pub insert_end: Option<u64>,
}

/// One item of a mix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterItem {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u64,
    /// YCSB's operation; `None` for a script, which writes no versions.
    #[serde(default)]
    pub operation: Option<(String, String)>,
}

impl WriterSpec {
    /// Of a run that is about to begin. `items` are those of its whole mix, of which YCSB's begin at `first`.
    pub fn new(items: &[Item], first: usize, ycsb: &Ycsb, seed: u64) -> WriterSpec {
        let operations = ycsb.operations();
        let item = |(at, item): (usize, &Item)| WriterItem {
            name: item.name.clone(),
            weight: item.weight,
            operation: at.checked_sub(first).and_then(|own| operations.get(own)).map(|(_, operation)| {
                (operation.verb.name().to_owned(), operation.distribution.name().to_owned())
            }),
        };
        WriterSpec {
            version: if ycsb.homes().is_some() { WRITER_SPEC_VERSION } else { WITHOUT_HOMES },
            seed,
            sessions: ycsb.sessions(),
            rows: ycsb.rows(),
            first_insert: ycsb.first_insert(),
            homes: ycsb.homes().cloned(),
            mix: items.iter().enumerate().map(item).collect(),
            outcomes: Outcomes::default(),
            insert_end: None,
        }
    }

    /// It may insert rows.
    pub fn inserts(&self) -> bool {
        self.mix.iter().any(|item| matches!(&item.operation, Some((verb, _)) if verb == Verb::Insert.name()))
    }

    /// The first row number that is free for the next run; `None` while it is unknown: the run is still on, or was killed.
    pub(super) fn next_insert(&self) -> Option<u64> {
        if self.inserts() { self.insert_end } else { Some(self.first_insert) }
    }

    fn plan(&self, table: &Table, run: u16) -> Result<Plan, ReplayError> {
        if !(WITHOUT_HOMES..=WRITER_SPEC_VERSION).contains(&self.version) {
            return Err(ReplayError::Version { run, version: self.version, known: WRITER_SPEC_VERSION });
        }
        let operation = |item: &WriterItem| {
            let Some((verb, distribution)) = &item.operation else { return Ok(None) };
            let verb = Verb::ALL.into_iter().find(|known| known.name() == verb);
            match (verb, distribution.parse::<Distribution>()) {
                (Some(verb), Ok(distribution)) => Ok(Some(Operation { verb, distribution })),
                _ => Err(ReplayError::Damaged { run, what: format!("operation {:?}", item.operation) }),
            }
        };
        let operations = self.mix.iter().map(operation).collect::<Result<_, _>>()?;
        if self.rows == 0 || self.sessions == 0 {
            return Err(ReplayError::Damaged { run, what: "no rows or no sessions".into() });
        }
        if self.homes.as_ref().is_some_and(|homes| !homes.is_whole()) {
            return Err(ReplayError::Damaged { run, what: "homes without nodes".into() });
        }
        let ycsb = Ycsb::new(table.clone(), self.rows, self.first_insert, self.sessions, run)
            .with_homes(self.homes.clone());
        let chooser = Chooser::new(self.mix.iter().map(|item| item.weight))
            .ok_or(ReplayError::Damaged { run, what: "no weights".into() })?;
        Ok(Plan { chooser, operations, ycsb })
    }
}

impl RunSpec for WriterSpec {
    fn finish(&mut self, sessions: &[SessionRecord]) {
        let busiest = sessions.iter().map(|record| record.inserted).max().unwrap_or(0);
        self.insert_end = Some(self.first_insert + busiest * self.sessions);
        self.outcomes = Outcomes::of(sessions);
    }
}

/// What is needed to draw a run's transactions again.
#[derive(Clone, Debug)]
struct Plan {
    chooser: Chooser,
    /// By item of the mix; `None` for what writes no versions.
    operations: Vec<Option<Operation>>,
    ycsb: Ycsb,
}

impl Plan {
    /// The operation that a transaction begins with drawing.
    fn operation(&self, random: &mut Random) -> Option<Operation> {
        self.operations[self.chooser.choose(random)]
    }
}

/// What a version in a field means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionVerdict {
    /// It may be what stands there now.
    Acceptable,
    /// A later write was acknowledged.
    Stale {
        /// One that should stand there instead.
        latest: Version,
    },
    /// No run wrote this field with this version.
    Foreign,
    /// It is genuine, but a later write may have been lost.
    NotJudgeable(&'static str),
}

/// Whether a row beyond the loaded ones should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowVerdict {
    /// Its insert was acknowledged.
    Present,
    /// No run inserted it, or its insert failed.
    Absent,
    /// Its insert's outcome is not known.
    Either,
}

/// A write: the field it went to, who wrote it, whether it is known to have been committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    /// [`field_number`]; rows up to 2^60 fit.
    field: u64,
    /// The version, shifted by one; the lowest bit is set where the outcome is not known.
    version: u64,
}

impl Write {
    fn version(self) -> Version {
        let bits = self.version >> 1;
        Version::new((bits >> 46) as u16, (bits >> 32) as u16 & Version::SESSION_MAX, bits as u32)
    }

    fn is_certain(self) -> bool {
        self.version & 1 == 0
    }
}

/// Fields of a row are numbered in sixteens: 0 to 9, and 15 for all of them.
const WHOLE_ROW: u64 = 15;

fn field_number(row: u64, column: u64) -> u64 {
    row << 4 | column
}

/// All writes of all finished runs, by key.
#[derive(Debug)]
pub struct History {
    rows: u64,
    writers: Vec<(Writer<WriterSpec>, Plan)>,
    writes: Vec<Write>,
    /// The writes are not complete: too many.
    overflow: bool,
}

impl History {
    /// Replays `writers` over a table with `rows` loaded rows.
    pub fn replay(
        table: &Table,
        rows: u64,
        writers: Vec<Writer<WriterSpec>>,
    ) -> Result<History, ReplayError> {
        let mut history = History { rows, writers: Vec::new(), writes: Vec::new(), overflow: false };
        for writer in writers {
            let plan = writer.spec.plan(table, writer.run)?;
            history.writers.push((writer, plan));
        }
        let mut writes = Vec::new();
        for (writer, plan) in &history.writers {
            let Some(transactions) = &writer.transactions else { continue };
            for (session, &count) in transactions.iter().enumerate() {
                if history.overflow {
                    break;
                }
                history.overflow = !replay_session(writer, plan, session as u64, count, &mut writes);
            }
        }
        if history.overflow {
            writes.clear();
        }
        writes.sort_unstable();
        history.writes = writes;
        Ok(history)
    }

    /// No row from here on was inserted by a finished run; at least the number of loaded rows.
    pub fn rows_end(&self) -> u64 {
        self.writers.iter().filter_map(|(writer, _)| writer.spec.insert_end).max().unwrap_or(0).max(self.rows)
    }

    /// Some run may have written into this row.
    pub fn wrote_row(&self, row: u64) -> bool {
        if self.overflow || self.has_unfinished() {
            return !self.writers.is_empty();
        }
        let at = self.writes.partition_point(|write| write.field < field_number(row, 0));
        self.writes.get(at).is_some_and(|write| write.field >> 4 == row)
    }

    fn has_unfinished(&self) -> bool {
        self.writers.iter().any(|(writer, _)| writer.transactions.is_none())
    }

    /// The writes of one field number.
    fn of(&self, field: u64) -> &[Write] {
        let from = self.writes.partition_point(|write| write.field < field);
        let count = self.writes[from..].partition_point(|write| write.field == field);
        &self.writes[from..from + count]
    }

    fn epoch(&self, run: u16) -> Option<u32> {
        self.writers.iter().find(|(writer, _)| writer.run == run).map(|(writer, _)| writer.epoch)
    }

    /// Judges the version found in a field that is otherwise undamaged.
    pub fn judge(&self, row: u64, column: usize, version: Version) -> VersionVerdict {
        if version != Version::LOADED && !self.is_genuine(row, column, version) {
            return VersionVerdict::Foreign;
        }
        if version == Version::LOADED && row >= self.rows {
            return VersionVerdict::Foreign;
        }
        if self.overflow {
            return VersionVerdict::NotJudgeable("the runs wrote more values than can be replayed at once");
        }
        let field = self.of(field_number(row, column as u64)).iter();
        let later = field
            .chain(self.of(field_number(row, WHOLE_ROW)))
            .filter(|write| write.is_certain())
            .find(|write| supersedes(write.version(), version, |run| self.epoch(run)));
        match later {
            Some(write) => {
                VersionVerdict::Stale { latest: self.last_of_session(row, column, write.version()) }
            }
            None => VersionVerdict::Acceptable,
        }
    }

    /// The last certain write of the session that wrote `version` into this field.
    fn last_of_session(&self, row: u64, column: usize, version: Version) -> Version {
        let field = self.of(field_number(row, column as u64)).iter();
        field
            .chain(self.of(field_number(row, WHOLE_ROW)))
            .filter(|write| write.is_certain())
            .map(|write| write.version())
            .filter(|other| other.run() == version.run() && other.session() == version.session())
            .max()
            .unwrap_or(version)
    }

    /// The transaction named by `version` really writes this field: drawn again alone, in constant time where no inserts are mixed in.
    fn is_genuine(&self, row: u64, column: usize, version: Version) -> bool {
        let Some((writer, plan)) = self.writers.iter().find(|(writer, _)| writer.run == version.run()) else {
            return false;
        };
        let session = u64::from(version.session());
        match &writer.transactions {
            Some(transactions) => {
                let count = transactions.get(usize::from(version.session())).copied().unwrap_or(0);
                if u64::from(version.sequence()) >= count
                    || writer.spec.outcomes.is_known_failed(session, version.sequence())
                {
                    return false;
                }
                if !self.overflow {
                    let bits = version.as_u64() << 1;
                    let in_field = |field| self.of(field).iter().any(|write| write.version & !1 == bits);
                    return in_field(field_number(row, column as u64))
                        || in_field(field_number(row, WHOLE_ROW));
                }
            }
            None if session >= writer.spec.sessions => return false,
            None => {}
        }
        let mut random = Random::for_transaction(writer.spec.seed, session, u64::from(version.sequence()));
        let Some(operation) = plan.operation(&mut random) else { return false };
        match operation.verb {
            Verb::Read | Verb::Scan => false,
            // Which row an insert makes depends on how many came before it; the session it belongs to does not.
            Verb::Insert => plan.ycsb.inserter_of(row).is_some_and(|(inserter, _)| inserter == session),
            Verb::Update | Verb::ReadModifyWrite if operation.distribution == Distribution::Latest => true,
            Verb::Update | Verb::ReadModifyWrite => {
                let draw = plan.ycsb.draw(operation, &YcsbSession::new(session), &mut random);
                draw.row == row && draw.column == column
            }
        }
    }

    /// Judges the existence of a row beyond the loaded ones.
    pub fn expects_row(&self, row: u64) -> RowVerdict {
        let writes = self.of(field_number(row, WHOLE_ROW));
        if writes.iter().any(|write| write.is_certain()) {
            return RowVerdict::Present;
        }
        if !writes.is_empty() {
            return RowVerdict::Either;
        }
        // A run without a known end may have inserted any row of its own range.
        let unknown = self.writers.iter().any(|(writer, _)| {
            let is_unknown = self.overflow || writer.transactions.is_none();
            let is_beyond = writer.spec.insert_end.is_some_and(|end| row >= end);
            is_unknown && writer.spec.inserts() && row >= writer.spec.first_insert && !is_beyond
        });
        if unknown { RowVerdict::Either } else { RowVerdict::Absent }
    }
}

/// Draws all writes of one session; false when there are too many to keep.
fn replay_session(
    writer: &Writer<WriterSpec>,
    plan: &Plan,
    session: u64,
    transactions: u64,
    writes: &mut Vec<Write>,
) -> bool {
    let outcomes = writer.spec.outcomes.of_session(session);
    let mut state = YcsbSession::new(session);
    for sequence in 0..transactions.min(u64::from(u32::MAX)) {
        let sequence = sequence as u32;
        let mut random = Random::for_transaction(writer.spec.seed, session, u64::from(sequence));
        let Some(operation) = plan.operation(&mut random) else { continue };
        if !operation.verb.writes() {
            continue;
        }
        let draw = plan.ycsb.draw(operation, &state, &mut random);
        let outcome = outcomes.get(sequence);
        if outcome != Outcome::Failed {
            if writes.len() == WRITES_MAX {
                return false;
            }
            let uncertain = u64::from(outcome == Outcome::Unknown);
            let version = Version::new(writer.run, session as u16, sequence).as_u64() << 1 | uncertain;
            let column = if operation.verb == Verb::Insert { WHOLE_ROW } else { draw.column as u64 };
            writes.push(Write { field: field_number(draw.row, column), version });
        }
        if operation.verb == Verb::Insert {
            state.insert_ended(!outcomes.is_exception(sequence));
        }
    }
    true
}

#[cfg(test)]
mod tests;
