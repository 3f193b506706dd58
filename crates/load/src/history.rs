//! Which writes are legitimate: how updates and inserts of `run` are distinguished from damage, if values name the write that made them.
//!
//! Every such value names the write that made it. Whether that write took place, and whether it is the last one that should be seen, only
//! the runs know. Their draws are a pure function of (seed, session, sequence), so a run can be replayed without a server; this crate
//! must not know `run`, hence the trait. [`LedgerHistory`] is what the ledger alone shows, without a replay.

use data::Version;

use crate::ledger::Writer;

/// Whether a row that the load did not make should be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Its insert was acknowledged.
    Present,
    /// No run inserted it.
    Absent,
    /// Its insert may or may not have been committed.
    Either,
}

/// The judgement of a version found in a field whose bytes are right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionJudgement {
    /// It may be what stands there now.
    Acceptable,
    /// A later write of the same field was acknowledged: an update was lost or undone.
    Stale {
        /// One version that should stand there instead.
        latest: Version,
    },
    /// No known run wrote this field with this version.
    UnknownWriter,
    /// The history does not show it.
    NotJudgeable {
        /// Why.
        why: &'static str,
    },
}

/// What runs have written into a dataset.
pub trait WriterHistory: std::fmt::Debug + Send + Sync {
    /// Whether any run may have written into this row. Rows for which this is false are judged faster.
    fn wrote_row(&self, _row: u64) -> bool {
        true
    }

    /// Called for row numbers from the end of the loaded rows on.
    fn expects_row(&self, row: u64) -> Expect;

    /// No row from here on is [`Expect::Present`]; at least the number of loaded rows.
    fn rows_end(&self) -> u64;

    /// Judges the version of a field. Called for every field of rows for which [`WriterHistory::wrote_row`] holds, the version of the
    /// load included, and for every field of another version elsewhere.
    fn judge_version(&self, row: u64, column: usize, version: Version) -> VersionJudgement;
}

/// What the ledger alone can say: which runs there were, and how many writes each session of a finished run made.
///
/// It accepts any write that a known run can have made, so it notices neither a lost update nor a lost insert.
#[derive(Clone, Debug)]
pub struct LedgerHistory {
    rows: u64,
    writers: Vec<Writer>,
}

impl LedgerHistory {
    /// The history of a dataset of `rows` loaded rows.
    pub fn new(rows: u64, writers: Vec<Writer>) -> LedgerHistory {
        LedgerHistory { rows, writers }
    }
}

impl WriterHistory for LedgerHistory {
    fn wrote_row(&self, row: u64) -> bool {
        // A loaded version is always acceptable in a loaded row.
        row >= self.rows
    }

    fn expects_row(&self, row: u64) -> Expect {
        match row {
            row if row < self.rows => Expect::Present,
            _ if self.writers.is_empty() => Expect::Absent,
            _ => Expect::Either,
        }
    }

    fn rows_end(&self) -> u64 {
        self.rows
    }

    fn judge_version(&self, row: u64, _column: usize, version: Version) -> VersionJudgement {
        if version == Version::LOADED {
            return if row < self.rows {
                VersionJudgement::Acceptable
            } else {
                VersionJudgement::UnknownWriter
            };
        }
        let Some(writer) = self.writers.iter().find(|writer| writer.run_no == version.run()) else {
            return VersionJudgement::UnknownWriter;
        };
        let written = match writer.transactions.get(usize::from(version.session())) {
            Some(&last) => u64::from(version.sequence()) <= last,
            None => false,
        };
        if written || !writer.finished {
            VersionJudgement::Acceptable
        } else {
            VersionJudgement::UnknownWriter
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_knows_runs_sessions_and_counts() {
        let writer =
            |run_no, finished, transactions| Writer { run_no, spec: "{}".into(), finished, transactions };
        let history = LedgerHistory::new(10, vec![writer(1, true, vec![5, 7]), writer(2, false, vec![])]);
        let judge = |row, version| history.judge_version(row, 0, version);
        assert_eq!(judge(3, Version::LOADED), VersionJudgement::Acceptable);
        assert_eq!(judge(10, Version::LOADED), VersionJudgement::UnknownWriter);
        assert_eq!(judge(3, Version::new(1, 0, 5)), VersionJudgement::Acceptable);
        assert_eq!(judge(3, Version::new(1, 0, 6)), VersionJudgement::UnknownWriter);
        assert_eq!(judge(3, Version::new(1, 2, 1)), VersionJudgement::UnknownWriter);
        assert_eq!(
            judge(3, Version::new(2, 900, 1)),
            VersionJudgement::Acceptable,
            "killed: any write may exist"
        );
        assert_eq!(judge(3, Version::new(3, 0, 1)), VersionJudgement::UnknownWriter);
    }

    #[test]
    fn only_runs_insert() {
        let none = LedgerHistory::new(10, Vec::new());
        assert_eq!((none.expects_row(9), none.expects_row(10)), (Expect::Present, Expect::Absent));
        let writers = vec![Writer { run_no: 1, spec: "{}".into(), finished: true, transactions: vec![] }];
        assert_eq!(LedgerHistory::new(10, writers).expects_row(10), Expect::Either);
    }
}
