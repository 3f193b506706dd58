//! Which statements take part in deadlocks, and of which applications, by the server's log.

use crate::case::Case;
use crate::rules::costly::plain;
use record::{event, statement};
use std::collections::{BTreeMap, BTreeSet};

/// Statements that are named in a claim.
const NAMED_MAX: usize = 2;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 90;

/// A statement, without its constants, that waited in deadlocks.
pub(super) struct Party {
    statement: String,
    applications: BTreeSet<String>,
    /// Deadlocks that it took part in.
    pub(super) count: usize,
}

/// The processes of a deadlock with their statements, by its DETAIL (`DeadLockReport` in deadlock.c): `Process 16357: UPDATE ...`, in the language of the
/// server. The last one may be cut.
fn processes(detail: &str) -> impl Iterator<Item = (&str, &str)> {
    detail.lines().filter_map(|line| {
        let line = line.trim_start();
        let begin = line.find(|c: char| c.is_ascii_digit())?;
        let rest = &line[begin..];
        let (pid, text) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let is_word = line[..begin].chars().all(|c| c.is_alphabetic() || c == ' ');
        text.strip_prefix(": ").filter(|_| is_word).map(|text| (pid, text))
    })
}

/// The statements of the deadlocks of a node, the most frequent first.
pub(super) fn parties(case: &Case, node: &str) -> Vec<Party> {
    let mut found: BTreeMap<String, Party> = BTreeMap::new();
    let its = case.events_of(event::DEADLOCK).filter(|event| Case::word_of(event, "node") == node);
    for event in its {
        let victim =
            event.more.get("pid").and_then(serde_json::Value::as_u64).unwrap_or_default().to_string();
        let own = [(victim.as_str(), Case::word_of(event, "statement"))];
        let named: BTreeMap<&str, &str> = processes(Case::word_of(event, "detail"))
            .chain(own)
            .filter(|(_, text)| !text.is_empty())
            .collect();
        let mut counted = BTreeSet::new();
        for (pid, text) in named {
            let statement = statement::parameterized(text.trim_end_matches(';'));
            let party = found.entry(statement.clone()).or_insert_with(|| Party {
                statement: statement.clone(),
                applications: BTreeSet::new(),
                count: 0,
            });
            party.count += usize::from(counted.insert(statement));
            let session = case.at("session", node).find(|session| session.name == pid);
            let application = session.map(|session| session.lines.word("application"));
            party.applications.extend(application.filter(|name| !name.is_empty()).map(str::to_string));
        }
    }
    let mut parties: Vec<Party> = found.into_values().collect();
    // A text that was cut is the beginning of a whole one.
    let whole: Vec<String> = parties.iter().map(|party| party.statement.clone()).collect();
    parties.retain(|party| {
        let begin = party.statement.trim_end_matches(record::redact::HIDDEN);
        statement::parse(&party.statement).is_ok()
            || !whole.iter().any(|other| other != &party.statement && other.starts_with(begin))
    });
    parties.sort_by_key(|party| std::cmp::Reverse(party.count));
    parties
}

impl Party {
    /// The statement with its applications.
    fn words(&self, chars: usize) -> String {
        let statement = plain(&self.statement, chars);
        let names: Vec<&str> = self.applications.iter().map(String::as_str).collect();
        match names.as_slice() {
            [] => statement,
            names => format!("{statement} ({})", plain(&names.join(", "), STATEMENT_CHARS)),
        }
    }

    /// The same as evidence.
    pub(super) fn evidence(&self, all: f64) -> String {
        format!("in {} of {all} deadlocks: {}", self.count, self.words(STATEMENT_CHARS * 3))
    }
}

/// Who they are, as the end of a claim; empty if the log does not have it.
pub(super) fn in_words(parties: &[Party]) -> String {
    match parties {
        [] => String::new(),
        [only] => format!(", between executions of one statement: {}", only.words(STATEMENT_CHARS)),
        several => {
            let named: Vec<String> =
                several.iter().take(NAMED_MAX).map(|party| party.words(STATEMENT_CHARS)).collect();
            format!(", between {}", named.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_a_deadlock_are_read_in_each_language() {
        let detail = "Process 5 waits for ShareLock on transaction 7; blocked by process 6.\nProcess 6 waits for ShareLock on transaction 8; blocked by \
            process 5.\n\
            Process 5: update t set v = 1 where id = 9\nProcess 6: delete from t: 3";
        assert_eq!(
            processes(detail).collect::<Vec<_>>(),
            [("5", "update t set v = 1 where id = 9"), ("6", "delete from t: 3")]
        );
        assert_eq!(processes("Prozess 77: select 1").collect::<Vec<_>>(), [("77", "select 1")]);
        assert_eq!(processes("Process 1634").count(), 0);
    }
}
