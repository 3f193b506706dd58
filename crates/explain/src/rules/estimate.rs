//! EXT-05: foreign tables whose server is queried while statements are planned.

use super::costly::{busy, in_a_line, peculiar_of, plain, severity};
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::Level;
use record::watched::REMOTE_ESTIMATE;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "EXT-05",
    title: "planning queries a foreign server for estimates",
    needs: &[Looked("wait"), Field("server", "sessions_active")],
    limits: "20 % of the session time in waits for other servers, and a statement with 5 % of it, or seen in 20 % of these waits, that names a foreign table \
        with use_remote_estimate (ours)",
    judge: estimated,
    links: &[
        "https://www.postgresql.org/docs/current/postgres-fdw.html#POSTGRES-FDW-OPTIONS-COST-ESTIMATION",
    ],
}];

/// The share of the session time in waits for other servers.
const SHARE_MIN: f64 = 0.2;
/// That of a statement on such a table.
const OF_STATEMENT_MIN: f64 = 0.05;
/// Of the waits, the time of the statement's executions, which explains them without any planning.
const EXECUTED_MAX: f64 = 0.7;
/// Characters of a name.
const NAME_CHARS: usize = 130;

fn is_of_extension(kind: &str, _: &str) -> bool {
    kind == "Extension"
}

fn estimated(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let share = node_time::share_waiting(case, &time.node, is_of_extension).unwrap_or(0.0);
        if share < SHARE_MIN {
            continue;
        }
        let found = time.statements.iter().filter(|one| one.share >= OF_STATEMENT_MIN).find_map(|one| {
            let facts = peculiar_of(case, &time.node, &one.text);
            // What executions take is no planning.
            let executed = one.mean_ms.unwrap_or(0.0) * one.calls_per_s.unwrap_or(0.0) / 1e3;
            let is_planning = executed < share * time.active * EXECUTED_MAX;
            let fact = facts.into_iter().find(|fact| fact.value.contains(REMOTE_ESTIMATE));
            fact.filter(|_| is_planning).map(|fact| (one, fact))
        });
        let Some((one, fact)) = found else { continue };
        let ran = one
            .mean_ms
            .map_or(String::new(), |ms| format!("; an execution takes {} without it", units::us(ms * 1e3)));
        claims.push(
            Claim::new(
                severity(share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: sessions wait {} of their time for another server, which is queried by EXPLAIN, several times, each time that a statement on {} is \
                        planned (use_remote_estimate)",
                    time.node,
                    units::percent(share),
                    plain(&fact.name, NAME_CHARS)
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .because(format!("the statement: {}", in_a_line(one)))
            .because(format!("{} executions a second{ran}", units::short(one.calls_per_s.unwrap_or(0.0))))
            .lacking("the time of planning alone: pg_stat_statements.track_planning = on counts it")
            .remedy(
                "switch it off for tables whose queries are short, and keep statistics here by ANALYZE of the foreign table; or prepare the statement once per \
                 session, so that it is planned once",
                &[
                    &format!("ALTER FOREIGN TABLE {} OPTIONS (ADD use_remote_estimate 'false'); -- SET instead of ADD if the table has the option \
                        itself", fact.name),
                    &format!("ANALYZE {};", fact.name),
                    "SELECT srvname, srvoptions FROM pg_foreign_server;",
                ],
            ),
        );
    }
    Answer::of(claims, || "foreign tables with use_remote_estimate, and waits for other servers".to_string())
}
