//! Rollbacks that no program of a user makes: logical decoding reads each transaction in one that it rolls back, and plans are tried in such transactions.
//! And the error with which most of the others end, by the server's log: where that grows faster than it is read, what was read stands for all of it.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Claim;
use crate::rules::costly::{lowered, plain};
use crate::units;
use record::event::{self, Event};
use std::collections::BTreeMap;

/// Fewer rollbacks in a recording are no share of anything: the first readings of an idle server have one or two.
const ROLLED_BACK_MIN: f64 = 30.0;
/// Of the rollbacks, those that a program sent as a statement, below which the engine makes the others.
const SENT_SHARE_MIN: f64 = 0.2;

/// Logical slots of a node: a walsender decodes each transaction for each of them.
fn decoders(case: &Case, node: &str) -> f64 {
    case.at("slot", node).filter(|slot| slot.lines.word("kind") == "logical").count() as f64
}

/// Rollbacks a second that can be those of programs: without one per commit and logical slot, and one per plan that was tried.
pub(super) fn of_programs(case: &Case, server: &Thing<'_>) -> f64 {
    let sum = |field: &str| server.lines.sum(field).unwrap_or(0.0);
    let all = sum("xact_rollback");
    let tried = case.at("plan", server.place).count() + case.at("what_if", server.place).count();
    let left = all - tried as f64 - sum("xact_commit") * decoders(case, server.place);
    let per_s = server.lines.rate("xact_rollback").unwrap_or(0.0);
    if left < ROLLED_BACK_MIN { 0.0 } else { per_s * left / all }
}

/// Whether rollbacks without an error are those of logical decoding, which may read the same transactions again and again: hardly any program has sent a
/// ROLLBACK.
pub(super) fn are_of_decoding(case: &Case, node: &str, rollbacks_per_s: f64) -> bool {
    let is_rollback = |statement: &Thing<'_>| {
        let text = lowered(case.query(statement.lines.word("query_id")).unwrap_or_default());
        text.starts_with("rollback") || text.starts_with("abort")
    };
    let sent: f64 = case
        .at("statement", node)
        .filter(is_rollback)
        .filter_map(|statement| statement.lines.rate("calls"))
        .sum();
    decoders(case, node) > 0.0 && sent < rollbacks_per_s * SENT_SHARE_MIN
}

/// The part of the rollbacks that errors in the log explain, below which programs end transactions with ROLLBACK.
const OF_ROLLBACKS_MAX: f64 = 0.1;
/// From this part on most of them end with one error.
const MOST: f64 = 0.5;
/// Of the transactions, those that fail from which on the errors are what the server does.
const LOST_SHARE_MIN: f64 = 0.5;
/// The same, a second.
const LOST_PER_S_MIN: f64 = 100.0;
/// Sessions that are busy with it.
const BUSY_MIN: f64 = 1.0;
/// A log whose last line is older than this part of the recording was not read to its end.
const READ_SHARE_MIN: f64 = 0.75;
/// Characters of an error, and of its statement, in a claim.
const ERROR_CHARS: usize = 100;
const STATEMENT_CHARS: usize = 160;

/// Errors in the log of a node.
fn errors<'a>(case: &'a Case, node: &'a str) -> impl Iterator<Item = &'a Event> {
    case.events_of(event::SERVER_LOG).filter(move |event| {
        ["ERROR", "FATAL", "PANIC"].contains(&Case::word_of(event, "severity"))
            && [node, ""].contains(&Case::word_of(event, "node"))
    })
}

/// How many lines of the log stand for each one that was read, and whether that is more than one.
fn times_read(case: &Case, node: &str) -> f64 {
    let gaps = case.events_of(event::GAP).filter(|event| [node, ""].contains(&Case::word_of(event, "node")));
    let (mut skipped, mut read) = (0.0, 0.0);
    for gap in gaps {
        let bytes = |name: &str| gap.more.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        skipped += bytes("bytes");
        read += bytes(event::LOG_READ_BYTES);
    }
    if read > 0.0 { (skipped + read) / read } else { 1.0 }
}

/// Whether the last of these lines was written long before the end: then it is the log that is read late, and not the errors that ended.
fn is_read_late(server: &Thing<'_>, errors: &[&Event]) -> bool {
    let window = server.lines.ticks.window();
    let last = errors.iter().map(|event| event.t_us).max().unwrap_or(0);
    errors.len() > 2
        && (last.saturating_sub(window.from_us) as f64) < window.length_us() as f64 * READ_SHARE_MIN
}

/// Errors of these lines a second, in the whole log.
fn per_second(case: &Case, server: &Thing<'_>, errors: &[&Event]) -> f64 {
    let count: f64 = errors.iter().map(|event| event.times()).sum::<f64>() * times_read(case, server.place);
    let window = server.lines.ticks.window();
    let seconds = (window.length_us() as f64 / 1e6).max(1.0);
    let first = errors.iter().map(|event| event.t_us).min().unwrap_or(0);
    let last = errors.iter().map(|event| event.t_us).max().unwrap_or(0);
    let read_s = (last.saturating_sub(first) as f64 / 1e6).max(1.0);
    // Lines that are read late are of the beginning only.
    if is_read_late(server, errors) { count / read_s.min(seconds) } else { count / seconds }
}

/// Whether the log is read, and hardly any of so many rollbacks a second follows an error in it.
pub(super) fn is_on_purpose(case: &Case, server: &Thing<'_>, rollbacks_per_s: f64) -> bool {
    let is_unread = case.gaps.iter().any(|gap| {
        ["server log", "lines of the server log"].contains(&gap.what.as_str()) && gap.node == server.place
    });
    // Without a number of what was read, nothing stands for the rest.
    let is_unknown =
        |event: &Event| event.more.contains_key("bytes") && !event.more.contains_key(event::LOG_READ_BYTES);
    let is_skipped = case.events_of(event::GAP).any(is_unknown);
    let is_silent =
        ["fatal", "panic"].contains(&case.setting(server.place, "log_min_messages").unwrap_or(""));
    let all: Vec<&Event> = errors(case, server.place).collect();
    !is_unread
        && !is_skipped
        && !is_silent
        && per_second(case, server, &all) < rollbacks_per_s * OF_ROLLBACKS_MAX
}

/// The error with which transactions end most often.
pub(super) struct Usual<'a> {
    first: &'a Event,
    per_s: f64,
    /// Of the rollbacks.
    share: f64,
    /// The log was read in part: the numbers are estimates.
    is_sampled: bool,
    /// Sessions that are active.
    active: f64,
    /// A table of which each second so many dead rows are left by inserts that fail.
    dead: Option<(String, f64)>,
}

/// `None` without errors in the log.
pub(super) fn usual_error<'a>(case: &'a Case, server: &Thing<'a>, rollbacks_per_s: f64) -> Option<Usual<'a>> {
    let mut kinds: BTreeMap<(&str, &str), Vec<&Event>> = BTreeMap::new();
    for error in errors(case, server.place).filter(|event| Case::word_of(event, "severity") == "ERROR") {
        let message = error.message.as_str();
        kinds.entry((Case::word_of(error, "sqlstate"), message)).or_default().push(error);
    }
    let count = |events: &Vec<&Event>| events.iter().map(|event| event.times()).sum::<f64>();
    let most = kinds.values().max_by(|left, right| count(left).total_cmp(&count(right)))?;
    let per_s = per_second(case, server, most).min(rollbacks_per_s.max(f64::MIN_POSITIVE));
    let time = node_time::all(case).iter().find(|time| time.node == server.place);
    let of_errors = count(most) / kinds.values().map(count).sum::<f64>().max(1.0);
    // A log that is read in part, or late, has fewer lines than there are errors: its mixture is known all the same.
    let is_part = times_read(case, server.place) > 1.0 || is_read_late(server, most);
    let of_rollbacks = (per_s / rollbacks_per_s.max(f64::MIN_POSITIVE)).min(1.0);
    Some(Usual {
        first: most.iter().find(|event| !Case::word_of(event, "statement").is_empty()).or(most.first())?,
        per_s,
        share: if is_part && of_rollbacks >= OF_ROLLBACKS_MAX {
            of_rollbacks.max(of_errors)
        } else {
            of_rollbacks
        },
        is_sampled: is_part,
        active: time.map_or(0.0, |time| time.active),
        dead: dead_rows(case, server.place),
    })
}

/// The table in which rows die although none are changed or deleted: each insert that fails leaves one.
fn dead_rows(case: &Case, node: &str) -> Option<(String, f64)> {
    let of_table = |table: Thing<'_>| {
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        let grown = table.lines.last("dead_rows")? - table.lines.first("dead_rows")?;
        let seconds = table.lines.ticks.window().length_us() as f64 / 1e6;
        let per_s = grown / seconds.max(1.0) - rate("rows_updated") - rate("rows_deleted");
        (per_s >= LOST_PER_S_MIN).then(|| (table.lines.word("relation").to_string(), per_s))
    };
    case.at("table", node).filter_map(of_table).max_by(|left, right| left.1.total_cmp(&right.1))
}

/// Keys and rows that a constraint refuses, and what an application does instead of failing.
const REFUSED: [(&str, &str); 4] = [
    (
        "23505",
        "do not insert to find out whether a row is there: INSERT ... ON CONFLICT DO NOTHING (or DO UPDATE) writes no row, no dead row, no error and no line \
            in the log for a key that is there; or leave known keys out before they are sent",
    ),
    (
        "23503",
        "look up the row that is referred to first, or insert in the order of the references; what fails leaves a dead row",
    ),
    (
        "23514",
        "check the values before they are sent: a row that a CHECK constraint refuses costs a transaction",
    ),
    (
        "23502",
        "check the values before they are sent: a row without a value that must be there costs a transaction",
    ),
];
/// For any other error.
const MEND: &str = "find the program that sends it, and mend it or let it pause: what fails is done in vain, and each error is a line in the server's log";

impl Usual<'_> {
    /// Whether most of the rollbacks end with it.
    pub(super) fn is_most(&self) -> bool {
        self.share >= MOST
    }

    /// Whether sessions are busy with what fails.
    pub(super) fn is_costly(&self, share: f64, rollbacks_per_s: f64) -> bool {
        self.is_most()
            && share >= LOST_SHARE_MIN
            && rollbacks_per_s >= LOST_PER_S_MIN
            && (self.active >= BUSY_MIN || self.dead.is_some())
    }

    /// As the end of the claim.
    pub(super) fn words(&self) -> String {
        let state = match Case::word_of(self.first, "sqlstate") {
            "" => String::new(),
            state => format!(" (SQLSTATE {state})"),
        };
        let statement = match Case::word_of(self.first, "statement") {
            "" => String::new(),
            text => format!(": {}", plain(text, STATEMENT_CHARS)),
        };
        let most = if self.is_most() { "most" } else { "some" };
        format!(", {most} with the error: {}{state}{statement}", plain(&self.first.message, ERROR_CHARS))
    }

    /// The numbers of it.
    pub(super) fn described(&self, claim: Claim) -> Claim {
        let how = if self.is_sampled {
            "; the log grows faster than it is read, so the part that was read stands for all of it"
        } else {
            ""
        };
        claim
            .number("errors_per_s", self.per_s)
            .because(format!("the server's log has this error about {} times a second{how}", units::short(self.per_s)))
            .with(self.dead.as_ref(), |claim, (table, per_s)| {
                claim.number("dead_rows_per_s", *per_s).because(format!(
                    "{table} gets {} dead rows a second that no UPDATE or DELETE makes: an insert that fails leaves its row, for vacuum to remove",
                    units::short(*per_s)
                ))
            })
    }

    /// What to do instead.
    pub(super) fn remedy(&self) -> &'static str {
        let state = Case::word_of(self.first, "sqlstate");
        let is_it = |one: &&(&str, &str)| {
            one.0 == state
                || state.is_empty() && one.0 == "23505" && self.first.message.contains("duplicate key")
        };
        REFUSED.iter().find(is_it).map_or(MEND, |one| one.1)
    }
}
