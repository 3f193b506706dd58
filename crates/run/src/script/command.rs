//! A compiled script, and how to walk through it.

use super::error::{Problem, ScriptError, Span};
use super::eval_error::EvalError;
use super::names::{Names, Slot};
use super::parse::Amount;
use super::program::Program;
use super::state::{Parameter, State};
use super::statement::Statement;
use super::value::Value;
use crate::random::Random;

/// Longest label of a command in reports.
const LABEL_CHARACTERS_MAX: usize = 127;

/// What a command does. Conditionals are jumps, always forward.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Sql(Statement),
    Set { slot: Slot, program: Program },
    JumpUnless { condition: Program, target: usize },
    Jump { target: usize },
    Sleep { amount: Amount, unit_us: u64 },
    StartPipeline,
    SyncPipeline,
    EndPipeline,
}

/// A compiled script.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) weight: u32,
    pub(super) commands: Vec<(Span, Action)>,
}

/// Where a session is in a script. It starts outside any pipeline at the first command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: usize,
    in_pipeline: bool,
}

/// What the session has to do next. Everything that needs no server and no clock (`\set`, `\if`) is done on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// Send this statement; outside a pipeline, wait for its result. `command` indexes the script's commands.
    Sql { statement: &'a Statement, command: usize },
    /// Do nothing for so long.
    Sleep { pause_us: u64, command: usize },
    /// From here on send without waiting.
    StartPipeline { command: usize },
    /// Send Sync, do not wait.
    SyncPipeline { command: usize },
    /// Send Sync and wait for every result since the pipeline was opened.
    EndPipeline { command: usize },
    /// The transaction is complete.
    End,
}

/// A command that failed on the client: which one, at which operation of its expression, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    pub command: usize,
    pub(super) op: Option<u32>,
    pub error: EvalError,
}

impl Failure {
    /// A failure that the session finds out: a statement's variable is not set, `\gset` got no row.
    #[must_use]
    pub fn new(command: usize, error: EvalError) -> Failure {
        Failure { command, op: None, error }
    }
}

impl Cursor {
    /// Whether a pipeline is open: statements are sent without waiting for results.
    #[must_use]
    pub(crate) fn in_pipeline(self) -> bool {
        self.in_pipeline
    }
}

impl Script {
    /// The script's name: a built-in's name or a file's path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often it is chosen, in relation to the other scripts' weights; 0 for never.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How many commands there are; [`Step`]s and [`Failure`]s number them from 0.
    #[must_use]
    pub fn command_count(&self) -> usize {
        self.commands.len()
    }

    /// A command's first line, cut to 127 characters, for reports.
    #[must_use]
    pub fn label(&self, command: usize) -> String {
        let Some((span, _)) = self.commands.get(command) else { return String::new() };
        let text = self.source.get(span.start as usize..span.end as usize).unwrap_or("");
        text.lines().next().unwrap_or("").chars().take(LABEL_CHARACTERS_MAX).collect()
    }

    /// The line a command starts on, counted from 1.
    #[must_use]
    pub fn line(&self, command: usize) -> usize {
        let start = self.commands.get(command).map_or(0, |(span, _)| span.start as usize);
        self.source.get(..start).map_or(1, |before| before.matches('\n').count() + 1)
    }

    /// The SQL statements with their command numbers, in order: what the prepared mode prepares.
    pub fn statements(&self) -> impl Iterator<Item = (usize, &Statement)> {
        self.commands.iter().enumerate().filter_map(|(index, (_, action))| match action {
            Action::Sql(statement) => Some((index, statement)),
            _ => None,
        })
    }

    /// Goes on from the cursor to the next thing that needs the server or the clock, or to the end. Allocates nothing while
    /// variables hold numbers.
    ///
    /// `debug` gets what `debug()` in an expression is given, with the command's number.
    ///
    /// # Errors
    /// A [`Failure`], to be reported with [`Script::explain`]; the cursor then stands behind the failed command.
    pub fn step<'a>(
        &'a self,
        cursor: &mut Cursor,
        state: &mut State,
        random: &mut Random,
        debug: &mut dyn FnMut(usize, Value),
    ) -> Result<Step<'a>, Failure> {
        while let Some((_, action)) = self.commands.get(cursor.next) {
            let command = cursor.next;
            cursor.next += 1;
            let fail = |error| Err(Failure { command, op: None, error });
            let mut evaluate = |program: &Program, state: &mut State| {
                program
                    .evaluate(state, random, &mut |value| debug(command, value))
                    .map_err(|failed| Failure { command, op: Some(failed.op), error: failed.error })
            };
            match action {
                Action::Set { slot, program } => {
                    let value = evaluate(program, state)?;
                    state.set(*slot, value);
                }
                Action::JumpUnless { condition, target } => {
                    if !evaluate(condition, state)?.truth() {
                        cursor.next = *target;
                    }
                }
                Action::Jump { target } => cursor.next = *target,
                Action::Sql(statement) => {
                    if let (Some(capture), true) = (statement.capture(), cursor.in_pipeline) {
                        return fail(EvalError::CaptureInPipeline(capture.kind.name()));
                    }
                    return Ok(Step::Sql { statement, command });
                }
                Action::Sleep { amount, unit_us } => {
                    let count = match count_of(amount, state) {
                        Ok(count) => count,
                        Err(error) => return fail(error),
                    };
                    return Ok(Step::Sleep { pause_us: count.saturating_mul(*unit_us), command });
                }
                Action::StartPipeline => {
                    if cursor.in_pipeline {
                        return fail(EvalError::AlreadyInPipeline);
                    }
                    cursor.in_pipeline = true;
                    return Ok(Step::StartPipeline { command });
                }
                Action::SyncPipeline => {
                    if !cursor.in_pipeline {
                        return fail(EvalError::NotInPipeline("syncpipeline"));
                    }
                    return Ok(Step::SyncPipeline { command });
                }
                Action::EndPipeline => {
                    if !cursor.in_pipeline {
                        return fail(EvalError::NotInPipeline("endpipeline"));
                    }
                    cursor.in_pipeline = false;
                    return Ok(Step::EndPipeline { command });
                }
            }
        }
        if cursor.in_pipeline {
            let command = self.commands.len().saturating_sub(1);
            return Err(Failure { command, op: None, error: EvalError::PipelineLeftOpen });
        }
        Ok(Step::End)
    }

    /// Reports a failure with the file, the line and a caret under the part of the expression that failed.
    #[must_use]
    pub fn explain(&self, failure: &Failure, names: &Names) -> ScriptError {
        let (mut span, action) = match self.commands.get(failure.command) {
            Some((span, action)) => (*span, Some(action)),
            None => (Span::default(), None),
        };
        if let Some(Action::Set { program, .. } | Action::JumpUnless { condition: program, .. }) = action
            && let Some(op) = failure.op
        {
            span = program.span(op);
        }
        let message = match failure.error {
            EvalError::Undefined(slot) => format!("variable :{} is not set", names.name(slot)),
            EvalError::Malformed(slot) => {
                format!("variable :{} holds text that is not a number, boolean or null", names.name(slot))
            }
            error => error.to_string(),
        };
        ScriptError::at(&self.name, &self.source, span, Problem::Evaluation { error: failure.error, message })
    }
}

fn count_of(amount: &Amount, state: &State) -> Result<u64, EvalError> {
    match amount {
        Amount::Constant(count) => Ok(*count),
        Amount::Variable(slot) => pause(state, *slot),
    }
}

/// How many units a `\sleep :name` waits: the whole part of a number; of text, the digits it begins with.
fn pause(state: &State, slot: Slot) -> Result<u64, EvalError> {
    match state.parameter(slot)? {
        Parameter::Value(Value::Int(count)) => Ok(count.max(0) as u64),
        // The cast cuts the fraction off and takes negative numbers and NaN to zero.
        Parameter::Value(Value::Double(count)) => Ok(count as u64),
        Parameter::Value(Value::Null | Value::Bool(_)) => Err(EvalError::SleepTime),
        Parameter::Text(text) => {
            let text = text.trim_ascii_start();
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            match text {
                [b'-', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit) => Ok(0),
                _ if digits == 0 => Err(EvalError::SleepTime),
                _ => Ok(text[..digits].iter().fold(0_u64, |number, digit| {
                    number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
                })),
            }
        }
    }
}
