//! PLAN-62: what is unusual about the tables and views of the statements that take the time. It is no cause by itself: it is where to look first.

use super::costly::{busy, in_a_line, peculiar_of, plain};
use super::paste::literal;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};

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

fn peculiar(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            for fact in peculiar_of(case, &time.node, &one.text) {
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
                    .remedy(
                        "look at its definition, and compare the statement with and without what is unusual, on a copy",
                        &[&format!(
                            "SELECT relkind, reloptions, relrowsecurity, relhasrules, relhastriggers, relhassubclass FROM pg_class WHERE oid = {}::regclass;",
                            literal(&fact.name)
                        )],
                    ),
                );
            }
        }
    }
    Answer::of(claims, || "tables and views of the statements that take the time".to_string())
}
