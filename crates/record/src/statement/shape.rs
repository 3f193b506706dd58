//! What the form of a statement shows of its work: results that are counted, ordered, numbered or cut in ways that no index shortens.
//!
//! As in [`super::walk`], parts that are not understood are skipped: an absent mark proves nothing.

use super::WALK_DEPTH_MAX;
use super::walk;
use sqlparser::ast::{
    self, CteAsMaterialized, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, InTarget, LimitClause, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor,
};

/// The form of a SELECT. Every mark is about the outermost SELECT unless it names another part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Its only column is a `count` of rows, without GROUP BY.
    pub counts_rows: bool,
    /// Its only column compares a `count` of rows with a constant, without GROUP BY, or one of its columns or its WHERE does so with the count of a subquery:
    /// it asks whether there is any, or so many.
    pub asks_for_any: bool,
    /// It is a SELECT DISTINCT without GROUP BY and aggregates, or a GROUP BY that has the same effect: it returns columns alone, and has no HAVING.
    pub is_distinct: bool,
    /// It is the second of them.
    pub is_grouped_alone: bool,
    /// Tables of its FROM by their aliases, of which no column is returned; empty where a column is written without its table.
    pub only_joined: Vec<String>,
    /// Tables of its FROM by their aliases that are joined to the same column of another one, and not to each other: each row of one comes once for each of
    /// the others. Empty if there are not two of them.
    pub side_by_side: Vec<String>,
    /// It has GROUP BY or an aggregate.
    pub aggregates: bool,
    /// It has LIMIT or FETCH.
    pub is_limited: bool,
    /// Names of its result whose values are computed: an order by one of them is by no column of a table.
    pub computed_as: Vec<String>,
    /// `*` or `table.*` is among its columns.
    pub takes_all_columns: bool,
    /// `random()` is its order, or that of a subquery with LIMIT.
    pub is_in_random_order: bool,
    /// With LIMIT: the function that makes the first part of its order of at least one column.
    pub ordered_by_function: Option<String>,
    /// The function by which a subquery or WITH numbers its rows (`row_number`, `rank`, `dense_rank`).
    pub numbering: Option<String>,
    /// Columns by which they are numbered: PARTITION BY, then ORDER BY, as they are written.
    pub numbered_by: Vec<String>,
    /// Names of WITH that are declared MATERIALIZED.
    pub materialized: Vec<String>,
    /// Tables of subqueries among its columns.
    pub looked_up: Vec<String>,
    /// What `count(DISTINCT ...)` counts, as it is written; the last one, if there are several.
    pub counted_distinct: Option<String>,
    /// How many aggregates over DISTINCT values it has.
    pub distinct_counts: usize,
    /// Members of the longest list of IN or ARRAY.
    pub list_length: usize,
    /// The columns of which it returns only the least or the greatest value, without GROUP BY; empty if it returns anything else as well.
    pub extremes: Vec<String>,
    /// What it looks for the least or greatest value of, as it is written, if that is the only aggregate of its only column, without GROUP BY; what is done
    /// with the value does not matter.
    pub sought: Option<String>,
}

/// Aggregates of every day; a function of a user may be one, too.
const AGGREGATES: [&str; 14] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "array_agg",
    "string_agg",
    "json_agg",
    "jsonb_agg",
    "bool_and",
    "bool_or",
    "stddev",
    "variance",
    "percentile_cont",
];
/// Functions that number rows.
const NUMBERS: [&str; 3] = ["row_number", "rank", "dense_rank"];

pub(super) fn of(parsed: &ast::Statement) -> Shape {
    let mut shape = Shape::default();
    let ast::Statement::Query(query) = parsed else { return shape };
    shape.is_limited = is_limited(query);
    shape.ordered_by_function = ordered_by_function(query);
    top(&query.body, &mut shape, 0);
    below(query, &mut shape, 0);
    shape
}

/// The function of the first part of the order, written there or in the column that it names.
fn ordered_by_function(query: &Query) -> Option<String> {
    let OrderByKind::Expressions(by) = &query.order_by.as_ref()?.kind else { return None };
    let first = &by.first().filter(|_| is_limited(query))?.expr;
    let column = |name: &ast::Ident| match query.body.as_ref() {
        SetExpr::Select(select) => select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias == name => Some(expr),
            _ => None,
        }),
        _ => None,
    };
    let made = match first {
        Expr::Identifier(name) => column(name)?,
        made => made,
    };
    let Expr::Function(function) = made else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_column = |argument: &FunctionArg| {
        let (FunctionArg::Unnamed(FunctionArgExpr::Expr(one))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(one), .. }) = argument
        else {
            return false;
        };
        matches!(one, Expr::Identifier(name) if !name.value.starts_with('$'))
            || matches!(one, Expr::CompoundIdentifier(_))
    };
    list.args
        .iter()
        .any(is_column)
        .then(|| name_of(function))
        .filter(|name| !AGGREGATES.contains(&name.as_str()))
}

fn is_limited(query: &Query) -> bool {
    let by_limit = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, .. }) => limit.is_some(),
        Some(LimitClause::OffsetCommaLimit { .. }) => true,
        None => false,
    };
    by_limit || query.fetch.is_some()
}

/// Marks of the outermost SELECT.
fn top(body: &SetExpr, shape: &mut Shape, depth: usize) {
    match body {
        _ if depth > WALK_DEPTH_MAX => {}
        SetExpr::Select(select) => columns(select, shape),
        SetExpr::Query(query) => {
            shape.is_limited |= is_limited(query);
            top(&query.body, shape, depth + 1);
        }
        SetExpr::SetOperation { left, .. } => top(left, shape, depth + 1),
        _ => {}
    }
}

fn columns(select: &Select, shape: &mut Shape) {
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(by, _) => !by.is_empty(),
    };
    shape.aggregates |= grouped;
    if !grouped {
        let extremes: Option<Vec<String>> = select.projection.iter().map(extreme).collect();
        shape.extremes = extremes.unwrap_or_default();
        if let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
            select.projection.as_slice()
        {
            shape.sought = sought(expr, 0);
        }
    }
    let is_one = |distinct: &ast::Distinct| matches!(distinct, ast::Distinct::Distinct);
    let is_distinct = select.distinct.as_ref().is_some_and(is_one);
    shape.only_joined = only_joined(select).unwrap_or_default();
    shape.side_by_side = side_by_side(select);
    shape.computed_as = select.projection.iter().filter_map(computed_name).collect();
    shape.asks_for_any |= select.selection.as_ref().is_some_and(|expr| compares_subquery(expr, 0));
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => shape.takes_all_columns = true,
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                column(expr, shape, 0);
                let is_only = select.projection.len() == 1 && !grouped;
                shape.counts_rows |= is_only && is_count(expr);
                shape.asks_for_any |= is_only && compares_count(expr, is_count) || compares_subquery(expr, 0);
            }
            _ => {}
        }
    }
    shape.is_grouped_alone = grouped && select.having.is_none() && select.projection.iter().all(is_column);
    shape.is_distinct = is_distinct && !shape.aggregates || shape.is_grouped_alone;
}

/// Whether an item of a SELECT is a column, and nothing that is computed.
fn is_column(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            walk::plain_column(expr).is_some()
        }
        _ => false,
    }
}

/// The name of a computed column of the result: its alias, or that of its function.
fn computed_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            walk::plain_column(expr).is_none().then(|| walk::spelled(alias))
        }
        SelectItem::UnnamedExpr(Expr::Function(function)) => walk::parts(&function.name).pop(),
        _ => None,
    }
}

/// Whether an expression compares a count of rows with a constant.
fn compares_count(expr: &Expr, is_counted: fn(&Expr) -> bool) -> bool {
    use ast::BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => compares_count(inner, is_counted),
        Expr::BinaryOp { left, op: Gt | GtEq | Lt | LtEq | Eq | NotEq, right } => {
            let is_constant = |expr: &Expr| matches!(expr, Expr::Value(_));
            is_counted(left) && is_constant(right) || is_constant(left) && is_counted(right)
        }
        _ => false,
    }
}

/// Whether a part of a condition compares the count of a subquery with a constant.
fn compares_subquery(expr: &Expr, depth: usize) -> bool {
    let inside = |expr: &Expr| compares_subquery(expr, depth + 1);
    match expr {
        _ if depth > WALK_DEPTH_MAX => false,
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::UnaryOp { expr: inner, .. } => {
            inside(inner)
        }
        Expr::BinaryOp { left, op: ast::BinaryOperator::And | ast::BinaryOperator::Or, right } => {
            inside(left) || inside(right)
        }
        Expr::Case { conditions, .. } => conditions.iter().any(|when| inside(&when.condition)),
        _ => compares_count(expr, is_counted_below),
    }
}

/// Whether an expression is a subquery that only counts rows.
fn is_counted_below(expr: &Expr) -> bool {
    let Expr::Subquery(query) = expr else { return false };
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_whole = matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let [SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }] =
        select.projection.as_slice()
    else {
        return false;
    };
    is_whole && select.having.is_none() && is_count(column) && !select.from.is_empty()
}

/// Aliases of the tables of FROM of which no column is returned; `None` if a column is written without its table, or a part of FROM is no table.
fn only_joined(select: &Select) -> Option<Vec<String>> {
    let name = |ident: &ast::Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    let mut aliases = vec![];
    for table in &select.from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            let TableFactor::Table { name: named, alias, .. } = factor else { return None };
            let of_table = || named.0.last().and_then(|part| part.as_ident()).map(name);
            aliases.push(alias.as_ref().map(|alias| name(&alias.name)).or_else(of_table)?);
        }
    }
    let mut returned = vec![];
    for item in &select.projection {
        let table = match item {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))
            | SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(parts), .. } => {
                parts.len().checked_sub(2).map(|at| name(&parts[at]))?
            }
            SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(named), _) => {
                named.0.last().and_then(|part| part.as_ident()).map(name)?
            }
            _ => return None,
        };
        returned.push(table);
    }
    aliases.retain(|alias| !returned.contains(alias));
    Some(aliases)
}

/// A column with the table in front of it, as `(table, column)`.
fn column_of_table(expr: &Expr) -> Option<(String, String)> {
    let name = |ident: &ast::Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    match expr {
        Expr::Nested(inner) => column_of_table(inner),
        Expr::CompoundIdentifier(parts) => {
            let [.., table, column] = parts.as_slice() else { return None };
            Some((name(table), name(column)))
        }
        _ => None,
    }
}

/// The equalities between columns of two tables in the conditions of joins.
fn equalities(expr: &Expr, found: &mut Vec<[(String, String); 2]>, depth: usize) {
    match expr {
        _ if depth > WALK_DEPTH_MAX => {}
        Expr::Nested(inner) => equalities(inner, found, depth + 1),
        Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
            equalities(left, found, depth + 1);
            equalities(right, found, depth + 1);
        }
        Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => {
            found
                .extend(column_of_table(left).zip(column_of_table(right)).map(|(left, right)| [left, right]));
        }
        _ => {}
    }
}

fn side_by_side(select: &Select) -> Vec<String> {
    use ast::JoinConstraint::On;
    use ast::JoinOperator::{Inner, Join, Left, LeftOuter};
    let mut pairs = vec![];
    for join in select.from.iter().flat_map(|table| &table.joins) {
        if let Join(On(expr)) | Inner(On(expr)) | Left(On(expr)) | LeftOuter(On(expr)) = &join.join_operator {
            equalities(expr, &mut pairs, 0);
        }
    }
    pairs.extend(select.selection.iter().flat_map(|expr| {
        let mut of_where = vec![];
        equalities(expr, &mut of_where, 0);
        of_where
    }));
    // Both directions: what each column is joined to.
    let ends = pairs.iter().flat_map(|[left, right]| [(left, right), (right, left)]);
    let mut joined: std::collections::BTreeMap<&(String, String), Vec<&str>> = Default::default();
    for (at, other) in ends {
        joined.entry(at).or_default().push(other.0.as_str());
    }
    let are_joined = |one: &str, other: &str| {
        pairs
            .iter()
            .any(|[left, right]| (left.0 == one && right.0 == other) || (left.0 == other && right.0 == one))
    };
    let apart = |tables: &Vec<&str>| {
        let mut apart: Vec<String> = vec![];
        for table in tables {
            if !apart.iter().any(|other| other == table || are_joined(other, table)) {
                apart.push((*table).to_string());
            }
        }
        apart
    };
    let largest = joined.values().map(apart).max_by_key(Vec::len);
    largest.filter(|tables| tables.len() > 1).unwrap_or_default()
}

/// The column of which an item of a SELECT is the least or the greatest value.
fn extreme(item: &SelectItem) -> Option<String> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return None };
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = function.over.is_none() && function.filter.is_none() && list.args.len() == 1;
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = list.args.first()? else { return None };
    let column = match argument {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(names) => names.last()?,
        _ => return None,
    };
    let is_extreme = ["min", "max"].contains(&name_of(function).as_str());
    (is_plain && is_extreme).then(|| match column.quote_style {
        Some(_) => column.value.clone(),
        None => column.value.to_lowercase(),
    })
}

/// The function's name in lower case, without its schema.
fn name_of(function: &Function) -> String {
    let name = function.name.0.last().and_then(|part| part.as_ident());
    name.map_or(String::new(), |name| name.value.to_ascii_lowercase())
}

fn is_count(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let FunctionArguments::List(list) = &function.args else { return false };
    let counts = |argument: &FunctionArg| {
        matches!(
            argument,
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::Expr(Expr::Value(_)))
        )
    };
    name_of(function) == "count"
        && function.over.is_none()
        && function.filter.is_none()
        && list.args.iter().all(counts)
}

/// Some functions and types are written in capitals by the parser.
fn in_lower_case(sql: &str) -> String {
    let parts = sql.split('"').enumerate().map(|(at, part)| match at % 2 {
        0 => part.to_lowercase(),
        _ => part.to_string(),
    });
    parts.collect::<Vec<_>>().join("\"")
}

/// The argument of `min` or `max` in an expression that has no column outside of it.
fn sought(expr: &Expr, depth: usize) -> Option<String> {
    if depth > WALK_DEPTH_MAX {
        return None;
    }
    let is_value = |expr: &Expr| matches!(expr, Expr::Value(_));
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::UnaryOp { expr: inner, .. } => {
            sought(inner, depth + 1)
        }
        Expr::BinaryOp { left, right, .. } if is_value(right) => sought(left, depth + 1),
        Expr::BinaryOp { left, right, .. } if is_value(left) => sought(right, depth + 1),
        Expr::Function(function) if function.over.is_none() && function.filter.is_none() => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let plain = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) => Some(inner.clone()),
                _ => None,
            };
            let arguments: Vec<Expr> = list.args.iter().map(plain).collect::<Option<_>>()?;
            match (name_of(function).as_str(), arguments.as_slice()) {
                ("min" | "max", [argument]) => Some(in_lower_case(&argument.to_string())),
                ("coalesce" | "to_char" | "lpad" | "greatest" | "least" | "nullif", [first, rest @ ..])
                    if rest.iter().all(is_value) =>
                {
                    sought(first, depth + 1)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Aggregates and subqueries inside of a column.
fn column(expr: &Expr, shape: &mut Shape, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    match expr {
        Expr::Subquery(query) => shape.looked_up.extend(walk::tables(query)),
        Expr::Function(function) => {
            let name = name_of(function);
            shape.aggregates |= function.over.is_none() && AGGREGATES.contains(&name.as_str());
            let FunctionArguments::List(list) = &function.args else { return };
            let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
            shape.distinct_counts += usize::from(is_distinct);
            if is_distinct && name == "count" {
                let counted: Vec<String> = list.args.iter().map(ToString::to_string).collect();
                shape.counted_distinct = Some(counted.join(", "));
            }
            for argument in &list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) = argument {
                    column(inner, shape, depth + 1);
                }
            }
        }
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::UnaryOp { expr: inner, .. } => {
            column(inner, shape, depth + 1);
        }
        Expr::BinaryOp { left, right, .. } => {
            column(left, shape, depth + 1);
            column(right, shape, depth + 1);
        }
        _ => {}
    }
}

/// Marks of a query and all that it is made from.
fn below(query: &Query, shape: &mut Shape, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        if cte.materialized == Some(CteAsMaterialized::Materialized) {
            shape.materialized.push(cte.alias.name.value.clone());
        }
        numbered(&cte.query, shape);
        below(&cte.query, shape, depth + 1);
    }
    if let (true, Some(order)) = (is_limited(query), &query.order_by)
        && let OrderByKind::Expressions(by) = &order.kind
    {
        let is_random = |expr: &Expr| matches!(expr, Expr::Function(one) if name_of(one) == "random");
        shape.is_in_random_order |= by.iter().any(|one| is_random(&one.expr));
    }
    sets(&query.body, shape, depth + 1);
}

fn sets(body: &SetExpr, shape: &mut Shape, depth: usize) {
    match body {
        _ if depth > WALK_DEPTH_MAX => {}
        SetExpr::Query(query) => below(query, shape, depth + 1),
        SetExpr::SetOperation { left, right, .. } => {
            sets(left, shape, depth + 1);
            sets(right, shape, depth + 1);
        }
        SetExpr::Select(select) => {
            if let Some(selection) = &select.selection {
                lists(selection, shape, depth + 1);
            }
            let joined = |table: &'_ ast::TableWithJoins| {
                let joins = table.joins.iter().map(|join| join.relation.clone());
                std::iter::once(table.relation.clone()).chain(joins).collect::<Vec<_>>()
            };
            for factor in select.from.iter().flat_map(joined) {
                if let TableFactor::Derived { subquery, .. } = factor {
                    numbered(&subquery, shape);
                    below(&subquery, shape, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Lists of constants in a condition.
fn lists(expr: &Expr, shape: &mut Shape, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    match expr {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => lists(inner, shape, depth + 1),
        Expr::BinaryOp { left, right, .. } => {
            lists(left, shape, depth + 1);
            lists(right, shape, depth + 1);
        }
        Expr::AnyOp { right, .. } => lists(right, shape, depth + 1),
        Expr::In { target: InTarget::List(list), .. } => {
            shape.list_length = shape.list_length.max(list.len())
        }
        Expr::Array(array) => shape.list_length = shape.list_length.max(array.elem.len()),
        _ => {}
    }
}

/// A subquery that numbers its rows.
fn numbered(query: &Query, shape: &mut Shape) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    for item in &select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
        let Expr::Function(function) = expr else { continue };
        let name = name_of(function);
        let Some(over) = function.over.as_ref().filter(|_| NUMBERS.contains(&name.as_str())) else {
            continue;
        };
        if let ast::WindowType::WindowSpec(window) = over {
            let parts = window.partition_by.iter().map(ToString::to_string);
            let order = window.order_by.iter().map(ToString::to_string);
            shape.numbered_by = parts.chain(order).collect();
        }
        shape.numbering = Some(name);
    }
}
