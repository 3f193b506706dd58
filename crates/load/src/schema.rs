//! Creates, recognises, refuses or removes the dataset's tables. Everything here is one transaction, so a kill leaves either the old
//! state or the new one.
//!
//! Leaf tables are partitions from the start. Filling them as tables of their own and attaching them later would make the server read
//! every row once more to prove the partition constraint; as partitions the constraint is checked row by row while the row is in the
//! cache anyway, and a row routed wrongly is refused. The price is one hash per row on the server.
//!
//! There is no primary key while rows come in: an index built afterwards is faster, smaller and needs less WAL, and without one no
//! insert ever waits for another.

mod check;
mod create;
mod replication;
pub(crate) mod sharded;

use std::time::Duration;

use data::FORMAT_VERSION;
use engines::cluster::Cluster;
use engines::lock::Key;
use engines::profile::LoadPath;
use postgres::{GenericClient, Transaction};
use wire::error::SqlState;

use crate::contention::Contention;
use crate::dataset::{self, Leaves};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Layout, qualified};
use crate::node_sessions::{NodeSession, NodeSessions};
use crate::options::{Method, Options, Stop, StopLevel, Via};
use crate::plan::{Chunks, LEAVES_MAX};
use crate::progress::LoadEvent;
use crate::shape::Shape;
use crate::trust;
use check::check_found;
use create::{create, create_sql, spread_of};

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

/// What can end a wait, and what receives reports of it.
type Caller<'a> = (&'a Stop, &'a mut dyn FnMut(LoadEvent));

/// The pause before locks of several nodes are tried again, when another pgfathom has some of them.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// Finds the dataset on every node and checks that it is the one that `options` describe, or makes it where it is missing.
///
/// On several nodes this is one transaction each, open at the same time and committed one after the other. A kill between two commits
/// leaves nodes without the dataset, which the next load makes there; or, after `--restart`, nodes with the old one, whose token differs:
/// that is refused.
///
/// Where the disk has no room for the new tables beside those that a `--restart` replaces, these are dropped first, in a transaction of their own.
pub(crate) fn prepare(
    sessions: &mut NodeSessions,
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    stop: &Stop,
    notify: &mut dyn FnMut(LoadEvent),
) -> Result<Prepared, LoadError> {
    match replace(sessions, cluster, content, options, (stop, notify)) {
        Err(error) if options.restart && error.sqlstate() == Some(SqlState::DISK_FULL) => {
            remove_alone(sessions, content.name(), (stop, notify))?;
            let mut prepared = replace(sessions, cluster, content, options, (stop, notify))?;
            prepared.notes.insert(0, DROPPED_FIRST.to_owned());
            Ok(prepared)
        }
        prepared => prepared,
    }
}

/// What is reported of a restart on a full disk.
const DROPPED_FIRST: &str =
    "the server's disk was full: the old tables were dropped before the new ones were made";

/// Drops a dataset on all nodes and nothing more.
fn remove_alone(sessions: &mut NodeSessions, name: &str, caller: Caller<'_>) -> Result<(), LoadError> {
    let names: Vec<String> = sessions.members.iter().map(|member| member.name.clone()).collect();
    let mut transactions = begin(&mut sessions.members, caller)?;
    for (transaction, node) in transactions.iter_mut().zip(&names) {
        let removed = ledger::find_dataset(transaction, name).and_then(|found| {
            let Some(dataset) = found else { return Ok(()) };
            refuse_beside_run(transaction, &dataset)?;
            remove(transaction, &dataset)
        });
        removed.map_err(|error| error.at(node))?;
    }
    for (transaction, node) in transactions.into_iter().zip(&names) {
        transaction.commit().map_err(failed).map_err(|error| error.at(node))?;
    }
    Ok(())
}

/// One attempt of [`prepare`], in which everything or nothing is replaced.
fn replace(
    sessions: &mut NodeSessions,
    cluster: &Cluster,
    content: &dyn dataset::Dataset,
    options: &Options,
    caller: Caller<'_>,
) -> Result<Prepared, LoadError> {
    check_each(cluster, options)?;
    let tables = content.tables();
    let NodeSessions { shape, members, .. } = sessions;
    let named_nodes: Vec<NamedNode> =
        members.iter().map(|member| NamedNode { name: member.name.clone(), node: member.node }).collect();
    let mut transactions = begin(members, caller)?;
    let named_nodes_ref = &named_nodes;
    let at = |node: usize| move |error: LoadError| error.at(&named_nodes_ref[node].name);
    let find = |(node, transaction)| find(transaction, content.name()).map_err(at(node));
    let mut found = transactions.iter_mut().enumerate().map(find).collect::<Result<Vec<_>, _>>()?;
    refuse_beside_runs(&mut transactions, &found, options.restart, &named_nodes)?;
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
    if let Some(first) = first {
        check_found(&mut transactions, &found, first, &named_nodes, content, options, *shape)?;
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

/// Refuses to change a dataset at any node beside a run: one that is loaded anew, or whose load goes on. A complete one is left as it is.
fn refuse_beside_runs(
    transactions: &mut [Transaction<'_>],
    found: &[Option<(Dataset, Layout)>],
    is_restart: bool,
    nodes: &[NamedNode],
) -> Result<(), LoadError> {
    for ((transaction, found), node) in transactions.iter_mut().zip(found).zip(nodes) {
        if let Some((dataset, _)) = found.as_ref().filter(|(dataset, _)| is_restart || !dataset.loaded) {
            refuse_beside_run(transaction, dataset).map_err(|error| error.at(&node.name))?;
        }
    }
    Ok(())
}

/// Refuses streams that enter at all nodes where these do not have what a stream needs.
fn check_each(cluster: &Cluster, options: &Options) -> Result<(), LoadError> {
    if options.via != Some(Via::Each) {
        return Ok(());
    }
    let refused =
        |problem: String, hint: String| Err(LoadError::Option { flag: "--via each", problem, hint });
    if !cluster.has_ledger_everywhere() {
        let problem = match cluster.engine.load {
            LoadPath::Table if cluster.is_clustered() => {
                "a chunk and its row in the ledger are one transaction, and the ledger of this engine is on one node"
            }
            LoadPath::Leaves if cluster.is_clustered() => "each row goes straight to the node that owns it",
            LoadPath::EachNode if cluster.is_clustered() => "each node is filled separately",
            _ => "this target is one server",
        };
        let hint =
            "omit it; it is for engines that bring rows to their nodes and have every table on each of them";
        return refused(problem.to_owned(), hint.to_owned());
    }
    if options.unlogged || options.method == Some(Method::Freeze) {
        let problem = "streams at several nodes cannot fill one unlogged table, or truncate it".to_owned();
        return refused(problem, "omit it, or --unlogged and --method freeze".to_owned());
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
    (stop, notify): Caller<'_>,
) -> Result<Vec<Transaction<'a>>, LoadError> {
    let mut contention: Option<Contention> = None;
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
            if row.get::<_, bool>(0) {
                continue;
            }
            all = false;
            let wait = || Contention::begin("making tables", Key::Of(ledger::lock::SETUP));
            let noted = contention.get_or_insert_with(wait).look(&mut *member.control);
            noted.map_err(|error| error.at(&member.name))?.into_iter().for_each(&mut *notify);
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
    for member in members.iter_mut() {
        trust::check_event_triggers(&mut *member.control).map_err(|error| error.at(&member.name))?;
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

/// Refuses to change tables that a run writes into: its writes would be taken for damage of the new rows.
fn refuse_beside_run(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    match ledger::active_writer(client, dataset)? {
        Some((run_no, pid)) => Err(LoadError::RunActive { dataset: dataset.name.clone(), run_no, pid }),
        None => Ok(()),
    }
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
    // Partitions are dropped with their table, even those that others attached; a detached one is dropped separately.
    let drop = |kind: &str, wanted: fn(char) -> bool| {
        let ours = relations.iter().filter(|relation| relation.ours && wanted(relation.kind));
        let names: Vec<String> =
            ours.map(|relation| qualified(&dataset.schema_name, &relation.name)).collect();
        if names.is_empty() { String::new() } else { format!("drop {kind} {};", names.join(", ")) }
    };
    let is_table = |kind: char| matches!(kind, 'r' | 'p');
    for table in relations.iter().filter(|relation| relation.ours && is_table(relation.kind)) {
        replication::leave(client, &qualified(&dataset.schema_name, &table.name))?;
    }
    let tables = drop("table if exists", is_table);
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
    // How the streams of one load enter is no part of the dataset.
    let via = if via == Via::Each { Via::default() } else { via };
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
