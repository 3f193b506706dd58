//! One story out of many claims: what each finding costs and what its remedy would save, which findings are symptoms of others, which are the same on
//! several nodes, and which large slices of the time no finding explains.
//!
//! Rules look at their own condition only. What connects them is here, as tables.

mod causes;
mod cost;
mod databases;
mod slices;
mod unplanned;

use crate::case::Case;
use crate::node_time;
use crate::rules::applied::held::HOLDER;
use crate::rules::failing::{AUTH_DELAY, GIVES_UP_EARLY, IDS_LEFT};
use crate::rules::generator::deadlock::OVER_NODES;
use crate::rules::lock::{BY_DESIGN, ENGINES};
use crate::rules::memory::BY_SIGNAL;
use crate::rules::observer::CPUS_FULL;
use crate::rules::plan::{AMONG_PARTITIONS, FOR_EACH_ROW};
use crate::rules::profile::CHECKS_KEYS;
use crate::rules::profile::SLOW_PASSWORDS;
use crate::rules::statement::BY_STATEMENT;
use crate::rules::statement::{OWN_LIMIT, WHOLE_FUNCTION};
use crate::rules::vacuum::RUNNING;
use crate::rules::waiting::outside::always_at_work;
use crate::rules::waste::DEAD_ROWS;
use crate::units;
use causes::CAUSES;
use record::Findings;
use record::finding::{Finding, GENERAL, Health, Severity, Uncovered};
use record::watched::{MORE_THAN_READ, Missing};
use slices::SLICES;
use std::collections::{BTreeMap, BTreeSet};

/// A slice of the time that needs an answer: this share of it ...
const SLICE_SHARE_MIN: f64 = 0.1;
/// ... or so many sessions that wait.
const SLICE_SESSIONS_MIN: f64 = 1.0;
/// Waits that no rule explains are the answer from this share of a node's time on: every commit waits for its flush, and that alone is no trouble.
const UNCOVERED_SHARE_MIN: f64 = 0.5;
/// A share of fewer sessions than this is a share of nothing.
const SLICE_ANY_MIN: f64 = 0.1;

/// What is reported as missing where a pooler is there and its console cannot be read.
const POOLS: &str = "pools";

/// Causes on one node whose symptoms show on others: a standby's on its primary, that of a node which is away on the rest of its cluster.
const SEEN_ELSEWHERE: [&str; 4] = ["REP-10", "REP-12", "REP-13", "REP-20"];

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
        cost::weigh(case, finding);
    }
    special_before_general(&mut findings.findings);
    databases::name_them(case, &mut findings.findings);
    one_of_many_nodes(&mut findings.findings);
    under_their_causes(case, &mut findings.findings);
    findings.blind = blind(case, findings);
    findings.uncovered = uncovered(case, &findings.findings);
    findings.health = health(case, findings);
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
                    && (is_seen_elsewhere(&findings[cause], &findings[symptom])
                        || is_same_place(case, &findings[cause], &findings[symptom]));
                if fits {
                    // The symptoms of a symptom are those of its cause: two levels are enough.
                    found.iter_mut().filter(|pair| pair.0 == symptom).for_each(|pair| pair.0 = cause);
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

/// Symptoms that only one kind of setting has: a part of its name.
const OF_SETTINGS: [(&[&str], &[&str]); 5] = [
    (&["TXN-01", "WAL-11", "WAL-14", "TXN-03", "IO-09"], &["wal_consistency_checking"]),
    (&["PLAN-23"], &["parallel", "post_auth_delay"]),
    // Workers that come and go look like other programs.
    (&["SES-02"], &["parallel"]),
    (&["SES-01"], &["_auth_delay", "exit_on_error"]),
    (&["SES-14"], &["_auth_delay"]),
];

/// Settings that make nothing slow but what is listed for them.
const WITHOUT_OTHERS: [&str; 5] = ["auto_explain", "trace_sort", "_auth_delay", "exit_on_error", "jit_d"];

/// Whether a symptom can be that of the setting which a finding of CFG-01 is about.
fn is_of_setting(cause: &Finding, symptom: &str) -> bool {
    let of = OF_SETTINGS.iter().find(|(symptoms, _)| symptoms.contains(&symptom));
    let is_any = |all: &[&str]| all.iter().any(|setting| cause.claim.contains(setting));
    of.map_or(!is_any(&WITHOUT_OTHERS), |(_, settings)| is_any(settings))
}

/// Whether a symptom names the table that a cause names behind these words.
fn names_table_of(cause: &Finding, words: &str, symptom: &Finding) -> bool {
    let table = cause.claim.split(words).nth(1).and_then(|rest| rest.split([' ', ',']).next());
    table.is_some_and(|table| symptom.claim.contains(table))
}

/// Whether a finding is about a slot that a function holds only while it decodes, or about the rows that such a function returns.
fn is_of_decoding(symptom: &Finding) -> bool {
    match symptom.rule.as_str() {
        "REP-03" => symptom.claim.contains("at some looks and away at others"),
        "PLAN-33" => symptom.evidence.iter().any(|sentence| sentence.contains("pg_logical_slot_")),
        _ => true,
    }
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
        ("VAC-07", _) => cause.numbers.contains_key(RUNNING),
        // A function holds the slot only while it decodes.
        ("REP-14", _) => is_of_decoding(symptom),
        // The same session.
        ("REP-20", "LCK-01" | "LCK-04") => {
            let holder = cause.numbers.get(HOLDER).copied().unwrap_or(-1.0);
            symptom.claim.contains(&format!("session {holder:.0} "))
        }
        // Only where the server had to wait for a CPU.
        ("SES-02", "OBS-01") => only_with(CPUS_FULL),
        // Else the password of each connection is what its opening costs.
        ("SES-16", "SES-01") => cause.numbers.contains_key(SLOW_PASSWORDS),
        ("SES-01", symptom) if !["SES-06", "SES-16"].contains(&symptom) => {
            cause.numbers.contains_key(BY_STATEMENT)
        }
        ("SES-13", _) => cause.numbers.contains_key("pools_waiting"),
        // Rows before the page, and what a policy asks of each row, are what the walk touches.
        // So are those that have a partner.
        (
            "PLAN-58" | "PLAN-65" | "PLAN-67" | "PLAN-70" | "PLAN-73" | "PLAN-74" | "PLAN-77" | "PLAN-84"
            | "PLAN-85",
            "PLAN-27",
        ) => true,
        // What is computed for each row that fits is not in the order of an index.
        ("PLAN-24", "PLAN-27") => cause.numbers.contains_key(FOR_EACH_ROW),
        (_, "PLAN-27") => only_with(DEAD_ROWS),
        // Other tables have causes of their own.
        ("PLAN-86", "PLAN-01" | "PLAN-10" | "PLAN-45" | "PLAN-62" | "PLAN-24" | "PLAN-06") => {
            is_about(cause, symptom)
        }
        // Without vacuum each table is full of what was deleted.
        ("CFG-01", "PLAN-88") => cause.claim.contains("track_counts is off"),
        // A statement that is planned poorly for its price lacks no index.
        // The table whose vacuum makes way for each of them.
        ("VAC-12", _) => names_table_of(cause, "autovacuum of ", symptom),
        ("CFG-01", "PLAN-01") => {
            cause.numbers.contains_key("blocks_per_call") && is_of_setting(cause, "PLAN-01")
        }
        ("CFG-01", symptom) => is_of_setting(cause, symptom),
        // Those that wait so shortly have no other reason to fail than the limit.
        ("VAC-05", "TXN-13") => only_with(IDS_LEFT),
        // The server's log has the signal, and the kernel the group whose limit it was.
        ("MEM-05", "MEM-02") => symptom.claim.starts_with(BY_SIGNAL),
        // Failed logins that are kept waiting are what hangs, and what takes the connections.
        ("TXN-13", "SES-14" | "SES-04") => cause.claim.contains(AUTH_DELAY),
        // The table to which no worker comes.
        ("VAC-03", _) => names_table_of(cause, "none gets to ", symptom),
        ("TXN-13", "DIST-06") => cause.numbers.contains_key(GIVES_UP_EARLY),
        ("REP-09", "OBS-01") => {
            symptom.evidence.iter().any(|sentence| sentence.contains("conflict with recovery"))
        }
        ("PLAN-11", "PLAN-09" | "PLAN-15") => {
            let whole = cause.claim.split(AMONG_PARTITIONS).nth(1).and_then(|rest| rest.split(',').next());
            whole.is_some_and(|whole| symptom.claim.contains(whole))
        }
        ("PLAN-07", "PLAN-96") => symptom.claim.contains(CHECKS_KEYS),
        ("PLAN-01", "PLAN-02") => cause.numbers.contains_key(WHOLE_FUNCTION),
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
    reasons.extend(case.gaps.iter().filter_map(|gap| behind_a_pooler(case, gap)));
    reasons.extend(unplanned::lines(case, node_time::all(case)));
    let holes = findings.findings.iter().filter(|finding| finding.rule == "OBS-01");
    reasons.extend(
        holes
            .filter(|hole| hole.severity > Severity::Low || hole.numbers.contains_key("coverage"))
            .map(|hole| hole.claim.clone()),
    );
    reasons
}

/// What a pooler may hide whose console could not be read: of a pool that is too small the server sees few sessions that are always at work.
fn behind_a_pooler(case: &Case, gap: &Missing) -> Option<String> {
    // Where its clients could be counted, a rule has judged them.
    let is_counted = || case.at("pooler", &gap.node).any(|pooler| pooler.lines.last("size").is_some());
    let (all, _) = always_at_work(case, &gap.node).filter(|_| gap.what == POOLS && !is_counted())?;
    Some(format!(
        "{}: all {} sessions are always at work, and whether more clients wait for them in a pooler is not known: {}",
        gap.node,
        units::short(all),
        gap.why
    ))
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
