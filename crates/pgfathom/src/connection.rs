//! From the connection flags to what the libraries connect to. The rules are libpq's and live in `target::conninfo`.

use crate::cli::Connection;
use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;
use target::conninfo::{self, Pinned, Request, Resolved, Sources};
use target::local::{ClusterFile, LocalError};
use target::{Absent, Cluster, ConnSpec, Survey};

impl Connection {
    /// What the flags, the environment and the files of libpq say; warnings of the resolver go to the terminal.
    ///
    /// # Errors
    /// When something said about the connection is wrong or contradicts itself.
    pub fn resolve(&self, context: &Context) -> Result<ConnSpec, Failure> {
        let resolved = match &self.cluster {
            Some(file) => self.resolve_cluster(file)?,
            None => {
                let request = Request {
                    host: self.host.clone(),
                    port: self.port.clone(),
                    user: self.username.clone(),
                    dbname: self.dbname.clone(),
                    target: self.target.clone(),
                };
                conninfo::resolve(&request, &Sources::of_process())?
            }
        };
        for warning in &resolved.warnings {
            context.terminal.warn(warning);
        }
        Ok(resolved.spec)
    }

    /// All nodes: those of the cluster file, in its order but with the primary first, whichever standby that is by now; or those that the catalog of the target names, after asking it. The target
    /// comes first.
    ///
    /// # Errors
    /// As [`Connection::resolve`]; also when a node that the catalog names cannot be reached.
    pub fn resolve_cluster_of(&self, context: &Context) -> Result<Cluster, Failure> {
        match self.cluster_of_file()? {
            Some(cluster) => Ok(cluster.following_primary()),
            None => {
                let cluster = Cluster::discover(&self.resolve(context)?)?;
                for Absent { why, hint, .. } in &cluster.left_out {
                    context.terminal.warn(&format!("{why}; {hint}"));
                }
                Ok(cluster)
            }
        }
    }

    /// The same for whoever looks on: nodes that cannot be reached are told, and never an error.
    ///
    /// # Errors
    /// As [`Connection::resolve`]; also when nobody answers at all, or the cluster file is wrong.
    pub fn survey(&self, context: &Context) -> Result<Survey, Failure> {
        match self.cluster_of_file()? {
            Some(cluster) => Ok(Survey { cluster: cluster.following_primary(), absent: vec![] }),
            None => Ok(Cluster::survey(&self.resolve(context)?)?),
        }
    }

    /// The nodes of the cluster file, where one is named.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn cluster_of_file(&self) -> Result<Option<Cluster>, Failure> {
        let Some(path) = &self.cluster else { return Ok(None) };
        let mut cluster = Cluster::from_file(&read_file(path)?, &Sources::of_process())
            .map_err(|error| Failure::from(error).context(format!("{} is wrong", path.display())))?;
        for node in &mut cluster.nodes {
            if let Some(user) = &self.username {
                node.spec = node.spec.clone().with_user(user);
            }
            if let Some(dbname) = &self.dbname {
                node.spec = node.spec.clone().with_dbname(dbname);
            }
        }
        Ok(Some(cluster))
    }

    fn resolve_cluster(&self, path: &Path) -> Result<Resolved, Failure> {
        let file = read_file(path)?;
        let mut resolved = file.entry(&Sources::of_process()).map_err(|error| match error {
            LocalError::NodeConnection { node, source } => Failure::from(source)
                .context(format!("{}: node {node:?}: its connection is wrong", path.display())),
            error => Failure::from(error).context(format!("{} is wrong", path.display())),
        })?;
        if let Some(user) = &self.username {
            resolved.spec = resolved.spec.with_user(user);
        }
        if let Some(dbname) = &self.dbname {
            resolved.spec = resolved.spec.with_dbname(dbname);
        }
        Ok(resolved)
    }
}

/// The relation that a name without a schema means to the user, with its schema; the name itself where there is none, for the server to refuse.
///
/// # Errors
/// When the target cannot be reached.
pub fn users_relation(spec: &ConnSpec, name: &str) -> Result<String, Failure> {
    let mut control = target::control::connect_shared(&spec.clone().with_pinned(Pinned::Nothing))?;
    // Only the name that is asked about is looked up along the user's search path.
    let sql = "select (pg_catalog.pg_identify_object('pg_catalog.pg_class'::pg_catalog.regclass, \
               pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid, 0)).identity";
    let row = control
        .query_one(sql, &[&name])
        .map_err(|error| Failure::caused(format!("cannot look up {name}"), error))?;
    Ok(row.get::<_, Option<String>>(0).unwrap_or_else(|| name.to_string()))
}

fn read_file(path: &Path) -> Result<ClusterFile, Failure> {
    ClusterFile::read(path).map_err(|error| {
        Failure::from(error)
            .or_hint("name the file that pgfathom up has written, cluster.toml in the cluster's folder")
    })
}
