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
