//! From `-b` and `-f` to a workload: names looked up, scripts compiled, the dataset requested, the run entered among its writers.

use super::assembled::{Assembled, Entries};
use super::scripts::{Read, Script, Selected};
use super::{Plan, Protocol, Weighted, families};
use crate::connection::{Address, users_relation};
use crate::failure::Failure;
use crate::terminal::Terminal;
use connect::ConnSpec;
use connect::control::Control;
use engines::Cluster;
use load::ledger::{self, Dataset};
use run::script::argument::{self, SCRIPTS_MAX, file_source};
use run::script::{self, Mix, Predefined, Source, default_seed};
use run::workload::Mix as Mixed;
use run::workload::script::Scripts;
use run::workload::script::short_name;
use std::sync::Arc;
use workloads::driving::{
    Announces, Benchmark, Demand, FILL_SCRIPTS, InMix, Keys, LedgerEntry, SCRIPTS_RUN_ON, ServerAudit,
};

/// The tables of pgbench.
pub(super) const PGBENCH_TABLES: [&str; 4] =
    ["pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers"];

/// The tables that a workload works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tables {
    /// These, with their schema where it is known.
    Named(Vec<(Option<String>, &'static str)>),
    /// Those of the user's own scripts, whichever they are.
    Unknown,
}

/// What is put together before the mix.
#[derive(Default)]
struct Parts {
    datasets: Vec<record::model::Dataset>,
    /// With the place of the part they belong to.
    audits: Vec<(usize, Box<dyn ServerAudit>)>,
    /// Likewise.
    writers: Vec<(usize, Box<dyn Announces>)>,
    users: Option<run::terminals::Users>,
    connects: Option<run::routing::Connects>,
    plans_each: bool,
    scale: Option<i64>,
}

/// All built-in workloads, one line each.
pub fn list() -> String {
    let mut text = families::list();
    text.push_str(&format!("On tables of {SCRIPTS_RUN_ON}:\n"));
    for builtin in &script::BUILTINS {
        text.push_str(&format!("  {:<14} {}\n", builtin.name, builtin.description));
    }
    text.trim_end().to_string()
}

/// The names of the built-in workloads that pgbench does not know.
fn own_names() -> impl Iterator<Item = &'static str> {
    families::builtins().map(|builtin| builtin.name)
}

/// The name of the built-in that was meant: this one, or the only one that begins so. pgbench knows three names, and its commands are to
/// work here as they do there: what is unambiguous for it is so for us.
pub(super) fn builtin_name(wanted: &str) -> Result<&'static str, Failure> {
    let pgbench = script::BUILTINS.map(|builtin| builtin.name);
    let names: Vec<&'static str> = own_names().chain(pgbench).collect();
    if let Some(exact) = names.iter().copied().find(|name| *name == wanted) {
        return Ok(exact);
    }
    let found: Vec<&'static str> = names.into_iter().filter(|name| name.starts_with(wanted)).collect();
    let of_pgbench: Vec<&'static str> = found.iter().copied().filter(|name| pgbench.contains(name)).collect();
    match (&found[..], &of_pgbench[..]) {
        ([name], _) | (_, [name]) => Ok(*name),
        ([], _) => Err(Failure::usage(format!("-b {wanted}: there is no built-in workload of that name"))
            .hint("pgfathom run -b list shows them all; use -f for your own script")),
        _ => Err(Failure::usage(format!("-b {wanted}: {} built-in workloads begin with that", found.len()))
            .hint(format!("write more of the name: {}", found.join(", ")))),
    }
}

/// What a beginning that several names share was taken for, where pgbench's names decided, or where a name of ours is a beginning of one of
/// pgbench's: the user may have meant the other.
pub(super) fn taken_for(wanted: &str) -> Option<String> {
    let name = builtin_name(wanted).ok()?;
    if name == wanted {
        let pgbench = script::BUILTINS.iter().map(|builtin| builtin.name);
        let mut longer = pgbench.filter(|other| *other != name && other.starts_with(wanted));
        return longer
            .next()
            .map(|other| format!("-b {wanted} is a workload of pgfathom; in pgbench it means {other}"));
    }
    let others: Vec<&str> = own_names().filter(|other| *other != name && other.starts_with(wanted)).collect();
    let begin = if others.len() > 1 { "begin" } else { "begins" };
    (!others.is_empty()).then(|| {
        format!("-b {wanted} is {name}, as in pgbench; {} also {begin} with it", others.join(" and "))
    })
}

/// The built-in of this name.
fn builtin(wanted: &Weighted) -> Result<Selected, Failure> {
    let name = builtin_name(&wanted.name)?;
    if let Some(builtin) = families::builtins().find(|builtin| builtin.name == name) {
        return Ok(Selected::Family(builtin, wanted.weight));
    }
    let source = argument::builtin_source(&format!("{name}@{}", wanted.weight)).map_err(from_argument)?;
    let sha256 = argument::sha256(source.text.as_bytes());
    Ok(Selected::Script(Script { source, sha256 }))
}

fn from_argument(error: argument::ArgumentError) -> Failure {
    let hint = error.hint();
    let failure = match std::error::Error::source(&error) {
        Some(source) => Failure::usage(format!("{error}: {source}")),
        None => Failure::usage(error.to_string()),
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure.hint("check the path of the script; -b list shows the built-in workloads"),
    }
}

impl Plan {
    /// The workload, read and compiled at the first call: everything about it that can be checked without a server.
    pub(super) fn read(&self) -> Result<&Read, Failure> {
        self.prepared.scripts.get(|| {
            let selected = self.read_selection()?;
            let mix = self.compile(&selected)?.map(Arc::new);
            Ok(Read { selected, mix })
        })
    }

    /// The database of a connection.
    fn database(&self) -> Option<&str> {
        match &self.address {
            Address::Connection(resolved) => Some(resolved.spec.dbname.as_str()),
            Address::File(_) => None,
        }
    }

    fn read_selection(&self) -> Result<Vec<Selected>, Failure> {
        let mut selected: Vec<Selected> = self.builtin.iter().map(builtin).collect::<Result<_, _>>()?;
        if self.file.iter().filter(|file| file.name == argument::STDIN).count() > 1 {
            return Err(Failure::usage("-f -: standard input is given twice, but can be read only once")
                .hint("write the script to a file, and name that"));
        }
        for file in &self.file {
            let (source, sha256) =
                file_source(&format!("{}@{}", file.name, file.weight)).map_err(from_argument)?;
            selected.push(Selected::Script(Script { source, sha256 }));
        }
        if selected.is_empty() {
            let failure = Failure::usage("nothing to run: neither -b nor -f was given");
            // `run ycsb-a`: what stands alone is the database.
            return Err(match self.database().filter(|name| is_workload(name)) {
                Some(name) => failure
                    .hint(format!("{name} was taken for the database; name a workload behind -b: -b {name}")),
                None => failure.hint(format!(
                    "try -b {}, or -b list for all built-in workloads, or -f script.sql",
                    families::example()
                )),
            });
        }
        if selected.len() > SCRIPTS_MAX {
            return Err(Failure::usage(format!(
                "{} workloads and scripts in one mix; the maximum is {SCRIPTS_MAX}",
                selected.len()
            ))
            .hint("give fewer -b and -f"));
        }
        if selected.iter().map(Selected::weight).sum::<u64>() == 0 {
            return Err(Failure::usage("all weights are 0: nothing would run")
                .hint(format!("give one a weight above 0, as in {}@1", families::example())));
        }
        self.check_families(&selected)?;
        let has_script = selected.iter().any(|selected| selected.script().is_some());
        if !has_script && !self.define.is_empty() {
            return Err(Failure::usage("-D sets a variable of scripts, and no script is run")
                .hint("add -f script.sql, or omit -D"));
        }
        Ok(selected)
    }

    /// The workloads' names, joined.
    pub(super) fn workload_name(&self) -> Result<String, Failure> {
        let name = |selected: &Selected| match selected {
            Selected::Family(builtin, _) => builtin.name.to_string(),
            Selected::Script(script) => short_name(&script.source.name),
        };
        Ok(self.read()?.selected.iter().map(name).collect::<Vec<_>>().join("+"))
    }

    /// What run.json keeps of its scripts; `None` where there are none.
    pub(super) fn described_scripts(&self) -> Option<Vec<serde_json::Value>> {
        let selected = &self.read().ok()?.selected;
        let scripts: Vec<_> = selected.iter().filter_map(Selected::script).map(Script::described).collect();
        (!scripts.is_empty()).then_some(scripts)
    }

    /// The tables it works on.
    ///
    /// # Errors
    /// When the target lacks the dataset.
    pub(super) fn tables(&self, control: &mut Control) -> Result<Tables, Failure> {
        let mut named = vec![];
        for selected in &self.read()?.selected {
            match selected {
                Selected::Script(script) if is_builtin(&script.source) => {
                    for table in PGBENCH_TABLES
                        .into_iter()
                        .filter(|table| !named.contains(&(None, *table)))
                        .collect::<Vec<_>>()
                    {
                        named.push((None, table));
                    }
                }
                Selected::Script(_) => return Ok(Tables::Unknown),
                Selected::Family(builtin, _) => {
                    for table in self.tables_of_family(builtin, control)? {
                        if !named.contains(&table) {
                            named.push(table);
                        }
                    }
                }
            }
        }
        Ok(Tables::Named(named))
    }

    /// Checks the workload's flags and files, touching no server.
    pub(super) fn check_workload(&self) -> Result<(), Failure> {
        self.read().map(drop)
    }

    fn compile(&self, selected: &[Selected]) -> Result<Option<Mix>, Failure> {
        let sources: Vec<Source> = selected
            .iter()
            .filter_map(|selected| selected.script().map(|script| script.source.clone()))
            .collect();
        if sources.is_empty() {
            return Ok(None);
        }
        let defines = self.define.iter().map(|define| (define.name.clone(), define.value.clone())).collect();
        let mode = self.protocol_of(selected).mode();
        let mix = Mix::compile(&sources, &script::Options { mode, defines }).map_err(|error| {
            let failure = Failure::usage(error.to_string());
            match error.hint() {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        Ok(Some(mix))
    }

    /// How statements are sent: as requested; else as pgbench does where only its scripts are run, and prepared where a workload of ours is.
    pub(super) fn protocol(&self) -> Result<Protocol, Failure> {
        Ok(self.protocol_of(&self.read()?.selected))
    }

    pub(super) fn protocol_of(&self, selected: &[Selected]) -> Protocol {
        let only_scripts = selected.iter().all(|selected| selected.script().is_some());
        self.protocol.unwrap_or(if only_scripts { Protocol::Simple } else { Protocol::Prepared })
    }

    /// Puts the workload together and, where it will write into a dataset, announces it in the target's ledger.
    pub(super) fn assemble(
        &self,
        control: &mut Control,
        spec: &ConnSpec,
        seed: u64,
        terminal: &dyn Terminal,
    ) -> Result<Assembled, Failure> {
        let Read { selected, mix } = self.read()?;
        self.route.check_mix(&self.demands(selected))?;
        self.check_tables(control, spec, selected)?;
        let mut parts: Vec<(Benchmark, u64)> = Vec::new();
        let mut assembled = Parts::default();
        for prepared in self.prepare_families(selected, control, seed)? {
            assembled.datasets.extend(prepared.dataset);
            assembled.audits.extend(prepared.audit.map(|audit| (parts.len(), audit)));
            assembled.writers.extend(prepared.writer.map(|writer| (parts.len(), writer)));
            assembled.users = assembled.users.or(prepared.users);
            assembled.connects = assembled.connects.or(prepared.connects);
            assembled.plans_each |= prepared.plans_each;
            parts.push((prepared.workload, prepared.weight));
        }
        let uses_pgbench_tables =
            selected.iter().filter_map(Selected::script).any(|script| is_builtin(&script.source));
        if let Some(mix) = mix {
            let scale = self.scale(control, spec, uses_pgbench_tables, terminal)?;
            let predefined = Predefined {
                client_id: 0,
                scale,
                random_seed: seed as i64,
                default_seed: default_seed(seed),
            };
            assembled.scale = Some(scale);
            let scripts =
                Scripts::new(Arc::clone(mix), self.protocol()?.mode(), predefined).filled_by(FILL_SCRIPTS);
            parts.push((scripts.into(), 1));
        }
        let mixed = |parts: &[(Benchmark, u64)]| {
            Mixed::new(parts.iter().cloned())
                .ok_or_else(|| Failure::usage("all weights are 0: nothing would run"))
        };
        let items = mixed(&parts)?;
        let mut writers = Entries::default();
        for (part, writer) in assembled.writers {
            let run = InMix { items: items.items(), first: items.parts()[part].first_item, seed };
            let cluster = self.ledgers(control, spec, writer.dataset())?;
            load::writers::check_pool(control, spec)?;
            let LedgerEntry { workload, announced } = writer.announce(run, &cluster, control)?;
            if let Some(workload) = workload {
                parts[part].0 = workload;
            }
            if let Some(announced) = announced {
                writers.push(announced);
            }
        }
        let mix = mixed(&parts)?;
        let audits = assembled.audits.into_iter();
        Ok(Assembled {
            name: self.workload_name()?,
            datasets: assembled.datasets,
            audits: audits.map(|(part, audit)| (mix.parts()[part].first_item, audit)).collect(),
            mix,
            writers,
            uses_pgbench_tables,
            users: assembled.users,
            connects: assembled.connects,
            plans_each: assembled.plans_each,
            scale: assembled.scale,
        })
    }

    /// What each workload asks of the nodes where sessions enter.
    fn demands(&self, selected: &[Selected]) -> Vec<Demand> {
        let mut demands = vec![];
        for selected in selected.iter().filter(|selected| selected.weight() > 0) {
            match selected {
                Selected::Family(builtin, _) => demands.extend(families::demands(builtin)),
                Selected::Script(script) => demands.push(Demand {
                    name: short_name(&script.source.name),
                    writes: false,
                    keys: Keys::Own,
                }),
            }
        }
        demands
    }

    /// The cluster whose ledgers a run which writes must be entered in: all nodes that the dataset lies on.
    fn ledgers(&self, control: &mut Control, spec: &ConnSpec, dataset: &Dataset) -> Result<Cluster, Failure> {
        let nodes = ledger::layout(&mut **control, dataset.id)?.nodes;
        let cluster = if nodes.is_empty() {
            // One server, or one with standbys: the connection leads to whichever takes writes.
            Cluster::single(spec.clone())
        } else if let Some(cluster) = self.route.cluster() {
            cluster.clone()
        } else {
            match self.address.cluster_of_file()? {
                Some(cluster) => cluster,
                None => Cluster::discover(spec)?,
            }
        };
        let known = cluster.data_nodes().count();
        if known < nodes.len() {
            return Err(Failure::usage(format!(
                "the dataset is on {} nodes ({}), but only {known} of them are known: a run that writes must be recorded on each",
                nodes.len(),
                nodes.join(", ")
            ))
            .hint("name all nodes with --cluster FILE, as pgfathom up writes it"));
        }
        Ok(cluster)
    }

    /// `:scale` as pgbench has it: with its own built-in scripts the branches of its tables, whatever was requested, because other keys do
    /// not exist; else the user's value, or 1. `-D scale=N` goes before both, and is refused where it is wrong.
    fn scale(
        &self,
        control: &mut Control,
        spec: &ConnSpec,
        uses_pgbench_tables: bool,
        terminal: &dyn Terminal,
    ) -> Result<i64, Failure> {
        let defined = self.define.iter().rev().find(|define| define.name == "scale");
        let number = defined.and_then(|define| define.value.parse::<i64>().ok());
        if !uses_pgbench_tables {
            let given = i64::try_from(self.scale.unwrap_or(1))
                .map_err(|_| Failure::usage("-s/--scale: the number is too large"))?;
            return Ok(number.unwrap_or(given));
        }
        let hint = FILL_SCRIPTS;
        let branches = users_relation(spec, "pgbench_branches")?;
        let counted =
            control.query_one(&format!("select count(*) from {branches}"), &[]).map_err(|error| {
                let message = connect::control::server_error(&error)
                    .map_or_else(|| error.to_string(), |error| error.message);
                Failure::usage(format!("cannot read pgbench_branches, which gives the scale: {message}"))
                    .hint(hint)
            })?;
        let scale = counted.get::<_, i64>(0);
        if scale == 0 {
            return Err(Failure::usage("pgbench_branches is empty").hint(hint));
        }
        if let Some(given) = self.scale.filter(|_| self.prepared.scripts.is_first_warning()) {
            terminal.warn(&format!(
                "-s/--scale {given} is ignored: built-in scripts take the scale from pgbench_branches, which has {scale} rows"
            ));
        }
        match (defined, number) {
            (None, _) => Ok(scale),
            // A part of the rows is a fair thing to request.
            (_, Some(number)) if (1..=scale).contains(&number) => Ok(number),
            (Some(define), _) => Err(Failure::usage(format!(
                "-D scale={}: built-in scripts would draw keys that do not exist, pgbench_branches has {scale} rows",
                define.value
            ))
            .hint(format!("omit -D scale, or make larger tables by {SCRIPTS_RUN_ON}"))),
        }
    }
}

/// Whether a built-in workload has this name.
fn is_workload(name: &str) -> bool {
    builtin_name(name).is_ok_and(|found| found == name)
}

pub(super) fn is_builtin(source: &Source) -> bool {
    script::BUILTINS.iter().any(|builtin| builtin.name == source.name && builtin.text == source.text)
}
