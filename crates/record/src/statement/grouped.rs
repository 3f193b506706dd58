//! Expressions of a select list that GROUP BY, DISTINCT or ORDER BY repeat. `pg_stat_statements` gives each constant a number of its own, so that what is
//! grouped by, `date_trunc($3, at)`, is no longer what is selected, `date_trunc($1, at)`, and the server refuses the text (SQLSTATE 42803 and 42P10 of
//! parse_agg.c and parse_clause.c).

use sqlparser::ast::{self, Expr, GroupByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor};
use std::collections::BTreeMap;

/// Levels of queries in each other.
const DEPTH_MAX: usize = 20;

/// A parameter, and the one of the select list that stands for the same constant.
type Same = BTreeMap<usize, usize>;

/// The text with the parameters of the select list in expressions that repeat it, and with its parameters counted anew; as it is, where none does.
pub(super) fn unified(text: &str, parsed: &ast::Statement) -> String {
    let mut same = Same::new();
    match parsed {
        ast::Statement::Query(query) => in_query(query, 0, &mut same),
        ast::Statement::Insert(insert) => {
            insert.source.iter().for_each(|query| in_query(query, 0, &mut same));
        }
        _ => {}
    }
    if same.is_empty() {
        return text.to_owned();
    }
    let mut left: Vec<usize> =
        parameters(text).map(|(_, number)| *same.get(&number).unwrap_or(&number)).collect();
    left.sort_unstable();
    left.dedup();
    let mut found = String::with_capacity(text.len());
    let mut end = 0;
    for (at, number) in parameters(text) {
        let kept = *same.get(&number).unwrap_or(&number);
        let place = left.iter().position(|one| *one == kept).unwrap_or_default() + 1;
        found.push_str(&text[end..at]);
        found.push_str(&format!("${place}"));
        end = at + 1 + number.to_string().len();
    }
    found.push_str(&text[end..]);
    found
}

/// The places of the parameters of a text, and their numbers.
fn parameters(text: &str) -> impl Iterator<Item = (usize, usize)> {
    text.match_indices('$').filter_map(|(at, _)| {
        let digits = text[at + 1..].split(|c: char| !c.is_ascii_digit()).next()?;
        Some((at, digits.parse().ok()?))
    })
}

fn in_query(query: &Query, depth: usize, same: &mut Same) {
    if depth > DEPTH_MAX {
        return;
    }
    for named in query.with.iter().flat_map(|with| &with.cte_tables) {
        in_query(&named.query, depth + 1, same);
    }
    in_set(&query.body, depth + 1, same);
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else { return };
    if let OrderByKind::Expressions(keys) = &order.kind {
        keys.iter().for_each(|key| repeated(select, &key.expr, same));
    }
}

fn in_set(set: &SetExpr, depth: usize, same: &mut Same) {
    match set {
        SetExpr::Select(select) => in_select(select, depth, same),
        SetExpr::Query(query) => in_query(query, depth + 1, same),
        SetExpr::SetOperation { left, right, .. } if depth <= DEPTH_MAX => {
            in_set(left, depth + 1, same);
            in_set(right, depth + 1, same);
        }
        _ => {}
    }
}

fn in_select(select: &Select, depth: usize, same: &mut Same) {
    for table in &select.from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::Derived { subquery, .. } = factor {
                in_query(subquery, depth + 1, same);
            }
        }
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        keys.iter().for_each(|key| repeated(select, key, same));
    }
}

/// Notes the parameters of an expression that is one of the select list, or a part of one, but for their numbers.
fn repeated(select: &Select, key: &Expr, same: &mut Same) {
    let key = key.to_string();
    let (wanted, numbers) = (bare(&key), numbers(&key));
    if numbers.is_empty() {
        return;
    }
    for item in &select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
        let selected = expr.to_string();
        let shown = bare(&selected);
        let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '"' || c == '.';
        let place = shown.match_indices(&wanted).find(|(at, _)| {
            let after = &shown[at + wanted.len()..];
            !shown[..*at].ends_with(is_part_of_name) && !after.starts_with(is_part_of_name)
        });
        let Some((at, _)) = place else { continue };
        let before = shown[..at].matches('$').count();
        let theirs = parameters(&selected).skip(before).map(|(_, number)| number);
        for (own, their) in numbers.iter().zip(theirs).filter(|(own, their)| *own != their) {
            same.insert(*own, their);
        }
        return;
    }
}

/// An expression without the numbers of its parameters.
fn bare(expression: &str) -> String {
    let mut found = String::with_capacity(expression.len());
    let mut is_number = false;
    for c in expression.chars() {
        is_number = c == '$' || is_number && c.is_ascii_digit();
        if c == '$' || !is_number {
            found.push(c);
        }
    }
    found
}

fn numbers(expression: &str) -> Vec<usize> {
    parameters(expression).map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use crate::statement::plannable;

    #[test]
    fn what_is_grouped_by_is_what_is_selected() {
        for (text, expected) in [
            (
                "select date_trunc($1, at) d, count(*) from cdr where cell = $2 group by date_trunc($3, at) order by date_trunc($4, at)",
                "select date_trunc($1, at) d, count(*) from cdr where cell = $2 group by date_trunc($1, at) order by date_trunc($1, at)",
            ),
            // Those behind are counted anew, and parts of an expression count.
            (
                "select coalesce(a, $1) || $2, sum(n) from t group by coalesce(a, $3) having sum(n) > $4 limit $5",
                "select coalesce(a, $1) || $2, sum(n) from t group by coalesce(a, $1) having sum(n) > $3 limit $4",
            ),
            (
                "with x as (select width_bucket(v, $1, $2, $3) b, count(*) from m group by width_bucket(v, $4, $5, $6)) select * from x where b > $7",
                "with x as (select width_bucket(v, $1, $2, $3) b, count(*) from m group by width_bucket(v, $1, $2, $3)) select * from x where b > $4",
            ),
            (
                "select a, count(*) from t where b = $1 group by a",
                "select a, count(*) from t where b = $1 group by a",
            ),
            ("select f(a, $1) from t order by g(a, $2)", "select f(a, $1) from t order by g(a, $2)"),
            ("select xf($1, a) from t order by f($2, a)", "select xf($1, a) from t order by f($2, a)"),
        ] {
            assert_eq!(plannable(text).unwrap(), expected);
        }
    }
}
