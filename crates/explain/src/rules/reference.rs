//! Waits for a row that a statement does not name: the check of a foreign key locks the row that it refers to, or a trigger changes a row of its own.

use crate::case::{Case, Thing};
use crate::rules::costly::{is_name_of, lowered, parts_of, peculiar_of, plain};
use record::event;
use record::statement::{self, TableName, Verb};

/// Characters of a statement.
const STATEMENT_CHARS: usize = 80;
/// The lock that a foreign key check waits for, and the one that it passes.
const STRONG: &str = "for update";

/// Locks of a tuple that a change of the row takes; a check of a foreign key takes weaker ones (`tupleLockExtraInfo` in heapam.c).
const OF_A_CHANGE: [&str; 2] = ["ExclusiveLock", "AccessExclusiveLock"];
/// Characters of what is unusual about a table.
const TRIGGER_CHARS: usize = 120;

/// SQLSTATE of a key that is there already.
const UNIQUE_VIOLATION: &str = "23505";

/// Levels of partitions that are followed.
const LEVELS_MAX: usize = 5;

/// A wait for rows of a table that the statement does not name.
pub(super) struct Reference {
    /// As the end of a claim.
    pub(super) words: String,
    /// The statement that locks the rows more strongly than it needs to, if one is known.
    pub(super) locked_by: Option<String>,
    /// The row is changed, and not only referred to.
    pub(super) is_change: bool,
    /// The rows are of another table than the statement's, and no lock shows of which.
    pub(super) is_of_unknown: bool,
}

/// What to do where a trigger changes the same row each time.
pub(super) const SPLIT: &str = "let the trigger write a row of its own for each change, which a job adds up, or spread the row over several; else change it \
    last, and commit before the program does anything else (a call of another service, a question to its user)";

/// What to do about it.
pub(super) const REMEDY: &str = "lock rows of the referenced table FOR NO KEY UPDATE, which lets foreign key checks (FOR KEY SHARE) pass, as long as neither \
    the key changes nor the row is deleted; and commit before the program does anything else";

/// What an INSERT waits for, if a statement locks rows of a table that its target refers to more strongly than it needs to: that table, and the statement.
pub(super) fn locked_for(case: &Case, node: &str, waiting: &str) -> Option<(String, String)> {
    let parsed = statement::parse(waiting).ok().filter(|parsed| parsed.verb == Verb::Insert)?;
    let target = parsed.tables.first()?;
    let mut tables = case.at("table", node);
    let table = tables.find(|table| is_name_of(target, table.lines.word("relation")))?;
    table.lines.word("foreign_keys").split("; ").filter(|key| !key.is_empty()).find_map(|key| {
        let mut texts = case.events_of(event::QUERY).map(|event| Case::word_of(event, "text"));
        let text = texts.find(|text| locks_strongly(text, key))?;
        Some((key.to_string(), plain(text, STATEMENT_CHARS)))
    })
}

/// Whether a statement locks rows of a table FOR UPDATE.
fn locks_strongly(text: &str, relation: &str) -> bool {
    let names_it =
        |parsed: statement::Statement| parsed.tables.iter().any(|table| is_name_of(table, relation));
    lowered(text).contains(STRONG) && statement::parse(text).is_ok_and(names_it)
}

impl Reference {
    /// What waits for rows of `relation`, if it writes another table.
    pub(super) fn of(case: &Case, node: &str, waiting: &str, relation: &str) -> Option<Reference> {
        let parsed = statement::parse(waiting).ok()?;
        let writes = matches!(parsed.verb, Verb::Insert | Verb::Update);
        let target = parsed.tables.first().filter(|_| writes)?;
        if let Some(trigger) = trigger_that_waits(case, node, waiting, &parsed) {
            let target = statement::quoted(&target.name);
            let seen = case.waiters(node).map(|waiter| &waiter.row_of).find(|seen| !seen.is_empty());
            let seen = seen.map_or(String::new(), |seen| format!("; the rows are those of {seen}"));
            let words = format!(
                ": a trigger of {target} waits for them ({trigger}{seen}), as a new row waits for no other: each row that is written \
                    also changes one that others change"
            );
            return Some(Reference { words, locked_by: None, is_change: true, is_of_unknown: true });
        }
        let wholes = wholes_of(case, node, relation);
        let names_it = |table: &TableName| wholes.iter().any(|whole| is_name_of(table, whole));
        if relation.is_empty()
            || parsed.tables.iter().any(names_it)
            || is_named_by_waiter(case, node, relation)
        {
            return None;
        }
        let mut texts = case.events_of(event::QUERY).map(|event| Case::word_of(event, "text"));
        let locked_by =
            texts.find(|text| locks_strongly(text, relation)).map(|text| plain(text, STATEMENT_CHARS));
        let is_referred_to = has_foreign_key(case, node, target, &wholes);
        let target = statement::quoted(&target.name);
        if locked_by.is_none() && is_changed(case, node, relation) {
            let trigger = trigger_of(case, node, waiting).map(|trigger| format!(" ({trigger})"));
            let words = format!(
                ": each row written to {target} also changes a row of {relation}, as a trigger does{}",
                trigger.unwrap_or_default()
            );
            return Some(Reference { words, locked_by, is_change: true, is_of_unknown: false });
        }
        is_referred_to.then(|| Reference {
            is_change: false,
            is_of_unknown: false,
            words: format!(
                ": rows written to {target} wait until their foreign key to {relation} can be checked{}",
                if locked_by.is_some() { ", whose rows are locked FOR UPDATE" } else { "" }
            ),
            locked_by,
        })
    }
}

/// The triggers of a table that a statement names.
fn trigger_of(case: &Case, node: &str, text: &str) -> Option<String> {
    let facts = peculiar_of(case, node, text);
    let fact = facts.into_iter().find(|fact| fact.value.contains("trigger "))?;
    Some(plain(&fact.value, TRIGGER_CHARS))
}

/// The trigger of a table, if an INSERT into it waits for the transactions of others and no lock shows for which row. A new row waits for another one only
/// where both have the same key, which ends in an error for one of them. An upsert in a trigger waits in this way: it looks for its key in the index, and
/// has no lock of the row yet (`check_exclusion_or_unique_constraint` in execIndexing.c).
fn trigger_that_waits(
    case: &Case,
    node: &str,
    waiting: &str,
    parsed: &statement::Statement,
) -> Option<String> {
    let is_plain = parsed.verb == Verb::Insert && !lowered(waiting).contains("on conflict");
    let mut blocks = case.at("block", node).peekable();
    let is_unknown = blocks.peek().is_some()
        && blocks.all(|block| {
            block.lines.word("relation").is_empty() && block.lines.word("lock_type") == "transactionid"
        });
    let mut errors = case.events_of(event::SERVER_LOG);
    let has_same_keys = errors.any(|error| {
        Case::word_of(error, "sqlstate") == UNIQUE_VIOLATION || error.message.contains("duplicate key value")
    });
    (is_plain && is_unknown && !has_same_keys).then(|| trigger_of(case, node, waiting)).flatten()
}

/// A relation, and the tables that it is a partition of.
fn wholes_of(case: &Case, node: &str, relation: &str) -> Vec<String> {
    let mut wholes = vec![relation.to_string()];
    while wholes.len() < LEVELS_MAX {
        let last = parts_of(&wholes[wholes.len() - 1]).1;
        let mut tables = case.at("table", node);
        let Some(table) = tables.find(|table| parts_of(table.lines.word("relation")).1 == last) else {
            break;
        };
        match table.lines.word("partition_of") {
            "" => break,
            whole => wholes.push(whole.to_string()),
        }
    }
    wholes
}

/// Whether a session that waited for a row of the relation names it itself. The statement that was seen most need not be its own: statements that differ only
/// in the number of a shard have one id on all nodes.
fn is_named_by_waiter(case: &Case, node: &str, relation: &str) -> bool {
    // A text that was cut off may have the name for anything.
    let names_it = |query: &str| match statement::parse(query) {
        Ok(parsed) => parsed.tables.iter().any(|table| is_name_of(table, relation)),
        Err(_) => statement::names(query).contains(&parts_of(relation).1),
    };
    let mut waiters = case.waiters(node).filter(|waiter| waiter.relation == relation);
    waiters.any(|waiter| names_it(&waiter.query))
}

/// Whether the record has a foreign key of a table, or of its partitions, that refers to one of these.
fn has_foreign_key(case: &Case, node: &str, target: &TableName, wholes: &[String]) -> bool {
    let is_target = |table: &Thing<'_>| {
        is_name_of(target, table.lines.word("relation"))
            || parts_of(table.lines.word("partition_of")).1 == target.name
    };
    let names: Vec<String> = wholes.iter().map(|whole| parts_of(whole).1).collect();
    let refers = |table: Thing<'_>| {
        let mut keys = table.lines.word("foreign_keys").split("; ");
        keys.any(|key| names.contains(&parts_of(key).1))
    };
    case.at("table", node).filter(is_target).any(refers)
}

/// Whether sessions wait in order to change rows of this table, rather than to check that they are there. The first in the queue waits for a transaction, and
/// only those behind it for the row, with the lock that they want. A table that is changed by others as well shows nothing.
fn is_changed(case: &Case, node: &str, relation: &str) -> bool {
    let mut waits = case.at("block", node).filter(|block| block.lines.word("relation") == relation);
    waits.any(|block| {
        block.lines.word("lock_type") == "tuple" && OF_A_CHANGE.contains(&block.lines.word("mode"))
    })
}
