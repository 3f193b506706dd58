//! Requests of a transaction: several statements are sent together, and their replies are read together.

use run::engine::link::Reply;
use run::engine::session::Session;
use run::workload::{TransactionError, succeeded};
use wire::backend::{command_tag, rows_affected, tag};
use wire::frontend;
use wire::prepared::{Execution, Template};

/// A request being written.
#[derive(Debug)]
pub struct Request<'a> {
    templates: &'a [Template],
    out: &'a mut Vec<u8>,
}

impl Request<'_> {
    /// Adds a statement, by its place, whose parameters `write` writes in order.
    pub fn execute(&mut self, statement: usize, write: impl FnOnce(&mut Execution<'_>)) {
        let mut execution = self.templates[statement].begin(self.out);
        write(&mut execution);
        execution.finish();
    }

    /// Adds a statement without parameters.
    pub fn command(&mut self, statement: usize) {
        self.execute(statement, |_| ());
    }
}

/// Sends a request and awaits its answer. An error of any of its statements is the answer's.
///
/// # Errors
/// What the server reported, or that the connection is lost.
#[inline]
pub async fn ask(
    session: &Session,
    templates: &[Template],
    write: impl FnOnce(&mut Request<'_>),
) -> Result<Reply, TransactionError> {
    send(session, templates, write);
    let reply = session.reply().await?;
    succeeded(session, reply)?;
    Ok(reply)
}

/// The same where the rows are not read: a long result is not kept.
///
/// # Errors
/// What the server reported, or that the connection is lost.
pub(crate) async fn ask_without_rows(
    session: &Session,
    templates: &[Template],
    write: impl FnOnce(&mut Request<'_>),
) -> Result<(), TransactionError> {
    send(session, templates, write);
    session.drop_rows();
    let reply = session.reply().await?;
    succeeded(session, reply)
}

#[inline]
fn send(session: &Session, templates: &[Template], write: impl FnOnce(&mut Request<'_>)) {
    session.request(|out| {
        write(&mut Request { templates, out });
        frontend::sync(out);
    });
}

/// Fails unless each of the first statements of a request found or changed as many rows as `rows` gives; `None`: any number.
///
/// # Errors
/// A row that must be there was not.
pub(crate) fn expect_rows(
    session: &Session,
    reply: Reply,
    rows: &[Option<u64>],
    what: &str,
) -> Result<(), TransactionError> {
    let wrong = session.with_frames(reply, |frames| {
        let ended = frames.filter(|frame| frame.tag == tag::COMMAND_COMPLETE);
        let mut found = ended.map(|frame| rows_affected(frame.body).unwrap_or(0)).zip(rows);
        found.find_map(|(found, wanted)| {
            wanted.filter(|wanted| *wanted != found).map(|wanted| (found, wanted))
        })
    });
    match wrong {
        None => Ok(()),
        Some((found, wanted)) => {
            Err(TransactionError::RowMissing(format!("expected {wanted} rows of {what}, got {found}")))
        }
    }
}

/// Fails unless the server answered COMMIT: it answers a COMMIT in a transaction that has failed with ROLLBACK, and without an error.
///
/// # Errors
/// The server rolled back.
pub(crate) fn expect_commit(session: &Session, reply: Reply) -> Result<(), TransactionError> {
    let has_committed = session.with_frames(reply, |mut frames| {
        frames.any(|frame| frame.tag == tag::COMMAND_COMPLETE && command_tag(frame.body) == b"COMMIT")
    });
    match has_committed {
        true => Ok(()),
        false => Err(TransactionError::RolledBack("the server rolled back instead of committing".into())),
    }
}
