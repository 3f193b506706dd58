//! A session from start to end: connect, prepare, then run transactions until the end of the run, through errors, retries and reconnects.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::backend::TransactionStatus;
use wire::error::SqlState;
use wire::frontend;
use wire::prepared::{Template, Wire};

use crate::backoff::{Backoff, is_not_now};
use crate::control::{Control, Failure};
use crate::engine::session::Session;
use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::schedule::Start;
use crate::statement::{PrepareError, prepare};
use crate::tally::Tally;
use crate::workload::{Mix, MixSession, TransactionError, Workload};

/// About a run that cannot begin because a node is no part of its cluster.
const ISOLATED_HINT: &str = "wait until the node has caught up, or leave it out: --connect NODE,NODE";
/// `read_only_sql_transaction`: this server takes no writes any more.
const READ_ONLY: &str = "25006";
/// How long a session tries to get its first connection when the server reports that it will soon be able to.
const FIRST_CONNECTION_PATIENCE: Nanos = 10 * NANOS_PER_SECOND;
/// A session's transactions are numbered with 32 bits, because a written value carries the number.
pub(crate) const TRANSACTIONS_PER_SESSION_MAX: u64 = u32::MAX as u64;

/// What all sessions of a run share and none changes.
#[derive(Debug)]
pub struct Plan<W> {
    /// The mix.
    pub mix: Mix<W>,
    /// Messages and formats.
    pub wire: Wire,
    /// Chooses every draw.
    pub seed: u64,
    /// Tries of one transaction, the first included; 0: no limit.
    pub tries_max: u64,
    /// Transactions per session.
    pub transactions_per_session: Option<u64>,
    /// The other side.
    pub control: Arc<Control>,
}

/// A transaction of a session whose effect is not simply "committed".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The transaction's number within its session.
    pub sequence: u32,
    /// Whether it is known to have failed. If not, its connection was lost while it was under way, and only the table shows it.
    pub is_known_failed: bool,
}

/// Exceptions kept per session. A session with more of them is marked, and what it wrote cannot be judged for staleness.
pub(crate) const EXCEPTIONS_PER_SESSION_MAX: usize = 100_000;

/// What a session leaves behind for verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Transactions begun; their numbers are 0 to this, exclusive.
    pub transactions: u64,
    /// Those that did not simply commit, in order.
    pub exceptions: Vec<Exception>,
    /// There were more exceptions than could be kept.
    pub exceptions_lost: bool,
    /// Rows it tried to insert.
    pub inserted: u64,
    /// Its last transaction has begun, and has no outcome yet.
    pub is_under_way: bool,
}

impl SessionRecord {
    #[inline]
    fn begin(&mut self) {
        self.transactions += 1;
        self.is_under_way = true;
    }

    /// The last transaction has an outcome; so many rows have been tried to insert until now.
    #[inline]
    fn end(&mut self, inserted: u64) {
        self.inserted = inserted;
        self.is_under_way = false;
    }

    /// The record of a session that goes no further: a transaction that is under way now may have committed, and may have inserted a row.
    #[must_use]
    pub(crate) fn closed(mut self) -> SessionRecord {
        if std::mem::take(&mut self.is_under_way) {
            self.except((self.transactions - 1) as u32, false);
            self.inserted += 1;
        }
        self
    }

    fn except(&mut self, sequence: u32, is_known_failed: bool) {
        if self.exceptions.len() < EXCEPTIONS_PER_SESSION_MAX {
            self.exceptions.push(Exception { sequence, is_known_failed });
        } else {
            self.exceptions_lost = true;
        }
    }
}

/// The life of one session.
#[derive(Debug)]
pub struct Client<W> {
    /// What all sessions share.
    pub plan: Arc<Plan<W>>,
    /// The session's number over all workers.
    pub number: u64,
    /// The node it enters at, where nodes are distinguished.
    pub node: usize,
    /// The worker's counters.
    pub tally: Rc<RefCell<Tally>>,
    /// What this session leaves behind.
    pub record: Rc<RefCell<SessionRecord>>,
}

impl<W: Workload> Client<W> {
    /// Runs until the schedule is over, the session's transactions are done, or its first connection fails.
    pub async fn live(self, session: Session) {
        let mut state = match self.plan.mix.session(self.number) {
            Ok(state) => state,
            Err(message) => return self.plan.control.fail(Failure { message, hint: None }),
        };
        if self.plan.mix.is_simulated() {
            self.plan.control.session_connected(session.now(), true, false);
            let _ = self.work(&session, &[], &mut state, &Backoff::default()).await;
            return self.plan.control.session_ended();
        }
        let backoff = Backoff::default();
        let mut is_first_time = true;
        let mut server = 0;
        while let Some(templates) = self.connect(&session, &backoff, is_first_time).await {
            let was_at = std::mem::replace(&mut server, session.server());
            self.plan.control.session_connected(session.now(), is_first_time, server != was_at);
            is_first_time = false;
            match self.work(&session, &templates, &mut state, &backoff).await {
                Ended::Over => {
                    self.plan.control.session_ended();
                    return;
                }
                Ended::Lost(message) => {
                    self.plan.control.session_lost(session.now(), || message);
                    self.pause(&session, &backoff).await;
                }
                Ended::Aborted(why) => {
                    session.disconnect();
                    self.plan.control.session_aborted(|| why);
                    return;
                }
            }
        }
    }

    /// A connection with prepared statements; `None` when there is no use in trying further.
    async fn connect(
        &self,
        session: &Session,
        backoff: &Backoff,
        is_first_time: bool,
    ) -> Option<Vec<Template>> {
        let begun = session.now();
        loop {
            let failure = match session.connect().await {
                Ok(()) => match prepare(session, self.plan.wire, self.plan.mix.statements()).await {
                    Ok(templates) => return Some(templates),
                    Err(error) => {
                        session.disconnect();
                        let is_isolated = matches!(&error, PrepareError::Refused { error, .. } if self.plan.control.is_isolated(&error.message));
                        let is_transient = is_isolated || matches!(error, PrepareError::Link(_));
                        let hint = error.hint().or_else(|| is_isolated.then(|| ISOLATED_HINT.to_owned()));
                        (Failure { message: error.to_string(), hint }, is_transient)
                    }
                },
                Err(error) => (Failure { message: error.message, hint: error.hint }, error.is_transient),
            };
            let (failure, is_transient) = failure;
            let patience_left = session.now() < begun + FIRST_CONNECTION_PATIENCE;
            if is_first_time && !(is_transient && patience_left) {
                self.plan.control.fail(failure);
                return None;
            }
            // In mid-run everything is tried again: the server may be restarted, its password file be put back, ...
            if self.plan.control.is_abandoned() || self.plan.control.failure().is_some() || session.is_over()
            {
                return None;
            }
            self.pause(session, backoff).await;
        }
    }

    /// The pause after one more failure that is not due to a statement. The end of the run does not wait for it.
    async fn pause(&self, session: &Session, backoff: &Backoff) {
        let pause = backoff.next();
        if pause > 0 && !self.plan.control.is_abandoned() && !session.is_over() {
            session.sleep_until(session.now() + pause).await;
        }
    }

    /// Counts a transaction that has committed.
    #[inline]
    fn committed(&self, session: &Session, state: &MixSession<W>, start: Start, item: usize) {
        let weak = session.take_weak_commits();
        if weak > 0 {
            self.plan.control.weak_commits.fetch_add(weak, Ordering::Relaxed);
        }
        let mut tally = self.tally.borrow_mut();
        tally.committed(start, item, self.node, session.now());
        let (waited, audits) = tally.audits(start);
        self.plan.mix.audit(item, state, waited, audits);
    }

    async fn work(
        &self,
        session: &Session,
        templates: &[Template],
        state: &mut MixSession<W>,
        backoff: &Backoff,
    ) -> Ended {
        let plan = &*self.plan;
        let limit = plan.transactions_per_session.unwrap_or(u64::MAX).min(TRANSACTIONS_PER_SESSION_MAX);
        loop {
            let sequence = self.record.borrow().transactions;
            if sequence >= limit {
                return Ended::Over;
            }
            let start = match session.next_start().await {
                Ok(Some(start)) => start,
                Ok(None) => return Ended::Over,
                Err(error) => return Ended::Lost(error.to_string()),
            };
            self.record.borrow_mut().begin();
            self.tally.borrow_mut().started(start);
            if let Some(ended) =
                self.try_transaction(session, templates, state, (sequence as u32, start), backoff).await
            {
                return ended;
            }
        }
    }

    /// Why the connection is of no use after an error, if so; it is closed then.
    async fn lost_by(&self, session: &Session, error: &TransactionError) -> Option<String> {
        let control = &self.plan.control;
        match error {
            TransactionError::Lost(error) => Some(error.to_string()),
            // It was demoted under us, and another one is primary now, or will be soon.
            error if error.sqlstate().as_str() == READ_ONLY && control.follows_writes() => {
                session.disconnect();
                Some(error.message())
            }
            // Its node is no part of the cluster now, and would refuse thousands of transactions a second.
            TransactionError::Server(server) if control.is_isolated(&server.message) => {
                session.disconnect();
                Some(error.message())
            }
            // The session is given up, and its connection with it.
            TransactionError::Open(_) => None,
            _ => roll_back(session).await.err(),
        }
    }

    /// One transaction with its retries. `Some`: the session has ended with it.
    async fn try_transaction(
        &self,
        session: &Session,
        templates: &[Template],
        state: &mut MixSession<W>,
        (sequence, start): (u32, Start),
        backoff: &Backoff,
    ) -> Option<Ended> {
        let plan = &*self.plan;
        let mut tries = 0;
        state.begin(&plan.mix, start);
        loop {
            // The same draws for each try: a retried transaction is the same transaction.
            let (mut random, item) = plan.mix.draw(plan.seed, self.number, sequence, start);
            let draws = (sequence, &mut random);
            let outcome = plan.mix.transaction(item, state, (session, templates), draws).await;
            tries += 1;
            let error = match outcome {
                Ok(()) => {
                    backoff.reset();
                    self.committed(session, state, start, item);
                    session.rest(start);
                    state.ended(&plan.mix, item, true);
                    self.record.borrow_mut().end(state.inserted(&plan.mix));
                    return None;
                }
                // The run is over, and nothing waits for the rest of it.
                Err(TransactionError::Dropped) => return Some(Ended::Over),
                Err(error) => error,
            };
            let has_tries = error.is_retryable() && (plan.tries_max == 0 || tries < plan.tries_max);
            let again = has_tries && !plan.control.is_abandoned() && !session.is_over();
            let sqlstate = error.sqlstate();
            self.tally.borrow_mut().error(sqlstate, item, session.now(), again, || error.message());
            let lost = self.lost_by(session, &error).await;
            if again && lost.is_none() {
                self.tally.borrow_mut().retried(start, item);
                state.again(&plan.mix);
                continue;
            }
            self.tally.borrow_mut().failed(start, item, self.node);
            if has_tries && !again {
                plan.control.cut_off.fetch_add(1, Ordering::Relaxed);
            }
            if lost.is_some() {
                plan.mix.lost(item, state, self.tally.borrow_mut().audits(start).1);
            }
            session.rest(start);
            // A missing row, too, may come from a statement that changed something before.
            let is_known_failed = matches!(error, TransactionError::Server(_)) && !leaves_open(sqlstate);
            state.ended(&plan.mix, item, false);
            {
                let mut record = self.record.borrow_mut();
                record.except(sequence, is_known_failed);
                record.end(state.inserted(&plan.mix));
            }
            if error.aborts_session() {
                return Some(Ended::Aborted(error.message()));
            }
            match error {
                // Its pause follows when the loss has been counted.
                _ if lost.is_some() => {}
                TransactionError::Server(_) if is_not_now(sqlstate) => self.pause(session, backoff).await,
                TransactionError::Server(_) => backoff.reset(),
                _ => {}
            }
            return lost.map(Ended::Lost);
        }
    }
}

/// Whether the server that reports this error cannot know itself if the transaction took place: it has lost the server that has the row, as an
/// entry node of a sharded cluster may, or is shutting down itself. (Class 08, 57P01 to 57P03, and 40003 by name.)
fn leaves_open(sqlstate: SqlState) -> bool {
    let code = sqlstate.as_str();
    code.starts_with("08") || code.starts_with("57P0") || code == "40003"
}

enum Ended {
    /// The run is over, or the session's part of it.
    Over,
    /// The connection was lost.
    Lost(String),
    /// The session cannot go on, and the others can.
    Aborted(String),
}

/// Leaves a transaction block that an error has left open. Returns why the connection is of no use if that does not help.
async fn roll_back(session: &Session) -> Result<(), String> {
    if session.transaction_status() == TransactionStatus::Idle {
        return Ok(());
    }
    session.request(|out| frontend::query(out, "ROLLBACK"));
    session.reply().await.map_err(|error| error.to_string())?;
    match session.transaction_status() {
        TransactionStatus::Idle => Ok(()),
        _ => Err("the server stays inside the transaction block after ROLLBACK".into()),
    }
}
