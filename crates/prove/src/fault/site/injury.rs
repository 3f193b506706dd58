//! How faults are injected, and how they are undone.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use connect::{cluster_file::Role, poll};
use lab::local::{Instance, StopMode};
use record::clock::monotonic_ns;

use super::super::{Fault, FaultError, Proxy, Undo};
use super::{ORPHAN_PREFIX, QUIET_TIMEOUT, Site};

/// Faults of a node that are not undone.
#[derive(Debug)]
pub(super) enum Injury {
    /// It is down.
    Down { node: usize, id: Option<u64>, needs_power: bool },
    /// It is stopped.
    Paused { node: usize, id: u64 },
    /// The proxy does something.
    Proxied { node: usize },
    /// It is cut off from the other nodes.
    Parted { node: usize },
    /// The disk is full.
    Full { node: usize, id: u64 },
    /// A prepared transaction.
    Orphan { id: u64 },
    /// The store of the failover manager is down.
    Storeless { id: u64 },
}

impl Site {
    pub(super) fn instance(&self, fault: Fault, node: usize) -> Result<&Instance, FaultError> {
        self.nodes[node].instance.as_ref().ok_or_else(|| FaultError::NotPossible {
            fault,
            why: format!("{} must not be disturbed: {}", self.nodes[node].name, self.nodes[node].spared),
        })
    }

    pub(super) fn hurt(&self, injury: Injury) {
        self.injuries.lock().unwrap_or_else(PoisonError::into_inner).push(injury);
    }

    /// Injects the fault into the node with this index. The journal has it before.
    ///
    /// # Errors
    /// When it failed; completed steps are undone with the rest.
    pub fn inject(&self, fault: Fault, node: usize) -> Result<(), FaultError> {
        let at = &self.nodes[node];
        self.disturbed_until_ns.store(u64::MAX, Ordering::Release);
        match fault {
            Fault::Kill | Fault::Crash | Fault::Power => {
                let instance = self.running(fault, node)?;
                let id = self.note_start(instance)?;
                self.hurt(Injury::Down { node, id, needs_power: fault == Fault::Power });
                if let (Fault::Power, Some(disk)) = (fault, &at.disk) {
                    disk.cut_power()?;
                }
                instance.end(fault == Fault::Crash)?;
            }
            Fault::Switchover => self.switch_over(node)?,
            Fault::Store => self.kill_store(node)?,
            Fault::Pause => {
                let instance = self.running(fault, node)?;
                let id = self.journal.note(Undo::Resume { data_dir: instance.data_dir().to_owned() })?;
                self.hurt(Injury::Paused { node, id });
                instance.pause()?;
            }
            Fault::Restart => {
                let instance = self.instance(fault, node)?;
                let id = self.note_start(instance)?;
                instance.stop(StopMode::Fast)?;
                instance.start()?;
                id.iter().for_each(|id| self.journal.forget(*id));
                self.calm_down();
            }
            Fault::Promote => {
                self.control(node)?.execute("select pg_catalog.pg_promote(true, 60)")?;
                *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = node;
                self.is_promoted.store(true, Ordering::Release);
            }
            Fault::Full => {
                if let Some(disk) = &at.disk {
                    let id = disk.fill()?;
                    self.hurt(Injury::Full { node, id });
                }
            }
            Fault::Partition => {
                let not_possible = |why: String| FaultError::NotPossible { fault, why };
                let links = self.links.as_ref().map_err(|why| not_possible(why.clone()))?;
                self.hurt(Injury::Parted { node });
                links.part(node).map_err(not_possible)?;
            }
            Fault::Orphan => {
                let name = format!("{ORPHAN_PREFIX}{}-{}", std::process::id(), monotonic_ns());
                let connection = at.spec.describe();
                let id = self.journal.note(Undo::RollBack { connection, name: name.clone() })?;
                self.hurt(Injury::Orphan { id });
                let mut client = self.control(node)?;
                client.execute("begin")?;
                client.execute("select pg_catalog.pg_current_xact_id()")?;
                client.execute(&format!("prepare transaction '{name}'"))?;
            }
            proxied => {
                let Some(proxy) = &at.proxy else {
                    return Err(FaultError::NotPossible {
                        fault,
                        why: "clients do not connect through the proxy".to_owned(),
                    });
                };
                self.hurt(Injury::Proxied { node });
                proxy.inject(proxied);
            }
        }
        Ok(())
    }

    /// The store of the failover manager of this node is killed.
    fn kill_store(&self, node: usize) -> Result<(), FaultError> {
        let instance = self.instance(Fault::Store, node)?;
        let id = self.journal.note(Undo::StartStore { data_dir: instance.data_dir().to_owned() })?;
        self.hurt(Injury::Storeless { id });
        Ok(instance.kill_store()?)
    }

    /// The failover manager makes this node the primary, or another one than this if it is the primary.
    fn switch_over(&self, node: usize) -> Result<(), FaultError> {
        let primary = self.primary();
        let to = (node != primary).then_some(self.nodes[node].name.as_str());
        self.instance(Fault::Switchover, primary)?.switch_over(&self.nodes[primary].name, to)?;
        self.follow_primary();
        self.calm_down();
        Ok(())
    }

    /// A server that outlives this process has to be started again from the journal; a throwaway one ends with this process.
    pub(super) fn note_start(&self, instance: &Instance) -> Result<Option<u64>, FaultError> {
        if instance.is_throwaway() {
            return Ok(None);
        }
        let undo = Undo::Start {
            bin_dir: instance.bin_dir().to_owned(),
            data_dir: instance.data_dir().to_owned(),
            log: instance.log().to_owned(),
            arguments: instance.launch().map(|launch| launch.arguments),
        };
        self.journal.note(undo).map(Some)
    }

    /// Undoes all faults, or all of one node. A primary whose standby was promoted stays down: it would be a second primary.
    ///
    /// # Errors
    /// The first failure; the rest is undone nevertheless.
    pub fn heal(&self, name: Option<&str>) -> Result<(), FaultError> {
        let is_down = self
            .injuries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|injury| matches!(injury, Injury::Down { .. }));
        if is_down && !self.is_promoted.load(Ordering::Acquire) {
            // A cluster manager may have promoted another node: then the old primary must not come back as a second one.
            self.follow_primary();
        }
        let mut first = self.fence(name);
        let mut injuries = std::mem::take(&mut *self.injuries.lock().unwrap_or_else(PoisonError::into_inner));
        for injury in injuries.drain(..).rev() {
            let node = match &injury {
                Injury::Down { node, .. }
                | Injury::Paused { node, .. }
                | Injury::Proxied { node }
                | Injury::Parted { node }
                | Injury::Full { node, .. } => Some(*node),
                Injury::Orphan { .. } | Injury::Storeless { .. } => None,
            };
            if name.is_some() && node.is_some_and(|node| Some(self.nodes[node].name.as_str()) != name) {
                self.hurt(injury);
                continue;
            }
            let healed = self.undo(&injury);
            if healed.is_err() {
                // The next healing tries it again.
                self.hurt(injury);
            }
            if first.is_ok() {
                first = healed;
            }
        }
        self.calm_down();
        first
    }

    /// All faults are undone; their effects end soon.
    pub(super) fn calm_down(&self) {
        let is_whole = self.injuries.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if is_whole && self.disturbed_until_ns.load(Ordering::Acquire) == u64::MAX {
            let grace_ns = u64::try_from(self.grace().as_nanos()).unwrap_or(u64::MAX);
            self.disturbed_until_ns.store(monotonic_ns().saturating_add(grace_ns), Ordering::Release);
            self.undone.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        }
    }

    /// Kills a replaced primary that still runs, before its faults are undone, as a cluster manager has to.
    pub(super) fn fence(&self, name: Option<&str>) -> Result<(), FaultError> {
        if !self.is_promoted.load(Ordering::Acquire) {
            // The cluster manager that promoted another node has to stop this one, and may have made it a standby since.
            return Ok(());
        }
        let primary = self.primary();
        for (number, node) in self.nodes.iter().enumerate() {
            let was_replaced = node.role == Role::Primary && number != primary;
            if was_replaced
                && name.is_none_or(|name| name == node.name)
                && let Some(instance) = node.instance.as_ref().filter(|instance| instance.is_up())
            {
                instance.kill9()?;
            }
        }
        Ok(())
    }

    pub(super) fn undo(&self, injury: &Injury) -> Result<(), FaultError> {
        match injury {
            Injury::Paused { node, id } => {
                self.instance(Fault::Pause, *node)?.resume()?;
                self.journal.forget(*id);
            }
            Injury::Parted { node } => self.links.iter().for_each(|links| links.join(*node)),
            Injury::Proxied { node } => self.nodes[*node].proxy.iter().for_each(Proxy::heal),
            Injury::Orphan { id } | Injury::Storeless { id } => self.journal.undo(*id)?,
            Injury::Full { node, id } => {
                self.journal.undo(*id)?;
                self.start(*node)?;
            }
            Injury::Down { node, id, needs_power } => {
                if *needs_power && let Some(disk) = &self.nodes[*node].disk {
                    disk.power_on()?;
                }
                let was_replaced = self.nodes[*node].role == Role::Primary && self.primary() != *node;
                // A failover manager makes it a standby.
                if !was_replaced || self.nodes[*node].is_managed() {
                    self.start(*node)?;
                }
                id.iter().for_each(|id| self.journal.forget(*id));
            }
        }
        Ok(())
    }

    /// The server of a node, for a fault that needs one which runs: what is down already does not fail.
    fn running(&self, fault: Fault, node: usize) -> Result<&Instance, FaultError> {
        let instance = self.instance(fault, node)?;
        if instance.has_postmaster() {
            return Ok(instance);
        }
        let why = format!("the server of {} does not run", self.nodes[node].name);
        Err(FaultError::NotPossible { fault, why })
    }

    /// Starts it, unless it runs; if it is just ending (a full disk), this waits for the end first.
    pub(super) fn start(&self, node: usize) -> Result<(), FaultError> {
        let instance = self.instance(Fault::Kill, node)?;
        // A server that starts but accepts no connection is tried again; one that does not start is not.
        let is_transient = |error: &FaultError| !matches!(error, FaultError::Local(_));
        poll::retry(QUIET_TIMEOUT, is_transient, || {
            let started = instance.start();
            self.does_not_start.store(started.is_err(), Ordering::Release);
            started?;
            self.control(node).map(drop).map_err(FaultError::from)
        })
    }
}
