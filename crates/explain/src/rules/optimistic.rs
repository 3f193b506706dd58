//! TXN-23: optimistic locking on rows that many want: an UPDATE names the version that its program has read, and finds another one.

use super::costly::{in_a_line, plain};
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Use, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-23",
    title: "updates by version find that the row was changed",
    needs: &[Field("statement", "calls"), Field("statement", "rows")],
    limits: "20 executions a second of an UPDATE or DELETE by a key and a column of the version (version, lock_version, updated_at and their like) of which a \
        third changes no row; high where half of the transactions are rolled back (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/applevel-consistency.html"],
}];

/// Executions a second from which on they matter.
const CALLS_PER_S_MIN: f64 = 20.0;
/// Of the executions, those that change no row.
const LOST_MIN: f64 = 1.0 / 3.0;
/// Of the transactions, those that are rolled back.
const ROLLED_BACK_HIGH: f64 = 0.5;
/// Columns of versions, by the words in their names.
const VERSIONS: [&str; 9] =
    ["version", "rowversion", "revision", "rev", "etag", "lock", "optlock", "xmin", "ver"];
/// Names of the time of the last change that serve as versions where a program writes and compares them.
const CHANGED_AT: [&str; 6] =
    ["updated_at", "updatedat", "modified_at", "modifiedat", "last_modified", "last_update"];
/// Characters of a name in a claim.
const NAME_CHARS: usize = 80;

/// Whether a column has the name of a version.
fn is_version(column: &str) -> bool {
    let name = column.to_ascii_lowercase();
    CHANGED_AT.contains(&name.as_str()) || name.split('_').any(|word| VERSIONS.contains(&word))
}

/// The table and the column of the version that a statement writes by.
fn by_version(text: &str) -> Option<(String, String)> {
    let parsed = statement::parse(text).ok()?;
    let compared = |column: &str| {
        parsed
            .conditions
            .iter()
            .any(|one| one.column == column && one.how == Use::Equality && one.inside.is_none())
    };
    let mut columns = parsed.conditions.iter().map(|one| one.column.as_str());
    let version = columns.find(|column| {
        // What it sets is what it compares: the next program finds another value.
        let is_set = parsed.verb == Verb::Delete || parsed.assigned.iter().any(|set| set == column);
        compared(column) && is_set && is_version(column)
    })?;
    let is_written = matches!(parsed.verb, Verb::Update | Verb::Delete) && parsed.tables.len() == 1;
    let has_key = parsed.conditions.iter().any(|one| one.column != version && one.how == Use::Equality);
    (is_written && has_key).then(|| (parsed.tables[0].name.clone(), version.to_string()))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case) {
        claims.extend(time.statements.iter().filter_map(|statement| of_statement(case, time, statement)));
    }
    Answer::of(claims, || "rows that updates by a version change".to_string())
}

fn of_statement(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let calls = statement.calls_per_s.filter(|calls| *calls >= CALLS_PER_S_MIN)?;
    let lost = 1.0 - statement.rows?.min(1.0);
    if lost < LOST_MIN {
        return None;
    }
    let (table, version) = by_version(&statement.text)?;
    let server = case.one("server", &time.node)?;
    let rate = |field: &str| server.rate(field).unwrap_or(0.0);
    let (committed, rolled_back) = (rate("xact_commit"), rate("xact_rollback"));
    let share = rolled_back / (committed + rolled_back).max(f64::MIN_POSITIVE);
    let (table, version) = (plain(&table, NAME_CHARS), plain(&version, NAME_CHARS));
    Some(
        Claim::new(
            if share >= ROLLED_BACK_HIGH { Severity::High } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{}: {} of the {} writes a second into {table} that name a {version} change no row: another transaction changed it first, and the work of \
                 theirs is done again (optimistic locking of rows that many want)",
                time.node,
                units::percent(lost),
                units::short(calls)
            ),
        )
        .on_node(&time.node)
        .during([server.ticks.window()])
        .number("lost", lost)
        .number("calls_per_s", calls)
        .number("rolled_back", share)
        .because(format!("the statement: {}", in_a_line(statement)))
        .because(format!("{} of the transactions are rolled back, {} a second", units::percent(share), units::short(rolled_back)))
        .not("deadlocks and serialization failures: the statement succeeds, and changes nothing")
        .remedy(
            "let one statement change what is there, without a version (SET stock = stock - $1 WHERE id = $2 AND stock >= $1), or lock the row when it is read \
             (SELECT ... FOR UPDATE, PESSIMISTIC_WRITE), so that programs queue instead of losing their work; keep what changes often apart from what people \
             edit, divide a counter over several rows, and try again after a pause that grows",
            &[],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_by_version_are_known() {
        for (text, column) in [
            ("update product set name=$1, version=$4 where id=$5 and version=$6", "version"),
            (
                "UPDATE \"Order\" SET state = $1, lock_version = lock_version + 1 WHERE id = $2 AND lock_version = $3",
                "lock_version",
            ),
            ("update a set b = $1, updated_at = now() where id = $2 and updated_at = $3", "updated_at"),
            ("delete from cart where id = $1 and opt_lock = $2", "opt_lock"),
        ] {
            assert_eq!(by_version(text).map(|found| found.1).as_deref(), Some(column), "{text}");
        }
        for text in [
            // Nothing is lost where a state is set again, a version is not written, or all rows of a version are.
            "update device set online = $1 where id = $2 and online = $3",
            "update a set b = $1 where id = $2 and version = $3",
            "update a set version = $1 where version = $2",
            "update a set conversion = $1 where id = $2 and conversion = $3",
            "select * from a where id = $1 and version = $2",
        ] {
            assert_eq!(by_version(text), None, "{text}");
        }
    }
}
