//! The work of a load.
//!
//! One thread of its own (the caller's) prepares, watches and finishes; the streams do the work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use engines::profile::Sizes;
use postgres::Client;

use crate::absent;
use crate::chunk_set::ChunkSet;
pub(crate) use crate::coordinate::{Reporter, coordinate, cpu_us};
use crate::copy;
use crate::dataset::{self, Leaves, leaf_names};
use crate::dispatch::{Dispatcher, NodePlan, Owned, united};
use crate::error::LoadError;
use crate::freeze;
use crate::job::Job;
use crate::ledger::{self, ChunkTotals, Coverage, Dataset, Layout, qualified};
use crate::node_sessions::{self, NodeSessions};
use crate::options::{Method, Options, Segment, Stop, Via};
use crate::place::Place;
use crate::plan::Chunks;
use crate::progress::{Counters, LoadEvent, NodeCounters, Observer, Phase};
use crate::report::{LoadReport, NodeReport, Outcome};
use crate::route;
use crate::schema;
use crate::shape::Shape;
use crate::shard;
use crate::stream::Work;
use crate::wal::{self, NodeWal};
use crate::watch::{self, Site};

/// How long a table that was made on one node may take to be on the others.
const VISIBLE_LIMIT: Duration = Duration::from_secs(30);
/// The pause between two looks for it.
const VISIBLE_PAUSE: Duration = Duration::from_millis(20);

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
    pub(crate) sessions: NodeSessions,
    /// The dataset as each node has it.
    pub(crate) datasets: Vec<Dataset>,
    pub(crate) layout: Layout,
    pub(crate) content: &'a dyn dataset::Dataset,
    pub(crate) options: &'a Options,
    pub(crate) stop: &'a Stop,
    started: Instant,
    pub(crate) earlier: ChunkTotals,
    pub(crate) spent: Spent,
}

impl<'a> Fill<'a> {
    pub(crate) fn new(
        mut sessions: NodeSessions,
        datasets: Vec<Dataset>,
        layout: Layout,
        content: &'a dyn dataset::Dataset,
        options: &'a Options,
        stop: &'a Stop,
        started: Instant,
    ) -> Result<Fill<'a>, LoadError> {
        let model = datasets.first().ok_or(LoadError::Restarted)?.clone();
        let tables = content.tables();
        if let Some(member) = sessions.members.first_mut() {
            for (number, table) in tables.iter().enumerate() {
                let parent = qualified(&model.schema_name, table.name);
                route::self_test(&mut *member.control, &parent, content, number, model.partitions)
                    .map_err(|error| error.at(&member.name))?;
            }
        }
        let wanted = options.segment.chunks(schema::chunk_count(&model, content));
        let mut earlier = ChunkTotals::default();
        for (member, dataset) in std::iter::zip(&mut sessions.members, &datasets) {
            let totals = ledger::chunk_totals_in(&mut *member.control, dataset.id, wanted.clone());
            earlier = earlier.plus(totals.map_err(|error| error.at(&member.name))?);
        }
        let spent = Spent::default();
        Ok(Fill { sessions, datasets, layout, content, options, stop, started, earlier, spent })
    }

    /// The dataset, but for what differs from node to node.
    pub(crate) fn model(&self) -> &Dataset {
        &self.datasets[0]
    }

    pub(crate) fn shape(&self) -> Shape {
        self.sessions.shape
    }

    /// Rows are sent to the entry node only, which sends them on.
    pub(crate) fn by_entry(&self) -> bool {
        self.shape() == Shape::Sharded && self.layout.via == Via::Connect
    }

    /// The leaf tables.
    pub(crate) fn leaves(&self) -> Leaves {
        Leaves::of_tables(self.content.tables(), self.model().partitions)
    }

    fn chunks(&self) -> Chunks {
        schema::chunks_of(self.model(), self.content)
    }

    /// How many nodes streams load into.
    fn places(&self) -> usize {
        // What every node has whole, no entry node sends on.
        if self.by_entry() && self.content.whole_rows() == 0 { 1 } else { self.sessions.members.len() }
    }

    /// Where streams enter, if that is not where the rows are counted.
    fn entries(&self) -> &[(String, ConnSpec)] {
        if self.options.via == Some(Via::Each) { &self.sessions.entries } else { &[] }
    }

    /// The entries that answer, and show the dataset; the others are reported. An error if none does.
    fn reachable_entries(&self, reporter: &mut Reporter<'_>) -> Result<Vec<(String, ConnSpec)>, LoadError> {
        let mut reachable = Vec::new();
        let mut first_error = None;
        for (name, spec) in self.entries() {
            match self.wait_until_visible(spec) {
                Ok(()) => reachable.push((name.clone(), spec.clone())),
                Err(error) if error.may_come_back(self.sessions.node_lost) => {
                    let message =
                        format!("{name} does not answer ({}): its streams enter elsewhere", error.reason());
                    reporter.observer.event(&LoadEvent {
                        kind: record::event::NOTE,
                        message,
                        duration: None,
                    });
                    first_error.get_or_insert(error.at(name));
                }
                Err(error) => return Err(error.at(name)),
            }
        }
        match first_error.filter(|_| reachable.is_empty()) {
            Some(error) => Err(error),
            None => Ok(reachable),
        }
    }

    /// Waits until a node shows the dataset, and so its tables, which were made on another one a moment ago.
    fn wait_until_visible(&self, spec: &ConnSpec) -> Result<(), LoadError> {
        let begun = Instant::now();
        let mut control = node_sessions::connect(spec)?;
        loop {
            let (name, id) = (&self.model().name, self.model().id);
            match ledger::find_dataset(&mut *control, name) {
                Ok(Some(found)) if found.id == id => return Ok(()),
                Ok(_) if begun.elapsed() < VISIBLE_LIMIT => std::thread::sleep(VISIBLE_PAUSE),
                Ok(_) => return Err(LoadError::Restarted),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn plan_nothing(&self) -> Vec<NodePlan> {
        Vec::new()
    }

    /// What each node has to do of a segment.
    pub(crate) fn plan(&mut self, segment: Segment) -> Result<Vec<NodePlan>, LoadError> {
        plan(
            &mut self.sessions,
            &self.datasets,
            self.content,
            &self.layout,
            segment,
            self.options.reconnect_limit,
            self.stop,
        )
    }

    /// Parts of a segment that no ledger has.
    pub(crate) fn missing(&mut self, segment: Segment) -> Result<u64, LoadError> {
        Ok(self.plan(segment)?.iter().map(NodePlan::parts).sum())
    }

    /// Counters for streams that do these plans.
    pub(crate) fn counters(&self, plans: &[NodePlan]) -> Counters {
        let nodes = self.places();
        let leaves = self.leaves().count();
        let nodes_entered = nodes.max(self.entries().len());
        let streams = match (self.model().method, self.shape()) {
            (Method::Copy, _) => self.options.streams.max(nodes_entered),
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
                self.content.whole_rows() * (self.sessions.members.len() as u64 - 1)
            }
            _ => 0,
        };
        let rows_total = rows * copies + again;
        let mut counters =
            Counters::new(streams, self.earlier.chunks + todo, rows_total, self.content.row_bytes());
        counters.rows_earlier = self.earlier.rows;
        *counters.chunks_done.get_mut() = self.earlier.chunks;
        if self.shape() != Shape::Single {
            let node = |name: &str| NodeCounters { name: name.to_owned(), idle: AtomicBool::new(false) };
            counters.nodes =
                self.sessions.members.iter().take(nodes).map(|member| node(&member.name)).collect();
        }
        counters
    }

    /// What watchers need to know.
    pub(crate) fn watched(&mut self) -> Result<Vec<Site>, LoadError> {
        let mut sites = Vec::new();
        for (member, dataset) in std::iter::zip(&mut self.sessions.members, &self.datasets) {
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
    pub(crate) fn copy(
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
        let entered = self.reachable_entries(reporter)?;
        let Fill { sessions, datasets, layout, content, options, stop, .. } = self;
        let model = datasets[0].clone();
        let entries: Vec<Place> =
            entered.into_iter().map(|(name, spec)| Place { name, spec, dataset: model.id }).collect();
        let nodes: Vec<Place> = std::iter::zip(&sessions.members, &*datasets)
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
            node_lost: sessions.node_lost,
            failed: AtomicBool::new(false),
            messages,
            cancels: counters.streams.iter().map(|_| Mutex::new(None)).collect(),
        };
        let entries = if entries.is_empty() { places } else { &entries };
        let job = Job { work: &work, places, entries, nodes: &nodes, layout, shape, dispatcher, chunks };
        let result = coordinate(&work, &inbox, reporter, || {
            let limit = options.reconnect_limit;
            let mut replan = || plan(sessions, datasets, *content, layout, options.segment, limit, stop);
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
        std::iter::zip(&mut self.sessions.members, &self.datasets)
            .map(|(member, dataset)| {
                ledger::chunk_totals(&mut *member.control, dataset.id).map_err(|error| error.at(&member.name))
            })
            .collect()
    }

    pub(crate) fn report(
        mut self,
        outcome: Outcome,
        counters: &Counters,
        observer: &mut dyn Observer,
    ) -> Result<LoadReport, LoadError> {
        let each = self.totals()?;
        let totals = each.iter().copied().fold(ChunkTotals::default(), ChunkTotals::plus);
        let (mut table_bytes_on_disk, mut index_bytes_on_disk) = (0, 0);
        let mut wal: Vec<NodeWal> = vec![];
        for (member, dataset) in std::iter::zip(&mut self.sessions.members, &self.datasets) {
            // The server may still have a connection to a node that was restarted meanwhile.
            let (table, index) = absent::wait_for(
                ("reading the tables' sizes", self.sessions.node_lost),
                self.options.reconnect_limit,
                self.stop,
                &mut |event| observer.event(&event),
                || sizes(&mut member.control, member.sizes, dataset, self.content.tables()),
            )
            .map_err(|error| error.at(&member.name))?;
            table_bytes_on_disk += table;
            index_bytes_on_disk += index;
            let bytes = wal::distance(member.wal_before, wal::position(&mut member.control));
            wal.push(NodeWal { name: self.sessions.names[member.node].clone(), bytes });
        }
        wal.extend(self.sessions.others.written());
        let rows = counters.committed_rows();
        let seconds = self.spent.copy.as_secs_f64();
        let per_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let alone = self.shape() == Shape::Single;
        let node = |(node, totals): (usize, &ChunkTotals)| NodeReport {
            name: self.sessions.members[node].name.clone(),
            rows: if node < counters.nodes.len() { counters.committed_on(node) } else { 0 },
            totals: *totals,
        };
        let elsewhere = counters.chunks_elsewhere.load(Ordering::Relaxed);
        let own = counters.chunks_done.load(Ordering::Relaxed) - self.earlier.chunks - elsewhere;
        let mut dataset = self.datasets[0].clone();
        dataset.loaded = self.datasets.iter().all(|dataset| dataset.loaded);
        Ok(LoadReport {
            outcome,
            totals,
            chunks_total: counters.chunks_total.load(Ordering::Relaxed),
            rows,
            bytes: rows * counters.row_bytes,
            chunks: own,
            seconds,
            rows_per_s: per_second(rows),
            bytes_per_s: per_second(rows * counters.row_bytes),
            client_cpu_us: self.spent.cpu_us,
            retries: counters.retries.load(Ordering::Relaxed),
            index_seconds: self.spent.index.as_secs_f64(),
            analyze_seconds: self.spent.analyze.as_secs_f64(),
            total_seconds: self.started.elapsed().as_secs_f64(),
            wal_bytes: wal.iter().map(|node| node.bytes).sum(),
            wal: if wal.len() > 1 { wal } else { Vec::new() },
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
    sessions: &mut NodeSessions,
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
    let in_parts = sessions.shape == Shape::Sharded && layout.via == Via::Owner;
    let owned = match (sessions.shape, layout.via) {
        (Shape::Sharded, Via::Owner | Via::Each) => {
            shard::settled(sessions, datasets, tables, reconnect_limit, stop)?
        }
        (Shape::Sharded, Via::Connect) if content.whole_rows() == 0 => vec![everything],
        (Shape::Sharded, Via::Connect) => {
            let mut owned = vec![shard::whole(model, tables); datasets.len()];
            owned[0] = everything;
            owned
        }
        (Shape::Single | Shape::Repeated, _) => vec![everything; datasets.len()],
    };
    sessions.reconnect(reconnect_limit, Some(stop))?;
    let units = schema::chunk_count(model, content);
    let mut ledgers = Vec::with_capacity(datasets.len());
    for (member, dataset) in std::iter::zip(&mut sessions.members, datasets) {
        let read = ledger::coverage(&mut member.control, dataset.id, units);
        ledgers.push(read.map_err(|error| error.at(&member.name))?);
    }
    let wanted = segment.chunks(units);
    let chunks = schema::chunks_of(model, content);
    let is_spread = sessions.shape == Shape::Sharded;
    let plans = owned.into_iter().enumerate().map(|(node, owned)| {
        if model.method == Method::Freeze {
            let counts =
                |owner: usize, leaf: u64| owner == node || is_spread && leaf < leaves.whole_from() as u64;
            return freeze_plan(owned, units, &wanted, &ledgers, &counts);
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

/// For the method freeze a chunk is a leaf, with all its rows: each is missing where it is owned. `counts`: whether the ledger of this node counts for
/// a leaf.
fn freeze_plan(
    owned: Owned,
    leaves: u64,
    wanted: &std::ops::Range<u64>,
    ledgers: &[Coverage],
    counts: &dyn Fn(usize, u64) -> bool,
) -> NodePlan {
    let mut missing = ChunkSet::new(leaves);
    for leaf in owned.keys().map(|leaf| u64::from(*leaf)).filter(|leaf| wanted.contains(leaf)) {
        let has = |(owner, ledger): (usize, &Coverage)| {
            counts(owner, leaf) && ledger.iter().any(|(_, done)| done.contains(leaf))
        };
        if !ledgers.iter().enumerate().any(has) {
            missing.insert(leaf);
        }
    }
    NodePlan::of_leaves(Arc::new(owned), missing)
}

/// Bytes of the leaf tables and of their indexes.
fn sizes(
    client: &mut Client,
    sizes: Sizes,
    dataset: &Dataset,
    tables: &[dataset::Table],
) -> Result<(u64, u64), LoadError> {
    let sql = format!(
        "select {} from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $1 and c.relname = any($2) and c.relkind = 'r'",
        sizes.columns("c.oid")
    );
    let row = client.query_one(&sql, &[&dataset.schema_name, &leaf_names(tables, dataset.partitions)]);
    let row = row.map_err(|source| LoadError::sql("reading the tables' sizes", source))?;
    Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
}
