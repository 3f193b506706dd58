//! `load tpcc`: the nine tables of TPC-C.

use super::{Load, Watcher, by_node, cpus, describe, fields, on_disk, stop_of};
use crate::cli::Format;
use crate::context::Context;
use crate::failure::{Explained, Failure};
use crate::recording::Recording;
use crate::{fingerprint, terminal};
use load::tpcc::{TpccDataset, TpccOptions};
use record::{Exit, State};
use serde_json::json;

impl Load {
    /// Fills the target with TPC-C warehouses and writes the run directory.
    ///
    /// # Errors
    /// When the flags contradict what is there, or the target cannot be filled.
    pub(super) fn run_tpcc(self, context: &Context) -> Result<Exit, Failure> {
        let options = self.tpcc_options()?;
        options.check()?;
        let cluster = self.connection.resolve_cluster_of(context)?;
        load::tpcc::check_cluster(&cluster, &options)?;
        // The target comes first.
        let spec = cluster.nodes[0].spec.clone();
        let mut control = target::control::connect(&spec)?;
        let recording = Recording::begin(context, &self.directory, "load", "tpcc")?;
        self.watching.begin(&recording, &cluster.nodes);
        let mut fingerprint = fingerprint::take(&mut control, &spec);
        fingerprint.engine = cluster.engine.name().to_string();
        drop(control);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let step = recording.dir().begin_step("load", "tpcc")?;
        recording.keep(recording.dir().edit_step(&step, |step| {
            step.parameters = fields(json!({
                "streams": options.streams,
                "warehouses": options.warehouses,
                "foreign_keys": options.foreign_keys,
                "fillfactor": options.fillfactor,
                "nodes": cluster.is_clustered().then(|| cluster.data_nodes().count()),
            }));
        }));
        let stop = stop_of(context);
        let progress = terminal::Progress::new(&context.terminal, self.progress);
        let mut observer = Watcher { context, recording: &recording, step: &step, progress };
        let loaded = load::tpcc::load_tpcc_on(&cluster, &options, &stop, &mut observer);
        context.terminal.end_progress();
        let report = match loaded {
            Ok(report) => report,
            Err(error) if error.exit() == Exit::Usage => {
                recording.discard();
                return Err(error.into());
            }
            Err(error) => {
                recording.fail(&step, &error);
                return Err(error.into());
            }
        };
        let found = target::control::connect(&spec).ok();
        let found = found.and_then(|mut control| load::tpcc::find(&mut *control).ok().flatten());
        recording.keep(recording.dir().edit_step(&step, |step| {
            describe(step, &report);
            step.dataset = found.as_ref().map(dataset).or(step.dataset.take());
        }));
        let complete = matches!(report.outcome, load::Outcome::Complete | load::Outcome::AlreadyComplete);
        let state = if complete { State::Finished } else { State::Interrupted };
        recording.keep(recording.dir().end_step(&step, state));
        if context.format == Format::Text {
            context.terminal.data(&recording.step_line(&step)?);
            context.terminal.data(&on_disk(&report));
            if !report.nodes.is_empty() {
                context.terminal.data(&by_node(&report));
            }
        }
        if report.outcome == load::Outcome::AlreadyComplete {
            context.terminal.say("every row was there already; nothing was done");
        }
        if let Some(advice) = report.advice() {
            context.terminal.say(&advice);
        }
        recording.finish(state)?;
        Ok(if state == State::Interrupted { Exit::Interrupted } else { Exit::Ok })
    }

    fn tpcc_options(&self) -> Result<TpccOptions, Failure> {
        let sized_otherwise = [
            (self.rows.is_some(), "--rows"),
            (self.size.is_some(), "--size"),
            (self.method.is_some(), "--method"),
            (self.chunk_rows.is_some(), "--chunk-rows"),
            (!self.tablespaces.is_empty(), "--tablespaces"),
            (self.unlogged, "--unlogged"),
            (self.segment.is_some(), "--segment"),
            (self.via.is_some(), "--via"),
            (self.keep_free.is_some(), "--keep-free"),
            (self.deadline.is_some(), "--deadline"),
        ];
        if let Some((_, flag)) = sized_otherwise.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!("{flag} is for load ycsb"))
                .hint("load tpcc is sized by warehouses: pgfathom load tpcc -s 10 DBNAME"));
        }
        let Some(warehouses) = self.scale else {
            return Err(Failure::usage("load tpcc: -s/--scale is missing")
                .hint("the number of warehouses, about 100 MB each: pgfathom load tpcc -s 10 DBNAME"));
        };
        let number = |flag: &str, value: u64| {
            u32::try_from(value).map_err(|_| {
                Failure::usage(format!("{flag}: the number is too large")).hint("give a smaller number")
            })
        };
        let streams = match self.jobs {
            Some(jobs) => number("-j/--jobs", jobs)? as usize,
            None => cpus(),
        };
        Ok(TpccOptions {
            streams,
            seed: self.seed,
            foreign_keys: self.foreign_keys,
            fillfactor: self.fillfactor.map(|percent| number("--fillfactor", percent)).transpose()?,
            restart: self.restart,
            force: self.force.clone(),
            tablespace: self.tablespace.clone(),
            partitions: self.partitions.map(|partitions| number("--partitions", partitions)).transpose()?,
            ..TpccOptions::new(number("-s/--scale", warehouses)?)
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
