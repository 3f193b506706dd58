//! Live histories: sessions that read and write a few hot rows at random, and record what they did and saw.
//!
//! Two encodings ([`Model`]): versioned registers, whose rows count their versions, and lists that grow. Both make the order of versions known to the checker. The
//! keys are few, so that transactions meet; every draw comes from the seed, but what they meet is up to the server.
//!
//! Every run of a strong level should stand beside one of a weaker level on the same server ([`Plan::isolation`]): when that shows no anomaly, the load was too weak to
//! show any, and "not refuted" says nothing.

use std::io;
use std::sync::Mutex;
use std::time::Instant;

use target::ConnSpec;
use target::hot::{self, HotConnection};
use wire::error::SqlState;

use crate::history::{History, Isolation, Kind, Model, Op, Outcome, Txn};
use crate::simulate::Draw;
use crate::talk::{Reply, TalkError, ask};

/// The tables begin with this.
const TABLE: &str = "pgfathom_history";
/// Where a session's number stands in its tokens.
const SESSION_SHIFT: u32 = 40;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The same seed draws the same transactions.
    pub seed: u64,
    /// Versioned registers or lists.
    pub model: Model,
    /// The level that is asked for.
    pub isolation: Isolation,
    /// Sessions at once.
    pub sessions: u32,
    /// Transactions of each.
    pub txns: u32,
    /// Rows.
    pub keys: u32,
    /// Operations of a transaction: 1 to this many.
    pub ops_max: u32,
}

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No connection.
    #[error(transparent)]
    Talk(#[from] TalkError),
    /// The server refused something outside of a transaction of the load.
    #[error("{doing} failed: {message}")]
    Refused {
        /// What was tried.
        doing: &'static str,
        /// The server's words.
        message: String,
    },
    /// It said something that makes no sense.
    #[error("the server answered {0:?}")]
    Answer(String),
}

impl From<io::Error> for WorkloadError {
    fn from(error: io::Error) -> Self {
        WorkloadError::Talk(error.into())
    }
}

/// One transaction as it was recorded.
struct Recorded {
    txn: Txn,
    ops: Vec<(Op, Vec<u64>)>,
}

/// Runs the load and gives its history. Makes a table of its own in this session's name and drops it.
///
/// # Errors
/// When sessions cannot be opened or the table not be made. A refused transaction is part of the history.
pub fn record(spec: &ConnSpec, plan: &Plan) -> Result<History, WorkloadError> {
    let mut control = connect(spec)?;
    // A table per run: a key is never used twice, and nobody else's table is touched.
    let table = format!("{TABLE}_{}", control.process_id());
    tell(
        &mut control,
        "making the table",
        &format!("CREATE TABLE {table} (k int PRIMARY KEY, ver int, tok bigint, val text)"),
    )?;
    let fill =
        format!("INSERT INTO {table} SELECT k, 0, 0, '' FROM generate_series(0, {}) k", plan.keys.max(1) - 1);
    tell(&mut control, "filling the table", &fill)?;
    let all = Mutex::new(Vec::new());
    let start = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..plan.sessions)
            .map(|number| {
                let (all, table) = (&all, table.as_str());
                scope.spawn(move || session(spec, plan, number, table, start, all))
            })
            .collect();
        sessions.into_iter().try_for_each(|session| match session.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    tell(&mut control, "dropping the table", &format!("DROP TABLE {table}"))?;
    outcome?;
    let mut all = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.sort_by_key(|recorded: &Recorded| recorded.txn.end_ns);
    let mut history = History::new(plan.model);
    for Recorded { txn, ops } in all {
        let ops: Vec<Op> = ops
            .into_iter()
            .map(|(op, list)| match (op.kind, plan.model) {
                (Kind::Read, Model::Append) => {
                    let read = history.read_list(op.key, &list);
                    Op { ver: read.ver, tok: read.tok, ..op }
                }
                _ => op,
            })
            .collect();
        history.push(txn, &ops);
    }
    Ok(history)
}

fn connect(spec: &ConnSpec) -> Result<HotConnection, WorkloadError> {
    hot::connect(spec).map_err(|error| TalkError::from(error).into())
}

fn tell(connection: &mut HotConnection, doing: &'static str, sql: &str) -> Result<Reply, WorkloadError> {
    let reply = ask(connection, sql)?;
    match &reply.error {
        Some(error) => Err(WorkloadError::Refused { doing, message: error.to_string() }),
        None => Ok(reply),
    }
}

fn session(
    spec: &ConnSpec,
    plan: &Plan,
    number: u32,
    table: &str,
    start: Instant,
    all: &Mutex<Vec<Recorded>>,
) -> Result<(), WorkloadError> {
    let mut connection = connect(spec)?;
    let mut draw = Draw::new(plan.seed ^ u64::from(number) << 32);
    let mut token = u64::from(number + 1) << SESSION_SHIFT;
    // From 1: the time 0 means "unknown".
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
    for _ in 0..plan.txns {
        let mut txn = Txn { isolation: plan.isolation, begin_ns: now(), ..Txn::ok(number) };
        tell(
            &mut connection,
            "beginning a transaction",
            &format!("BEGIN ISOLATION LEVEL {}", plan.isolation.sql()),
        )?;
        let mut ops = Vec::new();
        let mut refused = None;
        for statement in 0..=draw.below(plan.ops_max.max(1)) as u16 {
            let key = draw.below(plan.keys.max(1));
            let write = (draw.below(2) == 0).then(|| {
                token += 1;
                token
            });
            let start_ns = now();
            let reply = ask(&mut connection, &sql(plan.model, table, key, write))?;
            if let Some(error) = &reply.error {
                refused = Some(error.sqlstate);
                // What the statement would have written is known by its token alone.
                let kind = if plan.model == Model::Append { Kind::Append } else { Kind::Update };
                let lost = write
                    .map(|token| (Op { statement, start_ns, ..Op::new(kind, key, 0, token) }, Vec::new()));
                ops.extend(lost);
                break;
            }
            let (op, list) = seen(plan.model, key, write, &reply)?;
            ops.push((Op { statement, start_ns, ..op }, list));
        }
        txn.commit_sent_ns = now();
        let reply = ask(&mut connection, if refused.is_some() { "ROLLBACK" } else { "COMMIT" })?;
        txn.end_ns = now();
        let notice = reply.notices.iter().find(|notice| notice.severity == "WARNING");
        let error = reply.error.as_ref().map(|error| error.sqlstate).or(refused);
        txn.outcome = match (error, reply.tag()) {
            // One server, one log: what it refuses has not happened.
            (Some(_), _) | (None, "ROLLBACK") => Outcome::Fail,
            (None, _) if notice.is_some() => Outcome::OkWeak,
            (None, _) => Outcome::Ok,
        };
        txn.sqlstate = error.map_or([0; 5], |SqlState(code)| code);
        txn.notice = notice.map_or([0; 5], |notice| notice.sqlstate.0);
        all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Recorded { txn, ops });
    }
    Ok(())
}

fn sql(model: Model, table: &str, key: u32, write: Option<u64>) -> String {
    match (model, write) {
        (Model::Append, None) => format!("SELECT val FROM {table} WHERE k = {key}"),
        (Model::Append, Some(token)) => {
            format!("UPDATE {table} SET val = val || ',{token}' WHERE k = {key}")
        }
        (_, None) => format!("SELECT ver, tok FROM {table} WHERE k = {key}"),
        (_, Some(token)) => {
            format!("UPDATE {table} SET ver = ver + 1, tok = {token} WHERE k = {key} RETURNING ver")
        }
    }
}

fn seen(model: Model, key: u32, write: Option<u64>, reply: &Reply) -> Result<(Op, Vec<u64>), WorkloadError> {
    let text = reply.text(0).unwrap_or_default();
    let wrong = || WorkloadError::Answer(text.clone());
    Ok(match (model, write) {
        (Model::Append, Some(token)) => (Op::new(Kind::Append, key, 1, token), Vec::new()),
        (Model::Append, None) => {
            let list: Result<Vec<u64>, _> = text.split(',').skip(1).map(str::parse).collect();
            (Op::new(Kind::Read, key, 0, 0), list.map_err(|_| wrong())?)
        }
        (_, Some(token)) => {
            (Op::new(Kind::Update, key, text.parse().map_err(|_| wrong())?, token), Vec::new())
        }
        (_, None) => {
            let (ver, tok) = text.split_once(',').ok_or_else(wrong)?;
            let ver = ver.parse().map_err(|_| wrong())?;
            (Op::new(Kind::Read, key, ver, tok.parse().map_err(|_| wrong())?), Vec::new())
        }
    })
}
