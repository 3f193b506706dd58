//! Where the target is. The rules are libpq's and live in `connect::conninfo`.

use crate::context::Context;
use crate::failure::Failure;
use connect::cluster_file::{ClusterFile, ClusterFileError};
use connect::conninfo::{self, Pinned, Request, Resolved, Sources};
use connect::{ConnSpec, ConnectError};
use engines::{Absent, Cluster, ClusterError, Engine, Survey};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pause before a node that is away is tried again.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// Where the target is: a connection by libpq's rules, or the nodes of a cluster file. No server has been queried yet.
#[derive(Clone, Debug)]
pub enum Address {
    /// A connection; it may name several hosts, as for libpq.
    Connection(Box<Resolved>),
    /// The nodes of a cluster file.
    File(Box<FileAddress>),
}

/// The nodes of a cluster file, and what is added to each node's connection.
#[derive(Clone, Debug)]
pub struct FileAddress {
    /// Where the file is.
    pub path: PathBuf,
    /// Its text.
    pub file: ClusterFile,
    /// User name in place of the file's.
    pub user: Option<String>,
    /// Database in place of the file's.
    pub dbname: Option<String>,
}

impl From<ConnSpec> for Address {
    fn from(spec: ConnSpec) -> Address {
        Address::Connection(Box::new(Resolved { spec, warnings: Vec::new() }))
    }
}

/// The console of a pooler, from a connection string: its database has always the same name. All else that it does not have comes from the environment and the
/// files of libpq, as for any connection.
///
/// # Errors
/// When the text is no connection string.
pub fn console(text: &str, context: &Context) -> Result<ConnSpec, Failure> {
    if !conninfo::is_string(text) {
        return Err(Failure::usage(format!("--pooler is not a connection string: {text}"))
            .hint("name host, port and role of its console: --pooler 'host=... port=... user=...'"));
    }
    let resolved =
        conninfo::resolve_to(&Request::target(text), watch::pooler::CONSOLE, &Sources::of_process())?;
    for warning in &resolved.warnings {
        context.terminal.warn(warning);
    }
    Ok(resolved.spec)
}

/// A cluster file, after its nodes were found to be what it names. Warnings name what is odd about it.
fn checked(cluster: Cluster, context: &Context) -> Result<Cluster, ClusterError> {
    let (cluster, odd) = cluster.checked()?;
    odd.iter().for_each(|words| context.terminal.warn(words));
    Ok(cluster)
}

/// The cluster of a file with the primary that it has now. Warnings name the nodes that are the same server as another one.
pub(crate) fn followed(cluster: Cluster, context: &Context) -> Cluster {
    let cluster = cluster.following_primary();
    for Absent { why, hint, .. } in &cluster.left_out {
        context.terminal.warn(&format!("{why}; {hint}"));
    }
    cluster
}

impl Address {
    /// The address of a simulation, which has no target.
    pub fn nowhere() -> Address {
        ConnSpec::new("nowhere", 1, "nobody", "nothing").into()
    }

    /// The connection that a request describes, with the environment and the files of libpq.
    ///
    /// # Errors
    /// When an option of the connection is wrong or contradicts another.
    pub fn resolve(request: &Request) -> Result<Address, Failure> {
        Ok(Address::Connection(Box::new(conninfo::resolve(request, &Sources::of_process())?)))
    }

    /// The nodes of the cluster file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_file(path: &Path, user: Option<String>, dbname: Option<String>) -> Result<Address, Failure> {
        let file = ClusterFile::read(path).map_err(|error| {
            Failure::from(error)
                .or_hint("name the file that pgfathom up has written: cluster.toml in the cluster's folder")
        })?;
        Ok(Address::File(Box::new(FileAddress { path: path.to_owned(), file, user, dbname })))
    }

    /// The one connection: of a cluster file, its first node. Warnings of the resolver go to the terminal.
    ///
    /// # Errors
    /// When the file's connection is wrong.
    pub fn spec(&self, context: &Context) -> Result<ConnSpec, Failure> {
        let resolved = match self {
            Address::File(file) => file.entry()?,
            Address::Connection(resolved) => (**resolved).clone(),
        };
        for warning in &resolved.warnings {
            context.terminal.warn(warning);
        }
        Ok(resolved.spec)
    }

    /// The same; of a cluster file the first node that answers as a part of the cluster, where any will do. A warning names the one that does not.
    ///
    /// # Errors
    /// As [`Address::spec`].
    pub(crate) fn online_spec(&self, context: &Context) -> Result<ConnSpec, Failure> {
        let first = self.spec(context)?;
        let Some(cluster) = self.checked_cluster_of_file(context)? else { return Ok(first) };
        Ok(entry_of(cluster.entered_where_possible(), context).unwrap_or(first))
    }

    /// The same for sessions that read and write at one node, where every node has all rows.
    ///
    /// # Errors
    /// As [`Address::spec`].
    pub(crate) fn spec_of_any_copy(&self, context: &Context) -> Result<ConnSpec, Failure> {
        let first = self.spec(context)?;
        let Some(cluster) = self.checked_cluster_of_file(context)? else { return Ok(first) };
        Ok(entry_of(cluster.entered_at_any_copy(), context).unwrap_or(first))
    }

    /// All nodes: those of the cluster file, in its order but with the primary first, whichever standby that is by now; or those that the catalog
    /// of the target names, after querying it. The target comes first.
    ///
    /// # Errors
    /// As [`Address::spec`]; also when a node that the catalog names cannot be reached.
    pub fn cluster(&self, context: &Context) -> Result<Cluster, Failure> {
        self.cluster_within(context, Duration::ZERO)
    }

    /// The same; a node that the catalog names and that is away is waited for until the limit.
    ///
    /// # Errors
    /// As [`Address::cluster`].
    pub(crate) fn cluster_within(&self, context: &Context, limit: Duration) -> Result<Cluster, Failure> {
        match self.cluster_of_file()? {
            Some(cluster) => Ok(completed(checked(cluster, context)?, context)),
            None => {
                let cluster = discovered(&self.spec(context)?, context, limit)?;
                cluster.check_nodes()?;
                for Absent { why, hint, .. } in &cluster.left_out {
                    context.terminal.warn(&format!("{why}; {hint}"));
                }
                if let Some(place) = worker_of(&cluster) {
                    context.terminal.say(&format!("{place}; pgfathom creates and reads its tables there"));
                }
                Ok(cluster)
            }
        }
    }

    /// The same for the comparison of a cluster with its engine, which may be another one than the cluster file names.
    ///
    /// # Errors
    /// As [`Address::cluster`].
    pub(crate) fn cluster_of_any_engine(&self, context: &Context) -> Result<Cluster, Failure> {
        let Some(cluster) = self.cluster_of_file()? else { return self.cluster(context) };
        cluster.check_distinct()?;
        cluster.check_nodes_of_any_engine()?;
        Ok(completed(cluster.with_found_coordinator(), context))
    }

    /// The same for a verb that only reads: a node that cannot be reached is reported, and is no error.
    ///
    /// # Errors
    /// As [`Address::spec`]; also when no node answers, or the cluster file is wrong.
    pub fn survey(&self, context: &Context) -> Result<Survey, Failure> {
        match self.checked_cluster_of_file(context)? {
            Some(cluster) => Ok(Survey { cluster: followed(cluster, context), absent: vec![] }),
            None => Ok(Cluster::survey(&self.spec(context)?)?),
        }
    }

    /// The same for a verb that can begin without the server: where one is there and takes no session now, it alone, and why. A cluster file that names
    /// another engine is a warning, as what the servers do is recorded all the same.
    ///
    /// # Errors
    /// As [`Address::survey`], for other reasons.
    pub(crate) fn survey_or_alone(
        &self,
        context: &Context,
    ) -> Result<(Survey, Option<ConnectError>), Failure> {
        if let Some(cluster) = self.cluster_of_file()? {
            if let Err(error) = cluster.check_nodes() {
                let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                context.terminal.warn(&format!("{error}{hint}"));
            }
            return Ok((Survey { cluster: followed(cluster, context), absent: vec![] }, None));
        }
        let spec = self.spec(context)?;
        match Cluster::survey(&spec) {
            Ok(survey) => Ok((survey, None)),
            Err(ClusterError::Entry(error)) if error.is_in_trouble() => {
                Ok((Survey { cluster: Cluster::single(spec), absent: vec![] }, Some(error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The nodes of the cluster file, where one is named.
    ///
    /// # Errors
    /// When the file is wrong.
    pub(crate) fn cluster_of_file(&self) -> Result<Option<Cluster>, Failure> {
        let Address::File(address) = self else { return Ok(None) };
        let mut cluster = Cluster::from_file(&address.file, &Sources::of_process())
            .map_err(|error| Failure::from(error).context(format!("{} is wrong", address.path.display())))?;
        for node in &mut cluster.nodes {
            node.spec = address.adapted(node.spec.clone());
        }
        Ok(Some(cluster))
    }

    /// The same, after its nodes were found to be what it names.
    ///
    /// # Errors
    /// When the file is wrong.
    fn checked_cluster_of_file(&self, context: &Context) -> Result<Option<Cluster>, Failure> {
        Ok(self.cluster_of_file()?.map(|cluster| checked(cluster, context)).transpose()?)
    }

    /// What came of work on this target, with hints that its engine can follow. An engine that cannot be loaded is known by a cluster file only.
    pub(crate) fn explained<T>(&self, worked: Result<T, Failure>) -> Result<T, Failure> {
        let engine = self.file().and_then(|named| Engine::parse(&named.file.engine));
        worked.map_err(|failure| match engine {
            Some(engine) => failure.about(engine),
            None => failure,
        })
    }

    /// The cluster file, where one is named.
    pub fn file(&self) -> Option<&FileAddress> {
        match self {
            Address::File(file) => Some(file),
            Address::Connection(_) => None,
        }
    }
}

/// The cluster by the catalog of this server. As long as a node that the catalog names cannot be reached it is tried again, until the limit.
fn discovered(spec: &ConnSpec, context: &Context, limit: Duration) -> Result<Cluster, Failure> {
    let (begin, stop) = (Instant::now(), context.stop.flag());
    let mut is_reported = false;
    loop {
        let error = match Cluster::discover(spec) {
            Err(error @ ClusterError::Connect { .. })
                if error.is_node_down() && begin.elapsed() < limit && !stop.load(Ordering::Relaxed) =>
            {
                error
            }
            Err(error) if stop.load(Ordering::Relaxed) => {
                return Err(Failure::from(error).interrupted());
            }
            found => return Ok(found?),
        };
        if !is_reported {
            context.terminal.say(&format!("{error}: waiting for it, up to {} s", limit.as_secs()));
            is_reported = true;
        }
        std::thread::sleep(AWAY_PAUSE);
    }
}

/// The cluster of a file, with what its servers show and the file does not.
fn completed(cluster: Cluster, context: &Context) -> Cluster {
    entered(followed(cluster, context).with_closed_nodes().with_replication(), context)
}

/// The cluster by a node that answers, if any node will do; the one that does not is reported.
fn entered(cluster: Cluster, context: &Context) -> Cluster {
    let (cluster, away) = cluster.entered_where_possible();
    away.iter().for_each(|away| warn_of_away(&cluster, away, context));
    cluster
}

/// The connection to the node that is entered in the place of the first one, if that is away.
fn entry_of((cluster, away): (Cluster, Option<(String, String)>), context: &Context) -> Option<ConnSpec> {
    warn_of_away(&cluster, away.as_ref()?, context);
    Some(cluster.nodes[cluster.entry_node()].spec.clone())
}

fn warn_of_away(cluster: &Cluster, (name, why): &(String, String), context: &Context) {
    let instead = &cluster.nodes[0].name;
    context.terminal.warn(&format!("{name} is no entry now ({why}); {instead} is used instead"));
}

/// That the target is a worker, and where the coordinator of its cluster is; `None` for every other target.
pub(crate) fn worker_of(cluster: &Cluster) -> Option<String> {
    let coordinator = cluster.coordinator_elsewhere()?;
    let at = coordinator.spec.hosts.first();
    let at = at.map_or_else(|| coordinator.name.clone(), |at| format!("{}:{}", at.host, at.port));
    Some(format!("this server is a worker of a cluster whose coordinator is {at}"))
}

impl FileAddress {
    /// The folder of the cluster, which is also named by it.
    pub(crate) fn folder(&self) -> &Path {
        match self.path.is_dir() {
            true => self.path.as_path(),
            false => self.path.parent().unwrap_or(Path::new(".")),
        }
    }

    /// The connection to the first node.
    fn entry(&self) -> Result<Resolved, Failure> {
        let path = self.path.display();
        let mut resolved = self.file.entry(&Sources::of_process()).map_err(|error| match error {
            ClusterFileError::NodeConnection { node, source } => {
                Failure::from(source).context(format!("{path}: node {node:?} has an invalid connection"))
            }
            error => Failure::from(error).context(format!("{path} is wrong")),
        })?;
        resolved.spec = self.adapted(resolved.spec);
        Ok(resolved)
    }

    fn adapted(&self, mut spec: ConnSpec) -> ConnSpec {
        if let Some(user) = &self.user {
            spec = spec.with_user(user);
        }
        if let Some(dbname) = &self.dbname {
            spec = spec.with_dbname(dbname);
        }
        spec
    }
}

/// The relation that a name without a schema means to the user, with its schema; the name itself where there is none, for the server to refuse.
///
/// # Errors
/// When the target cannot be reached.
pub(crate) fn users_relation(spec: &ConnSpec, name: &str) -> Result<String, Failure> {
    let mut control = connect::control::connect_shared(&spec.clone().with_pinned(Pinned::Nothing))?;
    // Only the name in question is looked up along the user's search path.
    let sql = "select (pg_catalog.pg_identify_object('pg_catalog.pg_class'::pg_catalog.regclass, \
               pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid, 0)).identity";
    let row = control
        .query_one(sql, &[&name])
        .map_err(|error| Failure::caused(format!("cannot look up {name}"), error))?;
    Ok(row.get::<_, Option<String>>(0).unwrap_or_else(|| name.to_string()))
}
