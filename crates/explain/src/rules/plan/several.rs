//! PLAN-97: a table that one statement reads several times, once for each of its figures, where one pass would compute all of them.

use super::tree::runs;
use super::{NEEDS, Planned, below, inputs, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use std::collections::BTreeMap;

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-97",
    title: "a statement reads the same rows again for each of its figures",
    needs: NEEDS,
    limits: "10 % of the session time in a statement of 1 ms or more whose plan aggregates the rows of one table in 3 places or more, without groups or by \
        the same ones, for half of its cost; 3 of them read the table as a whole, not all of them for 1 % of its rows or less, or search an index for the \
        same, or an execution touches twice the blocks of the table (ours)",
    judge: |case| judge(case, repeated, "tables that plans aggregate in several places"),
    links: &["https://www.postgresql.org/docs/current/sql-expressions.html#SYNTAX-AGGREGATES"],
}];

/// Places of a plan that aggregate rows of the same table.
const PLACES_MIN: usize = 3;
/// A smaller table is read quickly.
const ROWS_MIN: f64 = 1_000.0;
/// Of the plan's cost, that of all these places.
const OF_PLAN_MIN: f64 = 0.5;
/// Blocks of an execution, and how many times those of the table they are.
const BLOCKS_MIN: f64 = 100.0;
const TIMES_OF_TABLE_MIN: f64 = 2.0;
/// Milliseconds of an execution.
const MEAN_MS_MIN: f64 = 1.0;
/// Where each place keeps fewer of the rows, an index for each is the better remedy.
const KEPT_SHARE_MIN: f64 = 0.01;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

const READERS: [&str; 4] = ["Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"];

/// A place of a plan that aggregates rows of a table.
struct Reading<'a> {
    aggregate: Thing<'a>,
    reader: Thing<'a>,
}

/// A table with all places that aggregate its rows.
struct Readings<'a> {
    relation: &'a str,
    all: Vec<Reading<'a>>,
    /// Of the plan's cost.
    of_plan: f64,
    why: String,
}

/// A condition without the names of tables, which differ in each place.
fn bare(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    for (at, part) in text.split('.').enumerate() {
        let is_name = part.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '"');
        if at > 0 && is_name {
            out.truncate(out.trim_end_matches(|c| is_word(c) || c == '"').len());
        } else if at > 0 {
            out.push('.');
        }
        out.push_str(part);
    }
    // Each place has parameters of its own for the same value.
    let mut is_number = false;
    out.retain(|c| {
        let is_left_out = is_number && c.is_ascii_digit();
        is_number = c == '$' || is_left_out;
        !is_left_out
    });
    out
}

/// The aggregate that takes the rows of a step, as a whole where several processes share it.
fn aggregate_of<'a>(planned: &Planned<'a>, reader: &Thing<'a>) -> Option<Thing<'a>> {
    let above = planned.ancestors(reader);
    let first = above.iter().position(|node| node.lines.word("kind") == "Aggregate")?;
    let (mut found, mut is_shared) = (first, false);
    for (at, node) in above.iter().enumerate().skip(first + 1) {
        let kind = node.lines.word("kind");
        // Groups of groups are another matter.
        if kind == "Aggregate" && is_shared {
            found = at;
        }
        is_shared |= kind.starts_with("Gather");
        if !(kind.starts_with("Gather") || kind == "Sort") {
            break;
        }
    }
    above.get(found).copied()
}

/// What an index is searched for; of a bitmap the steps below have it.
fn searched<'a>(planned: &Planned<'a>, reader: &Thing<'a>) -> &'a str {
    let own = reader.lines.word("condition");
    let inner = || below(planned, reader).map(|one| one.lines.word("condition")).next().unwrap_or_default();
    if own.is_empty() { inner() } else { own }
}

/// How many of the places do the same, by a key of each.
fn most_alike(keys: impl Iterator<Item = String>) -> (usize, String) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts.into_iter().map(|(key, count)| (count, key)).max().unwrap_or_default()
}

/// The counters of a table, in the database of the statement.
fn pages_of(case: &Case, planned: &Planned<'_>, relation: &str) -> Option<f64> {
    let wanted = planned.statement.database.as_str();
    let mut tables = case.at("table", planned.time.node.as_str());
    let table = tables.find(|table| {
        let database = table.lines.word("database");
        table.lines.word("relation") == relation
            && (database.is_empty() || wanted.is_empty() || database == wanted)
    })?;
    table.lines.last("bytes").map(|bytes| bytes / BLOCK_BYTES).filter(|pages| *pages >= 1.0)
}

/// Why the places read more than one pass would.
fn why(case: &Case, planned: &Planned<'_>, relation: &str, all: &[Reading<'_>]) -> Option<String> {
    let is_whole = |one: &&Reading<'_>| one.reader.lines.word("kind") == "Seq Scan";
    let whole: Vec<&Reading<'_>> = all.iter().filter(is_whole).collect();
    let keeps_some = |one: &&Reading<'_>| {
        number(&one.reader, "rows_planned") > number(&one.reader, "table_rows") * KEPT_SHARE_MIN
    };
    if whole.len() >= PLACES_MIN && whole.iter().any(keeps_some) {
        return Some(format!("{} of them scan the whole table", whole.len()));
    }
    let searches = || all.iter().map(|one| searched(planned, &one.reader)).filter(|text| !text.is_empty());
    let (count, condition) = most_alike(searches().map(bare));
    // Parameters with different numbers may have different values, and then each place finds rows of its own.
    let numbers = |text: &str| text.split('$').skip(1).map(str::to_string).collect::<Vec<_>>();
    let mut with_values = searches().map(numbers);
    let first = with_values.next().unwrap_or_default();
    let is_same = !condition.contains('$') || with_values.all(|other| other == first);
    if count >= PLACES_MIN && whole.is_empty() && is_same {
        return Some(format!("{count} of them search its index for the same, {condition}"));
    }
    let (blocks, pages) = (planned.statement.blocks?, pages_of(case, planned, relation)?);
    (blocks >= pages * TIMES_OF_TABLE_MIN && whole.iter().all(keeps_some)).then(|| {
        format!(
            "an execution touches {} blocks, and the table with its indexes has {}",
            units::short(blocks),
            units::short(pages)
        )
    })
}

/// The table that a plan reads again and again, with the largest part of its cost.
fn found<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<Readings<'a>> {
    let statement = planned.statement;
    let is_short = statement.mean_ms.is_some_and(|ms| ms < MEAN_MS_MIN);
    let is_little = statement.blocks.is_some_and(|blocks| blocks < BLOCKS_MIN);
    if is_short || is_little {
        return None;
    }
    let whole = planned.plan.lines.last("cost_total")?.max(f64::MIN_POSITIVE);
    let is_reader = |node: &&Thing<'a>| {
        READERS.contains(&node.lines.word("kind"))
            && !node.lines.word("relation").is_empty()
            && number(node, "table_rows") >= ROWS_MIN
    };
    let mut tables: BTreeMap<(&str, String), Vec<Reading<'a>>> = BTreeMap::new();
    for reader in planned.nodes.iter().filter(is_reader) {
        let Some(aggregate) = aggregate_of(planned, reader) else { continue };
        let groups = bare(aggregate.lines.word("condition"));
        let all = tables.entry((reader.lines.word("relation"), groups)).or_default();
        let is_same = |one: &Reading<'_>| number(&one.aggregate, "number") == number(&aggregate, "number");
        if !all.iter().any(is_same) {
            all.push(Reading { aggregate, reader: *reader });
        }
    }
    let of_plan = |all: &[Reading<'a>]| {
        let cost = |one: &Reading<'a>| number(&one.aggregate, "cost_total") * runs(planned, &one.aggregate);
        all.iter().map(cost).sum::<f64>() / whole
    };
    let several = tables.into_iter().filter(|(_, all)| all.len() >= PLACES_MIN);
    let of_table = several.filter_map(|((relation, _), all)| {
        let of_plan = of_plan(&all);
        let why = why(case, planned, relation, &all).filter(|_| of_plan >= OF_PLAN_MIN)?;
        Some(Readings { relation, all, of_plan: of_plan.min(1.0), why })
    });
    of_table.max_by(|left, right| left.of_plan.total_cmp(&right.of_plan))
}

/// Whether this rule explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    found(case, planned).is_some()
}

/// PLAN-97.
fn repeated(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let Readings { relation, all, of_plan, why } = found(case, planned)?;
    let is_inside = |one: &&Reading<'_>| {
        let mut above = planned.ancestors(&one.aggregate);
        above.insert(0, one.aggregate);
        above.iter().any(|node| node.lines.flag("subquery") == Some(true))
    };
    let places = match all.iter().filter(is_inside).count() {
        inside if inside == all.len() => "subqueries, one for each figure",
        _ => "places, one for each of its figures",
    };
    let runs = all.iter().map(|one| runs(planned, &one.aggregate)).fold(1.0, f64::max);
    let times = if runs >= 2.0 {
        format!(", and that about {} times for each execution", units::count(runs))
    } else {
        String::new()
    };
    let text = format!(
        "a statement that takes {} of the session time aggregates the rows of {relation} in {} {places}{times}: {why}",
        planned.share(),
        all.len()
    );
    let joined = all.iter().any(|one| inputs(planned, &one.aggregate).any(|node| is_join(&node)));
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("places", all.len() as f64)
            .number("of_plan", of_plan)
            .because(format!("these steps have {} of the plan's cost", units::percent(of_plan)))
            .because(planned.file())
            .with(joined.then_some("each of them joins it again, too"), Claim::because)
            .remedy(
                "compute all figures in one pass: SELECT count(*) FILTER (WHERE ...), sum(x) FILTER (WHERE ...) FROM the table, with what all of them \
                 compare in its WHERE (or GROUP BY the column by which they differ); for the rows of another table one LATERAL subquery, or a join with \
                 GROUP BY, has all figures of a row",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

fn is_join(node: &Thing<'_>) -> bool {
    let kind = node.lines.word("kind");
    kind.ends_with("Join") || kind == "Nested Loop"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_condition_is_known_in_each_place() {
        assert_eq!(bare("(tickets.shop = $1)"), bare("(tickets_1.shop = $12)"));
        assert_eq!(bare("((t.at > 1.5) AND (t.\"Kind\" = $2))"), "((at > 1.5) AND (\"Kind\" = $))");
        assert_ne!(bare("(t.shop = $1)"), bare("(t.state = $1)"));
    }
}
