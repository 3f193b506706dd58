//! Who wrote a line of the log, and whether it can be believed.
//!
//! Any role can write any text into the log: RAISE LOG in a DO block, `plpy.log`, `elog` of PL/Perl, and errors with every SQLSTATE. So a line
//! counts only if its writer can have written it for the server: a line about the server comes from a process without a client, and a line that
//! sessions write as well has no procedural language as its innermost context (`plpgsql_exec_error_callback` in pl_exec.c, `plpython_error_callback`,
//! `plperl_exec_callback`).

use super::parse::Entry;
use super::writer::Writer;
use std::collections::BTreeSet;

/// Functions of the server's sources that write what a user has composed: those of the procedural languages, and of connections to other servers.
const RAISING: [&str; 10] = [
    "exec_stmt_raise",
    "exec_stmt_assert",
    "PLy_output",
    "PLy_elog_impl",
    "plperl_util_elog",
    "do_util_elog",
    "croak_cstr",
    "pltcl_elog",
    "dblink_res_error",
    "pgfdw_report_error",
];
/// SQLSTATEs of errors of functions: `P0001` of RAISE, `38000` of PL/Tcl and PL/Perl.
const OF_FUNCTIONS: [&str; 2] = ["P0", "38"];
/// How the contexts of messages of procedural languages begin, in every language; in some of them behind a word for "function".
const LANGUAGE: &str = "PL/";
const PLPGSQL: &str = "PL/pgSQL";
/// Statements of PL/pgSQL whose text is the user's.
const STATEMENTS: [&str; 2] = ["RAISE", "ASSERT"];

/// Whose lines are of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// Of the main process (postmaster).
    Main,
    /// Of a process that serves no client.
    Server,
    /// Of any process, sessions as well.
    Any,
}

/// What is known of the processes and of the log.
#[derive(Debug)]
pub(crate) struct Judge {
    /// Main processes that were seen; empty if unknown.
    pub(crate) mains: BTreeSet<u32>,
    /// Whether a line has its CONTEXT: a plain log with `log_error_verbosity = terse` has none.
    pub(crate) shows_context: bool,
}

impl Judge {
    /// Whether a process of the right kind wrote a line, and no function did.
    pub(crate) fn believes(&self, entry: &Entry, by: By) -> bool {
        let shows_raise = self.shows_context || !entry.location.is_empty();
        let is_known = match (by, entry.pid) {
            (By::Main, Some(pid)) if !self.mains.is_empty() => {
                return self.mains.contains(&pid) && !is_raised(entry);
            }
            (By::Any, _) => shows_raise,
            (By::Main | By::Server, _) => match writer(entry) {
                Writer::Server => true,
                Writer::Unknown => shows_raise,
                Writer::Session => false,
            },
        };
        is_known && !is_raised(entry)
    }

    /// Whether a function may have made up an error. Only sessions have functions: the server refuses a connection (FATAL) before it has a statement.
    pub(crate) fn may_be_raised(&self, entry: &Entry) -> bool {
        let shows_raise = self.shows_context || !entry.location.is_empty();
        is_raised(entry) || !shows_raise && entry.severity == "ERROR" && writer(entry) != Writer::Server
    }
}

/// The writer of a line. The server adds the statement to what a session logs, and to what its parallel workers log.
pub(crate) fn writer(entry: &Entry) -> Writer {
    if entry.statement.is_empty() { entry.writer } else { Writer::Session }
}

/// Whether a line is the message of a function, or of a server to which a function has connected.
pub(crate) fn is_raised(entry: &Entry) -> bool {
    let of_other_server = |line: &str| {
        line.starts_with("remote SQL command: ")
            || line.starts_with("while ") && line.contains("dblink connection")
    };
    RAISING.contains(&function_of(entry))
        || is_of_functions(&entry.sqlstate)
        || entry.context.lines().next().is_some_and(is_of_function)
        || entry.context.lines().any(of_other_server)
}

/// Whether the innermost context is code of a user that writes a message. A lock wait or an error inside of a function has the statement as its
/// innermost context, or another statement of PL/pgSQL.
fn is_of_function(line: &str) -> bool {
    let line = line.trim_end();
    let words = line.split('"').next().unwrap_or_default();
    match words.contains(PLPGSQL) {
        true => STATEMENTS.iter().any(|statement| line.ends_with(statement)),
        false => words.contains(LANGUAGE),
    }
}

/// The function whose RAISE wrote an entry: `PL/pgSQL function f(integer) line 3 at RAISE` is the first line of its context, in any language.
pub(crate) fn raised_by(entry: &Entry) -> Option<&str> {
    let line = entry.context.lines().next().filter(|line| line.trim_end().ends_with("RAISE"))?;
    let open = line.find('(')?;
    let from = line[..open].rfind(' ').map_or(0, |space| space + 1);
    let to = open + line[open..].find(')')? + 1;
    Some(&line[from..to])
}

/// Whether the function of the server's sources that wrote a line is one of these; an empty name stands for a line that does not show it.
pub(crate) fn is_at(entry: &Entry, functions: &[&str]) -> bool {
    functions.contains(&function_of(entry))
}

fn function_of(entry: &Entry) -> &str {
    entry.location.split([',', ' ']).next().unwrap_or_default()
}

/// Whether a SQLSTATE is one of functions, and no other.
pub(crate) fn is_of_functions(sqlstate: &str) -> bool {
    OF_FUNCTIONS.iter().any(|class| sqlstate.starts_with(class))
}

/// Whether a SQLSTATE is of a class that is about the server: resources, limits, the operator, the system, damage; or a deadlock.
pub(crate) fn is_of_the_system(sqlstate: &str) -> bool {
    ["40P", "53", "54", "57", "58", "XX"].iter().any(|class| sqlstate.starts_with(class))
}

/// Words of messages about the server that findings rest on. In the message of a session they count only where the server puts them.
const GRAVE: [&str; 30] = [
    "could not fork",
    "could not accept new connection",
    "out of file descriptors",
    "Too many open files",
    "Cannot allocate memory",
    "No space left on device",
    "could not create semaphores",
    "too frequently",
    "was terminated by signal",
    "exited with exit code",
    "terminating any other active server processes",
    "database system is shut down",
    "database system is ready",
    "database system was interrupted",
    "received fast shutdown",
    "received immediate shutdown",
    "received smart shutdown",
    "archive command failed",
    "redo done at",
    "redo in progress",
    "could not extend file",
    "could not resize shared memory",
    "out of memory",
    "out of shared memory",
    "invalid page",
    "deadlock detected",
    "too many clients",
    "connection slots",
    "too many connections for",
    "not accepting commands",
];
/// More of them, for errors by which values or tables are blamed.
const GRAVE_OF_DATA: [&str; 8] = [
    "duplicate key value violates",
    "reached maximum value of sequence",
    "canceling autovacuum task",
    "canceling statement due to",
    "terminating connection",
    "invalid memory alloc request",
    "string buffer exceeds",
    "array size exceeds",
];
/// Beginnings of messages that have one of the words further on. No name stands in front of it.
const BEFORE_GRAVE: [&str; 5] = ["sorry, ", "remaining ", "the ", "database is ", "nextval: "];

/// Where a message has such words, in order of the list.
fn grave(message: &str) -> impl Iterator<Item = usize> {
    GRAVE.iter().chain(&GRAVE_OF_DATA).filter_map(|words| message.find(words))
}

/// Whether a message has such words.
pub(crate) fn is_grave(message: &str) -> bool {
    grave(message).next().is_some()
}

/// The message of a session without a name that looks like a message of the server: `relation "out of memory" does not exist`. It ends where the name begins.
pub(crate) fn without_forged_names(message: &str) -> &str {
    let (first, last) = (message.find('"'), message.rfind('"'));
    let is_quoted = |at: usize| first.is_some_and(|first| first < at) && last.is_some_and(|last| at < last);
    // `could not extend file "base/5/1": No space left on device`.
    let is_of_system = message.starts_with("could not ");
    let is_forged = |at: &usize| {
        let is_begin =
            *at == 0 || BEFORE_GRAVE.iter().any(|begin| message.starts_with(begin) && *at == begin.len());
        !(is_begin || is_of_system && !is_quoted(*at))
    };
    match grave(message).filter(is_forged).min() {
        Some(at) => message[..at].trim_end(),
        None => message,
    }
}
