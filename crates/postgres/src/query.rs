//! What can be executed: text, or a prepared statement.

use tokio_postgres::Statement;

/// A query as the client takes it.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// Its text, prepared for one use.
    Text(&'a str),
    /// Prepared before.
    Prepared(&'a Statement),
}

/// What can be run. The library's own trait would make every crate that sends a query compile the library's futures again.
pub trait AsQuery {
    /// As the client takes it.
    fn as_query(&self) -> Query<'_>;
}

impl AsQuery for str {
    fn as_query(&self) -> Query<'_> {
        Query::Text(self)
    }
}

impl AsQuery for String {
    fn as_query(&self) -> Query<'_> {
        Query::Text(self)
    }
}

impl AsQuery for Statement {
    fn as_query(&self) -> Query<'_> {
        Query::Prepared(self)
    }
}
