//! The terminal page and the JSON output of made-up runs, byte by byte. `PGFATHOM_BLESS=1` writes them anew; the difference is
//! then to be read before it is committed.

// In a test a panic is the message.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use fixture::Scene;
use record::{Run, RunReader, Summary};
use serde_json::Value;
use std::path::Path;
use std::{env, fs};

fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var("PGFATHOM_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{name} differs (PGFATHOM_BLESS=1 accepts it)\n--- expected\n{expected}\n--- found\n{found}"
    );
}

#[test]
fn terminal_pages_and_json_are_as_agreed() {
    let scenes = [
        (Scene::Demo, "demo"),
        (Scene::Single, "single"),
        (Scene::Damaged, "damaged"),
        (Scene::Limited, "limited"),
        (Scene::Sweep, "sweep"),
        (Scene::Mixes, "mixes"),
    ];
    for (scene, name) in scenes {
        let folder = fixture::write(scene);
        compare(&format!("{name}.txt"), &report::text(folder.path()).unwrap());
        compare(&format!("{name}.json"), &report::json(folder.path()).unwrap());
    }
}

#[test]
fn a_step_is_told_alone_as_the_page_tells_it() {
    let folder = fixture::write(Scene::Demo);
    let told = report::step_line(folder.path(), "run-ycsb-c").unwrap();
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.starts_with("run ycsb-c    8 sessions"), "{told}");
    assert!(
        report::text(folder.path()).unwrap().lines().any(|line| squeeze(line) == squeeze(&told)),
        "{told}"
    );
    assert_eq!(report::step_line(folder.path(), "no such step").unwrap(), "");
}

#[test]
fn terminal_pages_are_plain_text() {
    for scene in [Scene::Demo, Scene::Damaged, Scene::Limited, Scene::Sweep, Scene::Mixes, Scene::Shares] {
        let text = report::text(fixture::write(scene).path()).unwrap();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            assert!(line.is_ascii() && line.trim_end() == line && line.len() <= 120, "{line:?}");
        }
    }
}

#[test]
fn json_is_the_summary_of_run_json() {
    let folder = fixture::write(Scene::Demo);
    let printed: Summary = serde_json::from_str(&report::json(folder.path()).unwrap()).unwrap();
    let text = fs::read_to_string(folder.path().join("run.json")).unwrap();
    let run: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(printed, run.summary);
}

/// The page's own words: verdict, numbers, tables, method; without scripts, style and chart data.
fn words_of(html: &str) -> String {
    let mut words = String::new();
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        words.push_str(&rest[..open]);
        words.push(' ');
        rest = &rest[open..];
        let skipped = ["<script", "<style"].iter().find(|tag| rest.starts_with(**tag));
        let end = match skipped {
            Some(tag) => rest.find(&format!("</{}", &tag[1..])).unwrap() + 2,
            None => 0,
        };
        rest = &rest[end..];
        rest = &rest[rest.find('>').unwrap() + 1..];
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_says_it_in_words_too() {
    let page = words_of(&report::html(fixture::write(Scene::Demo).path()).unwrap());
    for expected in [
        "NOTES",
        "Loaded 1,000,000 rows, verified every row twice and drove ycsb-c and ycsb-a without an error.",
        "run-ycsb-a: a checkpoint fell into the measured part",
        "101,010 rows/s",
        "PostgreSQL 18.4",
        "shared_buffers 1 GB default 128 MB",
        "pgfathom demo --rows 1000000",
        "usertable_p0 to usertable_p11 (12) 1,000,000",
        "40001",
        "checkpoint starting: wal",
        "offered and achieved rate differ",
        "Times are CLOCK_MONOTONIC of the client.",
    ] {
        assert!(page.contains(expected), "{expected:?} is not in: {page}");
    }
    let page = words_of(&report::html(fixture::write(Scene::Damaged).path()).unwrap());
    assert!(page.starts_with("DIFFERENCE"), "the title begins with the verdict");
    assert!(page.contains("Verification found a difference: 1 row missing, 1 field damaged"));
    assert!(page.contains("user774120985510230017 field3 &lt;byte 17&gt;"));
    let page = words_of(&report::html(fixture::write(Scene::Limited).path()).unwrap());
    assert!(page.contains("The client was the limit") && page.contains("measured nevertheless: ran ycsb-c"));
}

#[test]
fn a_sweep_is_told_as_one() {
    let page = words_of(&report::html(fixture::write(Scene::Sweep).path()).unwrap());
    for expected in [
        "Throughput of ycsb-a is highest with 32 sessions, at 9,098 transactions/s; its knee is at 17 sessions",
        "run-ycsb-a-c256-r1 does not count: cannot connect: sorry, too many clients already",
        "2 passes, every second one in reverse order",
        "statistics gathered of single: usertable",
        "contention 4.81 %",
        "run ycsb-a, 8 sessions, pass 2",
        "left out: this client was the limit",
    ] {
        assert!(page.contains(expected), "{expected:?} is not in: {page}");
    }
    let page = words_of(&report::html(fixture::write(Scene::Mixes).path()).unwrap());
    assert!(page.contains("The 50/50 mix of reads and updates collapses to 0.24x"), "{page}");
    assert!(page.contains("run read/update 50/50, 16 sessions"), "{page}");
}

#[test]
fn a_killed_sweep_is_worked_out_from_its_steps() {
    let folder = fixture::write(Scene::Sweep);
    let path = folder.path().join("run.json");
    let mut run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let whole = run["summary"]["sweep"].clone();
    let fields = run.as_object_mut().unwrap();
    fields.insert("state".into(), "running".into());
    fields.insert("summary".into(), serde_json::json!({"verb": "run"}));
    fields.remove("ended_us");
    fs::write(&path, run.to_string()).unwrap();
    let text = report::text(folder.path()).unwrap();
    assert!(text.contains("the run did not end") && text.contains("at 17 sessions"), "{text}");
    let printed: Value = serde_json::from_str(&report::json(folder.path()).unwrap()).unwrap();
    assert_eq!(printed["sweep"], whole);
    assert!(printed["tps"].is_null(), "a mean over numbers of sessions says nothing");
}

#[test]
fn nothing_in_the_page_points_outside() {
    let html = report::html(fixture::write(Scene::Demo).path()).unwrap();
    let places = html.match_indices("http").map(|(at, _)| &html[at..html.len().min(at + 60)]);
    let outside: Vec<&str> =
        places.filter(|place| place.starts_with("http:") || place.starts_with("https:")).collect();
    // The one address is in the banner that uPlot's licence wants kept.
    assert_eq!(outside.len(), 1, "{outside:?}");
    assert!(outside[0].starts_with("https://github.com/leeoniya/uPlot (v1.6.32) */"));
    for word in ["@import", "url(", "src=\"", "<link", "<iframe", "fetch(", "XMLHttpRequest", "WebSocket"] {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.contains("Permission is hereby granted, free of charge"), "uPlot's licence is kept");
}

/// The numbers that the page's script draws.
fn data_of(html: &str) -> Value {
    let opening = "<script type=\"application/json\" id=\"data\">";
    let start = html.find(opening).unwrap() + opening.len();
    let rest = &html[start..];
    serde_json::from_str(&rest[..rest.find("</script>").unwrap()]).unwrap()
}

fn chart<'a>(data: &'a Value, id: &str) -> &'a Value {
    let steps = data["steps"].as_array().unwrap();
    let mut charts = steps.iter().flat_map(|step| step["charts"].as_array().unwrap());
    charts.find(|chart| chart["id"] == id).unwrap_or_else(|| panic!("no chart {id}"))
}

fn sum(values: &Value) -> f64 {
    values.as_array().unwrap().iter().filter_map(Value::as_f64).sum()
}

#[test]
fn charts_add_up_to_the_totals() {
    let folder = fixture::write(Scene::Demo);
    let data = data_of(&report::html(folder.path()).unwrap());
    let reader = RunReader::open(folder.path()).unwrap();
    for key in ["run-ycsb-c", "run-ycsb-a"] {
        let all: u64 = reader
            .samples
            .iter()
            .filter(|sample| sample.step == key)
            .filter_map(|sample| match &sample.body {
                record::sample::Body::Client(body) => Some(body.transactions),
                _ => None,
            })
            .sum();
        let rate = chart(&data, &format!("{key}-rate"));
        let achieved = rate["series"].as_array().unwrap().last().unwrap();
        let drawn = sum(&achieved["values"]) * rate["column_s"].as_f64().unwrap();
        assert!((drawn - all as f64).abs() < 1.0, "{key}: {drawn} drawn, {all} counted");
        let heat = &chart(&data, &format!("{key}-latency"))["heat"]["columns"];
        let counted: u64 = heat
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|column| column.as_array().unwrap().iter().skip(1))
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!(counted, all, "{key}: every response is in the heatmap");
    }
    assert_eq!(sum(&chart(&data, "load-ycsb-rows")["series"][0]["values"]).round(), 1_000_000.0);
}

#[test]
fn a_long_run_is_drawn_in_buckets_that_lose_nothing() {
    let folder = fixture::write(Scene::Long);
    let html = report::html(folder.path()).unwrap();
    assert!(html.len() <= report::PAGE_BYTES_MAX, "{} bytes", html.len());
    let data = data_of(&html);
    let rate = chart(&data, "run-long-rate");
    let columns = rate["x"].as_array().unwrap().len();
    assert!((300..=600).contains(&columns), "{columns} columns");
    let achieved = rate["series"].as_array().unwrap().last().unwrap();
    // One second of them all was 25 times as fast: a mean hides it, the band must not.
    let highest =
        achieved["range"]["high"].as_array().unwrap().iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert_eq!(highest, 2500.0);
    let worst = &chart(&data, "run-long-latency")["series"][2]["values"];
    let worst = worst.as_array().unwrap().iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert_eq!(worst, 7_654_321.0, "the one long response is not lost");
    assert_eq!(chart(&data, "run-long-latency")["heat"]["columns"].as_array().unwrap().len(), columns);
}

#[test]
fn a_run_of_very_many_steps_still_fits() {
    let html = report::html(fixture::write(Scene::ManySteps).path()).unwrap();
    assert!(html.len() <= report::PAGE_BYTES_MAX, "{} bytes", html.len());
    assert!(html.contains("step=run-sweep-159"), "every step is told of");
    assert!(html.contains("are omitted to keep the page small"), "and what is left out is said");
}
