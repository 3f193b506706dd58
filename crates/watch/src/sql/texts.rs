//! Texts of statements: those that the extension keeps, and those of sessions.

use crate::collect::{Batch, With};
use crate::sql::json::{count, list, text};
use crate::sql::probe::{Probe, column};
use crate::sql::sampled;
use record::{event, statement};
use serde_json::Value;
use std::collections::HashSet;

/// Characters of a statement's text that are kept.
const TEXT_CHARS: u32 = 4000;

/// Characters of the end of a longer one.
const TAIL_CHARS: u32 = 1000;

/// When the texts that the extension keeps are read. The server reads its whole file of them each time, which may have hundreds of megabytes.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    due_us: u64,
    took_us: u64,
}

/// A read that takes longer, as on a busy host it may without a large file, is repeated only after so many times as long.
const SLOW_US: u64 = 1_500_000;
const TIMES: u64 = 100;

impl Turn {
    /// Whether they may be read now.
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.due_us
    }

    /// They were read.
    pub(crate) fn took(&mut self, begin_us: u64, end_us: u64) {
        self.took_us = end_us.saturating_sub(begin_us);
        if self.took_us >= SLOW_US {
            self.due_us = end_us + self.took_us * TIMES;
        }
    }

    /// Why they are not read now.
    pub(crate) fn why(&self) -> String {
        format!(
            "the server took {:.1} s to read its file of texts, which is too large to be read often: the texts of sessions are taken instead",
            self.took_us as f64 / 1e6
        )
    }
}

/// Texts of statements; the parameters are the list of ids, and of those that are ours. Roles whose statements have the same id may have written them in
/// other words: another alias, a comment, since PostgreSQL 18 another table of the same name. The words are of the role whose entry took the most time.
/// PostgreSQL 18 shortens lists of constants: how many commas the text of a session with the
/// statement has shows how long such a list is. Of fields of documents the names are taken from such a text.
pub(crate) fn texts(probe: &Probe) -> String {
    // Before 13 time was not split into planning and executing.
    let time = match probe.statements.columns.contains("total_exec_time") {
        true => "total_exec_time",
        false => "total_time",
    };
    let of_sessions = match column(&probe.activity_columns, "query_id", "") {
        "" => String::new(),
        query_id => format!(
            ", case when s.query ~ '(->|#>)>? *[$][0-9]' then (select pg_catalog.left(a.query, {TEXT_CHARS})
               from {0} a where a.{query_id} = s.queryid limit 1) end of_session,
               case when s.query like '%/*, ... */%' then (select max(pg_catalog.length(a.query) - pg_catalog.length(pg_catalog.replace(a.query, ',', '')))
               from {0} a where a.{query_id} = s.queryid) end commas",
            probe.activity
        ),
    };
    format!(
        "select json_build_object('texts', (select json_agg(r) from (select distinct on (s.queryid) s.queryid::text query_id,
           pg_catalog.left(s.query, {TEXT_CHARS}) as text,
           case when pg_catalog.length(s.query) > {TEXT_CHARS} then pg_catalog.right(s.query, {TAIL_CHARS}) end tail,
           case when s.dbid = d.oid then pg_catalog.pg_get_userbyid(s.userid)::text end \"user\"{of_sessions}
           from {} s, pg_catalog.pg_database d where d.datname = current_database() and s.queryid = any($1::bigint[])
             and not (s.queryid = any($2::bigint[]) and s.userid = (select oid from pg_catalog.pg_roles where rolname = current_user))
           order by s.queryid, s.query is null, s.{time} desc, s.calls desc, s.userid) r))::text",
        probe.statements.sql.replace("(false)", "(true)")
    )
}

/// Texts of the statements that run now, where the extension's cannot be read or has none: it keeps what has ended. The parameter is the list of ids.
pub(crate) fn running_texts(probe: &Probe) -> String {
    let query_id = column(&probe.activity_columns, "query_id", "null::bigint");
    format!(
        "select json_build_object('texts', (select json_agg(r) from (select distinct on ({query_id}) {query_id}::text query_id,
             pg_catalog.left(query, {TEXT_CHARS}) as text, d.datname as database,
             case when d.datname = current_database() then pg_catalog.pg_get_userbyid(usesysid)::text end \"user\"
             from {} a left join pg_catalog.pg_database d on d.oid = a.datid
             where {query_id} = any($1::bigint[]) order by {query_id}, query is null, d.datname is distinct from current_database()) r))::text",
        probe.activity
    )
}

/// The same of sessions, whose texts have constants. Where a session of this database has one, the statement can be planned.
pub(crate) fn running_answer(
    node: &str,
    t_us: u64,
    answer: &Value,
    known: &mut HashSet<String>,
    batch: &mut Batch,
) {
    for row in list(answer, "texts") {
        let (id, words) = (text(row, "query_id"), text(row, "text"));
        if words.is_empty() || !known.insert(id.clone()) {
            continue;
        }
        let event = sampled::text_event(node, t_us, &id, statement::parameterized(&words));
        let event = event.with("user", text(row, "user")).with("database", text(row, "database"));
        batch.event(event.with("from", "sessions"));
    }
}

/// Turns texts into events, and remembers them.
pub(crate) fn texts_answer(
    node: &str,
    t_us: u64,
    answer: &Value,
    known: &mut HashSet<String>,
    batch: &mut Batch,
) {
    for row in list(answer, "texts") {
        let (id, words) = (text(row, "query_id"), with_one_row(text(row, "text"), &text(row, "tail")));
        let keys = statement::document_keys(&words, &text(row, "of_session"));
        let event = sampled::text_event(node, t_us, &id, words).with("user", text(row, "user"));
        let event = match keys.is_empty() {
            true => event,
            false => event.with(event::DOCUMENT_KEYS, keys.join("; ")),
        };
        batch.event(match count(row, "commas") {
            Some(commas) => event.with("commas", commas),
            None => event,
        });
        known.insert(id);
    }
}

/// An INSERT of so many rows that its text was cut off among them, as one of its first row with what stands behind the last one: that is what decides what it
/// does (ON CONFLICT, RETURNING). Other texts stay as they are; the plan of other lists depends on how many values they have.
fn with_one_row(words: String, tail: &str) -> String {
    let is_of_list = |c: char| c.is_ascii_digit() || c.is_whitespace() || "$(),".contains(c);
    let head = words.trim_end_matches(is_of_list);
    let lowered = |text: &str| text.to_ascii_lowercase();
    let is_insert = lowered(words.trim_start()).starts_with("insert") && lowered(head).ends_with("values");
    let row_end = words[head.len()..].find(')').map(|at| head.len() + at + 1);
    match row_end {
        Some(end) if is_insert && !tail.is_empty() => {
            let behind = tail.trim_start_matches(is_of_list);
            format!("{} {behind}", &words[..end]).trim_end().to_string()
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_of_texts_is_read_rarely() {
        let mut turn = Turn::default();
        assert!(turn.is_due(0));
        turn.took(1_000_000, 1_020_000);
        assert!(turn.is_due(1_020_000), "it is small");
        turn.took(2_000_000, 4_500_000);
        assert!(!turn.is_due(200_000_000) && turn.is_due(254_500_000));
        assert!(turn.why().contains("took 2.5 s"));
    }

    #[test]
    fn a_long_insert_keeps_its_first_row_and_what_follows_the_last() {
        let cut = |words: &str, tail: &str| with_one_row(words.to_string(), tail);
        let head = "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4),\n ($5, $";
        assert_eq!(
            cut(head, "98), ($99, $100) ON CONFLICT (a) DO UPDATE SET b = excluded.b"),
            "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b"
        );
        assert_eq!(cut(head, "98), ($99, $100)"), "INSERT INTO t (a, b) VALUES ($1, $2)");
        // A short one has no tail.
        assert_eq!(cut("insert into t values ($1, $2)", ""), "insert into t values ($1, $2)");
        let list = "select * from t where a in ($1, $2, $3, $";
        assert_eq!(cut(list, "98, $99) order by b"), list);
        let mixed = "insert into t select * from u where a in ($1, $2";
        assert_eq!(cut(mixed, "98, $99)"), mixed);
    }
}
