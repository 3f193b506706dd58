//! A node as streams know it.

use connect::ConnSpec;

/// A node that streams load into.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its name; empty for a single server.
    pub(crate) name: String,
    pub(crate) spec: ConnSpec,
    /// The dataset's id there.
    pub(crate) dataset: i32,
}
