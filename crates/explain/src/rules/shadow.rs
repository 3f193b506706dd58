//! CFG-03: names without a schema mean what the `search_path` of a role finds first. A role or database with one of its own may read another table of the
//! same name than everybody else does: an old copy, or one without indexes. Its statement then looks like any slow one, and an index makes it fast on the
//! wrong table.

use super::costly::{busy, in_a_line, is_name_of, parts_of, plain, severity};
use crate::case::engine::reset_command;
use crate::case::{Case, Lines, Thing};
use crate::rule::Need::{Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CFG-03",
    title: "a search_path leads a statement to another table of the same name",
    needs: &[Facts("setting"), Field("server", "sessions_active"), Field("table", "seq_scans")],
    limits: "10 % of the session time in a statement that names a table without its schema, of a role or database whose search_path leads to another table \
        than the server's, which is used too; low unless a scan of its table reads ten times as many rows (ours)",
    judge: shadowed,
    links: &["https://www.postgresql.org/docs/current/ddl-schemas.html#DDL-SCHEMAS-PATH"],
}];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.1;
/// Rows of a scan, as a multiple of those of the other table.
const ROWS_RATIO_MIN: f64 = 10.0;
/// Tables of one name that are a mistake; more are schemas that are alike on purpose.
const TABLES_MAX: usize = 3;
/// The server's search_path by default.
const DEFAULT: &str = "\"$user\", public";
/// Characters of a search_path, and of a name.
const PATH_CHARS: usize = 80;
const NAME_CHARS: usize = 130;

fn shadowed(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            claims.extend(of_statement(case, time, one));
        }
    }
    Answer::of(claims, || "the search_path of roles and databases, and tables of one name".to_string())
}

fn of_statement(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<Claim> {
    let owners: Vec<(&str, &str)> = case
        .own_settings(&time.node, "search_path")
        .filter(|(owner, _)| case.may_execute(&time.node, owner, one))
        .collect();
    let (first, rest) = owners.split_first()?;
    if !rest.is_empty() {
        // Each of them may mean another table.
        return None;
    }
    let (owner, path) = *first;
    let parsed = statement::parse(&one.text).ok()?;
    let unqualified = parsed.tables.iter().filter(|table| table.schema.is_none());
    let (mine, other) = unqualified.into_iter().find_map(|table| {
        let is_there = |found: &Thing<'_>| {
            (found.lines.word("database") == one.database || one.database.is_empty())
                && is_name_of(table, found.lines.word("relation"))
        };
        let all: Vec<Thing<'_>> = case.at("table", &time.node).filter(is_there).collect();
        let usual = case.setting(&time.node, "search_path").unwrap_or(DEFAULT);
        let (mine, other) = (first_in(&all, path, role_of(owner))?, first_in(&all, usual, "")?);
        let is_other = mine.lines.word("relation") != other.lines.word("relation");
        (is_other && all.len() <= TABLES_MAX).then_some((mine.lines, other.lines))
    })?;
    let (mine_rows, other_rows) = (rows_of_scan(mine)?, rows_of_scan(other)?);
    let is_dearer = mine_rows >= ROWS_RATIO_MIN * other_rows.max(1.0);
    let (mine_table, other_table) = (mine.word("relation"), other.word("relation"));
    let (mine_name, other_name) = (plain(mine_table, NAME_CHARS), plain(other_table, NAME_CHARS));
    let severity = if is_dearer { severity(one.share) } else { Severity::Low };
    let path = plain(path, PATH_CHARS);
    let look = format!(
        "SELECT (SELECT count(*) FROM {mine_table}) AS its, (SELECT count(*) FROM {other_table}) AS the_others;"
    );
    Some(
        Claim::new(
            severity,
            Level::CoOccurrence,
            format!(
                "{}: a statement that takes {} of the session time reads {mine_name}, while others find {other_name} under the same name: {owner} has \
                    search_path = {path}",
                time.node,
                units::percent(one.share)
            ),
        )
        .on_node(&time.node)
        .during([mine.ticks.window()])
        .number("share", one.share)
        .number("rows_of_scan", mine_rows)
        .number("rows_of_scan_other", other_rows)
        .because(in_a_line(one))
        .because(format!(
            "a scan reads {} rows of {mine_name}, and {} of {other_name}, which was used too",
            units::short(mine_rows),
            units::short(other_rows)
        ))
        .lacking("whether that is meant")
        .remedy(
            "find out which of the two tables it shall read. If the other one: take the search_path back, or write the schema before the name; an index on \
                the wrong table makes it fast, and its answer remains wrong",
            &[&look, &reset_command(owner, "search_path")],
        ),
    )
}

fn role_of(owner: &str) -> &str {
    owner.strip_prefix("role ").unwrap_or("")
}

/// The table that is found by a path.
fn first_in<'a>(tables: &[Thing<'a>], path: &str, role: &str) -> Option<Thing<'a>> {
    path.split(',').find_map(|schema| {
        let schema = schema.trim();
        let (_, name) = parts_of(schema);
        let name = if name == "$user" { role.to_string() } else { name };
        tables.iter().find(|table| parts_of(table.lines.word("relation")).0 == name).copied()
    })
}

/// Rows that a scan reads; `None` if the table was not read.
fn rows_of_scan(table: &Lines) -> Option<f64> {
    let sum = |field: &str| table.sum(field).unwrap_or(0.0);
    let scans = sum("seq_scans") + sum("index_scans");
    (scans > 0.0).then(|| (sum("seq_rows") + sum("index_rows")) / scans)
}
