//! `-b ycsb-a` and the others: their names, their flag, the rows that sessions are held to.

use data::ycsb::Table;
use postgres::Client;

use super::dataset::TABLE;
use super::homes;
use super::mixes::{ABOUT, CORE, CoreWorkload, KEYS, PURE};
use super::run::{Distribution, Verb, Ycsb};
use super::writer::{self, Writing};
use crate::driving::{About, Builtin, Demand, Family, Given, Keys, Prepared, Refusal, Tables};

fn core(name: &str) -> Option<&'static CoreWorkload> {
    CORE.iter().find(|core| core.builtin.name == name)
}

/// `-b ycsb-a` to `-b ycsb-f`, and the pure ones.
#[derive(Debug)]
pub struct YcsbFamily;

impl Family for YcsbFamily {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn not_run(&self, long: &str) -> Refusal {
        Refusal::new(format!("--{long} applies to YCSB workloads, and none is run"))
            .with_hint("in a script, use random(), random_zipfian() and similar functions")
    }

    fn takes_modes(&self) -> bool {
        true
    }

    fn pure(&self) -> Option<[&'static str; 2]> {
        Some(PURE)
    }

    fn demands(&self, builtin: &Builtin) -> Vec<Demand> {
        let demand = |(verb, ..): &(Verb, Distribution, u64)| Demand {
            name: format!("{}.{}", builtin.name, verb.name()),
            writes: verb.writes(),
            keys: if *verb == Verb::Insert { Keys::New } else { Keys::OfNode },
        };
        core(builtin.name).map_or_else(Vec::new, |core| core.mix.iter().map(demand).collect())
    }

    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal> {
        Ok(vec![(Some(writer::dataset(client)?.schema_name), TABLE)])
    }

    fn prepare(
        &self,
        requested: &[(&'static str, u64)],
        given: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal> {
        let dataset = writer::dataset(client)?;
        let table = Table::new(dataset.spec.clone());
        let homes = match &given.entry {
            Some(entry) => homes::of_sessions(entry, client, &dataset)?,
            None => None,
        };
        let keys = given.flags.contains_key(KEYS).then(|| given.flag(KEYS, Distribution::Uniform, "zipfian"));
        let keys = keys.transpose()?;
        let items =
            requested.iter().filter_map(|(name, weight)| Some(core(name)?.items(*weight, keys))).flatten();
        let ycsb = Ycsb::new(table, dataset.rows, dataset.rows, given.sessions, 0)
            .with_schema(&dataset.schema_name)
            .with_mode(given.mode)
            .with_homes(homes)
            .with_items(items);
        let prepared = Prepared::unaudited(ycsb.clone(), dataset.described());
        Ok(match ycsb.writes() {
            true => Prepared { writer: Some(Box::new(Writing { ycsb, dataset })), ..prepared },
            false => prepared,
        })
    }
}
