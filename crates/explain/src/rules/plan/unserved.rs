//! PLAN-88: why no index serves a condition. It goes over all parts of the condition of the step that reads most, and over the order of a LIMIT, and looks for
//! the reason of each in a complete list; other rules with a narrower question come first, and take the reason from here where they have none.

mod alike;
mod distance;
mod operator;
mod order;
mod part;

use super::distance::of as distance_of;
use super::index::indexes;
use super::tree::runs;
use super::wanted::{UNSURE, is_aggregated};
use super::{KEPT_SHARE_MAX, Planned, SHARE_MIN, below, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::{self, Field};
use crate::rule::{Claim, Rule};
use crate::rules::costly::plain;
use crate::rules::statement::explain_it;
use crate::rules::{statement, waste};
use crate::units;
use record::finding::Level;
use record::statement::{Condition, Conjunct, Form};

const NEEDS: &[Need] = &[Field("plan", "cost_total"), Field("server", "sessions_active")];

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-88",
    title: "rows are read and thrown away, because no index serves a part of the condition, or the order of a LIMIT",
    needs: NEEDS,
    limits: "10 % of the session time in a statement of 1 ms or more that touches 100 blocks, ten for each row, and no other rule explains it; the \
        step that has most of its plan's cost keeps a tenth of 1,000 rows or of the blocks, by its plan, or by the share of the most frequent value; low \
        below an aggregate (ours)",
    judge: |case| judge(case, claim, "parts of the conditions in plans, against the indexes of their tables"),
    links: &["https://www.postgresql.org/docs/current/indexes-types.html"],
}];

/// Blocks of an execution, and for each row.
const BLOCKS_MIN: f64 = 100.0;
const BLOCKS_PER_ROW_MIN: f64 = 10.0;
/// Milliseconds of an execution.
const MEAN_MS_MIN: f64 = 1.0;
/// A smaller table is read rightly.
const ROWS_MIN: f64 = 1_000.0;
/// Of the cost of all steps that read tables, that of one that is looked at.
const OF_COST_MIN: f64 = 0.3;
/// Characters of a condition in a claim.
const CONDITION_CHARS: usize = 120;

/// Why a condition or an order is not served, and what to do.
pub(in crate::rules) struct Reason {
    /// The end of a claim.
    pub(in crate::rules) words: String,
    pub(in crate::rules) remedy: String,
    pub(in crate::rules) commands: Vec<String>,
    /// Rows that fit, where statistics show another number than the plan.
    kept: Option<f64>,
    /// What the record does not show of it.
    lacking: Option<&'static str>,
}

impl Reason {
    fn of(words: String, remedy: impl Into<String>, commands: Vec<String>) -> Reason {
        Reason { words, remedy: remedy.into(), commands, kept: None, lacking: None }
    }
}

/// A step that reads a table, and how often it runs for an execution.
pub(super) struct Place<'p, 'a> {
    planned: &'p Planned<'a>,
    node: Thing<'a>,
    relation: &'a str,
    alias: &'a str,
    runs: f64,
    indexes: Vec<(Thing<'a>, Vec<&'a str>)>,
    /// Whether the database has the extension intarray, whose operators for arrays of integers are found in the place of the server's.
    has_intarray: bool,
}

impl<'a> Place<'_, 'a> {
    fn word(&self, field: &str) -> &'a str {
        self.node.lines.word(field)
    }

    fn is_scan(&self) -> bool {
        self.word("kind") == "Seq Scan"
    }

    fn rows(&self) -> f64 {
        number(&self.node, "table_rows")
    }

    /// The type of a column; empty if it was not recorded.
    fn kind(&self, column: &str) -> &'a str {
        let of = |one: &'a str| one.strip_prefix(column)?.strip_prefix(' ');
        self.word("column_types").split("; ").find_map(of).unwrap_or_default()
    }

    /// The share of the rows that have the most frequent value of a column.
    fn most(&self, column: &str) -> Option<f64> {
        let of = |one: &str| one.strip_prefix(column)?.strip_prefix(' ')?.parse().ok();
        self.word("column_most").split("; ").find_map(of)
    }

    /// The columns of this table in a part of a condition.
    fn own<'c>(&self, part: &'c Conjunct) -> Option<&'c Condition> {
        let is_own = |one: &&Condition| one.table.as_ref().is_none_or(|table| table == self.alias);
        part.columns.iter().find(is_own)
    }

    /// What its index looks for; of a bitmap the nodes below have it.
    fn searched(&self) -> Vec<Condition> {
        let own = self.word("condition");
        let below = || below(self.planned, &self.node).map(|one| one.lines.word("condition")).next();
        let text = if own.is_empty() { below().unwrap_or_default() } else { own };
        let mut all = record::statement::conditions(text).unwrap_or_default();
        all.retain(|one| {
            one.inside.is_none()
                && one.how.is_compared()
                && one.table.as_ref().is_none_or(|table| table == self.alias)
        });
        all
    }

    /// The columns that are compared with one value each, by the index or after it.
    fn equal(&self) -> Vec<String> {
        let of_filter = record::statement::conditions(self.word("filter")).unwrap_or_default();
        let own = of_filter
            .into_iter()
            .filter(|one| one.table.as_ref().is_none_or(|table| table == self.alias) && one.inside.is_none());
        let mut found: Vec<String> = vec![];
        for one in self.searched().into_iter().chain(own) {
            let is_equal = matches!(one.how, record::statement::Use::Equality | record::statement::Use::Join);
            if is_equal && !found.contains(&one.column) {
                found.push(one.column);
            }
        }
        found
    }

    /// The same SQL without the name of the table in front of its columns: an index has none.
    fn without_alias(&self, text: &str) -> String {
        if self.alias.is_empty() { text.to_string() } else { text.replace(&format!("{}.", self.alias), "") }
    }

    /// How it reads its table.
    fn how(&self) -> String {
        let index = match self.word("index") {
            "" => {
                below(self.planned, &self.node).map(|one| one.lines.word("index")).next().unwrap_or_default()
            }
            name => name,
        };
        let by = if index.is_empty() { String::new() } else { format!(" by index {index}") };
        let times = match self.runs {
            runs if runs >= 2.0 => format!(", about {} times for each execution", units::count(runs)),
            _ => String::new(),
        };
        format!("reads {}{by}{times}", self.relation)
    }

    fn is_cut(&self) -> bool {
        self.planned.above(&self.node).first() == Some(&"Limit")
    }

    /// Whether rows are thrown away, by the plan or by what a reason knows better.
    fn throws_away(&self, reason: &Reason) -> bool {
        let expected = reason.kept.unwrap_or(number(&self.node, "rows_planned"));
        // Right below a LIMIT it stops when enough rows were found, however many there are.
        let returned = self.planned.statement.rows.filter(|_| self.is_cut());
        let kept = returned.map_or(expected, |rows| expected.min(rows / self.runs));
        if self.is_scan() {
            return kept <= self.rows() * KEPT_SHARE_MAX;
        }
        let blocks = self.planned.statement.blocks.unwrap_or(0.0);
        blocks >= kept.max(1.0) * self.runs * BLOCKS_PER_ROW_MIN
    }
}

const READERS: [&str; 4] = ["Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"];

/// The steps that read tables and have most of a plan's cost, the costliest first.
fn places<'p, 'a>(case: &'a Case, planned: &'p Planned<'a>) -> Vec<Place<'p, 'a>> {
    let is_reader = |node: &&Thing<'a>| {
        READERS.contains(&node.lines.word("kind")) && !node.lines.word("relation").is_empty()
    };
    let mut all: Vec<(f64, f64, Thing<'a>)> = planned
        .nodes
        .iter()
        .filter(is_reader)
        .map(|node| (number(node, "cost_total"), runs(planned, node), *node))
        .collect();
    let whole: f64 = all.iter().map(|(cost, runs, _)| cost * runs).sum();
    all.retain(|(cost, runs, _)| cost * runs >= whole * OF_COST_MIN);
    all.sort_by(|left, right| (right.0 * right.1).total_cmp(&(left.0 * left.1)));
    let mut extensions = case.facts("extension");
    let has_intarray = extensions.any(|fact| fact.node == planned.time.node && fact.name == "intarray");
    let place = |(_, runs, node): (f64, f64, Thing<'a>)| {
        let (relation, alias) = (node.lines.word("relation"), node.lines.word("alias"));
        let indexes = indexes(case, planned, relation);
        Place { planned, node, relation, alias, runs, indexes, has_intarray }
    };
    all.into_iter().map(place).collect()
}

/// How surely a part of this form is what an index is missing for: what is certain comes first.
fn rank(form: &Form) -> usize {
    match form {
        Form::Operator(_) => 0,
        Form::Fixed => 1,
        Form::Unequal => 2,
        Form::Compared => 3,
        Form::Pattern => 4,
        Form::Columns => 5,
        Form::Either => 6,
        Form::Other => 7,
    }
}

/// What was found of a plan: where, the reason that is claimed, and those of the other parts.
struct Found<'p, 'a> {
    place: Place<'p, 'a>,
    reason: Reason,
    others: Vec<String>,
}

fn found<'p, 'a>(case: &'a Case, planned: &'p Planned<'a>) -> Option<Found<'p, 'a>> {
    let statement = planned.statement;
    let (blocks, rows) = (statement.blocks.unwrap_or(0.0), statement.rows.unwrap_or(0.0));
    let is_short = statement.mean_ms.is_some_and(|ms| ms < MEAN_MS_MIN);
    // Without pg_stat_statements the samples show that it takes the time, and the plan alone what it reads.
    let is_little = statement.is_counted && (blocks < BLOCKS_MIN || blocks < rows * BLOCKS_PER_ROW_MIN);
    if is_short || is_little || planned.is_of_one_constant() {
        return None;
    }
    places(case, planned).into_iter().filter(|place| place.rows() >= ROWS_MIN).find_map(|place| {
        let mut parts = record::statement::conjuncts(place.word("filter")).unwrap_or_default();
        // No index of the other parts takes a distance away.
        parts.sort_by_key(|part| if distance_of(part).is_some() { 0 } else { rank(&part.form) });
        let mut reasons: Vec<Reason> = parts.iter().filter_map(|part| part::reason(&place, part)).collect();
        reasons.retain(|reason| place.throws_away(reason));
        let mut reasons = reasons.into_iter().chain(order::reason(&place));
        let reason = reasons.next()?;
        let others = reasons.map(|other| other.words).collect();
        Some(Found { place, reason, others })
    })
}

/// The reason for a statement that another rule reports without one.
pub(in crate::rules) fn reason(case: &Case, planned: &Planned<'_>) -> Option<Reason> {
    found(case, planned).map(|found| found.reason)
}

/// Whether a rule with a narrower question has a finding about the statement.
fn is_of_others(case: &Case, planned: &Planned<'_>) -> bool {
    super::is_explained(case, planned)
        || super::proposal(case, planned).is_some()
        || super::hidden::searched_again(case, planned).is_some_and(|_| !super::is_limited(planned))
        || statement::is_scanned(case, planned.time, planned.statement)
        || waste::is_walked(case, planned.time, planned.statement)
}

/// Whether PLAN-88 has a finding about the statement.
pub(super) fn is_found(case: &Case, planned: &Planned<'_>) -> bool {
    claim(case, planned).is_some()
}

/// What an aggregate takes is in no counter.
const OF_SUMS: &str = "how many rows fit: an aggregate takes them, and no counter has them";

/// PLAN-88.
pub(super) fn claim(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    if planned.statement.share < SHARE_MIN || is_of_others(case, planned) {
        return None;
    }
    let Found { place, reason, others } = found(case, planned)?;
    let is_summed = is_aggregated(planned, &place.node);
    let lacking = reason.lacking.or(is_summed.then_some(OF_SUMS));
    let usual = severity(planned.statement.share);
    let counted = planned.statement.is_counted.then(|| {
        format!(
            ", and touches {} blocks to return {} rows",
            units::short(planned.statement.blocks.unwrap_or(0.0)),
            units::short(planned.statement.rows.unwrap_or(0.0))
        )
    });
    let text = format!(
        "a statement that takes {} of the session time {}{}: {}",
        planned.share(),
        place.how(),
        counted.unwrap_or_default(),
        reason.words
    );
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> = reason.commands.iter().map(String::as_str).chain([explain.as_str()]).collect();
    let filter = plain(place.word("filter"), CONDITION_CHARS);
    let claim = planned
        .claim(case, Level::CoOccurrence, usual, text)
        .number("rows_of_table", place.rows())
        .number("runs", place.runs)
        .with((!filter.is_empty()).then_some(filter), |claim, filter| {
            claim.because(format!("the plan checks {} by {filter}", place.relation))
        })
        .because(planned.file())
        .with((!planned.statement.is_counted).then_some(()), |claim, ()| {
            claim.at_most(record::finding::Severity::Medium)
        })
        .with(lacking, |claim, lack| {
            claim.lacking(lack).number(UNSURE, 1.0).at_most(record::finding::Severity::Low)
        });
    let claim = others.into_iter().fold(claim, |claim, words| claim.because(format!("besides, {words}")));
    Some(claim.remedy(reason.remedy, &commands))
}
