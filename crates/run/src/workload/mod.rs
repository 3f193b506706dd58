//! What a session does between one start and the next: one transaction, of one type, of one workload.
//!
//! # The trait
//!
//! A [`Workload`] is what the drive needs of a benchmark. `run` knows none by name: it drives a [`Mix`] of them, and a mix has one path.
//!
//! | question | answered by |
//! |---|---|
//! | Which types of transactions are there, and how often does each come? | [`Workload::items`], by weight; or [`Workload::choose`] |
//! | Which statements does a session prepare? | [`Workload::statements`]; a workload finds its own ones in [`Try::templates`] from 0 up |
//! | What does a session remember? | [`Workload::Session`], made by [`Workload::session`] |
//! | What does a transaction do? | [`Workload::transaction`]: an `async fn` that draws from [`Try::random`] and awaits replies |
//! | What does a further try of it see? | the same random draws; what else has to be as before is put back by [`Workload::again`] |
//! | What came of it? | [`Workload::ended`] for the session, [`Workload::audit`] and [`Workload::lost`] for the workload's own sums |
//! | Who are its users? | [`crate::terminals::Habits`], where the pace is theirs; [`Workload::node_of_terminal`] |
//!
//! # Its price
//!
//! The drive is generic over the workload and calls it without a virtual call and without an allocation. A mix of several types of workloads is
//! an enum of them, which [`crate::workloads!`] writes; its transaction is one future, as large as the largest of its members, made once per session.
//! `tests/steady_state.rs` counts allocations, sends and receives of each.
//!
//! # How a transaction is chosen
//!
//! The first draw of a transaction's stream chooses among all items of the mix, by weight. A replay of the run repeats that draw, so it is part
//! of what a run leaves behind: an order of items and their weights, nothing else.

mod mix;
pub mod script;

use std::fmt::Debug;
use std::future::Future;

use wire::backend::TransactionStatus;
use wire::error::{ServerError, SqlState};
use wire::prepared::Template;

use crate::audit::Audits;
use crate::engine::Nanos;
use crate::engine::link::{LinkError, Reply};
use crate::engine::session::Session;
use crate::random::Random;
use crate::statement::StatementSpec;
use crate::terminals::Turn;

pub use mix::{Chooser, Mix, MixSession, Part};

/// One type of transaction; its place in the mix is its number in every table and chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name, for example `tpcc.payment` or `select-only`.
    pub name: String,
    /// How often it is chosen, against the sum of all weights.
    pub weight: u64,
}

/// One try of one transaction.
#[derive(Debug)]
pub struct Try<'a> {
    /// The connection.
    pub session: &'a Session,
    /// The workload's statements, in the order of [`Workload::statements`].
    pub templates: &'a [Template],
    /// The transaction's number within its session.
    pub sequence: u32,
    /// The transaction's own stream: each try draws the same from it.
    pub random: &'a mut Random,
}

/// What the drive needs of a benchmark, see the [module documentation](self).
pub trait Workload: Debug + Send + Sync + 'static {
    /// What a session keeps between transactions, and room for the next one: no transaction allocates.
    type Session: Debug;

    /// Its types of transactions. Requested once.
    fn items(&self) -> Vec<Item>;

    /// The statements that every session lays out before it starts. Requested once.
    fn statements(&self) -> Vec<StatementSpec>;

    /// The state of session number `session` of the whole run.
    ///
    /// # Errors
    /// A message, when a session cannot begin.
    fn session(&self, session: u64) -> Result<Self::Session, String>;

    /// Runs one try of a transaction of type `item` to its end.
    fn transaction(
        &self,
        item: usize,
        state: &mut Self::Session,
        attempt: Try<'_>,
    ) -> impl Future<Output = Result<(), TransactionError>>;

    /// The type of transaction number `sequence` of a session. `drawn` was chosen by weight.
    #[inline]
    fn choose(&self, drawn: usize, _seed: u64, _session: u64, _sequence: u64) -> usize {
        drawn
    }

    /// A transaction of the mix has its first try; it is the turn of a user, where there are users.
    #[inline]
    fn begin(&self, _state: &mut Self::Session, _turn: Option<Turn>) {}

    /// The same transaction is tried again.
    fn again(&self, _state: &mut Self::Session) {}

    /// A transaction of type `item` has had its last try; `is_committed` is false also where it is unknown.
    #[inline]
    fn ended(&self, _item: usize, _state: &mut Self::Session, _is_committed: bool) {}

    /// A transaction of type `item` has reached its end: adds what it did to the workload's own sums. `waited` is how long a user's turn
    /// waited for a session.
    #[inline]
    fn audit(&self, _item: usize, _state: &Self::Session, _waited: Option<Nanos>, _audits: &mut Audits) {}

    /// The connection of a transaction of type `item` was lost: it is unknown whether it has committed.
    fn lost(&self, _item: usize, _state: &Self::Session, _audits: &mut Audits) {}

    /// Rows that the session has tried to insert, where they are numbered.
    #[inline]
    fn inserted(&self, _state: &Self::Session) -> u64 {
        0
    }

    /// What is wrong where a transaction has ended and the server reports an open transaction block, which may have failed.
    fn left_open(&self, _has_failed: bool) -> &'static str {
        "the transaction has ended, and the server reports an open transaction block"
    }

    /// Statements of the user's are among its own: the session keeps the user's search path.
    fn is_users(&self) -> bool {
        false
    }

    /// No database is driven: transactions only take their time.
    fn is_simulated(&self) -> bool {
        false
    }

    /// The node of a user's rows, where sessions enter at the owner of what they request.
    fn node_of_terminal(&self, _terminal: u32) -> Option<u16> {
        None
    }
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// The server refused.
    Server(ServerError),
    /// Every statement succeeded, but a row that must exist was not there: a lost row is never a good read.
    RowMissing(String),
    /// The connection is gone. If a statement that ends a transaction was under way, its outcome is unknown.
    Lost(LinkError),
    /// The script itself cannot go on, for example after a division by zero.
    Script(String),
    /// The server got COMMIT, and has rolled back without calling it an error.
    RolledBack(String),
    /// The transaction is over for this client, and inside a transaction block for the server: nothing of it is committed, and all that
    /// follows would be part of it.
    Open(String),
    /// The run is over and did not wait for this transaction: its outcome is unknown, and it is no error.
    Dropped,
}

impl TransactionError {
    /// The SQLSTATE it is counted under: the server's, or the standard's code for the condition.
    pub fn sqlstate(&self) -> SqlState {
        match self {
            TransactionError::Server(error) => error.sqlstate,
            // Class 02, "no data".
            TransactionError::RowMissing(_) => SqlState(*b"02000"),
            TransactionError::Lost(error) => error.sqlstate(),
            // Class 22, "data exception".
            TransactionError::Script(_) => SqlState(*b"22000"),
            // Class 40, "transaction rollback".
            TransactionError::RolledBack(_) => SqlState(*b"40000"),
            // Class 25, "invalid transaction state".
            TransactionError::Open(_) | TransactionError::Dropped => SqlState(*b"25000"),
        }
    }

    /// Its message.
    pub fn message(&self) -> String {
        match self {
            TransactionError::Server(error) => error.message.clone(),
            TransactionError::RowMissing(what)
            | TransactionError::Script(what)
            | TransactionError::RolledBack(what)
            | TransactionError::Open(what) => what.clone(),
            TransactionError::Lost(error) => error.to_string(),
            TransactionError::Dropped => "the run is over".into(),
        }
    }

    /// A session's state was given to another workload: a mistake of the caller, reported instead of a panic during a run. For
    /// [`crate::workloads!`].
    pub fn mismatched() -> TransactionError {
        TransactionError::Script("the session's state belongs to another workload".into())
    }

    /// The session does not go on after it: every further transaction would be as wrong as this one.
    pub(crate) fn aborts_session(&self) -> bool {
        matches!(
            self,
            TransactionError::Open(_) | TransactionError::Lost(LinkError::Copy | LinkError::TooLong)
        )
    }

    /// The same transaction may succeed if tried again as a whole.
    pub fn is_retryable(&self) -> bool {
        matches!(self, TransactionError::Server(error) if error.sqlstate.is_retryable())
    }
}

impl From<LinkError> for TransactionError {
    fn from(error: LinkError) -> Self {
        TransactionError::Lost(error)
    }
}

/// The reply's error, if it has one.
///
/// # Errors
/// What the server reported.
#[inline]
pub fn succeeded(session: &Session, reply: Reply) -> Result<(), TransactionError> {
    if reply.errors == 0 {
        return Ok(());
    }
    match session.error_of(reply) {
        Some(error) => Err(TransactionError::Server(error)),
        None => Ok(()),
    }
}

/// Fails unless the server has ended the transaction, too. The server's last status is the truth: whatever a script or a workload has sent, nothing
/// is committed inside an open transaction block.
#[inline]
fn is_complete<W: Workload>(workload: &W, session: &Session, name: &str) -> Result<(), TransactionError> {
    match session.transaction_status() {
        TransactionStatus::Idle => Ok(()),
        status => {
            let what = workload.left_open(status == TransactionStatus::Failed);
            Err(TransactionError::Open(format!("{name}: {what}")))
        }
    }
}

/// Writes an enum of workloads that is a [`Workload`] itself: the list of benchmarks that a program can mix.
///
/// ```text
/// run::workloads! {
///     /// All that this program can drive.
///     pub enum Benchmark, BenchmarkSession {
///         /// Balances.
///         Tpcb(workloads::tpcb::run::Tpcb),
///         /// pgbench's language.
///         Scripts(run::workload::script::Scripts),
///     }
/// }
/// ```
#[macro_export]
macro_rules! workloads {
    (
        $(#[$about:meta])*
        $public:vis enum $Name:ident, $Session:ident {
            $($(#[$what:meta])* $Member:ident($Type:ty)),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "a run has a handful of them")]
        $public enum $Name {
            $($(#[$what])* $Member($Type)),+
        }

        /// What a session keeps for its workload.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "a session has one for each workload of its mix")]
        $public enum $Session {
            $($(#[$what])* $Member(<$Type as $crate::workload::Workload>::Session)),+
        }

        $(impl From<$Type> for $Name {
            fn from(workload: $Type) -> $Name {
                $Name::$Member(workload)
            }
        })+

        impl $crate::workload::Workload for $Name {
            type Session = $Session;

            fn items(&self) -> Vec<$crate::workload::Item> {
                match self {
                    $($Name::$Member(workload) => workload.items()),+
                }
            }

            fn statements(&self) -> Vec<$crate::statement::StatementSpec> {
                match self {
                    $($Name::$Member(workload) => workload.statements()),+
                }
            }

            fn session(&self, session: u64) -> Result<$Session, String> {
                match self {
                    $($Name::$Member(workload) => workload.session(session).map($Session::$Member)),+
                }
            }

            async fn transaction(
                &self,
                item: usize,
                state: &mut $Session,
                attempt: $crate::workload::Try<'_>,
            ) -> Result<(), $crate::workload::TransactionError> {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => {
                        workload.transaction(item, state, attempt).await
                    })+
                    _ => Err($crate::workload::TransactionError::mismatched()),
                }
            }

            #[inline]
            fn choose(&self, drawn: usize, seed: u64, session: u64, sequence: u64) -> usize {
                match self {
                    $($Name::$Member(workload) => workload.choose(drawn, seed, session, sequence)),+
                }
            }

            #[inline]
            fn begin(&self, state: &mut $Session, turn: Option<$crate::terminals::Turn>) {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => workload.begin(state, turn),)+
                    _ => {}
                }
            }

            fn again(&self, state: &mut $Session) {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => workload.again(state),)+
                    _ => {}
                }
            }

            #[inline]
            fn ended(&self, item: usize, state: &mut $Session, is_committed: bool) {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => {
                        workload.ended(item, state, is_committed)
                    })+
                    _ => {}
                }
            }

            #[inline]
            fn audit(
                &self,
                item: usize,
                state: &$Session,
                waited: Option<$crate::engine::Nanos>,
                audits: &mut $crate::audit::Audits,
            ) {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => {
                        workload.audit(item, state, waited, audits)
                    })+
                    _ => {}
                }
            }

            fn lost(&self, item: usize, state: &$Session, audits: &mut $crate::audit::Audits) {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => workload.lost(item, state, audits),)+
                    _ => {}
                }
            }

            #[inline]
            fn inserted(&self, state: &$Session) -> u64 {
                #[allow(unreachable_patterns, reason = "an enum may have one member")]
                match (self, state) {
                    $(($Name::$Member(workload), $Session::$Member(state)) => workload.inserted(state),)+
                    _ => 0,
                }
            }

            fn left_open(&self, has_failed: bool) -> &'static str {
                match self {
                    $($Name::$Member(workload) => workload.left_open(has_failed)),+
                }
            }

            fn is_users(&self) -> bool {
                match self {
                    $($Name::$Member(workload) => workload.is_users()),+
                }
            }

            fn is_simulated(&self) -> bool {
                match self {
                    $($Name::$Member(workload) => workload.is_simulated()),+
                }
            }

            fn node_of_terminal(&self, terminal: u32) -> Option<u16> {
                match self {
                    $($Name::$Member(workload) => workload.node_of_terminal(terminal)),+
                }
            }
        }
    };
}
