//! The proof that a sharded cluster holds exactly the dataset, and a mover of partitions.

use std::collections::BTreeSet;

use connect::conninfo::Sources;
use data::ycsb::{FIELD_COUNT, Judgement, Spec, Table, Version};
use engines::cluster::Cluster;
use lab::throwaway::ThrowawayCluster;
use load::ledger;
use postgres::Client;

use super::connect;
use workloads::ycsb::dataset as ycsb;

/// The cluster as its file names it.
pub(crate) fn cluster_of(nodes: &ThrowawayCluster) -> Cluster {
    Cluster::from_file(nodes.file(), &Sources::of_process()).expect("a cluster file of up is right")
}

/// The leaf tables of a node's own, by name, with remainder.
pub(crate) fn local_leaves(client: &mut Client) -> Vec<(String, u32)> {
    let rows = client
        .query(
            "select c.relname::text, substring(pg_get_expr(c.relpartbound, c.oid) from 'remainder (\\d+)')::int
             from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = 'usertable'::regclass and c.relkind = 'r' order by 2",
            &[],
        )
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get::<_, i32>(1) as u32)).collect()
}

/// Rows in the leaves of all nodes, and rows in all ledgers.
pub(crate) fn rows_and_ledgers(clients: &mut [Client]) -> (i64, i64) {
    let (mut rows, mut ledger) = (0, 0);
    for client in clients {
        let leaves = local_leaves(client);
        // In one snapshot: a server may still commit what a killed loader sent last.
        let snapshot = client.build_transaction().isolation_level(postgres::IsolationLevel::RepeatableRead);
        let mut snapshot = snapshot.read_only(true).start().unwrap();
        for (leaf, _) in leaves {
            rows +=
                snapshot.query_one(&format!("select count(*) from {leaf}"), &[]).unwrap().get::<_, i64>(0);
        }
        let sum = "select coalesce(sum(rows), 0)::bigint from pgfathom.chunk";
        ledger += snapshot.query_one(sum, &[]).unwrap().get::<_, i64>(0);
    }
    (rows, ledger)
}

/// Proves that rows 0..rows are on the nodes, each once, each as loaded, each in the leaf that its key belongs to; that the ledgers
/// together say so; that each leaf has its key; and that every node reads all of them.
pub(crate) fn assert_exact_on(nodes: &ThrowawayCluster, rows: u64, partitions: u32, spec: &Spec) {
    let table = Table::new(spec.clone());
    let mut seen = vec![0u8; rows as usize];
    let mut remainders = BTreeSet::new();
    let (mut ledger_rows, mut ledger_sum, mut key_sum) = (0, 0u64, 0u64);
    for node in nodes.nodes() {
        let mut client = connect(&node.spec());
        for (leaf, remainder) in local_leaves(&mut client) {
            assert!(remainders.insert(remainder), "{leaf} is a table on two nodes");
            let route = load::route::Route::new(partitions);
            for row in client.query(&format!("select * from {leaf}"), &[]).unwrap() {
                let key: &str = row.get(0);
                let number = table.row_of_key(key.as_bytes()).expect("a key of ours");
                assert!(number < rows, "row {number} of {rows} was never asked for");
                seen[number as usize] += 1;
                let hash = load::route::key_hash(key.as_bytes());
                key_sum = key_sum.wrapping_add(hash);
                assert_eq!(route.leaf(hash), remainder, "{key} is in {leaf}");
                for column in 0..FIELD_COUNT {
                    let value: &str = row.get(column + 1);
                    let judged = table.judge(number, column, value.as_bytes());
                    assert_eq!(judged, Judgement::Exact { version: Version::LOADED }, "row {number}");
                }
            }
            let keys =
                format!("select count(*) from pg_index where indrelid = '{leaf}'::regclass and indisprimary");
            assert_eq!(client.query_one(&keys, &[]).unwrap().get::<_, i64>(0), 1, "{leaf} has its key");
            let analyzed = format!("select reltuples >= 0 from pg_class where oid = '{leaf}'::regclass");
            assert!(client.query_one(&analyzed, &[]).unwrap().get::<_, bool>(0), "{leaf} has statistics");
        }
        let dataset = ledger::find_dataset(&mut client, ycsb::NAME).unwrap().expect("a dataset");
        assert!(dataset.loaded);
        let totals = ledger::chunk_totals(&mut client, dataset.id).unwrap();
        ledger_rows += totals.rows;
        ledger_sum = ledger_sum.wrapping_add(totals.checksum);
        let all: i64 = client.query_one("select count(*) from usertable", &[]).unwrap().get(0);
        assert_eq!(all as u64, rows, "every node reads every row");
    }
    assert_eq!(remainders.len(), partitions as usize, "every leaf is a table somewhere");
    let missing = seen.iter().filter(|count| **count == 0).count();
    let doubled = seen.iter().filter(|count| **count > 1).count();
    assert_eq!((missing, doubled), (0, 0), "missing and doubled rows of {rows}");
    assert_eq!((ledger_rows, ledger_sum), (rows, key_sum), "the ledgers together");
}

/// Moves a leaf from one node to another as an administrator would: keeps writers out, carries its rows, and tells every node.
pub(crate) fn move_leaf(nodes: &ThrowawayCluster, partitions: u32, leaf: u32, from: usize, to: usize) {
    let name = format!("usertable_p{leaf}");
    let bound = format!("for values with (modulus {partitions}, remainder {leaf})");
    let foreign = |owner: usize| {
        format!(
            "create foreign table {name} partition of usertable {bound} server n{} options (schema_name 'public', table_name '{name}')",
            owner + 1
        )
    };
    let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
    // In the order in which others lock: the parent, then the leaf.
    clients[from].batch_execute("begin; lock table only usertable in access exclusive mode").unwrap();
    clients[from].batch_execute(&format!("lock table only {name} in access exclusive mode")).unwrap();
    let rows = clients[from].query(&format!("select * from {name}"), &[]).unwrap();
    clients[to]
        .batch_execute(&format!(
            "begin; drop foreign table {name}; create table {name} partition of usertable {bound}"
        ))
        .unwrap();
    let insert = format!("insert into {name} values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");
    let statement = clients[to].prepare(&insert).unwrap();
    for row in &rows {
        let values: Vec<String> = (0..=FIELD_COUNT).map(|column| row.get(column)).collect();
        let values: Vec<&(dyn postgres::types::ToSql + Sync)> =
            values.iter().map(|value| value as &(dyn postgres::types::ToSql + Sync)).collect();
        clients[to].execute(&statement, &values).unwrap();
    }
    clients[to].batch_execute("commit").unwrap();
    clients[from].batch_execute(&format!("drop table {name}; {}; commit", foreign(to))).unwrap();
    for (node, client) in clients.iter_mut().enumerate().filter(|(node, _)| *node != from && *node != to) {
        assert_ne!(node, from);
        client.batch_execute(&format!("begin; drop foreign table {name}; {}; commit", foreign(to))).unwrap();
    }
}
