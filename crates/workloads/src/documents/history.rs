//! What runs have written into documents, for verification.

use std::sync::Arc;

use engines::Cluster;
use load::dataset::Dataset;

use super::dataset::of_flags;
use super::replay::History;
use super::run::NAME;
use crate::dataset::Flags;
use crate::driving::Refusal;
use crate::replay::{Recorded, Replayed};

/// Replays all runs that wrote into the documents of a cluster; `None` when there are none, or no run wrote into them.
///
/// # Errors
/// When the ledger cannot be read, or a run was recorded in a form this program does not know.
pub(super) fn replay(cluster: &Cluster) -> Result<Option<Arc<dyn Replayed>>, Refusal> {
    let Some(Recorded { dataset, writers }) = Recorded::read(cluster, NAME)? else { return Ok(None) };
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
