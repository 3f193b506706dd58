//! A load from beginning to end.
//!
//! One thread of its own (the caller's) prepares, watches and finishes; the streams do the work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use engines::cluster::Cluster;
use postgres::Client;

use crate::chunk_set::ChunkSet;
pub(crate) use crate::coordinate::{Reporter, coordinate, cpu_us};
use crate::copy::{self, Job, Place};
use crate::dataset::{self, Leaves, Target, leaf_names};
use crate::dispatch::{Dispatcher, NodePlan, Owned, united};
use crate::error::LoadError;
use crate::freeze;
use crate::ledger::{self, ChunkTotals, Coverage, Dataset, Layout, qualified};
use crate::options::{Method, Options, Segment, Stop, Via};
use crate::plan::Chunks;
use crate::progress::{Counters, LoadEvent, Meter, NodeCounters, Observer, Phase};
pub use crate::report::{LoadReport, NodeReport, Outcome};
use crate::route;
use crate::schema;
use crate::shape::Shape;
use crate::shard;
use crate::stream::Work;
use crate::team::Team;
pub(crate) use crate::team::wal_position;
use crate::watch::{self, Site, Watch};
use crate::{finish, peers};

/// When the load has to end, and how the user said it.
type Deadline = (Instant, String);

/// Fills a target with a YCSB dataset, or continues where another load ended.
///
/// The call returns when everything is done, when `stop` was noticed, or on the first error that no repetition cures. It may be called
/// again at any time: it does what is missing. `observer` is called from this thread.
///
/// # Errors
/// See [`LoadError`]; each has a hint. The target is exact after every error.
pub fn load_ycsb(
    spec: &ConnSpec,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    load_ycsb_on(&Cluster::single(spec.clone()), options, stop, observer)
}

/// The same on all nodes of a cluster: rows go where their leaf tables are, or everywhere where every node holds all of them.
///
/// # Errors
/// As [`load_ycsb`]; those of one node are [`LoadError::Node`].
pub fn load_ycsb_on(
    cluster: &Cluster,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    load(cluster, &options.ycsb(), options, stop, observer)
}

/// Fills a cluster with a dataset, or continues where another load ended; see [`load_ycsb`].
///
/// # Errors
/// As [`load_ycsb_on`].
pub fn load(
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    options.check(content)?;
    check_cluster(cluster, content, options)?;
    let started = Instant::now();
    let mut team = Team::connect(cluster)?;
    let recorded = if options.restart { None } else { recorded(&mut team, content)? };
    let content = recorded.as_deref().unwrap_or(content);
    let tables = content.tables();
    let mut reporter = Reporter { observer, meter: Meter::new(started, cpu_us()) };
    // Counters without streams serve until the dataset is known.
    reporter.begin(Phase::Schema, &Counters::new(0, 0, content.rows()));
    let deadline = check_stop_rules(&mut team, content.name(), options, started)?;
    let prepared = match schema::prepare(&mut team, cluster, content, options, stop) {
        Ok(prepared) => prepared,
        Err(error) if team.shape == Shape::Repeated => return Err(peers::explain(&mut team, error)),
        Err(error) => return Err(error),
    };
    let mut fill = Fill::new(team, prepared.datasets, prepared.layout, content, options, stop, started)?;
    if fill.datasets.iter().all(|dataset| dataset.loaded) {
        if fill.shape() == Shape::Sharded {
            // Nothing is left to load that would have to wait for a leaf on its way.
            let patience = shard::LOOK.min(options.reconnect_limit);
            shard::settled(&mut fill.team, &fill.datasets, tables, patience, stop)?;
        }
        let counters = fill.counters(&fill.plan_nothing());
        return fill.report(Outcome::AlreadyComplete, &counters);
    }
    let plans = fill.plan(options.segment)?;
    let counters = fill.counters(&plans);
    if fill.shape() == Shape::Repeated && plans.iter().any(|plan| plan.parts() > 0) {
        peers::refuse_published(&mut fill.team, &fill.datasets, tables)?;
    }
    let note = |reporter: &mut Reporter<'_>, message: String| {
        reporter.observer.event(&LoadEvent { kind: record::event::NOTE, message, duration: None });
    };
    prepared.notes.into_iter().for_each(|message| note(&mut reporter, message));
    if !prepared.created {
        let message = format!(
            "continuing: {} of {} chunks are in the ledger, {} rows",
            fill.earlier.chunks,
            counters.chunks_total.load(Ordering::Relaxed),
            fill.earlier.rows
        );
        note(&mut reporter, message);
    }
    let sites = fill.watched()?;
    let dispatcher = Dispatcher::new(fill.shape() == Shape::Sharded, plans);
    let dispatcher = dispatcher.with_whole(fill.leaves().whole_from());
    let mut watch = Watch::new(&sites, tables, &counters, &dispatcher, stop);
    watch.follow = fill.shape() == Shape::Sharded && !fill.by_entry();
    watch.subscribed = fill.shape() == Shape::Repeated;
    watch.keep_free_bytes = options.keep_free_bytes;
    watch.deadline = deadline;
    let outcome = watch.during(|| {
        let outcome = fill.fill(&dispatcher, &counters, &mut reporter, || {
            watch.copying.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        let done = counters.chunks_done.load(Ordering::Relaxed);
        outcome.map_err(|error| error.or_disk_full(done, counters.chunks_total.load(Ordering::Relaxed)))
    })?;
    fill.report(outcome, &counters)
}

/// Refuses a cluster that a dataset cannot be loaded into, touching no server.
///
/// # Errors
/// [`LoadError`] with a hint.
pub fn check_cluster(
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
) -> Result<(), LoadError> {
    let target = match Shape::of(cluster)? {
        Shape::Single => Target::Alone,
        Shape::Sharded => Target::Spread(cluster.data_nodes().count()),
        Shape::Repeated => Target::Copies(cluster.engine.name()),
    };
    if options.unlogged && options.partitions.unwrap_or(0) > 1 && !content.foreign_keys().is_empty() {
        return Err(LoadError::Option {
            flag: "--unlogged",
            problem: "PostgreSQL has no foreign keys from partitioned tables to unlogged ones".to_owned(),
            hint: "omit --foreign-keys, --partitions or --unlogged".to_owned(),
        });
    }
    content.check(target, options.partitions)
}

/// The dataset with what nobody has asked for as the first node that knows of it has recorded it.
fn recorded(
    team: &mut Team,
    content: &dyn dataset::Dataset,
) -> Result<Option<Box<dyn dataset::Dataset>>, LoadError> {
    for member in &mut team.members {
        let read = ledger::find_dataset(&mut *member.control, content.name()).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            ledger::parameters(&mut *member.control, found.id).map(Some)
        });
        if let Some(recorded) = read.map_err(|error| error.at(&member.name))? {
            return Ok(content.as_recorded(&recorded));
        }
    }
    Ok(None)
}

/// Refuses rules for the end that cannot be kept, before anything is made; when the load has to end.
fn check_stop_rules(
    team: &mut Team,
    name: &str,
    options: &Options,
    started: Instant,
) -> Result<Option<Deadline>, LoadError> {
    if let Some(keep_free_bytes) = options.keep_free_bytes {
        for member in &mut team.members {
            watch::check_disks(member, name, &options.tablespaces, keep_free_bytes)?;
        }
    }
    match (&options.deadline, team.members.first_mut()) {
        (Some(deadline), Some(member)) => watch::deadline(&mut member.control, deadline, started).map(Some),
        _ => Ok(None),
    }
}

/// Where the time went.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) copy: Duration,
    pub(crate) index: Duration,
    pub(crate) analyze: Duration,
    cpu_us: u64,
}

/// A load under way.
pub(crate) struct Fill<'a> {
    pub(crate) team: Team,
    /// The dataset as each node has it.
    pub(crate) datasets: Vec<Dataset>,
    pub(crate) layout: Layout,
    pub(crate) content: &'a dyn dataset::Dataset,
    pub(crate) options: &'a Options,
    pub(crate) stop: &'a Stop,
    started: Instant,
    earlier: ChunkTotals,
    pub(crate) spent: Spent,
}

impl<'a> Fill<'a> {
    fn new(
        mut team: Team,
        datasets: Vec<Dataset>,
        layout: Layout,
        content: &'a dyn dataset::Dataset,
        options: &'a Options,
        stop: &'a Stop,
        started: Instant,
    ) -> Result<Fill<'a>, LoadError> {
        let model = datasets.first().ok_or(LoadError::Restarted)?.clone();
        let tables = content.tables();
        if let Some(member) = team.members.first_mut() {
            for (number, table) in tables.iter().enumerate() {
                let parent = qualified(&model.schema_name, table.name);
                route::self_test(&mut *member.control, &parent, content, number, model.partitions)
                    .map_err(|error| error.at(&member.name))?;
            }
        }
        let wanted = options.segment.chunks(schema::chunk_count(&model, content));
        let mut earlier = ChunkTotals::default();
        for (member, dataset) in std::iter::zip(&mut team.members, &datasets) {
            let totals = ledger::chunk_totals_in(&mut *member.control, dataset.id, wanted.clone());
            earlier = earlier.plus(totals.map_err(|error| error.at(&member.name))?);
        }
        let spent = Spent::default();
        Ok(Fill { team, datasets, layout, content, options, stop, started, earlier, spent })
    }

    /// The dataset, but for what differs from node to node.
    pub(crate) fn model(&self) -> &Dataset {
        &self.datasets[0]
    }

    pub(crate) fn shape(&self) -> Shape {
        self.team.shape
    }

    /// Rows are sent to the entry node only, which sends them on.
    fn by_entry(&self) -> bool {
        self.shape() == Shape::Sharded && self.layout.via == Via::Connect
    }

    /// The leaf tables.
    fn leaves(&self) -> Leaves {
        Leaves::of_tables(self.content.tables(), self.model().partitions)
    }

    fn chunks(&self) -> Chunks {
        schema::chunks_of(self.model(), self.content)
    }

    /// How many nodes streams load into.
    fn places(&self) -> usize {
        // What every node has whole, no entry node sends on.
        if self.by_entry() && self.content.whole_rows() == 0 { 1 } else { self.team.members.len() }
    }

    fn plan_nothing(&self) -> Vec<NodePlan> {
        Vec::new()
    }

    /// What each node has to do of a segment.
    fn plan(&mut self, segment: Segment) -> Result<Vec<NodePlan>, LoadError> {
        plan(
            &mut self.team,
            &self.datasets,
            self.content,
            &self.layout,
            segment,
            self.options.reconnect_limit,
            self.stop,
        )
    }

    /// Parts of a segment that no ledger has.
    fn missing(&mut self, segment: Segment) -> Result<u64, LoadError> {
        Ok(self.plan(segment)?.iter().map(NodePlan::parts).sum())
    }

    /// Counters for streams that do these plans.
    fn counters(&self, plans: &[NodePlan]) -> Counters {
        let nodes = self.places();
        let leaves = self.leaves().count();
        let streams = match (self.model().method, self.shape()) {
            (Method::Copy, _) => self.options.streams.max(nodes),
            (Method::Freeze, Shape::Repeated) => self.options.streams.clamp(nodes, leaves * nodes),
            (Method::Freeze, _) => self.options.streams.max(nodes).min(leaves),
        };
        let todo: u64 = plans.iter().map(NodePlan::parts).sum();
        let copies = if self.shape() == Shape::Repeated { nodes as u64 } else { 1 };
        let units = schema::chunk_count(self.model(), self.content);
        let wanted = self.options.segment.chunks(units);
        let rows = self.model().rows;
        let of_segment = |part: u64, of: u64| (u128::from(rows) * u128::from(part) / u128::from(of)) as u64;
        let rows = match self.model().method {
            _ if wanted.is_empty() => 0,
            Method::Copy => {
                let chunks = self.chunks();
                let numbers = chunks.range(wanted.end - 1).end - chunks.range(wanted.start).start;
                of_segment(numbers, chunks.rows())
            }
            // Leaves are of about the same size.
            Method::Freeze => of_segment(wanted.end - wanted.start, units),
        };
        let again = match self.shape() {
            Shape::Sharded if self.options.segment.is_all() => {
                self.content.whole_rows() * (self.team.members.len() as u64 - 1)
            }
            _ => 0,
        };
        let mut counters = Counters::new(streams, self.earlier.chunks + todo, rows * copies + again);
        counters.rows_earlier = self.earlier.rows;
        counters.row_bytes = self.content.row_bytes();
        *counters.chunks_done.get_mut() = self.earlier.chunks;
        if self.shape() != Shape::Single {
            let node = |name: &str| NodeCounters { name: name.to_owned(), idle: AtomicBool::new(false) };
            counters.nodes = self.team.members.iter().take(nodes).map(|member| node(&member.name)).collect();
        }
        counters
    }

    /// Rows, then keys and statistics; `copied` is called in between.
    fn fill(
        &mut self,
        dispatcher: &Dispatcher,
        counters: &Counters,
        reporter: &mut Reporter<'_>,
        copied: impl FnOnce(),
    ) -> Result<Outcome, LoadError> {
        self.copy(dispatcher, counters, reporter)?;
        copied();
        // Servers may have been restarted under the control connections, which were idle.
        self.team.reconnect(self.options.reconnect_limit, Some(self.stop))?;
        let stopped =
            |stop: &Stop| if stop.reason().is_some() { Outcome::Stopped } else { Outcome::Interrupted };
        if self.missing(Segment::ALL)? > 0 {
            let done = self.missing(self.options.segment)? == 0;
            return Ok(if done { Outcome::SegmentComplete } else { stopped(self.stop) });
        }
        let complete = finish::run(self, reporter, counters)?;
        Ok(if complete { Outcome::Complete } else { stopped(self.stop) })
    }

    /// What watchers need to know.
    fn watched(&mut self) -> Result<Vec<Site>, LoadError> {
        let mut sites = Vec::new();
        for (member, dataset) in std::iter::zip(&mut self.team.members, &self.datasets) {
            let keep = self.options.keep_free_bytes;
            let tables = self.content.tables();
            let disks =
                keep.map(|keep| watch::disks(member, dataset, tables, keep, self.stop)).transpose()?;
            let (name, spec, dataset) = (member.name.clone(), member.spec.clone(), dataset.clone());
            sites.push(Site { name, spec, dataset, disks });
        }
        Ok(sites)
    }

    /// Runs the streams.
    fn copy(
        &mut self,
        dispatcher: &Dispatcher,
        counters: &Counters,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), LoadError> {
        reporter.begin(Phase::Copy, counters);
        let (copy_start, cpu_start) = (Instant::now(), cpu_us());
        let (messages, inbox) = channel();
        let (shape, chunks, leaves) = (self.shape(), self.chunks(), self.leaves());
        let places = self.places();
        let Fill { team, datasets, layout, content, options, stop, .. } = self;
        let model = datasets[0].clone();
        let nodes: Vec<Place> = std::iter::zip(&team.members, &*datasets)
            .map(|(member, dataset)| Place {
                name: member.name.clone(),
                spec: member.spec.clone(),
                dataset: dataset.id,
            })
            .collect();
        let places = &nodes[..places];
        let work = Work {
            dataset: &model,
            content: *content,
            leaves,
            counters,
            stop,
            reconnect_limit: options.reconnect_limit,
            failed: AtomicBool::new(false),
            messages,
            cancels: counters.streams.iter().map(|_| Mutex::new(None)).collect(),
        };
        let job = Job { work: &work, places, nodes: &nodes, layout, shape, dispatcher, chunks };
        let result = coordinate(&work, &inbox, reporter, || {
            let limit = options.reconnect_limit;
            let mut replan = || plan(team, datasets, *content, layout, options.segment, limit, stop);
            match model.method {
                Method::Copy => copy::run(&job, &mut replan),
                Method::Freeze => freeze::run(&job, &mut replan),
            }
        });
        drop(work);
        self.spent.copy = copy_start.elapsed();
        self.spent.cpu_us = cpu_us().saturating_sub(cpu_start);
        reporter.tick(counters);
        result
    }

    /// What each node's ledger sums up to.
    fn totals(&mut self) -> Result<Vec<ChunkTotals>, LoadError> {
        std::iter::zip(&mut self.team.members, &self.datasets)
            .map(|(member, dataset)| {
                ledger::chunk_totals(&mut *member.control, dataset.id).map_err(|error| error.at(&member.name))
            })
            .collect()
    }

    fn report(mut self, outcome: Outcome, counters: &Counters) -> Result<LoadReport, LoadError> {
        let each = self.totals()?;
        let totals = each.iter().copied().fold(ChunkTotals::default(), ChunkTotals::plus);
        let (mut table_bytes_on_disk, mut index_bytes_on_disk) = (0, 0);
        let mut wal_bytes = Some(0);
        for (member, dataset) in std::iter::zip(&mut self.team.members, &self.datasets) {
            let (table, index) = sizes(&mut member.control, dataset, self.content.tables())
                .map_err(|error| error.at(&member.name))?;
            table_bytes_on_disk += table;
            index_bytes_on_disk += index;
            let wal_after = wal_position(&mut member.control);
            let wal = wal_after.zip(member.wal_before).map(|(after, before)| after.saturating_sub(before));
            wal_bytes = wal_bytes.zip(wal).map(|(sum, wal)| sum + wal);
        }
        let rows = counters.committed_rows();
        let seconds = self.spent.copy.as_secs_f64();
        let per_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let alone = self.shape() == Shape::Single;
        let node = |(node, totals): (usize, &ChunkTotals)| NodeReport {
            name: self.team.members[node].name.clone(),
            rows: if node < counters.nodes.len() { counters.committed_on(node) } else { 0 },
            totals: *totals,
        };
        let chunks_done = counters.chunks_done.load(Ordering::Relaxed);
        let mut dataset = self.datasets[0].clone();
        dataset.loaded = self.datasets.iter().all(|dataset| dataset.loaded);
        Ok(LoadReport {
            outcome,
            totals,
            chunks_total: counters.chunks_total.load(Ordering::Relaxed),
            rows,
            bytes: rows * counters.row_bytes,
            chunks: chunks_done - self.earlier.chunks,
            seconds,
            rows_per_s: per_second(rows),
            bytes_per_s: per_second(rows * counters.row_bytes),
            client_cpu_us: self.spent.cpu_us,
            retries: counters.retries.load(Ordering::Relaxed),
            index_seconds: self.spent.index.as_secs_f64(),
            analyze_seconds: self.spent.analyze.as_secs_f64(),
            total_seconds: self.started.elapsed().as_secs_f64(),
            wal_bytes,
            table_bytes_on_disk,
            index_bytes_on_disk,
            nodes: if alone { Vec::new() } else { each.iter().enumerate().map(node).collect() },
            reason: self.stop.reason().map(str::to_owned),
            dataset,
        })
    }
}

/// What each node has to do of a segment: catalogs first, then ledgers, see [`crate::shard`].
fn plan(
    team: &mut Team,
    datasets: &[Dataset],
    content: &dyn dataset::Dataset,
    layout: &Layout,
    segment: Segment,
    reconnect_limit: Duration,
    stop: &Stop,
) -> Result<Vec<NodePlan>, LoadError> {
    let Some(model) = datasets.first() else { return Ok(Vec::new()) };
    let tables = content.tables();
    let leaves = Leaves::of_tables(tables, model.partitions);
    let everything: Owned = (0..leaves.count()).map(|leaf| (leaf as u16, None)).collect();
    let in_parts = team.shape == Shape::Sharded && layout.via == Via::Owner;
    let owned = match (team.shape, layout.via) {
        (Shape::Sharded, Via::Owner) => shard::settled(team, datasets, tables, reconnect_limit, stop)?,
        (Shape::Sharded, Via::Connect) if content.whole_rows() == 0 => vec![everything],
        (Shape::Sharded, Via::Connect) => {
            let mut owned = vec![shard::whole(model, tables); datasets.len()];
            owned[0] = everything;
            owned
        }
        (Shape::Single | Shape::Repeated, _) => vec![everything; datasets.len()],
    };
    team.reconnect(reconnect_limit, Some(stop))?;
    let units = schema::chunk_count(model, content);
    let mut ledgers = Vec::with_capacity(datasets.len());
    for (member, dataset) in std::iter::zip(&mut team.members, datasets) {
        let read = ledger::coverage(&mut member.control, dataset.id, units);
        ledgers.push(read.map_err(|error| error.at(&member.name))?);
    }
    let wanted = segment.chunks(units);
    let chunks = schema::chunks_of(model, content);
    let is_spread = team.shape == Shape::Sharded;
    let plans = owned.into_iter().enumerate().map(|(node, owned)| {
        if model.method == Method::Freeze {
            let speaks =
                |owner: usize, leaf: u64| owner == node || is_spread && leaf < leaves.whole_from() as u64;
            return freeze_plan(owned, units, &wanted, &ledgers, &speaks);
        }
        let coverage = match is_spread {
            true => united(&ledgers, node, leaves.whole_from(), leaves.count()),
            false => ledgers[node].clone(),
        };
        let leaves_of = |chunk: u64| match in_parts || (is_spread && node > 0) {
            true => content.leaves_of(chunks.range(chunk), leaves),
            false => None,
        };
        NodePlan::new(owned, &ChunkSet::of_range(units, wanted.clone()), &coverage, &leaves_of)
    });
    Ok(plans.collect())
}

/// For the method freeze a chunk is a leaf, with all its rows: each is missing where it is owned. `speaks`: the ledger of this node is asked about
/// a leaf.
fn freeze_plan(
    owned: Owned,
    leaves: u64,
    wanted: &std::ops::Range<u64>,
    ledgers: &[Coverage],
    speaks: &dyn Fn(usize, u64) -> bool,
) -> NodePlan {
    let mut missing = ChunkSet::new(leaves);
    for leaf in owned.keys().map(|leaf| u64::from(*leaf)).filter(|leaf| wanted.contains(leaf)) {
        let has = |(owner, ledger): (usize, &Coverage)| {
            speaks(owner, leaf) && ledger.iter().any(|(_, done)| done.contains(leaf))
        };
        if !ledgers.iter().enumerate().any(has) {
            missing.insert(leaf);
        }
    }
    NodePlan::of_leaves(Arc::new(owned), missing)
}

/// Bytes of the leaf tables and of their indexes.
fn sizes(client: &mut Client, dataset: &Dataset, tables: &[dataset::Table]) -> Result<(u64, u64), LoadError> {
    let row = client.query_one(
        "select coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $1 and c.relname = any($2) and c.relkind = 'r'",
        &[&dataset.schema_name, &leaf_names(tables, dataset.partitions)],
    );
    let row = row.map_err(|source| LoadError::sql("reading the tables' sizes", source))?;
    Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
}
