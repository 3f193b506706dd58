//! How fast a table is verified, beside what the server alone needs to sum up its hashes: one throwaway cluster, alternating rounds.
//!
//! `cargo run --release -p pgfathom-load --example verify_rate [ROWS] [PARTITIONS]`

use std::error::Error;
use std::time::{Duration, Instant};

use connect::{ConnSpec, control};
use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::Cluster;
use lab::throwaway::{Throwaway, installations};
use load::progress::Silent;
use load::verify::{Subject, VerifyOptions, run};
use load::{Options, Stop, plan};
use workloads::ycsb::DATASET;
use workloads::ycsb::dataset::{NAME, ROW_VALUE_BYTES, Ycsb};

/// Rounds of all measurements; the median counts.
const ROUNDS: usize = 5;
/// What the server does without us, and the measure in the design.
const BASELINE: &str = "select count(*), sum(hash_record_extended(t, 0)) from usertable t";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = plan::parse_quantity(&arguments.next().unwrap_or("1M".to_owned()))?;
    let partitions = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let installation = installations().into_iter().next().ok_or("no PostgreSQL found")?;
    let cluster = Throwaway::start(&installation, &[("shared_buffers", "2GB"), ("max_wal_size", "8GB")])?;
    let dataset = Spec { seed: 42, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    let options = Options { partitions: Some(partitions), ..Options::new() };
    let target = Cluster::single(cluster.spec());
    load::load(&target, &Ycsb::new(rows, dataset), &options, &Stop::new(), &mut Silent)?;
    println!("PostgreSQL {}, {rows} rows, {partitions} partitions", installation.version);

    type Measurement<'a> = (&'a str, Box<dyn Fn() -> Result<Duration, Box<dyn Error>> + 'a>);
    let spec = cluster.spec();
    let measurements: [Measurement<'_>; 6] = [
        ("server alone, 1 process", Box::new(|| server_alone(&spec, 0))),
        ("fast, 1 connection", Box::new(|| verify(&spec, false, 1))),
        ("server alone, 2 processes", Box::new(|| server_alone(&spec, 1))),
        ("fast, 2 connections", Box::new(|| verify(&spec, false, 2))),
        ("deep, 1 connection", Box::new(|| verify(&spec, true, 1))),
        ("deep, 2 connections", Box::new(|| verify(&spec, true, 2))),
    ];
    let mut times = vec![Vec::new(); measurements.len()];
    for _ in 0..ROUNDS {
        for ((_, measure), times) in measurements.iter().zip(&mut times) {
            times.push(measure()?);
        }
    }
    for ((name, _), times) in measurements.iter().zip(&mut times) {
        times.sort();
        let median = times[times.len() / 2];
        let bytes = (rows * ROW_VALUE_BYTES) as f64;
        println!("{name:<28} {:>7.3} s  {:.2} GB/s", median.as_secs_f64(), bytes / median.as_nanos() as f64);
    }
    Ok(())
}

fn server_alone(spec: &ConnSpec, helpers: u32) -> Result<Duration, Box<dyn Error>> {
    let mut client = control::connect(spec)?;
    client.batch_execute(&format!("set max_parallel_workers_per_gather = {helpers}"))?;
    let start = Instant::now();
    client.batch_execute(BASELINE)?;
    Ok(start.elapsed())
}

fn verify(spec: &ConnSpec, deep: bool, jobs: usize) -> Result<Duration, Box<dyn Error>> {
    let stop = Stop::new();
    let subject = Subject { name: NAME, find: &|client| DATASET.find(client) };
    let options = VerifyOptions::new(deep, jobs, &stop);
    let report = run(&Cluster::single(spec.clone()), &subject, &options, &mut |_| {})?;
    if report.exact() { Ok(report.duration) } else { Err(report.text().into()) }
}
