//! The end of a load on every node: primary keys, statistics, publications, and the mark that the dataset is complete.
//!
//! On a sharded cluster the key of each leaf is built on its node, and only leaves are analyzed: `analyze` of the parent would read
//! samples of every other node's leaves through foreign tables, which before PostgreSQL 16 means all of their rows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::dataset::leaf_names;
use crate::error::LoadError;
use crate::fill::{Fill, Reporter};
use crate::index::Finish;
use crate::ledger::{self, qualified};
use crate::node_sessions;
use crate::options::{StopLevel, Via};
use crate::progress::{Counters, LoadEvent, Phase, TICK};
use crate::shape::Shape;
use crate::{peers, shard, trust};

/// How often the nodes' work is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Everything that is left after the rows. `Ok(false)`: the stop was noticed.
pub(crate) fn run(
    fill: &mut Fill<'_>,
    reporter: &mut Reporter<'_>,
    counters: &Counters,
) -> Result<bool, LoadError> {
    let limit = fill.options.reconnect_limit;
    reporter.begin(Phase::Index, counters);
    let start = Instant::now();
    if !fill.sessions.lock(limit, fill.stop, &mut |event| reporter.observer.event(&event))? {
        return Ok(false);
    }
    let leaves = leaves(fill)?;
    let keys = on_every_node(fill, reporter, counters, &|finish, node, tick| match leaves.get(node) {
        Some(leaves) => finish.keys_of(leaves, tick),
        None => finish.keys(tick),
    });
    fill.spent.index = start.elapsed();
    if !keys? {
        return Ok(false);
    }
    reporter.begin(Phase::Analyze, counters);
    let start = Instant::now();
    let analyzed = on_every_node(fill, reporter, counters, &|finish, node, tick| match leaves.get(node) {
        Some(leaves) => finish.statistics_of(leaves, &mut || tick(f64::NAN)),
        None => finish.statistics(&mut || tick(f64::NAN)),
    });
    if !analyzed? {
        return Ok(false);
    }
    statistics_of_copies(fill, reporter, counters);
    fill.spent.analyze = start.elapsed();
    // With statistics, as each is checked by a query.
    let start = Instant::now();
    let referred =
        on_every_node(fill, reporter, counters, &|finish, _, tick| finish.references(&mut || tick(f64::NAN)));
    fill.spent.index += start.elapsed();
    if !referred? {
        return Ok(false);
    }
    fill.sessions.reconnect(limit, Some(fill.stop))?;
    if fill.shape() == Shape::Repeated && !peers::publish(fill, reporter)? {
        return Ok(false);
    }
    let by_entry = fill.shape() == Shape::Sharded && fill.layout.via == Via::Connect;
    for (member, dataset) in std::iter::zip(&mut fill.sessions.members, &mut fill.datasets) {
        let marked = (|| {
            if by_entry {
                ledger::forget_pending(&mut *member.control, dataset.id)?;
            }
            // A trigger that was attached during the load may have changed its rows.
            trust::check_filled(&mut *member.control, dataset.id, &dataset.schema_name)?;
            ledger::mark_loaded(&mut *member.control, dataset.id)
        })();
        marked.map_err(|error| error.at(&member.name))?;
        dataset.loaded = true;
    }
    reporter.tick(counters);
    Ok(true)
}

/// Statistics on the nodes to which the engine has brought the rows: it brings no statistics. A node that is away or behind gathers them later, by autovacuum.
fn statistics_of_copies(fill: &Fill<'_>, reporter: &mut Reporter<'_>, counters: &Counters) {
    let schema = &fill.model().schema_name;
    let names: Vec<String> =
        fill.content.tables().iter().map(|table| qualified(schema, table.name)).collect();
    let begun = Instant::now();
    for (node, spec) in &fill.sessions.copies {
        let gathered = node_sessions::connect(spec).and_then(|mut control| {
            for name in &names {
                if fill.stop.level() > StopLevel::Run {
                    break;
                }
                let analyzed = control.batch_execute(&format!("analyze {name}"));
                analyzed.map_err(|source| LoadError::sql("gathering statistics", source))?;
                reporter.tick(counters);
            }
            Ok(())
        });
        if let Err(error) = gathered {
            reporter.observer.event(&LoadEvent {
                kind: record::event::NOTE,
                message: format!(
                    "{node} has no statistics of the new tables yet ({}); when it answers, run there: analyze {}",
                    error.reason(),
                    names.join(", ")
                ),
                duration: Some(begun.elapsed()),
            });
        }
    }
}

/// The leaves of each node by name, where rows are spread; empty where each node has the whole table.
fn leaves(fill: &mut Fill<'_>) -> Result<Vec<Vec<String>>, LoadError> {
    if fill.shape() != Shape::Sharded {
        return Ok(Vec::new());
    }
    let (tables, limit) = (fill.content.tables(), fill.options.reconnect_limit);
    let owned = shard::settled(&mut fill.sessions, &fill.datasets, tables, limit, fill.stop)?;
    let names = leaf_names(tables, fill.model().partitions);
    Ok(owned
        .iter()
        .map(|owned| owned.keys().filter_map(|leaf| names.get(usize::from(*leaf)).cloned()).collect())
        .collect())
}

/// What is done on one node; it reports percentages.
type Work<'a> = dyn Fn(&Finish<'_>, usize, &mut dyn FnMut(f64)) -> Result<bool, LoadError> + Sync + 'a;

/// Does the work on all nodes at once, with the streams divided among them. `Ok(false)`: the stop was noticed.
fn on_every_node(
    fill: &Fill<'_>,
    reporter: &mut Reporter<'_>,
    counters: &Counters,
    work: &Work<'_>,
) -> Result<bool, LoadError> {
    let nodes = fill.sessions.members.len();
    let (stop, streams, limit) =
        (fill.stop, fill.options.streams.div_ceil(nodes), fill.options.reconnect_limit);
    let (tables, foreign_keys) = (fill.content.tables(), fill.content.foreign_keys());
    let sites: Vec<_> = std::iter::zip(&fill.sessions.members, &fill.datasets)
        .map(|(member, dataset)| (member.name.as_str(), &member.spec, dataset))
        .collect();
    let percents: Vec<AtomicU64> = (0..nodes).map(|_| AtomicU64::new(f64::NAN.to_bits())).collect();
    let (events, inbox) = channel();
    let lost: Vec<AtomicBool> = (0..nodes).map(|_| AtomicBool::new(false)).collect();
    let (events, lost) = (&Mutex::new(events), &lost);
    std::thread::scope(|scope| {
        let threads: Vec<_> = sites
            .into_iter()
            .enumerate()
            .map(|(node, (name, spec, dataset))| {
                let percent = &percents[node];
                scope.spawn(move || {
                    let (reconnect_limit, is_lost) = (limit, &lost[node]);
                    let finish = Finish {
                        spec,
                        dataset,
                        tables,
                        streams,
                        foreign_keys,
                        stop,
                        reconnect_limit,
                        events,
                        is_lost,
                    };
                    let done =
                        work(&finish, node, &mut |now| percent.store(now.to_bits(), Ordering::Relaxed));
                    percent.store(100f64.to_bits(), Ordering::Relaxed);
                    done.map_err(|error| error.at(name))
                })
            })
            .collect();
        let mut next_tick = Instant::now() + TICK;
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(LOOK);
            inbox.try_iter().for_each(|event| reporter.observer.event(&event));
            if Instant::now() >= next_tick {
                next_tick += TICK;
                let mean = percents.iter().map(|percent| f64::from_bits(percent.load(Ordering::Relaxed)));
                let mean = mean.sum::<f64>() / nodes as f64;
                if mean.is_finite() {
                    reporter.meter.set_percent(mean);
                }
                reporter.tick(counters);
            }
        }
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Result<Vec<bool>, LoadError>>().map(|ends| ends.into_iter().all(|done| done))
    })
}
