//! The fast method: the server sums up a hash of every row, the client computes the same sum, and two numbers per cell are compared.
//!
//! Where they differ and cells are whole partitions, the same is done for buckets of keys; only rows of cells that differ have to be read.

use super::Setting;
use super::content::{RowHash, row_hash_sql};
use super::error::VerifyError;
use super::grid::{Grid, Numbers, Selection, Shape, bucket_sql, cell_sql};
use super::workers::{Coordinator, Phase, Queues, Task, number};
use crate::dataset::{Buckets, Sum};

/// What both sides came to.
#[derive(Debug)]
pub(super) struct Compared {
    /// Rows that must be there, by table.
    pub(super) expected: Vec<u64>,
    /// Rows that are there, by leaf.
    pub(super) found: Vec<u64>,
    /// Bytes of the values that must be there, by cell, where only encoding gives them.
    pub(super) bytes: Vec<u64>,
    /// What has to be read.
    pub(super) differing: Selection,
}

/// One thread's share of one side.
pub(super) enum Share {
    /// Sums and bytes by cell.
    Expected(Vec<Sum>, Vec<u64>),
    /// Sums by cell, and rows by leaf.
    Found(Vec<Sum>, Vec<u64>),
}

/// Compares all tables, and those that differ by smaller cells where these are too large to be read.
pub(super) fn compare(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
) -> Result<Compared, VerifyError> {
    let tables = 0..setting.catalog.tables.len();
    let grid = Grid::new(tables.clone().map(|at| Shape::coarse(setting, at)));
    let (expected, found, rows, bytes) =
        both_sides(setting, coordinator, Phase::Sum, &Selection::all(grid.clone()))?;
    let count = |at| grid.of_table(at).map(|cell| expected[cell].rows).sum();
    let of_tables = tables.clone().map(count).collect();
    let differing: Vec<usize> = (0..expected.len()).filter(|cell| expected[*cell] != found[*cell]).collect();
    let done = |differing| Compared { expected: of_tables, found: rows, bytes, differing };
    if differing.is_empty() || setting.hashing.is_none() {
        return Ok(done(Selection::of(grid, differing)));
    }
    let partitions: Vec<Vec<u32>> = tables
        .map(|at| grid.of_table(at).filter(|cell| differing.binary_search(cell).is_ok()))
        .enumerate()
        .map(|(at, cells)| cells.filter_map(|cell| grid.partition(at, cell)).collect())
        .collect();
    let several = partitions.iter().filter(|partitions| !partitions.is_empty()).count() as u64;
    let shape = |(at, partitions): (usize, &Vec<u32>)| match partitions.is_empty() {
        true => Shape::Out,
        false => Shape::fine(setting, at, partitions, several),
    };
    let grid = Grid::new(partitions.iter().enumerate().map(shape));
    let all = Selection::all(grid);
    let (expected, found, ..) =
        both_sides(setting, coordinator, Phase::Narrow, &Selection { is_all: false, ..all.clone() })?;
    let differing = (0..expected.len()).filter(|cell| expected[*cell] != found[*cell]);
    Ok(done(Selection::of(all.grid, differing)))
}

type Sides = (Vec<Sum>, Vec<Sum>, Vec<u64>, Vec<u64>);

fn both_sides(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    phase: Phase,
    selection: &Selection,
) -> Result<Sides, VerifyError> {
    let numbers = Numbers::new(setting, selection);
    let (pieces, is_split) = sum_pieces(setting, selection);
    let queues = setting.queues(&pieces);
    let (queues, pieces) = (&queues, &pieces);
    let mut tasks: Vec<Task<'_, Share>> = Vec::new();
    for (site, helpers) in queues.connections(setting.jobs) {
        // A scan that is not split into pieces may use more of the server than its own backend.
        let helpers = if is_split { 0 } else { helpers };
        tasks.push(Box::new(move || server_sums(setting, &selection.grid, pieces, queues, site, helpers)));
    }
    // A backend needs more than twice the time for a row than we do.
    for _ in 0..setting.jobs.div_ceil(2) {
        tasks.push(Box::new(|| loaded_sums(setting, &selection.grid, &numbers)));
    }
    let (mut expected, mut found) = (selection.grid.zeros(), selection.grid.zeros());
    let (mut rows, mut bytes) = (vec![0; setting.catalog.leaves.len()], vec![0; expected.len()]);
    for share in coordinator.run(&setting.workers, phase, numbers.rows(setting.content), tasks)? {
        share.add_to((&mut expected, &mut bytes), (&mut found, &mut rows));
    }
    Ok((expected, found, rows, bytes))
}

impl Share {
    /// Adds it to both sides.
    pub(super) fn add_to(
        self,
        expected: (&mut Vec<Sum>, &mut Vec<u64>),
        found: (&mut Vec<Sum>, &mut Vec<u64>),
    ) {
        let (side, sums, counts) = match self {
            Share::Expected(sums, bytes) => (expected, sums, bytes),
            Share::Found(sums, rows) => (found, sums, rows),
        };
        side.0.iter_mut().zip(sums).for_each(|(sum, part)| sum.add(part.rows, part.hash));
        side.1.iter_mut().zip(counts).for_each(|(count, part)| *count += part);
    }
}

/// What the servers sum up at once, and whether leaves are split: where cells are few, a scan in parallel workers costs us less than many answers.
fn sum_pieces(setting: &Setting<'_>, selection: &Selection) -> (Vec<super::Piece>, bool) {
    let is_split = setting.hashing.is_none();
    let wanted = |leaf: &usize| {
        let leaf = &setting.catalog.leaves[*leaf];
        let has_cells = match selection.grid.shape(leaf.at) {
            Shape::Out => false,
            Shape::Numbers { .. } => setting.content.tables()[setting.catalog.tables[leaf.at].table].rows > 0,
            Shape::Buckets { slots, .. } => slots[leaf.partition as usize].is_some(),
        };
        leaf.is_home && has_cells
    };
    let leaves = (0..setting.catalog.leaves.len()).filter(wanted);
    let pieces = leaves.flat_map(|leaf| match is_split {
        true => setting.pieces(leaf, None),
        false => vec![super::Piece { leaf, condition: None }],
    });
    (pieces.filter(|piece| setting.catalog.leaves[piece.leaf].relation.is_some()).collect(), is_split)
}

/// What the servers have, for nodes that are compared with each other.
pub(super) fn of_servers(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    grid: &Grid,
) -> Result<Vec<Sum>, VerifyError> {
    let (pieces, _) = sum_pieces(setting, &Selection::all(grid.clone()));
    let queues = setting.queues(&pieces);
    let (queues, pieces) = (&queues, &pieces);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, helpers)| -> Task<'_, Share> {
        Box::new(move || server_sums(setting, grid, pieces, queues, site, helpers))
    });
    let mut sums = grid.zeros();
    for share in coordinator.run(&setting.workers, Phase::Compare, 0, tasks.collect())? {
        share.add_to((&mut Vec::new(), &mut Vec::new()), (&mut sums, &mut Vec::new()));
    }
    Ok(sums)
}

/// Sums up what must be in the cells.
fn loaded_sums(setting: &Setting<'_>, grid: &Grid, numbers: &Numbers<'_>) -> Result<Share, VerifyError> {
    let mut sums = grid.zeros();
    let mut bytes = vec![0; sums.len()];
    while let Some((at, cell, rows)) = numbers.take(&setting.workers)? {
        let table = setting.catalog.tables[at].table;
        match grid.shape(at) {
            Shape::Buckets { bits, slots } => {
                setting.workers.did(setting.content.rows_in(rows.end - rows.start));
                let sums = &mut sums[grid.of_table(at)];
                setting.content.add_loaded(table, rows, &mut Buckets::new(slots, *bits, sums));
            }
            _ => {
                let Some(cell) = cell else { continue };
                let (sum, size) = loaded_sum(setting, table, rows)?;
                setting.workers.did(sum.rows);
                (sums[cell], bytes[cell]) = (sum, size);
            }
        }
    }
    Ok(Share::Expected(sums, bytes))
}

/// The sum of the hashes of loaded rows, and the bytes of their values.
fn loaded_sum(
    setting: &Setting<'_>,
    table: usize,
    rows: std::ops::Range<u64>,
) -> Result<(Sum, u64), VerifyError> {
    let mut hash = RowHash::new(&setting.content.tables()[table]);
    let (mut sum, mut bytes, mut failed) = (Sum::default(), 0, None);
    setting.content.each_loaded(table, rows, &mut |_, tuple| {
        bytes += tuple.value_bytes();
        match hash.of(tuple.payload()) {
            Ok(hash) => sum.add(1, hash),
            Err(error) => failed = Some(error),
        }
    });
    let doing = || format!("computing rows of {}", setting.content.tables()[table].name);
    failed.map_or(Ok((sum, bytes)), |source| Err(VerifyError::Copy { doing: doing(), source }))
}

/// Lets a server sum up piece after piece. `helpers`: what a scan may use of the server beyond its own backend.
fn server_sums(
    setting: &Setting<'_>,
    grid: &Grid,
    pieces: &[super::Piece],
    queues: &Queues,
    site: usize,
    helpers: usize,
) -> Result<Share, VerifyError> {
    let (mut sums, mut rows) = (grid.zeros(), vec![0; setting.catalog.leaves.len()]);
    let mut reader = setting.workers.open(site)?;
    if helpers > 0 {
        let enable = format!("set local max_parallel_workers_per_gather = {helpers}");
        reader.execute("enabling parallel workers", &enable)?;
    }
    while let Some(piece) = queues.next(site).map(|number| &pieces[number]) {
        setting.workers.check()?;
        let leaf = &setting.catalog.leaves[piece.leaf];
        let table = &setting.content.tables()[setting.catalog.tables[leaf.at].table];
        let Some(relation) = &leaf.relation else { continue };
        let doing = format!("summing up {}", setting.catalog.names[piece.leaf]);
        let cell = match grid.shape(leaf.at) {
            Shape::Buckets { bits, .. } => bucket_sql(setting, *bits),
            shape => cell_sql(setting.content, setting.catalog.tables[leaf.at].table, shape),
        };
        let hash = row_hash_sql(setting.hashing.as_ref(), table, setting.by_digest);
        let sql = format!(
            "select {cell}, count(*), coalesce(sum({hash}), 0) from only {relation}{} group by 1",
            piece.filter()
        );
        reader.query(&doing, &sql, |row| {
            let value = |column: usize| number(&doing, row.get(column).copied().flatten());
            let (count, hash) = (value(1)? as u64, value(2)? as u64);
            rows[piece.leaf] += count;
            let cell = grid.named(leaf.at, leaf.partition, value(0)?);
            // The server's sum is exact; ours is modulo 2^64.
            sums[cell.expect("only leaves with cells are summed up")].add(count, hash);
            Ok(())
        })?;
    }
    Ok(Share::Found(sums, rows))
}
