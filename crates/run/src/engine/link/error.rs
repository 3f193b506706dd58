//! Why a connection can no longer be used.

use std::io;

use wire::backend::{ProtocolError, tag};
use wire::error::{ServerError, SqlState};

/// Why a connection can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server closed the connection without a word.
    #[error("the server closed the connection unexpectedly")]
    Closed,
    /// The server sent a reason, and closed the connection.
    #[error("{0}")]
    Fatal(ServerError),
    /// The socket failed.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// What came is not the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// TLS failed.
    #[error("TLS failed: {0}")]
    Tls(#[from] rustls::Error),
    /// A statement made the server wait for rows, or send some, outside of any result.
    #[error("a COPY from or to the client began, which pgfathom does not support in a transaction")]
    Copy,
    /// A result that is read, or an answer without rows, is longer than a session keeps.
    #[error(
        "the reply is longer than this client accepts ({} MiB that it has to keep)",
        wire::REPLY_BYTES_MAX >> 20
    )]
    TooLong,
}

/// A length that a server may send, and that nothing here is prepared for.
pub(super) fn is_too_long(error: &ProtocolError) -> bool {
    match error {
        ProtocolError::TooMuch { .. } => true,
        ProtocolError::Length { tag, length } => {
            matches!(
                *tag,
                tag::DATA_ROW | tag::ERROR_RESPONSE | tag::NOTICE_RESPONSE | tag::NOTIFICATION_RESPONSE
            ) && (4..1 << 30).contains(length)
        }
        _ => false,
    }
}

pub(super) fn too_long_or_damaged(error: ProtocolError) -> LinkError {
    if is_too_long(&error) { LinkError::TooLong } else { error.into() }
}

impl LinkError {
    /// The code to count it under: the server's own where it gave one, else 08006, connection failure.
    pub fn sqlstate(&self) -> SqlState {
        match self {
            LinkError::Fatal(error) => error.sqlstate,
            LinkError::Protocol(_) => SqlState(*b"08P01"),
            // Feature not supported: here it is the client's.
            LinkError::Copy => SqlState(*b"0A000"),
            // Program limit exceeded, likewise.
            LinkError::TooLong => SqlState(*b"54000"),
            _ => SqlState(*b"08006"),
        }
    }
}
