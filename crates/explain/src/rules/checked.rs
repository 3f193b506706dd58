//! PLAN-87: what a table's checks and defaults compute for each row that is written, by functions of the application.

use super::costly::{busy, in_a_line, is_name_of, plain, severity};
use super::inside::COUNT_FUNCTIONS;
use super::paste::literal;
use super::waste;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement::{self, Verb};
use record::watched::{PECULIAR, calls_function};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-87",
    title: "a check or a default calls a function, which takes most of the time of a write",
    needs: &[Field("statement", "calls"), Field("table", "indexes"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement that writes a table whose checks or defaults call a function of the application, and touches 100 blocks \
        for each row, ten times what its indexes explain, or takes 0.25 ms of CPU for each row (ours)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/ddl-constraints.html#DDL-CONSTRAINTS-CHECK-CONSTRAINTS",
    ],
}];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
const REMEDY: &str = "a check and a default are evaluated for each row. A query inside of the function needs an index for its conditions; and it neither \
    sees rows of other open transactions nor is it run again when those change: an exclusion constraint, a unique index or a foreign key keeps the rule \
    with an index, and for sure";
/// Characters of what a table has.
const WORDS_CHARS: usize = 160;

/// What the table of a statement that writes has for each row: `check free calls is_free()`.
fn computes<'a>(case: &'a Case, time: &NodeTime, one: &StatementTime) -> Vec<&'a str> {
    let Some(table) = statement::parse(&one.text)
        .ok()
        .filter(|parsed| matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Merge))
        .and_then(|parsed| parsed.tables.into_iter().next())
    else {
        return vec![];
    };
    let of_it = case.facts(PECULIAR).filter(|fact| fact.node == time.node && is_name_of(&table, &fact.name));
    of_it.flat_map(|fact| fact.value.split("; ").filter(|part| calls_function(part))).collect()
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let computed = computes(case, time, one);
            let Some(table) = waste::written(case, &time.node, one).filter(|_| !computed.is_empty()) else {
                continue;
            };
            let work = waste::per_row(time, one, &table);
            if !work.is_much() {
                continue;
            }
            let relation = table.lines.word("relation");
            let what = plain(&computed.join(", "), WORDS_CHARS);
            let text = format!(
                "{}: {} of the session time is one statement that writes {relation} and {} for each row: {what}, which does more than the write",
                time.node,
                units::percent(one.share),
                work.words()
            );
            claims.push(
                Claim::new(severity(one.share), Level::CoOccurrence, text)
                    .on_node(&time.node)
                    .during([table.lines.ticks.window()])
                    .number("share", one.share)
                    .number("blocks_per_row", work.blocks)
                    .because(format!("the statement: {}", in_a_line(one)))
                    .because(format!(
                        "the row itself and its index entries are some {} blocks",
                        units::short(work.explained)
                    ))
                    .lacking("the time of the function: track_functions = pl counts it")
                    .remedy(
                        REMEDY,
                        &[
                            &format!(
                                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = {}::regclass AND contype = 'c';",
                                literal(relation)
                            ),
                            COUNT_FUNCTIONS,
                        ],
                    ),
            );
        }
    }
    Answer::of(claims, || "writes of tables whose checks and defaults call functions".to_string())
}
