//! The parts of a condition, all of which must hold, each with what kind of index could answer it.

use super::Condition;
use super::walk;
use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

/// How a part of a condition looks at its columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// A column, or what is computed from it, with a value or another table's column, as a B-tree compares.
    Compared,
    /// LIKE, ILIKE, `~`, `~*`.
    Pattern,
    /// `<>`, NOT IN, NOT LIKE, IS DISTINCT FROM: no index finds what is not somewhere in its order.
    Unequal,
    /// A boolean column alone, NOT in front of one, IS NOT TRUE and the like, IS NOT NULL: the same for each execution.
    Fixed,
    /// An operator that a B-tree does not know: its sign.
    Operator(String),
    /// OR.
    Either,
    /// Two columns of one table are compared with each other.
    Columns,
    /// A function alone, or what is not read.
    Other,
}

/// A part of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conjunct {
    /// As SQL.
    pub text: String,
    /// What kind of comparison it is.
    pub form: Form,
    /// The columns that it looks at, with what is computed from them; of OR and of functions none.
    pub columns: Vec<Condition>,
}

/// Chains of AND that are followed.
const PARTS_MAX: usize = 64;

/// The parts of an expression, in the order of the text.
pub(super) fn all(parsed: &Expr) -> Vec<Conjunct> {
    let (mut open, mut found) = (vec![parsed], vec![]);
    while let Some(next) = open.pop() {
        match next {
            Expr::Nested(inner) => open.push(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                open.push(right);
                open.push(left);
            }
            other if found.len() < PARTS_MAX => found.push(one(other)),
            _ => break,
        }
    }
    found
}

fn one(expr: &Expr) -> Conjunct {
    let (form, sides) = form_of(expr);
    let columns = sides.iter().filter_map(|side| walk::condition_on(side, expr)).collect();
    Conjunct { text: expr.to_string(), form, columns }
}

/// The form of one part, and the expressions on its sides.
fn form_of(expr: &Expr) -> (Form, Vec<&Expr>) {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => (Form::Either, vec![]),
        Expr::BinaryOp { left, op, right } => (of_operator(left, op, right), vec![left, right]),
        Expr::In { expr, negated, .. } | Expr::Between { expr, negated, .. } => {
            (if *negated { Form::Unequal } else { Form::Compared }, vec![expr])
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
            // The column may be the list that is looked into.
            let is_member = walk::plain_column(left).is_none() && walk::plain_column(right).is_some();
            match is_member {
                true => (Form::Operator("= ANY".to_string()), vec![right]),
                false => (Form::Compared, vec![left]),
            }
        }
        Expr::AnyOp { left, .. } | Expr::AllOp { left, .. } => (Form::Unequal, vec![left]),
        Expr::Like { expr, negated, .. } | Expr::ILike { expr, negated, .. } => {
            (if *negated { Form::Unequal } else { Form::Pattern }, vec![expr])
        }
        Expr::IsDistinctFrom(left, right) => (Form::Unequal, vec![left, right]),
        Expr::IsNull(inner) => (Form::Compared, vec![inner]),
        Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner) => (Form::Fixed, vec![inner]),
        Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => match unnested(inner) {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => (Form::Fixed, vec![inner]),
            Expr::IsDistinctFrom(..) | Expr::Exists { .. } => (Form::Other, vec![]),
            compared => (Form::Unequal, form_of(compared).1),
        },
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => (Form::Fixed, vec![expr]),
        _ => (Form::Other, vec![]),
    }
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        other => other,
    }
}

fn of_operator(left: &Expr, op: &BinaryOperator, right: &Expr) -> Form {
    match op {
        BinaryOperator::Eq
        | BinaryOperator::Lt
        | BinaryOperator::LtEq
        | BinaryOperator::Gt
        | BinaryOperator::GtEq => match (walk::table_of(left), walk::table_of(right)) {
            (Some(one), Some(other)) if one == other => Form::Columns,
            _ => Form::Compared,
        },
        BinaryOperator::NotEq
        | BinaryOperator::PGNotLikeMatch
        | BinaryOperator::PGNotILikeMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch => Form::Unequal,
        BinaryOperator::PGLikeMatch
        | BinaryOperator::PGILikeMatch
        | BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch => Form::Pattern,
        // OPERATOR(schema.sign)
        BinaryOperator::PGCustomBinaryOperator(parts) => {
            Form::Operator(parts.last().cloned().unwrap_or_default())
        }
        other => Form::Operator(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conjuncts;
    use super::*;

    fn forms(text: &str) -> Vec<(Form, Vec<String>)> {
        let named = |one: Conjunct| (one.form, one.columns.into_iter().map(|one| one.column).collect());
        conjuncts(text).expect(text).into_iter().map(named).collect()
    }

    fn of(text: &str) -> (Form, String) {
        let [(form, columns)] = <[_; 1]>::try_from(forms(text)).expect(text);
        (form, columns.join(", "))
    }

    #[test]
    fn each_part_has_its_form_and_its_columns() {
        let operator = |sign: &str| Form::Operator(sign.to_string());
        for (text, form, columns) in [
            ("(b.during && tsrange(($3 + ($4)::double precision), $6))", operator("&&"), "during"),
            ("(tags @> $1)", operator("@>"), "tags"),
            ("($1 <@ tags)", operator("<@"), "tags"),
            ("(doc ? $1)", operator("?"), "doc"),
            ("(name % $1)", operator("%"), "name"),
            ("(name ^@ $1)", operator("^@"), "name"),
            ("(addr <<= $1)", operator("<<="), "addr"),
            ("(geom OPERATOR(public.&&) $1)", operator("&&"), "geom"),
            ("($1 = ANY (tags))", operator("= ANY"), "tags"),
            ("(ticket.status <> $1)", Form::Unequal, "status"),
            ("(status <> ALL ($1))", Form::Unequal, "status"),
            ("(state IS DISTINCT FROM $1)", Form::Unequal, "state"),
            ("(name !~~ $1)", Form::Unequal, "name"),
            ("(NOT done)", Form::Fixed, "done"),
            ("(done IS NOT TRUE)", Form::Fixed, "done"),
            ("(ended IS NOT NULL)", Form::Fixed, "ended"),
            ("open", Form::Fixed, "open"),
            ("(a.used < a.allowed)", Form::Columns, "used, allowed"),
            ("(a.used < b.allowed)", Form::Compared, "used, allowed"),
            ("(lower(name) = $1)", Form::Compared, "name"),
            ("(name ~~* $1)", Form::Pattern, "name"),
            ("((a = $1) OR (b = $2))", Form::Either, ""),
            ("public.can_see(branch)", Form::Other, ""),
        ] {
            assert_eq!(of(text), (form, columns.to_string()), "{text}");
        }
    }

    #[test]
    fn parts_are_in_the_order_of_the_text() {
        let found = forms("((a = $1) AND ((b <> $2) AND (c > $3)) AND (NOT d))");
        let columns: Vec<String> = found.into_iter().map(|(_, columns)| columns.join(",")).collect();
        assert_eq!(columns, ["a", "b", "c", "d"]);
    }
}
