//! A server that replays a catalog from a file over a real socket, so that discovery and placement run unchanged against engines that are
//! not installed here.
//!
//! A recording is text. Lines that begin with `#` say where its facts are from. `servers: a b` names the sockets; `{a}` is then the port of one of
//! them, anywhere in the answers. `> nodes`, `> table NAME`, `> leaves NAME`, `> oracle NAME KEY`, `> detect` and `> probe NAME` begin the answer
//! to that question of the engine's profile; its rows follow, columns between `|`, `\N` for NULL, and for `> detect` the names of what is found; `! CODE MESSAGE` is an error instead. The
//! server knows the very SQL of each question: asked anything else, it refuses. What every session of ours asks of any server, its settings, it answers with
//! what the startup packet brought.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod server;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use server::Answer;

use connect::ConnSpec;
use engines::engine::Engine;
use engines::engine::signs;
use engines::profile::{Discovery, Replication};

/// Servers that replay one recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    ports: BTreeMap<String, u16>,
    pub(crate) engine: Engine,
}

fn squeezed(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn about(question: &str, table: &str, keys: &str) -> String {
    let name = format!("\"public\".\"{table}\"");
    squeezed(
        &question
            .replace("{relation}", &format!("'{name}'"))
            .replace("{schema}", "'public'")
            .replace("{table}", &format!("'{table}'"))
            .replace("{name}", &name)
            .replace("{keys}", keys)
            .replace("{where}", keys),
    )
}

/// The SQL of a question in a recording.
fn sql(engine: Engine, question: &str) -> String {
    let (kind, rest) = question.split_once(' ').unwrap_or((question, ""));
    let replication = |known: &'static [Replication], name: &str| {
        known
            .iter()
            .find(|known| known.name == name)
            .unwrap_or_else(|| panic!("no replication of {engine} is called {name}"))
    };
    match (kind, engine.discovery) {
        ("detect", _) => {
            let columns: Vec<&str> = signs().iter().map(|sign| sign.sql).collect();
            squeezed(&format!("select {}", columns.join(", ")))
        }
        ("sql", _) => squeezed(rest),
        ("nodes", Discovery::Copies(known)) => squeezed(replication(known, rest).nodes),
        ("probe", Discovery::Copies(known)) => {
            squeezed(replication(known, rest).probe.expect("it has a probe"))
        }
        ("nodes", Discovery::Catalog(catalog)) => squeezed(catalog.nodes),
        ("table", Discovery::Catalog(catalog)) => about(catalog.table, rest, ""),
        ("leaves", Discovery::Catalog(catalog)) => about(catalog.leaves, rest, ""),
        ("oracle", Discovery::Catalog(catalog)) => {
            let (table, keys) = rest.split_once(' ').expect("> oracle TABLE KEYS");
            about(catalog.oracle.query(), table, keys)
        }
        _ => panic!("{engine} knows no question {question:?}"),
    }
}

/// The result of the detection from the names of what it finds.
fn truths(found: &str) -> String {
    let found: Vec<&str> = found.split(", ").collect();
    let truth = |name: &str| if found.contains(&name) { "t" } else { "f" };
    let names: Vec<&str> = signs().iter().map(engines::engine::Signs::name).collect();
    assert!(found.iter().all(|name| names.contains(name)), "{found:?} are not all of {names:?}");
    names.into_iter().map(truth).collect::<Vec<_>>().join("|")
}

impl Recorded {
    /// Starts the servers of `tests/catalogs/NAME.txt`. They end with the process.
    pub(crate) fn start(name: &str) -> Recorded {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalogs").join(format!("{name}.txt"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let setting = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap_or_else(|| panic!("{name}: no {key}"))
                .trim()
        };
        assert!(text.starts_with("# "), "{name} must say where its facts are from");
        let engine = Engine::parse(setting("engine:")).expect("the recording names an engine");
        let listeners: Vec<(String, TcpListener)> = setting("servers:")
            .split_whitespace()
            .map(|server| (server.to_owned(), TcpListener::bind(("127.0.0.1", 0)).unwrap()))
            .collect();
        let ports: BTreeMap<String, u16> = listeners
            .iter()
            .map(|(server, listener)| (server.clone(), listener.local_addr().unwrap().port()))
            .collect();
        let mut answers = BTreeMap::new();
        let mut question = None;
        let mut is_detection = false;
        for line in text.lines() {
            let mut line = line.to_owned();
            for (server, port) in &ports {
                line = line.replace(&format!("{{{server}}}"), &port.to_string());
            }
            if let Some(next) = line.strip_prefix("> ") {
                is_detection = next == "detect";
                let sql = sql(engine, next);
                assert!(
                    answers.insert(sql.clone(), Answer::Rows(Vec::new())).is_none(),
                    "{name}: {next} twice"
                );
                question = Some(sql);
            } else if let Some(sql) = question.as_ref().filter(|_| !line.is_empty() && !line.starts_with('#'))
            {
                let answer = answers.get_mut(sql).unwrap();
                match (line.strip_prefix("! "), answer) {
                    (Some(error), answer) => {
                        let (code, message) = error.split_once(' ').expect("! CODE MESSAGE");
                        *answer = Answer::Error(code.to_owned(), message.to_owned());
                    }
                    (None, Answer::Rows(rows)) if is_detection => rows.push(server::row(&truths(&line))),
                    (None, Answer::Rows(rows)) => rows.push(server::row(&line)),
                    (None, Answer::Error(..)) => panic!("{name}: a row after an error"),
                }
            }
        }
        let answers = Arc::new(answers);
        for (_, listener) in listeners {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let answers = Arc::clone(&answers);
                    // A client that hangs up ends its session; nobody needs to know how.
                    std::thread::spawn(move || {
                        drop(server::serve(stream, |sql| answers.get(&squeezed(sql)).cloned()));
                    });
                }
            });
        }
        Recorded { ports, engine }
    }

    /// How to connect to one of the servers.
    pub(crate) fn spec(&self, server: &str) -> ConnSpec {
        ConnSpec::new("127.0.0.1", self.ports[server], "tester", "fathom")
    }
}
