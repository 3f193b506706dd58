//! Commands of `plan` for help and hints.

use workloads::dataset::{DATASETS, DEMO, Registration, Size};

/// A command that works.
pub(super) fn example(dataset: &Registration) -> String {
    let size = match dataset.size {
        Size::Rows => "--rows 1e12",
        Size::Scale => "-s 15000",
    };
    format!("pgfathom plan load {} {size} --nodes 7 --disks 10 --disk 15TB --within 14d", dataset.name)
}

/// A command that works, whatever is planned.
pub fn example_of_any() -> String {
    example(&DEMO.dataset)
}

/// Commands for help.
pub(super) fn examples() -> String {
    let rows = DEMO.dataset.name;
    let scaled =
        DATASETS.iter().find(|dataset| dataset.size == Size::Scale).map_or(rows, |dataset| dataset.name);
    format!(
        "Examples:
  pgfathom plan load {rows} --rows 1e12 --nodes 7 --disks 10 --disk 15TB --within 14d --rate 1.75GB
  pgfathom plan load {scaled} -s 15000 --disk 4TB --tps 8000 --ping zone=1ms,region=20ms
  pgfathom plan load {rows} --size 1PB -f plan.toml --explain -o plan.json
  pgfathom plan load {rows} --size 10TB --from runs/20261120-101500-load-{rows} --cluster cluster.toml
  pgfathom load {rows} --plan plan.json --cluster cluster.toml"
    )
}
