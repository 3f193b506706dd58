//! The network probe: one TCP stream for bandwidth and retransmits, small messages on an idle connection for round trips.
//!
//! The listener accepts only connections that begin with its token, so that a port scanner measures nothing.

use super::sys;
use record::Latency;
use record::check::{Distribution, Pair};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one write of the bandwidth test.
const BLOCK_BYTES: usize = 128 << 10;
/// Bytes of a message of the round-trip test: about a short query.
const MESSAGE_BYTES: usize = 64;
/// Round trips that are not counted: the first ones wait for the other thread and for the route.
const ROUND_TRIPS_BEFORE: usize = 5;
/// The time of the round-trip test as a part of that of the bandwidth test.
const ROUND_TRIP_PART: u32 = 4;
/// A peer that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the reply of the bandwidth test may take: what is still in the buffer of a slow link comes before it (4 MB at 1 Mbit/s take 32 s).
const DRAIN: Duration = Duration::from_secs(50);
/// The interval at which the listener notices its end.
const BEAT: Duration = Duration::from_millis(20);
/// Random bytes that a peer has to know.
const TOKEN_BYTES: usize = 16;

/// How to reach a listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Its port, on every address of its host.
    pub port: u16,
    /// What connections begin with.
    pub token: [u8; TOKEN_BYTES],
}

/// A listener in a thread of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Listener {
    /// How to reach it.
    pub listening: Listening,
    end: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start() -> io::Result<Listener> {
        // IPv6 with its mapped addresses takes both families; a kernel without IPv6 has only the other.
        let listener =
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)))?;
        listener.set_nonblocking(true)?;
        let mut token = [0; TOKEN_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
        let listening = Listening { port: listener.local_addr()?.port(), token };
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let ended = Arc::clone(&ended);
                        // A peer that fails reports it itself.
                        std::thread::spawn(move || drop(answer(stream, token, &ended)));
                    }
                    Err(_) => std::thread::sleep(BEAT),
                }
            }
        });
        Ok(Listener { listening, end })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// The kinds of connections, by their first byte after the token.
const BANDWIDTH: u8 = b'b';
const ROUND_TRIPS: u8 = b'r';

/// Serves one connection: echoes messages, or counts bytes until their end and replies with count and time.
fn answer(mut stream: TcpStream, token: [u8; TOKEN_BYTES], end: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut head = [0; TOKEN_BYTES + 1];
    stream.read_exact(&mut head)?;
    if head[..TOKEN_BYTES] != token {
        return Ok(());
    }
    if head[TOKEN_BYTES] == ROUND_TRIPS {
        let mut message = [0; MESSAGE_BYTES];
        while !end.load(Ordering::Relaxed) {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
        return Ok(());
    }
    let mut buffer = vec![0; BLOCK_BYTES];
    let (mut bytes, mut begun, mut last) = (0_u64, None, Instant::now());
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 || end.load(Ordering::Relaxed) {
            break;
        }
        last = Instant::now();
        // The time begins with the first data: what came before it is not counted.
        match begun {
            None => begun = Some(last),
            Some(_) => bytes += count as u64,
        }
    }
    let time_us = begun.map_or(0, |begun| u64::try_from((last - begun).as_micros()).unwrap_or(u64::MAX));
    stream.write_all(&bytes.to_le_bytes())?;
    stream.write_all(&time_us.to_le_bytes())
}

/// Measures the way from this host to a listener.
///
/// # Errors
/// When the address cannot be reached, or the connection breaks.
pub fn measure(address: &str, listening: &Listening, time: Duration, stop: &AtomicBool) -> io::Result<Pair> {
    let mut pair = Pair { tool: "pgfathom".to_string(), ..Pair::default() };
    // Round trips first: the queues are empty.
    pair.round_trip_us = round_trips(address, listening, time / ROUND_TRIP_PART, stop)?;
    let mut stream = open(address, listening, BANDWIDTH)?;
    let block = vec![0x5a; BLOCK_BYTES];
    let before = sys::tcp_counters(&stream).unwrap_or_default();
    let until = Instant::now() + time;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        stream.write_all(&block)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(DRAIN))?;
    let mut reply = [0; 16];
    stream.read_exact(&mut reply)?;
    let number = |at: usize| reply[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    let (bytes, time_us) = (number(0), number(8));
    let after = sys::tcp_counters(&stream).unwrap_or_default();
    pair.retransmits = after.retransmits.saturating_sub(before.retransmits);
    pair.segments = after.segments.saturating_sub(before.segments);
    pair.bytes_per_s = bytes as f64 / (time_us.max(1) as f64 / 1e6);
    Ok(pair)
}

fn round_trips(
    address: &str,
    listening: &Listening,
    time: Duration,
    stop: &AtomicBool,
) -> io::Result<Distribution> {
    let mut stream = open(address, listening, ROUND_TRIPS)?;
    let mut message = [0x5a; MESSAGE_BYTES];
    let mut latency = Latency::new();
    for _ in 0..ROUND_TRIPS_BEFORE {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
    }
    let until = Instant::now() + time;
    let mut begun = Instant::now();
    while begun < until && !stop.load(Ordering::Relaxed) {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        let now = Instant::now();
        latency.record_ns(u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX));
        begun = now;
    }
    Ok(Distribution::of(&latency))
}

fn open(address: &str, listening: &Listening, kind: u8) -> io::Result<TcpStream> {
    let resolved: Vec<SocketAddr> = (address, listening.port).to_socket_addrs()?.collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in resolved {
        match TcpStream::connect_timeout(&address, SILENCE) {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE))?;
                stream.set_write_timeout(Some(SILENCE))?;
                stream.write_all(&listening.token)?;
                stream.write_all(&[kind])?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_bandwidth_and_round_trips() {
        let listener = Listener::start().expect("a port");
        let stop = AtomicBool::new(false);
        let pair =
            measure("127.0.0.1", &listener.listening, Duration::from_millis(200), &stop).expect("loopback");
        assert!(pair.bytes_per_s > 1e6, "{pair:?}");
        assert!(pair.segments > 0 && pair.round_trip_us.count > 10, "{pair:?}");
        assert!(pair.round_trip_us.min <= pair.round_trip_us.p99, "{pair:?}");
    }

    #[test]
    fn a_peer_without_the_token_gets_nothing() {
        let listener = Listener::start().expect("a port");
        let stop = AtomicBool::new(false);
        let wrong = Listening { token: [7; TOKEN_BYTES], ..listener.listening.clone() };
        let error = measure("127.0.0.1", &wrong, Duration::from_millis(100), &stop).expect_err("refused");
        assert!(
            matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
            "{error}"
        );
        let port = listener.listening.port;
        drop(listener);
        let is_closed =
            connect::poll::until(Duration::from_secs(5), || TcpStream::connect(("127.0.0.1", port)).err());
        assert!(is_closed.is_some(), "the listener ends with its owner");
    }
}
