//! The progress of a load: counters that streams write, and snapshots for the terminal and the run directory.
//!
//! Each stream adds to its own counters, once per message of 256 KiB, without locks. One
//! coordinating thread reads them once a second, makes a [`Progress`] and hands it to the [`Observer`]. Nothing is printed here;
//! [`text`] turns a snapshot into a line.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use record::ProgressSample;
use record::statistics::median;

pub mod text;

/// How often the observer receives the progress.
pub const TICK: Duration = Duration::from_secs(1);

/// The rate that an estimate of the remaining time builds on is that of this many last ticks: long enough to bridge checkpoints' ups
/// and downs, short enough to notice that a disk has become slow.
const WINDOW_TICKS: usize = 60;

/// Streams are compared over this many last ticks.
const SLOWEST_TICKS: usize = 10;

/// What a load is at. Phases follow each other in this order; a phase that has nothing left to do is passed in no time.
///
/// | phase | ends when |
/// |---|---|
/// | schema | ledger and tables exist and are ours, routing is tested |
/// | copy | every chunk is in the ledger |
/// | index | every leaf and the table have their primary key |
/// | analyze | the planner has statistics; the dataset is marked as loaded |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Tables and ledger.
    Schema,
    /// Rows.
    Copy,
    /// Primary keys.
    Index,
    /// Statistics.
    Analyze,
}

impl Phase {
    /// The word for it in samples and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Schema => "schema",
            Phase::Copy => "copy",
            Phase::Index => "index",
            Phase::Analyze => "analyze",
        }
    }
}

/// The stream that has done least lately.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlowestStream {
    /// Counted from 0.
    pub index: usize,
    /// Its rate.
    pub rows_per_s: f64,
    /// The median of all streams.
    pub median_rows_per_s: f64,
}

/// A node that does less than this share of what the others do is reported as slow.
const SLOW_SHARE: f64 = 0.5;

/// A node that was reported as slow keeps up again from this share on.
const RECOVERED_SHARE: f64 = 0.8;

/// So many ticks of copying go by before a node is called slow.
const SLOW_TICKS: usize = 5;

/// The node that has done least lately, of those that have something to do.
#[derive(Clone, PartialEq, Debug)]
pub struct SlowestNode {
    /// Its name.
    pub name: String,
    /// Its rate.
    pub rows_per_s: f64,
    /// The median of the others.
    pub others_rows_per_s: f64,
}

impl SlowestNode {
    /// Its rate as a share of the others'.
    pub fn share(&self) -> f64 {
        if self.others_rows_per_s > 0.0 { self.rows_per_s / self.others_rows_per_s } else { 1.0 }
    }
}

/// A snapshot.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Since the load began.
    pub elapsed: Duration,
    /// How much of the phase is done; `None` when it is unknown.
    pub percent: Option<f64>,
    /// Rows sent and not rolled back, rows of an earlier load included.
    pub rows_done: u64,
    /// Rows of the dataset.
    pub rows_total: u64,
    /// Rows that were there before.
    pub rows_earlier: u64,
    /// Bytes of values of one row; where rows differ, their mean.
    pub row_bytes: u64,
    /// Over the last tick.
    pub rows_per_s_now: f64,
    /// Since the copy phase of this load began.
    pub rows_per_s_mean: f64,
    /// Until the copy phase ends; `None` in other phases and before anything is known.
    pub eta: Option<Duration>,
    /// Chunks in the ledger.
    pub chunks_done: u64,
    /// Chunks of the dataset.
    pub chunks_total: u64,
    /// Streams.
    pub streams: usize,
    /// Of these, how many have a connection.
    pub streams_connected: usize,
    /// Chunks begun again after an error.
    pub retries: u64,
    /// `None` with one stream or before rates are known.
    pub slowest: Option<SlowestStream>,
    /// `None` with one node or before rates are known.
    pub slowest_node: Option<SlowestNode>,
}

impl Progress {
    /// Bytes of values of the rows done.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.rows_done.saturating_mul(self.row_bytes)
    }

    /// Bytes of values of the dataset.
    pub fn bytes_total(&self) -> u64 {
        self.rows_total.saturating_mul(self.row_bytes)
    }

    /// Bytes of values per second over the last tick.
    pub(crate) fn bytes_per_s_now(&self) -> f64 {
        self.rows_per_s_now * self.row_bytes as f64
    }

    /// Bytes of values per second since the copy phase began.
    pub(crate) fn bytes_per_s_mean(&self) -> f64 {
        self.rows_per_s_mean * self.row_bytes as f64
    }
}

/// Something worth a line in `events.ndjson`.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadEvent {
    /// One of the constants of [`record::event`].
    pub kind: &'static str,
    /// One sentence.
    pub message: String,
    /// How long it lasted, when it did.
    pub duration: Option<Duration>,
}

/// What receives the progress. Called by the coordinating thread only, never by a stream: it may take its time.
pub trait Observer {
    /// About once a second and at the end of each phase. `sample` counts since the previous call, which was `interval` ago.
    fn progress(&mut self, progress: &Progress, sample: &ProgressSample, interval: Duration);

    /// Something happened.
    fn event(&mut self, event: &LoadEvent);
}

/// An observer that does nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: &Progress, _: &ProgressSample, _: Duration) {}
    fn event(&mut self, _: &LoadEvent) {}
}

/// What one stream counts. Written by its thread, read by the coordinator.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Rows committed by this load.
    committed: AtomicU64,
    /// Rows sent in the transaction that is open.
    in_flight: AtomicU64,
    /// Rows sent since the beginning, rolled back or not: a stream that repeats work is not a slow one.
    sent: AtomicU64,
    connected: AtomicBool,
}

impl StreamCounters {
    pub(crate) fn add_sent(&self, rows: u64) {
        self.sent.fetch_add(rows, Ordering::Relaxed);
        self.in_flight.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn rolled_back(&self) {
        self.in_flight.store(0, Ordering::Relaxed);
    }

    pub(crate) fn commit(&self, rows: u64) {
        self.in_flight.store(0, Ordering::Relaxed);
        self.committed.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }
}

/// One node of several.
#[derive(Debug)]
pub(crate) struct NodeCounters {
    pub(crate) name: String,
    /// It has nothing to do at the moment: no slow node, an idle one.
    pub(crate) idle: AtomicBool,
}

/// What all streams of a load count.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) streams: Vec<StreamCounters>,
    pub(crate) chunks_done: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Changes when a leaf moves and its chunks have to be divided otherwise.
    pub(crate) chunks_total: AtomicU64,
    pub(crate) rows_total: u64,
    pub(crate) rows_earlier: u64,
    /// Rows that other loaders have committed since, as far as this one has come across them.
    pub(crate) rows_elsewhere: AtomicU64,
    /// Chunks of those rows. They are among `chunks_done`.
    pub(crate) chunks_elsewhere: AtomicU64,
    /// The nodes; stream `i` is one of node `i % nodes.len()`. Empty: a single server.
    pub(crate) nodes: Vec<NodeCounters>,
    /// Bytes of values of one row; where rows differ, their mean.
    pub(crate) row_bytes: u64,
}

impl Counters {
    pub(crate) fn new(streams: usize, chunks_total: u64, rows_total: u64, row_bytes: u64) -> Counters {
        Counters {
            streams: (0..streams).map(|_| StreamCounters::default()).collect(),
            chunks_done: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            chunks_total: AtomicU64::new(chunks_total),
            rows_total,
            rows_earlier: 0,
            rows_elsewhere: AtomicU64::new(0),
            chunks_elsewhere: AtomicU64::new(0),
            nodes: Vec::new(),
            row_bytes,
        }
    }

    /// The streams of a node, by their numbers.
    pub(crate) fn streams_of(&self, node: usize) -> impl Iterator<Item = &StreamCounters> {
        self.streams.iter().skip(node).step_by(self.nodes.len().max(1))
    }

    /// Rows committed on a node.
    pub(crate) fn committed_on(&self, node: usize) -> u64 {
        self.streams_of(node).map(|stream| stream.committed.load(Ordering::Relaxed)).sum()
    }

    /// Streams of a node that have a connection.
    pub(crate) fn connected_to(&self, node: usize) -> usize {
        self.streams_of(node).filter(|stream| stream.connected.load(Ordering::Relaxed)).count()
    }

    pub(crate) fn committed_rows(&self) -> u64 {
        self.streams.iter().map(|stream| stream.committed.load(Ordering::Relaxed)).sum()
    }

    fn rows_now(&self) -> u64 {
        let in_flight: u64 = self.streams.iter().map(|s| s.in_flight.load(Ordering::Relaxed)).sum();
        // A commit between the two reads would count twice; the dataset's size is the bound that people notice.
        let elsewhere = self.rows_elsewhere.load(Ordering::Relaxed);
        (self.rows_earlier + elsewhere + self.committed_rows() + in_flight).min(self.rows_total)
    }

    fn connected(&self) -> usize {
        self.streams.iter().filter(|stream| stream.connected.load(Ordering::Relaxed)).count()
    }
}

/// What was known at one tick.
#[derive(Clone, Debug)]
struct Reading {
    at: Instant,
    rows: u64,
    sent: Vec<u64>,
    /// Which nodes had nothing to do.
    idle: Vec<bool>,
}

/// Turns counters into snapshots, tick by tick.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    phase: Phase,
    percent: Option<f64>,
    /// When copying began and how many rows were there.
    copy_start: Option<(Instant, u64)>,
    copy_end: Option<Instant>,
    readings: VecDeque<Reading>,
    last_chunks: u64,
    last_cpu_us: u64,
    /// Ticks since copying began.
    copy_ticks: usize,
    /// The node that was reported as slow.
    slow: Option<String>,
}

impl Meter {
    pub(crate) fn new(now: Instant, cpu_us: u64) -> Meter {
        Meter {
            start: now,
            phase: Phase::Schema,
            percent: None,
            copy_start: None,
            copy_end: None,
            readings: VecDeque::with_capacity(WINDOW_TICKS + 1),
            last_chunks: 0,
            last_cpu_us: cpu_us,
            copy_ticks: 0,
            slow: None,
        }
    }

    /// What to report about slow nodes after a tick: one that became slow, or the one that keeps up again.
    pub(crate) fn slow_node_event(&mut self, progress: &Progress) -> Option<LoadEvent> {
        self.copy_ticks += 1;
        if progress.phase != Phase::Copy || self.copy_ticks < SLOW_TICKS {
            return None;
        }
        let slowest = progress.slowest_node.as_ref();
        let note = |message| Some(LoadEvent { kind: record::event::NOTE, message, duration: None });
        let rates = |node: &SlowestNode| {
            let (its, others) =
                (record::number::short(node.rows_per_s), record::number::short(node.others_rows_per_s));
            format!("{its} rows/s, the others {others}")
        };
        match (slowest, &self.slow) {
            (Some(node), reported) if node.share() < SLOW_SHARE && reported.as_ref() != Some(&node.name) => {
                self.slow = Some(node.name.clone());
                note(format!("{} is slow: {}", node.name, rates(node)))
            }
            (Some(node), Some(reported)) if node.share() > RECOVERED_SHARE => {
                let message = format!("{reported} keeps up again: the slowest node loads {}", rates(node));
                self.slow = None;
                note(message)
            }
            _ => None,
        }
    }

    /// Begins a phase. Counters of an earlier load are to be set before [`Phase::Copy`] begins.
    pub(crate) fn begin(&mut self, phase: Phase, counters: &Counters, now: Instant) {
        match phase {
            Phase::Copy => {
                self.copy_start = Some((now, counters.rows_earlier));
                self.last_chunks = counters.chunks_done.load(Ordering::Relaxed);
                self.readings.clear();
                self.readings.push_back(reading(counters, now));
                self.copy_ticks = 0;
            }
            _ if self.phase == Phase::Copy => self.copy_end = Some(now),
            _ => {}
        }
        self.phase = phase;
        self.percent = None;
    }

    /// How much of a phase that is not [`Phase::Copy`] is done.
    pub(crate) fn set_percent(&mut self, percent: f64) {
        self.percent = Some(percent);
    }

    /// Reads the counters: the snapshot, what happened since the last tick, and how long ago that was.
    pub(crate) fn tick(
        &mut self,
        counters: &Counters,
        now: Instant,
        cpu_us: u64,
    ) -> (Progress, ProgressSample, Duration) {
        let current = reading(counters, now);
        let last = self.readings.back().cloned().unwrap_or_else(|| current.clone());
        let slowest = self.slowest(&current);
        let slowest_node = self.slowest_node(counters, &current, SLOWEST_TICKS);
        let node_now = self.slowest_node(counters, &current, 1);
        let mut progress = self.snapshot(counters, &current, &last, slowest);
        progress.slowest_node = slowest_node;
        let chunks_done = counters.chunks_done.load(Ordering::Relaxed);
        // Of this interval alone, as the row count beside it; what the terminal names is the slowest over a longer time.
        let sent = current.sent.iter().zip(&last.sent).map(|(now, before)| now.saturating_sub(*before));
        let is_compared = self.phase == Phase::Copy && current.sent.len() > 1;
        let slowest_now = sent.enumerate().min_by_key(|(_, rows)| *rows).filter(|_| is_compared);
        let sample = ProgressSample {
            phase: self.phase.as_str().to_owned(),
            // Rolled back rows make the sum go down; an interval cannot have done less than nothing.
            rows: current.rows.saturating_sub(last.rows),
            bytes: current.rows.saturating_sub(last.rows).saturating_mul(counters.row_bytes),
            rows_total: current.rows,
            rows_goal: counters.rows_total,
            chunks: chunks_done.saturating_sub(self.last_chunks),
            streams: counters.connected() as u64,
            slowest_stream: slowest_now.map(|(index, _)| index.to_string()),
            slowest_rows: slowest_now.map(|(_, rows)| rows),
            slowest_node_rows: node_now
                .as_ref()
                .map(|node| (node.rows_per_s * seconds(current.at - last.at)).round() as u64),
            slowest_node: node_now.map(|node| node.name),
            client_cpu_us: cpu_us.saturating_sub(self.last_cpu_us),
        };
        let interval = now - last.at;
        self.last_chunks = chunks_done;
        self.last_cpu_us = cpu_us;
        self.readings.push_back(current);
        if self.readings.len() > WINDOW_TICKS {
            self.readings.pop_front();
        }
        (progress, sample, interval)
    }

    fn snapshot(
        &self,
        counters: &Counters,
        current: &Reading,
        last: &Reading,
        slowest: Option<SlowestStream>,
    ) -> Progress {
        let now = current.at;
        let copying = self.phase == Phase::Copy;
        let rows_per_s_mean = self.copy_start.map_or(0.0, |(start, earlier)| {
            let end = self.copy_end.unwrap_or(now);
            per_second(current.rows.saturating_sub(earlier), end - start)
        });
        let window = self.readings.front().unwrap_or(last);
        let recent = per_second(current.rows.saturating_sub(window.rows), now - window.at);
        let left = counters.rows_total.saturating_sub(current.rows);
        let eta = (copying && recent > 0.0).then(|| Duration::try_from_secs_f64(left as f64 / recent).ok());
        let copy_percent = || match counters.rows_total {
            0 => 100.0,
            total => 100.0 * current.rows as f64 / total as f64,
        };
        Progress {
            phase: self.phase,
            elapsed: now - self.start,
            percent: if copying { Some(copy_percent()) } else { self.percent },
            rows_done: current.rows,
            rows_total: counters.rows_total,
            rows_earlier: counters.rows_earlier,
            row_bytes: counters.row_bytes,
            rows_per_s_now: per_second(current.rows.saturating_sub(last.rows), now - last.at),
            rows_per_s_mean,
            eta: eta.flatten(),
            chunks_done: counters.chunks_done.load(Ordering::Relaxed),
            chunks_total: counters.chunks_total.load(Ordering::Relaxed),
            streams: counters.streams.len(),
            streams_connected: counters.connected(),
            retries: counters.retries.load(Ordering::Relaxed),
            slowest,
            slowest_node: None,
        }
    }

    /// The slowest node over so many last ticks. Nodes that had nothing to do at either end are no slow ones.
    fn slowest_node(&self, counters: &Counters, current: &Reading, ticks: usize) -> Option<SlowestNode> {
        let nodes = counters.nodes.len();
        let earlier = self.readings.get(self.readings.len().saturating_sub(ticks))?;
        if self.phase != Phase::Copy || current.at == earlier.at {
            return None;
        }
        let elapsed = current.at - earlier.at;
        let sent =
            |reading: &Reading, node: usize| reading.sent.iter().skip(node).step_by(nodes).sum::<u64>();
        let busy = (0..nodes)
            .filter(|node| !current.idle[*node] && !earlier.idle.get(*node).is_some_and(|idle| *idle));
        let mut rates: Vec<(f64, usize)> = busy
            .map(|node| (per_second(sent(current, node).saturating_sub(sent(earlier, node)), elapsed), node))
            .collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((rows_per_s, node), others) = rates.split_first()?;
        let others_rows_per_s = median(others.iter().map(|(rate, _)| *rate))?;
        Some(SlowestNode {
            name: counters.nodes[*node].name.clone(),
            rows_per_s: *rows_per_s,
            others_rows_per_s,
        })
    }

    fn slowest(&self, current: &Reading) -> Option<SlowestStream> {
        let first = self.readings.len().saturating_sub(SLOWEST_TICKS);
        let earlier = self.readings.get(first)?;
        if self.phase != Phase::Copy || current.sent.len() < 2 || current.at == earlier.at {
            return None;
        }
        let elapsed = current.at - earlier.at;
        let mut rates: Vec<(f64, usize)> = current
            .sent
            .iter()
            .zip(&earlier.sent)
            .enumerate()
            .map(|(index, (now, then))| (per_second(now - then, elapsed), index))
            .collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median_rows_per_s = median(rates.iter().map(|(rate, _)| *rate))?;
        Some(SlowestStream { index: rates[0].1, rows_per_s: rates[0].0, median_rows_per_s })
    }
}

fn reading(counters: &Counters, at: Instant) -> Reading {
    let sent = counters.streams.iter().map(|stream| stream.sent.load(Ordering::Relaxed)).collect();
    let idle = counters.nodes.iter().map(|node| node.idle.load(Ordering::Relaxed)).collect();
    Reading { at, rows: counters.rows_now(), sent, idle }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    let elapsed = seconds(elapsed);
    if elapsed > 0.0 { count as f64 / elapsed } else { 0.0 }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests;
