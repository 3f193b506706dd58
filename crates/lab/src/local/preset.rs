//! Ready-made server settings for `up`.
//!
//! The last five come from a published study of replicated and sharded databases under TPC-C, with a small one for laptops.

use std::fs;
use std::path::Path;

use super::server::free_bytes;
use super::{LocalError, Topology};

/// A set of settings by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// Memory and WAL sized for this host, as a DBA would do before any measurement. Durable.
    #[default]
    Tuned,
    /// PostgreSQL's own defaults, which are for very small hosts.
    Stock,
    /// As `Tuned`, without durability: for tests where the disk does not matter. A crash of the host loses the data.
    Careless,
    /// As little WAL as PostgreSQL can write, none of it for replication, and no commit waits for it: the upper limit of the host's throughput. A crash of the
    /// host loses the data.
    NoWal,
    /// As `Tuned`, with enough space for WAL that no checkpoint occurs during a run.
    HugeWal,
    /// As `Tuned`, for `up replicated`: commits wait until the synchronous standbys have them on disk.
    Replication1,
    /// And until the standbys have applied them.
    Replication2,
    /// Little memory and disk space, so that a cluster and its client fit beside other programs. Durable.
    Laptop,
}

/// What the settings are sized for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory for one server: that of the host, divided by its servers.
    pub memory_mb: u64,
    /// Free disk for one server, likewise.
    pub disk_mb: u64,
}

impl Machine {
    /// This host, for `nodes` servers in folders below `dir`.
    pub(super) fn of(dir: &Path, nodes: usize) -> Machine {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX).max(1);
        let there = dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
        Machine { memory_mb: memory_mb() / nodes, disk_mb: (free_bytes(there) >> 20) / nodes }
    }
}

impl Preset {
    /// All presets by name.
    pub const ALL: [(&'static str, Preset); 8] = [
        ("tuned", Preset::Tuned),
        ("stock", Preset::Stock),
        ("careless", Preset::Careless),
        ("nowal", Preset::NoWal),
        ("hugewal", Preset::HugeWal),
        ("replication-1", Preset::Replication1),
        ("replication-2", Preset::Replication2),
        ("laptop", Preset::Laptop),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Preset::ALL.iter().find(|(_, preset)| *preset == self).map_or("", |(name, _)| name)
    }

    /// By name.
    pub fn parse(name: &str) -> Option<Preset> {
        Preset::ALL.iter().find(|(known, _)| *known == name).map(|(_, preset)| *preset)
    }

    /// Whether it can work for that topology.
    pub(super) fn check(self, topology: &Topology) -> Result<(), LocalError> {
        let replicates = matches!(
            topology,
            Topology::Replicated(_)
                | Topology::Patroni(_)
                | Topology::Multimaster { .. }
                | Topology::Citus { .. }
                | Topology::Mtm { .. }
                | Topology::Pgactive { .. }
                | Topology::Pglogical { .. }
        );
        let wrong = |problem: &str, hint: String| {
            Err(LocalError::Topology { problem: format!("preset {}: {problem}", self.name()), hint })
        };
        match self {
            Preset::NoWal if replicates => wrong(
                &format!("it writes no WAL that another node of up {} could follow", topology.kind()),
                "it is for up single and up sharded; here choose --preset careless".to_owned(),
            ),
            Preset::Replication1 | Preset::Replication2 if !matches!(topology, Topology::Replicated(_)) => {
                wrong(
                    &format!("up {} has no standbys that a commit could wait for", topology.kind()),
                    format!("pgfathom up replicated --standbys 2 --preset {}", self.name()),
                )
            }
            _ => Ok(()),
        }
    }

    /// Lines for `postgresql.conf` of one server; later ones win.
    pub fn settings(self, machine: &Machine) -> Vec<(String, String)> {
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let not_durable =
            [text("fsync", "off"), text("synchronous_commit", "off"), text("full_page_writes", "off")];
        let mut settings = match self {
            Preset::Stock => Vec::new(),
            Preset::Laptop => laptop(machine),
            _ => tuned(machine),
        };
        match self {
            Preset::Tuned | Preset::Stock | Preset::Laptop => {}
            Preset::Careless => settings.extend(not_durable),
            Preset::NoWal => {
                settings.extend(not_durable);
                settings.extend([text("wal_level", "minimal"), text("max_wal_senders", "0")]);
            }
            Preset::HugeWal => {
                /// A fifth of the free disk: the WAL can take twice the limit for a while, and the data needs the rest.
                const DISK_SHARE: u64 = 5;
                /// No run of hours reaches this size.
                const WAL_MB_MAX: u64 = 1 << 20;
                let wal_mb = (machine.disk_mb / DISK_SHARE).clamp(4096, WAL_MB_MAX);
                settings.extend([mb("max_wal_size", wal_mb), text("checkpoint_timeout", "1d")]);
            }
            Preset::Replication1 => settings.push(text("synchronous_commit", "on")),
            Preset::Replication2 => settings.push(text("synchronous_commit", "remote_apply")),
        }
        settings
    }
}

fn mb(name: &str, value: u64) -> (String, String) {
    (name.to_owned(), format!("{value}MB"))
}

fn tuned(machine: &Machine) -> Vec<(String, String)> {
    /// On a test host a larger buffer pool is rarely worth its overhead.
    const SHARED_BUFFERS_MB_MAX: u64 = 8192;
    let memory_mb = machine.memory_mb;
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        mb("shared_buffers", (memory_mb / 4).clamp(128, SHARED_BUFFERS_MB_MAX)),
        mb("effective_cache_size", (memory_mb * 3 / 4).max(512)),
        mb("maintenance_work_mem", (memory_mb / 32).clamp(64, 1024)),
        text("max_connections", "300"),
        text("max_wal_size", "4GB"),
        text("checkpoint_timeout", "15min"),
        text("random_page_cost", "1.1"),
        text("track_io_timing", "on"),
    ]
}

fn laptop(machine: &Machine) -> Vec<(String, String)> {
    let memory_mb = machine.memory_mb;
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        mb("shared_buffers", (memory_mb / 16).clamp(32, 512)),
        mb("effective_cache_size", (memory_mb / 4).max(128)),
        mb("maintenance_work_mem", (memory_mb / 64).clamp(32, 128)),
        text("max_connections", "100"),
        text("max_wal_size", "512MB"),
        text("min_wal_size", "64MB"),
        text("random_page_cost", "1.1"),
        text("track_io_timing", "on"),
    ]
}

/// Memory of this host in MB; 1 GB when it is unknown.
fn memory_mb() -> u64 {
    const UNKNOWN_MB: u64 = 1024;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(UNKNOWN_MB, |kb| kb / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Replication, SyncStandbys};

    fn value(preset: Preset, memory_mb: u64, name: &str) -> Option<String> {
        let machine = Machine { memory_mb, disk_mb: 100_000 };
        // As the server reads it: the last one counts.
        preset.settings(&machine).into_iter().rfind(|(n, _)| n == name).map(|(_, v)| v)
    }

    #[test]
    fn memory_is_shared_out_within_bounds() {
        for (memory_mb, expected) in [(100, "128MB"), (4096, "1024MB"), (1_000_000, "8192MB")] {
            assert_eq!(value(Preset::Tuned, memory_mb, "shared_buffers").as_deref(), Some(expected));
        }
        assert_eq!(value(Preset::Laptop, 4096, "shared_buffers").as_deref(), Some("256MB"));
        assert!(Preset::Stock.settings(&Machine { memory_mb: 4096, disk_mb: 1 }).is_empty());
        assert_eq!(value(Preset::Careless, 4096, "fsync").as_deref(), Some("off"));
        assert_eq!(value(Preset::Tuned, 4096, "fsync"), None);
        let three = Machine::of(Path::new("/tmp/not/there/yet"), 3);
        assert!(three.memory_mb > 30 && three.memory_mb <= memory_mb() / 3 && three.disk_mb > 0);
    }

    #[test]
    fn names_are_read_back() {
        for (name, preset) in Preset::ALL {
            assert!(Preset::parse(name) == Some(preset) && preset.name() == name);
        }
    }

    #[test]
    fn presets_differ_in_what_they_are_named_for() {
        assert_eq!(value(Preset::NoWal, 4096, "wal_level").as_deref(), Some("minimal"));
        assert_eq!(value(Preset::NoWal, 4096, "max_wal_senders").as_deref(), Some("0"));
        // A fifth of 100 GB, instead of 4 GB.
        assert_eq!(value(Preset::HugeWal, 4096, "max_wal_size").as_deref(), Some("20000MB"));
        assert_eq!(value(Preset::HugeWal, 4096, "fsync"), None);
        assert_eq!(value(Preset::Replication2, 4096, "synchronous_commit").as_deref(), Some("remote_apply"));
    }

    #[test]
    fn presets_that_cannot_work_are_refused() {
        let replicated = Topology::Replicated(Replication {
            standbys: 2,
            sync: SyncStandbys::default_for(2),
            commit: None,
        });
        let error = Preset::NoWal.check(&replicated).unwrap_err();
        assert!(error.to_string().contains("preset nowal: it writes no WAL"), "{error}");
        let error = Preset::Replication1.check(&Topology::Single).unwrap_err();
        assert_eq!(error.hint().unwrap(), "pgfathom up replicated --standbys 2 --preset replication-1");
        for (_, preset) in Preset::ALL {
            assert_eq!(preset.check(&replicated).is_ok(), preset != Preset::NoWal);
        }
        Preset::NoWal.check(&Topology::Sharded { nodes: 3, partitions: 12 }).unwrap();
    }
}
