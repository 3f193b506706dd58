//! One step of a run on the page: charts with their legends, captions and tables, transaction types, errors, checks, events.

use super::markup::{Cell, Row, escape, table};
use super::sections::{badge, parameter};
use crate::chart::{AREAS_MAX, Chart, ChartKind, Dash, FORECAST, Series, Tone, Unit};
use crate::facts::{Facts, StepFacts};
use record::LatencySummary;
use record::event;
use record::histogram::SAMPLES_BEYOND_MIN;
use record::hlog::tag_part;
use record::model::{Check, CheckResult, TypeStatistics};
use record::number;
use serde_json::Value;

/// The most lines of a table; the rest is only counted, and is in the files.
const LINES_MAX: usize = 50;
/// The most important parameters, in the order of display.
const FIRST_PARAMETERS: [&str; 8] =
    ["sessions", "schedule", "rate", "streams", "method", "depth", "wire", "workers"];

/// Height of a lane, and of the axis below them.
const LANE_PX: usize = 24;
const LANES_AXIS_PX: usize = 34;
/// The patterns of areas in the legend; the page's script draws the same on the areas (`HATCH`). Colour is never alone.
const AREA_HATCHES: [&str; AREAS_MAX] = [
    "",
    "M-2 10L8 0M5 10L15 0M12 10L22 0",
    "M0 0L10 10M7 0L17 10M14 0L24 10",
    "M-2 10L8 0M5 10L15 0M12 10L22 0M0 0L10 10M7 0L17 10M14 0L24 10",
    "M0 3.3h22M0 6.6h22",
    "M4 0v10M8.6 0v10M13.2 0v10M17.8 0v10",
    "M3 5h1M8 5h1M13 5h1M18 5h1",
    "M0 5h22",
];

/// The section of one step.
pub(super) fn section(
    out: &mut String,
    facts: &Facts,
    step: &StepFacts,
    charts: &[Chart],
    with_charts: bool,
) {
    let key = escape(&step.step.key);
    let began = match facts.steps.len() {
        1 => String::new(),
        _ => format!(", starting at {}", number::duration(step.step.start_us as f64 / 1e6)),
    };
    let took = number::duration(step.end_us.saturating_sub(step.step.start_us) as f64 / 1e6);
    out.push_str(&format!(
        "<section class=\"step\" id=\"step={key}\" tabindex=\"-1\"><h2>{} {}<button type=\"button\" class=\"zoomed\" data-step=\"{key}\">Reset zoom</button>\
         <span class=\"when\">{took}{began}</span></h2>\n",
        escape(&step.title()),
        badge(step.badge()),
    ));
    facts_line(out, step);
    verdict(out, facts, step);
    if !with_charts {
        out.push_str("<p class=\"under\">The charts of this step are omitted to keep the page small; its files have all the data.</p>\n");
    }
    let mut before_curve = true;
    for chart in charts {
        if chart.kind == ChartKind::Nines && before_curve {
            types(out, step);
            before_curve = false;
        }
        figure(out, chart);
    }
    if before_curve {
        types(out, step);
    }
    crate::nodes::section(out, &step.step.nodes);
    crate::statements::section(out, facts, step);
    crate::vacuum::section(out, step);
    benchmarks(out, step);
    checks(out, step);
    totals(out, step);
    errors(out, step);
    events(out, step);
    out.push_str("</section>\n");
}

fn facts_line(out: &mut String, step: &StepFacts) {
    let summary = &step.step.summary;
    // The most important ones come first, then the rest by name.
    let rank = |name: &str| {
        FIRST_PARAMETERS.iter().position(|first| *first == name).unwrap_or(FIRST_PARAMETERS.len())
    };
    let mut parameters: Vec<_> = step.step.parameters.iter().collect();
    parameters.sort_by_key(|(name, _)| rank(name));
    let mut facts: Vec<String> = parameters.into_iter().map(parameter).collect();
    if summary.duration_s > 0.0 {
        facts.push(format!("measured {}", number::duration(summary.duration_s)));
    }
    if step.knows_errors() && summary.transactions.is_some() && summary.errors.max(summary.retries) == 0 {
        facts.push("no errors, no retries".to_string());
    }
    let facts: Vec<String> = facts.iter().map(|fact| format!("<span>{}</span>", escape(fact))).collect();
    out.push_str(&format!("<p class=\"facts-line\">{}</p>\n", facts.join("")));
}

/// Reasons and notes of this step, where a run of one step has not already shown them at the top.
fn verdict(out: &mut String, facts: &Facts, step: &StepFacts) {
    let wording = &step.step.verdict;
    if facts.steps.len() < 2 || (wording.reasons.is_empty() && wording.notes.is_empty()) {
        return;
    }
    let class = step.badge().class();
    out.push_str(&format!("<ul class=\"reasons {class}\">"));
    for text in wording.reasons.iter().chain(&wording.notes) {
        out.push_str(&format!("<li>{}</li>", escape(text)));
    }
    out.push_str("</ul>\n");
}

pub(crate) fn figure(out: &mut String, chart: &Chart) {
    let (title, id) = (escape(&chart.title), escape(&chart.id));
    let kind = match chart.kind {
        ChartKind::Heat => "heat",
        ChartKind::Nines => "nines",
        ChartKind::Curve => "curve",
        ChartKind::Stack => "stack",
        ChartKind::Lanes => "lanes",
        ChartKind::Time if matches!(chart.unit, Unit::TransactionsPerSecond | Unit::RowsPerSecond) => "time",
        // The only chart of its section.
        ChartKind::Time if chart.id == FORECAST => "time",
        ChartKind::Time => "time minor",
    };
    let ramp = if chart.heat.is_some() { "<li>few<i class=\"ramp\"></i>many</li>" } else { "" };
    let mut legend: String = chart.series.iter().map(legend_entry).collect();
    let mut style = String::new();
    if let Some(lanes) = &chart.lanes {
        legend.push_str("<li class=\"one\"><output></output></li>");
        style = format!(" style=\"height:{}px\"", lanes.names.len() * LANE_PX + LANES_AXIS_PX);
    }
    out.push_str(&format!(
        "<figure><header><h3>{title}<span class=\"unit\">{}</span></h3>\
         <ul class=\"legend\"><li class=\"at\"><output></output></li>{ramp}{legend}</ul></header>\n\
         <div class=\"plot {kind}\"{style} id=\"plot-{id}\" tabindex=\"0\" role=\"application\" aria-roledescription=\"chart\" \
         aria-label=\"{title}. {} Arrow keys move the crosshair, Escape removes it.\"></div>\n\
         <figcaption><p>{}</p><details id=\"table-{id}\"><summary>Table<span class=\"sr\"> of {title}</span></summary></details></figcaption></figure>\n",
        unit_name(chart),
        escape(&chart.sentence),
        escape(&chart.sentence),
    ));
}

fn unit_name(chart: &Chart) -> &'static str {
    match (chart.kind, chart.unit) {
        (ChartKind::Heat, _) => "logarithmic scale",
        (ChartKind::Nines, _) => "logarithmic scale, nines to the right",
        (ChartKind::Lanes, _) => "",
        (_, Unit::TransactionsPerSecond) => "transactions/s",
        (_, Unit::RowsPerSecond) => "rows/s",
        (_, Unit::BytesPerSecond) => "bytes/s",
        (_, Unit::PerSecond) => "per second",
        (_, Unit::Us) => "",
        (_, Unit::Count) => "transactions",
        (_, Unit::Cores) => "cores",
        (_, Unit::Factor) => "measured / expected",
        (_, Unit::Sessions) => "sessions",
        (_, Unit::Percent) => "% of all cores",
        (_, Unit::Bytes) => "bytes",
        (_, Unit::Transactions) => "transactions old",
    }
}

fn legend_entry(one: &Series) -> String {
    let name = escape(&one.name);
    if let Some(area) = one.area {
        return format!(
            "<li class=\"one\"><svg class=\"area\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path d=\"M0 0h22v10H0z\" \
             style=\"fill:var(--c{area})\"/><path class=\"hatch\" d=\"{}\"/></svg>{name}<output></output></li>",
            AREA_HATCHES[area.min(AREA_HATCHES.len() - 1)]
        );
    }
    let colour = match one.tone {
        Tone::Main => "main",
        Tone::Quiet => "faint",
        Tone::Second => "second",
        Tone::Bad => "bad",
        Tone::Ink => "ink",
    };
    let pattern = match one.dash {
        Dash::Solid => "",
        Dash::Dashed => " stroke-dasharray=\"6 4\"",
        Dash::Dotted => " stroke-dasharray=\"0.1 5\" stroke-linecap=\"round\"",
    };
    format!(
        "<li class=\"one\"><svg viewBox=\"0 0 22 8\" aria-hidden=\"true\"><path d=\"M1 4h20\" style=\"stroke:var(--{colour})\" \
         stroke-width=\"2.2\"{pattern}/></svg>{name}<output></output></li>"
    )
}

/// Latency per transaction type, response and service in two lines each.
fn types(out: &mut String, step: &StepFacts) {
    let types = &step.step.types;
    if types.is_empty() {
        return;
    }
    let head = [
        ("type", false),
        ("count", false),
        ("per second", false),
        ("errors", false),
        ("", true),
        ("mean", false),
        ("p50", false),
        ("p90", false),
        ("p99", false),
        ("p99.9", false),
        ("longest", false),
        ("rate", true),
    ];
    let mut rows = vec![];
    for one in types.iter().take(LINES_MAX) {
        // In a closed loop nothing waits for a session, so response and service time are equal and shown once.
        let both = one.latency_us == one.service_us;
        let service = one.service_us.filter(|_| !both);
        let mut cells = vec![
            Cell::words(&one.name),
            Cell::number(number::count(one.transactions)),
            Cell::number(number::three(one.tps)),
            Cell::number(number::count(one.errors)),
            Cell::word(if both { "both" } else { "response" }),
        ];
        cells.extend(latency_cells(one.latency_us, one.transactions));
        cells.push(Cell::html(spark(step, one)));
        rows.push(Row { class: if service.is_some() { "joined" } else { "" }, cells });
        if service.is_some() {
            let mut cells = vec![
                Cell::words(""),
                Cell::number(""),
                Cell::number(""),
                Cell::number(""),
                Cell::word("service"),
            ];
            cells.extend(latency_cells(service, one.transactions));
            cells.push(Cell::number(""));
            rows.push(Row { class: "second", cells });
        }
    }
    out.push_str("<div class=\"block\">");
    table(out, "Transaction types", &head, &rows);
    if types.iter().any(|one| one.transactions / 1000 < SAMPLES_BEYOND_MIN) {
        out.push_str(&format!(
            "<p class=\"under\">A grey percentile in parentheses has fewer than {SAMPLES_BEYOND_MIN} samples beyond it, too few to be reliable.</p>\n"
        ));
    }
    more(out, types.len());
    out.push_str("</div>\n");
}

fn latency_cells(latency: Option<LatencySummary>, count: u64) -> Vec<Cell> {
    let Some(latency) = latency else { return vec![Cell::number("-"); 6] };
    let time = |us: u64| number::latency(us as f64);
    let percentile = |us: u64, samples_per_beyond: u64| {
        if count / samples_per_beyond < SAMPLES_BEYOND_MIN {
            Cell::number(format!("({})", time(us))).class("few")
        } else {
            Cell::number(time(us))
        }
    };
    vec![
        Cell::number(number::latency((latency.mean * 10.0).round() / 10.0)),
        percentile(latency.p50, 2),
        percentile(latency.p90, 10),
        percentile(latency.p99, 100),
        percentile(latency.p999, 1000),
        Cell::number(time(latency.max)),
    ]
}

/// The type's rate over time as a small line, from the histograms' counts.
fn spark(step: &StepFacts, one: &TypeStatistics) -> String {
    let rates = step.latencies.spark(&tag_part(&one.name));
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most == 0.0 || rates.len() < 2 {
        return String::new();
    }
    let point = |(at, rate): (usize, &f64)| {
        format!("{:.1} {:.1}", at as f64 / (rates.len() - 1) as f64 * 110.0, 21.0 - rate / most * 20.0)
    };
    let points: Vec<String> = rates.iter().enumerate().map(point).collect();
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 110 22\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"rate over time\"><path d=\"M{}\"/></svg>",
        points.join("L")
    )
}

fn more(out: &mut String, all: usize) {
    if all > LINES_MAX {
        out.push_str(&format!("<p class=\"under\">and {} more in run.json</p>\n", all - LINES_MAX));
    }
}

/// Results of benchmarks.
pub(super) fn benchmarks(out: &mut String, step: &StepFacts) {
    for benchmark in &step.step.summary.benchmarks {
        out.push_str(&format!("<div class=\"block\"><h3>{}</h3>", escape(&benchmark.name)));
        let mut under = |text: &str| {
            if !text.is_empty() {
                out.push_str(&format!("<p class=\"under\">{}</p>", escape(text)));
            }
        };
        under(&benchmark.disclaimer);
        under(&crate::benchmark::settings(benchmark));
        for shown in crate::benchmark::tables(benchmark) {
            let head: Vec<(&str, bool)> =
                shown.head.iter().map(|(name, is_word)| (name.as_str(), *is_word)).collect();
            let cell = |(text, (_, is_word)): (&String, &(&str, bool))| match is_word {
                true => Cell::words(text),
                false => Cell::number(text),
            };
            let row = |cells: &Vec<String>| Row::new(cells.iter().zip(&head).map(cell).collect());
            let rows: Vec<Row> = shown.rows.iter().map(row).collect();
            let caption = match shown.name == benchmark.name {
                true => shown.name,
                false => format!("{}: {}", benchmark.name, shown.name),
            };
            table(out, &caption, &head, &rows);
        }
        for note in &benchmark.notes {
            out.push_str(&format!("<p class=\"under\">{}</p>", escape(note)));
        }
        out.push_str("</div>\n");
    }
}

/// Named numbers of the verb without another place.
fn totals(out: &mut String, step: &StepFacts) {
    if step.step.totals.is_empty() {
        return;
    }
    out.push_str("<div class=\"block\"><h3>Totals</h3><ul class=\"settings totals\">");
    for (name, value) in &step.step.totals {
        let (label, text) = match value {
            Value::Number(some) => number::named(name, some.as_f64().unwrap_or(0.0)),
            Value::String(text) => (name.replace('_', " "), text.clone()),
            other => (name.replace('_', " "), other.to_string()),
        };
        out.push_str(&format!(
            "<li><span class=\"name\">{}</span><span class=\"now\">{}</span></li>",
            escape(&label),
            escape(&text)
        ));
    }
    out.push_str("</ul></div>\n");
}

/// Checks with the same result for many scopes in one line: a list of seventy "ok" is of no use.
fn grouped_checks(checks: &[Check]) -> Vec<Check> {
    let mut grouped: Vec<(Check, u64)> = vec![];
    for check in checks {
        let same = |(known, _): &&mut (Check, u64)| {
            check.result == CheckResult::Ok
                && known.result == CheckResult::Ok
                && known.name == check.name
                && known.detail == check.detail
        };
        match grouped.iter_mut().find(same) {
            Some((known, count)) => {
                let first = known.scope.split(" to ").next().unwrap_or_default().to_string();
                known.scope = format!("{first} to {}", check.scope);
                known.rows = known.rows.saturating_add(check.rows);
                *count += 1;
            }
            None => grouped.push((check.clone(), 1)),
        }
    }
    let wording = |(mut check, count): (Check, u64)| {
        if count > 1 {
            check.scope = format!("{} ({})", check.scope, number::count(count));
        }
        check
    };
    grouped.into_iter().map(wording).collect()
}

fn checks(out: &mut String, step: &StepFacts) {
    let checks = &step.step.checks;
    if checks.is_empty() {
        return;
    }
    let grouped = grouped_checks(checks);
    // Failures come first; the rest keeps its order.
    let mut sorted: Vec<_> = grouped.iter().collect();
    sorted.sort_by_key(|check| match check.result {
        CheckResult::Fail => 0,
        CheckResult::Skipped | CheckResult::Unknown => 1,
        CheckResult::Ok => 2,
    });
    let head = [("check", false), ("scope", true), ("rows", false), ("result", true), ("result", true)];
    let rows: Vec<Row> = sorted
        .into_iter()
        .take(LINES_MAX)
        .map(|check| {
            let result = match check.result {
                CheckResult::Ok => Cell::html("<span class=\"good\">✓ ok</span>".to_string()),
                CheckResult::Fail => Cell::html("<span class=\"bad\">≠ different</span>".to_string()),
                CheckResult::Skipped => Cell::html("<span class=\"few\">– skipped</span>".to_string()),
                CheckResult::Unknown => Cell::html("<span class=\"few\">? unknown</span>".to_string()),
            };
            let mut found = escape(&check.detail);
            for key in check.counterexamples.iter().take(LINES_MAX) {
                found.push_str(&format!("<br><code>{}</code>", escape(key)));
            }
            Row::new(vec![
                Cell::words(&check.name),
                Cell::words(&check.scope),
                Cell::number(number::count(check.rows)),
                result.class("word"),
                Cell::html(found).class("text"),
            ])
        })
        .collect();
    out.push_str("<div class=\"block\">");
    table(out, "Checks", &head, &rows);
    more(out, grouped.len());
    out.push_str("</div>\n");
}

fn errors(out: &mut String, step: &StepFacts) {
    let errors = &step.step.errors;
    if errors.is_empty() {
        return;
    }
    let head = [
        ("SQLSTATE", false),
        ("count", false),
        ("retried", false),
        ("first at", false),
        ("type", true),
        ("first message", true),
    ];
    let rows: Vec<Row> = errors
        .iter()
        .take(LINES_MAX)
        .map(|error| {
            let at_s = error.first_us.saturating_sub(step.step.start_us) as f64 / 1e6;
            Row::new(vec![
                Cell::number(&error.sqlstate),
                Cell::number(number::count(error.count)),
                Cell::number(number::count(error.retried)),
                Cell::number(number::duration(at_s)),
                Cell::words(error.first_type.as_deref().unwrap_or("")),
                Cell::words(crate::text::first_line(&error.first_message)),
            ])
        })
        .collect();
    out.push_str("<div class=\"block\">");
    table(out, "Errors", &head, &rows);
    more(out, errors.len());
    out.push_str("</div>\n");
}

fn events(out: &mut String, step: &StepFacts) {
    // Statements have their own table, stacks their graphs.
    let wording =
        |event: &&&event::Event| ![event::PHASE, event::QUERY, event::STACKS].contains(&event.kind.as_str());
    let mut events: Vec<_> = step.events.iter().filter(wording).collect();
    events.sort_by_key(|event| event.t_us);
    if events.is_empty() {
        return;
    }
    let rows: Vec<Row> = events
        .iter()
        .take(LINES_MAX)
        .map(|event| {
            let at_s = event.t_us.saturating_sub(step.step.start_us) as f64 / 1e6;
            let lasted = event.duration_us.map(|us| number::latency(us as f64)).unwrap_or_default();
            Row::new(vec![
                Cell::number(number::duration(at_s)),
                Cell::word(&event.kind),
                Cell::number(lasted),
                Cell::words(&event.message),
            ])
        })
        .collect();
    let head = [("at", false), ("event", true), ("lasted", false), ("", true)];
    out.push_str("<div class=\"block\">");
    table(out, "Events", &head, &rows);
    if events.len() > LINES_MAX {
        out.push_str(&format!(
            "<p class=\"under\">and {} more in events.ndjson</p>\n",
            events.len() - LINES_MAX
        ));
    }
    out.push_str("</div>\n");
}
