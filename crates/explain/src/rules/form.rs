//! PLAN-29 to PLAN-36: statements whose form makes them do much work for a small result, so that an index on their conditions would not help: everything is
//! counted, sorted at random, numbered, kept behind WITH, or sent although few rows or columns are needed.

mod barrier;
mod excess;
mod kept;
pub(super) mod wide;

use super::costly::{busy, in_a_line, severity, table_named};
use super::paste::{AS_THE_APPLICATION, literal};
use super::statement::explain_it;
use crate::case::{Case, Thing};
use crate::rule::Need::{self, Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Shape, TableName, Verb};

const NEEDS: &[Need] = &[Field("statement", "calls"), Field("server", "sessions_active")];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-29",
        title: "all rows of a table are counted or summed up again and again",
        needs: NEEDS,
        limits: "20 % of the session time in an aggregate over one table without a condition that touches 100 blocks, once in 2 s or more; a note if a single \
            session does it (ours)",
        judge: |case| judge(case, everything, "aggregates without a condition"),
        links: &["https://www.postgresql.org/docs/current/rules-materializedviews.html"],
    },
    Rule {
        id: "PLAN-30",
        title: "a random row is found by sorting all rows",
        needs: NEEDS,
        limits: "20 % of the session time in a statement with ORDER BY random() and LIMIT that touches 100 blocks (ours)",
        judge: |case| judge(case, at_random, "statements with ORDER BY random()"),
        links: &["https://www.postgresql.org/docs/current/tsm-system-rows.html"],
    },
    Rule {
        id: "PLAN-31",
        title: "the newest row of each group is found by numbering all rows",
        needs: NEEDS,
        limits: "20 % of the session time in a statement that numbers the rows of a subquery and touches 100 blocks, more than it returns rows; low if \
            it has other window functions (ours)",
        judge: |case| judge(case, numbered, "window functions in subqueries"),
        links: &["https://www.postgresql.org/docs/current/sql-select.html#SQL-DISTINCT"],
    },
    Rule {
        id: "PLAN-32",
        title: "WITH, a view or a subquery is computed as a whole before a condition is applied",
        needs: &[
            Any(&[Field("statement", "calls"), Field("plan", "cost_total")]),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time in a statement with MATERIALIZED, or a plan that filters a CTE, or what DISTINCT, GROUP BY or a \
            window function returns, which touches 100 blocks, more than it returns \
            rows; without counters medium, from a cost of 10,000 on (ours)",
        judge: |case| judge(case, barrier::barrier, "statements with WITH, and scans of CTEs in plans"),
        links: &[
            "https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION",
        ],
    },
    Rule {
        id: "PLAN-33",
        title: "a frequent statement returns thousands of rows",
        needs: NEEDS,
        limits: "20 % of the session time in a SELECT without LIMIT that returns 10,000 rows, once a second or more; low for 1,000 rows, 20,000 a second \
            (ours)",
        judge: |case| judge(case, excess::whole_result, "rows per execution of statements without LIMIT"),
        links: &["https://www.postgresql.org/docs/current/queries-limit.html"],
    },
    Rule {
        id: "PLAN-34",
        title: "a statement also fetches large values",
        needs: &[Field("statement", "calls"), Field("table", "bytes"), Field("server", "sessions_active")],
        limits: "20 % of the session time in SELECT * of one table with 4 kB for each row or more, which touches 4 blocks for each row it returns; in a \
            SELECT of named columns 16 kB and 6 blocks, where its plan throws no rows away (ours)",
        judge: |case| judge(case, wide::values, "statements that read tables with large rows"),
        links: &["https://www.postgresql.org/docs/current/storage-toast.html"],
    },
    Rule {
        id: "PLAN-35",
        title: "a subquery in the SELECT list is run for each row",
        needs: NEEDS,
        limits: "20 % of the session time in a statement with subqueries among its columns that returns 100 rows and touches 2 blocks for each (ours)",
        judge: |case| judge(case, looked_up, "subqueries among the columns of statements"),
        links: &["https://www.postgresql.org/docs/current/sql-expressions.html#SQL-SYNTAX-SCALAR-SUBQUERIES"],
    },
    Rule {
        id: "PLAN-36",
        title: "different values are counted by sorting all of them",
        needs: NEEDS,
        limits: "20 % of the session time in a statement with count(DISTINCT) that touches 100 blocks; low where it writes no temporary files, and the sort \
            has less than 30 % of the plan's cost, or numbers of many groups are counted (ours)",
        judge: |case| judge(case, distinct, "statements with count(DISTINCT)"),
        links: &["https://www.postgresql.org/docs/current/functions-aggregate.html"],
    },
    Rule {
        id: "PLAN-51",
        title: "rows are counted only to learn whether there are any",
        needs: NEEDS,
        limits: "20 % of the session time in a statement whose only result compares count(*) with a constant, and which touches 100 blocks (ours)",
        judge: |case| judge(case, excess::existence, "counts that are compared with a constant"),
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html#FUNCTIONS-SUBQUERY-EXISTS"],
    },
    Rule {
        id: "PLAN-52",
        title: "DISTINCT removes the duplicates that a join has made",
        needs: NEEDS,
        limits: "20 % of the session time in a SELECT DISTINCT of two tables or more whose plan joins 1,000 rows, ten for each one that DISTINCT leaves (ours)",
        judge: |case| judge(case, excess::fanned, "SELECT DISTINCT over joins"),
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html#FUNCTIONS-SUBQUERY-EXISTS"],
    },
    Rule {
        id: "PLAN-63",
        title: "lists of one parent multiply each other in a join",
        needs: NEEDS,
        limits: "20 % of the session time in a SELECT that joins two tables to one column of a third and not to each other, 3 rows or more of \
            each by its plan, 100 or \
            more in all (ours)",
        judge: |case| judge(case, excess::multiplied, "tables that are joined to the same column"),
        links: &["https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-JOIN"],
    },
];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Executions a second of what may run now and then.
const CALLS_PER_S_MIN: f64 = 0.5;
/// Sessions that are in the statement at once, on average: one may be a batch that needs the result.
const SESSIONS_MIN: f64 = 1.3;
/// Rows for each of which a subquery runs.
const OUTER_ROWS_MIN: f64 = 100.0;
/// Blocks for each of them.
const BLOCKS_PER_OUTER_ROW_MIN: f64 = 2.0;
/// Temporary files of an execution that make it a matter of work_mem.
const SPILL_BYTES_MIN: f64 = 1e6;

/// A statement that takes much of the time of its node, with its form.
struct Seen<'a> {
    case: &'a Case,
    time: &'a NodeTime,
    statement: &'a StatementTime,
    shape: Shape,
    is_filtered: bool,
    /// Its first table, if statistics of it were recorded.
    table: Option<Thing<'a>>,
    tables: usize,
}

/// What a rule has to report of it.
struct Found {
    severity: Severity,
    /// The claim, behind the share of the session time.
    text: String,
    evidence: Vec<String>,
    /// Another cause that something recorded rules out.
    not: Option<String>,
    lacking: Option<String>,
    remedy: &'static str,
    commands: Vec<String>,
}

impl Seen<'_> {
    fn rows(&self) -> f64 {
        self.statement.rows.unwrap_or(0.0)
    }

    fn blocks(&self) -> f64 {
        self.statement.blocks.unwrap_or(0.0)
    }

    fn calls(&self) -> f64 {
        self.statement.calls_per_s.unwrap_or(0.0)
    }

    fn spills(&self) -> bool {
        self.statement.temp_bytes.is_some_and(|bytes| bytes >= SPILL_BYTES_MIN)
    }

    /// Schema and name of its first table; as it is written where no statistics of it were recorded.
    fn relation(&self) -> String {
        let written = || {
            let parsed = statement::parse(&self.statement.text).ok()?;
            parsed.tables.first().map(|table| statement::quoted(&table.name))
        };
        let recorded = self.table.as_ref().map(|table| table.lines.word("relation").to_string());
        recorded.or_else(written).unwrap_or_default()
    }

    fn live_rows(&self) -> Option<f64> {
        self.table.as_ref().and_then(|table| table.lines.last("live_rows"))
    }

    /// What the recording shows about an index that may be missing: that none is, or else what would show it.
    fn about_an_index(&self) -> (Option<String>, Option<String>) {
        if !self.is_filtered {
            return (Some("a missing index for a condition: the statement has none".to_string()), None);
        }
        let Some(planned) = super::plan::plan_of(self.case, self.time, self.statement) else {
            return (None, Some("the plan: whether a condition of the statement has no index".to_string()));
        };
        let scan = planned.nodes.iter().find(|node| {
            node.lines.word("kind").ends_with("Seq Scan") && !node.lines.word("filter").is_empty()
        });
        let by_index =
            planned.nodes.iter().map(|node| node.lines.word("index")).find(|name| !name.is_empty());
        match (scan, by_index) {
            (Some(scan), _) => (
                None,
                Some(format!(
                    "whether an index for the condition {} helps as well: the plan scans {} for it",
                    scan.lines.word("filter"),
                    scan.lines.word("relation")
                )),
            ),
            (None, Some(name)) => (
                Some(format!(
                    "a missing index for its condition: the plan uses index {name}, and scans no table for it"
                )),
                None,
            ),
            (None, None) => (None, None),
        }
    }

    fn found(&self, text: String, remedy: &'static str, commands: Vec<String>) -> Found {
        let (not, lacking) = self.about_an_index();
        let severity = severity(self.statement.share);
        Found { severity, text, evidence: vec![], not, lacking, remedy, commands }
    }
}

fn seen<'a>(case: &'a Case, time: &'a NodeTime, statement: &'a StatementTime) -> Option<Seen<'a>> {
    let parsed = statement::parse(&statement.text).ok().filter(|parsed| parsed.verb == Verb::Select)?;
    let shape = statement::shape(&statement.text).ok()?;
    let table = parsed.tables.first().and_then(|named| table_named(case, &time.node, statement, named));
    let (is_filtered, tables) = (parsed.is_filtered, parsed.tables.len());
    Some(Seen { case, time, statement, shape, is_filtered, table, tables })
}

fn judge(case: &Case, look: fn(&Seen<'_>) -> Option<Found>, looked_at: &str) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let Some(seen) = seen(case, time, statement) else { continue };
            let Some(found) = look(&seen) else { continue };
            let commands: Vec<&str> = found.commands.iter().map(String::as_str).collect();
            let share = units::percent(statement.share);
            let is_counted = statement.blocks.is_some();
            let (severity, level) = match is_counted {
                true => (found.severity, Level::DiscriminatingCounter),
                false => (found.severity.min(Severity::Medium), Level::CoOccurrence),
            };
            let mut claim = Claim::new(
                severity,
                level,
                format!("{}: {share} of the session time is {}", time.node, found.text),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", statement.share)
            .number("blocks_per_call", seen.blocks())
            .number("rows_per_call", seen.rows())
            .number("calls_per_s", seen.calls())
            .because(format!("the statement: {}", in_a_line(statement)));
            if is_counted {
                claim = claim.because(format!(
                    "an execution touches {} blocks to return {} rows, {} times a second",
                    units::short(seen.blocks()),
                    units::short(seen.rows()),
                    units::short(seen.calls())
                ));
            }
            for sentence in found.evidence {
                claim = claim.because(sentence);
            }
            claims.push(
                claim
                    .with(found.not, Claim::not)
                    .with(found.lacking, Claim::lacking)
                    .remedy(found.remedy, &commands),
            );
        }
    }
    Answer::of(claims, || looked_at.to_string())
}

/// Whether one of these rules explains what a statement reads, so that a missing index does not.
pub(super) fn is_explained(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    let Some(seen) = seen(case, time, statement).filter(|_| statement.share >= SHARE_MIN) else {
        return false;
    };
    [at_random, numbered, barrier::barrier, distinct, excess::existence, excess::fanned, excess::multiplied]
        .iter()
        .any(|look| look(&seen).is_some())
}

fn everything(seen: &Seen<'_>) -> Option<Found> {
    let shape = &seen.shape;
    let is_whole = shape.aggregates && !seen.is_filtered && seen.tables == 1 && shape.looked_up.is_empty();
    let is_small = seen.blocks() < BLOCKS_MIN || seen.rows() >= seen.blocks();
    let is_others = shape.counted_distinct.is_some() || shape.numbering.is_some() || seen.spills();
    // More blocks than rows: it reads what is dead, which vacuum would end.
    let is_bloat = seen.live_rows().is_some_and(|rows| rows < seen.blocks());
    if !is_whole || is_small || is_others || is_bloat || seen.calls() < CALLS_PER_S_MIN {
        return None;
    }
    let relation = seen.relation();
    if !shape.extremes.is_empty() {
        return Some(extreme(seen, &relation));
    }
    let what = if shape.counts_rows { "count(*) counts all rows" } else { "an aggregate reads all rows" };
    let text =
        format!("one statement in which {what} of {relation}, {} times a second", units::short(seen.calls()));
    let counts = format!(
        "SELECT reltuples::bigint AS about FROM pg_class WHERE oid = {}::regclass;",
        literal(&relation)
    );
    let stored = || {
        let text = statement::plannable(&seen.statement.text).ok().filter(|text| !text.contains('$'))?;
        Some(format!(
            "CREATE MATERIALIZED VIEW {} AS {text}; {AS_THE_APPLICATION}",
            named(&relation, "totals")
        ))
    };
    let refresh = format!(
        "REFRESH MATERIALIZED VIEW {}; -- once a minute, or as old as the figures may be",
        named(&relation, "totals")
    );
    let commands = match (shape.counts_rows, stored()) {
        (true, _) => vec![counts],
        (false, Some(create)) => vec![create, refresh],
        (false, None) => vec![explain_it(seen.case, &seen.time.node, seen.statement)],
    };
    let remedy = if shape.counts_rows {
        "show an estimate (the command), fetch one row more than a page to know whether there is a next one, or keep the number in a row that triggers or the \
         loader maintain; an index does not help, because each entry is counted as well"
    } else {
        "keep the result: a materialized view that is refreshed as often as its age matters, sums that are maintained by the writer, or a cache in front of \
         the server; an index does not help, because all rows are needed"
    };
    let mut found = seen.found(text, remedy, commands);
    // Of a client with parallel workers only the client counts.
    let clients = seen.calls() * seen.statement.mean_ms.unwrap_or(0.0) / 1e3;
    if seen.statement.sessions.min(clients) < SESSIONS_MIN {
        found.severity = Severity::Note;
        found
            .evidence
            .push("one session at a time runs it: that may be a batch which needs the result".to_string());
    }
    if let Some(table) = &seen.table {
        let fields = ["rows_inserted", "rows_updated", "rows_deleted"];
        let changed: f64 = fields.iter().filter_map(|field| table.lines.rate(field)).sum();
        let rows = seen.live_rows().unwrap_or(0.0);
        found.evidence.push(format!(
            "{relation} has {} rows, of which {} change a second",
            units::short(rows),
            units::short(changed)
        ));
    }
    Some(found)
}

/// The least and the greatest value of a column are the ends of an index on it: that all rows are read shows that there is none.
fn extreme(seen: &Seen<'_>, relation: &str) -> Found {
    let columns = seen.shape.extremes.iter().map(|column| statement::quoted(column)).collect::<Vec<_>>();
    let text = format!(
        "one statement that looks for the least or greatest {} in all rows of {relation}, {} times a second: no index is on it",
        columns.join(", "),
        units::short(seen.calls())
    );
    let mut commands: Vec<String> =
        columns.iter().map(|column| format!("CREATE INDEX CONCURRENTLY ON {relation} ({column});")).collect();
    commands.push(explain_it(seen.case, &seen.time.node, seen.statement));
    let remedy = "create an index on the column: its ends are the least and the greatest value, and one entry is read instead of the table (CONCURRENTLY does \
         not block writes, and must not run in a transaction); every index slows writes to its table";
    seen.found(text, remedy, commands)
}

/// A name for something beside a table, in its schema.
fn named(relation: &str, suffix: &str) -> String {
    match relation.strip_suffix('"') {
        Some(open) => format!("{open}_{suffix}\""),
        None => format!("{relation}_{suffix}"),
    }
}

/// Rows that are drawn for each one that is wanted.
const SAMPLED_TIMES: f64 = 20.0;

fn at_random(seen: &Seen<'_>) -> Option<Found> {
    if !seen.shape.is_in_random_order || seen.blocks() < BLOCKS_MIN {
        return None;
    }
    let relation = seen.relation();
    let text = format!(
        "one statement with ORDER BY random(): it sorts all rows of {relation} to return {}",
        units::short(seen.rows())
    );
    let wanted = seen.rows().max(1.0).ceil();
    let commands = vec![
        "CREATE EXTENSION tsm_system_rows;".to_string(),
        // Rows of one block belong together, and a condition leaves some out: so a few times as many are drawn.
        format!(
            "SELECT * FROM {relation} TABLESAMPLE SYSTEM_ROWS ({:.0}) ORDER BY random() LIMIT {wanted:.0}; -- with the statement's own WHERE; more rows where \
                it \
             leaves out most",
            wanted * SAMPLED_TIMES
        ),
    ];
    let remedy = "draw the row by a sample of blocks (the command), or draw a number between the least and the greatest key and take the next key: \
        WHERE id >= the number ORDER BY id LIMIT 1, which an index answers";
    Some(seen.found(text, remedy, commands))
}

fn numbered(seen: &Seen<'_>) -> Option<Found> {
    let function = seen.shape.numbering.as_ref()?;
    // A sort that does not fit into work_mem is another matter.
    if seen.blocks() < BLOCKS_MIN || seen.rows() >= seen.blocks() || seen.spills() {
        return None;
    }
    let planned = super::plan::plan_of(seen.case, seen.time, seen.statement);
    let filter = planned.as_ref().and_then(|planned| planned.filter_of("Subquery Scan"));
    if filter.is_some_and(|filter| !excess::takes_the_first(filter)) {
        return None;
    }
    let relation = seen.relation();
    let by = seen.shape.numbered_by.join(", ");
    let text = format!(
        "one statement that numbers all rows of {relation} by the window function {function}() to return {}",
        units::short(seen.rows())
    );
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_, ".contains(c);
    let index = (!by.is_empty() && by.chars().all(is_plain)).then(|| {
        format!("CREATE INDEX CONCURRENTLY ON {relation} ({by}); -- if there is none that begins so")
    });
    let first = seen
        .shape
        .numbered_by
        .first()
        .filter(|column| column.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    let rewritten =
        first.map(|column| format!("SELECT DISTINCT ON ({column}) * FROM {relation} ORDER BY {by}; -- with the conditions of the subquery"));
    let commands = index
        .into_iter()
        .chain(rewritten)
        .chain([explain_it(seen.case, &seen.time.node, seen.statement)])
        .collect();
    let remedy = "the window function must number every row before the first of each group is known. With a table of the groups, a LATERAL subquery with ORDER \
        BY and LIMIT 1 reads one index entry for each of them; DISTINCT ON sorts less; a column or table with the newest row, written with it, is read at once";
    let mut found = seen.found(text, remedy, commands);
    if excess::has_other_windows(seen) {
        found.severity = Severity::Low;
        found.lacking = Some(
            "whether fewer rows would do: other window functions of the statement compute over all of them"
                .to_string(),
        );
    }
    Some(found)
}

fn looked_up(seen: &Seen<'_>) -> Option<Found> {
    let inner = seen.shape.looked_up.first()?;
    let per_row = seen.blocks() / seen.rows().max(1.0);
    if seen.rows() < OUTER_ROWS_MIN || per_row < BLOCKS_PER_OUTER_ROW_MIN {
        return None;
    }
    let text = format!(
        "one statement with a subquery on {inner} in its SELECT list, which runs once for each of {} rows",
        units::short(seen.rows())
    );
    let named = TableName { schema: None, name: inner.clone(), alias: None };
    let scans = table_named(seen.case, &seen.time.node, seen.statement, &named).and_then(|table| {
        Some((table.lines.rate("index_scans").unwrap_or(0.0), table.lines.rate("seq_scans")?))
    });
    let remedy = "write it as a join with an aggregate, which reads the table once: LEFT JOIN (SELECT key, count(*) FROM ... GROUP BY key); for a \
        page of rows, apply LIMIT \
        in a subquery first";
    let mut found = seen.found(text, remedy, vec![explain_it(seen.case, &seen.time.node, seen.statement)]);
    (found.not, found.lacking) = (None, None);
    if let Some((by_index, whole)) = scans {
        let figures = format!(
            "{inner} has {} index scans and {} sequential scans a second",
            units::short(by_index),
            units::short(whole)
        );
        match whole < seen.calls() && by_index >= seen.calls() {
            true => found.not = Some(format!("a missing index for the subquery: {figures}")),
            false => {
                found.lacking =
                    Some("whether an index on the column that the subquery compares would do".to_string());
                found.evidence.push(figures);
            }
        }
    }
    Some(found)
}

fn distinct(seen: &Seen<'_>) -> Option<Found> {
    let counted = seen.shape.counted_distinct.as_ref()?;
    if seen.blocks() < BLOCKS_MIN || excess::multiplied(seen).is_some() {
        return None;
    }
    let relation = seen.relation();
    let text = format!(
        "one statement with count(DISTINCT {counted}): each execution sorts all these values of {relation}"
    );
    let is_simple = seen.tables == 1 && !seen.is_filtered && !seen.shape.counts_rows;
    let is_plain = counted.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let hashed = format!(
        "SELECT count({counted}) FROM (SELECT DISTINCT {counted} FROM {relation}) d; -- the same (NULL is not counted) by a hash table, in parallel if it pays"
    );
    let commands = match is_simple && is_plain {
        true => vec![hashed],
        false => vec![explain_it(seen.case, &seen.time.node, seen.statement)],
    };
    let remedy = "count the values of a subquery with DISTINCT, which can be hashed (count(column), as count(*) would count \
        NULL, too); keep the numbers of closed days in a table, and count the present \
        day alone; or estimate \
        them (extension hll)";
    let mut found = seen.found(text, remedy, commands);
    if let Some(lack) = excess::sorts_cheaply(seen, counted) {
        found.severity = Severity::Low;
        found.lacking = Some(lack);
    }
    if seen.spills() {
        let bytes = seen.statement.temp_bytes.unwrap_or(0.0);
        found
            .evidence
            .push(format!("its sort writes {} of temporary files per execution", units::bytes(bytes)));
    }
    Some(found)
}
