//! A dataset on throwaway servers, made without the loader, which has its own tests.

use std::io::Write as _;
use std::sync::Arc;

use data::ycsb::{Compressible, KeyOrder, Spec, Table};
use lab::throwaway::Throwaway;

use crate::LoadError;
use crate::dataset::MESSAGE_BYTES;
use crate::history::WriterHistory;
use crate::ledger::{self, Dataset, Layout};
use crate::route;
use crate::ycsb::{self, ROW_VALUE_BYTES, RowMessage, Ycsb};

/// Rows of the dataset.
pub(crate) const ROWS: u64 = 3000;
/// Rows of a chunk.
pub(crate) const CHUNK_ROWS: u64 = 1000;

pub(crate) fn key(table: &Table, row: u64) -> String {
    String::from_utf8(table.key(row).to_vec()).unwrap()
}

/// The dataset that a database holds, as it is after what runs have written.
pub(crate) fn find(
    client: &mut postgres::Client,
    history: Option<Arc<dyn WriterHistory>>,
) -> Result<Option<Box<dyn crate::Dataset>>, LoadError> {
    use crate::Dataset as _;
    let Some(found) = ledger::find_dataset(client, ycsb::NAME)? else { return Ok(None) };
    let loaded = Ycsb::new(found.rows, found.spec);
    Ok(match history {
        Some(history) => loaded.after(history),
        None => Some(Box::new(loaded)),
    })
}

/// Copies rows into a table of a node.
pub(crate) fn copy(server: &Throwaway, relation: &str, table: &Table, rows: &[u64]) {
    let mut client = connect::control::connect(&server.spec()).unwrap();
    let mut copy = client.copy_in(&format!("copy {relation} from stdin (format binary)")).unwrap();
    copy.write_all(&wire::copy::HEADER).unwrap();
    let mut message = RowMessage::new(MESSAGE_BYTES);
    for (index, &row) in rows.iter().enumerate() {
        message.push(table, row);
        if message.is_full() || index + 1 == rows.len() {
            // Without the frame of the protocol, which the library adds.
            copy.write_all(&message.message()[5..]).unwrap();
            message.clear();
        }
    }
    copy.write_all(&wire::copy::TRAILER).unwrap();
    copy.finish().unwrap();
}

pub(crate) fn dataset(partitions: u32) -> Dataset {
    Dataset {
        id: 0,
        name: ycsb::NAME.to_owned(),
        schema_name: "public".to_owned(),
        format: data::FORMAT_VERSION,
        spec: Spec { seed: 42, key_order: KeyOrder::Scattered, compressible: Compressible::NONE },
        rows: ROWS,
        partitions,
        method: crate::Method::Copy,
        chunk_rows: CHUNK_ROWS,
        loaded: false,
    }
}

/// The dataset in a node's ledger, with these tables.
pub(crate) fn enter(server: &Throwaway, nodes: &[&str], dataset: &Dataset, names: &[String]) -> Dataset {
    let mut client = connect::control::connect(&server.spec()).unwrap();
    let client: &mut postgres::Client = &mut client;
    ledger::create_if_missing(client).unwrap();
    let id = ledger::insert_dataset(client, dataset).unwrap();
    let dataset = Dataset { id, ..dataset.clone() };
    let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
    ledger::set_layout(client, id, &Layout { token: 77, nodes, ..Layout::default() }).unwrap();
    for name in names {
        ledger::own_table(client, &dataset, name).unwrap();
    }
    dataset
}

/// A chunk of the ledger; `leaves`: for which of them, or all.
pub(crate) fn enter_chunk(
    server: &Throwaway,
    dataset: &Dataset,
    table: &Table,
    chunk: u64,
    rows: &[u64],
    leaves: Option<&[usize]>,
) {
    let checksum = rows.iter().fold(0u64, |sum, &row| sum.wrapping_add(route::key_hash(&table.key(row))));
    let list = leaves.map(|leaves| leaves.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    let list = list.map_or("null".to_owned(), |list| format!("'{{{list}}}'"));
    server
        .execute(&format!(
            "insert into pgfathom.chunk (dataset, chunk, first_row, rows, bytes, checksum, stream, leaf, leaves)
             values ({}, {chunk}, {}, {}, {}, {}, 0, {}, {list})",
            dataset.id,
            chunk * CHUNK_ROWS,
            rows.len(),
            rows.len() as u64 * ROW_VALUE_BYTES,
            checksum as i64,
            leaves.map_or(0, |leaves| leaves[0]),
        ))
        .unwrap();
}

pub(crate) fn columns() -> String {
    (0..10).map(|column| format!(", field{column} varchar(100)")).collect()
}

pub(crate) fn mark_loaded(server: &Throwaway, dataset: &Dataset) {
    let mut client = connect::control::connect(&server.spec()).unwrap();
    ledger::mark_loaded(&mut *client, dataset.id).unwrap();
}
