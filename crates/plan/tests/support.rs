//! Inputs that the tests share: the table of YCSB on some hardware.

use plan::Input;
use plan::page::TableSample;
use record::plan::input::{Hardware, Loading, Rate, Server};

pub(crate) const TB: f64 = 1e12;
/// PostgreSQL and `df -h` print powers of 1024 and call them TB.
pub(crate) const TIB: f64 = (1u64 << 40) as f64;
pub(crate) const DAY_S: f64 = 86_400.0;

/// `usertable` with keys of `user` and 18 digits, and ten fields of 100 bytes.
pub(crate) fn usertable(rows: u64) -> TableSample {
    let columns = std::iter::once(("ycsb_key".to_string(), "varchar(64) not null".to_string()));
    let fields = (0..10).map(|at| (format!("field{at}"), "varchar(100)".to_string()));
    let row = || std::iter::once(22).chain([100; 10]).map(|bytes| Some(vec![b'x'; bytes])).collect();
    TableSample {
        name: "usertable".into(),
        rows,
        columns: columns.chain(fields).collect(),
        indexes: vec![vec!["ycsb_key".into()]],
        fillfactor: 100,
        sample: std::iter::repeat_with(row).take(700).collect(),
        ..TableSample::default()
    }
}

pub(crate) fn rate(bytes_per_s: f64) -> Rate {
    Rate {
        bytes_per_s,
        low_bytes_per_s: 0.85 * bytes_per_s,
        high_bytes_per_s: 1.15 * bytes_per_s,
        source: "measured".into(),
    }
}

/// Seven servers with ten NVMe of 15 TB each, in two weeks. The file system takes 6.5 % (ext4's inodes and reserve), which leaves the 140 TB that
/// each server had.
pub(crate) fn petabyte(rows: u64) -> Input {
    Input {
        dataset: "ycsb".into(),
        tables: vec![usertable(rows).size(8192).expect("a table")],
        sizes_from: "computed".into(),
        hardware: Hardware {
            nodes: 7,
            disks: 10,
            disk_bytes: 15_000_000_000_000,
            usable_share: 0.935,
            keep_free_bytes: 500_000_000_000,
            client_cores: 16,
            client_network_bytes_per_s: 1.25e9,
            ..Hardware::default()
        },
        // The parameters of the report's vacuum: eight workers, each with the default limit for itself.
        server: Server { vacuum_workers: 8, vacuum_cost_limit: 8.0 * 200.0, ..Server::default() },
        loading: Loading {
            streams: 70,
            agents: 7,
            transactions_per_node: rows / 98_496,
            deadline_s: Some(14.0 * DAY_S),
            // 150 GB in 10 minutes per node.
            rate: Some(rate(7.0 * 150e9 / 600.0)),
            client_us_per_row: 1.0,
            index_rows_per_s: 1e6,
            ..Loading::default()
        },
        seed: 1,
        ..Input::default()
    }
}
