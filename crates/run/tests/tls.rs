//! The hot path over TCP and TLS, on both pollers, against a server in this process that sends as no friendly server does: records and messages split
//! anywhere, new keys with every reply, tickets, a close_notify or an alert in mid-reply, an end without a word, buffers that take next to
//! nothing. Each reply repeats what its request asked for, so that a session which loses its place is found out.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::sys;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use connect::ConnSpec;
use connect::conninfo::{SslMode, TlsVersion};
use rcgen::{CertificateParams, KeyPair};
use run::control::StopFlag;
use run::dial::TargetDial;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::poller::Choice;
use run::random::Random;
use run::responder::{Backend, Executed, Parameters, Responder};
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload;
use run::workload::script::Scripts;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use wire::prepared::Wire;

/// A run that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const SESSIONS: u64 = 3;
/// Replies of a connection before its fault strikes.
const GOOD_REPLIES: u64 = 5;
/// A row far larger than any buffer.
const BIG_ROW_BYTES: usize = 300_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Plain,
    Tls(TlsVersion),
}

const TRANSPORTS: [Transport; 3] =
    [Transport::Plain, Transport::Tls(TlsVersion::V1_2), Transport::Tls(TlsVersion::V1_3)];

/// How a connection ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Half a reply, then close_notify; the socket stays open until the client closes it.
    NotifyInReply,
    /// A whole reply, then close_notify; the socket stays open.
    NotifyBehindReply,
    /// Half a reply, and the socket is closed without a close_notify.
    EndInReply,
    /// The server's last words, and a fatal alert behind them; the socket stays open.
    AlertBehindWords,
    /// A whole reply, and in the same bytes a record that nobody can read.
    GarbageBehindReply,
}

/// How the server behaves.
#[derive(Clone, Copy, Debug)]
struct Manner {
    transport: Transport,
    fault: Fault,
    /// Bytes that it reads and writes at once, at most.
    chunk_bytes_max: u64,
    /// New keys with every reply.
    renews_keys: bool,
    /// Its socket buffers take next to nothing.
    is_narrow: bool,
}

/// What the server saw.
#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    executed: AtomicU64,
    out_of_step: AtomicU64,
}

/// Repeats the first parameter of a statement, or the number in its text.
struct Echo {
    seen: Arc<Seen>,
    row: Vec<u8>,
}

impl Backend for Echo {
    fn execute(&mut self, sql: &str, mut parameters: Parameters<'_>) -> Executed<'_> {
        self.seen.executed.fetch_add(1, Ordering::Relaxed);
        if sql.contains("out_of_step") {
            self.seen.out_of_step.fetch_add(1, Ordering::Relaxed);
            return Executed::Error { sqlstate: "XX000", message: "the reply was another request's" };
        }
        if !sql.starts_with("SELECT") {
            return Executed::Done { tag: "COMMIT", row: None };
        }
        let value = parameters.next().flatten();
        self.row = match value {
            Some(value) => value.to_vec(),
            None => sql.bytes().filter(u8::is_ascii_digit).collect(),
        };
        if sql.contains("big") {
            self.row.resize(BIG_ROW_BYTES, b'x');
        }
        if value.is_some() {
            return Executed::Done { tag: "SELECT 1", row: Some(&self.row) };
        }
        // A simple query describes its rows by itself.
        let row = [&1u16.to_be_bytes()[..], &(self.row.len() as u32).to_be_bytes(), &self.row].concat();
        let description = b"\0\x01value\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
        self.row = [message(b'T', description), message(b'D', &row)].concat();
        Executed::Rows { tag: "SELECT 1", messages: &self.row }
    }
}

/// A socket that passes on a few bytes at a time.
struct Chunked {
    stream: TcpStream,
    random: Random,
    max: u64,
}

impl Chunked {
    fn some(&mut self, all: usize) -> usize {
        all.min(self.random.below(self.max) as usize + 1)
    }
}

impl Read for Chunked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let some = self.some(buffer.len());
        self.stream.read(&mut buffer[..some])
    }
}

impl Write for Chunked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = self.some(bytes.len());
        self.stream.write(&bytes[..some])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One connection on the server's side.
struct Conversation {
    socket: Chunked,
    tls: Option<ServerConnection>,
    incoming: Vec<u8>,
}

impl Conversation {
    /// What has come in clear; false at the end.
    fn receive(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            let mut buffer = [0; 4096];
            let count = self.socket.read(&mut buffer)?;
            self.incoming.extend_from_slice(&buffer[..count]);
            return Ok(count > 0);
        };
        if tls.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        self.take_clear()
    }

    /// What TLS has in clear; false at the end.
    fn take_clear(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        match tls.reader().read_to_end(&mut self.incoming) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            other => other.map(|_| false),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        for part in bytes.chunks(4096) {
            tls.writer().write_all(part)?;
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Everything that TLS still has to send, in one piece.
    fn flush(&mut self) -> io::Result<()> {
        self.socket.max = u64::from(u32::MAX);
        while self.tls.as_ref().is_some_and(|tls| tls.wants_write()) {
            self.tls.as_mut().unwrap().write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// The socket stays open until the client closes it.
    fn linger(&mut self) {
        let _ = io::copy(&mut self.socket.stream, &mut io::sink());
    }

    /// `reply` was to be sent: ends the connection instead, or nearly.
    fn strike(&mut self, fault: Fault, reply: &[u8]) -> io::Result<()> {
        // A record of the right form, and nothing that any key opens.
        let mut garbage = vec![0x17, 3, 3, 0, 64];
        garbage.resize(5 + 64, 0x5a);
        match fault {
            Fault::None => {}
            Fault::EndInReply => {
                self.send(&reply[..reply.len() / 2])?;
                self.socket.stream.shutdown(Shutdown::Both)?;
            }
            Fault::NotifyInReply | Fault::NotifyBehindReply => {
                let end = if fault == Fault::NotifyInReply { reply.len() / 2 } else { reply.len() };
                self.send(&reply[..end])?;
                if let Some(tls) = &mut self.tls {
                    tls.send_close_notify();
                    self.flush()?;
                } else {
                    self.socket.stream.shutdown(Shutdown::Write)?;
                }
                self.linger();
            }
            Fault::AlertBehindWords => {
                let mut words = b"E\0\0\0\0SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0".to_vec();
                let length = (words.len() - 1) as u32;
                words[1..5].copy_from_slice(&length.to_be_bytes());
                self.send(&words)?;
                if let Some(tls) = &mut self.tls {
                    tls.read_tls(&mut garbage.as_slice())?;
                    assert!(tls.process_new_packets().is_err(), "garbage is refused with an alert");
                    self.flush()?;
                } else {
                    self.socket.stream.shutdown(Shutdown::Write)?;
                }
                self.linger();
            }
            Fault::GarbageBehindReply => {
                self.socket.max = u64::from(u32::MAX);
                let mut bytes = Vec::new();
                let tls = self.tls.as_mut().unwrap();
                tls.writer().write_all(reply)?;
                tls.write_tls(&mut bytes)?;
                bytes.extend_from_slice(&garbage);
                self.socket.stream.write_all(&bytes)?;
                self.linger();
            }
        }
        Ok(())
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// Serves one client to its end.
fn serve(
    stream: TcpStream,
    number: usize,
    manner: Manner,
    config: Arc<ServerConfig>,
    seen: Arc<Seen>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let random = Random::for_transaction(17, number as u64, 0);
    let socket = Chunked { stream, random, max: manner.chunk_bytes_max };
    let mut talk = Conversation { socket, tls: None, incoming: Vec::new() };
    if manner.transport != Transport::Plain {
        let mut request = [0; 8];
        talk.socket.read_exact(&mut request)?;
        talk.socket.write_all(b"S")?;
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut talk.socket)?;
        }
        talk.tls = Some(tls);
        // The startup message may have come with the last bytes of the handshake.
        talk.take_clear()?;
    }
    // The startup message, whatever it says.
    let whole = |incoming: &[u8]| {
        incoming
            .first_chunk::<4>()
            .map(|length| u32::from_be_bytes(*length) as usize)
            .filter(|length| incoming.len() >= *length)
    };
    let length = loop {
        match whole(&talk.incoming) {
            Some(length) => break length,
            None if talk.receive()? => {}
            None => return Ok(()),
        }
    };
    talk.incoming.drain(..length);
    let hello =
        [message(b'R', &[0; 4]), message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]), message(b'Z', b"I")].concat();
    talk.send(&hello)?;
    let mut responder = Responder::default();
    let mut backend = Echo { seen, row: Vec::new() };
    let mut replies = 0;
    let has_fault = manner.fault != Fault::None && number < SESSIONS as usize * 2;
    loop {
        let mut out = Vec::new();
        let used = responder.answer(&talk.incoming, &mut backend, &mut out);
        talk.incoming.drain(..used);
        if responder.is_terminated {
            return Ok(());
        }
        if !out.is_empty() {
            replies += 1;
            if has_fault && replies > GOOD_REPLIES {
                return talk.strike(manner.fault, &out);
            }
            if let Some(tls) = talk.tls.as_mut().filter(|_| manner.renews_keys) {
                tls.refresh_traffic_keys().map_err(io::Error::other)?;
            }
            talk.send(&out)?;
        }
        if !talk.receive()? {
            return Ok(());
        }
    }
}

fn server_config(version: TlsVersion) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let version = match version {
        TlsVersion::V1_2 => &rustls::version::TLS12,
        _ => &rustls::version::TLS13,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    // Tickets come when they come; and records are cut small, so that a message lies in several.
    config.send_tls13_tickets = 4;
    config.max_fragment_size = Some(512);
    Arc::new(config)
}

/// Starts the server; it ends with the process.
fn start(manner: Manner) -> (ConnSpec, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if manner.is_narrow {
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16_384).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, 16_384).unwrap();
        // Loopback's segments take 64 kB: with a window smaller than one, the kernel sends at most five times a second.
        sys::set_segment_bytes_max(&listener, 1_400).unwrap();
    }
    let mut spec = ConnSpec::new("127.0.0.1", listener.local_addr().unwrap().port(), "u", "d");
    spec.sslmode = SslMode::Disable;
    let mut version = TlsVersion::V1_3;
    if let Transport::Tls(wanted) = manner.transport {
        (spec.sslmode, version) = (SslMode::Require, wanted);
    }
    let config = server_config(version);
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let number = shared.connections.fetch_add(1, Ordering::Relaxed);
            let (config, seen) = (Arc::clone(&config), Arc::clone(&shared));
            // A client that has gone is no failure of the server.
            std::thread::spawn(move || drop(serve(stream, number, manner, config, seen)));
        }
    });
    (spec, seen)
}

const ECHO: &str = "\\set n random(1, 1000000000)\nSELECT :n AS value \\gset\n\
                    \\if :value <> :n\nSELECT 1 AS out_of_step;\n\\endif\n";
const PIPELINE: &str = "\\startpipeline\nSELECT 1;\nSELECT 2 AS big;\nSELECT 3;\n\\endpipeline\n";

fn script(text: &str, mode: QueryMode) -> workload::Mix<Scripts> {
    let source = Source { name: "test.sql".into(), text: text.into(), weight: 1 };
    let mix = Mix::compile(&[source], &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap()
}

struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, _: &Second<'_>) {}
}

/// Drives it, and fails instead of waiting for ever.
fn run(spec: ConnSpec, mix: workload::Mix<Scripts>, poller: Choice, transactions: u64) -> Account {
    let options = Options {
        mix,
        sessions: SESSIONS,
        workers: 2,
        pace: Pace::Closed,
        duration: None,
        warmup: Duration::ZERO,
        transactions_per_session: Some(transactions),
        latency_limit: None,
        tries_max: 1,
        wire: Wire::Libpq,
        poller,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let dial = Arc::new(TargetDial::new(spec));
        let _ = sender.send(drive(options, dial, &StopFlag::default(), &mut Silent));
    });
    receiver.recv_timeout(PATIENCE).expect("the run hangs").expect("sessions start")
}

/// The pollers of this machine.
fn pollers() -> Vec<Choice> {
    match Choice::IoUring.resolve() {
        Ok(_) => vec![Choice::Epoll, Choice::IoUring],
        Err(error) => {
            eprintln!("skipped on io_uring: this kernel refuses it: {error}");
            vec![Choice::Epoll]
        }
    }
}

fn assert_clean(what: &str, account: &Account, seen: &Seen, transactions: u64) {
    assert_eq!(seen.out_of_step.load(Ordering::Relaxed), 0, "{what}");
    assert_eq!(account.posted.measured.failed(), 0, "{what}: {:?}", account.posted.errors);
    assert_eq!(account.posted.measured.transactions(), transactions * SESSIONS, "{what}");
    assert_eq!(seen.connections.load(Ordering::Relaxed) as u64, SESSIONS, "{what}: no session came back");
}

#[test]
fn records_split_anywhere_keep_every_session_in_step() {
    for transport in TRANSPORTS {
        for poller in pollers() {
            for (text, mode) in [
                (ECHO, QueryMode::Simple),
                (ECHO, QueryMode::Extended),
                (ECHO, QueryMode::Prepared),
                ("\\startpipeline\nSELECT 1;\nSELECT 2;\n\\endpipeline\n", QueryMode::Extended),
            ] {
                for chunk_bytes_max in [1, 7, 100] {
                    let manner = Manner {
                        transport,
                        fault: Fault::None,
                        chunk_bytes_max,
                        renews_keys: transport == Transport::Tls(TlsVersion::V1_3),
                        is_narrow: false,
                    };
                    let (spec, seen) = start(manner);
                    let account = run(spec, script(text, mode), poller, 10);
                    assert_clean(&format!("{manner:?} {poller:?} {mode:?}"), &account, &seen, 10);
                }
            }
        }
    }
}

#[test]
fn big_requests_and_big_rows_pass_through_narrow_sockets() {
    let big_request = format!("{ECHO}SELECT :n /* {} */;\n{ECHO}", "x".repeat(BIG_ROW_BYTES));
    let both = format!("{big_request}SELECT :n AS big;\n{ECHO}");
    for transport in TRANSPORTS {
        for poller in pollers() {
            for (text, mode) in [
                (both.as_str(), QueryMode::Simple),
                (both.as_str(), QueryMode::Extended),
                (both.as_str(), QueryMode::Prepared),
                (PIPELINE, QueryMode::Prepared),
            ] {
                let manner = Manner {
                    transport,
                    fault: Fault::None,
                    chunk_bytes_max: 20_000,
                    renews_keys: false,
                    is_narrow: true,
                };
                let (spec, seen) = start(manner);
                let account = run(spec, script(text, mode), poller, 3);
                assert_clean(&format!("{manner:?} {poller:?} {mode:?}"), &account, &seen, 3);
            }
        }
    }
}

#[test]
fn a_connection_that_ends_in_any_way_is_lost_in_time_and_comes_back() {
    let faults = [
        (Fault::EndInReply, "08006"),
        (Fault::NotifyInReply, "08006"),
        (Fault::NotifyBehindReply, "08006"),
        (Fault::AlertBehindWords, "57P01"),
        (Fault::GarbageBehindReply, "08006"),
    ];
    for transport in TRANSPORTS {
        for poller in pollers() {
            for (fault, code) in faults {
                if transport == Transport::Plain && fault == Fault::GarbageBehindReply {
                    continue;
                }
                let manner =
                    Manner { transport, fault, chunk_bytes_max: 50, renews_keys: false, is_narrow: false };
                let what = format!("{manner:?} {poller:?}");
                let (spec, seen) = start(manner);
                let account = run(spec, script(ECHO, QueryMode::Prepared), poller, 30);
                assert_eq!(seen.out_of_step.load(Ordering::Relaxed), 0, "{what}");
                // Six connections are lost, and each session comes back from the last of its own.
                assert_eq!(seen.connections.load(Ordering::Relaxed) as u64, SESSIONS * 3, "{what}");
                let (done, failed) =
                    (account.posted.measured.transactions(), account.posted.measured.failed());
                assert_eq!(done + failed, 30 * SESSIONS, "{what}");
                assert!(failed <= SESSIONS * 2, "{what}: {failed}");
                for error in &account.posted.errors {
                    assert_eq!(error.sqlstate.to_string(), code, "{what}: {}", error.first_message);
                }
                // A reply that came whole counts, whatever came behind it.
                let answered = fault == Fault::NotifyBehindReply || fault == Fault::GarbageBehindReply;
                assert!(answered || failed > 0, "{what}");
            }
        }
    }
}
