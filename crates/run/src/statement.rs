//! Statements prepared on the server, once per session.

use wire::backend::{Frames, tag};
use wire::error::ServerError;
use wire::frontend::{self, Format};
use wire::prepared::{Template, Wire};

use crate::engine::link::LinkError;
use crate::engine::session::Session;

/// A statement as a workload names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementSpec {
    /// Its name on the server.
    pub name: String,
    /// Its text with `$1`, `$2`, ...
    pub sql: String,
    /// Somebody reads the names and values of its result: it is described and comes as text in either wire mode.
    pub is_read: bool,
}

/// Why statements could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The connection was lost.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server refused the statement.
    #[error("the server refused to prepare \"{sql}\": {error}")]
    Refused {
        /// The statement.
        sql: String,
        /// What the server said.
        error: ServerError,
    },
}

/// Prepares all of `specs` in one round trip each, and lays out their executions.
pub async fn prepare(
    session: &Session,
    wire: Wire,
    specs: &[StatementSpec],
) -> Result<Vec<Template>, PrepareError> {
    let mut templates = Vec::with_capacity(specs.len());
    for spec in specs {
        session.request(|out| {
            frontend::parse(out, &spec.name, &spec.sql, &[]);
            frontend::describe_statement(out, &spec.name);
            frontend::sync(out);
        });
        let reply = session.reply().await?;
        if let Some(error) = session.error_of(reply) {
            return Err(PrepareError::Refused { sql: spec.sql.clone(), error });
        }
        let types = session.with_frames(reply, parameter_types);
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
