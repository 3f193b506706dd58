//! Errors: why a verification has no verdict. A difference in the content is not an error: it is what [`super::VerifyReport`] is for.

use std::error::Error;
use std::io;

use connect::ConnectError;
use engines::placement::PlacementError;
use wire::backend::ProtocolError;
use wire::copy::CopyError;
use wire::error::{ServerError, SqlState};

use crate::error::{LoadError, is_of_absent_node, sqlstate_of};

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No ledger, or no dataset in it.
    #[error("this database has no dataset loaded by pgfathom")]
    NoDataset {
        /// The one that was requested.
        wanted: &'static str,
    },
    /// Some chunks are missing.
    #[error("the load of dataset {dataset} is not complete")]
    Incomplete {
        /// Its name.
        dataset: String,
    },
    /// Some chunks are missing on a node.
    #[error("the load of dataset {dataset} is not complete on node {node}")]
    IncompleteOn {
        /// Its name.
        dataset: String,
        /// The node.
        node: String,
    },
    /// pgfathom cannot read this kind of cluster node by node.
    #[error("a cluster of {engine} cannot be verified node by node")]
    Engine {
        /// The engine.
        engine: engines::Engine,
    },
    /// Standbys were requested.
    #[error("--standbys: no standbys of this target are known")]
    NoStandbys,
    /// Of a server and its standbys, none takes writes.
    #[error("no node of the cluster file takes writes: {}", standbys_words(nodes))]
    NoPrimary {
        /// The nodes that are standbys.
        nodes: Vec<String>,
    },
    /// Connections to one address reach several servers.
    #[error(
        "{doing} failed: connections to this address reach several servers, and each has a snapshot of its own"
    )]
    Balanced {
        /// What was done.
        doing: String,
        /// The server's error.
        source: Box<ServerError>,
    },
    /// The dataset was made by another version of the format.
    #[error("the dataset {dataset} has format {found}, but this program uses format {known}")]
    Format {
        /// Its name.
        dataset: String,
        /// Format in the ledger.
        found: u32,
        /// Format of this program.
        known: u32,
    },
    /// The table is no longer the one that was made.
    #[error("{table}: {problem}")]
    ChangedTable {
        /// Its name.
        table: String,
        /// What is different.
        problem: String,
    },
    /// A node of a cluster has a plain table of this name.
    #[error("{table}: is a plain table, not partitioned over the nodes")]
    PlainTable {
        /// Its name.
        table: String,
        /// The node.
        node: String,
    },
    /// A server that is no node of the cluster has rows of the dataset.
    #[error(
        "{leaf} is on the server {server} by the catalog of {node}, and no node of this cluster is known to be that server: its rows were not looked for"
    )]
    OtherServer {
        /// The leaf.
        leaf: String,
        /// The node whose catalog has it.
        node: String,
        /// The foreign server.
        server: String,
        /// Its address there, as a cluster file can have it, if the server could not be looked at.
        address: Option<String>,
    },
    /// Policies hide rows from this role.
    #[error("{table}: row-level security hides rows from this role, so not all rows can be verified")]
    RowSecurity {
        /// The table.
        table: String,
    },
    /// The database holds another dataset than the one that was named.
    #[error("this database has no dataset {wanted}, but it has {found}")]
    OtherDataset {
        /// The one that was named.
        wanted: &'static str,
        /// The one that is there.
        found: String,
    },
    /// The database holds pgbench's tables, which have no ledger.
    #[error(
        "this database has tables of pgbench, but no dataset loaded by pgfathom: their expected content is unknown"
    )]
    PgbenchOnly {
        /// The dataset that was requested.
        wanted: &'static str,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LoadError),
    /// The engine's catalog does not show the parts of a table.
    #[error(transparent)]
    Parts(#[from] PlacementError),
    /// No connection.
    #[error("cannot connect to {target}")]
    Connect {
        /// "the target", or a node of it.
        target: String,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
        /// The connection layer's own suggestion.
        hint: Option<String>,
        /// The server has answered before.
        was_there: bool,
    },
    /// Something went wrong at one of several nodes.
    #[error("node {node}: {source}")]
    Node {
        /// Which.
        node: String,
        /// What.
        source: Box<VerifyError>,
    },
    /// A statement of the control connection failed.
    #[error("{doing} failed")]
    Sql {
        /// What it was for.
        doing: &'static str,
        /// The server's error.
        source: postgres::Error,
    },
    /// A statement that reads the table failed.
    #[error("{doing} failed")]
    Server {
        /// What it was for.
        doing: String,
        /// The server's error.
        source: Box<ServerError>,
    },
    /// The connection broke.
    #[error("{doing}: the connection to the server was lost")]
    Lost {
        /// What was being read.
        doing: String,
        /// In which way.
        source: io::Error,
    },
    /// The server answered something that is not the protocol.
    #[error("{doing}: the server violated the protocol")]
    Protocol {
        /// What was being read.
        doing: String,
        /// In which way.
        source: ProtocolError,
    },
    /// Rows came in a form that is not binary COPY.
    #[error("{doing}: the server sent damaged COPY data")]
    Copy {
        /// What was being read.
        doing: String,
        /// In which way.
        source: CopyError,
    },
    /// An answer of an unexpected type.
    #[error("{doing}: the server replied \"{answer}\"")]
    Answer {
        /// What was requested.
        doing: String,
        /// The answer.
        answer: String,
    },
    /// The user stopped it.
    #[error("verification was stopped before it reached a verdict")]
    Interrupted,
}

impl VerifyError {
    /// Whether a server of a cluster went away, and the same may work when it is back. `lost`: the engine's SQLSTATE values for another node that does
    /// not answer.
    pub fn is_node_away(&self, lost: &[&str]) -> bool {
        match self {
            VerifyError::Ledger(error) => error.is_node_away(lost) || error.is_connection_lost(),
            VerifyError::Node { source, .. } => source.is_node_away(lost),
            VerifyError::Sql { source, .. } | VerifyError::Parts(PlacementError::Sql { source, .. }) => {
                match connect::control::server_error(source) {
                    Some(error) => {
                        error.is_fatal() || is_of_absent_node(error.sqlstate, &error.message, lost)
                    }
                    None => is_lost(source),
                }
            }
            VerifyError::Connect { was_there, .. } => *was_there && self.is_unreachable(),
            VerifyError::Server { source, .. } => {
                source.is_fatal() || is_of_absent_node(source.sqlstate, &source.message, lost)
            }
            VerifyError::Lost { .. } => true,
            _ => false,
        }
    }

    /// Whether a server cannot be reached now, and may be again.
    pub fn is_unreachable(&self) -> bool {
        match self {
            VerifyError::Connect { source, .. } => {
                source.downcast_ref::<ConnectError>().is_some_and(ConnectError::is_transient)
            }
            VerifyError::Ledger(error) => error.is_connection_lost(),
            VerifyError::Node { source, .. } => source.is_unreachable(),
            _ => false,
        }
    }

    /// Whether the load of this dataset has to be continued first; it is no reason to leave others out.
    pub fn is_of_load(&self) -> bool {
        matches!(self, VerifyError::Incomplete { .. } | VerifyError::IncompleteOn { .. })
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            VerifyError::NoDataset { wanted } => {
                return Some(format!(
                    "load it first: pgfathom load {wanted}; pgfathom load --help has an example of each dataset"
                ));
            }
            VerifyError::RowSecurity { table } => {
                return Some(format!(
                    "verify as a superuser or a role with bypassrls; or: alter table {table} disable row level security"
                ));
            }
            VerifyError::OtherDataset { found, .. } => {
                return Some(format!("verify the loaded dataset: pgfathom verify {found}"));
            }
            VerifyError::PgbenchOnly { wanted } => {
                return Some(format!(
                    "pgfathom verifies only what it has loaded itself: pgfathom load {wanted}"
                ));
            }
            VerifyError::Engine { .. } => {
                "name one node with -h and -p to verify what that node returns; docs/engines.md lists the engines whose nodes pgfathom reads"
            }
            VerifyError::NoStandbys => {
                "name the cluster file that lists them, as pgfathom up replicated writes it: --cluster cluster.toml"
            }
            VerifyError::NoPrimary { .. } => {
                "add the primary to the cluster file; or name one standby with -h and -p to verify what it returns"
            }
            VerifyError::Balanced { .. } => {
                "name one server at its own address, not at that of a balancer, or all of them in a cluster file (--cluster)"
            }
            VerifyError::Incomplete { .. } | VerifyError::IncompleteOn { .. } => {
                "run the same load command again: it continues; then verify"
            }
            VerifyError::Format { found, known, .. } if found > known => {
                "use the newer pgfathom that loaded it"
            }
            VerifyError::Format { .. } => "use the older pgfathom that loaded it",
            VerifyError::PlainTable { node, .. } => {
                return Some(format!(
                    "check that the connection of {node} leads to a node of this cluster and to its database; if it does, move that table away"
                ));
            }
            VerifyError::OtherServer { server, address, .. } => {
                return Some(unlisted_hint(server, address.as_deref()));
            }
            VerifyError::ChangedTable { .. } => "undo the change, or load the dataset again with --restart",
            VerifyError::Ledger(error) if error.sqlstate() == Some(NO_PRIVILEGE) => {
                return server_hint(NO_PRIVILEGE);
            }
            VerifyError::Ledger(error) => return error.hint(),
            VerifyError::Node { source, .. } => return source.hint(),
            VerifyError::Parts(error) => return error.hint(),
            VerifyError::Connect { hint, .. } => return hint.clone(),
            VerifyError::Sql { source, .. } if is_lost(source) => LOST,
            VerifyError::Sql { source, .. } => return sqlstate_of(source).and_then(server_hint),
            VerifyError::Server { source, .. } => return server_hint(source.sqlstate),
            VerifyError::Lost { .. } => LOST,
            VerifyError::Protocol { .. } | VerifyError::Copy { .. } | VerifyError::Answer { .. } => {
                "if there is a proxy or pooler in between, connect to the server itself"
            }
            VerifyError::Interrupted => "verify again: it changes nothing in the database",
        };
        Some(hint.to_owned())
    }
}

fn unlisted_hint(server: &str, address: Option<&str>) -> String {
    let at = address.map_or_else(String::new, |address| format!(" (its catalog has {address})"));
    format!(
        "name every node in the cluster file: add the [[node]] that is {server}{at}; if it is there at another address, behind a proxy or a pooler, add this \
         one to it as also = [...]"
    )
}

fn standbys_words(nodes: &[String]) -> String {
    let are = if nodes.len() == 1 { "is a standby" } else { "are standbys" };
    format!("{} {are}", nodes.join(", "))
}

/// Whether a server does not know the snapshot that another session has just exported: it is another server.
pub(super) fn is_foreign_snapshot(error: &ServerError) -> bool {
    matches!(&error.sqlstate.0, b"42704" | b"22023") && error.message.contains("snapshot")
}

const LOST: &str = "find the reason in the server's log, then verify again";
/// SQLSTATE of a right that the role lacks.
const NO_PRIVILEGE: SqlState = SqlState(*b"42501");

/// Whether the connection broke: the library knows it as closed only some time after the first statement has failed.
fn is_lost(error: &postgres::Error) -> bool {
    error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>())
}

/// The answer to a statement of a control connection.
pub(super) fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    result.map_err(|source| VerifyError::Sql { doing, source })
}

fn server_hint(state: SqlState) -> Option<String> {
    let hint = match &state.0 {
        b"XX001" | b"XX002" => {
            "the server reports damaged files: its log names the file and block; first make a copy of the data directory"
        }
        b"42501" => {
            "verify as a role that may read the tables and the ledger in schema pgfathom: grant pg_read_all_data to the role (before PostgreSQL 14: \
             USAGE on the schemas, SELECT on the tables); no row-level security policy may apply to it"
        }
        b"40001" => {
            "a standby cancels a query when the primary has removed rows that it reads: raise max_standby_streaming_delay there, or set hot_standby_feedback"
        }
        b"53300" => {
            "use fewer connections with -j, or raise the limit that was reached: max_connections, or CONNECTION LIMIT of the role or database"
        }
        b"55P03" => "another session holds a lock on the table: verify again after it has ended",
        b"57014" => {
            "an administrator or a timeout cancelled it; if it was statement_timeout, switch it off for this command: \
             PGOPTIONS='-c statement_timeout=0'; verify again, it changes nothing"
        }
        b"53400" => {
            "a limit of the role, database or server was reached (temp_file_limit): raise it for this command: PGOPTIONS='-c temp_file_limit=-1' as a \
             superuser, or alter role NAME set temp_file_limit = -1"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_went_away_midway_is_waited_for() {
        let lost =
            VerifyError::Lost { doing: "reading item_1".into(), source: io::ErrorKind::BrokenPipe.into() };
        let at_node = VerifyError::Node { node: "w2".into(), source: Box::new(lost) };
        assert!(at_node.is_node_away(&[]) && at_node.hint().is_some());
        assert!(at_node.to_string().starts_with("node w2: reading item_1"), "{at_node}");
        let nowhere = connect::ConnSpec::new("/nonexistent", 1, "r", "d");
        let refused = |was_there| VerifyError::Connect {
            target: "node w2".into(),
            source: Box::new(connect::control::connect(&nowhere).unwrap_err()),
            hint: None,
            was_there,
        };
        assert!(refused(true).is_node_away(&[]) && !refused(false).is_node_away(&[]));
    }

    #[test]
    fn what_users_meet_has_a_hint() {
        assert!(VerifyError::NoDataset { wanted: "ycsb" }.hint().unwrap().contains("load ycsb"));
        let format = |found| VerifyError::Format { dataset: "ycsb".into(), found, known: 1 };
        assert!(format(2).hint().unwrap().contains("newer"));
        assert!(format(0).hint().unwrap().contains("older"));
        let server = |code| VerifyError::Server {
            doing: "reading usertable".into(),
            source: Box::new(ServerError {
                severity: "ERROR".into(),
                sqlstate: SqlState(code),
                message: "no".into(),
                detail: None,
                hint: None,
                position: None,
            }),
        };
        assert!(server(*b"XX001").hint().unwrap().contains("damaged"));
        assert!(server(*b"42501").hint().unwrap().contains("grant pg_read_all_data"));
        assert_eq!(server(*b"22000").hint(), None);
        // Another session's snapshot is unknown only on another server.
        let unknown = |message: &str| ServerError {
            severity: "ERROR".into(),
            sqlstate: SqlState(*b"42704"),
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
        };
        assert!(is_foreign_snapshot(&unknown("snapshot \"00000003-1\" does not exist")));
        assert!(!is_foreign_snapshot(&unknown("unrecognized configuration parameter \"view\"")));
        assert_eq!(server(*b"42501").to_string(), "reading usertable failed");
    }
}
