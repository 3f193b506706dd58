//! `latency.hlog`: a standard HdrHistogram interval log (format 1.3, V2 deflate, base64), readable by every HDR tool.
//!
//! One line per interval and tag. A tag is `STEP/TYPE.KIND`, for example `run-ycsb-a/ycsb-read.response`. Values are
//! microseconds; the readable maximum on each line is in milliseconds. Line times are seconds since the `StartTime` in the
//! head of the file, which is the run's wall-clock anchor; they equal `t_us` / 10^6.
//! Source of the format: HdrHistogram's `HistogramLogWriter` and `HistogramLogReader` (Java).

use crate::clock::{Clock, rfc3339};
use crate::error::RecordError;
use crate::file::Lines;
use crate::histogram::Latency;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

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
        "#[Histogram log format version 1.3]\n#[pgfathom schema version {}; run {run_id}; values in microseconds, maximum column in milliseconds; \
         Tag=STEP/TYPE.KIND]\n#[StartTime: {seconds:.3} (seconds since epoch), \
         {}]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
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

/// One interval of a log: the fields of its line, and where its histogram stands. Histograms stay in the file until a [`Decoder`]
/// is requested to keep them, because a day of them does not fit into memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Key of the step; empty in logs of other programs.
    pub step: Arc<str>,
    /// Transaction type; the whole tag in logs of other programs.
    pub transaction_type: Arc<str>,
    /// Which latency; foreign logs count as response time.
    pub kind: Kind,
    /// Start.
    pub start_us: u64,
    /// End.
    pub end_us: u64,
    /// Where the encoded histogram begins in the file, and its length in bytes.
    offset: u64,
    length: usize,
}

/// The lines of a log, and sentences about what could not be read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In file order.
    pub intervals: Vec<Interval>,
    /// A torn last line, lines that hold no interval.
    pub problems: Vec<String>,
    /// Comments and heads of columns.
    heads: u64,
    /// Lines that are neither those nor intervals.
    odd: u64,
}

impl Log {
    /// Whether the file is something else than a log: most of its lines are no lines of a log.
    pub fn is_foreign(&self) -> bool {
        self.odd > self.heads + self.intervals.len() as u64
    }
}

/// Time stamps above this many seconds cannot be relative to the start of a run: they count from the Unix epoch.
const RELATIVE_S_MAX: f64 = 1e8;

/// Intervals kept in memory: those of a month of three transaction types.
const INTERVALS_MAX: usize = 10_000_000;
/// A histogram takes this many bytes unpacked at most: five digits of a second's microseconds take a tenth.
const HISTOGRAM_BYTES_MAX: u32 = 16 << 20;

/// Reads the lines of a log, not their histograms. A torn last line (the writer was killed) is left out and reported; so are lines
/// that hold no interval.
///
/// # Errors
/// Those of reading.
pub fn index(log: impl Read) -> io::Result<Log> {
    let mut found = Log::default();
    let mut names: HashMap<String, (Arc<str>, Arc<str>, Kind)> = HashMap::new();
    let (mut base_s, mut begun) = (0.0, false);
    let mut lines = Lines::new(log);
    while let Some(line) = lines.next_line()? {
        let first = line.bytes.first().copied();
        if line.is_torn {
            // Half of a first line is a log's only if it begins like one.
            found.odd += u64::from(line.offset == 0 && !matches!(first, Some(b'#' | b'"' | b'T')));
            found.problems.push("latency.hlog: the last line is incomplete and was skipped".to_string());
            break;
        }
        if !line.is_too_long && matches!(first, None | Some(b'#' | b'"' | b'\r')) {
            found.heads += 1;
            continue;
        }
        let Some(head) = std::str::from_utf8(line.bytes).ok().and_then(Head::parse) else {
            found.odd += 1;
            continue;
        };
        if found.intervals.len() == INTERVALS_MAX {
            found.problems.push(format!("latency.hlog: lines after the first {INTERVALS_MAX} were skipped"));
            break;
        }
        if !begun && head.start_s > RELATIVE_S_MAX {
            base_s = head.start_s;
        }
        begun = true;
        let (step, transaction_type, kind) =
            names.entry(head.tag.to_string()).or_insert_with(|| split_tag(head.tag)).clone();
        let us = |seconds: f64| (seconds.max(0.0) * 1e6).round() as u64;
        let start_us = us(head.start_s - base_s);
        found.intervals.push(Interval {
            step,
            transaction_type,
            kind,
            start_us,
            end_us: start_us.saturating_add(us(head.length_s)),
            offset: line.offset + head.encoded_at as u64,
            length: head.encoded_length,
        });
    }
    if found.heads == 0 && found.intervals.is_empty() && found.odd == 0 && found.problems.is_empty() {
        found.problems.push("latency.hlog is empty: even its header is missing".to_string());
    }
    if found.odd > 0 {
        found.problems.push(format!("latency.hlog: {} lines hold no interval and were skipped", found.odd));
    }
    Ok(found)
}

/// The readable part of a line.
struct Head<'a> {
    tag: &'a str,
    start_s: f64,
    length_s: f64,
    encoded_at: usize,
    encoded_length: usize,
}

impl Head<'_> {
    /// `[Tag=NAME,]START,LENGTH,MAX,HISTOGRAM`; `None` if the line is something else.
    fn parse(line: &str) -> Option<Head<'_>> {
        let text = line.trim_end();
        let (tag, rest) = match text.strip_prefix("Tag=") {
            Some(rest) => rest.split_once(',')?,
            None => ("", text),
        };
        let mut fields = rest.splitn(4, ',');
        let start_s: f64 = fields.next()?.parse().ok()?;
        let length_s: f64 = fields.next()?.parse().ok()?;
        let _max: f64 = fields.next()?.parse().ok()?;
        let encoded = fields.next().filter(|encoded| !encoded.is_empty() && !encoded.contains(','))?;
        if !start_s.is_finite() || !length_s.is_finite() {
            return None;
        }
        Some(Head {
            tag,
            start_s,
            length_s,
            encoded_at: text.len() - encoded.len(),
            encoded_length: encoded.len(),
        })
    }
}

/// Gets histograms out of a log.
pub struct Decoder<R> {
    log: R,
    deserializer: Deserializer,
    encoded: Vec<u8>,
}

impl<R> std::fmt::Debug for Decoder<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl<R: Read + Seek> Decoder<R> {
    /// Reads histograms from a log that was indexed before.
    pub fn new(log: R) -> Decoder<R> {
        Decoder { log, deserializer: Deserializer::new(), encoded: vec![] }
    }

    /// Adds the interval's samples to `latency`. False if they cannot be read or decoded. Mean and maximum are as exact as the
    /// log's buckets.
    #[must_use]
    pub fn add_to(&mut self, interval: &Interval, latency: &mut Latency) -> bool {
        self.encoded.resize(interval.length, 0);
        let read = self
            .log
            .seek(SeekFrom::Start(interval.offset))
            .and_then(|_| self.log.read_exact(&mut self.encoded));
        if read.is_err() {
            return false;
        }
        let Ok(bytes) = STANDARD.decode(&self.encoded) else { return false };
        if !is_bounded(&bytes) {
            return false;
        }
        let Ok(histogram) = self.deserializer.deserialize::<u64, _>(&mut bytes.as_slice()) else {
            return false;
        };
        latency.merge_histogram(&histogram);
        true
    }
}

/// Whether an encoded histogram unpacks to a size that one can have. The library takes the length that is written in it as it is, and
/// would make room for 4 GB before it finds that nothing is there.
fn is_bounded(encoded: &[u8]) -> bool {
    /// Cookie and length of the compressed form.
    const OUTER_BYTES: usize = 8;
    let Some((_, compressed)) = encoded.split_at_checked(OUTER_BYTES) else { return false };
    let mut head = [0; 8];
    let whole = ZlibDecoder::new(compressed).read_exact(&mut head);
    whole.is_ok() && u32::from_be_bytes([head[4], head[5], head[6], head[7]]) <= HISTOGRAM_BYTES_MAX
}

fn split_tag(tag: &str) -> (Arc<str>, Arc<str>, Kind) {
    let foreign = || ("".into(), tag.into(), Kind::Response);
    let Some((path, word)) = tag.rsplit_once('.') else { return foreign() };
    let Some(kind) = Kind::of_word(word) else { return foreign() };
    match path.split_once('/') {
        Some((step, transaction_type)) => (step.into(), transaction_type.into(), kind),
        None => ("".into(), path.into(), kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use std::io::Cursor;

    fn clock() -> Clock {
        Clock { monotonic_us: 77, wall_us: 1_763_633_700_123_456 }
    }

    fn some_latency() -> Latency {
        let mut latency = Latency::new();
        (1..5000u64).for_each(|us| latency.record_us(us * us % 70_000));
        latency
    }

    fn decoded(text: &str, interval: &Interval) -> Option<Latency> {
        let mut latency = Latency::new();
        Decoder::new(Cursor::new(text)).add_to(interval, &mut latency).then_some(latency)
    }

    #[test]
    fn what_is_written_is_read_back_bucket_by_bucket() {
        let latency = some_latency();
        let mut text = header("r", &clock());
        text += &line(&tag("run-a", "ycsb-read", Kind::Service), 1_000_001, 2_000_003, &latency)
            .expect("encodes");
        text += &line(&tag("run-a", "my, odd\nname", Kind::Lag), 2_000_003, 3_000_000, &Latency::new())
            .expect("encodes");
        let log = index(text.as_bytes()).expect("reads");
        assert_eq!(log.problems, Vec::<String>::new());
        let [first, second] = log.intervals.as_slice() else { panic!("two intervals: {log:?}") };
        assert_eq!((&*first.step, &*first.transaction_type), ("run-a", "ycsb-read"));
        assert_eq!((first.kind, first.start_us, first.end_us), (Kind::Service, 1_000_001, 2_000_003));
        let read = decoded(&text, first).expect("decodes");
        assert_eq!(read.buckets().collect::<Vec<_>>(), latency.buckets().collect::<Vec<_>>());
        assert_eq!((&*second.transaction_type, second.kind), ("my__odd_name", Kind::Lag));
        assert!(decoded(&text, second).expect("decodes").is_empty());
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
            let log = index(&text.as_bytes()[..text.len() - cut]).expect("reads");
            assert_eq!((log.intervals.len(), log.problems.len()), (1, 1), "cut {cut}");
        }
    }

    #[test]
    fn rubbish_is_counted_and_foreign_tags_are_kept() {
        let good = line("plain", 0, 1_000_000, &some_latency()).expect("encodes");
        let text = format!("Tag=x,0.0,1.0,2.0,AAAA\nTag=y\n1,2\nNaN,1.0,2.0,AAAA\n{good}");
        let log = index(text.as_bytes()).expect("reads");
        assert_eq!(log.intervals.len(), 2);
        assert_eq!(decoded(&text, &log.intervals[0]), None, "base64, but no histogram");
        assert_eq!((&*log.intervals[1].step, &*log.intervals[1].transaction_type), ("", "plain"));
        assert_eq!(log.problems, ["latency.hlog: 3 lines hold no interval and were skipped"]);
        assert!(index(&b"\x00\xff\x00\n"[..]).expect("reads").intervals.is_empty());
    }

    #[test]
    fn logs_with_times_since_the_epoch_begin_at_zero() {
        let of = |start: &str| format!("Tag=x,{start},1.000,2.0,AAAA\n");
        let text = of("1441812279.474") + &of("1441812280.474");
        let log = index(text.as_bytes()).expect("reads");
        let starts: Vec<u64> = log.intervals.iter().map(|interval| interval.start_us).collect();
        assert_eq!(starts, [0, 1_000_000]);
    }
}
