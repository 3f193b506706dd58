//! The copies of tables that an engine keeps whole on several nodes. Each is read on its node, because a query of the table reads only one of them.

use connect::control::{self, Control};
use connect::hot::HotConnection;
use connect::sql;
use engines::Cluster;
use engines::placement::Parts;

use super::condition::Names;
use super::nodes::Node;
use super::{Conditions, ProveError, Watch, text_of};

/// Every node's copies of the benchmark's tables that every node has, where these are parts that the engine's catalog lists; none otherwise.
pub(super) fn open(
    what: &dyn Conditions,
    cluster: &Cluster,
    first: &mut Node,
    watch: &Watch<'_>,
) -> Result<Vec<Node>, ProveError> {
    let tables: Vec<_> = what.tables().iter().filter(|table| table.is_copied).collect();
    if cluster.nodes.len() < 2 || tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut catalog = control::connect(&cluster.nodes[0].spec.pinned())?;
    let mut copies: Vec<(usize, Vec<String>, Names)> = Vec::new();
    for table in tables {
        let name = first.names.get(table.place);
        let Some(parts) = parts(cluster, &mut catalog, &mut first.control, name)? else { continue };
        for part in parts.parts.iter().filter(|part| part.nodes.len() > 1) {
            for &node in part.nodes.iter().filter_map(|node| node.as_ref().ok()) {
                let known = copies.iter().position(|(known, ..)| *known == node);
                let at = known.unwrap_or_else(|| {
                    copies.push((node, Vec::new(), Names::default()));
                    copies.len() - 1
                });
                let (_, parts, names) = &mut copies[at];
                parts.push(part.name.clone());
                names.set(table.place, sql::qualified(&part.schema, &part.name));
            }
        }
    }
    let open = |(node, parts, names): (usize, Vec<String>, Names)| {
        let node = &cluster.nodes[node];
        let control = watch.connect(&node.spec)?;
        let name = format!("{} ({})", node.name, parts.join(", "));
        Ok(Node { name, spec: node.spec.clone(), control, names })
    };
    copies.into_iter().map(open).collect()
}

/// What was not read of a cluster: `nodes` of its nodes were, and `copies` of its tables.
pub(super) fn note(cluster: &Cluster, nodes: usize, copies: usize) -> Option<String> {
    let first = &cluster.nodes.first()?.name;
    match (cluster.nodes.len(), nodes, copies) {
        (0 | 1, ..) | (_, 2.., _) => None,
        (_, _, 0) => Some(format!(
            "all rows were read through {first}; copies of the same rows on other nodes were not (standbys, tables that every node has)"
        )),
        _ => Some(format!(
            "all rows were read through {first}, and the tables that every node has were also read on each node separately"
        )),
    }
}

/// The parts of a table of this name, by the catalog of the first node.
fn parts(
    cluster: &Cluster,
    catalog: &mut Control,
    session: &mut HotConnection,
    name: &str,
) -> Result<Option<Parts>, ProveError> {
    let query = format!(
        "select n.nspname, c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where c.oid = pg_catalog.to_regclass({})",
        sql::literal(name)
    );
    let rows = session.simple_query(&query).map_err(ProveError::sql("looking for the copies of a table"))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text = |at: usize| text_of(row.get(at).and_then(|value| value.as_deref()));
    Ok(Parts::read(cluster, &mut **catalog, 0, &text(0), &text(1))?)
}
