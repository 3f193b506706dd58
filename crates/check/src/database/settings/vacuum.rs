//! Settings of autovacuum.

use crate::database::draft::{Draft, fail, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use watch::sql::json;

/// A vacuum that takes longer than this at its cost limit is a plan of its own (R0: a day for a third of the tables).
const VACUUM_S_MAX: f64 = 86_400.0;
/// The highest vacuum_cost_limit that the server accepts.
const COST_LIMIT_MAX: f64 = 10_000.0;
/// Longer pauses between looks let small hot tables bloat; the default is a minute.
const NAPTIME_S_MAX: f64 = 300.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.autovacuum",
        area: Area::Settings,
        title: "autovacuum and track_counts",
        limits: "off",
        units: &[],
        needs: &[],
        why: "nothing removes dead rows and nothing refreshes statistics; only the vacuum against wraparound still comes, and then for every table",
        judge: autovacuum,
    },
    Check {
        id: "settings.autovacuum_max_workers",
        area: Area::Settings,
        title: "autovacuum_max_workers against the CPUs and the workers at work",
        limits: "more than CPUs; all at work now",
        units: &[Unit::Count],
        needs: &[Need::Primary, Need::Statistics],
        why: "workers share one cost budget, so more of them are not faster; all of them busy is a symptom, mostly of a held horizon (seen: 50 of 50)",
        judge: workers,
    },
    Check {
        id: "settings.autovacuum_cost",
        area: Area::Settings,
        title: "the cost limit of autovacuum against the data to read",
        limits: "a read of all planned or present data at the limit takes more than a day (R0)",
        units: &[Unit::Microseconds],
        needs: &[Need::Primary],
        why: "at the default limit autovacuum reads at most 400 MB/s and dirties 40 MB/s, over all workers: the vacuum against wraparound of a large \
            load takes days",
        judge: cost,
    },
    Check {
        id: "settings.autovacuum_naptime",
        area: Area::Settings,
        title: "autovacuum_naptime",
        limits: "above 5 minutes (default: 1 minute)",
        units: &[Unit::Microseconds],
        needs: &[],
        why: "each database is looked at once in this time: a table that is updated often bloats in between",
        judge: naptime,
    },
];

fn autovacuum(node: &mut Node<'_>) -> Judged {
    let mut drafts = Vec::new();
    for name in ["autovacuum", "track_counts"] {
        let setting = node.setting(name)?;
        if !setting.is_on() {
            drafts.push(
                fail(name, setting.words())
                    .advice("turn it on; exclude single tables for the time of a load instead")
                    .run_all(setting.change("on")),
            );
        }
    }
    if drafts.is_empty() {
        drafts.push(pass(node.setting("autovacuum")?.words()));
    }
    Ok(drafts)
}

fn workers(node: &mut Node<'_>) -> Judged {
    let busy = node
        .row("select count(*) n from pg_catalog.pg_stat_activity where backend_type = 'autovacuum worker'")?;
    let busy = json::number(&busy, "n").unwrap_or(0.0);
    let cpus = node.machine.cpus.map(|cpus| cpus as f64);
    let setting = node.setting("autovacuum_max_workers")?;
    let most = setting.number().unwrap_or(0.0);
    if most > 0.0 && busy >= most {
        return Ok(vec![
            warn("autovacuum_max_workers", format!("{}: all of them are at work now", setting.words()))
                .figure(busy, Unit::Count)
                .at_most(most - 1.0)
                .advice("look for a held horizon first (state.old_transactions, state.slots), then raise the cost limit; more workers share the same budget")
                .run("SELECT pid, datname, relid::regclass, phase FROM pg_stat_progress_vacuum;"),
        ]);
    }
    if let Some(cpus) = cpus.filter(|cpus| most > cpus.max(3.0)) {
        return Ok(vec![
            warn("autovacuum_max_workers", format!("{}: the host has {cpus} CPUs", setting.words()))
                .figure(most, Unit::Count)
                .at_most(cpus.max(3.0))
                .advice("fewer workers with a higher cost limit do the same work")
                .run_all(setting.change(&format!("{:.0}", cpus.max(3.0)))),
        ]);
    }
    Ok(vec![pass(format!("{}; {busy} at work now", setting.words())).figure(most, Unit::Count)])
}

/// Bytes that autovacuum may read per second, over all workers; `None` without a limit.
fn budget(node: &Node<'_>) -> Result<Option<f64>, watch::sql::session::Failed> {
    let own_or = |own: &str, other: &str| -> Result<f64, watch::sql::session::Failed> {
        let value = node.setting(own)?.number().filter(|value| *value >= 0.0);
        value.map_or_else(|| node.setting(other).map(|setting| setting.number().unwrap_or(0.0)), Ok)
    };
    let limit = own_or("autovacuum_vacuum_cost_limit", "vacuum_cost_limit")?;
    let delay_ms = own_or("autovacuum_vacuum_cost_delay", "vacuum_cost_delay")?;
    let miss = node.setting("vacuum_cost_page_miss")?.number().unwrap_or(2.0);
    let is_limited = delay_ms > 0.0 && limit > 0.0 && miss > 0.0;
    Ok(is_limited.then(|| limit / delay_ms * 1000.0 / miss * node.block_bytes()))
}

fn cost(node: &mut Node<'_>) -> Judged {
    let present = node.row("select coalesce(sum(relpages::bigint & 4294967295), 0) n from pg_catalog.pg_class where relkind in ('r', 'm', 't', 'i')")?;
    let present = json::number(&present, "n").unwrap_or(0.0) * node.block_bytes();
    let (bytes, of) = match node.expected.data_bytes.filter(|planned| *planned > present) {
        Some(planned) => (planned, "planned"),
        None => (present, "in this database"),
    };
    let Some(budget) = budget(node)? else {
        return Ok(vec![pass("autovacuum has no cost limit")]);
    };
    let seconds = bytes / budget;
    let limit = node.setting("autovacuum_vacuum_cost_limit")?;
    let delay = node.setting("autovacuum_vacuum_cost_delay")?;
    let claim = format!(
        "{} and {}: reading the {} {of} takes at least {} at {}/s",
        limit.words(),
        delay.words(),
        number::bytes(bytes),
        number::duration(seconds),
        number::bytes(budget)
    );
    if seconds <= VACUUM_S_MAX {
        return Ok(vec![pass(claim).figure(seconds * 1e6, Unit::Microseconds).at_most(VACUUM_S_MAX * 1e6)]);
    }
    let present_limit = limit
        .number()
        .filter(|value| *value > 0.0)
        .or_else(|| node.setting("vacuum_cost_limit").ok()?.number())
        .unwrap_or(200.0);
    let needed = (present_limit * seconds / VACUUM_S_MAX).ceil();
    let draft = warn("autovacuum_vacuum_cost_limit", claim)
        .figure(seconds * 1e6, Unit::Microseconds)
        .at_most(VACUUM_S_MAX * 1e6);
    let draft = draft.advice("raise the limit as far as the disks allow, or freeze while loading (COPY FREEZE, VACUUM FREEZE right after)");
    Ok(vec![if needed <= COST_LIMIT_MAX {
        draft.run_all(limit.change(&format!("{needed:.0}")))
    } else {
        draft.run_all(delay.change("0"))
    }])
}

fn naptime(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("autovacuum_naptime")?;
    let seconds = setting.seconds().unwrap_or(0.0);
    let judged: fn(String) -> Draft =
        if seconds > NAPTIME_S_MAX { |claim| warn("autovacuum_naptime", claim) } else { pass };
    let draft =
        judged(setting.words()).figure(seconds * 1e6, Unit::Microseconds).at_most(NAPTIME_S_MAX * 1e6);
    Ok(vec![if seconds > NAPTIME_S_MAX {
        draft.advice("use the default").run_all(setting.change("1min"))
    } else {
        draft
    }])
}
