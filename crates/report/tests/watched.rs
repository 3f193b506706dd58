//! What was watched and what was claimed, on the terminal, in the comparison and in the words of the page.

// In a test a panic is the message.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use fixture::{Folder, Scene};
use report::{CompareError, ComparedError};
use serde_json::Value;
use std::fs;

fn lines_with<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(word)).collect()
}

#[test]
fn the_terminal_page_tells_findings_waits_and_what_was_not_seen() {
    let folder = fixture::write(Scene::Watched);
    let text = report::text(folder.path()).unwrap();
    let high = lines_with(&text, "WAL-02");
    assert!(high[0].starts_with("high   WAL-02, node n1: A checkpoint forced by WAL volume"), "{text}");
    assert!(text.contains("alter system set max_wal_size = '16GB'"), "{text}");
    assert!(text.contains("1 condition found nothing, 1 had no data"), "{text}");
    let waits = lines_with(&text, "waits  ");
    assert!(waits.len() == 1 && waits[0].contains("CPU 1.9"), "{text}");
    assert!(text.contains("most: IO:DataFileRead"), "{text}");
    assert!(lines_with(&text, "unseen ")[0].contains("pg_stat_statements (n1)"), "{text}");
    assert!(text.find("WAL-02").unwrap() < text.find("waits  ").unwrap());
    for line in text.lines() {
        assert!(line.is_ascii() && line.trim_end() == line && line.len() <= 120, "{line:?}");
    }
}

#[test]
fn a_live_system_without_steps_has_a_page() {
    let folder = fixture::write(Scene::Live);
    let html = report::html(folder.path()).unwrap();
    for word in
        ["id=\"plot-watch-commits\"", "id=\"plot-watch-waits\"", "id=\"plot-watch-host-cpu\"", "Top SQL"]
    {
        assert!(html.contains(word), "{word}");
    }
    assert!(report::text(folder.path()).unwrap().contains("waits"));
}

#[test]
fn every_part_of_the_stack_is_on_the_page_only_with_data() {
    let words = [
        "waits",
        "lanes",
        "wal",
        "host-cpu",
        "disk-await",
        "disk-flush",
        "disk-bytes",
        "network",
        "lag-bytes",
        "lag-time",
        "blocked",
        "horizon",
    ];
    let html = report::html(fixture::write(Scene::Watched).path()).unwrap();
    let plain = report::html(fixture::write(Scene::Single).path()).unwrap();
    for word in words {
        let id = format!("id=\"plot-run-ycsb-a-{word}\"");
        assert!(html.contains(&id), "{word}");
        assert!(!plain.contains(&id), "{word} without data");
    }
    for sentence in [
        "nvme2n1 in md0 is an outlier",
        "the line is at 4 cores",
        "active sessions and server processes",
        "What held back the horizon",
        "Tables with most dead rows",
        "What was not monitored",
        "statements of other users have no text",
        "Functions that changed most",
        "1 condition: checked, nothing found",
        "1 condition: cannot tell",
    ] {
        assert!(html.contains(sentence), "{sentence}");
    }
    // The bar of the automatic vacuum that the log told of, and the one that was only seen at work.
    assert!(html.contains("automatic vacuum of public.usertable_p3"));
}

#[test]
fn the_fleet_is_told_by_its_peers() {
    let html = report::html(fixture::write(Scene::Fleet).path()).unwrap();
    for sentence in ["db1 nvme2n1 in md0 is an outlier", "5 nodes together", "n1 (the busiest)", "median of"]
    {
        assert!(html.contains(sentence), "{sentence}");
    }
    // The whole is the sum over the nodes: five with about six sessions each, not five times that.
    let whole = html.split("On average ").nth(1).unwrap().split(' ').next().unwrap();
    assert!((25.0..35.0).contains(&whole.parse::<f64>().unwrap()), "{whole} sessions");
    assert!(html.len() <= report::PAGE_BYTES_MAX, "{}", html.len());
}

#[test]
fn two_intervals_are_compared_in_every_form() {
    let folder = fixture::write(Scene::Watched);
    let compared = report::compare(folder.path(), "31-37,5-30").unwrap();
    for name in ["Clients", "Active sessions by wait event", "Server", "Statements", "Hosts"] {
        assert!(compared.text.lines().any(|line| line == name), "{name}\n{}", compared.text);
    }
    assert!(compared.text.lines().all(|line| line.is_ascii()), "{}", compared.text);
    let json: Value = serde_json::from_str(&compared.json).unwrap();
    assert_eq!(json["schema"], "pgfathom.comparison");
    let figure = |group: &str, name: &str, of: &str| {
        let groups = json["groups"].as_array().unwrap();
        let group = groups.iter().find(|one| one["name"] == group).unwrap();
        let figures = group["figures"].as_array().unwrap();
        let is_it = |one: &&Value| one["name"] == name && (of.is_empty() || one["of"] == of);
        figures.iter().find(is_it).unwrap_or_else(|| panic!("{name} {of}: {figures:?}")).clone()
    };
    let wal = figure("Server", "wal_bytes_per_s", "");
    assert!(wal["first"].as_f64().unwrap() > 80e6 && wal["second"].as_f64().unwrap() < 40e6, "{wal}");
    assert!((2.0..2.4).contains(&wal["ratio"].as_f64().unwrap()), "{wal}");
    let lock = figure("Active sessions by wait event", "sessions", "Lock:transactionid");
    assert_eq!(lock["second"].as_f64(), Some(0.0));
    assert!(lock["ratio"].is_null(), "nothing times something: {lock}");
    let tps = figure("Clients", "transactions_per_s", "");
    assert!(tps["ratio"].as_f64().unwrap() < 0.9, "{tps}");
    let disk = figure("Hosts", "read_or_write_ms", "db1 nvme2n1");
    assert!(disk["first"].as_f64().unwrap() > 30.0, "{disk}");
    assert!(compared.html.contains("id=\"comparison\"") && compared.html.contains("31 s to 37 s"));
}

#[test]
fn a_finding_names_its_bad_seconds_and_leaves_good_ones() {
    let folder = fixture::write(Scene::Watched);
    let compared = report::compare(folder.path(), "wal-02").unwrap();
    let json: Value = serde_json::from_str(&compared.json).unwrap();
    assert_eq!((json["finding"].as_str(), json["first"]["seconds"].as_f64()), (Some("WAL-02"), Some(6.0)));
    let good = json["second"]["windows"].as_array().unwrap();
    assert_eq!(good.len(), 2, "before and after: {good:?}");
    // The page compares the worst finding's seconds by itself.
    assert!(
        report::html(folder.path()).unwrap().contains("WAL-02: bad seconds (6.0 s) against good seconds")
    );
    let error = report::compare(folder.path(), "DSK-01").unwrap_err();
    assert!(matches!(error, ComparedError::Intervals(CompareError::NoGoodSeconds { .. })), "{error}");
}

#[test]
fn intervals_that_are_none_are_refused_with_a_hint() {
    let watched = fixture::write(Scene::Watched);
    let demo = fixture::write(Scene::Demo);
    let cases = [
        (&watched, "soon", "neither two intervals nor a finding", "WAL-02"),
        (&watched, "5-30", "neither two intervals", "35-48,5-30"),
        (
            &watched,
            "5-30,900-950",
            "seconds 900 to 950 are not within run-ycsb-a, which took 65.0 s",
            "between 0 and 65.0",
        ),
        (&watched, "nothing:1-2,3-4", "the run has no step nothing", "run-ycsb-a:35-48"),
        (&demo, "1-2,3-4", "the run has several steps", "run-ycsb-c"),
    ];
    for (folder, given, said, hint) in cases {
        let error = report::compare(folder.path(), given).unwrap_err();
        assert!(error.to_string().contains(said), "{given}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{given}: {:?}", error.hint());
    }
    assert!(report::compare(demo.path(), "run-ycsb-a:35-40,10-20").is_ok());
}

#[test]
fn damaged_findings_and_foreign_stacks_are_said_and_do_no_harm() {
    let folder = fixture::write(Scene::Watched);
    fs::write(folder.path().join("findings.json"), "{\"findings\": [").unwrap();
    fs::write(folder.path().join("stacks/x.perf"), [0u8, 255, 9, 10]).unwrap();
    let text = report::text(folder.path()).unwrap();
    assert!(text.contains("findings.json cannot be read"), "{text}");
    let html = report::html(folder.path()).unwrap();
    // Without findings the slices' own reasons tell the sides apart.
    assert!(html.contains("Bad seconds are slices kept because of an anomaly"));
    let empty = Folder::new("20251120-101500-run-nothing");
    fs::write(empty.path().join("samples.ndjson"), "{\"t_us\":5,\"source\":\"wait\",\"sessions\":18446744073709551615}\n{\"t_us\":18446744073709551615,\"interval_us\":9,\"source\":\"host\",\"cpu_user_pct\":-1e308}\n{\"t_us\":7,\"interval_us\":1,\"source\":\"disk\",\"reads\":18446744073709551615,\"read_await_ms\":1e308}\n").unwrap();
    assert!(report::html(empty.path()).unwrap().contains("</html>"));
    assert!(!report::text(empty.path()).unwrap().is_empty());
}
