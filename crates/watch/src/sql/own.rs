//! What the engine or the replication system of a server makes for its own use, by its profile.

use crate::sql::session::{Failed, Session};
use engines::engine::{Signs, signs};
use engines::profile::{Own, OwnKind, OwnObjects};
use serde_json::Value;

/// Topic of the facts: what an engine makes objects of a kind for, and what ends them. The name of the fact is the kind.
const ENDS: &str = "own_ends";
/// What to do if one of them stays.
const OTHERWISE: &str = "own_otherwise";
/// The command for that.
const COMMAND: &str = "own_command";
/// What to do about sessions that wait for an advisory lock of the engine. The name of the fact is the purpose of the lock.
const LOCK_OTHERWISE: &str = "own_lock_otherwise";
/// The command for that.
const LOCK_COMMAND: &str = "own_lock_command";

/// The engines that were found on a server, with what they make for their own use.
#[derive(Debug, Default)]
pub struct Owned {
    found: Vec<(&'static str, Own)>,
}

/// The words about objects of a kind.
#[derive(Clone, Debug)]
pub struct Words {
    /// Whose they are, what they are for, and what ends them: a sentence without a full stop.
    pub ends: String,
    /// What to do if one stays.
    pub otherwise: &'static str,
    /// The command for that.
    pub command: &'static str,
    /// Whether they are there only while the engine does something.
    pub is_passing: bool,
}

impl Owned {
    /// Looks for the engines' signs in the catalog.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn of(session: &mut Session) -> Result<Owned, Failed> {
        let signs: Vec<Signs> = signs().into_iter().filter(|sign| sign.own() != Own::NOTHING).collect();
        Ok(Owned::of_signs(&present(session, &signs)?))
    }

    pub(crate) fn of_signs(signs: &[Signs]) -> Owned {
        Owned { found: signs.iter().map(|sign| (sign.title(), sign.own())).collect() }
    }

    fn objects(&self, kind: OwnKind) -> impl Iterator<Item = (&'static str, &'static OwnObjects)> {
        self.found.iter().filter_map(move |(title, own)| Some((*title, own.of(kind)?)))
    }

    /// SQL: whether the engine made the object whose name is the expression `name`; NULL where no engine makes such objects.
    pub fn condition(&self, kind: OwnKind, name: &str) -> String {
        let names: Vec<String> =
            self.objects(kind).map(|(_, objects)| format!("{name} ~ '{}'", objects.names)).collect();
        if names.is_empty() { "null::boolean".to_owned() } else { format!("({})", names.join(" or ")) }
    }

    /// SQL: what the engine takes the advisory lock of a row of `pg_locks` for; NULL for a lock of the application. `alias`: that of the row.
    pub(crate) fn lock_purpose(&self, alias: &str) -> String {
        let locks = self.found.iter().flat_map(|(_, own)| own.locks);
        let cases: Vec<String> = locks
            .map(|lock| {
                let classes: Vec<String> = lock.classes.iter().map(ToString::to_string).collect();
                format!(
                    "when {alias}.locktype = 'advisory' and {alias}.objsubid in ({}) then '{}'",
                    classes.join(", "),
                    lock.purpose
                )
            })
            .collect();
        if cases.is_empty() { "null::text".to_owned() } else { format!("case {} end", cases.join(" ")) }
    }

    /// The words about objects of a kind; `None` where no engine makes such objects.
    pub fn words(&self, kind: OwnKind) -> Option<Words> {
        let (title, objects) = self.objects(kind).next()?;
        let ends = format!("{title} {}", objects.ends);
        let OwnObjects { otherwise, command, is_passing, .. } = *objects;
        Some(Words { ends, otherwise, command, is_passing })
    }

    /// The facts about all of this: topic, name, value.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String, String)> {
        let mut facts = vec![];
        for kind in OwnKind::ALL {
            let Some(Words { ends, otherwise, command, .. }) = self.words(kind) else { continue };
            facts.push((ENDS, kind.to_string(), ends));
            facts.push((OTHERWISE, kind.to_string(), otherwise.to_owned()));
            facts.push((COMMAND, kind.to_string(), command.to_owned()));
        }
        for lock in self.found.iter().flat_map(|(_, own)| own.locks) {
            facts.push((LOCK_OTHERWISE, lock.purpose.to_owned(), lock.otherwise.to_owned()));
            facts.push((LOCK_COMMAND, lock.purpose.to_owned(), lock.command.to_owned()));
        }
        facts
    }
}

/// Those of `signs` that the server's catalog has.
pub(crate) fn present(session: &mut Session, signs: &[Signs]) -> Result<Vec<Signs>, Failed> {
    if signs.is_empty() {
        return Ok(vec![]);
    }
    let columns: Vec<&str> = signs.iter().map(|sign| sign.sql).collect();
    let found = match session.query(&format!("select json_build_array({})::text", columns.join(", ")), &[]) {
        Ok(Value::Array(found)) => found,
        Ok(_) | Err(Failed::Refused { .. }) => vec![],
        Err(gone) => return Err(gone),
    };
    let there = std::iter::zip(signs, found).filter(|(_, found)| *found == Value::Bool(true));
    Ok(there.map(|(sign, _)| *sign).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_locks_of_an_engine_become_conditions() {
        let with_locks: Vec<Signs> =
            signs().into_iter().filter(|sign| !sign.own().locks.is_empty()).collect();
        assert!(!with_locks.is_empty());
        let owned = Owned::of_signs(&with_locks);
        assert!(owned.condition(OwnKind::Prepared, "gid").starts_with("(gid ~ '^"));
        assert!(owned.lock_purpose("l").starts_with("case when l.locktype = 'advisory' and l.objsubid in ("));
        let words = owned.words(OwnKind::Prepared).expect("words");
        assert!(words.ends.starts_with(with_locks[0].title()), "{words:?}");
        assert!(owned.facts().iter().any(|(topic, name, _)| *topic == ENDS && name == "slot"));
        let none = Owned::default();
        assert_eq!(none.condition(OwnKind::Slot, "s"), "null::boolean");
        assert_eq!((none.lock_purpose("l").as_str(), none.facts().len()), ("null::text", 0));
    }
}
