//! Conditions that look for the intervals around a value: `low <= value AND value <= high`, with two columns.

use super::WALK_DEPTH_MAX;
use super::walk::plain_column;
use sqlparser::ast::{BinaryOperator, Expr};

/// Two columns that hold the ends of an interval, and that a condition compares with one value, or with the ends of another interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The column of the lower end.
    pub low: String,
    /// The column of the upper end.
    pub high: String,
    /// Both are compared with one value; otherwise with two, and only their names say that they are ends.
    pub is_around_one: bool,
}

/// What columns of lower and upper ends are called.
const LOW: [&str; 10] =
    ["start", "begin", "from", "first", "low", "min", "since", "after", "arriv", "check_in"];
const HIGH: [&str; 11] =
    ["end", "until", "to", "last", "high", "max", "till", "before", "depart", "expir", "check_out"];

/// A column that is compared.
struct Side {
    column: String,
    /// The column is the lesser one.
    is_below: bool,
    value: String,
}

pub(super) fn find(parsed: &Expr) -> Option<Interval> {
    let mut sides = vec![];
    collect(parsed, &mut sides, 0);
    let pairs = || {
        let above = |low: &'_ Side| {
            sides.iter().filter(|high| !high.is_below && high.column != low.column).collect::<Vec<_>>()
        };
        sides
            .iter()
            .filter(|side| side.is_below)
            .flat_map(move |low| above(low).into_iter().map(move |high| (low, high)))
    };
    let of = |(low, high): (&Side, &Side), is_around_one| Interval {
        low: low.column.clone(),
        high: high.column.clone(),
        is_around_one,
    };
    if let Some(pair) = pairs().find(|(low, high)| low.value == high.value) {
        return Some(of(pair, true));
    }
    pairs()
        .find(|(low, high)| is_named(&low.column, &LOW) && is_named(&high.column, &HIGH))
        .map(|pair| of(pair, false))
}

/// Whether a word of the name begins like one of these.
fn is_named(column: &str, words: &[&str]) -> bool {
    let column = column.to_ascii_lowercase();
    let begins = |part: &str, word: &str| match word.len() {
        // `to` is none of `total`, and `ends` is one of `end`.
        ..=3 => part.strip_suffix('s').unwrap_or(part) == word,
        _ => part.starts_with(word),
    };
    words.iter().any(|word| {
        column.split('_').any(|part| begins(part, word)) || column.starts_with(word) && word.contains('_')
    })
}

fn collect(expr: &Expr, sides: &mut Vec<Side>, depth: usize) {
    if depth > WALK_DEPTH_MAX {
        return;
    }
    match expr {
        Expr::Nested(inner) => collect(inner, sides, depth + 1),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            collect(left, sides, depth + 1);
            collect(right, sides, depth + 1);
        }
        Expr::BinaryOp { left, op, right } => {
            let is_less = match op {
                BinaryOperator::Lt | BinaryOperator::LtEq => true,
                BinaryOperator::Gt | BinaryOperator::GtEq => false,
                _ => return,
            };
            sides.extend(side(left, right, is_less));
            sides.extend(side(right, left, !is_less));
        }
        Expr::Between { expr, low, high, negated: false } => {
            sides.extend(side(low, expr, true));
            sides.extend(side(high, expr, false));
        }
        _ => {}
    }
}

/// `None` unless one side is a column and the other is none.
fn side(column: &Expr, value: &Expr, is_below: bool) -> Option<Side> {
    if plain_column(value).is_some() {
        return None;
    }
    Some(Side { column: plain_column(column)?, is_below, value: value.to_string() })
}
