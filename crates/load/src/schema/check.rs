//! Whether the dataset in the target is the one that the options describe, and its tables are as the load made them.

use std::collections::BTreeMap;

use data::FORMAT_VERSION;
use postgres::{GenericClient, Transaction};

use super::NamedNode;
use crate::dataset::{self, DEFAULT, OFF, Parameter, Table, leaf_names, table_names};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Layout};
use crate::options::{Options, Via};
use crate::shape::Shape;
use crate::trust;

/// Refuses what differs from the options, from the load that made it, or from node to node. `first` is a node that has the dataset.
pub(super) fn check_found(
    transactions: &mut [Transaction<'_>],
    found: &[Option<(Dataset, Layout)>],
    first: usize,
    named_nodes: &[NamedNode],
    content: &dyn dataset::Dataset,
    options: &Options,
    shape: Shape,
) -> Result<(), LoadError> {
    let Some((model, layout)) = &found[first] else { return Ok(()) };
    let at = |node: usize| move |error: LoadError| error.at(&named_nodes[node].name);
    let recorded = ledger::parameters(&mut transactions[first], model.id).map_err(at(first))?;
    check_identity(model, &recorded, content, options)?;
    check_layout(model, layout, options, shape, named_nodes.len())?;
    check_agreement(found, first, named_nodes)?;
    for (node, transaction) in transactions.iter_mut().enumerate() {
        if let Some((dataset, _)) = &found[node] {
            check_tables(transaction, dataset, content.tables(), shape).map_err(at(node))?;
            check_tablespaces(transaction, dataset, content.tables(), layout).map_err(at(node))?;
        }
    }
    Ok(())
}

/// Refuses nodes whose ledgers speak of different datasets, and tables that a crash has emptied. `node` is one that has it.
fn check_agreement(
    found: &[Option<(Dataset, Layout)>],
    node: usize,
    named_nodes: &[NamedNode],
) -> Result<(), LoadError> {
    let Some((model, layout)) = &found[node] else { return Ok(()) };
    let differs = |(other, theirs): &(Dataset, Layout)| {
        let same = Dataset { id: model.id, loaded: model.loaded, ..other.clone() };
        same != *model || theirs.token != layout.token
    };
    if let Some(other) = found.iter().position(|found| found.as_ref().is_some_and(differs)) {
        let (one, other) = (named_nodes[node].name.clone(), named_nodes[other].name.clone());
        return Err(LoadError::MixedCluster { one, other });
    }
    if found.iter().flatten().any(|(_, layout)| layout.emptied) {
        return Err(LoadError::Emptied);
    }
    Ok(())
}

/// The value of a parameter that has a column of its own in the ledger's row of a dataset.
pub(super) fn column_of(dataset: &Dataset, what: &str) -> Option<String> {
    match what {
        "rows" => Some(dataset.rows.to_string()),
        "key order" => Some(dataset.spec.key_order.to_string()),
        "compressibility" => Some(dataset.spec.compressible.to_string()),
        _ => None,
    }
}

/// Refuses a dataset that differs from the options, naming the first difference and every flag that would match. `recorded` are its
/// further parameters by the ledger.
pub(super) fn check_identity(
    dataset: &Dataset,
    recorded: &BTreeMap<String, String>,
    content: &dyn dataset::Dataset,
    options: &Options,
) -> Result<(), LoadError> {
    let requested_partitions =
        options.partitions.map(|partitions| if partitions == 1 { 0 } else { partitions });
    let mut existing: Vec<(&'static str, Option<&str>, String, Option<String>)> = vec![
        ("format", None, dataset.format.to_string(), Some(FORMAT_VERSION.to_string())),
        ("seed", Some("--seed"), dataset.spec.seed.to_string(), Some(content.spec().seed.to_string())),
    ];
    for Parameter { what, flag, value } in content.parameters() {
        let there = column_of(dataset, what).or_else(|| recorded.get(what).cloned());
        let there = there.ok_or(LoadError::DamagedLedger { table: "parameter", column: "value" })?;
        existing.push((what, Some(flag), there, Some(value)));
    }
    existing.extend([
        (
            "partitions",
            Some("--partitions"),
            dataset.partitions.to_string(),
            requested_partitions.map(|partitions| partitions.to_string()),
        ),
        (
            "method",
            Some("--method"),
            dataset.method.to_string(),
            options.method.map(|method| method.to_string()),
        ),
        (
            "chunk length",
            Some("--chunk-rows"),
            dataset.chunk_rows.to_string(),
            options.chunk_rows.map(|rows| rows.to_string()),
        ),
    ]);
    let differs = |requested: &Option<String>, existing: &str| {
        requested.as_deref().is_some_and(|requested| requested != existing)
    };
    let Some((what, _, value, requested)) =
        existing.iter().find(|(_, _, value, requested)| differs(requested, value))
    else {
        return Ok(());
    };
    let matching: Vec<String> = existing
        .iter()
        .filter(|(_, _, value, requested)| differs(requested, value))
        .map(|(_, flag, value, _)| match flag {
            Some(flag) if matches!(value.as_str(), OFF | DEFAULT) => format!("no {flag}"),
            Some(flag) => format!("{flag} {value}"),
            None => format!("a pgfathom of format {value}"),
        })
        .collect();
    Err(LoadError::OtherDataset {
        dataset: dataset.name.clone(),
        what,
        existing: value.clone(),
        requested: requested.clone().unwrap_or_default(),
        matching: matching.join(" "),
    })
}

/// Refuses a layout that differs from the options.
pub(super) fn check_layout(
    dataset: &Dataset,
    layout: &Layout,
    options: &Options,
    shape: Shape,
    nodes: usize,
) -> Result<(), LoadError> {
    let other = |what: &'static str, existing: String, requested: String, matching: String| {
        Err(LoadError::OtherDataset { dataset: dataset.name.clone(), what, existing, requested, matching })
    };
    let nodes_there = layout.nodes.len().max(1);
    if nodes_there != nodes || layout.nodes.is_empty() != (shape == Shape::Single) {
        let listed = if layout.nodes.is_empty() {
            "1".to_owned()
        } else {
            format!("{nodes_there} ({})", layout.nodes.join(", "))
        };
        return other("nodes", listed, nodes.to_string(), "--cluster and a file of these nodes".to_owned());
    }
    if let Some(via) = options.via.filter(|via| ![layout.via, Via::Each].contains(via)) {
        return other("via", layout.via.to_string(), via.to_string(), format!("--via {}", layout.via));
    }
    // Tables that are complete are not made in another way because a flag was left out.
    if options.unlogged != layout.unlogged && (options.unlogged || !dataset.loaded) {
        let (existing, matching) =
            if layout.unlogged { ("unlogged", "--unlogged") } else { ("logged", "no --unlogged") };
        let requested = if options.unlogged { "unlogged" } else { "logged" };
        return other("tables", existing.to_owned(), requested.to_owned(), matching.to_owned());
    }
    let map = layout
        .tablespaces
        .clone()
        .filter(|map| !options.tablespaces.is_empty() && *map != options.tablespaces);
    if let Some(map) = map {
        let listed = if map.is_empty() { "none".to_owned() } else { map.join(",") };
        let matching =
            if map.is_empty() { "no --tablespaces".to_owned() } else { format!("--tablespaces {listed}") };
        return other("tablespaces", listed, options.tablespaces.join(","), matching);
    }
    Ok(())
}

/// Refuses a table that is in another tablespace than its index. Only datasets with a list of tablespaces are checked. A leaf that was moved
/// from another node may be in any tablespace.
fn check_tablespaces(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    tables: &[Table],
    layout: &Layout,
) -> Result<(), LoadError> {
    if layout.tablespaces.as_ref().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let rows = client.query(
        "select c.relname::text, coalesce(t.spcname, 'pg_default')::text, x.relname::text, coalesce(u.spcname, 'pg_default')::text
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         left join pg_tablespace t on t.oid = c.reltablespace
         join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
         left join pg_tablespace u on u.oid = x.reltablespace
         where n.nspname = $1 and c.relname = any($2) and c.relkind = 'r' and c.reltablespace <> x.reltablespace order by 1, 3 limit 1",
        &[&dataset.schema_name, &leaf_names(tables, dataset.partitions)],
    );
    let rows = rows.map_err(|source| LoadError::sql("reading the tables' tablespaces", source))?;
    match rows.first() {
        None => Ok(()),
        Some(row) => Err(LoadError::SplitTablespace {
            table: row.get(0),
            its: row.get(1),
            index: row.get(2),
            index_in: row.get(3),
        }),
    }
}

/// Refuses to continue when a table of the dataset is gone, belongs to another role, or is partitioned in another way.
fn check_tables(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    tables: &[Table],
    shape: Shape,
) -> Result<(), LoadError> {
    let all = table_names(tables, dataset.partitions);
    let is_divided =
        |name: &str| tables.iter().any(|table| table.name == name && table.is_divided(dataset.partitions));
    let is_parent = |name: &str| tables.iter().any(|table| table.name == name);
    // What the leaves are on a sharded cluster is for all nodes together to say: see `crate::shard`.
    let names: Vec<String> =
        all.iter().filter(|name| shape != Shape::Sharded || is_parent(name)).cloned().collect();
    let found = ledger::relations(client, &dataset.schema_name, &names, Some(dataset.id))?;
    for name in &names {
        let Some(relation) = found.iter().find(|relation| &relation.name == name) else {
            ledger::check_in_place(client, dataset, &all)?;
            return Err(changed(name, "the table no longer exists"));
        };
        let kind = if is_divided(name) { 'p' } else { 'r' };
        if !relation.ours || relation.kind != kind {
            return Err(changed(name, "the table was replaced by another one"));
        }
    }
    ledger::check_in_place(client, dataset, &all)?;
    trust::check_filled(client, dataset.id, &dataset.schema_name)?;
    if dataset.partitions <= 1 || shape == Shape::Sharded {
        return Ok(());
    }
    let divided = tables.iter().filter(|table| table.is_divided(dataset.partitions));
    divided.into_iter().try_for_each(|table| check_bounds(client, dataset, table))
}

fn changed(table: &str, problem: &str) -> LoadError {
    LoadError::ChangedTable { table: table.to_owned(), problem: problem.to_owned() }
}

/// Refuses a table that is partitioned in another way than the load made it.
fn check_bounds(client: &mut impl GenericClient, dataset: &Dataset, table: &Table) -> Result<(), LoadError> {
    let rows = client
        .query(
            "select c.relname::text, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i
             join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
             join pg_namespace n on n.oid = p.relnamespace
             where n.nspname = $1 and p.relname = $2 and coalesce(to_jsonb(i) ->> 'inhdetachpending', '') <> 'true'",
            &[&dataset.schema_name, &table.name],
        )
        .map_err(|source| LoadError::sql("reading the partitions' bounds", source))?;
    let bounds: BTreeMap<String, String> =
        rows.iter().map(|row| (row.get(0), row.get::<_, Option<String>>(1).unwrap_or_default())).collect();
    for remainder in 0..dataset.partitions {
        let name = format!("{}_p{remainder}", table.name);
        let expected = table.placement.bound(remainder, dataset.partitions);
        if bounds.get(&name) != Some(&expected) {
            return Err(changed(&name, "it is no longer the same partition"));
        }
    }
    if bounds.len() != dataset.partitions as usize {
        return Err(changed(table.name, "it has partitions that pgfathom did not make"));
    }
    Ok(())
}
