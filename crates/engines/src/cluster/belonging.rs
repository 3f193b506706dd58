//! Whether the servers of a cluster file are what the file names: databases of its engine, and nodes of one cluster.
//!
//! Behind a proxy a file is the only way to name the nodes of some engines. So a server is refused only if the engine's own signs are missing, or if its
//! database is one of another engine. An engine without signs is believed otherwise, and so is a node that does not answer.

use super::discover;
use super::identity;
use super::sessions::Sessions;
use super::survey;
use super::{Cluster, ClusterError, ClusterNode, Role};
use crate::catalog::{self, TextRow};
use crate::engine::{Signs, signs};
use crate::profile::{Copies, Ddl, Discovery, Layout};
use connect::control::Control;

/// A node that has answered.
struct Seen<'a> {
    node: &'a ClusterNode,
    control: &'a mut Control,
    /// The nodes by its catalog; `None` where it has none, or this role may not read it.
    rows: Option<Vec<TextRow>>,
}

impl Cluster {
    /// Checks that the nodes of a cluster file are part of the engine that it names, and of one cluster. A node that does not answer at once, or refuses a
    /// question, is left out: the step that needs it reports that.
    ///
    /// # Errors
    /// [`ClusterError::NotTheEngine`], [`ClusterError::AnotherEngine`], [`ClusterError::NoOthers`], [`ClusterError::OtherCluster`],
    /// [`ClusterError::NotItsStandby`], [`ClusterError::TwoPrimaries`]; [`ClusterError::Sql`] where a role may not see whether it is another engine.
    pub fn check_nodes(&self) -> Result<(), ClusterError> {
        let judged = if self.reaches_each_node() { self.nodes.len() } else { 1 };
        self.check_nodes_at(&mut Sessions::at(&self.nodes[..judged]))
    }

    fn check_nodes_at(&self, sessions: &mut Sessions) -> Result<(), ClusterError> {
        let mut seen: Vec<Seen<'_>> = Vec::new();
        for ((index, node), control) in self.nodes.iter().enumerate().zip(sessions.iter_mut()) {
            let Some(control) = control else { continue };
            self.check_engine_of(index, control)?;
            let rows = self.listed_nodes(control);
            if seen.is_empty() {
                self.check_others(node, rows.as_deref())?;
            }
            seen.push(Seen { node, control, rows });
        }
        self.check_one_cluster(&seen)?;
        self.check_standbys(&mut seen)?;
        self.check_primaries(&mut seen)
    }

    /// A cluster file, after its nodes were found to be what it names: as many servers, of one cluster of its engine, with the roles and all addresses that
    /// they have there. Also what is odd about it all the same.
    ///
    /// # Errors
    /// As [`Cluster::check_nodes`] and [`Cluster::check_distinct`]; [`ClusterError::NoCoordinator`], [`ClusterError::ForeignNode`].
    pub fn checked(self) -> Result<(Cluster, Vec<String>), ClusterError> {
        let judged = if self.reaches_each_node() { self.nodes.len() } else { 1 };
        let mut sessions = Sessions::at(&self.nodes[..judged]);
        self.check_distinct_at(&mut sessions)?;
        self.check_nodes_at(&mut sessions)?;
        let odd = self.apart(&mut sessions).into_iter().chain(self.silent(&mut sessions)).collect();
        let cluster = self
            .with_coordinator(&mut sessions)?
            .with_listed_addresses(&mut sessions)
            .with_foreign_addresses(&mut sessions)?;
        Ok((cluster, odd))
    }

    /// The same for those who compare a cluster with an engine that it may not be: the engine of the first node is not judged.
    ///
    /// # Errors
    /// As [`Cluster::check_nodes`], for reasons that are not the engine of the first node.
    pub fn check_nodes_of_any_engine(&self) -> Result<(), ClusterError> {
        let is_first = |node: &str| self.nodes.first().is_some_and(|first| first.name == node);
        match self.check_nodes() {
            Err(ClusterError::NotTheEngine { node, .. } | ClusterError::AnotherEngine { node, .. })
                if is_first(&node) =>
            {
                Ok(())
            }
            Err(ClusterError::NoOthers { .. }) => Ok(()),
            checked => checked,
        }
    }

    /// Whether every node takes ordinary sessions.
    pub(super) fn reaches_each_node(&self) -> bool {
        match self.engine.discovery {
            Discovery::Catalog(known) => known.reach_nodes,
            Discovery::Copies(_) | Discovery::Native | Discovery::None(_) => true,
        }
    }

    fn check_engine_of(&self, index: usize, control: &mut Control) -> Result<(), ClusterError> {
        let node = &self.nodes[index];
        let (engine, title) = (self.engine.name(), self.engine.title);
        let (name, dbname) = (node.name.clone(), node.spec.dbname.clone());
        let own: Vec<Signs> = signs().into_iter().filter(|sign| sign.engine == self.engine).collect();
        if !own.is_empty() {
            let columns: Vec<&str> = own.iter().map(|sign| sign.sql).collect();
            let rows = catalog::rows(&mut **control, &format!("select {}", columns.join(", ")));
            let row = rows.ok().and_then(|rows| rows.into_iter().next());
            let is_missing = row.is_some_and(|row| (0..own.len()).all(|column| !row.is_true(column)));
            return match is_missing {
                true => Err(ClusterError::NotTheEngine { engine, title, node: name, dbname }),
                false => Ok(()),
            };
        }
        match self.another_engine(index, control)? {
            None => Ok(()),
            Some(found) => Err(ClusterError::AnotherEngine {
                engine,
                title,
                node: name,
                dbname,
                found: found.title,
                word: found.name(),
            }),
        }
    }

    /// Checks that a node has others in its catalog, if the file names several.
    fn check_others(&self, node: &ClusterNode, rows: Option<&[TextRow]>) -> Result<(), ClusterError> {
        let lists_all = match self.engine.discovery {
            Discovery::Catalog(known) => known.reach_nodes,
            // Nodes that are filled one by one may replicate only afterwards.
            _ => matches!(self.engine.layout, Layout::Copies(Copies { ddl: Ddl::Replicated, .. })),
        };
        match rows {
            Some(rows) if lists_all && self.nodes.len() > 1 && rows.len() < 2 => {
                Err(ClusterError::NoOthers {
                    title: self.engine.title,
                    node: node.name.clone(),
                    dbname: node.spec.dbname.clone(),
                    named: self.nodes.len(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the catalogs of all nodes are connected: of two that name no node in common, a third may name nodes of both.
    fn check_one_cluster(&self, seen: &[Seen<'_>]) -> Result<(), ClusterError> {
        let names = |seen: &Seen<'_>| seen.rows.as_deref().map(|rows| self.names(rows)).unwrap_or_default();
        // A catalog that names no node belongs to a node without others, or this role may not read it.
        let mut apart: Vec<(&str, Vec<String>)> =
            seen.iter().map(|seen| (seen.node.name.as_str(), names(seen))).collect();
        apart.retain(|(_, names)| !names.is_empty());
        if apart.is_empty() {
            return Ok(());
        }
        let (first, here) = apart.remove(0);
        let mut known = here.clone();
        while let Some(at) = apart.iter().position(|(_, names)| names.iter().any(|name| known.contains(name)))
        {
            known.extend(apart.remove(at).1);
        }
        match apart.into_iter().next() {
            None => Ok(()),
            Some((node, there)) => Err(ClusterError::OtherCluster {
                node: node.to_owned(),
                first: first.to_owned(),
                there,
                here,
            }),
        }
    }

    /// What all nodes of a cluster call its nodes: their addresses, or the engine's own names where each node may know another address.
    fn names(&self, rows: &[TextRow]) -> Vec<String> {
        let key = |row: &TextRow| row.get(0).map(str::to_owned);
        let at = |row: &TextRow| Some(format!("{}:{}", row.get(2)?, row.get(3)?));
        let place = |row: &TextRow| match row.get(8) {
            None => at(row),
            Some(conninfo) => {
                let found = discover::along(&self.nodes[0].spec, conninfo).ok()?;
                found.hosts.first().map(ToString::to_string)
            }
        };
        match self.engine.discovery {
            Discovery::Copies(_) if self.engine.layout.publishes() => rows.iter().filter_map(key).collect(),
            Discovery::Copies(_) | Discovery::Catalog(_) => rows.iter().filter_map(place).collect(),
            Discovery::Native | Discovery::None(_) => vec![],
        }
    }

    /// Checks that each standby is a copy of a node that takes writes.
    fn check_standbys(&self, seen: &mut [Seen<'_>]) -> Result<(), ClusterError> {
        let is_standby = |node: &ClusterNode| node.role == Role::Standby;
        let takes_writes = self.nodes.iter().filter(|node| !is_standby(node)).count();
        let mut systems: Vec<(&ClusterNode, String)> = Vec::with_capacity(seen.len());
        for Seen { node, control, .. } in seen.iter_mut().filter(|_| takes_writes < self.nodes.len()) {
            let row = identity::identity(control).ok().flatten();
            systems.extend(row.and_then(|row| Some((*node, row.get(0)?.to_owned()))));
        }
        let (standbys, others): (Vec<_>, Vec<_>) =
            systems.into_iter().partition(|(node, _)| is_standby(node));
        let is_stray =
            |(_, system): &&(&ClusterNode, String)| others.iter().all(|(_, other)| other != system);
        match (others.first(), standbys.iter().find(is_stray)) {
            (Some((first, _)), Some((standby, _))) if others.len() == takes_writes => {
                Err(ClusterError::NotItsStandby { node: standby.name.clone(), first: first.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that of a server and its copies one takes writes, at most. Two names of one server are one.
    fn check_primaries(&self, seen: &mut [Seen<'_>]) -> Result<(), ClusterError> {
        if self.engine.layout != Layout::OneServer || self.nodes.len() < 2 {
            return Ok(());
        }
        let mut primaries: Vec<(&ClusterNode, TextRow)> = Vec::new();
        for Seen { node, control, .. } in seen.iter_mut() {
            let Some(found) = survey::server(control).filter(|found| !survey::is_standby(Some(found))) else {
                continue;
            };
            let is_copy = |other: &TextRow| other.get(0) == found.get(0) && *other != found;
            if let Some((first, _)) = primaries.iter().find(|(_, other)| is_copy(other)) {
                let (first, second) = (first.name.clone(), node.name.clone());
                return Err(ClusterError::TwoPrimaries { first, second });
            }
            primaries.push((*node, found));
        }
        Ok(())
    }
}
