//! Further parameters of the rows of a dataset, besides seed and row number: `pgfathom.parameter`.

use std::collections::BTreeMap;

use postgres::{GenericClient, Row};

use super::sql;
use crate::dataset::Parameter;
use crate::error::LoadError;

const DDL: &str = "
create table if not exists pgfathom.parameter (
    dataset int not null references pgfathom.dataset on delete cascade,
    name    text not null,
    value   text not null,
    primary key (dataset, name)
);
comment on table pgfathom.parameter is 'what the rows of a dataset depend on beyond its seed and the number of the row';
";

/// Notes the parameters of a new dataset.
pub(crate) fn set_parameters(
    client: &mut impl GenericClient,
    id: i32,
    parameters: &[Parameter],
) -> Result<(), LoadError> {
    let doing = "writing pgfathom.parameter";
    sql(doing, client.batch_execute(DDL))?;
    super::keep_code_out(client)?;
    for Parameter { what, value, .. } in parameters {
        let inserted = client.execute(
            "insert into pgfathom.parameter (dataset, name, value) values ($1, $2, $3)",
            &[&id, what, value],
        );
        sql(doing, inserted)?;
    }
    Ok(())
}

/// The parameters of a dataset, by name: what `pgfathom.dataset` has no column for.
///
/// # Errors
/// When the query fails.
pub fn parameters(client: &mut impl GenericClient, id: i32) -> Result<BTreeMap<String, String>, LoadError> {
    let doing = "reading pgfathom.parameter";
    if !is_there(client, "pgfathom.parameter")? {
        return of_older(client, id);
    }
    let rows = client.query("select name, value from pgfathom.parameter where dataset = $1", &[&id]);
    let found: BTreeMap<String, String> =
        sql(doing, rows)?.iter().map(|row| (row.get(0), row.get(1))).collect();
    if found.is_empty() { of_older(client, id) } else { Ok(found) }
}

fn is_there(client: &mut impl GenericClient, table: &str) -> Result<bool, LoadError> {
    let there = client.query_one("select to_regclass($1) is not null", &[&table]);
    Ok(sql("looking for the tables of the ledger", there)?.get(0))
}

/// The table in which programs before 2026-11-23 kept the parameters of a dataset.
pub(super) const OF_OLDER: &str = "tpcc";

/// What programs before 2026-11-23 wrote of TPC-C: a table of its own.
fn of_older(client: &mut impl GenericClient, id: i32) -> Result<BTreeMap<String, String>, LoadError> {
    if !is_there(client, "pgfathom.tpcc")? {
        return Ok(BTreeMap::new());
    }
    let row = client.query_opt(
        "select warehouses::text, case when foreign_keys then 'on' else 'off' end, coalesce(fillfactor::text, 'default')
         from pgfathom.tpcc where dataset = $1",
        &[&id],
    );
    let names = ["scale", "foreign keys", "fill factor"];
    let row = sql("reading pgfathom.tpcc", row)?;
    let of_row =
        |row: Row| names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), row.get(n))).collect();
    Ok(row.map(of_row).unwrap_or_default())
}
