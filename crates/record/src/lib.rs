//! The run directory: the record of a measurement, and the only input of reports and findings.
//!
//! A run directory is a folder of plain files, readable with jq, pandas, DuckDB and every HdrHistogram tool:
//!
//! | file | what |
//! |---|---|
//! | `run.json` | what was done to which target by which client, the verdict, totals; see [`model::Run`] |
//! | `samples.ndjson` | one line per second and source, after a header line; see [`sample`] |
//! | `events.ndjson` | phases, errors, outages, interrupts; see [`event`] |
//! | `stacks/` | stacks around anomalies, text like that of `perf script` |
//! | `findings.json` | what `explain` made of it; see [`finding`] |
//! | `check.json` | what `check` measured on hosts and nodes; see [`check`] |
//! | `plan.json` | what `plan` expected of it; see [`plan`] |
//! | `latency.hlog` | HdrHistogram interval log, one line per second, transaction type and kind; see [`hlog`] |
//!
//! One directory holds one command. A command is one or several **steps** (`demo` is load, verify, run, run, verify); a step has
//! a key that is unique in its directory, and everything in the other files names the step it belongs to. A step goes through
//! **phases** (warm-up, measure, drain).
//!
//! All times are microseconds of CLOCK_MONOTONIC since the start of the run (`t_us`), tied to wall-clock time by one anchor in
//! `run.json`. Writers append whole lines and replace `run.json` by rename, so a killed process leaves a directory that
//! [`RunReader`] can read; it lists what is missing instead of failing.

pub mod benchmark;
pub mod check;
pub mod clock;
pub mod error;
pub mod escape;
pub mod event;
pub mod exit;
pub mod file;
pub mod finding;
pub mod held;
pub mod histogram;
pub mod hlog;
mod latency_summary;
pub mod machine;
pub mod matrix;
pub mod model;
pub mod number;
pub mod owner;
pub mod plan;
pub mod promise;
pub mod reader;
pub mod redact;
pub mod sample;
#[cfg(test)]
mod schema;
pub mod stacks;
pub mod statement;
pub mod statistics;
pub mod subscription;
pub mod summary;
pub mod sweep;
pub mod totals;
pub mod usl;
pub mod watched;
pub mod writer;

pub use clock::Clock;
pub use error::RecordError;
pub use exit::Exit;
pub use finding::{Finding, Findings};
pub use histogram::Latency;
pub use hlog::Kind;
pub use matrix::Matrix;
pub use model::{Run, State, Step, Verdict};
pub use reader::RunReader;
pub use sample::{ClientSample, ProgressSample};
pub use summary::{LatencySummary, Summary};
pub use sweep::Sweep;
pub use writer::{RunDir, StepId, What};

/// Version of every file of the run directory. A higher one is refused: what its fields mean is not known here.
pub const SCHEMA_VERSION: u32 = 1;

/// File names inside a run directory.
pub mod files {
    /// What was done, and the answer.
    pub const RUN: &str = "run.json";
    /// Per second and source.
    pub const SAMPLES: &str = "samples.ndjson";
    /// Things that happened at a moment.
    pub const EVENTS: &str = "events.ndjson";
    /// Latency histograms per second.
    pub const LATENCY: &str = "latency.hlog";
    /// Claims about causes, made by `explain`.
    pub const FINDINGS: &str = "findings.json";
    /// What `check` measured on hosts and nodes.
    pub const CHECKS: &str = "check.json";
    /// What was planned: see [`crate::plan`].
    pub const PLAN: &str = "plan.json";
    /// The folder of recorded stacks: `<t_us>-<reason>.perf`, text like that of `perf script`.
    pub const STACKS: &str = "stacks";
    /// What was taken of backends that did not move.
    pub const STUCK: &str = "stuck";
    /// The folder of plans: `<query_id>-<hash>.json`, without constants.
    pub const PLANS: &str = "plans";
    /// The page.
    pub const REPORT: &str = "report.html";
}
