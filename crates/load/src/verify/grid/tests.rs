use data::ycsb::{Compressible, KeyOrder, Spec};

use super::*;
use crate::options::Stop;
use crate::verify::catalog::{Catalog, TableAt};
use crate::ycsb::Ycsb;

fn with_setting<T>(rows: u64, partitions: u32, test: impl FnOnce(&Setting<'_>) -> T) -> T {
    let spec = Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    let (ycsb, stop) = (Ycsb::new(rows, spec), Stop::new());
    let table = TableAt { table: 0, node: None, first_leaf: 0, partitions };
    let catalog = Catalog { tables: vec![table], ..Catalog::new() };
    test(&Setting::without_servers(&ycsb, &catalog, &stop))
}

#[test]
fn buckets_keep_their_limits_and_number_every_cell_once() {
    for (partitions, rows) in [(1, 0), (1, 1_000_000), (3, 100), (70, 1_000_000_000_000), (4096, 1 << 40)] {
        with_setting(rows, partitions, |setting| {
            let shape = Shape::fine(setting, 0, &(0..partitions).collect::<Vec<_>>(), 1);
            let Shape::Buckets { bits, .. } = &shape else { panic!("{shape:?}") };
            let grid = Grid::new([shape.clone()]);
            assert!(grid.zeros().len() as u64 <= CELLS_MAX && *bits <= BUCKET_BITS_MAX);
            for partition in [0, partitions / 2, partitions - 1] {
                let bucket = (1i128 << bits) - 1;
                let cell = grid.named(0, partition, bucket).expect("all partitions have cells");
                assert_eq!(grid.partition(0, cell), Some(partition));
                assert_eq!(
                    grid.named(0, partition, bucket | 1 << 62),
                    Some(cell),
                    "the low bits number a bucket"
                );
            }
        });
    }
    with_setting(1_000_000, 1, |setting| {
        assert_eq!(Shape::fine(setting, 0, &[0], 1), Shape::Buckets { bits: 13, slots: vec![Some(0)] });
    });
}

#[test]
fn every_number_is_handed_out_once_with_its_cell() {
    let stop = Stop::new();
    let workers = Workers::new(Vec::new(), &stop);
    with_setting(100_001, 4, |setting| {
        let ranges = Shape::numbers(setting.content, 0);
        let Shape::Numbers { per_cell, cells } = ranges else { panic!("{ranges:?}") };
        assert_eq!(cells, 100_001u64.div_ceil(per_cell));
        for shape in [ranges.clone(), Shape::fine(setting, 0, &[1, 3], 1)] {
            let selection = Selection::all(Grid::new([shape]));
            let numbers = Numbers::new(setting, &selection);
            assert_eq!(numbers.total(), 100_001);
            let mut next = 0;
            while let Some((at, cell, rows)) = numbers.take(&workers).unwrap() {
                assert_eq!((at, rows.start), (0, next));
                // The cell behind the last one holds no loaded rows.
                if let Some(cell) = cell.filter(|_| !rows.is_empty()) {
                    assert_eq!(selection.grid.cell(setting.content, 0, 0, rows.start), Some(cell));
                    assert_eq!(selection.grid.cell(setting.content, 0, 0, rows.end - 1), Some(cell));
                }
                next = rows.end;
            }
            assert_eq!(next, 100_001);
        }
        // Of ranges only the chosen ones.
        let selection = Selection::of(Grid::new([ranges]), [2, 5]);
        let numbers = Numbers::new(setting, &selection);
        let mut taken = Vec::new();
        while let Some((_, _, rows)) = numbers.take(&workers).unwrap() {
            taken.push(rows);
        }
        assert_eq!(taken, [2 * per_cell..3 * per_cell, 5 * per_cell..6 * per_cell]);
    });
    stop.request();
    with_setting(9, 1, |setting| {
        let selection = Selection::all(Grid::new([Shape::numbers(setting.content, 0)]));
        let taken = Numbers::new(setting, &selection).take(&workers);
        assert!(matches!(taken, Err(VerifyError::Interrupted)));
    });
}

#[test]
fn what_is_read_of_a_partition_is_what_was_chosen_of_it() {
    with_setting(100_000, 4, |setting| {
        let grid = Grid::new([Shape::fine(setting, 0, &[1, 3], 1)]);
        let Shape::Buckets { bits, .. } = grid.shape(0).clone() else { panic!() };
        let (mask, second) = ((1 << bits) - 1, 1 << bits);
        let part = |cells: &[usize], partition| {
            Selection::of(grid.clone(), cells.iter().copied()).part(setting, 0, partition)
        };
        let named =
            format!("coalesce(hashtextextended(ycsb_key, 0) & {mask}, 0) = any ('{{0,7}}'::bigint[])");
        assert_eq!(part(&[second, second + 7], 3), Part::Where(named));
        assert_eq!(part(&[second, second + 7], 1), Part::Nothing, "another partition");
        assert_eq!(part(&[second, second + 7], 0), Part::Nothing, "left out");
        let most: Vec<usize> = (0..=second / 2).collect();
        assert_eq!(part(&most, 1), Part::All, "a filter would spare little");
        assert_eq!(Selection::all(grid.clone()).part(setting, 0, 2), Part::All);
        // Only the client can compute the numbers of these rows.
        let ranges = Selection::of(Grid::new([Shape::numbers(setting.content, 0)]), [1]);
        assert_eq!(ranges.part(setting, 0, 0), Part::All);
    });
}

#[test]
fn rows_are_in_the_cells_that_the_server_names() {
    with_setting(5000, 3, |setting| {
        let grid = Grid::new([Shape::fine(setting, 0, &[0, 2], 1)]);
        let mut found = 0;
        for number in 0..5000 {
            let partition = setting.content.partition_of(0, number, 3).expect("it knows");
            let hash = setting.content.key_hash(0, number);
            let named = grid.named(0, partition, i128::from(hash as i64));
            assert_eq!(grid.cell(setting.content, 0, 0, number), named);
            found += u64::from(named.is_some());
        }
        assert!((2500..4500).contains(&found), "two of three partitions: {found}");
    });
}
