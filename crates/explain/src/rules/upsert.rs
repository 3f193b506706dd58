//! TXN-14: rows that are written again whether a value of them has changed or not, as a synchronisation with another system does.

use super::costly::{busy, in_a_line, plain, severity, table_named};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-14",
    title: "rows are written again, whether their values have changed or not",
    needs: &[Field("statement", "calls"), Field("table", "rows_updated"), Field("server", "sessions_active")],
    limits: "20 % of the session time in an upsert, or an UPDATE ... FROM, that sets two columns or more of 100 rows or more, compares none of them with \
        the new value, and with which each row of the table is written once a minute or more (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/functions-comparison.html"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Rows that an execution writes.
const ROWS_MIN: f64 = 100.0;
/// Columns that it sets: one alone is a time or a counter, which does change.
const ASSIGNED_MIN: usize = 2;
/// How often each row of the table is written.
const TIMES_PER_MINUTE_MIN: f64 = 1.0;
/// Of the updates, those that are heap-only: from here on it is no accident.
const HOT_SHARE_MIN: f64 = 0.05;
/// Columns in the condition that is proposed.
const COLUMNS_MAX: usize = 6;
/// Characters of a name: names are users' text.
const NAME_CHARS: usize = 130;

/// Whether all values come from elsewhere, and none is compared with the one that is there.
fn is_blind(text: &str, parsed: &statement::Statement) -> bool {
    let text = text.to_ascii_lowercase();
    if parsed.assigned.len() < ASSIGNED_MIN || text.contains("distinct from") {
        return false;
    }
    match parsed.verb {
        // A condition behind DO UPDATE leaves rows out.
        Verb::Insert => text.split_once("do update").is_some_and(|(_, action)| {
            action.matches("excluded.").count() >= parsed.assigned.len() && !action.contains(" where ")
        }),
        Verb::Update => parsed.tables.len() > 1 && !["<>", "!="].iter().any(|sign| text.contains(sign)),
        _ => false,
    }
}

/// An upsert, its table, rows of an execution, and how often a minute each row of the table is written.
fn rewritten<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &'a StatementTime,
) -> Option<(statement::Statement, Thing<'a>, f64, f64)> {
    let parsed = statement::parse(&statement.text).ok()?;
    let table = table_named(case, &time.node, statement, parsed.tables.first()?)?;
    let rows = statement.rows.filter(|rows| *rows >= ROWS_MIN)?;
    let live = table.lines.last("live_rows")?.max(1.0);
    let times = table.lines.rate("rows_updated")? * 60.0 / live;
    (is_blind(&statement.text, &parsed) && times >= TIMES_PER_MINUTE_MIN)
        .then_some((parsed, table, rows, times))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let Some((parsed, table, rows, times)) = rewritten(case, time, statement) else { continue };
            claims.push(of_statement(time, statement, &parsed, &table, rows, times));
        }
    }
    Answer::of(claims, || "upserts, and how often rows of their tables are written".to_string())
}

/// An index with a column that the statement sets, and the share of the updates that were heap-only all the same: there the value was the same.
fn unchanged(table: &Thing<'_>, assigned: &[String]) -> Option<(String, f64)> {
    let hot =
        table.lines.rate("rows_hot_updated")? / table.lines.rate("rows_updated")?.max(f64::MIN_POSITIVE);
    let column = assigned.iter().find(|column| {
        let written = table.lines.word("index_columns");
        written.split(['(', ')', ',', ';']).any(|part| part.trim() == column.as_str())
    })?;
    (hot >= HOT_SHARE_MIN).then(|| (column.clone(), hot))
}

fn of_statement(
    time: &NodeTime,
    statement: &StatementTime,
    parsed: &statement::Statement,
    table: &Thing<'_>,
    rows: f64,
    times: f64,
) -> Claim {
    let relation = table.lines.word("relation");
    let is_upsert = parsed.verb == Verb::Insert;
    let named = parsed.tables.first();
    let alias =
        named.and_then(|named| named.alias.clone().or_else(|| Some(named.name.clone()))).unwrap_or_default();
    let list = |of: &str| {
        let columns = parsed.assigned.iter().take(COLUMNS_MAX);
        columns.map(|column| format!("{of}.{}", statement::quoted(column))).collect::<Vec<_>>().join(", ")
    };
    let other = if is_upsert { "excluded" } else { "new" };
    let condition = format!("({}) IS DISTINCT FROM ({})", list(&statement::quoted(&alias)), list(other));
    let change = match is_upsert {
        true => {
            format!("leave out the rows whose values are the same: let DO UPDATE end with WHERE {condition}")
        }
        false => format!(
            "leave out the rows whose values are the same, by one more condition: {condition}, where new is what stands behind FROM"
        ),
    };
    let same = unchanged(table, &parsed.assigned);
    Claim::new(
        severity(statement.share),
        if same.is_some() { Level::DiscriminatingCounter } else { Level::CoOccurrence },
        format!(
            "{}: a statement that takes {} of the session time writes {} rows of {} again each time, each row of the table {} times a minute, and does not \
             ask whether any of the {} columns that it sets has changed (IS DISTINCT FROM)",
            time.node,
            units::percent(statement.share),
            units::short(rows),
            plain(relation, NAME_CHARS),
            units::short(times),
            parsed.assigned.len(),
        ),
    )
    .on_node(&time.node)
    .during([table.lines.ticks.window()])
    .number("share", statement.share)
    .number("rows_per_call", rows)
    .number("times_per_minute", times)
    .because(format!("the statement: {}", in_a_line(statement)))
    .because("each row that it writes is a new version with WAL and index entries, and leaves a dead one, also if all values are the same")
    .with(same, |claim, (column, hot)| {
        claim.because(format!(
            "{} of the updates were heap-only although it sets {column}, which an index has: in these the value was the same",
            units::percent(hot)
        ))
    })
    .lacking("how many of the values change: count the rows of the source that differ, by the same condition")
    .remedy(change, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blind(text: &str) -> bool {
        is_blind(text, &statement::parse(text).expect("SQL"))
    }

    #[test]
    fn only_what_takes_all_values_from_elsewhere_and_compares_none_is_blind() {
        let upsert = "INSERT INTO t AS p (id, a, b) SELECT id, a, b FROM feed ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a, b = EXCLUDED.b";
        assert!(blind(upsert));
        assert!(!blind(&format!("{upsert} WHERE (p.a, p.b) IS DISTINCT FROM (EXCLUDED.a, EXCLUDED.b)")));
        assert!(!blind(&format!("{upsert} WHERE p.at < $1")));
        assert!(!blind(
            "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = t.n + EXCLUDED.n"
        ));
        assert!(!blind("INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT DO NOTHING"));
        let update = "UPDATE t SET a = f.a, b = f.b FROM feed f WHERE f.id = t.id";
        assert!(blind(update));
        assert!(!blind(&format!("{update} AND t.a <> f.a")));
        assert!(!blind("UPDATE t SET a = $1, b = $2 WHERE id = $3"));
    }
}
