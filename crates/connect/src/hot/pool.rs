//! What is behind a place that did not take the settings of a session: sessions of ours are compared with each other.

use std::time::Duration;

use super::{HotConnection, QueryError, open_bare};
use crate::attempt::{Candidate, Encryption, Failure};
use crate::conninfo::ConnSpec;
use crate::settings::Way;
use crate::tls::Tls;

/// Sessions that are compared with the first one: several poolers may share a port, each with a pool of its own.
const COMPARED: usize = 4;
/// An idle pool answers at once. One that does not has no server process left.
const PATIENCE: Duration = Duration::from_secs(3);

/// Finds out which kind of pool is behind a place that did not take settings; `without` any, sessions can be opened there.
pub(crate) fn learn(
    without: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
) -> Result<Way, Failure> {
    let open = || open_bare(without, candidate, encryption, tls);
    let mut first = open()?;
    let Some(mine) = process_of(&mut first) else { return Ok(Way::Transaction) };
    let mut others = Vec::new();
    for _ in 0..COMPARED {
        let mut other = open()?;
        // No answer: every server process is taken, and nobody can tell by whom. What is good for shared ones is good in any case.
        if process_of(&mut other).is_none_or(|theirs| theirs == mine) || process_of(&mut first) != Some(mine)
        {
            return Ok(if refuses_transactions(&mut first) { Way::Nowhere } else { Way::Transaction });
        }
        others.push(other);
    }
    Ok(Way::Statements)
}

/// Whether a pooler ends a session that begins a transaction. It says so in one language, and nothing else has reason to refuse this.
fn refuses_transactions(session: &mut HotConnection) -> bool {
    session.set_deadline(PATIENCE);
    let refused = matches!(session.simple_query("begin"), Err(QueryError::Server(error)) if error.message.contains("statement pooling"));
    if !refused {
        let _ = session.simple_query("rollback");
    }
    refused
}

fn process_of(session: &mut HotConnection) -> Option<u32> {
    session.set_deadline(PATIENCE);
    session.backend_pid().ok()
}
