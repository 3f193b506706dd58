use super::cost::{OTHER_SHARES, SAVED};
use super::*;
use crate::case::fed;
use record::finding::Level;

fn finding(rule: &str, node: &str, severity: Severity, claim: &str) -> Finding {
    Finding {
        id: rule.to_string(),
        rule: rule.to_string(),
        node: Some(node.to_string()),
        severity,
        level: Level::DiscriminatingCounter,
        claim: claim.to_string(),
        ..Finding::default()
    }
}

/// Ten seconds of a node with four active sessions: half on a CPU, and the rest in one wait.
fn waiting(kind: &str, event: &str) -> Case {
    let mut lines = vec![];
    for second in 1..=10 {
        let at = format!(r#""t_us":{},"interval_us":1000000"#, second * 1_000_000);
        lines.push(format!(r#"{{{at},"source":"server","node":"n1","active_ms":4000}}"#));
        lines.push(format!(
            r#"{{{at},"source":"schedule","host":"h","node":"n1","who":"backends","tasks":4,"looked":4,"run_us":2000000,"wait_us":0}}"#
        ));
        lines.push(format!(
            r#"{{{at},"source":"wait","node":"n1","backend":"client backend","state":"active","wait_type":"{kind}","wait_event":"{event}","sessions":2}}"#
        ));
    }
    fed(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_same_cause_on_several_nodes_is_one_finding() {
    let mut all = vec![
        finding(
            "WAL-01",
            "n1",
            Severity::Medium,
            "n1: 40 % of the active sessions wait for the WAL to be written",
        ),
        finding(
            "WAL-01",
            "n2",
            Severity::High,
            "n2: 70.5 % of the active sessions wait for the WAL to be written",
        ),
        finding("IO-05", "n1", Severity::High, "n1: a disk is slow"),
    ];
    one_of_many_nodes(&mut all);
    assert_eq!(all.len(), 2, "{all:#?}");
    let wal = all.iter().find(|finding| finding.rule == "WAL-01").expect("kept");
    assert_eq!((wal.node.as_deref(), wal.also_at.as_slice()), (Some("n2"), ["n1".to_string()].as_slice()));
    assert!(wal.evidence[0].contains("n1: 40 %"), "{wal:?}");
    // Two tables of one node are two findings.
    let mut tables = vec![
        finding("VAC-04", "n1", Severity::Medium, "n1: a was vacuumed 3 times"),
        finding("VAC-04", "n1", Severity::Medium, "n1: a was vacuumed 4 times"),
    ];
    one_of_many_nodes(&mut tables);
    assert_eq!(tables.len(), 2);
}

#[test]
fn a_symptom_is_about_the_statement_of_its_cause() {
    let about = |rule: &str, text: &str| Finding {
        evidence: vec![format!("the statement: {text}")],
        ..finding(rule, "n1", Severity::Medium, "x")
    };
    for (cause, own, other, is_symptom) in [
        ("PLAN-78", "select a", "select a", true),
        ("PLAN-78", "select a", "select b", false),
        ("PLAN-78", "select a", "select b (inside of: select a)", true),
        // Statistics of a table that are old are so for all statements.
        ("PLAN-05", "select a", "select b", true),
    ] {
        let mut all = vec![about(cause, own), about("PLAN-24", other)];
        under_their_causes(&Case::default(), &mut all);
        assert_eq!(all[1].symptom_of.is_some(), is_symptom, "{cause}: {own}, {other}");
    }
}

#[test]
fn a_default_partition_explains_what_is_about_it_or_its_whole_table() {
    let cause = "n1: 72 % of the session time is in public.r_default, the default partition of public.r, in which 93 % of its rows lie";
    for (claim, is_symptom) in [
        ("n1: one statement that reads 9 rows of public.r_default to return 5", true),
        ("n1: a statement names public.r, which is unusual", true),
        ("n1: one statement that reads 9 rows of public.r_old to return 5", false),
    ] {
        let mut all = vec![
            finding("PLAN-86", "n1", Severity::High, cause),
            finding("PLAN-01", "n1", Severity::High, claim),
        ];
        under_their_causes(&Case::default(), &mut all);
        assert_eq!(all[1].symptom_of.is_some(), is_symptom, "{claim}");
    }
}

#[test]
fn a_symptom_stands_under_its_cause_on_the_same_node() {
    let mut all = vec![
        finding("LCK-01", "n1", Severity::High, "x"),
        finding("DIST-06", "n1", Severity::High, "x"),
        finding("DIST-06", "n2", Severity::High, "x"),
    ];
    under_their_causes(&Case::default(), &mut all);
    let causes: Vec<Option<&str>> = all.iter().map(|finding| finding.symptom_of.as_deref()).collect();
    assert_eq!(causes, [None, Some("LCK-01"), None]);
    // A condition that costs little explains nothing.
    let mut small =
        vec![finding("LCK-01", "n1", Severity::Low, "x"), finding("DIST-06", "n1", Severity::High, "x")];
    under_their_causes(&Case::default(), &mut small);
    assert!(small.iter().all(|finding| finding.symptom_of.is_none()));
    // One cause with three findings is one story.
    let mut commits: Vec<Finding> =
        ["WAL-01", "WAL-05", "TXN-01"].map(|rule| finding(rule, "n1", Severity::Medium, "x")).into();
    under_their_causes(&Case::default(), &mut commits);
    assert_eq!(commits.iter().filter(|finding| finding.symptom_of.as_deref() == Some("TXN-01")).count(), 2);
}

/// What a symptom explains is explained by its cause as well: two levels are enough.
#[test]
fn the_symptoms_of_a_symptom_stand_under_its_cause() {
    let causes = |rules: &[&str]| -> Vec<Option<String>> {
        let mut all: Vec<Finding> =
            rules.iter().map(|rule| finding(rule, "n1", Severity::Medium, "x")).collect();
        under_their_causes(&Case::default(), &mut all);
        all.into_iter().map(|finding| finding.symptom_of).collect()
    };
    let under = |cause: &str| Some(cause.to_string());
    assert_eq!(causes(&["TXN-01", "WAL-01", "REP-01"]), [under("REP-01"), under("REP-01"), None]);
    assert_eq!(causes(&["FS-05", "TXN-01", "WAL-01"]), [None, under("FS-05"), under("FS-05")]);
    assert_eq!(causes(&["TXN-13", "TXN-05", "GEN-01"]), [None, under("TXN-13"), under("TXN-13")]);
    assert_eq!(causes(&["SES-14", "SES-04"]), [None, under("SES-14")]);
    assert_eq!(causes(&["MEM-08", "MEM-02", "OBS-01"]), [None, under("MEM-08"), under("MEM-08")]);
    assert_eq!(causes(&["TXN-10", "TXN-20", "WAL-01"]), [under("TXN-20"), None, under("TXN-20")]);
    assert_eq!(causes(&["SES-16", "SES-01"]), [under("SES-01"), None]);
}

/// A setting explains what it makes, and no more.
#[test]
fn a_setting_has_the_symptoms_of_its_kind() {
    let of = |claim: &str, symptom: &str| {
        let mut all = vec![
            finding("CFG-01", "n1", Severity::Medium, claim),
            finding(symptom, "n1", Severity::High, "x"),
        ];
        under_their_causes(&Case::default(), &mut all);
        all[1].symptom_of.is_some()
    };
    let [compared, parallel] = ["wal_consistency_checking is all", "debug_parallel_query is on"];
    assert!(of(compared, "TXN-01") && of(compared, "WAL-11") && of(compared, "WAL-01"));
    assert!(of(parallel, "PLAN-23") && !of(parallel, "TXN-01") && !of(compared, "PLAN-23"));
    assert!(of("post_auth_delay is 1s", "SES-01") && !of(compared, "SES-01"));
}

#[test]
fn severity_follows_the_share_of_the_time_and_the_benefit_is_a_part_of_it() {
    let case = waiting("Lock", "extend");
    for (share, severity) in
        [(0.01, Severity::Note), (0.05, Severity::Low), (0.2, Severity::Medium), (0.5, Severity::High)]
    {
        let mut one = finding("LCK-05", "n1", Severity::High, "x");
        one.numbers.insert("share".to_string(), share);
        cost::weigh(&case, &mut one);
        assert_eq!((one.severity, one.impact), (severity, Some(share)));
        let benefit = one.benefit.expect("known");
        assert!(benefit.least > 0.0 && benefit.least < benefit.most && benefit.most <= share, "{benefit:?}");
    }
    // What endangers data is not judged by time.
    let mut danger = finding("REP-03", "n1", Severity::High, "x");
    danger.numbers.insert("share".to_string(), 0.001);
    cost::weigh(&case, &mut danger);
    assert_eq!((danger.severity, danger.impact, danger.benefit), (Severity::High, None, None));
}

#[test]
fn a_large_slice_without_a_rule_is_named_and_one_with_a_finding_is_not() {
    let case = waiting("Extension", "Extension");
    let left = uncovered(&case, &[]);
    let names: Vec<(&str, f64)> = left.iter().map(|left| (left.slice.as_str(), left.share)).collect();
    assert_eq!(names, [("extensions", 0.5), ("on a CPU", 0.5)]);
    assert!(left[0].look_at.contains("Extension:Extension 50 %") && !left[0].commands.is_empty(), "{left:?}");
    let known = uncovered(&case, &[finding("DIST-02", "n1", Severity::High, "x")]);
    assert!(known.iter().all(|left| left.slice != "extensions"), "{known:?}");
    let elsewhere = uncovered(&case, &[finding("DIST-02", "n2", Severity::High, "x")]);
    assert_eq!(elsewhere.len(), 2);
    // Sleeping by design is no loss.
    assert!(uncovered(&waiting("Timeout", "PgSleep"), &[]).iter().all(|left| left.slice == "on a CPU"));
}

#[test]
fn clear_not_covered_troubled_and_cannot_tell_are_four_answers() {
    let health_of = |case: &Case, all: Vec<Finding>| {
        let mut findings = Findings::new("r", "v");
        findings.findings = all;
        complete(case, &mut findings);
        findings.health
    };
    assert_eq!(health_of(&Case::default(), vec![]), Health::CannotTell, "nothing was watched");
    assert_eq!(health_of(&waiting("Timeout", "PgSleep"), vec![]), Health::Clear);
    assert_eq!(health_of(&waiting("Extension", "Extension"), vec![]), Health::NotCovered);
    let bad = || vec![finding("REP-03", "n1", Severity::High, "x")];
    assert_eq!(health_of(&waiting("Timeout", "PgSleep"), bad()), Health::Troubled);
    // A client at its limit shows nothing about the database.
    let ours = vec![finding("GEN-03", "n1", Severity::High, "x")];
    assert_eq!(health_of(&waiting("Timeout", "PgSleep"), ours), Health::Clear);
    let gap = r#"{"t_us":1,"source":"missing","node":"n1","what":"pg_stat_statements","why":"missing","lost":"much"}"#;
    let mut lines = vec![gap.to_string()];
    for second in 1..=10 {
        lines.push(format!(
            r#"{{"t_us":{},"interval_us":1000000,"source":"server","node":"n1","active_ms":0}}"#,
            second * 1_000_000
        ));
    }
    let blind = fed(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(health_of(&blind, vec![]), Health::CannotTell);
}

/// Every name in the tables is a rule or a part: a misspelt one would never match.
#[test]
fn the_tables_name_rules_and_parts_that_exist() {
    let known: BTreeSet<&str> = crate::rules::all().map(|rule| rule.id).collect();
    let mut named: Vec<&str> = SAVED.iter().map(|(rule, _, _)| *rule).collect();
    named.extend(CAUSES.iter().flat_map(|(cause, symptoms)| symptoms.iter().chain([cause])));
    named.extend(SLICES.iter().flat_map(slices::Slice::rules));
    named.extend(OTHER_SHARES);
    let unknown: Vec<&str> = named.into_iter().filter(|rule| !known.contains(rule)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for (rule, least, most) in SAVED {
        assert!(0.0 <= *least && least < most && *most <= 1.0, "{rule}");
    }
}
