//! The comparison as lines of a terminal and as tables of the page.

use super::{Comparison, Figure};
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::{columns, fold, push};
use record::escape::ascii;
use record::number;

/// From this ratio on, either way, a difference is marked.
const RATIO_MARKED: f64 = 1.5;
/// Characters of a name on the terminal.
const NAME_MAX: usize = 48;

/// Label and both values of a figure, in the unit of its name.
fn columns_of(figure: &Figure) -> (String, [String; 3]) {
    let value = |value: f64| {
        if figure.name == "sessions" {
            return number::three(value);
        }
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", number::named(&figure.name, value.abs()).1)
    };
    let label = number::named(&figure.name, 0.0).0;
    let label = match (label.as_str(), figure.of.as_str()) {
        (label, "") => label.to_string(),
        ("sessions" | "a call", of) => of.to_string(),
        (label, of) => format!("{label}, {of}"),
    };
    let difference = figure.difference.map(|difference| {
        let plus = if difference > 0.0 { "+" } else { "" };
        format!("{plus}{}", value(difference))
    });
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    (label, [or_dash(figure.first.map(value)), or_dash(figure.second.map(value)), or_dash(difference)])
}

fn ratio(figure: &Figure) -> String {
    match figure.ratio {
        Some(0.0) => "gone".to_string(),
        Some(ratio) => format!("{}x", number::three(ratio)),
        None if figure.first.is_some() && figure.second == Some(0.0) => "new".to_string(),
        None => String::new(),
    }
}

/// More than before: `▲`; less: `▼`; about the same: nothing.
fn mark(figure: &Figure) -> &'static str {
    match (figure.ratio, figure.second) {
        (Some(ratio), _) if ratio >= RATIO_MARKED => "▲",
        (Some(ratio), _) if ratio <= 1.0 / RATIO_MARKED => "▼",
        (None, Some(0.0)) if figure.first.is_some() => "▲",
        _ => "",
    }
}

fn heading(comparison: &Comparison) -> String {
    let finding = comparison.finding.iter().map(|id| format!("{id}: ")).collect::<String>();
    let side = |side: &super::Side| format!("{} ({})", side.name, number::duration(side.seconds));
    format!("{finding}{} against {}, {}", side(&comparison.first), side(&comparison.second), comparison.step)
}

/// Prints the tables.
pub(crate) fn print(out: &mut String, comparison: &Comparison) {
    fold(out, "", &ascii(&heading(comparison)));
    for group in &comparison.groups {
        out.push('\n');
        push(out, group.name);
        let mut rows = vec![vec![
            String::new(),
            ascii(&comparison.first.name),
            ascii(&comparison.second.name),
            "difference".to_string(),
            "ratio".to_string(),
        ]];
        for figure in &group.figures {
            let (label, [first, second, difference]) = columns_of(figure);
            let mut label = ascii(&label);
            if label.chars().count() > NAME_MAX {
                label = label.chars().take(NAME_MAX - 3).chain("...".chars()).collect();
            }
            rows.push(vec![label, ascii(&first), ascii(&second), ascii(&difference), ratio(figure)]);
        }
        columns(out, &rows, |column| column == 0);
    }
    if comparison.groups.is_empty() {
        push(out, "nothing was recorded in both intervals");
    }
}

/// Writes the section.
pub(crate) fn section(out: &mut String, comparison: &Comparison) {
    if comparison.groups.is_empty() {
        return;
    }
    out.push_str(&format!(
        "<section id=\"comparison\"><h2>Compared</h2>\n<p class=\"under\">{}. Marked: differs from the second by a factor of {RATIO_MARKED} or more.</p>\n",
        escape(&heading(comparison))
    ));
    let head = [
        ("", false),
        (comparison.first.name.as_str(), false),
        (comparison.second.name.as_str(), false),
        ("difference", false),
        ("ratio", false),
        ("", true),
    ];
    for group in &comparison.groups {
        let rows: Vec<Row> = group
            .figures
            .iter()
            .map(|figure| {
                let (label, [first, second, difference]) = columns_of(figure);
                Row::new(vec![
                    Cell::words(label),
                    Cell::number(first),
                    Cell::number(second),
                    Cell::number(difference),
                    Cell::number(ratio(figure)),
                    Cell::word(mark(figure)),
                ])
            })
            .collect();
        out.push_str("<div class=\"block\">");
        table(out, group.name, &head, &rows);
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}
