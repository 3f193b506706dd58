//! PLAN-57 to PLAN-60: work that another form of the statement, or another kind of index, saves: duplicates removed where there are none, pages found
//! by OR, the nearest rows found by sorting all, functions whose optional filters leave out no row by an index.

use super::distance::DISTANCES;
use super::{NEEDS, Planned, inputs, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::{busy, in_a_line, is_name_of, lowered, plain, rows_read};
use crate::rules::paste::literal;
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use record::statement::{self, Use};
use record::watched::{FUNCTION_TEXT, VIEW_TEXT};
use std::collections::BTreeSet;

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-57",
        title: "UNION, or DISTINCT of a view, looks for duplicates where there are hardly any",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with UNION, its own or that of a view, or with DISTINCT in a view, which gathers 10,000 rows or \
            more, by its plan or the counters \
            of the tables, and whose plan expects to leave half of them or more (ours)",
        judge: |case| judge(case, union, "statements with UNION"),
        links: &["https://www.postgresql.org/docs/current/queries-union.html"],
    },
    Rule {
        id: "PLAN-58",
        title: "the next page is looked for with OR, which no index serves",
        needs: NEEDS,
        limits: "10 % of the session time in a scan with the filter a < x OR (a = x AND b < y), and 100 blocks for each execution, or unknown (ours)",
        judge: |case| judge(case, page, "filters of the form a < x OR (a = x AND b < y)"),
        links: &["https://www.postgresql.org/docs/current/functions-comparisons.html#ROW-WISE-COMPARISON"],
    },
    Rule {
        id: "PLAN-59",
        title: "the nearest rows are found by sorting all by their distance",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT whose plan sorts 1,000 rows or more by a distance (<->, <#>, <=>, <+>) (ours)",
        judge: |case| judge(case, nearest, "sorts by a distance"),
        links: &["https://www.postgresql.org/docs/current/gist-builtin-opclasses.html"],
    },
    Rule {
        id: "PLAN-60",
        title: "a function has optional filters, and is planned without their values",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement that calls a function whose text has two conditions or more of the form (x IS NULL OR y = x) (ours)",
        judge: optional,
        links: &["https://www.postgresql.org/docs/current/xfunc-sql.html"],
    },
];

/// Rows that UNION is given.
const GATHERED_MIN: f64 = 10_000.0;
/// The share of the session time from which on the counters of tables are those of the statement.
const OWN_SHARE_MIN: f64 = 0.5;
/// Of these, what it leaves.
const LEFT_MIN: f64 = 0.5;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Rows that are sorted.
const SORTED_MIN: f64 = 1_000.0;
/// The share of the session time in calls of a function.
const FUNCTION_SHARE_MIN: f64 = 0.2;
/// Characters of a name, which users choose.
const NAME_CHARS: usize = 80;
/// Optional filters.
const OPTIONAL_MIN: usize = 2;

/// Whether a text has a UNION that is not UNION ALL.
fn has_union(text: &str) -> bool {
    let text = format!("{} ", lowered(text));
    text.split(" union ").skip(1).any(|behind| !behind.starts_with("all "))
}

/// A view that a statement names and whose definition removes duplicates, and by what. The statement itself must not do it, nor group.
fn view_without_duplicates<'a>(case: &'a Case, planned: &Planned<'_>) -> Option<(&'a str, &'static str)> {
    let parsed = statement::parse(&planned.statement.text).ok()?;
    let own = lowered(&planned.statement.text);
    let is_plain = ![" group by ", " distinct "].iter().any(|words| own.contains(words));
    let mut views = case.facts(VIEW_TEXT).filter(|fact| {
        fact.node == planned.time.node && parsed.tables.iter().any(|table| is_name_of(table, &fact.name))
    });
    views.find_map(|fact| {
        let text = lowered(&fact.value);
        let is_distinct = text.contains("select distinct ")
            && !text.contains("distinct on")
            && !text.contains(" group by ");
        match has_union(&fact.value) {
            true => Some((fact.name.as_str(), "UNION")),
            false => (is_distinct && is_plain).then_some((fact.name.as_str(), "DISTINCT")),
        }
    })
}

/// The step of a plan that removes the duplicates of a UNION, or of DISTINCT, and the one whose rows it is given.
fn duplicates_step<'a>(planned: &Planned<'a>, what: &str) -> Option<(Thing<'a>, Thing<'a>)> {
    let removes = |node: &&Thing<'a>| match node.lines.word("kind") {
        "Unique" => true,
        "Aggregate" => what == "UNION" || !node.lines.word("condition").is_empty(),
        _ => false,
    };
    planned.nodes.iter().filter(removes).find_map(|node| {
        let mut below = inputs(planned, node).next()?;
        if below.lines.word("kind") == "Sort" {
            below = inputs(planned, &below).next()?;
        }
        let is_gathered = ["Append", "Merge Append"].contains(&below.lines.word("kind"));
        (is_gathered || what == "DISTINCT").then_some((*node, below))
    })
}

/// Rows that an execution reads of the tables of some parts, by the counters of the tables, where the statement has most of the time.
fn counted_rows(case: &Case, planned: &Planned<'_>, parts: &Thing<'_>) -> f64 {
    let is_part = |node: &&Thing<'_>| {
        planned.ancestors(node).iter().any(|above| number(above, "number") == number(parts, "number"))
    };
    let relations: BTreeSet<&str> =
        planned.nodes.iter().filter(is_part).map(|node| node.lines.word("relation")).collect();
    let read = relations
        .into_iter()
        .filter(|relation| !relation.is_empty())
        .filter_map(|relation| rows_read(case, planned.time, planned.statement, relation));
    if planned.statement.share >= OWN_SHARE_MIN { read.sum() } else { 0.0 }
}

const UNION_ALL: &str = "write UNION ALL if no row can be in both parts (different tables, or conditions that exclude each other): then nothing is sorted or \
    hashed, and LIMIT and an order reach the parts";
const NO_DISTINCT: &str = "leave DISTINCT out of the view if its rows differ anyway (a key is among its columns); where a join makes copies, test for the \
    other table with EXISTS instead of joining it";

/// PLAN-57. Where a view has the UNION, the text of the statement does not show it.
fn union(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let view =
        if has_union(&planned.statement.text) { None } else { Some(view_without_duplicates(case, planned)?) };
    let what = view.map_or("UNION", |(_, what)| what);
    let (step, parts) = duplicates_step(planned, what)?;
    let (expected, left) = (number(&parts, "rows_planned"), number(&step, "rows_planned"));
    // The plan is for unknown values: of frequent ones there are far more rows.
    let counted = counted_rows(case, planned, &parts).max(planned.statement.rows.unwrap_or(0.0));
    let given = expected.max(counted);
    let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    if given < GATHERED_MIN || left < expected * LEFT_MIN || !is_touching {
        return None;
    }
    let whose = view.map_or(String::new(), |(view, _)| format!(" of view {}", plain(view, NAME_CHARS)));
    let how = match counted > expected {
        true => format!("; the plan, which is for unknown values, expects {}", units::count(expected)),
        false => format!(", and is expected to leave about {}", units::count(left)),
    };
    let text = format!(
        "a statement that takes {} of the session time {} by {what}{whose}, which sorts or hashes all {} rows to remove duplicates{how}",
        planned.share(),
        if what == "UNION" { "puts results together" } else { "takes different rows" },
        units::count(given)
    );
    let show = view.map(|(view, _)| format!("SELECT pg_get_viewdef({}::regclass, true);", literal(view)));
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> = show.as_deref().into_iter().chain([explain.as_str()]).collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_given", given)
            .number("rows_left", left)
            .because(planned.file())
            .with(planned.statement.temp_bytes.filter(|bytes| *bytes > 0.0), |claim, bytes| {
                claim.because(format!("it writes {} of temporary files per execution for that", units::bytes(bytes)))
            })
            .lacking("whether there are duplicates at all: the planner does not know, and a row may be in both parts")
            .remedy(
                if what == "UNION" { UNION_ALL } else { NO_DISTINCT },
                &commands,
            ),
    )
}

/// The columns of a filter `a < x OR (a = x AND b < y)`.
fn pages_by(filter: &str) -> Option<(String, String)> {
    let sides = statement::alternatives(filter).ok()?;
    let [first, second] = sides.as_slice() else { return None };
    let of = |side: &[statement::Condition], how: Use| {
        side.iter().find(|one| one.how == how && one.inside.is_none()).map(|one| one.column.clone())
    };
    let (short, long) = if first.len() == 1 { (first, second) } else { (second, first) };
    let column = of(short, Use::Range).filter(|_| short.len() == 1)?;
    let is_same = of(long, Use::Equality).is_some_and(|other| other == column);
    let next = of(long, Use::Range).filter(|_| is_same && long.len() >= 2)?;
    (next != column).then_some((column, next))
}

/// PLAN-58.
fn page(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let is_wasteful = planned
        .statement
        .blocks
        .is_none_or(|blocks| blocks >= BLOCKS_MIN && blocks >= planned.statement.rows.unwrap_or(0.0));
    let (node, (first, second)) = planned
        .nodes
        .iter()
        .filter(|_| is_wasteful)
        .find_map(|node| Some((node, pages_by(node.lines.word("filter"))?)))?;
    let relation = node.lines.word("relation");
    let claim = planned.claim(
        case,
        Level::CoOccurrence,
        severity(planned.statement.share),
        format!(
            "a statement that takes {} of the session time looks for the next page of {relation} with {first} < x OR ({first} = x AND {second} < y): \
                as a filter \
             that is checked for each row before the page, and these are thrown away",
            planned.share()
        ),
    );
    let better = format!("as a comparison of rows it is WHERE ({first}, {second}) < ($1, $2)");
    Some(
        claim
            .because(format!("the plan filters {relation} by {}", node.lines.word("filter")))
            .because(better)
            .because(planned.file())
            .not("an index that is missing: no index serves OR in an order")
            .remedy(
                "write it as a comparison of rows, which an index on both columns serves: the scan begins at the page (or, with other directions of \
                    the columns, \
                 add AND first <= x in front of the OR)",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

/// PLAN-59.
fn nearest(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let (sort, operator) = planned.nodes.iter().find_map(|node| {
        let sorted = node.lines.word("condition");
        let operator = DISTANCES.iter().find(|operator| sorted.contains(&format!(" {operator} ")))?;
        (node.lines.word("kind").ends_with("Sort")).then_some((node, *operator))
    })?;
    let rows = planned
        .nodes
        .iter()
        .filter(|one| number(one, "above") == number(sort, "number"))
        .map(|one| number(one, "rows_planned"))
        .fold(number(sort, "rows_planned"), f64::max);
    let has_limit = planned.nodes.iter().any(|node| node.lines.word("kind") == "Limit");
    if rows < SORTED_MIN || !has_limit {
        return None;
    }
    let relation = planned
        .nodes
        .iter()
        .find(|node| node.lines.word("kind").ends_with("Scan") && !node.lines.word("relation").is_empty())
        .map_or("", |node| node.lines.word("relation"));
    let condition = sort.lines.word("condition");
    let column = condition
        .split(&format!(" {operator} "))
        .next()
        .map(|left| left.trim_matches(['(', ' ']))
        .and_then(|left| left.rsplit('.').next())
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'));
    let claim = planned.claim(
        case,
        Level::CoOccurrence,
        severity(planned.statement.share),
        format!(
            "a statement that takes {} of the session time computes the distance of all {} rows of {relation} and sorts them to find the nearest: no \
                index gives \
             them in that order",
            planned.share(),
            units::count(rows)
        ),
    );
    let command = column.map(|column| {
        format!("CREATE INDEX CONCURRENTLY ON {relation} USING gist ({column}); -- vectors of pgvector: USING hnsw ({column} vector_l2_ops)")
    });
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> = command.as_deref().into_iter().chain([explain.as_str()]).collect();
    Some(
        claim
            .number("rows_sorted", rows)
            .because(format!("the plan sorts by {condition}"))
            .because(planned.file())
            .not("a B-tree that is missing: it has no distances")
            .remedy(
                "create an index that returns rows in the order of their distance: GiST or SP-GiST for geometric types, ranges and (with pg_trgm, \
                    btree_gist) texts \
                 and numbers, HNSW for vectors; the statement needs ORDER BY column <-> constant LIMIT n, without anything around the distance",
                &commands,
            ),
    )
}

/// Conditions of the form `(x IS NULL OR y = x)` in a text.
fn optional_filters(text: &str) -> usize {
    let text = text.to_ascii_lowercase();
    text.matches(" is null or ").count()
        + text.matches("coalesce(").filter(|_| text.contains("= coalesce(")).count()
}

/// PLAN-60.
fn optional(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= FUNCTION_SHARE_MIN) {
            let names = statement::names(&statement.text);
            let functions =
                case.facts(FUNCTION_TEXT).filter(|fact| fact.node == time.node && names.contains(&fact.name));
            for function in functions.filter(|fact| optional_filters(&fact.value) >= OPTIONAL_MIN) {
                let name = plain(&function.name, NAME_CHARS);
                claims.push(
                    Claim::new(
                        severity(statement.share),
                        Level::CoOccurrence,
                        format!(
                            "{}: {} of the session time is calls of function {name}(), whose filters are optional: (argument IS NULL OR column = \
                                argument). It is \
                             planned without their values, and then no index serves such a condition",
                            time.node,
                            units::percent(statement.share)
                        ),
                    )
                    .on_node(&time.node)
                    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                    .number("share", statement.share)
                    .number("optional_filters", optional_filters(&function.value) as f64)
                    .because(format!("the statement: {}", in_a_line(statement)))
                    .because(format!("the function: {}", plain(&function.value, 300)))
                    .lacking("the plan inside of the function: auto_explain.log_nested_statements shows it")
                    .remedy(
                        "build the statement with the conditions that are given only (in PL/pgSQL: EXECUTE ... USING; in the program: a statement for each \
                         combination); or let the function be inlined: LANGUAGE sql, STABLE, not STRICT, one SELECT, so that it is planned with the values",
                        &[&format!("SELECT oid::regprocedure, provolatile, proisstrict, prosrc FROM pg_proc WHERE proname = {};", literal(&function.name))],
                    ),
                );
            }
        }
    }
    Answer::of(claims, || "functions that statements call, and their optional filters".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_by_or_is_known_in_both_orders_and_nothing_else_is() {
        let pages = |filter: &str| pages_by(filter).map(|(first, second)| format!("{first}, {second}"));
        for filter in [
            "((made_at < $1) OR ((made_at = $2) AND (id < $3)))",
            "(((made_at = $2) AND (id < $3)) OR (made_at < $1))",
        ] {
            assert_eq!(pages(filter).as_deref(), Some("made_at, id"), "{filter}");
        }
        for filter in [
            "((made_at < $1) OR (id < $3))",
            "((made_at < $1) OR ((other = $2) AND (id < $3)))",
            "((made_at = $1) OR ((made_at = $2) AND (id < $3)))",
            "(made_at < $1)",
            "",
        ] {
            assert_eq!(pages(filter), None, "{filter}");
        }
    }

    #[test]
    fn optional_filters_are_counted_by_their_form() {
        let body = "select id from offer where (a is null or seller = a) and (b IS NULL OR kind = b)";
        assert_eq!(optional_filters(body), 2);
        assert_eq!(optional_filters("select 1 where a is null"), 0);
    }
}
