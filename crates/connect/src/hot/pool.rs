//! The kind of pool at an address that did not accept the settings of a session: it is determined by comparing several sessions.

use std::time::Duration;

use super::{HotConnection, QueryError, open_bare};
use crate::attempt::{Candidate, Encryption, Failure};
use crate::conninfo::ConnSpec;
use crate::settings::Way;
use crate::tls::Tls;

/// Sessions that are compared with the first one: several poolers may share a port, each with its own pool.
const COMPARED: usize = 4;
/// The time limit for a pool: an idle one answers at once, and one that does not has no free server process.
const PATIENCE: Duration = Duration::from_secs(3);

/// Determines the kind of pool at an address that did not accept settings. `without` them, sessions can be opened.
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
        // No answer: every server process is taken. What is safe for shared processes is safe in any case.
        if process_of(&mut other).is_none_or(|theirs| theirs == mine) || process_of(&mut first) != Some(mine)
        {
            return Ok(if refuses_transactions(&mut first) { Way::Nowhere } else { Way::Transaction });
        }
        others.push(other);
    }
    Ok(Way::Statements)
}

/// Whether a pooler ends a session that begins a transaction. Its message is in one language, and nothing else has a reason to refuse this.
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
