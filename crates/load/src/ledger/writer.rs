//! Runs that write into a dataset: `pgfathom.writer`.

use postgres::{Client, GenericClient};

use super::{Dataset, RUN_NO_MAX, sql};
use crate::error::LoadError;

/// A run that writes into a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// 1 and up: the run number inside the versions it writes.
    pub run_no: u16,
    /// Its options, as JSON.
    pub spec: String,
    /// It ended in order: `transactions` is exact. Otherwise it was killed and any sequence number may exist.
    pub finished: bool,
    /// Transactions (the highest sequence number) per session.
    pub transactions: Vec<u64>,
}

/// Registers a run that will write versions into the dataset, and returns its run number.
///
/// # Errors
/// When all 16383 run numbers of the dataset are used, `spec_json` is no JSON, or the query fails.
pub fn create_writer(client: &mut Client, dataset: &Dataset, spec_json: &str) -> Result<u16, LoadError> {
    let doing = "registering the run in pgfathom.writer";
    let mut transaction = sql(doing, client.transaction())?;
    // Share row exclusive excludes itself, so two runs that start at once get two numbers.
    sql(doing, transaction.batch_execute("lock table pgfathom.writer in share row exclusive mode"))?;
    let last = transaction
        .query_one("select coalesce(max(run_no), 0) from pgfathom.writer where dataset = $1", &[&dataset.id]);
    let run_no = sql(doing, last)?.get::<_, i32>(0) + 1;
    if run_no > RUN_NO_MAX {
        return Err(LoadError::WritersExhausted { runs: RUN_NO_MAX as u32 });
    }
    let inserted = transaction.execute(
        "insert into pgfathom.writer (dataset, run_no, spec) values ($1, $2, $3::text::jsonb)",
        &[&dataset.id, &run_no, &spec_json],
    );
    sql(doing, inserted)?;
    sql(doing, transaction.commit())?;
    Ok(run_no as u16)
}

/// Notes that a run ended in order, with its transactions per session.
///
/// # Errors
/// When the writer is not in the ledger (its dataset was started over) or the query fails.
pub fn finish_writer(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    run_no: u16,
    transactions: &[u64],
) -> Result<(), LoadError> {
    let json = serde_json::to_string(transactions).expect("a list of numbers is JSON");
    let updated = client.execute(
        "update pgfathom.writer set finished = true, finished_at = now(), transactions = $3::text::jsonb
         where dataset = $1 and run_no = $2",
        &[&dataset.id, &i32::from(run_no), &json],
    );
    match sql("finishing the run in pgfathom.writer", updated)? {
        1 => Ok(()),
        _ => Err(LoadError::Restarted),
    }
}

/// Replaces the description of a run, which has learned more about itself.
///
/// # Errors
/// When the writer is not in the ledger (its dataset was started over), `spec_json` is no JSON, or the query fails.
pub(crate) fn update_writer_spec(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    run_no: u16,
    spec_json: &str,
) -> Result<(), LoadError> {
    let updated = client.execute(
        "update pgfathom.writer set spec = $3::text::jsonb where dataset = $1 and run_no = $2",
        &[&dataset.id, &i32::from(run_no), &spec_json],
    );
    match sql("describing the run in pgfathom.writer", updated)? {
        1 => Ok(()),
        _ => Err(LoadError::Restarted),
    }
}

/// A run that is on, and the server process that holds its mark ([`super::lock::run`]); the first one of several.
///
/// # Errors
/// When the query fails.
pub(crate) fn active_writer(
    client: &mut impl GenericClient,
    dataset: &Dataset,
) -> Result<Option<(u16, i32)>, LoadError> {
    let rows = client.query(
        "select run_no from pgfathom.writer where dataset = $1 and not finished order by run_no",
        &[&dataset.id],
    );
    let mut open = sql("looking for runs that are on", rows)?
        .iter()
        .filter_map(|row| u16::try_from(row.get::<_, i32>(0)).ok())
        .map(|run_no| (run_no, super::lock::run(dataset.id, run_no)))
        .collect::<Vec<_>>();
    if open.is_empty() {
        return Ok(None);
    }
    // A lock of one number has its halves in two columns.
    let held = client.query(
        "select classid::int8 << 32 | objid::int8, pid from pg_locks
         where locktype = 'advisory' and granted and objsubid = 1 and pid is not null
           and database = (select oid from pg_database where datname = current_database())",
        &[],
    );
    let held = sql("looking for runs that are on", held)?;
    let holder = |key: i64| held.iter().find(|row| row.get::<_, i64>(0) == key).map(|row| row.get(1));
    Ok(open.drain(..).find_map(|(run_no, key)| Some((run_no, holder(key)?))))
}

/// When each run of a dataset wrote: run number, start and end in microseconds since 1970 by the server's clock. Without an end it is
/// still on, or was killed.
///
/// # Errors
/// When the query fails.
pub(crate) fn writer_times(
    client: &mut impl GenericClient,
    dataset: &Dataset,
) -> Result<Vec<(u16, i64, Option<i64>)>, LoadError> {
    let rows = client.query(
        "select run_no, (extract(epoch from started_at) * 1000000)::int8, (extract(epoch from finished_at) * 1000000)::int8
         from pgfathom.writer where dataset = $1 order by run_no",
        &[&dataset.id],
    );
    let rows = sql("reading pgfathom.writer", rows)?;
    rows.iter()
        .map(|row| {
            let run_no = u16::try_from(row.get::<_, i32>(0));
            let run_no =
                run_no.map_err(|_| LoadError::DamagedLedger { table: "writer", column: "run_no" })?;
            Ok((run_no, row.get(1), row.get(2)))
        })
        .collect()
}

/// All runs that wrote or write into the dataset, in order of run number.
///
/// # Errors
/// When the query fails or `transactions` is not an array of counts.
pub fn writers(client: &mut impl GenericClient, dataset: &Dataset) -> Result<Vec<Writer>, LoadError> {
    let rows = client.query(
        "select run_no, spec::text, finished, coalesce(transactions, '[]')::text
         from pgfathom.writer where dataset = $1 order by run_no",
        &[&dataset.id],
    );
    let damaged = |column| LoadError::DamagedLedger { table: "writer", column };
    let rows = sql("reading pgfathom.writer", rows)?;
    rows.iter()
        .map(|row| {
            Ok(Writer {
                run_no: u16::try_from(row.get::<_, i32>(0)).map_err(|_| damaged("run_no"))?,
                spec: row.get(1),
                finished: row.get(2),
                transactions: serde_json::from_str(row.get(3)).map_err(|_| damaged("transactions"))?,
            })
        })
        .collect()
}
