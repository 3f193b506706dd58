//! What a session waits for that the server keeps waiting: read in another session, for a note to the user.
//!
//! Without it, a commit that waits for a standby which no longer replies looks like a program that hangs.

use std::time::Duration;

/// The statement that reads it as one text, NULL where nothing is known; `pid`: the server process of the session.
pub(crate) fn query(pid: i32) -> String {
    format!(
        "select case \
           when a.wait_event = 'SyncRep' then 'the commit waits for standbys (synchronous_standby_names is ' \
             || pg_catalog.quote_literal(pg_catalog.current_setting('synchronous_standby_names')) || '): ' \
             || coalesce((select pg_catalog.string_agg(r.application_name || coalesce(' replied last ' \
                    || pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - r.reply_time)::int || ' s ago', ''), ', ') \
                  from pg_catalog.pg_stat_replication r where r.sync_state <> 'async'), 'none of them is connected') \
           when a.wait_event_type = 'Lock' then 'it waits for a lock (' || a.wait_event || ') behind ' \
             || coalesce((select pg_catalog.string_agg('session ' || b.pid || coalesce(' of ' || nullif(b.application_name, ''), '') \
                    || coalesce(', ' || b.state, ''), '; ') \
                  from pg_catalog.pg_stat_activity b where b.pid = any (pg_catalog.pg_blocking_pids(a.pid))), 'another one') \
         end from pg_catalog.pg_stat_activity a where a.pid = {pid}"
    )
}

/// The sentence for the user.
pub(super) fn sentence(place: &str, waited: Duration, hindrance: &str) -> String {
    // Names of applications are the choice of others.
    let hindrance = hindrance.replace(char::is_control, " ");
    format!("{place} has not answered a query of pgfathom for {} s: {hindrance}", waited.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_begin_no_line() {
        assert_eq!(
            sentence("n1", Duration::from_secs(12), "a\nb"),
            "n1 has not answered a query of pgfathom for 12 s: a b"
        );
    }
}
