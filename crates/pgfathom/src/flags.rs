//! Flags that several verbs share: the connection, the run directory, and whether to sample the servers during the work.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The database, given as for psql.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Database name, URI (postgresql://...) or 'key=value ...' string; several hosts as for libpq
    #[arg(value_name = "TARGET", conflicts_with_all = ["dbname", "cluster"])]
    pub target: Option<String>,
    /// Host name, address, or directory of the Unix socket
    #[arg(short = 'h', long, value_name = "HOST")]
    pub host: Option<String>,
    /// Port
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<String>,
    /// User name
    #[arg(short = 'U', long, value_name = "NAME")]
    pub username: Option<String>,
    /// Database name, or a connection string
    #[arg(short, long, value_name = "DBNAME")]
    pub dbname: Option<String>,
    /// The cluster described by this file, as `pgfathom up` writes it; -U and -d may be added
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "port"])]
    pub cluster: Option<PathBuf>,
}

/// Where a measuring verb leaves its run directory.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct RunDirectory {
    /// The run directory; it must not exist, or must be empty [default: runs/TIME-VERB-NAME]
    #[arg(short = 'o', long = "output-dir", value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}

/// Whether to sample the servers during the work.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Watching {
    /// Sample the server, its log and this host once a second during the work: on, off
    #[arg(
        long,
        value_name = "ON|OFF",
        value_enum,
        default_value = "on",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub watch: Switch,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Switch {
    /// Yes
    #[default]
    On,
    /// No
    Off,
}

impl Watching {
    /// What the flag selects.
    pub fn value(self) -> app::watching::Watching {
        match self.watch {
            Switch::On => app::watching::Watching::On,
            Switch::Off => app::watching::Watching::Off,
        }
    }
}
