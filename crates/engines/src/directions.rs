//! Who follows whom among nodes that send each other what they write, and whether that works, by the catalogs of both sides.

use crate::catalog;
pub use crate::catalog::{QueryError, TextRow};
use crate::engine::{known_replications, replications};
use connect::sql::{identifier, literal};
use postgres::{Client, Error};

/// A subscription, as the node that follows has it.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Its name.
    pub name: String,
    /// Its slot on the node that is followed.
    pub slot: String,
    /// Whether it is enabled, and not stopped by a user.
    pub enabled: bool,
    /// Whether its process runs, as far as the replication system shows that.
    pub running: bool,
    /// Errors of its apply worker, as far as the server counts them.
    pub errors: u64,
    /// The replication system that has it in its own catalog.
    pub system: Option<&'static str>,
    /// The node that is followed, by its key in that catalog.
    source: Option<String>,
}

/// A follower and its source, both by place.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The node that is followed.
    pub source: usize,
    /// The node that follows.
    pub follower: usize,
    /// Its subscription.
    pub subscription: Subscription,
    /// Whether the source has the slot.
    pub has_slot: bool,
}

/// What the catalogs of all nodes have.
#[derive(Debug)]
pub struct Directions {
    /// Those whose source is one of the nodes.
    pub all: Vec<Direction>,
    /// Of each node, the subscriptions that lead to none of the others: where no catalog names the source, the slot would.
    astray: Vec<Vec<Subscription>>,
    /// What the role may not read.
    pub hidden: Vec<Hidden>,
}

/// A replication system whose state on a node the role may not read. Whether replication works there is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hidden {
    /// The node, by its place.
    pub node: usize,
    /// The name of the system.
    pub system: &'static str,
    /// The server's message.
    pub why: String,
}

/// What one node has.
#[derive(Debug, Default)]
struct Seen {
    slots: Vec<String>,
    /// The node's own key in the catalog of each replication system.
    keys: Vec<(&'static str, String)>,
    subscriptions: Vec<Subscription>,
    hidden: Vec<(&'static str, String)>,
}

/// Slots that subscriptions read.
const SLOTS: &str = "select slot_name::text from pg_catalog.pg_replication_slots where slot_type = 'logical' and database = pg_catalog.current_database()";

/// PostgreSQL's own, with the columns of [`crate::profile::Replication::subscriptions`]. Which of the nodes is followed is not in the catalog.
const NATIVE: &str = "select s.subname as subscription, coalesce(s.subslotname, s.subname) as slot, s.subenabled as enabled, \
        exists (select 1 from pg_catalog.pg_stat_subscription w where w.subname = s.subname and w.relid is null and w.pid is not null) as running, \
        null::text as source \
    from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid and d.datname = pg_catalog.current_database()";

/// Errors of PostgreSQL's own apply workers, which are counted since PostgreSQL 15.
const COUNTS_ERRORS: &str = "pg_catalog.to_regclass('pg_catalog.pg_stat_subscription_stats') is not null";
const ERRORS: &str = "select subname::text, apply_error_count::text from pg_catalog.pg_stat_subscription_stats where apply_error_count > 0";

/// Reads what so many nodes have. `ask` runs a query at a node, by its place.
///
/// # Errors
/// Those of `ask`.
pub fn find<E: QueryError>(
    nodes: usize,
    mut ask: impl FnMut(usize, &str) -> Result<Vec<TextRow>, E>,
) -> Result<Directions, E> {
    let seen: Vec<Seen> =
        (0..nodes).map(|node| look(&mut |sql: &str| ask(node, sql))).collect::<Result<_, E>>()?;
    Ok(Directions::of(&seen))
}

/// The same through sessions of the control plane.
///
/// # Errors
/// When a catalog cannot be read.
pub fn of_clients<'c>(clients: impl IntoIterator<Item = &'c mut Client>) -> Result<Directions, Error> {
    let mut clients: Vec<&mut Client> = clients.into_iter().collect();
    find(clients.len(), |node, sql| catalog::rows(clients[node], sql))
}

/// The subscriptions of one node.
///
/// # Errors
/// When its catalog cannot be read.
pub fn subscriptions(client: &mut Client) -> Result<Vec<Subscription>, Error> {
    Ok(look(&mut |sql: &str| catalog::rows(client, sql))?.subscriptions)
}

fn is_so<E>(ask: &mut impl FnMut(&str) -> Result<Vec<TextRow>, E>, condition: &str) -> Result<bool, E> {
    Ok(ask(&format!("select {condition}"))?.first().is_some_and(|row| row.is_true(0)))
}

fn look<E: QueryError>(ask: &mut impl FnMut(&str) -> Result<Vec<TextRow>, E>) -> Result<Seen, E> {
    let slots = ask(SLOTS)?.iter().filter_map(|row| row.get(0).map(str::to_owned)).collect();
    let mut seen = Seen { slots, ..Seen::default() };
    seen.add(&ask(&columns(NATIVE))?, None);
    if !seen.subscriptions.is_empty() && is_so(ask, COUNTS_ERRORS)? {
        let errors = ask(ERRORS)?;
        for own in &mut seen.subscriptions {
            let row = errors.iter().find(|row| row.get(0) == Some(&*own.name));
            own.errors = row.and_then(|row| row.get(1)?.parse().ok()).unwrap_or(0);
        }
    }
    let found = replications(|replication| replication.subscriptions.is_some(), |sign| is_so(ask, sign))?;
    for replication in found {
        let Some(subscriptions) = replication.subscriptions else { continue };
        // As in the nodes of an engine's catalog: the key, and whether it is this server.
        let read = ask(&columns(subscriptions)).and_then(|rows| Ok((rows, ask(replication.nodes)?)));
        let (rows, nodes) = match read {
            Ok(read) => read,
            Err(error) => match error.refusal() {
                Some(why) => {
                    seen.hidden.push((replication.name, why));
                    continue;
                }
                None => return Err(error),
            },
        };
        seen.add(&rows, Some(replication.name));
        let own = nodes.iter().find(|row| row.is_true(6)).and_then(|row| row.get(0));
        seen.keys.extend(own.map(|key| (replication.name, key.to_owned())));
    }
    Ok(seen)
}

fn columns(subscriptions: &str) -> String {
    format!(
        "select f.subscription::text, f.slot::text, f.enabled, f.running, f.source::text from ({subscriptions}) f"
    )
}

impl Seen {
    fn add(&mut self, rows: &[TextRow], system: Option<&'static str>) {
        self.subscriptions.extend(rows.iter().map(|row| Subscription {
            name: row.get(0).unwrap_or_default().to_owned(),
            slot: row.get(1).unwrap_or_default().to_owned(),
            enabled: row.is_true(2),
            running: row.is_true(3),
            errors: 0,
            system,
            source: row.get(4).map(str::to_owned),
        }));
    }

    fn is(&self, subscription: &Subscription) -> bool {
        let is_it = |(system, key): &(&'static str, String)| {
            Some(*system) == subscription.system && Some(key) == subscription.source.as_ref()
        };
        self.keys.iter().any(is_it)
    }
}

impl Directions {
    fn of(seen: &[Seen]) -> Directions {
        let hidden = |(node, seen): (usize, &Seen)| {
            let of_node = |(system, why): &(&'static str, String)| Hidden { node, system, why: why.clone() };
            seen.hidden.iter().map(of_node).collect::<Vec<_>>()
        };
        let hidden = seen.iter().enumerate().flat_map(hidden).collect();
        let mut directions = Directions { all: Vec::new(), astray: vec![Vec::new(); seen.len()], hidden };
        for (follower, node) in seen.iter().enumerate() {
            for subscription in &node.subscriptions {
                // A slot may have one name on all sources: the catalog that names the source is better.
                let others = || (0..seen.len()).filter(move |&other| other != follower);
                let named: Vec<usize> = others().filter(|&other| seen[other].is(subscription)).collect();
                let has_slot = |other: &usize| seen[*other].slots.contains(&subscription.slot);
                let sources = if named.is_empty() { others().filter(has_slot).collect() } else { named };
                if sources.is_empty() {
                    directions.astray[follower].push(subscription.clone());
                }
                directions.all.extend(sources.into_iter().map(|source| Direction {
                    source,
                    follower,
                    subscription: subscription.clone(),
                    has_slot: has_slot(&source),
                }));
            }
        }
        directions
    }

    /// Whether there is a subscription at all, wherever it leads.
    pub fn exist(&self) -> bool {
        let is_astray = self.astray.iter().any(|subscriptions| !subscriptions.is_empty());
        !self.all.is_empty() || is_astray || !self.hidden.is_empty()
    }

    /// The pairs of a follower and a source without a slot between them, and why as far as it is known: that heals by no waiting.
    pub fn cut(&self) -> Vec<(usize, usize, String)> {
        let nodes = self.astray.len();
        let pairs = (0..nodes).flat_map(|follower| (0..nodes).map(move |source| (follower, source)));
        // What a node follows is unknown if either catalog is hidden: the source has its own key there.
        let is_hidden = |node: usize| self.hidden.iter().any(|hidden| hidden.node == node);
        let is_cut = |&(follower, source): &(usize, usize)| {
            let is_known = follower != source && !is_hidden(follower) && !is_hidden(source);
            is_known && !self.between(follower, source).any(|direction| direction.has_slot)
        };
        pairs
            .filter(is_cut)
            .map(|(follower, source)| (follower, source, self.why_cut(follower, source)))
            .collect()
    }

    /// What keeps nodes from getting what others write: the pairs of a follower and a source, and why, in words.
    pub fn faults(&self) -> Vec<(usize, usize, String)> {
        let named = |why: String| if why.is_empty() { "it has no subscription".to_owned() } else { why };
        let all = self.cut().into_iter().chain(self.halted());
        all.map(|(follower, source, why)| (follower, source, named(why))).collect()
    }

    /// Those of one follower, with the place of the other node.
    pub fn faults_of(&self, follower: usize) -> Vec<(usize, String)> {
        let its = self.faults().into_iter().filter(|(node, _, _)| *node == follower);
        its.map(|(_, source, why)| (source, why)).collect()
    }

    /// The pairs of a follower and a source whose subscription is disabled or has stopped, and which.
    pub fn halted(&self) -> Vec<(usize, usize, String)> {
        let mut halted: Vec<(usize, usize, String)> = Vec::new();
        for direction in self.all.iter().filter(|direction| direction.has_slot) {
            let (follower, source) = (direction.follower, direction.source);
            let works = |other: &Direction| {
                other.has_slot && other.subscription.enabled && other.subscription.running
            };
            if !self.between(follower, source).any(works) {
                halted.push((follower, source, direction.subscription.state()));
            }
        }
        halted
    }

    fn between(&self, follower: usize, source: usize) -> impl Iterator<Item = &Direction> {
        self.all.iter().filter(move |direction| (direction.follower, direction.source) == (follower, source))
    }

    fn why_cut(&self, follower: usize, source: usize) -> String {
        let without_slot = |subscription: &Subscription| {
            format!("{}, and its slot {:?} is not there", subscription.state(), subscription.slot)
        };
        if let Some(direction) = self.between(follower, source).next() {
            return without_slot(&direction.subscription);
        }
        self.astray[follower].iter().map(without_slot).collect::<Vec<String>>().join("; ")
    }
}

impl Subscription {
    /// SQL that starts it on its own node, where it does not run.
    pub fn start(&self) -> Option<String> {
        match self.system {
            None => Some(format!("ALTER SUBSCRIPTION {} ENABLE;", identifier(&self.name))),
            Some(system) => {
                let found = known_replications().find(|replication| replication.name == system)?;
                Some(found.own.enable?.replace("{subscription}", &literal(&self.name)))
            }
        }
    }

    /// Whether its own node shows nothing wrong with it.
    pub fn is_healthy(&self) -> bool {
        self.enabled && self.running && self.errors == 0
    }

    /// What its own node shows of it.
    pub fn state(&self) -> String {
        const LOG: &str = "the node's log has the reason";
        let state = record::subscription::state(self.enabled, self.running, self.errors);
        // A user disables one, and nothing but an error stops it.
        let log = match self.errors > 0 || self.enabled && !self.running {
            true => format!(" ({LOG})"),
            false => String::new(),
        };
        format!("the subscription {} {state}{log}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(key: &str, slots: &[&str], follows: &[(&str, bool)]) -> Seen {
        let subscription = |(source, running): &(&str, bool)| Subscription {
            name: format!("from_{source}"),
            slot: "one_name".to_owned(),
            enabled: true,
            running: *running,
            errors: 0,
            system: Some("pgactive"),
            source: Some((*source).to_owned()),
        };
        Seen {
            slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
            keys: vec![("pgactive", key.to_owned())],
            subscriptions: follows.iter().map(subscription).collect(),
            hidden: Vec::new(),
        }
    }

    #[test]
    fn a_slot_of_one_name_on_all_sources_belongs_to_the_source_that_the_catalog_names() {
        let slots = &["one_name"];
        let nodes = [
            node("a", slots, &[("b", true), ("c", false)]),
            node("b", slots, &[("a", true), ("c", true)]),
            node("c", &[], &[("a", true), ("b", true)]),
        ];
        let found = Directions::of(&nodes);
        assert_eq!(found.all.len(), 6);
        let cut: Vec<_> = found.cut().into_iter().map(|(follower, source, _)| (follower, source)).collect();
        assert_eq!(cut, [(0, 2), (1, 2)]);
        let why = &found.cut()[0].2;
        assert!(
            why.starts_with("the subscription from_c has stopped") && why.contains("is not there"),
            "{why}"
        );
        assert!(found.halted().is_empty());
    }

    #[test]
    fn a_subscription_that_exists_is_named_although_its_slot_is_nowhere() {
        let mut nodes = [node("a", &[], &[]), node("b", &[], &[("a", false)])];
        nodes[1].subscriptions[0].source = None;
        let found = Directions::of(&nodes);
        assert!(found.exist() && found.all.is_empty());
        let cut = found.cut();
        assert_eq!((cut[0].2.as_str(), cut[1].0, cut[1].1), ("", 1, 0));
        assert!(cut[1].2.contains("from_a has stopped"), "{cut:?}");
    }

    #[test]
    fn errors_of_an_apply_worker_are_part_of_its_state() {
        let mut one = node("b", &[], &[("a", true)]).subscriptions.remove(0);
        let mut state = |enabled, running, errors| {
            (one.enabled, one.running, one.errors) = (enabled, running, errors);
            assert_eq!(one.is_healthy(), one.state().ends_with(" is enabled"), "{}", one.state());
            one.state().trim_start_matches("the subscription from_a ").to_owned()
        };
        assert_eq!(state(true, true, 0), "is enabled");
        assert_eq!(state(false, false, 0), "is disabled");
        assert_eq!(state(false, false, 1), "is disabled after 1 error (the node's log has the reason)");
        assert!(state(true, false, 3).starts_with("has stopped after 3 errors"));
        assert!(state(true, true, 3).starts_with("is enabled, with 3 errors so far"));
    }

    #[test]
    fn a_stopped_subscription_is_halted_and_not_cut() {
        let slots = &["one_name"];
        let nodes = [node("a", slots, &[("b", true)]), node("b", slots, &[("a", false)])];
        let found = Directions::of(&nodes);
        assert!(found.cut().is_empty());
        let halted = found.halted();
        assert_eq!(halted.len(), 1);
        assert_eq!((halted[0].0, halted[0].1), (1, 0));
        assert_eq!(found.faults_of(0), []);
        assert!(found.faults_of(1)[0].1.contains("has stopped"));
    }

    #[derive(Debug)]
    struct Broken(bool);

    impl QueryError for Broken {
        fn refusal(&self) -> Option<String> {
            self.0.then(|| "permission denied for table pgactive_nodes".to_owned())
        }
    }

    /// The sign of pgactive is there, and its catalog may be read on the first node only.
    fn with_rights_on_the_first(is_refused: bool) -> Result<Directions, Broken> {
        find(2, |node, sql| match sql {
            sql if sql.contains("extname = 'pgactive'") => {
                Ok(vec![[Some("t".to_owned())].into_iter().collect()])
            }
            sql if sql.contains("pgactive.") && node == 1 => Err(Broken(is_refused)),
            _ => Ok(vec![]),
        })
    }

    #[test]
    fn a_catalog_that_the_role_may_not_read_is_no_fault_of_replication() {
        let found = with_rights_on_the_first(true).unwrap();
        let why = "permission denied for table pgactive_nodes".to_owned();
        assert_eq!(found.hidden, [Hidden { node: 1, system: "pgactive", why }]);
        assert!(found.exist() && found.cut().is_empty() && found.halted().is_empty());
        // Any other error is one.
        assert!(with_rights_on_the_first(false).is_err());
    }

    /// Answers in the forms of two kinds of sessions.
    #[test]
    fn what_nodes_answer_is_read_the_same_by_any_session() {
        let cells =
            |cells: &[&str]| vec![cells.iter().map(|cell| Some((*cell).to_owned())).collect::<TextRow>()];
        let found = find(2, |node, sql| {
            let is_follower = node == 1;
            Ok::<Vec<TextRow>, Broken>(match sql {
                sql if sql == SLOTS && node == 0 => cells(&["s"]),
                sql if sql.contains("pg_subscription s join") && is_follower => {
                    cells(&["sub", "s", "true", "f", ""])
                }
                _ => vec![],
            })
        });
        let found = found.unwrap();
        assert_eq!(found.all.len(), 1);
        assert_eq!(
            found.faults_of(1),
            [(0, "the subscription sub has stopped (the node's log has the reason)".to_owned())]
        );
        assert_eq!(found.faults_of(0), [(1, "it has no subscription".to_owned())]);
    }
}
