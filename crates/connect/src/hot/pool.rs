//! The kind of pool at an address that did not accept the settings of a session: it is determined by comparing several sessions.

use std::io;
use std::time::Duration;

use super::{HotConnection, QueryError, connect, open_bare};
use crate::attempt::{Candidate, ConnectError, Encryption, Failure};
use crate::conninfo::ConnSpec;
use crate::settings::Way;
use crate::tls::Tls;

/// Sessions that are compared with the first one: several poolers may share a port, each with its own pool.
const COMPARED: usize = 4;
/// The time limit for a pool: an idle one answers at once, and one that does not has no free server process.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time limit for an answer that is there already, if it ever comes.
const MOMENT: Duration = Duration::from_millis(300);

/// Whether a session that is opened now gets an answer to a query within `limit`: a pool may have no server connection for it.
///
/// # Errors
/// When it cannot be opened.
pub fn is_answered(spec: &ConnSpec, limit: Duration) -> Result<bool, ConnectError> {
    let mut session = connect(spec)?;
    session.set_deadline(limit);
    Ok(
        !matches!(session.simple_query("select 1"), Err(QueryError::Io(error)) if error.kind() == io::ErrorKind::TimedOut),
    )
}

/// Determines the kind of pool at an address that did not accept settings. `without` them, sessions can be opened.
pub(crate) fn learn(
    without: &ConnSpec,
    candidate: &Candidate,
    encryption: Encryption,
    tls: Option<&Tls>,
) -> Result<Way, Failure> {
    let open = || open_bare(without, candidate, encryption, tls);
    let mut first = open()?;
    let Some(mine) = process_of(&mut first, PATIENCE) else { return Ok(Way::Transaction) };
    let mut others = Vec::new();
    for _ in 0..COMPARED {
        let mut other = open()?;
        let theirs = process_of(&mut other, PATIENCE);
        if theirs.is_none() && keeps_the_only_one(&mut first, mine, &mut other) {
            // Ends it, so that its process is free.
            drop(first);
            return Ok(match process_of(&mut other, PATIENCE) {
                Some(_) => Way::Single,
                None => Way::Transaction,
            });
        }
        // No answer: every server process is taken. What is safe for shared processes is safe in any case.
        if theirs.is_none_or(|theirs| theirs == mine) || process_of(&mut first, PATIENCE) != Some(mine) {
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

/// Whether the first session is answered by its process although another one, which requested one earlier, still has none. Where processes are shared, the
/// one that waits longest is the next.
fn keeps_the_only_one(first: &mut HotConnection, mine: u32, other: &mut HotConnection) -> bool {
    process_of(first, PATIENCE) == Some(mine) && process_of(other, MOMENT).is_none()
}

/// The server process of a session. After one without an answer in time, the next question gets the answer to that one, which is the same.
fn process_of(session: &mut HotConnection, patience: Duration) -> Option<u32> {
    session.set_deadline(patience);
    session.backend_pid().ok()
}
