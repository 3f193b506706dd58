//! `relay`: the program that `up --delay` leaves running. It is not a verb for users.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use record::Exit;
use std::path::PathBuf;

/// The flags of `relay`.
#[derive(Debug, Args)]
pub struct Relay {
    /// The relays, written by `up`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

impl Relay {
    /// Lets data pass later until it is ended.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        app::up::relay(&self.file, context)
    }
}
