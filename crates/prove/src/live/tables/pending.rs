//! Rows of a proof that a node has not sent to another one yet. If their table is dropped meanwhile, they arrive for a table that is not there, and that
//! stops the replication between both for good, with the user's own tables.

use std::time::{Duration, Instant};

use connect::sql::literal;
use engines::directions::{self, Direction};

use super::super::{LiveError, SILENCE_MAX, arrival};
use super::{SCHEMA, client};
use crate::client::Client;
use crate::fault::Site;

/// How long rows may be under way.
const TIMEOUT: Duration = Duration::from_secs(60);
/// And where nothing reads them, and nothing will.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(6);
/// How often a subscription that does not run is started.
const START_INTERVAL: Duration = Duration::from_secs(5);
/// How often the slots are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// One way from a node to another one.
struct Way {
    direction: Direction,
    /// What its source had written when the wait began.
    lsn: String,
    /// `None`: everything has arrived. Otherwise whether the slot is read.
    is_read: Option<bool>,
}

/// Rows of an earlier proof have to arrive before its tables are dropped.
///
/// # Errors
/// [`LiveError::Deaf`] where they do not.
pub(super) fn await_remains(site: &Site) -> Result<(), LiveError> {
    match left(site)? {
        left if left.is_empty() => Ok(()),
        left => Err(LiveError::Deaf(format!("rows of an earlier proof are under way: {}", left.join(", ")))),
    }
}

/// Whether every node has what the others wrote. If not, that becomes a note: the tables stay, as without them what arrives later would stop replication.
pub(super) fn is_received(site: &Site) -> bool {
    let why = match left(site) {
        Ok(left) if left.is_empty() => return true,
        Ok(left) => left.join(", "),
        Err(error) => error.to_string(),
    };
    site.note(format!(
        "the schema {SCHEMA} is left on all nodes, because rows that arrive for a table that is gone stop replication: {why}; when all nodes have received \
         everything: drop schema {SCHEMA} cascade, on each node; the next proof does it, too"
    ));
    false
}

/// Waits until each node of the site has what every other one has written, and starts subscriptions that do not run, where that is one call.
/// Returns in words who has not got what.
///
/// # Errors
/// When a node does not answer.
fn left(site: &Site) -> Result<Vec<String>, LiveError> {
    let nodes = 0..site.nodes.len();
    let mut clients = nodes.map(|node| client(site, node)).collect::<Result<Vec<_>, _>>()?;
    let found = directions::find(clients.len(), |node, sql| arrival::ask(&mut clients[node], sql))?;
    let mut ways = Vec::new();
    for direction in found.all.into_iter().filter(|direction| direction.has_slot) {
        let lsn = clients[direction.source].execute("select pg_catalog.pg_current_wal_lsn()")?;
        ways.push(Way { direction, lsn: lsn.value().unwrap_or_default(), is_read: Some(true) });
    }
    let begin = Instant::now();
    let (mut started, mut is_announced) = (begin, false);
    loop {
        for way in ways.iter_mut().filter(|way| way.is_read.is_some()) {
            way.look(&mut clients[way.direction.source])?;
        }
        let open: Vec<&Way> = ways.iter().filter(|way| way.is_read.is_some()).collect();
        let words = || open.iter().map(|way| way.describe(site)).collect::<Vec<_>>();
        let waited = begin.elapsed();
        let may_arrive = open.iter().any(|way| way.is_read == Some(true) || way.start().is_some());
        if open.is_empty() || waited > TIMEOUT || waited > STOPPED_TIMEOUT && !may_arrive {
            return Ok(words());
        }
        if waited >= SILENCE_MAX && !std::mem::replace(&mut is_announced, true) {
            let all = words().join(", ");
            site.announce(format!("waiting for replication, up to {} s: {all}", TIMEOUT.as_secs()));
        }
        if started.elapsed() >= START_INTERVAL {
            started = Instant::now();
            for way in open.iter().filter(|way| way.is_read == Some(false)) {
                if let Some(sql) = way.start() {
                    // One that cannot be started yet is tried again.
                    let _ = clients[way.direction.follower].request(&sql);
                }
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl Way {
    fn look(&mut self, source: &mut Client) -> Result<(), LiveError> {
        let slot = source.execute(&format!(
            "select active::int from pg_catalog.pg_replication_slots where slot_name = {} and confirmed_flush_lsn < {}::pg_catalog.pg_lsn",
            literal(&self.direction.subscription.slot),
            literal(&self.lsn)
        ))?;
        self.is_read = slot.number().map(|active| active == 1);
        Ok(())
    }

    /// SQL for the follower that starts a subscription which does not run though no user has disabled it.
    fn start(&self) -> Option<String> {
        self.direction.subscription.start().filter(|_| self.direction.subscription.enabled)
    }

    fn describe(&self, site: &Site) -> String {
        let [source, follower] =
            [self.direction.source, self.direction.follower].map(|node| &site.nodes[node].name);
        format!("{follower} has not received everything from {source}")
    }
}
