//! Tests of the script language.

mod arguments;
mod expressions;
mod messages;
mod properties;
mod scripts;

use super::*;
use crate::random::Random;

/// The predefined variables that the tests use.
pub(super) const PREDEFINED: Predefined =
    Predefined { client_id: 3, scale: 10, random_seed: 42, default_seed: 5432 };

pub(super) fn source(text: &str) -> Source {
    Source { name: "test.sql".to_owned(), text: text.to_owned(), weight: 1 }
}

pub(super) fn compile_in(mode: QueryMode, text: &str) -> Result<Mix, ScriptError> {
    Mix::compile(&[source(text)], &Options { mode, defines: Vec::new() })
}

pub(super) fn compile(text: &str) -> Result<Mix, ScriptError> {
    compile_in(QueryMode::Simple, text)
}

/// What a session did: statements as sent in the simple mode, pauses, pipeline commands, and what `debug()` saw.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Trace {
    pub(super) steps: Vec<String>,
    pub(super) debug: Vec<String>,
}

pub(super) fn text_of(value: Value) -> String {
    let mut text = Vec::new();
    value.write_text(&mut text);
    String::from_utf8(text).unwrap()
}

/// Walks once through the first script of a mix. Before each statement with a capture, `answer` may set variables.
pub(super) fn walk(
    mix: &Mix,
    state: &mut State,
    mut answer: impl FnMut(&Capture, &Names, &mut State),
) -> Result<Trace, ScriptError> {
    let script = &mix.scripts()[0];
    let mut trace = Trace::default();
    let mut cursor = Cursor::default();
    let mut random = Random::for_transaction(1, 2, 3);
    let explain = |failure: &Failure| script.explain(failure, mix.names());
    loop {
        let debug = &mut trace.debug;
        let mut sink = |command: usize, value: Value| {
            debug.push(format!("{command}: {} {}", value.type_name(), text_of(value)));
        };
        let step = script.step(&mut cursor, state, &mut random, &mut sink).map_err(|f| explain(&f))?;
        trace.steps.push(match step {
            Step::End => return Ok(trace),
            Step::Sleep { pause_us, .. } => format!("sleep {pause_us}"),
            Step::StartPipeline { .. } => "startpipeline".to_owned(),
            Step::SyncPipeline { .. } => "syncpipeline".to_owned(),
            Step::EndPipeline { .. } => "endpipeline".to_owned(),
            Step::Sql { statement, command } => {
                let mut text = Vec::new();
                statement
                    .append_simple(state, &mut text)
                    .map_err(|error| explain(&Failure::new(command, error)))?;
                if let Some(capture) = statement.capture() {
                    answer(capture, mix.names(), state);
                }
                String::from_utf8(text).unwrap()
            }
        });
    }
}

/// Compiles and walks a script in the simple mode; statements are answered with nothing.
pub(super) fn run(text: &str) -> Result<Trace, ScriptError> {
    let mix = compile(text)?;
    let mut state = mix.state(&PREDEFINED).unwrap();
    walk(&mix, &mut state, |_, _, _| {})
}

/// The value of an expression as `type text`, or the message of its error.
pub(super) fn evaluate(expression: &str) -> Result<String, String> {
    let trace =
        run(&format!("\\set x debug({expression})\n")).map_err(|error| error.problem().to_string())?;
    let [line] = &trace.debug[..] else { panic!("{trace:?}") };
    Ok(line.strip_prefix("0: ").unwrap().to_owned())
}
