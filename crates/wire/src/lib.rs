//! The PostgreSQL frontend/backend protocol 3.0, sans-IO: bytes in, bytes out.
//!
//! Nothing here opens a socket, reads a clock or allocates behind the caller's back: encoders append to a buffer that the caller
//! owns and reuses, decoders borrow from it. The hot path (`run`, `load`) is built on this layer because a general client
//! spends more on queues and wake-ups than the protocol itself costs; the control plane uses the `postgres` crate.
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
    pub const INT8: u32 = 20;
    /// `int4`.
    pub const INT4: u32 = 23;
    /// `text`.
    pub const TEXT: u32 = 25;
    /// `float8`.
    pub const FLOAT8: u32 = 701;
    /// Leave the choice to the server, as libpq does when no parameter types are given.
    pub const UNSPECIFIED: u32 = 0;
}

/// The longest message this client accepts from a server, in bytes: a length beyond it means that the stream is not PostgreSQL
/// or is damaged, and no buffer is grown for it. PostgreSQL itself refuses to build messages beyond 1 GiB.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
