//! A load from its beginning to its end.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engines::Cluster;
use engines::profile::{Ddl, Layout};

use crate::dataset::{self, Target};
use crate::dispatch::Dispatcher;
use crate::error::LoadError;
use crate::fill::{Fill, Reporter, cpu_us};
use crate::node_sessions::NodeSessions;
use crate::options::{Options, Segment, Stop};
use crate::progress::{Counters, LoadEvent, Meter, Observer, Phase};
use crate::report::{LoadReport, Outcome};
use crate::shape::Shape;
use crate::watch::{self, Watch};
use crate::{absent, copies, finish, ledger, peers, schema, shard, trust};

/// When the load has to end, as time and as the user wrote it.
type Deadline = (Instant, String);

/// Fills a cluster with a dataset, or continues where another load ended: rows go where their leaf tables are, or everywhere where every node
/// holds all of them.
///
/// The call returns when everything is done, when `stop` was noticed, or on the first error that no repetition cures. It may be called
/// again at any time: it does what is missing. `observer` is called from this thread.
///
/// # Errors
/// See [`LoadError`]; each has a hint, and those of one node are [`LoadError::Node`]. The target is exact after every error.
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
    let mut sessions = NodeSessions::connect(cluster)?;
    peers::refuse_part(cluster, &mut sessions)?;
    peers::refuse_extensions(&mut sessions)?;
    let recorded = if options.restart { None } else { recorded(&mut sessions, content)? };
    let content = recorded.as_deref().unwrap_or(content);
    let tables = content.tables();
    let mut reporter = Reporter { observer, meter: Meter::new(started, cpu_us()) };
    // Counters without streams serve until the dataset is known.
    reporter.begin(Phase::Schema, &Counters::new(0, 0, content.rows(), content.row_bytes()));
    let deadline = check_stop_rules(&mut sessions, content.name(), options, started)?;
    let mut prepared = prepare(&mut sessions, cluster, content, options, stop, &mut reporter)?;
    copies::mark(cluster, &mut prepared, tables);
    let mut fill = Fill::new(sessions, prepared.datasets, prepared.layout, content, options, stop, started)?;
    if fill.datasets.iter().all(|dataset| dataset.loaded) {
        if fill.shape() == Shape::Sharded {
            // Nothing is left to load that would have to wait for a leaf on its way.
            let patience = shard::LOOK.min(options.reconnect_limit);
            shard::settled(&mut fill.sessions, &fill.datasets, tables, patience, stop)?;
        }
        let counters = fill.counters(&fill.plan_nothing());
        return fill.report(Outcome::AlreadyComplete, &counters, reporter.observer);
    }
    let plans = fill.plan(options.segment)?;
    let counters = fill.counters(&plans);
    if fill.shape() == Shape::Repeated && plans.iter().any(|plan| plan.parts() > 0) {
        peers::refuse_published(&mut fill.sessions, &fill.datasets, tables)?;
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
        let outcome = fill_all(&mut fill, &dispatcher, &counters, &mut reporter, || {
            watch.copying.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        let done = counters.chunks_done.load(Ordering::Relaxed);
        outcome.map_err(|error| error.or_disk_full(done, counters.chunks_total.load(Ordering::Relaxed)))
    })?;
    fill.report(outcome, &counters, reporter.observer)
}

/// Creates what is missing, as soon as all nodes answer that it needs.
fn prepare(
    sessions: &mut NodeSessions,
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    stop: &Stop,
    reporter: &mut Reporter<'_>,
) -> Result<schema::Prepared, LoadError> {
    let observer = RefCell::new(&mut *reporter.observer);
    let prepared = absent::wait_for(
        ("preparing the tables", sessions.node_lost),
        options.reconnect_limit,
        stop,
        &mut |event| observer.borrow_mut().event(&event),
        || {
            // It may have gone away under an attempt.
            sessions.reconnect(options.reconnect_limit, Some(stop))?;
            schema::prepare(sessions, cluster, content, options, stop, &mut |event| {
                observer.borrow_mut().event(&event);
            })
        },
    );
    match prepared {
        Err(error) if sessions.shape == Shape::Repeated => Err(peers::explain(sessions, error)),
        prepared => prepared,
    }
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
        Shape::Repeated => Target::Copies,
    };
    if options.unlogged && options.partitions.unwrap_or(0) > 1 && !content.foreign_keys().is_empty() {
        return Err(LoadError::Option {
            flag: "--unlogged",
            problem: "PostgreSQL has no foreign keys from partitioned tables to unlogged ones".to_owned(),
            hint: "omit --foreign-keys, --partitions or --unlogged".to_owned(),
        });
    }
    let replicates = |layout| matches!(layout, Layout::Copies(copies) if copies.ddl == Ddl::Replicated);
    if options.unlogged && cluster.is_clustered() && replicates(cluster.engine.layout) {
        return Err(LoadError::Option {
            flag: "--unlogged",
            problem: "rows of unlogged tables are not replicated: one node alone would have them".to_owned(),
            hint: "omit it".to_owned(),
        });
    }
    content.check(target, options.partitions)
}

/// The dataset, with the parameters that were not given taken from the first node that has recorded it.
fn recorded(
    sessions: &mut NodeSessions,
    content: &dyn dataset::Dataset,
) -> Result<Option<Box<dyn dataset::Dataset>>, LoadError> {
    for member in &mut sessions.members {
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
    sessions: &mut NodeSessions,
    name: &str,
    options: &Options,
    started: Instant,
) -> Result<Option<Deadline>, LoadError> {
    if let Some(keep_free_bytes) = options.keep_free_bytes {
        for member in &mut sessions.members {
            // Where the server runs df a temporary table is made.
            trust::check_event_triggers(&mut *member.control).map_err(|error| error.at(&member.name))?;
            watch::check_disks(member, name, &options.tablespaces, keep_free_bytes)?;
        }
    }
    match (&options.deadline, sessions.members.first_mut()) {
        (Some(deadline), Some(member)) => watch::deadline(&mut member.control, deadline, started).map(Some),
        _ => Ok(None),
    }
}

/// Rows, then keys and statistics; `copied` is called in between.
fn fill_all(
    fill: &mut Fill<'_>,
    dispatcher: &Dispatcher,
    counters: &Counters,
    reporter: &mut Reporter<'_>,
    copied: impl FnOnce(),
) -> Result<Outcome, LoadError> {
    fill.copy(dispatcher, counters, reporter)?;
    copied();
    // Servers may have been restarted under the control connections, which were idle.
    fill.sessions.reconnect(fill.options.reconnect_limit, Some(fill.stop))?;
    let stopped = |stop: &Stop| if stop.reason().is_some() { Outcome::Stopped } else { Outcome::Interrupted };
    if fill.missing(Segment::ALL)? > 0 {
        let done = fill.missing(fill.options.segment)? == 0;
        return Ok(if done { Outcome::SegmentComplete } else { stopped(fill.stop) });
    }
    let (limit, stop, lost) = (fill.options.reconnect_limit, fill.stop, fill.sessions.node_lost);
    let observer = RefCell::new(&mut *reporter);
    let complete = absent::wait_for(
        ("making keys and statistics", lost),
        limit,
        stop,
        &mut |event| observer.borrow_mut().observer.event(&event),
        || finish::run(fill, &mut observer.borrow_mut(), counters),
    )?;
    Ok(if complete { Outcome::Complete } else { stopped(fill.stop) })
}
