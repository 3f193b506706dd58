//! `down`: stop a local cluster that `up` made, and delete it.

use crate::context::Context;
use crate::failure::Failure;
use app::down::Plan;
use clap::Args;
use record::Exit;
use std::path::PathBuf;

/// The flags of `down`.
#[derive(Debug, Args)]
#[command(after_help = "\
It removes only folders with pgfathom's marker. Without CLUSTER it lists the clusters that exist.
It always removes the temporary folders of pgfathom processes that were killed.")]
pub struct Down {
    /// The cluster's folder, or its cluster.toml
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<PathBuf>,
    /// All clusters started by pgfathom up
    #[arg(long, conflicts_with = "cluster", help_heading = "Cluster")]
    pub all: bool,
}

impl Down {
    /// Removes, or lists what could be removed.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let plan = match self.cluster {
            Some(path) => Plan::One(path),
            None if self.all => Plan::All,
            None => Plan::List,
        };
        plan.run(context)
    }
}
