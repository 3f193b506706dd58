//! A discrete-event simulation of the fill: nodes take chunk after chunk, disks get slow, client hosts are lost, partitions move, a stop rule ends it.
//!
//! It checks the closed forms, which know nothing of order, and draws the forecast. One seed is one course of events. What it assumes of `load`:
//! a chunk has rows for every partition of a node, so the slowest disk of a node sets the node's rate; nodes do not wait for each other; the
//! client hosts that are left take over the chunks of a lost one; indexes are built when all rows are copied.

mod events;
mod state;

use crate::book::whole;
use crate::error::PlanError;
use events::{Event, Queue};
use record::number;
use record::plan::input::{Happening, Input, WhatIf};
use record::plan::{Forecast, Happened, Layout, Point, Space};
use state::{Nodes, Random};

/// The outcome of a load that ends by itself.
pub const COMPLETE: &str = "complete";
/// A node takes its rows in pieces of about this many bytes of values, as `load` cuts them.
const PIECE_BYTES: f64 = 96e6;
/// All nodes together take at most so many pieces; beyond it they are longer.
const PIECES_MAX: f64 = 1_000_000.0;
/// A piece takes up to this share longer or shorter than the mean.
const JITTER: f64 = 0.25;
/// Points of the forecast at least and at most.
const POINTS_MIN: usize = 24;
const POINTS_MAX: usize = 48;
/// While a partition moves, its old and its new node load at this share of their rate.
const MOVING_SHARE: f64 = 0.5;

/// What is simulated.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Scenario {
    /// Nodes that share the rows.
    pub(crate) nodes: usize,
    /// Disks of a node.
    pub(crate) disks: usize,
    /// Volumes of a node.
    pub(crate) volumes: usize,
    /// Partitions of all nodes.
    pub(crate) partitions: u64,
    /// Rows of all nodes.
    pub(crate) rows: f64,
    /// Bytes of values of a row.
    pub(crate) value_bytes_per_row: f64,
    /// Bytes on disk of a row when it is copied.
    pub(crate) copied_bytes_per_row: f64,
    /// Bytes of its index entries.
    pub(crate) index_bytes_per_row: f64,
    /// Bytes of the tables that every node has.
    pub(crate) every_node_bytes: f64,
    /// Rate of all nodes in bytes of values.
    pub(crate) bytes_per_s: f64,
    /// Client hosts.
    pub(crate) agents: u64,
    /// Capacity of a volume; `None`: not known.
    pub(crate) volume_bytes: Option<f64>,
    /// The stop rule of the load.
    pub(crate) keep_free_bytes: f64,
    /// Time of building the indexes of one partition.
    pub(crate) build_s: f64,
    /// Builds of a node at once.
    pub(crate) builds: u64,
    /// What happens meanwhile.
    pub(crate) what_if: Vec<WhatIf>,
    /// Of every random choice.
    pub(crate) seed: u64,
}

impl Scenario {
    /// The scenario of an input; `None` without a rate.
    pub(crate) fn of(input: &Input, layout: &Layout, space: &Space) -> Option<Scenario> {
        let (hardware, loading) = (&input.hardware, &input.loading);
        let bytes_per_s = loading.rate.as_ref()?.bytes_per_s;
        let divided = || input.tables.iter().filter(|table| !table.is_whole);
        let rows: f64 = divided().map(|table| table.rows as f64).sum();
        let mean = |of: &dyn Fn(&record::plan::input::TableSize) -> f64| {
            divided().map(|table| table.rows as f64 * of(table)).sum::<f64>() / rows.max(1.0)
        };
        let copied = |table: &record::plan::input::TableSize| {
            table.heap_bytes_per_row + table.map_bytes_per_row + table.toast_bytes_per_row
        };
        let every_node = input.tables.iter().filter(|table| table.is_whole);
        let on_node = layout.partitions.div_ceil(hardware.nodes).max(1);
        let indexed: f64 =
            divided().filter(|table| table.index_bytes_per_row > 0.0).map(|table| table.rows as f64).sum();
        let loaded = if space.is_known { (space.rows_max as f64 / rows.max(1.0)).min(1.0) } else { 1.0 };
        Some(Scenario {
            nodes: usize::try_from(hardware.nodes).ok()?,
            disks: usize::try_from(hardware.disks).ok()?,
            volumes: usize::try_from(layout.volumes_per_node).ok()?,
            partitions: layout.partitions,
            rows,
            value_bytes_per_row: mean(&|table| table.value_bytes_per_row),
            copied_bytes_per_row: mean(&copied),
            index_bytes_per_row: mean(&|table| table.index_bytes_per_row),
            every_node_bytes: every_node
                .map(|table| table.rows as f64 * (copied(table) + table.index_bytes_per_row))
                .sum(),
            bytes_per_s,
            agents: loading.agents,
            volume_bytes: space.is_known.then_some(space.volume_bytes as f64),
            keep_free_bytes: space.keep_free_while_copying_bytes as f64,
            build_s: indexed * loaded / layout.partitions as f64 / loading.index_rows_per_s.max(1.0),
            builds: loading.streams.div_ceil(hardware.nodes).clamp(1, on_node),
            what_if: input.what_if.clone(),
            seed: input.seed,
        })
    }
}

/// Refuses what cannot happen.
pub(crate) fn check(input: &Input) -> Result<(), PlanError> {
    let hardware = &input.hardware;
    let within = |what: &'static str, number: u64, most: u64| match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(PlanError::WhatIf { what, number }),
    };
    for one in &input.what_if {
        match &one.what {
            Happening::SlowDisk { node, disk, share } => {
                within("node", *node, hardware.nodes)?;
                within("disk", *disk, hardware.disks)?;
                if !(*share > 0.0 && *share <= 1.0) {
                    return Err(PlanError::Share { what: "rate of a slow disk", value: *share });
                }
            }
            Happening::Move { node, .. } => within("node", *node, hardware.nodes)?,
            Happening::Vacuum { share, .. } if !(*share > 0.0 && *share <= 1.0) => {
                return Err(PlanError::Share { what: "rate beside a vacuum", value: *share });
            }
            Happening::AgentLost | Happening::AgentBack | Happening::Vacuum { .. } => {}
        }
    }
    Ok(())
}

/// A simulation in progress.
struct Simulation<'a> {
    scenario: &'a Scenario,
    nodes: Nodes,
    queue: Queue,
    random: Random,
    forecast: Forecast,
    /// Distance of points.
    tick_s: f64,
    /// Rows of a piece.
    piece_rows: f64,
    agents: u64,
    /// The shares that vacuums leave.
    vacuums: Vec<f64>,
    /// The stop rule ended it.
    is_stopped: bool,
}

/// The course of the fill.
pub(crate) fn run(scenario: &Scenario) -> Forecast {
    let values = scenario.rows * scenario.value_bytes_per_row;
    let pieces = (values / PIECE_BYTES).clamp(1.0, PIECES_MAX).max(scenario.nodes as f64 * 100.0);
    let mut simulation = Simulation {
        scenario,
        nodes: Nodes::new(scenario),
        queue: Queue::default(),
        random: Random::new(scenario.seed),
        forecast: Forecast::default(),
        tick_s: (values / scenario.bytes_per_s / POINTS_MIN as f64).max(1e-6),
        piece_rows: scenario.rows / pieces,
        agents: scenario.agents,
        vacuums: vec![],
        is_stopped: false,
    };
    for (at, one) in scenario.what_if.iter().enumerate() {
        simulation.queue.push(one.at_s, Event::WhatIf(at));
    }
    simulation.queue.push(0.0, Event::Tick);
    simulation.start_idle(0.0);
    simulation.go()
}

impl Simulation<'_> {
    fn go(mut self) -> Forecast {
        while let Some((now, event)) = self.queue.pop() {
            self.forecast.events += 1;
            match event {
                Event::Piece(node, rows) => self.piece(now, node, rows),
                Event::WhatIf(at) => self.happen(now, at),
                Event::VacuumEnds(at) => self.vacuums[at] = 1.0,
                Event::MoveEnds { partition, from, to } => self.moved(now, partition, from, to),
                Event::Tick => self.tick(now),
            }
            if self.is_stopped || self.nodes.are_complete() {
                return self.end(now);
            }
            // Without a client host or a node at work nothing changes any more.
            if self.queue.holds_only_ticks() {
                self.forecast.outcome = "no client host is left".into();
                self.is_stopped = true;
                return self.end(now);
            }
        }
        let now = self.forecast.end_s;
        self.end(now)
    }

    /// The rate of a node now, in rows.
    fn rows_per_s(&self, node: usize) -> f64 {
        let scenario = self.scenario;
        let share = scenario.bytes_per_s / scenario.value_bytes_per_row.max(1.0);
        let most =
            share / scenario.nodes as f64 * self.nodes.share(node) * self.vacuums.iter().product::<f64>();
        let clients = share * self.agents as f64 / scenario.agents.max(1) as f64;
        most.min(clients / self.nodes.unfinished().max(1) as f64)
    }

    /// Every node that has rows left and no piece begins one.
    fn start_idle(&mut self, now: f64) {
        for node in 0..self.scenario.nodes {
            let rows = self.nodes.rows_left(node).min(self.piece_rows);
            let rate = self.rows_per_s(node);
            if self.nodes.is_busy(node) || rows <= 0.0 || rate <= 0.0 {
                continue;
            }
            self.nodes.begin(node);
            let jitter = 1.0 + JITTER * (2.0 * self.random.share() - 1.0);
            self.queue.push(now + rows / rate * jitter, Event::Piece(node, rows));
        }
    }

    fn piece(&mut self, now: f64, node: usize, rows: f64) {
        self.nodes.end(node, rows);
        if let Some(volume_bytes) = self.scenario.volume_bytes {
            let (volume, used) = self.nodes.fullest_of(node, self.scenario);
            if volume_bytes - used < self.scenario.keep_free_bytes {
                self.forecast.outcome = format!(
                    "stop rule: {} free on node {}, volume {}",
                    number::bytes(volume_bytes - used),
                    node + 1,
                    volume + 1
                );
                self.is_stopped = true;
                return;
            }
        }
        self.restart(now, node);
    }

    /// The next piece of one node: the common case, without a look at the others.
    fn restart(&mut self, now: f64, node: usize) {
        let rows = self.nodes.rows_left(node).min(self.piece_rows);
        let rate = self.rows_per_s(node);
        if rows > 0.0 && rate > 0.0 {
            self.nodes.begin(node);
            let jitter = 1.0 + JITTER * (2.0 * self.random.share() - 1.0);
            self.queue.push(now + rows / rate * jitter, Event::Piece(node, rows));
        }
    }

    fn happen(&mut self, now: f64, at: usize) {
        let what = match &self.scenario.what_if[at].what {
            Happening::SlowDisk { node, disk, share } => {
                self.nodes.slow(*node as usize - 1, *disk as usize - 1, *share);
                format!("disk {disk} of node {node} slows down to {}", number::percent(*share))
            }
            Happening::AgentLost => {
                self.agents = self.agents.saturating_sub(1);
                format!("a client host is lost, {} left", self.agents)
            }
            Happening::AgentBack => {
                self.agents = (self.agents + 1).min(self.scenario.agents);
                format!("a client host is back, {} at work", self.agents)
            }
            Happening::Vacuum { share, for_s } => {
                self.vacuums.push(*share);
                self.queue.push(now + for_s, Event::VacuumEnds(self.vacuums.len() - 1));
                format!(
                    "a vacuum leaves {} of the rate for {}",
                    number::percent(*share),
                    number::duration(*for_s)
                )
            }
            Happening::Move { partition, node } => self.begin_move(now, *partition, *node as usize - 1),
        };
        self.forecast.happened.push(Happened { t_s: now, what });
        self.start_idle(now);
    }

    fn begin_move(&mut self, now: f64, partition: u64, to: usize) -> String {
        let from = match self.nodes.owner(partition) {
            Some(from) if from != to => from,
            Some(_) => return format!("partition {partition} is on node {} already", to + 1),
            None => return format!("there is no partition {partition}"),
        };
        let scenario = self.scenario;
        let rows = self.nodes.rows_of_partition(from);
        // The copy of its bytes goes at the rate at which a node writes.
        let rate = scenario.bytes_per_s / scenario.value_bytes_per_row.max(1.0) / scenario.nodes as f64;
        let seconds = rows / rate.max(1e-9);
        self.nodes.moving(from, to, MOVING_SHARE);
        self.queue.push(now + seconds, Event::MoveEnds { partition, from, to });
        format!(
            "partition {partition} moves from node {} to node {}, for {}",
            from + 1,
            to + 1,
            number::duration(seconds)
        )
    }

    fn moved(&mut self, now: f64, partition: u64, from: usize, to: usize) {
        self.nodes.moving(from, to, 1.0);
        self.nodes.give(partition, from, to, self.scenario);
        let what = format!("partition {partition} is on node {}", to + 1);
        self.forecast.happened.push(Happened { t_s: now, what });
        self.start_idle(now);
    }

    fn tick(&mut self, now: f64) {
        let point = self.point(now);
        self.forecast.points.push(point);
        if self.forecast.points.len() > POINTS_MAX {
            let mut nth = 0;
            self.forecast.points.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.tick_s *= 2.0;
        }
        self.queue.push(now + self.tick_s, Event::Tick);
    }

    fn point(&self, now: f64) -> Point {
        let used = |node| self.nodes.fullest_of(node, self.scenario).1;
        let fullest = (0..self.scenario.nodes).map(used).fold(0.0, f64::max);
        let rows = self.nodes.rows_done();
        let every_node = self.scenario.every_node_bytes * self.scenario.nodes as f64;
        Point {
            t_s: now,
            rows: whole(rows),
            disk_bytes: whole(rows * self.scenario.copied_bytes_per_row + every_node),
            fullest: self.scenario.volume_bytes.map_or(0.0, |bytes| fullest / bytes),
            slowest: self.nodes.slowest(),
        }
    }

    /// All rows are copied, or as many as there is room for. The indexes are built if all are there.
    fn end(mut self, now: f64) -> Forecast {
        let point = self.point(now);
        self.forecast.points.push(point);
        self.forecast.copied_s = now;
        self.forecast.rows = whole(self.nodes.rows_done());
        self.forecast.end_s = now;
        if !self.is_stopped {
            self.forecast.outcome = COMPLETE.into();
            let rounds = self.nodes.partitions_max().div_ceil(self.scenario.builds.max(1));
            self.forecast.events += self.scenario.partitions;
            self.forecast.end_s += rounds as f64 * self.scenario.build_s;
            let indexes = self.scenario.rows * self.scenario.index_bytes_per_row;
            let mut last = self.point(self.forecast.end_s);
            last.disk_bytes = last.disk_bytes.saturating_add(whole(indexes));
            last.fullest *=
                1.0 + self.scenario.index_bytes_per_row / self.scenario.copied_bytes_per_row.max(1.0);
            self.forecast.points.push(last);
        }
        self.forecast
    }
}
