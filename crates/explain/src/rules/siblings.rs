//! PLAN-64: a partition without an index that its siblings have.

use super::costly::{busy, in_a_line, scanned, severity, wasteful};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-64",
    title: "a partition lacks an index that its siblings have",
    needs: &[Field("table", "seq_scans"), Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement that scans a partition as PLAN-01 has it, by a column which leads an index of most of the other \
        partitions, \
        and none of its own (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/ddl-partitioning.html#DDL-PARTITIONING-DECLARATIVE"],
}];

/// An index that siblings of a partition have: its columns, and how many of them have it.
struct Lacking<'a> {
    columns: Vec<&'a str>,
    share: &'a str,
}

/// The index that serves most of the columns that a statement compares, of those that siblings of a partition have: `columns: 11 of 11; ...`.
fn lacking<'a>(table: &Thing<'a>, statement: &StatementTime) -> Option<Lacking<'a>> {
    let parsed = statement::parse(&statement.text).ok()?;
    let is_searched = |column: &&str| parsed.conditions.iter().any(|condition| condition.column == **column);
    let parts = table.lines.word("sibling_indexes").split("; ").filter_map(|part| {
        let (columns, share) = part.rsplit_once(": ")?;
        Some(Lacking { columns: columns.split(", ").collect(), share })
    });
    let served = parts.filter(|index| index.columns.first().is_some_and(&is_searched));
    served.max_by_key(|index| index.columns.iter().filter(|column| is_searched(column)).count())
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| wasteful(statement).is_some()) {
            let Some((table, rows, scans)) = scanned(case, &time.node, statement) else { continue };
            let Some(index) = lacking(&table, statement) else { continue };
            claims.push(of_partition(time, statement, &table, &index, (rows, scans)));
        }
    }
    Answer::of(claims, || "indexes of the partitions that are scanned, and of their siblings".to_string())
}

fn of_partition(
    time: &NodeTime,
    statement: &StatementTime,
    table: &Thing<'_>,
    index: &Lacking<'_>,
    (rows, scans): (f64, f64),
) -> Claim {
    let relation = table.lines.word("relation");
    let listed: Vec<String> = index.columns.iter().map(|column| statement::quoted(column)).collect();
    Claim::new(
        severity(statement.share),
        Level::DiscriminatingCounter,
        format!(
            "{}: a statement that takes {} of the session time reads all {} rows of partition {relation}, which has no index on {}: {} of its sibling \
             partitions have it",
            time.node,
            units::percent(statement.share),
            units::count(rows),
            index.columns.join(", "),
            index.share,
        ),
    )
    .on_node(&time.node)
    .during([table.lines.ticks.window()])
    .number("share", statement.share)
    .number("rows_per_scan", rows)
    .because(format!("the statement: {}", in_a_line(statement)))
    .because(format!("{} sequential scans a second of this partition", units::short(scans)))
    .because("an index of the partitioned table itself would have come with the partition; one that each partition got by itself does not")
    .not("a missing index of the whole table: the other partitions have it")
    .remedy(
        "create it on this partition; then create it on the partitioned table, which adopts those of the partitions and gives it to new ones",
        &[&format!("CREATE INDEX CONCURRENTLY ON {relation} ({});", listed.join(", "))],
    )
}
