//! TXN-13: statements and sessions that end with one error again and again, by the server's log.

mod ended;
mod holding;
mod known;
mod leaked;
mod locks;
mod reported;
mod wasted;

use super::capacity;
use super::costly::{self, has_not_ended, plain};
use super::member::is_away;
use super::paste::literal;
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use known::{
    AT_ITS_END, CANCELLED, DAMAGED, KNOWN, Known, LOCK_TIMEOUT, NO_PARTITION, OUT_OF_IDS, SHUTDOWN,
    WITHOUT_IDENTITY,
};
use record::event::{self, Event};
use record::finding::{Level, Severity};
use std::collections::BTreeMap;
use wasted::Wasted;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-13",
    title: "statements or sessions end with the same error again and again",
    needs: &[Field("server", "xact_rollback"), Field("server", "xact_commit")],
    limits: "10 of one kind in the server's log, one in 2 s, or two that waste 10 % of the session time; medium where a setting or a missing object explains \
        it, high with 10 % of the transactions, or if the table of locks is full; one damaged block; lines of the server's own processes that mean a fault; \
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
const WORDS_OF_OTHERS: [&str; 11] = [
    "statement timeout",
    "could not serialize access",
    "deadlock detected",
    "too many",
    "remaining connection slots",
    "duplicate key value",
    "the database system is",
    "conflict with recovery",
    "because of crash",
    "autovacuum task",
    // It ends with its leader, which has an error of its own.
    "terminating background worker \"parallel worker\"",
];

/// What the engine of a cluster does with sessions of its own, and others do with theirs.
const BY_REQUEST: &str = "canceling statement due to user request";
/// SQLSTATEs with which a session ends, and its work is lost: a few matter.
const ENDS_SESSION: [&str; 4] = ["57P01", "57P05", "25P03", "25P04"];
/// So few.
const SESSIONS_MIN: f64 = 3.0;

/// That of statements in a transaction that has failed: the error before them is the cause.
const IN_FAILED: &str = "25P02";
/// From this share of them on, another error is their cause.
const OF_FAILED_MIN: f64 = 0.1;

/// Errors of one kind.
struct Kind<'a> {
    first: &'a Event,
    events: Vec<&'a Event>,
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
        let is_of_others = !["shared memory segment", "max_wal_senders", WITHOUT_IDENTITY]
            .iter()
            .any(|words| error.message.contains(words))
            && (OF_OTHERS.contains(&state)
                || WORDS_OF_OTHERS.iter().any(|words| error.message.contains(words)));
        // The engine of a cluster cancels what its sessions do at other nodes when one of them has failed.
        let is_engines = is_spread && error.message.starts_with(BY_REQUEST);
        let is_of_disk = capacity::is_of_full_disk(case, node, &error.message);
        if !is_error
            || !is_of_node
            || is_of_others
            || is_of_disk
            || is_engines
            || is_away(case, node, &error.message)
        {
            continue;
        }
        let kind = format!("{state} {}", kind_of(&error.message));
        let kind =
            kinds.entry(kind).or_insert(Kind { first: error, events: vec![], count: 0.0, refused: 0.0 });
        kind.count += error.times();
        kind.events.push(error);
    }
    with_refused(kinds.into_values().collect())
}

/// The same with what is known of each kind: those for which one setting decides are one kind, however their messages differ.
fn with_known(kinds: Vec<Kind<'_>>) -> Vec<(Kind<'_>, Option<&'static Known>)> {
    let mut found: Vec<(Kind<'_>, Option<&'static Known>)> = vec![];
    for kind in kinds {
        let state = Case::word_of(kind.first, "sqlstate");
        let words = format!("{} {}", kind.first.message, Case::word_of(kind.first, "detail"));
        let known = KNOWN.iter().find(|known| known.fits(state, &words));
        let is_same = |other: &&mut (Kind<'_>, Option<&'static Known>)| {
            known.is_some_and(|one| {
                !one.setting.is_empty() && other.1.is_some_and(|other| std::ptr::eq(one, other))
            })
        };
        match found.iter_mut().find(is_same) {
            Some((same, _)) => {
                same.count += kind.count;
                same.refused += kind.refused;
                same.events.extend(kind.events);
            }
            None => found.push((kind, known)),
        }
    }
    without_misfits(found)
}

/// Prepared statements that are there already, or not there: a pooler has mixed up sessions.
const PREPARED_ELSEWHERE: [&str; 2] = ["42P05", "26000"];
/// What values that are bound to the statement of another client make: they do not fit its types, or are too few or too many.
const MISFITS: [&str; 5] = ["22P02", "22007", "22008", "08P01", "42804"];
/// Of the errors of prepared statements, what such values make at most: a program that sends wrong ones makes them all the time.
const MISFITS_MAX: f64 = 0.25;

/// The same without the values that were not meant for the statement: that of another client ran.
fn without_misfits<'a>(
    mut found: Vec<(Kind<'a>, Option<&'static Known>)>,
) -> Vec<(Kind<'a>, Option<&'static Known>)> {
    let has = |one: &(Kind<'_>, Option<&'static Known>), states: &[&str]| {
        states.contains(&one.1.map_or(Case::word_of(one.0.first, "sqlstate"), |known| known.sqlstate))
    };
    let elsewhere = found.iter().filter(|one| has(one, &PREPARED_ELSEWHERE));
    let most = elsewhere.map(|one| one.0.count).sum::<f64>() * MISFITS_MAX;
    found.retain(|one| !has(one, &MISFITS) || one.0.count > most);
    found
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

/// Whether most of the session time is a statement of which no execution has ended.
fn never_ends(case: &Case, node: &str) -> bool {
    let of_node = crate::node_time::all(case).iter().find(|time| time.node == node);
    let largest = of_node.and_then(|time| time.statements.first());
    largest.is_some_and(|statement| statement.share >= MOST && has_not_ended(case, node, statement))
}

/// Most of the session time.
const MOST: f64 = 0.5;
/// Waiting for a lock for less than this (milliseconds) gives up where another transaction only does its work.
const SHORT_MS: f64 = 1_000.0;
/// The number of a claim whose statements give up so early.
pub(crate) const GIVES_UP_EARLY: &str = "gives_up_early";

/// Whether the table of locks is full.
fn is_of_locks(known: Option<&'static Known>) -> bool {
    known.is_some_and(|known| known.setting == locks::SETTING)
}

fn severity(known: Option<&'static Known>, share: f64, is_short: bool, refused: f64) -> Severity {
    match known {
        Some(_) if share >= SHARE_HIGH || is_short => Severity::High,
        Some(known) if [OUT_OF_IDS, DAMAGED, AT_ITS_END].contains(&known.sqlstate) => Severity::High,
        // Every session that needs a lock at that moment fails, whatever it does.
        Some(_) if is_of_locks(known) => Severity::High,
        Some(_) => Severity::Medium,
        None if share >= SHARE_UNKNOWN => Severity::High,
        None if refused > 0.0 && share >= SHARE_HIGH => Severity::Medium,
        None => Severity::Low,
    }
}

/// The setting of the module that delays the answer to a failed login (contrib/auth_delay).
pub(crate) const AUTH_DELAY: &str = "auth_delay.milliseconds";

/// Whether a login failed for its password.
fn is_password(known: &Known) -> bool {
    known.sqlstate == "28P01"
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
    let kept = case.setting(node, AUTH_DELAY).filter(|_| is_password(known)).map(|delay| {
        format!("; each keeps its place among the connections for {delay} longer ({AUTH_DELAY})")
    });
    let kept = kept.unwrap_or_default();
    format!("{node}: {} times a second: {}{value}{most}{kept}{one}", units::short(per_s), known.what)
}

/// The commands of a kind of error.
fn commands_of(
    case: &Case,
    node: &str,
    known: Option<&'static Known>,
    own: Option<(&str, &str)>,
    first: &Event,
) -> Vec<String> {
    match known {
        _ if is_of_locks(known) => locks::commands(case, node),
        Some(known) if known.sqlstate == NO_PARTITION => partitions(&first.message),
        Some(known) if known.sqlstate == DAMAGED => damaged(&first.message),
        Some(known) if !known.setting.is_empty() && own.is_some() => own_commands(known, own),
        _ => commands(known).into_iter().map(str::to_string).collect(),
    }
}

/// What fails, how often, and what that means.
fn in_a_sentence(
    case: &Case,
    place: &str,
    known: Option<&'static Known>,
    (per_s, count, message): (f64, f64, &str),
    wasted: Option<&Wasted>,
) -> String {
    match (known, wasted) {
        (known, Some(wasted)) => {
            let what = known.map_or(message, |known| known.what);
            format!("{place}: {}: {what}; the statement is {}", wasted.words(count), wasted.statement)
        }
        (Some(known), None) => {
            in_words(case, place, known, own_value(case, place, Some(known)), (per_s, message))
        }
        (None, None) => format!("{place}: {} statements a second fail: {message}", units::short(per_s)),
    }
}

/// The claim about a kind of error that comes so often, on a server with so many transactions a second.
fn of_kind(
    case: &Case,
    server: &Thing<'_>,
    known: Option<&'static Known>,
    (per_s, transactions): (f64, f64),
    kind: &Kind<'_>,
    wasted: Option<&Wasted>,
) -> Claim {
    let Kind { first, count, refused, .. } = kind;
    let (count, refused) = (*count, *refused);
    let state = Case::word_of(first, "sqlstate");
    let share = per_s / transactions.max(per_s);
    let own = own_value(case, server.place, known);
    let is_short = gives_up_early(case, server.place, known, own);
    let is_most = known.is_some_and(|known| known.sqlstate == CANCELLED) && never_ends(case, server.place);
    let severity = severity(known, share, is_short || is_most, refused)
        .max(wasted.map_or(Severity::Note, |wasted| costly::severity(wasted.share)));
    let message = plain(&first.message, ERROR_CHARS);
    let of_locks = if is_of_locks(known) { locks::evidence(case, server.place) } else { vec![] };
    let commands = commands_of(case, server.place, known, own, first);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = in_a_sentence(case, server.place, known, (per_s, count, &message), wasted);
    let text = text + &leaked::by(case, server.place, known);
    let text = text + &holding::by_whom(case, server.place, known, &first.message);
    let text = text + &ended::by_whom(case, server.place, known.map_or("", |known| known.sqlstate));
    let claim = Claim::new(severity, Level::DiscriminatingCounter, text);
    of_locks
        .into_iter()
        .fold(claim, Claim::because)
        .on_node(server.place)
        .during([server.lines.ticks.window()])
        .number("errors_per_s", per_s)
        .number("share_of_transactions", share)
        .with(wasted, |claim, wasted| claim.number("wasted_share", wasted.share.min(1.0)))
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
        for (kind, known) in with_known(kinds(case, server.place)) {
            let count = kind.count;
            let per_s = count / seconds.max(1.0);
            let known = known.map(|known| leaked::or_by_a_client(case, &server, known));
            let ends_session = known.is_some_and(|known| ENDS_SESSION.contains(&known.sqlstate));
            // One block that is damaged is enough.
            let wasted = Wasted::of(case, server.place, &kind);
            let is_often = count >= ERRORS_MIN && per_s >= ERRORS_PER_S_MIN
                || wasted.is_some()
                || known.is_some_and(|known| known.sqlstate == DAMAGED);
            // A server that stops ends all its sessions.
            let is_shutdown = known.is_some_and(|known| known.sqlstate == SHUTDOWN)
                && (is_restarted(case, server.place) || is_engine_busy(case, server.place));
            if is_shutdown || !(is_often || ends_session && count >= SESSIONS_MIN) {
                continue;
            }
            claims.push(of_kind(case, &server, known, (per_s, transactions), &kind, wasted.as_ref()));
        }
        claims.extend(reported::claims(case, &server));
    }
    Answer::of(claims, || "errors in the server's log, by their kinds".to_string())
}

/// The number of a finding about a server without transaction ids for writes.
pub(crate) const IDS_LEFT: &str = "transaction_ids_left";

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

/// Takes back what a role or a database has of a setting, after the look at who has it.
fn own_commands(known: &'static Known, own: Option<(&str, &str)>) -> Vec<String> {
    let mut all: Vec<String> = commands(Some(known)).into_iter().map(str::to_string).collect();
    all.extend(own.map(|(owner, _)| reset_command(owner, known.setting)));
    all
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
