//! The connections between the nodes of a cluster, routed through our proxies: in a partition they forward nothing, while clients still reach every node.
//!
//! | cluster | who connects | how it is routed through a proxy |
//! |---|---|---|
//! | primary and standbys | each standby, to all others | `primary_conninfo`, which a standby takes over without a restart |
//! | shards by postgres_fdw | each shard, to all others | the foreign server's `host` and `port` |
//! | multimaster | each subscriber, to its publishers | the subscription's connection |
//!
//! Each change is first recorded in the journal, without passwords: later parameters of a connection string override earlier ones, so undoing
//! cuts them off again.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use connect::sql::{identifier, literal};
use connect::{ConnSpec, cluster_file::Role, poll};
use engines::Engine;
use engines::profile::NodeLinks;

use super::{Fault, Journal, Node, Proxy, Undo};
use crate::client::{Client, ClientError};

/// The time limit for an answer of a node.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node may take until it connects again.
const DIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// One node's way to another one.
#[derive(Debug)]
struct Way {
    /// Who connects.
    dialer: usize,
    /// Whom it connects to.
    to: usize,
    proxy: Proxy,
}

/// All connections between the nodes of a cluster. Dropping this restores them.
#[derive(Debug)]
pub struct Links {
    ways: Vec<Way>,
    journal: Arc<Journal>,
    undo: Vec<u64>,
    /// Nodes that are cut off from the others.
    parted: Mutex<BTreeSet<usize>>,
}

impl Links {
    /// Routes every connection between these nodes through a proxy.
    ///
    /// # Errors
    /// Why that is impossible here, as text; completed steps are undone.
    pub(crate) fn lay(engine: Engine, nodes: &[Node], journal: &Arc<Journal>) -> Result<Links, String> {
        if nodes.len() < 2 {
            return Err("there is no other node".to_owned());
        }
        if let Some(node) = nodes.iter().find(|node| node.instance.is_none()) {
            return Err(format!("pgfathom must not change the links of {}: {}", node.name, node.spared));
        }
        if !engine.tried.is_live() {
            return Err(format!("proxies between the nodes of {engine} have never been tested"));
        }
        let has_standbys = nodes.iter().any(|node| node.role == Role::Standby);
        let lead = match engine.links {
            NodeLinks::Streaming if has_standbys => follow,
            NodeLinks::ForeignServers => refer,
            NodeLinks::Subscriptions => subscribe,
            NodeLinks::Streaming => return Err("no node follows another one".to_owned()),
            NodeLinks::Own => {
                return Err(format!(
                    "the nodes of {engine} connect to each other by themselves, and not through proxies of pgfathom"
                ));
            }
        };
        let mut links = Links {
            ways: Vec::new(),
            journal: Arc::clone(journal),
            undo: Vec::new(),
            parted: Mutex::default(),
        };
        for dialer in 0..nodes.len() {
            let dials = match engine.links {
                NodeLinks::Streaming => nodes[dialer].role == Role::Standby,
                _ => matches!(nodes[dialer].role, Role::Shard | Role::Peer),
            };
            if dials {
                lead(&mut links, nodes, dialer)
                    .map_err(|error| format!("{}: {error}", nodes[dialer].name))?;
            }
        }
        Ok(links)
    }

    /// Whether some connection of this node passes a proxy.
    pub fn holds(&self, node: usize) -> bool {
        self.ways.iter().any(|way| way.dialer == node || way.to == node)
    }

    /// Cuts a node off from all others: no data passes in either direction, and no connection is closed.
    ///
    /// # Errors
    /// When no connection to or from this node has ever passed a proxy: then nothing would be cut off.
    pub fn part(&self, node: usize) -> Result<(), String> {
        let mut ways = self.ways.iter().filter(|way| way.dialer == node || way.to == node);
        if ways.all(|way| way.proxy.taken() == 0) {
            return Err("no connection between the nodes goes through the proxies".to_owned());
        }
        self.change(|parted| {
            parted.insert(node);
        });
        Ok(())
    }

    /// Reconnects a node to the others. Data sent during the partition arrives.
    pub fn join(&self, node: usize) {
        self.change(|parted| {
            parted.remove(&node);
        });
    }

    /// Delays all data by this much, on every connection and in each direction; zero: no delay.
    pub fn delay(&self, delay: Duration) {
        for way in &self.ways {
            way.proxy.heal();
            if !delay.is_zero() {
                way.proxy.inject(Fault::Delay(delay));
            }
        }
    }

    /// The address of the proxy between two nodes, in whichever direction they connect: the time of a round trip can be measured there.
    pub fn between(&self, nodes: &[Node], from: usize, to: usize) -> Option<ConnSpec> {
        let ends = |way: &&Way| (way.dialer, way.to) == (from, to) || (way.dialer, way.to) == (to, from);
        self.ways.iter().find(ends).map(|way| way.proxy.through(&nodes[way.to].spec))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<usize>)) {
        let mut parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parted);
        for way in &self.ways {
            way.proxy.heal();
            if parted.contains(&way.dialer) || parted.contains(&way.to) {
                way.proxy.inject(Fault::Blackhole);
            }
        }
    }

    /// A proxy from one node to another one; returns its port.
    fn way(&mut self, nodes: &[Node], dialer: usize, to: usize) -> Result<u16, LinkError> {
        let proxy = Proxy::start(nodes[to].way_from(&nodes[dialer].name))?;
        let port = proxy.port();
        self.ways.push(Way { dialer, to, proxy });
        Ok(port)
    }

    /// Notes how it is undone. A throwaway server ends with this process, and so do its settings.
    fn note(&mut self, node: &Node, statements: Vec<String>) -> Result<(), LinkError> {
        if node.instance.as_ref().is_some_and(|instance| !instance.is_throwaway()) {
            let undo = Undo::Execute { connection: node.spec.describe(), sql: statements };
            self.undo.push(self.journal.note(undo).map_err(|error| LinkError::Words(error.to_string()))?);
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Before the proxies go. What fails stays in the journal.
        for id in self.undo.drain(..).rev() {
            let _ = self.journal.undo(id);
        }
    }
}

/// Why a node could not be routed through a proxy.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("{0}")]
    Words(String),
    #[error("no proxy could be started: {0}")]
    Proxy(#[from] std::io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn client(node: &Node) -> Result<Client, LinkError> {
    Ok(Client::connect(&node.spec, PATIENCE).map_err(ClientError::Connect)?)
}

/// The first column of the first row.
fn value(client: &mut Client, sql: &str) -> Result<Option<String>, LinkError> {
    Ok(client.execute(sql)?.value())
}

/// Polls until the answer is yes.
fn wait_for(client: &mut Client, sql: &str, what: &str) -> Result<(), LinkError> {
    let mut is_so = || Ok((value(client, sql)?.as_deref() == Some("t")).then_some(()));
    let so: Option<Result<(), LinkError>> = poll::until(DIAL_TIMEOUT, || is_so().transpose());
    so.unwrap_or_else(|| Err(LinkError::Words(format!("{what} within {} s", DIAL_TIMEOUT.as_secs()))))
}

/// A standby knows all nodes that may be its primary.
fn follow(links: &mut Links, nodes: &[Node], dialer: usize) -> Result<(), LinkError> {
    let node = &nodes[dialer];
    let mut client = client(node)?;
    let has_own = value(
        &mut client,
        "select coalesce(sourcefile like '%postgresql.auto.conf', false) from pg_catalog.pg_settings \
         where name = 'primary_conninfo'",
    )?;
    if has_own.as_deref() != Some("f") {
        // Undoing would have to write down a password.
        return Err(LinkError::Words("primary_conninfo is in postgresql.auto.conf".to_owned()));
    }
    let conninfo = value(&mut client, "select pg_catalog.current_setting('primary_conninfo')")?;
    let others: Vec<usize> = (0..nodes.len()).filter(|other| *other != dialer).collect();
    let ports: Vec<String> = others
        .iter()
        .map(|to| links.way(nodes, dialer, *to).map(|port| port.to_string()))
        .collect::<Result<_, _>>()?;
    let hosts = vec![Ipv4Addr::LOCALHOST.to_string(); ports.len()].join(",");
    let led = format!(
        "{} hostaddr='' host={hosts} port={} target_session_attrs=read-write",
        conninfo.unwrap_or_default(),
        ports.join(",")
    );
    let reload = "select pg_catalog.pg_reload_conf()";
    links.note(node, vec!["alter system reset primary_conninfo".to_owned(), reload.to_owned()])?;
    client.execute(&format!("alter system set primary_conninfo = {}", literal(&led)))?;
    client.execute(reload)?;
    let streams = format!(
        "select coalesce(bool_or(status = 'streaming' and sender_port in ({})), false) \
         from pg_catalog.pg_stat_wal_receiver",
        ports.join(", ")
    );
    wait_for(&mut client, &streams, "it did not follow the primary through a proxy")
}

/// A shard knows the others as foreign servers.
fn refer(links: &mut Links, nodes: &[Node], dialer: usize) -> Result<(), LinkError> {
    let node = &nodes[dialer];
    let mut client = client(node)?;
    for to in (0..nodes.len()).filter(|to| *to != dialer) {
        let name = nodes[to].server_at(&node.name);
        let option = |client: &mut Client, option: &str| {
            value(
                client,
                &format!(
                    "select option_value from pg_catalog.pg_foreign_server, \
                     pg_catalog.pg_options_to_table(srvoptions) where srvname = {} and option_name = '{option}'",
                    literal(name)
                ),
            )
        };
        let (Some(host), Some(port)) = (option(&mut client, "host")?, option(&mut client, "port")?) else {
            return Err(LinkError::Words(format!("it has no foreign server {name} with a host and a port")));
        };
        let set = |host: &str, port: &str| {
            format!(
                "alter server {} options (set host {}, set port {})",
                identifier(name),
                literal(host),
                literal(port)
            )
        };
        let led = links.way(nodes, dialer, to)?;
        links.note(node, vec![set(&host, &port)])?;
        client.execute(&set(&Ipv4Addr::LOCALHOST.to_string(), &led.to_string()))?;
    }
    Ok(())
}

/// A node of a multimaster has a subscription to each other one.
fn subscribe(links: &mut Links, nodes: &[Node], dialer: usize) -> Result<(), LinkError> {
    let node = &nodes[dialer];
    let mut client = client(node)?;
    for to in (0..nodes.len()).filter(|to| *to != dialer) {
        let name = lab::local::subscription(&node.name, &nodes[to].name);
        let conninfo = value(
            &mut client,
            &format!("select subconninfo from pg_catalog.pg_subscription where subname = {}", literal(&name)),
        )?;
        let Some(conninfo) = conninfo else {
            return Err(LinkError::Words(format!(
                "it has no subscription {name}: pgfathom delays and cuts only the connections of subscriptions that pgfathom up made"
            )));
        };
        let port = links.way(nodes, dialer, to)?;
        let tail = format!(" hostaddr='' host={} port={port}", Ipv4Addr::LOCALHOST);
        let cut = format!(
            "do $$ declare now text; begin \
             select subconninfo into now from pg_catalog.pg_subscription where subname = {name}; \
             if right(now, {length}) = {tail} then \
             execute pg_catalog.format('alter subscription %I connection %L', {name}, left(now, -{length})); \
             end if; end $$",
            name = literal(&name),
            tail = literal(&tail),
            length = tail.len()
        );
        links.note(node, vec![cut])?;
        client.execute(&format!(
            "alter subscription {} connection {}",
            identifier(&name),
            literal(&(conninfo + &tail))
        ))?;
        let has_come = || links.ways.last().is_none_or(|way| way.proxy.taken() > 0).then_some(());
        poll::until(DIAL_TIMEOUT, has_come)
            .ok_or_else(|| LinkError::Words(format!("{name} did not connect through its proxy")))?;
    }
    Ok(())
}
