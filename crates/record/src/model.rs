//! `run.json`: what was done, to what, by what, and the answer. Every struct is read with defaults for missing fields, and the
//! outer ones keep fields they do not know (`extra`), so that a directory of another version survives being read and rewritten.

pub use crate::machine::ClientMachine;
use crate::matrix;
use crate::promise::Promise;
use crate::summary::{LatencySummary, Summary};
use crate::sweep::{Place, Plan, Sweep};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a run or a step stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// At work. Found in a directory of a dead process it means: the process was killed. Goes to one of the others.
    #[default]
    Running,
    /// Ended by itself. Final.
    Finished,
    /// Ended early by the user, who got a partial result. Final.
    Interrupted,
    /// Ended by an error. Final.
    Failed,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

impl State {
    /// The word in `run.json`.
    pub fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Finished => "finished",
            State::Interrupted => "interrupted",
            State::Failed => "failed",
            State::Unknown => "unknown",
        }
    }
}

/// The whole of `run.json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Run {
    /// [`crate::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Name of the directory when it was made, unique on its host: `20261120-101500-demo-demo`.
    pub run_id: String,
    /// The verb of the command line.
    pub verb: String,
    /// What the verb worked on: `ycsb`, `ycsb-a`, ...
    pub name: String,
    /// The command line, secrets replaced by `***`.
    pub argv: Vec<String>,
    /// Where the run stands.
    pub state: State,
    /// The wall-clock anchor of `t_us` = 0.
    pub started: Anchor,
    /// End of the run in `t_us`; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_us: Option<u64>,
    /// The program that wrote this.
    pub tool: Tool,
    /// The machine the client ran on.
    pub client: ClientMachine,
    /// The database under test; absent before the first connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The sweep that the steps belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Plan>,
    /// The steps, in the order they ran.
    pub steps: Vec<Step>,
    /// Can the whole be trusted?
    pub verdict: Verdict,
    /// The short answer.
    pub summary: Summary,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One moment in both clocks of the recording host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Anchor {
    /// RFC 3339, UTC.
    pub wall_time: String,
    /// The same in microseconds since the Unix epoch.
    pub wall_us: u64,
    /// CLOCK_MONOTONIC microseconds of that host at that moment.
    pub monotonic_us: u64,
}

/// Name and version of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tool {
    /// `pgfathom`.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// Source revision, if the build knew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// The database under test.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Target {
    /// Engine profile: `postgres`, ...
    pub engine: String,
    /// As it reports it: `18.4`.
    pub server_version: String,
    /// `server_version_num`.
    pub version_num: u64,
    /// How it was reached, without secrets: `postgres@/tmp:5432/demo`.
    pub connection: String,
    /// The full `version()` string, with compiler and platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_text: Option<String>,
    /// Settings that differ from the built-in default.
    pub settings: Vec<Setting>,
    /// `pg_database_size` at the end of the last step that looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_bytes: Option<u64>,
    /// What could not be read and why; "settings: permission denied for ...".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One row of `pg_settings` whose value differs from `boot_val`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Setting {
    /// Name.
    pub name: String,
    /// Value, in `unit`s.
    pub value: String,
    /// Unit as `pg_settings` names it (`8kB`, `ms`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Where it comes from: `configuration file`, `command line`, ...
    pub source: String,
    /// The built-in default, for the reader's comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// One step of a command: a load, a verification, a driven workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Step {
    /// Unique in the directory; samples, events and histogram tags name it. `run-ycsb-a`, `verify`, `verify-2`.
    pub key: String,
    /// `load`, `verify`, `run`, ...
    pub verb: String,
    /// `ycsb`, `ycsb-a`, ...
    pub name: String,
    /// Where it stands.
    pub state: State,
    /// Start.
    pub start_us: u64,
    /// End; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_us: Option<u64>,
    /// Stretches of the step in order, without gaps.
    pub phases: Vec<Phase>,
    /// The data it worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<Dataset>,
    /// Further data it worked on, where workloads of several benchmarks were mixed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_datasets: Vec<Dataset>,
    /// Its place in a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Place>,
    /// What was requested: sessions, workers, rate, seed, wire mode, streams, ... by flag name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Can it be trusted?
    pub verdict: Verdict,
    /// The short answer.
    pub summary: Summary,
    /// Per transaction type, measured part only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeStatistics>,
    /// Per connect node, measured part only, where sessions were sent to several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatistics>,
    /// Errors by SQLSTATE, most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorStatistics>,
    /// Times during which the target was of no use, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<OutageStatistics>,
    /// What verification looked at and found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What became of the promises that were watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<Promise>,
    /// What a step of this kind counted beside its summary: one of the types of `totals`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(test, schemars(with = "crate::totals::Totals"))]
    pub totals: Map<String, Value>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Step {
    /// Takes the totals of this kind of step.
    pub fn set_totals(&mut self, totals: &impl Serialize) {
        if let Ok(Value::Object(fields)) = serde_json::to_value(totals) {
            self.totals = fields;
        }
    }

    /// The totals, as those of a kind of step; what they lack has its default.
    pub fn totals_as<T: DeserializeOwned + Default>(&self) -> T {
        T::deserialize(Value::Object(self.totals.clone())).unwrap_or_default()
    }
}

/// A stretch of a step: `schema`, `copy`, `index`, `analyze`; `warmup`, `measure`, `drain`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Phase {
    /// What happens in it.
    pub name: String,
    /// Start.
    pub start_us: u64,
    /// End; absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_us: Option<u64>,
}

/// Name of the phase whose samples count.
pub const PHASE_MEASURE: &str = "measure";
/// Name of the phase before it.
pub const PHASE_WARMUP: &str = "warmup";
/// Name of the phase after it.
pub const PHASE_DRAIN: &str = "drain";

/// Identity of a dataset: two directories with equal values here worked on equal content.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dataset {
    /// `ycsb`, `tpcc`, ...
    pub name: String,
    /// Dataset format version.
    pub format_version: u32,
    /// Seed.
    pub seed: u64,
    /// Rows of the main table.
    pub rows: u64,
    /// Everything else that decides content or layout: key order, partitions, compressible.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// How a reason begins that explains why there is no answer, although everything that could be read was.
pub const CANNOT_TELL: &str = "cannot tell";

/// Can a result be trusted? Invalid beats notes beats valid.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Verdict {
    /// False: the numbers prove nothing about the target, or the proof failed.
    pub valid: bool,
    /// Why not: one sentence each, cause first. Empty if valid.
    pub reasons: Vec<String>,
    /// What a careful reader should know although the result stands (a checkpoint fell into the run, few samples, ...).
    pub notes: Vec<String>,
}

impl Verdict {
    /// A verdict without reservations.
    pub fn valid() -> Verdict {
        Verdict { valid: true, ..Verdict::default() }
    }

    /// Makes the verdict invalid for one more reason.
    pub fn invalidate(&mut self, reason: impl Into<String>) {
        self.valid = false;
        self.reasons.push(reason.into());
    }
}

/// One transaction type of a workload in the measured part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TypeStatistics {
    /// `ycsb-read`, a script's name, ...; equals the type in histogram tags.
    pub name: String,
    /// Weight in the mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Committed.
    pub transactions: u64,
    /// Failed for good.
    pub errors: u64,
    /// Attempts repeated.
    pub retries: u64,
    /// Committed per second.
    pub tps: f64,
    /// Response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencySummary>,
    /// Service time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us: Option<LatencySummary>,
    /// Latencies above the histogram's range of one hour; in mean and max, not in percentiles.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflow: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The sessions that entered at one node, in the measured part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeStatistics {
    /// The node's name.
    pub name: String,
    /// What it does in its cluster: `primary`, `standby`, `shard`, ...
    pub role: String,
    /// Sessions that entered there.
    pub sessions: u64,
    /// Committed.
    pub transactions: u64,
    /// Failed for good.
    pub errors: u64,
    /// Committed per second.
    pub tps: f64,
    /// Response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencySummary>,
}

/// Errors with one SQLSTATE.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ErrorStatistics {
    /// Five characters, or a word of ours in lower case for errors that have none (`connection`, `protocol`).
    pub sqlstate: String,
    /// How often.
    pub count: u64,
    /// How many of them were retried with success or are counted under `retries`.
    pub retried: u64,
    /// The first one's message, as the server wrote it.
    pub first_message: String,
    /// When the first one came.
    pub first_us: u64,
    /// The transaction type of the first one, if it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_type: Option<String>,
}

/// A time during which the target was of no use to the client, and what followed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OutageStatistics {
    /// `disconnected`: no session was connected; `stalled`: sessions were, but no transaction ended; `failing`: all that ended had
    /// failed; `partial`: some failed in a way that no retry cures, and others committed (by whole seconds).
    pub cause: String,
    /// When the last session was lost, or the last transaction committed.
    pub from_us: u64,
    /// Until the first session was back, or the next transaction committed; absent if that never came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The first error of the server or the system.
    pub message: String,
    /// Transactions that failed in it, where sessions were connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Transactions per second in the calm seconds before, at most ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps_before: Option<f64>,
    /// From `from_us` until 95 % of `tps_before` was back, to the second; absent if it was not by the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_after_us: Option<u64>,
    /// The server where sessions went on, if it was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// One check of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Check {
    /// `rows`, `content`, `partition`, ...
    pub name: String,
    /// What it covered: `usertable_p3`, `all 12 chunks`, ...
    pub scope: String,
    /// Rows looked at.
    pub rows: u64,
    /// The answer.
    pub result: CheckResult,
    /// One line: "exact", "3 missing, 1 damaged".
    pub detail: String,
    /// The first rows that differ, named by key. Bounded by the verifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counterexamples: Vec<String>,
}

/// The answer of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// Looked at everything in scope, found nothing wrong.
    Ok,
    /// Found a difference.
    Fail,
    /// Could not look, for the reason in the detail. Never counts as ok.
    #[default]
    Skipped,
    /// An answer of a newer version.
    #[serde(other)]
    Unknown,
}

impl Run {
    /// The step with this key.
    pub fn step(&self, key: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.key == key)
    }

    /// The verdict and summary that follow from the steps: of a single step its own, of several their sum.
    pub fn conclude(&mut self) {
        self.summary = match self.steps.as_slice() {
            [] => Summary { verb: self.verb.clone(), name: self.name.clone(), ..Summary::default() },
            [only] if only.verb == self.verb && only.sweep.is_none() && only.verb != matrix::VERB => {
                only.summary.clone()
            }
            steps => Summary::of_run(&self.verb, &self.name, steps),
        };
        self.verdict = match &self.summary.sweep {
            Some(sweep) => self.verdict_of_sweep(sweep),
            None if self.summary.matrix.is_some() => matrix::verdict(&self.steps),
            None => self.verdict_of_steps(),
        };
        self.summary.valid = self.verdict.valid;
    }

    fn verdict_of_steps(&self) -> Verdict {
        let several = self.steps.len() > 1;
        let name =
            |step: &Step, text: &String| if several { format!("{}: {text}", step.key) } else { text.clone() };
        let reasons =
            self.steps.iter().flat_map(|step| step.verdict.reasons.iter().map(move |text| name(step, text)));
        let notes =
            self.steps.iter().flat_map(|step| step.verdict.notes.iter().map(move |text| name(step, text)));
        Verdict {
            valid: !self.steps.is_empty() && self.steps.iter().all(|step| step.verdict.valid),
            reasons: reasons.collect(),
            notes: notes.collect(),
        }
    }

    /// A sweep stands as long as one of its steps does: those that do not are left out, and noted.
    fn verdict_of_sweep(&self, sweep: &Sweep) -> Verdict {
        let repeats = sweep.curves.iter().flat_map(|curve| &curve.points).flat_map(|point| &point.repeats);
        let wording = |left_out: &Option<String>, step: &str| {
            left_out.as_ref().map(|why| format!("{step} does not count: {why}"))
        };
        let left_out: Vec<String> =
            repeats.clone().filter_map(|repeat| wording(&repeat.left_out, &repeat.step)).collect();
        if !self.steps.iter().any(|step| step.verdict.valid) {
            return Verdict { valid: false, reasons: left_out, notes: vec![] };
        }
        let mut notes = left_out;
        let missing =
            self.sweep.as_ref().map_or(0, |plan| plan.steps).saturating_sub(self.steps.len() as u64);
        if missing > 0 {
            notes.push(match missing {
                1 => "1 step was not started".to_string(),
                some => format!("{some} steps were not started"),
            });
        }
        let unsettled = repeats.filter(|repeat| repeat.settled == Some(false)).count();
        if unsettled > 0 {
            notes.push(format!(
                "throughput had not settled when the measurement began, in {unsettled} of {} steps",
                self.steps.len()
            ));
        }
        notes.extend(self.sweep.iter().flat_map(|plan| plan.missing.iter().cloned()));
        // A note that every step repeats with other numbers would hide the rest.
        let noted =
            self.steps.iter().filter(|step| step.verdict.valid && !step.verdict.notes.is_empty()).count();
        if noted > 0 {
            notes.push(format!("{noted} of {} steps have their own notes", self.steps.len()));
        }
        Verdict { valid: true, reasons: vec![], notes }
    }
}

impl Step {
    /// Start and end of the measured part: the `measure` phase, else the whole step. `None` while it has no end.
    pub fn measured_us(&self) -> Option<(u64, u64)> {
        match self.phases.iter().find(|phase| phase.name == PHASE_MEASURE) {
            Some(phase) => Some((phase.start_us, phase.end_us.or(self.end_us)?)),
            None => Some((self.start_us, self.end_us?)),
        }
    }
}
