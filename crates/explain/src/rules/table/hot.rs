//! VAC-09: updates that are not heap-only, and why: an indexed column changes, or the page has no room for the new version.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{is_name_of, plain, severity};
use crate::rules::paste::literal;
use crate::units;
use record::finding::{Level, Severity, StatementTime};
use record::statement::{self, Verb};

/// The share of the session time from which on it is more than a remark.
const SHARE_MIN: f64 = 0.2;
/// Updates a second.
const UPDATES_PER_S_MIN: f64 = 200.0;
/// The share of heap-only updates.
const HOT_SHARE_MAX: f64 = 0.3;
/// Indexes that an update writes.
const INDEXES_MIN: f64 = 3.0;
/// Of the updates that are not heap-only, those to another page: from here on the room is the reason.
const NEW_PAGE_SHARE_MIN: f64 = 0.5;
/// Columns that a statement sets: with as many, an object mapper writes all of a row, whatever has changed.
const ASSIGNED_MANY: usize = 5;
/// With this fillfactor there should be room.
const FILL_LOW: f64 = 90.0;
/// Blocks that an update touches for each index and the table, from which on entries of indexes are most of its work.
const BLOCKS_PER_INDEX_MIN: f64 = 2.0;
/// Of the time of such updates, the share that heap-only ones would save.
const SAVED: f64 = 0.6;
/// Characters of a statement.
const STATEMENT_CHARS: usize = 160;

/// Why updates are not heap-only.
enum Reason<'a> {
    /// A statement sets a column of this index.
    Indexed { index: String, column: String, text: &'a str, assigned: usize },
    /// The page has no room. The share of these updates that went to another page, if the server counts them, and whether the columns of the statements
    /// are known.
    Room(Option<f64>, bool),
    /// Pages have room, and no known statement sets an indexed column.
    Hidden,
    /// Nothing recorded shows it.
    Unknown,
}

/// Indexes with their columns: `index(column, column); ...`.
fn indexes(written: &str) -> Vec<(&str, Vec<&str>)> {
    let parts = written.split("; ").filter_map(|part| {
        let (open, close) = (part.find('(')?, part.rfind(')')?);
        (open < close).then(|| (&part[..open], part[open + 1..close].split(", ").collect()))
    });
    parts.collect()
}

/// Statements that update a table, with the columns that they set; the most frequent first.
fn updates<'a>(case: &'a Case, table: &Thing<'a>) -> Vec<(&'a str, Vec<String>)> {
    let relation = table.lines.word("relation");
    let database = table.lines.word("database");
    let mut found: Vec<(f64, &str, Vec<String>)> = vec![];
    for line in case.at("statement", table.place) {
        let text = case.query(line.lines.word("query_id")).unwrap_or_default();
        let is_there = [database, ""].contains(&line.lines.word("database"));
        if !is_there || !text.to_ascii_lowercase().contains("update") {
            continue;
        }
        let Ok(parsed) = statement::parse(text) else { continue };
        let is_it = parsed.tables.first().is_some_and(|named| is_name_of(named, relation));
        if is_it && !parsed.assigned.is_empty() {
            found.push((line.lines.sum("calls").unwrap_or(0.0), text, parsed.assigned));
        }
    }
    found.sort_by(|left, right| right.0.total_cmp(&left.0));
    found.into_iter().map(|(_, text, assigned)| (text, assigned)).collect()
}

fn reason<'a>(case: &'a Case, table: &Thing<'a>, cold: f64) -> Reason<'a> {
    let indexes = indexes(table.lines.word("index_columns"));
    let updates = updates(case, table);
    for (text, assigned) in &updates {
        for column in assigned {
            let holds = |(_, columns): &&(&str, Vec<&str>)| columns.contains(&column.as_str());
            if let Some((index, _)) = indexes.iter().find(holds) {
                let (index, column) = ((*index).to_string(), column.clone());
                return Reason::Indexed { index, column, text, assigned: assigned.len() };
            }
        }
    }
    let moved =
        table.lines.rate("rows_newpage_updated").map(|moved| (moved / cold.max(f64::MIN_POSITIVE)).min(1.0));
    // What the statements set is known, and no index has it.
    let is_known = !indexes.is_empty() && !updates.is_empty();
    match moved {
        Some(moved) if moved >= NEW_PAGE_SHARE_MIN => Reason::Room(Some(moved), is_known),
        Some(_) => Reason::Hidden,
        None if is_known => Reason::Room(None, true),
        None => Reason::Unknown,
    }
}

/// The share of the session time of updates of a table whose work is mostly entries of its indexes: by the blocks that each of their rows touches.
fn share_of_updates(case: &Case, table: &Thing<'_>, indexes: f64) -> f64 {
    let Some(time) = node_time::all(case).iter().find(|time| time.node == table.place) else { return 0.0 };
    let relation = table.lines.word("relation");
    let is_it = |one: &&StatementTime| {
        let (blocks, rows) = (one.blocks.unwrap_or(0.0), one.rows.unwrap_or(0.0).max(1.0));
        let writes = statement::parse(&one.text).is_ok_and(|parsed| {
            parsed.verb == Verb::Update
                && parsed.tables.first().is_some_and(|name| is_name_of(name, relation))
        });
        writes && blocks / rows >= (indexes + 1.0) * BLOCKS_PER_INDEX_MIN
    };
    time.statements.iter().filter(is_it).map(|one| one.share).sum()
}

pub(super) fn not_hot(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        let (updates, hot) = (rate("rows_updated"), rate("rows_hot_updated"));
        let indexes = table.lines.last("indexes").unwrap_or(0.0);
        let hot_share = hot / updates.max(f64::MIN_POSITIVE);
        if updates < UPDATES_PER_S_MIN || indexes < INDEXES_MIN || hot_share >= HOT_SHARE_MAX {
            continue;
        }
        let fill = table.lines.last("fillfactor").unwrap_or(100.0);
        let reason = reason(case, &table, updates - hot);
        let why = match &reason {
            Reason::Indexed { index, column, .. } => format!(": they set {column}, which index {index} has"),
            Reason::Room(..) => {
                format!(": their pages have no room for another version of a row (fillfactor {fill:.0})")
            }
            Reason::Hidden => {
                ": a column of an index changes, by a trigger or a statement that is not known".to_string()
            }
            Reason::Unknown => String::new(),
        };
        let share = share_of_updates(case, &table, indexes);
        let felt = match &reason {
            Reason::Indexed { .. } | Reason::Room(_, true) if share * SAVED >= SHARE_MIN => {
                severity(share * SAVED)
            }
            _ => Severity::Low,
        };
        let claim = Claim::new(
            felt,
            match reason {
                Reason::Room(None, _) | Reason::Room(_, false) => Level::CoOccurrence,
                _ => Level::DiscriminatingCounter,
            },
            format!(
                "{}: {} of {} updates a second of {} are heap-only, the others write all of its {indexes:.0} indexes{}",
                table.place,
                units::percent(hot_share),
                units::short(updates),
                table.lines.word("relation"),
                plain(&why, STATEMENT_CHARS)
            ),
        )
        .on_node(table.place)
        .during([table.lines.ticks.window()])
        .number("hot_update_share", hot_share)
        .number("updates_per_s", updates)
        .number("indexes", indexes)
        .because(format!("its fillfactor is {fill:.0}: that much of a page is filled before an update comes"));
        let claim = claim.with((felt > Severity::Low).then_some(share), |claim, share| {
            claim.number("share", share).because(format!(
                "updates of it take {} of the session time, and touch {} blocks or more for each of its indexes and row",
                units::percent(share),
                units::short(BLOCKS_PER_INDEX_MIN)
            ))
        });
        claims.push(with_reason(claim, &table, reason, fill));
    }
    Answer::of(claims, || "heap-only updates of tables with several indexes".to_string())
}

/// What shows the reason, and what to do about it.
fn with_reason(claim: Claim, table: &Thing<'_>, reason: Reason<'_>, fill: f64) -> Claim {
    let relation = table.lines.word("relation");
    let uses = format!(
        "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relid = {}::regclass ORDER BY idx_scan;",
        literal(relation)
    );
    let room = format!(
        "ALTER TABLE {relation} SET (fillfactor = {:.0});",
        if fill > FILL_LOW { 80.0 } else { (fill - 15.0).max(50.0) }
    );
    match reason {
        Reason::Indexed { index, column, text, assigned } => {
            let schema = statement::schema_of(relation);
            let drop = format!(
                "DROP INDEX CONCURRENTLY {schema}.{}; -- only if idx_scan shows that no statement needs it, here and on the standbys",
                statement::quoted(&index)
            );
            claim
                .because(format!("the statement: {}", record::escape::one_line(text, STATEMENT_CHARS)))
                .because(format!("index {index} has column {column}: a new version with another value needs a new entry in every index"))
                .with((assigned >= ASSIGNED_MANY).then_some(()), |claim, ()| {
                    claim.lacking(format!(
                        "whether the value of {column} changes: the statement sets {assigned} columns, as object mappers do; a value that stays the same \
                         does no harm"
                    ))
                })
                .remedy(
                    format!("take {column} out of the indexes if no statement searches by it, or keep it in a table of its own; idx_scan shows what is used"),
                    &[&uses, &drop],
                )
        }
        Reason::Room(moved, is_known) => for_room(known(claim, is_known), relation, moved, fill, &room),
        Reason::Hidden => claim
            .not("the room in the pages: most new versions stay in their page (n_tup_newpage_upd)")
            .lacking("which column: a trigger may set it, or a statement whose text was not recorded")
            .remedy(
                "look for the index whose column changes: among the triggers, and among the statements; drop it if no statement searches by it",
                &[
                    &uses,
                    &format!("SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = {}::regclass AND NOT tgisinternal;", literal(relation)),
                ],
            ),
        Reason::Unknown => claim.lacking("which: an index on an updated column, or no room in the page").remedy(
            "drop indexes on columns that are updated if no statement needs them; else leave room in the pages (for new pages only; VACUUM FULL rewrites \
             the old ones and blocks the table)",
            &[&uses, &room],
        ),
    }
}

/// Whether another reason is ruled out: an indexed column that changes.
fn known(claim: Claim, is_known: bool) -> Claim {
    match is_known {
        true => claim.not("an index on a changed column: no statement that was recorded sets a column of an index"),
        false => claim.lacking("which columns are updated: an index on one of them has the same effect; pg_stat_statements has the statements"),
    }
}

/// The page has no room. `moved`: the share of these updates that went to another page.
fn for_room(claim: Claim, relation: &str, moved: Option<f64>, fill: f64, room: &str) -> Claim {
    claim
        .with(moved, |claim, moved| {
            claim.number("new_page_share", moved).because(format!(
                "{} of the updates that are not heap-only put the new version into another page (n_tup_newpage_upd)",
                units::percent(moved)
            ))
        })
        .with(moved.is_none().then_some(()), |claim, ()| {
            claim.lacking("how many new versions went to another page: PostgreSQL 16 counts them (n_tup_newpage_upd)")
        })
        .with((fill <= FILL_LOW).then_some(()), |claim, ()| {
            claim.lacking("why the room is not enough: dead versions stay in the page while an old snapshot may need them (VAC-05)")
        })
        .remedy(
            "leave room in the pages for new versions (fillfactor); it is for new pages only: VACUUM FULL rewrites the old ones and blocks the table, \
             pg_repack does so without blocking it",
            &[
                room,
                &format!(
                    "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = {}::regclass; -- before and after",
                    literal(relation)
                ),
            ],
        )
}

#[cfg(test)]
mod tests {
    use super::indexes;

    #[test]
    fn indexes_are_read_with_their_columns() {
        assert_eq!(
            indexes("profile_pkey(id); by_name(name, town)"),
            [("profile_pkey", vec!["id"]), ("by_name", vec!["name", "town"])]
        );
        assert!(indexes("").is_empty() && indexes("odd").is_empty() && indexes(")(").is_empty());
    }
}
