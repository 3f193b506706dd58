//! All rules, in the order of the manual.

mod capacity;
mod cpu;
mod disk;
mod distribution;
mod filesystem;
mod generator;
mod lock;
mod memory;
mod network;
mod observer;
mod plan;
mod queue;
pub(crate) mod replication;
mod statement;
mod transaction;
pub(crate) mod vacuum;
pub(crate) mod wal;

use crate::rule::Rule;

/// The table.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        generator::RULES,
        disk::RULES,
        filesystem::RULES,
        memory::RULES,
        cpu::RULES,
        network::RULES,
        vacuum::RULES,
        transaction::RULES,
        lock::RULES,
        statement::RULES,
        plan::RULES,
        queue::RULES,
        wal::RULES,
        replication::RULES,
        capacity::RULES,
        distribution::RULES,
        observer::RULES,
    ]
    .into_iter()
    .flatten()
}
