//! Watching beside a verb that works: the sampler that a recording carries.

use crate::recording::Recording;
use ::watch::perf::Mode;
use ::watch::{Board, Collect, Options, Sampler, collectors, machines};
use connect::ConnSpec;
use engines::{Cluster, ClusterNode};
use std::sync::Arc;

/// Whether to sample the servers, their logs and this host once a second while a verb works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watching {
    /// Yes
    #[default]
    On,
    /// No
    Off,
}

impl Watching {
    /// Begins to sample these nodes and this machine into the recording, until it is closed. What cannot be sampled is reported in the run
    /// directory; it never stops the work.
    pub fn begin(self, recording: &Recording<'_>, nodes: &[ClusterNode]) {
        if self == Watching::On {
            let board = Arc::new(Board::new());
            let collectors = collectors::of(nodes, &board);
            self.sample(recording, &board, collectors);
        }
    }

    fn sample(self, recording: &Recording<'_>, board: &Arc<Board>, mut collectors: Vec<Box<dyn Collect>>) {
        collectors.extend(machines::here(
            &collectors::host_name(),
            board,
            None,
            Mode::Auto,
            recording.path(),
        ));
        match Sampler::start(recording.shared_dir(), Options::default(), collectors) {
            Ok(sampler) => recording.carry(sampler),
            Err(error) => {
                recording
                    .context()
                    .terminal
                    .warn(&format!("monitoring is off: cannot start a thread: {error}"));
            }
        }
    }

    /// The same for one server, and all that its catalog leads to: what sessions at one node wait for may lie on another.
    pub(crate) fn begin_single(self, recording: &Recording<'_>, spec: &ConnSpec) {
        if self == Watching::On {
            let board = Arc::new(Board::new());
            let collectors = match Cluster::survey(spec) {
                Ok(survey) => collectors::of_survey(&survey, &board),
                Err(_) => collectors::of(&Cluster::single(spec.clone()).nodes, &board),
            };
            self.sample(recording, &board, collectors);
        }
    }
}
