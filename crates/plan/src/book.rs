//! The book of a computation: each figure with its formula, what does not fit, and what a reader has to know.

use record::plan::{Formula, Term, Unit};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) formulas: Vec<Formula>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) notes: Vec<String>,
}

/// Why the plan does not fit.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The worst has the least.
    pub(crate) rank: u8,
    pub(crate) text: String,
}

/// An input of a formula: its name in the expression, its value and its unit.
pub(crate) type Given<'a> = (&'a str, f64, Unit);

impl Book {
    /// Enters a figure, and returns it.
    pub(crate) fn put(
        &mut self,
        name: &str,
        expression: &str,
        inputs: &[Given<'_>],
        unit: Unit,
        result: f64,
    ) -> f64 {
        let term =
            |(name, value, unit): &Given<'_>| Term { name: (*name).into(), value: *value, unit: *unit };
        self.formulas.push(Formula {
            name: name.into(),
            expression: expression.into(),
            inputs: inputs.iter().map(term).collect(),
            result,
            unit,
        });
        result
    }

    /// Enters a reason why the plan does not fit.
    pub(crate) fn problem(&mut self, rank: u8, text: String) {
        self.problems.push(Problem { rank, text });
    }
}

/// A number of things or bytes out of a computation: whole, and within 64 bits.
pub(crate) fn whole(value: f64) -> u64 {
    // A float beyond the range becomes the end of the range, and a NaN 0.
    value.round() as u64
}
