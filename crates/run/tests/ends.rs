//! How runs end that have no reason to: scripts that ask no server anything, threads that break down, servers that answer COMMIT with ROLLBACK
//! or begin a COPY. Every run here has a deadline: without it a mistake would hang the tests as it would hang a user.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use run::control::StopFlag;
use run::drive::{Account, DriveError, Observer, Options, Second, drive};
use run::engine::connector::{Dial, DialError};
use run::engine::link::{Link, Pipe, Stream};
use run::engine::poller::Choice;
use run::engine::{NANOS_PER_SECOND, Nanos};
use run::null_server::NullServer;
use run::responder::{Backend, Executed, Parameters, Responder};
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload;
use run::workload::script::Scripts;
use wire::prepared::Wire;

const SESSIONS: u64 = 4;
/// What never ends fails here.
const DEADLINE: Duration = Duration::from_secs(60);

fn script(text: &str, mode: QueryMode) -> workload::Mix<Scripts> {
    let source = Source { name: "test.sql".into(), text: text.into(), weight: 1 };
    let mix = Mix::compile(&[source], &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap()
}

fn options(mix: workload::Mix<Scripts>) -> Options<Scripts> {
    Options {
        mix,
        sessions: SESSIONS,
        workers: 2,
        pace: Pace::Closed,
        duration: Some(Duration::from_millis(300)),
        warmup: Duration::ZERO,
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 10,
        wire: Wire::Libpq,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    }
}

/// Asks to stop, or panics, when the run begins.
#[derive(Default)]
struct Watch {
    stop: Option<Arc<StopFlag>>,
    panics: bool,
}

impl Observer for Watch {
    fn begins(&mut self, _: Nanos) {
        assert!(!self.panics, "the observer breaks down");
        self.stop.iter().for_each(|stop| stop.request());
    }

    fn second(&mut self, _: &Second<'_>) {}
}

/// Drives on a thread of its own, and fails where the run does not end.
fn ends(
    what: &str,
    options: Options<Scripts>,
    dial: Arc<dyn Dial>,
    is_stopped: bool,
) -> Result<Account, DriveError> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let stop = Arc::new(StopFlag::default());
        let mut watch = Watch { stop: is_stopped.then(|| Arc::clone(&stop)), panics: false };
        let _ = sender.send(drive(options, dial, &stop, &mut watch));
    });
    receiver.recv_timeout(DEADLINE).unwrap_or_else(|error| panic!("{what}: the run does not end: {error}"))
}

/// Scripts that never wait for a server, whether they fail, and whether they do so before anything was asked.
const WITHOUT_SQL: [(&str, bool); 8] = [
    ("\\set x 1\n", false),
    ("\\set x 1 / 0\n", true),
    ("\\if false\nSELECT 1;\n\\endif\n", false),
    ("\\set x 1 / 0\nSELECT 1;\n", true),
    ("\\sleep 0\n", false),
    ("\\sleep 1 us\n", false),
    ("\\set x debug(1 / 0)\n\\sleep 1 ms\n", true),
    ("\\if :client_id < 0\nSELECT :x;\n\\endif\n\\set x :client_id\n", false),
];

#[test]
fn a_script_that_asks_no_server_ends_with_its_time_its_count_its_rate_and_when_asked() {
    let server = NullServer::start().unwrap();
    for ((text, fails), mode) in
        WITHOUT_SQL.iter().flat_map(|case| [(case, QueryMode::Simple), (case, QueryMode::Prepared)])
    {
        let base = || options(script(text, mode));
        let check = |account: &Account| {
            let measured = &account.posted.measured;
            assert!(measured.started > 0, "{text}");
            let (done, failed) = (measured.transactions(), measured.failed());
            assert_eq!((done == 0, failed == 0), (*fails, !*fails), "{text}: {done} done, {failed} failed");
            assert_eq!(account.unfinished, 0, "{text}");
        };
        check(&ends(text, base(), server.dial(), false).unwrap());
        let counted = Options { duration: None, transactions_per_session: Some(500), ..base() };
        let account = ends(text, counted, server.dial(), false).unwrap();
        check(&account);
        assert_eq!(account.posted.measured.started, 500 * SESSIONS, "{text}");
        for pace in [Pace::Poisson { per_second: 500.0 }, Pace::Regular { per_second: 1e6 }] {
            ends(text, Options { pace, ..base() }, server.dial(), false).unwrap();
        }
        let endless = Options { duration: Some(Duration::from_secs(3_600)), ..base() };
        assert!(ends(text, endless, server.dial(), true).unwrap().is_interrupted, "{text}");
        let counted =
            Options { duration: None, transactions_per_session: Some(u64::from(u32::MAX)), ..base() };
        assert!(ends(text, counted, server.dial(), true).unwrap().is_interrupted, "{text}");
    }
}

#[test]
fn a_script_without_sql_leaves_the_others_of_its_worker_their_turn() {
    let server = NullServer::start().unwrap();
    let text = "\\if :client_id = 0\n\\set x 1\n\\else\nSELECT 1;\n\\endif\n";
    let options = Options { workers: 1, ..options(script(text, QueryMode::Simple)) };
    let account = ends(text, options, server.dial(), false).unwrap();
    assert!(account.sessions.iter().all(|session| session.transactions > 10), "{:?}", account.sessions);
}

#[test]
fn a_pause_that_outlasts_the_run_is_not_waited_for() {
    let server = NullServer::start().unwrap();
    for text in ["\\sleep 3600 s\n", "BEGIN;\n\\sleep 3600 s\nEND;\n"] {
        let account = ends(text, options(script(text, QueryMode::Simple)), server.dial(), false).unwrap();
        assert_eq!((account.unfinished, account.posted.measured.failed()), (SESSIONS, 0), "{text}");
        let measured = account.measured();
        assert!(measured < Duration::from_secs(10), "{text}: the run took {measured:?}");
        // Whoever asks to stop does not wait for pauses that would end in time either.
        let short = text.replace("3600 s", "20 s");
        let longer = Options {
            duration: Some(Duration::from_secs(3_600)),
            ..options(script(&short, QueryMode::Simple))
        };
        let account = ends(&short, longer, server.dial(), true).unwrap();
        assert!(account.is_interrupted && account.measured() < Duration::from_secs(10), "{short}");
    }
    // One that ends while transactions under way are waited for is waited for, and its transaction counts.
    let text = "\\sleep 700 ms\n";
    let account = ends(text, options(script(text, QueryMode::Simple)), server.dial(), false).unwrap();
    assert_eq!((account.unfinished, account.posted.measured.transactions()), (0, SESSIONS));
}

/// Dials as it is told to.
struct Dialer<F>(F);

impl<F: Fn(u64) -> Result<Link, DialError> + Send + Sync + 'static> Dial for Dialer<F> {
    fn dial(&self, session: u64) -> Result<Link, DialError> {
        (self.0)(session)
    }
}

fn link(stream: UnixStream) -> Link {
    stream.set_nonblocking(true).unwrap();
    Link::new(Stream::Unix(stream), None, &[])
}

/// A pipe that breaks the thread that uses it.
#[derive(Debug)]
struct Trap;

impl Pipe for Trap {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("a trap in the worker")
    }

    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("a trap in the worker")
    }
}

#[test]
fn whatever_ends_a_thread_of_the_run_ends_the_run_with_its_words() {
    let hour = || Options {
        duration: Some(Duration::from_secs(3_600)),
        ..options(script("SELECT 1;\n", QueryMode::Simple))
    };
    let server = NullServer::start().unwrap();
    // One of the workers breaks down when its last session sends for the first time; the others are at work.
    let null = server.dial();
    let trapped: Arc<dyn Dial> = Arc::new(Dialer(move |session| match session {
        3 => Ok(Link::new(Stream::Simulated(Box::new(Trap)), None, &[])),
        _ => null.dial(session),
    }));
    let prepared = Options { mix: script("SELECT 1;\n", QueryMode::Prepared), ..hour() };
    for (when, options) in [("in the run", hour()), ("before the run", prepared)] {
        let Err(DriveError::BrokeDown(failure) | DriveError::Failed(failure)) =
            ends(when, Options { poller: Choice::Epoll, ..options }, Arc::clone(&trapped), false)
        else {
            panic!("{when}: a worker without its thread");
        };
        assert!(failure.message.contains("worker thread of this client failed: a trap"), "{failure:?}");
        assert!(failure.hint.unwrap().contains("report it"));
    }
    // The thread that dials.
    let Err(DriveError::BrokeDown(failure) | DriveError::Failed(failure)) =
        ends("dialing", hour(), Arc::new(Dialer(|_| panic!("a trap at the door"))), false)
    else {
        panic!("nobody dials");
    };
    assert!(failure.message.contains("connector thread of this client failed: a trap at the door"));
    // The same in mid-run, when a lost connection is dialed again.
    let (dialed, null) = (AtomicU64::new(0), server.dial());
    let lost: Arc<dyn Dial> = Arc::new(Dialer(move |session| {
        assert!(dialed.fetch_add(1, Ordering::Relaxed) < SESSIONS, "a trap on the way back");
        if session > 0 {
            return null.dial(session);
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || theirs.read(&mut [0; 64]));
        Ok(link(ours))
    }));
    let error = ends("dialing again", hour(), lost, false).unwrap_err();
    assert!(matches!(&error, DriveError::BrokeDown(_)), "{error:?}");
    assert!(error.to_string().contains("a trap on the way back"), "{error}");
}

#[test]
fn workers_do_not_outlive_an_observer_that_breaks_down() {
    let server = NullServer::start().unwrap();
    let dial = server.dial();
    let options = Options {
        duration: Some(Duration::from_secs(3_600)),
        ..options(script("SELECT 1;\n", QueryMode::Simple))
    };
    let given = Arc::clone(&dial);
    let run = std::thread::spawn(move || {
        let mut watch = Watch { panics: true, ..Watch::default() };
        let _ = drive(options, given, &StopFlag::default(), &mut watch);
    });
    assert!(run.join().is_err(), "the panic goes on");
    let deadline = Instant::now() + DEADLINE;
    while Arc::strong_count(&dial) > 1 {
        assert!(Instant::now() < deadline, "somebody still dials for the run");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server on threads of its own, one for each connection, that answers what `answer` makes of a request.
fn serve(answer: impl Fn(&[u8], &mut Vec<u8>) -> usize + Send + Clone + Sync + 'static) -> Arc<dyn Dial> {
    Arc::new(Dialer(move |_| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let answer = answer.clone();
        std::thread::spawn(move || {
            let (mut incoming, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(bytes @ 1..) = theirs.read(&mut buffer) {
                incoming.extend_from_slice(&buffer[..bytes]);
                let mut out = Vec::new();
                let used = answer(&incoming, &mut out);
                incoming.drain(..used);
                if theirs.write_all(&out).is_err() {
                    return;
                }
            }
        });
        Ok(link(ours))
    }))
}

/// Answers COMMIT as it is told to.
struct Contrary(&'static str);

impl Backend for Contrary {
    fn execute(&mut self, sql: &str, _: Parameters<'_>) -> Executed<'_> {
        let is_word = |word: &&str| ["begin", "commit", "end", "prepare", "rollback", "abort"].contains(word);
        let sql = sql.to_ascii_lowercase();
        let word = sql.split([' ', ';', '\n']).find(is_word).unwrap_or_default();
        let tag = match word {
            "commit" | "end" | "prepare" => self.0,
            "begin" => "BEGIN",
            "rollback" | "abort" => "ROLLBACK",
            _ => "SELECT 0",
        };
        Executed::Done { tag, row: None }
    }
}

fn contrary(says: &'static str) -> Arc<dyn Dial> {
    Arc::new(Dialer(move |session| {
        let responder = std::sync::Mutex::new(Responder::default());
        let responder = Arc::new(responder);
        serve(move |incoming, out| responder.lock().unwrap().answer(incoming, &mut Contrary(says), out))
            .dial(session)
    }))
}

#[test]
fn a_commit_that_the_server_answers_with_rollback_is_a_failure() {
    let counts = |text: &str, mode, says| {
        let options =
            Options { duration: None, transactions_per_session: Some(10), ..options(script(text, mode)) };
        let account = ends(text, options, contrary(says), false).unwrap();
        let code = account.posted.errors.first().map(|error| error.sqlstate.to_string());
        (account.posted.measured.transactions(), account.posted.measured.failed(), code)
    };
    let failed = (0, 10 * SESSIONS, Some("40000".to_string()));
    for mode in [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared] {
        for end in ["COMMIT", "commit;", "END", "/* done */ COMMIT", "PREPARE TRANSACTION 'x'"] {
            let text = format!("BEGIN;\nSELECT 1;\n{end};\n");
            assert_eq!(counts(&text, mode, "ROLLBACK"), failed, "{text} {mode:?}");
            assert_eq!(counts(&text, mode, "COMMIT"), (10 * SESSIONS, 0, None), "{text} {mode:?}");
        }
        // Who asks for a rollback gets what it asked for.
        for end in ["ROLLBACK", "-- no\nrollback", "ABORT"] {
            let text = format!("BEGIN;\nSELECT 1;\n{end};\n");
            assert_eq!(counts(&text, mode, "COMMIT"), (10 * SESSIONS, 0, None), "{text} {mode:?}");
        }
    }
    let pipeline = "\\startpipeline\nBEGIN;\nSELECT 1;\nCOMMIT;\n\\endpipeline\n";
    assert_eq!(counts(pipeline, QueryMode::Prepared, "ROLLBACK"), failed);
    assert_eq!(counts(pipeline, QueryMode::Prepared, "COMMIT"), (10 * SESSIONS, 0, None));
}

#[test]
fn a_copy_that_a_variable_makes_aborts_its_sessions_instead_of_failing_for_ever() {
    // The server's answer to a query: it waits for rows, or sends some.
    for response in [b'G', b'H'] {
        let dial = serve(move |incoming, out| {
            if incoming.first() == Some(&b'Q') {
                out.extend_from_slice(&[response, 0, 0, 0, 7, 0, 0, 0]);
            }
            incoming.len()
        });
        let options = Options {
            duration: Some(Duration::from_secs(3_600)),
            ..options(script("SELECT 1;\n", QueryMode::Simple))
        };
        let account = ends("COPY", options, dial, false).unwrap();
        assert_eq!((account.aborted, account.posted.measured.failed()), (SESSIONS, SESSIONS));
        assert!(account.abort.unwrap().contains("COPY from or to the client"));
        let error = &account.posted.errors[0];
        assert_eq!((error.sqlstate.as_str(), error.count), ("0A000", SESSIONS));
    }
}

#[test]
fn a_dial_that_hangs_does_not_hold_up_the_end() {
    let (dialed, server) = (AtomicU64::new(0), NullServer::start().unwrap());
    let null = server.dial();
    let hangs: Arc<dyn Dial> = Arc::new(Dialer(move |session| {
        if dialed.fetch_add(1, Ordering::Relaxed) >= SESSIONS {
            // As long as the test may take, and no longer than its process.
            std::thread::sleep(2 * DEADLINE);
        }
        if session > 0 {
            return null.dial(session);
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || theirs.read(&mut [0; 64]));
        Ok(link(ours))
    }));
    let options = Options {
        duration: Some(Duration::from_secs(3_600)),
        ..options(script("SELECT 1;\n", QueryMode::Simple))
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        struct TwoStops(Arc<StopFlag>);
        impl Observer for TwoStops {
            fn begins(&mut self, _: Nanos) {}
            fn second(&mut self, second: &Second<'_>) {
                // The first second has passed: the lost session is being dialed.
                if second.connected < SESSIONS as usize {
                    self.0.request();
                    self.0.request();
                }
            }
        }
        let stop = Arc::new(StopFlag::default());
        let account = drive(options, hangs, &stop, &mut TwoStops(Arc::clone(&stop)));
        let _ = sender.send(account.map(|account| account.end - account.begin));
    });
    let took = receiver.recv_timeout(DEADLINE).expect("the run ends although somebody still dials").unwrap();
    assert!(took < 60 * NANOS_PER_SECOND);
}

#[test]
fn a_rate_that_nobody_could_serve_ends_with_its_time_and_when_asked() {
    let server = NullServer::start().unwrap();
    // One by one, the arrivals of these 300 ms would take longer than the test may.
    let per_second = 1e11;
    for pace in [Pace::Poisson { per_second }, Pace::Regular { per_second }] {
        for latency_limit in [None, Some(Duration::from_millis(1))] {
            let base =
                || Options { pace, latency_limit, ..options(script("SELECT 1;\n", QueryMode::Simple)) };
            let account = ends("at its time", base(), server.dial(), false).unwrap();
            let planned = per_second * 0.3;
            let off = (account.scheduled as f64 / planned - 1.0).abs();
            assert!(off < 0.001, "{pace:?} {latency_limit:?}: {} scheduled", account.scheduled);
            let hour = Options { duration: Some(Duration::from_secs(3_600)), ..base() };
            assert!(ends("stopped on request", hour, server.dial(), true).unwrap().is_interrupted);
        }
    }
}

#[test]
fn a_run_whose_sessions_were_all_aborted_is_over_and_owes_nothing_of_the_time_behind() {
    for pace in [Pace::Poisson { per_second: 200.0 }, Pace::Regular { per_second: 200.0 }] {
        let options = Options {
            pace,
            duration: Some(Duration::from_secs(3_600)),
            ..options(script("BEGIN;\nSELECT 1;\n", QueryMode::Simple))
        };
        let account = ends("aborted", options, contrary("COMMIT"), false).unwrap();
        assert_eq!((account.aborted, account.posted.measured.failed()), (SESSIONS, SESSIONS));
        let lasted = (account.end - account.begin) as f64 / NANOS_PER_SECOND as f64;
        // What is due while a session is being closed is not begun; an hour of it would be 720,000.
        let due = lasted * 200.0;
        assert!((account.scheduled as f64) < due + 6.0 * due.sqrt() + 10.0, "{account:?}");
        let notes = run::verdict::judge(&account, None).notes;
        assert!(!notes.iter().any(|note| note.contains("did not keep up")), "{notes:?}");
        assert!(notes.iter().any(|note| note.starts_with("4 of 4 sessions were aborted")), "{notes:?}");
    }
}
