//! Lines of plain text: folded at the width of a page, and rows in columns.

use std::fmt::Write as _;

/// Lines are folded at this width where folding is possible.
const WIDTH: usize = 110;

/// A line without spaces at its end.
pub(crate) fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// A line with a label, continued under its text.
pub(crate) fn fold(out: &mut String, label: &str, text: &str) {
    let mut line = label.to_string();
    for word in text.split_whitespace() {
        if line.trim_end().chars().count() + 1 + word.chars().count() > WIDTH
            && line.trim_end().len() > label.len()
        {
            push(out, &line);
            line = " ".repeat(label.chars().count());
        }
        line.push_str(word);
        line.push(' ');
    }
    push(out, &line);
}

/// Rows in columns as wide as their widest cell; `is_word` decides which stand left.
pub(crate) fn columns<Row: AsRef<[String]>>(out: &mut String, rows: &[Row], is_word: impl Fn(usize) -> bool) {
    let count = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.as_ref().get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let result = match is_word(column) {
                true => write!(line, "{cell:<width$}   "),
                false => write!(line, "{cell:>width$}   "),
            };
            result.expect("writing into a String cannot fail");
        }
        push(out, &line);
    }
}
