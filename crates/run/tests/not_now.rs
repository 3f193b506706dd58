//! Servers and poolers that accept connections and refuse every statement for a while, as pgbouncer does when its server is away: sessions pause between
//! failures, come back within the longest pause, and every transaction is counted once. What a statement itself did wrong is repeated without a pause.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use run::control::StopFlag;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::connector::{Dial, DialError};
use run::engine::link::{Link, Stream};
use run::engine::poller::Choice;
use run::responder::{Backend, Executed, Parameters, Responder};
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload;
use run::workload::script::Scripts;
use wire::prepared::Wire;

const SESSIONS: u64 = 4;
/// How long the server refuses.
const AWAY: Duration = Duration::from_millis(1_500);
/// How long the run lasts: long enough for a busy machine to see the server again.
const LASTS: Duration = Duration::from_secs(4);
/// Failures of a session in that time: after none, 50, 100 and 200 ms, then every 250 ms.
const FAILURES_MAX: u64 = 5 + AWAY.as_millis() as u64 / 250;

/// How a server refuses.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// With this error; the session goes on.
    Error(&'static str, &'static str),
    /// With this one, and it closes the connection.
    Fatal(&'static str, &'static str),
}

struct Refusing {
    refusal: Refusal,
    begin: Instant,
    refused: Arc<AtomicU64>,
}

impl Refusing {
    fn is_away(&self) -> bool {
        self.begin.elapsed() < AWAY
    }
}

impl Backend for Refusing {
    fn execute(&mut self, _: &str, _: Parameters<'_>) -> Executed<'_> {
        if !self.is_away() {
            return Executed::Done { tag: "SELECT 0", row: None };
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let (Refusal::Error(sqlstate, message) | Refusal::Fatal(sqlstate, message)) = self.refusal;
        Executed::Error { sqlstate, message }
    }
}

/// A server that refuses every statement until its time has come, on a thread for each connection.
struct Server {
    refusal: Refusal,
    begin: Instant,
    refused: Arc<AtomicU64>,
}

impl Dial for Server {
    fn dial(&self, _: u64) -> Result<Link, DialError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut backend =
            Refusing { refusal: self.refusal, begin: self.begin, refused: Arc::clone(&self.refused) };
        std::thread::spawn(move || {
            let (mut responder, mut incoming, mut buffer) = (Responder::default(), Vec::new(), [0; 4096]);
            while let Ok(bytes @ 1..) = theirs.read(&mut buffer) {
                incoming.extend_from_slice(&buffer[..bytes]);
                let mut out = Vec::new();
                let closes = backend.is_away() && matches!(backend.refusal, Refusal::Fatal(..));
                let used = responder.answer(&incoming, &mut backend, &mut out);
                incoming.drain(..used);
                if closes {
                    // The error without the message that the server is ready: a session ends like this.
                    out.truncate(out.len().saturating_sub(6));
                }
                if theirs.write_all(&out).is_err() || closes {
                    return;
                }
            }
        });
        ours.set_nonblocking(true).unwrap();
        Ok(Link::new(Stream::Unix(ours), None, &[]))
    }
}

/// Sees nothing: the account has it all.
struct Watch;

impl Observer for Watch {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, _: &Second<'_>) {}
}

fn run(refusal: Refusal) -> (Account, u64) {
    let source = Source { name: "one.sql".into(), text: "SELECT 1;\n".into(), weight: 1 };
    let mode = QueryMode::Simple;
    let mix = Mix::compile(&[source], &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    let options = Options {
        mix: workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap(),
        sessions: SESSIONS,
        workers: 1,
        // Arrivals that wait for a session are not lost while it pauses.
        pace: Pace::Regular { per_second: 200.0 },
        duration: Some(LASTS),
        warmup: Duration::ZERO,
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 1,
        wire: Wire::Libpq,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    };
    let refused = Arc::new(AtomicU64::new(0));
    let server = Server { refusal, begin: Instant::now(), refused: Arc::clone(&refused) };
    let account = drive(options, Arc::new(server), &StopFlag::default(), &mut Watch).unwrap();
    (account, refused.load(Ordering::Relaxed))
}

fn check_counts(account: &Account, refusal: Refusal) {
    let measured = &account.posted.measured;
    assert_eq!(account.scheduled, measured.started + account.skipped + account.unstarted, "{refusal:?}");
    assert_eq!(
        measured.started,
        measured.transactions() + measured.failed() + account.unfinished,
        "{refusal:?}"
    );
    let errors: u64 = account.posted.errors.iter().map(|error| error.count).sum();
    assert_eq!(errors, measured.failed(), "{refusal:?}");
}

#[test]
fn a_server_that_takes_no_statements_now_gets_few_and_is_found_again() {
    for refusal in [
        Refusal::Fatal("08P01", "server login has been failing, try again later (server_login_retry)"),
        Refusal::Fatal("57P03", "the database system is starting up"),
        Refusal::Fatal("57P01", "terminating connection due to administrator command"),
        Refusal::Error("57P03", "the database system is starting up"),
        Refusal::Error("08001", "could not connect to server \"n2\""),
        Refusal::Error("53300", "sorry, too many clients already"),
        Refusal::Error("25006", "cannot execute INSERT in a read-only transaction"),
    ] {
        let (account, refused) = run(refusal);
        check_counts(&account, refusal);
        let failed = account.posted.measured.failed();
        assert!((SESSIONS..=SESSIONS * FAILURES_MAX).contains(&failed), "{refusal:?}: {failed} failed");
        assert_eq!(failed, refused, "{refusal:?}: every refusal is counted once");
        assert!(account.posted.measured.transactions() > 0, "{refusal:?}: the server was found again");
    }
}

#[test]
fn a_statement_that_is_wrong_is_not_paced() {
    let refusal = Refusal::Error("23505", "duplicate key value violates unique constraint");
    let (account, _) = run(refusal);
    check_counts(&account, refusal);
    // 200 arrivals a second, of which none waits.
    let (failed, paced) = (account.posted.measured.failed(), SESSIONS * FAILURES_MAX);
    assert!(failed > 2 * paced, "{failed} failed");
}
