//! `prove ack`, `bank`, ...: promises watched under load and under faults, and what became of them.

use super::ground::{Ground, Needs, Wanted};
use super::suite::{self, Chapter};
use super::{Prove, What, history, moments};
use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::quantity::{self, ValueError};
use crate::recording::Recording;
use crate::verbs::load::fields;
use crate::{fingerprint, human};
use ::prove::fault::{Fault, Journal, Plan, journal};
use ::prove::live::tables::SCHEMA;
use ::prove::live::{Level, LiveError, Options, ack, bank, conflict, heartbeat, skew, twin, wide};
use ::prove::promise::{self as verdicts, Settings};
use clap::{Args, ValueEnum};
use record::model::Step;
use record::promise::{self, Promise, Standing};
use record::{Exit, State};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use target::conninfo::SessionAttrs;

/// How long each workload is watched unless -T says otherwise, in seconds.
const TIME_DEFAULT: &str = "10";
/// Sessions that write unless -c says otherwise.
const CLIENTS_DEFAULT: &str = "4";
/// Repeats at most: beyond that a distribution says no more.
const REPEATS_MAX: u64 = 1_000;
/// Sessions at most: each is a thread of ours.
const CLIENTS_MAX: u64 = 256;

/// The flags of what is watched under load.
#[derive(Debug, Args)]
pub struct Flags {
    /// What is broken meanwhile: FAULT[:NODE]@TIME with commas between, as kill@10s,heal@15s; or random, or random:SEED
    #[arg(long, value_name = "PLAN", value_parser = faults, help_heading = "Faults")]
    pub fault: Option<Faults>,
    /// Faults may hurt servers that pgfathom up did not make, if their cluster file says where their files are
    #[arg(long, help_heading = "Faults")]
    pub allow_faults: bool,
    /// Undo what a proof that was killed has left broken, and do nothing else
    #[arg(long, exclusive = true, help_heading = "Faults")]
    pub heal: bool,
    /// A cluster that is made for it and removed: single, replicated, sharded, multimaster; all of them in turn for all
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        hide_possible_values = true,
        conflicts_with_all = ["target", "host", "port", "dbname", "cluster"],
        help_heading = "Load and faults"
    )]
    pub local: Option<Local>,
    /// A setting for postgresql.conf of the cluster that is made; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, requires = "local", help_heading = "Load and faults")]
    pub set: Vec<(String, String)>,
    /// How long each workload is watched: seconds, or as 1m
    #[arg(short = 'T', long, value_name = "TIME", default_value = TIME_DEFAULT, value_parser = quantity::duration, help_heading = "Load and faults")]
    pub time: Duration,
    /// Sessions that write
    #[arg(short, long, value_name = "N", default_value = CLIENTS_DEFAULT, value_parser = clients, help_heading = "Load and faults")]
    pub client: u64,
    /// Isolation level: "read committed", "repeatable read" or serializable [default: read committed; skew: serializable]
    #[arg(long, value_name = "LEVEL", value_parser = level, help_heading = "Load and faults")]
    pub isolation: Option<Level>,
    /// How far each commit waits: off, local, remote_write, on or remote_apply [default: the server's]
    #[arg(long, value_name = "LEVEL", value_parser = commit_level, help_heading = "Load and faults")]
    pub synchronous_commit: Option<String>,
    /// Watch each so many times, with the same faults, and say how their figures are spread; what a promotion has used up is made anew
    #[arg(long, value_name = "N", default_value = "1", value_parser = repeats, help_heading = "Load and faults")]
    pub repeat: u64,
    /// Seed of every random choice
    #[arg(long, value_name = "SEED", value_parser = quantity::count, help_heading = "Load and faults")]
    pub random_seed: Option<u64>,
}

/// `--fault`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Faults {
    /// As written.
    Planned(Plan),
    /// Drawn, from this seed if one was given.
    Random(Option<u64>),
}

/// `--local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
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

fn faults(text: &str) -> Result<Faults, ValueError> {
    let hint = "write random, or random:42 for the same faults again";
    match text.strip_prefix("random") {
        Some("") => Ok(Faults::Random(None)),
        Some(seed) => match seed.strip_prefix(':').and_then(|seed| seed.parse().ok()) {
            Some(seed) => Ok(Faults::Random(Some(seed))),
            None => Err(ValueError::new(format!("{text:?} is no seed"), hint)),
        },
        None => Plan::parse(text)
            .map(Faults::Planned)
            .map_err(|error| ValueError::new(error.to_string(), error.hint())),
    }
}

fn setting(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(ValueError::new(format!("{text:?} is no setting"), "write NAME=VALUE, as --set fsync=off")),
    }
}

fn clients(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        count if count > CLIENTS_MAX => Err(ValueError::new(
            format!("{count} is more than {CLIENTS_MAX} sessions"),
            "give a smaller number",
        )),
        count => Ok(count),
    }
}

fn repeats(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        count if count > REPEATS_MAX => Err(ValueError::new(
            format!("{count} is more than {REPEATS_MAX} repeats"),
            "give a smaller number: ten tell a failover's spread",
        )),
        count => Ok(count),
    }
}

fn level(text: &str) -> Result<Level, ValueError> {
    let wanted = text.replace(['-', '_'], " ").to_uppercase();
    Level::ALL.into_iter().find(|level| level.name() == wanted).ok_or_else(|| {
        ValueError::new(
            format!("{text:?} is no isolation level"),
            "write \"read committed\", \"repeatable read\" or serializable",
        )
    })
}

fn commit_level(text: &str) -> Result<String, ValueError> {
    match target::local::CommitLevel::parse(text) {
        Some(level) => Ok(level.name().to_owned()),
        None => Err(ValueError::new(
            format!("{text:?} is no level of synchronous_commit"),
            "choose off, local, remote_write, on or remote_apply",
        )),
    }
}

/// `prove --heal`.
pub(super) fn heal(context: &Context) -> Result<Exit, Failure> {
    let healed = journal::heal(&Journal::default_dir());
    let removed = target::throwaway::remove_orphans();
    for words in &healed.undone {
        context.terminal.data(&format!("healed   {words}"));
    }
    for words in &healed.failed {
        context.terminal.data(&format!("FAILED   {words}"));
    }
    if healed.alive > 0 {
        context.terminal.say(&format!("left alone: {} still at work", human::plural(healed.alive, "proof")));
    }
    if removed > 0 {
        context.terminal.say(&format!("removed {}", human::plural(removed as u64, "left throwaway server")));
    }
    if healed.undone.is_empty() && healed.failed.is_empty() {
        context.terminal.data("nothing to heal");
    }
    Ok(if healed.failed.is_empty() { Exit::Ok } else { Exit::CannotTell })
}

/// One workload under one plan.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub what: What,
    pub level: Level,
    pub commit: Option<String>,
    pub plan: Plan,
    pub time: Duration,
}

impl Prove {
    pub(super) fn run_live(self, what: What, context: &Context) -> Result<Exit, Failure> {
        self.check_repeats()?;
        let journal = Arc::new(Journal::begin(&Journal::default_dir())?);
        let name = if what == What::All { "all" } else { word(what) };
        let chapters = self.chapters(what)?;
        let recording = match self.live.local {
            Some(_) => Recording::begin(context, &self.directory, "prove", name)?,
            None => {
                // A refused password leaves no directory behind.
                let mut spec = self.connection.resolve(context)?;
                if spec.hosts.len() > 1 {
                    spec.target_session_attrs = SessionAttrs::ReadWrite;
                }
                let mut control = target::control::connect(&spec)?;
                let recording = Recording::begin(context, &self.directory, "prove", name)?;
                let fingerprint = fingerprint::take(&mut control, &spec);
                recording.dir().edit(|run| run.target = Some(fingerprint))?;
                recording
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        context.stop.forward({
            let stop = Arc::clone(&stop);
            move |_| stop.store(true, Ordering::Relaxed)
        });
        let mut is_first = true;
        for chapter in &chapters {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut ground = match self.ground(chapter, context, &journal) {
                Ok(ground) => ground,
                Err(failure) if is_first => {
                    recording.discard();
                    return Err(failure);
                }
                Err(failure) => return Err(failure),
            };
            if is_first && !ground.is_made() {
                let engine = ground.site.engine.name();
                recording.dir().edit(|run| {
                    if let Some(target) = &mut run.target {
                        target.engine = engine.to_owned();
                    }
                })?;
            }
            if is_first && ground.is_made() {
                let spec = ground.site.entry();
                let mut control = target::control::connect(&spec)?;
                let mut fingerprint = fingerprint::take(&mut control, &spec);
                fingerprint.engine = ground.site.engine.name().to_owned();
                recording.dir().edit(|run| run.target = Some(fingerprint))?;
            }
            is_first = false;
            for trial in self.trials(chapter, &ground) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match trial.what {
                    What::Hermitage => {
                        let has_sums = what == What::Hermitage;
                        self.play(context, &recording, &ground, (&trial, has_sums), &stop)?;
                    }
                    _ => {
                        ground =
                            self.watch(context, &recording, (chapter, ground, &journal), &trial, &stop)?;
                    }
                }
            }
        }
        context.terminal.end_progress();
        let state = if stop.load(Ordering::Relaxed) { State::Interrupted } else { State::Finished };
        let run = recording.dir().finish(state)?;
        if context.format == Format::Text {
            context.terminal.data(&recording.text()?);
        }
        recording.finish(state)?;
        let promises = promise::of(&run);
        let has = |standing: Standing| promises.iter().any(|promise| promise.standing == standing);
        let is_seen = |promise: &&Promise| promise.seen > 0 || promise.standing == Standing::ByDesign;
        Ok(match () {
            () if has(Standing::Broken) => Exit::Difference,
            () if self.strict && promises.iter().any(is_seen) => Exit::Difference,
            () if state == State::Interrupted => Exit::Interrupted,
            // Of one workload every line was asked for: one without an answer is no success. The suite is a table with holes.
            () if what != What::All && has(Standing::NotTested) => Exit::CannotTell,
            () if ![Standing::Kept, Standing::ByDesign, Standing::AllowedNotSeen].into_iter().any(has) => {
                Exit::CannotTell
            }
            () => Exit::Ok,
        })
    }

    /// What is proved where: one chapter for each cluster.
    fn chapters(&self, what: What) -> Result<Vec<Chapter>, Failure> {
        let made = |wanted: Wanted| {
            let wanted = self.live.set.iter().fold(wanted, |wanted, (name, value)| wanted.with(name, value));
            Ok(vec![Chapter { wanted: Some(wanted), trials: Vec::new() }])
        };
        if what == What::Hermitage && self.live.fault.is_some() {
            return Err(Failure::usage(
                "prove hermitage plays scripts statement by statement, and takes no --fault",
            )
            .hint("the same promises under faults: pgfathom prove bank --fault ..., or prove verreg"));
        }
        match self.live.local {
            None => Ok(vec![Chapter { wanted: None, trials: Vec::new() }]),
            Some(Local::Single) => made(Wanted::single()),
            Some(Local::Replicated) => made(Wanted::replicated("FIRST 1 (s1)")?),
            Some(Local::Sharded) => made(Wanted::sharded()),
            Some(Local::Multimaster) => made(Wanted::multimaster()),
            Some(Local::All)
                if what != What::All || self.live.fault.is_some() || !self.live.set.is_empty() =>
            {
                Err(Failure::usage("--local all is the whole suite, with its own faults and settings")
                    .hint("pgfathom prove all --local all; or name one kind, as --local single"))
            }
            Some(Local::All) => suite::chapters(self.live.time, newest()?.version.major),
        }
    }

    /// A cluster that is there has one primary to lose.
    fn check_repeats(&self) -> Result<(), Failure> {
        let promotes = self.plan().is_some_and(|plan| plan.faults().contains(&Fault::Promote));
        if self.live.repeat > 1 && promotes && self.live.local.is_none() {
            return Err(Failure::usage("a promotion uses the cluster up: it cannot be repeated on this one")
                .hint("--local replicated makes a new cluster for each repeat"));
        }
        Ok(())
    }

    fn plan(&self) -> Option<&Plan> {
        match &self.live.fault {
            Some(Faults::Planned(plan)) => Some(plan),
            _ => None,
        }
    }

    fn ground(
        &self,
        chapter: &Chapter,
        context: &Context,
        journal: &Arc<Journal>,
    ) -> Result<Ground, Failure> {
        let mut planned =
            Needs::of(self.plan().into_iter().chain(chapter.trials.iter().map(|trial| &trial.plan)));
        // Round trips are counted by delaying them.
        let is_wide = match chapter.trials.as_slice() {
            [] => matches!(self.what, Some(What::Wide | What::All)),
            trials => trials.iter().any(|trial| trial.what == What::Wide),
        };
        planned.links |= is_wide;
        let is_random = matches!(self.live.fault, Some(Faults::Random(_)));
        let Some(wanted) = &chapter.wanted else {
            // What is drawn for a cluster that is there does without proxies: its nodes are not told anything that nobody asked for.
            return Ground::there(&self.connection, context, journal, (self.live.allow_faults, planned));
        };
        let needs = if is_random { Needs::ALL } else { planned };
        let kind = wanted.topology.kind();
        context.terminal.say(&format!("making a {kind} cluster"));
        wanted.make(&newest()?, journal, needs)
    }

    /// The trials of a chapter: its own, or what the flags say.
    fn trials(&self, chapter: &Chapter, ground: &Ground) -> Vec<Trial> {
        if !chapter.trials.is_empty() {
            return chapter.trials.clone();
        }
        let whats: Vec<What> = match self.what {
            Some(What::All) | None => suite::WORKLOADS.to_vec(),
            Some(what) => vec![what],
        };
        let plan = match &self.live.fault {
            None => Plan::default(),
            Some(Faults::Planned(plan)) => plan.clone(),
            Some(Faults::Random(seed)) => {
                let seed = seed.unwrap_or_else(|| record::clock::wall_us() % 1_000_000);
                let names: Vec<String> = match ground.site.nodes.len() {
                    1 => Vec::new(),
                    _ => ground.site.nodes.iter().map(|node| node.name.clone()).collect(),
                };
                Plan::draw(seed, self.live.time, &ground.possible(), &names)
            }
        };
        whats
            .into_iter()
            .map(|what| Trial {
                what,
                level: self.live.isolation.unwrap_or(match what {
                    What::Skew => Level::Serializable,
                    _ => Level::ReadCommitted,
                }),
                commit: self.live.synchronous_commit.clone(),
                plan: plan.clone(),
                time: self.live.time,
            })
            .collect()
    }

    /// Runs one trial, as often as it is to be repeated, as a step of the run directory. Gives the cluster back, or the one that took its place.
    fn watch(
        &self,
        context: &Context,
        recording: &Recording<'_>,
        (chapter, ground, journal): (&Chapter, Ground, &Arc<Journal>),
        trial: &Trial,
        stop: &AtomicBool,
    ) -> Result<Ground, Failure> {
        let mut ground = self.fresh(chapter, context, ground, journal)?;
        let dir = recording.dir();
        let seed = self.live.random_seed.unwrap_or(1);
        let options = Options {
            duration: trial.time,
            clients: usize::try_from(self.live.client).unwrap_or(1),
            level: trial.level,
            seed,
            settings: trial
                .commit
                .iter()
                .map(|value| ("synchronous_commit".to_owned(), value.clone()))
                .collect(),
            plan: trial.plan.clone(),
            ..Options::default()
        };
        let step = dir.begin_step("prove", word(trial.what))?;
        let plan = trial.plan.to_string();
        recording.keep(dir.edit_step(&step, |step| {
            step.parameters = fields(json!({
                "cluster": ground.name,
                "engine": ground.site.engine.name(),
                "nodes": ground.site.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
                "level": trial.level.name(),
                "client": self.live.client,
                "time_s": trial.time.as_secs_f64(),
                "random_seed": seed,
                "repeats": self.live.repeat,
                "fault": (!plan.is_empty()).then_some(&plan),
                "fault_seed": trial.plan.seed,
            }));
        }));
        let faults = if plan.is_empty() { String::new() } else { format!(", {plan}") };
        let seed = trial.plan.seed.map(|seed| format!(" (random:{seed})")).unwrap_or_default();
        let title = format!("prove {} {}", word(trial.what), ground.name);
        context.terminal.say(&format!("{}{faults}{seed}", title.trim_end()));
        let history_files = history::HistoryFiles { dir: recording.path(), elle: self.elle.as_deref() };
        let begin = Instant::now();
        let mut repeats = Vec::new();
        for number in 1..=self.live.repeat {
            if number > 1 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                ground = self.fresh(chapter, context, ground, journal)?;
                context.terminal.detail(&format!("repeat {number} of {}", self.live.repeat));
            }
            let watched = once(&ground, trial, &options, history_files, stop);
            // Also of a trial that failed it is told what was done, and when.
            let repeat = (self.live.repeat > 1).then_some(number);
            moments::write_down(context, recording, &step, repeat, options.diary.take());
            let promises = match watched {
                Ok(watched) => watched,
                Err(error) if !repeats.is_empty() => {
                    // What the repeats before it have seen is not lost with it.
                    ground.site.note(format!("repeat {number} ended early: {}", chain(&error)));
                    break;
                }
                Err(error) => {
                    recording.fail(&step, &error);
                    return Err(error.into());
                }
            };
            let is_possible = promises.iter().all(|promise| promise.standing != Standing::NotPossible);
            repeats.push(promises);
            if !is_possible {
                break;
            }
        }
        let promises = verdicts::together(repeats);
        let notes = ground.site.take_notes();
        notes.iter().for_each(|note| context.terminal.say(&format!("note: {note}")));
        recording.keep(dir.edit_step(&step, |step: &mut Step| {
            step.summary.duration_s = begin.elapsed().as_secs_f64();
            step.summary.rows = Some(promises.iter().map(|promise| promise.n).sum());
            step.promises = promises;
            step.verdict = promise::verdict(step);
            step.verdict.notes.extend(notes);
        }));
        recording.keep(dir.end_step(&step, State::Finished));
        Ok(ground)
    }

    /// The same cluster; a new one where a promotion has used it up, if it is ours to make.
    fn fresh(
        &self,
        chapter: &Chapter,
        context: &Context,
        ground: Ground,
        journal: &Arc<Journal>,
    ) -> Result<Ground, Failure> {
        if !(ground.is_made() && ground.is_used_up()) {
            return Ok(ground);
        }
        drop(ground);
        self.ground(chapter, context, journal)
    }
}

/// Runs a trial once. A cluster that does not come back after a fault is an answer, too, and so is a proof that was disturbed.
fn once(
    ground: &Ground,
    trial: &Trial,
    options: &Options,
    history_files: history::HistoryFiles<'_>,
    stop: &AtomicBool,
) -> Result<Watched, LiveError> {
    let settings = Settings::of(&ground.site.entry(), options)?;
    let what = word(trial.what);
    let place = place(ground, &settings);
    let not_tested =
        |why: &str, change: &str| Ok(vec![verdicts::not_tested(what, &place, &trial.plan, why, change)]);
    let watched = watched(ground, trial, options, (&settings, history_files), stop);
    if let (Some(holder), Ok(_)) = (ground.taken(), &watched) {
        let why = format!("another proof began on the same tables meanwhile: {holder}");
        return not_tested(&why, "prove it again, alone");
    }
    match watched {
        Err(LiveError::NotBack(error)) if ground.site.is_gone() || was_hurt(ground, trial) => {
            let lost = verdicts::did_not_return(
                what,
                &ground.site,
                &settings,
                &place,
                &trial.plan,
                &chain(error.as_ref()),
            );
            Ok(vec![lost])
        }
        Err(LiveError::NotBack(error)) => not_tested(
            &format!(
                "after the watch the cluster took no writes, or its rows could not be read: {}; the tables in schema {SCHEMA} are left as they are",
                chain(error.as_ref())
            ),
            "when it takes writes again, prove it again",
        ),
        Err(error @ LiveError::Disturbed(_)) => not_tested(&error.to_string(), "prove it again, alone"),
        watched => watched,
    }
}

/// Whether a server of ours was hurt by the plan, and answers: then it is not for want of time that its rows are missing.
fn was_hurt(ground: &Ground, trial: &Trial) -> bool {
    trial.plan.faults().iter().any(|fault| fault.hurts_server())
        && target::control::connect(&ground.site.entry()).is_ok()
}

fn newest() -> Result<target::local::Installation, Failure> {
    target::local::installations().into_iter().max_by_key(|one| one.version.major).ok_or_else(|| {
        Failure::usage("no PostgreSQL was found on this machine")
            .hint("scripts/fetch-postgres18, or set PGFATHOM_PG_BIN")
    })
}

/// The word of the command line.
pub(super) fn word(what: What) -> &'static str {
    match what {
        What::Tpcc => "tpcc",
        What::Hermitage => "hermitage",
        What::Check => "check",
        What::Ack => "ack",
        What::Hb => "hb",
        What::Bank => "bank",
        What::Twin => "twin",
        What::Skew => "skew",
        What::Conflict => "conflict",
        What::Wide => "wide",
        What::Verreg => "verreg",
        What::Append => "append",
        What::All => "all",
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    words
}

/// The column of the matrix.
fn place(ground: &Ground, settings: &Settings) -> String {
    match ground.name.as_str() {
        "" => settings.says(),
        name => format!("{name}, {}", settings.says()),
    }
}

type Watched = Vec<Promise>;

/// What is said when a fault of the plan cannot be injected here.
fn objection(ground: &Ground, trial: &Trial, place: &str) -> Option<Promise> {
    let site = &ground.site;
    if let Some((fault, why)) = site.objection(&trial.plan) {
        return Some(verdicts::not_possible(word(trial.what), place, &trial.plan, fault, &why));
    }
    if trial.plan.needs_proxy() && site.nodes.iter().any(|node| node.proxy.is_none()) {
        let fault = trial.plan.faults().into_iter().find(|fault| fault.needs_proxy()).unwrap_or(Fault::Cut);
        let why = "clients do not come through a proxy";
        return Some(verdicts::not_possible(word(trial.what), place, &trial.plan, fault, why));
    }
    None
}

fn watched(
    ground: &Ground,
    trial: &Trial,
    options: &Options,
    (settings, history_files): (&Settings, history::HistoryFiles<'_>),
    stop: &AtomicBool,
) -> Result<Watched, LiveError> {
    let site = &ground.site;
    let place = place(ground, settings);
    if let Some(promise) = objection(ground, trial, &place) {
        return Ok(vec![promise]);
    }
    let name = ground.name.as_str();
    Ok(match trial.what {
        What::Ack => {
            let report = ack::run(site, options, stop)?;
            verdicts::ack(site, &report, settings, &place)
        }
        What::Hb => {
            let report = heartbeat::run(site, options, stop)?;
            verdicts::heartbeat(site, &report, settings, &place)
        }
        What::Bank => {
            let report = bank::run(site, options, stop)?;
            verdicts::bank(site, &report, settings, trial.level, name)
        }
        What::Twin => {
            let report = twin::run(site, options, stop)?;
            verdicts::twin(site, &report, settings, trial.level, name)
        }
        What::Skew => {
            let report = skew::run(site, options, stop)?;
            verdicts::skew(site, &report, settings, trial.level, name)
        }
        What::Conflict => {
            let report = conflict::run(site, options, stop)?;
            verdicts::conflict(site, &report, settings, name)
        }
        What::Verreg | What::Append => {
            history::watch(history_files, ground, (trial, options, settings), stop)?
        }
        What::Wide => {
            let report = wide::run(site, options, settings.waits_for_standbys(), stop)?;
            verdicts::wide(&report, &place)
        }
        // These are no workloads: they are taken apart before anything is watched.
        What::Tpcc | What::Hermitage | What::Check | What::All => Vec::new(),
    })
}
