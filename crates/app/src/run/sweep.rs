//! R0's method as one command: statistics first, then one step per number of sessions, each from a settled start, and one report over
//! all of them. A step that fails, is invalid or is never begun does not lose the others.

use super::families::pure;
use super::prepare::Nodes;
use super::sessions::Sessions;
use super::{Plan, Weighted, mix, vacuum_pgbench};
use crate::context::Context;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Outcome, in_steps};
use crate::stop::IdleGuard;
use crate::{fingerprint, human};
use connect::ConnSpec;
use connect::control::Control;
use engines::Cluster;
use record::sweep::{self, Place};
use record::{Exit, State, StepId};
use std::time::Duration;

/// How far the last windows of a warm-up may lie apart, in percent, unless `--settle` is given.
const SETTLE_PERCENT_DEFAULT: f64 = 5.0;
/// Most steps of one sweep: more would take days, and more page than anybody reads.
const STEPS_MAX: u64 = 500;
/// Percent of a pure mix.
const WHOLE: u64 = 100;
/// Phase of a step before its warm-up.
const PHASE_CHECKPOINT: &str = "checkpoint";

/// What makes a sweep of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Percents of reads by key, the rest are updates, in place of a workload; each is driven with every number of sessions.
    pub read_percents: Option<Vec<u64>>,
    /// Passes over all steps; every second one goes backwards.
    pub repeat: u64,
    /// End a warm-up as soon as throughput stays within this many percent; 0: use the whole warm-up; `None`: 5.
    pub settle: Option<f64>,
    /// Do not gather statistics of the workload's tables first.
    pub no_analyze: bool,
    /// Do not request a checkpoint before each step.
    pub no_checkpoint: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { read_percents: None, repeat: 1, settle: None, no_analyze: false, no_checkpoint: false }
    }
}

/// One step to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ahead {
    sessions: u64,
    read_percent: Option<u64>,
    repeat: u64,
}

/// All steps in the order they are run: mixes side by side, and every second pass backwards, so that what drifts (bloat, caches,
/// other tenants) does not always meet the same end of the curve.
fn order(sessions: &[u64], mixes: &[u64], repeats: u64) -> Vec<Ahead> {
    let mixes: Vec<Option<u64>> =
        if mixes.is_empty() { vec![None] } else { mixes.iter().copied().map(Some).collect() };
    let mut steps = vec![];
    for repeat in 1..=repeats {
        let mut pass: Vec<Ahead> = sessions
            .iter()
            .flat_map(|sessions| {
                mixes.iter().map(move |read_percent| Ahead {
                    sessions: *sessions,
                    read_percent: *read_percent,
                    repeat,
                })
            })
            .collect();
        if repeat % 2 == 0 {
            pass.reverse();
        }
        steps.extend(pass);
    }
    steps
}

impl Plan {
    /// Whether this plan is of more than one run.
    pub(super) fn is_sweep(&self) -> bool {
        self.client.all().len() > 1 || self.sweep.repeat > 1 || self.sweep.read_percents.is_some()
    }

    /// Checks flags that only a sweep has, and those that it cannot have.
    pub(super) fn check_sweep(&self) -> Result<(), Failure> {
        let several = self.client.all().len() > 1;
        if !self.is_sweep() {
            let flags = [
                (self.sweep.settle.is_some(), "--settle"),
                (self.sweep.no_analyze, "--no-analyze"),
                (self.sweep.no_checkpoint, "--no-checkpoint"),
            ];
            return match flags.iter().find(|(given, _)| *given) {
                Some((_, flag)) => Err(Failure::usage(format!(
                    "{flag} applies to a sweep, and this is a single run"
                ))
                .hint(format!("give several numbers of sessions, as -c 1,2,4,...,64, or omit {flag}"))),
                None => Ok(()),
            };
        }
        if several && self.rate.is_some() {
            return Err(Failure::usage("-R fixes the rate that a sweep over sessions measures")
                .hint("omit -R; --repeat N with one number of sessions repeats a run at a fixed rate"));
        }
        let steps = self.steps().len() as u64;
        if steps > STEPS_MAX {
            return Err(Failure::usage(format!("the sweep has {steps} steps, more than {STEPS_MAX}"))
                .hint("use fewer numbers of sessions, mixes or passes"));
        }
        Ok(())
    }

    fn steps(&self) -> Vec<Ahead> {
        order(self.client.all(), self.read_percents(), self.sweep.repeat)
    }

    fn read_percents(&self) -> &[u64] {
        self.sweep.read_percents.as_deref().unwrap_or(&[])
    }

    /// How far the last windows of a warm-up may lie apart; `None`: each takes its whole time.
    pub(super) fn settle_percent(&self) -> Option<f64> {
        Some(self.sweep.settle.unwrap_or(SETTLE_PERCENT_DEFAULT)).filter(|percent| *percent > 0.0)
    }

    /// The plan of one step.
    fn at(&self, ahead: Ahead, seed: u64) -> Plan {
        let mut run = Plan { client: Sessions::one(ahead.sessions), random_seed: Some(seed), ..self.clone() };
        run.prepared.is_step = true;
        if let Some(reads) = ahead.read_percent {
            let share = |name: &str, weight| Weighted { name: name.to_string(), weight };
            let both = pure()
                .into_iter()
                .flat_map(|[read, update]| [share(read, reads), share(update, WHOLE - reads)]);
            run.builtin = both.filter(|share| share.weight > 0).collect();
            // It is not the workload of the flags as they were typed.
            run.prepared.scripts = Default::default();
        }
        run
    }

    /// Checks the workload of the first step, touching no server.
    pub(super) fn check_first_step(&self) -> Result<(), Failure> {
        self.steps().first().map_or(Ok(()), |first| self.at(*first, 0).check_workload())
    }

    /// Whether a workload of the first step looks for the owners of its rows by itself.
    pub(super) fn first_step_seeks_owner(&self) -> Result<bool, Failure> {
        self.steps().first().map_or(Ok(false), |first| self.at(*first, 0).seeks_owner())
    }

    /// Drives all steps, and reports what came of them.
    ///
    /// # Errors
    /// When the target lacks the data, or not a single step could be measured.
    pub(super) fn run_sweep(
        &self,
        context: &Context,
        spec: &ConnSpec,
        idle: IdleGuard,
    ) -> Result<Exit, Failure> {
        let steps = self.steps();
        let seed = self.seed();
        let mut control = connect::control::connect_shared(spec)?;
        let first = self.at(steps[0], seed);
        let tables = first.tables(&mut control)?;
        let name = match self.sweep.read_percents {
            Some(_) => "read-update".to_string(),
            None => first.workload_name()?,
        };
        let recording = self.open(context, &name, spec, &mut control)?;
        let unbegun = recording.discard_on_forced_exit();
        in_steps(recording, |recording| {
            self.warn_of_connections(context, &mut control);
            self.announce(context, steps.len() as u64);
            if matches!(&tables, mix::Tables::Named(tables) if tables.iter().any(|(_, table)| table.starts_with("pgbench_")))
                && !self.no_vacuum
            {
                vacuum_pgbench(&mut control, spec).map_err(NoOutcome::Refused)?;
            }
            drop((idle, unbegun));
            self.drive_steps(recording, spec, (control, &tables), (&steps, seed))
        })
    }

    fn drive_steps(
        &self,
        recording: &Recording<'_>,
        spec: &ConnSpec,
        (mut control, tables): (Control, &mix::Tables),
        (steps, seed): (&[Ahead], u64),
    ) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        let mut nodes = self.nodes(context, spec);
        let analyzed = if self.sweep.no_analyze { vec![] } else { nodes.analyze(tables) };
        if !analyzed.is_empty() {
            context.terminal.detail(&format!("analyzed {}", analyzed.join(", ")));
        }
        let plan = sweep::Plan {
            sessions: self.client.all().to_vec(),
            read_percent: self.read_percents().to_vec(),
            repeats: self.sweep.repeat,
            steps: steps.len() as u64,
            warmup_s: self.warmup.as_secs_f64(),
            settle_percent: self.settle_percent().filter(|_| !self.warmup.is_zero()),
            analyzed,
            checkpoints: false,
            missing: nodes.missing.clone(),
        };
        recording.keep(recording.dir().edit(|run| run.sweep = Some(plan)));
        let mut sweeping = Sweeping { context, recording, spec, nodes, exits: vec![], failure: None };
        for (number, ahead) in steps.iter().enumerate() {
            if context.stop.is_requested() {
                break;
            }
            let wording = format!(
                "step {} of {}, {}: ",
                number + 1,
                steps.len(),
                human::plural(ahead.sessions, "session")
            );
            // Every step draws anew: a repeat with the same draws would repeat the same luck.
            let mut run = self.at(*ahead, seed.wrapping_add(number as u64));
            run.prepared.title = wording;
            sweeping.step(&run, *ahead, &mut control)?;
        }
        let Sweeping { exits, failure, .. } = sweeping;
        if let (Some(failure), [], false) = (failure, exits.as_slice(), context.stop.is_requested()) {
            let why = "no step of the sweep could be measured";
            return Err(NoOutcome::Refused(failure.context(why)));
        }
        if let Ok(bytes) = fingerprint::database_bytes(&mut control) {
            recording.keep(recording.dir().edit(|run| {
                if let Some(target) = &mut run.target {
                    target.database_bytes = Some(bytes);
                }
            }));
        }
        let state = context.state();
        let has_failed = recording.dir().run().steps.iter().any(|step| step.state == State::Failed);
        let exit = match () {
            () if state == State::Interrupted => Exit::Interrupted,
            () if exits.iter().all(|exit| *exit == Exit::Invalid) => Exit::Invalid,
            () if has_failed || exits.contains(&Exit::Errors) => Exit::Errors,
            () => Exit::Ok,
        };
        Ok(Outcome::page(state, exit))
    }

    /// All nodes that take writes; only the one that is entered if the others cannot be found.
    fn nodes(&self, context: &Context, spec: &ConnSpec) -> Nodes {
        let found = match self.address.file() {
            Some(_) => self.address.cluster(context),
            None => Cluster::discover(spec).map_err(Failure::from),
        };
        match found {
            Ok(cluster) => Nodes::of(&cluster),
            Err(failure) => {
                let why = failure.render(false);
                let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
                let mut nodes = Nodes::of(&Cluster::single(spec.clone()));
                nodes.missing.push(format!("only the named node is prepared: {why}"));
                nodes
            }
        }
    }

    /// A step that needs more connections than the server has fails after all the others: better to learn of it at once.
    fn warn_of_connections(&self, context: &Context, control: &mut Control) {
        let most = self.client.most();
        let allowed = control
            .query_one("select pg_catalog.current_setting('max_connections')::int8", &[])
            .map(|row| row.get::<_, i64>(0).unsigned_abs());
        if let Ok(allowed) = allowed
            && most >= allowed
        {
            context.terminal.warn(&format!(
                "steps of {allowed} and more sessions will fail without a pooler: the server's max_connections is {allowed}"
            ));
        }
    }

    fn announce(&self, context: &Context, steps: u64) {
        let each = self.time.unwrap_or(super::TIME_DEFAULT);
        let total = |warmup: Duration| human::seconds((each + warmup).as_secs_f64() * steps as f64);
        let takes = match (self.transactions, self.settle_percent()) {
            (Some(_), _) => String::new(),
            (None, Some(_)) if !self.warmup.is_zero() => {
                format!(", {} to {}", total(Duration::ZERO), total(self.warmup))
            }
            _ => format!(", about {}", total(self.warmup)),
        };
        context.terminal.say(&format!("sweep: {}{takes}", human::plural(steps, "step")));
    }
}

/// A sweep under way.
struct Sweeping<'a> {
    context: &'a Context,
    recording: &'a Recording<'a>,
    spec: &'a ConnSpec,
    nodes: Nodes,
    /// How the measured steps ended.
    exits: Vec<Exit>,
    /// Why the first failed step failed.
    failure: Option<Failure>,
}

impl Sweeping<'_> {
    fn step(&mut self, run: &Plan, ahead: Ahead, control: &mut Control) -> Result<(), Failure> {
        let dir = self.recording.dir();
        let (name, mut word) = match ahead.read_percent {
            Some(reads) => {
                (format!("read/update {reads}/{}", WHOLE - reads), format!("r{reads}u{}", WHOLE - reads))
            }
            None => (run.workload_name()?, run.workload_name()?),
        };
        word.push_str(&format!("-c{}", ahead.sessions));
        if run.sweep.repeat > 1 {
            word.push_str(&format!("-r{}", ahead.repeat));
        }
        let step = dir.begin_step_as("run", &name, &word)?;
        let Ahead { sessions, repeat, read_percent } = ahead;
        dir.edit_step(&step, |step| {
            step.sweep = Some(Place { sessions, repeat, read_percent, ..Place::default() });
        })?;
        if !run.sweep.no_checkpoint {
            self.recording.keep(dir.begin_phase(&step, PHASE_CHECKPOINT).map(|_| ()));
            let (made, missing) = (self.nodes.checkpoint(), self.nodes.missing.clone());
            self.recording.keep(dir.edit(|run| {
                if let Some(plan) = &mut run.sweep {
                    (plan.checkpoints, plan.missing) = (made, missing);
                }
            }));
        }
        match self.drive(run, &step, control) {
            Ok(exit) => self.exits.push(exit),
            // Stopped while its sessions were connecting.
            Err(failure) if failure.exit() == Exit::Interrupted => {
                self.recording.keep(dir.end_step(&step, State::Interrupted));
                return Ok(());
            }
            Err(failure) => self.failed(&step, failure),
        }
        self.context.terminal.say(&self.recording.last_line()?);
        Ok(())
    }

    fn drive(&self, run: &Plan, step: &StepId, control: &mut Control) -> Result<Exit, Failure> {
        if control.is_closed() {
            *control = connect::control::connect_shared(self.spec)?;
        }
        run.step(self.recording, step, self.spec, control)
    }

    fn failed(&mut self, step: &StepId, failure: Failure) {
        self.recording.fail_step(step, &failure.message());
        self.failure.get_or_insert(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_pass_goes_backwards_and_mixes_stand_side_by_side() {
        let all = order(&[1, 2], &[100, 50], 2);
        let wording: Vec<(u64, Option<u64>, u64)> =
            all.iter().map(|step| (step.sessions, step.read_percent, step.repeat)).collect();
        assert_eq!(
            wording,
            [
                (1, Some(100), 1),
                (1, Some(50), 1),
                (2, Some(100), 1),
                (2, Some(50), 1),
                (2, Some(50), 2),
                (2, Some(100), 2),
                (1, Some(50), 2),
                (1, Some(100), 2),
            ]
        );
        let plain: Vec<u64> = order(&[1, 4, 16], &[], 1).iter().map(|step| step.sessions).collect();
        assert_eq!(plain, [1, 4, 16]);
    }
}
