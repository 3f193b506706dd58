//! PLAN-62: what is unusual about the tables and views of the statements that take the time. It is no cause by itself: it is where to look first.

use super::costly::{busy, in_a_line, peculiar_of, plain};
use super::paste::literal;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::Fact;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-62",
    title: "a table or view of a statement that takes the time is unusual",
    needs: &[Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement that names a table or view with rules, triggers, policies, options, children, a declared or switched-off \
        statistic, deferrable or exclusion constraints, or 8 indexes; always low (ours)",
    judge: peculiar,
    links: &["https://www.postgresql.org/docs/current/catalogs.html"],
}];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
/// Characters of a name, and of what is unusual: names are users' text.
const NAME_CHARS: usize = 130;
const VALUE_CHARS: usize = 300;

/// Whether a statement writes a table that has triggers: these run within its time.
fn fires(statement: &StatementTime, fact: &Fact) -> bool {
    let verb = statement::parse(&statement.text).map(|parsed| parsed.verb);
    let is_write = matches!(verb, Ok(Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge));
    is_write && fact.value.contains("trigger ")
}

fn advice(statement: &StatementTime, fact: &Fact) -> &'static str {
    if fires(statement, fact) {
        "the trigger runs within the time of the statement, once for each row unless it is FOR EACH STATEMENT: count its calls and its time, which a new \
         recording then names; what computes a total of many rows is done once FOR EACH STATEMENT with a transition table (REFERENCING NEW TABLE AS ...)"
    } else {
        "look at its definition, and compare the statement with and without what is unusual, on a copy"
    }
}

fn commands(statement: &StatementTime, fact: &Fact) -> Vec<String> {
    let table = literal(&fact.name);
    if fires(statement, fact) {
        return vec![
            "ALTER SYSTEM SET track_functions = 'pl'; SELECT pg_reload_conf(); -- then: SELECT * FROM pg_stat_user_functions ORDER BY total_time \
                DESC;".to_string(),
            format!("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = {table}::regclass AND NOT tgisinternal;"),
        ];
    }
    vec![format!(
        "SELECT relkind, reloptions, relrowsecurity, relhasrules, relhastriggers, relhassubclass FROM pg_class WHERE oid = {table}::regclass;"
    )]
}

fn peculiar(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            for fact in peculiar_of(case, &time.node, &one.text) {
                let commands = commands(one, fact);
                claims.push(
                    Claim::new(
                        Severity::Low,
                        Level::CoOccurrence,
                        format!(
                            "{}: a statement that takes {} of the session time names {}, which is unusual: {}",
                            time.node,
                            units::percent(one.share),
                            plain(&fact.name, NAME_CHARS),
                            plain(&fact.value, VALUE_CHARS)
                        ),
                    )
                    .on_node(&time.node)
                    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                    .number("share", one.share)
                    .because(format!("the statement: {}", in_a_line(one)))
                    .lacking("whether that costs anything: it is where to look first")
                    .remedy(advice(one, fact), &commands.iter().map(String::as_str).collect::<Vec<_>>()),
                );
            }
        }
    }
    Answer::of(claims, || "tables and views of the statements that take the time".to_string())
}
