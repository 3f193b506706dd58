//! PLAN-76 to PLAN-78, PLAN-81, PLAN-82: what is done for each row although few are wanted: a subquery in a condition, a window over all rows below a
//! LIMIT, a pattern that comes from another table, advisory locks, and pairs of all rows of two tables.

use super::index::indexes;
use super::{NEEDS, Planned, below, inputs, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::costly::{lowered, plain};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use record::statement::{self, Use};

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-76",
        title: "a subquery in a condition is run for each row",
        needs: NEEDS,
        limits: "10 % of the session time in a statement that scans 1,000 rows or more and compares each with a subquery of its own that is not hashed, and \
            touches a block for each, where other conditions stand beside it without those of the table (ours)",
        judge: |case| judge(case, correlated, "subqueries in the conditions of scans"),
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html"],
    },
    Rule {
        id: "PLAN-77",
        title: "a window over all rows keeps LIMIT from stopping early",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT that returns a tenth or less of the 1,000 rows or more below a window function over all \
            of them (OVER ()), not sorted unless an index has the order, and touches 100 blocks (ours)",
        judge: |case| judge(case, windowed, "window functions below LIMIT"),
        links: &["https://www.postgresql.org/docs/current/tutorial-window.html"],
    },
    Rule {
        id: "PLAN-78",
        title: "a pattern comes from another table, so that no B-tree is searched for it",
        needs: NEEDS,
        limits: "10 % of the session time in a join that compares 1,000 rows or more with a pattern (LIKE, ~, starts_with) made of another table's column \
            (ours)",
        judge: |case| judge(case, joined_by_pattern, "patterns in the conditions of joins"),
        links: &["https://www.postgresql.org/docs/current/indexes-opclass.html"],
    },
    Rule {
        id: "PLAN-81",
        title: "a condition takes advisory locks while rows are looked through",
        needs: NEEDS,
        limits: "10 % of the session time in a statement whose condition calls pg_try_advisory_lock or the like for the rows that a scan reads (ours)",
        judge: |case| judge(case, locks_rows, "advisory locks in the conditions of scans"),
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS"],
    },
    Rule {
        id: "PLAN-82",
        title: "each row of one table is combined with each row of another",
        needs: NEEDS,
        limits: "10 % of the session time in a nested loop without a condition, or with one that has no equality, over 100,000 pairs of rows or more, 100 for \
            each row that is returned, and 10 rows or more on each side (ours)",
        judge: |case| judge(case, combined, "nested loops without an equality"),
        links: &["https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-JOIN"],
    },
];

/// Rows of which each is work.
const ROWS_MIN: f64 = 1_000.0;
/// Blocks of an execution that reads them.
const BLOCKS_MIN: f64 = 100.0;
/// Rows that a window reads, for each one that is returned.
const ROWS_PER_RESULT_MIN: f64 = 10.0;
/// Rows of a scan that fit, of those that it reads.
const KEPT_SHARE_MIN: f64 = 0.1;
/// Characters of a condition in a claim.
const CONDITION_CHARS: usize = 120;

/// Whether one of these rules explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    // A window over all rows needs them, so that no index in the order of the page spares any.
    let looks = [correlated, joined_by_pattern, locks_rows, combined];
    counted_page(planned).is_some() || looks.iter().any(|look| look(case, planned).is_some())
}

/// A part of a plan with all below it, in the order of EXPLAIN.
fn tree_of<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Vec<Thing<'a>> {
    let (mut open, mut found) = (vec![node], vec![]);
    while let Some(node) = open.pop() {
        let mut inside: Vec<Thing<'a>> = below(planned, &node).collect();
        inside.reverse();
        open.extend(inside);
        found.push(node);
    }
    found
}

/// The first table in a part of a plan.
fn first_table<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Option<Thing<'a>> {
    tree_of(planned, node).into_iter().find(|node| !node.lines.word("relation").is_empty())
}

/// The counters of a table, in the database of the statement.
fn counters<'a>(case: &'a Case, planned: &Planned<'a>, relation: &str) -> Option<Thing<'a>> {
    let wanted = planned.statement.database.as_str();
    case.at("table", planned.time.node.as_str()).find(|table| {
        let database = table.lines.word("database");
        table.lines.word("relation") == relation
            && (database.is_empty() || wanted.is_empty() || database == wanted)
    })
}

/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

/// How often a subquery can have run for the rows that a scan reads: each run touches a block, beside those of the table. Where nothing else is compared,
/// it runs for each row; else the cheaper conditions are looked at first, and only what fits them reaches it. Without the counters that is not known.
fn runs(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>, rows: f64) -> Option<f64> {
    let is_joined = [" AND ", " OR ", "CASE "].iter().any(|word| scan.lines.word("filter").contains(word));
    if !is_joined {
        return planned.statement.blocks.is_none_or(|blocks| blocks >= rows).then_some(rows);
    }
    let table = counters(case, planned, scan.lines.word("relation"))?;
    let of_table = table.lines.last("bytes")? / BLOCK_BYTES;
    let most = (planned.statement.blocks? - of_table).min(rows);
    (most >= ROWS_MIN).then_some(most)
}

/// Rows that a scan reads before it filters them: all of the table, or those that the search of a bitmap finds.
fn read(planned: &Planned<'_>, scan: &Thing<'_>) -> Option<f64> {
    match scan.lines.word("kind") {
        "Seq Scan" => Some(number(scan, "table_rows")),
        "Bitmap Heap Scan" => bitmap(planned, scan).map(|search| number(&search, "rows_planned")),
        _ => None,
    }
}

/// The search of an index whose bitmap a scan reads.
fn bitmap<'a>(planned: &Planned<'a>, scan: &Thing<'_>) -> Option<Thing<'a>> {
    below(planned, scan).find(|one| one.lines.word("kind") == "Bitmap Index Scan")
}

/// PLAN-76. A hashed subquery is run once.
fn correlated(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    planned.nodes.iter().find_map(|node| {
        let filter = node.lines.word("filter");
        let rows = read(planned, node)?;
        let is_each = filter.contains("(SubPlan") && !filter.contains("hashed SubPlan") && !filter.contains("NOT (SubPlan");
        if !is_each || rows < ROWS_MIN {
            return None;
        }
        let runs = runs(case, planned, node, rows)?;
        let mut subqueries = below(planned, node).filter(|one| one.lines.flag("subquery") == Some(true));
        // One without a column of the outer table is run once.
        let alias = format!("{}.", node.lines.word("alias"));
        let inner = subqueries.find_map(|one| {
            let is_correlated = tree_of(planned, one).iter().any(|part| {
                part.lines.word("condition").contains(&alias) || part.lines.word("filter").contains(&alias)
            });
            first_table(planned, one).filter(|_| is_correlated)
        })?;
        // A missing index of the subquery is what other rules report.
        let of_bitmap = bitmap(planned, &inner);
        let index = of_bitmap.as_ref().unwrap_or(&inner).lines.word("index");
        if index.is_empty() {
            return None;
        }
        let each = if filter.contains(" AND ") { "each of up to" } else { "each of" };
        let (outer, of_inner) = (node.lines.word("relation"), inner.lines.word("relation"));
        let text = format!(
            "a statement that takes {} of the session time runs a correlated subquery on {of_inner} once for {each} {} rows of {outer}: {}",
            planned.share(),
            units::count(runs),
            plain(filter, CONDITION_CHARS)
        );
        Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_of_table", rows)
                .because(format!(
                    "SubPlan in the filter of a scan is run row by row; it reads {of_inner} by {} {index}",
                    inner.lines.word("kind"),
                ))
                .because(planned.file())
                .not("a missing index of the subquery: it uses one, but so many times")
                .remedy(
                    "compute it once for all rows: join with a grouped subquery (SELECT key, max(...) GROUP BY key), take the newest row of each key with \
                     DISTINCT ON (key) ... ORDER BY key, time DESC, or keep the present state in a table of its own",
                    &[&explain_it(case, &planned.time.node, planned.statement)],
                ),
        )
    })
}

/// The call of a window function over all rows in a text, as in `count(*) OVER ()`.
fn over_all(text: &str) -> Option<String> {
    let text = lowered(text);
    let at = text.match_indices(" over").map(|(at, _)| at).find(|at| {
        let rest: String =
            text[at + " over".len()..].chars().filter(|c| !c.is_whitespace()).take(2).collect();
        rest == "()" && text[..*at].ends_with(')')
    })?;
    let open = text[..at].rfind('(')?;
    let name = text[..open].rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    let call = &text[open - name.len()..at];
    // An argument may have parentheses of its own.
    let is_whole = call.matches('(').count() == call.matches(')').count() && !name.is_empty();
    Some(if is_whole { format!("{call} OVER ()") } else { "OVER ()".to_string() })
}

/// Whether no index could deliver the rows of a scan in the order in which the plan sorts them: without the window all of them are read as well.
fn is_sorted_anyway(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>) -> bool {
    let is_above = |node: &&Thing<'_>| {
        let inside = tree_of(planned, **node);
        inside.iter().any(|part| number(part, "number") == number(scan, "number"))
    };
    let mut sorts = planned.nodes.iter().filter(|node| node.lines.word("kind").ends_with("Sort"));
    let Some(sort) = sorts.find(is_above) else { return false };
    let column = |key: &str| {
        let name = key.split(' ').next().unwrap_or_default();
        name.rsplit('.').next().unwrap_or_default().trim_matches('"').to_string()
    };
    let first = sort.lines.word("condition").split(", ").next().unwrap_or_default();
    let wanted = column(first);
    let texts = [scan.lines.word("condition"), scan.lines.word("filter")];
    let is_fixed = |name: &str| {
        texts.iter().any(|text| {
            let all = statement::conditions(text).unwrap_or_default();
            all.iter().any(|one| one.column == name && one.how == Use::Equality)
        })
    };
    let in_order = |columns: &[&str]| {
        let at = columns.iter().position(|one| column(one) == wanted);
        at.is_some_and(|at| columns[..at].iter().all(|one| is_fixed(&column(one))))
    };
    // What is computed is in the order of no column.
    let is_column = !first.contains('(');
    let relation = scan.lines.word("relation");
    !is_column || !indexes(case, planned, relation).iter().any(|(_, columns)| in_order(columns))
}

/// A count over all rows that fit below a LIMIT: its call, the scan, the rows that it counts, and those that are returned.
fn counted_page<'a>(planned: &Planned<'a>) -> Option<(String, Thing<'a>, f64, f64)> {
    let call = over_all(&planned.statement.text)?;
    let window = planned
        .nodes
        .iter()
        .find(|node| node.lines.word("kind") == "WindowAgg" && planned.above(node).contains(&"Limit"))?;
    let (rows, returned) = (number(window, "rows_planned"), planned.statement.rows.unwrap_or(1.0).max(1.0));
    let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    if rows < ROWS_MIN || rows < returned * ROWS_PER_RESULT_MIN || !is_touching {
        return None;
    }
    // Groups and their aggregates need all rows anyway; and a scan for a few rows lacks an index first.
    let is_grouped = tree_of(planned, *window)
        .iter()
        .any(|part| ["Aggregate", "Group"].contains(&part.lines.word("kind")));
    let scan = first_table(planned, *window)?;
    let is_for_few =
        scan.lines.word("kind") == "Seq Scan" && rows < number(&scan, "table_rows") * KEPT_SHARE_MIN;
    (!is_grouped && !is_for_few && call.starts_with("count(")).then_some((call, scan, rows, returned))
}

/// PLAN-77.
fn windowed(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let (call, scan, rows, returned) = counted_page(planned)?;
    if is_sorted_anyway(case, planned, &scan) {
        return None;
    }
    let is_scan = scan.lines.word("kind") == "Seq Scan";
    let relation = scan.lines.word("relation");
    let text = format!(
        "a statement that takes {} of the session time reads all rows of {relation} that fit, about {}, to return {}: {call} is a window over all of them, \
         which is computed before the LIMIT, so that it cannot stop after the page",
        planned.share(),
        units::count(rows),
        units::short(returned)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_planned", rows)
            .because("the plan has WindowAgg below Limit: every row that fits passes it, and is kept until the last one has come")
            .because(planned.file())
            .with((!is_scan).then_some("a missing index: one in the order of the page would let a LIMIT without the window stop early"), Claim::not)
            .remedy(
                "leave the window out, and fetch one row more than a page has, to know whether there is a next one; count separately and seldom, up to a limit \
                 (SELECT count(*) FROM (SELECT 1 ... LIMIT 1001) part), or show the planner's estimate",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

/// Functions that take advisory locks; each has a variant for shared locks as well.
const LOCKS: [&str; 4] =
    ["pg_advisory_lock", "pg_advisory_xact_lock", "pg_try_advisory_lock", "pg_try_advisory_xact_lock"];

/// Whether a condition calls one of them: a column may have such a word in its name, and another function gives a lock back.
fn takes_lock(filter: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || "_$\"".contains(c);
    LOCKS.iter().any(|name| {
        filter.match_indices(name).any(|(at, _)| {
            let rest = &filter[at + name.len()..];
            !filter[..at].ends_with(is_name) && rest.strip_prefix("_shared").unwrap_or(rest).starts_with('(')
        })
    })
}

/// A scan of a table that takes locks. Rows that a subquery has chosen are no scan, nor are those that are looked up for the rows that a LIMIT left.
fn scan_with_lock<'a, 'b>(planned: &'b Planned<'a>) -> Option<&'b Thing<'a>> {
    let limits = planned.nodes.iter().filter(|node| node.lines.word("kind") == "Limit").count();
    planned.nodes.iter().find(|node| {
        let above = planned.above(node).iter().filter(|kind| **kind == "Limit").count();
        let is_of_chosen = above < limits && !node.lines.word("condition").is_empty();
        takes_lock(node.lines.word("filter")) && !node.lines.word("relation").is_empty() && !is_of_chosen
    })
}

/// PLAN-81. The server may evaluate the condition for any row before it sorts and cuts off.
fn locks_rows(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let node = scan_with_lock(planned)?;
    let filter = node.lines.word("filter");
    let relation = planned.relation_of(node);
    let is_cut = planned.above(node).contains(&"Limit");
    let sorted = planned.above(node).iter().any(|kind| kind.ends_with("Sort"));
    let why = match (is_cut, sorted) {
        (true, true) => ", and all rows are locked before they are sorted and LIMIT keeps one",
        (true, false) => ", also for rows that LIMIT does not keep",
        (false, _) => "",
    };
    let text = format!(
        "a statement that takes {} of the session time takes an advisory lock for each row of {relation} that it looks at, not only for those that it \
            returns{why}: \
         {}",
        planned.share(),
        plain(filter, CONDITION_CHARS)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_planned", number(node, "rows_planned"))
            .because("the lock is part of the filter of a scan: other sessions find all of these rows locked, and the table of locks fills")
            .because(planned.file())
            .remedy(
                "take rows from a queue with FOR UPDATE SKIP LOCKED and LIMIT, which locks only what it returns; or choose the rows in a subquery with \
                    LIMIT first \
                 (WITH next AS MATERIALIZED (SELECT ... LIMIT 10)) and lock those",
                &[
                    "SELECT pid, count(*) FROM pg_locks WHERE locktype = 'advisory' GROUP BY pid ORDER BY 2 DESC LIMIT 10;",
                    &explain_it(case, &planned.time.node, planned.statement),
                ],
            ),
    )
}

/// Operators that compare with a pattern, as EXPLAIN writes them.
const PATTERNS: [&str; 5] = [" ~~* ", " ~~ ", " ~* ", " ~ ", " ^@ "];

/// A column that is compared with a pattern of another table's: its alias, its name, and the pattern's alias.
fn pattern_of_join(condition: &str) -> Option<(&str, &str, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || "_.\"".contains(c);
    let (left, right) = PATTERNS.iter().find_map(|operator| condition.split_once(operator))?;
    let own = [" AND ", " OR "].iter().fold(left, |own, word| own.rsplit(word).next().unwrap_or(own));
    // A cast may follow the name.
    let (alias, column) = own.rsplit(|c| !is_name(c)).find(|word| word.contains('.'))?.rsplit_once('.')?;
    let right = [" AND ", " OR "].iter().fold(right, |right, word| right.split(word).next().unwrap_or(right));
    let other = right.split(|c| !is_name(c)).find_map(|word| word.rsplit_once('.'))?.0;
    let is_alias = other.chars().next().is_some_and(|c| !c.is_ascii_digit());
    (other != alias && is_alias).then_some((alias, column.trim_matches('"'), other))
}

/// PLAN-78.
fn joined_by_pattern(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let of_alias =
        |alias: &str| planned.nodes.iter().find(|node| node.lines.word("alias") == alias.trim_matches('"'));
    let (condition, node, column) = planned.nodes.iter().find_map(|join| {
        let condition = join.lines.word("filter");
        // Otherwise only rows that fit another condition are compared.
        if join.lines.word("kind") != "Nested Loop" || condition.contains(" = ") {
            return None;
        }
        let (alias, column, other) = pattern_of_join(condition)?;
        let (own, _) = (of_alias(alias)?, of_alias(other)?);
        (number(own, "table_rows") >= ROWS_MIN).then_some((condition, own, column))
    })?;
    let (relation, rows) = (node.lines.word("relation"), number(node, "table_rows"));
    let indexes = indexes(case, planned, relation);
    let index = indexes.iter().find(|(_, columns)| columns.first() == Some(&column));
    let obstacle = index.map_or(String::new(), |(index, _)| {
        format!(", although there is index {} on it: a B-tree is searched for the beginning of a constant pattern alone", index.lines.word("index"))
    });
    let text = format!(
        "a statement that takes {} of the session time compares all {} rows of {relation} with a pattern that comes from another table and is no constant when \
         it is planned: {}{obstacle}",
        planned.share(),
        units::count(rows),
        plain(condition, CONDITION_CHARS)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_of_table", rows)
            .because("the plan has it as the filter of a join (a nested loop): each row of one side with each of the other")
            .because(planned.file())
            .remedy(
                "read the pattern first and send it as a value, or write the prefix as a range that a B-tree in the order of C can search: column >= \
                    prefix AND \
                 column < prefix || chr(1114111), the last character of UTF8 (a database with an encoding of one byte has chr(255)); an index of \
                 trigrams (GIN, pg_trgm) serves such a join, and for the beginning of texts SP-GiST with \
                 ^@; for paths of a tree, ltree with GiST, or the pairs of ancestor and descendant in a table of their own",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

/// Pairs of rows.
const PAIRS_MIN: f64 = 100_000.0;
/// Pairs for each row that is returned.
const PAIRS_PER_RESULT_MIN: f64 = 100.0;

/// Rows of a side: with fewer there is little more to do than for the rows of the other side.
const SIDE_ROWS_MIN: f64 = 10.0;

/// Rows of a side of a join. For a table that was never analysed the planner assumes ten pages, so that what its counters have is the truth; without
/// them it is not known.
fn rows_of_side(case: &Case, planned: &Planned<'_>, side: Thing<'_>) -> f64 {
    let expected = number(&side, "rows_planned").max(1.0);
    let parts = tree_of(planned, side);
    let tables = parts.iter().filter(|part| !part.lines.word("relation").is_empty());
    let unknown = tables.filter(|part| part.lines.last("table_rows").is_none_or(|rows| rows < 0.0));
    let most = unknown.map(|part| {
        let table = counters(case, planned, part.lines.word("relation"));
        table.and_then(|table| table.lines.last("live_rows")).unwrap_or(0.0)
    });
    most.fold(expected, f64::min)
}

/// PLAN-82.
fn combined(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    planned.nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop").find_map(|join| {
        let condition = join.lines.word("filter");
        let sides: Vec<Thing<'_>> = inputs(planned, join).collect();
        let [outer, inner] = sides.as_slice() else { return None };
        let (left, right) = (rows_of_side(case, planned, *outer), rows_of_side(case, planned, *inner));
        let pairs = left * right;
        let is_plain = !condition.contains(" = ") && !condition.contains(" OR ") && pattern_of_join(condition).is_none();
        let is_much = pairs >= PAIRS_MIN && pairs >= planned.statement.rows.unwrap_or(1.0).max(1.0) * PAIRS_PER_RESULT_MIN;
        // An index that is searched for each row of the other side is a condition as well.
        let aliases: Vec<String> = tree_of(planned, *outer).iter().map(|part| format!("{}.", part.lines.word("alias"))).collect();
        let is_looked_up = tree_of(planned, *inner).iter().any(|part| {
            let texts = [part.lines.word("condition"), part.lines.word("filter")];
            aliases.iter().any(|alias| alias.len() > 1 && texts.iter().any(|text| text.contains(alias.as_str())))
        });
        if !is_plain || !is_much || left.min(right) < SIDE_ROWS_MIN || is_looked_up || !["", "Left"].contains(&join.lines.word("join")) {
            return None;
        }
        let name = |side: &Thing<'_>| {
            first_table(planned, *side).map_or("a function or VALUES".to_string(), |node| node.lines.word("relation").to_string())
        };
        let how = match condition.is_empty() {
            true => "no condition joins them: a cross product".to_string(),
            false => format!("the condition that joins them has no equality: {}", plain(condition, CONDITION_CHARS)),
        };
        let text = format!(
            "a statement that takes {} of the session time combines every row of {} with every row of {}, about {} pairs for {} rows of the result; {how}",
            planned.share(),
            name(outer),
            name(inner),
            units::count(pairs),
            units::short(planned.statement.rows.unwrap_or(0.0))
        );
        let remedy = if condition.is_empty() {
            "add the condition that joins the tables, if it was forgotten (DISTINCT and GROUP BY hide that), or leave the table out; what is only looked \
                for belongs \
             into EXISTS"
        } else {
            "join by an equality: round both sides to the same steps (date_trunc, a column of the hour) and compare those; for ranges an index on the \
                compared column \
             or expression, so that each row looks up its part, or a range type with GiST"
        };
        Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("pairs", pairs)
                .because("the plan has a nested loop whose inner side does not depend on the outer row")
                .because(planned.file())
                .not("a missing index for an equality: there is none between the two")
                .remedy(remedy, &[&explain_it(case, &planned.time.node, planned.statement)]),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_over_all_rows_are_found_with_their_call() {
        for (text, call) in [
            ("SELECT a, COUNT(*) OVER() AS n FROM t LIMIT 5", Some("count(*) OVER ()")),
            ("select sum(coalesce(x, $1)) over ( ) from t", Some("OVER ()")),
            ("select row_number() over (order by a) from t", None),
            ("select discover() from t", None),
        ] {
            assert_eq!(over_all(text).as_deref(), call, "{text}");
        }
    }

    #[test]
    fn a_lock_is_taken_by_a_call_and_not_by_a_name() {
        for (filter, takes) in [
            ("pg_try_advisory_xact_lock(j.id)", true),
            ("((state = $1) AND pg_catalog.pg_advisory_lock_shared((id)::bigint))", true),
            ("(advisory_level = $1)", false),
            ("(pg_advisory_lock = $1)", false),
            ("pg_advisory_unlock(id)", false),
            ("my_pg_advisory_lock(id)", false),
        ] {
            assert_eq!(takes_lock(filter), takes, "{filter}");
        }
    }

    #[test]
    fn a_pattern_of_another_table_is_one_of_a_join() {
        assert_eq!(pattern_of_join("(u.path ~~ (r.path || $2))"), Some(("u", "path", "r")));
        assert_eq!(
            pattern_of_join("((b.no = $1) AND ((l.\"Code\")::text ~ (b.rule)::text))"),
            Some(("l", "Code", "b"))
        );
        assert_eq!(pattern_of_join("(u.path ~~ $1)"), None);
        assert_eq!(pattern_of_join("(u.path ~~ (u.other || $2))"), None);
        assert_eq!(pattern_of_join("(u.price ~ 1.5)"), None);
    }
}
