//! The arithmetic of a load before it starts: sizes, rates, times, and a simulation that checks them.
//!
//! [`compute`] turns an [`Input`] into a [`Plan`]. Nothing here reads a file, a clock or a server: the same input gives the same plan. A dataset
//! comes as [`page::TableSample`]s, so no benchmark is known here by name.
//!
//! | module | computes |
//! |---|---|
//! | [`tuple`], [`page`] | bytes per row, from PostgreSQL's page layout |
//! | `layout` | sizes, partitions, volumes, rows that fit |
//! | `pace` | rates, durations, WAL, clients |
//! | `upkeep` | transaction ids and vacuum |
//! | `costs` | commit latencies, replicas, money |
//! | [`simulate`] | the fill, event by event |
//! | [`text`] | what the terminal shows |

mod book;
pub mod costs;
mod error;
mod layout;
mod pace;
pub mod page;
pub mod simulate;
pub mod text;
pub mod tuple;
mod upkeep;

use book::Book;
pub use error::PlanError;
pub use record::plan::input::Input;
pub use record::plan::{Plan, SCHEMA};
use simulate::Scenario;

/// The most bytes of values that a plan takes: twenty petabytes. Beyond it nothing here was tried.
pub(crate) const VALUE_BYTES_MAX: f64 = 20e15;
/// The most rows.
pub(crate) const ROWS_MAX: u64 = 20_000_000_000_000;
/// The most nodes, disks of a node, and standbys of a node.
pub(crate) const NODES_MAX: u64 = 1_000;
pub(crate) const DISKS_MAX: u64 = 256;
pub(crate) const STANDBYS_MAX: u64 = 16;

/// The plan of an input.
///
/// # Errors
/// When a number of the input is impossible.
pub fn compute(input: Input) -> Result<Plan, PlanError> {
    check(&input)?;
    if input.other_storage.is_some() {
        return Ok(of_other_storage(input));
    }
    let mut book = Book::default();
    let size = layout::size(&input, &mut book);
    let layout = layout::layout(&input, &mut book);
    let space = layout::space(&input, &layout, &size, &mut book);
    let time = pace::time(&input, &layout, &size, &space, &mut book);
    let wal = pace::wal(&input, &size, &time, &mut book);
    let transactions = upkeep::transactions(&input, &size, &mut book);
    let vacuum = upkeep::vacuum(&input, &layout, &size, &mut book);
    let clients = pace::clients(&input, &time, &mut book);
    let commits = costs::commits(&input, &mut book);
    let money = costs::money(&input, &time, &clients, &mut book);
    let forecast = match Scenario::of(&input, &layout, &space) {
        Some(scenario) => simulate::run(&scenario),
        None => record::plan::Forecast::default(),
    };
    if forecast.events > 0 && forecast.outcome != simulate::COMPLETE && book.problems.is_empty() {
        book.notes.push(format!("the simulated load does not complete: {}", forecast.outcome));
    }
    let parts = Plan {
        size,
        layout,
        space,
        time,
        transactions,
        vacuum,
        wal,
        clients,
        commits,
        money,
        forecast,
        ..Plan::default()
    };
    Ok(bound(book, parts, input))
}

/// The plan for an engine that does not store rows as PostgreSQL does: rows, their values, clients, commits, and the time at a measured rate. What follows from
/// pages, WAL and transaction ids is left out.
fn of_other_storage(input: Input) -> Plan {
    let mut book = Book::default();
    let size = layout::values(&input, &mut book);
    let time = pace::time_of_values(&input, &size, &mut book);
    let clients = pace::clients(&input, &time, &mut book);
    let commits = costs::commits(&input, &mut book);
    let money = costs::money(&input, &time, &clients, &mut book);
    if !input.what_if.is_empty() {
        book.notes.push(
            "nothing was simulated: the simulation fills disks, and what rows take on them is unknown".into(),
        );
    }
    bound(book, Plan { size, time, clients, commits, money, ..Plan::default() }, input)
}

/// The parts of a plan with its book.
fn bound(book: Book, parts: Plan, input: Input) -> Plan {
    let Book { formulas, mut problems, notes } = book;
    problems.sort_by_key(|problem| problem.rank);
    Plan {
        schema: SCHEMA.into(),
        schema_version: record::SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        fits: problems.is_empty(),
        problems: problems.into_iter().map(|problem| problem.text).collect(),
        notes,
        formulas,
        input,
        ..parts
    }
}

/// Refuses numbers that have no meaning.
fn check(input: &Input) -> Result<(), PlanError> {
    let hardware = &input.hardware;
    let bounded =
        |what: &'static str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(PlanError::Count { what, value, least, most }),
        };
    bounded("nodes", hardware.nodes, 1, NODES_MAX)?;
    bounded("disks", hardware.disks, 1, DISKS_MAX)?;
    bounded("standbys", hardware.standbys, 0, STANDBYS_MAX)?;
    bounded("client hosts", input.loading.agents, 1, NODES_MAX)?;
    if let Some(partitions) = input.loading.partitions {
        bounded("partitions", partitions, 0, u64::from(u16::MAX))?;
        if partitions > 0 && partitions < hardware.nodes {
            return Err(PlanError::Partitions { partitions, nodes: hardware.nodes });
        }
    }
    let bytes: f64 = input.tables.iter().map(|table| table.rows as f64 * table.value_bytes_per_row).sum();
    if bytes > VALUE_BYTES_MAX {
        return Err(PlanError::TooLarge { bytes });
    }
    let rows = input.tables.iter().fold(0u64, |sum, table| sum.saturating_add(table.rows));
    bounded("rows", rows, 1, ROWS_MAX)?;
    if hardware.disk_bytes > 0 && !(hardware.usable_share > 0.0 && hardware.usable_share <= 1.0) {
        return Err(PlanError::Share { what: "usable share of a disk", value: hardware.usable_share });
    }
    let names = &input.loading.tablespaces;
    if !names.is_empty() && !hardware.is_one_volume && names.len() as u64 != hardware.disks {
        return Err(PlanError::Tablespaces { names: names.len() as u64, disks: hardware.disks });
    }
    simulate::check(input)
}
