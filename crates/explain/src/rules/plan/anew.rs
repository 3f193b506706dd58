//! PLAN-84 and PLAN-85: what each execution makes anew, although it could be kept: columns that are computed when they are read, and the list of NOT IN.

use super::index::indexes;
use super::wanted::{HOW_MANY_FIT, UNSURE};
use super::{NEEDS, Planned, below, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::{busy, in_a_line, lowered, names_table, plain, rows_read};
use crate::rules::paste::literal;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;
use record::watched::{Fact, VIRTUAL_COLUMN};

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-84",
        title: "a virtual generated column is computed for each row that is read",
        needs: &[
            Field("statement", "calls"),
            Field("table", "index_rows"),
            Field("server", "sessions_active"),
        ],
        limits: "10 % of the session time in a statement whose condition names a column that is generated and not stored (PostgreSQL 18), and which reads \
            1,000 rows of its table for a tenth of them or less; medium where an aggregate takes them; or that names it otherwise, reads 100 rows and takes \
            15 us for each (ours)",
        judge: computed_when_read,
        links: &["https://www.postgresql.org/docs/current/ddl-generated-columns.html"],
    },
    Rule {
        id: "PLAN-85",
        title: "NOT IN hashes a large list at each execution for few rows",
        needs: NEEDS,
        limits: "10 % of the session time; NOT IN with a subquery of 10,000 rows or more that is hashed, for a tenth of so many rows or less (ours)",
        judge: |case| judge(case, hashed_list, "hashed subqueries in the conditions of plans"),
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html"],
    },
];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.1;
/// Rows that an execution reads of the table of a computed column.
const ROWS_MIN: f64 = 1_000.0;
/// Of these, the rows that it returns.
const RETURNED_MAX: f64 = 0.1;
/// Rows of a hashed list.
const LIST_MIN: f64 = 10_000.0;
/// Rows that are compared with it, of those in it: each of them would be a search in an index.
const COMPARED_MAX: f64 = 0.1;
/// Characters of a name, and of an expression.
const NAME_CHARS: usize = 120;
const EXPRESSION_CHARS: usize = 200;

/// Rows of which an execution makes a column that it sorts or returns, and microseconds for each from which on that is most of what it does.
const MADE_MIN: f64 = 100.0;
const MADE_US_MIN: f64 = 15.0;

/// A virtual column that a statement names.
struct Virtual<'a> {
    relation: &'a str,
    column: &'a str,
    expression: &'a str,
    /// In a comparison.
    is_compared: bool,
}

/// The virtual column in a statement.
fn named<'a>(time: &NodeTime, statement: &StatementTime, fact: &'a Fact) -> Option<Virtual<'a>> {
    // Schema and table are quoted where they have a blank, and a column is the last word.
    let (relation, column) = fact.name.rsplit_once(' ').filter(|(_, column)| !column.ends_with('"'))?;
    let parsed = statement::parse(&statement.text).ok()?;
    let is_compared = parsed.conditions.iter().any(|one| one.column == column);
    let is_named = is_compared || statement::names(&statement.text).iter().any(|name| name == column);
    let is_its = fact.node == time.node && names_table(statement, relation) && is_named;
    is_its.then_some(Virtual { relation, column, expression: &fact.value, is_compared })
}

/// PLAN-84.
fn computed_when_read(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let found: Vec<Virtual<'_>> =
                case.facts(VIRTUAL_COLUMN).filter_map(|fact| named(time, statement, fact)).collect();
            let searched = found.iter().find(|one| one.is_compared);
            claims.extend(match searched {
                Some(one) => searches(case, time, statement, one),
                None => makes(case, time, statement, &found),
            });
        }
    }
    Answer::of(claims, || {
        "conditions of statements, against columns that are computed when they are read".to_string()
    })
}

/// A statement that reads many rows and keeps the few whose column has a value.
fn searches(case: &Case, time: &NodeTime, statement: &StatementTime, found: &Virtual<'_>) -> Option<Claim> {
    let rows = rows_read(case, time, statement, found.relation).filter(|rows| *rows >= ROWS_MIN)?;
    let aggregates = statement::shape(&statement.text).is_ok_and(|shape| shape.aggregates);
    let is_for_few = aggregates || statement.rows.is_some_and(|returned| returned <= rows * RETURNED_MAX);
    is_for_few.then(|| of_virtual(case, (time, statement), found, rows, aggregates))
}

/// A statement that sorts, filters or returns such columns of rows that it reads for other reasons, and takes long for each.
fn makes(case: &Case, time: &NodeTime, statement: &StatementTime, found: &[Virtual<'_>]) -> Option<Claim> {
    let first = found.first()?;
    // What only the list of the output names is made for the rows that are left.
    let text = lowered(&statement.text);
    let behind = text.split_once(" from ").map(|(_, rest)| statement::names(rest)).unwrap_or_default();
    let is_early = found.iter().any(|one| behind.iter().any(|name| name == one.column));
    let rows = match is_early {
        true => rows_read(case, time, statement, first.relation),
        false => statement.rows,
    };
    let rows = rows.filter(|rows| *rows >= MADE_MIN)?;
    let each_us = statement.mean_ms? * 1e3 / rows;
    if each_us < MADE_US_MIN {
        return None;
    }
    let of_table: Vec<&Virtual<'_>> = found.iter().filter(|one| one.relation == first.relation).collect();
    let names = of_table.iter().map(|one| plain(one.column, NAME_CHARS)).collect::<Vec<_>>().join(" and ");
    let text = format!(
        "{}: {} of the session time is one statement that computes {names} of {} rows of {} for each execution, in {} us each: generated columns that are \
         VIRTUAL are computed anew whenever they are read",
        time.node,
        units::percent(statement.share),
        units::count(rows),
        first.relation,
        units::short(each_us)
    );
    let mut claim = Claim::new(severity(statement.share), Level::CoOccurrence, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .number("rows_per_call", rows)
        .number("us_per_row", each_us)
        .because(format!("the statement: {}", in_a_line(statement)));
    for one in of_table {
        claim = claim.because(format!(
            "column {} is generated as {}, without STORED, which is the default from PostgreSQL 18 on",
            plain(one.column, NAME_CHARS),
            plain(one.expression, EXPRESSION_CHARS)
        ));
    }
    let look = format!(
        "SELECT attname, attgenerated, pg_get_expr(adbin, adrelid) FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE attrelid = {}::regclass AND attgenerated <> ''; -- v: virtual, s: stored",
        literal(first.relation)
    );
    Some(claim.remedy(
        "make the column STORED, so that it is computed once for each change (it has to be dropped and added again, which writes the table anew under an \
         exclusive lock), and index it where it is searched or sorted; or create an index on the expression itself",
        &[&look],
    ))
}

fn of_virtual(
    case: &Case,
    (time, statement): (&NodeTime, &StatementTime),
    found: &Virtual<'_>,
    rows: f64,
    aggregates: bool,
) -> Claim {
    let Virtual { relation, column, expression, .. } = *found;
    let is_search = lowered(&statement.text).contains("@@");
    let (method, what) = if is_search { ("USING gin ((%s))", "a GIN") } else { ("((%s))", "an") };
    let expression = plain(expression, EXPRESSION_CHARS);
    let command = format!(
        "SELECT format('CREATE INDEX CONCURRENTLY ON %s {method};', a.attrelid::regclass, pg_get_expr(d.adbin, d.adrelid)) FROM pg_attribute a JOIN \
         pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = {}::regclass AND a.attname = {}; \
         -- prints the command with its constants",
        literal(relation),
        literal(column)
    );
    let most = if aggregates { Severity::Medium } else { Severity::High };
    let text = format!(
        "{}: {} of the session time is one statement that searches {relation} by {}, a generated column that is VIRTUAL: its expression is computed anew for \
         each of the {} rows that an execution reads",
        time.node,
        units::percent(statement.share),
        plain(column, NAME_CHARS),
        units::count(rows)
    );
    Claim::new(severity(statement.share).min(most), Level::CoOccurrence, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .number("rows_per_call", rows)
        .because(format!("the statement: {}", in_a_line(statement)))
        .because(format!("column {} is generated as {expression}, without STORED, which is the default from PostgreSQL 18 on", plain(column, NAME_CHARS)))
        .not("an index on the column that is not used: the server refuses indexes on virtual columns")
        .with(aggregates.then_some(HOW_MANY_FIT), |claim, lack| claim.lacking(lack).number(UNSURE, 1.0))
        .remedy(
            format!(
                "create {what} index on the expression itself, which conditions on the column then use; or make the column STORED, so that it is computed \
                 once for each change, and index it: the column has to be dropped and added again, which writes the table anew under an exclusive lock"
            ),
            &[&command, &format!("ANALYZE {relation};")],
        )
}

/// A node that filters by NOT IN with a hash table, and the subquery that fills it.
fn listed<'a>(planned: &Planned<'a>) -> Option<(Thing<'a>, Thing<'a>)> {
    planned.nodes.iter().find_map(|node| {
        let filter = node.lines.word("filter");
        let hashed = filter.find("hashed SubPlan")?;
        let is_negated = filter[..hashed].rfind("NOT (").is_some_and(|at| {
            // PostgreSQL 17 and later write what is compared in front: NOT (ANY (a = (hashed SubPlan 1).col1)).
            let between = &filter[at + "NOT (".len()..hashed];
            between.is_empty() || between.starts_with("ANY (")
        });
        let lists = below(planned, node).filter(|one| one.lines.flag("subquery") == Some(true));
        let list = lists
            .max_by(|left, right| number(left, "rows_planned").total_cmp(&number(right, "rows_planned")))?;
        is_negated.then_some((*node, list))
    })
}

/// The table that a list is read from.
fn table_of<'a>(planned: &Planned<'a>, list: &Thing<'a>) -> &'a str {
    let own = planned.relation_of(list);
    if !own.is_empty() {
        return own;
    }
    below(planned, list)
        .map(|node| planned.relation_of(&node))
        .find(|name| !name.is_empty())
        .unwrap_or_default()
}

/// The column that NOT IN compares with, if the text of the statement shows it.
fn column_of_list(text: &str) -> Option<String> {
    let text = lowered(text);
    let after = text.split_once("not in (select ")?.1.trim_start_matches("distinct ");
    let (column, rest) = after.split_once(' ')?;
    let name = column.rsplit('.').next()?.trim_matches('"');
    (rest.starts_with("from ") && statement::is_name(name)).then(|| name.to_string())
}

/// Rows that are compared with the list: by counters, else as the planner expects it.
fn compared_rows(case: &Case, planned: &Planned<'_>, node: &Thing<'_>) -> f64 {
    let relation = planned.relation_of(node);
    let counted = rows_read(case, planned.time, planned.statement, relation).filter(|rows| *rows > 0.0);
    let limit = planned.nodes.iter().find(|node| node.lines.word("kind") == "Limit");
    let expected = limit.unwrap_or(node).lines.last("rows_planned").unwrap_or(f64::MAX);
    counted.filter(|_| !relation.is_empty()).unwrap_or(expected)
}

/// PLAN-85.
fn hashed_list(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let (node, list) = listed(planned)?;
    let rows = number(&list, "rows_planned");
    let relation = table_of(planned, &list);
    let tested = compared_rows(case, planned, &node);
    if rows < LIST_MIN || tested > rows * COMPARED_MAX || relation.is_empty() {
        return None;
    }
    let column = column_of_list(&planned.statement.text);
    let all = indexes(case, planned, relation);
    let index =
        column.as_deref().and_then(|column| all.iter().find(|(_, columns)| columns.first() == Some(&column)));
    let by_index = index.map_or(String::new(), |(index, _)| {
        format!(", by index {}", plain(index.lines.word("index"), NAME_CHARS))
    });
    let text = format!(
        "a statement that takes {} of the session time reads {} rows of {relation} into a hash table at each execution, for NOT IN, and compares about {} rows \
         with it: NOT EXISTS could look for each of them{by_index}",
        planned.share(),
        units::count(rows),
        units::count(tested)
    );
    let create = match (&column, index) {
        (Some(column), None) => Some(statement::index_command(relation, std::slice::from_ref(column), true)),
        _ => None,
    };
    let commands: Vec<&str> = create.as_deref().into_iter().collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_of_list", rows)
            .number("rows_compared", tested)
            .because(planned.file())
            .because(format!("the plan filters by {}", plain(node.lines.word("filter"), EXPRESSION_CHARS)))
            .because("NOT IN has to return nothing where the list has a null, so that the planner cannot make it a join: the whole list is read first")
            .not("a missing index for the condition: the scan of the list needs all of it")
            .lacking("the time without it: EXPLAIN (ANALYZE) of the same statement with NOT EXISTS")
            .remedy(
                "write NOT EXISTS (SELECT 1 FROM list WHERE list.column = outer.column): the planner then chooses between a search in an index for each row \
                 and a hash table (an anti join). It differs only where one of the columns is null: NOT IN returns no such rows",
                &commands,
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_a_list_is_read_from_the_text() {
        let of = |text: &str| column_of_list(text);
        let plain =
            "select id from subscriber where id not in (select subscriber_id from unsubscribed) limit $1";
        assert_eq!(of(plain).as_deref(), Some("subscriber_id"));
        assert_eq!(of("delete from t where a NOT IN  (SELECT u.b FROM u)").as_deref(), Some("b"));
        for other in [
            "select 1 where a not in ($1, $2)",
            "select 1 where a not in (select b + 1 from u)",
            "not in (select ",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
