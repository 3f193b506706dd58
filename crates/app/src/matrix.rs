//! `matrix`: the same select and the same update for every pair of connect node and data node.
//!
//! Sessions are pinned to the connect node, keys to the data node. The time of every cell is cut into rounds, each with a new order of the cells,
//! so that drift during the run affects all cells alike. Round trips between the nodes are counted if a server can count them (see [`trips`]).

mod cell;
mod shape;
mod trips;

use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::moved::Moved;
use crate::prove::commits::Commits;
use crate::recording::{Recording, fields};
use crate::skeleton::{NoOutcome, Opening, Outcome, Target, in_steps};
use cell::{Cell, Visit};
use engines::Cluster;
use engines::profile::KeyedTrips;
use lab::local::NodeWays;
use record::matrix as names;
use record::{Exit, State};
use run::client::SessionRecord;
use run::control::StopFlag;
use run::drive::SESSIONS_MAX;
use run::random::Random;
use run::workload::{Item, Mix};
use serde_json::json;
use shape::Shape;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use workloads::driving::{Drawn, InMix, Keyed, keyed};

/// Separates the stream that orders the cells from the seed's other uses.
const ORDER_STREAM: u64 = 0x6d61_7472_6978_2121;

/// Which cluster's matrix to measure, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the cluster is.
    pub address: Address,
    /// Only this operation; `None`: both.
    pub only: Option<Operation>,
    /// Sessions in each cell.
    pub client: u64,
    /// Worker threads; `None`: as many as the sessions need.
    pub jobs: Option<u64>,
    /// How long each cell is measured, all rounds together.
    pub time: Duration,
    /// Rounds that the time of a cell is cut into.
    pub rounds: u64,
    /// Drive each cell without measuring first, in each round.
    pub warmup: Duration,
    /// Seed of every random choice; `None`: one from the clock.
    pub random_seed: Option<u64>,
    /// Messages of a prepared statement.
    pub wire: wire::prepared::Wire,
    /// Time between two lines of progress.
    pub progress: Option<Duration>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

/// What a cell does again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// One row by key
    Select,
    /// One field of one row by key
    Update,
}

impl Operation {
    /// Its name in steps and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Select => "select",
            Operation::Update => "update",
        }
    }

    /// Its round trips.
    fn of(self, trips: KeyedTrips) -> f64 {
        match self {
            Operation::Select => trips.select,
            Operation::Update => trips.update,
        }
    }
}

impl Plan {
    /// Measures the matrix and writes the run directory.
    ///
    /// # Errors
    /// When the cluster or its dataset is not what a matrix needs, or no cell could be measured.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.address.explained(self.measured(context))
    }

    fn measured(&self, context: &Context) -> Result<Exit, Failure> {
        let cluster = self.address.cluster(context)?;
        let entry = cluster.entry_node();
        let spec = cluster.nodes[entry].spec.clone();
        let mut control = connect::control::connect(&spec)?;
        let rows = keyed(&mut control)?;
        let mut shape = Shape::of(&cluster, &mut control, entry, &*rows, self.client, self.only)?;
        leave_out_updates(&cluster, &*rows, &mut shape)?;
        let sessions = shape.pairs.len() as u64 * self.client;
        if sessions > SESSIONS_MAX {
            return Err(Failure::usage(format!(
                "-c {}: {} of the matrix have {sessions} sessions together, and a run can distinguish at most {SESSIONS_MAX}",
                self.client,
                human::plural(shape.pairs.len() as u64, "cell"),
            ))
            .hint(format!("use at most -c {}", (SESSIONS_MAX / shape.pairs.len() as u64).max(1))));
        }
        let opening = Opening::new(names::VERB, cluster.engine.name(), self.directory.as_deref());
        let recording = opening.open(context, Target::node(&cluster, entry), &mut control)?;
        in_steps(recording, |recording| self.visit_cells(recording, &cluster, control, (&*rows, &shape)))
    }

    fn visit_cells(
        &self,
        recording: &Recording<'_>,
        cluster: &Cluster,
        mut control: connect::control::Control,
        (rows, shape): (&dyn Keyed, &Shape),
    ) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        for note in &shape.notes {
            context.terminal.say(&format!("note: {note}"));
        }
        self.announce(context, shape);
        let mut cells = Vec::new();
        for (at, pair) in shape.pairs.iter().enumerate() {
            for operation in &shape.operations {
                cells.push(Cell::begin(recording, cluster, *operation, at as u64 * self.client, *pair)?);
            }
        }
        let commits = Commits::of(&self.address, context)?;
        let ways = match self.address.file() {
            Some(file) => NodeWays::of(file.folder()).map_err(Failure::from)?,
            None => NodeWays::default(),
        };
        let round_trips = match trips::probe(cluster, &ways, shape, rows) {
            Ok(probe) => Some(probe),
            Err(why) => {
                context.terminal.detail(&format!("round trips cannot be measured: {why}"));
                None
            }
        };
        let mut work = Work {
            matrix: self,
            context,
            recording,
            cluster,
            rows,
            shape,
            notes: shape.notes.clone(),
            stop: context.stop.session_flag(),
            seed: self.random_seed.unwrap_or_else(record::clock::wall_us),
        };
        let moved = Moved::begin(recording, Some(&mut control));
        let measured = work.measure(&mut control, &mut cells);
        context.terminal.end_progress();
        measured.map_err(NoOutcome::Refused)?;
        work.notes.extend(moved.notes(recording, Some(&mut control), &[]));
        work.write(&mut cells, round_trips.as_ref());
        if let Some((commits, first)) = commits.zip(cells.first()) {
            // Commits are about the cluster; the page of a directory shows them once.
            recording.keep(recording.dir().edit_step(&first.step, |step| commits.add_to(&mut step.summary)));
        }
        let state = context.state();
        let exit = match () {
            () if state == State::Interrupted => Exit::Interrupted,
            () if cells.iter().any(Cell::has_errors) => Exit::Errors,
            () if !names::verdict(&recording.dir().run().steps).valid => Exit::Invalid,
            () => Exit::Ok,
        };
        Ok(Outcome::page(state, exit))
    }

    fn announce(&self, context: &Context, shape: &Shape) {
        let cells = shape.pairs.len() * shape.operations.len();
        let each = self.time + self.warmup * self.rounds as u32;
        context.terminal.say(&format!(
            "{} of {} each, in {}: about {}",
            human::plural(cells as u64, "cell"),
            human::seconds(each.as_secs_f64()),
            human::plural(self.rounds, "round"),
            human::seconds(each.as_secs_f64() * cells as f64)
        ));
    }
}

/// With a node away nothing is updated: a run has to be entered in every node's ledger, or its number could be given out twice. Reading goes on, and
/// finds the holes.
fn leave_out_updates(cluster: &Cluster, rows: &dyn Keyed, shape: &mut Shape) -> Result<(), Failure> {
    if !shape.operations.contains(&Operation::Update) {
        return Ok(());
    }
    let Err(failure) = rows.check_ledgers(cluster).map_err(Failure::from) else { return Ok(()) };
    shape.operations.retain(|operation| *operation != Operation::Update);
    if shape.operations.is_empty() {
        return Err(failure);
    }
    shape.notes.push(format!(
        "updates are not measured, because they must be recorded in the ledger of every node: {}",
        failure.message()
    ));
    Ok(())
}

/// A matrix being measured.
struct Work<'a> {
    matrix: &'a Plan,
    context: &'a Context,
    recording: &'a Recording<'a>,
    cluster: &'a Cluster,
    rows: &'a dyn Keyed,
    shape: &'a Shape,
    /// What holds for all cells.
    notes: Vec<String>,
    stop: Arc<StopFlag>,
    seed: u64,
}

impl Work<'_> {
    /// All rounds. An error of a single cell is noted there; only when no cell works is it the end.
    fn measure(
        &mut self,
        control: &mut connect::control::Control,
        cells: &mut [Cell],
    ) -> Result<(), Failure> {
        let visits = cells.len() as u64 * self.matrix.rounds;
        let mut visited = 0;
        for round in 0..self.matrix.rounds {
            // Every round draws anew.
            let seed = self.seed.wrapping_add(round);
            let (mut updates, mut announces) = (None, None);
            if self.shape.operations.contains(&Operation::Update) {
                let name = Operation::Update.name().to_owned();
                let items = [Item { name, weight: 1 }];
                let run = InMix { items: &items, first: 0, seed };
                let writer = self.rows.updates(self.drawn(Operation::Update));
                let entry = writer.announce(run, self.cluster, control)?;
                (updates, announces) = (entry.workload, entry.announced);
            }
            let mut records = vec![SessionRecord::default(); self.sessions() as usize];
            for at in self.order(cells.len(), round) {
                let cell = &mut cells[at];
                visited += 1;
                if self.stop.requests() > 0 || cell.is_given_up() {
                    continue;
                }
                let updates = updates.as_ref().filter(|_| cell.operation == Operation::Update);
                let workload =
                    updates.cloned().unwrap_or_else(|| self.rows.reads(self.drawn(cell.operation)));
                let workload =
                    Mix::of(workload).ok_or_else(|| Failure::usage("the operation has no weight"))?;
                let label = format!("{visited}/{visits} {}", self.title(cell));
                let left = cell.visit(&self.visit(&label), workload, seed)?;
                if cell.operation == Operation::Update {
                    for (at, record) in left.into_iter().enumerate() {
                        records[cell.first_session as usize + at] = record;
                    }
                }
            }
            if let Some(announced) = announces {
                announced.finish(&records)?;
            }
        }
        match cells.iter_mut().find_map(Cell::take_failure) {
            Some(failure) if cells.iter().all(Cell::is_empty) => {
                Err(failure.context("no cell of the matrix could be measured"))
            }
            _ => Ok(()),
        }
    }

    fn sessions(&self) -> u64 {
        self.shape.pairs.len() as u64 * self.matrix.client
    }

    fn drawn(&self, operation: Operation) -> Drawn {
        let homes = self.shape.homes.clone();
        Drawn { item: operation.name().to_owned(), sessions: self.sessions(), homes }
    }

    /// The cells in a round's own order.
    fn order(&self, cells: usize, round: u64) -> Vec<usize> {
        let mut random = Random::for_transaction(self.seed, ORDER_STREAM, round);
        let mut order: Vec<usize> = (0..cells).collect();
        for left in (1..cells).rev() {
            order.swap(left, random.below(left as u64 + 1) as usize);
        }
        order
    }

    fn title(&self, cell: &Cell) -> String {
        let name = |node: usize| self.cluster.nodes[node].name.as_str();
        let (connect, data) = cell.pair;
        match data {
            Some(data) => format!("{} {} -> {}", cell.operation.name(), name(connect), name(data)),
            None => format!("{} {}", cell.operation.name(), name(connect)),
        }
    }

    fn visit<'v>(&'v self, label: &'v str) -> Visit<'v> {
        Visit {
            matrix: self.matrix,
            context: self.context,
            recording: self.recording,
            cluster: self.cluster,
            stop: &self.stop,
            label,
        }
    }

    /// Writes every cell down as a step, with what its round trips explain.
    fn write(&self, cells: &mut [Cell], probe: Option<&trips::Probe>) {
        let own = |operation: Operation, node: usize| {
            let own =
                cells.iter().find(|cell| cell.operation == operation && cell.pair == (node, Some(node)));
            own.and_then(Cell::p50_us)
        };
        let distances: Vec<_> = cells
            .iter()
            .map(|cell| {
                let (connect, data) = (cell.pair.0, cell.pair.1.filter(|data| *data != cell.pair.0)?);
                // A coordinator without rows has no own time.
                let of_data = own(cell.operation, data)?;
                let slower = own(cell.operation, connect).map_or(of_data, |of_entry| of_entry.max(of_data));
                Some(probe?.explain(cell.operation, (connect, data), slower, cell.p50_us()?))
            })
            .collect();
        let mut dataset = Some(self.rows.dataset().described());
        for (cell, distance) in cells.iter_mut().zip(distances) {
            let parameters = fields(json!({
                names::OPERATION: cell.operation.name(),
                names::CONNECT: self.cluster.nodes[cell.pair.0].name,
                names::DATA: cell.pair.1.map(|data| self.cluster.nodes[data].name.clone()),
                "sessions": self.matrix.client,
                "time_s": self.matrix.time.as_secs_f64(),
                "rounds": self.matrix.rounds,
                "warmup_s": self.matrix.warmup.as_secs_f64(),
                "seed": self.seed,
                "wire": self.matrix.wire.name(),
            }));
            // Once is enough: all cells work on the same rows.
            let is_interrupted = self.context.stop.is_requested();
            cell.write(self.recording, parameters, dataset.take(), distance, &self.notes, is_interrupted);
        }
    }
}
