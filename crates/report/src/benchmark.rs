//! Results of benchmarks, on the terminal and on the page: their figures, and the conditions on their tables.

use crate::layout::{columns, push};
use record::benchmark::Benchmark;
use record::number;

/// Rows of three columns: name, value, result.
pub(crate) fn lines(benchmark: &Benchmark) -> Vec<[String; 3]> {
    let figures = benchmark.figures.iter().map(|figure| {
        [figure.name.clone(), format!("{} {}", number::three(figure.value), figure.unit), String::new()]
    });
    let checks = benchmark
        .checks
        .iter()
        .map(|check| [check.name.clone(), check.word().to_string(), check.detail.clone()]);
    figures.chain(checks).collect()
}

/// For the terminal.
pub(crate) fn print(out: &mut String, benchmark: &Benchmark) {
    push(out, &format!("  {}", benchmark.name));
    columns(out, &lines(benchmark), |_| true);
}
