//! Which dataset the flags ask for.

use super::{KeyOrder, Load};
use crate::failure::Failure;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use data::Compressible;
use load::Dataset;
use workloads::dataset::{DATASETS, Flags, Registration, Request, Size};

/// The names of all datasets that can be filled.
pub(in crate::verbs) fn names() -> Vec<&'static str> {
    DATASETS.iter().map(|dataset| dataset.name).collect()
}

/// What can be filled, in one line each.
pub(in crate::verbs) fn about() -> String {
    let all: Vec<String> =
        DATASETS.iter().map(|dataset| format!("{}, {}", dataset.name, dataset.about)).collect();
    format!("What to fill: {}", all.join("; "))
}

/// Commands that work.
pub(in crate::verbs) fn examples() -> String {
    let all = DATASETS.iter().flat_map(|dataset| dataset.examples);
    let lines: String = all.map(|example| format!("  pgfathom load {example}\n")).collect();
    format!("Examples:\n{lines}The same command again continues where an interrupted load stopped.")
}

/// What -s counts.
pub(in crate::verbs) fn scales() -> String {
    let units = DATASETS.iter().filter_map(|dataset| dataset.scale_unit.map(|unit| (dataset.name, unit)));
    let units: Vec<String> = units.map(|(name, unit)| format!("{name} counts {unit}")).collect();
    format!("Scale: {}", units.join("; "))
}

/// The help of a flag that some datasets take.
pub(in crate::verbs) fn of_takers(flag: &str, about: &str) -> String {
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
    pub(in crate::verbs) fn content(&self) -> Result<Box<dyn Dataset>, Failure> {
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
        self.own.refuse_others(registration)?;
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
            key_order: self.key_order.value(),
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

    /// The dataset of a plan, which must be the one that is named.
    pub(in crate::verbs) fn planned_content(
        &self,
        planned: &record::plan::Plan,
    ) -> Result<Box<dyn Dataset>, Failure> {
        if planned.input.dataset != self.what {
            return Err(Failure::usage(format!(
                "--plan: the plan is for {}, not for {}",
                planned.input.dataset, self.what
            ))
            .hint(format!("pgfathom load {} --plan FILE DBNAME", planned.input.dataset)));
        }
        if let Some(name) = self.own.flags().keys().next() {
            return Err(Failure::usage(format!("--{name} and --plan cannot be used together"))
                .hint("the plan has the content; pgfathom plan makes another one"));
        }
        app::plan::dataset_of(planned)
    }
}

impl OwnFlags {
    /// Those that were given.
    pub(in crate::verbs) fn flags(&self) -> &Flags {
        &self.0
    }

    /// Refuses flags that other datasets bring.
    pub(in crate::verbs) fn refuse_others(&self, dataset: &Registration) -> Result<(), Failure> {
        let is_own = |name: &String| dataset.flags.iter().any(|flag| flag.name == name);
        match self.0.keys().find(|name| !is_own(name)) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!("--{name} is not for load {}", dataset.name))
                .hint("pgfathom load --help shows which dataset it is for")),
        }
    }
}
