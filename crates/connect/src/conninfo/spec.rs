//! A resolved connection: all its parameters, from every source, in types.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wire::startup::{AuthMethods, ChannelBindingMode};

use super::Pinned;
use crate::Secret;

/// The port when none is given.
pub const PORT_DEFAULT: u16 = 5432;

/// libpq's `sslmode`, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// Without TLS first; with it when the server insists.
    Allow,
    /// With TLS first; without it when the server has none.
    #[default]
    Prefer,
    /// Only TLS; the certificate is checked only if a root certificate file exists.
    Require,
    /// And the certificate leads to a trusted root.
    VerifyCa,
    /// And it carries the host's name.
    VerifyFull,
}

impl SslMode {
    /// All modes by libpq's names.
    pub const ALL: [(&'static str, SslMode); 6] = [
        ("disable", SslMode::Disable),
        ("allow", SslMode::Allow),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ];

    /// libpq's name.
    pub fn name(self) -> &'static str {
        SslMode::ALL[self as usize].0
    }
}

/// libpq's `target_session_attrs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionAttrs {
    /// The first host that accepts the session.
    #[default]
    Any,
    /// Transactions may write by default.
    ReadWrite,
    /// They may not.
    ReadOnly,
    /// Not in hot standby.
    Primary,
    /// In hot standby.
    Standby,
    /// A host in hot standby if there is one, else any host.
    PreferStandby,
}

impl SessionAttrs {
    /// All values by libpq's names.
    pub const ALL: [(&'static str, SessionAttrs); 6] = [
        ("any", SessionAttrs::Any),
        ("read-write", SessionAttrs::ReadWrite),
        ("read-only", SessionAttrs::ReadOnly),
        ("primary", SessionAttrs::Primary),
        ("standby", SessionAttrs::Standby),
        ("prefer-standby", SessionAttrs::PreferStandby),
    ];

    /// libpq's name.
    pub fn name(self) -> &'static str {
        SessionAttrs::ALL[self as usize].0
    }
}

/// libpq's `load_balance_hosts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoadBalance {
    /// Hosts and addresses in their order.
    #[default]
    Disable,
    /// In random order.
    Random,
}

/// Where to knock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or address, over TCP.
    Tcp(String),
    /// The directory of a Unix socket.
    Unix(PathBuf),
}

impl Host {
    /// libpq's rule: what starts with a slash (or `@`, an abstract socket) is a socket directory.
    pub fn parse(text: &str) -> Host {
        if text.starts_with('/') || text.starts_with('@') {
            Host::Unix(PathBuf::from(text))
        } else {
            Host::Tcp(text.to_owned())
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(name) => f.write_str(name),
            Host::Unix(dir) => write!(f, "{}", dir.display()),
        }
    }
}

/// One of the hosts to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Name or socket directory.
    pub host: Host,
    /// `hostaddr`: the address to use instead of asking a name server; `host` is then only the name for certificates.
    pub address: Option<IpAddr>,
    /// Port, also part of the socket's file name.
    pub port: u16,
    /// The password that the password file holds for this host.
    pub password: Option<Secret>,
}

impl HostSpec {
    /// A host by libpq's rule for names.
    pub fn new(host: &str, port: u16) -> HostSpec {
        HostSpec { host: Host::parse(host), address: None, port, password: None }
    }

    /// The file of a Unix socket, `.s.PGSQL.5432` in its directory; `None` for TCP.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match &self.host {
            Host::Unix(dir) => Some(dir.join(format!(".s.PGSQL.{}", self.port))),
            Host::Tcp(_) => None,
        }
    }
}

impl fmt::Display for HostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Unix(dir) => write!(f, "socket {}/.s.PGSQL.{}", dir.display(), self.port),
            Host::Tcp(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Tcp(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Where trusted root certificates come from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum RootCert {
    /// `~/.postgresql/root.crt`, if there is one.
    #[default]
    Default,
    /// The operating system's.
    System,
    /// A file.
    File(PathBuf),
}

/// A TLS protocol version by libpq's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2. Older ones are not supported.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Everything about TLS except the mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// `sslrootcert`.
    pub root_cert: RootCert,
    /// `sslcert`, the client's certificate.
    pub cert: Option<PathBuf>,
    /// `sslkey`, its key.
    pub key: Option<PathBuf>,
    /// Whether a client certificate is sent when there is one (`sslcertmode`).
    pub client_cert: bool,
    /// `sslcrl`, revoked certificates.
    pub crl: Option<PathBuf>,
    /// `sslsni`: name the host in the handshake.
    pub sni: bool,
    /// `ssl_min_protocol_version`.
    pub min_version: TlsVersion,
    /// `ssl_max_protocol_version`.
    pub max_version: Option<TlsVersion>,
    /// `~/.postgresql`, where the defaults for the files above are looked for; `None`: no defaults.
    pub default_dir: Option<PathBuf>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions {
            root_cert: RootCert::Default,
            cert: None,
            key: None,
            client_cert: true,
            crl: None,
            sni: true,
            min_version: TlsVersion::V1_2,
            max_version: None,
            default_dir: None,
        }
    }
}

/// TCP keepalives; `None` leaves the system's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalives {
    /// Whether they are sent at all.
    pub enabled: bool,
    /// Silence before the first, whole seconds.
    pub idle: Option<Duration>,
    /// Time between two, whole seconds.
    pub interval: Option<Duration>,
    /// How many may stay unanswered.
    pub count: Option<u32>,
    /// How long sent data may stay unacknowledged, milliseconds.
    pub user_timeout: Option<Duration>,
}

impl Default for Keepalives {
    fn default() -> Self {
        Keepalives { enabled: true, idle: None, interval: None, count: None, user_timeout: None }
    }
}

/// A resolved connection. `Debug` and `Display` never show a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnSpec {
    /// The hosts in the order to try; never empty.
    pub hosts: Vec<HostSpec>,
    /// Role.
    pub user: String,
    /// Database.
    pub dbname: String,
    /// The password for all hosts; it overrides the password file.
    pub password: Option<Secret>,
    /// The file that [`HostSpec::password`] came from, for messages.
    pub passfile: Option<PathBuf>,
    /// Why passwords that do not name the host are not sent: others can change the file that names it. For messages.
    pub withheld: Option<String>,
    /// `sslmode`.
    pub sslmode: SslMode,
    /// The rest about TLS.
    pub tls: TlsOptions,
    /// `channel_binding`.
    pub channel_binding: ChannelBindingMode,
    /// `require_auth`.
    pub require_auth: AuthMethods,
    /// `requirepeer`: the operating system user that must own the server's end of a Unix socket.
    pub require_peer: Option<String>,
    /// `target_session_attrs`.
    pub target_session_attrs: SessionAttrs,
    /// `load_balance_hosts`.
    pub load_balance_hosts: LoadBalance,
    /// `connect_timeout`, per host; `None` waits for ever.
    pub connect_timeout: Option<Duration>,
    /// `application_name`, never empty.
    pub application_name: String,
    /// `options`: server command line options of the session.
    pub options: Option<String>,
    /// Settings of the session that the environment requests (`PGDATESTYLE`, `PGTZ`, `PGGEQO`).
    pub session_settings: Vec<(String, String)>,
    /// Settings of the session that pgfathom fixes.
    pub pinned: Pinned,
    /// TCP keepalives.
    pub keepalives: Keepalives,
}

impl ConnSpec {
    /// A connection to one host by libpq's rule for names; everything else has its default.
    pub fn new(host: &str, port: u16, user: &str, dbname: &str) -> ConnSpec {
        ConnSpec {
            hosts: vec![HostSpec::new(host, port)],
            user: user.to_owned(),
            dbname: dbname.to_owned(),
            password: None,
            passfile: None,
            withheld: None,
            sslmode: SslMode::default(),
            tls: TlsOptions::default(),
            channel_binding: ChannelBindingMode::default(),
            require_auth: AuthMethods::default(),
            require_peer: None,
            target_session_attrs: SessionAttrs::default(),
            load_balance_hosts: LoadBalance::default(),
            connect_timeout: None,
            application_name: "pgfathom".to_owned(),
            options: None,
            session_settings: Vec::new(),
            pinned: Pinned::Nothing,
            keepalives: Keepalives::default(),
        }
    }

    /// A connection through the socket in `dir`.
    pub fn unix(dir: &Path, port: u16, user: &str, dbname: &str) -> ConnSpec {
        let mut spec = ConnSpec::new("", port, user, dbname);
        spec.hosts[0].host = Host::Unix(dir.to_owned());
        spec
    }

    /// The same with another database.
    #[must_use]
    pub fn with_dbname(mut self, dbname: &str) -> ConnSpec {
        dbname.clone_into(&mut self.dbname);
        self
    }

    /// The same with another role.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> ConnSpec {
        user.clone_into(&mut self.user);
        self
    }

    /// The same under another `application_name`.
    #[must_use]
    pub fn with_application_name(mut self, name: &str) -> ConnSpec {
        name.clone_into(&mut self.application_name);
        self
    }

    /// The same with this setting of the session, instead of another value of it.
    #[must_use]
    pub fn with_session_setting(mut self, name: &str, value: &str) -> ConnSpec {
        self.session_settings.retain(|(other, _)| other != name);
        self.session_settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without this setting of the session.
    #[must_use]
    pub fn without_session_setting(mut self, name: &str) -> ConnSpec {
        self.session_settings.retain(|(other, _)| other != name);
        self
    }

    /// The same for queries on catalogs: compiling one takes longer than the query, and where a planner setting of the database makes every plan seem
    /// costly (`enable_nestloop = off`), all of them would be compiled.
    #[must_use]
    pub fn without_jit(self) -> ConnSpec {
        self.with_session_setting("jit", "off")
    }

    /// The same with only the host that answered before, so that all sessions of a run use the same server.
    #[must_use]
    pub fn with_only_host(mut self, index: usize) -> ConnSpec {
        let host = self.hosts.swap_remove(index);
        self.hosts = vec![host];
        self
    }

    /// The password for `host`.
    pub fn password_for<'a>(&'a self, host: &'a HostSpec) -> Option<&'a Secret> {
        self.password.as_ref().or(host.password.as_ref()).filter(|p| !p.is_empty())
    }

    /// A short form to print: `dbname=x host=/tmp port=5433 user=y`. Without secrets, and a valid connection string.
    pub fn describe(&self) -> String {
        let list =
            |value: fn(&HostSpec) -> String| self.hosts.iter().map(value).collect::<Vec<_>>().join(",");
        let mut text =
            format!("dbname={} host={}", quoted(&self.dbname), quoted(&list(|h| h.host.to_string())));
        if self.hosts.iter().any(|h| h.address.is_some()) {
            let addresses = list(|h| h.address.map(|a| a.to_string()).unwrap_or_default());
            text.push_str(&format!(" hostaddr={addresses}"));
        }
        text.push_str(&format!(" port={} user={}", list(|h| h.port.to_string()), quoted(&self.user)));
        if self.sslmode != SslMode::default() {
            text.push_str(&format!(" sslmode={}", self.sslmode.name()));
        }
        if self.target_session_attrs != SessionAttrs::default() {
            text.push_str(&format!(" target_session_attrs={}", self.target_session_attrs.name()));
        }
        text
    }
}

impl fmt::Display for ConnSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// `value` as a connection string needs it: quoted if it is empty or contains blanks, quotes or backslashes.
pub fn quoted(value: &str) -> String {
    let plain = |c: char| !super::keyvalue::blank(c) && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}
