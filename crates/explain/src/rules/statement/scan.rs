//! PLAN-01: statements that scan a table for a few of its rows.

mod ordered;
mod whole;

use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{
    busy, in_a_line, lowered, names_table, names_whole, parts_of, plain, scanned, severity, wasteful,
};
use crate::rules::paste::{AS_THE_APPLICATION, literal};
use crate::rules::plan::Wanted;
use crate::rules::{inspect, plan};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Condition, Verb};
use record::watched::{FUNCTION_TEXT, Fact};

pub(crate) use whole::WHOLE_FUNCTION;

/// Characters of a statement that is offered for pasting; what is cut ends with an ellipsis, and is not offered.
const PASTED_CHARS_MAX: usize = 2_000;
/// `EXPLAIN (GENERIC_PLAN)`.
const GENERIC_PLAN_SINCE: u32 = 160_000;
/// Where the table comes from that is scanned.
const NOT_NAMED: &str =
    "the statement does not name this table: a function, trigger, view or foreign key reads it";
/// Characters of a function's name, and of its text.
const NAME_CHARS: usize = 80;
const TEXT_CHARS: usize = 300;
/// Bytes that it spills per execution, from which on reading is not most of its time.
const SPILL_BYTES_MIN: f64 = 1e6;

/// What shows its plan without running it; the text has parameters, which need PostgreSQL 16.
pub(in crate::rules) fn explain_it(case: &Case, node: &str, statement: &StatementTime) -> String {
    let version = case.facts("server").find(|fact| fact.name == "version_num" && fact.node == node);
    let version = version.and_then(|fact| fact.value.parse::<u32>().ok());
    if version.is_some_and(|version| version < GENERIC_PLAN_SINCE) {
        return look_it_up(statement);
    }
    explain_generic(statement)
}

/// Its whole text, by its id. What has not ended is in no statistics, and what has no id is known by its text alone.
fn look_it_up(statement: &StatementTime) -> String {
    let has_id = statement.query_id.parse::<i64>().is_ok();
    if !has_id || !statement.is_counted {
        return NOW_AT_WORK.to_string();
    }
    format!("SELECT query FROM pg_stat_statements WHERE queryid = {};", statement.query_id)
}

fn explain_generic(statement: &StatementTime) -> String {
    match statement::plannable(&statement.text) {
        Ok(text) if text.is_ascii() && text.len() <= PASTED_CHARS_MAX => {
            format!("EXPLAIN (GENERIC_PLAN) {text}; {AS_THE_APPLICATION}")
        }
        _ => look_it_up(statement),
    }
}

/// The statements at work.
const NOW_AT_WORK: &str = "SELECT pid, application_name, now() - query_start AS runs, query FROM pg_stat_activity WHERE state = 'active' AND pid <> \
    pg_backend_pid() ORDER BY query_start LIMIT 5;";

/// Blocks that a scan reads for each row that it finds.
const EMPTY_BLOCKS_PER_ROW: f64 = 8.0;
/// Of the time of a statement, that of its compilation.
const COMPILED_MAX: f64 = 0.6;
/// Rows that an execution returns, of those that a scan reads.
const WANTED_SHARE_MAX: f64 = 0.5;
/// The same for one that writes them, which costs far more than to read the others.
const WRITTEN_SHARE_MAX: f64 = 0.1;

/// Whether the time of a statement goes to something else than what an index would leave out of a scan of so many rows.
fn is_of_others(statement: &StatementTime, each: f64) -> bool {
    // It returns most of what it reads there: the scan is right, and the blocks are touched for something else.
    let writes = statement::parse(&statement.text)
        .is_ok_and(|parsed| matches!(parsed.verb, Verb::Update | Verb::Delete | Verb::Merge));
    let wanted = if writes { WRITTEN_SHARE_MAX } else { WANTED_SHARE_MAX };
    // Most of its time is compilation (PLAN-03).
    let compiled = statement.jit_ms.unwrap_or(0.0) / statement.mean_ms.unwrap_or(0.0).max(f64::MIN_POSITIVE);
    // What such a function reads, no index of the statement's conditions shortens (SES-11).
    let inspects = inspect::reader(&statement.text).is_some();
    statement.rows.is_some_and(|rows| rows >= each * wanted) || compiled >= COMPILED_MAX || inspects
}

/// Whether a trigger or a function scans the table whose own statement is known: that one has the finding.
fn is_of_another(time: &NodeTime, statement: &StatementTime, relation: &str) -> bool {
    time.statements.iter().any(|other| {
        other.query_id != statement.query_id && names_table(other, relation) && wasteful(other).is_some()
    })
}

/// Whether all rows are sorted by a random number (PLAN-30): no index of a condition helps.
fn sorts_at_random(statement: &StatementTime) -> bool {
    lowered(&statement.text).contains("order by random()")
}

/// The column whose lists a condition searches: `value = ANY (column)`.
fn searched_list(text: &str) -> Option<String> {
    let text = lowered(text).replace("any (", "any(");
    let (_, rest) = text.split_once("= any(")?;
    let (name, _) = rest.split_once(')')?;
    let name = name.trim();
    let column = name.rsplit('.').next().unwrap_or(name);
    (record::statement::is_name(column) && !column.starts_with('$')).then(|| column.to_string())
}

/// A statement that scans a table for few of its rows, with its plan; `None` if an index would not help, or another rule explains it.
fn seen<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &'a StatementTime,
) -> Option<(Scan<'a>, Option<plan::Planned<'a>>)> {
    let (calls, blocks) = wasteful(statement)?;
    let (table, each, scans) = scanned(case, &time.node, statement)?;
    let relation = table.lines.word("relation");
    // Where a row is found in every eighth block or less, the table is mostly empty (VAC-08), or the blocks are those of another one.
    if is_of_others(statement, each) || blocks >= each * EMPTY_BLOCKS_PER_ROW {
        return None;
    }
    let is_named = names_table(statement, relation) || names_whole(statement, &table);
    if !is_named && is_of_another(time, statement, relation) {
        return None;
    }
    let planned = plan::plan_of(case, time, statement);
    let wanted = wanted(statement, &table, planned.as_ref());
    let is_explained = sorts_at_random(statement)
        || planned
            .as_ref()
            .is_some_and(|planned| plan::is_explained(case, planned) || plan::needs_all(planned, relation));
    if is_explained || wanted == Wanted::Many {
        return None;
    }
    let is_unknown = wanted == Wanted::Unknown;
    Some((Scan { time, statement, table, each, scans, blocks, calls, is_named, is_unknown }, planned))
}

/// Whether PLAN-01 has a finding about the statement.
pub(in crate::rules) fn is_scanned(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    seen(case, time, statement).is_some()
}

pub(super) fn scan(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            if let Some((scan, planned)) = seen(case, time, statement) {
                claims.push(claim(case, &scan, planned.as_ref()));
            }
        }
    }
    Answer::of(claims, || "statements that take the time, and sequential scans of tables".to_string())
}

/// The claim about a scan, with the index that it lacks as far as that is known.
fn claim(case: &Case, scan: &Scan<'_>, planned: Option<&plan::Planned<'_>>) -> Claim {
    let (statement, relation) = (scan.statement, scan.relation());
    if let Some(function) = planned.and_then(|planned| whole::of_outer(case, scan, planned)) {
        return whole::claim(case, scan, function);
    }
    let proposal = planned.and_then(|planned| plan::proposal(case, planned));
    if let Some(gone) = come_and_gone(case, relation, &compared(statement, relation, proposal.as_ref())) {
        return with_index_away(case, scan, gone);
    }
    let pattern = || pattern(case, scan.time, statement, relation, planned).filter(|_| scan.is_named);
    if let Some(proposal) = proposal {
        let is_by_value = planned.is_some_and(|planned| is_compared(planned, &proposal));
        if let Some(advice) = pattern().filter(|_| !is_by_value) {
            return with_advice(scan, advice);
        }
        let columns = (proposal.relation == relation).then(|| proposal.columns.join(" or "));
        let lack = columns.map(|columns| format!("no index begins with {columns}"));
        return plan::with_proposal(scan.claim(lack), &proposal);
    }
    if let Some(advice) = pattern() {
        return with_advice(scan, advice);
    }
    if planned.is_some_and(|planned| is_alternative(planned, relation)) {
        return with_union(case, scan);
    }
    if let Some(order) = planned.and_then(|planned| ordered::of_plan(case, planned, relation)) {
        return ordered::with_order(scan, &order);
    }
    if let Some(function) = reading_function(case, scan) {
        return with_function(case, scan, function);
    }
    match planned.and_then(|planned| plan::why_unserved(case, planned)) {
        Some(reason) => with_reason(case, scan, reason),
        None => look_for_it(case, scan, planned),
    }
}

/// The reason that the parts of the condition in the plan have.
fn with_reason(case: &Case, scan: &Scan<'_>, reason: plan::Reason) -> Claim {
    let explain = explain_it(case, &scan.time.node, scan.statement);
    let commands: Vec<&str> = reason.commands.iter().map(String::as_str).chain([explain.as_str()]).collect();
    scan.claim(Some(reason.words)).remedy(reason.remedy, &commands)
}

/// Columns of a table that a statement compares: by its text, and by the index that its plan lacks.
fn compared(statement: &StatementTime, relation: &str, proposal: Option<&plan::Proposal>) -> Vec<String> {
    let by_text = conditions_on(statement, relation).into_iter().map(|condition| condition.column);
    let proposed =
        proposal.filter(|one| one.relation == relation).into_iter().flat_map(|one| one.columns.clone());
    by_text.chain(proposed).collect()
}

/// That an index of a table which begins with one of these columns is dropped and made again by statements of the recording.
fn come_and_gone(case: &Case, relation: &str, compared: &[String]) -> Option<String> {
    let texts = || case.events_of(record::event::QUERY).map(|event| lowered(Case::word_of(event, "text")));
    let made = texts().filter_map(|text| {
        let (name, column) = made_index(&text, relation)?;
        compared.iter().any(|one| *one == column).then(|| name.to_string())
    });
    let gone = |name: &String| {
        texts().any(|text| text.starts_with("drop index") && statement::names(&text).contains(name))
    };
    let name = made.into_iter().find(gone)?;
    Some(format!(
        "no index fits while its index {} is away, which is dropped and created again by statements of this time (DROP INDEX, CREATE INDEX)",
        plain(&name, NAME_CHARS)
    ))
}

/// An index that a loader drops and makes again.
fn with_index_away(case: &Case, scan: &Scan<'_>, gone: String) -> Claim {
    scan.claim(Some(gone))
        .lacking("for how long the index is away: log_statement = ddl shows it in the server's log")
        .remedy(
            "load with the index in place: for portions of a table that is in use it costs less than to build it anew each time; or load into a table of its \
             own, index that, and attach it as a partition; where it must be replaced, CREATE INDEX CONCURRENTLY first and DROP INDEX CONCURRENTLY then",
            &[
                "SELECT application_name, usename, client_addr, left(query, 60) AS query FROM pg_stat_activity WHERE query ~* '(create|drop) +(unique \
                    +)?index';",
                &explain_it(case, &scan.time.node, scan.statement),
            ],
        )
}

/// The name of the index in the text of a command that makes one on this table, in lower case, and its first column.
fn made_index<'t>(text: &'t str, relation: &str) -> Option<(&'t str, &'t str)> {
    let rest = text.strip_prefix("create ")?;
    let rest = rest.strip_prefix("unique ").unwrap_or(rest).strip_prefix("index ")?;
    let rest = rest.strip_prefix("concurrently ").unwrap_or(rest);
    let rest = rest.strip_prefix("if not exists ").unwrap_or(rest);
    let (name, rest) = rest.split_once(" on ")?;
    let on = rest.strip_prefix("only ").unwrap_or(rest).split([' ', '(']).next()?;
    let ((schema, table), (written, named)) = (parts_of(relation), parts_of(on));
    let is_it = named == table && (written.is_empty() || written == schema) && !name.contains(' ');
    let column = rest.split_once('(')?.1.split([',', ')', ' ']).next()?.trim_matches('"');
    is_it.then_some((name, column))
}

/// The index for a search by a pattern: by the plan, else by the text.
fn pattern(
    case: &Case,
    time: &NodeTime,
    statement: &StatementTime,
    relation: &str,
    planned: Option<&plan::Planned<'_>>,
) -> Option<plan::Advice> {
    // A plan for any parameters may walk an index in its order where the executions scan: then the text decides as well.
    planned.and_then(|planned| plan::pattern_of(case, planned)).or_else(|| {
        plan::pattern_of_text(case, &time.node, statement, relation, &conditions_on(statement, relation))
    })
}

/// A function that the statement calls and whose text names the table.
fn reading_function<'a>(case: &'a Case, scan: &Scan<'_>) -> Option<&'a Fact> {
    if scan.is_named {
        return None;
    }
    let bare = scan.relation().rsplit('.').next().unwrap_or_default().trim_matches('"');
    let called = statement::names(&scan.statement.text);
    let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == scan.time.node);
    functions.find(|fact| {
        called.contains(&fact.name) && statement::names(&fact.value).iter().any(|name| name == bare)
    })
}

/// The work is inside of a function that runs for each row.
fn with_function(case: &Case, scan: &Scan<'_>, function: &Fact) -> Claim {
    let name = plain(&function.name, NAME_CHARS);
    let each = scan.scans / scan.calls.max(f64::MIN_POSITIVE);
    if each <= whole::ONCE_MAX {
        return whole::claim(case, scan, function);
    }
    let lack = format!(
        "function {name}() reads it, which the statement calls for its rows: {} scans for each execution",
        units::short(each)
    );
    scan.claim(Some(lack))
        .because(format!("the function: {}", plain(&function.value, TEXT_CHARS)))
        .lacking("the plan inside of the function: auto_explain.log_nested_statements shows it")
        .remedy(
            "write what the function computes as a join, or as a table that is computed once (a calendar, for instance), so that it is not called for each \
                row; an index for its condition makes each call cheaper",
            &[
                &format!("SELECT oid::regprocedure, prosrc FROM pg_proc WHERE proname = {};", literal(&function.name)),
                &explain_it(case, &scan.time.node, scan.statement),
            ],
        )
}

/// An index for a pattern, and what is known about it.
fn with_advice(scan: &Scan<'_>, advice: plan::Advice) -> Claim {
    let analyze = format!("ANALYZE {};", scan.relation());
    let commands: Vec<&str> = advice.commands.iter().map(String::as_str).chain([analyze.as_str()]).collect();
    scan.claim(advice.obstacle)
        .because(advice.evidence)
        .with(advice.lacking, Claim::lacking)
        .remedy(advice.text, &commands)
}

/// Conditions of a statement that an index of this table can serve, by its text: those that name the table, or all if it is the only one.
pub(in crate::rules) fn conditions_on(statement: &StatementTime, relation: &str) -> Vec<Condition> {
    let Ok(parsed) = statement::parse(&statement.text) else { return vec![] };
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
    let own: Vec<_> = parsed.tables.iter().filter(|table| table.name == name).collect();
    let is_only = parsed.tables.len() == 1;
    let is_its = |condition: &&Condition| match &condition.table {
        Some(written) => own.iter().any(|table| table.alias.as_ref().unwrap_or(&table.name) == written),
        None => is_only,
    };
    if own.len() == 1 { parsed.conditions.iter().filter(is_its).cloned().collect() } else { vec![] }
}

/// The index for the conditions in the text, and what it would take; `None` if the text does not show its columns.
fn index_by_text(statement: &StatementTime, table: &Thing<'_>) -> Option<(String, f64)> {
    let relation = table.lines.word("relation");
    let columns = statement::index_columns(&conditions_on(statement, relation));
    let rows = table.lines.last("live_rows").unwrap_or(0.0);
    // A name that the server would have to quote is not split again here.
    let is_plain = relation.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c));
    let is_partition = !table.lines.word("partition_of").is_empty();
    let command = statement::index_command(relation, &columns, true);
    (!columns.is_empty() && is_plain && !is_partition).then_some((command, rows * plan::BYTES_PER_ENTRY))
}

/// An index of a table that begins with one of the columns that a statement compares, by its text, and that column.
fn index_there<'a>(statement: &StatementTime, table: &Thing<'a>) -> Option<(&'a str, String)> {
    let wanted = statement::index_columns(&conditions_on(statement, table.lines.word("relation")));
    table.lines.word("index_columns").split("; ").find_map(|index| {
        let (name, columns) = index.split_once('(')?;
        let first = columns.trim_end_matches(')').split(", ").next()?.trim_matches('"');
        wanted.iter().any(|column| column == first).then(|| (name, first.to_string()))
    })
}

/// A statement with the table that it scans.
struct Scan<'a> {
    time: &'a NodeTime,
    statement: &'a StatementTime,
    table: Thing<'a>,
    /// Rows of a scan.
    each: f64,
    /// Scans a second.
    scans: f64,
    /// Blocks of an execution.
    blocks: f64,
    /// Executions a second.
    calls: f64,
    /// Whether its text names the table.
    is_named: bool,
    /// Whether an aggregate takes the rows that fit, so that how many these are is not known.
    is_unknown: bool,
}

/// How many of the table's rows a statement needs: by its plan, else by its text.
fn wanted(statement: &StatementTime, table: &Thing<'_>, planned: Option<&plan::Planned<'_>>) -> Wanted {
    // A statement names the whole of which the table is a partition.
    let names = ["relation", "partition_of"].map(|field| table.lines.word(field));
    let conditions: Vec<Condition> = names
        .iter()
        .filter(|name| !name.is_empty())
        .flat_map(|name| conditions_on(statement, name))
        .collect();
    match planned.map_or(Wanted::Few, |planned| plan::wanted(planned, names[0])) {
        // A plan that reads the table by an index has no share of the rows that a scan keeps.
        Wanted::Few if plan::is_unknown_by_text(&statement.text, &conditions) => Wanted::Unknown,
        by_plan => by_plan,
    }
}

/// By how much the rows of an execution are above those of the table, which grows and is counted at times, so that there are several scans.
const MORE_THAN_ALL: f64 = 1.2;

/// Rows of a scan on average, as the server counts them: never more than the table has.
fn rows_of_scan(table: &Thing<'_>) -> f64 {
    let (scans, rows) = (table.lines.sum("seq_scans"), table.lines.sum("seq_rows"));
    rows.unwrap_or(0.0) / scans.unwrap_or(0.0).max(1.0)
}

impl Scan<'_> {
    fn relation(&self) -> &str {
        self.table.lines.word("relation")
    }

    /// In how many scans an execution reads more rows than the table has.
    fn in_scans(&self) -> String {
        let has = self.table.lines.max("live_rows").unwrap_or(f64::MAX);
        let of_scan = rows_of_scan(&self.table).max(f64::MIN_POSITIVE);
        if self.each <= has * MORE_THAN_ALL {
            return String::new();
        }
        format!(" in {} scans", units::short(self.each / of_scan))
    }

    /// What is known without its plan, and which index is missing.
    fn claim(&self, lack: Option<String>) -> Claim {
        let (time, statement, relation) = (self.time, self.statement, self.relation());
        // What it reads is then not most of its time.
        let spills = statement.temp_bytes.is_some_and(|bytes| bytes >= SPILL_BYTES_MIN);
        Claim::new(
            match self.is_unknown {
                true => Severity::Low,
                false if spills => Severity::Medium,
                false => severity(statement.share),
            },
            Level::DiscriminatingCounter,
            format!(
                "{}: {} of the session time is one statement that reads {} rows of {relation}{} {}, {} times a second{}",
                time.node,
                units::percent(statement.share),
                units::short(self.each),
                self.in_scans(),
                match self.is_unknown {
                    true => "for an aggregate over those that fit".to_string(),
                    false => format!("to return {}", units::short(statement.rows.unwrap_or(0.0))),
                },
                units::short(self.calls),
                lack.map_or(String::new(), |lack| format!(": {lack}"))
            ),
        )
        .on_node(&time.node)
        .during([self.table.lines.ticks.window()])
        .number("share", statement.share)
        .number("rows_per_scan", self.each)
        .number("blocks_per_call", self.blocks)
        .number("calls_per_s", self.calls)
        .because(format!("the statement: {}", in_a_line(statement)))
        .because(format!(
            "{} sequential scans a second of {relation}, {} rows each (each process of a parallel scan counts one); it touches {} blocks per execution",
            units::short(self.scans),
            units::short(rows_of_scan(&self.table)),
            units::short(self.blocks)
        ))
        .with((!self.is_named).then_some(NOT_NAMED), Claim::because)
        .with(self.is_unknown.then_some(plan::HOW_MANY_FIT), |claim, lack| {
            claim.lacking(lack).number(plan::UNSURE, 1.0)
        })
        .not("a table too small for an index: a scan reads 1,000 rows or more")
    }
}

/// Whether a column of a proposed index is compared with one value: an index for a range alone is worth less than one for the pattern beside it.
fn is_compared(planned: &plan::Planned<'_>, proposal: &plan::Proposal) -> bool {
    planned.nodes.iter().any(|node| {
        let conditions = statement::conditions(node.lines.word("filter")).unwrap_or_default();
        conditions.iter().any(|condition| {
            condition.how == statement::Use::Equality && proposal.columns.contains(&condition.column)
        })
    })
}

/// Whether a scan fits rows by OR of a condition and a subquery: no index serves both sides at once.
fn is_alternative(planned: &plan::Planned<'_>, relation: &str) -> bool {
    planned.nodes.iter().any(|node| {
        let filter = node.lines.word("filter");
        node.lines.word("relation") == relation && filter.contains(" OR ") && filter.contains("SubPlan")
    })
}

fn with_union(case: &Case, scan: &Scan<'_>) -> Claim {
    let lack = "its condition is an OR with a subquery, for which no index can be used".to_string();
    scan.claim(Some(lack))
        .because("an OR of a column and IN (SELECT ...), or EXISTS, is decided row by row: each side alone could use an index")
        .remedy(
            "write a UNION of two statements, one for each side: each reads its rows by its index, and UNION removes those that both have",
            &[&explain_it(case, &scan.time.node, scan.statement)],
        )
}

/// What to do where the plan, if there is one, does not show which index is missing.
fn look_for_it(case: &Case, scan: &Scan<'_>, planned: Option<&plan::Planned<'_>>) -> Claim {
    let Scan { time, statement, table, .. } = scan;
    let look = explain_it(case, &time.node, statement);
    let by_function = ordered::by_function(scan);
    let computed = computed_by_text(scan).or_else(|| by_function.as_deref().map(ordered::by_text));
    let is_in_doubt = planned.is_some_and(|planned| plan::is_in_doubt(planned, scan.relation()));
    let claim = scan
        .claim(computed)
        .lacking(match planned {
            Some(_) => "the plan for real values: the recorded one is for unknown values, and shows no scan of this table that an index would shorten",
            None => "the plan: whether a condition of the statement has no index, or one that it cannot use",
        })
        .with(is_in_doubt.then_some(1.0), |claim, one| claim.at_most(Severity::Low).number(plan::UNSURE, one));
    if by_function.is_some() {
        return claim.remedy(ordered::IS_COMPUTED, &[&look]);
    }
    let Some((command, bytes)) = index_by_text(statement, table) else {
        if let Some(advice) = without_index(scan) {
            return claim.remedy(advice, &[&look]);
        }
        return claim.remedy(
            "look for the sequential scan in its plan (GENERIC_PLAN from PostgreSQL 16 on; as the role that runs it, because \
             planning evaluates functions), and give the columns of its condition an index (CREATE INDEX CONCURRENTLY does not block writes)",
            &[&look],
        );
    };
    let relation = scan.relation();
    let writes: f64 =
        ["rows_inserted", "rows_updated"].iter().filter_map(|field| table.lines.rate(field)).sum();
    let known = format!(
        "SELECT indexdef FROM pg_indexes WHERE format('%s.%s', schemaname, tablename) = {}; -- is there one already that begins with these columns?",
        literal(relation)
    );
    let there = index_there(statement, table);
    if let Some((index, column)) = there.as_ref().filter(|(index, _)| is_broken(case, table, index)) {
        return of_broken(scan, index, column);
    }
    if let Some((index, column)) = there {
        return claim.because(format!("index {} begins with {}", plain(index, NAME_CHARS), plain(&column, NAME_CHARS))).remedy(
            "an index for its condition is there, so look in its plan for what keeps it from being used: a function that is VOLATILE, or one of the column, a \
             value of another type, OR with another table's column, a setting of the planner, or another table of the join that is read first",
            &[&look, &known],
        );
    }
    claim.number("index_bytes", bytes).remedy(
        format!(
            "look at its plan and the indexes that are there; then create one for the columns of its condition, by its text: about {}, written by each of \
             the {} rows a second that are inserted or updated; CONCURRENTLY does not block writes, and must not run in a transaction",
            units::bytes(bytes),
            units::short(writes)
        ),
        &[&look, &known, &command, &format!("ANALYZE {relation};")],
    )
}

/// Columns that each row has by itself, and that no index can have.
const SYSTEM_COLUMNS: [&str; 6] = ["xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"];

/// What to do where no index can serve the condition: it compares a system column, by the text.
fn without_index(scan: &Scan<'_>) -> Option<&'static str> {
    let is_system = |one: &Condition| SYSTEM_COLUMNS.contains(&one.column.as_str());
    let is_its = scan.is_named && conditions_on(scan.statement, scan.relation()).iter().any(is_system);
    is_its.then_some(
        "no index can be created on a system column: let each row have the time or the number of its last change in a column of its own with an index (a \
            trigger \
         sets it), and read what is newer; or follow changes by logical decoding",
    )
}

/// Whether an index is not valid, and nothing creates one on its table now.
fn is_broken(case: &Case, table: &Thing<'_>, index: &str) -> bool {
    let is_created = case.at("progress", table.place).any(|progress| {
        let lines = progress.lines;
        lines.word("command") == "create_index" && lines.word("relation") == table.lines.word("relation")
    });
    !is_created && table.lines.word("invalid_indexes").split("; ").any(|name| name == index)
}

/// The index that would serve the condition is not valid.
fn of_broken(scan: &Scan<'_>, index: &str, column: &str) -> Claim {
    let schema = statement::schema_of(scan.relation());
    let command = format!("REINDEX INDEX CONCURRENTLY {schema}.{};", statement::quoted(index));
    let why = format!(
        "index {} on {} is not used, because it is invalid: its CREATE INDEX CONCURRENTLY failed",
        plain(index, NAME_CHARS),
        plain(column, NAME_CHARS)
    );
    scan.claim(Some(why)).remedy(
        "create it anew; it takes the space of both until it is done, and does not block writes. A unique index fails again while values are there twice",
        &[&command, "SELECT indexrelid::regclass, indrelid::regclass FROM pg_index WHERE NOT indisvalid; -- all others"],
    )
}

/// What the condition computes from a column of the table, by the text, where nothing of it is compared as it is.
fn computed_by_text(scan: &Scan<'_>) -> Option<String> {
    if let Some(column) = searched_list(&scan.statement.text).filter(|_| scan.is_named) {
        return Some(format!(
            "its condition looks a value up in the lists of {column} by = ANY, which no index serves: {column} @> ARRAY[value] is served by a GIN index"
        ));
    }
    let conditions = conditions_on(scan.statement, scan.relation());
    let is_plain = conditions.iter().any(|one| one.inside.is_none() && one.how.is_compared());
    let found = conditions.iter().find(|one| one.inside.is_some()).filter(|_| scan.is_named && !is_plain)?;
    let inside = found.inside.as_deref().unwrap_or_default();
    Some(format!(
        "its condition compares what {inside} makes of {}, which no index on the column itself serves",
        plain(&found.column, NAME_CHARS)
    ))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
