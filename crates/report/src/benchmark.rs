//! Results of benchmarks, on the terminal and on the page: the same tables in both, whichever benchmark it is.

use crate::layout::{columns, fold, push};
use record::benchmark::{Benchmark, COUNT, Check, Figure, MICROSECONDS, PERCENT, Share, ShareResult, Table};
use record::number;

/// The name of the table of checks.
const CHECKED: &str = "checked";

/// A table as it is shown: the name of each column and whether it has words, and the rows.
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) head: Vec<(String, bool)>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The sentence about how it was driven; empty if nothing is known about it.
pub(crate) fn settings(benchmark: &Benchmark) -> String {
    let texts: Vec<&str> = benchmark.settings.iter().map(|setting| setting.text.as_str()).collect();
    texts.join(", ")
}

/// Everything except the latencies, which are in the tables of all workloads: figures and shares, what was checked, and the benchmark's own tables.
pub(crate) fn tables(benchmark: &Benchmark) -> Vec<Shown> {
    let figures = benchmark.figures.iter().map(figure);
    let rows: Vec<[String; 4]> = figures.chain(benchmark.shares.iter().map(share)).collect();
    let has_required = rows.iter().any(|row| !row[2].is_empty() || !row[3].is_empty());
    let head = [("", true), ("measured", false), ("required", true), ("", true)];
    let count = if has_required { 4 } else { 2 };
    let first = Shown {
        name: benchmark.name.clone(),
        head: head[..count].iter().map(|(name, is_word)| (name.to_string(), *is_word)).collect(),
        rows: rows.into_iter().map(|row| row[..count].to_vec()).collect(),
    };
    let check = |check: &Check| vec![check.name.clone(), check.word().to_string(), check.detail.clone()];
    let checks = Shown {
        name: CHECKED.to_string(),
        head: [CHECKED, "", ""].map(|name| (name.to_string(), true)).into(),
        rows: benchmark.checks.iter().map(check).collect(),
    };
    let all = [first, checks].into_iter().chain(benchmark.tables.iter().map(table));
    all.filter(|shown| !shown.rows.is_empty()).collect()
}

/// A value in its unit.
fn value(value: f64, unit: &str) -> String {
    match unit {
        MICROSECONDS => number::latency((value * 10.0).round() / 10.0),
        COUNT if value >= 0.0 && value.fract() == 0.0 && value < u64::MAX as f64 => {
            number::count(value as u64)
        }
        COUNT => number::three(value),
        unit => format!("{} {unit}", number::three(value)),
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "",
    }
}

fn figure(figure: &Figure) -> [String; 4] {
    let least = figure.at_least.map(|least| format!("at least {}", value(least, &figure.unit)));
    let parts: Vec<String> =
        least.into_iter().chain(Some(figure.detail.clone()).filter(|detail| !detail.is_empty())).collect();
    let measured = value(figure.value, &figure.unit);
    [figure.name.clone(), measured, parts.join(" "), verdict(figure.met).to_string()]
}

fn share(share: &Share) -> [String; 4] {
    let required = match share.percent_max {
        most if most >= 100.0 => format!("at least {} %", share.percent_min),
        most => format!("{} to {most} %", share.percent_min),
    };
    let measured = match share.result {
        ShareResult::NotApplicable => "-".to_string(),
        _ => format!("{:.2} % of {}", share.percent(), number::count(share.of)),
    };
    [share.name.clone(), measured, required, share.word().to_string()]
}

fn table(table: &Table) -> Shown {
    let is_judged = table.rows.iter().any(|row| row.met.is_some());
    let mut head = vec![(table.name.clone(), true)];
    head.extend(table.columns.iter().map(|column| (column.name.clone(), false)));
    head.extend(is_judged.then(|| (String::new(), true)));
    let rows = table.rows.iter().map(|row| {
        let whole: f64 = row.values.iter().flatten().sum();
        let cells = table.columns.iter().enumerate().map(|(at, column)| {
            match row.values.get(at).copied().flatten() {
                None => "-".to_string(),
                Some(_) if table.are_parts && whole <= 0.0 => "-".to_string(),
                Some(part) if table.are_parts => format!("{:.2} {PERCENT}", 100.0 * part / whole),
                Some(measured) => value(measured, &column.unit),
            }
        });
        let met = is_judged.then(|| verdict(row.met).to_string());
        [row.name.clone()].into_iter().chain(cells).chain(met).collect()
    });
    Shown { name: table.name.clone(), rows: rows.collect(), head }
}

/// For the terminal.
pub(crate) fn print(out: &mut String, benchmark: &Benchmark) {
    push(out, &format!("  {}", benchmark.name));
    for line in [benchmark.disclaimer.as_str(), &settings(benchmark)] {
        if !line.is_empty() {
            fold(out, "  ", line);
        }
    }
    for shown in tables(benchmark) {
        let Shown { name, head, mut rows } = shown;
        // This one has its name above it already.
        if name != benchmark.name {
            rows.insert(0, head.iter().map(|(name, _)| name.clone()).collect());
        }
        columns(out, &rows, |column| head[column].1);
    }
    for note in &benchmark.notes {
        fold(out, "  ", note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::benchmark::{Column, Count, Row, Setting};

    /// Every part of the shape, of a benchmark that does not exist.
    fn example() -> Benchmark {
        let row =
            |name: &str, values: [Option<f64>; 2], met| Row { name: name.into(), values: values.into(), met };
        Benchmark {
            name: "Wholesale".into(),
            disclaimer: "not audited".into(),
            settings: vec![
                Setting::number("shops", 10.0, "10 shops".into()),
                Setting::words("isolation", "SERIALIZABLE"),
            ],
            figures: vec![
                Figure::new("sales", 12_345.6, "/min"),
                Figure { at_least: Some(95.0), met: Some(false), ..Figure::new("efficiency", 80.0, PERCENT) },
            ],
            tables: vec![
                Table {
                    name: "profile".into(),
                    columns: vec![Column::new("p90", MICROSECONDS), Column::new("at most", MICROSECONDS)],
                    rows: vec![
                        row("Sale", [Some(1_900.0), Some(5e6)], Some(true)),
                        row("Return", [None, Some(5e6)], None),
                    ],
                    are_parts: false,
                },
                Table {
                    name: "nodes".into(),
                    columns: vec![Column::new("1", COUNT), Column::new("2", COUNT)],
                    rows: vec![
                        row("Sale", [Some(3.0), Some(1.0)], None),
                        row("Return", [Some(0.0), Some(0.0)], None),
                    ],
                    are_parts: true,
                },
            ],
            shares: vec![Share::judge("returns", "1.2", 10, 100, (0.9, 1.1))],
            checks: vec![record::benchmark::Check {
                name: "sales are booked".into(),
                holds: Some(false),
                detail: "9 of 10".into(),
                count: Some(Count { client: 10, unknown: 0, server: 9 }),
            }],
            notes: vec!["a sale takes two requests".into()],
            ..Benchmark::default()
        }
    }

    #[test]
    fn any_benchmark_is_printed_whole() {
        let mut out = String::new();
        print(&mut out, &example());
        let expected = "  Wholesale
  not audited
  10 shops, SERIALIZABLE
  sales           12,346 /min
  efficiency             80 %   at least 95 %   MISSED
  returns      10.00 % of 100   0.9 to 1.1 %    OUTSIDE
  checked
  sales are booked   BROKEN   9 of 10
  profile       p90   at most
  Sale      1.90 ms       5 s   ok
  Return          -       5 s
  nodes          1         2
  Sale     75.00 %   25.00 %
  Return         -         -
  a sale takes two requests
";
        assert_eq!(out, expected);
        assert_eq!(tables(&Benchmark { name: "empty".into(), ..Benchmark::default() }).len(), 0);
    }
}
