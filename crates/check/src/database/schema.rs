//! The objects of the connected database.

mod bloat;
mod constraints;
mod indexes;
mod keys;
mod numbers;
mod partitions;
mod placement;
mod upkeep;

use super::rule::Check;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        keys::CHECKS,
        placement::CHECKS,
        indexes::CHECKS,
        constraints::CHECKS,
        numbers::CHECKS,
        partitions::CHECKS,
        bloat::CHECKS,
        upkeep::CHECKS,
    ]
    .into_iter()
    .flatten()
}
