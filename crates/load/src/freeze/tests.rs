//! Waves without a server: threads that take batches as streams do.

use std::sync::atomic::AtomicBool;

use data::ycsb::{Compressible, KeyOrder, Spec, Table};

use super::*;
use crate::route::{Route, key_hash};
use crate::ycsb::Ycsb;

fn spec() -> Spec {
    Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
}

fn table() -> Table {
    Table::new(spec())
}

/// What a slot got: its rows in order of arrival, and the sum of the batches' checksums. Gives up after `batches_max` batches.
fn drain(wave: &Wave<'_>, slot: usize, leaf: usize, batches_max: usize) -> (Vec<u64>, u64) {
    let _guard = SlotGuard { wave, slot };
    wave.set(slot, SlotState::Live);
    let (mut rows, mut checksum) = (Vec::new(), 0u64);
    for _ in 0..batches_max {
        let Some(batch) = wave.next(slot, &|| false) else { break };
        rows.extend(batch.rows(leaf as u16));
        checksum = checksum.wrapping_add(batch.checksum(leaf as u16));
        let board = wave.board();
        let ahead: usize = board.slots.iter().map(|slot| slot.batches.len()).max().unwrap_or(0);
        assert!(ahead as u64 <= BLOCKS_AHEAD_MAX, "{ahead} blocks are waiting");
    }
    (rows, checksum)
}

fn expected(table: &Table, route: Route, rows: u64, leaf: usize) -> (Vec<u64>, u64) {
    let mut checksum = 0u64;
    let of_leaf = (0..rows).filter(|&row| {
        let hash = key_hash(&table.key(row));
        let ours = route.leaf(hash) as usize == leaf;
        checksum = checksum.wrapping_add(if ours { hash } else { 0 });
        ours
    });
    (of_leaf.collect(), checksum)
}

#[test]
fn every_slot_gets_the_rows_of_its_leaf_once_and_in_order() {
    let table = table();
    for (rows, partitions, leaves) in [
        (0, 3, vec![0, 1]),
        (1, 1, vec![0]),
        (BLOCK_ROWS, 1, vec![0]),
        (5 * BLOCK_ROWS + 7, 4, vec![2, 0, 3]),
        // Two nodes that are filled with the same leaf.
        (3 * BLOCK_ROWS, 2, vec![1, 0, 1]),
    ] {
        let route = Route::new(partitions);
        let dataset = Ycsb::new(rows, spec());
        let wave = Wave::new(&dataset, Leaves::new(1, partitions), &leaves);
        std::thread::scope(|scope| {
            let drains: Vec<_> = (0..leaves.len())
                .map(|slot| {
                    let (wave, leaf) = (&wave, leaves[slot]);
                    scope.spawn(move || drain(wave, slot, leaf, usize::MAX))
                })
                .collect();
            for (drained, &leaf) in drains.into_iter().zip(&leaves) {
                assert_eq!(drained.join().unwrap(), expected(&table, route, rows, leaf), "leaf {leaf}");
            }
        });
    }
}

#[test]
fn a_slot_that_fails_does_not_hold_up_the_others() {
    let table = table();
    let route = Route::new(3);
    // Many more blocks than may be hashed ahead of a slot that takes none.
    let rows = (2 * BLOCKS_AHEAD_MAX + 3) * BLOCK_ROWS;
    let dataset = Ycsb::new(rows, spec());
    let wave = Wave::new(&dataset, Leaves::new(1, 3), &[0, 1, 2]);
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| drain(&wave, 0, 0, usize::MAX));
        let fails = scope.spawn(|| drain(&wave, 1, 1, 3));
        // This one never gets its leaf.
        wave.set(2, SlotState::Over);
        assert_eq!(whole.join().unwrap(), expected(&table, route, rows, 0));
        let (part, _) = fails.join().unwrap();
        assert_eq!(part[..], expected(&table, route, 3 * BLOCK_ROWS, 1).0[..]);
    });
    assert!(wave.board().slots.iter().all(|slot| slot.state == SlotState::Over));
}

#[test]
fn nothing_is_hashed_before_every_slot_is_claimed() {
    let dataset = Ycsb::new(100, spec());
    let wave = Wave::new(&dataset, Leaves::new(1, 2), &[0, 1]);
    wave.set(0, SlotState::Live);
    let called = AtomicBool::new(false);
    // The slot waits for the other one until it has to give up.
    assert!(wave.next(0, &|| called.swap(true, Ordering::Relaxed)).is_none());
    assert_eq!(wave.board().next_block, 0);
    wave.set(1, SlotState::Live);
    assert!(wave.next(0, &|| false).is_some());
}

#[test]
fn a_leaf_is_claimed_without_waiting() {
    let claim = Claim { dataset: 3, chunk: 5, first_row: 0, rows: 0, bytes: 0, checksum: 0, stream: 1 };
    let sql = claim_sql(&claim);
    assert!(sql.starts_with("begin; insert into pgfathom.chunk"), "{sql}");
    let key = 0x7067 << 48 | 3 << 15 | 5_i64;
    assert!(
        sql.ends_with(&format!("where pg_try_advisory_xact_lock({key}) on conflict do nothing")),
        "{sql}"
    );
}
