//! The cluster under test: which faults are possible on which node, their injection, and how they are undone.

mod injury;
mod node;
mod quiet;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::conninfo::SessionAttrs;
use connect::{ConnSpec, cluster_file::Role};
use engines::Engine;
use lab::local::Instance;
use record::clock::monotonic_ns;

use super::{Fault, FaultError, Journal, Links, Plan, Proxy, Step, disk};
use crate::client::{Client, ClientError};
use crate::live::claim::Proof;
use injury::Injury;
pub use node::Node;
pub use quiet::QuietError;

/// The time limit for an answer to a control session.
const PATIENCE: Duration = Duration::from_secs(30);
/// For this long after a fault is undone, its effects may still reach clients.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// The time limit for the search for the primary.
pub(super) const FOLLOW_PATIENCE: Duration = Duration::from_secs(2);
/// The interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a cluster may take until it takes writes again after everything was undone.
pub(super) const QUIET_TIMEOUT: Duration = Duration::from_secs(120);
/// Names of our prepared transactions begin with this.
const ORPHAN_PREFIX: &str = "pgfathom-orphan-";

/// One thing that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Happened {
    /// As planned.
    pub step: Step,
    /// To which node.
    pub node: String,
    /// When it began, on the monotonic clock.
    pub at_ns: u64,
    /// How long it took.
    pub took: Duration,
    /// Why it did not happen.
    pub error: Option<String>,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        if self.step.node.is_none() && !self.node.is_empty() {
            write!(f, " on {}", self.node)?;
        }
        match &self.error {
            Some(error) => write!(f, ": not done: {error}"),
            None => Ok(()),
        }
    }
}

/// A cluster and the faults that are possible on it.
#[derive(Debug)]
pub struct Site {
    /// What kind it is.
    pub engine: Engine,
    /// Its nodes; the first one is the entry.
    pub nodes: Vec<Node>,
    /// The connections between them, if they pass proxies; or why they cannot.
    links: Result<Links, String>,
    journal: Arc<Journal>,
    injuries: Mutex<Vec<Injury>>,
    /// The index of the node that takes writes; it changes with a promotion.
    primary: Mutex<usize>,
    /// The nodes that we promoted: only then we have to stop the earlier primary.
    is_promoted: AtomicBool,
    /// A server could not be started again after a fault.
    does_not_start: AtomicBool,
    /// Until when errors of clients may come from our faults, on the monotonic clock: `u64::MAX` during a fault.
    disturbed_until_ns: AtomicU64,
    /// When the last fault was undone.
    undone: Mutex<Option<Instant>>,
    /// When it was made: older transactions of the engine are not of its proofs.
    made: Instant,
    /// The name of the proof, in its tables and locks.
    proof: Proof,
    /// What could not be cleaned up, and how to do it.
    notes: Mutex<Vec<String>>,
    /// Who learns at once what takes long.
    listener: Mutex<Option<Sender<String>>>,
    /// The way of clients, if they take another one than to the nodes: a proxy or a pooler in front of them.
    front: Option<ConnSpec>,
}

/// A note before verdicts about an engine that pgfathom was never run on.
fn untried(engine: Engine) -> String {
    format!(
        "pgfathom knows {} from {}; known limits: {}",
        engine.title,
        engine.tried,
        engine.limits.join("; ")
    )
}

impl Site {
    /// A site of these nodes; every fault is recorded in `journal` first.
    pub fn new(engine: Engine, nodes: Vec<Node>, journal: Arc<Journal>) -> Site {
        let primary = nodes.iter().position(|node| node.role == Role::Primary).unwrap_or(0);
        let links = Err("nodes do not reach each other through proxies".to_owned());
        let notes = match engine.tried.is_live() {
            true => Vec::new(),
            false => vec![untried(engine)],
        };
        Site {
            engine,
            nodes,
            links,
            journal,
            injuries: Mutex::default(),
            primary: Mutex::new(primary),
            is_promoted: AtomicBool::new(false),
            does_not_start: AtomicBool::new(false),
            disturbed_until_ns: AtomicU64::new(0),
            undone: Mutex::default(),
            made: Instant::now(),
            proof: Proof::new(),
            notes: Mutex::new(notes),
            listener: Mutex::default(),
            front: None,
        }
    }

    /// Clients connect here, and what is here finds the node that takes writes.
    pub fn use_front(&mut self, front: ConnSpec) {
        self.front = Some(front);
    }

    /// Whether clients come through something in front of the nodes.
    pub fn has_front(&self) -> bool {
        self.front.is_some()
    }

    /// The journal of its faults.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// The name of the proof.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Adds a note for the user; it changes no verdict.
    pub fn note(&self, words: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&words) {
            notes.push(words);
        }
    }

    /// Sets who learns at once what takes long.
    pub fn announce_to(&self, listener: Option<Sender<String>>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    pub(crate) fn announce(&self, words: String) {
        // A wait without a listener is silent.
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = listener.as_ref().map(|listener| listener.send(words));
    }

    /// The notes since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a proxy in front of each node that has none.
    ///
    /// # Errors
    /// When no port is free.
    pub fn use_proxies(&mut self) -> Result<(), FaultError> {
        for node in &mut self.nodes {
            if node.proxy.is_none() {
                let proxy = Proxy::start(&node.spec);
                node.proxy =
                    Some(proxy.map_err(FaultError::io("start a proxy in front of", Path::new(&node.name)))?);
            }
        }
        Ok(())
    }

    /// Routes the connections between nodes through proxies, so that a node can be isolated. Where that is impossible, [`Site::can`] gives the reason.
    pub fn use_links(&mut self) {
        if self.links.is_err() {
            self.links = Links::lay(self.engine, &self.nodes, &self.journal);
        }
    }

    /// The ways between the nodes.
    ///
    /// # Errors
    /// Why they do not pass proxies.
    pub fn links(&self) -> Result<&Links, &str> {
        self.links.as_ref().map_err(String::as_str)
    }

    /// How one node reaches another one, as far as that is known; else how clients reach it.
    pub fn between(&self, from: usize, to: usize) -> ConnSpec {
        let through = self.links.as_ref().ok().and_then(|links| links.between(&self.nodes, from, to));
        through.unwrap_or_else(|| self.nodes[to].way_from(&self.nodes[from].name).clone())
    }

    /// How clients reach the primary.
    pub fn entry(&self) -> ConnSpec {
        self.front.clone().unwrap_or_else(|| self.direct())
    }

    /// The nodes themselves, whichever takes writes.
    pub(crate) fn direct(&self) -> ConnSpec {
        let mut entry = self.nodes[self.primary()].client_spec();
        if self.nodes.iter().any(|node| node.role == Role::Standby) {
            entry.hosts = self.nodes.iter().flat_map(|node| node.client_spec().hosts).collect();
            entry.target_session_attrs = SessionAttrs::ReadWrite;
        } else if self.engine.layout.commits_everywhere() {
            let others = self.nodes.iter().enumerate().filter(|(node, _)| *node != self.primary());
            entry.hosts.extend(others.flat_map(|(_, node)| node.client_spec().hosts));
        }
        entry
    }

    /// The node that takes writes.
    pub fn primary(&self) -> usize {
        *self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the node that takes writes now: a cluster manager may have promoted it. When none does, nothing changes.
    /// Returns whether it was found.
    pub(crate) fn follow_primary(&self) -> bool {
        let has_standbys = self.nodes.iter().any(|node| node.role == Role::Standby);
        let client = has_standbys.then(|| Client::connect(&self.direct(), FOLLOW_PATIENCE).ok()).flatten();
        client.iter().for_each(|client| self.set_primary(client));
        client.is_some()
    }

    /// The session's server takes writes.
    fn set_primary(&self, client: &Client) {
        // The hosts are those of the nodes in order, one or more for each.
        let counts = self.nodes.iter().map(|node| node.client_spec().hosts.len());
        let mut ends = counts.scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        if self.nodes.iter().any(|node| node.role == Role::Standby)
            && let Some(now) = ends.position(|end| client.host_index() < end)
        {
            *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }

    /// Which node a step means, and whether it can be done there: checked before the proof begins.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn can(&self, fault: Fault, name: Option<&str>) -> Result<usize, String> {
        let node = match name {
            Some(name) => self
                .nodes
                .iter()
                .position(|node| node.name == name)
                .ok_or_else(|| format!("there is no node {name:?}"))?,
            None if fault == Fault::Promote => self
                .nodes
                .iter()
                .position(|node| node.role == Role::Standby)
                .ok_or_else(|| "there is no standby".to_owned())?,
            None => self.primary(),
        };
        let at = &self.nodes[node];
        if fault.hurts_server() && fault != Fault::Promote && at.instance.is_none() {
            return Err(format!("{} must not be disturbed: {}", at.name, at.spared));
        }
        if let Some(why) = at.objection_of_manager(fault) {
            return Err(why);
        }
        match fault {
            Fault::Promote if at.role != Role::Standby => Err(format!("{} is not a standby", at.name)),
            Fault::Promote if !at.spared.is_empty() => {
                Err(format!("{} must not be promoted: {}", at.name, at.spared))
            }
            Fault::Partition => match &self.links {
                Ok(links) if links.holds(node) => Ok(node),
                Ok(_) => Err(format!("no other node reaches {}", at.name)),
                Err(why) => Err(why.clone()),
            },
            Fault::Power | Fault::Full if at.disk.is_none() => {
                disk::probe(&self.journal)?;
                Err(format!("the data directory of {} is not on a separate disk", at.name))
            }
            Fault::Orphan => {
                let count = self
                    .control(node)
                    .and_then(|mut client| {
                        client.execute("select pg_catalog.current_setting('max_prepared_transactions')")
                    })
                    .map_err(|error| error.to_string())?;
                match count.number() {
                    Some(0) | None => Err(format!("max_prepared_transactions is 0 on {}", at.name)),
                    Some(_) => Ok(node),
                }
            }
            _ => Ok(node),
        }
    }

    /// The first name in a plan that is no node's, in words.
    pub fn unknown_node(&self, plan: &Plan) -> Option<String> {
        let named = plan.steps.iter().filter_map(|step| step.node.as_deref());
        let name = named.into_iter().find(|name| self.nodes.iter().all(|node| node.name != *name))?;
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        Some(format!("--fault: there is no node {name:?}; the nodes are {}", names.join(", ")))
    }

    /// The first step of a plan that is impossible here, and the reason.
    pub fn objection(&self, plan: &Plan) -> Option<(Fault, String)> {
        plan.steps.iter().find_map(|step| {
            let fault = step.fault?;
            self.can(fault, step.node.as_deref()).err().map(|why| (fault, why))
        })
    }

    /// The first node that a plan means whose processes are unknown, because it did not answer when the proof began.
    pub(crate) fn silent_node(&self, plan: &Plan) -> Option<&Node> {
        let steps = plan.steps.iter().filter(|step| step.fault.is_some());
        let nodes = steps.filter_map(|step| match step.node.as_deref() {
            Some(name) => self.nodes.iter().find(|node| node.name == name),
            None => self.nodes.get(self.primary()),
        });
        nodes.into_iter().find(|node| node.was_silent)
    }

    fn control(&self, node: usize) -> Result<Client, ClientError> {
        Ok(Client::connect(&self.nodes[node].spec, PATIENCE)?)
    }

    /// Whether errors of clients may come from our faults now.
    pub fn is_disturbed(&self) -> bool {
        monotonic_ns() < self.disturbed_until_ns.load(Ordering::Acquire)
    }

    /// When the last fault was undone, if there was one: a node that was hit may still be catching up.
    pub(crate) fn undone(&self) -> Option<Instant> {
        *self.undone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the plan, from `begin` on. Returns after its last step or when `stop` is set; [`Site::heal`] undoes the remaining faults.
    pub fn follow(&self, plan: &Plan, begin: Instant, stop: &AtomicBool) -> Vec<Happened> {
        let mut happened = Vec::new();
        for step in &plan.steps {
            while begin.elapsed() < step.at {
                if stop.load(Ordering::Relaxed) {
                    return happened;
                }
                let left = step.at.saturating_sub(begin.elapsed());
                std::thread::sleep(left.min(POLL_INTERVAL));
            }
            let (at_ns, before) = (monotonic_ns(), Instant::now());
            let (node, done) = match step.fault {
                None => (String::new(), self.heal(step.node.as_deref()).map_err(|error| error.to_string())),
                Some(fault) => match self.can(fault, step.node.as_deref()) {
                    Err(why) => (step.node.clone().unwrap_or_default(), Err(why)),
                    Ok(node) => (
                        self.nodes[node].name.clone(),
                        self.inject(fault, node).map_err(|error| error.to_string()),
                    ),
                },
            };
            let took = before.elapsed();
            happened.push(Happened { step: step.clone(), node, at_ns, took, error: done.err() });
        }
        happened
    }

    /// Syncs everything written so far to the separate disks of nodes: a checkpoint hands it to the kernel, also with fsync off, and
    /// the kernel writes it. A failure becomes a note.
    pub fn settle(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(disk) = &node.disk else { continue };
            let written = self.control(number).and_then(|mut client| client.execute("checkpoint"));
            let written = written.map(drop).map_err(|error| error.to_string());
            if let Err(why) = written.and_then(|()| disk.sync().map_err(|error| error.to_string())) {
                self.note(format!(
                    "earlier writes could not be flushed to the disk of {}: {why}; a power cut may lose them",
                    node.name
                ));
            }
        }
    }

    /// Whether the primary is permanently down: it did not start again after one of our faults.
    pub fn is_gone(&self) -> bool {
        let is_down = |instance: &Instance| !instance.has_postmaster();
        self.does_not_start.load(Ordering::Acquire)
            && self.nodes[self.primary()].instance.as_ref().is_some_and(is_down)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // What fails stays in the journal.
        let _ = self.heal(None);
    }
}
