//! Sizes of the dataset, partitions, volumes, and how many rows fit.

use crate::book::{Book, whole};
use record::number;
use record::plan::input::{Input, TableSize};
use record::plan::{Layout, Size, Space, Tablespace, Unit};

/// Blocks of the largest relation: `MaxBlockNumber` + 1 of `src/include/storage/block.h`.
const RELATION_BLOCKS_MAX: u64 = u32::MAX as u64;
/// A partition is planned to at most this share of the largest relation: partitions are not equally large, and updates make them grow.
const PARTITION_SHARE: f64 = 0.5;
/// What is named as fitting stays this far from what just fits: partitions are not equally large.
const FITTING_SHARE: f64 = 0.999;
/// Sorts below it need no note.
const SORT_BYTES_NOTED: f64 = 1e9;

/// Bytes of a row on disk.
fn row_bytes(table: &TableSize) -> f64 {
    table.heap_bytes_per_row + table.map_bytes_per_row + table.index_bytes_per_row + table.toast_bytes_per_row
}

/// The sum over all tables, those that every node has counted for each node.
fn total(input: &Input, of: impl Fn(&TableSize) -> f64) -> f64 {
    let copies = |table: &TableSize| if table.is_whole { input.hardware.nodes as f64 } else { 1.0 };
    input.tables.iter().map(|table| table.rows as f64 * copies(table) * of(table)).sum()
}

/// The sum over the tables that nodes share, or over those that every node has.
fn sum_of(input: &Input, is_whole: bool, of: impl Fn(&TableSize) -> f64) -> f64 {
    let tables = input.tables.iter().filter(|table| table.is_whole == is_whole);
    tables.fold(0.0, |sum, table| sum + table.rows as f64 * of(table))
}

/// The table whose main fork is the largest, without those that every node has.
fn largest(input: &Input) -> Option<&TableSize> {
    let bytes = |table: &&TableSize| table.rows as f64 * table.heap_bytes_per_row;
    let divided = input.tables.iter().filter(|table| !table.is_whole);
    divided.max_by(|left, right| bytes(left).total_cmp(&bytes(right)))
}

/// The rows, and the bytes of their values, once each.
pub(crate) fn values(input: &Input, book: &mut Book) -> Size {
    let rows = input.tables.iter().fold(0u64, |sum, table| sum.saturating_add(table.rows));
    let value: f64 = input.tables.iter().map(|table| table.rows as f64 * table.value_bytes_per_row).sum();
    let given = [
        ("rows", rows as f64, Unit::Count),
        ("values per row", value / rows.max(1) as f64, Unit::BytesPerRow),
    ];
    let value = book.put("value bytes", "rows * values per row", &given, Unit::Bytes, value);
    Size { rows, value_bytes: whole(value), ..Size::default() }
}

pub(crate) fn size(input: &Input, book: &mut Book) -> Size {
    let rows = input.tables.iter().map(|table| table.rows).sum::<u64>();
    let value = total(input, |table| table.value_bytes_per_row);
    let per_row = |bytes: f64| if rows == 0 { 0.0 } else { bytes / rows as f64 };
    let count = ("rows", rows as f64, Unit::Count);
    let mut sum = |name: &str, what: &str, of: &dyn Fn(&TableSize) -> f64| {
        let bytes = total(input, of);
        let given = [count, (what, per_row(bytes), Unit::BytesPerRow)];
        book.put(name, &format!("rows * {what}"), &given, Unit::Bytes, bytes)
    };
    sum("value bytes", "values per row", &|table| table.value_bytes_per_row);
    let heap = sum("heap", "heap per row", &|table| table.heap_bytes_per_row + table.map_bytes_per_row);
    let index = sum("indexes", "index per row", &|table| table.index_bytes_per_row);
    let toast = sum("TOAST", "TOAST per row", &|table| table.toast_bytes_per_row);
    let wal = sum("WAL of the load", "WAL per row", &|table| table.wal_bytes_per_row);
    let parts = [("heap", heap, Unit::Bytes), ("indexes", index, Unit::Bytes), ("TOAST", toast, Unit::Bytes)];
    let disk = book.put("on disk", "heap + indexes + TOAST", &parts, Unit::Bytes, heap + index + toast);
    if toast > 0.0 {
        book.notes.push("long values are planned without compression; --calibrate measures it".into());
    }
    Size {
        rows,
        value_bytes: whole(value),
        heap_bytes: whole(heap),
        index_bytes: whole(index),
        toast_bytes: whole(toast),
        disk_bytes: whole(disk),
        disk_bytes_per_row: per_row(disk),
        wal_bytes: whole(wal),
    }
}

pub(crate) fn layout(input: &Input, book: &mut Book) -> Layout {
    let hardware = &input.hardware;
    let limit = RELATION_BLOCKS_MAX * input.server.block_bytes;
    let given = [
        ("blocks", RELATION_BLOCKS_MAX as f64, Unit::Count),
        ("block", input.server.block_bytes as f64, Unit::Bytes),
    ];
    book.put("largest relation", "blocks * block", &given, Unit::Bytes, limit as f64);
    let heap = largest(input).map_or(0.0, |table| table.rows as f64 * table.heap_bytes_per_row);
    let per_node = heap / hardware.nodes as f64;
    let least = (per_node / (limit as f64 * PARTITION_SHARE)).ceil().max(1.0);
    let given = [
        ("largest table", heap, Unit::Bytes),
        ("nodes", hardware.nodes as f64, Unit::Count),
        ("largest relation", limit as f64, Unit::Bytes),
        ("share", PARTITION_SHARE, Unit::Share),
    ];
    let expression = "ceil(largest table / nodes / (largest relation * share))";
    book.put("partitions of a node at least", expression, &given, Unit::Count, least);
    let volumes = if hardware.is_one_volume { 1 } else { hardware.disks };
    let per_node_min = whole(least);
    let computed = per_node_min.next_multiple_of(volumes) * hardware.nodes;
    let partitions = input.loading.partitions.map_or(computed, |given| given.max(1));
    if input.loading.partitions.is_none() {
        let given = [
            ("partitions of a node at least", least, Unit::Count),
            ("volumes", volumes as f64, Unit::Count),
            ("nodes", hardware.nodes as f64, Unit::Count),
        ];
        let expression = "partitions of a node at least, rounded up to a multiple of volumes, * nodes";
        book.put("partitions", expression, &given, Unit::Count, partitions as f64);
    }
    let partition_bytes = whole(heap / partitions as f64);
    if partition_bytes > limit {
        book.problem(
            0,
            format!(
                "a partition of {} is larger than the largest table of {}: {} partitions are needed",
                number::bytes(partition_bytes as f64),
                number::bytes(limit as f64),
                number::count(per_node_min * hardware.nodes)
            ),
        );
    }
    let ways = hardware.nodes * volumes;
    if partitions > 1 && !partitions.is_multiple_of(ways) {
        book.notes.push(format!(
            "{} partitions cannot be divided equally among {} volumes: the fullest one decides",
            number::count(partitions),
            number::count(ways)
        ));
    }
    let mut layout = Layout {
        partitions,
        relation_bytes_max: limit,
        partition_bytes,
        partitions_per_node_min: per_node_min,
        volumes_per_node: volumes,
        tablespaces: vec![],
    };
    layout.tablespaces = tablespaces(input, &layout);
    layout
}

/// Partitions of the fullest node, and of the fullest volume of it: both are assigned in turn.
pub(crate) fn fullest(input: &Input, layout: &Layout) -> (u64, u64) {
    let on_node = layout.partitions.div_ceil(input.hardware.nodes);
    (on_node, on_node.div_ceil(layout.volumes_per_node))
}

fn tablespaces(input: &Input, layout: &Layout) -> Vec<Tablespace> {
    let (on_node, _) = fullest(input, layout);
    let bytes = sum_of(input, false, row_bytes) / layout.partitions as f64;
    let names = &input.loading.tablespaces;
    let name = |at: u64| match names.get(usize::try_from(at).unwrap_or(usize::MAX)) {
        Some(name) => name.clone(),
        None if layout.volumes_per_node == 1 => "pg_default".into(),
        None => format!("d{}", at + 1),
    };
    let one = |at: u64| {
        let partitions =
            on_node / layout.volumes_per_node + u64::from(at < on_node % layout.volumes_per_node);
        Tablespace { name: name(at), partitions, bytes: whole(bytes * partitions as f64) }
    };
    (0..layout.volumes_per_node).map(one).collect()
}

/// Bytes of one sort for an index, and how many of them there are at once on a volume.
fn sorting(input: &Input, layout: &Layout) -> (f64, u64) {
    let of_table = |table: &TableSize| table.rows as f64 * table.sort_bytes_per_row;
    let largest = input.tables.iter().filter(|table| !table.is_whole).map(of_table).fold(0.0, f64::max);
    let (on_node, _) = fullest(input, layout);
    let builds = input.loading.streams.div_ceil(input.hardware.nodes).clamp(1, on_node.max(1));
    (largest / layout.partitions as f64, builds.div_ceil(layout.volumes_per_node))
}

/// What the dataset takes on the fullest volume.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// Its share of the tables that nodes share, with indexes.
    divided: f64,
    /// Of that, the indexes.
    indexes: f64,
    /// The tables that every node has.
    every_node: f64,
    /// One sort for an index, and all of them at once.
    sort: f64,
    temporary: f64,
    /// At the end, and at most.
    last: f64,
    peak: f64,
}

fn filling(input: &Input, layout: &Layout, book: &mut Book) -> Filling {
    let (_, on_volume) = fullest(input, layout);
    let share = on_volume as f64 / layout.partitions as f64;
    let divided = sum_of(input, false, row_bytes) * share;
    let indexes = sum_of(input, false, |table| table.index_bytes_per_row) * share;
    let every_node = sum_of(input, true, row_bytes);
    let (sort, builds) = sorting(input, layout);
    let temporary = sort * builds as f64;
    let given = [
        ("bytes of all partitions", divided / share, Unit::Bytes),
        ("share of a volume", share, Unit::Share),
        ("tables of every node", every_node, Unit::Bytes),
    ];
    let expression = "bytes of all partitions * share of a volume + tables of every node";
    let last = book.put("fullest volume", expression, &given, Unit::Bytes, divided + every_node);
    let given = [
        ("sort", sort, Unit::Bytes),
        ("sorts at once", builds as f64, Unit::Count),
        ("fullest volume", last, Unit::Bytes),
    ];
    let expression = "fullest volume + sort * sorts at once";
    let peak = book.put("peak", expression, &given, Unit::Bytes, last + temporary);
    Filling { divided, indexes, every_node, sort, temporary, last, peak }
}

pub(crate) fn space(input: &Input, layout: &Layout, size: &Size, book: &mut Book) -> Space {
    let hardware = &input.hardware;
    let filling = filling(input, layout, book);
    let reserve = hardware.keep_free_bytes as f64;
    let mut space = Space {
        final_bytes: whole(filling.last),
        peak_bytes: whole(filling.peak),
        keep_free_bytes: hardware.keep_free_bytes,
        keep_free_while_copying_bytes: whole(filling.indexes + reserve.max(filling.temporary)),
        ..Space::default()
    };
    if hardware.disk_bytes == 0 {
        book.notes.push("the capacity is not known: give --disk SIZE to see whether it fits".into());
        return space;
    }
    let disks = if hardware.is_one_volume { hardware.disks } else { 1 };
    let given = [
        ("disk", hardware.disk_bytes as f64, Unit::Bytes),
        ("disks of a volume", disks as f64, Unit::Count),
        ("usable", hardware.usable_share, Unit::Share),
    ];
    let volume = hardware.disk_bytes as f64 * disks as f64 * hardware.usable_share;
    let volume = book.put("volume", "disk * disks of a volume * usable", &given, Unit::Bytes, volume);
    let loaded = fill(&mut space, &filling, volume, size, book);
    let (indexes, sorts) = (filling.indexes * loaded, filling.temporary * loaded);
    let given = [
        ("indexes of a volume", indexes, Unit::Bytes),
        ("reserve", reserve, Unit::Bytes),
        ("sorts", sorts, Unit::Bytes),
        ("margin", FITTING_SHARE, Unit::Share),
    ];
    let expression = "(indexes of a volume + max(reserve, sorts)) * margin";
    let keep_free = (indexes + reserve.max(sorts)) * FITTING_SHARE;
    let keep_free = book.put("free when the rows are copied", expression, &given, Unit::Bytes, keep_free);
    space.keep_free_while_copying_bytes = whole(keep_free);
    judge(input, layout, size, &space, book);
    if filling.sort >= SORT_BYTES_NOTED && layout.volumes_per_node > 1 {
        book.notes.push(format!(
            "each sort for an index needs {} of temporary files: set temp_tablespaces to all tablespaces of the node",
            number::bytes(filling.sort)
        ));
    }
    space
}

/// Enters how many rows fit on volumes of this size; gives the share of the dataset that is loaded.
fn fill(space: &mut Space, filling: &Filling, volume: f64, size: &Size, book: &mut Book) -> f64 {
    let (rows, reserve) = (size.rows as f64, space.keep_free_bytes as f64);
    let fraction = fitting(volume, reserve, filling);
    let given = [
        ("rows", rows, Unit::Count),
        ("volume", volume, Unit::Bytes),
        ("reserve", reserve, Unit::Bytes),
        ("fullest volume", filling.last, Unit::Bytes),
        ("peak", filling.peak, Unit::Bytes),
        ("margin", FITTING_SHARE, Unit::Share),
    ];
    let expression = "rows * min((volume - reserve) / fullest volume, volume / peak) * margin";
    let rows_max = (rows * fraction * FITTING_SHARE).floor();
    let rows_max = book.put("rows that fit", expression, &given, Unit::Count, rows_max);
    // Between the margin and the limit it fits, and nothing is left over.
    let rows_max = if fraction >= 1.0 { rows_max.max(rows) } else { rows_max };
    (space.is_known, space.volume_bytes, space.rows_max) = (true, whole(volume), whole(rows_max));
    space.disk_bytes_max = whole(size.disk_bytes as f64 * rows_max / rows);
    space.value_bytes_max = whole(size.value_bytes as f64 * rows_max / rows);
    fraction.min(1.0)
}

/// How many times the dataset fits on its volumes.
fn fitting(volume: f64, reserve: f64, filling: &Filling) -> f64 {
    let Filling { divided, every_node, temporary, .. } = *filling;
    if divided <= 0.0 {
        return if every_node + reserve <= volume { 1.0 } else { 0.0 };
    }
    let at_the_end = (volume - reserve - every_node) / divided;
    let at_the_peak = (volume - every_node) / (divided + temporary);
    at_the_end.min(at_the_peak).max(0.0)
}

fn judge(input: &Input, layout: &Layout, size: &Size, space: &Space, book: &mut Book) {
    if space.rows_max >= size.rows {
        return;
    }
    let of_volumes = match layout.volumes_per_node * input.hardware.nodes {
        1 => "the volume".to_string(),
        volumes => format!("each of {} volumes", number::count(volumes)),
    };
    book.problem(
        1,
        format!(
            "it will not fit: stop at {} rows ({}), when {} are on disk and {} are free on {}; {} rows need {}",
            number::count(space.rows_max),
            number::percent(space.rows_max as f64 / size.rows as f64),
            number::bytes(space.disk_bytes_max as f64),
            number::bytes(space.keep_free_bytes as f64),
            of_volumes,
            number::count(size.rows),
            number::bytes(size.disk_bytes as f64)
        ),
    );
}
