//! PLAN-86: rows that lie in the default partition, because the partitions for them were not made.

use super::costly::{busy, plain, severity};
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-86",
    title: "most rows of a partitioned table lie in its default partition",
    needs: &[Field("table", "live_rows"), Field("table", "blocks_hit"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a default partition of 10,000 rows, beside partitions by range, with half of the rows of all of them or more (ours)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/ddl-partitioning.html#DDL-PARTITIONING-DECLARATIVE-MAINTENANCE",
    ],
}];

/// The share of the session time in the partition.
const SHARE_MIN: f64 = 0.2;
/// Rows of it.
const ROWS_MIN: f64 = 10_000.0;
/// Of the rows of all partitions.
const OF_ALL_MIN: f64 = 0.5;
/// Characters of a bound.
const BOUND_CHARS: usize = 60;
/// How the server writes the bound of a default partition.
const DEFAULT: &str = "DEFAULT";

/// The end of a range, as the server writes it: `FOR VALUES FROM (...) TO (...)`.
fn end_of(bound: &str) -> Option<&str> {
    let (_, end) = bound.strip_prefix("FOR VALUES FROM ")?.split_once(" TO (")?;
    end.strip_suffix(')').filter(|end| !end.contains("MAXVALUE"))
}

/// A default partition with most of the rows.
struct Remainder<'a> {
    table: Thing<'a>,
    /// Of the rows of all partitions.
    of_all: f64,
    /// How many others there are, and where the last of them ends.
    others: usize,
    end: &'a str,
}

fn remainder<'a>(case: &'a Case, table: Thing<'a>) -> Option<Remainder<'a>> {
    let of = |one: &Thing<'a>, field: &str| one.lines.word(field).to_string();
    let rows = |one: &Thing<'_>| one.lines.last("live_rows").unwrap_or(0.0);
    let whole = of(&table, "partition_of");
    let own = rows(&table);
    let is_default = table.lines.word("partition_bound") == DEFAULT && !whole.is_empty();
    if !is_default || own < ROWS_MIN {
        return None;
    }
    let siblings: Vec<Thing<'a>> = case
        .at("table", table.place)
        .filter(|one| of(one, "partition_of") == whole && of(one, "database") == of(&table, "database"))
        .filter(|one| one.lines.word("partition_bound") != DEFAULT)
        .collect();
    // By time, the texts of the ends are in the order of what they mean; of numbers the longest is the last.
    let ends = siblings.iter().filter_map(|one| end_of(one.lines.word("partition_bound")));
    let end = ends.max_by(|left, right| left.len().cmp(&right.len()).then(left.cmp(right)))?;
    let all = own + siblings.iter().map(rows).sum::<f64>();
    (own >= all * OF_ALL_MIN).then_some(Remainder { table, of_all: own / all, others: siblings.len(), end })
}

/// The share of the session time in a relation, as the account has it.
fn share_in(time: &NodeTime, relation: &str) -> f64 {
    let by = time.by.iter().find(|by| by.name == "relation");
    let of_relation = by.and_then(|by| by.shares.iter().find(|(name, _)| name == relation));
    of_relation.map_or(0.0, |(_, share)| *share)
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for found in case.at("table", &time.node).filter_map(|table| remainder(case, table)) {
            let share = share_in(time, found.table.lines.word("relation"));
            if share >= SHARE_MIN {
                claims.push(claim(time, &found, share));
            }
        }
    }
    Answer::of(claims, || "default partitions, and the rows of the others".to_string())
}

fn claim(time: &NodeTime, found: &Remainder<'_>, share: f64) -> Claim {
    let Remainder { table, of_all, others, end } = found;
    let (relation, whole) = (table.lines.word("relation"), table.lines.word("partition_of"));
    let end = plain(end, BOUND_CHARS);
    let inserted = table.lines.rate("rows_inserted").unwrap_or(0.0);
    let text = format!(
        "{}: {} of the session time is in {relation}, the default partition of {whole}, in which {} of its rows lie: the last of the other {others} \
         partitions ends at {end}, and what lies behind it has no partition of its own",
        time.node,
        units::percent(share),
        units::percent(*of_all)
    );
    Claim::new(severity(share), Level::CoOccurrence, text)
        .on_node(&time.node)
        .during([table.lines.ticks.window()])
        .number("share", share)
        .number("of_all_rows", *of_all)
        .number("default_rows", table.lines.last("live_rows").unwrap_or(0.0))
        .because(format!("the default partition: {relation}"))
        .because(
            "no condition on the key leaves a default partition out for ranges that were not made, so each search for one of them reads all of it",
        )
        .with((inserted > 0.0).then_some(inserted), |claim, rows| {
            claim.because(format!("{} new rows a second go into it", units::short(rows)))
        })
        .not("a missing index alone: in partitions of their own, these rows would be found as those of the others are")
        .remedy(
            "make the partitions, and let a program make the next ones in time (pg_partman, a job). One for a range of which the default partition has \
                rows is refused: detach the default partition, make the partitions, move its rows by INSERT ... SELECT into the partitioned table, and \
                attach an empty one",
            &[
                &format!(
                    "SELECT c.oid::regclass AS partition, pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_inherits JOIN pg_class c ON c.oid = \
                     inhrelid WHERE inhparent = {}::regclass;",
                    literal(whole)
                ),
            ],
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_range_is_read_from_its_bound() {
        let bound = "FOR VALUES FROM ('2026-02-01 00:00:00+00') TO ('2026-03-01 00:00:00+00')";
        assert_eq!(end_of(bound), Some("'2026-03-01 00:00:00+00'"));
        assert_eq!(end_of("FOR VALUES FROM (10) TO (MAXVALUE)"), None);
        assert_eq!(end_of("FOR VALUES IN ('a')"), None);
        assert_eq!(end_of(DEFAULT), None);
    }
}
