//! Errors of a script: the file, the line, the offending text, and what to write instead.

use std::fmt;

use super::eval_error::EvalError;

/// Columns of a line shown around a mistake; longer lines are cut, so that a generated one-line script stays readable.
const EXCERPT_COLUMNS_MAX: usize = 100;

/// A range of bytes of a script's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(super) fn new(start: usize, end: usize) -> Span {
        Span { start: u32::try_from(start).unwrap_or(u32::MAX), end: u32::try_from(end).unwrap_or(u32::MAX) }
    }
}

/// A mistake at a place in a script. Its display has several lines: `file:line:column: what`, then the line with a caret under it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct ScriptError {
    script: String,
    line: usize,
    column: usize,
    excerpt: Option<Box<Excerpt>>,
    problem: Box<Problem>,
}

/// The offending line, cut to size, and where the caret goes in it (columns are characters, both counted from zero).
#[derive(Clone, Debug, PartialEq)]
struct Excerpt {
    text: String,
    caret: usize,
    width: usize,
}

impl ScriptError {
    /// An error at `span` of a script's text.
    pub(super) fn at(script: &str, source: &str, span: Span, problem: Problem) -> ScriptError {
        let start = floor_boundary(source, span.start as usize);
        let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |newline| start + newline);
        let line_text = source[line_start..line_end].trim_end_matches('\r');
        let column = source[line_start..start].chars().count();
        let end = floor_boundary(source, (span.end as usize).clamp(start, line_end));
        let width = source[start..end].chars().count().max(1);

        let skipped = if column > EXCERPT_COLUMNS_MAX / 2 && line_text.chars().count() > EXCERPT_COLUMNS_MAX {
            column - EXCERPT_COLUMNS_MAX / 2
        } else {
            0
        };
        // A tab has no width of its own; one column for each character keeps the caret in place.
        let text: String = line_text
            .chars()
            .skip(skipped)
            .take(EXCERPT_COLUMNS_MAX)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let caret = column - skipped;
        let width = width.min(EXCERPT_COLUMNS_MAX.saturating_sub(caret).max(1));
        ScriptError {
            script: script.to_owned(),
            line: source[..start].matches('\n').count() + 1,
            column: column + 1,
            excerpt: Some(Box::new(Excerpt { text, caret, width })),
            problem: Box::new(problem),
        }
    }

    /// An error of a script as a whole, which has no line.
    pub(super) fn whole(script: &str, problem: Problem) -> ScriptError {
        ScriptError {
            script: script.to_owned(),
            line: 0,
            column: 0,
            excerpt: None,
            problem: Box::new(problem),
        }
    }

    /// What is wrong, for callers that decide by it.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The line of the mistake, counted from 1; 0 where it concerns the script as a whole.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column of the mistake in characters, counted from 1; 0 where it concerns the script as a whole.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// What to write instead, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }
}

/// The nearest character boundary at or below `at`, inside the text.
fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(excerpt) = &self.excerpt else {
            return write!(f, "{}: {}", self.script, self.problem);
        };
        let number = self.line.to_string();
        writeln!(f, "{}:{}:{}: {}", self.script, self.line, self.column, self.problem)?;
        writeln!(f, "  {number} | {}", excerpt.text)?;
        let margin = number.len() + 2;
        let caret = excerpt.caret;
        write!(f, "{:margin$} | {:caret$}{}", "", "", "^".repeat(excerpt.width))
    }
}

/// Everything that can be wrong with a script's text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    // The text as a whole.
    #[error("the script has no command")]
    Empty,
    #[error("the script is {bytes} bytes long; the limit is {limit}")]
    TooLong { bytes: u64, limit: u64 },
    #[error("line {line} is not UTF-8 text")]
    NotUtf8 { line: usize },
    #[error("NUL byte in the script")]
    Nul,
    #[error("more than {limit} commands")]
    TooManyCommands { limit: usize },

    // SQL.
    #[error("{what} opened here is never closed")]
    Unclosed { what: &'static str },
    #[error("unclosed parenthesis before \\{command}")]
    UnclosedBefore { command: String },
    #[error("more than {limit} variables in one statement")]
    TooManyParameters { limit: usize },
    #[error("variable :{name} inside {place} cannot be sent as a parameter")]
    QuotedParameter { name: String, place: &'static str },
    #[error("psql's :{quote}name{quote} is not part of the pgbench dialect")]
    QuotedSubstitution { quote: char },
    #[error("{copy} cannot be run by a script: pgfathom does not send or receive its rows")]
    CopyThroughClient { copy: &'static str },
    #[error("several statements joined by \\; need the simple query mode")]
    JoinedStatements,
    #[error("undefined variable :{name}")]
    UndefinedVariable { name: String, similar: Option<String> },

    // Meta commands.
    #[error("unknown command \\{name}")]
    UnknownCommand { name: String, similar: Option<&'static str> },
    #[error("\\{name} is not supported: running a program would stop every other session of its worker")]
    Shell { name: &'static str },
    #[error("\\{command} needs {what}")]
    MissingArgument { command: &'static str, what: &'static str },
    #[error("\\{command} takes no more arguments")]
    ExtraArgument { command: &'static str },
    #[error("invalid variable name \"{name}\"")]
    VariableName { name: String },
    #[error("\\sleep needs a whole number or a :variable, not \"{text}\"")]
    SleepTime { text: String },
    #[error("unknown time unit \"{text}\"")]
    SleepUnit { text: String },
    #[error("\\{command} must follow an SQL command")]
    NothingToCapture { command: &'static str },
    #[error("\\{command} without \\if")]
    WithoutIf { command: &'static str },
    #[error("\\{command} after \\else")]
    AfterElse { command: &'static str },
    #[error("\\if without \\endif")]
    WithoutEndif,
    #[error("\\{command} cannot work in the simple query mode")]
    SimplePipeline { command: &'static str },
    #[error("\\startpipeline inside a pipeline")]
    AlreadyInPipeline,
    #[error("\\{command} outside a pipeline")]
    NotInPipeline { command: &'static str },
    #[error("\\{command} is not allowed in a pipeline")]
    CaptureInPipeline { command: &'static str },
    #[error("the script ends inside the pipeline opened here")]
    PipelineLeftOpen,

    // Expressions.
    #[error("unexpected character {character:?}")]
    UnexpectedCharacter { character: char },
    #[error("expected {expected}, found {found}")]
    Unexpected { found: String, expected: &'static str },
    #[error("integer {text} is out of range")]
    IntegerRange { text: String },
    #[error("double {text} is out of range")]
    DoubleRange { text: String },
    #[error("comparisons cannot be chained")]
    ChainedComparison,
    #[error("unknown function \"{name}\"")]
    UnknownFunction { name: String, similar: Option<&'static str> },
    #[error("{function}() takes {takes}, not {given}")]
    ArgumentCount { function: &'static str, takes: &'static str, given: usize },
    #[error("expression nested deeper than {limit} levels")]
    TooDeep { limit: usize },

    // Running.
    #[error("{message}")]
    Evaluation { error: EvalError, message: String },
}

impl Problem {
    /// What to write instead, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Problem::TooLong { .. } => {
                "a script is what one transaction does: draw its values (\\set id random(1, 1000)) instead of listing them, or load data by psql -f FILE"
            }
            Problem::Empty => "a script needs at least one SQL statement or meta command",
            Problem::NotUtf8 { .. } => "convert the file first, for example: iconv -f latin1 -t utf8 FILE",
            Problem::Unclosed { what: "parenthesis" } => {
                "a statement ends at ; only outside parentheses: close it before the ;"
            }
            Problem::UnclosedBefore { .. } => {
                "close the parenthesis, and end the statement with ; before the meta command"
            }
            Problem::QuotedSubstitution { .. } => {
                "write :name alone; parameters are quoted as needed by the protocol"
            }
            Problem::CopyThroughClient { copy: "COPY FROM STDIN" } => {
                "let the server read a file of its own (COPY ... FROM 'file'), or write INSERT ... SELECT; psql's \\copy fills tables"
            }
            Problem::CopyThroughClient { .. } => {
                "a SELECT sends the same rows as a result; COPY ... TO 'file' and TO PROGRAM write on the server"
            }
            Problem::JoinedStatements => "run with -M simple, or use \\startpipeline and \\endpipeline",
            Problem::UnknownCommand { similar: None, .. } => {
                "known are \\set \\gset \\aset \\if \\elif \\else \\endif \\sleep \\startpipeline \\syncpipeline \\endpipeline"
            }
            Problem::Shell { .. } => "run the program once before, and pass its output: -D name=$(program)",
            Problem::MissingArgument { command: "set", .. } => {
                "write \\set name expression, as in \\set aid random(1, 1000)"
            }
            Problem::VariableName { .. } => {
                "a name is letters, digits and underscores, not starting with a digit"
            }
            Problem::SleepTime { .. } | Problem::SleepUnit { .. } => {
                "write \\sleep 10 ms; units are us, ms and s"
            }
            Problem::NothingToCapture { .. } => "put it right after the statement: SELECT 1 AS one \\gset",
            Problem::WithoutEndif => "close each \\if with its own \\endif",
            Problem::SimplePipeline { .. } => "run with -M extended or -M prepared",
            Problem::PipelineLeftOpen | Problem::AlreadyInPipeline => "close it with \\endpipeline first",
            Problem::NotInPipeline { .. } => "open it with \\startpipeline first",
            Problem::CaptureInPipeline { .. } => {
                "its result has not arrived yet: move the statement behind \\endpipeline"
            }
            Problem::UnexpectedCharacter { character } => of_character(*character)?,
            Problem::Unexpected { found, expected } => of_word(found.trim_matches('"'), expected)?,
            Problem::IntegerRange { .. } => {
                "integers reach from -9223372036854775808 to 9223372036854775807; append .0 for a double"
            }
            Problem::ChainedComparison => "write (a < b) AND (b < c)",
            Problem::Evaluation { error, .. } => error.hint()?,
            _ => return self.hint_with_names(),
        };
        Some(hint.to_owned())
    }

    /// Hints that repeat a name of the script.
    fn hint_with_names(&self) -> Option<String> {
        Some(match self {
            Problem::QuotedParameter { name, .. } => {
                format!("write 'text' || :{name} || 'text', or run with -M simple")
            }
            Problem::UndefinedVariable { name, similar: Some(similar) } => {
                format!("is :{similar} meant? Otherwise set it: \\set {name} ..., or -D {name}=VALUE")
            }
            Problem::UndefinedVariable { name, similar: None } => {
                format!("set it before its first use: \\set {name} ..., or -D {name}=VALUE")
            }
            Problem::UnknownCommand { similar: Some(similar), .. } => format!("is \\{similar} meant?"),
            Problem::UnknownFunction { similar: Some(similar), .. } => format!("is {similar}() meant?"),
            Problem::UnknownFunction { similar: None, name } => {
                format!("known are {}; variables are written :{name}", super::function::names())
            }
            _ => return None,
        })
    }
}

/// What to write instead of a character.
fn of_character(character: char) -> Option<&'static str> {
    Some(match character {
        ';' => "a meta command ends with its line, without ;",
        '\'' | '"' => "expressions know numbers, booleans and NULL; text can only be used in SQL",
        '!' => "write NOT, or <> for unequal",
        '^' => "write pow(a, b)",
        '[' | ']' | '{' | '}' => "group with parentheses",
        '$' | '@' => "variables are written :name",
        _ => return None,
    })
}

/// What to write instead of a word where another one was expected.
fn of_word(found: &str, expected: &str) -> Option<&'static str> {
    Some(match found {
        "=" if expected == "an expression" => {
            "\\set takes no =: write \\set name expression; equality is a single ="
        }
        "|" | "&" => "boolean operators are AND, OR and NOT",
        "*" => "a value is missing before it; a power is written pow(a, b)",
        "the end of the line" => "an expression continues on the next line only after a backslash at the end",
        _ => return None,
    })
}
