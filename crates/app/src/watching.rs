//! Watching beside a verb that works: the sampler that a recording carries.

use crate::recording::Recording;
use ::watch::perf::Mode;
use ::watch::{Board, Options, Sampler, collectors, machines};
use connect::ConnSpec;
use engines::Cluster;
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
    /// Begins to sample the cluster's nodes and this machine into the recording, until it is closed. Of one server, `spec`, it samples all
    /// that its catalog leads to: what sessions at one node wait for may lie on another. What cannot be sampled is reported in the run directory; it
    /// never stops the work.
    pub(crate) fn begin(self, recording: &Recording<'_>, spec: &ConnSpec, cluster: Option<&Cluster>) {
        if self == Watching::Off {
            return;
        }
        let board = Arc::new(Board::new());
        let single = Cluster::single(spec.clone());
        let mut collectors = match cluster {
            Some(cluster) => collectors::of(&cluster.nodes, &board),
            None => match Cluster::survey(spec) {
                Ok(survey) => collectors::of_survey(&survey, &board, watch::Planning::default()),
                Err(_) => collectors::of(&single.nodes, &board),
            },
        };
        collectors.extend(collectors::of_poolers(&cluster.unwrap_or(&single).nodes, &[], &board));
        collectors.extend(machines::here(
            &collectors::host_name(),
            &board,
            None,
            Mode::Auto,
            &recording.place(),
        ));
        match Sampler::start(recording.shared_dir(), Options::default(), collectors) {
            Ok(sampler) => recording.carry(sampler),
            Err(error) => {
                let message = format!("monitoring is off: cannot start a thread: {error}");
                recording.context().terminal.warn(&message);
            }
        }
    }
}
