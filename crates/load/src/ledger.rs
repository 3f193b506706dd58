//! The ledger: schema `pgfathom` in the target, which says what was loaded and by whom.
//!
//! | table | a row is |
//! |---|---|
//! | `dataset` | the identity of one dataset: whoever continues it must agree with every column |
//! | `chunk` | one loaded chunk, inserted in the transaction that loads its rows: there are exactly the chunks of committed rows |
//! | `object` | one table that is ours, by oid and by name: nothing else is ever truncated or dropped |
//! | `writer` | one run that writes into the dataset, so that verification knows which versions can exist |
//!
//! Progress is what `chunk` says and nothing else. A dataset's `id` is never used twice, and `chunk` and `writer` refer to it by
//! a foreign key: a loader that has not noticed that its dataset was started over gets an error from its next claim instead of
//! writing old rows into a new table.
//!
//! `chunk.checksum` is the sum modulo 2^64 of `hashtextextended(ycsb_key, 8816678312871386365)` over the chunk's rows, the very
//! hash that PostgreSQL routes hash partitions by, so it costs the loader nothing extra. The server can check the set of keys of a
//! whole table against the ledger without a client:
//!
//! ```sql
//! select mod((select sum(hashtextextended(ycsb_key, 8816678312871386365)::numeric) from usertable)
//!          - (select sum(checksum) from pgfathom.chunk), 18446744073709551616) = 0;
//! ```

use data::ycsb::{Compressible, KeyOrder, Spec};
use postgres::{Client, GenericClient, Row};

use crate::Method;
use crate::error::LoadError;
use crate::plan::ChunkSet;

/// Version of the ledger's own tables, kept in the comment of the schema.
pub const LEDGER_VERSION: u32 = 1;

/// The schema of the ledger.
pub const SCHEMA: &str = "pgfathom";

/// The name of the YCSB dataset. One per database: its table has a fixed name too.
pub const YCSB: &str = "ycsb";

/// The highest run number that fits a version inside a value (14 bits); 0 is the load.
pub const RUN_NO_MAX: i32 = (1 << 14) - 1;

/// Start of the schema's comment; the version follows.
const SCHEMA_MARK: &str = "pgfathom ledger ";

/// Start of the comment of each table of ours; the rest describes its dataset.
const TABLE_MARK: &str = "pgfathom dataset ";

/// Keys of the advisory locks that keep two pgfathoms from changing the same things at once. The first number says "pgfathom".
pub(crate) mod lock {
    /// Class of all locks of ours: the letters `pgfa`.
    pub(crate) const CLASS: i32 = 0x7067_6661;
    /// Creation, restart and removal of schemas and tables.
    pub(crate) const SETUP: i32 = 1;
    /// Primary keys and statistics of a loaded dataset.
    pub(crate) const FINISH: i32 = 2;

    /// One leaf that is being filled: the letters `pg`, the dataset, and the leaf in 12 bits, which is what
    /// [`crate::plan::PARTITIONS_MAX`] needs. A lock of one number never collides with one of two.
    pub(crate) fn leaf(dataset: i32, leaf: u64) -> i64 {
        0x7067 << 48 | i64::from(dataset) << 12 | leaf as i64
    }
    const _: () = assert!(crate::plan::PARTITIONS_MAX <= 1 << 12);
}

const DDL: &str = "
create table pgfathom.dataset (
    id           int generated always as identity primary key,
    name         text not null unique,
    schema_name  text not null,
    format       int not null,
    seed         numeric(20) not null,
    rows         bigint not null,
    key_order    text not null,
    compressible text not null,
    partitions   int not null,
    method       text not null,
    chunk_rows   bigint not null,
    created_at   timestamptz not null default now(),
    loaded_at    timestamptz
);
create table pgfathom.chunk (
    dataset    int not null references pgfathom.dataset on delete cascade,
    chunk      bigint not null,
    first_row  bigint not null,
    rows       bigint not null,
    bytes      bigint not null,
    checksum   bigint not null,
    stream     int not null,
    started_at timestamptz not null default clock_timestamp(),
    primary key (dataset, chunk)
);
create table pgfathom.object (
    dataset int not null references pgfathom.dataset on delete cascade,
    name    text not null,
    oid     oid not null,
    primary key (dataset, name)
);
create table pgfathom.writer (
    dataset      int not null references pgfathom.dataset on delete cascade,
    run_no       int not null check (run_no between 1 and 16383),
    started_at   timestamptz not null default now(),
    finished_at  timestamptz,
    spec         jsonb not null,
    finished     boolean not null default false,
    transactions jsonb,
    primary key (dataset, run_no)
);
comment on table pgfathom.dataset is 'what each dataset consists of; a load that disagrees is refused; loaded_at is null until it is complete';
comment on table pgfathom.chunk is 'one row per loaded chunk, inserted in the transaction that loads its rows';
comment on column pgfathom.chunk.checksum is 'sum of hashtextextended(ycsb_key, 8816678312871386365) over the rows, modulo 2^64';
comment on table pgfathom.object is 'the tables that belong to a dataset: pgfathom changes or drops no others';
comment on table pgfathom.writer is 'one row per run that writes versions into a dataset';
comment on column pgfathom.writer.transactions is 'transactions per session, an array, filled when the run has finished';
";

/// A dataset as the ledger has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// Never used twice, so a dataset that was started over is another one.
    pub id: i32,
    /// [`YCSB`].
    pub name: String,
    /// Schema of its table, unquoted.
    pub schema_name: String,
    /// [`data::FORMAT_VERSION`] of the program that made it.
    pub format: u32,
    /// Seed, key order, compressibility.
    pub spec: Spec,
    /// Rows when it is complete.
    pub rows: u64,
    /// 0: a plain table.
    pub partitions: u32,
    /// How it is loaded.
    pub method: Method,
    /// Rows per chunk; for [`Method::Freeze`] a chunk is a leaf table and this says nothing.
    pub chunk_rows: u64,
    /// Every chunk is there, primary keys and statistics too.
    pub loaded: bool,
}

/// What the chunks of a dataset sum up to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChunkTotals {
    /// Chunks in the ledger.
    pub chunks: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of values in them.
    pub bytes: u64,
    /// Sum of their checksums modulo 2^64.
    pub checksum: u64,
}

/// A run that writes into a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// 1 and up: the run number inside the versions it writes.
    pub run_no: u16,
    /// What it was told to do, as JSON.
    pub spec: String,
    /// It ended in order: `transactions` is exact. Otherwise it was killed and any sequence number may exist.
    pub finished: bool,
    /// Transactions (the highest sequence number) per session.
    pub transactions: Vec<u64>,
}

fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, LoadError> {
    result.map_err(|source| LoadError::sql(doing, source))
}

/// Whether the database has a ledger.
///
/// # Errors
/// When the schema exists and is not ours or of a version this program does not know, or the query fails.
pub fn exists(client: &mut impl GenericClient) -> Result<bool, LoadError> {
    let found = client.query_opt(
        "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = $1",
        &[&SCHEMA],
    );
    let Some(row) = sql("looking for the ledger", found)? else { return Ok(false) };
    let comment: Option<String> = row.get(0);
    let version = comment.as_deref().and_then(|comment| comment.strip_prefix(SCHEMA_MARK));
    let version = version.and_then(|rest| rest.split([':', ' ']).next()?.parse::<u32>().ok());
    match version {
        Some(LEDGER_VERSION) => Ok(true),
        Some(found) => Err(LoadError::LedgerVersion { found, known: LEDGER_VERSION }),
        None => Err(LoadError::ForeignSchema),
    }
}

/// Creates the ledger when it is missing. To be called inside a transaction that holds the setup lock.
pub(crate) fn create_if_missing(client: &mut impl GenericClient) -> Result<(), LoadError> {
    if exists(client)? {
        return Ok(());
    }
    let ddl = format!(
        "create schema {SCHEMA}; comment on schema {SCHEMA} is '{SCHEMA_MARK}{LEDGER_VERSION}: what pgfathom has \
         loaded into this database and how far; written by pgfathom only'; {DDL}"
    );
    sql("creating the schema pgfathom", client.batch_execute(&ddl))
}

/// The dataset of this name, if the ledger has it.
///
/// # Errors
/// When the ledger is not ours, damaged, or the query fails.
pub fn find_dataset(client: &mut impl GenericClient, name: &str) -> Result<Option<Dataset>, LoadError> {
    if !exists(client)? {
        return Ok(None);
    }
    let row = client.query_opt(
        "select id, name, schema_name, format, seed::text, rows, key_order, compressible, partitions, method, chunk_rows,
                loaded_at is not null
         from pgfathom.dataset where name = $1",
        &[&name],
    );
    sql("reading pgfathom.dataset", row)?.map(|row| dataset_of(&row)).transpose()
}

fn dataset_of(row: &Row) -> Result<Dataset, LoadError> {
    let damaged = |column: &'static str| LoadError::DamagedLedger { table: "dataset", column };
    let text = |index: usize| row.get::<_, &str>(index);
    Ok(Dataset {
        id: row.get(0),
        name: row.get(1),
        schema_name: row.get(2),
        format: u32::try_from(row.get::<_, i32>(3)).map_err(|_| damaged("format"))?,
        spec: Spec {
            seed: text(4).parse().map_err(|_| damaged("seed"))?,
            key_order: text(6).parse::<KeyOrder>().map_err(|_| damaged("key_order"))?,
            compressible: text(7).parse::<Compressible>().map_err(|_| damaged("compressible"))?,
        },
        rows: u64::try_from(row.get::<_, i64>(5)).map_err(|_| damaged("rows"))?,
        partitions: u32::try_from(row.get::<_, i32>(8)).map_err(|_| damaged("partitions"))?,
        method: text(9).parse().map_err(|_| damaged("method"))?,
        chunk_rows: u64::try_from(row.get::<_, i64>(10)).map_err(|_| damaged("chunk_rows"))?,
        loaded: row.get(11),
    })
}

/// Adds a dataset (its `id` is ignored) and returns its id.
pub(crate) fn insert_dataset(client: &mut impl GenericClient, dataset: &Dataset) -> Result<i32, LoadError> {
    let row = client.query_one(
        "insert into pgfathom.dataset (name, schema_name, format, seed, rows, key_order, compressible, partitions, method, chunk_rows)
         values ($1, $2, $3, $4::text::numeric, $5, $6, $7, $8, $9, $10) returning id",
        &[
            &dataset.name,
            &dataset.schema_name,
            &(dataset.format as i32),
            &dataset.spec.seed.to_string(),
            &(dataset.rows as i64),
            &dataset.spec.key_order.as_str(),
            &dataset.spec.compressible.to_string(),
            &(dataset.partitions as i32),
            &dataset.method.as_str(),
            &(dataset.chunk_rows as i64),
        ],
    );
    Ok(sql("writing pgfathom.dataset", row)?.get(0))
}

/// Removes a dataset with its chunks, objects and writers. Waits for chunks in flight: each holds a share lock on the row.
pub(crate) fn delete_dataset(client: &mut impl GenericClient, id: i32) -> Result<(), LoadError> {
    let deleted = client.execute("delete from pgfathom.dataset where id = $1", &[&id]);
    sql("removing the old dataset from the ledger", deleted).map(|_| ())
}

/// Notes that everything of a dataset is there.
pub(crate) fn mark_loaded(client: &mut impl GenericClient, id: i32) -> Result<(), LoadError> {
    let updated = client.execute("update pgfathom.dataset set loaded_at = now() where id = $1", &[&id]);
    sql("marking the dataset as loaded", updated).map(|_| ())
}

/// The chunks that are loaded. `count` is how many the dataset has; a number beyond it means that the ledger is damaged.
pub(crate) fn done_chunks(client: &mut Client, id: i32, count: u64) -> Result<ChunkSet, LoadError> {
    use postgres::fallible_iterator::FallibleIterator;
    let doing = "reading pgfathom.chunk";
    let mut done = ChunkSet::new(count);
    // Row by row: millions of them shall not be collected first.
    let mut rows = sql(doing, client.query_raw("select chunk from pgfathom.chunk where dataset = $1", [id]))?;
    while let Some(row) = sql(doing, rows.next())? {
        let chunk = u64::try_from(row.get::<_, i64>(0)).ok().filter(|chunk| *chunk < count);
        done.insert(chunk.ok_or(LoadError::DamagedLedger { table: "chunk", column: "chunk" })?);
    }
    Ok(done)
}

/// What the chunks of a dataset sum up to.
///
/// # Errors
/// When the query fails or sums are out of range.
pub fn chunk_totals(client: &mut impl GenericClient, id: i32) -> Result<ChunkTotals, LoadError> {
    let row = client.query_one(
        "select count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
                mod(mod(coalesce(sum(checksum), 0), 18446744073709551616) + 18446744073709551616, 18446744073709551616)::text
         from pgfathom.chunk where dataset = $1",
        &[&id],
    );
    let row = sql("summing up pgfathom.chunk", row)?;
    let damaged = |column| LoadError::DamagedLedger { table: "chunk", column };
    let count = |index: usize, column| u64::try_from(row.get::<_, i64>(index)).map_err(|_| damaged(column));
    Ok(ChunkTotals {
        chunks: count(0, "chunk")?,
        rows: count(1, "rows")?,
        bytes: count(2, "bytes")?,
        checksum: row.get::<_, &str>(3).parse().map_err(|_| damaged("checksum"))?,
    })
}

/// One row of `pgfathom.chunk` as the loader inserts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) dataset: i32,
    pub(crate) chunk: u64,
    pub(crate) first_row: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) stream: usize,
}

impl Claim {
    /// The statement that claims a chunk and records it in one: it inserts 1 row, or 0 when the chunk is committed already, and
    /// waits while another transaction holds it.
    pub(crate) fn insert_sql(&self) -> String {
        self.insert_where_sql("true")
    }

    /// The same, but it inserts nothing either when `condition` does not hold.
    pub(crate) fn insert_where_sql(&self, condition: &str) -> String {
        format!(
            "insert into pgfathom.chunk (dataset, chunk, first_row, rows, bytes, checksum, stream) \
             select {}, {}, {}, {}, {}, {}, {} where {condition} on conflict do nothing",
            self.dataset,
            self.chunk,
            self.first_row,
            self.rows,
            self.bytes,
            // The column is signed; two's complement keeps sums modulo 2^64 right.
            self.checksum as i64,
            self.stream
        )
    }

    /// The statement that fills in what a claim could not know: the rows of a leaf are counted while they are sent.
    pub(crate) fn update_sql(&self) -> String {
        format!(
            "update pgfathom.chunk set rows = {}, bytes = {}, checksum = {} where dataset = {} and chunk = {}",
            self.rows, self.bytes, self.checksum as i64, self.dataset, self.chunk
        )
    }
}

/// Notes that the table of this name (in the dataset's schema) is ours, and marks the table itself.
pub(crate) fn own_table(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    name: &str,
) -> Result<(), LoadError> {
    let inserted = client.execute(
        "insert into pgfathom.object (dataset, name, oid)
         select $1, c.relname, c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $2 and c.relname = $3",
        &[&dataset.id, &dataset.schema_name, &name],
    );
    sql("writing pgfathom.object", inserted)?;
    let comment =
        format!("comment on table {} is '{}'", qualified(&dataset.schema_name, name), table_comment(dataset));
    sql("marking a table as ours", client.batch_execute(&comment))
}

/// The comment of a table of ours. No part of it can hold a quote.
fn table_comment(dataset: &Dataset) -> String {
    format!(
        "{TABLE_MARK}{} {}: format {}, {} rows, seed {}, {} keys, compressible {}",
        dataset.name,
        dataset.id,
        dataset.format,
        dataset.rows,
        dataset.spec.seed,
        dataset.spec.key_order,
        dataset.spec.compressible
    )
}

/// A relation that bears a name we want.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Relation {
    pub(crate) name: String,
    /// `pg_class.relkind`.
    pub(crate) kind: char,
    /// The ledger lists it, by its oid or (after a dump and restore, which changes oids) by its name and its marker.
    pub(crate) ours: bool,
}

impl Relation {
    /// What it is, in words.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            'r' | 'p' => "table",
            'v' => "view",
            'm' => "materialized view",
            'f' => "foreign table",
            'i' | 'I' => "index",
            'S' => "sequence",
            'c' => "composite type",
            _ => "relation",
        }
    }
}

/// The relations of `schema` that bear one of `names`. `id` is the dataset they should belong to, when there is one.
pub(crate) fn relations(
    client: &mut impl GenericClient,
    schema: &str,
    names: &[String],
    id: Option<i32>,
) -> Result<Vec<Relation>, LoadError> {
    let rows = match id {
        Some(id) => client.query(
            "select c.relname::text, c.relkind::text, o.name is not null and
                    (o.oid = c.oid or coalesce(obj_description(c.oid, 'pg_class'), '') like $4)
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             left join pgfathom.object o on o.dataset = $3 and o.name = c.relname
             where n.nspname = $1 and c.relname = any($2) order by 1",
            &[&schema, &names, &id, &format!("{TABLE_MARK}%")],
        ),
        None => client.query(
            "select c.relname::text, c.relkind::text, false
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relname = any($2) order by 1",
            &[&schema, &names],
        ),
    };
    let rows = sql("looking for existing tables", rows)?;
    Ok(rows
        .iter()
        .map(|row| Relation {
            name: row.get(0),
            kind: row.get::<_, &str>(1).chars().next().unwrap_or('?'),
            ours: row.get(2),
        })
        .collect())
}

/// The names of all tables of a dataset.
pub(crate) fn owned_names(client: &mut impl GenericClient, id: i32) -> Result<Vec<String>, LoadError> {
    let rows = client.query("select name from pgfathom.object where dataset = $1 order by name", &[&id]);
    Ok(sql("reading pgfathom.object", rows)?.iter().map(|row| row.get(0)).collect())
}

/// `"schema"."name"`, quoted as SQL demands.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}

/// An identifier in double quotes.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
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

/// Replaces what a run was told to do: it has learned more about itself.
///
/// # Errors
/// When the writer is not in the ledger (its dataset was started over), `spec_json` is no JSON, or the query fails.
pub fn update_writer_spec(
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

/// When each run of a dataset wrote: run number, start and end in microseconds since 1970 by the server's clock. Without an end it is
/// still on, or was killed.
///
/// # Errors
/// When the query fails.
pub fn writer_times(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(qualified("public", "usertable"), "\"public\".\"usertable\"");
        assert_eq!(qualified("a\"b", "c"), "\"a\"\"b\".\"c\"");
    }

    #[test]
    fn a_checksum_above_the_sign_bit_is_stored_in_twos_complement() {
        let claim =
            Claim { dataset: 1, chunk: 2, first_row: 3, rows: 4, bytes: 5, checksum: u64::MAX, stream: 6 };
        assert!(claim.insert_sql().contains("select 1, 2, 3, 4, 5, -1, 6 where true on conflict do nothing"));
        assert!(
            claim.update_sql().contains("rows = 4, bytes = 5, checksum = -1 where dataset = 1 and chunk = 2")
        );
    }
}
