//! SES-11: functions that read every page of a table or index, called by monitoring or maintenance all the time.

use super::costly::{busy, in_a_line, severity};
use super::executor::{application_of, by, role_of};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-11",
    title: "monitoring reads every page of tables",
    needs: &[Field("server", "sessions_active")],
    limits: "10 % of the session time in a statement that calls a function which reads a whole table or index (pgstattuple, amcheck \
        and the like) (ours)",
    judge: inspected,
    links: &["https://www.postgresql.org/docs/current/pgstattuple.html"],
}];

/// The share of the session time.
const SHARE_MIN: f64 = 0.1;
/// Functions of contrib that read all pages of what they are called for, and one that reads fewer, if there is one.
const READERS: [(&str, &str); 10] = [
    ("pgstattuple", "pgstattuple_approx(), which skips pages that are all visible"),
    ("pgstatindex", ""),
    ("pgstatginindex", ""),
    ("pgstathashindex", ""),
    ("pg_check_frozen", ""),
    ("pg_check_visible", ""),
    ("verify_heapam", ""),
    ("bt_index_check", ""),
    ("bt_index_parent_check", ""),
    ("gin_index_check", ""),
];

/// The function of such a kind that a statement calls, and what costs less.
pub(super) fn reader(text: &str) -> Option<(&'static str, &'static str)> {
    let text = text.to_ascii_lowercase();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    READERS.into_iter().find(|(name, _)| {
        text.match_indices(name).any(|(at, _)| {
            !text[..at].ends_with(is_name) && text[at + name.len()..].trim_start().starts_with('(')
        })
    })
}

fn inspected(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let of = |one: &&StatementTime| one.share >= SHARE_MIN && reader(&one.text).is_some();
        for statement in time.statements.iter().filter(of) {
            let Some((function, instead)) = reader(&statement.text) else { continue };
            let role = role_of(case, &time.node, &statement.query_id);
            let who = match by(role, application_of(case, &time.node, role)) {
                who if who.is_empty() => who,
                who => format!(", executed{who},"),
            };
            let better = if instead.is_empty() { String::new() } else { format!(" (or call {instead})") };
            claims.push(
                Claim::new(
                    severity(statement.share),
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is a statement{who} that calls {function}(), which reads every page of the tables or indexes it is called \
                            for: {} blocks each time",
                        time.node,
                        units::percent(statement.share),
                        units::short(statement.blocks.unwrap_or(0.0))
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .because(format!("the statement: {}", in_a_line(statement)))
                .because(format!(
                    "{} executions a second; such a look costs what reading the whole table costs",
                    units::short(statement.calls_per_s.unwrap_or(0.0))
                ))
                .not("a missing index: the function reads pages, and not rows by a condition")
                .remedy(
                    format!("call it once a day or by hand, for one table at a time, and not from monitoring{better}; n_dead_tup of pg_stat_user_tables \
                        costs nothing"),
                    &["SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables ORDER BY n_dead_tup DESC LIMIT 10;"],
                ),
            );
        }
    }
    Answer::of(claims, || {
        "functions that read whole tables, among the statements that take the time".to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_of_such_a_function_is_one() {
        let name = |text: &str| reader(text).map(|(name, _)| name);
        assert_eq!(name("SELECT (public.pgstattuple(oid)).* FROM pg_class"), Some("pgstattuple"));
        assert_eq!(name("select * from bt_index_check ($1)"), Some("bt_index_check"));
        assert_eq!(name("select * from pgstattuple_approx($1)"), None);
        assert_eq!(name("select my_pgstattuple(1), pgstattuple from t"), None);
    }
}
