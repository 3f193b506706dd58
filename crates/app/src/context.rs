//! What every verb is given: the terminal, the output format, the requests to stop, and how it was called.

use crate::failure::Failure;
use crate::stop::Stop;
use crate::terminal::{Silent, Terminal};
use record::{Exit, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How results are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// The summary of run.json
    Json,
}

/// The surroundings of a verb.
#[derive(Debug)]
pub struct Context {
    /// Where it reports to.
    pub terminal: Arc<dyn Terminal>,
    /// How it reports results.
    pub format: Format,
    /// Requests to stop.
    pub stop: Stop,
    /// The arguments as typed, the program's name first; empty where there are none. They may hold a password inside a connection
    /// string: the run directory redacts them.
    pub arguments: Vec<String>,
    /// Something that the verb leaves behind is not whole.
    is_unwhole: AtomicBool,
}

impl Context {
    /// The surroundings of a verb that reports to `terminal` and ends early when `stop` is requested.
    pub fn new(terminal: Arc<dyn Terminal>, format: Format, stop: Stop, arguments: Vec<String>) -> Context {
        Context { terminal, format, stop, arguments, is_unwhole: AtomicBool::new(false) }
    }

    /// The surroundings of a verb that no person looks at: everything is in the run directory.
    pub fn silent() -> Context {
        Context::new(Arc::new(Silent), Format::Text, Stop::default(), Vec::new())
    }

    /// How the run directory calls work that ends now without an error.
    pub(crate) fn state(&self) -> State {
        if self.stop.is_requested() { State::Interrupted } else { State::Finished }
    }

    /// Whether results are for people.
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }

    /// Reports that results could not be kept. The verb goes on to its end, which is then not a good one.
    pub(crate) fn lose_results(&self, failure: &Failure) {
        self.is_unwhole.store(true, Ordering::Relaxed);
        self.terminal.failure(failure);
    }

    /// How the process ends when the verb ends with `exit`.
    ///
    /// # Errors
    /// When a result did not reach its reader.
    pub fn conclude(&self, exit: Exit) -> Result<Exit, Failure> {
        self.terminal.delivered()?;
        // A verdict on the target is more important than a full disk.
        Ok(match exit {
            Exit::Ok if self.is_unwhole.load(Ordering::Relaxed) => Exit::Errors,
            exit => exit,
        })
    }
}

/// CPUs that this process may use: as many streams as have a chance to run at once.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
