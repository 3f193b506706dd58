//! The matrix on the web page: a coloured table per operation, made here, so that it needs no script and can be printed and read aloud.

use super::{KEY, STEPS, odd, prediction_words, ratio, shade, trips_words};
use crate::answer::capital;
use crate::facts::Facts;
use crate::html::markup::{Cell as Td, Row, escape, table};
use record::Matrix;
use record::matrix::{Cell, Operation, Part};
use record::number;
use record::totals::RoundTripsBy;
use serde_json::Value;

/// Most rows of a table of distances; the rest is in `run.json`.
const LINES_MAX: usize = 200;

/// The section.
pub(crate) fn section(out: &mut String, facts: &Facts, matrix: &Matrix) {
    out.push_str(&format!("<section class=\"step\" id=\"step={KEY}\" tabindex=\"-1\"><h2>Matrix</h2>\n"));
    how(out, facts, matrix);
    for operation in &matrix.operations {
        heat(out, matrix, operation);
    }
    legend(out, matrix);
    findings(out, matrix);
    for operation in &matrix.operations {
        distances(out, operation);
    }
    out.push_str("</section>\n");
}

/// What the cells show, as the terminal has it.
fn findings(out: &mut String, matrix: &Matrix) {
    let found = matrix.findings();
    if found.is_empty() {
        return;
    }
    out.push_str("<div class=\"block\"><h3>What the cells show</h3><ul>\n");
    for finding in found {
        let proof = format!("{}, {}", finding.severity.word(), finding.level.words());
        out.push_str(&format!(
            "<li>{} <span class=\"unit\">({})</span><br>try: {}</li>\n",
            escape(&finding.claim),
            escape(&proof),
            escape(&finding.remedy.text)
        ));
    }
    out.push_str("</ul></div>\n");
}

/// What every cell had in common.
fn how(out: &mut String, facts: &Facts, matrix: &Matrix) {
    let Some(step) = facts.steps.iter().find(|step| step.step.verb == record::matrix::VERB) else { return };
    let number = |name: &str| step.step.parameters.get(name).and_then(Value::as_f64);
    let cells: usize = matrix.operations.iter().map(|operation| operation.cells.len()).sum();
    let mut words = vec![number::counted(cells as u64, "cell")];
    words.extend(
        step.parameter_u64("sessions").map(|count| format!("{} each", number::counted(count, "session"))),
    );
    if let (Some(time), Some(rounds)) = (number("time_s"), step.parameter_u64("rounds")) {
        let order = if rounds > 1 { ", each in a different order" } else { "" };
        words.push(format!(
            "{} measured in {}{order}",
            number::duration(time),
            number::counted(rounds, "round")
        ));
    }
    words.extend(number("warmup_s").map(|warmup| format!("warm-up {} per cell", number::duration(warmup))));
    words.extend(step.step.parameters.get("wire").and_then(Value::as_str).map(|wire| format!("wire {wire}")));
    let words: Vec<String> = words.iter().map(|word| format!("<span>{}</span>", escape(word))).collect();
    out.push_str(&format!("<p class=\"facts-line\">{}</p>\n", words.join("")));
}

fn heat(out: &mut String, matrix: &Matrix, operation: &Operation) {
    let name = escape(&operation.name);
    out.push_str(&format!(
        "<div class=\"block\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name} matrix\"><table class=\"matrix\">\
         <caption>{name} <span class=\"unit\">transactions/s, p50 below</span></caption><thead><tr><th scope=\"col\" class=\"corner\">enters at ↓ \
         &nbsp; rows of →</th>"
    ));
    for data in &matrix.data {
        out.push_str(&format!("<th scope=\"col\">{}</th>", named(operation, Part::Column, data)));
    }
    out.push_str("<th scope=\"col\" class=\"median\">median</th></tr></thead><tbody>\n");
    for (at, connect) in matrix.connect.iter().enumerate() {
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", named(operation, Part::Row, connect)));
        for data in &matrix.data {
            out.push_str(&match operation.cell(connect, data) {
                Some(cell) => coloured(operation, cell),
                None => "<td class=\"none\" title=\"not measured\">-</td>".to_string(),
            });
        }
        out.push_str(&median(operation.row_medians.get(at)));
        out.push_str("</tr>\n");
    }
    if matrix.connect.len() > 1 {
        out.push_str("<tr><th scope=\"row\" class=\"median\">median</th>");
        (0..matrix.data.len()).for_each(|at| out.push_str(&median(operation.column_medians.get(at))));
        out.push_str(&median(Some(&operation.remote_median)));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    for words in [trips_words(operation), prediction_words(operation)] {
        words
            .iter()
            .for_each(|words| out.push_str(&format!("<p class=\"under\">{}.</p>", escape(&capital(words)))));
    }
    out.push_str("</div>\n");
}

/// A node's name, with its ratio if its row or column is an outlier.
fn named(operation: &Operation, part: Part, name: &str) -> String {
    match odd(operation, part, name) {
        None => escape(name),
        Some(ratio) => {
            let sign = if ratio < 1.0 { "▼" } else { "▲" };
            format!("{} <span class=\"bad\">{sign} {ratio:.2}×</span>", escape(name))
        }
    }
}

fn median(rate: Option<&Option<f64>>) -> String {
    let text = rate.copied().flatten().map_or("-".to_string(), number::three);
    format!("<td class=\"median\">{text}</td>")
}

fn coloured(operation: &Operation, cell: &Cell) -> String {
    let ratio = ratio(operation, cell);
    let class = match ratio.map_or(0, shade) {
        -3 => "slow3",
        -2 => "slow2",
        -1 => "slow1",
        1 => "fast1",
        2 => "fast2",
        3 => "fast3",
        _ => "even",
    };
    let time = |us: f64| number::latency(us);
    let mut detail = vec![format!("{} to {}", cell.connect, cell.data)];
    detail.extend(ratio.map(|ratio| format!("{ratio:.2} times its peers' median")));
    let is_measured = cell.transactions > 0;
    if is_measured {
        detail.push(format!("p50 {}", time(cell.latency_us_p50 as f64)));
        detail.push(format!("p99 {}", time(cell.latency_us_p99 as f64)));
    }
    detail.push(number::counted(cell.transactions, "transaction"));
    if cell.errors > 0 {
        detail.push(number::counted(cell.errors, "error"));
    }
    let errors = if cell.errors > 0 { " <span class=\"bad\">!</span>" } else { "" };
    format!(
        "<td class=\"{class}{}\" title=\"{}\">{}{errors}<small>{}</small></td>",
        if cell.is_own() { " own" } else { "" },
        escape(&detail.join(", ")),
        number::three(cell.tps),
        if is_measured { time(cell.latency_us_p50 as f64) } else { "-".to_string() }
    )
}

fn legend(out: &mut String, matrix: &Matrix) {
    let [little, much, far] = STEPS;
    let swatch = |class: &str, text: String| format!("<span class=\"swatch {class}\">{text}</span>");
    let swatches = [
        swatch("slow3", format!("1/{far} and less")),
        swatch("slow2", format!("1/{much}")),
        swatch("slow1", format!("1/{little}")),
        swatch("even", "as its peers".to_string()),
        swatch("fast1", format!("{little}×")),
        swatch("fast2", format!("{much}×")),
        swatch("fast3", format!("{far}× and more")),
    ];
    let square = matrix.operations.iter().any(|operation| operation.own_median.is_some());
    let peers = if square {
        "Colour shows a cell's rate relative to the median of its peers: own rows (framed) are compared with own rows, all other cells with each other. \
         Medians of rows and columns exclude own rows."
    } else {
        "Colour shows a node's rate relative to the median of all."
    };
    out.push_str(&format!(
        "<p class=\"under swatches\">{}</p><p class=\"under\">{peers}</p>\n",
        swatches.join("")
    ));
}

/// The cells between two nodes: the prediction from round trips and ping, next to the measurement.
fn distances(out: &mut String, operation: &Operation) {
    let known = |cell: &&Cell| !cell.is_own() && (cell.round_trips.is_some() || cell.ping_us.is_some());
    let mut cells: Vec<&Cell> = operation.cells.iter().filter(known).collect();
    if cells.is_empty() {
        return;
    }
    let share = |cell: &Cell| Some(cell.predicted_us_p50? / cell.latency_us_p50.max(1) as f64);
    // Least explained first.
    let order = |cell: &Cell| share(cell).map_or(0.0, |share| share.max(f64::MIN_POSITIVE).ln().abs());
    cells.sort_by(|left, right| order(right).total_cmp(&order(left)));
    let time = |us: Option<f64>| us.map_or("-".to_string(), number::latency);
    let head = [
        ("from, to", true),
        ("p50", false),
        ("p99", false),
        ("round trips", false),
        ("", true),
        ("one takes", false),
        ("p50 predicted", false),
        ("of the measured", false),
    ];
    let rows: Vec<Row> = cells
        .iter()
        .take(LINES_MAX)
        .map(|cell| {
            Row::new(vec![
                Td::word(format!("{} to {}", cell.connect, cell.data)),
                Td::number(time(Some(cell.latency_us_p50 as f64))),
                Td::number(time(Some(cell.latency_us_p99 as f64))),
                Td::number(cell.round_trips.map_or("-".to_string(), super::three)),
                Td::word(cell.round_trips_by.map_or("", RoundTripsBy::word)),
                Td::number(time(cell.ping_us)),
                Td::number(time(cell.predicted_us_p50)),
                Td::number(share(cell).map_or("-".to_string(), |share| format!("{:.0} %", share * 100.0))),
            ])
        })
        .collect();
    let name = escape(&operation.name);
    out.push_str(&format!(
        "<details class=\"block\"><summary>{name}: {} between nodes, and their explanation</summary>",
        number::counted(cells.len() as u64, "cell")
    ));
    table(
        out,
        &format!(
            "{}: predicted is the slower node's own p50 and round trips times the time of one",
            operation.name
        ),
        &head,
        &rows,
    );
    out.push_str("</details>\n");
}
