//! Our own proxy between our clients and a server: network faults without root and without a kernel module.
//!
//! A relay that can delay, slow down, cut, and hold back one direction or both (a partition). The proxy also
//! understands enough of the protocol to drop exactly the reply to a COMMIT, which makes an outcome unknown on demand.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use connect::ConnSpec;
use connect::conninfo::{Host, HostSpec};
use lab::relay::{Behaviour, Lane, Limits, Listen, Relay, Tap, Upstream};
use wire::backend::{self, HEADER_BYTES, tag};

use super::Fault;

/// A connection notices a new fault within a hundredth of a second, and holds back a megabyte in each direction.
const LIMITS: Limits = Limits { tick: Duration::from_millis(10), window_bytes: 1 << 20 };
/// Of so many replies to COMMIT one is dropped.
const DROP_ONE_IN: u64 = 3;
/// The length and code of SSLRequest; GSSENCRequest differs in the last byte.
const SSL_REQUEST: [u8; 7] = [0, 0, 0, 8, 0x04, 0xd2, 0x16];

/// What happens to replies to COMMIT.
#[derive(Debug, Default)]
struct Commits {
    drops: AtomicBool,
    seen: AtomicU64,
    dropped: AtomicU64,
}

impl Commits {
    fn drops_next(&self) -> bool {
        self.drops.load(Ordering::Relaxed)
            && self.seen.fetch_add(1, Ordering::Relaxed) % DROP_ONE_IN == DROP_ONE_IN - 1
    }
}

/// A proxy in front of one server, on a port of 127.0.0.1. It ends when it is dropped, and so do its connections.
#[derive(Debug)]
pub struct Proxy {
    relay: Relay,
    commits: Arc<Commits>,
}

impl Proxy {
    /// Starts one in front of the first host of `spec`.
    ///
    /// # Errors
    /// When no port is free or the host's name is not known.
    pub fn start(spec: &ConnSpec) -> io::Result<Proxy> {
        let commits = Arc::new(Commits::default());
        let shared = Arc::clone(&commits);
        let watcher = move || -> Box<dyn Tap> { Box::new(Watcher::new(Arc::clone(&shared))) };
        let relay = Relay::start(&Listen::AnyPort, Upstream::of(spec)?, LIMITS, watcher)?;
        Ok(Proxy { relay, commits })
    }

    /// The port of 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.relay.port()
    }

    /// Connections that it has taken so far.
    pub fn taken(&self) -> u64 {
        self.relay.taken()
    }

    /// The same connection through the proxy. The host's name stays for certificates.
    pub fn through(&self, spec: &ConnSpec) -> ConnSpec {
        let mut spec = spec.clone();
        let password = spec.hosts.first().and_then(|host| spec.password_for(host).cloned());
        let name = match spec.hosts.first().map(|host| &host.host) {
            Some(Host::Tcp(name)) => name.clone(),
            _ => Ipv4Addr::LOCALHOST.to_string(),
        };
        let mut host = HostSpec::new(&name, self.port());
        host.address = Some(Ipv4Addr::LOCALHOST.into());
        host.password = password;
        spec.hosts = vec![host];
        spec
    }

    /// Begins a fault; false if the proxy does not know it.
    pub fn inject(&self, fault: Fault) -> bool {
        let both = |change: &dyn Fn(&mut Lane)| {
            self.relay.change(|behaviour| {
                change(&mut behaviour.to_server);
                change(&mut behaviour.to_client);
            });
        };
        match fault {
            Fault::Cut => self.relay.cut(),
            Fault::Blackhole => both(&|lane| lane.held = true),
            Fault::BlackholeRequests => self.relay.change(|behaviour| behaviour.to_server.held = true),
            Fault::BlackholeReplies => self.relay.change(|behaviour| behaviour.to_client.held = true),
            Fault::Delay(delay) => both(&|lane| lane.delay = delay),
            Fault::Rate(rate) => both(&|lane| lane.bytes_per_s = Some(rate)),
            Fault::DropCommit => self.commits.drops.store(true, Ordering::Relaxed),
            _ => return false,
        }
        true
    }

    /// Ends all of them.
    pub fn heal(&self) {
        self.relay.change(|behaviour| *behaviour = Behaviour::default());
        self.commits.drops.store(false, Ordering::Relaxed);
    }

    /// Replies to COMMIT that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.commits.dropped.load(Ordering::Relaxed)
    }
}

/// Looks for the replies to COMMIT in the server's messages.
struct Watcher {
    commits: Arc<Commits>,
    /// The client's first bytes: they show whether the server's first byte is an answer to SSLRequest.
    request: Vec<u8>,
    /// Server bytes of a message that is not whole.
    pending: Vec<u8>,
    is_opaque: bool,
}

impl Tap for Watcher {
    fn sent(&mut self, bytes: &[u8]) {
        self.of_client(bytes);
    }

    fn answered(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let commits = Arc::clone(&self.commits);
        let passed = self.of_server(bytes, || commits.drops_next());
        if passed.is_none() {
            self.commits.dropped.fetch_add(1, Ordering::Relaxed);
        }
        passed
    }
}

impl Watcher {
    fn new(commits: Arc<Commits>) -> Watcher {
        Watcher { commits, request: Vec::new(), pending: Vec::with_capacity(HEADER_BYTES), is_opaque: false }
    }

    fn of_client(&mut self, bytes: &[u8]) {
        // After a refused request for encryption another first message follows.
        if self.request.len() < 8 {
            let room = 8 - self.request.len();
            self.request.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The bytes that may pass; `None` when the reply to a COMMIT is among them and `drop` requests that it is lost.
    fn of_server(&mut self, bytes: &[u8], mut drop: impl FnMut() -> bool) -> Option<Vec<u8>> {
        if self.is_opaque {
            return Some(bytes.to_vec());
        }
        self.pending.extend_from_slice(bytes);
        let mut out = Vec::new();
        if self.request.starts_with(&SSL_REQUEST) && !self.pending.is_empty() {
            let answer = self.pending.remove(0);
            out.push(answer);
            self.request.clear();
            // Encrypted from here on: it cannot be read.
            self.is_opaque = answer != b'N';
        }
        loop {
            match backend::frame(&self.pending) {
                Ok(Some((frame, total))) => {
                    if frame.tag == tag::COMMAND_COMPLETE
                        && backend::command_tag(frame.body) == b"COMMIT"
                        && drop()
                    {
                        return None;
                    }
                    out.extend(self.pending.drain(..total));
                }
                Ok(None) if !self.is_opaque => return Some(out),
                // Not a message: unreadable data is forwarded as it is.
                Ok(None) | Err(_) => {
                    self.is_opaque = true;
                    out.append(&mut self.pending);
                    return Some(out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn only_the_reply_to_a_commit_is_lost_wherever_the_pieces_end() {
        let before =
            [message(b'C', b"INSERT 0 1\0"), message(b'Z', b"T"), message(b'C', b"COMMIT PREPARED\0")]
                .concat();
        let all = [before.clone(), message(b'C', b"COMMIT\0"), message(b'Z', b"I")].concat();
        for size in 1..all.len() {
            let mut watcher =
                Watcher { request: b"\0\0\0\x20\0\x03\0\0".to_vec(), ..Watcher::new(Arc::default()) };
            let (mut passed, mut lost) = (Vec::new(), false);
            for piece in all.chunks(size) {
                match watcher.of_server(piece, || true) {
                    Some(bytes) => passed.extend(bytes),
                    None => {
                        lost = true;
                        break;
                    }
                }
            }
            assert!(lost, "in pieces of {size}");
            // Nothing after it passes; earlier data may have passed, or arrive in the same piece.
            assert!(before.starts_with(&passed), "in pieces of {size}");
        }
    }

    #[test]
    fn the_answer_to_a_request_for_encryption_is_no_message() {
        let request = [&SSL_REQUEST[..], &[0x2f]].concat();
        let mut watcher = Watcher::new(Arc::default());
        watcher.of_client(&request);
        assert_eq!(watcher.of_server(b"N", || true), Some(b"N".to_vec()));
        watcher.of_client(b"\0\0\0\x20\0\x03\0\0");
        assert_eq!(watcher.of_server(&message(b'C', b"COMMIT\0"), || true), None);
        let mut watcher = Watcher { request, ..Watcher::new(Arc::default()) };
        assert_eq!(watcher.of_server(b"S", || true), Some(b"S".to_vec()));
        // Encrypted bytes may look like anything.
        let noise = message(b'C', b"COMMIT\0");
        assert_eq!(watcher.of_server(&noise, || true), Some(noise.clone()));
    }

    /// A fake server that echoes whole messages.
    fn echo() -> (ConnSpec, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (ConnSpec::new("127.0.0.1", port, "u", "d"), listener)
    }

    #[test]
    fn a_partition_holds_back_and_a_cut_closes() {
        let (spec, listener) = echo();
        let proxy = Proxy::start(&spec).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reply = [0; 6];
                while stream.read_exact(&mut reply).is_ok() {
                    stream.write_all(&reply).unwrap();
                }
            });
            let through = proxy.through(&spec);
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, through.hosts[0].port)).unwrap();
            let mut reply = [0; 6];
            let [a, b, c] = [b"a", b"b", b"c"].map(|body| message(b'x', body));
            client.write_all(&a).unwrap();
            client.read_exact(&mut reply).unwrap();
            assert_eq!(reply, *a);
            for fault in [Fault::Blackhole, Fault::BlackholeRequests, Fault::BlackholeReplies] {
                assert!(proxy.inject(fault));
                client.write_all(&b).unwrap();
                client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                assert!(client.read_exact(&mut reply).is_err(), "{fault}: nothing may pass");
                proxy.heal();
                client.set_read_timeout(None).unwrap();
                client.read_exact(&mut reply).unwrap();
                assert_eq!(reply, *b, "{fault}: what was sent arrives when it is over");
            }
            let delay = Duration::from_millis(60);
            assert!(proxy.inject(Fault::Delay(delay)));
            let begin = Instant::now();
            client.write_all(&c).unwrap();
            client.read_exact(&mut reply).unwrap();
            assert!(begin.elapsed() >= 2 * delay, "later in each direction");
            assert!(proxy.inject(Fault::Cut));
            assert_eq!(client.read(&mut reply).unwrap_or(0), 0);
            assert!(!proxy.inject(Fault::Kill), "none of ours");
        });
    }
}
