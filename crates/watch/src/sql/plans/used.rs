//! Tables of others that a role is seen to use. A name without a schema may be found in one where others make objects, and then nothing shows that the role
//! means what is there: its session may have a temporary table of that name, or another `search_path`. What planning evaluates of a table would then run with
//! the role's rights although the role never ran it. But a session that is at work with the statement, and holds the table's lock, has run it: so planning adds
//! nothing.
//!
//! That is proved only if none of the session's locks is of a temporary table, or of one that no other session sees yet (CREATE TEMPORARY TABLE in its
//! transaction): the statement could mean that one, and the lock could come from a function of the table's owner that was called before. And the statement must
//! be the same before and after the locks are read.

use super::NotPlanned;
use crate::collect::Batch;
use crate::sql::session::{Failed, Session};
use crate::sql::{Link, Node, Tick};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the end of a recording waits for a session that is seen to use a table, and how often it looks.
const END_MAX: Duration = Duration::from_millis(1_500);
const AGAIN: Duration = Duration::from_millis(40);

/// Sessions at work with the statements $1: statement, role, process, when it began, the tables that it has locked.
const HOLDERS: &str = "with at_work as materialized (select a.pid, a.usename::text as \"user\", a.query_start, pg_catalog.to_jsonb(a)->>'query_id' as query_id
       from pg_catalog.pg_stat_activity a where a.datname = current_database() and a.state = 'active' and a.backend_type = 'client backend'),
     held as (select w.pid, json_agg(l.relation::int8) as locked, pg_catalog.bool_and(c.oid is not null) as is_permanent from at_work w
       join pg_catalog.pg_locks l on l.pid = w.pid and l.locktype = 'relation' and l.granted
       left join pg_catalog.pg_class c on c.oid = l.relation and c.relpersistence <> 't'
       where w.query_id = any($1::text[]) group by w.pid)
     select coalesce(json_agg(json_build_array(w.query_id, w.\"user\", w.pid, w.query_start, h.locked)), '[]'::json)::text
       from at_work w join held h on h.pid = w.pid where h.is_permanent";

/// The same, of whose statements it is still true: process and begin.
const STILL: &str = "select coalesce(json_agg(json_build_array(a.pid, a.query_start)), '[]'::json)::text
       from pg_catalog.pg_stat_activity a where a.state = 'active' and a.pid::text = any($1::text[])";

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Statements that are not planned until it is seen, with the reason.
    wanted: BTreeMap<String, String>,
    /// Object ids of tables, by statement and role.
    seen: BTreeMap<(String, String), BTreeSet<i64>>,
}

impl Used {
    /// A statement waits for it.
    pub(super) fn want(&mut self, query_id: String, why: String) {
        self.wanted.insert(query_id, why);
    }

    /// The statements that still wait, and why.
    pub(super) fn unproved(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.wanted)
    }

    /// The tables that sessions of a role used by a statement.
    pub(super) fn by(&self, query_id: &str, user: &str) -> Vec<String> {
        let found = self.seen.get(&(query_id.to_string(), user.to_string()));
        found.into_iter().flatten().map(i64::to_string).collect()
    }

    /// Looks at the sessions that are at work with what waits: the statements that may be tried again.
    pub(super) fn look(&mut self, session: &mut Session) -> Result<Vec<String>, NotPlanned> {
        if self.wanted.is_empty() {
            return Ok(vec![]);
        }
        let ids: Vec<&str> = self.wanted.keys().map(String::as_str).collect();
        let holders = session.query(HOLDERS, &[&ids])?;
        let holders = holders.as_array().map_or(&[][..], Vec::as_slice);
        if holders.is_empty() {
            return Ok(vec![]);
        }
        let processes: Vec<String> = holders.iter().map(|row| row[2].to_string()).collect();
        let still = session.query(STILL, &[&processes])?;
        Ok(self.take(holders, still.as_array().map_or(&[][..], Vec::as_slice)))
    }

    /// Keeps what the holders have locked whose statement is still the same.
    fn take(&mut self, holders: &[Value], still: &[Value]) -> Vec<String> {
        let is_same = |row: &&Value| still.iter().any(|now| now[0] == row[2] && now[1] == row[3]);
        let mut found = vec![];
        for row in holders.iter().filter(is_same) {
            let (Some(id), Some(user), Some(tables)) = (row[0].as_str(), row[1].as_str(), row[4].as_array())
            else {
                continue;
            };
            let seen = self.seen.entry((id.to_string(), user.to_string())).or_default();
            let before = seen.len();
            seen.extend(tables.iter().filter_map(Value::as_i64));
            if seen.len() > before && self.wanted.remove(id).is_some() {
                found.push(id.to_string());
            }
        }
        found
    }
}

impl Node {
    /// Looks whether roles use the tables of others that their statements name: what is found may be tried again.
    pub(super) fn look_at_use(&mut self) -> Result<Vec<String>, Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(vec![]) };
        let found = match self.plans.used.look(&mut up.session) {
            Ok(found) => found,
            Err(NotPlanned::Gone(failed)) => return Err(failed),
            // A look that is refused is one that has seen nothing.
            Err(_) => vec![],
        };
        for id in &found {
            self.plans.seen.remove(id);
        }
        Ok(found)
    }

    /// The end of a recording, which may be the first time that statements are due: looks for a while whether they use what they name, and keeps the reason of
    /// those that were not seen to.
    pub(super) fn plan_what_is_used(&mut self, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        let begun = Instant::now();
        while !self.plans.used.wanted.is_empty() && begun.elapsed() < END_MAX {
            let found = self.look_at_use()?;
            if found.is_empty() {
                std::thread::sleep(AGAIN);
                continue;
            }
            let due = self.plans.due(true);
            self.plan_each(tick, due.into_iter().filter(|one| found.contains(&one.query_id)), true, batch)?;
        }
        for (id, why) in self.plans.used.unproved() {
            self.record_why(tick, id, why, batch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_session_holds_with_one_and_the_same_statement_is_proved() {
        let mut used = Used::default();
        for id in ["7", "8", "9"] {
            used.want(id.to_string(), "others".to_string());
        }
        let row = |id: &str, pid: u32, began: &str| json!([id, "app", pid, began, [100, 101]]);
        let holders = [row("7", 1, "a"), row("8", 2, "a"), row("9", 3, "a")];
        // One has begun its next statement, and one has none.
        let found = used.take(&holders, &[json!([1, "a"]), json!([2, "b"])]);
        assert_eq!(found, ["7"]);
        assert_eq!(used.by("7", "app"), ["100", "101"]);
        assert!(used.by("7", "other").is_empty() && used.by("8", "app").is_empty());
        assert_eq!(used.unproved().keys().collect::<Vec<_>>(), ["8", "9"]);
    }
}
