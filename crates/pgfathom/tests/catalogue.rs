//! The catalogue of `drills/` and its scorer, without a server: entries are complete and name real rules, and the scorer judges recorded findings as a
//! reader of them would.

#[allow(dead_code, reason = "the runner of the drills reads the rest")]
#[path = "../../../drills/catalogue/entry.rs"]
mod entry;
#[allow(dead_code, reason = "the runner of the drills reads the rest")]
#[path = "../../../drills/catalogue/score.rs"]
mod score;

use entry::Entry;
use score::{ANY_RULE, Claim, Expected, MACHINE_PCT, Outcome, judge};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const CONDITIONS_MIN: usize = 60;
const CONTROLS_MIN: usize = 15;

fn catalogue() -> Vec<Entry> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drills/conditions");
    entry::read(&folder).expect("the catalogue can be read")
}

fn rules() -> BTreeSet<&'static str> {
    explain::rules::all().map(|rule| rule.id).collect()
}

#[test]
fn the_catalogue_is_large_and_varied() {
    let all = catalogue();
    let (controls, conditions): (Vec<&Entry>, Vec<&Entry>) = all.iter().partition(|entry| entry.healthy);
    assert!(conditions.len() >= CONDITIONS_MIN, "{} conditions", conditions.len());
    assert!(controls.len() >= CONTROLS_MIN, "{} controls", controls.len());
    let with = |what: &str, count: usize| assert!(count >= 10, "only {count} entries {what}");
    with("have pg_stat_statements", all.iter().filter(|entry| entry.statements).count());
    with("do without pg_stat_statements", all.iter().filter(|entry| !entry.statements).count());
    with("run on an older release", all.iter().filter(|entry| entry.postgres.is_some()).count());
    let protocols = all.iter().flat_map(|entry| &entry.load).filter(|load| load.protocol.is_some());
    with("use another protocol", protocols.count());
}

/// A rule that is removed from `explain` takes its conditions with it: this test fails then.
#[test]
fn every_rule_of_the_catalogue_exists() {
    let known = rules();
    for entry in catalogue() {
        for rule in
            entry.rules.iter().chain(&entry.symptoms).chain(&entry.also).filter(|rule| *rule != ANY_RULE)
        {
            assert!(known.contains(rule.as_str()), "{}: explain has no rule {rule}", entry.name);
        }
    }
}

#[test]
fn entries_that_cannot_be_judged_are_refused() {
    let good = "[[condition]]\nname = \"a\"\ncause = \"there is a cause\"\nrules = [\"WAL-01\"]\n";
    assert_eq!(entry::chapter("area", good).expect("it is complete").len(), 1);
    for (bad, why) in [
        (good.replace("rules = [\"WAL-01\"]", ""), "which rule"),
        (good.replace("WAL-01", "*"), "the words are needed"),
        (good.replace("there is a cause", "slow"), "a sentence"),
        (good.replace("[[condition]]", "[[control]]"), "names no rules"),
        (format!("{good}seconds = 100\n"), "at most 40 s"),
        (format!("{good}[[condition.load]]\nclients = 2\n"), "one of script"),
        (format!("{good}[[condition.load]]\nhold = \"x\"\nrepeat = \"y\"\n"), "one of script"),
        (format!("{good}colour = \"red\"\n"), "unknown field"),
    ] {
        let error = entry::chapter("area", &bad).expect_err(&bad);
        assert!(error.contains(why), "{error}");
    }
}

fn finding(rule: &str, severity: &str, claim: &str) -> Value {
    json!({"rule": rule, "severity": severity, "title": "a title", "claim": claim, "evidence": ["it was seen"], "remedy": {"text": "do", "commands": []}})
}

fn answer(findings: &[Value]) -> Value {
    json!({"findings": findings, "checked": []})
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_place_of_the_cause_decides() {
    let (rules, symptoms) = (words(&["PLAN-01"]), words(&["SES-03"]));
    let expected = Expected { rules: &rules, symptoms: &symptoms, ..Expected::default() };
    let cause = finding("PLAN-01", "medium", "one statement");
    let symptom = finding("SES-03", "high", "many sessions");
    let other = finding("NET-04", "low", "loss");
    let outcome = |findings: &[&Value]| {
        let all: Vec<Value> = findings.iter().map(|one| (*one).clone()).collect();
        judge(&answer(&all), &expected).outcome
    };
    assert_eq!(outcome(&[&cause, &symptom]), Outcome::First);
    assert_eq!(outcome(&[&symptom, &cause]), Outcome::AmongThree);
    assert_eq!(outcome(&[&symptom, &other, &cause]), Outcome::AmongThree);
    assert_eq!(outcome(&[&symptom, &other, &other, &cause]), Outcome::Later);
    assert_eq!(outcome(&[&symptom]), Outcome::SymptomOnly);
    assert_eq!(outcome(&[&other]), Outcome::Missed);
    assert_eq!(outcome(&[]), Outcome::Missed);
    assert!(cause.is_object() && Outcome::First < Outcome::Missed);
}

/// A finding counts only if it names the object, the session or the setting that is the cause.
#[test]
fn a_rule_without_the_name_is_a_symptom() {
    let (rules, names) = (words(&["LCK-01"]), words(&["idle in transaction"]));
    let expected = Expected { rules: &rules, names: &names, ..Expected::default() };
    let vague = answer(&[finding("LCK-01", "high", "one session blocks six")]);
    assert_eq!(judge(&vague, &expected).outcome, Outcome::SymptomOnly);
    let exact = answer(&[finding("LCK-01", "high", "a session that is IDLE IN TRANSACTION blocks six")]);
    assert_eq!(judge(&exact, &expected).outcome, Outcome::First);
    let any = words(&[ANY_RULE]);
    let open = Expected { rules: &any, names: &names, ..Expected::default() };
    assert_eq!(judge(&exact, &open).outcome, Outcome::First);
    assert_eq!(judge(&vague, &open).outcome, Outcome::Missed);
}

const QUOTED: &str = "SELECT id, town FROM citizen WHERE surname LIKE $1 COLLATE nothing";

/// A finding with this claim, evidence and command, beside the account of the time, which has the statement.
fn told(claim: &str, evidence: &str, command: &str) -> Value {
    let mut one = finding("PLAN-01", "high", claim);
    one["evidence"] = json!([evidence]);
    one["remedy"]["commands"] = json!([command]);
    let mut answer = answer(&[one]);
    answer["node_time"] = json!([{"node": "n1", "statements": [{"text": QUOTED}]}]);
    answer
}

/// The application's own words say nothing about what `explain` knows.
#[test]
fn a_word_that_is_only_in_a_quoted_statement_names_no_cause() {
    let rank = |answer: &Value, rule: &str, name: &str| {
        let (rules, names) = (words(&[rule]), words(&[name]));
        judge(answer, &Expected { rules: &rules, names: &names, ..Expected::default() }).rank
    };
    let quoted = told(
        "n1: it takes 9 % of the time: SELECT id, town FROM citizen WHERE surname LIKE ...",
        &format!("the statement: {QUOTED}"),
        &format!("EXPLAIN (GENERIC_PLAN) {QUOTED};"),
    );
    for name in ["surname", "LIKE", "COLLATE"] {
        assert_eq!(rank(&quoted, "PLAN-01", name), None, "{name}");
        assert_eq!(rank(&quoted, ANY_RULE, name), None, "{name}");
    }
    // A text of pg_stat_activity, which is not in the account.
    let waiting = told("n1: it waits", "a waiting statement: lock table  stock in share mode", "SELECT 1;");
    assert_eq!(rank(&waiting, "PLAN-01", "share mode"), None);
    let own = told(
        "n1: the command CHECKPOINT begins a checkpoint every 2 s",
        "the index cannot serve LIKE: it needs text_pattern_ops",
        "CREATE INDEX ON citizen (surname text_pattern_ops);",
    );
    for name in ["text_pattern_ops", "LIKE", "surname"] {
        assert_eq!(rank(&own, "PLAN-01", name), Some(1), "{name}");
    }
    assert_eq!(rank(&own, ANY_RULE, "checkpoint"), Some(1));
    // Any rule counts only by its claim.
    assert_eq!(rank(&own, ANY_RULE, "text_pattern_ops"), None);
}

#[test]
fn loud_claims_that_are_not_true_are_false_and_quiet_ones_are_not() {
    let (rules, also) = (words(&["VAC-08"]), words(&["SES-01"]));
    let findings = [
        finding("VAC-08", "high", "off"),
        finding("SES-01", "medium", "true as well"),
        finding("NET-04", "medium", "loss"),
        finding("OBS-01", "low", "gap"),
        finding("HW-01", "note", "warm"),
    ];
    let verdict = judge(&answer(&findings), &Expected { rules: &rules, also: &also, ..Expected::default() });
    let wrong: Vec<&str> = verdict.wrong.iter().map(|claim| claim.rule.as_str()).collect();
    assert_eq!((verdict.outcome, wrong), (Outcome::First, vec!["NET-04"]));
    let healthy = Expected { healthy: true, ..Expected::default() };
    assert_eq!(judge(&answer(&findings[3..]), &healthy).outcome, Outcome::Silent);
    assert_eq!(judge(&answer(&findings[2..]), &healthy).outcome, Outcome::FalseAlarm);
    assert_eq!(
        verdict.claims[4],
        Claim { rule: "HW-01".into(), severity: "note".into(), claim: "warm".into() }
    );
}

/// On a host that others use, a claim about that is true, and no place is lost to it. On a quiet one it is false.
#[test]
fn what_other_programs_do_to_the_host_is_weighed() {
    let rules = words(&["PLAN-01"]);
    let findings = answer(&[finding("SES-02", "high", "others"), finding("PLAN-01", "medium", "scan")]);
    let judged = |foreign_cpu_pct: f64| {
        judge(&findings, &Expected { rules: &rules, foreign_cpu_pct, ..Expected::default() })
    };
    let (quiet, busy) = (judged(MACHINE_PCT / 2.0), judged(MACHINE_PCT * 3.0));
    assert_eq!((quiet.outcome, quiet.wrong.len()), (Outcome::AmongThree, 1));
    assert_eq!((busy.outcome, busy.wrong.len()), (Outcome::First, 0));
    let neighbour = words(&["SES-02"]);
    let verdict =
        judge(&findings, &Expected { rules: &neighbour, foreign_cpu_pct: 90.0, ..Expected::default() });
    assert_eq!(verdict.outcome, Outcome::First);
}

#[test]
fn a_symptom_below_its_cause_is_no_claim_of_its_own() {
    let rules = words(&["LCK-01"]);
    let mut below = finding("DIST-06", "high", "they wait");
    below["symptom_of"] = json!("LCK-01");
    let verdict = judge(
        &answer(&[below, finding("LCK-01", "high", "it blocks")]),
        &Expected { rules: &rules, ..Expected::default() },
    );
    assert_eq!((verdict.outcome, verdict.wrong.len()), (Outcome::First, 0));
}

/// Findings that were recorded on a real server: judged as printed, and once more without the rule of the condition.
#[test]
fn recorded_findings_lose_their_score_with_the_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drills/recorded");
    let all = catalogue();
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("findings are recorded").flatten() {
        let path = file.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let entry = all.iter().find(|entry| entry.name == name).expect("an entry of the catalogue");
        let text = std::fs::read_to_string(&path).expect("a file of text");
        let mut findings: Value = serde_json::from_str(&text).expect("findings.json of a run");
        let expected = Expected {
            rules: &entry.rules,
            names: &entry.names,
            symptoms: &entry.symptoms,
            also: &entry.also,
            ..Expected::default()
        };
        assert_eq!(judge(&findings, &expected).outcome, Outcome::First, "{name}");
        let list = findings["findings"].as_array_mut().expect("a list");
        list.retain(|one| !entry.rules.iter().any(|rule| one["rule"] == **rule));
        let without = judge(&findings, &expected).outcome;
        assert!(matches!(without, Outcome::Missed | Outcome::SymptomOnly), "{name}: {without:?}");
        count += 1;
    }
    assert!(count >= 4, "{count} recorded");
}
