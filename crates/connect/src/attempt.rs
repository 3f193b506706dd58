//! Which host, which address, with or without TLS: libpq's order of attempts, for both planes.
//!
//! Hosts are tried in their order (or shuffled), each at all its addresses. `sslmode=allow` and `prefer` may try an address twice, with
//! and without TLS. The rules for the next host are those of libpq (`PQconnectPoll` in `fe-connect.c`): a host that is
//! down, too slow, starting up or in the wrong role is skipped; a refusal ends the search.

mod cluster;
mod error;
mod lately;
pub(crate) mod slow;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use error::copy_of;
pub use error::{Attempt, Cause, ConnectError};
pub use slow::when_slow;

use crate::conninfo::{ConnSpec, Host, HostSpec, LoadBalance, SessionAttrs, SslMode};
use crate::tls::{Tls, TlsError};

/// One place to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// One address to connect to, and its index in the host list.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) host: HostSpec,
    pub(crate) endpoint: Endpoint,
}

impl Candidate {
    /// The name for the check of certificates.
    pub(crate) fn name(&self) -> String {
        self.host.host.to_string()
    }
}

/// What one attempt does about TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Never,
    IfOffered,
    Demanded,
}

/// A failed attempt, and whether it had reached TLS.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) encrypted: bool,
}

/// The present state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) in_recovery: bool,
    pub(crate) read_only: bool,
}

impl Role {
    /// Requests both, as text `t` or `f`.
    /// Every name has its schema: the session may have the user's search path.
    pub(crate) const QUERY: &'static str = "select pg_catalog.pg_is_in_recovery(), pg_catalog.pg_is_in_recovery() or \
         pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'on'::pg_catalog.text";

    /// Why this server does not meet the requested session attributes.
    fn objection(self, wanted: SessionAttrs) -> Option<&'static str> {
        match wanted {
            SessionAttrs::ReadWrite if self.read_only => Some("the session is read-only"),
            SessionAttrs::ReadOnly if !self.read_only => Some("the session is not read-only"),
            SessionAttrs::Primary if self.in_recovery => Some("the server is in hot standby mode"),
            SessionAttrs::Standby | SessionAttrs::PreferStandby if !self.in_recovery => {
                Some("the server is not in hot standby mode")
            }
            _ => None,
        }
    }
}

/// One of the two ways to open a session.
pub(crate) trait Plane {
    type Session;

    /// One attempt at one place.
    fn open(
        &self,
        spec: &ConnSpec,
        candidate: &Candidate,
        encryption: Encryption,
        tls: Option<&Tls>,
    ) -> Result<Self::Session, Failure>;

    /// Reads what the server is.
    fn role(&self, spec: &ConnSpec, session: &mut Self::Session) -> Result<Role, Cause>;

    /// The session has the requested attributes: the limits of the connect end.
    fn begin_work(&self, session: &mut Self::Session);
}

/// How long one of several hosts may take without a `connect_timeout`: libpq would wait for the first one for minutes, or for ever.
const ONE_OF_SEVERAL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the only host may take without a `connect_timeout`.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

impl ConnSpec {
    /// The time limit for one attempt, including the first queries.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Whether none of the hosts answered a moment ago: a question that may be left out is not worth the same wait again.
    pub fn is_silent_lately(&self) -> bool {
        self.hosts.iter().all(|host| lately::is_unasked(&host.to_string()))
    }
}

/// Opens a session with the first suitable host.
pub(crate) fn connect<P: Plane>(spec: &ConnSpec, plane: &P) -> Result<P::Session, ConnectError> {
    // From here on the settings include the pinned ones.
    let mut spec = spec.with_settings_applied();
    if spec.hosts.len() > 1 {
        spec.connect_timeout.get_or_insert(ONE_OF_SEVERAL_TIMEOUT);
    }
    let spec = &spec;
    let tls = prepare_tls(spec).map_err(|error| ConnectError::before_any(spec, Cause::Tls(error)))?;
    let mut attempts = Vec::new();
    // prefer-standby makes two rounds: for a standby, then for any host.
    let rounds: &[SessionAttrs] = match spec.target_session_attrs {
        SessionAttrs::PreferStandby => &[SessionAttrs::PreferStandby, SessionAttrs::Any],
        SessionAttrs::Any => &[SessionAttrs::Any],
        SessionAttrs::ReadWrite => &[SessionAttrs::ReadWrite],
        SessionAttrs::ReadOnly => &[SessionAttrs::ReadOnly],
        SessionAttrs::Primary => &[SessionAttrs::Primary],
        SessionAttrs::Standby => &[SessionAttrs::Standby],
    };
    for wanted in rounds {
        attempts.clear();
        let mut order: Vec<usize> = (0..spec.hosts.len()).collect();
        if spec.load_balance_hosts == LoadBalance::Random {
            shuffle(&mut order);
        }
        for index in order {
            match connect_host(spec, plane, tls.as_ref(), index, *wanted, &mut attempts) {
                Some(session) => return Ok(session),
                None if attempts.last().is_some_and(|last| last.cause.is_final()) => {
                    return Err(ConnectError::new(spec, attempts));
                }
                None => {}
            }
        }
    }
    Err(ConnectError::new(spec, attempts))
}

/// Prepares TLS if any host may need it.
fn prepare_tls(spec: &ConnSpec) -> Result<Option<Tls>, TlsError> {
    let any_tcp = spec.hosts.iter().any(|host| matches!(host.host, Host::Tcp(_)) || host.address.is_some());
    if !any_tcp || spec.sslmode == SslMode::Disable {
        return Ok(None);
    }
    Tls::new(spec.sslmode, &spec.tls).map(Some)
}

/// Tries all addresses of one host. `None`: no session; the reasons are in `attempts`.
fn connect_host<P: Plane>(
    spec: &ConnSpec,
    plane: &P,
    tls: Option<&Tls>,
    index: usize,
    wanted: SessionAttrs,
    attempts: &mut Vec<Attempt>,
) -> Option<P::Session> {
    let host = &spec.hosts[index];
    let endpoints = match endpoints(host, spec.load_balance_hosts) {
        Ok(endpoints) => endpoints,
        Err(error) => {
            attempts.push(Attempt::new(host, None, Cause::Resolve(error)));
            return None;
        }
    };
    for endpoint in endpoints {
        let candidate = Candidate { index, host: host.clone(), endpoint };
        let session = connect_endpoint(spec, plane, tls, &candidate, attempts);
        if let Some(mut session) = session {
            if wanted == SessionAttrs::Any {
                plane.begin_work(&mut session);
                return Some(session);
            }
            let objection = match plane.role(spec, &mut session) {
                Ok(role) => role.objection(wanted).map(|found| Cause::SessionAttrs { wanted, found }),
                Err(cause) => Some(cause),
            };
            match objection {
                None => {
                    plane.begin_work(&mut session);
                    return Some(session);
                }
                Some(cause) => attempts.push(Attempt::new(host, Some(&candidate.endpoint), cause)),
            }
        } else if attempts.last().is_some_and(|last| last.cause.is_final()) {
            return None;
        }
    }
    None
}

/// Tries one address, with and without TLS as the mode states.
fn connect_endpoint<P: Plane>(
    spec: &ConnSpec,
    plane: &P,
    tls: Option<&Tls>,
    candidate: &Candidate,
    attempts: &mut Vec<Attempt>,
) -> Option<P::Session> {
    let first = match (&candidate.endpoint, spec.sslmode) {
        // There is no TLS over Unix sockets, whatever the mode.
        (Endpoint::Unix(_), _) | (_, SslMode::Disable | SslMode::Allow) => Encryption::Never,
        (_, SslMode::Prefer) => Encryption::IfOffered,
        (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => Encryption::Demanded,
    };
    let (place, address) = (candidate.host.to_string(), format!("{:?}", candidate.endpoint));
    let shortened = (spec.connect_timeout.is_none() && lately::was_silent(&address))
        .then(|| ConnSpec { connect_timeout: Some(lately::SHORT), ..spec.clone() });
    let spec = shortened.as_ref().unwrap_or(spec);
    let _waiting = slow::Waiting::begin(|| place.clone(), spec.connect_limit());
    let mut open = |encryption| match plane.open(spec, candidate, encryption, tls) {
        Ok(session) => {
            lately::answered(&place, &address);
            Ok(session)
        }
        Err(failure) => {
            match failure.cause {
                Cause::Timeout(_) | Cause::Silent(_) => {
                    lately::timed_out(&place, &address, spec.connect_limit())
                }
                _ => lately::answered(&place, &address),
            }
            let retry = failure.cause.may_depend_on_encryption().then_some(failure.encrypted);
            attempts.push(Attempt::new(&candidate.host, Some(&candidate.endpoint), failure.cause));
            Err(retry)
        }
    };
    let second = match open(first) {
        Ok(session) => return Some(session),
        Err(Some(encrypted)) => match (spec.sslmode, &candidate.endpoint) {
            (SslMode::Prefer, Endpoint::Tcp(_)) if encrypted => Encryption::Never,
            (SslMode::Allow, Endpoint::Tcp(_)) => Encryption::Demanded,
            _ => return None,
        },
        Err(None) => return None,
    };
    open(second).ok()
}

/// All addresses of a host.
fn endpoints(host: &HostSpec, balance: LoadBalance) -> io::Result<Vec<Endpoint>> {
    if let Some(address) = host.address {
        return Ok(vec![Endpoint::Tcp(SocketAddr::new(address, host.port))]);
    }
    match &host.host {
        Host::Unix(dir) => Ok(vec![Endpoint::Unix(host.socket_path().unwrap_or_else(|| dir.clone()))]),
        Host::Tcp(name) => {
            let mut found: Vec<SocketAddr> = (name.as_str(), host.port).to_socket_addrs()?.collect();
            if balance == LoadBalance::Random {
                shuffle(&mut found);
            }
            if found.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
            }
            Ok(found.into_iter().map(Endpoint::Tcp).collect())
        }
    }
}

/// A random order. It need not be reproducible, so the random hash keys of the standard library are a sufficient source.
fn shuffle<T>(items: &mut [T]) {
    let keys = RandomState::new();
    for last in (1..items.len()).rev() {
        let mut hasher = keys.build_hasher();
        hasher.write_usize(last);
        items.swap(last, (hasher.finish() % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests;
