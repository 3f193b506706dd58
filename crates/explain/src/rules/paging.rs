//! PLAN-65, PLAN-66: pages that are reached by skipping rows, and rows that are counted for each page.

use super::costly::{busy, in_a_line, lowered};
use super::plan;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::rules::statement::SAVED_LEAST;
use crate::units;
use record::event;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-65",
        title: "OFFSET reads and throws away the rows before the page",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in a SELECT with LIMIT and OFFSET that touches 100 blocks, and two for each row that it returns; without \
            pg_stat_statements in one whose plan has 10,000 rows below LIMIT, then never high (ours)",
        judge: skipped,
        links: &["https://www.postgresql.org/docs/current/queries-limit.html"],
    },
    Rule {
        id: "PLAN-66",
        title: "all rows that fit are counted or summed up again and again",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a SELECT with a condition that returns nothing but a count, touches 100 blocks and runs once a second; low \
            unless another statement reads pages of the same tables, with LIMIT; or nothing but a sum, by an index, five times a second (ours)",
        judge: counted,
        links: &["https://www.postgresql.org/docs/current/functions-aggregate.html"],
    },
];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// From here on it is no longer low.
const SHARE_MEDIUM: f64 = 0.5;
/// Blocks that an execution touches.
const BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row of a page.
const PER_ROW_MIN: f64 = 2.0;
/// Rows below the LIMIT of a plan: so many can be skipped.
const SKIPPED_MIN: f64 = 10_000.0;
/// Executions a second: a report may count.
const CALLS_PER_S_MIN: f64 = 1.0;

/// Whether a SELECT has LIMIT and an OFFSET that is not 0, outside of its subqueries.
fn is_page(text: &str) -> bool {
    let text = lowered(text);
    let after = text.rsplit_once(')').map_or(text.as_str(), |(_, after)| after);
    // An expression of the offset may stand in parentheses.
    let end = if after.contains("limit") || after.contains("fetch ") { after } else { text.as_str() };
    let offset = end.split_once("offset ").map(|(_, rest)| rest.trim_start_matches('('));
    let is_moved = offset.is_some_and(|rest| !rest.starts_with("0") && !rest.is_empty());
    is_moved && (end.contains("limit ") || end.contains("fetch "))
}

/// The same of sums: a report may sum up.
const SUMS_PER_S_MIN: f64 = 5.0;

/// Whether a SELECT returns counts of rows alone.
fn is_count(text: &str) -> bool {
    returns_one(&lowered(text), "select count(")
}

/// Whether a SELECT returns a sum alone, with a value for no rows perhaps.
fn is_sum(text: &str) -> bool {
    let text = lowered(text);
    let or_none = text.strip_prefix("select coalesce(sum(").and_then(|rest| {
        let (column, rest) = rest.split_once(')')?;
        let (_, rest) = rest.split_once(')')?;
        Some(format!("select sum({column}){rest}"))
    });
    returns_one(or_none.as_deref().unwrap_or(&text), "select sum(")
}

/// Whether a text in small letters begins so and returns nothing else, of some of the rows.
fn returns_one(text: &str, begin: &str) -> bool {
    let Some(rest) = text.strip_prefix(begin) else { return false };
    let Some((_, after)) = rest.split_once(')') else { return false };
    let alias = after.split(" from ").next().unwrap_or_default();
    !alias.contains(',') && !alias.contains('(') && after.contains(" where ") && !after.contains(" group by ")
}

/// Whether another statement reads pages of a table that a count reads: only then is the number one that is shown with them.
fn has_pages(case: &Case, count: &StatementTime) -> bool {
    let tables = |text: &str| statement::parse(text).map(|parsed| parsed.tables).unwrap_or_default();
    let counted = tables(&count.text);
    // A page that is quick has no share of the time worth a line: any text that was recorded counts.
    let mut texts = case.events_of(event::QUERY).map(|event| Case::word_of(event, "text"));
    texts.any(|text| {
        let page = lowered(text);
        let is_page = [" limit ", " fetch first ", " fetch next "].iter().any(|word| page.contains(word));
        is_page && tables(text).iter().any(|one| counted.iter().any(|table| table.name == one.name))
    })
}

fn large<'a>(
    time: &'a NodeTime,
    fits: impl Fn(&StatementTime) -> bool + 'a,
) -> impl Iterator<Item = &'a StatementTime> {
    time.statements.iter().filter(move |statement| {
        let is_select = || statement::parse(&statement.text).is_ok_and(|parsed| parsed.verb == Verb::Select);
        statement.share >= SHARE_MIN
            && statement.blocks.is_some_and(|blocks| blocks >= BLOCKS_MIN)
            && fits(statement)
            && is_select()
    })
}

fn claim(case: &Case, time: &NodeTime, statement: &StatementTime, text: String) -> Claim {
    let severity = if statement.share >= SHARE_MEDIUM { Severity::Medium } else { Severity::Low };
    Claim::new(severity, Level::CoOccurrence, format!("{}: {text}", time.node))
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .with(statement.blocks, |claim, blocks| claim.number("blocks_per_call", blocks))
        .because(format!("the statement: {}", in_a_line(statement)))
}

fn skipped(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        claims.extend(time.statements.iter().filter_map(|statement| skipped_by_plan(case, time, statement)));
        for statement in large(time, |statement| is_page(&statement.text)) {
            let (blocks, rows) = (statement.blocks.unwrap_or(0.0), statement.rows.unwrap_or(0.0));
            if blocks < rows * PER_ROW_MIN {
                continue;
            }
            let text = format!(
                "a statement that takes {} of the session time skips rows by OFFSET: it touches {} blocks to return a page of {} rows, as all rows before the \
                 page are read and thrown away",
                units::percent(statement.share),
                units::short(blocks),
                units::short(rows)
            );
            claims.push(by_keyset(claim(case, time, statement, text)));
        }
    }
    Answer::of(claims, || "statements with LIMIT and OFFSET, and their blocks".to_string())
}

fn by_keyset(claim: Claim) -> Claim {
    claim.lacking("how far the pages are from the first one: the later a page, the longer it takes").remedy(
        "begin behind the last row of the page before (keyset pagination): WHERE (a, id) > (values of that row) ORDER BY a, id, with an \
         index on a and id",
        &[],
    )
}

/// A page that no counter covers, as pg_stat_statements is missing: its plan shows how many rows there are to skip. With a condition, the time can be spent on
/// looking for rows as well.
fn skipped_by_plan(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let is_it = statement.share >= SHARE_MIN && statement.blocks.is_none() && is_page(&statement.text);
    let planned = plan::plan_of(case, time, statement).filter(|_| is_it)?;
    let limit = planned.nodes.iter().find(|node| node.lines.word("kind") == "Limit")?;
    let below = planned.nodes.iter().find(|node| node.lines.last("above") == limit.lines.last("number"))?;
    let rows = below.lines.last("rows_planned").filter(|rows| *rows >= SKIPPED_MIN)?;
    let is_plain = planned.nodes.iter().all(|node| node.lines.word("filter").is_empty());
    let text = format!(
        "a statement that takes {} of the session time skips rows by OFFSET, and its plan has {} rows below LIMIT: all rows before the page are read and \
         thrown away",
        units::percent(statement.share),
        units::count(rows)
    );
    Some(by_keyset(
        claim(case, time, statement, text)
            .with((!is_plain).then_some(()), |claim, ()| claim.at_most(Severity::Low))
            .because(planned.file())
            .lacking("blocks and rows of an execution: pg_stat_statements counts them"),
    ))
}

fn counted(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        // What a function or a trigger counts is no number of pages.
        let is_it = |statement: &StatementTime| {
            is_count(&statement.text)
                && statement.outer.is_empty()
                && statement.calls_per_s.is_some_and(|calls| calls >= CALLS_PER_S_MIN)
        };
        for statement in large(time, is_it) {
            let text = format!(
                "a statement that takes {} of the session time counts all rows that fit, {} times a second: it touches {} blocks for one number",
                units::percent(statement.share),
                units::short(statement.calls_per_s.unwrap_or(0.0)),
                units::short(statement.blocks.unwrap_or(0.0))
            );
            let is_of_pages = has_pages(case, statement);
            claims.push(
                claim(case, time, statement, text)
                    .with((!is_of_pages).then_some(0.0), |claim, none| {
                        claim.at_most(Severity::Low).number(SAVED_LEAST, none)
                    })
                    .with(is_of_pages.then_some(()), |claim, ()| {
                        claim.because("another statement reads pages of the same table, with LIMIT")
                    })
                    .because("PostgreSQL reads every row or index entry that it counts: no index holds the number")
                    .lacking("what the number is for: a list of pages needs it seldom")
                    .remedy(
                        "show no exact number: read one row more than the page to know whether there is another, take the planner's estimate, count the \
                         rows of a subquery with LIMIT 1001, or keep \
                         the number in a table of its own",
                        &[],
                    ),
            );
        }
    }
    claims.extend(busy(case).flat_map(|time| summed(case, time)));
    Answer::of(claims, || "statements that return a count or a sum, and their blocks".to_string())
}

/// Sums of rows that an index finds: they are computed from all of them each time.
fn summed(case: &Case, time: &NodeTime) -> Vec<Claim> {
    let is_it = |statement: &StatementTime| {
        is_sum(&statement.text) && statement.calls_per_s.is_some_and(|calls| calls >= SUMS_PER_S_MIN)
    };
    let by_index = |statement: &&StatementTime| {
        plan::plan_of(case, time, statement).is_some_and(|planned| {
            planned.nodes.iter().all(|node| !node.lines.word("kind").ends_with("Seq Scan"))
        })
    };
    let claim_of = |statement: &StatementTime| {
        let text = format!(
            "a statement that takes {} of the session time sums up all rows that fit, {} times a second: it touches {} blocks for one number",
            units::percent(statement.share),
            units::short(statement.calls_per_s.unwrap_or(0.0)),
            units::short(statement.blocks.unwrap_or(0.0))
        );
        claim(case, time, statement, text)
            .because("the plan finds the rows by an index, and reads each of them: no index holds their sum")
            .lacking("how many of the rows have changed since the last time")
            .remedy(
                "keep the sum in a row of its own that each change adds to (a balance), or the sums of closed months, days or hundreds of rows, and add up \
                 only what came since; an index that has the summed column as well (INCLUDE) spares the table",
                &[],
            )
    };
    large(time, is_it).filter(by_index).map(claim_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_limit_and_an_offset_of_its_own() {
        assert!(is_page("SELECT a FROM v ORDER BY a LIMIT $2 OFFSET $1 * $3"));
        assert!(is_page("select a from t where b in (select 1) order by a limit $1 offset ($2 - 1) * 50"));
        assert!(is_page("SELECT a FROM t ORDER BY a OFFSET $1 ROWS FETCH NEXT $2 ROWS ONLY"));
        assert!(!is_page("SELECT a FROM t ORDER BY a LIMIT $1 OFFSET 0"));
        assert!(!is_page("SELECT a FROM t ORDER BY a LIMIT $1"));
        assert!(!is_page("SELECT a, b FROM t WHERE offset_a = $1"));
    }

    #[test]
    fn a_count_is_alone_and_has_a_condition() {
        assert!(is_count(
            "select count(t.id) from ticket t left join agent a on a.id = t.agent where t.client = $1"
        ));
        assert!(is_count("SELECT COUNT(*) AS \"__count\" FROM t WHERE a = $1"));
        assert!(is_sum("select sum(amount) as balance from entry where account = $1"));
        assert!(is_sum("SELECT coalesce(sum(e.amount), $1) FROM entry e WHERE e.account = $2"));
        assert!(!is_sum("select sum(a), count(*) from entry where account = $1"));
        assert!(!is_sum("select sum(amount) from entry"));
        assert!(!is_count("SELECT count(*), max(a) FROM t WHERE a = $1"));
        assert!(!is_count("SELECT count(*) FROM t"));
        assert!(!is_count("SELECT count(*) FROM t WHERE a = $1 GROUP BY b"));
        assert!(!is_count("SELECT a, count(*) FROM t WHERE a = $1"));
    }
}
