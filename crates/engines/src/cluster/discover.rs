//! The nodes of a cluster from the catalog of one of them.

use super::identity::{self, identity};
use super::{Absent, Cluster, ClusterError, ClusterNode, Role};
use crate::catalog::{self, TextRow};
use crate::engine::{Engine, Signs, signs};
use crate::profile::{Discovery, Replication};
use crate::trust::{TRUSTED_WORDS, trusted};
use connect::conninfo::{self, ConninfoError, Host, HostSpec, PORT_DEFAULT, Sources};
use connect::control::{self, Control};
use connect::{ConnSpec, Secret};

/// Servers of `postgres_fdw` that hold partitions of this database's tables, or that `pgfathom up` marked as nodes. Each is a node if the
/// session trusts its makers: after name, host, port and database come an owner of the server that it does not trust, whether the server
/// holds partitions of tables of trusted roles, and whether it is marked.
const FDW_SERVERS: &str = concat!(
    "with trusted (oid) as (",
    trusted!(),
    "), partitions as (
        select f.ftserver, c.relowner in (select oid from trusted) and p.relowner in (select oid from trusted) as is_trusted
        from pg_catalog.pg_foreign_table f join pg_catalog.pg_class c on c.oid = f.ftrelid
        join pg_catalog.pg_inherits i on i.inhrelid = c.oid join pg_catalog.pg_class p on p.oid = i.inhparent
        where c.relispartition
    ), servers as (
        select s.*, coalesce(pg_catalog.obj_description(s.oid, 'pg_foreign_server') like 'pgfathom node%', false) as is_marked
        from pg_catalog.pg_foreign_server s
        join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw and w.fdwname = 'postgres_fdw'
    )
    select s.srvname,
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'host'),
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'port'),
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'dbname'),
           case when s.srvowner not in (select oid from trusted) then pg_catalog.pg_get_userbyid(s.srvowner) end,
           exists (select from partitions p where p.ftserver = s.oid and p.is_trusted),
           s.is_marked
    from servers s
    where s.is_marked or exists (select from partitions p where p.ftserver = s.oid)
    order by s.srvname"
);

/// Servers of `postgres_fdw` that are no nodes by [`FDW_SERVERS`]: their names and addresses.
const OTHER_SERVERS: &str = "
    select s.srvname, pg_catalog.array_to_string(array(
               select o.option_value from pg_catalog.pg_options_to_table(s.srvoptions) o
               where o.option_name in ('host', 'port') order by o.option_name), ':')
    from pg_catalog.pg_foreign_server s
    join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw and w.fdwname = 'postgres_fdw'
    where coalesce(pg_catalog.obj_description(s.oid, 'pg_foreign_server') not like 'pgfathom node%', true)
      and not exists (select from pg_catalog.pg_foreign_table f join pg_catalog.pg_class c on c.oid = f.ftrelid
                      where f.ftserver = s.oid and c.relispartition)
    order by s.srvname";

/// Whether a partition is a table of this server, beside one that is a foreign table.
const HELD: &str = "
    select exists (select 1 from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid \
                   where c.relispartition and c.relkind = 'r' \
                     and i.inhparent in (select j.inhparent from pg_catalog.pg_inherits j \
                                         join pg_catalog.pg_foreign_table f on f.ftrelid = j.inhrelid))";

/// How to handle a node of the catalog that does not answer.
pub(super) enum Reach<'a> {
    /// It is an error: the caller needs all nodes. Nodes left out because they are not trusted are noted here.
    Demanded(&'a mut Vec<Absent>),
    /// It is kept and noted: the caller works with the nodes that answer.
    Noted(&'a mut Vec<Absent>),
}

impl Reach<'_> {
    /// Connects to a node; `None` if it does not answer and that was noted.
    fn connect(&mut self, entry: &str, node: &ClusterNode) -> Result<Option<Control>, ClusterError> {
        let address = || node.spec.hosts.first().map(ToString::to_string).unwrap_or_default();
        match (control::connect_shared(&node.spec), self) {
            (Ok(control), _) => Ok(Some(control)),
            (Err(source), Reach::Demanded(_)) => Err(ClusterError::Connect {
                entry: entry.to_owned(),
                node: node.name.clone(),
                address: address(),
                source,
            }),
            (Err(source), Reach::Noted(absent)) => {
                absent.push(Absent {
                    name: node.name.clone(),
                    why: format!("the catalog of {entry} gives {} as its address: {source}", address()),
                    hint: FILE_HINT.to_owned(),
                });
                Ok(None)
            }
        }
    }

    /// Notes objects that are ignored because roles that the session does not trust made them.
    fn leave_out(&mut self, name: String, why: String) {
        let (Reach::Demanded(absent) | Reach::Noted(absent)) = self;
        let hint = format!("if it is a node, name all nodes in a cluster file (--cluster); {TRUSTED_WORDS}");
        absent.push(Absent { name, why, hint });
    }

    /// Returns an error about a node, or notes it.
    fn note(&mut self, node: &str, error: ClusterError) -> Result<(), ClusterError> {
        match self {
            Reach::Demanded(_) => Err(error),
            Reach::Noted(absent) => {
                let hint = error.hint().unwrap_or_else(|| FILE_HINT.to_owned());
                absent.push(Absent { name: node.to_owned(), why: error.to_string(), hint });
                Ok(())
            }
        }
    }
}

/// The hint for addresses in a catalog that are not reachable from here.
const FILE_HINT: &str =
    "write a cluster file with its address as this host reaches it, and name it with --cluster";

pub(super) fn discover(
    control: &mut Control,
    here: ConnSpec,
    reach: &mut Reach<'_>,
) -> Result<Cluster, ClusterError> {
    let cluster = by_catalog(control, here.clone(), reach)?;
    if cluster.needs_one_entry() && identity::is_balanced(control, &here) {
        let error = ClusterError::Balanced { address: here.describe() };
        reach.note(&cluster.nodes[0].name, error)?;
    }
    Ok(cluster)
}

fn by_catalog(control: &mut Control, here: ConnSpec, reach: &mut Reach<'_>) -> Result<Cluster, ClusterError> {
    let found = detect(control)?;
    let owns_catalog = |sign: &Signs| sign.replication.is_none();
    if let Some(Signs { engine, .. }) = found.iter().find(|sign| owns_catalog(sign)) {
        return match &engine.discovery {
            Discovery::Catalog(catalog) => {
                let listing = Listing {
                    nodes: catalog.nodes,
                    coordinator: catalog.coordinator,
                    reach_nodes: catalog.reach_nodes,
                };
                catalogued(control, here, *engine, listing, reach)
            }
            _ => Ok(Cluster { engine: *engine, ..Cluster::single(here) }),
        };
    }
    for Signs { engine, replication, .. } in found {
        let Some(replication) = replication else { continue };
        if !is_in_use(control, engine, replication, reach)? {
            continue;
        }
        let listing = Listing { nodes: replication.nodes, coordinator: None, reach_nodes: true };
        let engine = engine.replicated_by(replication);
        let cluster = catalogued(control, here.clone(), engine, listing, reach)?;
        // An installed extension that replicates nothing does not make a cluster.
        if cluster.nodes.len() > 1 {
            return Ok(cluster);
        }
    }
    postgres(control, here, reach)
}

/// The engine of a server by its own catalog; see [`discover`] for the order.
pub(super) fn engine(control: &mut Control, reach: &mut Reach<'_>) -> Result<Engine, ClusterError> {
    let found = detect(control)?;
    if let Some(sign) = found.iter().find(|sign| sign.replication.is_none()) {
        return Ok(sign.engine);
    }
    for Signs { engine, replication, .. } in found {
        let Some(replication) = replication else { continue };
        if is_in_use(control, engine, replication, reach)?
            && nodes_listed(control, engine, replication.nodes)?.len() > 1
        {
            return Ok(engine.replicated_by(replication));
        }
    }
    let is_sharded = foreign_servers(control)?.iter().any(is_node);
    Ok(if is_sharded { Engine::FOREIGN_PARTITIONS } else { Engine::default() })
}

/// Whether an installed replication system is in use, as far as trusted roles have configured it.
fn is_in_use(
    control: &mut Control,
    engine: Engine,
    replication: &Replication,
    reach: &mut Reach<'_>,
) -> Result<bool, ClusterError> {
    let Some(probe) = replication.probe else { return Ok(true) };
    let rows = catalog::rows(&mut **control, probe).map_err(|source| ClusterError::Sql {
        what: format!("look for {}", replication.name),
        engine: Some(engine),
        source,
    })?;
    if let Some(theirs) = rows.first().and_then(|row| row.get(1)) {
        let why =
            format!("subscriptions that this session does not trust are not used to find nodes: {theirs}");
        reach.leave_out(replication.name.to_owned(), why);
    }
    Ok(rows.first().is_some_and(|row| row.is_true(0)))
}

/// The engines and systems that a server's catalog indicates.
pub(super) fn detect(control: &mut Control) -> Result<Vec<Signs>, ClusterError> {
    let what = "find out what kind of server this is";
    let signs = signs();
    let columns: Vec<&str> = signs.iter().map(|sign| sign.sql).collect();
    let rows = catalog::rows(&mut **control, &format!("select {}", columns.join(", ")))
        .map_err(|source| ClusterError::Sql { what: what.to_owned(), engine: None, source })?;
    let row = rows.first().ok_or_else(|| ClusterError::Catalog {
        what: what.to_owned(),
        problem: "it gave no reply".to_owned(),
    })?;
    let there = signs.into_iter().enumerate().filter(|(column, _)| row.is_true(*column));
    Ok(there.map(|(_, sign)| sign).collect())
}

/// The rows of [`FDW_SERVERS`].
pub(super) fn foreign_servers(control: &mut Control) -> Result<Vec<TextRow>, ClusterError> {
    catalog::rows(&mut **control, FDW_SERVERS).map_err(|source| ClusterError::Sql {
        what: "list the foreign servers".to_owned(),
        engine: Some(Engine::FOREIGN_PARTITIONS),
        source,
    })
}

/// The servers of `postgres_fdw` that hold no partitions, as `name (address)`; none if they cannot be read.
pub(super) fn servers_without_partitions(control: &mut Control) -> Vec<String> {
    let name = |row: &TextRow| {
        let name = row.get(0).unwrap_or_default().replace(char::is_control, " ");
        match row.get(1).unwrap_or_default() {
            "" => name,
            address => format!("{name} ({})", address.replace(char::is_control, " ")),
        }
    };
    catalog::rows(&mut **control, OTHER_SERVERS).unwrap_or_default().iter().map(name).collect()
}

/// The rows of [`crate::profile::Catalog::nodes`].
fn nodes_listed(control: &mut Control, engine: Engine, sql: &str) -> Result<Vec<TextRow>, ClusterError> {
    catalog::rows(&mut **control, sql).map_err(|source| ClusterError::Sql {
        what: format!("list the nodes of {engine}"),
        engine: Some(engine),
        source,
    })
}

/// PostgreSQL itself: alone, or with partitions on other servers.
fn postgres(control: &mut Control, here: ConnSpec, reach: &mut Reach<'_>) -> Result<Cluster, ClusterError> {
    let mut nodes = vec![];
    for server in foreign_servers(control)? {
        // Others choose the name: a line feed in it must not begin a line of ours.
        let name = server.get(0).unwrap_or_default().replace(char::is_control, " ");
        match (server.get(4), server.is_true(5)) {
            _ if is_node(&server) => nodes.push(server),
            (Some(owner), true) => {
                let owner = owner.to_owned();
                reach.note(&name, ClusterError::NotTrusted { node: name.clone(), owner })?;
            }
            (owner, _) => {
                let whose = owner.map(|owner| format!(" of the role {owner}")).unwrap_or_default();
                let why = format!(
                    "the foreign server {name}{whose} is not used as a node: the session does not trust the role that made it, or \
                     those whose tables have partitions there"
                );
                reach.leave_out(name, why);
            }
        }
    }
    if nodes.is_empty() {
        return Ok(Cluster::single(here));
    }
    fdw_sharded(control, here, &nodes, reach)
}

/// How the nodes are read from a catalog.
#[derive(Clone, Copy)]
struct Listing {
    /// The query.
    nodes: &'static str,
    /// See [`crate::profile::Catalog::coordinator`].
    coordinator: Option<&'static str>,
    /// Whether each node is connected to.
    reach_nodes: bool,
}

/// The nodes that an engine's own catalog lists; see [`crate::profile::Catalog::nodes`] for the columns.
fn catalogued(
    control: &mut Control,
    here: ConnSpec,
    engine: Engine,
    listing: Listing,
    reach: &mut Reach<'_>,
) -> Result<Cluster, ClusterError> {
    let rows = nodes_listed(control, engine, listing.nodes)?;
    let mut cluster =
        Cluster { engine, nodes: Vec::with_capacity(rows.len()), partitions: None, left_out: vec![] };
    let mut itself = None;
    for row in &rows {
        let name = row.get(1).unwrap_or_default().to_owned();
        if let Some(state) = row.get(7) {
            reach.note(&name, ClusterError::NodeState { node: name.clone(), state: state.to_owned() })?;
        }
        if let Some(owner) = row.get(9) {
            let owner = owner.to_owned();
            reach.note(&name, ClusterError::NotTrusted { node: name.clone(), owner })?;
            continue;
        }
        let role = row.get(5).and_then(Role::parse).unwrap_or(Role::Shard);
        let mut spec = match row.get(8) {
            None => beside(&here, row.get(2), row.get(3), row.get(4))?,
            Some(conninfo) => along(&here, conninfo)
                .map_err(|source| ClusterError::Conninfo { node: name.clone(), source })?,
        };
        if row.is_true(6) {
            // The address of our own connection works.
            spec = here.clone();
            itself = Some(cluster.nodes.len());
        }
        if cluster.node(&name).is_some() {
            return Err(ClusterError::TwoOfOneName(name));
        }
        let is_coordinator = listing.coordinator.is_some() && row.get(0) == listing.coordinator;
        let is_closed = row.is_true(10);
        cluster.nodes.push(ClusterNode { is_coordinator, is_closed, ..ClusterNode::new(name, role, spec) });
    }
    // A catalog that does not name the queried node, or does not list it.
    let itself = itself.or_else(|| {
        let at = here.hosts.first()?;
        cluster.nodes.iter().position(|node| {
            node.spec.hosts.first().is_some_and(|host| host.host == at.host && host.port == at.port)
        })
    });
    let itself = itself.or_else(|| {
        // Under another address than the catalog has: behind a proxy, or by another name of its host.
        let own = identity(control).ok().flatten().filter(|_| listing.reach_nodes)?;
        cluster.nodes.iter().position(|node| identity::at(&node.spec).as_ref() == Some(&own))
    });
    match itself {
        Some(index) => cluster.nodes[..=index].rotate_right(1),
        None => {
            let role = cluster.nodes.first().map_or(Role::Coordinator, |node| node.role);
            let role = if role == Role::Peer { role } else { Role::Coordinator };
            cluster.nodes.insert(0, ClusterNode::new("entry", role, here.clone()));
        }
    }
    if listing.reach_nodes {
        for node in &cluster.nodes[1..] {
            drop(reach.connect(&here.describe(), node)?);
        }
    }
    Ok(cluster)
}

/// The connection to the server that a connection string in a catalog names, with our own role and password.
pub(super) fn along(here: &ConnSpec, conninfo: &str) -> Result<ConnSpec, ConninfoError> {
    let sources = Sources {
        env: &|_| None,
        os_user: Some(here.user.clone()),
        home: None,
        socket_dirs: Vec::new(),
        sysconfdir: None,
    };
    let theirs = conninfo::parse(conninfo, &sources)?.spec;
    let mut spec = here.clone();
    spec.password = here.hosts.first().and_then(|at| here.password_for(at)).cloned();
    spec.hosts = theirs.hosts;
    Ok(spec.with_dbname(&theirs.dbname))
}

/// Whether a row of [`FDW_SERVERS`] is a node that the session trusts.
pub(super) fn is_node(server: &TextRow) -> bool {
    server.get(4).is_none() && (server.is_true(5) || server.is_true(6))
}

fn fdw_sharded(
    control: &mut Control,
    here: ConnSpec,
    servers: &[TextRow],
    reach: &mut Reach<'_>,
) -> Result<Cluster, ClusterError> {
    let entry_name = here.describe();
    let mut nodes = vec![ClusterNode::new("entry", Role::Shard, here.clone())];
    for row in servers {
        let name = row.get(0).unwrap_or_default().to_owned();
        let spec = beside(&here, row.get(1), row.get(2), row.get(3))?;
        nodes.push(ClusterNode::new(name, Role::Shard, spec));
    }
    let mut cluster =
        Cluster { engine: Engine::FOREIGN_PARTITIONS, nodes, partitions: None, left_out: vec![] };
    let own = identity(control)?;
    let mut identities = vec![(0, own.clone())];
    let mut own_name = None;
    let mut doubles = vec![];
    for index in 1..cluster.nodes.len() {
        let node = &cluster.nodes[index];
        let Some(mut control) = reach.connect(&entry_name, node)? else { continue };
        let found = identity(&mut control)?;
        if let Some((same, _)) = identities.iter().find(|(_, other)| *other == found) {
            let name = |index: usize| cluster.nodes[index].name.clone();
            let error = ClusterError::SameNode { first: name(*same), second: name(index) };
            reach.note(&node.name, error)?;
            doubles.push(index);
            continue;
        }
        identities.push((index, found));
        // The other nodes have the name of the entry.
        if own_name.is_none() {
            let theirs = catalog::rows(&mut *control, FDW_SERVERS).map_err(|source| ClusterError::Sql {
                what: format!("list the foreign servers of node {:?}", cluster.nodes[index].name),
                engine: Some(Engine::FOREIGN_PARTITIONS),
                source,
            })?;
            own_name = name_of_entry(&cluster, index, &theirs, own.as_ref());
        }
    }
    match own_name.filter(|(name, _)| cluster.node(name).is_none()) {
        Some((name, address)) => {
            cluster.nodes[0].name = name;
            cluster.nodes[0].also.extend(address);
        }
        // No node points back: the entry holds no partition that others need, unless it is known to them by an address that does not answer here.
        None if !holds_partitions(control)? => cluster.nodes[0].role = Role::Coordinator,
        None => {}
    }
    for index in doubles.into_iter().rev() {
        cluster.nodes.remove(index);
    }
    Ok(cluster)
}

/// What a node calls the entry: the server at the address of the entry, or, where that is another one (a pooler, a proxy, another name of the host), the
/// server that is the entry, with the address that the nodes have of it.
fn name_of_entry(
    cluster: &Cluster,
    index: usize,
    theirs: &[TextRow],
    own: Option<&TextRow>,
) -> Option<(String, Option<HostSpec>)> {
    let (here, there) = (&cluster.nodes[0].spec, &cluster.nodes[index].spec);
    let mut unknown = Vec::new();
    for row in theirs.iter().filter(|row| is_node(row)) {
        let port = row.get(2).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
        match cluster.node_at(index, row.get(1), port, row.get(3).unwrap_or(&here.dbname)) {
            Some(0) => return Some((row.get(0)?.to_owned(), None)),
            Some(_) => {}
            None => unknown.push(row),
        }
    }
    unknown.into_iter().find_map(|row| {
        let spec = beside(there, row.get(1), row.get(2), row.get(3)).ok()?;
        let is_it = own.is_some() && identity::at(&spec).as_ref() == own;
        is_it.then(|| (row.get(0).unwrap_or_default().to_owned(), spec.hosts.first().cloned()))
    })
}

/// Whether a server has partitions of tables of which others are foreign tables.
fn holds_partitions(control: &mut Control) -> Result<bool, ClusterError> {
    let rows = catalog::rows(&mut **control, HELD).map_err(|source| ClusterError::Sql {
        what: "look for partitions of its own".to_owned(),
        engine: Some(Engine::FOREIGN_PARTITIONS),
        source,
    })?;
    Ok(rows.first().is_some_and(|row| row.is_true(0)))
}

/// The connection to a server as the node `here` names it, with our own role and password.
pub(super) fn beside(
    here: &ConnSpec,
    host: Option<&str>,
    port: Option<&str>,
    dbname: Option<&str>,
) -> Result<ConnSpec, ClusterError> {
    let at = here.hosts.first().expect("a connection has a host");
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => port.parse().map_err(|_| ClusterError::Catalog {
            what: "read the address of a foreign server".to_owned(),
            problem: format!("{port:?} is not a port"),
        })?,
    };
    let host = match (host.filter(|host| !host.is_empty()), &at.host) {
        // A local address of the entry is on the entry's host.
        (None, _) => at.host.clone(),
        (Some(name), Host::Tcp(ours))
            if (name.starts_with('/') || super::is_loopback(name)) && !super::is_loopback(ours) =>
        {
            at.host.clone()
        }
        (Some(name), _) => Host::parse(name),
    };
    let password: Option<Secret> = here.password_for(at).cloned();
    let mut spec = here.clone();
    spec.hosts = vec![HostSpec { host, address: None, port, password: None }];
    spec.password = password;
    Ok(match dbname {
        Some(dbname) => spec.with_dbname(dbname),
        None => spec,
    })
}
