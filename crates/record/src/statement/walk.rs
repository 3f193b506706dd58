//! Collects tables and conditions from a parsed statement. It reads what conditions of an index can be made of; other parts are skipped, so what it returns
//! is never complete enough to decide about safety.

use super::{Condition, Statement, TableName, Use, Verb, WALK_DEPTH_MAX};
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, BinaryOperator, Delete, Expr, FromTable, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, InTarget, JoinConstraint, JoinOperator, ObjectName,
    OnConflictAction, OnInsert, Query, Select, SelectItem, SetExpr, TableFactor, TableObject, TableWithJoins,
    UnaryOperator, UpdateTableFromKind,
};
use sqlparser::tokenizer::Location;

#[derive(Default)]
struct Walk {
    tables: Vec<TableName>,
    conditions: Vec<Condition>,
    /// Names of WITH.
    named: Vec<String>,
    is_filtered: bool,
    assigned: Vec<String>,
    /// Where the tables without a schema stand in the text.
    places: Vec<(String, Location)>,
}

/// Where the tables without a schema stand in the text, as far as it is walked; the names of WITH excluded.
pub(super) fn places(parsed: &ast::Statement) -> Vec<(String, Location)> {
    let mut walk = Walk::default();
    walk.statement(parsed, 0);
    let Walk { mut places, named, .. } = walk;
    places.retain(|(name, _)| !named.contains(name));
    places
}

pub(super) fn statement(parsed: &ast::Statement) -> Statement {
    let mut walk = Walk::default();
    let verb = walk.statement(parsed, 0);
    let Walk { mut tables, conditions, named, is_filtered, assigned, .. } = walk;
    tables.retain(|table| table.schema.is_some() || !named.contains(&table.name));
    Statement { verb, tables, conditions, is_filtered, assigned }
}

/// Names of the tables of a query.
pub(super) fn tables(query: &Query) -> Vec<String> {
    let mut walk = Walk::default();
    walk.query(query, 0);
    walk.tables.into_iter().map(|table| table.name).collect()
}

pub(super) fn expression(parsed: &Expr) -> Vec<Condition> {
    let mut walk = Walk::default();
    walk.condition(parsed, 0);
    walk.conditions
}

/// Conditions on each side of the first OR that all rows must satisfy; empty if there is none.
pub(super) fn alternatives(parsed: &Expr) -> Vec<Vec<Condition>> {
    match parsed {
        Expr::Nested(inner) => alternatives(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let found = alternatives(left);
            if found.is_empty() { alternatives(right) } else { found }
        }
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => {
            let mut sides = vec![];
            divide(parsed, &mut sides);
            sides
        }
        _ => vec![],
    }
}

fn divide(parsed: &Expr, sides: &mut Vec<Vec<Condition>>) {
    match parsed {
        Expr::Nested(inner) => divide(inner, sides),
        Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
            divide(left, sides);
            divide(right, sides);
        }
        _ => sides.push(expression(parsed)),
    }
}

/// As the server spells it: without quotes in lower case.
pub(super) fn spelled(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// The parts of a name, as the server spells them.
pub(super) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident().map(spelled)).collect()
}

impl Walk {
    fn statement(&mut self, statement: &ast::Statement, depth: usize) -> Verb {
        match statement {
            ast::Statement::Query(query) => {
                let verb = match query.body.as_ref() {
                    SetExpr::Insert(_) => Verb::Insert,
                    SetExpr::Update(_) => Verb::Update,
                    SetExpr::Delete(_) => Verb::Delete,
                    SetExpr::Merge(_) => Verb::Merge,
                    SetExpr::Select(select) if select.into.is_some() => Verb::Other,
                    _ => Verb::Select,
                };
                self.query(query, depth);
                verb
            }
            ast::Statement::Insert(insert) => {
                if let TableObject::TableName(name) = &insert.table {
                    self.table(name, None);
                }
                if let Some(source) = &insert.source {
                    self.query(source, depth + 1);
                }
                if let Some(OnInsert::OnConflict(conflict)) = &insert.on
                    && let OnConflictAction::DoUpdate(update) = &conflict.action
                {
                    self.assign(&update.assignments);
                }
                Verb::Insert
            }
            ast::Statement::Update(update) => {
                self.from(&update.table, depth);
                if let Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) =
                    &update.from
                {
                    tables.iter().for_each(|table| self.from(table, depth));
                }
                self.assign(&update.assignments);
                self.filter(update.selection.as_ref(), depth);
                Verb::Update
            }
            ast::Statement::Delete(delete) => {
                self.delete(delete, depth);
                Verb::Delete
            }
            ast::Statement::Merge(merge) => {
                self.factor(&merge.table, depth);
                self.factor(&merge.source, depth + 1);
                self.filter(Some(&merge.on), depth);
                Verb::Merge
            }
            _ => Verb::Other,
        }
    }

    fn assign(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            let columns = match &assignment.target {
                AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
                AssignmentTarget::Tuple(names) => names.as_slice(),
            };
            self.assigned.extend(columns.iter().filter_map(|name| parts(name).pop()));
        }
    }

    fn delete(&mut self, delete: &Delete, depth: usize) {
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        for table in tables.iter().chain(delete.using.iter().flatten()) {
            self.from(table, depth);
        }
        self.filter(delete.selection.as_ref(), depth);
    }

    fn query(&mut self, query: &Query, depth: usize) {
        if depth > WALK_DEPTH_MAX {
            return;
        }
        for named in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.named.push(spelled(&named.alias.name));
            self.query(&named.query, depth + 1);
        }
        self.set(&query.body, depth + 1);
    }

    fn set(&mut self, set: &SetExpr, depth: usize) {
        if depth > WALK_DEPTH_MAX {
            return;
        }
        match set {
            SetExpr::Select(select) => self.select(select, depth),
            SetExpr::Query(query) => self.query(query, depth + 1),
            SetExpr::SetOperation { left, right, .. } => {
                self.set(left, depth + 1);
                self.set(right, depth + 1);
            }
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => {
                self.statement(statement, depth + 1);
            }
            SetExpr::Table(table) => {
                if let Some(name) = &table.table_name {
                    let schema = table.schema_name.as_ref().map(spelled);
                    self.tables.push(TableName { schema, name: spelled(name), alias: None });
                }
            }
            SetExpr::Values(_) => {}
        }
    }

    fn select(&mut self, select: &Select, depth: usize) {
        for table in &select.from {
            self.from(table, depth);
        }
        for item in &select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                self.subqueries(expr, depth + 1);
            }
        }
        self.filter(select.selection.as_ref(), depth);
        if let Some(having) = &select.having {
            self.subqueries(having, depth + 1);
        }
    }

    fn filter(&mut self, selection: Option<&Expr>, depth: usize) {
        if let Some(selection) = selection {
            self.is_filtered = true;
            self.condition(selection, depth + 1);
        }
    }

    fn from(&mut self, table: &TableWithJoins, depth: usize) {
        self.factor(&table.relation, depth);
        for join in &table.joins {
            self.factor(&join.relation, depth);
            let constraint = match &join.join_operator {
                JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::Left(on)
                | JoinOperator::LeftOuter(on)
                | JoinOperator::Right(on)
                | JoinOperator::RightOuter(on)
                | JoinOperator::FullOuter(on) => on,
                _ => continue,
            };
            match constraint {
                JoinConstraint::On(on) => self.filter(Some(on), depth),
                JoinConstraint::Using(columns) | JoinConstraint::UsingAlias(columns, _) => {
                    self.is_filtered = true;
                    for column in columns.iter().filter_map(|name| parts(name).pop()) {
                        self.conditions.push(Condition {
                            table: None,
                            column,
                            how: Use::Join,
                            inside: None,
                            computed: None,
                        });
                    }
                }
                JoinConstraint::Natural => self.is_filtered = true,
                JoinConstraint::None => {}
            }
        }
    }

    fn factor(&mut self, factor: &TableFactor, depth: usize) {
        if depth > WALK_DEPTH_MAX {
            return;
        }
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                self.table(name, alias.as_ref().map(|alias| spelled(&alias.name)));
            }
            TableFactor::Derived { subquery, .. } => self.query(subquery, depth + 1),
            TableFactor::NestedJoin { table_with_joins, .. } => self.from(table_with_joins, depth + 1),
            _ => {}
        }
    }

    fn table(&mut self, name: &ObjectName, alias: Option<String>) {
        if let [only] = name.0.as_slice()
            && let Some(only) = only.as_ident()
        {
            self.places.push((spelled(only), only.span.start));
        }
        let mut parts = parts(name);
        if let Some(name) = parts.pop() {
            self.tables.push(TableName { schema: parts.pop(), name, alias });
        }
    }

    /// A condition that must hold. Chains of AND lean to the left and may be long, so they are followed without recursion.
    fn condition(&mut self, expr: &Expr, depth: usize) {
        let mut parts = vec![];
        let mut rest = expr;
        loop {
            match rest {
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                    parts.push(right.as_ref());
                    rest = left;
                }
                Expr::Nested(inner) => rest = inner,
                _ => break,
            }
        }
        parts.push(rest);
        // In the order of the text.
        for part in parts.into_iter().rev() {
            self.single(part, depth + 1);
        }
    }

    fn single(&mut self, expr: &Expr, depth: usize) {
        if depth > WALK_DEPTH_MAX {
            return;
        }
        match expr {
            Expr::Nested(_) | Expr::BinaryOp { op: BinaryOperator::And, .. } => self.condition(expr, depth),
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => self.subqueries(expr, depth + 1),
            Expr::BinaryOp { left, op, right } => self.compared(left, op, right, depth),
            Expr::In { expr, target: InTarget::Subquery(subquery), negated, .. } => {
                self.column(expr, unless(*negated, Use::Join));
                self.query(subquery, depth + 1);
            }
            Expr::In { expr, negated, .. } => self.column(expr, unless(*negated, Use::Equality)),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                self.column(left, Use::Equality);
                self.subqueries(right, depth + 1);
            }
            Expr::IsNull(expr) => self.column(expr, Use::Equality),
            Expr::Between { expr, negated, .. } => self.column(expr, unless(*negated, Use::Range)),
            Expr::Like { expr, pattern, negated, .. } => {
                self.searched(expr, pattern, unless(*negated, Use::Pattern))
            }
            Expr::ILike { expr, pattern, negated, .. } => {
                self.searched(expr, pattern, unless(*negated, Use::AnyCase))
            }
            Expr::Exists { subquery, .. } => self.query(subquery, depth + 1),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => self.subqueries(expr, depth + 1),
            // A column alone is a condition if it is a boolean.
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.column(expr, Use::Other),
            _ => self.subqueries(expr, depth + 1),
        }
    }

    /// A column that is searched by a pattern. No index serves a pattern that is a column itself.
    fn searched(&mut self, expr: &Expr, pattern: &Expr, how: Use) {
        self.column(expr, if column_of(pattern).is_some() { Use::Other } else { how });
    }

    fn compared(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr, depth: usize) {
        let pattern = match op {
            BinaryOperator::PGLikeMatch | BinaryOperator::PGRegexMatch => Some(Use::Pattern),
            BinaryOperator::PGILikeMatch | BinaryOperator::PGRegexIMatch => Some(Use::AnyCase),
            _ => None,
        };
        if let Some(how) = pattern {
            self.searched(left, right, how);
            self.subqueries(right, depth + 1);
            return;
        }
        let how = match op {
            BinaryOperator::Eq => Use::Equality,
            BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
                Use::Range
            }
            _ => Use::Other,
        };
        let is_join = how == Use::Equality && column_of(left).is_some() && column_of(right).is_some();
        for side in [left, right] {
            self.column(side, if is_join { Use::Join } else { how });
            self.subqueries(side, depth + 1);
        }
    }

    fn column(&mut self, expr: &Expr, how: Use) {
        if let Some((table, column, inside)) = column_of(expr) {
            let computed = inside.as_ref().map(|_| without_table(&expr.to_string(), table.as_deref()));
            self.conditions.push(Condition { table, column, how, inside, computed });
        }
    }

    /// Tables and conditions of subqueries; columns that are compared below an OR or NOT do not count as conditions of an index.
    fn subqueries(&mut self, expr: &Expr, depth: usize) {
        if depth > WALK_DEPTH_MAX {
            return;
        }
        match expr {
            Expr::Subquery(query) => self.query(query, depth + 1),
            Expr::Exists { subquery, .. } => self.query(subquery, depth + 1),
            Expr::In { expr, target: InTarget::Subquery(subquery), .. } => {
                self.subqueries(expr, depth + 1);
                self.query(subquery, depth + 1);
            }
            Expr::Nested(expr) | Expr::UnaryOp { expr, .. } | Expr::Cast { expr, .. } => {
                self.subqueries(expr, depth + 1)
            }
            Expr::BinaryOp { left, right, .. } => {
                self.subqueries(left, depth + 1);
                self.subqueries(right, depth + 1);
            }
            Expr::Case { conditions, else_result, .. } => {
                for when in conditions {
                    self.subqueries(&when.condition, depth + 1);
                    self.subqueries(&when.result, depth + 1);
                }
                if let Some(result) = else_result {
                    self.subqueries(result, depth + 1);
                }
            }
            Expr::Function(function) => {
                for argument in arguments(function) {
                    self.subqueries(argument, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// An expression without the name of the table in front of its columns. Constants in quotes stay as they are.
fn without_table(text: &str, table: Option<&str>) -> String {
    let mut short = String::with_capacity(text.len());
    let prefixes = table.map(|table| [format!("{table}."), format!("{}.", super::columns::quoted(table))]);
    let mut rest = text;
    let mut is_constant = false;
    while let Some(next) = rest.chars().next() {
        let is_begin =
            !is_constant && !short.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"'));
        let found = prefixes.iter().flatten().find(|prefix| is_begin && rest.starts_with(prefix.as_str()));
        if let Some(prefix) = found {
            rest = &rest[prefix.len()..];
        } else {
            is_constant ^= next == '\'';
            short.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    short
}

fn unless(negated: bool, how: Use) -> Use {
    if negated { Use::Other } else { how }
}

/// The arguments of a call that are expressions.
pub(super) fn arguments(function: &ast::Function) -> impl Iterator<Item = &Expr> {
    let list = match &function.args {
        FunctionArguments::List(list) => list.args.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// A column: the name in front of it, its own, and what is computed from it.
type Found = (Option<String>, String, Option<String>);

/// The name of a column that is compared itself, and nothing computed from it.
pub(super) fn plain_column(expr: &Expr) -> Option<String> {
    column_of(expr).filter(|(_, _, inside)| inside.is_none()).map(|(_, column, _)| column)
}

/// The table in front of a column that one side of a comparison looks at; an empty name where none is written.
pub(super) fn table_of(expr: &Expr) -> Option<String> {
    column_of(expr).map(|(table, _, _)| table.unwrap_or_default())
}

/// The column that one side of a part of a condition looks at, and how that part compares it.
pub(super) fn condition_on(side: &Expr, whole: &Expr) -> Option<Condition> {
    let (table, column, inside) = column_of(side)?;
    let of_whole = expression(whole);
    let how = of_whole.iter().find(|one| one.column == column).map_or(Use::Other, |one| one.how);
    let computed = inside.as_ref().map(|_| without_table(&side.to_string(), table.as_deref()));
    Some(Condition { table, column, how, inside, computed })
}

/// The column of a compared expression. An expression over several columns has none.
fn column_of(expr: &Expr) -> Option<Found> {
    const STEPS_MAX: usize = 8;
    column_within(expr, STEPS_MAX)
}

fn column_within(expr: &Expr, steps: usize) -> Option<Found> {
    let steps = steps.checked_sub(1)?;
    // What is outermost is named.
    let within = |inner: &Expr, what: &dyn Fn() -> String| {
        let (table, column, _) = column_within(inner, steps)?;
        Some((table, column, Some(what())))
    };
    match expr {
        Expr::Nested(inner) => column_within(inner, steps),
        Expr::Identifier(name) => Some((None, spelled(name), None)),
        Expr::CompoundIdentifier(names) => {
            let mut names: Vec<String> = names.iter().map(spelled).collect();
            let column = names.pop()?;
            Some((names.pop(), column, None))
        }
        Expr::Cast { expr, data_type, .. } => {
            within(expr, &|| format!("a cast to {}", data_type.to_string().to_ascii_lowercase()))
        }
        Expr::AtTimeZone { timestamp, time_zone } if is_constant(time_zone) => {
            within(timestamp, &|| "AT TIME ZONE".to_string())
        }
        Expr::Collate { expr, collation } => within(expr, &|| format!("collation {collation}")),
        Expr::Function(function) => {
            let mut columns = arguments(function).filter_map(|argument| column_within(argument, steps));
            let (table, column, _) = columns.next()?;
            let name = function.name.to_string().to_ascii_lowercase();
            columns.next().is_none().then(|| (table, column, Some(format!("function {name}"))))
        }
        Expr::BinaryOp { left, right, .. } => match (is_constant(left), is_constant(right)) {
            (false, true) => within(left, &|| "an expression".to_string()),
            (true, false) => within(right, &|| "an expression".to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Nested(inner) => is_constant(inner),
        Expr::Cast { expr, .. } => matches!(expr.as_ref(), Expr::Value(_)),
        Expr::BinaryOp { left, right, .. } => {
            matches!((left.as_ref(), right.as_ref()), (Expr::Value(_), Expr::Value(_)))
        }
        _ => false,
    }
}
