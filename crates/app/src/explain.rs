//! `explain`: find the causes of a result, or of the difference between two, with evidence.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::machines;
use crate::quantity::{self, ValueError};
use crate::recording;
use ::explain::case::Case;
use ::explain::{Detail, comparison};
use record::finding::Window;
use record::{Exit, RecordError, files};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What to type where an interval is refused.
const INTERVAL_HINT: &str = "write FROM-TO in seconds from the start of the run, as 60-120 or 1m-2m30s";
/// The version that findings name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A part of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval(Window);

impl FromStr for Interval {
    type Err = ValueError;

    /// Reads `FROM-TO`.
    fn from_str(text: &str) -> Result<Interval, ValueError> {
        let refused = |why: &str| ValueError::new(format!("{text:?} {why}"), INTERVAL_HINT);
        let (from, to) = text.split_once('-').ok_or_else(|| refused("is not an interval"))?;
        let time_us = |text: &str| {
            let time = quantity::duration_or_zero(text.trim());
            time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
                .map_err(|error| ValueError::new(error.message, INTERVAL_HINT))
        };
        let (from_us, to_us) = (time_us(from)?, time_us(to)?);
        if from_us >= to_us {
            return Err(refused("does not end after its begin"));
        }
        Ok(Interval(Window::new(from_us, to_us)))
    }
}

/// What a run is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Against {
    /// Another run directory or bundle; absent: the same run.
    pub run: Option<PathBuf>,
    /// A part of it; absent: all of it.
    pub during: Option<Interval>,
}

impl FromStr for Against {
    type Err = ValueError;

    /// Reads `DIR`, `FROM-TO` or `DIR@FROM-TO`. What exists is a directory, whatever it is called.
    fn from_str(text: &str) -> Result<Against, ValueError> {
        if text.is_empty() {
            return Err(ValueError::new("an empty name", "name a run directory, or write FROM-TO"));
        }
        if !Path::new(text).exists() {
            if let Ok(during) = text.parse() {
                return Ok(Against { run: None, during: Some(during) });
            }
            if let Some((run, during)) = text.rsplit_once('@') {
                return Ok(Against { run: Some(run.into()), during: Some(during.parse()?) });
            }
        }
        Ok(Against { run: Some(text.into()), during: None })
    }
}

/// Which run to explain.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The run directory, or a bundle of one.
    pub run: PathBuf,
    /// A part of it.
    pub during: Option<Interval>,
    /// What it is compared with.
    pub against: Option<Against>,
}

impl Plan {
    /// Explains the run, writes its findings and prints them; or compares it, and prints what changed.
    ///
    /// # Errors
    /// When RUN is no run directory, or an interval of it has no samples.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        self.run = machines::opened(&self.run, context)?;
        match self.against.take() {
            Some(against) => self.compare(against, context),
            None => self.explain(context),
        }
    }

    fn compare(self, against: Against, context: &Context) -> Result<Exit, Failure> {
        if against.run.is_none() && self.during.is_none() {
            return Err(Failure::usage(
                "an interval was given to compare with, but not which interval is compared",
            )
            .hint("add --during FROM-TO, as --during 60-120 --against 0-60"));
        }
        let earlier = match &against.run {
            Some(run) => machines::opened(run, context)?,
            None => self.run.clone(),
        };
        let idle = context.stop.nothing_in_flight();
        let before = opened(&earlier, against.during)?;
        let after = opened(&self.run, self.during)?;
        let found = comparison::compare(&before, &after, VERSION);
        let text = match context.format {
            Format::Text => comparison::text(&found, detail(context)),
            Format::Json => serde_json::to_string_pretty(&found)
                .map_err(|error| Failure::caused("cannot write the comparison", error))?,
        };
        drop(idle);
        context.terminal.data(&text);
        Ok(Exit::Ok)
    }

    fn explain(self, context: &Context) -> Result<Exit, Failure> {
        // Nothing is written before the findings are complete, and a large recording takes long: the first request ends the process.
        let idle = context.stop.nothing_in_flight();
        let findings = ::explain::judge(&opened(&self.run, self.during)?, VERSION);
        let text = match context.format {
            Format::Text => ::explain::text(&findings, detail(context)),
            Format::Json => findings.to_json()?,
        };
        drop(idle);
        context.terminal.data(&text);
        if self.during.is_some() {
            context
                .terminal
                .say("findings of an interval are only printed; findings.json has those of the whole run");
            return Ok(Exit::Ok);
        }
        // The directory may be read-only, and the findings are already printed.
        match findings.write(&self.run) {
            Ok(()) => {
                context.terminal.say(&format!("findings: {}", self.run.join(files::FINDINGS).display()))
            }
            Err(RecordError::Io { source, path, .. }) if recording::is_not_ours(&source) => {
                context.terminal.warn(&format!(
                    "cannot write {}: {source}; the findings were only printed",
                    path.display()
                ));
            }
            Err(error) => {
                return Err(Failure::from(error).context("the findings were only printed"));
            }
        }
        Ok(Exit::Ok)
    }
}

/// A recording, or a part of it.
fn opened(dir: &Path, during: Option<Interval>) -> Result<Case, Failure> {
    let interval = during.map(|Interval(window)| window);
    let case = Case::open_within(dir, interval)
        .map_err(|error| Failure::from(error).or_hint("name a run directory; ls runs/ lists them"))?;
    if let Some(interval) = interval.filter(|_| case.nodes().is_empty() && case.hosts().is_empty()) {
        let seconds = |us: u64| us as f64 / 1e6;
        let (from, to) = (seconds(interval.from_us), seconds(interval.to_us));
        return Err(Failure::usage(format!(
            "nothing was recorded from second {from} to {to} of {}",
            dir.display()
        ))
        .hint(format!("the recording ends at second {}", seconds(Case::open(dir)?.span.to_us))));
    }
    Ok(case)
}

fn detail(context: &Context) -> Detail {
    if context.terminal.is_verbose() { Detail::Full } else { Detail::Short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_and_others_are_refused() {
        let interval =
            |text: &str| text.parse::<Interval>().map(|Interval(window)| (window.from_us, window.to_us));
        assert_eq!(interval("60-120"), Ok((60_000_000, 120_000_000)));
        assert_eq!(interval("0-1m30s"), Ok((0, 90_000_000)));
        for wrong in ["", "60", "60-60", "120-60", "a-b", "-5", "5-", "1-2-3"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_run_is_compared_with_is_a_directory_an_interval_or_both() {
        let against = |text: &str| text.parse::<Against>().map(|found| (found.run, found.during.is_some()));
        assert_eq!(against("0-60"), Ok((None, true)));
        assert_eq!(against("runs/a"), Ok((Some("runs/a".into()), false)));
        assert_eq!(against("runs/a@b@5-10"), Ok((Some("runs/a@b".into()), true)));
        assert!(against("").is_err() && against("runs/a@5").is_err());
    }
}
