//! Standbys, from the views of the server that sends to them.

use super::json::{count, flag, micros, number, text};
use super::probe::Probe;
use record::watched::Replication;
use serde_json::Value;

/// The part of the tick's query; `lsn` is the server's position. `None` without the view's columns.
pub(super) fn question(probe: &Probe, lsn: &str) -> Option<String> {
    if !probe.senders.contains("replay_lag") {
        return None;
    }
    let bytes = |column: &str| {
        format!("pg_catalog.pg_wal_lsn_diff({lsn}, s.{column}) {}_bytes", column.replace("_lsn", "_lag"))
    };
    let time = |column: &str| format!("extract(epoch from s.{column}) {column}");
    // A standby with a slot reports its snapshot there.
    let of_slot = match probe.slots.contains("active_pid") {
        true => "(select r.xmin from pg_catalog.pg_replication_slots r where r.active_pid = s.pid)",
        false => "null::xid",
    };
    Some(format!(
        "'standbys', (select json_agg(r) from (select s.pid, a.application_name standby, s.state, s.sync_state, {}, {}, {}, {}, {}, {}, {},
            f.xmin is not null feedback, pg_catalog.age(f.xmin) feedback_xids
          from pg_catalog.pg_stat_get_wal_senders() s left join a using (pid)
            cross join lateral (select coalesce(a.backend_xmin, {of_slot}) xmin) f) r)",
        bytes("sent_lsn"),
        bytes("write_lsn"),
        bytes("flush_lsn"),
        bytes("replay_lsn"),
        time("write_lag"),
        time("flush_lag"),
        time("replay_lag")
    ))
}

/// One standby.
pub(super) fn line(node: &str, row: &Value) -> Replication {
    // A standby that is ahead of our slightly older position has no lag.
    let bytes = |name| number(row, name).map(|bytes| bytes.max(0.0) as u64);
    Replication {
        node: node.to_string(),
        pid: count(row, "pid"),
        standby: text(row, "standby"),
        state: text(row, "state"),
        sync_state: text(row, "sync_state"),
        sent_lag_bytes: bytes("sent_lag_bytes"),
        write_lag_bytes: bytes("write_lag_bytes"),
        flush_lag_bytes: bytes("flush_lag_bytes"),
        replay_lag_bytes: bytes("replay_lag_bytes"),
        write_lag_us: micros(row, "write_lag"),
        flush_lag_us: micros(row, "flush_lag"),
        replay_lag_us: micros(row, "replay_lag"),
        feedback: flag(row, "feedback"),
        feedback_xids: count(row, "feedback_xids"),
    }
}
