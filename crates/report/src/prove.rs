//! The verdicts on promises: on the terminal a paragraph each and a table of faults by settings, on the page tables.

use crate::failover;
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::{columns, fold, push};
use record::model::Run;
use record::number;
use record::promise::{self, Promise, Standing};
use serde_json::{Map, Value};

/// Witnesses of one promise that are printed; run.json holds more. A line that begins with a space continues the previous one.
const WITNESSES_MAX: usize = 3;
/// Lines of them that are printed.
const WITNESS_LINES_MAX: usize = 40;
/// Under the sentence of a promise.
const INDENT: &str = "      ";

/// Prints them; nothing when there are none.
pub(crate) fn print(out: &mut String, run: &Run) {
    let promises = promise::of(run);
    if promises.is_empty() {
        return;
    }
    out.push('\n');
    for promise in &promises {
        paragraph(out, promise);
    }
    let mut workloads: Vec<&str> = Vec::new();
    for promise in &promises {
        if !workloads.contains(&promise.workload.as_str()) {
            workloads.push(&promise.workload);
        }
    }
    for workload in workloads {
        matrix(out, &promises, workload);
    }
    out.push('\n');
    push(out, &clause(promises));
}

/// `68 promises: 19 by design, 49 kept`.
pub(crate) fn clause<'a>(promises: impl IntoIterator<Item = &'a Promise>) -> String {
    let standings: Vec<Standing> = promises.into_iter().map(|promise| promise.standing).collect();
    let words: Vec<String> = Standing::ALL
        .into_iter()
        .map(|standing| (standing, standings.iter().filter(|other| **other == standing).count()))
        .filter(|(_, count)| *count > 0)
        // A comma within an item would be ambiguous in a list with commas.
        .map(|(standing, count)| format!("{count} {}", standing.description().replace(", ", " and ")))
        .collect();
    format!("{}: {}", number::counted(standings.len() as u64, "promise"), words.join(", "))
}

fn paragraph(out: &mut String, promise: &Promise) {
    let mut place = promise.setting.clone();
    if !promise.fault.is_empty() {
        place = [place, promise.fault.clone()]
            .into_iter()
            .filter(|words| !words.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
    }
    let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
    fold(
        out,
        &format!("{:17} ", promise.standing.description()),
        &format!("{}: {}{place}", promise.workload, promise.promise),
    );
    if promise.n > 0 {
        fold(out, INDENT, &evidence(promise));
    }
    if let Some(failover) = &promise.failover {
        fold(out, INDENT, &failover::line(failover));
    }
    let figures = figures(promise);
    if !figures.is_empty() {
        fold(out, INDENT, &figures);
    }
    let needs_words = !matches!(promise.standing, Standing::Kept);
    if needs_words {
        let mut witnesses = 0;
        for line in promise.witness.iter().take(WITNESS_LINES_MAX) {
            let text = line.trim_start();
            witnesses += usize::from(text.len() == line.len());
            if witnesses > WITNESSES_MAX {
                break;
            }
            fold(out, &format!("{INDENT}| {}", &line[..line.len() - text.len()]), text);
        }
        if !promise.why.is_empty() {
            fold(out, &format!("{INDENT}why:    "), &promise.why);
        }
        if !promise.change.is_empty() {
            fold(out, &format!("{INDENT}change: "), &promise.change);
        }
    }
}

/// `0 of 12,345 sums read; below 0.024 % with 95 % confidence; the control showed it 17 times in 400`.
fn evidence(promise: &Promise) -> String {
    let mut words = promise::seen(promise);
    if let Some(bound) = promise.bound {
        words.push_str(&format!("; below {} with 95 % confidence", percent(bound)));
    }
    if let Some(control) = &promise.control {
        words.push_str(&format!(
            "; control ({}): {} of {}",
            control.what,
            number::count(control.seen),
            number::count(control.n)
        ));
    }
    words
}

/// A share with two significant digits: a bound is not more exact.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = if value <= 0.0 { 0 } else { (1 - value.log10().floor() as i32).clamp(0, 9) as usize };
    format!("{value:.digits$} %")
}

/// The figures that matter: zeros are left to run.json.
fn figures(promise: &Promise) -> String {
    let shown = promise
        .figures
        .iter()
        .filter_map(|(name, value)| Some(format!("{} {}", label(name), figure(name, value)?)));
    shown.collect::<Vec<_>>().join(", ")
}

fn label(name: &str) -> String {
    let name = name.strip_suffix("_us").or_else(|| name.strip_suffix("_s")).unwrap_or(name);
    name.replace("_us_", " ").replace('_', " ")
}

fn figure(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        Value::Number(number) if name.contains("_us") => Some(number::latency(number.as_f64()?)),
        Value::Number(number) if name.ends_with("_s") => Some(format!("{:.2} s", number.as_f64()?)),
        Value::Number(number) if name.starts_with("share_") => Some(percent(number.as_f64()?)),
        Value::Number(number) if name.ends_with("_bytes") => Some(number::bytes(number.as_f64()?)),
        Value::Number(number) => Some(match number.as_u64() {
            Some(count) => number::count(count),
            None => format!("{:.2}", number.as_f64()?),
        }),
        Value::Array(items) if items.is_empty() => None,
        // What several repeats have measured after each fault of a plan.
        Value::Array(items) if items.iter().all(Value::is_object) => {
            Some(items.iter().filter_map(|item| figure(name, item)).collect::<Vec<_>>().join(", then "))
        }
        Value::Array(items) => Some(
            items
                .iter()
                .map(|item| figure(name, item).unwrap_or_else(|| "never".to_owned()))
                .collect::<Vec<_>>()
                .join(" / "),
        ),
        Value::Object(map) if map.is_empty() => None,
        Value::Object(map) if map.contains_key("of") => Some(distribution(name, map)),
        Value::Object(map) => {
            Some(map.iter().map(|(key, item)| format!("{key} {item}")).collect::<Vec<_>>().join(", "))
                .map(|words| format!("({words})"))
        }
        _ => None,
    }
}

/// The measured values of several repeats: `1 ms / 1.20 ms / 4 ms (min / median / max of 10)`.
fn distribution(name: &str, map: &Map<String, Value>) -> String {
    let each: Vec<String> = ["min", "median", "max"]
        .iter()
        .filter_map(|which| map.get(*which))
        .map(|value| figure(name, value).unwrap_or_else(|| "0".to_owned()))
        .collect();
    let count = |which: &str| map.get(which).and_then(Value::as_u64).unwrap_or(0);
    let never = match count("never") {
        0 => String::new(),
        never => format!(", {} never", number::count(never)),
    };
    let each = if each.is_empty() { "none".to_owned() } else { each.join(" / ") };
    format!("{each} (min / median / max of {}{never})", number::count(count("of")))
}

fn matrix(out: &mut String, promises: &[&Promise], workload: &str) {
    let Some(grid) = promise::grid(promises, workload) else { return };
    out.push('\n');
    push(out, &format!("{workload}: faults by settings"));
    // Settings are long: the columns are numbered, and named below.
    let mut rows = vec![
        std::iter::once(String::new())
            .chain((1..=grid.columns.len()).map(|number| format!("({number})")))
            .collect::<Vec<_>>(),
    ];
    for (fault, cells) in &grid.rows {
        let name = if fault.is_empty() { "no fault" } else { fault };
        let cells = cells.iter().map(|cell| cell.map_or("", Standing::description).to_owned());
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    columns(out, &rows, |_| true);
    for (number, setting) in (1..).zip(&grid.columns) {
        push(out, &format!("  ({number}) {setting}"));
    }
}

/// The same on the page.
pub(crate) fn section(out: &mut String, run: &Run) {
    let promises = promise::of(run);
    if promises.is_empty() {
        return;
    }
    out.push_str("<section id=\"promises\"><h2>Promises</h2>\n");
    let rows: Vec<Row> = promises.iter().map(|promise| row(promise)).collect();
    let head = [
        ("promise", true),
        ("", true),
        ("setting", true),
        ("fault", true),
        ("seen", false),
        ("of", false),
        ("at most (95 %)", false),
        ("control", false),
        ("read in", true),
    ];
    table(out, "Verdict for each promise", &head, &rows);
    failover::section(out, &promises);
    let mut workloads: Vec<&str> = Vec::new();
    for promise in &promises {
        if !workloads.contains(&promise.workload.as_str()) {
            workloads.push(&promise.workload);
        }
    }
    for workload in workloads {
        let Some(grid) = promise::grid(&promises, workload) else { continue };
        let head: Vec<(&str, bool)> = std::iter::once(("fault", true))
            .chain(grid.columns.iter().map(|setting| (*setting, true)))
            .collect();
        let rows: Vec<Row> = grid
            .rows
            .iter()
            .map(|(fault, cells)| {
                let name = if fault.is_empty() { "no fault" } else { fault };
                let cells = cells.iter().map(|cell| Cell::word(cell.map_or("", Standing::description)));
                Row::new(std::iter::once(Cell::word(name)).chain(cells).collect())
            })
            .collect();
        table(out, &format!("{workload}: faults by settings"), &head, &rows);
    }
    let detail =
        promises.iter().filter(|promise| promise.standing != Standing::Kept && !promise.why.is_empty());
    for promise in detail {
        out.push_str(&format!(
            "<details><summary>{}: {}</summary>\n",
            escape(promise.standing.description()),
            escape(&promise.promise)
        ));
        for (label, words) in
            [("why", promise.why.as_str()), ("change", &promise.change), ("figures", &figures(promise))]
        {
            if !words.is_empty() {
                out.push_str(&format!("<p><strong>{label}</strong> {}</p>\n", escape(words)));
            }
        }
        if !promise.witness.is_empty() {
            let lines: Vec<String> = promise.witness.iter().map(|line| escape(line)).collect();
            out.push_str(&format!("<pre>{}</pre>\n", lines.join("\n")));
        }
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn row(promise: &Promise) -> Row {
    let control = promise
        .control
        .as_ref()
        .map(|control| format!("{} of {}", number::count(control.seen), number::count(control.n)));
    Row::new(vec![
        Cell::words(format!("{}: {}", promise.workload, promise.promise)),
        Cell::word(promise.standing.description()),
        Cell::words(&promise.setting),
        Cell::words(&promise.fault),
        Cell::number(number::count(promise.seen)),
        Cell::number(format!("{} {}", number::count(promise.n), promise.unit)),
        Cell::number(promise.bound.map(percent).unwrap_or_default()),
        Cell::number(control.unwrap_or_default()),
        Cell::words(promise.reading.description()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::model::Step;
    use record::promise::{Control, Reading};
    use serde_json::json;

    fn promise(standing: Standing, setting: &str, seen: u64) -> Promise {
        Promise {
            workload: "ack".into(),
            promise: "nothing that was acknowledged is lost".into(),
            setting: setting.into(),
            fault: "kill -9".into(),
            standing,
            n: 12_000,
            unit: "acknowledged commits".into(),
            reading: Reading::Statements,
            seen,
            bound: (seen == 0).then_some(0.00025),
            control: Some(Control { what: "a row taken away".into(), n: 1, seen: 1 }),
            witness: vec!["lost: transaction 7".into(), "2".into(), "3".into(), "4".into()],
            why: "the WAL writer had not written it".into(),
            change: "set synchronous_commit = on".into(),
            failover: None,
            figures: json!({"rpo_us": 4_200, "rpo_bytes": 8_192, "holes": 0, "rto_write_us": [1_000, null], "share_lost": 0.0001})
                .as_object()
                .cloned()
                .unwrap(),
        }
    }

    #[test]
    fn a_page_shows_what_how_much_why_and_what_to_change() {
        let step = Step {
            promises: vec![
                promise(Standing::Kept, "on", 0),
                promise(Standing::ByDesign, "off", 3),
                promise(Standing::AllowedNotSeen, "local", 0),
            ],
            ..Step::default()
        };
        let run = Run { steps: vec![step], ..Run::default() };
        let mut out = String::new();
        print(&mut out, &run);
        for words in [
            "kept",
            "0 of 12,000 acknowledged commits; below 0.025 % with 95 % confidence; control (a row taken away): 1 of 1",
            "by design",
            "| lost: transaction 7",
            "why:    the WAL writer had not written it",
            "change: set synchronous_commit = on",
            "rpo 4.20 ms",
            "rto write 1 ms / never",
            "share lost 0.010 %",
            "(1) on",
            "(2) off",
            "(3) local",
            "allowed, not seen ack: nothing",
            "3 promises: 1 by design, 1 allowed and not seen, 1 kept",
        ] {
            assert!(out.contains(words), "{words:?} is missing in:\n{out}");
        }
        assert!(!out.contains("holes") && !out.contains("| 4"), "{out}");
        assert!(!out.contains("one snapshot"), "{out}");
        // What was kept needs no excuse.
        assert_eq!(out.matches("why:").count(), 2, "{out}");
        assert!(out.is_ascii() && out.lines().all(|line| line.len() <= 110), "{out}");
    }

    #[test]
    fn repeats_are_shown_as_a_distribution() {
        let spread = json!({"min": 900, "median": 1_200, "max": 4_000, "of": 10, "never": 1});
        assert_eq!(
            figure("rto_write_us", &spread).unwrap(),
            "900 us / 1.20 ms / 4 ms (min / median / max of 10, 1 never)"
        );
        let both = figure("rto_write_us", &json!([spread, spread])).unwrap();
        assert_eq!(both.matches("(min / median / max of 10, 1 never)").count(), 2);
        assert!(both.contains("), then 900 us"), "{both}");
        let calm = json!({"min": 0, "median": 0, "max": 0, "of": 3});
        assert_eq!(figure("rpo_us", &calm).unwrap(), "0 / 0 / 0 (min / median / max of 3)");
        assert_eq!(
            figure("rto_read_us", &json!({"of": 2, "never": 2})).unwrap(),
            "none (min / median / max of 2, 2 never)"
        );
    }

    #[test]
    fn the_section_escapes_messages_of_servers() {
        let mut broken = promise(Standing::Broken, "on", 2);
        broken.witness = vec!["<b>1 & 2</b>".into()];
        let run = Run { steps: vec![Step { promises: vec![broken], ..Step::default() }], ..Run::default() };
        let mut out = String::new();
        section(&mut out, &run);
        assert!(out.contains("&lt;b&gt;1 &amp; 2&lt;/b&gt;") && !out.contains("<b>"), "{out}");
        assert!(out.contains("BROKEN") && out.contains("<strong>change</strong>"), "{out}");
        assert!(out.contains("each SELECT separately, without a common snapshot"), "{out}");
    }

    #[test]
    fn no_promises_no_page() {
        let mut out = String::new();
        print(&mut out, &Run::default());
        section(&mut out, &Run::default());
        assert_eq!(out, "");
    }
}
