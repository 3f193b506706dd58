//! Dials the target through `target::hot` and makes what it returns non-blocking.

use target::hot::{self, Socket};
use target::{ConnSpec, ConnectError};
use wire::error::SqlState;

use crate::engine::connector::{Dial, DialError};
use crate::engine::link::{Link, Stream};

/// Dials one target.
#[derive(Clone, Debug)]
pub struct TargetDial {
    spec: ConnSpec,
}

impl TargetDial {
    /// Dials what `spec` describes, by libpq's rules.
    pub fn new(spec: ConnSpec) -> TargetDial {
        TargetDial { spec }
    }
}

impl Dial for TargetDial {
    fn dial(&self, _session: u64) -> Result<Link, DialError> {
        let parts = hot::connect(&self.spec).map_err(|error| dial_error(&error))?.into_parts();
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
        Ok(Link::new(stream, parts.tls, &parts.received))
    }
}

fn dial_error(error: &ConnectError) -> DialError {
    let sqlstate = error.sqlstate().and_then(|code| code.as_bytes().try_into().ok()).map(SqlState);
    DialError { message: error.to_string(), sqlstate, hint: error.hint(), is_transient: error.is_transient() }
}
