//! Any answers to the questions about a table's placement: leaves that every key finds its way among, or an error with words; over a real connection.
//!
//! The input begins with a line that names the engine. The answers follow in the order of the questions, whatever these are, with an empty line
//! in front of each: rows as in the recordings of `crates/engines/tests/catalogs`, or `! CODE MESSAGE`.

#[path = "../../crates/engines/tests/recorded/server.rs"]
mod server;

use std::net::TcpListener;

use connect::{ConnSpec, control};
use engines::cluster::Cluster;
use engines::engine::Engine;
use engines::placement::Placement;
use server::Answer;

fn answer(block: &str) -> Answer {
    match block.strip_prefix("! ").and_then(|error| error.split_once(' ')) {
        Some((code, message)) => Answer::Error(code.replace('\0', ""), message.replace('\0', "")),
        None => Answer::Rows(block.lines().map(server::row).collect()),
    }
}

pub(crate) fn exercise(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut blocks = text.split("\n\n");
    let Some(engine) = Engine::parse(blocks.next().unwrap_or_default().trim()) else { return };
    let mut answers: Vec<Answer> = blocks.map(answer).collect();
    // Columns are counted by the first row, as a server of the protocol has no others.
    for answer in &mut answers {
        if let Answer::Rows(rows) = answer {
            let columns = rows.first().map_or(0, Vec::len);
            rows.iter_mut().for_each(|row| row.resize(columns, None));
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut answers = answers.into_iter();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        server::serve(stream, |_| answers.next())
    });
    let mut cluster = Cluster::single(ConnSpec::new("127.0.0.1", port, "tester", "fathom"));
    cluster.engine = engine;
    let mut client = control::connect(&cluster.nodes[0].spec).expect("the server takes everybody");
    match Placement::read(&cluster, &mut *client, 0, "public", "t") {
        Ok(placement) => {
            let leaves = placement.leaves().len();
            assert!(placement.leaves().iter().all(|leaf| leaf.node == 0));
            let keys = [b"user1".as_slice(), b"7", b"", b"\xc3\xa9"];
            for key in keys {
                assert!(placement.leaf_of_text(key).is_none_or(|leaf| leaf < leaves));
            }
            let _ = (placement.fingerprint(), placement.self_test(&mut *client, &keys));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    drop(client);
    let _ = server.join();
}
