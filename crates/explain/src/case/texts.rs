//! The texts of statements.

use super::Case;
use record::event::{OWN, QUERY};
use record::statement::looks_own;

impl Case {
    /// A statement's text, if an event has it.
    pub fn query(&self, query_id: &str) -> Option<&str> {
        let detail = self.events_of(QUERY).find(|event| Case::word_of(event, "query_id") == query_id);
        detail.map(|event| Case::word_of(event, "text"))
    }

    /// Whether a statement is one of pgfathom's own. `watch` leaves these out, by what it has sent itself, and marks the texts of all others: a text alone
    /// proves nothing, because any role can write one. Only recordings without that mark are judged by it.
    pub(crate) fn is_own_statement(&self, query_id: &str) -> bool {
        let detail = self.events_of(QUERY).find(|event| Case::word_of(event, "query_id") == query_id);
        detail.is_some_and(|event| !event.more.contains_key(OWN) && looks_own(Case::word_of(event, "text")))
    }
}
