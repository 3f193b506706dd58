//! A statement before it is prepared.

use crate::script::QueryMode;

/// A statement as a workload names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementSpec {
    /// Its name on the server.
    pub name: String,
    /// Its text with `$1`, `$2`, ...
    pub sql: String,
    /// How it is sent.
    pub mode: QueryMode,
    /// The names and values of its result are read: it is described and comes as text in either wire mode.
    pub is_read: bool,
    /// How many parameters are written when it is executed.
    pub parameters: usize,
    /// Where it stands, if it is the user's: file and line.
    pub place: Option<String>,
    /// What to type where the server knows none of its tables.
    pub fill: Option<&'static str>,
    /// Its workload sends it in no other way than prepared.
    pub is_always_prepared: bool,
}

impl StatementSpec {
    /// A statement of a workload of ours, whose parameters are the `$1`, `$2`, ... in it.
    pub fn ours(name: String, sql: String) -> StatementSpec {
        // A quoted name may have anything in it.
        let outside: String = sql.split('"').step_by(2).collect();
        let parameters = (1..).take_while(|number| outside.contains(&format!("${number}"))).count();
        StatementSpec {
            name,
            sql,
            mode: QueryMode::Prepared,
            is_read: false,
            parameters,
            place: None,
            fill: None,
            is_always_prepared: true,
        }
    }
}
