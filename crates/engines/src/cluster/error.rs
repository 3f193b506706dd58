//! Errors of cluster files and of discovery.

use crate::engine::Engine;
use crate::trust::TRUSTED_WORDS;
use connect::ConnectError;
use connect::conninfo::ConninfoError;

/// Why there is no cluster to work with.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The cluster file names an unknown engine.
    #[error("unknown engine {0:?}")]
    UnknownEngine(String),
    /// The cluster file gives a node an unknown role.
    #[error("node {node:?}: unknown role {role:?}")]
    UnknownRole {
        /// The node.
        node: String,
        /// The problem.
        role: String,
    },
    /// Names of nodes must differ.
    #[error("two nodes have the name {0:?}")]
    TwoOfOneName(String),
    /// A cluster file without nodes.
    #[error("it has no [[node]]")]
    NoNodes,
    /// A node's connection string is wrong.
    #[error("node {node:?}: its connection is not valid")]
    Conninfo {
        /// The node.
        node: String,
        /// How.
        source: ConninfoError,
    },
    /// The named node cannot be reached.
    #[error(transparent)]
    Entry(#[from] ConnectError),
    /// A node that the catalog names cannot be reached from here.
    #[error("the catalog of {entry} names the node {node:?} at {address}, {}", unreached(source))]
    Connect {
        /// Where the catalog was read.
        entry: String,
        /// The node.
        node: String,
        /// Its address by the catalog.
        address: String,
        /// Why.
        source: ConnectError,
    },
    /// Two names in the catalog lead to one database.
    #[error("the nodes {first:?} and {second:?} are the same database")]
    SameNode {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// An address behind which several servers answer.
    #[error("the address of {address} leads to several servers: two connections to it reached two of them")]
    Balanced {
        /// The connection in words.
        address: String,
    },
    /// A server that holds partitions is none of the nodes of the cluster file.
    #[error(
        "the catalog of {node:?} has partitions on the server {server:?} at {address}, and no node of the cluster file is that server"
    )]
    ForeignNode {
        /// Whose catalog.
        node: String,
        /// The foreign server.
        server: String,
        /// Its address there.
        address: String,
    },
    /// A node of the cluster file belongs to another cluster than the first one.
    #[error(
        "the nodes {first:?} and {node:?} of the cluster file belong to two clusters: the catalog of {first:?} names {}, that of {node:?} names {}",
        here.join(", "),
        there.join(", ")
    )]
    OtherCluster {
        /// The node.
        node: String,
        /// The first node.
        first: String,
        /// The addresses of all nodes by the catalog of the node.
        there: Vec<String>,
        /// The same by the catalog of the first node.
        here: Vec<String>,
    },
    /// A node that does not work.
    #[error("node {node:?} is {state} in the catalog")]
    NodeState {
        /// The node.
        node: String,
        /// How.
        state: String,
    },
    /// The cluster file names an engine, and the node's database is no part of a cluster of it.
    #[error(
        "the engine of the cluster file is {engine}, and the database {dbname:?} of node {node:?} is no part of {title}"
    )]
    NotTheEngine {
        /// The word in the file.
        engine: &'static str,
        /// The engine.
        title: &'static str,
        /// The node.
        node: String,
        /// The database that its connection names.
        dbname: String,
    },
    /// The engine of the cluster file has no signs of its own, and the database has those of another one.
    #[error(
        "the engine of the cluster file is {engine}, and the database {dbname:?} of node {node:?} is one of {found}, not of {title}"
    )]
    AnotherEngine {
        /// The word in the file.
        engine: &'static str,
        /// The engine.
        title: &'static str,
        /// The node.
        node: String,
        /// The database that its connection names.
        dbname: String,
        /// The engine that it is one of.
        found: &'static str,
        /// What a cluster file calls that.
        word: &'static str,
    },
    /// A standby of the cluster file is a copy of none of its other nodes.
    #[error(
        "node {node:?} of the cluster file is a standby, and its server is no copy of {first:?}: their system identifiers differ"
    )]
    NotItsStandby {
        /// The standby.
        node: String,
        /// A node that takes writes.
        first: String,
    },
    /// A standby was promoted while its primary went on, or came back as one: both take writes, and neither gets those of the other.
    #[error(
        "the nodes {first:?} and {second:?} are copies of one server, and both take writes: what one writes, the other never gets"
    )]
    TwoPrimaries {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// The cluster file names several nodes, and the database of the first one has no other: all rows would be there.
    #[error(
        "the cluster file names {named} nodes, and in the database {dbname:?} of node {node:?} {title} has no node beside it: all rows would be there"
    )]
    NoOthers {
        /// The engine.
        title: &'static str,
        /// The node.
        node: String,
        /// The database that its connection names.
        dbname: String,
        /// The nodes of the file.
        named: usize,
    },
    /// Tables are created through one node, and the cluster file does not have it.
    #[error(
        "no node of the cluster file is the coordinator of {title}{}",
        address.as_ref().map_or_else(String::new, |address| format!(", which their catalogs have at {address}"))
    )]
    NoCoordinator {
        /// The engine.
        title: &'static str,
        /// Its address by the catalog of a worker.
        address: Option<String>,
    },
    /// A node's address is not ours to send a password to.
    #[error(
        "the role {owner} chose the address of node {node:?}, and this session does not trust that role: user and password are not sent there"
    )]
    NotTrusted {
        /// The node.
        node: String,
        /// Who owns the foreign server that has the address.
        owner: String,
    },
    /// A question to the catalog failed.
    #[error("cannot {what}")]
    Sql {
        /// The query.
        what: String,
        /// The engine, if it was already known.
        engine: Option<Engine>,
        /// The server's answer.
        source: postgres::Error,
    },
    /// The catalog's reply is invalid.
    #[error("cannot {what}: {problem}")]
    Catalog {
        /// The query.
        what: String,
        /// What is wrong with the answer.
        problem: String,
    },
}

/// What became of the connection to a node, as the end of a sentence.
fn unreached(source: &ConnectError) -> &'static str {
    match source.is_answered() {
        true => "where no connection could be made",
        false => "which this host cannot reach",
    }
}

impl ClusterError {
    /// Whether a node that the catalog names refuses connections or starts: it may soon be back. An address that does not answer at all may be one that
    /// this host cannot reach.
    pub fn is_node_down(&self) -> bool {
        let ClusterError::Connect { source, .. } = self else { return false };
        source.is_refused() || source.sqlstate().is_some_and(|code| code.starts_with("57P0"))
    }

    /// Whether the server cancelled a question to the catalog, for a conflict with replay or another session: it may answer the next time.
    pub fn is_passing(&self) -> bool {
        let ClusterError::Sql { source, .. } = self else { return false };
        source.code().is_some_and(|code| code.code().starts_with("40") || code.code() == "57014")
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ClusterError::UnknownEngine(_) => {
                let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.name()).collect();
                Some(format!("engine is one of {}", names.join(", ")))
            }
            ClusterError::UnknownRole { .. } => {
                let names: Vec<&str> = super::Role::ALL.iter().map(|role| role.name()).collect();
                Some(format!("role is one of {}", names.join(", ")))
            }
            ClusterError::TwoOfOneName(_) => Some("give each [[node]] a name of its own".to_owned()),
            ClusterError::NoNodes => Some("each node is a [[node]] with name, role and connection".to_owned()),
            ClusterError::Conninfo { source, .. } => source.hint(),
            ClusterError::Entry(source) => source.hint(),
            ClusterError::Connect { source, .. } if source.sqlstate().is_some_and(|code| code.starts_with("28") || code.starts_with("3D")) => Some(
                "that server answers, and refuses this role: let it in there as here (CREATE ROLE, its password, pg_hba.conf, the database)".to_owned(),
            ),
            // A password that is missing, or another reason that the connection itself knows.
            ClusterError::Connect { source, .. } if source.is_answered() => source.hint(),
            ClusterError::Connect { .. } => Some(
                "start that server if it is down; if this host reaches it at another address, write a cluster file with the address of each node as this host \
                 reaches it, and name it with --cluster".to_owned(),
            ),
            ClusterError::SameNode { .. } => {
                Some("name each node once in a cluster file (--cluster): correct the connection of one [[node]], or remove it".to_owned())
            }
            ClusterError::Balanced { .. } => Some(
                "name one node at its own address, or all nodes in a cluster file (--cluster), each at its own: rows and ledgers belong to nodes".to_owned(),
            ),
            ClusterError::ForeignNode { server, .. } => Some(format!(
                "correct the connection of the [[node]] that is {server:?} (its host, port and dbname), or add it; a proxy may stand in front of it"
            )),
            ClusterError::OtherCluster { .. } => Some("correct the connection of one [[node]] in the cluster file, or remove it".to_owned()),
            ClusterError::NotTheEngine { .. } => Some(
                "name the database that is (dbname in each connection, or -d), or write engine = \"postgres\" for servers that do not work together".to_owned(),
            ),
            ClusterError::NoOthers { .. } => Some(
                "add the other nodes in that database, name another database (-d), or name the node alone (-h, -p) to work with it all the same".to_owned(),
            ),
            ClusterError::AnotherEngine { word, .. } => Some(format!(
                "write engine = \"{word}\" in the cluster file, or correct the connection of that [[node]]"
            )),
            ClusterError::NotItsStandby { .. } => {
                Some("correct the role or the connection of one [[node]] in the cluster file, or remove it".to_owned())
            }
            ClusterError::TwoPrimaries { .. } => Some(
                "let applications write to one of them only: the one with the higher timeline (SELECT timeline_id FROM pg_control_checkpoint()) was promoted \
                 last. Make the other its standby again (pg_rewind, or a new base backup), or remove its [[node]]"
                    .to_owned(),
            ),
            ClusterError::NoCoordinator { .. } => {
                Some("add it as a [[node]] with role = \"coordinator\": tables are created through it".to_owned())
            }
            ClusterError::NodeState { .. } => Some(
                "start it, or write a cluster file without it, and name it with --cluster".to_owned(),
            ),
            ClusterError::NotTrusted { node, owner } => Some(format!(
                "name the nodes in a cluster file (--cluster), connect as {0} (-U {0}), or give the foreign server to a role of yours (alter server \
                 {node} owner to ...); {TRUSTED_WORDS}",
                crate::trust::role_word(owner)
            )),
            ClusterError::Sql { engine, source, .. } => sql_hint(*engine, source),
            ClusterError::Catalog { .. } => {
                Some("write a cluster file with all nodes, and name it with --cluster".to_owned())
            }
        }
    }
}

/// The hint for a failed catalog query: a missing privilege, or an unexpected catalog.
pub(crate) fn sql_hint(engine: Option<Engine>, source: &postgres::Error) -> Option<String> {
    let error = source.as_db_error()?;
    let code = error.code().code();
    let engine = engine.map_or_else(String::new, |engine| format!(" of {engine}"));
    match code {
        "42501" => Some(format!(
            "the role may not read this catalog{engine}: grant it that{}, or connect as a superuser or another role that may (-U)",
            grant(error.message()).map_or_else(String::new, |grant| format!(" ({grant})"))
        )),
        "42703" | "42P01" | "42883" => Some(format!(
            "the profile was not written for the catalog{engine} of this release: name the nodes in a cluster file (--cluster), and load through one node"
        )),
        "57014" => Some(
            "an administrator or statement_timeout cancelled it; if the role or the database sets the timeout, switch it off for this command: \
             PGOPTIONS='-c statement_timeout=0'"
                .to_owned(),
        ),
        _ => None,
    }
}

/// What to type so that the role may use what the server's message names. Servers that speak another language than English name it in another place.
fn grant(message: &str) -> Option<String> {
    let (kind, name) = message.strip_prefix("permission denied for ")?.split_once(' ')?;
    let name = connect::sql::identifier(name.trim_matches('"'));
    Some(match kind {
        "schema" => format!(
            "GRANT USAGE ON SCHEMA {name} TO ..., and GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO ..."
        ),
        "table" | "view" | "relation" | "foreign" => {
            format!("GRANT SELECT ON {name} TO ..., with its schema before the name")
        }
        "function" => format!("GRANT EXECUTE ON FUNCTION {name} TO ..., with its schema before the name"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_catalog_is_granted_by_name() {
        let schema = grant("permission denied for schema mtm").expect("a grant");
        assert!(schema.starts_with("GRANT USAGE ON SCHEMA \"mtm\" TO ..., and GRANT SELECT"), "{schema}");
        let view = grant("permission denied for view cluster_nodes").expect("a grant");
        assert!(view.starts_with("GRANT SELECT ON \"cluster_nodes\" TO"), "{view}");
        assert_eq!(grant("keine Berechtigung fuer Schema mtm"), None);
    }
}
