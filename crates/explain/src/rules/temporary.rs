//! PLAN, MEM, TXN: temporary tables that nothing analyses or that do not fit into the buffers of their session, and transactions that are committed in two
//! phases. Both are seen only in the texts of statements: views of the server show nothing of other sessions' temporary tables.

use super::costly::{busy, in_a_line, parts_of, plain, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement;
use record::watched::TEMPORARY;
use std::collections::{BTreeSet, HashMap};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-47",
        title: "temporary tables are joined, and nothing analyses them",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in a join of temporary tables that takes 10 ms or more, of which no ANALYZE was seen (ours)",
        judge: unanalysed,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-STATISTICS"],
    },
    Rule {
        id: "MEM-07",
        title: "temporary tables do not fit into temp_buffers",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in statements on temporary tables that touch no shared block, and a tenth of their samples reads or writes files of \
            tables (ours)",
        judge: unbuffered,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-TEMP-BUFFERS"],
    },
    Rule {
        id: "VAC-17",
        title: "a temporary table is full of dead rows, which no autovacuum removes",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in statements that name a temporary table with 10,000 dead rows or more, five for each live one, as far as the \
            blocks that they read are its own (ours)",
        judge: dead,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"],
    },
    Rule {
        id: "TXN-10",
        title: "transactions are committed in two phases",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in PREPARE TRANSACTION and COMMIT PREPARED (ours)",
        judge: in_two_phases,
        links: &["https://www.postgresql.org/docs/current/sql-prepare-transaction.html"],
    },
];

/// The share of the session time.
const SHARE_MIN: f64 = 0.2;
/// Time of a join: what is shorter is planned well enough.
const MEAN_MS_MIN: f64 = 10.0;
/// Of the samples of a statement.
const FILES_SHARE_MIN: f64 = 0.1;
/// Shared blocks of an execution that reads only temporary tables: those of the catalogs.
const SHARED_BLOCKS_MAX: f64 = 50.0;
/// First words of the two commands, in lower case.
const PHASES: [&str; 2] = ["prepare transaction", "commit prepared"];

/// The beginning of a text in lower case, its blanks unified.
fn beginning(text: &str) -> String {
    let words: Vec<&str> = text.split_ascii_whitespace().take(12).collect();
    words.join(" ").to_lowercase()
}

/// Texts of all statements that were recorded.
fn texts(case: &Case) -> impl Iterator<Item = &str> {
    case.events_of(record::event::QUERY).map(|event| Case::word_of(event, "text"))
}

/// The name in `CREATE TEMP TABLE name`, without its schema.
fn made(text: &str) -> Option<String> {
    let start = beginning(text);
    let kinds = [
        "create temp table ",
        "create temporary table ",
        "create local temp table ",
        "create local temporary table ",
    ];
    let rest = kinds.iter().find_map(|kind| start.strip_prefix(kind))?;
    let rest = rest.strip_prefix("if not exists ").unwrap_or(rest);
    let name = rest.split([' ', '(']).next()?.rsplit('.').next()?.trim_matches('"');
    (!name.is_empty()).then(|| name.to_string())
}

/// Temporary tables that statements of the recording create, or name.
fn temporary(case: &Case) -> BTreeSet<String> {
    let known = case.facts(TEMPORARY).map(|fact| parts_of(&fact.name).1.to_lowercase());
    texts(case).filter_map(made).chain(known).collect()
}

/// Dead rows of a temporary table, and those for each live one.
const DEAD_MIN: f64 = 10_000.0;
const DEAD_PER_LIVE_MIN: f64 = 5.0;

/// Bytes of a row at least: its header, and an item of the page.
const ROW_BYTES_MIN: f64 = 28.0;

/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

/// Live and dead rows, as the record has them: no more than the file has room for, and the bytes of the file.
fn rows_of(value: &str) -> Option<(f64, f64, f64)> {
    let mut parts = value.split(' ').map(str::parse::<f64>);
    let (live, dead, bytes) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    // TRUNCATE, also that of ON COMMIT DELETE ROWS, leaves the counters as they are.
    Some((live, dead.min(bytes / ROW_BYTES_MIN), bytes))
}

/// The part of what a statement reads that is the temporary table: its own blocks, which `shared_buffers` does not count, and those that it counts.
fn part_of(statement: &StatementTime, bytes: f64) -> f64 {
    let own = bytes / BLOCK_BYTES;
    statement.blocks.map_or(1.0, |shared| own / (own + shared).max(1.0))
}

/// VAC-17.
fn dead(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let full = case.facts(TEMPORARY).filter(|fact| fact.node == time.node).filter_map(|fact| {
            let (live, dead, bytes) = rows_of(&fact.value)?;
            let name = parts_of(&fact.name).1;
            // A statement of other sessions may mean the table that is not temporary.
            if case.at("table", &time.node).any(|table| parts_of(table.lines.word("relation")).1 == name) {
                return None;
            }
            let reads = |one: &&StatementTime| {
                statement::parse(&one.text)
                    .is_ok_and(|parsed| parsed.tables.iter().any(|table| table.name == name))
            };
            // Of a statement that reads a large table beside it, the time goes there.
            let of_it = |one: &StatementTime| one.share * part_of(one, bytes);
            let share: f64 = time.statements.iter().filter(reads).map(of_it).sum();
            let first = time.statements.iter().find(reads)?;
            let is_full = dead >= DEAD_MIN && dead >= live * DEAD_PER_LIVE_MIN && share >= SHARE_MIN;
            is_full.then_some((name, live, dead, share.min(1.0), first))
        });
        let Some((name, live, dead, share, first)) = full.max_by(|left, right| left.2.total_cmp(&right.2))
        else {
            continue;
        };
        let quoted = statement::quoted(&name);
        let text = format!(
            "{}: {} of the session time is in statements on the temporary table {}, which has {} dead rows for {} live ones: autovacuum cannot reach temporary \
             tables, so that nothing removes what its session deletes or updates, and each scan reads it",
            time.node,
            units::percent(share),
            plain(&name, NAME_CHARS),
            units::count(dead),
            units::count(live)
        );
        claims.push(
            Claim::new(severity(share), Level::DiscriminatingCounter, text)
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", share)
                .number("dead_rows", dead)
                .number("live_rows", live)
                .because(format!("the statement with most of the time: {}", in_a_line(first)))
                .because("the rows are those of the last look at the table; only its own session can vacuum it")
                .remedy(
                    "let the session vacuum it from time to time, outside of a transaction; or empty it with TRUNCATE and fill it anew, or use an unlogged \
                     table, which autovacuum reaches",
                    &[&format!("VACUUM ANALYZE {quoted}; -- in the session that has made it")],
                ),
        );
    }
    Answer::of(claims, || "dead rows of temporary tables".to_string())
}

/// Characters of a name in a claim.
const NAME_CHARS: usize = 80;

/// The temporary tables that a statement reads.
fn read_by(statement: &StatementTime, temporary: &BTreeSet<String>) -> Vec<String> {
    let parsed = statement::parse(&statement.text).ok();
    let tables = parsed.map(|parsed| parsed.tables).unwrap_or_default();
    tables
        .into_iter()
        .map(|table| table.name)
        .filter(|name| temporary.contains(&name.to_lowercase()))
        .collect()
}

/// A claim about a statement, with what all of these have.
fn claim(time: &NodeTime, statement: &StatementTime, case: &Case, text: String) -> Claim {
    Claim::new(severity(statement.share), Level::CoOccurrence, format!("{}: {text}", time.node))
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .because(format!("the statement: {}", in_a_line(statement)))
}

fn unanalysed(case: &Case) -> Answer {
    let temporary = temporary(case);
    let analysed = |name: &String| {
        texts(case).any(|text| {
            let start = beginning(text);
            start.starts_with("analyze") && start.contains(name.to_lowercase().as_str())
        })
    };
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let mut tables = read_by(statement, &temporary);
            let is_join = statement::parse(&statement.text).is_ok_and(|parsed| parsed.tables.len() > 1);
            tables.retain(|name| !analysed(name));
            tables.dedup();
            if tables.is_empty() || !is_join || statement.mean_ms.is_some_and(|ms| ms < MEAN_MS_MIN) {
                continue;
            }
            let named = tables.join(" and ");
            let text = format!(
                "{} of the session time is a join of temporary tables that were never analysed ({named}): the planner guesses how many rows they have",
                units::percent(statement.share)
            );
            let commands: Vec<String> = tables
                .iter()
                .map(|name| {
                    format!(
                        "ANALYZE {}; -- in the session that filled it, before the join",
                        statement::quoted(name)
                    )
                })
                .collect();
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            claims.push(
                claim(time, statement, case, text)
                    .because("autovacuum cannot analyse a temporary table: only its own session sees it")
                    .lacking("its plan, which only its own session can show: auto_explain, or EXPLAIN (ANALYZE) there")
                    .remedy("analyse the tables once they are filled", &commands),
            );
        }
    }
    Answer::of(claims, || "joins of temporary tables, and ANALYZE of them".to_string())
}

fn unbuffered(case: &Case) -> Answer {
    let temporary = temporary(case);
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let tables = read_by(statement, &temporary);
            let is_file = |event: &&(String, f64)| event.0.starts_with("IO:DataFile");
            let files: f64 = statement.events.iter().filter(is_file).map(|(_, share)| share).sum();
            let is_shared = statement.blocks.is_some_and(|blocks| blocks > SHARED_BLOCKS_MAX);
            if tables.is_empty() || is_shared || files < FILES_SHARE_MIN {
                continue;
            }
            let most = case.setting(&time.node, "temp_buffers").unwrap_or("8MB");
            let text = format!(
                "{} of the session time is a statement on temporary table {} that does not fit into temp_buffers of {most}: its blocks are read again and \
                    again",
                units::percent(statement.share),
                tables[0]
            );
            claims.push(
                claim(time, statement, case, text)
                    .because(format!("{} of its samples read or write files of tables", units::percent(files)))
                    .with(statement.blocks, |claim, blocks| {
                        claim.because(format!("it touches {} blocks in shared_buffers: what it reads is its own", units::short(blocks)))
                    })
                    .remedy(
                        "give sessions with large temporary tables more buffers for them, before they use the first one; each session takes as much",
                        &["SET temp_buffers = '256MB'; -- in the session, before its first temporary table"],
                    ),
            );
        }
    }
    Answer::of(claims, || "statements on temporary tables, and what they wait for".to_string())
}

fn in_two_phases(case: &Case) -> Answer {
    let is_phase = |text: &str| PHASES.iter().any(|words| beginning(text).starts_with(words));
    let known: HashMap<&str, &str> = case
        .events_of(record::event::QUERY)
        .map(|event| (Case::word_of(event, "query_id"), Case::word_of(event, "text")))
        .filter(|(_, text)| is_phase(text))
        .collect();
    let mut claims = vec![];
    for time in busy(case) {
        // Before PostgreSQL 17 each name of a transaction is a statement of its own, too small for the list of the largest.
        let counted_s: f64 = case
            .at("statement", &time.node)
            .filter(|statement| known.contains_key(statement.lines.word("query_id")))
            .filter_map(|statement| statement.lines.rate("total_ms"))
            .sum::<f64>()
            / 1e3;
        let sampled: f64 = time
            .statements
            .iter()
            .filter(|one| !one.is_counted && is_phase(&one.text))
            .map(|one| one.sessions)
            .sum();
        let share = (counted_s.max(sampled) / time.active.max(f64::MIN_POSITIVE)).min(1.0);
        if share < SHARE_MIN {
            continue;
        }
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: {} of the session time is two-phase commit: PREPARE TRANSACTION and COMMIT PREPARED each wait until their WAL is on the disk",
                    time.node,
                    units::percent(share)
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .with(known.values().next(), |claim, text| claim.because(format!("for example: {}", super::costly::plain(text, 80))))
            .with(case.one("server", &time.node).and_then(|server| server.mean("prepared_xacts")), |claim, count| {
                claim.because(format!("{} transactions are prepared at any time", units::short(count)))
            })
            .remedy(
                "commit in one phase where a transaction changes only this server (an engine that spreads its rows needs both phases): the transaction \
                    manager of the application (XA) has a setting for it",
                &["SELECT gid, owner, database, prepared FROM pg_prepared_xacts ORDER BY prepared; -- who prepares"],
            ),
        );
    }
    Answer::of(claims, || "PREPARE TRANSACTION and COMMIT PREPARED among the statements".to_string())
}
