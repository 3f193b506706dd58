//! SES-01: which program opens a connection for each of its requests, by the statements that run as often as connections are opened. Sessions that live for
//! milliseconds are seen by few samples; the server counts their statements all the same.

use crate::case::Case;
use crate::rules::costly::plain;
use record::event;
use std::collections::BTreeSet;

/// Executions of a statement for each connection that is opened.
const PER_CONNECTION_MIN: f64 = 0.85;
const PER_CONNECTION_MAX: f64 = 1.15;
/// Characters of a name.
const NAME_CHARS: usize = 63;

/// The pool of a pooler whose transactions are about as many as connections are opened, in words: it keeps none of them.
pub(super) fn pool(case: &Case, node: &str, opened_per_s: f64) -> Option<String> {
    let is_each =
        |rate: f64| (OF_POOL_MIN..=OF_POOL_MAX).contains(&(rate / opened_per_s.max(f64::MIN_POSITIVE)));
    let pool = case.at("pool", node).find(|pool| pool.lines.rate("transactions").is_some_and(is_each))?;
    Some(format!(
        ", as many as the pool of {} in pgbouncer has transactions ({}): it closes the connection after each",
        plain(pool.lines.word("database"), NAME_CHARS),
        plain(pool.lines.word("pool_mode"), NAME_CHARS)
    ))
}

/// Transactions of a pool for each connection that is opened.
const OF_POOL_MIN: f64 = 0.6;
const OF_POOL_MAX: f64 = 1.6;
/// What keeps the connections of a pooler.
pub(super) const KEEP_IN_POOL: &str = "let the pooler keep its connections: server_lifetime and server_idle_timeout of pgbouncer are seconds (3600 and 600 by \
    default, 0 closes each after its use), server_fast_close and a RELOAD close them as well, and so does a client that leaves in the middle of a transaction";

/// The role whose statements run once for each connection, in words, if it is the only one.
pub(super) fn role(case: &Case, node: &str, opened_per_s: f64) -> Option<String> {
    let is_once = |calls: f64| {
        (PER_CONNECTION_MIN..=PER_CONNECTION_MAX).contains(&(calls / opened_per_s.max(f64::MIN_POSITIVE)))
    };
    let once =
        case.at("statement", node).filter(|statement| statement.lines.rate("calls").is_some_and(is_once));
    let ids: BTreeSet<String> = once.map(|statement| statement.lines.word("query_id").to_string()).collect();
    let texts = case.events_of(event::QUERY).filter(|text| ids.contains(Case::word_of(text, "query_id")));
    let roles: BTreeSet<&str> =
        texts.map(|text| Case::word_of(text, "user")).filter(|role| !role.is_empty()).collect();
    let role = roles.first().filter(|_| roles.len() == 1)?;
    Some(format!(", as often as role {} runs a statement of its own", plain(role, NAME_CHARS)))
}
