//! What a connection pooler between us and the server does to a run, told by the errors that it causes.

use wire::error::SqlState;

/// What to do about statements that were prepared on one server process and asked for on another.
const PREPARED: &str = "a connection pooler in transaction mode gives each transaction another server process, which does not know what was prepared \
     before: add -M extended or -M simple, connect to the server itself, or let the pooler follow prepared statements (pgbouncer 1.21 and later: max_prepared_statements)";

/// What to type next after an error that only a pooler causes.
pub fn hint(sqlstate: SqlState, message: &str) -> Option<&'static str> {
    let speaks_of = |words: &str| message.contains(words);
    let is_lost = match sqlstate.as_str() {
        // duplicate_prepared_statement, invalid_sql_statement_name: every name is prepared once in a session.
        "42P05" | "26000" => true,
        // protocol_violation: the unnamed statement, or one of that name, is somebody else's.
        "08P01" => speaks_of("prepared statement") || speaks_of("unnamed"),
        // invalid_cursor_name: a portal that another server process has.
        "34000" => speaks_of("portal"),
        _ => false,
    };
    is_lost.then_some(PREPARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_lost_statements_lead_to_the_pooler_and_others_do_not() {
        for (code, message) in [
            (b"42P05", "prepared statement \"ycsb_read\" already exists"),
            (b"26000", "prepared statement \"ycsb_read\" does not exist"),
            (b"26000", "unnamed prepared statement does not exist"),
            (b"08P01", "bind message supplies 1 parameters, but prepared statement \"\" requires 0"),
            (b"34000", "portal \"\" does not exist"),
        ] {
            assert!(
                hint(SqlState(*code), message).is_some_and(|hint| hint.contains("-M extended")),
                "{message}"
            );
        }
        for (code, message) in [
            (b"08P01", "invalid message format"),
            (b"34000", "cursor \"c\" does not exist"),
            (b"42P01", "relation \"usertable\" does not exist"),
        ] {
            assert_eq!(hint(SqlState(*code), message), None, "{message}");
        }
    }
}
