//! `prove ack`, `bank`, ...: promises tested under load and under faults, and their verdicts.

use super::once::once;
use super::suite::{self, Chapter, Source};
use super::testbed::{Needs, Testbed, Wanted};
use super::trial::Trial;
use super::{What, fault_events, history};
use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::recording::{Recording, fields};
use crate::skeleton::{NoOutcome, Opening, Outcome, Target, in_steps};
use ::prove::fault::{self, Fault, Journal, Site, journal};
use ::prove::live::{Isolation, Options, announced, chain};
use ::prove::promise as verdicts;
use connect::conninfo::{self, SessionAttrs, Sources};
use connect::control;
use record::model::Step;
use record::promise::{self, Promise, Standing};
use record::{Exit, State};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Undoes what a proof that was killed has left broken.
pub fn heal(context: &Context) -> Result<Exit, Failure> {
    let healed = journal::heal(&Journal::default_dir());
    let removed = lab::throwaway::remove_orphans();
    for words in &healed.undone {
        context.terminal.data(&format!("healed   {words}"));
    }
    for words in &healed.failed {
        context.terminal.data(&format!("FAILED   {words}"));
    }
    if healed.alive > 0 {
        context.terminal.say(&format!("kept: {}, still running", human::plural(healed.alive, "proof")));
    }
    if removed > 0 {
        context.terminal.say(&format!("removed {}", human::plural(removed as u64, "left throwaway server")));
    }
    if healed.undone.is_empty() && healed.failed.is_empty() {
        context.terminal.data("nothing to undo");
    }
    Ok(if healed.failed.is_empty() { Exit::Ok } else { Exit::CannotTell })
}

/// A cluster that is made for a proof and removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {
    /// One server
    Single,
    /// A primary and a synchronous standby
    Replicated,
    /// Two shards by postgres_fdw
    Sharded,
    /// Logical replication both ways
    Multimaster,
    /// All of them, with the faults and settings that belong to each
    All,
}

/// What a promise is proved about.
#[derive(Clone, Debug)]
pub enum Place {
    /// A cluster that is there.
    There(Address),
    /// A cluster that is made and removed, with these lines in `postgresql.conf`.
    Made(Local, Vec<(String, String)>),
}

/// The faults that are injected during it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Faults {
    /// As written.
    Planned(fault::Plan),
    /// Drawn, from this seed if one was given.
    Random(Option<u64>),
}

/// What is proved under load, and the faults during it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which promises.
    pub what: What,
    /// Of which cluster.
    pub place: Place,
    /// The faults.
    pub fault: Option<Faults>,
    /// Faults may hurt servers that pgfathom did not make.
    pub allow_faults: bool,
    /// Sessions connect here, to a proxy or a pooler in front of the cluster.
    pub through: Option<String>,
    /// How long each workload is watched.
    pub time: Duration,
    /// Sessions that write.
    pub client: u64,
    /// Isolation level; `None`: the workload's own.
    pub isolation: Option<Isolation>,
    /// How far each commit waits; `None`: as the server is set.
    pub synchronous_commit: Option<String>,
    /// How often each workload is watched.
    pub repeat: u64,
    /// Seed of every random choice.
    pub random_seed: Option<u64>,
    /// An anomaly is a difference even where it is allowed.
    pub strict: bool,
    /// Also write the history for Elle.
    pub elle: Option<PathBuf>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// A proof of ten seconds with four sessions and without faults.
    pub fn new(what: What, place: Place) -> Plan {
        Plan {
            what,
            place,
            fault: None,
            allow_faults: false,
            through: None,
            time: Duration::from_secs(10),
            client: 4,
            isolation: None,
            synchronous_commit: None,
            repeat: 1,
            random_seed: None,
            strict: false,
            elle: None,
            directory: None,
        }
    }

    /// Proves and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to prove, or no answer at all. A broken promise is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.check_repeats()?;
        self.check_way(context)?;
        let journal = Arc::new(Journal::begin(&Journal::default_dir())?);
        let chapters = self.chapters()?;
        let opening = Opening::new("prove", self.what.word(), self.directory.as_deref());
        let recording = match &self.place {
            Place::Made(..) => opening.begin(context)?,
            Place::There(address) => {
                // A refused password leaves no directory behind.
                let mut spec = address.online_spec(context)?;
                if spec.hosts.len() > 1 {
                    spec.target_session_attrs = SessionAttrs::ReadWrite;
                }
                let mut control = connect::control::connect(&spec)?;
                opening.open(context, Target::server(&spec), &mut control)?
            }
        };
        in_steps(recording, |recording| self.prove(recording, &opening, &chapters, &journal))
    }

    fn prove(
        &self,
        recording: &Recording<'_>,
        opening: &Opening<'_>,
        chapters: &[Chapter],
        journal: &Arc<Journal>,
    ) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        let stop = context.stop.flag();
        let mut is_first = true;
        for chapter in chapters {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut testbed = match self.testbed(chapter, context, journal) {
                Ok(testbed) => testbed,
                Err(failure) if is_first => return Err(NoOutcome::Refused(failure)),
                Err(failure) => return Err(NoOutcome::Failed(failure)),
            };
            if is_first && testbed.is_made() {
                let spec = testbed.site.entry();
                let mut control = connect::control::connect(&spec).map_err(Failure::from)?;
                opening.connected(recording, Target::server(&spec), &mut control)?;
            }
            if is_first {
                let engine = testbed.site.engine.name();
                recording.keep(recording.dir().edit(|run| {
                    if let Some(target) = &mut run.target {
                        target.engine = engine.to_owned();
                    }
                }));
            }
            is_first = false;
            for trial in self.trials(chapter, &testbed) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match trial.what {
                    What::Hermitage => {
                        let has_sums = self.what == What::Hermitage;
                        self.play(context, recording, &testbed, (&trial, has_sums), &stop)?;
                    }
                    _ => {
                        testbed =
                            self.watch(context, recording, (chapter, testbed, journal), &trial, &stop)?;
                    }
                }
            }
        }
        context.terminal.end_progress();
        let state = context.state();
        let run = recording.dir().run();
        let promises = promise::of(&run);
        let has = |standing: Standing| promises.iter().any(|promise| promise.standing == standing);
        let is_seen = |promise: &&Promise| promise.seen > 0 || promise.standing == Standing::ByDesign;
        let exit = match () {
            () if has(Standing::Broken) => Exit::Difference,
            () if self.strict && promises.iter().any(is_seen) => Exit::Difference,
            () if state == State::Interrupted => Exit::Interrupted,
            // Of one workload every line was requested: one without an answer is no success. The suite is a table with holes.
            () if self.what != What::All && has(Standing::NotTested) => Exit::CannotTell,
            () if ![Standing::Kept, Standing::ByDesign, Standing::AllowedNotSeen].into_iter().any(has) => {
                Exit::CannotTell
            }
            () => Exit::Ok,
        };
        Ok(Outcome::page(state, exit))
    }

    /// What is proved where: one chapter for each cluster.
    fn chapters(&self) -> Result<Vec<Chapter>, Failure> {
        let without_faults = match self.what {
            What::Wide => Some(("wide measures commits on a cluster that works", "ack")),
            What::Skew => Some(("skew runs two sessions step by step on a cluster that works", "bank")),
            What::Hermitage => Some(("hermitage runs scripts statement by statement", "bank")),
            _ => None,
        };
        if let (Some((why, other)), true) = (without_faults, self.fault.is_some()) {
            return Err(Failure::usage(format!("prove {why}, and takes no --fault")).hint(format!(
                "promises under faults: pgfathom prove {other} --local single --fault kill@2s, or likewise prove verreg"
            )));
        }
        let (local, settings) = match &self.place {
            Place::There(address) => {
                return Ok(vec![Chapter { source: Source::There(address.clone()), trials: Vec::new() }]);
            }
            Place::Made(local, settings) => (local, settings),
        };
        let wanted = match local {
            Local::Single => Wanted::single(),
            Local::Replicated => Wanted::replicated("FIRST 1 (s1)")?,
            Local::Sharded => Wanted::sharded(),
            Local::Multimaster => Wanted::multimaster(),
            Local::All if self.what != What::All || self.fault.is_some() || !settings.is_empty() => {
                return Err(Failure::usage(
                    "--local all runs the whole suite, with its own faults and settings",
                )
                .hint("pgfathom prove all --local all; or name one kind, as --local single"));
            }
            Local::All => return suite::chapters(self.time, newest()?.version.major),
        };
        let wanted = wanted.with_users(settings, self.synchronous_commit.is_some())?;
        Ok(vec![Chapter { source: Source::Made(wanted), trials: Vec::new() }])
    }

    /// A cluster that is there has one primary to lose.
    fn check_repeats(&self) -> Result<(), Failure> {
        let promotes = self.plan().is_some_and(|plan| plan.faults().contains(&Fault::Promote));
        if self.repeat > 1 && promotes && matches!(self.place, Place::There(_)) {
            return Err(Failure::usage("a promotion cannot be repeated on the same cluster")
                .hint("--local replicated makes a new cluster for each repeat"));
        }
        Ok(())
    }

    /// Checks that the way of the clients leads to a server: a wrong address would end a proof in its middle, as if a node were lost.
    fn check_way(&self, context: &Context) -> Result<(), Failure> {
        let (Some(front), Place::There(address)) = (&self.through, &self.place) else { return Ok(()) };
        let known = address.spec(context)?;
        let front = conninfo::parse_beside(front, &Sources::of_process(), &known)?.spec;
        control::connect_shared(&front).map(drop).map_err(|error| {
            Failure::caused("--through leads to no server", error).hint(
                "name the address at which the proxy or the pooler in front of the cluster takes connections now",
            )
        })
    }

    fn plan(&self) -> Option<&fault::Plan> {
        match &self.fault {
            Some(Faults::Planned(plan)) => Some(plan),
            _ => None,
        }
    }

    fn testbed(
        &self,
        chapter: &Chapter,
        context: &Context,
        journal: &Arc<Journal>,
    ) -> Result<Testbed, Failure> {
        let mut planned =
            Needs::of(self.plan().into_iter().chain(chapter.trials.iter().map(|trial| &trial.plan)));
        // Round trips are counted by delaying them.
        let is_wide = match chapter.trials.as_slice() {
            [] => matches!(self.what, What::Wide | What::All),
            trials => trials.iter().any(|trial| trial.what == What::Wide),
        };
        planned.links |= is_wide;
        let is_random = matches!(self.fault, Some(Faults::Random(_)));
        let wanted = match &chapter.source {
            Source::Made(wanted) => wanted,
            // What is drawn for a cluster that is there does without proxies: nothing is changed on its nodes that was not requested.
            Source::There(address) => {
                let say = |words: String| context.terminal.say(&words);
                let mut testbed = announced("looking at the nodes of the cluster", say, || {
                    Testbed::there(address, context, journal, (self.allow_faults, planned))
                })?;
                if let Some(front) = &self.through {
                    let known = &testbed.site.nodes[testbed.site.primary()].spec;
                    let front = conninfo::parse_beside(front, &Sources::of_process(), known)?.spec;
                    testbed.site.use_front(front);
                }
                return Ok(testbed);
            }
        };
        let needs = if is_random { Needs::ALL } else { planned };
        let kind = wanted.topology.kind();
        context.terminal.say(&format!("making a {kind} cluster"));
        wanted.make(&newest()?, journal, needs)
    }

    /// The trials of a chapter: its own, or what the flags select.
    fn trials(&self, chapter: &Chapter, testbed: &Testbed) -> Vec<Trial> {
        if !chapter.trials.is_empty() {
            return chapter.trials.clone();
        }
        let whats: Vec<What> = match self.what {
            What::All => suite::WORKLOADS.to_vec(),
            what => vec![what],
        };
        let plan = match &self.fault {
            None => fault::Plan::default(),
            Some(Faults::Planned(plan)) => plan.clone(),
            Some(Faults::Random(seed)) => {
                let seed = seed.unwrap_or_else(|| record::clock::wall_us() % 1_000_000);
                let names: Vec<String> = match testbed.site.nodes.len() {
                    1 => Vec::new(),
                    _ => testbed.site.nodes.iter().map(|node| node.name.clone()).collect(),
                };
                fault::Plan::draw(seed, self.time, &testbed.possible(), &names)
            }
        };
        whats
            .into_iter()
            .map(|what| Trial {
                what,
                level: self.isolation.unwrap_or(match what {
                    What::Skew => Isolation::Serializable,
                    _ => Isolation::ReadCommitted,
                }),
                commit: self.synchronous_commit.clone(),
                plan: plan.clone(),
                time: self.time,
            })
            .collect()
    }

    fn options(&self, trial: &Trial) -> Options {
        let commit = trial.commit.iter().map(|value| ("synchronous_commit".to_owned(), value.clone()));
        Options {
            duration: trial.time,
            clients: usize::try_from(self.client).unwrap_or(1),
            level: trial.level,
            seed: self.random_seed.unwrap_or(1),
            settings: commit.collect(),
            plan: trial.plan.clone(),
            ..Options::default()
        }
    }

    /// How the run directory describes a trial.
    fn parameters(&self, testbed: &Testbed, trial: &Trial) -> Map<String, Value> {
        fields(json!({
            "cluster": testbed.name,
            "engine": testbed.site.engine.name(),
            "nodes": testbed.site.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
            "level": trial.level.name(),
            "client": self.client,
            "time_s": trial.time.as_secs_f64(),
            "random_seed": self.random_seed.unwrap_or(1),
            "repeats": self.repeat,
            "fault": Some(trial.plan.to_string()).filter(|plan| !plan.is_empty()),
            "fault_seed": trial.plan.seed,
        }))
    }

    /// Runs one trial, as often as it is to be repeated, as a step of the run directory. Gives the cluster back, or the one that took its place.
    fn watch(
        &self,
        context: &Context,
        recording: &Recording<'_>,
        (chapter, testbed, journal): (&Chapter, Testbed, &Arc<Journal>),
        trial: &Trial,
        stop: &AtomicBool,
    ) -> Result<Testbed, Failure> {
        let mut testbed = self.fresh(chapter, context, testbed, journal)?;
        let dir = recording.dir();
        let options = self.options(trial);
        let step = dir.begin_step("prove", trial.what.word())?;
        let plan = trial.plan.to_string();
        recording.keep(dir.edit_step(&step, |step| step.parameters = self.parameters(&testbed, trial)));
        let faults = if plan.is_empty() { String::new() } else { format!(", {plan}") };
        let seed = trial.plan.seed.map(|seed| format!(" (random:{seed})")).unwrap_or_default();
        let title = format!("prove {} {}", trial.what.word(), testbed.name);
        context.terminal.say(&format!("{}{faults}{seed}", title.trim_end()));
        let (place, begin) = (recording.place(), Instant::now());
        let history_files = history::HistoryFiles { dir: &place, elle: self.elle.as_deref() };
        let mut repeats = Vec::new();
        testbed.site.await_managers();
        let following = if testbed.is_made() { None } else { testbed.site.following() };
        for number in 1..=self.repeat {
            if number > 1 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                testbed = self.fresh(chapter, context, testbed, journal)?;
                if let Some(Err(why)) = following.map(|before| testbed.site.await_following(before)) {
                    testbed.site.note(format!("repeat {number} was not started: {why}"));
                    break;
                }
                context.terminal.detail(&format!("repeat {number} of {}", self.repeat));
            }
            let watched = fault_events::announcing(context, &testbed.site, || {
                once(&testbed, trial, &options, history_files, stop)
            });
            // A trial that failed is reported too, with what was done, and when.
            let repeat = (self.repeat > 1).then_some(number);
            fault_events::write_down(context, recording, &step, repeat, options.events.take());
            let promises = match watched {
                Ok(watched) => watched,
                Err(error) if !repeats.is_empty() => {
                    // What the repeats before it have seen is not lost with it.
                    testbed.site.note(format!("repeat {number} ended early: {}", chain(&error)));
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let is_possible = promises.iter().all(|promise| promise.standing != Standing::NotPossible);
            repeats.push(promises);
            if !is_possible {
                break;
            }
        }
        let promises = verdicts::together(repeats);
        let notes = shown_notes(context, &testbed.site);
        recording.keep(dir.edit_step(&step, |step: &mut Step| {
            step.summary.duration_s = begin.elapsed().as_secs_f64();
            step.summary.rows = Some(promises.iter().map(|promise| promise.n).sum());
            step.promises = promises;
            step.verdict = promise::verdict(step);
            step.verdict.notes.extend(notes);
        }));
        recording.keep(dir.end_step(&step, State::Finished));
        Ok(testbed)
    }

    /// The same cluster; a new one where a promotion has used it up, if it is ours to make.
    fn fresh(
        &self,
        chapter: &Chapter,
        context: &Context,
        testbed: Testbed,
        journal: &Arc<Journal>,
    ) -> Result<Testbed, Failure> {
        if !(testbed.is_made() && testbed.is_used_up()) {
            return Ok(testbed);
        }
        drop(testbed);
        self.testbed(chapter, context, journal)
    }
}

/// What the proof has noted about the nodes, shown as well.
pub(super) fn shown_notes(context: &Context, site: &Site) -> Vec<String> {
    let notes = site.take_notes();
    notes.iter().for_each(|note| context.terminal.say(&format!("note: {note}")));
    notes
}

fn newest() -> Result<lab::local::Installation, Failure> {
    lab::local::installations().into_iter().max_by_key(|one| one.version.major).ok_or_else(|| {
        Failure::usage("no PostgreSQL was found on this host")
            .hint("scripts/fetch-postgres18, or set PGFATHOM_PG_BIN")
    })
}
