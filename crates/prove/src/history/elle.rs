//! Histories in the notation of Elle, Jepsen's checker: list-append and rw-register, EDN and JSON.
//!
//! An operation is a map with `type` (invoke, ok, fail, info), `process` (any value but `nemesis`, which is not a client) and `value`, a list of `[f key
//! value]` with `f` one of `append`, `r`, `w`. Keys and values may be of any type: they are distinguished by their EDN text. JSON may be one array, or one map
//! per line. Elle orders operations by their position in the file, so these positions are the times
//! here. A completion without an invocation may have begun at any time before; an invocation without a completion may still take effect.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use super::notation::{Operations, Value};
use super::{History, HistoryError, Kind, Model, NIL, Op, Outcome, Txn, VALUES_BASE};

/// Processes that are not small numbers have session numbers from here on.
const NAMED_SESSIONS: u32 = 1 << 31;
/// Tokens that names may have.
const NAMED_VALUES: std::ops::Range<u64> = VALUES_BASE..VALUES_BASE + (1 << 32);

/// How to write a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Clojure's: one map per line.
    Edn,
    /// One JSON object per line.
    Json,
}

impl Notation {
    /// The notation by the file's name; `None`: neither.
    pub fn of(path: &Path) -> Option<Notation> {
        match path.extension()?.to_str()? {
            "edn" => Some(Notation::Edn),
            "json" | "ndjson" | "jsonl" => Some(Notation::Json),
            _ => None,
        }
    }
}

/// Reads a history; the notation is recognised from its text.
///
/// # Errors
/// With the malformed line.
pub fn parse(text: &[u8]) -> Result<History, HistoryError> {
    read(text)
}

/// The same from a file: beside the history, only the current operation and those that have not ended are in memory.
///
/// # Errors
/// As [`parse`], and when the file cannot be read.
pub fn read(source: impl Read) -> Result<History, HistoryError> {
    let mut operations = Operations::new(source);
    let mut reader = Reader::default();
    // From 1: the time 0 means "unknown".
    let mut place = 1;
    while operations.next(|line, operation| reader.operation(line, place, operation))? {
        place += 1;
    }
    reader.finish()
}

fn error<T>(line: usize, what: impl Into<String>) -> Result<T, HistoryError> {
    Err(HistoryError::Notation { line, what: what.into() })
}

/// A write of an operation that has begun.
#[derive(Clone, Copy, Debug)]
struct Write {
    kind: Kind,
    key: u32,
    tok: u64,
    statement: u16,
}

/// An operation that has not ended yet. What it read is known only at its end.
#[derive(Debug, Default)]
struct Running {
    begin: u64,
    writes: Vec<Write>,
}

/// The longest list of a key; most others are prefixes of it.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    start: usize,
    len: usize,
    room: usize,
}

#[derive(Default)]
struct Reader {
    history: History,
    model: Option<Model>,
    /// Most keys are numbers; others are distinguished by their names.
    numbers: HashMap<i64, u32>,
    keys: HashMap<String, u32>,
    values: HashMap<String, u64>,
    /// Sessions whose processes are not small numbers.
    processes: HashMap<String, u32>,
    /// By session.
    running: HashMap<u32, Running>,
    /// Buffers of ended operations, for reuse.
    spare: Vec<Vec<Write>>,
    lists: Vec<Kept>,
    ops: Vec<Op>,
    list: Vec<u64>,
}

impl Reader {
    fn operation(&mut self, line: usize, place: u64, operation: &Value<'_>) -> Result<(), HistoryError> {
        if !matches!(operation.bare(), Value::Map(_)) {
            return error(line, "an operation must be a map");
        }
        let value = operation.get("value");
        let Some(session) = self.session(line, operation, value)? else { return Ok(()) };
        let outcome = match operation.get("type").and_then(Value::word) {
            Some(b"invoke") => None,
            Some(b"ok") => Some(Outcome::Ok),
            Some(b"fail") => Some(Outcome::Fail),
            Some(b"info") => Some(Outcome::Info),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return error(line, format!("there is no type {other:?}: invoke, ok, fail or info"));
            }
            None => return error(line, "an operation without a type: invoke, ok, fail or info"),
        };
        let parts: &[Value<'_>] = match value.map(Value::bare) {
            Some(Value::List(parts)) => parts,
            Some(Value::Nil) | None => &[],
            Some(_) => return error(line, "the value is not a list"),
        };
        let Some(outcome) = outcome else {
            let mut writes = self.spare.pop().unwrap_or_default();
            writes.clear();
            self.writes(line, parts, &mut writes)?;
            return match self.running.insert(session, Running { begin: place, writes }) {
                None => Ok(()),
                Some(_) => {
                    let process = operation.get("process").map(Value::name).unwrap_or_default();
                    error(line, format!("process {process} begins before its last operation has ended"))
                }
            };
        };
        let running = self.running.remove(&session);
        let begin = running.as_ref().map_or(0, |running| running.begin);
        self.ops.clear();
        // Failed and unknown operations have no results; some histories omit the value also for acknowledged ones.
        match &running {
            Some(running) if outcome != Outcome::Ok || parts.is_empty() => {
                let writes = running.writes.iter();
                self.ops.extend(writes.map(|write| write_op(write, begin)));
            }
            None if outcome != Outcome::Ok => {
                let mut writes = Vec::new();
                self.writes(line, parts, &mut writes)?;
                self.ops.extend(writes.iter().map(|write| write_op(write, begin)));
            }
            _ => self.acknowledged(line, parts, begin)?,
        }
        if let Some(running) = running {
            self.spare.push(running.writes);
        }
        self.push(Txn::ok(session).between(begin, place).ending(outcome))
    }

    /// The session number of the client; `None` if it is not a client.
    fn session(
        &mut self,
        line: usize,
        operation: &Value<'_>,
        value: Option<&Value<'_>>,
    ) -> Result<Option<u32>, HistoryError> {
        let is_transaction = matches!(value.map(Value::bare), Some(Value::List(parts))
            if parts.iter().all(|part| matches!(part.bare(), Value::List(_))));
        let process = match operation.get("process") {
            // Jepsen's own faults are operations of a process called nemesis.
            Some(process) if process.word() == Some(b"nemesis") => return Ok(None),
            Some(Value::Nil) | None if is_transaction => {
                return error(line, "an operation without a process");
            }
            Some(Value::Nil) | None => return Ok(None),
            Some(Value::Integer(number)) if *number < 0 && !is_transaction => return Ok(None),
            Some(process) => process,
        };
        if let Value::Integer(number) = process
            && let Ok(number) = u32::try_from(*number)
            && number < NAMED_SESSIONS
        {
            return Ok(Some(number));
        }
        let next = NAMED_SESSIONS + self.processes.len() as u32;
        Ok(Some(*self.processes.entry(process.name()).or_insert(next)))
    }

    /// The writes among the parts of an operation.
    fn writes(
        &mut self,
        line: usize,
        parts: &[Value<'_>],
        writes: &mut Vec<Write>,
    ) -> Result<(), HistoryError> {
        for (statement, part) in numbered(parts) {
            let (kind, key, value) = self.part(line, part)?;
            if let (Some(value), true) = (value, kind.is_write()) {
                self.learn(line, if kind == Kind::Append { Model::Append } else { Model::Register })?;
                let tok = self.token(value);
                writes.push(Write { kind, key, tok, statement });
            }
        }
        Ok(())
    }

    /// The parts of an acknowledged operation.
    fn acknowledged(&mut self, line: usize, parts: &[Value<'_>], begin: u64) -> Result<(), HistoryError> {
        for (statement, part) in numbered(parts) {
            let (kind, key, value) = self.part(line, part)?;
            // A read without a result.
            let Some(value) = value else { continue };
            let op = match (kind, value.bare()) {
                (Kind::Read, Value::Nil) => Op::new(Kind::Read, key, 0, 0),
                (Kind::Read, Value::List(list)) => {
                    self.learn(line, Model::Append)?;
                    self.read_list(key, list)
                }
                (Kind::Read, Value::Set(_)) => {
                    return error(line, "a set has no order: the result of a read must be a vector");
                }
                (Kind::Read, _) => {
                    self.learn(line, Model::Register)?;
                    Op::new(kind, key, 1, self.token(value))
                }
                _ => {
                    self.learn(line, if kind == Kind::Append { Model::Append } else { Model::Register })?;
                    Op::new(kind, key, 1, self.token(value))
                }
            };
            self.ops.push(Op { statement, start_ns: begin, ..op });
        }
        Ok(())
    }

    /// One `[f key value]`; for a read the value may be missing.
    fn part<'v, 'a>(
        &mut self,
        line: usize,
        part: &'v Value<'a>,
    ) -> Result<(Kind, u32, Option<&'v Value<'a>>), HistoryError> {
        let wrong =
            "each part of a value is [append, key, element], [w, key, value] or [r, key, what was read]";
        let Value::List(part) = part.bare() else { return error(line, wrong) };
        let kind = match part.first().and_then(Value::word) {
            Some(b"append") => Kind::Append,
            Some(b"r" | b"read") => Kind::Read,
            Some(b"w" | b"write") => Kind::Write,
            _ => return error(line, wrong),
        };
        match &part[1..] {
            [key, value] => Ok((kind, self.key(key), Some(value))),
            [key] if kind == Kind::Read => Ok((kind, self.key(key), None)),
            _ => error(line, wrong),
        }
    }

    fn learn(&mut self, line: usize, model: Model) -> Result<(), HistoryError> {
        match *self.model.get_or_insert(model) {
            known if known == model => Ok(()),
            _ => error(line, "one history mixes lists (append) and registers (w)"),
        }
    }

    fn push(&mut self, txn: Txn) -> Result<(), HistoryError> {
        if !self.history.has_room(1, self.ops.len()) {
            return Err(HistoryError::TooLong);
        }
        self.history.push(txn, &self.ops);
        Ok(())
    }

    fn key(&mut self, key: &Value<'_>) -> u32 {
        let next = self.history.names.keys.len() as u32;
        let number = match key {
            Value::Integer(number) => *self.numbers.entry(*number).or_insert(next),
            key => *self.keys.entry(key.name()).or_insert(next),
        };
        if number == next {
            self.history.names.keys.push(key.name());
            self.lists.push(Kept::default());
        }
        number
    }

    /// A value or element as a number.
    fn token(&mut self, value: &Value<'_>) -> u64 {
        match value {
            // Two's complement: negative numbers survive a round trip. Those in the range of names become names, too.
            Value::Integer(number) if !NAMED_VALUES.contains(&(*number as u64)) => *number as u64,
            // A tag makes it a different value.
            value => {
                if self.values.is_empty() {
                    self.values.insert("nil".to_owned(), NIL);
                    self.history.names.values.push("nil".to_owned());
                }
                let next = VALUES_BASE + self.values.len() as u64;
                let name = value.name();
                if let Some(tok) = self.values.get(&name) {
                    return *tok;
                }
                self.history.names.values.push(name.clone());
                self.values.insert(name, next);
                next
            }
        }
    }

    /// The read of a list. A prefix of a kept list, or its continuation, is not stored twice.
    fn read_list(&mut self, key: u32, list: &[Value<'_>]) -> Op {
        let mut read = std::mem::take(&mut self.list);
        read.clear();
        read.extend(list.iter().map(|value| self.token(value)));
        let elements = &mut self.history.elements;
        let kept = &mut self.lists[key as usize];
        let common = kept.len.min(read.len());
        let mut start = kept.start;
        if elements[start..start + common] != read[..common] {
            start = elements.len();
            elements.extend_from_slice(&read);
        } else if read.len() > kept.len {
            if read.len() > kept.room {
                // Twice the capacity, so that a growing list is rarely copied.
                let room = read.len().max(2) * 2;
                *kept = Kept { start: elements.len(), len: 0, room };
                elements.resize(kept.start + room, 0);
            }
            start = kept.start;
            elements[start + kept.len..start + read.len()].copy_from_slice(&read[kept.len..]);
            kept.len = read.len();
        }
        let op = Op::new(Kind::Read, key, read.len() as u32, start as u64);
        self.list = read;
        op
    }

    fn finish(mut self) -> Result<History, HistoryError> {
        let mut running: Vec<_> = std::mem::take(&mut self.running).into_iter().collect();
        running.sort_by_key(|(_, running)| running.begin);
        for (session, running) in running {
            self.ops.clear();
            self.ops.extend(running.writes.iter().map(|write| write_op(write, running.begin)));
            self.push(Txn::ok(session).between(running.begin, 0).ending(Outcome::Info))?;
        }
        self.history.model = self.model.unwrap_or(Model::Append);
        Ok(self.history)
    }
}

fn write_op(write: &Write, begin: u64) -> Op {
    Op { statement: write.statement, start_ns: begin, ..Op::new(write.kind, write.key, 1, write.tok) }
}

/// Each part is a separate statement.
fn numbered<'v, 'a>(parts: &'v [Value<'a>]) -> impl Iterator<Item = (u16, &'v Value<'a>)> {
    parts.iter().enumerate().map(|(number, part)| (number.min(usize::from(u16::MAX)) as u16, part))
}

/// Writes a history that Elle can read. A versioned register becomes a register whose values are the tokens.
pub fn write(history: &History, notation: Notation) -> String {
    let begins: HashSet<(u32, u64)> = history.txns().iter().map(|txn| (txn.session, txn.begin_ns)).collect();
    // At equal times invocations come first, because neither is known to be earlier; but a session runs one operation at a time.
    let mut events: Vec<(u64, u8, u32)> = Vec::with_capacity(history.txns().len() * 2);
    for (number, txn) in history.txns().iter().enumerate() {
        let end = txn.end_ns.max(txn.begin_ns);
        let is_followed = end > txn.begin_ns && begins.contains(&(txn.session, end));
        if txn.begin_ns > 0 {
            events.push((txn.begin_ns, 1, number as u32));
        }
        if txn.end_ns > 0 || txn.outcome.is_acknowledged() || txn.outcome == Outcome::Fail {
            events.push((end, if is_followed { 0 } else { 2 }, number as u32));
        }
    }
    // Without times, the order of the history is used.
    events.sort();
    let mut text = String::new();
    for (index, (_, step, number)) in events.into_iter().enumerate() {
        let txn = &history.txns()[number as usize];
        let kind = match txn.outcome {
            _ if step == 1 => "invoke",
            Outcome::Ok | Outcome::OkWeak => "ok",
            Outcome::Fail => "fail",
            Outcome::Info | Outcome::Partial => "info",
        };
        let values: Vec<String> =
            history.ops_of(number).iter().map(|op| part_text(history, op, kind == "ok", notation)).collect();
        let _ = match notation {
            Notation::Edn => writeln!(
                text,
                "{{:index {index}, :type :{kind}, :process {}, :f :txn, :value [{}]}}",
                txn.session,
                values.join(" ")
            ),
            Notation::Json => writeln!(
                text,
                r#"{{"index":{index},"type":"{kind}","process":{},"f":"txn","value":[{}]}}"#,
                txn.session,
                values.join(",")
            ),
        };
    }
    text
}

fn part_text(history: &History, op: &Op, is_ok: bool, notation: Notation) -> String {
    let key = in_notation(history.names.key(op.key), notation);
    let (nil, gap) = match notation {
        Notation::Edn => ("nil", " "),
        Notation::Json => ("null", ","),
    };
    let one = |tok: u64| in_notation(history.names.value(tok), notation);
    let value = match op.kind {
        Kind::Read if !is_ok => nil.to_string(),
        Kind::Read if history.model() == Model::Append => {
            let list: Vec<String> = history.list(op).iter().map(|element| one(*element)).collect();
            format!("[{}]", list.join(gap))
        }
        Kind::Read if op.ver == 0 => nil.to_string(),
        _ => one(op.tok),
    };
    let function = match op.kind {
        Kind::Read => "r",
        Kind::Append => "append",
        Kind::Update | Kind::Write | Kind::Insert => "w",
    };
    match notation {
        Notation::Edn => format!("[:{function} {key} {value}]"),
        Notation::Json => format!(r#"["{function}",{key},{value}]"#),
    }
}

/// A name, which is EDN; JSON has only some of these types, and the others become text.
fn in_notation(name: String, notation: Notation) -> String {
    let is_json = name.parse::<i64>().is_ok() || name.starts_with('"');
    match notation {
        Notation::Edn => name,
        Notation::Json if is_json => name,
        Notation::Json if name == "nil" => "null".to_owned(),
        Notation::Json => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}
