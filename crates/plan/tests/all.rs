//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod support;

mod field_report;
mod formulas;
mod simulation;
