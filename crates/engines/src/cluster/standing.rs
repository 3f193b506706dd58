//! How a server stands to the engines: which one its database belongs to, and whether it belongs to the one that was named.

use super::discover::{self, Reach};
use super::{Cluster, ClusterError, Role};
use super::{identity, sessions};
use crate::catalog::{self, TextRow};
use crate::engine::{Engine, replications, signs};
use crate::profile::{Discovery, Layout, Replication};

use connect::ConnSpec;
use connect::conninfo::HostSpec;
use connect::control::Control;

/// Foreign servers named in a note; more are counted.
const SERVERS_NAMED_MAX: usize = 5;

/// A publication for all tables, and a slot that may belong to a subscription to it.
const SUBSCRIBED: &str = "select p.pubname, s.slot_name from pg_catalog.pg_publication p cross join pg_catalog.pg_replication_slots s \
    where p.puballtables and s.slot_type = 'logical' and s.plugin = 'pgoutput' and s.database = pg_catalog.current_database() order by 1, 2 limit 1";

/// What the server loads at its start; plain roles may not read it.
const LIBRARIES: &str = "select pg_catalog.current_setting('shared_preload_libraries')";

impl Cluster {
    /// The engine that the catalog of this server indicates. Other nodes are not queried.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn engine_of(control: &mut Control) -> Result<Engine, ClusterError> {
        discover::engine(control, &mut Reach::Noted(&mut vec![]))
    }

    /// The addresses of nodes that the engine's catalog has and this cluster does not, as after a node was added. Empty as well where the catalog cannot be
    /// read, or where it has no more nodes than this cluster: then it may only know them by other addresses.
    pub fn unlisted_nodes(&self, control: &mut Control) -> Vec<String> {
        let rows = self.rows_of_nodes(control);
        if rows.len() <= self.nodes.len() {
            return Vec::new();
        }
        rows.iter().filter(|row| !row.is_true(6)).filter_map(|row| self.unlisted(row)).collect()
    }

    /// The replication system in whose own catalog the group of this server has more nodes than take writes in this cluster: its name, and how many. Tables
    /// that are made on some nodes of a group alone stop the replication to the others for good. Subscriptions alone make no group.
    ///
    /// # Errors
    /// When the server belongs to such a group whose nodes this role may not read, and the cluster has one node. With several it counts as complete.
    pub fn larger_group(
        &self,
        client: &mut postgres::Client,
    ) -> Result<Option<(&'static str, usize)>, postgres::Error> {
        if !matches!(self.engine.discovery, Discovery::Native | Discovery::Copies(_)) {
            return Ok(None);
        }
        let found = replications(Replication::has_group, |sign| {
            Ok::<bool, postgres::Error>(client.query_one(&format!("select {sign}"), &[])?.get(0))
        })?;
        let named = self.data_nodes().count();
        for replication in found {
            match catalog::rows(client, replication.nodes) {
                Ok(rows) if rows.len() > named => return Ok(Some((replication.name, rows.len()))),
                Err(error) if named < 2 => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// The nodes by the catalog of this server, as the engine or the replication system in it lists them.
    fn rows_of_nodes(&self, control: &mut Control) -> Vec<TextRow> {
        self.listed_nodes(control).unwrap_or_default()
    }

    /// The same; `None` where there is no such catalog, or this role may not read it.
    pub(super) fn listed_nodes(&self, control: &mut Control) -> Option<Vec<TextRow>> {
        let listing = match self.engine.discovery {
            Discovery::Catalog(known) => known.nodes,
            Discovery::Copies(known) => known.iter().find_map(|replication| {
                let sign = catalog::rows(&mut **control, &format!("select {}", replication.sign)).ok()?;
                sign.first()?.is_true(0).then_some(replication.nodes)
            })?,
            Discovery::Native | Discovery::None(_) => return None,
        };
        catalog::rows(&mut **control, listing).ok()
    }

    /// That the engine which spreads rows over its nodes has one, by its own catalog: a cluster file may name fewer than there are. `None` also where the
    /// catalog cannot be read, or does not list the node that was queried.
    pub fn on_one_node(&self) -> Option<String> {
        let node = self.table_node().filter(|_| matches!(self.engine.layout, Layout::Spread(_)))?;
        let rows = self.listed_nodes(&mut sessions::probe(&self.nodes[node].spec)?)?;
        let is_complete = rows.iter().any(|row| row.is_true(6));
        (is_complete && holders_of_rows(&rows) == 1)
            .then(|| format!("{} has one node: all rows are placed there", self.engine.title))
    }

    /// The same with the replication system that the first node that answers has, where a profile covers several and a cluster file has the engine: what
    /// becomes of conflicts differs between them.
    #[must_use]
    pub fn with_replication(mut self) -> Cluster {
        if !matches!(self.engine.discovery, Discovery::Copies(_)) || self.nodes.len() < 2 {
            return self;
        }
        let Some(mut control) = self.nodes.iter().find_map(|node| sessions::probe(&node.spec)) else {
            return self;
        };
        let found = discover::detect(&mut control).unwrap_or_default();
        let of_engine = found.into_iter().filter(|sign| sign.engine == self.engine);
        let groups: Vec<&'static Replication> =
            of_engine.filter_map(|sign| sign.replication.filter(|one| one.has_group())).collect();
        let mut is_in_use =
            |one: &&Replication| catalog::rows(&mut *control, one.nodes).is_ok_and(|rows| rows.len() > 1);
        if let Some(replication) = groups.into_iter().find(|one| is_in_use(one)) {
            self.engine = self.engine.replicated_by(replication);
        }
        self
    }

    /// The way to the node of this session by the address that the catalog of its replication system has, past a pooler or a proxy, if that leads to the same
    /// server from here.
    pub fn direct_way(
        &self,
        spec: &ConnSpec,
        client: &mut postgres::Client,
        replication: &Replication,
    ) -> Option<ConnSpec> {
        let nodes = catalog::rows(client, replication.nodes).ok()?;
        let own = nodes.iter().find(|row| row.is_true(6) && row.get(9).is_none())?;
        let way = match own.get(8) {
            Some(conninfo) => discover::along(spec, conninfo).ok()?,
            None => discover::beside(spec, own.get(2), own.get(3), own.get(4)).ok()?,
        };
        let here = identity::of_client(client)?;
        (identity::at(&way)? == here).then_some(way)
    }

    /// The address in a row of the catalog, if no node is there.
    pub(super) fn unlisted(&self, row: &TextRow) -> Option<String> {
        let dbname = &self.nodes[0].spec.dbname;
        let Some(conninfo) = row.get(8) else {
            let (host, port) = (row.get(2)?, row.get(3)?.parse().ok()?);
            let listed = self.nodes_at(0, Some(host), port, row.get(4).unwrap_or(dbname));
            return listed.is_empty().then(|| format!("{host}:{port}"));
        };
        let spec = discover::along(&self.nodes[0].spec, conninfo).ok()?;
        let is_listed =
            |at: &HostSpec| self.node_at(0, Some(&at.host.to_string()), at.port, &spec.dbname).is_some();
        let is_known = spec.hosts.iter().any(is_listed);
        let first = spec.hosts.first().filter(|_| !is_known)?;
        Some(format!("{}:{}", first.host, first.port))
    }

    /// The nodes that could be at the address in a row of the catalog of the node `seen_from`.
    pub(super) fn listed_at(&self, seen_from: usize, row: &TextRow) -> Vec<usize> {
        let here = &self.nodes[seen_from].spec;
        match (row.get(8), row.get(2), row.get(3).and_then(|port| port.parse().ok())) {
            (Some(conninfo), ..) => {
                let Ok(spec) = discover::along(here, conninfo) else { return Vec::new() };
                let at = |host: &HostSpec| {
                    self.nodes_at(seen_from, Some(&host.host.to_string()), host.port, &spec.dbname)
                };
                spec.hosts.iter().flat_map(at).collect()
            }
            (None, Some(host), Some(port)) => {
                self.nodes_at(seen_from, Some(host), port, row.get(4).unwrap_or(&here.dbname))
            }
            _ => Vec::new(),
        }
    }

    /// If this is one server of plain PostgreSQL: that it has foreign servers of `postgres_fdw` all the same, on which no table has partitions.
    pub fn beside_foreign_servers(&self, control: &mut Control) -> Option<String> {
        if self.nodes.len() > 1 || self.engine != Engine::default() {
            return None;
        }
        let servers = discover::servers_without_partitions(control);
        if servers.is_empty() {
            return None;
        }
        let more = servers.len().saturating_sub(SERVERS_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = servers.iter().take(SERVERS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        Some(format!(
            "no table has partitions on the foreign servers {named}{more} of postgres_fdw: all rows are on this server alone. To spread them, name every node \
             in a cluster file with engine = \"{}\" (--cluster); each node needs a foreign server for each other one",
            Engine::FOREIGN_PARTITIONS
        ))
    }

    /// If this is one server of plain PostgreSQL whose publication sends every table to subscribers: that they stop at the rows of a table that they lack.
    /// `None` also where the role may not read that.
    pub fn before_subscribers(&self, control: &mut Control) -> Option<String> {
        if self.data_nodes().nth(1).is_some() || self.engine != Engine::default() {
            return None;
        }
        let rows = catalog::rows(&mut **control, SUBSCRIBED).ok()?;
        let row = rows.first()?;
        let word = |column: usize| row.get(column).unwrap_or_default().replace(char::is_control, " ");
        let (publication, slot) = (word(0), word(1));
        Some(format!(
            "the publication {publication} is for all tables, and the slot {slot} may read it: a subscriber without the tables of this load stops at their \
             first row. Create them there and run ALTER SUBSCRIPTION ... REFRESH PUBLICATION, or load into another database"
        ))
    }

    /// If this is one server of plain PostgreSQL: that it has an engine's library loaded all the same, whose extension this database is no part of.
    /// `None` also where the role may not read that.
    pub fn beside_an_engine(&self, control: &mut Control) -> Option<String> {
        if self.nodes.len() > 1 || self.engine != Engine::default() {
            return None;
        }
        let rows = catalog::rows(&mut **control, LIBRARIES).ok()?;
        let loaded = libraries(rows.first()?.get(0)?);
        let signs = signs();
        let mut names =
            signs.iter().flat_map(|sign| sign.own().libraries.iter().map(move |library| (library, sign)));
        let (library, _) = names.find(|(library, _)| loaded.iter().any(|name| name == *library))?;
        let dbname = &self.nodes[0].spec.dbname;
        Some(format!(
            "the server has {library} loaded, but the database {dbname:?} is no part of a cluster: all rows are on this server alone"
        ))
    }
}

/// How many nodes of a catalog hold rows: the same rule as [`Cluster::data_nodes`].
fn holders_of_rows(rows: &[TextRow]) -> usize {
    let roles: Vec<Role> =
        rows.iter().map(|row| row.get(5).and_then(Role::parse).unwrap_or(Role::Shard)).collect();
    let has_workers = roles.iter().any(|role| matches!(role, Role::Worker | Role::Shard));
    let holds = |role: &&Role| **role != Role::Standby && !(has_workers && **role == Role::Coordinator);
    roles.iter().filter(holds).count()
}

/// The names in a value of `shared_preload_libraries`, without their folders and quotes.
pub fn libraries(setting: &str) -> Vec<String> {
    let name = |entry: &str| {
        let entry = entry.trim().trim_matches('"');
        entry.rsplit('/').next().unwrap_or(entry).trim_end_matches(".so").to_lowercase()
    };
    setting.split(',').map(name).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_name_wherever_they_lie() {
        assert_eq!(libraries("pg_stat_statements, citus"), ["pg_stat_statements", "citus"]);
        assert_eq!(libraries("\"$libdir/multimaster\""), ["multimaster"]);
        assert_eq!(libraries("$libdir/pgactive.so,"), ["pgactive"]);
        assert!(libraries("").is_empty());
    }
}
