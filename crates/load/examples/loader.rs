//! The loader without the command around it: what `scripts/bench-load` measures, and how a caller uses the crate.
//!
//! ```text
//! loader CONNECTION ROWS [-j STREAMS] [--partitions N] [--method copy|freeze] [--restart]
//! ```
//!
//! Progress goes to stderr, one JSON object with the result to stdout. The first SIGINT or SIGTERM drains, the second stops at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connect::conninfo::{Request, Sources, resolve};
use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::Cluster;
use load::progress::text;
use load::{LoadEvent, LoadReport, Observer, Options, Outcome, Progress, Stop};
use record::ProgressSample;
use workloads::ycsb::dataset::Ycsb;

/// How soon a signal is noticed.
const SIGNAL_LOOK: Duration = Duration::from_millis(20);

/// Prints what it hears.
struct Printer;

impl Observer for Printer {
    fn progress(&mut self, progress: &Progress, _: &ProgressSample, _: Duration) {
        eprintln!("{}", text::plain(progress));
    }

    fn event(&mut self, event: &LoadEvent) {
        eprintln!("{}: {}", event.kind, event.message);
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(Outcome::Complete | Outcome::AlreadyComplete) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(130),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Outcome, String> {
    let mut arguments = std::env::args().skip(1);
    let usage =
        "usage: loader CONNECTION ROWS [-j STREAMS] [--partitions N] [--method copy|freeze] [--restart]";
    let (Some(connection), Some(rows)) = (arguments.next(), arguments.next()) else {
        return Err(usage.into());
    };
    let rows = load::plan::parse_quantity(&rows).map_err(|error| error.to_string())?;
    let spec = Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    let mut options = Options::new();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u32>().ok()).ok_or(usage);
        match argument.as_str() {
            "-j" => options.streams = number()? as usize,
            "--partitions" => options.partitions = Some(number()?),
            "--method" => {
                let method = arguments.next().ok_or(usage)?;
                options.method = Some(method.parse().map_err(|error| format!("{error}"))?);
            }
            "--restart" => options.restart = true,
            _ => return Err(usage.into()),
        }
    }
    let target = resolve(&Request::target(&connection), &Sources::of_process());
    let target = target.map_err(|error| error.to_string())?.spec;

    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, signalled.clone()).map_err(|error| error.to_string())?;
    }
    let stop = Arc::new(Stop::new());
    let request = stop.clone();
    // Ends with the process.
    std::thread::spawn(move || {
        loop {
            if signalled.swap(false, Ordering::Relaxed) {
                request.request();
            }
            std::thread::sleep(SIGNAL_LOOK);
        }
    });
    let (cluster, dataset) = (Cluster::single(target), Ycsb::new(rows, spec));
    let report = load::load(&cluster, &dataset, &options, &stop, &mut Printer).map_err(|error| {
        let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        let mut causes = String::new();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            causes.push_str(&format!("\n  {inner}"));
            cause = inner.source();
        }
        format!("{error}{causes}{hint}")
    })?;
    print(&report);
    Ok(report.outcome)
}

fn print(report: &LoadReport) {
    println!(
        "{{\"rows\":{},\"seconds\":{:.3},\"rows_per_s\":{:.0},\"bytes_per_s\":{:.0},\"client_cpu_us\":{},\
         \"index_seconds\":{:.3},\"analyze_seconds\":{:.3},\"wal_bytes\":{},\"bytes_per_row_on_disk\":{:.0}}}",
        report.rows,
        report.seconds,
        report.rows_per_s,
        report.bytes_per_s,
        report.client_cpu_us,
        report.index_seconds,
        report.analyze_seconds,
        report.wal_bytes.unwrap_or_default(),
        report.bytes_per_row_on_disk().unwrap_or_default()
    );
}
