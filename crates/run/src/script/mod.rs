//! pgbench's script language: parsed and checked before the run, compiled to slots and jumps, walked without allocating.
//!
//! [`argument`] reads `-f`, `-b` and `-D`; [`Mix::compile`] turns the scripts into one [`Mix`] with a shared table of variables;
//! each session gets a [`State`] and a [`Cursor`], and [`Script::step`] answers what it has to do next. Every mistake that can be
//! found in the text is found before the first connection, and reported with file, line and a caret ([`ScriptError`]).
//!
//! What of the dialect is supported, and the few differences, is in `docs/scripts.md`.

pub mod argument;
mod builtin;
mod command;
mod error;
mod eval_error;
mod expression;
mod flow;
mod function;
mod mix;
mod names;
mod parse;
mod program;
mod scan;
mod state;
mod statement;
mod token;
mod value;
mod words;

#[cfg(test)]
mod tests;

pub use builtin::{BUILTINS, Builtin};
pub use command::{Cursor, Failure, Script, Step};
pub use error::{Problem, ScriptError, Span};
pub use eval_error::EvalError;
pub use expression::DEPTH_MAX;
pub use function::ARGUMENTS_MAX;
pub use mix::{Mix, Options, Predefined, Source, default_seed};
pub use names::{Names, Slot, is_name};
pub use parse::{COMMANDS_MAX, CaptureKind, SCRIPT_BYTES_MAX};
pub use state::{Parameter, State, TEXT_BYTES_MAX};
pub use statement::{Capture, PARAMETERS_MAX, QueryMode, Statement};
pub use value::Value;
