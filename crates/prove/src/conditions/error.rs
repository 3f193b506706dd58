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
            ProveError::NotTrusted(distrust) => Some(distrust.hint()),
            ProveError::Empty { hint, .. } => Some(hint.clone()),
            ProveError::Sql { .. } => {
                Some("the role needs SELECT on the tables; see also the log of the server".into())
            }
            ProveError::Answer { .. } | ProveError::Thread(_) | ProveError::Interrupted => None,
        }
    }
}

impl ProveError {
    /// A statement before the conditions failed.
    pub fn sql(doing: &'static str) -> impl Fn(QueryError) -> ProveError {
        move |source| ProveError::Sql { doing, source: Box::new(source) }
    }
}
