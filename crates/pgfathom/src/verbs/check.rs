//! `check`: measure hosts and read nodes before a load or a run depends on them.

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::{Connection, RunDirectory};
use ::check::link::Ways;
use ::check::probe::disk::{BLOCK_BYTES, DEPTH_MAX};
use ::check::probe::{remove_program, serve};
use ::check::survey::Tests;
use app::check::Plan;
use app::quantity::{self, ValueError};
use clap::{Args, ValueEnum};
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom check --disk /data              this host, with the disk below /data
  pgfathom check --hosts hosts.txt --disk /data1 --disk /data2
  pgfathom check --ssh admin@db[1-4] --copy-program
  pgfathom check --cluster cluster.toml    every node of a cluster, and this host
  pgfathom check -d mydb --plan plan.json  is there what the plan needs?
Exit code 6: something failed. Without a database only hosts are checked; PG* variables alone name no database here.")]
pub struct Check {
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    /// Check the hosts of this file: [user@]host[:port] a line, ranges as sdw[1-4], as gpssh takes it
    #[arg(short = 'f', long, value_name = "FILE", help_heading = "Hosts")]
    pub hosts: Vec<PathBuf>,
    /// Check this host, reached by ssh: [USER@]HOST[:PORT], also a range [default: this host]
    #[arg(long, value_name = "HOST", help_heading = "Hosts")]
    pub ssh: Vec<String>,
    /// Copy this program to hosts that lack it, into a temporary folder; it removes itself at once
    #[arg(long, help_heading = "Hosts")]
    pub copy_program: bool,
    /// The name or path of pgfathom on the other hosts
    #[arg(long, value_name = "PROGRAM", default_value = "pgfathom", help_heading = "Hosts")]
    pub program: String,
    /// The ssh to use
    #[arg(long, value_name = "PROGRAM", default_value = "ssh", help_heading = "Hosts")]
    pub ssh_program: PathBuf,
    /// Measure the disk below this directory, on every host; files are made in DIR/pgfathom-check and removed
    #[arg(long, value_name = "DIR", help_heading = "Disks")]
    pub disk: Vec<PathBuf>,
    /// Size of the file of the disk probe
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = quantity::size_bytes, help_heading = "Disks")]
    pub size: u64,
    /// Size of one random read or write
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = block, help_heading = "Disks")]
    pub block: u64,
    /// Operations in flight, one test each
    #[arg(
        long,
        value_name = "N,...",
        default_value = "1,8,32",
        value_delimiter = ',',
        value_parser = depth,
        help_heading = "Disks"
    )]
    pub depths: Vec<u64>,
    /// Time of each test
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = quantity::duration, help_heading = "Disks")]
    pub probe_time: Duration,
    /// Do not measure these: network, memory, processor
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        help_heading = "Check"
    )]
    pub skip: Vec<Skipped>,
    /// Measure one pair of hosts at a time [default: pairs without a common host together]
    #[arg(long, help_heading = "Check")]
    pub one_pair_at_a_time: bool,
    /// What measures: our own probe wherever it runs (own), or fio and iperf3 where they are installed (installed)
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "own",
        hide_possible_values = true,
        help_heading = "Check"
    )]
    pub tools: Tools,
    /// Repeat disks and network at this interval, to find a noisy neighbour
    #[arg(long, value_name = "TIME", value_parser = quantity::duration, requires = "duration", help_heading = "Check")]
    pub every: Option<Duration>,
    /// Repeat them for this long
    #[arg(long = "for", id = "duration", value_name = "TIME", value_parser = quantity::duration, requires = "every", help_heading = "Check")]
    pub duration: Option<Duration>,
    /// Require what this file lists; exit code 6 if something is not reached (docs/accept.md)
    #[arg(long, value_name = "FILE", help_heading = "Check")]
    pub accept: Option<PathBuf>,
    /// Judge hosts and nodes by this plan of `pgfathom plan`, too: space, rates, tablespaces, settings
    #[arg(long, value_name = "FILE", help_heading = "Check")]
    pub plan: Option<PathBuf>,
    /// Serve as the probe of another check, over stdin and stdout
    #[arg(long, hide = true)]
    pub probe: bool,
    /// This program is a copy: remove it
    #[arg(long, hide = true, requires = "probe")]
    pub remove_program: bool,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// What measures disks and network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Tools {
    /// The probe of pgfathom; other tools only where it cannot run
    Own,
    /// fio and iperf3 where they are installed
    Installed,
}

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Skipped {
    /// Pairs of hosts
    Network,
    /// Memory
    Memory,
    /// Processors
    Processor,
}

fn block(text: &str) -> Result<u64, ValueError> {
    let bytes = quantity::size_bytes(text)?;
    if bytes % BLOCK_BYTES.0 != 0 || bytes > BLOCK_BYTES.1 {
        return Err(ValueError::new(
            format!("{text:?} is no multiple of 4KiB up to 16MiB"),
            "write 4KiB, 8KiB, 16KiB, ...",
        ));
    }
    Ok(bytes)
}

fn depth(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        depth if depth <= DEPTH_MAX => Ok(depth),
        _ => Err(ValueError::new(format!("{text:?} is more than 256"), "write numbers as 1,8,32")),
    }
}

impl Check {
    /// Checks, or serves as a probe.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if self.probe {
            if self.remove_program {
                remove_program();
            }
            serve(std::io::stdin(), std::io::stdout());
            return Ok(Exit::Ok);
        }
        let connection = &self.connection;
        let has_target = connection.cluster.is_some()
            || [
                &connection.target,
                &connection.host,
                &connection.port,
                &connection.username,
                &connection.dbname,
            ]
            .iter()
            .any(|flag| flag.is_some());
        if let Some((every, all)) = self.every.zip(self.duration)
            && all <= every
        {
            return Err(Failure::usage(
                "check: --for is not longer than --every: it would measure only once",
            )
            .hint("write --every 10m --for 24h, or omit both"));
        }
        let plan = Plan {
            address: has_target.then(|| connection.address()).transpose()?,
            host_files: self.hosts,
            hosts: self.ssh,
            ways: Ways { ssh: self.ssh_program, program: self.program, may_copy: self.copy_program },
            disks: self.disk,
            size_bytes: self.size,
            time: self.probe_time,
            block_bytes: self.block,
            depths: self.depths,
            tests: Tests {
                network: !self.skip.contains(&Skipped::Network),
                memory: !self.skip.contains(&Skipped::Memory),
                processor: !self.skip.contains(&Skipped::Processor),
            },
            one_pair_at_a_time: self.one_pair_at_a_time,
            prefers_tools: self.tools == Tools::Installed,
            repeat: self.every.zip(self.duration),
            accept: self.accept,
            planned: self.plan.as_deref().map(app::plan::open).transpose()?.map(Box::new),
            directory: self.directory.output_dir,
        };
        plan.run(context)
    }
}
