//! Memory: `/proc/meminfo` and `/proc/vmstat`.

/// The page size of the counts in `/proc/vmstat`. A recorded tree does not contain it; every x86 has this one.
pub const PAGE_BYTES: u64 = 4096;

/// The values of `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meminfo {
    /// All memory.
    pub total_bytes: Option<u64>,
    /// Memory that new programs could get without swapping.
    pub available_bytes: Option<u64>,
    /// Page tables: large if many backends map large shared buffers in small pages.
    pub page_tables_bytes: Option<u64>,
    /// Waits to be written to disk.
    pub dirty_bytes: Option<u64>,
    /// Is being written.
    pub writeback_bytes: Option<u64>,
    /// Reserved huge pages, and how many of them are free.
    pub huge_pages: Option<u64>,
    /// Huge pages free.
    pub huge_pages_free: Option<u64>,
    /// Size of one.
    pub huge_page_bytes: Option<u64>,
    /// All swap.
    pub swap_total_bytes: Option<u64>,
}

/// Reads `/proc/meminfo`.
pub fn meminfo(text: &str) -> Meminfo {
    let mut found = Meminfo::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let mut words = value.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let value = if words.next() == Some("kB") { number.checked_mul(1024) } else { Some(number) };
        match name.trim() {
            "MemTotal" => found.total_bytes = value,
            "MemAvailable" => found.available_bytes = value,
            "PageTables" => found.page_tables_bytes = value,
            "Dirty" => found.dirty_bytes = value,
            "Writeback" => found.writeback_bytes = value,
            "HugePages_Total" => found.huge_pages = value,
            "HugePages_Free" => found.huge_pages_free = value,
            "Hugepagesize" => found.huge_page_bytes = value,
            "SwapTotal" => found.swap_total_bytes = value,
            _ => {}
        }
    }
    found
}

/// Counters of `/proc/vmstat` since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vmstat {
    /// Pages read from swap.
    pub swapped_in_pages: Option<u64>,
    /// Pages written to swap.
    pub swapped_out_pages: Option<u64>,
    /// Processes killed by the out-of-memory killer (kernel 4.13).
    pub oom_kills: Option<u64>,
}

/// Reads `/proc/vmstat`.
pub fn vmstat(text: &str) -> Vmstat {
    let mut found = Vmstat::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value = value.trim().parse().ok();
        match name {
            "pswpin" => found.swapped_in_pages = value,
            "pswpout" => found.swapped_out_pages = value,
            "oom_kill" => found.oom_kills = value,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_and_counts_are_counts() {
        let found = meminfo(
            "MemTotal:       24684092 kB\nMemAvailable:   18000000 kB\nPageTables:        4096 kB\nDirty: 12 kB\n\
             HugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:       2048 kB\nNonsense\nBounce: x kB\n",
        );
        assert_eq!(found.total_bytes, Some(24_684_092 * 1024));
        assert_eq!((found.page_tables_bytes, found.dirty_bytes), (Some(4 << 20), Some(12 << 10)));
        assert_eq!((found.huge_pages, found.huge_pages_free), (Some(512), Some(500)));
        assert_eq!(found.huge_page_bytes, Some(2 << 20));
        assert_eq!(found.writeback_bytes, None, "what is not there is not zero");
        assert_eq!(meminfo("MemTotal: 99999999999999999999 kB").total_bytes, None);
    }

    #[test]
    fn vmstat_counts() {
        let found = vmstat("nr_free_pages 5\npswpin 7\npswpout 8\noom_kill 1\n");
        let expected = Vmstat { swapped_in_pages: Some(7), swapped_out_pages: Some(8), oom_kills: Some(1) };
        assert_eq!(found, expected);
        assert_eq!(vmstat("pswpin\noom_kill -1\n"), Vmstat::default());
    }
}
