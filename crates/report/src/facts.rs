//! The content of a run directory, arranged for output: steps with their samples and histograms, and totals that are computed
//! from samples if a killed run has none in `run.json`.

use crate::chart::Columns;
use crate::directory::{Directory, Line};
use crate::latencies::{Latencies, Window};
use record::event::Event;
use record::finding::Health;
use record::hlog::Interval;
use record::model::{CANNOT_TELL, CheckResult, PHASE_MEASURE, Phase, Step};
use record::number;
use record::promise::{Promise, Standing};
use record::sample::{Body, ClientSample, ProgressSample, Sample};
use record::totals::LoadTotals;
use record::watched::Sampled;
use record::{Matrix, RunReader, State, Summary, Sweep};
use std::collections::BTreeMap;

/// The verb that only samples.
const WATCH: &str = "watch";
/// A step of this length leaves samples.
const SAMPLED_US_MIN: u64 = 3_000_000;
/// Interval of samples where none are left to derive it from.
const INTERVAL_US: u64 = 1_000_000;

/// A run, ready for output.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) reader: &'a RunReader,
    pub(crate) steps: Vec<StepFacts<'a>>,
    /// Missing parts, with the sentences of the reader and ours.
    pub(crate) missing: Vec<String>,
    /// The combined result of the steps, if they are a sweep.
    pub(crate) sweep: Option<Sweep>,
    /// The combined result of the steps, if they are the cells of a node matrix.
    pub(crate) matrix: Option<Matrix>,
}

/// A step with its data from the other files.
#[derive(Debug)]
pub(crate) struct StepFacts<'a> {
    /// From `run.json`; derived from the step names of the other files if that is missing.
    pub(crate) step: Step,
    pub(crate) client: Vec<(&'a Sample, &'a ClientSample)>,
    pub(crate) progress: Vec<(&'a Sample, &'a ProgressSample)>,
    pub(crate) intervals: Vec<&'a Interval>,
    /// Events that name the step, and those without a step during it.
    pub(crate) events: Vec<&'a Event>,
    /// What was watched while it ran.
    pub(crate) watched: &'a [Line],
    /// Its latencies from the log.
    pub(crate) latencies: Latencies,
    /// End of the step, or its last known time.
    pub(crate) end_us: u64,
}

/// How far a result can be trusted, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Badge {
    /// It stands.
    Valid,
    /// It stands, with something to know.
    Notes,
    /// The numbers prove nothing about the target.
    Invalid,
    /// A verification found wrong rows.
    Difference,
    /// There is no answer, for a reason, although everything that could be read or tried was.
    CannotTell,
    /// The directory does not contain it.
    Unknown,
}

impl Badge {
    /// The word, in capitals.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Badge::Valid => "VALID",
            Badge::Notes => "NOTES",
            Badge::Invalid => "INVALID",
            Badge::Difference => "DIFFERENCE",
            Badge::CannotTell => "CANNOT TELL",
            Badge::Unknown => "UNKNOWN",
        }
    }

    /// Its name in the style sheet.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Badge::Valid => "valid",
            Badge::Notes => "notes",
            Badge::Invalid => "invalid",
            Badge::Difference => "difference",
            Badge::CannotTell | Badge::Unknown => "unknown",
        }
    }
}

/// The part of the latency log to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// Only if totals must be computed from it.
    Totals,
    /// All of it, in at most this many columns per step.
    Charts(usize),
}

impl<'a> Facts<'a> {
    pub(crate) fn of(directory: &'a Directory, depth: Depth) -> Facts<'a> {
        let reader = &directory.reader;
        let mut missing = reader.missing().to_vec();
        missing.extend(directory.missing.iter().cloned());
        let mut models = reader.run.steps.clone();
        for key in unlisted_keys(reader) {
            models.push(made_up_step(reader, &key));
        }
        if models.is_empty() {
            models.extend(watched_step(directory));
        }
        models.sort_by_key(|step| step.start_us);
        let steps: Vec<StepFacts> = models
            .into_iter()
            .map(|step| {
                let facts = StepFacts::of(directory, step, depth);
                if facts.worked_out {
                    missing.push(format!(
                        "{}: run.json holds no totals; those shown are computed from samples and histograms",
                        facts.facts.step.key
                    ));
                }
                facts.facts
            })
            .collect();
        let unreadable = steps.iter().map(|step| step.latencies.unreadable).fold(0, u64::saturating_add);
        if unreadable > 0 {
            missing.push(format!("latency.hlog: {unreadable} histograms cannot be decoded and were skipped"));
        }
        missing.extend(lost_samples(directory, &steps));
        missing.extend(unseen_servers(directory));
        let detail = reader.run.summary.sweep.clone();
        let sweep =
            detail.or_else(|| Sweep::of(&steps.iter().map(|step| step.step.clone()).collect::<Vec<_>>()));
        let detail = reader.run.summary.matrix.clone();
        let matrix = detail
            .or_else(|| Matrix::of_steps(&steps.iter().map(|step| step.step.clone()).collect::<Vec<_>>()));
        Facts { directory, reader, steps, missing, sweep, matrix }
    }

    /// The results of a check, if this is one's directory: another run may hold them to be compared with.
    pub(crate) fn checked(&self) -> Option<&record::check::Checks> {
        self.directory.checks.as_ref().filter(|_| self.reader.run.verb == crate::checks::VERB)
    }

    /// The run's summary: its own if it ended, else computed from its steps.
    pub(crate) fn summary(&self) -> Summary {
        let run = &self.reader.run;
        if self.reader.has_run && run.ended_us.is_some() {
            return run.summary.clone();
        }
        match self.steps.as_slice() {
            [only] => only.step.summary.clone(),
            steps => Summary::of_run(
                &run.verb,
                &run.name,
                &steps.iter().map(|step| step.step.clone()).collect::<Vec<_>>(),
            ),
        }
    }

    /// The badge of the whole run.
    pub(crate) fn badge(&self) -> Badge {
        let badges: Vec<Badge> = self.steps.iter().map(StepFacts::badge).collect();
        if badges.contains(&Badge::Difference) {
            return Badge::Difference;
        }
        if !self.reader.has_run || self.steps.is_empty() {
            return Badge::Unknown;
        }
        if matches!(self.reader.run.state, State::Running | State::Unknown) {
            return Badge::Unknown;
        }
        // A watch is nothing but its samples.
        let is_empty = |step: &StepFacts| step.step.verb == WATCH && !has_server(step.watched);
        if self.steps.iter().any(is_empty) {
            return Badge::Unknown;
        }
        let is_open = |badge: &Badge| *badge == Badge::CannotTell;
        if badges.iter().all(is_open) {
            return Badge::CannotTell;
        }
        if !self.reader.run.verdict.valid {
            let is_only_open = badges.iter().any(is_open) && !badges.contains(&Badge::Invalid);
            return if is_only_open { Badge::CannotTell } else { Badge::Invalid };
        }
        let untroubled = self.reader.run.state == State::Finished
            && self.reader.run.verdict.notes.is_empty()
            && self.missing.is_empty();
        if untroubled { Badge::Valid } else { Badge::Notes }
    }
}

impl Facts<'_> {
    /// The answer about the database, if anything was seen of it: an answer that needs samples is none where nothing was sampled.
    pub(crate) fn health(&self) -> Option<Health> {
        let health = self.directory.findings.as_ref()?.health;
        let is_open = matches!(health, Health::CannotTell | Health::NotCovered);
        let is_watched = self.steps.iter().any(|step| has_server(step.watched));
        Some(health).filter(|_| is_watched || !is_open)
    }
}

/// Whether a server answered.
fn has_server(lines: &[Line]) -> bool {
    lines.iter().any(|line| matches!(line.what, Sampled::Server(_) | Sampled::Host(_)))
}

/// Steps that lasted for seconds and left no sample: the file was emptied or cut.
fn lost_samples(directory: &Directory, steps: &[StepFacts]) -> Option<String> {
    let is_sampled = |step: &StepFacts| {
        let length_us = step.end_us.saturating_sub(step.step.start_us);
        [WATCH, "run", "load"].contains(&step.step.verb.as_str()) && length_us >= SAMPLED_US_MIN
    };
    let is_empty = directory.reader.samples.is_empty() && directory.watched.all().is_empty();
    (is_empty && steps.iter().any(is_sampled)).then(|| {
        "samples.ndjson holds no samples, although the work lasted for seconds: it was emptied or lost, and nothing can be checked by it".to_string()
    })
}

/// Servers that never answered, or had gone by the end.
fn unseen_servers(directory: &Directory) -> Vec<String> {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for line in directory.watched.all() {
        if let Sampled::Missing(missing) = &line.what
            && missing.what == "server"
        {
            last.insert(&missing.node, &missing.why);
        }
    }
    let gone = last.into_iter().filter(|(_, why)| !why.is_empty());
    gone.map(|(node, why)| format!("{node}: the server did not answer at the end: {why}")).collect()
}

/// A step, and whether its totals had to be computed.
struct Gathered<'a> {
    facts: StepFacts<'a>,
    worked_out: bool,
}

impl<'a> StepFacts<'a> {
    fn of(directory: &'a Directory, mut step: Step, depth: Depth) -> Gathered<'a> {
        let reader = &directory.reader;
        let key = step.key.clone();
        if key.is_empty() {
            // Logs of other programs name no step; the page still needs a name for links.
            step.key = step.verb.clone();
        }
        let mine = reader.samples.iter().filter(|sample| sample.step == key);
        let mut client = vec![];
        let mut progress = vec![];
        for sample in mine {
            match &sample.body {
                Body::Client(body) => client.push((sample, body)),
                Body::Load(body) | Body::Verify(body) => progress.push((sample, body)),
                Body::Other { .. } => {}
            }
        }
        let intervals: Vec<&Interval> =
            reader.intervals.iter().filter(|interval| *interval.step == *key).collect();
        let last_us = client
            .iter()
            .map(|(sample, _)| sample.t_us)
            .chain(progress.iter().map(|(sample, _)| sample.t_us))
            .chain(intervals.iter().map(|interval| interval.end_us))
            .max();
        // A step without a driver and without an end lasts as long as it was watched.
        let last_us = last_us.or_else(|| directory.watched.all().last().map(|line| line.t_us));
        let end_us = step.end_us.or(last_us).unwrap_or(step.start_us);
        let inside = |event: &&Event| (step.start_us..=end_us).contains(&event.t_us);
        let mine = |event: &&Event| event.step == key || (event.step.is_empty() && inside(event));
        let events = reader.events.iter().filter(mine).collect();
        let latencies = Latencies::none(Columns::over(step.start_us, end_us, INTERVAL_US, 1));
        let watched = directory.watched.within(step.start_us, end_us);
        let mut facts = StepFacts { step, client, progress, intervals, events, watched, latencies, end_us };
        facts.gather_latencies(reader, depth);
        let worked_out = facts.work_out_totals();
        Gathered { facts, worked_out }
    }

    /// Start and end of the measured part, as far as it got.
    pub(crate) fn measured_us(&self) -> (u64, u64) {
        let measure = self.step.phases.iter().find(|phase| phase.name == PHASE_MEASURE);
        match measure {
            Some(phase) => (phase.start_us, phase.end_us.unwrap_or(self.end_us)),
            None => (self.step.start_us, self.end_us),
        }
    }

    /// The usual length of the step's intervals: their median.
    pub(crate) fn interval_us(&self) -> u64 {
        let lengths = self.client.iter().map(|(sample, _)| sample.interval_us);
        let lengths = lengths.chain(self.progress.iter().map(|(sample, _)| sample.interval_us));
        let mut lengths: Vec<u64> = lengths.filter(|length| *length > 0).collect();
        if lengths.is_empty() {
            lengths = self.intervals.iter().map(|interval| interval.end_us - interval.start_us).collect();
        }
        if lengths.is_empty() {
            let counted =
                self.watched.iter().filter(|line| matches!(line.what, Sampled::Server(_) | Sampled::Host(_)));
            lengths = counted.map(|line| line.interval_us).filter(|length| *length > 0).collect();
        }
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().filter(|length| *length > 0).unwrap_or(INTERVAL_US)
    }

    fn gather_latencies(&mut self, reader: &RunReader, depth: Depth) {
        let most = match depth {
            Depth::Charts(most) => most,
            Depth::Totals if self.has_totals() => return,
            Depth::Totals => 1,
        };
        let interval_us = self.interval_us();
        let (start_us, end_us) = (self.step.start_us, self.end_us);
        let columns = Columns::over(start_us, end_us, interval_us, most);
        let window = Window { columns, start_us, end_us, measured_us: self.measured_us(), interval_us };
        self.latencies = Latencies::gather(reader, &self.intervals, &window);
    }

    fn has_totals(&self) -> bool {
        self.step.summary.transactions.is_some() || self.step.summary.rows.is_some()
    }

    pub(crate) fn badge(&self) -> Badge {
        let is_broken = |promise: &Promise| promise.standing == Standing::Broken;
        if self.step.checks.iter().any(|check| check.result == CheckResult::Fail)
            || self.step.promises.iter().any(is_broken)
        {
            return Badge::Difference;
        }
        match self.step.state {
            State::Running | State::Unknown => Badge::Unknown,
            _ if self.is_open() => Badge::CannotTell,
            _ if !self.step.verdict.valid => Badge::Invalid,
            State::Interrupted | State::Failed => Badge::Notes,
            _ if !self.step.verdict.notes.is_empty() => Badge::Notes,
            _ => Badge::Valid,
        }
    }

    /// Whether there is a reason why it has no answer. Then a verification that has read all rows is not invalid, nor is a proof that could not be tried.
    fn is_open(&self) -> bool {
        let mut reasons = self.step.verdict.reasons.iter();
        let is_untested =
            |promise: &Promise| matches!(promise.standing, Standing::NotTested | Standing::NotPossible);
        let promises = &self.step.promises;
        !self.step.verdict.valid && reasons.any(|reason| reason.starts_with(CANNOT_TELL))
            || !promises.is_empty() && promises.iter().all(is_untested)
    }

    /// The badge in a word.
    pub(crate) fn word(&self) -> String {
        self.badge().word().to_lowercase()
    }

    /// It is a cell of a node matrix, which has one table for all cells.
    pub(crate) fn is_cell(&self) -> bool {
        self.step.verb == record::matrix::VERB
    }

    /// There is nothing to report about it beside its cell in the matrix: errors that no retry made good would be.
    pub(crate) fn is_plain_cell(&self) -> bool {
        self.is_cell() && self.step.errors.iter().all(|error| error.retried >= error.count)
    }

    /// `run ycsb-a`, `verify`.
    pub(crate) fn title(&self) -> String {
        let (verb, name) = (&self.step.verb, &self.step.name);
        let title = if name.is_empty() || name == verb { verb.clone() } else { format!("{verb} {name}") };
        match &self.step.sweep {
            None => title,
            Some(place) => {
                let pass = if place.repeat > 1 { format!(", pass {}", place.repeat) } else { String::new() };
                format!("{title}, {}{pass}", number::counted(place.sessions, "session"))
            }
        }
    }

    /// True if a source that counts errors has this step: histograms alone do not.
    pub(crate) fn knows_errors(&self) -> bool {
        self.step.state != State::Unknown || !self.client.is_empty()
    }

    /// A number parameter, for example `sessions`.
    pub(crate) fn parameter_u64(&self, name: &str) -> Option<u64> {
        self.step.parameters.get(name).and_then(serde_json::Value::as_u64)
    }

    /// Bytes loaded or read, if known.
    pub(crate) fn bytes(&self) -> Option<f64> {
        let total = self.step.totals_as::<LoadTotals>().bytes.map(|bytes| bytes as f64);
        total.or_else(|| Some(self.step.summary.bytes_per_s? * self.step.summary.duration_s))
    }

    /// Fills the summary of a step without one. True if it did.
    fn work_out_totals(&mut self) -> bool {
        let summary = &self.step.summary;
        if self.has_totals()
            || (self.client.is_empty() && self.progress.is_empty() && self.intervals.is_empty())
        {
            return false;
        }
        let mut worked =
            Summary { verb: summary.verb.clone(), name: summary.name.clone(), ..Summary::default() };
        let (from_us, to_us) = self.measured_us();
        worked.duration_s = to_us.saturating_sub(from_us) as f64 / 1e6;
        let per_second = |amount: f64| (worked.duration_s > 0.0).then(|| amount / worked.duration_s);
        if self.progress.is_empty() {
            let (response, service) = (&self.latencies.response, &self.latencies.service);
            let measured = self.client.iter().filter(|(_, body)| body.phase == PHASE_MEASURE);
            let measured: Vec<&ClientSample> = measured.map(|(_, body)| *body).collect();
            let from_samples: u64 = total(measured.iter().map(|body| body.transactions));
            let transactions = if measured.is_empty() { response.count() } else { from_samples };
            worked.transactions = Some(transactions);
            worked.tps = per_second(transactions as f64);
            worked.errors = total(measured.iter().map(|body| body.errors));
            worked.retries = total(measured.iter().map(|body| body.retries));
            worked.latency_us = response.summary();
            worked.service_us = service.summary();
        } else {
            let rows = total(self.progress.iter().map(|(_, body)| body.rows));
            let bytes = total(self.progress.iter().map(|(_, body)| body.bytes));
            worked.rows = Some(rows);
            worked.rows_per_s = per_second(rows as f64);
            worked.bytes_per_s = per_second(bytes as f64);
        }
        self.step.summary = worked;
        true
    }
}

/// The sum; a damaged file must not cause an overflow.
pub(crate) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Step names in samples and histograms that `run.json` does not list, in order of appearance.
fn unlisted_keys(reader: &RunReader) -> Vec<String> {
    let mut keys: Vec<String> = vec![];
    let detail = reader.samples.iter().filter(|sample| !matches!(sample.body, Body::Other { .. }));
    let named = detail.map(|sample| sample.step.as_str());
    let named = named.chain(reader.intervals.iter().map(|interval| &*interval.step));
    for key in named {
        if reader.run.step(key).is_none() && !keys.iter().any(|known| known == key) {
            keys.push(key.to_string());
        }
    }
    keys
}

/// A recording without a named step is one step.
fn watched_step(directory: &Directory) -> Option<Step> {
    let lines = directory.watched.all();
    let start_us = lines.iter().map(|line| line.t_us.saturating_sub(line.interval_us)).min()?;
    Some(Step {
        key: "watch".to_string(),
        verb: "watch".to_string(),
        state: State::Unknown,
        start_us,
        ..Step::default()
    })
}

/// The summary of a step that is only in samples or histograms.
fn made_up_step(reader: &RunReader, key: &str) -> Step {
    let samples = || reader.samples.iter().filter(|sample| sample.step == key);
    let verb = samples().find_map(|sample| match sample.body {
        Body::Load(_) => Some("load"),
        Body::Verify(_) => Some("verify"),
        Body::Client(_) => Some("run"),
        Body::Other { .. } => None,
    });
    let verb = verb.unwrap_or("run").to_string();
    let name = key.strip_prefix(&format!("{verb}-")).unwrap_or(key).to_string();
    let starts = samples().map(|sample| sample.t_us.saturating_sub(sample.interval_us));
    let interval_starts =
        reader.intervals.iter().filter(|interval| &*interval.step == key).map(|interval| interval.start_us);
    let start_us = starts.chain(interval_starts).min().unwrap_or(0);
    Step {
        key: key.to_string(),
        summary: Summary { verb: verb.clone(), name: name.clone(), ..Summary::default() },
        verb,
        name,
        state: State::Unknown,
        start_us,
        phases: made_up_phases(samples(), start_us),
        ..Step::default()
    }
}

/// Phases as the samples name them.
fn made_up_phases<'s>(samples: impl Iterator<Item = &'s Sample>, start_us: u64) -> Vec<Phase> {
    let mut phases: Vec<Phase> = vec![];
    for sample in samples {
        let name = match &sample.body {
            Body::Client(body) => &body.phase,
            Body::Load(body) | Body::Verify(body) => &body.phase,
            Body::Other { .. } => continue,
        };
        let begun_us = sample.t_us.saturating_sub(sample.interval_us).max(start_us);
        match phases.last_mut() {
            Some(last) if last.name == *name => last.end_us = Some(sample.t_us),
            _ if name.is_empty() => {}
            _ => phases.push(Phase { name: name.clone(), start_us: begun_us, end_us: Some(sample.t_us) }),
        }
    }
    phases
}
