//! A node that the tests watch, and their sessions on it.

use connect::ConnSpec;
use lab::throwaway::{Installation, Throwaway, installations};
use postgres::Client;
use record::Clock;
use record::event::Event;
use record::watched::Sampled;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::{Batch, Board, Collect, Node, Tick};

/// A condition that has not come by then will not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const NODE: &str = "n1";

/// A collector driven by the test: it is asked again and again, with no time in between but what the condition needs.
pub(super) struct Watch {
    pub(super) node: Node,
    pub(super) clock: Clock,
    pub(super) board: Arc<Board>,
    /// Everything that was seen.
    pub(super) seen: Batch,
}

impl Watch {
    pub(super) fn of(spec: &ConnSpec) -> Watch {
        let board = Arc::new(Board::new());
        let node = Node::new(NODE, spec, Arc::clone(&board));
        Watch { node, clock: Clock::start(), board, seen: Batch::default() }
    }

    pub(super) fn tick(&mut self) -> Batch {
        let mut batch = Batch::default();
        let tick = Tick { now_us: self.clock.now_us(), clock: self.clock, cadence_us: 1_000_000 };
        self.node.tick(&tick, &mut batch);
        self.seen.lines.extend(batch.lines.iter().cloned());
        self.seen.events.extend(batch.events.iter().cloned());
        batch
    }

    /// Ticks until something is seen, in lines of any tick from now on.
    pub(super) fn until<T>(&mut self, what: &str, find: impl Fn(&Sampled) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let batch = self.tick();
            if let Some(found) = batch.lines.iter().find_map(|(_, _, line)| find(line)) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "{what} was not seen: {:#?}", batch.lines);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets time pass: what is asked every few seconds is due.
    pub(super) fn skip(&mut self, time: Duration) {
        self.clock.monotonic_us = self.clock.monotonic_us.saturating_sub(time.as_micros() as u64);
    }

    /// As [`Watch::until`] for what is asked every 10 seconds or oftener.
    pub(super) fn until_due<T>(&mut self, what: &str, find: impl Fn(&Sampled) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.skip(Duration::from_secs(10));
            let batch = self.tick();
            if let Some(found) = batch.lines.iter().find_map(|(_, _, line)| find(line)) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "{what} was not seen: {:#?}", batch.lines);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn until_event(&mut self, what: &str, find: impl Fn(&Event) -> bool) -> Event {
        let start = Instant::now();
        loop {
            if let Some(found) = self.seen.events.iter().find(|event| find(event)) {
                return found.clone();
            }
            assert!(start.elapsed() < PATIENCE, "{what} was not seen: {:#?}", self.seen.events);
            self.tick();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Why something is missing; empty if it is not.
    pub(super) fn why_missing(&self, wanted: &str) -> String {
        let mut all = self.node.missing();
        all.find(|(what, ..)| *what == wanted).map(|(_, why, _)| why.to_string()).unwrap_or_default()
    }

    pub(super) fn missing(&self) -> Vec<String> {
        self.node.missing().map(|(what, _, _)| what.to_string()).collect()
    }
}

pub(super) fn client(server: &Throwaway, application: &str) -> Client {
    client_of(server, application, "postgres")
}

pub(super) fn client_of(server: &Throwaway, application: &str, user: &str) -> Client {
    let (socket, port) = (server.socket_dir().display(), server.port());
    Client::connect(&format!(
        "host='{socket}' port={port} user='{user}' dbname=postgres application_name='{application}'"
    ))
    .expect("connects")
}

/// A thread that runs a statement which blocks, and ends with it.
pub(super) fn background(
    server: &Throwaway,
    application: &str,
    sql: &str,
) -> std::thread::JoinHandle<Result<(), postgres::Error>> {
    let mut client = client(server, application);
    let sql = sql.to_string();
    std::thread::spawn(move || client.batch_execute(&sql))
}

/// Runs a test on each version, with settings of its own.
pub(super) fn on_each(settings: &[(&str, &str)], test: impl Fn(&mut Throwaway)) {
    let all = installations();
    let mut versions: Vec<Installation> = Vec::new();
    for installation in all {
        // Two of one version show nothing new.
        if !versions.iter().any(|known| known.version.major == installation.version.major) {
            versions.push(installation);
        }
    }
    assert!(!versions.is_empty(), "no PostgreSQL was found");
    for installation in versions {
        let mut server = Throwaway::start(&installation, settings).expect("a server");
        test(&mut server);
    }
}

pub(super) fn major(server: &Throwaway) -> u32 {
    server.installation().version.major
}
