//! The terminal: data on stdout, messages and progress on stderr, colour as requested.
//!
//! Progress is one line that is rewritten when stderr is a terminal, and plain lines otherwise, so that a log file holds
//! nothing but text.
//!
//! Text from a server, a file or a name is never interpreted: characters that act on a terminal are shown by their number
//! ([`record::escape`]), on both streams, whatever is printed.

use app::failure::Failure;
use app::terminal::Terminal;
use app::wrap::wrapped;
use record::escape::visible;
use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Colour as requested with `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ColorChoice {
    /// When stderr is a terminal, NO_COLOR is not set and TERM is not "dumb"
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl ColorChoice {
    /// Whether messages on stderr are coloured.
    pub fn is_on(self) -> bool {
        match self {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            // https://no-color.org: set and not empty; set and empty counts here as well, as the person plainly meant it.
            ColorChoice::Auto => {
                std::env::var_os("NO_COLOR").is_none()
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
                    && std::io::stderr().is_terminal()
            }
        }
    }
}

/// Progress on a terminal is redrawn at most this often.
const REDRAW_MIN: Duration = Duration::from_millis(200);

/// Columns assumed when the terminal does not report its width.
const COLUMNS_DEFAULT: usize = 100;

/// What is on the last line of the terminal.
#[derive(Debug, Default)]
struct Line {
    /// Progress stands there without a newline.
    open: bool,
    drawn: Option<Instant>,
}

/// Both output streams. A closed pipe means that nothing listens, not that the work is wrong; any other failure of stdout is remembered, and
/// fails the verb at its end.
#[derive(Debug)]
pub struct Console {
    quiet: bool,
    verbose: bool,
    color: bool,
    live: bool,
    line: Mutex<Line>,
    /// Warnings that were printed: several steps of a verb may find the same thing, and one warning of it is enough.
    warned: Mutex<BTreeSet<String>>,
    /// The first failure of stdout.
    undelivered: OnceLock<std::io::Error>,
}

impl Console {
    /// A terminal for the given flags.
    pub fn new(quiet: bool, verbose: bool, color: bool) -> Console {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = std::io::stderr().is_terminal() && !dumb;
        Console {
            quiet,
            verbose,
            color,
            live,
            line: Mutex::default(),
            warned: Mutex::default(),
            undelivered: OnceLock::new(),
        }
    }

    fn line(&self, text: &str) {
        let mut line = self.lock();
        let clear = if line.open { "\r\x1b[2K" } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{clear}{text}");
        *line = Line::default();
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // A thread that panicked while printing leaves nothing worse than a half-drawn line.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal for Console {
    /// Whether `-v` was given.
    fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Data, on stdout. The text ends with a newline already or gets one.
    fn data(&self, text: &str) {
        self.end_progress();
        let mut out = std::io::stdout().lock();
        let text = wrapped(&visible(text), width(std::io::stdout()));
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                let _ = self.undelivered.set(error);
            }
            _ => {}
        }
    }

    /// Whether stdout took everything.
    ///
    /// # Errors
    /// Why it did not.
    fn delivered(&self) -> Result<(), Failure> {
        let Some(error) = self.undelivered.get() else { return Ok(()) };
        Err(Failure::usage(format!("cannot write to standard output: {error}"))
            .hint("the output is lost or incomplete; write it to a file on a disk with free space"))
    }

    /// One message line on stderr; suppressed with `-q`.
    fn say(&self, text: &str) {
        if !self.quiet {
            self.line(&wrapped(&visible(text), self.live.then(columns)));
        }
    }

    /// One line of detail on stderr, with `-v` only.
    fn detail(&self, text: &str) {
        if self.verbose {
            self.line(&visible(text));
        }
    }

    /// Something the user should know although the work goes on; also with `-q`.
    fn warn(&self, text: &str) {
        let is_new = self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
        if !is_new {
            return;
        }
        let (yellow, plain) = if self.color { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
        self.line(&format!("{yellow}warning{plain}: {}", visible(&record::redact::text(text))));
    }

    /// The one line that is printed even with `-q`: where the result is.
    fn result(&self, text: &str) {
        self.line(&visible(text));
    }

    /// A failure, with causes and hint.
    fn failure(&self, failure: &Failure) {
        self.line(failure.render(self.color).trim_end_matches('\n'));
    }

    fn redraw_columns(&self) -> Option<usize> {
        self.live.then(columns)
    }

    fn redraw(&self, text: &str) {
        if self.quiet {
            return;
        }
        let mut line = self.lock();
        let now = Instant::now();
        if line.drawn.is_some_and(|drawn| now.duration_since(drawn) < REDRAW_MIN) {
            return;
        }
        let cut: String = visible(text).chars().take(columns()).collect();
        let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{cut}");
        line.open = true;
        line.drawn = Some(now);
    }

    /// Takes the progress line away; what is written next starts on a clean line.
    fn end_progress(&self) {
        let mut line = self.lock();
        if line.open {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
            *line = Line::default();
        }
    }
}

/// The width that a stream reports, if it is a terminal.
fn width(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Characters that fit on a line without wrapping.
fn columns() -> usize {
    width(std::io::stderr()).unwrap_or(COLUMNS_DEFAULT).saturating_sub(1)
}
