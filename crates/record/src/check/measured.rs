//! The measurements behind the items of `check.json`: whole distributions, all pairs of hosts, all facts of a host.

use crate::Latency;
use serde::{Deserialize, Serialize};

/// A host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Host {
    /// Its name in this file.
    pub host: String,
    /// The address that the other hosts use.
    pub address: String,
    /// What measured on it: `this process`, `its own pgfathom`, `a copied pgfathom`, `fio`; empty if nothing did.
    pub measured_by: String,
    /// Why nothing could be read or measured, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Why pgfathom did not run on it, if so: it was read over ssh, and measured by the tools that are installed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_program: Option<String>,
    /// Processors online.
    pub cpus: u64,
    /// Its processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Its memory, one entry per NUMA node.
    pub memory: Vec<Memory>,
    /// Its clock against the clock of the host that runs `check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<WallClock>,
    /// File systems.
    pub mounts: Vec<Mount>,
    /// Versions, options, queues: what hosts are compared by.
    pub facts: Vec<Fact>,
    /// Counters of the hardware that are remarkable.
    pub counters: Vec<Counted>,
    /// What could not be read.
    pub missing: Vec<Lack>,
}

/// One fact.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Fact {
    /// `kernel`, `disk`, `mount`, ...
    pub topic: String,
    /// Unique in its topic.
    pub name: String,
    /// As read.
    pub value: String,
}

/// A counter of the hardware: `edac`, `aer`, `smart`, `thermal`, `fan`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counted {
    /// Its kind.
    pub kind: String,
    /// Device and counter.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// Something that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Lack {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
    /// What is unknown because of it.
    pub lost: String,
}

/// A file system.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Mount {
    /// Its mount point.
    pub mount: String,
    /// Its device.
    pub device: String,
    /// `ext4`, `xfs`, `zfs`, ...
    pub filesystem: String,
    /// Mount options.
    pub options: String,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What is free for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

/// A processor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Processor {
    /// Rounds of a fixed integer loop per second, in one thread.
    pub rounds_per_s: f64,
    /// Frequency in MHz while it ran, as the kernel reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_mhz: Option<f64>,
    /// Share of time that the hypervisor took away meanwhile.
    pub steal_share: f64,
    /// Share of time in which other work used the processors meanwhile.
    pub busy_share: f64,
}

/// Memory as seen from one NUMA node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Memory {
    /// The node whose processors measured.
    pub node: u64,
    /// Reading, all threads of the node.
    pub read_bytes_per_s: f64,
    /// Copying, all threads of the node: bytes read plus bytes written, as STREAM counts.
    pub copy_bytes_per_s: f64,
    /// One dependent access to memory of the same node.
    pub latency_ns: f64,
    /// One dependent access to memory of the farthest other node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_latency_ns: Option<f64>,
}

/// The clock of a host against the clock of the host that runs `check`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WallClock {
    /// How far it is ahead.
    pub offset_us: i64,
    /// Half of the shortest round trip: the offset is known no better.
    pub error_us: u64,
}

/// What one directory of a host gave in one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Disk {
    /// The host.
    pub host: String,
    /// The directory that was named.
    pub directory: String,
    /// The same without symbolic links; empty if it could not be resolved.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub real_directory: String,
    /// The directory on the same file system whose figures are those of this one, too: it was not measured again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Its mount point.
    pub mount: String,
    /// Its device.
    pub device: String,
    /// The disks that it consists of.
    pub members: Vec<String>,
    /// The round, from 0.
    pub round: u64,
    /// Microseconds since the start of the run.
    pub t_us: u64,
    /// What measured: `pgfathom`, `fio`.
    pub tool: String,
    /// The page cache was bypassed.
    pub is_direct: bool,
    /// Bytes of the file that was read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes that were asked for, when the file became shorter because it took too long to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// Why there are no tests, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The tests, in the order they ran.
    pub tests: Vec<DiskTest>,
}

/// One test of a disk.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DiskTest {
    /// What it did.
    pub pattern: Pattern,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Operations in flight: threads that each wait for their own.
    pub depth: u64,
    /// Throughput.
    pub bytes_per_s: f64,
    /// Operations per second.
    pub per_s: f64,
    /// Latency of one operation.
    pub latency_us: Distribution,
    /// Mean wait of each member of an array meanwhile, in the order of `members`; negative without operations.
    pub member_await_ms: Vec<f64>,
}

/// A pattern of access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Sequential writes.
    #[default]
    SequentialWrite,
    /// Sequential reads.
    SequentialRead,
    /// Random writes.
    RandomWrite,
    /// Random reads.
    RandomRead,
    /// A write, then fdatasync, as a commit does.
    Sync,
}

impl Pattern {
    /// As names of checks have it.
    pub fn word(self) -> &'static str {
        match self {
            Pattern::SequentialWrite => "sequential_write",
            Pattern::SequentialRead => "sequential_read",
            Pattern::RandomWrite => "random_write",
            Pattern::RandomRead => "random_read",
            Pattern::Sync => "sync",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Pattern::SequentialWrite => "sequential write",
            Pattern::SequentialRead => "sequential read",
            Pattern::RandomWrite => "random write",
            Pattern::RandomRead => "random read",
            Pattern::Sync => "write + fdatasync",
        }
    }

    /// Whether throughput in bytes is its figure, not operations.
    pub fn is_sequential(self) -> bool {
        matches!(self, Pattern::SequentialRead | Pattern::SequentialWrite)
    }
}

/// What the network gave from one host to another in one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Pair {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The round, from 0.
    pub round: u64,
    /// Microseconds since the start of the run.
    pub t_us: u64,
    /// What measured: `pgfathom`, `iperf3`.
    pub tool: String,
    /// Why there is no figure, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// One TCP stream.
    pub bytes_per_s: f64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments sent; 0 if unknown.
    pub segments: u64,
    /// Round trips of small messages on the idle connection.
    pub round_trip_us: Distribution,
}

/// A distribution of times in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// (upper bound, samples), ascending; four buckets per doubling.
    pub buckets: Vec<(u64, u64)>,
}

/// Buckets per doubling of the time.
const BUCKETS_PER_DOUBLING: f64 = 4.0;

impl Distribution {
    /// Of recorded latencies.
    pub fn of(latency: &Latency) -> Distribution {
        let Some(summary) = latency.summary() else { return Distribution::default() };
        let mut buckets: Vec<(u64, u64)> = vec![];
        for (_, high, count) in latency.buckets() {
            let step = ((high.max(1) as f64).log2() * BUCKETS_PER_DOUBLING).ceil();
            let upper = (step / BUCKETS_PER_DOUBLING).exp2().round() as u64;
            match buckets.last_mut() {
                Some((last, counted)) if *last == upper => *counted += count,
                _ => buckets.push((upper, count)),
            }
        }
        let min = latency.buckets().next().map_or(0, |(low, _, _)| low);
        Distribution {
            count: latency.count(),
            min: min as f64,
            mean: summary.mean,
            p50: summary.p50 as f64,
            p90: summary.p90 as f64,
            p99: summary.p99 as f64,
            p999: summary.p999 as f64,
            max: summary.max as f64,
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_every_sample_in_a_few_buckets() {
        let mut latency = Latency::new();
        (1..=10_000).for_each(|us| latency.record_us(us));
        let found = Distribution::of(&latency);
        assert_eq!(found.count, 10_000);
        assert_eq!(found.buckets.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(found.buckets.len() < 60 && found.buckets.is_sorted(), "{:?}", found.buckets);
        assert!((found.p50 - 5_000.0).abs() < 50.0 && found.max >= 10_000.0 && found.min == 1.0, "{found:?}");
        assert_eq!(Distribution::of(&Latency::new()), Distribution::default());
    }
}
