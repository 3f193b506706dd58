//! Histories in the notation of Elle, Jepsen's checker: list-append and rw-register, EDN and JSON.
//!
//! An operation is a map with `type` (invoke, ok, fail, info), `process` (a number; others are no clients) and `value`, a list of `[f key value]` with `f`
//! one of `append`, `r`, `w`. JSON may be one array, or one map per line. Elle orders operations by their place in the file, so these places are the times
//! here. A completion without its invocation may have begun at any time before; an invocation without its completion may still happen.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;

use super::notation::{Parser, Value};
use super::{History, HistoryError, Kind, Model, Op, Outcome, Txn};

/// How to write a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Clojure's: one map per line.
    Edn,
    /// One JSON object per line.
    Json,
}

impl Notation {
    /// What a file's name says; `None`: neither.
    pub fn of(path: &Path) -> Option<Notation> {
        match path.extension()?.to_str()? {
            "edn" => Some(Notation::Edn),
            "json" | "ndjson" | "jsonl" => Some(Notation::Json),
            _ => None,
        }
    }
}

/// Reads a history; both notations are understood without being told which it is.
///
/// # Errors
/// With the line that makes no sense.
pub fn parse(text: &[u8]) -> Result<History, HistoryError> {
    let mut parser = Parser::new(text);
    let mut operations = Vec::new();
    while let Some((line, value)) = parser.next_operation()? {
        if !matches!(value, Value::Map(_)) {
            return error(line, "an operation is a map");
        }
        operations.push((line, value));
    }
    let mut model = None;
    for (line, operation) in &operations {
        if process(operation).is_some() {
            learn_model(*line, operation, &mut model)?;
        }
    }
    let mut reader = Reader {
        history: History::new(model.unwrap_or(Model::Append)),
        keys: HashMap::new(),
        running: HashMap::new(),
    };
    for (place, (line, operation)) in operations.iter().enumerate() {
        // From 1: the time 0 means "unknown".
        reader.operation(*line, place as u64 + 1, operation)?;
    }
    reader.finish()
}

fn error<T>(line: usize, what: impl Into<String>) -> Result<T, HistoryError> {
    Err(HistoryError::Notation { line, what: what.into() })
}

/// The number of the client, if it is one.
fn process(operation: &Value) -> Option<i64> {
    match operation.get("process") {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    }
}

/// One `[f key value]`.
#[derive(Clone, Copy)]
struct Part<'a> {
    function: Kind,
    key: &'a Value,
    value: &'a Value,
}

fn part(value: &Value) -> Option<Part<'_>> {
    let Value::List(parts) = value else { return None };
    let [function, key, value] = &parts[..] else { return None };
    let function = match function.word()? {
        "append" => Kind::Append,
        "r" | "read" => Kind::Read,
        "w" | "write" => Kind::Write,
        _ => return None,
    };
    Some(Part { function, key, value })
}

fn parts(line: usize, operation: &Value) -> Result<Vec<Part<'_>>, HistoryError> {
    let list = match operation.get("value") {
        Some(Value::List(list)) => list,
        Some(Value::Nil) | None => return Ok(Vec::new()),
        Some(_) => return error(line, "value is no list"),
    };
    match list.iter().map(part).collect() {
        Some(parts) => Ok(parts),
        None => error(
            line,
            "each part of a value is [append, key, element], [w, key, value] or [r, key, what was read]",
        ),
    }
}

fn learn_model(line: usize, operation: &Value, model: &mut Option<Model>) -> Result<(), HistoryError> {
    for part in parts(line, operation)? {
        let says = match (part.function, part.value) {
            (Kind::Append, _) | (Kind::Read, Value::List(_)) => Model::Append,
            (Kind::Read, Value::Nil) => continue,
            _ => Model::Register,
        };
        match model {
            Some(model) if *model != says => {
                return error(
                    line,
                    "lists that are appended to and registers that are written in one history",
                );
            }
            _ => *model = Some(says),
        }
    }
    Ok(())
}

struct Reader<'a> {
    history: History,
    keys: HashMap<String, u32>,
    /// Invocations that have not ended yet: line, place and value, by process.
    running: HashMap<i64, (usize, u64, Vec<Part<'a>>)>,
}

impl<'a> Reader<'a> {
    fn operation(&mut self, line: usize, place: u64, operation: &'a Value) -> Result<(), HistoryError> {
        // Jepsen's own faults are operations of a process called nemesis.
        let Some(process) = process(operation) else { return Ok(()) };
        let outcome = match operation.get("type").and_then(Value::word) {
            Some("invoke") => None,
            Some("ok") => Some(Outcome::Ok),
            Some("fail") => Some(Outcome::Fail),
            Some("info") => Some(Outcome::Info),
            Some(other) => {
                return error(line, format!("there is no type {other:?}: invoke, ok, fail or info"));
            }
            None => return error(line, "an operation without a type: invoke, ok, fail or info"),
        };
        let parts = parts(line, operation)?;
        let Some(outcome) = outcome else {
            if self.running.insert(process, (line, place, parts)).is_some() {
                return error(line, format!("process {process} begins before its last operation has ended"));
            }
            return Ok(());
        };
        let invoked = self.running.remove(&process);
        let begin = invoked.as_ref().map_or(0, |(_, begin, _)| *begin);
        let parts = match invoked {
            // What has failed or is unknown saw nothing; some histories leave its value out.
            Some((_, _, invoked)) if outcome != Outcome::Ok => invoked,
            _ => parts,
        };
        self.transaction(line, process, outcome, begin, place, &parts)
    }

    fn transaction(
        &mut self,
        line: usize,
        process: i64,
        outcome: Outcome,
        begin: u64,
        end: u64,
        parts: &[Part<'_>],
    ) -> Result<(), HistoryError> {
        if !self.history.has_room(1, parts.len()) {
            return Err(HistoryError::TooLong);
        }
        let Ok(session) = u32::try_from(process) else {
            return error(
                line,
                format!("process {process}: a client's number is at least 0 and has 32 bits"),
            );
        };
        let mut ops = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let key = self.key(line, part.key)?;
            let op = match (part.function, part.value) {
                (Kind::Read, _) if outcome != Outcome::Ok => continue,
                (Kind::Read, Value::Nil) => Op::new(Kind::Read, key, 0, 0),
                (Kind::Read, Value::List(list)) => {
                    let elements: Option<Vec<u64>> = list.iter().map(token).collect();
                    let Some(elements) = elements else {
                        return error(line, "elements of lists have to be whole numbers");
                    };
                    self.history.read_list(key, &elements)
                }
                (function, value) => {
                    let Some(tok) = token(value) else {
                        return error(line, "what is appended, written or read has to be a whole number");
                    };
                    Op::new(function, key, 1, tok)
                }
            };
            let statement = number.min(usize::from(u16::MAX)) as u16;
            ops.push(Op { statement, start_ns: begin, ..op });
        }
        self.history.push(Txn::ok(session).between(begin, end).ending(outcome), &ops);
        Ok(())
    }

    fn key(&mut self, line: usize, key: &Value) -> Result<u32, HistoryError> {
        let name = match key {
            Value::Integer(number) => number.to_string(),
            Value::Word(word) => word.clone(),
            _ => return error(line, "a key is a number or a word"),
        };
        if let Some(key) = self.keys.get(&name) {
            return Ok(*key);
        }
        let key = self.keys.len() as u32;
        self.history.names.keys.push(name.clone());
        self.keys.insert(name, key);
        Ok(key)
    }

    fn finish(mut self) -> Result<History, HistoryError> {
        let mut running: Vec<_> = std::mem::take(&mut self.running).into_iter().collect();
        running.sort_by_key(|(_, (_, place, _))| *place);
        for (process, (line, begin, parts)) in running {
            self.transaction(line, process, Outcome::Info, begin, 0, &parts)?;
        }
        Ok(self.history)
    }
}

fn token(value: &Value) -> Option<u64> {
    match value {
        // Two's complement: negative ones come back as they were.
        Value::Integer(number) => Some(*number as u64),
        _ => None,
    }
}

/// Writes a history that Elle can read. A versioned register becomes a register whose values are the tokens.
pub fn write(history: &History, notation: Notation) -> String {
    let begins: HashSet<(u32, u64)> = history.txns().iter().map(|txn| (txn.session, txn.begin_ns)).collect();
    // At the same moment invocations come first, since neither is known to be before the other; but a session does one thing after another.
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
    // Without times, the order of the history is what there is.
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
    let name = history.names.key(op.key);
    let key = match name.parse::<i64>() {
        Ok(number) if number.to_string() == name => name,
        // Rust's escapes for what is no control character are JSON's and EDN's.
        _ => {
            format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, " "))
        }
    };
    let (nil, gap) = match notation {
        Notation::Edn => ("nil", " "),
        Notation::Json => ("null", ","),
    };
    let value = match op.kind {
        Kind::Read if !is_ok => nil.to_string(),
        Kind::Read if history.model() == Model::Append => {
            let list: Vec<String> =
                history.list(op).iter().map(|element| (*element as i64).to_string()).collect();
            format!("[{}]", list.join(gap))
        }
        Kind::Read if op.ver == 0 => nil.to_string(),
        _ => (op.tok as i64).to_string(),
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
