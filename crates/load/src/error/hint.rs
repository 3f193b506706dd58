//! What to type next, for each error of a load.

use engines::profile::LoadPath;
use engines::trust::TRUSTED_WORDS;
use wire::error::SqlState;

use super::LoadError;

/// What to type where a node with a ledger of its own does not answer.
fn ledger_away(node: &str) -> String {
    format!("start the server of {node}, then type the same command again")
}

impl LoadError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            LoadError::Option { hint, .. } => hint.clone(),
            LoadError::Node { source, .. } => return source.hint(),
            LoadError::Connect(_) if self.is_no_room() => return sqlstate_hint(self.sqlstate()?),
            LoadError::Connect(error) => return error.hint(),
            LoadError::LedgerAway { node, .. } => ledger_away(node),
            LoadError::ServerLost { .. } => continued("start the server (its log has the reason)"),
            LoadError::NodeAway { .. } => continued("start the node that the error names (its log has the reason)"),
            _ if self.is_connection_lost() => continued("read the server's log"),
            LoadError::Lost { .. } | LoadError::Sql { .. } | LoadError::Stream { .. } => {
                return self.hint_of_server();
            }
            LoadError::TooManyAttempts { .. } => {
                "read the server's log; the same command again continues with the missing chunks".into()
            }
            LoadError::DiskFull { .. } => {
                "free space on the server (its message above names the file), then run the same command again: it continues; \
                 loaded chunks stay loaded".into()
            }
            LoadError::Protocol { .. } => {
                "if there is a proxy or pooler in between, connect to the server itself and run the same command again".into()
            }
            LoadError::RowCount { .. } => "if the table has a trigger or rule, drop it, then load again with --restart".into(),
            LoadError::NotAwaited { .. } => "loaded chunks stay loaded; once that node answers again, the same command continues".into(),
            LoadError::Interrupted => return None,
            LoadError::Emptied => "start over with --restart; without --unlogged a crash loses nothing".into(),
            LoadError::Unwatchable { .. } => {
                "run pgfathom on that host, or grant its role pg_execute_server_program (the server then runs df), or omit --keep-free".into()
            }
            LoadError::Restarted => "run the same command again after the other one has ended".into(),
            LoadError::WritersBusy => "end that session (pg_locks shows it), or wait until it has ended, and run again".into(),
            LoadError::LockTaken { remedy, .. } => format!("end it as a superuser, and load again: {remedy}"),
            LoadError::RunActive { pid, .. } => format!(
                "stop that pgfathom run (Ctrl-C) or wait until it has ended, then load; where its client is: select application_name, client_addr, backend_start from pg_stat_activity where pid = {pid}"
            ),
            LoadError::TwoWriters { .. } => {
                "the ledgers were read as they are: check that each address leads to the node that it names (no balancer in between), and whether a node was \
                 restored from a backup or used alone; nothing was changed".into()
            }
            LoadError::WritersExhausted { .. } => "load the dataset again with --restart".into(),
            LoadError::PoolOfOne { .. }
            | LoadError::ForeignTable { .. }
            | LoadError::TableOfOther { .. }
            | LoadError::ForeignSchema { .. }
            | LoadError::LedgerVersion { .. }
            | LoadError::OtherDataset { .. }
            | LoadError::DamagedLedger { .. }
            | LoadError::ChangedTable { .. }
            | LoadError::NotTrusted { .. }
            | LoadError::ForeignCode { .. }
            | LoadError::EventTrigger(_) | LoadError::OpenPath { .. } | LoadError::MayAttach { .. }
            | LoadError::Attached { .. } | LoadError::Rewritten { .. }
            | LoadError::NotATable { .. }
            | LoadError::MovedTable { .. }
            | LoadError::RowSecurity { .. }
            | LoadError::Contradiction { .. }
            | LoadError::NoSchema
            | LoadError::SplitTablespace { .. } => return self.hint_of_objects(),
            LoadError::ReplicatesAll { .. } | LoadError::PartOfGroup { .. } | LoadError::Routing { .. }
            | LoadError::Engine { .. }
            | LoadError::OnlyStandbys
            | LoadError::Placement { .. }
            | LoadError::NoServer { .. }
            | LoadError::MixedCluster { .. }
            | LoadError::Published { .. }
            | LoadError::Behind { .. } => return self.hint_of_clusters(),
        };
        Some(hint)
    }

    /// Tables, schemas and the ledger are not as the load needs them.
    fn hint_of_objects(&self) -> Option<String> {
        Some(match self {
            LoadError::ForeignTable { name, droppable: true, .. } => format!(
                "{OTHER_PLACE}; or drop it with --force {name}"
            ),
            LoadError::ForeignTable { .. } | LoadError::TableOfOther { .. } => OTHER_PLACE.into(),
            LoadError::PoolOfOne { .. } => {
                "give the pool two server connections or more (pgbouncer: default_pool_size, or pool_size of the database), or connect to the server itself \
                 (its own host and port)"
                    .into()
            }
            LoadError::ForeignSchema { is_empty } => schema_hint(*is_empty).into(),
            LoadError::LedgerVersion { found, known } if found > known => "use the newer pgfathom that wrote it".into(),
            LoadError::LedgerVersion { .. } => {
                "use the older pgfathom that wrote it, or drop it and start over: drop schema pgfathom cascade".into()
            }
            LoadError::OtherDataset { matching, .. } => {
                format!("continue the existing load with {matching}, or drop it and start over with --restart")
            }
            LoadError::DamagedLedger { .. } | LoadError::ChangedTable { .. } => {
                "undo the change; if the rows need not be kept, --restart drops them and begins anew".into()
            }
            LoadError::NotTrusted { object, owner } => format!(
                "connect as {0} (-U {0}), give {object} to a role of yours (alter ... owner to), or choose another database; \
                 {TRUSTED_WORDS}",
                engines::trust::role_word(owner)
            ),
            LoadError::ForeignCode { owner, .. } => {
                format!("drop it, or connect as {0} (-U {0})", engines::trust::role_word(owner))
            }
            LoadError::EventTrigger(trigger) => trigger.hint(),
            LoadError::OpenPath { .. } => engines::trust::OTHER_PATH.into(),
            LoadError::MayAttach { table, owner, .. } => engines::trust::revoke(table, owner),
            LoadError::Attached { .. } => "drop it: it could change or refuse the rows that are loaded".into(),
            LoadError::Rewritten { table, rule } => {
                let rule = connect::sql::identifier(rule);
                format!("switch it off, as nothing that is measured would be the table's: alter table {table} disable rule {rule}")
            }
            LoadError::NotATable { name, .. } => format!("drop or rename {name}, then load the dataset anew with --restart"),
            LoadError::MovedTable { table, now } => format!(
                "move it back to {table} (alter table {now} set schema or rename to), or load the dataset again with --restart"
            ),
            LoadError::RowSecurity { table } => format!(
                "it can hide rows: use a superuser or a role with bypassrls; or alter table {table} disable row level security"
            ),
            LoadError::Contradiction { .. } => {
                "nothing was changed. Check first that the connection leads to one node (no balancer in between) and that all nodes are named (--cluster): \
                 a ledger that was read without its nodes looks like this. Otherwise the tables of the schema pgfathom were changed: undo that".into()
            }
            LoadError::NoSchema => format!("name one: PGOPTIONS='-c search_path=public' before the same pgfathom command; or create one: {NEW_SCHEMA}"),
            LoadError::SplitTablespace { index, its, .. } => format!(
                "move the index to its table: alter index {index} set tablespace {its}; or start over with --restart"
            ),
            _ => return None,
        })
    }

    /// The server refused a statement.
    fn hint_of_server(&self) -> Option<String> {
        match self {
            LoadError::Sql { source, .. } if is_ledger_of_another(source) => Some(
                "schema pgfathom, which holds the ledger of what was loaded, belongs to another role (\\dn pgfathom shows which): connect as that \
                 role (-U), or load into another database"
                    .into(),
            ),
            _ => sqlstate_hint(self.sqlstate()?),
        }
    }

    /// The nodes of a cluster are not as the load needs them.
    fn hint_of_clusters(&self) -> Option<String> {
        Some(match self {
            LoadError::ReplicatesAll { .. } => {
                "create your own tables on each node, fill them through one node, and drive them: pgfathom run -f SCRIPT.sql".into()
            }
            LoadError::PartOfGroup { .. } => {
                "name every node of the group in the cluster file, or take the others out of the group first".into()
            }
            LoadError::Routing { .. } => {
                "load without --partitions, and report this bug: it must not happen on PostgreSQL 11 or later with a \
                 deterministic collation".into()
            }
            LoadError::Engine { engine } => unfillable(*engine).into(),
            LoadError::OnlyStandbys => "name the primary in the cluster file, too".into(),
            LoadError::Placement { leaf, .. } => format!(
                "check {leaf} on every node: exactly one must have it as a table, the others as a foreign table for it; \
                 then run the same command again"
            ),
            LoadError::NoServer { other, .. } => format!(
                "create it with postgres_fdw (create server {other} ...) and a user mapping, as pgfathom up sharded does; a server of a role that \
                 this session does not trust does not count"
            ),
            LoadError::MixedCluster { .. } => {
                "nothing was changed. Check that each address leads to a node of this cluster (no balancer in between, no node of another cluster in the \
                 file); only if a --restart was interrupted, run it again".into()
            }
            LoadError::Published { publication } => format!(
                "remove it for the load: alter publication {publication} drop table usertable; a publication of all tables must be \
                 replaced by one that names its tables"
            ),
            LoadError::Behind { .. } => {
                "check pg_stat_subscription and the server's log on the subscribing node: its apply worker waits or fails; then run \
                 the same command again".into()
            }
            _ => return None,
        })
    }
}

/// A schema of the user's own, and how it is used.
macro_rules! new_schema {
    () => {
        "psql -c 'create schema bench', then PGOPTIONS='-c search_path=bench' before the same pgfathom command"
    };
}
const NEW_SCHEMA: &str = new_schema!();
/// How to load where nothing is in the way.
const OTHER_PLACE: &str = concat!("load into another database, or into another schema: ", new_schema!());

/// Why an engine cannot be loaded.
fn unfillable(engine: engines::Engine) -> &'static str {
    match engine.load {
        LoadPath::None(reason) => reason,
        LoadPath::Leaves | LoadPath::EachNode | LoadPath::Table => "name its nodes with --cluster",
    }
}

/// Whether the role may not use our schema, which another role has made.
fn is_ledger_of_another(error: &postgres::Error) -> bool {
    error
        .as_db_error()
        .is_some_and(|error| error.code().code() == "42501" && error.message().ends_with("schema pgfathom"))
}

/// Hints for what servers refuse most often while a dataset is created or loaded.
fn sqlstate_hint(state: SqlState) -> Option<String> {
    let hint = match &state.0 {
        b"42501" => {
            "the role lacks a privilege: it needs CREATE on the database (for schema pgfathom) and on the table's schema"
        }
        b"53200" => {
            "raise max_locks_per_transaction on the server (every partition takes a lock), or use fewer --partitions"
        }
        b"53100" => {
            "free space on the server (its message above names the file). Tables of an earlier load are dropped by: pgfathom load ... --restart; \
             where even that finds no room: drop table NAME cascade in psql, or remove other files"
        }
        b"53400" => {
            "a limit of the role, database or server was reached (temp_file_limit): raise it for this command: PGOPTIONS='-c temp_file_limit=-1' as a \
             superuser, or alter role NAME set temp_file_limit = -1"
        }
        // Reserved connections are refused with the same code.
        b"53300" => {
            "use fewer streams with -j, or raise the limit that was reached: max_connections, or CONNECTION LIMIT of the role or database"
        }
        b"25006" => {
            "select pg_is_in_recovery() shows whether this is a standby: then connect to the primary, for example with target_session_attrs=read-write. \
             Otherwise default_transaction_read_only is on for the server, the database or the role: PGOPTIONS='-c default_transaction_read_only=off'"
        }
        b"2BP01" => "another object depends on the old table, for example a view: drop it first",
        b"42P01" => {
            "a table is not there: another pgfathom may have restarted the load (then the same command works again), or the node does not have the \
             tables of the dataset: the address may lead to another node than the one that was loaded"
        }
        b"42704" => {
            "create the tablespace first (on every node of a cluster), or omit --tablespace and --tablespaces"
        }
        b"57014" => {
            "an administrator or statement_timeout cancelled it; if the timeout did, switch it off for this command: \
             PGOPTIONS='-c statement_timeout=0'; the same command again continues"
        }
        // A pooler has not passed on what a session must begin with.
        b"55P02" => {
            "a setting with which a session must begin did not reach the server, as through a pooler: connect to the node itself"
        }
        b"55P03" => {
            "another session holds a lock on the table (lock_timeout); the same command again continues"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for a schema of our name without a ledger.
fn schema_hint(is_empty: bool) -> &'static str {
    match is_empty {
        true => {
            "its tables are on the coordinator, if this is a worker: connect there, or name the nodes with --cluster"
        }
        false => {
            "the ledger needs a schema of this name: use another database, or rename that schema (psql -c 'alter schema pgfathom rename to NAME')"
        }
    }
}

/// What makes a load go on.
fn continued(first: &str) -> String {
    format!("{first}, then run the same command again: it continues")
}
