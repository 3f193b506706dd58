//! PLAN-49, SES-07: work that the text of an application's statements does not show: in tables that a write does not name, and in the catalog, which a
//! driver reads.

use super::costly::{busy, in_a_line, plain, severity, table_named};
use super::paste::literal;
use super::plan::plan_of;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-49",
        title: "a write spends its time in a table that it does not name",
        needs: &[
            Field("statement", "calls"),
            Field("table", "blocks_hit"),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time in a statement that writes and touches 50 blocks for each row, while most of the blocks belong to a table that no \
            statement with a twentieth of the time names (ours)",
        judge: unnamed,
        links: &["https://www.postgresql.org/docs/current/ddl-constraints.html"],
    },
    Rule {
        id: "SES-07",
        title: "programs read the catalog beside their work",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "50 statements a second that read only information_schema or pg_catalog, with 30 % of the time of all statements; medium with half of \
         it; or one in 5 s, or any that does not end, that takes 30 % of the session time; high with half of that (ours)",
        judge: catalog,
        links: &["https://www.postgresql.org/docs/current/information-schema.html"],
    },
];

/// The share of the session time of a statement that writes.
const SHARE_MIN: f64 = 0.2;
/// Blocks for each row that it writes.
const BLOCKS_PER_ROW_MIN: f64 = 50.0;
/// The share of the blocks of a table that is not named.
const OF_BLOCKS_MIN: f64 = 0.4;
/// A statement with less of the time explains nothing.
const NAMING_SHARE_MIN: f64 = 0.05;
/// Statements a second on the catalog.
const CATALOG_CALLS_PER_S_MIN: f64 = 50.0;
/// Of the time of all statements.
const CATALOG_SHARE_MIN: f64 = 0.3;
const CATALOG_SHARE_MEDIUM: f64 = 0.5;
/// Statements a second on the catalog that take as much of the session time.
const CATALOG_LONG_PER_S_MIN: f64 = 0.2;
/// Functions that look into the file system for each relation.
const SIZES: [&str; 5] =
    ["pg_total_relation_size", "pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size"];

/// A relation with the tables that it is a partition of: a partition may be partitioned itself.
fn with_parents<'a>(case: &'a Case, node: &'a str, relation: &'a str) -> Vec<&'a str> {
    let mut found = vec![relation];
    while let Some(parent) = case
        .at("table", node)
        .filter(|table| found.last() == Some(&table.lines.word("relation")))
        .map(|table| table.lines.word("partition_of"))
        .find(|parent| !parent.is_empty() && !found.contains(parent))
    {
        found.push(parent);
    }
    found
}

/// Whether a text names one of these relations; `None` if it cannot be parsed, and may name any.
fn names(text: &str, relations: &[&str]) -> Option<bool> {
    let parsed = statement::parse(text).ok()?;
    let is_named =
        |table: &statement::TableName| relations.iter().any(|one| super::costly::is_name_of(table, one));
    Some(parsed.tables.iter().any(is_named))
}

/// Whether a plan of a statement reads a relation itself, as the table of a view or one that inherits. What constraints and functions read is in no plan,
/// and what a policy reads is a subquery.
fn reads(case: &Case, time: &NodeTime, statement: &StatementTime, relation: &str) -> bool {
    let Some(planned) = plan_of(case, time, statement) else { return false };
    planned.nodes.iter().any(|node| {
        let is_part = |one: &Thing<'_>| one.lines.flag("subquery") == Some(true);
        node.lines.word("relation") == relation
            && !is_part(node)
            && !planned.ancestors(node).iter().any(is_part)
    })
}

/// A table with most of the blocks that no statement that matters names.
struct Unnamed<'a> {
    relation: &'a str,
    /// Of the blocks.
    share: f64,
    blocks_per_s: f64,
    /// Its rows are changed, which explains the blocks.
    is_updated: bool,
}

fn unnamed_table<'a>(case: &Case, time: &'a NodeTime) -> Option<Unnamed<'a>> {
    let by = time.by.iter().find(|by| by.name == "relation")?;
    let (relation, share) = by.shares.iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let relations = with_parents(case, &time.node, relation);
    let mut felt = time.statements.iter().filter(|statement| statement.share >= NAMING_SHARE_MIN);
    let is_named = felt.any(|statement| {
        names(&statement.text, &relations).unwrap_or(true) || reads(case, time, statement, relation)
    });
    let per_s = |field: &str| {
        let tables = case.at("table", time.node.as_str());
        tables
            .filter(|table| table.lines.word("relation") == relation)
            .filter_map(|table| table.lines.rate(field))
            .sum::<f64>()
    };
    let blocks = per_s("blocks_hit") + per_s("blocks_read");
    // Short statements that name it may touch all of them, in little time.
    let of_naming: f64 = case
        .at("statement", &time.node)
        .filter(|one| {
            let text = case.query(one.lines.word("query_id")).unwrap_or_default();
            names(text, &relations) == Some(true)
        })
        .filter_map(|one| Some(one.lines.rate("shared_hit")? + one.lines.rate("shared_read").unwrap_or(0.0)))
        .sum();
    let is_touched_by_name = of_naming >= blocks * OF_BLOCKS_MIN;
    // Rows that are deleted with the row that they refer to (ON DELETE CASCADE), each found by an index, need these blocks.
    let is_deleted = per_s("rows_deleted") * BLOCKS_PER_ROW_MIN >= blocks;
    let is_updated = per_s("rows_updated") * BLOCKS_PER_ROW_MIN >= blocks;
    (*share >= OF_BLOCKS_MIN && !is_named && !is_touched_by_name && !is_deleted).then_some(Unnamed {
        relation,
        share: *share,
        blocks_per_s: blocks,
        is_updated,
    })
}

fn unnamed(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(unnamed) = unnamed_table(case, time) else { continue };
        let Unnamed { relation, share: of_blocks, blocks_per_s, is_updated } = unnamed;
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let Ok(parsed) = statement::parse(&statement.text) else { continue };
            let (blocks, rows) = (statement.blocks.unwrap_or(0.0), statement.rows.unwrap_or(0.0));
            // Otherwise many cheap statements may touch them.
            let is_its_work = blocks * statement.calls_per_s.unwrap_or(0.0) >= blocks_per_s * OF_BLOCKS_MIN;
            let is_write = matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge)
                && is_its_work;
            let Some(named) =
                parsed.tables.first().filter(|_| is_write && blocks >= rows.max(1.0) * BLOCKS_PER_ROW_MIN)
            else {
                continue;
            };
            let table = table_named(case, &time.node, statement, named);
            // Triggers are another rule's.
            if table.is_some_and(|table| table.lines.last("triggers").is_some_and(|count| count > 0.0)) {
                continue;
            }
            let written = table.map_or_else(
                || statement::quoted(&named.name),
                |table| table.lines.word("relation").to_string(),
            );
            let text = format!(
                "{}: a statement that takes {} of the session time writes {written}, and {} of the blocks are those of {relation}, which no statement \
                 names: {}",
                time.node,
                units::percent(statement.share),
                units::percent(of_blocks),
                if is_updated {
                    "its rows are changed with those that they refer to, as a foreign key does with ON UPDATE CASCADE when a key changes"
                } else {
                    "a CHECK constraint, a foreign key, a default, a generated column or a policy reads it for each row"
                }
            );
            let oid = literal(&written);
            claims.push(
                Claim::new(severity(statement.share), Level::CoOccurrence, text)
                    .on_node(&time.node)
                    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                    .number("share", statement.share)
                    .number("share_of_blocks", of_blocks)
                    .because(format!("the statement: {}", in_a_line(statement)))
                    .because(format!("an execution touches {} blocks for {} rows", units::short(blocks), units::short(rows)))
                    .not("a trigger: the table has none")
                    .lacking("which of them: the commands list what belongs to the table")
                    .remedy(
                        "look at what the table calls for each row: an index for what the function looks up, a foreign key instead of a function in a CHECK \
                         constraint, or a check of all rows at once",
                        &[
                            &format!("SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint WHERE {oid}::regclass IN (conrelid, confrelid);"),
                            &format!("SELECT adnum, pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = {oid}::regclass;"),
                            &format!("SELECT polname, pg_get_expr(polwithcheck, polrelid) FROM pg_policy WHERE polrelid = {oid}::regclass;"),
                        ],
                    ),
            );
        }
    }
    Answer::of(claims, || {
        "tables with most of the blocks, against the tables that statements name".to_string()
    })
}

/// Whether a statement reads the catalog and nothing else. `node`: an application's table may have such a name, too.
fn reads_catalog(case: &Case, node: &str, text: &str) -> bool {
    let Ok(parsed) = statement::parse(text) else { return false };
    let is_of_catalog = |table: &statement::TableName| match table.schema.as_deref() {
        Some(schema) => matches!(schema, "information_schema" | "pg_catalog"),
        None => table.name.starts_with("pg_") && !is_of_users(case, node, &table.name),
    };
    parsed.verb == Verb::Select && !parsed.tables.is_empty() && parsed.tables.iter().all(is_of_catalog)
}

/// Whether a table of this name, outside of the catalog, was recorded.
fn is_of_users(case: &Case, node: &str, name: &str) -> bool {
    case.at("table", node).any(|table| {
        let (schema, bare) = table.lines.word("relation").rsplit_once('.').unwrap_or_default();
        bare.trim_matches('"') == name && !["pg_catalog", "information_schema"].contains(&schema)
    })
}

/// The first tables and views of a statement on the catalog.
fn tables_of(text: &str) -> String {
    let tables = statement::parse(text).map_or(vec![], |parsed| parsed.tables);
    let mut names: Vec<String> = tables.into_iter().map(|table| table.name).collect();
    names.dedup();
    names.truncate(3);
    plain(&names.join(", "), 120)
}

/// What statements on the catalog are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Sizes of relations.
    Sizes,
    /// `pg_stat_statements`, whose texts are in a file.
    Statements,
    /// Other statistics.
    Statistics,
    /// Time zones, which are files.
    TimeZones,
    /// Tables and types.
    Names,
}

impl Purpose {
    fn of(text: &str) -> Purpose {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            text if SIZES.iter().any(|size| text.contains(size)) => Purpose::Sizes,
            text if text.contains("pg_stat_statements") => Purpose::Statements,
            text if text.contains("pg_stat") => Purpose::Statistics,
            text if text.contains("pg_timezone_") => Purpose::TimeZones,
            _ => Purpose::Names,
        }
    }

    /// Who does it, and what it costs.
    fn who(self) -> &'static str {
        match self {
            Purpose::Sizes => {
                "something (monitoring, an administration program) measures the sizes of tables, and opens the files of each for it"
            }
            Purpose::Statements => {
                "a monitoring program reads pg_stat_statements, and each time the server loads the file with the texts of all statements and copies every entry"
            }
            Purpose::Statistics => "a monitoring program reads the statistics views (pg_stat_...)",
            Purpose::TimeZones => {
                "a program lists the time zones, and each time the server opens the files of all of them (some 1,200)"
            }
            Purpose::Names => "a driver or an object mapper looks tables up beside the work",
        }
    }
}

/// What to do about statements on the catalog.
fn advice_of(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Sizes => {
            "ask for sizes rarely (every few minutes, from one agent), or read relpages; for one total pg_database_size"
        }
        Purpose::Statements => {
            "read it once a minute or more rarely, from one agent, with pg_stat_statements(showtext := false), and the texts only of the entries that are \
                new; a smaller pg_stat_statements.max keeps the file small"
        }
        Purpose::Statistics => "ask more rarely, from one agent",
        Purpose::TimeZones => {
            "keep the list in the program, or in a table that is filled at each update of the time zones"
        }
        Purpose::Names => {
            "let the driver keep what it knows of tables: a cache of metadata, types or statements, for as long as the pool lives; look for a call that asks \
             for metadata before each statement"
        }
    }
}

/// Statements on the catalog that ended: their part of the time of all statements, how many a second, and the text with the most time.
fn counted<'a>(case: &'a Case, node: &str) -> (f64, f64, Option<&'a str>) {
    let (mut all, mut theirs, mut calls) = (0.0, 0.0, 0.0);
    let mut most: Option<(f64, &str)> = None;
    for line in case.at("statement", node) {
        let text = case.query(line.lines.word("query_id")).unwrap_or_default();
        let took = ["total_ms", "plan_ms"].iter().filter_map(|field| line.lines.rate(field)).sum::<f64>();
        all += took;
        if case.is_own_statement(line.lines.word("query_id"))
            || !reads_catalog(case, node, text)
            || super::inspect::reader(text).is_some()
        {
            continue;
        }
        theirs += took;
        calls += line.lines.rate("calls").unwrap_or(0.0);
        if most.is_none_or(|(before, _)| took > before) {
            most = Some((took, text));
        }
    }
    (theirs / all.max(f64::MIN_POSITIVE), calls, most.map(|(_, text)| text))
}

fn catalog(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let (share, calls, most) = counted(case, &time.node);
        let reading = || time.statements.iter().filter(|one| reads_catalog(case, &time.node, &one.text));
        let of_sessions: f64 = reading().map(|one| one.share).sum();
        let is_long = calls >= CATALOG_LONG_PER_S_MIN && of_sessions >= CATALOG_SHARE_MIN;
        let is_felt = is_long || calls >= CATALOG_CALLS_PER_S_MIN;
        let most = most.filter(|_| is_felt && share >= CATALOG_SHARE_MIN);
        // A statement that has not ended is counted nowhere.
        let largest = reading().max_by(|left, right| left.share.total_cmp(&right.share));
        let unended = largest
            .filter(|one| most.is_none() && of_sessions >= CATALOG_SHARE_MIN && one.calls_per_s.is_none());
        let Some(text) = most.or(unended.map(|one| one.text.as_str())) else { continue };
        let purpose = Purpose::of(text);
        let who = purpose.who();
        let what = match unended {
            Some(_) => format!(
                "{} of the session time reads the catalog ({}), and no such statement has ended within the recording",
                units::percent(of_sessions),
                tables_of(text)
            ),
            None => format!(
                "{} of the time of all statements reads the catalog ({}), {} times a second",
                units::percent(share),
                tables_of(text),
                units::short(calls)
            ),
        };
        let severity = match share {
            _ if (is_long || unended.is_some()) && of_sessions >= CATALOG_SHARE_MEDIUM => Severity::High,
            share if is_long || unended.is_some() || share >= CATALOG_SHARE_MEDIUM => Severity::Medium,
            _ => Severity::Low,
        };
        claims.push(
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!("{}: {what}: {who}", time.node),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share_of_statements", if unended.is_some() { of_sessions } else { share })
            .number("calls_per_s", calls)
            .because(format!("most of it: {}", plain(text, 160)))
            .because("such statements join many tables of the catalog: planning them takes longer than running them, and pg_stat_statements counts it only \
             with track_planning")
            .with((purpose == Purpose::Sizes).then_some(()), |claim, ()| claim.because("relpages of pg_class has the sizes of the last VACUUM or \
                ANALYZE without opening a file"))
            .remedy(
                advice_of(purpose),
                &["SELECT queryid, calls, mean_exec_time AS ms, left(query, 80) AS query FROM pg_stat_statements WHERE query ~* \
                 'information_schema|pg_catalog|pg_class|pg_stat' ORDER BY \
                   total_exec_time DESC LIMIT 5;"],
            ),
        );
    }
    Answer::of(claims, || "statements on the catalog, of all statements".to_string())
}
