//! From the text of a script to its commands, one after the other, not yet joined by jumps.

use super::error::{Problem, ScriptError, Span};
use super::expression::{self, Misplaced, Use};
use super::names::{self, Names, Slot};
use super::program::Program;
use super::scan::{self, Ending, Scanned};
use super::token::continuation;

/// Longest script: far above anything written by hand, low enough that positions fit 32 bits.
pub const SCRIPT_BYTES_MAX: usize = 16 << 20;
/// Most commands in a script.
pub const COMMANDS_MAX: usize = 100_000;

/// `\gset` or `\aset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureKind {
    /// Exactly one row, of the last statement.
    Gset,
    /// The last row, if there is any, of every statement.
    Aset,
}

impl CaptureKind {
    /// The command's name without the backslash.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CaptureKind::Gset => "gset",
            CaptureKind::Aset => "aset",
        }
    }
}

/// How a `\sleep` is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Constant(u64),
    Variable(Slot),
}

#[derive(Debug)]
pub(super) enum Parsed {
    Sql { scanned: Scanned, capture: Option<(CaptureKind, String, Span)> },
    Set { slot: Slot, program: Program },
    If(Program),
    Elif(Program),
    Else,
    Endif,
    Sleep { amount: Amount, unit_us: u64 },
    StartPipeline,
    SyncPipeline,
    EndPipeline,
}

#[derive(Debug)]
pub(super) struct ParsedCommand {
    pub(super) span: Span,
    pub(super) what: Parsed,
}

/// A script whose every command is understood, but whose variables are not yet checked.
#[derive(Debug)]
pub(super) struct ParsedScript {
    pub(super) commands: Vec<ParsedCommand>,
    /// Variables that expressions and `\sleep` read.
    pub(super) uses: Vec<Use>,
}

/// Every meta command, for messages; the two that are refused come last.
const META_COMMANDS: [&str; 13] = [
    "set",
    "gset",
    "aset",
    "if",
    "elif",
    "else",
    "endif",
    "sleep",
    "startpipeline",
    "syncpipeline",
    "endpipeline",
    "setshell",
    "shell",
];

/// Parses a script. Names are interned in the table that all scripts of the run share.
pub(super) fn script(name: &str, source: &str, names: &mut Names) -> Result<ParsedScript, ScriptError> {
    if source.len() > SCRIPT_BYTES_MAX {
        let problem = Problem::TooLong { bytes: source.len() as u64, limit: SCRIPT_BYTES_MAX as u64 };
        return Err(ScriptError::whole(name, problem));
    }
    let fail = |(problem, span): Misplaced| ScriptError::at(name, source, span, problem);
    if let Some(at) = source.find('\0') {
        return Err(fail((Problem::Nul, Span::new(at, at + 1))));
    }
    let mut parser =
        Parser { source, names, script: ParsedScript { commands: Vec::new(), uses: Vec::new() } };
    parser.run().map_err(fail)?;
    if parser.script.commands.is_empty() {
        return Err(ScriptError::whole(name, Problem::Empty));
    }
    Ok(parser.script)
}

struct Parser<'a> {
    source: &'a str,
    names: &'a mut Names,
    script: ParsedScript,
}

/// A word of a meta command's line.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    span: Span,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), Misplaced> {
        let mut at = 0;
        loop {
            let scanned = scan::statement(self.source, at)?;
            at = scanned.next;
            let ending = scanned.ending;
            if !scanned.pieces.is_empty() {
                let span = scanned.span;
                self.push(span, Parsed::Sql { scanned, capture: None })?;
            }
            match ending {
                Ending::Semicolon => {}
                Ending::MetaCommand => at = self.meta(at)?,
                Ending::EndOfText => return Ok(()),
            }
        }
    }

    fn push(&mut self, span: Span, what: Parsed) -> Result<(), Misplaced> {
        if self.script.commands.len() >= COMMANDS_MAX {
            return Err((Problem::TooManyCommands { limit: COMMANDS_MAX }, span));
        }
        self.script.commands.push(ParsedCommand { span, what });
        Ok(())
    }

    /// The next word of a meta command's line, from `at`; `None` at its end.
    fn word(&self, mut at: usize) -> Option<Word<'a>> {
        let bytes = self.source.as_bytes();
        let start = loop {
            match bytes.get(at)? {
                b'\n' => return None,
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => at += 1,
                b'\\' => match continuation(&bytes[at..]) {
                    Some(length) => at += length,
                    None => break at,
                },
                _ => break at,
            }
        };
        let mut end = start;
        while let Some(byte) = bytes.get(end) {
            if byte.is_ascii_whitespace() || *byte == 0x0b || continuation(&bytes[end..]).is_some() {
                break;
            }
            end += 1;
        }
        Some(Word { text: &self.source[start..end], span: Span::new(start, end) })
    }

    /// Where the line of a meta command ends, continuations included.
    fn line_end(&self, mut at: usize) -> usize {
        let bytes = self.source.as_bytes();
        while at < bytes.len() && bytes[at] != b'\n' {
            at += continuation(&bytes[at..]).unwrap_or(1);
        }
        at.min(bytes.len())
    }

    /// Parses the meta command whose backslash is at `at`; answers where to go on.
    fn meta(&mut self, at: usize) -> Result<usize, Misplaced> {
        let backslash = Span::new(at, at + 1);
        let named = self.word(at + 1).filter(|word| word.span.start as usize == at + 1);
        let Some(name) = named else {
            return Err((Problem::UnknownCommand { name: String::new(), similar: None }, backslash));
        };
        let name_span = Span { start: backslash.start, end: name.span.end };
        let behind = name.span.end as usize;
        let lower = name.text.to_ascii_lowercase();
        match lower.as_str() {
            "set" => self.set(name_span, behind),
            "if" | "elif" => {
                let (program, uses, end) = expression::compile(self.source, behind, self.names)?;
                self.script.uses.extend(uses);
                let what = if lower == "if" { Parsed::If(program) } else { Parsed::Elif(program) };
                self.push(self.trimmed(at, end), what)?;
                Ok(end)
            }
            "shell" => Err((Problem::Shell { name: "shell" }, name_span)),
            "setshell" => Err((Problem::Shell { name: "setshell" }, name_span)),
            _ => {
                let end = self.line_end(behind);
                self.plain(&lower, name, name_span, end)?;
                Ok(end)
            }
        }
    }

    /// The span of a line without the space at its end.
    fn trimmed(&self, start: usize, end: usize) -> Span {
        Span::new(start, self.source[..end].trim_end().len().max(start))
    }

    fn set(&mut self, command: Span, behind: usize) -> Result<usize, Misplaced> {
        let Some(target) = self.word(behind) else {
            return Err((
                Problem::MissingArgument { command: "set", what: "a name and an expression" },
                command,
            ));
        };
        if !names::is_name(target.text) {
            return Err((Problem::VariableName { name: target.text.to_owned() }, target.span));
        }
        let from = target.span.end as usize;
        if self.word(from).is_none() {
            let whole = Span { start: command.start, end: target.span.end };
            return Err((Problem::MissingArgument { command: "set", what: "an expression" }, whole));
        }
        let (program, uses, end) = expression::compile(self.source, from, self.names)?;
        self.script.uses.extend(uses);
        let slot = self.names.intern(target.text);
        self.push(self.trimmed(command.start as usize, end), Parsed::Set { slot, program })?;
        Ok(end)
    }

    /// Commands without an expression.
    fn plain(&mut self, lower: &str, name: Word<'_>, command: Span, end: usize) -> Result<(), Misplaced> {
        let mut words = Vec::new();
        let mut from = name.span.end as usize;
        // One word more than any command takes is enough to refuse it.
        while let (true, Some(word)) = (words.len() < 3, self.word(from)) {
            from = word.span.end as usize;
            words.push(word);
        }
        let span = self.trimmed(command.start as usize, end);
        let bare = |words: &[Word<'_>], command| match words.first() {
            Some(extra) => Err((Problem::ExtraArgument { command }, extra.span)),
            None => Ok(()),
        };
        let what = match lower {
            "gset" => return self.capture(CaptureKind::Gset, &words, command),
            "aset" => return self.capture(CaptureKind::Aset, &words, command),
            "sleep" => self.sleep(&words, command)?,
            "else" => {
                bare(&words, "else")?;
                Parsed::Else
            }
            "endif" => {
                bare(&words, "endif")?;
                Parsed::Endif
            }
            "startpipeline" => {
                bare(&words, "startpipeline")?;
                Parsed::StartPipeline
            }
            "syncpipeline" => {
                bare(&words, "syncpipeline")?;
                Parsed::SyncPipeline
            }
            "endpipeline" => {
                bare(&words, "endpipeline")?;
                Parsed::EndPipeline
            }
            _ => {
                let similar = names::nearest(lower, META_COMMANDS.into_iter());
                return Err((Problem::UnknownCommand { name: name.text.to_owned(), similar }, command));
            }
        };
        self.push(span, what)
    }

    /// `\gset` and `\aset` belong to the statement before them and take no place of their own.
    fn capture(&mut self, kind: CaptureKind, words: &[Word<'_>], command: Span) -> Result<(), Misplaced> {
        if let Some(extra) = words.get(1) {
            return Err((Problem::ExtraArgument { command: kind.name() }, extra.span));
        }
        let prefix = match words.first() {
            Some(word) if !names::is_name(word.text) => {
                return Err((Problem::VariableName { name: word.text.to_owned() }, word.span));
            }
            Some(word) => word.text.to_owned(),
            None => String::new(),
        };
        match self.script.commands.last_mut() {
            Some(ParsedCommand { what: Parsed::Sql { capture: capture @ None, .. }, .. }) => {
                *capture = Some((kind, prefix, command));
                Ok(())
            }
            _ => Err((Problem::NothingToCapture { command: kind.name() }, command)),
        }
    }

    /// `\sleep N [us|ms|s]`, with the unit also glued to the number; seconds without one.
    fn sleep(&mut self, words: &[Word<'_>], command: Span) -> Result<Parsed, Misplaced> {
        let Some(first) = words.first() else {
            let what = "a number and optionally a unit (us, ms, s)";
            return Err((Problem::MissingArgument { command: "sleep", what }, command));
        };
        if let Some(extra) = words.get(2) {
            return Err((Problem::ExtraArgument { command: "sleep" }, extra.span));
        }
        let mut unit = words.get(1).copied();
        let amount = if let Some(name) = first.text.strip_prefix(':') {
            if !names::is_name(name) {
                return Err((Problem::VariableName { name: name.to_owned() }, first.span));
            }
            let slot = self.names.intern(name);
            self.script.uses.push(Use { slot, span: first.span });
            Amount::Variable(slot)
        } else {
            let (negative, unsigned) = match first.text.strip_prefix('-') {
                Some(rest) => (true, rest),
                None => (false, first.text.strip_prefix('+').unwrap_or(first.text)),
            };
            let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
            let glued = &unsigned[digits..];
            let invalid = || (Problem::SleepTime { text: first.text.to_owned() }, first.span);
            if digits == 0 || glued.starts_with('.') || (!glued.is_empty() && unit.is_some()) {
                return Err(invalid());
            }
            if !glued.is_empty() {
                let start = first.span.end - glued.len() as u32;
                unit = Some(Word { text: glued, span: Span { start, end: first.span.end } });
            }
            let number: u64 = unsigned[..digits].parse().map_err(|_| invalid())?;
            // A negative pause is none.
            Amount::Constant(if negative { 0 } else { number })
        };
        let unit_us = match unit {
            None => 1_000_000,
            Some(word) if word.text.eq_ignore_ascii_case("us") => 1,
            Some(word) if word.text.eq_ignore_ascii_case("ms") => 1_000,
            Some(word) if word.text.eq_ignore_ascii_case("s") => 1_000_000,
            Some(word) => return Err((Problem::SleepUnit { text: word.text.to_owned() }, word.span)),
        };
        Ok(Parsed::Sleep { amount, unit_us })
    }
}
