//! The matrix on the terminal page: a table of rates and one of latencies per operation, without colour. A node's own rows are in
//! brackets; signs show how far a cell is from its peers.

use super::{odd, prediction_words, ratio, shade, trips_words};
use crate::layout::{fold, push};
use record::Matrix;
use record::matrix::{Cell, Operation, Part};
use record::number;

/// Tables of more columns than this are not printed: no terminal is that wide.
const COLUMNS_MAX: usize = 16;

/// Prints all of it.
pub(crate) fn print(out: &mut String, matrix: &Matrix) {
    for (at, operation) in matrix.operations.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        rates(out, matrix, operation);
        out.push('\n');
        latencies(out, matrix, operation);
        for words in [trips_words(operation), prediction_words(operation)] {
            words.iter().for_each(|words| fold(out, "  ", words));
        }
    }
    let findings = matrix.findings();
    if !findings.is_empty() {
        out.push('\n');
    }
    for finding in findings {
        fold(
            out,
            "finding  ",
            &format!("{} ({}, {})", finding.claim, finding.severity.word(), finding.level.words()),
        );
        fold(out, "    try  ", &finding.remedy.text);
    }
}

fn rates(out: &mut String, matrix: &Matrix, operation: &Operation) {
    let title = "transactions/s by connect node (row) and data node (column), [own rows]";
    let cell = |cell: &Cell| {
        let rate = number::three(cell.tps);
        let rate = if cell.is_own() { format!("[{rate}]") } else { rate };
        format!("{rate}{}", sign(operation, cell))
    };
    let median = |rate: &Option<f64>| format!("{}   ", rate.map_or("-".to_string(), number::three));
    let rows: Vec<String> = operation.row_medians.iter().map(median).collect();
    let columns: Vec<String> = operation.column_medians.iter().map(median).collect();
    table(out, matrix, operation, title, cell, Some((rows, columns)));
    let mut odd_ones = vec![];
    for (part, names) in [(Part::Row, &matrix.connect), (Part::Column, &matrix.data)] {
        for name in names {
            if let Some(ratio) = odd(operation, part, name) {
                let what = if part == Part::Row { "entered at" } else { "rows of" };
                odd_ones.push(format!("{what} {name} x {ratio:.2}"));
            }
        }
    }
    if !odd_ones.is_empty() {
        fold(out, "  ", &format!("relative to the others: {}", odd_ones.join(", ")));
    }
}

fn latencies(out: &mut String, matrix: &Matrix, operation: &Operation) {
    let title = "latency p50/p99";
    let time = |us: u64| number::latency(us as f64).replace(' ', "");
    let cell = |cell: &Cell| match cell.transactions {
        // Nothing was measured, which is not the same as at once.
        0 => "-".to_string(),
        _ => format!("{}/{}", time(cell.latency_us_p50), time(cell.latency_us_p99)),
    };
    table(out, matrix, operation, title, cell, None);
}

/// How far a cell is from its peers: up to three minus or plus signs, padded so that numbers stay in line.
fn sign(operation: &Operation, cell: &Cell) -> String {
    let shade = ratio(operation, cell).map_or(0, shade);
    let sign = if shade < 0 { "-" } else { "+" };
    format!("{:<3}", sign.repeat(usize::from(shade.unsigned_abs())))
}

fn table(
    out: &mut String,
    matrix: &Matrix,
    operation: &Operation,
    title: &str,
    cell: impl Fn(&Cell) -> String,
    medians: Option<(Vec<String>, Vec<String>)>,
) {
    fold(out, "", &format!("{}: {title}", operation.name));
    if matrix.data.len() > COLUMNS_MAX {
        push(out, &format!("  {} columns do not fit here: see the page or run.json", matrix.data.len()));
        return;
    }
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(matrix.data.iter().cloned());
    for connect in &matrix.connect {
        let mut row = vec![connect.clone()];
        row.extend(
            matrix.data.iter().map(|data| operation.cell(connect, data).map_or("-".to_string(), &cell)),
        );
        rows.push(row);
    }
    if let Some((of_rows, of_columns)) = medians {
        rows[0].push("median".to_string());
        for (row, median) in rows.iter_mut().skip(1).zip(of_rows) {
            row.push(median);
        }
        if matrix.connect.len() > 1 {
            let mut last = vec!["median".to_string()];
            last.extend(of_columns);
            rows.push(last);
        }
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::from("  ");
        for (column, text) in row.iter().enumerate() {
            let width = widths[column];
            // Headers are above the numbers; the signs take three characters at the end.
            let head = at == 0 && column > 0 && cell_has_signs(title);
            line.push_str(&match column {
                0 => format!("{text:<width$}"),
                _ if head => format!("  {:>width$}", format!("{text}   ")),
                _ => format!("  {text:>width$}"),
            });
        }
        push(out, &line);
    }
}

/// The table of rates has signs after its numbers.
fn cell_has_signs(title: &str) -> bool {
    title.starts_with("transactions")
}
