//! PLAN-95: two tables that are joined by a range, as facts are with the version of a price or a tariff that held on their day. Hash and merge joins compare
//! only what is equal, so each row is compared with all ranges of its key.

use super::costly::{busy, plain, severity};
use super::plan::{Planned, inputs, plan_of};
use super::statement::explain_it;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, RangeJoin};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-95",
    title: "tables are joined by a range, and each row is compared with all ranges of its key",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "10 % of the session time in a statement of 20 ms or more for an execution that joins a column of a table with the range between two columns of \
        another, and takes 20 us of CPU for each block that it touches; low where the plan searches an index by the range, medium without a plan (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-LATERAL"],
}];

const SHARE_MIN: f64 = 0.1;
/// Milliseconds of an execution.
const MEAN_MS_MIN: f64 = 20.0;
/// Microseconds for each block: rows that are read are far cheaper, so the time goes into comparisons.
const US_PER_BLOCK_MIN: f64 = 20.0;
/// Of the samples, those without a wait.
const CPU_SHARE_MIN: f64 = 0.5;
/// Characters of a name.
const NAME_CHARS: usize = 60;

/// Whether executions may do what the plan does: search the ranges, or the rows, by an index for each row of the other side. A search touches a block at least,
/// so with fewer blocks than searches it is the plan for unknown values, and not the one that is executed.
fn searches(planned: &Planned<'_>, blocks: f64) -> bool {
    let loops = planned.nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop");
    loops.into_iter().any(|node| {
        let mut sides = inputs(planned, node);
        let (outer, inner) = (sides.next(), sides.next());
        let rows = outer.and_then(|outer| outer.lines.last("rows_planned")).unwrap_or(0.0);
        let is_searched = inner.is_some_and(|inner| {
            let of_it = std::iter::once(inner).chain(super::plan::below(planned, &inner));
            of_it.into_iter().any(|node| {
                let condition = node.lines.word("condition");
                node.lines.word("kind").contains("Index")
                    && (condition.contains(" < ") || condition.contains(" <= "))
            })
        });
        is_searched && rows <= blocks
    })
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let on_cpu: f64 =
                one.events.iter().filter(|(event, _)| event == "CPU").map(|(_, share)| share).sum();
            let Some((ms, blocks)) = one.mean_ms.zip(one.blocks) else { continue };
            if ms < MEAN_MS_MIN
                || ms * 1e3 < blocks * US_PER_BLOCK_MIN
                || !one.events.is_empty() && on_cpu < CPU_SHARE_MIN
            {
                continue;
            }
            let Some(found) = statement::range_joins(&one.text).into_iter().next() else { continue };
            claims.push(claim(case, time, one, &found, blocks));
        }
    }
    Answer::of(claims, || "joins by ranges in the statements that take the time".to_string())
}

fn claim(case: &Case, time: &NodeTime, one: &StatementTime, found: &RangeJoin, blocks: f64) -> Claim {
    let RangeJoin { tables: (rows, ranges), value, ends: (low, high), key } = found;
    let planned = plan_of(case, time, one);
    let usual = severity(one.share).max(Severity::Medium);
    let severity = match &planned {
        Some(planned) if searches(planned, blocks) => Severity::Low,
        Some(_) => usual,
        None => usual.min(Severity::Medium),
    };
    let short = |name: &str| plain(name, NAME_CHARS);
    let with_same = key.as_deref().map_or(String::new(), |key| format!(" with the same {}", short(key)));
    let of_key = key.as_deref().map(|key| key.rsplit('.').next().unwrap_or(key).to_string());
    let column = |text: &str| text.rsplit('.').next().unwrap_or(text).to_string();
    let columns: Vec<String> = of_key.iter().cloned().chain([column(low)]).collect();
    Claim::new(
        severity,
        Level::CoOccurrence,
        format!(
            "{}: a statement that takes {} of the session time joins {} with {} by the range from {} to {} in which {} lies: no hash or merge join compares \
                ranges, \
             so each row is compared with all ranges{with_same}",
            time.node,
            units::percent(one.share),
            short(rows),
            short(ranges),
            short(low),
            short(high),
            short(value)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share)
    .number("blocks_per_call", blocks)
    .because(format!(
        "an execution takes {} for {} blocks: the time goes into comparisons, and not into reading",
        units::us(one.mean_ms.unwrap_or(0.0) * 1e3),
        units::short(blocks)
    ))
    .lacking("the plan with values: EXPLAIN (ANALYZE) shows the rows that the filter of the join removes")
    .remedy(
        "let each row look up its one range by an index: JOIN LATERAL (SELECT ... FROM the ranges WHERE the keys are equal AND low <= value ORDER BY low DESC \
         LIMIT 1) AS r ON value < r.high; or store the key of the range in the row when it is written, as data marts do; or keep the ranges as one column of a \
         range type, with a GiST index, and ask with @>",
        &[
            &format!("CREATE INDEX CONCURRENTLY ON {ranges} ({}); -- which LATERAL with LIMIT 1 reads one entry of", columns.join(", ")),
            &explain_it(case, &time.node, one),
        ],
    )
}
