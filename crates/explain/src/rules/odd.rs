//! CFG-01: settings with a value that is meant for tests, for one occasion, or for another kind of machine, where what they cost shows.

use super::costly::severity as of_share;
use super::plan::{Planned, planned};
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use debugging::{ASLEEP, ASLEEP_HIGH};
use record::finding::{Level, NodeTime, Severity};
use whose::Setting;

mod choice;
mod debugging;
mod join;
mod planner;
mod whose;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CFG-01",
    title: "a setting has a value that is meant for tests or for one occasion",
    needs: &[Facts("setting"), Field("server", "sessions_active")],
    limits: "developer options, statistics that are off, limits of the planner or of parallel workers far below their defaults, and costs far from them: each \
        only with 10 % of the session time in what it makes slow, or with what it stops (ours)",
    judge: odd,
    links: &["https://www.postgresql.org/docs/current/runtime-config-developer.html"],
}];

/// The share of the session time in what a setting makes slow.
const SHARE_MIN: f64 = 0.1;
/// Transactions a second of a server that is in use.
const COMMITS_MIN: f64 = 1.0;
/// Tables in a plan whose order matters.
const TABLES_MIN: usize = 3;
/// How many times dearer a page read at random may look than one read in order, at least and at most.
const RANDOM_FACTOR: (f64, f64) = (0.5, 20.0);
/// The default of logical_decoding_work_mem, in bytes.
const DECODING_DEFAULT: f64 = 64.0 * 1024.0 * 1024.0;
/// Bytes a second that decoding writes to files.
const SPILLED_PER_S_MIN: f64 = 1e6;
/// Characters of a list of names.
const NAMES_CHARS: usize = 120;
/// Milliseconds; below this WAL files are closed nearly empty.
const ARCHIVE_MS: f64 = 30_000.0;
/// The default of deadlock_timeout is one second; below this, in milliseconds, the check itself is what sessions do.
const DEADLOCK_MS: f64 = 50.0;
/// The share of the session time that waits for the table of locks.
const SEARCHING_MIN: f64 = 0.03;

/// What it costs: the share of the session time if it is one, and how that shows.
struct Cost {
    share: Option<f64>,
    /// A figure of the evidence, and its name.
    figure: (&'static str, f64),
    evidence: String,
    /// What the record does not hold, if that decides: then the claim is low.
    unknown: Option<&'static str>,
}

/// A setting, whether a value of it is odd, and what it costs where that shows.
struct Odd {
    name: &'static str,
    is_odd: fn(&str) -> bool,
    cost: fn(&Case, &NodeTime, Setting<'_>) -> Option<Cost>,
    what: &'static str,
    text: &'static str,
    /// It takes effect after a restart only.
    restarts: bool,
}

fn is_on(value: &str) -> bool {
    ["on", "true", "yes", "1"].contains(&value)
}

fn is_off(value: &str) -> bool {
    ["off", "false", "no", "0"].contains(&value)
}

fn below(value: &str, least: f64) -> bool {
    value.parse::<f64>().is_ok_and(|value| value >= 0.0 && value < least)
}

const ODD: [Odd; 22] = [
    Odd {
        name: "vacuum_defer_cleanup_age",
        is_odd: |value| !below(value, 1.0),
        cost: used,
        what: "no vacuum removes what was deleted or updated in so many last transactions, as if one of them were still open: dead rows stay",
        text: "set it to 0: hot_standby_feedback, or max_standby_streaming_delay, protect the queries of standbys (PostgreSQL 16 no longer has the setting)",
        restarts: false,
    },
    Odd {
        name: "wal_consistency_checking",
        is_odd: |value| !value.is_empty(),
        cost: wal,
        what: "each WAL record carries an image of its page, for a standby to compare with",
        text: "it is a tool for developers of PostgreSQL: empty it",
        restarts: false,
    },
    Odd {
        name: "track_counts",
        is_odd: is_off,
        cost: used,
        what: "autovacuum does not know what has changed and never comes: dead rows stay, and statistics grow old",
        text: "switch it on; then vacuum and analyse what was changed meanwhile",
        restarts: false,
    },
    Odd {
        name: "debug_discard_caches",
        is_odd: |value| !below(value, 1.0),
        cost: used,
        what: "each session forgets what it knows of the catalog all the time, and reads it again",
        text: "it is a tool for developers of PostgreSQL: set it to 0",
        restarts: false,
    },
    Odd {
        name: "default_statistics_target",
        is_odd: |value| !below(value, 1_000.0),
        cost: planner::of_statistics,
        what: "each ANALYZE reads a sample of 300 rows for each unit of it, and each planning compares with so many values, ten times or more those of the \
            default",
        text: "set it back to its default of 100; a column that needs more gets it alone (ALTER TABLE ... ALTER COLUMN ... SET STATISTICS); then analyse",
        restarts: false,
    },
    Odd {
        name: "constraint_exclusion",
        is_odd: is_off,
        cost: join::appended,
        what: "tables that inherit from another one are all read: none is left out by its CHECK constraints",
        text: "set it back to its default, partition",
        restarts: false,
    },
    Odd {
        name: "archive_timeout",
        is_odd: |value| units::setting(value).is_some_and(|ms| ms > 0.0 && ms < ARCHIVE_MS),
        cost: archived,
        what: "so often a WAL file is closed and archived, however little is in it: each takes 16 MB there, and a run of archive_command",
        text: "set it to a minute or more; a standby or pg_receivewal that follows the stream loses less, and needs no files closed early",
        restarts: false,
    },
    Odd {
        name: "ignore_system_indexes",
        is_odd: is_on,
        cost: used,
        what: "the catalog is read without its indexes",
        text: "it is for repairing a damaged catalog: switch it off",
        restarts: true,
    },
    Odd {
        name: "debug_parallel_query",
        is_odd: |value| !is_off(value),
        cost: parallel,
        what: "statements start parallel workers although the planner finds them too dear",
        text: "it is for tests of parallel plans: switch it off",
        restarts: false,
    },
    Odd {
        name: "force_parallel_mode",
        is_odd: |value| !is_off(value),
        cost: parallel,
        what: "statements start parallel workers although the planner finds them too dear",
        text: "it is for tests of parallel plans: switch it off",
        restarts: false,
    },
    Odd {
        name: "parallel_setup_cost",
        is_odd: |value| below(value, 100.0),
        cost: parallel,
        what: "starting parallel workers looks cheap to the planner, so statements of milliseconds start them",
        text: "set it back to its default of 1000; min_parallel_table_scan_size decides from which size on a scan is divided",
        restarts: false,
    },
    Odd {
        name: "join_collapse_limit",
        is_odd: |value| below(value, 3.0),
        cost: join::as_written,
        what: "the planner joins tables in the order in which they are written, however many rows that makes",
        text: "set it back to its default of 8; a statement that needs it gets it for its own transaction (SET LOCAL)",
        restarts: false,
    },
    Odd {
        name: "from_collapse_limit",
        is_odd: |value| below(value, 3.0),
        cost: join::apart,
        what: "the planner does not join tables of subqueries with those around them in another order than they are written in",
        text: "set it back to its default of 8",
        restarts: false,
    },
    Odd {
        name: "geqo_threshold",
        is_odd: |value| below(value, 6.0),
        cost: join::by_chance,
        what: "the order of joins of few tables is found by chance (the genetic optimizer) and not by trying all orders",
        text: "set it back to its default of 12",
        restarts: false,
    },
    Odd {
        name: "max_parallel_workers",
        is_odd: |value| below(value, 1.0),
        cost: without_workers,
        what: "plans with parallel workers are made, and none is ever started: the statement does their work alone",
        text: "allow as many as there are processors, or set max_parallel_workers_per_gather to 0, so that such plans are not made",
        restarts: false,
    },
    Odd {
        name: "max_worker_processes",
        is_odd: |value| below(value, 1.0),
        cost: without_workers,
        what: "plans with parallel workers are made, and none is ever started: the statement does their work alone",
        text: "allow some more than there are processors; replication and extensions need some as well",
        restarts: true,
    },
    Odd {
        name: "io_workers",
        is_odd: |value| below(value, 2.0),
        cost: by_workers,
        what: "one process reads for all sessions (io_method = worker), one request after another, and they wait for it",
        text: "set it back to its default of 3, or more: each worker has one read under way; io_method = io_uring needs none",
        restarts: false,
    },
    Odd {
        name: "logical_decoding_work_mem",
        is_odd: |value| units::setting(value).is_some_and(|bytes| bytes < DECODING_DEFAULT / 2.0),
        cost: decoded,
        what: "changes that are decoded for logical replication do not fit into it: they are written to files and read again at commit",
        text: "set it back to its default of 64MB, or more where transactions are large: each process that decodes may take so much",
        restarts: false,
    },
    Odd {
        name: "deadlock_timeout",
        is_odd: |value| units::setting(value).is_some_and(|ms| ms < DEADLOCK_MS),
        cost: locked,
        what: "each short wait for a lock begins a search for deadlocks, which stops all other requests for locks",
        text: "set it back to its default of 1s, or longer than the usual wait",
        restarts: false,
    },
    Odd {
        name: "random_page_cost",
        is_odd: |value| {
            value.parse::<f64>().is_ok_and(|cost| cost < RANDOM_FACTOR.0 || cost > RANDOM_FACTOR.1)
        },
        cost: choice::priced,
        what: "the planner's choice between indexes and scans is made with a price that fits no disk",
        text: "set it to 1.1 for memory and flash, 4 for rotating disks (with seq_page_cost = 1)",
        restarts: false,
    },
    Odd {
        name: "effective_cache_size",
        is_odd: |value| units::setting(value).is_some_and(|bytes| bytes < 64.0 * 1024.0 * 1024.0),
        cost: choice::cached,
        what: "the planner believes that hardly a page is found in memory, so indexes look dear",
        text: "set it to what shared_buffers and the page cache have together: half of the memory or more",
        restarts: false,
    },
    Odd {
        name: "cpu_tuple_cost",
        is_odd: |value| value.parse::<f64>().is_ok_and(|cost| !(0.001..=0.1).contains(&cost)),
        cost: choice::weighed,
        what: "the planner weighs the work for rows against reading pages with a price far from its default",
        text: "set it back to its default of 0.01",
        restarts: false,
    },
];

/// What a setting is changed to: its default, unless that gives up what the odd value was for.
fn better(name: &str) -> String {
    match name {
        "archive_timeout" => format!("SET {name} = '1min'"),
        name => format!("RESET {name}"),
    }
}

/// It is at work.
fn used(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let rate = case.one("server", &time.node)?.rate("xact_commit")?;
    (rate >= COMMITS_MIN).then(|| Cost {
        share: None,
        unknown: None,
        figure: ("commits_per_s", rate),
        evidence: format!("{} transactions a second commit", units::short(rate)),
    })
}

/// WAL is written and archived: without changes no file is closed early.
fn archived(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let is_archived = case.setting(&time.node, "archive_mode").is_none_or(|mode| mode != "off");
    let writes = case.one("server", &time.node)?.rate("wal_bytes").unwrap_or(0.0) > 0.0;
    (is_archived && writes).then(|| used(case, time, setting))?
}

/// It writes: the WAL takes time, or there is much of it.
fn wal(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let share = node_time::share_waiting(case, &time.node, |kind, event| {
        event.to_lowercase().contains("wal") && (kind == "IO" || kind == "LWLock")
    })?;
    let rate = case.one("server", &time.node)?.rate("wal_bytes").unwrap_or(0.0);
    (share >= SHARE_MIN || rate >= 1e6).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("wal_bytes_per_s", rate),
        evidence: format!(
            "{} of WAL a second, and {} of the session time waits for it",
            units::bytes(rate),
            units::percent(share)
        ),
    })
}

/// Sessions wait for parallel workers.
fn parallel(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    const EVENTS: [&str; 8] = [
        "BgWorkerShutdown",
        "BgWorkerStartup",
        "ExecuteGather",
        "ParallelFinish",
        "MessageQueueReceive",
        "MessageQueueSend",
        "DSMFillZeroWrite",
        "DsmAllocate",
    ];
    let share = node_time::share_waiting(case, &time.node, |_, event| EVENTS.contains(&event))?;
    (share >= SHARE_MIN).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("share_waiting", share),
        evidence: format!(
            "{} of the session time waits for parallel workers to start, to end and to answer",
            units::percent(share)
        ),
    })
}

/// The first statement of a node with this share of its time that a value is for and whose plan fits, with what it is, in words.
fn of_statement(
    case: &Case,
    time: &NodeTime,
    setting: Setting<'_>,
    fits: impl Fn(&Planned<'_>) -> bool,
    what: impl Fn(&Planned<'_>) -> String,
) -> Option<Cost> {
    let mut all = planned(case, SHARE_MIN).filter(|planned| planned.time.node == time.node);
    let first = all.find(|planned| setting.is_for_plan(case, planned) && fits(planned))?;
    Some(Cost {
        unknown: setting.unknown(case, time, first.statement),
        share: Some(first.statement.share),
        figure: ("blocks_per_call", first.statement.blocks.unwrap_or(0.0)),
        evidence: format!(
            "{} of the session time is a statement that {}: {}",
            units::percent(first.statement.share),
            what(&first),
            super::costly::in_a_line(first.statement)
        ),
    })
}

/// Whether a plan has a node whose kind fits.
fn has(planned: &Planned<'_>, fits: impl Fn(&str) -> bool) -> bool {
    planned.nodes.iter().any(|node| fits(node.lines.word("kind")))
}

/// A statement takes the time whose plan has parallel workers.
fn without_workers(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let fits = |planned: &Planned<'_>| has(planned, |kind| kind.starts_with("Gather"));
    of_statement(case, time, setting, fits, |_| "has a Gather in its plan".to_string())
}

/// Sessions wait for reads that workers carry out (PostgreSQL 18).
fn by_workers(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let is_used = case.setting(&time.node, "io_method").is_none_or(|method| method == "worker");
    let events = ["AioIoCompletion", "AioIoUringExecution", "AioWorkerFull"];
    let share = node_time::share_waiting(case, &time.node, |_, event| events.contains(&event))?;
    (is_used && share >= SHARE_MIN).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("share_waiting", share),
        evidence: format!(
            "{} of the session time waits until a read is completed (AioIoCompletion)",
            units::percent(share)
        ),
    })
}

/// Decoding wrote files, and sessions or senders spend time with them.
fn decoded(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let spilled: f64 = case.at("slot", &time.node).filter_map(|slot| slot.lines.sum("spill_bytes")).sum();
    let share = node_time::share_waiting(case, &time.node, |_, event| event.starts_with("ReorderBuffer"))?;
    let of_functions: f64 = time
        .statements
        .iter()
        .filter(|statement| statement.text.contains("pg_logical_slot_"))
        .map(|statement| statement.share)
        .sum();
    let seconds = time.seconds.max(1.0);
    let mut slots: Vec<Thing<'_>> = case.at("slot", &time.node).collect();
    slots.retain(|slot| slot.lines.sum("spill_bytes").unwrap_or(0.0) > 0.0);
    let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
    // Written again and again it is work of the server, whether or not a session waits for it.
    let is_large = spilled / seconds >= SPILLED_PER_S_MIN;
    let share = share.max(of_functions);
    (spilled > 0.0 || share > 0.0).then(|| Cost {
        share: Some(share).filter(|share| *share >= SHARE_MIN || !is_large),
        unknown: None,
        figure: ("spill_bytes", spilled),
        evidence: format!(
            "{} {} wrote {} of changes to files, and {} of the session time is decoding or waits for these files",
            if names.len() == 1 { "slot" } else { "slots" },
            super::costly::plain(&names.join(", "), NAMES_CHARS),
            units::bytes(spilled),
            units::percent(share)
        ),
    })
}

/// Sessions wait for locks, and for the searches of others: a search holds all parts of the table of locks, and who wants one waits for that.
fn locked(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let share = node_time::share_waiting(case, &time.node, |kind, _| kind == "Lock")?;
    let share_searching = node_time::share_waiting(case, &time.node, |kind, event| {
        kind == "LWLock" && event.to_lowercase().replace('_', "") == "lockmanager"
    })?;
    (share >= SHARE_MIN && share_searching >= SEARCHING_MIN).then(|| Cost {
        share: Some(share_searching),
        unknown: None,
        figure: ("share_searching", share_searching),
        evidence: format!(
            "{} of the session time waits for locks, and {} for the table of locks, which a search for deadlocks holds (LWLock:LockManager)",
            units::percent(share),
            units::percent(share_searching)
        ),
    })
}

/// The first odd value of a setting that costs something: the server's, or one of a role, a database or a tablespace.
fn found<'a>(case: &'a Case, time: &'a NodeTime, odd: &Odd) -> Option<(Setting<'a>, Cost)> {
    let values = whose::values(case, &time.node, odd.name).into_iter();
    values
        .filter(|setting| (odd.is_odd)(setting.value))
        .find_map(|setting| Some((setting, (odd.cost)(case, time, setting)?)))
}

fn odd(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case) {
        for odd in ODD.iter().chain(&planner::ODD).chain(&debugging::ODD) {
            let Some((Setting { owner, value }, cost)) = found(case, time, odd) else { continue };
            let Cost { share, figure, evidence, unknown } = cost;
            let of_owner = owner.map_or(String::new(), |owner| format!(" for {owner}"));
            let command = match (owner, odd.restarts) {
                _ if odd.name == "debug_assertions" => "$ pg_config --configure".to_string(),
                (Some(owner), _) => reset_command(owner, odd.name),
                (None, true) => format!("ALTER SYSTEM RESET {}; -- then restart: all sessions end", odd.name),
                (None, false) => format!("ALTER SYSTEM {}; SELECT pg_reload_conf();", better(odd.name)),
            };
            let look = format!(
                "SELECT name, setting, source, sourcefile, sourceline FROM pg_settings WHERE name = '{}'; -- where it is set, if it stays",
                odd.name
            );
            let shown = if value.is_empty() { "empty" } else { value };
            claims.push(
                Claim::new(
                    match share {
                        _ if unknown.is_some() => Severity::Low,
                        // Whatever it costs today, it grows until it is seen.
                        _ if odd.name == "track_counts" => Severity::High,
                        Some(share) if share >= SHARE_MIN => of_share(share),
                        None if figure.0 == ASLEEP && figure.1 >= ASLEEP_HIGH => Severity::High,
                        _ => Severity::Medium,
                    },
                    Level::CoOccurrence,
                    format!("{}: {} is {shown}{of_owner}: {}", time.node, odd.name, odd.what),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .with(share, |claim, share| claim.number("share", share))
                .number(figure.0, figure.1)
                .because(evidence)
                .with(unknown, Claim::lacking)
                .lacking("how it would be without: set it back for one session, and compare")
                .remedy(odd.text, &[&command, &look]),
            );
        }
    }
    Answer::of(claims, || "settings for developers, and limits far from their defaults".to_string())
}
