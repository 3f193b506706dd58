//! Scans for few rows although a usable index exists, executions that do not follow the recorded plan, and OR over two tables: conditions in which
//! another index would change nothing.

use super::index::{self, Scan};
use super::sent::{self, Reason};
use super::settings::own_setting;
use super::{Planned, SHARE_MIN, below, planned, refuted, severity, skew, tree};
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::rule::Answer;
use crate::rules::costly::{scanned, wasteful};
use crate::rules::paste::literal;
use crate::rules::{access, form};
use crate::units;
use record::finding::{Level, Severity};
use record::statement::{self, Condition};
use record::watched::FUNCTION_SETTINGS;

/// A random page that costs more than this against a sequential one is no value for a disk that exists; 4 is the default.
const RANDOM_PAGE_COST_MAX: f64 = 10.0;
/// A plan that expects fewer rows than this does not explain hundreds of blocks.
const ROWS_MANY: f64 = 1_000.0;
/// Settings of the planner that forbid what an index could do.
const FORBIDS: [&str; 3] = ["enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan"];
/// Words that stand in front of a parenthesis in a filter and are no functions.
const NO_FUNCTIONS: [&str; 12] =
    ["and", "or", "not", "any", "all", "in", "row", "array", "coalesce", "nullif", "greatest", "least"];

/// Functions of the server that conditions often call, none of them VOLATILE (`pg_proc.dat`).
const NOT_VOLATILE: [&str; 46] = [
    "now",
    "transaction_timestamp",
    "statement_timestamp",
    "current_setting",
    "current_database",
    "current_schema",
    "current_user",
    "session_user",
    "date_trunc",
    "date_part",
    "date_bin",
    "timezone",
    "age",
    "make_date",
    "make_interval",
    "make_timestamp",
    "make_timestamptz",
    "to_char",
    "to_date",
    "to_timestamp",
    "to_number",
    "lower",
    "upper",
    "initcap",
    "length",
    "char_length",
    "substr",
    "substring",
    "left",
    "right",
    "btrim",
    "ltrim",
    "rtrim",
    "replace",
    "concat",
    "concat_ws",
    "split_part",
    "md5",
    "abs",
    "round",
    "floor",
    "ceil",
    "mod",
    "array_length",
    "cardinality",
    "to_tsvector",
];

/// Functions that a filter calls, in the order of the text.
fn functions(filter: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    for (at, _) in filter.match_indices('(') {
        let before = &filter[..at];
        let name: String = before.chars().rev().take_while(|c| is_name(*c)).collect();
        let name: String = name.chars().rev().collect();
        let starts_well = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        // `::numeric(10,2)` is a type.
        let is_type = before[..before.len() - name.len()].ends_with("::");
        let is_word = NO_FUNCTIONS.contains(&name.to_ascii_lowercase().as_str());
        if starts_well && !is_type && !is_word && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn forbidden(case: &Case, node: &str) -> Option<Reason> {
    let off = FORBIDS.iter().find(|name| case.setting(node, name) == Some("off"));
    if let Some(name) = off {
        return Some(Reason {
            why: format!("{name} is off"),
            text: "turn the setting on again; one that is meant for a single statement belongs into its transaction (SET LOCAL)",
            commands: vec![format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();")],
        });
    }
    let number = |name: &str| case.setting(node, name).and_then(|text| text.parse::<f64>().ok());
    let random = number("random_page_cost")?;
    let factor = random / number("seq_page_cost").unwrap_or(1.0).max(f64::MIN_POSITIVE);
    (factor > RANDOM_PAGE_COST_MAX).then(|| Reason {
        why: format!(
            "random_page_cost is {random}, {} times seq_page_cost: an index looks as expensive as that",
            units::short(factor)
        ),
        text: "set the cost to what the disk needs: 1.1 for SSDs, 4 for spinning disks",
        commands: vec!["ALTER SYSTEM SET random_page_cost = 1.1; SELECT pg_reload_conf();".to_string()],
    })
}

fn called(scan: &Scan<'_>) -> Option<Reason> {
    let functions = functions(scan.filter);
    let bare = |name: &String| name.rsplit('.').next().unwrap_or(name).to_string();
    let name = functions.iter().map(bare).find(|name| !NOT_VOLATILE.contains(&name.as_str()))?;
    Some(Reason {
        why: format!(
            "the condition calls {name}(), and a VOLATILE function is called for each row instead of once"
        ),
        text: "if its result cannot change within a statement, declare it STABLE (ALTER FUNCTION ... STABLE); or call it once in a subquery: \
            column = (SELECT function()). The command shows how it is declared: v is VOLATILE, the default",
        commands: vec![format!(
            "SELECT oid::regprocedure, provolatile FROM pg_proc WHERE proname = {};",
            literal(&name)
        )],
    })
}

/// Why a usable index is left aside; `None` if nothing known explains it.
fn reason(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Option<(String, Reason)> {
    let node = planned.time.node.as_str();
    let found = index::indexes(case, planned, scan.relation);
    let usable = found.iter().find(|(index, columns)| {
        let is_whole = index.lines.flag("valid") != Some(false) && index.lines.flag("partial") != Some(true);
        let is_compared = |column: &str| {
            let mut of_column = scan.conditions.iter().filter(|c| c.column == column && c.inside.is_none());
            of_column.any(|c| index::serves(index, c.how) && scan.differs(index, c).is_none())
        };
        is_whole && columns.first().is_some_and(|column| is_compared(column))
    });
    let (index, _) = usable?;
    // A session keeps the plan of a statement that it has prepared until its table changes: a new setting alone does not reach it.
    let again = format!("ANALYZE {}; -- so that sessions plan prepared statements again", scan.relation);
    let forbidden = forbidden(case, node).map(|mut reason| {
        reason.commands.push(again);
        reason
    });
    let reason = forbidden.or_else(|| called(scan))?;
    Some((index.lines.word("index").to_string(), reason))
}

fn first_reason<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<(Scan<'a>, String, Reason)> {
    let few = index::scans_of(planned).into_iter().filter(index::Scan::keeps_few);
    let mut few = few.filter(|scan| index::is_carried_out(case, planned, scan.relation));
    few.find_map(|scan| {
        let (name, reason) = reason(case, planned, &scan)?;
        Some((scan, name, reason))
    })
}

pub(super) fn left_aside(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some((scan, index, reason)) = first_reason(case, &planned) else { continue };
        let text = format!(
            "a statement that takes {} of the session time scans {} although index {index} fits its condition: {}",
            planned.share(),
            scan.relation,
            reason.why
        );
        let commands: Vec<&str> = reason.commands.iter().map(String::as_str).collect();
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_of_table", scan.rows)
                .number("rows_planned", scan.kept)
                .because(format!("the plan filters {} rows of {} by {}", units::short(scan.rows), scan.relation, scan.filter))
                .because(planned.file())
                .not("an index that the planner leaves aside because most rows are wanted: it expects a tenth or less")
                .remedy(reason.text, &commands),
        );
    }
    Answer::of(claims, || "scans for few rows, against indexes that fit their conditions".to_string())
}

/// The relation that executions scan, the scans a second and the index of the recorded plan, if the two contradict each other.
fn contradiction<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<(Thing<'a>, f64, &'a str)> {
    let node = planned.time.node.as_str();
    wasteful(planned.statement).filter(|_| !planned.is_of_one_constant())?;
    let (table, _, scans) = scanned(case, planned.time.node.as_str(), planned.statement)?;
    let relation = table.lines.word("relation");
    let rows = planned.nodes.iter().filter_map(|node| node.lines.last("rows_planned")).fold(0.0, f64::max);
    let is_of_it = |found: &&Thing<'_>| found.lines.word("relation") == relation;
    let scan = planned.nodes.iter().find(is_of_it)?;
    let is_scanned = |found: &Thing<'_>| found.lines.word("kind").contains("Seq Scan") && is_of_it(&found);
    // Another statement may be the one that scans it: its plan shows it, or it has none.
    let is_anothers = case.at("plan_node", node).any(|found| is_scanned(&found));
    let is_alone = planned.time.statements.iter().all(|other| {
        other.query_id == planned.statement.query_id
            || other.calls_per_s.unwrap_or(0.0) < scans / 2.0
            || !other.text.contains(relation.rsplit('.').next().unwrap_or(relation))
    });
    // Without a condition the index gives the rows in an order, and is no way to few of them.
    let index = if scan.lines.word("condition").is_empty() { "" } else { index_of(planned, scan) };
    (rows < ROWS_MANY && !is_anothers && is_alone && !index.is_empty()).then_some((table, scans, index))
}

/// The index of a scan: that of a bitmap stands in the node below.
fn index_of<'a>(planned: &Planned<'a>, scan: &Thing<'a>) -> &'a str {
    let own = scan.lines.word("index");
    let below = || below(planned, scan).map(|node| node.lines.word("index")).find(|index| !index.is_empty());
    if own.is_empty() { below().unwrap_or_default() } else { own }
}

/// Operators that the extension intarray has for arrays of integers beside those of the server, as a condition has them.
const OF_INTARRAY: [&str; 3] = [" @> ", " && ", " <@ "];

/// Whether sessions use another operator of that name than the one whose index the plan uses: that of the extension fits arrays of integers better, and
/// no other type.
fn has_other_operator(case: &Case, planned: &Planned<'_>, relation: &str) -> bool {
    let of_integers = |node: &Thing<'_>, condition: &Condition| {
        let types = node.lines.word("column_types").split("; ");
        let mut its =
            types.filter_map(|text| text.strip_prefix(condition.column.as_str())?.strip_prefix(' '));
        its.any(|kind| kind == "integer[]")
    };
    let scans = planned.nodes.iter().filter(|node| node.lines.word("relation") == relation);
    let has_operator = scans.into_iter().any(|node| {
        let text = node.lines.word("condition");
        let conditions = statement::conditions(text).unwrap_or_default();
        OF_INTARRAY.iter().any(|operator| text.contains(operator))
            && conditions.iter().any(|condition| of_integers(node, condition))
    });
    let mut extensions = case.facts("extension");
    has_operator && extensions.any(|fact| fact.node == planned.time.node && fact.name == "intarray")
}

/// Whether an index has trigrams.
fn has_trigrams(case: &Case, planned: &Planned<'_>, index: &str) -> bool {
    let mut indexes = case.at("plan_index", planned.time.node.as_str());
    indexes.any(|one| {
        one.lines.word("index") == index && one.lines.word("operator_classes").contains("trgm_ops")
    })
}

const TRIGRAMS: &str = "a pattern with fewer than three letters or digits in a row has no trigram to look for, and one that most rows fit is no use, or its \
    sessions have other settings";
const OTHER_OPERATOR: &str = "the extension intarray has an operator of the same name for arrays of integers, which fits better, and to whose operator class \
    (gin__int_ops) the index does not belong";

const OWN_REMEDY: &str = "take the setting of the role back, if it is not meant: sessions that connect from then on have the server's. A statement \
    that needs it gets it for its own transaction (SET LOCAL)";
const SETTINGS_COMMAND: &str = "SELECT coalesce(d.datname, '(all databases)') AS database, coalesce(r.rolname, '(all roles)') AS role, s.setconfig \
    FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase LEFT JOIN pg_roles r ON r.oid = s.setrole;";
const FUNCTIONS_COMMAND: &str = "SELECT oid::regprocedure, proconfig FROM pg_proc WHERE proconfig::text ~ 'enable_|_cost|plan_cache_mode';";
const FREQUENT_REMEDY: &str = "keep what such executions compute from most of the table (a summary table, a materialized view), or let them ask for fewer \
    rows: a second condition with an index for both. For one value alone, a partial index or a partition of its own leaves the other rows out";
const SEARCHED_REMEDY: &str = "look at the values that are searched for: let a search ask for all of its words, leave out words that most rows have (a stop \
    word of \
    the text search configuration), and add a second condition that fits few rows. Where the values are rare, look for planner settings of the role, the \
    database, a function or the connection";
const OPERATOR_REMEDY: &str = "create an index for the operator that sessions use (USING gin (column gin__int_ops)), write OPERATOR(pg_catalog.@>) where the \
    index shall serve, or take the extension out of the search_path of these sessions (ALTER EXTENSION intarray SET SCHEMA ...)";
const SETTINGS_REMEDY: &str = "look for planner settings (enable_..., random_page_cost, plan_cache_mode) of the role, the database, a function or the \
    connection; reset them for the role or database. A session that prepared its statement before the index existed needs DISCARD PLANS, or a new connection. \
    Unlike the plan for watch, one for given values may scan if the value is frequent";

/// A column whose most frequent value is in so many rows that a scan for it is right.
fn frequent(planned: &Planned<'_>, relation: &str) -> Option<(String, f64)> {
    skew::most_frequent(planned, relation).filter(|(_, share)| *share >= skew::FREQUENT_MIN)
}

/// The condition of a table's index that searches for words or elements: of how many rows fit unknown ones the planner has only a fixed share.
fn searched<'a>(planned: &Planned<'a>, relation: &str) -> Option<&'a str> {
    let of_table = planned.nodes.iter().filter(|node| node.lines.word("relation") == relation);
    let text = |node: &Thing<'a>| {
        let own = node.lines.word("condition");
        if own.is_empty() {
            below(planned, node).map(|node| node.lines.word("condition")).find(|text| !text.is_empty())
        } else {
            Some(own)
        }
    };
    of_table.filter_map(text).find(|text| [" @@ ", " && "].iter().any(|operator| text.contains(operator)))
}

/// Whether a statement returns all rows that it searches for, and these are few: then no frequent value was given.
fn returns_few(planned: &Planned<'_>) -> bool {
    let hides = planned
        .nodes
        .iter()
        .any(|node| ["Limit", "Aggregate", "Group", "Unique"].contains(&node.lines.word("kind")));
    !hides && planned.statement.rows.is_some_and(|rows| rows < ROWS_MANY)
}

/// Why the sessions execute another plan, and what to do: what is known of the statement comes before what may be.
fn why_unlike(case: &Case, planned: &Planned<'_>, relation: &str, index: &str) -> Reason {
    let called = statement::names(&planned.statement.text);
    let function = case.facts(FUNCTION_SETTINGS).find(|fact| {
        let is_inner = planned.plan.lines.word("function") == fact.name;
        fact.node == planned.time.node && (is_inner || called.contains(&fact.name))
    });
    if let Some(fact) = function {
        let why = format!("function {}() has settings of its own: {}", fact.name, fact.value);
        return Reason { why, text: SETTINGS_REMEDY, commands: vec![] };
    }
    if let Some((name, value, owner)) = own_setting(case, planned) {
        return Reason {
            why: format!("{name} is {value} for {owner}"),
            text: OWN_REMEDY,
            commands: vec![reset_command(owner, name)],
        };
    }
    if let Some((column, share)) = frequent(planned, relation) {
        let why = format!(
            "one value of {column} is in {} of the rows, and for it a scan is right: executions seem to ask for such a value",
            units::percent(share)
        );
        return Reason { why, text: FREQUENT_REMEDY, commands: vec![] };
    }
    if let Some(condition) = searched(planned, relation).filter(|_| !returns_few(planned)) {
        let why = format!(
            "how many rows fit {condition} depends on the values, and the plan for watch has none: executions seem to search for what is in many rows, and \
                then a \
             scan is right"
        );
        return Reason { why, text: SEARCHED_REMEDY, commands: vec![] };
    }
    let reason = |why: &str, text| Reason { why: why.to_string(), text, commands: vec![] };
    match sent::of_other_type(planned, relation) {
        _ if has_other_operator(case, planned, relation) => reason(OTHER_OPERATOR, OPERATOR_REMEDY),
        _ if has_trigrams(case, planned, index) => reason(TRIGRAMS, SETTINGS_REMEDY),
        Some(reason) => reason,
        None => reason("its sessions have other settings or older plans", SETTINGS_REMEDY),
    }
}

pub(super) fn unlike_the_plan(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some((table, scans, index)) = contradiction(case, &planned) else { continue };
        let relation = table.lines.word("relation");
        let blocks = planned.statement.blocks.unwrap_or(0.0);
        let Reason { why, text: remedy, mut commands } = why_unlike(case, &planned, relation, index);
        // Then the values that are given decide, and none is recorded.
        let is_frequent = [FREQUENT_REMEDY, SEARCHED_REMEDY].contains(&remedy);
        if remedy != FREQUENT_REMEDY {
            commands.extend([SETTINGS_COMMAND, FUNCTIONS_COMMAND].map(String::from));
        }
        let (level, severity) = match (is_frequent, severity(planned.statement.share)) {
            (true, severity) => (Level::CoOccurrence, severity.min(Severity::Medium)),
            (false, severity) => (Level::DiscriminatingCounter, severity),
        };
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let text = format!(
            "a statement that takes {} of the session time scans {relation}, but for the role of watch the planner uses index {index}: {why}",
            planned.share()
        );
        let users = planned.time.by.iter().find(|by| by.name == "user");
        let user = users.and_then(|by| by.shares.first()).map(|(name, _)| name.clone());
        claims.push(
            planned
                .claim(case, level, severity, text)
                .number("seq_scans_per_s", scans)
                .number("blocks_per_call", blocks)
                .because(format!(
                    "{} sequential scans a second of {relation}, {} blocks per execution; the plan for watch expects {} rows",
                    units::short(scans),
                    units::short(blocks),
                    units::short(planned.plan.lines.last("rows_planned").unwrap_or(0.0))
                ))
                .because(planned.file())
                .with(user, |claim, user| claim.because(format!("most of the session time belongs to role {user}")))
                .not("a missing index: the planner has one, and uses it elsewhere")
                .lacking("the plan in the application's own session: auto_explain with log_min_duration and a sample rate shows it")
                .remedy(remedy, &commands),
        );
    }
    claims.extend(refuted::claims(case));
    Answer::of(claims, || "plans of statements, against the scans that were counted".to_string())
}

/// A join of all rows of its tables for few of them, whose filter has OR between columns of two tables.
struct Joined<'a> {
    filter: &'a str,
    /// Rows that are scanned for it, and returned per execution.
    read: f64,
    rows: f64,
}

fn joined<'a>(planned: &Planned<'a>) -> Option<Joined<'a>> {
    let joins = planned.nodes.iter().filter(|node| {
        let kind = node.lines.word("kind");
        kind.ends_with("Join") || kind == "Nested Loop"
    });
    let join = joins.into_iter().find(|node| is_or_of_two(node.lines.word("filter")))?;
    let filter = join.lines.word("filter");
    // What other steps read is not read for it.
    let is_below = |node: &Thing<'a>| {
        planned
            .ancestors(node)
            .iter()
            .any(|above| tree::number(above, "number") == tree::number(join, "number"))
    };
    let scans = planned.nodes.iter().filter(|node| node.lines.word("kind") == "Seq Scan" && is_below(node));
    let read: f64 = scans.filter_map(|node| node.lines.last("rows_planned")).sum();
    let (rows, blocks) = (planned.statement.rows?, planned.statement.blocks.unwrap_or(0.0));
    let is_wasteful = read >= ROWS_MANY && rows <= read * super::KEPT_SHARE_MAX && blocks >= rows;
    is_wasteful.then_some(Joined { filter, read, rows })
}

fn is_or_of_two(filter: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut tables: Vec<String> = vec![];
    for (at, _) in filter.match_indices('.') {
        let name: String = filter[..at].chars().rev().take_while(|c| is_name(*c)).collect();
        let is_number = name.chars().all(|c| c.is_ascii_digit());
        if !is_number && !tables.contains(&name) {
            tables.push(name);
        }
    }
    filter.contains(" OR ") && tables.len() > 1
}

pub(super) fn or_of_tables(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some(Joined { filter, read, rows }) = joined(&planned) else { continue };
        let text = format!(
            "a statement that takes {} of the session time joins all rows of its tables to return {}: OR connects conditions on two tables",
            planned.share(),
            units::short(rows)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_read", read)
                .number("rows_per_call", rows)
                .because(format!("the plan filters after the join: {filter}"))
                .because(planned.file())
                .not("a missing index: neither condition can be checked before the join, whatever indexes there are")
                .remedy(
                    "write two statements, each with one of the conditions, and combine them with UNION (UNION ALL if no row can fit both): each can \
                        then use an index",
                    &[],
                ),
        );
    }
    Answer::of(claims, || "joins whose filter connects two tables by OR".to_string())
}

/// Whether a rule that knows more of this statement explains its scan, so that a missing index does not.
pub(in crate::rules) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    super::unusable::is_obstructed(case, planned)
        || first_reason(case, planned).is_some()
        || contradiction(case, planned).is_some()
        || joined(planned).is_some()
        || access::is_explained(case, planned.time, planned.statement)
        || form::is_explained(case, planned.time, planned.statement)
        || super::listed::list_filter(planned).is_some()
        || super::step::unindexed_join(case, planned).is_some()
        || super::narrow::is_explained(case, planned)
        || super::surplus::is_explained(planned)
        || super::skip::is_explained(case, planned)
        || super::fit::is_explained(case, planned)
        || super::each::is_explained(case, planned)
        || super::first::is_explained(case, planned)
        || super::computed::is_taken_apart(case, planned)
        || super::several::is_explained(case, planned)
        || super::covering::is_explained(case, planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_filter_are_not_its_types_and_words() {
        assert_eq!(
            functions("((a = app.tenant()) AND (b = ANY ($1)) AND (c)::numeric(10,2) > $2)"),
            ["app.tenant"]
        );
        assert!(functions("((a = $1) OR (b = $2))").is_empty());
    }

    #[test]
    fn or_counts_only_between_tables() {
        assert!(is_or_of_two("((t.id = $1) OR (a.badge = $2))"));
        assert!(!is_or_of_two("((t.id = $1) OR (t.other > 1.5))"));
        assert!(!is_or_of_two("((t.id = $1) AND (a.badge = $2))"));
    }
}
