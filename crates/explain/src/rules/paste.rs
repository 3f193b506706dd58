//! Parts of commands that can be pasted: paths of the server, names as constants.

use crate::case::Case;
use record::watched::own;

/// Compresses pages in the WAL by what each server has: lz4 and zstd depend on how it was built.
pub(super) const COMPRESSION: &str = "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf(); -- from PostgreSQL 15 on lz4 takes less CPU, if it is \
    in: SELECT enumvals FROM pg_settings WHERE name = 'wal_compression'";

/// The data directory of a node as a word for the shell. Where it is not recorded the server is queried: a variable of the environment may be another
/// server's.
pub(super) fn data_directory(case: &Case, node: &str) -> String {
    let recorded = case.facts("server").find(|fact| fact.name == "data_directory" && fact.node == node);
    let set = || case.facts("setting").find(|fact| fact.name == "data_directory" && fact.node == node);
    match recorded.or_else(set).filter(|fact| !fact.value.is_empty()) {
        Some(fact) => format!("'{}'", fact.value.replace(char::is_control, " ").replace('\'', r"'\''")),
        None => r#""$(psql -qAtX -c 'SHOW data_directory')""#.to_string(),
    }
}

/// A text as an SQL literal, whatever standard_conforming_strings is: the owner of a database can set it.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''").replace(char::is_control, " ");
    match quoted.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', r"\\")),
        false => format!("'{quoted}'"),
    }
}

/// A text as a word of the shell.
pub(super) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@+,=-".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace(char::is_control, " ").replace('\'', r"'\''")),
    }
}

/// Behind a command with a statement of an application, which may call its functions, operators and types.
pub(super) const AS_THE_APPLICATION: &str =
    "-- as the application's role, not as a superuser: planning runs functions of the application";

/// What to do about a slot that the engine of the cluster made.
pub(super) const OF_ENGINE: &str = "the cluster's engine made the slot for another of its nodes or for data that it moves: bring that node back or let the \
 move end, or take the node out of the cluster by the engine's own means, which drop the slot; without it that node must be built anew";

/// Shows a slot, and whether something receives from it.
pub(super) fn slot_of_engine(name: &str) -> String {
    format!(
        "SELECT slot_name, active, wal_status, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) AS keeps FROM pg_replication_slots WHERE \
         slot_name = {};",
        literal(name)
    )
}

/// What to do about a prepared transaction, and the commands: what the engine of the cluster prepared, it ends itself.
pub(super) fn ending(case: &Case, node: &str, name: &str) -> (String, Vec<String>) {
    if !case.is_own_transaction(node, name) {
        return (
            "find its outcome at its coordinator, and end it the same way here".to_string(),
            vec![prepared(name)],
        );
    }
    let resolves = case.own(node, own::RESOLVES).unwrap_or("it looks for the outcome at its coordinator");
    let text = format!(
        "leave it: the cluster's engine prepared it, and {resolves}. If it stays for minutes, the node that began it is away: bring that back. Ended by \
         hand, one node's part of a commit that others have made is lost"
    );
    let shown = format!(
        "SELECT gid, prepared, owner, database FROM pg_prepared_xacts WHERE gid = {};",
        literal(name)
    );
    let resolve = case
        .own(node, own::RESOLVE)
        .map(|sql| format!("{sql} -- at the coordinator: ends all whose outcome is known"));
    (text, [shown].into_iter().chain(resolve).collect())
}

/// Shows a prepared transaction. Neither of the two commands that end it is printed alone: an engine of a cluster prepares transactions by itself, and to
/// end one of those by hand can undo one node's part of a commit that the others have made.
pub(super) fn prepared(name: &str) -> String {
    format!(
        "SELECT gid, prepared, owner, database FROM pg_prepared_xacts WHERE gid = {}; -- COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided; \
         what the cluster's engine prepared, the engine ends",
        literal(name)
    )
}

/// Shows which columns of a table can be its key.
pub(super) fn columns_of_a_key(relation: &str) -> String {
    format!(
        "SELECT attname, n_distinct, null_frac FROM pg_stats WHERE format('%s.%s', schemaname, tablename) = {} ORDER BY n_distinct; \
         -- -1: every value is there once",
        literal(relation)
    )
}

/// Sets a setting of the server for all sessions, and shows where it comes from: the command line, a role or a database would still win.
pub(super) fn set_for_all(setting: &str, value: &str) -> [String; 2] {
    [
        format!("ALTER SYSTEM SET {setting} = {value}; SELECT pg_reload_conf();"),
        format!(
            "SELECT name, setting, source, sourcefile FROM pg_settings WHERE name = '{setting}'; -- 'command line': change how the server is started"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::fed;

    #[test]
    fn a_literal_is_one_whatever_backslashes_mean() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"o.\';drop"), r"E'o.\\'';drop'");
        assert_eq!(word("/dev/sda1"), "/dev/sda1");
        assert_eq!(word("a; rm -r /"), "'a; rm -r /'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("-x"), "'-x'");
    }

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        let case = fed(&[
            r#"{"t_us":1,"source":"fact","node":"n1","topic":"server","name":"data_directory","value":"/srv/it's here"}"#,
        ]);
        assert_eq!(data_directory(&case, "n1"), r"'/srv/it'\''s here'");
        assert!(data_directory(&case, "n2").contains("SHOW data_directory"), "another node has another path");
    }
}
