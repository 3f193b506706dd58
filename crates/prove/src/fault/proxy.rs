//! Our own proxy between our clients and a server: network faults without root and without a kernel module.
//!
//! It can delay, slow down, cut, and hold back one direction or both (a partition: data sent during it arrives afterwards, as with TCP). It
//! understands enough of the protocol to drop exactly the reply to a COMMIT, which makes an outcome unknown on demand.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::conninfo::{Host, HostSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::backend::{self, HEADER_BYTES, tag};

use super::Fault;

/// A connection checks at least this often for a new fault.
const TICK: Duration = Duration::from_millis(10);
/// Bytes held back in one direction; then the sender has to wait, as with a full window.
const HELD_BYTES_MAX: usize = 1 << 20;
/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;
/// Of so many replies to COMMIT one is dropped.
const DROP_ONE_IN: u64 = 3;
/// The length and code of SSLRequest; GSSENCRequest differs in the last byte.
const SSL_REQUEST: [u8; 7] = [0, 0, 0, 8, 0x04, 0xd2, 0x16];

/// What the proxy does with the data of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lane {
    delay: Duration,
    bytes_per_s: Option<u64>,
    held: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Behaviour {
    to_server: Lane,
    to_client: Lane,
    drops_commits: bool,
}

#[derive(Debug, Default)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    /// Connections of an older generation are closed.
    generation: AtomicU64,
    taken: AtomicU64,
    commits: AtomicU64,
    dropped: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
enum Upstream {
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// A proxy in front of one server, on a port of 127.0.0.1. It ends when it is dropped, and so do its connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in front of the first host of `spec`.
    ///
    /// # Errors
    /// When no port is free or the host's name is not known.
    pub fn start(spec: &ConnSpec) -> io::Result<Proxy> {
        let host = spec.hosts.first().ok_or_else(|| io::Error::other("no host"))?;
        let upstream = match (host.socket_path(), &host.host) {
            (Some(path), _) => Upstream::Unix(path),
            (None, Host::Tcp(name)) => Upstream::Tcp(match host.address {
                Some(address) => vec![SocketAddr::new(address, host.port)],
                None => (name.as_str(), host.port).to_socket_addrs()?.collect(),
            }),
            (None, Host::Unix(_)) => return Err(io::Error::other("a socket without a path")),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &upstream, &shared)
        });
        Ok(Proxy { shared, port, listener: Some(thread) })
    }

    /// The port of 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections that it has taken so far.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// The same connection through the proxy. The host's name stays for certificates.
    pub fn through(&self, spec: &ConnSpec) -> ConnSpec {
        let mut spec = spec.clone();
        let password = spec.hosts.first().and_then(|host| spec.password_for(host).cloned());
        let name = match spec.hosts.first().map(|host| &host.host) {
            Some(Host::Tcp(name)) => name.clone(),
            _ => Ipv4Addr::LOCALHOST.to_string(),
        };
        let mut host = HostSpec::new(&name, self.port);
        host.address = Some(Ipv4Addr::LOCALHOST.into());
        host.password = password;
        spec.hosts = vec![host];
        spec
    }

    /// Begins a fault; false if the proxy does not know it.
    pub fn inject(&self, fault: Fault) -> bool {
        let mut behaviour = self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner);
        let both = |behaviour: &mut Behaviour, change: fn(&mut Lane, u64), value: u64| {
            change(&mut behaviour.to_server, value);
            change(&mut behaviour.to_client, value);
        };
        match fault {
            Fault::Cut => {
                self.shared.generation.fetch_add(1, Ordering::Relaxed);
            }
            Fault::Blackhole => both(&mut behaviour, |lane, _| lane.held = true, 0),
            Fault::BlackholeRequests => behaviour.to_server.held = true,
            Fault::BlackholeReplies => behaviour.to_client.held = true,
            Fault::Delay(delay) => both(
                &mut behaviour,
                |lane, us| lane.delay = Duration::from_micros(us),
                delay.as_micros() as u64,
            ),
            Fault::Rate(rate) => both(&mut behaviour, |lane, rate| lane.bytes_per_s = Some(rate), rate),
            Fault::DropCommit => behaviour.drops_commits = true,
            _ => return false,
        }
        true
    }

    /// Ends all of them.
    pub fn heal(&self) {
        *self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = Behaviour::default();
    }

    /// Replies to COMMIT that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.listener.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, upstream: &Upstream, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        let Ok(client) = client else { continue };
        shared.taken.fetch_add(1, Ordering::Relaxed);
        threads.retain(|thread| !thread.is_finished());
        let (upstream, shared) = (upstream.clone(), Arc::clone(shared));
        threads.push(std::thread::spawn(move || {
            // In every case both ends see a closed connection.
            let _ = carry(client, &upstream, &shared);
        }));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

trait Stream: Read + Write + AsFd + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

fn open(upstream: &Upstream) -> io::Result<Box<dyn Stream>> {
    match upstream {
        Upstream::Tcp(addresses) => {
            let stream = TcpStream::connect(addresses.as_slice())?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(stream))
        }
        Upstream::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(stream))
        }
    }
}

/// Data on its way in one direction.
#[derive(Default)]
struct Pipe {
    queue: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    is_ended: bool,
    /// With a limited rate: when the next bytes may pass.
    free_at: Option<Instant>,
}

impl Pipe {
    fn wants_more(&self) -> bool {
        !self.is_ended && self.bytes < HELD_BYTES_MAX
    }

    fn push(&mut self, lane: Lane, bytes: Vec<u8>, now: Instant) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.queue.push_back((now + lane.delay, bytes));
        }
    }

    /// Whether data may pass now; else when to check again.
    fn is_due(&self, lane: Lane, now: Instant) -> bool {
        !lane.held
            && self.free_at.is_none_or(|free| free <= now)
            && self.queue.front().is_some_and(|(due, _)| *due <= now)
    }

    fn pass(&mut self, lane: Lane, to: &mut dyn Stream, now: Instant) -> io::Result<()> {
        while self.is_due(lane, now) {
            let Some((_, bytes)) = self.queue.front_mut() else { break };
            let piece = match lane.bytes_per_s {
                // In pieces of a hundredth of a second.
                Some(rate) => bytes.len().min((rate / 100).max(1) as usize),
                None => bytes.len(),
            };
            match to.write(&bytes[..piece]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes.drain(..count);
                    self.bytes -= count;
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                    self.free_at = lane
                        .bytes_per_s
                        .map(|rate| now + Duration::from_secs_f64(count as f64 / rate as f64));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Looks for the replies to COMMIT in the server's messages.
struct Watcher {
    /// The client's first bytes: they show whether the server's first byte is an answer to SSLRequest.
    request: Vec<u8>,
    /// Server bytes of a message that is not whole.
    pending: Vec<u8>,
    is_opaque: bool,
}

impl Watcher {
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

fn carry(mut client: TcpStream, upstream: &Upstream, shared: &Shared) -> io::Result<()> {
    let generation = shared.generation.load(Ordering::Relaxed);
    client.set_nodelay(true)?;
    client.set_nonblocking(true)?;
    let mut server = open(upstream)?;
    let (mut to_server, mut to_client) = (Pipe::default(), Pipe::default());
    let mut watcher =
        Watcher { request: Vec::new(), pending: Vec::with_capacity(HEADER_BYTES), is_opaque: false };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if shared.is_over.load(Ordering::Relaxed) || shared.generation.load(Ordering::Relaxed) != generation {
            return Ok(());
        }
        let behaviour = shared.behaviour();
        let now = Instant::now();
        to_server.pass(behaviour.to_server, server.as_mut(), now)?;
        to_client.pass(behaviour.to_client, &mut client, now)?;
        let is_done = |pipe: &Pipe| pipe.is_ended && pipe.queue.is_empty();
        if is_done(&to_server) || is_done(&to_client) {
            return Ok(());
        }
        wait(&client, server.as_ref(), (&to_server, &to_client), behaviour, now)?;
        let now = Instant::now();
        if to_server.wants_more()
            && let Some(count) = read(&mut client, &mut buffer, &mut to_server)?
        {
            // Checked again: bytes sent after the fault began must not pass.
            watcher.of_client(&buffer[..count]);
            to_server.push(shared.behaviour().to_server, buffer[..count].to_vec(), now);
        }
        if to_client.wants_more()
            && let Some(count) = read(server.as_mut(), &mut buffer, &mut to_client)?
        {
            let behaviour = shared.behaviour();
            let drops = || {
                behaviour.drops_commits
                    && shared.commits.fetch_add(1, Ordering::Relaxed) % DROP_ONE_IN == DROP_ONE_IN - 1
            };
            match watcher.of_server(&buffer[..count], drops) {
                Some(bytes) => to_client.push(behaviour.to_client, bytes, now),
                None => {
                    shared.dropped.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
    }
}

/// What is there; `None` when nothing is, or the stream has ended.
fn read(from: &mut dyn Stream, buffer: &mut [u8], pipe: &mut Pipe) -> io::Result<Option<usize>> {
    match from.read(buffer) {
        Ok(0) => {
            pipe.is_ended = true;
            Ok(None)
        }
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Waits until something can be read, something that is due can be written, or it is time to look again.
fn wait(
    client: &TcpStream,
    server: &dyn Stream,
    (to_server, to_client): (&Pipe, &Pipe),
    behaviour: Behaviour,
    now: Instant,
) -> io::Result<()> {
    let flags = |reads: &Pipe, writes: &Pipe, lane: Lane| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads.wants_more());
        flags.set(PollFlags::OUT, writes.is_due(lane, now));
        flags
    };
    let mut fds = [
        PollFd::new(client, flags(to_server, to_client, behaviour.to_client)),
        PollFd::from_borrowed_fd(server.as_fd(), flags(to_client, to_server, behaviour.to_server)),
    ];
    let next =
        |pipe: &Pipe| pipe.queue.front().map(|(due, _)| pipe.free_at.map_or(*due, |free| free.max(*due)));
    let due = [next(to_server), next(to_client)].into_iter().flatten().min();
    let patience = due.map_or(TICK, |due| due.saturating_duration_since(now).min(TICK));
    // At least a millisecond: data that is held back has been due for long.
    let patience = patience.max(Duration::from_millis(1));
    if to_server.is_ended || to_client.is_ended {
        // A closed end is always ready; only data that is held back is waited for.
        std::thread::sleep(patience);
        return Ok(());
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: patience.as_nanos() as _ };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Watcher { request: b"\0\0\0\x20\0\x03\0\0".to_vec(), pending: vec![], is_opaque: false };
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
        let mut watcher = Watcher { request: Vec::new(), pending: vec![], is_opaque: false };
        watcher.of_client(&request);
        assert_eq!(watcher.of_server(b"N", || true), Some(b"N".to_vec()));
        watcher.of_client(b"\0\0\0\x20\0\x03\0\0");
        assert_eq!(watcher.of_server(&message(b'C', b"COMMIT\0"), || true), None);
        let mut watcher = Watcher { request, pending: vec![], is_opaque: false };
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
