//! The parts of a node's time: the rules that explain each, and where to look if none of them does.

use crate::case::Case;
use crate::node_time::{AGREEMENT, COMMITTING, CPU, FOR_CPU, FOR_NODES, ON_CPU, READING, UNACCOUNTED};
use crate::units;
use record::finding::NodeTime;

/// A part of the time.
pub(super) struct Slice {
    /// As the account names it.
    pub(super) part: &'static str,
    /// Whether sessions wait in it: computing and sleeping by design are no waits.
    pub(super) is_wait: bool,
    /// Rules that explain it when they fire, in groups.
    rules: &'static [&'static [&'static str]],
    /// Where to look.
    words: &'static str,
    /// What to type.
    pub(super) commands: &'static [&'static str],
}

/// Who waits for what now.
const NOW: &str = "SELECT wait_event_type, wait_event, state, count(*) FROM pg_stat_activity WHERE state <> 'idle' GROUP BY 1, 2, 3 ORDER BY 4 DESC;";

/// Rules about what makes sessions compute, and so wait for a CPU.
const COMPUTES: &[&str] = &[
    "CFG-01", "CFG-03", "EXT-02", "EXT-04", "EXT-06", "LOG-01", "LOG-03", "LWL-08", "MEM-07", "PLAN-01",
    "PLAN-03", "PLAN-04", "PLAN-06", "PLAN-08", "PLAN-09", "PLAN-10", "PLAN-11", "PLAN-12", "PLAN-13",
    "PLAN-14", "PLAN-15", "PLAN-16", "PLAN-17", "PLAN-18", "PLAN-19", "PLAN-20", "PLAN-21", "PLAN-22",
    "PLAN-23", "PLAN-24", "PLAN-25", "PLAN-27", "PLAN-28", "PLAN-29", "PLAN-30", "PLAN-31", "PLAN-32",
    "PLAN-33", "PLAN-34", "PLAN-35", "PLAN-36", "PLAN-37", "PLAN-38", "PLAN-39", "PLAN-40", "PLAN-41",
    "PLAN-45", "PLAN-46", "PLAN-47", "PLAN-48", "PLAN-49", "PLAN-50", "PLAN-51", "PLAN-52", "PLAN-53",
    "PLAN-54", "PLAN-55", "PLAN-56", "PLAN-57", "PLAN-58", "PLAN-59", "PLAN-60", "PLAN-61", "PLAN-64",
    "PLAN-65", "PLAN-66", "PLAN-67", "PLAN-68", "PLAN-69", "PLAN-70", "PLAN-71", "PLAN-72", "PLAN-73",
    "PLAN-74", "PLAN-75", "PLAN-76", "PLAN-77", "PLAN-78", "PLAN-79", "PLAN-80", "REP-14", "REP-17",
    "SES-01", "SES-07", "SES-08", "SES-10", "SES-11", "TXN-06", "TXN-07", "TXN-08", "TXN-12", "TXN-13",
    "TXN-14", "TXN-15", "TXN-16", "TXN-17", "TXN-18", "TXN-19", "TXN-20", "TXN-21", "TXN-22", "VAC-11",
    "VAC-13", "VAC-14", "VAC-15", "VAC-16", "VAC-17", "WAL-11", "PLAN-81", "PLAN-82", "PLAN-83", "PLAN-84",
    "PLAN-85", "PLAN-86", "PLAN-87", "PLAN-88", "PLAN-89", "PLAN-90", "PLAN-91", "PLAN-92", "PLAN-93",
    "PLAN-94", "PLAN-95", "PLAN-96", "PLAN-97", "PLAN-98", "PLAN-99", "SES-12", "SES-15", "TXN-23", "TXN-24",
    "CFG-04",
];

/// Every part but the sleeping by design, which loses nothing.
pub(super) const SLICES: &[Slice] = &[
    Slice {
        part: ON_CPU,
        is_wait: false,
        rules: &[
            COMPUTES,
            &[
                "PLAN-02", "PLAN-05", "PLAN-26", "MEM-04", "CPU-01", "CPU-08", "SEC-01", "FS-01", "FS-02",
                "FS-03",
            ],
        ],
        words: "the sessions compute: that is work, and no rule found waste in it",
        commands: &[
            "SELECT queryid, calls, mean_exec_time AS ms, shared_blks_hit / calls AS blocks FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 5;",
        ],
    },
    Slice {
        part: FOR_CPU,
        is_wait: true,
        rules: &[COMPUTES, &["SES-02", "SES-03", "SES-17", "CPU-04", "CPU-06", "CPU-07", "CPU-01"]],
        words: "more sessions are ready to run than CPUs are free",
        commands: &["$ vmstat 1 5", "$ top -b -n 1 -o %CPU | head -n 15"],
    },
    Slice {
        part: CPU,
        is_wait: false,
        rules: &[
            COMPUTES,
            &["PLAN-05", "MEM-04", "SES-02", "SES-03", "SES-17", "CPU-04", "CPU-06", "CPU-07"],
        ],
        words: "the sessions compute or wait for a CPU; the server's processes could not be read, so the two are one",
        commands: &["$ vmstat 1 5"],
    },
    Slice {
        part: COMMITTING,
        is_wait: true,
        rules: &[&[
            "IO-12", "WAL-04", "WAL-01", "WAL-14", "TXN-20", "TXN-01", "TXN-10", "WAL-11", "WAL-06",
            "WAL-07", "WAL-12", "WAL-13", "TXN-21", "VAC-02", "IO-01", "IO-05", "IO-06", "IO-09", "CPU-06",
            "SES-02",
        ]],
        words: "sessions wait for the WAL, but for less than a rule needs, or a flush is too fast to be the reason",
        commands: &["SELECT * FROM pg_stat_wal;", NOW],
    },
    Slice {
        part: "synchronous replication",
        is_wait: true,
        rules: &[&["REP-01", "REP-10", "REP-12", "REP-18"]],
        words: "commits wait for a standby",
        commands: &[
            "SELECT application_name, sync_state, write_lag, flush_lag, replay_lag FROM pg_stat_replication;",
        ],
    },
    Slice {
        part: AGREEMENT,
        is_wait: true,
        rules: &[&["TXN-01"]],
        words: "commits wait until the other nodes agree: several messages between the nodes for each, however few rows it writes",
        commands: &[NOW],
    },
    Slice {
        part: "locks",
        is_wait: true,
        rules: &[&[
            "LCK-01", "LCK-03", "LCK-04", "LCK-05", "LCK-06", "LCK-07", "LCK-09", "VAC-15", "DIST-06",
        ]],
        words: "sessions wait for each other; the table of lock roots shows behind whom",
        commands: &[
            "SELECT pid, pg_blocking_pids(pid) AS blocked_by, wait_event, left(query, 60) AS query FROM pg_stat_activity WHERE wait_event_type = 'Lock';",
        ],
    },
    Slice {
        part: "lightweight locks",
        is_wait: true,
        rules: &[&[
            "PLAN-91", "LWL-01", "LWL-02", "LWL-03", "LWL-04", "LWL-05", "LWL-06", "LWL-07", "DIST-06",
            "MEM-04",
        ]],
        words: "sessions queue inside of the server for a lightweight lock that no rule knows; its name is in the manual's table of wait events",
        commands: &[NOW],
    },
    Slice {
        part: READING,
        is_wait: true,
        rules: &[&[
            "IO-01", "IO-02", "IO-05", "IO-06", "IO-07", "IO-09", "IO-10", "MEM-04", "MEM-06", "PLAN-01",
            "PLAN-06", "PLAN-10", "PLAN-45", "VAC-15", "REP-14", "EXT-02", "CFG-01", "PLAN-57", "PLAN-58",
            "PLAN-59", "PLAN-60", "PLAN-61", "PLAN-46", "PLAN-48", "PLAN-49", "PLAN-50", "PLAN-51",
            "PLAN-52", "PLAN-53", "PLAN-54", "PLAN-55", "PLAN-56", "VAC-14", "TXN-13", "SES-07", "SES-08",
            "VAC-13", "PLAN-64", "PLAN-65", "PLAN-66", "PLAN-80", "PLAN-84", "PLAN-85", "PLAN-86", "PLAN-87",
            "PLAN-88", "PLAN-97", "PLAN-98", "VAC-17", "TXN-21",
        ]],
        words: "sessions wait for blocks that are not in shared_buffers",
        commands: &[
            "SELECT relname, heap_blks_read, heap_blks_hit FROM pg_statio_user_tables ORDER BY heap_blks_read DESC LIMIT 5;",
        ],
    },
    Slice {
        part: "writing and other I/O",
        is_wait: true,
        rules: &[&[
            "IO-01", "IO-05", "IO-06", "IO-08", "IO-09", "IO-10", "IO-11", "IO-12", "WAL-02", "WAL-03",
            "FS-01", "FS-02", "FS-05", "SEC-02", "TXN-21",
        ]],
        words: "sessions write or sync files themselves",
        commands: &["SELECT * FROM pg_stat_bgwriter;", NOW],
    },
    Slice {
        part: "extending files",
        is_wait: true,
        rules: &[&["LCK-05", "IO-05", "IO-06", "IO-09", "FS-01", "FS-02"]],
        words: "tables grow faster than the file system adds blocks to their files",
        commands: &[
            "SELECT relid::regclass, n_tup_ins FROM pg_stat_user_tables ORDER BY n_tup_ins DESC LIMIT 5;",
        ],
    },
    Slice {
        part: "temporary files",
        is_wait: true,
        rules: &[&["PLAN-02"]],
        words: "sorts, hash tables or CTEs do not fit into work_mem",
        commands: &[
            "SELECT queryid, calls, temp_blks_written / calls AS blocks FROM pg_stat_statements ORDER BY temp_blks_written DESC LIMIT 5;",
        ],
    },
    Slice {
        part: "buffer pins",
        is_wait: true,
        rules: &[&["REP-09", "LCK-08"]],
        words: "a process waits until no session looks at a page: an open cursor holds it",
        commands: &[NOW],
    },
    Slice {
        part: "the client",
        is_wait: true,
        rules: &[&["NET-03", "NET-06"]],
        words: "statements wait for their client: it sends slowly (COPY FROM STDIN), or reads its result slowly",
        commands: &[NOW],
    },
    Slice {
        part: FOR_NODES,
        is_wait: true,
        rules: &[&["NET-03", "NET-06"]],
        words: "sessions wait for other nodes, which do the work of their statements, or for their client: this engine shows both as one wait; the account of \
                each other node has what it does meanwhile",
        commands: &[NOW],
    },
    Slice {
        part: "parallel workers",
        is_wait: true,
        rules: &[&["PLAN-01", "PLAN-02", "PLAN-06", "PLAN-11", "PLAN-23"]],
        words: "leaders wait for their parallel workers, whose own time is counted with the statement",
        commands: &["SHOW max_parallel_workers;", NOW],
    },
    Slice {
        part: "other processes",
        is_wait: true,
        rules: &[&["REP-09", "REP-01", "PLAN-23", "TXN-21"]],
        words: "sessions wait for another process of the server",
        commands: &[NOW],
    },
    Slice {
        part: "extensions",
        is_wait: true,
        rules: &[&["EXT-01", "EXT-05", "EXT-06", "DIST-02", "DIST-03"]],
        words: "sessions wait in an extension: for another server, by postgres_fdw and its relatives or by the engine of a cluster",
        commands: &["SELECT srvname, srvoptions FROM pg_foreign_server;", NOW],
    },
    Slice {
        part: "cost limit of vacuum",
        is_wait: true,
        rules: &[&["VAC-01", "VAC-10"]],
        words: "a VACUUM by command sleeps for vacuum_cost_delay",
        commands: &["SHOW vacuum_cost_delay;"],
    },
    Slice {
        part: "spinlocks",
        is_wait: true,
        rules: &[&["SES-03", "CPU-06"]],
        words: "sessions back off from a spinlock: too many of them on too many CPUs, or a holder that lost its CPU",
        commands: &[NOW],
    },
    Slice {
        part: "other waits",
        is_wait: true,
        rules: &[],
        words: "waits that no rule knows",
        commands: &[NOW],
    },
    Slice {
        part: UNACCOUNTED,
        is_wait: true,
        rules: &[&[
            "LOG-01", "LOG-03", "LOG-04", "SES-01", "CPU-06", "CPU-08", "FS-01", "FS-02", "SEC-02", "MEM-02",
            "MEM-05", "IO-09",
        ]],
        words: "the server counts this time, and neither the scheduler nor a wait event explains it: sleeps in the kernel that PostgreSQL does not report \
            (page faults, reads of memory that was swapped out, writing to the log or a pipe), or waits too short and too many for samples",
        commands: &[
            "$ for p in $(pgrep -x postgres); do cat /proc/$p/wchan; echo; done | sort | uniq -c | sort -rn | head",
        ],
    },
];

impl Slice {
    /// Rules that explain it when they fire.
    pub(super) fn rules(&self) -> impl Iterator<Item = &'static str> {
        self.rules.iter().copied().flatten().copied()
    }

    /// Where to look, with the figures that are known.
    pub(super) fn look_at(&self, case: &Case, time: &NodeTime) -> String {
        let mut words = self.words.to_string();
        if self.part == FOR_CPU
            && let Some(host) = case.host_of(&time.node).and_then(|host| case.one("host", host))
        {
            let busy: f64 = ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"]
                .iter()
                .filter_map(|field| host.mean(field))
                .sum();
            let cores = host.last("cores").unwrap_or(0.0);
            words.push_str(&format!(
                ": {} of {} CPUs are busy; the statements that compute the most come first",
                units::short(busy / 100.0 * cores),
                units::short(cores)
            ));
        }
        if let Some(statement) =
            time.statements.first().filter(|_| [ON_CPU, FOR_CPU, CPU].contains(&self.part))
        {
            words.push_str(&format!(
                "; the largest is statement {} with {} of the time",
                statement.query_id,
                units::percent(statement.share)
            ));
        }
        if [ON_CPU, FOR_CPU, CPU, READING, "temporary files", "parallel workers"].contains(&self.part)
            && let Some(settings) = set_for_the_planner(case, &time.node)
        {
            words.push_str(&format!("; settings of the planner that are set here: {settings}"));
        }
        words
    }
}

/// How the names of settings begin that decide which plans are made. They are recorded where they are set at all.
const OF_PLANNER: [&str; 17] = [
    "enable_",
    "seq_page_cost",
    "cpu_",
    "parallel_",
    "min_parallel_",
    "max_parallel_",
    "join_collapse_limit",
    "from_collapse_limit",
    "geqo",
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "default_statistics_target",
    "plan_cache_mode",
    "jit",
    "debug_",
    "hash_mem_multiplier",
    "effective_cache_size",
];
/// Settings in a sentence.
const SETTINGS_MAX: usize = 6;

/// Such settings of a server, with their values.
fn set_for_the_planner(case: &Case, node: &str) -> Option<String> {
    let of_node = case.all_facts().iter().filter(|fact| fact.topic == "setting" && fact.node == node);
    let all: Vec<String> = of_node
        .filter(|fact| OF_PLANNER.iter().any(|begin| fact.name.starts_with(begin)))
        .take(SETTINGS_MAX)
        .map(|fact| format!("{} = {}", fact.name, fact.value))
        .collect();
    (!all.is_empty()).then(|| all.join(", "))
}
