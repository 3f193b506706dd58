//! The core workloads of YCSB, and two of a single operation.

use run::workload::Item;

use super::run::{Distribution, FILL, Operation, Verb};
use crate::driving::{About, Builtin, Flag, Kind};

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

const fn core(
    name: &'static str,
    about: &'static str,
    mix: &'static [(Verb, Distribution, u64)],
) -> CoreWorkload {
    CoreWorkload { builtin: Builtin { name, about }, mix }
}

/// What `demo` drives: reads, then as many updates as reads.
pub const DEMO: &[&str] = &["ycsb-c", "ycsb-a"];

/// The core workloads A to F, and the pure ones.
pub const CORE: &[CoreWorkload] = &[
    core(
        "ycsb-a",
        "update heavy: 50 % read, 50 % update, zipfian",
        &[(Verb::Read, Distribution::Zipfian, 50), (Verb::Update, Distribution::Zipfian, 50)],
    ),
    core(
        "ycsb-b",
        "read mostly: 95 % read, 5 % update, zipfian",
        &[(Verb::Read, Distribution::Zipfian, 95), (Verb::Update, Distribution::Zipfian, 5)],
    ),
    core("ycsb-c", "read only: 100 % read, zipfian", &[(Verb::Read, Distribution::Zipfian, 100)]),
    core(
        "ycsb-d",
        "read latest: 95 % read of the newest rows, 5 % insert",
        &[(Verb::Read, Distribution::Latest, 95), (Verb::Insert, Distribution::Latest, 5)],
    ),
    core(
        "ycsb-e",
        "short ranges: 95 % scan of up to 100 rows, 5 % insert, zipfian",
        &[(Verb::Scan, Distribution::Zipfian, 95), (Verb::Insert, Distribution::Zipfian, 5)],
    ),
    core(
        "ycsb-f",
        "50 % read, 50 % read-modify-write, zipfian",
        &[(Verb::Read, Distribution::Zipfian, 50), (Verb::ReadModifyWrite, Distribution::Zipfian, 50)],
    ),
    core(
        "ycsb-select",
        "simple select: one row by key, uniform",
        &[(Verb::Read, Distribution::Uniform, 100)],
    ),
    core(
        "ycsb-update",
        "simple update: one field of one row by key, uniform",
        &[(Verb::Update, Distribution::Uniform, 100)],
    ),
];

/// How rows are picked.
pub(super) const KEYS: &str = "keys";

const FLAGS: &[Flag] = &[Flag {
    long: KEYS,
    kind: Kind::Choice("WAY", &["uniform", "zipfian", "latest"]),
    help: "Key distribution of YCSB workloads, instead of the workload's own: uniform, zipfian, latest",
    excludes: &[],
}];

/// The names alone, as `-b list` shows them.
static BUILTINS: [Builtin; CORE.len()] = {
    let mut all = [CORE[0].builtin; CORE.len()];
    let mut at = 1;
    while at < all.len() {
        all[at] = CORE[at].builtin;
        at += 1;
    }
    all
};

/// What the workloads are called, and what they take.
pub(super) const ABOUT: About = About {
    title: "YCSB",
    filled_by: "load ycsb",
    fill: FILL,
    builtins: &BUILTINS,
    flags: FLAGS,
    heading: "Workload",
    examples: &[
        ("-b ycsb-a -c 8 -T 60 DBNAME", "half reads, half updates, eight sessions"),
        ("-b ycsb-c@9 -b ycsb-update@1 -c 32 ...", "a mix of nine to one"),
        ("-b ycsb-a -c 1,2,4,...,256 --warmup 10m -T 5m ...", "a sweep that finds the knee"),
        ("--read-update 100/0,50/50,0/100 -c 1,4,16 -T 1m ...", "mixes compared with pure reads and updates"),
        ("-b ycsb-a -c 12 --connect each --cluster cluster.toml", "over all nodes of a cluster"),
        (
            "-b ycsb-a -c 12 --connect owner --cluster cluster.toml",
            "each session connects to the node of its rows",
        ),
    ],
};
