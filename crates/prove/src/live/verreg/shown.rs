//! Deliberate controls before the load: a long fork and a late read, which the sessions produce on any server. They take the same path
//! as the load, from the statement to the checker, so a zero of the load means something only where these were found.
//!
//! - The fork: a read on the other node combines two snapshots, one before the first of two writes and one after the second.
//! - The late read: a snapshot from before a write is read after its acknowledgement, and recorded as if it had begun then.

use connect::poll;

use super::session::{Running, Session};
use super::{Entry, PATIENCE, Shared, base_of, late, ordered};
use crate::check::{self, Class, Order};
use crate::client::Client;
use crate::history::{History, Kind, Model, Op, Txn};
use crate::live::LiveError;

/// Which of the controls were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The fork.
    pub fork: bool,
    /// The late reading.
    pub late: bool,
}

/// Who reads and writes.
struct Play<'a, 'b> {
    shared: &'a Shared<'b>,
    writer: &'a Entry,
    /// Another node, where there is one.
    other: &'a Entry,
    history: History,
}

/// Runs both, on separate keys.
pub(super) fn play(shared: &Shared<'_>, entries: &[Entry]) -> Result<Shown, LiveError> {
    let Some(writer) = entries.iter().find(|entry| !entry.is_standby) else {
        return Ok(Shown { fork: false, late: false });
    };
    let other = entries.iter().rfind(|entry| entry.node != writer.node).unwrap_or(writer);
    let base = base_of(shared.level);
    let mut play = Play { shared, writer, other, history: History::new(shared.model) };
    play.fork()?;
    let found = check::check(&play.history, &check::Options::default());
    let fork = found.refutes(check::Level::new(base, Order::Data))
        && found.witnesses.iter().any(|witness| {
            matches!(witness.finding.class, Class::LongFork | Class::StatementFork)
                && witness.finding.order == Order::Data
        });
    play.history = History::new(shared.model);
    play.late()?;
    let found = check::check(&play.history, &check::Options::default());
    let missed = late::find(&play.history, true);
    Ok(Shown { fork, late: ordered(&found, shared.level, Some(&missed)) > 0 })
}

impl Play<'_, '_> {
    fn key(&self) -> u32 {
        self.shared.next_key.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Records a transaction of these reads and writes, under a separate session.
    fn note(&mut self, [begin_ns, end_ns]: [u64; 2], running: Running) {
        let ops: Vec<Op> = running
            .ops
            .iter()
            .map(|op| match (self.history.model(), op.kind) {
                (Model::Append, Kind::Read) => {
                    let from = op.tok as usize;
                    let list = &running.elements[from..from + op.ver as usize];
                    let read = self.history.read_list(op.key, list);
                    Op { statement: op.statement, node: op.node, start_ns: op.start_ns, ..read }
                }
                _ => *op,
            })
            .collect();
        let session = self.history.txns().len() as u32;
        self.history.push(Txn::ok(session).between(begin_ns, end_ns), &ops);
    }

    fn write(&mut self, client: &mut Client, key: u32) -> Result<(), LiveError> {
        let begin_ns = self.shared.now();
        let mut running = Running::default();
        Session::of(self.shared, self.writer, key)
            .insert(client, &mut running, key)
            .map_err(|stop| stop.unfit())?;
        let end_ns = self.shared.now();
        self.note([begin_ns, end_ns], running);
        Ok(())
    }

    fn read(
        &self,
        entry: &Entry,
        client: &mut Client,
        running: &mut Running,
        keys: &[u32],
    ) -> Result<(), LiveError> {
        Session::of(self.shared, entry, 0).read(client, running, keys).map_err(|stop| stop.unfit())
    }

    fn fork(&mut self) -> Result<(), LiveError> {
        let [first, second] = [self.key(), self.key()];
        let mut writing = Client::connect(&self.writer.spec, PATIENCE)?;
        let mut there = Client::connect(&self.other.spec, PATIENCE)?;
        let begin_ns = self.shared.now();
        let mut glued = Running::default();
        // A standby may not have the table yet.
        let is_transient = |error: &LiveError| !matches!(error, LiveError::Client(_));
        poll::retry(PATIENCE, is_transient, || self.read(self.other, &mut there, &mut glued, &[first]))?;
        self.write(&mut writing, first)?;
        let here_ns = self.shared.now();
        let mut here = Running::default();
        self.read(self.writer, &mut writing, &mut here, &[first, second])?;
        let end_ns = self.shared.now();
        self.note([here_ns, end_ns], here);
        self.write(&mut writing, second)?;
        let come = poll::until(PATIENCE, || {
            let mut now = Running::default();
            let read = self.read(self.other, &mut there, &mut now, &[second]);
            read.map(|()| now.ops.iter().any(|op| op.ver > 0).then_some(now)).transpose()
        });
        let unfit = || Err(LiveError::Unfit("a write did not arrive on the other node".to_owned()));
        glued.take(come.unwrap_or_else(unfit)?);
        let end_ns = self.shared.now();
        self.note([begin_ns, end_ns], glued);
        Ok(())
    }

    fn late(&mut self) -> Result<(), LiveError> {
        let key = self.key();
        let mut writing = Client::connect(&self.writer.spec, PATIENCE)?;
        let mut reading = Client::connect(&self.writer.spec, PATIENCE)?;
        reading.execute("begin isolation level repeatable read")?;
        // The snapshot is taken by the first statement that reads.
        self.read(self.writer, &mut reading, &mut Running::default(), &[key])?;
        self.write(&mut writing, key)?;
        let begin_ns = self.shared.now();
        let mut running = Running::default();
        self.read(self.writer, &mut reading, &mut running, &[key])?;
        reading.execute("commit")?;
        let end_ns = self.shared.now();
        self.note([begin_ns, end_ns], running);
        Ok(())
    }
}
