//! Who ends the statements or sessions of others: the calls that were counted, or seen.

use super::known::{CANCELLED, SHUTDOWN};
use crate::case::Case;
use crate::rules::costly::{lowered, seen_with_role};

/// The statement that cancels or ends those of others, as the end of a claim.
pub(super) fn by_whom(case: &Case, node: &str, state: &str) -> String {
    let function = match state {
        CANCELLED => "pg_cancel_backend",
        SHUTDOWN => "pg_terminate_backend",
        _ => return String::new(),
    };
    let found = seen_with_role(case, node, |text| lowered(text).contains(function));
    found.map_or(String::new(), |found| format!("; among the statements is {found}"))
}
