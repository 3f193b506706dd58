//! A server that replays a catalog from a file over a real socket, so that discovery and placement run unchanged against engines that are
//! not installed here.
//!
//! A recording is text. Lines that begin with `#` say where its facts are from. `servers: a b` names the sockets; `{a}` is then the port of one of
//! them, anywhere in the answers. `> nodes`, `> table NAME`, `> leaves NAME`, `> oracle NAME KEY`, `> detect` and `> probe NAME` begin the answer
//! to that question of the engine's profile; its rows follow, columns between `|`, `\N` for NULL; `! CODE MESSAGE` is an error instead. The
//! server knows the very SQL of each question: asked anything else, it refuses. What every session of ours asks of any server, its settings, it answers with
//! what the startup packet brought.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use target::ConnSpec;
use target::engine::Engine;
use target::profile::{DETECT, Discovery, Oracle, REPLICATIONS};

/// Codes of what comes instead of a startup message.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// The answer to one question.
#[derive(Debug)]
enum Answer {
    Rows(Vec<Vec<Option<String>>>),
    Error(String, String),
}

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
    let replication = |name: &str| {
        REPLICATIONS
            .iter()
            .find(|known| known.name == name)
            .unwrap_or_else(|| panic!("no replication is called {name}"))
    };
    match (kind, &engine.profile().discovery) {
        ("detect", _) => squeezed(DETECT),
        ("sql", _) => squeezed(rest),
        ("nodes", Discovery::Copies(_)) => squeezed(replication(rest).nodes),
        ("probe", Discovery::Copies(_)) => squeezed(replication(rest).probe.expect("it has a probe")),
        ("nodes", Discovery::Catalog(catalog)) => squeezed(catalog.nodes),
        ("table", Discovery::Catalog(catalog)) => about(catalog.table, rest, ""),
        ("leaves", Discovery::Catalog(catalog)) => about(catalog.leaves, rest, ""),
        ("oracle", Discovery::Catalog(catalog)) => {
            let (table, keys) = rest.split_once(' ').expect("> oracle TABLE KEYS");
            let (Oracle::Leaf(question) | Oracle::Code(question) | Oracle::Row(question)) = catalog.oracle;
            about(question, table, keys)
        }
        _ => panic!("{engine} knows no question {question:?}"),
    }
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
        for line in text.lines() {
            let mut line = line.to_owned();
            for (server, port) in &ports {
                line = line.replace(&format!("{{{server}}}"), &port.to_string());
            }
            if let Some(next) = line.strip_prefix("> ") {
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
                    (None, Answer::Rows(rows)) => {
                        let column = |text: &str| (text != "\\N").then(|| text.to_owned());
                        rows.push(line.split('|').map(column).collect());
                    }
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
                    std::thread::spawn(move || drop(serve(stream, &answers)));
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

/// The settings of a startup packet, those among its options, too.
fn settings(packet: &[u8]) -> BTreeMap<String, String> {
    let words = String::from_utf8_lossy(packet.get(4..).unwrap_or_default()).into_owned();
    let words: Vec<&str> = words.split('\0').collect();
    let mut settings: BTreeMap<String, String> =
        words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
    let options = settings.remove("options").unwrap_or_default();
    for option in
        options.split(" -c").filter_map(|option| option.trim().trim_start_matches("-c").split_once('='))
    {
        settings.insert(option.0.trim().to_lowercase(), option.1.replace('\\', ""));
    }
    settings
}

/// The answer to a question for settings alone; `None`: it asks for something else.
fn settings_row(sql: &str, settings: &BTreeMap<String, String>) -> Option<Answer> {
    let values = sql.strip_prefix("select ")?.split("), ").map(|value| {
        let name = value.strip_prefix("pg_catalog.current_setting('")?.split('\'').next()?;
        Some(settings.get(name).cloned())
    });
    Some(Answer::Rows(vec![values.collect::<Option<Vec<_>>>()?]))
}

fn serve(mut stream: TcpStream, answers: &BTreeMap<String, Answer>) -> std::io::Result<()> {
    let settings = loop {
        let body = body(&mut stream)?;
        let code = body.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
        if code != SSL_REQUEST && code != GSS_REQUEST {
            break settings(&body);
        }
        stream.write_all(b"N")?;
    };
    let mut out = Vec::new();
    message(&mut out, b'R', &0u32.to_be_bytes());
    for (name, value) in
        [("client_encoding", "UTF8"), ("server_version", "13.0"), ("standard_conforming_strings", "on")]
    {
        message(&mut out, b'S', format!("{name}\0{value}\0").as_bytes());
    }
    message(&mut out, b'K', &[0, 0, 0, 1, 0, 0, 0, 2]);
    message(&mut out, b'Z', b"I");
    stream.write_all(&out)?;
    loop {
        let mut tag = [0];
        stream.read_exact(&mut tag)?;
        let body = body(&mut stream)?;
        out.clear();
        match tag[0] {
            b'X' => return Ok(()),
            b'Q' => {
                let sql = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(&body)).into_owned();
                let known = answers.get(&squeezed(&sql));
                let of_session = known.is_none().then(|| settings_row(&sql, &settings)).flatten();
                answer(&mut out, &sql, known.or(of_session.as_ref()));
            }
            other => panic!("the client says {:?}; catalogs are asked by simple queries", char::from(other)),
        }
        message(&mut out, b'Z', b"I");
        stream.write_all(&out)?;
    }
}

fn answer(out: &mut Vec<u8>, sql: &str, answer: Option<&Answer>) {
    match answer {
        Some(Answer::Rows(rows)) => {
            let columns = rows.first().map_or(0, Vec::len) as u16;
            let mut description = columns.to_be_bytes().to_vec();
            for column in 0..columns {
                description.extend(format!("c{column}\0").as_bytes());
                description.extend([0; 6]);
                description.extend(25u32.to_be_bytes());
                description.extend([0xff; 6]);
                description.extend([0; 2]);
            }
            message(out, b'T', &description);
            for row in rows {
                let mut body = (row.len() as u16).to_be_bytes().to_vec();
                for value in row {
                    match value {
                        None => body.extend((-1i32).to_be_bytes()),
                        Some(text) => {
                            body.extend((text.len() as u32).to_be_bytes());
                            body.extend(text.as_bytes());
                        }
                    }
                }
                message(out, b'D', &body);
            }
            message(out, b'C', b"SELECT\0");
        }
        Some(Answer::Error(code, text)) => error(out, code, text),
        None => error(out, "XX000", &format!("not in the recording: {sql}")),
    }
}

fn error(out: &mut Vec<u8>, code: &str, text: &str) {
    message(out, b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes());
}

fn message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
}

/// A length and what it counts, as after every tag and at the start.
fn body(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    stream.read_exact(&mut body)?;
    Ok(body)
}
