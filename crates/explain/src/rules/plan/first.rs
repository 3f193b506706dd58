//! PLAN-89, PLAN-90: many rows are fetched and sorted for the first few, in an order that no index has: the rows of many keys, and what is computed from each
//! row and the search.

use super::distance::DISTANCES;
use super::index::indexes;
use super::{NEEDS, Planned, SHARE_MIN, below, inputs, judge, narrow, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::costly::{plain, rows_read};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use record::statement::{self, Use};

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-89",
        title: "the rows of many keys are sorted for the first few of all",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT whose plan looks up the rows of 3 keys or more of another table, or of a list, and sorts \
            1,000 rows or more of them, ten for each row that is returned; 100 blocks for each execution (ours)",
        judge: |case| judge(case, of_keys, "sorts below LIMIT, and the joins below them"),
        links: &["https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-LATERAL"],
    },
    Rule {
        id: "PLAN-90",
        title: "all rows that fit are ranked by a value that depends on the search",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with LIMIT whose plan sorts by what a function computes from each row and a parameter or another \
            table; 1,000 rows or more, ten for each row that is returned; 100 blocks for each execution (ours)",
        judge: |case| judge(case, ranked, "sorts below LIMIT by computed values"),
        links: &["https://www.postgresql.org/docs/current/textsearch-controls.html#TEXTSEARCH-RANKING"],
    },
];

/// Rows that are sorted, and for each one that is returned.
const ROWS_MIN: f64 = 1_000.0;
const ROWS_PER_RESULT_MIN: f64 = 10.0;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Keys whose rows are merged by a sort.
const KEYS_MIN: f64 = 3.0;
/// The share of the session time from which on the counters of a table are those of the statement.
const OWN_SHARE_MIN: f64 = 0.5;
/// Characters of an order or a condition in a claim.
const WORDS_CHARS: usize = 120;
/// Between a sort and the LIMIT above it, and between a join and the table below it: they pass rows on.
const ABOVE: [&str; 6] =
    ["Gather", "Gather Merge", "Incremental Sort", "LockRows", "Result", "Subquery Scan"];
const BELOW: [&str; 9] = [
    "Gather",
    "Gather Merge",
    "Hash",
    "Hash Join",
    "Materialize",
    "Memoize",
    "Merge Join",
    "Nested Loop",
    "Subquery Scan",
];
const JOINS: [&str; 3] = ["Hash Join", "Merge Join", "Nested Loop"];

/// Whether one of these rules explains what a statement reads.
pub(in crate::rules) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    planned.statement.share >= SHARE_MIN
        && (of_keys(case, planned).is_some() || ranked(case, planned).is_some())
}

/// A sort of which a LIMIT takes the first rows.
struct Sorted<'a> {
    sort: Thing<'a>,
    /// Its keys, the first one decides.
    keys: &'a str,
    /// The tables whose rows reach it through joins alone.
    tables: Vec<Thing<'a>>,
    returned: f64,
}

impl<'a> Sorted<'a> {
    fn of(planned: &Planned<'a>) -> Option<Sorted<'a>> {
        let blocks = planned.statement.blocks;
        if planned.statement.is_counted && blocks.is_some_and(|blocks| blocks < BLOCKS_MIN) {
            return None;
        }
        let is_cut = |sort: &Thing<'a>| {
            let above = planned.above(sort);
            let mut above = above.iter().skip_while(|kind| ABOVE.contains(*kind));
            above.next().is_some_and(|kind| *kind == "Limit")
        };
        let mut sorts = planned.nodes.iter().filter(|node| {
            node.lines.word("kind").ends_with("Sort") && !node.lines.word("condition").is_empty()
        });
        let sort = *sorts.find(|sort| is_cut(sort))?;
        let limit = planned.nodes.iter().find(|node| node.lines.word("kind") == "Limit");
        let returned = planned.statement.rows.or(limit.map(|limit| number(limit, "rows_planned")))?;
        let (mut open, mut tables) = (inputs(planned, &sort).collect::<Vec<_>>(), vec![]);
        while let Some(node) = open.pop() {
            match node.lines.word("relation").is_empty() {
                false => tables.push(node),
                true if BELOW.contains(&node.lines.word("kind")) => open.extend(inputs(planned, &node)),
                true => {}
            }
        }
        Some(Sorted { sort, keys: sort.lines.word("condition"), tables, returned: returned.max(1.0) })
    }

    /// Rows that an execution sorts: by the plan, or by the counters of their table where the plan, which is for unknown values, expects fewer.
    fn rows(&self, case: &Case, planned: &Planned<'_>, table: &Thing<'_>) -> f64 {
        let expected = number(&self.sort, "rows_planned");
        let is_own = planned.statement.share >= OWN_SHARE_MIN;
        let counted = rows_read(case, planned.time, planned.statement, table.lines.word("relation"));
        expected.max(counted.filter(|_| is_own).unwrap_or(0.0))
    }

    fn are_many(&self, rows: f64) -> bool {
        rows >= ROWS_MIN && rows >= self.returned * ROWS_PER_RESULT_MIN
    }
}

/// The name of a table in front of a column in an order.
fn alias_of(key: &str) -> Option<&str> {
    let (alias, _) = key.split_once('.')?;
    statement::is_name(alias).then_some(alias)
}

/// Whether a table of a plan has this name in its conditions, which may be in quotes.
fn is_alias(table: &Thing<'_>, alias: &str) -> bool {
    let own = table.lines.word("alias");
    !own.is_empty() && (own == alias || statement::quoted(own) == alias)
}

/// What a table is looked up by: a column that a join or a list gives a value.
struct Keyed<'a> {
    column: String,
    /// How many keys, by the plan.
    count: f64,
    /// The table that they come from; `None` for a list.
    from: Option<&'a str>,
}

/// What an index of a table is searched for; of a bitmap the node below has it.
fn searched<'a>(planned: &Planned<'a>, table: &Thing<'a>) -> &'a str {
    match table.lines.word("condition") {
        "" => below(planned, table).map(|one| one.lines.word("condition")).next().unwrap_or_default(),
        own => own,
    }
}

fn keyed<'a>(planned: &Planned<'a>, table: &Thing<'a>, alias: &str) -> Option<Keyed<'a>> {
    let column_of = |text: &str, how: Use| {
        let all = statement::conditions(text).unwrap_or_default();
        let is_own = |one: &statement::Condition| {
            one.table.as_deref().is_none_or(|of| of == alias.trim_matches('"')) && one.inside.is_none()
        };
        all.into_iter().find(|one| one.how == how && is_own(one)).map(|one| one.column)
    };
    let own = searched(planned, table);
    let (mut side, join) = (*table, planned.ancestors(table));
    for above in join {
        if JOINS.contains(&above.lines.word("kind")) {
            let text =
                if above.lines.word("kind") == "Nested Loop" { own } else { above.lines.word("condition") };
            let other = inputs(planned, &above).find(|one| number(one, "number") != number(&side, "number"));
            if let Some((column, other)) = column_of(text, Use::Join).zip(other) {
                let from = tables_of(planned, other).first().map(|table| table.lines.word("relation"));
                return Some(Keyed { column, count: number(&other, "rows_planned"), from });
            }
        } else if !BELOW.contains(&above.lines.word("kind")) {
            break;
        }
        side = above;
    }
    // A list: how many members it has, the plan does not show, and assumes ten.
    let list = own.split_once(" = ANY (").map(|(before, _)| before)?;
    let column = column_of(own, Use::Equality)?;
    let is_it = list.trim_end_matches(')').rsplit(['.', '(']).next()?.trim_matches('"') == column;
    is_it.then_some(Keyed { column, count: KEYS_MIN, from: None })
}

/// The tables in a part of a plan.
fn tables_of<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Vec<Thing<'a>> {
    let (mut open, mut found) = (vec![node], vec![]);
    while let Some(node) = open.pop() {
        if !node.lines.word("relation").is_empty() {
            found.push(node);
        }
        open.extend(below(planned, &node));
    }
    found
}

/// The columns that a table is compared by with one value each, besides its key.
fn equal(planned: &Planned<'_>, table: &Thing<'_>, alias: &str, key: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for text in [searched(planned, table), table.lines.word("filter")] {
        for one in statement::conditions(text).unwrap_or_default() {
            let is_own = one.table.as_deref().is_none_or(|of| of == alias.trim_matches('"'));
            let is_new = one.column != key && !found.contains(&one.column);
            if is_own && is_new && one.how == Use::Equality && one.inside.is_none() {
                found.push(one.column);
            }
        }
    }
    found
}

const EACH_BY_ITSELF: &str = "then each key gives its first rows in the order of an index, and at most LIMIT rows of each are sorted, not all. With thousands \
    of keys keep the list itself: a row for each reader, written together with the new row";

/// PLAN-89.
fn of_keys(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let sorted = Sorted::of(planned)?;
    let alias = alias_of(sorted.keys)?;
    let of_one = sorted.keys.matches('.').count() == sorted.keys.matches(&format!("{alias}.")).count();
    let table = sorted.tables.iter().find(|table| is_alias(table, alias))?;
    let rows = sorted.rows(case, planned, table);
    if !of_one || sorted.keys.contains(['$', '(']) || !sorted.are_many(rows) {
        return None;
    }
    let keyed = keyed(planned, table, alias).filter(|keyed| keyed.count >= KEYS_MIN)?;
    let relation = table.lines.word("relation");
    let order = sorted.keys.replace(&format!("{alias}."), "");
    let mut columns = vec![keyed.column.clone()];
    columns.extend(equal(planned, table, alias, &keyed.column));
    let first = order.split([',', ' ']).next().unwrap_or_default().trim_matches('"').to_string();
    let is_there = indexes(case, planned, relation).iter().any(|(index, of_index)| {
        let at = of_index.iter().position(|column| *column == first);
        let is_led =
            at.is_some_and(|at| of_index[..at].iter().all(|one| columns.iter().any(|own| own == one)));
        is_led && index.lines.flag("valid") != Some(false) && index.lines.word("method") == "btree"
    });
    let quoted: Vec<String> = columns.iter().map(|column| statement::quoted(column)).collect();
    let create = format!("CREATE INDEX CONCURRENTLY ON {relation} ({}, {order});", quoted.join(", "));
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> =
        [(!is_there && !columns.contains(&first)).then_some(create.as_str()), Some(explain.as_str())]
            .into_iter()
            .flatten()
            .collect();
    let (keys, from) = match keyed.from {
        Some(from) => {
            (format!("about {} keys ({} of {from})", units::count(keyed.count), keyed.column), from)
        }
        None => (format!("the keys of a list ({})", keyed.column), "unnest(list)"),
    };
    let text = format!(
        "a statement that takes {} of the session time fetches all rows of {relation} of {keys}, about {}, and sorts them by {} to return the first {}",
        planned.share(),
        units::count(rows),
        plain(&order, WORDS_CHARS),
        units::short(sorted.returned)
    );
    let remedy = format!(
        "read the first rows of each key alone: FROM {from} AS k CROSS JOIN LATERAL (SELECT ... FROM {relation} AS r WHERE r.{} = the key ORDER BY \
         {order} LIMIT n) AS r ORDER BY {order} LIMIT n, with the same n; {EACH_BY_ITSELF}",
        keyed.column
    );
    let by = Some(index_of(planned, table)).filter(|index| !index.is_empty());
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_sorted", rows)
            .number("rows_returned", sorted.returned)
            .number("keys", keyed.count)
            .because("a LIMIT above a sort stops nothing: every row of every key is fetched and compared before the first one is returned")
            .because(planned.file())
            .with(by, |claim, index| {
                claim.not(format!("a missing index on {}: index {index} finds the rows of each key, but all of them", keyed.column))
            })
            .remedy(remedy, &commands),
    )
}

/// The index by which a table is read; of a bitmap the node below has it.
fn index_of<'a>(planned: &Planned<'a>, table: &Thing<'a>) -> &'a str {
    match table.lines.word("index") {
        "" => below(planned, table).map(|one| one.lines.word("index")).next().unwrap_or_default(),
        own => own,
    }
}

/// The first of the keys of an order, which may have commas inside of its calls.
fn first_key(keys: &str) -> &str {
    let mut depth = 0_usize;
    let end = keys.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *c == ',' && depth == 0
    });
    end.map_or(keys, |(at, _)| &keys[..at])
}

/// The call that an order is computed by, if it depends on more than the row: on a parameter, or a column of something else.
fn ranking<'k>(key: &'k str, alias: &str) -> Option<&'k str> {
    let call = &key[key.find('(')?..];
    let is_call = |at: usize| key[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"');
    let calls = key.match_indices('(').any(|(at, _)| is_call(at));
    let own = key.matches(&format!("{alias}.")).count();
    let depends = call.contains('$') || key.matches('.').count() > own;
    let is_distance = DISTANCES.iter().any(|operator| key.contains(operator));
    (calls && depends && own > 0 && !is_distance).then_some(key)
}

/// Functions that rank texts by a search.
const OF_TEXTS: [&str; 2] = ["ts_rank(", "ts_rank_cd("];
const RANK_FEWER: &str = "rank fewer rows: let the search ask for all of its words (plainto_tsquery, &) and leave out words that most rows have, and rank only \
    the newest of those that fit: SELECT ... FROM (SELECT ... WHERE column @@ query ORDER BY time DESC LIMIT 1000) AS found ORDER BY ts_rank(...) DESC \
    LIMIT n, with an index on the time, else all that fit are still read. \
    Let the rank read a stored tsvector, and not to_tsvector() of the text; the extension rum has indexes in the order of a rank";
const SORT_FEWER: &str = "let a condition that an index serves leave fewer rows before they are sorted (a coarse one first, as in SELECT ... FROM (SELECT ... \
    ORDER BY time DESC LIMIT 1000) AS found ORDER BY ..., with an index on the time), or keep the part that does not depend on the search in a column";

/// PLAN-90. Where no index finds the rows that fit, that is the matter.
fn ranked(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let sorted = Sorted::of(planned)?;
    let table = sorted
        .tables
        .iter()
        .max_by(|left, right| number(left, "table_rows").total_cmp(&number(right, "table_rows")))?;
    let key = ranking(first_key(sorted.keys), table.lines.word("alias"))?;
    let rows = sorted.rows(case, planned, table);
    if !sorted.are_many(rows) || narrow::is_explained(case, planned) {
        return None;
    }
    let relation = table.lines.word("relation");
    let is_text = OF_TEXTS.iter().any(|name| key.contains(name));
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let shown = key.strip_suffix(" DESC").unwrap_or(key);
    let text = format!(
        "a statement that takes {} of the session time computes {} for each of about {} rows of {relation} and sorts them by it to return the first {}: the \
         value depends on the search, so that no index has that order",
        planned.share(),
        plain(shown, WORDS_CHARS),
        units::count(rows),
        units::short(sorted.returned)
    );
    let by = Some(index_of(planned, table)).filter(|index| !index.is_empty());
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_sorted", rows)
            .number("rows_returned", sorted.returned)
            .with(planned.statement.blocks, |claim, blocks| {
                claim.number("blocks_per_call", blocks).because(format!(
                    "an execution touches {} blocks: each row that fits is fetched, and its value unpacked where it is large",
                    units::short(blocks)
                ))
            })
            .because(planned.file())
            .with(by, |claim, index| {
                claim.not(format!("a missing index: index {index} finds the rows that fit, and there are many"))
            })
            .remedy(if is_text { RANK_FEWER } else { SORT_FEWER }, &[&explain]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_depends_on_the_search() {
        for (key, is_one) in [
            ("(ts_rank(doc.tsv, q.q)) DESC", true),
            ("(ts_rank(doc.tsv, plainto_tsquery($1, $2))) DESC", true),
            ("(similarity(doc.name, $1)) DESC", true),
            ("(lower(doc.name))", false),
            ("(doc.at - $1)", false),
            ("(doc.place <-> point($1, $2))", false),
            ("doc.made DESC", false),
        ] {
            assert_eq!(ranking(key, "doc").is_some(), is_one, "{key}");
        }
        assert_eq!(first_key("(f(a.b, $1)) DESC, a.c"), "(f(a.b, $1)) DESC");
    }
}
