//! Its table as rows that a matrix reads and updates.

use data::ycsb::Table;
use engines::Cluster;
use load::ledger::{self, Dataset};
use load::writers::Registry;
use postgres::Client;
use run::routing::{Homes, KeyOwners};
use run::workload::Item;

use super::dataset::{NAME, TABLE};
use super::homes;
use super::mixes::ABOUT;
use super::run::{Distribution, Operation, Verb, Ycsb};
use super::writer::{self, Writing};
use crate::driving::{Announces, Benchmark, Drawn, Keyed, Owned, Refusal};

/// Opens the table.
///
/// # Errors
/// When there is none, or it is not complete.
pub fn keyed(client: &mut Client) -> Result<Box<dyn Keyed>, Refusal> {
    let dataset = writer::dataset(client)?;
    ledger::check_rules(client, &dataset)?;
    Ok(Box::new(KeyedRows { table: Table::new(dataset.spec.clone()), dataset }))
}

/// The table of a target.
#[derive(Debug)]
struct KeyedRows {
    table: Table,
    dataset: Dataset,
}

impl KeyedRows {
    fn ycsb(&self, verb: Verb, drawn: Drawn) -> Ycsb {
        let Drawn { item, sessions, homes } = drawn;
        let rows = self.dataset.rows;
        let operation = Operation { verb, distribution: Distribution::Uniform };
        Ycsb::new(self.table.clone(), rows, rows, sessions, 0)
            .with_schema(&self.dataset.schema_name)
            .with_homes(homes)
            .with_items([(Item { name: item, weight: 1 }, operation)])
    }
}

impl Keyed for KeyedRows {
    fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    fn key(&self, row: u64) -> String {
        String::from_utf8_lossy(&self.table.key(row)).into_owned()
    }

    fn probes(&self) -> [String; 2] {
        let table = ledger::qualified(&self.dataset.schema_name, TABLE);
        [
            format!("select * from {table} where ycsb_key = $1"),
            format!("update {table} set field0 = field0 where ycsb_key = $1"),
        ]
    }

    fn placed(
        &self,
        cluster: &Cluster,
        client: &mut Client,
        entry: usize,
        asker: &str,
    ) -> Result<Owned, Refusal> {
        homes::placed(cluster, client, entry, &self.dataset, asker)
    }

    fn hold(
        &self,
        cluster: &Cluster,
        owners: KeyOwners,
        nodes: Vec<u16>,
        sessions_each: u64,
        asker: &str,
    ) -> Result<Homes, Refusal> {
        homes::hold(cluster, owners, nodes, sessions_each, &self.dataset, asker)
    }

    fn has_rows(&self, homes: &Homes, node: u16) -> bool {
        homes.has_rows(node, self.dataset.rows, |row| self.table.key(row))
    }

    fn reads(&self, drawn: Drawn) -> Benchmark {
        self.ycsb(Verb::Read, drawn).into()
    }

    fn updates(&self, drawn: Drawn) -> Box<dyn Announces> {
        Box::new(Writing { ycsb: self.ycsb(Verb::Update, drawn), dataset: self.dataset.clone() })
    }

    fn check_ledgers(&self, cluster: &Cluster) -> Result<(), Refusal> {
        match Registry::open(cluster, NAME)? {
            Some(_) => Ok(()),
            None => Err(ABOUT.missing()),
        }
    }
}
