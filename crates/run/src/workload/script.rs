//! Runs a compiled pgbench script on a session.

use std::io::Write as _;
use std::sync::Arc;

use wire::backend::{Columns, Frame, column_names, tag};
use wire::frontend::{self, Format};
use wire::prepared::{Execution, Template};

use super::{Item, TransactionError, Try, Workload, succeeded};
use crate::engine::link::Reply;
use crate::engine::session::{PauseDropped, Session};
use crate::engine::{NANOS_PER_MICRO, Nanos};
use crate::script::{
    CaptureKind, Cursor, EvalError, Failure, Mix, Parameter, Predefined, QueryMode, Script, Slot, State,
    Statement, Step, Value,
};
use crate::statement::StatementSpec;
use crate::terminals::Turn;

/// What makes the tables of pgbench's own scripts everywhere.
const FILL_PGBENCH: &str = "fill pgbench's tables first: pgbench -i";
/// A script's weight counts so many times: shares of the workloads that are built in are percents.
const WEIGHT_UNIT: u64 = 100;

/// The scripts of a mix, and what their variables begin with.
#[derive(Clone, Debug)]
pub struct Scripts {
    mix: Arc<Mix>,
    mode: QueryMode,
    predefined: Predefined,
    /// What to type where the tables of pgbench's own scripts are missing.
    fill: &'static str,
}

impl Scripts {
    /// `predefined.client_id` is replaced by each session's own number.
    pub fn new(mix: Arc<Mix>, mode: QueryMode, predefined: Predefined) -> Scripts {
        Scripts { mix, mode, predefined, fill: FILL_PGBENCH }
    }

    /// The same with another hint where pgbench's tables are missing.
    #[must_use]
    pub fn filled_by(self, fill: &'static str) -> Scripts {
        Scripts { fill, ..self }
    }

    /// The compiled scripts.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// How statements are sent.
    pub fn mode(&self) -> QueryMode {
        self.mode
    }

    /// What every session prepares: all statements, in the order of their numbers.
    fn specs(&self) -> Vec<StatementSpec> {
        if self.mode != QueryMode::Prepared {
            return Vec::new();
        }
        let mut statements: Vec<(usize, StatementSpec)> = self
            .mix
            .scripts()
            .iter()
            .flat_map(|script| {
                script.statements().map(move |(command, statement)| (script, command, statement))
            })
            .map(|(script, command, statement)| {
                let spec = StatementSpec {
                    name: format!("script_{}", statement.number()),
                    sql: statement.prepared().to_owned(),
                    mode: QueryMode::Prepared,
                    is_read: statement.capture().is_some(),
                    parameters: statement.parameters().len(),
                    place: Some(format!("{}:{}", script.name(), script.line(command))),
                    is_always_prepared: false,
                    fill: statement.prepared().contains("pgbench_").then_some(self.fill),
                };
                (statement.number(), spec)
            })
            .collect();
        statements.sort_by_key(|(number, _)| *number);
        statements.into_iter().map(|(_, spec)| spec).collect()
    }

    /// A session's variables.
    fn variables(&self, session: u64) -> Result<ScriptSession, EvalError> {
        let state = self.mix.state(&Predefined { client_id: session as i64, ..self.predefined })?;
        Ok(ScriptSession {
            saved: state.clone(),
            state,
            targets: vec![None; self.mix.statement_count()],
            text: Vec::new(),
        })
    }
}

impl Workload for Scripts {
    type Session = ScriptSession;

    fn items(&self) -> Vec<Item> {
        let item = |script: &Script| Item {
            name: short_name(script.name()),
            weight: u64::from(script.weight()) * WEIGHT_UNIT,
        };
        self.mix.scripts().iter().map(item).collect()
    }

    fn statements(&self) -> Vec<StatementSpec> {
        self.specs()
    }

    fn session(&self, session: u64) -> Result<ScriptSession, String> {
        self.variables(session).map_err(|error| error.to_string())
    }

    async fn transaction(
        &self,
        item: usize,
        state: &mut ScriptSession,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        interpret(self, item, state, attempt).await
    }

    #[inline]
    fn begin(&self, state: &mut ScriptSession, _turn: Option<Turn>) {
        state.saved.copy_from(&state.state);
    }

    fn again(&self, state: &mut ScriptSession) {
        state.state.copy_from(&state.saved);
    }

    fn left_open(&self, has_failed: bool) -> &'static str {
        match has_failed {
            true => "end of script reached inside a transaction block that has failed",
            false => "end of script reached without completing the last transaction",
        }
    }

    fn is_users(&self) -> bool {
        true
    }
}

/// A file's name without its folders and its ending.
pub fn short_name(path: &str) -> String {
    let name = std::path::Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.to_string())
}

/// What one session keeps for its scripts.
#[derive(Clone, Debug)]
pub struct ScriptSession {
    state: State,
    /// The variables as the transaction found them: a retry begins with them again.
    saved: State,
    /// For each captured statement, which variable each column goes to, once known.
    targets: Vec<Option<Vec<Option<Slot>>>>,
    /// Where a statement's text is put together.
    text: Vec<u8>,
}

/// What the server still owes inside a pipeline.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// Replies, each to one Sync.
    replies: u64,
    /// Commands in them that are to end as ROLLBACK.
    rollbacks: u32,
}

/// Runs one script from its first command to its end.
async fn interpret(
    scripts: &Scripts,
    number: usize,
    own: &mut ScriptSession,
    attempt: Try<'_>,
) -> Result<(), TransactionError> {
    let Try { session, templates, random, .. } = attempt;
    let script = &scripts.mix.scripts()[number];
    let mut cursor = Cursor::default();
    let mut owed = Owed::default();
    loop {
        let was_in_pipeline = cursor.in_pipeline();
        let step = script.step(&mut cursor, &mut own.state, random, &mut |command, value| {
            log_debug(number, command, value);
        });
        let step = match step {
            Ok(step) => step,
            Err(failure) if was_in_pipeline => {
                give_up_pipeline(session, owed).await?;
                return Err(evaluation(scripts, script, &failure));
            }
            Err(failure) => return Err(evaluation(scripts, script, &failure)),
        };
        match step {
            Step::Sql { statement, command } => {
                if let Err(error) = send(scripts, statement, own, session, templates) {
                    if cursor.in_pipeline() {
                        give_up_pipeline(session, owed).await?;
                    }
                    return Err(evaluation(scripts, script, &Failure::new(command, error)));
                }
                if cursor.in_pipeline() {
                    owed.rollbacks += statement.rollbacks();
                    continue;
                }
                if scripts.mode != QueryMode::Simple {
                    session.request(frontend::sync);
                }
                if statement.capture().is_none() {
                    session.drop_rows();
                }
                let reply = session.reply().await?;
                succeeded(session, reply)?;
                if reply.rollbacks > statement.rollbacks() {
                    return Err(rolled_back(script, command));
                }
                if statement.capture().is_some() {
                    capture(scripts, script, command, statement, own, session, reply)?;
                }
            }
            Step::Sleep { pause_us, .. } => sleep(session, pause_us as Nanos).await?,
            Step::StartPipeline { .. } => {}
            Step::SyncPipeline { .. } => {
                session.request(frontend::sync);
                owed.replies += 1;
            }
            Step::EndPipeline { command } => {
                session.request(frontend::sync);
                owed.replies += 1;
                let rollbacks = take_owed(session, std::mem::take(&mut owed.replies)).await?;
                if rollbacks > std::mem::take(&mut owed.rollbacks) {
                    return Err(rolled_back(script, command));
                }
            }
            Step::End => return Ok(()),
        }
    }
}

/// `\sleep`: the session waits, and its connection is idle.
async fn sleep(session: &Session, pause_us: Nanos) -> Result<(), TransactionError> {
    let deadline = session.now().saturating_add(pause_us.saturating_mul(NANOS_PER_MICRO));
    session.pause_until(deadline).await.map_err(|PauseDropped| TransactionError::Dropped)
}

/// Takes all replies, also behind an error: the next transaction must not read them as its own. Returns how many commands rolled back.
async fn take_owed(session: &Session, replies: u64) -> Result<u32, TransactionError> {
    let (mut outcome, mut rollbacks) = (Ok(()), 0);
    // Nothing in a pipeline can be captured.
    session.drop_rows();
    for _ in 0..replies {
        let reply = session.reply().await?;
        let this = succeeded(session, reply);
        rollbacks += reply.rollbacks;
        outcome = outcome.and(this);
    }
    outcome.map(|()| rollbacks)
}

/// The script fails inside a pipeline. What was sent since the last Sync must not take effect, and the Sync that ends the pipeline would
/// commit it: so it is rolled back first. Then the session is in step again.
async fn give_up_pipeline(session: &Session, owed: Owed) -> Result<(), TransactionError> {
    session.request(|out| {
        frontend::parse(out, "", "ROLLBACK", &[]);
        frontend::bind(out, "", &[], 0, Format::Text, |_, _| false);
        frontend::execute(out);
        frontend::sync(out);
    });
    match take_owed(session, owed.replies + 1).await {
        Err(error @ TransactionError::Lost(_)) => Err(error),
        // An error of the server is not what ended this transaction.
        _ => Ok(()),
    }
}

/// The server may answer a COMMIT with ROLLBACK, and without an error: for one in a block that has failed.
#[cold]
fn rolled_back(script: &Script, command: usize) -> TransactionError {
    let place = format!("{}:{}", script.name(), script.line(command));
    TransactionError::RolledBack(format!("{place}: the server rolled back at COMMIT"))
}

/// Writes one statement's request, without Sync.
fn send(
    scripts: &Scripts,
    statement: &Statement,
    own: &mut ScriptSession,
    session: &Session,
    templates: &[Template],
) -> Result<(), EvalError> {
    let ScriptSession { state, text, .. } = own;
    match scripts.mode {
        QueryMode::Simple => {
            text.clear();
            statement.append_simple(state, text)?;
            session.request(|out| frontend::query_with(out, |out| out.extend_from_slice(text)));
        }
        QueryMode::Extended => {
            check(statement, state)?;
            session.request(|out| {
                frontend::parse(out, "", statement.prepared(), &[]);
                let count = statement.parameters().len() as u16;
                frontend::bind(out, "", &[], count, Format::Text, |index, out| {
                    // Every parameter was checked to have a value.
                    state.append_parameter(statement.parameters()[usize::from(index)], out).unwrap_or(false)
                });
                frontend::describe_portal(out);
                frontend::execute(out);
            });
        }
        QueryMode::Prepared => {
            check(statement, state)?;
            session.request(|out| {
                let mut execution = templates[statement.number()].begin(out);
                for slot in statement.parameters() {
                    parameter(&mut execution, state, *slot);
                }
                execution.finish();
            });
        }
    }
    Ok(())
}

/// Every parameter has a value: nothing may be half-written when one has none.
fn check(statement: &Statement, state: &State) -> Result<(), EvalError> {
    statement.parameters().iter().try_for_each(|slot| state.parameter(*slot).map(drop))
}

#[inline]
fn parameter(execution: &mut Execution<'_>, state: &State, slot: Slot) {
    match state.parameter(slot) {
        Ok(Parameter::Value(Value::Int(value))) => execution.integer(value),
        Ok(Parameter::Value(Value::Double(value))) => {
            execution.double(value, |out| Value::Double(value).write_text(out));
        }
        Ok(Parameter::Value(Value::Bool(value))) => execution.text(if value { b"true" } else { b"false" }),
        Ok(Parameter::Text(text)) => execution.text(text),
        Ok(Parameter::Value(Value::Null)) | Err(_) => execution.null(),
    }
}

/// `\gset` and `\aset`: the columns of the result's row become variables.
fn capture(
    scripts: &Scripts,
    script: &Script,
    command: usize,
    statement: &Statement,
    own: &mut ScriptSession,
    session: &Session,
    reply: Reply,
) -> Result<(), TransactionError> {
    let Some(capture) = statement.capture() else { return Ok(()) };
    let fail = |error| evaluation(scripts, script, &Failure::new(command, error));
    let ScriptSession { state, targets, .. } = own;
    let cached = &mut targets[statement.number()];
    session.with_frames(reply, |frames| {
        // Of joined statements `\gset` takes the last one's result, `\aset` each one's last row.
        let is_end = |tag| matches!(tag, tag::COMMAND_COMPLETE | tag::EMPTY_QUERY_RESPONSE);
        let results = frames.filter(|frame| is_end(frame.tag)).count();
        let mut result = 0;
        let mut rows = 0u64;
        for frame in frames {
            let is_taken = capture.kind == CaptureKind::Aset || result + 1 == results;
            match frame.tag {
                // A prepared statement's columns never change; a simple one's text can.
                tag::ROW_DESCRIPTION
                    if is_taken && (cached.is_none() || scripts.mode == QueryMode::Simple) =>
                {
                    let names = column_names(frame.body).unwrap_or_default();
                    let mut slots = Vec::new();
                    let columns = names.iter().map(String::as_str);
                    capture.targets(scripts.mix.names(), columns, &mut slots).map_err(fail)?;
                    *cached = Some(slots);
                }
                tag::DATA_ROW if is_taken => {
                    rows += 1;
                    assign(frame, cached.as_deref().unwrap_or_default(), state).map_err(fail)?;
                }
                tag if is_end(tag) => result += 1,
                _ => {}
            }
        }
        if capture.kind == CaptureKind::Gset && rows != 1 {
            let place = format!("{}:{}", script.name(), script.line(command));
            let message = format!("{place}: \\gset takes exactly one row, the statement returned {rows}");
            return Err(TransactionError::Script(message));
        }
        Ok(())
    })
}

fn assign(row: Frame<'_>, targets: &[Option<Slot>], state: &mut State) -> Result<(), EvalError> {
    let Ok(mut columns) = Columns::new(row.body) else { return Ok(()) };
    for target in targets {
        let Ok(Some(value)) = columns.next_column() else { return Ok(()) };
        match (target, value) {
            (Some(slot), Some(text)) => state.set_text(*slot, text)?,
            (Some(slot), None) => state.set(*slot, Value::Null),
            (None, _) => {}
        }
    }
    Ok(())
}

fn evaluation(scripts: &Scripts, script: &Script, failure: &Failure) -> TransactionError {
    TransactionError::Script(script.explain(failure, scripts.mix.names()).to_string())
}

/// `debug(...)` in an expression prints a line, in pgbench's form.
fn log_debug(script: usize, command: usize, value: Value) {
    let mut text = Vec::new();
    value.write_text(&mut text);
    let kind = value.type_name();
    let text = String::from_utf8_lossy(&text);
    // The receiver may be gone; that is no reason to end the run.
    let _ = writeln!(std::io::stderr(), "debug(script={script},command={}): {kind} {text}", command + 1);
}
