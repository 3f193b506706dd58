//! `check`: measure hosts and read nodes before a load or a run depends on them.

use crate::connection::Address;
use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Opening, Outcome, in_steps};
use ::check::database::{Expected, Machine, Target};
use ::check::probe::message::DiskPlan;
use ::check::{database, hosts, link, survey};
use engines::Survey;
use record::check::{Checks, Item, Verdict};
use record::{Exit, State, StepId};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// What to check, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes to read; `None`: hosts only.
    pub address: Option<Address>,
    /// Files that list hosts.
    pub host_files: Vec<PathBuf>,
    /// Further hosts, each as a line of a host file. Without any host: this one.
    pub hosts: Vec<String>,
    /// How hosts are reached.
    pub ways: link::Ways,
    /// Directories to measure on every host.
    pub disks: Vec<PathBuf>,
    /// The largest size of the file of a disk probe.
    pub size_bytes: u64,
    /// The time of each test.
    pub time: Duration,
    /// Bytes of one random operation.
    pub block_bytes: u64,
    /// Operations in flight, one test each.
    pub depths: Vec<u64>,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            address: None,
            host_files: vec![],
            hosts: vec![],
            ways: link::Ways::default(),
            disks: vec![],
            size_bytes: 1 << 30,
            time: Duration::from_secs(2),
            block_bytes: 8192,
            depths: vec![1, 8, 32],
            directory: None,
        }
    }
}

impl Plan {
    /// Checks hosts and nodes, and writes the run directory.
    ///
    /// # Errors
    /// When the hosts are not understood, or nothing can be written. An unreachable host or node is a failed item.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let hosts = self.listed()?;
        let nodes = self.address.as_ref().map(|address| address.survey(context)).transpose()?;
        let opening = Opening::new("check", "", self.directory.as_deref());
        let recording = opening.begin(context)?;
        in_steps(recording, |recording| {
            let step = recording.dir().begin_step("check", "")?;
            self.check(recording, &step, hosts, nodes.as_ref())
        })
    }

    /// The hosts that the user named, or this one.
    fn listed(&self) -> Result<Vec<hosts::Host>, Failure> {
        let mut all = hosts::named(&self.hosts)?;
        for file in &self.host_files {
            all.extend(hosts::read(file)?);
        }
        if all.is_empty() {
            all.push(hosts::Host::local(&::watch::collectors::host_name()));
        }
        Ok(hosts::unique(all)?)
    }

    fn check(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        hosts: Vec<hosts::Host>,
        nodes: Option<&Survey>,
    ) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        recording.keep(recording.dir().edit_step(step, |step| {
            let parameters = json!({
                "hosts": hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(),
                "disks": self.disks,
                "size_bytes": self.size_bytes,
                "time_s": self.time.as_secs_f64(),
                "block_bytes": self.block_bytes,
                "depths": self.depths,
            });
            step.parameters = parameters.as_object().cloned().unwrap_or_default();
        }));
        let plan = survey::Plan {
            hosts,
            ways: self.ways.clone(),
            disks: self.disks.iter().map(|disk| disk.to_string_lossy().into_owned()).collect(),
            disk: DiskPlan {
                directory: String::new(),
                size_bytes: self.size_bytes,
                time_ms: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
                block_bytes: self.block_bytes,
                depths: self.depths.clone(),
            },
        };
        let stop = context.stop.flag();
        let terminal = context.terminal.as_ref();
        let mut checks = survey::run(&plan, recording.dir().clock(), &|line| terminal.say(line), &stop);
        let items = nodes.map(|nodes| of_nodes(nodes, &checks.hosts)).unwrap_or_default();
        checks.items.extend(items);
        recording.keep(checks.write(recording.path()));
        self.end(recording, step, &checks)
    }

    fn end(&self, recording: &Recording<'_>, step: &StepId, checks: &Checks) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        let state = context.state();
        recording.keep(recording.dir().end_step(step, state));
        if context.format == Format::Text {
            context.terminal.data(&::report::checks::text(checks));
        }
        let exit = match checks.worst() {
            _ if state == State::Interrupted => Exit::Interrupted,
            Some(Verdict::Fail) => Exit::Preflight,
            _ => Exit::Ok,
        };
        let mut outcome = Outcome::plain(state, exit);
        if context.format == Format::Json {
            outcome.fields.insert("check".to_string(), serde_json::to_value(checks).unwrap_or_default());
        }
        Ok(outcome)
    }
}

/// Reads every node; one that does not answer is a failed item.
fn of_nodes(survey: &Survey, hosts: &[record::check::Host]) -> Vec<Item> {
    let target = |node: &engines::ClusterNode| Target {
        name: node.name.clone(),
        spec: node.spec.clone(),
        machine: Machine::of(&node.spec, hosts),
    };
    let targets: Vec<Target> = survey.cluster.nodes.iter().map(target).collect();
    let mut items = database::check(&targets, &Expected::default());
    let is_node = |name: &str| survey.cluster.node(name).is_some();
    let absent = survey.absent.iter().filter(|absent| !is_node(&absent.name));
    items.extend(
        absent.map(|absent| database::unreached(&absent.name, &format!("{}; {}", absent.why, absent.hint))),
    );
    items
}
