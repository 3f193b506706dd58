//! What runs have written into documents, for verification.

use std::sync::Arc;

use engines::Cluster;
use load::dataset::{Audit, Auditor, Dataset, Verdicts};
use load::verify::{DifferenceKind, VerifyError};

use super::dataset::{DATASET, of_flags};
use super::replay::{Existence, History, Inserted, Judged};
use super::writer::{INSERTED_BITS, first_insert};
use crate::dataset::Flags;
use crate::driving::Refusal;
use crate::replay::{Recorded, Replayed};

/// The column of versions.
const VERSION: &str = "doc_version";

/// Replays all runs that wrote into the documents of a cluster; `None` when there are none, or no run wrote into them.
///
/// # Errors
/// When the ledger cannot be read, or a run was recorded in a form this program does not know.
pub(super) fn replay(cluster: &Cluster) -> Result<Option<Arc<dyn Replayed>>, Refusal> {
    let Some(Recorded { dataset, writers }) = Recorded::read(cluster, DATASET.name)? else { return Ok(None) };
    let history = History::replay(dataset.rows, writers).map_err(|error| Refusal::new(error.to_string()))?;
    Ok(Some(Arc::new(OfDocuments(Arc::new(history)))))
}

/// The history, for the dataset that a database holds.
#[derive(Debug)]
struct OfDocuments(Arc<History>);

impl Replayed for OfDocuments {
    fn after(&self, found: &dyn Dataset) -> Option<Box<dyn Dataset>> {
        let parameters = found.parameters();
        let flags: Flags = parameters.into_iter().map(|one| (one.what.to_owned(), one.value)).collect();
        Some(Box::new(of_flags(found.spec(), &flags)?.after(Arc::clone(&self.0))))
    }
}

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
        let told = format!("run {run} inserted {expected} documents, and {found} are there");
        match (i128::from(least)..=i128::from(most)).contains(&found) {
            true => audit.kept.push(told),
            false => audit.broken.push(told),
        }
    }
    Ok(audit)
}
