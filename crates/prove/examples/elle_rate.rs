//! How fast histories of Elle are read and checked, and what memory that takes: simulated histories of 200,000 transactions in Elle's notation.
//!
//! `cargo run --release -p pgfathom-prove --example elle_rate -- write edn|json FILE` writes one; `... -- check FILE`, under `/usr/bin/time -v`, reads and checks it.

use std::path::Path;
use std::time::Instant;

use prove::check::{Options, check};
use prove::history::elle::{self, Notation};
use prove::history::{History, Model};
use prove::simulate::{Plan, snapshot_isolation};

const TXNS: u32 = 200_000;

/// The most memory that this process has had, in bytes, as the kernel counts it.
fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1024.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", notation, file] => {
            let notation = if notation == "json" { Notation::Json } else { Notation::Edn };
            let plan = Plan {
                model: Model::Append,
                txns: TXNS,
                sessions: 32,
                keys: 2000,
                versions_max: 32,
                ..Plan::default()
            };
            std::fs::write(file, elle::write(&snapshot_isolation(&plan), notation))?;
        }
        ["check", file] => {
            let bytes = std::fs::metadata(file)?.len();
            let begun = Instant::now();
            let history = History::open(Path::new(file))?;
            let (read_s, read_peak) = (begun.elapsed().as_secs_f64(), peak_bytes());
            let begun = Instant::now();
            let report = check(&history, &Options::default());
            let ops = history.ops().len() as f64;
            println!(
                "{ops} ops of {:.0} bytes; read in {read_s:.2} s, {:.2} M ops/s, {:.0} bytes/op; checked in {:.2} s, {:.0} bytes/op in all; {:?}",
                bytes as f64 / ops,
                ops / read_s / 1e6,
                read_peak / ops,
                begun.elapsed().as_secs_f64(),
                peak_bytes() / ops,
                report.counts
            );
        }
        _ => return Err("write edn|json FILE, or check FILE".into()),
    }
    Ok(())
}
