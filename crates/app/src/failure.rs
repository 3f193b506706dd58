//! How a verb fails: an exit code, what went wrong with its causes, and what to type next. Rendered in this one place.

use connect::control::silence::has_given_up;
use engines::Engine;
use engines::profile::LoadPath;
use record::Exit;
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};

/// A library error that knows its remedy. Each library's error type is listed in `errors`.
pub trait Explained: std::error::Error + Send + Sync + 'static {
    /// What the user can type next.
    fn hint(&self) -> Option<String>;

    /// How the process ends. Nearly everything that stops a verb before it measured is the user's to correct.
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Does the work of a verb. A reply that is not what a query returns ends it wherever it is read, in any of its threads: it becomes the verb's failure here.
/// Other panics are bugs and go on.
///
/// # Errors
/// Those of the work, and a [`postgres::WrongReply`].
pub fn with_wrong_replies<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<postgres::WrongReply>() {
            report(info);
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        match payload.downcast::<postgres::WrongReply>() {
            Ok(reply) => Err(Failure::from(*reply)),
            Err(payload) => panic::resume_unwind(payload),
        }
    })
}

/// The failure of a verb.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    error: anyhow::Error,
    hint: Option<String>,
}

impl<E: Explained> From<E> for Failure {
    fn from(error: E) -> Failure {
        // What the command no longer waits for has not failed.
        let exit = if has_given_up() { Exit::Interrupted } else { error.exit() };
        Failure { exit, hint: error.hint(), error: anyhow::Error::new(error) }
    }
}

impl Failure {
    /// A mistake in the arguments, the configuration or a file (exit 1).
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, error: anyhow::anyhow!(message.into()), hint: None }
    }

    /// A mistake whose cause is another error.
    pub fn caused(
        message: impl Into<String>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Failure {
        let message: String = message.into();
        Failure { exit: Exit::Usage, error: anyhow::Error::new(cause).context(message), hint: None }
    }

    /// The same failure with what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// What to type next.
    pub(crate) fn hint_text(&self) -> Option<String> {
        self.hint.clone()
    }

    /// The same failure with this hint, if the error has none of its own.
    #[must_use]
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// The same failure of work on this engine: if that cannot be loaded, a hint that leads to `load` gives the reason instead.
    #[must_use]
    pub(crate) fn about(mut self, engine: Engine) -> Failure {
        if let Some(why) = unloadable(engine) {
            self.hint = self.hint.map(|hint| match leads_to_load(&hint) {
                true => {
                    format!("{why}; fill the tables yourself, or drive tables of yours by a script (run -f)")
                }
                false => hint,
            });
        }
        self
    }

    /// The same failure with `context` in front: it becomes the message, and the present message the cause.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Failure {
        self.error = self.error.context(context.into());
        self
    }

    /// The same failure of what the user ended meanwhile.
    #[must_use]
    pub(crate) fn interrupted(mut self) -> Failure {
        self.exit = Exit::Interrupted;
        self.context("interrupted while it waited for another node")
    }

    /// What went wrong with its causes, in one line.
    pub fn message(&self) -> String {
        quoted(&format!("{:#}", self.error))
    }

    /// How the process ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// `error: what`, its causes indented, a blank line and the hint; every line ends with a newline.
    pub fn render(&self, color: bool) -> String {
        let (red, cyan, plain) = if color { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        let mut causes = self.error.chain().map(|cause| quoted(&cause.to_string())).peekable();
        let mut text = format!("{red}error{plain}: {}\n", causes.next().unwrap_or_default());
        let mut reported = text.clone();
        for cause in causes {
            // Some libraries put their cause into their own message as well, and one has only "db error" as its own.
            if cause != "db error" && !reported.contains(&cause) {
                let _ = writeln!(text, "  caused by: {cause}");
                reported.push_str(&cause);
            }
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\n{cyan}hint{plain}: {}\n", record::escape::visible(hint.trim_end()));
        }
        text
    }
}

/// Why an engine cannot be loaded, if it cannot.
pub(crate) fn unloadable(engine: Engine) -> Option<String> {
    match engine.load {
        LoadPath::None(reason) => Some(format!("pgfathom load does not support {}: {reason}", engine.title)),
        LoadPath::Leaves | LoadPath::EachNode | LoadPath::Table => None,
    }
}

/// Whether a hint has the verb `load` in it, or pgbench's own way of filling its tables, which is COPY as well.
fn leads_to_load(hint: &str) -> bool {
    let words = || hint.split(|letter: char| !letter.is_alphanumeric());
    words().any(|word| word == "load") || hint.contains("pgbench -i")
}

/// A message that may quote a server, a program's output, a file or an argument: characters that act on a terminal are shown by their
/// number, passwords are hidden, and every line after the first is indented, so that nothing quoted can look like a line of ours.
fn quoted(text: &str) -> String {
    let text = record::redact::text(text);
    let text = wire::error::shorten(&text);
    let clean = |line: &str| record::escape::visible(&line.trim_end().replace('\t', " ")).into_owned();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut message = clean(lines.next().unwrap_or_default());
    for line in lines {
        let _ = write!(message, "\n    {}", clean(line));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_indented_and_the_hint_stands_apart() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let failure =
            Failure::caused("cannot connect to localhost:5432", refused).hint("is a server running?");
        assert_eq!(
            failure.render(false),
            "error: cannot connect to localhost:5432\n  caused by: connection refused\n\nhint: is a server running?\n"
        );
        assert_eq!(failure.exit(), Exit::Usage);
    }

    #[test]
    fn a_cause_already_reported_is_not_repeated() {
        let cause = std::io::Error::other("disk full");
        let failure = Failure::caused("cannot write run.json: disk full", cause);
        assert_eq!(failure.render(false), "error: cannot write run.json: disk full\n");
    }

    #[test]
    fn a_hint_does_not_act_on_the_terminal() {
        let failure = Failure::caused("no", std::io::Error::other("no")).hint("see \u{1b}[31mdb");
        assert!(failure.render(false).ends_with("hint: see \\u001b[31mdb\n"), "{}", failure.render(false));
    }

    #[test]
    fn a_quoted_message_cannot_move_the_cursor_or_fake_a_hint() {
        let failure = Failure::usage("bad \x1b[2J file\n\nhint: rm -rf /");
        assert_eq!(failure.render(false), "error: bad \\u001b[2J file\n    hint: rm -rf /\n");
    }

    #[test]
    fn color_surrounds_the_words_only() {
        let text = Failure::usage("x").hint("y").render(true);
        assert_eq!(text, "\x1b[1;31merror\x1b[0m: x\n\n\x1b[36mhint\x1b[0m: y\n");
    }
}
