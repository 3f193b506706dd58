//! What an engine makes for its own use, by the facts of the recording: whose it is, what ends it, and what to do if it stays.

use crate::case::Case;

/// The topics in which `watch` records the words of the engine's profile.
const ENDS: &str = "own_ends";
const OTHERWISE: &str = "own_otherwise";
const COMMAND: &str = "own_command";
const LOCK_OTHERWISE: &str = "own_lock_otherwise";
const LOCK_COMMAND: &str = "own_lock_command";

/// Kinds of objects, as the facts name them.
pub(super) const PREPARED: &str = "prepared transaction";
pub(super) const SLOT: &str = "slot";
pub(super) const SUBSCRIPTION: &str = "subscription";

/// The words about objects of one kind that the engine of a node makes for its own use.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// Whose they are and what ends them.
    pub(super) ends: String,
    /// What to do if one stays; instead of what a user does about an object of his own.
    pub(super) otherwise: String,
    /// The command for that.
    pub(super) command: String,
}

fn fact<'a>(case: &'a Case, topic: &'a str, node: &str, name: &str) -> &'a str {
    case.facts(topic)
        .find(|fact| fact.node == node && fact.name == name)
        .map_or("", |fact| fact.value.as_str())
}

/// The words about objects of this kind.
pub(super) fn of(case: &Case, node: &str, kind: &str) -> Own {
    let ends = match fact(case, ENDS, node, kind) {
        "" => format!("the cluster's engine made this {kind} for its own use, and ends it itself"),
        ends => ends.to_string(),
    };
    let otherwise = match fact(case, OTHERWISE, node, kind) {
        "" => "look in the engine's documentation for what ends it",
        otherwise => otherwise,
    };
    Own {
        ends,
        otherwise: format!("do not end it by hand; if it stays: {otherwise}"),
        command: fact(case, COMMAND, node, kind).to_string(),
    }
}

/// The same for an advisory lock that the engine takes for this purpose.
pub(super) fn lock(case: &Case, node: &str, purpose: &str) -> Own {
    Own {
        ends: format!("the engine of the cluster takes this lock itself, for {purpose}"),
        otherwise: fact(case, LOCK_OTHERWISE, node, purpose).to_string(),
        command: fact(case, LOCK_COMMAND, node, purpose).to_string(),
    }
}

impl Own {
    /// The command, if there is one.
    pub(super) fn commands(&self) -> Vec<&str> {
        Some(self.command.as_str()).filter(|command| !command.is_empty()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::fed;

    #[test]
    fn words_come_from_the_facts_of_the_node_and_have_a_default() {
        let case = fed(&[
            r#"{"t_us":1,"source":"fact","node":"n1","topic":"own_ends","name":"slot","value":"Engine made it"}"#,
            r#"{"t_us":1,"source":"fact","node":"n1","topic":"own_otherwise","name":"slot","value":"clean up"}"#,
            r#"{"t_us":1,"source":"fact","node":"n1","topic":"own_command","name":"slot","value":"CALL clean();"}"#,
        ]);
        let own = of(&case, "n1", SLOT);
        assert_eq!((own.ends.as_str(), own.commands()), ("Engine made it", vec!["CALL clean();"]));
        assert_eq!(own.otherwise, "do not end it by hand; if it stays: clean up");
        let unknown = of(&case, "n2", PREPARED);
        assert!(unknown.ends.contains("ends it itself") && unknown.commands().is_empty(), "{unknown:?}");
    }
}
