use super::*;
use crate::RecordError;
use std::fs;

fn finding(rule: &str, severity: Severity, level: Level, share: Option<f64>) -> Finding {
    Finding {
        rule: rule.into(),
        id: rule.into(),
        severity,
        level,
        share_of_client_time: share,
        ..Finding::default()
    }
}

#[test]
fn the_worst_the_best_proved_and_the_largest_come_first() {
    let mut findings = Findings::new("r", "0");
    findings.findings = vec![
        finding("A", Severity::Low, Level::Intervention, None),
        finding("B", Severity::High, Level::Symptom, Some(0.9)),
        finding("C", Severity::High, Level::PeerContrast, Some(0.1)),
        finding("D", Severity::High, Level::PeerContrast, Some(0.4)),
        finding("E", Severity::Note, Level::Symptom, None),
    ];
    findings.rank();
    let order: Vec<&str> = findings.findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(order, ["D", "C", "B", "A", "E"]);
}

#[test]
fn the_share_of_db_time_ranks_and_symptoms_stand_behind_their_cause() {
    let mut findings = Findings::new("r", "0");
    let of = |rule: &str, impact: f64, cause: Option<&str>| Finding {
        impact: Some(impact),
        symptom_of: cause.map(str::to_string),
        benefit: Some(Benefit { least: impact / 2.0, most: impact }),
        ..finding(rule, Severity::High, Level::Symptom, None)
    };
    findings.findings =
        vec![of("A", 0.3, None), of("B", 0.9, Some("A")), of("C", 0.4, None), of("D", 0.1, Some("gone"))];
    findings.rank();
    let order: Vec<&str> = findings.findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(order, ["C", "A", "B", "D"], "whose cause is not in the file stands alone");
    let causes: Vec<&str> = findings.causes().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(causes, ["C", "A", "D"]);
    assert_eq!(
        findings.findings[0].costs(),
        ["40 % of DB time", "the remedy would save 20 % to 40 % of DB time"]
    );
}

#[test]
fn nothing_found_not_covered_and_cannot_tell_are_three_answers() {
    let words = |health| Findings { health, ..Findings::default() }.no_findings();
    let all = [Health::Clear, Health::NotCovered, Health::CannotTell].map(words);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{all:?}");
}

#[test]
fn what_is_written_is_read_and_nothing_is_left_beside_it() {
    let root = std::env::temp_dir().join(format!("pgfathom-findings-{}", std::process::id()));
    fs::create_dir_all(&root).expect("a folder");
    assert_eq!(Findings::read(&root).expect("no file is no error"), None);
    let mut findings = Findings::new("run-1", "0.1.0");
    findings.findings.push(finding("WAL-01", Severity::High, Level::DiscriminatingCounter, Some(0.5)));
    findings.checked.push(Checked { rule: "IO-01".into(), state: CheckState::Clean, ..Checked::default() });
    findings.write(&root).expect("writes");
    assert_eq!(Findings::read(&root).expect("reads"), Some(findings));
    let names: Vec<_> =
        fs::read_dir(&root).expect("reads").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, [files::FINDINGS]);
    fs::write(root.join(files::FINDINGS), "{\"findings\": [").expect("writes");
    let error = Findings::read(&root).expect_err("half a file");
    assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("explain")));
    fs::remove_dir_all(root).expect("cleans up");
}

#[test]
fn a_file_of_another_version_is_read_as_far_as_it_goes() {
    let text = r#"{"schema_version":9,"findings":[{"rule":"X-01","severity":"low","level":"symptom","invented":1}],"checked":[{"rule":"Y"}]}"#;
    let findings: Findings = serde_json::from_str(text).expect("reads");
    assert_eq!(
        (findings.findings[0].severity, findings.checked[0].state),
        (Severity::Low, CheckState::CannotTell)
    );
}

#[test]
fn windows_overlap_where_both_are() {
    let window = Window::new(10, 20);
    assert_eq!(window.overlap_us(Window::new(15, 30)), 5);
    assert_eq!(window.overlap_us(Window::new(20, 30)), 0);
    assert_eq!(window.overlap_us(Window::new(0, 5)), 0);
    assert_eq!(Window::new(5, 3).length_us(), 0);
    assert!(window.holds(20) && !window.holds(10));
}
