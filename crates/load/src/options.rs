//! What the user asked for, and how to stop it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use data::ycsb::Spec;

use crate::error::LoadError;
use crate::plan::{PARTITIONS_MAX, ROWS_MAX, STREAMS_MAX};

/// How rows get into their tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// Chunks of rows, one transaction each, logged: any number of streams, resumes chunk by chunk.
    #[default]
    Copy,
    /// Leaf by leaf: each is truncated, filled and frozen in one transaction. Nothing has to be frozen later, no WAL is written when
    /// `wal_level = minimal`; at most one stream per leaf, resumes leaf by leaf.
    Freeze,
}

impl Method {
    /// The word for it on the command line and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Copy => "copy",
            Method::Freeze => "freeze",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is neither `copy` nor `freeze`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown method \"{0}\": expected copy or freeze")]
pub struct MethodError(String);

impl std::str::FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "copy" => Ok(Method::Copy),
            "freeze" => Ok(Method::Freeze),
            _ => Err(MethodError(text.to_owned())),
        }
    }
}

/// Which way rows take to the nodes of a cluster that they are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Via {
    /// Each row straight to its leaf table on the node that owns it.
    #[default]
    Owner,
    /// All rows into the parent table on the first node, which sends them on: the slow way, as a control.
    Connect,
}

impl Via {
    /// The word for it on the command line and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Via::Owner => "owner",
            Via::Connect => "connect",
        }
    }
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is neither `owner` nor `connect`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown way \"{0}\": expected owner or connect")]
pub struct ViaError(String);

impl std::str::FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "owner" => Ok(Via::Owner),
            "connect" => Ok(Via::Connect),
            _ => Err(ViaError(text.to_owned())),
        }
    }
}

/// How long a stream tries to get back to a server that went away.
pub const RECONNECT_LIMIT: Duration = Duration::from_secs(300);

/// What `load ycsb` shall do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows of the dataset; 0 is an empty table.
    pub rows: u64,
    /// Hash partitions: 0 or 1 is a plain table, `None` whatever the dataset has already, else a plain table.
    pub partitions: Option<u32>,
    /// Connections that load at once.
    pub streams: usize,
    /// Seed, key order, compressibility.
    pub spec: Spec,
    /// `None` is whatever the dataset was begun with, else [`Method::Copy`].
    pub method: Option<Method>,
    /// Drop what is ours and start over.
    pub restart: bool,
    /// Names of foreign tables that may be dropped because the user typed them.
    pub force: Vec<String>,
    /// Tablespace of tables and indexes; `None` is the server's default.
    pub tablespace: Option<String>,
    /// How long a stream tries to get back to a server that went away.
    pub reconnect_limit: Duration,
    /// Rows per chunk; `None` lets [`crate::plan::Chunks`] decide. Only a new dataset is asked.
    pub chunk_rows: Option<u64>,
}

impl Options {
    /// A load of `rows` rows with every default.
    pub fn new(rows: u64, spec: Spec) -> Options {
        Options {
            rows,
            partitions: None,
            streams: 2,
            spec,
            method: None,
            restart: false,
            force: Vec::new(),
            tablespace: None,
            reconnect_limit: RECONNECT_LIMIT,
            chunk_rows: None,
        }
    }

    /// Refuses what no server has to be asked about.
    ///
    /// # Errors
    /// [`LoadError::Option`] with the flag's name.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |flag: &'static str, problem: String, hint: String| {
            Err(LoadError::Option { flag, problem, hint })
        };
        if self.rows > ROWS_MAX {
            return refuse(
                "--rows",
                format!("{} rows are more than a dataset can have", self.rows),
                format!("ask for at most {ROWS_MAX}"),
            );
        }
        if self.partitions.is_some_and(|partitions| partitions > PARTITIONS_MAX) {
            return refuse(
                "--partitions",
                format!("{} partitions are too many", self.partitions.unwrap_or_default()),
                format!("ask for at most {PARTITIONS_MAX}; PostgreSQL plans and locks every one of them"),
            );
        }
        if self.streams == 0 || self.streams > STREAMS_MAX {
            return refuse(
                "-j",
                format!("{} streams make no sense", self.streams),
                format!("ask for 1 to {STREAMS_MAX}; about one per core of the server is a good start"),
            );
        }
        if self.chunk_rows.is_some_and(|rows| rows == 0 || rows > crate::plan::CHUNK_ROWS_MAX) {
            return refuse(
                "--chunk-rows",
                format!("chunks of {} rows are not possible", self.chunk_rows.unwrap_or_default()),
                format!("ask for 1 to {}", crate::plan::CHUNK_ROWS_MAX),
            );
        }
        Ok(())
    }
}

/// A request to stop, shared with whoever catches signals. Requests only ever become more urgent.
///
/// | level | set by | a stream |
/// |---|---|---|
/// | run | nobody | takes chunk after chunk |
/// | drain | the first Ctrl-C or SIGTERM | finishes the chunk in its hands if that takes seconds, else rolls it back |
/// | now | the second one | rolls back what it has in its hands, even from inside a blocked system call |
///
/// At every level the target ends exact: what is committed is in the ledger, and nothing else is there.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

/// How urgently to stop; see [`Stop`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StopLevel {
    /// Go on.
    Run,
    /// End soon.
    Drain,
    /// End at once.
    Now,
}

impl Stop {
    /// Nobody has asked yet.
    pub const fn new() -> Stop {
        Stop(AtomicU8::new(0))
    }

    /// One more request: the first drains, the second stops at once. Safe inside a signal handler.
    pub fn request(&self) {
        let next = |level: u8| Some(level.saturating_add(1).min(StopLevel::Now as u8));
        // The closure never refuses, so there is no error to look at.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Asks for at least this urgency.
    pub fn request_level(&self, level: StopLevel) {
        self.0.fetch_max(level as u8, Ordering::SeqCst);
    }

    /// How urgent it is.
    pub fn level(&self) -> StopLevel {
        match self.0.load(Ordering::Relaxed) {
            0 => StopLevel::Run,
            1 => StopLevel::Drain,
            _ => StopLevel::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::ycsb::{Compressible, KeyOrder};

    fn options(rows: u64) -> Options {
        Options::new(rows, Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
    }

    #[test]
    fn stop_only_becomes_more_urgent() {
        let stop = Stop::new();
        assert_eq!(stop.level(), StopLevel::Run);
        stop.request();
        assert_eq!(stop.level(), StopLevel::Drain);
        stop.request();
        stop.request();
        assert_eq!(stop.level(), StopLevel::Now);
        stop.request_level(StopLevel::Drain);
        assert_eq!(stop.level(), StopLevel::Now);
    }

    #[test]
    fn methods_are_spelled_as_on_the_command_line() {
        for method in [Method::Copy, Method::Freeze] {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert!("insert".parse::<Method>().is_err());
    }

    #[test]
    fn impossible_options_name_their_flag_and_a_way_out() {
        assert!(options(0).check().is_ok());
        assert!(options(ROWS_MAX).check().is_ok());
        let cases = [
            (options(ROWS_MAX + 1), "--rows"),
            (Options { partitions: Some(PARTITIONS_MAX + 1), ..options(1) }, "--partitions"),
            (Options { streams: 0, ..options(1) }, "-j"),
            (Options { streams: STREAMS_MAX + 1, ..options(1) }, "-j"),
            (Options { chunk_rows: Some(0), ..options(1) }, "--chunk-rows"),
        ];
        for (options, flag) in cases {
            let error = options.check().unwrap_err();
            assert!(error.to_string().starts_with(flag), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
