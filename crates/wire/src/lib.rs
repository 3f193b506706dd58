//! The hot path's protocol, sans-IO: bytes in, bytes out.
