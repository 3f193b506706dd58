//! VAC-08: dead rows stay, because autovacuum has been turned off.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::paste::set_for_all;
use crate::units;
use record::finding::{Level, Severity};

/// The settings without which no table is vacuumed by itself.
const SETTINGS: [&str; 2] = ["autovacuum", "track_counts"];
/// Rows updated or deleted a second, below which nothing much becomes dead.
const CHANGES_PER_S_MIN: f64 = 10.0;
/// Rows of a table that matters.
const ROWS_MIN: f64 = 10_000.0;
/// Dead rows for each living one, of a table that autovacuum must not touch.
const DEAD_PER_LIVE_MIN: f64 = 1.0;
/// Its rows updated or deleted a second, and dead rows for each living one, from which on it is a matter of time.
const TABLE_CHANGES_PER_S_MIN: f64 = 100.0;
const FILLING_SHARE_MIN: f64 = 0.2;
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
        // RESET would only take away what ALTER SYSTEM has set before, and not what stands in postgresql.conf.
        let [set, source] = set_for_all(setting, "on");
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
                &[&set, &source, "VACUUM (ANALYZE, VERBOSE);"],
            ),
        );
    }
    claims.extend(case.things("table").filter_map(|table| of_table(case, &table)));
    Answer::of(claims, || "autovacuum and track_counts, against rows updated and deleted".to_string())
}

/// A table that autovacuum must not touch, with more dead rows than living ones.
fn of_table(case: &Case, table: &Thing<'_>) -> Option<Claim> {
    let (live, dead) = (table.lines.last("live_rows")?, table.lines.last("dead_rows")?);
    let is_off = table.lines.flag("autovacuum") == Some(false);
    let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
    let changes = rate("rows_updated") + rate("rows_deleted");
    let is_full = dead >= ROWS_MIN && dead >= live * DEAD_PER_LIVE_MIN;
    // One that is not yet full of them and will be: within an hour it has ten times as many.
    let is_filling = changes >= TABLE_CHANGES_PER_S_MIN && dead >= live * FILLING_SHARE_MIN;
    if !is_off || !is_full && !is_filling {
        return None;
    }
    let relation = table.lines.word("relation");
    let time = node_time::all(case).iter().find(|time| time.node == table.place)?;
    let by = time.by.iter().find(|by| by.name == "relation");
    let share = by
        .and_then(|by| by.shares.iter().find(|(name, _)| name == relation))
        .map_or(0.0, |(_, share)| *share);
    Some(
        Claim::new(
            if share >= DEAD_SHARE_HIGH { Severity::High } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{}: autovacuum is switched off for {relation}, which has {} dead rows for {} living ones",
                table.place,
                units::count(dead),
                units::count(live)
            ),
        )
        .on_node(table.place)
        .during([table.lines.ticks.window()])
        .number("dead_rows", dead)
        .number("live_rows", live)
        .number("changes_per_s", changes)
        .number("dead_share", dead / (live + dead))
        .number("share", share * dead / (live + dead))
        .because(format!("its storage parameter autovacuum_enabled is off, and {} of its rows a second are updated or deleted", units::short(changes)))
        .because(format!("{} of the session time is in it, by the blocks that were touched; each scan reads the dead rows, too", units::percent(share)))
        .remedy(
            "let autovacuum work on it again, and vacuum it once; VACUUM FULL also gives the space back, and blocks the table",
            &[
                &format!("ALTER TABLE {relation} RESET (autovacuum_enabled);"),
                &format!("VACUUM (ANALYZE, VERBOSE) {relation};"),
            ],
        ),
    )
}
