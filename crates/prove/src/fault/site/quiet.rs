//! The wait after a workload: its rows can be judged when the cluster takes writes, and no commit over several nodes is in doubt any more.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use engines::profile::{Own, reports_lost_node};

use super::{Node, POLL_INTERVAL, QUIET_TIMEOUT, Site};
use crate::client::{Client, ClientError, text};
use crate::live::{SILENCE_MAX, patience};

/// The time limit for an answer to one question.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit for a node that need not be there, as others have its rows, too.
const PATIENCE_WITH_ONE_OF_SEVERAL: Duration = Duration::from_secs(2);
/// How often the nodes are searched for transactions in doubt.
const DOUBT_INTERVAL: Duration = Duration::from_millis(200);
/// How often the engine is made to end them: it looks at all of its nodes.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(2);
/// The clock of a server may jump: transactions prepared so long before the proof count as its own.
const CLOCK_SLACK: Duration = Duration::from_secs(10);
/// How long a failover manager has to make a standby of a primary that it has replaced.
const WRITERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Whether a server follows another one.
const IN_RECOVERY: &str = "select pg_catalog.pg_is_in_recovery()::int";
/// Names of transactions in a message.
const NAMES_MAX: usize = 3;

/// Why the rows cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum QuietError {
    /// No node takes writes.
    #[error("no node accepted writes within {} s", waited.as_secs())]
    NoWrites {
        /// How long it was waited for.
        waited: Duration,
        /// What the last attempt met.
        #[source]
        source: ClientError,
    },
    /// All nodes follow another one.
    #[error("every node was in recovery for {} s", waited.as_secs())]
    InRecovery {
        /// How long.
        waited: Duration,
    },
    /// A node that holds rows of its own does not answer.
    #[error("{node} did not answer within {} s, and may have transactions in doubt", waited.as_secs())]
    Away {
        /// The node.
        node: String,
        /// How long it was waited for.
        waited: Duration,
        /// What the last attempt met.
        #[source]
        source: ClientError,
    },
    /// The engine has not ended its commits.
    #[error("{node} has transactions of the engine in doubt, {} s after the load: {}", waited.as_secs(), names.join(", "))]
    InDoubt {
        /// The node.
        node: String,
        /// Names of prepared transactions.
        names: Vec<String>,
        /// How long they were waited for.
        waited: Duration,
        /// What the engine makes for itself.
        own: &'static Own,
    },
}

impl QuietError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            QuietError::NoWrites { source, .. } | QuietError::Away { source, .. } => source.hint(),
            QuietError::InRecovery { .. } => Some("promote a standby: select pg_promote()".to_owned()),
            QuietError::InDoubt { own, .. } => Some(match own.resolve {
                Some(sql) => format!("end them where they began: {sql} Then run pgfathom prove again"),
                None => format!("run pgfathom prove again when they have ended: {}", own.resolves),
            }),
        }
    }
}

/// One node in the wait for the engine's commits.
struct Doubt<'a> {
    node: &'a Node,
    client: Option<Client>,
    /// Of the transactions that the first reading showed, those that are still there: newer ones are of other users. `None` before that reading.
    left: Option<BTreeSet<String>>,
    away: Option<ClientError>,
}

impl Doubt<'_> {
    fn is_over(&self) -> bool {
        self.left.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Reads what is in doubt.
    fn look(&mut self, own: &Own, age: Duration, patience: Duration) {
        let read = self.read(own, age, patience);
        match read {
            Ok(found) => {
                self.away = None;
                self.left = Some(match self.left.take() {
                    None => found,
                    Some(left) => left.intersection(&found).cloned().collect(),
                });
            }
            Err(error) => {
                self.client = None;
                self.away = Some(error);
            }
        }
    }

    fn read(
        &mut self,
        own: &Own,
        age: Duration,
        patience: Duration,
    ) -> Result<BTreeSet<String>, ClientError> {
        let client = match self.client.take() {
            Some(client) => self.client.insert(client),
            None => self.client.insert(Client::connect(&self.node.spec, patience)?),
        };
        let found = client.execute(&format!(
            "select gid from pg_catalog.pg_prepared_xacts where database = pg_catalog.current_database() \
             and prepared > pg_catalog.clock_timestamp() - interval '{} seconds'",
            age.as_secs()
        ))?;
        let names = found.rows().iter().filter_map(|row| text(row.first()?));
        Ok(names.filter(|name| own.prepares(name)).collect())
    }

    /// Makes the engine end its own transactions. A node that cannot do that refuses; the others, or the engine's own process, will.
    fn resolve(&mut self, own: &Own, patience: Duration) {
        let Some(sql) = own.resolve else { return };
        if self.client.is_none() {
            self.client = Client::connect(&self.node.spec, patience).ok();
        }
        if self.client.as_mut().is_some_and(|client| client.request(sql).is_err()) {
            self.client = None;
        }
    }
}

impl Site {
    /// Waits until the cluster takes writes again and no transaction that the engine prepared is in doubt: only then the rows can be judged.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub(crate) fn quiesce(&self) -> Result<(), QuietError> {
        let begin = Instant::now();
        let is_announced = Cell::new(false);
        // A wait of two minutes without a word looks like a program that hangs.
        let pause = |time: Duration, what: &str| {
            if begin.elapsed() >= SILENCE_MAX && !is_announced.replace(true) {
                self.announce(format!("waiting until {what}, up to {} s", QUIET_TIMEOUT.as_secs()));
            }
            std::thread::sleep(time);
        };
        self.await_one_writer(&pause);
        self.await_writes(begin, &pause)?;
        self.engine.own().try_for_each(|own| self.await_commits(own, begin, &pause))
    }

    /// A primary that was stopped while its manager promoted another one goes on taking writes until the manager makes a standby of it. Until then
    /// whichever of the two is read lacks what the other one acknowledged. If both are left after this time, that is what clients get as well.
    fn await_one_writer(&self, pause: &dyn Fn(Duration, &str)) {
        let takes_writes = |node: &&Node| {
            let client = Client::connect(&node.spec, PATIENCE_WITH_ONE_OF_SEVERAL).ok();
            client.and_then(|mut client| client.request(IN_RECOVERY).ok()?.number()) == Some(0)
        };
        let begin = Instant::now();
        while self.nodes.iter().any(Node::is_managed)
            && self.nodes.iter().filter(takes_writes).count() > 1
            && begin.elapsed() < patience(WRITERS_TIMEOUT)
        {
            pause(POLL_INTERVAL, "only one server takes writes");
        }
    }

    fn await_writes(&self, begin: Instant, pause: &dyn Fn(Duration, &str)) -> Result<(), QuietError> {
        loop {
            let requested = self.enter(PATIENCE).and_then(|mut client| {
                let reply = client.execute(IN_RECOVERY)?;
                Ok((client, reply))
            });
            let waited = begin.elapsed();
            match requested {
                Ok((client, reply)) if reply.number() == Some(0) => {
                    match self.has_front() {
                        true => _ = self.follow_primary(),
                        false => self.set_primary(&client),
                    }
                    return Ok(());
                }
                // No other program would start it.
                Ok(_) | Err(_) if waited < patience(QUIET_TIMEOUT) && !self.is_gone() => {
                    pause(POLL_INTERVAL, "the cluster accepts writes");
                }
                Ok(_) => return Err(QuietError::InRecovery { waited }),
                Err(source) => return Err(QuietError::NoWrites { waited, source }),
            }
        }
    }

    /// A worker that comes back from a crash has prepared transactions that its coordinator has committed: until the engine ends them, their rows are
    /// missing, and would be taken for lost.
    fn await_commits(
        &self,
        own: &'static Own,
        begin: Instant,
        pause: &dyn Fn(Duration, &str),
    ) -> Result<(), QuietError> {
        if own.prepared.is_empty() {
            return Ok(());
        }
        let is_optional = self.engine.layout.commits_everywhere();
        let answer = if is_optional { PATIENCE_WITH_ONE_OF_SEVERAL } else { PATIENCE };
        let nodes = self.nodes.iter().filter(|node| node.role != Role::Standby);
        let mut doubts: Vec<Doubt<'_>> =
            nodes.map(|node| Doubt { node, client: None, left: None, away: None }).collect();
        let mut resolved: Option<Instant> = None;
        loop {
            let age = self.made.elapsed() + CLOCK_SLACK;
            doubts.iter_mut().filter(|doubt| !doubt.is_over()).for_each(|doubt| doubt.look(own, age, answer));
            // What a node that is away has prepared, the others have as well.
            doubts.retain(|doubt| !(is_optional && doubt.away.is_some()));
            let Some(open) = doubts.iter_mut().find(|doubt| !doubt.is_over()) else { return Ok(()) };
            let waited = begin.elapsed();
            if waited >= patience(QUIET_TIMEOUT) {
                let node = open.node.name.clone();
                return Err(match open.away.take() {
                    Some(source) => QuietError::Away { node, waited, source },
                    None => {
                        let names = open.left.iter().flatten().take(NAMES_MAX).cloned().collect();
                        QuietError::InDoubt { node, names, waited, own }
                    }
                });
            }
            if resolved.is_none_or(|last| last.elapsed() >= RESOLVE_INTERVAL) {
                resolved = Some(Instant::now());
                doubts.iter_mut().for_each(|doubt| doubt.resolve(own, answer));
            }
            pause(DOUBT_INTERVAL, "the engine has ended its transactions in doubt");
        }
    }

    /// The nodes that do not answer now, and why.
    pub(crate) fn absent_nodes(&self) -> Vec<(String, String)> {
        let nodes = self.nodes.iter().enumerate();
        let absent =
            nodes.filter_map(|(at, node)| Some((node.name.clone(), self.answers(at).err()?.to_string())));
        absent.collect()
    }

    fn answers(&self, node: usize) -> Result<(), ClientError> {
        let mut client = Client::connect(&self.nodes[node].spec, PATIENCE_WITH_ONE_OF_SEVERAL)?;
        client.execute("select 1").map(drop)
    }

    /// Where every node has all rows: if the entry is away, or no part of the cluster now, the first other node that is becomes the entry.
    pub(crate) fn move_entry(&self) {
        if self.has_front() || !self.engine.layout.commits_everywhere() {
            return;
        }
        let now = self.primary();
        let Err(why) = self.answers(now) else { return };
        let Some(next) = (0..self.nodes.len()).find(|node| *node != now && self.answers(*node).is_ok())
        else {
            return;
        };
        *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = next;
        let [away, entry] = [now, next].map(|node| &self.nodes[node].name);
        self.note(format!("{away} was no entry at the begin ({why}): the proof enters at {entry}"));
    }

    /// A session at the entry. Where every node has all rows and one answers without being a part of the cluster, the next one is entered.
    ///
    /// # Errors
    /// When no node can be entered: the error of the last one.
    pub(crate) fn enter(&self, patience: Duration) -> Result<Client, ClientError> {
        self.enter_with(&[], patience)
    }

    /// The same with settings of the session.
    ///
    /// # Errors
    /// As [`Site::enter`].
    pub(crate) fn enter_with(
        &self,
        settings: &[(String, String)],
        patience: Duration,
    ) -> Result<Client, ClientError> {
        let mut entry = self.entry();
        entry.session_settings.extend(settings.iter().cloned());
        if self.has_front() || !self.engine.layout.commits_everywhere() {
            return Ok(Client::connect(&entry, patience)?);
        }
        loop {
            let mut client = Client::connect(&entry, patience)?;
            client.set_timeout(Some(patience.min(PATIENCE_WITH_ONE_OF_SEVERAL)));
            let Err(error) = client.execute("select 1") else {
                client.set_timeout(Some(patience));
                return Ok(client);
            };
            let is_elsewhere = match &error {
                ClientError::Refused { error, .. } => {
                    reports_lost_node(self.engine.node_lost, error.sqlstate.as_str(), &error.message)
                }
                ClientError::Broken(_) | ClientError::Connect(_) => true,
            };
            entry.hosts.drain(..=client.host_index().min(entry.hosts.len().saturating_sub(1)));
            if !is_elsewhere || entry.hosts.is_empty() {
                return Err(error);
            }
        }
    }
}
