//! What a sweep does to the nodes before it measures: statistics gathered on every node, a checkpoint before each step. What a role
//! may not do is reported once, and the sweep goes on without it.

use super::mix::Tables;
use crate::connection::users_relation;
use connect::control::{self, Control};
use connect::{ConnSpec, cluster_file::Role};
use engines::{Cluster, ClusterNode};

/// Relations that hold rows of a table on this node: the table, or its local partitions; whether others are elsewhere, and whether
/// this role may analyze it. Owner, owner of the database, superuser, and since PostgreSQL 17 a role with MAINTAIN.
const RELATIONS: &str = "
    with recursive tree(oid) as (
        select pg_catalog.to_regclass($1)::pg_catalog.oid
        union
        select inhrelid from pg_catalog.pg_inherits join tree on inhparent = tree.oid
    )
    select c.oid::pg_catalog.regclass::text, c.relkind::text,
           pg_catalog.pg_has_role(c.relowner, 'USAGE')
           or pg_catalog.pg_has_role((select datdba from pg_catalog.pg_database where datname = pg_catalog.current_database()), 'USAGE')
           or case when pg_catalog.current_setting('server_version_num')::int >= 170000
                   then pg_catalog.has_table_privilege(c.oid, 'MAINTAIN') else false end
    from tree join pg_catalog.pg_class c on c.oid = tree.oid
    where c.relkind in ('r', 'p', 'f')
    order by c.relkind = 'p' desc, c.oid";

/// The nodes of a sweep.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<ClusterNode>,
    /// What could not be done, and why.
    pub(super) missing: Vec<String>,
    /// A checkpoint was refused: it is not requested again.
    refuses_checkpoints: bool,
}

impl Nodes {
    /// The node that is entered, and all others that take writes.
    pub(super) fn of(cluster: &Cluster) -> Nodes {
        let data: Vec<usize> = cluster.data_nodes().collect();
        let wanted = |(index, node): (usize, &ClusterNode)| {
            (data.contains(&index) || (index == 0 && node.role != Role::Standby)).then(|| node.clone())
        };
        Nodes {
            nodes: cluster.nodes.iter().enumerate().filter_map(wanted).collect(),
            missing: vec![],
            refuses_checkpoints: false,
        }
    }

    /// Gathers statistics; the relations that were analyzed, as `node: table`.
    pub(super) fn analyze(&mut self, tables: &Tables) -> Vec<String> {
        let mut analyzed = vec![];
        for node in self.nodes.clone() {
            match connect(&node).and_then(|mut control| analyze(&mut control, &node.spec, tables)) {
                Ok(done) => {
                    analyzed.extend(done.analyzed.iter().map(|table| format!("{}: {table}", node.name)));
                    self.missing.extend(done.refused.iter().map(|table| {
                        format!("{}: no right to analyze {table}: its statistics were not updated", node.name)
                    }));
                }
                Err(why) => self.missing.push(format!("{}: statistics not gathered: {why}", node.name)),
            }
        }
        analyzed
    }

    /// A checkpoint on every node, so that the last step's writes are not the next one's burden. True if all made one.
    pub(super) fn checkpoint(&mut self) -> bool {
        if self.refuses_checkpoints {
            return false;
        }
        for node in &self.nodes {
            let made = connect(node)
                .and_then(|mut control| control.batch_execute("checkpoint").map_err(server_text));
            if let Err(why) = made {
                self.missing.push(format!("{}: no checkpoint before the steps: {why}", node.name));
                self.refuses_checkpoints = true;
                return false;
            }
        }
        true
    }
}

fn connect(node: &ClusterNode) -> Result<Control, String> {
    control::connect_shared(&node.spec).map_err(|error| error.to_string())
}

fn server_text(error: postgres::Error) -> String {
    control::server_error(&error).map_or_else(|| error.to_string(), |error| error.message)
}

/// What became of the tables of one node.
#[derive(Debug, Default)]
struct Done {
    analyzed: Vec<String>,
    refused: Vec<String>,
}

fn analyze(control: &mut Control, spec: &ConnSpec, tables: &Tables) -> Result<Done, String> {
    let Tables::Named(tables) = tables else {
        control.batch_execute("analyze").map_err(server_text)?;
        return Ok(Done { analyzed: vec!["all tables".to_string()], refused: vec![] });
    };
    let mut done = Done::default();
    for (schema, table) in tables {
        let wanted = match schema {
            Some(schema) => load::ledger::qualified(schema, table),
            None => users_relation(spec, table).map_err(|failure| failure.render(false))?,
        };
        let rows = control.query(RELATIONS, &[&wanted]).map_err(server_text)?;
        let relations: Vec<(String, String, bool)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        // Sampling a foreign partition may fetch all of it; its owner has statistics of its own. Only without any is the whole table
        // analyzed, as one.
        let is_spread = relations.iter().any(|(_, kind, _)| kind == "f");
        let mine = relations.iter().filter(|(_, kind, _)| if is_spread { kind == "r" } else { true });
        for (name, _, may) in mine.take(if is_spread { usize::MAX } else { 1 }) {
            if *may {
                control.batch_execute(&format!("analyze {name}")).map_err(server_text)?;
                done.analyzed.push(name.clone());
            } else {
                done.refused.push(name.clone());
            }
        }
    }
    Ok(done)
}
