//! Judging documents by what runs have written.

use load::dataset::{Audit, Auditor, Verdicts};
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

/// Counts the documents that each run has inserted: a document that is not there has no row that could be judged.
pub(super) fn audit(history: &History, auditor: &mut dyn Auditor) -> Result<Audit, VerifyError> {
    let mut audit = Audit::default();
    for Inserted { run, least, most } in history.inserted() {
        let first = first_insert(run);
        let end = first + (1 << INSERTED_BITS);
        let found = auditor.sum(&format!(
            "select count(*) from only {{documents}} where doc_id >= {first} and doc_id < {end}"
        ))?;
        let expected = match least == most {
            true => format!("{least}"),
            false => format!("{least} to {most}"),
        };
        let text = format!("run {run} inserted {expected} documents, and {found} are there");
        match (i128::from(least)..=i128::from(most)).contains(&found) {
            true => audit.kept.push(text),
            false => audit.broken.push(text),
        }
    }
    Ok(audit)
}
