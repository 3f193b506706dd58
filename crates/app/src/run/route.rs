//! `--connect` and `--data`: where sessions enter a cluster, and on which node the rows live that they request.

use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use connect::conninfo::Pinned;
use connect::{ConnSpec, cluster_file::Role};
use engines::{Cluster, ClusterError};
use run::dial::TargetDial;
use run::engine::connector::Dial;
use run::routing::{Connects, RoutedDial};
use std::sync::Arc;
use workloads::driving::{Demand, Entry, Held, Keys};

/// For sessions whose updates go through tables with foreign partitions. A plan for any parameters keeps all partitions and prunes them when it
/// runs; PostgreSQL 18 then mistakes one partition for another (`ExecInitModifyTable`: places among the partitions that are left are looked up in
/// lists of all of them), and a backend that updates a foreign one crashes, seen on 18.4. A plan for the parameters at hand has the one partition
/// from the start, and is better anyway.
const PLAN_EACH: &str = "-c plan_cache_mode=force_custom_plan";
/// Nodes named in a message; more are counted.
const NODES_NAMED_MAX: usize = 20;

/// Where sessions enter and whose rows they request, and the cluster that this is about.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Where sessions enter; `None`: at the target itself.
    pub connect: Option<Way>,
    /// Draw only keys whose rows live on this node.
    pub data: Option<String>,
    /// The nodes, once they are known, if sessions are assigned to them.
    pub(crate) cluster: Option<Cluster>,
    /// The nodes over which an engine spreads the rows, where sessions enter at the target alone.
    spread_over: Option<Cluster>,
}

impl Route {
    /// A route with these two parts.
    pub fn new(connect: Option<Way>, data: Option<String>) -> Route {
        Route { connect, data, ..Route::default() }
    }
}

/// How sessions are assigned to nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// By turns over all nodes.
    Each,
    /// By chance, as the seed decides.
    Random,
    /// By turns over the nodes that own rows; each session draws keys of its own node.
    Owner,
    /// By turns over these.
    Nodes(Vec<String>),
}

impl Way {
    /// Reads `each`, `random`, `owner` or names of nodes with commas between; `None` where a name is empty.
    pub fn parse(text: &str) -> Option<Way> {
        match text {
            "each" => Some(Way::Each),
            "random" => Some(Way::Random),
            "owner" => Some(Way::Owner),
            names => {
                let names: Vec<String> = names.split(',').map(|name| name.trim().to_string()).collect();
                names.iter().all(|name| !name.is_empty()).then_some(Way::Nodes(names))
            }
        }
    }

    /// What [`Way::parse`] reads.
    fn word(&self) -> String {
        match self {
            Way::Each => "each".to_string(),
            Way::Random => "random".to_string(),
            Way::Owner => "owner".to_string(),
            Way::Nodes(names) => names.join(","),
        }
    }
}

/// The names of a cluster's nodes, for a message.
pub(crate) fn names(cluster: &Cluster) -> String {
    let mut names: Vec<&str> =
        cluster.nodes.iter().take(NODES_NAMED_MAX).map(|node| node.name.as_str()).collect();
    let more = cluster.nodes.len().saturating_sub(NODES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    match names.pop() {
        Some(last) if names.is_empty() => last.to_string(),
        Some(last) if more.is_empty() => format!("{} and {last}", names.join(", ")),
        Some(last) => format!("{}, {last}{more}", names.join(", ")),
        None => String::new(),
    }
}

/// The place of the node that `flag` names.
pub(crate) fn node_named(cluster: &Cluster, flag: &str, name: &str) -> Result<usize, Failure> {
    cluster.node(name).ok_or_else(|| {
        Failure::usage(format!("{flag}: this cluster has no node {name:?}"))
            .hint(format!("its nodes are {}", names(cluster)))
    })
}

impl Route {
    /// Finds the cluster where one is requested, checks the names, and returns the node to query about the dataset: the first one that
    /// owns rows. Without these flags that is the target itself; but where `seeks_owner` and rows are spread by `postgres_fdw`, it is as if
    /// `--connect owner` had been typed.
    pub(crate) fn resolve(
        &mut self,
        address: &Address,
        context: &Context,
        seeks_owner: bool,
    ) -> Result<ConnSpec, Failure> {
        let is_sharded = Cluster::has_foreign_partitions;
        let cluster = match (&self.connect, &self.data) {
            (None, None) if !seeks_owner => {
                let spec = address.spec_of_any_copy(context)?;
                match self.entered_by_worker(address, &spec, context)? {
                    Some(cluster) => cluster,
                    None => return Ok(spec),
                }
            }
            (None, None) => {
                let spec = address.spec_of_any_copy(context)?;
                let found = match address.cluster_of_file()? {
                    Some(cluster) => Some(cluster),
                    None => discovered(&spec)?,
                };
                match found {
                    Some(cluster) if is_sharded(&cluster) => {
                        self.connect = Some(Way::Owner);
                        cluster
                    }
                    found => match self.entered_by_worker(address, &spec, context)? {
                        Some(cluster) => cluster,
                        None => {
                            self.spread_over = found.filter(|cluster| cluster.engine.layout.is_spread());
                            return Ok(spec);
                        }
                    },
                }
            }
            _ => address.cluster(context)?,
        };
        if cluster.nodes.len() == 1 {
            let flag = if self.data.is_some() { "--data" } else { "--connect" };
            return Err(Failure::usage(format!(
                "{flag} chooses among the nodes of a cluster, and this target is one server"
            ))
            .hint("name the nodes with --cluster FILE, as pgfathom up writes it, or omit the flag"));
        }
        if let Some(Way::Nodes(names)) = &self.connect {
            for name in names {
                node_named(&cluster, "--connect", name)?;
            }
        }
        self.check_closed(&cluster, context)?;
        if let Some(name) = &self.data {
            let node = node_named(&cluster, "--data", name)?;
            if self.connect == Some(Way::Owner) {
                return Err(Failure::usage("--connect owner already decides which rows each session reads")
                    .hint(format!(
                        "omit --data, or pin the sessions as well: --connect {}",
                        as_typed(name)
                    )));
            }
            if cluster.nodes[node].role == Role::Coordinator {
                return Err(Failure::usage(format!("--data: {name} is a coordinator and owns no rows"))
                    .hint(format!("nodes with rows are {}", names_of(&cluster, cluster.data_nodes()))));
            }
        }
        let first = cluster.entry_node();
        let spec = cluster.nodes[first].spec.clone();
        self.cluster = Some(cluster);
        Ok(spec)
    }

    /// Refuses to enter at the owners of rows where one of them is closed to clients, and reports the nodes that are left out otherwise.
    fn check_closed(&self, cluster: &Cluster, context: &Context) -> Result<(), Failure> {
        let is_closed = |node: &usize| cluster.nodes[*node].is_closed;
        let closed: Vec<&str> =
            cluster.data_nodes().filter(is_closed).map(|node| cluster.nodes[node].name.as_str()).collect();
        match (&self.connect, closed.as_slice()) {
            (_, []) => Ok(()),
            (Some(Way::Nodes(names)), closed) => {
                match names.iter().find(|name| closed.contains(&name.as_str())) {
                    Some(name) => Err(self::closed(cluster, "--connect", name)),
                    None => Ok(()),
                }
            }
            (Some(Way::Owner), [first, ..]) => Err(self::closed(cluster, "--connect owner", first)),
            (None | Some(Way::Each | Way::Random), names) => {
                context.terminal.say(&format!(
                    "no sessions enter at {}: its catalog does not have the tables of the cluster",
                    names.join(", ")
                ));
                Ok(())
            }
        }
    }

    /// The cluster, if the target is a worker of one: its ledger is on the coordinator, and sessions enter at the worker all the same, as if
    /// `--connect WORKER` had been typed.
    fn entered_by_worker(
        &mut self,
        address: &Address,
        spec: &ConnSpec,
        context: &Context,
    ) -> Result<Option<Cluster>, Failure> {
        if address.file().is_some() || !load::ledger::is_elsewhere(spec)? {
            return Ok(None);
        }
        let cluster = address.cluster(context)?;
        if cluster.coordinator_elsewhere().is_none() {
            return Ok(None);
        }
        self.connect = Some(Way::Nodes(vec![cluster.nodes[0].name.clone()]));
        Ok(Some(cluster))
    }

    /// The nodes, if sessions are assigned to them.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The nodes where sessions enter, by turns or by chance.
    fn entries(&self, cluster: &Cluster) -> Vec<u16> {
        let is_open = |node: &usize| !cluster.nodes[*node].is_closed;
        let all = || (0..cluster.nodes.len()).filter(is_open).map(|node| node as u16).collect();
        match &self.connect {
            None | Some(Way::Each | Way::Random) => all(),
            Some(Way::Owner) => cluster.data_nodes().map(|node| node as u16).collect(),
            Some(Way::Nodes(names)) => {
                names.iter().filter_map(|name| cluster.node(name)).map(|node| node as u16).collect()
            }
        }
    }

    /// Where each session enters; without a cluster nodes are not distinguished. With `--data` alone, at every node by turns.
    pub(crate) fn connects(&self, sessions: u64, seed: u64) -> Connects {
        let Some(cluster) = &self.cluster else { return Connects::default() };
        let (all, entries) = (cluster.nodes.len(), self.entries(cluster));
        match &self.connect {
            Some(Way::Random) => Connects::at_random(all, &entries, sessions, seed),
            _ => Connects::by_turns(all, &entries, sessions),
        }
    }

    /// What dials the sessions. `pinned`: the settings that are not the user's; `plans_each`: their statements are planned anew each time.
    pub(crate) fn dial(
        &self,
        spec: &ConnSpec,
        connects: &Connects,
        pinned: Pinned,
        plans_each: bool,
    ) -> Arc<dyn Dial> {
        let spec_of = |spec: &ConnSpec| {
            let mut spec = spec.clone().with_pinned(pinned);
            if plans_each {
                let options = spec.options.take().map(|options| format!("{options} ")).unwrap_or_default();
                spec.options = Some(format!("{options}{PLAN_EACH}"));
            }
            spec
        };
        let isolated = engines::engine::isolated();
        match &self.cluster {
            None => Arc::new(TargetDial::new(spec_of(spec)).with_isolated(isolated)),
            Some(cluster) => {
                let specs =
                    cluster.nodes.iter().map(|node| (node.name.clone(), spec_of(&node.spec))).collect();
                RoutedDial::new(specs, connects.clone(), 0, isolated)
            }
        }
    }

    /// The words for the step's parameters.
    pub(crate) fn words(&self) -> (Option<String>, Option<&str>) {
        let connect = self.connect.as_ref().map(Way::word);
        // What --data alone means need not be looked up.
        let connect = connect.or_else(|| self.cluster.as_ref().map(|_| Way::Each.word()));
        (connect, self.data.as_deref())
    }

    /// Refuses what cannot work: writes on a standby, scripts and inserts held to a node's keys.
    pub(crate) fn check_mix(&self, demands: &[Demand]) -> Result<(), Failure> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let writer = demands.iter().find(|demand| demand.writes);
        let standby = self
            .entries(cluster)
            .into_iter()
            .map(|node| &cluster.nodes[usize::from(node)])
            .find(|node| node.role == Role::Standby);
        if let (Some(writer), Some(standby)) = (writer, standby) {
            return Err(Failure::usage(format!(
                "{} writes, but sessions that connect to {} can only read: it is a standby",
                writer.name, standby.name
            ))
            .hint(format!(
                "add --connect {}, or drive a workload that only reads: {}",
                as_typed(&names_of(cluster, cluster.data_nodes())),
                workloads::driving::held_to_nodes().0.join(", ")
            )));
        }
        let nodes = self.entries(cluster);
        if let (Some(writer), [first, _, ..]) = (writer, nodes.as_slice())
            && cluster.engine.layout.has_unresolved_conflicts()
        {
            return Err(Failure::usage(format!(
                "{} writes, and {} nodes would write the same rows: {}",
                writer.name,
                nodes.len(),
                cluster.engine.conflict_rule()
            ))
            .hint(format!(
                "add --connect {}; prove conflict shows what becomes of conflicting writes",
                as_typed(&cluster.nodes[usize::from(*first)].name)
            )));
        }
        let Some(flag) = self.holding() else { return Ok(()) };
        for Demand { name, keys, .. } in demands {
            match keys {
                Keys::Own => {
                    return Err(Failure::usage(format!(
                        "{flag} chooses keys of one node, but a script chooses its own keys: {name}"
                    ))
                    .hint(format!(
                        "omit it for scripts (--connect with names works), or use one of {}",
                        workloads::driving::held_to_nodes().1.join(", ")
                    )));
                }
                Keys::New => {
                    return Err(Failure::usage(format!(
                        "{flag} cannot keep inserts on one node, and {name} inserts: the key of a new row decides its node"
                    ))
                    .hint(format!(
                        "use a workload without inserts: {}",
                        workloads::driving::held_to_nodes().1.join(", ")
                    )));
                }
                Keys::OfNode => {}
            }
        }
        Ok(())
    }

    /// The cluster as benchmarks see it, whose sessions enter at `connects`.
    pub(crate) fn entry<'a>(&'a self, connects: &'a Connects) -> Option<Entry<'a>> {
        let cluster = self.cluster.as_ref().or(self.spread_over.as_ref())?;
        let nodes = || match &self.data {
            Some(name) => cluster.node(name).map(|node| node as u16).into_iter().collect(),
            None => self.entries(cluster),
        };
        let held = self.holding().map(|flag| Held { flag, nodes: nodes() });
        Some(Entry { cluster, is_at_owner: self.connect == Some(Way::Owner), connects, held })
    }

    /// The flag that holds sessions to the keys of nodes, if one does.
    fn holding(&self) -> Option<&'static str> {
        match (&self.data, &self.connect) {
            (Some(_), _) => Some("--data"),
            (None, Some(Way::Owner)) => Some("--connect owner"),
            _ => None,
        }
    }
}

/// That no session can enter at a node.
pub(crate) fn closed(cluster: &Cluster, flag: &str, name: &str) -> Failure {
    let is_open = |node: &usize| !cluster.nodes[*node].is_closed;
    let open = (0..cluster.nodes.len()).filter(is_open);
    Failure::usage(format!(
        "{flag}: no session can enter at {name}: its catalog does not have the tables of the cluster"
    ))
    .hint(format!("sessions can enter at {}", names_of(cluster, open)))
}

/// A value of a flag as a shell takes it for one word.
fn as_typed(value: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,:/@".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_string(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// Names of some nodes, for a message or a flag.
fn names_of(cluster: &Cluster, nodes: impl Iterator<Item = usize>) -> String {
    nodes.map(|node| cluster.nodes[node].name.as_str()).collect::<Vec<&str>>().join(",")
}

/// The cluster by the catalog of the target. One that cannot be queried counts as one server.
///
/// # Errors
/// When the time for a connection is over: the next one would take as long again.
fn discovered(spec: &ConnSpec) -> Result<Option<Cluster>, Failure> {
    match Cluster::discover(spec) {
        Ok(cluster) => Ok(Some(cluster)),
        Err(ClusterError::Entry(error)) if error.has_timed_out() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engines::{ClusterNode, Engine};

    #[test]
    fn names_that_a_shell_would_split_are_quoted() {
        assert_eq!(as_typed("n1,n2"), "n1,n2");
        assert_eq!(as_typed("Node 0"), "'Node 0'");
        assert_eq!(as_typed("it's"), "'it'\\''s'");
    }

    fn cluster(roles: &[Role]) -> Cluster {
        let node = |(at, role): (usize, &Role)| {
            let spec = ConnSpec::new("localhost", 5432 + at as u16, "me", "db");
            ClusterNode::new(format!("n{}", at + 1), *role, spec)
        };
        Cluster {
            engine: Engine::parse("fdw-sharded").unwrap(),
            nodes: roles.iter().enumerate().map(node).collect(),
            partitions: None,
            left_out: vec![],
        }
    }

    fn route(connect: &str, roles: &[Role]) -> Route {
        Route { cluster: Some(cluster(roles)), ..Route::new(Way::parse(connect), None) }
    }

    #[test]
    fn ways_are_words_or_names() {
        assert_eq!(Way::parse("each"), Some(Way::Each));
        assert_eq!(Way::parse("n1, n2"), Some(Way::Nodes(vec!["n1".into(), "n2".into()])));
        assert!(Way::parse("n1,,n2").is_none() && Way::parse("").is_none());
    }

    #[test]
    fn sessions_are_assigned_as_requested() {
        let shards = [Role::Shard; 3];
        let sessions = |connect: &str, roles: &[Role]| route(connect, roles).connects(6, 1).sessions();
        assert_eq!(sessions("each", &shards), [2, 2, 2]);
        assert_eq!(sessions("owner", &shards), [2, 2, 2]);
        assert_eq!(sessions("n3,n1", &shards), [3, 0, 3]);
        assert_eq!(sessions("n2", &shards), [0, 6, 0]);
        let replicated = [Role::Primary, Role::Standby, Role::Standby];
        assert_eq!(sessions("owner", &replicated), [6, 0, 0]);
        assert_eq!(sessions("random", &replicated).iter().sum::<u64>(), 6);
        assert_eq!(Route::default().connects(6, 1).nodes(), 0);
    }

    #[test]
    fn no_session_enters_at_a_node_without_the_tables() {
        let mut route = route("each", &[Role::Coordinator, Role::Shard, Role::Worker]);
        if let Some(cluster) = &mut route.cluster {
            cluster.nodes[2].is_closed = true;
        }
        assert_eq!(route.connects(6, 1).sessions(), [3, 3, 0]);
        let refused = closed(route.cluster().unwrap(), "--connect", "n3").render(false);
        assert!(refused.contains("n3: its catalog") && refused.contains("enter at n1,n2"), "{refused}");
    }

    #[test]
    fn nodes_are_listed_and_long_lists_are_cut() {
        let names = |n: usize| names(&cluster(&vec![Role::Shard; n]));
        assert_eq!([names(1), names(2), names(3)], ["n1", "n1 and n2", "n1, n2 and n3"]);
        assert!(names(25).ends_with("n20 and 5 more"), "{}", names(25));
    }

    #[test]
    fn writes_stay_off_standbys() {
        let demands = |writes: bool, keys: Keys| vec![Demand { name: "one".to_string(), writes, keys }];
        let replicated = [Role::Primary, Role::Standby];
        assert!(route("each", &replicated).check_mix(&demands(true, Keys::OfNode)).is_err());
        assert!(route("each", &replicated).check_mix(&demands(false, Keys::OfNode)).is_ok());
        assert!(route("n1", &replicated).check_mix(&demands(true, Keys::OfNode)).is_ok());
        assert!(route("owner", &[Role::Shard; 2]).check_mix(&demands(true, Keys::New)).is_err());
        assert!(route("each", &[Role::Shard; 2]).check_mix(&demands(true, Keys::New)).is_ok());
    }
}
