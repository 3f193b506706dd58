//! Results that a session caches: an expensive query that several steps need is not sent for each of them.

use std::time::{Duration, Instant};

/// Answers that a session has got, by the name of the question. The caller decides for how long one holds.
#[derive(Debug, Default)]
pub struct Recent(Vec<(&'static str, Instant)>);

impl Recent {
    /// Whether the answer is at most so old.
    pub fn holds(&self, question: &str, for_at_most: Duration) -> bool {
        self.0.iter().any(|(name, at)| *name == question && at.elapsed() <= for_at_most)
    }

    /// The question was answered now.
    pub fn note(&mut self, question: &'static str) {
        self.0.retain(|(name, _)| *name != question);
        self.0.push((question, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_as_long_as_the_caller_decides() {
        let mut recent = Recent::default();
        assert!(!recent.holds("a", Duration::MAX));
        recent.note("a");
        assert!(recent.holds("a", Duration::MAX) && !recent.holds("b", Duration::MAX));
        while recent.holds("a", Duration::from_nanos(1)) {}
        assert!(recent.holds("a", Duration::MAX));
        recent.note("a");
        assert_eq!(recent.0.len(), 1);
    }
}
