//! A server that answers one byte a minute: each verb ends when the time for a connection is over, and names what it waited for.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::mistakes::words;
use crate::support;
use support::{Ended, Folder, pgfathom};

/// The pause between two bytes.
const PAUSE: Duration = Duration::from_secs(60);
/// What a server sends to a session that needs no password, up to `ReadyForQuery`.
const GREETING: &[u8] =
    b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0015.4\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I";
/// The least time that a verb may wait for a connection, in seconds.
const TIMEOUT_S: u64 = 2;

/// A listener that lets each session have so many bytes of its greeting at once. Gives its port, and the number of sessions.
fn server(at_once: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has a port").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        // Sessions stay open until the process ends.
        let kept: Mutex<Vec<TcpStream>> = Mutex::default();
        for mut session in listener.incoming().map_while(Result::ok) {
            counter.fetch_add(1, Ordering::SeqCst);
            session.write_all(&GREETING[..at_once]).ok();
            if let (Some(next), Ok(mut slow)) = (GREETING.get(at_once).copied(), session.try_clone()) {
                std::thread::spawn(move || {
                    std::thread::sleep(PAUSE);
                    slow.write_all(&[next]).ok();
                });
            }
            kept.lock().expect("no thread has panicked").push(session);
        }
    });
    (port, count)
}

/// Verbs with a target, and what they do first.
const VERBS: [&str; 11] = [
    "load ycsb --rows 1000",
    "load tpcc -s 1",
    "verify ycsb",
    "run -b ycsb-a -T 1",
    "run -b tpcc -T 1",
    "run -f one.sql -T 1",
    "matrix -T 1",
    "prove ack -T 1",
    "prove hermitage",
    "prove tpcc",
    "prove engine",
];

#[test]
fn a_server_of_one_byte_a_minute_costs_one_connect_timeout() {
    for at_once in [0, GREETING.len()] {
        // They wait most of the time.
        std::thread::scope(|scope| {
            VERBS.iter().for_each(|verb| drop(scope.spawn(move || ends(verb, at_once))))
        });
    }
}

/// The verb ends with an error that names the limit and the address, after one session.
fn ends(verb: &str, at_once: usize) {
    let folder = Folder::new();
    folder.write("one.sql", "select 1;\n");
    let (port, sessions) = server(at_once);
    let begin = Instant::now();
    let mut command = pgfathom(folder.path());
    command.args(words(verb));
    command.arg(format!(
        "host=127.0.0.1 port={port} user=u dbname=d sslmode=disable connect_timeout={TIMEOUT_S}"
    ));
    let ended: Ended = command.output().expect("the command starts").into();
    let text = format!("{verb}, {at_once} bytes, {:?}: {}", begin.elapsed(), ended.stderr);
    assert_eq!(ended.exit, Some(1), "{text}");
    assert!(
        ended.stderr.contains(&format!("{TIMEOUT_S} s")) && ended.stderr.contains(&port.to_string()),
        "{text}"
    );
    assert_eq!(sessions.load(Ordering::SeqCst), 1, "it tries once: {text}");
}
