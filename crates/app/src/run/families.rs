//! Benchmarks that describe themselves: their names, their flags, and how they come into a run. Nothing here knows which they are.

use super::Plan;
use super::assembled::{Assembled, Entries};
use super::scripts::Selected;
use crate::context::Context;
use crate::failure::Failure;
use crate::skeleton::{NoOutcome, Outcome};
use connect::control::Control;
use record::Exit;
use run::routing::Connects;
use run::workload::Mix as Mixed;
use std::collections::BTreeMap;
use workloads::driving::{Builtin, Demand, FAMILIES, Family, Given, Prepared, Search, Value};

/// A family, and the names and weights of its workloads in a mix.
type Chosen = (&'static dyn Family, Vec<(&'static str, u64)>);

/// The families of a mix, each with the workloads that are requested of it.
fn families(requested: &[Selected]) -> Vec<Chosen> {
    let of = |family: &'static dyn Family| {
        let own: Vec<(&'static str, u64)> = requested
            .iter()
            .filter_map(|requested| match requested {
                Selected::Family(builtin, weight) => {
                    family.builtins().contains(builtin).then_some((builtin.name, *weight))
                }
                _ => None,
            })
            .collect();
        (family, own)
    };
    FAMILIES.iter().map(|family| of(*family)).filter(|(_, own)| !own.is_empty()).collect()
}

/// The workload of this name, or the first one on the dataset of this name.
pub fn workload_meant(name: &str) -> Option<&'static str> {
    let of_name = builtins().find(|builtin| builtin.name == name);
    let of_dataset = || builtins().find(|builtin| builtin.name.split('-').next() == Some(name));
    of_name.or_else(of_dataset).map(|builtin| builtin.name)
}

/// All built-in workloads of the families.
pub(super) fn builtins() -> impl Iterator<Item = &'static Builtin> {
    FAMILIES.iter().flat_map(|family| family.builtins())
}

/// Whether a run with these flags drives a database: a simulation does not.
pub fn needs_target(flags: &BTreeMap<&'static str, Value>) -> bool {
    !FAMILIES.iter().filter_map(|family| family.simulates()).any(|flag| flags.contains_key(flag))
}

/// What `-b list` shows of them.
pub(super) fn list() -> String {
    let mut text = String::new();
    for family in FAMILIES {
        text.push_str(&format!("On tables of {}:\n", family.about().filled_by));
        for builtin in family.builtins() {
            text.push_str(&format!("  {:<14} {}\n", builtin.name, builtin.about));
        }
    }
    text
}

impl Plan {
    /// What is given to the family of `own` workloads among `requested`; `connects` is where sessions enter.
    fn given<'a>(
        &'a self,
        seed: u64,
        (own, requested): (usize, &[Selected]),
        connects: &'a Connects,
    ) -> Given<'a> {
        Given {
            sessions: self.client.first(),
            seed,
            wire: self.wire,
            mode: self.protocol_of(requested).mode(),
            flags: &self.families,
            is_mixed: requested.len() > own,
            has_rate: self.rate.is_some(),
            counts_transactions: self.transactions.is_some(),
            names_data_node: self.route.data.is_some(),
            entry: self.route.entry(connects),
        }
    }

    /// Checks what the families can check without a server, and flags of families that are not run.
    pub(super) fn check_families(&self, requested: &[Selected]) -> Result<(), Failure> {
        let families = families(requested);
        for (long, family) in FAMILIES.iter().flat_map(|all| all.flags().iter().map(|flag| (flag.long, *all)))
        {
            let is_run = families.iter().any(|(run, _)| run.builtins() == family.builtins());
            if self.families.contains_key(long) && !is_run {
                return Err(family.not_run(long).into());
            }
        }
        let connects = Connects::default();
        for (family, own) in &families {
            family.check(&self.given(0, (own.len(), requested), &connects))?;
            let is_prepared = self.protocol.is_none_or(|protocol| protocol == super::Protocol::Prepared);
            if !is_prepared && !family.takes_modes() {
                return Err(Failure::usage(format!("-M: {} uses prepared statements only", family.title()))
                    .hint("omit -M"));
            }
        }
        self.check_single(requested)
    }

    /// Checks that a simulation or a search has nothing beside it.
    fn check_single(&self, requested: &[Selected]) -> Result<(), Failure> {
        const ALONE: &str = "omit the other -b and -f";
        if let Some((family, search)) = self.search()
            && is_mixed(requested, family)
        {
            let (flag, title) = (search.flag, family.title());
            return Err(Failure::usage(format!("--{flag} searches with {title} alone")).hint(ALONE));
        }
        if let Some((family, flag)) = self.simulated()
            && is_mixed(requested, family)
        {
            return Err(Failure::usage(format!(
                "--{flag} uses no database, but the other workloads of this run need one"
            ))
            .hint(ALONE));
        }
        Ok(())
    }

    /// Checks that a sweep has no step that cannot be repeated.
    pub(super) fn check_families_of_sweep(&self) -> Result<(), Failure> {
        const ONE: &str = "give one number after -c, and no --repeat";
        if let Some((_, search)) = self.search() {
            return Err(Failure::usage(format!(
                "--{} searches for a number of {}s, a sweep for a number of sessions",
                search.flag, search.unit
            ))
            .hint(ONE));
        }
        if let Some((_, flag)) = self.simulated() {
            return Err(
                Failure::usage(format!("--{flag} uses no database, so there is nothing to sweep")).hint(ONE)
            );
        }
        Ok(())
    }

    /// The benchmark that is to search, and for what.
    pub(super) fn search(&self) -> Option<(&'static dyn Family, Search)> {
        let of = |family: &&'static dyn Family| family.search().map(|search| (*family, search));
        FAMILIES.iter().filter_map(of).find(|(_, search)| self.families.contains_key(search.flag))
    }

    /// The benchmark that is to be driven without a database, and the flag that requests it.
    pub(super) fn simulated(&self) -> Option<(&'static dyn Family, &'static str)> {
        let of = |family: &&'static dyn Family| family.simulates().map(|flag| (*family, flag));
        FAMILIES.iter().filter_map(of).find(|(_, flag)| self.families.contains_key(flag))
    }

    /// Whether a workload of the mix looks for the owners of its rows by itself.
    pub(super) fn seeks_owner(&self) -> Result<bool, Failure> {
        Ok(families(&self.read()?.selected).iter().any(|(family, _)| family.seeks_owner()))
    }

    /// Drives a benchmark without a database: what is left is the client.
    pub(super) fn run_simulated(&self, family: &dyn Family, context: &Context) -> Result<Exit, Failure> {
        let seed = self.seed();
        let connects = Connects::default();
        let requested = &self.read()?.selected;
        let prepared = family.simulated(&self.given(seed, (requested.len(), requested), &connects))?;
        let name = format!("{}-simulated", family.builtins()[0].name);
        let assembled = Assembled {
            mix: Mixed::of(prepared.workload).ok_or_else(|| Failure::usage("nothing would run"))?,
            name: name.clone(),
            datasets: vec![],
            audits: prepared.audit.into_iter().map(|audit| (0, audit)).collect(),
            writers: Entries::default(),
            uses_pgbench_tables: false,
            users: prepared.users,
            connects: None,
            plans_each: false,
            scale: None,
        };
        // No session dials it.
        let nowhere = self.address.spec(context)?;
        let opening = self.opening(&name);
        opening.in_one_step(opening.begin(context)?, |recording, step| {
            let measured = self.measure(recording, step, &nowhere, None, assembled, seed);
            let measured = measured.map_err(NoOutcome::Refused)?;
            Ok(Outcome::page(measured.state, measured.exit))
        })
    }

    /// Prepares the workloads of the families.
    pub(super) fn prepare_families(
        &self,
        requested: &[Selected],
        control: &mut Control,
        seed: u64,
    ) -> Result<Vec<Prepared>, Failure> {
        let connects = self.route.connects(self.client.first(), seed);
        let prepare = |(family, own): (&dyn Family, Vec<(&'static str, u64)>)| {
            let given = self.given(seed, (own.len(), requested), &connects);
            Ok(family.prepare(&own, &given, control)?)
        };
        families(requested).into_iter().map(prepare).collect()
    }

    /// The tables of a built-in workload.
    pub(super) fn tables_of_family(
        &self,
        builtin: &Builtin,
        control: &mut Control,
    ) -> Result<workloads::driving::Tables, Failure> {
        match workloads::driving::family_of(builtin.name) {
            Some((family, _)) => Ok(family.tables(control)?),
            None => Ok(vec![]),
        }
    }
}

/// What such a workload requests of the nodes.
pub(super) fn demands(builtin: &Builtin) -> Vec<Demand> {
    workloads::driving::family_of(builtin.name).map_or_else(Vec::new, |(family, _)| family.demands(builtin))
}

/// The workload that only reads, and the one that only updates, whose mixes a sweep compares.
pub(super) fn pure() -> Option<[&'static str; 2]> {
    FAMILIES.iter().find_map(|family| family.pure())
}

/// A built-in workload, for hints.
pub(super) fn example() -> &'static str {
    pure().map_or(FAMILIES[0].builtins()[0].name, |[reads, _]| reads)
}

fn is_mixed(requested: &[Selected], family: &dyn Family) -> bool {
    let is_own = |requested: &Selected| match requested {
        Selected::Family(builtin, _) => family.builtins().contains(builtin),
        _ => false,
    };
    !requested.iter().all(is_own)
}
