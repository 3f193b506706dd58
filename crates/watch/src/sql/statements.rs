//! What statements took, by the extension that counts them. Our own are left out.
//!
//! An entry is ours if our role ran it, and its text is one that this process has sent. What a statement has in its text (a comment, an alias) is anybody's
//! choice, and so are all of its words: a role that runs our statements has entries of its own.

use crate::collect::Batch;
use crate::sql::core::Answered;
use crate::sql::counters::{Counters, Delta};
use crate::sql::json::{flag, list, text};
use crate::sql::probe::{Probe, column};
use record::statement;
use record::watched::{Statement, StatementRest};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Statements per sample, by time spent since the last one.
pub(crate) const STATEMENTS_MAX: usize = 100;
/// Statement texts that are requested in one run; each costs a read of the whole file of texts.
pub(crate) const TEXTS_MAX: usize = 2000;
/// Texts of entries of our role that are read at once.
const JUDGED_MAX: usize = 500;
/// Characters of these: more than an outline has.
const JUDGED_CHARS: u32 = 4_000;
/// The role whose entries may be ours.
const OUR_ROLE: &str = "(select oid from pg_catalog.pg_roles where rolname = current_user)";

const STATEMENT: &[&str] = &[
    "calls",
    "total_ms",
    "plan_ms",
    "jit_ms",
    "rows",
    "shared_read",
    "shared_hit",
    "temp_written",
    "wal_bytes",
    "wal_fpi",
    "cpu_ms",
];
/// How often entries were thrown away, because there were more than `pg_stat_statements.max`: each time some of those that were used least.
const EVICTIONS: &[&str] = &["evictions"];

/// Statements, without their texts; `None` without the extension.
pub(crate) fn statements(probe: &Probe) -> Option<String> {
    let columns = &probe.statements.columns;
    if !columns.contains("queryid") {
        return None;
    }
    // Before 13 time was not split into planning and executing.
    let total = if columns.contains("total_exec_time") { "total_exec_time" } else { "total_time" };
    let plan = column(columns, "total_plan_time", "null::float8");
    let wal = column(columns, "wal_bytes", "null::bigint");
    let pages = column(columns, "wal_fpi", "null::bigint");
    let nested = if columns.contains("toplevel") { "not bool_or(toplevel)" } else { "null::boolean" };
    let jit = if columns.contains("jit_generation_time") {
        "sum(jit_generation_time + jit_inlining_time + jit_optimization_time + jit_emission_time)"
    } else {
        "null::float8"
    };
    let (cpu, join) = if probe.kcache.columns.contains("exec_user_time") {
        let join = format!(
            " left join (select queryid k_queryid, dbid k_dbid, userid = {OUR_ROLE} k_ours, sum(exec_user_time + exec_system_time) * 1000 cpu_ms
                from {} group by 1, 2, 3) k on k_queryid = queryid and k_dbid = dbid and k_ours = (userid = {OUR_ROLE})",
            probe.kcache.sql
        );
        ("max(k.cpu_ms)", join)
    } else {
        ("null::float8", String::new())
    };
    // The place that is kept for one of the two is that of the other: they are of one extension.
    let info = &probe.statements_info;
    let evictions = match info.columns.contains("dealloc") {
        true => format!("'evictions', (select dealloc from {}), ", info.sql),
        false => String::new(),
    };
    Some(format!(
        "select json_build_object({evictions}'statements', (select json_agg(r) from (select queryid::text query_id, dbid::text, (select datname from \
            pg_catalog.pg_database where oid = dbid) \"database\", userid = {OUR_ROLE} ours,
            {nested} nested, sum(calls) calls, sum({total}) total_ms, sum({plan}) plan_ms, {jit} jit_ms,
            sum(rows) as rows, sum(shared_blks_read) shared_read, sum(shared_blks_hit) shared_hit,
            sum(temp_blks_written) temp_written, sum({wal}) wal_bytes, sum({pages}) wal_fpi, {cpu} cpu_ms
          from {}{join} where queryid is not null group by queryid, dbid, 4) r))::text",
        probe.statements.sql
    ))
}

/// The texts of entries of our role; the parameter is the list of ids.
pub(crate) fn texts_of_our_role(probe: &Probe) -> String {
    format!(
        "select json_build_object('texts', (select json_agg(r) from (select distinct on (queryid) queryid::text query_id,
           pg_catalog.left(query, {JUDGED_CHARS}) as text from {} where userid = {OUR_ROLE} and queryid = any($1::bigint[])
           order by queryid, query is null) r))::text",
        probe.statements.sql.replace("(false)", "(true)")
    )
}

/// Which of the entries of our role are ours.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    /// Texts that were sent and read.
    read: usize,
    outlines: HashSet<u64>,
    entries: HashMap<String, bool>,
}

impl Ours {
    /// Entries of our role that moved and are not judged yet.
    pub(crate) fn unjudged(&self, moved: &[Moved]) -> Vec<i64> {
        let ours =
            moved.iter().filter(|one| one.is_of_our_role && !self.entries.contains_key(&one.line.query_id));
        let ids: BTreeSet<i64> = ours.filter_map(|one| one.line.query_id.parse().ok()).collect();
        ids.into_iter().take(JUDGED_MAX).collect()
    }

    /// Judges entries by their texts and by what this process has sent.
    pub(crate) fn judge(&mut self, answer: &Value) {
        for sent in postgres::sent_since(self.read) {
            self.read += 1;
            self.outlines.extend(statement::outlines(&sent));
        }
        for row in list(answer, "texts") {
            let outlines = statement::outlines(&text(row, "text"));
            let is_ours = !outlines.is_empty() && outlines.iter().all(|one| self.outlines.contains(one));
            self.entries.insert(text(row, "query_id"), is_ours);
        }
    }

    /// The ids of those that are ours.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.entries.iter().filter(|(_, is_ours)| **is_ours).filter_map(|(id, _)| id.parse().ok()).collect()
    }

    fn has(&self, moved: &Moved) -> bool {
        moved.is_of_our_role && self.entries.get(&moved.line.query_id) == Some(&true)
    }
}

/// What one statement took since the last look.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Moved {
    is_of_our_role: bool,
    line: Statement,
}

/// What an answer shows that the last one did not.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// The statements that were executed.
    pub(crate) moved: Vec<Moved>,
    /// How often entries were thrown away.
    evictions: Option<u64>,
}

/// The statements of an answer that were executed since the last one.
pub(crate) fn moved(answered: &Answered<'_>, answer: &Value, counters: &mut Counters) -> Looked {
    counters.begin();
    let evictions = counters.delta("", EVICTIONS, answer).and_then(|delta| delta.count(EVICTIONS[0]));
    let mut moved = Vec::new();
    for row in list(answer, "statements") {
        let (id, is_of_our_role) = (text(row, "query_id"), flag(row, "ours") == Some(true));
        let key = format!("{id}/{}/{is_of_our_role}", text(row, "dbid"));
        let Some(delta) = counters.delta_of_new(&key, STATEMENT, row) else { continue };
        if delta.is_quiet() {
            continue;
        }
        let line = line(answered.node, row, id, &delta);
        moved.push(Moved { is_of_our_role, line });
    }
    counters.sweep();
    Looked { moved, evictions }
}

fn line(node: &str, row: &Value, query_id: String, delta: &Delta) -> Statement {
    Statement {
        node: node.to_string(),
        database: text(row, "database"),
        query_id,
        nested: flag(row, "nested"),
        calls: delta.count("calls"),
        total_ms: delta.number("total_ms"),
        plan_ms: delta.number("plan_ms"),
        jit_ms: delta.number("jit_ms"),
        rows: delta.count("rows"),
        shared_read: delta.count("shared_read"),
        shared_hit: delta.count("shared_hit"),
        temp_written: delta.count("temp_written"),
        wal_bytes: delta.count("wal_bytes"),
        wal_fpi: delta.count("wal_fpi"),
        cpu_ms: delta.number("cpu_ms"),
    }
}

/// The same statement of our role and of others, as one.
fn add(line: &mut Statement, other: &Statement) {
    fn counts(sum: &mut Option<u64>, more: Option<u64>) {
        *sum = sum.zip(more).map(|(sum, more)| sum + more);
    }
    fn times(sum: &mut Option<f64>, more: Option<f64>) {
        *sum = sum.zip(more).map(|(sum, more)| sum + more);
    }
    line.nested = line.nested.zip(other.nested).map(|(one, two)| one && two);
    counts(&mut line.calls, other.calls);
    times(&mut line.total_ms, other.total_ms);
    times(&mut line.plan_ms, other.plan_ms);
    times(&mut line.jit_ms, other.jit_ms);
    counts(&mut line.rows, other.rows);
    counts(&mut line.shared_read, other.shared_read);
    counts(&mut line.shared_hit, other.shared_hit);
    counts(&mut line.temp_written, other.temp_written);
    counts(&mut line.wal_bytes, other.wal_bytes);
    counts(&mut line.wal_fpi, other.wal_fpi);
    times(&mut line.cpu_ms, other.cpu_ms);
}

/// Turns what moved into lines, the most expensive first, without ours; returns the ids whose text is not known yet.
pub(crate) fn record(
    answered: &Answered<'_>,
    looked: Looked,
    ours: &Ours,
    known: &HashSet<String>,
    batch: &mut Batch,
) -> Vec<String> {
    let mut by_key: HashMap<(String, String), Statement> = HashMap::new();
    for one in looked.moved.into_iter().filter(|one| !ours.has(one)) {
        let key = (one.line.database.clone(), one.line.query_id.clone());
        match by_key.get_mut(&key) {
            Some(line) => add(line, &one.line),
            None => drop(by_key.insert(key, one.line)),
        }
    }
    let mut moved: Vec<Statement> = by_key.into_values().collect();
    moved.sort_by(|a, b| {
        let time = |line: &Statement| line.total_ms.unwrap_or(0.0);
        time(b).total_cmp(&time(a)).then_with(|| (&a.database, &a.query_id).cmp(&(&b.database, &b.query_id)))
    });
    if let Some(rest) = rest(answered, moved.get(STATEMENTS_MAX..).unwrap_or_default(), looked.evictions) {
        batch.counted(answered.t_us, answered.interval_us, rest);
    }
    moved.truncate(STATEMENTS_MAX);
    let unknown: BTreeSet<String> =
        moved.iter().map(|line| line.query_id.clone()).filter(|id| !known.contains(id)).collect();
    for line in moved {
        batch.counted(answered.t_us, answered.interval_us, line);
    }
    unknown.into_iter().take(TEXTS_MAX.saturating_sub(known.len())).collect()
}

/// Those that get no line, as one; `None` if there are none, and none were thrown away.
fn rest(answered: &Answered<'_>, left: &[Statement], evictions: Option<u64>) -> Option<StatementRest> {
    (!left.is_empty() || evictions > Some(0)).then(|| StatementRest {
        node: answered.node.to_string(),
        entries: left.len() as u64,
        calls: left.iter().filter_map(|line| line.calls).sum(),
        total_ms: Some(left.iter().filter_map(|line| line.total_ms).sum()),
        evictions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watched::Sampled;
    use serde_json::json;

    #[test]
    fn statements_without_a_line_are_counted_as_one() {
        let mut counters = Counters::default();
        let mut round = |calls: u64, statements: usize, evictions: u64| {
            let row = |id: usize| json!({"query_id": id.to_string(), "dbid": "5", "calls": calls, "total_ms": calls as f64 * (1.0 + id as f64)});
            let rows =
                json!({"evictions": evictions, "statements": (0..statements).map(row).collect::<Vec<_>>()});
            let answered = Answered { node: "n1", t_us: 5, interval_us: 1, queried_us: 1, rtt_us: None };
            let mut batch = Batch::default();
            let moved = moved(&answered, &rows, &mut counters);
            record(&answered, moved, &Ours::default(), &HashSet::new(), &mut batch);
            let mut lines = batch.lines.into_iter().map(|(_, _, line)| line);
            lines.find_map(|line| if let Sampled::StatementRest(rest) = line { Some(rest) } else { None })
        };
        assert_eq!(round(1, STATEMENTS_MAX + 3, 7), None, "nothing to compare with");
        // The three that took the least: of 1, 2 and 3 ms for each call.
        let rest = round(3, STATEMENTS_MAX + 3, 7).expect("three have no line");
        assert_eq!((rest.entries, rest.calls, rest.total_ms), (3, 6, Some(12.0)));
        assert_eq!(round(5, STATEMENTS_MAX, 7), None);
        let evicted = round(7, STATEMENTS_MAX, 9).expect("entries were thrown away");
        assert_eq!((evicted.entries, evicted.evictions), (0, Some(2)));
    }
    #[test]
    fn an_entry_is_ours_by_its_role_and_by_what_was_sent() {
        let answered = Answered { node: "n1", t_us: 5, interval_us: 1, queried_us: 1, rtt_us: None };
        let row = |id: &str, ours: bool, calls: u64| json!({"query_id": id, "dbid": "5", "database": "d", "ours": ours, "calls": calls, "total_ms": calls});
        let mut counters = Counters::default();
        moved(&answered, &json!({"statements": []}), &mut counters);
        let rows = [
            row("1", true, 3),
            row("1", false, 4),
            row("2", true, 5),
            row("3", false, 6),
            row("2", false, 7),
        ];
        let all = moved(&answered, &json!({"statements": rows}), &mut counters);
        let mut ours = Ours::default();
        ours.outlines.extend(statement::outlines(
            "select json_build_object('a', pg_catalog.now()), interval '1 s' ; begin",
        ));
        assert_eq!(ours.unjudged(&all.moved), [1, 2]);
        ours.judge(&json!({"texts": [
            {"query_id": "1", "text": "select json_build_object($1, pg_catalog.now()), interval $2"},
            {"query_id": "2", "text": "select json_build_object($1, pg_catalog.now()) as pgfathom"},
        ]}));
        assert_eq!((ours.unjudged(&all.moved), ours.ids()), (vec![], vec![1]));
        let mut batch = Batch::default();
        let unknown = record(&answered, all, &ours, &HashSet::new(), &mut batch);
        assert_eq!(unknown, ["1", "2", "3"]);
        let lines: Vec<_> = batch
            .lines
            .iter()
            .filter_map(|(_, _, line)| match line {
                Sampled::Statement(line) => Some((line.query_id.as_str(), line.calls)),
                _ => None,
            })
            .collect();
        assert_eq!(
            lines,
            [("2", Some(12)), ("3", Some(6)), ("1", Some(4))],
            "the entry of our role alone is left out"
        );
    }
}
