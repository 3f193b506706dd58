//! PLAN-16: sorts and hash tables that are larger than work_mem, by the plan.

use super::{SHARE_LOW, SHARE_MIN, for_database, planned};
use crate::case::{Case, Thing};
use crate::rule::Answer;
use crate::units;
use record::finding::{Level, Severity};

/// A hash table may use `hash_mem_multiplier` times work_mem: 2 by default (15).
const HASH_FACTOR: f64 = 2.0;
/// Bytes of temporary files per execution from which on PLAN-02 speaks.
const SPILL_BYTES: f64 = 1e6;

pub(super) fn spill(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_LOW) {
        let Some(work_mem) = planned.plan.lines.last("work_mem_bytes") else { continue };
        let written = planned.statement.temp_bytes;
        let is_others =
            planned.statement.share >= SHARE_MIN && written.is_some_and(|bytes| bytes >= SPILL_BYTES);
        if written == Some(0.0) || is_others {
            continue;
        }
        let needs = |node: &Thing<'_>| {
            let limit = match node.lines.word("kind") {
                "Sort" => work_mem,
                "Hash" => work_mem * HASH_FACTOR,
                _ => return None,
            };
            let bytes = node.lines.last("rows_planned")? * node.lines.last("width_bytes")?;
            (bytes > limit).then_some(bytes)
        };
        let nodes = planned.nodes.iter().filter_map(|node| Some((node, needs(node)?)));
        let Some((node, bytes)) = nodes.max_by(|left, right| left.1.total_cmp(&right.1)) else { continue };
        let megabytes =
            ((bytes * HASH_FACTOR / f64::from(1 << 20)).ceil().max(1.0) as u64).next_power_of_two();
        let text = format!(
            "a statement that takes {} of the session time has a {} of {} by the plan, with work_mem of {}",
            planned.share(),
            node.lines.word("kind").to_ascii_lowercase(),
            units::bytes(bytes),
            units::bytes(work_mem)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, Severity::Low, text)
                .number("needed_bytes", bytes)
                .number("work_mem_bytes", work_mem)
                .because(planned.file())
                .with(written, |claim, bytes| {
                    claim.because(format!("it writes {} of temporary files per execution", units::bytes(bytes)))
                })
                .remedy(
                    "raise work_mem for this database or a role only (each sort and hash table of each session may use that much); sessions follow when \
                        they connect again",
                    &[&for_database(planned.statement, "work_mem", &format!("'{megabytes}MB'"))],
                ),
        );
    }
    Answer::of(claims, || "sorts and hash tables of plans, against work_mem".to_string())
}
