//! One proof per database: two would drop each other's tables, and their faults would interfere.
//!
//! On every node that answers, a session holds an advisory lock as long as the proof lasts. Locks work on standbys, too, and a promotion does not end their
//! sessions, so the lock survives a failover. If a session is lost because its server was killed or restarted, its keeper takes the lock again as soon as
//! the server is back. The lock belongs to a transaction, not to the session: a pooler then keeps the server's session assigned to us, and no lock remains
//! in it. That transaction has no snapshot, so it holds back no vacuum.
//!
//! A lock can be lost nevertheless (an engine without them, a pooler that gives each statement another session). So the tables of a proof carry its name, and
//! are checked again before the verdict: see [`super::tables::Tables::check`].

use connect::poll;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use connect::ConnSpec;

use super::LiveError;
use super::tables::SCHEMA;
use crate::client::{Broken, Client, ClientError, text};
use crate::fault::Site;

/// The two halves of the lock's key: "pgft", "prov" in ASCII.
const KEY: [i32; 2] = [0x7067_6674, 0x7072_6f76];
/// How often a keeper checks that its session is alive.
const BEAT: Duration = Duration::from_millis(500);
/// A session without an answer for this long is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of a proof waits for its keepers.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a lock is requested that no session seems to hold.
const TRIES_MAX: usize = 100;
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The exclusive lock of a proof on a database. Dropping it releases the lock.
#[derive(Debug)]
pub struct Claim {
    shared: Arc<Shared>,
    keepers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// The session that took the lock while ours was lost.
    taken: Mutex<Option<String>>,
}

/// What became of an attempt.
enum Lock {
    Held(Box<Client>),
    /// By this session of another user.
    Taken(String),
    /// No server answers, or the engine has no such locks.
    Absent,
}

impl Claim {
    /// Takes the lock on every node that answers.
    ///
    /// # Errors
    /// [`LiveError::Taken`] when another proof has it.
    pub fn take(site: &Site) -> Result<Claim, LiveError> {
        let mut held = Vec::new();
        // In the same order everywhere: if two begin at once, one gets all locks.
        let mut nodes: Vec<usize> = (0..site.nodes.len()).collect();
        nodes.sort_by_key(|node| (*node != site.primary(), site.nodes[*node].name.clone()));
        for node in nodes {
            let spec = site.nodes[node].spec.clone().with_application_name(&site.proof().application_name());
            let name = &site.nodes[node].name;
            match attempt(&spec, site.proof().token()) {
                Lock::Held(client) => held.push((spec, Some(client))),
                Lock::Absent => held.push((spec, None)),
                Lock::Taken(holder) => {
                    return Err(LiveError::Taken { node: name.clone(), holder });
                }
            }
        }
        let shared = Arc::new(Shared::default());
        let keepers = held
            .into_iter()
            .filter_map(|(spec, client)| {
                let (shared, token) = (Arc::clone(&shared), site.proof().token().to_owned());
                let work = move || keep(&spec, client, &token, &shared);
                // Without a thread no keeper would check the session, so the lock is released.
                std::thread::Builder::new().name("claim".into()).spawn(work).ok()
            })
            .collect();
        Ok(Claim { shared, keepers })
    }

    /// The session that has taken the lock since ours was lost: then the results of both are invalid.
    pub fn taken(&self) -> Option<String> {
        self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.keepers.iter().for_each(|keeper| keeper.thread().unpark());
        // A keeper that waits for a dead server ends by itself, at the latest with our process.
        poll::until(END_TIMEOUT, || self.keepers.iter().all(|keeper| keeper.is_finished()).then_some(()));
    }
}

fn attempt(spec: &ConnSpec, token: &str) -> Lock {
    let Ok(mut client) = Client::connect(spec, PATIENCE) else { return Lock::Absent };
    match try_lock(&mut client, token) {
        Ok(None) => Lock::Held(Box::new(client)),
        Ok(Some(holder)) => Lock::Taken(holder),
        Err(_) => Lock::Absent,
    }
}

/// `None`: we hold it. Otherwise its holder.
fn try_lock(client: &mut Client, token: &str) -> Result<Option<String>, ClientError> {
    let refused = |why: &str| {
        let cause = std::io::Error::other(why.to_owned());
        ClientError::Broken(Broken { was_sent: true, reply: Box::default(), waits: None, cause })
    };
    let [one, two] = KEY;
    let may_prove = format!(
        "(coalesce(pg_catalog.has_database_privilege(a.usesysid, pg_catalog.current_database(), 'create'), true) \
          or coalesce((select pg_catalog.has_schema_privilege(a.usesysid, n.oid, 'create') from pg_catalog.pg_namespace n \
                       where n.nspname = '{SCHEMA}'), false))"
    );
    client.execute("begin")?;
    // Time limits for idle transactions must not end this one; a release without such a setting has no limit.
    client.execute(
        "select pg_catalog.set_config(name, '0', true) from pg_catalog.pg_settings \
         where name in ('idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout')",
    )?;
    for _ in 0..TRIES_MAX {
        let locked =
            client.execute(&format!("select pg_catalog.pg_try_advisory_xact_lock({one}, {two})::int"))?;
        if locked.number() == Some(1) {
            return Ok(None);
        }
        let holders = client.execute(&format!(
            "select l.pid, coalesce(a.application_name, ''), coalesce(a.usename::text, ''), \
             coalesce(pg_catalog.host(a.client_addr), 'a local socket'), coalesce(pg_catalog.to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS'), ''), \
             {may_prove}::int \
             from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid \
             where l.locktype = 'advisory' and l.granted and l.classid::bigint = {one} and l.objid::bigint = {two} and l.objsubid = 2 \
             and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()) \
             order by 6 desc"
        ))?;
        let Some(row) = holders.rows().first() else {
            // It was given back in between.
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        let column = |at: usize| row.get(at).and_then(text).unwrap_or_default();
        if column(1).contains(token) {
            // The server has not detected the end of the old session, or this is the same server by another name: try later.
            return Err(refused("an older session of pgfathom has the lock"));
        }
        if column(5) == "0" {
            // Every role can take the lock, and such a one cannot make the tables of a proof: there is none to be kept apart from.
            return Err(refused("a role that can run no proof has the lock"));
        }
        return Ok(Some(format!(
            "pid {} ({}, role {}, from {}, since {})",
            column(0),
            match column(1).as_str() {
                "" => "no application_name",
                name => name,
            },
            column(2),
            column(3),
            column(4),
        )));
    }
    // Refused, and no session holds it: the engine has no real locks.
    Err(refused("the server refuses an advisory lock that no session holds"))
}

/// Holds the lock until the end, and takes it again if its session is lost.
fn keep(spec: &ConnSpec, mut client: Option<Box<Client>>, token: &str, shared: &Shared) {
    while !shared.is_over.load(Ordering::Acquire) {
        let is_alive = client.as_mut().is_some_and(|client| client.request("select 1").is_ok());
        if !is_alive {
            client = match attempt(spec, token) {
                Lock::Held(client) => Some(client),
                Lock::Absent => None,
                Lock::Taken(holder) => {
                    shared.taken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(holder);
                    None
                }
            };
        }
        if !shared.is_over.load(Ordering::Acquire) {
            std::thread::park_timeout(BEAT);
        }
    }
    // A busy server notices the end of a session late. Until then the next proof would be refused.
    if let Some(client) = &mut client {
        client.execute("rollback").ok();
    }
}

/// The name of a proof: its tables carry it, and so does the session that holds its locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof(String);

impl Proof {
    /// One that no other session has.
    pub fn new() -> Proof {
        /// The remaining length of an `application_name` of 63 bytes.
        const HOST_BYTES_MAX: usize = 12;
        let host: String = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_'))
            .take(HOST_BYTES_MAX)
            .collect();
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Proof(format!("pid {} on {host}, {:x}-{number}", std::process::id(), record::clock::wall_us()))
    }

    /// What distinguishes it from all others.
    pub fn token(&self) -> &str {
        &self.0
    }

    fn application_name(&self) -> String {
        format!("pgfathom prove, {}", self.0)
    }
}

impl Default for Proof {
    fn default() -> Self {
        Proof::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_have_names_of_their_own_that_fit_into_an_application_name() {
        let (one, other) = (Proof::new(), Proof::new());
        assert_ne!(one, other);
        assert!(one.application_name().len() <= 63, "{}", one.application_name());
        assert!(one.application_name().contains(one.token()));
        assert!(!one.token().contains('\''), "it stands in a comment");
    }
}
