//! Numbers in sentences, under the names that the rules use.

pub(crate) use record::number::{
    bytes, duration as seconds, latency as us, percent, short as count, three as short,
};

/// `1 second`, `3 seconds`: a count with its word.
pub(crate) fn counted(count: usize, word: &str) -> String {
    record::number::counted(count as u64, word)
}

/// `1 CPU`, `0.5 CPUs`.
pub(crate) fn counted_cpus(cpus: f64) -> String {
    format!("{} {}", short(cpus), if cpus == 1.0 { "CPU" } else { "CPUs" })
}
