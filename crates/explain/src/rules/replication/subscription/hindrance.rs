//! What is in the way of a worker that applies changes, by the error that it met (src/backend/replication/logical/relation.c, worker.c and launcher.c of
//! PostgreSQL), and what removes it.

/// What a worker met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hindrance {
    /// A row that is there, or that a constraint refuses. Also what is not known: the change fails again at each attempt.
    Row,
    /// The table is not there, or not as the publisher has it.
    Table,
    /// A value does not fit the column of this side.
    Value,
    /// The publisher does not send how its rows are found.
    Identity,
    /// The subscription's owner may not do it.
    Rights,
    /// The worker does not reach the publisher, or is not served by it.
    Connection,
    /// There is no room for it on this server.
    Room,
}

/// Parts of messages, and what they show. The first that fits counts.
const PARTS: [(&str, Hindrance); 21] = [
    ("is missing replicated column", Hindrance::Table),
    ("has incompatible generated column", Hindrance::Table),
    ("logical replication target relation \"", Hindrance::Table),
    ("replica identity", Hindrance::Identity),
    ("REPLICA IDENTITY", Hindrance::Identity),
    ("value too long for type", Hindrance::Value),
    ("invalid input syntax for type", Hindrance::Value),
    ("invalid input value for enum", Hindrance::Value),
    ("out of range", Hindrance::Value),
    ("incorrect binary data format", Hindrance::Value),
    ("permission denied", Hindrance::Rights),
    ("cannot replicate into relation with row-level security", Hindrance::Rights),
    ("must be able to SET ROLE", Hindrance::Rights),
    ("could not connect to the publisher", Hindrance::Connection),
    ("could not start WAL streaming", Hindrance::Connection),
    ("could not receive data from WAL stream", Hindrance::Connection),
    ("terminating logical replication worker due to timeout", Hindrance::Connection),
    ("publication \"", Hindrance::Connection),
    ("No space left on device", Hindrance::Room),
    ("Disk quota exceeded", Hindrance::Room),
    ("could not extend file", Hindrance::Room),
];

impl Hindrance {
    pub(super) fn of(message: &str) -> Hindrance {
        // The same relation is named where a table lacks what its changes are found by.
        let is_identity = message.contains("replica identity") || message.contains("REPLICA IDENTITY");
        let found = PARTS
            .iter()
            .find(|(part, of)| message.contains(part) && (!is_identity || *of == Hindrance::Identity));
        found.map_or(Hindrance::Row, |(_, of)| *of)
    }

    /// Whether it is the same change at each attempt, and skipping it would get past it.
    pub(super) fn is_row(self) -> bool {
        matches!(self, Hindrance::Row | Hindrance::Value)
    }

    /// What removes it, with commands, for a subscription of this name.
    pub(super) fn remedy(self, subscription: &str, message: &str) -> (&'static str, Vec<String>) {
        let name = record::statement::quoted(subscription);
        let refresh = format!("ALTER SUBSCRIPTION {name} REFRESH PUBLICATION; -- where a table is new");
        match self {
            Hindrance::Row => {
                let skip = match lsn_in(message) {
                    Some(lsn) => format!(
                        "ALTER SUBSCRIPTION {name} SKIP (lsn = '{lsn}'); -- loses the changes of that transaction"
                    ),
                    None => format!(
                        "SELECT pg_current_logfile(); -- DETAIL of that error has the key of the row, CONTEXT the LSN ('finished at') for ALTER SUBSCRIPTION \
                         {name} SKIP"
                    ),
                };
                (
                    "remove or change the row that is in the way on this node (a duplicate key: the one that is there), and the worker goes on by itself at \
                     its next start; or skip the transaction of the other node, which loses all of its changes",
                    vec![skip],
                )
            }
            Hindrance::Table => (
                "make the table on this node as the publisher has it: definitions are not replicated, so a column that is added there has to be added here \
                 first; the worker goes on by itself. Skipping the transaction does not help: the next change of that table fails as well",
                vec![columns_of(message), refresh],
            ),
            Hindrance::Value => (
                "give the column on this node a type that holds what the publisher sends (definitions are not replicated), and the worker goes on by itself; \
                 skipping the transaction loses all of its changes, and the next such value fails again",
                vec![
                    "SELECT pg_current_logfile(); -- CONTEXT of that error has the table and the column".to_string(),
                ],
            ),
            Hindrance::Identity => (
                "give the table a primary key on both sides, or let the publisher send whole rows (REPLICA IDENTITY FULL), which makes the subscriber search \
                 the table for each of them",
                vec![
                    "SELECT n.nspname, c.relname, c.relreplident FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND NOT \
                     EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AND n.nspname NOT IN ('pg_catalog', 'information_schema');"
                        .to_string(),
                ],
            ),
            Hindrance::Rights => (
                "grant the owner of the subscription what the error names, on this node (or on the publisher, if it is its error); the worker goes on",
                vec![format!(
                    "SELECT s.subname, r.rolname AS owner, r.rolsuper, r.rolbypassrls FROM pg_subscription s JOIN pg_roles r ON r.oid = s.subowner WHERE \
                     s.subname = {};",
                    crate::rules::paste::literal(subscription)
                )],
            ),
            Hindrance::Connection => (
                "see whether the publisher can be reached from this node with the subscription's connection string, and has its publication and slot; the \
                 worker tries again every few seconds, and its slot keeps the WAL",
                vec![
                    format!(
                        "SELECT subname, subslotname, subpublications FROM pg_subscription WHERE subname = {};",
                        crate::rules::paste::literal(subscription)
                    ),
                    "SELECT p.pubname, s.slot_name, s.active, s.wal_status FROM pg_publication p CROSS JOIN pg_replication_slots s; -- on the publisher"
                        .to_string(),
                ],
            ),
            Hindrance::Room => (
                "make room on this node: the worker goes on by itself, and the publisher keeps WAL until then",
                vec!["$ df -h # on this node".to_string()],
            ),
        }
    }
}

/// A look at the columns of the table that a message names.
fn columns_of(message: &str) -> String {
    let relation =
        message.split("relation \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("TABLE");
    let relation = crate::rules::paste::literal(relation);
    format!(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = {relation}::regclass AND attnum > 0 AND NOT attisdropped ORDER BY \
         attnum; -- on both sides"
    )
}

/// The end of a transaction that could not be applied: `..., finished at 0/14C0378`.
fn lsn_in(message: &str) -> Option<&str> {
    let rest = message.split("finished at ").nth(1)?;
    let end = rest.find(|c: char| !c.is_ascii_hexdigit() && c != '/').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|lsn| lsn.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_workers_are_of_different_kinds() {
        for (message, expected) in [
            ("duplicate key value violates unique constraint \"orders_pkey\"", Hindrance::Row),
            ("conflict detected on relation \"public.orders\": conflict=insert_exists", Hindrance::Row),
            ("null value in column \"a\" of relation \"t\" violates not-null constraint", Hindrance::Row),
            ("", Hindrance::Row),
            (
                "logical replication target relation \"public.claim\" is missing replicated column: \"score\"",
                Hindrance::Table,
            ),
            ("logical replication target relation \"public.claim\" does not exist", Hindrance::Table),
            (
                "logical replication target relation \"public.t\" has neither REPLICA IDENTITY index nor PRIMARY KEY and published relation does not have \
                 REPLICA IDENTITY FULL",
                Hindrance::Identity,
            ),
            (
                "publisher did not send replica identity column expected by the logical replication target relation \"public.t\"",
                Hindrance::Identity,
            ),
            ("value too long for type character varying(20)", Hindrance::Value),
            ("permission denied for table orders", Hindrance::Rights),
            (
                "could not connect to the publisher: connection to server at \"db1\" failed",
                Hindrance::Connection,
            ),
            (
                "could not start WAL streaming: ERROR:  replication slot \"s\" does not exist",
                Hindrance::Connection,
            ),
            ("could not extend file \"base/5/16402\": No space left on device", Hindrance::Room),
        ] {
            assert_eq!(Hindrance::of(message), expected, "{message}");
        }
        let (_, commands) =
            Hindrance::Table.remedy("s", "logical replication target relation \"public.claim\" is missing");
        assert!(commands[0].contains("'public.claim'::regclass"), "{commands:?}");
    }
}
