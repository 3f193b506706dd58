//! How long a cluster was unavailable: the arithmetic on probes, without a server.

use std::time::Duration;

use super::super::ack::Span;
use super::{BEAT, PROBE_PATIENCE};
use crate::fault::site::GRACE;
use crate::fault::{Fault, Happened};

/// The full rate has recovered at this share of the earlier undisturbed answers ...
const FULL_SHARE: f64 = 0.95;
/// ... and a 99th percentile of at most this multiple of the earlier one, over this time.
const FULL_LATENCY: f64 = 2.0;
/// See [`FULL_SHARE`]; shorter where the run is.
const FULL_WINDOW: Duration = Duration::from_secs(10);
/// Without an answer for so long, although probes were sent, it is an outage, whatever caused it: the time limit of a probe.
pub const OUTAGE_MIN: Duration = PROBE_PATIENCE;

/// One probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// When it was due.
    pub due_ns: u64,
    /// When it was answered; `None`: not within the time limit, or refused.
    pub answered_ns: Option<u64>,
    /// What it wrote.
    pub number: u64,
    /// Acknowledged with a warning, which revokes the promise.
    pub is_weak: bool,
}

/// How long one kind of probe had no answers after one fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outage {
    /// From the injection to the first answer that counts; `None`: none came.
    pub back_us: Option<u64>,
    /// From the injection to the begin of the first window at the full rate.
    pub full_us: Option<u64>,
    /// Lost seconds of availability: the integral of the missing share.
    pub unavailable_s: f64,
}

/// A period in which no probe was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The last answer before it.
    pub begin_ns: u64,
    /// The first answer after it; without one, the end of the measurement.
    pub end_ns: u64,
    /// Whether answers came again.
    pub is_over: bool,
    /// Probes due in it without an answer.
    pub unanswered: u64,
    /// Whether a fault of the plan was active when it began.
    pub is_injected: bool,
}

impl Gap {
    /// How long, in microseconds.
    pub fn us(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns) / 1_000
    }
}

/// All outages of one kind of probe, measured from the probes alone. `windows`: when faults of the plan were active.
pub fn gaps(probes: &[Probe], windows: &[Span], counts: impl Fn(&Probe) -> bool) -> Vec<Gap> {
    let (Some(first), Some(last)) = (probes.first(), probes.last()) else { return Vec::new() };
    let mut answers: Vec<u64> =
        probes.iter().filter(|probe| counts(probe)).filter_map(|probe| probe.answered_ns).collect();
    answers.sort_unstable();
    let end_ns = last.due_ns + BEAT_NS;
    let edges = std::iter::once(first.due_ns).chain(answers.iter().copied());
    let nexts = answers.iter().copied().map(|at| (at, true)).chain([(end_ns, false)]);
    let min_ns = OUTAGE_MIN.as_nanos() as u64;
    let mut found = Vec::new();
    for (begin_ns, (next_ns, is_over)) in std::iter::zip(edges, nexts) {
        if next_ns.saturating_sub(begin_ns) < min_ns {
            continue;
        }
        let due = probes.iter().filter(|probe| (begin_ns..next_ns).contains(&probe.due_ns));
        // Without probes there are no answers: in that time this host had stalled, which is no part of the outage.
        let stalled_ns = stalled(probes, begin_ns, next_ns, min_ns / 2);
        if stalled_ns.is_none_or(|stalled_ns| next_ns - begin_ns < min_ns + stalled_ns) {
            continue;
        }
        let grace_ns = GRACE.as_nanos() as u64;
        let is_injected = windows.iter().any(|window| {
            begin_ns.saturating_add(min_ns) >= window.begin_ns
                && begin_ns <= window.end_ns.saturating_add(grace_ns)
                && next_ns >= window.begin_ns
        });
        let unanswered = due.filter(|probe| probe.answered_ns.is_none() || !counts(probe)).count() as u64;
        found.push(Gap { begin_ns, end_ns: next_ns, is_over, unanswered, is_injected });
    }
    found
}

/// For how long no probe was due between two times, without pauses below `least_ns`; `None`: fewer than two were.
fn stalled(probes: &[Probe], begin_ns: u64, end_ns: u64, least_ns: u64) -> Option<u64> {
    let inside = |pair: &&[Probe]| pair[0].due_ns >= begin_ns && pair[1].due_ns <= end_ns;
    let mut pairs = probes.windows(2).filter(inside).map(|pair| pair[1].due_ns - pair[0].due_ns).peekable();
    pairs.peek()?;
    Some(pairs.filter(|pause| *pause >= least_ns).sum())
}

/// The longest time between two answers, in microseconds, and the share of probes without one.
pub fn silence(probes: &[Probe], counts: impl Fn(&Probe) -> bool) -> (u64, f64) {
    let mut answers: Vec<u64> =
        probes.iter().filter(|probe| counts(probe)).filter_map(|probe| probe.answered_ns).collect();
    answers.sort_unstable();
    let longest = answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let ends = probes.first().zip(probes.last()).map_or(0, |(first, last)| match answers.as_slice() {
        [] => last.due_ns - first.due_ns,
        [begin, .., end] => begin.saturating_sub(first.due_ns).max(last.due_ns.saturating_sub(*end)),
        [one] => one.saturating_sub(first.due_ns).max(last.due_ns.saturating_sub(*one)),
    });
    let missing = probes.len() - answers.len();
    (longest.max(ends) / 1_000, missing as f64 / probes.len().max(1) as f64)
}

/// The control of [`gaps`]: whether it detects an outage when answers of twice the shortest outage are removed. `None`: there are too few answers.
pub(super) fn would_show(probes: &[Probe], counts: impl Fn(&Probe) -> bool) -> Option<bool> {
    /// How many places are tried: in the outage of a fault there are no answers to remove.
    const PLACES: usize = 16;
    let last_ns = probes.last()?.due_ns;
    let span_ns = 2 * OUTAGE_MIN.as_nanos() as u64;
    let is_answered = |probe: &Probe| probe.answered_ns.is_some() && counts(probe);
    let answers = |from_ns: u64| {
        let due = probes.iter().filter(|probe| (from_ns..from_ns + span_ns).contains(&probe.due_ns));
        due.filter(|probe| is_answered(probe)).count()
    };
    let places = (0..PLACES).map(|place| probes[place * probes.len() / PLACES].due_ns);
    let from_ns = places
        .filter(|from_ns| last_ns >= from_ns + span_ns)
        .max_by_key(|from_ns| (answers(*from_ns), std::cmp::Reverse(*from_ns)))?;
    let is_out = |probe: &Probe| (from_ns..from_ns + span_ns).contains(&probe.due_ns);
    let planted: Vec<Probe> = probes
        .iter()
        .map(|probe| Probe { answered_ns: probe.answered_ns.filter(|_| !is_out(probe)), ..*probe })
        .collect();
    let total = |probes: &[Probe]| -> u64 { gaps(probes, &[], &counts).iter().map(Gap::us).sum() };
    Some(total(&planted) > total(probes))
}

/// When faults of the plan were active: from each injection to the end of the next healing, if there was one. `grace`: how long their effects may last after
/// that; [`GRACE`] is understood.
pub(super) fn windows(happened: &[Happened], grace: Duration) -> Vec<Span> {
    let more_ns = grace.saturating_sub(GRACE).as_nanos() as u64;
    let end_of = |one: &Happened| one.at_ns + one.took.as_nanos() as u64;
    happened
        .iter()
        .enumerate()
        .filter(|(_, one)| one.step.fault.is_some() && one.error.is_none())
        .map(|(at, one)| {
            let healed = happened[at..].iter().find(|later| later.step.fault.is_none());
            let end_ns = match (one.step.fault, healed) {
                (_, Some(healed)) => end_of(healed),
                (Some(Fault::Restart), None) => end_of(one),
                _ => u64::MAX,
            };
            Span { begin_ns: one.at_ns, end_ns: end_ns.saturating_add(more_ns) }
        })
        .collect()
}

/// The last answer before a fault is at most this old.
const RECENT_NS: u64 = OUTAGE_MIN.as_nanos() as u64;
/// The beat in nanoseconds.
const BEAT_NS: u64 = BEAT.as_nanos() as u64;

/// The time of a fault ends with the next one. A promotion does not end it, because it is the recovery from it.
pub(super) fn ends(happened: &[Happened]) -> Vec<u64> {
    let done: Vec<&Happened> =
        happened.iter().filter(|one| one.step.fault.is_some() && one.error.is_none()).collect();
    let next = |at: usize| done[at + 1..].iter().find(|one| one.step.fault != Some(Fault::Promote));
    (0..done.len()).map(|at| next(at).map_or(u64::MAX, |one| one.at_ns)).collect()
}

/// How long probes had no answers after a fault; a probe counts if it `counts`. A probe sent during the injection may still have been answered by
/// a server that was about to end.
pub(super) fn outage(probes: &[Probe], fault: &Span, end_ns: u64, counts: impl Fn(&Probe) -> bool) -> Outage {
    let fault_ns = fault.begin_ns;
    let us = |ns: u64| ns.saturating_sub(fault_ns) / 1_000;
    let in_time = |probe: &&Probe| (fault_ns..end_ns).contains(&probe.due_ns);
    let latency = |probe: &Probe| probe.answered_ns.map(|answered| answered.saturating_sub(probe.due_ns));
    let after: Vec<&Probe> = probes.iter().filter(in_time).collect();
    let is_later = |probe: &&&Probe| probe.due_ns >= fault.end_ns && counts(probe);
    // A primary that loses its manager's store goes on for a while: what counts is the end of the outage that follows, if one does.
    let is_its = |gap: &&Gap| {
        gap.end_ns > fault_ns && gap.begin_ns < end_ns && gap.begin_ns.saturating_add(RECENT_NS) >= fault_ns
    };
    let answered = match gaps(probes, &[], &counts).iter().find(is_its) {
        Some(gap) => gap.is_over.then_some(gap.end_ns),
        None => after.iter().filter(is_later).filter_map(|probe| probe.answered_ns).min(),
    };
    let before: Vec<&Probe> = probes.iter().filter(|probe| probe.due_ns < fault_ns).collect();
    let share = |probes: &[&Probe]| {
        let good = probes.iter().filter(|probe| probe.answered_ns.is_some() && counts(probe)).count();
        good as f64 / probes.len().max(1) as f64
    };
    let calm = share(&before);
    let p99 = |probes: &[&Probe]| {
        let mut all: Vec<u64> = probes.iter().filter_map(|probe| latency(probe)).collect();
        all.sort_unstable();
        all.get((all.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(u64::MAX)
    };
    let calm_p99 = p99(&before);
    // At most ten seconds, at least as many probes as a percentile needs, and at most a third of them.
    let wanted = (FULL_WINDOW.as_nanos() / BEAT.as_nanos()) as usize;
    let window = wanted.min(after.len() / 3).max(1);
    // A rate can only recover after the first answer: an earlier window still belongs to the outage.
    let is_answered = |probe: &Probe| probe.answered_ns.is_some() && counts(probe);
    let full = after.windows(window).find(|window| {
        window.first().is_some_and(|first| is_answered(first))
            && share(window) >= FULL_SHARE * calm
            && p99(window) as f64 <= FULL_LATENCY * calm_p99 as f64
    });
    let missing: f64 =
        after.iter().map(|probe| f64::from(u8::from(probe.answered_ns.is_none() || !counts(probe)))).sum();
    Outage {
        back_us: answered.map(us),
        full_us: full
            .and_then(|window| window.first())
            .map(|probe| us(probe.due_ns.max(answered.unwrap_or(0)))),
        unavailable_s: missing * BEAT.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(count: u64, answered: impl Fn(u64) -> Option<u64>) -> Vec<Probe> {
        (0..count)
            .map(|number| {
                let due_ns = 1_000 + number * BEAT_NS;
                Probe {
                    due_ns,
                    answered_ns: answered(number).map(|latency| due_ns + latency),
                    number,
                    is_weak: false,
                }
            })
            .collect()
    }

    fn at(ns: u64) -> Span {
        Span { begin_ns: ns, end_ns: ns }
    }

    #[test]
    fn an_answer_of_a_server_that_is_being_killed_ends_no_outage() {
        let all = probes(300, |number| (!(101..150).contains(&number)).then_some(1_000_000));
        let fault = Span { begin_ns: 1_000 + 100 * BEAT_NS, end_ns: 1_000 + 100 * BEAT_NS + 14_000_000 };
        let found = outage(&all, &fault, u64::MAX, |_| true);
        assert_eq!(found.back_us, Some((50 * BEAT_NS + 1_000_000) / 1_000));
    }

    /// A primary that loses the store of its manager answers until its lease ends.
    #[test]
    fn an_outage_that_begins_later_is_the_one_of_the_fault() {
        let all = probes(600, |number| (!(300..450).contains(&number)).then_some(1_000_000));
        let found = outage(&all, &at(1_000 + 100 * BEAT_NS), u64::MAX, |_| true);
        assert_eq!(found.back_us, Some((350 * BEAT_NS + 1_000_000) / 1_000));
        let never = probes(600, |number| (number < 300).then_some(1_000_000));
        assert_eq!(outage(&never, &at(1_000 + 100 * BEAT_NS), u64::MAX, |_| true).back_us, None);
    }

    /// Wherever the outage of a fault is, the control removes answers elsewhere; where there are none to remove, it shows nothing.
    #[test]
    fn the_control_is_no_part_of_the_outage() {
        for begin in [100, 325, 600] {
            let all = probes(1_300, |number| (!(begin..begin + 310).contains(&number)).then_some(1_000_000));
            assert_eq!(would_show(&all, |_| true), Some(true), "from probe {begin}");
        }
        assert_eq!(would_show(&probes(1_300, |_| None), |_| true), Some(false));
        assert_eq!(would_show(&probes(60, Some), |_| true), None);
    }

    #[test]
    fn an_outage_ends_with_the_first_answer_that_survives() {
        // Beats 0..99 are calm, 100 to 149 unanswered, 150 to 159 answered by a server that is lost later, then all normal.
        let all = probes(300, |number| (!(100..150).contains(&number)).then_some(1_000_000));
        let fault = &at(1_000 + 100 * BEAT_NS);
        let doomed = |probe: &Probe| !(150..160).contains(&probe.number);
        let found = outage(&all, fault, u64::MAX, doomed);
        assert_eq!(found.back_us, Some((60 * BEAT_NS + 1_000_000) / 1_000));
        assert!((found.unavailable_s - 1.2).abs() < 1e-9, "{found:?}");
        // The full rate does not recover before the first answer.
        assert_eq!(found.full_us, found.back_us);
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!(found.back_us, Some((50 * BEAT_NS + 1_000_000) / 1_000));
    }

    /// A busy host sends no probes for a moment: in the middle of a long outage that is not all of it, and alone it is none.
    #[test]
    fn a_moment_without_probes_is_no_outage_and_hides_none() {
        let min_ns = OUTAGE_MIN.as_nanos() as u64;
        let beats = 40 * min_ns / BEAT_NS;
        let pause = min_ns * 3 / 4;
        // The second half of the probes comes later by the pause.
        let with_pause = |answered: &dyn Fn(u64) -> bool| -> Vec<Probe> {
            let late = |number: u64| if number >= beats / 2 { pause } else { 0 };
            let all = probes(beats, |number| answered(number).then_some(1_000_000));
            all.into_iter()
                .map(|probe| {
                    let late = late(probe.number);
                    let answered_ns = probe.answered_ns.map(|at| at + late);
                    Probe { due_ns: probe.due_ns + late, answered_ns, ..probe }
                })
                .collect()
        };
        let out = beats / 4..beats * 3 / 4;
        let found = gaps(&with_pause(&|number| !out.contains(&number)), &[], |_| true);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].us() * 1_000 > min_ns * 15, "{found:?}");
        assert!(gaps(&with_pause(&|_| true), &[], |_| true).is_empty());
        let short = beats / 2 - min_ns / BEAT_NS / 3..beats / 2 + min_ns / BEAT_NS / 3;
        assert!(
            gaps(&with_pause(&|number| !short.contains(&number)), &[], |_| true).is_empty(),
            "shorter than the least"
        );
    }

    #[test]
    fn slow_answers_are_not_the_full_rate_and_silence_has_no_end() {
        let all = probes(200, |number| Some(if number < 100 { 1_000_000 } else { 5_000_000 }));
        let fault = &at(1_000 + 100 * BEAT_NS);
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!((found.back_us, found.full_us), (Some(5_000), None));
        let all = probes(200, |number| (number < 100).then_some(1_000_000));
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!((found.back_us, found.full_us), (None, None));
        assert!((found.unavailable_s - 2.0).abs() < 1e-9);
        // Answers after the next fault do not belong to this one.
        let all = probes(200, |number| (number >= 150).then_some(1_000_000));
        assert_eq!(outage(&all, fault, fault.end_ns + 40 * BEAT_NS, |_| true).back_us, None);
    }
}
