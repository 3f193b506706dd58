//! WAL-07: whole pages in the WAL because checkpoints are frequent, and what begins them (the clock, or a command).

use super::{CHECKPOINT_TIMEOUT_S, severity};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::plain;
use crate::rules::vacuum::is_wal;
use crate::units;
use record::event;
use record::finding::{Level, Severity};

/// Bytes of WAL a second.
const WAL_PER_S_MIN: f64 = 1e6;
/// The share of full page images, by their number and the size of a block.
const PAGES_SHARE_MIN: f64 = 0.6;
/// The share of the session time from which on it is felt.
const SHARE_MIN: f64 = 0.02;
/// Bytes of a block, by default.
pub(super) const BLOCK_BYTES: f64 = 8192.0;
/// Checkpoints of a recording from which on their distance means something.
const CHECKPOINTS_MIN: f64 = 3.0;
/// With less WAL than this share of max_wal_size between two of them, it is not the volume that forces them (WAL-03).
const FORCED_DISTANCE_MIN: f64 = 0.25;
/// Characters of a statement.
pub(super) const STATEMENT_CHARS: usize = 120;
/// Commands that wait for a checkpoint of their own.
const COMMANDS: [&str; 6] =
    ["checkpoint", "create database", "drop database", "base_backup", "pg_backup_start", "pg_start_backup"];

/// Checkpoints of a node, by what began them.
struct Begun<'a> {
    timed: f64,
    requested: f64,
    /// The mean time between two of them.
    every_s: f64,
    /// Statements that ask for one, with their executions.
    commands: Vec<(&'a str, f64)>,
    /// The role that types them, with its application, as far as they are known.
    who: Option<String>,
    /// What the server's log gives as the reason of those that no command of `commands` explains.
    logged: Option<&'a str>,
    /// Whether the volume of the WAL forces them.
    is_by_volume: bool,
}

/// Statements that request a checkpoint.
fn commands<'a>(case: &'a Case, node: &'a str) -> Vec<(&'a str, f64)> {
    let of_one = |statement: crate::case::Thing<'a>| {
        let text = case.query(statement.lines.word("query_id"))?.trim_start();
        let lower = text.to_ascii_lowercase();
        let is_it = COMMANDS.iter().any(|command| {
            lower.starts_with(command) || command.starts_with("pg_") && lower.contains(&format!("{command}("))
        });
        is_it.then(|| (text, statement.lines.sum("calls").unwrap_or(0.0)))
    };
    let mut found: Vec<(&str, f64)> = case.at("statement", node).filter_map(of_one).collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    found
}

fn begun<'a>(case: &'a Case, node: &'a str) -> Option<Begun<'a>> {
    let server = case.one("server", node)?;
    let sum = |field: &str| server.sum(field).unwrap_or(0.0);
    let (timed, requested) = (sum("checkpoints_timed"), sum("checkpoints_requested"));
    let seconds = server.ticks.window().length_us() as f64 / 1e6;
    let of_node = |event: &&event::Event| [node, ""].contains(&Case::word_of(event, "node"));
    let reasons: Vec<&str> = case
        .events_of(event::CHECKPOINT)
        .filter(of_node)
        .map(|event| Case::word_of(event, "reason"))
        .filter(|reason| !reason.is_empty() && *reason != "requested")
        .collect();
    let is_forced = |reason: &&&str| reason.contains("force") && !reason.contains("wal");
    let logged = reasons.iter().filter(is_forced).count() * 2 >= reasons.len().max(1);
    let logged = if logged { reasons.iter().find(is_forced).copied() } else { None };
    let commands = commands(case, node);
    let limit = case.setting(node, "max_wal_size").and_then(units::setting);
    let each = sum("wal_bytes") / (timed + requested).max(1.0);
    let is_far = limit.is_some_and(|limit| each >= limit * FORCED_DISTANCE_MIN);
    let by_log = reasons.iter().filter(|reason| reason.contains("wal")).count() * 2 > reasons.len();
    let is_by_volume = by_log || requested > timed && is_far && commands.is_empty() && logged.is_none();
    let every_s = seconds / (timed + requested).max(1.0);
    let who = who(case, node, &commands);
    Some(Begun { timed, requested, every_s, commands, who, logged, is_by_volume })
}

/// A session that was seen with CHECKPOINT as its last statement.
fn typed<'a>(case: &'a Case, node: &'a str) -> Option<Thing<'a>> {
    case.at("session", node).find(|session| {
        session.lines.word("query").trim_start().to_ascii_lowercase().starts_with("checkpoint")
    })
}

/// Who requests checkpoints: the role and application of a session that was seen with it; else the role that pg_stat_statements counts it for, with its
/// application, if it has only one.
fn who(case: &Case, node: &str, commands: &[(&str, f64)]) -> Option<String> {
    let named = |role: &str, application: &str| match application {
        "" => format!("role {}", plain(role, NAME_CHARS)),
        name => format!("role {} ({})", plain(role, NAME_CHARS), plain(name, NAME_CHARS)),
    };
    if let Some(session) = typed(case, node) {
        return Some(named(session.lines.word("user"), session.lines.word("application")));
    }
    let (text, _) = commands.first()?;
    let mut events =
        case.events_of(event::QUERY).filter(|event| Case::word_of(event, "text").trim_start() == *text);
    let role = events.find_map(|event| Some(Case::word_of(event, "user")).filter(|role| !role.is_empty()))?;
    let groups = case.at("activity", node).chain(case.at("connected", node));
    let mut applications: Vec<&str> = groups
        .filter(|group| group.lines.word("user") == role)
        .map(|group| group.lines.word("application"))
        .collect();
    applications.sort_unstable();
    applications.dedup();
    Some(named(role, if applications.len() == 1 { applications[0] } else { "" }))
}

/// Characters of the name of a role or an application.
const NAME_CHARS: usize = 40;

/// What begins the checkpoints, in words behind "because", and whether it is a command.
fn cause(begun: &Begun<'_>, timeout: &str) -> (String, bool) {
    let every = units::seconds(begun.every_s);
    let is_requested = begun.requested >= begun.timed && begun.requested > 0.0;
    match (begun.commands.first(), begun.logged) {
        (Some((text, _)), _) if is_requested => {
            let who = begun.who.as_ref().map_or(String::new(), |who| format!(" of {who}"));
            (format!("the command {}{who} begins a checkpoint every {every}", plain(text, 40)), true)
        }
        (None, _) if is_requested && begun.who.is_some() => {
            let who = begun.who.clone().unwrap_or_default();
            (format!("the command CHECKPOINT of {who} begins a checkpoint every {every}"), true)
        }
        (None, Some(reason)) if is_requested => (
            format!("a command or a backup begins a checkpoint every {every} (the server's log: {reason})"),
            true,
        ),
        _ if is_requested => (
            format!("something requests a checkpoint every {every}: the command CHECKPOINT, or a backup"),
            true,
        ),
        _ => (format!("a checkpoint begins every {timeout} (checkpoint_timeout)"), false),
    }
}

/// The statement that writes the most whole pages, and its share of them.
pub(super) fn writer<'a>(case: &'a Case, node: &'a str, pages: f64) -> Option<(&'a str, f64)> {
    let counted = case.at("statement", node).filter_map(|statement| {
        let written = statement.lines.sum("wal_fpi").filter(|written| *written > 0.0)?;
        Some((case.query(statement.lines.word("query_id"))?, written / pages.max(1.0)))
    });
    counted.max_by(|left, right| left.1.total_cmp(&right.1))
}

pub(super) fn whole_pages(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(pages), Some(bytes)) = (server.lines.sum("wal_fpi"), server.lines.sum("wal_bytes")) else {
            continue;
        };
        let part = (pages * BLOCK_BYTES / bytes.max(1.0)).min(1.0);
        let per_s = server.lines.rate("wal_bytes").unwrap_or(0.0);
        let (Some(timeout), Some(begun)) =
            (case.setting(server.place, "checkpoint_timeout"), begun(case, server.place))
        else {
            continue;
        };
        let is_short = super::setting_seconds(timeout).is_some_and(|seconds| seconds < CHECKPOINT_TIMEOUT_S);
        let is_often =
            begun.timed + begun.requested >= CHECKPOINTS_MIN && begun.every_s < CHECKPOINT_TIMEOUT_S;
        let is_frequent = is_often || is_short && begun.requested <= begun.timed;
        // Where sessions hardly wait for it, the WAL is only more than it need be: for archives, standbys and disks.
        let known = node_time::share_of(case, server.place, is_wal);
        let is_unknown = begun.is_by_volume || are_compared(case, server.place);
        if !is_frequent || is_unknown || per_s < WAL_PER_S_MIN || part < PAGES_SHARE_MIN {
            continue;
        }
        let share = known.filter(|share| *share >= SHARE_MIN);
        let (cause, is_command) = cause(&begun, timeout);
        let claim = Claim::new(
            match known {
                None => Severity::Medium,
                Some(_) => share.map_or(Severity::Low, severity),
            },
            Level::DiscriminatingCounter,
            format!("{}: {} of the WAL are whole pages, because {cause}", server.place, units::percent(part)),
        )
        .on_node(server.place)
        .during([server.lines.ticks.window()])
        .with(share, |claim, share| claim.number("share", share))
        .number("full_page_share", part)
        .number("wal_bytes_per_s", per_s)
        .number("checkpoints_timed", begun.timed)
        .number("checkpoints_requested", begun.requested)
        .because(format!(
            "{} full page images and {} of WAL: the first change of each page after a checkpoint writes all of it",
            units::count(pages),
            units::bytes(bytes)
        ))
        .with(writer(case, server.place, pages), |claim, (text, share)| {
            claim.because(format!("{} of them are written by one statement; they come from: {}", units::percent(share), plain(text, STATEMENT_CHARS)))
        })
        .lacking("what share of the commit time they cause: the same load with a longer interval shows it");
        claims.push(with_remedy(case, server.place, claim, &begun, is_command));
    }
    Answer::of(claims, || "full page images in the WAL, and what begins checkpoints".to_string())
}

/// Whether records carry images for a comparison on standbys (CFG-01): then their number shows neither checkpoints nor scattered changes.
pub(super) fn are_compared(case: &Case, node: &str) -> bool {
    case.setting(node, "wal_consistency_checking").is_some_and(|value| !value.is_empty())
}

/// Whether three checkpoints or more begin within five minutes each.
pub(super) fn is_frequent(case: &Case, node: &str) -> bool {
    begun(case, node).is_some_and(|begun| {
        begun.timed + begun.requested >= CHECKPOINTS_MIN && begun.every_s < CHECKPOINT_TIMEOUT_S
    })
}

/// What begins them in figures, and what to do.
fn with_remedy(case: &Case, node: &str, claim: Claim, begun: &Begun<'_>, is_command: bool) -> Claim {
    let compress = "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf();";
    let claim = claim.because(format!(
        "{} checkpoints were requested, {} begun by the clock",
        units::short(begun.requested),
        units::short(begun.timed)
    ));
    if !is_command {
        return claim.remedy(
            "make checkpoints rarer: WAL shrinks, recovery after a crash takes longer; compress the pages",
            &["ALTER SYSTEM SET checkpoint_timeout = '15min'; SELECT pg_reload_conf();", compress],
        );
    }
    let mut claim =
        claim.not("max_wal_size: too little WAL is written between two checkpoints to force them");
    for (text, calls) in &begun.commands {
        claim = claim.because(format!("{} was executed {} times", plain(text, 40), units::count(*calls)));
    }
    claim
        .with(typed(case, node), |claim, session| {
            claim.because(format!(
                "session {} of role {} ({}) types it",
                session.name,
                session.lines.word("user"),
                session.lines.word("application")
            ))
        })
        .with((begun.commands.is_empty() && begun.who.is_none()).then_some(()), |claim, ()| {
            claim.lacking("who requests them: pg_stat_statements counts CHECKPOINT only with track_utility")
        })
        .remedy(
            "find the job that requests checkpoints, and take the command out of it: the server makes checkpoints by itself, a backup needs no more than the \
             one that it requests; compress the pages. The first command lists sessions, the second who may do it (PostgreSQL 15)",
            &[
                "SELECT pid, usename, application_name, client_addr, state, left(query, 60) AS query FROM pg_stat_activity \
                 WHERE query ~* '^\\s*checkpoint|backup';",
                "SELECT m.rolname FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member WHERE r.rolname = \
                 'pg_checkpoint' UNION SELECT rolname FROM pg_roles WHERE rolsuper;",
                compress,
            ],
        )
}
