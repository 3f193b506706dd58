//! The nodes of a cluster: what each has of the tables, a snapshot of each, and what they have about each other.
//!
//! Tables spread by `postgres_fdw` are read leaf by leaf on the node that owns them, never through foreign tables: so the snapshot is that
//! node's own, shared by all connections to it. A query about one range has all its rows on one node, unless it compares what transactions of several
//! ranges wrote ([`Others`]): for these the other nodes are queried first for the few rows they have about the node's own (in TPC-C payments by its
//! customers, order lines of its stock), and these go into the query as arrays, so that the server does the sums as it does on a single node.
//!
//! There is no moment that all nodes share. A transaction that commits on two nodes may be in the snapshot of one and not in that of the other.

use std::collections::BTreeMap;
use std::time::Instant;

use connect::ConnSpec;
use connect::conninfo::Pinned;
use connect::hot::{self, HotConnection, QueryError};
use connect::sql;
use engines::{Cluster, trust};

use super::condition::{Names, Others};
use super::{Conditions, Job, ProveError, Watch, begin, run, text, text_of};

/// One node.
pub struct Node {
    /// Its name; empty when there is only one.
    pub(super) name: String,
    pub(super) spec: ConnSpec,
    pub(super) control: HotConnection,
    pub(super) names: Names,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    /// Its name; empty when there is only one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the tables are on it.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Puts something at a place of its queries.
    pub fn set_place(&mut self, place: &'static str, sql: String) {
        self.names.set(place, sql);
    }

    /// The rows of a query in the node's snapshot, as text; null is `None`.
    ///
    /// # Errors
    /// What the server reported.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, QueryError> {
        let rows = self.control.simple_query(sql)?;
        let text = |value: Option<Vec<u8>>| value.map(|value| String::from_utf8_lossy(&value).into_owned());
        Ok(rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
    }
}

/// The nodes, each in a snapshot of its own.
pub(super) struct Opened {
    pub(super) nodes: Vec<Node>,
    pub(super) notes: Vec<String>,
}

/// Connects to the nodes that are needed, opens their snapshots as close to each other as can be, and finds the tables.
pub(super) fn open(
    what: &dyn Conditions,
    cluster: &Cluster,
    watch: &Watch<'_>,
) -> Result<Opened, ProveError> {
    let data: Vec<usize> = cluster.data_nodes().collect();
    let node_wise = what.is_read_by_node() && cluster.has_foreign_partitions();
    if !node_wise {
        // Any other cluster answers through its first node, as a single server does.
        let first = &cluster.nodes[0];
        let spec = first.spec.clone();
        let mut control = watch.connect(&spec)?;
        let names = names(what, &spec, &mut control)?;
        let node = Node { name: String::new(), spec, control, names };
        return Ok(Opened { nodes: vec![node], notes: Vec::new() });
    }
    let mut connected = Vec::new();
    for node in data {
        let node = &cluster.nodes[node];
        connected.push((node.name.clone(), node.spec.clone(), watch.connect(&node.spec)?));
    }
    // A snapshot is taken by the first statement that reads.
    let first = Instant::now();
    for (_, _, control) in &mut connected {
        run(control, "opening a snapshot", "select 1")?;
    }
    let apart_ms = first.elapsed().as_secs_f64() * 1e3;
    let mut nodes = Vec::new();
    for (name, spec, mut control) in connected {
        let names = local_names(what, &spec, &mut control)?;
        nodes.push(Node { name, spec, control, names });
    }
    let wide: Vec<&str> = what.all().iter().filter(|one| one.is_wide()).map(|one| one.code()).collect();
    let notes = vec![format!(
        "{} nodes, each read in its own snapshot, taken within {apart_ms:.1} ms; no snapshot spans them: while transactions run, {} may find half \
         of one that committed on several nodes; after all have ended, half a transaction means that half of a commit was lost",
        nodes.len(),
        and(&wide)
    )];
    Ok(Opened { nodes, notes })
}

/// `C10, X13 and X25`
fn and(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        words => words.concat(),
    }
}

/// What the tables are called here, with their schema: the first one on the user's search path that has them all. A table that stands alone in a schema of
/// another role, further in front, is another's.
fn names(
    what: &dyn Conditions,
    spec: &ConnSpec,
    connection: &mut HotConnection,
) -> Result<Names, ProveError> {
    const DOING: &str = "looking for the tables";
    let mut users = hot::connect(&spec.clone().with_pinned(Pinned::Nothing))?;
    let path = "select pg_catalog.unnest(pg_catalog.current_schemas(true))";
    let path = users.simple_query(path).map_err(ProveError::sql(DOING))?;
    let path: Vec<String> =
        path.iter().map(|row| text_of(row.first().and_then(|value| value.as_deref()))).collect();
    let mut missing = None;
    for schema in &path {
        let found = tables_of(connection, schema).map_err(ProveError::sql(DOING))?;
        match names_in(what, schema, &found) {
            Ok((names, oids)) => {
                for oid in oids {
                    if let Some(distrust) =
                        trust::distrust(connection, oid).map_err(ProveError::sql(DOING))?
                    {
                        return Err(ProveError::NotTrusted(distrust));
                    }
                }
                return Ok(names);
            }
            // Where most of them are, one that is gone is worth naming.
            Err((left, name)) if missing.is_none_or(|(fewest, _)| left < fewest) => {
                missing = Some((left, name))
            }
            Err(_) => {}
        }
    }
    let table = missing.map_or_else(|| what.tables()[0].called[0], |(_, name)| name);
    match instead(connection, &path, table).map_err(ProveError::sql(DOING))? {
        Some((name, kind)) => Err(ProveError::NotATable { name, kind }),
        None => Err(ProveError::NoTable { table, fill: what.fill() }),
    }
}

/// A view that stands in the place of a table, with its schema, and what it is.
fn instead(
    connection: &mut HotConnection,
    path: &[String],
    table: &str,
) -> Result<Option<(String, String)>, QueryError> {
    let path: Vec<String> = path.iter().map(|schema| sql::literal(schema)).collect();
    let found = connection.simple_query(&format!(
        "select n.nspname || '.' || c.relname, case c.relkind when 'm' then 'materialized view' else 'view' end \
         from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.relkind in ('v', 'm') and c.relname = {} and n.nspname in ({}) order by 1 limit 1",
        sql::literal(table.trim_matches('"')),
        path.join(", ")
    ));
    // Without a schema in the path there is no list.
    let found = if path.is_empty() { vec![] } else { found? };
    let words = |row: &[Option<Vec<u8>>], at: usize| text_of(row.get(at).and_then(|value| value.as_deref()));
    Ok(found.first().map(|row| (words(row, 0), words(row, 1))))
}

/// The tables of a schema by name, with their oids.
fn tables_of(connection: &mut HotConnection, schema: &str) -> Result<BTreeMap<String, u32>, QueryError> {
    let sql = format!(
        "select c.relname, c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
         where n.nspname = {} and c.relkind in ('r', 'p', 'f')",
        sql::literal(schema)
    );
    let rows = connection.simple_query(&sql)?;
    let text = |row: &[Option<Vec<u8>>], at: usize| text_of(row.get(at).and_then(|value| value.as_deref()));
    Ok(rows.iter().filter_map(|row| Some((text(row, 0), text(row, 1).parse().ok()?))).collect())
}

/// The tables of a schema; else how many of them are not there, and the first of these.
fn names_in(
    what: &dyn Conditions,
    schema: &str,
    found: &BTreeMap<String, u32>,
) -> Result<(Names, Vec<u32>), (usize, &'static str)> {
    let mut oids = Vec::new();
    let mut missing: Vec<&'static str> = Vec::new();
    let mut names = Names::default();
    for table in what.tables() {
        match table.called.iter().find_map(|name| found.get_key_value(name.trim_matches('"'))) {
            Some((name, oid)) => {
                oids.push(*oid);
                names.set(table.place, sql::qualified(schema, name));
            }
            None => missing.push(table.called[0]),
        }
    }
    what.complete(&mut names);
    match missing.first() {
        None => Ok((names, oids)),
        Some(first) => Err((missing.len(), first)),
    }
}

/// What this node has of the tables: the leaves that are tables here, under the name of the table.
fn local_names(
    what: &dyn Conditions,
    spec: &ConnSpec,
    connection: &mut HotConnection,
) -> Result<Names, ProveError> {
    let all = names(what, spec, connection)?;
    let mut names = Names::default();
    for table in what.tables() {
        let name = all.get(table.place);
        let here = if table.is_copied { name.to_owned() } else { local(connection, name)? };
        names.set(table.place, here);
    }
    what.complete(&mut names);
    Ok(names)
}

/// A table's rows on this node, as something to select from.
fn local(connection: &mut HotConnection, name: &str) -> Result<String, ProveError> {
    const DOING: &str = "looking for this node's partitions";
    let literal = sql::literal(name);
    let alias = name.rsplit_once("\".\"").map_or_else(|| name.to_owned(), |(_, table)| format!("\"{table}"));
    // A table that is not partitioned is its own only leaf.
    let sql = format!(
        "select t.relid::text from pg_catalog.pg_partition_tree({literal}) t
         join pg_catalog.pg_class c on c.oid = t.relid where t.isleaf and c.relkind = 'r' order by c.relname"
    );
    let rows = connection.simple_query(&sql).map_err(ProveError::sql(DOING))?;
    let mut leaves: Vec<String> =
        rows.iter().map(|row| text_of(row.first().and_then(|value| value.as_deref()))).collect();
    if leaves.is_empty() {
        let kind = format!("select relkind::text from pg_catalog.pg_class where oid = {literal}::regclass");
        match text(connection, &kind).map_err(ProveError::sql(DOING))?.as_str() {
            "p" => return Ok(format!("(select * from {name} where false) {alias}")),
            _ => leaves.push(name.to_owned()),
        }
    }
    let each: Vec<String> = leaves.iter().map(|leaf| format!("select * from only {leaf}")).collect();
    Ok(format!("({}) {alias}", each.join(" union all ")))
}

/// Exports each node's snapshot; `None` where a node cannot: then one connection to each does it all.
pub(super) fn share_snapshots(
    nodes: &mut [Node],
    notes: &mut Vec<String>,
) -> Result<Option<Vec<String>>, ProveError> {
    let mut snapshots = Vec::new();
    for node in nodes.iter_mut() {
        match text(&mut node.control, "select pg_catalog.pg_export_snapshot()") {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(QueryError::Server(error)) => {
                notes.push(format!(
                    "the server cannot share a snapshot ({}), so one connection ran all queries",
                    error.message
                ));
                // The error has ended the transaction.
                run(&mut node.control, "ending a transaction", "rollback")?;
                begin(&mut node.control)?;
                return Ok(None);
            }
            Err(error) => return Err(ProveError::sql("sharing the snapshot")(error)),
        }
    }
    Ok(Some(snapshots))
}

/// The tables of a job's node, with what the other nodes have about its range. `sessions` has a connection to each node.
pub(super) fn with_others(
    sessions: &mut [HotConnection],
    names: &[Names],
    job: &Job,
    others: &Others,
) -> Result<Names, QueryError> {
    let mut own = names[job.node].clone();
    let Others { columns, about, .. } = *others;
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for (node, names) in names.iter().enumerate() {
        let sql = names.fill(others.own, job.from, job.to);
        for row in sessions[node].simple_query(&sql)? {
            homes.entry(text_of(row.first().and_then(|value| value.as_deref()))).or_insert(node);
        }
    }
    let place = columns.iter().position(|(name, _)| *name == about).unwrap_or(0);
    let mut arrays = vec![String::new(); columns.len()];
    for (node, names) in names.iter().enumerate().filter(|(node, _)| *node != job.node) {
        for row in sessions[node].simple_query(&names.fill(others.sql, job.from, job.to))? {
            let values: Vec<String> = row.iter().map(|value| text_of(value.as_deref())).collect();
            // What is about a third node's things belongs there.
            if values.get(place).and_then(|w_id| homes.get(w_id)) != Some(&job.node) {
                continue;
            }
            for (array, value) in arrays.iter_mut().zip(&values) {
                if !array.is_empty() {
                    array.push(',');
                }
                array.push_str(if value.is_empty() { "null" } else { value });
            }
        }
    }
    let list: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let list = list.join(", ");
    let values: Vec<String> =
        arrays.iter().zip(columns).map(|(array, (_, kind))| format!("'{{{array}}}'::{kind}[]")).collect();
    let local = own.get(others.local);
    // What this node has about things of others goes to them; what is about no thing at all stays, and breaks the condition.
    let elsewhere: Vec<&str> =
        homes.iter().filter(|(_, node)| **node != job.node).map(|(w_id, _)| w_id.as_str()).collect();
    let wider = format!(
        "(select {list} from {local} where {about} <> all ('{{{}}}'::int[]) union all select * from unnest({})) others",
        elsewhere.join(","),
        values.join(", ")
    );
    own.set(others.place, wider);
    Ok(own)
}
