//! PLAN-39: long lists of constants. A list costs what it takes to parse, analyse and plan it for each execution; what executions take, another form of the
//! list does not save.

use super::SHARE_UNSURE_MIN;
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, severity};
use crate::rules::paste::AS_THE_APPLICATION;
use crate::rules::plan::{self, Planned, UNSURE};
use crate::rules::statement::SAVED_MOST;
use crate::units;
use record::event;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;

/// Constants of a list.
const CONSTANTS_MIN: f64 = 100.0;
/// Blocks from the root of an index to a row.
const BLOCKS_OF_DESCENT: f64 = 3.0;
/// The share of the session time that parsing and planning take, from which on a list is more than low.
const COST_MIN: f64 = 0.1;
/// Milliseconds to parse, analyse and plan a constant: 4,000 of them took 1.4 ms (ours).
const MS_PER_CONSTANT: f64 = 0.000_5;
/// Of an execution of a list of unknown length, parsing and planning at most: to search an index for a constant takes longer than to parse it.
const OF_UNKNOWN_LENGTH_MAX: f64 = 0.25;
/// Standard deviations of a number of samples that are no chance.
const NO_CHANCE: f64 = 2.0;

/// How many constants a list has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Length {
    /// By its text.
    Counted(f64),
    /// By its text, which was cut off in the list.
    Cut(f64),
    /// The text is shortened; that of a session that was seen with the statement has so many, and may be cut.
    Seen(f64),
    /// The text is shortened; an execution touches as many blocks as so many searches.
    ByWork(f64),
}

impl Length {
    fn number(self) -> f64 {
        match self {
            Length::Counted(number) | Length::Cut(number) | Length::Seen(number) | Length::ByWork(number) => {
                number
            }
        }
    }

    /// Whether it may be longer.
    fn is_least(self) -> bool {
        matches!(self, Length::Cut(_) | Length::Seen(_))
    }

    fn words(self) -> String {
        let number = units::short(self.number());
        match self {
            Length::Counted(_) => format!("some {number} constants"),
            Length::Cut(_) | Length::Seen(_) => format!("{number} constants or more"),
            Length::ByWork(_) => format!("unknown length, by its work some {number} constants"),
        }
    }
}

/// Constants in a list in which a text was cut off: it is not parsed, and its list is what it consists of.
fn cut_list(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let (_, rest) = text.split_once(" in ($")?;
    (!rest.contains(')')).then(|| rest.matches('$').count() + 1)
}

/// Constants in the longest list of a statement, as far as its text has them.
fn listed(statement: &StatementTime) -> usize {
    let by_parser = statement::shape(&statement.text).map_or(0, |shape| shape.list_length);
    by_parser.max(cut_list(&statement.text).unwrap_or(0))
}

/// Commas that the text of a session with the statement had.
fn commas_seen(case: &Case, statement: &StatementTime) -> Option<f64> {
    let mut of_it =
        case.events_of(event::QUERY).filter(|event| Case::word_of(event, "query_id") == statement.query_id);
    of_it.find_map(|event| event.more.get("commas")?.as_f64())
}

/// Blocks of a search for one constant, by the plan that is made from a shortened text; `None` if it does not search an index for it.
pub(super) fn blocks_of_one(planned: &Planned<'_>) -> Option<f64> {
    let is_search = |node: &&Thing<'_>| {
        let condition = node.lines.word("condition");
        node.lines.word("kind").starts_with("Index") && condition.contains("= $")
    };
    let scan = planned.nodes.iter().find(is_search)?;
    Some(BLOCKS_OF_DESCENT + scan.lines.last("rows_planned").unwrap_or(1.0))
}

/// The length of a list that is worth a finding.
pub(super) fn length(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Length> {
    let counted = listed(statement) as f64;
    if counted >= CONSTANTS_MIN {
        let is_cut = cut_list(&statement.text).is_some();
        return Some(if is_cut { Length::Cut(counted) } else { Length::Counted(counted) });
    }
    if !statement::has_shortened_list(&statement.text) {
        return None;
    }
    // The shortened text has one comma for all that it leaves out.
    let left = statement.text.matches(',').count() as f64;
    let seen = commas_seen(case, statement).map_or(0.0, |commas| commas - left + 2.0);
    if seen >= CONSTANTS_MIN {
        return Some(Length::Seen(seen));
    }
    // What subqueries touch is not the list's.
    let has_subquery = |one: &Thing<'_>| one.lines.flag("subquery") == Some(true);
    let planned =
        plan::plan_of(case, time, statement).filter(|planned| !planned.nodes.iter().any(has_subquery))?;
    let by_work = statement.blocks? / blocks_of_one(&planned)?;
    (by_work >= CONSTANTS_MIN).then_some(Length::ByWork(by_work))
}

pub(super) fn long_list(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_UNSURE_MIN) {
            if let Some(length) = length(case, time, one) {
                claims.push(of_list(case, time, one, length));
            }
        }
    }
    Answer::of(claims, || "lists of constants in statements".to_string())
}

/// Entries of a statement from which on the lengths of its lists fill pg_stat_statements.
const ENTRIES_MIN: u64 = 20;

/// In how many entries the server counts it, as the end of a claim.
fn entries_of(one: &StatementTime) -> String {
    let many = one.entries.filter(|entries| *entries >= ENTRIES_MIN);
    many.map_or(String::new(), |entries| {
        format!(": each length of the list is another entry of pg_stat_statements, {entries} of them here, so that none of them seems costly")
    })
}

/// What a list costs beside its execution.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    /// Milliseconds of parsing and planning for each execution.
    list_ms: f64,
    /// Of the time of the statement.
    share: f64,
    by: Proof,
}

/// What shows the cost of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    /// The server counts planning.
    Counter,
    /// Sessions are at work with it for longer than executions take.
    Sessions,
    /// Its length, and the time of EXPLAIN if a plan was made.
    Length,
}

impl Cost {
    fn of(case: &Case, time: &NodeTime, one: &StatementTime, length: Length) -> Cost {
        let run_ms = one.mean_ms.unwrap_or(0.0);
        let parsing = length.number() * MS_PER_CONSTANT;
        let planned = plan::plan_of(case, time, one);
        let explained = planned.and_then(|planned| planned.plan.lines.last("planning_ms")).unwrap_or(0.0);
        let by_length = match one.plan_ms {
            Some(ms) => (ms + parsing, Proof::Counter),
            None => (explained + parsing, Proof::Length),
        };
        let hidden = (unexecuted_ms(case, time, one).unwrap_or(0.0), Proof::Sessions);
        let (list_ms, by) = if hidden.0 > by_length.0 { hidden } else { by_length };
        Cost { list_ms, share: list_ms / (list_ms + run_ms).max(f64::MIN_POSITIVE), by }
    }

    fn words(self, one: &StatementTime) -> String {
        let (list, run) = (units::us(self.list_ms * 1e3), units::us(one.mean_ms.unwrap_or(0.0) * 1e3));
        match self.by {
            Proof::Counter => format!(
                "an execution takes {run}, planning {}, and parsing of the list the rest of {list}",
                units::us(one.plan_ms.unwrap_or(0.0) * 1e3)
            ),
            Proof::Sessions => {
                format!(
                    "sessions compute for {list} more than an execution takes, which is {run}: a list is parsed and planned before"
                )
            }
            Proof::Length => format!(
                "an execution takes {run}; to parse and plan so many constants takes some {list} (ours)"
            ),
        }
    }
}

/// Milliseconds for each execution in which sessions compute with a statement, and which no execution takes.
fn unexecuted_ms(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<f64> {
    let looks = case.looks(&time.node, &[case.span]).max(1.0);
    // Samples show parallel workers, too.
    let seen = case.waits(&time.node)?.computing_with(&one.query_id);
    let workers = case.waits(&time.node)?.with_workers(&one.query_id);
    let (calls_per_s, mean_ms) = (one.calls_per_s?, one.mean_ms?);
    let executing = calls_per_s * mean_ms / 1e3 * looks * workers;
    let more = seen - executing;
    (more > NO_CHANCE * seen.sqrt()).then_some(more / looks / calls_per_s * 1e3)
}

/// A list of constants in a text: where it begins and ends, without its parentheses, and whether it is negated.
struct List<'a> {
    before: &'a str,
    members: &'a str,
    after: &'a str,
    is_negated: bool,
}

impl<'a> List<'a> {
    /// The longest one, or the one that PostgreSQL 18 has shortened; `None` if the text was cut off in it.
    fn of(text: &'a str) -> Option<List<'a>> {
        let lower = text.to_ascii_lowercase();
        let lists = lower.match_indices(" in (").filter_map(|(at, found)| {
            let from = at + found.len();
            let members = &text[from..from + text[from..].find(')')?];
            let is_of_constants = members.trim_start().starts_with('$');
            let before = lower[..at].trim_end();
            let is_negated = before.strip_suffix("not").is_some_and(|rest| rest.ends_with([' ', ')', '"']));
            let to = if is_negated { before.len() - "not".len() } else { at };
            let after = &text[from + members.len() + 1..];
            is_of_constants.then_some(List { before: text[..to].trim_end(), members, after, is_negated })
        });
        lists.max_by_key(|list| (statement::has_shortened_list(list.members), list.members.len()))
    }

    fn operator(&self) -> &'static str {
        if self.is_negated { "<> ALL" } else { "= ANY" }
    }

    /// The same statement with an array instead, and the parameter of that.
    fn as_array(&self) -> Option<(String, String)> {
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().ok()
        };
        let (first, count) =
            (number(self.members.trim_start().strip_prefix('$')?)?, self.members.matches('$').count());
        // Parameters behind the list move up: with a gap the type of those in it would be unknown.
        let moved = |part: &str| {
            let mut pieces = part.split('$');
            let begin = pieces.next().unwrap_or_default().to_string();
            pieces.fold(begin, |text, piece| match number(piece) {
                Some(old) if old >= first + count => {
                    format!(
                        "{text}${}{}",
                        old + 1 - count,
                        piece.trim_start_matches(|c: char| c.is_ascii_digit())
                    )
                }
                _ => format!("{text}${piece}"),
            })
        };
        let text = format!("{} {} (${first}){}", moved(self.before), self.operator(), moved(self.after));
        Some((statement::plannable(&text).ok()?, format!("${first}")))
    }
}

const WITH_THEM: &str = "send the keys as one array parameter of a prepared statement (= ANY ($1)), or join with unnest($1) or a temporary table; where \
    the keys come from another statement, join with that";
const WITHOUT_THEM: &str = "send the keys as one array parameter of a prepared statement (<> ALL ($1)), or leave them out by NOT EXISTS with unnest($1) or a \
    temporary table; where the keys come from another statement, use NOT EXISTS with that";

fn of_list(case: &Case, time: &NodeTime, one: &StatementTime, length: Length) -> Claim {
    let list = List::of(&one.text);
    let is_negated = list.as_ref().is_some_and(|list| list.is_negated);
    let prepared = list.and_then(|list| list.as_array());
    let commands: Vec<String> = prepared
        .map(|(text, array)| format!("EXPLAIN (GENERIC_PLAN) {text}; {AS_THE_APPLICATION}; {array} is one array"))
        .into_iter()
        .chain([format!(
            "SELECT calls, rows, plans, total_plan_time, total_exec_time FROM pg_stat_statements WHERE queryid = {};",
            one.query_id
        )])
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let cost = Cost::of(case, time, one, length);
    let is_much = one.share * cost.share >= COST_MIN;
    let planned = plan::plan_of(case, time, one);
    let by_index = planned.as_ref().and_then(|planned| {
        planned.nodes.iter().map(|node| node.lines.word("index")).find(|name| !name.is_empty())
    });
    Claim::new(
        if is_much { severity(one.share * cost.share) } else { Severity::Low },
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is one statement with {} list of {}, {} times a second{}",
            time.node,
            units::percent(one.share),
            if is_negated { "a NOT IN" } else { "an IN" },
            length.words(),
            units::short(one.calls_per_s.unwrap_or(0.0)),
            entries_of(one)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share)
    .number("constants", length.number())
    .number("list_ms", cost.list_ms)
    .number(SAVED_MOST, if length.is_least() { cost.share.max(OF_UNKNOWN_LENGTH_MAX) } else { cost.share })
    .with((!is_much).then_some(1.0), |claim, one| claim.number(UNSURE, one))
    .because(format!("the statement: {}", in_a_line(one)))
    .because("each constant is sent as text, parsed, analysed and planned anew for each execution, before the first row is found")
    .because(cost.words(one))
    .with((!is_much).then_some(()), |claim, ()| {
        claim.because("what the execution takes is no cost of the list's form: an array of the same values is searched for as long")
    })
    .with(one.plan_ms.is_none().then_some(()), |claim, ()| {
        claim.lacking("how long parsing and planning take: pg_stat_statements.track_planning counts the latter; no view counts the former")
    })
    .with(one.entries.filter(|entries| *entries >= ENTRIES_MIN), |claim, entries| {
        claim
            .number("entries", entries as f64)
            .because("when pg_stat_statements.max is reached, the entries that were used least are thrown away, those of other statements as well")
    })
    .with((!matches!(length, Length::Counted(_) | Length::Cut(_))).then_some(()), |claim, ()| {
        claim.lacking("the length of the list: PostgreSQL 18 shortens it in pg_stat_statements; log_min_duration_statement logs whole texts")
    })
    .with(by_index, |claim, name| {
        claim.not(format!("a missing index: the plan finds the rows of a constant by index {name}"))
    })
    .remedy(if is_negated { WITHOUT_THEM } else { WITH_THEM }, &commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_counted_even_in_a_text_that_was_cut_off() {
        let of = |text: String| listed(&StatementTime { text, ..StatementTime::default() });
        let members = |count: usize| (1..=count).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ");
        assert_eq!(of(format!("SELECT 1 FROM t WHERE id IN ({})", members(150))), 150);
        assert_eq!(of(format!("SELECT 1 FROM t WHERE id IN ({}, $30", members(300))), 301);
        assert_eq!(of("SELECT 1 FROM t WHERE id IN ($1 /*, ... */)".to_string()), 1);
        assert_eq!(of("SELECT 1 FROM t WHERE id IN ($1, $2)".to_string()), 2);
    }

    #[test]
    fn an_array_means_the_same_as_the_list() {
        let of = |text: &str| List::of(text).and_then(|list| list.as_array()).map(|(text, _)| text);
        let is = |text: &str, array: &str| assert_eq!(of(text).as_deref(), Some(array), "{text}");
        is("select a from t where id in ($1 /*, ... */)", "select a from t where id = ANY ($1)");
        is("select a from t where id NOT IN ($1 /*, ... */)", "select a from t where id <> ALL ($1)");
        is("select a from t where (id) not  in ($1,$2)", "select a from t where (id) <> ALL ($1)");
        // The long one of several, and parameters before and behind it.
        is(
            "select a from t where b = $1 and c in ($2) and id in ($3, $4, $5) and d = $6",
            "select a from t where b = $1 and c in ($2) and id = ANY ($3) and d = $4",
        );
        // A column whose name ends like the word.
        is("select a from t where knot in ($1, $2)", "select a from t where knot = ANY ($1)");
        assert_eq!(of("select a from t where (a, b) in (($1, $2), ($3, $4))"), None);
        assert_eq!(of("select a from t where id in (select id from u)"), None);
    }
}
