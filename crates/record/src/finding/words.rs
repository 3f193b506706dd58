//! The sentences about findings that the terminal and the page share.

use super::{Dimension, Finding, Findings, Health, Uncovered};
use crate::number::percent;

impl Finding {
    /// What it costs and what its remedy would save, for the line below the claim.
    pub fn costs(&self) -> Vec<String> {
        let mut words = vec![];
        words.extend(self.impact.map(|share| format!("{} of DB time", percent(share))));
        words.extend(self.benefit.map(|benefit| {
            format!(
                "the remedy would save {} to {} of DB time",
                percent(benefit.least),
                percent(benefit.most)
            )
        }));
        words.extend(self.share_of_client_time.map(|share| format!("{} of client time", percent(share))));
        if !self.also_at.is_empty() {
            words.push(format!("also at {}", self.also_at.join(", ")));
        }
        words
    }
}

impl Dimension {
    /// `by relation: orders 60 %, lines 12 %`.
    pub fn in_a_line(&self) -> String {
        let shares: Vec<String> =
            self.shares.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect();
        format!("by {}: {}", self.name, shares.join(", "))
    }
}

impl Uncovered {
    /// `n1: 34 % of DB time (2.7 sessions) in locks: ...`.
    pub fn sentence(&self) -> String {
        format!(
            "{}: {} of DB time ({:.1} sessions), {}: {}",
            self.node,
            percent(self.share),
            self.sessions,
            self.slice,
            self.look_at
        )
    }
}

impl Findings {
    /// The answer in place of findings, if there are none: nothing found, not covered, and cannot tell are three answers.
    pub fn no_findings(&self) -> &'static str {
        match self.health {
            Health::CannotTell => "cannot tell",
            Health::NotCovered => "nothing found, but no rule covers a large part of the time",
            _ => "nothing found",
        }
    }

    /// Findings that are not symptoms of others.
    pub fn causes(&self) -> impl Iterator<Item = &Finding> {
        let is_listed = |id: &String| self.findings.iter().any(|finding| finding.id == *id);
        self.findings.iter().filter(move |finding| !finding.symptom_of.as_ref().is_some_and(is_listed))
    }
}
