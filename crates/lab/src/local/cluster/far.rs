//! The relays of a cluster that is being made or started again: who is far away from whom.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::super::distance::{Detour, Distances};
use super::super::relays::{Line, Relays};
use super::super::server::Server;
use super::super::{LocalError, folder};
use super::UpOptions;
use super::ports::Ports;
use connect::cluster_file::ClusterFile;

/// The relays of a cluster, and the program that runs them.
pub(super) struct Far {
    relays: Relays,
    lines: Vec<Line>,
    program: Option<PathBuf>,
}

impl Far {
    /// Gives each server a port for everyone who is far away from it, and starts the relays behind these ports.
    pub(super) fn lay(
        dir: &Path,
        servers: &mut [Server],
        copies: &mut [Server],
        ports: &Mutex<Ports>,
        options: &UpOptions,
    ) -> Result<Far, LocalError> {
        detour(servers, copies, ports, options)?;
        let program = options.program.clone();
        let mut far = Far { relays: Relays::of(dir), lines: Vec::new(), program };
        far.settle(servers.iter().chain(&*copies))?;
        Ok(far)
    }

    /// Starts the relays anew if a server has another port than before.
    pub(super) fn settle<'a>(&mut self, servers: impl Iterator<Item = &'a Server>) -> Result<(), LocalError> {
        let lines: Vec<Line> = servers.flat_map(Server::relays).collect();
        if lines == self.lines {
            return Ok(());
        }
        let program = program(self.program.as_deref())?;
        if !self.lines.is_empty() {
            self.relays.kill()?;
        }
        self.lines = lines;
        self.relays.make(&self.lines, program)
    }
}

fn program(program: Option<&Path>) -> Result<&Path, LocalError> {
    program.ok_or_else(|| LocalError::Topology {
        problem: "the path of this program is unknown, so it cannot run the relays of --delay".to_owned(),
        hint: "start pgfathom by its full path".to_owned(),
    })
}

/// Gives each server a port for everyone who is far away from it.
fn detour(
    servers: &mut [Server],
    copies: &mut [Server],
    ports: &Mutex<Ports>,
    options: &UpOptions,
) -> Result<(), LocalError> {
    let names: Vec<String> = servers.iter().chain(copies.iter()).map(|server| server.name.clone()).collect();
    let addresses = options.topology.addresses();
    let mut ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
    for server in servers.iter_mut().chain(copies) {
        for (from, round_trip) in options.distances.ways_to(&server.name, &names, addresses) {
            let port = ports.next()?;
            folder::check_socket_path(&server.socket_dir, port)?;
            server.detours.push(Detour { from, port, round_trip });
        }
    }
    Ok(())
}

/// Refuses other distances than those that the cluster was made with: the nodes know each other by the ports of its relays.
pub(super) fn check_same(dir: &Path, file: &ClusterFile, wanted: &Distances) -> Result<(), LocalError> {
    let has = file.made.as_ref().and_then(|made| made.delay.as_deref());
    let wants = wanted.describe();
    if wants.is_empty() || has == Some(wants.as_str()) {
        return Ok(());
    }
    let has = has.map_or("without --delay".to_owned(), |delay| format!("with --delay {delay}"));
    Err(LocalError::Topology {
        problem: format!("the cluster in {} was made {has}, not with --delay {wants}", dir.display()),
        hint: format!(
            "choose another --dir, omit --delay, or make it again: pgfathom down {}",
            dir.display()
        ),
    })
}

/// Starts the relays of a cluster that has some and whose relays have ended; false if there is nothing to start.
pub(super) fn start_again(dir: &Path, options: &UpOptions) -> Result<bool, LocalError> {
    let relays = Relays::of(dir);
    if !relays.exist() || relays.are_up() {
        return Ok(false);
    }
    relays.start(program(options.program.as_deref())?)?;
    Ok(true)
}
