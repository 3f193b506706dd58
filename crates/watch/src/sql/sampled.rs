//! What sessions wait for, and the statements that they were seen at work with: where no extension keeps statements, samples are all that is known of them.

use super::json::{count, list, text as word};
use super::probe::Probe;
use crate::board::NodeState;
use crate::collect::{Batch, Place, With};
use record::watched::Wait;
use record::{event, statement};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Characters of a statement that is recorded because a session was seen at work with it.
const SAMPLED_CHARS: u32 = 4000;
/// Statements that are recorded for that reason; with more, the texts are no statements of a program.
const SAMPLED_MAX: usize = 500;

/// When and where the sessions were looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) node: &'a str,
    pub(crate) t_us: u64,
}

/// The expression of the text of a session at work. Null where an extension keeps the statements.
pub(crate) fn text(probe: &Probe, backend: &str) -> String {
    match probe.statements.columns.is_empty() {
        true => {
            format!(
                "case when state = 'active' and {backend} then pg_catalog.left(query, {SAMPLED_CHARS}) end"
            )
        }
        false => "null::text".to_string(),
    }
}

/// What sessions wait for: lines, and sums per type of wait. A statement whose text came with it is named by the server's id, else by its text.
pub(crate) fn waits(
    seen: Seen<'_>,
    answer: &Value,
    texts: &mut HashMap<String, String>,
    batch: &mut Batch,
    state: &mut NodeState,
) {
    state.waits.clear();
    let mut groups: BTreeMap<[String; 5], u64> = BTreeMap::new();
    for wait in list(answer, "waits") {
        let sessions = count(wait, "sessions").unwrap_or(0);
        let [backend, of_session, wait_type, wait_event] =
            ["backend", "state", "wait_type", "wait_event"].map(|name| word(wait, name));
        if of_session == "active" {
            *state.waits.entry(wait_type.clone()).or_default() += sessions;
        }
        let mut query_id = word(wait, "query_id");
        let sampled = word(wait, "sampled");
        if !sampled.is_empty() {
            let words = statement::parameterized(&sampled);
            let by_text = statement::text_id(&words);
            if is_of_text(&query_id, &by_text, texts) {
                query_id.clone_from(&by_text);
            }
            if texts.len() < SAMPLED_MAX && !texts.contains_key(&query_id) {
                texts.insert(query_id.clone(), by_text);
                let event = text_event(seen.node, seen.t_us, &query_id, words);
                let event = event.with("user", word(wait, "user")).with("database", word(wait, "database"));
                batch.event(event.with("from", "sessions"));
            }
        }
        *groups.entry([backend, of_session, wait_type, wait_event, query_id]).or_default() += sessions;
    }
    for ([backend, state, wait_type, wait_event, query_id], sessions) in groups {
        let query_id = id(query_id);
        let node = seen.node.to_string();
        batch.reading(seen.t_us, Wait { node, backend, state, wait_type, wait_event, query_id, sessions });
    }
}

/// Whether a statement is named by its text: the server has no id, or another statement has the same one, for example with another alias: the words of one
/// are not those of the other.
fn is_of_text(query_id: &str, by_text: &str, texts: &HashMap<String, String>) -> bool {
    query_id.is_empty() || texts.get(query_id).is_some_and(|known| known != by_text)
}

fn id(query_id: String) -> Option<String> {
    Some(query_id).filter(|id| !id.is_empty() && id != "0")
}

/// How the lines of [`waits`] name the statement with this id of the server, and this text where it was requested.
pub(crate) fn named(query_id: &str, sampled: &str, texts: &HashMap<String, String>) -> Option<String> {
    let by_text = (!sampled.is_empty()).then(|| statement::text_id(&statement::parameterized(sampled)));
    let is_of_text = |by_text: &String| is_of_text(query_id, by_text, texts);
    id(by_text.filter(is_of_text).unwrap_or_else(|| query_id.to_string()))
}

/// The event that keeps the text of a statement.
pub(crate) fn text_event(node: &str, t_us: u64, query_id: &str, text: String) -> event::Event {
    let event =
        Place::Node(node.to_string()).event(t_us, event::QUERY, "a statement seen for the first time");
    event.with("query_id", query_id).with("text", text).with(event::OWN, false)
}
