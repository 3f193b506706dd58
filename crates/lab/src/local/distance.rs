//! Distances between the nodes of a local cluster, and between them and their clients: relays that let data arrive later.
//!
//! A distance is the time of a round trip; each direction takes half of it ([`relays`](super::relays)).

use std::time::Duration;

use super::LocalError;

/// Everyone who is not a node.
pub(super) const CLIENT: &str = "client";
/// Stands for every node.
const ANY: &str = "*";
/// The longest round trip: a satellite's is 0.6 s.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);
/// How the nodes of a kind of cluster know each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addresses {
    /// Each node has an address of its own for each other one.
    EachItsOwn,
    /// A node has one address, which all others use.
    OnePerNode,
    /// A failover manager writes them.
    Managed,
}

/// One entry: everything between these two ends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    ends: [String; 2],
    round_trip: Duration,
}

/// Round trips between the ends, as `n1-n2=1ms,client-*=0.5ms`; later entries override earlier ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Distances {
    entries: Vec<Entry>,
}

impl Distances {
    /// Reads the entries and checks them against the names of the nodes.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub(super) fn parse(text: &str, nodes: &[String], addresses: Addresses) -> Result<Distances, LocalError> {
        let first = nodes.first().cloned().unwrap_or_default();
        let example = match nodes.get(1) {
            Some(second) => format!("{first}-{second}=1ms,{CLIENT}-*=0.5ms"),
            None => format!("{CLIENT}-{first}=0.5ms"),
        };
        let wrong = |problem: String, hint: String| LocalError::Topology {
            problem: format!("--delay {text:?}: {problem}"),
            hint,
        };
        let write = || format!("write pairs of ends and the time of a round trip, as --delay {example}");
        let known = |end: &str| end == ANY || end == CLIENT || nodes.iter().any(|node| node == end);
        let mut entries = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (pair, time) =
                part.split_once('=').ok_or_else(|| wrong(format!("{part:?} has no time"), write()))?;
            let (from, to) =
                pair.split_once('-').ok_or_else(|| wrong(format!("{pair:?} is no pair of ends"), write()))?;
            let ends = [from.trim().to_owned(), to.trim().to_owned()];
            if let Some(unknown) = ends.iter().find(|end| !known(end)) {
                let names = nodes.join(", ");
                return Err(wrong(
                    format!("no node is called {unknown:?}"),
                    format!("the ends are {names}, {CLIENT}, and * for every node: --delay {example}"),
                ));
            }
            if ends[0] == ends[1] && ends[0] != ANY {
                return Err(wrong(format!("{pair:?} is no pair: both ends are the same"), write()));
            }
            let round_trip = duration(time.trim())
                .ok_or_else(|| wrong(format!("{time:?} is no time from 0 to 10 s"), write()))?;
            entries.push(Entry { ends, round_trip });
        }
        let distances = Distances { entries };
        distances.check(nodes, addresses).map_err(|(problem, hint)| wrong(problem, hint))?;
        Ok(distances)
    }

    /// Whether this kind of cluster can have them.
    fn check(&self, nodes: &[String], addresses: Addresses) -> Result<(), (String, String)> {
        match addresses {
            Addresses::Managed => Err((
                "Patroni itself writes how the nodes connect, so nothing can be put between them".to_owned(),
                "omit --delay, or: pgfathom up replicated --delay 'primary-*=1ms'".to_owned(),
            )),
            Addresses::OnePerNode => {
                for to in nodes {
                    let mut seen = nodes.iter().filter(|from| *from != to).map(|from| self.between(from, to));
                    let first = seen.next();
                    if seen.any(|other| Some(other) != first) {
                        return Err((
                            format!("all nodes use one address of {to}, so all must be equally far from it"),
                            "give all pairs of nodes one distance: --delay '*-*=1ms'".to_owned(),
                        ));
                    }
                }
                Ok(())
            }
            Addresses::EachItsOwn => Ok(()),
        }
    }

    /// The round trip between two ends; zero: no relay.
    pub fn between(&self, from: &str, to: &str) -> Duration {
        let is = |end: &str, name: &str| end == name || (end == ANY && name != CLIENT);
        let fits = |entry: &&Entry| {
            let [a, b] = &entry.ends;
            (is(a, from) && is(b, to)) || (is(a, to) && is(b, from))
        };
        self.entries.iter().rev().find(fits).map_or(Duration::ZERO, |entry| entry.round_trip)
    }

    /// The ends that need a relay to `to`: nodes, and the client. Where nodes have one address, one of them stands for all.
    pub(super) fn ways_to(
        &self,
        to: &str,
        nodes: &[String],
        addresses: Addresses,
    ) -> Vec<(String, Duration)> {
        let others = nodes.iter().map(String::as_str).filter(|from| *from != to);
        let has_one_address = addresses == Addresses::OnePerNode;
        let others: Vec<&str> = if has_one_address { others.take(1).collect() } else { others.collect() };
        others
            .into_iter()
            .chain([CLIENT])
            .map(|from| (from.to_owned(), self.between(from, to)))
            .filter(|(_, round_trip)| !round_trip.is_zero())
            .map(|(from, round_trip)| match has_one_address && from != CLIENT {
                true => (ANY.to_owned(), round_trip),
                false => (from, round_trip),
            })
            .collect()
    }

    /// As they are given.
    pub fn describe(&self) -> String {
        let entry = |entry: &Entry| {
            format!("{}-{}={}ms", entry.ends[0], entry.ends[1], entry.round_trip.as_secs_f64() * 1e3)
        };
        self.entries.iter().map(entry).collect::<Vec<_>>().join(",")
    }
}

/// `1ms`, `0.5ms`, `250us`, `1s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * seconds;
    (seconds <= ROUND_TRIP_MAX.as_secs_f64()).then(|| Duration::from_secs_f64(seconds))
}

/// Another port of a server, for those who are far away from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Detour {
    /// A node, [`CLIENT`], or `*` for every node.
    pub(crate) from: String,
    pub(crate) port: u16,
    pub(crate) round_trip: Duration,
}

/// The port that `from` has to use: that of a relay if there is one.
pub(crate) fn port_for(from: &str, detours: &[Detour], own: u16) -> u16 {
    for_end(from, detours.iter(), |detour| &detour.from).map_or(own, |detour| detour.port)
}

/// The one of several ways that `from` takes, if any is for it.
pub(super) fn for_end<T>(
    from: &str,
    mut ways: impl Iterator<Item = T>,
    end: impl Fn(&T) -> &String,
) -> Option<T> {
    ways.find(|way| end(way) == from || (end(way) == ANY && from != CLIENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, nodes: &[&str], addresses: Addresses) -> Result<Distances, LocalError> {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        Distances::parse(text, &nodes, addresses)
    }

    fn sharded(text: &str) -> Result<Distances, LocalError> {
        parse(text, &["n1", "n2", "n3"], Addresses::EachItsOwn)
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn later_entries_override_earlier_ones_in_either_order_of_the_ends() {
        let distances = sharded("*-*=1ms, n2-n1=30ms,client-*=500us,client-n3=0ms").unwrap();
        for (from, to, expected) in [
            ("n1", "n2", ms(30)),
            ("n2", "n1", ms(30)),
            ("n3", "n1", ms(1)),
            (CLIENT, "n1", Duration::from_micros(500)),
            ("n2", CLIENT, Duration::from_micros(500)),
            (CLIENT, "n3", Duration::ZERO),
        ] {
            assert_eq!(distances.between(from, to), expected, "{from}-{to}");
        }
        assert_eq!(distances.describe(), "*-*=1ms,n2-n1=30ms,client-*=0.5ms,client-n3=0ms");
        let nodes = ["n1", "n2", "n3"].map(str::to_owned);
        assert_eq!(
            distances.ways_to("n3", &nodes, Addresses::EachItsOwn),
            [("n1".to_owned(), ms(1)), ("n2".to_owned(), ms(1))]
        );
        let one = distances.ways_to("n1", &nodes, Addresses::OnePerNode);
        assert_eq!(one, [("*".to_owned(), ms(30)), (CLIENT.to_owned(), Duration::from_micros(500))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        for (text, words) in [
            ("n1-n2", "has no time"),
            ("n1=1ms", "no pair of ends"),
            ("n1-n4=1ms", "no node is called \"n4\""),
            ("n1-n1=1ms", "both ends are the same"),
            ("n1-n2=1", "no time"),
            ("n1-n2=-1ms", "no time"),
            ("n1-n2=1h", "no time"),
            ("n1-n2=11s", "from 0 to 10 s"),
            ("n1-n2=1e9s", "no time"),
            ("n1-n2=..ms", "no time"),
            ("", "has no time"),
            ("n1-n2=1ms,", "has no time"),
        ] {
            let error = sharded(text).unwrap_err();
            assert!(error.to_string().contains(words), "{text:?}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("--delay")), "{text:?}");
        }
        let single = parse("client-single=1ms", &["single"], Addresses::EachItsOwn).unwrap();
        assert_eq!(single.between(CLIENT, "single"), ms(1));
        let citus = |text: &str| parse(text, &["coordinator", "w1", "w2"], Addresses::OnePerNode);
        assert!(citus("*-*=1ms").is_ok());
        let uneven = citus("w1-w2=1ms").unwrap_err();
        assert!(uneven.to_string().contains("all nodes use one address of w1"), "{uneven}");
        let managed = parse("n1-n2=1ms", &["n1", "n2"], Addresses::Managed).unwrap_err();
        assert!(managed.to_string().contains("Patroni"), "{managed}");
    }

    #[test]
    fn a_node_takes_the_relay_that_is_its_own() {
        let detour = |from: &str, port| Detour { from: from.to_owned(), port, round_trip: ms(1) };
        let detours = [detour("n2", 7), detour(CLIENT, 8)];
        assert_eq!(["n2", "n3", CLIENT].map(|from| port_for(from, &detours, 5)), [7, 5, 8]);
        assert_eq!(["n2", CLIENT].map(|from| port_for(from, &[detour(ANY, 9)], 5)), [9, 5]);
    }
}
