//! What the client asks a server, counted on the way between them.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lab::throwaway::{Throwaway, installations};
use postgres::Client;
use testing::on_each;

/// Takes one session, passes its bytes on to the server at `to`, and counts how often the client sends after the server had answered.
struct Counter {
    turns: Arc<AtomicUsize>,
    folder: PathBuf,
}

impl Counter {
    fn listen(cluster: &Throwaway) -> Counter {
        let folder = cluster.socket_dir().join("counted");
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let server = cluster.socket_dir().join(format!(".s.PGSQL.{}", cluster.port()));
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        std::thread::spawn(move || pass_on(&listener, &server, &counted));
        Counter { turns, folder }
    }

    fn connect(&self) -> Client {
        Client::connect(&format!("host={} port=5432 user=postgres", self.folder.display())).unwrap()
    }

    /// How many round trips `asked` makes.
    fn of<T>(&self, asked: impl FnOnce() -> T) -> (usize, T) {
        let before = self.turns.load(Ordering::SeqCst);
        let answer = asked();
        (self.turns.load(Ordering::SeqCst) - before, answer)
    }
}

fn pass_on(listener: &UnixListener, server: &Path, turns: &AtomicUsize) {
    let (mut client, _) = listener.accept().unwrap();
    let mut server = UnixStream::connect(server).unwrap();
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        turns.fetch_add(1, Ordering::SeqCst);
        server.write_all(&bytes[..count]).unwrap();
    }
}

#[test]
fn a_query_without_parameters_is_one_round_trip() {
    on_each(&installations(), |installation| {
        let cluster = Throwaway::start(installation, &[]).unwrap();
        let counter = Counter::listen(&cluster);
        let mut client = counter.connect();

        let (turns, rows) = counter.of(|| client.query("select 1 as n union all select 2", &[]).unwrap());
        assert_eq!((turns, rows.len(), rows[1].get::<_, i32>("n")), (1, 2, 2));
        let (turns, row) = counter.of(|| client.query_one("select 'a'::text", &[]).unwrap());
        assert_eq!((turns, row.get::<_, &str>(0)), (1, "a"));
        let (turns, row) = counter.of(|| client.query_opt("select 1 where false", &[]).unwrap());
        assert_eq!((turns, row.is_none()), (1, true));
        let (turns, changed) = counter.of(|| client.execute("create table t as select 1", &[]).unwrap());
        assert_eq!((turns, changed), (1, 1));

        // A parameter's type is asked for first, and the statement is closed without waiting for an answer.
        let (turns, row) = counter.of(|| client.query_one("select $1 + 1", &[&1i32]).unwrap());
        assert_eq!(row.get::<_, i32>(0), 2);
        assert!(turns >= 2, "{turns}");

        // A transaction asks the same way, and an error leaves the session in order.
        let mut transaction = client.transaction().unwrap();
        let error = transaction.query("select 1 / 0", &[]).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "22012");
        transaction.rollback().unwrap();
        let error = client.query("select $1::int", &[]).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "08P01");
        assert_eq!(client.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 1);
    });
}
