//! The collector of a pooler before a node: its pools, from the administration console of pgbouncer.
//!
//! A server sees of a pool that is too small only few sessions, all of them in use: the clients wait in the pooler. The console is found where the node itself
//! is reached through a pooler, where a pgbouncer of this host has the node among its databases, or it is named.

mod console;
mod found;
mod log;
mod outside;

use crate::board::{Board, NodeState};
use crate::collect::{Batch, Collect, Place, Recorded, Tick};
use connect::{ConnSpec, HostSpec};
use console::{Belongs, Console, Unread};
use outside::{Entrance, Outside};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The database of the console.
pub const CONSOLE: &str = "pgbouncer";
/// The first look for a pooler is repeated after this time: the node has not answered yet.
const SOON_US: u64 = 1_000_000;
/// Later ones, and attempts after an error.
const RETRY_US: u64 = 30_000_000;
/// How long the console may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// What is lost without it.
const LOST: &str = "how many clients wait for a connection of a pool, and for how long";

/// What is reported as missing without them.
const WHAT: &str = "pools";

/// Samples the pools before one node.
#[derive(Debug)]
pub struct Pools {
    node: String,
    spec: ConnSpec,
    /// The consoles that the user names.
    named: Vec<ConnSpec>,
    board: Arc<Board>,
    recorded: Recorded,
    consoles: Vec<Console>,
    /// Why those of other poolers are not read, by place.
    unread: BTreeMap<String, String>,
    /// What those of this host show besides.
    outside: Vec<Outside>,
    due_us: u64,
    /// A named console is opened also where the node never answers, but not before it could.
    has_waited: bool,
}

/// How a pooler became known: that decides what it may be sent, and what helps where its console cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// The user names it.
    Named,
    /// The node is reached through it.
    Through,
    /// A process of this host that has the node among its databases.
    Found,
}

/// A pooler whose console may be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    origin: Origin,
    /// Ways to its console; the first one that works is used.
    ways: Vec<ConnSpec>,
    /// Why it is not opened.
    distrusted: Option<String>,
    /// What one of this host shows without its console.
    entrance: Option<Entrance>,
}

impl Candidate {
    fn host(&self) -> Option<&HostSpec> {
        self.ways.first()?.hosts.first()
    }

    /// Where it is.
    fn place(&self) -> String {
        self.host().map(HostSpec::to_string).unwrap_or_default()
    }

    fn belongs(&self, port: u16) -> Belongs {
        if self.origin == Origin::Through { Belongs::Through } else { Belongs::AtPort(port) }
    }
}

/// Each pooler once: one that is found on this host may be named as well, by another address, but its port is its own.
fn apart(mut known: Vec<Candidate>, found: Vec<Candidate>) -> Vec<Candidate> {
    let port = |one: &Candidate| one.host().map(|host| host.port);
    let is_new = |one: &Candidate| !known.iter().any(|other| port(other) == port(one));
    let new: Vec<Candidate> = found.into_iter().filter(is_new).collect();
    known.extend(new);
    known
}

impl Pools {
    /// A collector for the poolers before the node at `spec`; `named` are consoles that the user knows.
    pub fn new(node: &str, spec: &ConnSpec, named: &[ConnSpec], board: Arc<Board>) -> Pools {
        Pools {
            node: node.to_string(),
            spec: spec.clone(),
            named: named.to_vec(),
            board,
            recorded: Recorded::default(),
            consoles: vec![],
            unread: BTreeMap::new(),
            outside: vec![],
            due_us: 0,
            has_waited: false,
        }
    }

    fn port(&self) -> u16 {
        self.spec.hosts.first().map_or(0, |host| host.port)
    }

    fn candidates(&self, state: &NodeState) -> Vec<Candidate> {
        let of = |origin: Origin| {
            move |way: ConnSpec| Candidate { origin, ways: vec![way], distrusted: None, entrance: None }
        };
        let mut known: Vec<Candidate> = self.named.iter().cloned().map(of(Origin::Named)).collect();
        if known.is_empty() && state.is_pooled {
            known.push(of(Origin::Through)(self.spec.clone().with_dbname(CONSOLE)));
        }
        let here = || found::here(&self.spec, self.port(), state.data_directory.as_deref());
        let found = if state.is_local { here() } else { vec![] };
        let found = found.into_iter().map(|here| Candidate {
            origin: Origin::Found,
            ways: here.ways,
            distrusted: here.distrusted,
            entrance: here.entrance,
        });
        apart(known, found.collect())
    }

    /// Looks for consoles, and opens those that are not open yet.
    fn open(&mut self, tick: &Tick) {
        let state = self.board.node(&self.node).unwrap_or_default();
        if !state.is_up && (self.named.is_empty() || !self.has_waited) {
            self.has_waited = true;
            self.due_us = tick.now_us + SOON_US;
            return;
        }
        self.due_us = tick.now_us + RETRY_US;
        for candidate in self.candidates(&state) {
            let place = candidate.place();
            if self.consoles.iter().any(|console| console.place() == place) {
                continue;
            }
            if let Some(why) = &candidate.distrusted {
                self.unread.insert(place, format!("{why}; name its console: {}", console::NAME_IT));
                continue;
            }
            match self.first_that_opens(&candidate) {
                Ok(console) => {
                    self.unread.remove(&place);
                    self.outside.retain(|outside| outside.place != place);
                    self.consoles.push(console);
                }
                // Of several poolers that are named, each is before some of the nodes.
                Err(Unread::Elsewhere) if self.named.len() > 1 => {}
                Err(why) => {
                    let name = candidate.ways.first().map(ConnSpec::describe).unwrap_or_default();
                    self.look_from_outside(&place, name, candidate.entrance);
                    self.unread.insert(place, format!("{why}; {}", why.hint(candidate.origin)));
                }
            }
        }
    }

    /// From now on its clients are counted by their sockets.
    fn look_from_outside(&mut self, place: &str, name: String, entrance: Option<Entrance>) {
        let Some(entrance) = entrance else { return };
        if !self.outside.iter().any(|outside| outside.place == place) {
            self.outside.push(Outside::of(place.to_string(), name, entrance));
        }
    }

    fn first_that_opens(&self, candidate: &Candidate) -> Result<Console, Unread> {
        let (place, belongs) = (candidate.place(), candidate.belongs(self.port()));
        let mut first = None;
        for way in &candidate.ways {
            match Console::open(&place, way, &self.spec.dbname, belongs) {
                Ok(console) => return Ok(console),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(Unread::Elsewhere))
    }

    /// Reports the poolers that are not read, or that all are.
    fn report(&mut self, tick: &Tick, batch: &mut Batch) {
        let place = self.place();
        if self.unread.is_empty() {
            self.recorded.found(batch, tick.now_us, &place, WHAT);
            return;
        }
        let all: Vec<String> =
            self.unread.iter().map(|(at, why)| format!("the pooler at {at}: {why}")).collect();
        self.recorded.missing(batch, tick.now_us, place.missing(WHAT, all.join("; "), LOST));
    }
}

impl Collect for Pools {
    fn place(&self) -> Place {
        Place::Node(self.node.clone())
    }

    fn part(&self) -> &'static str {
        "pools"
    }

    fn subject(&self) -> String {
        let places: Vec<&str> = self.consoles.iter().map(Console::place).collect();
        match places.is_empty() {
            true => format!("the poolers before {}", self.node),
            false => format!("the pooler at {} before {}", places.join(", "), self.node),
        }
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        if tick.now_us >= self.due_us {
            self.open(tick);
        }
        for mut console in std::mem::take(&mut self.consoles) {
            match console.read(&self.node, tick, batch) {
                Ok(()) => self.consoles.push(console),
                Err(error) => {
                    self.due_us = tick.now_us + SOON_US;
                    let why = format!("the connection to its console was lost: {error}");
                    self.unread.insert(console.place().to_string(), why);
                }
            }
        }
        for outside in &mut self.outside {
            outside.read(&self.node, tick, batch);
        }
        self.report(tick, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(origin: Origin, host: &str, port: u16) -> Candidate {
        let ways = vec![ConnSpec::new(host, port, "watcher", CONSOLE)];
        Candidate { origin, ways, distrusted: None, entrance: None }
    }

    #[test]
    fn all_poolers_before_a_node_are_read_and_each_of_them_once() {
        let named = vec![candidate(Origin::Named, "127.0.0.1", 6980)];
        let found = vec![
            candidate(Origin::Found, "/run/a", 6980),
            candidate(Origin::Found, "/run/b", 6981),
            candidate(Origin::Found, "/run/c", 6982),
        ];
        let all = apart(named, found.clone());
        let places: Vec<String> = all.iter().map(Candidate::place).collect();
        assert_eq!(places, ["127.0.0.1:6980", "socket /run/b/.s.PGSQL.6981", "socket /run/c/.s.PGSQL.6982"]);
        assert_eq!(apart(vec![], found).len(), 3);
    }
}
