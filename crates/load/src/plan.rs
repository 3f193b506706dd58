//! What a load consists of before it starts: rows by size, chunks, names of leaf tables.
//!
//! A chunk is the unit of loading and of resuming: a kill costs at most the chunks in progress. It is a range of row numbers, so a plan is four
//! numbers however large the table is, and every process that has them agrees on every chunk.

/// A chunk holds about this many bytes of values. Small enough that a kill repeats seconds of work on slow disks, large enough that
/// a commit per chunk costs nothing and that each of 70 partitions still gets more than a megabyte of it.
pub(crate) const CHUNK_VALUE_BYTES: u64 = 96 << 20;

/// A load is cut into at least this many chunks per stream, so that streams of unequal speed end at about the same time.
pub(crate) const CHUNKS_PER_STREAM_MIN: u64 = 4;

/// The ledger never holds more rows than this per dataset: beyond it chunks grow instead. One bit each must fit in memory.
pub const CHUNKS_MAX: u64 = 1 << 24;

/// The longest chunk in rows. Bucketing a chunk by partition takes six bytes per row of it.
pub const CHUNK_ROWS_MAX: u64 = 1 << 22;

/// The most rows of a dataset: what [`CHUNKS_MAX`] chunks of [`CHUNK_ROWS_MAX`] rows hold, 70 * 10^12 or 72 PB of values.
pub const ROWS_MAX: u64 = CHUNKS_MAX * CHUNK_ROWS_MAX;

/// The most partitions. PostgreSQL plans and locks every partition of a table; beyond some thousands it does little else.
pub const PARTITIONS_MAX: u32 = 4096;

/// The most leaf tables of a dataset, over all of its tables: the ledger numbers them in 16 bits with a sign.
pub const LEAVES_MAX: u32 = 1 << 15;

/// The most streams: each is a thread here and a backend there.
pub const STREAMS_MAX: usize = 1024;

/// The chunks of a dataset: ranges of row numbers, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// Rows, and the length of a chunk of them; the last chunk of each run is shorter.
    runs: Vec<(u64, u64)>,
}

impl Chunks {
    /// Cuts `rows` of so many bytes each for this many streams. `rows` must be at most [`ROWS_MAX`]; the caller refuses more with a message.
    pub(crate) fn for_streams(rows: u64, row_bytes: u64, streams: usize) -> Chunks {
        let streams = streams.max(1) as u64;
        let by_size = rows.div_ceil((CHUNK_VALUE_BYTES / row_bytes.max(1)).clamp(1, CHUNK_ROWS_MAX));
        // A multiple of the streams, so that no stream works alone on a last chunk.
        let count = by_size.max(CHUNKS_PER_STREAM_MIN * streams).next_multiple_of(streams);
        Chunks::of_length(rows, rows.div_ceil(count).max(rows.div_ceil(CHUNKS_MAX)))
    }

    /// Cuts `rows` for streams that each load a node's share of a chunk, so that a share is what a chunk is on a single server.
    pub(crate) fn for_nodes(rows: u64, row_bytes: u64, streams: usize, nodes: usize) -> Chunks {
        let nodes = nodes.max(1) as u64;
        let share = Chunks::for_streams(rows.div_ceil(nodes), row_bytes, streams.div_ceil(nodes as usize));
        let length = (share.chunk_rows() * nodes).min(CHUNK_ROWS_MAX).max(rows.div_ceil(CHUNKS_MAX));
        Chunks::of_length(rows, length)
    }

    /// The chunks of a dataset that has been begun with this chunk length.
    pub(crate) fn of_length(rows: u64, chunk_rows: u64) -> Chunks {
        Chunks { runs: vec![(rows, chunk_rows.max(1))] }
    }

    /// Runs of chunks, each of a length of its own: rows, and the length of a chunk of them.
    pub fn of_runs(runs: impl IntoIterator<Item = (u64, u64)>) -> Chunks {
        Chunks { runs: runs.into_iter().map(|(rows, chunk_rows)| (rows, chunk_rows.max(1))).collect() }
    }

    /// Rows of the whole dataset.
    pub fn rows(&self) -> u64 {
        self.runs.iter().map(|(rows, _)| rows).sum()
    }

    /// Rows of every chunk of the first run but the last.
    pub fn chunk_rows(&self) -> u64 {
        self.runs.first().map_or(1, |(_, chunk_rows)| *chunk_rows)
    }

    /// How many chunks there are; 0 for a dataset of no rows.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(rows, chunk_rows)| rows.div_ceil(*chunk_rows)).sum()
    }

    /// The row numbers of chunk `index`.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub fn range(&self, index: u64) -> std::ops::Range<u64> {
        let (mut left, mut first) = (index, 0);
        for (rows, chunk_rows) in &self.runs {
            let count = rows.div_ceil(*chunk_rows);
            if left < count {
                let from = left * chunk_rows;
                return first + from..first + (*rows).min(from.saturating_add(*chunk_rows));
            }
            left -= count;
            first += rows;
        }
        panic!("chunk {index} of {}", self.count())
    }
}

/// The bound of a hash partition as PostgreSQL writes it.
pub(crate) fn bound_text(modulus: u32, remainder: u32) -> String {
    format!("FOR VALUES WITH (modulus {modulus}, remainder {remainder})")
}

/// Names of the leaf tables: the table itself without partitions, else `NAME_p0` and so on in order of remainder.
pub(crate) fn names_of(table: &str, partitions: u32) -> Vec<String> {
    if partitions <= 1 {
        return vec![table.to_owned()];
    }
    (0..partitions).map(|index| format!("{table}_p{index}")).collect()
}

/// Why a text is no size or count.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuantityError {
    /// No whole number in front, or a decimal point.
    #[error("\"{0}\" is not a size: a whole number with a unit is expected")]
    NotANumber(String),
    /// An unknown unit.
    #[error("\"{text}\": the unit \"{unit}\" is unknown")]
    Unit {
        /// What was typed.
        text: String,
        /// Its last part.
        unit: String,
    },
    /// More than 2^64 - 1.
    #[error("\"{0}\" is too large")]
    TooLarge(String),
}

impl QuantityError {
    /// What to type instead.
    pub fn hint(&self) -> Option<String> {
        Some("write 10GB, 512MiB or 2T for sizes (k, M, G, T, P are powers of 1000; Ki, Mi, Gi, Ti, Pi of 1024), 1M or 1000000 for counts".to_owned())
    }
}

/// Reads a size (`10GB`, `512MiB`, `2T`) or a count (`1M`, `1000000`, `1_000_000`): k, M, G, T, P are powers of 1000, with an `i`
/// of 1024; a final `B` has no effect.
///
/// # Errors
/// When it is not a whole number with such a unit, or does not fit 64 bits.
pub fn parse_quantity(text: &str) -> Result<u64, QuantityError> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(|b| b.is_ascii_digit() || *b == b'_').count();
    let (number, unit) = trimmed.split_at(digits);
    if !number.bytes().any(|b| b.is_ascii_digit()) || unit.starts_with(['.', ',']) {
        return Err(QuantityError::NotANumber(text.to_owned()));
    }
    let too_large = || QuantityError::TooLarge(text.to_owned());
    let number: u64 = number.replace('_', "").parse().map_err(|_| too_large())?;
    let unknown = || QuantityError::Unit { text: text.to_owned(), unit: unit.trim().to_owned() };
    let prefix = unit.trim().to_ascii_lowercase();
    let prefix = prefix.strip_suffix('b').unwrap_or(&prefix);
    let (letter, base) = match prefix.strip_suffix('i') {
        Some("") => return Err(unknown()),
        Some(letter) => (letter, 1024u64),
        None => (prefix, 1000),
    };
    let exponent = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(unknown()),
    };
    number.checked_mul(base.pow(exponent)).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::ROW_VALUE_BYTES;
    use proptest::prelude::*;

    #[test]
    fn a_million_rows_for_two_streams_are_twelve_chunks() {
        let chunks = Chunks::for_streams(1_000_000, ROW_VALUE_BYTES, 2);
        assert_eq!((chunks.count(), chunks.chunk_rows()), (12, 83_334));
        assert_eq!(chunks.range(11), 916_674..1_000_000);
    }

    #[test]
    fn runs_of_chunks_follow_each_other() {
        let chunks = Chunks::of_runs([(10, 10), (9, 4), (0, 3), (2, 1)]);
        assert_eq!((chunks.count(), chunks.rows()), (6, 21));
        let ranges: Vec<_> = (0..6).map(|chunk| chunks.range(chunk)).collect();
        assert_eq!(ranges, [0..10, 10..14, 14..18, 18..19, 19..20, 20..21]);
    }

    #[test]
    fn small_tables_still_feed_every_stream() {
        assert_eq!(Chunks::for_streams(8, ROW_VALUE_BYTES, 2).count(), 8);
        assert_eq!(Chunks::for_streams(3, ROW_VALUE_BYTES, 2).count(), 3);
        assert_eq!(Chunks::for_streams(1, ROW_VALUE_BYTES, 4).count(), 1);
        assert_eq!(Chunks::for_streams(0, ROW_VALUE_BYTES, 4).count(), 0);
    }

    #[test]
    fn chunks_of_a_cluster_are_as_many_times_longer_as_there_are_nodes() {
        let chunks = Chunks::for_nodes(1_000_000_000_000, ROW_VALUE_BYTES, 70, 7);
        let share = Chunks::for_streams(1_000_000_000_000_u64.div_ceil(7), ROW_VALUE_BYTES, 10);
        assert_eq!(chunks.chunk_rows(), 7 * share.chunk_rows());
        assert_eq!(
            Chunks::for_nodes(1_000_000_000_000, ROW_VALUE_BYTES, 70, 1),
            Chunks::for_streams(1_000_000_000_000, ROW_VALUE_BYTES, 70)
        );
        for rows in [0, 1, 5, 1000, ROWS_MAX] {
            for nodes in [1, 3, 7, 100] {
                let chunks = Chunks::for_nodes(rows, ROW_VALUE_BYTES, 4, nodes);
                assert!((1..=CHUNK_ROWS_MAX).contains(&chunks.chunk_rows()) && chunks.count() <= CHUNKS_MAX);
            }
        }
    }

    #[test]
    fn a_petabyte_has_a_bounded_ledger_and_bounded_chunks() {
        for rows in [1 << 31, 1 << 32, 1_000_000_000_000, ROWS_MAX] {
            let chunks = Chunks::for_streams(rows, ROW_VALUE_BYTES, 70);
            assert!(chunks.count() <= CHUNKS_MAX, "{rows}: {}", chunks.count());
            assert!(chunks.chunk_rows() <= CHUNK_ROWS_MAX, "{rows}: {}", chunks.chunk_rows());
            assert_eq!(chunks.range(chunks.count() - 1).end, rows);
        }
        assert_eq!(Chunks::for_streams(1_000_000_000_000, ROW_VALUE_BYTES, 70).chunk_rows(), 98_496);
    }

    proptest! {
        #[test]
        fn chunks_cover_every_row_once(rows in 0u64..5_000, streams in 1usize..9) {
            let chunks = Chunks::for_streams(rows, ROW_VALUE_BYTES, streams);
            let mut next = 0;
            for index in 0..chunks.count() {
                let range = chunks.range(index);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.end > range.start);
                next = range.end;
            }
            prop_assert_eq!(next, rows);
            prop_assert_eq!(Chunks::of_length(rows, chunks.chunk_rows()), chunks);
        }
    }

    #[test]
    fn leaves_are_named_by_remainder() {
        assert_eq!(names_of("usertable", 0), ["usertable"]);
        assert_eq!(names_of("usertable", 1), ["usertable"]);
        assert_eq!(names_of("usertable", 3), ["usertable_p0", "usertable_p1", "usertable_p2"]);
    }

    #[test]
    fn quantities_are_read_as_people_write_them() {
        for (text, value) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1M", 1_000_000),
            ("10k", 10_000),
            ("10GB", 10_000_000_000),
            ("10 GiB", 10 << 30),
            ("512mib", 512 << 20),
            ("3PB", 3_000_000_000_000_000),
            ("7B", 7),
        ] {
            assert_eq!(parse_quantity(text), Ok(value), "{text}");
        }
        assert!(matches!(parse_quantity("1.5GB"), Err(QuantityError::NotANumber(_))));
        assert!(matches!(parse_quantity("GB"), Err(QuantityError::NotANumber(_))));
        assert!(matches!(parse_quantity("_"), Err(QuantityError::NotANumber(_))));
        assert!(matches!(parse_quantity("-1"), Err(QuantityError::NotANumber(_))));
        assert!(matches!(parse_quantity("10XB"), Err(QuantityError::Unit { .. })));
        assert!(matches!(parse_quantity("10iB"), Err(QuantityError::Unit { .. })));
        assert!(matches!(parse_quantity("20000PB"), Err(QuantityError::TooLarge(_))));
        assert!(matches!(parse_quantity("99999999999999999999"), Err(QuantityError::TooLarge(_))));
        assert!(parse_quantity("x").unwrap_err().hint().is_some());
    }
}
