//! What the lines of a recording hold about one thing.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::series::Series;

/// The most fields of one thing: those of a recording of ours have some dozens.
pub(super) const FIELDS_MAX: usize = 512;
/// The most fields of all things together. As many tables, statements and indexes as are kept have a fraction of it.
const FIELDS_OF_ALL_MAX: usize = 1 << 20;

/// One thing over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Lines {
    pub(super) numbers: BTreeMap<String, Series>,
    pub(super) words: BTreeMap<String, String>,
    /// How often fields that are `true` or `false` became the other.
    changes: BTreeMap<String, u32>,
    /// How many lines are about it, by moment: several of one tick count together.
    pub ticks: Series,
}

impl Lines {
    /// A number over time; `None` if no line has it.
    pub fn series(&self, field: &str) -> Option<&Series> {
        self.numbers.get(field)
    }

    /// The last value of a text field; empty if no line has it.
    pub fn word(&self, field: &str) -> &str {
        self.words.get(field).map_or("", String::as_str)
    }

    /// The largest reading.
    pub fn max(&self, field: &str) -> Option<f64> {
        self.series(field).map(Series::max)
    }

    /// The sum of all readings.
    pub fn sum(&self, field: &str) -> Option<f64> {
        self.series(field).map(Series::sum)
    }

    /// The mean reading.
    pub fn mean(&self, field: &str) -> Option<f64> {
        self.series(field).map(Series::mean)
    }

    /// The first reading.
    pub fn first(&self, field: &str) -> Option<f64> {
        self.series(field).and_then(Series::first)
    }

    /// The last reading.
    pub fn last(&self, field: &str) -> Option<f64> {
        self.series(field).and_then(Series::last)
    }

    /// Counts per second.
    pub fn rate(&self, field: &str) -> Option<f64> {
        self.series(field).map(Series::rate)
    }

    /// A field that is `true` or `false`; `None` if no line has it.
    pub fn flag(&self, field: &str) -> Option<bool> {
        self.word(field).parse().ok()
    }

    /// How often a field that is `true` or `false` became the other.
    pub(crate) fn changes(&self, field: &str) -> u32 {
        self.changes.get(field).copied().unwrap_or(0)
    }

    /// `kept` counts the fields of all things. Returns how many new ones had no room: the names in a recording may be anything.
    pub(super) fn take(
        &mut self,
        t_us: u64,
        interval_us: u64,
        values: &Map<String, Value>,
        kept: &mut usize,
    ) -> usize {
        self.ticks.add(t_us, interval_us, 1.0);
        let mut dropped = 0;
        for (name, value) in values {
            let is_kept = matches!(value, Value::Number(_) | Value::String(_) | Value::Bool(_));
            if is_kept && !self.numbers.contains_key(name) && !self.words.contains_key(name) {
                if self.numbers.len() + self.words.len() >= FIELDS_MAX || *kept >= FIELDS_OF_ALL_MAX {
                    dropped += 1;
                    continue;
                }
                *kept += 1;
            }
            match value {
                Value::Number(number) => {
                    if let Some(number) = number.as_f64() {
                        self.number(name).push(t_us, interval_us, number);
                    }
                }
                Value::String(word) if self.words.get(name).is_none_or(|old| old != word) => {
                    self.words.insert(name.clone(), word.clone());
                }
                Value::Bool(flag) => {
                    let before = self.words.insert(name.clone(), flag.to_string());
                    if before.is_some_and(|before| before != flag.to_string()) {
                        *self.changes.entry(name.clone()).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        dropped
    }

    fn number(&mut self, name: &str) -> &mut Series {
        if !self.numbers.contains_key(name) {
            self.numbers.insert(name.to_string(), Series::default());
        }
        self.numbers.get_mut(name).expect("it was just put there")
    }
}
