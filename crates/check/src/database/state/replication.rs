//! Archiving, standbys, conflicts.

use crate::database::draft::{Draft, each, fail, note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// A standby so far behind serves old rows and takes long to be promoted.
const LAG_BYTES_MAX: f64 = 1024.0 * 1024.0 * 1024.0;
/// The same in time.
const LAG_S_MAX: f64 = 60.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.archiver",
        area: Area::State,
        title: "WAL archiving",
        limits: "the last attempt failed: fail; archive_mode without a command or library: warning",
        units: &[Unit::Count],
        needs: &[],
        why: "WAL that is not archived stays in pg_wal until the disk is full, and the last backup cannot be rolled forward",
        judge: archiver,
    },
    Check {
        id: "state.standby_lag",
        area: Area::State,
        title: "lag and state of connected standbys",
        limits: "1 GiB or 60 s behind in replay, or not streaming",
        units: &[Unit::Bytes],
        needs: &[Need::Primary, Need::Statistics],
        why: "a standby behind serves old rows, and its promotion takes as long as the replay of what it lacks",
        judge: standby_lag,
    },
    Check {
        id: "state.replay",
        area: Area::State,
        title: "this standby's replay and its connection",
        limits: "replay is paused, or no WAL receiver runs",
        units: &[Unit::Microseconds],
        needs: &[Need::Standby],
        why: "it falls behind without end; if it has a slot, the primary keeps all WAL for it",
        judge: replay,
    },
    Check {
        id: "state.conflicts",
        area: Area::State,
        title: "queries of this standby cancelled by replay",
        limits: "any is a note",
        units: &[Unit::Count],
        needs: &[Need::Standby],
        why: "replay must remove rows that a query still reads, and cancels it after max_standby_streaming_delay",
        judge: conflicts,
    },
    Check {
        id: "state.subscriptions",
        area: Area::State,
        title: "subscriptions that are disabled, have no worker, or have failed",
        limits: "disabled, no worker, or errors counted (since 15)",
        units: &[Unit::Count],
        needs: &[Need::View("pg_catalog.pg_stat_subscription")],
        why: "the subscriber falls behind, and its slot fills the publisher's disk",
        judge: subscriptions,
    },
];

fn archiver(node: &mut Node<'_>) -> Judged {
    let mode = node.setting("archive_mode")?.value.clone();
    if mode == "off" {
        return Ok(vec![
            note("archive_mode", "archive_mode is off")
                .why("without an archive a backup cannot be rolled forward; that may be meant"),
        ]);
    }
    let is_hidden = !node.is("is_superuser") && !node.is("reads_settings");
    let mut given = false;
    for name in ["archive_command", "archive_library"] {
        given |=
            node.setting(name).is_ok_and(|setting| !["", "(disabled)"].contains(&setting.value.as_str()));
    }
    let row = node.row(
        "select archived_count archived, failed_count failed, last_failed_wal, last_failed_time::text failed_at, last_archived_time::text archived_at,
           coalesce(last_failed_time > last_archived_time, last_failed_time is not null) fails from pg_catalog.pg_stat_archiver",
    )?;
    let counts =
        format!("{} archived, {} failed attempts", json::text(&row, "archived"), json::text(&row, "failed"));
    if !given && !is_hidden {
        return Ok(vec![
            warn("archive_command", format!("archive_mode is {mode}, and neither archive_command nor archive_library is set: WAL waits in pg_wal"))
                .advice("set one, or turn archive_mode off")
                .run("ALTER SYSTEM SET archive_mode = 'off';")
                .run("-- then restart the server"),
        ]);
    }
    Ok(vec![if json::flag(&row, "fails") == Some(true) {
        fail("archive_command", format!("archiving of {} failed at {}; {counts}", json::text(&row, "last_failed_wal"), json::text(&row, "failed_at")))
            .figure(json::number(&row, "failed").unwrap_or(0.0), Unit::Count)
            .advice("look for the command's message in the server's log, and correct it; WAL stays until it is archived")
            .run("SHOW archive_command;")
    } else {
        pass(counts)
    }])
}

fn standby_lag(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        "select application_name as standby, coalesce(client_addr::text, 'a socket') address, state, \
            pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), replay_lsn) behind,
           extract(epoch from replay_lag) lag_s from pg_catalog.pg_stat_replication",
        "behind desc nulls first, 1",
    )?;
    let is_bad = |row: &&Value| {
        !["streaming", "backup"].contains(&json::text(row, "state").as_str())
            || json::number(row, "behind").unwrap_or(0.0) > LAG_BYTES_MAX
            || json::number(row, "lag_s").unwrap_or(0.0) > LAG_S_MAX
    };
    let bad: Vec<Value> = found.rows.iter().filter(is_bad).cloned().collect();
    Ok(each(&bad, bad.len() as u64, lagging, || {
        pass(format!("{} connected, none far behind", number::counted(found.total, "standby")))
    }))
}

fn lagging(row: &Value) -> Draft {
    let standby = json::text(row, "standby");
    let behind = json::number(row, "behind").unwrap_or(0.0);
    let claim = format!(
        "standby {standby} ({}) is in state {}, {} and {} behind",
        json::text(row, "address"),
        json::text(row, "state"),
        number::bytes(behind),
        number::duration(json::number(row, "lag_s").unwrap_or(0.0))
    );
    warn(standby, claim)
        .figure(behind, Unit::Bytes)
        .at_most(LAG_BYTES_MAX)
        .advice("look at what the standby waits for: network, its disk, a query that holds replay, or one CPU for the replay")
        .run("SELECT application_name, state, sent_lsn, flush_lsn, replay_lsn FROM pg_stat_replication;")
}

fn replay(node: &mut Node<'_>) -> Judged {
    let row = node.row(
        "select pg_catalog.pg_is_wal_replay_paused() paused, (select count(*) from pg_catalog.pg_stat_get_wal_receiver() where pid is not null) receivers,
           extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) age_s",
    )?;
    let age_s = json::number(&row, "age_s").unwrap_or(0.0).max(0.0);
    let last = format!("the last replayed transaction is {} old", number::duration(age_s));
    if json::flag(&row, "paused") == Some(true) {
        return Ok(vec![
            warn("replay", format!("replay is paused; {last}"))
                .figure(age_s * 1e6, Unit::Microseconds)
                .advice("resume it")
                .run("SELECT pg_wal_replay_resume();"),
        ]);
    }
    if json::count(&row, "receivers") == Some(0) {
        return Ok(vec![
            warn("receiver", format!("no WAL receiver runs; {last}"))
                .advice("look into the log for why it cannot connect; a standby that reads only from the archive has none")
                .run("SHOW primary_conninfo;"),
        ]);
    }
    Ok(vec![pass(format!("WAL is received and replayed; {last}"))])
}

fn conflicts(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        "select pg_catalog.quote_ident(datname) as database, conflicts from pg_catalog.pg_stat_database where conflicts > 0",
        "conflicts desc, 1",
    )?;
    let draft = |row: &Value| {
        let database = json::text(row, "database");
        let count = json::number(row, "conflicts").unwrap_or(0.0);
        note(&*database, format!("{database}: replay cancelled {count} queries since the statistics were reset"))
            .figure(count, Unit::Count)
            .advice("hot_standby_feedback lets the primary wait (and bloat), max_standby_streaming_delay lets the replay wait")
            .run("SELECT * FROM pg_stat_database_conflicts;")
    };
    Ok(each(&found.rows, found.total, draft, || pass("none since the statistics were reset")))
}

fn subscriptions(node: &mut Node<'_>) -> Judged {
    let errors = if node.has_column("pg_catalog.pg_stat_subscription_stats", "apply_error_count")? {
        "coalesce((select t.apply_error_count + t.sync_error_count from pg_catalog.pg_stat_subscription_stats t where t.subid = s.oid), 0)"
    } else {
        "0"
    };
    // Not every role may read pg_subscription, but these columns are open to all.
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.quote_ident(s.subname) as subscription, s.subenabled as enabled, {errors} errors,
               (select count(*) from pg_catalog.pg_stat_subscription w where w.subid = s.oid and w.pid is not null) workers
             from pg_catalog.pg_subscription s where s.subdbid = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())"
        ),
        "1",
    )?;
    let own = node.own()?;
    let is_bad = |row: &&Value| {
        // The engine keeps some disabled for its own use, and enables others for as long as it moves data.
        let is_engines = own.iter().any(|own| own.subscribes(&json::text(row, "subscription")));
        let is_down = json::flag(row, "enabled") == Some(false) || json::count(row, "workers") == Some(0);
        is_down && !is_engines || json::count(row, "errors") > Some(0)
    };
    let bad: Vec<Value> = found.rows.iter().filter(is_bad).cloned().collect();
    let draft = |row: &Value| {
        let name = json::text(row, "subscription");
        let errors = json::count(row, "errors").unwrap_or(0);
        let (enabled, workers) = (json::flag(row, "enabled") != Some(false), json::count(row, "workers"));
        let state = record::subscription::state(enabled, workers != Some(0), errors);
        let claim = format!("subscription {name} {state}");
        if !enabled {
            return warn(&*name, claim)
                .advice("enable it, or drop it together with its slot")
                .run(format!("ALTER SUBSCRIPTION {name} ENABLE;"));
        }
        warn(&*name, claim)
            .figure(errors as f64, Unit::Count)
            .advice("look into the log of the subscriber for the row that cannot be applied")
            .run("SELECT * FROM pg_stat_subscription;")
    };
    Ok(each(&bad, bad.len() as u64, draft, || {
        pass(format!("{}, all at work", number::counted(found.total, "subscription")))
    }))
}
