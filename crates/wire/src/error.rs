//! Errors and warnings of a server: ErrorResponse and NoticeResponse.

use std::borrow::Cow;
use std::fmt;

/// A five-character SQLSTATE (PostgreSQL documentation, appendix "PostgreSQL Error Codes").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// `40001`: the transaction could not be serialised; the whole of it may be tried again.
    pub(crate) const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    /// `40P01`: the transaction was chosen to end a deadlock; the whole of it may be tried again.
    pub const DEADLOCK_DETECTED: SqlState = SqlState(*b"40P01");
    /// `53100`: the server's disk is full.
    pub const DISK_FULL: SqlState = SqlState(*b"53100");
    /// `57P03`: the server is starting up, shutting down or in recovery.
    pub const CANNOT_CONNECT_NOW: SqlState = SqlState(*b"57P03");

    /// The code as text; bytes that are not ASCII (a broken server) show as `?????`.
    pub fn as_str(&self) -> &str {
        if self.0.is_ascii() { std::str::from_utf8(&self.0).unwrap_or("?????") } else { "?????" }
    }

    /// Class 40: the server rolled the transaction back for the sake of others and it may be tried again as a whole.
    pub fn is_retryable(self) -> bool {
        self == Self::SERIALIZATION_FAILURE || self == Self::DEADLOCK_DETECTED
    }

    /// True when the session is over after this error, whatever its severity: the server ends the connection.
    pub fn ends_session(self) -> bool {
        matches!(&self.0, b"57P01" | b"57P02" | b"57P03" | b"57P05")
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An ErrorResponse or NoticeResponse with the fields that people act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL`, `PANIC`, `WARNING`, `NOTICE`, ... never translated (field `V`; field `S` before PostgreSQL 9.6).
    pub severity: String,
    /// The code.
    pub sqlstate: SqlState,
    /// The primary message.
    pub message: String,
    /// Secondary message, when there is one.
    pub detail: Option<String>,
    /// The server's own suggestion.
    pub hint: Option<String>,
    /// Where in the query text the error is, counted in characters from 1.
    pub position: Option<u32>,
}

impl ServerError {
    /// Reads the body of an `E` or `N` message. Missing fields become empty: reading an error message must not
    /// cause another error.
    pub fn parse(body: &[u8]) -> ServerError {
        let mut error = ServerError {
            severity: String::new(),
            sqlstate: SqlState(*b"?????"),
            message: String::new(),
            detail: None,
            hint: None,
            position: None,
        };
        for (field, value) in fields(body) {
            let text = || shorten(&String::from_utf8_lossy(value)).into_owned();
            match field {
                b'V' => error.severity = text(),
                b'S' if error.severity.is_empty() => error.severity = text(),
                b'C' => {
                    if let Ok(code) = <[u8; 5]>::try_from(value) {
                        error.sqlstate = SqlState(code);
                    }
                }
                b'M' => error.message = text(),
                b'D' => error.detail = Some(text()),
                b'H' => error.hint = Some(text()),
                b'P' => error.position = std::str::from_utf8(value).ok().and_then(|p| p.parse().ok()),
                _ => {}
            }
        }
        error
    }

    /// Whether this NoticeResponse revokes a part of a successful COMMIT's promise: the wait for a synchronous standby was cancelled, so the
    /// transaction is here, visible, and perhaps on no standby. Recognised by the place in the server's source (field `R`; `syncrep.c`), which is not
    /// translated and no script can raise.
    pub fn is_cancelled_wait(body: &[u8]) -> bool {
        fields(body).any(|(field, value)| field == b'R' && value == b"SyncRepWaitForLSN")
    }

    /// Only the code, without building strings: for the hot path that counts errors by SQLSTATE.
    pub fn sqlstate_of(body: &[u8]) -> SqlState {
        fields(body)
            .find(|(field, _)| *field == b'C')
            .and_then(|(_, value)| <[u8; 5]>::try_from(value).ok())
            .map_or(SqlState(*b"?????"), SqlState)
    }

    /// The connection is closed by the server after this error.
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity, self.message, self.sqlstate)
    }
}

impl std::error::Error for ServerError {}

/// Bytes kept of a text of a server's: the rest of a longer quotation adds nothing.
pub(crate) const TEXT_KEPT_BYTES_MAX: usize = 16 << 10;

/// The text, cut between two characters if it is too long to be shown or recorded.
pub fn shorten(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_KEPT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(TEXT_KEPT_BYTES_MAX)];
    Cow::Owned(format!("{kept} ... and {} more bytes", text.len() - kept.len()))
}

/// The fields of an `E` or `N` body: (field type, value without its terminating zero).
fn fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let (&field, tail) = rest.split_first()?;
        if field == 0 {
            return None;
        }
        let end = tail.iter().position(|&b| b == 0)?;
        rest = &tail[end + 1..];
        Some((field, &tail[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_field_by_field() {
        let body = b"SFEHLER\0VERROR\0C40001\0Mcould not serialize\0Dbecause\0Hretry\0P17\0\0";
        let error = ServerError::parse(body);
        assert_eq!(error.severity, "ERROR");
        assert_eq!(error.sqlstate, SqlState::SERIALIZATION_FAILURE);
        assert_eq!(error.message, "could not serialize");
        assert_eq!(error.detail.as_deref(), Some("because"));
        assert_eq!(error.hint.as_deref(), Some("retry"));
        assert_eq!(error.position, Some(17));
        assert!(!error.is_fatal());
        assert_eq!(ServerError::sqlstate_of(body), SqlState::SERIALIZATION_FAILURE);
    }

    #[test]
    fn damaged_errors_do_not_panic() {
        for body in [&b""[..], b"\0", b"S", b"SERROR", b"C12\0", b"Mx\0\xff", b"C\xff\xff\xff\xff\xff\0\0"] {
            let error = ServerError::parse(body);
            assert_eq!(error.sqlstate.as_str().len(), 5);
            assert_eq!(ServerError::sqlstate_of(body), error.sqlstate);
        }
    }

    #[test]
    fn a_message_of_megabytes_is_cut() {
        let body = [b"SERROR\0CXX000\0M".as_slice(), "\u{e4}".repeat(1 << 20).as_bytes(), b"\0\0"].concat();
        let error = ServerError::parse(&body);
        assert!(
            error.message.len() <= TEXT_KEPT_BYTES_MAX + 40
                && error.message.ends_with(" ... and 2080768 more bytes")
        );
    }

    #[test]
    fn only_class_40_is_retried() {
        assert!(SqlState(*b"40001").is_retryable() && SqlState(*b"40P01").is_retryable());
        assert!(!SqlState(*b"40002").is_retryable() && !SqlState(*b"23505").is_retryable());
        assert!(SqlState(*b"57P01").ends_session() && !SqlState::DISK_FULL.ends_session());
    }
}
