//! Standbys, from the views of the server that sends to them.

use super::json::{age, count, flag, micros, number, text};
use super::probe::Probe;
use record::watched::{Replication, Server};
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

/// How far a standby is behind, by its own account; `None` where its functions are not there. They are an error on a primary of some engines, or null.
pub(super) fn own_question(probe: &Probe) -> Option<String> {
    probe.has_replay_pause.then(|| {
        "'as_standby', case when pg_catalog.pg_is_in_recovery() then (select row_to_json(r) from (select \
            pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn()) behind_bytes, \
            extract(epoch from clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) age_s, \
            (select count(*) from pg_catalog.pg_stat_wal_receiver) receivers) r) end"
            .to_string()
    })
}

/// Fills what the server reports of itself as a standby.
pub(super) fn own_line(answer: &Value, server: &mut Server) {
    let own = &answer["as_standby"];
    // WAL from the archive is replayed and not received.
    server.replay_behind_bytes = number(own, "behind_bytes").map(|bytes| bytes.max(0.0) as u64);
    server.replay_age_s = age(own, "age_s");
    server.receivers = count(own, "receivers");
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_standby_reports_how_far_it_is_behind_and_a_primary_nothing() {
        let mut server = Server::default();
        own_line(
            &json!({"as_standby": {"behind_bytes": 1_540_608, "age_s": 4.5, "receivers": 1}}),
            &mut server,
        );
        assert_eq!(
            (server.replay_behind_bytes, server.replay_age_s, server.receivers),
            (Some(1_540_608), Some(4.5), Some(1))
        );
        own_line(&json!({"as_standby": {"behind_bytes": -8, "age_s": null, "receivers": 0}}), &mut server);
        assert_eq!(
            (server.replay_behind_bytes, server.replay_age_s, server.receivers),
            (Some(0), None, Some(0))
        );
        own_line(&json!({"as_standby": null}), &mut server);
        assert_eq!((server.replay_behind_bytes, server.receivers), (None, None));
    }
}
