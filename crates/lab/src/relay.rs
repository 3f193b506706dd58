//! A relay between a client and a server: it carries bytes, and can delay them, slow them down, hold them back in one direction or both, and cut connections.
//!
//! Data that was sent while it is held back arrives afterwards, as with TCP. Every piece of data leaves after the delay, counted from its arrival, whatever
//! is behind it: a delay is a distance, not a rate.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::conninfo::Host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// What happens to the data of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lane {
    /// How much later it arrives.
    pub delay: Duration,
    /// The most bytes each second.
    pub bytes_per_s: Option<u64>,
    /// Nothing arrives until this ends.
    pub held: bool,
}

/// What happens to the data of both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behaviour {
    /// From the client.
    pub to_server: Lane,
    /// From the server.
    pub to_client: Lane,
}

/// Looks at the data of one connection.
pub trait Tap: Send {
    /// The client sent this.
    fn sent(&mut self, bytes: &[u8]);
    /// The server sent this; returns what the client gets, or `None` to close the connection instead.
    fn answered(&mut self, bytes: &[u8]) -> Option<Vec<u8>>;
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    fn sent(&mut self, _: &[u8]) {}

    fn answered(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

/// Where a relay listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// On a free port of 127.0.0.1.
    AnyPort,
    /// On this port of 127.0.0.1.
    Port(u16),
    /// On this socket, which every user may open who can enter its folder.
    Socket(PathBuf),
}

/// Where a relay connects to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// The first of these that answers.
    Tcp(Vec<SocketAddr>),
    /// This socket.
    Unix(PathBuf),
}

impl Upstream {
    /// The first host of `spec`.
    ///
    /// # Errors
    /// When it has none, or its name is not known.
    pub fn of(spec: &ConnSpec) -> io::Result<Upstream> {
        let host = spec.hosts.first().ok_or_else(|| io::Error::other("no host"))?;
        Ok(match (host.socket_path(), &host.host) {
            (Some(path), _) => Upstream::Unix(path),
            (None, Host::Tcp(name)) => Upstream::Tcp(match host.address {
                Some(address) => vec![SocketAddr::new(address, host.port)],
                None => (name.as_str(), host.port).to_socket_addrs()?.collect(),
            }),
            (None, Host::Unix(_)) => return Err(io::Error::other("a socket without a path")),
        })
    }
}

/// What a relay costs, and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A connection without data looks at least this often whether the behaviour has changed.
    pub tick: Duration,
    /// Bytes on their way in one direction; then the sender has to wait, as with a full window.
    pub window_bytes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    /// Connections of an older generation are closed.
    generation: AtomicU64,
    taken: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A relay in front of one server. It ends when it is dropped, and so do its connections.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    listens: Listen,
    listener: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts one; `tap` makes what looks at each connection.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn start(
        listen: &Listen,
        upstream: Upstream,
        limits: Limits,
        tap: impl Fn() -> Box<dyn Tap> + Send + 'static,
    ) -> io::Result<Relay> {
        let (door, listens) = Door::open(listen)?;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&door, &upstream, limits, &shared, &tap)
        });
        Ok(Relay { shared, listens, listener: Some(thread) })
    }

    /// The port of 127.0.0.1 that it listens on; 0 on a socket.
    pub fn port(&self) -> u16 {
        match self.listens {
            Listen::Port(port) => port,
            Listen::AnyPort | Listen::Socket(_) => 0,
        }
    }

    /// Connections that it has taken so far.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Changes what happens to data from now on.
    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes all connections; new ones are taken.
    pub fn cut(&self) {
        self.shared.generation.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        match &self.listens {
            Listen::Socket(path) => {
                let _ = UnixStream::connect(path);
                let _ = std::fs::remove_file(path);
            }
            Listen::Port(_) | Listen::AnyPort => {
                let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
            }
        }
        if let Some(thread) = self.listener.take() {
            let _ = thread.join();
        }
    }
}

/// A listening socket of either kind.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    fn open(listen: &Listen) -> io::Result<(Door, Listen)> {
        let tcp = |port: u16| -> io::Result<(Door, Listen)> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
            let port = listener.local_addr()?.port();
            Ok((Door::Tcp(listener), Listen::Port(port)))
        };
        match listen {
            Listen::AnyPort => tcp(0),
            Listen::Port(port) => tcp(*port),
            Listen::Socket(path) => {
                // What a killed relay left; one that is alive keeps its socket.
                let is_socket = |there: std::fs::Metadata| there.file_type().is_socket();
                if std::fs::symlink_metadata(path).is_ok_and(is_socket) && UnixStream::connect(path).is_err()
                {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
                Ok((Door::Unix(listener), listen.clone()))
            }
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Door::Tcp(listener) => Box::new(ready(listener.accept()?.0)?),
            Door::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Box::new(stream)
            }
        })
    }
}

/// A TCP connection that sends at once and never waits.
fn ready(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn accept(
    door: &Door,
    upstream: &Upstream,
    limits: Limits,
    shared: &Arc<Shared>,
    tap: &(impl Fn() -> Box<dyn Tap> + Send),
) {
    /// After an error of the listener itself, as too many open files.
    const PAUSE: Duration = Duration::from_millis(10);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let Ok(client) = door.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        shared.taken.fetch_add(1, Ordering::Relaxed);
        threads.retain(|thread| !thread.is_finished());
        let (upstream, shared, tap) = (upstream.clone(), Arc::clone(shared), tap());
        threads.push(std::thread::spawn(move || {
            // In every case both ends see a closed connection.
            let _ = carry(client, &upstream, limits, &shared, tap);
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
        Upstream::Tcp(addresses) => Ok(Box::new(ready(TcpStream::connect(addresses.as_slice())?)?)),
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
    fn wants_more(&self, limits: Limits) -> bool {
        !self.is_ended && self.bytes < limits.window_bytes
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

fn carry(
    mut client: Box<dyn Stream>,
    upstream: &Upstream,
    limits: Limits,
    shared: &Shared,
    mut tap: Box<dyn Tap>,
) -> io::Result<()> {
    let generation = shared.generation.load(Ordering::Relaxed);
    let mut server = open(upstream)?;
    let (mut to_server, mut to_client) = (Pipe::default(), Pipe::default());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if shared.is_over.load(Ordering::Relaxed) || shared.generation.load(Ordering::Relaxed) != generation {
            return Ok(());
        }
        let behaviour = shared.behaviour();
        let now = Instant::now();
        to_server.pass(behaviour.to_server, server.as_mut(), now)?;
        to_client.pass(behaviour.to_client, client.as_mut(), now)?;
        let is_done = |pipe: &Pipe| pipe.is_ended && pipe.queue.is_empty();
        if is_done(&to_server) || is_done(&to_client) {
            return Ok(());
        }
        wait([client.as_ref(), server.as_ref()], [&to_server, &to_client], behaviour, limits, now)?;
        let now = Instant::now();
        if to_server.wants_more(limits)
            && let Some(count) = read(client.as_mut(), &mut buffer, &mut to_server)?
        {
            // Checked again: bytes sent after the fault began must not pass.
            tap.sent(&buffer[..count]);
            to_server.push(shared.behaviour().to_server, buffer[..count].to_vec(), now);
        }
        if to_client.wants_more(limits)
            && let Some(count) = read(server.as_mut(), &mut buffer, &mut to_client)?
        {
            match tap.answered(&buffer[..count]) {
                Some(bytes) => to_client.push(shared.behaviour().to_client, bytes, now),
                None => return Ok(()),
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
    [client, server]: [&dyn Stream; 2],
    [to_server, to_client]: [&Pipe; 2],
    behaviour: Behaviour,
    limits: Limits,
    now: Instant,
) -> io::Result<()> {
    /// For data that is due and may not pass: it is held back.
    const HELD: Duration = Duration::from_millis(1);
    let flags = |reads: &Pipe, writes: &Pipe, lane: Lane| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads.wants_more(limits));
        flags.set(PollFlags::OUT, writes.is_due(lane, now));
        flags
    };
    let mut fds = [
        PollFd::from_borrowed_fd(client.as_fd(), flags(to_server, to_client, behaviour.to_client)),
        PollFd::from_borrowed_fd(server.as_fd(), flags(to_client, to_server, behaviour.to_server)),
    ];
    let next =
        |pipe: &Pipe| pipe.queue.front().map(|(due, _)| pipe.free_at.map_or(*due, |free| free.max(*due)));
    let due = [next(to_server), next(to_client)].into_iter().flatten().min();
    let patience = match due.map(|due| due.saturating_duration_since(now)) {
        None => limits.tick,
        Some(Duration::ZERO) => HELD,
        Some(left) => left.min(limits.tick),
    };
    if to_server.is_ended || to_client.is_ended {
        // A closed end is always ready; only data that is held back is waited for.
        std::thread::sleep(patience.min(HELD));
        return Ok(());
    }
    let timeout =
        Timespec { tv_sec: patience.as_secs() as _, tv_nsec: i64::from(patience.subsec_nanos()) as _ };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
