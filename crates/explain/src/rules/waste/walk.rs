//! PLAN-27: an index is read in its order until enough rows fit.

use super::{BLOCKS_MIN, PER_ROW_MIN, SHARE_MIN};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, plain, severity, table_named};
use crate::rules::plan;
use crate::rules::statement::{conditions_on, explain_it};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;

/// The number of a finding whose statement walks over dead rows.
pub(crate) const DEAD_ROWS: &str = "dead_rows";
/// So many of them.
const DEAD_MIN: f64 = 5_000.0;

/// The scan of a plan that reads an index only for its order, and throws rows away.
fn walk<'a>(planned: &'a plan::Planned<'a>) -> Option<&'a Thing<'a>> {
    let is_walk = |node: &&Thing<'_>| {
        node.lines.word("kind").starts_with("Index Scan")
            && !node.lines.word("filter").is_empty()
            && node.lines.word("condition").is_empty()
    };
    planned.nodes.iter().find(is_walk).or_else(|| walk_of_join(planned))
}

/// The same where what fits is decided by a join: the first rows of an index are joined one by one until enough of them fit.
fn walk_of_join<'a>(planned: &'a plan::Planned<'a>) -> Option<&'a Thing<'a>> {
    let has = |kind: &str| planned.nodes.iter().any(|node| node.lines.word("kind") == kind);
    let is_whole = |node: &&Thing<'_>| {
        let is_of_index = matches!(node.lines.word("kind"), "Index Scan" | "Index Only Scan");
        let is_large = node.lines.last("table_rows").is_some_and(|rows| rows >= JOINED_ROWS_MIN);
        is_of_index
            && is_large
            && node.lines.word("condition").is_empty()
            && node.lines.word("filter").is_empty()
    };
    let is_join = ["Nested Loop", "Hash Join", "Merge Join"].into_iter().any(has);
    // Rows without a partner are another rule's.
    let is_anti = planned.nodes.iter().any(|node| node.lines.word("join").ends_with("Anti"));
    // What subqueries read for each row is not the walk's.
    let has_subquery = planned.nodes.iter().any(|node| node.lines.flag("subquery") == Some(true));
    let ends_early =
        !is_anti && !has_subquery && has("Limit") && is_join && !has("Sort") && !has("Aggregate");
    planned.nodes.iter().find(is_whole).filter(|_| ends_early)
}

/// The part of a statement's blocks that are of the table whose index it walks, and of that index.
const OWN_BLOCKS_MIN: f64 = 0.3;
/// Rows of a table whose index is walked for a join.
const JOINED_ROWS_MIN: f64 = 10_000.0;

/// What a plan shows of why so much is read, as the end of a claim, and the index that would end it if the plan shows that, too.
struct Reason {
    words: String,
    index: Option<String>,
}

/// Rows that an execution reads, against those that its plan expects, from which on it is another plan.
const FAR_MORE: f64 = 10.0;
/// Characters of an expression in a claim.
const EXPRESSION_CHARS: usize = 120;

/// Why a statement with ORDER BY and LIMIT reads so much, by its plan: it sorts all that fits, or walks an index in its order.
fn reason(planned: &plan::Planned<'_>, walked: Option<&Thing<'_>>, for_each: Option<f64>) -> Option<Reason> {
    if let Some(node) = walked.filter(|node| node.lines.word("filter").is_empty()) {
        let mut filters =
            planned.nodes.iter().flat_map(|node| ["filter", "condition"].map(|field| node.lines.word(field)));
        let words = format!(
            "it reads {} in the order of index {} until the join has enough rows: the planner expects the average number of rows that fit {}, and they are \
             rare, or far from the beginning",
            node.lines.word("relation"),
            node.lines.word("index"),
            plain(filters.find(|text| text.contains('$')).unwrap_or("the condition"), EXPRESSION_CHARS)
        );
        return Some(Reason { words, index: None });
    }
    if let Some(node) = walked {
        let words = format!(
            "it reads {} in the order of index {} and throws away what does not fit {}",
            node.lines.word("relation"),
            node.lines.word("index"),
            plain(node.lines.word("filter"), EXPRESSION_CHARS)
        );
        return Some(Reason { words, index: None });
    }
    let is_sort =
        |node: &&Thing<'_>| node.lines.word("kind") == "Sort" && !node.lines.word("condition").is_empty();
    let sort = planned.nodes.iter().find(is_sort)?;
    let is_scan = |node: &&Thing<'_>| {
        plan::number(node, "number") > plan::number(sort, "number") && !node.lines.word("relation").is_empty()
    };
    let scan = planned.nodes.iter().find(is_scan)?;
    let (relation, keys) = (scan.lines.word("relation"), sort.lines.word("condition"));
    // The condition of a bitmap stands below the node with the table.
    let below = plan::inputs(planned, scan).next();
    let by_index = |node: &Thing<'_>| {
        Some(node.lines.word("condition")).filter(|text| !text.is_empty()).map(str::to_string)
    };
    let condition = by_index(scan).or_else(|| below.and_then(|node| by_index(&node))).unwrap_or_default();
    let all: Vec<&str> =
        [condition.as_str(), scan.lines.word("filter")].into_iter().filter(|text| !text.is_empty()).collect();
    let computed = if keys.contains('(') { ", which is computed for each of them," } else { "" };
    let expected = plan::number(scan, "rows_planned");
    let read = for_each.map_or(0.0, |each| each * planned.statement.rows.unwrap_or(0.0));
    // The plan is for any values: where executions read far more rows than it sorts, they have another one.
    let words = if read >= expected * FAR_MORE && !condition.is_empty() && computed.is_empty() {
        format!(
            "it reads {} rows of {relation} by an index for each execution, where a plan for any values expects {} that fit {}: for the values that are given \
             they are many more, or the server walks an index in the order of {} and throws away what does not fit",
            units::short(read),
            units::short(expected),
            plain(&all.join(" and "), EXPRESSION_CHARS),
            plain(keys, EXPRESSION_CHARS)
        )
    } else {
        format!(
            "it fetches all rows of {relation} that fit {} and sorts them by {}{computed} for the first few",
            plain(&all.join(" and "), EXPRESSION_CHARS),
            plain(keys, EXPRESSION_CHARS)
        )
    };
    Some(Reason { words, index: index_in_order(relation, scan.lines.word("alias"), &all, keys) })
}

/// The index that has the columns compared by equality first and then the order, if all of that is this table's own.
fn index_in_order(relation: &str, alias: &str, conditions: &[&str], keys: &str) -> Option<String> {
    let conditions = conditions.iter().filter_map(|text| statement::conditions(text).ok()).flatten();
    let is_equal = |one: &statement::Condition| one.how == statement::Use::Equality && one.inside.is_none();
    let mut equal: Vec<String> =
        conditions.filter(is_equal).map(|one| statement::quoted(&one.column)).collect();
    equal.dedup();
    let own = format!("{alias}.");
    // Parameters and other tables cannot be part of an index.
    let is_own =
        keys.matches('.').count() == keys.matches(&own).count() && !alias.is_empty() && !keys.contains('$');
    let columns = equal.into_iter().chain([keys.replace(&own, "")]).collect::<Vec<_>>().join(", ");
    is_own.then(|| format!("CREATE INDEX CONCURRENTLY ON {relation} ({columns});"))
}

/// Rows that index scans of a statement's tables read for each row that it returns, where all its tables are known and none is scanned.
fn read_by_index(case: &Case, node: &str, statement: &StatementTime) -> Option<f64> {
    let parsed = statement::parse(&statement.text).ok()?;
    let named = parsed.tables.first().filter(|_| parsed.tables.len() == 1)?;
    let table = table_named(case, node, statement, named)?;
    let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
    let returned = statement.rows? * statement.calls_per_s?;
    let is_scanned = rate("seq_scans") * 2.0 >= statement.calls_per_s?;
    let by_index = rate("index_rows") / returned.max(f64::MIN_POSITIVE);
    (!is_scanned && by_index >= PER_ROW_MIN).then_some(by_index)
}

/// Whether most blocks of a statement are of another table than the one that its plan walks: a trigger or a foreign key reads them.
fn reads_elsewhere(case: &Case, node: &Thing<'_>, statement: &StatementTime) -> bool {
    let relation = node.lines.word("relation");
    let Some(table) = case.at("table", node.place).find(|table| table.lines.word("relation") == relation)
    else {
        return false;
    };
    let Some(hit) = table.lines.rate("blocks_hit") else { return false };
    let own = hit + table.lines.rate("blocks_read").unwrap_or(0.0);
    let all = statement.blocks.unwrap_or(0.0) * statement.calls_per_s.unwrap_or(0.0);
    own < all * OWN_BLOCKS_MIN
}

/// A statement with ORDER BY and LIMIT that reads far more than it returns.
struct Walked<'a> {
    planned: Option<plan::Planned<'a>>,
    /// Whether its plan shows the walk.
    is_shown: bool,
    by_index: Option<f64>,
}

fn seen<'a>(case: &'a Case, time: &'a NodeTime, statement: &'a StatementTime) -> Option<Walked<'a>> {
    let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
    let text = statement.text.to_ascii_lowercase();
    let has = |word: &str| text.split_whitespace().any(|other| other == word);
    let is_ordered = has("order") && has("limit") && !has("offset");
    if statement.share < SHARE_MIN || !is_ordered || blocks < BLOCKS_MIN || blocks < rows * PER_ROW_MIN {
        return None;
    }
    let planned = plan::plan_of(case, time, statement);
    let node = planned.as_ref().and_then(|planned| walk(planned));
    if node.is_some_and(|node| reads_elsewhere(case, node, statement)) {
        return None;
    }
    // An index that its condition cannot use is the reason, and PLAN-11 has it; an order that no index has is that of PLAN-89 and PLAN-90.
    let is_of_others = |planned: &plan::Planned<'_>| {
        plan::is_obstructed(case, planned) || plan::is_sorted_for_few(case, planned)
    };
    if planned.as_ref().is_some_and(is_of_others) {
        return None;
    }
    let by_index = read_by_index(case, &time.node, statement);
    // The plan is for unknown values, also of LIMIT: sessions whose plans know them may walk another index than it shows.
    // What is sorted is read to its end.
    let sorts =
        |planned: &plan::Planned<'_>| planned.nodes.iter().any(|node| node.lines.word("kind") == "Sort");
    let is_other = planned.as_ref().is_some_and(|planned| plan::does_more(case, planned) && !sorts(planned));
    // Groups are known when all rows have been read, whatever the order and the limit.
    let makes_groups = node.is_none() && text.contains("group by");
    if makes_groups || node.is_none() && by_index.is_none() && !is_other {
        return None;
    }
    let is_shown = node.is_some();
    Some(Walked { planned, is_shown, by_index })
}

/// Whether PLAN-27 has a finding about the statement.
pub(in crate::rules) fn is_walked(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    seen(case, time, statement).is_some()
}

pub(super) fn walked(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            let Some(Walked { planned, is_shown, by_index }) = seen(case, time, statement) else { continue };
            if planned.is_none()
                && let Some(claim) = of_pattern(case, time, statement)
            {
                claims.push(claim);
                continue;
            }
            let node = planned.as_ref().and_then(|planned| walk(planned)).filter(|_| is_shown);
            let own = planned.as_ref().and_then(|planned| reason(planned, node, by_index));
            let reason = own.or_else(|| planned.as_ref().and_then(|planned| unserved(case, planned)));
            claims.push(of_walk(case, time, statement, (node.map(|node| node.lines), reason), by_index));
        }
    }
    Answer::of(claims, || "statements with ORDER BY and LIMIT among those that take the time".to_string())
}

/// The reason that the parts of the condition have, where the form of the plan shows none.
fn unserved(case: &Case, planned: &plan::Planned<'_>) -> Option<Reason> {
    let plan::Reason { words, commands, .. } = plan::why_unserved(case, planned)?;
    Some(Reason { words, index: commands.into_iter().find(|command| command.starts_with("CREATE INDEX")) })
}

/// Of the rows of a table, those that an execution reads by an index that it reads to its end.
const WHOLE_MIN: f64 = 0.5;

/// The same without a plan, where the condition is a pattern: an index that is read for ORDER BY does not serve it, or executions would not read most of it.
fn of_pattern(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let parsed = statement::parse(&statement.text).ok()?;
    let named = parsed.tables.first().filter(|_| parsed.tables.len() == 1)?;
    let table = table_named(case, &time.node, statement, named)?;
    let relation = table.lines.word("relation");
    let conditions = conditions_on(statement, relation);
    let searched = conditions.iter().find(|one| one.how.is_pattern() && one.inside.is_none())?;
    // `name(column)`, or with more columns behind it.
    let begins = [format!("({})", searched.column), format!("({},", searched.column)];
    let mut indexes = table.lines.word("index_columns").split("; ");
    let index = indexes.find(|index| begins.iter().any(|begin| index.contains(begin.as_str())))?;
    let read = table.lines.rate("index_rows")? / statement.calls_per_s?;
    if read < table.lines.last("live_rows")? * WHOLE_MIN {
        return None;
    }
    let advice = plan::pattern_of_text(case, &time.node, statement, relation, &conditions)?;
    let text = format!(
        "{}: {} of the session time is one statement that searches {} of {relation} by a pattern, which index {} does not serve: it is read to its end, {} \
         rows for each execution, and the pattern is compared with each of them",
        time.node,
        units::percent(statement.share),
        plain(&searched.column, EXPRESSION_CHARS),
        plain(index, EXPRESSION_CHARS),
        units::short(read)
    );
    let commands: Vec<&str> = advice.commands.iter().map(String::as_str).collect();
    Some(
        Claim::new(severity(statement.share), Level::CoOccurrence, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", statement.share)
            .number("blocks_per_call", statement.blocks.unwrap_or(0.0))
            .number("rows_read", read)
            .because(format!("the statement: {}", in_a_line(statement)))
            .because("an index in the order of a language (a collation other than C) serves ORDER BY, and neither LIKE nor ~")
            .not("LIMIT: an index that served the pattern would have the first rows at once")
            .with(advice.lacking, Claim::lacking)
            .lacking("the plan, and the collation of the index: the first command shows it")
            .remedy(advice.text, &commands),
    )
}

const IN_ORDER: &str = "the planner expects the rows that fit to be spread evenly in that order; an index that has the columns of the condition first, and \
    those of ORDER BY behind them, finds them at once (CONCURRENTLY does not block writes)";
const EITHER: &str = "no index serves both sides of an OR in that order: write a branch for each side, with ORDER BY and LIMIT of its own, and an index that \
    fits it, and take the first rows of their UNION";

fn of_walk(
    case: &Case,
    time: &NodeTime,
    statement: &StatementTime,
    (node, reason): (Option<&crate::case::Lines>, Option<Reason>),
    by_index: Option<f64>,
) -> Claim {
    let dead = dead_rows(case, &time.node, statement);
    let sorts = reason.as_ref().is_some_and(|reason| reason.index.is_some());
    let index = index_for(statement).filter(|_| !sorts);
    let index = index.or_else(|| reason.as_ref().and_then(|reason| reason.index.clone()));
    let why = reason.map_or(String::new(), |reason| format!(": {}", reason.words));
    let mut commands = vec![explain_it(case, &time.node, statement)];
    commands.extend(index);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let is_either = node.is_some_and(|node| node.word("filter").contains(" OR "));
    // Without a plan the walk is a guess.
    let most = if node.is_none() && why.is_empty() { Severity::Medium } else { Severity::High };
    Claim::new(
        if dead.is_some() { Severity::Low } else { severity(statement.share).min(most) },
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is one statement with ORDER BY and LIMIT, which touches {} blocks to return {} rows{}",
            time.node,
            units::percent(statement.share),
            units::short(statement.blocks.unwrap_or(0.0)),
            units::short(statement.rows.unwrap_or(0.0)),
            dead.map_or(why, |dead| format!(": its table has {} dead rows, which it walks over", units::short(dead)))
        ),
    )
    .with(dead, |claim, dead| claim.number(DEAD_ROWS, dead))
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", statement.share)
    .number("blocks_per_call", statement.blocks.unwrap_or(0.0))
    .because(format!("the statement: {}", in_a_line(statement)))
    .with(node.filter(|node| !node.word("filter").is_empty()), |claim, node| {
        claim.because(format!(
            "the plan reads {} in the order of {} and filters by {}: rows that do not fit are read and thrown away",
            node.word("relation"),
            node.word("index"),
            node.word("filter")
        ))
    })
    .with(by_index, |claim, each| {
        claim.number("rows_read_per_row", each).because(format!(
            "index scans of its table read {} rows for each one that it returns, and nothing scans the table",
            units::short(each)
        ))
    })
    .with(node.is_none().then_some(()), |claim, ()| claim.lacking("the plan: an index scan in the order of ORDER BY, with a filter"))
    .remedy(if is_either { EITHER } else { IN_ORDER }, &commands)
}

/// Dead rows of the one table of a statement, if they are more than its live ones.
fn dead_rows(case: &Case, node: &str, statement: &StatementTime) -> Option<f64> {
    let names = statement::names(&statement.text);
    let mut tables = case.at("table", node).filter(|table| {
        let bare = table.lines.word("relation").rsplit('.').next().unwrap_or_default().trim_matches('"');
        names.iter().any(|name| name == bare)
    });
    tables.find_map(|table| {
        let dead = table.lines.last("dead_rows")?;
        let live = table.lines.last("live_rows").unwrap_or(0.0);
        (dead >= DEAD_MIN && dead > live).then_some(dead)
    })
}

/// The index for the condition and the order of a statement on one table, by its text.
fn index_for(statement: &StatementTime) -> Option<String> {
    let parsed = statement::parse(&statement.text).ok()?;
    let table = parsed.tables.first().filter(|_| parsed.tables.len() == 1)?;
    let mut columns = statement::index_columns(&parsed.conditions);
    let text = statement.text.to_ascii_lowercase();
    let order = text.split("order by").nth(1)?.split("limit").next()?.split(',').next()?;
    let column = order.split_whitespace().next()?.rsplit('.').next()?.trim_matches('"').to_string();
    let is_number = column.starts_with(|c: char| c.is_ascii_digit());
    let is_plain =
        !order.contains('(') && !is_number && column.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_computed =
        statement::shape(&statement.text).is_ok_and(|shape| shape.computed_as.contains(&column));
    if columns.is_empty() || !is_plain || is_computed || columns.contains(&column) {
        return None;
    }
    columns.push(column);
    let schema =
        table.schema.as_ref().map_or(String::new(), |schema| format!("{}.", statement::quoted(schema)));
    Some(statement::index_command(&format!("{schema}{}", statement::quoted(&table.name)), &columns, true))
}
