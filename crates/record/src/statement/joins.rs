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

/// The joins of a statement's top queries, and of those in WITH and FROM, that have an OR between columns of two tables and no equality of these.
pub(super) fn all(statement: &Statement) -> Vec<OrJoin> {
    let mut found = vec![];
    if let Statement::Query(query) = statement {
        in_query(query, &mut found, 0);
    }
    found
}

fn in_query(query: &sqlparser::ast::Query, found: &mut Vec<OrJoin>, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    for with in query.with.iter().flat_map(|with| &with.cte_tables) {
        in_query(&with.query, found, depth + 1);
    }
    in_body(&query.body, found, depth + 1);
}

fn in_body(body: &SetExpr, found: &mut Vec<OrJoin>, depth: usize) {
    match body {
        _ if depth > WALK_DEPTH_MAX => {}
        SetExpr::Select(select) => in_select(select, found, depth),
        SetExpr::Query(query) => in_query(query, found, depth + 1),
        SetExpr::SetOperation { left, right, .. } => {
            in_body(left, found, depth + 1);
            in_body(right, found, depth + 1);
        }
        _ => {}
    }
}

fn in_select(select: &Select, found: &mut Vec<OrJoin>, depth: usize) {
    let mut conjuncts = vec![];
    for table in &select.from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::Derived { subquery, .. } = factor {
                in_query(subquery, found, depth + 1);
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
    use crate::statement::or_joins;

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
