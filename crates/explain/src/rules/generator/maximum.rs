//! Keys that an INSERT computes as the highest one and one more: sessions at the same time compute the same.

use crate::case::Case;
use crate::rules::costly::{lowered, plain};

/// Characters of the statement in a claim.
const TEXT_CHARS: usize = 120;

/// The statement that does it for the constraint of this error, if one of the recording does: by its default name a constraint has the table and the
/// column in it.
pub(super) fn statement(case: &Case, error: &str) -> Option<String> {
    let constraint = error.split('"').nth(1)?.to_ascii_lowercase();
    let texts = case.events_of(record::event::QUERY).map(|event| Case::word_of(event, "text"));
    let seen = case.things("session").map(|session| session.lines.word("query"));
    let fits = |text: &&str| {
        of_key(text)
            .is_some_and(|(table, column)| constraint.contains(&table) && constraint.contains(&column))
    };
    texts.chain(seen).find(fits).map(|text| plain(text, TEXT_CHARS))
}

/// The same as the end of a claim.
pub(super) fn words(maximum: Option<&str>) -> String {
    let words = |text| {
        format!(
            ": sessions at the same time compute the same next number, the highest one and one more ({text})"
        )
    };
    maximum.map_or_else(String::new, words)
}

/// What helps.
pub(super) const BY_SEQUENCE: &str = "take the number from a sequence or an identity column; if there may be no gaps, keep the last number in a row that \
    each transaction \
    updates first (UPDATE counter SET last = last + 1 ... RETURNING last), which makes them wait for each other and not fail";

/// Whether a text inserts `max(...) + 1` of the table that it inserts into, or selects that for an INSERT of its own: the table, and
/// the column.
fn of_key(text: &str) -> Option<(String, String)> {
    let text = lowered(text);
    let (before, after) = text.split_once("max(")?;
    // coalesce(max(number), 0) + 1
    let (column, rest) = after.split_once(')')?;
    let adds = rest.chars().take(16).any(|c| c == '+');
    let from = rest.split_once(" from ").map_or("", |(_, from)| from);
    let source = from.split([' ', ';', ')']).next().unwrap_or_default();
    let target = before.strip_prefix("insert into ").and_then(|rest| rest.split([' ', '(']).next());
    let is_own = target.is_some_and(|target| target == source);
    // A mapper asks first and inserts then.
    let is_alone = before.trim_end_matches("coalesce(").trim() == "select" && !rest.contains(" group by ");
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).trim_matches('"').to_string();
    (adds && !column.is_empty() && (is_own || is_alone)).then(|| (bare(source), bare(column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_number_is_the_highest_and_one() {
        for (text, is) in [
            (
                "INSERT INTO b.invoice (series, number) SELECT $1, coalesce(max(number), 0) + 1 FROM b.invoice WHERE series = $1",
                true,
            ),
            ("select max(no) + $1 from ticket", true),
            ("select coalesce(max(no), $1) + $2 from ticket where kind = $3", true),
            ("select max(no) from ticket", false),
            ("insert into daily select max(price) + $1 from sale", false),
            ("select shop, max(price) + 1 from sale group by shop", false),
        ] {
            assert_eq!(of_key(text).is_some(), is, "{text}");
        }
    }
}
