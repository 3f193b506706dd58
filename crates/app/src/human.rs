//! Numbers as people read them, under the names that the verbs use.

pub use record::number::{bytes, count, counted as plural, duration as seconds, latency, memory, short};
