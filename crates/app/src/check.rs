//! `check`: measure hosts and read nodes before a load or a run depends on them.

use crate::connection::Address;
use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::plan;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Opening, Outcome, in_steps};
use ::check::accept::Acceptance;
use ::check::database::{Expected, Machine, Target};
use ::check::probe::message::DiskPlan;
use ::check::{database, fallback, hosts, link, survey};
use connect::conninfo::Host as Server;
use connect::{ConnSpec, control};
use engines::{ClusterNode, Survey};
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
    /// What is measured beside disks.
    pub tests: survey::Tests,
    /// Measure one pair of hosts at a time.
    pub one_pair_at_a_time: bool,
    /// Measure with fio and iperf3 where they are installed, also where pgfathom runs.
    pub prefers_tools: bool,
    /// Repeat disks and network: the time from one round to the next, and of all.
    pub repeat: Option<(Duration, Duration)>,
    /// What the figures must be.
    pub accept: Option<PathBuf>,
    /// The plan that hosts and nodes are judged by.
    pub planned: Option<Box<record::plan::Plan>>,
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
            tests: survey::Tests { network: true, memory: true, processor: true },
            one_pair_at_a_time: false,
            prefers_tools: false,
            repeat: None,
            accept: None,
            planned: None,
            directory: None,
        }
    }
}

impl Plan {
    /// Checks hosts and nodes, and writes the run directory.
    ///
    /// # Errors
    /// When the hosts are not understood, or nothing can be written. An unreachable host or node is a failed item.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        let mut hosts = self.listed()?;
        let accept = self.accept.as_deref().map(Acceptance::read).transpose()?;
        if let Some(probe) = accept.as_ref().map(|accept| &accept.probe) {
            self.block_bytes = probe.block_bytes.unwrap_or(self.block_bytes);
            self.depths = probe.depths.clone().unwrap_or(self.depths);
        }
        let nodes = self.address.as_ref().map(|address| address.survey(context)).transpose()?;
        if hosts.is_empty()
            && let (Some(Address::File(_)), Some(nodes)) = (&self.address, &nodes)
        {
            hosts = hosts_of(&nodes.cluster.nodes)?;
        }
        if hosts.is_empty() {
            hosts.push(hosts::Host::local(&::watch::collectors::host_name()));
        }
        self.place_disks(&hosts)?;
        let opening = Opening::new("check", "", self.directory.as_deref());
        let recording = opening.begin(context)?;
        in_steps(recording, |recording| {
            let step = recording.dir().begin_step("check", "")?;
            self.check(recording, &step, hosts, nodes.as_ref(), accept.as_ref())
        })
    }

    /// Makes directories absolute: what is relative is meant from this folder, which other hosts do not have.
    fn place_disks(&mut self, hosts: &[hosts::Host]) -> Result<(), Failure> {
        for disk in self.disks.iter_mut().filter(|disk| disk.is_relative()) {
            if let Some(other) = hosts.iter().find(|host| !host.is_local) {
                return Err(Failure::usage(format!(
                    "--disk {} is not absolute, and {} is another host",
                    disk.display(),
                    other.name
                ))
                .hint("name a directory from the root, as --disk /data"));
            }
            *disk = std::path::absolute(&*disk)
                .map_err(|error| Failure::caused("cannot tell the current folder", error))?;
        }
        Ok(())
    }

    /// The hosts that the user named.
    fn listed(&self) -> Result<Vec<hosts::Host>, Failure> {
        let mut all = hosts::named(&self.hosts)?;
        for file in &self.host_files {
            all.extend(hosts::read(file)?);
        }
        Ok(hosts::unique(all)?)
    }

    fn check(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        hosts: Vec<hosts::Host>,
        nodes: Option<&Survey>,
        accept: Option<&Acceptance>,
    ) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        recording.is_no_load();
        recording.keep(recording.dir().edit_step(step, |step| {
            let parameters = json!({
                "hosts": hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(),
                "disks": self.disks,
                "size_bytes": self.size_bytes,
                "time_s": self.time.as_secs_f64(),
                "block_bytes": self.block_bytes,
                "depths": self.depths,
                "repeat_s": self.repeat.map(|(every, all)| [every.as_secs_f64(), all.as_secs_f64()]),
                "accept": accept.map(|accept| accept.title.as_str()),
                "plan": self.planned.as_ref().map(|plan| json!({"dataset": plan.input.dataset, "rows": plan.size.rows})),
            });
            step.parameters = parameters.as_object().cloned().unwrap_or_default();
        }));
        let data = nodes.map(|nodes| data_directories(nodes, &hosts)).unwrap_or_default();
        let plan = self.survey(recording, hosts, data);
        let stop = context.stop.flag();
        let terminal = context.terminal.as_ref();
        let keep = |known: &Checks| recording.keep(known.write(&recording.place()));
        let mut checks =
            survey::run(&plan, recording.dir().clock(), &|line| terminal.say(line), &keep, &stop);
        // Settings are judged by the memory and the disks that were just read.
        if context.state() != State::Interrupted {
            let planned = self.planned.as_deref();
            let expected = planned.map(Expected::of_plan).unwrap_or_default();
            let items = nodes.map(|nodes| of_nodes(nodes, &checks.hosts, &expected)).unwrap_or_default();
            checks.items.extend(items);
            let items =
                planned.map(|plan| ::check::planned::items(plan, nodes.map(plan::nodes_with_rows), &checks));
            checks.items.extend(items.unwrap_or_default());
        }
        if let Some(accept) = accept {
            let judged = accept.items(&checks);
            checks.items.extend(judged);
        }
        checks.items.sort_by_key(|item| item.area);
        recording.keep(checks.write(&recording.place()));
        self.end(recording, step, &checks)
    }

    fn survey(
        &self,
        recording: &Recording<'_>,
        hosts: Vec<hosts::Host>,
        data: Vec<(String, String)>,
    ) -> survey::Plan {
        survey::Plan {
            hosts,
            ways: self.ways.clone(),
            disks: self.disks.iter().map(|disk| disk.to_string_lossy().into_owned()).collect(),
            data,
            has_nodes: self.address.is_some(),
            disk: DiskPlan {
                directory: String::new(),
                is_data: false,
                measured_mounts: vec![],
                size_bytes: self.size_bytes,
                time_ms: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
                block_bytes: self.block_bytes,
                depths: self.depths.clone(),
            },
            tests: self.tests,
            one_pair_at_a_time: self.one_pair_at_a_time,
            prefers_tools: self.prefers_tools,
            repeat: self.repeat,
            outputs: recording.place().join(fallback::OUTPUTS),
        }
    }

    fn end(&self, recording: &Recording<'_>, step: &StepId, checks: &Checks) -> Result<Outcome, NoOutcome> {
        let context = recording.context();
        let state = context.state();
        recording.keep(recording.dir().edit_step(step, |step| {
            step.verdict.valid = state == State::Finished;
            if checks.worst() == Some(Verdict::Fail) {
                step.verdict.notes.push("the preflight failed".to_string());
            }
        }));
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
fn of_nodes(survey: &Survey, hosts: &[record::check::Host], expected: &Expected) -> Vec<Item> {
    let target = |node: &ClusterNode| Target {
        name: node.name.clone(),
        spec: node.spec.clone(),
        machine: Machine::of(&node.spec, hosts),
    };
    let targets: Vec<Target> = survey.cluster.nodes.iter().map(target).collect();
    let mut items = database::check(&targets, expected);
    let is_node = |name: &str| survey.cluster.node(name).is_some();
    let absent = survey.absent.iter().filter(|absent| !is_node(&absent.name));
    items.extend(
        absent.map(|absent| database::unreached(&absent.name, &format!("{}; {}", absent.why, absent.hint))),
    );
    let mut answering =
        survey.cluster.nodes.iter().filter_map(|node| control::connect_shared(&node.spec).ok());
    if survey.cluster.nodes.len() > 1
        && let Some(mut control) = answering.next()
    {
        let addresses = survey.cluster.unlisted_nodes(&mut control);
        items.extend(addresses.iter().map(|address| database::unlisted(address)));
    }
    items
}

/// The data directories of the nodes that run on checked hosts, with the host's name.
fn data_directories(survey: &Survey, hosts: &[hosts::Host]) -> Vec<(String, String)> {
    let mut data = vec![];
    for node in &survey.cluster.nodes {
        let Some(host) = hosts.iter().find(|host| runs_on(&node.spec, host)) else { continue };
        // A node that does not answer is reported by its checks.
        let Ok(mut control) = control::connect_shared(&node.spec) else { continue };
        let folder = data_directory(&mut control).map(|folder| match host.is_local {
            // The mount of a symbolic link is that of its target.
            true => std::fs::canonicalize(&folder).map_or(folder, |real| real.to_string_lossy().into_owned()),
            false => folder,
        });
        data.extend(folder.map(|folder| (host.name.clone(), folder)));
    }
    data.sort();
    data.dedup();
    data
}

/// The data directory, where the role may read it.
fn data_directory(control: &mut control::Control) -> Option<String> {
    let row = control.query_one("select pg_catalog.current_setting('data_directory', true)", &[]).ok()?;
    row.get::<_, Option<String>>(0)
}

/// Whether a node is reached without leaving this host.
fn is_here(server: &Server) -> bool {
    match server {
        Server::Unix(_) => true,
        Server::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

fn runs_on(spec: &ConnSpec, host: &hosts::Host) -> bool {
    spec.hosts.iter().any(|one| match &one.host {
        server if host.is_local => is_here(server),
        Server::Tcp(name) => *name == host.name || *name == host.address,
        Server::Unix(_) => false,
    })
}

/// The hosts of the nodes of a cluster file, each once.
fn hosts_of(nodes: &[ClusterNode]) -> Result<Vec<hosts::Host>, Failure> {
    let mut names: Vec<String> = vec![];
    let mut is_local = false;
    for one in nodes.iter().flat_map(|node| &node.spec.hosts) {
        match &one.host {
            server if is_here(server) => is_local = true,
            Server::Tcp(name) if !names.contains(name) => names.push(name.clone()),
            _ => {}
        }
    }
    let mut all = hosts::named(&names)?;
    if is_local {
        all.insert(0, hosts::Host::local(&::watch::collectors::host_name()));
    }
    Ok(all)
}
