//! Where a verb reports to: results, messages, warnings and progress. The command prints them; a test or an agent may keep or ignore them.

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// What a verb reports while it works and at its end. Every method has a default that ignores the report.
pub trait Terminal: std::fmt::Debug + Send + Sync {
    /// A result, for standard output.
    fn data(&self, _text: &str) {}

    /// A message about what goes on.
    fn say(&self, _text: &str) {}

    /// A detail that few readers want.
    fn detail(&self, _text: &str) {}

    /// Something the user should know although the work goes on.
    fn warn(&self, _text: &str) {}

    /// Where the result is.
    fn result(&self, _text: &str) {}

    /// A failure, with its causes and its hint.
    fn failure(&self, _failure: &Failure) {}

    /// Whether every detail of a result is printed.
    fn is_verbose(&self) -> bool {
        false
    }

    /// The width of the line that [`Terminal::redraw`] replaces; `None` where a line cannot be replaced.
    fn redraw_columns(&self) -> Option<usize> {
        None
    }

    /// Replaces the line of progress.
    fn redraw(&self, _line: &str) {}

    /// Removes the line of progress.
    fn end_progress(&self) {}

    /// Whether every result has reached its reader.
    ///
    /// # Errors
    /// Why it has not.
    fn delivered(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A terminal that ignores every report: the run directory holds the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Terminal for Silent {}

/// Between two lines of progress where they cannot be redrawn, unless the user gives another value.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// A tick that comes a little early counts: a line every five seconds must not become one every six.
const SLACK: Duration = Duration::from_millis(100);

/// Reports progress at the right pace: one line that is redrawn on a terminal, a plain line every now and then elsewhere.
#[derive(Debug)]
pub struct Progress<'a> {
    terminal: &'a dyn Terminal,
    every: Duration,
    reported: Instant,
}

impl<'a> Progress<'a> {
    /// Progress that begins now. `every` is what the user requested with -P: then plain lines, on a terminal as well.
    pub fn new(terminal: &'a dyn Terminal, every: Option<Duration>) -> Progress<'a> {
        let every = match every {
            Some(every) => every,
            None if terminal.redraw_columns().is_some() => Duration::ZERO,
            None => PLAIN_EVERY,
        };
        Progress { terminal, every, reported: Instant::now() }
    }

    /// Reports it, if it is time: `line` gives a line at most so many characters wide, `plain` a complete one.
    pub fn show(&mut self, line: impl FnOnce(usize) -> String, plain: impl FnOnce() -> String) {
        if !self.every.is_zero() {
            if self.reported.elapsed() + SLACK >= self.every {
                self.reported = Instant::now();
                self.terminal.say(&plain());
            }
        } else if let Some(columns) = self.terminal.redraw_columns() {
            self.terminal.redraw(&line(columns));
        }
    }
}
