//! The flags of benchmarks, which describe themselves. Nothing here knows which they are.

use ::prove::live::Isolation;
use app::quantity::{self, ValueError};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeMap;
use std::time::Duration;
use workloads::driving::{FAMILIES, Flag, Kind, Value};

/// The flags of all families, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, Value>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flags = FAMILIES
            .iter()
            .flat_map(|family| family.flags().iter().map(|flag| (family.about().heading, flag)));
        flags.fold(command, |command, (heading, flag)| command.arg(argument(flag).help_heading(heading)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

/// The help of -b.
pub(super) fn builtins() -> String {
    let of_pgbench = workloads::driving::SCRIPTS_RUN_ON;
    let own = FAMILIES.iter().map(|family| {
        let names: Vec<&str> = family.builtins().iter().map(|builtin| builtin.name).collect();
        format!("{} on tables of {}", names.join(", "), family.about().filled_by)
    });
    format!(
        "Built-in workload, with a weight after @; may be given several times. {}; pgbench's own on tables of {of_pgbench}. -b list describes them all",
        own.collect::<Vec<_>>().join("; ")
    )
}

/// Commands that work, those of scripts last.
pub(super) fn examples() -> String {
    /// Descriptions of longer commands begin behind them.
    const ALIGNED_MAX: usize = 38;
    const OF_SCRIPTS: &[(&str, &str)] = &[
        ("-f order.sql -R 5000 -L 50 -T 10m ...", "a pgbench script at a fixed mean rate"),
        ("-b tpcb-like -c 8 -T 60 bench", "pgbench's own script, on its own tables"),
    ];
    let own = FAMILIES.iter().flat_map(|family| family.about().examples);
    let all: Vec<&(&str, &str)> = own.chain(OF_SCRIPTS).collect();
    let width = all.iter().map(|(typed, _)| typed.len()).filter(|width| *width <= ALIGNED_MAX).max();
    let width = width.unwrap_or(0);
    let lines: Vec<String> =
        all.iter().map(|(typed, about)| format!("  pgfathom run {typed:width$}   {about}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

fn argument(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.long).long(flag.long).help(flag.help).conflicts_with_all(flag.excludes);
    let arg = match flag.kind.value_name() {
        Some(name) => arg.value_name(name).action(ArgAction::Set),
        None => return arg.action(ArgAction::SetTrue),
    };
    match flag.kind {
        Kind::Switch | Kind::Text(_) => arg,
        Kind::Choice(_, words) => {
            arg.value_parser(PossibleValuesParser::new(words)).hide_possible_values(true)
        }
        Kind::Count => arg.value_parser(quantity::positive_count),
        Kind::Time => arg.value_parser(quantity::duration_ms),
        Kind::Isolation => arg.value_parser(quantity::isolation),
        Kind::Percent => arg.value_parser(percent),
    }
}

fn percent(text: &str) -> Result<f64, ValueError> {
    let percent = text.trim().trim_end_matches('%').parse::<f64>().ok();
    percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| {
        ValueError::new(format!("{text:?} is not a percentage"), "write a number from 0 to 100, as 95")
    })
}

/// The value of a flag, if it was given.
fn value(flag: &Flag, matches: &ArgMatches) -> Option<Value> {
    Some(match flag.kind {
        Kind::Switch => matches.get_flag(flag.long).then_some(Value::On)?,
        Kind::Text(_) | Kind::Choice(..) => Value::Text(matches.get_one::<String>(flag.long)?.clone()),
        Kind::Count => Value::Count(*matches.get_one::<u64>(flag.long)?),
        Kind::Time => Value::Time(*matches.get_one::<Duration>(flag.long)?),
        Kind::Isolation => Value::Isolation(*matches.get_one::<Isolation>(flag.long)?),
        Kind::Percent => Value::Percent(*matches.get_one::<f64>(flag.long)?),
    })
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let flags = FAMILIES.iter().flat_map(|family| family.flags());
        Ok(Flags(flags.filter_map(|flag| Some((flag.long, value(flag, matches)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Flags::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Flags {
    /// As the plan of a run has them.
    pub(super) fn value(self) -> BTreeMap<&'static str, Value> {
        self.0
    }
}
