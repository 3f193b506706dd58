//! The histograms of a step, read once: percentiles per column, counts per latency band, and the measured part as a whole.
//! A long run's log does not fit into memory, so each histogram is decoded, added up, and dropped.

use crate::chart::Columns;
use record::hlog::{Decoder, Interval, Kind};
use record::{Latency, RunReader};
use std::fs::File;
use std::sync::Arc;

/// Bands per factor of ten while counting; a heatmap merges neighbours if it wants fewer.
pub(crate) const BANDS_PER_DECADE: usize = 16;
/// 1 us to 10^10 us covers the histogram's range of one hour.
const DECADES: usize = 10;
/// Columns of a transaction type's small rate line.
const SPARK_COLUMNS: usize = 60;

/// The latencies of one step.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// The columns that [`Latencies::by_column`] is for.
    pub(crate) columns: Columns,
    /// Response time of all transaction types together; `None` where nothing was recorded.
    pub(crate) by_column: Vec<Option<ColumnLatency>>,
    /// Response time in the measured part.
    pub(crate) response: Latency,
    /// Service time in the measured part.
    pub(crate) service: Latency,
    sparks: Vec<Spark>,
    /// Lines whose histogram could not be decoded.
    pub(crate) unreadable: u64,
}

/// Response time of one column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnLatency {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
    /// Counts per band from 1 us up, [`BANDS_PER_DECADE`].
    pub(crate) bands: Vec<u64>,
}

impl ColumnLatency {
    fn of(latency: &Latency) -> ColumnLatency {
        let mut bands = vec![0u64; DECADES * BANDS_PER_DECADE];
        let last = bands.len() - 1;
        for (low, high, count) in latency.buckets() {
            let middle_us = (low as f64 + high as f64) / 2.0;
            let band = (middle_us.max(1.0).log10() * BANDS_PER_DECADE as f64) as usize;
            bands[band.min(last)] += count;
        }
        // Values beyond the histogram's range are in no bucket, but they were counted and are longer than all others.
        bands[last] += latency.overflow();
        ColumnLatency {
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            max_us: latency.max_us(),
            bands,
        }
    }
}

/// The intervals for which a step's histograms are gathered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) columns: Columns,
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    pub(crate) measured_us: (u64, u64),
    pub(crate) interval_us: u64,
}

impl Latencies {
    /// Nothing, for steps without histograms and views that need none.
    pub(crate) fn none(columns: Columns) -> Latencies {
        Latencies {
            columns,
            by_column: vec![None; columns.count],
            response: Latency::new(),
            service: Latency::new(),
            sparks: vec![],
            unreadable: 0,
        }
    }

    /// Reads the step's histograms.
    pub(crate) fn gather(reader: &RunReader, intervals: &[&Interval], window: &Window) -> Latencies {
        let mut all = Latencies::none(window.columns);
        let Some(mut decoder) = reader.decoder() else { return all };
        let column = |interval: &Interval| window.columns.of(interval.start_us, interval.end_us);
        let mut responses: Vec<&Interval> =
            intervals.iter().copied().filter(|interval| interval.kind == Kind::Response).collect();
        responses.sort_by_key(|interval| column(interval));
        let spark_columns = Columns::over(window.start_us, window.end_us, window.interval_us, SPARK_COLUMNS);
        let (mut one, mut merged) = (Latency::new(), Latency::new());
        for group in responses.chunk_by(|left, right| column(left) == column(right)) {
            merged.reset();
            for interval in group {
                if !all.read(&mut decoder, interval, &mut one) {
                    continue;
                }
                merged.merge(&one);
                if is_measured(interval, window) {
                    all.response.merge(&one);
                }
                all.spark_mut(interval, spark_columns.count).add(interval, &spark_columns, one.count());
            }
            if !merged.is_empty() {
                all.by_column[column(group[0])] = Some(ColumnLatency::of(&merged));
            }
        }
        let measured_service =
            |interval: &&&Interval| interval.kind == Kind::Service && is_measured(interval, window);
        for interval in intervals.iter().filter(measured_service) {
            if all.read(&mut decoder, interval, &mut one) {
                all.service.merge(&one);
            }
        }
        all
    }

    fn read(&mut self, decoder: &mut Decoder<File>, interval: &Interval, into: &mut Latency) -> bool {
        into.reset();
        let readable = decoder.add_to(interval, into);
        self.unreadable += u64::from(!readable);
        readable
    }

    fn spark_mut(&mut self, interval: &Interval, count: usize) -> &mut Spark {
        let known = self.sparks.iter().position(|spark| spark.transaction_type == interval.transaction_type);
        let at = known.unwrap_or_else(|| {
            self.sparks.push(Spark {
                transaction_type: interval.transaction_type.clone(),
                responses: vec![0; count],
                covered_us: vec![0; count],
            });
            self.sparks.len() - 1
        });
        &mut self.sparks[at]
    }

    /// Responses per second of a transaction type over the step, in few columns; empty if its histograms prove nothing.
    pub(crate) fn spark(&self, transaction_type: &str) -> Vec<f64> {
        let Some(spark) = self.sparks.iter().find(|spark| *spark.transaction_type == *transaction_type)
        else {
            return vec![];
        };
        let columns = spark.responses.iter().zip(&spark.covered_us);
        columns.map(|(responses, covered_us)| *responses as f64 / (*covered_us).max(1) as f64 * 1e6).collect()
    }
}

/// A transaction type's rate in few columns.
#[derive(Debug)]
struct Spark {
    transaction_type: Arc<str>,
    responses: Vec<u64>,
    covered_us: Vec<u64>,
}

impl Spark {
    fn add(&mut self, interval: &Interval, columns: &Columns, responses: u64) {
        let column = columns.of(interval.start_us, interval.end_us);
        self.responses[column] += responses;
        self.covered_us[column] += interval.end_us - interval.start_us;
    }
}

/// An interval counts as measured if its middle lies in the measured part.
fn is_measured(interval: &Interval, window: &Window) -> bool {
    let (from_us, to_us) = window.measured_us;
    (from_us..=to_us).contains(&interval.start_us.midpoint(interval.end_us))
}
