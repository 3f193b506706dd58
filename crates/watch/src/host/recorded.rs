//! Facts and missing items are reported once: at the start and when they change.

use crate::collect::{Batch, Place};
use std::collections::BTreeMap;

/// The longest value of a fact: a kernel's command line fits, a file does not.
const VALUE_CHARS_MAX: usize = 1000;

/// The facts and gaps of a host or node that are already recorded.
#[derive(Debug, Default)]
pub struct Recorded {
    facts: BTreeMap<(String, String), String>,
    missing: BTreeMap<String, (String, String)>,
    /// The missing items of the current round.
    round: BTreeMap<String, (String, String)>,
}

impl Recorded {
    /// Reports a fact unless it was reported before.
    pub fn fact(
        &mut self,
        batch: &mut Batch,
        t_us: u64,
        place: &Place,
        topic: &str,
        name: &str,
        value: &str,
    ) {
        let value: String = value.chars().take(VALUE_CHARS_MAX).collect();
        let key = (topic.to_string(), name.to_string());
        if self.facts.get(&key) != Some(&value) {
            batch.reading(t_us, place.fact(topic, name, value.as_str()));
            self.facts.insert(key, value);
        }
    }

    /// A fact that was recorded.
    pub fn known(&self, topic: &str, name: &str) -> Option<&str> {
        self.facts.get(&(topic.to_string(), name.to_string())).map(String::as_str)
    }

    /// Notes a missing item. It is reported at the end of the round.
    pub fn lacks(&mut self, what: &str, why: impl Into<String>, lost: &str) {
        self.round.insert(what.to_string(), (why.into(), lost.to_string()));
    }

    /// Ends a round in which everything was read: reports what is newly missing, and with an empty reason what is back.
    pub(crate) fn end_round(&mut self, batch: &mut Batch, t_us: u64, place: &Place) {
        let round = std::mem::take(&mut self.round);
        for (what, (why, lost)) in &round {
            if self.missing.get(what).map(|(why, _)| why) != Some(why) {
                batch.reading(t_us, place.missing(what, why.as_str(), lost.as_str()));
            }
        }
        for (what, (_, lost)) in &self.missing {
            if !round.contains_key(what) {
                batch.reading(t_us, place.missing(what, "", lost.as_str()));
            }
        }
        self.missing = round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watched::Sampled;

    #[test]
    fn facts_and_gaps_are_reported_when_they_change() {
        let place = Place::Host("h".to_string());
        let mut reported = Recorded::default();
        let mut record = |value: &str, why: Option<&str>| {
            let mut batch = Batch::default();
            reported.fact(&mut batch, 1, &place, "mount", "/data", value);
            if let Some(why) = why {
                reported.lacks("edac", why, "memory errors");
            }
            reported.end_round(&mut batch, 1, &place);
            let detail = batch.lines.into_iter().map(|(_, _, line)| match line {
                Sampled::Fact(fact) => fact.value,
                Sampled::Missing(missing) => format!("missing: {}", missing.why),
                other => panic!("{other:?}"),
            });
            detail.collect::<Vec<_>>()
        };
        assert_eq!(record("stripe=1280", Some("not there")), ["stripe=1280", "missing: not there"]);
        assert!(record("stripe=1280", Some("not there")).is_empty());
        assert_eq!(record("stripe=0", Some("permission denied")), ["stripe=0", "missing: permission denied"]);
        assert_eq!(record("stripe=0", None), ["missing: "], "it can be seen again");
        assert!(record("stripe=0", None).is_empty());
    }
}
