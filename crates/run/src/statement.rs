//! The statements of a workload, prepared once per session: prepared on the server, or sent with their text each time.

use record::number;
use wire::backend::{Frames, tag};
use wire::error::ServerError;
use wire::frontend::{self, Format};
use wire::prepared::{Template, Wire};

use crate::engine::link::LinkError;
use crate::engine::session::Session;
use crate::pooler::{self, Between};
use crate::script::QueryMode;
pub use crate::statement_spec::StatementSpec;

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
        /// What the server reported.
        error: ServerError,
        /// What it misses is made by another statement of the mix, or by this one.
        is_made_by_script: bool,
    },
    /// The server knows another number of parameters: it counts none where it takes no expressions, as in most of DDL.
    #[error(
        "{}\"{}\" has {}, but the server expects {takes}",
        place(.spec),
        .spec.sql,
        counted(.spec.parameters)
    )]
    Parameters {
        /// The statement.
        spec: StatementSpec,
        /// How many the server takes.
        takes: usize,
    },
}

impl PrepareError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        const SIMPLE: &str = "-M simple sends the statement as text, with the variables' values in it";
        let (spec, server) = match self {
            PrepareError::Link(_) => return None,
            PrepareError::Refused { spec, error, .. } => (spec, Some(error)),
            PrepareError::Parameters { spec, .. } => (spec, None),
        };
        // The session is new: only a pooler can have prepared anything in it.
        let lost = |error: &ServerError| {
            pooler::hint(error.sqlstate, &error.message, Between::SharedPool, std::slice::from_ref(spec))
        };
        if let Some(hint) = server.and_then(lost) {
            return Some(hint.to_owned());
        }
        let own = match server.map(|error| error.sqlstate.as_str()) {
            Some("42P01") if spec.fill.is_some() => spec.fill.map(str::to_owned),
            _ => server.and_then(|error| error.hint.clone()),
        };
        match (spec.place.is_some() && self.is_cured_by_text(), own) {
            (false, own) => own,
            (true, None) => Some(SIMPLE.to_owned()),
            (true, Some(own)) => Some(format!("{own}; {SIMPLE}")),
        }
    }

    /// Whether the statement would be taken in the midst of its script, or with values in place of its parameters.
    fn is_cured_by_text(&self) -> bool {
        match self {
            PrepareError::Link(_) => false,
            PrepareError::Parameters { .. } => true,
            PrepareError::Refused { spec, error, is_made_by_script } => match error.sqlstate.as_str() {
                // A syntax error at a parameter: a name, or a part of one, where the server takes no value.
                "42601" => error.position.is_some_and(|position| is_parameter_at(&spec.sql, position)),
                // Types that a value would determine: indeterminate, ambiguous parameter, ambiguous function.
                "42P18" | "42P08" | "42725" => spec.parameters > 0,
                _ => *is_made_by_script,
            },
        }
    }
}

/// The rest of the text from a place that the server has counted in characters from 1.
fn from_position(sql: &str, position: u32) -> &str {
    let start = sql.char_indices().nth((position as usize).saturating_sub(1)).map_or(sql.len(), |(at, _)| at);
    &sql[start..]
}

/// Whether a parameter stands there, or right before it: `t_$1` is one word for the server, `SET x TO $1` fails at the parameter.
fn is_parameter_at(sql: &str, position: u32) -> bool {
    let rest = from_position(sql, position);
    let word = rest.split(|c: char| c.is_whitespace() || ";,()".contains(c)).next().unwrap_or_default();
    word.contains('$') || sql[..sql.len() - rest.len()].ends_with(|c: char| c == '$' || c.is_ascii_digit())
}

/// The words of a statement, names in quotes without them, all in small letters.
fn words(sql: &str) -> impl Iterator<Item = String> + '_ {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    sql.split(move |c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Whether a script makes what this error of one of its statements misses: a table, a function, a type, a schema. By the place in the text, which
/// every language of the server's messages gives.
fn is_made_by(specs: &[StatementSpec], sql: &str, error: &ServerError) -> bool {
    if !matches!(error.sqlstate.as_str(), "42P01" | "42883" | "42703" | "42704" | "3F000") {
        return false;
    }
    // A qualified name is a row of words without a blank between them.
    let Some(position) = error.position else { return false };
    let rest = from_position(sql, position);
    let end = rest.find(|c: char| !(c.is_alphanumeric() || "_$.\"".contains(c))).unwrap_or(rest.len());
    let Some(name) = words(&rest[..end]).last() else { return false };
    specs.iter().filter(|spec| spec.place.is_some()).any(|spec| {
        let makes = words(&spec.sql).any(|word| matches!(word.as_str(), "create" | "rename" | "import"))
            || (words(&spec.sql).any(|word| word == "select")
                && words(&spec.sql).any(|word| word == "into")
                && !words(&spec.sql).any(|word| matches!(word.as_str(), "insert" | "merge")));
        makes && words(&spec.sql).any(|word| word == name)
    })
}

fn place(spec: &StatementSpec) -> String {
    spec.place.as_ref().map_or_else(String::new, |place| format!("{place}: "))
}

fn counted(parameters: usize) -> String {
    match parameters {
        0 => "no variable".to_owned(),
        some => number::counted(some as u64, "variable"),
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
            let is_made_by_script = is_made_by(specs, &spec.sql, &error);
            return Err(PrepareError::Refused { spec: spec.clone(), error, is_made_by_script });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(statements: &[&str], at: usize, code: &[u8; 5], position: Option<u32>) -> String {
        let specs: Vec<StatementSpec> = statements
            .iter()
            .map(|sql| StatementSpec {
                place: Some("x.sql:1".into()),
                ..StatementSpec::ours("script_0".into(), (*sql).to_owned())
            })
            .collect();
        let error = ServerError {
            severity: "ERROR".into(),
            sqlstate: wire::error::SqlState(*code),
            message: "irgendetwas".into(),
            detail: None,
            hint: None,
            position,
        };
        let is_made_by_script = is_made_by(&specs, &specs[at].sql, &error);
        let refused = PrepareError::Refused { spec: specs[at].clone(), error, is_made_by_script };
        refused.hint().unwrap_or_default()
    }

    #[test]
    fn text_is_offered_where_it_helps_and_nowhere_else() {
        let made = [
            ("create temporary table s (x int)", "select x from s", 15),
            ("CREATE TABLE p.\"S\" (x int)", "insert into p.\"S\" values ($1)", 13),
            ("select 1 as x into temp s", "select é, x from s", 18),
            ("create function f(int) returns int language sql as 'select 1'", "select f($1)", 8),
            ("alter table t rename to s", "delete from s", 13),
        ];
        for (maker, user, position) in made {
            assert!(hint(&[maker, user], 1, b"42P01", Some(position)).contains("-M simple"), "{user}");
            // The same statement where no statement makes it.
            assert_eq!(hint(&["select 1", user], 1, b"42P01", Some(position)), "", "{user}");
            assert_eq!(hint(&[maker, user], 1, b"42501", Some(position)), "", "{user}");
        }
        assert_eq!(hint(&["insert into nowhere select 1"], 0, b"42P01", Some(13)), "");
        assert_eq!(hint(&["call nowhere($1)"], 0, b"42883", Some(6)), "");
        // A table of another name.
        assert_eq!(hint(&["create temp table s ()", "select * from s2"], 1, b"42P01", Some(15)), "");
        for (sql, position) in [
            ("drop table t_$1", 14),
            ("drop table t_$1", 12),
            ("set work_mem to $1", 17),
            ("alter table $1 add x int", 13),
        ] {
            assert!(hint(&[sql], 0, b"42601", Some(position)).contains("-M simple"), "{sql}");
        }
        assert_eq!(hint(&["selct x from t where y = $1"], 0, b"42601", Some(1)), "");
        assert!(hint(&["select $1"], 0, b"42P18", None).contains("-M simple"));
    }
}
