//! Whether nodes with copies receive from each other before a proof begins. Where replication did not work before, what is missing at the end says nothing about
//! the engine: the rows of the proof were never on their way.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engines::profile::Replication;

use super::LiveError;
use super::tables::{SCHEMA, Shape, client, replications};
use crate::client::{Client, text};
use crate::fault::Site;

/// The table in which each node writes a row that all others must show.
pub(super) const SHAPE: Shape =
    Shape { name: "arrived", columns: "mark bigint not null", key: Some("shard, mark") };
/// How long a row may be under way: a load may have left replication behind.
const TIMEOUT: Duration = Duration::from_secs(30);
/// And where the catalog shows a subscription that does not run: its worker may be just starting.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(8);
/// How often that is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// PostgreSQL's own, with the columns of [`Replication::subscriptions`].
const NATIVE: &str = "select s.subname::text, s.subenabled, \
        exists (select 1 from pg_catalog.pg_stat_subscription w where w.subid = s.oid and w.pid is not null), s.subslotname::text \
    from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid and d.datname = pg_catalog.current_database()";

/// Writes a row on each of these nodes and waits until every other one shows it.
///
/// # Errors
/// [`LiveError::Deaf`] where one does not arrive, with what the catalog of the receiver has about it.
pub(super) fn check(site: &Site, nodes: &[usize]) -> Result<(), LiveError> {
    let mark = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let mut clients = nodes.iter().map(|node| client(site, *node)).collect::<Result<Vec<_>, _>>()?;
    for (node, client) in nodes.iter().zip(&mut clients) {
        client.execute(&format!("insert into {SCHEMA}.{} values ({node}, {mark})", SHAPE.name))?;
    }
    let begin = Instant::now();
    loop {
        let mut missing = Vec::new();
        for (at, client) in clients.iter_mut().enumerate() {
            let rows = client
                .execute(&format!("select shard::text from {SCHEMA}.{} where mark = {mark}", SHAPE.name))?;
            let seen: Vec<String> = rows.rows().iter().filter_map(|row| row.first().and_then(text)).collect();
            let absent = nodes.iter().filter(|node| !seen.contains(&node.to_string()));
            missing.extend(absent.map(|node| (at, *node)));
        }
        let Some((receiver, _)) = missing.first().copied() else { return Ok(()) };
        let waited = begin.elapsed();
        if waited > STOPPED_TIMEOUT {
            let stopped = stopped(&mut clients, receiver)?;
            if !stopped.is_empty() || waited > TIMEOUT {
                return Err(deaf(site, (nodes, &missing), &stopped));
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// `m2 does not receive from m1 and m3: its subscription m2_from_m1 does not run`
fn deaf(site: &Site, (nodes, missing): (&[usize], &[(usize, usize)]), stopped: &[String]) -> LiveError {
    let name = |node: usize| site.nodes[node].name.as_str();
    let mut words: Vec<String> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let senders: Vec<&str> =
            missing.iter().filter(|(receiver, _)| *receiver == at).map(|(_, sender)| name(*sender)).collect();
        if !senders.is_empty() {
            words.push(format!("node {} does not receive from {}", name(*node), senders.join(" and ")));
        }
    }
    let why = match stopped {
        [] => format!("nothing arrived within {} s, though its subscriptions run", TIMEOUT.as_secs()),
        stopped => stopped.join(", "),
    };
    LiveError::Deaf(format!("{}; {}: {why}", words.join(", "), name(nodes[missing[0].0])))
}

/// The subscriptions of one of these nodes that do not run, and what is known about each.
fn stopped(clients: &mut [Client], receiver: usize) -> Result<Vec<String>, LiveError> {
    let mut words = Vec::new();
    let found: Vec<&'static Replication> = replications(&mut clients[receiver], |_| true)?;
    for query in found.iter().map(|replication| replication.subscriptions.unwrap_or(NATIVE)) {
        let rows = clients[receiver].request(query)?.rows().to_vec();
        for row in rows {
            let value = |column: usize| row.get(column).and_then(text).unwrap_or_default();
            let (name, slot) = (value(0), value(3));
            let (is_enabled, runs) = (value(1) == "t", value(2) == "t");
            match (is_enabled, runs) {
                (_, true) => continue,
                (false, false) => words.push(format!("its subscription {name} is disabled")),
                (true, false) if !slot.is_empty() && !is_anywhere(clients, &slot)? => {
                    words.push(format!(
                        "its subscription {name} does not run, and the slot {slot} is on no node: it has to be made again"
                    ));
                }
                (true, false) => words.push(format!("its subscription {name} does not run")),
            }
        }
    }
    words.sort();
    words.dedup();
    Ok(words)
}

fn is_anywhere(clients: &mut [Client], slot: &str) -> Result<bool, LiveError> {
    let sql = format!(
        "select 1 from pg_catalog.pg_replication_slots where slot_name = {}",
        connect::sql::literal(slot)
    );
    for client in clients {
        if !client.execute(&sql)?.rows().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
