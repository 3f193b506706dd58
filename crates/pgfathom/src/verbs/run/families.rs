//! The flags of benchmarks that describe themselves. Nothing here knows which they are.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeMap;
use workloads::driving::FAMILIES;

/// The flags of all families, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, String>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flags = FAMILIES.iter().flat_map(|family| family.flags());
        flags.fold(command, |command, flag| {
            command.arg(
                Arg::new(flag.long)
                    .long(flag.long)
                    .value_name(flag.value_name)
                    .help(flag.help)
                    .action(ArgAction::Set)
                    .help_heading("Benchmarks"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let flags = FAMILIES.iter().flat_map(|family| family.flags());
        let given = flags.filter_map(|flag| Some((flag.long, matches.get_one::<String>(flag.long)?.clone())));
        Ok(Flags(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Flags::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Flags {
    /// As the plan of a run has them.
    pub(super) fn value(&self) -> BTreeMap<&'static str, String> {
        self.0.clone()
    }
}
