//! The list of work: one query over one range, on one node.

use std::collections::BTreeSet;

use super::condition::{Access, Condition, Probe};

/// Ranges of the queries by key are cut so that each connection gets about so many: the slowest one then matters little.
const RANGES_PER_CONNECTION: u64 = 4;

/// And no range is longer than this, so that an interrupt need not wait for a long query to be repeated.
const RANGE_MAX: u64 = 500;

/// One query over one range, on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) probe: &'static Probe,
    /// In the order of the nodes.
    pub(super) node: usize,
    pub(super) from: i64,
    pub(super) to: i64,
}

/// The queries that are needed, cut into ranges, the most expensive first.
pub(super) fn jobs_of(
    probes: &'static [Probe],
    conditions: &BTreeSet<Condition>,
    (from, to): (i64, i64),
    connections: usize,
    nodes: usize,
) -> Vec<Job> {
    let connections = connections as u64;
    let count = (to - from + 1) as u64;
    let mut jobs = Vec::new();
    for probe in probes.iter().filter(|probe| probe.conditions.iter().any(|one| conditions.contains(one))) {
        let length = match probe.access {
            Access::WholeTable => count.div_ceil(connections),
            Access::ByKey => count.div_ceil(connections * RANGES_PER_CONNECTION).min(RANGE_MAX),
            Access::Once => count,
        }
        .max(1) as i64;
        let mut first = from;
        while first <= to {
            let last = to.min(first + length - 1);
            jobs.extend((0..nodes).map(|node| Job { probe, node, from: first, to: last }));
            first = last + 1;
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Condition = Condition::new(1, "A", "a", "row");
    const B: Condition = Condition::new(2, "B", "b", "row");
    const C: Condition = Condition::new(3, "C", "c", "row");

    const fn probe(conditions: &'static [Condition], access: Access) -> Probe {
        Probe { conditions, access, columns: &["w_id", "w_ytd", "district_ytd"], sql: "", others: None }
    }

    static PROBES: [Probe; 3] =
        [probe(&[A], Access::WholeTable), probe(&[B, C], Access::ByKey), probe(&[C], Access::Once)];

    #[test]
    fn ranges_cover_everything_once_for_each_query() {
        let all: BTreeSet<Condition> = [A, B, C].into();
        for (from, to) in [(1, 1), (1, 2), (3, 10), (1, 15_000), (7, 100_000)] {
            for connections in [1, 2, 7, 64] {
                let jobs = jobs_of(&PROBES, &all, (from, to), connections, 2);
                for (probe, node) in PROBES.iter().flat_map(|probe| [(probe, 0), (probe, 1)]) {
                    let mut next = from;
                    let own = |job: &&Job| std::ptr::eq(job.probe, probe) && job.node == node;
                    for job in jobs.iter().filter(own) {
                        assert_eq!(job.from, next);
                        assert!(job.to >= job.from);
                        next = job.to + 1;
                    }
                    assert_eq!(next, to + 1, "{probe:?}");
                }
            }
        }
    }

    #[test]
    fn only_what_is_requested_is_read() {
        let jobs = |wanted: Condition| jobs_of(&PROBES, &[wanted].into(), (1, 9), 1, 1);
        assert!(jobs(A).iter().all(|job| job.probe.conditions == [A]));
        // Two conditions share a query: requesting one of them runs it once.
        assert_eq!(jobs(B).len(), RANGES_PER_CONNECTION as usize - 1);
    }
}
