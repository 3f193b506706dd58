//! TXN-21: databases that are made and dropped all the time, as for each test or each tenant of a trial. The symptoms are the server's: checkpoints, WAL,
//! and pages that are read and written again.

use super::costly::{plain, severity};
use super::executor::{application_of, by, role_of};
use super::vacuum::is_wal;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::remedy::release;
use crate::rule::Need::{Any, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-21",
    title: "databases are made and dropped all the time",
    needs: &[Any(&[Field("statement", "calls"), Looked("wait")]), Field("server", "sessions_active")],
    limits: "CREATE DATABASE three times, once in 30 s or more often; medium or high by the session time that it takes, and by that which waits for \
        the WAL and \
        for files, where most checkpoints or a third of the WAL are due to it; else low (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-createdatabase.html"],
}];

/// Executions, and how many of them a second.
const CALLS_MIN: f64 = 3.0;
const CALLS_PER_S_MIN: f64 = 1.0 / 30.0;
/// Of the requested checkpoints, and of the WAL.
const OF_CHECKPOINTS_MIN: f64 = 0.5;
const OF_WAL_MIN: f64 = 0.3;
/// The share of the session time.
const SHARE_MIN: f64 = 0.1;
/// The release from which on a database is copied through the WAL unless its command wants something else.
const THROUGH_WAL_SINCE: u64 = 15;
/// Checkpoints of a copy of files: one before it and one behind it. Dropping takes one.
const OF_COPY: f64 = 2.0;
/// Characters of a text.
const STATEMENT_CHARS: usize = 120;

/// Commands of one kind.
#[derive(Default)]
struct Commands<'a> {
    text: &'a str,
    calls: f64,
    total_ms: f64,
    wal_bytes: f64,
    /// The share of the session time.
    share: f64,
    /// The role that has executed them.
    role: &'a str,
}

/// Whether a text begins with two words.
fn begins(text: &str, first: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut is = |wanted: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    is(first) && is("database")
}

/// What the server counted of them: each text is a statement of its own, and names differ.
fn commands<'a>(case: &'a Case, time: &'a NodeTime, first: &str) -> Commands<'a> {
    let mut all = Commands::default();
    for statement in case.at("statement", &time.node) {
        let id = statement.lines.word("query_id");
        let Some(text) = case.query(id).filter(|text| begins(text, first)) else { continue };
        let sum = |field: &str| statement.lines.sum(field).unwrap_or(0.0);
        all.text = text;
        all.calls += sum("calls");
        all.total_ms += sum("total_ms");
        all.wal_bytes += sum("wal_bytes");
        let role = role_of(case, &time.node, id);
        if !role.is_empty() {
            all.role = role;
        }
    }
    all.share = time.statements.iter().filter(|one| begins(&one.text, first)).map(|one| one.share).sum();
    all
}

/// The application of the only sessions of a role that are connected, or of the session that was seen at it.
fn application<'a>(case: &'a Case, node: &'a str, role: &str) -> Option<&'a str> {
    let at_it = |session: &Thing<'_>| {
        ["create", "drop"].iter().any(|first| begins(session.lines.word("query"), first))
    };
    if let Some(session) = case.at("session", node).find(at_it) {
        return Some(session.lines.word("application"));
    }
    application_of(case, node, role)
}

/// Whether the files of the template are copied, and not its pages written through the WAL.
fn copies_files(case: &Case, node: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    if text.contains("strategy") {
        return text.contains("file_copy");
    }
    release(case, node).is_some_and(|release| release < THROUGH_WAL_SINCE)
}

fn judge(case: &Case) -> Answer {
    let claims = node_time::all(case).iter().filter_map(|time| of_node(case, time)).collect();
    Answer::of(claims, || "commands that make and drop databases".to_string())
}

/// What the server does for them beside.
struct Beside {
    checkpoints: f64,
    /// Those of them that the commands request, at most.
    of_checkpoints: f64,
    of_wal: f64,
    /// The session time that waits for the WAL and for files.
    waiting: f64,
}

fn beside(
    case: &Case,
    node: &str,
    made: &Commands<'_>,
    dropped: &Commands<'_>,
    copies: bool,
) -> Option<Beside> {
    let server = case.one("server", node)?;
    let sum = |field: &str| server.sum(field).unwrap_or(0.0);
    let checkpoints = sum("checkpoints_requested");
    let due = dropped.calls + if copies { made.calls * OF_COPY } else { 0.0 };
    let waiting = node_time::share_of(case, node, |kind, event| kind == "IO" || is_wal(kind, event));
    Some(Beside {
        checkpoints,
        of_checkpoints: due.min(checkpoints) / (checkpoints + sum("checkpoints_timed")).max(1.0),
        of_wal: (made.wal_bytes / sum("wal_bytes").max(1.0)).min(1.0),
        waiting: waiting.unwrap_or(0.0),
    })
}

fn of_node(case: &Case, time: &NodeTime) -> Option<Claim> {
    let node = time.node.as_str();
    let server = case.one("server", node)?;
    let seconds = server.ticks.window().length_us() as f64 / 1e6;
    let (made, dropped) = (commands(case, time, "create"), commands(case, time, "drop"));
    if made.calls < CALLS_MIN || made.calls / seconds.max(1.0) < CALLS_PER_S_MIN {
        return None;
    }
    let copies = copies_files(case, node, made.text);
    let Beside { checkpoints, of_checkpoints, of_wal, waiting } =
        beside(case, node, &made, &dropped, copies)?;
    let own = made.share + dropped.share;
    let is_felt = of_checkpoints >= OF_CHECKPOINTS_MIN || of_wal >= OF_WAL_MIN;
    let share = (own + if is_felt { waiting } else { 0.0 }).min(1.0);
    let how = match copies {
        true => "a checkpoint is written before the template's files are copied, and another one behind that",
        false => "every page of the template is read and written through the WAL",
    };
    let role = if made.role.is_empty() { dropped.role } else { made.role };
    let claim = Claim::new(
        if share >= SHARE_MIN { severity(share) } else { Severity::Low },
        Level::DiscriminatingCounter,
        format!(
            "{node}: databases are made all the time{}: {} in {}, {} each: {how}; {} were dropped, each with a checkpoint, and sessions spend {} of their \
                time in these commands, in the WAL and with files",
            by(role, application(case, node, role)),
            units::count(made.calls),
            units::seconds(seconds),
            units::us(made.total_ms / made.calls * 1e3),
            units::count(dropped.calls),
            units::percent(share)
        ),
    )
    .on_node(node)
    .during([server.ticks.window()])
    .number("share", share)
    .number("databases_made", made.calls)
    .number("databases_dropped", dropped.calls)
    .number("checkpoints_requested", checkpoints)
    .number("wal_share_of_commands", of_wal)
    .because(format!("the command: {}", plain(made.text, STATEMENT_CHARS)))
    .because(format!(
        "{} checkpoints were requested in this time, and {} of the WAL was written by CREATE DATABASE",
        units::count(checkpoints),
        units::percent(of_wal)
    ))
    .because("after each checkpoint the first change of a page writes all of it into the WAL, also for sessions that have nothing to do with these databases")
    .lacking("how long the others take without: leave the job out for some minutes");
    Some(claim.remedy(
        "give each test a schema, or a transaction that is rolled back, in one database that stays; or keep some databases ready and empty them. A small \
            template costs less; STRATEGY = file_copy is for templates of gigabytes, because of its checkpoints",
        &[
            "SELECT datname, pg_size_pretty(pg_database_size(oid)) AS size, datistemplate FROM pg_database ORDER BY pg_database_size(oid) DESC;",
            "SELECT usename, application_name, client_addr, state, left(query, 60) AS query FROM pg_stat_activity WHERE query ~* '^ *(create|drop) +database';",
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::begins;

    #[test]
    fn a_command_is_known_by_its_words() {
        assert!(begins("  create   DATABASE t1 template base", "create"));
        assert!(!begins("create table database", "create") && !begins("DROP DATABASE t1", "create"));
    }
}
