//! What an outage costs beyond the time without a connection: how long until throughput has recovered, and stalls, during which every session
//! is connected but no transaction ends (for example if a primary waits for a standby that has failed).
//!
//! It sees every second of the run, and keeps only a few of them. Throughput before is the mean of up to [`BEFORE_SECONDS`] calm
//! seconds; it is back with the first [`BACK_SECONDS`] seconds in a row whose mean reaches [`BACK_SHARE`] of it, so one good second does not
//! count as a recovery. What is noticed is therefore at least a whole second without a commit; how long it was is reported by the last
//! commit before it and the first one behind it.
//!
//! Apart from these it notices times in which a part of the transactions fails and the rest goes on ([`Partial`]), as they do while one of several nodes
//! is away. They are reported by whole seconds.

use std::collections::VecDeque;

use crate::control::{Cause, Outage};
use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::tally::Commits;

mod partial;

use partial::Partial;

/// Calm seconds that make the throughput of before.
pub(crate) const BEFORE_SECONDS: usize = 10;
/// Seconds in a row whose mean shows that it is back.
pub(crate) const BACK_SECONDS: usize = 3;
/// From this share on it is back.
pub(crate) const BACK_SHARE: f64 = 0.95;
/// A second without a transaction is a stall only where this many were to be expected per second.
const STALL_TPS_MIN: f64 = 10.0;
/// What is shorter than this is no second to compare: the last one of a run.
const SECOND_MIN: Nanos = NANOS_PER_SECOND / 2;
/// Outages that are kept; a connection that comes and goes all night needs no further ones.
const OUTAGES_MAX: usize = 1_000;

/// One second, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub struct Beat {
    /// Its start.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Transactions that committed in it.
    pub transactions: u64,
    /// When the first and the last of them did.
    pub commits: Commits,
    /// Transactions that failed in it.
    pub failed: u64,
    /// Errors in it that no retry can cure, and those of lost connections.
    pub hard_errors: u64,
    /// The first of its errors, with its code.
    pub error: Option<String>,
    /// Sessions connected at its end.
    pub connected: usize,
}

/// Follows a run second by second.
///
/// | state | is | leaves |
/// |---|---|---|
/// | calm | `tps_before` is `None` | with an outage or a stall, if there is a throughput to compare with |
/// | disturbed | `tps_before` is the throughput to come back to; outages that come in between join | when it is back, to calm |
#[derive(Debug, Default)]
pub struct Watch {
    /// Rates of the last calm seconds.
    calm: VecDeque<f64>,
    tps_before: Option<f64>,
    /// The last commit so far.
    last_commit: Nanos,
    /// Start and rate of the last seconds since everybody was back.
    recent: VecDeque<(Nanos, f64)>,
    /// How many of the connections' outages are in `outages`.
    known: usize,
    /// Outages and stalls in the order in which they were noticed; those at `open` and behind it belong to the present disturbance.
    outages: Vec<Outage>,
    open: usize,
    partial: Partial,
}

impl Watch {
    /// Takes one second. `lost` are all times without a connection so far, in order.
    pub fn second(&mut self, beat: &Beat, lost: &[Outage]) {
        self.join(lost);
        self.partial.second(beat);
        let last_commit = self.last_commit;
        self.last_commit = last_commit.max(beat.commits.last);
        if beat.to.saturating_sub(beat.from) < SECOND_MIN {
            // No second to compare, but what it has is there.
            if self.tps_before.is_some() {
                self.follow(beat);
            }
            return;
        }
        let rate = beat.transactions as f64 * NANOS_PER_SECOND as f64 / (beat.to - beat.from) as f64;
        if self.tps_before.is_none() {
            let before = mean(self.calm.iter().copied());
            let stalls = beat.transactions == 0 && beat.connected > 0;
            if !(stalls && before.is_some_and(|before| before >= STALL_TPS_MIN)) {
                remember(&mut self.calm, rate, BEFORE_SECONDS);
                return;
            }
            self.disturb(Outage {
                // A worker that publishes late has counted a commit of this second with the last one.
                from: if last_commit > 0 { last_commit.min(beat.to) } else { beat.from },
                cause: Cause::Stalled,
                message: "no transaction ended although sessions were connected".into(),
                ..Outage::default()
            });
            self.follow(beat);
            return;
        }
        self.follow(beat);
        // A node that is still away, or was until the end of this second, has not come back in it.
        let everybody = self.outages[self.open..].iter().map(|one| one.to.unwrap_or(Nanos::MAX)).max();
        if everybody.is_some_and(|back| beat.to > back) {
            remember(&mut self.recent, (beat.from, rate), BACK_SECONDS);
            if self.recent.len() == BACK_SECONDS {
                self.settle();
            }
        }
    }

    /// What a second shows about a time without commits that is not over: its end, or what failed instead.
    fn follow(&mut self, beat: &Beat) {
        let is_stall = |one: &&mut Outage| one.cause != Cause::Disconnected && one.to.is_none();
        for stall in self.outages[self.open..].iter_mut().filter(is_stall) {
            if beat.transactions > 0 {
                let first = beat.commits.first;
                stall.to = Some(if first > 0 { first.max(stall.from) } else { beat.from });
            } else if beat.failed > 0 {
                if let (Cause::Stalled, Some(error)) = (stall.cause, &beat.error) {
                    stall.message.clone_from(error);
                }
                stall.cause = Cause::Failing;
                stall.failed += beat.failed;
            }
        }
        self.withdraw();
    }

    /// Takes back a stall of less than a second between two commits: a worker had counted those of one second with those of another, which only seemed empty.
    fn withdraw(&mut self) {
        let lasted = |one: &Outage| one.to.map(|to| to.saturating_sub(one.from));
        let is_none = |one: &Outage| {
            one.cause == Cause::Stalled && lasted(one).is_some_and(|time| time < NANOS_PER_SECOND)
        };
        let seemed = self.outages.len() - self.open;
        let mut place = 0;
        self.outages.retain(|one| {
            place += 1;
            place <= self.open || !is_none(one)
        });
        if seemed > 0 && self.outages.len() == self.open {
            self.tps_before = None;
            self.recent.clear();
        }
    }

    /// The run is over: what was seen of it.
    pub fn finish(mut self, lost: &[Outage]) -> Vec<Outage> {
        self.join(lost);
        self.settle();
        let partial = self.partial.finish(&self.outages);
        self.outages.extend(partial);
        self.outages.sort_by_key(|outage| outage.from);
        self.outages
    }

    /// Takes over what is new about connections.
    fn join(&mut self, lost: &[Outage]) {
        let mut known = lost.iter();
        for mine in self.outages.iter_mut().filter(|one| one.cause == Cause::Disconnected) {
            if let Some(theirs) = known.next() {
                mine.to = theirs.to;
            }
        }
        let new = lost.get(self.known..).unwrap_or_default();
        for outage in new.iter().take(OUTAGES_MAX.saturating_sub(self.known)) {
            self.known += 1;
            // A server that hung and then went away: from here on it is the connections that are missing.
            for stall in self.outages[self.open..].iter_mut().filter(|one| one.cause != Cause::Disconnected) {
                stall.to.get_or_insert(outage.from.max(stall.from));
            }
            self.disturb(outage.clone());
        }
    }

    fn disturb(&mut self, outage: Outage) {
        let before = self.tps_before.or_else(|| mean(self.calm.iter().copied()));
        self.tps_before = before;
        self.recent.clear();
        self.outages.push(Outage { tps_before: before, ..outage });
        if before.is_none() {
            // Nothing to come back to.
            self.open = self.outages.len();
        }
    }

    /// Back, if the last seconds say so.
    fn settle(&mut self) {
        let Some(before) = self.tps_before else { return };
        let Some((first, _)) = self.recent.front().copied() else { return };
        if mean(self.recent.iter().map(|(_, rate)| *rate)).is_none_or(|now| now < before * BACK_SHARE) {
            return;
        }
        for outage in &mut self.outages[self.open..] {
            outage.back = outage.to.map(|to| to.max(first));
        }
        self.open = self.outages.len();
        self.tps_before = None;
        self.calm = self.recent.drain(..).map(|(_, rate)| rate).collect();
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn remember<T>(queue: &mut VecDeque<T>, value: T, at_most: usize) {
    if queue.len() == at_most {
        queue.pop_front();
    }
    queue.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = NANOS_PER_SECOND;

    /// A run with these transactions per second; the outages are known from the second in which they begin.
    fn run(rates: &[u64], lost: &[Outage]) -> Vec<Outage> {
        let mut watch = Watch::default();
        for (number, transactions) in rates.iter().enumerate() {
            let from = number as Nanos * S;
            let known: Vec<Outage> = lost
                .iter()
                .filter(|outage| outage.from < from + S)
                .map(|outage| Outage { to: outage.to.filter(|to| *to < from + S), ..outage.clone() })
                .collect();
            let connected = if known.iter().any(|outage| outage.to.is_none()) { 0 } else { 4 };
            let to = from + S;
            // A commit right at the start and one right at the end.
            let commits =
                if *transactions > 0 { Commits { first: from.max(1), last: to } } else { Commits::default() };
            let transactions = *transactions;
            watch.second(&Beat { from, to, transactions, commits, connected, ..Beat::default() }, &known);
        }
        watch.finish(lost)
    }

    fn lost(from_ms: u64, to_ms: u64) -> Outage {
        let to = Some(to_ms * S / 1_000);
        Outage { from: from_ms * S / 1_000, to, message: "gone".into(), ..Outage::default() }
    }

    #[test]
    fn the_throughput_of_before_is_back_with_three_good_seconds() {
        let outages = run(&[90, 110, 100, 40, 0, 20, 80, 96, 120, 97, 99, 100], &[lost(3_400, 5_700)]);
        assert_eq!(outages.len(), 1);
        assert_eq!(outages[0].tps_before, Some(100.0));
        // 20, 80, 96 is too little, 80, 96, 120 reaches 98: back with the second that begins at 6 s.
        assert_eq!(outages[0].back, Some(6 * S));
    }

    #[test]
    fn an_outage_too_late_or_too_deep_is_not_over_at_the_end() {
        let slow = run(&[100, 100, 50, 0, 60, 80, 80, 80, 80], &[lost(2_500, 4_500)]);
        assert_eq!((slow[0].tps_before, slow[0].back), (Some(100.0), None));
        // Two good seconds at the end are all there is, and they are good.
        let late = run(&[100, 100, 50, 0, 100, 100], &[lost(2_500, 4_000)]);
        assert_eq!(late[0].back, Some(4 * S));
        let first = run(&[0, 100, 100, 100], &[lost(100, 900)]);
        assert_eq!((first[0].tps_before, first[0].back), (None, None));
        let for_ever = run(&[100, 100, 0, 0], &[Outage { to: None, ..lost(2_000, 0) }]);
        assert_eq!((for_ever[0].to, for_ever[0].back), (None, None));
    }

    #[test]
    fn outages_that_come_before_the_recovery_share_it() {
        let outages = run(&[100, 100, 50, 50, 50, 100, 100, 100], &[lost(2_500, 2_900), lost(3_500, 3_900)]);
        assert_eq!(outages.iter().map(|outage| outage.back).collect::<Vec<_>>(), [Some(5 * S); 2]);
        assert_eq!(outages[1].tps_before, Some(100.0), "a disturbed second is no measure");
        let apart =
            run(&[100, 100, 50, 100, 100, 100, 50, 100, 100, 100], &[lost(2_500, 2_900), lost(6_500, 6_900)]);
        assert_eq!(apart.iter().map(|outage| outage.back).collect::<Vec<_>>(), [Some(3 * S), Some(7 * S)]);
    }

    #[test]
    fn a_stall_is_an_outage_with_connections() {
        let stalled = run(&[100, 100, 0, 0, 0, 100, 100, 100], &[]);
        assert_eq!(stalled.len(), 1);
        assert_eq!((stalled[0].cause, stalled[0].from, stalled[0].to), (Cause::Stalled, 2 * S, Some(5 * S)));
        assert_eq!(stalled[0].back, Some(5 * S));
        // A slow workload has empty seconds without any harm.
        assert_eq!(run(&[1, 0, 0, 1, 0, 0, 1], &[]), []);
        // The server hangs, then dies.
        let died = run(&[100, 100, 0, 0, 0, 100, 100, 100], &[lost(3_500, 5_000)]);
        assert_eq!(
            died.iter().map(|one| (one.cause, one.to)).collect::<Vec<_>>(),
            [(Cause::Stalled, Some(3_500 * S / 1_000)), (Cause::Disconnected, Some(5 * S))]
        );
    }

    /// A second of a run: commits at these times, in thousandths of a second since the run's begin, and so many failures.
    fn beat(second: u64, commits_ms: &[u64], failed: u64) -> Beat {
        let at = |ms: Option<&u64>| ms.map_or(0, |ms| ms * S / 1_000);
        Beat {
            from: second * S,
            to: (second + 1) * S,
            transactions: 50 * commits_ms.len() as u64,
            commits: Commits { first: at(commits_ms.first()), last: at(commits_ms.last()) },
            failed,
            hard_errors: failed,
            error: (failed > 0).then(|| format!("53100: disk full in second {second}")),
            connected: 4,
        }
    }

    fn outages_of(beats: &[Beat]) -> Vec<Outage> {
        let mut watch = Watch::default();
        beats.iter().for_each(|beat| watch.second(beat, &[]));
        watch.finish(&[])
    }

    /// The commits of 2.0 s to 2.4 s were published early, and those behind it late.
    #[test]
    fn a_second_that_only_seems_empty_is_no_stall() {
        let mut beats = vec![
            beat(0, &[5, 995], 0),
            beat(1, &[1_000, 2_400], 0),
            beat(2, &[], 0),
            beat(3, &[2_401, 3_999], 0),
            beat(4, &[4_005, 4_995], 0),
        ];
        assert_eq!(outages_of(&beats), []);
        // And one behind it is found as ever.
        beats.extend([beat(5, &[], 0), beat(6, &[], 0), beat(7, &[7_100, 7_990], 0)]);
        let found = outages_of(&beats);
        assert_eq!((found.len(), found[0].from), (1, 4_995 * S / 1_000), "{found:?}");
    }

    #[test]
    fn a_stall_lasts_from_the_last_commit_before_it_to_the_first_behind_it() {
        // Two seconds that hold just one whole empty second of the clock, at every phase of it.
        for phase in [1, 250, 500, 999] {
            let (from, to) = (1_000 + phase, 3_000 + phase);
            let outages = outages_of(&[
                beat(0, &[5, 995], 0),
                beat(1, &[1_000, from], 0),
                beat(2, &[], 0),
                beat(3, &[to, 3_999], 0),
                beat(4, &[4_005, 4_995], 0),
                beat(5, &[5_005, 5_995], 0),
            ]);
            assert_eq!(outages.len(), 1, "{phase}");
            let Outage { from, to, cause, back, .. } = &outages[0];
            assert_eq!((to.unwrap() - from, *cause), (2 * S, Cause::Stalled), "{phase}");
            assert!(
                back.unwrap() >= to.unwrap(),
                "the throughput is not back before the first commit: {outages:?}"
            );
        }
        let to_the_end = outages_of(&[beat(0, &[5, 995], 0), beat(1, &[1_000, 1_400], 0), beat(2, &[], 0)]);
        assert_eq!((to_the_end[0].from, to_the_end[0].to), (1_400 * S / 1_000, None));
        // The run ends with a piece of a second in which it went on.
        let piece = Beat { to: 3 * S + S / 4, ..beat(3, &[3_100, 3_200], 0) };
        let ended = outages_of(&[beat(0, &[5, 995], 0), beat(1, &[1_000, 1_400], 0), beat(2, &[], 0), piece]);
        assert_eq!(ended[0].to, Some(3_100 * S / 1_000));
    }

    #[test]
    fn seconds_in_which_everything_fails_are_reported_with_the_error_and_the_count() {
        let outages = outages_of(&[
            beat(0, &[5, 995], 0),
            beat(1, &[1_000, 1_700], 20),
            beat(2, &[], 10_000),
            beat(3, &[], 11_542),
            beat(4, &[4_300, 4_990], 3),
            beat(5, &[5_005, 5_995], 0),
        ]);
        assert_eq!(outages.len(), 1);
        let one = &outages[0];
        assert_eq!((one.cause, one.failed), (Cause::Failing, 21_542));
        assert_eq!(one.message, "53100: disk full in second 2");
        assert_eq!((one.from, one.to), (1_700 * S / 1_000, Some(4_300 * S / 1_000)));
        // It hung first, and failed then.
        let hung = outages_of(&[beat(0, &[5, 995], 0), beat(1, &[], 0), beat(2, &[], 7)]);
        assert_eq!((hung[0].cause, hung[0].failed, hung[0].from), (Cause::Failing, 7, 995 * S / 1_000));
    }

    #[test]
    fn an_endless_flicker_is_bounded() {
        let flicker: Vec<Outage> = (0..5_000).map(|number| lost(number * 2, number * 2 + 1)).collect();
        let mut watch = Watch::default();
        let beat = Beat { to: 10 * S, transactions: 1, connected: 1, ..Beat::default() };
        watch.second(&beat, &flicker);
        assert_eq!(watch.finish(&flicker).len(), OUTAGES_MAX);
    }
}
