//! What is measured with other tools: `fio` for disks and `iperf3` for the network, on hosts without pgfathom or by request. Their output is
//! kept in the run directory.

mod fio;
mod iperf3;
mod shell;

use crate::hosts::Host;
use crate::link::Ways;
use crate::probe::facts;
use crate::probe::message::DiskPlan;
use record::check::{Disk, Host as Checked, Pair};
use shell::Shell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use watch::Board;
use watch::ssh::RemoteHost;

/// The time for kernel files over ssh.
const FACTS_PATIENCE: Duration = Duration::from_secs(15);
/// The folder of the run directory for the output of tools.
pub const OUTPUTS: &str = "tools";

/// Reads the kernel files of a host over ssh. Whether it could be reached.
pub fn facts(host: &Host, ways: &Ways, checked: &mut Checked, stop: &AtomicBool) -> bool {
    let mut collector = RemoteHost::new(ways.remote(host), Arc::new(Board::new()));
    let is_reached = facts::gather(&mut collector, checked, FACTS_PATIENCE, stop);
    let online = checked.facts.iter().find(|fact| fact.topic == "cpu" && fact.name == "online");
    checked.cpus = online.map_or(0, |fact| crate::host::cpus(&fact.value));
    is_reached
}

/// Whether a host has this program.
pub fn has(host: &Host, ways: &Ways, program: &str, stop: &AtomicBool) -> bool {
    let shell = Shell { host, ways, stop };
    shell
        .run(&format!("command -v {program} >/dev/null 2>&1"), FACTS_PATIENCE)
        .is_ok_and(|printed| printed.status == 0)
}

/// Measures a directory with fio.
pub fn disk(host: &Host, ways: &Ways, plan: &DiskPlan, outputs: &Path, stop: &AtomicBool) -> Disk {
    let shell = Shell { host, ways, stop };
    let mut disk = Disk {
        directory: plan.directory.clone(),
        tool: "fio".to_string(),
        is_direct: true,
        file_bytes: Some(plan.size_bytes),
        ..Disk::default()
    };
    if let Err(why) = fio::measure(&shell, plan, outputs, &mut disk) {
        disk.refused = Some(why);
    }
    disk
}

/// Measures the way between two hosts with iperf3; `None` if one of them has none.
pub fn pair(
    from: &Host,
    to: &Host,
    ways: &Ways,
    time: Duration,
    outputs: &Path,
    stop: &AtomicBool,
) -> Option<Pair> {
    let of = |host| Shell { host, ways, stop };
    match iperf3::measure(&of(from), &of(to), time, outputs) {
        Ok(pair) => Some(pair),
        Err(iperf3::Refused::Absent) => None,
        Err(iperf3::Refused::Failed(why)) => {
            Some(Pair { tool: "iperf3".to_string(), lost: Some(why), ..Pair::default() })
        }
    }
}

/// Keeps the output of a tool; a full disk loses the copy, not the result.
fn keep(outputs: &Path, name: &str, text: &str) {
    let _ = std::fs::create_dir_all(outputs);
    let _ = record::file::replace(&outputs.join(name), text.as_bytes());
}

/// A name for a file: letters and digits stay.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}
