//! The core workloads of YCSB, and two of a single operation.

use run::workload::Item;

use super::run::{Distribution, Operation, Verb};
use crate::driving::Builtin;

/// A built-in workload, and (verb, distribution, percent) of its mix.
#[derive(Clone, Copy, Debug)]
pub struct CoreWorkload {
    /// Its name, and one line about it.
    pub builtin: Builtin,
    /// The mix.
    pub mix: &'static [(Verb, Distribution, u64)],
}

impl CoreWorkload {
    /// Its types of transactions, each as often as `weight` states against others. `keys`: how rows are picked, instead of its own way.
    pub fn items(
        &self,
        weight: u64,
        keys: Option<Distribution>,
    ) -> impl Iterator<Item = (Item, Operation)> + use<> {
        let name = self.builtin.name;
        self.mix.iter().map(move |&(verb, distribution, percent)| {
            let item = Item { name: format!("{name}.{}", verb.name()), weight: weight * percent };
            (item, Operation { verb, distribution: keys.unwrap_or(distribution) })
        })
    }
}

/// Reads only, and nothing but updates, of rows that are all alike.
pub(super) const PURE: [&str; 2] = ["ycsb-select", "ycsb-update"];

/// The core workloads A to F, and the pure ones.
pub const CORE: &[CoreWorkload] = &[
    CoreWorkload {
        builtin: Builtin { name: "ycsb-a", about: "update heavy: 50 % read, 50 % update, zipfian" },
        mix: &[(Verb::Read, Distribution::Zipfian, 50), (Verb::Update, Distribution::Zipfian, 50)],
    },
    CoreWorkload {
        builtin: Builtin { name: "ycsb-b", about: "read mostly: 95 % read, 5 % update, zipfian" },
        mix: &[(Verb::Read, Distribution::Zipfian, 95), (Verb::Update, Distribution::Zipfian, 5)],
    },
    CoreWorkload {
        builtin: Builtin { name: "ycsb-c", about: "read only: 100 % read, zipfian" },
        mix: &[(Verb::Read, Distribution::Zipfian, 100)],
    },
    CoreWorkload {
        builtin: Builtin { name: "ycsb-d", about: "read latest: 95 % read of the newest rows, 5 % insert" },
        mix: &[(Verb::Read, Distribution::Latest, 95), (Verb::Insert, Distribution::Latest, 5)],
    },
    CoreWorkload {
        builtin: Builtin {
            name: "ycsb-e",
            about: "short ranges: 95 % scan of up to 100 rows, 5 % insert, zipfian",
        },
        mix: &[(Verb::Scan, Distribution::Zipfian, 95), (Verb::Insert, Distribution::Zipfian, 5)],
    },
    CoreWorkload {
        builtin: Builtin { name: "ycsb-f", about: "50 % read, 50 % read-modify-write, zipfian" },
        mix: &[(Verb::Read, Distribution::Zipfian, 50), (Verb::ReadModifyWrite, Distribution::Zipfian, 50)],
    },
    CoreWorkload {
        builtin: Builtin { name: "ycsb-select", about: "simple select: one row by key, all rows alike" },
        mix: &[(Verb::Read, Distribution::Uniform, 100)],
    },
    CoreWorkload {
        builtin: Builtin {
            name: "ycsb-update",
            about: "simple update: one field of one row by key, all rows alike",
        },
        mix: &[(Verb::Update, Distribution::Uniform, 100)],
    },
];
