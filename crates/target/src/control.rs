//! Connections for everything but the hot path: DDL, catalogs, sampling queries. The `postgres` crate does the talking.
//!
//! Hosts, addresses, TLS, session attributes and errors are the same as in [`crate::hot`]; what differs is said here. The library does not check
//! `require_auth` and `requirepeer`, so when one of them is set a hot connection is opened first and checks. And its `connect_timeout`
//! ends with the TCP handshake, so the whole attempt is put under a limit of its own.
//!
//! Over TCP the library is told that every server wants TLS at once: so the stream that it reads from is ours, with or without TLS, and what the
//! server may send is limited there ([`limit`]). It offers no such place on Unix sockets, whose servers are this machine's.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use wire::error::{ServerError, SqlState};
use wire::startup::{AuthMethods, ChannelBindingMode, StartupError};

use crate::connect::{self, Candidate, Cause, ConnectError, Encryption, Endpoint, Failure, Plane, Role};
use crate::conninfo::{ConnSpec, HostSpec};
use crate::hot;
use crate::settings::{self, PoolerRefusal, Settings, Way};
use crate::tls::{self, Link, Tls, TlsError};

pub mod limit;

use limit::Limited;

/// A session of the control plane; it is a [`postgres::Client`] that knows where it is connected.
///
/// Behind a pool that shares server processes ([`connect_shared`]) it is no session but a row of transactions: each use begins one, with the
/// settings in it, and ends the one before. So nothing outlasts a use, and the last one is ended by [`Control::release`].
pub struct Control {
    /// `None` only while [`Control::into_client`] consumes it.
    client: Option<postgres::Client>,
    shared: Option<Shared>,
    candidate: Candidate,
    link: Link,
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
    connect::connect(spec, &ControlPlane { takes_shared: false })
}

/// The same for work that needs no session: through such a pooler as well, see [`Control`].
pub fn connect_shared(spec: &ConnSpec) -> Result<Control, ConnectError> {
    connect::connect(spec, &ControlPlane { takes_shared: true })
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

    /// Whether the server process behind it is another client's between two transactions.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Ends the transaction of the last use, where uses are transactions: what it did is kept, and nothing is held any more.
    pub fn release(&mut self) -> Result<(), postgres::Error> {
        let was_open = self.shared.as_mut().is_some_and(|shared| std::mem::take(&mut shared.is_open));
        if was_open { self.client().batch_execute("COMMIT") } else { Ok(()) }
    }

    /// For statements that begin their own transactions, or may not stand in one. The settings are not made where they would stay with a shared
    /// server process.
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
        // A pooler throws the server process away whose client leaves in the middle of a transaction.
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
        // If that fails, so does the use, in the same words.
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
        message: db.message().to_owned(),
        detail: db.detail().map(str::to_owned),
        hint: db.hint().map(str::to_owned),
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
        let config = config(spec, candidate).map_err(|cause| Failure { cause, encrypted: false })?;
        let report = Report::default();
        let connector =
            Connector { tls: tls.cloned(), encryption, host: candidate.name(), report: Arc::clone(&report) };
        let result = match spec.connect_timeout {
            None => config.connect(connector),
            Some(timeout) => match connect_within(config, connector, timeout) {
                Some(result) => result,
                None => return Err(Failure { cause: Cause::Timeout(timeout.as_secs()), encrypted: false }),
            },
        };
        let reported = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match result {
            Ok(client) => {
                let link = reported.link.unwrap_or(Link::Plain);
                Ok(Control { client: Some(client), shared: None, candidate: candidate.clone(), link })
            }
            Err(error) => Err(Failure { cause: cause(spec, &error), encrypted: reported.begun }),
        }
    }

    /// Makes the settings of a session whose startup packet did not carry them.
    fn settle(&self, mut control: Control, wanted: &Settings, way: Way) -> Result<Control, Cause> {
        if way == Way::Transaction {
            if !self.takes_shared {
                return Err(Cause::Pooler(PoolerRefusal::Session));
            }
            control.shared =
                Some(Shared { begin: format!("BEGIN; {}", wanted.statement(true)), is_open: false });
            // Once aloud: a use cannot tell.
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

/// What a failed statement of a new session means.
fn statement_failed(error: &postgres::Error) -> Cause {
    match server_error(error) {
        Some(error) => Cause::Startup(StartupError::Server(error)),
        None => Cause::Io(io::Error::other(error.to_string())),
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
        let spec = &settings::marked(spec);
        let bare = |spec: &ConnSpec| ControlPlane::open_bare(spec, candidate, encryption, tls);
        let plain = |cause| Failure { cause, encrypted: false };
        let known = settings::known(spec, candidate);
        if matches!(known, None | Some(Way::Startup)) {
            match (bare(spec), known) {
                (Ok(session), Some(_)) => return Ok(session),
                (Ok(mut session), None) => {
                    // Options that are no settings were taken by a server: a pooler refuses them all.
                    let wanted = Settings::of(spec).unwrap_or_default();
                    let in_effect = wanted.are_in_effect_of(session.client());
                    if in_effect.map_err(|error| plain(statement_failed(&error)))? {
                        if !wanted.is_empty() {
                            settings::remember(spec, candidate, Way::Startup);
                        }
                        return Ok(session);
                    }
                }
                (Err(failure), _) if settings::are_refused(&failure.cause) => {}
                (Err(failure), _) => return Err(failure),
            }
        }
        let without = settings::without(spec);
        let way = match known {
            Some(way) if way != Way::Startup => way,
            _ => settings::learn(|| hot::open_bare(&without, candidate, encryption, tls))?,
        };
        settings::remember(spec, candidate, way);
        let wanted = Settings::of(spec).map_err(plain)?;
        self.settle(bare(&settings::without_any(spec))?, &wanted, way).map_err(plain)
    }

    fn role(&self, _spec: &ConnSpec, session: &mut Control) -> Result<Role, Cause> {
        let row = session.query_one(Role::QUERY, &[]).map_err(|error| match server_error(&error) {
            Some(error) => Cause::Startup(StartupError::Server(error)),
            None => Cause::Io(io::Error::other(error)),
        })?;
        session.release().map_err(|error| statement_failed(&error))?;
        Ok(Role { in_recovery: row.get(0), read_only: row.get(1) })
    }
}

/// One attempt in the library's terms.
fn config(spec: &ConnSpec, candidate: &Candidate) -> Result<postgres::Config, Cause> {
    let mut config = postgres::Config::new();
    config
        .user(&spec.user)
        .dbname(&spec.dbname)
        .application_name(&spec.application_name)
        .port(candidate.host.port);
    match &candidate.endpoint {
        Endpoint::Unix(path) => {
            let dir = path.parent().unwrap_or(path);
            if dir.as_os_str().as_encoded_bytes().starts_with(b"@") {
                return Err(Cause::Unsupported(
                    "abstract Unix sockets are not supported for control queries".to_owned(),
                ));
            }
            config.host_path(dir);
        }
        Endpoint::Tcp(address) => {
            config.host(&candidate.name()).hostaddr(address.ip());
        }
    }
    if let Some(password) = spec.password_for(&candidate.host) {
        config.password(password.reveal());
    }
    match &candidate.endpoint {
        Endpoint::Unix(_) => config.ssl_mode(postgres::config::SslMode::Disable),
        // The connector does what the library would: it asks for TLS if it is wanted, and takes the answer.
        Endpoint::Tcp(_) => config
            .ssl_mode(postgres::config::SslMode::Require)
            .ssl_negotiation(postgres::config::SslNegotiation::Direct),
    };
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
        config.options(&options.join(" "));
    }
    let keepalives = &spec.keepalives;
    config.keepalives(keepalives.enabled);
    keepalives.idle.map(|idle| config.keepalives_idle(idle));
    keepalives.interval.map(|interval| config.keepalives_interval(interval));
    keepalives.count.map(|count| config.keepalives_retries(count));
    keepalives.user_timeout.map(|timeout| config.tcp_user_timeout(timeout));
    Ok(config)
}

/// Connects in a thread of its own and stops waiting when the time is over. The thread then goes on until the server ends the connection; there is no way to
/// interrupt the library.
fn connect_within(
    config: postgres::Config,
    connector: Connector,
    timeout: Duration,
) -> Option<Result<postgres::Client, postgres::Error>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more after the timeout: the session is then closed by being dropped.
        let _ = sender.send(config.connect(connector));
    });
    receiver.recv_timeout(timeout).ok()
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
            OpenError::Io(error) => Cause::Io(copy_of(error)),
        };
    }
    let words = source.map(ToString::to_string).unwrap_or_default();
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    // The library's kinds are private; their words are not (`error/mod.rs`).
    match (error.to_string().as_str(), io) {
        ("error connecting to server", Some(error)) => Cause::Connect(copy_of(error)),
        ("error connecting to server", None) => Cause::Connect(io::Error::other(words)),
        ("invalid configuration", _) if words.contains("password missing") => {
            Cause::Startup(StartupError::PasswordMissing { method: "password" })
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
            _ => Cause::Io(copy_of(error)),
        },
        (kind, None) => Cause::Io(io::Error::other(format!("{kind} {words}").trim().to_owned())),
    }
}

/// The library owns the error; what counts is its kind and words.
fn copy_of(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

/// What the connector saw; the library hands nothing of it back.
#[derive(Clone, Debug, Default)]
struct Reported {
    begun: bool,
    link: Option<Link>,
}

type Report = Arc<Mutex<Reported>>;

/// Why a connection was not made fit for the library.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server refuses TLS")]
    Refused,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Our TLS and our limits in the library's shape.
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

impl<S> MakeTlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Limited<Opened<S>>;
    type TlsConnect = Connector;
    type Error = OpenError;

    fn make_tls_connect(&mut self, _host: &str) -> Result<Connector, OpenError> {
        Ok(self.clone())
    }
}

impl<S> TlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Limited<Opened<S>>;
    type Error = OpenError;
    type Future = Pin<Box<dyn Future<Output = Result<Limited<Opened<S>>, OpenError>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.open(stream).await.map(Limited::new) })
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
        // Exactly one byte: whatever a stranger may have put behind it then falls into the TLS handshake and breaks it.
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

/// A stream to the server; one with TLS tells its channel binding data.
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
            Opened::Encrypted(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
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
