//! PLAN-72 to PLAN-75: indexes and statistics that nearly fit: the greatest of a computed value, two indexes where one on both columns would do, the columns
//! of an order in other directions, and partitioned tables without statistics of their own.

use super::index::indexes;
use super::{NEEDS, Planned, SHARE_MIN, below, does_more, inputs, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::costly::{peculiar_of, plain};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};
use record::statement::{self, Use};
use record::watched::{Fact, NEVER_ANALYSED, NO_STATISTICS};

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-72",
        title: "the greatest or least value is found by reading all that fit",
        needs: NEEDS,
        limits: "10 % of the session time in a statement whose only result is a min or max, and whose plan reads 1,000 rows for it (ours)",
        judge: |case| judge(case, extreme, "statements that return a min or max"),
        links: &["https://www.postgresql.org/docs/current/indexes-expressional.html"],
    },
    Rule {
        id: "PLAN-73",
        title: "two indexes are combined where one on both columns would find the rows",
        needs: NEEDS,
        limits: "20 % of the session time in a plan with BitmapAnd, each of whose indexes finds ten times the rows that fit, 500 or more; low below half of \
            the \
            time (ours)",
        judge: |case| judge(case, combined, "plans that combine the bitmaps of several indexes"),
        links: &["https://www.postgresql.org/docs/current/indexes-bitmap-scans.html"],
    },
    Rule {
        id: "PLAN-74",
        title: "an index has the columns of the order in other directions",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT whose plan sorts 1,000 rows or more by columns that an index has, but not with these ASC, \
            DESC and NULLS (ours)",
        judge: |case| judge(case, directions, "sorts of plans, against the directions of indexes"),
        links: &["https://www.postgresql.org/docs/current/indexes-ordering.html"],
    },
    Rule {
        id: "PLAN-75",
        title: "a table has no statistics, or a partitioned one has none of its own",
        needs: NEEDS,
        limits: "20 % of the session time in a statement that joins or groups the rows of a table that was never analysed (a partitioned one: as a \
            whole), and whose plan has a nested loop with a filter, or does far more than its cost allows; low without that for a partitioned table (ours)",
        judge: |case| judge(case, unanalysed, "tables of joins, and whether they were analysed"),
        links: &["https://www.postgresql.org/docs/current/sql-analyze.html"],
    },
];

/// Rows that are read, or sorted.
const ROWS_MIN: f64 = 1_000.0;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Rows that each of two indexes finds.
const FOUND_MIN: f64 = 500.0;
/// By how many times that is more than what fits.
const FOUND_TIMES: f64 = 10.0;
/// The share of the session time where the cost is not certain.
const SHARE_UNSURE_MIN: f64 = 0.2;
/// From which on it is more than low.
const SHARE_MOST: f64 = 0.5;
/// Characters of an expression or a name in a claim.
const WORDS_CHARS: usize = 100;

/// Whether one of these rules explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    let is_large = planned.statement.share >= SHARE_MIN;
    is_large
        && (extreme(case, planned).is_some()
            || directions(case, planned).is_some()
            || combined(case, planned).is_some()
            || never_analysed(case, planned).is_some_and(|found| found.is_wrong()))
}

/// The columns that a node compares with one value each.
fn equal(node: &Thing<'_>) -> Vec<String> {
    let mut columns: Vec<String> = vec![];
    for text in [node.lines.word("condition"), node.lines.word("filter")] {
        for one in statement::conditions(text).unwrap_or_default() {
            if one.how == Use::Equality && one.inside.is_none() && !columns.contains(&one.column) {
                columns.push(one.column);
            }
        }
    }
    columns
}

/// PLAN-72.
fn extreme(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let sought = without_tables(&statement::shape(&planned.statement.text).ok()?.sought?);
    let top = planned.nodes.first().filter(|node| node.lines.word("kind") == "Aggregate")?;
    let scan = planned.nodes.iter().find(|node| {
        !node.lines.word("relation").is_empty()
            && node.lines.word("kind").ends_with("Scan")
            && number(node, "rows_planned") >= ROWS_MIN
    })?;
    let is_only = planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty()).count() == 1;
    let columns = equal(scan);
    // With several values there is no one order; and the same in an index that the planner leaves aside is another matter.
    let is_of_several =
        [scan.lines.word("condition"), scan.lines.word("filter")].iter().any(|text| text.contains(" ANY ("));
    let is_there = indexes(case, planned, scan.lines.word("relation")).iter().any(|(_, of_index)| {
        of_index
            .iter()
            .position(|column| *column == sought.trim_matches('"'))
            .is_some_and(|at| of_index[..at].iter().all(|column| columns.iter().any(|one| one == column)))
    });
    if is_of_several || is_there || !is_only || !top.lines.word("condition").is_empty() || columns.is_empty()
    {
        return None;
    }
    let (relation, rows) = (scan.lines.word("relation"), number(scan, "rows_planned"));
    let shown = plain(&sought, WORDS_CHARS);
    let text = format!(
        "a statement that takes {} of the session time reads about {} rows of {relation} each time to find the greatest or least {shown}: no index has {} and \
            then {shown}, in whose order the answer is the first entry",
        planned.share(),
        units::count(rows),
        columns.join(", ")
    );
    let quoted: Vec<String> = columns.iter().map(|column| statement::quoted(column)).collect();
    let value = if sought.contains('$') { None } else { Some(format!("({})", sought)) };
    let command = value.map(|value| {
        format!(
            "CREATE INDEX CONCURRENTLY ON {relation} ({}, {value}); -- refused if it is not immutable",
            quoted.join(", ")
        )
    });
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> = command.as_deref().into_iter().chain([explain.as_str()]).collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_planned", rows)
            .because(planned.file())
            .because(format!("the plan reads {} by {} and aggregates all that fit", relation, or_scan(scan)))
            .not("an index with that order: the planner would take its first entry (Limit, instead of Aggregate)")
            .remedy(
                "create an index with the columns of the condition first and the value behind them, written as the statement writes it; or keep the value as a \
                 column of its own type. For the next number of a series a counter row is better (UPDATE ... SET n = n + 1 RETURNING n), because two \
                 sessions that \
                 read the greatest number get the same next one",
                &commands,
            ),
    )
}

/// An expression without the names of tables in front of its columns: an index has none.
fn without_tables(expression: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    for (at, part) in expression.split('.').enumerate() {
        let is_name = part.starts_with(|c: char| c.is_alphabetic() || "_\"".contains(c));
        let before = out.trim_end_matches(is_word).len();
        if at > 0 && is_name && before < out.len() {
            out.truncate(before);
        } else if at > 0 {
            out.push('.');
        }
        out.push_str(part);
    }
    out
}

/// What a scan uses.
fn or_scan(scan: &Thing<'_>) -> String {
    match scan.lines.word("index") {
        "" => "a sequential scan".to_string(),
        index => format!("index {index}"),
    }
}

/// PLAN-73.
fn combined(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    if planned.statement.share < SHARE_UNSURE_MIN {
        return None;
    }
    let (heap, parts) =
        planned.nodes.iter().filter(|node| node.lines.word("kind") == "BitmapAnd").find_map(|both| {
            // Below a BitmapOr it finds only a part.
            let heap = planned.nodes.iter().find(|node| {
                number(node, "number") == number(both, "above") && !node.lines.word("relation").is_empty()
            })?;
            let parts: Vec<Thing<'_>> = below(planned, both).collect();
            Some((heap, parts))
        })?;
    let fit = number(heap, "rows_planned").max(1.0);
    let is_wide = |part: &Thing<'_>| {
        let found = number(part, "rows_planned");
        found >= FOUND_MIN && found >= fit * FOUND_TIMES
    };
    if parts.len() < 2 || !parts.iter().all(is_wide) {
        return None;
    }
    let relation = heap.lines.word("relation");
    let mut columns: Vec<String> = vec![];
    for part in &parts {
        for one in statement::conditions(part.lines.word("condition")).unwrap_or_default() {
            if one.inside.is_none() && one.how == Use::Equality && !columns.contains(&one.column) {
                columns.push(one.column);
            }
        }
    }
    if columns.len() < 2 {
        return None;
    }
    let found: Vec<String> = parts
        .iter()
        .map(|part| {
            format!("{} finds {}", part.lines.word("index"), units::count(number(part, "rows_planned")))
        })
        .collect();
    let text = format!(
        "a statement that takes {} of the session time combines the bitmaps of {} indexes of {relation} to find about {} rows ({}): no index has both {}",
        planned.share(),
        parts.len(),
        units::count(fit),
        found.join(", "),
        columns.join(" and ")
    );
    let severity = if planned.statement.share >= SHARE_MOST { Severity::Medium } else { Severity::Low };
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity, text)
            .number("rows_planned", fit)
            .because(planned.file())
            .lacking("the time with one index: EXPLAIN with hypopg, or on a copy")
            .remedy(
                "create one index on these columns together (those of ORDER BY behind them): it finds the rows at once. An index on one of them \
                 alone may then be superfluous, unless a constraint needs it",
                &[&statement::index_command(relation, &columns, true), &format!("ANALYZE {relation};")],
            ),
    )
}

/// A column of an order: its name, whether it goes down, and whether nulls come first.
type Key = (String, bool, bool);

/// The columns of a sort, or of an index; `None` if one of them is an expression.
fn keys(text: &str) -> Option<Vec<Key>> {
    text.split(',')
        .map(|part| {
            let part = part.trim();
            let (name, how) = part.split_once(' ').unwrap_or((part, ""));
            let name = name.rsplit('.').next().unwrap_or(name).trim_matches('"').to_string();
            let is_down = how.contains("DESC");
            let is_first = how.contains("NULLS FIRST") || is_down && !how.contains("NULLS LAST");
            let is_known =
                how.split_whitespace().all(|word| ["ASC", "DESC", "NULLS", "FIRST", "LAST"].contains(&word));
            let is_plain = !part.contains('(') && !name.is_empty() && is_known;
            is_plain.then_some((name, is_down, is_first))
        })
        .collect()
}

/// Columns of an index with their directions, from its definition.
fn keys_of(index: &Thing<'_>) -> Option<Vec<Key>> {
    let definition = index.lines.word("definition");
    let inside = definition.split_once(" USING btree (")?.1.split(')').next()?;
    keys(inside)
}

/// Whether an index has the columns of an order one after another, in directions that neither a forward nor a backward scan gives. `equal` are the columns
/// that are
/// compared with one value each.
fn is_turned(order: &[Key], index: &[Key], equal: &[String]) -> bool {
    let names = |keys: &[Key]| keys.iter().map(|key| key.0.clone()).collect::<Vec<_>>();
    let Some(begin) = index.iter().position(|key| key.0 == order[0].0) else { return false };
    let is_led = index[..begin].iter().all(|key| equal.contains(&key.0));
    let Some(part) =
        index.get(begin..begin + order.len()).filter(|part| is_led && names(part) == names(order))
    else {
        return false;
    };
    let pairs = || order.iter().zip(part);
    let forwards = pairs().all(|(one, other)| (one.1, one.2) == (other.1, other.2));
    let backwards = pairs().all(|(one, other)| (one.1, one.2) == (!other.1, !other.2));
    !forwards && !backwards
}

/// PLAN-74.
fn directions(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let has_limit = planned.nodes.iter().any(|node| node.lines.word("kind") == "Limit");
    let sort = planned.nodes.iter().find(|node| node.lines.word("kind").ends_with("Sort"))?;
    let scan = inputs(planned, sort).find(|node| !node.lines.word("relation").is_empty())?;
    let rows = number(&scan, "rows_planned");
    let shown = sort.lines.word("condition");
    let order = keys(shown)?;
    let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    if !has_limit || rows < ROWS_MIN || !is_touching {
        return None;
    }
    let relation = scan.lines.word("relation");
    let inner: Vec<String> = below(planned, &scan).flat_map(|node| equal(&node)).collect();
    let equal: Vec<String> = equal(&scan).into_iter().chain(inner).collect();
    let all = indexes(case, planned, relation);
    let (index, _) = all.iter().find(|(index, _)| {
        keys_of(index)
            .is_some_and(|keys| index.lines.flag("valid") != Some(false) && is_turned(&order, &keys, &equal))
    })?;
    let name = index.lines.word("index");
    let in_words = |key: &Key| {
        let nulls = match (key.1, key.2) {
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
            _ => "",
        };
        format!("{}{}{nulls}", statement::quoted(&key.0), if key.1 { " DESC" } else { "" })
    };
    let wanted: Vec<String> = order.iter().map(in_words).collect();
    let led: Vec<String> = keys_of(index)?
        .iter()
        .take_while(|key| key.0 != order[0].0)
        .map(|key| statement::quoted(&key.0))
        .collect();
    let is_by_nulls = wanted.iter().any(|key| key.contains(" NULLS "));
    let how = if is_by_nulls {
        "with the nulls at the other end, or in other directions"
    } else {
        "in other directions"
    };
    let text = format!(
        "a statement that takes {} of the session time reads and sorts {} {} rows of {relation} to return the first {}: it wants the order {}, and index \
            {name} has these columns {how}, so that it gives this order neither forwards nor backwards",
        planned.share(),
        // An incremental sort takes one group of equal first columns after the other.
        if sort.lines.word("kind") == "Incremental Sort" { "groups of the" } else { "about" },
        units::count(rows),
        units::short(planned.statement.rows.unwrap_or(0.0)),
        wanted.join(", ")
    );
    let columns: Vec<String> = led.into_iter().chain(wanted).collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_sorted", rows)
            .because(format!("the index: {}", index.lines.word("definition")))
            .because(format!("the plan sorts by {shown}"))
            .because(planned.file())
            .remedy(
                "create an index with the columns of the condition first, and those of ORDER BY behind them in these very directions: the first rows are \
                    then read \
                 from it without a sort (CONCURRENTLY does not block writes); the other index may then be superfluous",
                &[&format!("CREATE INDEX CONCURRENTLY ON {relation} ({});", columns.join(", "))],
            ),
    )
}

/// A statement on a table without statistics.
struct Unanalysed<'a> {
    facts: Vec<&'a Fact>,
    /// Its plan compares each row of one side with each of the other.
    is_filtered_loop: bool,
    does_more: bool,
}

impl Unanalysed<'_> {
    /// Whether a table has none at all, rather than those of its partitions.
    fn has_none(&self) -> bool {
        self.facts.iter().any(|fact| fact.value.contains(NO_STATISTICS))
    }

    /// Whether something shows that the plan is wrong for it.
    fn is_wrong(&self) -> bool {
        self.is_filtered_loop || self.does_more
    }
}

fn never_analysed<'a>(case: &'a Case, planned: &Planned<'_>) -> Option<Unanalysed<'a>> {
    let mut facts = peculiar_of(case, &planned.time.node, &planned.statement.text);
    facts.retain(|fact| [NEVER_ANALYSED, NO_STATISTICS].iter().any(|words| fact.value.contains(words)));
    facts.sort_by_key(|fact| !fact.value.contains(NO_STATISTICS));
    let combines = planned.nodes.iter().map(|node| node.lines.word("kind")).any(|kind| {
        kind.ends_with("Join") || ["Nested Loop", "Aggregate", "Unique", "HashAggregate"].contains(&kind)
    });
    if planned.statement.share < SHARE_UNSURE_MIN || !combines || facts.is_empty() {
        return None;
    }
    let is_filtered_loop = planned
        .nodes
        .iter()
        .any(|node| node.lines.word("kind") == "Nested Loop" && !node.lines.word("filter").is_empty());
    Some(Unanalysed { facts, is_filtered_loop, does_more: does_more(case, planned) })
}

const NO_ROWS: &str = "pg_stats has no row for any column of it";
const WHOLE_ROWS: &str =
    "pg_class.reltuples is -1 for a partitioned table without statistics (from PostgreSQL 14 on)";
const NOW: &str =
    "analyse it, and all tables after an upgrade or a restore: vacuumdb --all --analyze-in-stages";
const REGULARLY: &str = "analyse the partitioned table itself, now and after each larger load: autovacuum never does (a job once a day, or vacuumdb \
    --analyze-only)";

/// PLAN-75.
fn unanalysed(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let found = never_analysed(case, planned)?;
    if found.has_none() && !found.is_wrong() {
        return None;
    }
    let shape = match (found.is_filtered_loop, found.does_more) {
        (true, _) => {
            ", and its plan compares each row of one side with each of the other (a nested loop with a filter), which is chosen for a few rows"
        }
        (false, true) => ", and it touches far more blocks than its plan's cost allows",
        (false, false) => "",
    };
    let relation = plain(&found.facts[0].name, WORDS_CHARS);
    let mut tables = case.at("table", &planned.time.node);
    let table = tables.find(|table| table.lines.word("relation") == found.facts[0].name);
    let was_analysed =
        table.and_then(|table| table.lines.last("analyzes_total")).is_some_and(|times| times > 0.0);
    let (is, why, text) = match found.has_none() {
        true => (
            if was_analysed {
                "a table without any statistics: when it was analysed it had no rows, or none that were visible, and the planner guesses"
            } else {
                "a table without any statistics: nothing has analysed it, as after an upgrade (pg_upgrade), a restore or a load, and the planner guesses"
            },
            NO_ROWS,
            NOW,
        ),
        false => (
            "a partitioned table that was never analysed as a whole: autovacuum analyses only its partitions, so that the planner guesses how many \
                different values there are",
            WHOLE_ROWS,
            REGULARLY,
        ),
    };
    let claim = format!(
        "a statement that takes {} of the session time joins or groups the rows of {relation}, {is}{shape}",
        planned.share()
    );
    let mut commands: Vec<String> =
        found.facts.iter().map(|fact| format!("ANALYZE {};", fact.name)).collect();
    commands.push(explain_it(case, &planned.time.node, planned.statement));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let severity = if found.is_wrong() { severity(planned.statement.share) } else { Severity::Low };
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity, claim)
            .because(why)
            .because(planned.file())
            .lacking("the plan with statistics: EXPLAIN again after ANALYZE")
            .remedy(text, &commands),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_left_out_and_numbers_are_not() {
        for (written, wanted) in
            [("m.v", "v"), ("substr(r.no, 1.5)", "substr(no, 1.5)"), ("v", "v"), ("a.b.c + 2", "c + 2")]
        {
            assert_eq!(without_tables(written), wanted);
        }
    }

    #[test]
    fn an_order_is_turned_if_no_direction_of_a_scan_gives_it() {
        let of = |text: &str| keys(text).expect("columns");
        let equal = ["channel".to_string()];
        let index = of("channel, weight, at");
        assert!(is_turned(&of("c.weight DESC, c.at"), &index, &equal));
        assert!(!is_turned(&of("c.weight DESC, c.at DESC"), &index, &equal), "backwards");
        assert!(!is_turned(&of("c.weight, c.at"), &index, &equal), "forwards");
        assert!(is_turned(&of("c.weight DESC NULLS LAST, c.at DESC NULLS LAST"), &index, &equal), "nulls");
        assert!(!is_turned(&of("c.weight DESC, c.at"), &index, &[]), "not led by what is compared");
        assert!(!is_turned(&of("c.weight DESC, c.no"), &index, &equal), "another column");
        assert!(!is_turned(&of("c.weight DESC, c.at"), &of("channel, weight DESC, at"), &equal));
        assert_eq!(keys("lower(name), at"), None);
        assert_eq!(keys("name COLLATE \"en-x-icu\", at"), None);
    }
}
