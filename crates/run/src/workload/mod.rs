//! What a session does between one start and the next: one transaction of a weighted mix.

pub mod replay;
pub mod script;
pub mod tpcc;
pub mod ycsb;

use wire::backend::TransactionStatus;
use wire::error::{ServerError, SqlState};
use wire::prepared::Template;

use crate::engine::link::{LinkError, Reply};
use crate::engine::session::Session;
use crate::random::Random;
use crate::schedule::Start;
use crate::script::EvalError;
use crate::statement::StatementSpec;
use script::{ScriptSession, Scripts};
use tpcc::{Profile, Tpcc, TpccSession};
use ycsb::{Ycsb, YcsbSession};

/// One kind of transaction in a mix; its place in the mix is its number in every table and chart.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name, for example `ycsb-a.read` or `select-only`.
    pub name: String,
    /// How often it is chosen, against the sum of all weights.
    pub weight: u64,
    /// What it does.
    pub kind: Kind,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An operation of YCSB.
    Ycsb(ycsb::Operation),
    /// A pgbench script, by its place among the mix's scripts.
    Script(usize),
    /// A transaction of TPC-C.
    Tpcc(Profile),
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// The server refused.
    Server(ServerError),
    /// Every statement succeeded, but a row that must exist was not there: a lost row is never a good read.
    RowMissing(String),
    /// The connection is gone. If a statement that ends a transaction was under way, nobody knows its outcome.
    Lost(LinkError),
    /// The script itself cannot go on, for example after a division by zero.
    Script(String),
    /// The server was asked to commit, and has rolled back without calling it an error.
    RolledBack(String),
    /// The transaction is over for this client, and inside a transaction block for the server: nothing of it is committed, and all that
    /// follows would be part of it.
    Open(String),
    /// The run is over, and whoever it belongs to was not waited for: its outcome is unknown, and it is no error.
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

    /// A mix that was put together without what its items need: a mistake of the caller, told instead of a panic in mid-run.
    fn incomplete() -> TransactionError {
        TransactionError::Script("the mix lacks the dataset or the scripts its items need".into())
    }

    /// The session does not go on after it: every further transaction would be as wrong as this one.
    pub fn aborts_session(&self) -> bool {
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

/// A weighted mix of transactions: the plan all sessions share.
#[derive(Clone, Debug)]
pub struct Workload {
    items: Vec<Item>,
    /// Running sums of the weights.
    thresholds: Vec<u64>,
    ycsb: Option<Ycsb>,
    scripts: Option<Scripts>,
    tpcc: Option<Tpcc>,
    statements: Vec<StatementSpec>,
    /// How many of the statements are YCSB's; the scripts' follow.
    ycsb_statements: usize,
}

impl Workload {
    /// A mix of `items`. `ycsb` is the dataset that its YCSB operations work on, `scripts` holds its scripts. `None` when no item
    /// has a weight.
    pub fn new(items: Vec<Item>, ycsb: Option<Ycsb>, scripts: Option<Scripts>) -> Option<Workload> {
        let thresholds: Vec<u64> = items
            .iter()
            .scan(0u64, |sum, item| {
                *sum += item.weight;
                Some(*sum)
            })
            .collect();
        if thresholds.last().is_none_or(|total| *total == 0) {
            return None;
        }
        let mut statements = ycsb.as_ref().map(ycsb::statements).unwrap_or_default();
        let ycsb_statements = statements.len();
        statements.extend(scripts.iter().flat_map(Scripts::statements));
        Some(Workload { items, thresholds, ycsb, scripts, tpcc: None, statements, ycsb_statements })
    }

    /// Whether statements of the user's are among it.
    pub fn has_scripts(&self) -> bool {
        self.scripts.is_some()
    }

    /// The five transactions of TPC-C, each an item; how they are mixed is `tpcc`'s own.
    pub fn of_tpcc(tpcc: Tpcc) -> Workload {
        let items: Vec<Item> = Profile::ALL
            .into_iter()
            .zip(tpcc.mix.weights())
            .map(|(profile, weight)| Item { name: profile.name().into(), weight, kind: Kind::Tpcc(profile) })
            .collect();
        let statements = tpcc.statements();
        Workload {
            items,
            thresholds: Vec::new(),
            ycsb: None,
            scripts: None,
            tpcc: Some(tpcc),
            statements,
            ycsb_statements: 0,
        }
    }

    /// The kinds of transactions.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The YCSB dataset, if the mix has YCSB operations.
    pub fn ycsb(&self) -> Option<&Ycsb> {
        self.ycsb.as_ref()
    }

    /// What TPC-C's transactions have in common, if the mix is theirs.
    pub fn tpcc(&self) -> Option<&Tpcc> {
        self.tpcc.as_ref()
    }

    /// No database is driven: transactions only take their time.
    pub fn is_simulated(&self) -> bool {
        self.tpcc.as_ref().is_some_and(|tpcc| tpcc.simulate.is_some())
    }

    /// The stream of draws of the transaction that begins with `start`, and the transaction: a terminal has a stream and choices of its
    /// own, whichever session runs it.
    #[inline]
    pub fn draw(&self, seed: u64, session: u64, sequence: u32, start: Start) -> (Random, usize) {
        if let Some(turn) = start.turn {
            let random = Random::for_transaction(seed, turn.terminal.into(), turn.number.into());
            return (random, turn.profile as usize);
        }
        let mut random = Random::for_transaction(seed, session, u64::from(sequence));
        let item = match &self.tpcc {
            Some(tpcc) => tpcc.mix.profile(seed, session, u64::from(sequence), &mut random) as usize,
            None => self.choose(&mut random),
        };
        (random, item)
    }

    /// Whether a transaction that went well has also ended for the server. What the server says last is the truth: whatever a script or
    /// a workload has sent, nothing is committed inside an open transaction block.
    #[inline]
    pub fn is_complete(&self, session: &Session, item: usize) -> Result<(), TransactionError> {
        match session.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            status => Err(self.left_open(item, status)),
        }
    }

    #[cold]
    fn left_open(&self, item: usize, status: TransactionStatus) -> TransactionError {
        let what = match (self.items[item].kind, status) {
            (Kind::Script(_), TransactionStatus::Failed) => {
                "end of script reached inside a transaction block that has failed"
            }
            (Kind::Script(_), _) => "end of script reached without completing the last transaction",
            _ => "the transaction has ended, and the server says that a transaction block is open",
        };
        TransactionError::Open(format!("{}: {what}", self.items[item].name))
    }

    /// The statements that every session lays out before it starts.
    pub fn statements(&self) -> &[StatementSpec] {
        &self.statements
    }

    /// Chooses a transaction by weight: the first draw of every transaction.
    #[inline]
    pub fn choose(&self, random: &mut Random) -> usize {
        if self.items.len() == 1 {
            return 0;
        }
        let total = self.thresholds[self.thresholds.len() - 1];
        let draw = random.below(total);
        self.thresholds.partition_point(|&threshold| threshold <= draw)
    }

    /// A session's own state. Fails when a `-D` value is longer than a variable may be.
    pub fn session(&self, session: u64) -> Result<WorkloadSession, EvalError> {
        let script = self.scripts.as_ref().map(|scripts| scripts.session(session)).transpose()?;
        let tpcc = self.tpcc.as_ref().map(|_| Box::new(TpccSession::new(session)));
        Ok(WorkloadSession { ycsb: YcsbSession::new(session), script, tpcc })
    }
}

/// What one session keeps between transactions.
#[derive(Clone, Debug)]
pub struct WorkloadSession {
    /// Its YCSB part.
    pub ycsb: YcsbSession,
    /// Its scripts' variables.
    script: Option<ScriptSession>,
    /// Its TPC-C part.
    pub tpcc: Option<Box<TpccSession>>,
}

impl WorkloadSession {
    /// Transaction `item` has had its last try; `is_committed` is false also where nobody knows.
    pub fn ended(&mut self, workload: &Workload, item: usize, is_committed: bool) {
        if let Kind::Ycsb(operation) = &workload.items[item].kind
            && operation.verb == ycsb::Verb::Insert
        {
            self.ycsb.insert_ended(is_committed);
        }
    }

    /// The transaction that begins with `start` has its first try.
    #[inline]
    pub fn begin(&mut self, start: Start) {
        if let Some(tpcc) = &mut self.tpcc {
            tpcc.take_turn(start.turn);
        }
        if let Some(script) = &mut self.script {
            script.begin();
        }
    }

    /// The same transaction is tried again.
    pub fn again(&mut self) {
        if let Some(script) = &mut self.script {
            script.again();
        }
    }
}

/// One try of one transaction: draws its parameters from `random` and runs it to its end.
pub async fn transaction(
    workload: &Workload,
    state: &mut WorkloadSession,
    session: &Session,
    templates: &[Template],
    item: usize,
    sequence: u32,
    random: &mut Random,
) -> Result<(), TransactionError> {
    match workload.items[item].kind {
        Kind::Ycsb(operation) => {
            let Some(ycsb) = &workload.ycsb else { return Err(TransactionError::incomplete()) };
            ycsb::transaction(ycsb, operation, &mut state.ycsb, session, templates, sequence, random).await
        }
        Kind::Script(number) => {
            let (Some(scripts), Some(own)) = (&workload.scripts, &mut state.script) else {
                return Err(TransactionError::incomplete());
            };
            script::transaction(scripts, number, own, session, &templates[workload.ycsb_statements..], random)
                .await
        }
        Kind::Tpcc(profile) => {
            let (Some(tpcc), Some(own)) = (&workload.tpcc, &mut state.tpcc) else {
                return Err(TransactionError::incomplete());
            };
            tpcc::transaction(tpcc, profile, own, session, templates, random).await
        }
    }
}

/// The reply's error, if it has one.
#[inline]
pub(crate) fn succeeded(session: &Session, reply: Reply) -> Result<(), TransactionError> {
    if reply.errors == 0 {
        return Ok(());
    }
    match session.error_of(reply) {
        Some(error) => Err(TransactionError::Server(error)),
        None => Ok(()),
    }
}
