//! PLAN, SES: statements and sessions that take the time of a node, by the account of it ([`crate::node_time`]). What takes little time is no finding here,
//! however ugly its plan is.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Any, Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::text::one_line;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-01",
        title: "a frequent statement scans a table for a few rows",
        needs: &[
            Field("statement", "calls"),
            Field("table", "seq_scans"),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time, 2 executions a second that touch 100 blocks for fewer rows than blocks, \
            and as many scans of a table by 1,000 rows or more (ours)",
        judge: scan,
        links: &["https://www.postgresql.org/docs/current/indexes-examine.html"],
    },
    Rule {
        id: "PLAN-02",
        title: "statements spill to temporary files",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "10 % of the session time in a statement that writes 1 MB of temporary files per execution (ours)",
        judge: spill,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-WORK-MEM"],
    },
    Rule {
        id: "SES-01",
        title: "sessions are opened for a few transactions each",
        needs: &[Field("server", "sessions_opened"), Field("server", "xact_commit")],
        limits: "10 sessions opened a second, and one for every 20 transactions or fewer (ours)",
        judge: churn,
        links: &["https://www.postgresql.org/docs/current/connect-estab.html"],
    },
    Rule {
        id: "SES-02",
        title: "sessions wait for CPUs that other programs use",
        needs: &[Field("schedule", "wait_us"), Field("host", "cpu_user_pct"), Field("host", "cores")],
        limits: "25 % of the session time waiting for a CPU, on a host of which others use 40 %, and as much as three quarters of what the sessions use (ours)",
        judge: crowded,
        links: &["docs/explain.md"],
    },
    Rule {
        id: "MEM-04",
        title: "shared_buffers are small, and blocks are copied from the page cache again and again",
        needs: &[
            Field("server", "blks_read"),
            Facts("setting"),
            Any(&[Field("host", "memory_total_bytes"), Field("disk", "read_bytes")]),
        ],
        limits: "1,000 blocks a second, 5 % of those touched, not found in shared_buffers of less than 5 % of the memory, \
            and less than a third of them read from disks (ours)",
        judge: buffers,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-SHARED-BUFFERS"],
    },
];

/// A node with fewer active sessions has no problem with its time.
const ACTIVE_MIN: f64 = 0.5;
/// A share of the time from which on a finding is high.
const SHARE_HIGH: f64 = 0.5;
/// The share of the time of a statement that scans.
const SCAN_SHARE_MIN: f64 = 0.2;
/// Executions a second: a report that is run now and then may scan.
const SCAN_CALLS_PER_S_MIN: f64 = 2.0;
/// Blocks that an execution touches.
const SCAN_BLOCKS_MIN: f64 = 100.0;
/// Rows of a scan: small tables are scanned rightly.
const SCAN_ROWS_MIN: f64 = 1_000.0;
/// Scans of the table per execution; half, as the two are not polled at the same time.
const SCANS_PER_CALL_MIN: f64 = 0.5;
/// The share of the time of a statement that spills.
const SPILL_SHARE_MIN: f64 = 0.1;
/// Bytes that it spills per execution.
const SPILL_BYTES_MIN: f64 = 1e6;
/// A sort or a hash table needs more memory than it takes in a file.
const MEMORY_PER_SPILLED: f64 = 3.0;
/// Sessions opened a second.
const OPENED_PER_S_MIN: f64 = 10.0;
/// Transactions for each of them.
const TRANSACTIONS_PER_SESSION_MAX: f64 = 20.0;
/// Likewise, from where on the finding is high.
const TRANSACTIONS_PER_SESSION_HIGH: f64 = 3.0;
/// The share of the time waiting for a CPU.
const QUEUE_SHARE_MIN: f64 = 0.25;
/// The share of the host's CPUs that others use.
const OTHERS_SHARE_MIN: f64 = 0.4;
/// What others use, against what the sessions use: a client on the same host uses less.
const OTHERS_PER_SERVER_MIN: f64 = 0.75;
/// Blocks a second that were not in shared buffers.
const MISSES_PER_S_MIN: f64 = 1_000.0;
/// The share of these among all that were touched.
const MISS_SHARE_MIN: f64 = 0.05;
/// shared_buffers, as a share of the memory.
const BUFFERS_SHARE_MAX: f64 = 0.05;
/// The share of the misses that came from disks.
const FROM_DISK_MAX: f64 = 1.0 / 3.0;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 160;
/// Characters of a statement that is offered for pasting; what is cut ends with an ellipsis, and is not offered.
const PASTED_CHARS_MAX: usize = 2_000;

fn severity(share: f64) -> Severity {
    if share >= SHARE_HIGH { Severity::High } else { Severity::Medium }
}

/// Nodes whose sessions are at work.
fn busy(case: &Case) -> impl Iterator<Item = &NodeTime> {
    node_time::all(case).iter().filter(|time| time.active >= ACTIVE_MIN)
}

/// A statement in one line, or its id.
fn in_a_line(statement: &StatementTime) -> String {
    match one_line(&statement.text, STATEMENT_CHARS) {
        text if text.is_empty() => format!("statement {}", statement.query_id),
        text => text,
    }
}

/// What shows its plan without running it; parameters need PostgreSQL 16.
fn explain_it(statement: &StatementTime) -> String {
    let text = one_line(statement.text.trim_end().trim_end_matches(';'), PASTED_CHARS_MAX);
    if is_pastable(&text) {
        return format!("EXPLAIN (GENERIC_PLAN) {text};");
    }
    format!("SELECT query FROM pg_stat_statements WHERE queryid = {};", statement.query_id)
}

/// Whether a foreign statement is one statement, whole, when it is pasted into psql as one line: no second one after a semicolon,
/// no command of psql, no comment that ends differently there, nothing that a terminal reads as a key.
fn is_pastable(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii() && !c.is_ascii_control());
    !text.is_empty() && is_plain && !["--", "/*", ";", "\\"].iter().any(|mark| text.contains(mark))
}

/// A table of the statement's database that is scanned about as often as the statement runs, and the rows of a scan.
fn scanned<'a>(case: &'a Case, node: &'a str, statement: &StatementTime) -> Option<(Thing<'a>, f64, f64)> {
    let calls_per_s = statement.calls_per_s?;
    let scans = case.at("table", node).filter_map(|table| {
        let same = table.lines.word("database") == statement.database || statement.database.is_empty();
        let (scans, rows) = (table.lines.sum("seq_scans")?, table.lines.sum("seq_rows")?);
        let per_s = table.lines.rate("seq_scans")?;
        let each = rows / scans.max(1.0);
        let fits = same && each >= SCAN_ROWS_MIN && per_s >= calls_per_s * SCANS_PER_CALL_MIN;
        fits.then_some((table, each, per_s))
    });
    scans.max_by(|left, right| (left.1 * left.2).total_cmp(&(right.1 * right.2)))
}

fn scan(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            let (Some(calls), Some(blocks)) = (statement.calls_per_s, statement.blocks) else { continue };
            let rows = statement.rows.unwrap_or(0.0);
            let is_wasteful = blocks >= SCAN_BLOCKS_MIN && rows < blocks;
            if statement.share < SCAN_SHARE_MIN || calls < SCAN_CALLS_PER_S_MIN || !is_wasteful {
                continue;
            }
            let Some((table, each, scans)) = scanned(case, &time.node, statement) else { continue };
            // What it reads is then not most of its time.
            let spills = statement.temp_bytes.is_some_and(|bytes| bytes >= SPILL_BYTES_MIN);
            claims.push(
                Claim::new(
                    if spills { Severity::Medium } else { severity(statement.share) },
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is one statement that reads {} rows of {} to return {}, {} times a second",
                        time.node,
                        units::percent(statement.share),
                        units::short(each),
                        table.lines.word("relation"),
                        units::short(rows),
                        units::short(calls)
                    ),
                )
                .on_node(&time.node)
                .during([table.lines.ticks.window()])
                .number("share", statement.share)
                .number("rows_per_scan", each)
                .number("blocks_per_call", blocks)
                .number("calls_per_s", calls)
                .because(format!("the statement: {}", in_a_line(statement)))
                .because(format!(
                    "{} sequential scans a second of {}, {} rows each; it touches {} blocks per execution",
                    units::short(scans),
                    table.lines.word("relation"),
                    units::short(each),
                    units::short(blocks)
                ))
                .not("a table too small for an index: a scan reads 1,000 rows or more")
                .lacking("the plan: whether a condition of the statement has no index, or one that it cannot use")
                .remedy(
                    "look for the sequential scan in its plan (GENERIC_PLAN from PostgreSQL 16 on; as the role that runs it, because \
                     planning evaluates functions), and give the columns of its condition an index (CREATE INDEX CONCURRENTLY does not block writes)",
                    &[&explain_it(statement)],
                ),
            );
        }
    }
    Answer::of(claims, || "statements that take the time, and sequential scans of tables".to_string())
}

fn spill(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            let bytes = statement.temp_bytes.unwrap_or(0.0);
            if statement.share < SPILL_SHARE_MIN || bytes < SPILL_BYTES_MIN {
                continue;
            }
            let megabytes = (bytes * MEMORY_PER_SPILLED / f64::from(1 << 20)).ceil().max(1.0) as u64;
            let needed = megabytes.next_power_of_two();
            let now = case.setting(&time.node, "work_mem").unwrap_or("unknown");
            claims.push(
                Claim::new(
                    severity(statement.share),
                    Level::CoOccurrence,
                    format!(
                        "{}: a statement that takes {} of the session time writes {} of temporary files per execution (work_mem {now})",
                        time.node,
                        units::percent(statement.share),
                        units::bytes(bytes)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .number("temp_bytes_per_call", bytes)
                .because(format!("the statement: {}", in_a_line(statement)))
                .lacking("the time of the files alone: EXPLAIN (ANALYZE, BUFFERS) shows it with track_io_timing")
                .remedy(
                    "let the sort or hash table stay in memory, in this session or for its role only: each sort of each session \
                     may take so much; or let an index deliver the order",
                    &[&format!("SET work_mem = '{needed}MB';"), &explain_it(statement)],
                ),
            );
        }
    }
    Answer::of(claims, || "temporary files of the statements that take the time".to_string())
}

fn churn(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let opened = rate("sessions_opened");
        let each = (rate("xact_commit") + rate("xact_rollback")) / opened.max(f64::MIN_POSITIVE);
        if opened < OPENED_PER_S_MIN || each > TRANSACTIONS_PER_SESSION_MAX {
            continue;
        }
        let is_high = each <= TRANSACTIONS_PER_SESSION_HIGH && opened >= OPENED_PER_S_MIN * 2.0;
        claims.push(
            Claim::new(
                if is_high { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} sessions are opened a second, one for every {} transactions",
                    server.place,
                    units::short(opened),
                    units::short(each)
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("sessions_opened_per_s", opened)
            .number("transactions_per_session", each)
            .because("pg_stat_database.sessions counts every session that was opened: the server starts a process for each, which fills its caches anew")
            .remedy(
                "keep connections open: a pool in the application, or pgbouncer between it and the server",
                &["SELECT application_name, usename, client_addr, count(*) FROM pg_stat_activity \
                    WHERE backend_start > now() - interval '10 s' GROUP BY 1, 2, 3 ORDER BY 4 DESC;"],
            ),
        );
    }
    Answer::of(claims, || "sessions opened, against transactions".to_string())
}

/// CPUs of the host used by everything, and by PostgreSQL's processes and our client.
fn cpus(case: &Case, node: &str, host: &str) -> Option<(f64, f64, f64)> {
    let lines = case.one("host", host)?;
    let cores = lines.last("cores").filter(|cores| *cores > 0.0)?;
    let busy: f64 = ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"]
        .into_iter()
        .filter_map(|field| lines.mean(field))
        .sum();
    let server = |thing: &Thing<'_>| {
        let all = thing.lines.mean("tasks")? / thing.lines.mean("looked")?.max(1.0);
        Some(thing.lines.rate("run_us")? / 1e6 * all.max(1.0))
    };
    let is_here = |thing: &Thing<'_>| thing.lines.word("host") == host;
    let sessions: f64 = case
        .things("schedule")
        .filter(|thing| is_here(thing) && matches!(thing.name, "backends" | "client"))
        .filter_map(|thing| server(&thing))
        .sum();
    let background: f64 = case
        .things("backend")
        .filter(|thing| thing.place == host && thing.lines.word("backend") != "client backend")
        .filter_map(|thing| thing.lines.rate("cpu_us"))
        .sum();
    let own =
        case.at("schedule", node).find(|thing| thing.name == "backends").and_then(|thing| server(&thing))?;
    Some((busy / 100.0 * cores - sessions - background / 1e6, own, cores))
}

fn crowded(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let waiting = time.parts.iter().find(|part| part.name == node_time::FOR_CPU);
        let Some(waiting) = waiting.filter(|part| part.share >= QUEUE_SHARE_MIN) else { continue };
        let Some(host) = case
            .at("schedule", &time.node)
            .find(|thing| thing.name == "backends")
            .map(|thing| thing.lines.word("host"))
        else {
            continue;
        };
        let Some((others, own, cores)) = cpus(case, &time.node, host) else { continue };
        if others < cores * OTHERS_SHARE_MIN || others < own * OTHERS_PER_SERVER_MIN {
            continue;
        }
        claims.push(
            Claim::new(
                severity(waiting.share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: sessions wait for a CPU in {} of their time, while other programs use {} of the {} CPUs of {host}",
                    time.node,
                    units::percent(waiting.share),
                    units::short(others),
                    units::short(cores)
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(case.one("host", host).map(|host| host.ticks.window()))
            .number("share", waiting.share)
            .number("cpus_of_others", others)
            .number("cpus_of_sessions", own)
            .because(format!(
                "the scheduler: the sessions computed on {} CPUs, and wanted {} more that they did not get",
                units::short(own),
                units::short(waiting.sessions)
            ))
            .not("the server's own load alone: what its processes and this client used is subtracted")
            .lacking("the names of the programs: look while it lasts")
            .remedy(
                "find the programs, and move them to another host or give them a lower weight",
                &["$ top -b -n 1 -o %CPU | head -n 20", "$ systemd-cgtop -n 1 --cpu=percentage"],
            ),
        );
    }
    Answer::of(claims, || "waiting for a CPU, and what other programs used".to_string())
}

fn buffers(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let (missed, hit) = (rate("blks_read"), rate("blks_hit"));
        let share = missed / (missed + hit).max(1.0);
        let text = case.setting(server.place, "shared_buffers");
        let (Some(host), Some(buffers)) =
            (case.host_of(server.place), text.and_then(super::wal::setting_bytes))
        else {
            continue;
        };
        let Some(memory) = case.one("host", host).and_then(|host| host.last("memory_total_bytes")) else {
            continue;
        };
        if missed < MISSES_PER_S_MIN || share < MISS_SHARE_MIN || buffers >= memory * BUFFERS_SHARE_MAX {
            continue;
        }
        // A disk and its members both have lines: the busiest is enough to see whether disks are read at all.
        let from_disk = case
            .at("disk", host)
            .filter_map(|disk| disk.lines.rate("read_bytes"))
            .reduce(f64::max)
            .unwrap_or(0.0);
        if from_disk > missed * BLOCK_BYTES * FROM_DISK_MAX {
            continue;
        }
        claims.push(
            Claim::new(
                if share >= SHARE_HIGH { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} blocks a second are not in shared_buffers of {} and are copied from the page cache, {} of those touched",
                    server.place,
                    units::short(missed),
                    text.unwrap_or(""),
                    units::percent(share)
                ),
            )
            .on_node(server.place)
            .on_host(host)
            .during([server.lines.ticks.window()])
            .number("misses_per_s", missed)
            .number("miss_share", share)
            .number("shared_buffers_bytes", buffers)
            .because(format!(
                "the disks delivered {} a second, the misses are {} a second: the data is in memory, but not in shared_buffers",
                units::bytes(from_disk),
                units::bytes(missed * BLOCK_BYTES)
            ))
            .because(format!("the host has {} of memory", units::bytes(memory)))
            .not("slow disks: they are hardly read")
            .remedy(
                "a quarter of the memory is the usual beginning; the server has to be restarted, which ends all sessions",
                &[&format!("ALTER SYSTEM SET shared_buffers = '{}MB'; -- then restart the server", (memory / 4.0 / f64::from(1 << 20)) as u64)],
            ),
        );
    }
    Answer::of(claims, || "blocks that were not in shared_buffers, and reads of the disks".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_harmless_statement_is_offered_for_pasting() {
        let of = |text: &str| {
            explain_it(&StatementTime {
                query_id: "17".to_string(),
                text: text.to_string(),
                ..StatementTime::default()
            })
        };
        assert_eq!(
            of("select *\n  from t where a = $1;"),
            "EXPLAIN (GENERIC_PLAN) select * from t where a = $1;"
        );
        let by_id = "SELECT query FROM pg_stat_statements WHERE queryid = 17;";
        let long = format!("select {}", "a, ".repeat(PASTED_CHARS_MAX));
        let hostile = [
            "",
            ";",
            "select 1; drop table t",
            "select 1 -- first\n, drop_all()",
            "select /* a */ 1",
            "select 1 \\! rm x",
            "select '\u{1b}[2J'",
            "select 'é'",
            long.as_str(),
        ];
        for text in hostile {
            assert_eq!(of(text), by_id, "{text:?}");
        }
    }
}
