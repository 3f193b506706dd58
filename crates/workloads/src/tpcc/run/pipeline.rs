//! One request of several statements: written, sent, awaited; its time counted as the database's.

use wire::backend::{Frames, command_tag, rows_affected, tag};
use wire::frontend;
use wire::prepared::{Execution, Template, Wire};

use super::Tpcc;
use super::answer::Row;
use super::audit::Done;
use super::statement::Statement;
use run::engine::link::Reply;
use run::engine::session::Session;
use run::workload::{TransactionError, succeeded};

/// What every transaction is given.
pub(super) struct Call<'a> {
    pub(super) tpcc: &'a Tpcc,
    pub(super) session: &'a Session,
    pub(super) templates: &'a [Template],
}

/// A request being written.
pub(super) struct Request<'a> {
    templates: &'a [Template],
    out: &'a mut Vec<u8>,
}

impl Request<'_> {
    /// Adds a statement whose parameters `write` writes in order.
    pub(super) fn execute(&mut self, statement: Statement, write: impl FnOnce(&mut Execution<'_>)) {
        let mut execution = self.templates[statement as usize].begin(self.out);
        write(&mut execution);
        execution.finish();
    }

    /// Adds a statement without parameters.
    pub(super) fn command(&mut self, statement: Statement) {
        self.execute(statement, |_| ());
    }
}

impl Call<'_> {
    /// Sends a request and awaits its whole answer. An error of any of its statements is the answer's error: the server skips what
    /// follows it.
    pub(super) async fn ask(
        &self,
        done: &mut Done,
        write: impl FnOnce(&mut Request<'_>),
    ) -> Result<Reply, TransactionError> {
        let requested = self.session.now();
        self.session.request(|out| {
            write(&mut Request { templates: self.templates, out });
            frontend::sync(out);
        });
        let reply = self.session.reply().await;
        done.database += self.session.now() - requested;
        done.round_trips += 1;
        let reply = reply?;
        succeeded(self.session, reply)?;
        Ok(reply)
    }

    /// Reads an answer: `read` sees every row with the place of its statement in the request. Returns the contents of the command tags.
    pub(super) fn read(
        &self,
        reply: Reply,
        read: impl FnMut(usize, &mut Row<'_>) -> Result<(), TransactionError>,
    ) -> Result<Tags, TransactionError> {
        let is_binary = self.tpcc.wire == Wire::Lean;
        self.session.with_frames(reply, |frames| each_row(frames, is_binary, read))
    }
}

/// Statements of a request at most.
const STATEMENTS_MAX: usize = 32;

/// The contents of the command tags of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    rows: [u64; STATEMENTS_MAX],
    statements: usize,
    has_committed: bool,
}

impl Tags {
    /// Rows that the statement at this place returned or changed.
    pub(super) fn rows(&self, place: usize) -> u64 {
        if place < self.statements { self.rows[place] } else { 0 }
    }

    /// Fails unless the statement at `place` found `count` rows, which `what` names.
    pub(super) fn expect(&self, place: usize, count: u64, what: &str) -> Result<(), TransactionError> {
        match self.rows(place) {
            found if found == count => Ok(()),
            found => {
                Err(TransactionError::RowMissing(format!("expected {count} rows of {what}, got {found}")))
            }
        }
    }

    /// Fails unless the server reported COMMIT: it answers a COMMIT in a transaction that has failed with ROLLBACK, and without an error.
    pub(super) fn committed(&self) -> Result<(), TransactionError> {
        if self.has_committed {
            return Ok(());
        }
        Err(TransactionError::RolledBack("the server rolled back at COMMIT".into()))
    }
}

fn each_row(
    frames: Frames<'_>,
    is_binary: bool,
    mut read: impl FnMut(usize, &mut Row<'_>) -> Result<(), TransactionError>,
) -> Result<Tags, TransactionError> {
    let mut tags = Tags { rows: [0; STATEMENTS_MAX], statements: 0, has_committed: false };
    for frame in frames {
        match frame.tag {
            tag::DATA_ROW => read(tags.statements, &mut Row::new(frame.body, is_binary)?)?,
            tag::COMMAND_COMPLETE => {
                tags.has_committed |= command_tag(frame.body) == b"COMMIT";
                if let Some(rows) = tags.rows.get_mut(tags.statements) {
                    *rows = rows_affected(frame.body).unwrap_or(0);
                }
                tags.statements += 1;
            }
            _ => {}
        }
    }
    Ok(tags)
}
