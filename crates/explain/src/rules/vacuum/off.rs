//! VAC-08: dead rows stay, because autovacuum has been turned off.

use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// The settings without which no table is vacuumed by itself.
const SETTINGS: [&str; 2] = ["autovacuum", "track_counts"];
/// Rows updated or deleted a second, below which nothing much becomes dead.
const CHANGES_PER_S_MIN: f64 = 10.0;
/// Rows of a table that matters.
const ROWS_MIN: f64 = 10_000.0;
/// The share of dead rows from which on it is high.
const DEAD_SHARE_HIGH: f64 = 0.2;

pub(super) fn off(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let Some(setting) = SETTINGS
            .into_iter()
            .find(|name| case.setting(server.place, name).is_some_and(|value| value == "off"))
        else {
            continue;
        };
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let changes = rate("tup_updated") + rate("tup_deleted");
        if changes < CHANGES_PER_S_MIN {
            continue;
        }
        let worst = case
            .at("table", server.place)
            .filter_map(|table| {
                let (live, dead) = (table.lines.last("live_rows")?, table.lines.last("dead_rows")?);
                (live + dead >= ROWS_MIN).then(|| (table, dead / (live + dead)))
            })
            .max_by(|left, right| left.1.total_cmp(&right.1));
        let is_high = worst.as_ref().is_some_and(|(_, share)| *share >= DEAD_SHARE_HIGH);
        let reset = format!("ALTER SYSTEM RESET {setting};");
        claims.push(
            Claim::new(
                if is_high { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {setting} is off, and {} rows a second are updated or deleted: dead rows stay, and statistics become old",
                    server.place,
                    units::short(changes)
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("changes_per_s", changes)
            .because(format!("the setting {setting} is off"))
            .with(worst, |claim, (table, share)| {
                claim.number("dead_share", share).because(format!(
                    "{} of the rows of {} are dead",
                    units::percent(share),
                    table.lines.word("relation")
                ))
            })
            .remedy(
                "turn it on again; then vacuum the tables that have grown, with the cost limit that the disks allow",
                &[&reset, "SELECT pg_reload_conf();", "VACUUM (ANALYZE, VERBOSE);"],
            ),
        );
    }
    Answer::of(claims, || "autovacuum and track_counts, against rows updated and deleted".to_string())
}
