//! Judging documents by what runs have written.

use std::collections::HashSet;

use data::ycsb::Version;
use load::dataset::{Audit, Auditor, LostInsert, Verdicts};
use load::verify::{DifferenceKind, VerifyError};

use super::replay::{Existence, History, Inserted, Judged};
use super::run::{INSERTED_BITS, first_insert};

/// The column of versions.
const VERSION: &str = "doc_version";

/// Judges the version of a document whose text is that of its version; whether nothing is wrong with it.
pub(super) fn judge(
    history: &History,
    number: u64,
    is_loaded: bool,
    version: u32,
    verdicts: &mut dyn Verdicts,
) -> bool {
    let document = number + 1;
    if !is_loaded && history.existence(document) == Existence::Possible {
        verdicts.uncertain();
    }
    match history.judge(document, version) {
        Judged::Acceptable => return true,
        Judged::NotJudgeable(why) => {
            verdicts.unjudged(why);
            return true;
        }
        Judged::Replaced { latest, by } => {
            verdicts.wrong(number, DifferenceKind::Replaced { column: VERSION, found: version, latest, by });
        }
        Judged::Foreign => {
            verdicts.wrong(number, DifferenceKind::NeverWritten { column: VERSION, found: version });
        }
    }
    false
}

/// Documents that are looked for with one query.
const LOOKED_FOR_MAX: usize = 10_000;

/// Counts the documents that each run has inserted, and finds the missing ones: a document that is not there has no row that could be judged.
pub(super) fn audit(history: &History, auditor: &mut dyn Auditor) -> Result<Audit, VerifyError> {
    let mut audit = Audit::default();
    for Inserted { run, least, most } in history.inserted() {
        let first = first_insert(run);
        let end = first + (1 << INSERTED_BITS);
        let found = auditor.sum(&format!(
            "select count(*) from only {{documents}} where doc_id >= {first} and doc_id < {end}"
        ))?;
        let lost = match found == i128::from(most) {
            true => 0,
            false => find_lost(history, run, auditor, &mut audit)?,
        };
        let expected = match least == most {
            true => format!("{least}"),
            false => format!("{least} to {most}"),
        };
        let text = format!("run {run} inserted {expected} documents, but {found} are in the table");
        // One that is missing may be made up for in number by one whose commit is unknown.
        match lost == 0 && (i128::from(least)..=i128::from(most)).contains(&found) {
            true => audit.kept.push(text),
            false => audit.broken.push(text),
        }
    }
    Ok(audit)
}

/// Looks for each document whose insert was acknowledged; returns how many are missing.
fn find_lost(
    history: &History,
    run: u16,
    auditor: &mut dyn Auditor,
    audit: &mut Audit,
) -> Result<u64, VerifyError> {
    let before = audit.lost_total;
    let certain: Vec<(u64, Version)> = history.inserted_by(run).collect();
    for batch in certain.chunks(LOOKED_FOR_MAX) {
        let wanted: Vec<String> = batch.iter().map(|(document, _)| document.to_string()).collect();
        let found: HashSet<i64> = auditor
            .numbers(&format!(
                "select doc_id from only {{documents}} where doc_id = any (array[{}]::bigint[])",
                wanted.join(", ")
            ))?
            .into_iter()
            .collect();
        let is_lost = |(document, _): &&(u64, Version)| !found.contains(&(*document as i64));
        for (document, by) in batch.iter().filter(is_lost) {
            audit.lose(LostInsert { table: 0, number: document - 1, by: *by });
        }
    }
    Ok(audit.lost_total - before)
}
