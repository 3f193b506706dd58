//! When transactions start: one value decides, so the work loop has no modes.
//!
//! Three times are kept apart for each transaction (`record` words): it was *scheduled* for a moment, a session was free for it
//! at some later or equal moment (until then: backlog, the target's doing), and it really *started* (the rest: lag, the
//! client's doing). Response time counts from the schedule, service time from the real start. Late transactions are never
//! skipped without a count: an open loop that skips them hides the queue that it should measure.

use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::random::Random;
use crate::terminals::{Groups, Terminals, Turn, Users};

/// The arrival process of one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a session starts its next transaction when its last one is done.
    Closed,
    /// Open loop: arrivals with exponential gaps, `per_second` on average, as pgbench's `--rate`.
    Poisson {
        /// Mean arrivals per second of this worker.
        per_second: f64,
    },
    /// Open loop: arrivals at equal gaps.
    Regular {
        /// Arrivals per second of this worker.
        per_second: f64,
    },
    /// Simulated users at terminals, who rest between their transactions.
    Terminals(Users),
}

/// Arrivals that are expected where nothing takes them one by one: up to here each gap is drawn, beyond their number is drawn at once. So
/// what a rate costs does not depend on it, however far the sessions are behind.
const GAPS_DRAWN_MAX: f64 = 1_000.0;

/// One transaction's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When it was to start.
    pub scheduled: Nanos,
    /// When it did.
    pub started: Nanos,
    /// How late the client was: a session was free, the time had come, and it still was not started.
    pub lag: Nanos,
    /// The terminal whose transaction it is, where there are terminals.
    pub turn: Option<Turn>,
}

/// What a session that requests work gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Begin now.
    Now(Start),
    /// Nothing is due yet: wait, the worker will come back with a start.
    Later,
    /// The run is over: no more starts.
    Over,
}

/// Decides the starts of one worker's sessions.
#[derive(Clone, Debug)]
pub struct Schedule {
    pace: Pace,
    begin: Nanos,
    end: Nanos,
    next_arrival: Nanos,
    /// What of a Poisson arrival's gap is less than a nanosecond: without it, a high rate would become a higher one.
    fraction: f64,
    arrivals: u64,
    random: Random,
    /// Arrivals that were already later than this when a session became free are skipped, counted as such (`--latency-limit`
    /// together with `--rate`, as pgbench does); `None`: none is.
    skip_later_than: Option<Nanos>,
    skipped: u64,
    /// Which sessions serve which terminals.
    groups: Groups,
    /// Those of [`Pace::Terminals`], once it is open.
    terminals: Option<Box<Terminals>>,
}

impl Schedule {
    /// A schedule that has not been opened yet: everybody waits. `random` draws the gaps of a Poisson process.
    pub fn new(pace: Pace, skip_later_than: Option<Nanos>, random: Random) -> Schedule {
        Schedule {
            pace,
            begin: Nanos::MAX,
            end: Nanos::MAX,
            next_arrival: Nanos::MAX,
            fraction: 0.0,
            arrivals: 0,
            random,
            skip_later_than,
            skipped: 0,
            groups: Groups::one(),
            terminals: None,
        }
    }

    /// Terminals are served by sessions of their own group only.
    #[must_use]
    pub(crate) fn with_groups(self, groups: Groups) -> Schedule {
        Schedule { groups, ..self }
    }

    /// Opens it: no starts before `begin`, none from `end` on.
    pub fn open(&mut self, begin: Nanos, end: Nanos) {
        (self.begin, self.end, self.next_arrival) = (begin, end, begin);
        // A Poisson process has its first gap before the first arrival too.
        if matches!(self.pace, Pace::Poisson { .. }) {
            self.next_arrival = begin.saturating_add(self.gap());
        }
        if let Pace::Terminals(users) = self.pace {
            let groups = std::mem::take(&mut self.groups);
            self.terminals = Some(Box::new(Terminals::new(users, begin, groups)));
        }
    }

    /// The worker's session number `session`, which has been free since `free_since`, requests its next start.
    #[inline]
    pub fn claim(&mut self, session: usize, now: Nanos, free_since: Nanos) -> Claim {
        if now >= self.end {
            return Claim::Over;
        }
        if now < self.begin {
            return Claim::Later;
        }
        if self.pace == Pace::Closed {
            self.arrivals += 1;
            let scheduled = free_since.max(self.begin).min(now);
            return Claim::Now(Start { scheduled, started: now, lag: now - scheduled, turn: None });
        }
        if let Some(terminals) = &mut self.terminals {
            let Some((scheduled, turn)) = terminals.claim(now, session) else { return Claim::Later };
            self.arrivals += 1;
            let lag = now - scheduled.max(free_since).min(now);
            return Claim::Now(Start { scheduled, started: now, lag, turn: Some(turn) });
        }
        if let Some(limit) = self.skip_later_than {
            self.skipped += self.pass(now.saturating_sub(limit));
        }
        if self.next_arrival <= now {
            let scheduled = self.next_arrival;
            self.advance();
            let lag = now - scheduled.max(free_since).min(now);
            return Claim::Now(Start { scheduled, started: now, lag, turn: None });
        }
        Claim::Later
    }

    /// When a waiting session can be given something to do: a start, or the news that the run is over.
    #[inline]
    pub(crate) fn next_due(&self, now: Nanos) -> Nanos {
        if now < self.begin {
            return self.begin.min(self.end);
        }
        match (self.pace, &self.terminals) {
            (Pace::Closed, _) => now,
            (_, Some(terminals)) => terminals.next_due(now).min(self.end),
            _ => self.next_arrival.min(self.end),
        }
    }

    /// The place among the waiting sessions of one that can be given a start now, where it matters which; `None` where it does not: the first one will do.
    #[inline]
    pub fn chosen(&mut self, now: Nanos, mut waiting: impl Iterator<Item = usize>) -> Option<Option<usize>> {
        let terminals =
            self.terminals.as_mut().filter(|terminals| terminals.are_grouped() && now < self.end)?;
        Some(waiting.position(|session| terminals.wait_for(session, now)))
    }

    /// A waiting session can get an answer now: a closed loop has a start for everybody, and so has the end of the run.
    pub(crate) fn serves_all(&self, now: Nanos) -> bool {
        self.pace == Pace::Closed || now >= self.end
    }

    /// Ends the run at `now`: no starts from here on.
    pub fn stop(&mut self, now: Nanos) {
        self.end = self.end.min(now);
    }

    /// When the run ends, or ended.
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// Arrivals that are due and that no session has taken: the backlog. Exact for equal gaps; for a Poisson process the number
    /// that the mean rate makes of the time since the oldest of them.
    pub fn backlog(&self, now: Nanos) -> u64 {
        let now = now.min(self.end);
        if let Some(terminals) = &self.terminals {
            return terminals.waiting(now);
        }
        match self.pace {
            Pace::Poisson { per_second } | Pace::Regular { per_second } if self.next_arrival <= now => {
                1 + ((now - self.next_arrival) as f64 * per_second / NANOS_PER_SECOND as f64) as u64
            }
            _ => 0,
        }
    }

    /// The transaction of a terminal's turn has ended.
    pub fn rest(&mut self, turn: Turn, now: Nanos) {
        if let Some(terminals) = &mut self.terminals {
            terminals.rest(turn, now);
        }
    }

    /// Arrivals handed out or skipped so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Arrivals skipped because they were too late to begin.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// To be called once, after the run has ended at `over`: how many arrivals were due before its end and never begun, because all sessions
    /// were busy, or gone. They count as scheduled: `scheduled = started + skipped + unstarted`. A run can be over before its time, because
    /// no session is left in it; then nothing is due behind that. A schedule without an end, which ends when its sessions have done their number of
    /// transactions, leaves nothing unstarted.
    pub(crate) fn take_unstarted(&mut self, over: Nanos) -> u64 {
        if self.end == Nanos::MAX {
            return 0;
        }
        self.stop(over);
        if let Some(terminals) = &self.terminals {
            let waiting = terminals.waiting(self.end);
            self.arrivals += waiting;
            return waiting;
        }
        match self.pace {
            Pace::Closed => 0,
            _ => self.pass(self.end),
        }
    }

    /// Goes over all arrivals before `moment`, and returns how many they were.
    #[inline]
    fn pass(&mut self, moment: Nanos) -> u64 {
        if self.next_arrival >= moment { 0 } else { self.pass_some(moment) }
    }

    #[cold]
    fn pass_some(&mut self, moment: Nanos) -> u64 {
        let before = self.arrivals;
        if let Pace::Poisson { per_second } | Pace::Regular { per_second } = self.pace {
            let expected = (moment - self.next_arrival) as f64 * per_second / NANOS_PER_SECOND as f64;
            if expected > GAPS_DRAWN_MAX {
                self.leap(moment, expected);
            }
        }
        while self.next_arrival < moment {
            self.advance();
        }
        self.arrivals - before
    }

    /// The same for many, without a look at each of them. It may stop a few short.
    fn leap(&mut self, moment: Nanos, expected: f64) {
        match self.pace {
            Pace::Regular { per_second } => {
                // One that is surely not behind the moment, whatever is rounded.
                let index = (moment - self.begin) as f64 * (per_second / NANOS_PER_SECOND as f64);
                let index = (index * (1.0 - 2.0 * f64::EPSILON)).floor() - 2.0;
                self.arrivals = self.arrivals.max(index as u64);
                self.next_arrival = self.regular(per_second);
            }
            _ => {
                // The next arrival, and those behind it. Their number is Poisson's, which for as many as these is a normal deviate's.
                let others = expected + self.random.gaussian() * expected.sqrt();
                self.arrivals += 1 + others.round().max(0.0) as u64;
                // The process has no memory: at any moment it is as at its begin.
                self.fraction = 0.0;
                self.next_arrival = moment.saturating_add(self.gap());
            }
        }
    }

    /// When the arrival of the present number is due, with equal gaps: from the count, not by adding gaps, because rounding must not drift over days.
    fn regular(&self, per_second: f64) -> Nanos {
        self.begin.saturating_add((self.arrivals as f64 * (NANOS_PER_SECOND as f64 / per_second)) as Nanos)
    }

    fn advance(&mut self) {
        self.arrivals += 1;
        self.next_arrival = match self.pace {
            Pace::Regular { per_second } => self.regular(per_second),
            _ => self.next_arrival.saturating_add(self.gap()),
        };
    }

    fn gap(&mut self) -> Nanos {
        match self.pace {
            Pace::Poisson { per_second } => {
                let gap = self.random.exponential(1.0 / per_second) * NANOS_PER_SECOND as f64 + self.fraction;
                let whole = gap as Nanos;
                self.fraction = gap - whole as f64;
                whole
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = NANOS_PER_SECOND;

    fn opened(pace: Pace, begin: Nanos, end: Nanos, skip_later_than: Option<Nanos>) -> Schedule {
        let mut schedule = Schedule::new(pace, skip_later_than, Random::for_stream(42, 3));
        schedule.open(begin, end);
        schedule
    }

    fn starts(schedule: &mut Schedule, times: impl Iterator<Item = Nanos>) -> Vec<Start> {
        times
            .filter_map(|now| match schedule.claim(0, now, 0) {
                Claim::Now(start) => Some(start),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_closed_loop_starts_at_once_and_only_inside_its_time() {
        let mut schedule = opened(Pace::Closed, 100, 200, None);
        assert_eq!(schedule.claim(0, 50, 10), Claim::Later);
        assert_eq!(schedule.next_due(50), 100);
        assert_eq!(
            schedule.claim(0, 110, 105),
            Claim::Now(Start { scheduled: 105, started: 110, lag: 5, turn: None })
        );
        assert_eq!(schedule.claim(0, 200, 199), Claim::Over);
        assert_eq!((schedule.arrivals(), schedule.take_unstarted(Nanos::MAX)), (1, 0));
    }

    #[test]
    fn regular_arrivals_do_not_drift() {
        let pace = Pace::Regular { per_second: 3.0 };
        let mut schedule = opened(pace, 7, 7 + 1_000 * SECOND, None);
        let all = starts(&mut schedule, std::iter::repeat_n(7 + 1_000 * SECOND - 1, 3_001));
        assert_eq!(all.len(), 3_000);
        assert_eq!(all[2_999].scheduled, 7 + (2_999.0 * SECOND as f64 / 3.0) as Nanos);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let pace = Pace::Poisson { per_second: 1_000.0 };
        let mut schedule = opened(pace, 0, 100 * SECOND, None);
        let all = starts(&mut schedule, std::iter::repeat_n(100 * SECOND - 1, 200_000));
        // Mean 100,000, standard deviation 316.
        assert!((all.len() as i64 - 100_000).abs() < 1_500, "{} arrivals", all.len());
        let gaps: Vec<f64> =
            all.windows(2).map(|pair| (pair[1].scheduled - pair[0].scheduled) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "coefficient of variation {}",
            variance.sqrt() / mean
        );
    }

    #[test]
    fn backlog_is_the_targets_and_lag_is_the_clients() {
        let pace = Pace::Regular { per_second: 10.0 };
        let mut schedule = opened(pace, 0, 10 * SECOND, None);
        // Due at 0, all sessions busy until 5 ms, started at 6 ms: 1 ms is the client's fault.
        assert_eq!(schedule.backlog(4_000_000), 1);
        assert_eq!(schedule.backlog(250_000_000), 3);
        let Claim::Now(start) = schedule.claim(0, 6_000_000, 5_000_000) else { panic!("an arrival is due") };
        assert_eq!(start, Start { scheduled: 0, started: 6_000_000, lag: 1_000_000, turn: None });
        // The session was free long before the arrival: lag counts from the arrival.
        let Claim::Now(start) = schedule.claim(0, 100_000_500, 6_000_000) else {
            panic!("an arrival is due")
        };
        assert_eq!(start.lag, 500);
        assert_eq!(schedule.claim(0, 100_000_600, 100_000_600), Claim::Later);
    }

    #[test]
    fn a_schedule_without_an_end_leaves_nothing_unstarted() {
        let mut schedule = opened(Pace::Regular { per_second: 1e9 }, 0, Nanos::MAX, None);
        assert!(matches!(schedule.claim(0, 10, 0), Claim::Now(_)));
        assert_eq!(schedule.take_unstarted(Nanos::MAX), 0);
    }

    #[test]
    fn what_the_end_costs_does_not_depend_on_the_rate() {
        // An hour at a million a second, and a rate of one arrival for each nanosecond: drawn one by one, they would take minutes.
        for (per_second, seconds) in [(1e6, 3_600), (1e9, 3_600), (1e12, 10)] {
            let all = per_second * seconds as f64;
            for pace in [Pace::Poisson { per_second }, Pace::Regular { per_second }] {
                for skip in [None, Some(SECOND / 10)] {
                    let mut schedule = opened(pace, 5, 5 + seconds * SECOND, skip);
                    // Half of the time has passed, and one session comes for the first time.
                    let Claim::Now(start) = schedule.claim(0, 5 + seconds * SECOND / 2, 0) else {
                        panic!("{pace:?}: there is an arrival")
                    };
                    assert_eq!(skip.is_some(), start.scheduled > SECOND, "{pace:?}: {start:?}");
                    let (skipped, unstarted) = (schedule.skipped(), schedule.take_unstarted(Nanos::MAX));
                    assert_eq!(1 + skipped + unstarted, schedule.arrivals(), "{pace:?}");
                    let off = (schedule.arrivals() as f64 - all).abs();
                    let allowed = match pace {
                        Pace::Regular { .. } => all * 1e-12,
                        _ => 6.0 * all.sqrt(),
                    };
                    assert!(off <= allowed.max(1.0), "{pace:?} {skip:?}: {} of {all}", schedule.arrivals());
                }
            }
        }
    }

    #[test]
    fn the_rest_that_is_drawn_at_once_is_spread_as_what_is_drawn_one_by_one() {
        // 4,000 arrivals in a second, standard deviation 63: at once at the end, or in sixteenths that are drawn gap by gap.
        let pace = Pace::Poisson { per_second: 4_000.0 };
        let counts = |step: Nanos| -> Vec<f64> {
            let count = |stream| {
                let mut schedule = Schedule::new(pace, Some(0), Random::for_stream(7, stream));
                schedule.open(0, SECOND);
                for now in (step..SECOND).step_by(step as usize) {
                    while matches!(schedule.claim(0, now, 0), Claim::Now(_)) {}
                }
                schedule.take_unstarted(Nanos::MAX);
                schedule.arrivals() as f64
            };
            (0..2_000).map(count).collect()
        };
        for step in [SECOND, SECOND / 16] {
            let counts = counts(step);
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance =
                counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean - 4_000.0).abs() < 6.0, "{mean}");
            assert!((variance / 4_000.0 - 1.0).abs() < 0.15, "{variance}");
        }
    }

    #[test]
    fn regular_arrivals_are_the_same_whether_they_are_passed_at_once_or_one_by_one() {
        for (per_second, seconds) in [(3.0, 2_000), (1_000.0 / 7.0, 100), (1e6, 1), (999_983.0, 1)] {
            let ends = [seconds * SECOND, seconds * SECOND + 1, seconds * SECOND - 1];
            for end in ends {
                let mut schedule = opened(Pace::Regular { per_second }, 11, 11 + end, None);
                let mut slow = schedule.clone();
                while slow.next_arrival < slow.end {
                    slow.advance();
                }
                schedule.take_unstarted(Nanos::MAX);
                assert_eq!(
                    (schedule.arrivals, schedule.next_arrival),
                    (slow.arrivals, slow.next_arrival),
                    "{per_second} {end}"
                );
            }
        }
    }

    #[test]
    fn every_arrival_is_started_skipped_or_counted_as_unstarted() {
        let pace = Pace::Regular { per_second: 1_000.0 };
        let mut schedule = opened(pace, 0, SECOND, Some(SECOND / 10));
        let started = starts(&mut schedule, (0..50).map(|i| i * 10_000_000)).len() as u64;
        assert_eq!(schedule.claim(0, SECOND, 0), Claim::Over);
        let mut early = schedule.clone();
        let unstarted = schedule.take_unstarted(Nanos::MAX);
        // Over before its time: 700 ms, and the sessions were there until 490 ms.
        assert_eq!((early.take_unstarted(SECOND * 7 / 10) + 300, unstarted), (unstarted, unstarted));
        assert_eq!(early.arrivals(), 700);
        assert_eq!(schedule.arrivals(), 1_000);
        assert_eq!(started + schedule.skipped() + unstarted, 1_000);
        assert!(schedule.skipped() > 0 && unstarted > 0);
    }
}
