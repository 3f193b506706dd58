//! Errors while a script runs.

use super::names::Slot;

/// Why the evaluation of a well-formed expression, or the sending of a well-formed statement, failed: small and copyable, because
/// it arises on the path that allocates nothing. [`super::Script::explain`] turns it into a [`super::ScriptError`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    #[error("variable is not set")]
    Undefined(Slot),
    #[error("variable holds text that is neither a number, nor a boolean, nor null")]
    Malformed(Slot),
    #[error("cannot coerce {from} to {to}")]
    CannotCoerce { from: &'static str, to: &'static str },
    #[error("double to int overflow for {0:.6}")]
    DoubleToInt(f64),
    #[error("bigint {0} out of range")]
    OutOfRange(&'static str),
    #[error("division by zero")]
    DivisionByZero,
    #[error("empty range given to random")]
    EmptyRange,
    #[error("random range is too large")]
    RangeTooLarge,
    #[error("gaussian parameter must be at least {least:.6} (not {value:.6})")]
    GaussianParameter { value: f64, least: f64 },
    #[error("zipfian parameter must be in range [{least:.3}, {most:.0}] (not {value:.6})")]
    ZipfianParameter { value: f64, least: f64, most: f64 },
    #[error("exponential parameter must be greater than zero (not {0:.6})")]
    ExponentialParameter(f64),
    #[error("permute size parameter must be greater than zero")]
    PermuteSize,
    #[error("text of {bytes} bytes is longer than a variable may hold ({limit})")]
    TextTooLong { bytes: usize, limit: usize },
    #[error("\\sleep needs a number")]
    SleepTime,
    #[error("\\gset expects one row, got {0}")]
    ExpectedOneRow(u64),
    #[error("\\{0} cannot name a variable after column {1} of this result")]
    ColumnName(&'static str, usize),
    #[error("\\{0} outside a pipeline")]
    NotInPipeline(&'static str),
    #[error("\\startpipeline inside a pipeline")]
    AlreadyInPipeline,
    #[error("\\{0} is not allowed in a pipeline")]
    CaptureInPipeline(&'static str),
    #[error("the script ended inside a pipeline")]
    PipelineLeftOpen,
}

impl EvalError {
    /// What to write instead, where that is known.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        match self {
            EvalError::Undefined(_) => Some("set it with \\set or \\gset before this command, or with -D"),
            EvalError::ExpectedOneRow(_) => {
                Some("add LIMIT 1, or use \\aset, which takes the last row if there is one")
            }
            EvalError::ColumnName(..) => Some("name the column: SELECT ... AS name"),
            EvalError::DivisionByZero => Some("guard the divisor: CASE WHEN :x <> 0 THEN :y / :x END"),
            EvalError::EmptyRange => Some("the first bound must not be above the second"),
            EvalError::CannotCoerce { to: "boolean", .. } => Some("compare it: :x <> 0"),
            EvalError::PipelineLeftOpen => Some("every path through the script must reach \\endpipeline"),
            _ => None,
        }
    }
}
