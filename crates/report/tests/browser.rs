//! The page in a real browser: headless Chromium, no network, both themes and paper, desktop and phone.
//!
//! The page checks itself when opened with `#selftest` (see `page/page.js`) and writes what it found into the document; this test
//! reads it with `--dump-dom`, and watches the browser's own log for console messages. Controls prove that the checks can fail.
//! With `PGFATHOM_SCREENSHOTS=DIR` pages and pictures are left in DIR for people to look at.

// In a test a panic is the message.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use fixture::{Folder, Scene};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

const DESKTOP: u32 = 1280;
const PHONE: u32 = 380;
/// Names of the browser, in the order they are tried.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// One browser at a time: several of them starve each other, and then their time runs out.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The browser; `None`, told, where there is none.
fn browser() -> Option<PathBuf> {
    let named = env::var_os("PGFATHOM_CHROMIUM").map(PathBuf::from);
    let found = named.or_else(|| BROWSERS.iter().find_map(|name| testing::needs::program(name).ok()));
    if found.is_none() {
        let why = "install it (apt-get install chromium), or name it with PGFATHOM_CHROMIUM";
        testing::skip(&testing::Lack::new("chromium", why));
    }
    found
}

/// Runs the browser on a page without network and with a profile of its own.
fn browse(
    browser: &Path,
    folder: &Path,
    page: &Path,
    hash: &str,
    width: u32,
    height: u32,
    more: &[&str],
) -> Output {
    let profile = folder.join("profile");
    // A network namespace of its own, where that is allowed; the resolver rule below holds everywhere.
    let isolated =
        Command::new("unshare").args(["-n", "true"]).output().is_ok_and(|output| output.status.success());
    let mut command = if isolated {
        let mut command = Command::new("unshare");
        command.arg("-n").arg(browser);
        command
    } else {
        Command::new(browser)
    };
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
        ])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}#{hash}", page.display()));
    let output = command.output().expect("the browser starts");
    let _ = fs::remove_dir_all(profile);
    output
}

/// A window cannot be made as narrow as a phone, a frame can. This page shows frames side by side, because the browser does not draw those that are
/// out of sight, and writes down what the pages in them report.
const FRAMES: &str = r#"<!doctype html><body style="margin:0;display:flex"><script>
addEventListener('message', event => {
  const out = document.body.appendChild(document.createElement('script'));
  out.type = 'application/json'; out.id = 'selftest'; out.textContent = event.data;
});
</script>"#;

/// What is in a script element with the result of the self-check.
const RESULT: &str = "<script type=\"application/json\" id=\"selftest\">";

/// Opens the page with its self-check, in a frame of each width, or as it is for one width; the problems found, by the page and in the browser's log.
fn problems(browser: &Path, html: &str, widths: &[u32]) -> Vec<String> {
    let _turn = turn();
    let folder = Folder::new("page");
    let page = folder.path().join("report.html");
    fs::write(&page, html).unwrap();
    let opened = if widths.len() > 1 {
        let frame = |width: &u32| {
            format!(
                r#"<iframe src="report.html#selftest" style="border:0;flex:none;width:{width}px;height:900px"></iframe>"#
            )
        };
        let frames = folder.path().join("frames.html");
        fs::write(&frames, format!("{FRAMES}{}", widths.iter().map(frame).collect::<String>())).unwrap();
        frames
    } else {
        page
    };
    let window = widths.iter().sum();
    let output = browse(browser, folder.path(), &opened, "selftest", window, 900, &["--dump-dom"]);
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    // The browser's own windows write to the same log; what the page says names the page's file as its source.
    let ours = |line: &&str| line.contains("CONSOLE") && !line.contains("source: chrome://");
    let mut problems: Vec<String> = log.lines().filter(ours).map(|line| format!("console: {line}")).collect();
    // The results stand at the end; a page that is opened as it is also holds the text of the script that writes them.
    let results: Vec<&str> = dom.rsplit(RESULT).take(dom.matches(RESULT).count().min(widths.len())).collect();
    let mut expected: Vec<u32> = widths.to_vec();
    for result in results {
        let found: Value = serde_json::from_str(&result[..result.find("</script>").unwrap()]).unwrap();
        let width = found["width"].as_u64().unwrap_or_default();
        match expected.iter().position(|expected| u64::from(*expected) == width) {
            Some(at) => drop(expected.remove(at)),
            None => problems.push(format!("a page is {width} wide, not one of {widths:?}")),
        }
        if found["ready"] != "yes" {
            problems.push(format!("the page at {width} px says data-ready={}", found["ready"]));
        }
        problems.extend(
            found["problems"].as_array().unwrap().iter().map(|problem| format!("at {width} px: {problem}")),
        );
    }
    if !expected.is_empty() {
        problems.push(format!(
            "no result of the self-check for the widths {expected:?}; the browser said: {log}"
        ));
    }
    problems
}

fn assert_sound(scene: &str, html: &str) {
    let Some(browser) = browser() else { return };
    assert!(html.len() <= report::PAGE_BYTES_MAX, "{scene}: {} bytes", html.len());
    keep_pictures(&browser, scene, html);
    let problems = problems(&browser, html, &[DESKTOP, PHONE]);
    assert!(problems.is_empty(), "{scene}:\n{}", problems.join("\n"));
}

/// For people: the page and how it looks, if a folder for that is named.
fn keep_pictures(browser: &Path, scene: &str, html: &str) {
    let Some(target) = env::var_os("PGFATHOM_SCREENSHOTS").map(PathBuf::from) else { return };
    let _turn = turn();
    fs::create_dir_all(&target).unwrap();
    let target = target.canonicalize().unwrap();
    let page = target.join(format!("{scene}.html"));
    fs::write(&page, html).unwrap();
    for (width, height) in [(DESKTOP, 2400), (PHONE, 3200)] {
        for theme in ["light", "dark"] {
            let picture =
                format!("--screenshot={}", target.join(format!("{scene}-{width}-{theme}.png")).display());
            let folder = Folder::new("picture");
            browse(browser, folder.path(), &page, &format!("theme={theme}"), width, height, &[&picture]);
        }
    }
}

fn page_of(scene: Scene) -> String {
    report::html(fixture::write(scene).path()).unwrap()
}

#[test]
fn the_forecast_of_a_plan_is_drawn() {
    let point = |at: u64| record::plan::Point {
        t_s: at as f64 * 36_000.0,
        rows: at * 1_000_000,
        disk_bytes: at * 1_000_000_000,
        fullest: at as f64 / 24.0,
        slowest: 0.0,
    };
    let mut plan = record::plan::Plan::default();
    (plan.forecast.points, plan.forecast.end_s) = ((0..24).map(point).collect(), 23.0 * 36_000.0);
    plan.forecast.outcome = "complete".into();
    plan.forecast.happened =
        vec![record::plan::Happened { t_s: 90_000.0, what: "a client host is lost <1>".into() }];
    (plan.space.is_known, plan.space.volume_bytes) = (true, 24_000_000_000);
    plan.space.keep_free_while_copying_bytes = 2_000_000_000;
    plan.problems = vec!["it will be late".into()];
    let html = report::plan_page(&plan, "rate 1 GB/s\n");
    assert!(html.contains("plot-plan-forecast"));
    assert_sound("plan", &html);
}

#[test]
fn a_demo_is_drawn_in_both_themes_on_desktop_and_phone() {
    let html = page_of(Scene::Demo);
    assert_sound("demo", &html);
    // The others are opened in frames only.
    let Some(browser) = browser() else { return };
    let problems = problems(&browser, &html, &[DESKTOP]);
    assert!(problems.is_empty(), "demo without a frame:\n{}", problems.join("\n"));
}

#[test]
fn a_single_run_is_drawn() {
    assert_sound("single", &page_of(Scene::Single));
}

#[test]
fn damage_is_drawn() {
    assert_sound("damaged", &page_of(Scene::Damaged));
}

#[test]
fn an_invalid_run_is_drawn() {
    assert_sound("limited", &page_of(Scene::Limited));
}

#[test]
fn what_a_killed_run_leaves_is_drawn() {
    let folder = fixture::write(Scene::Single);
    fs::remove_file(folder.path().join("run.json")).unwrap();
    fs::remove_file(folder.path().join("events.ndjson")).unwrap();
    let samples = fs::read(folder.path().join("samples.ndjson")).unwrap();
    fs::write(folder.path().join("samples.ndjson"), &samples[..samples.len() * 2 / 3]).unwrap();
    assert_sound("killed", &report::html(folder.path()).unwrap());
}

#[test]
fn a_log_of_another_program_is_drawn() {
    let folder = fixture::write(Scene::Single);
    for name in ["run.json", "events.ndjson", "samples.ndjson"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let log = folder.path().join("latency.hlog");
    let text = fs::read_to_string(&log).unwrap().replace("Tag=run-ycsb-a/ycsb-read.response", "Tag=reads");
    fs::write(&log, text).unwrap();
    assert_sound("foreign", &report::html(folder.path()).unwrap());
}

#[test]
fn sweeps_are_drawn() {
    assert_sound("sweep", &page_of(Scene::Sweep));
    if testing::is_thorough("sweeps of mixes and of shares: a sweep of sessions only") {
        assert_sound("mixes", &page_of(Scene::Mixes));
        assert_sound("shares", &page_of(Scene::Shares));
    }
}

#[test]
fn what_was_watched_is_drawn() {
    assert_sound("watched", &page_of(Scene::Watched));
    assert_sound("fleet", &page_of(Scene::Fleet));
}

#[test]
fn names_and_messages_of_the_world_stay_text() {
    assert_sound("wicked", &page_of(Scene::Wicked));
}

#[test]
fn an_empty_run_has_a_page() {
    let folder = Folder::new("20251120-101500-run-nothing");
    fs::write(folder.path().join("run.json"), r#"{"schema_version":1,"verb":"run","state":"running"}"#)
        .unwrap();
    assert_sound("empty", &report::html(folder.path()).unwrap());
}

#[test]
fn paper_gets_the_page_too() {
    let Some(browser) = browser() else { return };
    let html = page_of(Scene::Demo);
    let _turn = turn();
    let folder = Folder::new("paper");
    let page = folder.path().join("report.html");
    fs::write(&page, html).unwrap();
    let paper = folder.path().join("report.pdf");
    let printing = format!("--print-to-pdf={}", paper.display());
    let output = browse(&browser, folder.path(), &page, "theme=dark", DESKTOP, 900, &[&printing]);
    let pdf = fs::read(&paper)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let pages = pdf.windows(12).filter(|bytes| bytes.starts_with(b"/Type /Page\n")).count();
    assert!((3..=14).contains(&pages), "{pages} pages");
    // Sixteen charts as vectors weigh something; blank ones do not.
    assert!(pdf.len() > 150_000, "{} bytes", pdf.len());
}

/// The checks can fail: each of these pages has one thing wrong with it.
#[test]
fn a_page_with_a_fault_is_caught() {
    let Some(browser) = browser() else { return };
    let sound = page_of(Scene::Limited);
    let faults = [
        (
            "an outside picture",
            "</main>",
            "<img src=\"https://example.invalid/x.png\" alt=\"\"></main>",
            "blocked",
        ),
        ("an error on the console", "</main>", "</main><script>console.error('broken')</script>", "console"),
        ("a script that throws", "</main>", "</main><script>nothing.there()</script>", "console"),
        ("hidden charts", "</style>", ".plot { display: none }</style>", "charts drawn"),
        ("a page too wide", "</main>", "<div style=\"width:3000px\">x</div></main>", "scrolls sideways"),
        ("an id used twice", "</main>", "<i id=\"tested\"></i></main>", "id twice"),
        ("blank charts", "hooks: {", "drawOrder: [], hooks: {}, unused: {", "is blank"),
    ];
    all_caught(&browser, &sound, &faults);
}

/// The same of flame graphs: they must zoom, come back, and find.
#[test]
fn a_flame_graph_with_a_fault_is_caught() {
    let Some(browser) = browser() else { return };
    let sound = page_of(Scene::Watched);
    let faults = [
        ("a zoom that does nothing", "frame.width / width * 100", "frame.width", "does not fill the width"),
        (
            "a zoom that stays",
            "graph.zoom = frame && frame.width < 99.99 ? frame : null;\n    const",
            "graph.zoom = frame || graph.zoom;\n    const",
            "does not bring back",
        ),
        (
            "a search that finds nothing",
            "name.toLowerCase().includes(small)",
            "name.includes('\\n')",
            "does not find",
        ),
        ("arrows that do nothing", "ArrowDown: (all, at) =>", "Unknown: (all, at) =>", "does not lead down"),
    ];
    all_caught(&browser, &sound, &faults);
}

fn all_caught(browser: &Path, sound: &str, faults: &[(&str, &str, &str, &str)]) {
    for (fault, from, to, expected) in faults {
        assert!(sound.contains(from), "{fault}: nothing to break");
        let problems = problems(browser, &sound.replacen(from, to, 1), &[DESKTOP]);
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{fault} was not caught: {problems:?}"
        );
    }
}
