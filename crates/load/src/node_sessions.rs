//! The nodes of a load and the coordinator's connections to them.

use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::control::Control;
use engines::cluster::Cluster;
use engines::lock::Key;
use engines::profile::{Layout, LoadPath, Sizes};

use crate::absent::{self, Waiting};
use crate::contention::Contention;
use crate::error::LoadError;
use crate::index;
use crate::ledger;
use crate::options::{Stop, StopLevel};
use crate::progress::LoadEvent;
use crate::shape::Shape;
use crate::stream::SESSION_SETTINGS;
use crate::wal;

/// The pause before a server that the coordinator has lost is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// How often another pgfathom that is building keys is checked for its end.
const LOCK_LOOK: Duration = Duration::from_millis(200);

/// A control connection with the settings of a load.
pub(crate) fn connect(spec: &ConnSpec) -> Result<Control, LoadError> {
    let mut control = crate::connections::control(spec)?;
    let set = control.batch_execute(SESSION_SETTINGS);
    set.map_err(|source| LoadError::sql("setting up the session", source))?;
    Ok(control)
}

/// A node that is filled.
#[derive(Debug)]
pub(crate) struct NodeSession {
    /// Its name in messages; empty when there is only one.
    pub(crate) name: String,
    /// Its place in [`Cluster::nodes`].
    pub(crate) node: usize,
    pub(crate) spec: ConnSpec,
    pub(crate) control: Control,
    pub(crate) wal_before: Option<u64>,
    /// How the engine reports what a table takes on disk.
    pub(crate) sizes: Sizes,
    /// The engine's SQLSTATE values for a node that is no part of the cluster.
    node_lost: &'static [&'static str],
}

impl NodeSession {
    /// Makes sure that the control connection works, as the server may have been restarted under it; waits for a lost one until the limit.
    pub(crate) fn reconnect(&mut self, limit: Duration, stop: Option<&Stop>) -> Result<(), LoadError> {
        if self.control.simple_query("").is_ok() {
            return Ok(());
        }
        let lost_at = Instant::now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match connect(&self.spec) {
                Ok(control) => {
                    self.control = control;
                    return Ok(());
                }
                Err(error) => error,
            };
            let waited = lost_at.elapsed();
            let stopped = stop.is_some_and(|stop| stop.level() > StopLevel::Run);
            if waited >= limit || stopped || !error.may_come_back(self.node_lost) {
                let error = LoadError::ServerLost { waited, attempts, source: Box::new(error) };
                return Err(error.at(&self.name));
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
    }
}

/// All nodes that are filled, in the order of the cluster. Never empty.
#[derive(Debug)]
pub(crate) struct NodeSessions {
    pub(crate) shape: Shape,
    pub(crate) members: Vec<NodeSession>,
    /// The names of all nodes of the cluster.
    pub(crate) names: Vec<String>,
    /// Where streams can enter with `--via each`: name and address; empty where they cannot.
    pub(crate) entries: Vec<(String, ConnSpec)>,
    /// The nodes to which the engine brings all rows, and which gather their own statistics: name and address.
    pub(crate) copies: Vec<(String, ConnSpec)>,
    /// The nodes that hold rows and are not filled directly.
    pub(crate) others: wal::Others,
    /// The engine's SQLSTATE values for another node that does not answer.
    pub(crate) node_lost: &'static [&'static str],
}

impl NodeSessions {
    /// Connects to every node.
    pub(crate) fn connect(cluster: &Cluster) -> Result<NodeSessions, LoadError> {
        let shape = Shape::of(cluster)?;
        let mut members = Vec::new();
        for node in cluster.ledger_nodes() {
            let found = &cluster.nodes[node];
            let name = if shape == Shape::Single { String::new() } else { found.name.clone() };
            let mut control = connect(&found.spec).map_err(|error| error.at(&name))?;
            let spec = crate::connections::of_node(cluster, &found.spec, &mut control)
                .map_err(|error| error.at(&name))?;
            if spec != found.spec {
                control = connect(&spec).map_err(|error| error.at(&name))?;
            }
            let wal_before = wal::position(&mut control);
            let sizes = cluster.engine.sizes;
            let node_lost = cluster.engine.node_lost;
            members.push(NodeSession { name, node, spec, control, wal_before, sizes, node_lost });
            if shape == Shape::Single {
                break;
            }
        }
        if members.is_empty() {
            return Err(LoadError::OnlyStandbys);
        }
        let others = wal::Others::of(cluster);
        let names = cluster.nodes.iter().map(|node| node.name.clone()).collect();
        let entries = match cluster.has_ledger_everywhere() {
            true => cluster.data_nodes().map(|node| &cluster.nodes[node]).collect(),
            false => Vec::new(),
        };
        let entries = entries.into_iter().map(|node| (node.name.clone(), node.spec.clone())).collect();
        let is_copied =
            cluster.engine.load == LoadPath::Table && matches!(cluster.engine.layout, Layout::Copies(_));
        let is_other = |node: &usize| is_copied && members.iter().all(|member| member.node != *node);
        let copies = cluster.data_nodes().filter(is_other).map(|node| &cluster.nodes[node]);
        let copies = copies.map(|node| (node.name.clone(), node.spec.clone())).collect();
        let node_lost = cluster.engine.node_lost;
        Ok(NodeSessions { shape, members, names, entries, copies, others, node_lost })
    }

    /// Makes sure that every control connection works.
    pub(crate) fn reconnect(&mut self, limit: Duration, stop: Option<&Stop>) -> Result<(), LoadError> {
        self.members.iter_mut().try_for_each(|member| member.reconnect(limit, stop))
    }

    /// Takes the lock under which keys and statistics are made, on every node. `Ok(false)`: the stop was noticed.
    ///
    /// No loader waits for one lock while it holds another, as loaders may list the nodes in different order.
    pub(crate) fn lock(
        &mut self,
        limit: Duration,
        stop: &Stop,
        notify: &mut dyn FnMut(LoadEvent),
    ) -> Result<bool, LoadError> {
        let mut away: Option<Waiting> = None;
        let mut contention = Contention::begin("keys and statistics", Key::Of(ledger::lock::FINISH));
        loop {
            match self.try_lock() {
                Ok(None) => return Ok(true),
                Ok(Some(_)) if stop.level() > StopLevel::Run => return Ok(false),
                Ok(Some(taken)) => {
                    let member = &mut self.members[taken];
                    let noted = contention.look(&mut *member.control);
                    noted.map_err(|error| error.at(&member.name))?.into_iter().for_each(&mut *notify);
                    std::thread::sleep(LOCK_LOOK);
                }
                Err(error) if error.is_connection_lost() => self.reconnect(limit, Some(stop))?,
                Err(error) if error.is_node_away(self.node_lost) && stop.level() == StopLevel::Run => {
                    absent::sleep(away.get_or_insert_with(Waiting::begin).next(limit, error)?, stop);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` if all nodes gave the lock; else one that did not.
    fn try_lock(&mut self) -> Result<Option<usize>, LoadError> {
        let mut locked = 0;
        for member in &mut self.members {
            if !index::try_lock(&mut member.control).map_err(|error| error.at(&member.name))? {
                break;
            }
            locked += 1;
        }
        if locked == self.members.len() {
            return Ok(None);
        }
        for member in &mut self.members[..locked] {
            index::unlock(&mut member.control).map_err(|error| error.at(&member.name))?;
        }
        Ok(Some(locked))
    }
}
