//! Connections for the hot path: a socket, TLS if any, and the result of the handshake, without any library in between.
//!
//! Opening blocks; the worker then takes the parts with [`HotConnection::into_parts`] and drives them without blocking. Used as it is, a
//! connection is `Read + Write` for simple blocking work.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use rustls::client::ClientConnection;
use wire::backend;
use wire::error::ServerError;
use wire::frontend;
use wire::startup::{self, AuthMethod, Startup, StartupError, StartupOptions};

use crate::attempt::{self, Candidate, Cause, ConnectError, Encryption, Endpoint, Failure, Plane, Role};
use crate::conninfo::{ConnSpec, HostSpec, Keepalives};
use crate::control::hindrance::Answer;
use crate::control::silence::Silent;
use crate::os_user::OsUser;
use crate::settings::{self, Settings, Started, Way};
pub use crate::socket::Socket;
use crate::socket::{Deadline, Timed};
use crate::tls::{self, Link, Tls, TlsError};

mod pool;
mod query;

pub use pool::is_answered;
pub(crate) use pool::learn;
pub use query::{QueryError, TextRow};

/// The size of reads while connecting.
const READ_BYTES: usize = 8 * 1024;
/// How long a cancel request may take without a `connect_timeout`.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// A session that is ready for its first query. Dropping it ends the session with Terminate.
pub struct HotConnection {
    /// `None` only while [`HotConnection::into_parts`] consumes it.
    parts: Option<HotParts>,
    method: AuthMethod,
    channel_bound: bool,
    notices: Vec<ServerError>,
    candidate: Candidate,
    /// The deadline of the first queries; `None` after them.
    deadline: Deadline,
}

/// The parts that a worker needs to drive a session.
#[derive(Debug)]
pub struct HotParts {
    /// The socket, blocking and without timeouts.
    pub socket: Socket,
    /// TLS state, when the link is encrypted.
    pub tls: Option<Box<ClientConnection>>,
    /// Bytes of the server, in clear, that came after the handshake; they are read before the socket. Usually empty.
    pub received: Vec<u8>,
    /// Settings that the server reports, such as `server_version`.
    pub parameters: BTreeMap<String, String>,
    /// How the bytes travel.
    pub link: Link,
    /// Ends a running query.
    pub cancel: CancelToken,
}

impl HotParts {
    /// Ends the session properly: Terminate, and the end of TLS. Without them the server would log a lost client.
    /// Best effort and without waiting: a server that does not read gets nothing.
    pub fn close(mut self) {
        self.send_terminate();
    }

    fn send_terminate(&mut self) {
        let mut out = Vec::new();
        frontend::terminate(&mut out);
        let _ = self.socket.set_nonblocking(true);
        let mut stream = Stream { socket: &mut self.socket, tls: self.tls.as_deref_mut() };
        let _ = stream.write_all(&out);
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() && tls.write_tls(&mut self.socket).is_ok_and(|count| count > 0) {}
        }
    }
}

impl Drop for HotConnection {
    fn drop(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.send_terminate();
        }
    }
}

impl fmt::Debug for HotConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotConnection")
            .field("host", &self.candidate.host)
            .field("link", &self.parts().link)
            .finish_non_exhaustive()
    }
}

/// Opens a session by the rules of libpq: hosts, TLS, authentication, `target_session_attrs`, `connect_timeout`.
pub fn connect(spec: &ConnSpec) -> Result<HotConnection, ConnectError> {
    attempt::connect(spec, &Hot)
}

/// Opens a session and drops it: it checks what the control plane's library cannot.
pub(crate) fn probe(
    spec: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
) -> Result<(), Failure> {
    Hot.open(spec, candidate, encryption, tls).map(drop)
}

struct Hot;

impl Plane for Hot {
    type Session = HotConnection;

    fn open(
        &self,
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<HotConnection, Failure> {
        let bare = |spec: &ConnSpec| open_bare(spec, candidate, encryption, tls);
        let plain = |cause| Failure { cause, encrypted: false };
        let lost = |wanted: &Settings| settings::lost(spec, wanted);
        let opened = settings::open(
            spec,
            candidate,
            bare,
            |wanted, session| wanted.are_in_effect(|sql| first_question(spec, session, sql)),
            |without| learn(without, candidate, encryption, tls),
            Settings::of(spec).is_ok_and(|wanted| lost(&wanted).is_some()),
        )?;
        let (way, wanted) = match opened {
            Started::Session(session) => return Ok(session),
            Started::By(way, wanted) => (way, wanted),
        };
        let without = settings::without(spec);
        if way == Way::Transaction {
            return match lost(&wanted) {
                Some(refusal) => Err(plain(Cause::Pooler(refusal))),
                None => bare(&without),
            };
        }
        let mut session = bare(&without)?;
        if !wanted.is_empty() {
            first_question(spec, &mut session, &wanted.statement(false)).map_err(plain)?;
        }
        Ok(session)
    }

    fn role(&self, spec: &ConnSpec, session: &mut HotConnection) -> Result<Role, Cause> {
        let rows = first_question(spec, session, Role::QUERY)?;
        let is = |column: usize| {
            rows.first().and_then(|row| row.get(column)).and_then(Option::as_deref) == Some(b"t".as_slice())
        };
        Ok(Role { in_recovery: is(0), read_only: is(1) })
    }

    fn begin_work(&self, session: &mut HotConnection) {
        session.deadline = None;
        // It cannot fail on a socket that is open.
        let _ = session.socket().set_timeout(None);
    }
}

/// A query after the handshake: a server can stop responding there, too.
fn first_question(spec: &ConnSpec, session: &mut HotConnection, sql: &str) -> Result<Vec<TextRow>, Cause> {
    let (began, limit) = (Instant::now(), spec.connect_limit());
    session.deadline = Some(began + limit);
    let place = session.host().to_string();
    session.simple_query(sql).map_err(|error| match error {
        QueryError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            let seconds = began.elapsed().as_secs();
            Cause::Silent(Silent {
                place,
                seconds,
                query_text: sql.to_owned(),
                is_alone: true,
                is_talking: false,
            })
        }
        error => cause(error),
    })
}

/// What a failed statement of a new session means.
fn cause(error: QueryError) -> Cause {
    match error {
        QueryError::Server(error) => Cause::Requested(Box::new(error)),
        QueryError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Cause::Closed,
        QueryError::Io(error) => Cause::of_stream(&error),
    }
}

/// Whether the server answers a new session, in time; one that refuses it has answered. And what keeps the session of this server process waiting, if that
/// is known.
pub(crate) fn answers(
    spec: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
    limit: Duration,
    pid: Option<i32>,
) -> Answer {
    let spec = ConnSpec { connect_timeout: Some(limit.min(spec.connect_limit())), ..spec.clone() };
    match open_bare(&spec, candidate, encryption, tls) {
        Ok(mut session) => Answer::to(pid, |sql| {
            let rows = first_question(&spec, &mut session, sql)?;
            Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()?))
        }),
        Err(failure) => Answer::none(!matches!(failure.cause, Cause::Timeout(_) | Cause::GivenUp(_))),
    }
}

/// One attempt, with the settings in the startup packet.
pub(crate) fn open_bare(
    spec: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
) -> Result<HotConnection, Failure> {
    let limit = spec.connect_limit();
    let began = Instant::now();
    let deadline = Some(began + limit);
    let mut encrypted = false;
    open(spec, candidate, encryption, tls, deadline, &mut encrypted).map_err(|cause| {
        let timed_out = match &cause {
            Cause::Connect(error) | Cause::Io(error) => error.kind() == io::ErrorKind::TimedOut,
            Cause::Tls(TlsError::Broken { kind, .. }) => *kind == io::ErrorKind::TimedOut,
            _ => false,
        };
        let cause = if timed_out { Cause::unanswered(began.elapsed(), limit) } else { cause };
        Failure { cause, encrypted }
    })
}

fn open(
    spec: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
    deadline: Deadline,
    encrypted: &mut bool,
) -> Result<HotConnection, Cause> {
    let mut socket = Socket::open(&candidate.endpoint, &spec.keepalives, deadline).map_err(Cause::Connect)?;
    check_peer(spec, candidate, &socket)?;
    let mut session = encrypt(spec, candidate, encryption, tls, &mut socket, deadline, encrypted)?;
    let link = match (&session, tls) {
        (Some(session), Some(tls)) => tls.link(session),
        _ => Link::Plain,
    };
    let end_point = session.as_deref().and_then(tls::end_point_of);
    let mut out = Vec::new();
    let mut startup = Startup::new(startup_options(spec, candidate, *encrypted, end_point), &mut out);
    let mut received = Vec::new();
    let mut stream = Stream { socket: Timed { socket: &mut socket, deadline }, tls: session.as_deref_mut() };
    loop {
        if !out.is_empty() {
            stream.write_all(&out).map_err(Cause::Io)?;
            out.clear();
        }
        let progress = startup.receive(&received, &mut out).map_err(Cause::Startup)?;
        received.drain(..progress.consumed);
        if progress.done {
            break;
        }
        if out.is_empty() {
            read_more(&mut stream, &mut received)?;
        }
    }
    let established = startup.into_established();
    let cancel = CancelToken {
        endpoint: candidate.endpoint.clone(),
        host: candidate.name(),
        tls: session.as_ref().and(tls.cloned()),
        process_id: established.process_id,
        secret_key: established.secret_key.clone(),
        timeout: spec.connect_timeout.unwrap_or(CANCEL_TIMEOUT),
    };
    let parts = HotParts { socket, tls: session, received, parameters: established.parameters, link, cancel };
    Ok(HotConnection {
        parts: Some(parts),
        method: established.method,
        channel_bound: established.channel_bound,
        notices: established.notices,
        candidate: candidate.clone(),
        deadline,
    })
}

/// Reads the available bytes; the end of the stream is an error.
fn read_more(stream: &mut impl Read, received: &mut Vec<u8>) -> Result<(), Cause> {
    let start = received.len();
    received.resize(start + READ_BYTES, 0);
    let result = loop {
        match stream.read(&mut received[start..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result,
        }
    };
    received.truncate(start + result.as_ref().copied().unwrap_or(0));
    match result {
        Ok(0) => Err(Cause::Closed),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Cause::Closed),
        Err(error) => Err(match TlsError::from_io(&error) {
            // In TLS 1.3 the server's verdict on our certificate comes with its first data.
            TlsError::Handshake(inner) => Cause::Tls(TlsError::Handshake(inner)),
            _ => Cause::Io(error),
        }),
    }
}

fn startup_options(
    spec: &ConnSpec,
    candidate: &Candidate,
    encrypted: bool,
    end_point: Option<Vec<u8>>,
) -> StartupOptions {
    let mut parameters = vec![
        ("database".to_owned(), spec.dbname.clone()),
        ("application_name".to_owned(), spec.application_name.clone()),
        ("client_encoding".to_owned(), "UTF8".to_owned()),
    ];
    parameters.extend(spec.options.clone().map(|options| ("options".to_owned(), options)));
    parameters.extend(spec.session_settings.iter().cloned());
    StartupOptions {
        user: spec.user.clone(),
        parameters,
        password: spec.password_for(&candidate.host).map(|password| password.reveal().as_bytes().to_vec()),
        channel_binding: spec.channel_binding,
        require_auth: spec.require_auth,
        encrypted,
        end_point,
    }
}

/// `requirepeer`, checked before anything is sent.
fn check_peer(spec: &ConnSpec, candidate: &Candidate, socket: &Socket) -> Result<(), Cause> {
    let (Some(wanted), Endpoint::Unix(_)) = (&spec.require_peer, &candidate.endpoint) else { return Ok(()) };
    #[cfg(target_os = "linux")]
    let found = socket
        .peer_uid()
        .map_err(Cause::Io)
        .map(|uid| OsUser::by_uid(uid).map_or_else(|| format!("user number {uid}"), |user| user.name))?;
    #[cfg(not(target_os = "linux"))]
    let found = {
        let _ = socket;
        String::from("unknown on this system")
    };
    if *wanted == found { Ok(()) } else { Err(Cause::RequirePeer { wanted: wanted.clone(), found }) }
}

/// Negotiates TLS as far as required and possible.
fn encrypt(
    spec: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
    socket: &mut Socket,
    deadline: Deadline,
    encrypted: &mut bool,
) -> Result<Option<Box<ClientConnection>>, Cause> {
    let (Some(tls), Encryption::IfOffered | Encryption::Demanded) = (tls, encryption) else {
        return Ok(None);
    };
    let mut timed = Timed { socket, deadline };
    let mut request = Vec::new();
    startup::ssl_request(&mut request);
    timed.write_all(&request).map_err(Cause::Io)?;
    // Exactly one byte: bytes that an attacker put behind it then become part of the TLS handshake and break it.
    let mut answer = [0];
    timed.read_exact(&mut answer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Cause::Closed,
        _ => Cause::Io(error),
    })?;
    match answer[0] {
        b'S' => {}
        b'N' if encryption == Encryption::IfOffered => return Ok(None),
        b'N' => return Err(Cause::TlsRefused(spec.sslmode.name())),
        b'E' => {
            // A server that cannot start a session sends an error message.
            let mut text = vec![b'E'];
            let _ = timed.take(1000).read_to_end(&mut text);
            let mut startup = Startup::new(StartupOptions::default(), &mut Vec::new());
            return Err(startup
                .receive(&text, &mut Vec::new())
                .map_or_else(Cause::Startup, |_| Cause::Closed));
        }
        tag => {
            return Err(Cause::Startup(StartupError::Protocol(backend::ProtocolError::Unexpected { tag })));
        }
    }
    *encrypted = true;
    let mut session = tls.begin(&candidate.name()).map_err(Cause::Tls)?;
    while session.is_handshaking() {
        session.complete_io(&mut timed).map_err(|error| Cause::Tls(TlsError::from_io(&error)))?;
    }
    Ok(Some(Box::new(session)))
}

/// Bytes in clear over a socket, through TLS if there is one.
struct Stream<'a, S> {
    socket: S,
    tls: Option<&'a mut ClientConnection>,
}

impl<S: Read + Write> Read for Stream<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => match rustls::Stream::new(*tls, &mut self.socket).read(buffer) {
                // A server that was killed ends the connection without the alert of TLS. The protocol above knows where a reply ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
            None => self.socket.read(buffer),
        }
    }
}

impl<S: Read + Write> Write for Stream<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(*tls, &mut self.socket).write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(*tls, &mut self.socket).flush(),
            None => Ok(()),
        }
    }
}

impl HotConnection {
    fn parts(&self) -> &HotParts {
        self.parts.as_ref().expect("the parts leave only with the connection")
    }

    fn stream(&mut self) -> Stream<'_, Timed<'_>> {
        let parts = self.parts.as_mut().expect("the parts leave only with the connection");
        let socket = Timed { socket: &mut parts.socket, deadline: self.deadline };
        Stream { socket, tls: parts.tls.as_deref_mut() }
    }

    /// The time limit for queries before the work begins.
    pub(crate) fn set_deadline(&mut self, limit: Duration) {
        self.deadline = Some(Instant::now() + limit);
    }

    /// Settings that the server reports, such as `server_version` and `in_hot_standby`.
    pub fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parts().parameters
    }

    /// The authentication method, and whether it was bound to the TLS channel.
    pub fn authentication(&self) -> (AuthMethod, bool) {
        (self.method, self.channel_bound)
    }

    /// How the bytes travel.
    pub fn link(&self) -> &Link {
        &self.parts().link
    }

    /// The host that answered.
    pub fn host(&self) -> &HostSpec {
        &self.candidate.host
    }

    /// Its place in [`ConnSpec::hosts`], for [`ConnSpec::with_only_host`].
    pub fn host_index(&self) -> usize {
        self.candidate.index
    }

    /// The socket, to be registered with a poller.
    pub fn socket(&self) -> &Socket {
        &self.parts().socket
    }

    /// Warnings that the server sent while connecting.
    pub fn notices(&self) -> &[ServerError] {
        &self.notices
    }

    /// A handle that cancels a running query of this session.
    pub fn cancel_token(&self) -> CancelToken {
        self.parts().cancel.clone()
    }

    /// Cancels the running query, over a separate connection.
    pub fn cancel(&self) -> io::Result<()> {
        self.parts().cancel.cancel()
    }

    /// The parts, for a worker of its own.
    pub fn into_parts(mut self) -> HotParts {
        self.parts.take().expect("the parts leave only with the connection")
    }
}

impl Read for HotConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received =
            self.parts.as_mut().map(|parts| &mut parts.received).filter(|received| !received.is_empty());
        if let Some(received) = received {
            let count = received.len().min(buffer.len());
            buffer[..count].copy_from_slice(&received[..count]);
            received.drain(..count);
            return Ok(count);
        }
        self.stream().read(buffer)
    }
}

impl Write for HotConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream().flush()
    }
}

/// Cancels a running query, over the same kind of link.
#[derive(Clone)]
pub struct CancelToken {
    endpoint: Endpoint,
    host: String,
    tls: Option<Tls>,
    process_id: u32,
    secret_key: Vec<u8>,
    timeout: Duration,
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

impl CancelToken {
    /// The same, with another time limit for the request.
    #[must_use]
    pub fn within(self, timeout: Duration) -> CancelToken {
        CancelToken { timeout, ..self }
    }

    /// The process of the session, as the server named it; behind a pooler it is the pooler's number.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Sends the request and waits until the server has taken it. The server does not report whether a query was still running.
    pub fn cancel(&self) -> io::Result<()> {
        let deadline = Some(Instant::now() + self.timeout);
        let mut socket = Socket::open(&self.endpoint, &Keepalives::default(), deadline)?;
        let mut timed = Timed { socket: &mut socket, deadline };
        let mut request = Vec::new();
        let mut session = None;
        if let Some(tls) = &self.tls {
            startup::ssl_request(&mut request);
            timed.write_all(&request)?;
            request.clear();
            let mut answer = [0];
            timed.read_exact(&mut answer)?;
            if answer != *b"S" {
                return Err(io::Error::other("the server refuses TLS for the cancel request"));
            }
            session = Some(tls.begin(&self.host).map_err(io::Error::other)?);
        }
        frontend::cancel_request(&mut request, self.process_id, &self.secret_key);
        let mut stream = Stream { socket: timed, tls: session.as_mut() };
        stream.write_all(&request)?;
        stream.flush()?;
        // The server closes the connection when it has sent the signal.
        let mut rest = [0; 64];
        match stream.read(&mut rest) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            _ => Ok(()),
        }
    }
}
