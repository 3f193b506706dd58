//! What a benchmark found about itself, in a form that every report can show: figures of its own, and what must hold of its tables.

use serde::{Deserialize, Serialize};

/// The answer of one benchmark.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// Its figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// What was checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// A figure with its unit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkFigure"))]
#[serde(default)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

impl Figure {
    /// A figure.
    pub fn new(name: &str, value: f64, unit: &str) -> Figure {
        Figure { name: name.into(), value, unit: unit.into() }
    }
}

/// Something that must hold.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkCheck"))]
#[serde(default)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// Whether it does; absent where it was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// What was found.
    pub detail: String,
}

impl Check {
    /// Whether it holds, in one word.
    pub fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "BROKEN",
            None => "skipped",
        }
    }
}
