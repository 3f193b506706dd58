//! One story out of many claims: what each finding costs and what its remedy would save, which findings are symptoms of others, which are the same on
//! several nodes, and which large slices of the time no finding explains.
//!
//! Rules look at their own condition only. What connects them is here, as tables.

mod causes;
mod databases;
mod slices;

use crate::case::Case;
use crate::node_time;
use crate::rules::costly::in_a_line;
use crate::rules::failing::GIVES_UP_EARLY;
use crate::rules::generator::deadlock::OVER_NODES;
use crate::rules::lock::{BY_DESIGN, ENGINES};
use crate::rules::plan::UNSURE;
use crate::rules::statement::BY_STATEMENT;
use crate::rules::statement::{OWN_LIMIT, SAVED_LEAST, SAVED_MOST, compiled_share};
use crate::rules::waste::DEAD_ROWS;
use crate::units;
use causes::CAUSES;
use record::Findings;
use record::escape::ascii;
use record::finding::{Benefit, Finding, GENERAL, Health, Severity, Uncovered};
use record::watched::{MORE_THAN_READ, Missing};
use slices::SLICES;
use std::collections::{BTreeMap, BTreeSet};

/// Names of numbers that are shares of the DB time, in the order of preference.
const SHARES: [&str; 5] = ["share", "wal_share", "commit_share", "hot_share", "sync_share"];
/// Findings of other areas whose `share` is not one of the DB time.
const OTHER_SHARES: [&str; 11] = [
    "CPU-01", "CPU-05", "FS-01", "FS-02", "FS-03", "SEC-01", "NET-03", "OBS-01", "OBS-02", "CAP-01", "CPU-03",
];
/// Below this share of the DB time a finding is worth knowing, and nothing more.
const NOTE_SHARE_MAX: f64 = 0.02;
/// Below this share it is low.
const LOW_SHARE_MAX: f64 = 0.1;
/// Below this share it is not high.
const MEDIUM_SHARE_MAX: f64 = 0.3;
/// A slice of the time that needs an answer: this share of it ...
const SLICE_SHARE_MIN: f64 = 0.1;
/// ... or so many sessions that wait.
const SLICE_SESSIONS_MIN: f64 = 1.0;
/// Waits that no rule explains are the answer from this share of a node's time on: every commit waits for its flush, and that alone is no trouble.
const UNCOVERED_SHARE_MIN: f64 = 0.5;
/// A share of fewer sessions than this is a share of nothing.
const SLICE_ANY_MIN: f64 = 0.1;

/// Active sessions of a node, on average, below which no share of their time is more than low.
const LITTLE_ACTIVE_MAX: f64 = 0.25;

/// What a remedy saves of the time that its finding takes: at least, at most. Ours; a condition whose remedy may also do nothing begins at 0.
const SAVED: &[(&str, f64, f64)] = &[
    ("PLAN-01", 0.7, 1.0),
    ("PLAN-02", 0.2, 0.8),
    ("PLAN-03", 0.9, 1.0),
    ("PLAN-04", 0.5, 0.95),
    ("PLAN-05", 0.0, 0.9),
    ("PLAN-06", 0.5, 1.0),
    ("PLAN-08", 0.3, 1.0),
    ("PLAN-09", 0.3, 0.95),
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
    ("LOG-03", 0.2, 0.95),
    ("PLAN-64", 0.5, 1.0),
    ("PLAN-86", 0.3, 1.0),
    ("PLAN-87", 0.3, 1.0),
    ("PLAN-88", 0.3, 1.0),
    ("PLAN-89", 0.3, 1.0),
    ("PLAN-90", 0.2, 0.95),
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

/// Causes on one node whose symptoms show on others: a standby's on its primary, that of a node which is away on the rest of its cluster.
const SEEN_ELSEWHERE: [&str; 3] = ["REP-10", "REP-12", "REP-13"];

/// Rules about the measurement or the client, which say nothing about the health of the database.
const NOT_OF_TARGET: [&str; 8] =
    ["OBS-", "GEN-03", "GEN-04", "GEN-05", "GEN-06", "NET-03", "DIST-04", "DIST-05"];

/// What is reported as missing, and what to do first about it.
const FIRST_AID: &[(&str, &str)] = &[
    (
        "pg_stat_statements",
        "pg_stat_statements is not readable: statements are known from samples of sessions alone, and not how often they run and what they read. Add it to \
         shared_preload_libraries, restart, and type CREATE EXTENSION pg_stat_statements",
    ),
    (
        "sessions of other roles",
        "sessions of other roles hide what they do: waits and their causes are not known. Grant pg_monitor to the role that watches",
    ),
];

/// Completes the findings.
pub(crate) fn complete(case: &Case, findings: &mut Findings) {
    for finding in &mut findings.findings {
        cost(case, finding);
    }
    special_before_general(&mut findings.findings);
    databases::name_them(case, &mut findings.findings);
    one_of_many_nodes(&mut findings.findings);
    under_their_causes(case, &mut findings.findings);
    findings.blind = blind(case, findings);
    findings.uncovered = uncovered(case, &findings.findings);
    findings.health = health(case, findings);
}

/// The share of the DB time, what the remedy would save of it, and a severity that fits.
fn cost(case: &Case, finding: &mut Finding) {
    if !OTHER_SHARES.contains(&finding.rule.as_str()) {
        finding.impact = impact(case, finding);
    }
    if is_of_little_time(case, finding) {
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
    finding.severity = finding.severity.min(most);
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
    let is_little = |time: &record::finding::NodeTime| {
        Some(&time.node) == finding.node.as_ref() && time.active < LITTLE_ACTIVE_MAX
    };
    is_of_time && node_time::all(case).iter().any(is_little)
}

/// A rule that fits any statement gives way to one that knows what is wrong with it.
fn special_before_general(findings: &mut Vec<Finding>) {
    let about = |finding: &Finding| {
        let is_text = |sentence: &&String| sentence.starts_with("the statement: ");
        (finding.node.clone(), finding.evidence.iter().find(is_text).cloned())
    };
    let is_special = |finding: &&Finding| finding.rule != GENERAL && finding.severity > Severity::Note;
    let special: Vec<_> =
        findings.iter().filter(is_special).map(about).filter(|(_, text)| text.is_some()).collect();
    findings.retain(|finding| finding.rule != GENERAL || !special.contains(&about(finding)));
}

/// The claim without names and numbers: what remains is the kind of the claim.
fn kind_of(finding: &Finding) -> String {
    let mut text = finding.claim.clone();
    for name in [&finding.node, &finding.host].into_iter().flatten().filter(|name| !name.is_empty()) {
        text = text.replace(name.as_str(), "@");
    }
    let is_figure = |word: &&str| word.chars().any(|c| c.is_ascii_digit());
    let units = ["B", "kB", "MB", "GB", "TB", "us", "ms", "s", "min", "h", "%"];
    let words = text.split_whitespace().filter(|word| !is_figure(word) && !units.contains(word));
    words.collect::<Vec<_>>().join(" ")
}

/// The same condition on several nodes is one finding: the worst of them, with the others' names.
fn one_of_many_nodes(findings: &mut Vec<Finding>) {
    let mut merged: Vec<Finding> = vec![];
    let mut all = std::mem::take(findings);
    all.sort_by(|left, right| {
        let impact = |finding: &Finding| finding.impact.unwrap_or(0.0);
        right.severity.cmp(&left.severity).then(impact(right).total_cmp(&impact(left)))
    });
    for finding in all {
        let place = finding.node.clone().or(finding.host.clone());
        let same = merged.iter_mut().find(|other| {
            let other_place = other.node.clone().or(other.host.clone());
            other.rule == finding.rule
                && place.is_some()
                && other_place != place
                && place.as_ref().is_some_and(|place| !other.also_at.contains(place))
                && kind_of(other) == kind_of(&finding)
        });
        match (same, place) {
            (Some(other), Some(place)) => {
                other.also_at.push(place);
                other.evidence.push(format!("likewise: {}", finding.claim));
                other.windows.extend(finding.windows);
                other.windows.sort();
                other.windows.truncate(crate::rule::WINDOWS_MAX);
            }
            _ => merged.push(finding),
        }
    }
    // Numbers of a rule's findings follow the order in which the rule made them.
    merged.sort_by(|left, right| {
        left.rule
            .cmp(&right.rule)
            .then_with(|| left.id.len().cmp(&right.id.len()))
            .then_with(|| left.id.cmp(&right.id))
    });
    *findings = merged;
}

/// Whether two findings are about the same place, as far as both have one.
fn is_same_place(case: &Case, left: &Finding, right: &Finding) -> bool {
    let host = |finding: &Finding| {
        let of_node = finding.node.as_deref().and_then(|node| case.host_of(node)).map(str::to_string);
        finding.host.clone().or(of_node)
    };
    match (&left.node, &right.node) {
        (Some(left), Some(right)) => left == right,
        _ => match (host(left), host(right)) {
            (Some(left), Some(right)) => left == right,
            _ => true,
        },
    }
}

/// Whether a cause shows on other nodes than its own. Sessions in a deadlock over several nodes wait for a row on each of them; it is reported by the one
/// that finds it.
fn is_seen_elsewhere(cause: &Finding, symptom: &Finding) -> bool {
    let is_row_wait = ["DIST-06", "LCK-01"].contains(&symptom.rule.as_str());
    SEEN_ELSEWHERE.contains(&cause.rule.as_str()) || cause.numbers.contains_key(OVER_NODES) && is_row_wait
}

fn under_their_causes(case: &Case, findings: &mut [Finding]) {
    let mut found: Vec<(usize, usize)> = vec![];
    for (cause_rule, symptoms) in CAUSES {
        for cause in 0..findings.len() {
            // A symptom is no cause, and a condition that costs nothing explains nothing.
            let is_cause = findings[cause].rule == *cause_rule
                && findings[cause].severity > Severity::Low
                && !found.iter().any(|(_, symptom)| *symptom == cause);
            if !is_cause {
                continue;
            }
            for symptom in 0..findings.len() {
                let fits = symptoms.contains(&findings[symptom].rule.as_str())
                    && is_its(&findings[cause], &findings[symptom])
                    && !found.iter().any(|(_, other)| *other == symptom)
                    // One that has symptoms of its own stays: two levels are enough.
                    && !found.iter().any(|(other, _)| *other == symptom)
                    && (is_seen_elsewhere(&findings[cause], &findings[symptom])
                        || is_same_place(case, &findings[cause], &findings[symptom]));
                if fits {
                    found.push((cause, symptom));
                }
            }
        }
    }
    for (cause, symptom) in found {
        let (id, severity) = (findings[cause].id.clone(), findings[cause].severity);
        findings[symptom].severity = findings[symptom].severity.min(severity);
        findings[symptom].symptom_of = Some(id);
    }
}

/// Causes of one statement's plan by name, which lie in a table or in a setting, so that other statements suffer as well.
const OF_ALL_STATEMENTS: [&str; 7] =
    ["PLAN-02", "PLAN-05", "PLAN-07", "PLAN-08", "PLAN-09", "PLAN-61", "PLAN-75"];

/// The statement that a finding is about.
fn statement_of(finding: &Finding) -> Option<&str> {
    finding.evidence.iter().find_map(|sentence| sentence.strip_prefix("the statement: "))
}

/// Whether the two are about different statements, of which the one is not run inside of the other.
fn is_of_another_statement(cause: &Finding, symptom: &Finding) -> bool {
    let is_of_one = cause.rule.starts_with("PLAN-") && !OF_ALL_STATEMENTS.contains(&cause.rule.as_str());
    let (Some(own), Some(other)) = (statement_of(cause), statement_of(symptom)) else { return false };
    let is_inside = |inner: &str, outer: &str| inner.contains(&format!("(inside of: {outer}"));
    is_of_one && own != other && !is_inside(own, other) && !is_inside(other, own)
}

/// Whether a finding names the default partition of another one, or the table whose partition it is.
fn is_about(cause: &Finding, symptom: &Finding) -> bool {
    let named =
        cause.claim.split(" is in ").nth(1).and_then(|rest| rest.split_once(", the default partition of "));
    let tables = named.map(|(part, rest)| [part, rest.split(',').next().unwrap_or(rest)]);
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let claim = &symptom.claim;
    let is_named =
        |table: &&str| claim.match_indices(*table).any(|(at, _)| is_end(&claim[at + table.len()..]));
    tables.is_some_and(|tables| tables.iter().any(is_named))
}

/// Whether a finding can be a symptom of this cause: sessions behind another transaction than one of the engine's have a cause of their own, and so has a
/// statement that walks over living rows.
fn is_its(cause: &Finding, symptom: &Finding) -> bool {
    let only_with = |number: &str| symptom.numbers.contains_key(number);
    if is_of_another_statement(cause, symptom) {
        return false;
    }
    match (cause.rule.as_str(), symptom.rule.as_str()) {
        ("REP-13", "LCK-01") => only_with(ENGINES),
        ("SES-01", symptom) if symptom != "SES-06" => cause.numbers.contains_key(BY_STATEMENT),
        ("SES-13", _) => cause.numbers.contains_key("pools_waiting"),
        // Rows before the page, and what a policy asks of each row, are what the walk touches.
        // So are those that have a partner.
        (
            "PLAN-58" | "PLAN-65" | "PLAN-67" | "PLAN-70" | "PLAN-73" | "PLAN-74" | "PLAN-77" | "PLAN-84"
            | "PLAN-85",
            "PLAN-27",
        ) => true,
        (_, "PLAN-27") => only_with(DEAD_ROWS),
        // Other tables have causes of their own.
        ("PLAN-86", "PLAN-01" | "PLAN-10" | "PLAN-45" | "PLAN-62" | "PLAN-24" | "PLAN-06") => {
            is_about(cause, symptom)
        }
        // A statement that is planned poorly for its price lacks no index.
        ("CFG-01", "PLAN-01") => cause.numbers.contains_key("blocks_per_call"),
        // Those that wait so shortly have no other reason to fail than the limit.
        ("TXN-13", "DIST-06") => cause.numbers.contains_key(GIVES_UP_EARLY),
        ("PLAN-02", "PLAN-01") => cause.numbers.contains_key(OWN_LIMIT),
        _ => true,
    }
}

/// Why "nothing found" would prove little here, and what to do first.
fn blind(case: &Case, findings: &Findings) -> Vec<String> {
    let mut reasons = vec![];
    let is_refused = |gap: &&Missing| gap.why.contains(MORE_THAN_READ);
    reasons.extend(
        case.gaps.iter().filter(is_refused).map(|gap| format!("{}: no {}: {}", gap.node, gap.what, gap.why)),
    );
    for (what, words) in FIRST_AID {
        let gaps = case.gaps.iter().filter(|gap| gap.what == *what && !is_refused(gap));
        let places: BTreeSet<&str> = gaps.map(|gap| gap.node.as_str()).collect();
        if !places.is_empty() {
            reasons.push(format!("{}: {words}", places.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    for gap in case.gaps.iter().filter(|gap| gap.what == "server") {
        reasons.push(format!("{}: the server could not be queried at the end: {}", gap.node, gap.why));
    }
    let holes = findings.findings.iter().filter(|finding| finding.rule == "OBS-01");
    reasons.extend(
        holes
            .filter(|hole| hole.severity > Severity::Low || hole.numbers.contains_key("coverage"))
            .map(|hole| hole.claim.clone()),
    );
    reasons
}

/// Large parts of each node's time that no finding there explains.
fn uncovered(case: &Case, findings: &[Finding]) -> Vec<Uncovered> {
    let mut left = vec![];
    for time in node_time::all(case).iter().filter(|time| !time.is_idle()) {
        let here = |finding: &&Finding| {
            let is_other = finding
                .node
                .as_ref()
                .is_some_and(|node| *node != time.node && !finding.also_at.contains(&time.node));
            let host = case.host_of(&time.node);
            !is_other
                && (finding.node.is_some() || finding.host.as_deref().is_none_or(|other| host == Some(other)))
        };
        let rules: BTreeSet<&str> = findings
            .iter()
            .filter(here)
            .filter(|finding| finding.severity > Severity::Note || finding.numbers.contains_key(BY_DESIGN))
            .map(|finding| finding.rule.as_str())
            .collect();
        for part in &time.parts {
            let Some(slice) = SLICES.iter().find(|slice| slice.part == part.name) else { continue };
            let is_large = part.share >= SLICE_SHARE_MIN && part.sessions >= SLICE_ANY_MIN
                || slice.is_wait && part.sessions > SLICE_SESSIONS_MIN;
            if !is_large || slice.rules().any(|rule| rules.contains(rule)) {
                continue;
            }
            let events: Vec<String> = part
                .events
                .iter()
                .map(|(event, share)| format!("{event} {}", units::percent(*share)))
                .collect();
            let seen = if events.is_empty() { String::new() } else { format!(" ({})", events.join(", ")) };
            left.push(Uncovered {
                node: time.node.clone(),
                slice: part.name.clone(),
                sessions: part.sessions,
                share: part.share,
                look_at: format!("{}{seen}", slice.look_at(case, time)),
                commands: slice.commands.iter().map(|command| (*command).to_string()).collect(),
            });
        }
    }
    of_all_nodes(left)
}

/// The same slice of several nodes is one line: that of the node where it is largest.
fn of_all_nodes(mut all: Vec<Uncovered>) -> Vec<Uncovered> {
    let order: Vec<String> = all.iter().map(|left| left.slice.clone()).collect();
    all.sort_by(|left, right| right.share.total_cmp(&left.share));
    let mut merged: Vec<Uncovered> = vec![];
    for left in all {
        match merged.iter_mut().find(|other| other.slice == left.slice) {
            Some(other) => {
                let also = format!("; likewise at {} ({})", left.node, units::percent(left.share));
                other.look_at.push_str(&also);
            }
            None => merged.push(left),
        }
    }
    merged.sort_by_key(|left| order.iter().position(|slice| *slice == left.slice));
    merged
}

/// The answer about the target.
fn health(case: &Case, findings: &Findings) -> Health {
    let of_target = |finding: &&Finding| {
        !NOT_OF_TARGET.iter().any(|rule| finding.rule.starts_with(rule))
            || finding.numbers.contains_key("gone_us")
    };
    let worst = findings.findings.iter().filter(of_target).map(|finding| finding.severity).max();
    let is_waiting = |left: &&Uncovered| SLICES.iter().any(|slice| slice.part == left.slice && slice.is_wait);
    let mut waits: BTreeMap<&str, f64> = BTreeMap::new();
    for left in findings.uncovered.iter().filter(is_waiting) {
        *waits.entry(&left.node).or_default() += left.share;
    }
    match worst {
        Some(Severity::Medium | Severity::High) => Health::Troubled,
        _ if case.nodes().is_empty() || !findings.blind.is_empty() => Health::CannotTell,
        Some(Severity::Low) => Health::Minor,
        _ if waits.values().any(|share| *share >= UNCOVERED_SHARE_MIN) => Health::NotCovered,
        _ => Health::Clear,
    }
}

#[cfg(test)]
mod tests;
