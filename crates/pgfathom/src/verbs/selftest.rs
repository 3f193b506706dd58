//! `self`: measure this client: how much load it can generate, and how exactly it can time it.

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::RunDirectory;
use app::quantity;
use clap::Args;
use record::Exit;
use std::time::Duration;

/// The flags of `self`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// Time of each measurement: seconds, or as 500ms
    #[arg(short = 'T', long, value_name = "TIME", default_value = "2", value_parser = quantity::duration,
          help_heading = "Self")]
    pub time: Duration,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Selftest {
    /// Measures and prints.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        app::selftest::Plan { time: self.time, directory: self.directory.output_dir }.run(context)
    }
}
