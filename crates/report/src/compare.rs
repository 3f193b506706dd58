//! Compares two intervals of one run, like pg_profile: clients, waits, server counters per second, statements and hosts in
//! both, with difference and ratio. Usually the bad seconds are compared with the good ones.

mod gather;
mod show;

use crate::facts::{Facts, StepFacts};
use record::finding::{Finding, Window};
use record::number;
use serde::Serialize;
use thiserror::Error;

pub(crate) use show::{print, section};

/// A finding whose windows cover a larger share of a step leaves no good seconds to compare with.
const BAD_SHARE_MAX: f64 = 0.7;
/// The distance of good seconds from bad ones: the seconds before and after a stall belong to neither.
const MARGIN_US: u64 = 2_000_000;
/// `schema` of the JSON.
const SCHEMA: &str = "pgfathom.comparison";

/// Why two intervals cannot be compared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CompareError {
    /// Not `FROM-TO,FROM-TO`, and not the name of a finding.
    #[error("--compare {given}: neither two intervals nor a finding of this run")]
    NotIntervals {
        /// What was typed.
        given: String,
        /// The findings that could be named.
        findings: Vec<String>,
    },
    /// The step is not part of the run.
    #[error("--compare {given}: the run has no step {key}")]
    NoStep {
        /// What was typed.
        given: String,
        /// The step that was named.
        key: String,
        /// Those that there are.
        keys: Vec<String>,
    },
    /// Seconds of which step?
    #[error("--compare {given}: the run has several steps")]
    WhichStep {
        /// What was typed.
        given: String,
        /// Those that there are.
        keys: Vec<String>,
    },
    /// An interval outside of the step.
    #[error("--compare {given}: seconds {from_s} to {to_s} are not within {key}, which took {length_s} s")]
    Outside {
        /// What was typed.
        given: String,
        /// The step.
        key: String,
        /// Begin of the interval.
        from_s: String,
        /// Its end.
        to_s: String,
        /// Seconds that the step took.
        length_s: String,
    },
    /// The finding covers the whole step.
    #[error("--compare {given}: the finding covers all of {key}: no seconds are left to compare it with")]
    NoGoodSeconds {
        /// What was typed.
        given: String,
        /// The step.
        key: String,
    },
}

impl CompareError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            CompareError::NotIntervals { findings, .. } => {
                let named = match findings.as_slice() {
                    [] => String::new(),
                    names => format!(", or a finding: --compare {}", names.join(", ")),
                };
                format!("seconds as the charts show them: --compare 35-48,5-30{named}")
            }
            CompareError::NoStep { keys, .. } | CompareError::WhichStep { keys, .. } => {
                let first = keys.first().map(String::as_str).unwrap_or("STEP");
                format!("name one of {}: --compare {first}:35-48,5-30", keys.join(", "))
            }
            CompareError::Outside { length_s, .. } => {
                format!(
                    "name seconds between 0 and {length_s}, counted from the start of the step as in the charts"
                )
            }
            CompareError::NoGoodSeconds { .. } => "name the seconds: --compare 35-48,5-30".to_string(),
        })
    }
}

/// One side of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Side {
    /// `seconds 35 to 48`, `bad seconds`.
    pub(crate) name: String,
    /// On the run's clock.
    pub(crate) windows: Vec<Window>,
    /// How long they are together.
    pub(crate) seconds: f64,
}

/// Two sides, and what differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    schema_version: u32,
    run_id: String,
    /// The step compared within.
    pub(crate) step: String,
    /// The finding whose seconds these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finding: Option<String>,
    pub(crate) first: Side,
    pub(crate) second: Side,
    pub(crate) groups: Vec<Group>,
}

/// Figures of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) figures: Vec<Figure>,
}

/// One figure on both sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Figure {
    /// The name, which ends with the unit (see `number::named`).
    pub(crate) name: String,
    /// The object: a statement, a device, a node; empty for the total.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) second: Option<f64>,
    /// First minus second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<f64>,
    /// First divided by second; absent where the second is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl Figure {
    fn new(name: &str, of: &str, first: Option<f64>, second: Option<f64>) -> Figure {
        let both = first.zip(second);
        Figure {
            name: name.to_string(),
            of: of.to_string(),
            first,
            second,
            difference: both.map(|(first, second)| crate::chart::tidy(first - second)),
            ratio: both
                .filter(|(_, second)| *second > 0.0)
                .map(|(first, second)| crate::chart::tidy(first / second)),
        }
    }

    /// The ratio of the larger to the smaller side.
    fn contrast(&self) -> f64 {
        let (first, second) = (self.first.unwrap_or(0.0).abs(), self.second.unwrap_or(0.0).abs());
        let (low, high) = (first.min(second), first.max(second));
        if high == 0.0 { 0.0 } else { (high / low.max(high / 1000.0)).ln() }
    }
}

impl Comparison {
    /// Reads `FROM-TO,FROM-TO`, `STEP:FROM-TO,FROM-TO` or the name of a finding, and compares.
    pub(crate) fn of_intervals(facts: &Facts, given: &str) -> Result<Comparison, CompareError> {
        let findings = facts.directory.findings.iter().flat_map(|findings| &findings.findings);
        if let Some(finding) = findings.clone().find(|finding| finding.id.eq_ignore_ascii_case(given)) {
            let step = of_finding(facts, finding);
            let key = step.map(|step| step.step.key.clone()).unwrap_or_default();
            let nothing = CompareError::NoGoodSeconds { given: given.to_string(), key };
            return step.and_then(|step| Comparison::of(facts, step, finding)).ok_or(nothing);
        }
        let (key, spans) = match given.rsplit_once(':') {
            Some((key, spans)) => (Some(key), spans),
            None => (None, given),
        };
        let parsed = spans.split_once(',').and_then(|(first, second)| Some((span(first)?, span(second)?)));
        let Some((first, second)) = parsed else {
            let findings = findings.map(|finding| finding.id.clone()).collect();
            return Err(CompareError::NotIntervals { given: given.to_string(), findings });
        };
        let step = step_named(facts, given, key)?;
        let window = |(from_s, to_s): (f64, f64)| {
            let at = |seconds: f64| step.step.start_us.saturating_add((seconds * 1e6) as u64);
            let window = Window::new(at(from_s), at(to_s).min(step.end_us));
            let outside = window.from_us >= step.end_us || window.length_us() == 0;
            let text = |seconds: f64| number::three(seconds);
            match outside {
                true => Err(CompareError::Outside {
                    given: given.to_string(),
                    key: step.step.key.clone(),
                    from_s: text(from_s),
                    to_s: text(to_s),
                    length_s: text(step.end_us.saturating_sub(step.step.start_us) as f64 / 1e6),
                }),
                false => Ok(Side {
                    name: format!("{} to {}", number::duration(from_s), number::duration(to_s)),
                    seconds: window.length_us() as f64 / 1e6,
                    windows: vec![window],
                }),
            }
        };
        Ok(Comparison::made(facts, step, None, window(first)?, window(second)?))
    }

    /// The bad seconds of the worst finding that leaves good ones.
    pub(crate) fn of_worst(facts: &Facts) -> Option<Comparison> {
        let findings = &facts.directory.findings.as_ref()?.findings;
        let detail = findings.iter().filter(|finding| finding.severity > record::finding::Severity::Note);
        detail.filter_map(|finding| Comparison::of(facts, of_finding(facts, finding)?, finding)).next()
    }

    fn of(facts: &Facts, step: &StepFacts, finding: &Finding) -> Option<Comparison> {
        let (bad, good) = sides(step, &finding.windows)?;
        Some(Comparison::made(facts, step, Some(finding.id.clone()), bad, good))
    }

    fn made(
        facts: &Facts,
        step: &StepFacts,
        finding: Option<String>,
        first: Side,
        second: Side,
    ) -> Comparison {
        let groups = gather::groups(facts, step, &first, &second);
        Comparison {
            schema: SCHEMA,
            schema_version: record::SCHEMA_VERSION,
            run_id: facts.reader.run.run_id.clone(),
            step: step.step.key.clone(),
            finding,
            first,
            second,
            groups,
        }
    }
}

fn of_finding<'f, 'a>(facts: &'f Facts<'a>, finding: &Finding) -> Option<&'f StepFacts<'a>> {
    let longest = finding.windows.iter().max_by_key(|window| window.length_us())?;
    crate::findings::step_of(facts, *longest)
}

/// The bad seconds of a step and the good ones: those of the measured part that are far enough from all bad ones.
pub(crate) fn sides(step: &StepFacts, windows: &[Window]) -> Option<(Side, Side)> {
    let (from_us, to_us) = step.measured_us();
    let whole = Window::new(from_us, to_us);
    let mut bad: Vec<Window> = windows
        .iter()
        .filter(|window| window.overlap_us(whole) > 0)
        .map(|window| Window::new(window.from_us.max(from_us), window.to_us.min(to_us)))
        .collect();
    bad.sort();
    let mut good = vec![];
    let mut at = from_us;
    for window in &bad {
        good.push(Window::new(at, window.from_us.saturating_sub(MARGIN_US).max(at)));
        at = at.max(window.to_us.saturating_add(MARGIN_US));
    }
    good.push(Window::new(at.min(to_us), to_us));
    good.retain(|window| window.length_us() > 0);
    let seconds = |windows: &[Window]| {
        windows.iter().map(|window| window.length_us()).fold(0, u64::saturating_add) as f64 / 1e6
    };
    let (bad_s, good_s) = (seconds(&bad), seconds(&good));
    let enough = bad_s > 0.0 && good_s >= 1.0 && bad_s <= whole.length_us() as f64 / 1e6 * BAD_SHARE_MAX;
    let side =
        |name: &str, windows: Vec<Window>, seconds: f64| Side { name: name.to_string(), windows, seconds };
    enough.then(|| (side("bad seconds", bad, bad_s), side("good seconds", good, good_s)))
}

fn step_named<'f, 'a>(
    facts: &'f Facts<'a>,
    given: &str,
    key: Option<&str>,
) -> Result<&'f StepFacts<'a>, CompareError> {
    // Driven steps are preferred for a comparison.
    let keys = || {
        let mut steps: Vec<&StepFacts> = facts.steps.iter().collect();
        steps.sort_by_key(|step| step.client.is_empty());
        steps.iter().map(|step| step.step.key.clone()).collect()
    };
    match (key, facts.steps.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(CompareError::WhichStep { given: given.to_string(), keys: keys() }),
        (Some(key), steps) => steps.iter().find(|step| step.step.key == key).ok_or_else(|| {
            CompareError::NoStep { given: given.to_string(), key: key.to_string(), keys: keys() }
        }),
    }
}

/// `35-48`: seconds, the first before the second.
fn span(text: &str) -> Option<(f64, f64)> {
    let (from, to) = text.trim().split_once('-')?;
    let (from, to): (f64, f64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from >= 0.0 && from < to && to.is_finite()).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_and_nonsense_is_not() {
        assert_eq!(span("35-48"), Some((35.0, 48.0)));
        assert_eq!(span(" 0.5 - 2 "), Some((0.5, 2.0)));
        for wrong in ["48-35", "5", "a-b", "5-5", "-1-5", "1-inf", ""] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_nothing_on_one_side_has_a_difference_and_no_ratio() {
        let figure = Figure::new("wal_bytes_per_s", "", Some(5.0), Some(0.0));
        assert_eq!((figure.difference, figure.ratio), (Some(5.0), None));
        let figure = Figure::new("wal_bytes_per_s", "", None, Some(2.0));
        assert_eq!((figure.difference, figure.ratio), (None, None));
    }
}
