//! `latency.hlog`: a standard HdrHistogram interval log (format 1.3, V2 deflate, base64), readable by every HDR tool.
//!
//! One line per interval and tag. A tag is `STEP/TYPE.KIND`, for example `run-ycsb-a/ycsb-read.response`. Values are
//! microseconds; the readable maximum on each line is in milliseconds. Line times are seconds since the `StartTime` in the
//! head of the file, which is the run's wall-clock anchor; they equal `t_us` / 10^6.
//! Source of the format: HdrHistogram's `HistogramLogWriter` and `HistogramLogReader` (Java).

use crate::clock::{Clock, rfc3339};
use crate::error::RecordError;
use crate::histogram::Latency;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::fmt::Write as _;

/// The readable maximum on each line is the recorded one (microseconds) divided by this: milliseconds.
const MAX_VALUE_DIVISOR: f64 = 1000.0;

/// Which latency a histogram holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// From the scheduled start to the end.
    Response,
    /// From the real start to the end.
    Service,
    /// From the moment a session was free and a transaction due to the real start.
    Lag,
}

impl Kind {
    /// The word in tags.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Response => "response",
            Kind::Service => "service",
            Kind::Lag => "lag",
        }
    }

    fn of_word(word: &str) -> Option<Kind> {
        [Kind::Response, Kind::Service, Kind::Lag].into_iter().find(|kind| kind.word() == word)
    }
}

/// The head of the file.
pub fn header(run_id: &str, clock: &Clock) -> String {
    let seconds = clock.wall_us as f64 / 1e6;
    format!(
        "#[Histogram log format version 1.3]\n#[pgfathom schema version {}; run {run_id}; values in microseconds, maximum column in milliseconds; Tag=STEP/TYPE.KIND]\n#[StartTime: {seconds:.3} (seconds since epoch), {}]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        crate::SCHEMA_VERSION,
        rfc3339(clock.wall_us),
    )
}

/// A name made fit for a tag: no comma, white space or control character may end or split a tag.
pub fn tag_part(name: &str) -> String {
    name.chars().map(|c| if c == ',' || c.is_whitespace() || c.is_control() { '_' } else { c }).collect()
}

/// The tag of a step, transaction type and kind.
pub fn tag(step: &str, transaction_type: &str, kind: Kind) -> String {
    format!("{}/{}.{}", tag_part(step), tag_part(transaction_type), kind.word())
}

/// One interval as a line, line feed included. Encodes the histogram (some 100 us): never call it on a worker.
pub fn line(tag: &str, start_us: u64, end_us: u64, latency: &Latency) -> Result<String, RecordError> {
    let mut encoded = vec![];
    V2DeflateSerializer::new()
        .serialize(latency.histogram(), &mut encoded)
        .map_err(|error| RecordError::Encode { tag: tag.to_string(), reason: error.to_string() })?;
    let mut line = String::with_capacity(encoded.len() * 4 / 3 + tag.len() + 64);
    let seconds = |us: u64| us as f64 / 1e6;
    write!(
        line,
        "Tag={tag},{:.6},{:.6},{:.3},",
        seconds(start_us),
        seconds(end_us.saturating_sub(start_us)),
        latency.max_us() as f64 / MAX_VALUE_DIVISOR
    )
    .expect("writing into a String cannot fail");
    STANDARD.encode_string(&encoded, &mut line);
    line.push('\n');
    Ok(line)
}

/// One interval, as read.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Key of the step; empty in logs of other programs.
    pub step: String,
    /// Transaction type; the whole tag in logs of other programs.
    pub transaction_type: String,
    /// Which latency; foreign logs count as response time.
    pub kind: Kind,
    /// Start.
    pub start_us: u64,
    /// End.
    pub end_us: u64,
    /// The samples. Mean and maximum are as exact as the buckets.
    pub latency: Latency,
}

/// What was read from a log, and why reading ended early, if it did.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In file order.
    pub intervals: Vec<Interval>,
    /// Sentences: a torn last line, lines that hold no histogram.
    pub problems: Vec<String>,
}

/// Reads a log. A torn last line (the writer was killed) is left out and said; so is a line that cannot be decoded.
pub fn parse(bytes: &[u8]) -> Log {
    let mut log = Log::default();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        log.problems.push("latency.hlog: the last line is torn and left out".to_string());
    }
    let mut deserializer = Deserializer::new();
    let mut undecodable = 0u64;
    for entry in IntervalLogIterator::new(&bytes[..whole]) {
        let interval = match entry {
            Ok(LogEntry::Interval(interval)) => interval,
            Ok(LogEntry::StartTime(_) | LogEntry::BaseTime(_)) => continue,
            Err(_) => {
                undecodable += 1;
                break;
            }
        };
        let decoded = STANDARD
            .decode(interval.encoded_histogram())
            .ok()
            .and_then(|bytes| deserializer.deserialize::<u64, _>(&mut bytes.as_slice()).ok());
        let Some(histogram) = decoded else {
            undecodable += 1;
            continue;
        };
        let (step, transaction_type, kind) = split_tag(interval.tag().map_or("", |tag| tag.as_str()));
        let start_us = interval.start_timestamp().as_nanos().div_ceil(1000) as u64;
        log.intervals.push(Interval {
            step,
            transaction_type,
            kind,
            start_us,
            end_us: start_us + interval.duration().as_micros() as u64,
            latency: Latency::from_histogram(&histogram),
        });
    }
    if undecodable > 0 {
        log.problems
            .push(format!("latency.hlog: {undecodable} lines hold no readable histogram and are left out"));
    }
    log
}

fn split_tag(tag: &str) -> (String, String, Kind) {
    let foreign = || (String::new(), tag.to_string(), Kind::Response);
    let Some((path, word)) = tag.rsplit_once('.') else { return foreign() };
    let Some(kind) = Kind::of_word(word) else { return foreign() };
    match path.split_once('/') {
        Some((step, transaction_type)) => (step.to_string(), transaction_type.to_string(), kind),
        None => (String::new(), path.to_string(), kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock { monotonic_us: 77, wall_us: 1_763_633_700_123_456 }
    }

    fn some_latency() -> Latency {
        let mut latency = Latency::new();
        (1..5000u64).for_each(|us| latency.record_us(us * us % 70_000));
        latency
    }

    #[test]
    fn what_is_written_is_read_back_bucket_by_bucket() {
        let latency = some_latency();
        let mut text = header("r", &clock());
        text += &line(&tag("run-a", "ycsb-read", Kind::Service), 1_000_001, 2_000_003, &latency)
            .expect("encodes");
        text += &line(&tag("run-a", "my, odd\nname", Kind::Lag), 2_000_003, 3_000_000, &Latency::new())
            .expect("encodes");
        let log = parse(text.as_bytes());
        assert_eq!(log.problems, Vec::<String>::new());
        let [first, second] = log.intervals.as_slice() else { panic!("two intervals: {log:?}") };
        assert_eq!((first.step.as_str(), first.transaction_type.as_str()), ("run-a", "ycsb-read"));
        assert_eq!((first.kind, first.start_us, first.end_us), (Kind::Service, 1_000_001, 2_000_003));
        assert_eq!(first.latency.buckets().collect::<Vec<_>>(), latency.buckets().collect::<Vec<_>>());
        assert_eq!((second.transaction_type.as_str(), second.kind), ("my__odd_name", Kind::Lag));
        assert!(second.latency.is_empty());
    }

    #[test]
    fn the_library_reads_start_time_and_tags_as_any_tool_would() {
        let text =
            header("r", &clock()) + &line("s/t.response", 0, 1_000_000, &some_latency()).expect("encodes");
        let entries: Vec<_> =
            IntervalLogIterator::new(text.as_bytes()).collect::<Result<_, _>>().expect("parses");
        let LogEntry::StartTime(start) = &entries[0] else { panic!("start time first: {entries:?}") };
        assert_eq!(start.as_millis(), 1_763_633_700_123);
        let LogEntry::Interval(interval) = &entries[1] else { panic!("then the interval") };
        assert_eq!(interval.tag().map(|tag| tag.as_str()), Some("s/t.response"));
        assert!((interval.max() - some_latency().max_us() as f64 / 1000.0).abs() < 0.001);
    }

    #[test]
    fn a_torn_log_gives_what_was_whole() {
        let one = line("s/t.response", 0, 1_000_000, &some_latency()).expect("encodes");
        let text = header("r", &clock()) + &one + &one;
        for cut in 1..one.len() {
            let log = parse(&text.as_bytes()[..text.len() - cut]);
            assert_eq!((log.intervals.len(), log.problems.len()), (1, 1), "cut {cut}");
        }
    }

    #[test]
    fn rubbish_is_counted_and_foreign_tags_are_kept() {
        let good = line("plain", 0, 1_000_000, &some_latency()).expect("encodes");
        let log = parse(format!("Tag=x,0.0,1.0,2.0,AAAA\n{good}").as_bytes());
        assert_eq!(log.intervals.len(), 1);
        assert_eq!(
            (log.intervals[0].step.as_str(), log.intervals[0].transaction_type.as_str()),
            ("", "plain")
        );
        assert_eq!(log.problems.len(), 1);
        assert!(parse(b"\x00\xff\x00").intervals.is_empty());
    }
}
