//! Transactions that hold others up: old ones, idle ones, prepared ones.

use crate::database::draft::{each, fail, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// A transaction of an OLTP system does not last an hour (VAC-05).
const OLD_S: f64 = 3600.0;
/// R1: transactions of three days.
const VERY_OLD_S: f64 = 86_400.0;
/// Of autovacuum_freeze_max_age, held by one snapshot (VAC-05).
const HORIZON_SHARE_WARN: f64 = 0.05;
const HORIZON_SHARE_FAIL: f64 = 0.5;
/// Work between two statements of a transaction takes no longer.
const IDLE_S: f64 = 60.0;
/// Two-phase commits end within minutes (TXN-04).
const PREPARED_S: f64 = 600.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.old_transactions",
        area: Area::State,
        title: "old transactions and snapshots",
        limits: "1 hour, or a snapshot older than 5 % of autovacuum_freeze_max_age: warning; 1 day, or 50 %: fail (VAC-05)",
        units: &[Unit::Transactions],
        needs: &[Need::Statistics],
        why: "vacuum removes no row that died after the oldest snapshot began, in any table (seen: autovacuum ran 20,000 times a day, in vain)",
        judge: old,
    },
    Check {
        id: "state.idle_in_transaction",
        area: Area::State,
        title: "sessions that are idle in a transaction",
        limits: "for a minute, or while another session waits for its locks",
        units: &[Unit::Microseconds],
        needs: &[Need::Statistics],
        why: "its locks and its snapshot stay, and it does nothing: the client has forgotten it",
        judge: idle,
    },
    Check {
        id: "state.prepared_transactions",
        area: Area::State,
        title: "prepared transactions that nothing ends",
        limits: "10 minutes (TXN-04), or older than 5 % of autovacuum_freeze_max_age",
        units: &[Unit::Microseconds],
        needs: &[],
        why: "it survives restarts, and holds its locks and the horizon of vacuum until it is committed or rolled back",
        judge: prepared,
    },
];

/// `autovacuum_freeze_max_age`, the limit that also relatives with 64-bit transaction ids have.
fn freeze_max_age(node: &Node<'_>) -> Result<f64, watch::sql::session::Failed> {
    Ok(node.setting("autovacuum_freeze_max_age")?.number().unwrap_or(200_000_000.0))
}

fn old(node: &mut Node<'_>) -> Judged {
    let most = freeze_max_age(node)?;
    let found = node.list(
        "",
        &format!(
            "select pid, coalesce(backend_type, '') kind, coalesce(pg_catalog.quote_ident(datname), '') as database, coalesce(application_name, '') \
                application, coalesce(state, '') state,
               extract(epoch from pg_catalog.clock_timestamp() - xact_start) age_s, greatest(pg_catalog.age(backend_xmin), \
                   pg_catalog.age(backend_xid), 0) age_xids
             from pg_catalog.pg_stat_activity where pid <> pg_catalog.pg_backend_pid() and (xact_start < pg_catalog.clock_timestamp() - interval '{OLD_S} s'
               or greatest(pg_catalog.age(backend_xmin), pg_catalog.age(backend_xid)) > {})",
            (most * HORIZON_SHARE_WARN).floor()
        ),
        "age_xids desc, age_s desc",
    )?;
    let draft = |row: &Value| {
        let (pid, kind) = (json::text(row, "pid"), json::text(row, "kind"));
        let age_s = json::number(row, "age_s").unwrap_or(0.0);
        let age = json::number(row, "age_xids").unwrap_or(0.0);
        let claim = format!(
            "process {pid} ({kind} {}, {}) has a transaction of {}, and holds a snapshot {} transactions old",
            json::text(row, "application"),
            json::text(row, "state"),
            number::duration(age_s),
            number::short(age)
        );
        let is_worst = age_s >= VERY_OLD_S || age >= most * HORIZON_SHARE_FAIL;
        let subject = format!("process {pid}");
        let draft = if is_worst { fail(subject, claim) } else { warn(subject, claim) }
            .figure(age, Unit::Transactions)
            .at_most(most * HORIZON_SHARE_WARN);
        if kind == "walsender" {
            draft.advice("a standby with hot_standby_feedback holds it: end the query there")
        } else {
            draft.advice("end the session, if its work may be lost; set idle_in_transaction_session_timeout, since 17 also \
                transaction_timeout").run(format!("SELECT pg_terminate_backend({pid});"))
        }
    };
    Ok(each(&found.rows, found.total, draft, || pass("no old transaction, no old snapshot")))
}

fn idle(node: &mut Node<'_>) -> Judged {
    let own = node.own()?;
    let found = node.list(
        // The blockers are looked up only of sessions that wait: each look takes a lock of the lock manager.
        "blockers as materialized (select distinct pg_catalog.unnest(pg_catalog.pg_blocking_pids(pid)) pid from (select pid from \
            pg_catalog.pg_stat_activity where wait_event_type = 'Lock' limit 100) w),",
        &format!(
            "select pid, coalesce(application_name, '') application, extract(epoch from pg_catalog.clock_timestamp() - state_change) idle_s, pid in \
                (select pid from blockers) blocks
             from pg_catalog.pg_stat_activity where state like 'idle in transaction%'
               and (state_change < pg_catalog.clock_timestamp() - interval '{IDLE_S} s' or pid in (select pid from blockers))"
        ),
        "blocks desc, idle_s desc",
    )?;
    let draft = |row: &Value| {
        let pid = json::text(row, "pid");
        let idle_s = json::number(row, "idle_s").unwrap_or(0.0);
        let blocks = if json::flag(row, "blocks") == Some(true) {
            ", and another session waits for its locks"
        } else {
            ""
        };
        let draft = warn(
            format!("process {pid}"),
            format!(
                "process {pid} ({}) has been idle in a transaction for {}{blocks}",
                json::text(row, "application"),
                number::duration(idle_s)
            ),
        )
        .figure(idle_s * 1e6, Unit::Microseconds)
        .at_most(IDLE_S * 1e6);
        if let Some(own) = own.iter().find(|own| own.has_session(&json::text(row, "application"))) {
            let draft = draft.advice(
                "leave it: the cluster's engine keeps it for a transaction that began at another node; look for that one, and end it there if its work may be \
                 lost",
            );
            return match own.origin {
                Some(origin) => draft.run(origin),
                None => draft,
            };
        }
        draft
            .advice("end the session, if its work may be lost; set idle_in_transaction_session_timeout")
            .run(format!("SELECT pg_terminate_backend({pid});"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no session is idle in a transaction for long")))
}

fn prepared(node: &mut Node<'_>) -> Judged {
    let all = node.own()?;
    let most = freeze_max_age(node)? * HORIZON_SHARE_WARN;
    let found = node.list(
        "",
        &format!(
            "select gid, pg_catalog.quote_literal(gid) quoted, pg_catalog.quote_ident(database) as database, extract(epoch from \
                pg_catalog.clock_timestamp() - prepared) age_s,
               pg_catalog.age(transaction) age_xids, database = pg_catalog.current_database() is_here
             from pg_catalog.pg_prepared_xacts where prepared < pg_catalog.clock_timestamp() - interval '{PREPARED_S} s' or pg_catalog.age(transaction) > {}",
            most.floor()
        ),
        "age_s desc, gid",
    )?;
    let draft = |row: &Value| {
        let (gid, database) = (json::text(row, "gid"), json::text(row, "database"));
        let age_s = json::number(row, "age_s").unwrap_or(0.0);
        let claim = format!(
            "transaction {gid} of database {database} was prepared {} and {} transactions ago",
            number::duration(age_s),
            number::short(json::number(row, "age_xids").unwrap_or(0.0))
        );
        let draft =
            warn(gid.clone(), claim).figure(age_s * 1e6, Unit::Microseconds).at_most(PREPARED_S * 1e6);
        let shown = format!(
            "SELECT gid, prepared, owner, database FROM pg_prepared_xacts WHERE gid = {};",
            json::text(row, "quoted")
        );
        if let Some(own) = all.iter().find(|own| own.prepares(&gid)) {
            let advice = format!(
                "leave it: the cluster's engine prepared it, and {}. If it stays for minutes, the node that began it is away: bring that back",
                own.resolves
            );
            let draft = draft.advice(advice).run(shown);
            return match own.resolve {
                Some(sql) => {
                    draft.run(format!("{sql} -- at the coordinator: ends all whose outcome is known"))
                }
                None => draft,
            };
        }
        draft
            .advice(format!("find out from its coordinator how it ended; commit or roll it back in database {database}"))
            .run(format!(
            "SELECT gid, prepared, owner, database FROM pg_prepared_xacts WHERE gid = {}; -- then COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator \
                decided",
            json::text(row, "quoted")
        ))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no prepared transaction is old")))
}
