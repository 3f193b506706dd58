//! `watch`: sample a live system without driving it.

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::{Connection, RunDirectory};
use crate::machines::{EvidenceFlags, MachineFlags};
use app::quantity;
use app::watch::{Plan, Planning};
use clap::Args;
use record::Exit;
use std::time::Duration;

/// The flags of `watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom watch -T 60 DBNAME           one minute of a live system, into runs/TIME-watch
  pgfathom watch --cluster cluster.toml every node of a cluster, until Ctrl-C
  pgfathom watch --cluster cluster.toml --ssh db1=n1 --ssh db2=n2,n3
  pgfathom watch -T 60 --bundle --redact hosts,sql DBNAME   one archive, for analysis elsewhere
A role in pg_monitor can read everything in the server. The output lists what could not be read, and what is unknown because of it.")]
pub struct Watch {
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    /// How long: seconds, or as 10m, 1h30m [default: until Ctrl-C]
    #[arg(short = 'T', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Watch")]
    pub time: Option<Duration>,
    /// Sampling interval: seconds, or as 500ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = quantity::duration, help_heading = "Watch")]
    pub interval: Duration,
    /// Also plan the costliest statements with other settings (work_mem, enable_*), by EXPLAIN only
    #[arg(long, help_heading = "Watch")]
    pub what_if: bool,
    /// The console of a pgbouncer before the server, once for each [default: found if it runs on this host, or if the server is reached through it]
    #[arg(long, value_name = "CONNECTION", help_heading = "Watch")]
    pub pooler: Vec<String>,
    /// Monitor only the servers (and hosts named by --ssh), not this host
    #[arg(long, help_heading = "Hosts")]
    pub no_host: bool,
    /// The hosts.
    #[command(flatten)]
    pub machines: MachineFlags,
    /// Export of evidence.
    #[command(flatten)]
    pub evidence: EvidenceFlags,
    /// Seconds between lines of output [default: one line that is redrawn; 5 if stderr is not a terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Watch {
    /// Monitors until the time is over or the user stops it.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let plan = Plan {
            address: self.connection.address()?,
            time: self.time,
            interval: self.interval,
            is_here: !self.no_host,
            machines: self.machines.value(),
            planning: Planning { tries_settings: self.what_if },
            poolers: self
                .pooler
                .iter()
                .map(|text| app::connection::console(text, context))
                .collect::<Result<_, _>>()?,
            evidence: self.evidence.value(),
            progress: self.progress,
            directory: self.directory.output_dir,
        };
        plan.run(context)
    }
}
