//! The kind of process that wrote a line, by the fields of the line.

/// The kind of process that wrote a line. The order is by suspicion: of several readings of a prefix the last one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Writer {
    /// A process of the server that serves no client.
    Server,
    /// The line does not show it.
    #[default]
    Unknown,
    /// A process that serves a client, or a part of its query.
    Session,
}

/// Processes of the server that serve no client, by their names in `%b` and `backend_type` (`GetBackendTypeDesc` in miscinit.c).
const OF_SERVER: [&str; 15] = [
    "postmaster",
    "startup",
    "checkpointer",
    "background writer",
    "walwriter",
    "walreceiver",
    "walsummarizer",
    "wal summarizer",
    "archiver",
    "logger",
    "stats collector",
    "io worker",
    "autovacuum launcher",
    "autovacuum worker",
    "logical replication launcher",
];
/// Processes that serve a client.
const OF_SESSIONS: [&str; 4] = ["client backend", "parallel worker", "walsender", "dead-end client backend"];

impl Writer {
    /// By the name of its kind. Other names are those of background workers, which may run what users wrote.
    pub(crate) fn of_backend(name: &str) -> Writer {
        match name {
            name if OF_SERVER.contains(&name) => Writer::Server,
            name if OF_SESSIONS.contains(&name) => Writer::Session,
            _ => Writer::Unknown,
        }
    }
}
