//! What faults cost in availability and in acknowledged commits: one distribution over all repeats for each measure.

use serde::{Deserialize, Serialize};

/// Least, middle and largest value of the repeats.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spread {
    /// The least; absent: no repeat has a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// The largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Values, those that never came included.
    pub n: u64,
    /// Those that never came: writes were not answered again before the end.
    pub never: u64,
}

impl Spread {
    /// Of these values; `None`: it never came.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Spread {
        let mut spread = Spread::default();
        let mut all: Vec<f64> = Vec::new();
        for value in values {
            spread.n += 1;
            match value {
                Some(value) => all.push(value),
                None => spread.never += 1,
            }
        }
        all.sort_by(f64::total_cmp);
        spread.min = all.first().copied();
        spread.max = all.last().copied();
        spread.median = crate::statistics::median(all.iter().copied());
        spread
    }
}

/// What the faults of a trial cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Failover {
    /// How often the trial ran.
    pub repeats: u64,
    /// The recovery point: acknowledged commits that are missing in the end, for each repeat.
    pub lost_commits: Spread,
    /// The same as a time: from the oldest lost acknowledgement to the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpo_us: Option<Spread>,
    /// The recovery time: from each fault to the first committed write that stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_write_us: Option<Spread>,
    /// From each fault to the first answered read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_read_us: Option<Spread>,
    /// Writes that were not answered, of those that were due, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_write_percent: Option<Spread>,
    /// Reads likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_read_percent: Option<Spread>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_came_is_counted_and_is_no_zero() {
        let spread = Spread::of([Some(3.0), None, Some(1.0), Some(2.0)]);
        assert_eq!((spread.min, spread.median, spread.max), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!((spread.n, spread.never), (4, 1));
        let none = Spread::of([None]);
        assert_eq!((none.min, none.median, none.n, none.never), (None, None, 1, 1));
    }
}
