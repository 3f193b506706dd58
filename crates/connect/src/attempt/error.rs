//! Why there is no connection: what was tried, and what to do next.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wire::backend::ProtocolError;
use wire::error::ServerError;
use wire::startup::StartupError;

use super::Endpoint;
use super::cluster::of_our_cluster;
use crate::conninfo::{ConnSpec, Host, HostSpec, SessionAttrs, SslMode};
use crate::control::silence::{Silent, has_given_up};
use crate::os_user::OsUser;
use crate::settings::PoolerRefusal;
use crate::tls::TlsError;

/// Classes of SQLSTATE for a request that every server would refuse: not supported, wrong data, not authorized, wrong syntax or access.
const WRONG_REQUESTS: [&str; 4] = ["0A", "22", "28", "42"];

/// What stopped one attempt.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The host name has no address.
    #[error("the host name could not be resolved: {0}")]
    Resolve(io::Error),
    /// No server answers there.
    #[error("{}", lower(.0))]
    Connect(io::Error),
    /// `connect_timeout` is over.
    #[error("timeout expired after {0} s")]
    Timeout(u64),
    /// The user wanted to end before `connect_timeout` was over.
    #[error("no reply for {0} s; pgfathom gave up because the end was requested")]
    GivenUp(u64),
    /// The server closed the connection without a message.
    #[error("the server closed the connection unexpectedly")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {}", lower(.0))]
    Io(io::Error),
    /// The server has no TLS, and the mode requires it.
    #[error("the server does not support TLS, but sslmode={0} demands it")]
    TlsRefused(&'static str),
    /// TLS could not be set up or negotiated.
    #[error(transparent)]
    Tls(TlsError),
    /// The server, or our requirements, stopped the handshake.
    #[error(transparent)]
    Startup(StartupError),
    /// A session without the requested attributes.
    #[error("{found}, and target_session_attrs={} requires another", wanted.name())]
    SessionAttrs {
        /// The demand.
        wanted: SessionAttrs,
        /// What there is.
        found: &'static str,
    },
    /// The socket belongs to another user.
    #[error("requirepeer specifies \"{wanted}\", but the server's user is \"{found}\"")]
    RequirePeer {
        /// The demand.
        wanted: String,
        /// Who it is.
        found: String,
    },
    /// A connection pooler does not support what is needed.
    #[error(transparent)]
    Pooler(PoolerRefusal),
    /// The server refused one of the first queries of a session.
    #[error("the server refused the first query: {0}")]
    Requested(Box<ServerError>),
    /// The connection was open, but the server stopped responding.
    #[error(transparent)]
    Silent(Silent),
    /// The specification cannot be carried out.
    #[error("{0}")]
    Unsupported(String),
}

/// Operating system errors without `(os error 111)` and with a lower-case first letter, for use in a sentence.
fn lower(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The library owns the error; what counts is its kind and words.
pub(crate) fn copy_of(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

impl Cause {
    /// A connect that was not answered in `waited`: only a request to end makes this less than the limit.
    pub(crate) fn unanswered(waited: Duration, limit: Duration) -> Cause {
        match waited < limit && has_given_up() {
            true => Cause::GivenUp(waited.as_secs()),
            false => Cause::Timeout(limit.as_secs()),
        }
    }

    /// What it means that our stream, or the one below it, has failed.
    pub(crate) fn of_stream(error: &io::Error) -> Cause {
        let inner = error.get_ref();
        if let Some(protocol) = inner.and_then(|inner| inner.downcast_ref::<ProtocolError>()) {
            return Cause::Startup(StartupError::Protocol(*protocol));
        }
        match inner.and_then(|inner| inner.downcast_ref::<Silent>()) {
            Some(silent) => Cause::Silent(silent.clone()),
            None => Cause::Io(copy_of(error)),
        }
    }

    /// Whether the other hosts need not be tried.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Cause::Resolve(_)
            | Cause::Connect(_)
            | Cause::Timeout(_)
            | Cause::Closed
            | Cause::Io(_)
            | Cause::Silent(_)
            | Cause::SessionAttrs { .. } => false,
            // The session stood. What it was refused is about this server (it ends, or is no part of its cluster now), unless the request itself is wrong.
            Cause::Requested(error) => {
                WRONG_REQUESTS.iter().any(|class| error.sqlstate.as_str().starts_with(class))
            }
            Cause::Startup(StartupError::Server(error)) => error.sqlstate.as_str() != "57P03",
            Cause::GivenUp(_)
            | Cause::TlsRefused(_)
            | Cause::Tls(_)
            | Cause::Startup(_)
            | Cause::RequirePeer { .. }
            | Cause::Pooler(_)
            | Cause::Unsupported(_) => true,
        }
    }

    /// Whether another attempt at the same address with or without TLS may succeed.
    pub(super) fn may_depend_on_encryption(&self) -> bool {
        matches!(self, Cause::Startup(StartupError::Server(_)) | Cause::Tls(_))
    }

    /// The server's own error, if it sent one.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Cause::Requested(error) => Some(error),
            Cause::Startup(StartupError::Server(error)) => Some(error),
            _ => None,
        }
    }
}

/// One attempt at one address.
#[derive(Debug)]
pub struct Attempt {
    /// The host as it was requested.
    pub host: HostSpec,
    /// The address, when it differs from the host.
    pub address: Option<String>,
    /// What stopped it.
    pub cause: Cause,
}

impl Attempt {
    pub(super) fn new(host: &HostSpec, endpoint: Option<&Endpoint>, cause: Cause) -> Attempt {
        let address = match (endpoint, &host.host) {
            (Some(Endpoint::Tcp(address)), Host::Tcp(name)) if *name != address.ip().to_string() => {
                Some(address.ip().to_string())
            }
            _ => None,
        };
        Attempt { host: HostSpec { password: None, ..host.clone() }, address, cause }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if let Some(address) = &self.address {
            write!(f, " ({address})")?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// No connection. Lists each address that was tried; never contains a password.
#[derive(Debug)]
pub struct ConnectError {
    /// The attempts of the last round, in their order.
    pub attempts: Vec<Attempt>,
    requested: Box<Requested>,
}

/// What was requested, as far as messages and hints need it.
#[derive(Debug)]
struct Requested {
    user: String,
    dbname: String,
    sslmode: SslMode,
    password_from: PasswordFrom,
    cert_named: Option<PathBuf>,
    has_options: bool,
}

/// The source of the refused password.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PasswordFrom {
    Nowhere,
    /// There may be one, but not for this host; with the reason.
    Withheld(String),
    User,
    File(PathBuf),
}

impl ConnectError {
    pub(super) fn new(spec: &ConnSpec, attempts: Vec<Attempt>) -> ConnectError {
        let last_host = attempts.last().map(|attempt| attempt.host.clone());
        let in_file = spec.hosts.iter().any(|host| {
            host.password.is_some() && last_host.as_ref().is_some_and(|last| last.host == host.host)
        });
        let password_from = match (&spec.password, &spec.passfile) {
            (Some(_), _) => PasswordFrom::User,
            (None, Some(path)) if in_file => PasswordFrom::File(path.clone()),
            _ => spec.withheld.clone().map_or(PasswordFrom::Nowhere, PasswordFrom::Withheld),
        };
        let requested = Box::new(Requested {
            user: spec.user.clone(),
            dbname: spec.dbname.clone(),
            sslmode: spec.sslmode,
            password_from,
            cert_named: spec.tls.cert.clone(),
            has_options: spec.options.is_some(),
        });
        ConnectError { attempts, requested }
    }

    /// Nothing was tried at all.
    pub(super) fn before_any(spec: &ConnSpec, cause: Cause) -> ConnectError {
        let attempts = vec![Attempt::new(&spec.hosts[0], None, cause)];
        ConnectError::new(spec, attempts)
    }

    /// What stopped the last attempt.
    pub fn cause(&self) -> Option<&Cause> {
        self.attempts.last().map(|attempt| &attempt.cause)
    }

    /// The SQLSTATE of the server's refusal, if one refused.
    pub fn sqlstate(&self) -> Option<&str> {
        self.cause()?.server_error().map(|error| error.sqlstate.as_str())
    }

    /// Whether nothing listens at the address: the host is there, the server is not.
    pub fn is_refused(&self) -> bool {
        let kinds = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        matches!(self.cause(), Some(Cause::Connect(error)) if kinds.contains(&error.kind()))
    }

    /// Whether a server is there and did not let us in: a password is missing, TLS is demanded.
    pub fn is_answered(&self) -> bool {
        let Some(cause) = self.cause() else { return false };
        matches!(
            cause,
            Cause::Startup(_)
                | Cause::Requested(_)
                | Cause::TlsRefused(_)
                | Cause::Tls(_)
                | Cause::RequirePeer { .. }
                | Cause::SessionAttrs { .. }
                | Cause::Pooler(_)
        )
    }

    /// Whether what answers does not speak the protocol.
    pub fn is_no_protocol(&self) -> bool {
        matches!(self.cause(), Some(Cause::Startup(StartupError::Protocol(_) | StartupError::BareText(_))))
    }

    /// Whether a password is missing or was not accepted. Poolers have their own words and codes for it.
    pub fn is_about_password(&self) -> bool {
        const WORDS: [&str; 3] =
            ["SASL authentication failed", "password authentication failed", "auth failed"];
        match self.cause() {
            Some(Cause::Startup(StartupError::PasswordMissing { .. } | StartupError::Scram(_))) => true,
            Some(cause) => cause.server_error().is_some_and(|error| {
                error.sqlstate.as_str() == "28P01" || WORDS.iter().any(|words| error.message.contains(words))
            }),
            None => false,
        }
    }

    /// Whether a server of databases refused, and not a console: it has no such database, or its pg_hba.conf or its roles decide.
    pub fn is_of_server_of_databases(&self) -> bool {
        let Some(error) = self.cause().and_then(Cause::server_error) else { return false };
        match error.sqlstate.as_str() {
            "3D000" => true,
            "28000" => ["pg_hba.conf", "role \""].iter().any(|words| error.message.contains(words)),
            _ => false,
        }
    }

    /// Whether a retry may succeed: the server is restarting, full, or cannot be reached now.
    pub fn is_transient(&self) -> bool {
        match self.cause() {
            Some(Cause::Connect(_) | Cause::Timeout(_) | Cause::Closed | Cause::Io(_) | Cause::Silent(_)) => {
                true
            }
            Some(Cause::SessionAttrs { .. }) => true,
            Some(Cause::Startup(StartupError::BareText(_))) => true,
            Some(Cause::Tls(TlsError::Broken { .. })) => true,
            // 53: insufficient resources; 57P01 to 57P03: shutting down, crashed, starting up; 08: connection.
            _ => self.sqlstate().is_some_and(|code| {
                code.starts_with("53") || code.starts_with("57P0") || code.starts_with("08")
            }),
        }
    }

    /// Whether the last host had its whole time and did not answer.
    pub fn has_timed_out(&self) -> bool {
        matches!(self.cause(), Some(Cause::Timeout(_) | Cause::Silent(_)))
    }

    /// Whether there is a server that takes no session now and may do so later: it is full or starts up, or it is on this host and does not answer.
    pub fn is_in_trouble(&self) -> bool {
        let here = |host: &HostSpec| match (&host.host, host.address) {
            (Host::Unix(_), _) => true,
            (_, Some(address)) => address.is_loopback(),
            (Host::Tcp(name), None) => {
                name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            }
        };
        match self.attempts.last() {
            Some(Attempt { host, cause: Cause::Timeout(_) | Cause::Silent(_), .. }) => here(host),
            _ => self.sqlstate().is_some_and(|code| code.starts_with("53") || code.starts_with("57P0")),
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        let last = self.attempts.last()?;
        match &last.cause {
            Cause::Resolve(_) => Some(format!("check the name {} (-h), or give an address with hostaddr", last.host.host)),
            Cause::Connect(error) => Some(connect_hint(&last.host, error)),
            Cause::Timeout(_) => Some(
                "a firewall may drop the packets, or the address is wrong; connect_timeout (PGCONNECT_TIMEOUT) sets the limit"
                    .to_owned(),
            ),
            Cause::Closed | Cause::Io(_) => Some("see the server's log, and check that PostgreSQL listens there".to_owned()),
            Cause::TlsRefused(_) => Some(
                "switch ssl on in the server's postgresql.conf, or use sslmode=prefer or disable".to_owned(),
            ),
            Cause::Tls(error) => error.hint(),
            Cause::Startup(error) => self.startup_hint(error),
            Cause::SessionAttrs { .. } => Some("list the other hosts too (host=a,b), or omit target_session_attrs".to_owned()),
            Cause::RequirePeer { found, .. } => Some(format!("check who runs the server, or use requirepeer={found}")),
            Cause::Pooler(refusal) => Some(refusal.hint()),
            // A pooler that drops settings of the startup packet gets them as statements afterwards.
            Cause::Requested(error) if is_too_late(error) => Some(BEGINNING_HINT.to_owned()),
            Cause::Requested(error) => error.hint.clone(),
            Cause::Silent(_) if self.is_pooled(last) => Some(POOL_HINT.to_owned()),
            Cause::Silent(_) => Some(
                "the server, or the network in between, does not respond; connect_timeout (PGCONNECT_TIMEOUT) sets the limit"
                    .to_owned(),
            ),
            Cause::GivenUp(_) | Cause::Unsupported(_) => None,
        }
    }

    /// Whether a pooler is known to be in between.
    fn is_pooled(&self, last: &Attempt) -> bool {
        crate::settings::is_pooled(last.host.port, &self.requested.user, &self.requested.dbname)
    }

    fn startup_hint(&self, error: &StartupError) -> Option<String> {
        const GIVE: &str =
            "set PGPASSWORD, or write host:port:database:user:password into ~/.pgpass (chmod 0600)";
        Some(match error {
            StartupError::Server(error) => return self.server_hint(error),
            StartupError::PasswordMissing { .. } => match &self.requested.password_from {
                PasswordFrom::Withheld(why) => withheld_hint(why),
                _ => GIVE.to_owned(),
            },
            StartupError::BareText(_) => "see the server's log: it could not start a process for the connection".to_owned(),
            StartupError::Protocol(_) => "check that PostgreSQL listens there, and check host and port".to_owned(),
            StartupError::Unsupported(_) => {
                "use a role that pg_hba.conf lets in by scram-sha-256, md5, password, cert or trust".to_owned()
            }
            StartupError::MethodRefused { .. } => {
                "change the method in the server's pg_hba.conf, or widen require_auth".to_owned()
            }
            StartupError::ChannelBinding(_) => {
                "it needs TLS, a scram-sha-256 password and a method of that name in pg_hba.conf; else use channel_binding=prefer".to_owned()
            }
            StartupError::Scram(words) if words.contains("iteration count") => {
                "lower the server's scram_iterations to 100000 or less and set the password again".to_owned()
            }
            StartupError::Scram(_) => "another computer may be impersonating the server; check host, port and sslmode".to_owned(),
        })
    }

    /// By SQLSTATE, and by the message if a code has several meanings (`auth.c`, `postinit.c`, `postmaster.c`).
    fn server_hint(&self, error: &ServerError) -> Option<String> {
        let has_text = |words: &str| error.message.contains(words);
        let user = &self.requested.user;
        Some(match error.sqlstate.as_str() {
            _ if is_too_late(error) => BEGINNING_HINT.to_owned(),
            "28P01" => match &self.requested.password_from {
                PasswordFrom::File(path) => {
                    format!("the password came from {}: check its line for {user}", path.display())
                }
                PasswordFrom::Withheld(why) => withheld_hint(why),
                _ => format!(
                    "check the password of role \"{user}\" (PGPASSWORD, ~/.pgpass or the connection string)"
                ),
            },
            "28000" if has_text("no pg_hba.conf entry") => {
                let tls = match (has_text("no encryption") || has_text("SSL off"), self.requested.sslmode) {
                    (true, SslMode::Disable) => "; it may want TLS: try sslmode=require",
                    _ => "",
                };
                format!(
                    "the server's pg_hba.conf needs a line for role \"{user}\", database \"{}\" and this address{tls}",
                    self.requested.dbname
                )
            }
            "28000" if has_text("pg_hba.conf rejects") => {
                format!("a line of the server's pg_hba.conf rejects role \"{user}\"")
            }
            "28000" if has_text("Peer authentication") => peer_hint(user, OsUser::exists(user)),
            "28000" if has_text("client certificate") || has_text("ertificate authentication") => {
                match &self.requested.cert_named {
                    Some(path) if !path.exists() => {
                        format!("sslcert names {}, which does not exist", path.display())
                    }
                    _ => format!("name a certificate for \"{user}\" and its key with sslcert and sslkey"),
                }
            }
            "28000" if has_text("does not exist") => {
                format!("name another role with -U, or create it: createuser {user}")
            }
            "28000" => "see the server's log for the reason".to_owned(),
            "3D000" => {
                format!(
                    "name another one with -d, or create it on that server: CREATE DATABASE {}; psql -l with the same -h, -p and -U lists what there is",
                    crate::sql::identifier(&self.requested.dbname)
                )
            }
            // The session's own statements come later: what is refused here are its options.
            "22023" | "42601" | "42704" | "55P02" if self.requested.has_options => OPTIONS_HINT.to_owned(),
            "42501" if has_text("permission denied to set parameter") => OPTIONS_HINT.to_owned(),
            "42501" => format!(
                "role \"{user}\" lacks the CONNECT privilege: GRANT CONNECT ON DATABASE ... TO {user}"
            ),
            "53300" => format!("use fewer sessions (-c), or {}", more_connections(&error.message)),
            "58P01" => format!(
                "a library that each session loads is not there: session_preload_libraries or local_preload_libraries of the server, of database {} or \
                 of role \"{user}\" (\\drds shows them; ALTER ... RESET takes them back)",
                crate::sql::identifier(&self.requested.dbname)
            ),
            "57P03" => "it is starting up, shutting down or recovering: try again in a moment".to_owned(),
            "57P01" | "57P02" => "the server is going down or restarting: try again in a moment".to_owned(),
            "55000" => {
                "the database does not accept connections (datallowconn): name another one with -d".to_owned()
            }
            _ => return error.hint.clone(),
        })
    }
}

const POOL_HINT: &str = "the pooler in between has given the session no server connection: enlarge its pool (pgbouncer: default_pool_size), \
                         use fewer sessions (-c), or connect to the server itself (its own host and port); SHOW POOLS on its console shows \
                         who waits (cl_waiting), and the server may not respond";

const OPTIONS_HINT: &str = "it stands in the options of the session: in PGOPTIONS, or after options= in the connection string or the cluster file";

/// How to allow more connections, by the limit that was reached (`postinit.c`, `proc.c`).
fn more_connections(message: &str) -> String {
    // The name follows these words, in quotes.
    let of = |words: &str| Some(message.split_once(words)?.1.trim_matches([' ', '"']).to_owned());
    let limit = |what: &str, name: &str| {
        let name = name.replace('"', "\"\"");
        format!(
            "raise the limit of that {what}: ALTER {} \"{name}\" CONNECTION LIMIT N (-1: none)",
            what.to_uppercase()
        )
    };
    match (of("for role "), of("for database ")) {
        (Some(role), _) => limit("role", &role),
        (_, Some(database)) => limit("database", &database),
        _ => "raise max_connections on the server".to_owned(),
    }
}

/// For settings that a session must begin with.
const BEGINNING_HINT: &str = "a pooler in between does not pass on settings with which a session must begin: give the node's own host and port \
                              (in the cluster file: its connection), or those of a proxy that passes all bytes on";

/// Whether a setting can only be made when a session begins.
fn is_too_late(error: &ServerError) -> bool {
    error.sqlstate.as_str() == "55P02" && error.message.contains("after connection start")
}

/// What to do where the role must be the operating system user, if there is such a user.
/// The hint where a password is wanted that may not follow the file which names the host.
fn withheld_hint(why: &str) -> String {
    format!(
        "{why}, so PGPASSWORD and lines for any host (*) are not used: write host:port:database:user:password for this host into ~/.pgpass (chmod 0600), \
         or make a copy of the file that only you can change"
    )
}

pub(super) fn peer_hint(role: &str, is_user: bool) -> String {
    match is_user {
        true => format!(
            "run as the operating system user \"{role}\" (sudo -u {role}), or use TCP with a password: -h localhost"
        ),
        false => format!(
            "this host has no operating system user \"{role}\": use TCP with a password (-h localhost), or allow your own user that role in pg_ident.conf"
        ),
    }
}

/// No server answers: name what listens on this host, if anything does.
fn connect_hint(host: &HostSpec, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return "the socket's folder is closed to you; run as another user, or use -h localhost".to_owned();
    }
    if let Some(hint) = of_our_cluster(host, error) {
        return hint;
    }
    let others: Vec<String> = ["/var/run/postgresql", "/tmp"]
        .iter()
        .flat_map(|dir| sockets_in(Path::new(dir)))
        .filter(|(dir, port)| host.host != Host::Unix(dir.clone()) || host.port != *port)
        .map(|(dir, port)| format!("-h {} -p {port}", dir.display()))
        .collect();
    let local = match &host.host {
        Host::Unix(_) => true,
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
    };
    match (local, others.first()) {
        (true, Some(other)) => format!("no server listens there; there is a socket at {other}"),
        (true, None) => {
            "no server listens there: start one with pgfathom up single, or give its address with -h and -p"
                .to_owned()
        }
        (false, _) => {
            "is the server running, and do its listen_addresses and the firewall let us in? check -h and -p"
                .to_owned()
        }
    }
}

/// Server sockets in a folder, by port.
fn sockets_in(dir: &Path) -> Vec<(PathBuf, u16)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, u16)> = entries
        .filter_map(|entry| {
            let port = entry.file_name().to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok()?;
            // A socket whose server is gone is no help.
            std::os::unix::net::UnixStream::connect(entry.path()).ok().map(|_| (dir.to_owned(), port))
        })
        .collect();
    found.sort();
    found
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts.as_slice() {
            [one] => write!(f, "cannot connect to {one}"),
            many => {
                write!(f, "cannot connect to database \"{}\"", self.requested.dbname)?;
                many.iter().try_for_each(|attempt| write!(f, "\n    {attempt}"))
            }
        }
    }
}

impl std::error::Error for ConnectError {}
