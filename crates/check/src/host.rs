//! Judges what was measured and read of a host.

pub mod disk;
