//! An SQL statement of a script, ready to be sent in any query mode.

use super::eval_error::EvalError;
use super::names::{Names, Slot, is_name};
use super::parse::CaptureKind;
use super::state::{Parameter, State};

/// Most variables in one statement: the Bind message counts parameters in 16 bits.
pub const PARAMETERS_MAX: usize = u16::MAX as usize;

/// How statements are sent; pgbench's `-M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QueryMode {
    /// Text with the variables' values in it, in a Query message.
    #[default]
    Simple,
    /// Parse, Bind and Execute every time.
    Extended,
    /// Parse once, then Bind and Execute.
    Prepared,
}

/// A stretch of a statement's text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// Replaced by the variable's value. An optional one (inside quotes or brackets) stays as it was written while it is not set.
    Variable {
        slot: Slot,
        written: String,
        optional: bool,
    },
}

/// What becomes of a statement's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    pub kind: CaptureKind,
    /// Put before each column's name.
    pub prefix: String,
}

/// An SQL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub(super) number: usize,
    pub(super) parts: Vec<Part>,
    pub(super) prepared: String,
    pub(super) parameters: Vec<Slot>,
    pub(super) capture: Option<Capture>,
    pub(super) rollbacks: u32,
}

impl Statement {
    /// Counts the statements of all scripts of a run from 0: names prepared statements, indexes per-statement counters.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The text for Parse, with `$1` to `$n` for the variables, one for each place, as pgbench numbers them.
    #[must_use]
    pub fn prepared(&self) -> &str {
        &self.prepared
    }

    /// The variables behind `$1` to `$n`.
    #[must_use]
    pub fn parameters(&self) -> &[Slot] {
        &self.parameters
    }

    /// What becomes of the result; `None` where it is thrown away.
    #[must_use]
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// How many of its commands end as `ROLLBACK` when they do what they say. Should more of them, a COMMIT was not carried out.
    #[must_use]
    pub fn rollbacks(&self) -> u32 {
        self.rollbacks
    }

    /// Appends the text for a Query message, with the variables' values in it.
    ///
    /// # Errors
    /// [`EvalError::Undefined`] for a variable that is not set.
    pub fn append_simple(&self, state: &State, out: &mut Vec<u8>) -> Result<(), EvalError> {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable { slot, written, optional } => match state.parameter(*slot) {
                    Ok(Parameter::Value(value)) => value.write_text(out),
                    Ok(Parameter::Text(text)) => out.extend_from_slice(text),
                    Err(_) if *optional => out.extend_from_slice(written.as_bytes()),
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl Capture {
    /// Where a result's columns go: for each, the slot of the variable named prefix + column; `None` for a column whose variable no
    /// script reads. The answer depends on the statement and its columns only, so it can be kept.
    ///
    /// # Errors
    /// [`EvalError::ColumnName`] where that is no variable name (an unnamed column is called `?column?`).
    pub fn targets<'a>(
        &self,
        names: &Names,
        columns: impl Iterator<Item = &'a str>,
        out: &mut Vec<Option<Slot>>,
    ) -> Result<(), EvalError> {
        out.clear();
        let mut name = String::new();
        for (index, column) in columns.enumerate() {
            name.clear();
            name.push_str(&self.prefix);
            name.push_str(column);
            if !is_name(&name) {
                return Err(EvalError::ColumnName(self.kind.name(), index + 1));
            }
            out.push(names.find(&name));
        }
        Ok(())
    }
}
