//! Which isolation level transactions have that choose none, and whose setting that is.

use crate::case::Case;

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
    const NAME: &str = "default_transaction_isolation";
    let mut own = case.own_settings(node, NAME);
    match own.find(|(owner, value)| STRICT.contains(value) && case.is_at_work(node, owner, "")) {
        Some((owner, value)) => (value, format!(" for all of {owner}")),
        None => (case.setting(node, NAME).unwrap_or(""), String::new()),
    }
}
