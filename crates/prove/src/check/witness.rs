//! Anomalies as text: the transactions as SQL, and why no order of them is possible.

use connect::sql;
use engines::profile::Isolation;

use super::anomaly::{Class, Finding, Reason, Step};
use super::versions::{INITIAL, NONE, Versions};
use crate::history::{History, Kind, Model, Op, Txn};

/// Statements shown of one transaction; those that matter are among them.
const STATEMENTS_MAX: usize = 12;
/// Elements shown of a list, its last ones.
const ELEMENTS_MAX: usize = 8;

/// The lines of a witness.
pub(super) fn text(versions: &Versions<'_>, finding: &Finding) -> Vec<String> {
    let history = versions.history;
    let ops = history.ops();
    let mut lines = vec![format!("{}: {}", finding.code(), finding.class.description())];
    let mut txns: Vec<u32> = Vec::new();
    let mut add = |txn: u32| {
        if !txns.contains(&txn) {
            txns.push(txn);
        }
    };
    finding.cycle.iter().for_each(|step| add(step.from));
    finding.ops.iter().for_each(|at| add(ops[*at as usize].txn));
    let mut matters: Vec<u32> = finding.ops.clone();
    let reasons: Vec<String> = finding
        .cycle
        .iter()
        .map(|step| {
            let (text, shown) = reason(versions, &txns, step, &finding.ops);
            matters.extend(shown);
            text
        })
        .collect();
    for (number, txn) in txns.iter().enumerate() {
        lines.extend(transaction(history, number, *txn, &matters));
    }
    for (at, reason) in reasons.iter().enumerate() {
        let step = finding.cycle[at];
        let name = |txn: u32| name_of(&txns, txn);
        let but = if at > 0 && at + 1 == reasons.len() { "but " } else { "" };
        lines.push(format!("  {but}{} < {} because {reason}", name(step.from), name(step.to)));
    }
    if finding.cycle.is_empty() {
        lines.push(format!("  {}", direct(versions, &txns, finding)));
    }
    lines
}

fn name_of(txns: &[u32], txn: u32) -> String {
    match txns.iter().position(|other| *other == txn) {
        Some(at) => format!("T{}", at + 1),
        None => format!("transaction {txn}"),
    }
}

/// Key with its shard.
fn key(history: &History, key: u32) -> String {
    match history.names.shard(key) {
        Some(shard) => format!("key {} ({shard})", history.names.key(key)),
        None => format!("key {}", history.names.key(key)),
    }
}

/// The version that an operation wrote or read, in the terms of the model.
fn version(history: &History, op: &Op) -> String {
    match (history.model(), op.kind) {
        (Model::Append, Kind::Read) => match history.list(op) {
            [] => "the empty list".to_string(),
            list => format!("the list up to {}", history.names.value(list[list.len() - 1])),
        },
        (Model::Append, _) => format!("element {}", history.names.value(op.tok)),
        (Model::Register, Kind::Read) if op.ver == 0 => "no value".to_string(),
        (Model::Register, _) => format!("value {}", history.names.value(op.tok)),
        (Model::VersionedRegister, Kind::Read) if op.ver == 0 => "version 0".to_string(),
        (Model::VersionedRegister, _) => format!("version {} (token {})", op.ver, op.tok),
    }
}

/// The reason for a step, and the operations that show it.
fn reason(versions: &Versions<'_>, txns: &[u32], step: &Step, only: &[u32]) -> (String, Vec<u32>) {
    let history = versions.history;
    let ops = history.ops();
    let name = |txn: u32| name_of(txns, txn);
    let (first, second) = (name(step.from), name(step.to));
    match step.reason {
        Reason::Session => {
            let session = history.txns()[step.from as usize].session;
            return (format!("session {session} ran {first} before {second}"), Vec::new());
        }
        Reason::RealTime => {
            let (from, to) = (&history.txns()[step.from as usize], &history.txns()[step.to as usize]);
            let gap = to.begin_ns.saturating_sub(from.end_ns);
            return (format!("{first} had ended {} before {second} began", duration(gap)), Vec::new());
        }
        Reason::Overwrote | Reason::Read | Reason::ReadBefore => {}
    }
    let slots = |txn: u32, is_write: bool| {
        history
            .range(txn)
            .filter(move |at| ops[*at].kind.is_write() == is_write && versions.slots[*at] != NONE)
            // For a statement in the cycle, only its own reads count.
            .filter(move |at| {
                is_write
                    || only.contains(&(*at as u32))
                    || !only.iter().any(|other| ops[*other as usize].txn == txn)
            })
    };
    let follows = |at: usize, txn: u32| {
        let mut is_so = false;
        versions.successors(versions.slots[at], |next| is_so |= next == txn);
        is_so
    };
    match step.reason {
        Reason::Read => {
            let found =
                slots(step.to, false).find(|at| versions.writers[versions.slots[*at] as usize] == step.from);
            let Some(read) = found else { return (format!("{second} read what {first} wrote"), Vec::new()) };
            let write = slots(step.from, true).find(|at| versions.slots[*at] == versions.slots[read]);
            let op = &ops[read];
            let text = format!(
                "{second} read {} of {}, which {first} wrote",
                version(history, op),
                key(history, op.key)
            );
            (text, [Some(read), write].into_iter().flatten().map(|at| at as u32).collect())
        }
        _ => {
            let is_read = step.reason == Reason::ReadBefore;
            let found = slots(step.from, !is_read).find(|at| {
                follows(*at, step.to)
                    && (is_read || versions.writers[versions.slots[*at] as usize] == step.from)
            });
            let Some(at) = found else { return (format!("{second} overwrote what {first} had"), Vec::new()) };
            let op = &ops[at];
            let write = slots(step.to, true).find(|other| ops[*other].key == op.key);
            let (had, key) = (version(history, op), key(history, op.key));
            let new = write.map_or_else(|| "the next one".to_string(), |write| version(history, &ops[write]));
            let did = if is_read { "read" } else { "wrote" };
            let how = how_known(versions, step, at).map_or_else(String::new, |how| format!(" ({how})"));
            let text = format!("{first} {did} {had} of {key}, and {second} wrote {new} over it{how}");
            (text, [Some(at), write].into_iter().flatten().map(|at| at as u32).collect())
        }
    }
}

/// Why the second transaction of the step wrote later, if the model does not order versions.
fn how_known(versions: &Versions<'_>, step: &Step, at: usize) -> Option<String> {
    let history = versions.history;
    let op = &history.ops()[at];
    let author = versions.writers[versions.slots[at] as usize];
    if history.model() != Model::Register || author >= INITIAL {
        return None;
    }
    let (older, newer) = (&history.txns()[author as usize], &history.txns()[step.to as usize]);
    let has_read = history.range(step.to).any(|at| {
        let read = &history.ops()[at];
        !read.kind.is_write()
            && read.key == op.key
            && versions.slots[at] != NONE
            && versions.writers[versions.slots[at] as usize] == author
    });
    Some(match () {
        () if has_read => "it had read the value before".to_string(),
        () if author < step.to && older.session == newer.session => {
            format!("session {} wrote them in this order", older.session)
        }
        () if older.end_ns > 0 && older.end_ns < newer.begin_ns => {
            "the first write had ended when the second began".to_string()
        }
        () => "the other order would give a cycle, too".to_string(),
    })
}

/// The text for the operations of a direct finding.
fn direct(versions: &Versions<'_>, txns: &[u32], finding: &Finding) -> String {
    let history = versions.history;
    let op = |at: usize| finding.ops.get(at).map(|op| history.ops()[*op as usize]);
    let (Some(first), second) = (op(0), op(1)) else { return String::new() };
    let name = |op: &Op| name_of(txns, op.txn);
    let what = |op: &Op| format!("{} of {}", version(history, op), key(history, op.key));
    let second = second.unwrap_or(first);
    match finding.class {
        Class::Garbage => format!("{} has {}, which no transaction wrote", name(&first), what(&first)),
        Class::AmbiguousWrite => {
            format!("{} and {} wrote {} both", name(&first), name(&second), what(&first))
        }
        Class::DuplicateElement => format!("{} read an element twice in {}", name(&first), what(&first)),
        Class::DuplicateVersion => format!(
            "{} got {}, and {} got {}: one of the two is lost",
            name(&first),
            what(&first),
            name(&second),
            what(&second)
        ),
        Class::AbortedRead => {
            format!("{} failed, but {} read {}", name(&first), name(&second), what(&second))
        }
        Class::DirtyUpdate => {
            let key = key(history, first.key);
            format!("{} failed, but a committed transaction overwrote its write of {key}", name(&first))
        }
        Class::IntermediateRead => {
            format!("{} read {}, which {} overwrote itself", name(&second), what(&second), name(&first))
        }
        Class::ReorderedWrites => format!(
            "{} wrote {} before {}, but they were installed the other way round",
            name(&first),
            what(&first),
            version(history, &second)
        ),
        Class::Internal => format!("{} wrote {}, then read {}", name(&first), what(&first), what(&second)),
        Class::FutureRead => format!("{} read {} before it wrote it", name(&first), what(&first)),
        Class::IncompatibleOrder => {
            format!("{} read {}, {} read {}", name(&first), what(&first), name(&second), what(&second))
        }
        Class::NonRepeatableRead => format!("{} read {}, then {}", name(&first), what(&first), what(&second)),
        Class::LostUpdate => format!(
            "{} and {} both built on {}: neither saw the other's write",
            name(&first),
            name(&second),
            what(&first)
        ),
        Class::FracturedStatement | Class::NonMonotonicView | Class::FracturedRead => {
            let old = op(2).unwrap_or(first);
            format!(
                "{reader} saw {writer} in {}, but read {}, where {writer} had written {}",
                what(&first),
                what(&old),
                version(history, &second),
                reader = name(&first),
                writer = name(&second)
            )
        }
        Class::DirtyWrite
        | Class::CircularFlow
        | Class::StatementFork
        | Class::ReadSkew
        | Class::LongFork
        | Class::WriteSkew => String::new(),
    }
}

/// One transaction as SQL.
fn transaction(history: &History, number: usize, txn: u32, matters: &[u32]) -> Vec<String> {
    let data = &history.txns()[txn as usize];
    let mut lines = vec![format!("  T{} = transaction {txn}, {}", number + 1, origin(history, data))];
    let begin = data.isolation.map_or_else(|| "BEGIN".to_owned(), Isolation::begin);
    lines.push(format!("    {begin};"));
    let range = history.range(txn);
    let first = range.start;
    let hidden = range.len().saturating_sub(STATEMENTS_MAX);
    let mut left = STATEMENTS_MAX;
    for at in range {
        let is_shown = hidden == 0 || matters.contains(&(at as u32)) || left > matters.len();
        if is_shown && left > 0 {
            left -= 1;
            let op = &history.ops()[at];
            let is_same = at > first
                && op.kind == Kind::Read
                && history.ops()[at - 1].kind == Kind::Read
                && history.ops()[at - 1].statement == op.statement;
            let same = if is_same { ", in the same statement" } else { "" };
            lines.push(format!("    {}{same}", statement(history, op, data)));
        }
    }
    if hidden > 0 {
        lines.push(format!("    -- and {hidden} more statements"));
    }
    let code = std::str::from_utf8(&data.sqlstate).unwrap_or_default().trim_matches('\0');
    let code = if code.is_empty() { String::new() } else { format!(" ({code})") };
    lines.push(match data.outcome {
        crate::history::Outcome::Ok => "    COMMIT;".to_string(),
        other => format!("    COMMIT;  -- {}{code}", other.name()),
    });
    lines
}

fn origin(history: &History, txn: &Txn) -> String {
    match history.names.node(txn.node) {
        Some(node) => format!("session {} on {node}", txn.session),
        None => format!("session {}", txn.session),
    }
}

fn statement(history: &History, op: &Op, txn: &Txn) -> String {
    let key = history.names.key(op.key);
    let key = literal(&key);
    let tok = literal(&history.names.value(op.tok));
    let place = match (history.names.shard(op.key), history.names.node(op.node)) {
        (Some(shard), _) => format!(", {shard}"),
        (None, Some(node)) if op.node != txn.node => format!(", {node}"),
        _ => String::new(),
    };
    match (history.model(), op.kind) {
        (Model::VersionedRegister, Kind::Read) => {
            format!(
                "SELECT ver, tok FROM kv WHERE k = {key};  -- {}{place}",
                match op.ver {
                    0 => "version 0".to_string(),
                    ver => format!("{ver}, {tok}"),
                }
            )
        }
        (Model::VersionedRegister, Kind::Insert) => {
            format!("INSERT INTO kv (k, ver, tok) VALUES ({key}, 1, {tok});  -- 1{place}")
        }
        (Model::VersionedRegister, Kind::Write) => {
            format!("UPDATE kv SET ver = {}, tok = {tok} WHERE k = {key};  -- {}{place}", op.ver, op.ver)
        }
        (Model::VersionedRegister, _) => {
            format!(
                "UPDATE kv SET ver = ver + 1, tok = {tok} WHERE k = {key} RETURNING ver;  -- {}{place}",
                op.ver
            )
        }
        (Model::Append, Kind::Read) => {
            let list = history.list(op);
            let hidden = list.len().saturating_sub(ELEMENTS_MAX);
            let shown: Vec<String> =
                list[hidden..].iter().map(|element| history.names.value(*element)).collect();
            let dots = if hidden > 0 { "... " } else { "" };
            format!("SELECT val FROM lists WHERE k = {key};  -- {dots}[{}]{place}", shown.join(","))
        }
        (Model::Append, _) => format!(
            "INSERT INTO lists AS t (k, val) VALUES ({key}, {whole}) ON CONFLICT (k) DO UPDATE SET val = t.val || ',{plain}';{}",
            comment(&place),
            whole = sql::literal(&history.names.value(op.tok)),
            plain = history.names.value(op.tok).replace('\'', "''")
        ),
        (Model::Register, Kind::Read) => {
            let value = if op.ver == 0 { "no row".to_string() } else { tok.to_string() };
            format!("SELECT val FROM registers WHERE k = {key};  -- {value}{place}")
        }
        (Model::Register, _) => format!(
            "INSERT INTO registers (k, val) VALUES ({key}, {tok}) ON CONFLICT (k) DO UPDATE SET val = {tok};{}",
            comment(&place)
        ),
    }
}

/// A key or value as SQL.
fn literal(name: &str) -> String {
    match name.parse::<i64>() {
        Ok(_) => name.to_string(),
        Err(_) => sql::literal(name),
    }
}

fn comment(place: &str) -> String {
    match place.strip_prefix(", ") {
        Some(place) => format!("  -- {place}"),
        None => String::new(),
    }
}

fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
