//! Workloads that test a promise under load and under faults: each has an invariant that one reader can check.
//!
//! - [`ack`]: no acknowledged write is lost, torn or duplicated (durability, RPO);
//! - [`heartbeat`]: how long writes and reads are unavailable, and how stale other nodes are (RTO, staleness);
//! - [`bank`]: the sum of all accounts is the same at every moment;
//! - [`twin`]: rows that are written together are seen together;
//! - [`skew`]: write skew, which SERIALIZABLE must refuse;
//! - [`conflict`]: the same row written on several nodes at once;
//! - [`wide`]: what a commit over several nodes costs, in round trips;
//! - [`verreg`]: random transactions, recorded for the checker.
//!
//! Every report has the number of observations, and a positive control: the same read where the anomaly must appear. If the control shows
//! nothing, a zero proves nothing.

pub mod ack;
mod arrival;
pub mod bank;
pub mod claim;
pub mod conflict;
mod doors;
pub mod event_log;
pub mod failures;
pub mod heartbeat;
pub mod members;
mod presence;
pub mod servers;
pub mod silence;
pub mod skew;
pub mod tables;
pub mod twin;
pub mod verreg;
pub mod wide;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::{Cause, ConnSpec, ConnectError};
pub use engines::profile::Isolation;
use engines::profile::reports_lost_node;
use event_log::{EventLog, LoggedEvent};
use record::clock::monotonic_ns;

use self::failures::{Failures, Tally};
use self::servers::{Observed, Registry};
pub(crate) use self::silence::SILENCE_MAX;
pub use self::silence::announced;
use self::silence::announced_on;
use crate::client::{Client, ClientError, Reply};
use crate::fault::{Happened, Plan, QuietError, Site};

/// How long a session waits before it tries again to connect: twice as long each time, so that many sessions do not use up the time in which a server recovers.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(160);
/// How long reading the rows is retried when connections break, and the pause between two attempts.
const AGAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long anything of the cluster is waited for once the user wants to end: a server that was only disturbed is back by then.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How long something may be waited for now.
pub(crate) fn patience(full: Duration) -> Duration {
    if connect::control::silence::is_ending() { full.min(LAST_WAIT) } else { full }
}

const AGAIN_PAUSE: Duration = Duration::from_millis(200);
/// How long the nodes that are left may take until they work without one that died.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(6);
/// The least time of observation after the last step of a plan.
const TAIL: Duration = Duration::from_secs(1);

/// How a workload is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long.
    pub duration: Duration,
    /// Sessions that write; readers are additional.
    pub clients: usize,
    /// The isolation level of the transactions.
    pub level: Isolation,
    /// The seed of every draw.
    pub seed: u64,
    /// Settings of every session, for example `synchronous_commit`.
    pub settings: Vec<(String, String)>,
    /// The faults.
    pub plan: Plan,
    /// A server without an answer for this long counts as unreachable.
    pub patience: Duration,
    /// The log of events.
    pub events: Arc<EventLog>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            duration: Duration::from_secs(10),
            clients: 4,
            level: Isolation::ReadCommitted,
            seed: 1,
            settings: Vec::new(),
            plan: Plan::default(),
            patience: Duration::from_secs(10),
            events: Arc::default(),
        }
    }
}

impl Options {
    fn dressed(&self, mut spec: ConnSpec) -> ConnSpec {
        spec.session_settings.extend(self.settings.iter().cloned());
        spec
    }
}

/// Why a workload could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The server refused a statement that must work, or cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The cluster does not come to rest.
    #[error(transparent)]
    Restless(#[from] QuietError),
    /// Tables of that name that are not ours.
    #[error("the schema {0} exists, and pgfathom did not make it")]
    Foreign(&'static str),
    /// What the proof makes and drops would run code of another role.
    #[error("{0}")]
    EventTrigger(engines::trust::EventTrigger),
    /// New tables would be replicated to servers that do not have them.
    #[error("{what} on {node} replicates every new table: the tables of a proof would stop its subscribers")]
    Replicated {
        /// The node.
        node: String,
        /// What replicates them.
        what: String,
    },
    /// Another proof is at work.
    #[error("another proof is running in this database, on {node}: {holder}")]
    Taken {
        /// The node where it holds the lock.
        node: String,
        /// Its session.
        holder: String,
    },
    /// Another proof has come between.
    #[error("the proof was disturbed: {0}")]
    Disturbed(String),
    /// A node did not receive what the others wrote before the proof began.
    #[error("{0}")]
    Deaf(String),
    /// After the measurement the cluster does not take writes, or its rows cannot be read.
    #[error("the cluster did not recover from it")]
    NotBack(#[source] Box<LiveError>),
    /// Something went away while the proof was set up, or measured in one session.
    #[error("{}, and the proof ended early", away(nodes))]
    Lost {
        /// The nodes that do not answer since.
        nodes: Vec<String>,
        /// What the session met.
        #[source]
        source: ClientError,
    },
    /// The workload needs something else.
    #[error("{0}")]
    Unfit(String),
}

impl LiveError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            LiveError::Client(error) => error.hint(),
            LiveError::Restless(error) => error.hint(),
            LiveError::Foreign(name) => Some(format!(
                "it lacks our comment, or belongs to a role that this session does not trust; if it is not needed: drop schema {name} cascade"
            )),
            LiveError::EventTrigger(trigger) => Some(trigger.hint()),
            LiveError::Taken { .. } => Some(
                "wait for its end, or stop it where it runs; other databases of the same server can be tested meanwhile"
                    .to_owned(),
            ),
            LiveError::Replicated { .. } => Some(
                "name every node that receives it in the cluster file (--cluster), or use another database, or another cluster of this engine, that replicates \
                 only the tables that it names"
                    .to_owned(),
            ),
            LiveError::Disturbed(_) => Some("run pgfathom prove again when no other one runs on these tables".to_owned()),
            LiveError::Deaf(_) => Some("let replication work first; verify and the log of that node show more".to_owned()),
            LiveError::NotBack(error) => error.hint(),
            LiveError::Lost { .. } => Some(format!(
                "run pgfathom prove again when all nodes answer; what is left in schema {} is replaced then",
                tables::SCHEMA
            )),
            LiveError::Unfit(_) => None,
        }
    }
}

impl From<crate::client::Broken> for LiveError {
    fn from(broken: crate::client::Broken) -> Self {
        LiveError::Client(ClientError::Broken(broken))
    }
}

impl From<ConnectError> for LiveError {
    fn from(error: ConnectError) -> Self {
        LiveError::Client(ClientError::Connect(error))
    }
}

/// Who went away, as the begin of a sentence.
fn away(nodes: &[String]) -> String {
    match nodes {
        [] => "a connection was lost, though all nodes answer again".to_owned(),
        nodes => format!("{} did not answer", nodes.join(", ")),
    }
}

/// The error of a proof that a node's end has ended early: it names the node, and what is left of the proof is removed where that is possible.
pub fn explained(site: &Site, error: LiveError) -> LiveError {
    match error {
        LiveError::Client(source) if is_passing(site.engine.node_lost, &source) => {
            let absent = || site.absent_nodes().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
            let mut nodes = absent();
            // For a moment the others refuse everything, too, until they agree on who is left.
            let begin = Instant::now();
            while nodes.len() > 1 && begin.elapsed() < AGREEMENT_TIMEOUT {
                std::thread::sleep(AGAIN_PAUSE);
                nodes = absent();
            }
            tables::remove_everywhere(site, tables::ABSENT_PATIENCE);
            LiveError::Lost { nodes, source }
        }
        error => error,
    }
}

/// The end of the threads, and their common counters.
#[derive(Debug)]
struct Watch<'a> {
    site: &'a Site,
    tally: &'a Tally,
    servers: &'a Registry,
    begin: Instant,
    /// `None` while the plan runs: a plan that takes longer than requested is followed to its end, and observed a while beyond.
    end: Mutex<Option<Instant>>,
    is_over: &'a AtomicBool,
}

impl Watch<'_> {
    /// Counts an answer.
    fn count(&self, reply: &Reply) {
        self.tally.reply(reply, !self.site.is_disturbed());
    }

    /// Whether the session has to go to another node: this one refuses everything because it is no part of the cluster now, and the others have all rows.
    fn has_to_leave(&self, reply: &Reply) -> bool {
        self.site.engine.layout.commits_everywhere()
            && reply.error.as_ref().is_some_and(|error| {
                reports_lost_node(self.site.engine.node_lost, error.sqlstate.as_str(), &error.message)
            })
    }

    fn goes_on(&self) -> bool {
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_over.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end)
    }

    fn ends_early(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The results of a load beside those of its parts.
#[derive(Debug)]
struct Ran<T> {
    parts: Vec<T>,
    happened: Vec<Happened>,
    /// What was refused.
    failures: Failures,
    /// What became of the servers.
    observed: Observed,
}

/// Runs `work` in one thread per number, and the plan beside it; then undoes all faults, so that hanging threads can end. A fault that cannot be
/// undone becomes a note: the observations are kept.
fn under_faults<T: Send>(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    threads: usize,
    work: impl Fn(usize, &Watch<'_>) -> T + Sync,
) -> Ran<T> {
    if options.plan.needs_disks() {
        // Earlier data is not part of the proof, and a server without fsync never syncs it by itself.
        site.settle();
    }
    let names = servers::names(site);
    let (first_primary, others) = (site.primary(), servers::others(site));
    let (tally, registry) = (Tally::default(), Registry::default());
    let begin = Instant::now();
    options.events.note(LoggedEvent::Load { at_ns: monotonic_ns() });
    let watch =
        Watch { site, tally: &tally, servers: &registry, begin, end: Mutex::new(None), is_over: stop };
    let (watch, work) = (&watch, &work);
    let (parts, happened, periods, names) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number, watch))).collect();
        let observer = scope.spawn(move || servers::observe(site, watch.servers, watch));
        let presence = (site.nodes.len() > 1).then(|| scope.spawn(move || presence::observe(site, watch)));
        let learner = scope.spawn(move || servers::learn_names(site, names, watch));
        let happened = site.follow(&options.plan, begin, stop);
        happened.iter().for_each(|one| options.events.note(LoggedEvent::Step(one.clone())));
        let requested = begin + options.duration;
        let end = if happened.is_empty() { requested } else { requested.max(Instant::now() + TAIL) };
        *watch.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        while watch.goes_on() && !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(RECONNECT_PAUSE);
        }
        // A thread that gave up early is not observed any more.
        let now = Instant::now();
        watch.end.lock().unwrap_or_else(PoisonError::into_inner).replace(end.min(now));
        let at_ns = monotonic_ns();
        if let Err(error) = site.heal(None) {
            site.note(format!(
                "the injected faults could not be undone: {}; try again with pgfathom prove --heal",
                chain(&error)
            ));
        }
        options.events.note(LoggedEvent::Undone { at_ns, end_ns: monotonic_ns() });
        let results = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let periods = observer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(presence) = presence {
            presence.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let names = learner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (results, happened, periods, names)
    });
    let incarnations = registry.into_incarnations();
    let observed = Observed { incarnations, periods, names, first_primary, others, ..Observed::default() };
    Ran { parts, happened, failures: tally.into_failures(), observed }
}

/// Waits until the cluster takes writes again, and returns a session whose tables are still ours.
///
/// # Errors
/// [`LiveError::NotBack`], [`LiveError::Disturbed`], and [`LiveError::Restless`] when the engine has not ended its commits.
fn after_all(
    site: &Site,
    tables: &tables::Tables,
    observed: &mut Observed,
    patience: Duration,
) -> Result<Client, LiveError> {
    let not_back = |error: LiveError| match error {
        // It is back, but nothing can be judged.
        LiveError::Restless(QuietError::InDoubt { .. }) | LiveError::Disturbed(_) => error,
        error => LiveError::NotBack(Box::new(error)),
    };
    site.quiesce().map_err(|error| not_back(error.into()))?;
    let mut client = again(site, || {
        // A node that answers may not be a part of the cluster yet, or not for long.
        let mut client = site.enter(patience)?;
        tables.check(site, &mut client)?;
        Ok(client)
    })
    .map_err(not_back)?;
    // A cluster manager may have promoted another node since the site was last looked at.
    let primary = site.follow_primary().then(|| site.primary());
    observed.meet_last(&mut client, primary);
    observed.meet_others(site);
    Ok(client)
}

/// The server's refusal to read the rows at the end: they cannot be read any more.
fn lost_rows(error: LiveError) -> LiveError {
    match error {
        error @ LiveError::Client(_) => LiveError::NotBack(Box::new(error)),
        other => other,
    }
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    words
}

/// Retries a step that a failover, a restart or a cluster manager may have interrupted, or a node that is no part of the cluster yet.
pub(crate) fn again<T>(site: &Site, work: impl FnMut() -> Result<T, LiveError>) -> Result<T, LiveError> {
    repeat(site, true, work)
}

/// The same for a step that begins while all answer: a server that cannot be reached at the first attempt is away, which is an error at once.
fn again_if_cut<T>(site: &Site, work: impl FnMut() -> Result<T, LiveError>) -> Result<T, LiveError> {
    repeat(site, false, work)
}

/// `was_cut`: something may have been interrupted before the first attempt.
fn repeat<T>(
    site: &Site,
    mut was_cut: bool,
    mut work: impl FnMut() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    let begin = Instant::now();
    let mut is_announced = false;
    loop {
        match work() {
            Err(LiveError::Client(error))
                if begin.elapsed() < patience(AGAIN_TIMEOUT)
                    && is_passing(site.engine.node_lost, &error)
                    && (was_cut || !matches!(error, ClientError::Connect(_))) =>
            {
                was_cut = true;
                if begin.elapsed() >= SILENCE_MAX && !std::mem::replace(&mut is_announced, true) {
                    site.announce(format!(
                        "waiting for the cluster, up to {} s: {error}",
                        AGAIN_TIMEOUT.as_secs()
                    ));
                }
                std::thread::sleep(AGAIN_PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether an error may be gone when a server, or another node that it needs, is back. `lost`: the engine's SQLSTATE values for that.
fn is_passing(lost: &[&str], error: &ClientError) -> bool {
    // A pooler without what is needed stays without it.
    if let ClientError::Connect(error) = error
        && matches!(error.cause(), Some(Cause::Pooler(_) | Cause::Unsupported(_)))
    {
        return false;
    }
    let ClientError::Refused { error, .. } = error else { return true };
    let code = error.sqlstate.as_str();
    // Connection exceptions; admin shutdown, crash shutdown, cannot connect now.
    code.starts_with("08")
        || matches!(code, "57P01" | "57P02" | "57P03")
        || reports_lost_node(lost, code, &error.message)
}

/// A session that reconnects when it is lost.
#[derive(Debug)]
struct Lasting {
    spec: ConnSpec,
    patience: Duration,
    client: Option<Client>,
    /// The host that answered last is tried first.
    first: usize,
    /// Connections made by now.
    connections: u64,
    /// Why the last connection attempt failed.
    refused: Option<ConnectError>,
    /// The pause after the next attempt that fails.
    pause: Duration,
}

impl Lasting {
    fn new(spec: ConnSpec, patience: Duration) -> Lasting {
        Lasting {
            spec,
            patience,
            client: None,
            first: 0,
            connections: 0,
            refused: None,
            pause: RECONNECT_PAUSE,
        }
    }

    /// The session, made if there is none; `None` after a failed attempt and a pause.
    fn get(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            match connect_first(&self.spec, self.first, self.patience) {
                Ok((client, host)) => {
                    self.client = Some(client);
                    self.first = host;
                    self.connections += 1;
                    self.pause = RECONNECT_PAUSE;
                }
                Err(error) => {
                    self.refused = Some(error);
                    std::thread::sleep(self.pause);
                    self.pause = (self.pause * 2).min(RECONNECT_PAUSE_MAX);
                }
            }
        }
        self.client.as_mut()
    }

    fn lose(&mut self) {
        self.client = None;
    }
}

/// Connects, trying the host with this index first and then the others in order. Also returns the index of the one that answered.
fn connect_first(spec: &ConnSpec, first: usize, patience: Duration) -> Result<(Client, usize), ConnectError> {
    let count = spec.hosts.len().max(1);
    let mut turned = spec.clone();
    turned.hosts.rotate_left(first % count);
    let client = Client::connect(&turned, patience)?;
    let host = (client.host_index() + first) % count;
    Ok((client, host))
}

/// The random numbers of one session.
#[derive(Clone, Copy, Debug)]
struct Draws(u64);

impl Draws {
    fn new(seed: u64, session: usize) -> Draws {
        let mut state = seed ^ (session as u64).wrapping_mul(0xa076_1d64_78bd_642f);
        crate::fault::plan::next(&mut state);
        Draws(state)
    }

    /// A number below `limit`, which is small: the bias of the remainder does not matter here.
    fn below(&mut self, limit: u64) -> u64 {
        crate::fault::plan::next(&mut self.0) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_node_that_is_away_may_pass() {
        let is_passing = |engine: &str, code: &[u8; 5], message: &str| {
            let error = wire::error::ServerError::parse(
                &[b"C", &code[..], b"\0M", message.as_bytes(), b"\0\0"].concat(),
            );
            let engine = engines::Engine::parse(engine).unwrap();
            let refused = ClientError::Refused { error: Box::new(error), sql: "select 1".to_owned() };
            is_passing(engine.node_lost, &refused)
        };
        assert!(is_passing("citus", b"08006", "connection to the remote node w1 failed"));
        assert!(is_passing("citus", b"57P03", "the database system is starting up"));
        let catching_up = "[MTM] multimaster node is not online: current status catchup";
        assert!(is_passing("mtm", b"XX000", catching_up) && !is_passing("citus", b"XX000", catching_up));
        assert!(!is_passing("citus", b"42P01", "relation does not exist"));
    }
}
