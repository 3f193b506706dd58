//! Runs that write: what they need of the dataset, and how they are entered in the ledgers of its nodes before their first write.

use data::ycsb::Table;
use engines::Cluster;
use load::Dataset as _;
use load::ledger::{self, Dataset};
use load::writers::Registry;
use postgres::Client;
use run::client::SessionRecord;

use super::dataset::{self, NAME, TABLE};
use super::replay::WriterSpec;
use super::run::Ycsb;
use crate::driving::{Announced, Announces, Benchmark, InMix, Refusal, failed};

/// The dataset of a target, complete and with rows to choose from.
///
/// # Errors
/// When there is none, or the ledger cannot be read.
pub fn dataset(client: &mut Client) -> Result<Dataset, Refusal> {
    const FILL: &str = "load it first: pgfathom load ycsb --rows 1M";
    let missing = || Refusal::new("this database holds no YCSB dataset").with_hint(FILL);
    if !ledger::exists(client)? {
        return Err(missing());
    }
    let dataset = ledger::find_dataset(client, NAME)?.ok_or_else(missing)?;
    if !dataset.loaded {
        return Err(Refusal::new("the YCSB dataset of this database is not completely loaded")
            .with_hint("run the same pgfathom load again: it continues where it stopped"));
    }
    if dataset.rows == 0 {
        return Err(
            Refusal::new("the YCSB dataset of this database has no rows to choose from").with_hint(FILL)
        );
    }
    let content = dataset::Ycsb::new(dataset.rows, dataset.spec.clone());
    let names = load::dataset::table_names(content.tables(), dataset.partitions);
    ledger::check_in_place(client, &dataset, &names)?;
    Ok(dataset)
}

/// The ledgers that a run which writes must be entered in.
///
/// # Errors
/// When a node cannot be reached, or none has the dataset.
pub fn registry(cluster: &Cluster) -> Result<Registry, Refusal> {
    Registry::open(cluster, NAME)?.ok_or_else(|| Refusal::new("this database holds no YCSB dataset"))
}

/// A workload that writes, before it is entered.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) ycsb: Ycsb,
    pub(super) dataset: Dataset,
}

impl Announces for Writing {
    fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    fn announce(
        self: Box<Self>,
        run: InMix<'_>,
        cluster: &Cluster,
        client: &mut Client,
    ) -> Result<(Benchmark, Box<dyn Announced>), Refusal> {
        let spec = WriterSpec::new(run.items, run.first, &self.ycsb, run.seed);
        let entered = announce(cluster, client, &self.dataset, spec)?;
        let workload = self.ycsb.with_run(entered.run_no, entered.spec.first_insert);
        Ok((workload.into(), Box::new(entered)))
    }
}

/// A run that has been entered in the ledger of every node before its first write.
#[derive(Debug)]
pub struct Entered {
    /// The ledgers. They hold the mark by which others tell the run from a killed one, as long as they live.
    registry: Registry,
    /// Its number.
    pub run_no: u16,
    /// What it will do.
    spec: WriterSpec,
}

impl Announced for Entered {
    fn finish(mut self: Box<Self>, sessions: &[SessionRecord]) -> Result<(), Refusal> {
        self.spec.finish(sessions);
        let transactions: Vec<u64> = sessions.iter().map(|session| session.transactions).collect();
        Ok(self.registry.finish(self.run_no, &json(&self.spec)?, &transactions)?)
    }
}

/// Enters the run in the ledgers, and for one that inserts finds the first row number that no other run has used.
///
/// As long as the run is on, the ledgers' connections hold an advisory lock, so that others can tell it from a killed one.
///
/// # Errors
/// When a ledger cannot be written, or another run inserts.
pub fn announce(
    cluster: &Cluster,
    client: &mut Client,
    dataset: &Dataset,
    mut spec: WriterSpec,
) -> Result<Entered, Refusal> {
    let mut registry = registry(cluster)?;
    let run_no = registry.create(&json(&spec)?)?;
    if !registry.mark(run_no)? {
        return Err(Refusal::new("another run started at the same moment").with_hint("run it again"));
    }
    if spec.inserts() {
        for writer in registry.writers()?.iter().filter(|writer| writer.run_no < run_no) {
            let Ok(mut earlier) = serde_json::from_str::<WriterSpec>(&writer.spec) else { continue };
            let end = match earlier.next_insert() {
                Some(end) => end,
                None if !registry.mark(writer.run_no)? => {
                    return Err(Refusal::new(format!(
                        "run {} is inserting rows into this dataset",
                        writer.run_no
                    ))
                    .with_hint("wait until it has ended: two runs that insert would collide"));
                }
                None => {
                    let end = insert_end(client, dataset, &earlier)?;
                    earlier.insert_end = Some(end);
                    registry.update_spec(writer.run_no, &json(&earlier)?)?;
                    end
                }
            };
            spec.first_insert = spec.first_insert.max(end);
        }
        registry.update_spec(run_no, &json(&spec)?)?;
    }
    Ok(Entered { registry, run_no, spec })
}

fn json(spec: &WriterSpec) -> Result<String, Refusal> {
    serde_json::to_string(spec).map_err(|error| Refusal::new("cannot describe the run").because(error))
}

/// Where the inserts of a killed run end, found by querying its keys: each session has inserted its rows in order, so the first long
/// stretch that is not there is behind the last one. Were it not, the next run's insert would be refused as a duplicate.
fn insert_end(client: &mut Client, dataset: &Dataset, spec: &WriterSpec) -> Result<u64, Refusal> {
    /// Keys requested at once; more failed inserts in a row than this would hide those behind them.
    const STRETCH: u64 = 4096;
    let table = Table::new(dataset.spec.clone());
    let sql = format!(
        "select count(*) from {} where ycsb_key = any($1)",
        ledger::qualified(&dataset.schema_name, TABLE)
    );
    let mut end = spec.first_insert;
    loop {
        let keys: Vec<String> =
            (end..end + STRETCH).map(|row| String::from_utf8_lossy(&table.key(row)).into_owned()).collect();
        let found = client
            .query_one(&sql, &[&keys])
            .map_err(|error| failed("find the rows of a killed run", error))?;
        if found.get::<_, i64>(0) == 0 {
            return Ok(end);
        }
        end += STRETCH;
    }
}
