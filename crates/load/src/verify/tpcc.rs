//! Prove the content of the TPC-C tables: every row that was loaded, each once, each value, and nothing else.
//!
//! ```text
//!            sums per table and warehouse agree ----------------> exact (fast)
//! fast: sum -+
//!            differ -> rows of tables and warehouses that differ -+-> judge each row, mark its place -> places without a mark
//! deep: all rows are judged; places are compared by their sums ---+
//! ```
//!
//! Fast: the server sums up `hash_record_extended(row(record_send(row(<columns>))), 0)` by warehouse. `record_send` is the row in
//! binary form, so one hash covers all values with their signs and their order, and the client computes the same from the bytes that it
//! would send. (`hash_record_extended` of the columns themselves would not do: the hash of a numeric leaves its sign out, and two rows that
//! trade the values of one column leave their sum as it was.) Deep: every row is read and compared with what it must be.
//!
//! Runs change these tables at places that nobody wrote down, so afterwards only ITEM can be proved, and it is said so.

use std::time::Instant;

use data::tpcc::{Population, Table};
use postgres::Client;
use target::{ConnSpec, hot};

use self::content::{Content, type_oid};
use super::catalog::reads_block_ranges;
use super::crew::{self, Crew, Foreman};
use super::reader::Socket;
use super::{Site, VerifyError, VerifyProgress, connect_error};
use crate::ledger::{self, qualified};
use crate::options::Stop;
use crate::tpcc::schema::columns;
use crate::tpcc::{TpccDataset, find};

pub use self::report::{Difference, DifferenceKind, KIND_NAMES, KINDS, TableFound, TpccVerifyReport};
pub use super::Method;

mod content;
mod report;
mod rows;
mod sums;

/// What a verification shall do.
#[derive(Debug)]
pub struct TpccVerifyOptions<'a> {
    /// Read and compare every row, whatever the sums say.
    pub deep: bool,
    /// Connections that read at once; about as many threads compute.
    pub jobs: usize,
    /// A request to stop.
    pub stop: &'a Stop,
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Places that are marked at a time, one bit each.
    places: u64,
    /// Blocks that a connection reads at once, where the server can read a range of them.
    blocks_at_once: u64,
}

/// 128 MB of marks; 64 MB of blocks.
const LIMITS: Limits = Limits { places: 1 << 30, blocks_at_once: 8192 };

/// A table as the server has it.
#[derive(Debug)]
struct TableAt {
    table: Table,
    /// Schema and name, quoted; `None`: the table is gone, and so are all its rows.
    relation: Option<String>,
    blocks: u64,
}

/// What all phases know.
struct Setting<'a> {
    content: Content,
    tables: Vec<TableAt>,
    /// The server reads a range of blocks without reading the whole table.
    block_ranges: bool,
    crew: Crew<'a>,
    jobs: usize,
    limits: Limits,
}

impl Setting<'_> {
    /// The pieces of a table that connections read side by side: conditions on the blocks, `None` for all of them.
    fn pieces(&self, at: usize) -> Vec<(usize, Option<String>)> {
        let TableAt { blocks, relation, .. } = &self.tables[at];
        if relation.is_none() {
            return Vec::new();
        }
        if !self.block_ranges {
            return vec![(at, None)];
        }
        let count = blocks.div_ceil(self.limits.blocks_at_once).max(1);
        let piece = |index: u64| {
            let from = index * self.limits.blocks_at_once;
            // The last one is open ended.
            let to = if index + 1 == count {
                String::new()
            } else {
                format!(" and ctid < '({},0)'::tid", from + self.limits.blocks_at_once)
            };
            (at, Some(format!("ctid >= '({from},0)'::tid{to}")))
        };
        (0..count).map(piece).collect()
    }
}

/// Verifies the TPC-C dataset of a database. `observer` is called about once a second by the calling thread.
///
/// Nothing is changed in the database. All reading is done in one snapshot.
///
/// # Errors
/// When there is no verdict; a difference in the content is part of the report instead.
pub fn run(
    spec: &ConnSpec,
    options: &TpccVerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<TpccVerifyReport, VerifyError> {
    run_within(spec, options, observer, LIMITS, true)
}

/// `may_hash`: whether what the server can do is used, or a test wants to see what is done without.
fn run_within(
    spec: &ConnSpec,
    options: &TpccVerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
    limits: Limits,
    may_hash: bool,
) -> Result<TpccVerifyReport, VerifyError> {
    let start = Instant::now();
    let mut site = Site::connect(spec, None)?;
    let mut notes = Vec::new();
    site.open_snapshot(&mut notes)?;
    let found = find_complete(&mut site.control)?;
    let runs = ledger::writers(&mut *site.control, &found.dataset)?.len();
    let judged: &[Table] = if runs > 0 {
        let runs = if runs == 1 { "1 run has".to_owned() } else { format!("{runs} runs have") };
        notes.push(format!(
            "{runs} written into the tables since the load: only item, which no transaction changes, was verified; prove tpcc checks what must still hold"
        ));
        &[Table::Item]
    } else {
        &Table::ALL
    };
    let content = Content::new(found.population(), found.warehouses);
    let tables = tables(&mut site.control, &found, judged)?;
    let mut method = Method::Deep;
    if options.deep {
        // As asked for.
    } else if may_hash && hashes_as_we_do(&mut site.control)? {
        method = Method::Fast;
    } else {
        notes.push(
            "the server cannot hash a row as this program does (hash_record_extended, PostgreSQL 14), so every row was read"
                .to_owned(),
        );
    }
    let block_ranges = match tables.iter().find_map(|table| table.relation.as_ref()) {
        Some(relation) => reads_block_ranges(&mut site.control, relation)?,
        None => false,
    };
    let Site { spec, control, snapshot, .. } = &mut site;
    let spec: &ConnSpec = spec;
    let connect = move || -> Result<Box<dyn Socket>, VerifyError> {
        Ok(Box::new(hot::connect(spec).map_err(|error| connect_error(error, None))?))
    };
    let servers = vec![crew::Site::new(&connect, snapshot.as_deref())];
    let setting = Setting {
        content,
        tables,
        block_ranges,
        crew: Crew::new(servers, options.stop),
        jobs: options.jobs.max(1),
        limits,
    };
    let mut foreman = Foreman::new(vec![&mut **control], observer);
    let rows_total = found.dataset.rows;
    let deep = method == Method::Deep;
    let mut compared = sums::compare(&setting, &mut foreman, deep, rows_total)?;
    if !deep && !compared.differing.is_empty() {
        method = Method::FastThenDeep;
    }
    let findings = rows::name(&setting, &mut foreman, &compared.differing, !deep)?;
    compared.findings.merge(findings);
    let (cells, all) = (&compared.cells, &compared.findings);
    let tables = setting.tables.iter().enumerate().map(|(at, table)| TableFound {
        table: table.table,
        rows_expected: cells.rows_expected(at),
        rows_found: cells.rows_found(at),
        differences: all.of_table(table.table),
    });
    let tables = tables.collect();
    let (differences, totals) = compared.findings.into_named();
    Ok(TpccVerifyReport {
        method,
        notes,
        tables,
        differences,
        totals,
        is_changed_by_runs: runs > 0,
        duration: start.elapsed(),
    })
}

fn find_complete(control: &mut Client) -> Result<TpccDataset, VerifyError> {
    let found = find(control)?.ok_or(VerifyError::NoDataset)?;
    if found.dataset.format != data::FORMAT_VERSION {
        let (dataset, known) = (found.dataset.name, data::FORMAT_VERSION);
        return Err(VerifyError::Format { dataset, found: found.dataset.format, known });
    }
    if !found.dataset.loaded {
        return Err(VerifyError::Incomplete { dataset: found.dataset.name });
    }
    Ok(found)
}

fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    result.map_err(|source| VerifyError::Sql { doing, source })
}

/// Looks for the tables and compares their columns with those that were made.
fn tables(control: &mut Client, found: &TpccDataset, judged: &[Table]) -> Result<Vec<TableAt>, VerifyError> {
    let mut tables = Vec::new();
    for &table in judged {
        let relation = qualified(&found.dataset.schema_name, table.name());
        let row = control.query_opt(
            "select relkind::text, pg_relation_size(oid) / current_setting('block_size')::bigint
             from pg_class where oid = to_regclass($1)",
            &[&relation],
        );
        let Some(row) = sql("looking for the tables", row)? else {
            tables.push(TableAt { table, relation: None, blocks: 0 });
            continue;
        };
        let changed = |problem: String| VerifyError::ChangedTable { table: table.name().to_owned(), problem };
        if row.get::<_, &str>(0) != "r" {
            return Err(changed("is no longer a table".to_owned()));
        }
        let blocks = row.get::<_, i64>(1) as u64;
        let rows = control.query(
            "select attname::text, atttypid from pg_attribute
             where attrelid = to_regclass($1) and attnum > 0 and not attisdropped",
            &[&relation],
        );
        let rows = sql("reading the table's columns", rows)?;
        for (name, kind) in columns(table) {
            match rows.iter().find(|row| row.get::<_, &str>(0) == *name) {
                None => return Err(changed(format!("has no column {name}"))),
                Some(row) if row.get::<_, u32>(1) != type_oid(kind) => {
                    return Err(changed(format!(
                        "its column {name} is no longer {}",
                        kind.replace(" not null", "")
                    )));
                }
                Some(_) => {}
            }
        }
        tables.push(TableAt { table, relation: Some(relation), blocks });
    }
    Ok(tables)
}

/// Whether the server's hash of a row in binary form is there and agrees with ours, tried with a value of each type and a null.
fn hashes_as_we_do(control: &mut Client) -> Result<bool, VerifyError> {
    const DOING: &str = "asking the server how it hashes";
    let there = control.query_one(
        "select to_regprocedure('pg_catalog.hash_record_extended(record,bigint)') is not null
            and to_regprocedure('pg_catalog.record_send(record)') is not null",
        &[],
    );
    if !sql(DOING, there)?.get::<_, bool>(0) {
        return Ok(false);
    }
    let population = Population::new(1);
    let (orders, order) = (population.orders(1, 1), population.orders(1, 1).order(3_000));
    let line = orders.line(&order, 1);
    let theirs = control.query_one(
        &format!(
            "select hash_record_extended(row(record_send(row({}, {}, {}, {}, {}, {}, null::timestamp, {}, {}::numeric(6,2), '{}'::char(24)))), 0)",
            line.ol_o_id,
            line.ol_d_id,
            line.ol_w_id,
            line.ol_number,
            line.ol_i_id,
            line.ol_supply_w_id,
            line.ol_quantity,
            format_args!("{}.{:02}", line.ol_amount_cents / 100, line.ol_amount_cents % 100),
            String::from_utf8_lossy(&line.ol_dist_info)
        ),
        &[],
    );
    let ours = content::RecordHash::new(Table::OrderLine).of(&line);
    Ok(sql(DOING, theirs)?.get::<_, i64>(0) as u64 == ours)
}

#[cfg(test)]
mod tests;
