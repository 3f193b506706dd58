//! `run`: drive transactions and measure them. pgbench's words where pgbench has them.

mod advice;
mod assembled;
mod families;
mod guard;
pub(crate) mod measure;
pub(crate) mod mix;
mod nodes;
mod prepare;
pub mod route;
mod scripts;
mod search;
pub mod series;
mod sessions;
mod settle;
mod silence;
pub mod sweep;

pub use families::{needs_target, workload_meant};
pub use mix::list;
pub use sessions::Sessions;

use crate::connection::{Address, followed, users_relation};
use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::prove::commits::Commits;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Opening, Outcome, Target, in_steps};
use crate::watching::Watching;
use connect::ConnSpec;
use connect::control::Control;
use engines::Cluster;
use record::{Exit, StepId};
use run::engine::poller;
use run::script::QueryMode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use workloads::driving::Value;

/// Sessions that one worker thread is given unless -j is given.
const SESSIONS_PER_WORKER: u64 = 32;
/// How long a run lasts without -T and -t.
const TIME_DEFAULT: Duration = Duration::from_secs(10);
/// Attempts at a transaction that meets a deadlock or a serialization failure, unless a plan has another value.
const MAX_TRIES_DEFAULT: u64 = 10;

/// What to drive, how hard and how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// Built-in workloads with their weights.
    pub builtin: Vec<Weighted>,
    /// Script files with their weights.
    pub file: Vec<Weighted>,
    /// Variables of scripts.
    pub define: Vec<Definition>,
    /// The variable :scale of scripts.
    pub scale: Option<u64>,
    /// Do not vacuum pgbench's tables before the run.
    pub no_vacuum: bool,
    /// The nodes that sessions connect to, and whose rows they read.
    pub route: route::Route,
    /// Numbers of sessions; several make a sweep.
    pub client: Sessions,
    /// Worker threads; `None`: as many as the sessions need.
    pub jobs: Option<u64>,
    /// How long to measure; `None` without `transactions`: ten seconds.
    pub time: Option<Duration>,
    /// Transactions per session, instead of a time.
    pub transactions: Option<u64>,
    /// Mean rate over all sessions in transactions per second; `None`: each session starts its next transaction when the last one is done.
    pub rate: Option<f64>,
    /// Arrivals at equal gaps instead of Poisson arrivals.
    pub regular: bool,
    /// Transactions slower than this are counted.
    pub latency_limit: Option<Duration>,
    /// Drive without measuring first.
    pub warmup: Duration,
    /// Attempts at a transaction; 0: until it succeeds or the time is over.
    pub max_tries: u64,
    /// Seed of every random choice; `None`: one from the clock.
    pub random_seed: Option<u64>,
    /// How statements are sent; `None`: as the workload does by itself.
    pub protocol: Option<Protocol>,
    /// Messages of a prepared statement.
    pub wire: wire::prepared::Wire,
    /// How workers wait for sockets.
    pub poller: poller::Choice,
    /// The flags of benchmarks, by their names.
    pub families: BTreeMap<&'static str, Value>,
    /// What makes several runs of it.
    pub sweep: sweep::Options,
    /// What a run prepares for its steps.
    pub prepared: Prepared,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    pub watching: Watching,
    /// The plan of this run, for the run directory.
    pub planned: Option<Box<record::plan::Plan>>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// A plan for this target with one session. It drives nothing until `builtin` or `file` names a workload.
    pub fn new(address: Address) -> Plan {
        Plan {
            address,
            builtin: Vec::new(),
            file: Vec::new(),
            define: Vec::new(),
            scale: None,
            no_vacuum: false,
            route: route::Route::default(),
            client: Sessions::one(1),
            jobs: None,
            time: None,
            transactions: None,
            rate: None,
            regular: false,
            latency_limit: None,
            warmup: Duration::ZERO,
            max_tries: MAX_TRIES_DEFAULT,
            random_seed: None,
            protocol: None,
            wire: wire::prepared::Wire::Libpq,
            poller: poller::Choice::Auto,
            families: BTreeMap::new(),
            sweep: sweep::Options::default(),
            prepared: Prepared::default(),
            progress: None,
            watching: Watching::On,
            planned: None,
            directory: None,
        }
    }
}

/// What a run prepares for its steps; nothing at its begin.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The workload, once it has been read.
    scripts: scripts::Once,
    /// What stands in front of the progress of a step.
    title: String,
    /// It is a step of a sweep.
    is_step: bool,
}

/// How statements are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// One text per statement, with the values in it
    Simple,
    /// Parsed and bound every time
    Extended,
    /// Parsed once per session, bound every time
    Prepared,
}

impl Protocol {
    /// The word after -M.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
        }
    }

    /// As scripts have it.
    fn mode(self) -> QueryMode {
        match self {
            Protocol::Simple => QueryMode::Simple,
            Protocol::Extended => QueryMode::Extended,
            Protocol::Prepared => QueryMode::Prepared,
        }
    }
}

impl Plan {
    /// Drives the target and writes the run directory.
    ///
    /// # Errors
    /// When the plan or its scripts are wrong, or no session could start.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let address = self.address.clone();
        address.explained(self.driven(context))
    }

    fn driven(mut self, context: &Context) -> Result<Exit, Failure> {
        // Scripts may come from a pipe that nothing writes, tables may be locked: no reason to go on after a signal.
        let idle = context.stop.nothing_in_flight();
        self.check_sweep()?;
        if self.is_sweep() {
            self.check_families_of_sweep()?;
        }
        if self.is_sweep() { self.check_first_step() } else { self.check_workload() }?;
        for taken in self.builtin.iter().filter_map(|builtin| mix::taken_for(&builtin.name)) {
            context.terminal.say(&taken);
        }
        if let Some((family, _)) = self.simulated() {
            drop(idle);
            return self.run_simulated(family, context);
        }
        let seeks_owner = if self.is_sweep() { self.first_step_seeks_owner() } else { self.seeks_owner() }?;
        let spec = self.route.resolve(&self.address, context, seeks_owner)?;
        if let Some((family, search)) = self.search() {
            drop(idle);
            return self.run_search(family, search, context, &spec);
        }
        if self.is_sweep() {
            return self.run_sweep(context, &spec, idle);
        }
        let mut control = connect::control::connect_shared(&spec)?;
        let seed = self.seed();
        let commits = Commits::of(&self.address, context)?;
        let mut assembled = self.assemble(&mut control, &spec, seed, context.terminal.as_ref())?;
        assembled.audits.extend(commits.map(|commits| (0, Box::new(commits) as _)));
        let recording = self.open(context, &assembled.name, &spec, &mut control)?;
        let unbegun = recording.discard_on_forced_exit();
        in_steps(recording, |recording| {
            if assembled.uses_pgbench_tables && !self.no_vacuum {
                vacuum_pgbench(&mut control, &spec).map_err(NoOutcome::Refused)?;
            }
            let step = recording.dir().begin_step("run", &assembled.name)?;
            drop((idle, unbegun));
            match self.measure(recording, &step, &spec, Some(&mut control), assembled, seed) {
                Ok(measured) => Ok(Outcome::page(measured.state, measured.exit)),
                // The run failed, but what was measured until then is recorded.
                Err(failure) if failure.exit() == Exit::Errors => Err(NoOutcome::Failed(failure)),
                Err(failure) => Err(NoOutcome::Refused(failure)),
            }
        })
    }

    /// Opens the run directory, and begins to sample unless that is off.
    pub(super) fn open<'c>(
        &self,
        context: &'c Context,
        name: &str,
        spec: &ConnSpec,
        control: &mut Control,
    ) -> Result<Recording<'c>, Failure> {
        let cluster = self.sampled_cluster(context)?;
        let target = Target { spec, cluster: cluster.as_ref() };
        let recording = self.opening(name).open(context, target, control)?;
        if let Some(planned) = &self.planned {
            recording.keep(planned.write(&recording.place()));
        }
        Ok(recording)
    }

    /// The nodes of a cluster file that are sampled: each server once, and with the role that it has now, as sessions find it.
    fn sampled_cluster(&self, context: &Context) -> Result<Option<Cluster>, Failure> {
        if self.address.file().is_none() {
            return Ok(None);
        }
        match self.route.cluster() {
            Some(cluster) => Ok(Some(cluster.clone())),
            None => Ok(self.address.cluster_of_file()?.map(|cluster| followed(cluster, context))),
        }
    }

    fn opening<'a>(&'a self, name: &'a str) -> Opening<'a> {
        Opening::new("run", name, self.directory.as_deref()).watched(self.watching)
    }

    /// Drives the target as one step of a run directory; the step is ended, except after an error.
    ///
    /// # Errors
    /// When the target lacks the data, or no session could start.
    pub(crate) fn step(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        spec: &ConnSpec,
        control: &mut Control,
    ) -> Result<Exit, Failure> {
        let seed = self.seed();
        let assembled = self.assemble(control, spec, seed, recording.context().terminal.as_ref())?;
        Ok(self.measure(recording, step, spec, Some(control), assembled, seed)?.exit)
    }

    fn workers(&self) -> usize {
        match self.jobs {
            Some(jobs) => jobs as usize,
            None => (self.client.first().div_ceil(SESSIONS_PER_WORKER) as usize).clamp(1, cpus()),
        }
    }

    /// The seed requested, or one from the clock: it stands in run.json, so any run can be repeated.
    fn seed(&self) -> u64 {
        self.random_seed.unwrap_or_else(record::clock::wall_us)
    }
}

/// What pgbench does before its built-in scripts, but without emptying pgbench_history: rows are the user's.
fn vacuum_pgbench(control: &mut connect::control::Control, spec: &ConnSpec) -> Result<(), Failure> {
    for table in ["pgbench_branches", "pgbench_tellers"] {
        let relation = users_relation(spec, table)?;
        let vacuumed =
            control.outside().and_then(|client| client.batch_execute(&format!("vacuum {relation}")));
        vacuumed.map_err(|error| {
            Failure::caused(format!("cannot vacuum {table}"), error).hint("omit the vacuum with -n")
        })?;
    }
    Ok(())
}

/// A workload and its share: `ycsb-a@3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weighted {
    /// Name or file.
    pub name: String,
    /// Share of it among all weights.
    pub weight: u64,
}

/// `-D name=value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Variable.
    pub name: String,
    /// Value, kept as text.
    pub value: String,
}

impl Weighted {
    /// The workload or file of this name, alone.
    pub fn one(name: &str) -> Weighted {
        Weighted { name: name.to_string(), weight: 1 }
    }
}
