//! The collectors of machines, put together.

use crate::board::Board;
use crate::collect::Collect;
use crate::host::LocalHost;
use crate::perf::{self, Mode, Stacks};
use crate::ssh::{Remote, RemoteHost};
use crate::stuck::Stuck;
use std::path::Path;
use std::sync::Arc;

/// The collectors of the local host: its counters, its stuck server processes, and its stacks unless `mode` is off. With a
/// recorded tree there are only counters.
pub fn here(
    host: &str,
    board: &Arc<Board>,
    sysroot: Option<&Path>,
    mode: Mode,
    run_dir: &Path,
) -> Vec<Box<dyn Collect>> {
    if let Some(root) = sysroot {
        return vec![Box::new(LocalHost::recorded(host, Arc::clone(board), root))];
    }
    let local = LocalHost::new(host, Arc::clone(board));
    let pulse = local.pulse();
    let mut all: Vec<Box<dyn Collect>> = vec![Box::new(local), Box::new(Stuck::new(host, Arc::clone(board)))];
    if mode != Mode::Off {
        let options = perf::Options::new(host, mode, run_dir);
        all.push(Box::new(Stacks::new(options, Arc::clone(board), pulse)));
    }
    all
}

/// The collector of a host reached by ssh.
pub fn there(remote: Remote, board: &Arc<Board>) -> Box<dyn Collect> {
    Box::new(RemoteHost::new(remote, Arc::clone(board)))
}
