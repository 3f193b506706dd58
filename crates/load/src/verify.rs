//! Prove what is in a table: every row that was loaded or written, and nothing else.
//!
//! ```text
//!            sums per leaf agree ------------------------------------> exact (fast)
//! fast: sum -+
//!            differ -> sums per bucket of keys -> buckets that differ -+
//! deep: ---------------------------------------> everything ----------+-> judge row by row -> name missing and doubled keys
//! ```
//!
//! Fast costs the server one scan with a hash per row, and the client the same hash of rows that it computes itself; two numbers cross
//! the network. It proves that the table is as it was loaded. When runs have written into it, or the server has no hash of a row
//! (before PostgreSQL 14), every row is read and judged instead, and it is said so. Memory does not grow with the table.

use std::time::Instant;

use connect::control::Control;
use connect::{ConnSpec, ConnectError, control};
use data::ycsb::Table;
use postgres::Client;

use self::catalog::Catalog;
use self::grid::Sum;
use self::judge::Content;
use self::reader::Socket;
use self::sums::{Compared, LedgerKeys, Selection};
use self::workers::{Coordinator, Workers};
use crate::ledger::{self, Dataset, Writer};
use crate::options::Stop;
use crate::plan::Chunks;
use crate::route::Route;

pub use self::cluster::{MirrorOptions, run_cluster};
pub use self::error::VerifyError;
pub use self::history::{Expect, LedgerHistory, VersionJudgement, WriterHistory};
pub use self::problem::Problem;
pub use self::report::{
    Difference, DifferenceKind, KIND_NAMES, KINDS, Method, NAMED_MAX, NodeReport, StrangerReason, TableName,
    Verdict, VerifyReport,
};
pub use self::workers::{Phase, VerifyProgress};

mod catalog;
mod cluster;
mod compare;
mod definition;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod foreign;
mod grid;
mod history;
mod judge;
mod mirrored;
mod names;
mod problem;
mod reader;
mod replication;
mod report;
mod rows;
mod spread;
mod sums;
mod sys;
pub mod tables;
mod workers;

/// What a verification shall do.
pub struct VerifyOptions<'a> {
    /// Read and judge every row, whatever the sums say.
    pub deep: bool,
    /// Connections that read at once; about as many threads compute.
    pub jobs: usize,
    /// What runs have written; `None` is what the ledger alone can say.
    pub history: Option<&'a dyn WriterHistory>,
    /// A request to stop.
    pub stop: &'a Stop,
}

impl std::fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("deep", &self.deep)
            .field("jobs", &self.jobs)
            .field("history", &self.history.is_some())
            .finish_non_exhaustive()
    }
}

/// What all phases know.
struct Setting<'a> {
    content: Content<'a>,
    catalog: &'a Catalog,
    workers: Workers<'a>,
    jobs: usize,
    limits: Limits,
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Row numbers held at a time while keys are named.
    found_rows: u64,
    /// Blocks that a connection reads at once, where the server can read a range of them.
    blocks_at_once: u64,
}

/// 128 MB of row numbers; 64 MB of blocks.
const LIMITS: Limits = Limits { found_rows: 1 << 24, blocks_at_once: 8192 };

/// Verifies the YCSB dataset of a database. `observer` is called about once a second by the calling thread.
///
/// Nothing is changed in the database. All reading is done in one snapshot, which keeps vacuum from removing newer dead rows as long as
/// it lasts.
///
/// # Errors
/// When there is no verdict; a difference in the content is part of the report instead.
pub fn run(
    spec: &ConnSpec,
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let mut site = Site::connect(spec, None)?;
    run_within(&mut site, options, observer, LIMITS, &|_| {})
}

/// One server with everything. `forget`: takes away what the server can do, as a test of what then is done.
fn run_within(
    site: &mut Site,
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
    limits: Limits,
    forget: &dyn Fn(&mut Catalog),
) -> Result<VerifyReport, VerifyError> {
    let start = Instant::now();
    let mut notes = Vec::new();
    site.open_snapshot(&mut notes)?;
    let dataset = find_dataset(&mut site.control)?;
    ledger::check_chunks(&mut *site.control, &dataset)?;
    let totals = ledger::chunk_totals(&mut *site.control, dataset.id)?;
    let writers = ledger::writers(&mut *site.control, &dataset)?;
    let nodes = ledger::layout(&mut *site.control, dataset.id)?.nodes;
    if !nodes.is_empty() && site.name.is_none() {
        notes.push(format!(
            "the ledger says that the dataset is on the nodes {}: only this server was verified",
            nodes.join(", ")
        ));
    }
    let mut catalog = catalog::read(&mut site.control, &dataset, site.name.as_deref())?;
    forget(&mut catalog);
    let sites = std::slice::from_mut(site);
    let found = prove(sites, &dataset, &writers, &catalog, options, observer, limits, true, notes)?;
    let mut loaded = Sum::default();
    let LedgerKeys { leaves, chunks } = &found.ledger_keys;
    leaves.iter().for_each(|sum| loaded.add(sum.rows, sum.hash));
    let in_ledger = Sum { rows: totals.rows, hash: totals.checksum };
    let mut problem = cluster::compare_ledger(Some("the server".to_owned()), in_ledger, loaded);
    if problem.is_none() {
        // A chunk is a range of rows, or a leaf.
        let checksum = |chunk: usize| match dataset.method {
            crate::Method::Copy => chunks.get(chunk).copied(),
            crate::Method::Freeze => leaves.get(chunk).map(|sum| sum.hash),
        };
        let control = &mut sites[0].control;
        let odd = ledger::odd_chunks(control, dataset.id, |chunk, found, _| checksum(chunk) == Some(found))?;
        problem = odd.map(|(chunk, count)| Problem::LedgerChunks { chunk, count });
    }
    let mut report = found.into_report(start);
    report.problems.extend(problem);
    report.problems.extend(catalog.problems);
    report.problems.sort();
    Ok(report)
}

/// A server that is read: the coordinating connection, and how to open more.
struct Site {
    /// What it is called among others.
    name: Option<String>,
    /// Leads to the host that answered and to no other: the snapshot exists there only.
    spec: ConnSpec,
    control: Control,
    snapshot: Option<String>,
}

impl Site {
    fn connect(spec: &ConnSpec, name: Option<&str>) -> Result<Site, VerifyError> {
        let control = control::connect(&spec.pinned()).map_err(|error| connect_error(error, name))?;
        let spec = spec.clone().with_only_host(control.host_index());
        Ok(Site { name: name.map(str::to_owned), spec, control, snapshot: None })
    }

    /// Begins the transaction that everything is read in, and exports its snapshot. Where that is not possible every connection sees its
    /// own moment, and it is said so.
    fn open_snapshot(&mut self, notes: &mut Vec<String>) -> Result<(), VerifyError> {
        const DOING: &str = "opening a snapshot of the table";
        let sql = |source| VerifyError::Sql { doing: DOING, source };
        let begin = format!("begin isolation level repeatable read read only; {}", workers::SETTINGS);
        self.control.batch_execute(&begin).map_err(sql)?;
        match self.control.query_one("select pg_export_snapshot()", &[]) {
            Ok(row) => self.snapshot = Some(row.get(0)),
            Err(_) => {
                self.control.batch_execute(&format!("rollback; {begin}")).map_err(sql)?;
                let server = self.name.as_deref().unwrap_or("the server");
                notes.push(format!(
                    "{server} exports no snapshot: writes during verify can look like differences"
                ));
            }
        }
        Ok(())
    }

    /// Gives the snapshot up: from here on the server is seen as it is.
    fn close_snapshot(&mut self) -> Result<(), VerifyError> {
        if self.snapshot.take().is_some() {
            let closed = self.control.batch_execute("rollback");
            closed.map_err(|source| VerifyError::Sql { doing: "closing a snapshot of the table", source })?;
        }
        Ok(())
    }
}

/// A way to open connections to a server, and the snapshot that they shall see.
type Opener<'a> = (Box<workers::Connect<'a>>, Option<&'a str>);

/// Servers taken apart: their coordinating connections, and how to open more.
fn split(sites: &mut [Site]) -> (Vec<&mut Client>, Vec<Opener<'_>>) {
    let (mut controls, mut openers) = (Vec::new(), Vec::new());
    for Site { name, spec, control, snapshot } in sites {
        let (name, spec) = (name.as_deref(), &*spec);
        controls.push(&mut **control);
        let connect = move || -> Result<Box<dyn Socket>, VerifyError> {
            Ok(Box::new(crate::connections::hot(spec).map_err(|error| connect_error(error, name))?))
        };
        openers.push((Box::new(connect) as Box<workers::Connect<'_>>, snapshot.as_deref()));
    }
    (controls, openers)
}

/// What the phases came to.
struct Proved {
    method: Method,
    notes: Vec<String>,
    /// Rows that must be there, by table of the catalog.
    expected: Vec<u64>,
    /// Rows that are there, by table of the catalog.
    found: Vec<u64>,
    rows_uncertain: u64,
    updates_accepted: u64,
    values_unjudged: u64,
    totals: [u64; KINDS],
    differences: Vec<Difference>,
    /// Which tables of the catalog are not as they should be; those beyond its end are.
    differs: Vec<bool>,
    /// What the ledgers' chunks must add up to; empty unless it was asked for.
    ledger_keys: LedgerKeys,
}

impl Proved {
    fn into_report(self, start: Instant) -> VerifyReport {
        VerifyReport {
            method: self.method,
            notes: self.notes,
            rows_expected: self.expected.iter().sum(),
            rows_found: self.found.iter().sum(),
            rows_uncertain: self.rows_uncertain,
            updates_accepted: self.updates_accepted,
            values_unjudged: self.values_unjudged,
            differences: self.differences,
            totals: self.totals,
            problems: Vec::new(),
            nodes: Vec::new(),
            duration: start.elapsed(),
        }
    }
}

/// Goes through the phases over all tables of the catalog, which are on these servers.
#[expect(
    clippy::too_many_arguments,
    reason = "what is read, what it should be, and how: each stands for itself"
)]
fn prove(
    sites: &mut [Site],
    dataset: &Dataset,
    writers: &[Writer],
    catalog: &Catalog,
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
    limits: Limits,
    want_ledger_keys: bool,
    mut notes: Vec<String>,
) -> Result<Proved, VerifyError> {
    let mut method = choose_method(options, writers, catalog, &mut notes);
    notes.extend(catalog.notes.iter().cloned());
    let (controls, connects) = split(sites);
    let servers = connects.iter().map(|(connect, snapshot)| workers::Site::new(connect, *snapshot)).collect();
    let table = Table::new(dataset.spec.clone());
    let known = LedgerHistory::new(dataset.rows, writers.to_vec());
    let setting = Setting {
        content: Content {
            table: &table,
            route: Route::new(dataset.partitions),
            loaded: dataset.rows,
            history: options.history.unwrap_or(&known),
            names: &catalog.names,
        },
        catalog,
        workers: Workers::new(servers, options.stop),
        jobs: options.jobs.max(1),
        limits,
    };
    let mut coordinator = Coordinator::new(controls, observer);
    let mut summed = None;
    let selections: Vec<Selection> = if method == Method::Deep {
        (0..catalog.leaves.len()).map(|leaf| Selection { leaf, buckets: None }).collect()
    } else {
        let Compared { leaves, expected, found } = sums::compare_leaves(&setting, &mut coordinator)?;
        summed = Some((expected, found));
        if leaves.is_empty() { Vec::new() } else { sums::narrow(&setting, &mut coordinator, &leaves)? }
    };
    if method == Method::Fast && !selections.is_empty() {
        method = Method::FastThenDeep;
    }
    let mut judged = rows::judge(&setting, &mut coordinator, &selections)?;
    names::name(&setting, &mut coordinator, &mut judged)?;
    let chunks = Chunks::of_length(dataset.rows, dataset.chunk_rows);
    let ledger_keys = match want_ledger_keys {
        true => sums::ledger_keys(&setting, &mut coordinator, chunks)?,
        false => LedgerKeys::default(),
    };

    if judged.findings.misplaced_overflow {
        notes.push("so many rows are in wrong partitions that some are also counted as missing".to_owned());
    }
    if let Some(why) = judged.findings.unjudged_why {
        notes.push(format!("{} values cannot be judged: {why}", judged.findings.values_unjudged));
    }
    let (expected, found) = summed.unwrap_or((judged.expected, judged.read));
    let mut findings = judged.findings;
    let differs = std::mem::take(&mut findings.differs);
    let (rows_uncertain, updates_accepted) = (findings.rows_uncertain, findings.updates_accepted);
    let values_unjudged = findings.values_unjudged;
    let (totals, differences) = findings.into_named(&setting.content);
    Ok(Proved {
        method,
        notes,
        expected,
        found,
        rows_uncertain,
        updates_accepted,
        values_unjudged,
        totals,
        differences,
        differs,
        ledger_keys,
    })
}

fn connect_error(error: ConnectError, node: Option<&str>) -> VerifyError {
    let target = node.map_or_else(|| "the target".to_owned(), |node| format!("node {node}"));
    VerifyError::Connect { target, hint: error.hint(), source: Box::new(error) }
}

fn find_dataset(control: &mut Client) -> Result<Dataset, VerifyError> {
    let Some(dataset) = ledger::find_dataset(control, ledger::YCSB)? else {
        return Err(what_else(control, ledger::YCSB));
    };
    if dataset.format != data::FORMAT_VERSION {
        let (found, known) = (dataset.format, data::FORMAT_VERSION);
        return Err(VerifyError::Format { dataset: dataset.name, found, known });
    }
    if !dataset.loaded {
        return Err(VerifyError::Incomplete { dataset: dataset.name });
    }
    ledger::check_in_place(control, &dataset, &crate::plan::table_names(dataset.partitions))?;
    Ok(dataset)
}

/// What to say of a database that lacks the dataset that was named.
pub fn what_else(control: &mut Client, wanted: &'static str) -> VerifyError {
    match ledger::dataset_names(control) {
        Ok(names) => {
            if let Some(found) = names.into_iter().find(|name| name != wanted) {
                return VerifyError::OtherDataset { wanted, found };
            }
        }
        Err(error) => return error.into(),
    }
    let pgbench =
        control.query_one("select exists (select from pg_class where relname = 'pgbench_accounts')", &[]);
    match pgbench {
        Ok(row) if row.get(0) => VerifyError::PgbenchOnly,
        _ => VerifyError::NoDataset,
    }
}

/// Fast as far as sums can prove something, deep otherwise.
fn choose_method(
    options: &VerifyOptions<'_>,
    writers: &[Writer],
    catalog: &Catalog,
    notes: &mut Vec<String>,
) -> Method {
    if options.deep {
        return Method::Deep;
    }
    if !writers.is_empty() {
        let runs =
            if writers.len() == 1 { "1 run has".to_owned() } else { format!("{} runs have", writers.len()) };
        notes.push(format!("{runs} written into the table, so every row was read and checked"));
        return Method::Deep;
    }
    if !catalog.record_hash {
        notes.push(
            "the server cannot hash rows as pgfathom does (hash_record_extended, PostgreSQL 14), so every row was read"
                .to_owned(),
        );
        return Method::Deep;
    }
    Method::Fast
}

#[cfg(test)]
mod tests;
