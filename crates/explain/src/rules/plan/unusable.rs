//! PLAN-11: indexes that are there and that a condition cannot use.

use super::index::{Scan, obstacle_of, scans_of};
use super::pattern::{self, Advice};
use super::{Planned, SHARE_MIN, planned, severity};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// Why an index of the table of a scan cannot be used, what to do about it, and the commands.
type Obstacle = (String, String, Vec<String>);

/// What the indexes of the table rule out.
const NOT_ASIDE: &str =
    "an index that the planner leaves aside because most rows are wanted: none begins with a compared column";

/// What PLAN-11 reports of a scan.
fn obstruction(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Option<Obstacle> {
    const COMPARE: &str = "compare the column itself with a value of its own type and collation (instead of a function of a time: at >= $1 AND at < $2; \
        instead of value = ANY (column): column @> ARRAY[value]; for a partial index with its own WHERE), or create an index on what is compared";
    if let Some((why, command)) = obstacle_of(case, planned, scan) {
        return Some((why, COMPARE.to_string(), command.into_iter().collect()));
    }
    let Advice { obstacle, text, commands, .. } = pattern::of_scan(case, planned, scan)?;
    Some((obstacle?, text, commands))
}

/// Whether PLAN-11 has a finding about the statement.
pub(in crate::rules) fn is_obstructed(case: &Case, planned: &Planned<'_>) -> bool {
    planned.statement.share >= SHARE_MIN
        && scans_of(planned).iter().any(|scan| obstruction(case, planned, scan).is_some())
}

/// The index for a search by a pattern in a plan, of the table with the most rows.
pub(in crate::rules) fn pattern_of(case: &Case, planned: &Planned<'_>) -> Option<Advice> {
    let mut scans = scans_of(planned);
    scans.sort_by(|left, right| right.rows.total_cmp(&left.rows));
    scans.iter().find_map(|scan| pattern::of_scan(case, planned, scan))
}

pub(super) fn unusable(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        for scan in scans_of(&planned) {
            let Some((why, remedy, commands)) = obstruction(case, &planned, &scan) else { continue };
            let is_compared = scan.conditions.iter().all(|condition| !condition.how.is_pattern());
            let text = format!(
                "a statement that takes {} of the session time {} {} although it has an index: {why}",
                planned.share(),
                if scan.is_walk { "reads all rows of" } else { "scans" },
                scan.relation
            );
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            claims.push(
                planned
                    .claim(
                        case,
                        Level::CoOccurrence,
                        severity(planned.statement.share).max(Severity::Medium),
                        text,
                    )
                    .number("rows_of_table", scan.rows)
                    .because(format!(
                        "the plan filters {} rows of {} by {}",
                        units::short(scan.rows),
                        scan.relation,
                        scan.filter
                    ))
                    .because(planned.file())
                    .with(is_compared.then_some(NOT_ASIDE), Claim::not)
                    .remedy(remedy, &commands),
            );
        }
    }
    Answer::of(claims, || "conditions of sequential scans, against the indexes of their tables".to_string())
}
