//! `plan`: what a load needs before it starts. It reads the dataset's own rows, a run directory or a live target; it changes nothing, except with
//! permission to calibrate.

mod calibrate;
mod checked;
mod live;
mod measured;
mod sample;
pub mod words;

use crate::connection::Address;
use crate::context::{Context, Format, cpus};
use crate::failure::{Failure, unloadable};
use crate::recording;
use engines::Engine;
use load::Dataset;
use load::plan::Chunks;
use measured::Measured;
use record::Exit;
use record::plan::Input;
use record::plan::input::{Hardware, Loading, Ping, Prices, Rate, Server, TableSize, WhatIf, Workload};
use std::collections::BTreeMap;
use std::path::PathBuf;
use workloads::dataset::{Registration, Request};

/// The share of a disk that files can use where nothing else is known: ext4's inode tables (1.6 %) and its reserve for root (5 %) are taken off.
const USABLE_SHARE: f64 = 0.935;
/// What stays free on a volume: half a terabyte, or a tenth of a smaller one.
const KEEP_FREE_BYTES: u64 = 500_000_000_000;
const KEEP_FREE_PART: u64 = 10;
/// Cores and network of a client host where nothing else is known.
const CLIENT_CORES: u64 = 16;
const CLIENT_NETWORK_BYTES_PER_S: f64 = 1.25e9;
/// Measured on one host (docs/benchmarks.md): client CPU of a loaded row and of a transaction.
const CLIENT_US_PER_ROW: f64 = 0.9;
const CLIENT_US_PER_TRANSACTION: f64 = 6.0;
/// Assumed, not measured: index entries of one build.
const INDEX_ROWS_PER_S: f64 = 1e6;
/// The range of a rate that was given as one number: this share below and above.
const RATE_SPREAD: f64 = 0.15;

/// The hint for a file that cannot be written.
const WRITABLE: &str = "name a file in a folder that exists and is yours";

/// What is planned.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The dataset.
    pub dataset: &'static Registration,
    /// Its size and content.
    pub request: Request,
    /// What is known of hosts, servers and the load.
    pub given: Given,
    /// A live target to read.
    pub address: Option<Address>,
    /// A small load that measures the rows.
    pub calibrate: Option<Calibrate>,
    /// A run directory of a load to take rates and sizes from.
    pub from: Option<PathBuf>,
    /// A run directory of a check to take rates of disks and round trips from.
    pub check: Option<PathBuf>,
    /// Print every formula.
    pub explain: bool,
    /// The file for the plan.
    pub output: Option<PathBuf>,
    /// The file for its page.
    pub page: Option<PathBuf>,
}

/// Where a calibration loads its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calibrate {
    /// Into a throwaway server on this host.
    Throwaway,
    /// Into a database of its own on the target, which is dropped afterwards.
    Target,
}

/// What the user knows. What is absent is read from the target, or has a default.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Given {
    /// Nodes.
    pub nodes: Option<u64>,
    /// Standbys of each.
    pub standbys: Option<u64>,
    /// Disks of each.
    pub disks: Option<u64>,
    /// Capacity of a disk.
    pub disk_bytes: Option<u64>,
    /// The share of it that files can use.
    pub usable_share: Option<f64>,
    /// The disks of a node are one volume.
    pub is_one_volume: bool,
    /// What stays free on a volume.
    pub keep_free_bytes: Option<u64>,
    /// Read rate of a disk.
    pub disk_read_bytes_per_s: Option<f64>,
    /// WAL rate of a node.
    pub wal_bytes_per_s: Option<f64>,
    /// Cores of a client host.
    pub client_cores: Option<u64>,
    /// Partitions of each table.
    pub partitions: Option<u64>,
    /// Tablespaces, in the order of the disks.
    pub tablespaces: Vec<String>,
    /// COPY streams.
    pub streams: Option<u64>,
    /// Client hosts.
    pub agents: Option<u64>,
    /// Rows are frozen when they are loaded.
    pub is_frozen: bool,
    /// Rows of a transaction of another loader.
    pub rows_per_transaction: Option<u64>,
    /// Seconds until the load must be complete.
    pub deadline_s: Option<f64>,
    /// Measured rate of the whole load in bytes of values.
    pub bytes_per_s: Option<f64>,
    /// Writing transactions per second of the workload.
    pub tps: Option<f64>,
    /// Its sessions.
    pub sessions: u64,
    /// Round trips between nodes.
    pub pings: Vec<Ping>,
    /// Prices.
    pub prices: Option<Prices>,
    /// `block_size`.
    pub block_bytes: Option<u64>,
    /// `max_wal_size`.
    pub max_wal_bytes: Option<u64>,
    /// `autovacuum_max_workers`.
    pub vacuum_workers: Option<u64>,
    /// `autovacuum_vacuum_cost_limit`.
    pub vacuum_cost_limit: Option<u64>,
    /// `autovacuum_vacuum_cost_delay`.
    pub vacuum_cost_delay_ms: Option<f64>,
    /// What goes wrong in the simulation.
    pub what_if: Vec<WhatIf>,
    /// Seed of the simulation.
    pub seed: u64,
}

impl Plan {
    /// Computes the plan, prints it, and writes its file.
    ///
    /// # Errors
    /// When the input is impossible, the target or the run directory cannot be read, or the file cannot be written.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        // A calibration takes a while: a folder that is not there is reported before it.
        for path in [&self.page, &self.output].into_iter().flatten() {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(Failure::usage(format!(
                    "cannot write {}: {} is not a folder",
                    path.display(),
                    folder.display()
                ))
                .hint(WRITABLE));
            }
        }
        let check = self.check.take();
        let checked = check.map(|run| checked::settle(&mut self.given, &run)).transpose()?;
        let (mut plan, engine) = self.computed(context)?;
        plan.notes.extend(checked);
        let unloadable = engine.and_then(unloadable);
        plan.notes.extend(unloadable.clone());
        match context.format {
            Format::Json => context.terminal.data(&plan.to_json()?),
            Format::Text => {
                context.terminal.data(&::plan::text::report(&plan));
                if self.explain {
                    context.terminal.data(&format!("\n{}", ::plan::text::explain(&plan)));
                }
            }
        }
        let write = |path: &std::path::Path, content: &str| {
            recording::write_named(path, content).map_err(|error| {
                Failure::caused(format!("cannot write {}", path.display()), error).hint(WRITABLE)
            })
        };
        if let Some(path) = &self.page {
            write(path, &::report::plan_page(&plan, &::plan::text::report(&plan)))?;
            context.terminal.say(&format!("page: {}", path.display()));
        }
        if let Some(path) = &self.output {
            write(path, &plan.to_json()?)?;
            context.terminal.say(&format!("plan: {}", path.display()));
            if unloadable.is_none() {
                context.terminal.say(&format!(
                    "next: pgfathom load {} --plan {} DBNAME",
                    plan.input.dataset,
                    path.display()
                ));
            }
        }
        Ok(if plan.fits { Exit::Ok } else { Exit::Preflight })
    }

    /// The plan, and the engine of the target if there is one.
    fn computed(&self, context: &Context) -> Result<(::plan::Plan, Option<Engine>), Failure> {
        let content = (self.dataset.build)(&self.request)?;
        let live = self.address.as_ref().map(|address| live::read(address, context)).transpose()?;
        let mut server = live.as_ref().map(|live| live.server.clone()).unwrap_or_default();
        self.given.settle(&mut server);
        let mut tables = sample::tables(&*content, server.block_bytes)?;
        let mut sizes_from = format!(
            "computed from sampled rows and PostgreSQL's page layout; WAL from the layout of its records, block size {}",
            server.block_bytes
        );
        let measured = self.measured(context)?;
        let other_storage = live.as_ref().and_then(|live| live.other_storage.clone());
        match &measured {
            _ if other_storage.is_some() => {
                sizes_from = "values of sampled rows".into();
                tables = tables.into_iter().map(values_of).collect();
            }
            Some(measured) => sizes_from = measured.correct(&mut tables),
            None => {}
        }
        let hardware = self.given.hardware(live.as_ref());
        let mut loading = self.given.loading(&*content, &hardware, measured.as_ref());
        // A table has no more partitions than, for example, warehouses.
        let volumes = if hardware.is_one_volume { 1 } else { hardware.disks };
        let most = u64::from(content.partitions_max());
        if other_storage.is_some() {
            loading.partitions = None;
        } else if loading.partitions.is_none() && hardware.nodes * volumes > most {
            loading.partitions = Some(most);
        }
        let engine = live.as_ref().map(|live| live.engine);
        let mut topologies = ::plan::costs::topologies();
        topologies.extend(live.as_ref().and_then(|live| live.topology.clone()));
        let pings = match live {
            Some(live) if self.given.pings.is_empty() => live.pings,
            _ => self.given.pings.clone(),
        };
        let plan = ::plan::compute(Input {
            dataset: content.name().into(),
            flags: flags_of(&*content),
            tables,
            sizes_from,
            hardware,
            server,
            loading,
            workload: Workload {
                tps: self.given.tps,
                sessions: self.given.sessions,
                client_us_per_transaction: CLIENT_US_PER_TRANSACTION,
            },
            other_storage,
            pings,
            topologies,
            prices: self.given.prices.clone(),
            what_if: self.given.what_if.clone(),
            seed: self.given.seed,
        })?;
        Ok((plan, engine))
    }

    /// What was measured, by a calibration or by an earlier load.
    fn measured(&self, context: &Context) -> Result<Option<Measured>, Failure> {
        if let Some(run) = &self.from {
            return measured::of_run(run, self.dataset, &self.request).map(Some);
        }
        let Some(calibrate) = self.calibrate else { return Ok(None) };
        calibrate::load(context, calibrate, self.address.as_ref(), self.dataset, &self.request).map(Some)
    }
}

impl Given {
    /// Settings that were given replace those of the server.
    fn settle(&self, server: &mut Server) {
        let set = |to: &mut u64, given: Option<u64>| *to = given.unwrap_or(*to);
        set(&mut server.block_bytes, self.block_bytes);
        set(&mut server.max_wal_bytes, self.max_wal_bytes);
        set(&mut server.vacuum_workers, self.vacuum_workers);
        server.vacuum_cost_limit =
            self.vacuum_cost_limit.map_or(server.vacuum_cost_limit, |limit| limit as f64);
        server.vacuum_cost_delay_ms = self.vacuum_cost_delay_ms.unwrap_or(server.vacuum_cost_delay_ms);
    }

    fn hardware(&self, live: Option<&live::Live>) -> Hardware {
        let found = live.map(|live| &live.hardware);
        let disk_bytes = self.disk_bytes.or(found.map(|found| found.disk_bytes)).unwrap_or(0);
        let disks = self.disks.or(found.map(|found| found.disks)).unwrap_or(1);
        // What a live server has free is usable as it is.
        let is_measured = self.disk_bytes.is_none() && found.is_some_and(|found| found.disk_bytes > 0);
        let usable = if is_measured { 1.0 } else { USABLE_SHARE };
        let volume = disk_bytes.saturating_mul(if self.is_one_volume { disks } else { 1 });
        Hardware {
            nodes: self.nodes.or(found.map(|found| found.nodes)).unwrap_or(1),
            standbys: self.standbys.or(found.map(|found| found.standbys)).unwrap_or(0),
            disks,
            disk_bytes,
            usable_share: self.usable_share.unwrap_or(usable),
            is_one_volume: self.is_one_volume,
            keep_free_bytes: self.keep_free_bytes.unwrap_or(KEEP_FREE_BYTES.min(volume / KEEP_FREE_PART)),
            disk_read_bytes_per_s: self.disk_read_bytes_per_s,
            wal_bytes_per_s: self.wal_bytes_per_s,
            client_cores: self.client_cores.unwrap_or(CLIENT_CORES),
            client_network_bytes_per_s: CLIENT_NETWORK_BYTES_PER_S,
        }
    }

    fn loading(&self, content: &dyn Dataset, hardware: &Hardware, measured: Option<&Measured>) -> Loading {
        let streams = self.streams.unwrap_or_else(|| (hardware.nodes * hardware.disks).max(cpus() as u64));
        let transactions = match self.rows_per_transaction {
            Some(rows) => content.rows().div_ceil(rows.max(1)) / hardware.nodes.max(1),
            None => transactions_of(content, streams, hardware.nodes),
        };
        let given = self.bytes_per_s.map(|bytes_per_s| Rate {
            bytes_per_s,
            low_bytes_per_s: bytes_per_s * (1.0 - RATE_SPREAD),
            high_bytes_per_s: bytes_per_s * (1.0 + RATE_SPREAD),
            source: format!("given; range assumed to be {} either way", record::number::percent(RATE_SPREAD)),
        });
        Loading {
            streams,
            agents: self.agents.unwrap_or(1),
            partitions: self.partitions,
            tablespaces: self.tablespaces.clone(),
            transactions_per_node: transactions,
            is_frozen: self.is_frozen,
            deadline_s: self.deadline_s,
            rate: given.or_else(|| measured.and_then(|measured| measured.rate.clone())),
            client_us_per_row: measured
                .and_then(|measured| measured.client_us_per_row)
                .unwrap_or(CLIENT_US_PER_ROW),
            index_rows_per_s: measured
                .and_then(|measured| measured.index_rows_per_s)
                .unwrap_or(INDEX_ROWS_PER_S),
        }
    }
}

/// A table of which only the rows and their values are known.
fn values_of(table: TableSize) -> TableSize {
    let TableSize { name, rows, is_whole, value_bytes_per_row, .. } = table;
    TableSize { name, rows, is_whole, value_bytes_per_row, ..TableSize::default() }
}

/// Transactions of `load` on each node: one for each chunk, which has rows for all nodes.
fn transactions_of(content: &dyn Dataset, streams: u64, nodes: u64) -> u64 {
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let chunks = content.chunks();
    let cut = || {
        Chunks::for_nodes(
            content.numbers().min(load::plan::ROWS_MAX),
            content.row_bytes(),
            whole(streams),
            whole(nodes),
        )
    };
    chunks.unwrap_or_else(cut).count()
}

/// What the dataset is made of, by the names that the ledger has for it.
fn flags_of(content: &dyn Dataset) -> BTreeMap<String, String> {
    let spec = content.spec();
    let common = [
        ("seed", spec.seed.to_string()),
        ("key order", spec.key_order.to_string()),
        ("compressibility", spec.compressible.to_string()),
    ];
    let mut flags: BTreeMap<String, String> =
        common.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    flags.extend(
        content.parameters().into_iter().map(|parameter| (parameter.what.to_string(), parameter.value)),
    );
    flags.entry("rows".to_string()).or_insert_with(|| content.rows().to_string());
    flags
}

/// The nodes of a target that share its rows, as a plan counts them.
pub(crate) fn nodes_with_rows(survey: &engines::Survey) -> u64 {
    live::shape(&survey.cluster).0
}

/// A plan that the user named.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn open(path: &std::path::Path) -> Result<record::plan::Plan, Failure> {
    let opened = record::plan::Plan::open(path).map_err(Failure::from);
    opened.map_err(|failure| failure.hint("pgfathom plan load ... -o plan.json writes a plan"))
}

/// Sets the options of a load as planned, except those that its own flags set.
pub fn apply(plan: &record::plan::Plan, options: &mut load::Options, has_streams: bool) {
    // An engine that stores rows otherwise also divides tables itself.
    if plan.input.other_storage.is_none() {
        let partitions = u32::try_from(plan.layout.partitions).unwrap_or(load::plan::PARTITIONS_MAX);
        options.partitions.get_or_insert(if partitions > 1 { partitions } else { 0 });
    }
    if !has_streams {
        options.streams = usize::try_from(plan.input.loading.streams).unwrap_or(load::plan::STREAMS_MAX);
    }
    if options.tablespaces.is_empty() {
        options.tablespaces.clone_from(&plan.input.loading.tablespaces);
    }
    if plan.space.is_known && options.keep_free_bytes.is_none() {
        options.keep_free_bytes = Some(plan.space.keep_free_while_copying_bytes);
    }
    if plan.input.loading.is_frozen {
        options.method.get_or_insert(load::Method::Freeze);
    }
}

/// The dataset of a plan. Where fewer rows fit, and the dataset can have fewer, it has those.
///
/// # Errors
/// When the plan is damaged, or its dataset is not known.
pub fn dataset_of(plan: &record::plan::Plan) -> Result<Box<dyn Dataset>, Failure> {
    let damaged = |what: &str| {
        Failure::usage(format!("the plan has no valid {what}")).hint("make it again: pgfathom plan")
    };
    let registration = workloads::dataset::named(&plan.input.dataset).ok_or_else(|| damaged("dataset"))?;
    let mut flags = plan.input.flags.clone();
    if registration.size == workloads::dataset::Size::Rows && !plan.fits && plan.space.is_known {
        flags.insert("rows".into(), plan.time.rows.to_string());
    }
    let text = |name: &str| flags.get(name).ok_or_else(|| damaged(name));
    let spec = data::Spec {
        seed: text("seed")?.parse().map_err(|_| damaged("seed"))?,
        key_order: text("key order")?.parse().map_err(|_| damaged("key order"))?,
        compressible: text("compressibility")?.parse().map_err(|_| damaged("compressibility"))?,
    };
    (registration.recorded)(&spec, &flags).ok_or_else(|| damaged("dataset"))
}
