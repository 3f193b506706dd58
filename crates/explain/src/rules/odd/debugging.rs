//! Settings for developers, and for looking for a defect: what they cost is delays, lines of the log, and work of their own.

use super::{Cost, Odd, SHARE_MIN, Setting, has, is_off, is_on, of_statement, parallel, planner};
use crate::case::Case;
use crate::node_time;
use crate::rules::plan::Planned;
use crate::units;
use record::finding::NodeTime;

/// Sessions that wait at any time in a delay which every new session has.
const DELAYED_MIN: f64 = 0.1;
/// Sorts a second, each of which writes lines into the log.
const SORTS_PER_S_MIN: f64 = 100.0;
/// Sessions that errors end a second, and the share of those that are opened.
const ENDED_PER_S_MIN: f64 = 2.0;
const ENDED_OF_OPENED_MIN: f64 = 0.5;
/// How many times a statement calls for rows, from which on timing each call is felt.
const ROWS_PER_S_MIN: f64 = 100_000.0;

/// The figure of sessions that sleep at any time.
pub(super) const ASLEEP: &str = "sessions_asleep";
/// So many of them are as much as a session that is always at work.
pub(super) const ASLEEP_HIGH: f64 = 1.0;

const EACH_BEGINNING: &str = "it is for attaching a debugger to a new process: set it to 0";
const DUMPS: &str = "it is for developers of the compiler: switch it off";

const fn of_compiler(name: &'static str, what: &'static str) -> Odd {
    Odd { name, is_odd: is_on, cost: planner::compiled, what, text: DUMPS, restarts: false }
}

pub(super) const ODD: [Odd; 10] = [
    Odd {
        name: "post_auth_delay",
        is_odd: is_delay,
        cost: |case, time, setting| parallel(case, time, setting).or_else(|| delayed(case, time, setting)),
        what: "each new session, and each parallel worker, sleeps so long before it does anything",
        text: EACH_BEGINNING,
        restarts: false,
    },
    Odd {
        name: "pre_auth_delay",
        is_odd: is_delay,
        cost: delayed,
        what: "each new connection sleeps so long before its first byte is read; no view has it at that time",
        text: EACH_BEGINNING,
        restarts: false,
    },
    Odd {
        name: "debug_assertions",
        is_odd: is_on,
        cost: computing,
        what: "the server was built with --enable-cassert: it checks its own work at every step, and so takes much longer for it",
        text: "run a build without assertions, as packages are: it reads the same data directory",
        restarts: true,
    },
    Odd {
        name: "debug_io_direct",
        is_odd: |value| value.contains("data"),
        cost: reading,
        what: "blocks are read and written past the page cache: what is not in shared_buffers comes from the disk each time, and nothing is read ahead",
        text: "it is a tool for developers of PostgreSQL: empty it",
        restarts: true,
    },
    Odd {
        name: "trace_sort",
        is_odd: is_on,
        cost: sorted,
        what: "each sort writes its steps into the server's log",
        text: "it is for developers of PostgreSQL: switch it off; EXPLAIN (ANALYZE) has the memory and the method of each sort",
        restarts: false,
    },
    Odd {
        name: "auto_explain.log_analyze",
        is_odd: is_on,
        cost: timed,
        what: "each statement is timed, step by step and row by row, whether its plan is logged or not: a statement must have run before it is known to be \
            slow",
        text: "switch log_timing off, which keeps the counts of rows, or look at a sample of the statements (auto_explain.sample_rate = 0.01)",
        restarts: false,
    },
    Odd {
        name: "exit_on_error",
        is_odd: is_on,
        cost: ended,
        what: "each error ends its session, so that the application has to connect again",
        text: "it is for tests: switch it off",
        restarts: false,
    },
    of_compiler("jit_dump_bitcode", "each compilation writes its code into files in the data directory"),
    of_compiler("jit_debugging_support", "each compiled function is registered with a debugger"),
    of_compiler("jit_profiling_support", "each compiled function is written into a file for a profiler"),
];

fn is_delay(value: &str) -> bool {
    units::setting(value).is_some_and(|ms| ms > 0.0)
}

/// Sessions are opened so often that some of them sleep at any time.
fn delayed(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let opened = case.one("server", &time.node)?.rate("sessions_opened")?;
    let sleeping = opened * units::setting(setting.value)? / 1e3;
    (sleeping >= DELAYED_MIN).then(|| Cost {
        // No view has them at work: they are beside the time of the others.
        share: None,
        unknown: None,
        figure: (ASLEEP, sleeping),
        evidence: format!(
            "{} sessions are opened a second, and each sleeps for {}: {} of them at any time",
            units::short(opened),
            setting.value,
            units::short(sleeping)
        ),
    })
}

/// Sessions compute.
fn computing(_: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let parts = [node_time::ON_CPU, node_time::FOR_CPU, node_time::CPU];
    let share: f64 = parts.iter().map(|part| node_time::share_of_part(time, part)).sum();
    (share >= SHARE_MIN).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("share_computing", share),
        evidence: format!("{} of the session time is computing", units::percent(share)),
    })
}

/// Sessions wait for blocks.
fn reading(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let share = node_time::share_waiting(case, &time.node, |kind, event| {
        kind == "IO" && (event.starts_with("DataFileRead") || event.starts_with("Aio"))
    })?;
    (share >= SHARE_MIN).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("share_reading", share),
        evidence: format!("{} of the session time waits for blocks", units::percent(share)),
    })
}

/// A statement that runs often has a sort in its plan.
fn sorted(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let fits = |planned: &Planned<'_>| {
        let calls = planned.statement.calls_per_s.unwrap_or(0.0);
        calls >= SORTS_PER_S_MIN && has(planned, |kind| kind.ends_with("Sort"))
    };
    of_statement(case, time, setting, fits, |planned| {
        format!("sorts, {} times a second", units::short(planned.statement.calls_per_s.unwrap_or(0.0)))
    })
}

/// A statement passes many rows from step to step: each is timed twice in each step. Where plans are logged of every statement, that is LOG-01.
fn timed(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let of_module = |name: &'static str| {
        case.setting(&time.node, name).or_else(|| owned(case, time, setting, name)).unwrap_or("")
    };
    let least = units::setting(of_module("auto_explain.log_min_duration")).unwrap_or(-1.0);
    let rate = of_module("auto_explain.sample_rate").parse::<f64>().unwrap_or(1.0);
    if least <= 0.0 || rate < SHARE_MIN || is_off(of_module("auto_explain.log_timing")) {
        return None;
    }
    let rows_per_s = |planned: &Planned<'_>| {
        let rows: f64 = planned.nodes.iter().filter_map(|node| node.lines.last("rows_planned")).sum();
        rows * planned.statement.calls_per_s.unwrap_or(0.0)
    };
    let is_long = |planned: &Planned<'_>| rows_per_s(planned) >= ROWS_PER_S_MIN;
    let found = of_statement(case, time, setting, is_long, |planned| {
        format!("passes {} rows a second from step to step, by its plan", units::count(rows_per_s(planned)))
    });
    // What the timing takes of it is not known: a tenth to a half.
    found.map(|cost| Cost { share: None, ..cost })
}

/// The value of another setting that the same role or database has.
fn owned<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    setting: Setting<'_>,
    name: &'static str,
) -> Option<&'a str> {
    let owner = setting.owner?;
    case.own_settings(&time.node, name).find(|(other, _)| *other == owner).map(|(_, value)| value)
}

/// Sessions end about as often as transactions fail.
fn ended(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let server = case.one("server", &time.node)?;
    let (opened, failed) = (server.rate("sessions_opened")?, server.rate("xact_rollback")?);
    let ended = failed.min(opened);
    (ended >= ENDED_PER_S_MIN && ended >= opened * ENDED_OF_OPENED_MIN).then(|| Cost {
        share: None,
        unknown: None,
        figure: ("sessions_ended_per_s", ended),
        evidence: format!(
            "{} transactions a second fail, and {} sessions a second are opened",
            units::short(failed),
            units::short(opened)
        ),
    })
}
