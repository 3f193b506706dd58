//! What a finding costs: its share of the DB time, what its remedy would save of it, and a severity that fits.

use super::statement_of;
use crate::case::Case;
use crate::node_time;
use crate::rules::costly::in_a_line;
use crate::rules::lock::BY_DESIGN;
use crate::rules::plan::{UNSURE, WHAT_IT_IS_FOR};
use crate::rules::statement::{SAVED_LEAST, SAVED_MOST, compiled_share};
use crate::units;
use record::escape::ascii;
use record::finding::{Benefit, Finding, GENERAL, NodeTime, Severity};

/// Names of numbers that are shares of the DB time, in the order of preference.
const SHARES: [&str; 5] = ["share", "wal_share", "commit_share", "hot_share", "sync_share"];
/// Findings of other areas whose `share` is not one of the DB time.
pub(super) const OTHER_SHARES: [&str; 11] = [
    "CPU-01", "CPU-05", "FS-01", "FS-02", "FS-03", "SEC-01", "NET-03", "OBS-01", "OBS-02", "CAP-01", "CPU-03",
];
/// Below this share of the DB time a finding is worth knowing, and nothing more.
const NOTE_SHARE_MAX: f64 = 0.02;
/// Below this share it is low.
const LOW_SHARE_MAX: f64 = 0.1;
/// Below this share it is not high.
const MEDIUM_SHARE_MAX: f64 = 0.3;
/// Active sessions of a node, on average, below which a share of their time is low, but for certain waste.
const LITTLE_ACTIVE_MAX: f64 = 0.25;

/// Areas of findings about work that the server does. Waits of a server that hardly works have no work behind them.
const OF_WORK: [&str; 2] = ["PLAN-", "VAC-"];
/// What is wasted for certain, of the time of a finding ...
const WASTE_SAVED_MIN: f64 = 0.3;
/// ... that is so much of all.
const WASTE_SHARE_MIN: f64 = 0.5;
/// Active sessions of a node that is always at work.
const ALWAYS_ACTIVE_MIN: f64 = 1.0;
/// The share of the time from which on a finding is not low ...
const RAISED_SHARE_MIN: f64 = 0.9;
/// ... if its remedy may save so much of all.
const RAISED_SAVED_MIN: f64 = 0.5;
/// What a remedy saves of the time that its finding takes: at least, at most. Ours; a condition whose remedy may also do nothing begins at 0.
pub(super) const SAVED: &[(&str, f64, f64)] = &[
    ("PLAN-01", 0.7, 1.0),
    ("PLAN-02", 0.2, 0.8),
    ("PLAN-03", 0.9, 1.0),
    ("PLAN-04", 0.5, 0.95),
    ("PLAN-05", 0.0, 0.9),
    ("PLAN-06", 0.5, 1.0),
    ("PLAN-07", 0.5, 1.0),
    ("PLAN-08", 0.3, 1.0),
    ("PLAN-09", 0.3, 0.95),
    ("CFG-03", 0.5, 1.0),
    ("PLAN-10", 0.5, 1.0),
    ("PLAN-11", 0.5, 1.0),
    ("PLAN-12", 0.0, 0.9),
    ("PLAN-13", 0.0, 0.95),
    ("PLAN-15", 0.3, 0.95),
    ("PLAN-20", 0.5, 1.0),
    ("PLAN-21", 0.5, 1.0),
    ("PLAN-22", 0.5, 1.0),
    ("PLAN-23", 0.5, 1.0),
    ("PLAN-24", 0.2, 0.95),
    ("PLAN-26", 0.1, 0.9),
    ("PLAN-28", 0.5, 1.0),
    ("PLAN-29", 0.7, 1.0),
    ("PLAN-30", 0.8, 1.0),
    ("PLAN-31", 0.4, 1.0),
    ("PLAN-32", 0.3, 1.0),
    ("PLAN-33", 0.3, 1.0),
    ("PLAN-34", 0.4, 1.0),
    ("PLAN-35", 0.4, 1.0),
    ("PLAN-36", 0.0, 0.8),
    ("PLAN-37", 0.4, 1.0),
    ("PLAN-38", 0.6, 1.0),
    ("PLAN-39", 0.1, 0.6),
    ("PLAN-40", 0.05, 0.6),
    ("PLAN-45", 0.0, 0.9),
    ("PLAN-46", 0.5, 1.0),
    ("PLAN-47", 0.0, 0.95),
    ("PLAN-48", 0.5, 1.0),
    ("PLAN-50", 0.5, 1.0),
    ("PLAN-49", 0.5, 1.0),
    ("PLAN-51", 0.5, 1.0),
    ("SES-08", 0.5, 1.0),
    ("PLAN-52", 0.4, 1.0),
    ("PLAN-53", 0.5, 1.0),
    ("PLAN-54", 0.5, 1.0),
    ("PLAN-55", 0.5, 1.0),
    ("PLAN-56", 0.2, 1.0),
    ("VAC-14", 0.4, 1.0),
    ("TXN-13", 0.0, 0.9),
    ("VAC-13", 0.3, 0.95),
    ("MEM-07", 0.2, 0.9),
    ("TXN-10", 0.3, 0.6),
    ("TXN-12", 0.3, 1.0),
    ("TXN-14", 0.3, 1.0),
    ("TXN-22", 0.4, 1.0),
    ("SES-17", 0.2, 0.9),
    ("LOG-03", 0.2, 0.95),
    ("PLAN-64", 0.5, 1.0),
    ("PLAN-86", 0.3, 1.0),
    ("PLAN-87", 0.3, 1.0),
    ("PLAN-88", 0.3, 1.0),
    ("PLAN-89", 0.3, 1.0),
    ("PLAN-90", 0.2, 0.95),
    ("PLAN-91", 0.0, 0.5),
    ("PLAN-92", 0.3, 0.98),
    ("PLAN-93", 0.3, 0.98),
    ("PLAN-95", 0.3, 0.95),
    ("PLAN-96", 0.2, 0.9),
    ("PLAN-97", 0.4, 0.95),
    ("PLAN-98", 0.3, 0.95),
    ("PLAN-99", 0.2, 0.7),
    ("PLAN-94", 0.3, 0.95),
    ("LOG-04", 0.4, 1.0),
    ("PLAN-63", 0.3, 0.95),
    ("PLAN-68", 0.3, 0.95),
    ("PLAN-69", 0.5, 1.0),
    ("PLAN-70", 0.3, 1.0),
    ("PLAN-71", 0.2, 0.95),
    ("PLAN-72", 0.5, 1.0),
    ("PLAN-73", 0.2, 0.95),
    ("PLAN-74", 0.5, 1.0),
    ("PLAN-75", 0.0, 0.95),
    ("PLAN-76", 0.5, 1.0),
    ("PLAN-77", 0.5, 1.0),
    ("PLAN-78", 0.3, 1.0),
    ("PLAN-79", 0.2, 0.9),
    ("PLAN-80", 0.2, 0.9),
    ("PLAN-81", 0.2, 1.0),
    ("PLAN-82", 0.3, 1.0),
    ("PLAN-83", 0.3, 1.0),
    ("TXN-16", 0.3, 1.0),
    ("TXN-17", 0.2, 0.9),
    ("TXN-18", 0.3, 0.95),
    ("TXN-19", 0.3, 1.0),
    ("TXN-20", 0.2, 0.7),
    ("TXN-21", 0.5, 1.0),
    ("VAC-17", 0.3, 0.95),
    ("EXT-03", 0.3, 1.0),
    ("EXT-04", 0.3, 1.0),
    ("EXT-05", 0.3, 1.0),
    ("PLAN-65", 0.5, 1.0),
    ("PLAN-66", 0.5, 1.0),
    ("PLAN-67", 0.5, 1.0),
    ("PLAN-84", 0.5, 1.0),
    ("PLAN-85", 0.2, 0.95),
    ("TXN-15", 0.2, 0.9),
    ("LCK-09", 0.5, 1.0),
    ("LWL-08", 0.5, 1.0),
    ("WAL-11", 0.3, 0.95),
    ("PLAN-41", 0.0, 0.9),
    ("EXT-01", 0.0, 0.95),
    ("VAC-05", 0.3, 0.95),
    ("VAC-11", 0.3, 0.95),
    ("TXN-06", 0.2, 0.9),
    ("TXN-07", 0.3, 0.95),
    ("WAL-07", 0.1, 0.9),
    ("WAL-12", 0.1, 0.9),
    ("PLAN-14", 0.5, 1.0),
    ("PLAN-25", 0.3, 1.0),
    ("PLAN-27", 0.5, 1.0),
    ("LWL-07", 0.3, 0.9),
    ("MEM-06", 0.2, 0.9),
    ("IO-10", 0.2, 0.8),
    ("IO-12", 0.4, 1.0),
    ("TXN-24", 0.2, 0.8),
    ("WAL-04", 0.3, 0.95),
    ("LCK-01", 0.8, 1.0),
    ("LCK-03", 0.3, 1.0),
    ("LCK-04", 0.8, 1.0),
    ("LCK-05", 0.3, 0.9),
    ("LCK-06", 0.3, 1.0),
    ("LCK-07", 0.6, 1.0),
    ("PLAN-57", 0.2, 0.8),
    ("PLAN-58", 0.7, 1.0),
    ("PLAN-59", 0.7, 1.0),
    ("PLAN-60", 0.5, 0.95),
    ("PLAN-61", 0.3, 0.95),
    ("FS-05", 0.5, 0.95),
    ("LCK-08", 0.6, 1.0),
    ("VAC-15", 0.5, 0.95),
    ("REP-14", 0.5, 0.95),
    ("EXT-02", 0.5, 0.95),
    ("EXT-06", 0.5, 0.98),
    ("CFG-01", 0.3, 0.95),
    ("LWL-01", 0.5, 0.95),
    ("LWL-02", 0.5, 1.0),
    ("LWL-03", 0.3, 0.9),
    ("LWL-04", 0.5, 1.0),
    ("LWL-05", 0.2, 0.7),
    ("LWL-06", 0.3, 0.9),
    ("DIST-06", 0.3, 0.9),
    ("WAL-01", 0.3, 0.9),
    ("WAL-10", 0.5, 1.0),
    ("TXN-01", 0.5, 0.98),
    ("REP-01", 0.3, 0.95),
    ("REP-18", 0.5, 1.0),
    ("SES-02", 0.5, 1.0),
    ("SES-03", 0.5, 0.9),
    ("CPU-06", 0.5, 1.0),
    ("MEM-04", 0.2, 0.8),
    ("IO-07", 0.2, 0.9),
    ("IO-08", 0.2, 0.8),
    ("IO-09", 0.5, 1.0),
    ("NET-06", 0.3, 1.0),
    ("VAC-10", 0.5, 1.0),
    ("VAC-08", 0.5, 1.0),
];

/// Rules about compilation itself. What the remedies of all others save of a statement's time is only the rest of it.
const OF_COMPILATION: [&str; 3] = ["CFG-01", "PLAN-03", "PLAN-17"];

/// The share of the DB time, what the remedy would save of it, and a severity that fits.
pub(super) fn weigh(case: &Case, finding: &mut Finding) {
    if !OTHER_SHARES.contains(&finding.rule.as_str()) {
        finding.impact = impact(case, finding);
    }
    let is_little = is_of_little_time(case, finding);
    // Before the compilation is taken off: a node that hardly works has no trouble with its time, but may waste most of it.
    if is_little && !is_waste(finding) {
        finding.severity = finding.severity.min(Severity::Low);
    }
    let Some(whole) = finding.impact else { return };
    let compiled = compiled_share_of(case, finding).min(whole);
    let impact = whole - compiled;
    if compiled > 0.0 {
        finding.impact = Some(impact);
        finding.evidence.push(format!(
            "compilation is {} of the session time in this statement (PLAN-03): no other plan takes that away, so it is not counted here",
            units::percent(compiled)
        ));
    }
    let saved = SAVED.iter().find(|(rule, _, _)| *rule == finding.rule);
    let is_unsure = finding.numbers.contains_key(UNSURE);
    // What the recording shows of what can be saved is less than what remedies of the kind may save.
    let of = |name: &str, usual: f64| finding.numbers.get(name).map_or(usual, |shown| shown.min(usual));
    finding.benefit = saved.map(|(_, least, most)| Benefit {
        least: if is_unsure { 0.0 } else { impact * of(SAVED_LEAST, *least) },
        most: impact * of(SAVED_MOST, *most),
    });
    let most = match impact {
        share if share < NOTE_SHARE_MAX => Severity::Note,
        share if share < LOW_SHARE_MAX => Severity::Low,
        share if share < MEDIUM_SHARE_MAX => Severity::Medium,
        _ => Severity::High,
    };
    let most = if is_little { most.min(Severity::Medium) } else { most };
    finding.severity = finding.severity.min(most);
    raise(case, finding, impact);
}

/// Whether a finding is about work that is half of the time or more, and of which 30 % or more can be saved for certain, however little it is.
fn is_waste(finding: &Finding) -> bool {
    let saved = SAVED.iter().find(|(rule, _, _)| *rule == finding.rule);
    let least =
        finding.numbers.get(SAVED_LEAST).copied().or(saved.map(|(_, least, _)| *least)).unwrap_or(0.0);
    let is_of_work = OF_WORK.iter().any(|area| finding.rule.starts_with(area)) && finding.rule != GENERAL;
    let is_certain = !finding.numbers.contains_key(UNSURE) && least >= WASTE_SAVED_MIN;
    is_of_work && is_certain && finding.impact.is_some_and(|share| share >= WASTE_SHARE_MIN)
}

/// A finding that has nearly all of the time of sessions which are always at work matters, also where it is uncertain what its remedy saves: its words carry
/// the doubt.
fn raise(case: &Case, finding: &mut Finding, impact: f64) {
    let is_busy =
        |time: &NodeTime| Some(&time.node) == finding.node.as_ref() && time.active >= ALWAYS_ACTIVE_MIN;
    let can_save = finding.benefit.as_ref().is_some_and(|benefit| benefit.most >= RAISED_SAVED_MIN);
    let is_raised = finding.severity == Severity::Low
        && impact >= RAISED_SHARE_MIN
        && can_save
        && !finding.numbers.contains_key(BY_DESIGN)
        && !finding.numbers.contains_key(WHAT_IT_IS_FOR);
    if is_raised && node_time::all(case).iter().any(is_busy) {
        finding.severity = Severity::Medium;
    }
}

/// The share of the session time in compilation of the statement that a finding is about.
fn compiled_share_of(case: &Case, finding: &Finding) -> f64 {
    if OF_COMPILATION.contains(&finding.rule.as_str()) {
        return 0.0;
    }
    let Some(text) = statement_of(finding).map(ascii) else { return 0.0 };
    let of_node = node_time::all(case).iter().filter(|time| finding.node.as_ref() == Some(&time.node));
    let statement =
        of_node.flat_map(|time| &time.statements).find(|statement| ascii(&in_a_line(statement)) == text);
    statement.map_or(0.0, compiled_share)
}

fn impact(case: &Case, finding: &Finding) -> Option<f64> {
    let node = finding.node.as_deref()?;
    let time = node_time::all(case).iter().find(|time| time.node == node && !time.is_idle())?;
    share_of_time(finding).map(|share| share.clamp(0.0, 1.0)).filter(|_| time.active > 0.0)
}

/// The share of its node's time that a finding is about, if it is about time.
fn share_of_time(finding: &Finding) -> Option<f64> {
    let named = SHARES.iter().find_map(|name| finding.numbers.get(*name));
    named.filter(|_| SAVED.iter().any(|(rule, _, _)| *rule == finding.rule)).copied()
}

/// Whether it is about the time of a node whose sessions hardly work: programs, or a rate, send so little that even all of it limits nothing.
fn is_of_little_time(case: &Case, finding: &Finding) -> bool {
    let is_of_time = !OTHER_SHARES.contains(&finding.rule.as_str()) && share_of_time(finding).is_some();
    let is_little =
        |time: &NodeTime| Some(&time.node) == finding.node.as_ref() && time.active < LITTLE_ACTIVE_MAX;
    is_of_time && node_time::all(case).iter().any(is_little)
}
