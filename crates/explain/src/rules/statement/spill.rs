//! PLAN-02: statements that spill to temporary files.

use super::scan::explain_it;
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, lowered, plain, severity};
use crate::rules::paste::literal;
use crate::rules::plan::{self, number};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;
use record::watched::FUNCTION_SETTINGS;

/// The number of a finding about a role or database that has less memory than the server gives.
pub(crate) const OWN_LIMIT: &str = "own_limit_bytes";
/// The numbers of a finding that limit what its remedy can save, as parts of its share.
pub(crate) const SAVED_LEAST: &str = "saved_least";
pub(crate) const SAVED_MOST: &str = "saved_most";
/// Bytes a second at which rows are written into files in the page cache and read again, by a slow CPU.
const FILES_PER_S: f64 = 100e6;
/// By how much the files exceed what a sort or hash table needs, so that they hold something else.
const KEPT_TIMES: f64 = 10.0;
/// A number of groups is the planned one with this difference.
const AS_PLANNED: f64 = 0.2;
/// What more memory saves of a statement's time at least, so that it is more than a note.
const SAVED_MUCH: f64 = 0.1;
/// The same where no sample was in the files: what they cost is only computed then, for a slow CPU.
const SAVED_UNSEEN: f64 = 0.3;
/// Of the samples of a statement, those in files below which nothing is certain to be saved.
const IN_FILES_MIN: f64 = 0.05;
/// The share of the time of a statement that spills.
const SPILL_SHARE_MIN: f64 = 0.1;
/// Bytes that it spills per execution.
const SPILL_BYTES_MIN: f64 = 1e6;
/// Bytes of temporary files a second below which they cost little: a fraction of what one session writes.
const SPILL_MUCH_PER_S: f64 = 5e6;
/// Executions of a command that builds something, from which on its memory matters.
const BUILDS_MIN: f64 = 3.0;
/// Below this share of the bytes, statements do not explain the files.
const SPILL_COUNTED_MAX: f64 = 0.5;
/// Files in a recording, so that it is more than one report.
const SPILL_FILES_MIN: f64 = 2.0;
/// A sort or a hash table needs more memory than it takes in a file.
const MEMORY_PER_SPILLED: f64 = 3.0;
/// The plan, which is for unknown values, may ask for so many times more memory than the files of an execution have bytes.
const PLANNED_TIMES_MAX: f64 = 16.0;
/// Looks that saw an index or a table being built.
const BUILDING_SHARE: f64 = 0.25;
/// Of the host's memory, what all active sessions may take for one sort each.
const MEMORY_SHARE_MAX: f64 = 0.25;

/// What to do about a spill.
const SPILL_REMEDY: &str = "let the sort or hash table stay in memory: each sort of each session may take so much, so that all sessions together must fit \
     into the memory; a role or database that sets it wins over the server's file, and its sessions follow when they connect again; or let an index \
     deliver the order";

/// Whether a command that sorts in files by design ran in many of the looks: building an index in parallel always writes files.
fn is_building(case: &Case, time: &NodeTime) -> bool {
    let node = &time.node;
    // Builds that end between two looks are still statements.
    let begins = ["create index", "create unique index", "reindex", "cluster", "alter table"];
    let is_build = |text: &str| begins.iter().any(|begin| lowered(text).starts_with(begin));
    let writes = |one: &StatementTime| one.temp_bytes.is_some_and(|bytes| bytes > 0.0);
    if time.statements.iter().any(|one| is_build(&one.text) && writes(one)) {
        return true;
    }
    let builds = case
        .at("progress", node)
        .filter(|line| ["create_index", "cluster"].contains(&line.lines.word("command")));
    let looks: f64 = builds.map(|line| line.lines.ticks.readings() as f64).sum();
    looks >= case.looks(node, &[case.span]) * BUILDING_SHARE
}

/// The commands that give sorts this memory, from the one that reaches open sessions to the narrowest.
fn more_memory(case: &Case, time: &NodeTime, setting: &str, megabytes: u64, database: &str) -> Vec<String> {
    let host = case.host_of(&time.node).and_then(|host| case.one("host", host));
    let memory = host.and_then(|host| host.last("memory_total_bytes"));
    let fits = |sessions: f64, most: f64| {
        let all = megabytes as f64 * f64::from(1 << 20) * sessions.max(1.0);
        memory.is_none_or(|memory| all <= memory * most)
    };
    // A value for all sessions is one that each of those which are connected may use at the same time.
    let connected = case.one("server", &time.node).and_then(|server| server.max("sessions_total"));
    let mut commands = vec![];
    let sessions = connected.filter(|_| setting == "work_mem").unwrap_or(0.0).max(time.active);
    if fits(sessions, MEMORY_SHARE_MAX) {
        commands.push(format!(
            "ALTER SYSTEM SET {setting} = '{megabytes}MB'; SELECT pg_reload_conf(); -- reaches all open sessions"
        ));
    }
    if !database.is_empty() && fits(time.active, 1.0) {
        commands.push(format!(
            "ALTER DATABASE {} SET {setting} = '{megabytes}MB'; -- for sessions that connect from now on: let the application connect again",
            statement::quoted(database)
        ));
    }
    commands.push(format!(
        "SELECT d.datname, s.setrole::regrole, s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase WHERE \
         s.setconfig::text LIKE '%{setting}%'; -- what wins over the server's setting"
    ));
    commands
}

/// Sessions that have less memory for sorts than the server's setting gives: what their role or database sets for itself, and the command that ends it.
struct OwnLimit {
    bytes: f64,
    words: String,
    command: String,
}

/// Of the roles and databases that were at work, the one with the least memory of its own; `database` and no other, if it is known.
fn own_limit(case: &Case, time: &NodeTime, setting: &str, database: &str) -> Option<OwnLimit> {
    let bytes = |value: &str| units::setting(value).unwrap_or(f64::MAX);
    let server = case.setting(&time.node, setting).map_or(f64::MAX, bytes);
    let less = case
        .own_settings(&time.node, setting)
        .filter(|(owner, value)| bytes(value) < server && case.is_at_work(&time.node, owner, database));
    let (owner, value) = less.min_by(|left, right| bytes(left.1).total_cmp(&bytes(right.1)))?;
    Some(OwnLimit {
        bytes: bytes(value),
        words: format!("{owner} has a {setting} of its own: {value}"),
        command: reset_command(owner, setting),
    })
}

/// The plan's step that needs the most memory needs less than this part of what the server gives.
const OF_SETTING_MAX: f64 = 0.5;

/// Of the session time, what an application must have to be named.
const APPLICATION_MIN: f64 = 0.5;

/// The application that most of the time belongs to.
fn most_active(time: &NodeTime) -> Option<&str> {
    let by = time.by.iter().find(|dimension| dimension.name == "application")?;
    let (name, _) = by.shares.iter().find(|(name, share)| *share >= APPLICATION_MIN && !name.is_empty())?;
    Some(name)
}

/// Sessions whose files are far too small for the server's setting have less by a setting of their own, which no catalog shows. `planned` is what the plan's
/// largest sort or hash table needs.
fn less_in_sessions(case: &Case, time: &NodeTime, bytes: f64, planned: f64) -> Option<String> {
    let given = case.setting(&time.node, "work_mem").and_then(units::setting)?;
    let needed = bytes.max(planned) * MEMORY_PER_SPILLED;
    let who = most_active(time).map_or("the application".to_string(), |name| plain(name, EXPRESSION_CHARS));
    (needed < given * OF_SETTING_MAX).then(|| {
        format!(
            ", which holds that several times, so that the sessions of {who} seem to have a work_mem of their own, lower than the server's: by SET, or by a \
                startup option of their connection string"
        )
    })
}

/// Where the setting of a session comes from.
const IN_SESSION: &str = "SELECT setting, unit, source FROM pg_settings WHERE name = 'work_mem'; -- in a session of that application: source is client \
    (connection string, PGOPTIONS) or session (SET)";

/// The same where a function that the statement calls has less memory of its own.
fn own_of_function(case: &Case, time: &NodeTime, called: &StatementTime, setting: &str) -> Option<OwnLimit> {
    let outer = if called.outer.is_empty() { &called.text } else { &called.outer };
    let names = statement::names(outer);
    let server = case.setting(&time.node, setting).and_then(units::setting)?;
    let mut facts =
        case.facts(FUNCTION_SETTINGS).filter(|fact| fact.node == time.node && names.contains(&fact.name));
    facts.find_map(|fact| {
        let value = fact.value.split(", ").find_map(|one| one.strip_prefix(setting)?.strip_prefix('='))?;
        let bytes = units::setting(value).filter(|bytes| *bytes < server)?;
        Some(OwnLimit {
            bytes,
            words: format!("function {}() has a {setting} of its own: {value}", plain(&fact.name, EXPRESSION_CHARS)),
            command: format!(
                "SELECT format('ALTER FUNCTION %s RESET {setting};', oid::regprocedure) AS command FROM pg_proc WHERE proname = {};",
                literal(&fact.name)
            ),
        })
    })
}

/// Temporary files of a node, where no statistics of statements name who writes them.
fn unnamed_spill(case: &Case, time: &NodeTime) -> Option<Claim> {
    let server = case.one("server", &time.node)?;
    let (bytes, files) = (server.rate("temp_bytes")?, server.rate("temp_files")?);
    let has_statements = case.at("statement", &time.node).next().is_some();
    // COMMIT writes the rows of cursors WITH HOLD: no statement counts them.
    let counted: f64 =
        time.statements.iter().filter_map(|one| Some(one.temp_bytes? * one.calls_per_s?)).sum();
    let is_named = has_statements && counted > bytes * SPILL_COUNTED_MAX;
    if is_named || bytes < SPILL_BYTES_MIN || server.sum("temp_files").unwrap_or(0.0) < SPILL_FILES_MIN {
        return None;
    }
    let each = bytes / files.max(f64::MIN_POSITIVE);
    let megabytes = (each * MEMORY_PER_SPILLED / f64::from(1 << 20)).ceil().max(1.0) as u64;
    let needed = megabytes.next_power_of_two();
    let now = case.setting(&time.node, "work_mem").unwrap_or("unknown");
    let is_building = is_building(case, time);
    let mut commands = vec![
        "ALTER SYSTEM SET log_temp_files = 0; SELECT pg_reload_conf(); -- names the statements in the log"
            .to_string(),
    ];
    let own = own_limit(case, time, "work_mem", "");
    match &own {
        Some(own) => commands.push(own.command.clone()),
        None => commands.extend(more_memory(case, time, "work_mem", needed, "")),
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let waits = node_time::share_waiting(case, &time.node, |kind, event| {
        kind == "IO" && event.to_ascii_lowercase().starts_with("buffile")
    });
    Some(
        Claim::new(
            if is_building || bytes < SPILL_MUCH_PER_S { Severity::Low } else { Severity::Medium },
            Level::CoOccurrence,
            format!(
                "{}: statements write {} of temporary files a second, {} each (work_mem {now}{})",
                time.node,
                units::bytes(bytes),
                units::bytes(each),
                own.as_ref().map_or(String::new(), |own| format!(", but {}", own.words))
            ),
        )
        .on_node(&time.node)
        .during(server.series("temp_bytes").map(|series| series.window()))
        .number("temp_bytes_per_s", bytes)
        .number("temp_bytes_per_file", each)
        .because(format!("pg_stat_database counts {} temporary files a second", units::short(files)))
        .with(waits, |claim, share| claim.because(format!("{} of the session time is reading and writing them", units::percent(share))))
        .with(has_statements.then_some(()), |claim, ()| {
            claim.because(format!(
                "statements count only {} of it a second: the rest is written at COMMIT by cursors WITH HOLD, or by statements that did not end",
                units::bytes(counted)
            ))
        })
        .lacking(match has_statements {
            true => "which statement: log_temp_files = 0 names each in the server's log",
            false => "which statement: pg_stat_statements is not there; log_temp_files = 0 names each in the server's log",
        })
        .because("a hash join writes a file for each of its batches, and each process of a parallel statement files of its own: where these write, one file \
            is a part of what has to fit, and work_mem must be larger")
        .with(is_building.then_some(()), |claim, ()| {
            claim.because("an index or a table is built meanwhile: this sorts in files by design, and may be all of it")
        })
        .remedy(SPILL_REMEDY, &commands),
    )
}

/// Characters of an expression in a claim.
const EXPRESSION_CHARS: usize = 100;

/// The step of a plan that needs the most memory.
struct Step {
    words: String,
    /// Of its rows, as planned.
    bytes: f64,
    /// Whether there may be far more than planned: groups of which only those that do not fit are written, and which are not the rows that are returned.
    may_be_more: bool,
}

fn in_files(planned: &plan::Planned<'_>) -> Option<Step> {
    let is_hash = |node: &Thing<'_>| node.lines.word("kind") == "Hash";
    let wants = |node: &Thing<'_>| {
        let by_key = matches!(node.lines.word("kind"), "Sort" | "Aggregate")
            && !node.lines.word("condition").is_empty();
        (by_key || is_hash(node)).then(|| number(node, "rows_planned") * number(node, "width_bytes"))
    };
    let largest = planned.nodes.iter().filter_map(|node| Some((wants(node)?, node)));
    let (bytes, node) = largest.max_by(|left, right| left.0.total_cmp(&right.0))?;
    let written = planned.statement.temp_bytes.unwrap_or(0.0);
    let kept = planned.nodes.iter().find(|node| node.lines.word("kind") == "CTE Scan");
    if kept.is_some() && bytes * KEPT_TIMES < written {
        let words = "it keeps the rows of WITH, which is computed as a whole".to_string();
        return Some(Step { words, bytes: written, may_be_more: true });
    }
    let shown = units::count(number(node, "rows_planned"));
    let above = planned.nodes.iter().find(|one| number(one, "number") == number(node, "above"));
    let condition = if is_hash(node) { above? } else { node }.lines.word("condition");
    let condition = plain(condition, EXPRESSION_CHARS);
    let words = match node.lines.word("kind") {
        "Sort" => format!("it sorts, as planned, {shown} rows by {condition}"),
        "Hash" => format!("it hashes, as planned, {shown} rows to join them by {condition}"),
        _ => format!("it groups, as planned, into {shown} groups by {condition}"),
    };
    let rows = number(node, "rows_planned");
    let is_returned =
        planned.statement.rows.is_some_and(|returned| (returned - rows).abs() <= rows * AS_PLANNED);
    Some(Step { words, bytes, may_be_more: node.lines.word("kind") == "Aggregate" && !is_returned })
}

/// What more memory can save of the time of a statement, at least and at most: the rows are sorted or hashed all the same, and only the files are saved.
fn saved(statement: &StatementTime, bytes: f64) -> (f64, f64) {
    let in_files = |event: &str| event.to_ascii_lowercase().starts_with("io:buffile");
    let seen: f64 =
        statement.events.iter().filter(|(event, _)| in_files(event)).map(|(_, share)| share).sum();
    let copied = statement.mean_ms.map_or(1.0, |ms| bytes / FILES_PER_S * 1e3 / ms.max(f64::MIN_POSITIVE));
    (if seen < IN_FILES_MIN { 0.0 } else { seen }, (seen + copied).min(1.0))
}

pub(super) fn spill(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        claims.extend(time.statements.iter().filter_map(|statement| of_statement(case, time, statement)));
        claims.extend(unnamed_spill(case, time));
    }
    Answer::of(claims, || "temporary files of the statements that take the time".to_string())
}

fn of_statement(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let bytes = statement.temp_bytes.unwrap_or(0.0);
    let verb = statement.text.split_whitespace().next().unwrap_or("").to_ascii_lowercase();
    let is_build = ["create", "reindex", "alter", "cluster"].contains(&verb.as_str());
    // What runs once does its work in files, and a COPY does not sort.
    let runs = statement.calls_per_s.unwrap_or(0.0) * time.seconds;
    let is_once = (is_build || verb == "vacuum") && runs < BUILDS_MIN || verb == "copy";
    // Decoded changes are kept in files, whatever work_mem is (REP-14, CFG-01).
    let is_decoding = statement.text.contains("pg_logical_slot_");
    let setting = if is_build { "maintenance_work_mem" } else { "work_mem" };
    let own = own_limit(case, time, setting, &statement.database);
    // Who has little memory of his own writes small files.
    let own = own.or_else(|| own_of_function(case, time, statement, setting));
    let least = own.as_ref().map_or(SPILL_BYTES_MIN, |own| SPILL_BYTES_MIN.min(own.bytes));
    // Processes that build an index together exchange their part in files, however much memory they have.
    let has_room = is_build
        && case.setting(&time.node, setting).and_then(units::setting).is_some_and(|room| bytes < room);
    if statement.share < SPILL_SHARE_MIN || bytes < least || is_once || is_decoding || has_room {
        return None;
    }
    let planned = plan::plan_of(case, time, statement);
    // The files of all processes of a statement are counted together. What stayed in memory is in the plan alone.
    let by_plan = planned.as_ref().filter(|_| !is_build).and_then(|planned| plan::work_mem_of(case, planned));
    let memory = (bytes * MEMORY_PER_SPILLED).max(by_plan.unwrap_or(0.0).min(bytes * PLANNED_TIMES_MAX));
    let megabytes = (memory / f64::from(1 << 20)).ceil().max(1.0) as u64;
    let needed = megabytes.next_power_of_two();
    let now = case.setting(&time.node, setting).unwrap_or("unknown");
    let step = planned.and_then(|planned| in_files(&planned));
    let less = step
        .as_ref()
        .filter(|step| own.is_none() && !is_build && !step.may_be_more)
        .and_then(|step| less_in_sessions(case, time, bytes, step.bytes));
    let (saved_least, saved_most) = saved(statement, bytes);
    let is_little = saved_most < SAVED_MUCH || saved_least <= 0.0 && saved_most < SAVED_UNSEEN;
    let severity = if is_little { Severity::Low } else { severity(statement.share) };
    let mut commands: Vec<String> = own.iter().map(|own| own.command.clone()).collect();
    match less {
        Some(_) => commands.push(IN_SESSION.to_string()),
        // What is set there wins over the server's value: no other command would reach those sessions.
        None if own.is_some() => {}
        None => commands.extend(more_memory(case, time, setting, needed, &statement.database)),
    }
    commands.push(explain_it(case, &time.node, statement));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Some(
        Claim::new(
            severity,
            Level::CoOccurrence,
            format!(
                "{}: a statement that takes {} of the session time writes {} of temporary files per execution ({setting} {now}{}){}",
                time.node,
                units::percent(statement.share),
                units::bytes(bytes),
                less.unwrap_or_else(|| own.as_ref().map_or(String::new(), |own| format!(", but {}", own.words))),
                step.map_or(String::new(), |step| format!(": {}", step.words))
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .number("temp_bytes_per_call", bytes)
        .number(SAVED_LEAST, saved_least)
        .number(SAVED_MOST, saved_most)
        .with(own.as_ref(), |claim, own| claim.number(OWN_LIMIT, own.bytes))
        .because(format!("the statement: {}", in_a_line(statement)))
        .lacking("the time of the files alone: EXPLAIN (ANALYZE, BUFFERS) shows it with track_io_timing")
        .remedy(SPILL_REMEDY, &commands),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_saves_the_files_and_not_the_sort() {
        let of = |ms: f64, in_files: f64| StatementTime {
            mean_ms: Some(ms),
            events: vec![("CPU".to_string(), 1.0 - in_files), ("IO:BuffileRead".to_string(), in_files)],
            ..StatementTime::default()
        };
        // 10 MB of files in 400 ms, in which sessions hardly wait for them.
        let (least, most) = saved(&of(400.0, 0.02), 10e6);
        assert!(least == 0.0 && (most - 0.27).abs() < 1e-9, "{least} {most}");
        // A disk that is slow is most of the time.
        let (least, most) = saved(&of(4_000.0, 0.8), 10e6);
        assert!((least - 0.8).abs() < 1e-9 && most < 0.9, "{least} {most}");
    }
}
