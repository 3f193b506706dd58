//! `load tpcc`: the nine tables of TPC-C.

use super::{Plan, Watcher, describe, outcome, stop_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::recording::fields;
use crate::terminal;
use load::tpcc::{TpccDataset, TpccOptions};
use record::{Exit, State};
use serde_json::json;

impl Plan {
    /// Fills the target with TPC-C warehouses and writes the run directory.
    ///
    /// # Errors
    /// When the flags contradict what is there, or the target cannot be filled.
    pub(super) fn run_tpcc(&self, context: &Context, options: &TpccOptions) -> Result<Exit, Failure> {
        options.check()?;
        let cluster = self.address.cluster(context)?;
        load::tpcc::check_cluster(&cluster, options)?;
        // The target comes first.
        let spec = cluster.nodes[0].spec.clone();
        let opening = self.opening("tpcc");
        let mut control = connect::control::connect(&spec)?;
        let recording = opening.open(context, &cluster, (0, &mut control))?;
        drop(control);
        opening.in_one_step(recording, |recording, step| {
            recording.keep(recording.dir().edit_step(step, |step| {
                step.parameters = fields(json!({
                    "streams": options.streams,
                    "warehouses": options.warehouses,
                    "foreign_keys": options.foreign_keys,
                    "fillfactor": options.fillfactor,
                    "nodes": cluster.is_clustered().then(|| cluster.data_nodes().count()),
                }));
            }));
            let stop = stop_of(context);
            let progress = terminal::Progress::new(context.terminal.as_ref(), self.progress);
            let mut observer = Watcher { context, recording, step, progress };
            let loaded = load::tpcc::load_tpcc_on(&cluster, options, &stop, &mut observer);
            context.terminal.end_progress();
            let report = loaded?;
            let found = connect::control::connect(&spec).ok();
            let found = found.and_then(|mut control| load::tpcc::find(&mut *control).ok().flatten());
            recording.keep(recording.dir().edit_step(step, |step| {
                describe(step, &report);
                step.dataset = found.as_ref().map(dataset).or(step.dataset.take());
            }));
            let complete = matches!(report.outcome, load::Outcome::Complete | load::Outcome::AlreadyComplete);
            let (state, exit) = match complete {
                true => (State::Finished, Exit::Ok),
                false => (State::Interrupted, Exit::Interrupted),
            };
            recording.keep(recording.dir().end_step(step, state));
            Ok(outcome(&report, state, exit))
        })
    }
}

/// The dataset as the run directory names it, the same for every verb that works on it.
pub fn dataset(found: &TpccDataset) -> record::model::Dataset {
    record::model::Dataset {
        name: found.dataset.name.clone(),
        format_version: found.dataset.format,
        seed: found.dataset.spec.seed,
        rows: found.dataset.rows,
        parameters: fields(json!({
            "schema": found.dataset.schema_name,
            "warehouses": found.warehouses,
            "c_load": found.c_load,
            "foreign_keys": found.foreign_keys,
            "fillfactor": found.fillfactor,
            "partitions": (found.dataset.partitions > 0).then_some(found.dataset.partitions),
        })),
    }
}
