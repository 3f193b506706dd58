//! Settings of a session that one client makes and another one gets: a pooler of transactions gives a session of the server to one client after the other.

use super::known::Known;
use crate::case::{Case, Thing};
use crate::rules::costly::{lowered, seen_with_role};

/// Writes that fail although no setting makes sessions read-only.
const BY_A_CLIENT: Known = Known {
    sqlstate: "25006",
    words: &[],
    what: "writes fail in sessions that a client has set to read only, for no setting of the server, of a role or of a database does; behind a pooler of \
        transactions such a SET stays with the session of the server, and the next client gets it",
    setting: "",
    text: "let the client that only reads begin its transactions with BEGIN READ ONLY (or SET TRANSACTION READ ONLY), or give it a role of its own with ALTER \
        ROLE ... SET default_transaction_read_only = on, and a pool of its own; pgbouncer resets the sessions between transactions with \
        server_reset_query_always = 1; RECONNECT in its console ends those that have the setting",
};
/// Programs that give sessions of a server to their clients in turn.
const POOLERS: [&str; 5] = ["pgbouncer", "odyssey", "pgcat", "pgagroal", "pgpool"];

/// What is known of an error, or of one whose usual reason the settings rule out.
pub(super) fn or_by_a_client(case: &Case, server: &Thing<'_>, known: &'static Known) -> &'static Known {
    let is_on = |value: &str| value == "on";
    let is_set = case.setting(server.place, known.setting).is_some_and(is_on)
        || case.own_settings(server.place, known.setting).any(|(_, value)| is_on(value));
    let is_standby = server.lines.flag("in_recovery") == Some(true);
    if known.sqlstate != BY_A_CLIENT.sqlstate || is_set || is_standby { known } else { &BY_A_CLIENT }
}

/// The statement of a client that makes such a setting for its session, as the end of a claim.
pub(super) fn by(case: &Case, node: &str, known: Option<&'static Known>) -> String {
    let Some(known) = known else { return String::new() };
    let wanted: &[&str] = match (known.sqlstate, known.setting) {
        (state, "") if state == BY_A_CLIENT.sqlstate => {
            &["transaction read only", "default_transaction_read_only"]
        }
        (_, "search_path") => &["search_path"],
        _ => return String::new(),
    };
    let is_of_session = |text: &str| {
        let text = lowered(text);
        text.starts_with("set ")
            && !text.starts_with("set local ")
            && !text.starts_with("set transaction ")
            && wanted.iter().any(|words| text.contains(words))
    };
    let Some(found) = seen_with_role(case, node, is_of_session) else { return String::new() };
    let mut programs = case.things("program");
    let pooler =
        programs.find_map(|program| POOLERS.into_iter().find(|name| program.lines.word("program") == *name));
    let through = match pooler {
        Some(name) => format!(", and {name} runs on this host"),
        // Without a pooler a search_path is the client's own affair.
        None if known.setting == "search_path" => return String::new(),
        None => String::new(),
    };
    format!("; among the statements is {found}{through}")
}
