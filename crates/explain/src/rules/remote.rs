//! EXT-06: statements that wait for a foreign server, by their plans: a condition that is checked here, one that the other server is slow with, or many rows
//! that fit what is sent and are not wanted.

use super::costly::{CLOCKS, closing, in_a_line, in_extension, plain, severity};
use super::paste::literal;
use super::plan::{self, Planned};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity, StatementTime};
use record::statement::{self, Condition};
use record::watched::FUNCTION_TEXT;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "EXT-06",
    title: "a condition on a foreign table is not sent, or the other server is slow with it, or sends many rows for few",
    needs: &[Field("plan", "cost_total"), Field("server", "sessions_active")],
    limits: "15 % of the session time in a statement whose sessions wait in an extension for a fifth of it, and that fetches a foreign table without a \
        condition and checks one here, and returns fewer than 1,000 rows; or sends it, takes 5 ms, and waits for half of them; or sends it and fetches \
        1,000 rows, 20 for each one that it returns (ours)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/postgres-fdw.html#POSTGRES-FDW-REMOTE-QUERY-OPTIMIZATION",
    ],
}];

/// The share of the session time.
const SHARE_MIN: f64 = 0.15;
/// Of a statement's samples, those in waits for the other server: where it sends all rows, and where it looks for them.
const WAITS_FETCHING: f64 = 0.2;
const WAITS_SLOW: f64 = 0.5;
/// Rows of an execution: more are what the statement is for.
const ROWS_MAX: f64 = 1_000.0;
/// Rows that the other server sends for an execution, and for each that is returned, from which on it is these that take the time.
const SENT_MIN: f64 = 1_000.0;
const SENT_PER_ROW_MIN: f64 = 20.0;
/// A round trip takes less.
const SLOW_MS: f64 = 5.0;
/// Characters of what is sent.
const REMOTE_CHARS: usize = 200;
/// Characters of a condition.
const CONDITION_CHARS: usize = 120;

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in plan::planned(case, SHARE_MIN) {
        let waits = in_extension(planned.statement);
        if waits < WAITS_FETCHING || planned.statement.rows.is_some_and(|rows| rows >= ROWS_MAX) {
            continue;
        }
        // Of several, the plan alone does not show which one takes the time.
        let [scan] = scans(&planned)[..] else { continue };
        let sends = sends_condition(&scan);
        let filter = scan.lines.word("filter");
        claims.extend(match (filter.is_empty(), sends) {
            (false, Some(false)) => fetched(case, &planned, &scan, waits).or_else(|| {
                slow(case, &planned, &scan, waits).filter(|_| is_sent_later(case, &planned, &scan))
            }),
            (_, Some(true)) if let Some(sent) = sent_for_few(case, &planned, &scan) => {
                Some(many(&planned, case, &scan, (waits, sent)))
            }
            (true, Some(true)) => slow(case, &planned, &scan, waits),
            _ => None,
        });
    }
    Answer::of(claims, || "plans of statements that wait for foreign servers".to_string())
}

/// Scans of foreign tables in a plan.
pub(super) fn scans<'a>(planned: &Planned<'a>) -> Vec<Thing<'a>> {
    planned.nodes.iter().filter(|node| is_scan(node)).copied().collect()
}

/// Whether what is sent for a scan has a condition; `None` if it cannot be read.
pub(super) fn sends_condition(scan: &Thing<'_>) -> Option<bool> {
    statement::parse(scan.lines.word("remote")).ok().map(|parsed| parsed.is_filtered)
}

/// Whether a statement is one that reads a cursor of postgres_fdw, which it names `c1`, `c2` and so on.
pub(super) fn is_fetch(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(str::to_ascii_uppercase).collect();
    let is_cursor = |name: &String| {
        name.strip_prefix('C')
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
    };
    matches!(words.as_slice(), [fetch, _, from, name] if fetch == "FETCH" && from == "FROM" && is_cursor(name))
}

/// Rows of a statement a second.
pub(super) fn rows_per_s(statement: &StatementTime) -> Option<f64> {
    Some(statement.calls_per_s? * statement.rows?)
}

/// Rows a second that servers send to cursors of postgres_fdw, as far as the sending ones are watched.
pub(super) fn fetched_per_s(case: &Case) -> f64 {
    let all = node_time::all(case).iter().flat_map(|time| &time.statements);
    all.filter(|one| is_fetch(&one.text)).filter_map(rows_per_s).sum()
}

/// Rows that are sent for an execution.
#[derive(Clone, Copy)]
enum Sent {
    /// To cursors of a server that is watched.
    Counted(f64),
    /// By the plan.
    Planned(f64),
}

impl Sent {
    fn rows(self) -> f64 {
        match self {
            Sent::Counted(rows) | Sent::Planned(rows) => rows,
        }
    }
}

/// Rows that are sent for an execution, if these are many for those that it returns.
fn sent_for_few(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>) -> Option<Sent> {
    let one = planned.statement;
    // Cursors have no name of the statement that opened them: they are its own if no other one waits.
    let is_other =
        |other: &StatementTime| other.query_id != one.query_id && in_extension(other) >= WAITS_FETCHING;
    let is_alone = !planned.time.statements.iter().any(is_other);
    let fetched = if is_alone { fetched_per_s(case) } else { 0.0 };
    let sent = match fetched / one.calls_per_s.filter(|calls| *calls > 0.0)? {
        rows if rows > 0.0 => Sent::Counted(rows),
        _ => Sent::Planned(scan.lines.last("rows_planned").unwrap_or(0.0)),
    };
    let is_for_few = sent.rows() >= one.rows.unwrap_or(f64::MAX) * SENT_PER_ROW_MIN;
    (sent.rows() >= SENT_MIN && is_for_few).then_some(sent)
}

/// A scan of one foreign table, with what is sent for it.
fn is_scan(node: &Thing<'_>) -> bool {
    node.lines.word("kind") == "Foreign Scan"
        && !node.lines.word("remote").is_empty()
        && !node.lines.word("relation").is_empty()
}

/// The server of a scan, in words.
fn server(scan: &Thing<'_>) -> String {
    match scan.lines.word("foreign_server") {
        "" => "the foreign server".to_string(),
        name => format!("server {}", plain(name, CONDITION_CHARS)),
    }
}

/// Functions that a condition calls, as it names them, each with its arguments.
fn calls(condition: &str) -> Vec<(&str, &str)> {
    let is_of_name = |c: char| c.is_alphanumeric() || "_.$\"".contains(c);
    let call = |at: usize| -> Option<(&str, &str)> {
        let before = &condition[..at];
        let (start, _) = before.char_indices().rev().take_while(|(_, c)| is_of_name(*c)).last()?;
        Some((&before[start..], &condition[at..at + closing(&condition[at..])?]))
    };
    condition.match_indices('(').filter_map(|(at, _)| call(at)).collect()
}

/// Functions of users that a condition calls with a column of the table: the plan is made with parameters, and what is computed from these alone is a constant
/// when the statement runs, so that the condition may be sent then. Built-in functions may be sent, too.
fn own_functions(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>) -> Vec<String> {
    let column = format!("{}.", scan.lines.word("alias"));
    let mut found: Vec<String> = vec![];
    for (name, arguments) in calls(scan.lines.word("filter")) {
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_own =
            case.facts(FUNCTION_TEXT).any(|fact| fact.node == planned.time.node && fact.name == last);
        if is_own && arguments.contains(&column) && !found.iter().any(|other| other == name) {
            found.push(name.to_string());
        }
    }
    found
}

/// What another server would compute otherwise, at another time or for another session: postgres_fdw sends no expression with it
/// (`contain_mutable_functions` in deparse.c), not even one without columns of the table.
const MUTABLE: [&str; 6] =
    ["LOCALTIME", "timeofday()", "random()", "CURRENT_USER", "SESSION_USER", "current_setting("];
const VALUE_FIRST: &str = "let the program compute the value and send it as a parameter or constant, which is passed on; or make a view there that has the \
    condition, and a foreign table on it";

/// All rows are fetched, and a condition is checked here; `None` where it may be sent when the statement runs.
fn fetched(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>, waits: f64) -> Option<Claim> {
    let (filter, remote) = (scan.lines.word("filter"), scan.lines.word("remote"));
    let called = own_functions(case, planned, scan);
    let mutable = CLOCKS.into_iter().chain(MUTABLE).find(|name| filter.contains(name));
    let why = match (called.is_empty(), mutable) {
        (false, _) => format!(", because of {}()", plain(&called.join("(), "), CONDITION_CHARS)),
        (true, Some(name)) => format!(", because of {}", name.trim_end_matches('(')),
        (true, None) => return None,
    };
    let rows = scan.lines.last("table_rows").filter(|rows| *rows > 0.0);
    let of_rows = rows.map_or("all rows".to_string(), |rows| format!("all {} rows", units::count(rows)));
    let text = format!(
        "{} of the session time is one statement that fetches {of_rows} of {} from {} for each execution, and checks {} here: the condition is not sent{why}",
        planned.share(),
        scan.lines.word("relation"),
        server(scan),
        plain(filter, CONDITION_CHARS)
    );
    let claim = planned
        .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
        .number("waits_share", waits)
        .because(format!("what is sent has no condition: {}", plain(remote, REMOTE_CHARS)))
        .because("a condition is sent only if all of it means the same there: built-in operators and functions that are immutable, and those of extensions \
            that the server's option extensions names, with the collations of the foreign table's columns")
        .because(planned.file())
        .not("a slow server there: it is sent no condition that an index could serve")
        .remedy(
            match called.is_empty() {
                true => VALUE_FIRST,
                false => {
                    "write the condition with built-in functions that both servers have; or make a view or a column there that has the value computed and \
                     indexed, and a foreign table on it; if the function belongs to an extension that is installed on both, name that in the option \
                     extensions of the server"
                }
            },
            &[
                "SELECT srvname, srvoptions FROM pg_foreign_server; -- then ALTER SERVER ... OPTIONS (ADD extensions 'name')",
            ],
        );
    Some(claim)
}

/// The condition is sent, many rows fit it, and few of them are left here: what leaves out the others is not sent.
fn many(planned: &Planned<'_>, case: &Case, scan: &Thing<'_>, (waits, sent): (f64, Sent)) -> Claim {
    let (remote, filter) = (scan.lines.word("remote"), scan.lines.word("filter"));
    let relation = scan.lines.word("relation");
    let by_plan = matches!(sent, Sent::Planned(_));
    let returned = planned.statement.rows.unwrap_or(0.0);
    let text = format!(
        "{} of the session time is one statement that fetches {} rows of {relation}{} from {} for each execution, to return {}: what leaves out the others is \
         {}",
        planned.share(),
        units::short(sent.rows()),
        if by_plan { ", by its plan," } else { "" },
        server(scan),
        units::short(returned),
        match filter {
            "" => "a join or an aggregate that is done here".to_string(),
            filter => format!("checked here: {}", plain(filter, CONDITION_CHARS)),
        }
    );
    planned
        .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
        .number("waits_share", waits)
        .number("rows_sent", sent.rows())
        .number("rows_returned", returned)
        .because(format!("what is sent: {}", plain(remote, REMOTE_CHARS)))
        .because(planned.file())
        .not("a condition of the foreign table that is not sent: what is sent has one")
        .with(by_plan.then_some(()), |claim, ()| {
            claim.at_most(Severity::Medium).lacking("how many rows it sends: EXPLAIN (ANALYZE, VERBOSE) counts them")
        })
        .lacking("how long the other server takes to find the rows: watch that server, too")
        .remedy(
            "let the other server leave them out: postgres_fdw sends a join only if both tables are foreign tables of one server, for one role, and an \
             aggregate only over such tables; with a table of this side, find its keys first and send them as one array (= ANY), or keep a copy of the \
             smaller table on the other side (a materialized view, logical replication)",
            &["SELECT srvname, srvoptions FROM pg_foreign_server; -- EXPLAIN (VERBOSE) shows as \"Remote SQL\" what is sent; the nodes above it work here"],
        )
}

/// Whether a condition that a plan for unknown values checks here is sent when the statement runs: what is computed of parameters alone is a constant then, and
/// the cursors fetch no more rows than are returned.
fn is_sent_later(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>) -> bool {
    let fetched = fetched_per_s(case) / planned.statement.calls_per_s.unwrap_or(0.0).max(f64::MIN_POSITIVE);
    let is_for_few =
        fetched > 0.0 && fetched <= planned.statement.rows.unwrap_or(0.0).max(1.0) * SENT_PER_ROW_MIN;
    let filter = statement::conditions(scan.lines.word("filter")).unwrap_or_default();
    is_for_few && !filter.is_empty() && filter.iter().all(|one| one.inside.is_none())
}

/// The database of this server in which cursors of postgres_fdw are read: then the other server is this one.
fn database_here(planned: &Planned<'_>) -> Option<(String, f64)> {
    let mut cursors =
        planned.time.statements.iter().filter(|one| is_fetch(&one.text) && !one.database.is_empty());
    let first = cursors.next()?;
    cursors
        .all(|one| one.database == first.database)
        .then(|| (first.database.clone(), first.blocks.unwrap_or(0.0)))
}

/// What to look at on the other side: the indexes of the table, and the one that may be missing.
fn there(remote: &str, conditions: &[Condition], place: &str) -> Vec<String> {
    let Some(table) = statement::parse(remote).ok().and_then(|parsed| parsed.tables.into_iter().next())
    else {
        return vec![];
    };
    let schema = table.schema.as_deref().unwrap_or("public");
    let relation = format!("{}.{}", statement::quoted(schema), statement::quoted(&table.name));
    let columns = statement::index_columns(conditions);
    let look = format!(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = {} AND tablename = {}; -- {place}: is there one that begins with {}?",
        literal(schema),
        literal(&table.name),
        plain(&columns.join(", "), CONDITION_CHARS)
    );
    let create = (!columns.is_empty()).then(|| {
        format!("{} -- {place}, if there is none", statement::index_command(&relation, &columns, true))
    });
    std::iter::once(look).chain(create).collect()
}

/// The condition is sent, and the other server takes the time; `None` where it is only queried often.
fn slow(case: &Case, planned: &Planned<'_>, scan: &Thing<'_>, waits: f64) -> Option<Claim> {
    let mean_ms = planned.statement.mean_ms.filter(|ms| *ms >= SLOW_MS && waits >= WAITS_SLOW)?;
    let is_repeated = planned
        .nodes
        .iter()
        .any(|node| node.lines.word("kind") == "Nested Loop" || node.lines.flag("subquery") == Some(true));
    if is_repeated {
        return None;
    }
    let remote = scan.lines.word("remote");
    let parsed = statement::parse(remote).ok()?;
    let table = parsed.tables.first().map(|table| table.name.clone())?;
    let of_filter = statement::conditions(scan.lines.word("filter")).unwrap_or_default();
    let conditions: Vec<Condition> = parsed.conditions.into_iter().chain(of_filter).collect();
    let columns: Vec<String> = conditions.iter().map(in_words).collect();
    let here = database_here(planned);
    let place = here.as_ref().map_or("on that server".to_string(), |(database, _)| {
        format!("in database {}", plain(database, CONDITION_CHARS))
    });
    let text = format!(
        "{} of the session time is one statement that waits {} for {} to find its rows of {}: the condition is sent ({}), so what is slow is there, most \
         likely a table {table} without an index that fits",
        planned.share(),
        units::us(mean_ms * waits * 1000.0),
        server(scan),
        scan.lines.word("relation"),
        plain(&columns.join(", "), CONDITION_CHARS)
    );
    let sent = with_condition(remote, scan.lines.word("filter"), scan.lines.word("alias"));
    let mut commands = vec![match statement::plannable(&sent) {
        Ok(text) => format!("EXPLAIN (GENERIC_PLAN) {text}; -- as the application's role on that server, PostgreSQL 16; before it with values for $1"),
        Err(_) => "SELECT srvname, srvoptions FROM pg_foreign_server; -- then, on that server, EXPLAIN of what is sent, as the evidence has it".to_string(),
    }];
    commands.extend(there(remote, &conditions, &place));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let claim = planned
        .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
        .number("waits_share", waits)
        .because(format!("what is sent: {}", plain(&sent, REMOTE_CHARS)))
        .because(format!("an execution takes {}: {}", units::us(mean_ms * 1000.0), in_a_line(planned.statement)))
        .because(planned.file())
        .with(here, |claim, (database, blocks)| {
            claim.because(format!(
                "the cursors of postgres_fdw are read in database {} of this server: {} blocks for each fetch",
                plain(&database, CONDITION_CHARS),
                units::short(blocks)
            ))
        })
        .not(match scan.lines.word("filter") {
            "" => "a condition that is checked here: the plan has none",
            _ => "a condition that is checked here: no more rows are fetched than are returned, so it is sent when its values are known",
        })
        .lacking("the plan there: watch that server, too")
        .remedy(
            "plan what is sent on that server, with values: if it scans the table, create an index there for the columns of the condition, or on the \
             expression that it compares; a foreign table on a view changes nothing of that",
            &commands,
        );
    Some(claim)
}

/// What is sent with the condition that a plan for unknown values checks here, and that is sent as well once its values are known.
fn with_condition(remote: &str, filter: &str, alias: &str) -> String {
    if filter.is_empty() {
        return remote.to_string();
    }
    let own = if alias.is_empty() { filter.to_string() } else { filter.replace(&format!("{alias}."), "") };
    let has_where = statement::parse(remote).is_ok_and(|parsed| parsed.is_filtered);
    format!("{remote} {} {own}", if has_where { "AND" } else { "WHERE" })
}

/// A column that is compared, and what is computed from it.
fn in_words(condition: &Condition) -> String {
    match &condition.inside {
        Some(inside) => format!("{} inside of {inside}", condition.column),
        None => condition.column.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_later_is_planned_with_its_condition() {
        let sent = with_condition("SELECT id, name FROM public.c", "(c.phone = ($1 || $2))", "c");
        assert_eq!(sent, "SELECT id, name FROM public.c WHERE (phone = ($1 || $2))");
        assert!(statement::plannable(&sent).is_ok());
        let more = with_condition("SELECT id FROM public.c WHERE ((a = 1))", "(c.b = $1)", "c");
        assert_eq!(more, "SELECT id FROM public.c WHERE ((a = 1)) AND (b = $1)");
        assert_eq!(with_condition("SELECT 1", "", "c"), "SELECT 1");
    }

    #[test]
    fn calls_of_a_condition_have_their_arguments() {
        let found = calls("((norm_phone(c.phone) = app.f(($1 || lpad($2, 8)))) AND (c.id = ANY ($3)))");
        assert_eq!(
            found,
            [("norm_phone", "(c.phone"), ("app.f", "(($1 || lpad($2, 8))"), ("lpad", "($2, 8")]
        );
        assert_eq!(calls("(a = $1"), []);
    }
}
