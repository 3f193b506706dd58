//! The weighted scripts of a run, compiled together.

use super::command::{Action, Script};
use super::error::{Problem, ScriptError, Span};
use super::expression::{DEFAULT_SEED, Misplaced};
use super::flow::check_pipelines;
use super::names::{Names, Slot, nearest};
use super::parse::{self, CaptureKind, Parsed, ParsedCommand, ParsedScript};
use super::scan::{Piece, Place, Scanned};
use super::state::State;
use super::statement::{Capture, PARAMETERS_MAX, Part, QueryMode, Statement};
use super::value::Value;
use super::words;
use crate::random::Random;

/// Variables that every session has from the start.
const PREDEFINED: [&str; 4] = ["client_id", "scale", "random_seed", DEFAULT_SEED];

/// A script before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What reports and messages call it.
    pub name: String,
    pub text: String,
    pub weight: u32,
}

/// What compiling depends on besides the scripts.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub mode: QueryMode,
    /// `-D name=value`, in order; a later one of the same name wins.
    pub defines: Vec<(String, String)>,
}

/// Values of the predefined variables in one session. A `-D` of the same name goes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predefined {
    /// The session's number, from 0.
    pub client_id: i64,
    /// `:scale`.
    pub scale: i64,
    /// `:random_seed`.
    pub random_seed: i64,
    /// `:default_seed`, the same in every session of a run: [`default_seed`].
    pub default_seed: i64,
}

/// The seed that `hash` and `permute` use where the script gives none: drawn once per run from the run's seed.
#[must_use]
pub fn default_seed(run_seed: u64) -> i64 {
    Random::for_stream(run_seed, u64::MAX).next_u64() as i64
}

/// The compiled scripts of a run.
#[derive(Clone, Debug)]
pub struct Mix {
    scripts: Vec<Script>,
    names: Names,
    defines: Vec<(Slot, String)>,
    total_weight: u64,
    stack_max: usize,
    statement_count: usize,
}

impl Mix {
    /// Compiles scripts that share their variables. At least one, and not all of weight 0: see [`super::argument`].
    ///
    /// # Errors
    /// The first mistake in the first script that has one.
    pub fn compile(sources: &[Source], options: &Options) -> Result<Mix, ScriptError> {
        let mut names = Names::default();
        let mut parsed = Vec::with_capacity(sources.len());
        for source in sources {
            parsed.push(parse::script(&source.name, &source.text, &mut names)?);
        }
        // Statements mention variables that no expression did; all must be known before any use is judged.
        for (source, script) in sources.iter().zip(&parsed) {
            for command in &script.commands {
                if let Parsed::Sql { scanned, .. } = &command.what {
                    for piece in &scanned.pieces {
                        if let Piece::Variable { span, .. } = piece {
                            names.intern(variable_name(&source.text, *span));
                        }
                    }
                }
            }
        }
        let known = Known::new(&names, &parsed, &options.defines);
        let mut mix = Mix {
            scripts: Vec::with_capacity(sources.len()),
            defines: Vec::new(),
            total_weight: sources.iter().map(|source| u64::from(source.weight)).sum(),
            stack_max: 0,
            statement_count: 0,
            names: Names::default(),
        };
        for (source, script) in sources.iter().zip(parsed) {
            let compiled = Lowering { source, options, names: &names, known: &known }
                .script(script, &mut mix.statement_count)
                .map_err(|(problem, span)| ScriptError::at(&source.name, &source.text, span, problem))?;
            for (_, action) in &compiled.commands {
                if let Action::Set { program, .. } | Action::JumpUnless { condition: program, .. } = action {
                    mix.stack_max = mix.stack_max.max(program.stack_max);
                }
            }
            mix.scripts.push(compiled);
        }
        for (name, value) in &options.defines {
            if let Some(slot) = names.find(name) {
                mix.defines.push((slot, value.clone()));
            }
        }
        mix.names = names;
        Ok(mix)
    }

    /// The scripts, in the order they were given.
    #[must_use]
    pub fn scripts(&self) -> &[Script] {
        &self.scripts
    }

    /// The variables of all scripts.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// How many SQL statements all scripts have: statement numbers are below it.
    #[must_use]
    pub(crate) fn statement_count(&self) -> usize {
        self.statement_count
    }

    /// Whether any script reads a variable, for example `scale`, which costs a query to find out.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        self.names.find(name).is_some()
    }

    /// The storage of one session, with the predefined variables and the `-D` ones set.
    ///
    /// # Errors
    /// [`super::EvalError::TextTooLong`] for a value that no variable may hold.
    pub fn state(&self, predefined: &Predefined) -> Result<State, super::EvalError> {
        let mut state = State::new(self.names.count(), self.stack_max);
        let values =
            [predefined.client_id, predefined.scale, predefined.random_seed, predefined.default_seed];
        for (name, value) in PREDEFINED.into_iter().zip(values) {
            if let Some(slot) = self.names.find(name) {
                state.set(slot, Value::Int(value));
            }
        }
        for (slot, text) in &self.defines {
            state.set_text(*slot, text.as_bytes())?;
        }
        Ok(state)
    }

    /// The script of the next transaction, by weight: an index into [`Mix::scripts`]. Draws once, not at all for a single script.
    #[must_use]
    pub fn choose(&self, random: &mut Random) -> usize {
        if self.scripts.len() == 1 {
            return 0;
        }
        let mut point = random.below(self.total_weight);
        for (index, script) in self.scripts.iter().enumerate() {
            match point.checked_sub(u64::from(script.weight)) {
                None => return index,
                Some(rest) => point = rest,
            }
        }
        0
    }
}

/// The name in a `:name`.
fn variable_name(source: &str, span: Span) -> &str {
    source.get(span.start as usize + 1..span.end as usize).unwrap_or("")
}

/// Which variables can have a value.
struct Known {
    /// Set by `\set`, `-D`, or from the start.
    set: Vec<bool>,
    /// Not that, but of a name that a `\gset` or `\aset` may set.
    captured: Vec<bool>,
}

impl Known {
    fn new(names: &Names, scripts: &[ParsedScript], defines: &[(String, String)]) -> Known {
        let mut set = vec![false; names.count()];
        let mut prefixes = Vec::new();
        let given = PREDEFINED.into_iter().chain(defines.iter().map(|(name, _)| name.as_str()));
        for name in given {
            if let Some(slot) = names.find(name) {
                set[slot.index()] = true;
            }
        }
        for command in scripts.iter().flat_map(|script| &script.commands) {
            match &command.what {
                Parsed::Set { slot, .. } => set[slot.index()] = true,
                Parsed::Sql { capture: Some((_, prefix, _)), .. } => prefixes.push(prefix.as_str()),
                _ => {}
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let captured = names
            .iter()
            .map(|(_, name)| {
                prefixes.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
            })
            .collect();
        Known { set, captured }
    }

    fn is_set(&self, slot: Slot) -> bool {
        self.set[slot.index()]
    }

    fn is_possible(&self, slot: Slot) -> bool {
        self.is_set(slot) || self.captured[slot.index()]
    }
}

/// Turns one parsed script into its compiled form.
struct Lowering<'a> {
    source: &'a Source,
    options: &'a Options,
    names: &'a Names,
    known: &'a Known,
}

/// A conditional whose `\endif` has not come yet.
struct OpenIf {
    span: Span,
    /// The jump that skips the branch being read, if it has a condition.
    skip: Option<usize>,
    /// Jumps from the ends of finished branches to behind the `\endif`.
    to_end: Vec<usize>,
}

impl Lowering<'_> {
    fn sql(
        &self,
        scanned: &Scanned,
        capture: Option<(CaptureKind, String, Span)>,
        span: Span,
        number: usize,
    ) -> Result<Statement, Misplaced> {
        if scanned.joined && self.options.mode != QueryMode::Simple {
            return Err((Problem::JoinedStatements, span));
        }
        let reported = words::commands(&self.source.text, &scanned.pieces);
        if let Some(copy) = reported.copy {
            return Err((Problem::CopyThroughClient { copy }, span));
        }
        let mut statement = self.statement(&scanned.pieces, number)?;
        statement.rollbacks = reported.rollbacks;
        statement.capture = capture.map(|(kind, prefix, _)| Capture { kind, prefix });
        Ok(statement)
    }

    fn script(&self, script: ParsedScript, statements: &mut usize) -> Result<Script, Misplaced> {
        for read in &script.uses {
            if !self.known.is_possible(read.slot) {
                return Err(self.undefined(read.slot, read.span));
            }
        }
        let mut commands: Vec<(Span, Action)> = Vec::with_capacity(script.commands.len());
        let mut open: Vec<OpenIf> = Vec::new();
        for ParsedCommand { span, what } in script.commands {
            let action = match what {
                Parsed::Sql { scanned, capture } => {
                    *statements += 1;
                    Action::Sql(self.sql(&scanned, capture, span, *statements - 1)?)
                }
                Parsed::Set { slot, program } => Action::Set { slot, program },
                Parsed::If(condition) => {
                    open.push(OpenIf { span, skip: Some(commands.len()), to_end: Vec::new() });
                    Action::JumpUnless { condition, target: 0 }
                }
                Parsed::Elif(condition) => {
                    let last = open.last_mut().ok_or((Problem::WithoutIf { command: "elif" }, span))?;
                    let Some(skip) = last.skip else {
                        return Err((Problem::AfterElse { command: "elif" }, span));
                    };
                    last.to_end.push(commands.len());
                    commands.push((span, Action::Jump { target: 0 }));
                    land(&mut commands, skip);
                    last.skip = Some(commands.len());
                    Action::JumpUnless { condition, target: 0 }
                }
                Parsed::Else => {
                    let last = open.last_mut().ok_or((Problem::WithoutIf { command: "else" }, span))?;
                    let Some(skip) = last.skip.take() else {
                        return Err((Problem::AfterElse { command: "else" }, span));
                    };
                    last.to_end.push(commands.len());
                    commands.push((span, Action::Jump { target: 0 }));
                    land(&mut commands, skip);
                    continue;
                }
                Parsed::Endif => {
                    let last = open.pop().ok_or((Problem::WithoutIf { command: "endif" }, span))?;
                    for jump in last.to_end.into_iter().chain(last.skip) {
                        land(&mut commands, jump);
                    }
                    continue;
                }
                Parsed::Sleep { amount, unit_us } => Action::Sleep { amount, unit_us },
                Parsed::StartPipeline => self.pipeline(Action::StartPipeline, "startpipeline", span)?,
                Parsed::SyncPipeline => self.pipeline(Action::SyncPipeline, "syncpipeline", span)?,
                Parsed::EndPipeline => self.pipeline(Action::EndPipeline, "endpipeline", span)?,
            };
            commands.push((span, action));
        }
        if let Some(unclosed) = open.last() {
            return Err((Problem::WithoutEndif, unclosed.span));
        }
        check_pipelines(&commands)?;
        let Source { name, text, weight } = self.source;
        Ok(Script { name: name.clone(), source: text.clone(), weight: *weight, commands })
    }

    fn pipeline(&self, action: Action, command: &'static str, span: Span) -> Result<Action, Misplaced> {
        match self.options.mode {
            QueryMode::Simple => Err((Problem::SimplePipeline { command }, span)),
            QueryMode::Extended | QueryMode::Prepared => Ok(action),
        }
    }

    fn undefined(&self, slot: Slot, span: Span) -> Misplaced {
        let name = self.names.name(slot);
        let candidates =
            self.names.iter().filter(|(other, _)| self.known.is_set(*other)).map(|(_, name)| name);
        let similar = nearest(name, candidates.chain(PREDEFINED)).map(str::to_owned);
        (Problem::UndefinedVariable { name: name.to_owned(), similar }, span)
    }

    /// Both forms of a statement: text with holes, and text with `$1` to `$n`.
    fn statement(&self, pieces: &[Piece], number: usize) -> Result<Statement, Misplaced> {
        let mut parts: Vec<Part> = Vec::new();
        let mut prepared = String::new();
        let mut parameters: Vec<Slot> = Vec::new();
        let mut text = String::new();
        let extended = self.options.mode != QueryMode::Simple;
        for piece in pieces {
            let literal = match piece {
                Piece::Text(span) => {
                    self.source.text.get(span.start as usize..span.end as usize).unwrap_or("").to_owned()
                }
                Piece::Escaped(character) => character.to_string(),
                Piece::Variable { span, place } => {
                    let name = variable_name(&self.source.text, *span);
                    let Some(slot) = self.names.find(name) else { continue };
                    let possible = self.known.is_possible(slot);
                    if *place == Place::Bare && !possible {
                        return Err(self.undefined(slot, *span));
                    }
                    if let (Place::Quoted(place), true, true) = (*place, extended, self.known.is_set(slot)) {
                        return Err((Problem::QuotedParameter { name: name.to_owned(), place }, *span));
                    }
                    let written = format!(":{name}");
                    if possible {
                        if !text.is_empty() {
                            parts.push(Part::Text(std::mem::take(&mut text)));
                        }
                        let optional = *place != Place::Bare;
                        parts.push(Part::Variable { slot, written: written.clone(), optional });
                    } else {
                        text.push_str(&written);
                    }
                    if possible && !matches!(place, Place::Quoted(_)) {
                        if parameters.len() >= PARAMETERS_MAX {
                            return Err((Problem::TooManyParameters { limit: PARAMETERS_MAX }, *span));
                        }
                        parameters.push(slot);
                        prepared.push('$');
                        prepared.push_str(&parameters.len().to_string());
                    } else {
                        prepared.push_str(&written);
                    }
                    continue;
                }
            };
            text.push_str(&literal);
            prepared.push_str(&literal);
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Statement { number, parts, prepared, parameters, capture: None, rollbacks: 0 })
    }
}

/// Points the jump at `at` to the next command.
fn land(commands: &mut [(Span, Action)], at: usize) {
    let here = commands.len();
    if let Some((_, Action::Jump { target } | Action::JumpUnless { target, .. })) = commands.get_mut(at) {
        *target = here;
    }
}
