//! The wait until every node has what the others have written.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engines::profile::{Arrival, Copies, Layout};

use super::{PATIENCE, SCHEMA, client};
use crate::client::{Client, ClientError, text};
use crate::fault::Site;
use crate::live::{AGAIN_TIMEOUT, LiveError, SILENCE_MAX, again, patience};

/// How long replication may take until every node has everything.
const CONVERGE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a node may take for one answer while the proof runs: where one is away, the others may answer nothing until they agree on that.
const ASKING_PATIENCE: Duration = Duration::from_secs(5);
/// How often that is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until every node has what every other one has written. Returns those that have not: a subscription that a conflict disabled never will.
pub(crate) fn converge(site: &Site, nodes: &[usize]) -> Result<Vec<String>, LiveError> {
    match site.engine.layout {
        _ if nodes.len() < 2 => Ok(Vec::new()),
        Layout::Copies(Copies { arrival: Arrival::Rows, .. }) => converge_by_rows(site, nodes),
        // A node may be cut off in the middle, and come back.
        _ => again(site, || converge_by_slots(site, nodes)),
    }
}

/// Shows once which nodes are waited for.
fn announce_once(site: &Site, begin: Instant, behind: &[String], is_announced: &mut bool) {
    if begin.elapsed() >= SILENCE_MAX && !behind.is_empty() && !std::mem::replace(is_announced, true) {
        site.announce(format!(
            "waiting until every node has what the others wrote, up to {} s: {}",
            CONVERGE_TIMEOUT.as_secs(),
            behind.join(", ")
        ));
    }
}

/// Writes a row on every node, and waits until every other one shows it.
fn converge_by_rows(site: &Site, nodes: &[usize]) -> Result<Vec<String>, LiveError> {
    let mark = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let table = format!("{SCHEMA}.arrival");
    again(site, || {
        site.enter(PATIENCE)?.execute(&format!(
            "create table if not exists {table} (node int, mark bigint, primary key (node, mark))"
        ))?;
        Ok(())
    })?;
    let mut clients: Vec<Option<Client>> = nodes.iter().map(|_| None).collect();
    let mut written = vec![false; nodes.len()];
    let mut behind = Vec::new();
    let begin = Instant::now();
    let (mut is_announced, mut away_s) = (false, Duration::ZERO);
    // The time that a node is away does not count as time that its rows take.
    while begin.elapsed() < patience((CONVERGE_TIMEOUT + away_s).min(AGAIN_TIMEOUT)) {
        announce_once(site, begin, &behind, &mut is_announced);
        behind.clear();
        for (at, node) in nodes.iter().enumerate() {
            let (name, sent) = (&site.nodes[*node].name, Instant::now());
            let found = match &mut clients[at] {
                Some(client) => marks(client, &table, (at, mark), &mut written[at]),
                None => Client::connect(&site.nodes[*node].spec, ASKING_PATIENCE)
                    .map_err(ClientError::from)
                    .and_then(|client| {
                        marks(clients[at].insert(client), &table, (at, mark), &mut written[at])
                    }),
            };
            match found {
                Ok(seen) if seen == nodes.len() as i64 => {}
                Ok(_) => behind.push(format!("{name} lags")),
                Err(error) => {
                    if !matches!(error, ClientError::Refused { .. }) {
                        clients[at] = None;
                    }
                    away_s += sent.elapsed().max(POLL_INTERVAL);
                    behind.push(format!("{name} does not answer ({error})"));
                }
            }
        }
        if behind.is_empty() {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(behind)
}

/// Writes the row of a node, if that has not been done, and counts those that it shows. A node that has not received the table yet, or is refused for the
/// moment, is queried again.
fn marks(
    client: &mut Client,
    table: &str,
    (node, mark): (usize, u128),
    is_written: &mut bool,
) -> Result<i64, ClientError> {
    if !*is_written {
        client.execute(&format!("insert into {table} values ({node}, {mark}) on conflict do nothing"))?;
        *is_written = true;
    }
    let seen = client.execute(&format!("select count(*) from {table} where mark = {mark}"))?;
    Ok(seen.number().unwrap_or_default())
}

/// Waits until every node has confirmed the current WAL of every other one.
fn converge_by_slots(site: &Site, nodes: &[usize]) -> Result<Vec<String>, LiveError> {
    let mut waits: Vec<(usize, Client, String)> = Vec::new();
    for node in nodes {
        let mut client = client(site, *node)?;
        let lsn = client.execute("select pg_catalog.pg_current_wal_lsn()")?;
        let lsn = lsn.value().unwrap_or_default();
        waits.push((*node, client, lsn));
    }
    let begin = Instant::now();
    let (mut is_announced, mut behind) = (false, Vec::new());
    loop {
        announce_once(site, begin, &behind, &mut is_announced);
        behind.clear();
        let mut is_active = false;
        for (node, client, lsn) in &mut waits {
            let slots = client.execute(&format!(
                "select slot_name, active from pg_catalog.pg_replication_slots \
                 where slot_type = 'logical' and not temporary and confirmed_flush_lsn < '{lsn}'"
            ))?;
            for row in slots.rows() {
                let lags = row.get(1).and_then(text).as_deref() == Some("t");
                is_active |= lags;
                let state = if lags { "lags" } else { "has stopped" };
                let slot = row.first().and_then(text).unwrap_or_default();
                behind.push(format!("{slot} of {} {state}", site.nodes[*node].name));
            }
        }
        if behind.is_empty() || begin.elapsed() > CONVERGE_TIMEOUT {
            return Ok(behind);
        }
        // A stopped subscription does not come back by itself.
        if begin.elapsed() > CONVERGE_TIMEOUT / 6 && !is_active {
            return Ok(behind);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
