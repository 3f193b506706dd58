//! Computes again what runs have written into documents, and judges the version of a document by it.
//!
//! A version is random and does not show which run wrote it, so it is looked up among the versions that the replay draws for the same
//! document. The final content of a document is then known, except for the order of commits between sessions.

use data::ycsb::Version;
use run::client::SessionRecord;
use run::random::Random;
use run::workload::Chooser;
use serde::{Deserialize, Serialize};

use super::run::{DocumentsRun, DocumentsSession, Draws, INSERTED_BITS, Kind, Verb, first_insert};
use crate::driving::{InMix, RunSpec};
use crate::replay::{Outcome, Outcomes, ReplayError, Writer, supersedes};

/// Version of [`WriterSpec`]'s JSON form, and of the order of draws.
const WRITER_SPEC_VERSION: u32 = 1;
/// Writes that are kept at once: 32 bytes each. A history with more of them is judged without lost updates.
const WRITES_MAX: usize = 32 << 20;

/// What a run must leave in the ledgers before it writes, so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WriterSpec {
    version: u32,
    /// The run's seed.
    seed: u64,
    sessions: u64,
    /// The first loaded document, and how many there are.
    first: u64,
    count: u64,
    /// Its mix, in order.
    mix: Vec<WriterItem>,
    /// Filled at the end.
    #[serde(flatten)]
    outcomes: Outcomes,
}

/// An item of a mix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WriterItem {
    weight: u64,
    /// `None` for what belongs to another workload.
    #[serde(default)]
    kind: Option<Kind>,
}

/// What an earlier release has left: nothing to replay.
#[derive(Debug, Deserialize)]
struct NameOnly {
    #[serde(rename = "workload")]
    _workload: String,
}

impl WriterSpec {
    pub(super) fn new(run: InMix<'_>, workload: &DocumentsRun) -> WriterSpec {
        let own = |at: usize| workload.items.get(at.checked_sub(run.first)?).map(|(_, kind)| *kind);
        let item =
            |(at, item): (usize, &::run::workload::Item)| WriterItem { weight: item.weight, kind: own(at) };
        let Draws { first, count, sessions, .. } = workload.draws;
        WriterSpec {
            version: WRITER_SPEC_VERSION,
            seed: run.seed,
            sessions,
            first,
            count,
            mix: run.items.iter().enumerate().map(item).collect(),
            outcomes: Outcomes::default(),
        }
    }

    /// The description of run `run`; `None`: an earlier release has left its name only.
    fn read(text: &str, run: u16) -> Result<Option<WriterSpec>, ReplayError> {
        let damaged = |error: serde_json::Error| ReplayError::Damaged { run, what: error.to_string() };
        let value: serde_json::Value = serde_json::from_str(text).map_err(damaged)?;
        if NameOnly::deserialize(&value).is_ok() {
            return Ok(None);
        }
        match value["version"].as_u64() {
            Some(version) if version != u64::from(WRITER_SPEC_VERSION) => Err(ReplayError::Version {
                run,
                version: u32::try_from(version).unwrap_or(u32::MAX),
                known: WRITER_SPEC_VERSION,
            }),
            _ => WriterSpec::deserialize(value).map(Some).map_err(damaged),
        }
    }

    fn inserts(&self) -> bool {
        let inserts = |kind: Kind| matches!(kind, Kind::Alone(Verb::Insert) | Kind::Together(_));
        self.mix.iter().any(|item| item.weight > 0 && item.kind.is_some_and(inserts))
    }

    fn plan(&self, run: u16) -> Result<Plan, ReplayError> {
        let damaged = |what: &str| ReplayError::Damaged { run, what: what.to_owned() };
        if self.count == 0 || self.sessions == 0 {
            return Err(damaged("no documents or no sessions"));
        }
        let draws = Draws {
            first: self.first,
            count: self.count,
            first_insert: first_insert(run),
            sessions: self.sessions,
        };
        let chooser =
            Chooser::new(self.mix.iter().map(|item| item.weight)).ok_or_else(|| damaged("no weights"))?;
        Ok(Plan { draws, chooser, kinds: self.mix.iter().map(|item| item.kind).collect() })
    }
}

impl RunSpec for WriterSpec {
    fn finish(&mut self, sessions: &[SessionRecord]) {
        self.outcomes = Outcomes::of(sessions);
    }
}

/// What is needed to draw a run's transactions again.
struct Plan {
    draws: Draws,
    chooser: Chooser,
    /// By item of the mix.
    kinds: Vec<Option<Kind>>,
}

/// A write that may stand in the table after its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    document: u64,
    /// What it wrote.
    version: u32,
    /// It is known to have been committed.
    is_certain: bool,
    /// The transaction.
    by: Version,
}

/// A run of the history.
#[derive(Clone, Debug)]
struct Known {
    run: u16,
    epoch: u32,
    /// Its writes are known: it reported its end.
    is_replayed: bool,
    /// It may insert documents of its range.
    inserts: bool,
}

/// What a version in a document means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It may be what stands there now.
    Acceptable,
    /// A later write was acknowledged.
    Replaced {
        /// What that one wrote.
        latest: u32,
        /// Which one it was.
        by: Version,
    },
    /// No run wrote this version of this document.
    Foreign,
    /// A later write may have been lost.
    NotJudgeable(&'static str),
}

/// Whether a document beyond the loaded ones should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// Its insert was acknowledged.
    Certain,
    /// Its insert may or may not have been committed.
    Possible,
    /// No run inserted it.
    Impossible,
}

/// How many documents a run must have inserted at least, and can have inserted at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserted {
    pub(super) run: u16,
    pub(super) least: u64,
    pub(super) most: u64,
}

/// All writes of all finished runs.
#[derive(Debug)]
pub(super) struct History {
    /// Documents that were loaded: number 1 to this.
    rows: u64,
    runs: Vec<Known>,
    /// By document and version.
    writes: Vec<Write>,
    /// The writes are not complete: too many.
    overflow: bool,
}

impl History {
    /// Replays runs over so many loaded documents.
    pub(super) fn replay(rows: u64, writers: Vec<Writer<String>>) -> Result<History, ReplayError> {
        let mut history = History { rows, runs: vec![], writes: vec![], overflow: false };
        for Writer { run, epoch, spec, transactions } in writers {
            let spec = WriterSpec::read(&spec, run)?;
            let (plan, inserts) = match &spec {
                Some(spec) => (Some(spec.plan(run)?), spec.inserts()),
                None => (None, true),
            };
            let replayed = spec.as_ref().zip(plan).zip(transactions);
            history.runs.push(Known { run, epoch, is_replayed: replayed.is_some(), inserts });
            let Some(((spec, plan), transactions)) = replayed else { continue };
            for (session, count) in transactions.into_iter().enumerate() {
                history.overflow |= !history.replay_session((run, session as u64, count), spec, &plan);
            }
        }
        if history.overflow {
            history.writes = Vec::new();
        }
        history.writes.sort_unstable();
        Ok(history)
    }

    /// Draws all writes of one session; false when there are too many to keep.
    fn replay_session(
        &mut self,
        (run, session, transactions): (u16, u64, u64),
        spec: &WriterSpec,
        plan: &Plan,
    ) -> bool {
        let outcomes = spec.outcomes.of_session(session);
        let mut state = DocumentsSession::new(session);
        for sequence in 0..transactions.min(u64::from(u32::MAX)) as u32 {
            let mut random = Random::for_transaction(spec.seed, session, u64::from(sequence));
            let Some(kind) = plan.kinds[plan.chooser.choose(&mut random)] else { continue };
            plan.draws.draw(kind, &mut state, &mut random);
            let outcome = outcomes.get(sequence);
            if outcome != Outcome::Failed {
                let by = Version::new(run, session as u16, sequence);
                let is_certain = outcome == Outcome::Committed;
                for (document, version) in state.left() {
                    if self.writes.len() == WRITES_MAX {
                        return false;
                    }
                    self.writes.push(Write { document, version, is_certain, by });
                }
            }
            state.ended();
        }
        true
    }

    fn of(&self, document: u64) -> &[Write] {
        let from = self.writes.partition_point(|write| write.document < document);
        let count = self.writes[from..].partition_point(|write| write.document == document);
        &self.writes[from..from + count]
    }

    fn epoch(&self, run: u16) -> Option<u32> {
        self.runs.iter().find(|known| known.run == run).map(|known| known.epoch)
    }

    fn is_loaded(&self, document: u64) -> bool {
        (1..=self.rows).contains(&document)
    }

    /// Judges the version found in a document.
    pub(super) fn judge(&self, document: u64, version: u32) -> Judged {
        if self.overflow {
            return Judged::NotJudgeable("the runs wrote more documents than can be replayed at once");
        }
        let writes = self.of(document);
        let superseding = |found: Version| {
            let certain = writes.iter().filter(|write| write.is_certain);
            certain
                .filter(|write| supersedes(write.by, found, |run| self.epoch(run)))
                .max_by_key(|write| (self.epoch(write.by.run()), write.by))
        };
        let is_of_load = version == 0 && self.is_loaded(document);
        let drawn = writes.iter().filter(|write| write.version == version).map(|write| write.by);
        // Two writes of a document may have drawn the same version.
        let mut later = None;
        for found in drawn.chain(is_of_load.then_some(Version::LOADED)) {
            match superseding(found) {
                None => return Judged::Acceptable,
                some => later = some,
            }
        }
        match later {
            Some(write) => Judged::Replaced { latest: write.version, by: write.by },
            None if version == 0 => Judged::Foreign,
            None => self.judge_unknown(writes),
        }
    }

    /// Judges a version that no replayed run has drawn: one without an end may have written any.
    fn judge_unknown(&self, writes: &[Write]) -> Judged {
        let unknown = self.runs.iter().filter(|known| !known.is_replayed);
        match unknown.map(|known| known.epoch).max() {
            None => Judged::Foreign,
            Some(epoch) => {
                let certain = writes.iter().filter(|write| write.is_certain);
                let later =
                    certain.filter(|write| self.epoch(write.by.run()).is_some_and(|late| late > epoch));
                match later.max_by_key(|write| (self.epoch(write.by.run()), write.by)) {
                    None => Judged::Acceptable,
                    Some(write) => Judged::Replaced { latest: write.version, by: write.by },
                }
            }
        }
    }

    /// Whether a document beyond the loaded ones should be there.
    pub(super) fn existence(&self, document: u64) -> Existence {
        let writes = self.of(document);
        if writes.iter().any(|write| write.is_certain) {
            return Existence::Certain;
        }
        let range = document >> INSERTED_BITS;
        let may_insert = |known: &Known| {
            known.inserts && (self.overflow || !known.is_replayed) && range == u64::from(known.run)
        };
        match !writes.is_empty() || self.runs.iter().any(may_insert) {
            true => Existence::Possible,
            false => Existence::Impossible,
        }
    }

    /// What a run has inserted, by document.
    fn inserts_of(&self, run: u16) -> &[Write] {
        let range = first_insert(run)..first_insert(run) + (1 << INSERTED_BITS);
        let from = self.writes.partition_point(|write| write.document < range.start);
        let to = self.writes.partition_point(|write| write.document < range.end);
        &self.writes[from..to]
    }

    /// Documents whose insert by this run was acknowledged, each with its write.
    pub(super) fn inserted_by(&self, run: u16) -> impl Iterator<Item = (u64, Version)> {
        let certain = self.inserts_of(run).iter().filter(|write| write.is_certain);
        certain.map(|write| (write.document, write.by))
    }

    /// How many documents each replayed run has inserted; nothing where not all of them are known.
    pub(super) fn inserted(&self) -> Vec<Inserted> {
        if self.overflow {
            return vec![];
        }
        let of_run = |known: &Known| {
            let writes = self.inserts_of(known.run);
            let least = writes.iter().filter(|write| write.is_certain).count() as u64;
            Inserted { run: known.run, least, most: writes.len() as u64 }
        };
        self.runs.iter().filter(|known| known.is_replayed && known.inserts).map(of_run).collect()
    }
}

#[cfg(test)]
mod tests;
