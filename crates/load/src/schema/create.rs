//! The statements that create the tables, and what must be free before they run.

use engines::Engine;
use engines::profile::Spread;
use postgres::GenericClient;

use super::check::column_of;
use crate::dataset::{self, Parameter, Table, table_names};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Layout, Relation, qualified, quoted};
use crate::trust;

/// Also returns which rights were taken from whom.
pub(super) fn create(
    client: &mut impl GenericClient,
    model: &Dataset,
    content: &dyn dataset::Dataset,
    layout: &Layout,
    force: &[String],
    sql: &str,
) -> Result<(Dataset, Vec<String>), LoadError> {
    trust::check_schema(client, &model.schema_name)?;
    ledger::create_if_missing(client)?;
    let names = table_names(content.tables(), model.partitions);
    clear_names(client, &model.schema_name, &names, force)?;
    let mut dataset = Dataset { loaded: false, ..model.clone() };
    dataset.id = ledger::insert_dataset(client, &dataset)?;
    ledger::set_layout(client, dataset.id, layout)?;
    let parameters: Vec<Parameter> =
        content.parameters().into_iter().filter(|one| column_of(model, one.what).is_none()).collect();
    if !parameters.is_empty() {
        ledger::set_parameters(client, dataset.id, &parameters)?;
    }
    client.batch_execute(sql).map_err(|source| LoadError::sql("creating the tables", source))?;
    for name in &names {
        ledger::own_table(client, &dataset, name)?;
    }
    let revoked = trust::keep_code_out(client, &model.schema_name, &names)?;
    Ok((dataset, revoked))
}

/// Makes sure that the names are free: drops what the user named with `--force`, refuses the rest.
pub(crate) fn clear_names(
    client: &mut impl GenericClient,
    schema_name: &str,
    names: &[String],
    force: &[String],
) -> Result<(), LoadError> {
    // Dropping one relation may take others along, so look again each time.
    while let Some(foreign) = ledger::relations(client, schema_name, names, None)?.first() {
        if let Some(dataset) = ledger::dataset_with(client, schema_name, &foreign.name)? {
            return Err(LoadError::TableOfOther { name: foreign.name.clone(), dataset });
        }
        let kind = drop_kind(foreign);
        let Some(kind) = kind.filter(|_| force.contains(&foreign.name)) else {
            return Err(LoadError::ForeignTable {
                name: foreign.name.clone(),
                kind: foreign.kind_name(),
                droppable: kind.is_some(),
            });
        };
        if matches!(foreign.kind, 'r' | 'p') {
            super::replication::leave(client, &qualified(schema_name, &foreign.name))?;
        }
        client
            .batch_execute(&format!("drop {kind} {}", qualified(schema_name, &foreign.name)))
            .map_err(|source| LoadError::sql(format!("dropping {} (--force)", foreign.name), source))?;
    }
    Ok(())
}

/// The word after `drop` for relations that `--force` may drop.
fn drop_kind(relation: &Relation) -> Option<&'static str> {
    matches!(relation.kind, 'r' | 'p' | 'v' | 'm' | 'f').then(|| relation.kind_name())
}

/// The columns in the statement that makes a table.
pub(super) fn columns_sql(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    format!("({})", columns.join(", "))
}

/// The storage parameters of a table: its fill factor, and one of the engine.
pub(super) fn parameters_sql(table: &Table, other: Option<String>) -> String {
    let fillfactor = table.fillfactor.map(|percent| format!("fillfactor = {percent}"));
    let all: Vec<String> = fillfactor.into_iter().chain(other).collect();
    if all.is_empty() { String::new() } else { format!(" with ({})", all.join(", ")) }
}

/// The words after a table's definition that put it into its tablespace: the `place`-th of the map, round and round.
pub(super) fn tablespace_sql(layout: &Layout, place: usize) -> String {
    tablespace_at(layout, place).map(|name| format!(" tablespace {}", quoted(name))).unwrap_or_default()
}

/// The tablespace of the `place`-th leaf of a node; `None`: the server's default.
pub(crate) fn tablespace_at(layout: &Layout, place: usize) -> Option<&str> {
    let map = layout.tablespaces.as_deref().unwrap_or_default();
    (!map.is_empty()).then(|| map[place % map.len()].as_str())
}

/// How the engine learns which column places the rows of a table, if it spreads them itself.
pub(super) fn spread_of(engine: Engine) -> Option<Spread> {
    match engine.layout {
        engines::profile::Layout::Spread(spread) => Some(spread),
        _ => None,
    }
}

pub(super) fn create_sql(
    dataset: &Dataset,
    tables: &[Table],
    layout: &Layout,
    spread: Option<Spread>,
) -> String {
    let mut sql = String::new();
    let placed = |table: &Table| {
        let statement =
            spread?.statement(&qualified(&dataset.schema_name, table.name), table.placement.column())?;
        Some(statement + ";")
    };
    for (number, table) in tables.iter().enumerate() {
        let columns = columns_sql(table);
        let parent = qualified(&dataset.schema_name, table.name);
        let unlogged = if layout.unlogged { "unlogged " } else { "" };
        let fillfactor = parameters_sql(table, None);
        let Some(by) = table.placement.sql().filter(|_| dataset.partitions > 1) else {
            let tablespace = tablespace_sql(layout, number);
            let parameter =
                spread.zip(table.placement.column()).and_then(|(spread, column)| spread.parameter(column));
            let parameters = parameters_sql(table, parameter);
            sql.push_str(&format!("create {unlogged}table {parent} {columns}{parameters}{tablespace};"));
            sql.extend(placed(table));
            continue;
        };
        let first = tablespace_sql(layout, 0);
        sql.push_str(&format!("create table {parent} {columns} partition by {by}{first};"));
        for remainder in 0..dataset.partitions {
            let leaf = qualified(&dataset.schema_name, &format!("{}_p{remainder}", table.name));
            let bound = table.placement.bound(remainder, dataset.partitions);
            let tablespace = tablespace_sql(layout, remainder as usize);
            sql.push_str(&format!(
                "create {unlogged}table {leaf} partition of {parent} {bound}{fillfactor}{tablespace};"
            ));
        }
        sql.extend(placed(table));
    }
    sql
}
