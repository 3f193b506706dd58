//! Judging rows of the YCSB table: every value contains the write that made it, and the history of the runs determines whether that write is possible there.

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, Judgement, Version};

use super::Ycsb;
use load::dataset::{Presence, RowJudge, Verdicts};
use load::history::{Expect, VersionJudgement};
use load::verify::{DifferenceKind, ExtraReason};

/// Judges rows of (key, ten fields).
pub(super) struct YcsbJudge<'a> {
    ycsb: &'a Ycsb,
    expected: [[u8; FIELD_BYTES]; FIELD_COUNT],
}

impl<'a> YcsbJudge<'a> {
    pub(super) fn new(ycsb: &'a Ycsb) -> YcsbJudge<'a> {
        YcsbJudge { ycsb, expected: [[0; FIELD_BYTES]; FIELD_COUNT] }
    }

    fn judge_values(&mut self, row: u64, values: &[Option<&[u8]>], verdicts: &mut dyn Verdicts) {
        let content = &self.ycsb.content;
        let written = self.ycsb.history.as_ref().is_some_and(|history| history.wrote_row(row));
        content.row_fields(row, &mut self.expected);
        for (column, value) in values.iter().enumerate() {
            match value {
                None => verdicts.wrong(row, DifferenceKind::Null { column }),
                // Most values are as they were loaded: one comparison.
                Some(bytes) if *bytes == self.expected[column] => {
                    if written {
                        self.judge_version(row, column, Version::LOADED, verdicts);
                    }
                }
                Some(bytes) => match content.judge(row, column, bytes) {
                    Judgement::Exact { version } => self.judge_version(row, column, version, verdicts),
                    Judgement::Damaged { first_bad_byte, bad_bytes, nearest } => {
                        let kind = DifferenceKind::Damaged { column, first_bad_byte, bad_bytes, nearest };
                        match nearest {
                            Some(_) => verdicts.wrong(row, kind),
                            None => verdicts.alien(row, kind, column, bytes),
                        }
                    }
                },
            }
        }
    }

    fn judge_version(&self, row: u64, column: usize, found: Version, verdicts: &mut dyn Verdicts) {
        let judgement = match &self.ycsb.history {
            Some(history) => history.judge_version(row, column, found),
            None if found == Version::LOADED => VersionJudgement::Acceptable,
            None => VersionJudgement::UnknownWriter,
        };
        match judgement {
            VersionJudgement::Acceptable if found == Version::LOADED => {}
            VersionJudgement::Acceptable => verdicts.accepted(1),
            VersionJudgement::NotJudgeable { why } => verdicts.unjudged(why),
            VersionJudgement::Stale { latest } => {
                verdicts.wrong(row, DifferenceKind::Stale { column, found, latest });
            }
            VersionJudgement::UnknownWriter => {
                verdicts.wrong(row, DifferenceKind::UnknownWriter { column, version: found });
            }
        }
    }
}

impl RowJudge for YcsbJudge<'_> {
    fn judge(&mut self, found: &[Option<&[u8]>], verdicts: &mut dyn Verdicts) -> Presence {
        let row = found[0].and_then(|key| self.ycsb.content.row_of_key(key));
        let Some(row) = row else { return Presence::Extra(ExtraReason::NoKey, None) };
        match self.ycsb.expects(row) {
            Expect::Absent => return Presence::Extra(ExtraReason::NeverWritten, Some(row)),
            Expect::Either => verdicts.uncertain(),
            Expect::Present => {}
        }
        self.judge_values(row, &found[1..], verdicts);
        if self.ycsb.expects(row) == Expect::Present { Presence::Must(row) } else { Presence::May(row) }
    }
}

#[cfg(test)]
mod tests;
