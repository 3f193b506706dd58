//! PLAN-76 to PLAN-78: what is done for each row although few are wanted: a subquery in a condition, a window over all rows below a LIMIT, and a pattern that
//! comes from another table.

use super::index::indexes;
use super::{NEEDS, Planned, SHARE_MIN, below, number, planned, severity};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::{lowered, plain};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-76",
        title: "a subquery in a condition is run for each row",
        needs: NEEDS,
        limits: "10 % of the session time in a statement that scans 1,000 rows or more and compares each with a subquery of its own that is not hashed, and \
            touches a block for each (ours)",
        judge: |case| judge(case, correlated, "subqueries in the conditions of scans"),
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html"],
    },
    Rule {
        id: "PLAN-77",
        title: "a window over all rows keeps LIMIT from stopping early",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT that returns a tenth or less of the 1,000 rows or more below a window function over all \
            of them (OVER ()), and touches 100 blocks (ours)",
        judge: |case| judge(case, windowed, "window functions below LIMIT"),
        links: &["https://www.postgresql.org/docs/current/tutorial-window.html"],
    },
    Rule {
        id: "PLAN-78",
        title: "a pattern comes from another table, so that no index is searched for it",
        needs: NEEDS,
        limits: "10 % of the session time in a join that compares 1,000 rows or more with a pattern (LIKE, ~, starts_with) made of another table's column \
            (ours)",
        judge: |case| judge(case, joined_by_pattern, "patterns in the conditions of joins"),
        links: &["https://www.postgresql.org/docs/current/indexes-opclass.html"],
    },
];

/// Rows of which each is work.
const ROWS_MIN: f64 = 1_000.0;
/// Blocks of an execution that reads them.
const BLOCKS_MIN: f64 = 100.0;
/// Rows that a window reads, for each one that is returned.
const ROWS_PER_RESULT_MIN: f64 = 10.0;
/// Characters of a condition in a claim.
const CONDITION_CHARS: usize = 120;

type Look = fn(&Case, &Planned<'_>) -> Option<Claim>;

fn judge(case: &Case, look: Look, looked_at: &str) -> Answer {
    let claims = planned(case, SHARE_MIN).filter_map(|planned| look(case, &planned)).collect();
    Answer::of(claims, || looked_at.to_string())
}

/// Whether one of these rules explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    [correlated, windowed, joined_by_pattern].iter().any(|look| look(case, planned).is_some())
}

/// The first table in a part of a plan, with all below it.
fn first_table<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Option<Thing<'a>> {
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        if !node.lines.word("relation").is_empty() {
            return Some(node);
        }
        open.extend(below(planned, &node));
    }
    None
}

/// PLAN-76. A hashed subquery is run once.
fn correlated(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    planned.nodes.iter().find_map(|node| {
        let filter = node.lines.word("filter");
        let rows = number(node, "table_rows");
        let is_each = filter.contains("(SubPlan") && !filter.contains("hashed SubPlan") && !filter.contains("NOT (SubPlan");
        let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= rows);
        if !is_each || node.lines.word("kind") != "Seq Scan" || rows < ROWS_MIN || !is_touching {
            return None;
        }
        let mut subqueries = below(planned, node).filter(|one| one.lines.flag("subquery") == Some(true));
        let inner = subqueries.find_map(|one| first_table(planned, one))?;
        let (outer, of_inner) = (node.lines.word("relation"), inner.lines.word("relation"));
        let text = format!(
            "a statement that takes {} of the session time runs a correlated subquery on {of_inner} once for each of {} rows of {outer}: {}",
            planned.share(),
            units::count(rows),
            plain(filter, CONDITION_CHARS)
        );
        let by_index = !inner.lines.word("index").is_empty();
        Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_of_table", rows)
                .because(format!(
                    "SubPlan in the filter of a scan is run row by row; it reads {of_inner} by {} {}",
                    inner.lines.word("kind"),
                    inner.lines.word("index")
                ))
                .because(planned.file())
                .with(by_index.then_some("a missing index of the subquery: it uses one, but so many times"), Claim::not)
                .with((!by_index).then_some("whether an index on the compared columns would be enough"), Claim::lacking)
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

/// PLAN-77.
fn windowed(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
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
    let relation = first_table(planned, *window).map_or("", |node| node.lines.word("relation"));
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
            .not("a missing index: one in the order of the page would let a LIMIT without the window stop early")
            .remedy(
                "leave the window out, and fetch one row more than a page has, to know whether there is a next one; count separately and seldom, up to a limit \
                 (SELECT count(*) FROM (SELECT 1 ... LIMIT 1001) part), or show the planner's estimate",
                &[&explain_it(case, &planned.time.node, planned.statement)],
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
        let (alias, column, other) = pattern_of_join(condition)?;
        let (own, _) = (of_alias(alias)?, of_alias(other)?);
        (number(own, "table_rows") >= ROWS_MIN).then_some((condition, own, column))
    })?;
    let (relation, rows) = (node.lines.word("relation"), number(node, "table_rows"));
    let indexes = indexes(case, planned, relation);
    let index = indexes.iter().find(|(_, columns)| columns.first() == Some(&column));
    let obstacle = index.map_or(String::new(), |(index, _)| {
        format!(", although there is index {} on it: an index is searched for the beginning of a constant pattern alone", index.lines.word("index"))
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
                 column < prefix || chr(1114111); for paths of a tree, ltree with GiST, or the pairs of ancestor and descendant in a table of their own",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
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
