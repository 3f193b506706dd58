//! Who follows whom among nodes that send each other what they write, and whether that works, by the catalogs of both sides.

use engines::profile::Replication;
use postgres::{Client, Error};

/// A subscription, as the node that follows has it.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) name: String,
    /// Its slot on the node that is followed.
    pub(crate) slot: String,
    pub(crate) enabled: bool,
    /// Whether its process runs, as far as the replication system shows that.
    pub(crate) running: bool,
    /// The replication system that has it in its own catalog.
    pub(crate) system: Option<&'static str>,
    /// The node that is followed, by its key in that catalog.
    source: Option<String>,
}

/// A follower and its source, both by place.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub(crate) source: usize,
    pub(crate) follower: usize,
    pub(crate) subscription: Subscription,
    /// Whether the source has the slot.
    pub(crate) has_slot: bool,
}

/// What the catalogs of all nodes have.
#[derive(Debug)]
pub(crate) struct Directions {
    pub(crate) all: Vec<Direction>,
    /// Of each node, the subscriptions that lead to none of the others: where no catalog names the source, the slot would.
    astray: Vec<Vec<Subscription>>,
}

/// What one node has.
#[derive(Debug, Default)]
struct Seen {
    slots: Vec<String>,
    /// The node's own key in the catalog of each replication system.
    keys: Vec<(&'static str, String)>,
    subscriptions: Vec<Subscription>,
}

/// Reads them.
pub(crate) fn find<'c>(clients: impl IntoIterator<Item = &'c mut Client>) -> Result<Directions, Error> {
    let seen: Vec<Seen> = clients.into_iter().map(look).collect::<Result<_, Error>>()?;
    Ok(Directions::of(&seen))
}

/// The subscriptions of one node.
pub(crate) fn subscriptions(client: &mut Client) -> Result<Vec<Subscription>, Error> {
    Ok(look(client)?.subscriptions)
}

fn look(client: &mut Client) -> Result<Seen, Error> {
    let rows = client.query(
        "select slot_name::text from pg_replication_slots where slot_type = 'logical' and database = current_database()",
        &[],
    )?;
    let slots = rows.iter().map(|row| row.get(0)).collect();
    let rows = client.query(
        "select subname::text, coalesce(subslotname, subname)::text, subenabled from pg_subscription
         where subdbid = (select oid from pg_database where datname = current_database())",
        &[],
    )?;
    let native = |row: &postgres::Row| Subscription {
        name: row.get(0),
        slot: row.get(1),
        enabled: row.get(2),
        running: true,
        system: None,
        source: None,
    };
    let mut seen = Seen { slots, keys: Vec::new(), subscriptions: rows.iter().map(native).collect() };
    let found = engines::engine::replications(
        |replication| replication.subscriptions.is_some(),
        |sign| Ok::<bool, Error>(client.query_one(&format!("select {sign}"), &[])?.get(0)),
    )?;
    for replication in found {
        seen.add_system(client, replication)?;
    }
    Ok(seen)
}

impl Seen {
    /// Adds what a replication system has in its own catalog.
    fn add_system(&mut self, client: &mut Client, replication: &'static Replication) -> Result<(), Error> {
        let Some(subscriptions) = replication.subscriptions else { return Ok(()) };
        let rows = client.query(
            &format!("select f.subscription::text, f.slot::text, f.enabled, f.running, f.source::text from ({subscriptions}) f"),
            &[],
        )?;
        self.subscriptions.extend(rows.iter().map(|row| Subscription {
            name: row.get(0),
            slot: row.get::<_, Option<String>>(1).unwrap_or_default(),
            enabled: row.get(2),
            running: row.get(3),
            system: Some(replication.name),
            source: row.get(4),
        }));
        self.keys.extend(replication.own_key(client)?.map(|key| (replication.name, key)));
        Ok(())
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
        let mut directions = Directions { all: Vec::new(), astray: vec![Vec::new(); seen.len()] };
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
    pub(crate) fn exist(&self) -> bool {
        !self.all.is_empty() || self.astray.iter().any(|subscriptions| !subscriptions.is_empty())
    }

    /// The pairs of a follower and a source without a slot between them, and why as far as it is known: that heals by no waiting.
    pub(crate) fn cut(&self) -> Vec<(usize, usize, String)> {
        let nodes = self.astray.len();
        let pairs = (0..nodes).flat_map(|follower| (0..nodes).map(move |source| (follower, source)));
        let is_cut = |&(follower, source): &(usize, usize)| {
            follower != source && !self.between(follower, source).any(|direction| direction.has_slot)
        };
        pairs
            .filter(is_cut)
            .map(|(follower, source)| (follower, source, self.why_cut(follower, source)))
            .collect()
    }

    /// The pairs of a follower and a source whose subscription is disabled or has stopped, and which.
    pub(crate) fn halted(&self) -> Vec<(usize, usize, String)> {
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
    /// What its own node shows of it.
    pub(crate) fn state(&self) -> String {
        let state = match (self.enabled, self.running) {
            (false, _) => "is disabled",
            (true, false) => "has stopped (the node's log has the reason)",
            (true, true) => "is enabled",
        };
        format!("the subscription {} {state}", self.name)
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
            system: Some("pgactive"),
            source: Some((*source).to_owned()),
        };
        Seen {
            slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
            keys: vec![("pgactive", key.to_owned())],
            subscriptions: follows.iter().map(subscription).collect(),
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
    fn a_stopped_subscription_is_halted_and_not_cut() {
        let slots = &["one_name"];
        let nodes = [node("a", slots, &[("b", true)]), node("b", slots, &[("a", false)])];
        let found = Directions::of(&nodes);
        assert!(found.cut().is_empty());
        let halted = found.halted();
        assert_eq!(halted.len(), 1);
        assert_eq!((halted[0].0, halted[0].1), (1, 0));
    }
}
