//! The memory that the server processes of sessions have for themselves, by application and role. No view has that of other sessions, so the processes are
//! read where they run on this host.

use crate::collect::Batch;
use crate::host::memory::PAGE_BYTES;
use crate::sql::core::Answered;
use crate::sql::json::{list, text};
use record::watched::SessionMemory;
use serde_json::Value;
use std::collections::BTreeMap;

/// Sessions whose processes are read: the oldest, which have had the most time to grow.
const SESSIONS_MAX: usize = 256;
/// Applications and roles per sample, by their memory.
const GROUPS_MAX: usize = 20;

/// How the names of our own sessions begin. A name alone would hide the session of any role.
const OUR: &str = "pgfathom";

/// The query: sessions of clients that are not our own.
pub(crate) fn question() -> String {
    format!(
        "select json_build_object('sessions', (select json_agg(s) from (select pid, application_name application, usename \"user\",
            case when state = 'active' then extract(epoch from clock_timestamp() - query_start) end statement_s from pg_catalog.pg_stat_activity
          where backend_type = 'client backend' and pid <> pg_catalog.pg_backend_pid()
            and not (application_name like '{OUR}%' and usename = current_user) order by backend_start limit {SESSIONS_MAX}) s))::text"
    )
}

/// The sessions of one application and role.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    sessions: u64,
    private_bytes: u64,
    longest_statement_s: f64,
}

/// What a process has in memory and shares with no other, of `/proc/PID/statm`: pages in memory without those of files and of shared memory.
fn private_bytes(statm: &str) -> Option<u64> {
    let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared).saturating_mul(PAGE_BYTES))
}

/// Turns an answer into lines. `read` returns the text of `/proc/PID/statm`.
pub(crate) fn answer(
    answered: &Answered<'_>,
    answer: &Value,
    read: impl Fn(u64) -> Option<String>,
    batch: &mut Batch,
) {
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for row in list(answer, "sessions") {
        let bytes = row["pid"].as_u64().and_then(&read).and_then(|statm| private_bytes(&statm));
        // It has ended since.
        let Some(bytes) = bytes else { continue };
        let group = groups.entry((text(row, "application"), text(row, "user"))).or_default();
        group.sessions += 1;
        group.private_bytes += bytes;
        group.longest_statement_s = group.longest_statement_s.max(row["statement_s"].as_f64().unwrap_or(0.0));
    }
    let mut groups: Vec<((String, String), Group)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.private_bytes));
    for ((application, user), group) in groups.into_iter().take(GROUPS_MAX) {
        let line = SessionMemory {
            node: answered.node.to_string(),
            application,
            user,
            sessions: Some(group.sessions),
            private_bytes: Some(group.private_bytes),
            longest_statement_s: Some(group.longest_statement_s),
        };
        batch.counted(answered.t_us, answered.interval_us, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::session::APPLICATION_NAME;
    use record::watched::Sampled;
    use serde_json::json;

    #[test]
    fn what_processes_share_is_not_theirs_and_those_that_ended_have_nothing() {
        let sessions = json!({"sessions": [
            {"pid": 1, "application": "billing", "user": "app", "statement_s": null},
            {"pid": 2, "application": "billing", "user": "app", "statement_s": 2.5},
            {"pid": 3, "application": "billing", "user": "app", "statement_s": null},
            {"pid": 4, "application": "", "user": "etl", "statement_s": null},
        ]});
        let read = |pid: u64| match pid {
            1 => Some("9000 1000 400 5 0 0 0\n".to_string()),
            2 => Some("9000 1500 400 5 0 0 0\n".to_string()),
            4 => Some("9000 300 400 5 0 0 0\n".to_string()),
            _ => None,
        };
        let mut batch = Batch::default();
        let answered = Answered { node: "n1", t_us: 9, interval_us: 4, queried_us: 1, rtt_us: None };
        answer(&answered, &sessions, read, &mut batch);
        let lines = batch.lines.into_iter().map(|(_, _, line)| match line {
            Sampled::SessionMemory(line) => line,
            other => panic!("{other:?}"),
        });
        let lines: Vec<SessionMemory> = lines.collect();
        let figures = |line: &SessionMemory| (line.sessions, line.private_bytes, line.longest_statement_s);
        assert_eq!(
            (lines.len(), lines[0].application.as_str(), lines[1].user.as_str()),
            (2, "billing", "etl")
        );
        assert_eq!(figures(&lines[0]), (Some(2), Some(1_700 * 4096), Some(2.5)));
        assert_eq!(figures(&lines[1]), (Some(1), Some(0), Some(0.0)));
    }

    #[test]
    fn our_own_sessions_are_left_out() {
        assert!(
            APPLICATION_NAME.starts_with(OUR)
                && question().contains("application_name like 'pgfathom%' and usename = current_user")
        );
    }
}
