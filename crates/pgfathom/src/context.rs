//! What every verb is given: the terminal, the output format, the signals, and how it was called.

use crate::cli::{Common, Format};
use crate::failure::Failure;
use crate::stop::Stop;
use crate::terminal::Terminal;
use record::Exit;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Something that the verb leaves behind is not whole.
    is_unwhole: AtomicBool,
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
            is_unwhole: AtomicBool::new(false),
        })
    }

    /// Tells that results could not be kept. The verb goes on to its end, which is then not a good one.
    pub fn lose_results(&self, failure: &Failure) {
        self.is_unwhole.store(true, Ordering::Relaxed);
        self.terminal.failure(failure);
    }

    /// How the process ends when the verb ends with `exit`.
    ///
    /// # Errors
    /// When standard output did not take what was printed.
    pub fn conclude(&self, exit: Exit) -> Result<Exit, Failure> {
        self.terminal.delivered()?;
        // A verdict on the target says more than a full disk.
        Ok(match exit {
            Exit::Ok if self.is_unwhole.load(Ordering::Relaxed) => Exit::Errors,
            exit => exit,
        })
    }
}
