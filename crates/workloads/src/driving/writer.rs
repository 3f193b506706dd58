//! Registers runs in the ledgers of their dataset before their first write, so that a verification knows that the tables are not as loaded,
//! and can replay the runs of benchmarks whose content shows which write it comes from.

use std::fmt::Debug;

use engines::Cluster;
use load::LoadError;
use load::ledger::Dataset;
use load::writers::Registry;
use postgres::Client;
use run::client::SessionRecord;
use run::workload::Item;
use serde::Serialize;

use super::{Benchmark, Refusal};

/// The run that a workload writes in.
#[derive(Clone, Copy, Debug)]
pub struct InMix<'a> {
    /// The items of its mix.
    pub items: &'a [Item],
    /// The first one of the workload.
    pub first: usize,
    /// The seed of the run.
    pub seed: u64,
}

/// A workload that writes, before it is announced.
pub trait Announces: Debug {
    /// What it writes into.
    fn dataset(&self) -> &Dataset;

    /// Enters the run in the ledgers of `cluster`.
    ///
    /// # Errors
    /// When a ledger cannot be written, or another run is in the way.
    fn announce(
        self: Box<Self>,
        run: InMix<'_>,
        cluster: &Cluster,
        client: &mut Client,
    ) -> Result<LedgerEntry, Refusal>;
}

/// What a run has become by its entry in the ledgers.
#[derive(Debug)]
pub struct LedgerEntry {
    /// The workload as it is driven now; `None`: as it was.
    pub workload: Option<Benchmark>,
    /// What waits for the end of the run; `None`: nothing does.
    pub announced: Option<Box<dyn Announced>>,
}

/// A run that has been entered in the ledgers.
pub trait Announced: Debug {
    /// Reports to the ledgers how far each session came.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    fn finish(self: Box<Self>, sessions: &[SessionRecord]) -> Result<(), Refusal>;

    /// Removes the run from the ledgers: it did not begin.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    fn withdraw(self: Box<Self>) -> Result<(), Refusal>;
}

/// What the ledgers have about a run, as JSON.
pub trait RunSpec: Debug + Serialize {
    /// Adds what the sessions left behind.
    fn finish(&mut self, _sessions: &[SessionRecord]) {}
}

/// A run that has been entered in the ledger of every node before its first write.
#[derive(Debug)]
pub struct Entered<S> {
    /// The ledgers. They hold the mark by which others distinguish the run from a killed one, as long as they live.
    pub(crate) registry: Registry,
    /// Its number, which no other run of the dataset has.
    pub run_no: u16,
    /// What it will do.
    pub(crate) spec: S,
}

impl<S: RunSpec> Entered<S> {
    /// Enters a run that writes into a dataset.
    ///
    /// As long as the run is on, the ledgers' connections hold an advisory lock, so that others can distinguish it from a killed one.
    ///
    /// # Errors
    /// When there is no such dataset, a ledger cannot be written, or the ledgers are out of numbers.
    pub fn new(cluster: &Cluster, dataset: &str, spec: S) -> Result<Entered<S>, Refusal> {
        let mut registry = Registry::open(cluster, dataset)?
            .ok_or_else(|| Refusal::new(format!("this database holds no dataset {dataset}")))?;
        let run_no = registry.create(&json(&spec)?)?;
        if !registry.mark(run_no)? {
            let holder = registry.holder_of(run_no);
            registry.withdraw(run_no)?;
            return Err(match holder {
                Some(holder) => {
                    let hint = format!(
                        "run it again; if it is no pgfathom, end it as a superuser: {}",
                        holder.remedy
                    );
                    Refusal::new(format!("{} has the lock of run {run_no}", holder.words)).with_hint(hint)
                }
                None => Refusal::new("another run started at the same moment").with_hint("run it again"),
            });
        }
        Ok(Entered { registry, run_no, spec })
    }

    /// Writes what has become of its description to the ledgers.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    pub(crate) fn update(&mut self) -> Result<(), Refusal> {
        Ok(self.registry.update_spec(self.run_no, &json(&self.spec)?)?)
    }
}

impl<S: RunSpec> Announced for Entered<S> {
    fn finish(mut self: Box<Self>, sessions: &[SessionRecord]) -> Result<(), Refusal> {
        self.spec.finish(sessions);
        let transactions: Vec<u64> = sessions.iter().map(|session| session.transactions).collect();
        Ok(self.registry.finish(self.run_no, &json(&self.spec)?, &transactions)?)
    }

    fn withdraw(mut self: Box<Self>) -> Result<(), Refusal> {
        Ok(self.registry.withdraw(self.run_no)?)
    }
}

/// A run's description as the ledgers have it.
///
/// # Errors
/// When it is none that JSON can hold.
pub(crate) fn json(spec: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(spec).map_err(|error| Refusal::new("cannot describe the run").because(error))
}

/// A workload whose runs are not replayed: the ledgers only have its name, so that `verify` knows that the tables are not as loaded.
#[derive(Debug)]
pub(crate) struct Named {
    dataset: Dataset,
    spec: NamedSpec,
}

/// What the ledgers have about it.
#[derive(Debug, Serialize)]
struct NamedSpec {
    workload: &'static str,
}

impl RunSpec for NamedSpec {}

impl Named {
    /// What enters runs of a workload on this dataset.
    pub(crate) fn boxed(dataset: Dataset, workload: &'static str) -> Box<dyn Announces> {
        Box::new(Named { dataset, spec: NamedSpec { workload } })
    }
}

impl Announces for Named {
    fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    fn announce(
        self: Box<Self>,
        _: InMix<'_>,
        cluster: &Cluster,
        _: &mut Client,
    ) -> Result<LedgerEntry, Refusal> {
        match Entered::new(cluster, &self.dataset.name, self.spec) {
            Ok(entered) => Ok(LedgerEntry { workload: None, announced: Some(Box::new(entered)) }),
            // The ledger lists thousands of runs: one more changes nothing about what `verify` expects.
            Err(Refusal::Load(LoadError::WritersExhausted { .. })) => {
                Ok(LedgerEntry { workload: None, announced: None })
            }
            Err(refusal) => Err(refusal),
        }
    }
}
