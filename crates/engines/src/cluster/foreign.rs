//! Whether the servers that hold partitions of each other's tables are the nodes that a cluster file names, whatever stands between them and this host.
//!
//! A server whose address is no node's is looked at from here. Where this host may not enter it, without a password, the node that reads its rows shows it:
//! its session at that server gets a name of ours, and appears at the node that the server is.

use super::discover::{beside, foreign_servers, is_node};
use super::sessions::Sessions;
use super::{Cluster, ClusterError, identity};
use crate::catalog::{self, TextRow};
use crate::profile::{Discovery, Layout};
use crate::trust::trusted;
use connect::ConnSpec;
use connect::conninfo::PORT_DEFAULT;
use connect::control::Control;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long the row may take through which a server is recognised.
const LIMIT: &str = "set local statement_timeout = '5s'; set local lock_timeout = '1s'";

/// Where a foreign server leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerPlace {
    /// To this node, by its place in the cluster.
    Node(usize),
    /// To a server that is none of the nodes.
    Elsewhere,
    /// This could not be determined; the address, as the cluster file can have it.
    Unknown(String),
}

/// Who the nodes are, once that was needed.
type Identities = Option<Vec<Option<TextRow>>>;

impl Cluster {
    /// A cluster file of such servers, with the addresses under which they know each other: the file may name a proxy in front of one. A server that does not
    /// answer this host is left out.
    ///
    /// # Errors
    /// [`ClusterError::ForeignNode`]; [`ClusterError::NoOthers`] where no node has foreign servers.
    pub(super) fn with_foreign_addresses(mut self, sessions: &mut Sessions) -> Result<Cluster, ClusterError> {
        if self.engine.layout != Layout::ForeignPartitions || self.nodes.len() < 2 {
            return Ok(self);
        }
        let (mut answered, mut is_known, mut known) = (0, false, None);
        for reader in 0..self.nodes.len() {
            let Some(control) = sessions.get(reader) else { continue };
            // Where the role may not read the catalog, the step that needs it reports that.
            let Ok(servers) = foreign_servers(control) else { return Ok(self) };
            answered += 1;
            for server in servers.iter().filter(|server| is_node(server)) {
                let elsewhere = self.learn(reader, server, sessions, &mut known);
                // What one node has beside the others is what `verify` names.
                if let Some(error) = elsewhere.filter(|_| !is_known) {
                    return Err(error);
                }
            }
            is_known |= !servers.is_empty();
        }
        match self.nodes.first().filter(|_| answered == self.nodes.len() && !is_known) {
            Some(first) => Err(ClusterError::NoOthers {
                title: self.engine.title,
                node: first.name.clone(),
                dbname: first.spec.dbname.clone(),
                named: self.nodes.len(),
            }),
            None => Ok(self),
        }
    }

    /// Finds the node that a foreign server of the node `reader` is, and notes its address there; an error if it is none of them.
    fn learn(
        &mut self,
        reader: usize,
        server: &TextRow,
        sessions: &mut Sessions,
        known: &mut Identities,
    ) -> Option<ClusterError> {
        let here = &self.nodes[reader];
        let port = server.get(2).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
        let dbname = server.get(3).unwrap_or(&here.spec.dbname).to_owned();
        if !self.nodes_at(reader, server.get(1), port, &dbname).is_empty() {
            return None;
        }
        let way = beside(&here.spec, server.get(1), server.get(2), server.get(3)).ok()?;
        match self.place_of(reader, server, &way, sessions, known) {
            ServerPlace::Node(node) => self.nodes[node].is_known_at(way),
            ServerPlace::Elsewhere => {
                return Some(ClusterError::ForeignNode {
                    node: self.nodes[reader].name.clone(),
                    server: server.get(0).unwrap_or_default().replace(char::is_control, " "),
                    address: way.hosts.first().map(ToString::to_string).unwrap_or_default(),
                });
            }
            ServerPlace::Unknown(_) => {}
        }
        None
    }

    /// Where a foreign server in the catalog of the node `reader` leads, if its address is no node's.
    pub fn place_of_server(&self, reader: usize, name: &str) -> ServerPlace {
        let mut sessions = Sessions::at(&self.nodes);
        let servers = sessions.get(reader).and_then(|control| foreign_servers(control).ok());
        let server = servers.into_iter().flatten().find(|row| row.get(0) == Some(name) && is_node(row));
        let unknown = || ServerPlace::Unknown(format!("the address of {name}"));
        let Some(server) = server else { return unknown() };
        let spec = &self.nodes[reader].spec;
        match beside(spec, server.get(1), server.get(2), server.get(3)) {
            Ok(way) => self.place_of(reader, &server, &way, &mut sessions, &mut None),
            Err(_) => unknown(),
        }
    }

    fn place_of(
        &self,
        reader: usize,
        server: &TextRow,
        way: &ConnSpec,
        sessions: &mut Sessions,
        known: &mut Identities,
    ) -> ServerPlace {
        if let Some(theirs) = identity::at(way) {
            let known = known.get_or_insert_with(|| {
                sessions.iter_mut().map(|control| identity::identity(control?).ok()?).collect()
            });
            match known.iter().position(|own| own.as_ref() == Some(&theirs)) {
                Some(node) => return ServerPlace::Node(node),
                None if known.iter().all(Option::is_some) => return ServerPlace::Elsewhere,
                None => {}
            }
        }
        match self.seen_from(reader, server.get(0).unwrap_or_default(), sessions) {
            Some(node) => ServerPlace::Node(node),
            None => ServerPlace::Unknown(address_of(way)),
        }
    }

    /// The node at which the session appears through which the node `reader` reads rows of a foreign server. `None` also where it reads none, or where
    /// that session keeps an older name: servers before PostgreSQL 14 give it none of ours.
    fn seen_from(&self, reader: usize, server: &str, sessions: &mut Sessions) -> Option<usize> {
        let control = sessions.get(reader)?;
        let table = catalog::rows(
            &mut **control,
            &format!(
                "select pg_catalog.format('%I.%I', n.nspname, c.relname)
                 from pg_catalog.pg_foreign_table f join pg_catalog.pg_foreign_server s on s.oid = f.ftserver
                 join pg_catalog.pg_class c on c.oid = f.ftrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                 where s.srvname = {} and c.relispartition and c.relowner in ({}) order by 1 limit 1",
                catalog::literal(server),
                trusted!()
            ),
        );
        let table = table.ok()?.first()?.get(0)?.to_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mark = format!("pgfathom {} {since}", std::process::id());
        let open = format!(
            "begin read only; {LIMIT}; set local postgres_fdw.application_name = '{mark}'; select 1 from {table} limit 1"
        );
        let is_open = control.simple_query(&open).is_ok();
        let found = if is_open { with_session(&mark, sessions) } else { None };
        if let Some(control) = sessions.get(reader) {
            drop(control.simple_query("rollback"));
        }
        found
    }

    /// The same for an engine whose catalog lists its nodes: with the addresses that the catalog has for them, where a proxy or a pooler stands in front of
    /// one. Each node's own catalog shows which one it is.
    pub(super) fn with_listed_addresses(mut self, sessions: &mut Sessions) -> Cluster {
        let Discovery::Catalog(catalog) = self.engine.discovery else { return self };
        if !catalog.reach_nodes || self.nodes.len() < 2 {
            return self;
        }
        let entry = self.table_node().unwrap_or(0);
        for node in 0..self.nodes.len() {
            let Some(rows) = sessions.get(node).and_then(|control| self.listed_nodes(control)) else {
                continue;
            };
            let Some(own) = rows.iter().find(|row| row.is_true(6) && row.get(8).is_none()) else { continue };
            let here = &self.nodes[entry].spec;
            let port = own.get(3).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
            if !self.nodes_at(entry, own.get(2), port, own.get(4).unwrap_or(&here.dbname)).is_empty() {
                continue;
            }
            if let Ok(way) = beside(here, own.get(2), own.get(3), own.get(4)) {
                self.nodes[node].is_known_at(way);
            }
        }
        self
    }
}

/// An address as `also` of a cluster file has it.
fn address_of(way: &ConnSpec) -> String {
    let host = way.hosts.first();
    let port = host.map_or(PORT_DEFAULT, |host| host.port);
    let host = host.map(|host| host.host.to_string()).unwrap_or_default();
    format!("host={host} port={port} dbname={}", way.dbname)
}

/// The node that has a session of this name.
fn with_session(mark: &str, sessions: &mut Sessions) -> Option<usize> {
    let question = format!(
        "select exists (select from pg_catalog.pg_stat_activity a
         where a.application_name = '{mark}' and a.datname = pg_catalog.current_database())"
    );
    let has_it = |control: Option<&mut Control>| {
        let rows = catalog::rows(&mut **control?, &question).ok()?;
        Some(rows.first()?.is_true(0))
    };
    let all = sessions.iter_mut().enumerate();
    let found: Vec<usize> = all.filter_map(|(node, control)| has_it(control)?.then_some(node)).collect();
    match found[..] {
        [only] => Some(only),
        _ => None,
    }
}
