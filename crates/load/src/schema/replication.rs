//! Tables that an extension replicates, before they are dropped.

use connect::sql::literal;
use engines::profile::Replication;
use postgres::GenericClient;

use crate::error::LoadError;

/// Takes a table out of what is replicated where it could not be dropped otherwise.
pub(super) fn leave(client: &mut impl GenericClient, table: &str) -> Result<(), LoadError> {
    let failed = |source| LoadError::sql("taking the table out of the replication", source);
    let found = engines::engine::replications(
        |replication: &Replication| replication.remove_table.is_some(),
        |sign| Ok(client.query_one(&format!("select {sign}"), &[])?.get::<_, bool>(0)),
    );
    let oid = format!("pg_catalog.to_regclass({})::oid", literal(table));
    for call in found.map_err(failed)?.iter().filter_map(|replication| replication.remove_table) {
        client.batch_execute(&call.replace("{table}", &oid)).map_err(failed)?;
    }
    Ok(())
}
