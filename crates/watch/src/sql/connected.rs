//! Who holds the connections: queried while many are open, because a server that refuses connections answers no new session that would look.

use super::json::{age, count, list, text};
use crate::collect::Batch;
use record::watched::Connected;
use serde_json::Value;

/// Connections from which on their holders are recorded, of `max_connections`: one of so many.
const PART_OF_MAX: u64 = 2;
/// Or so many.
const MANY: u64 = 100;
/// Groups at most.
const GROUPS_MAX: usize = 10;

/// The part of the tick's query; `a` are the processes.
pub(super) fn question() -> String {
    let idle = "where state = 'idle'";
    let seconds = "extract(epoch from clock_timestamp() - state_change)";
    format!(
        "'connected', case when (select count(*) from a where client)
             >= least(pg_catalog.current_setting('max_connections')::bigint / {PART_OF_MAX}, {MANY}) then
           (select json_agg(g) from (select application_name application, pg_catalog.pg_get_userbyid(usesysid) \"user\",
              (select datname from pg_catalog.pg_database where oid = datid) \"database\",
              coalesce(pg_catalog.host(client_addr), 'local') client, count(*) sessions,
              count(*) filter ({idle}) idle, count(*) filter (where state like 'idle in transaction%') idle_in_transaction,
              percentile_cont(0.5) within group (order by {seconds}) filter ({idle}) idle_s, max({seconds}) filter ({idle}) idle_s_max
            from a where client group by application_name, usesysid, datid, client_addr order by 5 desc limit {GROUPS_MAX}) g) end"
    )
}

/// The lines of an answer.
pub(super) fn lines(node: &str, t_us: u64, answer: &Value, batch: &mut Batch) {
    for row in list(answer, "connected") {
        batch.reading(
            t_us,
            Connected {
                node: node.to_string(),
                application: text(row, "application"),
                user: text(row, "user"),
                database: text(row, "database"),
                client: text(row, "client"),
                sessions: count(row, "sessions").unwrap_or(0),
                idle: count(row, "idle").unwrap_or(0),
                idle_in_transaction: count(row, "idle_in_transaction").unwrap_or(0),
                idle_s: age(row, "idle_s"),
                idle_s_max: age(row, "idle_s_max"),
            },
        );
    }
}
