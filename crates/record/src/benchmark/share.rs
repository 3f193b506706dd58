//! Shares that a specification prescribes, judged with a test for chance.

use serde::{Deserialize, Serialize};

/// A share that the specification prescribes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkShare"))]
#[serde(default)]
pub struct Share {
    /// What it is a share of: `New-Orders rolled back`.
    pub name: String,
    /// The clause.
    pub clause: String,
    /// How many were.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// The least allowed.
    pub percent_min: f64,
    /// The most allowed.
    pub percent_max: f64,
    /// Whether it is kept.
    pub result: ShareResult,
}

/// Whether a share is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkShareResult"))]
#[serde(rename_all = "snake_case")]
pub enum ShareResult {
    /// Within the bounds, or as close to them as chance explains.
    Ok,
    /// Outside the bounds, and chance does not explain it.
    Outside,
    /// So few that chance alone may lead beyond the bounds, or inside.
    InsufficientData,
    /// There is nothing to count, for example remote lines with a single warehouse.
    #[default]
    NotApplicable,
    /// An answer of a newer version.
    #[serde(other)]
    Unknown,
}

impl ShareResult {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            ShareResult::Ok => "ok",
            ShareResult::Outside => "OUTSIDE",
            ShareResult::InsufficientData => "too few to judge",
            ShareResult::NotApplicable => "not applicable",
            ShareResult::Unknown => "?",
        }
    }
}

/// Two-sided 99 % of the normal distribution.
const Z: f64 = 2.576;

impl Share {
    /// Judges a share that must lie between two percentages. Chance is taken into account by Wilson's interval of 99 %.
    pub fn judge(name: &str, clause: &str, count: u64, of: u64, percent: (f64, f64)) -> Share {
        let (percent_min, percent_max) = percent;
        let result = if of == 0 {
            ShareResult::NotApplicable
        } else {
            let (low, high) = wilson(count, of);
            // Far more doubt than the room between the bounds, or around a single one, leaves.
            let room = if percent_max < 100.0 { percent_max - percent_min } else { percent_min / 5.0 };
            match () {
                () if high < percent_min || low > percent_max => ShareResult::Outside,
                () if high - low > room => ShareResult::InsufficientData,
                () => ShareResult::Ok,
            }
        };
        Share {
            name: name.to_string(),
            clause: clause.to_string(),
            count,
            of,
            percent_min,
            percent_max,
            result,
        }
    }

    /// What it came to, for people. What is beyond the bounds and still kept is explained by chance, and what is within them may be too few to judge.
    pub fn word(&self) -> &'static str {
        let is_within = (self.percent_min..=self.percent_max).contains(&self.percent());
        match self.result {
            ShareResult::Ok if !is_within => "ok (within chance)",
            result => result.word(),
        }
    }

    /// The share in percent.
    pub fn percent(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.count as f64 * 100.0 / self.of as f64 }
    }
}

/// Wilson's score interval of a binomial share, in percent (Wilson 1927).
fn wilson(count: u64, of: u64) -> (f64, f64) {
    let (n, share) = (of as f64, count as f64 / of as f64);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    (100.0 * (middle - half), 100.0 * (middle + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_judged_with_regard_to_chance() {
        let judge = |count, of| Share::judge("rollbacks", "2.4.1.4", count, of, (0.9, 1.1)).result;
        assert_eq!(judge(0, 0), ShareResult::NotApplicable);
        assert_eq!(judge(1, 100), ShareResult::InsufficientData);
        assert_eq!(judge(0, 100), ShareResult::InsufficientData, "none of a hundred is no wonder");
        assert_eq!(judge(0, 10_000), ShareResult::Outside, "none of ten thousand is");
        assert_eq!(judge(10, 100), ShareResult::Outside);
        assert_eq!(judge(10_000, 1_000_000), ShareResult::Ok);
        assert_eq!(judge(12_000, 1_000_000), ShareResult::Outside);
        let least = |count, of| Share::judge("Payment", "5.2.3", count, of, (43.0, 100.0)).result;
        assert_eq!(least(43, 100), ShareResult::InsufficientData);
        assert_eq!(least(42_950, 100_000), ShareResult::Ok, "chance explains that");
        assert_eq!(least(42_000, 100_000), ShareResult::Outside);
        let word = |count, of| Share::judge("Payment", "5.2.3", count, of, (43.0, 100.0)).word();
        assert_eq!(word(42_950, 100_000), "ok (within chance)");
        assert_eq!(word(43_950, 100_000), "ok");
        assert_eq!((word(44, 100), word(1, 100)), ("too few to judge", "OUTSIDE"));
        let (low, high) = wilson(50, 100);
        assert!((low - 37.5).abs() < 0.3 && (high - 62.5).abs() < 0.3, "{low} {high}");
    }
}
