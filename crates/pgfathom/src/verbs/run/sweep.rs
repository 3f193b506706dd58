//! The flags of a sweep.

use app::quantity::{self, ValueError};
use app::run::sweep::Options;
use clap::Args;

/// Most passes.
const REPEATS_MAX: u64 = 100;
/// Percent of a pure mix.
const WHOLE: u64 = 100;

/// The flags of a sweep.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sweep")]
#[group(id = "sweep")]
pub struct Flags {
    /// Mixes of reads and updates by key in percent, as 100/0,50/50,0/100, instead of -b and -f; each mix is driven with every number
    /// of sessions, and compared with pure reads and pure updates. Rows are chosen uniformly unless --keys sets a distribution
    #[arg(long, value_name = "R/U,...", value_parser = mixes, conflicts_with_all = ["builtin", "file"])]
    pub read_update: Option<Mixes>,
    /// Number of passes over all steps of a sweep, or over a single run; every second pass runs in reverse order
    #[arg(long, value_name = "N", default_value = "1", value_parser = repeats)]
    pub repeat: u64,
    /// In a sweep, end a warm-up early, as soon as throughput stays within this many percent; 0: use the whole warm-up [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub settle: Option<f64>,
    /// In a sweep, do not gather statistics of the workload's tables first
    #[arg(long)]
    pub no_analyze: bool,
    /// In a sweep, do not request a checkpoint before each step
    #[arg(long)]
    pub no_checkpoint: bool,
}

impl Flags {
    /// What the flags select.
    pub fn value(self) -> Options {
        Options {
            read_percents: self.read_update.map(|mixes| mixes.0),
            repeat: self.repeat,
            settle: self.settle,
            no_analyze: self.no_analyze,
            no_checkpoint: self.no_checkpoint,
        }
    }
}

/// Percents of reads, in the order they were typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mixes(Vec<u64>);

fn mixes(text: &str) -> Result<Mixes, ValueError> {
    const HINT: &str = "write percents of reads and updates that add up to 100, as 100/0,50/50,0/100";
    let mut all = vec![];
    for word in text.split(',').map(str::trim) {
        let (reads, updates) = word
            .split_once('/')
            .ok_or_else(|| ValueError::new(format!("{word:?} is not reads/updates"), HINT))?;
        let number = |text: &str| {
            quantity::count(text)
                .map_err(|error| ValueError::new(format!("{word:?}: {}", error.message), HINT))
        };
        let (reads, updates) = (number(reads)?, number(updates)?);
        if reads.checked_add(updates) != Some(WHOLE) {
            return Err(ValueError::new(format!("{word:?} does not add up to {WHOLE}"), HINT));
        }
        if all.contains(&reads) {
            return Err(ValueError::new(format!("{word:?} is given twice"), HINT));
        }
        all.push(reads);
    }
    Ok(Mixes(all))
}

fn repeats(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        many if many > REPEATS_MAX => {
            Err(ValueError::new(format!("{many} is more than {REPEATS_MAX} passes"), "give a smaller number"))
        }
        repeats => Ok(repeats),
    }
}

fn percent(text: &str) -> Result<f64, ValueError> {
    text.trim()
        .trim_end_matches('%')
        .parse::<f64>()
        .ok()
        .filter(|value| (0.0..=100.0).contains(value))
        .ok_or_else(|| {
            ValueError::new(
                format!("{text:?} is not a percentage"),
                "write a number from 0 to 100, as 5; 0 uses the whole warm-up",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_percents_that_add_up() {
        assert_eq!(mixes("100/0, 50/50,0/100"), Ok(Mixes(vec![100, 50, 0])));
        for (text, expected) in [
            ("50", "\"50\" is not reads/updates"),
            ("60/30", "\"60/30\" does not add up to 100"),
            ("50/50,50/50", "\"50/50\" is given twice"),
            ("a/b", "\"a/b\": \"a\" is not a number"),
            ("18446744073709551615/101", "does not add up to 100"),
        ] {
            let error = mixes(text).expect_err(text);
            assert!(error.message.contains(expected), "{text}: {}", error.message);
        }
    }
}
