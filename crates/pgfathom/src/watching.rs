//! Watching beside a verb that works: the flag, and the sampler that a recording carries.

use crate::recording::Recording;
use clap::{Args, ValueEnum};
use std::sync::Arc;
use target::{Cluster, ClusterNode, ConnSpec};
use watch::perf::Mode;
use watch::{Board, Collect, Options, Sampler, lineup, machines};

/// Whether to watch meanwhile.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Watching {
    /// Sample the server, its log and this machine once a second meanwhile: on, off
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
    /// Begins to sample these nodes and this machine into the recording, until it is closed. What cannot be sampled is said in the run
    /// directory; it never stops the work.
    pub fn begin(self, recording: &Recording<'_>, nodes: &[ClusterNode]) {
        if self.watch == Switch::On {
            let board = Arc::new(Board::new());
            let collectors = lineup::of(nodes, &board);
            self.sample(recording, &board, collectors);
        }
    }

    fn sample(self, recording: &Recording<'_>, board: &Arc<Board>, mut collectors: Vec<Box<dyn Collect>>) {
        collectors.extend(machines::here(&lineup::host_name(), board, None, Mode::Auto, recording.path()));
        match Sampler::start(recording.shared_dir(), Options::default(), collectors) {
            Ok(sampler) => recording.carry(sampler),
            Err(error) => {
                recording
                    .context()
                    .terminal
                    .warn(&format!("nothing is watched: cannot start a thread: {error}"));
            }
        }
    }

    /// The same for one server, and all that its catalog leads to: what sessions at one node wait for may lie on another.
    pub fn begin_single(self, recording: &Recording<'_>, spec: &ConnSpec) {
        if self.watch == Switch::On {
            let board = Arc::new(Board::new());
            let collectors = match Cluster::survey(spec) {
                Ok(survey) => lineup::of_survey(&survey, &board),
                Err(_) => lineup::of(&Cluster::single(spec.clone()).nodes, &board),
            };
            self.sample(recording, &board, collectors);
        }
    }
}
