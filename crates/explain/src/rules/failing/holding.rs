//! Who holds what statements with NOWAIT, or with a short lock_timeout, did not get: nothing waits for it, so no view shows it as a blocker.

use super::known::{Known, LOCK_TIMEOUT};
use crate::case::{Case, Thing};
use crate::rules::costly::plain;
use crate::units;

/// A transaction that is open for so long keeps what it has locked.
const OPEN_S_MIN: f64 = 2.0;
/// Characters of a name.
const NAME_CHARS: usize = 60;

/// The session with the longest transaction, as the end of a claim: it may hold the lock.
pub(super) fn by_whom(case: &Case, node: &str, known: Option<&'static Known>, message: &str) -> String {
    if known.is_none_or(|known| known.sqlstate != LOCK_TIMEOUT) {
        return String::new();
    }
    let age = |session: &Thing<'_>| session.lines.max("xact_age_s").unwrap_or(0.0);
    let open = case
        .at("session", node)
        .filter(|session| session.lines.word("backend") == "client backend" && age(session) >= OPEN_S_MIN);
    // A row that is locked is locked by a transaction that has written or locked something.
    let Some(longest) = open.max_by(|left, right| age(left).total_cmp(&age(right))) else {
        return String::new();
    };
    let what = if message.contains("row") { "row" } else { "lock" };
    format!(
        "; {} (session {}, role {}) has a transaction open for {}, the longest one: it may hold the {what}",
        plain(longest.lines.word("application"), NAME_CHARS),
        longest.name,
        plain(longest.lines.word("user"), NAME_CHARS),
        units::seconds(age(&longest))
    )
}
