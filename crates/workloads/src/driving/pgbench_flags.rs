//! What to type instead of the flags of pgbench that have no equivalent.

use crate::tpcb;

/// Those of a run, in the order of `pgbench --help`.
const OF_PGBENCH: &[(&[&str], &str)] = &[
    (
        &["-C"],
        "sessions keep their connections for the whole run: the cost of connecting is not measured; pgbench -C does that",
    ),
    (
        &["-l", "--log"],
        "every run writes latencies per second and type into its run directory (latency.hlog)",
    ),
    (
        &["-r", "--report-per-command", "--report-latencies"],
        "report RUN shows latencies per transaction type; per statement, explain RUN reads pg_stat_statements where it is installed",
    ),
    (
        &["--vacuum-all"],
        "run vacuums pgbench_branches and pgbench_tellers first, unless -n is given; for all tables and an empty history: \
         psql -c 'truncate pgbench_history' -c 'vacuum analyze' DBNAME",
    ),
    (
        &["--aggregate-interval"],
        "samples.ndjson and latency.hlog of every run directory have each second of it",
    ),
    (
        &["--failures-detailed"],
        "every run lists its errors by SQLSTATE, in its report and in run.json (steps[].errors)",
    ),
    (
        &["--log-prefix"],
        "-o DIR names the run directory; its latency.hlog holds latencies per second and type",
    ),
    (
        &["--progress-timestamp"],
        "samples.ndjson of the run directory has the time of every second; run.json has its anchor (started)",
    ),
    (&["--sampling-rate"], "latency.hlog counts every transaction, so sampling is not needed"),
    (
        &["--show-script"],
        "pgfathom run -b list names the built-in scripts; pgbench --show-script=NAME prints the same ones",
    ),
    (
        &["--verbose-errors"],
        "every run lists its errors by SQLSTATE with the first message of each, in its report and in events.ndjson",
    ),
    (
        &["--exit-on-abort"],
        "a session is aborted if its script ends inside a transaction; the run then exits with 2, and stops at once when all sessions are aborted",
    ),
    (
        &["--continue-on-error"],
        "errors of the server do not end a session: each is counted, and the next transaction begins",
    ),
    (&["--debug"], "-v prints more; with log_statement = all the server logs all statements"),
];

/// What to type instead of a flag of pgbench: of a run, or of the making of its tables.
pub fn instead(flag: &str) -> Option<&'static str> {
    let mut all = tpcb::run::INSTEAD_OF_INIT.iter().chain(OF_PGBENCH);
    all.find(|(flags, _)| flags.contains(&flag)).map(|(_, instead)| *instead)
}
