//! The matrix that the steps of a run measured, and whether it can be trusted.

use super::{CONNECT, Cell, DATA, EVERY_NODE, Matrix, OPERATION, Operation, VERB};
use crate::model::{PHASE_MEASURE, Step, Verdict};
use crate::number;
use crate::totals::CellTotals;
use serde_json::Value;

impl Cell {
    /// From the step of one cell; `None` when it is none, or nothing was measured in it.
    fn of_step(step: &Step) -> Option<(String, Cell)> {
        let word = |name: &str| step.parameters.get(name).and_then(Value::as_str).map(str::to_string);
        if step.verb != VERB {
            return None;
        }
        let totals: CellTotals = step.totals_as();
        let cell = Cell {
            connect: word(CONNECT)?,
            data: word(DATA).unwrap_or_else(|| EVERY_NODE.to_string()),
            tps: step.summary.tps?,
            round_tps: totals.round_tps,
            transactions: step.summary.transactions?,
            errors: step.summary.errors,
            error: step
                .errors
                .iter()
                .max_by_key(|error| error.count)
                .map(|error| error.first_message.clone()),
            latency_us_p50: step.summary.latency_us.map_or(0, |latency| latency.p50),
            latency_us_p99: step.summary.latency_us.map_or(0, |latency| latency.p99),
            round_trips: totals.distance.round_trips,
            round_trips_by: totals.distance.round_trips_by,
            ping_us: totals.distance.ping_us,
            predicted_us_p50: totals.distance.predicted_us_p50,
        };
        Some((word(OPERATION)?, cell))
    }
}

impl Matrix {
    /// The matrix that these steps measured; `None` when none of them is a cell.
    pub fn of_steps(steps: &[Step]) -> Option<Matrix> {
        let mut matrix = Matrix::default();
        for (name, cell) in steps.iter().filter_map(Cell::of_step) {
            note(&mut matrix.connect, &cell.connect);
            note(&mut matrix.data, &cell.data);
            match matrix.operations.iter_mut().find(|operation| operation.name == name) {
                Some(operation) => operation.cells.push(cell),
                None => {
                    matrix.operations.push(Operation { name, cells: vec![cell], ..Operation::default() });
                }
            }
        }
        matrix.judge();
        (!matrix.operations.is_empty()).then_some(matrix)
    }
}

impl Step {
    /// Time of the step's measured parts, in seconds: a cell is measured in several rounds.
    pub fn measured_s(&self) -> f64 {
        let measured = self.phases.iter().filter(|phase| phase.name == PHASE_MEASURE);
        let us: u64 =
            measured.map(|phase| phase.end_us.unwrap_or(phase.start_us).saturating_sub(phase.start_us)).sum();
        us as f64 / 1e6
    }
}

/// Cells named one by one in a verdict; more are counted.
const CELLS_NAMED_MAX: usize = 4;

/// Whether a matrix can be trusted: when all of its cells can. What all cells note in turn is counted, not repeated.
pub fn verdict(steps: &[Step]) -> Verdict {
    let invalid: Vec<&Step> = steps.iter().filter(|step| !step.verdict.valid).collect();
    let detail = |step: &&&Step| format!("{}: {}", step.name, step.verdict.reasons.join("; "));
    let failing = Matrix::of_steps(steps).map(|matrix| matrix.failing()).unwrap_or_default();
    let named = failing.into_iter().map(|finding| finding.claim).filter(|_| !invalid.is_empty());
    let mut reasons: Vec<String> = named.collect();
    reasons.extend(invalid.iter().take(CELLS_NAMED_MAX).map(|step| detail(&step)));
    if invalid.len() > CELLS_NAMED_MAX {
        reasons.push(format!("and {} more cells", invalid.len() - CELLS_NAMED_MAX));
    }
    let mut noted: Vec<(&str, Vec<&str>)> = vec![];
    for note in steps.iter().flat_map(|step| &step.verdict.notes) {
        // The same remark with other numbers is the same remark.
        match noted.iter_mut().find(|(known, _)| words(known).eq(words(note))) {
            Some((_, all)) => all.push(note),
            None => noted.push((note, vec![note])),
        }
    }
    let notes = noted.into_iter().map(|(note, all)| match all.len() {
        1 => note.to_string(),
        count => format!("in {count} of {} cells: {}", steps.len(), with_range(note, &all)),
    });
    Verdict { valid: !steps.is_empty() && invalid.is_empty(), reasons, notes: notes.collect() }
}

/// A remark without its numbers.
fn words(note: &str) -> impl Iterator<Item = char> + '_ {
    note.chars().filter(|c| !c.is_ascii_digit() && *c != ',')
}

/// The first number of a remark: its place, and its value.
fn first_number(note: &str) -> Option<(std::ops::Range<usize>, u64)> {
    let from = note.find(|c: char| c.is_ascii_digit())?;
    let rest = &note[from..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
    let text = rest[..end].trim_end_matches(',');
    Some((from..from + text.len(), text.replace(',', "").parse().ok()?))
}

/// A remark with the least and the largest of the numbers that several cells have in it.
fn with_range(note: &str, all: &[&str]) -> String {
    let numbers: Vec<u64> = all.iter().filter_map(|note| Some(first_number(note)?.1)).collect();
    match (first_number(note), numbers.iter().min(), numbers.iter().max()) {
        (Some((place, _)), Some(least), Some(most)) if least < most => {
            let range = format!("{} to {}", number::count(*least), number::count(*most));
            format!("{}{range}{}", &note[..place.start], &note[place.end..])
        }
        _ => note.to_string(),
    }
}

/// Adds a name that is not there yet.
fn note(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_string());
    }
}
