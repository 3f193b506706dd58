//! The tables of TPC-C, loaded and verified as any dataset.

use connect::ConnSpec;
use engines::Cluster;
use load::verify::{Subject, VerifyError, VerifyOptions, VerifyReport};
use load::{LoadError, LoadReport, Observer, Options, Stop};
use workloads::tpcc::{DATASET, TPCC, Tpcc};

/// So many warehouses, without foreign keys.
pub(crate) fn warehouses(warehouses: u32) -> Tpcc {
    Tpcc::new(warehouses, 1, false, None)
}

/// The options of a load with every default.
pub(crate) fn options() -> Options {
    Options::new()
}

pub(crate) fn load_tpcc(
    target: &ConnSpec,
    dataset: &Tpcc,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    load_tpcc_on(&Cluster::single(target.clone()), dataset, observer)
}

pub(crate) fn load_tpcc_on(
    cluster: &Cluster,
    dataset: &Tpcc,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    load::load(cluster, dataset, &options(), &Stop::new(), observer)
}

/// Verifies what the database holds of TPC-C.
pub(crate) fn verify_tpcc(target: &ConnSpec, deep: bool) -> Result<VerifyReport, VerifyError> {
    verify_tpcc_on(&Cluster::single(target.clone()), deep)
}

pub(crate) fn verify_tpcc_on(cluster: &Cluster, deep: bool) -> Result<VerifyReport, VerifyError> {
    let subject = Subject { name: TPCC, find: &|client| DATASET.find(client) };
    load::verify::run(cluster, &subject, &VerifyOptions::new(deep, 2, &Stop::new()), &mut |_| {})
}
