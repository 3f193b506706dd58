//! Rows that a statement locks besides those it wants: FOR UPDATE of a join locks the rows of all of its tables.

use crate::rules::costly::lowered;
use record::statement;

/// What such a statement should lock.
pub(super) struct Joined {
    /// The end of a claim.
    pub(super) words: String,
}

/// What helps.
pub(super) const REMEDY: &str = "name the table whose rows are to be locked: FOR UPDATE OF table (in Django select_for_update(of=('self',)), in Hibernate \
    a lock without the joined entities), or read the other table by a statement of its own; FOR NO KEY UPDATE leaves room for foreign keys that refer to the \
    row";

/// `None` unless the statement locks the rows of a join without naming a table, and `relation` is not the first of its tables.
pub(super) fn of(text: &str, relation: &str) -> Option<Joined> {
    let text_lowered = lowered(text);
    let locks = ["for update", "for no key update", "for share", "for key share"];
    let (at, lock) = locks.iter().find_map(|lock| Some((text_lowered.rfind(lock)?, *lock)))?;
    if text_lowered[at + lock.len()..].trim_start().starts_with("of ") {
        return None;
    }
    let parsed = statement::parse(text).ok()?;
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
    let first = parsed.tables.first().filter(|first| first.name != name)?;
    parsed.tables.iter().skip(1).any(|table| table.name == name).then(|| Joined {
        words: format!(
            ", which {} of a join locks besides those of {}",
            lock.to_ascii_uppercase(),
            statement::quoted(&first.name)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_join_is_locked_as_a_whole_unless_a_table_is_named() {
        let text = "select o.id, w.name from customer_order o join warehouse w on o.warehouse_id = w.id where o.id = $1 limit $2 for update";
        let words = |text: &str, relation: &str| of(text, relation).map(|joined| joined.words);
        assert_eq!(
            words(text, "public.warehouse").as_deref(),
            Some(", which FOR UPDATE of a join locks besides those of \"customer_order\"")
        );
        assert_eq!(words(text, "public.customer_order"), None, "that is what is wanted");
        assert_eq!(words(&format!("{text} of o"), "public.warehouse"), None);
        assert_eq!(words("select id from warehouse where id = $1 for update", "public.warehouse"), None);
        assert_eq!(words("select id from warehouse w join a on a.id = w.id", "public.a"), None);
    }
}
