//! Settings that decide in which order tables are joined, and which of those that inherit from another one are read.

use super::{Cost, SHARE_MIN, Setting, TABLES_MIN, of_statement};
use crate::case::{Case, Thing};
use crate::rules::costly::{in_a_line, lowered, peculiar_of};
use crate::rules::plan::{Planned, below, number, planned};
use crate::units;
use record::finding::NodeTime;
use record::statement;

/// Of the rows of tables that inherit, the share that a condition keeps for which most of the tables are read in vain.
const KEPT_MAX: f64 = 0.1;

/// Tables that a plan joins: those of an Append, as partitions, are one.
fn tables(planned: &Planned<'_>) -> usize {
    let is_scan = |node: &Thing<'_>| {
        node.lines.word("kind").ends_with("Scan") && !node.lines.word("relation").is_empty()
    };
    let is_append = |node: &&Thing<'_>| node.lines.word("kind").ends_with("Append");
    let appends: Vec<&Thing<'_>> = planned.nodes.iter().filter(is_append).collect();
    let of_appends =
        |node: &&Thing<'_>| appends.iter().any(|append| number(append, "number") == number(node, "above"));
    let alone = planned.nodes.iter().filter(|node| is_scan(node) && !of_appends(node)).count();
    let together = appends.iter().filter(|append| below(planned, append).any(|node| is_scan(&node))).count();
    alone + together
}

/// Whether a plan has tables that the text does not name: those of views.
fn has_more_tables(planned: &Planned<'_>) -> bool {
    statement::parse(&planned.statement.text).is_ok_and(|parsed| tables(planned) > parsed.tables.len())
}

/// The statement with most of the time that joins so many tables, and that the setting is for.
fn joined(
    case: &Case,
    time: &NodeTime,
    setting: Setting<'_>,
    least: usize,
    fits: impl Fn(&Planned<'_>) -> bool,
) -> Option<Cost> {
    let all = planned(case, SHARE_MIN).filter(|planned| planned.time.node == time.node);
    let largest = all
        .filter(|planned| tables(planned) >= least && setting.is_for_plan(case, planned) && fits(planned))
        .max_by(|left, right| left.statement.share.total_cmp(&right.statement.share))?;
    Some(Cost {
        share: Some(largest.statement.share),
        unknown: setting.unknown(case, time, largest.statement),
        figure: ("tables", tables(&largest) as f64),
        evidence: format!(
            "{} of the session time is a statement that joins {} tables: {}",
            units::percent(largest.statement.share),
            tables(&largest),
            in_a_line(largest.statement)
        ),
    })
}

/// `join_collapse_limit`: it is for tables that JOIN connects, or a condition with a subquery, and not for those of a list.
pub(super) fn as_written(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    const JOINS: [&str; 4] = [" join ", "exists (select", "exists(select", " in (select"];
    joined(case, time, setting, TABLES_MIN, |planned| {
        let text = lowered(&planned.statement.text);
        JOINS.iter().any(|join| text.contains(join)) || has_more_tables(planned)
    })
}

/// `from_collapse_limit`: it is for several tables within one item of a list of tables.
pub(super) fn apart(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    joined(case, time, setting, TABLES_MIN, |planned| {
        has_groups(&planned.statement.text) || has_more_tables(planned)
    })
}

/// `geqo_threshold`: fewer tables are joined in the best of all orders.
pub(super) fn by_chance(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let threshold = setting.value.parse::<usize>().ok()?;
    let is_on = case.setting(&time.node, "geqo") != Some("off");
    is_on.then(|| joined(case, time, setting, threshold.max(TABLES_MIN), |_| true))?
}

/// A part of a text between parentheses: where it is in its SELECT.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Within FROM, and there behind ON.
    is_from: bool,
    is_on: bool,
    /// It is a SELECT that stands in the FROM of another.
    is_item: bool,
    has_list: bool,
    has_join: bool,
}

impl Part {
    /// Whether an item of a list of tables has several tables.
    fn has_groups(self) -> bool {
        self.has_list && self.has_join || self.is_item && (self.has_list || self.has_join)
    }

    fn take(&mut self, word: &str) {
        match word {
            "from" => (self.is_from, self.is_on) = (true, false),
            "join" if self.is_from => (self.has_join, self.is_on) = (true, false),
            "," if self.is_from => (self.has_list, self.is_on) = (true, false),
            "on" => self.is_on = true,
            "select" | "where" | "group" | "order" | "having" | "limit" | "window" | "union" | "except"
            | "intersect" => self.is_from = false,
            _ => {}
        }
    }
}

/// Whether a statement has a FROM of which an item has several tables itself: a subquery, or a JOIN beside a comma.
fn has_groups(text: &str) -> bool {
    let mut spaced = String::new();
    for c in lowered(text).chars() {
        match c {
            '(' | ')' | ',' => spaced.extend([' ', c, ' ']),
            c => spaced.push(c),
        }
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut open = vec![Part::default()];
    for (at, word) in words.iter().enumerate() {
        let Some(last) = open.last().copied() else { return false };
        match *word {
            "(" => open.push(Part {
                is_item: last.is_from && !last.is_on && words.get(at + 1) == Some(&"select"),
                ..Part::default()
            }),
            ")" => {
                open.pop();
                if last.has_groups() {
                    return true;
                }
            }
            word => {
                if let Some(part) = open.last_mut() {
                    part.take(word);
                }
            }
        }
    }
    open.iter().any(|part| part.has_groups())
}

/// Of tables that inherit and are read one after another with a condition: the rows that it keeps, of all. Partitions are none: for them
/// `enable_partition_pruning` decides.
fn kept_of_children(planned: &Planned<'_>) -> Option<f64> {
    let appends = planned.nodes.iter().filter(|node| node.lines.word("kind").ends_with("Append"));
    let scans = appends.flat_map(|append| below(planned, append)).filter(|scan| {
        let has_condition = !scan.lines.word("filter").is_empty() || !scan.lines.word("condition").is_empty();
        has_condition && scan.lines.flag("partitioned") != Some(true)
    });
    let (kept, all) = scans.fold((0.0, 0.0), |(kept, all), scan| {
        (kept + number(&scan, "rows_planned"), all + number(&scan, "table_rows").max(0.0))
    });
    (all > 0.0).then(|| kept / all)
}

/// `constraint_exclusion`: a statement takes the time that reads the tables that inherit from one that it names.
pub(super) fn appended(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let has_children = |planned: &Planned<'_>| {
        let peculiar = peculiar_of(case, &time.node, &planned.statement.text);
        peculiar.iter().any(|fact| fact.value.contains("tables inherit from it"))
    };
    let fits = |planned: &Planned<'_>| {
        let keeps_few = kept_of_children(planned).is_some_and(|kept| kept <= KEPT_MAX);
        keeps_few && has_children(planned)
    };
    let what = |_: &Planned<'_>| "reads several tables one after another (Append)".to_string();
    let cost = of_statement(case, time, setting, fits, what)?;
    let of_checks = "whether they have CHECK constraints on a column that the statement compares";
    Some(Cost { unknown: Some(cost.unknown.unwrap_or(of_checks)), ..cost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_tables_are_items_of_a_list_that_have_several() {
        for (text, has) in [
            ("select 1 from a, b, c where a.x = b.x", false),
            ("select 1 from a join b on a.x = b.x join c on c.y = b.y", false),
            ("select f(a, b), (select max(x) from d, e) from a, b, c", false),
            ("select 1 from a, (select x from b) s", false),
            ("select 1 from a, (select b.x from b, c) s where s.x = a.x", true),
            ("select 1 from a join (select b.x from b join c using (x)) s on s.x = a.x", true),
            ("select 1 from a, b join c on c.x = b.x where a.y = b.y", true),
            ("select 1 from a join b on a.x = b.x and a.y in (select y from c, d)", false),
        ] {
            assert_eq!(has_groups(text), has, "{text}");
        }
    }
}
