//! How a server stands to the engines: which one its database belongs to, and whether it belongs to the one that was named.

use super::discover::{self, Reach};
use super::{Cluster, ClusterError};
use crate::catalog::{self, TextRow};
use crate::engine::{Engine, Signs, signs};
use crate::profile::Discovery;

use connect::control::Control;

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

    /// Checks that the database of the first node, to which `control` is a connection, is part of the engine that a cluster file names.
    ///
    /// # Errors
    /// [`ClusterError::NotTheEngine`] if it is not; those of [`Cluster::engine_of`].
    pub fn check_engine(&self, control: &mut Control) -> Result<(), ClusterError> {
        let is_of_it = |sign: &Signs| sign.engine == self.engine;
        if !signs().iter().any(is_of_it) || discover::detect(control)?.iter().any(is_of_it) {
            return Ok(());
        }
        let node = &self.nodes[0];
        Err(ClusterError::NotTheEngine {
            engine: self.engine.name(),
            title: self.engine.title,
            node: node.name.clone(),
            dbname: node.spec.dbname.clone(),
        })
    }

    /// The addresses of nodes that the engine's catalog has and this cluster does not, as after a node was added. Empty as well where the catalog cannot be
    /// read, or where it has no more nodes than this cluster: then it may only know them by other addresses.
    pub fn unlisted_nodes(&self, control: &mut Control) -> Vec<String> {
        let Discovery::Catalog(known) = self.engine.discovery else { return Vec::new() };
        let Ok(rows) = catalog::rows(&mut **control, known.nodes) else { return Vec::new() };
        if rows.len() <= self.nodes.len() {
            return Vec::new();
        }
        let dbname = &self.nodes[0].spec.dbname;
        let address = |row: &TextRow| {
            let (host, port) = (row.get(2)?, row.get(3)?.parse().ok()?);
            let is_listed = self.node_at(0, Some(host), port, row.get(4).unwrap_or(dbname)).is_some();
            (!is_listed).then(|| format!("{host}:{port}"))
        };
        rows.iter().filter_map(address).collect()
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

/// The names in a value of `shared_preload_libraries`, without their folders and quotes.
fn libraries(setting: &str) -> Vec<String> {
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
