//! A published matrix of seven servers, one of them sick, as a run directory: the terminal page and the web page name the node.

// In a test a panic is the message.
#![allow(clippy::unwrap_used)]

use record::matrix as names;
use record::model::{PHASE_MEASURE, Verdict};
use record::{LatencySummary, RunDir, State, What};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Transactions per second by connect node and data node, with 20 sessions; 0 was never given.
const PUBLISHED: [[u64; 7]; 7] = [
    [15805, 710, 764, 649, 751, 734, 242],
    [741, 10987, 725, 629, 677, 697, 229],
    [984, 905, 23673, 825, 914, 931, 333],
    [779, 634, 670, 10220, 623, 633, 214],
    [771, 712, 764, 628, 7830, 695, 0],
    [810, 751, 802, 654, 693, 37807, 219],
    [223, 236, 219, 206, 210, 330, 1663],
];
const SESSIONS: u64 = 20;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// Writes the directory that a matrix leaves; latencies follow from the rates.
fn write(name: &str, rates: &[Vec<u64>], data: impl Fn(usize) -> Option<String>, ends: bool) -> Folder {
    let path = std::env::temp_dir().join(format!("pgfathom-matrix-{name}-{}", std::process::id()));
    let folder = Folder(path.clone());
    let what = What { verb: "matrix".into(), name: "shardman".into(), ..What::default() };
    let dir = RunDir::create(Some(&path), &what).unwrap();
    for (row, rates) in rates.iter().enumerate() {
        for (column, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0) {
            let step = dir.begin_step("matrix", &format!("select-{}-{}", row + 1, column + 1)).unwrap();
            dir.begin_phase(&step, PHASE_MEASURE).unwrap();
            let p50 = SESSIONS * 1_000_000 / rate;
            let latency = LatencySummary { p50, p99: p50 * 4, ..LatencySummary::default() };
            dir.edit_step(&step, |step| {
                let mut parameters = json!({
                    names::OPERATION: "select", names::CONNECT: format!("node{}", row + 1),
                    "sessions": SESSIONS, "time_s": 60.0, "rounds": 3, "warmup_s": 1.0, "wire": "libpq"
                });
                if let Some(data) = data(column) {
                    parameters[names::DATA] = json!(data);
                }
                step.parameters = object(parameters);
                step.summary.duration_s = 60.0;
                step.summary.transactions = Some(rate * 60);
                step.summary.tps = Some(*rate as f64);
                step.summary.latency_us = Some(latency);
                if row != column {
                    step.totals = object(json!({
                        "round_trips": 5.0, "round_trips_by": "counted", "ping_us": 4_800.0,
                        "predicted_us_p50": 25_500.0
                    }));
                }
                step.verdict = Verdict::valid();
            })
            .unwrap();
            if ends {
                dir.end_step(&step, State::Finished).unwrap();
            }
        }
    }
    if ends {
        dir.finish(State::Finished).unwrap();
    } else {
        // As a killed process leaves it.
        std::mem::forget(dir);
    }
    folder
}

fn square(name: &str, ends: bool) -> Folder {
    let rates: Vec<Vec<u64>> = PUBLISHED.iter().map(|row| row.to_vec()).collect();
    write(name, &rates, |column| Some(format!("node{}", column + 1)), ends)
}

/// Keeps a page where somebody wants to look at it: `PGFATHOM_PICTURES=DIR`, as for the browser's test.
fn keep(name: &str, path: &Path) {
    if let Ok(dir) = std::env::var("PGFATHOM_PICTURES") {
        fs::create_dir_all(&dir).unwrap();
        fs::write(Path::new(&dir).join(format!("{name}.html")), report::html(path).unwrap()).unwrap();
    }
}

#[test]
fn the_sick_node_is_named_on_both_pages() {
    let folder = square("whole", true);
    let text = report::text(&folder.0).unwrap();
    eprintln!("{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("Node7 is slow: sessions that connect to it reach 0.3"), "{}", lines[1]);
    assert!(
        text.contains("[15,805]") && text.contains("[1,663]---"),
        "own rows are in brackets and judged among themselves"
    );
    assert!(text.contains("relative to the others: entered at node7 x 0.3"), "{text}");
    assert!(text.contains("rows of node7 x 0.3"), "{text}");
    assert!(text.contains(
        "5 round trips between the nodes, counted by pg_stat_statements of the data node; one takes 4.80 ms"
    ));
    assert!(text.contains("finding  node7 is slow"), "{text}");
    assert!(text.is_ascii(), "the terminal page is plain");
    assert!(lines.iter().all(|line| line.len() <= 112), "no line is absurdly wide");
    let html = report::html(&folder.0).unwrap();
    keep("matrix", &folder.0);
    assert!(html.contains("node7 <span class=\"bad\">▼ 0.3"), "the head of its row and column");
    assert!(
        html.contains("<td class=\"slow3 own\" title=\"node7 to node7, 0.15 times its peers"),
        "its own cell"
    );
    assert!(html.contains("<td class=\"none\" title=\"not measured\">"), "the hole");
    assert_eq!(html.matches("class=\"step\" id=\"step=").count(), 1, "cells have no sections of their own");
    let json: Value = serde_json::from_str(&report::json(&folder.0).unwrap()).unwrap();
    assert_eq!(json["matrix"]["operations"][0]["cells"].as_array().map(Vec::len), Some(48));
    assert_eq!(json["findings"][0]["rule"], "matrix-node");
}

#[test]
fn what_a_killed_matrix_leaves_is_a_matrix() {
    let folder = square("killed", false);
    let text = report::text(&folder.0).unwrap();
    assert!(text.contains("UNKNOWN") && text.contains("[15,805]"), "{text}");
    assert!(text.contains("the run did not end"), "{text}");
    assert!(report::html(&folder.0).unwrap().contains("table class=\"matrix\""));
    let json: Value = serde_json::from_str(&report::json(&folder.0).unwrap()).unwrap();
    assert_eq!(json["matrix"]["connect"].as_array().map(Vec::len), Some(7));
}

#[test]
fn a_replicated_cluster_has_one_column() {
    let rates: Vec<Vec<u64>> = [9_000, 8_800, 2_100, 9_100].iter().map(|rate| vec![*rate]).collect();
    let folder = write("copies", &rates, |_| None, true);
    let text = report::text(&folder.0).unwrap();
    eprintln!("{text}");
    keep("matrix-copies", &folder.0);
    assert!(text.contains("Sessions that connect to node3 reach 0.2"), "{text}");
    assert!(text.contains("every node"), "{text}");
}
