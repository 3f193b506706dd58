//! Ready-made server settings for `up`.

use std::fs;

/// A set of settings by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// Memory and WAL sized for this machine, as a DBA would before any measurement. Durable.
    #[default]
    Tuned,
    /// PostgreSQL's own defaults, which are made for very small machines.
    Stock,
    /// As `Tuned`, without durability: for tests where the disk is not the question. A crash of the machine loses the data.
    Careless,
}

impl Preset {
    /// All presets by name.
    pub const ALL: [(&'static str, Preset); 3] =
        [("tuned", Preset::Tuned), ("stock", Preset::Stock), ("careless", Preset::Careless)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Preset::ALL.iter().find(|(_, preset)| *preset == self).map_or("", |(name, _)| name)
    }

    /// By name.
    pub fn parse(name: &str) -> Option<Preset> {
        Preset::ALL.iter().find(|(known, _)| *known == name).map(|(_, preset)| *preset)
    }

    /// Lines for `postgresql.conf` on a machine with this much memory.
    pub fn settings(self, memory_mb: u64) -> Vec<(String, String)> {
        /// Beyond this a larger buffer pool rarely pays for its bookkeeping on a lab machine.
        const SHARED_BUFFERS_MB_MAX: u64 = 8192;
        let mb = |name: &str, value: u64| (name.to_owned(), format!("{value}MB"));
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = Vec::new();
        if self != Preset::Stock {
            settings.extend([
                mb("shared_buffers", (memory_mb / 4).clamp(128, SHARED_BUFFERS_MB_MAX)),
                mb("effective_cache_size", (memory_mb * 3 / 4).max(512)),
                mb("maintenance_work_mem", (memory_mb / 32).clamp(64, 1024)),
                text("max_connections", "300"),
                text("max_wal_size", "4GB"),
                text("checkpoint_timeout", "15min"),
                text("random_page_cost", "1.1"),
                text("track_io_timing", "on"),
            ]);
        }
        if self == Preset::Careless {
            settings.extend([
                text("fsync", "off"),
                text("synchronous_commit", "off"),
                text("full_page_writes", "off"),
            ]);
        }
        settings
    }
}

/// Memory of this machine in MB; 1 GB when it cannot be told.
pub(super) fn memory_mb() -> u64 {
    const UNKNOWN_MB: u64 = 1024;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(UNKNOWN_MB, |kb| kb / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_out_within_bounds() {
        let value = |preset: Preset, memory_mb, name: &str| {
            preset.settings(memory_mb).into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
        };
        for (memory_mb, expected) in [(100, "128MB"), (4096, "1024MB"), (1_000_000, "8192MB")] {
            assert_eq!(value(Preset::Tuned, memory_mb, "shared_buffers").as_deref(), Some(expected));
        }
        assert!(Preset::Stock.settings(4096).is_empty());
        assert_eq!(value(Preset::Careless, 4096, "fsync").as_deref(), Some("off"));
        assert_eq!(value(Preset::Tuned, 4096, "fsync"), None);
        assert!(
            Preset::ALL
                .iter()
                .all(|(name, preset)| Preset::parse(name) == Some(*preset) && preset.name() == *name)
        );
        assert!(memory_mb() > 100);
    }
}
