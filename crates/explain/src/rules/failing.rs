//! TXN-13: statements and sessions that end with one error again and again, by the server's log.

mod leaked;
mod locks;

use super::costly::plain;
use super::member::is_away;
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity};
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-13",
    title: "statements or sessions end with the same error again and again",
    needs: &[Field("server", "xact_rollback"), Field("server", "xact_commit")],
    limits: "10 of one kind in the server's log, one in 2 s; medium where a setting or a missing object explains it, high with 10 % of the transactions, or \
        if the table of locks is full; \
        errors that other rules explain are left to them (ours)",
    judge: failing,
    links: &["https://www.postgresql.org/docs/current/errcodes-appendix.html"],
}];

/// Errors of a kind.
const ERRORS_MIN: f64 = 10.0;
/// Errors a second.
const ERRORS_PER_S_MIN: f64 = 0.5;
/// Of the transactions, from which on it is high.
const SHARE_HIGH: f64 = 0.1;
/// The same of an error that no one may have to mend.
const SHARE_UNKNOWN: f64 = 0.3;
/// Characters of an error in a claim.
const ERROR_CHARS: usize = 120;

/// SQLSTATEs with rules of their own: conflicts and deadlocks, refused connections, keys that are there already, a server that starts or stops.
const OF_OTHERS: [&str; 7] = ["40001", "40P01", "53300", "23505", "57P02", "57P03", "55000"];
/// Messages of these, where the log has no SQLSTATE, and of cancelled statements, whose SQLSTATE TXN-08's have as well.
const WORDS_OF_OTHERS: [&str; 12] = [
    "statement timeout",
    "could not serialize access",
    "deadlock detected",
    "too many",
    "remaining connection slots",
    "duplicate key value",
    "the database system is",
    "conflict with recovery",
    "because of crash",
    "No space left",
    "autovacuum task",
    // It ends with its leader, which has an error of its own.
    "terminating background worker \"parallel worker\"",
];

/// A statement that another session cancelled.
const CANCELLED: &str = "canceling statement due to user request";
/// SQLSTATEs of several kinds of error: the words decide.
const AMBIGUOUS: [&str; 8] = ["54000", "23514", "0A000", "53200", "53100", "55P03", "28000", "22P02"];
/// SQLSTATEs with which a session ends, and its work is lost: a few matter.
const ENDS_SESSION: [&str; 4] = ["57P01", "57P05", "25P03", "25P04"];
/// That of sessions that an administrator, or a server that stops, ends.
const SHUTDOWN: &str = "57P01";
/// So few.
const SESSIONS_MIN: f64 = 3.0;

/// A kind of error, by its SQLSTATE, or where the log has none (`log_line_prefix` without %e) by words of its message.
struct Known {
    sqlstate: &'static str,
    /// `^` stands before what begins it.
    words: &'static [&'static str],
    /// What happens.
    what: &'static str,
    /// The setting that decides, if it is one.
    setting: &'static str,
    text: &'static str,
}

const KNOWN: [Known; 24] = [
    Known {
        sqlstate: "23514",
        words: &["no partition of relation"],
        what: "rows are refused, because no partition of their table is for them: the one of this time, or of this key, was not created",
        setting: "",
        text: "create the missing partition, with the bounds that follow those of the last one, and let the job that creates them run ahead (pg_partman, \
            cron); a \
            DEFAULT partition takes what fits no other one, but its rows must be moved before a partition for them can be created",
    },
    Known {
        sqlstate: "42P05",
        words: &["prepared statement", "already exists"],
        what: "statements fail, because a prepared statement of that name is in the session already: a pooler gives one server process to several clients \
            (transaction pooling), whose drivers name their statements alike",
        setting: "",
        text: "let the pooler follow prepared statements (pgbouncer 1.21 or later: max_prepared_statements), or let the driver prepare none (or without names)",
    },
    Known {
        sqlstate: "25P03",
        words: &["idle-in-transaction timeout"],
        what: "sessions are terminated, because they paused in a transaction for longer than idle_in_transaction_session_timeout allows: their work is lost",
        setting: "idle_in_transaction_session_timeout",
        text: "end the transaction before the program waits for something else (another service, a user), or give that program's role a longer limit",
    },
    Known {
        sqlstate: "57P05",
        words: &["idle-session timeout"],
        what: "idle sessions are terminated by idle_session_timeout, and connect anew",
        setting: "idle_session_timeout",
        text: "let the pool close idle connections itself before that time, or give its role a longer limit",
    },
    Known {
        sqlstate: "25P04",
        words: &["due to transaction timeout"],
        what: "sessions are terminated, because a transaction took longer than transaction_timeout allows: its work is lost",
        setting: "transaction_timeout",
        text: "divide the work into shorter transactions, or give that program's role a longer limit",
    },
    Known {
        sqlstate: "55P03",
        words: &["lock timeout"],
        what: "statements give up, because they waited for a lock for longer than lock_timeout allows",
        setting: "lock_timeout",
        text: "look for what holds the lock for so long (pg_blocking_pids), or wait longer",
    },
    Known {
        sqlstate: "53400",
        words: &["temp_file_limit"],
        what: "statements fail, because their temporary files are larger than temp_file_limit allows: what they did is lost, and starts again if it is \
            repeated",
        setting: "temp_file_limit",
        text: "raise the limit for that role, or let the statement need less: more work_mem, an index in the wanted order, fewer rows",
    },
    Known {
        sqlstate: "25006",
        words: &["in a read-only transaction"],
        what: "writes are sent to a session that may only read: a standby, or default_transaction_read_only",
        setting: "default_transaction_read_only",
        text: "connect writers with target_session_attrs=read-write",
    },
    Known {
        sqlstate: "2200H",
        words: &["reached maximum value of sequence"],
        what: "inserts fail, because a sequence has given out its largest value: none of them can come through again",
        setting: "",
        text: "give the column and the sequence a larger type (bigint): ALTER TABLE ... ALTER COLUMN ... TYPE bigint writes the table anew and keeps everybody \
            out meanwhile, so a new column that is filled beforehand is the way for a large table; until then negative numbers of an ascending sequence are \
            free (ALTER SEQUENCE ... MINVALUE -2147483648 RESTART -2147483648), if nothing minds them",
    },
    Known {
        sqlstate: DAMAGED,
        words: &["invalid page in block"],
        what: "blocks of a relation are damaged: its statements fail, and what was in them may be lost",
        setting: "",
        text: "stop changes of that relation, and copy the data directory before anything else; take the rows from a standby or a backup; an index is made \
            anew \
            (REINDEX); then look for the reason: disk, memory, file system (the kernel's log), fsync = off",
    },
    Known {
        sqlstate: OUT_OF_IDS,
        words: &["not accepting commands"],
        what: "every statement that writes is refused, because a database is about to run out of transaction ids: reads go on, and only vacuum ends it",
        setting: "",
        text: "end what holds the horizon back first (sessions, prepared transactions, slots, standbys: VAC-05), then vacuum the oldest tables of every \
            database (vacuumdb --all --freeze); the server accepts writes again when the oldest database is younger, which autovacuum may have to do for \
            template0",
    },
    Known {
        sqlstate: "42P01",
        words: &["^relation ", "does not exist"],
        what: "statements name a table that is not there, or not in the search_path: a migration is missing, or a program is older or newer than the schema",
        setting: "search_path",
        text: "create what is missing, or correct the program",
    },
    Known {
        sqlstate: "42703",
        words: &["^column ", "does not exist"],
        what: "statements name a column that is not there: a migration is missing, or a program is older or newer than the schema",
        setting: "",
        text: "create what is missing, or correct the program",
    },
    Known {
        sqlstate: "42501",
        words: &["permission denied"],
        what: "statements are refused, because their role lacks a right",
        setting: "",
        text: "grant the right, or let the program use the role that has it",
    },
    Known {
        sqlstate: "28P01",
        words: &["password authentication failed"],
        what: "connections are refused for a wrong password: each of them takes a process and the time of a handshake",
        setting: "",
        text: "give the program the present password; one that is repeated without a pause needs a pause",
    },
    Known {
        sqlstate: "57P01",
        words: &["terminating connection due to administrator command"],
        what: "sessions are terminated by pg_terminate_backend (or a signal), and the server goes on: a person or a watchdog ends them, and their work is lost",
        setting: "",
        text: "find who calls pg_terminate_backend (scripts against long or idle sessions, proxies, orchestration); let it spare that role, or give its \
            statements less to do; statement_timeout cancels the statement and keeps the session",
    },
    Known {
        sqlstate: "53200",
        words: &["out of shared memory"],
        what: "statements fail, because the shared lock table is full: they lock more tables, partitions and indexes than max_locks_per_transaction \
            provides for",
        setting: "max_locks_per_transaction",
        text: "raise max_locks_per_transaction (a restart; the lock table has room for that many locks for each of max_connections), or touch fewer \
            partitions in one \
            transaction",
    },
    Known {
        sqlstate: "53100",
        words: &["could not resize shared memory segment"],
        what: "statements fail, because /dev/shm is too small for parallel workers: a container has 64 MB of it by default",
        setting: "dynamic_shared_memory_type",
        text: "give the container more shared memory (--shm-size), or let fewer workers share less (max_parallel_workers_per_gather, work_mem)",
    },
    Known {
        sqlstate: "26000",
        words: &["prepared statement", "does not exist"],
        what: "statements fail, because what they prepared is not in the session: a pooler gave them another server process, or something discarded it",
        setting: "",
        text: "let the pooler follow prepared statements (pgbouncer 1.21 or later: max_prepared_statements), or let the driver prepare none",
    },
    Known {
        sqlstate: "25P02",
        words: &["current transaction is aborted"],
        what: "programs go on in a transaction that has failed: every further statement of it is refused",
        setting: "",
        text: "roll back after an error, or put what may fail behind a SAVEPOINT; the first error of the transaction is the one to mend",
    },
    Known {
        sqlstate: "55P03",
        words: &["could not obtain lock"],
        what: "statements with NOWAIT are refused, because the row or table is locked",
        setting: "",
        text: "take other rows (SKIP LOCKED), pause before the next attempt, or look for what holds the lock for so long",
    },
    Known {
        sqlstate: "28000",
        words: &["no pg_hba.conf entry"],
        what: "connections are refused, because no line of pg_hba.conf fits their host, user, database or encryption",
        setting: "",
        text: "add the line, or stop the program: each attempt takes a process",
    },
    Known {
        sqlstate: "22P02",
        words: &["invalid input syntax"],
        what: "statements fail, because a value does not fit its type",
        setting: "",
        text: "find the program that sends such values, and let it check them",
    },
    Known {
        sqlstate: "0A000",
        words: &["cached plan must not change result type"],
        what: "prepared statements fail, because their table has been changed since they were prepared",
        setting: "",
        text: "prepare them again after a schema change (a pool: DISCARD ALL, or new connections)",
    },
];

/// That of statements in a transaction that has failed: the error before them is the cause.
const IN_FAILED: &str = "25P02";
/// From this share of them on, another error is their cause.
const OF_FAILED_MIN: f64 = 0.1;

/// Errors of one kind.
struct Kind<'a> {
    first: &'a Event,
    count: f64,
    /// Statements that were refused because of it.
    refused: f64,
}

/// Leaves out the statements that were refused in failed transactions, and adds their number to the most frequent of the other errors, if that is frequent
/// enough.
fn with_refused(mut kinds: Vec<Kind<'_>>) -> Vec<Kind<'_>> {
    let is_refused = |kind: &Kind<'_>| {
        let state = Case::word_of(kind.first, "sqlstate");
        state == IN_FAILED
            || state.is_empty() && kind.first.message.contains("current transaction is aborted")
    };
    let refused: f64 = kinds.iter().filter(|kind| is_refused(kind)).map(|kind| kind.count).sum();
    let others = kinds.iter_mut().filter(|kind| !is_refused(kind));
    if let Some(cause) = others.max_by(|left, right| left.count.total_cmp(&right.count))
        && refused > 0.0
        && cause.count >= refused * OF_FAILED_MIN
    {
        cause.refused = refused;
        kinds.retain(|kind| !is_refused(kind));
    }
    kinds
}

impl Known {
    fn fits(&self, state: &str, message: &str) -> bool {
        let is_of_state = state.is_empty() || state == self.sqlstate;
        is_of_state
            && (state == self.sqlstate && !AMBIGUOUS.contains(&state)
                || self.words.iter().all(|part| match part.strip_prefix('^') {
                    Some(begin) => message.starts_with(begin),
                    None => message.contains(part),
                }))
    }
}

/// The message without its values: digits, and what stands in quotes.
fn kind_of(message: &str) -> String {
    let outside = message.split('"').step_by(2).collect::<String>();
    outside.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Errors in the log of a server by their kinds.
fn kinds<'a>(case: &'a Case, node: &str) -> Vec<Kind<'a>> {
    let mut kinds: BTreeMap<String, Kind<'a>> = BTreeMap::new();
    let is_spread = case.own(node, record::watched::own::SESSIONS).is_some();
    for error in case.events_of(event::SERVER_LOG) {
        let state = Case::word_of(error, "sqlstate");
        let is_error = ["ERROR", "FATAL"].contains(&Case::word_of(error, "severity"));
        let is_of_node = [node, ""].contains(&Case::word_of(error, "node"));
        let is_of_others = !error.message.contains("shared memory segment")
            && (OF_OTHERS.contains(&state)
                || WORDS_OF_OTHERS.iter().any(|words| error.message.contains(words)));
        // The engine of a cluster cancels what its sessions do at other nodes when one of them has failed.
        let is_engines = is_spread && error.message.starts_with(CANCELLED);
        if !is_error || !is_of_node || is_of_others || is_engines || is_away(case, node, &error.message) {
            continue;
        }
        let kind = format!("{state} {}", kind_of(&error.message));
        kinds.entry(kind).or_insert(Kind { first: error, count: 0.0, refused: 0.0 }).count += error.times();
    }
    with_refused(kinds.into_values().collect())
}

/// Whether the server stopped, started or went away.
fn is_restarted(case: &Case, node: &str) -> bool {
    case.events_of(event::RESTART).any(|event| [node, ""].contains(&Case::word_of(event, "node")))
}

/// Whether the engine of a cluster logs that nodes are away: then it ends workers of its own.
fn is_engine_busy(case: &Case, node: &str) -> bool {
    let mut of_node = case.events_of(event::SERVER_LOG).filter(|event| Case::word_of(event, "node") == node);
    of_node.any(|event| is_away(case, node, &event.message))
}

/// The value that a role or database at work has of the setting that decides.
fn own_value<'a>(case: &'a Case, node: &'a str, known: Option<&'static Known>) -> Option<(&'a str, &'a str)> {
    let name = known.map(|known| known.setting).filter(|name| !name.is_empty())?;
    case.own_settings(node, name).find(|(owner, _)| case.is_at_work(node, owner, ""))
}

/// Whether most sessions give up waiting for a lock so early that this is what makes them fail.
fn gives_up_early(case: &Case, node: &str, known: Option<&'static Known>, own: Option<(&str, &str)>) -> bool {
    known.is_some_and(|known| known.sqlstate == LOCK_TIMEOUT)
        && own.is_some_and(|(owner, value)| {
            units::setting(value).is_some_and(|ms| ms > 0.0 && ms < SHORT_MS) && has_most(case, node, owner)
        })
}

/// Whether most of the session time belongs to a role or database.
fn has_most(case: &Case, node: &str, owner: &str) -> bool {
    let Some((kind, name)) = owner.split_once(' ') else { return false };
    let dimension = if kind == "role" { "user" } else { "database" };
    let of_node = crate::node_time::all(case).iter().find(|time| time.node == node);
    let by = of_node.and_then(|time| time.by.iter().find(|by| by.name == dimension));
    by.is_some_and(|by| by.shares.iter().any(|(other, share)| other == name && *share >= MOST))
}

/// Most of the session time.
const MOST: f64 = 0.5;
/// Waiting for a lock for less than this (milliseconds) gives up where another transaction only does its work.
const SHORT_MS: f64 = 1_000.0;
/// SQLSTATE of it.
const LOCK_TIMEOUT: &str = "55P03";
/// The number of a claim whose statements give up so early.
pub(crate) const GIVES_UP_EARLY: &str = "gives_up_early";

/// Whether the table of locks is full.
fn is_of_locks(known: Option<&'static Known>) -> bool {
    known.is_some_and(|known| known.setting == locks::SETTING)
}

fn severity(known: Option<&'static Known>, share: f64, is_short: bool, refused: f64) -> Severity {
    match known {
        Some(_) if share >= SHARE_HIGH || is_short => Severity::High,
        Some(known) if [OUT_OF_IDS, DAMAGED, "2200H"].contains(&known.sqlstate) => Severity::High,
        // Every session that needs a lock at that moment fails, whatever it does.
        Some(_) if is_of_locks(known) => Severity::High,
        Some(_) => Severity::Medium,
        None if share >= SHARE_UNKNOWN => Severity::High,
        None if refused > 0.0 && share >= SHARE_HIGH => Severity::Medium,
        None => Severity::Low,
    }
}

/// What happens so often, and the setting that decides.
fn in_words(
    case: &Case,
    node: &str,
    known: &'static Known,
    own: Option<(&str, &str)>,
    (per_s, message): (f64, &str),
) -> String {
    let value =
        own.map_or(String::new(), |(owner, value)| format!(": {} is {value} for {owner}", known.setting));
    let most = locks::partitioned(case, node).filter(|_| is_of_locks(Some(known)));
    let most =
        most.map_or(String::new(), |most| format!("; the table with the most partitions is {}", most.table));
    // Where no setting decides, the object does.
    let one = if known.setting.is_empty() { format!("; one of them: {message}") } else { String::new() };
    format!("{node}: {} times a second: {}{value}{most}{one}", units::short(per_s), known.what)
}

/// The claim about a kind of error that comes so often, on a server with so many transactions a second.
fn of_kind(
    case: &Case,
    server: &Thing<'_>,
    known: Option<&'static Known>,
    (per_s, transactions): (f64, f64),
    kind: &Kind<'_>,
) -> Claim {
    let Kind { first, count, refused } = kind;
    let (count, refused) = (*count, *refused);
    let state = Case::word_of(first, "sqlstate");
    let share = per_s / transactions.max(per_s);
    let own = own_value(case, server.place, known);
    let is_short = gives_up_early(case, server.place, known, own);
    let severity = severity(known, share, is_short, refused);
    let message = plain(&first.message, ERROR_CHARS);
    let of_locks = if is_of_locks(known) { locks::evidence(case, server.place) } else { vec![] };
    let commands = match known {
        _ if is_of_locks(known) => locks::commands(case, server.place),
        Some(known) if known.sqlstate == NO_PARTITION => partitions(&first.message),
        Some(known) if known.sqlstate == DAMAGED => damaged(&first.message),
        _ => commands(known).into_iter().map(str::to_string).collect(),
    };
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = match known {
        Some(known) => in_words(case, server.place, known, own, (per_s, &message)),
        None => format!("{}: {} statements a second fail: {message}", server.place, units::short(per_s)),
    };
    let text = text + &leaked::by(case, server.place, known);
    let claim = Claim::new(severity, Level::DiscriminatingCounter, text);
    of_locks
        .into_iter()
        .fold(claim, Claim::because)
        .on_node(server.place)
        .during([server.lines.ticks.window()])
        .number("errors_per_s", per_s)
        .number("share_of_transactions", share)
        .with(known.filter(|known| known.sqlstate == OUT_OF_IDS), |claim, _| claim.number(IDS_LEFT, 0.0))
        .with(is_short.then_some(1.0), |claim, one| claim.number(GIVES_UP_EARLY, one))
        .because(format!(
            "the server's log, {count:.0} times: {message}{}",
            if state.is_empty() { String::new() } else { format!(" (SQLSTATE {state})") }
        ))
        .with(
            known.and_then(|known| case.setting(server.place, known.setting)),
            |claim, value| {
                claim.because(format!(
                    "{} is {value} here; a role or a database may have its own",
                    known.map_or("", |known| known.setting)
                ))
            },
        )
        .with((refused > 0.0).then_some(refused), |claim, refused| {
            claim.because(format!(
                "{refused:.0} more statements were refused, because their programs went on in the failed transaction: they should roll back after an \
                    error"
            ))
        })
        .with(known.is_none().then_some(()), |claim, ()| {
            claim.lacking(
                "whether the program expects this error: what fails is done in vain either way",
            )
        })
        .remedy(
            known.map_or("find the program that sends it, and mend or stop it", |known| {
                known.text
            }),
            &commands,
        )
}

fn failing(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let seconds = server.lines.ticks.window().length_us() as f64 / 1e6;
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let transactions = rate("xact_rollback") + rate("xact_commit");
        for kind in kinds(case, server.place) {
            let Kind { first, count, .. } = kind;
            let per_s = count / seconds.max(1.0);
            let state = Case::word_of(first, "sqlstate");
            let known = KNOWN.iter().find(|known| known.fits(state, &first.message));
            let known = known.map(|known| leaked::or_by_a_client(case, &server, known));
            let ends_session = known.is_some_and(|known| ENDS_SESSION.contains(&known.sqlstate));
            let is_often = count >= ERRORS_MIN && per_s >= ERRORS_PER_S_MIN;
            // A server that stops ends all its sessions.
            let is_shutdown = known.is_some_and(|known| known.sqlstate == SHUTDOWN)
                && (is_restarted(case, server.place) || is_engine_busy(case, server.place));
            if is_shutdown || !(is_often || ends_session && count >= SESSIONS_MIN) {
                continue;
            }
            claims.push(of_kind(case, &server, known, (per_s, transactions), &kind));
        }
    }
    Answer::of(claims, || "errors in the server's log, by their kinds".to_string())
}

/// SQLSTATE of data that is not as it was written.
const DAMAGED: &str = "XX001";
/// The number of a finding about a server without transaction ids for writes.
pub(crate) const IDS_LEFT: &str = "transaction_ids_left";
/// SQLSTATE of a statement that would need a transaction id when there are none left, among others.
const OUT_OF_IDS: &str = "54000";
/// SQLSTATE of a row that fits no partition.
const NO_PARTITION: &str = "23514";

/// Which relation has the file that a message names: `base/16384/16489`.
fn damaged(message: &str) -> Vec<String> {
    let path = message.split('"').nth(1).unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default().split(['.', '_']).next().unwrap_or_default();
    let look = match file.parse::<u64>() {
        Ok(node) => format!(
            "SELECT pg_filenode_relation(0, {node}); -- the relation, in its database; of another tablespace: its oid instead of 0"
        ),
        Err(_) => "SELECT pg_current_logfile(); -- the lines name block and file".to_string(),
    };
    vec![look, "$ dmesg | grep -iE 'i/o error|ata|nvme|edac|mce' | tail -n 20".to_string()]
}

/// The partitions that there are of the table in a message.
fn partitions(message: &str) -> Vec<String> {
    let name = message.split('"').nth(1).unwrap_or_default();
    vec![format!(
        "SELECT p.relid::regclass AS partition, pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_class t, pg_partition_tree(t.oid) p JOIN pg_class c ON \
             c.oid = p.relid WHERE t.relname = {} AND t.relkind = 'p' ORDER BY 1;",
        literal(name)
    )]
}

fn commands(known: Option<&Known>) -> Vec<&'static str> {
    let has_setting = known.is_some_and(|known| !known.setting.is_empty());
    match has_setting {
        true => vec![
            "SELECT coalesce(r.rolname, '(all roles)') AS role, coalesce(d.datname, '(all databases)') AS database, s.setconfig FROM pg_db_role_setting s \
             LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase;",
            "SELECT name, setting, unit, source FROM pg_settings WHERE name ~ 'timeout|temp_file_limit|read_only|search_path|max_locks|max_connections' \
             AND (source <> 'default' OR name ~ '^max_');",
        ],
        false => vec![
            "SELECT pg_current_logfile(); -- the log has the statement of each error, with log_min_error_statement = error (the default)",
        ],
    }
}
