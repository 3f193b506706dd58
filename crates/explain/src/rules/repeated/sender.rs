//! EXT-02 by the sender: a statement that writes a foreign table, by its plan.

use crate::case::Case;
use crate::rule::Claim;
use crate::rules::costly::{in_a_line, in_extension, plain, severity};
use crate::rules::paste::literal;
use crate::rules::plan::{self, Planned};
use crate::units;
use record::finding::Level;
use record::statement::{self, Verb};

/// Of a statement's samples, those in waits for the other server.
const WAITS_MIN: f64 = 0.3;
/// Rows that an execution writes: fewer have few round trips.
const ROWS_MIN: f64 = 20.0;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 90;

/// The statements of a case that send rows one by one.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    plan::planned(case, super::SHARE_MIN).filter_map(|planned| claim(case, &planned)).collect()
}

fn claim(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let one = planned.statement;
    let rows = one.rows.filter(|rows| *rows >= ROWS_MIN)?;
    let waits = in_extension(one);
    let written = planned
        .nodes
        .iter()
        .find(|node| node.lines.word("kind") == "ModifyTable" && !node.lines.word("remote").is_empty())?;
    let remote = written.lines.word("remote");
    let verb = statement::parse(remote).ok()?.verb;
    let batch = written.lines.last("batch_size");
    // Rows of an UPDATE or DELETE that are found there are no nodes of this side: what is here changes each row that it has fetched.
    let is_one_by_one = verb != Verb::Insert || batch.is_none_or(|batch| batch <= 1.0);
    if waits < WAITS_MIN || !is_one_by_one {
        return None;
    }
    let (relation, server) = (written.lines.word("relation"), written.lines.word("foreign_server"));
    let (text, commands) = remedy(verb, relation);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let level = if batch.is_some() { Level::DiscriminatingCounter } else { Level::CoOccurrence };
    let claim = Claim::new(
        severity(one.share),
        level,
        format!(
            "{}: a statement that takes {} of the session time sends {} rows for each execution to {relation} at server {} one by one, each with a round \
             trip of its own{}: {}",
            planned.time.node,
            units::percent(one.share),
            units::short(rows),
            plain(server, STATEMENT_CHARS),
            if batch.is_some() { " (batch_size is 1)" } else { "" },
            plain(&one.text, STATEMENT_CHARS)
        ),
    );
    let claim = claim
        .on_node(&planned.time.node)
        .during(case.one("server", &planned.time.node).map(|server| server.ticks.window()))
        .number("share", one.share)
        .number("rows", rows)
        .because(format!("the statement: {}", in_a_line(one)))
        .because(format!(
            "what is sent for each row: {}; its sessions wait for the other server in {} of their samples",
            plain(remote, STATEMENT_CHARS),
            units::percent(waits.min(1.0))
        ))
        .because("the option batch_size of a foreign server or table is 1 by default")
        .because(planned.file());
    let claim = if batch.is_none() && verb == Verb::Insert {
        claim.lacking("batch_size of the foreign table, which the recorded plan does not have")
    } else {
        claim
    };
    Some(claim.remedy(text, &commands))
}

/// What sends the rows together, and the commands.
fn remedy(verb: Verb, relation: &str) -> (&'static str, Vec<String>) {
    let option = format!(
        "ALTER FOREIGN TABLE {relation} OPTIONS (ADD batch_size '1000'); -- SET instead of ADD where it has the option; or ALTER SERVER, for all of its tables"
    );
    let look = format!(
        "SELECT srvname, srvoptions, ftoptions FROM pg_foreign_table t JOIN pg_foreign_server s ON s.oid = t.ftserver WHERE ftrelid = {}::regclass;",
        literal(relation)
    );
    match verb {
        Verb::Insert => (
            "let postgres_fdw put rows together: batch_size of the foreign table or server (PostgreSQL 14 and later; not with RETURNING, nor with triggers for \
             each row on the foreign table); or COPY to that server directly",
            vec![look, option],
        ),
        _ => (
            "write the statement so that the other server can do all of it by itself (Remote SQL in EXPLAIN VERBOSE has the whole condition then): \
             conditions of built-in types with immutable functions, no join with a table of this side, no volatile function; or send the keys as one \
             array (= ANY)",
            vec![look],
        ),
    }
}
