//! Connections for everything except the hot path: DDL, catalogs, sampling queries. They use `tokio-postgres`.
//!
//! Hosts, addresses, TLS, session attributes and errors are the same as in [`crate::hot`]; the differences are described here. The library does not check
//! `require_auth` and `requirepeer`, so if one of them is set, a hot connection checks it first. `connect_timeout` is the limit
//! of a whole attempt, including the first queries.
//!
//! The socket is opened here, and the library is configured as if every server wanted TLS at once: so it reads from our stream, over TCP and
//! over Unix sockets, with or without TLS. That stream limits what the server may send ([`limit`]), and how long it may send nothing ([`silence`]).

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use wire::error::{ServerError, SqlState, shorten};
use wire::startup::{AuthMethods, ChannelBindingMode, StartupError};

use crate::attempt::{self, Candidate, Cause, ConnectError, Encryption, Failure, Plane, Role};
use crate::conninfo::{ConnSpec, HostSpec, SessionAttrs};
use crate::hot;
use crate::settings::{self, PoolerRefusal, Settings, Started, Way};
use crate::socket::Socket;
use crate::tls::{self, Link, Tls, TlsError};

pub(crate) mod hindrance;
pub mod limit;
pub mod silence;

use limit::Limited;
use silence::{Patient, Silence};

/// A session of the control plane; it is a [`postgres::Client`] that knows where it is connected.
///
/// Behind a pool that shares server processes ([`connect_shared`]) it is a series of transactions instead of a session: each use begins one, with the
/// settings in it, and ends the previous one. So no state remains after a use, and [`Control::release`] ends the last one.
pub struct Control {
    /// `None` only while [`Control::into_client`] consumes it.
    client: Option<postgres::Client>,
    shared: Option<Shared>,
    candidate: Candidate,
    link: Link,
    silence: Arc<Silence>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("host", &self.candidate.host)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// What is needed where server processes are shared.
struct Shared {
    /// Begins a transaction with the settings.
    begin: String,
    /// One is under way.
    is_open: bool,
}

/// Opens a session by the rules of libpq: hosts, TLS, authentication, `target_session_attrs`, `connect_timeout`. A pooler that gives it a
/// server process for one transaction only is refused.
pub fn connect(spec: &ConnSpec) -> Result<Control, ConnectError> {
    attempt::connect(spec, &ControlPlane { takes_shared: false })
}

/// The same for work that needs no session: it also works through such a pooler, see [`Control`].
pub fn connect_shared(spec: &ConnSpec) -> Result<Control, ConnectError> {
    attempt::connect(spec, &ControlPlane { takes_shared: true })
}

/// Opens the administration console of a pooler. It knows only its own commands, by the simple protocol: no settings are sent, and nothing is read.
pub fn console(spec: &ConnSpec) -> Result<Control, ConnectError> {
    let mut spec = settings::without_any(spec);
    // A console has no role that could be read.
    spec.target_session_attrs = SessionAttrs::Any;
    attempt::connect(&spec, &ConsolePlane)
}

impl Control {
    /// The host that answered.
    pub fn host(&self) -> &HostSpec {
        &self.candidate.host
    }

    /// Its place in [`ConnSpec::hosts`], for [`ConnSpec::with_only_host`].
    pub fn host_index(&self) -> usize {
        self.candidate.index
    }

    /// How the bytes travel.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// `server_version_num`: 180004 for 18.4.
    pub fn server_version_num(&mut self) -> Result<u32, postgres::Error> {
        let row =
            self.query_one("select pg_catalog.current_setting('server_version_num')::pg_catalog.int4", &[])?;
        Ok(u32::try_from(row.get::<_, i32>(0)).unwrap_or(0))
    }

    /// The library's client alone.
    pub fn into_client(mut self) -> postgres::Client {
        self.client.take().expect(GONE)
    }

    fn client(&mut self) -> &mut postgres::Client {
        self.client.as_mut().expect(GONE)
    }

    /// From now on a query fails, and its session ends, if the server sends nothing for this time. It is for short queries: without it
    /// a silent server is only given up if it answers no other session either.
    pub fn set_patience(&mut self, patience: Duration) {
        self.silence.set_patience(patience);
    }

    /// Whether another client may use its server process between two transactions.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Commits the transaction of the last use, if uses are transactions.
    pub fn release(&mut self) -> Result<(), postgres::Error> {
        let was_open = self.shared.as_mut().is_some_and(|shared| std::mem::take(&mut shared.is_open));
        if was_open { self.client().batch_execute("COMMIT") } else { Ok(()) }
    }

    /// For statements that begin their own transactions, or must not be in one. Settings are omitted if they would stay with a shared server process.
    pub fn outside(&mut self) -> Result<&mut postgres::Client, postgres::Error> {
        self.release()?;
        Ok(self.client())
    }

    /// Begins the transaction of the next use.
    fn begin(&mut self) -> Result<(), postgres::Error> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let end = if std::mem::replace(&mut shared.is_open, true) { "COMMIT; " } else { "" };
        let begin = format!("{end}{}", shared.begin);
        self.client().batch_execute(&begin)
    }
}

const GONE: &str = "the client leaves only with the session";

impl Drop for Control {
    fn drop(&mut self) {
        // A pooler discards a server process if its client disconnects during a transaction.
        if self.client.is_some() {
            let _ = self.release();
        }
    }
}

impl Deref for Control {
    type Target = postgres::Client;

    fn deref(&self) -> &postgres::Client {
        self.client.as_ref().expect(GONE)
    }
}

impl DerefMut for Control {
    fn deref_mut(&mut self) -> &mut postgres::Client {
        // If that fails, the use fails with the same message.
        let _ = self.begin();
        self.client()
    }
}

/// An error of the library as the server's own error, when it is one.
pub fn server_error(error: &postgres::Error) -> Option<ServerError> {
    let db = error.as_db_error()?;
    let code: [u8; 5] = db.code().code().as_bytes().try_into().ok()?;
    Some(ServerError {
        severity: db
            .parsed_severity()
            .map_or_else(|| db.severity().to_owned(), |severity| severity.to_string()),
        sqlstate: SqlState(code),
        message: shorten(db.message()).into_owned(),
        detail: db.detail().map(|text| shorten(text).into_owned()),
        hint: db.hint().map(|text| shorten(text).into_owned()),
        position: match db.position() {
            Some(postgres::error::ErrorPosition::Original(position)) => Some(*position),
            _ => None,
        },
    })
}

struct ControlPlane {
    takes_shared: bool,
}

impl ControlPlane {
    /// One attempt, with the settings in the startup packet.
    fn open_bare(
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<Control, Failure> {
        if spec.require_auth != AuthMethods::ALL || spec.require_peer.is_some() {
            hot::probe(spec, candidate, encryption, tls)?;
        }
        let config = config(spec, candidate);
        let report = Report::default();
        let connector =
            Connector { tls: tls.cloned(), encryption, host: candidate.name(), report: Arc::clone(&report) };
        let silence = Arc::new(Silence::new(candidate.host.to_string()));
        let limit = spec.connect_limit();
        let began = Instant::now();
        let deadline = began + limit;
        silence.begin(deadline, limit);
        let connector = Limits { connector, silence: Arc::clone(&silence) };
        let result = postgres::Client::open(&config, connector, || {
            let socket = Socket::open(&candidate.endpoint, &spec.keepalives, Some(deadline))?;
            Ok(Patient::new(silence::stream(socket)?, Arc::clone(&silence)))
        });
        let reported = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match result {
            Ok(client) => {
                let link = reported.link.unwrap_or(Link::Plain);
                let candidate = candidate.clone();
                Ok(Control { client: Some(client), shared: None, candidate, link, silence })
            }
            Err(error) => {
                let cause = match error {
                    postgres::OpenError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                        Cause::unanswered(began.elapsed(), limit)
                    }
                    postgres::OpenError::Io(error) => Cause::Connect(error),
                    postgres::OpenError::Startup(error) => match cause(spec, &error) {
                        // No query was sent yet: the connect is late.
                        Cause::Silent(_) => Cause::unanswered(began.elapsed(), limit),
                        Cause::Tls(TlsError::Broken { kind: io::ErrorKind::TimedOut, .. }) => {
                            Cause::unanswered(began.elapsed(), limit)
                        }
                        cause => cause,
                    },
                };
                Err(Failure { cause, encrypted: reported.begun })
            }
        }
    }

    /// Applies the settings of a session whose startup packet did not contain them.
    fn settle(&self, mut control: Control, wanted: &Settings, way: Way) -> Result<Control, Cause> {
        if way == Way::Transaction {
            if !self.takes_shared {
                return Err(Cause::Pooler(PoolerRefusal::Session));
            }
            control.shared =
                Some(Shared { begin: format!("BEGIN; {}", wanted.statement(true)), is_open: false });
            // Reported once, here: later uses cannot detect it.
            control.begin().and_then(|()| control.release()).map_err(|error| statement_failed(&error))?;
        } else if !wanted.is_empty() {
            control
                .client()
                .batch_execute(&wanted.statement(false))
                .map_err(|error| statement_failed(&error))?;
        }
        Ok(control)
    }
}

/// The error for a failed statement of a new session.
fn statement_failed(error: &postgres::Error) -> Cause {
    let source = error.source();
    if let Some(error) = server_error(error) {
        return Cause::Requested(Box::new(error));
    }
    if error.is_closed() {
        return Cause::Closed;
    }
    match source.and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(error) => Cause::of_stream(error),
        None => Cause::Io(io::Error::other(words_of(error))),
    }
}

/// The library's message with that of its cause.
fn words_of(error: &postgres::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Sessions without settings.
struct ConsolePlane;

impl Plane for ConsolePlane {
    type Session = Control;

    fn open(
        &self,
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<Control, Failure> {
        ControlPlane::open_bare(spec, candidate, encryption, tls)
    }

    fn role(&self, _: &ConnSpec, _: &mut Control) -> Result<Role, Cause> {
        Ok(Role { in_recovery: false, read_only: false })
    }

    fn begin_work(&self, session: &mut Control) {
        session.silence.end();
    }
}

impl Plane for ControlPlane {
    type Session = Control;

    fn open(
        &self,
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<Control, Failure> {
        let control = self.open_settled(spec, candidate, encryption, tls)?;
        // Through a pooler another session may wait for ours to end, so its silence proves nothing.
        if settings::known(&settings::marked(spec), candidate).is_none_or(|way| way == Way::Startup) {
            let (spec, candidate, tls) = (settings::without(spec), candidate.clone(), tls.cloned());
            control.silence.ask_elsewhere(Box::new(move |limit, pid| {
                hot::answers(&spec, &candidate, encryption, tls.as_ref(), limit, pid)
            }));
        }
        Ok(control)
    }

    fn role(&self, spec: &ConnSpec, session: &mut Control) -> Result<Role, Cause> {
        session.silence.begin(Instant::now() + spec.connect_limit(), spec.connect_limit());
        let row = session.query_one(Role::QUERY, &[]).map_err(|error| statement_failed(&error))?;
        session.release().map_err(|error| statement_failed(&error))?;
        Ok(Role { in_recovery: row.get(0), read_only: row.get(1) })
    }

    fn begin_work(&self, session: &mut Control) {
        session.silence.end();
    }
}

impl ControlPlane {
    /// A session with its settings.
    fn open_settled(
        &self,
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<Control, Failure> {
        let spec = &settings::marked(spec);
        let bare = |spec: &ConnSpec| ControlPlane::open_bare(spec, candidate, encryption, tls);
        let plain = |cause| Failure { cause, encrypted: false };
        let opened = settings::open(
            spec,
            candidate,
            bare,
            |wanted, session| {
                wanted.are_in_effect_of(session.client()).map_err(|error| statement_failed(&error))
            },
            |without| hot::learn(without, candidate, encryption, tls),
            !self.takes_shared,
        )?;
        let (way, wanted) = match opened {
            Started::Session(session) => return Ok(session),
            Started::By(way, wanted) => (way, wanted),
        };
        self.settle(bare(&settings::without_any(spec))?, &wanted, way).map_err(plain)
    }
}

/// One attempt in the library's terms.
fn config(spec: &ConnSpec, candidate: &Candidate) -> postgres::Config {
    let mut config = postgres::Config::new();
    config
        .user(&spec.user)
        .dbname(&spec.dbname)
        .application_name(&spec.application_name)
        // The connector does what the library would do: it requests TLS if needed, and reads the answer.
        .ssl_mode(postgres::config::SslMode::Require)
        .ssl_negotiation(postgres::config::SslNegotiation::Direct);
    if let Some(password) = spec.password_for(&candidate.host) {
        config.password(password.reveal());
    }
    config.channel_binding(match spec.channel_binding {
        ChannelBindingMode::Disable => postgres::config::ChannelBinding::Disable,
        ChannelBindingMode::Prefer => postgres::config::ChannelBinding::Prefer,
        ChannelBindingMode::Require => postgres::config::ChannelBinding::Require,
    });
    let mut options: Vec<String> = spec.options.iter().cloned().collect();
    // The library sends no other startup parameters; the same settings go through as options.
    options.extend(
        spec.session_settings
            .iter()
            .map(|(name, value)| format!("-c {name}={}", value.replace('\\', "\\\\").replace(' ', "\\ "))),
    );
    if !options.is_empty() {
        config.options(options.join(" "));
    }
    config
}

/// What the library's error means.
fn cause(spec: &ConnSpec, error: &postgres::Error) -> Cause {
    if let Some(error) = server_error(error) {
        return Cause::Startup(StartupError::Server(error));
    }
    if error.is_closed() {
        return Cause::Closed;
    }
    let source = error.source();
    if let Some(error) = source.and_then(|source| source.downcast_ref::<OpenError>()) {
        return match error {
            OpenError::Tls(error) => Cause::Tls(error.clone()),
            OpenError::Refused => Cause::TlsRefused(spec.sslmode.name()),
            OpenError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Cause::Closed,
            OpenError::Io(error) => Cause::of_stream(error),
        };
    }
    let words = source.map(ToString::to_string).unwrap_or_default();
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    // The library's error kinds are private; their messages are not (`error/mod.rs`).
    match (error.to_string().as_str(), io) {
        ("error connecting to server", Some(error)) => Cause::Connect(attempt::copy_of(error)),
        ("error connecting to server", None) => Cause::Connect(io::Error::other(words)),
        ("invalid configuration", _) if words.contains("password missing") => {
            // The library does not report which method it was.
            Cause::Startup(StartupError::PasswordMissing { method: "" })
        }
        ("authentication error", _) if words.contains("channel binding") => {
            Cause::Startup(StartupError::ChannelBinding("the server did not use it"))
        }
        ("authentication error", _) if words.contains("unsupported authentication") => {
            Cause::Startup(StartupError::Unsupported("an unknown kind of".to_owned()))
        }
        ("authentication error", _) => Cause::Startup(StartupError::Scram(words)),
        (_, Some(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Cause::Closed,
        (_, Some(error)) => match TlsError::from_io(error) {
            TlsError::Handshake(inner) => Cause::Tls(TlsError::Handshake(inner)),
            _ => Cause::of_stream(error),
        },
        (kind, None) => Cause::Io(io::Error::other(format!("{kind} {words}").trim().to_owned())),
    }
}

/// The connector's observations, which the library does not return.
#[derive(Clone, Debug, Default)]
struct Reported {
    begun: bool,
    link: Option<Link>,
}

type Report = Arc<Mutex<Reported>>;

/// Why a connection could not be prepared for the library.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server refuses TLS")]
    Refused,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Our TLS and our limits as types of the library.
#[derive(Clone, Debug)]
struct Connector {
    tls: Option<Tls>,
    encryption: Encryption,
    host: String,
    report: Report,
}

impl Connector {
    fn report(&self, change: impl FnOnce(&mut Reported)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The connector, and the limits of the stream.
#[derive(Debug)]
struct Limits {
    connector: Connector,
    silence: Arc<Silence>,
}

impl<S> TlsConnect<S> for Limits
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Limited<Opened<S>>;
    type Error = OpenError;
    type Future = Pin<Box<dyn Future<Output = Result<Limited<Opened<S>>, OpenError>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.open(stream).await?;
            Ok(Limited::new(stream, self.silence))
        })
    }
}

impl Connector {
    async fn open<S: AsyncRead + AsyncWrite + Unpin>(self, mut stream: S) -> Result<Opened<S>, OpenError> {
        let (Some(tls), Encryption::IfOffered | Encryption::Demanded) = (&self.tls, self.encryption) else {
            return Ok(Opened::Plain(stream));
        };
        let mut request = Vec::new();
        wire::startup::ssl_request(&mut request);
        stream.write_all(&request).await?;
        // Exactly one byte: bytes that an attacker put behind it then become part of the TLS handshake and break it.
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        if answer != *b"S" {
            return match self.encryption {
                Encryption::Demanded => Err(OpenError::Refused),
                _ => Ok(Opened::Plain(stream)),
            };
        }
        self.report(|reported| reported.begun = true);
        let connector = tokio_rustls::TlsConnector::from(tls.config());
        let stream = connector
            .connect(tls::server_name(&self.host), stream)
            .await
            .map_err(|error| TlsError::from_io(&error))?;
        let link = tls.link(stream.get_ref().1);
        self.report(|reported| reported.link = Some(link));
        Ok(Opened::Encrypted(Box::new(stream)))
    }
}

/// A stream to the server; one with TLS has channel binding data.
#[derive(Debug)]
enum Opened<S> {
    Plain(S),
    Encrypted(Box<tokio_rustls::client::TlsStream<S>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Opened<S> {
    fn channel_binding(&self) -> ChannelBinding {
        match self {
            Opened::Plain(_) => ChannelBinding::none(),
            Opened::Encrypted(stream) => tls::end_point_of(stream.get_ref().1)
                .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Opened<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Opened::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            // As in `hot`: the end of the connection, with or without the alert of TLS.
            Opened::Encrypted(stream) => match Pin::new(stream.as_mut()).poll_read(cx, buf) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Opened<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Opened::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Opened::Encrypted(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Opened::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Opened::Encrypted(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Opened::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Opened::Encrypted(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
