//! Who executes a statement: the role that the server counts it for, and the application of that role's sessions.

use super::costly::plain;
use crate::case::Case;
use record::event;

/// Characters of a name.
const NAME_CHARS: usize = 40;

/// The role that a statement is counted for, or was seen of; empty if it is not recorded.
pub(super) fn role_of<'a>(case: &'a Case, node: &str, query_id: &str) -> &'a str {
    case.events_of(event::QUERY)
        .filter(|event| Case::word_of(event, "query_id") == query_id && Case::word_of(event, "node") == node)
        .map(|event| Case::word_of(event, "user"))
        .find(|role| !role.is_empty())
        .unwrap_or_default()
}

/// The application of a role's sessions, if all of them have the same.
pub(super) fn application_of<'a>(case: &'a Case, node: &'a str, role: &str) -> Option<&'a str> {
    let groups = case.at("activity", node).chain(case.at("connected", node));
    let mut all: Vec<&str> = groups
        .filter(|one| one.lines.word("user") == role)
        .map(|one| one.lines.word("application"))
        .collect();
    all.sort_unstable();
    all.dedup();
    if all.len() == 1 { Some(all[0]) } else { None }
}

/// Who it is, behind " by"; empty if neither is known.
pub(super) fn by(role: &str, application: Option<&str>) -> String {
    let application = application.filter(|name| !name.is_empty());
    match (role, application) {
        ("", None) => String::new(),
        ("", Some(name)) => format!(" by {}", plain(name, NAME_CHARS)),
        (role, None) => format!(" by role {}", plain(role, NAME_CHARS)),
        (role, Some(name)) => format!(" by role {} ({})", plain(role, NAME_CHARS), plain(name, NAME_CHARS)),
    }
}
