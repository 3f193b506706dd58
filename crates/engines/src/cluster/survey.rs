//! The nodes of a cluster for monitoring: as many as can be found, and why the others are missing.
//!
//! Other verbs need all nodes, so [`Cluster::discover`] fails if one does not answer. Monitoring is most useful when something is down: here a
//! node that does not answer is kept, because it may come back, and known nodes without an address are reported with a
//! command. Beyond the catalog of a sharded cluster this uses streaming replication: a standby knows its primary's address and port; a
//! primary knows the addresses of its standbys but not their ports, so the primary's own port is tried there.

use super::discover::{self, Reach};
use super::sessions::PROBE_TIMEOUT;
use super::{Cluster, ClusterError, ClusterNode, Role};
use crate::catalog::{self, TextRow};
use crate::profile::Layout;
use connect::ConnSpec;
use connect::conninfo::{Host, HostSpec, SessionAttrs};
use connect::control::{self, Control};
use std::time::Duration;

/// The hint for a server that is in no catalog.
const NAME_HINT: &str =
    "name every server yourself: -h HOST1,HOST2 -p PORT1,PORT2, or --cluster FILE as pgfathom up writes it";

/// Standbys that stream from this server. A walsender for logical decoding is not a standby, nor is a program that only receives the WAL (pg_receivewal,
/// pg_basebackup): it replays nothing. A hidden one has no state.
const STANDBYS: &str = "
    select r.application_name, pg_catalog.host(r.client_addr) \
    from pg_catalog.pg_stat_replication r \
    where r.state in ('streaming', 'catchup') and r.replay_lsn is not null \
      and not exists (select from pg_catalog.pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical') \
    order by r.application_name, r.client_addr";

/// Where this server's WAL comes from.
const SENDER: &str = "select sender_host, sender_port::text from pg_catalog.pg_stat_wal_receiver where sender_host is not null";

/// Distinguishes servers, by whatever address they were reached: a copy of a server has another start time.
const SERVER: &str = "
    select (select system_identifier from pg_catalog.pg_control_system())::text, \
           pg_catalog.pg_postmaster_start_time()::text, pg_catalog.pg_is_in_recovery()::text";

/// The visible part of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The nodes that are known, also those that did not answer. The queried one comes first.
    pub cluster: Cluster,
    /// Nodes that did not answer, or whose address is not known.
    pub absent: Vec<Absent>,
}

/// A known node that was not reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent {
    /// Its name. It may be one of [`Survey::cluster`]: then it may still come back.
    pub name: String,
    /// The source of its name, and what happened.
    pub why: String,
    /// What to type.
    pub hint: String,
}

/// How often the catalog is read until nothing cancels that, and the time between.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn survey(entry: &ConnSpec) -> Result<Survey, ClusterError> {
    // A server in trouble is looked at most: the entry has the time of any connection, and the wait for it is reported. Other nodes are only probed.
    let mut control = control::connect_shared(&entry.clone().without_jit())?;
    let patience = entry.connect_timeout;
    let mut entry = entry.clone();
    entry.connect_timeout.get_or_insert(PROBE_TIMEOUT);
    let at = control.host_index();
    let mut absent = vec![];
    // From here on every node is queried separately.
    entry.target_session_attrs = SessionAttrs::Any;
    let here = entry.clone().with_only_host(at);
    let mut found = discover::discover(&mut control, here.clone(), &mut Reach::Noted(&mut absent));
    // On a standby the replay of WAL may cancel a query of the catalog; a moment later it passes.
    for _ in 1..ATTEMPTS {
        if !found.as_ref().is_err_and(ClusterError::is_passing) {
            break;
        }
        std::thread::sleep(PAUSE);
        absent.clear();
        found = discover::discover(&mut control, here.clone(), &mut Reach::Noted(&mut absent));
    }
    let cluster = match found {
        Ok(cluster) => cluster,
        Err(error) => {
            absent.push(Absent {
                name: "other nodes".to_owned(),
                why: error.to_string(),
                hint: error.hint().unwrap_or_else(|| NAME_HINT.to_owned()),
            });
            Cluster::single(here)
        }
    };
    let mut survey = Survey { cluster, absent };
    let mut known: Vec<TextRow> = server(&mut control).into_iter().collect();
    if survey.cluster.engine.layout == Layout::OneServer && survey.cluster.nodes.len() == 1 {
        survey.relatives(&mut control, &mut known);
    }
    for index in (0..entry.hosts.len()).filter(|index| *index != at) {
        survey.named(entry.clone().with_only_host(index), &mut known);
    }
    // A single node is called `single`; one of several by its role.
    if survey.cluster.nodes.len() > 1 && survey.cluster.nodes[0].name == "single" {
        let role = if is_standby(known.first()) { Role::Standby } else { Role::Primary };
        let name = survey.free_name(role.name(), &survey.cluster.nodes[0].spec);
        (survey.cluster.nodes[0].role, survey.cluster.nodes[0].name) = (role, name);
    }
    let place = &entry.hosts[at..=at];
    for node in survey.cluster.nodes.iter_mut().filter(|node| node.spec.hosts == place) {
        node.spec.connect_timeout = patience;
    }
    Ok(survey)
}

/// The identity of a server, and whether it is a standby; `None` if it does not report it.
pub(super) fn server(control: &mut Control) -> Option<TextRow> {
    catalog::rows(&mut **control, SERVER).ok()?.into_iter().next()
}

pub(super) fn is_standby(server: Option<&TextRow>) -> bool {
    server.is_some_and(|server| server.is_true(2))
}

impl Survey {
    /// The other side of streaming replication.
    fn relatives(&mut self, control: &mut Control, known: &mut Vec<TextRow>) {
        let here = self.cluster.nodes[0].spec.clone();
        for sender in catalog::rows(&mut **control, SENDER).unwrap_or_default() {
            let (host, port) = (sender.get(0), sender.get(1));
            let Ok(spec) = discover::beside(&here, host, port, None) else { continue };
            let role = |server: &TextRow| if server.is_true(2) { Role::Standby } else { Role::Primary };
            let reported = "the standby receives its WAL from there";
            self.probe("primary", spec, reported, role, known);
        }
        let standbys = catalog::rows(&mut **control, STANDBYS).unwrap_or_default();
        let own_port = here.hosts.first().map(|host| host.port.to_string());
        for standby in &standbys {
            let name = standby.get(0).filter(|name| !name.is_empty()).unwrap_or("standby");
            let address = standby.get(1);
            let from = address.unwrap_or("a socket of the primary's host");
            let reported =
                format!("it streams from the primary ({from}), which does not know the port it listens on");
            // On the primary's own host its port is that of the primary.
            let is_elsewhere = address.is_some_and(|address| !is_near(address, &here));
            match discover::beside(&here, address, own_port.as_deref(), None) {
                Ok(spec) if is_elsewhere => self.probe(name, spec, &reported, |_| Role::Standby, known),
                _ => self.lacks(name, reported),
            }
        }
    }

    /// A further host that the user named: it is always monitored.
    fn named(&mut self, spec: ConnSpec, known: &mut Vec<TextRow>) {
        let Some(host) = spec.hosts.first().cloned() else { return };
        let is_there = |node: &ClusterNode| {
            node.spec.hosts.iter().any(|other| other.host == host.host && other.port == host.port)
        };
        if self.cluster.nodes.iter().any(is_there) {
            return;
        }
        let name = self.free_name(&address(&host), &spec);
        match control::connect_shared(&spec) {
            Ok(mut control) => {
                let found = server(&mut control);
                if found.as_ref().is_some_and(|found| known.contains(found)) {
                    return;
                }
                let role = if is_standby(found.as_ref()) { Role::Standby } else { Role::Primary };
                known.extend(found);
                self.forget(&host);
                self.cluster.nodes.push(ClusterNode::new(name, role, spec));
            }
            Err(error) => {
                let why = format!("you named it, but it does not reply: {error}");
                let hint = "it is tried again during the recording".to_owned();
                self.absent.push(Absent { name: name.clone(), why, hint });
                self.cluster.nodes.push(ClusterNode::new(name, Role::Standby, spec));
            }
        }
    }

    /// A server known only by an address: it counts when it answers there and is not one of the known servers.
    fn probe(
        &mut self,
        name: &str,
        spec: ConnSpec,
        reported: &str,
        role: impl Fn(&TextRow) -> Role,
        known: &mut Vec<TextRow>,
    ) {
        let at = spec.hosts.first().map(ToString::to_string).unwrap_or_default();
        let found = control::connect_shared(&spec).map(|mut control| server(&mut control));
        match found {
            Ok(Some(found)) if !known.contains(&found) && is_kin(known, &found) => {
                let name = self.free_name(name, &spec);
                self.cluster.nodes.push(ClusterNode::new(name, role(&found), spec));
                known.push(found);
            }
            Ok(_) => self.lacks(name, format!("{reported}; but another server is at {at}")),
            Err(error) => self.lacks(name, format!("{reported}; at {at}: {error}")),
        }
    }

    fn lacks(&mut self, name: &str, why: String) {
        self.absent.push(Absent { name: name.to_owned(), why, hint: NAME_HINT.to_owned() });
    }

    /// The user has named a server whose address the catalog lacks: there may be several of them, so only
    /// one with the same address is removed from the list.
    fn forget(&mut self, host: &HostSpec) {
        let from = match &host.host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(_) => "a socket of the primary's host".to_owned(),
        };
        if let Some(index) = self.absent.iter().position(|absent| absent.why.contains(&format!("({from})"))) {
            self.absent.remove(index);
        }
    }

    /// `name`, with its address appended if another node has the same name.
    fn free_name(&self, name: &str, spec: &ConnSpec) -> String {
        let is_taken = |name: &str| self.cluster.nodes.iter().any(|node| node.name == name);
        if !is_taken(name) {
            return name.to_owned();
        }
        let with_address = format!("{name} {}", spec.hosts.first().map(address).unwrap_or_default());
        let numbered = (2..).map(|number| format!("{with_address} #{number}"));
        std::iter::once(with_address.clone())
            .chain(numbered)
            .find(|name| !is_taken(name))
            .unwrap_or(with_address)
    }
}

/// Of the same system identifier: a standby is a copy.
fn is_kin(known: &[TextRow], found: &TextRow) -> bool {
    known.first().is_none_or(|first| first.get(0) == found.get(0))
}

/// `host:port`; the folder of a socket is not a readable name.
fn address(host: &HostSpec) -> String {
    match &host.host {
        Host::Tcp(name) => format!("{name}:{}", host.port),
        Host::Unix(_) => format!("local:{}", host.port),
    }
}

/// Whether an address of the primary is the host where we reached it.
fn is_near(address: &str, here: &ConnSpec) -> bool {
    let is_loopback = address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || here.hosts.iter().any(|host| matches!(&host.host, Host::Tcp(name) if name == address))
}
