//! Errors: why there is no result.

use connect::ConnectError;
use connect::hot::QueryError;

/// Errors: why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// No connection.
    #[error("cannot connect to the target")]
    Connect(#[from] ConnectError),
    /// One of the tables is not there.
    #[error("there is no table {table} in this database")]
    NoTable {
        /// Its name.
        table: &'static str,
        /// What fills it.
        fill: &'static str,
    },
    /// A view stands in the place of one of the tables.
    #[error("{name} is a {kind}, not a table")]
    NotATable {
        /// Its name, with the schema.
        name: String,
        /// What it is.
        kind: String,
    },
    /// A table, or something attached to it, belongs to a role whose code must not run with our rights.
    #[error("{0}")]
    NotTrusted(engines::trust::Distrust),
    /// There is nothing to judge.
    #[error("{what}")]
    Empty {
        /// What is missing.
        what: String,
        /// What to type next.
        hint: String,
    },
    /// A statement before the conditions failed.
    #[error("{doing} failed")]
    Sql {
        /// What it was for.
        doing: &'static str,
        /// What happened.
        source: Box<QueryError>,
    },
    /// The server's answer does not fit the query.
    #[error("{doing}: the server's reply is invalid")]
    Answer {
        /// What it was for.
        doing: &'static str,
    },
    /// The engine's catalog does not show which nodes have copies of a table.
    #[error(transparent)]
    Copies(#[from] engines::placement::PlacementError),
    /// One of the nodes that hold every row.
    #[error("node {node} could not be judged")]
    OnNode {
        /// Which.
        node: String,
        /// Why.
        source: Box<ProveError>,
    },
    /// The system refused a thread.
    #[error("this host could not start a thread")]
    Thread(#[from] std::io::Error),
    /// The user stopped it.
    #[error("interrupted before there was a result")]
    Interrupted,
}

impl ProveError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProveError::Connect(error) => error.hint(),
            ProveError::NoTable { fill, .. } => {
                Some(format!("load it: {fill}, or name the database that holds the tables"))
            }
            ProveError::NotATable { name, .. } => Some(format!(
                "give the table its name back, and drop or rename {name}: the conditions are those of tables"
            )),
            ProveError::NotTrusted(distrust) => Some(distrust.hint()),
            ProveError::OnNode { source, .. } => source.hint(),
            ProveError::Copies(error) => error.hint(),
            ProveError::Empty { hint, .. } => Some(hint.clone()),
            ProveError::Sql { source, .. } => match source.as_ref() {
                QueryError::Server(error) => Some(server_hint(error.sqlstate.as_str()).to_owned()),
                QueryError::Io(_) => Some("look at the log of the server".to_owned()),
            },
            ProveError::Answer { .. } | ProveError::Thread(_) | ProveError::Interrupted => None,
        }
    }
}

/// What fits the SQLSTATE with which a server refused a statement that only reads.
fn server_hint(state: &str) -> &'static str {
    match state {
        "42501" => "the role needs SELECT on the tables, and no row-level security policy may apply to it",
        "40001" => {
            "a standby cancels a query when the primary has removed rows that it reads: raise max_standby_streaming_delay there, or set \
             hot_standby_feedback"
        }
        "53300" => "use fewer connections with -j, or raise the limit that was reached",
        "55P03" => "another session holds a lock on the table: prove again after it has ended",
        "57014" => "an administrator or a timeout cancelled it; prove again, it changes nothing",
        "0A000" => {
            "the server cannot run this statement, so nothing is known about the rows: send in its message with the engine and its version"
        }
        _ if state.starts_with("42") => {
            "the tables lack what the benchmark defines, or another program changes them"
        }
        _ => "look at the log of the server",
    }
}

impl ProveError {
    /// A statement before the conditions failed.
    pub fn sql(doing: &'static str) -> impl Fn(QueryError) -> ProveError {
        move |source| ProveError::Sql { doing, source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_fits_the_sqlstate() {
        let hint = |code: &str| {
            let body = [b"C", code.as_bytes(), b"\0Mrefused\0\0"].concat();
            let error = wire::error::ServerError::parse(&body);
            ProveError::sql("counting")(error.into()).hint().unwrap()
        };
        assert!(hint("42501").contains("needs SELECT"));
        for other in ["0A000", "42P01", "42703", "57014", "XX000"] {
            assert!(!hint(other).contains("SELECT"), "{other}: {}", hint(other));
        }
        assert!(hint("0A000").contains("cannot run this statement"));
    }
}
