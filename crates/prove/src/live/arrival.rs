//! Whether nodes with copies receive from each other before a proof begins. Where replication did not work, what is missing at the end proves nothing about
//! the engine: the rows of the proof were never on their way.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engines::directions::{self, TextRow};

use super::LiveError;
use crate::client::{Client, ClientError, text};

/// A node, its name, and a session there.
pub(super) type Member<'a> = (usize, &'a str, Client);

/// How long a row may be under way: a load may have left replication behind.
const TIMEOUT: Duration = Duration::from_secs(30);
/// And where the catalog shows a subscription that does not run: its worker may be just starting.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(8);
/// How often that is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Writes a row into `table` on each of these nodes and waits until every other one shows it.
///
/// # Errors
/// [`LiveError::Deaf`] where one does not arrive, with what the catalog of the receiver has about it.
pub(super) fn check(members: &mut [Member<'_>], table: &str) -> Result<(), LiveError> {
    let mark = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    for (node, _, client) in members.iter_mut() {
        client.execute(&format!("insert into {table} values ({node}, {mark})"))?;
    }
    let nodes: Vec<(usize, &str)> = members.iter().map(|(node, name, _)| (*node, *name)).collect();
    let begin = Instant::now();
    loop {
        let mut missing: Vec<(usize, &str)> = Vec::new();
        for (receiver, (_, _, client)) in members.iter_mut().enumerate() {
            let rows = client.execute(&format!("select shard::text from {table} where mark = {mark}"))?;
            let seen: Vec<String> = rows.rows().iter().filter_map(|row| row.first().and_then(text)).collect();
            let absent = nodes.iter().filter(|(node, _)| !seen.contains(&node.to_string()));
            missing.extend(absent.map(|(_, sender)| (receiver, *sender)));
        }
        let Some((receiver, _)) = missing.first().copied() else { return Ok(()) };
        let waited = begin.elapsed();
        if waited > STOPPED_TIMEOUT {
            let stopped = stopped(members, receiver)?;
            if !stopped.is_empty() || waited > TIMEOUT {
                return Err(LiveError::Deaf(deaf(&nodes, &missing, &stopped)));
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// `node m2 does not receive from m1 and m3; m2: its subscription m2_from_m1 does not run`
fn deaf(nodes: &[(usize, &str)], missing: &[(usize, &str)], stopped: &[String]) -> String {
    let mut words: Vec<String> = Vec::new();
    for (at, (_, name)) in nodes.iter().enumerate() {
        let senders: Vec<&str> =
            missing.iter().filter(|(receiver, _)| *receiver == at).map(|(_, sender)| *sender).collect();
        if !senders.is_empty() {
            words.push(format!("node {name} does not receive from {}", senders.join(" and ")));
        }
    }
    let why = match stopped {
        [] => format!("nothing arrived within {} s, though its subscriptions run", TIMEOUT.as_secs()),
        stopped => stopped.join(", "),
    };
    let first = missing.first().and_then(|(receiver, _)| nodes.get(*receiver)).map_or("", |(_, name)| name);
    format!("{}; {first}: {why}", words.join(", "))
}

/// What the catalogs have about the subscriptions of one of these nodes that do not work.
fn stopped(members: &mut [Member<'_>], receiver: usize) -> Result<Vec<String>, ClientError> {
    let found = directions::find(members.len(), |node, sql| ask(&mut members[node].2, sql))?;
    let mut words: Vec<String> = found.faults_of(receiver).into_iter().map(|(_, why)| why).collect();
    words.sort();
    let its = found.all.iter().filter(|direction| direction.follower == receiver);
    let halted = its.map(|direction| &direction.subscription).filter(|its| !its.enabled || !its.running);
    words.extend(halted.filter_map(|its| Some(format!("to start it, there: {}", its.start()?))));
    words.dedup();
    Ok(words)
}

/// The rows of a query. An engine that does not know these catalogs refuses it, and has none.
pub(super) fn ask(client: &mut Client, sql: &str) -> Result<Vec<TextRow>, ClientError> {
    let reply = client.request(sql)?;
    Ok(reply.rows().iter().map(|row| row.iter().map(text).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_receives_nothing_is_named_with_its_senders() {
        let nodes = [(0, "m1"), (1, "m2"), (2, "m3")];
        let stopped = ["its subscription m2_from_m1 does not run".to_owned()];
        assert_eq!(
            deaf(&nodes, &[(1, "m1"), (1, "m3")], &stopped),
            "node m2 does not receive from m1 and m3; m2: its subscription m2_from_m1 does not run"
        );
        assert!(deaf(&nodes, &[(2, "m1")], &[]).contains("m3: nothing arrived within 30 s"));
    }
}
