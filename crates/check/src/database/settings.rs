//! Settings, judged against the machine, the plan and what the node does.

mod connections;
mod durability;
mod memory;
mod observation;
mod planner;
mod security;
mod vacuum;
mod wal;

use super::rule::Check;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        wal::CHECKS,
        memory::CHECKS,
        connections::CHECKS,
        durability::CHECKS,
        vacuum::CHECKS,
        planner::CHECKS,
        observation::CHECKS,
        security::CHECKS,
    ]
    .into_iter()
    .flatten()
}
