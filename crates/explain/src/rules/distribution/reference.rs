//! Waits for a row that a statement does not name: the check of a foreign key locks the row that it refers to.

use crate::case::Case;
use crate::rules::costly::{is_name_of, lowered, plain};
use record::event;
use record::statement::{self, Verb};

/// Characters of a statement.
const STATEMENT_CHARS: usize = 80;
/// The lock that a foreign key check waits for, and the one that it passes.
const STRONG: &str = "for update";

/// A check of a foreign key that waits.
pub(super) struct Reference {
    /// As the end of a claim.
    pub(super) words: String,
    /// The statement that locks the rows more strongly than it needs to, if one is known.
    pub(super) locked_by: Option<String>,
}

/// What to do about it.
pub(super) const REMEDY: &str = "lock rows of the referenced table FOR NO KEY UPDATE, which lets foreign key checks (FOR KEY SHARE) pass, as long as \
    neither the key changes nor \
    the row is deleted; and commit before the program does anything else";

impl Reference {
    /// What waits for rows of `relation`, if it writes another table.
    pub(super) fn of(case: &Case, waiting: &str, relation: &str) -> Option<Reference> {
        let parsed = statement::parse(waiting).ok()?;
        let writes = matches!(parsed.verb, Verb::Insert | Verb::Update);
        let target = parsed.tables.first().filter(|_| writes)?;
        if relation.is_empty() || parsed.tables.iter().any(|table| is_name_of(table, relation)) {
            return None;
        }
        let is_it = |text: &&str| {
            let is_strong = lowered(text).contains(STRONG);
            let names_it =
                |parsed: statement::Statement| parsed.tables.iter().any(|table| is_name_of(table, relation));
            is_strong && statement::parse(text).is_ok_and(names_it)
        };
        let texts = case.events_of(event::QUERY).map(|event| Case::word_of(event, "text"));
        let locked_by = texts.into_iter().find(is_it).map(|text| plain(text, STATEMENT_CHARS));
        let target = statement::quoted(&target.name);
        Some(Reference {
            words: format!(
                ": rows written to {target} wait until their foreign key to {relation} can be checked{}",
                if locked_by.is_some() { ", whose rows are locked FOR UPDATE" } else { "" }
            ),
            locked_by,
        })
    }
}
