//! Recorded matrices, a published one among them, and planted faults: the right node is named, and no other.

use super::*;
use crate::finding::{Level, Severity};
use crate::model::{ErrorStatistics, Step, Verdict};
use crate::summary::{LatencySummary, Summary};
use serde_json::{Value, json};

/// Seven servers of a petabyte cluster, transactions per second by connect node (row) and data node (column), as published. Node 7 had
/// its file system mounted with a wrong stripe width. One cell was never given.
const PUBLISHED: [[f64; 7]; 7] = [
    [15805.0, 710.0, 764.0, 649.0, 751.0, 734.0, 242.0],
    [741.0, 10987.0, 725.0, 629.0, 677.0, 697.0, 229.0],
    [984.0, 905.0, 23673.0, 825.0, 914.0, 931.0, 333.0],
    [779.0, 634.0, 670.0, 10220.0, 623.0, 633.0, 214.0],
    [771.0, 712.0, 764.0, 628.0, 7830.0, 695.0, 0.0],
    [810.0, 751.0, 802.0, 654.0, 693.0, 37807.0, 219.0],
    [223.0, 236.0, 219.0, 206.0, 210.0, 330.0, 1663.0],
];

const SEVEN: [&str; 7] = ["1", "2", "3", "4", "5", "6", "7"];

fn published() -> Matrix {
    let rates: Vec<Vec<Option<f64>>> =
        PUBLISHED.iter().map(|row| row.iter().map(|rate| (*rate > 0.0).then_some(*rate)).collect()).collect();
    Matrix::of_rates(&SEVEN, "select", &rates)
}

/// A matrix of `n` nodes with rates that vary by a few percent, own rows `own` times as fast.
fn healthy(n: usize, own: f64, change: impl Fn(usize, usize) -> f64) -> Matrix {
    let names: Vec<String> = (1..=n).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rate = |row: usize, column: usize| {
        let noise = 1.0 + ((row * 31 + column * 17) % 11) as f64 / 100.0 - 0.05;
        let base = if row == column { 1000.0 * own } else { 1000.0 };
        base * noise * change(row, column)
    };
    let rates: Vec<Vec<Option<f64>>> =
        (0..n).map(|row| (0..n).map(|column| Some(rate(row, column))).collect()).collect();
    Matrix::of_rates(&names, "select", &rates)
}

fn parts(matrix: &Matrix) -> Vec<(Part, Option<&str>, Option<&str>)> {
    let parts = matrix.operations[0]
        .outliers
        .iter()
        .map(|odd| (odd.what, odd.connect.as_deref(), odd.data.as_deref()));
    parts.collect()
}

#[test]
fn the_published_matrix_names_node_7_and_the_diagonal() {
    let matrix = published();
    let select = &matrix.operations[0];
    let named = parts(&matrix);
    for part in
        [(Part::Row, Some("7"), None), (Part::Column, None, Some("7")), (Part::Own, Some("7"), Some("7"))]
    {
        assert!(named.contains(&part), "{part:?} is missing in {named:?}");
    }
    let others: Vec<_> =
        named.iter().filter(|part| part.0 != Part::Path && part.1.or(part.2) != Some("7")).collect();
    assert!(others.is_empty(), "{others:?}");
    let row = &select.outliers.iter().find(|odd| odd.what == Part::Row).unwrap();
    assert!((0.25..0.40).contains(&row.ratio), "{row:?}");
    assert!((10.0..20.0).contains(&select.own_per_remote().unwrap()), "{:?}", select.own_per_remote());
    let findings = matrix.findings();
    assert_eq!((findings[0].rule.as_str(), findings[0].severity), ("matrix-node", Severity::High));
    assert!(
        findings[0].claim.starts_with("node 7 is slow: sessions that connect to it reach 0.3"),
        "{findings:#?}"
    );
    assert_eq!(findings[0].level, Level::PeerContrast);
    let last = findings.last().unwrap();
    assert_eq!(last.rule, "matrix-distance");
    assert!(last.claim.starts_with("select: a node's own rows are 15"), "{}", last.claim);
    assert_eq!(findings.iter().filter(|finding| finding.rule == "matrix-node").count(), 1);
}

#[test]
fn a_healthy_cluster_names_no_node() {
    for n in [1, 2, 3, 4, 7, 16] {
        for own in [1.0, 12.0] {
            let matrix = healthy(n, own, |_, _| 1.0);
            assert_eq!(parts(&matrix), [], "{n} nodes, own rows {own} times as fast");
            let distance = matrix.findings().iter().any(|finding| finding.rule == "matrix-distance");
            assert_eq!(distance, own > 1.0 && n > 1, "{n} nodes, own rows {own} times as fast");
        }
    }
}

/// A matrix of three rounds of which only the last finds what is planted, or all do.
#[test]
fn what_one_round_does_not_confirm_is_noise() {
    for (sick_rounds, is_named) in [(vec![2], false), (vec![0, 1], false), (vec![0, 1, 2], true)] {
        let slow = |row: usize, column: usize| if row == 1 || column == 1 { 0.2 } else { 1.0 };
        let mut matrix = healthy(4, 12.0, slow);
        for cell in &mut matrix.operations[0].cells {
            let is_sick = cell.connect == "n2" || cell.data == "n2";
            let rate = |round: usize| match is_sick && !sick_rounds.contains(&round) {
                true => cell.tps / 0.2,
                false => cell.tps,
            };
            cell.round_tps = (0..3).map(rate).collect();
        }
        matrix.judge();
        let named = matrix.findings().iter().any(|finding| finding.claim.starts_with("node n2 is slow"));
        assert_eq!(named, is_named, "{sick_rounds:?}: {:#?}", matrix.findings());
        assert_eq!(parts(&matrix).is_empty(), !is_named, "{sick_rounds:?}");
    }
}

#[test]
fn a_cell_that_was_cut_short_does_not_hide_a_sick_node() {
    let slow = |row: usize, column: usize| if row == 1 || column == 1 { 0.2 } else { 1.0 };
    let mut matrix = healthy(4, 12.0, slow);
    for (at, cell) in matrix.operations[0].cells.iter_mut().enumerate() {
        cell.round_tps = vec![cell.tps; if at < 5 { 3 } else { 2 }];
    }
    matrix.judge();
    assert!(matrix.findings().iter().any(|finding| finding.claim.starts_with("node n2 is slow")));
}

#[test]
fn a_planted_slow_node_is_named_at_any_size_and_place() {
    for n in [3, 4, 5, 7, 16] {
        for sick in [0, n / 2, n - 1] {
            let slow = |row: usize, column: usize| {
                if row == sick || column == sick { 0.3 } else { 1.0 }
            };
            let matrix = healthy(n, 12.0, slow);
            let name = format!("n{}", sick + 1);
            let findings = matrix.findings();
            let nodes: Vec<&str> = findings
                .iter()
                .filter(|finding| finding.rule != "matrix-distance")
                .map(|finding| finding.claim.as_str())
                .collect();
            assert_eq!(nodes.len(), 1, "{n} nodes: {findings:#?}");
            assert!(nodes[0].starts_with(&format!("node {name} is slow")), "{}", nodes[0]);
            assert!(nodes[0].contains("its own rows through itself at 0."), "{}", nodes[0]);
        }
    }
}

#[test]
fn rows_columns_owners_and_paths_are_distinguished() {
    type Change = fn(usize, usize) -> f64;
    type Case = (&'static str, Change, (Part, Option<&'static str>, Option<&'static str>), &'static str);
    let cases: [Case; 5] = [
        (
            "row",
            |row, column| if row == 1 && column != 1 { 0.4 } else { 1.0 },
            (Part::Row, Some("n2"), None),
            "matrix-row",
        ),
        (
            "column",
            |row, column| if column == 2 && row != 2 { 0.4 } else { 1.0 },
            (Part::Column, None, Some("n3")),
            "matrix-column",
        ),
        (
            "own",
            |row, column| if row == 0 && column == 0 { 0.4 } else { 1.0 },
            (Part::Own, Some("n1"), Some("n1")),
            "matrix-own",
        ),
        (
            "path",
            |row, column| if (row, column) == (3, 1) { 0.2 } else { 1.0 },
            (Part::Path, Some("n4"), Some("n2")),
            "matrix-path",
        ),
        (
            "fast",
            |row, column| if row == 0 && column == 0 { 2.5 } else { 1.0 },
            (Part::Own, Some("n1"), Some("n1")),
            "matrix-own",
        ),
    ];
    for (name, change, expected, code) in cases {
        let matrix = healthy(5, 10.0, change);
        assert_eq!(parts(&matrix), [expected], "{name}");
        assert_eq!(matrix.findings()[0].rule, code, "{name}");
    }
}

#[test]
fn two_nodes_cannot_tell_which_of_them_is_slow() {
    let matrix = healthy(2, 1.0, |row, _| if row == 1 { 0.1 } else { 1.0 });
    assert_eq!(parts(&matrix), []);
}

#[test]
fn holes_are_holes_and_rows_without_any_number_do_not_count() {
    let mut rates: Vec<Vec<Option<f64>>> = vec![vec![Some(100.0); 4]; 4];
    rates[2] = vec![None; 4];
    rates[0][3] = None;
    let matrix = Matrix::of_rates(&["a", "b", "c", "d"], "select", &rates);
    let select = &matrix.operations[0];
    assert_eq!(select.row_medians, [Some(100.0), Some(100.0), None, Some(100.0)]);
    assert_eq!(parts(&matrix), []);
    assert_eq!(Matrix::of_steps(&[]), None);
}

/// The step of a cell as the verb leaves it.
fn step(operation: &str, connect: &str, data: Option<&str>, tps: f64, p50: u64, totals: Value) -> Step {
    let mut parameters = json!({"operation": operation, "connect": connect});
    if let Some(data) = data {
        parameters["data"] = json!(data);
    }
    let latency = LatencySummary { p50, p99: p50 * 3, ..LatencySummary::default() };
    Step {
        verb: VERB.to_string(),
        parameters: parameters.as_object().cloned().unwrap(),
        totals: totals.as_object().cloned().unwrap(),
        summary: Summary {
            tps: Some(tps),
            transactions: Some(tps as u64 * 10),
            latency_us: Some(latency),
            ..Summary::default()
        },
        ..Step::default()
    }
}

#[test]
fn a_node_whose_cells_fail_is_named_and_not_compared() {
    let mut steps = vec![];
    for connect in ["a", "b", "c"] {
        for data in ["a", "b", "c"] {
            let tps = if connect == data { 9_000.0 } else { 1_500.0 + f64::from(connect.as_bytes()[0]) };
            let mut step = step("select", connect, Some(data), tps, 640, json!({"round_tps": [tps, tps]}));
            // c dies when its own cell has been measured; one of its cells had half of its time before.
            match (connect, data) {
                ("c", "c") => {}
                ("c", _) => step.summary.tps = None,
                ("a", "c") => {
                    (step.summary.tps, step.summary.transactions) = (Some(0.0), Some(0));
                    step.summary.errors = 7_343;
                    step.verdict.invalidate("no transaction was committed");
                }
                (_, "c") => {
                    step.summary.tps = Some(700.0);
                    step.summary.errors = 3_907;
                    step.verdict.notes =
                        vec!["3,907 transactions failed".to_string(), "only 12 transactions".to_string()];
                }
                _ => {
                    step.verdict.notes =
                        vec!["2 transactions failed".to_string(), "only 7 transactions".to_string()]
                }
            }
            steps.push(step);
        }
    }
    let matrix = Matrix::of_steps(&steps).expect("a matrix");
    let findings = matrix.findings();
    let claim = &findings[0].claim;
    assert!(
        claim.starts_with("node c was away or refused: 4 of the 5 cells with it") && claim.contains("11,250"),
        "{claim}"
    );
    assert_eq!(findings.iter().filter(|finding| finding.rule != DISTANCE).count(), 1, "{findings:#?}");
    let verdict = verdict(&steps);
    assert_eq!(verdict.reasons[0], *claim);
    assert!(
        verdict.notes.contains(&"in 5 of 9 cells: 2 to 3,907 transactions failed".to_string()),
        "{:?}",
        verdict.notes
    );
    // An interrupt leaves cells out, and no node is named for it.
    let first: Vec<Step> = steps.into_iter().filter(|step| step.summary.errors == 0).take(2).collect();
    let matrix = Matrix::of_steps(&first).expect("a matrix");
    assert!(matrix.findings().iter().all(|finding| finding.rule == DISTANCE));
}

/// A matrix of three nodes in which the cells that `is_broken` names fail, with the message of a refused password.
fn refusing(is_broken: impl Fn(&str, &str) -> bool) -> Matrix {
    let mut steps = vec![];
    for operation in ["select", "update"] {
        for (connect, data) in
            ["a", "b", "c"].iter().flat_map(|row| ["a", "b", "c"].map(|column| (*row, column)))
        {
            let tps = if connect == data { 9_000.0 } else { 1_500.0 };
            let mut step = step(operation, connect, Some(data), tps, 640, json!({"round_tps": [tps, tps]}));
            if is_broken(connect, data) {
                (step.summary.tps, step.summary.transactions, step.summary.errors) = (Some(0.0), Some(0), 7);
                let first_message = "FATAL: password authentication failed for user \"x\"".to_string();
                step.errors = vec![ErrorStatistics { count: 7, first_message, ..ErrorStatistics::default() }];
            }
            steps.push(step);
        }
    }
    Matrix::of_steps(&steps).expect("a matrix")
}

#[test]
fn a_refused_login_is_known_by_its_way() {
    type IsBroken = fn(&str, &str) -> bool;
    let cases: [(IsBroken, &str, &str, Option<&str>); 5] = [
        (
            |row, column| (row, column) == ("b", "c"),
            "requests of node b to node c fail",
            "its user mapping for c",
            None,
        ),
        (
            |row, column| row != column && row != "a" && column != "a",
            "requests between node b and node c fail",
            "network between b and c",
            None,
        ),
        (
            |row, column| row == "b" && column != "b",
            "node b serves its own rows, and its requests to all",
            "how b logs in at the others",
            Some("b"),
        ),
        (
            |row, column| column == "b" && row != "b",
            "node b serves its own rows, and the requests of all",
            "its pg_hba.conf",
            Some("b"),
        ),
        (
            |row, column| row == "b" || column == "b",
            "node b was away or refused: 10 of the 10 cells",
            "look at the log of b",
            Some("b"),
        ),
    ];
    for (is_broken, claim, remedy, node) in cases {
        let matrix = refusing(is_broken);
        let findings = matrix.findings();
        let first = &findings[0];
        assert!(
            first.claim.contains(claim) && first.claim.ends_with("failed for user \"x\""),
            "{}",
            first.claim
        );
        assert!(first.remedy.text.contains(remedy), "{:?}", first.remedy);
        assert_eq!(first.node.as_deref(), node);
        assert_eq!(findings.iter().filter(|finding| finding.rule != DISTANCE).count(), 1, "{findings:#?}");
    }
}

#[test]
fn steps_become_cells_and_round_trips_explain_them() {
    let counted = |trips: f64, predicted: f64| json!({"round_trips": trips, "round_trips_by": "counted", "ping_us": 100, "predicted_us_p50": predicted});
    let mut steps = vec![Step { verb: "load".to_string(), ..Step::default() }];
    for (connect, data) in [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")] {
        steps.push(match connect == data {
            true => step("select", connect, Some(data), 9_000.0, 110, json!({})),
            false => step("select", connect, Some(data), 1_500.0, 640, counted(5.0, 610.0)),
        });
    }
    steps.push(step(
        "update",
        "a",
        Some("b"),
        500.0,
        900,
        json!({"round_trips": 3.1, "round_trips_by": "estimated"}),
    ));
    let matrix = Matrix::of_steps(&steps).unwrap();
    assert_eq!(
        (matrix.connect.as_slice(), matrix.data.as_slice()),
        (&["a".to_string(), "b".to_string()][..], &["a".to_string(), "b".to_string()][..])
    );
    let names: Vec<&str> = matrix.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["select", "update"]);
    let cell = matrix.operations[0].cell("a", "b").unwrap();
    assert_eq!((cell.round_trips, cell.round_trips_by), (Some(5.0), Some(RoundTripsBy::Counted)));
    assert_eq!((cell.latency_us_p50, cell.latency_us_p99, cell.transactions), (640, 1_920, 15_000));
    let findings = matrix.findings();
    assert_eq!(findings.len(), 1);
    assert_eq!(
        findings[0].claim,
        "select: a node's own rows are 6 times as fast as another node's (9,000 against 1,500 transactions/s); each takes 5 round \
         trips between the nodes; multiplied by the ping this predicts 95 % of its median"
    );
    assert_eq!(findings[0].level, Level::DiscriminatingCounter);
    let text = serde_json::to_string(&matrix).unwrap();
    assert_eq!(serde_json::from_str::<Matrix>(&text).unwrap(), matrix);
}

#[test]
fn a_prediction_that_misses_is_not_called_an_explanation() {
    let totals =
        json!({"round_trips": 5, "round_trips_by": "counted", "ping_us": 20, "predicted_us_p50": 200});
    let steps = [
        step("select", "a", Some("a"), 9_000.0, 100, json!({})),
        step("select", "a", Some("b"), 1_000.0, 2_000, totals),
    ];
    let findings = Matrix::of_steps(&steps).unwrap().findings();
    assert!(
        findings[0].claim.ends_with("predict 10 % of its median: there is another cause"),
        "{findings:?}"
    );
    assert_eq!(findings[0].level, Level::CoOccurrence);
}

#[test]
fn a_replicated_cluster_has_rows_only() {
    let rate = |node: usize| if node == 2 { 300.0 } else { 1000.0 };
    let steps: Vec<Step> =
        (0..4).map(|node| step("select", &format!("n{node}"), None, rate(node), 100, json!({}))).collect();
    let matrix = Matrix::of_steps(&steps).unwrap();
    assert_eq!(matrix.data, [EVERY_NODE]);
    assert_eq!(parts(&matrix), [(Part::Row, Some("n2"), None)]);
    assert_eq!((matrix.operations[0].own_median, matrix.operations[0].remote_median), (None, Some(1000.0)));
}

#[test]
fn a_run_of_cells_concludes_with_its_matrix_and_folds_its_notes() {
    let mut steps = vec![];
    for (connect, data) in [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")] {
        let mut step = step("select", connect, Some(data), 1_000.0, 100, json!({}));
        step.name = format!("select-{connect}-{data}");
        step.verdict = Verdict::valid();
        step.verdict.notes =
            vec![format!("only {} transactions: the high percentiles are inexact", steps.len() + 7)];
        step.summary.duration_s = 2.0;
        steps.push(step);
    }
    steps[3].verdict.notes.push("an outage".to_string());
    let mut run = crate::Run { verb: VERB.to_string(), steps, ..crate::Run::default() };
    run.conclude();
    assert!(run.verdict.valid && run.summary.valid);
    assert_eq!(
        run.verdict.notes,
        ["in 4 of 4 cells: only 7 to 10 transactions: the high percentiles are inexact", "an outage"]
    );
    assert_eq!((run.summary.transactions, run.summary.tps, run.summary.steps.len()), (Some(40_000), None, 0));
    assert_eq!(run.summary.matrix.as_ref().map(|matrix| matrix.operations[0].cells.len()), Some(4));
    run.steps[1].verdict.invalidate("this client was the limit");
    run.conclude();
    assert_eq!(
        (run.summary.valid, run.verdict.reasons),
        (false, vec!["select-a-b: this client was the limit".to_string()])
    );
}
