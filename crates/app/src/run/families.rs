//! Benchmarks that describe themselves: their names, their flags, and how they come into a run. Nothing here knows which they are.

use super::Plan;
use super::route::{Demand, Keys};
use super::scripts::Selected;
use crate::failure::Failure;
use connect::control::Control;
use workloads::driving::{Builtin, FAMILIES, Family, Given, Prepared};

/// A family, and the names and weights of its workloads in a mix.
type Chosen = (&'static dyn Family, Vec<(&'static str, u64)>);

/// The families of a mix, each with the workloads that are asked of it.
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

/// All built-in workloads of the families.
pub(super) fn builtins() -> impl Iterator<Item = &'static Builtin> {
    FAMILIES.iter().flat_map(|family| family.builtins())
}

/// What `-b list` says about them.
pub(super) fn list() -> String {
    let mut text = String::new();
    for family in FAMILIES {
        text.push_str(&format!("On tables of {}:\n", family.filled_by()));
        for builtin in family.builtins() {
            text.push_str(&format!("  {:<14} {}\n", builtin.name, builtin.about));
        }
    }
    text
}

impl Plan {
    fn given(&self, seed: u64) -> Given {
        Given { sessions: self.client.first(), seed, wire: self.wire, flags: self.families.clone() }
    }

    /// Checks what the families can check without a server, and flags of families that are not run.
    pub(super) fn check_families(&self, requested: &[Selected]) -> Result<(), Failure> {
        let families = families(requested);
        for (long, family) in FAMILIES.iter().flat_map(|all| all.flags().iter().map(|flag| (flag.long, *all)))
        {
            let is_run = families.iter().any(|(run, _)| run.builtins() == family.builtins());
            if self.families.contains_key(long) && !is_run {
                let name = family.builtins()[0].name;
                return Err(Failure::usage(format!("--{long} belongs to {name}, which is not run"))
                    .hint(format!("add -b {name}, or leave --{long} away")));
            }
        }
        for (family, own) in families {
            family.check(&self.given(0))?;
            let is_prepared = self.protocol.is_none_or(|protocol| protocol == super::Protocol::Prepared);
            if !is_prepared {
                return Err(Failure::usage(format!("-M: {} uses prepared statements only", own[0].0))
                    .hint("leave -M away"));
            }
        }
        Ok(())
    }

    /// Prepares the workloads of the families.
    pub(super) fn prepare_families(
        &self,
        requested: &[Selected],
        control: &mut Control,
        seed: u64,
    ) -> Result<Vec<Prepared>, Failure> {
        let given = self.given(seed);
        let prepare = |(family, own): (&dyn Family, Vec<_>)| Ok(family.prepare(&own, &given, control)?);
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

/// What such a workload asks of the nodes: it may write, and it draws its own keys.
pub(super) fn demand(builtin: &Builtin) -> Demand {
    Demand { name: builtin.name.to_string(), writes: true, keys: Keys::Own }
}
