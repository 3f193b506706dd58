//! Further parameters of the rows of a dataset, besides seed and row number: `pgfathom.parameter`.

use std::collections::BTreeMap;

use postgres::{GenericClient, Row};

use super::sql;
use crate::dataset::Parameter;
use crate::error::LoadError;
use crate::trust;

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

/// What programs before 2026-11-23 wrote: a table of its own, with the name of the dataset.
fn of_older(client: &mut impl GenericClient, id: i32) -> Result<BTreeMap<String, String>, LoadError> {
    let doing = "reading the parameters of an older ledger";
    let name = client.query_one("select name from pgfathom.dataset where id = $1", &[&id]);
    let name: String = sql(doing, name)?.get(0);
    let table = connect::sql::qualified(super::SCHEMA, &name);
    // A dataset can have the name of a table of the ledger.
    if super::TABLES.contains(&name.as_str()) || !is_there(client, &table)? {
        return Ok(BTreeMap::new());
    }
    trust::check_tables_of_ledger(client, super::SCHEMA, &[&name])?;
    let row = client.query_opt(
        &format!(
            "select warehouses::text, case when foreign_keys then 'on' else 'off' end, coalesce(fillfactor::text, 'default')
             from {table} where dataset = $1"
        ),
        &[&id],
    );
    let names = ["scale", "foreign keys", "fill factor"];
    let of_row =
        |row: Row| names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), row.get(n))).collect();
    Ok(sql(doing, row)?.map(of_row).unwrap_or_default())
}
