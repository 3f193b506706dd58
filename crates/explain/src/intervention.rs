//! Experiments in the recording: a setting that acts on a condition was changed, and the condition disappeared or appeared with it.
//!
//! This is the strongest evidence, so a change of a setting counts only under strict conditions:
//!
//! * the condition was clearly there on one side of it and clearly gone on the other ([`ABSENT_PART`]), with samples enough on both;
//! * the work continued: a condition that ends because the load ends proves nothing;
//! * every time that the setting had a value the condition was the same: a failed second attempt revokes the proof;
//! * the server was not restarted in between;
//! * the condition moved so close to the change that chance does so in at most [`P_MAX`] of the cases. Chance is a condition that comes
//!   and goes by itself as often as this one did, at times spread evenly over the record: `n! (2 lag / length)^n`. One change at once
//!   in ten minutes is enough; in half a minute it has to be made, taken back and made again.
//!
//! A change without effect is reported as well: it rules that setting out.

use crate::case::{Case, SettingChange};
use crate::rule::Claim;
use crate::rules::{synchronous, vacuum, wal};
use crate::statistics;
use crate::units;
use crate::waits::{Waits, Who};
use record::event;
use record::finding::{Level, Severity, Window};
use std::collections::BTreeMap;

/// A condition of a rule, as a share of samples, and the settings that act on it.
struct Experiment {
    rule: &'static str,
    settings: &'static [&'static str],
    who: Who,
    fits: fn(&str, &str) -> bool,
    /// From this share on the rule calls it present.
    present: f64,
    /// Who does what, for a sentence: `autovacuum workers slept for the cost limit in`.
    words: &'static str,
}

const EXPERIMENTS: [Experiment; 3] = [
    Experiment {
        rule: "VAC-01",
        settings: &[
            "autovacuum_vacuum_cost_delay",
            "autovacuum_vacuum_cost_limit",
            "vacuum_cost_delay",
            "vacuum_cost_limit",
        ],
        who: Who::Vacuum,
        fits: vacuum::is_delay,
        present: vacuum::SHARE,
        words: "autovacuum workers slept for the cost limit in",
    },
    Experiment {
        rule: "WAL-01",
        settings: &[
            "commit_delay",
            "commit_siblings",
            "fsync",
            "synchronous_commit",
            "wal_compression",
            "wal_sync_method",
        ],
        who: Who::Client,
        fits: vacuum::is_wal,
        present: wal::WAL_SHARE,
        words: "active sessions waited for the WAL in",
    },
    Experiment {
        rule: "REP-01",
        settings: &["synchronous_commit", "synchronous_standby_names"],
        who: Who::Client,
        fits: synchronous::is_sync,
        present: synchronous::SYNC_SHARE,
        words: "active sessions waited for synchronous standbys in",
    },
];

/// A share below this part of the rule's limit is "gone"; values in between are neither.
pub(crate) const ABSENT_PART: f64 = 0.5;
/// Samples on either side.
const SAMPLES_MIN: f64 = 5.0;
/// Polls on either side.
const LOOKS_MIN: usize = 3;
/// Largest probability of chance.
pub(crate) const P_MAX: f64 = 0.05;
/// Work on the free side, as a part of that on the other.
const WORK_PART_MIN: f64 = 0.5;

/// The condition between two changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Present,
    Absent,
    /// In between, or too few samples.
    Unclear,
}

/// The time between two changes.
#[derive(Clone, PartialEq, Debug)]
struct Epoch {
    window: Window,
    /// The settings that had been changed by then, with their values.
    values: BTreeMap<String, String>,
    state: State,
    share: f64,
    samples: f64,
    /// Rows written a second.
    rows_per_s: f64,
}

/// A change of one or several of the settings at one moment, between two epochs.
struct Switch<'a> {
    at_us: u64,
    changes: Vec<&'a SettingChange>,
    before: &'a Epoch,
    after: &'a Epoch,
}

impl Switch<'_> {
    fn is_effect(&self) -> bool {
        matches!(
            (self.before.state, self.after.state),
            (State::Present, State::Absent) | (State::Absent, State::Present)
        )
    }

    /// `commit_delay 0 -> 100`.
    fn words(&self) -> String {
        let one = |change: &&SettingChange| {
            format!("{} {} -> {}", change.name, quoted(&change.before), quoted(&change.after))
        };
        self.changes.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn quoted(value: &str) -> String {
    if value.is_empty() { "''".to_string() } else { value.to_string() }
}

/// Adds the proof from changes of settings to a rule's claims; adds a claim if they reveal a condition that is hidden in the whole recording.
pub(crate) fn weigh(rule: &str, case: &Case, mut claims: Vec<Claim>) -> Vec<Claim> {
    let Some(experiment) = EXPERIMENTS.iter().find(|experiment| experiment.rule == rule) else {
        return claims;
    };
    for (node, waits) in case.waiting_nodes() {
        let changes: Vec<&SettingChange> = case
            .setting_changes(node)
            .filter(|change| experiment.settings.contains(&change.name.as_str()))
            .collect();
        if changes.is_empty() {
            continue;
        }
        let at = claims.iter().position(|claim| claim.finding().node.as_deref() == Some(node));
        let known = at.map(|at| claims.remove(at));
        let weighed = Trial { experiment, case, node, waits }.weigh(&changes, known);
        if let Some(claim) = weighed {
            claims.insert(at.unwrap_or(claims.len()), claim);
        }
    }
    claims
}

/// Changes of a setting with the condition present on both sides: this setting is not the cause.
fn without_effect(mut claim: Option<Claim>, switches: &[Switch<'_>]) -> Option<Claim> {
    for switch in switches {
        // Both sides the same: this setting is not it.
        let is_idle = switch.before.state == State::Present && switch.after.state == State::Present;
        claim = claim.map(|claim| {
            claim.with(is_idle.then_some(()), |claim, ()| {
                claim.not(format!(
                    "{} at second {}: {} of the samples before, {} after",
                    switch.words(),
                    switch.at_us / 1_000_000,
                    units::percent(switch.before.share),
                    units::percent(switch.after.share)
                ))
            })
        });
    }
    claim
}

/// The claim with the numbers of its switches; `p`: the probability of chance.
fn proved(claim: Claim, effects: &[&Switch<'_>], p: f64) -> Claim {
    let sides = |state: State| -> Vec<&Epoch> {
        effects
            .iter()
            .flat_map(|switch| [switch.before, switch.after])
            .filter(|epoch| epoch.state == state)
            .collect()
    };
    let mean = |state: State| {
        let values: Vec<f64> = sides(state).iter().map(|epoch| epoch.share).collect();
        statistics::mean(&values).unwrap_or(0.0)
    };
    claim
        .at_level(Level::Intervention)
        .number("share_with", mean(State::Present))
        .number("share_without", mean(State::Absent))
        .number("switches", effects.len() as f64)
        .number("intervention_p", p)
        .not(format!(
            "chance: the probability that the condition changes this close to the setting by chance is p = {}",
            if p < 0.0001 { "0.0001 or less".to_string() } else { format!("{p:.4}") }
        ))
}

/// One rule on one node.
struct Trial<'a> {
    experiment: &'a Experiment,
    case: &'a Case,
    node: &'a str,
    waits: &'a Waits,
}

impl Trial<'_> {
    fn weigh(&self, changes: &[&SettingChange], known: Option<Claim>) -> Option<Claim> {
        let readings = self.readings();
        let (times_us, epochs) = self.epochs(changes, &readings);
        let switches: Vec<Switch<'_>> = times_us
            .iter()
            .enumerate()
            .map(|(index, at_us)| Switch {
                at_us: *at_us,
                changes: changes.iter().copied().filter(|change| change.t_us == *at_us).collect(),
                before: &epochs[index],
                after: &epochs[index + 1],
            })
            .collect();
        let claim = without_effect(known, &switches);
        let effects: Vec<&Switch<'_>> = switches.iter().filter(|switch| switch.is_effect()).collect();
        if effects.is_empty() {
            return claim;
        }
        let (first, last) = (effects[0], effects[effects.len() - 1]);
        let doubt = self.doubt(&epochs, first.before, last.after);
        let lags_us: Vec<f64> = effects.iter().map(|switch| self.lag_us(switch, &readings)).collect();
        let length_us = readings.last().map_or(0, |last| last.0)
            - readings.first().map_or(0, |first| first.0.saturating_sub(first.1));
        let p = chance(&lags_us, length_us as f64);
        if let Some(doubt) = doubt {
            return claim.map(|claim| claim.lacking(format!("{}: {doubt}", first.words())));
        }
        if p > P_MAX {
            return claim.map(|claim| {
                claim.lacking(format!(
                    "the condition changed with {} at second {}, but in a recording of {} chance does that in {} of the cases: change the setting \
                     back and forth once more, or record for longer",
                    first.words(),
                    first.at_us / 1_000_000,
                    units::seconds(length_us as f64 / 1e6),
                    units::percent(p)
                ))
            });
        }
        let mut claim = claim.unwrap_or_else(|| self.past(first, &epochs));
        for (switch, lag_us) in effects.iter().zip(&lags_us) {
            claim = claim.because(self.sentence(switch, *lag_us));
            let others = self.changed_with(switch);
            if !others.is_empty() {
                claim = claim.lacking(format!("{} changed at the same moment", others.join(", ")));
            }
        }
        Some(proved(claim, &effects, p))
    }

    /// Other settings that changed at the same moment.
    fn changed_with(&self, switch: &Switch<'_>) -> Vec<&str> {
        self.case
            .setting_changes(self.node)
            .filter(|change| change.t_us == switch.at_us)
            .filter(|change| !self.experiment.settings.contains(&change.name.as_str()))
            .map(|change| change.name.as_str())
            .collect()
    }

    /// (moment, interval, sessions seen, those that fit) of every poll that saw any.
    fn readings(&self) -> Vec<(u64, u64, f64, f64)> {
        let mut readings: BTreeMap<u64, (u64, f64, f64)> = BTreeMap::new();
        for (event, series) in self.waits.of(self.experiment.who) {
            let fits = (self.experiment.fits)(&event.0, &event.1);
            for point in series.points() {
                let reading = readings.entry(point.to_us).or_default();
                reading.0 = reading.0.max(point.interval_us);
                reading.1 += point.sum;
                reading.2 += if fits { point.sum } else { 0.0 };
            }
        }
        readings
            .into_iter()
            .map(|(t_us, (interval_us, seen, hits))| (t_us, interval_us, seen, hits))
            .collect()
    }

    /// The times of the changes, and the time before, between and after them.
    fn epochs(
        &self,
        changes: &[&SettingChange],
        readings: &[(u64, u64, f64, f64)],
    ) -> (Vec<u64>, Vec<Epoch>) {
        let mut times_us: Vec<u64> = changes.iter().map(|change| change.t_us).collect();
        times_us.sort_unstable();
        times_us.dedup();
        // Of a setting that changed once, the value before the change is known, too: two epochs with one value can be compared.
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for change in changes {
            values.entry(change.name.clone()).or_insert_with(|| change.before.clone());
        }
        let mut epochs = vec![];
        let mut from_us = self.case.span.from_us;
        for index in 0..=times_us.len() {
            let to_us = times_us.get(index).copied().unwrap_or(self.case.span.to_us);
            epochs.push(self.epoch(Window::new(from_us, to_us), values.clone(), readings));
            for change in changes.iter().filter(|change| change.t_us == to_us) {
                values.insert(change.name.clone(), change.after.clone());
            }
            from_us = to_us;
        }
        (times_us, epochs)
    }

    fn epoch(
        &self,
        window: Window,
        values: BTreeMap<String, String>,
        readings: &[(u64, u64, f64, f64)],
    ) -> Epoch {
        let inside: Vec<_> = readings.iter().filter(|reading| window.holds(reading.0)).collect();
        let samples: f64 = inside.iter().map(|reading| reading.2).sum();
        let hits: f64 = inside.iter().map(|reading| reading.3).sum();
        let share = if samples > 0.0 { hits / samples } else { 0.0 };
        let state = match share {
            _ if samples < SAMPLES_MIN || inside.len() < LOOKS_MIN => State::Unclear,
            share if share >= self.experiment.present => State::Present,
            share if share <= self.experiment.present * ABSENT_PART => State::Absent,
            _ => State::Unclear,
        };
        let server = self.case.one("server", self.node);
        let rows = ["tup_inserted", "tup_updated", "tup_deleted"]
            .iter()
            .filter_map(|field| server?.series(field))
            .map(|series| series.within(&[window]).rate())
            .sum();
        Epoch { window, values, state, share, samples, rows_per_s: rows }
    }

    /// Why it does not count as an experiment, if there is a reason.
    fn doubt(&self, epochs: &[Epoch], first: &Epoch, last: &Epoch) -> Option<String> {
        let mut states: BTreeMap<&BTreeMap<String, String>, State> = BTreeMap::new();
        for epoch in epochs.iter().filter(|epoch| epoch.state != State::Unclear) {
            if *states.entry(&epoch.values).or_insert(epoch.state) != epoch.state {
                return Some("the condition differed between periods with the same settings".to_string());
            }
        }
        let during = Window::new(first.window.from_us, last.window.to_us);
        let restarts = self.case.events_of(event::RESTART).filter(|event| {
            during.holds(event.t_us)
                && matches!(Case::word_of(event, "node"), node if node.is_empty() || node == self.node)
        });
        if restarts.count() > 0 {
            return Some(
                "the server was restarted in between, which changes more than a setting".to_string(),
            );
        }
        if self.experiment.who == Who::Client {
            let of = |state: State| {
                let rates: Vec<f64> = epochs
                    .iter()
                    .filter(|epoch| epoch.state == state)
                    .map(|epoch| epoch.rows_per_s)
                    .collect();
                statistics::mean(&rates).unwrap_or(0.0)
            };
            let (with, without) = (of(State::Present), of(State::Absent));
            if without < with * WORK_PART_MIN || without <= 0.0 {
                return Some(format!(
                    "the work differed: {} rows written a second with the condition, {} without",
                    units::short(with),
                    units::short(without)
                ));
            }
        }
        None
    }

    /// How long after or before the switch the condition changed; at least one poll, the precision of that time.
    fn lag_us(&self, switch: &Switch<'_>, readings: &[(u64, u64, f64, f64)]) -> f64 {
        let both = Window::new(switch.before.window.from_us, switch.after.window.to_us);
        let inside: Vec<_> = readings.iter().filter(|reading| both.holds(reading.0)).collect();
        let shares: Vec<f64> = inside.iter().map(|reading| reading.3 / reading.2.max(1.0)).collect();
        let gaps = inside.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64);
        let look_us = statistics::median(gaps).unwrap_or(0.0);
        let moved_us = statistics::change(&shares)
            .and_then(|change| inside.get(change.at))
            .map_or(both.length_us() as f64 / 2.0, |reading| reading.0.abs_diff(switch.at_us) as f64);
        moved_us.max(look_us)
    }

    fn sentence(&self, switch: &Switch<'_>, lag_us: f64) -> String {
        let side = |epoch: &Epoch| {
            format!("{} of {} samples in {}", units::percent(epoch.share), units::count(epoch.samples), {
                units::seconds(epoch.window.length_us() as f64 / 1e6)
            })
        };
        let work = match self.experiment.who {
            Who::Client => format!(
                ", while {} rows a second were written before and {} after",
                units::count(switch.before.rows_per_s),
                units::count(switch.after.rows_per_s)
            ),
            _ => String::new(),
        };
        format!(
            "experiment: {} at second {}: {} {} before, {} after, {} from the change{work}",
            switch.words(),
            switch.at_us / 1_000_000,
            self.experiment.words,
            side(switch.before),
            side(switch.after),
            units::us(lag_us)
        )
    }

    /// A claim about a condition that was present only for a while, so that the rule, which reads the whole recording, does not fire.
    fn past(&self, switch: &Switch<'_>, epochs: &[Epoch]) -> Claim {
        let (with, without) = match switch.before.state {
            State::Present => (switch.before, switch.after),
            _ => (switch.after, switch.before),
        };
        let is_over =
            epochs.iter().rev().find(|epoch| epoch.state != State::Unclear).map(|epoch| epoch.state)
                == Some(State::Absent);
        Claim::new(
            if is_over { Severity::Note } else { Severity::Medium },
            Level::CoOccurrence,
            format!(
                "{}: {} {} of their samples with {} and in {} with {}{}",
                self.node,
                self.experiment.words,
                units::percent(with.share),
                listed(&with.values),
                units::percent(without.share),
                listed(&without.values),
                if is_over { ", as it is now" } else { "" }
            ),
        )
        .on_node(self.node)
        .during(epochs.iter().filter(|epoch| epoch.state == State::Present).map(|epoch| epoch.window))
        .remedy(if is_over { "keep it as it is" } else { "take the change back" }, &[])
    }
}

fn listed(values: &BTreeMap<String, String>) -> String {
    values.iter().map(|(name, value)| format!("{name} {}", quoted(value))).collect::<Vec<_>>().join(", ")
}

/// The probability that as many changes at random times of the recording come as close to the switches.
fn chance(lags_us: &[f64], length_us: f64) -> f64 {
    let each = lags_us.iter().enumerate().map(|(index, lag_us)| {
        let near = (2.0 * lag_us / length_us.max(1.0)).min(1.0);
        near * (index + 1) as f64
    });
    each.product::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_switch_needs_a_long_record_and_several_a_short_one() {
        let second = 1e6;
        assert!((chance(&[second], 600.0 * second) - 1.0 / 300.0).abs() < 1e-9);
        assert!(chance(&[second], 20.0 * second) > P_MAX);
        assert!(chance(&[second; 3], 20.0 * second) <= P_MAX);
        // A change long after a switch counts as chance, however often it happens.
        assert_eq!(chance(&[9.0 * second; 3], 20.0 * second), 1.0);
    }
}
