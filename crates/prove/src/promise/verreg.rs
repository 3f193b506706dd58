//! The verdict of a random history: a level that is not refuted is kept, and one that is refuted is broken unless the engine allows each of the anomalies.

use connect::cluster_file::Role;
use engines::profile::{Anomaly, Rule};
use record::promise::{Control, Promise, Reading, Standing, bound};
use serde_json::{Map, Value, json};

use super::settings::Excuse;
use super::{Settings, Span, bound_by, explain_missing, faults_of, rule};
use crate::check::{Base, Class, Order};
use crate::fault::Site;
use crate::history::Outcome;
use crate::live::Isolation;
use crate::live::verreg::{Report, anomalies, base_of, ordered};

/// The column of an engine's profile that an anomaly belongs to.
fn column(class: Class) -> Anomaly {
    match class {
        Class::FracturedStatement => Anomaly::FracturedRead,
        Class::StatementFork | Class::LongFork => Anomaly::LongFork,
        Class::NonMonotonicView | Class::NonRepeatableRead | Class::FracturedRead | Class::ReadSkew => {
            Anomaly::ReadSkew
        }
        Class::LostUpdate => Anomaly::LostUpdate,
        Class::WriteSkew => Anomaly::WriteSkew,
        Class::Garbage
        | Class::AmbiguousWrite
        | Class::DuplicateElement
        // Counting up is one statement, and locks the row at every level.
        | Class::DuplicateVersion
        | Class::Internal
        | Class::FutureRead
        | Class::DirtyWrite
        | Class::AbortedRead
        | Class::DirtyUpdate
        | Class::IntermediateRead
        | Class::ReorderedWrites
        | Class::IncompatibleOrder
        | Class::CircularFlow => Anomaly::DirtyOrCircular,
    }
}

/// The columns that a level promises something about: where all of them are forbidden, the engine promises the level.
fn columns(level: Isolation) -> &'static [Anomaly] {
    const ALL: [Anomaly; 6] = [
        Anomaly::DirtyOrCircular,
        Anomaly::FracturedRead,
        Anomaly::LongFork,
        Anomaly::ReadSkew,
        Anomaly::LostUpdate,
        Anomaly::WriteSkew,
    ];
    match level {
        Isolation::ReadCommitted => &ALL[..3],
        Isolation::RepeatableRead => &ALL[..5],
        Isolation::Serializable => &ALL,
    }
}

/// What decides about an anomaly.
#[derive(Clone)]
struct Criteria<'a> {
    site: &'a Site,
    settings: &'a Settings,
    level: Isolation,
    /// Why acknowledged transactions may be gone after the faults that happened.
    excuse: Option<Excuse>,
}

impl Criteria<'_> {
    fn rule(&self, anomaly: Anomaly) -> Rule {
        rule(self.site, self.settings, Span::Everywhere, self.level, anomaly)
    }

    /// Of a reading that misses what had been acknowledged.
    fn late(&self) -> Rule {
        if self.excuse.is_some() { Rule::Allowed } else { self.rule(Anomaly::StaleRead) }
    }
}

/// Whether one anomaly is a violation. `is_ordered`: it needs the order of sessions or of time.
fn judge(criteria: &Criteria<'_>, class: Class, is_ordered: bool) -> Rule {
    let site = criteria.site;
    let of = |anomaly: Anomaly| criteria.rule(anomaly);
    let peers = site.nodes.iter().filter(|node| node.role == Role::Peer).count();
    // Where a later write overwrites an acknowledged one there is no order of versions, and whatever contradicts one is the same anomaly. What no transaction
    // has committed, or finished, is not.
    let needs_order = !matches!(
        class,
        Class::Garbage
            | Class::AmbiguousWrite
            | Class::DuplicateElement
            | Class::Internal
            | Class::FutureRead
            | Class::AbortedRead
            | Class::IntermediateRead
    );
    if peers > 1 && site.engine.layout.has_unresolved_conflicts() && needs_order {
        return of(Anomaly::LostUpdate);
    }
    // The same where a setting lets a crash take acknowledged transactions away: versions are counted again.
    if criteria.excuse.is_some() && needs_order {
        return Rule::Allowed;
    }
    let plain = match column(class) {
        // A fork between nodes without a common snapshot is read skew seen twice.
        Anomaly::LongFork if of(Anomaly::ReadSkew) == Rule::Allowed && site.nodes.len() > 1 => Rule::Allowed,
        anomaly => of(anomaly),
    };
    match column(class) {
        _ if !is_ordered || plain != Rule::Forbidden => plain,
        // What a transaction reads of one that had not begun when it ended would be a message from the future.
        Anomaly::DirtyOrCircular => plain,
        _ => criteria.late(),
    }
}

/// What a level comes to: without an order, as far as two nodes show writes in one order, and in the order of sessions and of real time. Each contains what
/// stands before it, so none is better than that.
pub fn verreg(
    site: &Site,
    report: &Report,
    settings: &Settings,
    workload: &str,
    place: &str,
) -> Vec<Promise> {
    let setting = [place, report.level.name()]
        .into_iter()
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let (fault, faults) = faults_of(&report.happened);
    let has_standbys = super::has_standbys(site);
    let excuse = settings.excuse(&faults, has_standbys, &report.observed);
    let criteria = Criteria { site, settings, level: report.level, excuse };
    let base = Promise {
        workload: workload.to_owned(),
        setting,
        fault,
        n: report.outcomes.ok + report.outcomes.ok_weak,
        unit: "acknowledged transactions".to_owned(),
        reading: Reading::Answers,
        ..Promise::default()
    };
    let mut promises = Vec::new();
    if report.entries.len() > 1 {
        promises.push(of_fork(&criteria, report, &base));
    }
    for is_ordered in [false, true] {
        let mut promise = of_level(&criteria, report, &base, is_ordered);
        if let Some(weaker) = promises.last() {
            bound_by(&mut promise, weaker);
        }
        promises.push(promise);
    }
    for promise in &mut promises {
        explain_missing(promise, &report.happened);
        if promise.standing == Standing::NotTested && !report.unshown.is_empty() {
            promise.change = super::least::ALL_ANSWER.to_owned();
        }
    }
    super::least::doubt(&mut promises, &report.failures);
    // The level itself comes first.
    if promises.len() > 2 {
        promises.swap(0, 1);
    }
    promises
}

/// The long fork, where there are two nodes to show one.
fn of_fork(criteria: &Criteria<'_>, report: &Report, base: &Promise) -> Promise {
    let site = criteria.site;
    let is_fork = |class: Class| matches!(class, Class::LongFork | Class::StatementFork);
    let seen: u64 = anomalies(&report.report, base_of(report.level), false)
        .iter()
        .filter(|(class, _)| is_fork(*class))
        .map(|(_, count)| count)
        .sum();
    let class = match report.level {
        Isolation::ReadCommitted => Class::StatementFork,
        _ => Class::LongFork,
    };
    let is_blind = report.shown.is_none_or(|shown| !shown.fork);
    let rules = [(class, judge(criteria, class, false))];
    let (standing, why) = match (rules[0].1, seen) {
        _ if base.n == 0 => (Standing::NotTested, "no transaction was acknowledged".to_owned()),
        (Rule::Forbidden, 1..) => (Standing::Broken, format!("{} promises one order", site.engine.title)),
        (_, 1..) => (Standing::ByDesign, reason(criteria, &rules[0])),
        _ if is_blind => (Standing::NotTested, blind(report, "a fork")),
        (Rule::Forbidden, 0) => (Standing::Kept, "commits become visible in one order".to_owned()),
        (_, 0) => (Standing::AllowedNotSeen, reason(criteria, &rules[0])),
    };
    Promise {
        promise: "all nodes show writes in one order: no long fork".to_owned(),
        standing,
        seen,
        bound: bound_of(standing, base.n),
        control: Some(Control {
            what: format!(
                "a read on {} that combines the state before one write with the state after the next",
                report.entries.last().map_or("another node", String::as_str)
            ),
            n: 1,
            seen: u64::from(!is_blind),
        }),
        witness: match seen {
            0 => Vec::new(),
            _ => witness(report, base_of(report.level), false, &is_fork),
        },
        why,
        change: change_of(standing, criteria, &rules),
        ..base.clone()
    }
}

/// The level, without an order or with that of sessions and of real time.
fn of_level(criteria: &Criteria<'_>, report: &Report, base: &Promise, is_ordered: bool) -> Promise {
    let found = anomalies(&report.report, base_of(report.level), is_ordered);
    let seen: u64 = match is_ordered {
        false => found.iter().map(|(_, count)| count).sum(),
        true => ordered(&report.report, report.level, report.late.as_ref()),
    };
    let mut rules: Vec<(Class, Rule)> = found
        .iter()
        .map(|(class, _)| match judge(criteria, *class, is_ordered) {
            // Half of a transaction that was refused in part is a torn commit, whatever it looks like.
            Rule::Forbidden if is_torn(report, *class, is_ordered) => {
                (*class, criteria.rule(Anomaly::TornCommit))
            }
            rule => (*class, rule),
        })
        .collect();
    let late = report.late.as_ref().filter(|late| is_ordered && late.late > 0);
    if late.is_some() {
        // One statement that is late: seen by itself it is read skew with real time.
        rules.push((Class::ReadSkew, criteria.late()));
    }
    let broken = rules.iter().find(|(_, rule)| *rule == Rule::Forbidden).map(|(class, _)| *class);
    let (standing, why) = standing(criteria, report, base.n, &rules, is_ordered);
    let mut lines = witness(report, base_of(report.level), is_ordered, &|class| {
        broken.is_none_or(|broken| class == broken)
    });
    if lines.is_empty() {
        lines = late.map(|late| late.witness.clone()).unwrap_or_default();
    }
    Promise {
        promise: match is_ordered {
            false => format!("random transactions do not refute {}", report.level),
            true => {
                format!(
                    "{} in the order of sessions and of real time: earlier commits are visible",
                    report.level
                )
            }
        },
        standing,
        seen,
        bound: bound_of(standing, base.n),
        control: if is_ordered { late_control(report) } else { control(report) },
        witness: lines,
        why,
        change: change_of(standing, criteria, &rules),
        figures: if is_ordered { late_figures(report) } else { figures(report) },
        ..base.clone()
    }
}

/// With nothing seen, a number bounds what was not.
fn bound_of(standing: Standing, n: u64) -> Option<f64> {
    if matches!(standing, Standing::Kept | Standing::AllowedNotSeen) { bound(n) } else { None }
}

fn change_of(standing: Standing, criteria: &Criteria<'_>, rules: &[(Class, Rule)]) -> String {
    match standing {
        Standing::Broken | Standing::ByDesign | Standing::AllowedNotSeen => {
            change(criteria, rules).to_owned()
        }
        _ => String::new(),
    }
}

/// Whether every witness of a class has a transaction in it of which a part may be committed.
fn is_torn(report: &Report, class: Class, is_ordered: bool) -> bool {
    let partial = format!("-- {}", Outcome::Partial.name());
    let mut witnesses = report.report.witnesses.iter().filter(|witness| {
        witness.finding.class == class && (witness.finding.order != Order::Data) == is_ordered
    });
    witnesses.all(|witness| witness.text.iter().any(|line| line.contains(&partial)))
}

fn control(report: &Report) -> Option<Control> {
    match (&report.control, report.planted) {
        (Some((level, n, seen)), _) => {
            Some(Control { what: format!("the same load at {level}"), n: *n, seen: *seen })
        }
        (None, Some(found)) => Some(Control {
            what: "an anomaly planted into the same history".to_owned(),
            n: 1,
            seen: u64::from(found),
        }),
        (None, None) => None,
    }
}

/// The control of the order of real time is its own: a reading that any server shows late.
fn late_control(report: &Report) -> Option<Control> {
    let shown = report.shown.map(|shown| shown.late);
    if shown.is_none() && report.planted_late.is_none() {
        return None;
    }
    let looks = [shown, report.planted_late];
    Some(Control {
        what: "a snapshot from before a write, read after its acknowledgement; and one planted into the same history".to_owned(),
        n: looks.iter().flatten().count() as u64,
        seen: looks.iter().flatten().filter(|found| **found).count() as u64,
    })
}

fn blind(report: &Report, what: &str) -> String {
    match report.unshown.as_str() {
        "" => format!("{what} made on purpose was not found, so a zero proves nothing"),
        why => format!("{what} could not be made on purpose: {why}"),
    }
}

/// Why something may be seen.
fn reason(criteria: &Criteria<'_>, (class, rule): &(Class, Rule)) -> String {
    if let Some(excuse) = &criteria.excuse {
        return format!("{}: {}", class.description(), excuse.why);
    }
    let allowed = if *rule == Rule::Allowed { "allows it" } else { "promises nothing about it" };
    let why = criteria.site.engine.reasons.order;
    format!("{}, and the engine {allowed}: {why}", class.description())
}

fn standing(
    criteria: &Criteria<'_>,
    report: &Report,
    acknowledged: u64,
    rules: &[(Class, Rule)],
    is_ordered: bool,
) -> (Standing, String) {
    if let Some((class, _)) = rules.iter().find(|(_, rule)| *rule == Rule::Forbidden) {
        let title = criteria.site.engine.title;
        return (Standing::Broken, format!("{title} does not allow that {}", class.description()));
    }
    if let Some(first) = rules.first() {
        return (Standing::ByDesign, reason(criteria, first));
    }
    if acknowledged == 0 {
        return (Standing::NotTested, "no transaction was acknowledged".to_owned());
    }
    if is_ordered {
        if report.shown.is_none_or(|shown| !shown.late) || report.planted_late == Some(false) {
            return (Standing::NotTested, blind(report, "a late reading"));
        }
    } else if report.planted == Some(false) {
        return (
            Standing::NotTested,
            "an anomaly that was planted was not found: the history proves nothing".to_owned(),
        );
    } else if report.control.as_ref().is_some_and(|(_, _, seen)| *seen == 0) {
        let why = "the same load showed nothing at the weaker level either: too few transactions overlapped";
        return (Standing::NotTested, why.to_owned());
    }
    let of = |anomaly: Anomaly| criteria.rule(anomaly);
    let is_promised = match is_ordered {
        true => of(Anomaly::StaleRead) == Rule::Forbidden,
        false => columns(report.level).iter().all(|anomaly| of(*anomaly) == Rule::Forbidden),
    };
    let why = format!("not refuted by {acknowledged} transactions; a history never proves a level");
    match is_promised {
        true => (Standing::Kept, why),
        false => (Standing::AllowedNotSeen, format!("{why}, and the engine does not promise this one here")),
    }
}

/// The shortest one of the worst kind.
fn witness(report: &Report, base: Base, is_ordered: bool, is_wanted: &dyn Fn(Class) -> bool) -> Vec<String> {
    let fits = |witness: &&crate::check::Witness| {
        (witness.finding.order != Order::Data) == is_ordered
            && witness.finding.refutes().any(|level| level.base.is_implied_by(base))
            && is_wanted(witness.finding.class)
    };
    let chosen = report
        .report
        .witnesses
        .iter()
        .filter(fits)
        .min_by_key(|witness| (witness.finding.class, witness.text.len()));
    chosen.map(|witness| witness.text.clone()).unwrap_or_default()
}

fn change(criteria: &Criteria<'_>, rules: &[(Class, Rule)]) -> &'static str {
    if rules.iter().any(|(_, rule)| *rule == Rule::Forbidden) {
        return "check whether a pooler, a proxy or a setting interferes, then report it with the history";
    }
    criteria.excuse.as_ref().map_or(criteria.site.engine.reasons.order_change, |excuse| excuse.change)
}

fn late_figures(report: &Report) -> Map<String, Value> {
    super::figures(json!({
        "late_readings": report.late.as_ref().map(|late| late.late),
        "readings": report.late.as_ref().map(|late| late.reads),
        "planted_found": report.planted_late,
    }))
}

fn figures(report: &Report) -> Map<String, Value> {
    let outcomes = report.outcomes;
    let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    super::figures(json!({
        "entries": report.entries.join(", "),
        "operations": report.report.ops,
        "acknowledged": outcomes.ok,
        "acknowledged_with_warning": outcomes.ok_weak,
        "failed": outcomes.fail,
        "unanswered": outcomes.info,
        "refused_perhaps_in_part": outcomes.partial,
        "joined_because_seen": report.report.joined,
        "share_fresh": share(report.fresh[0], report.fresh[1]),
        "not_written_down": (report.unwritten > 0).then_some(report.unwritten),
        "history_bytes": report.bytes,
        "planted_found": report.planted,
        "anomalies": (!report.report.counts.is_empty()).then(|| json!(report.report.counts)),
        "refuted": report.report.weakest_refuted().iter().map(|level| level.name()).collect::<Vec<_>>().join(", "),
        "not_refuted": report.report.strongest_left().iter().map(|level| level.name()).collect::<Vec<_>>().join(", "),
    }))
}

#[cfg(test)]
mod tests;
