//! PLAN, SES, LOG: statements and sessions that take the time of a node, by the account of it ([`crate::node_time`]). What takes little time is no
//! finding here, however ugly its plan is.

mod newcomer;
mod opened;
mod planning;
mod scan;
mod spill;

pub(super) use planning::{joined_tables, share as planning_share};
pub(crate) use scan::WHOLE_FUNCTION;
pub(super) use scan::{conditions_on, explain_it, is_scanned};

use super::costly::{busy, in_a_line, severity};
use crate::case::Case;
use crate::case::engine::reset_command;
use crate::node_time;
use crate::rule::Need::{Any, Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
pub(crate) use opened::BY_STATEMENT;
use record::finding::{Level, Severity, StatementTime};
pub(crate) use spill::{OWN_LIMIT, SAVED_LEAST, SAVED_MOST};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-01",
        title: "a frequent statement scans a table for a few rows",
        needs: &[
            Field("statement", "calls"),
            Field("table", "seq_scans"),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time; 2 executions a second that touch 100 blocks each and return fewer rows than blocks; \
            as many sequential scans of 1,000 rows or more (ours)",
        judge: scan::scan,
        links: &["https://www.postgresql.org/docs/current/indexes-examine.html"],
    },
    Rule {
        id: "PLAN-02",
        title: "statements spill to temporary files",
        needs: &[
            Any(&[Field("statement", "calls"), Field("server", "temp_bytes")]),
            Field("server", "sessions_active"),
        ],
        limits: "10 % of the session time in a statement that writes 1 MB of temporary files per execution; without pg_stat_statements 1 MB a second, \
            in two files or more (ours)",
        judge: spill::spill,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-WORK-MEM"],
    },
    Rule {
        id: "SES-01",
        title: "sessions are opened for a few transactions each",
        needs: &[Field("server", "sessions_opened"), Field("server", "xact_commit")],
        limits: "50 sessions opened, 10 a second, and one for every 20 transactions or fewer (ours)",
        judge: churn,
        links: &["https://www.postgresql.org/docs/current/connect-estab.html"],
    },
    Rule {
        id: "PLAN-03",
        title: "just-in-time compilation slows short statements",
        needs: &[Field("statement", "jit_ms"), Field("server", "sessions_active")],
        limits: "10 % of the session time in just-in-time compilation, which is 30 % of the statement's own (ours)",
        judge: compiled,
        links: &["https://www.postgresql.org/docs/current/jit-decision.html"],
    },
    Rule {
        id: "PLAN-04",
        title: "planning statements takes longer than running them",
        needs: &[Field("statement", "plan_ms"), Field("server", "sessions_active")],
        limits: "20 % of the session time in planning statements that take less time to run; where the server does not count it (track_planning), in a \
            statement \
            that takes 1 ms to plan, three times as long as to run, and with which sessions compute three times as long as its executions take; where no plan \
            was made, 20 ms and ten times as long, of 20 executions of a SELECT; with a text of 3,000 characters 5 ms and as long as it runs (ours)",
        judge: planning::planned,
        links: &["https://www.postgresql.org/docs/current/sql-prepare.html"],
    },
    Rule {
        id: "LOG-01",
        title: "every statement is written to the log",
        needs: &[Facts("setting"), Any(&[Field("statement", "calls"), Field("server", "xact_commit")])],
        limits: "log_statement = all, log_duration = on, debug_print_... or log_..._stats = on, log_min_duration_statement = 0, \
            auto_explain.log_min_duration = 0 or pgaudit.log = all, with \
            100 statements a second; high from 3,000 on, and from 1,000 on with plans that are timed, trees or statistics; from 1 on where 30 % of the session \
            time is on no CPU and in no wait that PostgreSQL names (ours)",
        judge: logged,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHEN",
        ],
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

/// From this share of an engine's own sessions on, they are what is opened.
const ENGINE_SHARE: f64 = 0.5;
/// Sessions opened in all: a program opens those that it keeps when it begins.
const OPENED_MIN: f64 = 50.0;
/// Sessions opened a second.
const OPENED_PER_S_MIN: f64 = 10.0;
/// Transactions for each of them.
const TRANSACTIONS_PER_SESSION_MAX: f64 = 20.0;
/// Likewise, from where on the finding is high.
const TRANSACTIONS_PER_SESSION_HIGH: f64 = 3.0;
/// The share of the time that is compilation.
const JIT_SHARE_MIN: f64 = 0.1;
/// Compilation, of the statement's own time: a long statement may gain by it.
const JIT_OF_STATEMENT_MIN: f64 = 0.3;
/// Settings that write every statement to the log, and their values.
const LOGS_ALL: [(&str, &str); 17] = [
    ("debug_print_plan", "on"),
    ("debug_print_parse", "on"),
    ("debug_print_rewritten", "on"),
    ("log_executor_stats", "on"),
    ("log_planner_stats", "on"),
    ("log_parser_stats", "on"),
    ("log_statement_stats", "on"),
    ("auto_explain.log_min_duration", "0"),
    ("pgaudit.log", "all"),
    ("log_statement", "all"),
    ("log_min_duration_statement", "0"),
    ("log_duration", "on"),
    ("log_min_messages", "debug1"),
    ("log_min_messages", "debug2"),
    ("log_min_messages", "debug3"),
    ("log_min_messages", "debug4"),
    ("log_min_messages", "debug5"),
];
/// A time of nothing, as the server writes it.
const ZERO_TIMES: [&str; 2] = ["0ms", "0s"];
/// Statements a second from which on it is worth a word.
const LOGGED_PER_S_MIN: f64 = 100.0;
/// The same where sessions are blocked, so that they send few.
const LOGGED_PER_S_BLOCKED: f64 = 1.0;
/// The share of the session time without an account, from which on sessions are blocked.
const BLOCKED_SHARE_MIN: f64 = 0.3;
/// Likewise, from where on it is no longer low.
const LOGGED_PER_S_MEDIUM: f64 = 1_000.0;
/// The same where it is most of what a server does.
const LOGGED_PER_S_HIGH: f64 = 3_000.0;
const LOGGED_LONG_PER_S_HIGH: f64 = 1_000.0;
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
/// The share of the session time in reads from which on small shared_buffers are more than a hint.
const READING_SHARE_MIN: f64 = 0.1;
/// Likewise, from where on it is more than low.
const READING_SHARE_FELT: f64 = 0.15;

/// Of the active sessions of a node, the share that its engine opened for work of other nodes.
fn engine_share(case: &Case, node: &str) -> Option<f64> {
    let (mut all, mut own) = (0.0, 0.0);
    for group in case.at("activity", node) {
        let sessions = group.lines.sum("sessions").unwrap_or(0.0);
        all += sessions;
        if case.is_own(node, record::watched::own::SESSIONS, group.lines.word("application")) {
            own += sessions;
        }
    }
    (all > 0.0).then(|| own / all)
}

/// What ends connections that are opened again and again.
const POOL: &str = "keep connections open: a pool in the application, or pgbouncer between it and the server";

fn churn(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let opened = rate("sessions_opened");
        // The server counts a transaction of its own when a session begins (`InitPostgres` in postinit.c).
        let transactions = (rate("xact_commit") + rate("xact_rollback") - opened).max(0.0);
        let each = transactions / opened.max(f64::MIN_POSITIVE);
        let count = server.lines.sum("sessions_opened").unwrap_or(0.0);
        if opened < OPENED_PER_S_MIN || count < OPENED_MIN || each > TRANSACTIONS_PER_SESSION_MAX {
            continue;
        }
        let is_high = each <= TRANSACTIONS_PER_SESSION_HIGH && opened >= OPENED_PER_S_MIN * 2.0;
        let of_engine = engine_share(case, server.place);
        let severity = match of_engine {
            Some(share) if share >= ENGINE_SHARE => Severity::Low,
            _ if is_high => Severity::High,
            _ => Severity::Medium,
        };
        let opener = opened::Opener::of(case, server.place, opened);
        let pool = newcomer::pool(case, server.place, opened).filter(|_| opener.is_none());
        claims.push(
            Claim::new(
                opener.as_ref().map_or(severity, |opener| severity.max(opener.severity())),
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} connections are opened a second, one for every {} transactions{}",
                    server.place,
                    units::short(opened),
                    units::short(each),
                    opener.as_ref().map_or_else(
                        || pool.clone().or_else(|| newcomer::role(case, server.place, opened)).unwrap_or_default(),
                        opened::Opener::words
                    )
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("sessions_opened_per_s", opened)
            .number("transactions_per_session", each)
            .with(server.lines.max("sessions_tls").filter(|tls| *tls > 0.0), |claim, tls| {
                claim.number("sessions_tls", tls).because(
                    "they use TLS: a handshake costs each of them more CPU than most transactions (a session ticket does not help: PostgreSQL has none)",
                )
            })
            .with(of_engine.filter(|share| *share > 0.0), |claim, share| {
                let pools = case.own(server.place, record::watched::own::POOLS).map_or(String::new(), |pools| format!(": {pools}"));
                claim.number("share_of_engine", share).because(format!(
                    "{} of the sessions at work here are the engine's own, which work for sessions at other nodes: it has settings for how many of them it \
                     keeps open{pools}",
                    units::percent(share)
                ))
            })
            .because("pg_stat_database.sessions counts every session that was opened: the server starts a process for each, which fills its caches anew")
            .with(opener.as_ref(), |claim, opener| opener.described(claim))
            .remedy(
                match (&opener, &pool) {
                    (Some(_), _) => opened::KEEP,
                    (None, Some(_)) => newcomer::KEEP_IN_POOL,
                    (None, None) => POOL,
                },
                &["SELECT application_name, usename, client_addr, count(*) FROM pg_stat_activity \
                    WHERE backend_start > now() - interval '10 s' GROUP BY 1, 2, 3 ORDER BY 4 DESC;"],
            ),
        );
    }
    Answer::of(claims, || "sessions opened, against transactions".to_string())
}

/// The share of the session time in compilation of a statement; 0 if that is little of its own time.
pub(crate) fn compiled_share(statement: &StatementTime) -> f64 {
    let (Some(jit_ms), Some(mean_ms)) = (statement.jit_ms, statement.mean_ms) else { return 0.0 };
    let of_statement = (jit_ms / mean_ms.max(f64::MIN_POSITIVE)).min(1.0);
    if of_statement < JIT_OF_STATEMENT_MIN { 0.0 } else { statement.share * of_statement }
}

fn compiled(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            let (Some(jit_ms), Some(mean_ms)) = (statement.jit_ms, statement.mean_ms) else { continue };
            let share = compiled_share(statement);
            if share < JIT_SHARE_MIN {
                continue;
            }
            claims.push(
                Claim::new(
                    severity(share),
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is just-in-time compilation of a statement that takes {}",
                        time.node,
                        units::percent(share),
                        units::us(mean_ms * 1e3)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", share)
                .number("jit_ms_per_call", jit_ms)
                .number("ms_per_call", mean_ms)
                .because(format!("the statement: {}", in_a_line(statement)))
                .because(format!(
                    "{} of its {} are compilation, as pg_stat_statements counts it",
                    units::us(jit_ms * 1e3),
                    units::us(mean_ms * 1e3)
                ))
                .remedy(
                    "turn it off for this role, or raise jit_above_cost: the planner's cost of the statement is too high (look at its estimated rows), or \
                     the limits are too low",
                    &["ALTER SYSTEM SET jit = off; -- or: ALTER ROLE name SET jit = off", "SELECT pg_reload_conf();"],
                ),
            );
        }
    }
    Answer::of(claims, || "just-in-time compilation of the statements that take the time".to_string())
}

/// The setting that writes every statement to the log: its name, its value, and the role or database at work that has it, if it is not the server's.
fn logs_all<'a>(case: &'a Case, node: &'a str) -> Option<(&'static str, &'static str, Option<&'a str>)> {
    let is_all =
        |all: &str, value: &str| value.eq_ignore_ascii_case(all) || all == "0" && ZERO_TIMES.contains(&value);
    let of_server = |(name, all): &&(&'static str, &'static str)| {
        case.setting(node, name).is_some_and(|value| is_all(all, value))
    };
    if let Some((name, all)) = LOGS_ALL.iter().find(of_server) {
        return Some((name, all, None));
    }
    LOGS_ALL.iter().find_map(|(name, all)| {
        let mut own = case.own_settings(node, name);
        let (owner, _) = own.find(|(owner, value)| is_all(all, value) && case.is_at_work(node, owner, ""))?;
        Some((*name, *all, Some(owner)))
    })
}

/// Statements a second from which on writing them is most of their work: plans with the time of every step, and trees of each statement, take longer than
/// lines.
fn high_from(case: &Case, node: &str, name: &str) -> f64 {
    let is_timed =
        name.starts_with("auto_explain") && case.setting(node, "auto_explain.log_analyze") == Some("on");
    let is_long = is_timed || name.starts_with("debug_print") || name.ends_with("_stats");
    if is_long { LOGGED_LONG_PER_S_HIGH } else { LOGGED_PER_S_HIGH }
}

/// Rows that a second passes from step to step of plans of which every row is timed, from which on the timing takes much of the time.
const TIMED_ROWS_PER_S_MIN: f64 = 100_000.0;
/// The share of the session time of such statements, from which on it is high.
const SHARE_TIMED_HIGH: f64 = 0.3;

/// Where auto_explain times every row of every statement: the share of the session time of the statements with such plans, and their rows a second.
fn timed_rows(case: &Case, node: &str, name: &str) -> Option<(f64, f64)> {
    let is =
        |setting: &str, value: &str, default: &str| case.setting(node, setting).unwrap_or(default) == value;
    let all = name.starts_with("auto_explain")
        && is("auto_explain.log_analyze", "on", "off")
        && is("auto_explain.log_timing", "on", "on")
        && case
            .setting(node, "auto_explain.sample_rate")
            .is_none_or(|rate| rate.parse::<f64>().is_ok_and(|rate| rate >= 0.5));
    let time =
        node_time::all(case).iter().find(|time| time.node == node && !time.is_idle()).filter(|_| all)?;
    let rows_of = |one: &StatementTime| -> f64 {
        let nodes = case.at("plan_node", node).filter(|found| found.lines.word("query_id") == one.query_id);
        nodes.filter_map(|found| found.lines.last("rows_planned")).sum::<f64>()
            * one.calls_per_s.unwrap_or(0.0)
    };
    let each: Vec<(f64, f64)> = time.statements.iter().map(|one| (one.share, rows_of(one))).collect();
    let rows: f64 = each.iter().map(|(_, rows)| rows).sum();
    let share: f64 = each.iter().filter(|(_, rows)| *rows > 0.0).map(|(share, _)| share).sum();
    (rows >= TIMED_ROWS_PER_S_MIN).then_some((share, rows))
}

/// The commands that end it.
fn less_logged(name: &str) -> Vec<&'static str> {
    match name {
        "auto_explain.log_min_duration" => vec![
            "ALTER SYSTEM SET auto_explain.log_min_duration = '1s';",
            "ALTER SYSTEM SET auto_explain.log_analyze = off;",
            "SELECT pg_reload_conf();",
        ],
        "pgaudit.log" => vec!["ALTER SYSTEM SET pgaudit.log = 'ddl, role';", "SELECT pg_reload_conf();"],
        name if name.starts_with("debug_print") => vec![
            "ALTER SYSTEM SET debug_print_parse = off;",
            "ALTER SYSTEM SET debug_print_rewritten = off;",
            "ALTER SYSTEM SET debug_print_plan = off;",
            "SELECT pg_reload_conf();",
        ],
        name if name.ends_with("_stats") => vec![
            "ALTER SYSTEM SET log_statement_stats = off;",
            "ALTER SYSTEM SET log_parser_stats = off;",
            "ALTER SYSTEM SET log_planner_stats = off;",
            "ALTER SYSTEM SET log_executor_stats = off;",
            "SELECT pg_reload_conf();",
        ],
        _ => vec![
            "ALTER SYSTEM SET log_statement = 'none';",
            "ALTER SYSTEM SET log_duration = off;",
            "ALTER SYSTEM SET log_min_duration_statement = '250ms';",
            "SELECT pg_reload_conf();",
        ],
    }
}

/// The share of the session time that is on no CPU, in no queue for one, and in no wait that PostgreSQL names, where it is so much that sessions are blocked.
fn blocked(case: &Case, node: &str) -> Option<f64> {
    let time = node_time::all(case).iter().find(|time| time.node == node && !time.is_idle())?;
    Some(node_time::share_of_part(time, node_time::UNACCOUNTED)).filter(|share| *share >= BLOCKED_SHARE_MIN)
}

/// That they may be blocked by the log, as the end of a claim.
fn in_pipe(share: f64) -> String {
    format!(
        ", and {} of the session time is on no CPU and in no wait that PostgreSQL names, as of sessions that are blocked until their lines are taken",
        units::percent(share)
    )
}

const BLOCKED: &str = "all sessions write into one pipe; where the logging collector, journald or the runtime of a container reads it slowly (a busy CPU, a \
    slow \
    disk of the log), each session waits in the kernel (wchan pipe_write), and no view shows it";

fn logged(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let Some((name, value, owner)) = logs_all(case, server.place) else { continue };
        let counted: f64 =
            case.at("statement", server.place).filter_map(|statement| statement.lines.rate("calls")).sum();
        // Workers that apply others' changes commit without a statement.
        let is_local = !case.applies(server.place);
        let transactions = server.lines.rate("xact_commit").filter(|_| is_local).unwrap_or(0.0);
        let per_s = counted.max(transactions);
        let blocked = blocked(case, server.place);
        if per_s < if blocked.is_some() { LOGGED_PER_S_BLOCKED } else { LOGGED_PER_S_MIN } {
            continue;
        }
        let reset = owner.map(|owner| reset_command(owner, name)).unwrap_or_default();
        let timed = timed_rows(case, server.place, name);
        claims.push(
            Claim::new(
                match per_s {
                    _ if let Some(share) = blocked => severity(share),
                    _ if timed.is_some_and(|(share, _)| share >= SHARE_TIMED_HIGH) => Severity::High,
                    _ if timed.is_some() => Severity::Medium,
                    many if many >= high_from(case, server.place, name) => Severity::High,
                    many if many >= LOGGED_PER_S_MEDIUM => Severity::Medium,
                    _ => Severity::Low,
                },
                Level::CoOccurrence,
                format!(
                    "{}: each of {} statements a second{} is written to the server's log ({name} = {value}){}{}",
                    server.place,
                    units::short(per_s),
                    owner.map(|owner| format!(" that is of {owner}")).unwrap_or_default(),
                    blocked.map(in_pipe).unwrap_or_default(),
                    timed.map_or(String::new(), |(_, rows)| format!(
                        ", with its plan and the time of each row in each step (auto_explain.log_analyze): {} rows a second are timed, by the plans",
                        units::short(rows)
                    ))
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("statements_per_s", per_s)
            .with(blocked, |claim, share| claim.number("share", share).because(BLOCKED))
            .because(format!("{name} is {value}{}: every session formats its statements, \
                and all of them write to one pipe or file", owner.map(|owner| format!(" for {owner}")).unwrap_or_default()))
            .lacking("the time that it takes: PostgreSQL has no wait event for it, so it is in the time on a CPU and in the rest")
            .with(name.starts_with("auto_explain").then_some(()), |claim, ()| {
                claim.because("auto_explain formats the plan of each statement; with log_analyze it also times every row of every node of it")
            })
            .remedy(
                "log what is slow, or a sample of it (log_min_duration_sample with log_statement_sample_rate)",
                &if owner.is_some() { vec![reset.as_str()] } else { less_logged(name) },
            ),
        );
    }
    Answer::of(claims, || "what the settings write to the log, against statements a second".to_string())
}

fn buffers(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let (missed, hit) = (rate("blks_read"), rate("blks_hit"));
        let share = missed / (missed + hit).max(1.0);
        let text = case.setting(server.place, "shared_buffers");
        let (Some(host), Some(buffers)) = (case.host_of(server.place), text.and_then(units::setting)) else {
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
        // Copying a block from the page cache takes a CPU: a session that does that waits for no disk.
        let is_read = |kind: &str, event: &str| kind == "IO" && event.ends_with("Read");
        let reading = node_time::share_waiting(case, server.place, is_read);
        let reading = reading.unwrap_or(0.0);
        claims.push(
            Claim::new(
                if reading >= READING_SHARE_FELT { severity(reading) } else { Severity::Low },
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
            .with((reading >= READING_SHARE_MIN).then_some(reading), |claim, share| claim.number("share", share))
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
                "start with a quarter of the memory; more than the size of the databases is useless; the restart ends all sessions",
                &[&format!("ALTER SYSTEM SET shared_buffers = '{}MB'; -- then restart: all sessions end", (memory / 4.0 / f64::from(1 << 20)) as u64)],
            ),
        );
    }
    Answer::of(claims, || "blocks that were not in shared_buffers, and reads of the disks".to_string())
}
