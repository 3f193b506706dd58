//! The list of benchmarks that `run` drives, what each declares, and what it compares with the server.
//!
//! To add one: implement [`run::workload::Workload`] and [`Family`] in its own folder, and add its line to the list below.

use std::fmt::Debug;

use engines::Cluster;
use postgres::Client;
use record::summary::Summary;
use run::drive::Account;
use run::routing::Connects;
use run::terminals::Users;
use run::verdict::Opinion;

use crate::{chbench, documents, tpcb, tpcc, ycsb};

mod flags;
mod keyed;
pub mod pgbench_flags;
mod refusal;
mod writer;

pub use flags::{Flag, Given, Kind, Value};
pub use keyed::{Drawn, Keyed, Owned, keyed};
pub use refusal::Refusal;
use writer::Named;
pub(crate) use writer::json;
pub use writer::{Announced, Announces, Entered, InMix, LedgerEntry, RunSpec};

/// The list: a member of [`Benchmark`] each, and who prepares it where that is done here.
macro_rules! drivable {
    ($($(#[$what:meta])* $Member:ident($Type:ty) $(by $family:expr)?;)+) => {
        run::workloads! {
            /// A workload of any benchmark: a run mixes several of them.
            pub enum Benchmark, BenchmarkSession {
                $($(#[$what])* $Member($Type)),+
            }
        }

        /// All families, in the order in which `-b list` shows them.
        pub static FAMILIES: &[&dyn Family] = &[$($($family,)?)+];
    };
}

drivable! {
    /// Key and value.
    Ycsb(ycsb::run::Ycsb) by &ycsb::YcsbFamily;
    /// Scripts in pgbench's language.
    Scripts(run::workload::script::Scripts);
    /// Five transactions of a wholesaler.
    Tpcc(tpcc::run::Tpcc) by &tpcc::family::TpccFamily;
    /// Balances of accounts, tellers and branches.
    Tpcb(tpcb::run::Tpcb) by &tpcb::run::TpcbFamily;
    /// JSON documents.
    Documents(documents::run::DocumentsRun) by &documents::family::DocumentsFamily;
    /// TPC-C with analytic queries beside it.
    ChBench(chbench::run::ChBench) by &chbench::run::ChBenchFamily;
}

/// What makes the tables that pgbench's own scripts run on.
pub const SCRIPTS_RUN_ON: &str = tpcb::run::FILLED_BY;

/// What to type where these tables are missing.
pub const FILL_SCRIPTS: &str = tpcb::run::FILL_SCRIPTS;

/// A built-in workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builtin {
    /// What the user types after -b.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
}

/// What a workload requests of the nodes where its sessions enter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Its name.
    pub name: String,
    /// It writes.
    pub writes: bool,
    /// Which keys it draws.
    pub keys: Keys,
}

/// The keys that a workload draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// Those of one node, where that is requested.
    OfNode,
    /// New ones, whose nodes follow from them.
    New,
    /// Its own, which no other code knows.
    Own,
}

/// Sessions that draw only keys of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The flag that requests it.
    pub flag: &'static str,
    /// The nodes, by turns.
    pub nodes: Vec<u16>,
}

/// The cluster whose nodes the sessions of a run enter at.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its nodes.
    pub cluster: &'a Cluster,
    /// Sessions enter at the nodes that own rows, and work on the rows of their node.
    pub is_at_owner: bool,
    /// Where each session enters, unless the benchmark decides that.
    pub connects: &'a Connects,
    /// Sessions draw only keys of some nodes.
    pub held: Option<Held>,
}

/// A workload that is ready to be driven.
#[derive(Debug)]
pub struct Prepared {
    /// What is driven.
    pub workload: Benchmark,
    /// The weight of all its items together, beside those that they have.
    pub weight: u64,
    /// What it is driven on, as the run directory names it; `None`: no database.
    pub dataset: Option<record::model::Dataset>,
    /// What is compared with the server.
    pub audit: Option<Box<dyn ServerAudit>>,
    /// What enters the run in the ledgers once everything is prepared, and before its first write.
    pub writer: Option<Box<dyn Announces>>,
    /// The users whose pace the run follows; `None`: it has no users of its own.
    pub users: Option<Users>,
    /// Where each session enters, where the benchmark decides that.
    pub connects: Option<Connects>,
    /// Its statements write through foreign partitions, so that sessions plan each execution.
    pub plans_each: bool,
}

impl Prepared {
    /// This workload, whose items have their weights, at the pace of the run.
    pub fn new(
        workload: impl Into<Benchmark>,
        dataset: record::model::Dataset,
        audit: impl ServerAudit + 'static,
    ) -> Prepared {
        Prepared { audit: Some(Box::new(audit)), ..Prepared::unaudited(workload, dataset) }
    }

    /// The same without anything that is compared with the server.
    pub(crate) fn unaudited(workload: impl Into<Benchmark>, dataset: record::model::Dataset) -> Prepared {
        Prepared {
            workload: workload.into(),
            weight: 1,
            dataset: Some(dataset),
            audit: None,
            writer: None,
            users: None,
            connects: None,
            plans_each: false,
        }
    }

    /// The same whose runs the ledger of this dataset lists by the workload's name, and which are not replayed.
    #[must_use]
    pub(crate) fn listed_in(self, dataset: load::ledger::Dataset, workload: &'static str) -> Prepared {
        Prepared { writer: Some(Named::boxed(dataset, workload)), ..self }
    }
}

/// A search for the largest value of a flag with which a run passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// The flag that requests it.
    pub flag: &'static str,
    /// The flag whose value is searched for: a [`Kind::Count`].
    pub sets: &'static str,
    /// One of what it counts.
    pub unit: &'static str,
}

/// Tables, with their schema where it is known.
pub type Tables = Vec<(Option<String>, &'static str)>;

/// What the workloads of one benchmark are called, and what they take.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The benchmark's name in messages.
    pub title: &'static str,
    /// What fills their tables.
    pub filled_by: &'static str,
    /// What to type where the target lacks the tables.
    pub fill: &'static str,
    /// Their names.
    pub builtins: &'static [Builtin],
    /// Their flags.
    pub flags: &'static [Flag],
    /// The heading of their flags in the help.
    pub heading: &'static str,
    /// Examples for help, without `pgfathom run`, and what they do.
    pub examples: &'static [(&'static str, &'static str)],
}

impl About {
    /// The heading of flags that no benchmark has for itself.
    pub(crate) const HEADING: &'static str = "Benchmarks";

    /// The target has no such dataset.
    pub(crate) fn missing(&self) -> Refusal {
        Refusal::new(format!("this database holds no {} dataset", self.title)).with_hint(self.fill)
    }

    /// The dataset of this name in the target's ledger, complete; `None`: the ledger has none.
    ///
    /// # Errors
    /// When it is not complete, or the ledger cannot be read.
    pub(crate) fn dataset(
        &self,
        client: &mut Client,
        name: &str,
    ) -> Result<Option<load::ledger::Dataset>, Refusal> {
        if !load::ledger::exists(client)? {
            return Ok(None);
        }
        match load::ledger::find_dataset(client, name)? {
            Some(dataset) if !dataset.loaded => Err(self.incomplete()),
            found => Ok(found),
        }
    }

    /// The dataset is there, and some chunks are missing.
    pub(crate) fn incomplete(&self) -> Refusal {
        Refusal::new(format!("the {} dataset of this database is not completely loaded", self.title))
            .with_hint("run the same pgfathom load again: it continues where it stopped")
    }

    /// The schema that has a table of this name: the one of a loaded dataset, else `public`, else the first by name.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) fn schema(
        &self,
        client: &mut Client,
        dataset: &str,
        table: &str,
    ) -> Result<Option<String>, Refusal> {
        if let Some(known) = self.dataset(client, dataset)? {
            return Ok(Some(known.schema_name));
        }
        let sql = "select n.nspname::text from pg_catalog.pg_class c
                   join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                   where c.relname = $1 and c.relkind in ('r', 'p', 'f')
                   order by n.nspname <> 'public', n.nspname limit 1";
        let row = client.query_opt(sql, &[&table]).map_err(|error| failed("look for a table", error))?;
        Ok(row.map(|row| row.get(0)))
    }
}

/// The sum of the weights of what was requested of a benchmark.
pub(crate) fn weight_of(requested: &[(&'static str, u64)]) -> u64 {
    requested.iter().map(|(_, weight)| weight).sum()
}

/// The built-in workloads of one benchmark. All of them that are requested are one workload, and share a session's state.
pub trait Family: Debug + Sync {
    /// What they are called, and what they take.
    fn about(&self) -> &'static About;

    /// The benchmark's name in messages.
    fn title(&self) -> &'static str {
        self.about().title
    }

    /// Their names.
    fn builtins(&self) -> &'static [Builtin] {
        self.about().builtins
    }

    /// Their flags.
    fn flags(&self) -> &'static [Flag] {
        self.about().flags
    }

    /// Why a flag of theirs cannot be given where none of them is run.
    fn not_run(&self, long: &str) -> Refusal {
        let About { title, builtins, .. } = self.about();
        let name = builtins[0].name;
        Refusal::new(format!("--{long} applies to {title}, which is not run"))
            .with_hint(format!("add -b {name}, or omit --{long}"))
    }

    /// Their statements can be sent in every way; else they are prepared.
    fn takes_modes(&self) -> bool {
        false
    }

    /// The workload that only reads, and the one that only updates, whose mixes a sweep compares.
    fn pure(&self) -> Option<[&'static str; 2]> {
        None
    }

    /// What one of them requests of the nodes: it may write, and it draws its own keys unless its sessions can be held to those of a node.
    fn demands(&self, builtin: &Builtin) -> Vec<Demand> {
        let keys = if self.holds_rows() { Keys::OfNode } else { Keys::Own };
        vec![Demand { name: builtin.name.to_string(), writes: true, keys }]
    }

    /// Checks what can be checked without a server.
    ///
    /// # Errors
    /// When flags do not go together.
    fn check(&self, _given: &Given<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// On a cluster that spreads rows by foreign partitions, sessions enter at the owners of their rows without `--connect owner`.
    fn seeks_owner(&self) -> bool {
        false
    }

    /// Sessions can be held to the rows of the node that they enter at.
    fn holds_rows(&self) -> bool {
        false
    }

    /// The tables they work on.
    ///
    /// # Errors
    /// When the target lacks them.
    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal>;

    /// Finds their tables in the target and puts the workload together; `requested` has names and weights.
    ///
    /// # Errors
    /// When the target lacks the tables, or flags do not fit them.
    fn prepare(
        &self,
        requested: &[(&'static str, u64)],
        given: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal>;

    /// The flag with which no database is driven, where there is one.
    fn simulates(&self) -> Option<&'static str> {
        None
    }

    /// The workload without a database.
    ///
    /// # Errors
    /// When it needs one, or flags do not fit.
    fn simulated(&self, _given: &Given<'_>) -> Result<Prepared, Refusal> {
        Err(Refusal::new(format!("{} needs a database", self.title())))
    }

    /// What a run can search for.
    fn search(&self) -> Option<Search> {
        None
    }

    /// The largest value that a search may try on this target.
    ///
    /// # Errors
    /// When the target lacks the tables.
    fn search_limit(&self, _client: &mut Client) -> Result<u64, Refusal> {
        Ok(1)
    }

    /// Whether a step of a search passes, by the benchmark's own entry.
    fn passes(&self, summary: &Summary) -> bool {
        let own = summary.benchmarks.iter().find(|benchmark| benchmark.name == self.title());
        own.is_some_and(|benchmark| benchmark.passes == Some(true))
    }
}

/// The names of all workloads that only read, and whose sessions can be held to the rows of a node; and of those that update rows, too.
pub fn held_to_nodes() -> (Vec<&'static str>, Vec<&'static str>) {
    let of = |is_fit: fn(&Demand) -> bool| {
        let fits = move |family: &dyn Family, builtin: &Builtin| family.demands(builtin).iter().all(is_fit);
        let all =
            FAMILIES.iter().flat_map(|family| family.builtins().iter().map(|builtin| (*family, builtin)));
        all.filter(|(family, builtin)| fits(*family, builtin)).map(|(_, builtin)| builtin.name).collect()
    };
    (of(|demand| !demand.writes), of(|demand| demand.keys == Keys::OfNode))
}

/// The family of a built-in workload, and the workload.
pub fn family_of(name: &str) -> Option<(&'static dyn Family, &'static Builtin)> {
    FAMILIES.iter().find_map(|family| {
        let builtin = family.builtins().iter().find(|builtin| builtin.name == name)?;
        Some((*family, builtin))
    })
}

/// What a benchmark knows about its tables that the client can check: the server is queried before the first transaction and after the last one.
pub trait ServerAudit: Debug {
    /// Asks the server before the first transaction.
    ///
    /// # Errors
    /// When it does not answer.
    fn before(&mut self, client: &mut Client) -> Result<(), Refusal>;

    /// Asks the server after the last transaction.
    ///
    /// # Errors
    /// When it does not answer.
    fn after(&mut self, client: &mut Client) -> Result<(), Refusal>;

    /// The proof that checks the same tables at any later time: `pgfathom prove NAME`.
    fn proof(&self) -> Option<&'static str> {
        None
    }

    /// Writes what the run came to into its summary, and into `opinion` what speaks against it. The benchmark's items begin at `first` among
    /// those of the mix.
    fn judge(&self, account: &Account, first: usize, summary: &mut Summary, opinion: &mut Opinion);
}

/// The server did not answer.
pub fn failed(doing: &str, error: postgres::Error) -> Refusal {
    Refusal::new(format!("cannot {doing}")).because(error)
}
