//! PLAN-11: indexes that are there and that a condition cannot use.

use super::index::{Scan, obstacle_of, scans_of};
use super::pattern::{self, Advice};
use super::wanted::{self, HOW_MANY_FIT, UNSURE, Wanted, wanted};
use super::{KEPT_SHARE_MAX, Planned, SHARE_MIN, planned, severity};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// Why an index of the table of a scan cannot be used, what to do about it, and the commands.
type Obstacle = (String, String, Vec<String>);

/// What the indexes of the table rule out.
const NOT_ASIDE: &str =
    "an index that the planner leaves aside because most rows are wanted: none begins with a compared column";

/// In a claim, between a partition and the table whose partition it is.
pub(crate) const AMONG_PARTITIONS: &str = ", as other partitions of ";

/// What to do where a function takes values of the statement besides columns: no index holds its results.
const NARROW: &str = "no index holds the results of a function that takes values of the statement as well: add a condition on the columns themselves that the \
    index can search (a range around the value, a box around the point), so that the function is called for few rows; the nearest points are found by a GiST \
    index (point, earthdistance, PostGIS)";

/// Whether a condition calls a function with a column and a value.
fn takes_values(scan: &Scan<'_>) -> bool {
    scan.conditions.iter().any(|one| {
        let is_call = one.inside.as_deref().is_some_and(|inside| inside.ends_with("()"));
        is_call && one.computed.as_deref().is_some_and(|computed| computed.contains('$'))
    })
}

/// What PLAN-11 reports of a scan.
fn obstruction(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Option<Obstacle> {
    const COMPARE: &str = "compare the column itself with a value of its own type and collation (instead of a function of a time: at >= $1 AND at < $2; \
        instead of value = ANY (column): column @> ARRAY[value]; for a partial index with its own WHERE), or create an index on what is compared";
    if let Some((why, command)) = obstacle_of(case, planned, scan) {
        let text = if takes_values(scan) { NARROW } else { COMPARE };
        return Some((why, text.to_string(), command.into_iter().collect()));
    }
    let Advice { obstacle, text, commands, .. } = pattern::of_scan(case, planned, scan)?;
    Some((obstacle?, text, commands))
}

/// Whether PLAN-11 has a finding about the statement.
pub(in crate::rules) fn is_obstructed(case: &Case, planned: &Planned<'_>) -> bool {
    planned.statement.share >= SHARE_MIN
        && scans_of(planned).iter().any(|scan| !scan.is_minor() && obstruction(case, planned, scan).is_some())
}

/// The index for a search by a pattern in a plan, of the table with the most rows.
pub(in crate::rules) fn pattern_of(case: &Case, planned: &Planned<'_>) -> Option<Advice> {
    let mut scans = scans_of(planned);
    scans.sort_by(|left, right| right.rows.total_cmp(&left.rows));
    scans.iter().find_map(|scan| pattern::of_scan(case, planned, scan))
}

/// Why an index that the condition could use may gain nothing.
fn doubt(planned: &Planned<'_>, scan: &Scan<'_>) -> Option<String> {
    let returned = planned.statement.rows.unwrap_or(0.0);
    let is_many = !wanted::joins(planned) && returned >= scan.rows * KEPT_SHARE_MAX;
    // The planner expects a fixed share of a condition on an expression, whatever it keeps.
    let is_of_each = scan.conditions.iter().any(|one| {
        one.computed
            .as_deref()
            .is_some_and(|computed| computed.contains(" % ") || computed.starts_with("mod("))
    });
    match wanted(planned, scan.relation) {
        _ if is_of_each => Some(
            "how many rows fit the condition: a remainder keeps one row of so many, and of a third or a half of them an index gains little"
                .to_string(),
        ),
        Wanted::Unknown => Some(HOW_MANY_FIT.to_string()),
        Wanted::Many => Some(format!(
            "how many rows fit the condition: the plan expects {} of {}, and of so many an index gains little",
            units::short(scan.kept),
            units::short(scan.rows)
        )),
        Wanted::Few => is_many.then(|| {
            format!("how many rows fit the condition: an execution returns {}, and of so many an index gains little", units::short(returned))
        }),
    }
}

pub(super) fn unusable(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let scans = scans_of(&planned);
        let wholes: Vec<Option<String>> =
            scans.iter().map(|scan| whole_of(case, &planned, scan.relation)).collect();
        let mut known: Vec<&String> = vec![];
        for (scan, whole) in scans.iter().zip(&wholes) {
            // Of a table that is scanned in many parts, one shows what is wrong with all.
            let whole =
                whole.as_ref().filter(|whole| wholes.iter().flatten().filter(|one| one == whole).count() > 1);
            let is_minor = scan.is_minor() && whole.is_none();
            if is_minor || whole.is_some_and(|whole| known.contains(&whole)) {
                continue;
            }
            let Some(obstacle) = obstruction(case, &planned, scan) else { continue };
            claims.push(of_obstacle(case, &planned, scan, obstacle, whole.map(String::as_str)));
            known.extend(whole);
        }
    }
    Answer::of(claims, || "conditions of sequential scans, against the indexes of their tables".to_string())
}

/// The table that a relation is a partition of.
fn whole_of(case: &Case, planned: &Planned<'_>, relation: &str) -> Option<String> {
    let mut tables = case.at("table", &planned.time.node);
    let table = tables.find(|table| table.lines.word("relation") == relation)?;
    Some(table.lines.word("partition_of").to_string()).filter(|whole| !whole.is_empty())
}

fn of_obstacle(
    case: &Case,
    planned: &Planned<'_>,
    scan: &Scan<'_>,
    obstacle: Obstacle,
    whole: Option<&str>,
) -> Claim {
    let (why, remedy, commands) = obstacle;
    let is_compared = scan.conditions.iter().all(|condition| !condition.how.is_pattern());
    let doubt = doubt(planned, scan);
    let text = format!(
        "a statement that takes {} of the session time {} {}{} although it has an index: {why}",
        planned.share(),
        if scan.is_walk { "reads all rows of" } else { "scans" },
        scan.relation,
        whole.map_or(String::new(), |whole| format!("{AMONG_PARTITIONS}{whole},"))
    );
    let usual = severity(planned.statement.share).max(Severity::Medium);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    planned
        .claim(case, Level::CoOccurrence, if doubt.is_some() { Severity::Low } else { usual }, text)
        .number("rows_of_table", scan.rows)
        .because(format!(
            "the plan filters {} rows of {} by {}",
            units::short(scan.rows),
            scan.relation,
            scan.filter
        ))
        .because(planned.file())
        .with(is_compared.then_some(NOT_ASIDE), Claim::not)
        .with(whole, |claim, whole| {
            claim.because(format!(
                "if {whole} is partitioned by that column, no partition can be left out either"
            ))
        })
        .with(doubt, |claim, lack| claim.lacking(lack).number(UNSURE, 1.0))
        .remedy(remedy, &commands)
}
