//! Its table in the list of datasets.

use data::ycsb::Spec;
use load::dataset::Dataset;

use super::{dataset, history};
use crate::dataset::{Flags, Registration, Request, Size};

/// What the command knows of its table.
pub const DATASET: Registration = Registration {
    name: dataset::NAME,
    about: "the table usertable(ycsb_key, field0..field9) of about 1,100 bytes a row",
    size: Size::Rows,
    takes: &["--key-order", "--compressible"],
    flags: &[],
    example: "pgfathom load ycsb --rows 1M DBNAME",
    examples: &[
        "ycsb --rows 1M DBNAME",
        "ycsb --size 1TB --partitions 70 -j 8 postgresql://db1/bench",
        "ycsb --size 900TB --keep-free 500GB -j 70 --cluster cluster.toml",
    ],
    scale_unit: None,
    build,
    recorded,
    replay: Some(history::replay),
};

fn build(request: &Request) -> Result<Box<dyn Dataset>, load::LoadError> {
    let bytes = || dataset::rows_for_bytes(request.bytes.unwrap_or_default());
    let rows = request.rows.unwrap_or_else(bytes);
    let Request { seed, key_order, compressible, .. } = *request;
    Ok(Box::new(dataset::Ycsb::new(rows, Spec { seed, key_order, compressible })))
}

fn recorded(spec: &Spec, flags: &Flags) -> Option<Box<dyn Dataset>> {
    Some(Box::new(dataset::Ycsb::new(flags.get("rows")?.parse().ok()?, spec.clone())))
}
