//! Differences of counters that only grow, and the times when they do not: a reset, a restart, another object of the same name.

use serde_json::Value;
use std::collections::HashMap;

use crate::sql::json;

/// Counters by object: the last values of each, with the tick they were seen.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    last: HashMap<String, (u64, Vec<Option<f64>>)>,
    round: u64,
    went_back: bool,
}

/// The increments of one object since its last sample.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Delta {
    names: &'static [&'static str],
    values: Vec<Option<f64>>,
}

impl Delta {
    /// A difference as a number.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let index = self.names.iter().position(|other| *other == name)?;
        *self.values.get(index)?
    }

    /// A difference as a count.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.number(name).map(|number| number.round() as u64)
    }

    /// Whether anything moved.
    pub(crate) fn is_quiet(&self) -> bool {
        self.values.iter().flatten().all(|value| *value == 0.0)
    }
}

impl Counters {
    /// Begins a round: objects that are not seen in it are forgotten by [`Counters::sweep`].
    pub(crate) fn begin(&mut self) {
        self.round += 1;
        self.went_back = false;
    }

    /// As [`Counters::delta`] for objects that begin at zero when they appear: one that the last round did not have has counted all of it
    /// since.
    pub(crate) fn delta_of_new(
        &mut self,
        key: &str,
        names: &'static [&'static str],
        row: &Value,
    ) -> Option<Delta> {
        let is_new = self.round > 1 && !self.last.contains_key(key);
        let delta = self.delta(key, names, row);
        if is_new {
            Some(Delta { names, values: names.iter().map(|name| json::number(row, name)).collect() })
        } else {
            delta
        }
    }

    /// The increments of the object `key` since its last sample; `None` the first time. A counter that decreased has no difference.
    pub(crate) fn delta(&mut self, key: &str, names: &'static [&'static str], row: &Value) -> Option<Delta> {
        let now: Vec<Option<f64>> = names.iter().map(|name| json::number(row, name)).collect();
        let before = match self.last.get_mut(key) {
            Some(entry) => std::mem::replace(entry, (self.round, now.clone())).1,
            None => {
                self.last.insert(key.to_string(), (self.round, now));
                return None;
            }
        };
        let mut values = Vec::with_capacity(names.len());
        for (now, before) in now.into_iter().zip(before) {
            let difference = now.zip(before).map(|(now, before)| now - before);
            if difference.is_some_and(|difference| difference < 0.0) {
                self.went_back = true;
                // The object's other counters were reset with it, at an unknown time.
                return Some(Delta { names, values: vec![None; names.len()] });
            }
            values.push(difference);
        }
        Some(Delta { names, values })
    }

    /// Forgets objects that this round has not seen.
    pub(crate) fn sweep(&mut self) {
        self.last.retain(|_, (round, _)| *round == self.round);
    }

    /// Forgets everything: the server was started again.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
        self.round = 0;
    }

    /// Whether a counter decreased in this round.
    pub(crate) fn went_back(&self) -> bool {
        self.went_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NAMES: &[&str] = &["calls", "ms"];

    #[test]
    fn differences_need_two_looks_and_growth() {
        let mut counters = Counters::default();
        counters.begin();
        assert_eq!(counters.delta("a", NAMES, &json!({"calls": 5, "ms": 1.5})), None);
        counters.begin();
        let delta = counters.delta("a", NAMES, &json!({"calls": 7, "ms": null})).expect("seen before");
        assert_eq!((delta.count("calls"), delta.number("ms")), (Some(2), None));
        counters.begin();
        let delta = counters.delta("a", NAMES, &json!({"calls": 1, "ms": 9})).expect("seen before");
        assert_eq!((delta.count("calls"), delta.number("ms"), counters.went_back()), (None, None, true));
        counters.begin();
        let delta = counters.delta("a", NAMES, &json!({"calls": 1, "ms": 9})).expect("seen before");
        assert!(delta.is_quiet() && !counters.went_back());
    }

    #[test]
    fn what_appears_counts_from_zero_unless_everything_does() {
        let mut counters = Counters::default();
        let row = json!({"calls": 5, "ms": 1.5});
        for _ in 0..2 {
            counters.begin();
            assert_eq!(counters.delta_of_new("a", NAMES, &row), None, "the first round");
            counters.begin();
            assert_eq!(counters.delta_of_new("b", NAMES, &row).expect("new").count("calls"), Some(5));
            assert!(counters.delta_of_new("a", NAMES, &row).expect("known").is_quiet());
            counters.clear();
        }
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut counters = Counters::default();
        counters.begin();
        counters.delta("a", NAMES, &json!({"calls": 5}));
        counters.begin();
        counters.sweep();
        assert_eq!(counters.delta("a", NAMES, &json!({"calls": 6})), None, "a new object of that name");
    }
}
