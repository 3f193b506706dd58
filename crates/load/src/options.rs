//! The options of a load, and how to stop it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::dataset::Dataset;
use crate::error::LoadError;
pub use crate::method::{Method, MethodError, Via, ViaError};
use crate::plan::{PARTITIONS_MAX, ROWS_MAX, STREAMS_MAX};

/// How long a stream tries to get back to a server that went away.
pub(crate) const RECONNECT_LIMIT: Duration = Duration::from_secs(300);

/// What a load shall do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hash partitions: 0 or 1 is a plain table, `None` whatever the dataset has already, else a plain table.
    pub partitions: Option<u32>,
    /// Connections that load at once.
    pub streams: usize,
    /// `None` is whatever the dataset was begun with, else [`Method::Copy`].
    pub method: Option<Method>,
    /// Drop what is ours and start over.
    pub restart: bool,
    /// Names of foreign tables that may be dropped because the user typed them.
    pub force: Vec<String>,
    /// Tablespaces that leaf tables are assigned to in turn, each with its index; none is the server's default, or as an earlier load made it.
    pub tablespaces: Vec<String>,
    /// How long a stream tries to get back to a server that went away.
    pub reconnect_limit: Duration,
    /// Rows per chunk; `None` lets [`crate::plan::Chunks`] decide. Only a new dataset uses it.
    pub chunk_rows: Option<u64>,
    /// Which way rows take to the nodes of a sharded cluster; `None` is whatever the dataset was begun with, else [`Via::Owner`]; or that they enter an
    /// engine's cluster at all nodes ([`Via::Each`]).
    pub via: Option<Via>,
    /// Which part of the chunks to load: `i` of `n`, counted from 1.
    pub segment: Segment,
    /// Unlogged tables: a crash of the server empties them.
    pub unlogged: bool,
    /// End when a disk that holds the data has less than this free, in bytes.
    pub keep_free_bytes: Option<u64>,
    /// End at this time.
    pub deadline: Option<Deadline>,
}

/// When a load shall end, done or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// So long after its start.
    After(Duration),
    /// At a point in time, in any notation that the server reads as `timestamptz`.
    At(String),
}

/// A share of the chunks, for loaders that work side by side on several machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    number: u32,
    of: u32,
}

impl Segment {
    /// Everything.
    pub const ALL: Segment = Segment { number: 1, of: 1 };

    /// Share `number` (from 1) `of` so many; `None` when there is no such share.
    pub fn new(number: u32, of: u32) -> Option<Segment> {
        (1..=of).contains(&number).then_some(Segment { number, of })
    }

    /// Whether it is everything.
    pub fn is_all(self) -> bool {
        self.of == 1
    }

    /// The chunks of this share. The shares of all numbers cover every chunk once.
    pub fn chunks(self, count: u64) -> std::ops::Range<u64> {
        let bound = |number: u32| (u128::from(count) * u128::from(number) / u128::from(self.of)) as u64;
        bound(self.number - 1)..bound(self.number)
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The text is no share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is not a segment: i/N with i from 1 to N is expected")]
pub struct SegmentError(String);

impl std::str::FromStr for Segment {
    type Err = SegmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        parts.and_then(|(number, of)| Segment::new(number, of)).ok_or_else(|| SegmentError(text.to_owned()))
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// Every default.
    pub fn new() -> Options {
        Options {
            partitions: None,
            streams: 2,
            method: None,
            restart: false,
            force: Vec::new(),
            tablespaces: Vec::new(),
            reconnect_limit: RECONNECT_LIMIT,
            chunk_rows: None,
            via: None,
            segment: Segment::ALL,
            unlogged: false,
            keep_free_bytes: None,
            deadline: None,
        }
    }

    /// Refuses what is wrong without any server.
    ///
    /// # Errors
    /// [`LoadError::Option`] with the flag's name.
    pub fn check(&self, dataset: &dyn Dataset) -> Result<(), LoadError> {
        let refuse = |flag: &'static str, problem: String, hint: String| {
            Err(LoadError::Option { flag, problem, hint })
        };
        let rows = dataset.numbers();
        if rows > ROWS_MAX {
            return refuse(
                "--rows",
                format!("{rows} rows are more than a dataset can have"),
                format!("give at most {ROWS_MAX}"),
            );
        }
        if self.partitions.is_some_and(|partitions| partitions > PARTITIONS_MAX) {
            return refuse(
                "--partitions",
                format!("{} partitions are too many", self.partitions.unwrap_or_default()),
                format!("give at most {PARTITIONS_MAX}; PostgreSQL plans and locks every one of them"),
            );
        }
        if self.streams == 0 || self.streams > STREAMS_MAX {
            return refuse(
                "-j",
                format!("{} streams are not possible", self.streams),
                format!("give 1 to {STREAMS_MAX}; start with about one per core of the server"),
            );
        }
        let is_ours = |name: &String| {
            dataset.tables().iter().any(|table| {
                let leaf = name.strip_prefix(table.name).and_then(|rest| rest.strip_prefix("_p"));
                let is_leaf =
                    |number: &str| number.parse::<u32>().is_ok_and(|number| number < PARTITIONS_MAX);
                name == table.name || leaf.is_some_and(is_leaf)
            })
        };
        if let Some(name) = self.force.iter().find(|name| !is_ours(name)) {
            let names: Vec<&str> = dataset.tables().iter().map(|table| table.name).collect();
            let (first, names) = (names[0], names.join(", "));
            return refuse(
                "--force",
                format!("{name} is not a table of load {}, so nothing would be dropped", dataset.name()),
                format!("use {names}, or a leaf table as {first}_p0, without a schema"),
            );
        }
        if self.chunk_rows.is_some_and(|rows| rows == 0 || rows > crate::plan::CHUNK_ROWS_MAX) {
            return refuse(
                "--chunk-rows",
                format!("chunks of {} rows are not possible", self.chunk_rows.unwrap_or_default()),
                format!("give 1 to {}", crate::plan::CHUNK_ROWS_MAX),
            );
        }
        Ok(())
    }
}

/// A request to stop, shared with the signal handler. Requests only ever become more urgent.
///
/// | level | set by | a stream |
/// |---|---|---|
/// | run | no one | takes chunk after chunk |
/// | drain | the first Ctrl-C or SIGTERM | finishes the chunk in its hands if that takes seconds, else rolls it back |
/// | now | the second one | rolls back what it has in its hands, even from inside a blocked system call |
///
/// At every level the target ends exact: what is committed is in the ledger, and nothing else is there.
#[derive(Debug, Default)]
pub struct Stop {
    level: AtomicU8,
    /// Why, when it is not the user who stops it.
    reason: OnceLock<String>,
}

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
    /// No stop was requested yet.
    pub const fn new() -> Stop {
        Stop { level: AtomicU8::new(0), reason: OnceLock::new() }
    }

    /// One more request: the first drains, the second stops at once. Safe inside a signal handler.
    pub fn request(&self) {
        let next = |level: u8| Some(level.saturating_add(1).min(StopLevel::Now as u8));
        // The closure never refuses, so there is no error to look at.
        let _ = self.level.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Requests at least this urgency.
    pub fn request_level(&self, level: StopLevel) {
        self.level.fetch_max(level as u8, Ordering::SeqCst);
    }

    /// A stop rule requests to drain; the first reason counts.
    pub(crate) fn request_because(&self, reason: String) {
        if self.level() == StopLevel::Run {
            let _ = self.reason.set(reason);
        }
        self.request_level(StopLevel::Drain);
    }

    /// The stop rule that requested it, when it was not the user.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// How urgent it is.
    pub fn level(&self) -> StopLevel {
        match self.level.load(Ordering::Relaxed) {
            0 => StopLevel::Run,
            1 => StopLevel::Drain,
            _ => StopLevel::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::Ycsb;
    use data::ycsb::{Compressible, KeyOrder, Spec};

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
    fn segments_cover_every_chunk_once() {
        for of in [1, 2, 3, 7, 100] {
            for count in [0, 1, 5, 12, 1 << 24] {
                let mut next = 0;
                for number in 1..=of {
                    let chunks = Segment::new(number, of).unwrap().chunks(count);
                    assert_eq!(chunks.start, next);
                    next = chunks.end;
                }
                assert_eq!(next, count);
            }
        }
        assert_eq!("2/3".parse(), Ok(Segment::new(2, 3).unwrap()));
        assert_eq!(Segment::new(2, 3).unwrap().to_string(), "2/3");
        for text in ["0/3", "4/3", "1", "1/0", "a/b", "1/2/3", ""] {
            let error = text.parse::<Segment>().unwrap_err();
            assert!(error.to_string().contains("from 1 to N"), "{error}");
        }
    }

    #[test]
    fn impossible_options_name_their_flag_and_a_way_out() {
        let spec = Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
        let check = |rows: u64, options: &Options| options.check(&Ycsb::new(rows, spec.clone()));
        assert!(check(0, &Options::new()).is_ok());
        assert!(check(ROWS_MAX, &Options::new()).is_ok());
        let cases = [
            (ROWS_MAX + 1, Options::new(), "--rows"),
            (1, Options { partitions: Some(PARTITIONS_MAX + 1), ..Options::new() }, "--partitions"),
            (1, Options { streams: 0, ..Options::new() }, "-j"),
            (1, Options { streams: STREAMS_MAX + 1, ..Options::new() }, "-j"),
            (1, Options { chunk_rows: Some(0), ..Options::new() }, "--chunk-rows"),
        ];
        for (rows, options, flag) in cases {
            let error = check(rows, &options).unwrap_err();
            assert!(error.to_string().starts_with(flag), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
