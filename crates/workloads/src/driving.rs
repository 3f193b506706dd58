//! What a run drives: the list of the benchmarks, what each says about being driven, and what it compares with the server.
//!
//! To add one: implement [`run::workload::Workload`] and [`Family`] in its own folder, and add its line to the list below.

use std::collections::BTreeMap;
use std::fmt::Debug;

use postgres::Client;
use record::summary::Summary;
use run::drive::Account;
use run::verdict::Opinion;
use wire::prepared::Wire;

use crate::{chbench, documents, tpcb};

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
    Ycsb(run::workload::ycsb::Ycsb);
    /// Scripts in pgbench's language.
    Scripts(run::workload::script::Scripts);
    /// Five transactions of a wholesaler.
    Tpcc(crate::tpcc::run::Tpcc);
    /// Balances of accounts, tellers and branches.
    Tpcb(tpcb::run::Tpcb) by &tpcb::run::TpcbFamily;
    /// JSON documents.
    Documents(documents::run::DocumentsRun) by &documents::family::DocumentsFamily;
    /// TPC-C with analytic queries beside it.
    ChBench(chbench::run::ChBench) by &chbench::run::ChBenchFamily;
}

/// A built-in workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builtin {
    /// What the user types after -b.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
}

/// A flag of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub long: &'static str,
    /// What its value is called.
    pub value_name: &'static str,
    /// Its help.
    pub help: &'static str,
}

/// What a run gives to the benchmarks that it mixes.
#[derive(Clone, Debug)]
pub struct Given {
    /// Sessions of the run.
    pub sessions: u64,
    /// Its seed.
    pub seed: u64,
    /// Messages and formats.
    pub wire: Wire,
    /// The flags of benchmarks that were typed, by their names.
    pub flags: BTreeMap<&'static str, String>,
}

impl Given {
    /// The value of a flag; `default` where it was not typed.
    ///
    /// # Errors
    /// When the value is none of its type; `example` shows one that is.
    pub fn flag<T: std::str::FromStr>(&self, long: &str, default: T, example: &str) -> Result<T, Refusal> {
        let Some(text) = self.flags.get(long) else { return Ok(default) };
        text.parse().map_err(|_| {
            Refusal::new(format!("--{long} {text}: that is not possible"))
                .with_hint(format!("write it as --{long} {example}"))
        })
    }
}

/// A workload that is ready to be driven.
#[derive(Debug)]
pub struct Prepared {
    /// What is driven.
    pub workload: Benchmark,
    /// What it is driven on, as the run directory names it.
    pub dataset: record::model::Dataset,
    /// What is compared with the server.
    pub audit: Option<Box<dyn ServerAudit>>,
}

/// Tables, with their schema where it is known.
pub type Tables = Vec<(Option<String>, &'static str)>;

/// The built-in workloads of one benchmark. All of them that are asked for are one workload, and share a session's state.
pub trait Family: Debug + Sync {
    /// What fills their tables.
    fn filled_by(&self) -> &'static str;

    /// Their names.
    fn builtins(&self) -> &'static [Builtin];

    /// Their flags.
    fn flags(&self) -> &'static [Flag] {
        &[]
    }

    /// Checks what can be checked without a server.
    ///
    /// # Errors
    /// When flags do not go together.
    fn check(&self, _given: &Given) -> Result<(), Refusal> {
        Ok(())
    }

    /// The tables they work on.
    ///
    /// # Errors
    /// When the target lacks them.
    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal>;

    /// Finds their tables in the target and puts the workload together; `asked` has names and weights.
    ///
    /// # Errors
    /// When the target lacks the tables, or flags do not fit them.
    fn prepare(
        &self,
        asked: &[(&'static str, u64)],
        given: &Given,
        client: &mut Client,
    ) -> Result<Prepared, Refusal>;
}

/// The family of a built-in workload, and the workload.
pub fn family_of(name: &str) -> Option<(&'static dyn Family, &'static Builtin)> {
    FAMILIES.iter().find_map(|family| {
        let builtin = family.builtins().iter().find(|builtin| builtin.name == name)?;
        Some((*family, builtin))
    })
}

/// What a benchmark knows about its tables that the client can check: the server is asked before the first transaction and after the last one.
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

    /// Writes what the run came to into its summary, and into `opinion` what speaks against it. The benchmark's items begin at `first` among
    /// those of the mix.
    fn judge(&self, account: &Account, first: usize, summary: &mut Summary, opinion: &mut Opinion);
}

/// Why a benchmark cannot be driven here.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    message: String,
    hint: Option<String>,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Refusal {
    /// With this message.
    pub fn new(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), hint: None, cause: None }
    }

    /// The same with what to type next.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Refusal {
        Refusal { hint: Some(hint.into()), ..self }
    }

    /// The same with what it follows from.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Refusal {
        Refusal { cause: Some(cause.into()), ..self }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// The schema that has a table of this name: the one of a loaded dataset, else `public`, else the first by name.
///
/// # Errors
/// When the server does not answer.
pub fn schema_of(client: &mut Client, dataset: &str, table: &str) -> Result<Option<String>, Refusal> {
    if let Some(known) = loaded(client, dataset)? {
        return Ok(Some(known.schema_name));
    }
    let sql = "select n.nspname::text from pg_catalog.pg_class c
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               where c.relname = $1 and c.relkind in ('r', 'p', 'f')
               order by n.nspname <> 'public', n.nspname limit 1";
    let row = client.query_opt(sql, &[&table]).map_err(|error| failed("look for a table", error))?;
    Ok(row.map(|row| row.get(0)))
}

/// What the ledger knows of a dataset.
///
/// # Errors
/// When it is there and not complete, or the ledger cannot be read.
pub fn loaded(client: &mut Client, name: &str) -> Result<Option<load::ledger::Dataset>, Refusal> {
    let unreadable = |error: load::LoadError| Refusal::new("cannot read the ledger").because(error);
    if !load::ledger::exists(client).map_err(unreadable)? {
        return Ok(None);
    }
    let found = load::ledger::find_dataset(client, name).map_err(unreadable)?;
    if found.as_ref().is_some_and(|dataset| !dataset.loaded) {
        return Err(Refusal::new(format!("the dataset {name} of this database is not completely loaded"))
            .with_hint("run the same pgfathom load again: it continues where it stopped"));
    }
    Ok(found)
}

/// The server did not answer.
pub fn failed(doing: &str, error: postgres::Error) -> Refusal {
    Refusal::new(format!("cannot {doing}")).because(error)
}
