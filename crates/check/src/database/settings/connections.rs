//! How many sessions there may be, and how long they may hold others up.

use crate::database::draft::{fail, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use watch::sql::json;

/// Sessions that one CPU can keep busy at most, with waits; our own limit, far above any useful number of active ones.
const PER_CPU_MAX: f64 = 50.0;
/// Below it the number of CPUs does not matter.
const CONNECTIONS_SMALL: f64 = 300.0;
/// A server is nearly full from this share of its connections on.
const USED_SHARE_MAX: f64 = 0.8;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.max_connections",
        area: Area::Settings,
        title: "max_connections against the plan, the connections now, and the CPUs",
        limits: "fewer than planned; more than 80 % in use; more than 300 and more than 50 per CPU",
        units: &[Unit::Count, Unit::Share],
        needs: &[],
        why: "a run that cannot connect is no run; thousands of sessions cost memory, snapshots and context switches, where a pooler needs a few per CPU",
        judge: max_connections,
    },
    Check {
        id: "settings.idle_in_transaction_session_timeout",
        area: Area::Settings,
        title: "idle_in_transaction_session_timeout",
        limits: "0 (off)",
        units: &[],
        needs: &[],
        why: "a forgotten transaction holds its locks and keeps vacuum from removing anything newer (seen: transactions idle for hours)",
        judge: idle_timeout,
    },
];

fn max_connections(node: &mut Node<'_>) -> Judged {
    // The total is visible to every role.
    let used = node.row("select coalesce(sum(numbackends), 0) n from pg_catalog.pg_stat_database")?;
    let used = json::number(&used, "n").unwrap_or(0.0);
    let planned = node.expected.connections.map_or(0.0, |connections| connections as f64);
    let cpus = node.machine.cpus.map(|cpus| cpus as f64);
    let mut reserved = 0.0;
    for name in ["superuser_reserved_connections", "reserved_connections"] {
        reserved += node.setting(name).ok().and_then(|setting| setting.number()).unwrap_or(0.0);
    }
    let setting = node.setting("max_connections")?;
    let most = setting.number().unwrap_or(0.0);
    let free = most - reserved;
    if planned > free {
        return Ok(vec![
            fail(
                "max_connections",
                format!("{}, {reserved} of them reserved: {planned} are planned", setting.words()),
            )
            .figure(free, Unit::Count)
            .at_least(planned)
            .advice("raise it, or connect through a pooler")
            .run_all(setting.change(&format!("{:.0}", planned + reserved + 10.0))),
        ]);
    }
    if used > most * USED_SHARE_MAX {
        return Ok(vec![
            warn("max_connections", format!("{}: {used} are in use now", setting.words()))
                .figure(used / most, Unit::Share)
                .at_most(USED_SHARE_MAX)
                .advice("end idle sessions, or connect through a pooler")
                .run("SELECT application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC;"),
        ]);
    }
    if let Some(cpus) = cpus
        && most > CONNECTIONS_SMALL
        && most > cpus * PER_CPU_MAX
    {
        return Ok(vec![
            warn("max_connections", format!("{}: {} per CPU", setting.words(), number::three(most / cpus)))
                .figure(most, Unit::Count)
                .at_most((cpus * PER_CPU_MAX).max(CONNECTIONS_SMALL))
                .advice("put a pooler in front and lower it")
                .run_all(setting.change(&format!("{:.0}", (cpus * PER_CPU_MAX).max(CONNECTIONS_SMALL)))),
        ]);
    }
    Ok(vec![pass(format!("{}; {used} are in use", setting.words())).figure(most, Unit::Count)])
}

fn idle_timeout(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("idle_in_transaction_session_timeout")?;
    if setting.number() != Some(0.0) {
        return Ok(vec![pass(setting.words())]);
    }
    Ok(vec![
        warn(
            "idle_in_transaction_session_timeout",
            format!("{}: a transaction may stay open without end", setting.words()),
        )
        .advice("end sessions that stay idle in a transaction")
        .run_all(setting.change("10min")),
    ])
}
