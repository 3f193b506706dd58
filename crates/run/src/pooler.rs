//! Prepared statements that no longer exist, because of a connection pooler, or because a script deallocates them.

use wire::error::SqlState;

use crate::statement_spec::StatementSpec;

/// What stands between the sessions and the server, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// A pool that shares its server processes between transactions.
    SharedPool,
    /// No pooler is known; one that takes settings looks like a server.
    Unknown,
    /// Likewise, and this program has prepared nothing.
    Scripts,
}

/// What to do about statements that were prepared on one server process and requested on another.
const PREPARED: &str = "a connection pooler in transaction mode can give each transaction another server process, which does not have the prepared statements: \
     add -M extended or -M simple, connect to the server itself, or let the pooler track prepared statements \
     (pgbouncer 1.21 and later: max_prepared_statements)";
/// The same where no pooler was seen.
const THROWN_AWAY: &str = "with -M prepared every session prepares its statements once: a script with DEALLOCATE or DISCARD ALL drops them, and a \
     pooler may give each transaction another server process; add -M extended or -M simple, which keep nothing";
/// The same for statements that are sent in no other way.
const PREPARED_ALWAYS: &str = "a connection pooler in transaction mode can give each transaction another server process, which does not have the prepared \
     statements, and this workload needs them: connect to the server itself or to a pool of sessions (pool_mode = session), or let the pooler track prepared \
     statements (pgbouncer 1.21 and later: max_prepared_statements)";
/// The same where no pooler was seen.
const THROWN_AWAY_ALWAYS: &str = "every session prepares its statements once, and a pooler may give each transaction another server process: connect to \
     the server itself or to a pool of sessions (pool_mode = session)";
/// Statements that scripts prepare by themselves.
const OWN: &str = "a statement that a script prepares by itself (PREPARE) stays until DEALLOCATE or DISCARD ALL, or the end of the session: prepare \
                   and execute it in \
     one transaction, and deallocate it there";

/// What to type next after an error about a prepared statement. `ours` are the statements that this program prepares: some workloads send theirs in no
/// other way, and have no `-M`.
pub fn hint(
    sqlstate: SqlState,
    message: &str,
    between: Between,
    ours: &[StatementSpec],
) -> Option<&'static str> {
    let speaks_of = |words: &str| message.contains(words);
    let is_lost = match sqlstate.as_str() {
        // duplicate_prepared_statement, invalid_sql_statement_name: every name is prepared once in a session.
        "42P05" | "26000" => true,
        // protocol_violation: the unnamed statement, or one of that name, is of another owner.
        "08P01" => speaks_of("prepared statement") || speaks_of("unnamed"),
        // invalid_cursor_name: a portal that another server process has.
        "34000" => speaks_of("portal"),
        _ => false,
    };
    // The names that this program gives; translations keep them.
    let is_ours = ours.iter().any(|spec| speaks_of(&spec.name)) || !message.contains('"');
    let named: Vec<&StatementSpec> = ours.iter().filter(|spec| speaks_of(&spec.name)).collect();
    let meant = if named.is_empty() { ours.iter().collect() } else { named };
    let takes_modes = meant.iter().any(|spec| !spec.is_always_prepared) || meant.is_empty();
    is_lost.then_some(match between {
        Between::SharedPool if takes_modes => PREPARED,
        Between::SharedPool => PREPARED_ALWAYS,
        Between::Unknown if is_ours && takes_modes => THROWN_AWAY,
        Between::Unknown if is_ours => THROWN_AWAY_ALWAYS,
        Between::Unknown | Between::Scripts => OWN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Vec<StatementSpec> {
        let script = StatementSpec::ours("script_0".into(), "select 1".into());
        let ours = StatementSpec::ours("tpcb_branch".into(), "select 1".into());
        vec![ours, StatementSpec { is_always_prepared: false, ..script }]
    }

    const LOST: [(&[u8; 5], &str); 5] = [
        (b"42P05", "prepared statement \"tpcb_branch\" already exists"),
        (b"26000", "prepared statement \"tpcb_branch\" does not exist"),
        (b"26000", "unnamed prepared statement does not exist"),
        (b"08P01", "bind message supplies 1 parameters, but prepared statement \"\" requires 0"),
        (b"34000", "portal \"\" does not exist"),
    ];

    #[test]
    fn errors_of_lost_statements_lead_to_the_pooler_and_others_do_not() {
        for (code, message) in LOST {
            let hint = hint(SqlState(*code), message, Between::SharedPool, &[]).unwrap_or_default();
            assert!(hint.contains("-M extended") && hint.contains("a connection pooler in"), "{message}");
        }
        for (code, message) in [
            (b"08P01", "invalid message format"),
            (b"34000", "cursor \"c\" does not exist"),
            (b"42P01", "relation \"usertable\" does not exist"),
        ] {
            for between in [Between::SharedPool, Between::Unknown, Between::Scripts] {
                assert_eq!(hint(SqlState(*code), message, between, &ours()), None, "{message}");
            }
        }
    }

    #[test]
    fn a_workload_without_modes_is_not_sent_to_one() {
        let hint = |name: &str, between| {
            let message = format!("prepared statement \"{name}\" already exists");
            hint(SqlState(*b"42P05"), &message, between, &ours()).unwrap()
        };
        for between in [Between::SharedPool, Between::Unknown] {
            assert!(hint("script_0", between).contains("-M extended"));
            let always = hint("tpcb_branch", between);
            assert!(!always.contains("-M") && always.contains("pool_mode = session"), "{always}");
        }
    }

    #[test]
    fn without_a_pooler_none_is_blamed() {
        for (message, words) in [
            ("prepared statement \"script_0\" does not exist", "DISCARD ALL drops them"),
            ("prepared statement \"tpcb_branch\" does not exist", "a pooler may give"),
        ] {
            let hint = |between| hint(SqlState(*b"26000"), message, between, &ours()).unwrap();
            assert!(hint(Between::Unknown).contains(words), "{message}");
            assert!(!hint(Between::Scripts).contains("pooler"), "{message}");
        }
        let own =
            hint(SqlState(*b"26000"), "prepared statement \"q\" does not exist", Between::Unknown, &ours());
        assert!(own.is_some_and(|hint| hint.contains("prepares by itself") && !hint.contains("pooler")));
    }
}
