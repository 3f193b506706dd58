//! Where the leaves of a sharded table are, by the catalog of every node, and where the nodes disagree.
//!
//! Each node of a cluster sharded by `postgres_fdw` has the whole table: its own leaves as tables, all others as foreign tables that point
//! at the leaf on its owner. Nothing keeps these catalogs consistent, so each of them is read and compared with the others. The
//! verdict on a leaf is made here without a server: [`resolve`] is a function of the catalogs' content.

use std::collections::BTreeMap;

use connect::conninfo::PORT_DEFAULT;
use engines::cluster::Cluster;
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
        /// Where it points: a node by its place in the cluster, or the name of a server that is none.
        node: Result<usize, String>,
        /// The table it points at.
        target: (String, String),
    },
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
            return Err(changed(table.name, "is a plain table, not partitioned over the nodes".to_owned()));
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
    for row in sql(DOING, rows)? {
        let (schema, name, kind, bound): (String, String, &str, &str) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let partition = bounds.get(bound).ok_or_else(|| changed(&name, format!("is a partition {bound}")))?;
        view.leaving.extend(row.get::<_, bool>(8).then(|| name.clone()));
        let attached = match kind {
            "r" => Attached::Local(Local { schema, name, blocks: row.get::<_, i64>(4) as u64 }),
            "f" => {
                let option = |column, wanted| option(&row, column, wanted);
                let server: String = row.get::<_, Option<String>>(5).unwrap_or_default();
                let target = (
                    option(7, "schema_name").unwrap_or(schema),
                    option(7, "table_name").unwrap_or_else(|| name.clone()),
                );
                let port = option(6, "port").map_or(Some(PORT_DEFAULT), |port| port.parse().ok());
                let dbname = option(6, "dbname").unwrap_or_else(|| node.spec.dbname.clone());
                let at = port.and_then(|port| {
                    cluster.node_at(data[site], option(6, "host").as_deref(), port, &dbname)
                });
                let at = at.and_then(|at| data.iter().position(|&node| node == at));
                Attached::Foreign { node: at.ok_or(server), target }
            }
            other => return Err(changed(&name, other_kind(other).unwrap_or_default().to_owned())),
        };
        view.leaves.insert(*partition, attached);
    }
    view.loose = loose(client, dataset, table)?;
    Ok(view)
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
) -> Spread {
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
        let mut owners: Vec<(usize, Local)> = views
            .iter()
            .enumerate()
            .filter_map(|(node, view)| match view.leaves.get(&remainder) {
                Some(Attached::Local(local)) => Some((node, local.clone())),
                _ => None,
            })
            .collect();
        if owners.is_empty() {
            // Detached on its owner, it is still the table that the others read.
            owners = loose_owner(name, remainder, views).into_iter().collect();
        }
        owners.sort_by_key(|(node, local)| std::cmp::Reverse((claims(*node), local.blocks)));
        let mut owners = owners.into_iter();
        let Some((owner, local)) = owners.next() else {
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
    spread
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
        Some(Attached::Foreign { node: Err(server), .. }) => {
            let catalogued = format!("the server {server}, which is not a node of this cluster");
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
mod tests {
    use super::*;

    const NODES: [&str; 3] = ["n1", "n2", "n3"];

    fn leaf_names() -> Vec<String> {
        (0..3).map(|leaf| format!("usertable_p{leaf}")).collect()
    }

    fn local(remainder: usize) -> Local {
        Local { schema: "public".into(), name: format!("usertable_p{remainder}"), blocks: 7 }
    }

    fn foreign(remainder: usize, node: usize) -> Attached {
        let name = format!("usertable_p{remainder}");
        Attached::Foreign { node: Ok(node), target: ("public".into(), name) }
    }

    /// Leaf r on node r, everybody knows it.
    fn views() -> Vec<View> {
        (0..3)
            .map(|node| View {
                has_table: true,
                leaves: (0..3)
                    .map(|r| (r, if r == node { Attached::Local(local(r)) } else { foreign(r, r) }))
                    .collect(),
                ..View::default()
            })
            .collect()
    }

    /// Every table of a leaf's name that any node has.
    fn there(views: &[View]) -> Vec<Vec<(String, String)>> {
        let names = |view: &View| {
            let attached = view.leaves.keys().map(|r| format!("usertable_p{r}"));
            let loose = view.loose.iter().map(|local| local.name.clone());
            attached.chain(loose).map(|name| ("public".to_owned(), name)).collect()
        };
        views.iter().map(names).collect()
    }

    fn found(views: &[View]) -> (Vec<String>, Vec<String>) {
        let spread = resolve(&NODES, &leaf_names(), views, &there(views));
        let all = || [&spread.leaves, &spread.strays, &spread.loose].into_iter().flatten();
        for leaf in all() {
            assert_eq!(leaf.name.node.as_deref(), Some(NODES[leaf.site]));
        }
        let text = |problem: &Problem| problem.to_string();
        (all().map(|leaf| leaf.name.to_string()).collect(), spread.problems.iter().map(text).collect())
    }

    const HOMES: [&str; 3] = ["usertable_p0 on n1", "usertable_p1 on n2", "usertable_p2 on n3"];

    #[test]
    fn agreement_is_no_problem() {
        assert_eq!(found(&views()), (HOMES.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn the_wrong_catalog_is_named() {
        type Damage = fn(&mut Vec<View>);
        let cases: [(Damage, &str); 5] = [
            (
                |views| {
                    views[0].leaves.insert(2, foreign(2, 1));
                },
                "usertable_p2: the catalog of n1 points to usertable_p2 on n2, but it is on n3",
            ),
            (
                |views| {
                    let target = ("public".into(), "other".into());
                    views[0].leaves.insert(2, Attached::Foreign { node: Ok(2), target });
                },
                "usertable_p2: the catalog of n1 points to other on n3, but there is no such table",
            ),
            (
                |views| {
                    let target = ("public".into(), "usertable_p2".into());
                    let node = Err("elsewhere".into());
                    views[0].leaves.insert(2, Attached::Foreign { node, target });
                },
                "usertable_p2: the catalog of n1 points to the server elsewhere, which is not a node of this cluster, but it is on n3",
            ),
            (
                |views| {
                    views[1].leaves.remove(&0);
                },
                "usertable_p0 is not a partition on n2: its rows cannot be reached through that node",
            ),
            (
                // Detached on its owner: the table is there, and the others read it.
                |views| {
                    views[1].leaves.remove(&1);
                    views[1].loose.push(local(1));
                },
                "usertable_p1 is not a partition on n2: its rows cannot be reached through that node",
            ),
        ];
        for (damage, problem) in cases {
            let mut views = views();
            damage(&mut views);
            assert_eq!(found(&views), (HOMES.map(str::to_owned).to_vec(), vec![problem.to_owned()]));
        }
    }

    #[test]
    fn the_owner_is_who_others_take_for_it() {
        let mut views = views();
        views[0].leaves.insert(2, Attached::Local(Local { blocks: 1000, ..local(2) }));
        let (names, problems) = found(&views);
        assert_eq!(
            names,
            [&HOMES[..], &["usertable_p2 on n1"]].concat(),
            "the copy is read, and should be empty"
        );
        assert_eq!(problems, ["usertable_p2 is a table on n1 as well as on n3"]);
    }

    #[test]
    fn what_is_left_over_is_read_too() {
        let mut views = views();
        views[0].loose.push(Local { name: "usertable_p2_old".into(), ..local(2) });
        assert_eq!(
            found(&views),
            (
                [&HOMES[..], &["usertable_p2_old on n1"]]
                    .concat()
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect(),
                vec![]
            )
        );
    }

    #[test]
    fn a_leaf_that_no_node_has_belongs_where_others_look() {
        let mut views = views();
        views[2].leaves.remove(&2);
        let mut there = there(&views);
        there[2].retain(|(_, name)| name != "usertable_p2");
        let spread = resolve(&NODES, &leaf_names(), &views, &there);
        assert_eq!((spread.leaves[2].site, &spread.leaves[2].relation), (2, &None));
        assert_eq!(spread.problems, [Problem::NoOwner { leaf: "usertable_p2".into() }]);
    }

    #[test]
    fn a_node_without_the_table_is_reported_once() {
        let mut views = views();
        views[1].has_table = false;
        views[1].leaves.clear();
        let (names, problems) = found(&views);
        assert_eq!(names[1], "usertable_p1 on n2", "where the others look for it");
        assert_eq!(problems, ["n2 has no table of the dataset", "usertable_p1 is not a table on any node"]);
    }
}
