//! Dials the target through `connect::hot` and makes what it returns non-blocking.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use connect::conninfo::SessionAttrs;
use connect::hot::{self, Socket};
use connect::{ConnSpec, ConnectError};
use record::clock::monotonic_ns;
use wire::error::SqlState;

use crate::engine::connector::{Dial, DialError, Move};
use crate::engine::link::{Link, Stream};

/// How long one of several hosts may keep us waiting without `connect_timeout`: libpq would wait for ever, and the next host may be the one
/// that works.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Changes of the server that are kept.
const MOVES_MAX: usize = 1_000;

/// Dials one target, which may be several hosts of which one is the right one.
#[derive(Clone, Debug)]
pub struct TargetDial {
    spec: ConnSpec,
    moves: Arc<Mutex<Vec<Move>>>,
    isolated: Vec<&'static str>,
}

impl TargetDial {
    /// Dials what `spec` describes, by libpq's rules.
    pub fn new(mut spec: ConnSpec) -> TargetDial {
        if spec.hosts.len() > 1 {
            spec.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
        }
        TargetDial { spec, moves: Arc::default(), isolated: Vec::new() }
    }

    /// The same with what [`Dial::isolated`] is to be.
    #[must_use]
    pub fn with_isolated(self, isolated: Vec<&'static str>) -> TargetDial {
        TargetDial { isolated, ..self }
    }

    fn note(&self, server: String) {
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        if moves.len() < MOVES_MAX && moves.last().is_none_or(|last| last.to != server) {
            moves.push(Move { at: monotonic_ns(), to: server });
        }
    }
}

impl Dial for TargetDial {
    fn dial(&self, _session: u64) -> Result<Link, DialError> {
        let connection = hot::connect(&self.spec).map_err(|error| dial_error(&error))?;
        if self.spec.hosts.len() > 1 {
            self.note(connection.host().to_string());
        }
        let server = connection.host_index();
        let parts = connection.into_parts();
        let stream = match parts.socket {
            Socket::Unix(stream) => Stream::Unix(stream),
            Socket::Tcp(stream) => Stream::Tcp(stream),
        };
        stream.set_nonblocking(true).map_err(|error| DialError {
            message: format!("could not make the connection non-blocking: {error}"),
            sqlstate: None,
            hint: None,
            is_transient: false,
        })?;
        Ok(Link::new(stream, parts.tls, &parts.received).with_server(server).with_cancel(parts.cancel))
    }

    fn follows_writes(&self) -> bool {
        matches!(self.spec.target_session_attrs, SessionAttrs::ReadWrite | SessionAttrs::Primary)
    }

    fn isolated(&self) -> Vec<&'static str> {
        self.isolated.clone()
    }

    fn moves(&self) -> Vec<Move> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn dial_error(error: &ConnectError) -> DialError {
    let sqlstate = error.sqlstate().and_then(|code| code.as_bytes().try_into().ok()).map(SqlState);
    DialError { message: error.to_string(), sqlstate, hint: error.hint(), is_transient: error.is_transient() }
}
