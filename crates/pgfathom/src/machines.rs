//! The flags of `watch` about hosts and about evidence.

use app::machines::{Evidence, Machines, RemoteHost};
use app::quantity::ValueError;
use clap::Args;
use std::path::PathBuf;
use watch::bundle::redact::Redaction;
use watch::perf::Mode;

/// Which machines, and what of them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Hosts")]
pub struct MachineFlags {
    /// Also monitor another host, through ssh: HOST, USER@HOST, or HOST=NODE,... for the nodes that run on it [default: those with that host name
    /// in their connection]; may be repeated
    #[arg(long, value_name = "HOST")]
    pub ssh: Vec<RemoteHost>,
    /// Record stacks of all CPUs: auto (around anomalies), always, off
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = mode)]
    pub perf: Mode,
    /// Read a copy of /proc and /sys below this folder instead of those of this host
    #[arg(long, value_name = "DIR", conflicts_with = "no_host")]
    pub sysroot: Option<PathBuf>,
}

/// How evidence is exported.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Evidence")]
pub struct EvidenceFlags {
    /// Pack the run into one archive, for analysis elsewhere [default: RUN.tar.gz]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub bundle: Option<Option<PathBuf>>,
    /// Remove these from the archive: hosts (names of hosts, nodes, users, databases), sql (statements), settings
    #[arg(long, value_name = "WORDS", value_parser = redaction, requires = "bundle")]
    pub redact: Option<Redaction>,
    /// Write a core dump of this server process at the end, beside the run and never into the archive: it contains rows and passwords. May be
    /// repeated
    #[arg(long, value_name = "PID")]
    pub core: Vec<u32>,
}

impl MachineFlags {
    /// What the flags select.
    pub fn value(self) -> Machines {
        Machines { ssh: self.ssh, perf: self.perf, sysroot: self.sysroot }
    }
}

impl EvidenceFlags {
    /// What the flags select.
    pub fn value(self) -> Evidence {
        Evidence { bundle: self.bundle, redact: self.redact, core: self.core }
    }
}

fn mode(word: &str) -> Result<Mode, ValueError> {
    word.parse()
        .map_err(|_| ValueError::new(format!("{word:?} is not known"), "choose one of auto, always, off"))
}

fn redaction(words: &str) -> Result<Redaction, ValueError> {
    words.parse().map_err(|why: String| ValueError::new(why, "choose from hosts,sql,settings"))
}
