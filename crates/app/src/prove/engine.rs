//! `prove engine`: whether a cluster is what the profile of its engine claims, as a file that can be sent in.

use super::testbed::{Needs, Testbed};
use crate::connection::Address;
use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::human;
use crate::recording::{Recording, fields};
use crate::skeleton::{NoOutcome, Opening, Outcome, Target};
use ::prove::conformance::{self, Agreement, Line};
use ::prove::fault::Journal;
use ::prove::live::Options;
use ::prove::promise::Settings;
use engines::Cluster;
use record::model::{Check, CheckResult};
use record::{Exit, State, StepId, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The file in the run directory.
const FILE: &str = "engine.json";
/// The version of that file.
const FORMAT: u32 = 1;
/// How long commits are timed.
const COMMITS: Duration = Duration::from_secs(3);

/// Which cluster to compare with its profile.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the target is.
    pub address: Address,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Plan {
    /// Checks every claim and writes the run directory.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or another proof works on its tables. A claim that does not hold is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let journal = Arc::new(Journal::begin(&Journal::default_dir())?);
        let cluster = self.address.cluster(context)?;
        let mut control = connect::control::connect(&cluster.nodes[0].spec)?;
        let server = version(&mut control)?;
        let opening = Opening::new("prove", "engine", self.directory.as_deref());
        let recording = opening.open(context, Target::node(&cluster, 0), &mut control)?;
        drop(control);
        opening.in_one_step(recording, |recording, step| {
            self.check(recording, step, &journal, (&cluster, &server))
        })
    }

    fn check(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        journal: &Arc<Journal>,
        (cluster, server): (&Cluster, &str),
    ) -> Result<Outcome, NoOutcome> {
        let (context, dir) = (recording.context(), recording.dir());
        let begin = Instant::now();
        let engine = cluster.engine;
        recording.keep(dir.edit_step(step, |step| {
            step.parameters =
                fields(json!({"engine": engine.name(), "nodes": cluster.nodes.len(), "tried": engine.tried.to_string()}));
        }));
        let lines = self.lines(context, journal, cluster)?;
        let count = |result: Agreement| lines.iter().filter(|line| line.result == result).count();
        let [agree, differ, open] = [Agreement::Agrees, Agreement::Differs, Agreement::NotChecked].map(count);
        let file = json!({
            "format": FORMAT,
            "pgfathom": env!("CARGO_PKG_VERSION"),
            "engine": engine.name(),
            "tried": engine.tried.to_string(),
            "server": server,
            "nodes": cluster.nodes.len(),
            "agree": agree,
            "differ": differ,
            "not_checked": open,
            "checks": lines,
        });
        let path = dir.path().join(FILE);
        let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
        record::file::replace(&dir.place().join(FILE), text.as_bytes())
            .map_err(|error| Failure::caused(format!("cannot write {}", path.display()), error))?;
        recording.keep(dir.edit_step(step, |step| {
            step.summary.duration_s = begin.elapsed().as_secs_f64();
            step.summary.rows = Some(lines.len() as u64);
            step.checks = lines.iter().map(check).collect();
            step.verdict = Verdict::valid();
            for line in lines.iter().filter(|line| line.result == Agreement::Differs) {
                step.verdict
                    .invalidate(format!("{}: claimed {}, found {}", line.check, line.claimed, line.found));
            }
        }));
        recording.keep(dir.end_step(step, State::Finished));
        let exit = if differ > 0 { Exit::Difference } else { Exit::Ok };
        let mut outcome = Outcome::plain(State::Finished, exit);
        outcome.messages = vec![
            format!("{engine}: {agree} claims agree, {differ} differ, {open} could not be checked"),
            format!(
                "{} has {}; read it before you send it: its messages can name your hosts",
                path.display(),
                human::plural(lines.len() as u64, "check")
            ),
        ];
        Ok(outcome)
    }

    /// All checks, one after another; each is shown when it is through.
    fn lines(
        &self,
        context: &Context,
        journal: &Arc<Journal>,
        cluster: &Cluster,
    ) -> Result<Vec<Line>, NoOutcome> {
        let stop = context.stop.flag();
        let mut report = |line: &Line| {
            if context.format == Format::Text {
                context.terminal.data(&shown(line));
            }
        };
        let testbed = Testbed::there(&self.address, context, journal, (false, Needs::default()))?;
        let is_listed = self.address.file().is_some();
        let mut lines = conformance::run(cluster, &testbed.site, is_listed, &stop, &mut report)?;
        drop(testbed);
        // What was checked so far is kept in any case.
        let commits = self.commits(context, journal, &stop).unwrap_or_else(|failure| {
            vec![Line {
                check: "commit".to_owned(),
                claimed: "round trips between nodes".to_owned(),
                found: String::new(),
                result: Agreement::NotChecked,
                why: failure.message(),
            }]
        });
        for line in commits {
            report(&line);
            lines.push(line);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(NoOutcome::Interrupted(
                "interrupted before every claim was checked; no file was written",
            ));
        }
        Ok(lines)
    }

    /// What commits cost in round trips: measured where the connections between the nodes can be delayed.
    fn commits(
        &self,
        context: &Context,
        journal: &Arc<Journal>,
        stop: &AtomicBool,
    ) -> Result<Vec<Line>, Failure> {
        let needs = Needs { links: true, ..Needs::default() };
        let testbed = Testbed::there(&self.address, context, journal, (false, needs))?;
        let options = Options { duration: COMMITS, ..Options::default() };
        let settings = Settings::of(&testbed.site.entry(), &options)?;
        Ok(conformance::commits(&testbed.site, &options, settings.waits_for_standbys(), stop))
    }
}

fn version(control: &mut connect::control::Control) -> Result<String, Failure> {
    let row = control
        .query_one("select pg_catalog.version()", &[])
        .map_err(|error| Failure::caused("cannot read the version of the server".to_owned(), error))?;
    Ok(row.get(0))
}

fn shown(line: &Line) -> String {
    let detail = if line.result == Agreement::NotChecked { &line.why } else { &line.found };
    format!("{:12}  {}: {}  -  {detail}", line.result.word(), line.check, line.claimed)
}

fn check(line: &Line) -> Check {
    Check {
        name: line.check.clone(),
        scope: line.claimed.clone(),
        rows: 1,
        result: match line.result {
            Agreement::Agrees => CheckResult::Ok,
            Agreement::Differs => CheckResult::Fail,
            Agreement::NotChecked => CheckResult::Skipped,
        },
        detail: format!("{}: {}{}", line.result.word(), line.found, line.why),
        counterexamples: Vec::new(),
    }
}
