//! A small load that measures what rows take: on a throwaway server of this host, or in a database of its own on the target.

use super::Calibrate;
use super::measured::Measured;
use super::sample;
use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use crate::load::stop_of;
use connect::ConnSpec;
use engines::Cluster;
use lab::throwaway::{self, installations};
use record::number;
use workloads::dataset::{Registration, Request};

/// The calibration loads about this many bytes of values, and at most so many rows.
const BYTES: u64 = 200_000_000;
const ROWS_MAX: u64 = 200_000;
/// Streams of it: sizes do not depend on them.
const STREAMS: usize = 2;

/// Loads a small part of the dataset and measures it.
pub(super) fn load(
    context: &Context,
    where_to: Calibrate,
    address: Option<&Address>,
    dataset: &Registration,
    request: &Request,
) -> Result<Measured, Failure> {
    match (where_to, address) {
        (Calibrate::Target, Some(address)) => on_target(context, &address.spec(context)?, dataset, request),
        (Calibrate::Target, None) => Err(Failure::usage("--calibrate target: no target is named")
            .hint("name the database as the last argument, or use --calibrate for a throwaway server")),
        (Calibrate::Throwaway, _) => {
            let installation = installations().into_iter().next().ok_or_else(|| {
                Failure::usage("--calibrate: no PostgreSQL is installed on this host")
                    .hint("install its server programs, or use --calibrate target with a database")
            })?;
            // A checkpoint in the middle would write page images that a larger load has fewer of.
            let settings = [("max_wal_size", "8GB"), ("checkpoint_timeout", "1h")];
            let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
            let options = throwaway::Options { settings, ..throwaway::Options::default() };
            let server = options.start(&installation)?;
            let words = format!(
                "a calibration on PostgreSQL {}.{}",
                installation.version.major, installation.version.minor
            );
            measure(context, &server.spec(), words, dataset, request)
        }
    }
}

/// In a database of its own, which is dropped whatever happens.
fn on_target(
    context: &Context,
    spec: &ConnSpec,
    dataset: &Registration,
    request: &Request,
) -> Result<Measured, Failure> {
    let name = format!("pgfathom_calibrate_{}", std::process::id());
    let failed = |what: &'static str| move |error| Failure::caused(what, error);
    let mut control = connect::control::connect(spec)?;
    control
        .batch_execute(&format!("create database {name}"))
        .map_err(failed("cannot create a database to calibrate in"))?;
    context.terminal.say(&format!("calibrate: in the database {name}, which is dropped afterwards"));
    let measured = measure(
        context,
        &spec.clone().with_dbname(&name),
        "a calibration on the target".into(),
        dataset,
        request,
    );
    let dropped = control.batch_execute(&format!("drop database {name}"));
    let measured = measured?;
    dropped.map_err(|error| {
        Failure::caused(format!("cannot drop the database {name}"), error)
            .hint(format!("drop database {name};"))
    })?;
    Ok(measured)
}

fn measure(
    context: &Context,
    spec: &ConnSpec,
    words: String,
    dataset: &Registration,
    request: &Request,
) -> Result<Measured, Failure> {
    let row_bytes = (dataset.build)(request)?.row_bytes().max(1);
    let rows = (BYTES / row_bytes).clamp(1, ROWS_MAX);
    let small = Request {
        rows: Some(rows.min(request.rows.unwrap_or(rows))),
        bytes: None,
        scale: request.scale.map(|_| 1),
        ..request.clone()
    };
    let content = (dataset.build)(&small)?;
    let options = ::load::Options { streams: STREAMS, ..::load::Options::new() };
    let cluster = Cluster::single(spec.clone());
    let report = ::load::load(&cluster, &*content, &options, &stop_of(context), &mut Quiet)?;
    if report.outcome != ::load::Outcome::Complete {
        return Err(Failure::usage("the calibration was interrupted").hint("run the same command again"));
    }
    Ok(Measured {
        source: format!("{words} ({})", number::counted(report.rows, "row")),
        computed: sample::tables(&*content, record::plan::input::Server::default().block_bytes)?,
        table_bytes: report.table_bytes_on_disk,
        index_bytes: report.index_bytes_on_disk,
        wal_bytes: report.wal_bytes,
        // Rates of two streams on some host say nothing about the target.
        rate: None,
        client_us_per_row: Some(report.client_cpu_us as f64 / report.rows.max(1) as f64),
        index_rows_per_s: None,
    })
}

/// A calibration shows no progress: it takes seconds.
struct Quiet;

impl ::load::Observer for Quiet {
    fn progress(&mut self, _: &::load::Progress, _: &record::ProgressSample, _: std::time::Duration) {}

    fn event(&mut self, _: &::load::LoadEvent) {}
}
