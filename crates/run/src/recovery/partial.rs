//! Times in which a part of the transactions fails while others commit.

use super::{Beat, OUTAGES_MAX};
use crate::control::{Cause, Outage};
use crate::engine::{NANOS_PER_SECOND, Nanos};

/// From this share of failures in a second on they are more than a rare accident of the workload.
const SHARE_MIN: f64 = 0.05;
/// Seconds without a failure that end such a time.
const QUIET_SECONDS: u32 = 3;

/// Follows the failures of a run second by second.
///
/// | state | is | leaves |
/// |---|---|---|
/// | untried | no second has been free of failures yet: a workload that always fails in part has no such time | with the first good second, to calm |
/// | calm | `present` is `None` | with a second in which [`SHARE_MIN`] failed and something committed |
/// | failing | `present` is what is seen of it so far | after [`QUIET_SECONDS`] without a failure, to calm |
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// There was a second in which everything committed.
    was_good: bool,
    present: Option<Present>,
    past: Vec<Outage>,
}

#[derive(Debug)]
struct Present {
    outage: Outage,
    /// The end of the last second with a failure.
    until: Nanos,
    quiet_seconds: u32,
}

impl Partial {
    pub(super) fn second(&mut self, beat: &Beat) {
        let Beat { hard_errors, transactions, .. } = *beat;
        match &mut self.present {
            Some(present) if hard_errors > 0 => {
                present.outage.failed += hard_errors;
                (present.until, present.quiet_seconds) = (beat.to, 0);
            }
            Some(present) => {
                present.quiet_seconds += 1;
                if present.quiet_seconds >= QUIET_SECONDS {
                    self.end();
                }
            }
            None if hard_errors == 0 => self.was_good |= transactions > 0,
            None => {
                let share = hard_errors as f64 / (hard_errors + transactions) as f64;
                if self.was_good && transactions > 0 && share >= SHARE_MIN && self.past.len() < OUTAGES_MAX {
                    let outage = Outage {
                        from: beat.from,
                        cause: Cause::Partial,
                        failed: hard_errors,
                        message: beat.error.clone().unwrap_or_default(),
                        ..Outage::default()
                    };
                    self.present = Some(Present { outage, until: beat.to, quiet_seconds: 0 });
                }
            }
        }
    }

    fn end(&mut self) {
        let ended = self.present.take().map(|present| Outage { to: Some(present.until), ..present.outage });
        self.past.extend(ended);
    }

    /// The run is over: all such times but those that were mostly one of the `others`, in which nothing committed. As these times are known by
    /// whole seconds, so are the others: what failed in the second of a short outage is part of it.
    pub(super) fn finish(&mut self, others: &[Outage]) -> Vec<Outage> {
        match self.present.take() {
            Some(Present { outage, quiet_seconds: 0, .. }) => self.past.push(outage),
            present => {
                self.present = present;
                self.end();
            }
        }
        let is_own = |one: &Outage| {
            let to = one.to.unwrap_or(Nanos::MAX);
            let since = |time: Nanos| time.saturating_sub(one.from);
            let common = |other: &Outage| {
                let from = since(other.from) / NANOS_PER_SECOND;
                let until = since(other.to.unwrap_or(Nanos::MAX)).div_ceil(NANOS_PER_SECOND);
                (to - one.from)
                    .min(until.saturating_mul(NANOS_PER_SECOND))
                    .saturating_sub(from * NANOS_PER_SECOND)
            };
            let elsewhere: Nanos = others.iter().map(common).fold(0, Nanos::saturating_add);
            elsewhere < (to - one.from) / 2
        };
        std::mem::take(&mut self.past).into_iter().filter(is_own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::NANOS_PER_SECOND as S;

    /// Transactions and hard errors of each second.
    fn run(seconds: &[(u64, u64)], others: &[Outage]) -> Vec<Outage> {
        let mut partial = Partial::default();
        for (number, (transactions, hard_errors)) in seconds.iter().enumerate() {
            let from = number as Nanos * S;
            let error = (*hard_errors > 0).then(|| format!("58030: in second {number}"));
            partial.second(&Beat {
                from,
                to: from + S,
                transactions: *transactions,
                hard_errors: *hard_errors,
                error,
                ..Beat::default()
            });
        }
        partial.finish(others)
    }

    #[test]
    fn a_part_that_fails_for_a_time_is_reported_with_its_length_count_and_first_error() {
        let good = (100, 0);
        let found = run(&[good, good, (60, 40), (50, 3), good, (70, 30), good, good, good], &[]);
        assert_eq!(found.len(), 1);
        let Outage { from, to, cause, failed, message, .. } = &found[0];
        assert_eq!((*from, *to, *cause, *failed), (2 * S, Some(6 * S), Cause::Partial, 73));
        assert_eq!(message, "58030: in second 2");
        let to_the_end = run(&[good, (60, 40), (50, 30)], &[]);
        assert_eq!((to_the_end[0].to, to_the_end[0].failed), (None, 70));
        let just_over = run(&[good, (60, 40), good], &[]);
        assert_eq!(just_over[0].to, Some(2 * S));
    }

    #[test]
    fn workloads_that_always_fail_in_part_or_rarely_have_no_such_time() {
        assert_eq!(run(&[(60, 40); 9], &[]), []);
        assert_eq!(run(&[(100, 0), (100, 1), (100, 2), (100, 0)], &[]), []);
    }

    #[test]
    fn what_is_mostly_an_outage_of_everything_is_reported_as_that_alone() {
        let seconds = [(100, 0), (60, 40), (0, 900), (0, 900), (40, 3), (100, 0), (100, 0), (100, 0)];
        let whole = |from: Nanos, to: Option<Nanos>| Outage { from, to, ..Outage::default() };
        assert_eq!(run(&seconds, &[whole(3 * S / 2, Some(9 * S / 2))]), []);
        assert_eq!(run(&seconds, &[whole(7 * S, None)]).len(), 1);
        assert_eq!(run(&seconds[..3], &[whole(3 * S / 2, None)]), []);
        // Sessions that are on another server after 5 ms have one outage, and not a second one with the transactions that it broke.
        let follow = [(20, 0), (19, 1), (20, 0), (20, 0), (20, 0), (20, 0)];
        let short = |ms: Nanos| whole(ms * S / 1_000, Some((ms + 5) * S / 1_000));
        assert_eq!(run(&follow, &[short(1_104)]), []);
        assert_eq!(run(&follow, &[short(3_104)]).len(), 1);
        let long = [(20, 0), (19, 1), (18, 2), (18, 2), (18, 2), (20, 0), (20, 0), (20, 0)];
        assert_eq!(run(&long, &[short(1_104)]).len(), 1);
    }
}
