//! How fast a transaction of a load comes along.

use std::time::{Duration, Instant};

/// How fast a transaction comes along, to guess when it will end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    begun: Instant,
    sent: u64,
    /// Of values, as far as only the encoder knows them.
    bytes: u64,
    total: u64,
}

impl Pace {
    /// A transaction of `total` rows that begins now.
    pub(crate) fn new(total: u64) -> Pace {
        Pace { begun: Instant::now(), sent: 0, bytes: 0, total }
    }

    /// Bytes of the values that were sent, where only the encoder knows them; else 0.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many rows have been sent.
    pub(crate) fn sent(&mut self, rows: u64) {
        self.sent += rows;
    }

    /// So many bytes of values have been encoded.
    pub(crate) fn encoded(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// How long the rest will take if it goes on like this.
    pub(crate) fn remaining(&self) -> Duration {
        if self.sent == 0 {
            return Duration::MAX;
        }
        let left = self.total.saturating_sub(self.sent) as f64;
        let seconds = self.begun.elapsed().as_secs_f64() * left / self.sent as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_shows_whether_the_end_is_near() {
        let begun = Instant::now() - Duration::from_secs(10);
        let remaining = |sent| Pace { begun, sent, bytes: 0, total: 1000 }.remaining();
        assert_eq!(remaining(0), Duration::MAX, "nothing is known before the first rows");
        assert!(remaining(100) > Duration::from_secs(80));
        assert!(remaining(900) < crate::stream::DRAIN);
        assert_eq!(remaining(1000), Duration::ZERO);
        // A leaf may have more rows than its share.
        assert_eq!(remaining(2000), Duration::ZERO);
    }
}
