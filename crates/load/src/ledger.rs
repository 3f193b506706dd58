//! The ledger: schema `pgfathom` in the target, which records what was loaded and by whom.
//!
//! | table | a row is |
//! |---|---|
//! | `dataset` | the identity of one dataset: a load that continues it must agree with every column |
//! | `chunk` | one loaded chunk, inserted in the transaction that loads its rows: there are exactly the chunks of committed rows |
//! | `object` | one table that is ours, by oid and by name: nothing else is ever truncated or dropped |
//! | `writer` | one run that writes into the dataset, so that verification knows which versions can exist |
//! | `progress` | what one loader has loaded on one node in about a minute: the rate over days |
//! | `pending` | one chunk on its way through an entry node (`--via connect`), whose rows may be there in part |
//! | `parameter` | what the rows of a dataset depend on beyond seed and number: its scale, the sizes of its documents |
//! | `unlogged` | one dataset in unlogged tables; it is unlogged itself, so a crash of the server that empties them empties it |
//!
//! Progress is what `chunk` records and nothing else. A dataset's `id` is never used twice, and `chunk` and `writer` refer to it by
//! a foreign key: a loader that has not noticed that its dataset was started over gets an error from its next claim instead of
//! writing old rows into a new table.
//!
//! **On a cluster** each node that takes writes has its own ledger, because a chunk's rows and its ledger row are one transaction and a
//! transaction is of one node. Where rows are spread over nodes, a chunk has a row on each of them, and `chunk.leaves` names the leaf
//! tables (by remainder) whose rows of the chunk that transaction loaded; null means all leaves. **A pair of chunk and leaf is loaded
//! if the ledger of any node has it**: a leaf that moves to another node takes its rows along but leaves its ledger rows behind, and
//! they stay true. So the sum of `rows` over all nodes is the number of loaded rows, while the sum on one node is what was loaded *there*, not what
//! is there now. Where every node holds every row (multimaster) each ledger counts for its own node alone.
//!
//! `chunk.checksum` is the sum modulo 2^64 of `hashtextextended(ycsb_key, 8816678312871386365)` over the chunk's rows, the very
//! hash that PostgreSQL routes hash partitions by, so it costs the loader nothing extra. The server can check the set of keys of a
//! whole table against the ledger without a client:
//!
//! ```sql
//! select mod((select sum(hashtextextended(ycsb_key, 8816678312871386365)::numeric) from usertable)
//!          - (select sum(checksum) from pgfathom.chunk), 18446744073709551616) = 0;
//! ```

pub use connect::sql::{identifier as quoted, qualified};
use data::{Compressible, KeyOrder, Spec};
use postgres::{GenericClient, Row};

use crate::error::LoadError;
use crate::method::{Method, Via};
use crate::trust;

mod chunk;
mod history;
mod owned;
mod parameter;
mod pending;
mod writer;

pub use chunk::{ChunkTotals, chunk_totals};
pub(crate) use chunk::{Claim, Coverage, chunk_totals_in, coverage};
pub(crate) use chunk::{Extent, odd_chunks};
pub(crate) use history::HISTORY_INTERVAL;
pub use history::{HistoryPoint, history};
pub(crate) use history::{HistoryRow, append_history};
pub(crate) use owned::{
    MARKED, Relation, adopt_tables, dataset_with, mark_copies, own_table, owned_names, relations,
};
pub use owned::{check_in_place, check_rules, check_usable};
pub use parameter::parameters;
pub(crate) use parameter::set_parameters;
pub(crate) use pending::{forget_pending, note_pending_sql, settle_pending_sql};
pub use writer::{Writer, create_writer, finish_writer, writers};
pub(crate) use writer::{active_writer, update_writer_spec, writer_times};

/// Version of the ledger's own tables, kept in the comment of the schema. A load makes version 2 of version 1; everything that only reads
/// takes both.
pub(crate) const LEDGER_VERSION: u32 = 2;

/// The oldest version that this program reads and continues.
pub(crate) const LEDGER_VERSION_MIN: u32 = 1;

/// The schema of the ledger.
pub const SCHEMA: &str = "pgfathom";

/// The highest run number that fits a version inside a value (14 bits); 0 is the load.
pub const RUN_NO_MAX: i32 = (1 << 14) - 1;

/// Its tables.
const TABLES: [&str; 8] =
    ["dataset", "chunk", "object", "writer", "progress", "pending", "unlogged", "parameter"];

/// Start of the schema's comment; the version follows.
const SCHEMA_MARK: &str = "pgfathom ledger ";

/// Start of the comment of each table of ours; the rest describes its dataset.
pub(crate) const TABLE_MARK: &str = "pgfathom dataset ";

/// Keys of the advisory locks that keep two pgfathoms from changing the same things at once. The first number is "pgfathom".
pub(crate) mod lock {
    pub(crate) use engines::lock::LOCK_CLASS as CLASS;
    /// Creation, restart and removal of schemas and tables.
    pub(crate) const SETUP: i32 = 1;
    /// Primary keys and statistics of a loaded dataset.
    pub(crate) const FINISH: i32 = 2;

    /// One leaf that is being filled: the letters `pg`, the dataset, and the leaf in 15 bits, which is what
    /// [`crate::plan::LEAVES_MAX`] needs. A lock of one number never collides with one of two.
    pub(crate) fn leaf(dataset: i32, leaf: u64) -> i64 {
        0x7067 << 48 | i64::from(dataset) << 15 | leaf as i64
    }
    const _: () = assert!(crate::plan::LEAVES_MAX <= 1 << 15);

    /// One chunk that is being loaded: the letters `ph`, the lowest bits of the dataset, and the chunk in 24 bits, which is what
    /// [`crate::plan::CHUNKS_MAX`] needs. Two datasets that share their lowest 24 bits would only wait for each other needlessly.
    pub(crate) fn chunk(dataset: i32, chunk: u64) -> i64 {
        0x7068 << 48 | (i64::from(dataset) & 0xFF_FFFF) << 24 | chunk as i64
    }
    const _: () = assert!(crate::plan::CHUNKS_MAX <= 1 << 24);

    /// One run that is on: the letters `pgfa`, the dataset, and the number of the run in [`RUN_BITS`].
    pub(crate) fn run(dataset: i32, run_no: u16) -> i64 {
        i64::from(CLASS) << 32 | i64::from(dataset) << RUN_BITS | i64::from(run_no)
    }
    /// Bits of a run's number.
    pub(crate) const RUN_BITS: i32 = 14;
    const _: () = assert!(super::RUN_NO_MAX < 1 << RUN_BITS);
}

/// No other role makes anything in the new schema, whatever the default privileges are.
const OWNER_ONLY: &str = "
do $$ declare one record; begin
    for one in select distinct case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role
        from pg_namespace n cross join aclexplode(n.nspacl) a
        where n.nspname = 'pgfathom' and a.privilege_type = 'CREATE' and a.grantee <> n.nspowner
    loop
        execute 'revoke create on schema pgfathom from ' || one.role;
    end loop;
end $$;
";

/// Version 1.
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
comment on column pgfathom.chunk.checksum is 'sum of hashtextextended(key, 8816678312871386365) over the rows, modulo 2^64';
comment on table pgfathom.object is 'the tables that belong to a dataset: pgfathom changes or drops no others';
comment on table pgfathom.writer is 'one row per run that writes versions into a dataset';
comment on column pgfathom.writer.transactions is 'transactions per session, an array, filled when the run has finished';
";

/// What version 2 adds. No row is rewritten: columns come with constant defaults, and only the index of `chunk` is built anew.
const DDL_2: &str = "
alter table pgfathom.dataset
    add column token       bigint not null default 0,
    add column nodes       text[] not null default '{}',
    add column via         text not null default 'owner',
    add column tablespaces text[],
    add column unlogged    boolean not null default false;
alter table pgfathom.chunk
    add column leaf   int not null default 0,
    add column leaves smallint[],
    drop constraint chunk_pkey,
    add primary key (dataset, chunk, leaf);
create table pgfathom.progress (
    dataset int not null references pgfathom.dataset on delete cascade,
    at      timestamptz not null default clock_timestamp(),
    node    text not null,
    loader  bigint not null,
    seconds float8 not null,
    rows    bigint not null,
    bytes   bigint not null,
    streams int not null,
    primary key (dataset, at, node, loader)
);
create table pgfathom.pending (
    dataset  int not null references pgfathom.dataset on delete cascade,
    chunk    bigint not null,
    noted_at timestamptz not null default clock_timestamp(),
    primary key (dataset, chunk)
);
create unlogged table pgfathom.unlogged (
    dataset int primary key references pgfathom.dataset on delete cascade
);
comment on column pgfathom.dataset.token is 'the same on every node of a cluster; another number belongs to another load';
comment on column pgfathom.dataset.nodes is 'names of the nodes that hold rows, in order; empty: one server';
comment on column pgfathom.chunk.leaf is 'the first of leaves; 0 where it covers all';
comment on column pgfathom.chunk.leaves is 'the leaf tables (by remainder) whose rows of the chunk this row stands for; null: all of them';
comment on table pgfathom.progress is 'rows loaded per node, loader and interval of about a minute';
comment on table pgfathom.pending is 'chunks that are loaded through this node into others and may be there in part';
comment on table pgfathom.unlogged is 'datasets in unlogged tables: empty after a crash, as they are';
";

/// A dataset as the ledger has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// Never used twice, so a dataset that was started over is another one.
    pub id: i32,
    /// Its name on the command line. There is one of a name per database.
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
    /// Rows per chunk; for [`Method::Freeze`] a chunk is a leaf table and this has no meaning.
    pub chunk_rows: u64,
    /// Every chunk is there, primary keys and statistics too.
    pub loaded: bool,
}

impl Dataset {
    /// As the run directory names it, the same for every verb that works on it.
    pub fn described(&self) -> record::model::Dataset {
        let parameters = serde_json::json!({
            "schema": self.schema_name,
            "partitions": self.partitions,
            "key_order": self.spec.key_order.as_str(),
            "compressible": f64::from(self.spec.compressible.percent()) / 100.0,
            "method": self.method.as_str(),
            "chunk_rows": self.chunk_rows,
        });
        record::model::Dataset {
            name: self.name.clone(),
            format_version: self.format,
            seed: self.spec.seed,
            rows: self.rows,
            parameters: parameters.as_object().cloned().unwrap_or_default().into_iter().collect(),
        }
    }
}

/// How a dataset lies on its servers: what version 2 of the ledger knows beyond the identity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// The same on every node of a cluster; 0 on a single server.
    pub token: i64,
    /// Names of the nodes that hold rows, in the order in which leaves were assigned to them; empty: one server.
    pub nodes: Vec<String>,
    /// How rows get to their nodes.
    pub via: Via,
    /// Tablespaces that leaves and their indexes are assigned to in turn; `None`: made before the ledger knew.
    pub tablespaces: Option<Vec<String>>,
    /// The tables are unlogged.
    pub unlogged: bool,
    /// The tables are unlogged and a crash of the server has emptied them.
    pub emptied: bool,
}

fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, LoadError> {
    result.map_err(|source| LoadError::sql(doing, source))
}

/// Whether the database has a ledger.
///
/// # Errors
/// When the schema exists and is not ours or of a version this program does not know, or the query fails.
pub fn exists(client: &mut impl GenericClient) -> Result<bool, LoadError> {
    Ok(version(client)?.is_some())
}

/// The version of the ledger, when there is one.
fn version(client: &mut impl GenericClient) -> Result<Option<u32>, LoadError> {
    let found = client.query_opt(
        "select obj_description(oid, 'pg_namespace'), not exists (select from pg_class where relnamespace = n.oid)
         from pg_namespace n where nspname = $1",
        &[&SCHEMA],
    );
    let Some(row) = sql("looking for the ledger", found)? else { return Ok(None) };
    let comment: Option<String> = row.get(0);
    let version = comment.as_deref().and_then(|comment| comment.strip_prefix(SCHEMA_MARK));
    let version = version.and_then(|rest| rest.split([':', ' ']).next()?.parse::<u32>().ok());
    match version {
        Some(found @ LEDGER_VERSION_MIN..=LEDGER_VERSION) => {
            trust::check_ledger(client, SCHEMA, &TABLES)?;
            Ok(Some(found))
        }
        Some(found) => Err(LoadError::LedgerVersion { found, known: LEDGER_VERSION }),
        None => Err(LoadError::ForeignSchema { is_empty: row.get(1) }),
    }
}

/// Creates the ledger when it is missing, and brings an older one to the present version. To be called inside a transaction that holds
/// the setup lock. Waits for chunks in flight of an older program, which can go on afterwards: the new columns have defaults.
pub(crate) fn create_if_missing(client: &mut impl GenericClient) -> Result<(), LoadError> {
    let comment = schema_mark_sql();
    match version(client)? {
        None => {
            let plain = engines::engine::plain_schemas(true);
            let ddl = format!("{plain}; create schema {SCHEMA}; {comment}; {OWNER_ONLY} {DDL} {DDL_2}");
            sql("creating the schema pgfathom", client.batch_execute(&ddl))?;
        }
        Some(1) => sql("upgrading the ledger", client.batch_execute(&format!("{comment}; {DDL_2}")))?,
        Some(_) => return Ok(()),
    }
    keep_code_out(client)
}

/// The statement that marks the schema as a ledger.
fn schema_mark_sql() -> String {
    format!(
        "comment on schema {SCHEMA} is '{SCHEMA_MARK}{LEDGER_VERSION}: what pgfathom has loaded into this database and how far; \
         written by pgfathom only'"
    )
}

/// No other role attaches code to the ledger's tables, whatever the default privileges are. To be called in the transaction that makes some of them.
pub(crate) fn keep_code_out(client: &mut impl GenericClient) -> Result<(), LoadError> {
    let tables: Vec<String> = TABLES.iter().map(|table| (*table).to_owned()).collect();
    trust::keep_code_out(client, SCHEMA, &tables).map(drop)
}

/// The dataset of this name, if the ledger has it. One in unlogged tables that a crash has emptied is not `loaded`.
///
/// # Errors
/// When the ledger is not ours, damaged, or the query fails.
pub fn find_dataset(client: &mut impl GenericClient, name: &str) -> Result<Option<Dataset>, LoadError> {
    let intact = match version(client)? {
        None => return Ok(None),
        Some(1) => "",
        // A standby has no unlogged tables, and may not even ask.
        Some(_) if in_recovery(client)? => " and not unlogged",
        Some(_) => " and (not unlogged or id in (select dataset from pgfathom.unlogged))",
    };
    let row = client.query_opt(
        &format!(
            "select id, name, schema_name, format, seed::text, rows, key_order, compressible, partitions, method, chunk_rows,
                    loaded_at is not null{intact}
             from pgfathom.dataset where name = $1"
        ),
        &[&name],
    );
    sql("reading pgfathom.dataset", row)?.map(|row| dataset_of(&row)).transpose()
}

/// Whether the schema of the ledger is there without its tables, as on a node whose coordinator has them. A server that takes no session counts as one
/// that has them: the next connection returns the reason.
///
/// # Errors
/// When the time for a connection is over: the next one would take as long again.
pub fn is_elsewhere(spec: &connect::ConnSpec) -> Result<bool, connect::ConnectError> {
    match crate::connections::shared(spec) {
        Ok(mut control) => {
            Ok(matches!(version(&mut *control), Err(LoadError::ForeignSchema { is_empty: true })))
        }
        Err(LoadError::Connect(error)) if error.has_timed_out() => Err(*error),
        Err(_) => Ok(false),
    }
}

/// The names of all datasets, the oldest first.
pub(crate) fn dataset_names(client: &mut impl GenericClient) -> Result<Vec<String>, LoadError> {
    if !exists(client)? {
        return Ok(Vec::new());
    }
    let rows = client.query("select name from pgfathom.dataset order by id", &[]);
    Ok(sql("reading pgfathom.dataset", rows)?.iter().map(|row| row.get(0)).collect())
}

/// Whether the server is a standby.
fn in_recovery(client: &mut impl GenericClient) -> Result<bool, LoadError> {
    let row = client.query_one("select pg_catalog.pg_is_in_recovery()", &[]);
    Ok(sql("checking whether the server is a standby", row)?.get(0))
}

/// How a dataset lies on its servers. A ledger of version 1 knows of single servers only.
///
/// # Errors
/// When the dataset is gone, the ledger is damaged, or the query fails.
pub fn layout(client: &mut impl GenericClient, id: i32) -> Result<Layout, LoadError> {
    if version(client)? == Some(1) {
        return Ok(Layout::default());
    }
    let emptied =
        if in_recovery(client)? { "true" } else { "id not in (select dataset from pgfathom.unlogged)" };
    let row = client.query_opt(
        &format!(
            "select token, nodes, via, tablespaces, unlogged, unlogged and {emptied}
             from pgfathom.dataset where id = $1"
        ),
        &[&id],
    );
    let row = sql("reading pgfathom.dataset", row)?.ok_or(LoadError::Restarted)?;
    let via = row.get::<_, &str>(2).parse();
    Ok(Layout {
        token: row.get(0),
        nodes: row.get(1),
        via: via.map_err(|_| LoadError::DamagedLedger { table: "dataset", column: "via" })?,
        tablespaces: row.get(3),
        unlogged: row.get(4),
        emptied: row.get(5),
    })
}

/// Notes how a new dataset lies on its servers.
pub(crate) fn set_layout(client: &mut impl GenericClient, id: i32, layout: &Layout) -> Result<(), LoadError> {
    let updated = client.execute(
        "update pgfathom.dataset set token = $2, nodes = $3, via = $4, tablespaces = $5, unlogged = $6 where id = $1",
        &[&id, &layout.token, &layout.nodes, &layout.via.as_str(), &layout.tablespaces, &layout.unlogged],
    );
    sql("writing pgfathom.dataset", updated)?;
    if layout.unlogged {
        let marked = client.execute("insert into pgfathom.unlogged (dataset) values ($1)", &[&id]);
        sql("writing pgfathom.unlogged", marked)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_chunks_and_leaves_never_meet() {
        assert_ne!(lock::chunk(1, 5), lock::leaf(1, 5));
        assert_ne!(lock::chunk(1, 5), lock::chunk(2, 5));
        assert_ne!(lock::chunk(1, crate::plan::CHUNKS_MAX - 1), lock::chunk(2, 0));
        assert!(lock::chunk(i32::MAX, crate::plan::CHUNKS_MAX - 1) >> 48 == 0x7068);
    }
}
