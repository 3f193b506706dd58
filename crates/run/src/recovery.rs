//! What an outage costs beyond the time without a connection: how long until the throughput of before is back, and stalls, during which every
//! session is connected and no transaction ends (a primary that waits for a standby which is gone, for example).
//!
//! It hears of every second of the run and remembers a handful of them. Throughput before is the mean of up to [`BEFORE_SECONDS`] calm seconds; it is back with the first
//! [`BACK_SECONDS`] seconds in a row whose mean reaches [`BACK_SHARE`] of it, so one lucky second is not taken for a recovery. The resolution is therefore a second.

use std::collections::VecDeque;

use crate::control::{Cause, Outage};
use crate::engine::{NANOS_PER_SECOND, Nanos};

/// Calm seconds that make the throughput of before.
pub const BEFORE_SECONDS: usize = 10;
/// Seconds in a row whose mean tells that it is back.
pub const BACK_SECONDS: usize = 3;
/// From this share on it is back.
pub const BACK_SHARE: f64 = 0.95;
/// A second without a transaction is a stall only where this many were to be expected per second.
const STALL_TPS_MIN: f64 = 10.0;
/// What is shorter than this is no second to compare: the last one of a run.
const SECOND_MIN: Nanos = NANOS_PER_SECOND / 2;
/// Outages that are kept; a connection that comes and goes all night needs no further ones.
const OUTAGES_MAX: usize = 1_000;

/// One second, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// Its start.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Transactions that committed in it.
    pub transactions: u64,
    /// Sessions connected at its end.
    pub connected: usize,
}

/// Follows a run second by second.
///
/// | state | is | leaves |
/// |---|---|---|
/// | calm | `tps_before` is `None` | with an outage or a stall, if there is a throughput to compare with |
/// | disturbed | `tps_before` is the throughput to come back to; outages that come meanwhile join | when it is back, to calm |
#[derive(Debug, Default)]
pub struct Watch {
    /// Rates of the last calm seconds.
    calm: VecDeque<f64>,
    tps_before: Option<f64>,
    /// Start and rate of the last seconds since everybody was back.
    recent: VecDeque<(Nanos, f64)>,
    /// How many of the connections' outages are in `outages`.
    known: usize,
    /// Outages and stalls in the order in which they were noticed; those at `open` and behind it belong to the present disturbance.
    outages: Vec<Outage>,
    open: usize,
}

impl Watch {
    /// Hears of a second. `lost` are all times without a connection so far, in order.
    pub fn second(&mut self, beat: Beat, lost: &[Outage]) {
        self.join(lost);
        if beat.to.saturating_sub(beat.from) < SECOND_MIN {
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
                from: beat.from,
                cause: Cause::Stalled,
                message: "no transaction ended although sessions were connected".into(),
                ..Outage::default()
            });
            return;
        }
        if beat.transactions > 0 {
            for stall in self.outages[self.open..].iter_mut().filter(|one| one.cause == Cause::Stalled) {
                stall.to.get_or_insert(beat.from);
            }
        }
        // Whoever is still away, or was until this second's end, has not come back with it.
        let everybody = self.outages[self.open..].iter().map(|one| one.to.unwrap_or(Nanos::MAX)).max();
        if everybody.is_some_and(|back| beat.to > back) {
            remember(&mut self.recent, (beat.from, rate), BACK_SECONDS);
            if self.recent.len() == BACK_SECONDS {
                self.settle();
            }
        }
    }

    /// The run is over: what was seen of it.
    pub fn finish(mut self, lost: &[Outage]) -> Vec<Outage> {
        self.join(lost);
        self.settle();
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
            for stall in self.outages[self.open..].iter_mut().filter(|one| one.cause == Cause::Stalled) {
                stall.to.get_or_insert(outage.from);
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
            watch.second(Beat { from, to: from + S, transactions: *transactions, connected }, &known);
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

    #[test]
    fn an_endless_flicker_is_bounded() {
        let flicker: Vec<Outage> = (0..5_000).map(|number| lost(number * 2, number * 2 + 1)).collect();
        let mut watch = Watch::default();
        watch.second(Beat { from: 0, to: 10 * S, transactions: 1, connected: 1 }, &flicker);
        assert_eq!(watch.finish(&flicker).len(), OUTAGES_MAX);
    }
}
