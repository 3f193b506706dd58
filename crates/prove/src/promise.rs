//! From the observations of a workload to the verdict on a promise: the engine's rule decides whether an anomaly is a violation or known,
//! and every line reports what to change.
//!
//! The profile of an engine (`engines::profile`) has its promises for each level; this module has the settings that weaken them.

mod failover;
mod heartbeat;
mod hermitage;
mod least;
mod possible;
mod repeat;
mod settings;
mod verreg;
mod wide;

pub use engines::profile::Rule;
pub use heartbeat::heartbeat;
pub use hermitage::hermitage;
pub use possible::not_possible;
pub use repeat::together;
pub use settings::{Settings, Span, rule};
pub use verreg::verreg;
pub(crate) use wide::ROUND_TRIPS_OFF_MAX;
pub use wide::wide;

use connect::cluster_file::Role;
use engines::profile::{Anomaly, Case};
use record::promise::{Control, Promise, Reading, Standing, bound};
use serde_json::{Map, Value, json};

use crate::fault::{Fault, Happened, Plan, Site};
use crate::live::conflict::ConflictResults;
use crate::live::servers::Observed;
use crate::live::{Isolation, ack, bank, conflict, skew, twin};

fn has_standbys(site: &Site) -> bool {
    site.nodes.iter().any(|node| node.role == Role::Standby)
}

/// The cluster did not come back, or not with what has to be there: after a fault that a setting makes deadly that is known, else it is broken.
pub fn did_not_return(
    workload: &str,
    site: &Site,
    settings: &Settings,
    setting: &str,
    plan: &Plan,
    error: &str,
) -> Promise {
    let faults = plan.faults();
    let excuse = settings.excuse(&faults, has_standbys(site), &Observed::default());
    let words: Vec<&str> = faults.iter().map(|fault| fault.description()).collect();
    Promise {
        workload: workload.to_owned(),
        promise: "the cluster recovers, with its tables".to_owned(),
        setting: setting.to_owned(),
        fault: words.join(", then "),
        standing: if excuse.is_some() { Standing::ByDesign } else { Standing::Broken },
        n: 1,
        unit: "returns".to_owned(),
        seen: 1,
        witness: vec![error.to_owned()],
        why: excuse.as_ref().map_or("crash recovery brings back what was committed", |it| &it.why).to_owned(),
        change: excuse.as_ref().map_or("look at the server's log", |it| it.change).to_owned(),
        ..Promise::default()
    }
}

/// Not tested, for this reason.
pub fn not_tested(workload: &str, setting: &str, plan: &Plan, why: &str, change: &str) -> Promise {
    Promise {
        workload: workload.to_owned(),
        promise: "the observations can be judged".to_owned(),
        setting: setting.to_owned(),
        fault: plan.to_string(),
        standing: Standing::NotTested,
        why: why.to_owned(),
        change: change.to_owned(),
        ..Promise::default()
    }
}

fn figures(value: Value) -> Map<String, Value> {
    match value {
        // Unknown values are absent.
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// The faults that were really injected, as a row of the matrix.
fn faults_of(happened: &[Happened]) -> (String, Vec<Fault>) {
    let done = happened.iter().filter(|one| one.error.is_none());
    let faults: Vec<Fault> = done.filter_map(|one| one.step.fault).collect();
    let words: Vec<&str> = faults.iter().map(|fault| fault.description()).collect();
    (words.join(", then "), faults)
}

/// A promise that is judged by counting.
struct Count<'a> {
    workload: &'a str,
    promise: &'a str,
    setting: &'a str,
    unit: &'a str,
    n: u64,
    seen: u64,
    control: Option<Control>,
    rule: Rule,
    reading: Reading,
    why: (&'a str, &'a str),
    change: &'a str,
}

/// `why` is the text for the case where it is forbidden, and where it is not.
fn counted(count: Count<'_>) -> Promise {
    let blind = count.control.as_ref().is_some_and(|control| control.seen == 0);
    let (standing, why) = match (count.rule, count.seen) {
        (_, 0) if count.n == 0 => (Standing::NotTested, "nothing could be read"),
        (Rule::Forbidden, 0) if blind => {
            (Standing::NotTested, "the control did not show it either: too few transactions overlapped")
        }
        (Rule::Forbidden, 0) => (Standing::Kept, count.why.0),
        (Rule::Forbidden, _) => (Standing::Broken, count.why.0),
        (Rule::Allowed | Rule::Measured, 0) => (Standing::AllowedNotSeen, count.why.1),
        (Rule::Allowed | Rule::Measured, _) => (Standing::ByDesign, count.why.1),
    };
    let is_bad = matches!(standing, Standing::Broken | Standing::ByDesign | Standing::AllowedNotSeen);
    Promise {
        workload: count.workload.to_owned(),
        promise: count.promise.to_owned(),
        setting: count.setting.to_owned(),
        standing,
        n: count.n,
        unit: count.unit.to_owned(),
        reading: count.reading,
        seen: count.seen,
        bound: if count.seen == 0 { bound(count.n) } else { None },
        control: count.control,
        why: why.to_owned(),
        change: if is_bad { count.change.to_owned() } else { String::new() },
        ..Promise::default()
    }
}

/// Durability.
pub fn ack(site: &Site, report: &ack::Report, settings: &Settings, setting: &str) -> Vec<Promise> {
    let found = &report.findings;
    let (fault, faults) = faults_of(&report.happened);
    let excuse = settings.excuse(&faults, has_standbys(site), &report.observed);
    let n = found.acknowledged();
    let control = report.control.map(|shows| Control {
        what: "the reader removes an acknowledged row in its own transaction".to_owned(),
        n: 1,
        seen: u64::from(shows),
    });
    let mut lost = counted(Count {
        workload: "ack",
        promise: "no acknowledged write is lost",
        setting,
        unit: "acknowledged commits",
        n,
        seen: found.lost + found.vanished,
        control,
        rule: if excuse.is_some() { Rule::Allowed } else { Rule::Forbidden },
        reading: Reading::Statements,
        why: (
            "a commit is acknowledged after its WAL is on disk, here and on the standbys that commits wait for",
            excuse.as_ref().map_or("", |it| it.why.as_str()),
        ),
        change: excuse
            .as_ref()
            .map_or("check the node that acknowledged, and the node that replaced it", |it| it.change),
    });
    if let Some(missing) = &report.missing {
        lost.why = format!("{}; nothing could be read at the end ({missing})", lost.why);
    }
    // A setting excuses a tail; a hole in the middle it does not.
    if found.holes > 0 && lost.standing == Standing::ByDesign && settings.fsync != "off" {
        lost.standing = Standing::Broken;
        lost.why = "acknowledged rows are missing although newer ones survived on the same shard: this is not replication lag".to_owned();
    }
    lost.figures = figures(json!({
        "tried": report.tried,
        "acknowledged": found.outcomes.ok,
        "acknowledged_with_warning": found.outcomes.ok_weak,
        "failed": found.outcomes.fail,
        "unanswered": found.outcomes.info,
        "unanswered_committed": found.info_committed,
        "unanswered_absent": found.info_absent,
        "lost": found.lost,
        "lost_after_warning": found.weak_lost,
        "late": found.late,
        "vanished": found.vanished,
        "holes": found.holes,
        "rpo_us": found.rpo_us,
        "rpo_bytes": found.rpo_bytes,
        "replies_dropped": (report.dropped > 0).then_some(report.dropped),
    }));
    let mut torn = torn(site, report, settings, setting);
    let texts = |is_loss: bool| {
        let some = found.witnesses.iter().filter(move |witness| witness.is_loss == is_loss);
        some.map(|witness| witness.text.clone()).collect()
    };
    (lost.witness, torn.witness) = (texts(true), texts(false));
    let mut promises = vec![lost, torn];
    for promise in &mut promises {
        promise.fault.clone_from(&fault);
        explain_missing(promise, &report.happened);
    }
    least::doubt(&mut promises, &report.failures);
    promises
}

/// Whether transactions are there in part, twice, or although they were refused.
fn torn(site: &Site, report: &ack::Report, settings: &Settings, setting: &str) -> Promise {
    let found = &report.findings;
    let level = Isolation::ReadCommitted;
    let torn_rule = rule(site, settings, Span::Entry, level, Anomaly::TornCommit);
    let mut torn = counted(Count {
        workload: "ack",
        promise: "a transaction is present completely and once, or not at all",
        setting,
        unit: "transactions",
        // What was refused is there by mistake at most.
        n: report.tried.saturating_sub(found.outcomes.fail),
        seen: found.torn + found.duplicated + found.risen + found.partial_torn,
        control: report.control_whole.map(|shows| Control {
            what: "the reader removes or duplicates a row of an acknowledged transaction, in its own transaction"
                .to_owned(),
            n: 1,
            seen: u64::from(shows),
        }),
        rule: if found.duplicated + found.risen > 0 { Rule::Forbidden } else { torn_rule },
        reading: Reading::Statements,
        why: (
            "a commit is one record of the log, or a two-phase commit",
            site.engine.reasons.torn_commit,
        ),
        change: match torn_rule {
            Rule::Forbidden => {
                "check the witnesses: a driver or proxy repeats statements, or a coordinator does not finish"
            }
            _ => site.engine.reasons.torn_commit_change,
        },
    });
    torn.figures = figures(json!({
        "wide": report.wide,
        "torn": found.torn,
        "duplicated": found.duplicated,
        "risen": found.risen,
        "refused_but_there_in_part": found.partial_torn,
        "refused_but_there": found.partial_committed,
    }));
    torn
}

/// A fault that was planned and did not happen proves nothing about the promise.
fn explain_missing(promise: &mut Promise, happened: &[Happened]) {
    if let Some(missing) = happened.iter().find(|one| one.error.is_some() && one.step.fault.is_some()) {
        promise.standing = match promise.standing {
            Standing::Kept | Standing::AllowedNotSeen => Standing::NotTested,
            other => other,
        };
        promise.why = missing.to_string();
    }
}

/// Sums over shards.
pub fn bank(
    site: &Site,
    report: &bank::Report,
    settings: &Settings,
    level: Isolation,
    setting: &str,
) -> Vec<Promise> {
    let anomaly_rule = rule(site, settings, Span::Entry, level, Anomaly::FracturedRead);
    let setting = setting_with(level, setting);
    let (fault, _) = faults_of(&report.happened);
    let mut sums = counted(Count {
        workload: "bank",
        promise: "one SELECT sees all of a transfer or nothing of it",
        setting: &setting,
        unit: "sums read",
        n: report.reads,
        seen: report.wrong,
        control: Some(Control {
            what: "sums read shard by shard, each in its own statement".to_owned(),
            n: report.control_reads,
            seen: report.control_wrong,
        }),
        rule: anomaly_rule,
        reading: Reading::Statements,
        why: (
            "a statement has one snapshot, and a commit becomes visible in one step",
            site.engine.reasons.fractured_read,
        ),
        change: "read rows that must agree from one shard, or use an engine with one snapshot for all nodes",
    });
    sums.witness.clone_from(&report.witnesses);
    sums.figures = figures(json!({
        "transfers": report.transfers.ok + report.transfers.ok_weak,
        "transfers_refused": report.transfers.fail,
        "transfers_unanswered": report.transfers.info,
        "transfers_in_doubt": report.transfers.partial,
        "share_wrong": share(report.wrong, report.reads),
    }));
    let mut last = last_sum(site, report, settings, (level, &setting));
    sums.fault.clone_from(&fault);
    last.fault = fault;
    let mut promises = vec![sums, last];
    least::doubt(&mut promises, &report.failures);
    promises
}

/// The sum after everything has ended.
fn last_sum(
    site: &Site,
    report: &bank::Report,
    settings: &Settings,
    (level, setting): (Isolation, &str),
) -> Promise {
    let is_off = report.last_sum != report.expected || report.later_sum != report.expected;
    let mut last = counted(Count {
        workload: "bank",
        promise: "no money appears or disappears",
        setting,
        unit: "transfers",
        n: report.transfers.ok + report.transfers.ok_weak,
        seen: u64::from(is_off),
        control: Some(Control {
            what: "the reader adds money to one account, in its own transaction".to_owned(),
            n: 1,
            seen: u64::from(report.last_control),
        }),
        rule: rule(site, settings, Span::Entry, level, Anomaly::TornCommit),
        reading: Reading::Statements,
        why: ("both sides of a transfer are committed together", site.engine.reasons.torn_commit),
        change: site.engine.reasons.torn_commit_change,
    });
    let is_at_rest = report.last_control && report.last_sum == report.later_sum;
    if is_off && is_at_rest {
        last.witness
            .push(format!("the sum is {} at the end, and was {} before", report.last_sum, report.expected));
    } else if is_off {
        // What changes while it is read was not the end: commits are still being finished, or another program writes.
        last.standing = Standing::NotTested;
        last.why = format!(
            "the sum still changed when it was read at the end: {}, then {} instead of {}",
            report.last_sum, report.later_sum, report.expected
        );
        last.change = "run pgfathom prove again when the cluster is at rest".to_owned();
    }
    last
}

fn setting_with(level: Isolation, setting: &str) -> String {
    if setting.is_empty() { level.to_string() } else { format!("{level}, {setting}") }
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// Rows of several shards.
pub fn twin(
    site: &Site,
    report: &twin::Report,
    settings: &Settings,
    level: Isolation,
    setting: &str,
) -> Vec<Promise> {
    let setting = setting_with(level, setting);
    let [_, _, apart] = &report.ways;
    let mut promises = Vec::new();
    for (way, seen) in std::iter::zip([twin::Way::Statement, twin::Way::Transaction], &report.ways) {
        let (anomaly, at) = match way {
            twin::Way::Statement => (Anomaly::FracturedRead, Isolation::ReadCommitted),
            _ => (Anomaly::ReadSkew, Isolation::RepeatableRead),
        };
        let promise = format!("{} shows rows of one version", way.description());
        let mut promise = counted(Count {
            workload: "twin",
            promise: &promise,
            setting: &setting,
            unit: "readings",
            n: seen.reads,
            seen: seen.fractured,
            control: Some(Control {
                what: twin::Way::Apart.description().to_owned(),
                n: apart.reads,
                seen: apart.fractured,
            }),
            rule: rule(site, settings, Span::Entry, at, anomaly),
            reading: match way {
                twin::Way::Statement => Reading::Statements,
                _ => Reading::Transactions,
            },
            why: ("all of it is read in one snapshot", site.engine.reasons.fractured_read),
            change: "read rows that must agree from one shard, or use an engine with one snapshot for all nodes",
        });
        promise.witness.clone_from(&seen.witnesses);
        let ahead: Map<String, Value> = std::iter::zip(&report.shards, &seen.ahead)
            .map(|(name, count)| (name.clone(), json!(count)))
            .collect();
        promise.figures = figures(json!({
            "share_fractured": share(seen.fractured, seen.reads),
            "distance_versions_max": seen.distance_max,
            "ahead": ahead,
            "writes": report.writes,
            "groups_torn_in_the_end": report.torn,
        }));
        promise.fault = faults_of(&report.happened).0;
        promises.push(promise);
    }
    // A transaction that reads in one statement is a transaction, too: what refutes the statement refutes it.
    if let [statement, transaction] = promises.as_mut_slice() {
        bound_by(transaction, statement);
    }
    least::doubt(&mut promises, &report.failures);
    promises
}

/// A promise that contains another one is not better than that one.
fn bound_by(stronger: &mut Promise, weaker: &Promise) {
    let standing = weaker.standing.bounds(stronger.standing);
    if standing != stronger.standing {
        stronger.standing = standing;
        stronger.why =
            format!("it contains \"{}\", which is {}", weaker.promise, weaker.standing.description());
        stronger.change.clone_from(&weaker.change);
        stronger.bound = None;
    }
}

/// Write skew.
pub fn skew(
    site: &Site,
    report: &skew::Report,
    settings: &Settings,
    level: Isolation,
    setting: &str,
) -> Vec<Promise> {
    let setting = setting_with(level, setting);
    let skew_rule = rule(site, settings, Span::Entry, level, Anomaly::WriteSkew);
    let forms = [
        ("if two transactions each write what the other one read, one is refused", report.rows),
        ("the same where a count was read and a row is added", report.predicates),
    ];
    let mut promises: Vec<Promise> = forms
        .into_iter()
        .map(|(promise, pairs)| {
            let mut promise = counted(Count {
                workload: "skew",
                promise,
                setting: &setting,
                unit: "pairs",
                n: pairs.pairs,
                seen: pairs.both,
                control: Some(Control {
                    what: "the same pairs at REPEATABLE READ".to_owned(),
                    n: report.control.pairs,
                    seen: report.control.both,
                }),
                rule: skew_rule,
                reading: Reading::Answers,
                why: (
                    "SERIALIZABLE tracks reads of rows that others write, and refuses one of a dangerous pair",
                    if level == Isolation::Serializable {
                        "SERIALIZABLE of each node sees only what happened on that node: none of them sees both reads and both writes"
                    } else {
                        "snapshot isolation checks only rows that both transactions write"
                    },
                ),
                change: if level == Isolation::Serializable {
                    "keep rows that are checked together on one node, or lock what is read: SELECT ... FOR UPDATE"
                } else {
                    "use SERIALIZABLE and retry 40001, or lock what is read: SELECT ... FOR UPDATE"
                },
            });
            promise.figures = figures(json!({"refused": pairs.refused}));
            promise
        })
        .collect();
    if let Some(promise) = promises.iter_mut().find(|promise| promise.seen > 0) {
        promise.witness.clone_from(&report.witness);
    }
    promises
}

fn figures_of_fight(results: &ConflictResults) -> Map<String, Value> {
    let sums: Map<String, Value> =
        results.sums.iter().map(|(name, sum)| (name.clone(), json!(sum))).collect();
    figures(json!({
        "acknowledged": results.acknowledged,
        "refused": results.refused,
        "unanswered": results.unknown,
        "overwritten": results.overwritten,
        "counters": results.counters,
        "counters_diverged": results.diverged,
        "sums": sums,
    }))
}

/// Writing the same rows on several nodes.
pub fn conflict(site: &Site, report: &conflict::Report, settings: &Settings, setting: &str) -> Vec<Promise> {
    let is_one = report.nodes < 2;
    let at = if is_one { "one node" } else { "every node writes" };
    // An increment is one statement: the engine's promise about conflicts counts, not that about clients that read first and write then.
    let is_refused = site.engine.expectation(Case::Conflict).is_some_and(|one| one.may_happen == Some(false));
    let lost_rule = match is_one || is_refused {
        true => Rule::Forbidden,
        false => rule(site, settings, Span::Everywhere, Isolation::ReadCommitted, Anomaly::LostUpdate),
    };
    let damage =
        |results: &ConflictResults| results.overwritten + results.diverged + results.stuck.len() as u64;
    // Conflicts on the same rows are the control of own rows; where there must be none, carelessness is the control of both.
    let control = match &report.careless {
        Some(careless) => Control {
            what: "clients that read a value and write it back incremented".to_owned(),
            n: careless.acknowledged,
            seen: careless.overwritten,
        },
        None => Control {
            what: "the same load on the same rows".to_owned(),
            n: report.contended.acknowledged,
            seen: damage(&report.contended),
        },
    };
    let judge = |results: &ConflictResults, promise: &str, way: &str, rule: Rule| {
        let setting =
            [at, way, setting].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ");
        let mut promise = counted(Count {
            workload: "conflict",
            promise,
            setting: &setting,
            unit: "acknowledged increments",
            n: results.acknowledged,
            seen: damage(results),
            control: Some(control.clone()),
            rule,
            reading: Reading::Nodes,
            why: (
                "an update waits until the other transaction ends, or fails, and every node gets every row",
                site.engine.conflict_rule(),
            ),
            change: "let each row be written on one node only (ownership), or use an engine that refuses conflicts",
        });
        promise.witness.clone_from(&results.witness);
        promise.witness.extend(results.stuck.iter().cloned());
        promise.figures = figures_of_fight(results);
        promise
    };
    let mut owned = judge(
        &report.owned,
        "all nodes end with the same rows when each writes only its own",
        "own rows",
        Rule::Forbidden,
    );
    let contended = judge(
        &report.contended,
        "no acknowledged increment is overwritten, and all nodes agree",
        "same rows",
        lost_rule,
    );
    owned.fault = faults_of(&report.happened).0;
    let mut promises = vec![owned, contended];
    least::doubt(&mut promises[..1], &report.owned.failures);
    least::doubt(&mut promises[1..], &report.contended.failures);
    promises
}

#[cfg(test)]
mod tests;
