//! What the server is doing and what has happened to it.

mod age;
mod clock;
mod configuration;
mod integrity;
mod replication;
mod slots;
mod transactions;
mod versions;

use super::rule::Check;

/// All of them; those that need two readings are last.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        versions::CHECKS,
        clock::CHECKS,
        configuration::CHECKS,
        integrity::CHECKS,
        transactions::CHECKS,
        slots::CHECKS,
        replication::CHECKS,
        age::CHECKS,
    ]
    .into_iter()
    .flatten()
}
