//! Runs that write: what they need of the dataset, and how they are entered in the ledgers of its nodes before their first write.

use data::ycsb::Table;
use engines::Cluster;
use load::Dataset as _;
use load::ledger::{self, Dataset};
use postgres::Client;

use super::dataset::{self, NAME, TABLE};
use super::mixes::ABOUT;
use super::replay::WriterSpec;
use super::run::Ycsb;
use crate::driving::{Announced as _, Announces, Entered, InMix, LedgerEntry, Refusal, failed, json};

/// The dataset of a target, complete and with rows to choose from.
///
/// # Errors
/// When there is none, or the ledger cannot be read.
pub(super) fn dataset(client: &mut Client) -> Result<Dataset, Refusal> {
    let dataset = ABOUT.dataset(client, NAME)?.ok_or_else(|| ABOUT.missing())?;
    if dataset.rows == 0 {
        return Err(Refusal::new("the YCSB dataset of this database has no rows to choose from")
            .with_hint(ABOUT.fill));
    }
    let content = dataset::Ycsb::new(dataset.rows, dataset.spec.clone());
    let names = load::dataset::table_names(content.tables(), dataset.partitions);
    ledger::check_in_place(client, &dataset, &names)?;
    Ok(dataset)
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
    ) -> Result<LedgerEntry, Refusal> {
        let spec = WriterSpec::new(run.items, run.first, &self.ycsb, run.seed);
        let entered = announce(cluster, client, &self.dataset, spec)?;
        let workload = self.ycsb.with_run(entered.run_no, entered.spec.first_insert);
        Ok(LedgerEntry { workload: Some(workload.into()), announced: Some(Box::new(entered)) })
    }
}

/// Enters the run in the ledgers, and for one that inserts finds the first row number that no other run has used.
///
/// # Errors
/// When a ledger cannot be written, or another run inserts.
fn announce(
    cluster: &Cluster,
    client: &mut Client,
    dataset: &Dataset,
    spec: WriterSpec,
) -> Result<Entered<WriterSpec>, Refusal> {
    let mut entered = Entered::new(cluster, NAME, spec)?;
    if entered.spec.inserts()
        && let Err(refusal) = begin_inserts(&mut entered, client, dataset)
    {
        // The refusal is what the user must know.
        let _ = Box::new(entered).withdraw();
        return Err(refusal);
    }
    Ok(entered)
}

/// Finds the first row number that no other run has used.
fn begin_inserts(
    entered: &mut Entered<WriterSpec>,
    client: &mut Client,
    dataset: &Dataset,
) -> Result<(), Refusal> {
    let run_no = entered.run_no;
    for writer in entered.registry.writers()?.iter().filter(|writer| writer.run_no < run_no) {
        let Ok(mut earlier) = serde_json::from_str::<WriterSpec>(&writer.spec) else { continue };
        let end = match earlier.next_insert() {
            Some(end) => end,
            None if !entered.registry.mark(writer.run_no)? => {
                return Err(Refusal::new(format!(
                    "run {} is inserting rows into this dataset",
                    writer.run_no
                ))
                .with_hint("wait until it has ended: two runs that insert would collide"));
            }
            None => {
                let end = insert_end(client, dataset, &earlier)?;
                earlier.insert_end = Some(end);
                entered.registry.update_spec(writer.run_no, &json(&earlier)?)?;
                end
            }
        };
        entered.spec.first_insert = entered.spec.first_insert.max(end);
    }
    entered.update()
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
