//! Values that are far more frequent than the average one, for which a plan for unknown values is made.

use super::Planned;
use crate::case::Thing;
use crate::units;
use record::statement::{self, Use};

/// The share of a table's rows that the most frequent value has, if a scan that reads it all is no worse than its index.
pub(super) const FREQUENT_MIN: f64 = 0.05;

/// The columns of a table that a statement compares with one value each, as its plan has them, and the share of the rows that have the most frequent value of
/// the rarest of them: no execution finds more. `None` if there is no such column, or one without frequent values.
pub(super) fn most_frequent(planned: &Planned<'_>, relation: &str) -> Option<(String, f64)> {
    let of_table = planned.nodes.iter().filter(|node| planned.relation_of(node) == relation);
    let shares: Vec<(String, f64)> = of_table
        .flat_map(|node| compared(node).into_iter().map(|column| share_of(node, planned, column)))
        .collect();
    shares.into_iter().min_by(|left, right| left.1.total_cmp(&right.1)).filter(|(_, share)| *share > 0.0)
}

/// Rows of the most frequent value, and by how much they are more than what a join expects of a value, from which on the estimate matters.
const ROWS_MIN: f64 = 10_000.0;
const TIMES_MIN: f64 = 20.0;

/// A column by which a table is joined or searched, and which has one value far more often than others.
pub(super) struct Skewed<'a> {
    /// The table.
    relation: &'a str,
    /// Its column.
    column: String,
    /// The share of its rows with the most frequent value.
    share: f64,
    /// Rows that the plan expects of each search.
    expected: f64,
}

impl<'a> Skewed<'a> {
    /// `None` where the most frequent value is no surprise to the plan.
    fn of(planned: &Planned<'a>, node: &Thing<'a>, (column, share): (String, f64)) -> Option<Skewed<'a>> {
        let (rows, expected) = (node.lines.last("table_rows")?, node.lines.last("rows_planned")?);
        let is_skewed = rows * share >= ROWS_MIN && rows * share >= expected * TIMES_MIN;
        is_skewed.then(|| Skewed { relation: planned.relation_of(node), column, share, expected })
    }

    /// The column and its value, as a sentence without its end.
    pub(super) fn words(&self) -> String {
        let share = units::percent(self.share);
        format!("one value of {} is in {share} of the rows of {}", self.column, self.relation)
    }

    /// The same against what the plan expects.
    pub(super) fn against_plan(&self) -> String {
        format!(
            "{}, and the plan expects {} of any",
            self.words(),
            units::counted(self.expected as usize, "row")
        )
    }
}

/// The inner side of a loop that is searched by such a column: which value comes is not known when the statement is planned, not even if another table has a
/// single row for its condition.
pub(super) fn joined<'a>(planned: &Planned<'a>) -> Option<Skewed<'a>> {
    planned.nodes.iter().find_map(|node| {
        let all = statement::conditions(node.lines.word("condition")).unwrap_or_default();
        let column = all.into_iter().find(|one| one.how == Use::Join && one.inside.is_none())?.column;
        Skewed::of(planned, node, share_of(node, planned, column))
    })
}

/// A column that is compared with a parameter, and which has one value far more often than the plan expects of any: the plan is made without the value, as
/// that of a prepared statement is from its sixth execution on.
pub(super) fn of_parameter<'a>(planned: &Planned<'a>) -> Option<Skewed<'a>> {
    planned.nodes.iter().find_map(|node| {
        let has_parameter =
            ["condition", "filter"].iter().any(|field| node.lines.word(field).contains("= $"));
        let shares = compared(node).into_iter().map(|column| share_of(node, planned, column));
        let rarest = shares.min_by(|left, right| left.1.total_cmp(&right.1)).filter(|_| has_parameter)?;
        Skewed::of(planned, node, rarest)
    })
}

fn compared(node: &Thing<'_>) -> Vec<String> {
    let conditions = ["condition", "filter"]
        .into_iter()
        .flat_map(|field| statement::conditions(node.lines.word(field)).unwrap_or_default());
    conditions.filter(|one| one.how == Use::Equality && one.inside.is_none()).map(|one| one.column).collect()
}

/// The figure stands at the node that has the table: that of a bitmap is above its index.
fn share_of(node: &Thing<'_>, planned: &Planned<'_>, column: String) -> (String, f64) {
    let own = node.lines.word("column_most");
    let above = || planned.ancestors(node).first().map_or("", |above| above.lines.word("column_most"));
    let all = if own.is_empty() && node.lines.word("relation").is_empty() { above() } else { own };
    let share = all.split("; ").find_map(|one| {
        let (name, share) = one.rsplit_once(' ')?;
        (name == column).then(|| share.parse().ok())?
    });
    (column, share.unwrap_or(0.0))
}
