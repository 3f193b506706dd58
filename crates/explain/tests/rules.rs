//! Every rule three times: it fires on its condition, it is silent on a healthy cluster, and it says what is missing when it cannot look.

use crate::{fire, pasted, scene};
use explain::rule::{self, Need};
use explain::rules;
use record::finding::{CheckState, Finding, Findings, Level};
use scene::Scene;
use serde_json::json;
use std::collections::BTreeSet;

/// Rules about words, not numbers: a link, a mount point, a mark.
const OF_FACTS: [&str; 3] = ["IO-03", "FS-04", "SEC-02"];

fn said(findings: &Findings, rule: &str) -> Option<CheckState> {
    findings.checked.iter().find(|checked| checked.rule == rule).map(|checked| checked.state)
}

#[test]
fn a_healthy_cluster_has_no_findings_and_every_rule_has_looked() {
    let findings = Scene::healthy().explain();
    let claims: Vec<String> =
        findings.findings.iter().map(|finding| format!("{}: {}", finding.rule, finding.claim)).collect();
    assert!(claims.is_empty(), "{claims:#?}");
    let blind: Vec<String> = findings
        .checked
        .iter()
        .filter(|checked| checked.state == CheckState::CannotTell)
        .map(|checked| format!("{}: {}", checked.rule, checked.why))
        .collect();
    assert!(blind.is_empty(), "{blind:#?}");
    assert_eq!(findings.checked.len(), rules::all().count());
}

/// What is wrong in any of these cases. These are the longest tests of all, so they take the CPUs that there are.
fn wrong_in_any<T: Sync>(cases: &[T], wrong: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let of = |first: usize| cases.iter().skip(first).step_by(threads).flat_map(&wrong);
        let parts: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || of(first).collect::<Vec<_>>())).collect();
        parts.into_iter().flat_map(|part| part.join().expect("its cases do not panic")).collect()
    })
}

#[test]
fn what_only_looks_like_a_condition_is_no_finding() {
    let cases: Vec<&(&str, fire::Change)> = fire::HARMLESS
        .iter()
        .chain(fire::HARMLESS_PLANS)
        .chain(fire::HARMLESS_FORMS)
        .chain(fire::HARMLESS_SCOPES)
        .chain(fire::HARMLESS_NARROW)
        .chain(fire::HARMLESS_SAMPLED)
        .chain(fire::HARMLESS_ALIKE)
        .chain(fire::HARMLESS_SHIFTS)
        .chain(fire::HARMLESS_SPREAD)
        .chain(fire::HARMLESS_AGAIN)
        .chain(fire::HARMLESS_SURPLUS)
        .chain(fire::HARMLESS_ROWS)
        .chain(fire::HARMLESS_HIDDEN)
        .chain(fire::HARMLESS_DEFINITIONS)
        .chain(fire::HARMLESS_FIT)
        .chain(fire::HARMLESS_EACH)
        .chain(fire::HARMLESS_STEPS)
        .chain(fire::HARMLESS_AROUND)
        .chain(fire::live::HARMLESS)
        .chain(fire::search::HARMLESS)
        .chain(fire::work::HARMLESS)
        .chain(fire::beside::HARMLESS)
        .chain(fire::outside::HARMLESS)
        .chain(fire::unserved::HARMLESS)
        .chain(fire::first::HARMLESS)
        .chain(fire::rewritten::HARMLESS)
        .chain(fire::aside::HARMLESS)
        .collect();
    let problems = wrong_in_any(&cases, |(id, change)| {
        let mut scene = Scene::healthy();
        change(&mut scene);
        let found = scene.explain().findings;
        let is_its = |finding: &&Finding| finding.rule == *id;
        found.iter().filter(is_its).map(|finding| format!("{id}: {finding:#?}")).collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with the finding of a rule whose condition is true.
fn wrong(&(id, level, change): &fire::Fires) -> Vec<String> {
    let mut problems = vec![];
    let mut scene = Scene::healthy();
    change(&mut scene);
    let findings = scene.explain();
    let Some(finding) = findings.findings.iter().find(|finding| finding.rule == id) else {
        let checked = findings.checked.iter().find(|checked| checked.rule == id);
        return vec![format!("{id} is silent: {checked:?}")];
    };
    if finding.level != level {
        problems.push(format!("{id} has level {:?}: {finding:#?}", finding.level));
    }
    let has_numbers = !finding.numbers.is_empty() || OF_FACTS.contains(&id);
    if finding.windows.is_empty() || finding.claim.is_empty() || !has_numbers {
        problems.push(format!("{id} lacks a window, a claim or numbers: {finding:#?}"));
    }
    if finding.level > Level::Symptom && finding.evidence.is_empty() {
        problems.push(format!("{id} gives no evidence for its level"));
    }
    if !finding.claim.is_ascii()
        || finding.claim.ends_with('.')
        || finding.claim.contains("NaN")
        || finding.claim.contains("inf ")
    {
        problems.push(format!("{id} speaks badly: {}", finding.claim));
    }
    let its = findings.findings.iter().filter(|finding| finding.rule == id);
    problems.extend(its.flat_map(pasted::problems));
    problems
}

#[test]
fn every_rule_fires_on_its_condition() {
    let cases: Vec<&fire::Fires> = fire::all().collect();
    let problems = wrong_in_any(&cases, |case| wrong(case));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let covered: BTreeSet<&str> = fire::all().map(|(id, _, _)| *id).collect();
    let all: BTreeSet<&str> = rules::all().map(|rule| rule.id).collect();
    assert_eq!(all, covered, "a rule without a case");
}

#[test]
fn a_rule_without_what_it_needs_says_so() {
    let mut problems = vec![];
    // What a rule needs does not depend on the case: the first one of each will do.
    let mut tried = BTreeSet::new();
    for (id, _, change) in fire::all().filter(|(id, _, _)| tried.insert(*id)) {
        let rule = rules::all().find(|rule| rule.id == *id).expect("the table has it");
        for need in rule.needs {
            let mut scene = Scene::healthy();
            change(&mut scene);
            scene.without(need);
            // What is there at all does not depend on how long somebody looked.
            scene.seconds = 20;
            let folder = scene.write();
            let case = explain::case::Case::open(&folder.0).expect("opens");
            match rule::ask(rule, &case) {
                rule::Answer::CannotTell(why) if !why.is_empty() => {}
                answer => problems.push(format!("{id} without {need:?}: {answer:?}")),
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A sweep, a backup or `create database` ask for checkpoints, too: with so little WAL between two of them `max_wal_size` cannot be the reason.
#[test]
fn checkpoints_that_commands_ask_for_are_not_forced_by_the_wal() {
    for (max_wal_size, claims) in [("1GB", 0), ("1MB", 1)] {
        let mut scene = Scene::healthy();
        scene.vary("server", json!({"node": "n1"}), "checkpoints_requested", |second| {
            f64::from(u8::from(second % 20 == 0))
        });
        scene.vary("server", json!({"node": "n1"}), "wal_bytes", |_| 100_000.0);
        scene.fact(json!({"node": "n1"}), "setting", "max_wal_size", max_wal_size);
        let found = scene.explain().findings.iter().filter(|finding| finding.rule == "WAL-03").count();
        assert_eq!(found, claims, "{max_wal_size}");
    }
}

/// `prove engine` compares claims about an engine with a server; one that differs is no anomaly.
#[test]
fn a_claim_about_an_engine_that_differs_is_no_broken_promise() {
    let (_, _, change) = fire::all().find(|(id, _, _)| *id == "LCK-02").expect("the table has it");
    for (name, claims) in [("bank", 1), ("engine", 0)] {
        let mut scene = Scene::healthy();
        change(&mut scene);
        for step in scene.run.steps.iter_mut().filter(|step| step.verb == "prove") {
            step.name = name.into();
        }
        let found = scene.explain().findings.iter().filter(|finding| finding.rule == "LCK-02").count();
        assert_eq!(found, claims, "{name}");
    }
}

#[test]
fn an_empty_directory_is_clean_of_nothing() {
    let findings = Scene::empty().explain();
    assert!(findings.findings.is_empty());
    assert!(
        findings.checked.iter().all(|checked| checked.state == CheckState::CannotTell),
        "{:#?}",
        findings.checked
    );
    assert_eq!(said(&findings, "IO-01"), Some(CheckState::CannotTell));
}

#[test]
fn a_sequence_behind_its_table_is_named_where_the_statement_leaves_the_key_to_it() {
    let claim = |text, sequence| fire::again::refused_by(text, sequence);
    let left = claim("insert into enrolment (pupil) values ($1)", fire::again::SEQUENCE);
    assert!(
        left.contains("sequence public.enrolment_id_seq is behind the rows of public.enrolment"),
        "{left}"
    );
    for (text, sequence) in [
        ("insert into enrolment (id, pupil) values ($1, $2)", fire::again::SEQUENCE),
        ("insert into enrolment (pupil) values ($1)", ""),
    ] {
        let given = claim(text, sequence);
        assert!(!given.contains("sequence"), "{given}");
    }
}

#[test]
fn waits_for_a_foreign_key_name_it_and_what_locks_its_rows() {
    let strong = fire::again::referring_to("select name from article where id = $1 for update");
    assert!(
        strong
            .contains("their foreign key to public.article can be checked, whose rows are locked FOR UPDATE"),
        "{strong}"
    );
    let other = fire::again::referring_to("select name from article where id = $1 for no key update");
    assert!(
        other.contains("their foreign key to public.article can be checked") && !other.contains("FOR UPDATE"),
        "{other}"
    );
    // A check of the key locks the row more weakly than a change of it by a trigger.
    assert!(fire::again::waiting_with("RowShareLock").contains("foreign key to public.article"));
    let changed = fire::again::waiting_with("ExclusiveLock");
    assert!(
        changed.contains("also changes a row of public.article") && !changed.contains("foreign key"),
        "{changed}"
    );
    // An upsert in a trigger has no lock of the row for which it waits, and the new row itself waits for none but its own key.
    let inside = fire::again::waiting_in_a_trigger("division by zero");
    assert!(inside.contains("waits for them (trigger movement_totals"), "{inside}");
    assert!(!inside.contains("rows or pages of"), "{inside}");
    let same = fire::again::waiting_in_a_trigger("duplicate key value violates unique constraint \"k\"");
    assert!(!same.contains("trigger"), "{same}");
}

#[test]
fn rollbacks_without_errors_in_a_log_that_is_read_are_on_purpose() {
    use record::finding::Severity;
    let error = |scene: &mut Scene| {
        for second in 1..=100 {
            let more = json!({"node": "n1", "severity": "ERROR", "repeated": 9_000});
            scene.event(second, record::event::SERVER_LOG, "division by zero", more);
        }
    };
    assert_eq!(fire::again::rolled_back(|_| {}), Some(Severity::Note));
    assert_eq!(fire::again::rolled_back(error), Some(Severity::High));
    let unread = |scene: &mut Scene| {
        let keys = json!({"node": "n1", "what": "server log"});
        scene.set("missing", keys, json!({"why": "no permission", "lost": "much"}));
    };
    assert_eq!(fire::again::rolled_back(unread), Some(Severity::Medium));
}

#[test]
fn ids_are_unique_and_needs_name_what_collectors_write() {
    let ids: Vec<&str> = rules::all().map(|rule| rule.id).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert_eq!(
        ids.len(),
        283,
        "the conditions of the reference, what watching itself costs, and what the account of the time shows"
    );
    let mut wanted: Vec<(String, String)> = vec![];
    fn walk(needs: &[Need], wanted: &mut Vec<(String, String)>) {
        for need in needs {
            match need {
                Need::Field(source, field) if *field != "*" => {
                    wanted.push((source.to_string(), field.to_string()))
                }
                Need::Any(options) => walk(options, wanted),
                _ => {}
            }
        }
    }
    rules::all().for_each(|rule| walk(rule.needs, &mut wanted));
    // What the scenes write is what the collectors write: a misspelt field would make a rule blind on real directories alone.
    for (_, _, change) in fire::all() {
        let mut scene = Scene::healthy();
        change(&mut scene);
        wanted.extend(scene.fields());
    }
    let ours = ["client", "load", "node"];
    for (source, field) in wanted {
        if ours.contains(&source.as_str()) {
            continue;
        }
        let known = record::watched::Sampled::ALL.iter().find(|(name, _)| *name == source);
        let (_, fields) = known.unwrap_or_else(|| panic!("no collector writes {source}"));
        assert!(fields.contains(&field.as_str()), "no collector writes {source}.{field}");
    }
}
