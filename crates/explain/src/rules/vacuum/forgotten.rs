//! VAC-18: counters that autovacuum goes by, which a program or a person resets again and again.

use crate::case::Case;
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::{lowered, seen_with_role};
use crate::rules::observer;
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};

pub(super) const RULE: Rule = Rule {
    id: "VAC-18",
    title: "the counters that autovacuum goes by are reset again and again",
    needs: &[Any(&[Field("server", "*")])],
    limits: "the counters of databases are reset three times, once a minute or more (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-STATS-FUNCTIONS"],
};

/// Resets, and the time between two of them.
const RESETS_MIN: usize = 3;
const EVERY_US: u64 = 60_000_000;
/// The function that does it for one database.
const RESET: &str = "pg_stat_reset(";

fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| claim(case, node)).collect();
    Answer::of(claims, || "resets of the counters of databases".to_string())
}

fn claim(case: &Case, node: &str) -> Option<Claim> {
    let is_its = |event: &&Event| {
        Case::word_of(event, "node") == node && Case::word_of(event, "what") == event::DATABASES
    };
    let resets: Vec<&Event> = observer::resets(case).into_iter().filter(is_its).collect();
    let (first, last) = (resets.first()?, resets.last()?);
    let length_us = last.t_us - first.t_us;
    if resets.len() < RESETS_MIN || length_us > EVERY_US * (resets.len() as u64 - 1) {
        return None;
    }
    let by =
        seen_with_role(case, node, |text| lowered(text).contains(RESET)).map(|found| format!(": {found}"));
    let every_us = length_us as f64 / (resets.len() as f64 - 1.0);
    Some(
        Claim::new(
            Severity::Medium,
            Level::DiscriminatingCounter,
            format!(
                "{node}: the counters of a database are reset every {}, {} times here: autovacuum counts dead and new rows in them, so it finds no table that \
                    needs \
                 it, and dead rows stay{}",
                units::us(every_us),
                resets.len(),
                by.as_deref().unwrap_or_default()
            ),
        )
        .on_node(node)
        .during([Window::new(first.t_us, last.t_us)])
        .number("resets", resets.len() as f64)
        .because("counters of pg_stat_database went back, or have another time of their reset, and those of its tables go with them")
        .with(by.is_none().then_some(()), |claim, ()| claim.lacking("who does it: no statement that was seen calls pg_stat_reset()"))
        .remedy(
            "let the program that resets them (an exporter, a monitoring script) take differences instead; then vacuum and analyse the tables that were left \
                out",
            &[
                "SELECT datname, stats_reset FROM pg_stat_database WHERE datname = current_database();",
                "VACUUM (ANALYZE, VERBOSE); -- of the whole database; it reads every table whose pages are not all visible",
            ],
        ),
    )
}
