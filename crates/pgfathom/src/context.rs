//! What every verb is given: the terminal, the output format, the signals, and how it was called.

use crate::cli::{Common, Format};
use crate::failure::Failure;
use crate::stop::Stop;
use crate::terminal::Terminal;
use std::ffi::OsString;

/// The surroundings of a verb.
#[derive(Debug)]
pub struct Context {
    /// Both output streams.
    pub terminal: Terminal,
    /// How results are printed on stdout.
    pub format: Format,
    /// Ctrl-C and SIGTERM.
    pub stop: Stop,
    /// The arguments as typed, the program's name first. They may hold a password inside a connection string: whoever writes
    /// them down redacts them.
    pub arguments: Vec<String>,
}

impl Context {
    /// The context for these flags.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn new(common: &Common, color: bool, arguments: &[OsString]) -> Result<Context, Failure> {
        let stop =
            Stop::install().map_err(|error| Failure::caused("cannot take over SIGINT and SIGTERM", error))?;
        Ok(Context {
            terminal: Terminal::new(common.quiet, common.verbose, color),
            format: common.format,
            stop,
            arguments: arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        })
    }
}
