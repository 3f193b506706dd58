//! What the rows of a dataset depend on beyond seed and number: `pgfathom.parameter`.

use std::collections::BTreeMap;

use postgres::GenericClient;

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

/// The parameters of a dataset, by name. One of an older program has none: it is YCSB's or TPC-C's, which are known otherwise.
///
/// # Errors
/// When the query fails.
pub fn parameters(client: &mut impl GenericClient, id: i32) -> Result<BTreeMap<String, String>, LoadError> {
    let doing = "reading pgfathom.parameter";
    let there = client.query_one("select to_regclass('pgfathom.parameter') is not null", &[]);
    if !sql(doing, there)?.get::<_, bool>(0) {
        return Ok(BTreeMap::new());
    }
    let rows = client.query("select name, value from pgfathom.parameter where dataset = $1", &[&id]);
    Ok(sql(doing, rows)?.iter().map(|row| (row.get(0), row.get(1))).collect())
}
