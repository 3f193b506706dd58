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
use connect::conninfo::Host;
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
const FORMAT: u32 = 2;
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
        // In the order of the test bed, whose nodes are compared with these.
        let cluster = self.address.cluster_of_any_engine(context)?.with_coordinator_first();
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
        context.terminal.say(&format!(
            "comparing what pgfathom knows about {} with this cluster, about a minute; each line: result, what it is about, what pgfathom \
             expects - what the cluster does",
            engine.title
        ));
        recording.keep(dir.edit_step(step, |step| {
            step.parameters =
                fields(json!({"engine": engine.name(), "nodes": cluster.nodes.len(), "tried": engine.tried.to_string()}));
        }));
        let lines = self.lines(context, journal, cluster)?;
        let count = |result: Agreement| lines.iter().filter(|line| line.result == result).count();
        let [agree, differ, open] = [Agreement::Agrees, Agreement::Differs, Agreement::NotChecked].map(count);
        let [unclaimed, notes] = [Agreement::NoClaim, Agreement::Note].map(count);
        let hosts = Hosts::of(cluster);
        let sent: Vec<Line> = lines.iter().map(|line| hosts.hidden_in(line)).collect();
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
            "no_claim": unclaimed,
            "notes": notes,
            "checks": sent,
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
            format!(
                "{engine}: {agree} claims agree, {differ} differ, {open} could not be checked; {unclaimed} answers without a claim, {notes} notes"
            ),
            format!(
                "to send in: {}, with {}; the addresses of your nodes are replaced by host1, host2, ...; read it first, as messages of the server can hold \
                 other names",
                path.display(),
                human::plural(lines.len() as u64, "line")
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
        let testbed = self.testbed(context, journal, Needs::default())?;
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

    fn testbed(&self, context: &Context, journal: &Arc<Journal>, needs: Needs) -> Result<Testbed, Failure> {
        if self.address.file().is_none() {
            return Testbed::there(&self.address, context, journal, (false, needs));
        }
        let cluster = self.address.cluster_of_any_engine(context)?.with_coordinator_first();
        Testbed::of(&cluster, &self.address, context, journal, (false, needs))
    }

    /// What commits cost in round trips: measured where the connections between the nodes can be delayed.
    fn commits(
        &self,
        context: &Context,
        journal: &Arc<Journal>,
        stop: &AtomicBool,
    ) -> Result<Vec<Line>, Failure> {
        let testbed = self.testbed(context, journal, Needs { links: true, ..Needs::default() })?;
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
    let begin = format!("{:12}  {}: {}", line.result.word(), line.check, line.claimed);
    match line.result {
        Agreement::Note => begin,
        Agreement::NotChecked => format!("{begin}  -  {}", line.why),
        Agreement::Agrees | Agreement::Differs | Agreement::NoClaim => format!("{begin}  -  {}", line.found),
    }
}

/// The addresses of the nodes, which a file that is sent in does without.
struct Hosts(Vec<(String, String)>);

impl Hosts {
    fn of(cluster: &Cluster) -> Hosts {
        let mut hosts: Vec<(String, String)> = Vec::new();
        let all =
            cluster.nodes.iter().enumerate().flat_map(|(at, node)| {
                node.spec.hosts.iter().chain(&node.also).map(move |host| (at + 1, host))
            });
        for (number, host) in all {
            let name = match &host.host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(folder) => folder.display().to_string(),
            };
            for address in [Some(name), host.address.map(|address| address.to_string())].into_iter().flatten()
            {
                if !address.is_empty() && hosts.iter().all(|(known, _)| *known != address) {
                    hosts.push((address, format!("host{number}")));
                }
            }
        }
        // One address may be the begin of another one.
        hosts.sort_by_key(|(address, _)| std::cmp::Reverse(address.len()));
        Hosts(hosts)
    }

    fn hidden_in(&self, line: &Line) -> Line {
        let hide = |text: &String| {
            self.0.iter().fold(text.clone(), |text, (address, by)| hidden(&text, address, by))
        };
        Line {
            check: hide(&line.check),
            claimed: hide(&line.claimed),
            found: hide(&line.found),
            result: line.result,
            why: hide(&line.why),
        }
    }
}

/// The text with `by` in the place of `address`, where that is no part of a longer word.
fn hidden(text: &str, address: &str, by: &str) -> String {
    let is_of_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(address) {
        let (before, behind) = (&rest[..at], &rest[at + address.len()..]);
        let is_apart = !before.chars().next_back().is_some_and(is_of_word) && !behind.starts_with(is_of_word);
        out.push_str(before);
        out.push_str(if is_apart { by } else { address });
        rest = behind;
    }
    out + rest
}

fn check(line: &Line) -> Check {
    Check {
        name: line.check.clone(),
        scope: line.claimed.clone(),
        rows: 1,
        result: match line.result {
            Agreement::Agrees => CheckResult::Ok,
            Agreement::Differs => CheckResult::Fail,
            Agreement::NotChecked | Agreement::NoClaim | Agreement::Note => CheckResult::Skipped,
        },
        detail: format!("{}: {}{}", line.result.word(), line.found, line.why),
        counterexamples: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_nodes_are_not_sent_and_other_words_stay() {
        let hidden = |text: &str| super::hidden(text, "db1", "host1");
        assert_eq!(hidden("db1:5432 and (db1)"), "host1:5432 and (host1)");
        assert_eq!(hidden("mydb1, db12, db1_x, db1-2"), "mydb1, db12, db1_x, db1-2");
        assert_eq!(super::hidden("at /run/x/.s.PGSQL.1", "/run/x", "host2"), "at host2/.s.PGSQL.1");
        let mut cluster = Cluster::single(connect::ConnSpec::new("db1", 5432, "u", "d"));
        cluster.nodes[0].also = connect::ConnSpec::new("10.0.0.1", 5432, "u", "d").hosts;
        let line = Line {
            check: "places".to_owned(),
            claimed: "at db1".to_owned(),
            found: "10.0.0.1:5432, 10.0.0.12".to_owned(),
            result: Agreement::Agrees,
            why: String::new(),
        };
        let sent = Hosts::of(&cluster).hidden_in(&line);
        assert_eq!((sent.claimed.as_str(), sent.found.as_str()), ("at host1", "host1:5432, 10.0.0.12"));
    }
}
