//! PLAN-16: sorts and hash tables that are larger than work_mem, by the plan; and how much memory they need, also where several processes share them.

use super::{Planned, SHARE_LOW, SHARE_MIN, for_database, planned};
use crate::case::{Case, Thing};
use crate::rule::Answer;
use crate::units;
use record::finding::{Level, Severity};

/// A hash table may use `hash_mem_multiplier` times work_mem: 2 by default since PostgreSQL 15.
const HASH_FACTOR: f64 = 2.0;
/// What a row takes in memory besides its values: its header, its place in the array of a sort or in the table of a hash, and what the allocator adds.
const BYTES_PER_ROW: f64 = 64.0;
/// Estimates are no promise: so much more than they say.
const MARGIN: f64 = 1.25;
/// The part of a process that the leader is, less for each worker that it serves (`get_parallel_divisor` in costsize.c).
const LEADER_LESS: f64 = 0.3;
/// Bytes of temporary files per execution from which on PLAN-02 speaks.
const SPILL_BYTES: f64 = 1e6;

/// What a step needs to stay in memory.
pub(in crate::rules) struct Needs {
    /// Bytes of all of its rows, without what memory adds.
    bytes: f64,
    /// How many processes share them.
    processes: f64,
    /// The `work_mem` for it, if one process has to do all: fewer workers may start than were planned.
    pub(in crate::rules) work_mem: f64,
    /// What one process may use for each byte of `work_mem`.
    factor: f64,
}

impl Needs {
    /// Whether the share of each process is more than its memory.
    fn is_more_than(&self, work_mem: f64) -> bool {
        self.bytes / self.processes > work_mem * self.factor
    }
}

/// How many processes share the rows of a step: those of the next Gather above it.
fn processes(planned: &Planned<'_>, node: &Thing<'_>) -> f64 {
    let above = planned.ancestors(node);
    let gather = above.iter().find(|node| node.lines.word("kind").starts_with("Gather"));
    let workers = gather.and_then(|gather| gather.lines.last("workers")).unwrap_or(0.0);
    workers + (1.0 - LEADER_LESS * workers).max(0.0)
}

/// What a sort or a hash table needs; `None` for other steps. The table of a hash join is built by each process as a whole, or by all in the memory of all.
pub(in crate::rules) fn needs(case: &Case, planned: &Planned<'_>, node: &Thing<'_>) -> Option<Needs> {
    let multiplier = case
        .setting(&planned.time.node, "hash_mem_multiplier")
        .and_then(units::setting)
        .unwrap_or(HASH_FACTOR);
    let (processes, factor) = match node.lines.word("kind") {
        "Sort" => (processes(planned, node), 1.0),
        "Hash" => (1.0, multiplier),
        _ => return None,
    };
    let rows = node.lines.last("rows_planned")? * processes;
    let bytes = rows * node.lines.last("width_bytes")?;
    let work_mem = (bytes + rows * BYTES_PER_ROW) * MARGIN / factor;
    Some(Needs { bytes, processes, work_mem, factor })
}

/// The largest `work_mem` that a sort or hash table of a plan needs.
pub(in crate::rules) fn work_mem_of(case: &Case, planned: &Planned<'_>) -> Option<f64> {
    let all = planned.nodes.iter().filter_map(|node| needs(case, planned, node));
    all.map(|needs| needs.work_mem).max_by(f64::total_cmp)
}

/// So many bytes as a setting in megabytes.
fn in_megabytes(bytes: f64) -> u64 {
    ((bytes / f64::from(1 << 20)).ceil().max(1.0) as u64).next_power_of_two()
}

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
        let nodes = planned.nodes.iter().filter_map(|node| Some((node, needs(case, &planned, node)?)));
        let nodes = nodes.filter(|(_, needs)| needs.is_more_than(work_mem));
        let largest = nodes.max_by(|left, right| left.1.work_mem.total_cmp(&right.1.work_mem));
        let Some((node, Needs { bytes, processes, work_mem: wanted, .. })) = largest else { continue };
        let megabytes = in_megabytes(wanted);
        let text = format!(
            "a statement that takes {} of the session time has a {} of {} by the plan{}, with work_mem of {}",
            planned.share(),
            node.lines.word("kind").to_ascii_lowercase(),
            units::bytes(bytes),
            if processes > 1.0 { ", in several processes" } else { "" },
            units::bytes(work_mem)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, Severity::Low, text)
                .number("needed_bytes", bytes)
                .number("work_mem_bytes", work_mem)
                .because(planned.file())
                .with((processes > 1.0).then_some(processes), |claim, processes| {
                    claim.because(format!(
                        "the rows of a step below Gather are those of one of about {} processes: where fewer workers start, one of them has to sort all",
                        units::short(processes)
                    ))
                })
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
