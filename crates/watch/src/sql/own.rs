//! What the engine of a cluster makes for itself on a server, found by the signs of its extension.

use crate::sql::session::{Failed, Session};
use engines::engine::Signs;
use engines::profile::Own;
use serde_json::Value;

/// The engines and replications whose objects this server has, of those that make something for themselves or have subscriptions of their own.
///
/// # Errors
/// When the connection is gone.
pub(crate) fn signs(session: &mut Session) -> Result<Vec<Signs>, Failed> {
    let mut wanted = engines::engine::signs();
    wanted.retain(|sign| {
        sign.own() != Own::NOTHING
            || sign.replication.is_some_and(|replication| replication.subscriptions.is_some())
    });
    let list: Vec<&str> = wanted.iter().map(|sign| sign.sql).collect();
    match session.query(&format!("select json_build_array({})::text", list.join(", ")), &[]) {
        Ok(Value::Array(found)) => {
            let mut found = found.into_iter();
            wanted.retain(|_| found.next() == Some(Value::Bool(true)));
            Ok(wanted)
        }
        Ok(_) | Err(Failed::Refused { .. }) => Ok(vec![]),
        Err(gone) => Err(gone),
    }
}

/// Lets the session see the parts of tables that engines hide. Behind a pooler the session is not ours alone, and stays as it is.
///
/// # Errors
/// When the connection is gone.
pub fn show_parts(session: &mut Session, all: &[Own]) -> Result<(), Failed> {
    if session.is_shared() {
        return Ok(());
    }
    for (name, value) in all.iter().filter_map(|own| own.shows_parts) {
        match session.plain(&format!("set {name} = {value}")) {
            Ok(_) | Err(Failed::Refused { .. }) => {}
            Err(gone) => return Err(gone),
        }
    }
    Ok(())
}

/// What the engines make for themselves whose signs this server has.
///
/// # Errors
/// When the connection is gone.
pub fn of_server(session: &mut Session) -> Result<Vec<Own>, Failed> {
    Ok(signs(session)?.iter().map(Signs::own).collect())
}
