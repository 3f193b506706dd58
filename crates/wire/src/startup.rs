//! The start of a connection, sans-IO: from the startup message to the first ReadyForQuery.
//!
//! The caller moves bytes; this machine reports what to send and when it is done. TLS happens below it: the caller negotiates it
//! first (see [`ssl_request`]) and passes in the channel binding data. The rules about which authentication is acceptable follow
//! libpq (`fe-auth.c`, `fe-connect.c`): SCRAM-SHA-256-PLUS whenever both sides can do it, never less than what
//! `channel_binding` and `require_auth` demand.

use std::collections::BTreeMap;
use std::fmt;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};

use crate::backend::{self, ProtocolError, tag};
use crate::error::ServerError;

/// Protocol 3.0, understood by every server since PostgreSQL 7.4.
const PROTOCOL_VERSION: u32 = 3 << 16;
/// The request code that requests TLS in place of a startup message.
const SSL_REQUEST_CODE: u32 = 80_877_103;
/// The longest plausible first ErrorResponse, as in libpq. A server that cannot fork answers with `E` and bare text, whose
/// first four bytes then look like a far longer length.
const FIRST_ERROR_BYTES_MAX: u32 = 30_000;
/// The most that a server may send from the first message to the first ReadyForQuery, in bytes: parameters and notices are kept, so
/// without a limit a hostile server could fill this host's memory. PostgreSQL's own greeting is below 1 KiB.
pub const GREETING_BYTES_MAX: usize = 1 << 20;
/// How much of a bare-text error is kept, in bytes.
const BARE_ERROR_BYTES_MAX: usize = 1_000;

/// Requests TLS. The server answers with one byte: `S` yes, `N` no, `E` begins an error of a server that cannot start a session.
pub fn ssl_request(out: &mut Vec<u8>) {
    out.extend_from_slice(&8u32.to_be_bytes());
    out.extend_from_slice(&SSL_REQUEST_CODE.to_be_bytes());
}

/// libpq's `channel_binding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChannelBindingMode {
    /// Never.
    Disable,
    /// When both sides can.
    #[default]
    Prefer,
    /// The connection fails unless the server proved, bound to this TLS channel, that it knows the password.
    Require,
}

/// An authentication method by libpq's name in `require_auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthMethod {
    /// Nothing was requested: `trust`, `peer`, or a client certificate.
    None,
    /// The password in clear.
    Password,
    /// MD5 challenge.
    Md5,
    /// SCRAM, with or without channel binding.
    ScramSha256,
}

impl AuthMethod {
    /// libpq's name.
    pub fn name(self) -> &'static str {
        match self {
            AuthMethod::None => "none",
            AuthMethod::Password => "password",
            AuthMethod::Md5 => "md5",
            AuthMethod::ScramSha256 => "scram-sha-256",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The set of methods that `require_auth` allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthMethods(u8);

impl AuthMethods {
    /// No demand: whatever the server requests.
    pub const ALL: AuthMethods = AuthMethods(0b1111);
    /// Nothing; to be filled by [`AuthMethods::with`].
    pub const EMPTY: AuthMethods = AuthMethods(0);

    /// The set and `method`.
    #[must_use]
    pub fn with(self, method: AuthMethod) -> AuthMethods {
        AuthMethods(self.0 | method.bit())
    }

    /// The set less `method`.
    #[must_use]
    pub fn without(self, method: AuthMethod) -> AuthMethods {
        AuthMethods(self.0 & !method.bit())
    }

    /// Whether `method` is allowed.
    pub fn allows(self, method: AuthMethod) -> bool {
        self.0 & method.bit() != 0
    }
}

impl Default for AuthMethods {
    fn default() -> Self {
        AuthMethods::ALL
    }
}

impl fmt::Display for AuthMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for method in [AuthMethod::None, AuthMethod::Password, AuthMethod::Md5, AuthMethod::ScramSha256] {
            if self.allows(method) {
                write!(f, "{}{}", if first { "" } else { "," }, method.name())?;
                first = false;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for AuthMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthMethods({self})")
    }
}

/// What a handshake needs to know.
#[derive(Clone, Default)]
pub struct StartupOptions {
    /// Role name.
    pub user: String,
    /// Other startup parameters, such as `database`, `application_name`, `options`, `client_encoding`.
    pub parameters: Vec<(String, String)>,
    /// The password, if one is at hand. It never leaves this machine except as the server's method demands.
    pub password: Option<Vec<u8>>,
    /// The user's demand.
    pub channel_binding: ChannelBindingMode,
    /// The user's demand.
    pub require_auth: AuthMethods,
    /// Whether the bytes travel through TLS.
    pub encrypted: bool,
    /// `tls-server-end-point` of the TLS channel (RFC 5929); `None` without TLS or when the certificate has no such hash.
    pub end_point: Option<Vec<u8>>,
}

impl fmt::Debug for StartupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartupOptions")
            .field("user", &self.user)
            .field("parameters", &self.parameters)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("channel_binding", &self.channel_binding)
            .field("require_auth", &self.require_auth)
            .field("encrypted", &self.encrypted)
            .finish_non_exhaustive()
    }
}

/// Why a handshake failed. No message contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// The server refused; its own words.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server answers in bare text, because it could not start a process for us.
    #[error("the server answered: {0}")]
    BareText(String),
    /// Not the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The server requires a password, and none, or an empty one, was given.
    #[error("the server requests a password{}, but none was given", in_brackets(method))]
    PasswordMissing {
        /// What the server requested; empty if that is not known.
        method: &'static str,
    },
    /// A method that this client does not support.
    #[error("the server requests {0} authentication, which this client does not support")]
    Unsupported(String),
    /// The server requests a method that `require_auth` rules out.
    #[error("the server requests {method} authentication, which require_auth does not allow")]
    MethodRefused {
        /// The server's wish.
        method: &'static str,
    },
    /// `channel_binding=require` and the exchange cannot be bound to the channel.
    #[error("channel_binding=require, but {0}")]
    ChannelBinding(&'static str),
    /// The other side does not know the password either: not the server it claims to be. Or SCRAM was malformed.
    #[error("SCRAM failed: {0}")]
    Scram(String),
}

/// The name of a method behind a sentence; nothing for one that is not known.
fn in_brackets(method: &str) -> String {
    if method.is_empty() { String::new() } else { format!(" ({method})") }
}

/// What a finished handshake leaves.
#[derive(Clone, PartialEq, Eq)]
pub struct Established {
    /// ParameterStatus by name: `server_version`, `client_encoding`, `in_hot_standby` and others.
    pub parameters: BTreeMap<String, String>,
    /// The backend's process id.
    pub process_id: u32,
    /// Secret for cancel requests.
    pub secret_key: Vec<u8>,
    /// How the client was authenticated.
    pub method: AuthMethod,
    /// Whether the exchange was bound to the TLS channel.
    pub channel_bound: bool,
    /// Warnings sent meanwhile.
    pub notices: Vec<ServerError>,
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established")
            .field("parameters", &self.parameters)
            .field("process_id", &self.process_id)
            .field("method", &self.method)
            .field("channel_bound", &self.channel_bound)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

/// Where the handshake stands.
///
/// ```text
/// Authenticate -- AuthenticationOk ------------------------------> Settle -- ReadyForQuery --> Done
///   |  |                                                             ^
///   |  +-- password or MD5 request, answered --> Verdict -- Ok ------+
///   |                                             ^
///   +-- SASL, first message sent --> ScramFirst -- SASLContinue, proof sent --> ScramFinal -- SASLFinal, verified
/// ```
/// Any error ends in Done with nothing established.
enum State {
    /// Startup message sent; the server chooses the authentication method.
    Authenticate,
    /// Waits for the server's nonce, salt and iteration count.
    ScramFirst(Box<ScramSha256>),
    /// Waits for the server's proof that it knows the password.
    ScramFinal(Box<ScramSha256>),
    /// Our answer is with the server.
    Verdict,
    /// Authenticated; settings and the cancel key follow.
    Settle,
    /// Over.
    Done,
}

/// One handshake in progress.
pub struct Startup {
    options: StartupOptions,
    state: State,
    established: Established,
    /// Bytes of the messages taken so far.
    taken: usize,
}

impl fmt::Debug for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Authenticate => "Authenticate",
            State::ScramFirst(_) => "ScramFirst",
            State::ScramFinal(_) => "ScramFinal",
            State::Verdict => "Verdict",
            State::Settle => "Settle",
            State::Done => "Done",
        };
        f.debug_struct("Startup")
            .field("options", &self.options)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// The progress of the handshake with the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes used up, to be removed from the front of the receive buffer.
    pub consumed: usize,
    /// Whether the session is ready; bytes after `consumed` then belong to it.
    pub done: bool,
}

impl Startup {
    /// Starts a handshake: appends the startup message to `out`.
    pub fn new(options: StartupOptions, out: &mut Vec<u8>) -> Startup {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&PROTOCOL_VERSION.to_be_bytes());
        let user = ("user", options.user.as_str());
        for (name, value) in
            std::iter::once(user).chain(options.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())))
        {
            for text in [name, value] {
                debug_assert!(!text.contains('\0'), "a zero byte inside a startup parameter");
                out.extend_from_slice(text.as_bytes());
                out.push(0);
            }
        }
        out.push(0);
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        let established = Established {
            parameters: BTreeMap::new(),
            process_id: 0,
            secret_key: Vec::new(),
            method: AuthMethod::None,
            channel_bound: false,
            notices: Vec::new(),
        };
        Startup { options, state: State::Authenticate, established, taken: 0 }
    }

    /// Takes bytes of the server; appends answers to `out`. After an error, or after `done`, there is nothing to feed.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Progress, StartupError> {
        let mut consumed = 0;
        while !matches!(self.state, State::Done) {
            let rest = &bytes[consumed..];
            if let State::Authenticate = self.state
                && let Some(text) = bare_text(rest)
            {
                self.state = State::Done;
                return Err(StartupError::BareText(text));
            }
            // Checked by the header: the caller must not buffer a message that is then refused.
            if backend::frame_bytes(rest)?.is_some_and(|length| length > GREETING_BYTES_MAX - self.taken) {
                self.state = State::Done;
                return Err(ProtocolError::Greeting { limit: GREETING_BYTES_MAX }.into());
            }
            let Some((frame, length)) = backend::frame(rest)? else {
                return Ok(Progress { consumed, done: false });
            };
            consumed += length;
            self.taken += length;
            if let Err(error) = self.message(frame, out) {
                self.state = State::Done;
                return Err(error);
            }
        }
        Ok(Progress { consumed, done: true })
    }

    /// What was agreed, after [`Progress::done`].
    pub fn into_established(self) -> Established {
        self.established
    }

    fn message(&mut self, frame: backend::Frame<'_>, out: &mut Vec<u8>) -> Result<(), StartupError> {
        let settling = matches!(self.state, State::Settle);
        match frame.tag {
            tag::ERROR_RESPONSE => return Err(ServerError::parse(frame.body).into()),
            tag::NOTICE_RESPONSE => self.established.notices.push(ServerError::parse(frame.body)),
            tag::AUTHENTICATION if !settling => return self.authentication(frame.body, out),
            // NegotiateProtocolVersion: nothing beyond 3.0 is requested, so nothing is lost.
            b'v' if !settling => {}
            tag::PARAMETER_STATUS => {
                let mut texts = frame.body.split(|&b| b == 0);
                let (Some(name), Some(value)) = (texts.next(), texts.next()) else {
                    return Err(ProtocolError::Body { tag: frame.tag }.into());
                };
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.established.parameters.insert(text(name), text(value));
            }
            tag::BACKEND_KEY_DATA if settling => {
                let (id, key) =
                    frame.body.split_first_chunk::<4>().ok_or(ProtocolError::Body { tag: frame.tag })?;
                self.established.process_id = u32::from_be_bytes(*id);
                self.established.secret_key = key.to_vec();
            }
            tag::READY_FOR_QUERY if settling => self.state = State::Done,
            _ => return Err(ProtocolError::Unexpected { tag: frame.tag }.into()),
        }
        Ok(())
    }

    /// Handles an Authentication message; its first four bytes are the kind.
    fn authentication(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), StartupError> {
        const DAMAGED: ProtocolError = ProtocolError::Body { tag: tag::AUTHENTICATION };
        let (kind, body) = body.split_first_chunk::<4>().ok_or(DAMAGED)?;
        match (u32::from_be_bytes(*kind), std::mem::replace(&mut self.state, State::Done)) {
            (0, State::Authenticate | State::Verdict) => {
                self.demand(self.established.method)?;
                if self.options.channel_binding == ChannelBindingMode::Require
                    && !self.established.channel_bound
                {
                    return Err(StartupError::ChannelBinding("the server accepted the session without it"));
                }
                self.state = State::Settle;
            }
            (3, State::Authenticate) => {
                self.established.method = AuthMethod::Password;
                let password = self.password(self.established.method)?;
                password_message(out, &[password, b"\0"]);
                self.state = State::Verdict;
            }
            (5, State::Authenticate) => {
                let salt: [u8; 4] = body.try_into().map_err(|_| DAMAGED)?;
                self.established.method = AuthMethod::Md5;
                let password = self.password(self.established.method)?;
                let answer = md5_hash(self.options.user.as_bytes(), password, salt);
                password_message(out, &[answer.as_bytes(), b"\0"]);
                self.state = State::Verdict;
            }
            (10, State::Authenticate) => self.start_scram(body, out)?,
            (11, State::ScramFirst(mut scram)) => {
                scram.update(body).map_err(|e| StartupError::Scram(e.to_string()))?;
                password_message(out, &[scram.message()]);
                self.state = State::ScramFinal(scram);
            }
            (12, State::ScramFinal(mut scram)) => {
                scram.finish(body).map_err(|_| {
                    StartupError::Scram("the server could not prove that it knows the password".to_owned())
                })?;
                self.state = State::Verdict;
            }
            (kind @ (2 | 6 | 7 | 9), State::Authenticate) => {
                let name = match kind {
                    2 => "Kerberos V5",
                    6 => "SCM credential",
                    7 => "GSSAPI",
                    _ => "SSPI",
                };
                return Err(StartupError::Unsupported(name.to_owned()));
            }
            (kind, State::Authenticate) => {
                return Err(StartupError::Unsupported(format!("unknown (code {kind})")));
            }
            _ => return Err(ProtocolError::Unexpected { tag: tag::AUTHENTICATION }.into()),
        }
        Ok(())
    }

    /// Picks the mechanism and sends the first SCRAM message.
    fn start_scram(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), StartupError> {
        let offered = |name: &str| body.split(|&b| b == 0).any(|m| m == name.as_bytes());
        let plus_offered = offered(SCRAM_SHA_256_PLUS);
        let mode = self.options.channel_binding;
        if plus_offered && !self.options.encrypted {
            // A man in the middle terminates TLS: the server assumes a channel that we do not have.
            return Err(StartupError::Scram(
                "the server offered SCRAM-SHA-256-PLUS over a connection without TLS".to_owned(),
            ));
        }
        let end_point = match mode {
            ChannelBindingMode::Disable => None,
            _ if plus_offered => self.options.end_point.clone(),
            _ => None,
        };
        if mode == ChannelBindingMode::Require && end_point.is_none() {
            return Err(StartupError::ChannelBinding(match (self.options.encrypted, plus_offered) {
                (false, _) => "the connection has no TLS",
                (true, false) => "the server did not offer it",
                (true, true) => "the server's certificate is signed by an algorithm without a single hash",
            }));
        }
        if end_point.is_none() && !offered(SCRAM_SHA_256) {
            return Err(StartupError::Unsupported(format!(
                "SASL ({})",
                String::from_utf8_lossy(body).trim_end_matches('\0').replace('\0', ", ")
            )));
        }
        self.established.method = AuthMethod::ScramSha256;
        let password = self.password(self.established.method)?;
        let (mechanism, binding) = match end_point {
            Some(hash) => (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash)),
            // "y": we could, but think that the server cannot; it then notices a downgrade by a man in the middle.
            None if self.options.end_point.is_some()
                && mode != ChannelBindingMode::Disable
                && !plus_offered =>
            {
                (SCRAM_SHA_256, ChannelBinding::unrequested())
            }
            None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        let scram = ScramSha256::new(password, binding);
        let first = scram.message();
        password_message(out, &[mechanism.as_bytes(), b"\0", &(first.len() as u32).to_be_bytes(), first]);
        self.established.channel_bound = mechanism == SCRAM_SHA_256_PLUS;
        self.state = State::ScramFirst(Box::new(scram));
        Ok(())
    }

    /// Checks `method` against the user's demands and gives the password for it.
    fn password(&self, method: AuthMethod) -> Result<&[u8], StartupError> {
        self.demand(method)?;
        if method != AuthMethod::ScramSha256 && self.options.channel_binding == ChannelBindingMode::Require {
            return Err(StartupError::ChannelBinding("the server requests another method than SCRAM"));
        }
        match &self.options.password {
            Some(password) if !password.is_empty() => Ok(password),
            _ => Err(StartupError::PasswordMissing { method: method.name() }),
        }
    }

    fn demand(&self, method: AuthMethod) -> Result<(), StartupError> {
        if self.options.require_auth.allows(method) {
            return Ok(());
        }
        Err(StartupError::MethodRefused { method: method.name() })
    }
}

/// A PasswordMessage, SASLInitialResponse or SASLResponse: they share the type byte.
fn password_message(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length = 4 + parts.iter().map(|p| p.len()).sum::<usize>();
    out.push(b'p');
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// The text of an error that is no message: `E`, text, end of the connection or a zero.
fn bare_text(bytes: &[u8]) -> Option<String> {
    let (header, _) = bytes.split_first_chunk::<{ backend::HEADER_BYTES }>()?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    if header[0] != tag::ERROR_RESPONSE || (8..=FIRST_ERROR_BYTES_MAX).contains(&length) {
        return None;
    }
    let text = &bytes[1..];
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len()).min(BARE_ERROR_BYTES_MAX);
    Some(String::from_utf8_lossy(&text[..end]).trim().to_owned())
}

#[cfg(test)]
mod tests;
