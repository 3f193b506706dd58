//! Replication slots: those without a consumer, and the WAL and rows they hold.

use crate::database::draft::{Draft, each, fail, note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged};
use engines::profile::Own;
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Of the free space for WAL: time to act (REP-03).
const FREE_SHARE_MAX: f64 = 0.5;
/// Even a slot in use keeps little.
const RETAINED_BYTES_MAX: f64 = 10.0 * 1024.0 * 1024.0 * 1024.0;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "state.slots",
    area: Area::State,
    title: "replication slots without a consumer, lost ones, and the WAL that slots keep",
    limits: "inactive, or more than 10 GiB kept: warning; lost, unreserved, or more than half of the free space: fail (REP-03)",
    units: &[Unit::Bytes],
    needs: &[],
    why: "a slot keeps WAL, and dead rows of the catalogs, until its consumer has confirmed them: the disk of pg_wal fills (seen: cluster down in two hours)",
    judge: slots,
}];

fn slots(node: &mut Node<'_>) -> Judged {
    const VIEW: &str = "pg_catalog.pg_replication_slots";
    let status = node.column(VIEW, "wal_status", "null::text")?;
    let safe = node.column(VIEW, "safe_wal_size", "null::bigint")?;
    let since = node.column(VIEW, "inactive_since", "null::timestamptz")?;
    let synced = node.column(VIEW, "synced", "false")?;
    let found = node.list(
        "",
        &format!(
            "select slot_name as slot, pg_catalog.quote_literal(slot_name) quoted, slot_type kind, active, {status} as status, {safe} safe_bytes, \
                extract(epoch from pg_catalog.clock_timestamp() - {since}) inactive_s,
               pg_catalog.pg_wal_lsn_diff(case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn() else \
                   pg_catalog.pg_current_wal_lsn() end, restart_lsn) retained,
               greatest(pg_catalog.age(xmin), pg_catalog.age(catalog_xmin)) age_xids,
               restart_lsn is null and xmin is null and catalog_xmin is null as keeps_nothing
             from {VIEW} where not temporary and not {synced}"
        ),
        "active, retained desc nulls last, slot",
    )?;
    let free = node.machine.wal_free_bytes.map(|bytes| bytes as f64);
    let bad: Vec<Value> = found
        .rows
        .iter()
        .filter(|row| {
            json::flag(row, "active") == Some(false)
                || is_lost(row)
                || is_full(row, free)
                || retained(row) > RETAINED_BYTES_MAX
        })
        .cloned()
        .collect();
    let own = node.own()?;
    let draft = |row: &Value| judged(row, free, &own);
    Ok(each(&bad, bad.len() as u64, draft, || {
        pass(format!("{}, all with a consumer", number::counted(found.total, "slot")))
    }))
}

/// Bytes of WAL that it keeps.
fn retained(row: &Value) -> f64 {
    json::number(row, "retained").unwrap_or(0.0).max(0.0)
}

fn is_lost(row: &Value) -> bool {
    ["lost", "unreserved"].contains(&json::text(row, "status").as_str())
}

fn is_full(row: &Value, free: Option<f64>) -> bool {
    free.is_some_and(|free| retained(row) > free * FREE_SHARE_MAX)
}

fn judged(row: &Value, free: Option<f64>, own: &[Own]) -> Draft {
    let slot = json::text(row, "slot");
    let consumer = match (json::flag(row, "active"), json::number(row, "inactive_s")) {
        (Some(true), _) => "has a consumer".to_string(),
        (_, Some(seconds)) => format!("has had no consumer for {}", number::duration(seconds.max(0.0))),
        _ => "has no consumer".to_string(),
    };
    let status = match json::text(row, "status") {
        none if none.is_empty() => String::new(),
        status => format!(" (WAL is {status})"),
    };
    let horizon = match json::number(row, "age_xids") {
        Some(age) if age > 0.0 => format!(", and rows of {} transactions", number::short(age)),
        _ => String::new(),
    };
    let claim = format!(
        "{} slot {slot} {consumer} and keeps {} of WAL{status}{horizon}",
        json::text(row, "kind"),
        number::bytes(retained(row))
    );
    let draft = match is_lost(row) || is_full(row, free) {
        true => fail(slot, claim),
        // Made for a standby that is to come: after a failover, for example.
        false if json::flag(row, "keeps_nothing") == Some(true) => {
            return note(slot, claim).why("it keeps nothing until its consumer first connects");
        }
        false => warn(slot, claim),
    };
    let draft = draft
        .figure(retained(row), Unit::Bytes)
        .at_most(free.map_or(RETAINED_BYTES_MAX, |free| free * FREE_SHARE_MAX));
    if own.iter().any(|own| own.has_slot(&json::text(row, "slot"))) {
        return draft.advice(
            "the cluster's engine made it for another of its nodes or for data that it moves: bring that node back or let the move end, or take the node \
             out of the cluster by the engine's own means, which drop the slot",
        );
    }
    draft
        .advice("bring its consumer back, or drop the slot; its consumer must then be built anew")
        .run(format!("SELECT pg_drop_replication_slot({});", json::text(row, "quoted")))
}
