//! TXN-15: tables that are made and dropped all the time, as temporary tables in a function are.

use super::costly::{busy, in_a_line};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::FUNCTION_TEXT;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-15",
    title: "tables are made and dropped all the time",
    needs: &[Field("server", "relations_made"), Field("server", "sessions_active")],
    limits: "50 entries of pg_class a second; high if a statement with half of the session time runs as often or less (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-createtable.html#SQL-CREATETABLE-TEMPORARY"],
}];

/// New entries of pg_class a second.
const MADE_PER_S_MIN: f64 = 50.0;
/// The share of the session time of the statement that makes them.
const SHARE_MIN: f64 = 0.2;
/// From here on it is high.
const SHARE_HIGH: f64 = 0.5;

/// The statement with the most time that runs no more often than relations are made: each execution makes one or more.
fn maker<'a>(case: &Case, time: &'a NodeTime, made_per_s: f64) -> Option<&'a StatementTime> {
    // A query of tables makes none, unless a function of it does.
    let may_make = |one: &&StatementTime| {
        let is_query = statement::parse(&one.text)
            .is_ok_and(|parsed| parsed.verb == Verb::Select && !parsed.tables.is_empty());
        let names = statement::names(&one.text);
        !is_query
            || case.facts(FUNCTION_TEXT).any(|fact| fact.node == time.node && names.contains(&fact.name))
    };
    let mut large = time.statements.iter().filter(|statement| statement.share >= SHARE_MIN).filter(may_make);
    large
        .find(|statement| statement.calls_per_s.is_some_and(|calls| calls > 0.0 && calls <= made_per_s * 1.1))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(server) = case.one("server", &time.node) else { continue };
        let made = server.rate("relations_made").unwrap_or(0.0);
        if made < MADE_PER_S_MIN {
            continue;
        }
        let maker = maker(case, time, made);
        let by = maker.map_or(String::new(), |statement| {
            format!(
                "; a statement that takes {} of the session time makes them",
                units::percent(statement.share)
            )
        });
        claims.push(
            Claim::new(
                match maker {
                    Some(statement) if statement.share >= SHARE_HIGH => Severity::High,
                    Some(_) => Severity::Medium,
                    None => Severity::Low,
                },
                Level::CoOccurrence,
                format!(
                    "{}: {} tables, indexes and TOAST tables a second are created and dropped, as temporary tables are: each writes its rows into the system \
                     catalogs, and leaves them dead there{by}",
                    time.node,
                    units::short(made)
                ),
            )
            .on_node(&time.node)
            .during([server.ticks.window()])
            .number("relations_made_per_s", made)
            .with(maker, |claim, statement| {
                claim.number("share", statement.share).because(format!("the statement: {}", in_a_line(statement)))
            })
            .because("rows inserted into pg_class are counted by the server")
            .with(server.rate("tup_inserted"), |claim, rows| {
                claim.because(format!("{} rows a second are inserted in all", units::short(rows)))
            })
            .lacking("the commands: those inside of functions are in no statistic")
            .remedy(
                "make the table once for each session (CREATE TEMP TABLE IF NOT EXISTS ... ON COMMIT DELETE ROWS), or do without: an array, a WITH \
                 query, an unlogged table \
                 with a column for the session",
                &[
                    "SELECT relname, n_tup_ins, n_tup_del, n_dead_tup FROM pg_stat_sys_tables WHERE relname IN ('pg_class', 'pg_attribute', 'pg_type', \
                     'pg_depend') ORDER \
                        BY n_dead_tup DESC;",
                    "SELECT oid::regprocedure FROM pg_proc WHERE prosrc ~* 'create\\s+(local\\s+|global\\s+)?temp' AND pronamespace::regnamespace::text \
                     !~ '^pg_';",
                ],
            ),
        );
    }
    Answer::of(claims, || "new entries of pg_class".to_string())
}
