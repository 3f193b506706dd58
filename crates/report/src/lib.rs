//! Run directory to terminal page, HTML page and JSON. Stands on `record` alone: what is shown is in the directory, so old,
//! partial and foreign directories can be shown too, with what is missing named.
//!
//! The page is one file that loads nothing: text, tables and sentences are written here; charts are described here
//! (`chart`) and drawn by the page's script with uPlot (MIT, under `vendor/`).

mod answer;
mod chart;
mod driven;
mod facts;
mod filled;
mod html;
mod latencies;
mod matrix;
mod nodes;
mod number;
mod sweep;
mod text;
mod tpcc;

pub use record::RecordError;

use facts::{Depth, Facts};
use record::{RunReader, Summary};
use serde::Serialize;
use std::path::Path;

/// The largest page that is made; runs with more to show get fewer columns per chart.
pub const PAGE_BYTES_MAX: usize = 1_000_000;

/// One offline HTML page.
///
/// # Errors
/// If the folder is no run directory or cannot be read; a partial directory is no error.
pub fn html(dir: &Path) -> Result<String, RecordError> {
    let reader = RunReader::open(dir)?;
    Ok(html::page(&reader))
}

/// The terminal page: ASCII without colour, ends with a line feed.
///
/// # Errors
/// As [`html`].
pub fn text(dir: &Path) -> Result<String, RecordError> {
    let reader = RunReader::open(dir)?;
    Ok(text::page(&Facts::of(&reader, Depth::Totals)))
}

/// The titles of the steps of a demo are at most this long: lines printed one by one stand in columns.
const TITLE_WIDTH: usize = 11;

/// One step in one line, as [`text`] has it, for a command that tells its steps as they end. Empty if there is no such step.
///
/// # Errors
/// As [`html`].
pub fn step_line(dir: &Path, key: &str) -> Result<String, RecordError> {
    let reader = RunReader::open(dir)?;
    let facts = Facts::of(&reader, Depth::Totals);
    let step = facts.steps.iter().find(|step| step.step.key == key);
    Ok(step.map(|step| text::step_line(step, TITLE_WIDTH)).unwrap_or_default())
}

/// What [`json`] prints, in this order.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
}

/// The summary of `run.json`, indented, ends with a line feed. If anything is missing from the directory, a `missing` list
/// says what; totals that a killed run never wrote are added up from its samples.
///
/// # Errors
/// As [`html`].
pub fn json(dir: &Path) -> Result<String, RecordError> {
    let reader = RunReader::open(dir)?;
    let facts = Facts::of(&reader, Depth::Totals);
    let printed = Printed { summary: facts.summary(), missing: &facts.missing };
    let mut text = serde_json::to_string_pretty(&printed)
        .map_err(|source| RecordError::Json { what: "the summary", source })?;
    text.push('\n');
    Ok(text)
}
