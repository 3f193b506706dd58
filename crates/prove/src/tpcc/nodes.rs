//! The nodes of a cluster: what each has of the tables, a snapshot of each, and what they have about each other.
//!
//! Tables spread by `postgres_fdw` are read leaf by leaf on the node that owns them, never through foreign tables: so the snapshot is that
//! node's own, shared by all connections to it. A query about one warehouse has all its rows on one node. Three compare what transactions of several
//! warehouses wrote, C10, X13 and X25; for these the other nodes are queried first for the few rows they have about the node's warehouses (payments by its
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

use super::condition::{Condition, Names};
use super::{
    Job, Outcome, ProveError, WITNESSES_MAX, Watch, begin, run, run_quietly, sql_error, text, text_of,
};

/// Holes between the warehouses are looked into one by one, so many at most.
const MISSING_MAX: usize = 10_000;

/// One node.
pub(super) struct Node {
    /// Its name; empty when there is only one.
    pub(super) name: String,
    pub(super) spec: ConnSpec,
    pub(super) control: HotConnection,
    pub(super) names: Names,
}

/// The nodes, each in a snapshot of its own.
pub(super) struct Opened {
    pub(super) nodes: Vec<Node>,
    pub(super) notes: Vec<String>,
}

/// Connects to the nodes that have to be asked, opens their snapshots as close to each other as can be, and finds the tables.
pub(super) fn open(cluster: &Cluster, watch: &Watch<'_>) -> Result<Opened, ProveError> {
    let data: Vec<usize> = cluster.data_nodes().collect();
    let node_wise = cluster.has_foreign_partitions();
    if !node_wise {
        // Any other cluster answers through its first node, as a single server does.
        let spec = cluster.nodes[0].spec.clone();
        let mut control = watch.connect(&spec)?;
        let names = names(&spec, &mut control)?;
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
        let names = local_names(&spec, &mut control)?;
        nodes.push(Node { name, spec, control, names });
    }
    let notes = vec![format!(
        "{} nodes, each in a snapshot of its own, taken within {apart_ms:.1} ms; no snapshot spans them: while transactions go on, C10, X13 and X25 may find \
         half of one that has committed on several nodes; what they find after all have ended is a commit of which half was lost",
        nodes.len()
    )];
    Ok(Opened { nodes, notes })
}

/// What the tables are called here, with their schema: the first one on the user's search path that has them all. A table that stands alone in a schema of
/// somebody else, further in front, is another's.
fn names(spec: &ConnSpec, connection: &mut HotConnection) -> Result<Names, ProveError> {
    const DOING: &str = "looking for the tables";
    let mut users = hot::connect(&spec.clone().with_pinned(Pinned::Nothing))?;
    let path = "select pg_catalog.unnest(pg_catalog.current_schemas(true))";
    let path = users.simple_query(path).map_err(sql_error(DOING))?;
    let mut missing = None;
    for schema in path.iter().map(|row| text_of(row.first().and_then(|value| value.as_deref()))) {
        let found = tables_of(connection, &schema).map_err(sql_error(DOING))?;
        match names_in(&schema, &found) {
            Ok((names, oids)) => {
                for oid in oids {
                    if let Some(distrust) = trust::distrust(connection, oid).map_err(sql_error(DOING))? {
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
    Err(ProveError::NoTable(missing.map_or("warehouse", |(_, name)| name)))
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

/// The nine tables of a schema; else how many of them are not there, and the first of these.
fn names_in(schema: &str, found: &BTreeMap<String, u32>) -> Result<(Names, Vec<u32>), (usize, &'static str)> {
    let mut oids = Vec::new();
    let mut missing: Vec<&'static str> = Vec::new();
    let mut find = |names: &[&'static str]| {
        let table = names.iter().find_map(|name| found.get_key_value(name.trim_matches('"')));
        match table {
            Some((table, oid)) => {
                oids.push(*oid);
                sql::qualified(schema, table)
            }
            None => {
                missing.push(names[0]);
                String::new()
            }
        }
    };
    let (history, order_line) = (find(&["history"]), find(&["order_line"]));
    let names = Names {
        warehouse: find(&["warehouse"]),
        district: find(&["district"]),
        customer: find(&["customer"]),
        orders: find(&Names::ORDERS),
        new_order: find(&Names::NEW_ORDER),
        stock: find(&["stock"]),
        item: find(&["item"]),
        strange: "{} is null".into(),
        paid: Names::payments(&history),
        supplied: order_line.clone(),
        history,
        order_line,
    };
    match missing.first() {
        None => Ok((names, oids)),
        Some(first) => Err((missing.len(), first)),
    }
}

/// What this node has of the tables: the leaves that are tables here, under the name of the table.
fn local_names(spec: &ConnSpec, connection: &mut HotConnection) -> Result<Names, ProveError> {
    let Names {
        warehouse,
        district,
        customer,
        history,
        orders,
        new_order,
        order_line,
        stock,
        item,
        strange,
        ..
    } = names(spec, connection)?;
    let mut local = |name: &str| local(connection, name);
    let (history, order_line) = (local(&history)?, local(&order_line)?);
    Ok(Names {
        warehouse: local(&warehouse)?,
        district: local(&district)?,
        customer: local(&customer)?,
        orders: local(&orders)?,
        new_order: local(&new_order)?,
        stock: local(&stock)?,
        // Every node has a copy of it.
        item,
        strange,
        paid: Names::payments(&history),
        supplied: order_line.clone(),
        history,
        order_line,
    })
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
    let rows = connection.simple_query(&sql).map_err(sql_error(DOING))?;
    let mut leaves: Vec<String> =
        rows.iter().map(|row| text_of(row.first().and_then(|value| value.as_deref()))).collect();
    if leaves.is_empty() {
        let kind = format!("select relkind::text from pg_catalog.pg_class where oid = {literal}::regclass");
        match text(connection, &kind).map_err(sql_error(DOING))?.as_str() {
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
                    "the server cannot share a snapshot ({}), so one connection did it all",
                    error.message
                ));
                // The error has ended the transaction.
                run(&mut node.control, "ending a transaction", "rollback")?;
                begin(&mut node.control)?;
                return Ok(None);
            }
            Err(error) => return Err(sql_error("sharing the snapshot")(error)),
        }
    }
    Ok(Some(snapshots))
}

/// The tables of a job's node, with what the other nodes have about its warehouses. `hand` has a connection to each node.
pub(super) fn with_others(
    hand: &mut [HotConnection],
    names: &[Names],
    job: &Job,
) -> Result<Names, QueryError> {
    let is_about_stock = job.probe.conditions.contains(&Condition::X13);
    let mut own = names[job.node].clone();
    let (requested, columns): (&str, &[(&str, &str)]) = if is_about_stock {
        (
            "select ol_w_id, ol_o_id, ol_supply_w_id, ol_i_id, ol_quantity from {order_line}
             where ol_o_id > 3000 and ol_supply_w_id between {from} and {to} and ol_supply_w_id <> ol_w_id",
            &[
                ("ol_w_id", "int"),
                ("ol_o_id", "int"),
                ("ol_supply_w_id", "int"),
                ("ol_i_id", "int"),
                ("ol_quantity", "int"),
            ],
        )
    } else {
        (
            "select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount), count(*) from {history}
             where h_c_w_id between {from} and {to} and h_c_w_id <> h_w_id group by 1, 2, 3",
            &[
                ("h_c_w_id", "int"),
                ("h_c_d_id", "int"),
                ("h_c_id", "int"),
                ("h_amount", "numeric"),
                ("payments", "bigint"),
            ],
        )
    };
    let about = if is_about_stock { "ol_supply_w_id" } else { "h_c_w_id" };
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for (node, names) in names.iter().enumerate() {
        let sql =
            names.fill("select w_id from {warehouse} where w_id between {from} and {to}", job.from, job.to);
        for row in hand[node].simple_query(&sql)? {
            homes.entry(text_of(row.first().and_then(|value| value.as_deref()))).or_insert(node);
        }
    }
    let place = columns.iter().position(|(name, _)| *name == about).unwrap_or(0);
    let mut arrays = vec![String::new(); columns.len()];
    for (node, names) in names.iter().enumerate().filter(|(node, _)| *node != job.node) {
        for row in hand[node].simple_query(&names.fill(requested, job.from, job.to))? {
            let values: Vec<String> = row.iter().map(|value| text_of(value.as_deref())).collect();
            // What is about a third node's warehouses belongs there.
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
    let local = if is_about_stock { &own.order_line } else { &own.paid };
    // What this node has about warehouses of others goes to them; what is about no warehouse at all stays, and breaks the condition.
    let others: Vec<&str> =
        homes.iter().filter(|(_, node)| **node != job.node).map(|(w_id, _)| w_id.as_str()).collect();
    let wider = format!(
        "(select {list} from {local} where {about} <> all ('{{{}}}'::int[]) union all select * from unnest({})) others",
        others.join(","),
        values.join(", ")
    );
    *(if is_about_stock { &mut own.supplied } else { &mut own.paid }) = wider;
    Ok(own)
}

/// All warehouses of all nodes, a null as 0, which is no warehouse either. From now on every node's queries know which warehouses are strange.
pub(super) fn know_warehouses(nodes: &mut [Node]) -> Result<Vec<i64>, ProveError> {
    const DOING: &str = "listing the warehouses";
    let mut ids: Vec<i64> = Vec::new();
    for Node { control, names, .. } in nodes.iter_mut() {
        let rows = control
            .simple_query(&format!("select coalesce(w_id, 0) from {}", names.warehouse))
            .map_err(sql_error(DOING))?;
        for row in rows {
            let text = text_of(row.first().and_then(|value| value.as_deref()));
            ids.push(text.parse().map_err(|_| ProveError::Answer { doing: DOING })?);
        }
    }
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        nodes.iter_mut().for_each(|node| node.names.strange = "({} is not null or {} is null)".into());
        return Ok(ids);
    };
    // Bounds go by index; what is missing between them is mostly nothing.
    let mut strange = format!("({{}} is null or {{}} < {first} or {{}} > {last}");
    let missing = missing(&ids, first, last);
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(i64::to_string).collect();
        strange.push_str(&format!(" or {{}} in ({})", list.join(", ")));
    }
    strange.push(')');
    nodes.iter_mut().for_each(|node| node.names.strange.clone_from(&strange));
    Ok(ids)
}

/// The first numbers that are not in a sorted list.
fn missing(ids: &[i64], first: i64, last: i64) -> Vec<i64> {
    let mut missing = Vec::new();
    let mut next = first;
    for id in ids {
        missing.extend((next..*id).take(MISSING_MAX - missing.len()));
        next = next.max(id + 1);
    }
    missing.extend((next..=last).take(MISSING_MAX - missing.len()));
    missing
}

/// X16: whether the warehouses are 1 to their number.
pub(super) fn numbered_from_one(ids: &[i64]) -> (u64, Outcome) {
    let count = ids.len() as i64;
    if ids.is_empty() {
        return (0, Outcome::Broken { count: 1, witnesses: vec!["no warehouse at all".to_owned()] });
    }
    let mut different = ids.to_vec();
    different.dedup();
    let within = different.iter().filter(|id| (1..=count).contains(*id)).count() as i64;
    let mut witnesses: Vec<String> = Vec::new();
    witnesses.extend(ids.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| {
        let id = same[0];
        format!("w_id {id} stands {} times", same.len())
    }));
    let strange = different.iter().filter(|id| !(1..=count).contains(*id));
    witnesses.extend(strange.map(|id| match id {
        0 => "w_id null or 0".to_string(),
        id => format!("w_id {id} of {count} warehouses"),
    }));
    witnesses.extend(
        missing(&different, 1, count)
            .into_iter()
            .filter(|id| *id <= count)
            .map(|id| format!("w_id {id} missing")),
    );
    witnesses.truncate(WITNESSES_MAX);
    let broken = (count - within) as u64;
    match broken {
        0 => (ids.len() as u64, Outcome::Kept),
        count => (ids.len() as u64, Outcome::Broken { count, witnesses }),
    }
}

/// X15: whether every node has the same items. The nodes are compared with the first one that has what most have.
pub(super) fn same_items(nodes: &mut [Node]) -> (u64, Outcome) {
    let compared = savepoints(nodes).and_then(|()| compare_items(nodes));
    for node in nodes.iter_mut() {
        // The snapshot outlives an error only behind a savepoint, and is shared only when there is none. A connection that is lost is
        // noticed when the snapshot is shared.
        let _ = run_quietly(&mut node.control, "rollback to savepoint items");
        let _ = run_quietly(&mut node.control, "release savepoint items");
    }
    match compared {
        Ok((looked_at, 0, _)) => (looked_at, Outcome::Kept),
        Ok((looked_at, count, witnesses)) => (looked_at, Outcome::Broken { count, witnesses }),
        Err((node, error)) => {
            (0, Outcome::Failed { error: format!("items of {}: {error}", nodes[node].name) })
        }
    }
}

fn savepoints(nodes: &mut [Node]) -> Result<(), (usize, QueryError)> {
    nodes.iter_mut().enumerate().try_for_each(|(number, node)| {
        run_quietly(&mut node.control, "savepoint items").map_err(|error| (number, error))
    })
}

type Compared = (u64, u64, Vec<String>);

fn compare_items(nodes: &mut [Node]) -> Result<Compared, (usize, QueryError)> {
    let mut sums: Vec<(u64, String)> = Vec::new();
    for (number, node) in nodes.iter_mut().enumerate() {
        let at = |error| (number, error);
        let sql = format!(
            "select count(*), coalesce(sum(pg_catalog.hashtextextended(i::text, 0)), 0) from {} i",
            node.names.item
        );
        let rows = node.control.simple_query(&sql).map_err(at)?;
        let value = |index: usize| {
            text_of(rows.first().and_then(|row| row.get(index)).and_then(|value| value.as_deref()))
        };
        sums.push((value(0).parse().unwrap_or(0), value(1)));
    }
    let votes = |sum: &(u64, String)| sums.iter().filter(|other| *other == sum).count();
    let model = (0..sums.len()).max_by_key(|at| (votes(&sums[*at]), std::cmp::Reverse(*at))).unwrap_or(0);
    let looked_at = sums.iter().map(|(count, _)| count).sum();
    let (mut count, mut witnesses) = (0, Vec::new());
    if sums.iter().all(|sum| *sum == sums[model]) {
        return Ok((looked_at, count, witnesses));
    }
    let model_name = nodes[model].name.clone();
    let expected = items_of(&mut nodes[model]).map_err(|error| (model, error))?;
    for number in (0..nodes.len()).filter(|number| sums[*number] != sums[model]) {
        let found = items_of(&mut nodes[number]).map_err(|error| (number, error))?;
        let name = &nodes[number].name;
        let ids: std::collections::BTreeSet<&i64> = expected.keys().chain(found.keys()).collect();
        for id in ids.into_iter().filter(|id| expected.get(id) != found.get(id)) {
            count += 1;
            let what = match (expected.get(id), found.get(id)) {
                (Some(_), None) => format!("missing on {name}"),
                (None, _) => format!("on {name} and not on {model_name}"),
                _ => format!("on {name} another one than on {model_name}"),
            };
            if witnesses.len() < WITNESSES_MAX {
                witnesses.push(format!("i_id {id}, {what}"));
            }
        }
    }
    Ok((looked_at, count, witnesses))
}

fn items_of(node: &mut Node) -> Result<BTreeMap<i64, String>, QueryError> {
    let sql = format!("select i_id, pg_catalog.hashtextextended(i::text, 0) from {} i", node.names.item);
    let rows = node.control.simple_query(&sql)?;
    let value =
        |row: &[Option<Vec<u8>>], index: usize| text_of(row.get(index).and_then(|value| value.as_deref()));
    Ok(rows.iter().map(|row| (value(row, 0).parse().unwrap_or(0), value(row, 1))).collect())
}
