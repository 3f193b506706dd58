//! What a session waits for that the server keeps waiting: read in another session, for a note to the user.
//!
//! Without it, a commit that waits for a standby which no longer replies looks like a program that hangs.

use std::time::Duration;

use crate::attempt::Cause;

/// What another session found.
pub(crate) struct Answer {
    /// The server answered it in time.
    pub(crate) answers: bool,
    /// What keeps the waiting session waiting, if that is known.
    pub(crate) hindrance: Option<String>,
}

impl Answer {
    /// Without a word about the waiting session.
    pub(crate) fn none(answers: bool) -> Answer {
        Answer { answers, hindrance: None }
    }

    /// From the value that a query of the other session gives about the one of a server process, or about nothing where that is unknown.
    pub(crate) fn to(
        pid: Option<i32>,
        value_of: impl FnOnce(&str) -> Result<Option<Vec<u8>>, Cause>,
    ) -> Answer {
        let read = value_of(&pid.map_or_else(|| "select 1".to_owned(), query));
        // An engine without this view refuses the question, which is an answer.
        let answers = !matches!(read, Err(Cause::Silent(_)));
        let text = read.ok().flatten().filter(|_| pid.is_some());
        Answer { answers, hindrance: text.map(|text| String::from_utf8_lossy(&text).into_owned()) }
    }
}

/// The statement that reads it as one text, NULL where nothing is known; `pid`: the server process of the session.
fn query(pid: i32) -> String {
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
