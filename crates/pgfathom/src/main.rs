//! pgfathom loads, drives, checks and diagnoses PostgreSQL servers and clusters.
//!
//! This crate is the command: flags, dispatch, and the terminal. The work is done by `app`, which knows no command
//! line, with the crates named after the verbs. Parsing ends in one [`cli::Verb`], each verb is a module of [`verbs`], and every way to fail ends
//! in one [`failure::Failure`], printed here.

#![allow(
    unreachable_pub,
    reason = "nothing of a binary can be reached from outside; pub here means used by other modules"
)]

mod address;
mod cli;
mod console;
mod flags;
mod machines;
mod signals;
mod usage;
mod verbs;

use app::terminal::Terminal as _;
use app::{context, failure};
use cli::{Invocation, Verb};
use console::Console;
use context::Context;
use failure::Failure;
use record::Exit;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let color = cli::color_of(&arguments).is_on();
    match failure::with_wrong_replies(|| command(&arguments, color)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            Console::new(false, false, color).failure(&failure);
            failure.exit().into()
        }
    }
}

fn command(arguments: &[OsString], color: bool) -> Result<Exit, Failure> {
    let cli = match cli::parse(arguments)? {
        Invocation::Verb(cli) => *cli,
        Invocation::Text(text) => {
            let terminal = Console::new(false, false, color);
            terminal.data(&text);
            return terminal.delivered().map(|()| Exit::Ok);
        }
    };
    let draining = cli.verb.draining();
    let stop = signals::install(draining)
        .map_err(|error| Failure::caused("cannot handle SIGINT and SIGTERM", error))?;
    let console = Arc::new(Console::new(cli.common.quiet, cli.common.verbose, color));
    let slow = Arc::clone(&console);
    connect::when_slow(move |words| slow.say(&format!("note: {words}")));
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let context = Context::new(console, cli.common.format.into(), stop, arguments);
    let exit = match cli.verb {
        Verb::Demo(demo) => demo.run(&context),
        Verb::Up(up) => up.run(&context),
        Verb::Down(down) => down.run(&context),
        Verb::Plan(plan) => plan.run(&context),
        Verb::Load(load) => load.run(&context),
        Verb::Verify(verify) => verify.run(&context),
        Verb::Prove(prove) => prove.run(&context),
        Verb::Run(run) => run.run(&context),
        Verb::Check(check) => check.run(&context),
        Verb::Watch(watch) => watch.run(&context),
        Verb::Matrix(matrix) => matrix.run(&context),
        Verb::Explain(explain) => explain.run(&context),
        Verb::Report(report) => report.run(&context),
        Verb::Selftest(selftest) => selftest.run(&context),
        Verb::Relay(relay) => relay.run(&context),
    }?;
    context.conclude(exit)
}
