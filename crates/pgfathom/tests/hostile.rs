//! Servers that are broken or mean no good: endless rows, notices, notifications and settings, errors of any size, silence. Each verb ends in bounded time,
//! in bounded memory, with words that say what the server did, over TCP and over a Unix socket.

use crate::support;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use support::{Ended, Folder, pgfathom};

/// What the server does in answer to the first question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Rows,
    Notices,
    Notifications,
    Settings,
    HugeError,
    /// An error that fits a message of the protocol.
    LongError,
    Silence,
    /// An error, and never ReadyForQuery.
    HalfError,
    /// One row with one column for each statement, whatever it asks for.
    WrongShape,
    /// Nothing at all, not even to the startup.
    Mute,
}

/// Where the program has to be by then, whatever the server does: the limits are seconds, the rest is for a crowded machine.
const END: Duration = Duration::from_secs(150);
/// Memory that the largest answer may take. What is refused has taken gigabytes.
const PEAK_KIB_MAX: u64 = 1_200 << 10;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short enough");
    [&[tag], length.to_be_bytes().as_slice(), body].concat()
}

fn error(text: &[u8]) -> Vec<u8> {
    message(b'E', &[b"SERROR\0VERROR\0C42501\0M".as_slice(), text, b"\0\0"].concat())
}

/// Clients of one server that wait for an answer that does not come.
type Waiting = Arc<AtomicU32>;

/// Speaks with one client until that leaves.
fn speak(mut stream: impl Read + Write, mode: Mode, waiting: &Waiting) -> std::io::Result<()> {
    let mut length = [0; 4];
    loop {
        stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body)?;
        // TLS and encryption by GSSAPI are asked for first.
        if body.len() == 4 {
            stream.write_all(b"N")?;
            continue;
        }
        break;
    }
    let wait = |mut stream: &mut dyn Read| {
        waiting.fetch_add(1, Ordering::Relaxed);
        std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
    };
    if mode == Mode::Mute {
        return wait(&mut stream);
    }
    let ready = message(b'Z', b"I");
    let greeting = [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.4\0"),
        message(b'S', b"client_encoding\0UTF8\0"),
        message(b'K', &[0; 8]),
        ready,
    ];
    stream.write_all(&greeting.concat())?;
    if mode == Mode::WrongShape {
        return speak_in_rows_of_one(stream);
    }
    // The first question, whatever it is.
    stream.read_exact(&mut [0])?;
    let endless = match mode {
        Mode::Silence | Mode::Mute | Mode::WrongShape => return wait(&mut stream),
        Mode::HalfError => {
            stream.write_all(&error(b"permission denied for question"))?;
            return wait(&mut stream);
        }
        Mode::LongError => {
            stream.write_all(&[error(&vec![b'x'; 3 << 20]), message(b'Z', b"I")].concat())?;
            return wait(&mut stream);
        }
        Mode::HugeError => {
            stream.write_all(&[b"E".as_slice(), &(200u32 << 20).to_be_bytes(), b"SERROR\0M"].concat())?;
            vec![b'x'; 1 << 20]
        }
        Mode::Rows => {
            let column =
                [b"\0\x01x\0".as_slice(), &[0; 6], &25u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
            stream.write_all(&message(b'T', &column))?;
            let row = [b"\0\x01\0\0\x04\0".as_slice(), &[b'x'; 1024]].concat();
            message(b'D', &row).repeat(100)
        }
        Mode::Notices => message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhear me\0\0").repeat(1000),
        Mode::Notifications => message(b'A', b"\0\0\0\x01channel\0payload\0").repeat(1000),
        Mode::Settings => message(b'S', b"application_name\0again\0").repeat(1000),
    };
    loop {
        stream.write_all(&endless)?;
    }
}

/// Answers each statement with one row of one column, by the rules of the protocol.
fn speak_in_rows_of_one(mut stream: impl Read + Write) -> std::io::Result<()> {
    let column = [b"\0\x01x\0".as_slice(), &[0; 6], &25u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
    let columns = message(b'T', &column);
    let row = [message(b'D', b"\0\x01\0\0\0\x011"), message(b'C', b"SELECT 1\0")].concat();
    let mut parameters = 0u16;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        stream.read_exact(&mut body)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let reply = match head[0] {
            b'Q' => [columns.as_slice(), &row, &message(b'Z', b"I")].concat(),
            b'P' => {
                parameters = (1..=99).rev().find(|at| text.contains(&format!("${at}"))).unwrap_or_default();
                message(b'1', b"")
            }
            b'B' => message(b'2', b""),
            b'D' if body.first() == Some(&b'S') => {
                let types = 25u32.to_be_bytes().repeat(usize::from(parameters));
                [message(b't', &[parameters.to_be_bytes().as_slice(), &types].concat()), columns.clone()]
                    .concat()
            }
            b'D' => columns.clone(),
            b'E' => row.clone(),
            b'C' => message(b'3', b""),
            b'S' => message(b'Z', b"I"),
            b'X' => return Ok(()),
            _ => vec![],
        };
        stream.write_all(&reply)?;
    }
}

/// Serves in threads that end with the test program.
fn serve(folder: &Path, mode: Mode, over_tcp: bool) -> (String, String, Waiting) {
    static PORT: AtomicU32 = AtomicU32::new(5432);
    let waiting = Waiting::default();
    let shared = Arc::clone(&waiting);
    if over_tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let waiting = Arc::clone(&shared);
                std::thread::spawn(move || speak(stream, mode, &waiting));
            }
        });
        ("127.0.0.1".to_string(), port, waiting)
    } else {
        let port = PORT.fetch_add(1, Ordering::Relaxed).to_string();
        let listener = UnixListener::bind(folder.join(format!(".s.PGSQL.{port}"))).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let waiting = Arc::clone(&shared);
                std::thread::spawn(move || speak(stream, mode, &waiting));
            }
        });
        (folder.display().to_string(), port, waiting)
    }
}

/// The most memory that a process has had, in KiB.
fn peak(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

struct Outcome {
    ended: Ended,
    peak_kib: u64,
    took: Duration,
}

/// Runs a verb to its end; `interrupt` sends SIGINT once the program waits for the server.
fn outcome(arguments: &[&str], mode: Mode, over_tcp: bool, interrupt: bool) -> Outcome {
    let folder = Folder::new();
    let (host, port, waiting) = serve(folder.path(), mode, over_tcp);
    let is_silent = matches!(mode, Mode::Silence | Mode::HalfError | Mode::Mute);
    let limit = if interrupt || !is_silent { "100" } else { "3" };
    let mut command = pgfathom(folder.path());
    command
        .args(arguments)
        .args(["-h", &host, "-p", &port, "-U", "joe", "-d", "shop"])
        .env("PGCONNECT_TIMEOUT", limit)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().expect("the command starts");
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let out = std::thread::spawn(move || {
        let mut text = vec![];
        out.read_to_end(&mut text).map(|_| text)
    });
    let err = std::thread::spawn(move || {
        let mut text = vec![];
        err.read_to_end(&mut text).map(|_| text)
    });
    if interrupt {
        testing::wait_for("a client that waits", || waiting.load(Ordering::Relaxed) > 0);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    }
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak(&child).unwrap_or_default().max(peak_kib);
        if let Some(status) = child.try_wait().expect("ours") {
            break status;
        }
        if begin.elapsed() > END {
            let _ = child.kill();
            panic!(
                "{arguments:?} against {mode:?} over {} has no end",
                if over_tcp { "TCP" } else { "Unix" }
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = |thread: std::thread::JoinHandle<std::io::Result<Vec<u8>>>| {
        String::from_utf8_lossy(&thread.join().expect("no panic").expect("read")).into_owned()
    };
    let ended = Ended { exit: status.code(), stdout: text(out), stderr: text(err) };
    Outcome { ended, peak_kib, took: begin.elapsed() }
}

const VERBS: [&[&str]; 6] = [
    &["verify"],
    &["watch", "-T", "2"],
    &["run", "-b", "ycsb-a", "-T", "2", "-c", "2"],
    &["prove", "bank", "-T", "2"],
    &["prove", "tpcc"],
    &["matrix", "-T", "1"],
];

/// All verbs against one server's ways, both kinds of sockets.
fn all_end(mode: Mode, words: &[&str]) {
    for arguments in VERBS {
        for over_tcp in [false, true] {
            let outcome = outcome(arguments, mode, over_tcp, false);
            let Ended { exit, stdout, stderr } = &outcome.ended;
            let output = format!(
                "{arguments:?} {mode:?} tcp={over_tcp} {:?} {} KiB exit {exit:?}\n{:.3000}{:.3000}",
                outcome.took, outcome.peak_kib, stdout, stderr
            );
            eprintln!("{output}");
            assert!(outcome.peak_kib < PEAK_KIB_MAX, "too much memory: {output}");
            assert!(stdout.len() + stderr.len() < 100_000, "too many words: {output}");
            // watch goes on without a server, and says what it misses.
            assert!(matches!(exit, Some(1..=3)) || arguments[0] == "watch", "{output}");
            if arguments[0] != "watch" {
                assert!(words.iter().any(|word| stderr.contains(word)), "none of {words:?}: {output}");
            }
        }
    }
}

#[test]
fn endless_rows_are_refused_with_the_limit_they_reached() {
    all_end(Mode::Rows, &["rows in reply to one request", "bytes in reply to one request"]);
}

#[test]
fn endless_notices_notifications_and_settings_are_refused_with_their_limit() {
    std::thread::scope(|scope| {
        scope.spawn(|| all_end(Mode::Notices, &["notices", "bytes in reply to one request"]));
        scope.spawn(|| all_end(Mode::Notifications, &["notifications", "bytes in reply to one request"]));
        scope.spawn(|| all_end(Mode::Settings, &["settings", "bytes in reply to one request"]));
    });
}

#[test]
fn replies_without_the_columns_of_the_query_are_an_error_of_what_replied() {
    let mut seen = 0;
    for arguments in VERBS {
        let outcome = outcome(arguments, Mode::WrongShape, true, false);
        let Ended { exit, stdout, stderr } = &outcome.ended;
        let output = format!("{arguments:?} exit {exit:?}\n{stdout}{stderr}");
        assert!(!stderr.contains("panicked"), "{output}");
        assert!(matches!(exit, Some(1..=3)) || arguments[0] == "watch", "{output}");
        seen += usize::from(stderr.contains("is not what that query returns: column"));
    }
    assert!(seen > 0, "no verb came to a column that is not there");
}

#[test]
fn errors_of_any_size_are_bounded_and_cut() {
    std::thread::scope(|scope| {
        scope.spawn(|| all_end(Mode::HugeError, &["a message of type 0x45 with the length"]));
        scope.spawn(|| all_end(Mode::LongError, &["more bytes"]));
    });
}

#[test]
fn a_server_that_stops_answering_ends_every_verb_and_the_question_is_named() {
    std::thread::scope(|scope| {
        scope.spawn(|| all_end(Mode::Silence, &["has not replied for"]));
        scope.spawn(|| all_end(Mode::HalfError, &["has not replied for", "permission denied for question"]));
        scope.spawn(|| all_end(Mode::Mute, &["timeout expired after 3 s"]));
    });
}

#[test]
fn the_first_interrupt_ends_a_connect_and_a_first_question() {
    std::thread::scope(|scope| {
        for mode in [Mode::Silence, Mode::Mute] {
            for arguments in VERBS {
                scope.spawn(move || {
                    let outcome = outcome(arguments, mode, mode == Mode::Mute, true);
                    let output = format!(
                        "{arguments:?} {mode:?} {:?} exit {:?}\n{}{}",
                        outcome.took, outcome.ended.exit, outcome.ended.stdout, outcome.ended.stderr
                    );
                    eprintln!("{output}");
                    // The limit of the connect is 100 s.
                    assert!(outcome.took < Duration::from_secs(100), "{output}");
                    assert!(outcome.ended.exit.is_some_and(|code| code != 0), "{output}");
                });
            }
        }
    });
}
