//! Turns a run directory into a terminal page, an HTML page and JSON. It depends only on `record`: everything shown is in the directory, so old,
//! partial and foreign directories can be shown, too, with a list of the missing parts.
//!
//! The page is one file that loads nothing: text, tables and sentences are written here; charts are described here
//! (`chart`) and drawn by the page's script with uPlot (MIT, under `vendor/`).

mod answer;
mod benchmark;
mod chart;
pub mod checks;
mod compare;
mod directory;
mod driven;
mod facts;
mod failover;
mod filled;
mod findings;
mod flame;
mod html;
mod latencies;
mod layout;
mod matrix;
mod node_time;
mod nodes;
mod planned;
mod prove;
mod search;
mod statements;
mod sweep;
mod text;
mod tile;
mod timeline;
mod unseen;
mod vacuum;

pub use compare::CompareError;
pub use record::RecordError;

use compare::Comparison;
use directory::Directory;
use facts::{Depth, Facts};
use record::plan::Plan;
use record::{Run, Summary};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The largest page; larger runs get fewer columns per chart.
pub const PAGE_BYTES_MAX: usize = 1_000_000;

/// What is shown.
pub trait Source {
    /// The directory.
    fn path(&self) -> &Path;

    /// The run, and the writer's first error if it is still in memory.
    fn held(&self) -> Option<(&Run, Option<&str>)> {
        None
    }

    /// The plan to compare it with instead of the directory's own.
    fn plan(&self) -> Option<&Plan> {
        None
    }
}

/// A run directory with a plan from elsewhere.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The directory.
    pub dir: PathBuf,
    /// The plan; `None`: that of the directory, if it has one.
    pub plan: Option<Plan>,
}

impl Source for Planned {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }
}

impl Source for Path {
    fn path(&self) -> &Path {
        self
    }
}

impl Source for PathBuf {
    fn path(&self) -> &Path {
        self
    }
}

/// A run directory whose writer still holds the run: on a full disk `run.json` is incomplete.
#[derive(Clone, Debug)]
pub struct Held {
    /// The directory.
    pub dir: PathBuf,
    /// The run.
    pub run: Run,
    /// The first thing that could not be written into the directory.
    pub lost: Option<String>,
}

impl Source for Held {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn held(&self) -> Option<(&Run, Option<&str>)> {
        Some((&self.run, self.lost.as_deref()))
    }
}

/// One offline HTML page.
///
/// # Errors
/// If the folder is not a run directory or cannot be read; a partial directory is no error.
pub fn html(dir: &(impl Source + ?Sized)) -> Result<String, RecordError> {
    let directory = Directory::open(dir)?;
    Ok(html::page(&directory, None))
}

/// One offline HTML page of a plan: its answer, its forecast, and `text`, which is what the terminal shows.
pub fn plan_page(plan: &record::plan::Plan, text: &str) -> String {
    html::plan_page(plan, text)
}

/// Two intervals of a run side by side, in every form.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// For a terminal.
    pub text: String,
    /// Indented, ends with a line feed.
    pub json: String,
    /// The page of the run, with these tables.
    pub html: String,
}

/// Why a comparison was not made.
#[derive(Debug, thiserror::Error)]
pub enum ComparedError {
    /// The directory cannot be read.
    #[error(transparent)]
    Directory(#[from] RecordError),
    /// The intervals cannot be compared.
    #[error(transparent)]
    Intervals(#[from] CompareError),
}

impl ComparedError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ComparedError::Directory(error) => error.hint(),
            ComparedError::Intervals(error) => error.hint(),
        }
    }
}

/// Compares two intervals, given as `FROM-TO,FROM-TO` in seconds of the step as its charts show them, as `STEP:FROM-TO,FROM-TO`, or as
/// the name of a finding: its seconds against the good ones.
///
/// # Errors
/// As [`html`], and if the intervals are not valid or not in the run.
pub fn compare(dir: &Path, intervals: &str) -> Result<Compared, ComparedError> {
    let directory = Directory::open(dir)?;
    let facts = Facts::of(&directory, Depth::Totals);
    let comparison = Comparison::of_intervals(&facts, intervals)?;
    let mut text = String::new();
    compare::print(&mut text, &comparison);
    let mut json = serde_json::to_string_pretty(&comparison)
        .map_err(|source| RecordError::Json { what: "the comparison", source })?;
    json.push('\n');
    let html = html::page(&directory, Some(&comparison));
    Ok(Compared { text, json, html })
}

/// The terminal page: ASCII without colour, ends with a line feed.
///
/// # Errors
/// As [`html`].
pub fn text(dir: &(impl Source + ?Sized)) -> Result<String, RecordError> {
    let directory = Directory::open(dir)?;
    Ok(text::page(&Facts::of(&directory, Depth::Totals)))
}

/// The most characters of a step's title in a demo: lines printed one by one are aligned.
const TITLE_WIDTH: usize = 11;

/// One step in one line, as [`text`] has it, for a command that prints its steps as they end. Empty if there is no such step.
///
/// # Errors
/// As [`html`].
pub fn step_line(dir: &(impl Source + ?Sized), key: &str) -> Result<String, RecordError> {
    let directory = Directory::open(dir)?;
    let facts = Facts::of(&directory, Depth::Totals);
    let step = facts.steps.iter().find(|step| step.step.key == key);
    Ok(step.map(|step| text::step_line(step, TITLE_WIDTH)).unwrap_or_default())
}

/// What [`json`] prints, in this order.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    planned: Vec<record::plan::Compared>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
}

/// The summary of `run.json`, indented, ends with a line feed. If anything is missing from the directory, a `missing` list
/// names it; totals that a killed run never wrote are computed from its samples.
///
/// # Errors
/// As [`html`].
pub fn json(dir: &(impl Source + ?Sized)) -> Result<String, RecordError> {
    let directory = Directory::open(dir)?;
    let facts = Facts::of(&directory, Depth::Totals);
    let mut summary = facts.summary();
    match &directory.findings {
        Some(findings) => summary.explained(findings),
        // The run was not explained: that is no empty list. The run's own findings stay.
        None => summary.findings = summary.findings.filter(|own| !own.is_empty()),
    }
    let printed = Printed { summary, planned: planned::compared(&facts), missing: &facts.missing };
    let mut text = serde_json::to_string_pretty(&printed)
        .map_err(|source| RecordError::Json { what: "the summary", source })?;
    text.push('\n');
    Ok(text)
}
