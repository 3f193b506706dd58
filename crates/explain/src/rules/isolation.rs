//! Which isolation level transactions have that choose none, and whose setting that is.

use crate::case::Case;
use crate::case::engine::reset_command;

/// The setting of transactions that choose no isolation level.
const NAME: &str = "default_transaction_isolation";

/// That transactions fail because they conflict, as the end of a claim.
pub(super) fn conflicting(is_strict: bool, level: &str, whose: &str) -> String {
    let because = match is_strict {
        true => format!(", because default_transaction_isolation is {level}{whose}"),
        false => String::new(),
    };
    format!(": they conflict with each other (serialization failures){because}")
}

/// Isolation levels at which transactions that conflict fail.
pub(super) const STRICT: [&str; 2] = ["serializable", "repeatable read"];

/// The isolation level of transactions that choose none: that of a role or database at work, if it is strict, else the server's; and whose it is.
pub(super) fn level<'a>(case: &'a Case, node: &'a str) -> (&'a str, String) {
    match own(case, node) {
        Some((owner, value)) => (value, format!(" for all of {owner}")),
        None => (case.setting(node, NAME).unwrap_or(""), String::new()),
    }
}

/// What a role or database at work has of a strict level: whose it is, and the level.
fn own<'a>(case: &'a Case, node: &'a str) -> Option<(&'a str, &'a str)> {
    let mut own = case.own_settings(node, NAME);
    own.find(|(owner, value)| STRICT.contains(value) && case.is_at_work(node, owner, ""))
}

/// The command that takes a strict level away where it is set; `None` if no setting is strict.
pub(super) fn reset(case: &Case, node: &str) -> Option<String> {
    let command = match own(case, node) {
        Some((owner, _)) => reset_command(owner, NAME),
        None if STRICT.contains(&case.setting(node, NAME)?) => {
            format!(
                "ALTER SYSTEM RESET {NAME}; SELECT pg_reload_conf(); -- for transactions that begin from now on"
            )
        }
        None => return None,
    };
    Some(format!("{command}, only if READ COMMITTED is enough for them"))
}
