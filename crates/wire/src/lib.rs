//! The PostgreSQL frontend/backend protocol 3.0, sans-IO: bytes in, bytes out.
//!
//! Nothing here opens a socket, reads a clock or allocates without the caller's knowledge: encoders append to a buffer that the caller
//! owns and reuses, decoders borrow from it. The hot path (`run`, `load`) is built on this layer because a general client
//! spends more on queues and wake-ups than the protocol itself costs; the control plane uses `tokio-postgres`.
//!
//! Source of the formats: PostgreSQL documentation, chapter "Frontend/Backend Protocol", sections "Message Formats" and
//! "Error and Notice Message Fields".

pub mod backend;
pub mod copy;
pub mod error;
pub mod frontend;
pub mod prepared;
pub mod startup;

/// A type OID of the server's catalog (`pg_type.dat`), for the few types the hot path names itself.
pub mod oid {
    /// `int8`.
    pub(crate) const INT8: u32 = 20;
    /// `int4`.
    pub(crate) const INT4: u32 = 23;
    /// `text`.
    pub const TEXT: u32 = 25;
    /// `float8`.
    pub(crate) const FLOAT8: u32 = 701;
    /// Leave the choice to the server, as libpq does when no parameter types are given.
    pub const UNSPECIFIED: u32 = 0;
}

/// The longest message this client accepts from a server, in bytes: a length beyond it means that the stream is not PostgreSQL
/// or is damaged, and no buffer is grown for it. No benchmark reads a longer row.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The longest error, notice, notification or setting, in bytes. The longest that PostgreSQL sends quote a statement.
pub(crate) const TEXT_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The longest reply to one request, in bytes, of a session that keeps it until its end. There are many sessions, so the limit is
/// what an application could hold, not what a server can send.
pub const REPLY_BYTES_MAX: usize = 64 << 20;
