//! SES-11: functions that read every page of a table or index, called by monitoring or maintenance all the time.

use super::costly::{busy, in_a_line, lowered, severity};
use super::executor::{application_of, by, role_of};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-11",
    title: "monitoring reads every page of tables, or all texts of statements",
    needs: &[Field("server", "sessions_active")],
    limits: "10 % of the session time in a statement that calls a function which reads a whole table or index (pgstattuple, amcheck \
        and the like), or in statements that read pg_stat_statements with its texts (ours)",
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

/// Whether a statement reads pg_stat_statements with the texts of all statements: the server reads the file that has them as a whole, each time.
fn reads_texts(text: &str) -> bool {
    let text = lowered(text);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices("pg_stat_statements").any(|(at, name)| {
        let rest = text[at + name.len()..].trim_start();
        let is_it = !text[..at].ends_with(is_name) && !text[at + name.len()..].starts_with(is_name);
        let before = text[..at].trim_end_matches("public.").trim_end();
        let is_read = ["from", "join", ","].iter().any(|word| before.ends_with(word));
        let is_without = rest.strip_prefix('(').is_some_and(|inside| {
            ["false", "showtext => false"].iter().any(|word| inside.trim_start().starts_with(word))
        });
        is_it && (is_read || rest.starts_with('(')) && !is_without
    })
}

/// Who executes a statement, as a part of a claim.
fn executed(case: &Case, time: &NodeTime, statement: &StatementTime) -> String {
    let role = role_of(case, &time.node, &statement.query_id);
    match by(role, application_of(case, &time.node, role)) {
        who if who.is_empty() => who,
        who => format!(", executed{who},"),
    }
}

/// About all such statements of a node.
fn of_texts(case: &Case, time: &NodeTime) -> Option<Claim> {
    let of_kind: Vec<&StatementTime> = time.statements.iter().filter(|one| reads_texts(&one.text)).collect();
    let share: f64 = of_kind.iter().map(|one| one.share).sum();
    let first = of_kind.first().filter(|_| share >= SHARE_MIN)?;
    let who = executed(case, time, first);
    let bytes = first.temp_bytes.filter(|bytes| *bytes > 0.0);
    let files = bytes.map_or(String::new(), |bytes| {
        format!(", {} of them written to temporary files", units::bytes(bytes))
    });
    Some(
        Claim::new(
            severity(share),
            Level::DiscriminatingCounter,
            format!(
                "{}: {} of the session time is a statement{who} that reads pg_stat_statements with the texts of all statements: the server reads the whole \
                 file of them each time, {} long{files}",
                time.node,
                units::percent(share),
                units::seconds(first.mean_ms.unwrap_or(0.0) / 1e3)
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", share)
        .because(format!("the statement: {}", in_a_line(first)))
        .because(format!("{} executions a second", units::short(of_kind.iter().filter_map(|one| one.calls_per_s).sum::<f64>())))
        .not("work_mem: what it writes to files are the texts, which no look needs again")
        .remedy(
            "let monitoring read pg_stat_statements(false), which has no texts, and the texts of new entries by their queryid now and then; make the texts \
             few and short: lists of values in one parameter (= ANY($1), unnest, COPY) are one entry and not one for each length; a lower \
             pg_stat_statements.max, or one reset, makes the file small again",
            &[
                "SELECT count(*), pg_size_pretty(sum(octet_length(query))) AS texts, max(octet_length(query)) FROM pg_stat_statements;",
                "SELECT pg_stat_statements_reset(); -- forgets all counts",
            ],
        ),
    )
}

fn inspected(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        claims.extend(of_texts(case, time));
        let of = |one: &&StatementTime| one.share >= SHARE_MIN && reader(&one.text).is_some();
        for statement in time.statements.iter().filter(of) {
            let Some((function, instead)) = reader(&statement.text) else { continue };
            let who = executed(case, time, statement);
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
        "functions that read whole tables, and reads of all texts, among the statements that take the time"
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_unless_they_are_left_out() {
        assert!(reads_texts("SELECT queryid, query FROM pg_stat_statements WHERE calls > $1"));
        assert!(reads_texts("select * from pg_database d join public.pg_stat_statements s on true"));
        assert!(reads_texts("select * from pg_stat_statements($1)"));
        assert!(!reads_texts("select * from pg_stat_statements(false)"));
        assert!(
            !reads_texts("select * from pg_stat_statements_info")
                && !reads_texts("select pg_stat_statements_reset()")
        );
    }

    #[test]
    fn only_a_call_of_such_a_function_is_one() {
        let name = |text: &str| reader(text).map(|(name, _)| name);
        assert_eq!(name("SELECT (public.pgstattuple(oid)).* FROM pg_class"), Some("pgstattuple"));
        assert_eq!(name("select * from bt_index_check ($1)"), Some("bt_index_check"));
        assert_eq!(name("select * from pgstattuple_approx($1)"), None);
        assert_eq!(name("select my_pgstattuple(1), pgstattuple from t"), None);
    }
}
