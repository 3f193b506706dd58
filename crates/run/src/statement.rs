//! The statements of a workload, laid out once per session: prepared on the server, or sent with their text each time.

use wire::backend::{Frames, tag};
use wire::error::ServerError;
use wire::frontend::{self, Format};
use wire::prepared::{Template, Wire};

use crate::engine::link::LinkError;
use crate::engine::session::Session;
use crate::pooler;
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
    /// Somebody reads the names and values of its result: it is described and comes as text in either wire mode.
    pub is_read: bool,
    /// How many parameters are written when it is executed.
    pub parameters: usize,
    /// Where it stands, if it is the user's: file and line.
    pub place: Option<String>,
}

impl StatementSpec {
    /// A statement of a workload of ours, whose parameters are the `$1`, `$2`, ... in it.
    pub fn ours(name: String, sql: String) -> StatementSpec {
        // A quoted name may have anything in it.
        let outside: String = sql.split('"').step_by(2).collect();
        let parameters = (1..).take_while(|number| outside.contains(&format!("${number}"))).count();
        StatementSpec { name, sql, mode: QueryMode::Prepared, is_read: false, parameters, place: None }
    }
}

/// Why statements could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The connection was lost.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server refused the statement.
    #[error("{}the server refused to prepare \"{}\": {error}", place(.spec), .spec.sql)]
    Refused {
        /// The statement.
        spec: StatementSpec,
        /// What the server said.
        error: ServerError,
    },
    /// The server knows another number of parameters: it sees none where it takes no expressions, as in most of DDL.
    #[error(
        "{}\"{}\" has {}, but for the server it takes {takes}",
        place(.spec),
        .spec.sql,
        counted(.spec.parameters)
    )]
    Parameters {
        /// The statement.
        spec: StatementSpec,
        /// How many the server wants.
        takes: usize,
    },
}

impl PrepareError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        const SIMPLE: &str = "-M simple sends the statement as text, with the variables' values in it";
        let (spec, server) = match self {
            PrepareError::Link(_) => return None,
            PrepareError::Refused { spec, error } => (spec, Some(error)),
            PrepareError::Parameters { spec, .. } => (spec, None),
        };
        if let Some(hint) = server.and_then(|error| pooler::hint(error.sqlstate, &error.message)) {
            return Some(hint.to_owned());
        }
        let own = match server.map(|error| error.sqlstate.as_str()) {
            Some("42P01") if spec.sql.contains("pgbench_") => {
                Some("make pgbench's tables first: pgbench -i".to_owned())
            }
            Some("42P01") if spec.sql.contains("usertable") && spec.place.is_none() => {
                Some("fill it first: pgfathom load ycsb --rows 1M".to_owned())
            }
            _ => server.and_then(|error| error.hint.clone()),
        };
        match (&spec.place, own) {
            (None, own) => own,
            (Some(_), None) => Some(SIMPLE.to_owned()),
            (Some(_), Some(own)) => Some(format!("{own}; {SIMPLE}")),
        }
    }
}

fn place(spec: &StatementSpec) -> String {
    spec.place.as_ref().map_or_else(String::new, |place| format!("{place}: "))
}

fn counted(parameters: usize) -> String {
    match parameters {
        0 => "no variable".to_owned(),
        1 => "1 variable".to_owned(),
        many => format!("{many} variables"),
    }
}

/// Lays out the executions of all of `specs`; those that are to be prepared are, in one round trip each.
pub async fn prepare(
    session: &Session,
    wire: Wire,
    specs: &[StatementSpec],
) -> Result<Vec<Template>, PrepareError> {
    let mut templates = Vec::with_capacity(specs.len());
    for spec in specs {
        match spec.mode {
            QueryMode::Simple => {
                templates.push(Template::simple(&spec.sql));
                continue;
            }
            QueryMode::Extended => {
                templates.push(Template::extended(&spec.sql, spec.parameters as u16));
                continue;
            }
            QueryMode::Prepared => {}
        }
        session.request(|out| {
            frontend::parse(out, &spec.name, &spec.sql, &[]);
            frontend::describe_statement(out, &spec.name);
            frontend::sync(out);
        });
        let reply = session.reply().await?;
        if let Some(error) = session.error_of(reply) {
            return Err(PrepareError::Refused { spec: spec.clone(), error });
        }
        let types = session.with_frames(reply, parameter_types);
        if types.len() != spec.parameters {
            return Err(PrepareError::Parameters { spec: spec.clone(), takes: types.len() });
        }
        let wire = if spec.is_read { Wire::Libpq } else { wire };
        let result = if wire == Wire::Libpq { Format::Text } else { Format::Binary };
        templates.push(Template::new(wire, &spec.name, &types, result));
    }
    Ok(templates)
}

/// The types in a ParameterDescription: a count and that many OIDs.
fn parameter_types(mut frames: Frames<'_>) -> Vec<u32> {
    let Some(frame) = frames.find(|frame| frame.tag == tag::PARAMETER_DESCRIPTION) else { return Vec::new() };
    frame
        .body
        .get(2..)
        .unwrap_or_default()
        .chunks_exact(4)
        .map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
        .collect()
}
