//! The transaction whose subtransactions all others look up. The server has no list of them before PostgreSQL 16, but each one that writes takes a transaction
//! id, so the oldest transaction is behind by as many.

use super::costly::plain;
use crate::case::{Case, Thing};
use crate::units;

/// Characters of what it runs.
const QUERY_CHARS: usize = 100;
/// Subtransactions of a transaction from which on other sessions have to look up parents (`PGPROC_MAX_CACHED_SUBXIDS` in proc.h).
const CACHED: f64 = 64.0;

/// The session with the oldest transaction of a node, if so many ids were taken since it began that it can be the cause.
pub(super) fn oldest<'a>(case: &'a Case, node: &'a str) -> Option<Thing<'a>> {
    let most = |session: &Thing<'_>, field: &str| session.lines.max(field).unwrap_or(0.0);
    let is_old = |session: &Thing<'_>| most(session, "xmin_age_xids") > CACHED;
    let sessions = case.at("session", node).filter(is_old);
    sessions.max_by(|left, right| most(left, "xact_age_s").total_cmp(&most(right, "xact_age_s")))
}

/// Which session that is and what it runs.
pub(super) fn in_words(session: &Thing<'_>) -> String {
    let application = plain(session.lines.word("application"), QUERY_CHARS);
    let of = if application.is_empty() { String::new() } else { format!(" of {application}") };
    format!(
        "session {}{of} has the oldest transaction ({}, {} transaction ids ago): {}",
        session.name,
        units::seconds(session.lines.max("xact_age_s").unwrap_or(0.0)),
        units::count(session.lines.max("xmin_age_xids").unwrap_or(0.0)),
        plain(session.lines.word("query"), QUERY_CHARS)
    )
}
