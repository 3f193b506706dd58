//! What each verb does, without a command line: a plan value in, a run directory out.
//!
//! A library user, a test or an agent starts the same work as the command does:
//!
//! * A verb is a module with a `Plan`: plain values (durations, counts, an [`connection::Address`]). Nothing in it has to be parsed
//!   again, and nothing in it knows flags. `Plan::run` does the work and ends with an exit code of the design, or with a
//!   [`failure::Failure`]: an exit code, a chain of causes, a hint.
//! * [`context::Context`] is what every verb is given: a [`terminal::Terminal`] to report to, a [`stop::Stop`] that ends the work early,
//!   and the format of results. [`context::Context::silent`] needs no terminal; the run directory holds every result.
//! * [`recording::Recording`] is the run directory of a verb that measures. It is opened when the target has answered, it carries the
//!   sampler of [`watching`], and it is closed whatever happens: then the run is explained and its page is written. [`skeleton`] is that
//!   for every verb that works on a target in one step.
//!
//! The command turns flags into plans, prints the lines of a terminal, and turns signals into requests to stop.

pub mod check;
pub mod connection;
pub mod context;
pub mod demo;
pub mod down;
mod errors;
pub mod explain;
pub mod failure;
pub mod fingerprint;
pub mod human;
pub mod load;
pub mod machines;
pub mod matrix;
mod moved;
pub mod plan;
pub mod prove;
pub mod quantity;
pub mod recording;
pub mod report;
pub mod run;
pub mod selftest;
pub mod skeleton;
pub mod stop;
pub mod terminal;
pub mod up;
pub mod verify;
pub mod watch;
pub mod watching;
pub mod wrap;
