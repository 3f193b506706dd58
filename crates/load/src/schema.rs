//! The dataset's tables: made, recognised, refused or removed. Everything here is one transaction, so a kill leaves either the old
//! state or the new one.
//!
//! Leaf tables are partitions from the start. Filling them as tables of their own and attaching them later would make the server read
//! every row once more to prove the partition constraint; as partitions the constraint is checked row by row while the row is in the
//! cache anyway, and a row routed wrongly is refused. The price is one hash per row on the server.
//!
//! There is no primary key while rows come in: an index built afterwards is faster, smaller and needs less WAL, and without one no
//! insert ever waits for another.

use std::collections::BTreeMap;
use std::time::Duration;

use data::FORMAT_VERSION;
use engines::Engine;
use engines::cluster::Cluster;
use engines::profile::Spread;
use postgres::{GenericClient, Transaction};

use crate::dataset::{self, DEFAULT, Leaves, OFF, Parameter, Table, leaf_names, table_names};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Layout, Relation, qualified, quoted};
use crate::node_sessions::{NodeSession, NodeSessions};
use crate::options::{Method, Options, Stop, StopLevel, Via};
use crate::plan::{Chunks, LEAVES_MAX};
use crate::shape::Shape;
use crate::trust;

pub(crate) mod sharded;

/// The dataset to load, as each node's ledger has it, and whether it was begun before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prepared {
    /// One per node; they differ in `id` alone, and in `loaded` when an earlier load was cut short at its very end.
    pub(crate) datasets: Vec<Dataset>,
    pub(crate) layout: Layout,
    /// No node had it.
    pub(crate) created: bool,
    /// What the user should know of how it was made.
    pub(crate) notes: Vec<String>,
}

/// The pause before locks of several nodes are tried again, when another pgfathom has some of them.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// Finds the dataset on every node and checks that it is the one that `options` describe, or makes it where it is missing.
///
/// On several nodes this is one transaction each, open at the same time and committed one after the other. A kill between two commits
/// leaves nodes without the dataset, which the next load makes there; or, after `--restart`, nodes with the old one, whose token differs:
/// that is refused.
pub(crate) fn prepare(
    sessions: &mut NodeSessions,
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    stop: &Stop,
) -> Result<Prepared, LoadError> {
    let tables = content.tables();
    let NodeSessions { shape, members } = sessions;
    let named_nodes: Vec<NamedNode> =
        members.iter().map(|member| NamedNode { name: member.name.clone(), node: member.node }).collect();
    let mut transactions = begin(members, stop)?;
    let named_nodes_ref = &named_nodes;
    let at = |node: usize| move |error: LoadError| error.at(&named_nodes_ref[node].name);
    let find = |(node, transaction)| find(transaction, content.name()).map_err(at(node));
    let mut found = transactions.iter_mut().enumerate().map(find).collect::<Result<Vec<_>, _>>()?;
    if options.restart {
        for (node, transaction) in transactions.iter_mut().enumerate() {
            if let Some((dataset, _)) = found[node].take() {
                remove(transaction, &dataset).map_err(at(node))?;
            }
        }
    }
    let first = found.iter().position(Option::is_some);
    let (model, layout) = match first {
        Some(node) => found[node].clone().ok_or(LoadError::Restarted)?,
        None => {
            let schema =
                crate::connections::users_schema(&cluster.nodes[named_nodes[0].node].spec).map_err(at(0))?;
            plan(*shape, &named_nodes, cluster, content, options, schema)?
        }
    };
    if let Some(node) = first {
        let recorded = ledger::parameters(&mut transactions[node], model.id).map_err(at(node))?;
        check_identity(&model, &recorded, content, options)?;
        check_layout(&model, &layout, options, *shape, named_nodes.len())?;
        check_agreement(&found, node, &named_nodes)?;
    }
    for (node, transaction) in transactions.iter_mut().enumerate() {
        if let Some((dataset, _)) = &found[node] {
            check_tables(transaction, dataset, tables, *shape).map_err(at(node))?;
            check_tablespaces(transaction, dataset, tables, &layout).map_err(at(node))?;
        }
    }
    let mut notes = Vec::new();
    let missing: Vec<usize> = (0..found.len()).filter(|node| found[*node].is_none()).collect();
    if !missing.is_empty() {
        let owners = match shape {
            Shape::Sharded => {
                sharded::owners(&mut transactions, &found, &model, tables).map_err(|error| *error)?
            }
            Shape::Single | Shape::Repeated => Vec::new(),
        };
        for node in missing {
            let sql = match shape {
                Shape::Sharded => {
                    let servers = sharded::servers(&mut transactions[node], cluster, &named_nodes, node)
                        .map_err(at(node))?;
                    sharded::create_sql(&model, tables, &layout, &owners, node, &servers)
                }
                Shape::Single | Shape::Repeated => {
                    create_sql(&model, tables, &layout, spread_of(cluster.engine))
                }
            };
            let made = create(&mut transactions[node], &model, content, &layout, &options.force, &sql);
            let (dataset, revoked) = made.map_err(at(node))?;
            notes.extend(revoked);
            found[node] = Some((dataset, layout.clone()));
        }
    }
    for (node, transaction) in transactions.into_iter().enumerate() {
        transaction.commit().map_err(failed).map_err(at(node))?;
    }
    let datasets = found.into_iter().flatten().map(|(dataset, _)| dataset).collect();
    Ok(Prepared { datasets, layout, created: first.is_none(), notes })
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

/// A node by name and by its place in the cluster.
#[derive(Clone, Debug)]
pub(crate) struct NamedNode {
    pub(crate) name: String,
    pub(crate) node: usize,
}

fn failed(source: postgres::Error) -> LoadError {
    LoadError::sql("preparing the tables", source)
}

/// Begins a transaction on every node, each with the setup lock. Two loaders that start at once create one dataset: the second waits here
/// and finds it. On several nodes no loader waits while it holds a lock, so it does not matter in which order loaders list the nodes.
pub(crate) fn begin<'a>(
    members: &'a mut [NodeSession],
    stop: &Stop,
) -> Result<Vec<Transaction<'a>>, LoadError> {
    // Only tried until all are there: the borrow of what is returned would not end in the loop.
    loop {
        let mut all = true;
        for member in members.iter_mut() {
            let row = member
                .control
                .query_one(
                    "select pg_try_advisory_lock($1, $2)",
                    &[&ledger::lock::CLASS, &ledger::lock::SETUP],
                )
                .map_err(failed)
                .map_err(|error| error.at(&member.name))?;
            all &= row.get::<_, bool>(0);
        }
        if all {
            break;
        }
        unlock(members)?;
        if stop.level() > StopLevel::Run {
            return Err(LoadError::Interrupted);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    let transactions = members.iter_mut().map(|member| {
        let mut transaction = member.control.transaction()?;
        // From the session to the transaction: it goes away with it, whatever becomes of it.
        let keys: [&(dyn postgres::types::ToSql + Sync); 2] = [&ledger::lock::CLASS, &ledger::lock::SETUP];
        transaction.execute("select pg_advisory_xact_lock($1, $2)", &keys)?;
        transaction.execute("select pg_advisory_unlock($1, $2)", &keys)?;
        Ok(transaction)
    });
    transactions.collect::<Result<Vec<_>, _>>().map_err(failed)
}

fn unlock(members: &mut [NodeSession]) -> Result<(), LoadError> {
    for member in members {
        let keys: [&(dyn postgres::types::ToSql + Sync); 2] = [&ledger::lock::CLASS, &ledger::lock::SETUP];
        // Not to have had the lock is a warning.
        member.control.execute("select pg_advisory_unlock($1, $2)", &keys).map_err(failed)?;
    }
    Ok(())
}

/// The dataset with its layout, if there is one.
fn find(client: &mut impl GenericClient, name: &str) -> Result<Option<(Dataset, Layout)>, LoadError> {
    if ledger::exists(client)? {
        // One of an older version is brought up to date, whatever it holds.
        ledger::create_if_missing(client)?;
    }
    let Some(dataset) = ledger::find_dataset(client, name)? else { return Ok(None) };
    let layout = ledger::layout(client, dataset.id)?;
    Ok(Some((dataset, layout)))
}

/// Drops a dataset: what the ledger lists and nothing else.
///
/// Its row goes first. That waits for chunks in flight, which hold a share lock on it, while this transaction holds no lock that a
/// chunk could want; later chunks of the old dataset fail on the foreign key. So nothing waits in a circle.
pub(crate) fn remove(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    let names = ledger::owned_names(client, dataset.id)?;
    let relations = ledger::relations(client, &dataset.schema_name, &names, Some(dataset.id))?;
    ledger::delete_dataset(client, dataset.id)?;
    // Partitions go with their table, whoever has put them there; what was taken out of it is dropped by its kind.
    let drop = |kind: &str, wanted: fn(char) -> bool| {
        let ours = relations.iter().filter(|relation| relation.ours && wanted(relation.kind));
        let names: Vec<String> =
            ours.map(|relation| qualified(&dataset.schema_name, &relation.name)).collect();
        if names.is_empty() { String::new() } else { format!("drop {kind} {};", names.join(", ")) }
    };
    let tables = drop("table if exists", |kind| matches!(kind, 'r' | 'p'));
    let foreign = drop("foreign table if exists", |kind| kind == 'f');
    client
        .batch_execute(&format!("{tables}{foreign}"))
        .map_err(|source| LoadError::sql("dropping the old dataset's tables", source))
}

/// A new dataset.
fn plan(
    shape: Shape,
    named_nodes: &[NamedNode],
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    schema_name: String,
) -> Result<(Dataset, Layout), LoadError> {
    let nodes = named_nodes.len();
    let tables = content.tables().len() as u32;
    let made_for = cluster.partitions.filter(|_| shape == Shape::Sharded);
    let usual = made_for.map(|partitions| partitions.min(content.partitions_max()));
    let requested = options.partitions.or(usual.filter(|partitions| *partitions as usize >= nodes));
    let most = if requested.is_none() { content.partitions_max() } else { u32::MAX };
    let partitions = partitions_of(shape, requested, nodes, tables)?.min(most);
    let method = options.method.unwrap_or_default();
    let via = options.via.unwrap_or_default();
    if via == Via::Connect && (shape != Shape::Sharded || method == Method::Freeze) {
        let problem = match shape {
            Shape::Sharded => "rows that an entry node forwards cannot be frozen".to_owned(),
            Shape::Single | Shape::Repeated => "there is no other node to forward rows to".to_owned(),
        };
        let hint = "omit it; it is for clusters sharded by postgres_fdw and --method copy".to_owned();
        return Err(LoadError::Option { flag: "--via connect", problem, hint });
    }
    let numbers = content.numbers();
    let chunk_rows = match (options.chunk_rows, shape) {
        (Some(chunk_rows), _) => chunk_rows,
        (None, _) if content.chunks().is_some() => 0,
        (None, Shape::Sharded) if via == Via::Owner => {
            Chunks::for_nodes(numbers, content.row_bytes(), options.streams, nodes).chunk_rows()
        }
        (None, _) => Chunks::for_streams(numbers, content.row_bytes(), options.streams).chunk_rows(),
    };
    let dataset = Dataset {
        id: 0,
        name: content.name().to_owned(),
        schema_name,
        format: FORMAT_VERSION,
        spec: content.spec().clone(),
        rows: content.rows(),
        partitions: if partitions == 1 { 0 } else { partitions },
        method,
        chunk_rows,
        loaded: false,
    };
    let alone = shape == Shape::Single;
    let layout = Layout {
        token: if alone { 0 } else { random_token() },
        nodes: if alone {
            Vec::new()
        } else {
            named_nodes.iter().map(|named_node| named_node.name.clone()).collect()
        },
        via,
        tablespaces: Some(options.tablespaces.clone()),
        unlogged: options.unlogged,
        emptied: false,
    };
    Ok((dataset, layout))
}

/// How many partitions each of so many tables gets on so many nodes.
fn partitions_of(shape: Shape, requested: Option<u32>, nodes: usize, tables: u32) -> Result<u32, LoadError> {
    let partitions = match (shape, requested) {
        (Shape::Sharded, None) => nodes as u32 * sharded::PARTITIONS_PER_NODE,
        (Shape::Sharded, Some(requested)) if (requested as usize) < nodes => {
            return Err(LoadError::Option {
                flag: "--partitions",
                problem: format!("{requested} partitions cannot be spread over {nodes} nodes"),
                hint: format!("give at least {nodes}; a multiple of it spreads them evenly"),
            });
        }
        (_, requested) => requested.unwrap_or(0),
    };
    if partitions > LEAVES_MAX / tables {
        return Err(LoadError::Option {
            flag: "--partitions",
            problem: format!("{partitions} partitions of each of {tables} tables are too many"),
            hint: format!("ask for at most {}", LEAVES_MAX / tables),
        });
    }
    Ok(partitions)
}

/// A number that no two loads share.
pub(crate) fn random_token() -> i64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher takes its keys from the operating system.
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random >> 1) as i64
}

/// Also returns which rights were taken from whom.
fn create(
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
fn columns_sql(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    format!("({})", columns.join(", "))
}

/// The storage parameters of a table: its fill factor, and one of the engine.
fn parameters_sql(table: &Table, other: Option<String>) -> String {
    let fillfactor = table.fillfactor.map(|percent| format!("fillfactor = {percent}"));
    let all: Vec<String> = fillfactor.into_iter().chain(other).collect();
    if all.is_empty() { String::new() } else { format!(" with ({})", all.join(", ")) }
}

/// The words after a table's definition that put it into its tablespace: the `place`-th of the map, round and round.
fn tablespace_sql(layout: &Layout, place: usize) -> String {
    tablespace_at(layout, place).map(|name| format!(" tablespace {}", quoted(name))).unwrap_or_default()
}

/// The tablespace of the `place`-th leaf of a node; `None`: the server's default.
pub(crate) fn tablespace_at(layout: &Layout, place: usize) -> Option<&str> {
    let map = layout.tablespaces.as_deref().unwrap_or_default();
    (!map.is_empty()).then(|| map[place % map.len()].as_str())
}

/// How the engine learns which column places the rows of a table, if it spreads them itself.
fn spread_of(engine: Engine) -> Option<Spread> {
    match engine.layout {
        engines::profile::Layout::Spread(spread) => Some(spread),
        _ => None,
    }
}

fn create_sql(dataset: &Dataset, tables: &[Table], layout: &Layout, spread: Option<Spread>) -> String {
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

/// The value of a parameter that has a column of its own in the ledger's row of a dataset.
fn column_of(dataset: &Dataset, what: &str) -> Option<String> {
    match what {
        "rows" => Some(dataset.rows.to_string()),
        "key order" => Some(dataset.spec.key_order.to_string()),
        "compressibility" => Some(dataset.spec.compressible.to_string()),
        _ => None,
    }
}

/// Refuses a dataset that differs from the options, naming the first difference and every flag that would match. `recorded` are its
/// further parameters by the ledger.
fn check_identity(
    dataset: &Dataset,
    recorded: &BTreeMap<String, String>,
    content: &dyn dataset::Dataset,
    options: &Options,
) -> Result<(), LoadError> {
    let asked_partitions = options.partitions.map(|partitions| if partitions == 1 { 0 } else { partitions });
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
            asked_partitions.map(|partitions| partitions.to_string()),
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
fn check_layout(
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
    if let Some(via) = options.via.filter(|via| *via != layout.via) {
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

/// Refuses tables whose indexes lie elsewhere than they do, and tables that are not where the map says. Only datasets with a map are looked
/// at. A leaf that came from another node lies where its mover has put it.
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
            return Err(changed(name, "the table is gone"));
        };
        let kind = if is_divided(name) { 'p' } else { 'r' };
        if !relation.ours || relation.kind != kind {
            return Err(changed(name, "the table is another one"));
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
            return Err(changed(&name, "it is no longer the partition it was"));
        }
    }
    if bounds.len() != dataset.partitions as usize {
        return Err(changed(table.name, "it has partitions that pgfathom did not make"));
    }
    Ok(())
}

/// The chunks of a dataset that was begun.
pub(crate) fn chunks_of(dataset: &Dataset, content: &dyn dataset::Dataset) -> Chunks {
    match content.chunks().filter(|_| dataset.chunk_rows == 0) {
        Some(chunks) => chunks,
        None => Chunks::of_length(content.numbers(), dataset.chunk_rows),
    }
}

/// How many units the ledger has of a dataset: chunks of rows, or leaf tables.
pub(crate) fn chunk_count(dataset: &Dataset, content: &dyn dataset::Dataset) -> u64 {
    match dataset.method {
        Method::Copy => chunks_of(dataset, content).count(),
        Method::Freeze => Leaves::of_tables(content.tables(), dataset.partitions).count() as u64,
    }
}

#[cfg(test)]
mod tests;
