//! Where the leaves of a sharded table are, by the catalog of every node, and where the nodes disagree.
//!
//! Each node of a cluster sharded by `postgres_fdw` has the whole table: its own leaves as tables, all others as foreign tables that point
//! at the leaf on its owner. Nothing keeps these catalogs consistent, so each of them is read and compared with the others. The
//! verdict on a leaf is made here without a server: [`resolve`] is a function of the catalogs' content.

use std::collections::BTreeMap;

use connect::conninfo::PORT_DEFAULT;
use engines::cluster::{Cluster, ServerPlace};
use postgres::Client;

use super::error::{VerifyError, sql};
use super::leaf::{Found, bounds, is_leaving, other_kind};
use super::problem::Problem;
use crate::dataset::Table;
use crate::difference::TableName;
use crate::ledger::{self, Dataset};

/// The catalog of one node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct View {
    /// It has the partitioned table.
    has_table: bool,
    /// What is attached, by remainder.
    leaves: BTreeMap<usize, Attached>,
    /// Names of what is being detached: it is still a partition, and queries of the partitioned table do not return its rows.
    leaving: Vec<String>,
    /// Tables of the dataset that are attached to nothing.
    loose: Vec<Local>,
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Attached {
    /// A table of the node's own.
    Local(Local),
    /// A foreign table.
    Foreign {
        /// Where it points: a node by its place in the cluster, or a server that is none, as far as is known.
        node: Result<usize, UnlistedServer>,
        /// The table it points at.
        target: (String, String),
    },
}

/// A foreign server whose address is no node's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UnlistedServer {
    name: String,
    /// Its address, if it could not be looked at: it may be one of the nodes all the same.
    unseen: Option<String>,
}

/// A table of a node's own.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Local {
    schema: String,
    name: String,
    blocks: u64,
}

impl Local {
    fn on(&self, site: usize, node: &str) -> Found {
        let relation = Some(ledger::qualified(&self.schema, &self.name));
        Found { name: TableName::on(&self.name, node), site, relation, blocks: self.blocks }
    }
}

/// Where everything is, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Spread {
    /// The leaves by partition. Sites are places in the views.
    pub(super) leaves: Vec<Found>,
    pub(super) problems: Vec<Problem>,
    /// Further tables that stand for one of the leaves, and should be empty.
    pub(super) strays: Vec<Found>,
    /// Tables that are attached to nothing, and should be empty.
    pub(super) loose: Vec<Found>,
}

/// Reads a node's catalog.
///
/// `data`: the nodes that hold rows, by their places in the cluster; `site`: this one's place among them.
pub(super) fn view(
    client: &mut Client,
    cluster: &Cluster,
    data: &[usize],
    site: usize,
    dataset: &Dataset,
    table: &Table,
) -> Result<View, VerifyError> {
    const DOING: &str = "looking for the tables";
    let node = &cluster.nodes[data[site]];
    let changed = |table: &str, problem: String| VerifyError::ChangedTable {
        table: TableName::on(table, &node.name).to_string(),
        problem,
    };
    let parent = ledger::qualified(&dataset.schema_name, table.name);
    let kind = client.query_opt("select relkind::text from pg_class where oid = to_regclass($1)", &[&parent]);
    let kind = sql(DOING, kind)?;
    let mut view = View::default();
    match kind.as_ref().map(|row| row.get::<_, &str>(0)) {
        None => {}
        Some("p") => view.has_table = true,
        Some("r") => {
            let table = TableName::on(table.name, &node.name).to_string();
            return Err(VerifyError::PlainTable { table, node: node.name.clone() });
        }
        Some(_) => return Err(changed(table.name, "is no longer a table".to_owned())),
    }
    let rows = client.query(
        "select n.nspname::text, c.relname::text, c.relkind::text, coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
                coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint, s.srvname::text,
                array(select o.option_name || '=' || o.option_value from pg_options_to_table(s.srvoptions) o),
                array(select o.option_name || '=' || o.option_value from pg_options_to_table(f.ftoptions) o),
                coalesce(to_jsonb(i) ->> 'inhdetachpending', '') = 'true'
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         left join pg_foreign_table f on f.ftrelid = c.oid left join pg_foreign_server s on s.oid = f.ftserver
         where i.inhparent = to_regclass($1)",
        &[&parent],
    );
    let bounds = bounds(table.placement, dataset.partitions);
    let mut unlisted = UnlistedServers::default();
    for row in sql(DOING, rows)? {
        let (schema, name, kind, bound): (String, String, &str, &str) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let partition = bounds.get(bound).ok_or_else(|| changed(&name, format!("is a partition {bound}")))?;
        view.leaving.extend(row.get::<_, bool>(8).then(|| name.clone()));
        let attached = match kind {
            "r" => Attached::Local(Local { schema, name, blocks: row.get::<_, i64>(4) as u64 }),
            "f" => {
                let target = (
                    option(&row, 7, "schema_name").unwrap_or(schema),
                    option(&row, 7, "table_name").unwrap_or_else(|| name.clone()),
                );
                let node = leads_to(&row, cluster, data[site], &mut unlisted);
                Attached::Foreign { node: node.and_then(|at| place_in(data, at, cluster)), target }
            }
            other => return Err(changed(&name, other_kind(other).unwrap_or_default().to_owned())),
        };
        view.leaves.insert(*partition, attached);
    }
    view.loose = loose(client, dataset, table)?;
    Ok(view)
}

/// The node at which a foreign table of the node `reader` points.
fn leads_to(
    row: &postgres::Row,
    cluster: &Cluster,
    reader: usize,
    unlisted: &mut UnlistedServers,
) -> Result<usize, UnlistedServer> {
    let port = option(row, 6, "port").map_or(Some(PORT_DEFAULT), |port| port.parse().ok());
    let dbname = option(row, 6, "dbname").unwrap_or_else(|| cluster.nodes[reader].spec.dbname.clone());
    let host = option(row, 6, "host");
    let at = port.and_then(|port| cluster.node_at(reader, host.as_deref(), port, &dbname));
    match at {
        Some(at) => Ok(at),
        None => unlisted.place(cluster, reader, row.get::<_, Option<String>>(5).unwrap_or_default()),
    }
}

/// The place of a node among those that hold rows.
fn place_in(data: &[usize], at: usize, cluster: &Cluster) -> Result<usize, UnlistedServer> {
    let place = data.iter().position(|&node| node == at);
    place.ok_or_else(|| UnlistedServer { name: cluster.nodes[at].name.clone(), unseen: None })
}

/// Where foreign servers of one node lead whose addresses are no node's: each is looked at once.
#[derive(Default)]
struct UnlistedServers(BTreeMap<String, Result<usize, UnlistedServer>>);

impl UnlistedServers {
    fn place(&mut self, cluster: &Cluster, reader: usize, server: String) -> Result<usize, UnlistedServer> {
        let find = |name: &String| match cluster.place_of_server(reader, name) {
            ServerPlace::Node(node) => Ok(node),
            ServerPlace::Elsewhere => Err(UnlistedServer { name: name.clone(), unseen: None }),
            ServerPlace::Unknown(address) => {
                Err(UnlistedServer { name: name.clone(), unseen: Some(address) })
            }
        };
        if !self.0.contains_key(&server) {
            self.0.insert(server.clone(), find(&server));
        }
        self.0[&server].clone()
    }
}

/// An option among those in a column, each as name=value.
fn option(row: &postgres::Row, column: usize, wanted: &str) -> Option<String> {
    let options = row.get::<_, Vec<String>>(column);
    options.iter().find_map(|option| option.strip_prefix(wanted)?.strip_prefix('=').map(str::to_owned))
}

/// Tables of the node's own that belong to the dataset, by the ledger, their mark or their name, and that are attached to nothing.
fn loose(client: &mut Client, dataset: &Dataset, table: &Table) -> Result<Vec<Local>, VerifyError> {
    const DOING: &str = "looking for tables that are not partitions";
    let names = table.leaf_names(dataset.partitions);
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let ledger = sql(DOING, client.query_one("select to_regclass('pgfathom.object') is not null", &[]))?;
    let in_ledger = if ledger.get(0) { "c.oid in (select oid from pgfathom.object)" } else { "false" };
    // Only tables that can hold rows of the dataset.
    let rows = client.query(
        &format!(
            "select n.nspname::text, c.relname::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where c.relkind = 'r' and not exists (select from pg_inherits where inhrelid = c.oid)
               and ((n.nspname = $1 and c.relname = any($2)) or {in_ledger}
                    or c.oid in ({} $3))
               and (select count(*) from pg_attribute a where a.attrelid = c.oid and not a.attisdropped
                      and a.attname = any($4)) = cardinality($4)
             order by 1, 2",
            ledger::MARKED
        ),
        &[&dataset.schema_name, &names, &format!("{}%", ledger::TABLE_MARK), &columns],
    );
    let rows = sql(DOING, rows)?;
    Ok(rows
        .iter()
        .map(|row| Local { schema: row.get(0), name: row.get(1), blocks: row.get::<_, i64>(2) as u64 })
        .collect())
}

/// Which of the tables that foreign tables point at are there, by node.
pub(super) fn targets_there(
    client: &mut Client,
    views: &[View],
    node: usize,
) -> Result<Vec<(String, String)>, VerifyError> {
    let (schemas, names): (Vec<&str>, Vec<&str>) = views
        .iter()
        .flat_map(|view| view.leaves.values())
        .filter_map(|attached| match attached {
            Attached::Foreign { node: at, target, .. } if *at == Ok(node) => {
                Some((target.0.as_str(), target.1.as_str()))
            }
            _ => None,
        })
        .unzip();
    let rows = client.query(
        "select distinct s, t from unnest($1::text[], $2::text[]) as wanted (s, t)
         join pg_namespace n on n.nspname = s join pg_class c on c.relnamespace = n.oid and c.relname = t
         where c.relkind in ('r', 'p', 'f', 'v', 'm')",
        &[&schemas, &names],
    );
    Ok(sql("looking for the tables that others point at", rows)?
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect())
}

/// Makes one answer of all catalogs. `there`: the tables that are pointed at and exist, by node.
pub(super) fn resolve(
    nodes: &[&str],
    leaf_names: &[String],
    views: &[View],
    there: &[Vec<(String, String)>],
) -> Result<Spread, VerifyError> {
    let mut spread = Spread::default();
    let mut strays: Vec<(usize, Local)> = Vec::new();
    let mut taken: Vec<(usize, Local)> = Vec::new();
    for (node, view) in nodes.iter().map(|node| (*node).to_owned()).zip(views) {
        let leaving = view.leaving.iter().cloned();
        spread.problems.extend(leaving.map(|table| is_leaving(Some(node.clone()), table)));
        spread.problems.extend((!view.has_table).then_some(Problem::NoTable { node }));
    }
    for (remainder, name) in leaf_names.iter().enumerate() {
        let claims = |node: usize| {
            views.iter().filter(|view| points_at(view.leaves.get(&remainder)) == Some(node)).count()
        };
        let mut owners = owners(name, remainder, views);
        owners.sort_by_key(|(node, local)| std::cmp::Reverse((claims(*node), local.blocks)));
        let mut owners = owners.into_iter();
        let Some((owner, local)) = owners.next() else {
            if let Some(error) = held_elsewhere(nodes, name, remainder, views) {
                return Err(error);
            }
            spread.problems.push(Problem::NoOwner { leaf: name.clone() });
            // Its rows belong where others look for them.
            let site =
                (0..views.len()).max_by_key(|&node| (claims(node), std::cmp::Reverse(node))).unwrap_or(0);
            let name = TableName::on(name, nodes[site]);
            spread.leaves.push(Found { name, site, relation: None, blocks: 0 });
            continue;
        };
        for (node, other) in owners {
            let (leaf, owner) = (name.clone(), nodes[owner].to_owned());
            spread.problems.push(Problem::TwoOwners { leaf, owner, other: nodes[node].to_owned() });
            strays.push((node, other));
        }
        for (node, view) in views.iter().enumerate().filter(|(_, view)| view.has_table) {
            spread.problems.extend(check(
                nodes,
                node,
                view.leaves.get(&remainder),
                name,
                (owner, &local),
                there,
            ));
        }
        spread.leaves.push(local.on(owner, nodes[owner]));
        taken.push((owner, local));
    }
    let loose = views.iter().enumerate();
    let loose = loose.flat_map(|(node, view)| view.loose.iter().map(move |local| (node, local.clone())));
    let others = |tables: &mut dyn Iterator<Item = (usize, Local)>| -> Vec<Found> {
        let others = tables.filter(|one| !taken.contains(one));
        others.map(|(node, local)| local.on(node, nodes[node])).collect()
    };
    spread.strays = others(&mut strays.into_iter());
    spread.loose = others(&mut loose.into_iter());
    spread.problems.sort();
    spread.problems.dedup();
    Ok(spread)
}

/// The nodes that have a leaf as a table of their own.
fn owners(name: &str, remainder: usize, views: &[View]) -> Vec<(usize, Local)> {
    let of_node = |(node, view): (usize, &View)| match view.leaves.get(&remainder) {
        Some(Attached::Local(local)) => Some((node, local.clone())),
        _ => None,
    };
    let owners: Vec<(usize, Local)> = views.iter().enumerate().filter_map(of_node).collect();
    if !owners.is_empty() {
        return owners;
    }
    // Detached on its owner, it is still the table that the others read.
    loose_owner(name, remainder, views).into_iter().collect()
}

/// Of a leaf that no node has, and for which none points at another node: that its rows are on a server which is none of them.
fn held_elsewhere(nodes: &[&str], leaf: &str, remainder: usize, views: &[View]) -> Option<VerifyError> {
    let mut pointed =
        nodes.iter().zip(views).filter_map(|(node, view)| match view.leaves.get(&remainder)? {
            Attached::Foreign { node: at, .. } => Some((node, at.as_ref())),
            Attached::Local(_) => None,
        });
    let first = pointed.next()?;
    let (node, server) = match (first, pointed.any(|(_, at)| at.is_ok())) {
        ((node, Err(server)), false) => (node, server),
        _ => return None,
    };
    Some(VerifyError::OtherServer {
        leaf: leaf.to_owned(),
        node: (*node).to_owned(),
        server: server.name.clone(),
        address: server.unseen.clone(),
    })
}

fn points_at(attached: Option<&Attached>) -> Option<usize> {
    match attached {
        Some(Attached::Foreign { node: Ok(node), .. }) => Some(*node),
        _ => None,
    }
}

/// A table that is attached to nothing on its own node, and that other nodes point at as this leaf.
fn loose_owner(name: &str, remainder: usize, views: &[View]) -> Option<(usize, Local)> {
    let of_node = |(node, view): (usize, &View)| {
        let pointed = |local: &&Local| {
            views.iter().any(|view| match view.leaves.get(&remainder) {
                Some(Attached::Foreign { node: Ok(at), target, .. }) => {
                    *at == node && target.0 == local.schema && target.1 == local.name
                }
                _ => false,
            })
        };
        let local = view.loose.iter().find(pointed);
        Some((node, local?.clone()))
    };
    let mut found: Vec<(usize, Local)> = views.iter().enumerate().filter_map(of_node).collect();
    found.sort_by_key(|(_, local)| local.name != name);
    found.into_iter().next()
}

/// What is wrong with a node's catalog about a leaf.
fn check(
    nodes: &[&str],
    node: usize,
    attached: Option<&Attached>,
    leaf: &str,
    (owner, local): (usize, &Local),
    there: &[Vec<(String, String)>],
) -> Option<Problem> {
    let (this, leaf, owner_name) = (nodes[node].to_owned(), leaf.to_owned(), nodes[owner].to_owned());
    match attached {
        None => Some(Problem::NotAttached { node: this, leaf }),
        // Reported as one of two owners, if it is not the one.
        Some(Attached::Local(_)) => None,
        Some(Attached::Foreign { node: Err(UnlistedServer { name, unseen: Some(address) }), .. }) => {
            let (server, address) = (name.clone(), address.clone());
            Some(Problem::UnknownServer { node: this, server, address, owner: owner_name })
        }
        Some(Attached::Foreign { node: Err(UnlistedServer { name, unseen: None }), .. }) => {
            let catalogued = format!("the server {name}, which is not a node of this cluster");
            Some(Problem::Misdirected { node: this, leaf, catalogued, owner: owner_name })
        }
        Some(Attached::Foreign { node: Ok(at), target, .. }) => {
            let right = *at == owner && target.0 == local.schema && target.1 == local.name;
            // A table of the same name in another schema is another one.
            let table =
                if target.0 == local.schema { target.1.clone() } else { target.0.clone() + "." + &target.1 };
            let catalogued = TableName::on(table, nodes[*at]).to_string();
            match () {
                () if right => None,
                () if !there[*at].contains(target) => {
                    Some(Problem::Dangling { node: this, leaf, target: catalogued })
                }
                () => Some(Problem::Misdirected { node: this, leaf, catalogued, owner: owner_name }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
