//! What a random history comes to: a level that is not refuted is kept, and one that is refuted is broken unless the engine allows each of the anomalies.

use record::promise::{Control, Promise, Standing, bound};
use serde_json::{Map, Value, json};
use target::profile::Anomaly;
use target::{Engine, Role};

use super::{Rule, explain_missing, faults_of, has_standbys, rule};
use crate::check::{Base, Class, Order};
use crate::fault::Site;
use crate::history::Outcome;
use crate::live::Level;
use crate::live::verreg::{Report, anomalies, base_of};

/// The column of an engine's profile that an anomaly belongs to.
fn column(class: Class) -> Anomaly {
    match class {
        Class::FracturedStatement => Anomaly::FracturedRead,
        Class::StatementFork | Class::LongFork => Anomaly::LongFork,
        Class::NonMonotonicView | Class::NonRepeatableRead | Class::FracturedRead | Class::ReadSkew => {
            Anomaly::ReadSkew
        }
        Class::LostUpdate | Class::DuplicateVersion => Anomaly::LostUpdate,
        Class::WriteSkew => Anomaly::WriteSkew,
        Class::Garbage
        | Class::AmbiguousWrite
        | Class::DuplicateElement
        | Class::Internal
        | Class::FutureRead
        | Class::DirtyWrite
        | Class::AbortedRead
        | Class::DirtyUpdate
        | Class::IntermediateRead
        | Class::IncompatibleOrder
        | Class::CircularFlow => Anomaly::DirtyOrCircular,
    }
}

/// Whether one anomaly is a violation. `is_ordered`: it needs the order of sessions or of time.
fn judge(site: &Site, level: Level, class: Class, is_ordered: bool) -> Rule {
    let standbys = has_standbys(site);
    // A standby refuses SERIALIZABLE, so its readers are a level below.
    let level = if standbys && level == Level::Serializable { Level::RepeatableRead } else { level };
    let of = |anomaly: Anomaly| rule(site.engine, standbys, level, anomaly);
    let peers = site.nodes.iter().filter(|node| node.role == Role::Peer).count();
    // Where a later write overwrites an acknowledged one there is no order of versions, and whatever contradicts one is the same anomaly. What nobody has
    // committed, or finished, is not.
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
    if peers > 1 && needs_order {
        return of(Anomaly::LostUpdate);
    }
    // Long forks and stale reads take several nodes: one server has one order, and its clock.
    let is_one = site.nodes.len() == 1 && matches!(site.engine, Engine::Postgres);
    let plain = match column(class) {
        Anomaly::LongFork if is_one => Rule::Forbidden,
        // A fork between nodes without a common snapshot is read skew seen twice.
        Anomaly::LongFork if of(Anomaly::ReadSkew) == Rule::Allowed => Rule::Allowed,
        anomaly => of(anomaly),
    };
    if !is_ordered || plain != Rule::Forbidden {
        return plain;
    }
    match column(class) {
        // What a transaction reads of one that had not begun when it ended would be a message from the future.
        Anomaly::DirtyOrCircular => plain,
        _ if is_one => Rule::Forbidden,
        _ => of(Anomaly::StaleRead),
    }
}

/// The level, and the level with the order of sessions and of real time.
pub fn verreg(site: &Site, report: &Report, workload: &str, place: &str) -> Vec<Promise> {
    let base = base_of(report.level);
    let acknowledged = report.outcomes.ok + report.outcomes.ok_weak;
    let setting = [place, report.level.name()]
        .into_iter()
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    [false, true]
        .into_iter()
        .map(|is_ordered| {
            let found = anomalies(&report.report, base, is_ordered);
            let seen: u64 = found.iter().map(|(_, count)| count).sum();
            let rules: Vec<(Class, Rule)> = found
                .iter()
                .map(|(class, _)| match judge(site, report.level, *class, is_ordered) {
                    // Half of a transaction that was refused in part is a torn commit, whatever it looks like.
                    Rule::Forbidden if is_torn(report, *class, is_ordered) => {
                        (*class, rule(site.engine, has_standbys(site), report.level, Anomaly::TornCommit))
                    }
                    rule => (*class, rule),
                })
                .collect();
            let broken = rules.iter().find(|(_, rule)| *rule == Rule::Forbidden).map(|(class, _)| *class);
            let (standing, why) = standing(site, report, acknowledged, &rules, broken);
            let is_bad = matches!(standing, Standing::Broken | Standing::ByDesign);
            let mut promise = Promise {
                workload: workload.to_owned(),
                promise: match is_ordered {
                    false => format!("random transactions refute nothing of {}", report.level),
                    true => format!(
                        "{} in the order of sessions and of real time: what had ended is seen",
                        report.level
                    ),
                },
                setting: setting.clone(),
                fault: faults_of(&report.happened).0,
                standing,
                n: acknowledged,
                unit: "acknowledged transactions".to_owned(),
                seen,
                bound: if seen == 0 { bound(acknowledged) } else { None },
                control: control(report),
                witness: witness(report, base, is_ordered, broken),
                why,
                change: if is_bad { change(site, &rules).to_owned() } else { String::new() },
                figures: if is_ordered { Map::new() } else { figures(report) },
            };
            explain_missing(&mut promise, &report.happened);
            promise
        })
        .collect()
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

fn standing(
    site: &Site,
    report: &Report,
    acknowledged: u64,
    rules: &[(Class, Rule)],
    broken: Option<Class>,
) -> (Standing, String) {
    if let Some(class) = broken {
        return (
            Standing::Broken,
            format!("{} does not allow that {}", site.engine.profile().title, class.says()),
        );
    }
    if let Some((class, rule)) = rules.first() {
        let allowed = if *rule == Rule::Allowed { "allows it" } else { "promises nothing about it" };
        let why = match site.engine {
            Engine::FdwSharded => "each node has a snapshot of its own, which begins with its first use",
            Engine::Multimaster => {
                "nobody resolves conflicts, and each node applies the others' writes in its own order"
            }
            _ => "the engine's documentation",
        };
        return (Standing::ByDesign, format!("{}, and the engine {allowed}: {why}", class.says()));
    }
    if acknowledged == 0 {
        return (Standing::NotTested, "no transaction was acknowledged".to_owned());
    }
    if report.planted == Some(false) {
        return (
            Standing::NotTested,
            "an anomaly that was planted was not found: the history tells nothing".to_owned(),
        );
    }
    if report.control.as_ref().is_some_and(|(_, _, seen)| *seen == 0) {
        let why =
            "the same load showed nothing at the weaker level either: there was too little going on at once";
        return (Standing::NotTested, why.to_owned());
    }
    (Standing::Kept, format!("not refuted by {acknowledged} transactions; a history never proves a level"))
}

/// The shortest one of the worst kind.
fn witness(report: &Report, base: Base, is_ordered: bool, broken: Option<Class>) -> Vec<String> {
    let fits = |witness: &&crate::check::Witness| {
        (witness.finding.order != Order::Data) == is_ordered
            && witness.finding.refutes().any(|level| level.base.is_implied_by(base))
            && broken.is_none_or(|class| witness.finding.class == class)
    };
    let chosen = report
        .report
        .witnesses
        .iter()
        .filter(fits)
        .min_by_key(|witness| (witness.finding.class, witness.text.len()));
    chosen.map(|witness| witness.text.clone()).unwrap_or_default()
}

fn change(site: &Site, rules: &[(Class, Rule)]) -> &'static str {
    if rules.iter().any(|(_, rule)| *rule == Rule::Forbidden) {
        return "look whether a pooler, a proxy or a setting is in between; then report it with the history";
    }
    match site.engine {
        Engine::FdwSharded => {
            "keep what must agree on one shard, or take an engine with a snapshot for all nodes"
        }
        Engine::Multimaster => "let each row be written on one node only (ownership)",
        _ => "read what must be in order on one node",
    }
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
mod tests {
    use super::*;
    use crate::fault::{Journal, Node};
    use std::sync::Arc;
    use target::ConnSpec;

    fn site(engine: Engine, roles: &[Role]) -> Site {
        let dir = std::env::temp_dir().join(format!("pgfathom-judge-{}", std::process::id()));
        let journal = Arc::new(Journal::begin(&dir).unwrap());
        let spec = ConnSpec::new("localhost", 5432, "nobody", "nothing");
        let nodes =
            roles.iter().map(|role| Node::spared("n", *role, spec.clone(), "it is no server")).collect();
        Site::new(engine, nodes, journal)
    }

    #[test]
    fn an_anomaly_is_judged_by_engine_level_and_place() {
        use Level::{ReadCommitted, RepeatableRead, Serializable};
        let one = site(Engine::Postgres, &[Role::Primary]);
        assert_eq!(judge(&one, ReadCommitted, Class::FracturedStatement, false), Rule::Forbidden);
        assert_eq!(judge(&one, RepeatableRead, Class::LongFork, false), Rule::Forbidden);
        assert_eq!(judge(&one, RepeatableRead, Class::ReadSkew, true), Rule::Forbidden);
        assert_eq!(judge(&one, Serializable, Class::WriteSkew, true), Rule::Forbidden);
        let standby = site(Engine::Postgres, &[Role::Primary, Role::Standby]);
        assert_eq!(judge(&standby, RepeatableRead, Class::LongFork, false), Rule::Allowed);
        assert_eq!(judge(&standby, RepeatableRead, Class::ReadSkew, false), Rule::Forbidden);
        assert_eq!(judge(&standby, RepeatableRead, Class::ReadSkew, true), Rule::Allowed);
        // Its readers are a level below SERIALIZABLE.
        assert_eq!(judge(&standby, Serializable, Class::WriteSkew, false), Rule::Allowed);
        let shards = site(Engine::FdwSharded, &[Role::Shard, Role::Shard]);
        assert_eq!(judge(&shards, Serializable, Class::FracturedStatement, false), Rule::Allowed);
        assert_eq!(judge(&shards, ReadCommitted, Class::StatementFork, false), Rule::Allowed);
        assert_eq!(judge(&shards, RepeatableRead, Class::LostUpdate, false), Rule::Forbidden);
        assert_eq!(judge(&shards, RepeatableRead, Class::DirtyWrite, false), Rule::Forbidden);
        let peers = site(Engine::Multimaster, &[Role::Peer, Role::Peer]);
        for class in
            [Class::DuplicateVersion, Class::IncompatibleOrder, Class::FracturedStatement, Class::DirtyWrite]
        {
            assert_eq!(judge(&peers, RepeatableRead, class, false), Rule::Allowed, "{class:?}");
        }
        assert_eq!(judge(&peers, RepeatableRead, Class::AbortedRead, false), Rule::Forbidden);
    }
}
