//! From the connection flags to what the libraries connect to. The rules are libpq's and live in `target::conninfo`.

use crate::cli::Connection;
use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;
use target::ConnSpec;
use target::conninfo::{self, Request, Resolved, Sources};
use target::local::ClusterFile;

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

    fn resolve_cluster(&self, path: &Path) -> Result<Resolved, Failure> {
        let file = ClusterFile::read(path).map_err(|error| {
            Failure::from(error)
                .or_hint("name the file that pgfathom up has written, cluster.toml in the cluster's folder")
        })?;
        let node =
            file.node.first().ok_or_else(|| Failure::usage(format!("{} names no node", path.display())))?;
        let mut resolved = node.resolve(&Sources::of_process()).map_err(|error| {
            Failure::from(error).context(format!(
                "{}: node {:?}: its connection is wrong",
                path.display(),
                node.name
            ))
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
