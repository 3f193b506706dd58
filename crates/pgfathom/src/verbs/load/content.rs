//! Which dataset the flags ask for.

use super::{KeyOrder, Load};
use crate::failure::Failure;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use data::Compressible;
use load::Dataset;
use workloads::dataset::{DATASETS, Flags, Registration, Request, Size};

/// The names of all datasets that can be filled.
pub(super) fn names() -> Vec<&'static str> {
    DATASETS.iter().map(|dataset| dataset.name).collect()
}

/// What can be filled, in one line each.
pub(super) fn about() -> String {
    let all: Vec<String> =
        DATASETS.iter().map(|dataset| format!("{}, {}", dataset.name, dataset.about)).collect();
    format!("What to fill: {}", all.join("; "))
}

/// Commands that work.
pub(super) fn examples() -> String {
    let all = DATASETS.iter().flat_map(|dataset| dataset.examples);
    let lines: String = all.map(|example| format!("  pgfathom load {example}\n")).collect();
    format!("Examples:\n{lines}The same command again continues where an interrupted load stopped.")
}

/// What -s counts.
pub(super) fn scales() -> String {
    let units = DATASETS.iter().filter_map(|dataset| dataset.scale_unit.map(|unit| (dataset.name, unit)));
    let units: Vec<String> = units.map(|(name, unit)| format!("{name} counts {unit}")).collect();
    format!("Scale: {}", units.join("; "))
}

/// The help of a flag that some datasets take.
pub(super) fn of_takers(flag: &str, about: &str) -> String {
    let takers = DATASETS.iter().filter(|dataset| dataset.takes.contains(&flag));
    let takers: Vec<&str> = takers.map(|dataset| dataset.name).collect();
    format!("{}: {about}", takers.join(", "))
}

/// The flags that single datasets bring.
#[derive(Clone, Debug, Default)]
pub struct OwnFlags(Flags);

impl Args for OwnFlags {
    fn augment_args(command: Command) -> Command {
        DATASETS.iter().flat_map(|dataset| dataset.flags).fold(command, |command, flag| {
            let arg = Arg::new(flag.name).long(flag.name).value_name(flag.value_name);
            command.arg(arg.help(flag.help).help_heading("Data"))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        OwnFlags::augment_args(command)
    }
}

impl FromArgMatches for OwnFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OwnFlags, clap::Error> {
        let flags = DATASETS.iter().flat_map(|dataset| dataset.flags);
        let given = flags.filter_map(|flag| {
            let value = matches.try_get_one::<String>(flag.name).ok().flatten()?;
            Some((flag.name.to_owned(), value.clone()))
        });
        Ok(OwnFlags(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OwnFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Load {
    /// The dataset.
    pub(super) fn content(&self) -> Result<Box<dyn Dataset>, Failure> {
        match workloads::dataset::named(&self.what) {
            Some(registration) => self.registered(registration),
            None => Err(Failure::usage(format!("load: {:?} is unknown", self.what))
                .hint(format!("known: {}", names().join(", ")))),
        }
    }

    fn registered(&self, registration: &Registration) -> Result<Box<dyn Dataset>, Failure> {
        let by_scale = registration.size == Size::Scale;
        let takes = |flag: &str| registration.takes.contains(&flag);
        let given = [
            (self.scale.is_some() && !by_scale, "-s/--scale"),
            (self.rows.is_some() && by_scale, "--rows"),
            (self.size.is_some() && by_scale, "--size"),
            (self.foreign_keys && !takes("--foreign-keys"), "--foreign-keys"),
            (self.fillfactor.is_some() && !takes("--fillfactor"), "--fillfactor"),
            (self.key_order == KeyOrder::Sequential && !takes("--key-order"), "--key-order"),
            (self.compressible != Compressible::NONE && !takes("--compressible"), "--compressible"),
        ];
        let name = registration.name;
        if let Some((_, flag)) = given.iter().find(|(is_refused, _)| *is_refused) {
            return Err(Failure::usage(format!("{flag} is not for load {name}")).hint(registration.example));
        }
        self.refuse_own(registration.flags)?;
        let is_sized = if by_scale { self.scale.is_some() } else { self.rows.or(self.size).is_some() };
        if !is_sized {
            let flags = if by_scale { "-s/--scale" } else { "--rows or --size" };
            let problem = format!("load {name}: {flags} is missing");
            return Err(Failure::usage(problem).hint(registration.example));
        }
        let fillfactor = self.fillfactor.map(u32::try_from).transpose();
        let fillfactor = fillfactor.ok().filter(|percent| percent.is_none_or(|p| (10..=100).contains(&p)));
        let request = Request {
            scale: self.scale,
            rows: self.rows,
            bytes: self.size,
            seed: self.seed,
            key_order: match self.key_order {
                KeyOrder::Scattered => data::KeyOrder::Scattered,
                KeyOrder::Sequential => data::KeyOrder::Sequential,
            },
            compressible: self.compressible,
            fillfactor: fillfactor.ok_or_else(|| {
                Failure::usage(format!(
                    "--fillfactor: {} percent are not possible",
                    self.fillfactor.unwrap_or_default()
                ))
                .hint("give 10 to 100; 90 leaves space for updates in the same page")
            })?,
            foreign_keys: self.foreign_keys,
            flags: self.own.0.clone(),
        };
        Ok((registration.build)(&request)?)
    }

    /// Refuses flags that other datasets bring.
    fn refuse_own(&self, own: &[workloads::dataset::Flag]) -> Result<(), Failure> {
        let is_own = |name: &String| own.iter().any(|flag| flag.name == name);
        match self.own.0.keys().find(|name| !is_own(name)) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!("--{name} is not for load {}", self.what))
                .hint("pgfathom load --help shows which dataset it is for")),
        }
    }
}
