//! Conditions between two tables that no join but a nested loop can use: hash and merge joins need columns that are equal.

use super::WALK_DEPTH_MAX;
use sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Select, SetExpr, Statement, TableFactor,
};
use std::collections::BTreeSet;

/// A condition by which two tables are joined, and which is an OR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrJoin {
    /// As SQL.
    pub text: String,
    /// The tables, as FROM has them; by its alias, what is none.
    pub tables: (String, String),
    /// It holds where two columns are equal, or both of them NULL.
    pub is_null_safe: bool,
}

/// A join that looks for the range of one table in which a column of the other lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeJoin {
    /// The table with the column, and the one with the ranges, as FROM has them.
    pub tables: (String, String),
    /// The column, as it is written.
    pub value: String,
    /// The ends of the ranges.
    pub ends: (String, String),
    /// A column of the table with the ranges that must be equal to one of the other.
    pub key: Option<String>,
}

/// The joins of a statement's top queries, and of those in WITH and FROM, that have an OR between columns of two tables and no equality of these.
pub(super) fn all(statement: &Statement) -> Vec<OrJoin> {
    let mut found = vec![];
    if let Statement::Query(query) = statement {
        in_query(query, &mut |select, conjuncts| or_joins(select, conjuncts, &mut found), 0);
    }
    found
}

/// The joins by a range of these queries.
pub(super) fn ranges(statement: &Statement) -> Vec<RangeJoin> {
    let mut found = vec![];
    if let Statement::Query(query) = statement {
        in_query(query, &mut |select, conjuncts| found.extend(range_join(select, conjuncts)), 0);
    }
    found
}

/// What looks at a SELECT with all that must hold of its rows.
type Look<'l> = dyn FnMut(&Select, &[&Expr]) + 'l;

fn in_query(query: &sqlparser::ast::Query, look: &mut Look<'_>, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    for with in query.with.iter().flat_map(|with| &with.cte_tables) {
        in_query(&with.query, look, depth + 1);
    }
    in_body(&query.body, look, depth + 1);
}

fn in_body(body: &SetExpr, look: &mut Look<'_>, depth: usize) {
    match body {
        _ if depth > WALK_DEPTH_MAX => {}
        SetExpr::Select(select) => in_select(select, look, depth),
        SetExpr::Query(query) => in_query(query, look, depth + 1),
        SetExpr::SetOperation { left, right, .. } => {
            in_body(left, look, depth + 1);
            in_body(right, look, depth + 1);
        }
        _ => {}
    }
}

fn in_select(select: &Select, look: &mut Look<'_>, depth: usize) {
    let mut conjuncts = vec![];
    for table in &select.from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::Derived { subquery, .. } = factor {
                in_query(subquery, look, depth + 1);
            }
        }
        for join in &table.joins {
            if let Some(expr) = condition_of(&join.join_operator) {
                split(expr, &mut conjuncts, 0);
            }
        }
    }
    if let Some(expr) = &select.selection {
        split(expr, &mut conjuncts, 0);
    }
    look(select, &conjuncts);
}

fn or_joins(select: &Select, conjuncts: &[&Expr], found: &mut Vec<OrJoin>) {
    let named = names(select);
    let equal: Vec<(String, String)> = conjuncts.iter().filter_map(|expr| equal_tables(expr)).collect();
    for expr in conjuncts {
        let Some(one) = or_join(expr) else { continue };
        if !equal.contains(&one.tables) {
            let (left, right) = one.tables;
            found.push(OrJoin { tables: (named_as(&named, left), named_as(&named, right)), ..one });
        }
    }
}

/// Columns of two tables, of which the first is less than the second, or equal.
fn less(expr: &Expr) -> Vec<(&Expr, &Expr)> {
    match expr {
        Expr::Nested(inner) => less(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Lt | BinaryOperator::LtEq, right } => vec![(left, right)],
        Expr::BinaryOp { left, op: BinaryOperator::Gt | BinaryOperator::GtEq, right } => vec![(right, left)],
        Expr::Between { expr, low, high, negated: false } => vec![(low, expr), (expr, high)],
        _ => vec![],
    }
}

fn range_join(select: &Select, conjuncts: &[&Expr]) -> Option<RangeJoin> {
    let named = names(select);
    let pairs: Vec<(&Expr, &Expr)> = conjuncts.iter().flat_map(|expr| less(expr)).collect();
    pairs.iter().find_map(|(low, value)| {
        let (of_ranges, of_value) = (table_of(low)?, table_of(value)?);
        let high = pairs.iter().find_map(|(other, high)| {
            let is_its =
                other.to_string() == value.to_string() && table_of(high).as_ref() == Some(&of_ranges);
            is_its.then_some(high)
        })?;
        if of_ranges == of_value || low.to_string() == high.to_string() {
            return None;
        }
        let key = conjuncts.iter().find_map(|expr| equal_column(expr, &of_ranges, &of_value));
        Some(RangeJoin {
            tables: (named_as(&named, of_value), named_as(&named, of_ranges)),
            value: value.to_string(),
            ends: (low.to_string(), high.to_string()),
            key,
        })
    })
}

/// The column of a table that must be equal to one of another.
fn equal_column(expr: &Expr, table: &str, other: &str) -> Option<String> {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = expr else {
        return match expr {
            Expr::Nested(inner) => equal_column(inner, table, other),
            _ => None,
        };
    };
    [(left, right), (right, left)].into_iter().find_map(|(own, its)| {
        let is_it = table_of(own).as_deref() == Some(table) && table_of(its).as_deref() == Some(other);
        is_it.then(|| own.to_string())
    })
}

/// What the aliases of a FROM stand for.
fn names(select: &Select) -> Vec<(String, String)> {
    let factors = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    let of_one = |factor: &TableFactor| match factor {
        TableFactor::Table { name, alias: Some(alias), .. } => {
            let alias = &alias.name;
            let short =
                if alias.quote_style.is_some() { alias.value.clone() } else { alias.value.to_lowercase() };
            Some((short, name.to_string()))
        }
        _ => None,
    };
    factors.filter_map(of_one).collect()
}

fn named_as(names: &[(String, String)], alias: String) -> String {
    names.iter().find(|(short, _)| *short == alias).map_or(alias, |(_, name)| name.clone())
}

fn condition_of(operator: &JoinOperator) -> Option<&Expr> {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    let (Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on)) =
        operator
    else {
        return None;
    };
    match on {
        JoinConstraint::On(expr) => Some(expr),
        _ => None,
    }
}

/// The parts that AND connects, all of which must hold.
fn split<'a>(expr: &'a Expr, found: &mut Vec<&'a Expr>, depth: usize) {
    connected_by(&BinaryOperator::And, expr, found, depth);
}

/// The parts that OR connects, one of which must hold.
fn parts<'a>(expr: &'a Expr, found: &mut Vec<&'a Expr>, depth: usize) {
    connected_by(&BinaryOperator::Or, expr, found, depth);
}

fn connected_by<'a>(wanted: &BinaryOperator, expr: &'a Expr, found: &mut Vec<&'a Expr>, depth: usize) {
    match expr {
        _ if depth > WALK_DEPTH_MAX => {}
        Expr::Nested(inner) => connected_by(wanted, inner, found, depth + 1),
        Expr::BinaryOp { left, op, right } if op == wanted => {
            connected_by(wanted, left, found, depth + 1);
            connected_by(wanted, right, found, depth + 1);
        }
        other => found.push(other),
    }
}

/// The table of a column that is written with it.
fn table_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => table_of(inner),
        Expr::CompoundIdentifier(names) => {
            let table = names.len().checked_sub(2).map(|at| &names[at])?;
            Some(if table.quote_style.is_some() { table.value.clone() } else { table.value.to_lowercase() })
        }
        _ => None,
    }
}

/// The two tables, in the order of their names, of which columns are equal.
fn equal_tables(expr: &Expr) -> Option<(String, String)> {
    let (left, right) = match expr {
        Expr::Nested(inner) => return equal_tables(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => (table_of(left)?, table_of(right)?),
        _ => return None,
    };
    (left != right).then(|| if left < right { (left, right) } else { (right, left) })
}

/// The tables of which a part wants columns to be NULL.
fn null_tables(expr: &Expr) -> Option<BTreeSet<String>> {
    let mut all = vec![];
    split(expr, &mut all, 0);
    let of_one = |expr: &&Expr| match expr {
        Expr::IsNull(inner) => table_of(inner),
        _ => None,
    };
    all.iter().map(of_one).collect()
}

fn or_join(expr: &Expr) -> Option<OrJoin> {
    let mut all = vec![];
    if let Expr::IsNotDistinctFrom(left, right) = expr {
        let (left, right) = (table_of(left)?, table_of(right)?);
        let tables = if left < right { (left, right) } else { (right, left) };
        return (tables.0 != tables.1).then(|| OrJoin { text: expr.to_string(), tables, is_null_safe: true });
    }
    parts(expr, &mut all, 0);
    if all.len() < 2 {
        return None;
    }
    let tables = all.iter().find_map(|part| {
        let mut within = vec![];
        split(part, &mut within, 0);
        within.into_iter().find_map(equal_tables)
    })?;
    let both: BTreeSet<String> = [tables.0.clone(), tables.1.clone()].into();
    let is_null_safe =
        all.len() == 2 && all.iter().any(|part| null_tables(part).is_some_and(|found| found == both));
    Some(OrJoin { text: expr.to_string(), tables, is_null_safe })
}

#[cfg(test)]
mod tests {
    use crate::statement::{or_joins, range_joins};

    fn of(text: &str) -> Vec<(String, String, bool)> {
        or_joins(text).into_iter().map(|one| (one.tables.0, one.tables.1, one.is_null_safe)).collect()
    }

    #[test]
    fn an_or_between_two_tables_that_have_nothing_equal_is_found() {
        let pair = |is_null_safe| vec![("fact".to_string(), "store".to_string(), is_null_safe)];
        for text in [
            "select s.a, sum(f.b) from fact f join store s on ((f.code = s.code) or ((f.code is null) and (s.code is null))) group by 1",
            "select 1 from fact f, store s where f.day > $1 and (s.code = f.code or f.code is null and s.code is null)",
            "select 1 from fact f join store s on f.code is not distinct from s.code",
            "with x as (select f.n from fact f left join store s on f.code = s.code or (s.code is null and f.code is null)) select sum(n) from x",
        ] {
            assert_eq!(of(text), pair(true), "{text}");
        }
        for text in [
            "select 1 from fact f join store s on f.code = s.code or f.old_code = s.code",
            "select 1 from (select 1 from fact f join store s on s.code = f.code or s.alias = f.code and s.open) x",
        ] {
            assert_eq!(of(text), pair(false), "{text}");
        }
    }

    #[test]
    fn a_join_by_a_range_has_both_ends_in_one_table() {
        let ends = |text: &str| {
            range_joins(text)
                .into_iter()
                .map(|one| (one.value, one.ends.0, one.ends.1, one.key))
                .collect::<Vec<_>>()
        };
        let wanted = |key: Option<&str>| {
            vec![(
                "c.at".to_string(),
                "t.valid_from".to_string(),
                "t.valid_to".to_string(),
                key.map(str::to_string),
            )]
        };
        for text in [
            "select sum(c.n * t.rate) from claim c join tariff t on t.code = c.code and c.at >= t.valid_from and c.at < t.valid_to where c.at > $1",
            "select 1 from claim c, tariff t where (c.code = t.code) and c.at between t.valid_from and t.valid_to",
        ] {
            assert_eq!(ends(text), wanted(Some("t.code")), "{text}");
        }
        let text = "select 1 from claim c join tariff t on (t.valid_from <= c.at) and (t.valid_to > c.at)";
        assert_eq!(ends(text), wanted(None));
        assert_eq!(range_joins(text)[0].tables, ("claim".to_string(), "tariff".to_string()));
        for text in [
            "select 1 from claim c join tariff t on t.code = c.code where c.at between $1 and $2",
            "select 1 from claim c join tariff t on t.code = c.code and c.at >= t.valid_from",
            "select 1 from claim c join tariff t on c.at >= t.valid_from join season s on c.at < s.valid_to",
            "select 1 from claim c where c.at between c.valid_from and c.valid_to",
        ] {
            assert!(ends(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn an_equality_beside_it_is_what_a_join_needs() {
        for text in [
            "select 1 from fact f join store s on f.shop = s.shop and (f.code = s.code or f.code is null and s.code is null)",
            "select 1 from fact f join store s on f.code = s.code where f.a = $1 or s.b = $2",
            "select 1 from fact f join store s on f.code = s.code where f.a = $1 or f.b = $2",
            "select 1 from fact f where f.a is not distinct from $1",
            "select 1 from fact f join store s on f.code = s.code or",
        ] {
            assert!(of(text).is_empty(), "{text}");
        }
    }
}
