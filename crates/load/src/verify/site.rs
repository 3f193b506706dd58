//! A server that is verified: the coordinating connection, and how to open more.

use connect::control::Control;
use connect::{ConnSpec, ConnectError, control};
use postgres::Client;

use super::error::{VerifyError, sql};
use super::reader::Socket;
use super::workers;

/// A server that is read.
pub(super) struct Site {
    /// What it is called among others.
    pub(super) name: Option<String>,
    /// Leads to the host that answered and to no other: the snapshot exists there only.
    pub(super) spec: ConnSpec,
    pub(super) control: Control,
    snapshot: Option<String>,
}

impl Site {
    pub(super) fn connect(spec: &ConnSpec, name: Option<&str>) -> Result<Site, VerifyError> {
        Site::open(spec, name, false)
    }

    /// The same for a server that something was read from before: if it does not answer now, it went away.
    pub(super) fn again(spec: &ConnSpec, name: Option<&str>) -> Result<Site, VerifyError> {
        Site::open(spec, name, true)
    }

    fn open(spec: &ConnSpec, name: Option<&str>, was_there: bool) -> Result<Site, VerifyError> {
        let control =
            control::connect(&spec.pinned()).map_err(|error| connect_error(error, name, was_there))?;
        let spec = spec.clone().with_only_host(control.host_index());
        Ok(Site { name: name.map(str::to_owned), spec, control, snapshot: None })
    }

    /// The answer to a statement of the coordinating connection; an error names the node.
    pub(super) fn answer<T>(
        &self,
        doing: &'static str,
        result: Result<T, postgres::Error>,
    ) -> Result<T, VerifyError> {
        sql(doing, result).map_err(|error| self.named(error))
    }

    /// The same error with the name of the node, if it has none yet.
    pub(super) fn named(&self, error: VerifyError) -> VerifyError {
        use VerifyError::{Ledger, Sql};
        match (&self.name, error) {
            (Some(node), error @ (Ledger(_) | Sql { .. })) => {
                VerifyError::Node { node: node.clone(), source: Box::new(error) }
            }
            (_, error) => error,
        }
    }

    /// Begins the transaction that everything is read in, and exports its snapshot. Where that is not possible every connection sees its
    /// own moment, and a note reports it.
    pub(super) fn open_snapshot(&mut self, notes: &mut Vec<String>) -> Result<(), VerifyError> {
        const DOING: &str = "opening a snapshot of the table";
        let begin = format!("begin isolation level repeatable read read only; {}", workers::SETTINGS);
        sql(DOING, self.control.batch_execute(&begin))?;
        match self.control.query_one("select pg_export_snapshot()", &[]) {
            Ok(row) => self.snapshot = Some(row.get(0)),
            Err(_) => {
                sql(DOING, self.control.batch_execute(&format!("rollback; {begin}")))?;
                let server = self.name.as_deref().unwrap_or("the server");
                notes.push(format!(
                    "{server} exports no snapshot: writes during verify can look like differences"
                ));
            }
        }
        Ok(())
    }

    /// Gives the snapshot up: from here on the server is seen as it is.
    pub(super) fn close_snapshot(&mut self) -> Result<(), VerifyError> {
        if self.snapshot.take().is_some() {
            sql("closing a snapshot of the table", self.control.batch_execute("rollback"))?;
        }
        Ok(())
    }
}

/// A way to open connections to a server, and the snapshot that they shall see.
type Opener<'a> = (Box<workers::Connect<'a>>, Option<&'a str>);

/// Servers taken apart: their coordinating connections, and how to open more.
pub(super) fn split(sites: &mut [Site]) -> (Vec<&mut Client>, Vec<Opener<'_>>) {
    let (mut controls, mut openers) = (Vec::new(), Vec::new());
    for Site { name, spec, control, snapshot } in sites {
        let (name, spec) = (name.as_deref(), &*spec);
        controls.push(&mut **control);
        let connect = move || -> Result<Box<dyn Socket>, VerifyError> {
            Ok(Box::new(crate::connections::hot(spec).map_err(|error| connect_error(error, name, true))?))
        };
        openers.push((Box::new(connect) as Box<workers::Connect<'_>>, snapshot.as_deref()));
    }
    (controls, openers)
}

fn connect_error(error: ConnectError, node: Option<&str>, was_there: bool) -> VerifyError {
    let target = node.map_or_else(|| "the target".to_owned(), |node| format!("node {node}"));
    VerifyError::Connect { target, hint: error.hint(), source: Box::new(error), was_there }
}
